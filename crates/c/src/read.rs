//! Reading from an ordered store, key by key.

use esker::{Result, Snapshot};

use crate::db::Db;
use crate::error::{Error, Failure, attempt, give};
use crate::family::Family;
use crate::memory::{Many, Out, Slice, maybe};
use crate::value::{Value, boxed};

/// The store as it was at one moment, in all column families.
#[derive(Debug)]
pub struct SnapshotHandle(Snapshot);

/// Keeps the store as it is now, for reads with `esker_read_options_set_snapshot`. What is overwritten keeps its space until it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_snapshot(db: &Db) -> Box<SnapshotHandle> {
    Box::new(SnapshotHandle(db.db.snapshot()))
}

/// Frees a snapshot; NULL is none. Options that have it keep it until they are freed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_snapshot_free(snapshot: Option<Box<SnapshotHandle>>) {
    drop(snapshot);
}

/// How something is read. Where a call takes them, NULL are the defaults.
#[derive(Debug, Default)]
pub struct ReadOptions(pub(crate) esker::ReadOptions);

impl ReadOptions {
    /// Shows them to `read`.
    pub(crate) fn with<T>(options: Option<&Self>, read: impl FnOnce(&esker::ReadOptions) -> T) -> T {
        match options {
            Some(options) => read(&options.0),
            None => read(&esker::ReadOptions::default()),
        }
    }
}

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_create() -> Box<ReadOptions> {
    Box::default()
}

/// Reads what was there at a moment; NULL is now.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_set_snapshot(options: &mut ReadOptions, snapshot: Option<&SnapshotHandle>) {
    options.0.snapshot = snapshot.map(|snapshot| snapshot.0.clone());
}

/// Whether blocks that had to be read stay in the cache. Default `true`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_set_fill_cache(options: &mut ReadOptions, fill_cache: bool) {
    options.0.fill_cache = fill_cache;
}

/// Iterators begin at `lower` and end before `upper`; NULL is open.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_set_bounds(
    options: &mut ReadOptions,
    lower: Option<&Slice>,
    upper: Option<&Slice>,
) -> Failure {
    attempt(|| {
        let (lower, upper) = (maybe(lower)?, maybe(upper)?);
        (options.0.lower_bound, options.0.upper_bound) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
        Ok(())
    })
}

/// Iterators show only keys that begin with `prefix`, within the bounds. They fail in a family whose keys do not lie by their bytes.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_set_prefix(options: &mut ReadOptions, prefix: Slice) -> Failure {
    attempt(|| {
        options.0 = std::mem::take(&mut options.0).with_prefix(prefix.bytes()?);
        Ok(())
    })
}

/// How much of separated values an iterator reads before it is asked for them, in bytes. Default 1 MiB; 0 reads nothing ahead.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_set_look_ahead_bytes(options: &mut ReadOptions, look_ahead_bytes: u64) {
    options.0.look_ahead_bytes = look_ahead_bytes;
}

/// Frees options; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_read_options_free(options: Option<Box<ReadOptions>>) {
    drop(options);
}

/// The value of `key`: NULL if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_get(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: Slice,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let key = key.bytes()?;
        ReadOptions::with(options, |options| Ok(boxed(db.db.get_cf(db.family(family), key, options)?)))
    })
}

/// `len` bytes of the value of `key` from `offset` on, as far as there are any: NULL if it has no value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_get_range(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: Slice,
    offset: u64,
    len: u64,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let (key, range) = (key.bytes()?, offset..offset.saturating_add(len));
        ReadOptions::with(options, |options| Ok(boxed(db.db.get_range_cf(db.family(family), key, range, options)?)))
    })
}

/// Whether `key` has a value. Never reads a separated one.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_exists(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: Slice,
    exists: Out<bool>,
) -> Failure {
    give(exists, || {
        let key = key.bytes()?;
        ReadOptions::with(options, |options| db.db.exists_cf(db.family(family), key, options))
    })
}

/// The length of the value of `key`; `-1` if it has none. Never reads a separated one that is not packed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_value_len(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    key: Slice,
    len: Out<i64>,
) -> Failure {
    give(len, || {
        let key = key.bytes()?;
        let found = ReadOptions::with(options, |options| db.db.value_len_cf(db.family(family), key, options))?;
        Ok(found.map_or(-1, |len| i64::try_from(len).unwrap_or(i64::MAX)))
    })
}

/// The values of `count` keys, all of one moment: `values` has room for as many, and `errors`, too, unless it is NULL. Of each key either the error
/// is set, or the value, or, if it has none, neither. If `errors` is NULL, the first error of a key is the call's, and there are no values.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_multi_get(
    db: &Db,
    options: Option<&ReadOptions>,
    family: Option<&Family>,
    keys: Many<Slice>,
    count: usize,
    values: Out<Option<Box<Value>>>,
    errors: Out<Failure>,
) -> Failure {
    let read = || -> Result<Vec<Result<Option<Box<Value>>>>> {
        let keys = keys.of(count)?.iter().map(Slice::bytes).collect::<Result<Vec<_>>>()?;
        let found = ReadOptions::with(options, |options| db.db.multi_get_cf(db.family(family), keys, options))?;
        let found = found.into_iter().map(|found| found.map(boxed));
        if errors.is_null() {
            // The first of them ends it.
            let values = found.collect::<Result<Vec<_>>>()?;
            return Ok(values.into_iter().map(Ok).collect());
        }
        Ok(found.collect())
    };
    let (found, failure) = match read() {
        Ok(found) => (found, None),
        Err(error) => ((0..count).map(|_| Ok(None)).collect(), Some(Box::new(Error::from(error)))),
    };
    for (at, found) in found.into_iter().enumerate() {
        let (value, error) = found.map_or_else(|error| (None, Some(Box::new(error.into()))), |value| (value, None));
        values.put_at(at, value);
        if !errors.is_null() {
            errors.put_at(at, error);
        }
    }
    failure
}
