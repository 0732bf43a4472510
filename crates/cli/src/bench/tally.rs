//! What one thread counts: operations, bytes, and how long each took.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::failure::Failure;

/// The longest time that is told from longer ones: an hour, in nanoseconds.
const LONGEST_NANOS: u64 = 3_600_000_000_000;
/// Digits that are exact.
const DIGITS: u8 = 3;

/// Counts of one thread, or of several together.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) operations: u64,
    /// Of keys and values.
    pub(super) bytes: u64,
    pub(super) found: u64,
    pub(super) missing: u64,
    /// In nanoseconds, one per call of the store.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self, Failure> {
        let latency = Histogram::new_with_bounds(1, LONGEST_NANOS, DIGITS)
            .map_err(|error| Failure::new(format_args!("making a histogram: {error}")))?;
        Ok(Self { operations: 0, bytes: 0, found: 0, missing: 0, latency })
    }

    #[inline]
    pub(super) fn record(&mut self, time: Duration) {
        self.latency.saturating_record(time.as_nanos() as u64);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.found += other.found;
        self.missing += other.missing;
        // Both have the same bounds, so that nothing can be out of them.
        let _ = self.latency.add(&other.latency);
    }
}
