//! The hash store.

use std::time::Duration;

use esker::{CaskBatch, CaskScan, CaskWriteOptions, Result};

use crate::error::{Failure, attempt, give, hand_out};
use crate::memory::{Out, Slice, Text, maybe};
use crate::options::HashOptions;
use crate::value::{Value, boxed};
use crate::write::{ESKER_SYNC, known};

/// A hash store: append-only files, and a directory of their keys in memory.
#[derive(Debug)]
pub struct Cask(esker::Cask);

fn options_of(options: Option<&HashOptions>) -> esker::CaskOptions {
    options.map(|options| options.0.clone()).unwrap_or_default()
}

fn write_options(flags: u32, ttl_seconds: u64) -> Result<CaskWriteOptions> {
    let sync = known(flags, ESKER_SYNC)? & ESKER_SYNC != 0;
    let ttl = (ttl_seconds > 0).then(|| Duration::from_secs(ttl_seconds));
    Ok(CaskWriteOptions { sync, ttl, ..CaskWriteOptions::default() })
}

/// Opens the store in the directory `path`; `options` may be NULL: the defaults. One process at a time: `Busy`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_open(path: Text, options: Option<&HashOptions>, cask: Out<Option<Box<Cask>>>) -> Failure {
    hand_out(cask, || Ok(Cask(esker::Cask::open(path.path()?, options_of(options))?)))
}

/// Opens a store for reading, as it is now: nothing is written.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_open_read_only(
    path: Text,
    options: Option<&HashOptions>,
    cask: Out<Option<Box<Cask>>>,
) -> Failure {
    hand_out(cask, || Ok(Cask(esker::Cask::open_read_only(path.path()?, options_of(options))?)))
}

/// Closes a store and frees it, whatever it returns; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_close(cask: Option<Box<Cask>>) -> Failure {
    attempt(|| cask.map_or(Ok(()), |cask| cask.0.close()))
}

/// Makes a store of what is left of a damaged one in the directory `path`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_repair(path: Text) -> Failure {
    attempt(|| esker::Cask::repair(path.path()?).map(drop))
}

/// The value of `key`: NULL if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_get(cask: &Cask, key: Slice, value: Out<Option<Box<Value>>>) -> Failure {
    give(value, || Ok(boxed(cask.0.get(key.bytes()?)?)))
}

/// Whether `key` has a value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_exists(cask: &Cask, key: Slice, exists: Out<bool>) -> Failure {
    give(exists, || cask.0.exists(key.bytes()?))
}

/// The length of the value of `key`; `-1` if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_value_len(cask: &Cask, key: Slice, len: Out<i64>) -> Failure {
    give(len, || {
        let found = cask.0.value_len(key.bytes()?)?;
        Ok(found.map_or(-1, |len| i64::try_from(len).unwrap_or(i64::MAX)))
    })
}

/// Sets `key` to `value`. `flags` are 0 or `ESKER_SYNC`; `ttl_seconds` is how long it lives, 0 as `default_ttl` says.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_put(cask: &Cask, flags: u32, key: Slice, value: Slice, ttl_seconds: u64) -> Failure {
    attempt(|| cask.0.put_with(key.bytes()?, value.bytes()?, &write_options(flags, ttl_seconds)?).map(drop))
}

/// Sets `key` to `value` if it has none; `was_absent` says whether it did. No other write comes in between.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_put_if_absent(
    cask: &Cask,
    flags: u32,
    key: Slice,
    value: Slice,
    ttl_seconds: u64,
    was_absent: Out<bool>,
) -> Failure {
    give(was_absent, || cask.0.put_if_absent(key.bytes()?, value.bytes()?, &write_options(flags, ttl_seconds)?))
}

/// Sets `key` to `value` (NULL removes it) if its value is `expected` (NULL: it has none); `was_set` says whether it was. No other write comes in
/// between.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_compare_and_set(
    cask: &Cask,
    flags: u32,
    key: Slice,
    expected: Option<&Slice>,
    value: Option<&Slice>,
    was_set: Out<bool>,
) -> Failure {
    give(was_set, || cask.0.compare_and_set(key.bytes()?, maybe(expected)?, maybe(value)?, &write_options(flags, 0)?))
}

/// Removes `key`; `was_there` says whether it had a value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_delete(cask: &Cask, flags: u32, key: Slice, was_there: Out<bool>) -> Failure {
    give(was_there, || cask.0.delete_with(key.bytes()?, &write_options(flags, 0)?))
}

/// Makes everything written so far survive power loss.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_sync(cask: &Cask) -> Failure {
    attempt(|| cask.0.sync())
}

/// How many keys have a value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_len(cask: &Cask) -> u64 {
    cask.0.len()
}

/// Merges all that has anything to give back. Waits for it; merges happen by themselves, too.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_compact(cask: &Cask) -> Failure {
    attempt(|| cask.0.compact())
}

/// Makes a store in the directory `target`, empty or missing, with everything that is written now. It shares files by hard links.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_checkpoint(cask: &Cask, target: Text) -> Failure {
    attempt(|| cask.0.checkpoint(target.path()?).map(drop))
}

/// Makes a store in `target` that shares nothing with this one, or brings an earlier backup there up to date. All of it is read back and checked.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_backup(cask: &Cask, target: Text) -> Failure {
    attempt(|| cask.0.backup(target.path()?, &mut |_| ()).map(drop))
}

/// Puts and deletes that take effect together or not at all.
#[derive(Debug, Default)]
pub struct HashBatch(CaskBatch);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_batch_create() -> Box<HashBatch> {
    Box::default()
}

/// Sets `key` to `value`, for `ttl_seconds`; 0 as `default_ttl` says.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_batch_put(batch: &mut HashBatch, key: Slice, value: Slice, ttl_seconds: u64) -> Failure {
    attempt(|| {
        let (key, value) = (key.bytes()?, value.bytes()?);
        match ttl_seconds {
            0 => batch.0.put(key, value),
            seconds => batch.0.put_with_ttl(key, value, Duration::from_secs(seconds)),
        }
    })
}

/// Removes `key`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_batch_delete(batch: &mut HashBatch, key: Slice) -> Failure {
    attempt(|| batch.0.delete(key.bytes()?))
}

/// Takes all operations out.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_batch_clear(batch: &mut HashBatch) {
    batch.0.clear();
}

/// Frees a batch; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_batch_free(batch: Option<Box<HashBatch>>) {
    drop(batch);
}

/// Applies a batch, which stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_write(cask: &Cask, flags: u32, batch: &HashBatch) -> Failure {
    attempt(|| cask.0.write(&batch.0, &write_options(flags, 0)?).map(drop))
}

/// A walk over everything that lived when it was made, in no order of keys. It stands before the first entry.
#[derive(Debug)]
pub struct Scan(CaskScan);

/// A walk over a store.
#[unsafe(no_mangle)]
pub extern "C" fn esker_cask_scan(cask: &Cask, scan: Out<Option<Box<Scan>>>) -> Failure {
    hand_out(scan, || Ok(Scan(cask.0.scan()?)))
}

/// Goes to the next entry; `is_there` says whether there is one. After an error, the next call goes on behind what could not be read.
#[unsafe(no_mangle)]
pub extern "C" fn esker_scan_advance(scan: &mut Scan, is_there: Out<bool>) -> Failure {
    give(is_there, || scan.0.advance())
}

/// The key where it stands, until it moves; empty if it stands on no entry.
#[unsafe(no_mangle)]
pub extern "C" fn esker_scan_key(scan: &Scan) -> Slice {
    scan.0.key().into()
}

/// The value where it stands, until it moves.
#[unsafe(no_mangle)]
pub extern "C" fn esker_scan_value(scan: &mut Scan, value: Out<Slice>) -> Failure {
    give(value, || scan.0.value().map(Slice::from))
}

/// Frees a walk; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_scan_free(scan: Option<Box<Scan>>) {
    drop(scan);
}
