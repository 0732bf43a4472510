//! Latencies to three digits, at a few nanoseconds each.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Result;
use crate::plan::Latency;

/// Longest latency that is told from longer ones: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Of one thread, or of several merged.
#[derive(Debug)]
pub struct Latencies(Histogram<u32>);

impl Latencies {
    /// None yet.
    ///
    /// # Errors
    /// None in practice: the bounds are constants.
    pub fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_NS, 3)?))
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, taken: Duration) {
        self.0.saturating_record(u64::try_from(taken.as_nanos()).unwrap_or(LONGEST_NS).max(1));
    }

    /// Takes another thread's in.
    ///
    /// # Errors
    /// None in practice: all have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// The figures that are reported.
    pub fn summary(&self) -> Latency {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.0.max() }
    }
}
