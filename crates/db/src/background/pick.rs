//! What to do next, and what tells that something is due.
//!
//! Cost of a pick: a look at the families of which something changed since the last one.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};

use super::Work;
use crate::compaction;
use crate::family::Family;
use crate::flush;
use crate::options::{ReclaimMode, Separation};
use crate::reclaim::{self, Left, Need};
use crate::store::{KeptOut, State, Store};
use crate::version::Version;

/// What writers may write while a pass over everything goes on, of what the bound allows above what lives: a quarter of what it copies.
const WRITTEN_BESIDE_PART: u64 = 16;
/// Holes are made if they free this part of that, without being needed yet.
const PUNCH_PART: u64 = 4;
/// Of a file with less garbage than this part, copying all that lives is no bargain, even to keep a wide bound.
const GARBAGE_PART_MIN: f64 = 0.25;
/// While space is wanted, families are looked at, idle ones too, of whose blob files so much is garbage.
const GARBAGE_PART: f64 = 0.1;
/// What hides this part of what the bound allows above what lives comes down where writers wait and no window frees anything.
const EXPOSED_PART: u64 = 4;
/// What makes a pass worth it where writers wait for space: a page, and this part of a file.
const FREED_BYTES_MIN: u64 = 4096;
const PART_IF_SHORT: f64 = 0.05;
/// Values are brought together for scans from so many on that they found here and there.
const GATHERED_BYTES_MIN: u64 = 1 << 20;
/// Small blob files are merged while no more than this was written, and read from files, for so long: beside those who are busy that would
/// only hold them up.
pub(super) const QUIET: Duration = Duration::from_millis(100);
const QUIET_ENTRIES_PER_MILLISECOND: u64 = 10;
const QUIET_READS_PER_MILLISECOND: u64 = 1;
/// Readers, for so long: where they never pause, small files would become more and more. Then values are copied no faster than they bear.
const READERS_COME_FIRST: Duration = Duration::from_secs(60);

/// What had been written and read when it was last looked, on the monotonic clock: see [`QUIET`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    at: Duration,
    written: u64,
    reads: u64,
}

/// What a pass may cost that only brings values together: no more than `bytes_max`, nor than there is room for beside everything else.
fn gathering(state: &State, family: &Family, left: &Left, bytes_max: u64) -> Need {
    let room = u64::try_from(left.bound.min(left.disk)).unwrap_or(0);
    Need {
        copied_bytes_max: room.min(bytes_max),
        copied_by_everything_max: room.min(bytes_max),
        written_bytes_max: room.min(bytes_max),
        is_pressed: false,
        freed_bytes_min: 0,
        garbage_part_min: 0.0,
        hidden_part: 0.0,
        can_punch: false,
        may_sweep: !state.unswept.contains(&family.id),
    }
}

/// Notes that nothing was found to do in `family` with the room that there is, if more might make a difference.
fn note_no_room(state: &mut State, family: &Family, left: Left) {
    let version = &family.view.load().version;
    // No more is written at a time: all tables, and what is copied or comes home.
    let blobs = match family.separation() {
        // Beside room for all tables (H4 of `home`).
        Separation::FallBack => {
            let live = version.ledger().total().live_bytes();
            live.saturating_add(version.table_sums().bytes).saturating_add(family.blob_file_bytes())
        }
        _ if version.blobs().is_empty() => 0,
        _ => reclaim::copied_bytes(family, version, left.slack).saturating_add(family.blob_file_bytes()),
    };
    let most = version.table_sums().bytes.saturating_add(blobs);
    let most = most.saturating_add(reclaim::rounding_bytes(family, version.table_sums().count, most, blobs));
    if i64::try_from(most).is_ok_and(|most| left.pass >= most) {
        state.no_room.remove(&family.id);
        return;
    }
    let seen = state.no_room.entry(family.id).or_insert(left.pass);
    *seen = left.pass.max(*seen);
}

/// Says whether there is room on the disk for what a compaction would write, beside the flush of all memtables.
fn fits(left: &impl Deref<Target = Left>) -> impl Fn(&compaction::Plan) -> bool {
    move |plan| i64::try_from(plan.written_bytes()).is_ok_and(|bytes| bytes == 0 || bytes <= left.pass)
}

/// Whether level 0 is due in `family`, nobody has it, and its turn has come: windows of two threads could follow each other for as long as writers
/// wait, and it would grow meanwhile.
pub(super) fn is_turn_of_level0(state: &State, family: &Family) -> bool {
    let version = &family.view.load().version;
    let is_due = || compaction::Levels::of(version, &family.options()).due().contains(&0);
    // Else it is on its way down, and nobody can take what came meanwhile.
    let is_free = || !version.level(0).iter().any(|table| table.is_claimed());
    state.reclaimed_last && !state.manual.contains_key(&family.id) && is_free() && is_due()
}

impl Store {
    /// The most urgent work that nobody does yet; claimed.
    pub(super) fn pick_work(&self, state: &mut State) -> Option<Work> {
        if self.check_writable().is_err() {
            return None;
        }
        if let Some(sync) = state.blob_syncs.pop() {
            return Some(Work::Sync(sync));
        }
        if self.wants_log.swap(false, Ordering::Relaxed) {
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
        if let Some(merge) = self.pick_part(state) {
            state.helping += 1;
            return Some(Work::Part(merge));
        }
        // One thread stays free for flushes, where there is more than one. While writers wait for space it may move what a window holds:
        // that is soon done, and much of it is waiting for the device.
        let is_last = state.compacting > 0 && state.compacting + 1 >= self.background_jobs;
        if is_last && (state.compacting >= self.background_jobs || !self.room.is_awaited()) {
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
        // Last: should it fail again and again, nothing else waits.
        if state.options_are_stale && !state.writing_options {
            state.writing_options = true;
            return Some(Work::Options);
        }
        // While the device takes what the one before has written, this thread has nothing better to do.
        let beside = if self.background_jobs > 1 { flush::pick(&families, state, true) } else { None };
        beside.map(|plan| Work::flush(plan, state))
    }

    /// A merge that somebody waits for, and that has parts which nobody writes yet. The thread that flushes may take one: it is soon
    /// free again, and those who wait write nothing that would have to be flushed meanwhile.
    fn pick_part(&self, state: &State) -> Option<Arc<compaction::Merge>> {
        let is_awaited = self.room.is_awaited() || self.is_delayed();
        state.merging.iter().find(|merge| is_awaited && merge.has_more()).cloned()
    }

    /// Work on tables; of a window with `only_windows`.
    fn pick_table_work(&self, state: &mut State, only_windows: bool) -> Option<Work> {
        let oldest = self.snapshots.oldest();
        if self.snapshots.take_oldest_went() {
            let freed = state.droppable_from.iter().filter(|(_, from)| **from <= oldest).map(|(&id, _)| id);
            state.to_compact.extend(freed);
            self.note_hidden_again(state, oldest);
        }
        self.note_room_came(state);
        // Passes begin earlier while nobody waits.
        let is_pressed = self.background_jobs > 0 && self.room.is_pressed(self.env.clock.monotonic());
        if !is_pressed {
            state.to_compact.append(&mut state.once_calm);
        }
        let now = self.env.clock.unix_seconds();
        state.to_compact.extend(state.old_from.iter().filter(|(_, from)| **from <= now).map(|(&id, _)| id));
        let families = self.families.load();
        let is_scattered = |family: &Family| family.walks.scattered_bytes() >= GATHERED_BYTES_MIN;
        state.to_compact.extend(families.iter().filter(|(_, family)| is_scattered(family)).map(|(&id, _)| id));
        let is_quiet = !state.crowded.is_empty() && self.is_quiet(state);
        if is_quiet {
            state.to_compact.extend(state.crowded.iter().copied());
        }
        // The same for all that are looked at, since nobody takes of it meanwhile.
        let mut looked_at = state.to_compact.iter().filter_map(|id| families.get(id));
        let comes_home = !only_windows && looked_at.any(|family| family.comes_home());
        let left = LazyCell::new(|| if comes_home { self.left_afresh() } else { self.left() });
        // What is just being removed still counts: another pass might be picked for what the last one has freed.
        let is_purging = state.purging > 0;
        // In turn, so that a family whose compaction fails starves no other.
        let next = state.last_compacted.saturating_add(1);
        let in_turn: Vec<u32> = state.to_compact.range(next..).chain(state.to_compact.range(..next)).copied().collect();
        for id in in_turn {
            let kept_out = state.manual.get(&id).copied();
            if kept_out == Some(KeptOut::All) {
                continue;
            }
            let family = families.get(&id).filter(|family| !family.is_dropped());
            if only_windows {
                let free = family.filter(|family| !is_purging && !is_turn_of_level0(state, family));
                let windows = free.and_then(|family| self.pick_window(state, family, &left));
                if windows.is_some() {
                    return windows;
                }
                continue;
            }
            family.into_iter().for_each(|family| self.choose_home(state, family, || *left));
            let compact = || {
                if kept_out.is_some() {
                    return None;
                }
                // What need not be read for that goes first.
                if let Some(hidden) = reclaim::Removal::of_hidden(family?, oldest) {
                    return Some(Work::Removal(hidden));
                }
                let plan = compaction::pick(family?, oldest, now, &fits(&left))?;
                Some(Work::compaction(plan, &self.room))
            };
            let reclaim = || if is_purging { None } else { self.pick_reclaim(state, family?, &left) };
            let work = if state.reclaimed_last { compact().or_else(reclaim) } else { reclaim().or_else(compact) };
            if let Some(work) = work {
                state.no_room.remove(&id);
                let is_wanted = || {
                    let left = self.left();
                    left.bound < i64::try_from(left.slack / 2).unwrap_or(i64::MAX)
                };
                if work.is_reclaim() && (self.room.is_short() || is_wanted()) {
                    // The bound is the store's: one that lies idle may hold more garbage.
                    let has_more = |family: &Family| reclaim::garbage_part(&family.view.load().version) >= GARBAGE_PART;
                    let others = families.iter().filter(|(other, family)| **other != id && has_more(family));
                    state.to_compact.extend(others.map(|(&other, _)| other));
                }
                return Some(work);
            }
            // Last: nothing else waits for it.
            let crowded = family.filter(|_| is_quiet && state.crowded.contains(&id));
            if let Some(work) = crowded.and_then(|family| self.pick_small_files(state, family, &left)) {
                return Some(work);
            }
            if is_purging {
                continue;
            }
            state.to_compact.remove(&id);
            family.into_iter().for_each(|family| note_no_room(state, family, *left));
            if is_pressed {
                state.once_calm.insert(id);
            }
            if is_quiet {
                state.crowded.remove(&id);
            }
        }
        None
    }

    /// Looks again at families whose tables were written beside a snapshot that went: what lies above hides again what that had kept.
    fn note_hidden_again(&self, state: &mut State, oldest: SequenceNumber) {
        for (&id, family) in self.families.load().iter() {
            let version = &family.view.load().version;
            if version.level(version.deepest_level()).iter().filter(|table| table.forget_seen(oldest)).count() > 0 {
                version.forget_hidden_bytes();
                state.to_compact.insert(id);
            }
        }
    }

    /// Looks again at families in which nothing was found to do for want of room, once there is more of it than there was; and at all, once
    /// room has become short: what is done only then, nobody looked for.
    pub(crate) fn note_room_came(&self, state: &mut State) {
        let is_short = self.room.is_short();
        if is_short && !state.was_short {
            state.to_compact.extend(self.families.load().keys());
        }
        state.was_short = is_short;
        if state.no_room.is_empty() {
            return;
        }
        let pass = self.left().pass;
        let came = state.no_room.iter().filter(|(_, seen)| **seen < pass).map(|(&id, _)| id);
        state.to_compact.extend(came);
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

    /// A step that shows what is overwritten, if there is room for it.
    fn pick_exposing(&self, family: &Arc<Family>, separated: bool, left: &impl Deref<Target = Left>) -> Option<Work> {
        let plan = compaction::pick_exposing(family, separated, &fits(left))?;
        Some(Work::compaction(plan, &self.room))
    }

    /// What gives space back, the cheapest way first: holes, then copies of what lives.
    fn pick_reclaim(&self, state: &State, family: &Arc<Family>, left: &impl Deref<Target = Left>) -> Option<Work> {
        // Deletions take of what is kept, and wait for nothing.
        let is_short = || self.room.is_short() || left.disk < 0;
        let if_short = || if is_short() { self.pick_exposing(family, false, left) } else { None };
        // By hand or not, deletions have to take effect where there is no room: that moves no value.
        if self.options().reclaim_mode != ReclaimMode::Auto || family.view.load().version.blobs().is_empty() {
            return if_short();
        }
        let damaged = state.damaged_files(family.id);
        if family.comes_home() {
            return self.pick_step_home(family, damaged, left).or_else(if_short);
        }
        let can_punch = state.copies == 0 && !self.cannot_punch.load(Ordering::Relaxed);
        let need = self.need(state, family, left, can_punch);
        if can_punch
            && (need.is_some() || reclaim::fresh_bytes(family) >= left.slack / PUNCH_PART)
            && let Some(plan) = reclaim::pick_punch(family, &family.view.load().version, &BTreeSet::new())
        {
            return Some(Work::Punch(plan));
        }
        let Some(need) = need else { return self.pick_scattered(state, family, left, damaged) };
        let pass = reclaim::pick_pass(family, &need, damaged).map(|pass| Work::of_pass(pass, &self.room));
        // Where no pass over everything does it.
        let is_short = self.room.is_short();
        let enough = if is_short { need.freed_bytes_min } else { left.slack / EXPOSED_PART };
        let hides_enough = || reclaim::hidden_bytes(&family.view.load().version) >= enough;
        let is_wanted = is_short || (family.ranges.count() > 1 && self.room.is_awaited());
        let exposes = !need.may_sweep || (is_wanted && hides_enough());
        pass.or_else(|| if exposes { self.pick_exposing(family, true, left) } else { None })
    }

    /// What brings values home, if there is room for it: no more at a time than leaves writers some.
    fn pick_step_home(&self, family: &Arc<Family>, damaged: &BTreeSet<FileNumber>, left: &Left) -> Option<Work> {
        let step = u64::try_from(left.pass.min(left.bound) / 2).unwrap_or(0).min(family.blob_file_bytes());
        let version = family.view.load().version.clone();
        let plan = reclaim::pick_step(family, &version, &family.coming_home(), damaged, step)?;
        let fits = i64::try_from(plan.written_bytes()).is_ok_and(|bytes| bytes <= left.pass);
        (fits && !plan.is_claimed()).then(|| Work::relocation(plan, &self.room))
    }

    /// A window that gives space back, beside other work.
    fn pick_window(&self, state: &State, family: &Arc<Family>, left: &impl Deref<Target = Left>) -> Option<Work> {
        if family.ranges.count() < 2 || family.separation() == Separation::FallBack {
            return None;
        }
        let damaged = state.damaged_files(family.id);
        let need = self.need(state, family, left, false)?;
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
        // Where it takes all there is, nothing is left of what scans found, however often they did.
        let is_all = pass.victims().len() == family.view.load().version.blobs().len();
        family.walks.pay_scattered(if is_all { u64::MAX } else { pass.written_bytes() });
        Some(Work::of_pass(pass, &self.room))
    }

    /// What merges small blob files.
    fn pick_small_files(
        &self,
        state: &mut State,
        family: &Arc<Family>,
        left: &impl Deref<Target = Left>,
    ) -> Option<Work> {
        if self.options().reclaim_mode != ReclaimMode::Auto || family.separation() == Separation::FallBack {
            return None;
        }
        let damaged = state.damaged_files(family.id);
        let bytes_max = reclaim::copied_bytes(family, &family.view.load().version, left.slack);
        let pass = reclaim::pick_small(family, &gathering(state, family, left, bytes_max), damaged)?;
        let crowd = reclaim::crowd(&family.view.load().version, family, damaged);
        state.crowds.extend(crowd.map(|crowd| (family.id, crowd)));
        Some(Work::of_pass(pass, &self.room))
    }

    /// What is to be freed, if it is time: when what is left would not take another pass.
    pub(super) fn need(&self, state: &State, family: &Family, left: &Left, can_punch: bool) -> Option<Need> {
        let is_short = self.room.is_short();
        let version = &family.view.load().version;
        let tables = version.table_sums().bytes;
        let pass = reclaim::pass_bytes(family, version, left.slack);
        let copied_bytes_max = reclaim::copied_bytes(family, version, left.slack);
        let is_pressed = self.background_jobs == 0 || self.room.is_pressed(self.env.clock.monotonic());
        // Where passes are small: the one that runs and the next, for which writers leave room; and, while nobody waits, more for them, and for what
        // windows take out of files that only the last of them frees: else they would wait for each pass until it ends, however slowly they write.
        let ahead = match reclaim::writes_little(family, version, left.slack) {
            false => 2,
            true if is_pressed => 3,
            true => 8,
        };
        let pass = i64::try_from(pass.saturating_mul(ahead) / 2).unwrap_or(i64::MAX);
        // Writers may wait for room for a larger family's pass: that is reason enough for one here, too.
        let bound_min = pass.max(left.next_pass.saturating_add(left.next_pass / 2));
        let is_due = is_short || left.bound < bound_min || left.disk < pass;
        // The same for a pass over everything: it begins when what it writes is left beside what writers do, and later copies less.
        let beside = tables.saturating_add(left.slack / WRITTEN_BESIDE_PART);
        let for_copies = left.bound - left.next_pass - i64::try_from(beside).unwrap_or(i64::MAX);
        let for_copies = u64::try_from(for_copies).unwrap_or(0);
        // Where dead pages can become holes, those come first, when it is time.
        let has_holes = can_punch && reclaim::has_pages(version);
        let has_windows = family.ranges.count() > 1;
        let is_early = !is_due && !is_pressed && !has_holes && !has_windows && for_copies < copied_bytes_max;
        let copied_by_everything_max = match is_pressed || is_short {
            true => copied_bytes_max,
            false => copied_bytes_max.min(for_copies.max(family.blob_file_bytes() / 2)),
        };
        let part = (self.options().max_space_amp - 1.0) / self.options().max_space_amp / 2.0;
        let garbage_part_min = if is_short { PART_IF_SHORT } else { part.min(GARBAGE_PART_MIN) };
        (is_due || is_early).then(|| Need {
            copied_bytes_max,
            copied_by_everything_max,
            written_bytes_max: u64::try_from(left.pass).unwrap_or(0),
            is_pressed,
            freed_bytes_min: match is_short {
                true => FREED_BYTES_MIN,
                false => (copied_bytes_max as f64 * garbage_part_min / (1.0 - garbage_part_min)) as u64,
            },
            garbage_part_min,
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
        self.note_old(state, family_id, version);
        let droppable = version.droppable().map(|(_, table)| table.meta.largest_sequence).min();
        // Whatever snapshot goes, it may have been the one to see what they hide.
        let of_ranges = version.has_range_deletions().then(SequenceNumber::default);
        match of_ranges.or(droppable) {
            Some(from) => state.droppable_from.insert(family_id, from),
            None => state.droppable_from.remove(&family_id),
        };
    }

    /// When it has to be looked at for old tables.
    fn note_old(&self, state: &mut State, family_id: u32, version: &Version) {
        let old_from = self.families.load().get(&family_id).and_then(|family| compaction::next_old(family, version));
        match old_from {
            Some(from) => state.old_from.insert(family_id, from),
            None => state.old_from.remove(&family_id),
        };
    }

    /// Whether the family has more small blob files than it should.
    fn note_crowd(&self, state: &mut State, family_id: u32, version: &Version) {
        let damaged = state.damaged_files(family_id);
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
}
