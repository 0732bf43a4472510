//! A column family at work: its view, which readers pin without a lock, and the memtables that make it up.
//!
//! - V1: a view is never changed, only replaced, and only under the store's `state` lock. Readers load it with one atomic step.
//! - V2: what a view holds together was together at one moment: a memtable leaves the view in the same step in which the
//!   version with its table enters.
//! - V3: a reader loads the view first and the sequence number second, so that nothing it may see was compacted away
//!   from the view it has.
//! - V4: whoever reads more than one key looks whether the view is still the same after that: files that came in from
//!   outside ([`ingest`](crate::ingest)) are in no memtable, and the sequence number may count them while the view lacks them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::order::Order;
use parking_lot::Mutex;

use crate::blob::{BlobFile, WrittenBlobs};
use crate::ingest::Writing;
use crate::iterate::Walks;
use crate::memtable::Memtable;
use crate::operands::MergeOperator;
use crate::options::{FamilyOptions, Separation};
use crate::reclaim::{Coming, Overwriting, Ranges};
use crate::version::{Older, Version};
use crate::{Error, Result};

/// A memtable becomes so many files of the largest size that there is on a small disk: a 32nd of what all may take up.
const MEMTABLE_FILES: u64 = 2;

/// A memtable and the oldest log that holds what is in it.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) memtable: Arc<Memtable>,
    /// Where its values are that went to blob files as they were written.
    pub(crate) blobs: WrittenBlobs,
    /// Moves forward while the memtable is empty; only the leader of the commit queue changes it.
    first_wal: AtomicU64,
}

impl Generation {
    pub(crate) fn new(order: Order, first_wal: FileNumber) -> Arc<Self> {
        Self::with(Memtable::new(order), first_wal)
    }

    /// The one that takes writes after this one.
    pub(crate) fn next(&self, first_wal: FileNumber) -> Arc<Self> {
        Self::with(self.memtable.next(), first_wal)
    }

    fn with(memtable: Memtable, first_wal: FileNumber) -> Arc<Self> {
        let (memtable, first_wal) = (Arc::new(memtable), AtomicU64::new(first_wal.get()));
        Arc::new(Self { memtable, blobs: WrittenBlobs::default(), first_wal })
    }

    pub(crate) fn first_wal(&self) -> FileNumber {
        FileNumber::new(self.first_wal.load(Ordering::Acquire))
    }

    /// An empty memtable needs no log before the one that is begun now.
    pub(crate) fn set_first_wal(&self, number: FileNumber) {
        self.first_wal.store(number.get(), Ordering::Release);
    }
}

/// Everything a reader needs of a family. See V1, V2.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Takes writes.
    pub(crate) active: Arc<Generation>,
    /// Sealed, waiting for their flush; newest first.
    pub(crate) sealed: Vec<Arc<Generation>>,
    /// Tables and blob files.
    pub(crate) version: Arc<Version>,
}

impl View {
    /// The oldest log that the family still needs: none before the first write of its oldest unflushed memtable.
    /// `None` while all its memtables are empty.
    pub(crate) fn oldest_wal(&self) -> Option<FileNumber> {
        let oldest = self.sealed.last().unwrap_or(&self.active);
        (!oldest.memtable.is_empty()).then(|| oldest.first_wal())
    }

    /// All that is in logs before this one is in tables.
    pub(crate) fn first_log(&self) -> FileNumber {
        self.sealed.last().unwrap_or(&self.active).first_wal()
    }

    /// The blob file that an entry of it points to.
    #[inline]
    pub(crate) fn blob(&self, number: FileNumber) -> Option<&Arc<BlobFile>> {
        let registered = || self.version.blobs().get(&number).map(|blob| &blob.file);
        registered().or_else(|| self.generations().find_map(|generation| generation.blobs.find(number)))
    }

    /// Memtables, newest first.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// A column family of an open store.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// As they are now. Changed under the store's `installer` only.
    options: ArcSwap<FamilyOptions>,
    /// The operator that it has for as long as the store is open.
    pub(crate) merge_operator: Option<Arc<dyn MergeOperator>>,
    /// Of its keys.
    pub(crate) order: Order,
    /// The session of the store that it belongs to.
    pub(crate) session: Arc<str>,
    pub(crate) view: ArcSwap<View>,
    /// What each write asks for, of `options`.
    separation: AtomicU8,
    min_blob_size: AtomicU64,
    write_buffer_bytes: AtomicU64,
    partitions: AtomicBool,
    /// The highest sequence number of what came into the family as files, past the memtables; set before it is published.
    taken_in_up_to: AtomicU64,
    older: Older<Version>,
    /// How much of what is written hides something older.
    pub(crate) overwriting: Overwriting,
    /// Of keys, that have blob files of their own.
    pub(crate) ranges: Ranges,
    /// Files on their way into it.
    pub(crate) coming: Arc<Coming>,
    /// What its files should not grow beyond, where the disk is small.
    file_bytes_max: AtomicU64,
    dropped: AtomicBool,
    /// How far iterators went.
    pub(crate) walks: Walks,
    /// What compactions in progress will write, and where.
    writing: Mutex<Vec<Writing>>,
    /// Blob files whose values come home now; none unless it falls back.
    coming_home: Mutex<Arc<BTreeSet<FileNumber>>>,
}

impl Family {
    pub(crate) fn new(
        id: u32,
        name: String,
        options: FamilyOptions,
        version: Version,
        wal: FileNumber,
        session: Arc<str>,
    ) -> Arc<Self> {
        // Of a store that is opened nothing is known: the careful guess.
        let overwriting = Overwriting::new(if version.tables().next().is_some() { 1.0 } else { 0.0 });
        let order = version.order();
        let view = View { active: Generation::new(order, wal), sealed: Vec::new(), version: Arc::new(version) };
        let (view, dropped) = (ArcSwap::from_pointee(view), AtomicBool::new(false));
        let separation = AtomicU8::new(options.separation.number());
        let partitions = AtomicBool::new(options.blob_partition.is_some());
        let (min_blob_size, write_buffer_bytes) =
            (AtomicU64::new(options.min_blob_size), AtomicU64::new(options.write_buffer_bytes));
        let older = Older::default();
        let taken_in_up_to = AtomicU64::new(0);
        Arc::new(Self {
            id,
            name,
            merge_operator: options.merge_operator.clone(),
            order,
            options: ArcSwap::from_pointee(options),
            session,
            view,
            separation,
            min_blob_size,
            write_buffer_bytes,
            partitions,
            taken_in_up_to,
            older,
            overwriting,
            ranges: Ranges::default(),
            coming: Arc::default(),
            file_bytes_max: AtomicU64::new(u64::MAX),
            dropped,
            walks: Walks::default(),
            writing: Mutex::default(),
            coming_home: Mutex::default(),
        })
    }

    /// At what size its blob files end; see [`room`](crate::reclaim).
    pub(crate) fn blob_file_bytes(&self) -> u64 {
        self.options().blob_file_bytes.min(self.file_bytes_max.load(Ordering::Relaxed))
    }

    /// The same of the tables that compactions write.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.options().target_file_bytes.min(self.file_bytes_max.load(Ordering::Relaxed))
    }

    /// At what size a memtable is full: what it becomes has to fit into what is kept when others have filled a small disk, beside its log.
    #[inline]
    pub(crate) fn memtable_bytes(&self) -> u64 {
        let bytes = self.write_buffer_bytes.load(Ordering::Relaxed);
        bytes.min(self.file_bytes_max.load(Ordering::Relaxed).saturating_mul(MEMTABLE_FILES))
    }

    pub(crate) fn set_file_bytes_max(&self, bytes: u64) {
        self.file_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// A view, and what `now` says of the same moment (V4).
    pub(crate) fn view_at<T>(&self, now: impl Fn() -> Result<T>) -> Result<(Arc<View>, T)> {
        loop {
            let view = self.view.load_full();
            let moment = now()?;
            if Arc::ptr_eq(&view, &self.view.load()) {
                return Ok((view, moment));
            }
        }
    }

    /// Says that files came in, whose entries count up to `sequence`. Called by the leader of the commit queue.
    pub(crate) fn note_taken_in(&self, sequence: u64) {
        self.taken_in_up_to.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Whether files came in that hold something newer than `sequence`.
    pub(crate) fn has_taken_in_since(&self, sequence: u64) -> bool {
        self.taken_in_up_to.load(Ordering::Acquire) > sequence
    }

    /// What compactions in progress will write. Changes under the store's `state` only.
    pub(crate) fn writing(&self) -> Vec<Writing> {
        self.writing.lock().clone()
    }

    /// Whether one of them may write something between these keys into a level below 0.
    pub(crate) fn will_write(&self, level: usize, begin: &[u8], end: &[u8]) -> bool {
        self.writing.lock().iter().any(|writing| writing.meets(self.order, level, begin, end))
    }

    /// Adds to it.
    pub(crate) fn note_writing(&self, writing: Writing) {
        self.writing.lock().push(writing);
    }

    /// What a compaction was going to write is written, or will not be.
    pub(crate) fn has_written(&self, written: &Writing) {
        let mut writing = self.writing.lock();
        if let Some(at) = writing.iter().position(|writing| writing == written) {
            writing.swap_remove(at);
        }
    }

    /// Whether it falls back, and has values that did not come home yet.
    pub(crate) fn comes_home(&self) -> bool {
        self.separation() == Separation::FallBack && !self.view.load().version.blobs().is_empty()
    }

    /// Blob files whose values come home now (H1 of [`home`](crate::reclaim)).
    pub(crate) fn coming_home(&self) -> Arc<BTreeSet<FileNumber>> {
        self.coming_home.lock().clone()
    }

    /// Changes them. Under the store's `state` only.
    pub(crate) fn set_coming_home(&self, files: BTreeSet<FileNumber>) {
        *self.coming_home.lock() = Arc::new(files);
    }

    /// See [`Older::note`].
    pub(crate) fn note_older(&self, version: &Arc<Version>) {
        self.older.note(version);
    }

    /// See [`Older::is_held_before`].
    pub(crate) fn is_older_version_held(&self, version: &Arc<Version>) -> bool {
        self.older.is_held_before(version)
    }

    pub(crate) fn separation(&self) -> Separation {
        Separation::of_number(self.separation.load(Ordering::Relaxed))
    }

    /// See [`FamilyOptions::belongs_in_blob`]. Of a value that is too short, one load.
    #[inline]
    pub(crate) fn belongs_in_blob(&self, value_bytes: usize) -> bool {
        value_bytes as u64 >= self.min_blob_size.load(Ordering::Relaxed) && self.options().belongs_in_blob(value_bytes)
    }

    /// Whether a function says which file a value goes to.
    #[inline]
    pub(crate) fn partitions(&self) -> bool {
        self.partitions.load(Ordering::Relaxed)
    }

    /// Its options as they are now: whoever asks for several, or more than once what has to be the same, keeps them.
    #[inline]
    pub(crate) fn options(&self) -> Guard<Arc<FamilyOptions>> {
        self.options.load()
    }

    /// Changes them; what is under way goes by those before.
    pub(crate) fn set_options(&self, options: Arc<FamilyOptions>) {
        self.separation.store(options.separation.number(), Ordering::Relaxed);
        self.partitions.store(options.blob_partition.is_some(), Ordering::Relaxed);
        self.min_blob_size.store(options.min_blob_size, Ordering::Relaxed);
        self.write_buffer_bytes.store(options.write_buffer_bytes, Ordering::Relaxed);
        self.options.store(options);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// # Errors
    /// `InvalidArgument`: it was dropped.
    pub(crate) fn check_not_dropped(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::invalid_argument(format!("column family {:?} was dropped", self.name)));
        }
        Ok(())
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }
}

/// A column family, as a handle for calls. Cheap to clone. Outlives a drop of the family: reads go on, writes are refused.
#[derive(Clone)]
pub struct ColumnFamily(pub(crate) Arc<Family>);

impl std::fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColumnFamily").field("name", &self.name()).field("id", &self.id()).finish_non_exhaustive()
    }
}

impl ColumnFamily {
    /// The name it was created with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number that stands for it in the log and the manifest.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Where its values live from now on: as the options say, unless that was changed since.
    pub fn separation(&self) -> Separation {
        self.0.separation()
    }

    /// Its options as they are now: those it was opened with, unless [`Db::set_options`](crate::Db::set_options) changed them since.
    pub fn options(&self) -> Arc<FamilyOptions> {
        self.0.options().clone()
    }
}
