//! The names of the [raft-engine](https://docs.rs/raft-engine/0.4.2) crate, on Esker's Raft log.
//!
//! A program changes `use raft_engine::…` to `use esker_raft_engine::…` and opens the same directories. Or it changes nothing but its `Cargo.toml`,
//! where the crate may keep the name: `raft-engine = { package = "esker-raft-engine", path = "…/compat/raft-engine" }`.
//!
//! # What differs
//!
//! - What panics in the original (a gap, a compacted index, a failed sync) is an [`Error`]. So are entries that do not follow one
//!   another, which [`LogBatch::add_entries`] refuses: the original keeps the index of the first one only.
//! - `Engine::sync` syncs.
//! - A log that is closed has a file `CLOSED`, which the original passes over. With less in it than that says, or with no files beside that, it
//!   is damaged.
//! - A fork of a log that is not there is an error.
//! - `Engine::get_used_size` is what files hold; the original takes each file for as long as `target_file_size`, though it may be shorter or
//!   longer.
//! - [`Config`]: `recovery_read_block_size`, `compression_level`, `bytes_per_sync` and `memory_limit` are read, kept, and not used. Files are
//!   mapped, there is one way to compress, and the index is small. `recovery_threads` is at most 256.
//! - [`PerfContext`] does not count what purges do; the original counts some of it for the thread that purges.
//! - There are no metrics of Prometheus's. [`RaftLog::stats`](esker_raft_log::RaftLog::stats) has figures ([`Engine::as_raft_log`]), and
//!   [`GlobalStats`] is for a program's own counting.
//! - `must_rewrite_append_queue` has no steps to exit after.
//! - The features `failpoints`, `nightly` and `swap` are there and change nothing; of `internals` there is what watches, dumps and purges, not
//!   the parts that the original is built of.

#![forbid(unsafe_code)]

mod bridge;
mod config;
mod dump;
mod engine;
pub mod env;
mod error;
#[cfg(feature = "scripting")]
mod filter;
mod log_batch;
mod perf;
mod readable_size;
mod stats;

/// Parts that the original exports for those who watch it.
pub mod internals {
    pub use crate::dump::{
        CompressionType, EntryIndex, EntryIndexes, KeyValue, LogItem, LogItemContent, LogItemReader, OpType,
    };
    pub use crate::engine::{
        EventListener, FileBlockHandle, FileId, FilePipeLog, FileSeq, LogQueue, PipeLog, PurgeManager,
    };
}

pub use config::{Config, RecoveryMode, Version};
pub use engine::{CopyDetails, Engine};
pub use error::{Error, Result};
pub use log_batch::{Command, LogBatch, MessageExt};
pub use perf::{PerfContext, get_perf_context, set_perf_context, take_perf_context};
pub use readable_size::ReadableSize;
pub use stats::GlobalStats;
