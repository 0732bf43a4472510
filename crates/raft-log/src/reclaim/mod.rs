//! Giving files up: what is still needed of old ones is moved on to the rewrite queue, then they go.
//!
//! - P1: the rewrite queue is told of everything that is gone before the append queue's file that says so goes (B1): once more when it is known which
//!   files go, since entries that were compacted meanwhile may be all that said that others, which had been moved, were replaced.
//! - P2: what was moved is synced before the files that held it go (B6), and so is what says that the rest of them is dead:
//!   the append queue, before anything is carried or given up by what its batches did to the index.
//! - P3: an index record is changed only if it is still what was read (compare and swap), so that newer entries win (B2).
//! - P4: what is moved out of the rewrite queue for a group counts as a whole: it is one batch, or an atomic group.
//! - P5: one purges at a time.
//! - P6: what is moved lies in files that had ended before it was asked who is gone. A group that is cleaned and begun anew after that
//!   has nothing there: the rewrite queue would be told of its end behind what it has now.
//! - P7: what cannot be read keeps nothing but its own group, and the files that hold it, from going ([`Reclaim::unmoved`]).
//! - P8: what there is no room to move keeps no file from going that nobody needs, or a full disk would stay full.
//!   What tells of what is gone, and the next file where a last one goes, have room of their own ([`Reserve`](esker_log::reserve::Reserve)).
//! - P9: what says that something is gone is dead at once: however many groups come and go, the rewrite queue stays short.
//! - P10: the index learns where what was moved lies once that is synced, and before anything else is done by what the index says: where a sync
//!   fails, readers find what is durable where it was.
//! - P11: a file that cannot be removed keeps nothing else from being done; each purge tries again, and says so as long as it is there.
//! - P12: while that room is taken, last files end, too, if nobody needs anything of them.
//!
//! Cost: moved bytes are read once and written once, in batches of [`BATCH_BYTES`](rewrite::BATCH_BYTES). So much of them is in memory at a time,
//! the block that is read, and where a few thousand batches lie.

mod background;
mod pick;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};

use esker_env::Env;
use esker_format::raft::closed::QueueEnd;
use esker_format::raft::file_name::{FileId, Queue as Kind};
use esker_log::pacer::{GiveWay, Pieces};

use crate::batch::LogBatch;
use crate::group::groups::GroupMap;
use crate::group::{Group, Groups, Owed};
use crate::queue::Tail;
use crate::raft_log::RaftLog;
use crate::stats::Counters;
use crate::store::Store;
use crate::write::closed;
use crate::{Error, ErrorKind, Result};
use pick::{Facts, HEAVY_ENTRIES, Marks, Plan};
use rewrite::{BATCH_BYTES, Scope, Unsynced};

/// A group's old entries were moved on, since it pinned more of the log than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// The group.
    pub group: u64,
    /// How many bytes of the log, of all groups, were kept only for it and those as old.
    pub pinned_bytes: u64,
    /// Index of the first entry that was moved.
    pub first_index: u64,
    /// How many were.
    pub entries: u64,
}

/// What only who purges touches.
#[derive(Debug)]
pub(crate) struct Reclaim {
    /// `None` once the log is closed.
    pub(crate) tail: Option<Tail>,
    /// How often in a row a group was asked to be compacted.
    asked: GroupMap<u32>,
    /// Entries and keys in each file of the rewrite queue, dead ones too, and what says that some are gone, which is dead at once. That of files that were
    /// rewritten is what is alive.
    written: BTreeMap<u64, u64>,
    unsynced: Unsynced,
    /// Of the log's own purge, which nobody waits for: how it leaves the processor to callers.
    gives_way: Option<(Pieces, GiveWay)>,
    /// Why something was not moved, or removed (P7, P8, P11); told once all else is done.
    unmoved: Option<Error>,
}

impl Reclaim {
    pub(crate) fn new(tail: Tail, written: BTreeMap<u64, u64>) -> Self {
        let (asked, unsynced) = Default::default();
        Self { tail: Some(tail), asked, written, unsynced, gives_way: None, unmoved: None }
    }

    pub(crate) fn tail(&mut self) -> Result<&mut Tail> {
        self.tail.as_mut().ok_or_else(closed)
    }

    /// So many bytes were looked at; nobody waits for a lock of who calls, but another purge.
    fn looked_at(&mut self, bytes: usize, env: &Env) {
        if let Some((pieces, give_way)) = &mut self.gives_way
            && pieces.is_done_after(bytes as u64)
        {
            give_way.give_way(env);
        }
    }

    fn wrote(&mut self, file: FileId, count: u64) {
        *self.written.entry(file.sequence).or_default() += count;
    }

    /// What was done, unless something could not be moved meanwhile.
    fn told<T>(&mut self, done: Result<T>) -> Result<T> {
        let unmoved = self.unmoved.take();
        done.and_then(|done| unmoved.map_or(Ok(done), Err))
    }

    /// Puts off to tell that there was no room for something (P8); then `None`.
    fn put_off<T>(&mut self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                self.unmoved.get_or_insert(error);
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}

/// Entries and keys in the rewrite queue that are alive.
fn rewritten_count(groups: &Groups) -> u64 {
    let mut count = 0;
    groups.for_each(|_, group| count += group.rewritten_count());
    count
}

impl RaftLog {
    /// Gives up files that nobody needs. If the log is longer than it should be, moves on what old files still hold of
    /// groups with few entries, so that they can go, and returns the groups with many: compact these. A group that is not
    /// compacted for long has its entries moved on too. Does nothing if another thread is at it.
    ///
    /// # Errors
    /// `Exhausted` if there is no room to move something to: files that nobody needs were given up all the same, so that the next call may have
    /// it. `ReadOnly` if a sync failed; `Closed` if the log was closed meanwhile. Nothing is lost, and what was given up before stays given
    /// up. `Corruption` if something could not be read: all else was moved, and given up. What the system
    /// said of a file that could not be removed: all else was done, and the next call tries again.
    pub fn purge(&self) -> Result<Vec<u64>> {
        self.store.check_here()?;
        match self.store.reclaim.try_lock() {
            Some(mut reclaim) => self.store.purge_all(&mut reclaim),
            None => Ok(Vec::new()),
        }
    }

    /// Moves everything that files of the append queue up to `until` hold on to the rewrite queue and gives those files up;
    /// `None` is all there are now.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub fn move_on(&self, until: Option<u64>) -> Result<()> {
        self.store.check_here()?;
        let mut reclaim = self.store.reclaim.lock();
        let done = self.store.move_on(&mut reclaim, until);
        reclaim.told(done)
    }

    /// Ends the last file of both queues and gives up all files that nobody needs; moves nothing.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub fn purge_stale(&self) -> Result<()> {
        let store = &self.store;
        store.check_here()?;
        let mut reclaim = store.reclaim.lock();
        let done = store.purge_stale(&mut reclaim);
        reclaim.told(done)
    }

    /// Moves everything in the rewrite queue to new files of it, and gives the old ones up.
    ///
    /// # Errors
    /// As [`purge`](Self::purge).
    pub fn rewrite_again(&self) -> Result<()> {
        self.store.check_here()?;
        let mut reclaim = self.store.reclaim.lock();
        let done = self.store.rewrite_again(&mut reclaim);
        reclaim.told(done).map(drop)
    }
}

impl Store {
    /// Purges, and says what could not be read.
    fn purge_all(&self, reclaim: &mut Reclaim) -> Result<Vec<u64>> {
        let done = self.purge(reclaim);
        // What went is not for others.
        let _ = self.may_add();
        reclaim.told(done)
    }

    fn move_on(&self, reclaim: &mut Reclaim, until: Option<u64>) -> Result<()> {
        let last = self.append.span().1;
        let until = until.map_or(last, |until| until.min(last));
        if until == last {
            let ended = self.rotate();
            reclaim.put_off(ended)?;
        }
        // P6: where the last file could not be ended, it stays.
        let until = until.min(self.append.span().1.saturating_sub(1));
        let barrier = self.barrier();
        self.carry(reclaim)?;
        let moved = self.move_groups(reclaim, &self.groups.ids(), Scope::Until(until));
        reclaim.put_off(moved)?;
        self.give_up(reclaim, Kind::Append, barrier)
    }

    fn purge_stale(&self, reclaim: &mut Reclaim) -> Result<()> {
        let tail = reclaim.tail()?;
        let ended = self.with_room_to_reclaim(|| self.rewrite.rotate(tail, None)).and_then(|()| self.rotate());
        reclaim.put_off(ended)?;
        let barrier = self.barrier();
        self.carry(reclaim)?;
        let last = self.rewrite.span().1;
        self.give_up(reclaim, Kind::Rewrite, last)?;
        self.give_up(reclaim, Kind::Append, barrier)
    }

    fn purge(&self, reclaim: &mut Reclaim) -> Result<Vec<u64>> {
        reclaim.tail()?.check()?;
        [Kind::Rewrite, Kind::Append].into_iter().for_each(|kind| self.remove_waiting(reclaim, kind));
        if !self.reserve.is_whole() {
            self.end_unneeded(reclaim)?;
        }
        let mut asked = BTreeSet::new();
        if self.rewrite_is_due(reclaim) {
            // It may take the room that is left for this, without which no file of the append queue goes (P1).
            let carried = self.carry(reclaim);
            reclaim.put_off(carried)?;
            asked.extend(self.rewrite_again(reclaim)?);
        } else {
            // Nothing has to be moved for what is dead at the front.
            let (first, last) = self.rewrite.span();
            if first < last && self.needed(Kind::Rewrite, last) > first {
                self.give_up(reclaim, Kind::Rewrite, last)?;
            }
        }
        let (first, last) = self.append.span();
        if first < last {
            let due = self.append.bytes() > self.options.purge_threshold_bytes;
            // Both before `carry` (P6).
            let (marks, sealed) = (Marks::of(&self.append), last.saturating_sub(1));
            let Plan { asks, moves, overdue, asked: counts } = self.pick(reclaim, marks, due);
            if due || !overdue.is_empty() || self.needed(Kind::Append, last) > first {
                let barrier = self.barrier();
                self.carry(reclaim)?;
                let moved = self.move_groups(reclaim, &moves, Scope::Until(marks.rewrite));
                let moved = moved.and_then(|()| self.move_overdue(reclaim, &overdue, sealed));
                reclaim.put_off(moved)?;
                self.give_up(reclaim, Kind::Append, barrier)?;
            }
            reclaim.asked = counts;
            asked.extend(asks);
        }
        Ok(asked.into_iter().collect())
    }

    /// What to do about each group; changes nothing.
    fn pick(&self, reclaim: &Reclaim, marks: Marks, due: bool) -> Plan {
        let mut facts = Vec::new();
        self.groups.for_each(|id, group| {
            let oldest = group.oldest_file(Kind::Append);
            facts.push(Facts {
                group: id,
                oldest_append: oldest,
                rewritten: group.rewritten_entries(),
                old_entries: group.runs.until_file(group.span, marks.rewrite).count(),
                asked: reclaim.asked.get(&id).copied().unwrap_or(0),
            });
        });
        let quota = self.options.group_quota_bytes;
        pick::pick(&facts, marks, due, |oldest| quota.is_some_and(|quota| self.append.bytes_from(oldest) > quota))
    }

    /// Moves on what groups hold in files up to `until` that pin more than their quota, and says so.
    fn move_overdue(&self, reclaim: &mut Reclaim, groups: &[u64], until: u64) -> Result<()> {
        let pins = |id: &u64| {
            let (first_index, next, oldest) = self.groups.with(*id, |group| {
                let first = group.runs.rewritten_until(group.span);
                (first, group.runs.until_file(group.span, until).next, group.oldest_file(Kind::Append))
            })?;
            let (pinned_bytes, entries) = (self.append.bytes_from(oldest?), next.saturating_sub(first_index));
            Some(Moved { group: *id, pinned_bytes, first_index, entries })
        };
        let pinned: Vec<Moved> = groups.iter().filter_map(pins).collect();
        let done = self.move_groups(reclaim, groups, Scope::Until(until));
        for moved in &pinned {
            let is_moved = |group: &Group| group.oldest_file(Kind::Append).is_none_or(|oldest| oldest > until);
            if self.groups.with(moved.group, is_moved) == Some(true) {
                Counters::add(&self.counters.moved_entries, moved.entries);
                self.listeners.moved(moved);
            }
        }
        done
    }

    /// The file of the append queue that is not to be given up, nor any after it. All that files before it say has been
    /// done to the index: a file is left only after that.
    fn barrier(&self) -> u64 {
        let last = self.append.span().1;
        self.listeners.oldest_needed(Kind::Append).map_or(last, |needed| needed.min(last))
    }

    /// Ends the append queue's file, in its turn. An empty one serves as well.
    fn rotate(&self) -> Result<()> {
        self.commit.exclusive(|lead| {
            self.catch_up(lead)?;
            let tail = lead.tail.as_mut().ok_or_else(closed)?;
            tail.check()?;
            if !self.append.holds_batches(tail) {
                return Ok(());
            }
            self.with_room_to_reclaim(|| self.append.rotate(tail, None))
        })
    }

    /// Tells the rewrite queue what is gone (P1). Nothing goes before that: for want of room what was preallocated for users' batches is given back.
    fn carry(&self, reclaim: &mut Reclaim) -> Result<()> {
        match self.carry_once(reclaim) {
            Err(error) if error.wants_room() => {
                self.commit.exclusive(|lead| {
                    self.catch_up(lead)?;
                    lead.tail.as_mut().ok_or_else(closed)?.finish()
                })?;
                self.carry_once(reclaim)
            }
            done => done,
        }
    }

    fn carry_once(&self, reclaim: &mut Reclaim) -> Result<()> {
        self.install(reclaim)?;
        let gone = self.groups.gone();
        let mut owed: Vec<(u64, Owed)> = Vec::new();
        self.groups.for_each(|id, group| {
            let owes = group.owed();
            if owes != Owed::default() {
                owed.push((id, owes));
            }
        });
        if gone.is_empty() && owed.is_empty() {
            return Ok(());
        }
        self.sync_appended()?;
        let (mut batch, mut carried) = (LogBatch::new(), Vec::new());
        let mut write = |batch: &mut LogBatch| {
            let count = batch.item_count();
            let (place, bytes) = self.append_rewritten(reclaim, batch)?;
            reclaim.wrote(place.file, count);
            carried.push((place, bytes));
            Ok::<_, Error>(())
        };
        for group in &gone {
            batch.clean(*group);
        }
        for (group, owes) in &owed {
            if let Some(index) = owes.compact {
                batch.compact(*group, index);
            }
            owes.deletes.iter().for_each(|key| batch.delete(*group, key));
            if batch.approximate_bytes() > BATCH_BYTES {
                write(&mut batch)?;
            }
        }
        if !batch.is_empty() {
            write(&mut batch)?;
        }
        reclaim.tail()?.sync()?;
        self.groups.settle_gone(&gone);
        for (group, owes) in &owed {
            self.groups.with_mut(*group, |group| group.settle(owes));
        }
        for (place, bytes) in carried {
            self.listeners.batch_appended(place.file, place.offset, bytes);
            self.listeners.batch_applied(place.file);
        }
        Ok(())
    }

    /// Whether enough of the rewrite queue is dead.
    fn rewrite_is_due(&self, reclaim: &Reclaim) -> bool {
        let (first, last) = self.rewrite.span();
        if first == last || self.rewrite.bytes() <= self.options.rewrite_threshold() {
            return false;
        }
        let live = rewritten_count(&self.groups);
        let written: u64 = reclaim.written.values().sum();
        let dead = written.saturating_sub(live);
        dead as f64 > written as f64 * self.options.purge_rewrite_garbage_ratio
    }

    /// Moves all that is alive in the rewrite queue to new files, as far as there is room (P8); returns the groups with much of it.
    fn rewrite_again(&self, reclaim: &mut Reclaim) -> Result<Vec<u64>> {
        let (mut heavy, mut groups) = (Vec::new(), Vec::new());
        self.groups.for_each(|id, group| {
            if group.rewritten_entries() > HEAVY_ENTRIES {
                heavy.push(id);
            }
            if group.oldest_file(Kind::Rewrite).is_some() {
                groups.push(id);
            }
        });
        let moved = self.end_rewritten(reclaim).and_then(|()| self.move_groups(reclaim, &groups, Scope::Rewritten));
        let is_done = reclaim.put_off(moved)?.is_some();
        let last = self.rewrite.span().1;
        self.give_up(reclaim, Kind::Rewrite, last)?;
        if is_done {
            // Also where something could not be read: it is tried again once as much more is dead, not at every purge.
            reclaim.written = BTreeMap::from([(last, rewritten_count(&self.groups))]);
        }
        Ok(heavy)
    }

    /// Ends the rewrite queue's file. An empty one serves as well: what fails again and again must not add a file each time.
    fn end_rewritten(&self, reclaim: &mut Reclaim) -> Result<()> {
        let tail = reclaim.tail()?;
        if !self.rewrite.holds_batches(tail) {
            return Ok(());
        }
        self.with_room_to_reclaim(|| self.rewrite.rotate(tail, None))
    }

    /// Ends the last file of each queue of which nobody needs any (P12).
    fn end_unneeded(&self, reclaim: &mut Reclaim) -> Result<()> {
        let is_unneeded = |kind| {
            let behind = self.queue(kind).span().1.saturating_add(1);
            self.needed(kind, behind) == behind
        };
        if is_unneeded(Kind::Append) {
            let ended = self.rotate();
            reclaim.put_off(ended)?;
        }
        if is_unneeded(Kind::Rewrite) {
            let ended = self.end_rewritten(reclaim);
            reclaim.put_off(ended)?;
        }
        Ok(())
    }

    /// The first file of a queue that some group needs; `barrier` if that is less.
    pub(crate) fn needed(&self, kind: Kind, barrier: u64) -> u64 {
        let mut needed = barrier;
        self.groups.for_each(|_, group| needed = needed.min(group.oldest_file(kind).unwrap_or(needed)));
        needed
    }

    /// Gives up the files of a queue before `barrier` that no group needs (P1, P2).
    fn give_up(&self, reclaim: &mut Reclaim, kind: Kind, barrier: u64) -> Result<()> {
        self.install(reclaim)?;
        let needed = self.needed(kind, barrier);
        if needed > self.queue(kind).span().0 {
            if kind == Kind::Append {
                self.carry(reclaim)?;
            }
            self.sync_appended()?;
            let count = self.queue(kind).purge_before(needed);
            if kind == Kind::Rewrite {
                reclaim.written = reclaim.written.split_off(&needed);
            }
            self.blocks.forget_before(FileId::new(kind, needed));
            self.remove_waiting(reclaim, kind);
            if count > 0 {
                Counters::add(&self.counters.purged_files, count as u64);
                self.listeners.purged(FileId::new(kind, needed.saturating_sub(1)));
            }
        }
        Ok(())
    }

    /// Removes files that were given up, but for those that wait to be written over; notes what could not be (P11).
    fn remove_waiting(&self, reclaim: &mut Reclaim, kind: Kind) {
        if let Err(error) = self.queue(kind).remove_waiting() {
            reclaim.unmoved.get_or_insert(error);
        }
    }

    pub(crate) fn close_reclaim(&self) -> Result<QueueEnd> {
        let mut tail = self.reclaim.lock().tail.take().ok_or_else(closed)?;
        tail.finish().map(|()| tail.end())
    }

    /// Keeps an error of the log's own purging where users can read it.
    fn note_purge(&self, done: Result<Vec<u64>>) {
        let error: Option<Error> = done.err().filter(|error| error.kind() != ErrorKind::Closed);
        *self.purge_error.lock() = error;
    }
}
