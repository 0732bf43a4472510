//! Writing to an ordered store.

use esker::{Error, Result, WriteOptions};

use crate::batch::Batch;
use crate::db::Db;
use crate::error::{Failure, attempt, give};
use crate::family::Family;
use crate::memory::{Out, Slice};

/// Of a write: it survives power loss once the call returns, not only the death of the process. Costs a sync, shared by all who write at the time.
pub const ESKER_SYNC: u32 = 1;
/// Of a write to an ordered store: it survives nothing until a flush. Not with `ESKER_SYNC`.
pub const ESKER_DISABLE_WAL: u32 = 2;

/// What a call's flags say, of those that it knows.
pub(crate) fn known(flags: u32, all: u32) -> Result<u32> {
    if flags & !all == 0 {
        return Ok(flags);
    }
    Err(Error::invalid_argument(format!("flags are {flags:#x}, of which this call knows {all:#x}")))
}

pub(crate) fn write_options(flags: u32) -> Result<WriteOptions> {
    let flags = known(flags, ESKER_SYNC | ESKER_DISABLE_WAL)?;
    Ok(WriteOptions { sync: flags & ESKER_SYNC != 0, disable_wal: flags & ESKER_DISABLE_WAL != 0 })
}

/// Sets `key` to `value`. `flags` are 0, or `ESKER_SYNC` or `ESKER_DISABLE_WAL`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_put(db: &Db, flags: u32, family: Option<&Family>, key: Slice, value: Slice) -> Failure {
    attempt(|| db.db.put_cf(db.family(family), key.bytes()?, value.bytes()?, &write_options(flags)?))
}

/// Removes `key`; it need not be there.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_delete(db: &Db, flags: u32, family: Option<&Family>, key: Slice) -> Failure {
    attempt(|| db.db.delete_cf(db.family(family), key.bytes()?, &write_options(flags)?))
}

/// Removes `key`, which was put at most once since it was last removed, and not merged: a deletion that goes with the put that it cancels, as soon as
/// they meet (as RocksDB's `SingleDelete`). Any other key may show an older value again.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_single_delete(db: &Db, flags: u32, family: Option<&Family>, key: Slice) -> Failure {
    attempt(|| db.db.single_delete_cf(db.family(family), key.bytes()?, &write_options(flags)?))
}

/// Removes all keys from `begin` on and before `end` that are there, however many, by one write; nothing if the two are equal. `InvalidArgument`:
/// `begin` comes after `end`. Snapshots that were made before keep the keys; their space comes back with compaction.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_delete_range(
    db: &Db,
    flags: u32,
    family: Option<&Family>,
    begin: Slice,
    end: Slice,
) -> Failure {
    attempt(|| db.db.delete_range_cf(db.family(family), begin.bytes()?, end.bytes()?, &write_options(flags)?))
}

/// Merges `operand` into the value of `key`, by the family's merge operator, whether it has a value or not: a change by what is there that reads
/// nothing.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_merge(db: &Db, flags: u32, family: Option<&Family>, key: Slice, operand: Slice) -> Failure {
    attempt(|| db.db.merge_cf(db.family(family), key.bytes()?, operand.bytes()?, &write_options(flags)?))
}

/// Applies a batch, which stays as it is. Cost: a copy of it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_write(db: &Db, flags: u32, batch: &Batch) -> Failure {
    attempt(|| db.db.write(batch.0.clone(), &write_options(flags)?))
}

/// Sets `key` to `value` if it has none; `was_absent` says whether it did. No other write comes in between.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_put_if_absent(
    db: &Db,
    flags: u32,
    family: Option<&Family>,
    key: Slice,
    value: Slice,
    was_absent: Out<bool>,
) -> Failure {
    give(was_absent, || db.db.put_if_absent(db.family(family), key.bytes()?, value.bytes()?, &write_options(flags)?))
}

/// Sets `key` to `value` if it has the value `expected`; `was_set` says whether it did. No other write comes in between.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_compare_and_set(
    db: &Db,
    flags: u32,
    family: Option<&Family>,
    key: Slice,
    expected: Slice,
    value: Slice,
    was_set: Out<bool>,
) -> Failure {
    give(was_set, || {
        let (key, expected, value) = (key.bytes()?, expected.bytes()?, value.bytes()?);
        db.db.compare_and_set(db.family(family), key, expected, value, &write_options(flags)?)
    })
}

/// Removes `key` if it has the value `expected`; `was_deleted` says whether it did. No other write comes in between.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_compare_and_delete(
    db: &Db,
    flags: u32,
    family: Option<&Family>,
    key: Slice,
    expected: Slice,
    was_deleted: Out<bool>,
) -> Failure {
    give(was_deleted, || {
        db.db.compare_and_delete(db.family(family), key.bytes()?, expected.bytes()?, &write_options(flags)?)
    })
}
