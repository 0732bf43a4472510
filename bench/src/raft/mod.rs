//! The same work on Raft logs: groups that append, fetch and reopen.
//!
//! - Entries follow from group, index and seed, so what must be there is known without remembering it.
//! - A group belongs to one thread, which writes `--batch` of its groups at once: an entry and the state of each.
//! - Entries travel as one protobuf message in all logs that have types: the original asks for it.

mod entry;
mod esker;
mod original;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod run;
mod work;

use std::path::Path;

use crate::Result;
use crate::engine::{Entry, Open};
use crate::plan::Settings;

pub(crate) use run::run;

/// What one group gets in a write.
#[derive(Debug)]
pub(crate) struct Append<'a> {
    pub(crate) group: u64,
    pub(crate) index: u64,
    pub(crate) entry: &'a [u8],
    /// Of the key `state`, as a Raft store keeps its hard state.
    pub(crate) state: &'a [u8],
}

/// Under which key a group keeps its state.
pub(crate) const STATE_KEY: &[u8] = b"state";

/// An open log. Calls may come from any number of threads, but `reclaim` and `close`.
pub(crate) trait RaftStore: Send + Sync {
    /// Writes all or nothing; afterwards it survives power loss if the settings ask for it.
    fn append(&self, appends: &[Append<'_>]) -> Result<()>;

    /// Shows entries `begin..end` in order.
    fn fetch(&self, group: u64, begin: u64, end: u64, show: &mut dyn FnMut(u64, &[u8])) -> Result<()>;

    /// The state that a group wrote last.
    fn state(&self, group: u64) -> Result<Option<Vec<u8>>>;

    /// Entries of a group before `index` are not needed any more.
    fn compact(&self, group: u64, index: u64) -> Result<()>;

    /// Gives space back, if there is any to give.
    fn reclaim(&self) -> Result<()>;

    /// Flushes, and waits until the log has no work left, as far as it can tell. Most have none but what their callers do.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens one.
pub(crate) type OpenRaft = fn(&Path, &Settings) -> Result<Box<dyn RaftStore>>;

/// All Raft logs of this build.
pub(crate) const ENGINES: &[Entry] = &[
    Entry {
        name: "esker-raft",
        about: "Esker's RaftLog",
        package: "esker",
        open: Open::Raft(esker::open),
        setup: esker::setup,
    },
    Entry {
        name: "raft-engine",
        about: "TiKV's Raft Engine",
        package: "raft-engine",
        open: Open::Raft(original::open),
        setup: original::setup,
    },
    #[cfg(feature = "rocksdb")]
    Entry {
        name: "rocksdb-raft",
        about: "RocksDB as a Raft log: a key for each entry",
        package: "librocksdb-sys",
        open: Open::Raft(rocksdb::open),
        setup: rocksdb::setup,
    },
    Entry {
        name: "canary-raft",
        about: "Esker's RaftLog, but one entry in 1,000 has a bit flipped: must be caught",
        package: "esker",
        open: Open::Raft(esker::open_canary),
        setup: esker::setup,
    },
];
