//! The whole public surface of an open store in one place; the work is done in the rooms it names.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, Lock, Thread};
use parking_lot::Mutex;

use crate::backup::{CaskCopied, CaskCopyProgress};
use crate::batch::CaskBatch;
use crate::check::{CaskCheck, CaskCheckProgress};
use crate::open::{self, CaskRecovery};
use crate::options::{CaskOptions, CaskWriteOptions};
use crate::repair::{self, CaskRepair};
use crate::scan::CaskScan;
use crate::stats::CaskStats;
use crate::store::{Condition, Store, elsewhere};
use crate::value::CaskValue;
use crate::write;
use crate::{Error, ErrorKind, Result};

/// A store of byte strings under keys in no order, in a directory of its own.
///
/// Every key costs about 20 bytes of memory, however long it is; a read costs one access to a file, an absent key none.
/// Keys have up to 65,535 bytes, values up to 4 GiB − 1; both may be empty. For keys in order, use `Db`.
///
/// A clone is another handle to the same store; the store closes with the last one, or with [`close`](Self::close). All
/// calls may be made from any number of threads at once. Readers take no lock. They look again if the four-thousandth of the directory that
/// they look at is being changed: for tens of nanoseconds by a put, some ten microseconds when that part grows, a tenth of a microsecond for each
/// operation of a batch. Writers wait for writers of the same key (one in 1,024 others shares its lock), and
/// once there are more of them than [`CaskOptions::stripes`], for a file to write to.
///
/// Files that change no more are mapped, where the system has that. Should a device fail under a mapping, or somebody else cut such a file, the
/// system ends the process with `SIGBUS`, in whatever call touches the page: in an open, a check or a repair, too. What was durable elsewhere is
/// not lost by that: copy what can be read of the file, and repair the store from there.
///
/// # Durability
/// Once a write has returned `Ok`, the death of the process does not lose it. With [`CaskWriteOptions::sync`], power loss
/// does not either. A batch is there whole or not at all. Of writes that were not synced, a power loss may keep a later one
/// and lose an earlier one, of another key or in the history of the same.
///
/// # Processes and directories
/// A store belongs to the process that opened it. A child that is forked while it is open may drop or [`close`](Self::close) its handle, which
/// does nothing, or run another program. What it reads or writes otherwise, through scans as well, is refused as `Closed`; values that it has
/// stay readable. It must not ask for anything that has no error to tell. A relative path is resolved when the store is opened. The directory must
/// not be moved or replaced until the store is closed, which goes on to write and remove files by its path.
#[derive(Clone)]
pub struct Cask {
    open: Arc<OpenCask>,
}

/// Not what is within: that is a store's whole state, its directory of keys included.
impl std::fmt::Debug for Cask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cask").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// What the last handle closes.
struct OpenCask {
    store: Arc<Store>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// The process that opened it. In a child that was forked since, nothing of it may be touched: the files are the parent's.
    process: u32,
}

impl Cask {
    /// Opens the store in `path`, or makes one, and takes the directory's lock until the store is closed.
    ///
    /// Cost: one pass over the hints of all files, on several threads: about a tenth of a microsecond of a processor a key; and over the data
    /// of the files that were being written.
    ///
    /// # Errors
    /// - `NotFound`: there is no store, and `create_if_missing` is not set.
    /// - `Conflict`: there is one, and `error_if_exists` is set.
    /// - `InvalidArgument`: an option is out of its range, or `path` is another kind of store, or holds anything else where one is to be made.
    /// - `Busy`: another process, or another handle of this one, has it open.
    /// - `Corruption`: the manifest is damaged or missing, or a data file is missing or too short, or has damage of which it is not certain which keys it
    ///   was of ([`CaskOptions::damage`]). Other damage within a data file is no error: see [`recovery`](Self::recovery).
    /// - `UnsupportedFormat`: a newer version has written it.
    /// - `Io`, `Exhausted`: the system refused. `Exhausted`, too, if no version can follow those that are there.
    pub fn open(path: impl AsRef<Path>, options: CaskOptions) -> Result<Self> {
        Self::open_with_env(path, options, Env::os())
    }

    /// As [`open`](Self::open), on another machine than the real one: a simulated disk, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_env(path: impl AsRef<Path>, options: CaskOptions, env: Env) -> Result<Self> {
        let cask = Self::new(open::open(&env.files.absolute(path.as_ref())?, options, env)?);
        cask.start_threads()?;
        // What was retired by the open, where there is no thread to seal it. A failure is kept as state.
        if cask.store().options.background_jobs == 0 {
            let _ = cask.store().run_due_work();
        }
        Ok(cask)
    }

    /// Opens the store in `path` for reading: takes no lock, writes nothing, starts no lasting thread, and shows the store as
    /// it is now. Writes fail with `ReadOnly`.
    ///
    /// # Errors
    /// As [`open`](Self::open); `Busy` only if another process changes the store faster than it can be read.
    pub fn open_read_only(path: impl AsRef<Path>, options: CaskOptions) -> Result<Self> {
        Self::open_read_only_with_env(path, options, Env::os())
    }

    /// As [`open_read_only`](Self::open_read_only), on another machine than the real one.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn open_read_only_with_env(path: impl AsRef<Path>, options: CaskOptions, env: Env) -> Result<Self> {
        Ok(Self::new(open::open_read_only(&env.files.absolute(path.as_ref())?, options, env)?))
    }

    /// Whether there is a Cask in `path`, by what its manifest begins with. `false` also where there is nothing.
    ///
    /// # Errors
    /// `Io`: the system refused to say.
    pub fn is_store(path: impl AsRef<Path>) -> Result<bool> {
        Self::is_store_with_env(path, &Env::os())
    }

    /// As [`is_store`](Self::is_store), on another machine than the real one.
    ///
    /// # Errors
    /// As [`is_store`](Self::is_store).
    pub fn is_store_with_env(path: impl AsRef<Path>, env: &Env) -> Result<bool> {
        open::is_store(env, path.as_ref())
    }

    /// Rebuilds the manifest and all hints of the store in `path` from its data files alone. Files with damage are copied without it
    /// and put aside as `NNNNNN.damaged`; nothing is thrown away. A file is what its head says: one that has another's name gets its own
    /// again, and one that is not the store's is put aside.
    ///
    /// If the manifest itself is lost, a key that was deleted may reappear: where the record that deleted it is damaged, or where the process died
    /// between a merge and the removal of the files that it had merged.
    ///
    /// # Errors
    /// - `NotFound`: there are no data files.
    /// - `Busy`: the store is open.
    /// - `Io`, `Exhausted`: the system refused; the repair can be run again. `Exhausted`, too, if no version can follow those that are there.
    pub fn repair(path: impl AsRef<Path>) -> Result<CaskRepair> {
        Self::repair_with_env(path, &Env::os())
    }

    /// As [`repair`](Self::repair), on another machine than the real one.
    ///
    /// # Errors
    /// As [`repair`](Self::repair).
    pub fn repair_with_env(path: impl AsRef<Path>, env: &Env) -> Result<CaskRepair> {
        repair::repair(path.as_ref(), env)
    }

    /// What [`repair`](Self::repair) would do, and lose. Takes no lock and writes nothing: if somebody writes the store meanwhile, it says what that
    /// looked like. Copies that a repair would make are counted as made.
    ///
    /// # Errors
    /// As [`repair`](Self::repair), but for `Busy`.
    pub fn repair_outlook(path: impl AsRef<Path>) -> Result<CaskRepair> {
        Self::repair_outlook_with_env(path, &Env::os())
    }

    /// As [`repair_outlook`](Self::repair_outlook), on another machine than the real one.
    ///
    /// # Errors
    /// As [`repair_outlook`](Self::repair_outlook).
    pub fn repair_outlook_with_env(path: impl AsRef<Path>, env: &Env) -> Result<CaskRepair> {
        repair::outlook(path.as_ref(), env)
    }

    fn new(opened: open::Opened) -> Self {
        let open::Opened { store, lock } = opened;
        Self {
            open: Arc::new(OpenCask {
                store,
                threads: Mutex::default(),
                lock: Mutex::new(lock),
                process: std::process::id(),
            }),
        }
    }

    fn start_threads(&self) -> Result<()> {
        let store = &self.open.store;
        let jobs = store.options.background_jobs;
        let mut threads = self.open.threads.lock();
        if jobs > 0 {
            let worker = store.clone();
            let work = move || if jobs > 1 { worker.keep_files() } else { worker.keep_everything() };
            threads.push(store.env.threads.spawn("esker-seal", Box::new(work))?);
        }
        if jobs > 1 {
            let worker = store.clone();
            threads.push(store.env.threads.spawn("esker-merge", Box::new(move || worker.keep_merging()))?);
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.open.store
    }

    /// The store, for whatever can be refused: `Closed` in a process that was forked since it was opened.
    #[inline]
    fn here(&self) -> Result<&Store> {
        let store = self.store();
        store.check_here().map(|()| store)
    }

    /// Ends background work and gives the directory up. Other handles get `Closed` from now on; values that were taken
    /// earlier stay readable.
    ///
    /// Everything is synced, so that a closed store survives power loss. Dropping the last handle does the same, but has nobody to
    /// tell an error to.
    ///
    /// # Errors
    /// The first failure of these steps, or an earlier one that made the store refuse writes; the store is closed all the same.
    pub fn close(self) -> Result<()> {
        self.open.close()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.store().dir
    }

    /// The store's own name: random, given at its creation. Backups of it have it, too; a checkpoint has one of its own.
    pub fn store_id(&self) -> [u8; 16] {
        self.store().store_id
    }

    /// The options that it was opened with; `keep_versions` as it was found where they leave that to the store.
    pub fn options(&self) -> &CaskOptions {
        &self.store().options
    }

    /// The value of `key`.
    ///
    /// Cost: one look-up in memory and one record of a file. The value shares the file's mapping, where it has one and the
    /// value is not packed. An absent key costs the look-up.
    ///
    /// # Errors
    /// `Corruption`: the record is damaged. `Io`; `Closed`.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<CaskValue>> {
        self.here()?.get(key.as_ref())
    }

    /// The values of `keys`, in their order, each of some moment during the call; of a key that cannot be read, the error.
    ///
    /// Cost: as [`get`](Self::get) for each, but the processor has the memory of sixteen on its way at once: measured, where none of it is in a
    /// cache, 0.34 µs a key instead of 0.48.
    ///
    /// # Errors
    /// `Closed`: nothing was read.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<CaskValue>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.here()?.multi_get(&keys)
    }

    /// Whether `key` has a value. Cost: as [`get`](Self::get), without looking at the value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let (store, key) = (self.here()?, key.as_ref());
        store.check_open()?;
        store.exists_at(store.keydir.hash(key), key)
    }

    /// The length of the value of `key`, unpacked. Cost: as [`get`](Self::get), without looking at the value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn value_len(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.here()?.value_len(key.as_ref())
    }

    /// When the time of the value of `key` is over, in seconds since 1970. `None` for a value that stays, and for a key that has none, which
    /// [`exists`](Self::exists) tells apart. Cost: as [`get`](Self::get), and a look at the whole record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn expires_at(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.here()?.expires_at(key.as_ref())
    }

    /// Sets `key` to `value`. Returns the version that this write was given: higher than that of every earlier write.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64> {
        self.put_with(key, value, &CaskWriteOptions::default())
    }

    /// Sets `key` to `value`.
    ///
    /// Cost: one look-up, one CRC, one copy into the mapped end of the stripe's file; with `sync`, one `fdatasync`
    /// (or a few, see [`CaskWriteOptions::sync`]), shared with all who
    /// write to the stripe at the time.
    ///
    /// # Durability
    /// With `sync`, `Ok` means that the write survives power loss; without, that it survives the death of the process.
    /// `Err` means unknown, unless it is one of the first two.
    ///
    /// # Errors
    /// - `InvalidArgument`: the key has more than 65,535 bytes, the value more than 4 GiB − 1, or the time to live is out of range;
    ///   nothing was written.
    /// - `Exhausted`, `Io`, `Corruption`: nothing was written; reads go on, and so do writes once the cause is gone. On a full disk deletions and merges
    ///   go on meanwhile ([`CaskOptions::file_bytes`](crate::CaskOptions::file_bytes)).
    /// - `ReadOnly`: a sync failed, now or earlier; or this write did, and what it left in the file cannot be taken back, so it may be there
    ///   after a restart; or the store is open for reading only.
    /// - `Closed`.
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &CaskWriteOptions) -> Result<u64> {
        let version = self.here()?.write_one(key.as_ref(), Some(value.as_ref()), write::Condition::Always, options)?;
        Ok(version.unwrap_or_default())
    }

    /// Sets `key` to `value` if it has none. Whether it did. With `sync`, what either answer was given by is durable.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with), and those of [`get`](Self::get).
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &CaskWriteOptions,
    ) -> Result<bool> {
        let (key, value) = (key.as_ref(), value.as_ref());
        Ok(self.here()?.write_one(key, Some(value), write::Condition::Absent, options)?.is_some())
    }

    /// Sets `key` to `new` (`None` deletes it) if its value is `expected` (`None`: it has none). Whether it was. With `sync`, what either
    /// answer was given by is durable.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with), and those of [`get`](Self::get).
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: &CaskWriteOptions,
    ) -> Result<bool> {
        self.here()?.compare_and_set(key.as_ref(), expected, new, options)
    }

    /// Removes `key`. Whether it was there (or had been, and expired).
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_with(key, &CaskWriteOptions::default())
    }

    /// Removes `key`. Whether it was there (or had been, and expired). The options' time to live says nothing here.
    ///
    /// Cost: as [`put_with`](Self::put_with); a key that is not there is not written.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: &CaskWriteOptions) -> Result<bool> {
        let options = CaskWriteOptions { ttl: None, ..*options };
        Ok(self.here()?.write_one(key.as_ref(), None, write::Condition::Always, &options)?.is_some())
    }

    /// Applies a batch: all of it survives a crash, or nothing. Scans and readers see all of it or nothing: who has read one of its
    /// values finds no older one under another of its keys afterwards. Returns the version of its last operation, or `None` if
    /// there was nothing to do.
    ///
    /// Cost: one copy of the batch, one append. Readers of its keys, and of one in some thousands of others, wait while it takes
    /// effect: about a tenth of a microsecond for each of its operations.
    ///
    /// # Errors
    /// As [`put_with`](Self::put_with); `InvalidArgument` also if `options` has a time to live, which operations say themselves.
    pub fn write(&self, batch: &CaskBatch, options: &CaskWriteOptions) -> Result<Option<u64>> {
        if options.ttl.is_some() {
            return Err(Error::invalid_argument(
                "a batch takes no time to live; give it to its operations with put_with_ttl",
            ));
        }
        self.here()?.write_batch(batch, options)
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// `ReadOnly` if a sync fails: what is durable is then unknown until the store is reopened. `Closed`.
    pub fn sync(&self) -> Result<()> {
        let store = self.here()?;
        store.check_writable()?;
        store.sync_all()
    }

    /// Everything that lives now, in no order of keys, at the speed of the disk. Writes go on and are not seen. Where older versions are kept
    /// ([`CaskOptions::keep_versions`]), they are shown, too: [`CaskScan::version`] tells them apart.
    ///
    /// # Errors
    /// `Closed`.
    pub fn scan(&self) -> Result<CaskScan> {
        self.here()?;
        CaskScan::new(self.open.store.clone())
    }

    /// How many keys have a value. Those that have expired count until a merge has met them.
    pub fn len(&self) -> u64 {
        self.store().key_count()
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The versions of `key` that are kept ([`CaskOptions::keep_versions`]), newest first. A deletion ends a key's history, and so does
    /// the end of its newest version's time.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<(u64, CaskValue)>> {
        self.here()?.history(key.as_ref())
    }

    /// The value that `key` was given by the write of that version, if it is kept.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_version(&self, key: impl AsRef<[u8]>, version: u64) -> Result<Option<CaskValue>> {
        let history = self.here()?.history(key.as_ref())?;
        Ok(history.into_iter().find(|(kept, _)| *kept == version).map(|(_, value)| value))
    }

    /// Seals all files and merges every one that has anything to give back, and short ones with each other. Writes go on meanwhile.
    ///
    /// # Errors
    /// What a merge failed at; nothing is lost.
    pub fn compact(&self) -> Result<()> {
        self.here()?.compact()
    }

    /// Makes a store of its own in `target`, an empty or missing directory, with everything that is written now. It shares its files by
    /// hard links: at once, and for no space until either changes. Where there are no links, they are copied. Durable when it returns.
    ///
    /// Cost: seals the files that are being written, in one moment for all stripes. Writes go on meanwhile, merges wait.
    ///
    /// # Errors
    /// - `InvalidArgument`: `target` holds something. What a call that died has left there is no store, and is taken away.
    /// - `Busy`: somebody else makes a copy there.
    /// - `Io`, `Exhausted`: the system refused; `target` holds nothing, and is no store.
    /// - `ReadOnly`, `Closed`.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CaskCopied> {
        self.here()?.checkpoint(target.as_ref())
    }

    /// Makes a store in `target` that shares nothing with this one, as [`checkpoint`](Self::checkpoint) does it; or brings an earlier backup
    /// there up to date: only files that are new are copied, and the earlier one stays what it is until the new one is durable. Every byte
    /// is read back and checked. It has this store's [`store_id`](Self::store_id). To restore it, open it, or a copy.
    ///
    /// Cost: reads all files, and the copies of them. Writes go on meanwhile, those of `progress`, too; merges wait, so `progress` must neither
    /// compact nor copy nor close the store.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint), and
    /// - `Conflict`: there is a checkpoint in `target`, another store, or a backup of one, or one that went on by itself.
    /// - `Corruption`: a file of this store is damaged: repair it, or restore it from an earlier backup.
    pub fn backup(&self, target: impl AsRef<Path>, progress: &mut dyn FnMut(CaskCopyProgress)) -> Result<CaskCopied> {
        self.here()?.backup(target.as_ref(), progress)
    }

    /// What the open found: torn files, bad hints, damage.
    pub fn recovery(&self) -> &CaskRecovery {
        &self.store().recovery
    }

    /// A picture of the store at this moment. Cost: a look at every shard of the directory, about a millisecond.
    pub fn stats(&self) -> CaskStats {
        self.store().stats()
    }

    /// Reads and checks every byte of every data file and hint, and that everything fits together. Writes go on
    /// meanwhile; what they add is not checked.
    ///
    /// # Errors
    /// Only what keeps the check from going on. Damage is no error of the check: it is listed in what it returns.
    pub fn check(&self, progress: &mut dyn FnMut(CaskCheckProgress)) -> Result<CaskCheck> {
        self.here()?.check(progress)
    }
}

impl OpenCask {
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn close(&self) -> Result<()> {
        let store = &self.store;
        if self.is_forked() {
            return Err(elsewhere(&store.dir));
        }
        let before = store.condition();
        // No write begins from here on, and those under way end.
        let failed = if before == Condition::Failed { store.check_writable() } else { Ok(()) };
        if !store.mark_closed() {
            return Err(Error::new(ErrorKind::Closed, "the store is closed").with_path(&store.dir));
        }
        store.state.lock().is_closing = true;
        store.changed.notify_all();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        // All of them are waited for, whatever became of the first.
        let ended_badly = threads.iter_mut().filter_map(|thread| (!thread.join()).then_some(())).count();
        // Other handles may be in the middle of a merge, a copy, a seal or a write: who has not begun finds the store closed.
        drop(store.merging.lock());
        store.wait_for_seals();
        let result = if before == Condition::Writable {
            store.reserve.end();
            store.finish_files()
        } else {
            drop(store.stripes.lock_all());
            store.tidy_failed();
            failed
        };
        // Dropped last: nothing of ours is written to the directory any more.
        drop(self.lock.lock().take());
        if ended_badly > 0 {
            return result.and(Err(Error::new(ErrorKind::Io, "a background thread ended by a panic")));
        }
        result
    }
}

impl Drop for OpenCask {
    fn drop(&mut self) {
        if self.is_forked() {
            // Nor does what they hold end here: a lock may be one that another thread of the parent held.
            std::mem::forget((self.store.clone(), self.lock.get_mut().take(), std::mem::take(self.threads.get_mut())));
            return;
        }
        if self.store.condition() != Condition::Closed {
            let _ = self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;

    /// Goal: a child that was forked drops or closes what it got, and the parent's files and its lock stay as they are.
    #[test]
    fn what_a_forked_child_closes_is_its_parents() {
        let disk = SimDisk::new();
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, ..CaskOptions::default() };
        let mut cask = Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        cask.put("key", "value").unwrap();
        let before = disk.op_count();
        Arc::get_mut(&mut cask.open).unwrap().process ^= 1;
        assert_eq!(cask.clone().close().unwrap_err().kind(), ErrorKind::Closed);
        drop(cask);
        assert_eq!(disk.op_count(), before);
        assert_eq!(Cask::open_with_env("/store", options, disk.env()).unwrap_err().kind(), ErrorKind::Busy);
    }

    /// Goal: who was held up while the store was closed neither merges nor seals nor copies: the directory may be another's by then.
    #[test]
    fn who_was_held_up_while_the_store_was_closed_leaves_it_alone() {
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, ..CaskOptions::default() };
        let disk = SimDisk::new();
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        for n in 0..100u8 {
            cask.put([n % 4], [n; 100]).unwrap();
        }
        let store = cask.store();
        // Something to merge.
        drop(store.seal_everything().unwrap());
        cask.put("not sealed", "yet").unwrap();
        let merging = store.merging.lock();
        std::thread::scope(|scope| {
            let merge = scope.spawn(|| store.lock_merging().map(drop));
            let checkpoint = scope.spawn(|| cask.checkpoint("/copy"));
            while !disk.paths().iter().any(|path| path.starts_with("/copy")) {
                std::thread::yield_now();
            }
            assert!(store.mark_closed());
            drop(merging);
            assert_eq!(store.seal_everything().unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(merge.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
            assert_eq!(checkpoint.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        });
    }

    /// Goal: a checkpoint is one moment over all stripes: who makes one and waits for a stripe holds those before it, so that nothing is
    /// written to one that has had its turn while another still waits for its own.
    #[test]
    fn a_checkpoint_holds_all_stripes_in_one_moment() {
        let options = CaskOptions { create_if_missing: true, stripes: 2, background_jobs: 0, ..CaskOptions::default() };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        for stripe in 0..2 {
            let to = CaskWriteOptions { stripe: Some(stripe), ..CaskWriteOptions::default() };
            cask.put_with([stripe as u8], "value", &to).unwrap();
        }
        let store = cask.store();
        let second = store.stripes.lock(Some(1));
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| cask.checkpoint("/copy"));
            let all_are_held = |_| {
                std::thread::yield_now();
                store.stripes.free().count() == 0
            };
            assert!((0..1_000_000).any(all_are_held));
            drop(second);
            checkpoint.join().unwrap().unwrap();
        });
    }
}
