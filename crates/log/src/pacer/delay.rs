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

/// What background work owes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Debt {
    /// Tables in level 0.
    pub level0_files: usize,
    /// Bytes that compaction has to rewrite before every level is within its target.
    pub pending_compaction_bytes: u64,
    /// Memtables that are sealed and not flushed.
    pub immutable_memtables: usize,
}

/// Where the slope begins and ends, and what is left at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteDelay {
    /// Tables in level 0 from which on writers are held back.
    pub level0_slowdown: usize,
    /// Tables in level 0 at which they are at their slowest.
    pub level0_stop: usize,
    /// Pending bytes from which on writers are held back.
    pub pending_soft_bytes: u64,
    /// Pending bytes at which they are at their slowest.
    pub pending_hard_bytes: u64,
    /// Sealed memtables at which writers are at their slowest; the slope begins at half of them. Below 3 there is no
    /// room for a slope: memtables are then not looked at, and whoever seals one has to wait instead.
    pub memtables_max: usize,
    /// Bytes per second that writers keep in any case.
    pub bytes_per_second_min: u64,
}

impl WriteDelay {
    /// How fast writers may go, in bytes per second; `None`: as fast as they can.
    pub fn rate(&self, debt: &Debt) -> Option<u64> {
        let pressure = self.pressure(debt);
        // The cast saturates: next to no pressure is next to no delay.
        (pressure > 0.0).then(|| (self.bytes_per_second_min as f64 / pressure.powi(3)) as u64)
    }

    /// From 0 (before every slowdown point) to 1 (at a stop point, or beyond).
    pub fn pressure(&self, debt: &Debt) -> f64 {
        let level0 = slope(debt.level0_files as f64, self.level0_slowdown as f64, self.level0_stop as f64);
        let pending =
            slope(debt.pending_compaction_bytes as f64, self.pending_soft_bytes as f64, self.pending_hard_bytes as f64);
        let memtables = match self.memtables_max {
            0..3 => 0.0,
            max => slope(debt.immutable_memtables as f64, max as f64 / 2.0, max as f64),
        };
        level0.max(pending).max(memtables)
    }

    /// Whether a stop point is reached.
    pub fn is_at_stop(&self, debt: &Debt) -> bool {
        self.pressure(debt) >= 1.0
    }
}

/// How far `value` is on its way from `from` to `to`; a step at `to` where there is no way between.
fn slope(value: f64, from: f64, to: f64) -> f64 {
    if value >= to {
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

    const DELAY: WriteDelay = WriteDelay {
        level0_slowdown: 20,
        level0_stop: 36,
        pending_soft_bytes: 64 << 30,
        pending_hard_bytes: 256 << 30,
        memtables_max: 4,
        bytes_per_second_min: MIB,
    };

    fn pending(bytes: u64) -> Debt {
        Debt { pending_compaction_bytes: bytes, ..Debt::default() }
    }

    #[test]
    fn nobody_waits_up_to_the_slowdown_points() {
        let debt = Debt { level0_files: 20, pending_compaction_bytes: 64 << 30, immutable_memtables: 2 };
        assert_eq!(DELAY.rate(&debt), None);
        assert_eq!(DELAY.rate(&Debt::default()), None);
    }

    #[test]
    fn the_floor_is_reached_at_the_stop_point_and_never_left() {
        for debt in [
            Debt { level0_files: 36, ..Debt::default() },
            Debt { level0_files: 3600, ..Debt::default() },
            pending(256 << 30),
            pending(u64::MAX),
            Debt { immutable_memtables: 4, ..Debt::default() },
        ] {
            assert_eq!(DELAY.rate(&debt), Some(MIB));
            assert!(DELAY.is_at_stop(&debt));
        }
    }

    #[test]
    fn the_table_in_the_head_is_true() {
        let at = |x: f64| DELAY.rate(&pending(((64.0 + 192.0 * x) * f64::from(1 << 30)) as u64)).unwrap();
        for (x, times) in [(0.1, 1000.0), (0.25, 64.0), (0.5, 8.0), (0.75, 2.37), (1.0, 1.0)] {
            let ratio = at(x) as f64 / MIB as f64;
            assert!((ratio / times - 1.0).abs() < 0.01, "at {x}: {ratio}");
        }
    }

    #[test]
    fn the_delay_is_continuous_and_never_falls_as_debt_grows() {
        let steps = 100_000u64;
        let mut last = 0.0;
        for step in 0..=steps {
            let debt = pending((60 << 30) + step * ((200u64 << 30) / steps));
            let delay = DELAY.rate(&debt).map_or(0.0, |rate| 1.0 / rate as f64);
            assert!(delay >= last, "at step {step} the delay falls");
            assert!(delay - last < 1e-4 / MIB as f64, "at step {step} the delay jumps");
            last = delay;
        }
    }

    #[test]
    fn triggers_that_leave_no_room_for_a_slope_make_a_step() {
        let delay = WriteDelay { level0_slowdown: 5, level0_stop: 5, memtables_max: 2, ..DELAY };
        assert_eq!(delay.rate(&Debt { level0_files: 4, immutable_memtables: 9, ..Debt::default() }), None);
        assert_eq!(delay.rate(&Debt { level0_files: 5, ..Debt::default() }), Some(MIB));
    }
}
