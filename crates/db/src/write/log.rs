//! The write-ahead log: a group goes into it, and the next one is begun when memtables are sealed.
//!
//! - L1: a log takes writes before the one before it is durable; its first record says so (`LogNote`), and recovery ends the
//!   logs where the earlier one lacks something: a power loss takes no write without all that came after it.
//! - L2: who syncs a write first makes all earlier logs durable, and so does a flush before it installs its tables: what they
//!   hold of a batch must not outlive the rest of it. With a log, what its pointers lead to becomes durable. Where there is one
//!   family, its tables hold all that the log does, so the log goes without ever having been durable: most of it never reaches the
//!   device.
//! - L3: once an earlier log is durable, the next group says so in the log. From there on, what is missing of it is damage.
//! - L4: the name of a log is durable before anything is written to it.
//!
//! - L5: a log is written over as another one ([`Options::recycled_logs_max`](crate::Options::recycled_logs_max)) only if it is durable,
//!   no memtable needs it, it has no other name, and each of its records tells which log it belongs to (B5).
//! - L6: the last thing that a close writes is how much of which logs is durable, into the manifest. What is missing of that is damage to
//!   whoever opens the store next, which begins with a manifest that says nothing of logs.
//!
//! A log is preallocated for what its memtables will hold, so that small writes are copied into mapped memory; it is sealed before
//! its last sync. Where space is short nothing is preallocated. Background threads make the next log when half of one is
//! written, in the middle of other work, too, and sync the last one before they flush what it holds: nobody who writes waits for a device when memtables are sealed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_env::AppendFile;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::log::log_number_tag;
use esker_format::rocksdb::log_note::LogNote;
use esker_format::rocksdb::version_edit::{DurableLog, VersionEdit};
use esker_format::rocksdb::write_batch;
use esker_log::writer::LogWriter;
use parking_lot::Mutex;

use super::beside::Beside;
use super::values::unsynced_values;
use super::{Lead, Request};
use crate::blob::{ActiveBlob, BlobSync};
use crate::store::{State, Store};
use crate::{Error, ErrorKind, Result};

/// The most that is preallocated for a log.
const PREALLOCATED_BYTES_MAX: u64 = 256 << 20;
/// A log is preallocated only where so many times its size is free.
const FREE_SHARE: u64 = 8;

/// A log that was begun ahead of time: empty, its name durable.
#[derive(Debug)]
pub(crate) struct SpareLog {
    number: FileNumber,
    path: PathBuf,
    writer: LogWriter,
}

/// A log that takes no more writes, and may not be durable yet.
#[derive(Debug)]
pub(crate) struct EndedLog {
    number: FileNumber,
    writer: LogWriter,
    /// What it points to in blob files that still grow.
    values: Vec<BlobSync>,
    is_durable: Mutex<bool>,
}

impl EndedLog {
    /// Makes it durable, unless somebody did.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: it cannot be sealed; later it may.
    /// - `ReadOnly`: what is durable is unknown.
    fn finish(&self) -> Result<()> {
        let mut is_durable = self.is_durable.lock();
        if *is_durable {
            return Ok(());
        }
        self.values.iter().try_for_each(BlobSync::run_whole)?;
        self.writer.seal()?;
        self.writer.sync()?;
        *is_durable = true;
        Ok(())
    }
}

/// What a leader knows of the logs.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The log before this one, until it is known to be durable and the log says so.
    unconfirmed: Option<LogNote>,
    /// Bytes of the note that the log began with.
    note_bytes: u64,
    /// From so many bytes on, the next log should be ready.
    spare_due_at: Option<u64>,
}

impl Order {
    /// The next log should be ready once this one has so many bytes; `None`: whoever needs it makes it.
    pub(crate) fn expect_spare(&mut self, due_at: Option<u64>) {
        self.spare_due_at = due_at;
    }
}

impl Store {
    /// Appends the group.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: nothing was appended.
    /// - `ReadOnly`: it may be in the log, and the store takes no more writes.
    pub(super) fn log_group(&self, lead: &mut Lead, group: &[Request]) -> Result<()> {
        let next = group.first().map_or(lead.last_sequence, |request| request.batch.raw().sequence());
        let Some(wal) = lead.wal.as_mut() else {
            return Err(read_only(self));
        };
        let before = wal.len();
        // L3.
        let confirmed =
            lead.order.unconfirmed.filter(|note| self.durable_log.load(Ordering::Acquire) >= note.log.get());
        if let Some(note) = confirmed {
            wal.stage(&[note_batch(LogNote { is_durable: true, ..note }, next)?.bytes()]);
        }
        let logged = group.iter().filter(|request| !request.options.disable_wal && request.batch.count() > 0);
        let result = wal.append_all(logged.map(|request| request.batch.raw().bytes()));
        self.check_log(result)?;
        if confirmed.is_some() {
            lead.order.unconfirmed = None;
        }
        self.counters.wal_bytes.add(wal.len() - before);
        if lead.order.spare_due_at.is_some_and(|due_at| wal.len() >= due_at) {
            lead.order.spare_due_at = None;
            self.ask_for_log();
        }
        Ok(())
    }

    /// Everything in the logs survives power loss when this returns (L2).
    ///
    /// # Errors
    /// As [`sync_ended_logs`](Self::sync_ended_logs).
    pub(crate) fn sync_log(&self, lead: &mut Lead) -> Result<()> {
        self.sync_ended_logs()?;
        self.sync_last_log(lead)?;
        self.durable_sequence.store(lead.last_sequence.get(), Ordering::Release);
        Ok(())
    }

    /// Makes the log durable that takes writes, and the values that it points to. Those before it are.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown.
    pub(super) fn sync_last_log(&self, lead: &mut Lead) -> Result<()> {
        let values = unsynced_values(lead);
        if !values.is_empty() && lead.beside.is_none() && self.background_jobs > 0 {
            // Without a thread for it, one comes after the other.
            lead.beside = Beside::start(&self.env).ok();
        }
        let Some(wal) = lead.wal.as_mut() else {
            return Err(read_only(self));
        };
        self.counters.wal_syncs.add(1);
        let (synced, result) = match &lead.beside {
            Some(beside) if !values.is_empty() => beside.sync(values, || wal.sync()),
            _ => {
                values.iter().try_for_each(BlobSync::run).map_err(|error| self.fail_if_unknown(error))?;
                (Ok(()), wal.sync())
            }
        };
        let synced = synced.map_err(|error| self.fail_if_unknown(error));
        self.check_log(result).and(synced)
    }

    /// Makes the logs durable that take no more writes.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: one cannot be sealed; later it may.
    /// - `ReadOnly`: what is durable is unknown.
    pub(crate) fn sync_ended_logs(&self) -> Result<()> {
        let ended = self.ended_logs.lock().clone();
        for log in ended {
            self.counters.wal_syncs.add(1);
            let result = log.finish();
            self.check_log(result)?;
            self.ended_logs.lock().retain(|waiting| !Arc::ptr_eq(waiting, &log));
            // In the order in which they ended, so all before it are durable as well.
            self.durable_log.fetch_max(log.number.get(), Ordering::AcqRel);
        }
        Ok(())
    }

    /// What a flush needs of the logs before its tables are installed (L2).
    ///
    /// # Errors
    /// As [`sync_ended_logs`](Self::sync_ended_logs).
    pub(crate) fn sync_logs_for_flush(&self) -> Result<()> {
        // A log that is written over as another one has to be durable (L5), as has what pointers lead to.
        let is_plain = |log: &Arc<EndedLog>| log.values.is_empty();
        let are_tables_enough = self.options().recycled_logs_max == 0
            && self.families.load().len() == 1
            && self.ended_logs.lock().iter().all(is_plain);
        if !are_tables_enough {
            return self.sync_ended_logs();
        }
        // What was preallocated behind its end is free for the tables.
        let ended = self.ended_logs.lock().clone();
        ended.iter().try_for_each(|log| self.check_log(log.writer.seal()))
    }

    /// The manifest says that logs before `first_needed` are in tables.
    pub(crate) fn forget_ended_logs(&self, first_needed: FileNumber) {
        let mut ended = self.ended_logs.lock();
        for log in ended.extract_if(.., |log| log.number < first_needed) {
            self.durable_log.fetch_max(log.number.get(), Ordering::AcqRel);
        }
    }

    /// A log that cannot say what it holds makes the store read-only (W5).
    fn check_log(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::ReadOnly
        {
            self.fail(error);
        }
        result
    }

    /// The next log. One without a write is used on.
    pub(super) fn begin_log(&self, lead: &mut Lead) -> Result<()> {
        let next = lead.last_sequence.get().saturating_add(1);
        let Some(wal) = lead.wal.as_ref() else {
            return Err(read_only(self));
        };
        let wal_bytes = wal.len();
        if wal_bytes <= lead.order.note_bytes {
            return Ok(());
        }
        let SpareLog { number, path, mut writer } = match self.take_spare_log(lead.wal_number) {
            Some(spare) => spare,
            None => self.make_log()?,
        };
        let note = LogNote { log: lead.wal_number, end: wal_bytes, is_durable: false };
        let noted = note_batch(note, SequenceNumber::new(next)).and_then(|batch| writer.append(&[batch.bytes()]));
        if let Err(error) = noted {
            // Nothing else was written to it, nor will be: the next attempt begins another one, should this writer be broken, too.
            self.trash.add(path.clone());
            if error.kind() != ErrorKind::ReadOnly {
                return Err(error);
            }
            // A part of the note that could not be cut off would pass for damage to who opens the store: nothing is acknowledged beside that.
            let files = &self.env.files;
            let removed = files.remove(&path).and_then(|()| files.sync_dir(&self.dir));
            return self.check_log(Err(if removed.is_ok() { error.with_kind(ErrorKind::Io) } else { error }));
        }
        let note_bytes = writer.len();
        self.counters.wal_bytes.add(note_bytes);
        let mut values = Vec::new();
        for active in &lead.actives {
            values.extend(active.generation.blobs.active().values().map(ActiveBlob::pending_sync));
        }
        let Some(ended) = lead.wal.replace(writer) else { return Err(read_only(self)) };
        let ended = EndedLog { number: lead.wal_number, writer: ended, values, is_durable: Mutex::new(false) };
        self.ended_logs.lock().push(Arc::new(ended));
        self.state.lock().wals.insert(lead.wal_number, wal_bytes);
        self.sealed_wal_bytes.fetch_add(wal_bytes, Ordering::Relaxed);
        lead.wal_number = number;
        lead.order = Order { unconfirmed: Some(note), note_bytes, spare_due_at: self.spare_due_at() };
        Ok(())
    }

    /// Seals the log and makes it durable: nothing is written to it any more.
    pub(crate) fn end_log(&self, lead: &mut Lead) -> Result<()> {
        if let Some(wal) = lead.wal.as_ref() {
            wal.seal()?;
        }
        self.sync_log(lead)?;
        self.durable_log.fetch_max(lead.wal_number.get(), Ordering::AcqRel);
        let mut state = self.state.lock();
        if let Some(wal) = lead.wal.as_ref().filter(|wal| wal.len() > lead.order.note_bytes) {
            state.wals.insert(lead.wal_number, wal.len());
        }
        let spare = state.spare_log.take().map(|spare| spare.path);
        state.retired_logs.drain(..).chain(spare).for_each(|path| self.trash.add(path));
        Ok(())
    }

    /// See L6. Nobody else changes the store any more.
    ///
    /// # Errors
    /// As the manifest's. Nothing is lost, but what is damaged later may pass for what a crash left.
    pub(crate) fn record_durable_logs(&self) -> Result<()> {
        let mut installer = self.installer.lock();
        if self.read_only || self.failure().is_some() {
            return Ok(());
        }
        let durable = self.durable_log.load(Ordering::Acquire);
        let wals = self.state.lock().wals.clone();
        let is_known = |&(number, bytes): &(FileNumber, u64)| number.get() <= durable && bytes > 0;
        let logs = wals.into_iter().filter(is_known).map(|(number, bytes)| DurableLog { number, bytes });
        let edit = VersionEdit { durable_logs: logs.collect(), ..VersionEdit::default() };
        if edit.durable_logs.is_empty() {
            return Ok(());
        }
        self.record(&mut installer, edit)
            .map_err(|failed| failed.error.while_doing("saying how much of the logs is durable"))
    }

    /// A log that nobody needs any more: it goes, or becomes another one. `state` is locked.
    pub(crate) fn retire_log(&self, state: &mut State, number: FileNumber) {
        let path = self.path_of(&FileName::Wal(number));
        // One from before the open may be of a kind whose records do not tell whose they are (L5).
        let is_ours = number >= self.first_log;
        let is_durable = is_ours && self.durable_log.load(Ordering::Acquire) >= number.get();
        let kept = if is_durable { self.options().recycled_logs_max } else { 0 };
        state.retired_logs.push_back(path);
        // The oldest first: should the manifest be lost, what is left is replayed, and must not lack what came later.
        let excess = state.retired_logs.len().saturating_sub(kept);
        state.retired_logs.drain(..excess).for_each(|path| self.trash.add(path));
    }

    /// A log to write over, the oldest, if there is one that has no other name.
    fn take_retired_log(&self) -> Option<PathBuf> {
        loop {
            let path = self.state.lock().retired_logs.pop_front()?;
            if self.env.files.metadata(&path).is_ok_and(|metadata| metadata.links == 1) {
                return Some(path);
            }
            self.trash.add(path);
        }
    }

    /// The log that was made ahead of time to follow `last`.
    fn take_spare_log(&self, last: FileNumber) -> Option<SpareLog> {
        let mut state = self.state.lock();
        // While it is locked: another may be made right after.
        self.spare_log_bytes.store(0, Ordering::Release);
        let spare = state.spare_log.take()?;
        drop(state);
        if spare.number > last {
            return Some(spare);
        }
        // It was being made when another one was needed at once. Logs are replayed in the order of their numbers.
        self.trash.add(spare.path);
        None
    }

    /// A log for later.
    pub(super) fn make_log(&self) -> Result<SpareLog> {
        let number = self.new_file_number();
        let path = self.path_of(&FileName::Wal(number));
        if let Some(old) = self.take_retired_log() {
            let recycled = self.env.files.recycle(&old, &path).map_err(Error::from);
            return match recycled.and_then(|file| self.log_writer(file, number)) {
                Ok(writer) => Ok(SpareLog { number, path, writer }),
                Err(error) => {
                    // It has either name.
                    self.trash.add(old);
                    self.trash.add(path);
                    Err(error)
                }
            };
        }
        let writer = self.create_log(number, &path)?;
        match self.env.files.sync_dir(&self.dir) {
            Ok(()) => Ok(SpareLog { number, path, writer }),
            Err(error) => {
                self.trash.add(path);
                Err(error.into())
            }
        }
    }

    /// Asks for the next log; the background makes it.
    fn ask_for_log(&self) {
        let state = self.state.lock();
        self.wants_log.store(state.spare_log.is_none(), Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
    }

    /// The same, by whoever is at other work: while all threads are, nobody would make it, and writers wait for the device.
    #[inline]
    pub(crate) fn make_wanted_log(&self) {
        if self.wants_log.load(Ordering::Relaxed) && self.wants_log.swap(false, Ordering::Relaxed) {
            // Should it fail, whoever needs it makes it, and is told.
            let _ = self.make_spare_log();
        }
    }

    /// What a background thread does when it was asked for. Should it fail, whoever needs the log makes it, and is told.
    pub(crate) fn make_spare_log(&self) -> Result<()> {
        let spare = self.make_log()?;
        let mut state = self.state.lock();
        if self.check_takes_writes().is_err() || state.spare_log.is_some() {
            self.trash.add(spare.path);
        } else {
            state.spare_log = Some(spare);
            self.spare_log_bytes.store(self.log_bytes(), Ordering::Release);
        }
        Ok(())
    }

    /// See [`Order::expect_spare`].
    pub(crate) fn spare_due_at(&self) -> Option<u64> {
        (self.background_jobs > 0).then(|| self.log_bytes() / 2)
    }

    /// An empty log at `path`.
    pub(crate) fn create_log(&self, number: FileNumber, path: &Path) -> Result<LogWriter> {
        let file = self.env.files.create(path)?;
        // Should that fail, nothing was written to it.
        self.log_writer(file, number).inspect_err(|_| self.trash.add(path.to_owned()))
    }

    fn log_writer(&self, file: Arc<dyn AppendFile>, number: FileNumber) -> Result<LogWriter> {
        self.preallocate_log(&file)?;
        if self.options().recycled_logs_max == 0 {
            return Ok(LogWriter::new(file));
        }
        Ok(LogWriter::recyclable(file, log_number_tag(number.get())))
    }

    /// What a log will hold at most, as a rule.
    pub(crate) fn log_bytes(&self) -> u64 {
        // What a full memtable has in the log is less than what it takes up in memory.
        let families = self.families.load();
        let largest = families.values().map(|family| family.memtable_bytes()).max().unwrap_or(0);
        largest.min(PREALLOCATED_BYTES_MAX)
    }

    fn preallocate_log(&self, file: &Arc<dyn AppendFile>) -> Result<()> {
        let bytes = self.log_bytes();
        self.refresh_room();
        if u64::try_from(self.left().disk).unwrap_or(0) / FREE_SHARE < bytes {
            return Ok(());
        }
        match file.preallocate(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.is_exhausted() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn note_batch(note: LogNote, next: SequenceNumber) -> Result<write_batch::WriteBatch> {
    note.to_batch(next).map_err(|error| Error::invalid_argument(error.to_string()))
}

fn read_only(store: &Store) -> Error {
    Error::new(ErrorKind::ReadOnly, "the store is open for reading only; open it for writing").with_path(&store.dir)
}
