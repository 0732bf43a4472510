//! How fast background work goes beside callers: as fast as it can while there are none, else as fast as leaves the slowest of their
//! calls about as quick as they are without it.
//!
//! - C1: pure: windows of what callers saw come in, a rate comes out.
//! - C2: a window says something from [`CALLS_MIN`] calls on, or after [`WINDOW_MAX`] without any: then nobody is there.
//! - C3: the rate halves where calls are slow, and grows by a quarter where they are not; it never falls below its floor.
//! - C4: while nobody knows how quick calls are without the work, they are taken for slow, if they are so many that it will be known. At its
//!   floor the work hardly matters to them: what they take then is what they are compared with.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Calls that make a 99th percentile.
const CALLS_MIN: u32 = 100;
/// How long to wait for them.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// Calls are slow if the slowest hundredth takes so much longer than without the work, and more than the least difference that matters.
const SLOWER: f64 = 1.4;
const SLOWER_BY: Duration = Duration::from_micros(100);
/// From this rate on there is no limit: faster than what work does with what it moves.
const RATE_MAX: u64 = 2 << 30;

/// Buckets of [`Latencies`]: a quarter of a power of two each, so that a percentile is at most a fifth too high.
const BUCKETS: usize = 4 * 40;

/// How long calls took. Shared by all callers: one relaxed addition for each that is noted.
#[derive(Debug)]
pub struct Latencies {
    counts: [AtomicU32; BUCKETS],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

/// What callers saw for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Calls that were noted.
    pub calls: u32,
    /// What the quickest of the slowest hundredth took.
    pub p99: Duration,
}

fn bucket(nanos: u64) -> usize {
    // Below 4 ns a quarter of a power of two is no number.
    let nanos = nanos.max(4);
    let power = nanos.ilog2();
    let quarter = (nanos >> (power - 2)) & 3;
    ((power as usize - 2) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// Where a bucket ends.
fn upper(bucket: usize) -> u64 {
    (bucket as u64 % 4 + 5) << (bucket / 4)
}

impl Latencies {
    /// A call took so long.
    #[inline]
    pub fn note(&self, took: Duration) {
        if let Some(count) = self.counts.get(bucket(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were noted since the last window.
    fn calls(&self) -> u32 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u32::saturating_add)
    }

    /// Ends a window, if enough was noted or it was `waited` long for (C2).
    pub fn window(&self, waited: Duration) -> Option<Window> {
        (self.calls() >= CALLS_MIN || waited >= WINDOW_MAX).then(|| self.take())
    }

    /// Ends a window.
    pub fn take(&self) -> Window {
        let counts: Vec<u32> = self.counts.iter().map(|count| count.swap(0, Ordering::Relaxed)).collect();
        let calls = counts.iter().copied().fold(0, u32::saturating_add);
        let mut slowest = calls / 100;
        let place = counts.iter().enumerate().rev().find(|&(_, &count)| {
            let is_beyond = count > slowest;
            slowest = slowest.saturating_sub(count);
            is_beyond
        });
        Window { calls, p99: Duration::from_nanos(place.map_or(0, |(bucket, _)| upper(bucket))) }
    }
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Courtesy {
    rate_min: u64,
    /// How long the slowest calls take without the work; `None` until that was seen.
    alone: Option<Duration>,
    rate: Option<u64>,
}

impl Courtesy {
    /// Without a limit yet; never below `rate_min` bytes per second.
    pub const fn new(rate_min: u64) -> Self {
        Self { rate_min, alone: None, rate: None }
    }

    /// What callers saw while no work was done.
    pub fn note_alone(&mut self, window: &Window) {
        if window.calls >= CALLS_MIN {
            self.alone = Some(self.alone.map_or(window.p99, |before| (before + window.p99) / 2));
        }
    }

    /// The work went on without a limit, or ended: the next window is not of any rate before.
    pub fn lift(&mut self) {
        self.rate = None;
    }

    /// The rate from now on, in bytes per second, after a window in which `moved` bytes a second were moved; `None`: no limit.
    pub fn rate(&mut self, window: &Window, moved: u64) -> Option<u64> {
        if window.calls == 0 {
            self.rate = None;
            return None;
        }
        if self.alone.is_none() {
            if window.calls < CALLS_MIN {
                return self.rate;
            }
            if self.rate == Some(self.rate_min) {
                self.note_alone(window);
            }
        }
        let is_slow = self.alone.is_none_or(|alone| window.p99 > alone.mul_f64(SLOWER).max(alone + SLOWER_BY));
        self.rate = if is_slow {
            Some((self.rate.unwrap_or(moved).min(moved) / 2).max(self.rate_min))
        } else {
            self.rate.map(|rate| rate + rate / 4).filter(|&rate| rate < RATE_MAX)
        };
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn window(calls: u32, micros: u64) -> Window {
        Window { calls, p99: Duration::from_micros(micros) }
    }

    #[test]
    fn a_percentile_is_at_most_a_quarter_too_high() {
        for nanos in (0..41).flat_map(|power| [1_u64 << power, (1 << power) + (1 << power) / 3]) {
            let (found, nanos) = (upper(bucket(nanos)), nanos.max(4));
            assert!(found > nanos - 1 && found <= nanos + nanos / 4, "{nanos}: {found}");
        }
        let latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.note(Duration::from_micros(n)));
        let window = latencies.window(Duration::ZERO).unwrap();
        assert_eq!(window.calls, 1000);
        assert!((990..=1237).contains(&(window.p99.as_micros())), "{window:?}");
        assert_eq!(latencies.window(Duration::ZERO), None, "too few to tell");
        assert_eq!(latencies.window(WINDOW_MAX), Some(Window { calls: 0, p99: Duration::ZERO }));
    }

    #[test]
    fn the_slowest_hundredth_is_what_counts() {
        let latencies = Latencies::default();
        (0..990).for_each(|_| latencies.note(Duration::from_micros(10)));
        (0..10).for_each(|_| latencies.note(Duration::from_millis(10)));
        assert!(latencies.take().p99 < Duration::from_micros(13));
        (0..980).for_each(|_| latencies.note(Duration::from_micros(10)));
        (0..20).for_each(|_| latencies.note(Duration::from_millis(10)));
        assert!(latencies.take().p99 >= Duration::from_millis(10));
    }

    #[test]
    fn work_slows_down_while_calls_are_slow_and_speeds_up_again() {
        let mut courtesy = Courtesy::new(4 * MIB);
        courtesy.note_alone(&window(1000, 200));
        courtesy.note_alone(&window(3, 9000));
        assert_eq!(courtesy.rate(&window(1000, 290), 200 * MIB), None, "hardly slower");
        assert_eq!(courtesy.rate(&window(1000, 900), 200 * MIB), Some(100 * MIB));
        assert_eq!(courtesy.rate(&window(1000, 900), 60 * MIB), Some(30 * MIB), "from what it really moved");
        for _ in 0..20 {
            courtesy.rate(&window(1000, 900), 60 * MIB);
        }
        assert_eq!(courtesy.rate, Some(4 * MIB), "the floor");
        let mut rates = std::iter::repeat_with(|| courtesy.rate(&window(1000, 210), 4 * MIB));
        assert_eq!(rates.next(), Some(Some(5 * MIB)));
        assert!(rates.take(40).any(|rate| rate.is_none()), "no limit in the end");
        courtesy.rate(&window(1000, 900), 60 * MIB);
        assert_eq!(courtesy.rate(&window(0, 0), 4 * MIB), None, "nobody is there");
    }

    #[test]
    fn what_is_not_known_is_found_out_at_the_lowest_rate() {
        let mut courtesy = Courtesy::new(4 * MIB);
        assert_eq!(courtesy.rate(&window(0, 0), 200 * MIB), None, "nobody is there");
        assert_eq!(courtesy.rate(&window(1000, 200), 20 * MIB), Some(10 * MIB), "slow, for all one knows");
        assert_eq!(courtesy.rate(&window(1000, 200), 10 * MIB), Some(5 * MIB));
        assert_eq!(courtesy.rate(&window(1000, 200), 5 * MIB), Some(4 * MIB));
        courtesy.lift();
        assert_eq!(courtesy.rate(&window(99, 9000), 40 * MIB), None, "so few would never tell");
        assert_eq!(courtesy.rate(&window(1000, 9000), 8 * MIB), Some(4 * MIB), "of no rate: not what they take alone");
        assert_eq!(courtesy.rate(&window(3, 900), 4 * MIB), Some(4 * MIB), "too few to tell");
        assert_eq!(courtesy.rate(&window(1000, 60), 4 * MIB), Some(5 * MIB), "this is how quick they are");
        assert_eq!(courtesy.rate(&window(1000, 200), 5 * MIB), Some(4 * MIB), "and this is slow");
    }

    #[test]
    fn differences_that_nobody_feels_are_none() {
        let mut courtesy = Courtesy::new(MIB);
        courtesy.note_alone(&window(1000, 5));
        assert_eq!(courtesy.rate(&window(1000, 90), 200 * MIB), None);
    }
}
