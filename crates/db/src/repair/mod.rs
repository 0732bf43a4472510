//! Repair: a manifest from tables, blob files and logs, for a store that has lost its own, or some of its files.
//!
//! - P1: nothing is thrown away. What the repaired store does not use goes to the folder [`LOST`] in its directory.
//! - P2: nothing is touched before CURRENT is new: the mark [`UNFINISHED`], new files, the manifest, CURRENT, and only then is
//!   anything moved. A repair that dies is run again; between the mark and the end, nobody opens the store. All that it makes is numbered
//!   from the manifest on that the mark names, so whoever comes next tells it from the store's own; unless another program that knows no mark,
//!   as RocksDB, has given those numbers since (`aside.rs`).
//! - P3: where a manifest can be read whole, it says which files count, and where. Damaged tables are written again without
//!   what is lost, in their level. A table under the name of another counts as what it says that it is ([`identity`]).
//! - P4: without, every table counts that no manifest says is gone. Where tables have keys in common and their sequence numbers
//!   do not tell which is newer, they are merged ([`place`]). What was deleted may come back with a table that was to be removed, and
//!   so may what was overwritten: in the deepest level entries have no number any more, and such a table's count as newer. Of a table that
//!   was taken in from outside, only a manifest knows when, and as a rule for which family: where it overlaps others it counts as newer than
//!   those of lower numbers, and if there are several families it is put aside; both are told.
//! - P5: a key whose newest value is lost is gone, not what it was before: a deletion takes the place of the entry. What was
//!   in a lost block is not known by name, and older values of its keys may show. Operands that are newer than a lost value are kept, and
//!   merged into nothing; its key is told with the lost ones.
//! - P6: of the logs every batch that is whole counts, also behind damage; P5 holds for values that it points to. Without a manifest a log may be
//!   older than tables: see [`flushed`]. What was deleted past the logs, or in one that is gone, may come back with an older one.
//! - P7: a file that no manifest named need not be on the device, whole as it reads: it is synced before one names it, or written anew
//!   where a sync has failed.
//!
//! Cost: one read of every file, and of each separated value; the files that are written again.

mod aside;
mod blobs;
mod flushed;
mod identity;
mod outlook;
mod place;
mod rewrite;
mod survey;
mod tables;
#[cfg(test)]
mod tests;
mod wanted;
mod witness;
mod workshop;

use std::path::{Path, PathBuf};

use esker_env::Env;

use self::aside::Begun;
use self::workshop::Workshop;
use crate::open::{self, foreign};
use crate::options::Options;
use crate::{Error, Result};

pub(crate) use self::aside::UNFINISHED;
pub(crate) use self::outlook::check_without_current;

/// Keys that are named in a report; more are counted.
const LOST_KEYS_MAX: usize = 1000;

/// What a repair did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DbRepair {
    /// Whether the manifest could be read: else everything was found out from the files alone.
    pub had_manifest: bool,
    /// Column families of the store as it is now.
    pub families: Vec<String>,
    /// Its tables.
    pub tables: u64,
    /// Its blob files.
    pub blob_files: u64,
    /// Entries in tables that were damaged, or had to be merged, and were written again.
    pub rewritten_entries: u64,
    /// Batches of the logs that were made tables.
    pub log_batches: u64,
    /// Bytes of logs that are no batches, or whose values are lost; the torn end of the last one is counted, too, and where that is a
    /// recycled one ([`Options::recycled_logs_max`](crate::Options::recycled_logs_max)) what its former life left behind it.
    pub lost_log_bytes: u64,
    /// Tables that are not there, in whose place another is, that nothing can be read of, or that were put aside as nothing says of which column family they are: each
    /// with some keys that nobody can name. Without a manifest, one that parts of one name need not be missing: it may have been removed later.
    pub lost_tables: u64,
    /// Blocks of tables that are lost, each with some keys that nobody can name.
    pub lost_blocks: u64,
    /// Entries whose value is lost.
    pub lost_values: u64,
    /// The first of them.
    pub lost_keys: Vec<LostKey>,
    /// What was found wrong. Of a newest OPTIONS file that cannot be read, also which older one counts instead, or that none does.
    pub damage: Vec<Error>,
    /// Files that were moved to the folder `lost`: where they are now, and why.
    pub put_aside: Vec<PutAside>,
}

/// A key whose newest value is lost: it is deleted now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostKey {
    /// Its column family.
    pub family: String,
    /// The key.
    pub key: Vec<u8>,
    /// The blob file that it pointed to; 0 if nobody can read which.
    pub blob_file: u64,
}

/// A file that the repaired store does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutAside {
    /// Where it is.
    pub path: PathBuf,
    /// Why.
    pub reason: AsideReason,
}

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsideReason {
    /// It is damaged; what is whole in it was kept.
    Damaged,
    /// All that it holds is in other files now.
    Replaced,
    /// The manifest did not name it, or nothing points to it.
    Unused,
}

/// See [`Db::repair`](crate::Db::repair).
pub(crate) fn repair(dir: &Path, options: Options, env: Env) -> Result<DbRepair> {
    options.validate()?;
    let env = open::env_of(dir, &options, env)?;
    let dir = &*env.files.absolute(dir)?;
    foreign::refuse(&env, dir)?;
    witness::refuse_strangers(&*env.files, dir)?;
    let (lock, begun) = aside::begin(&env, dir)?;
    let of_logs = open::lock_logs_of(dir, &options, &env)?;
    let done = match begun {
        Begun::Current => aside::finish_earlier(&env, dir),
        Begun::Manifest(begun) => Workshop::open(dir, options, env, begun)?.run(),
    };
    drop((of_logs, lock));
    done
}
