//! The ordered store: opening and closing it, and what is done to all of it.

use esker::ColumnFamily;

use crate::error::{Failure, attempt, give, hand_out};
use crate::family::Family;
use crate::memory::{Out, Slice, Text, maybe};
use crate::options::DbOptions;
use crate::value::Value;

/// An ordered store, in RocksDB's files.
#[derive(Debug)]
pub struct Db {
    pub(crate) db: esker::Db,
    pub(crate) default: ColumnFamily,
}

impl From<esker::Db> for Db {
    fn from(db: esker::Db) -> Self {
        Self { default: db.default_column_family(), db }
    }
}

pub(crate) fn options_of(options: Option<&DbOptions>) -> esker::Options {
    options.map(|options| options.0.clone()).unwrap_or_default()
}

/// Opens the store in the directory `path`; `options` may be NULL: the defaults, which make no new store. One process at a time: `Busy`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_open(path: Text, options: Option<&DbOptions>, db: Out<Option<Box<Db>>>) -> Failure {
    hand_out(db, || Ok(esker::Db::open(path.path()?, options_of(options))?.into()))
}

/// Opens a store for reading, as it is now: nothing is written, other processes may go on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_open_read_only(
    path: Text,
    options: Option<&DbOptions>,
    db: Out<Option<Box<Db>>>,
) -> Failure {
    hand_out(db, || Ok(esker::Db::open_read_only(path.path()?, options_of(options))?.into()))
}

/// Another handle of a store that is open for reading only, as it is now; `db` shows what it did. It has families of its own; each of the two is closed by itself.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_catch_up(db: &Db, now: Out<Option<Box<Db>>>) -> Failure {
    hand_out(now, || Ok(db.db.catch_up()?.into()))
}

/// Closes a store and frees it, whatever it returns; NULL is none. What was written without a sync is synced. Calls that are left find it `Closed`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_close(db: Option<Box<Db>>) -> Failure {
    attempt(|| db.map_or(Ok(()), |db| db.db.close()))
}

/// Makes a store of what is left of a damaged one in the directory `path`: what cannot be used goes to its subdirectory `lost`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_repair(path: Text, options: Option<&DbOptions>) -> Failure {
    attempt(|| esker::Db::repair(path.path()?, options_of(options)).map(drop))
}

/// Writes memtables to tables, of one family or, with NULL, of all. Waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_flush(db: &Db, family: Option<&Family>) -> Failure {
    attempt(|| family.map_or_else(|| db.db.flush(), |family| db.db.flush_cf(&family.0)))
}

/// Makes everything written so far survive power loss.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_sync_wal(db: &Db) -> Failure {
    attempt(|| db.db.sync_wal())
}

/// Moves what a family holds between `begin` and `end` (inclusive; NULL is open) to its deepest level, without what is overwritten or
/// deleted. Waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_compact_range(
    db: &Db,
    family: Option<&Family>,
    begin: Option<&Slice>,
    end: Option<&Slice>,
) -> Failure {
    attempt(|| db.db.compact_range(db.family(family), maybe(begin)?, maybe(end)?))
}

/// Waits until no background work is due, and takes part in it.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_wait_for_compact(db: &Db) -> Failure {
    attempt(|| db.db.wait_for_compact())
}

/// Drops the tables below level 0 that lie within a range of keys (inclusive; NULL is open): the cheapest way to be rid of most of what it
/// holds. Writes their bytes to `dropped_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_delete_files_in_range(
    db: &Db,
    family: Option<&Family>,
    begin: Option<&Slice>,
    end: Option<&Slice>,
    dropped_bytes: Out<u64>,
) -> Failure {
    give(dropped_bytes, || db.db.delete_files_in_range(db.family(family), maybe(begin)?, maybe(end)?))
}

/// Gives back the garbage in blob files of a family of which at least `garbage_part`, from 0 to 1, is garbage. Waits for it. Reclaim does so by
/// itself unless `reclaim_mode` says otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_reclaim(db: &Db, family: Option<&Family>, garbage_part: f64) -> Failure {
    attempt(|| db.db.reclaim(db.family(family), garbage_part).map(drop))
}

/// Makes a store in the directory `target`, empty or missing, with everything that is written now. It shares files by hard links.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_checkpoint(db: &Db, target: Text) -> Failure {
    attempt(|| db.db.checkpoint(target.path()?).map(drop))
}

/// Makes a store in `target` that shares nothing with this one, or brings an earlier backup there up to date. All of it is read back and checked.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_backup(db: &Db, target: Text) -> Failure {
    attempt(|| db.db.backup(target.path()?, &mut |_| ()).map(drop))
}

/// A property by the name that RocksDB gives it, such as `rocksdb.estimate-num-keys`, in decimal digits; NULL for one that Esker does not have.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_property(
    db: &Db,
    family: Option<&Family>,
    name: Text,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let property = db.db.property(db.family(family), name.read()?);
        Ok(crate::value::boxed(property.map(String::into_bytes)))
    })
}
