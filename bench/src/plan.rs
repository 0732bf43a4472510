//! What a child process is to do and what it says back, as lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// What every engine gets alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// Caches and write buffers together.
    pub memory_bytes: u64,
    /// Values of at least this size are separated where the engine can.
    pub min_blob_bytes: u64,
    /// Threads for flush and compaction.
    pub background_jobs: u32,
    /// Whether each write survives power loss before it returns.
    pub sync: bool,
}

impl Settings {
    /// Write buffers that may be in memory at once, the active one included.
    pub const WRITE_BUFFERS: u32 = 4;

    /// One write buffer: a quarter of the memory is theirs.
    pub fn write_buffer_bytes(&self) -> u64 {
        self.memory_bytes / 4 / u64::from(Self::WRITE_BUFFERS)
    }

    /// What is left for the cache.
    pub fn cache_bytes(&self) -> u64 {
        self.memory_bytes - self.write_buffer_bytes() * u64::from(Self::WRITE_BUFFERS)
    }
}

/// One run of one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Its name in the registry.
    pub engine: String,
    /// An empty directory for it.
    pub directory: PathBuf,
    /// What every engine gets alike.
    pub settings: Settings,
    /// Keys.
    pub num: u64,
    /// Operations of each phase other than the load and full scans.
    pub reads: u64,
    /// Length of each value.
    pub value_bytes: usize,
    /// Puts in one write.
    pub batch: usize,
    /// Entries of one short range.
    pub range_entries: u64,
    /// Raft groups; entries are divided among them.
    pub groups: u64,
    /// Entries that a Raft group keeps; 0 is all.
    pub keep_entries: u64,
    /// Threads that work on the store.
    pub threads: u64,
    /// A phase (other than the load) ends after so many seconds even if operations are left; 0 is never.
    pub seconds_max: u64,
    /// Where keys and values come from.
    pub seed: u64,
    /// Phases, in order.
    pub workloads: Vec<Workload>,
    /// Whether the page cache is dropped before each phase that reads.
    pub cold: bool,
}

/// Latency of single operations, in nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Half of them took at most this.
    pub p50: u64,
    /// 99 in 100.
    pub p99: u64,
    /// 999 in 1,000.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// What a phase, or a whole run, cost the process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time of all threads, in user space and in the kernel.
    pub cpu_seconds: f64,
    /// Bytes of pages made dirty, to be written to the device.
    pub written_gross_bytes: u64,
    /// Of these, bytes that were deleted before they got there.
    pub cancelled_bytes: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
}

impl Cost {
    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
            written_gross_bytes: self.written_gross_bytes - earlier.written_gross_bytes,
            cancelled_bytes: self.cancelled_bytes.saturating_sub(earlier.cancelled_bytes),
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }

    /// Bytes that reached, or will reach, the device. Unsynced logs that were deleted in time do not.
    pub fn written_net_bytes(&self) -> u64 {
        self.written_gross_bytes.saturating_sub(self.cancelled_bytes)
    }
}

/// One phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    /// What was done.
    pub workload: Workload,
    /// How often.
    pub operations: u64,
    /// Bytes of keys and values that the user handed over or got.
    pub user_bytes: u64,
    /// Wall time of the work, settling not included.
    pub seconds: f64,
    /// Wall time until the engine was quiet and its files on the device; 0 after phases that only read.
    pub settle_seconds: f64,
    /// Latency, of batches for writes, of 100 entries for full scans, of ranges for short ones.
    pub latency: Latency,
    /// Cost of the work, settling included.
    pub cost: Cost,
}

impl Phase {
    /// Operations per second of wall time, settling not included.
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// A whole run: all phases and the settling behind them, not the last reading-through.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Whole {
    /// Bytes of keys and values that were put.
    pub user_written_bytes: u64,
    /// Bytes of keys and values that were read.
    pub user_read_bytes: u64,
    /// Bytes of keys and values that are there at the end.
    pub live_bytes: u64,
    /// Blocks of the device that the directory takes at the end, settled.
    pub disk_bytes: u64,
    /// The most memory the process had resident, files that it maps included.
    pub rss_peak_bytes: u64,
    /// The most of it that is no file's: sampled every 50 ms.
    pub anonymous_peak_bytes: u64,
    /// What it all cost.
    pub cost: Cost,
    /// The engine's version.
    pub version: String,
    /// How the engine was set up, in its own words.
    pub setup: String,
}

/// One line from a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A phase is over.
    Phase(Phase),
    /// All are, and everything was read back and found right.
    Whole(Whole),
    /// Something failed: the run is worth nothing.
    Failed(String),
}
