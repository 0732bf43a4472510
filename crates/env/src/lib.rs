//! Everything that is not a pure function of its input: files, clock, threads and randomness, behind small traits.
//!
//! This is the only seam in Esker: production code holds no hook for tests. [`os`] is the real machine, [`sim`] a
//! simulated one that loses power, fails calls and flips bits on request. Dispatch is `dyn`: a virtual call is nothing
//! beside the system call behind it, and no public type carries a type parameter for testing.
//!
//! # The fault model
//!
//! Unsynced bytes survive a power loss in any subset of 512-byte sectors; unsynced directory entries may vanish or
//! stay; any call may fail with EIO or ENOSPC at any moment; a failed sync loses the dirty bytes and is never retried
//! on the same file; reads may return bit rot in durable data (which must be detected, not survived).

#![deny(unsafe_code)]

pub mod beside;
pub mod clock;
pub mod durable;
pub mod entropy;
pub mod error;
pub mod file;
mod mapped;
pub mod metered;
pub mod os;
pub mod sim;
pub mod threads;

use std::sync::Arc;

pub use clock::Clock;
pub use entropy::Entropy;
pub use error::{Error, Result};
pub use file::{
    Access, AppendFile, COMMIT_BYTES, DirEntry, FileKind, FileSystem, Lock, Mapping, Metadata, PAD_BYTES, ReadFile,
    ReadRequest, Space, Window, read_many,
};
pub use mapped::open_sealed;
pub use threads::{Thread, Threads};

/// One of each: what an engine needs of the world. Cloning shares all four.
#[derive(Debug, Clone)]
pub struct Env {
    /// Where files live.
    pub files: Arc<dyn FileSystem>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Who does background work.
    pub threads: Arc<dyn Threads>,
    /// Where identities come from.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// The machine this runs on.
    pub fn os() -> Self {
        os::env()
    }
}
