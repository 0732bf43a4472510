//! Esker's C interface: what `include/esker.h` declares, which is made of what stands here.
//!
//! - I1: who calls keeps what the types of arguments promise: a reference is a pointer to a live object of that kind, `Option` of one may be
//!   null, a [`Slice`] points to as many bytes as it says, a [`Text`] ends with a zero, an [`Out`] can be written to. None of that can be checked here.
//! - I2: whatever is handed out is the caller's until it goes back to the function that frees it. An object keeps alive what it needs, so they may
//!   go in any order; but a store is closed for those that are left.
//! - I3: a call that fails returns an error and writes nothing but null, zero or `false` to where its results go.
//! - I4: stores, families, snapshots, sets of backups, options and values may be used by many threads at once; batches, iterators, transactions, writers of tables
//!   and scans, and options while they are changed, by one at a time.
//! - I5: a panic, which would be a bug of Esker's, ends the process: it does not unwind into a caller that cannot know of it.
//!
//! Cost: what the call behind it costs, and an allocation for each object that is handed out.

mod backups;
mod batch;
mod cache;
mod cask;
mod db;
mod error;
mod family;
mod filter;
mod ingest;
mod iterator;
mod memory;
mod merge;
mod options;
mod order;
mod raft_log;
mod read;
mod transaction;
mod ttl;
mod value;
mod write;

pub use backups::*;
pub use batch::*;
pub use cache::*;
pub use cask::*;
pub use db::*;
pub use error::*;
pub use family::*;
pub use filter::*;
pub use ingest::*;
pub use iterator::*;
pub use memory::*;
pub use merge::*;
pub use options::*;
pub use order::*;
pub use raft_log::*;
pub use read::*;
pub use transaction::*;
pub use ttl::*;
pub use value::*;
pub use write::*;

/// I4, which the compiler knows.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    const fn moves<T: Send>() {}
    is_shared::<(Db, Family, SnapshotHandle, Value, Error, Backups, Ttl, Cask, RaftLog)>();
    is_shared::<(DbOptions, HashOptions, LogOptions, ReadOptions)>();
    moves::<(Batch, Iterator, Transaction, SstWriter, HashBatch, Scan, RaftBatch)>();
};
