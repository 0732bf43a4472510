//! What to do to a Raft log, as it was asked for.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::ValueSizes;
use crate::bench::outcome::Facts;
use crate::failure::Failure;
use crate::sizes::Count;

/// Everything but the log's own options.
#[derive(Debug, Clone)]
pub(crate) struct RaftPlan {
    pub(crate) time: Duration,
    /// From 1 on.
    pub(crate) groups: u64,
    pub(crate) write_threads: u64,
    pub(crate) read_threads: u64,
    /// Calls a second of each thread; `None` for as many as it can.
    pub(crate) write_rate: Option<u64>,
    pub(crate) read_rate: Option<u64>,
    pub(crate) entry_sizes: ValueSizes,
    /// Entries of each group in a write.
    pub(crate) batch_entries: u64,
    /// Groups in a write.
    pub(crate) batch_groups: u64,
    pub(crate) sync: bool,
    /// How many entries of a group its writer keeps.
    pub(crate) compact_count: Option<u64>,
    /// How much of a group is kept when purging asks to compact it.
    pub(crate) force_compact_factor: f64,
    pub(crate) purge_interval: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) use_existing: bool,
}

impl RaftPlan {
    /// Refuses what cannot be divided among the threads.
    ///
    /// # Errors
    /// A failure that names the options.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.write_threads == 0 && self.read_threads == 0 {
            return Err(Failure::new("--write-threads and --read-threads are both 0: there is nothing to do"));
        }
        if self.groups < self.write_threads.max(self.read_threads) {
            return Err(Failure::new("--regions: each thread needs at least one of its own"));
        }
        if self.write_threads > 0 && self.batch_groups > self.groups / self.write_threads {
            return Err(Failure::new("--write-region-count: a thread has only --regions / --write-threads of its own"));
        }
        Ok(())
    }

    /// What the outcome of the threads is called.
    pub(super) fn name(&self) -> &'static str {
        if self.write_threads > 0 { "write" } else { "read" }
    }

    /// What people are told of it.
    pub(super) fn facts(&self) -> Facts {
        vec![
            ("groups", Count(self.groups).to_string()),
            ("entries", format!("{} B", self.entry_sizes)),
            ("a write", format!("{} entries of each of {} groups", self.batch_entries, self.batch_groups)),
            ("threads that write", self.write_threads.to_string()),
            ("threads that read", self.read_threads.to_string()),
            ("sync", if self.sync { "yes" } else { "no" }.to_owned()),
            ("seed", self.seed.to_string()),
        ]
    }

    /// As an object.
    pub(super) fn object(&self) -> Value {
        json!({
            "seconds": self.time.as_secs_f64(),
            "regions": self.groups,
            "write_threads": self.write_threads,
            "read_threads": self.read_threads,
            "write_ops_per_thread": self.write_rate,
            "read_ops_per_thread": self.read_rate,
            "entry_size": self.entry_sizes.to_string(),
            "write_entry_count": self.batch_entries,
            "write_region_count": self.batch_groups,
            "sync": self.sync,
            "compact_count": self.compact_count,
            "force_compact_factor": self.force_compact_factor,
            "purge_interval": self.purge_interval.map(|interval| interval.as_secs_f64()),
            "seed": self.seed,
            "use_existing": self.use_existing,
        })
    }
}
