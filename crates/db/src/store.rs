//! An open store: what the rooms share, and who may touch it.
//!
//! | state            | guarded by                    | changed by                                        |
//! |------------------|-------------------------------|---------------------------------------------------|
//! | log, last sequence, active memtables | leadership of `commit` | the leader of a group of writes        |
//! | manifest         | `installer`                   | install, creation and drop of families            |
//! | views, live logs, work in progress | `state`     | rotation (leader), install, background threads    |
//! | what readers see | nothing: `ArcSwap` and an atomic | replaced under `state`, published by writers, in order |
//!
//! Locks are taken in the order of the rows; nothing is read from or written to a disk under `state`, except the
//! removal of names from memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use esker_env::metered::Meter;
use esker_env::os::Origin;
use esker_env::{Env, ReadFile};
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_log::commit::CommitQueue;
use esker_log::distrust;
use esker_log::pacer::Pacer;
use esker_log::publish::Published;
use parking_lot::{Condvar, Mutex};

use crate::background::{Look, Resting};
use crate::blob::{BlobFile, BlobSync};
use crate::cache::{BlockCache, MemtableShare};
use crate::compaction::Merge;
use crate::counters::Counters;
use crate::events::{EventKind, Events};
use crate::family::{ColumnFamily, Family};
use crate::flush;
use crate::iterate::Aide;
use crate::open::{Memtables, Recovery};
use crate::options::{ForeignOptions, Options};
use crate::read::BlobReader;
use crate::reclaim::{Crowd, Pace, Room, Trash};
use crate::snapshot::SnapshotList;
use crate::transaction::Locks;
use crate::version::ManifestWriter;
use crate::write::log::{EndedLog, SpareLog};
use crate::write::{Lead, Request};
use crate::{Error, ErrorKind, Result};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: ArcSwap<Options>,
    /// As these say, for good.
    pub(crate) background_jobs: usize,
    /// Options of the store's OPTIONS file that Esker does not model: kept, and written back.
    pub(crate) foreign_options: ForeignOptions,
    /// Written into tables.
    pub(crate) db_id: String,
    /// Written into tables.
    pub(crate) session_id: Arc<str>,
    pub(crate) cache: Arc<BlockCache>,
    /// What its memtables take of the budget that the cache is part of.
    pub(crate) memtable_share: MemtableShare,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) blobs: BlobReader,
    /// Who reads ahead for iterators.
    pub(crate) aide: Arc<Aide>,
    pub(crate) trash: Arc<Trash>,
    /// Whether the next log should be made ahead of time.
    pub(crate) wants_log: AtomicBool,
    /// Whether holes are not wanted, or the file system turned out to have none.
    pub(crate) cannot_punch: AtomicBool,
    /// How fast reclaim may go.
    pub(crate) pacer: Pacer,
    /// How callers fare meanwhile.
    pub(crate) pace: Pace,
    /// How much may still be written.
    pub(crate) room: Room,
    pub(crate) snapshots: Arc<SnapshotList>,
    /// What transactions have locked.
    pub(crate) locks: Arc<Locks>,
    /// What open found in the logs.
    pub(crate) recovery: Recovery,
    /// What it replayed them into, if it is open for reading only: for who catches up.
    pub(crate) memtables: Option<Arc<Memtables>>,
    /// The first log that each family needed when the store was opened.
    pub(crate) log_numbers: BTreeMap<u32, FileNumber>,
    /// How much of the logs that were needed then was durable, as far as the manifest says.
    pub(crate) durable_logs: BTreeMap<FileNumber, u64>,
    /// Whether open found blob files that the manifest does not name.
    pub(crate) has_stray_blobs: bool,
    /// From this number on, the manifest that open found can name no file.
    pub(crate) first_unnamed: u64,
    /// The first log that is written since it was opened.
    pub(crate) first_log: FileNumber,
    pub(crate) read_only: bool,
    /// The family that every store has, beside `families` so that the common read needs no look-up.
    pub(crate) default_family: Arc<Family>,
    pub(crate) families: ArcSwap<BTreeMap<u32, Arc<Family>>>,
    /// The last sequence number that readers may see.
    pub(crate) published: Published,
    /// Somebody met a memtable that is full.
    pub(crate) has_full: AtomicBool,
    next_file: AtomicU64,
    /// The last sequence number that a sorted load took ahead.
    pub(crate) load_sequence: AtomicU64,
    /// Bytes per second that writers may write; 0 is as fast as they can. Set whenever a view changes.
    pub(crate) delayed_rate: AtomicU64,
    /// Bytes of all logs but the one being written; follows `state.wals`.
    pub(crate) sealed_wal_bytes: AtomicU64,
    /// Beyond so many bytes of logs, memtables are flushed for their sake.
    pub(crate) wal_bytes_max: AtomicU64,
    /// What the manifest may take of the disk beyond what it does, until a new one is there.
    pub(crate) manifest_growth: AtomicU64,
    /// What the next log takes up, if it was made ahead of time; follows `state.spare_log`.
    pub(crate) spare_log_bytes: AtomicU64,
    pub(crate) commit: CommitQueue<Request, Lead>,
    /// So many changes go alone before one joins a group again (U5 of [`update`](crate::update)).
    pub(crate) alone_for: AtomicU32,
    /// Logs that take no more writes and may not be durable, oldest first.
    pub(crate) ended_logs: Mutex<Vec<Arc<EndedLog>>>,
    /// The newest log that took its last write and is durable; so are those before it.
    pub(crate) durable_log: AtomicU64,
    /// Writes up to this sequence number are durable, but those without the log.
    pub(crate) durable_sequence: AtomicU64,
    pub(crate) installer: Mutex<Installer>,
    pub(crate) state: Mutex<State>,
    /// Signalled whenever `state` or a view has changed.
    pub(crate) changed: Condvar,
    /// Signalled when the store closes: ends the pause after a failure.
    pub(crate) closing: Condvar,
    health: Health,
    /// Where it was opened. Its threads are there, and its files are that process's.
    origin: Origin,
}

/// Who appends to the manifest.
#[derive(Debug)]
pub(crate) struct Installer {
    /// `None` in a store open for reading only.
    pub(crate) manifest: Option<ManifestWriter>,
    pub(crate) family_id_max: u32,
    /// OPTIONS files that this handle wrote and did not remove, oldest first.
    pub(crate) options_files: Vec<FileNumber>,
}

/// See the table in the module's head.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Logs that are on the disk, and their bytes when they were sealed; the last one is being written.
    pub(crate) wals: BTreeMap<FileNumber, u64>,
    /// The next log, if it was made ahead of time.
    pub(crate) spare_log: Option<SpareLog>,
    /// Logs that nobody needs any more, to be written over; the oldest first.
    pub(crate) retired_logs: VecDeque<PathBuf>,
    /// Blob files that grow, and whose bytes should be on their way to the device.
    pub(crate) blob_syncs: Vec<BlobSync>,
    /// Families with memtables that wait for their flush, and perhaps a few without.
    pub(crate) to_flush: BTreeSet<u32>,
    /// Families of which something changed since nothing was found to compact in them.
    pub(crate) to_compact: BTreeSet<u32>,
    /// Families in which nothing was found to do, and more room might make a difference: the most that there was when it was looked.
    pub(crate) no_room: BTreeMap<u32, i64>,
    /// Whether room was short when it was last looked for work.
    pub(crate) was_short: bool,
    /// Families in which nothing was found to do while writers waited for space, or had a moment ago: looked at again when that is over.
    pub(crate) once_calm: BTreeSet<u32>,
    /// Of families with tables that may be made smaller once no snapshot asks for what they hold: the lowest sequence
    /// number that the oldest snapshot must see for that.
    pub(crate) droppable_from: BTreeMap<u32, SequenceNumber>,
    /// Of families that have old tables written again: when the next one is old, in seconds since 1970.
    pub(crate) old_from: BTreeMap<u32, u64>,
    /// How fast writers may write for each family that holds them back, in bytes per second.
    pub(crate) rates: BTreeMap<u32, u64>,
    /// Work that met damage: see G4 of [`crate::background`].
    pub(crate) resting: Vec<Resting>,
    /// Blob files, by family, whose values could not be read to be moved, and tables with which none could come home: left alone until the store is
    /// reopened.
    pub(crate) damaged_blobs: BTreeMap<u32, BTreeSet<FileNumber>>,
    /// Families that are not swept, since a sweep met a damaged table.
    pub(crate) unswept: BTreeSet<u32>,
    /// The first of these failures.
    pub(crate) blob_damage: Option<Error>,
    /// Whether the last work was a flush: then a purge may be due.
    pub(crate) flushed_last: bool,
    /// Whether the last work with tables was reclaim: then it is compaction's turn.
    pub(crate) reclaimed_last: bool,
    /// Whether the OPTIONS file says less than there is.
    pub(crate) options_are_stale: bool,
    /// Whether somebody writes it anew.
    pub(crate) writing_options: bool,
    /// Families with too many small blob files, until it was seen that nothing can be done about it.
    pub(crate) crowded: BTreeSet<u32>,
    /// Since when there is one.
    pub(crate) crowded_since: Option<Duration>,
    /// Which they were when they were last merged: the same are left alone, or what cannot be merged would be tried for ever.
    pub(crate) crowds: BTreeMap<u32, Crowd>,
    /// When it was last looked how much is written and read.
    pub(crate) looked: Option<Look>,
    /// Who waits for everything that is due.
    pub(crate) awaited: usize,
    /// Flushes in progress, as they were begun.
    pub(crate) flushing: Vec<flush::Plan>,
    /// Compactions in progress.
    pub(crate) compacting: usize,
    /// Merges whose parts others may take.
    pub(crate) merging: Vec<Arc<Merge>>,
    /// Who creates files in the directory and is waited for before the store closes.
    pub(crate) guests: usize,
    /// Who writes parts of others' merges.
    pub(crate) helping: usize,
    /// Who removes files.
    pub(crate) purging: usize,
    /// Copies of the store that are being made: no hole is made meanwhile.
    pub(crate) copies: usize,
    /// Families in which somebody compacts by hand, or takes files in: no compaction is begun there, nor, where it says so, reclaim.
    pub(crate) manual: BTreeMap<u32, KeptOut>,
    /// Why the last flush failed; gone with the next that succeeds.
    pub(crate) flush_error: Option<Error>,
    /// Why the last compaction failed; gone with the next that succeeds.
    pub(crate) compaction_error: Option<Error>,
    /// Why files could not be removed, or a manifest not be written anew, the last time.
    pub(crate) upkeep_error: Option<Error>,
    /// Why the options could not be written down; gone when they are.
    pub(crate) options_error: Option<Error>,
    /// How often work could not read a file, and has not since.
    pub(crate) failing: BTreeMap<FileNumber, u32>,
    /// The family of the last compaction: the next one looks behind it first.
    pub(crate) last_compacted: u32,
    /// No new work is begun.
    pub(crate) closing: bool,
}

/// See [`State::manual`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptOut {
    Compactions,
    All,
}

#[derive(Debug, Default)]
struct Health {
    closed: AtomicBool,
    /// Close has begun: what is written is flushed, and nothing may come after it.
    takes_no_writes: AtomicBool,
    failed: AtomicBool,
    error: Mutex<Option<Error>>,
}

/// What [`Store::new`] is made of.
pub(crate) struct Parts {
    pub(crate) env: Env,
    /// Counts what the files take up, if the store may be written to.
    pub(crate) meter: Option<Arc<Meter>>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) foreign_options: ForeignOptions,
    pub(crate) db_id: String,
    pub(crate) session_id: Arc<str>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) counters: Counters,
    pub(crate) trash: Arc<Trash>,
    pub(crate) log_numbers: BTreeMap<u32, FileNumber>,
    pub(crate) durable_logs: BTreeMap<FileNumber, u64>,
    pub(crate) has_stray_blobs: bool,
    pub(crate) first_unnamed: u64,
    pub(crate) read_only: bool,
    pub(crate) default_family: Arc<Family>,
    pub(crate) families: BTreeMap<u32, Arc<Family>>,
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) next_file: u64,
    pub(crate) lead: Lead,
    pub(crate) installer: Installer,
    pub(crate) wals: BTreeMap<FileNumber, u64>,
}

impl Store {
    pub(crate) fn new(parts: Parts) -> Self {
        let aide = Arc::new(Aide::new(&parts.env, parts.options.background_jobs > 0));
        let blobs = BlobReader::new(parts.options.cache_blobs.then(|| parts.cache.clone()), parts.options.mmap_reads);
        let store = Self {
            default_family: parts.default_family,
            wants_log: AtomicBool::new(false),
            cannot_punch: AtomicBool::new(!parts.options.punch_holes),
            events: Events::new(parts.env.clock.monotonic()),
            pacer: Pacer::new(parts.env.clock.clone()),
            pace: Pace::new(),
            room: Room::new(parts.meter),
            env: parts.env,
            dir: parts.dir,
            background_jobs: parts.options.background_jobs,
            options: ArcSwap::from_pointee(parts.options),
            foreign_options: parts.foreign_options,
            db_id: parts.db_id,
            session_id: parts.session_id,
            blobs,
            aide,
            memtable_share: MemtableShare::new(parts.cache.clone()),
            cache: parts.cache,
            counters: parts.counters,
            trash: parts.trash,
            snapshots: Arc::default(),
            locks: Arc::default(),
            recovery: Recovery::default(),
            memtables: None,
            log_numbers: parts.log_numbers,
            durable_logs: parts.durable_logs,
            has_stray_blobs: parts.has_stray_blobs,
            first_unnamed: parts.first_unnamed,
            first_log: parts.lead.wal_number,
            read_only: parts.read_only,
            families: ArcSwap::from_pointee(parts.families),
            published: Published::new(parts.last_sequence.get()),
            has_full: AtomicBool::new(false),
            next_file: AtomicU64::new(parts.next_file),
            load_sequence: AtomicU64::new(0),
            delayed_rate: AtomicU64::new(0),
            sealed_wal_bytes: AtomicU64::new(0),
            wal_bytes_max: AtomicU64::new(u64::MAX),
            manifest_growth: AtomicU64::new(0),
            spare_log_bytes: AtomicU64::new(0),
            commit: CommitQueue::new(parts.lead),
            alone_for: AtomicU32::new(0),
            ended_logs: Mutex::default(),
            durable_log: AtomicU64::new(0),
            durable_sequence: AtomicU64::new(0),
            installer: Mutex::new(parts.installer),
            state: Mutex::new(State { wals: parts.wals, ..State::default() }),
            changed: Condvar::new(),
            closing: Condvar::new(),
            health: Health::default(),
            origin: Origin::here(),
        };
        store.refresh_memory();
        store
    }

    /// The same, with what open found in the logs.
    pub(crate) fn with_recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }

    /// The last write that readers may see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        SequenceNumber::new(self.published.get())
    }

    /// Everything up to `sequence` is in place: for recovery, before there are writers. What it finds, it makes durable.
    pub(crate) fn publish(&self, sequence: SequenceNumber) {
        self.published.set(sequence.get());
        self.durable_sequence.store(sequence.get(), Ordering::Release);
    }

    /// A number that no file of the store has, nor ever had.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        FileNumber::new(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Leaves out the numbers below `next`: files in `dir` have them.
    ///
    /// # Errors
    /// `Corruption` if that leaves too few.
    pub(crate) fn raise_file_number(&self, next: u64, dir: &Path) -> Result<()> {
        check_next_file(next, dir)?;
        self.next_file.fetch_max(next, Ordering::Relaxed);
        Ok(())
    }

    /// The number that the next file will have.
    pub(crate) fn next_file_number(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }

    /// Opens a table or blob file that was written whole.
    pub(crate) fn open_sealed(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        Ok(esker_env::open_sealed(&*self.env.files, path, self.options().mmap_reads)?)
    }

    /// The same for a blob file that is open since it was begun, and was ended.
    pub(crate) fn sealed_blob(&self, file: &Arc<BlobFile>) -> Arc<BlobFile> {
        let mapped = self.options().mmap_reads.then(|| file.as_memory(&*self.env.files)).flatten();
        mapped.unwrap_or_else(|| file.clone())
    }

    pub(crate) fn path_of(&self, name: &FileName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    /// The family behind a handle.
    ///
    /// # Errors
    /// `InvalidArgument` if it is another store's.
    pub(crate) fn own<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<Family>> {
        if Arc::ptr_eq(&family.0.session, &self.session_id) {
            return Ok(&family.0);
        }
        let reason =
            format!("the column family {:?} is of another store, or of an earlier open of this one", family.name());
        Err(Error::invalid_argument(reason))
    }

    pub(crate) fn family(&self, id: u32) -> Option<Arc<Family>> {
        self.families.load().get(&id).cloned()
    }

    /// From now on writes fail with what `error` says: what is durable is unknown until the store is reopened.
    pub(crate) fn fail(&self, error: &Error) {
        let mut held = self.health.error.lock();
        let is_first = held.is_none();
        if is_first {
            // Should that fail too, the error that is told is the worse one.
            let _ = distrust::warn(&*self.env.files, &self.dir);
            *held = Some(error.clone().with_kind(ErrorKind::ReadOnly));
        }
        self.health.failed.store(true, Ordering::Release);
        drop(held);
        // Whoever has just found the store sound holds `state` until it waits.
        drop(self.state.lock());
        self.changed.notify_all();
        if is_first {
            self.tell(EventKind::ReadOnly(error));
        }
    }

    /// # Errors
    /// `Closed`, or `ReadOnly` with the failure that made the store so.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            let reason = "the store is open for reading only; open it for writing";
            return Err(Error::new(ErrorKind::ReadOnly, reason).with_path(&self.dir));
        }
        if !self.health.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let held = self.health.error.lock();
        Err(held
            .clone()
            .unwrap_or_else(|| Error::new(ErrorKind::ReadOnly, "an earlier write failed; reopen the store")))
    }

    /// # Errors
    /// `Closed`, in a process that was forked since it was opened, too.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_here()?;
        if self.health.closed.load(Ordering::Acquire) {
            return Err(closed(&self.dir));
        }
        Ok(())
    }

    /// # Errors
    /// `Closed` in a process that was forked since it was opened.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(elsewhere().with_path(&self.dir)) }
    }

    /// The sticky failure, if there is one.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.health.error.lock().clone()
    }

    /// From now on nobody writes; what was written is still flushed and synced.
    pub(crate) fn stop_writes(&self) {
        self.health.takes_no_writes.store(true, Ordering::Release);
    }

    /// As [`check_writable`](Self::check_writable), for what close does not do itself.
    ///
    /// # Errors
    /// `Closed` from the beginning of close on.
    pub(crate) fn check_takes_writes(&self) -> Result<()> {
        self.check_writable()?;
        if self.health.takes_no_writes.load(Ordering::Acquire) {
            return Err(closed(&self.dir));
        }
        Ok(())
    }

    pub(crate) fn set_closed(&self) {
        self.health.closed.store(true, Ordering::Release);
    }
}

impl Store {
    /// What they are now: of one decision, one look.
    #[inline]
    pub(crate) fn options(&self) -> Guard<Arc<Options>> {
        self.options.load()
    }

    /// From now on background work keeps to its pace: an open was not to.
    pub(crate) fn refresh_rates(&self) {
        let options = self.options();
        let per_second = options.background_bytes_per_second_max;
        self.pace.set_on(&options);
        self.pacer.set_total_rate((per_second > 0).then_some(per_second));
        self.set_reclaim_rate(None);
    }
}

fn closed(dir: &Path) -> Error {
    Error::new(ErrorKind::Closed, "the store was closed; open it again").with_path(dir)
}

/// What a child is told that was forked while the store was open.
#[cold]
pub(crate) fn elsewhere() -> Error {
    Error::new(ErrorKind::Closed, "the store is open in the process that this one was forked from")
}

/// An error about sequence numbers, of which there are no more.
#[cold]
pub(crate) fn out_of_numbers() -> Error {
    Error::new(ErrorKind::Exhausted, "all 2^56 sequence numbers of the store are used up")
}

/// Whether there are enough numbers from `next` on, the first behind those that files in `dir` have.
pub(crate) fn check_next_file(next: u64, dir: &Path) -> Result<()> {
    if next > FileNumber::MAX.get() / 2 {
        let reason = format!("a file has number {}, which leaves too few for new ones; remove it", next - 1);
        return Err(Error::new(ErrorKind::Corruption, reason).with_path(dir));
    }
    Ok(())
}
