//! Data that comes into a store as whole files, past log and memtable.
//!
//! | door         | what it does                                                                               |
//! |--------------|--------------------------------------------------------------------------------------------|
//! | [`sst_file`] | writes a table outside of any store                                                        |
//! | [`bring`]    | links or copies such a table into the directory, and checks it                             |
//! | [`bulk`]     | writes tables and blob files of sorted pairs straight into the directory                   |
//! | [`batch`]    | pairs on their way to it, packed on several threads                                        |
//! | [`syncer`]   | syncs files beside whoever writes them                                                     |
//! | [`place`]    | which level each table goes to (pure)                                                      |
//! | [`install`]  | stops writers, gives out sequence numbers, one edit for all files                          |
//!
//! - N1: what comes in is newer than everything written before, and older than everything written after: each table has
//!   a sequence number of its own, for all its keys. Nothing of it is seen below that number.
//! - N2: that number is not known when the table is written. The keys of one that is written outside say nothing of it (table
//!   T4); it is given out when the table is taken in, by the leader of the commit queue. RocksDB does not read pointers
//!   into blob files at a number that is not in their keys, so a load takes numbers ahead, [`LOAD_AHEAD`] above the last; writers
//!   go on from there when it ends. If they have got that far before, its tables are written again (blob files are not).
//! - N3: a table goes to a level only if neither a memtable, nor a level above, nor that level has a key of its range, and no
//!   compaction in progress writes into that range of that level. Else higher, at last to level 0 (data only moves down).
//! - N4: all files of a call are in one edit: they are there together or not at all. Before the edit is durable they are
//!   nobody's, and go with the next open.
//! - N5: what was written before is durable before the edit is: power loss leaves no gap before what came in.
//! - N6: a file is created in the directory only while the store cannot close ([`Guest`]).
//! - N7: what was written before a call, in the range of its files, is in tables with lower numbers than theirs: should the
//!   manifest be lost, a repair knows no more of their age.
//!
//! Cost: writers wait for one sync of the manifest, and for a flush if they have just written into the range.

mod batch;
mod bring;
mod bulk;
mod install;
mod place;
mod sst_file;
mod syncer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::durable;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key;
use esker_format::rocksdb::version_edit::TableMeta;

pub use bulk::{BulkLoad, Loaded};
pub(crate) use place::Writing;
pub use sst_file::{SstFileInfo, SstFileWriter};
pub(crate) use syncer::Syncer;

use install::Outcome;
use place::is_in_memory;

use crate::family::Family;
use crate::reclaim::Incoming;
use crate::store::{KeptOut, Store};
use crate::table::Table;
use crate::{Error, ErrorKind, Result};

/// How files are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestOptions {
    /// Give the files to the store instead of copying them: they get a name in its directory and lose the one they had.
    /// Default `false`. Where a file cannot be linked, since it is on another file system, it is copied.
    ///
    /// A file that is moved must not be written to any more, under whatever name. If its sync fails, a file `SYNC-FAILED` beside it
    /// says so, and files of that directory are copied from then on; remove it together with them.
    pub move_files: bool,

    /// Read every byte before a file is taken in: checksums, order of keys, filters, counts. Default `true`.
    /// Without, its end is checked and its first and last block; damage is told when it is read.
    pub verify: bool,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self { move_files: false, verify: true }
    }
}

/// What became of files that were taken in.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ingested {
    /// In the order of the files: the level that each went to.
    pub levels: Vec<usize>,
    /// The sequence number from which on reads see all of it.
    pub sequence: u64,
    /// Files that were to be moved and still have the name that they came with, and why.
    pub not_removed: Vec<(PathBuf, Error)>,
}

/// How far above the last sequence number a load begins: more than is written while most loads go on, and little enough that
/// 2^28 of them fit into all numbers. One that is given up gives its numbers back.
const LOAD_AHEAD: u64 = 1 << 28;

/// A table in the directory that no version names yet.
#[derive(Debug)]
pub(crate) struct Newcomer {
    /// Of a table that was written outside without sequence numbers, and with bounds as the file has them.
    pub(crate) meta: TableMeta,
    /// Nobody else holds it.
    pub(crate) table: Arc<Table>,
    pub(crate) path: PathBuf,
}

impl Newcomer {
    fn smallest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.smallest)
    }

    fn largest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.largest)
    }
}

/// Files of a directory that nobody names yet: they are removed unless they are taken in.
struct Brought<'a> {
    store: &'a Store,
    paths: Vec<PathBuf>,
}

impl Drop for Brought<'_> {
    fn drop(&mut self) {
        for path in self.paths.drain(..) {
            self.store.trash.add(path);
        }
        if self.store.background_jobs == 0 {
            // What cannot be removed is tried again with the next purge.
            let _ = self.store.trash.purge();
        }
        self.store.changed.notify_all();
    }
}

/// See N6.
#[derive(Debug)]
pub(crate) struct Guest<'a>(&'a Store);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.state.lock().guests -= 1;
        self.0.changed.notify_all();
    }
}

/// A turn in which nothing is begun in a family.
struct Quiet<'a> {
    store: &'a Store,
    family_id: u32,
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.manual.remove(&self.family_id);
        state.to_compact.insert(self.family_id);
        drop(state);
        self.store.changed.notify_all();
    }
}

impl Store {
    /// Keeps the store from closing for a moment.
    ///
    /// # Errors
    /// `Closed`, `ReadOnly`.
    pub(crate) fn enter(&self) -> Result<Guest<'_>> {
        let mut state = self.state.lock();
        // Under the lock: whoever closes looks at the guests there after it has refused new ones.
        self.check_takes_writes()?;
        state.guests += 1;
        Ok(Guest(self))
    }

    fn quiet(&self, family_id: u32) -> Quiet<'_> {
        let mut state = self.state.lock();
        while state.manual.contains_key(&family_id) {
            self.changed.wait(&mut state);
        }
        state.manual.insert(family_id, KeptOut::All);
        Quiet { store: self, family_id }
    }

    /// Refuses a file of a store, this one or another, however the way to its directory is spelled.
    fn refuse_own(&self, path: &Path) -> Result<()> {
        let dir = durable::parent(path).unwrap_or(path);
        if durable::is_there(&*self.env.files, &dir.join(FileName::Current.to_string()))? {
            return Err(refuse(path, "a file in the directory of the store is the store's; write it elsewhere"));
        }
        Ok(())
    }

    /// See [`Db::ingest`](crate::Db::ingest).
    pub(crate) fn ingest(&self, family: &Arc<Family>, files: &[PathBuf], options: IngestOptions) -> Result<Ingested> {
        let guest = self.enter()?;
        if files.is_empty() {
            return Ok(Ingested { sequence: self.visible().get(), ..Ingested::default() });
        }
        for path in files {
            self.refuse_own(path)?;
        }
        // What is wrong with any of them is found before the first is copied.
        let inspect =
            |path: &PathBuf| self.inspect(family, path).map_err(|error| error.while_doing("taking a file in"));
        let ranges: Vec<_> = files.iter().map(inspect).collect::<Result<_>>()?;
        // Before the files have their numbers (N7); who writes meanwhile makes it necessary once more.
        if is_in_memory(&family.view.load(), ranges.iter().map(|(smallest, largest)| (&**smallest, &**largest)))? {
            self.flush(&[family.id])?;
        }
        let mut brought = Brought { store: self, paths: Vec::new() };
        let incoming = Incoming::to(family);
        let mut newcomers = Vec::with_capacity(files.len());
        for path in files {
            newcomers.push(self.bring(family, path, options, &mut brought, &incoming)?);
        }
        let bytes: u64 = newcomers.iter().map(|newcomer| newcomer.meta.file_bytes).sum();
        let mut ingested = match self.take_in(family, newcomers, &[], None, || brought.paths.clear())? {
            Outcome::TakenIn(ingested) => ingested,
            Outcome::Late(_) => {
                return Err(Error::new(ErrorKind::Busy, "the numbers of the files are taken; report it"));
            }
        };
        drop(incoming);
        self.counters.ingested_bytes.add(bytes);
        self.counters.user_bytes.add(bytes);
        drop(guest);
        if options.move_files {
            let removed = |path: &PathBuf| Some((path.clone(), self.env.files.remove(path).err()?.into()));
            ingested.not_removed = files.iter().filter_map(removed).collect();
        }
        Ok(ingested)
    }
}

fn refuse(path: &Path, reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, reason).with_path(path)
}
