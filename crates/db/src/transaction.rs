//! Transactions: reads of one moment and writes that take effect together, if what was read is still so then (*optimistic*: nobody waits for a
//! lock, whoever comes second begins again). Or, if they are told to, reads and writes of keys that are locked for them (*pessimistic*: whoever
//! comes second waits).
//!
//! - T1: all that a transaction reads of the store is of the moment at which it began, which a snapshot keeps; what it wrote itself it sees on top.
//! - T2: a commit takes effect as one batch, directly after a moment at which no key that was read had an entry newer than the snapshot: as if the
//!   whole transaction had run then, in no time. So transactions that commit, single writes and
//!   [`update`](crate::Db::update)s have one order that all agree on (strict serializability of keys). A transaction that writes nothing has read
//!   all at its beginning, and commits in any case.
//! - T3: keys are looked for in memtables and tables before its turn to write, and in its turn, by whoever leads its group, in memtables alone, for
//!   what came in between (U2 of [`update`](crate::update)), and in what those before it in the group write. Only where a memtable was flushed in between, or
//!   files came in, are tables asked while others wait.
//! - T4: an entry that is newer than the snapshot is there, under its number, as long as that is held: flushes and compactions drop it for a newer one
//!   only, and let no entry forget when it was written that a snapshot does not see (S1 to S3 of `compaction/sieve.rs`).
//!
//! - T5: a locking transaction has each key that it reads shared, and each that it writes alone ([`locks`]), from before it reads it to after its commit
//!   can be seen. It reads what is newest, and T2 counts from the number that could be seen before that read. So two that lock are never in
//!   conflict, and what is written without a lock is noticed as ever, by those who write nothing, too: what they read is still so after the last of
//!   it was read. (The snapshot of the beginning stays, for T4: no read counts from before it.)
//! - T6: what is rolled back to a save point was not written. It still was read, and still is locked.
//! - T7: whoever is told of a conflict can see what came in between, if it comes to the key again: it waits for that. Else, while that is synced, it
//!   would read the same again, and be in conflict again, as often as a processor can.
//!
//! Cost: a snapshot; a copy of each key that is read or written, and of each value that is written; to commit, for each key that was read a look
//! into the memtables, and, if the family's tables have something newer, into those; a place in the commit queue. Measured (`bench/`,
//! `transaction_bars`, values of 100 bytes, two processors), of those that get two keys and put them, commits a second without locks and with: of 300,000 keys
//! 208,000 and 180,000 by one thread, 319,000 and 273,000 by four; if these fight for 20 keys, 487,000 and 205,000; by sixteen, synced, 58,000 and 55,000 of
//! 300,000 keys, 22,000 and 16,000 of 20, 4,800 and 9,200 of two: a sync takes one write of a key.
//!
//! Source: Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS 1981 (backward validation).

mod iterate;
mod locks;
mod own;

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, SequenceNumber};

pub use self::iterate::TransactionIterator;
pub(crate) use self::locks::Locks;
use self::locks::{Holder, Mode, Refused};
use self::own::Own;
use crate::batch::WriteBatch;
use crate::db::Db;
use crate::entry;
use crate::family::{ColumnFamily, Generation, View};
use crate::options::{ReadOptions, TransactionOptions, WriteOptions};
use crate::pinned::PinnedSlice;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::update::is_unchanged;
use crate::write::{Ahead, Condition, Request, check_options};
use crate::{Error, ErrorKind, Result};

/// So many processors may lock keys at once, as a rule, without meeting.
const LOCK_SHARDS: usize = 64;

/// Reads of one moment, and writes that take effect together if what was read is still so. Begun by [`Db::transaction`], or, to lock keys,
/// by [`Db::transaction_with`]; dropped without a [`commit`](Self::commit), it has changed nothing.
///
/// ```
/// # fn main() -> esker_db::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("esker-transaction-{}", std::process::id()));
/// use esker_db::{Db, ErrorKind, Options, TransactionOptions, WriteOptions};
/// let db = Db::open(&dir, Options { create_if_missing: true, ..Options::default() })?;
/// db.put("alice", [5])?;
/// db.put("bob", [2])?;
/// let number = |value: Option<esker_db::PinnedSlice>| value.map_or(0, |value| value[0]);
///
/// // Begins again until nobody came in between.
/// let left = db.transact(&WriteOptions::default(), |transaction| {
///     let (alice, bob) = (number(transaction.get("alice")?), number(transaction.get("bob")?));
///     transaction.put("alice", [alice - 3])?;
///     transaction.put("bob", [bob + 3])?;
///     Ok(alice - 3)
/// })?;
/// assert_eq!((left, db.get("bob")?.as_deref()), (2, Some(&[5][..])));
///
/// // Or by hand.
/// let mut transaction = db.transaction();
/// transaction.get("alice")?;
/// transaction.put("bob", [0])?;
/// db.put("alice", [9])?;
/// let error = transaction.commit(&WriteOptions::default()).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Conflict);
///
/// // Or so that others who lock wait for it, and find what it wrote.
/// let locking = TransactionOptions { locking: true, ..TransactionOptions::default() };
/// let mut transaction = db.transaction_with(&locking);
/// let bob = number(transaction.get_for_update("bob")?);
/// transaction.put("bob", [bob + 1])?;
/// transaction.commit(&WriteOptions::default())?;
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// It holds a snapshot: what is overwritten meanwhile keeps its space. Nothing that is dropped by
/// [`delete_files_in_range`](Db::delete_files_in_range) counts as written.
pub struct Transaction {
    db: Db,
    begun: Snapshot,
    /// Of the beginning; with locks, of now.
    reading: ReadOptions,
    /// What it has locked, if it locks.
    holder: Option<Holder>,
    /// By the ids of families.
    touched: BTreeMap<u32, Touched>,
    /// What was written, in order.
    batch: WriteBatch,
    /// What keys were before they were written since the first save point, and how much of that came before each.
    undo: Vec<Undo>,
    undo_from: Vec<usize>,
    /// Whether a lock was refused for a deadlock.
    is_victim: bool,
}

/// How a key of a family comes to what was made of it before it was written once more.
#[derive(Debug)]
struct Undo {
    family_id: u32,
    key: Box<[u8]>,
    way: Back,
}

#[derive(Debug)]
enum Back {
    /// Nothing was made of it.
    Forget,
    /// This was.
    To(Own),
    /// One operand less was. So many merges of one key keep no more than all their operands.
    TakeOperand,
}

/// What a transaction has to do with a family.
#[derive(Debug)]
struct Touched {
    family: ColumnFamily,
    /// Keys that were read of the store, and what was visible then.
    read: BTreeMap<Box<[u8]>, u64>,
    /// What was made of keys.
    written: BTreeMap<Box<[u8]>, Own>,
}

/// Not what it read or wrote: how many keys.
impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let read: usize = self.touched.values().map(|of| of.read.len()).sum();
        let written: usize = self.touched.values().map(|of| of.written.len()).sum();
        let locked = self.holder.as_ref().map_or(0, Holder::len);
        f.debug_struct("Transaction")
            .field("keys_read", &read)
            .field("keys_written", &written)
            .field("keys_locked", &locked)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// Begins a transaction, which sees the store as it is now.
    pub fn transaction(&self) -> Transaction {
        self.transaction_with(&TransactionOptions::default())
    }

    /// Begins a transaction that locks keys, if the options say so, and else one as [`transaction`](Self::transaction).
    pub fn transaction_with(&self, options: &TransactionOptions) -> Transaction {
        let begun = self.snapshot();
        let holder = options.locking.then(|| self.store().locks.holder(options.lock_timeout));
        let snapshot = holder.is_none().then(|| begun.clone());
        Transaction {
            db: self.clone(),
            begun,
            reading: ReadOptions { snapshot, ..ReadOptions::default() },
            holder,
            touched: BTreeMap::new(),
            batch: WriteBatch::new(),
            undo: Vec::new(),
            undo_from: Vec::new(),
            is_victim: false,
        }
    }

    /// Runs `act` in a transaction and commits it; begins again if it was in [conflict](ErrorKind::Conflict) with another write, however often: `act`
    /// may run several times, and only its last run counts. Whenever one begins again, another write has gone ahead: it must not be `act` itself that
    /// writes to what it reads, past the transaction.
    ///
    /// # Errors
    /// What `act` returns: nothing was written. As [`Transaction::commit`], but for `Conflict`.
    pub fn transact<T>(&self, options: &WriteOptions, act: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(&TransactionOptions::default(), options, act)
    }

    /// As [`transact`](Self::transact), in a transaction as the options say. With locks it begins again, too, if `act` returns the `Conflict` of a
    /// [deadlock](TransactionOptions::locking), having let go of all its locks.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T>(
        &self,
        transaction_options: &TransactionOptions,
        options: &WriteOptions,
        mut act: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        loop {
            let mut transaction = self.transaction_with(transaction_options);
            let made = match act(&mut transaction) {
                Err(error) if transaction.is_victim && error.kind() == ErrorKind::Conflict => continue,
                made => made?,
            };
            match transaction.commit(options) {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                committed => return committed.map(|()| made),
            }
        }
    }
}

impl Transaction {
    /// The value of `key` in the default column family. See [`get_cf`](Self::get_cf).
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        self.get_cf(&self.db.default_column_family(), key)
    }

    /// The value of `key` in `family`: what the transaction gave it, else what it had when that began; if it locks, what it has now. If another
    /// write comes to the key before the commit, that fails.
    ///
    /// # Errors
    /// As [`Db::get_cf`]. Of a transaction that [locks](TransactionOptions::locking), besides:
    /// - `Busy`: others kept the key locked for too long.
    /// - `Conflict`: they wait for this transaction. Drop it, so that they go on, and begin again.
    pub fn get_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        let key = key.as_ref();
        if self.own(family, key)?.is_none_or(Own::needs_stored) {
            self.lock(family, key, Mode::Shared)?;
            self.note_read(family, key);
        }
        self.read(family, key)
    }

    /// As [`get`](Self::get), of a key that is going to be written. See [`get_for_update_cf`](Self::get_for_update_cf).
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        self.get_for_update_cf(&self.db.default_column_family(), key)
    }

    /// As [`get_cf`](Self::get_cf), of a key that is going to be written: a [locking](TransactionOptions::locking) transaction has it alone from
    /// here on. Two that share a key, and then both want to write to it, are in a deadlock; with this, the second waits for the first.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn get_for_update_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        let key = key.as_ref();
        let is_stored = self.own(family, key)?.is_none_or(Own::needs_stored);
        self.lock(family, key, Mode::Alone)?;
        if is_stored {
            self.note_read(family, key);
        }
        self.read(family, key)
    }

    /// The values of `keys` in the default column family. See [`multi_get_cf`](Self::multi_get_cf).
    ///
    /// # Errors
    /// As [`multi_get_cf`](Self::multi_get_cf).
    pub fn multi_get<K: AsRef<[u8]>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<PinnedSlice>>>> {
        self.multi_get_cf(&self.db.default_column_family(), keys)
    }

    /// The values of `keys` in `family`, in their order: each as [`get_cf`](Self::get_cf), those of the store read together, as
    /// [`Db::multi_get_cf`] does.
    ///
    /// # Errors
    /// Of a key that cannot be read, its own, in its place; as [`get_cf`](Self::get_cf), if one is not to be had at all.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &mut self,
        family: &ColumnFamily,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<PinnedSlice>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut asked = Vec::new();
        for key in keys.iter().map(AsRef::as_ref) {
            if self.own(family, key)?.is_none_or(Own::needs_stored) {
                asked.push(key);
            }
        }
        // In their order: of two that ask for the same, neither waits for the other in vain.
        let mut in_order = asked.clone();
        in_order.sort_unstable();
        for key in in_order {
            self.lock(family, key, Mode::Shared)?;
            self.note_read(family, key);
        }
        let mut stored = self.db.multi_get_cf(family, asked, &self.reading)?.into_iter();
        let values = keys.iter().map(|key| self.read_over(family, key.as_ref(), || stored.next().unwrap_or(Ok(None))));
        Ok(values.collect())
    }

    /// Whether `key` has a value in the default column family. See [`exists_cf`](Self::exists_cf).
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn exists(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.exists_cf(&self.db.default_column_family(), key)
    }

    /// Whether `key` has a value in `family`, as [`get_cf`](Self::get_cf). Never reads a blob.
    ///
    /// # Errors
    /// As [`get_cf`](Self::get_cf).
    pub fn exists_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        if let Some(own) = self.own(family, key)? {
            return Ok(own.is_there());
        }
        self.lock(family, key, Mode::Shared)?;
        self.note_read(family, key);
        self.db.exists_cf(family, key, &self.reading)
    }

    /// Sets `key` to `value` in the default column family, if it commits.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&self.db.default_column_family(), key, value)
    }

    /// Sets `key` to `value` in `family`, if it commits. A key that is written and not read is in conflict with nobody.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` for a family of another store, or of an earlier open; `Busy` and `Conflict` as
    /// [`get_cf`](Self::get_cf).
    pub fn put_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.lock(family, key, Mode::Alone)?;
        self.batch.put_cf(family, key, value)?;
        let end = self.batch.len_bytes();
        self.note_written(family, key, Own::value(end - value.len()..end));
        Ok(())
    }

    /// Removes `key` from the default column family, if it commits.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf(&self.db.default_column_family(), key)
    }

    /// Removes `key` from `family`, if it commits.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf).
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.lock(family, key, Mode::Alone)?;
        self.batch.delete_cf(family, key)?;
        self.note_written(family, key, Own::nothing());
        Ok(())
    }

    /// Merges `operand` into the value of `key` in the default column family, if it commits.
    ///
    /// # Errors
    /// As [`merge_cf`](Self::merge_cf).
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_cf(&self.db.default_column_family(), key, operand)
    }

    /// Merges `operand` into the value of `key` in `family`, if it commits ([`Db::merge_cf`]). That reads nothing: such a transaction is in
    /// conflict with nobody who merges into the key, too.
    ///
    /// # Errors
    /// As [`put_cf`](Self::put_cf); the commit, as [`Db::merge_cf`].
    pub fn merge_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.lock(family, key, Mode::Alone)?;
        self.batch.merge_cf(family, key, operand)?;
        let end = self.batch.len_bytes();
        let place = end - operand.len()..end;
        let written = &mut self.touch(family).written;
        let way = match written.get_mut(key) {
            Some(own) => {
                own.merge(place);
                Back::TakeOperand
            }
            None => {
                let mut own = Own::default();
                own.merge(place);
                written.insert(key.into(), own);
                Back::Forget
            }
        };
        self.note_undo(family, key, way);
        Ok(())
    }

    /// A walk over the default column family. See [`iter_cf`](Self::iter_cf).
    ///
    /// # Errors
    /// `Closed`.
    pub fn iter(&self) -> Result<TransactionIterator<'_>> {
        self.iter_cf(&self.db.default_column_family(), &ReadOptions::default())
    }

    /// A walk over `family` as the transaction sees it: the store as it was when that began, if it locks as it is now, with what it wrote. The snapshot
    /// of `options` is not asked for.
    ///
    /// What it shows is not locked nor looked for at the commit, nor what came between its keys: [`get_cf`](Self::get_cf) what must stay as it is.
    ///
    /// # Errors
    /// As [`Db::iter_cf`].
    pub fn iter_cf(&self, family: &ColumnFamily, options: &ReadOptions) -> Result<TransactionIterator<'_>> {
        let options = options.bounded(family.0.order)?.into_owned();
        let reading = ReadOptions { snapshot: self.reading.snapshot.clone(), ..options };
        let store = self.db.iter_cf(family, &reading)?;
        let written = self.touched.get(&family.id()).map(|of| &of.written);
        let bounds = (reading.lower_bound, reading.upper_bound);
        Ok(TransactionIterator::new(family.clone(), store, written, &self.batch, bounds))
    }

    /// The store as it was when the transaction began. What is read with it is not looked for when it commits, locks nothing, and does not have
    /// what the transaction wrote.
    pub fn snapshot(&self) -> &Snapshot {
        &self.begun
    }

    /// Remembers what was written up to now, above what it remembers already. Cost from then on: a copy of each key that is written.
    pub fn set_save_point(&mut self) {
        self.batch.set_save_point();
        self.undo_from.push(self.undo.len());
    }

    /// Takes back what was written since the last [save point](Self::set_save_point), and forgets that. What was read since still counts, and what was
    /// locked stays so.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        self.batch.rollback_to_save_point()?;
        let from = self.undo_from.pop().unwrap_or_default();
        // The last one first, so that each key comes to what it was in the end.
        for Undo { family_id, key, way } in self.undo.drain(from..).rev() {
            let Some(of) = self.touched.get_mut(&family_id) else { continue };
            match way {
                Back::Forget => drop(of.written.remove(&key)),
                Back::To(own) => drop(of.written.insert(key, own)),
                Back::TakeOperand => of.written.get_mut(&key).into_iter().for_each(Own::take_operand),
            }
        }
        Ok(())
    }

    /// Forgets the last [save point](Self::set_save_point); all stays as it was written.
    ///
    /// # Errors
    /// `NotFound`: there is none.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.batch.pop_save_point()?;
        self.undo_from.pop();
        if self.undo_from.is_empty() {
            self.undo.clear();
        }
        Ok(())
    }

    /// Makes what was written take effect, all at once, if no other write came to any key that was read. Then, whatever came of it, lets go of what it
    /// locked.
    ///
    /// # Durability
    /// As [`Db::write`]. With `sync`, all that was read is durable as well when this returns.
    ///
    /// # Errors
    /// - `Conflict`: another write came to a key that was read. Nothing was written: begin again, as [`Db::transact`] does.
    /// - As [`Db::write`].
    /// - `Corruption`, `Io`: a table that has something newer than the transaction cannot be read; nothing was written.
    /// - `InvalidArgument`: a family of which something was read or written was dropped; nothing was written.
    pub fn commit(mut self, options: &WriteOptions) -> Result<()> {
        let store = self.db.store().clone();
        check_options(*options)?;
        store.check_open()?;
        if self.batch.is_empty() {
            // Without locks, all was read of one moment. So it is of a store that is open for reading only, whose memtables hold more than it shows
            // once others have caught up.
            if self.holder.is_some() && !store.read_only {
                store.look_for(&self.touched)?;
            }
            return if options.sync { store.sync_seen() } else { Ok(()) };
        }
        store.check_writable()?;
        // The snapshot stays until it is over (T4).
        store.submit(self.request(options)?).map(drop)
    }

    /// What it writes, and the condition under which it does.
    pub(crate) fn request(&mut self, options: &WriteOptions) -> Result<Request> {
        let (store, touched) = (self.db.store(), std::mem::take(&mut self.touched));
        let to = store.look_for(&touched)?;
        let request = store.request(std::mem::take(&mut self.batch), *options)?;
        Ok(request.under(Box::new(Looked { touched, to })))
    }

    /// What the transaction made of `key`, if it did.
    fn own(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<&Own>> {
        self.db.store().own(family)?;
        Ok(self.touched.get(&family.id()).and_then(|of| of.written.get(key)))
    }

    /// The value of `key` as the transaction sees it. If the store is asked, that was noted.
    fn read(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<PinnedSlice>> {
        self.read_over(family, key, || self.db.get_cf(family, key, &self.reading))
    }

    /// The same, over what `stored` gives.
    fn read_over(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        stored: impl FnOnce() -> Result<Option<PinnedSlice>>,
    ) -> Result<Option<PinnedSlice>> {
        match self.own(family, key)? {
            Some(own) => own.read(&self.batch, &family.0, key, stored),
            None => stored(),
        }
    }

    /// Has `key` locked from now on, if the transaction locks.
    fn lock(&mut self, family: &ColumnFamily, key: &[u8], mode: Mode) -> Result<()> {
        let store = self.db.store();
        store.own(family)?;
        let Some(holder) = &mut self.holder else { return Ok(()) };
        let locked = holder.lock(family.id(), key, mode);
        locked.map_err(|refused| {
            self.is_victim |= refused == Refused::Deadlock;
            not_locked(refused, key, family.name())
        })
    }

    fn touch(&mut self, family: &ColumnFamily) -> &mut Touched {
        let untouched = || Touched { family: family.clone(), read: BTreeMap::new(), written: BTreeMap::new() };
        self.touched.entry(family.id()).or_insert_with(untouched)
    }

    /// Notes that `key` is going to be read: it must stay as it is from the moment on that the read shows, or from an earlier one.
    fn note_read(&mut self, family: &ColumnFamily, key: &[u8]) {
        let seen = match &self.reading.snapshot {
            Some(snapshot) => snapshot.sequence(),
            None => self.db.store().visible().get(),
        };
        let read = &mut self.touch(family).read;
        if !read.contains_key(key) {
            read.insert(key.into(), seen);
        }
    }

    fn note_written(&mut self, family: &ColumnFamily, key: &[u8], own: Own) {
        let before = self.touch(family).written.insert(key.into(), own);
        self.note_undo(family, key, before.map_or(Back::Forget, Back::To));
    }

    fn note_undo(&mut self, family: &ColumnFamily, key: &[u8], way: Back) {
        if !self.undo_from.is_empty() {
            self.undo.push(Undo { family_id: family.id(), key: key.into(), way });
        }
    }
}

/// What was read, and up to where it was looked for something newer.
#[derive(Debug)]
struct Looked {
    touched: BTreeMap<u32, Touched>,
    /// For each family what took writes before, and a number.
    to: Vec<(Arc<Generation>, u64)>,
}

impl Condition for Looked {
    fn ask(&self, store: &Store, ahead: &Ahead) -> Result<()> {
        let mut is_unchanged_since = true;
        for (of, (active, to)) in self.touched.values().zip(&self.to) {
            let family = &of.family.0;
            family.check_not_dropped()?;
            if let Some(key) = of.read.keys().find(|key| ahead.writes(family, key)) {
                return Err(conflict(key, &family.name));
            }
            is_unchanged_since &= of.read.keys().all(|key| is_unchanged(family, key, *to, active));
        }
        if is_unchanged_since { Ok(()) } else { store.look_for(&self.touched).map(drop) }
    }
}

impl Store {
    /// Looks for entries of keys that were read which are newer than what was read (T3).
    ///
    /// # Errors
    /// `Conflict`: there is one, and it can be seen (T7).
    fn look_for(&self, touched: &BTreeMap<u32, Touched>) -> Result<Vec<(Arc<Generation>, u64)>> {
        let look = |of: &Touched| {
            let family = &of.family.0;
            // In this order: what is newer than `to` is in this memtable or a later one, or came in as a file; and the view has all up to `to`.
            let active = family.view.load().active.clone();
            let to = self.visible().get();
            let view = family.view.load();
            for (key, &seen) in &of.read {
                if let Some(newer) = newer(&view, key, seen)? {
                    self.published.wait_for(newer)?;
                    return Err(conflict(key, &family.name));
                }
            }
            Ok((active, to))
        };
        touched.values().map(look).collect()
    }
}

#[cold]
fn conflict(key: &[u8], family: &str) -> Error {
    let key = entry::Key(key);
    let reason = format!(
        "another write came to key {key} of column family {family:?}, which the transaction had read; begin again"
    );
    Error::new(ErrorKind::Conflict, reason)
}

#[cold]
fn not_locked(refused: Refused, key: &[u8], family: &str) -> Error {
    let key = entry::Key(key);
    let (kind, reason) = match refused {
        Refused::Deadlock => {
            (ErrorKind::Conflict, "who has it locked waits for this transaction (deadlock); drop it and begin again")
        }
        Refused::TimedOut => (ErrorKind::Busy, "another transaction kept it locked for all of lock_timeout; try again"),
    };
    Error::new(kind, reason).while_doing(format_args!("locking key {key} of column family {family:?}"))
}

/// The number of an entry of `user_key` that is newer than `seen`, or of a range with it that was deleted since; `seen` itself, if it is in a table, where all
/// can be seen.
fn newer(view: &View, user_key: &[u8], seen: u64) -> Result<Option<u64>> {
    let cover = view.cover(user_key, SequenceNumber::MAX).get();
    if cover > seen {
        return Ok(Some(cover));
    }
    let lookup = internal_key::lookup(user_key, SequenceNumber::MAX);
    if let Some(hit) = view.generations().find_map(|generation| generation.memtable.get(&lookup)) {
        return Ok(Some(hit.sequence.get()).filter(|&sequence| sequence > seen));
    }
    Ok(view.version.is_newer(&lookup, seen)?.then_some(seen))
}
