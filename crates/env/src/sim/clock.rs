//! A clock that stands still until somebody waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::Clock;

/// What the wall clock shows when a [`SimClock`] starts: 2020-09-13 12:26:40 UTC.
const START_UNIX_SECONDS: u64 = 1_600_000_000;

/// A clock whose hand moves by [`sleep`](Clock::sleep) and [`advance`](Self::advance) only.
#[derive(Debug, Default)]
pub struct SimClock {
    nanoseconds: AtomicU64,
}

impl SimClock {
    /// Moves the hand. Wakes nobody: nobody waits.
    pub fn advance(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Another clock that shows the same.
    pub(super) fn fork(&self) -> Self {
        Self { nanoseconds: AtomicU64::new(self.nanoseconds.load(Ordering::Relaxed)) }
    }
}

impl Clock for SimClock {
    fn unix_seconds(&self) -> u64 {
        START_UNIX_SECONDS.saturating_add(self.monotonic().as_secs())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // Who sleeps in a loop until another thread is done must let it run.
        thread::yield_now();
    }
}
