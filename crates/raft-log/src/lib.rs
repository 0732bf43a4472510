//! Esker's Raft log: one log for thousands of Raft groups, in [raft-engine](https://github.com/tikv/raft-engine)'s own files.
//!
//! The public surface is [`RaftLog`]; `ARCHITECTURE.md` at the top of the repository is the map of the rooms.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod batch;
mod block;
mod blocks;
mod check;
mod closed;
mod filter;
mod fork;
mod group;
mod listener;
mod open;
mod options;
mod parallel;
mod queue;
mod raft_log;
mod read;
mod reclaim;
mod refusal;
mod stats;
mod store;
mod write;

pub use batch::{EntryCodec, KEY_VALUE_BYTES_MAX, LogBatch};
pub use check::{Check, FileSummary, Gap, GroupSummary, Inspection, Lost};
pub use esker_format::raft::file_header::Version;
pub use esker_format::raft::file_name::{FileId, Queue};
pub use esker_log::{Error, ErrorKind, Result};
pub use filter::{Decide, FilterOptions, Offered, Renewed, Verdict};
pub use fork::Fork;
pub use listener::Listener;
pub use open::{Cut, Recovery};
pub use options::{Options, RECOVERY_THREADS_MAX, RecoveryMode};
pub use raft_log::RaftLog;
pub use read::KeyValue;
pub use reclaim::Moved;
pub use refusal::Refusal;
pub use stats::{QueueStats, Stats};
pub use write::WriteTimes;
