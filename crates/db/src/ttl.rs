//! Values that live for a time, in RocksDB's format (`DBWithTTL`): each carries when it was written.
//!
//! A layer above the store: that knows nothing of it, but for a filter that lets go of what has expired when a compaction comes by. Nobody sees such a
//! value any more through this layer, whether it is still there or not.
//!
//! - TT1: a value is there until more than the time to live has passed since its time, in whole seconds, as RocksDB reckons. What lives for another
//!   time than its family's was written so much earlier or later, as far as its time tells.
//! - TT2: what carries no time is damage, never a value, as far as its bytes tell: four letters are a time, too.
//!
//! Cost: four bytes a value, a look at the clock for each call. `exists` and a walk read values, which they do not of other families; so does a
//! compaction, of values in blob files.

use std::fmt;
use std::time::Duration;

use esker_format::rocksdb::ttl;

use crate::batch::WriteBatch;
use crate::compaction::{CompactionFilter, FilterDecision};
use crate::db::Db;
use crate::entry::Key;
use crate::family::ColumnFamily;
use crate::iterate::DbIterator;
use crate::options::{FamilyOptions, PERIOD_SECONDS_MAX, PERIOD_SECONDS_MIN, ReadOptions, WriteOptions};
use crate::pinned::PinnedSlice;
use crate::update::Change;
use crate::{Error, ErrorKind, Result};

/// The longest time to live in seconds: RocksDB's is an `int32`. 68 years.
const TTL_SECONDS_MAX: u64 = i32::MAX as u64;

/// A column family whose values live for a time; made by [`Db::with_ttl`]. The family's other uses go on beside it: deletions, snapshots, all that does not
/// look at values. Whoever reads or writes values past this has to mind the four bytes behind them: [`stamp`](Self::stamp) and
/// [`live`](Self::live) are for that, in transactions for example.
///
/// ```
/// # fn main() -> esker_db::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("esker-ttl-{}", std::process::id()));
/// use std::time::Duration;
///
/// use esker_db::{Db, FamilyOptions, Options, WriteOptions};
///
/// let hour = Duration::from_secs(60 * 60);
/// // Compactions let go of what has expired, and come by at least once an hour.
/// let families = [("default".to_owned(), FamilyOptions::default().with_ttl(hour))].into();
/// let db = Db::open(&dir, Options { create_if_missing: true, families, ..Options::default() })?;
/// let sessions = db.with_ttl(&db.default_column_family(), hour)?;
/// sessions.put("ann", "token")?;
/// sessions.put_for("bob", "token", Duration::from_secs(60), &WriteOptions::default())?;
/// assert_eq!(sessions.get("ann")?.as_deref(), Some(&b"token"[..]));
/// assert!(sessions.time_to_live("bob")?.is_some_and(|left| left <= Duration::from_secs(60)));
/// assert!(!sessions.put_if_absent("ann", "other", &WriteOptions::default())?);
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TtlFamily {
    db: Db,
    family: ColumnFamily,
    ttl_seconds: u64,
}

impl fmt::Debug for TtlFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlFamily")
            .field("family", &self.family.name())
            .field("ttl_seconds", &self.ttl_seconds)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// `family`, whose values live for `ttl` after they were written: whole seconds, rounded up, and up to one more. RocksDB's `DBWithTTL` and
    /// `ldb --ttl` write such values and read them, but show them until a compaction has come by.
    ///
    /// Nothing in the store says that the family is one of these, nor how long its values live: the program does, each time, and may choose another time
    /// then. What has expired takes its space until a compaction comes by that lets go of it: [`FamilyOptions::with_ttl`].
    ///
    /// # Errors
    /// `InvalidArgument`: `ttl` is zero or longer than 2^31 - 1 seconds; the family has a merge operator, whose operands carry no time; or it is one
    /// of another store, or of an earlier open.
    pub fn with_ttl(&self, family: &ColumnFamily, ttl: Duration) -> Result<TtlFamily> {
        let ttl_seconds = whole_seconds(ttl)?;
        if self.store().own(family)?.merge_operator.is_some() {
            let reason = format!(
                "column family {:?} has a merge operator, and operands carry no time: values with a time to live need a family without",
                family.name()
            );
            return Err(Error::invalid_argument(reason));
        }
        Ok(TtlFamily { db: self.clone(), family: family.clone(), ttl_seconds })
    }
}

impl FamilyOptions {
    /// The same, with compactions that let go of values that have expired ([`CompactionFilter::expired`], in place of a filter that was there), and that come by everywhere
    /// at least once in `ttl`, if [`periodic_compaction_seconds`](Self::periodic_compaction_seconds) is 0; in a minute, if that is longer. For [`Db::with_ttl`].
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        if self.periodic_compaction_seconds == 0 {
            self.periodic_compaction_seconds = ttl.as_secs().clamp(PERIOD_SECONDS_MIN, PERIOD_SECONDS_MAX);
        }
        Self { compaction_filter: Some(CompactionFilter::expired(ttl)), ..self }
    }
}

impl CompactionFilter {
    /// Lets go of values that have expired, as [`TtlFamily`] writes them for a time to live of `ttl`. What carries no time stays. Refused beside a merge operator: what operands
    /// become carries none, and four letters of it may pass for one that is long past.
    pub fn expired(ttl: Duration) -> Self {
        // What cannot be asked for does not expire.
        let ttl_seconds = whole_seconds(ttl).unwrap_or(TTL_SECONDS_MAX);
        Self::new(move |candidate| {
            let time = candidate.value().ok().and_then(|value| ttl::split(value).ok());
            if time.is_some_and(|(_, time)| is_expired(time, ttl_seconds, candidate.unix_seconds())) {
                FilterDecision::Remove
            } else {
                FilterDecision::Keep
            }
        })
        .against_merges()
    }
}

impl TtlFamily {
    /// Sets `key` to `value`, for the family's time to live. See [`put_for`](Self::put_for).
    ///
    /// # Errors
    /// As [`put_for`](Self::put_for).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, &WriteOptions::default())
    }

    /// Sets `key` to `value`, for the family's time to live.
    ///
    /// # Errors
    /// As [`put_for`](Self::put_for).
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.db.put_cf(&self.family, key, self.stamp(value)?, options)
    }

    /// Sets `key` to `value`, for `ttl` in place of the family's time to live: what is read with another one than that later lives so much longer or shorter.
    /// Cost: a copy of the value, beside that of a put.
    ///
    /// # Errors
    /// As [`Db::put_cf`], and [`stamp_for`](Self::stamp_for).
    pub fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
        options: &WriteOptions,
    ) -> Result<()> {
        self.db.put_cf(&self.family, key, self.stamp_for(value, ttl)?, options)
    }

    /// Adds to `batch` that `key` is set to `value`, for the family's time to live from now on.
    ///
    /// # Errors
    /// As [`WriteBatch::put_cf`], and [`stamp_for`](Self::stamp_for).
    pub fn put_in(&self, batch: &mut WriteBatch, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        batch.put_cf(&self.family, key, self.stamp(value)?)
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Db::delete_cf`].
    pub fn delete(&self, key: impl AsRef<[u8]>, options: &WriteOptions) -> Result<()> {
        self.db.delete_cf(&self.family, key, options)
    }

    /// The value of `key`, unless it has expired.
    ///
    /// # Errors
    /// As [`get_with`](Self::get_with).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedSlice>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// The value of `key`, unless it has expired by now, whatever the snapshot.
    ///
    /// # Errors
    /// As [`Db::get_cf`]; `Corruption`, if the value carries no time: it was written past this.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<PinnedSlice>> {
        let key = key.as_ref();
        self.live(key, self.db.get_cf(&self.family, key, options)?)
    }

    /// The values of `keys`, in their order, as [`Db::multi_get_cf`] and [`get`](Self::get).
    ///
    /// # Errors
    /// Of a key that cannot be read, its own, in its place; as [`Db::multi_get_cf`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Result<Option<PinnedSlice>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let stored = self.db.multi_get_cf(&self.family, keys.iter().map(AsRef::as_ref), &ReadOptions::default())?;
        Ok(keys.iter().zip(stored).map(|(key, value)| self.live(key.as_ref(), value?)).collect())
    }

    /// Whether `key` has a value that has not expired. Reads it.
    ///
    /// # Errors
    /// As [`get_with`](Self::get_with).
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(key).map(|value| value.is_some())
    }

    /// How long the value of `key` still lives, in whole seconds; `None` if there is none, or none any more. Reads it.
    ///
    /// # Errors
    /// As [`get_with`](Self::get_with).
    pub fn time_to_live(&self, key: impl AsRef<[u8]>) -> Result<Option<Duration>> {
        let key = key.as_ref();
        let Some(stored) = self.db.get_cf(&self.family, key, &ReadOptions::default())? else { return Ok(None) };
        let (ends, now) = (split(key, &stored)?.1 + self.ttl_seconds, self.now());
        Ok(ends.checked_sub(now).map(Duration::from_secs))
    }

    /// Sets `key` to `value` for the family's time to live, if it has none, or none any more; whether it did. Nobody comes in between.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn put_if_absent(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<bool> {
        let before = self.update(key, options, |had| match had {
            None => Change::Put(value.as_ref().to_vec()),
            Some(_) => Change::Keep,
        })?;
        Ok(before.is_none())
    }

    /// Changes the value of `key` as `decide` says of the one that it has, `None` if that has expired, and returns that; what is put lives for the family's time to live.
    /// As [`Db::update`].
    ///
    /// # Errors
    /// As [`Db::update`], [`get_with`](Self::get_with) and [`stamp_for`](Self::stamp_for): nothing changed.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        options: &WriteOptions,
        mut decide: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<Option<PinnedSlice>> {
        let (key, now) = (key.as_ref(), self.now());
        let mut refused = None;
        let before = self.db.update(&self.family, key, options, |stored| {
            let had = stored.map(|stored| split(key, stored)).transpose();
            let changed = had.and_then(|had| {
                let had = had.filter(|(_, time)| !is_expired(*time, self.ttl_seconds, now));
                match decide(had.map(|(value, _)| value)) {
                    Change::Put(value) => stamped(value, now).map(Change::Put),
                    other => Ok(other),
                }
            });
            refused = None;
            changed.unwrap_or_else(|error| {
                refused = Some(error);
                Change::Keep
            })
        })?;
        match refused {
            Some(error) => Err(error),
            None => self.live_at(key, before, now),
        }
    }

    /// A walk over what has not expired when it begins: as [`Db::iter_cf`], but values are read on the way.
    ///
    /// # Errors
    /// As [`Db::iter_cf`].
    pub fn iter(&self, options: &ReadOptions) -> Result<TtlIterator> {
        let walk = self.db.iter_cf(&self.family, options)?;
        Ok(TtlIterator { walk, value: None, ttl_seconds: self.ttl_seconds, now: self.now() })
    }

    /// `value` as the store has it, for the family's time to live from now on: for batches and transactions.
    ///
    /// # Errors
    /// As [`stamp_for`](Self::stamp_for).
    pub fn stamp(&self, value: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        stamped(with_room(value.as_ref()), self.now())
    }

    /// The same, for `ttl` from now on.
    ///
    /// # Errors
    /// `InvalidArgument`: `ttl` as [`Db::with_ttl`]; or the clock shows, and `ttl` is so much shorter or longer than the family's, that the value would have been written
    /// before May 2013 or after January 2038, for which the format has no place.
    pub fn stamp_for(&self, value: impl AsRef<[u8]>, ttl: Duration) -> Result<Vec<u8>> {
        let time = (self.now() + whole_seconds(ttl)?).saturating_sub(self.ttl_seconds);
        stamped(with_room(value.as_ref()), time)
    }

    /// What the store has for `key` as a value, unless it has expired: for what transactions and others read.
    ///
    /// # Errors
    /// `Corruption`: it carries no time.
    pub fn live(&self, key: impl AsRef<[u8]>, stored: Option<PinnedSlice>) -> Result<Option<PinnedSlice>> {
        self.live_at(key.as_ref(), stored, self.now())
    }

    /// The same in bytes that are seen, such as an iterator's.
    ///
    /// # Errors
    /// `Corruption`: it carries no time.
    pub fn live_in<'a>(&self, key: impl AsRef<[u8]>, stored: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let (value, time) = split(key.as_ref(), stored)?;
        Ok((!is_expired(time, self.ttl_seconds, self.now())).then_some(value))
    }

    fn live_at(&self, key: &[u8], stored: Option<PinnedSlice>, now: u64) -> Result<Option<PinnedSlice>> {
        stored.map_or(Ok(None), |stored| live(key, stored, self.ttl_seconds, now))
    }

    fn now(&self) -> u64 {
        self.db.store().env.clock.unix_seconds()
    }
}

/// A walk over values that live for a time, past those that have expired: made by [`TtlFamily::iter`].
///
/// It stands on no entry until a seek.
#[derive(Debug)]
pub struct TtlIterator {
    walk: DbIterator,
    /// Of the entry it stands on.
    value: Option<PinnedSlice>,
    ttl_seconds: u64,
    now: u64,
}

impl TtlIterator {
    /// Whether it stands on an entry.
    pub fn valid(&self) -> bool {
        self.value.is_some()
    }

    /// The key it stands on; empty unless valid.
    pub fn key(&self) -> &[u8] {
        if self.valid() { self.walk.key() } else { &[] }
    }

    /// The value it stands on; empty unless valid.
    pub fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// As [`DbIterator::seek_to_first`]; `Corruption`, if a value carries no time. It is on no entry then.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.go(DbIterator::seek_to_first, DbIterator::next)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.go(DbIterator::seek_to_last, DbIterator::prev)
    }

    /// Goes to the first entry that is not before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|walk| walk.seek(key), DbIterator::next)
    }

    /// Goes to the last entry that is not after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|walk| walk.seek_for_prev(key), DbIterator::prev)
    }

    /// Goes to the next entry.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "a cursor that borrows out of itself cannot be an Iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.go(DbIterator::next, DbIterator::next)
    }

    /// Goes to the entry before.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        self.go(DbIterator::prev, DbIterator::prev)
    }

    /// Makes a step, and more of them while there is nothing but what has expired.
    fn go(
        &mut self,
        first: impl FnOnce(&mut DbIterator) -> Result<()>,
        step: fn(&mut DbIterator) -> Result<()>,
    ) -> Result<()> {
        self.value = None;
        first(&mut self.walk)?;
        while self.walk.valid() {
            self.value = live(self.walk.key(), self.walk.value()?, self.ttl_seconds, self.now)?;
            if self.value.is_some() {
                break;
            }
            step(&mut self.walk)?;
        }
        Ok(())
    }
}

fn is_expired(time: u64, ttl_seconds: u64, now: u64) -> bool {
    time.saturating_add(ttl_seconds) < now
}

/// What the store has for `key` is a value and when that was written.
fn split<'a>(key: &[u8], stored: &'a [u8]) -> Result<(&'a [u8], u64)> {
    ttl::split(stored).map_err(|error| {
        let reason = format!("the value of key {} does not say when it was written: {error}", Key(key));
        Error::new(ErrorKind::Corruption, reason)
    })
}

/// `stored` without its time, unless it has expired.
fn live(key: &[u8], stored: PinnedSlice, ttl_seconds: u64, now: u64) -> Result<Option<PinnedSlice>> {
    let (value, time) = split(key, &stored)?;
    let end = value.len() as u64;
    Ok((!is_expired(time, ttl_seconds, now)).then(|| stored.within(0..end)))
}

fn with_room(value: &[u8]) -> Vec<u8> {
    let mut stamped = Vec::with_capacity(value.len().saturating_add(ttl::TIME_BYTES));
    stamped.extend_from_slice(value);
    stamped
}

fn stamped(mut value: Vec<u8>, time: u64) -> Result<Vec<u8>> {
    if ttl::put_time(&mut value, time) {
        return Ok(value);
    }
    let reason = format!(
        "a value that was written {time} seconds after 1970 cannot be stored with its time, but from May 2013 to January 2038; see to the clock, and \
         to the time to live"
    );
    Err(Error::invalid_argument(reason))
}

/// Rounded up.
fn whole_seconds(ttl: Duration) -> Result<u64> {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    if (1..=TTL_SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    Err(Error::invalid_argument(format!("a time to live is 1 to {TTL_SECONDS_MAX} seconds, not {ttl:?}")))
}

#[cfg(test)]
mod tests;
