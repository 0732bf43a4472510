//! What all of Esker's append-only files share.
//!
//! | room        | what it does                                                                 |
//! |-------------|------------------------------------------------------------------------------|
//! | [`commit`]  | group commit: one writes for all who wait                                    |
//! | [`writer`]  | appends records to a log; a failed append leaves nothing of itself           |
//! | [`scan`]    | reads a log back: whole records, a torn tail, or corruption                  |
//! | [`ledger`]  | live and dead bytes of each file                                             |
//! | [`pacer`]   | how fast background work may go, and how much writers are held back          |
//! | [`error`]   | one error for all engines, split by what the caller can do                   |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod commit;
pub mod error;
pub mod ledger;
pub mod pacer;
pub mod scan;
pub mod writer;

pub use error::{Error, ErrorKind, Result};

/// What [`commit`] sleeps and wakes by. `tests/commit_model.rs` compiles the same file over a model of it.
mod sync {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread_local;

    pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }
}
