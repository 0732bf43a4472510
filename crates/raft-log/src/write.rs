//! Writing: batch → group commit → file → index → acknowledge.
//!
//! - W1: a group of batches is one append and at most one sync, in the order in which its members joined. The next group is written when the
//!   sync is over, while the index is told of this one, or without a sync, after that; a group counts once all before it do.
//! - W2: a batch is checked against the index as its predecessors will leave it, before anything is written: one with a
//!   gap is refused, and its neighbours are not.
//! - W3: the leader changes the index, if it synced after it gave up the lead, and in the order of the file: what is read is what replaying
//!   the file would give; of a group all that one batch says at once. Until then [`Lead::planned`] knows what the index will say, and the file is not left.
//! - W4: a failed append leaves the file as it was; a failed sync ends all writing (see [`Tail`]). What there is no room for is refused, and its
//!   neighbours are not.
//!   What frees has room of its own then ([`Reserve`](esker_log::reserve::Reserve)).
//! - W5: a group of batches begins with a header, which is never zero: a process that dies while it copies leaves
//!   zeroes there, the end of the log.
//!
//! Cost: entries are checksummed and compressed by their own thread. The leader copies each batch into the file once.

use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_env::Clock;
use esker_format::raft::file_name::FileId;
use esker_log::commit::{Flight, Terms};
use esker_log::publish::Published;

use crate::batch::{Encoded, LogBatch, damaged};
use crate::group::groups::GroupMap;
use crate::group::{Change, Place, Span};
use crate::queue::{Queue, Sync, Tail};
use crate::raft_log::RaftLog;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// A group is closed when its batches have so many bytes; one batch may have more.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// A batch in line.
pub(crate) type Request = Arc<Member>;

/// A member of a group.
#[derive(Debug)]
pub(crate) struct Member {
    /// `None` if only a sync is wanted.
    batch: Option<Encoded>,
    sync: bool,
    /// Whether whoever waits for it wants to know what took how long.
    timed: bool,
    times: OnceLock<WriteTimes>,
    refused: OnceLock<Error>,
}

impl Member {
    fn new(batch: Option<Encoded>, sync: bool, timed: bool) -> Self {
        Self { batch, sync, timed, times: OnceLock::new(), refused: OnceLock::new() }
    }
}

/// What a write took, part by part. But for encoding and waiting, that of the whole group that it was written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriteTimes {
    /// Encoding and compressing, on the caller's thread.
    pub encode: Duration,
    /// Until its group was written, and afterwards until the caller woke up.
    pub wait: Duration,
    /// Beginning another file.
    pub rotate: Duration,
    /// Writing to the file, with the check that went before.
    pub append: Duration,
    /// Syncing the file.
    pub sync: Duration,
    /// Changing the index.
    pub apply: Duration,
}

/// Measures one part after the other; nothing if nobody wants to know.
struct Laps<'a> {
    clock: Option<&'a dyn Clock>,
    last: Duration,
}

impl<'a> Laps<'a> {
    fn begin(clock: &'a dyn Clock, timed: bool) -> Self {
        let clock = timed.then_some(clock);
        Self { clock, last: clock.map_or(Duration::ZERO, Clock::monotonic) }
    }

    /// The time since the last.
    fn lap(&mut self) -> Duration {
        let now = self.clock.map_or(Duration::ZERO, Clock::monotonic);
        now.saturating_sub(std::mem::replace(&mut self.last, now))
    }
}

/// What only the leader touches.
#[derive(Debug)]
pub(crate) struct Lead {
    /// `None` once the log is closed.
    pub(crate) tail: Option<Tail>,
    plan: Plan,
}

/// What the index will be told of what was written.
#[derive(Debug, Default)]
struct Plan {
    /// How many groups were written: the number of the last, of those that [`Store::applied`] counts.
    written: u64,
    /// Where groups will stand after the batches that were checked so far (W2).
    planned: GroupMap<Planned>,
    /// What `planned` said before the group being written.
    undo: Vec<(u64, Option<Planned>)>,
}

/// Where a group will stand once the batches of the numbered group of writers are in the index.
#[derive(Debug, Clone, Copy)]
struct Planned {
    span: Span,
    group: u64,
}

/// More than these are not kept for the next group of writers, if the index has caught up with them.
const PLANNED_MAX: usize = 4096;

impl Lead {
    pub(crate) fn new(tail: Tail) -> Self {
        Self { tail: Some(tail), plan: Plan::default() }
    }
}

impl Plan {
    /// Lets go of what the index says too.
    fn forget_applied(&mut self, applied: u64) {
        if applied == self.written && self.planned.capacity() > 2 * PLANNED_MAX {
            // Clearing it would cost each batch what one of very many groups took.
            self.planned = GroupMap::default();
        } else if applied == self.written {
            self.planned.clear();
        } else if self.planned.len() > PLANNED_MAX {
            self.planned.retain(|_, planned| planned.group > applied);
        }
    }

    /// Takes back what was planned since there were `kept` of them to undo.
    fn take_back(&mut self, kept: usize) {
        for (group, before) in self.undo.drain(kept..).rev() {
            match before {
                Some(planned) => self.planned.insert(group, planned),
                None => self.planned.remove(&group),
            };
        }
    }
}

/// A group of batches that was written.
#[derive(Debug)]
pub(crate) struct Written {
    /// Its number.
    number: u64,
    file: FileId,
    /// Where its first batch begins.
    offset: u64,
    /// What is to be done before it counts.
    sync: Option<Sync>,
    times: WriteTimes,
}

/// Whoever does not come to show what it did to the index keeps those behind it from it.
struct Showing<'a> {
    applied: &'a Published,
    shown: bool,
}

impl Drop for Showing<'_> {
    fn drop(&mut self) {
        if !self.shown {
            self.applied.break_off();
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the log was closed")
}

impl Store {
    /// Joins the line with `member` and returns when it was written.
    fn submit(&self, member: Request) -> Result<()> {
        let terms = Terms {
            weigh: |member: &Request| member.batch.as_ref().map_or(0, |batch| batch.len() as usize),
            is_patient: |member: &Request| member.sync,
            group_bytes_max: GROUP_BYTES_MAX,
        };
        let write = |lead: &mut Lead, members: &[Request]| {
            let done = self.write_group(lead, members);
            if let Err(error) = &done {
                lead.plan.take_back(0);
                self.write_ended(error);
            }
            lead.plan.undo.clear();
            done
        };
        let flies = |written: &Written| written.sync.is_some();
        self.commit.submit_and_finish(member, &terms, write, flies, |written, members, flight| {
            self.finish_group(written, members, flight)
        })
    }

    /// Remembers why nothing can be written any more, if `error` says so.
    fn write_ended(&self, error: &Error) {
        if error.kind() == ErrorKind::ReadOnly {
            self.write_error.lock().get_or_insert_with(|| error.clone());
        }
    }

    /// Makes everything appended before survive power loss.
    pub(crate) fn sync_appended(&self) -> Result<()> {
        self.submit(Arc::new(Member::new(None, true, false)))
    }

    /// Waits until everything written is in the index: a file is left only after that.
    pub(crate) fn catch_up(&self, lead: &Lead) -> Result<()> {
        self.wait_for(&lead.plan)
    }

    fn wait_for(&self, plan: &Plan) -> Result<()> {
        self.wait_for_number(plan.written)
    }

    fn wait_for_number(&self, number: u64) -> Result<()> {
        self.applied.wait_for(number).map_err(|error| self.write_error.lock().clone().unwrap_or(error))
    }

    /// Writes the group, all but the sync that it may want.
    fn write_group(&self, lead: &mut Lead, members: &[Request]) -> Result<Written> {
        let mut laps = Laps::begin(&*self.env.clock, members.iter().any(|member| member.timed));
        let mut times = WriteTimes::default();
        let Lead { tail, plan } = lead;
        let tail = tail.as_mut().ok_or_else(closed)?;
        let offset = self.write_to(tail, plan, members, &mut laps, &mut times)?;
        let sync = if members.iter().any(|member| member.sync) { tail.begin_sync() } else { None };
        plan.written += 1;
        Ok(Written { number: plan.written, file: tail.file.id, offset, sync, times })
    }

    fn write_to(
        &self,
        tail: &mut Tail,
        plan: &mut Plan,
        members: &[Request],
        laps: &mut Laps<'_>,
        times: &mut WriteTimes,
    ) -> Result<u64> {
        tail.check()?;
        plan.forget_applied(self.applied.get());
        if !self.reserve.is_whole() {
            self.refuse_what_adds(tail, members)?;
        }
        let batches: Vec<&Encoded> = members.iter().filter_map(|member| self.accepted(plan, member)).collect();
        times.append = laps.lap();
        if batches.is_empty() {
            return Ok(0);
        }
        let mut ready = Ok(());
        if self.append.is_full(tail) {
            ready = self.wait_for(plan).and_then(|()| self.with_room(|| self.append.rotate(tail, None)));
            times.rotate = laps.lap();
        }
        let written =
            ready.and_then(|()| self.with_room(|| self.append.append(tail, &batches, || self.wait_for(plan))));
        let offset = match written {
            Ok(offset) => {
                self.counters.wrote(batches.len() as u64, batches.iter().map(|batch| batch.len()).sum());
                offset
            }
            Err(error) if error.kind() == ErrorKind::Exhausted => self.write_each(tail, plan, members, &error)?,
            Err(error) => return Err(error),
        };
        times.append += laps.lap();
        Ok(offset)
    }

    /// The batch of `member`, if it may be written behind those that were accepted before.
    fn accepted<'a>(&self, plan: &mut Plan, member: &'a Member) -> Option<&'a Encoded> {
        let batch = member.batch.as_ref().filter(|_| member.refused.get().is_none())?;
        let kept = plan.undo.len();
        match self.check(plan, batch) {
            Ok(()) => Some(batch),
            Err(error) => {
                // Those behind it are checked as if it had not come.
                plan.take_back(kept);
                let _ = member.refused.set(error);
                None
            }
        }
    }

    /// Refuses what adds something, unless there is room to keep for what frees.
    #[cold]
    fn refuse_what_adds(&self, tail: &mut Tail, members: &[Request]) -> Result<()> {
        let adds = |member: &&Request| member.batch.as_ref().is_some_and(|batch| !batch.only_frees());
        let mut adding = members.iter().filter(adds).peekable();
        if adding.peek().is_none() {
            return Ok(());
        }
        let Err(error) = self.with_room(|| tail.keep(&self.reserve)) else { return Ok(()) };
        if !error.wants_room() {
            return Err(error);
        }
        adding.for_each(|member| drop(member.refused.set(error.clone())));
        Ok(())
    }

    /// Writes what there is room for of a group that as a whole found none, as `error` says, and refuses the rest. What frees does not wait for room
    /// with what adds, nor what needs little with what needs much, and a sync needs none.
    fn write_each(&self, tail: &mut Tail, plan: &mut Plan, members: &[Request], error: &Error) -> Result<u64> {
        plan.take_back(0);
        let batches = || members.iter().filter_map(|member| member.batch.as_ref());
        let may_free = error.wants_room() && batches().any(Encoded::only_frees);
        if may_free && (tail.has_successor() || self.append.is_full(tail)) {
            // Nothing of this group is in the file yet, so it may be left.
            let ready = self.wait_for(plan).and_then(|()| self.with_room_to_delete(|| self.append.rotate(tail, None)));
            ready.or_else(|error| if error.kind() == ErrorKind::ReadOnly { Err(error) } else { Ok(()) })?;
        }
        let takes_none = tail.has_successor() || self.append.is_full(tail);
        let is_alone = batches().count() == 1;
        let mut first = None;
        for member in members {
            let kept = plan.undo.len();
            let Some(batch) = self.accepted(plan, member) else { continue };
            let frees = may_free && batch.only_frees();
            let written = if takes_none || !frees && (is_alone || !self.reserve.is_whole()) {
                Err(error.clone())
            } else if frees {
                self.with_room_to_delete(|| append_group(tail, &[batch]))
            } else {
                append_group(tail, &[batch])
            };
            match written {
                Ok(offset) => {
                    self.counters.wrote(1, batch.len());
                    first = first.or(Some(offset));
                }
                Err(error) if error.kind() == ErrorKind::ReadOnly => return Err(error),
                // The file is as it was (W4).
                Err(error) => {
                    plan.take_back(kept);
                    let _ = member.refused.set(error);
                }
            }
        }
        Ok(first.unwrap_or_default())
    }

    /// Writes what `write` does. If the disk is full, the files that wait to be written over go first, one after the other: they only save
    /// time. So does one in the other directory help: the batch goes there, then.
    pub(crate) fn with_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match write() {
                Err(error) if error.wants_room() => {
                    // One that cannot go brings no room.
                    let gives = |queue: &Queue| queue.give_room().unwrap_or(false);
                    if !gives(&self.append) && !gives(&self.rewrite) {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Whether what adds may be written: not while what frees needs all the room there is.
    pub(crate) fn may_add(&self) -> Result<()> {
        if self.reserve.is_whole() { Ok(()) } else { self.with_room(|| self.reserve.restore()) }
    }

    /// [`with_room`](Self::with_room) for what says that something is gone.
    pub(crate) fn with_room_to_delete<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        self.reserve.to_delete(|| self.with_room(&mut write))
    }

    /// [`with_room`](Self::with_room) for what leads to files being given up.
    pub(crate) fn with_room_to_reclaim<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        self.reserve.to_reclaim(|| self.with_room(&mut write))
    }

    /// Refuses a batch whose entries do not follow those that the group will have (W2).
    fn check(&self, plan: &mut Plan, batch: &Encoded) -> Result<()> {
        let Plan { planned, undo, written } = plan;
        let (applied, number) = (self.applied.get(), *written + 1);
        let mut items = batch.items();
        while let Some(item) = items.read().map_err(damaged)? {
            let Some(change) = Change::of(&item.action) else { continue };
            if matches!(change, Change::Put { .. } | Change::Delete { .. }) {
                continue;
            }
            let indexed = || self.groups.with(item.group, |group| group.span).unwrap_or_default();
            let (planned, before) = match planned.entry(item.group) {
                Entry::Occupied(there) => {
                    let before = *there.get();
                    let planned = there.into_mut();
                    if before.group <= applied {
                        planned.span = indexed();
                    }
                    (planned, Some(before))
                }
                Entry::Vacant(free) => (free.insert(Planned { span: indexed(), group: number }), None),
            };
            planned.group = number;
            undo.push((item.group, before));
            let span = &mut planned.span;
            match change {
                Change::Entries { first, count } => {
                    if let Err(refusal) = span.check_append(item.group, first) {
                        return Err(refusal.into_error(ErrorKind::InvalidArgument));
                    }
                    span.append(first, count);
                }
                Change::Compact { index } => drop(span.compact(index)),
                _ => *span = Span::default(),
            }
        }
        Ok(())
    }

    /// Syncs what is to be synced, and changes the index as the batches of a group say, when those of the groups before it are in it (W3).
    fn finish_group(
        &self,
        written: Written,
        members: &[Request],
        flight: Option<Flight<'_, Request, Lead>>,
    ) -> Result<()> {
        let Written { number, file, mut offset, sync, mut times } = written;
        let before = number.saturating_sub(1);
        let mut laps = Laps::begin(&*self.env.clock, members.iter().any(|member| member.timed));
        let mut showing = Showing { applied: &self.applied, shown: false };
        if let Some(sync) = sync {
            sync.run().inspect_err(|error| self.write_ended(error))?;
            self.counters.synced();
            times.sync = laps.lap();
        }
        drop(flight);
        self.wait_for_number(before)?;
        for batch in
            members.iter().filter(|member| member.refused.get().is_none()).filter_map(|member| member.batch.as_ref())
        {
            self.listeners.batch_appended(file, offset, batch.len());
            let place = Place { file, offset };
            self.groups.apply_batch(batch.items(), place).map_err(damaged)?;
            self.listeners.batch_applied(file);
            offset = offset.saturating_add(batch.len());
        }
        self.applied.publish(before, number)?;
        showing.shown = true;
        times.apply = laps.lap();
        for member in members.iter().filter(|member| member.timed) {
            let _ = member.times.set(times);
        }
        Ok(())
    }
}

impl Queue {
    /// Writes `batches` in one append, to the next file if this one is full, to one in another directory if this one's is. The file is left only
    /// after `leave`.
    pub(crate) fn append(&self, tail: &mut Tail, batches: &[&Encoded], leave: impl Fn() -> Result<()>) -> Result<u64> {
        tail.check()?;
        // A successor in the other directory makes what does not go void (Q2).
        let is_stuck = tail.has_successor() && self.take_back(tail).is_err();
        if is_stuck || self.is_full(tail) {
            leave()?;
            self.rotate(tail, None)?;
        }
        match append_group(tail, batches) {
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                // Another file beside this one finds no more room.
                let bytes = batches.iter().map(|batch| batch.len()).sum();
                let Some(dir) = self.elsewhere(tail, bytes) else { return Err(error) };
                leave()?;
                match self.rotate(tail, Some(dir)) {
                    Ok(()) => append_group(tail, batches),
                    Err(worse) if worse.kind() == ErrorKind::ReadOnly => Err(worse),
                    // That it cannot be begun there either is no reason not to look for room here.
                    Err(_) => Err(error),
                }
            }
            done => done,
        }
    }
}

/// One append of all `batches`, signed for the file.
fn append_group(tail: &mut Tail, batches: &[&Encoded]) -> Result<u64> {
    let salt = tail.file.salt();
    if let [batch] = batches {
        let [head, entries, middle, items] = batch.parts();
        return tail.append(&[head, entries, middle, items, &batch.tail(salt)]);
    }
    let tails: Vec<[u8; 4]> = batches.iter().map(|batch| batch.tail(salt)).collect();
    let mut parts: Vec<&[u8]> = Vec::with_capacity(batches.len() * 5);
    for (batch, tail) in batches.iter().zip(&tails) {
        parts.extend(batch.parts());
        parts.push(tail);
    }
    tail.append(&parts)
}

impl RaftLog {
    /// Writes `batch` and makes it visible to every later read; leaves it empty. Returns how many bytes it took.
    ///
    /// Cost: one copy of the batch into the log, shared sync with all concurrent callers.
    ///
    /// # Durability
    /// With `sync`, `Ok` means the batch survives power loss; without, it survives the death of the process.
    /// `Err` means unknown, but where it is said that nothing was written: after reopen the batch is whole or absent.
    ///
    /// # Errors
    /// - `InvalidArgument`: entries would leave a gap, or lie below what was compacted ([`Refusal`](crate::Refusal)). Nothing was written, the batch is as it was.
    /// - `Exhausted`: no space left; nothing was written, the batch is as it was. Reads, purging, and batches that only compact, clean and delete go on, in
    ///   room that is kept for them (see [`Options::file_bytes`](crate::Options::file_bytes)); so does everything once they have made room.
    /// - `ReadOnly`: an earlier sync failed; reopen to continue.
    /// - `Closed`: the log was closed. Nothing was written, the batch is as it was.
    pub fn write(&self, batch: &mut LogBatch, sync: bool) -> Result<usize> {
        self.write_with(batch, sync, None)
    }

    /// The same, saying what took how long.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_timed(&self, batch: &mut LogBatch, sync: bool) -> (Result<usize>, WriteTimes) {
        let mut times = WriteTimes::default();
        let done = self.write_with(batch, sync, Some(&mut times));
        (done, times)
    }

    fn write_with(&self, batch: &mut LogBatch, sync: bool, mut times: Option<&mut WriteTimes>) -> Result<usize> {
        self.store.check_here()?;
        if batch.is_empty() && !sync {
            return Ok(0);
        }
        let timed = times.is_some();
        let mut laps = Laps::begin(&*self.store.env.clock, timed);
        let encoded = (!batch.is_empty()).then(|| batch.encode(self.store.options.compress_from_bytes));
        let bytes = encoded.as_ref().map_or(0, |encoded| encoded.len() as usize);
        let encode = laps.lap();
        let member = Arc::new(Member::new(encoded, sync, timed));
        let done = self.store.submit(Arc::clone(&member));
        if let Some(times) = &mut times {
            **times = WriteTimes { encode, ..member.times.get().copied().unwrap_or_default() };
            let written = times.rotate + times.append + times.sync + times.apply;
            times.wait = laps.lap().saturating_sub(written);
        }
        // The leader has let go of it.
        let member = Arc::into_inner(member);
        let refused = member.as_ref().and_then(|member| member.refused.get().cloned());
        let done = done.and(refused.map_or(Ok(bytes), Err));
        if let Some(encoded) = member.and_then(|member| member.batch) {
            batch.take_back(encoded, done.is_err());
        }
        done
    }

    /// Makes everything written before survive power loss.
    ///
    /// # Errors
    /// `ReadOnly` if that failed, now or earlier; `Closed` if the log was closed.
    pub fn sync(&self) -> Result<()> {
        self.store.check_here()?;
        self.store.sync_appended()
    }

    /// Removes the entries of `group` before `index`; returns how many those were. Their space comes back when it is purged.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn compact_to(&self, group: u64, index: u64) -> Result<u64> {
        self.store.check_here()?;
        let Some(before) = self.store.groups.with(group, |group| group.span) else { return Ok(0) };
        if before.is_empty() || index <= before.first {
            return Ok(0);
        }
        let mut batch = LogBatch::new();
        batch.compact(group, index);
        self.write(&mut batch, false)?;
        Ok(before.count().min(index - before.first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a batch of very many groups costs those behind it nothing.
    #[test]
    fn what_was_planned_for_many_groups_is_let_go_of() {
        let mut plan = Plan::default();
        let insert = |plan: &mut Plan, count: u64| {
            let planned = Planned { span: Span::default(), group: 1 };
            plan.planned.extend((0..count).map(|group| (group, planned)));
            plan.written = 1;
        };
        insert(&mut plan, 100);
        plan.forget_applied(1);
        assert!(plan.planned.is_empty() && plan.planned.capacity() >= 100, "its memory stays");
        insert(&mut plan, 100_000);
        plan.forget_applied(1);
        assert!(plan.planned.is_empty() && plan.planned.capacity() <= 2 * PLANNED_MAX);
    }
}
