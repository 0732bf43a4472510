//! Transactions: reads of one moment and writes that take effect together, if what was read is still so then (*optimistic*: nobody waits for a
//! lock, whoever comes second begins again).
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
//! Cost: a snapshot; a copy of each key that is read or written, and of each value that is written; to commit, for each key that was read a look
//! into the memtables, and, if the family's tables have something newer, into those; a place in the commit queue. Measured (`esker bench --benchmarks
//! randomtransaction --value-size 100`, two processors), of those that get two keys and put them: of 300,000 keys 6.6 µs by one thread, 248,000 a second by
//! four; if these fight for 20 keys, 501,000; by sixteen, synced, 50,000 of 20,000 keys, 9,000 of 20, 2,300 of two: a sync takes one write of a key. (To commit each
//! alone in its turn, and sync then with others, made 92,000, 81,000, 9,800, 9,000 and 3,900.)
//!
//! Source: Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS 1981 (backward validation).

mod iterate;
mod own;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, SequenceNumber};

pub use self::iterate::TransactionIterator;
use self::own::Own;
use crate::batch::WriteBatch;
use crate::db::Db;
use crate::entry;
use crate::family::{ColumnFamily, Generation, View};
use crate::options::{ReadOptions, WriteOptions};
use crate::pinned::PinnedSlice;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::update::is_unchanged;
use crate::write::{Ahead, Condition, Request, check_options};
use crate::{Error, ErrorKind, Result};

/// Reads of one moment, and writes that take effect together if what was read is still so. Begun by [`Db::transaction`]; dropped without a
/// [`commit`](Self::commit), it has changed nothing.
///
/// ```
/// # fn main() -> esker_db::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("esker-transaction-{}", std::process::id()));
/// use esker_db::{Db, ErrorKind, Options, WriteOptions};
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
    /// With the snapshot.
    reading: ReadOptions,
    /// By the ids of families.
    touched: BTreeMap<u32, Touched>,
    /// What was written, in order.
    batch: WriteBatch,
}

/// What a transaction has to do with a family.
#[derive(Debug)]
struct Touched {
    family: ColumnFamily,
    /// Keys that were read of the store.
    read: BTreeSet<Box<[u8]>>,
    /// What was made of keys.
    written: BTreeMap<Box<[u8]>, Own>,
}

/// Not what it read or wrote: how many keys.
impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let read: usize = self.touched.values().map(|of| of.read.len()).sum();
        let written: usize = self.touched.values().map(|of| of.written.len()).sum();
        f.debug_struct("Transaction").field("keys_read", &read).field("keys_written", &written).finish_non_exhaustive()
    }
}

impl Db {
    /// Begins a transaction, which sees the store as it is now.
    pub fn transaction(&self) -> Transaction {
        let reading = ReadOptions { snapshot: Some(self.snapshot()), ..ReadOptions::default() };
        Transaction { db: self.clone(), reading, touched: BTreeMap::new(), batch: WriteBatch::new() }
    }

    /// Runs `act` in a transaction and commits it; begins again if it was in [conflict](ErrorKind::Conflict) with another write, however often: `act`
    /// may run several times, and only its last run counts. Whenever one begins again, another write has gone ahead: it must not be `act` itself that
    /// writes to what it reads, past the transaction.
    ///
    /// # Errors
    /// What `act` returns: nothing was written. As [`Transaction::commit`], but for `Conflict`.
    pub fn transact<T>(&self, options: &WriteOptions, mut act: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        loop {
            let mut transaction = self.transaction();
            let made = act(&mut transaction)?;
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

    /// The value of `key` in `family`: what the transaction gave it, else what it had when that began. If another write comes to the key before the
    /// commit, that fails.
    ///
    /// # Errors
    /// As [`Db::get_cf`].
    pub fn get_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        let key = key.as_ref();
        let mut is_read = false;
        let mut stored = || {
            is_read = true;
            self.db.get_cf(family, key, &self.reading)
        };
        let value = match self.own(family, key)? {
            Some(own) => own.read(&self.batch, &family.0, key, stored),
            None => stored(),
        };
        if is_read {
            self.note_read(family, key);
        }
        value
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
        self.note_read(family, key);
        self.db.exists_cf(family, key, &self.reading)
    }

    /// Sets `key` to `value` in the default column family, if it commits.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&self.db.default_column_family(), key, value)
    }

    /// Sets `key` to `value` in `family`, if it commits. A key that is written and not read is in conflict with nobody.
    ///
    /// # Errors
    /// As [`WriteBatch::put`], and `InvalidArgument` for a family of another store, or of an earlier open.
    pub fn put_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.db.store().own(family)?;
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
        self.db.store().own(family)?;
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
        self.db.store().own(family)?;
        self.batch.merge_cf(family, key, operand)?;
        let end = self.batch.len_bytes();
        let written = &mut self.touch(family).written;
        written.entry(key.into()).or_default().merge(end - operand.len()..end);
        Ok(())
    }

    /// A walk over the default column family. See [`iter_cf`](Self::iter_cf).
    ///
    /// # Errors
    /// `Closed`.
    pub fn iter(&self) -> Result<TransactionIterator<'_>> {
        self.iter_cf(&self.db.default_column_family(), &ReadOptions::default())
    }

    /// A walk over `family` as the transaction sees it: the store as it was when that began, with what it wrote. The snapshot of `options` is not
    /// asked for.
    ///
    /// What it shows is not looked for at the commit, nor what came between its keys: [`get_cf`](Self::get_cf) what must stay as it is.
    ///
    /// # Errors
    /// As [`Db::iter_cf`].
    pub fn iter_cf(&self, family: &ColumnFamily, options: &ReadOptions) -> Result<TransactionIterator<'_>> {
        let reading = ReadOptions { snapshot: self.reading.snapshot.clone(), ..options.clone() };
        let store = self.db.iter_cf(family, &reading)?;
        let written = self.touched.get(&family.id()).map(|of| &of.written);
        let bounds = (reading.lower_bound, reading.upper_bound);
        Ok(TransactionIterator::new(family.clone(), store, written, &self.batch, bounds))
    }

    /// The store as it was when the transaction began. What is read with it is not looked for when it commits, and does not have what the
    /// transaction wrote.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.reading.snapshot.as_ref()
    }

    /// Makes what was written take effect, all at once, if no other write came to any key that was read.
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
            return if options.sync { store.sync_seen() } else { Ok(()) };
        }
        store.check_writable()?;
        // The snapshot stays until it is over (T4).
        store.submit(self.request(options)?).map(drop)
    }

    /// What it writes, and the condition under which it does.
    pub(crate) fn request(&mut self, options: &WriteOptions) -> Result<Request> {
        let (store, touched) = (self.db.store(), std::mem::take(&mut self.touched));
        let begun = self.reading.snapshot.as_ref().map_or(u64::MAX, Snapshot::sequence);
        let to = store.look_for(&touched, begun)?;
        let request = store.request(std::mem::take(&mut self.batch), *options)?;
        Ok(request.under(Box::new(Looked { begun, touched, to })))
    }

    /// What the transaction made of `key`, if it did.
    fn own(&self, family: &ColumnFamily, key: &[u8]) -> Result<Option<&Own>> {
        self.db.store().own(family)?;
        Ok(self.touched.get(&family.id()).and_then(|of| of.written.get(key)))
    }

    fn touch(&mut self, family: &ColumnFamily) -> &mut Touched {
        let untouched = || Touched { family: family.clone(), read: BTreeSet::new(), written: BTreeMap::new() };
        self.touched.entry(family.id()).or_insert_with(untouched)
    }

    fn note_read(&mut self, family: &ColumnFamily, key: &[u8]) {
        let read = &mut self.touch(family).read;
        if !read.contains(key) {
            read.insert(key.into());
        }
    }

    fn note_written(&mut self, family: &ColumnFamily, key: &[u8], own: Own) {
        self.touch(family).written.insert(key.into(), own);
    }
}

/// What was read, and up to where it was looked for something newer than a transaction's beginning.
#[derive(Debug)]
struct Looked {
    begun: u64,
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
            if let Some(key) = of.read.iter().find(|key| ahead.writes(family.id, key)) {
                return Err(conflict(key, &family.name));
            }
            is_unchanged_since &= of.read.iter().all(|key| is_unchanged(family, key, *to, active));
        }
        if is_unchanged_since { Ok(()) } else { store.look_for(&self.touched, self.begun).map(drop) }
    }
}

impl Store {
    /// Looks for entries of keys that were read which are newer than `begun` (T3).
    ///
    /// # Errors
    /// `Conflict`: there is one.
    fn look_for(&self, touched: &BTreeMap<u32, Touched>, begun: u64) -> Result<Vec<(Arc<Generation>, u64)>> {
        let look = |of: &Touched| {
            let family = &of.family.0;
            // In this order: what is newer than `to` is in this memtable or a later one, or came in as a file; and the view has all up to `to`.
            let active = family.view.load().active.clone();
            let to = self.visible().get();
            let view = family.view.load();
            for key in &of.read {
                if is_newer(&view, key, begun)? {
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

/// Whether `user_key` has an entry that is newer than `begun`, or lies in a range that was deleted since.
fn is_newer(view: &View, user_key: &[u8], begun: u64) -> Result<bool> {
    if view.cover(user_key, SequenceNumber::MAX).get() > begun {
        return Ok(true);
    }
    let lookup = internal_key::lookup(user_key, SequenceNumber::MAX);
    if let Some(hit) = view.generations().find_map(|generation| generation.memtable.get(&lookup)) {
        return Ok(hit.sequence.get() > begun);
    }
    view.version.is_newer(&lookup, begun)
}
