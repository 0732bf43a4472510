//! Time.

use std::fmt::Debug;
use std::time::Duration;

/// What time it is, and waiting for it to pass. A simulated clock waits by moving its own hand.
pub trait Clock: Debug + Send + Sync {
    /// Seconds since 1970-01-01 UTC; may jump.
    fn unix_seconds(&self) -> u64;

    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;

    /// Returns after `duration` has passed.
    fn sleep(&self, duration: Duration);
}
