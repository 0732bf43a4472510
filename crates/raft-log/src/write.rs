//! Writing: batch → group commit → file → index → acknowledge.
//!
//! - W1: a group of batches is one append and at most one sync, in the order in which its members joined.
//! - W2: a batch is checked against the index as its predecessors will leave it, before anything is written: one with a
//!   gap is refused, and its neighbours are not.
//! - W3: the leader changes the index, in the order of the file: what is read is what replaying the file would give.
//! - W4: a failed append leaves the file as it was; a failed sync ends all writing (see [`Tail`]).
//! - W5: a group of batches begins with a header, which is never zero: a process that dies while it copies leaves
//!   zeroes there, the end of the log.
//!
//! Cost: entries are checksummed and compressed by their own thread. The leader copies each batch into the file once.

use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_env::Clock;

use crate::batch::{Encoded, LogBatch, damaged};
use crate::group::groups::GroupMap;
use crate::group::{Change, Place, Span};
use crate::queue::{Queue, Tail, may_spill};
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
    /// Where groups will stand after the batches that were checked so far (W2); empty between groups.
    planned: GroupMap<Span>,
}

impl Lead {
    pub(crate) fn new(tail: Tail) -> Self {
        Self { tail: Some(tail), planned: GroupMap::default() }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the log was closed")
}

impl Store {
    /// Joins the line with `member` and returns when it was written.
    fn submit(&self, member: Request) -> Result<()> {
        let weigh = |member: &Request| member.batch.as_ref().map_or(0, |batch| batch.len() as usize);
        self.commit.submit(member, weigh, GROUP_BYTES_MAX, |lead, members| {
            let done = self.write_group(lead, members);
            lead.planned.clear();
            if let Err(error) = &done
                && error.kind() == ErrorKind::ReadOnly
            {
                self.write_error.lock().get_or_insert_with(|| error.clone());
            }
            done
        })
    }

    /// Makes everything appended before survive power loss.
    pub(crate) fn sync_appended(&self) -> Result<()> {
        self.submit(Arc::new(Member::new(None, true, false)))
    }

    fn write_group(&self, lead: &mut Lead, members: &[Request]) -> Result<()> {
        let mut laps = Laps::begin(&*self.env.clock, members.iter().any(|member| member.timed));
        let mut times = WriteTimes::default();
        let Lead { tail, planned } = lead;
        let tail = tail.as_mut().ok_or_else(closed)?;
        tail.check()?;
        let mut batches = Vec::with_capacity(members.len());
        for member in members {
            let Some(batch) = &member.batch else { continue };
            match self.check(planned, batch) {
                Ok(()) => batches.push(batch),
                Err(error) => {
                    let _ = member.refused.set(error);
                }
            }
        }
        times.append = laps.lap();
        if !batches.is_empty() && self.append.is_full(tail) {
            self.append.rotate(tail, false)?;
            times.rotate = laps.lap();
        }
        let offset = if batches.is_empty() { 0 } else { self.append.append(tail, &batches)? };
        times.append += laps.lap();
        if members.iter().any(|member| member.sync) {
            tail.sync()?;
            self.counters.synced();
            times.sync = laps.lap();
        }
        self.apply_all(tail, offset, &batches)?;
        times.apply = laps.lap();
        for member in members.iter().filter(|member| member.timed) {
            let _ = member.times.set(times);
        }
        Ok(())
    }

    /// Refuses a batch whose entries do not follow those that the group will have (W2).
    fn check(&self, planned: &mut GroupMap<Span>, batch: &Encoded) -> Result<()> {
        let mut items = batch.items();
        let mut touched: Vec<(u64, Option<Span>)> = Vec::new();
        let checked = loop {
            let Some(item) = items.read().map_err(damaged)? else { break Ok(()) };
            let Some(change) = Change::of(&item.action) else { continue };
            if matches!(change, Change::Put { .. } | Change::Delete { .. }) {
                continue;
            }
            let span = match planned.entry(item.group) {
                Entry::Occupied(there) => {
                    touched.push((item.group, Some(*there.get())));
                    there.into_mut()
                }
                Entry::Vacant(free) => {
                    touched.push((item.group, None));
                    free.insert(self.groups.with(item.group, |group| group.span).unwrap_or_default())
                }
            };
            match change {
                Change::Entries { first, count } => {
                    if let Err(refusal) = span.check_append(item.group, first) {
                        break Err(refusal.into_error(ErrorKind::InvalidArgument));
                    }
                    span.append(first, count);
                }
                Change::Compact { index } => drop(span.compact(index)),
                _ => *span = Span::default(),
            }
        };
        if checked.is_err() {
            // Those behind it are checked as if it had not come.
            for (group, before) in touched.into_iter().rev() {
                match before {
                    Some(span) => planned.insert(group, span),
                    None => planned.remove(&group),
                };
            }
        }
        checked
    }

    /// Changes the index as the batches from `offset` on say (W3).
    fn apply_all(&self, tail: &Tail, mut offset: u64, batches: &[&Encoded]) -> Result<()> {
        let file = tail.file.id;
        if !batches.is_empty() {
            self.counters.wrote(batches.len() as u64, batches.iter().map(|batch| batch.len()).sum());
        }
        for batch in batches {
            self.listeners.batch_appended(file, offset, batch.len());
            let place = Place { file, offset };
            let mut items = batch.items();
            while let Some(item) = items.read().map_err(damaged)? {
                if let Some(change) = Change::of(&item.action) {
                    self.groups.apply(item.group, &change, place);
                }
            }
            self.listeners.batch_applied(file);
            offset = offset.saturating_add(batch.len());
        }
        Ok(())
    }
}

impl Queue {
    /// Writes `batches` in one append, to the next file if this one is full, or its directory.
    pub(crate) fn append(&self, tail: &mut Tail, batches: &[&Encoded]) -> Result<u64> {
        tail.check()?;
        if self.is_full(tail) {
            self.rotate(tail, false)?;
        }
        match append_group(tail, batches) {
            Err(error) if may_spill(&self.shape, &error) => {
                self.rotate(tail, true)?;
                append_group(tail, batches)
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
    /// - `Exhausted`: no space left; nothing was written, the batch is as it was; reads and purging go on.
    /// - `ReadOnly`: an earlier sync failed; reopen to continue.
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
    /// `ReadOnly` if that failed, now or earlier.
    pub fn sync(&self) -> Result<()> {
        self.store.sync_appended()
    }

    /// Removes the entries of `group` before `index`; returns how many those were. Their space comes back when it is purged.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn compact_to(&self, group: u64, index: u64) -> Result<u64> {
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
