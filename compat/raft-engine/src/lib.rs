//! The names of the [raft-engine](https://docs.rs/raft-engine/0.4.2) crate, on Esker's Raft log.
//!
//! A program changes `use raft_engine::…` to `use esker_raft_engine::…` and opens the same directories.
//!
//! What differs: what panics in the original (a gap, a compacted index, a failed sync) is an [`Error`]; `Engine::sync`
//! syncs; an engine is opened on the real file system only; there are no `failpoints`, `swap` and `scripting` features.

#![forbid(unsafe_code)]

mod config;
mod engine;
mod error;
mod log_batch;
mod perf;
mod readable_size;

/// Where files live.
pub mod env {
    /// The machine's file system: the only one that [`crate::Engine`] opens.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct DefaultFileSystem;
}

/// Parts that the original exports for those who watch it.
pub mod internals {
    pub use crate::engine::{EventListener, FileBlockHandle, FileId, FileSeq, LogQueue};
}

pub use config::{Config, RecoveryMode, Version};
pub use engine::{CopyDetails, Engine};
pub use error::{Error, Result};
pub use log_batch::{Command, LogBatch, MessageExt};
pub use perf::{PerfContext, get_perf_context, set_perf_context, take_perf_context};
pub use readable_size::ReadableSize;
