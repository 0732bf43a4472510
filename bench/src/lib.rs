//! The same work on Esker and on its peers.
//!
//! ```text
//! compare ── one child process per engine and round ──> run ──> workload ──> engine
//!    │                                                   │          │
//!    └─> report (Markdown, JSON lines)                measure    data, model
//! ```
//!
//! - C1: a figure without a check is no figure. Every value read is compared with what must be there, byte by byte, and
//!   one wrong byte fails the whole report.
//! - C2: every engine gets the same keys and values in the same order: they follow from seed, index and generation.
//! - C3: memory, processor time and I/O are those of a process that runs one engine and nothing else.

#![deny(unsafe_code)]

pub mod cold;
pub mod compare;
pub mod data;
pub mod engine;
pub mod measure;
pub mod model;
pub mod place;
pub mod plan;
mod raft;
pub mod report;
pub mod run;
pub mod schedule;
pub mod sizes;
pub mod warm;
pub mod workload;

/// Anything that went wrong, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What fallible functions of the harness return.
pub type Result<T> = std::result::Result<T, Failure>;
