//! How fast values are copied: within `reclaim_bytes_per_second_max`, as fast as possible while space runs short or nobody calls, else
//! as fast as leaves puts and gets about as quick as they are between passes ([`Courtesy`]).
//!
//! - P1: who waits for space is not counted as slowed down, nor while writers are held back for compactions that wait for the pass: that
//!   would make them wait longer. Nor do calls of that time tell anything of others.
//! - P2: without a thread beside the one that flushes, reclaim is never slowed down: callers wait for it.
//!
//! Cost: of one put or get in [`SAMPLE`], two readings of the clock; of the others, a step of a thread's counter.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_env::Clock;
use esker_log::pacer::{Class, Courtesy, Latencies};
use parking_lot::Mutex;

use crate::Result;
use crate::options::ReclaimMode;
use crate::store::Store;

/// One call in so many is timed.
const SAMPLE: u32 = 16;
/// What is asked of the pacer at a time: at the lowest rate, a second's worth.
const PIECE_BYTES: u64 = 64 << 10;
/// The rate is looked at after so many bytes, and not more often than this.
const LOOK_BYTES: u64 = 256 << 10;
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// However slow calls are, so many bytes are copied in a second.
const RATE_MIN: u64 = 4 << 20;
/// Space runs short where less than this part of what the bound allows above the living is left.
const SHORT_PART: u64 = 16;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Pace {
    is_on: bool,
    calls: Latencies,
    /// Bytes copied, ever.
    moved: AtomicU64,
    passes: Mutex<Passes>,
}

#[derive(Debug)]
struct Passes {
    courtesy: Courtesy,
    /// Under way.
    count: usize,
    looked_at: Duration,
    moved: u64,
}

/// Calls are compared with those before it; what is limited for their sake is not any more when the last one ends.
#[derive(Debug)]
pub(crate) struct PassUnderWay<'a>(&'a Store);

impl Pace {
    pub(crate) fn new(background_jobs: usize, mode: ReclaimMode) -> Self {
        let passes = Passes { courtesy: Courtesy::new(RATE_MIN), count: 0, looked_at: Duration::ZERO, moved: 0 };
        Self {
            is_on: background_jobs > 1 && mode == ReclaimMode::Auto,
            calls: Latencies::default(),
            moved: AtomicU64::new(0),
            passes: Mutex::new(passes),
        }
    }

    /// A call begins: when, if it is one of those that are timed.
    #[inline]
    pub(crate) fn begin_call(&self, clock: &dyn Clock) -> Option<Duration> {
        let is_timed = self.is_on
            && CALLS.with(|calls| {
                calls.set(calls.get().wrapping_add(1));
                calls.get() % SAMPLE == 0
            });
        is_timed.then(|| clock.monotonic())
    }

    /// And ends.
    #[inline]
    pub(crate) fn end_call(&self, began: Option<Duration>, clock: &dyn Clock) {
        if let Some(began) = began {
            self.calls.note(clock.monotonic().saturating_sub(began));
        }
    }
}

impl Drop for PassUnderWay<'_> {
    fn drop(&mut self) {
        let mut passes = self.0.pace.passes.lock();
        passes.count -= 1;
        if passes.count == 0 {
            self.0.pace.calls.take();
            passes.courtesy.lift();
            self.0.set_reclaim_rate(None);
        }
    }
}

impl Store {
    /// A pass that copies values begins.
    pub(crate) fn begin_pass(&self) -> PassUnderWay<'_> {
        let mut passes = self.pace.passes.lock();
        if passes.count == 0 {
            let window = self.pace.calls.take();
            passes.courtesy.note_alone(&window);
            passes.looked_at = self.env.clock.monotonic();
            passes.moved = self.pace.moved.load(Ordering::Relaxed);
        }
        passes.count += 1;
        drop(passes);
        PassUnderWay(self)
    }

    /// Waits until `bytes` may be copied, unless the store is closed meanwhile.
    pub(crate) fn pace(&self, bytes: u64) -> Result<()> {
        let before = self.pace.moved.fetch_add(bytes, Ordering::Relaxed);
        if self.pace.is_on && before / LOOK_BYTES != (before + bytes) / LOOK_BYTES {
            self.look_at_callers();
        }
        let mut left = bytes;
        while left > 0 {
            self.check_open()?;
            let piece = left.min(PIECE_BYTES);
            self.pacer.request(Class::Reclaim, piece);
            left -= piece;
        }
        Ok(())
    }

    fn look_at_callers(&self) {
        let Some(mut passes) = self.pace.passes.try_lock() else { return };
        let now = self.env.clock.monotonic();
        let passed = now.saturating_sub(passes.looked_at);
        if passed < LOOK_PAUSE {
            return;
        }
        let left = self.left();
        let is_awaited = self.is_delayed() || self.room.is_awaited();
        if is_awaited || self.room.is_short() || left.bound < i64::try_from(left.slack / SHORT_PART).unwrap_or(i64::MAX)
        {
            self.pace.calls.take();
            passes.courtesy.lift();
            (passes.looked_at, passes.moved) = (now, self.pace.moved.load(Ordering::Relaxed));
            self.set_reclaim_rate(None);
            return;
        }
        let Some(window) = self.pace.calls.window(passed) else { return };
        let moved = self.pace.moved.load(Ordering::Relaxed);
        let per_second = (moved - passes.moved) as f64 / passed.as_secs_f64();
        (passes.looked_at, passes.moved) = (now, moved);
        self.set_reclaim_rate(passes.courtesy.rate(&window, per_second as u64));
    }

    /// Sets the rate, within what the options allow.
    fn set_reclaim_rate(&self, rate: Option<u64>) {
        let most = Some(self.options.reclaim_bytes_per_second_max).filter(|&most| most > 0);
        let rate = rate.into_iter().chain(most).min();
        if self.pacer.rate(Class::Reclaim) != rate {
            self.pacer.set_rate(Class::Reclaim, rate);
        }
    }
}
