//! The system's clocks.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Clock;

/// The system's clocks; [`monotonic`](Clock::monotonic) counts from when this was made.
#[derive(Debug)]
pub struct OsClock {
    started: Instant,
}

impl OsClock {
    /// Starts counting.
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for OsClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for OsClock {
    fn unix_seconds(&self) -> u64 {
        // A clock set before 1970 reads as 1970: no timestamp of a record is negative.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}
