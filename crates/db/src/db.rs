//! The whole public surface of an open store in one place; the work is done in the rooms it names.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, Lock, Thread};
use parking_lot::Mutex;

use crate::batch::WriteBatch;
use crate::check::{self, Check, CheckProgress};
use crate::copy::{Copied, CopyProgress};
use crate::family::{ColumnFamily, Family};
use crate::ingest::{BulkLoad, IngestOptions, Ingested};
use crate::iterate::DbIterator;
use crate::open::{self, LeftOut};
use crate::options::{FamilyOptions, MutableOptions, Options, ReadOptions, Separation, WriteOptions};
use crate::pinned::PinnedSlice;
use crate::reclaim::{ReclaimPlan, Reclaimed};
use crate::repair::{self, DbRepair};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::store::{Store, elsewhere};
use crate::update::Change;
use crate::{Error, ErrorKind, Result};

/// Batches of single writes that are kept for their memory are no larger than this.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// An ordered store of byte strings, in a directory of its own.
///
/// Keys are ordered bytewise. A clone is another handle to the same store; the store closes with the last one, or with
/// [`close`](Self::close). All calls may be made from any number of threads at once.
///
/// # Durability
/// Once a write has returned `Ok`, the death of the process does not lose it. With [`WriteOptions::sync`], power loss
/// does not either. A batch is there whole or not at all.
///
/// # Processes and directories
/// A store belongs to the process that opened it. A child that is forked while it is open may drop or [`close`](Self::close) its handle, which
/// does nothing, or run another program. What it reads or writes otherwise, through iterators as well, is refused as `Closed`; values that it
/// has stay readable. It must not ask for anything that has no error to tell. A relative path is resolved when the store is opened. The directory must
/// not be moved or replaced until the store is closed, which goes on to write and remove files by its path.
#[derive(Clone)]
pub struct Db {
    open: Arc<OpenDb>,
}

/// Not what is within: that is a store's whole state, in hundreds of KiB.
impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// What the last handle closes.
struct OpenDb {
    store: Arc<Store>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    /// Held while the store is closed, too: who closes it a second time waits for the end of the first.
    lock: Mutex<Option<Box<dyn Lock>>>,
    /// The process that opened it. In a child that was forked since, nothing of it may be touched: the files are the parent's.
    process: u32,
}

impl Db {
    /// Opens the store in `path`, Esker's or RocksDB's, in place.
    ///
    /// Replays the write-ahead log into tables, and takes the directory's lock until the store is closed. Cost: the ends of all tables are
    /// read, several at a time, and the log twice; memory for the index and filter of every table, and a file descriptor for every table
    /// and blob file (see [`Options`]).
    ///
    /// Range deletions of RocksDB's become deletions of the keys that they hide ([`Recovery::range_deletions`](crate::Recovery)): that takes a read of what
    /// they cover, and the tables that hold them are written anew. An open for reading only has those deletions in memory.
    ///
    /// # Errors
    /// - `NotFound`: there is no store, and `create_if_missing` is not set.
    /// - `Conflict`: there is one, and `error_if_exists` is set.
    /// - `InvalidArgument`: an option is out of its range, or `path` is something else than a store.
    /// - `Busy`: another process, or another handle of this one, has it open.
    /// - `Corruption`: a file is damaged or missing; path, offset and remedy are in the message.
    /// - `UnsupportedFormat`: the store has a feature that Esker lacks.
    /// - `Io`, `Exhausted`: the system refused.
    ///
    /// After each of them the store holds the same data.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_with_env(path, options, Env::os())
    }

    /// As [`open`](Self::open), on another machine than the real one: a simulated disk, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_env(path: impl AsRef<Path>, options: Options, env: Env) -> Result<Self> {
        let wanted = options.create_missing_column_families.then(|| options.families.clone());
        let opened = open::open(path.as_ref(), options, env)?;
        let db = Self::new(opened);
        for (name, options) in wanted.into_iter().flatten() {
            if db.column_family(&name).is_none() {
                db.create_column_family(&name, options)?;
            }
        }
        db.start_threads()?;
        Ok(db)
    }

    /// Opens the store in `path` for reading: writes nothing, starts no thread, and shows the store as it is at one moment, now, with what is
    /// in its log. Writes fail with `ReadOnly`.
    ///
    /// It keeps no writer out, nor does one keep it out. It does share a lock of the directory, by which a writer knows that it must make
    /// no holes in what is read here (`punch_holes`). All files are opened at once, so that it reads on when the writer removes them: their
    /// space comes back when this handle is gone, and with it all iterators and values that it handed out.
    ///
    /// [`catch_up`](Self::catch_up) makes another handle of the store as it is by then, for less than another open.
    ///
    /// # Errors
    /// As [`open`](Self::open), but `Busy` only if a writer changes the store faster than it can be read: try again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_read_only_with_env(path, options, Env::os())
    }

    /// As [`open_read_only`](Self::open_read_only), on another machine than the real one.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn open_read_only_with_env(path: impl AsRef<Path>, options: Options, env: Env) -> Result<Self> {
        Ok(Self::new(open::open_read_only(path.as_ref(), options, env)?))
    }

    /// The store as it is now, as a new handle: of one that is open for [reading only](Self::open_read_only), beside whoever writes to it. RocksDB's name
    /// for it is `TryCatchUpWithPrimary`, of a secondary instance (`OpenAsSecondary`); but that one moves, family by family, and this handle does not.
    ///
    /// Each handle shows one moment, over all column families, and goes on to, with its snapshots and iterators; each is closed by itself. Column families
    /// that were made since are there, those that were dropped are not. They are a handle's own: ask the new one for
    /// [its](Self::column_family), or it refuses them as `InvalidArgument`. The options are those of this handle; what these leave to the store's OPTIONS
    /// file is read there again. Shown is what lies in the directory now, be it another store, or an earlier state of this one, that somebody has put there.
    ///
    /// The handles share the tables and blob files that are open, with their indexes and filters; the cache with its content and its limit
    /// (`memory_limit` is one for all of them); the counts of what was read; and memtables, as long as only the log went on. What no
    /// manifest names any more goes with the last handle, snapshot, iterator or value that needs it, and so does the lock by which a writer knows that it must
    /// make no holes (`punch_holes`).
    ///
    /// Cost: a read of the manifest; of each file that is open already a look whether it still is the same; the ends of new ones. The log is read once, to see that its
    /// beginning is what it was; if it went on, once more, to the end of what was allocated for it, to check what is new, which is replayed. After a flush all that is left in it is.
    /// With 64 MiB in the log, 500,000 values, and memtables of 512 MiB: 20 ms if nothing was written since, 160 if something was, where an open takes 860; with
    /// an empty log 0.2 ms if nothing was, and 1 ms with 200 tables.
    ///
    /// # Errors
    /// - `InvalidArgument`: this handle is open for writing: it shows all there is.
    /// - `Closed`: it was closed.
    /// - As [`open_read_only`](Self::open_read_only). This handle stays as it was, and may be asked again.
    pub fn catch_up(&self) -> Result<Self> {
        Ok(Self::new(open::catch_up(self.store())?))
    }

    fn new(opened: open::Opened) -> Self {
        let open::Opened { store, lock, .. } = opened;
        store.follow_cache();
        Self {
            open: Arc::new(OpenDb {
                store,
                threads: Mutex::default(),
                lock: Mutex::new(lock),
                process: std::process::id(),
            }),
        }
    }

    fn start_threads(&self) -> Result<()> {
        let store = &self.open.store;
        for index in 0..store.background_jobs {
            let worker = store.clone();
            let work = Box::new(move || worker.work_until_closed());
            self.open.threads.lock().push(store.env.threads.spawn(&format!("esker-bg-{index}"), work)?);
        }
        Ok(())
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.open.store
    }

    /// Mends the store in `path`, which nobody has open: with what can be read of its manifest, tables, blob files and logs, and of
    /// `options` what a family needs that its OPTIONS file does not say. A store without damage is the same afterwards.
    ///
    /// Nothing is thrown away: what cannot be used is moved to the folder `lost` in `path`. What was lost is in the answer. A repair
    /// that dies can be run again; until it has come to its end, the store does not open.
    ///
    /// Cost: reads every file; writes those again that are damaged, or whose place nothing tells.
    ///
    /// # Errors
    /// - `NotFound`: there is no file of a store, or of all tables that the manifest names none is there. `Busy`: somebody has it open.
    /// - `InvalidArgument`: an option is out of its range, or nothing but names says that this is what is left of a store.
    /// - `Corruption`: it is what a checkpoint or backup that was not finished has left.
    /// - `UnsupportedFormat`: it needs something that Esker lacks; it has tables in other directories, say.
    /// - `Exhausted`, `Io`: a file cannot be read or written; nothing was changed, or the repair is to be run again.
    pub fn repair(path: impl AsRef<Path>, options: Options) -> Result<DbRepair> {
        Self::repair_with_env(path, options, Env::os())
    }

    /// As [`repair`](Self::repair), on another machine.
    ///
    /// # Errors
    /// As [`repair`](Self::repair).
    pub fn repair_with_env(path: impl AsRef<Path>, options: Options, env: Env) -> Result<DbRepair> {
        repair::repair(path.as_ref(), options, env)
    }

    /// As [`check`](Self::check), of the store in `path`, also of one that is too damaged to be opened: whatever of it can be read is checked. Keeps
    /// no writer out, writes nothing. `options` as for [`open_read_only`](Self::open_read_only).
    ///
    /// Where CURRENT, or the manifest that it names, is damaged or gone, what a [`repair`](Self::repair) would go by is checked: another manifest
    /// that is whole, or else each table, blob file and log by itself. [`Check::without_current`] says which, and what a repair would not get back.
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only), but for damage, which is in the answer. Without CURRENT and manifest as
    /// [`repair`](Self::repair), too: `InvalidArgument` where nothing but names says that this is what is left of a store.
    pub fn check_store(
        path: impl AsRef<Path>,
        options: Options,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<Check> {
        Self::check_store_with_env(path, options, Env::os(), progress)
    }

    /// As [`check_store`](Self::check_store), on another machine.
    ///
    /// # Errors
    /// As [`check_store`](Self::check_store).
    pub fn check_store_with_env(
        path: impl AsRef<Path>,
        options: Options,
        env: Env,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<Check> {
        check::check_store(path.as_ref(), options, env, progress)
    }

    /// Ends background work and gives the directory up. Other handles get `Closed` from now on; iterators and values
    /// that were taken earlier stay readable, also when the directory is opened again: as long as one of them is there, or another handle of the store or
    /// a column family, whoever writes makes no holes (`punch_holes`).
    ///
    /// What is in memory only because of [`WriteOptions::disable_wal`] is flushed; everything else is in the log
    /// already. The log is synced, so that a closed store survives power loss, and the manifest says how much of it is, so that whoever
    /// opens the store next takes nothing that is missing for what a crash left. Dropping the last handle does the same, but has nobody to
    /// tell an error to.
    ///
    /// # Errors
    /// The first failure of these steps, or an earlier one that made the store read-only; the store is closed all the same. `Closed` if it was
    /// closed before; of two calls at once the second waits for that. `Closed`, too, in a process that was forked since: nothing is touched.
    pub fn close(self) -> Result<()> {
        self.open.close()
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.store().dir
    }

    /// Sets `key` to `value` in the default column family. See [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let store = self.store();
        self.put_one(&store.default_family, key.as_ref(), value.as_ref(), WriteOptions::default())
    }

    /// Sets `key` to `value` in `family`. See [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        self.put_one(self.store().own(family)?, key.as_ref(), value.as_ref(), *options)
    }

    /// Removes `key` from the default column family; no error if it is not there. See [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(&WriteOptions::default(), |batch| batch.delete(key))
    }

    /// Removes `key` from `family`; no error if it is not there. See [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.store().own(family)?;
        self.write_one(options, |batch| batch.delete_cf(family, key))
    }

    /// Removes `key` from the default column family, which was put at most once since it was last removed. See
    /// [`WriteBatch::single_delete`].
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(&WriteOptions::default(), |batch| batch.single_delete(key))
    }

    /// The same in `family`. See [`WriteBatch::single_delete`].
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn single_delete_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.store().own(family)?;
        self.write_one(options, |batch| batch.single_delete_cf(family, key))
    }

    /// Removes all keys of the default column family from `begin` on and before `end`. See [`delete_range_cf`](Self::delete_range_cf).
    ///
    /// # Errors
    /// As [`delete_range_cf`](Self::delete_range_cf).
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let order = self.store().default_family.order;
        let (begin, end) = (begin.as_ref(), end.as_ref());
        self.write_one(&WriteOptions::default(), |batch| batch.delete_range_id(0, order, begin, end))
    }

    /// Removes all keys of `family` from `begin` on and before `end`, however many there are, by one entry: those that are there now. Snapshots
    /// that were made before keep them. Nothing if the two are equal. See [`write`](Self::write).
    ///
    /// Space comes back as it does after deletions of the keys, and sooner: a table that lies within the range goes without being read, unless it
    /// points to separated values, as soon as the deletion is flushed and no older snapshot is left.
    /// [`delete_files_in_range`](Self::delete_files_in_range) before it is quicker still, and spares no snapshot.
    ///
    /// Cost: that of one write; with n of them in a memtable, log n searches. Whoever reads a key of a family that has range deletions looks for them
    /// in each memtable that has some, and in one table of each level; who reads with a snapshot from between those of a memtable looks at each. Whoever walks steps over hidden
    /// entries in memtables, and in tables that have entries as new as the range deletion (its own, too), and skips whole stretches of older tables. Compaction takes range
    /// deletions down to the level of what they hide, and away.
    ///
    /// # Errors
    /// As [`write`](Self::write), and `InvalidArgument` if `begin` comes after `end` in the order of the family.
    pub fn delete_range_cf(
        &self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        self.store().own(family)?;
        self.write_one(options, |batch| batch.delete_range_cf(family, begin, end))
    }

    /// Merges `operand` into the value of `key` in the default column family. See [`merge_cf`](Self::merge_cf).
    ///
    /// # Errors
    /// As [`merge_cf`](Self::merge_cf).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.write_one(&WriteOptions::default(), |batch| batch.merge(key, operand))
    }

    /// Merges `operand` into the value of `key` in `family`, whether it has one or not, by the family's
    /// [merge operator](crate::FamilyOptions::merge_operator): a change by what is there that reads nothing. See [`write`](Self::write).
    ///
    /// Cost: that of a put of the operand. Whoever reads the key merges all operands that were not merged yet; a flush or a compaction that meets
    /// them makes fewer of them, or the value; one that lies in a blob file as far as `max_space_amp` and the disk leave room for it twice. An
    /// [`update`](Self::update) reads at once, and may do anything.
    ///
    /// # Errors
    /// As [`write`](Self::write), and `InvalidArgument` if the family has no merge operator.
    pub fn merge_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<()> {
        self.store().own(family)?;
        self.write_one(options, |batch| batch.merge_cf(family, key, operand))
    }

    /// Applies a batch and makes it visible to every later read.
    ///
    /// Cost: one append to the log, shared with all concurrent callers, and with `sync` one shared `fdatasync`; one
    /// insertion into a memtable per operation. Waits where flush or compaction cannot keep up, smoothly at first.
    ///
    /// # Durability
    /// With `sync`, `Ok` means that the batch survives power loss; without, that it survives the death of the process.
    /// `Err` means unknown: after reopen the batch is whole or absent, never in part.
    ///
    /// # Errors
    /// - `InvalidArgument`: a column family was dropped or is another store's, or `sync` is asked for with `disable_wal`; nothing was written.
    /// - `Exhausted`: no space left; nothing was written, reads go on, and so do deletions (see [`max_disk_bytes`](Options::max_disk_bytes)), and writes once there is
    ///   space again.
    /// - `Io`: the system refused to write, or to flush what has to go first; nothing was written.
    /// - `ReadOnly`: a sync failed, now or earlier, a thread panicked while it wrote, or the store is open for reading only.
    /// - `Closed`.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.store().write(batch, *options)
    }

    /// Sets `key` in `family` to `value` if it has none; says whether it did. With `sync`, either answer is durable: see
    /// [`update`](Self::update).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn put_if_absent(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<bool> {
        self.change_if(family, key.as_ref(), None, || Change::Put(value.as_ref().to_vec()), options)
    }

    /// Sets `key` in `family` to `value` if it has the value `expected`; says whether it did. With `sync`, either answer is durable: see
    /// [`update`](Self::update).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn compare_and_set(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<bool> {
        let put = || Change::Put(value.as_ref().to_vec());
        self.change_if(family, key.as_ref(), Some(expected.as_ref()), put, options)
    }

    /// Removes `key` from `family` if it has the value `expected`; says whether it did. With `sync`, either answer is durable: see
    /// [`update`](Self::update).
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn compare_and_delete(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<bool> {
        self.change_if(family, key.as_ref(), Some(expected.as_ref()), || Change::Delete, options)
    }

    fn change_if(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        expected: Option<&[u8]>,
        make: impl Fn() -> Change,
        options: &WriteOptions,
    ) -> Result<bool> {
        let mut is_changed = false;
        self.update(family, key, options, |found| {
            is_changed = found == expected;
            if is_changed { make() } else { Change::Keep }
        })?;
        Ok(is_changed)
    }

    /// Changes the value of `key` in `family` by what it is, in one atomic step; returns what it was before.
    ///
    /// `decide` gets the value and says what becomes of it. Should another write come in between, it is asked again with the
    /// new value: it may run several times, and only its last answer counts. No other write of any kind comes between the value
    /// it last saw and its answer. It must not write to the store itself, nor wait for a lock that somebody holds who writes: who has
    /// lost many such races is asked while all who write wait.
    ///
    /// Cost: a read, and a place among those who write, who share an append and a sync. Where several change the same keys at once, the changes of the next
    /// moments take a turn each, and share the sync only.
    ///
    /// # Durability
    /// As [`write`](Self::write). With `sync`, the value that the last answer was given for is durable as well when this returns, also if
    /// nothing changed: that waits for a sync if anything was written since the last one. Only a flush makes what was written with `disable_wal` so.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`get_cf`](Self::get_cf). After `ReadOnly`, `Closed` or `Io` it is unknown whether the change took effect:
    /// with `sync`, it may have been seen by others before its sync failed. After `Exhausted` nothing changed.
    pub fn update(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        options: &WriteOptions,
        mut decide: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<Option<PinnedSlice>> {
        self.store().own(family)?;
        self.store().update(family, key.as_ref(), *options, &mut decide)
    }

    fn put_one(&self, family: &Family, key: &[u8], value: &[u8], options: WriteOptions) -> Result<()> {
        keep_spare(self.store().put(family, key, value, options, spare_batch())?);
        Ok(())
    }

    /// Writes what `fill` puts into a batch.
    fn write_one(&self, options: &WriteOptions, fill: impl FnOnce(&mut WriteBatch) -> Result<()>) -> Result<()> {
        let mut batch = spare_batch();
        fill(&mut batch)?;
        keep_spare(self.store().write_and_return(batch, *options)?);
        Ok(())
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// - `ReadOnly`: the sync failed; what is durable is unknown until the store is reopened.
    /// - `Exhausted`, `Io`: an earlier log cannot be cut where it ends; nothing is lost, and a later call may succeed.
    /// - `Closed`.
    pub fn sync_wal(&self) -> Result<()> {
        self.store().sync_wal()
    }

    /// The value of `key` in the default column family.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        let store = self.store();
        store.get(&store.default_family, key.as_ref(), &ReadOptions::default())
    }

    /// The value of `key` in `family`, now or as of a snapshot.
    ///
    /// Cost: no lock. A filter probe and at most one block per level that may hold the key, and one read of a blob if
    /// the value is separated. The value shares memory with the memtable, block or blob that holds it.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading; `Closed`; `InvalidArgument` for a family or a snapshot of another store, or of an earlier open.
    pub fn get_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<PinnedSlice>> {
        self.store().get(self.store().own(family)?, key.as_ref(), options)
    }

    /// The values of `keys` in the default column family, in their order. See [`multi_get_cf`](Self::multi_get_cf).
    ///
    /// # Errors
    /// As [`multi_get_cf`](Self::multi_get_cf).
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<PinnedSlice>>>> {
        self.multi_get_cf(&self.default_column_family(), keys, &ReadOptions::default())
    }

    /// The values of `keys` in `family`, in their order, all of one moment; of a key that cannot be read, the error.
    ///
    /// Cost: as [`get_cf`](Self::get_cf) for each, but of 256 keys at a time the blocks that have to be read are read at once, of a whole level,
    /// and then the separated values, sorted by place, neighbours together. Values that were neighbours share their memory, up to 256 KiB.
    ///
    /// # Errors
    /// `Closed`, or `InvalidArgument` for a family or a snapshot of another store, or of an earlier open: nothing was read.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Result<Vec<Result<Option<PinnedSlice>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.store().multi_get(self.store().own(family)?, keys.iter().map(AsRef::as_ref), options)
    }

    /// The bytes of the value of `key` in the default column family that lie in `range`. See
    /// [`get_range_cf`](Self::get_range_cf).
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get_range(&self, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<PinnedSlice>> {
        let store = self.store();
        store.get_range(&store.default_family, key.as_ref(), range, &ReadOptions::default())
    }

    /// The bytes of the value of `key` in `family` that lie in `range`, as far as there are any.
    ///
    /// Cost: of a separated value that is not packed (`blob_compression` is `None`) and longer than 32 KiB, only the
    /// part is read, in any length; its own checksum, which is one over the whole value, can then not be checked, only
    /// that of the record's header, and the key. Everything else, all of such a value too, is read and checked whole, as
    /// [`get_cf`](Self::get_cf) does, and stays in the cache like there: of a packed value, one part after the other is read once.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get_range_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        range: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Option<PinnedSlice>> {
        self.store().get_range(self.store().own(family)?, key.as_ref(), range, options)
    }

    /// The length of the value of `key` in the default column family. See [`value_len_cf`](Self::value_len_cf).
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn value_len(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let store = self.store();
        store.value_len(&store.default_family, key.as_ref(), &ReadOptions::default())
    }

    /// The length of the value of `key` in `family`, in bytes. Reads a blob only where values are packed
    /// (`blob_compression`), and does not lie in the cache: what one unpacks to is known from its own bytes alone, the first of them. Nothing
    /// but these is read, so that its checksum cannot be checked, only that of the record's header, and the key.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn value_len_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
    ) -> Result<Option<u64>> {
        self.store().value_len(self.store().own(family)?, key.as_ref(), options)
    }

    /// Whether `key` has a value in the default column family. Never reads a blob.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let store = self.store();
        store.exists(&store.default_family, key.as_ref(), &ReadOptions::default())
    }

    /// Whether `key` has a value in `family`. Never reads a blob.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn exists_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<bool> {
        self.store().exists(self.store().own(family)?, key.as_ref(), options)
    }

    /// An iterator over the default column family.
    ///
    /// # Errors
    /// `Closed`.
    pub fn iter(&self) -> Result<DbIterator> {
        self.iter_cf(&self.default_column_family(), &ReadOptions::default())
    }

    /// An iterator over `family`, as it is now or as of a snapshot. It stands on no entry until a seek.
    ///
    /// # Errors
    /// `Closed`; `InvalidArgument` for a family or a snapshot of another store, or of an earlier open.
    pub fn iter_cf(&self, family: &ColumnFamily, options: &ReadOptions) -> Result<DbIterator> {
        self.store().iter(self.store().own(family)?, options)
    }

    /// How many keys `family` has within the bounds of `options`: counted one by one, without reading a blob.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading a table; `Closed`; `InvalidArgument` for a family or a snapshot of another store, or of an earlier open.
    pub fn count_cf(&self, family: &ColumnFamily, options: &ReadOptions) -> Result<u64> {
        self.store().count(self.store().own(family)?, options)
    }

    /// Iterators that share out what [`iter_cf`](Self::iter_cf) would show, in order: at most `parts`, about equally long,
    /// all of one moment. Each may go to a thread of its own.
    ///
    /// Cuts lie where tables and their blocks end: what is in memtables only is one part.
    ///
    /// # Errors
    /// `InvalidArgument` unless `parts` is in 1..=65,536, and for a family or a snapshot of another store, or of an earlier open; `Closed`.
    pub fn split_cf(&self, family: &ColumnFamily, options: &ReadOptions, parts: usize) -> Result<Vec<DbIterator>> {
        self.store().split(self.store().own(family)?, options, parts)
    }

    /// [`parallel_scan_cf`](Self::parallel_scan_cf) of the default column family.
    ///
    /// # Errors
    /// As there.
    pub fn parallel_scan<F>(&self, options: &ReadOptions, threads: usize, each: F) -> Result<()>
    where
        F: Fn(&DbIterator) -> Result<()> + Send + Sync + 'static,
    {
        let store = self.store();
        store.parallel_scan(&store.default_family, options, threads, each)
    }

    /// Shows every entry of `family` within the bounds of `options` to `each`, with `threads` threads, the caller's
    /// included. Entries of a part ([`split_cf`](Self::split_cf)) come in order, parts in any order and at once.
    /// Separated values are read only if `each` asks for them. A panic of `each` goes on in the caller.
    ///
    /// # Errors
    /// What `each` returned or reading met first: the scan ends there. `InvalidArgument` unless `threads` is in 1..=256,
    /// and for a family or a snapshot of another store, or of an earlier open; `Closed`; `Io` if the system has no thread to give.
    pub fn parallel_scan_cf<F>(
        &self,
        family: &ColumnFamily,
        options: &ReadOptions,
        threads: usize,
        each: F,
    ) -> Result<()>
    where
        F: Fn(&DbIterator) -> Result<()> + Send + Sync + 'static,
    {
        self.store().parallel_scan(self.store().own(family)?, options, threads, each)
    }

    /// The store as it is now, all column families together. Held until the last clone of it is dropped.
    pub fn snapshot(&self) -> Snapshot {
        let store = self.store();
        store.snapshots.take(|| store.visible())
    }

    /// Writes all memtables to tables and waits until that is done.
    ///
    /// # Errors
    /// What made a flush fail; the writes are safe in the log, and the flush is tried again.
    pub fn flush(&self) -> Result<()> {
        let families: Vec<u32> = self.store().families.load().keys().copied().collect();
        self.store().flush(&families)
    }

    /// [`Db::flush`] of one family.
    ///
    /// # Errors
    /// As for [`Db::flush`]. A family that is dropped meanwhile has nothing left to flush.
    pub fn flush_cf(&self, family: &ColumnFamily) -> Result<()> {
        self.store().flush(&[self.store().own(family)?.id])
    }

    /// Flushes `family` and moves what it holds between `begin` and `end` (inclusive; `None` is open) to its deepest
    /// level, dropping what is overwritten or deleted. Waits until that is done.
    ///
    /// # Errors
    /// What made a flush or compaction fail; nothing is lost.
    pub fn compact_range(&self, family: &ColumnFamily, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.store().compact_range(self.store().own(family)?, begin, end)
    }

    /// Waits until no background work is due, and takes part in it: flushes of memtables that are full, compactions, and what gives space
    /// back or brings values together. For somebody who has loaded a store and wants to measure it, copy it, or hand it on in its best
    /// shape. What is in memory stays there: [`Db::flush`] before it if that is to be in tables, too.
    ///
    /// With `ReclaimMode::Manual` or `Off` reclaim is never due, nor is a compaction for which the disk has no room. While others write, there
    /// may be no end of it.
    ///
    /// # Errors
    /// What made a flush, a compaction or a removal of files fail that was due (it is tried again), or damage that keeps one from being done;
    /// nothing is lost. `ReadOnly` of a store open for reading, or after a failure; `Closed`.
    pub fn wait_for_compact(&self) -> Result<()> {
        self.store().wait_for_compact()
    }

    /// Takes tables that an [`SstFileWriter`](crate::SstFileWriter), Esker's or RocksDB's, wrote outside of the store into
    /// `family`: all of them or none, as if their entries were written now, file after file. Durable when it returns; snapshots
    /// and iterators that are there already do not see them.
    ///
    /// Each goes to the deepest level in which it hides nothing newer: at best it is never copied again. Values stay in the tables
    /// until a compaction moves them into blob files.
    ///
    /// Cost: a copy of each file, or none with [`IngestOptions::move_files`]; one pass over it with [`IngestOptions::verify`]. Writers
    /// wait for one sync of the log and one of the manifest, and for a flush if they have just written into the range.
    ///
    /// # Errors
    /// - `InvalidArgument`: a file was not written to be taken in, or has a sequence number of the RocksDB store that took it in; has no
    ///   entries, is another family's, or lies in the directory of a store.
    /// - `NotFound`, `Corruption`, `UnsupportedFormat`: a file is not there, is damaged, or holds what Esker does not have.
    /// - `Exhausted`: there is no room for it, nor anything that reclaim could free (a file that is moved needs some only within
    ///   [`max_disk_bytes`](Options::max_disk_bytes)).
    /// - `Exhausted`, `Io`: it could not be copied, or not be recorded.
    /// - `Conflict`: the column family was dropped meanwhile.
    /// - `ReadOnly`: the manifest could not be synced; whether the files are in or not, the next open knows.
    ///
    /// After all but the last, nothing was taken in and the files are where they were.
    pub fn ingest(
        &self,
        family: &ColumnFamily,
        files: &[impl AsRef<Path>],
        options: &IngestOptions,
    ) -> Result<Ingested> {
        let files: Vec<_> = files.iter().map(|path| path.as_ref().to_owned()).collect();
        self.store().ingest(self.store().own(family)?, &files, *options)
    }

    /// Begins a load of sorted pairs into `family`: they go straight into tables and, as the family's
    /// [`separation`](FamilyOptions::separation) says, blob files, at the speed of the device, past log and memtable. All of it takes
    /// effect at once, when [`BulkLoad::finish`] returns, and counts from then; a crash before leaves nothing of it.
    ///
    /// Best for ranges of keys in which the family has nothing: tables then go to the deepest level and are never rewritten. Those
    /// that overlap with what is there go as high as they have to, and are compacted.
    ///
    /// With [`background_jobs`](Options::background_jobs) = 0 the calling thread does everything; else two threads help it. Where the disk or
    /// [`max_disk_bytes`](Options::max_disk_bytes) leaves little room it waits for what reclaim can free, and is refused once 1/64 of what the
    /// store may take up is left, which is for writers. It holds none of them back.
    ///
    /// Each load that is finished uses up 2^28 of the store's 2^56 sequence numbers: loads are for many pairs, writes for few.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`; `Exhausted` or `Io` if a thread cannot be started; `Exhausted` if the sequence numbers are used up.
    pub fn bulk_load(&self, family: &ColumnFamily) -> Result<BulkLoad> {
        BulkLoad::begin(self.store(), self.store().own(family)?)
    }

    /// Changes where values of `family` live from now on: [`set_options`](Self::set_options) of that alone. Those that were written before
    /// follow as they are compacted, see [`Separation`].
    ///
    /// # Errors
    /// Those of `set_options`.
    pub fn set_separation(&self, family: &ColumnFamily, separation: Separation) -> Result<()> {
        self.set_options(family, |options| options.separation = separation)
    }

    /// Changes options of `family` from now on, all but `merge_operator`, `comparator` and `level_count` (as RocksDB's `SetOptions`). Durable when it returns,
    /// as far as a store keeps them. `change` gets the options as they are; it is called again if another thread changed them meanwhile.
    ///
    /// What was written before stays as it is until a compaction comes by, and a flush or compaction under way ends as it began; the next memtable,
    /// file, decision or delay goes by the new ones. Waits for no writer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = esker_db::Db::open(dir.path(), esker_db::Options { create_if_missing: true, ..Default::default() })?;
    /// let family = db.default_column_family();
    /// db.set_options(&family, |options| {
    ///     options.write_buffer_bytes = 128 << 20;
    ///     options.level0_slowdown_trigger = 40;
    ///     options.level0_stop_trigger = 60;
    /// })?;
    /// assert_eq!(family.options().write_buffer_bytes, 128 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is out of its range or cannot be changed, or the family was dropped.
    /// - `ReadOnly`, `Exhausted`, `Io`: it could not be written down, and nothing changed.
    pub fn set_options(&self, family: &ColumnFamily, change: impl Fn(&mut FamilyOptions)) -> Result<()> {
        self.store().set_options(self.store().own(family)?, change)
    }

    /// Changes options of the store from now on (as RocksDB's `SetDBOptions`): those of [`MutableOptions`]. Durable when it returns, as far as a store keeps them: for
    /// RocksDB, and for tools ([`Options::of_store`]), the defaults as well as others. The next open of this program goes by the options that it is given, whatever was set here. `change`
    /// gets them as they are; it is called again if another thread changed them meanwhile.
    ///
    /// Rates hold for what is under way within 10 ms; a smaller cache gives memory back before this returns. Waits for no writer, and lets those go on that a
    /// larger `max_disk_bytes` leaves room for. Memtables that are too much for a smaller `memory_limit` are flushed in the background, or before this returns where
    /// there is none: for that alone it waits for its turn among writers. Should such a flush fail, [`stats`](Self::stats) says so, and the next write tries again.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = esker_db::Db::open(dir.path(), esker_db::Options { create_if_missing: true, ..Default::default() })?;
    /// db.set_db_options(|options| {
    ///     options.cache_bytes = 256 << 20;
    ///     options.background_bytes_per_second_max = 50 << 20;
    /// })?;
    /// assert_eq!(db.db_options().cache_bytes, 256 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: an option is out of its range; `max_disk_bytes` would leave no room for writes; there is a `memory_limit` and shall be none, or the other way
    ///   round; the cache was opened with 0 bytes, or is that of several stores ([`Cache::set_bytes`](crate::Cache::set_bytes)). Nothing changed.
    /// - `ReadOnly`, `Exhausted`, `Io`: it could not be written down, and nothing changed.
    pub fn set_db_options(&self, change: impl Fn(&mut MutableOptions)) -> Result<()> {
        self.store().set_db_options(change)
    }

    /// What they are now.
    pub fn db_options(&self) -> MutableOptions {
        MutableOptions::from(&**self.store().options())
    }

    /// Drops the tables of `family` below level 0 that lie within a range of keys, with what they point to: the cheapest way to be rid of
    /// most of what a range holds (as RocksDB's `DeleteFilesInRange`). Both ends are inclusive, `None` is open. Returns their bytes.
    ///
    /// Keys at the ends of the range, in level 0 and in memtables stay, as do those in tables that are being compacted: delete what
    /// must be gone. Nothing older comes to light; operands that stay are merged into nothing. Snapshots lose these keys, too; iterators that were made before read on.
    ///
    /// Cost: the keys of these tables once, if they point to separated values; one edit of the manifest.
    ///
    /// # Errors
    /// `Corruption`, `Io`: a table could not be read, and nothing changed; `Io` that says so, that a file could not be removed: the tables are
    /// dropped, and it goes later. `ReadOnly`, `Exhausted`: as for any change of the manifest. `InvalidArgument`: the family was dropped.
    pub fn delete_files_in_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<u64> {
        self.store().delete_files_in_range(self.store().own(family)?, begin, end)
    }

    /// Gives back the garbage in blob files of `family`, the cheapest way first: makes holes of dead pages, with [`punch_holes`](Options::punch_holes)
    /// and where they are worth it; then copies what lives out of all files of which at least `garbage_part` (0.0..=1.0) is garbage, of what they take
    /// up still, and removes them. If the family falls back, brings all values home instead. Waits until that is done; writes and reads go on
    /// meanwhile.
    ///
    /// Cost: for holes, a look at the keys of the tables that point into such files; the values that are copied, and for each
    /// [`blob_file_bytes`](FamilyOptions::blob_file_bytes) of them one rewrite of the tables that point to them.
    /// [`reclaim_plan`](Self::reclaim_plan) says how much that is.
    ///
    /// # Errors
    /// `InvalidArgument` for a part that is none, if `reclaim_mode` is `Off`, or if the family was dropped; what made a pass fail: nothing is lost, and
    /// what keeps holes from being made is told after the rest was done.
    pub fn reclaim(&self, family: &ColumnFamily, garbage_part: f64) -> Result<Reclaimed> {
        self.store().reclaim(self.store().own(family)?, garbage_part)
    }

    /// What [`reclaim`](Self::reclaim) would do, and who holds garbage that it could not free. Writes nothing.
    ///
    /// Cost: a look at each file; where holes could be made, as for these, and with [`holes_within_values`](Options::holes_within_values) one read for each dead
    /// value there.
    ///
    /// # Errors
    /// `InvalidArgument` for a part that is none; `Closed`; `Corruption`, `Io`: a table could not be read, nor could `reclaim`.
    pub fn reclaim_plan(&self, family: &ColumnFamily, garbage_part: f64) -> Result<ReclaimPlan> {
        self.store().reclaim_plan(self.store().own(family)?, garbage_part)
    }

    /// The column family named `default`, which every store has.
    pub fn default_column_family(&self) -> ColumnFamily {
        ColumnFamily(self.open.store.default_family.clone())
    }

    /// The column family of that name, if there is one.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        self.store().families.load().values().find(|family| family.name == name).cloned().map(ColumnFamily)
    }

    /// All column families, in the order of their creation.
    pub fn column_families(&self) -> Vec<ColumnFamily> {
        self.store().families.load().values().cloned().map(ColumnFamily).collect()
    }

    /// Makes a column family. Durable when it returns.
    ///
    /// # Errors
    /// - `InvalidArgument`: the name is empty or too long, or an option is out of its range.
    /// - `Conflict`: there is one of that name.
    /// - `Exhausted`, `Io`: its options or the manifest could not be written, and there is no such family.
    /// - `ReadOnly`: the manifest could not be synced; whether there is one, the next open knows.
    pub fn create_column_family(&self, name: &str, options: FamilyOptions) -> Result<ColumnFamily> {
        self.store().create_family(name, options).map(ColumnFamily)
    }

    /// Drops a column family. Durable when it returns; its files go once nobody reads them any more.
    ///
    /// # Errors
    /// - `InvalidArgument`: it is the default column family, or was dropped before.
    /// - `ReadOnly`, `Exhausted`, `Io`: the manifest could not be written.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        self.store().drop_family(self.store().own(family)?)
    }

    /// A picture of the store at this moment. Cost: a few microseconds per hundred tables, and one listing of the directory.
    pub fn stats(&self) -> Stats {
        self.store().stats()
    }

    /// A property by the name that RocksDB gives it; `None` for one that Esker does not have.
    ///
    /// Known: `rocksdb.num-files-at-level<N>`, `rocksdb.estimate-num-keys`, `rocksdb.cur-size-all-mem-tables`,
    /// `rocksdb.num-immutable-mem-table`, `rocksdb.total-sst-files-size`, `rocksdb.num-blob-files`,
    /// `rocksdb.total-blob-file-size`, `rocksdb.live-blob-file-size`, `rocksdb.live-blob-file-garbage-size`,
    /// `rocksdb.num-snapshots`, `rocksdb.base-level`, `rocksdb.estimate-pending-compaction-bytes`,
    /// `rocksdb.block-cache-usage`, `rocksdb.block-cache-capacity`, `rocksdb.background-errors`.
    pub fn property(&self, family: &ColumnFamily, name: &str) -> Option<String> {
        self.store().property(self.store().own(family).ok()?, name)
    }

    /// Makes a store in `target`, an empty directory or none, with everything that is written now, in all column families
    /// at once. It shares the tables and blob files by hard links, so it takes no time and no space worth mentioning, until either
    /// store lets go of a file; where `target` is on another file system, they are copied. Durable when it returns.
    ///
    /// Cost: a flush of the memtables; writers wait for the flush of what came during that. Blob files with two names get no holes.
    ///
    /// # Errors
    /// - `InvalidArgument`: `target` holds something. What a call that died has left there is no store, and is taken away.
    /// - `Corruption`: a repair of what is in `target` was not finished; run it again.
    /// - `Busy`: somebody else makes a copy there.
    /// - `ReadOnly`, `Closed`; what made a flush fail; `Exhausted`, `Io`: `target` holds nothing, and is no store.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<Copied> {
        self.store().checkpoint(target.as_ref())
    }

    /// Makes a store in `target` that shares nothing with this one, as [`checkpoint`](Self::checkpoint) does it; or brings an earlier
    /// backup there up to date: only what is new is copied, and the earlier one stays what it is until the new one is
    /// durable. Each file is read back, and all checksums in it are checked. To restore it, open it, or a copy.
    ///
    /// Cost: reads all tables and blob files, and the copies of them. The store keeps what it would remove until it is done.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint), and
    /// - `Conflict`: `target` is a backup of another store, or one that went on by itself: it was written to, it has another file of the
    ///   name of one of this store's, or writes that this store does not have, which went back to an earlier state. Or it is a checkpoint,
    ///   however it got there; one of RocksDB or an earlier Esker is known by the files that it shares with the store. `target` stays as it was. A store that went back and has written more since, to files of other names, is not told apart from one that did not.
    /// - `Corruption`: a file of this store is damaged: repair it, or restore it from an earlier backup.
    pub fn backup(&self, target: impl AsRef<Path>, progress: &mut dyn FnMut(CopyProgress)) -> Result<Copied> {
        self.store().backup(target.as_ref(), progress)
    }

    /// Reads and checks every byte of every table and blob file, and that everything fits together: key order, filters,
    /// pointers into blob files, counts of garbage. Writes go on meanwhile; what they add is not checked.
    ///
    /// # Errors
    /// Only what keeps the check from going on. Damage is no error of the check: it is listed in what it returns, and so is, apart from it,
    /// what is whole and cannot be shown.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress)) -> Result<Check> {
        self.store().check(&LeftOut::default(), progress)
    }
}

thread_local! {
    static SPARE: Cell<Option<WriteBatch>> = const { Cell::new(None) };
}

/// An empty batch, with the memory of this thread's last single write.
fn spare_batch() -> WriteBatch {
    // A thread that is ending has none.
    SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

fn keep_spare(batch: Option<WriteBatch>) {
    if let Some(mut batch) = batch
        && batch.len_bytes() <= SPARE_BYTES_MAX
    {
        batch.clear();
        let _ = SPARE.try_with(|spare| spare.set(Some(batch)));
    }
}

impl OpenDb {
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn close(&self) -> Result<()> {
        if self.is_forked() {
            return Err(elsewhere().with_path(&self.store.dir));
        }
        let mut lock = self.lock.lock();
        if self.store.check_open().is_err() {
            return Err(Error::new(ErrorKind::Closed, "the store was closed before").with_path(&self.store.dir));
        }
        let written = self.store.prepare_close();
        self.store.set_closed();
        self.store.wait_for_the_last();
        let mut joined = true;
        for mut thread in self.threads.lock().drain(..) {
            joined &= thread.join();
        }
        self.store.aide.close();
        let recorded = self.store.record_durable_logs();
        let purged = self.store.trash.purge_again();
        self.store.trash.close();
        self.store.room.end_ballast();
        let shared = if lock.is_some() { self.share_with_the_next() } else { Ok(()) };
        // The lock goes last: until here the directory is this store's.
        lock.take();
        let panicked = || Error::new(ErrorKind::ReadOnly, "a background thread ended by a panic; report it");
        written.and(recorded).and(purged).and(shared).and(if joined { Ok(()) } else { Err(panicked()) })
    }

    /// What is still held of the store is as another handle's that reads (`reclaim/punch.rs` H6) once the next has the directory.
    fn share_with_the_next(&self) -> Result<()> {
        match open::share(&self.store.env, &self.store.dir) {
            Ok(share) => self.store.trash.share(share),
            // There will be no next one.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.while_doing("closing the store")),
        }
        Ok(())
    }
}

impl Drop for OpenDb {
    fn drop(&mut self) {
        if self.is_forked() {
            // Nor does what they hold end here: a lock may be one that another thread of the parent held.
            std::mem::forget((self.store.clone(), self.lock.get_mut().take(), std::mem::take(self.threads.get_mut())));
            return;
        }
        // An explicit `close` has done it, and told its errors.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
