//! Values of an ordered store that live for a time, as RocksDB's `DBWithTTL` keeps them.

use std::time::Duration;

use esker::TtlFamily;

use crate::batch::Batch;
use crate::db::Db;
use crate::error::{Failure, attempt, give, hand_out};
use crate::family::Family;
use crate::memory::{Out, Slice, Text};
use crate::options::DbOptions;
use crate::read::ReadOptions;
use crate::value::{Value, boxed};
use crate::write::write_options;

/// A column family whose values live for a time after they were written.
#[derive(Debug)]
pub struct Ttl(TtlFamily);

/// Has compactions of a family let go of values that `ttl_seconds` have passed over, and come by everywhere at least once in that time.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_options_set_family_ttl(options: &mut DbOptions, family: Text, ttl_seconds: u64) -> Failure {
    attempt(|| {
        let ttl = Duration::from_secs(ttl_seconds);
        options.change_family(family.read()?, |family| *family = std::mem::take(family).with_ttl(ttl));
        Ok(())
    })
}

/// A family as one whose values live for `ttl_seconds`, up to 2^31 - 1. Nothing in the store says so: a program does, each time. Not with a merge operator.
#[unsafe(no_mangle)]
pub extern "C" fn esker_db_with_ttl(
    db: &Db,
    family: Option<&Family>,
    ttl_seconds: u64,
    ttl: Out<Option<Box<Ttl>>>,
) -> Failure {
    hand_out(ttl, || Ok(Ttl(db.db.with_ttl(db.family(family), Duration::from_secs(ttl_seconds))?)))
}

/// Sets `key` to `value` for the family's time. `flags` as for `esker_db_put`. What removes keys from other families removes them from these.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_put(ttl: &Ttl, flags: u32, key: Slice, value: Slice) -> Failure {
    attempt(|| ttl.0.put_with(key.bytes()?, value.bytes()?, &write_options(flags)?))
}

/// The same for `ttl_seconds` in place of the family's time.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_put_for(ttl: &Ttl, flags: u32, key: Slice, value: Slice, ttl_seconds: u64) -> Failure {
    let lives = Duration::from_secs(ttl_seconds);
    attempt(|| ttl.0.put_for(key.bytes()?, value.bytes()?, lives, &write_options(flags)?))
}

/// Adds to a batch that `key` is set to `value`, for the family's time from now on.
#[unsafe(no_mangle)]
pub extern "C" fn esker_batch_put_ttl(batch: &mut Batch, ttl: &Ttl, key: Slice, value: Slice) -> Failure {
    attempt(|| ttl.0.put_in(&mut batch.0, key.bytes()?, value.bytes()?))
}

/// The value of `key`: NULL if it has none, or none any more. `Corruption` if it was written past this.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_get(
    ttl: &Ttl,
    options: Option<&ReadOptions>,
    key: Slice,
    value: Out<Option<Box<Value>>>,
) -> Failure {
    give(value, || {
        let key = key.bytes()?;
        ReadOptions::with(options, |options| Ok(boxed(ttl.0.get_with(key, options)?)))
    })
}

/// How many seconds the value of `key` still lives: -1 if it has none, or none any more.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_time_to_live(ttl: &Ttl, key: Slice, seconds: Out<i64>) -> Failure {
    give(seconds, || {
        let left = ttl.0.time_to_live(key.bytes()?)?;
        Ok(left.map_or(-1, |left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX)))
    })
}

/// What of `stored`, which an iterator or a transaction shows for `key`, is the value that was written: it lies in there. `lives` says whether its time is not over.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_value(
    ttl: &Ttl,
    key: Slice,
    stored: Slice,
    value: Out<Slice>,
    lives: Out<bool>,
) -> Failure {
    value.put_at(0, Slice::default());
    give(lives, || {
        let live = ttl.0.live_in(key.bytes()?, stored.bytes()?)?;
        value.put(live.map_or_else(Slice::default, Slice::from));
        Ok(live.is_some())
    })
}

/// Frees the handle; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_ttl_free(ttl: Option<Box<Ttl>>) {
    drop(ttl);
}
