//! The real machine: a POSIX file system, the system's clocks, its threads and its entropy.
//!
//! - Reads and writes are positional, so no handle has a cursor to fight over. Interrupted and short calls are
//!   carried on until everything is done or the system says why not.
//! - Sync is `fdatasync` (`F_FULLFSYNC` on macOS).
//! - The only `unsafe` of the crate is in `map`, `tail`, `pages`, `prefetch`, `current` and `origin`: mapping a file to read it, the end of one to
//!   append to it, memory without a file, asking for memory ahead of its use, looking at what may be replaced meanwhile, and being told of forks.
//! - What only Linux has (preallocation, holes, read hints) answers "not here" elsewhere, through the trait's own words.

mod append_file;
mod barrier;
mod clock;
mod current;
mod entropy;
mod file_system;
mod lock;
mod map;
mod origin;
mod pages;
mod prefetch;
mod read_file;
mod regular;
mod seat;
mod sync;
mod tail;
mod threads;

use std::sync::Arc;

pub use clock::OsClock;
pub use current::Current;
pub use entropy::OsEntropy;
pub use file_system::OsFileSystem;
pub use origin::Origin;
pub use pages::{HUGE_PAGE_BYTES, Pages, Words};
pub use prefetch::{prefetch, prefetch_all, prefetch_lines};
pub use threads::OsThreads;

use crate::Env;

/// The machine this runs on.
pub fn env() -> Env {
    Env {
        files: Arc::new(OsFileSystem),
        clock: Arc::new(OsClock::new()),
        threads: Arc::new(OsThreads),
        entropy: Arc::new(OsEntropy),
    }
}
