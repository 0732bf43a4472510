//! The names of the [raft-engine](https://docs.rs/raft-engine/0.4.2) crate, on Esker's Raft log.
//!
//! A program changes `use raft_engine::…` to `use esker_raft_engine::…` and opens the same directories.
//!
//! What differs: what panics in the original (a gap, a compacted index, a failed sync) is an [`Error`]; `Engine::sync`
//! syncs; a log that is closed has a file `CLOSED`, which the original passes over, and with less in it than that says, or with no files beside that, is damaged; a fork of a log that is not there is an error; there are no features `failpoints`, `nightly` and `swap`; and of `internals` there is what watches, dumps and purges, not
//! the parts that the original is built of.

#![forbid(unsafe_code)]

mod bridge;
mod config;
mod dump;
mod engine;
pub mod env;
mod error;
#[cfg(feature = "scripting")]
pub mod filter;
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
