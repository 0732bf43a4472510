//! An open store: what the rooms share, and who may touch it.
//!
//! | state                           | guarded by                  | changed by                                        |
//! |---------------------------------|-----------------------------|---------------------------------------------------|
//! | merges                          | `merging`                   | one merge, copy or close at a time                |
//! | which records are where         | `gate`                      | the swap of a merge, against the start of a scan  |
//! | active file of a stripe         | that stripe                 | the writer who holds it                           |
//! | which records a key's slots are | the key's lock              | writers; the swap of a merge, key by key          |
//! | manifest, next file number      | `installer`                 | whoever creates, seals or drops files             |
//! | retired and reserved files, background errors | `state`       | writers and background threads                    |
//! | slots                           | their shard; readers take no lock | whoever holds the key's lock                |
//! | what readers see                | nothing: `Current`, atomics | replaced under `installer`                        |
//!
//! Locks are taken in the order of the rows; of several in one row, by ascending index.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::Env;
use esker_env::os::{Current, Origin};
use esker_format::cask::{FileName, FileNumber, manifest};
use esker_log::distrust;
use esker_log::pacer::Pacer;
use esker_log::reserve::Reserve;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::file::{ActiveFile, DataFile, FileTable};
use crate::keydir::KeyDir;
use crate::manifest::Installer;
use crate::open::CaskRecovery;
use crate::options::CaskOptions;
use crate::room;
use crate::stripe::{KeyLocks, Stripes};
use crate::suspects::Suspects;
use crate::{Error, ErrorKind, Result};

/// How often a writer that waits for a merge looks whether that has become a copy.
const POLL: Duration = Duration::from_millis(10);

/// What can be done with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Condition {
    Writable = 0,
    /// Opened for reading.
    ReadOnly = 1,
    /// A sync or a manifest write failed.
    Failed = 2,
    Closed = 3,
}

/// What background threads wait for.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Full, and not sealed yet; oldest first.
    pub(crate) retired: Vec<Arc<ActiveFile>>,
    /// How many are being sealed.
    pub(crate) sealing: usize,
    /// Empty and ready to be written.
    pub(crate) reserved: Vec<Arc<ActiveFile>>,
    /// How many files will be needed soon.
    pub(crate) wanted: usize,
    /// Files were sealed since the merge looked last.
    pub(crate) merge_is_due: bool,
    /// Merges were due while somebody else merged or made a copy.
    pub(crate) is_put_off: bool,
    pub(crate) is_closing: bool,
    pub(crate) seal_error: Option<Error>,
    pub(crate) merge_error: Option<Error>,
    pub(crate) lack: Option<Lack>,
}

/// There was no room for a merge, though there seemed to be: none that may write as much is begun before there is more, or a file was sealed, as
/// where nobody says what a quota leaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lack {
    /// What it may have written at most.
    pub(crate) most: u64,
    /// What there was once it had given back what it took.
    pub(crate) room: u64,
}

/// The right to merge, or to keep merges away. Merges that were put off meanwhile are due when it is given back.
#[derive(Debug)]
pub(crate) struct Merging<'a> {
    store: &'a Store,
    guard: Option<MutexGuard<'a, ()>>,
}

impl Drop for Merging<'_> {
    fn drop(&mut self) {
        let store = self.store;
        store.is_copying.store(false, Ordering::Release);
        drop(self.guard.take());
        let mut state = store.state.lock();
        if std::mem::take(&mut state.is_put_off) {
            state.merge_is_due = true;
            if store.options.background_jobs == 0 {
                store.is_work_due.store(true, Ordering::Release);
            }
            store.changed.notify_all();
        }
    }
}

/// What happened since the open; [`CaskStats`](crate::CaskStats) says what each means.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) syncs: AtomicU64,
    pub(crate) seals: AtomicU64,
    pub(crate) seals_by_writers: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) merge_written_bytes: AtomicU64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: CaskOptions,
    pub(crate) store_id: [u8; 16],
    pub(crate) keydir: KeyDir,
    pub(crate) files: Current<FileTable>,
    pub(crate) stripes: Stripes,
    pub(crate) key_locks: KeyLocks,
    /// Keys that had a value when the store was opened.
    key_count: u64,
    /// The version that the next record gets.
    pub(crate) next_version: AtomicU64,
    pub(crate) merging: Mutex<()>,
    /// Whoever has `merging` makes a copy.
    is_copying: AtomicBool,
    pub(crate) gate: Mutex<()>,
    pub(crate) installer: Mutex<Installer>,
    /// Every file that is not sealed: active, reserved or retired. Taken last of all locks.
    pub(crate) unsealed: Mutex<Vec<Arc<ActiveFile>>>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// Work is due; only looked at where there are no threads to do it.
    pub(crate) is_work_due: AtomicBool,
    condition: AtomicU8,
    /// Where it was opened. Its threads are there, and its files are that process's.
    pub(crate) origin: Origin,
    failure: Mutex<Option<Error>>,
    /// When everything was synced last for `sync_interval_ms`, by the monotonic clock.
    pub(crate) synced_at: Mutex<Duration>,
    /// Files that could not be removed when a merge was done with them.
    pub(crate) leftovers: Mutex<Vec<PathBuf>>,
    /// Files for whose hints there was no room.
    pub(crate) hintless: Mutex<Vec<Arc<DataFile>>>,
    pub(crate) pacer: Pacer,
    pub(crate) reserve: Reserve,
    pub(crate) counters: Counters,
    pub(crate) recovery: CaskRecovery,
    pub(crate) suspects: Suspects,
}

/// What [`Store::new`] needs.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: CaskOptions,
    pub(crate) keydir: KeyDir,
    pub(crate) files: FileTable,
    pub(crate) next_version: u64,
    pub(crate) key_count: u64,
    pub(crate) installer: Installer,
    pub(crate) recovery: CaskRecovery,
    pub(crate) suspects: Suspects,
    pub(crate) hintless: Vec<Arc<DataFile>>,
    pub(crate) is_read_only: bool,
}

impl Store {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { env, dir, options, keydir, files, next_version, key_count, .. } = parts;
        let Parts { installer, recovery, suspects, hintless, is_read_only, .. } = parts;
        let pacer = Pacer::new(env.clock.clone());
        let synced_at = env.clock.monotonic();
        let rate = options.merge_bytes_per_second;
        pacer.set_rate(esker_log::pacer::Class::Reclaim, (rate > 0).then_some(rate));
        let reserve = room::reserve(env.files.clone(), &dir, options.file_bytes);
        let condition = if is_read_only { Condition::ReadOnly } else { Condition::Writable };
        Self {
            stripes: Stripes::new(options.stripes),
            key_locks: KeyLocks::new(),
            key_count,
            env,
            dir,
            options,
            store_id: installer.store_id(),
            keydir,
            files: Current::new(Arc::new(files)),
            next_version: AtomicU64::new(next_version),
            merging: Mutex::new(()),
            is_copying: AtomicBool::new(false),
            gate: Mutex::new(()),
            installer: Mutex::new(installer),
            unsealed: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_work_due: AtomicBool::new(false),
            condition: AtomicU8::new(condition as u8),
            origin: Origin::here(),
            failure: Mutex::default(),
            synced_at: Mutex::new(synced_at),
            leftovers: Mutex::default(),
            hintless: Mutex::new(hintless),
            pacer,
            reserve,
            counters: Counters::default(),
            recovery,
            suspects,
        }
    }

    pub(crate) fn path_of(&self, name: FileName) -> PathBuf {
        self.dir.join(name.name())
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.condition.load(Ordering::Acquire) {
            0 => Condition::Writable,
            1 => Condition::ReadOnly,
            2 => Condition::Failed,
            _ => Condition::Closed,
        }
    }

    /// Refuses everything in a process that was forked since the store was opened.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(elsewhere(&self.dir)) }
    }

    /// Refuses reads of a closed store.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.condition() == Condition::Closed { Err(closed(&self.dir)) } else { Ok(()) }
    }

    /// Whether a sync has failed.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.condition() == Condition::Failed
    }

    /// Refuses writes to a store that takes none.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.condition() == Condition::Writable { Ok(()) } else { Err(self.why_not_writable()) }
    }

    /// The right to merge, however long that takes. A close that has come meanwhile does not wait for whoever gets it later.
    pub(crate) fn lock_merging(&self) -> Result<Merging<'_>> {
        let merging = Merging { store: self, guard: Some(self.merging.lock()) };
        self.check_writable()?;
        Ok(merging)
    }

    /// Keeps merges away while files are copied.
    pub(crate) fn lock_for_copy(&self) -> Result<Merging<'_>> {
        let merging = self.lock_merging()?;
        self.is_copying.store(true, Ordering::Release);
        Ok(merging)
    }

    /// The right to do the merges that are due; `None` if they are put off. Nobody waits for a copy, which may be the caller's own; writers
    /// that merge themselves do wait for each other's merges, or they would outrun them.
    pub(crate) fn lock_due_merging(&self) -> Result<Option<Merging<'_>>> {
        loop {
            let waits = self.options.background_jobs == 0 && !self.is_copying.load(Ordering::Acquire);
            let patience = if waits { POLL } else { Duration::ZERO };
            let mut guard = self.merging.try_lock_for(patience);
            if guard.is_none() && !waits {
                self.state.lock().is_put_off = true;
                // Whoever had it may have given it back before that could be seen.
                guard = self.merging.try_lock();
            }
            let merging = guard.map(|guard| Merging { store: self, guard: Some(guard) });
            self.check_writable()?;
            if merging.is_some() || !waits {
                return Ok(merging);
            }
        }
    }

    #[cold]
    fn why_not_writable(&self) -> Error {
        match self.condition() {
            Condition::Closed => closed(&self.dir),
            Condition::ReadOnly => {
                Error::new(ErrorKind::ReadOnly, "the store is open for reading only").with_path(&self.dir)
            }
            Condition::Writable | Condition::Failed => self.failure.lock().clone().unwrap_or_else(|| {
                Error::new(ErrorKind::ReadOnly, "an earlier sync failed; reopen to go on").with_path(&self.dir)
            }),
        }
    }

    /// Keeps what failed; if it leaves unknown what is durable, no write is taken any more.
    pub(crate) fn note<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::ReadOnly
        {
            let mut failure = self.failure.lock();
            if failure.is_none() && self.condition() != Condition::ReadOnly {
                // Should that fail too, the error that is told is the worse one.
                let _ = distrust::warn(&*self.env.files, &self.dir);
            }
            failure.get_or_insert_with(|| error.clone());
            drop(failure);
            let (writable, failed) = (Condition::Writable as u8, Condition::Failed as u8);
            // A store that was closed meanwhile stays closed.
            let _ = self.condition.compare_exchange(writable, failed, Ordering::AcqRel, Ordering::Acquire);
        }
        result
    }

    /// The last moment for what could not be done when the store failed: the next process is warned, and what failed appends left is cut off. Should
    /// that fail again, the failure that is told is the worse one.
    pub(crate) fn tidy_failed(&self) {
        if self.failure.lock().is_some() {
            let _ = distrust::warn(&*self.env.files, &self.dir);
        }
        for file in &self.state.lock().retired {
            let _ = file.end();
        }
    }

    /// The same of a sync, or of one that another's had made unnecessary.
    pub(crate) fn note_sync(&self, synced: Result<bool>) -> Result<()> {
        if self.note(synced)? {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What made the store refuse writes, or what background work failed at last.
    pub(crate) fn background_error(&self) -> Option<Error> {
        let state = self.state.lock();
        let in_background = state.seal_error.clone().or_else(|| state.merge_error.clone());
        drop(state);
        self.failure.lock().clone().or(in_background)
    }

    /// From now on everything is refused. `false` if it was closed before.
    pub(crate) fn mark_closed(&self) -> bool {
        self.condition.swap(Condition::Closed as u8, Ordering::AcqRel) != Condition::Closed as u8
    }

    pub(crate) fn key_count(&self) -> u64 {
        self.key_count.wrapping_add(self.key_locks.key_count())
    }

    /// Readers find `file` from now on. Under `installer`, so that no change is lost.
    pub(crate) fn add_file(&self, _: &MutexGuard<'_, Installer>, file: Arc<DataFile>) {
        self.files.replace(Arc::new(self.files.load().with(file)));
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// `ReadOnly` if a sync fails.
    pub(crate) fn sync_all(&self) -> Result<()> {
        // Sealed files are durable; a file that is sealed meanwhile was synced before it left this list.
        let unsealed = self.unsealed.lock().clone();
        for file in unsealed {
            self.note_sync(file.sync())?;
        }
        Ok(())
    }
}

impl Store {
    /// Files come (or change) and go. What of the files that are written is durable by now, the manifest says from now on, too.
    ///
    /// # Errors
    /// As [`Installer::install`].
    pub(crate) fn install(&self, installer: &mut Installer, come: &[manifest::File], go: &[FileNumber]) -> Result<()> {
        installer.install(self.next_version.load(Ordering::Acquire), &self.durable(), come, go)
    }

    fn durable(&self) -> Vec<(FileNumber, u64)> {
        self.unsealed.lock().iter().map(|file| (file.data.number, file.durable_bytes())).collect()
    }

    /// Ends and syncs all files that are not sealed, and gives back what was preallocated. Afterwards nothing is written.
    pub(crate) fn finish_files(&self) -> Result<()> {
        let _stripes = self.stripes.lock_all();
        let unsealed = self.unsealed.lock().clone();
        let mut first = Ok(());
        for file in unsealed {
            first = first.and(self.note_sync(file.finish()));
        }
        first?;
        let mut installer = self.installer.lock();
        if !installer.says_less(&self.durable()) {
            return Ok(());
        }
        match self.note(self.install(&mut installer, &[], &[])) {
            // Only the next open would have known more.
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted) => Ok(()),
            noted => noted,
        }
    }
}

/// What a child is told that was forked while the store was open.
#[cold]
pub(crate) fn elsewhere(dir: &Path) -> Error {
    Error::new(ErrorKind::Closed, "the store is open in the process that this one was forked from").with_path(dir)
}

fn closed(dir: &Path) -> Error {
    Error::new(ErrorKind::Closed, "the store is closed").with_path(dir)
}
