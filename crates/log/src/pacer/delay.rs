//! The write delay: a slope in place of a cliff.
//!
//! Three debts grow while background work is behind: tables in level 0, bytes that compaction owes, and sealed
//! memtables. Each has a point from which on it matters and a point where writers are at their slowest. Between them
//! the *pressure* x goes from 0 to 1 in a straight line; the largest of the three counts. A byte then costs
//!
//! > delay(x) = x³ / rate_min        seconds, so   rate(x) = rate_min / x³
//!
//! | x            |    0 |   1/10 |  1/4 | 1/2 |  3/4 | 1 and more |
//! |--------------|-----:|-------:|-----:|----:|-----:|-----------:|
//! | rate/rate_min| none | 1000   |   64 |   8 |  2.4 |          1 |
//!
//! The delay is zero at x = 0, and so is its slope: nothing jumps when the slowdown point is crossed. It never falls
//! as a debt grows. Writers therefore settle where the rate is what background work can keep up with, and meet the stop
//! point only when it does nothing at all. The third power, rather than the second, keeps the first quarter of
//! the way nearly free: short bursts of writing cross the slowdown point all the time.

/// What background work owes, and where that begins and ends to matter. A stop point of 0 stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Debt {
    /// Tables in level 0.
    pub level0_tables: usize,
    /// Tables in level 0 from which on writers are held back.
    pub level0_slowdown: usize,
    /// Tables in level 0 at which they are at their slowest.
    pub level0_stop: usize,
    /// Bytes that compaction has to rewrite before every level is within its target.
    pub pending_bytes: u64,
    /// Pending bytes from which on writers are held back.
    pub pending_bytes_soft: u64,
    /// Pending bytes at which they are at their slowest.
    pub pending_bytes_hard: u64,
    /// Memtables that are sealed and not flushed.
    pub sealed_memtables: usize,
    /// Sealed memtables at which writers are at their slowest; the slope begins at half of them.
    pub sealed_memtables_max: usize,
}

/// The slope, by what is left at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteDelay {
    /// Bytes per second that writers keep in any case.
    pub bytes_per_second_min: u64,
}

impl WriteDelay {
    /// How fast writers may go, in bytes per second; `None`: as fast as they can.
    pub fn rate(&self, debt: &Debt) -> Option<u64> {
        let pressure = debt.pressure();
        // The cast saturates: next to no pressure is next to no delay.
        (pressure > 0.0).then(|| (self.bytes_per_second_min as f64 / pressure.powi(3)) as u64)
    }
}

impl Debt {
    /// From 0 (before every slowdown point) to 1 (at a stop point, or beyond).
    pub fn pressure(&self) -> f64 {
        let level0 = slope(self.level0_tables as f64, self.level0_slowdown as f64, self.level0_stop as f64);
        let soft = self.pending_bytes_soft as f64;
        let pending = slope(self.pending_bytes as f64, soft, self.pending_bytes_hard as f64);
        let max = self.sealed_memtables_max as f64;
        let memtables = slope(self.sealed_memtables as f64, max / 2.0, max);
        level0.max(pending).max(memtables)
    }

    /// Whether a stop point is reached.
    pub fn is_at_stop(&self) -> bool {
        self.pressure() >= 1.0
    }
}

/// How far `value` is on its way from `from` to `to`; a step at `to` where there is no way between.
fn slope(value: f64, from: f64, to: f64) -> f64 {
    if to == 0.0 {
        0.0
    } else if value >= to {
        1.0
    } else if value <= from {
        0.0
    } else {
        (value - from) / (to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const DELAY: WriteDelay = WriteDelay { bytes_per_second_min: MIB };

    const NONE: Debt = Debt {
        level0_tables: 0,
        level0_slowdown: 20,
        level0_stop: 36,
        pending_bytes: 0,
        pending_bytes_soft: 64 << 30,
        pending_bytes_hard: 256 << 30,
        sealed_memtables: 0,
        sealed_memtables_max: 4,
    };

    #[test]
    fn nobody_waits_up_to_the_slowdown_points() {
        let debt = Debt { level0_tables: 20, pending_bytes: 64 << 30, sealed_memtables: 2, ..NONE };
        assert_eq!(DELAY.rate(&debt), None);
        assert_eq!(DELAY.rate(&NONE), None);
        assert_eq!(DELAY.rate(&Debt::default()), None);
        assert_eq!(DELAY.rate(&Debt { sealed_memtables: 1, sealed_memtables_max: 2, ..NONE }), None);
    }

    #[test]
    fn the_floor_is_reached_at_the_stop_point_and_never_left() {
        for debt in [
            Debt { level0_tables: 36, ..NONE },
            Debt { level0_tables: 3600, ..NONE },
            Debt { pending_bytes: 256 << 30, ..NONE },
            Debt { pending_bytes: u64::MAX, ..NONE },
            Debt { sealed_memtables: 4, ..NONE },
        ] {
            assert_eq!(DELAY.rate(&debt), Some(MIB));
            assert!(debt.is_at_stop());
        }
    }

    #[test]
    fn the_table_in_the_head_is_true() {
        for (x, times) in [(0.1, 1000.0), (0.25, 64.0), (0.5, 8.0), (0.75, 2.37), (1.0, 1.0)] {
            let debt = Debt { pending_bytes: ((64.0 + 192.0 * x) * f64::from(1 << 30)) as u64, ..NONE };
            let ratio = DELAY.rate(&debt).unwrap() as f64 / MIB as f64;
            assert!((ratio / times - 1.0).abs() < 0.01, "at {x}: {ratio}");
        }
    }

    #[test]
    fn the_delay_is_continuous_and_never_falls_as_debt_grows() {
        let steps = 100_000u64;
        let mut last = 0.0;
        for step in 0..=steps {
            let debt = Debt { pending_bytes: (60 << 30) + step * ((200u64 << 30) / steps), ..NONE };
            let delay = DELAY.rate(&debt).map_or(0.0, |rate| 1.0 / rate as f64);
            assert!(delay >= last, "at step {step} the delay falls");
            assert!(delay - last < 1e-4 / MIB as f64, "at step {step} the delay jumps");
            last = delay;
        }
    }

    #[test]
    fn triggers_that_leave_no_room_for_a_slope_make_a_step() {
        let debt = Debt { level0_slowdown: 5, level0_stop: 5, ..NONE };
        assert_eq!(DELAY.rate(&Debt { level0_tables: 4, ..debt }), None);
        assert_eq!(DELAY.rate(&Debt { level0_tables: 5, ..debt }), Some(MIB));
    }
}
