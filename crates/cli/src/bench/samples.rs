//! How a run went over time: a picture of the store twenty times a second, at first.
//!
//! - S1: there are never more than [`SAMPLES_MAX`]; when they would be, every second one goes and the time between them
//!   doubles. The first and the last of each benchmark stay.

use std::time::Duration;

use super::store::{Parts, Picture};

/// See S1. As many as a plot can show.
const SAMPLES_MAX: usize = 1500;
/// Time between the first ones.
const INTERVAL: Duration = Duration::from_millis(50);
/// Time between the last ones of the longest run.
const INTERVAL_MAX: Duration = Duration::from_secs(600);

/// One moment.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// Since the run began.
    pub(super) at: Duration,
    /// Which benchmark was under way.
    pub(super) benchmark: usize,
    /// Operations of that benchmark so far.
    pub(super) operations: u64,
    /// Time that writers were held back, of all threads together.
    pub(super) stall: Duration,
    pub(super) written: Parts,
    pub(super) on_disk: Parts,
    is_edge: bool,
}

/// All of a run, oldest first.
#[derive(Debug)]
pub(super) struct Samples {
    all: Vec<Sample>,
    interval: Duration,
}

impl Default for Samples {
    fn default() -> Self {
        Self { all: Vec::new(), interval: INTERVAL }
    }
}

impl Samples {
    /// The time to the next one.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Adds one; `is_edge` if a benchmark begins or ends with it.
    pub(super) fn add(&mut self, at: Duration, benchmark: usize, operations: u64, picture: Picture, is_edge: bool) {
        self.push(Sample {
            at,
            benchmark,
            operations,
            stall: picture.stall,
            written: picture.written,
            on_disk: picture.on_disk,
            is_edge,
        });
    }

    fn push(&mut self, sample: Sample) {
        if self.all.len() >= SAMPLES_MAX {
            let mut index = 0;
            self.all.retain(|sample| {
                index += 1;
                sample.is_edge || index % 2 == 0
            });
            self.interval = self.interval.saturating_mul(2).min(INTERVAL_MAX);
        }
        self.all.push(sample);
    }

    pub(super) fn all(&self) -> &[Sample] {
        &self.all
    }

    /// Those of one benchmark.
    pub(super) fn of(&self, benchmark: usize) -> impl Iterator<Item = &Sample> {
        self.all.iter().filter(move |sample| sample.benchmark == benchmark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_a_bounded_number_of_samples_and_all_edges() {
        let mut samples = Samples::default();
        for second in 0..100_000u64 {
            samples.push(Sample {
                at: Duration::from_secs(second),
                benchmark: 0,
                operations: second,
                stall: Duration::ZERO,
                written: Parts::default(),
                on_disk: Parts::default(),
                is_edge: second % 10_000 == 0,
            });
        }
        assert!(samples.all().len() <= SAMPLES_MAX && samples.interval() > INTERVAL);
        assert_eq!(samples.of(0).filter(|sample| sample.is_edge).count(), 10);
        assert!(samples.all().is_sorted_by_key(|sample| sample.at));
    }
}
