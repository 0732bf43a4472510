//! What to run, as it was asked for.

use std::time::Duration;

use serde_json::{Value, json};

use super::benchmark::Benchmark;
use super::choose::Distribution;
use super::outcome::Facts;
use super::sizes::ValueSizes;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::sizes::Count;

/// Everything but the store's own options.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) benchmarks: Vec<Benchmark>,
    pub(crate) num: u64,
    pub(crate) reads: u64,
    pub(crate) value_sizes: ValueSizes,
    pub(crate) key_bytes: usize,
    pub(crate) threads: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) batch: u64,
    pub(crate) sync: bool,
    pub(crate) distribution: Option<Distribution>,
    pub(crate) seed: u64,
    pub(crate) nexts: u64,
    /// Keys that a range deletion deletes.
    pub(crate) range_keys: u64,
    /// The store was there before: nothing is known of what it holds.
    pub(crate) use_existing: bool,
}

impl Plan {
    /// Refuses what cannot be run on a store of that kind, before anything is.
    ///
    /// # Errors
    /// A failure that names the first such benchmark.
    pub(crate) fn check(&self, kind: Kind) -> Result<(), Failure> {
        let mut refused = self.benchmarks.iter().filter_map(|benchmark| Some((benchmark, benchmark.refusal(kind)?)));
        match refused.next() {
            Some((benchmark, why)) => Err(Failure::new(format_args!("--benchmarks: {} {why}", benchmark.name()))),
            None => Ok(()),
        }
    }

    /// How many ranges all keys make, of which the last may be shorter.
    pub(super) fn ranges(&self) -> u64 {
        self.num.div_ceil(self.range_keys.max(1))
    }

    /// The number behind the last key of the range that begins at `number`.
    pub(super) fn range_end(&self, number: u64) -> u64 {
        self.num.min(number.saturating_add(self.range_keys))
    }

    /// What people are told of it.
    pub(super) fn facts(&self) -> Facts {
        let mut facts = vec![
            ("keys", format!("{} of {} B", Count(self.num), self.key_bytes)),
            ("values", format!("{} B", self.value_sizes)),
            ("threads", self.threads.to_string()),
        ];
        if self.batch > 1 {
            facts.push(("batch", self.batch.to_string()));
        }
        facts.push(("sync", if self.sync { "yes" } else { "no" }.to_owned()));
        facts.push(("seed", self.seed.to_string()));
        facts
    }

    /// As an object.
    pub(super) fn object(&self) -> Value {
        json!({
            "num": self.num,
            "reads": self.reads,
            "value_size": self.value_sizes.to_string(),
            "key_size": self.key_bytes,
            "threads": self.threads,
            "seconds": self.time.map(|time| time.as_secs_f64()),
            "batch": self.batch,
            "sync": self.sync,
            "distribution": self.distribution.map(|distribution| format!("{distribution:?}").to_lowercase()),
            "seed": self.seed,
            "nexts": self.nexts,
            "range_keys": self.range_keys,
            "use_existing": self.use_existing,
        })
    }
}
