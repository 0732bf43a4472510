//! Life of a table or blob file: `written --install--> live --install--> obsolete --(last holder drops it)--> trash --> deleted`
//!
//! - F1: a file is named by a durable manifest before any reader can hold it, and no durable manifest names it once it
//!   is obsolete: [`mark_obsolete`](TableFile::mark_obsolete) is called only after the edit that drops it was synced.
//! - F2: whoever reads a file holds its `Arc` (through a `Version`), so the trash never gets a file that is being read. Who holds a value where it lies
//!   in a mapped file holds its [`Life`]: it takes up space as long.
//! - F3: a file that is not obsolete when its last holder goes (the store closes) stays where it is.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{self, AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::blob_refs::{self, BlobRefs};
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::version_edit::{BlobFileAddition, TableMeta};
use parking_lot::{Mutex, MutexGuard};

use crate::blob::BlobFile;
use crate::iterate::InternalIterator;
use crate::output::OLDER_VERSIONS_PROPERTY;
use crate::range_deletions::{Fragments, RangeDeletion};
use crate::reclaim::Trash;
use crate::table::Table;
use crate::version::Life;
use crate::{Error, Result};

/// An open table and what the manifest says of it.
#[derive(Debug)]
pub(crate) struct TableFile {
    /// What the manifest says.
    pub(crate) meta: TableMeta,
    /// The open file.
    pub(crate) table: Arc<Table>,
    /// As far as it reaches (RD2 of [`range_deletions`](crate::range_deletions)).
    range_deletions: Fragments,
    /// Whether a range ends it, and the user key of `largest` is not of it.
    ends_in_range: bool,
    /// By blob file, what it points to: as soon as that is known.
    blob_refs: OnceLock<BlobRefs>,
    life: Life,
    /// See V4 of [`version`](crate::version); 0 of a table that has none.
    epoch: AtomicU64,
    /// What was above it when it was written has dropped what it hid here: entries up to this one; 0 of a table that was opened.
    seen_up_to: AtomicU64,
    /// But for what the oldest snapshot of then kept, which was this one.
    seen_beside: AtomicU64,
    /// Whether it must not go unread, since it cannot be read.
    is_kept: AtomicBool,
    /// Whether a running compaction reads it; only the picker and the end of a job change it.
    claimed: AtomicBool,
}

/// An open blob file and what the manifest says of it.
#[derive(Debug)]
pub(crate) struct BlobHandle {
    /// What the manifest says.
    pub(crate) addition: BlobFileAddition,
    /// The open file.
    pub(crate) file: Arc<BlobFile>,
    /// What of it was given back already.
    pub(crate) holes: Holes,
    life: Arc<Life>,
}

/// Parts of a blob file that were given back to the file system.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    bytes: AtomicU64,
    looked_at: AtomicU64,
    punched: Mutex<Vec<Range<u64>>>,
}

impl Holes {
    /// How many bytes of the file take up no space.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(atomic::Ordering::Relaxed)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, atomic::Ordering::Relaxed);
    }

    /// The holes made since the store was opened, ascending. Held while a file gets more.
    pub(crate) fn punched(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.punched.lock()
    }

    /// How much garbage there was when holes were last looked for; 0 if that was before the store was opened.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.load(atomic::Ordering::Relaxed)
    }

    pub(crate) fn set_looked_at(&self, garbage_bytes: u64) {
        self.looked_at.store(garbage_bytes, atomic::Ordering::Relaxed);
    }
}

impl TableFile {
    /// Of a table that is not [watched](Table::watch) yet.
    pub(crate) fn new(meta: TableMeta, table: Arc<Table>, path: PathBuf, trash: Arc<Trash>) -> Arc<Self> {
        table.watch();
        Self::of_watched(meta, table, path, trash)
    }

    pub(crate) fn of_watched(meta: TableMeta, table: Arc<Table>, path: PathBuf, trash: Arc<Trash>) -> Arc<Self> {
        let meta = with_bounds_in_time(meta, &table);
        let life = Life::new(path, trash);
        let (seen_up_to, seen_beside) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let claimed = AtomicBool::new(false);
        let epoch = AtomicU64::new(meta.epoch_number);
        let ends_in_range = internal_key::is_end_of_range(&meta.largest);
        let range_deletions = range_deletions_within(table.order(), &meta, table.range_deletions());
        let file = Self {
            meta,
            table,
            range_deletions,
            ends_in_range,
            blob_refs: OnceLock::new(),
            life,
            epoch,
            seen_up_to,
            seen_beside,
            is_kept: AtomicBool::new(false),
            claimed,
        };
        // What cannot be read counts as unknown; a check tells of it.
        let written = file.written_blob_refs().and_then(|raw| blob_refs::decode(raw).ok());
        let is_plain = file.meta.oldest_blob_file.is_none();
        if let Some(refs) = written.or_else(|| is_plain.then(BlobRefs::new)) {
            let _ = file.blob_refs.set(refs);
        }
        Arc::new(file)
    }

    /// Whether another manifest says the same of it.
    pub(crate) fn is_as_said(&self, meta: &TableMeta) -> bool {
        match self.table.taken_in() {
            Some(_) => self.meta == with_bounds_in_time(meta.clone(), &self.table),
            None => self.meta == *meta,
        }
    }

    /// See F1.
    pub(crate) fn mark_obsolete(&self) {
        self.life.mark_obsolete(self.meta.file_bytes);
    }

    /// See V4 of [`version`](crate::version); 0 if it has none.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(atomic::Ordering::Relaxed)
    }

    /// Gives it one, before a version has it.
    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, atomic::Ordering::Relaxed);
    }

    /// What the manifest is to say of it.
    pub(crate) fn record(&self) -> TableMeta {
        TableMeta { epoch_number: self.epoch(), ..self.meta.clone() }
    }

    /// Up to which sequence number nothing above it hides anything of it that no snapshot keeps.
    pub(crate) fn seen_up_to(&self) -> SequenceNumber {
        SequenceNumber::new(self.seen_up_to.load(atomic::Ordering::Relaxed))
    }

    /// Says so, of a table that was written while `oldest` was the oldest snapshot.
    pub(crate) fn note_seen(&self, up_to: SequenceNumber, oldest: SequenceNumber) {
        self.seen_up_to.store(up_to.get(), atomic::Ordering::Relaxed);
        self.seen_beside.store(oldest.get(), atomic::Ordering::Relaxed);
    }

    /// Whether it was written beside an older snapshot than `oldest`, which is the oldest now: what is newer than that one hides again what it had kept.
    pub(crate) fn forget_seen(&self, oldest: SequenceNumber) -> bool {
        let beside = self.seen_beside.load(atomic::Ordering::Relaxed);
        let is_less = beside < oldest.get() && beside < self.seen_up_to.load(atomic::Ordering::Relaxed);
        if is_less {
            self.seen_up_to.store(beside, atomic::Ordering::Relaxed);
        }
        is_less
    }

    /// Whether it may go without a merge, should all of it be hidden.
    pub(crate) fn is_removable(&self) -> bool {
        !self.is_kept.load(atomic::Ordering::Relaxed)
    }

    /// What it points to cannot be told.
    pub(crate) fn set_not_removable(&self) {
        self.is_kept.store(true, atomic::Ordering::Relaxed);
    }

    /// Whether a compaction reads it.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(atomic::Ordering::Acquire)
    }

    /// Says that a compaction reads it, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.claimed.store(claimed, atomic::Ordering::Release);
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.meta.number
    }

    /// Entries that a rewrite in the deepest level may drop once no snapshot asks for them: deletions and older versions.
    /// `None`: unknown, since somebody else wrote the table.
    pub(crate) fn droppable_entries(&self) -> Option<u64> {
        let properties = self.table.properties();
        let older = properties.number(OLDER_VERSIONS_PROPERTY)?;
        Some(older.saturating_add(properties.deletion_count))
    }

    /// What the table itself says that it points to; `None` if somebody else wrote it, or it points to nothing.
    pub(crate) fn written_blob_refs(&self) -> Option<&[u8]> {
        self.table.properties().other.get(blob_refs::PROPERTY).map(Vec::as_slice)
    }

    /// By blob file, the bytes of the records that it points to, if that is known without reading it.
    pub(crate) fn known_blob_refs(&self) -> Option<&BlobRefs> {
        self.blob_refs.get()
    }

    /// Whether it points into one of these blob files, or may, as far as that is known without reading it.
    pub(crate) fn may_point_into(&self, files: &BTreeSet<FileNumber>) -> bool {
        match self.known_blob_refs() {
            Some(refs) => refs.keys().any(|file| files.contains(file)),
            None => self.meta.oldest_blob_file.is_some_and(|oldest| files.last().is_some_and(|last| oldest <= *last)),
        }
    }

    /// The same, reading the whole table if need be. That is done once.
    ///
    /// # Errors
    /// Corruption or `Io` from reading.
    pub(crate) fn blob_refs(&self) -> Result<&BlobRefs> {
        if let Some(refs) = self.blob_refs.get() {
            return Ok(refs);
        }
        let mut refs = BlobRefs::new();
        let mut entries = self.table.iter(false);
        entries.seek_to_first()?;
        while entries.valid() {
            let decode = |error| Error::decode(self.table.path(), 0, "looking for pointers into blob files", error);
            let key = InternalKey::decode(entries.key()).map_err(decode)?;
            if key.kind == ValueKind::BlobIndex {
                let index = BlobIndex::decode(entries.value()).map_err(decode)?;
                let bytes = refs.entry(index.file).or_insert(0);
                *bytes = bytes.saturating_add(accounted_bytes(&index, key.user_key.len()));
            }
            entries.next()?;
        }
        Ok(self.blob_refs.get_or_init(|| refs))
    }

    /// What of the range deletions in it counts.
    #[inline]
    pub(crate) fn range_deletions(&self) -> &Fragments {
        &self.range_deletions
    }

    /// Whether it has neither `user_key` nor one after it.
    #[inline]
    pub(crate) fn ends_before(&self, user_key: &[u8]) -> bool {
        match self.table.order().compare(self.largest(), user_key) {
            Ordering::Less => true,
            Ordering::Equal => self.ends_in_range,
            Ordering::Greater => false,
        }
    }

    /// Whether `next`, the table after it in its level, has entries of its last key, too.
    pub(crate) fn shares_key_with(&self, next: &Self) -> bool {
        !self.ends_before(next.smallest())
    }

    /// Its first user key.
    pub(crate) fn smallest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.smallest)
    }

    /// Its last user key, or the one before which its last range deletion ends.
    pub(crate) fn largest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.largest)
    }

    /// Whether a user key of it lies in the range; both ends inclusive, `None` is open.
    pub(crate) fn overlaps(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        let order = self.table.order();
        begin.is_none_or(|begin| !order.is_before(self.largest(), begin))
            && end.is_none_or(|end| !order.is_before(end, self.smallest()))
    }
}

/// Those of a table, cut where `meta` says that it begins and ends (RD2 of [`range_deletions`](crate::range_deletions)).
pub(crate) fn range_deletions_within(order: Order, meta: &TableMeta, all: &[RangeDeletion]) -> Fragments {
    if all.is_empty() {
        return Fragments::default();
    }
    let mut end = internal_key::user_key(&meta.largest).to_vec();
    // Where its last key is of it, the cut is behind that. In another order no key can be named that comes right behind: there, no range goes on.
    if !internal_key::is_end_of_range(&meta.largest) && order.is_bytewise() {
        end.push(0);
    }
    Fragments::of(order, all).within(Some(internal_key::user_key(&meta.smallest)), Some(&end))
}

/// What the manifest says of a table, with bounds as readers of the table meet them: RocksDB writes those of a file that it takes in as the
/// file has them, without a time.
fn with_bounds_in_time(mut meta: TableMeta, table: &Table) -> TableMeta {
    if let Some(sequence) = table.taken_in() {
        meta.smallest = taken_in(&meta.smallest, sequence);
        meta.largest = taken_in(&meta.largest, sequence);
    }
    meta
}

/// An internal key of a table that was taken in with `sequence`.
fn taken_in(key: &[u8], sequence: SequenceNumber) -> Vec<u8> {
    if internal_key::is_end_of_range(key) {
        return key.to_vec();
    }
    let kind = internal_key::tag(key) & u64::from(u8::MAX);
    [internal_key::user_key(key), &(sequence.get() << 8 | kind).to_le_bytes()].concat()
}

impl BlobHandle {
    pub(crate) fn new(addition: BlobFileAddition, file: Arc<BlobFile>, path: PathBuf, trash: Arc<Trash>) -> Arc<Self> {
        Self::sharing(addition, file, Arc::new(Life::new(path, trash)))
    }

    /// A file that somebody else holds, too: it goes when all have dropped it.
    pub(crate) fn sharing(addition: BlobFileAddition, file: Arc<BlobFile>, life: Arc<Life>) -> Arc<Self> {
        file.keep(life.clone());
        Arc::new(Self { addition, file, holes: Holes::default(), life })
    }

    /// See F1.
    pub(crate) fn mark_obsolete(&self) {
        self.life.mark_obsolete(self.addition.total_bytes.saturating_sub(self.holes.bytes()));
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.addition.number
    }
}
