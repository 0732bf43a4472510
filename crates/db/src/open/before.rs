//! What a handle that is open for reading hands on to the one that catches up: open files, the cache, and memtables.
//!
//! Whatever is handed on is what an open would have come to, so the new handle is as one that was opened anew; it only costs less.
//!
//! - C1: a table or blob file is handed on only to who finds the very same file by its path (device and inode, which nobody else gets while it is
//!   open; and the length), in a store of the same identity, whose manifest says the same of it. A number says nothing: a store that was restored,
//!   repaired or made anew has other files of the same numbers. Blob files that no manifest names may grow, and are opened anew.
//! - C2: what memtables hold is a function of the records of the logs, in order, and of the first log that each family needs. They
//!   are continued only where both are the same as far as they reach: the logs are read and checked as by any open, and a digest of as many records as were
//!   replayed has to be the one of then ([`Trail`]). So a record that its writer took back, and whatever took its place, is noticed, and who catches up then
//!   has memtables of its own.
//! - C3: what comes into memtables that others read has a higher sequence number than any of them may see ([`Extent::seen_up_to`]); if not, they are not
//!   continued. So what an older handle shows never moves.
//! - C4: one at a time continues memtables, and holds the [`Extent`] from before it reads the logs until they are replayed. Should that fail midway, nobody
//!   continues them any more.
//! - C5: memtables that point into blob files that no manifest names are not continued: these grow, and a reader knows where they end.
//! - C6: each handle shares the directory's lock by itself, from before it reads anything; what it was handed on holds the lock of the handle that opened it,
//!   too, as long as anybody has it.
//! - C7: where the logs hold the same records as then, and zeroes where the next one would begin, nothing was written since: what an open makes of
//!   them follows from that and from what the manifest says of them, and is not worked out again ([`Clean`]). Not in the modes `AbsoluteConsistency` and
//!   `SkipCorrupt`: there zeroes in place of a header are damage, or a gap that something may follow, and the whole log is looked at.
//!
//! Cost: two looks at each file that is handed on, one read of the logs to see whether they went on, and one more if so, which an open does twice, filling memtables. That
//! one reads to the end of what is allocated for a log, to tell its end from a hole. Milliseconds, the middle one of nine (of an open: of five), on two cores:
//!
//! | in the log, of how much allocated      | open | nothing written since | 64 KiB written since |
//! |----------------------------------------|-----:|----------------------:|---------------------:|
//! | 32 of 64 MiB, values of 100 bytes      |  342 |                    10 |                   76 |
//! | 32 of 64 MiB, values of 1,000 bytes    |   86 |                     8 |                   60 |
//! | 64 of 512 MiB, values of 100 bytes     |  861 |                    20 |                  163 |
//! | 64 of 512 MiB, values of 1,000 bytes   |  179 |                    15 |                  113 |
//! | nothing of 64 MiB                      |   28 |                  0.16 |                    - |
//! | nothing of 512 MiB, 200 tables         |  104 |                   1.1 |                    - |

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_env::FileSystem;
use esker_format::checksum::chained;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::version_edit::{BlobFileAddition, TableMeta};
use parking_lot::{Mutex, MutexGuard};

use super::Recovery;
use crate::cache::{BlockCache, MemtableShare};
use crate::family::{Generation, View};
use crate::options::Options;
use crate::read::BlobReader;
use crate::store::Store;
use crate::version::{BlobHandle, TableFile};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) cache: Arc<BlockCache>,
    /// Counts on; `None` for the first handle.
    pub(super) blob_reader: Option<BlobReader>,
    pub(super) memtables: Option<Arc<Memtables>>,
    pub(super) files: Arc<OpenFiles>,
}

/// Files that are open.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    db_id: String,
    tables: BTreeMap<FileNumber, Arc<TableFile>>,
    /// By family, too.
    blobs: BTreeMap<(u32, FileNumber), Arc<BlobHandle>>,
}

impl Before {
    /// Nothing: of a store that is opened.
    pub(super) fn nothing(options: &Options) -> Self {
        let cache = match (&options.cache, options.memory_limit) {
            (Some(shared), _) => shared.0.clone(),
            (None, 0) => Arc::new(BlockCache::new(options.cache_bytes)),
            (None, limit_bytes) => Arc::new(BlockCache::within_limit(limit_bytes)),
        };
        Self { cache, blob_reader: None, memtables: None, files: Arc::default() }
    }

    pub(super) fn of(store: &Store) -> Self {
        let mut files = OpenFiles { db_id: store.db_id.clone(), ..OpenFiles::default() };
        for (&id, family) in store.families.load().iter() {
            let version = family.view.load().version.clone();
            files.tables.extend(version.tables().map(|(_, table)| (table.number(), table.clone())));
            files.blobs.extend(version.blobs().iter().map(|(&number, blob)| ((id, number), blob.clone())));
        }
        Self {
            cache: store.cache.clone(),
            blob_reader: Some(store.blobs.clone()),
            memtables: store.memtables.clone(),
            files: Arc::new(files),
        }
    }
}

impl OpenFiles {
    /// These, if they are of the store `db_id`.
    pub(super) fn of_store(self: &Arc<Self>, db_id: &str) -> Arc<Self> {
        if self.db_id == db_id { self.clone() } else { Arc::default() }
    }

    /// Whether there may be the table.
    pub(super) fn has_table(&self, number: FileNumber) -> bool {
        self.tables.contains_key(&number)
    }

    /// The table that `meta` means, if it is one of these (C1).
    pub(super) fn table(&self, files: &dyn FileSystem, meta: &TableMeta) -> Option<Arc<TableFile>> {
        let file = self.tables.get(&meta.number).filter(|file| file.is_as_said(meta))?;
        let is_same = is_at(files, file.table.path(), file.table.identity().ok()?, meta.file_bytes);
        is_same.then(|| file.clone())
    }

    /// The same for a blob file of a family.
    pub(super) fn blob(
        &self,
        files: &dyn FileSystem,
        family: u32,
        addition: &BlobFileAddition,
    ) -> Option<Arc<BlobHandle>> {
        let blob = self.blobs.get(&(family, addition.number)).filter(|blob| blob.addition == *addition)?;
        let is_same = is_at(files, blob.file.path(), blob.file.identity().ok()?, blob.file.file_bytes());
        is_same.then(|| blob.clone())
    }
}

/// Whether `path` stands for the open file `identity`, as long as it was. Should that not be known, whoever opens it says why.
fn is_at(files: &dyn FileSystem, path: &Path, identity: (u64, u64), len: u64) -> bool {
    files.metadata(path).is_ok_and(|found| found.identity == identity && found.len == len)
}

/// What was read of the logs: so many records, and what they were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Trail {
    records: u64,
    digest: u64,
}

impl Trail {
    /// The next record, of the log `log`.
    pub(super) fn add(&mut self, log: FileNumber, record: &[u8]) {
        self.records += 1;
        self.digest = chained(self.digest ^ log.get(), record);
    }
}

/// What logs were replayed into, and may be further; of one handle that is open for reading, or of several.
#[derive(Debug)]
pub(crate) struct Memtables {
    generations: BTreeMap<u32, Arc<Generation>>,
    /// The first log that each family needed.
    log_numbers: BTreeMap<u32, FileNumber>,
    extent: Mutex<Extent>,
    share: MemtableShare,
}

/// How far they go.
#[derive(Debug, Default)]
pub(super) struct Extent {
    pub(super) trail: Trail,
    /// The last sequence number that was replayed.
    pub(super) last: u64,
    /// The most that any handle may see that reads them.
    pub(super) seen_up_to: u64,
    /// What was made of the logs; `None` if they are not all whole, or lead to blob files that no manifest names.
    pub(super) clean: Option<Clean>,
    /// They hold something else than that (C4).
    is_broken: bool,
}

/// Logs that were whole, and ended where the last record does (C7).
#[derive(Debug, Clone)]
pub(super) struct Clean {
    /// Where each ended that was read.
    pub(super) ends: BTreeMap<FileNumber, u64>,
    /// What the manifest said of them.
    pub(super) durable_logs: BTreeMap<FileNumber, u64>,
    pub(super) recovery: Recovery,
}

impl Memtables {
    /// Those of a store, with what has been replayed into them.
    pub(super) fn of(store: &Store, trail: Trail, last: u64, clean: Option<Clean>) -> Arc<Self> {
        let families = store.families.load();
        let active = |(&id, family): (&u32, &Arc<crate::family::Family>)| (id, family.view.load().active.clone());
        let memtables = Self {
            generations: families.iter().map(active).collect(),
            log_numbers: store.log_numbers.clone(),
            extent: Mutex::new(Extent { trail, last, clean, seen_up_to: store.visible().get(), is_broken: false }),
            share: MemtableShare::new(store.cache.clone()),
        };
        memtables.note_bytes();
        Arc::new(memtables)
    }

    /// Locks them for who may continue them for `store` (C4). `None` if what they hold is not what its families need.
    pub(super) fn lock_for(&self, store: &Store) -> Option<MutexGuard<'_, Extent>> {
        if self.log_numbers != store.log_numbers || self.has_blobs() {
            return None;
        }
        let extent = self.extent.lock();
        (!extent.is_broken).then_some(extent)
    }

    /// Whether they point into blob files that no manifest names (C5).
    fn has_blobs(&self) -> bool {
        self.generations.values().any(|generation| !generation.blobs.is_empty())
    }

    /// Shows them to the readers of `store`.
    pub(super) fn show_in(&self, store: &Store) {
        for (id, family) in store.families.load().iter() {
            let Some(active) = self.generations.get(id).cloned() else { continue };
            let view = family.view.load_full();
            family.view.store(Arc::new(View { active, ..View::clone(&view) }));
        }
    }

    /// Says what they take of memory, after a replay.
    pub(super) fn note_bytes(&self) {
        let bytes = |generation: &Arc<Generation>| generation.memtable.allocated_bytes() as u64;
        self.share.set(self.generations.values().map(bytes).sum());
    }
}

impl Extent {
    /// They are about to take more.
    pub(super) fn begin(&mut self) {
        self.is_broken = true;
    }

    /// They have: up to `trail`, and the sequence number `last` if that is more.
    pub(super) fn end(&mut self, trail: Trail, last: u64, clean: Option<Clean>) {
        self.trail = trail;
        self.last = self.last.max(last);
        self.clean = clean;
        self.is_broken = false;
    }

    /// `store` shows all that they hold.
    pub(super) fn publish_in(&mut self, store: &Store) {
        store.publish(store.visible().max(SequenceNumber::new(self.last)));
        self.seen_up_to = self.seen_up_to.max(store.visible().get());
    }
}

#[cfg(test)]
mod tests;
