//! The Raft log.

use std::ffi::c_void;
use std::ops::ControlFlow;

use esker::LogBatch;

use crate::error::{Failure, attempt, give, hand_out};
use crate::memory::{Many, Out, Slice, Text, maybe};
use crate::options::LogOptions;
use crate::value::{Value, boxed};
use crate::write::{ESKER_SYNC, known};

/// One log for any number of Raft groups: entries in order, and keys with values, for each.
#[derive(Debug)]
pub struct RaftLog(esker::RaftLog);

/// Opens the log in the directory `path`, which is created if it does not exist; `options` may be NULL: the defaults. One process at a time: `Busy`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_open(
    path: Text,
    options: Option<&LogOptions>,
    log: Out<Option<Box<RaftLog>>>,
) -> Failure {
    hand_out(log, || {
        let options = options.map(|options| options.0.clone()).unwrap_or_default();
        Ok(RaftLog(esker::RaftLog::open(path.path()?, options)?))
    })
}

/// Closes a log and frees it, whatever it returns; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_close(log: Option<Box<RaftLog>>) -> Failure {
    attempt(|| log.map_or(Ok(()), |log| log.0.close()))
}

/// What is appended together, of any groups.
#[derive(Debug, Default)]
pub struct RaftBatch(LogBatch);

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_create() -> Box<RaftBatch> {
    Box::default()
}

/// Adds `count` entries with consecutive indexes from `first_index` on. Those of the group from there on that were written before are replaced.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_add_entries(
    batch: &mut RaftBatch,
    group: u64,
    first_index: u64,
    entries: Many<Slice>,
    count: usize,
) -> Failure {
    attempt(|| {
        let entries = entries.of(count)?.iter().map(Slice::bytes).collect::<esker::Result<Vec<_>>>()?;
        batch.0.add_entries(group, first_index, entries)
    })
}

/// Gives `key` of `group` a value.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_put(batch: &mut RaftBatch, group: u64, key: Slice, value: Slice) -> Failure {
    attempt(|| batch.0.put(group, key.bytes()?, value.bytes()?))
}

/// Takes the value of `key` of `group` away.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_delete(batch: &mut RaftBatch, group: u64, key: Slice) -> Failure {
    attempt(|| {
        batch.0.delete(group, key.bytes()?);
        Ok(())
    })
}

/// Removes the entries of `group` before `index`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_compact(batch: &mut RaftBatch, group: u64, index: u64) {
    batch.0.compact(group, index);
}

/// Removes `group`, its entries and its keys.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_clean(batch: &mut RaftBatch, group: u64) {
    batch.0.clean(group);
}

/// Takes all out.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_clear(batch: &mut RaftBatch) {
    batch.0.clear();
}

/// Frees a batch; NULL is none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_batch_free(batch: Option<Box<RaftBatch>>) {
    drop(batch);
}

/// Appends a batch, which is empty afterwards, or, after `InvalidArgument`, `Exhausted` or `Closed`, as it was. `flags` are 0 or `ESKER_SYNC`.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_write(log: &RaftLog, flags: u32, batch: &mut RaftBatch) -> Failure {
    attempt(|| log.0.write(&mut batch.0, known(flags, ESKER_SYNC)? & ESKER_SYNC != 0).map(drop))
}

/// Makes everything written so far survive power loss.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_sync(log: &RaftLog) -> Failure {
    attempt(|| log.0.sync())
}

/// One entry: NULL if the group has no such.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_entry(
    log: &RaftLog,
    group: u64,
    index: u64,
    entry: Out<Option<Box<Value>>>,
) -> Failure {
    give(entry, || Ok(boxed(log.0.entry(group, index)?)))
}

/// What is shown an entry or a value: `context` is the caller's, the bytes are seen where they lie, until it returns. `false` ends the walk.
pub type Show = extern "C" fn(context: *mut c_void, index: u64, entry: Slice) -> bool;
/// The same with a key in place of an index.
pub type ShowKey = extern "C" fn(context: *mut c_void, key: Slice, value: Slice) -> bool;

fn goes_on(goes_on: bool) -> ControlFlow<()> {
    if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Shows entries `begin` up to but not including `end`, in order; `count` says how many. `NotFound`, before any, if the group does not have all of them.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_for_each_entry(
    log: &RaftLog,
    group: u64,
    begin: u64,
    end: u64,
    show: Show,
    context: *mut c_void,
    count: Out<u64>,
) -> Failure {
    give(count, || log.0.for_each_entry(group, begin, end, |index, entry| goes_on(show(context, index, entry.into()))))
}

/// Index of the first entry of a group: `false` if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_first_index(log: &RaftLog, group: u64, index: Out<u64>) -> bool {
    let first = log.0.first_index(group);
    index.put(first.unwrap_or_default());
    first.is_some()
}

/// Index of the last entry of a group: `false` if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_last_index(log: &RaftLog, group: u64, index: Out<u64>) -> bool {
    let last = log.0.last_index(group);
    index.put(last.unwrap_or_default());
    last.is_some()
}

/// The value of a key of a group: NULL if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_get(log: &RaftLog, group: u64, key: Slice, value: Out<Option<Box<Value>>>) -> Failure {
    give(value, || Ok(boxed(log.0.get(group, key.bytes()?))))
}

/// Shows the keys of a group from `from` up to but not including `to` (NULL is open), in order, with their values, as they are at one moment.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_for_each_key(
    log: &RaftLog,
    group: u64,
    from: Option<&Slice>,
    to: Option<&Slice>,
    show: ShowKey,
    context: *mut c_void,
) -> Failure {
    attempt(|| {
        let keys = log.0.keys(group, maybe(from)?, maybe(to)?);
        let mut shown = keys.iter().map(|(key, value)| show(context, (&**key).into(), (&**value).into()));
        shown.all(|goes_on| goes_on);
        Ok(())
    })
}

/// Writes the numbers of the groups, in order, the first `max` of them, to `groups`; returns how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_groups(log: &RaftLog, groups: Out<u64>, max: usize) -> usize {
    put_all(&log.0.groups(), &groups, max)
}

fn put_all(numbers: &[u64], out: &Out<u64>, max: usize) -> usize {
    numbers.iter().take(max).enumerate().for_each(|(at, number)| out.put_at(at, *number));
    numbers.len()
}

/// Removes the entries of `group` before `index`; `count` says how many those were. Their space comes back when it is purged.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_compact_to(log: &RaftLog, group: u64, index: u64, count: Out<u64>) -> Failure {
    give(count, || log.0.compact_to(group, index))
}

/// Gives up files that nobody needs, and moves old entries on if the log is longer than it should be. The groups with many, which should be
/// compacted, the first `max` of them, go to `groups`; `count` says how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_purge(log: &RaftLog, groups: Out<u64>, max: usize, count: Out<usize>) -> Failure {
    give(count, || Ok(put_all(&log.0.purge()?, &groups, max)))
}

/// Makes a log in the directory `target`, empty or missing, with all that was written so far. It shares files by hard links.
#[unsafe(no_mangle)]
pub extern "C" fn esker_raft_log_fork(log: &RaftLog, target: Text) -> Failure {
    attempt(|| log.0.fork(target.path()?).map(drop))
}
