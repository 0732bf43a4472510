//! Background work: threads that pick, run and install flushes and compactions, flushes first.
//!
//! - G1: work is picked and claimed in one step under `state`, and released there, whatever came of it.
//! - G2: failed work is kept as state that users can read (B8) and tried again after a pause; writers that would wait
//!   for it get its error instead.
//! - G3: without threads (`background_jobs` = 0) the same work is done by whoever made it necessary. Only what a write
//!   cannot do without, a flush, can refuse it.
//! - G4: a compaction that met damage would meet it again: it rests, with its claims, until another version of its family
//!   comes or a user asks for a compaction by hand.
//!   Blob files whose values cannot be read are left alone by reclaim until the store is reopened; a family in which a sweep met
//!   a damaged table is reclaimed table by table from then on.
//! - G5: work that panics gives its claims back like work that fails, and makes the store read-only: nobody knows what
//!   it left half done in memory.
//!
//! Cost of a pick: a look at the families of which something changed since the last one.

use std::any::Any;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::pacer::{Debt, WriteDelay};
use parking_lot::MutexGuard;

use crate::blob::BlobSync;
use crate::compaction::{self, Levels, Range};
use crate::family::Family;
use crate::flush;
use crate::ingest::Writing;
use crate::options::{ReclaimMode, Separation};
use crate::reclaim::{self, Goal, Left, Need, Pass, Punch, Relocation, Removal, Reserved, Room};
use crate::store::{State, Store};
use crate::version::Version;
use crate::{Error, ErrorKind, Result};

/// A pass is worth it if it frees this part of that.
const GAIN_PART: u64 = 16;
/// And holes are if they free this part, without being needed yet.
const PUNCH_PART: u64 = 4;
/// Of a file with less garbage than this part, copying all that lives is no bargain, even to keep a wide bound.
const GARBAGE_PART_MIN: f64 = 0.25;
/// What hides this part of what the bound allows above what lives comes down where writers wait and no window frees anything.
const EXPOSED_PART: u64 = 4;
/// What makes a pass worth it where writers wait for space: a page, and this part of a file.
const FREED_BYTES_MIN: u64 = 4096;
const PART_IF_SHORT: f64 = 0.05;
/// Values are brought together for scans from so many on that they found here and there.
const GATHERED_BYTES_MIN: u64 = 1 << 20;
/// Small blob files are merged while no more than this was written, and read from files, for so long: beside those who are busy that would
/// only hold them up.
const QUIET: Duration = Duration::from_millis(100);
const QUIET_ENTRIES_PER_MILLISECOND: u64 = 10;
const QUIET_READS_PER_MILLISECOND: u64 = 1;
/// Readers, for so long: where they never pause, small files would become more and more. Then values are copied no faster than they bear.
const READERS_COME_FIRST: Duration = Duration::from_secs(60);
/// How often it is looked for what nobody tells of.
const TICK: Duration = Duration::from_secs(1);
/// How long failed work rests before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What had been written and read when it was last looked, on the monotonic clock: see [`QUIET`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    at: Duration,
    written: u64,
    reads: u64,
}

/// See G4.
#[derive(Debug)]
pub(crate) struct Resting {
    plan: Arc<compaction::Plan>,
    pub(crate) error: Error,
}

impl State {
    /// Nothing is to be done for a family any more.
    pub(crate) fn forget(&mut self, family_id: u32) {
        self.to_flush.remove(&family_id);
        self.to_compact.remove(&family_id);
        self.droppable_from.remove(&family_id);
        self.crowded.remove(&family_id);
        self.crowds.remove(&family_id);
        self.damaged_blobs.remove(&family_id);
        self.unswept.remove(&family_id);
        if self.damaged_blobs.is_empty() {
            self.blob_damage = None;
        }
        self.wake_resting(family_id);
    }

    /// Whether somebody makes files.
    fn makes_files(&self) -> bool {
        self.compacting > 0 || !self.flushing.is_empty() || self.guests > 0
    }

    /// What a compaction was going to write is written, or will not be.
    fn has_written(&mut self, written: Option<&Writing>) {
        if let Some(at) = self.writing.iter().position(|writing| Some(writing) == written) {
            self.writing.swap_remove(at);
        }
    }

    /// Leaves the blob file alone that `error` is about, or all of `victims`.
    fn note_blob_damage(&mut self, family_id: u32, victims: &BTreeSet<FileNumber>, error: &Error) {
        let damaged = self.damaged_blobs.entry(family_id).or_default();
        match damaged_file(error).filter(|number| victims.contains(number)) {
            Some(number) => drop(damaged.insert(number)),
            None => damaged.extend(victims),
        }
        self.blob_damage.get_or_insert_with(|| error.clone());
    }

    /// A sweep met damage: in one of the files that it was to empty, or where only others can go around it.
    fn note_damaged_sweep(&mut self, plan: &compaction::Plan, error: &Error) {
        if damaged_file(error).is_some_and(|number| plan.victims.contains(&number)) {
            self.note_blob_damage(plan.family.id, &plan.victims, error);
        } else {
            self.unswept.insert(plan.family.id);
        }
    }

    /// Gives up the claims of a family's work that met damage.
    pub(crate) fn wake_resting(&mut self, family_id: u32) {
        for resting in self.resting.extract_if(.., |resting| resting.plan.family.id == family_id) {
            resting.plan.set_claimed(false);
        }
    }
}

#[derive(Debug)]
enum Work {
    Flush(flush::Plan),
    Compaction(Arc<compaction::Plan>, Arc<Reserved>),
    /// A part of one that somebody else is at.
    Part(Arc<compaction::Merge>),
    Relocation(Relocation, Arc<Reserved>),
    Punch(Punch),
    Removal(Removal),
    Sync(BlobSync),
    Log,
    Purge,
    Options,
}

impl Work {
    fn compaction(plan: compaction::Plan, room: &Room) -> Self {
        let reserved = room.reserve(plan.written_bytes());
        Self::Compaction(Arc::new(plan), Arc::new(reserved))
    }

    fn relocation(plan: Relocation, room: &Room) -> Self {
        let reserved = room.reserve(plan.written_bytes());
        Self::Relocation(plan, Arc::new(reserved))
    }

    /// Of memtables that are claimed in `state` by this.
    fn flush(plan: flush::Plan, state: &mut State) -> Self {
        plan.claim(state);
        state.flushed_last = true;
        Self::Flush(plan)
    }

    fn purge(state: &mut State) -> Self {
        state.purging += 1;
        Self::Purge
    }

    fn of_pass(pass: Pass, room: &Room) -> Self {
        match pass {
            Pass::Sweep(plan) => Self::compaction(plan, room),
            Pass::Relocation(plan) => Self::relocation(plan, room),
        }
    }

    /// Says in `state` that its tables are being read.
    fn claim_tables(&self, state: &mut State) {
        match self {
            Self::Compaction(plan, _) => {
                plan.set_claimed(true);
                state.writing.extend(plan.writing());
            }
            Self::Relocation(plan, _) => plan.set_claimed(true),
            Self::Removal(plan) => plan.set_claimed(true),
            // Tables do not change by it, nor does it matter if they are replaced meanwhile.
            Self::Punch(_) => {}
            Self::Part(_) | Self::Flush(_) | Self::Sync(_) | Self::Log | Self::Purge | Self::Options => return,
        }
        state.compacting += 1;
    }
}

impl Work {
    fn is_reclaim(&self) -> bool {
        match self {
            Self::Compaction(plan, _) => plan.is_sweep,
            work => matches!(work, Self::Relocation(..) | Self::Punch(_)),
        }
    }
}

/// What a pass may cost that only brings values together: no more than `bytes_max`, nor than there is room for beside everything else.
fn gathering(state: &State, family: &Family, left: &Left, bytes_max: u64) -> Need {
    let room = u64::try_from(left.bound.min(left.disk)).unwrap_or(0);
    Need {
        copied_bytes_max: room.min(bytes_max),
        written_bytes_max: room.min(bytes_max),
        freed_bytes_min: 0,
        garbage_part_min: 0.0,
        hidden_part: 0.0,
        can_punch: false,
        may_sweep: !state.unswept.contains(&family.id),
    }
}

impl Store {
    /// The most urgent work that nobody does yet; claimed.
    fn pick_work(&self, state: &mut State) -> Option<Work> {
        if self.check_writable().is_err() {
            return None;
        }
        if let Some(sync) = state.blob_syncs.pop() {
            return Some(Work::Sync(sync));
        }
        if std::mem::take(&mut state.wants_log) {
            state.guests += 1;
            return Some(Work::Log);
        }
        // In turn: files that are not needed any more take up space for as long as one memtable after the other is full.
        if std::mem::take(&mut state.flushed_last) && self.trash.is_filled() {
            return Some(Work::purge(state));
        }
        let families = self.families.load();
        if let Some(plan) = flush::pick(&families, state, false) {
            return Some(Work::flush(plan, state));
        }
        if self.trash.is_filled() {
            return Some(Work::purge(state));
        }
        if state.options_are_stale {
            return Some(Work::Options);
        }
        if let Some(merge) = self.pick_part(state) {
            state.helping += 1;
            return Some(Work::Part(merge));
        }
        // One thread stays free for flushes, where there is more than one. While writers wait for space it may move what a window holds:
        // that is soon done, and much of it is waiting for the device.
        let is_last = state.compacting > 0 && state.compacting + 1 >= self.options.background_jobs;
        if is_last && (state.compacting >= self.options.background_jobs || !self.room.is_awaited()) {
            return None;
        }
        let picked = {
            let _alone = self.room.look();
            self.pick_table_work(state, is_last)
        };
        if let Some(work) = picked {
            work.claim_tables(state);
            state.reclaimed_last = work.is_reclaim();
            return Some(work);
        }
        // While the device takes what the one before has written, this thread has nothing better to do.
        let beside = if self.options.background_jobs > 1 { flush::pick(&families, state, true) } else { None };
        beside.map(|plan| Work::flush(plan, state))
    }

    /// A merge that somebody waits for, and that has parts which nobody writes yet. The thread that flushes may take one: it is soon
    /// free again, and those who wait write nothing that would have to be flushed meanwhile.
    fn pick_part(&self, state: &State) -> Option<Arc<compaction::Merge>> {
        let is_awaited = self.room.is_awaited() || self.is_delayed();
        state.merging.iter().find(|merge| is_awaited && merge.has_more()).cloned()
    }

    /// Whether writers are held back until compactions are done.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed_rate.load(Ordering::Relaxed) > 0
    }

    /// Work on tables; of a window with `only_windows`.
    fn pick_table_work(&self, state: &mut State, only_windows: bool) -> Option<Work> {
        let oldest = self.snapshots.oldest();
        if self.snapshots.take_oldest_went() {
            let freed = state.droppable_from.iter().filter(|(_, from)| **from <= oldest).map(|(&id, _)| id);
            state.to_compact.extend(freed);
        }
        let families = self.families.load();
        let is_scattered = |family: &Family| family.walks.scattered_bytes() >= GATHERED_BYTES_MIN;
        state.to_compact.extend(families.iter().filter(|(_, family)| is_scattered(family)).map(|(&id, _)| id));
        let is_quiet = !state.crowded.is_empty() && self.is_quiet(state);
        if is_quiet {
            state.to_compact.extend(state.crowded.iter().copied());
        }
        // In turn, so that a family whose compaction fails starves no other.
        let next = state.last_compacted.saturating_add(1);
        let in_turn: Vec<u32> = state.to_compact.range(next..).chain(state.to_compact.range(..next)).copied().collect();
        for id in in_turn {
            if state.manual.contains(&id) {
                continue;
            }
            let family = families.get(&id).filter(|family| !family.is_dropped());
            if only_windows {
                let windows = family.and_then(|family| self.pick_window(state, family));
                if windows.is_some() {
                    return windows;
                }
                continue;
            }
            let compact = || {
                let plan = compaction::pick(family?, oldest, &self.fits())?;
                Some(Work::compaction(plan, &self.room))
            };
            let reclaim = || self.pick_reclaim(state, family?);
            let work = if state.reclaimed_last { compact().or_else(reclaim) } else { reclaim().or_else(compact) };
            if work.is_some() {
                return work;
            }
            // Last: nothing else waits for it.
            let crowded = family.filter(|_| is_quiet && state.crowded.contains(&id));
            if let Some(work) = crowded.and_then(|family| self.pick_small_files(state, family)) {
                return Some(work);
            }
            state.to_compact.remove(&id);
            if is_quiet {
                state.crowded.remove(&id);
            }
        }
        None
    }

    /// Whether little was written and read since it was last looked, some time ago; or somebody waits for all that is due.
    fn is_quiet(&self, state: &mut State) -> bool {
        let is_flushed = state.flushing.is_empty() && state.to_flush.is_empty();
        if state.awaited > 0 {
            return is_flushed;
        }
        let now = Look {
            at: self.env.clock.monotonic(),
            written: self.visible().get(),
            reads: self.cache.table_reads.calls.get() + self.blobs.counts().reads.get(),
        };
        let before = *state.looked.get_or_insert(now);
        let passed = now.at.saturating_sub(before.at);
        if passed < QUIET {
            return false;
        }
        state.looked = Some(now);
        let has_waited = state.crowded_since.is_some_and(|since| now.at.saturating_sub(since) >= READERS_COME_FIRST);
        let most = |rate: u64| u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).saturating_mul(rate);
        is_flushed
            && now.written.saturating_sub(before.written) <= most(QUIET_ENTRIES_PER_MILLISECOND)
            && (has_waited || now.reads.saturating_sub(before.reads) <= most(QUIET_READS_PER_MILLISECOND))
    }

    /// Says whether there is room on the disk for what a compaction would write, beside the flush of all memtables.
    fn fits(&self) -> impl Fn(&compaction::Plan) -> bool {
        let left = LazyCell::new(|| self.left().pass);
        move |plan| i64::try_from(plan.written_bytes()).is_ok_and(|bytes| bytes == 0 || bytes <= *left)
    }

    /// A step that shows what is overwritten, if there is room for it.
    fn pick_exposing(&self, family: &Arc<Family>, separated: bool) -> Option<Work> {
        let plan = compaction::pick_exposing(family, separated, &self.fits())?;
        Some(Work::compaction(plan, &self.room))
    }

    /// What gives space back, the cheapest way first: holes, then copies of what lives.
    fn pick_reclaim(&self, state: &State, family: &Arc<Family>) -> Option<Work> {
        if self.options.reclaim_mode != ReclaimMode::Auto {
            return None;
        }
        let none = BTreeSet::new();
        let damaged = state.damaged_blobs.get(&family.id).unwrap_or(&none);
        if family.separation() == Separation::FallBack {
            let plan = reclaim::pick(family, Goal::None, damaged).filter(|plan| !plan.is_claimed());
            return plan.map(|plan| Work::relocation(plan, &self.room));
        }
        if family.view.load().version.blobs().is_empty() {
            return if self.room.is_short() { self.pick_exposing(family, false) } else { None };
        }
        let left = self.left();
        let can_punch = state.copies == 0 && !self.cannot_punch.load(Ordering::Relaxed);
        let need = self.need(state, family, &left, can_punch);
        if can_punch
            && (need.is_some() || reclaim::fresh_bytes(family) >= left.slack / PUNCH_PART)
            && let Some(plan) = reclaim::pick_punch(family)
        {
            return Some(Work::Punch(plan));
        }
        let Some(need) = need else { return self.pick_scattered(state, family, &left, damaged) };
        let pass = reclaim::pick_pass(family, &need, damaged).map(|pass| Work::of_pass(pass, &self.room));
        // Where no pass over everything does it.
        let is_short = self.room.is_short();
        let enough = if is_short { need.freed_bytes_min } else { left.slack / EXPOSED_PART };
        let hides_enough = || reclaim::hidden_bytes(&family.view.load().version) >= enough;
        let is_wanted = family.ranges.count() > 1 && (is_short || self.room.is_awaited());
        let exposes = !need.may_sweep || (is_wanted && hides_enough());
        pass.or_else(|| if exposes { self.pick_exposing(family, true) } else { None })
    }

    /// A window that gives space back, beside other work.
    fn pick_window(&self, state: &State, family: &Arc<Family>) -> Option<Work> {
        if family.ranges.count() < 2 || family.separation() == Separation::FallBack {
            return None;
        }
        let none = BTreeSet::new();
        let damaged = state.damaged_blobs.get(&family.id).unwrap_or(&none);
        let left = self.left();
        let need = self.need(state, family, &left, false)?;
        let (_, plan) = reclaim::pick_window(family, &need, damaged)?;
        // Whoever is at work already has taken what was left for one.
        i64::try_from(plan.written_bytes())
            .is_ok_and(|bytes| bytes <= left.bound)
            .then(|| Work::compaction(plan, &self.room))
    }

    /// What brings values together that scans found here and there.
    fn pick_scattered(
        &self,
        state: &State,
        family: &Arc<Family>,
        left: &Left,
        damaged: &BTreeSet<FileNumber>,
    ) -> Option<Work> {
        let scattered = family.walks.scattered_bytes();
        if scattered < GATHERED_BYTES_MIN {
            return None;
        }
        let pass = reclaim::pick_scattered(family, &gathering(state, family, left, scattered), damaged)?;
        family.walks.pay_scattered(pass.written_bytes());
        Some(Work::of_pass(pass, &self.room))
    }

    /// What merges small blob files.
    fn pick_small_files(&self, state: &mut State, family: &Arc<Family>) -> Option<Work> {
        if self.options.reclaim_mode != ReclaimMode::Auto || family.separation() == Separation::FallBack {
            return None;
        }
        let none = BTreeSet::new();
        let damaged = state.damaged_blobs.get(&family.id).unwrap_or(&none);
        let left = self.left();
        let bytes_max = reclaim::copied_bytes(family, left.slack);
        let pass = reclaim::pick_small(family, &gathering(state, family, &left, bytes_max), damaged)?;
        let crowd = reclaim::crowd(&family.view.load().version, family, damaged);
        state.crowds.extend(crowd.map(|crowd| (family.id, crowd)));
        Some(Work::of_pass(pass, &self.room))
    }

    /// What is to be freed, if it is time: when what is left would not take another pass.
    fn need(&self, state: &State, family: &Family, left: &Left, can_punch: bool) -> Option<Need> {
        let is_short = self.room.is_short();
        let pass = reclaim::pass_bytes(family, &family.view.load().version, left.slack);
        // Where passes are small, the one that runs and the next.
        let ahead = if family.ranges.count() > 1 { 3 } else { 2 };
        let pass = i64::try_from(pass.saturating_mul(ahead) / 2).unwrap_or(i64::MAX);
        let is_due = is_short || left.bound < pass || left.disk < pass;
        let part = (self.options.max_space_amp - 1.0) / self.options.max_space_amp / 2.0;
        is_due.then(|| Need {
            copied_bytes_max: reclaim::copied_bytes(family, left.slack),
            written_bytes_max: u64::try_from(left.pass).unwrap_or(0),
            freed_bytes_min: if is_short { FREED_BYTES_MIN } else { left.slack / GAIN_PART },
            garbage_part_min: if is_short { PART_IF_SHORT } else { part.min(GARBAGE_PART_MIN) },
            hidden_part: if is_short { 1.0 } else { family.overwriting.part() },
            can_punch,
            may_sweep: !state.unswept.contains(&family.id),
        })
    }

    /// What background work has to know of a family's next version.
    pub(crate) fn note_new_version(&self, state: &mut State, family_id: u32, version: &Version) {
        state.wake_resting(family_id);
        state.to_compact.insert(family_id);
        self.note_crowd(state, family_id, version);
        match version.droppable().map(|(_, table)| table.meta.largest_sequence).min() {
            Some(from) => state.droppable_from.insert(family_id, from),
            None => state.droppable_from.remove(&family_id),
        };
    }

    /// Whether the family has more small blob files than it should.
    fn note_crowd(&self, state: &mut State, family_id: u32, version: &Version) {
        let none = BTreeSet::new();
        let damaged = state.damaged_blobs.get(&family_id).unwrap_or(&none);
        let crowd = |family: &Arc<Family>| reclaim::crowd(version, family, damaged);
        let crowd = self.families.load().get(&family_id).and_then(crowd);
        if crowd.is_none() {
            state.crowds.remove(&family_id);
        }
        if crowd.is_none() || crowd == state.crowds.get(&family_id).copied() {
            state.crowded.remove(&family_id);
            return;
        }
        if state.crowded.is_empty() {
            state.looked = None;
            state.crowded_since = Some(self.env.clock.monotonic());
        }
        state.crowded.insert(family_id);
    }

    /// Everything may be due: the store was just opened.
    pub(crate) fn note_all_versions(&self) {
        let mut state = self.state.lock();
        for family in self.families.load().values() {
            self.note_new_version(&mut state, family.id, &family.view.load().version);
        }
    }

    fn run_work(&self, work: &Work) -> Result<()> {
        self.refresh_room();
        let run = || match work {
            Work::Flush(plan) => self.run_flush(plan),
            Work::Compaction(plan, reserved) => self.run_compaction(plan, reserved),
            Work::Part(merge) => {
                // Whoever has the merge is told what came of it.
                merge.write_next(self);
                Ok(())
            }
            Work::Relocation(plan, reserved) => self.run_relocation(plan, reserved),
            Work::Punch(plan) => self.run_punch(plan),
            Work::Removal(plan) => self.run_removal(plan),
            Work::Sync(sync) => sync.run().inspect_err(|error| self.fail(error)),
            Work::Log => self.make_spare_log(),
            Work::Purge => self.trash.purge(),
            Work::Options => {
                self.refresh_options_file(&mut self.installer.lock());
                Ok(())
            }
        };
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let error = panicked(&*panic);
            self.fail(&error);
            Err(error)
        });
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exhausted) {
            // What it left takes up the room that the next one needs. Should that fail, the next purge tries again, and tells.
            let _ = self.trash.purge();
        }
        result
    }

    /// Keeps what came of `work` where users can read it.
    fn note_result(&self, state: &mut State, work: &Work, result: &Result<()>) {
        let error = result.as_ref().err().cloned();
        match work {
            Work::Flush(plan) if error.is_some() || plan.is_done() => state.flush_error = error,
            Work::Compaction(..) | Work::Relocation(..) | Work::Punch(_) | Work::Purge => {
                state.compaction_error = error
            }
            // They keep their failures themselves, or whoever asked for them is told.
            Work::Flush(_) | Work::Removal(_) | Work::Part(_) | Work::Sync(_) | Work::Options => {}
            // Whoever needs the log makes it then, and is told.
            Work::Log => {}
        }
        self.changed.notify_all();
    }

    /// Gives the claims of `work` back, or lets it rest with them (G4).
    fn release_work(&self, state: &mut State, work: Work, result: &Result<()>) {
        match work {
            Work::Flush(plan) => plan.release(state),
            Work::Compaction(plan, _) => {
                state.compacting -= 1;
                state.has_written(plan.writing().as_ref());
                state.last_compacted = plan.family.id;
                match result {
                    Err(error) if is_damage(error) && plan.is_sweep => {
                        plan.set_claimed(false);
                        state.to_compact.insert(plan.family.id);
                        state.note_damaged_sweep(&plan, error);
                    }
                    Err(error) if is_damage(error) => state.resting.push(Resting { plan, error: error.clone() }),
                    _ => {
                        plan.set_claimed(false);
                        state.to_compact.insert(plan.family.id);
                    }
                }
            }
            Work::Relocation(plan, _) => {
                state.compacting -= 1;
                plan.set_claimed(false);
                state.to_compact.insert(plan.family.id);
                if let Err(error) = result
                    && is_damage(error)
                {
                    state.note_blob_damage(plan.family.id, &plan.victims, error);
                }
            }
            Work::Punch(plan) => {
                state.compacting -= 1;
                state.to_compact.insert(plan.family.id);
            }
            Work::Removal(plan) => {
                state.compacting -= 1;
                plan.set_claimed(false);
                state.to_compact.insert(plan.family.id);
            }
            Work::Log => state.guests -= 1,
            // With it go the tables that it read: what is held after that, readers hold.
            Work::Part(merge) => {
                state.helping -= 1;
                drop(merge);
            }
            Work::Purge => state.purging -= 1,
            Work::Sync(_) | Work::Options => {}
        }
        self.room.note_held(self.trash.held_bytes());
        self.changed.notify_all();
    }

    /// Claims the tables of `plan`, runs it on this thread and gives them back.
    pub(crate) fn claim_and_run(&self, mut state: MutexGuard<'_, State>, plan: Relocation) -> Result<()> {
        self.claim_and_run_work(&mut state, Work::relocation(plan, &self.room))
    }

    /// The same for tables that go.
    pub(crate) fn claim_and_remove(&self, mut state: MutexGuard<'_, State>, plan: Removal) -> Result<()> {
        self.claim_and_run_work(&mut state, Work::Removal(plan))
    }

    fn claim_and_run_work(&self, state: &mut MutexGuard<'_, State>, work: Work) -> Result<()> {
        work.claim_tables(state);
        let result = MutexGuard::unlocked(state, || self.run_work(&work));
        self.note_result(state, &work, &result);
        self.release_work(state, work, &result);
        result
    }

    /// What a background thread does until the store closes.
    pub(crate) fn work_until_closed(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            let Some(work) = self.pick_work(&mut state) else {
                // Whoever drops the last reader of an obsolete file wakes nobody: look for it now and then.
                let looks_again = !state.crowded.is_empty() && state.compacting == 0 && self.check_writable().is_ok();
                self.changed.wait_for(&mut state, if looks_again { QUIET } else { TICK });
                continue;
            };
            drop(state);
            let result = self.run_work(&work);
            state = self.state.lock();
            self.note_result(&mut state, &work, &result);
            // Its claims are kept meanwhile, so that nobody else tries it either.
            if result.as_ref().is_err_and(|error| !is_damage(error)) && !state.closing {
                self.closing.wait_for(&mut state, RETRY_PAUSE);
            }
            self.release_work(&mut state, work, &result);
        }
    }

    /// Lets everyone who is still at work end, and nobody begin: the last step before the directory is given up.
    pub(crate) fn wait_for_the_last(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        // Under the lock: whoever has just found the store open and is about to wait hears it.
        self.closing.notify_all();
        self.changed.notify_all();
        drop(state);
        // Writers: whoever leads now ends first, and those after find the store closed.
        self.commit.exclusive(|lead| lead.wal = None);
        state = self.state.lock();
        while state.makes_files() {
            self.changed.wait_for(&mut state, Duration::from_millis(50));
        }
    }

    /// Does everything that is due, on this thread.
    ///
    /// # Errors
    /// What made a flush fail; it is tried again the next time. Any other failure is told by `stats` and ends this round,
    /// as the next step may need what could not be had: it is no reason to refuse a write.
    pub(crate) fn run_due_work(&self) -> Result<()> {
        loop {
            let Some(work) = self.pick_work(&mut self.state.lock()) else {
                return Ok(());
            };
            let (is_flush, is_purge) = (matches!(work, Work::Flush(_)), matches!(work, Work::Purge));
            let result = self.run_work(&work);
            let mut state = self.state.lock();
            self.note_result(&mut state, &work, &result);
            self.release_work(&mut state, work, &result);
            drop(state);
            match result {
                Err(error) if is_flush => return Err(error),
                Err(error) if !is_purge && !is_damage(&error) => return Ok(()),
                _ => {}
            }
        }
    }

    /// See [`Db::wait_for_compact`](crate::Db::wait_for_compact).
    pub(crate) fn wait_for_compact(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.awaited += 1;
        // Whoever was tried before and failed may have been mended.
        (state.flush_error, state.compaction_error) = (None, None);
        let result = self.do_all(&mut state).map_err(|error| error.while_doing("waiting for compactions"));
        state.awaited -= 1;
        result
    }

    /// Until nothing is due and nobody is at work; takes part in it.
    fn do_all(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        loop {
            self.check_writable()?;
            if let Some(error) = state.flush_error.as_ref().or(state.compaction_error.as_ref()) {
                return Err(error.clone());
            }
            if let Some(work) = self.pick_work(state) {
                let result = MutexGuard::unlocked(state, || self.run_work(&work));
                self.note_result(state, &work, &result);
                self.release_work(state, work, &result);
            } else if state.makes_files() || state.helping > 0 || state.purging > 0 || !state.manual.is_empty() {
                self.changed.wait_for(state, QUIET);
            } else {
                let resting = state.resting.first().map(|resting| resting.error.clone());
                return resting.or_else(|| state.blob_damage.clone()).map_or(Ok(()), Err);
            }
        }
    }

    /// Works out how fast writers may write now. Called whenever a view of `family` has changed.
    pub(crate) fn refresh_delay(&self, family: &Family) {
        if self.options.background_jobs == 0 {
            return;
        }
        let rate = if family.is_dropped() { None } else { self.family_rate(family) };
        let mut state = self.state.lock();
        match rate {
            Some(rate) => state.rates.insert(family.id, rate),
            None => state.rates.remove(&family.id),
        };
        self.delayed_rate.store(state.rates.values().min().copied().unwrap_or(0), Ordering::Relaxed);
    }

    fn family_rate(&self, family: &Family) -> Option<u64> {
        let (view, options) = (family.view.load(), &family.options);
        let debt = Debt {
            level0_tables: view.version.level(0).len(),
            level0_slowdown: options.level0_slowdown_trigger,
            level0_stop: options.level0_stop_trigger,
            pending_bytes: Levels::of(&view.version, options).debt_bytes,
            pending_bytes_soft: options.pending_compaction_bytes_soft,
            pending_bytes_hard: options.pending_compaction_bytes_hard,
            sealed_memtables: view.sealed.len(),
            sealed_memtables_max: options.write_buffer_count_max,
        };
        WriteDelay { bytes_per_second_min: self.options.delayed_write_bytes_per_second_min }.rate(&debt)
    }

    /// See [`Db::compact_range`](crate::Db::compact_range).
    pub(crate) fn compact_range(&self, family: &Arc<Family>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.flush(&[family.id])?;
        let mut state = self.state.lock();
        while state.manual.contains(&family.id) {
            self.changed.wait(&mut state);
        }
        state.manual.push(family.id);
        // Whoever asks for it by hand is told again what is damaged.
        state.wake_resting(family.id);
        drop(state);
        let result = self.compact_levels(family, begin, end);
        let mut state = self.state.lock();
        state.manual.retain(|&id| id != family.id);
        state.to_compact.insert(family.id);
        drop(state);
        self.changed.notify_all();
        result?;
        // What was replaced goes now: space is what manual compactions are for.
        self.trash.purge_again()?;
        if self.options.background_jobs == 0 { self.run_due_work() } else { Ok(()) }
    }

    /// Level after level down to the deepest, and then, within that one, what was there before and holds deletions or
    /// older versions that some snapshot once asked for.
    fn compact_levels(&self, family: &Arc<Family>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        let first_new = FileNumber::new(self.next_file_number());
        let deepest = family.view.load().version.deepest_level().max(1);
        for level in 0..deepest {
            self.compact_level(family, Range { level, begin, end, after: None, in_place_before: None })?;
        }
        let deepest = family.view.load().version.deepest_level();
        if deepest == 0 {
            return Ok(());
        }
        self.compact_level(
            family,
            Range { level: deepest, begin, end, after: None, in_place_before: Some(first_new) },
        )?;
        // Whoever asks for both a compaction and values with their keys wants to be rid of blob files.
        let is_whole = begin.is_none() && end.is_none();
        while is_whole && family.separation() == Separation::FallBack && self.reclaim_once(family, Goal::None)? {}
        Ok(())
    }

    fn compact_level(&self, family: &Arc<Family>, range: Range<'_>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            self.check_writable()?;
            let mut state = self.state.lock();
            let range = Range { after: after.as_deref(), ..range };
            let Some(plan) = compaction::pick_range(family, &range) else {
                // An automatic compaction that began before may have some of it, here or in the level below.
                if state.compacting > 0 && compaction::is_left_in_range(family, &range) {
                    self.changed.wait_for(&mut state, Duration::from_millis(100));
                    continue;
                }
                return Ok(());
            };
            after = plan.upper.last().map(|table| table.largest().to_vec());
            let is_level0 = plan.level == 0;
            self.claim_and_run_work(&mut state, Work::compaction(plan, &self.room))?;
            drop(state);
            if is_level0 {
                return Ok(());
            }
        }
    }

    /// Whether the error of background work leaves the store able to go on once its cause is mended.
    pub(crate) fn background_error(&self) -> Option<Error> {
        let state = self.state.lock();
        let resting = || state.resting.first().map(|resting| resting.error.clone());
        let transient = state.flush_error.clone().or_else(|| state.compaction_error.clone()).or_else(resting);
        let transient = transient.or_else(|| state.blob_damage.clone());
        drop(state);
        self.failure().or(transient).filter(|error| error.kind() != ErrorKind::Closed)
    }
}

/// The number of the file that `error` is about.
fn damaged_file(error: &Error) -> Option<FileNumber> {
    let name = error.path().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    name.and_then(FileName::parse).and_then(|name| name.number())
}

/// What trying again does not mend.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat)
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("without a word");
    let reason = format!("background work panicked ({message}); report it, and reopen the store");
    Error::new(ErrorKind::ReadOnly, reason)
}
