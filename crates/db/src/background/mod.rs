//! Background work: threads that pick, run and install flushes and compactions, flushes first.
//!
//! [`pick`] says what to do next, [`damage`] what is not tried again; here it is claimed, run and released, and waited for.
//!
//! - G1: work is picked and claimed in one step under `state`, and released there, whatever came of it.
//! - G2: failed work is kept as state that users can read (B8) and tried again after a pause; writers that would wait
//!   for it get its error instead.
//! - G3: without threads (`background_jobs` = 0) the same work is done by whoever made it necessary. Only what a write
//!   cannot do without, a flush, can refuse it.
//! - G4: a compaction that met damage would meet it again: it rests, with its claims, until another version of its family
//!   comes or a user asks for a compaction by hand. So does one that failed several times because the same file could not be read.
//!   Blob files whose values cannot be read are left alone by reclaim, and by compactions, until the store is reopened; so are tables with which
//!   values would come home. A family in which a sweep met a damaged table is reclaimed table by table from then on.
//! - G5: work that panics gives its claims back like work that fails, and makes the store read-only: nobody knows what
//!   it left half done in memory.

mod damage;
mod pick;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use esker_format::rocksdb::internal_key::FileNumber;
use parking_lot::MutexGuard;

pub(crate) use self::damage::Resting;
pub(crate) use self::pick::Look;
use self::pick::QUIET;
use crate::blob::BlobSync;
use crate::compaction;
use crate::events::FileChanges;
use crate::family::Family;
use crate::flush;
use crate::reclaim::{Pass, Punch, Relocation, Removal, Reserved, Room};
use crate::store::{State, Store};
use crate::write::Lead;
use crate::{Error, ErrorKind, Result};

/// How often it is looked for what nobody tells of.
const TICK: Duration = Duration::from_secs(1);
/// How long failed work rests before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl State {
    /// Nothing is to be done for a family any more.
    pub(crate) fn forget(&mut self, family_id: u32) {
        self.to_flush.remove(&family_id);
        self.to_compact.remove(&family_id);
        self.no_room.remove(&family_id);
        self.once_calm.remove(&family_id);
        self.droppable_from.remove(&family_id);
        self.old_from.remove(&family_id);
        self.crowded.remove(&family_id);
        self.crowds.remove(&family_id);
        self.damaged_blobs.remove(&family_id);
        self.unswept.remove(&family_id);
        if self.damaged_blobs.is_empty() && self.unswept.is_empty() {
            self.blob_damage = None;
        }
        self.wake_resting(family_id);
    }

    /// What is tried again, and failed the last time.
    fn transient_error(&self) -> Option<&Error> {
        let errors = [&self.flush_error, &self.compaction_error, &self.upkeep_error, &self.options_error];
        errors.into_iter().find_map(Option::as_ref)
    }

    /// Whether somebody removes files, or writes the options down.
    fn is_tidying(&self) -> bool {
        self.purging > 0 || self.writing_options
    }

    /// Whether somebody makes files.
    fn makes_files(&self) -> bool {
        self.compacting > 0 || !self.flushing.is_empty() || self.guests > 0
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
        let bytes = plan.written_bytes();
        let reserved = if plan.is_sweep { room.reserve_for_pass(bytes) } else { room.reserve(bytes) };
        Self::Compaction(Arc::new(plan), Arc::new(reserved))
    }

    fn relocation(plan: Relocation, room: &Room) -> Self {
        let bytes = plan.written_bytes();
        let reserved = if plan.is_step_home { room.reserve(bytes) } else { room.reserve_for_pass(bytes) };
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
                plan.note_writing();
            }
            Self::Relocation(plan, _) => plan.set_claimed(true),
            Self::Removal(plan) => plan.set_claimed(true),
            // Tables do not change by it, nor does it matter if they are replaced meanwhile.
            Self::Punch(_) => {}
            Self::Part(_) | Self::Flush(_) | Self::Sync(_) | Self::Log | Self::Purge | Self::Options => return,
        }
        state.compacting += 1;
    }

    /// What it is done for, if that is one family.
    fn family(&self) -> Option<&Family> {
        match self {
            Self::Flush(plan) => Some(plan.family()),
            Self::Compaction(plan, _) => Some(&plan.family),
            Self::Relocation(plan, _) => Some(&plan.family),
            Self::Punch(plan) => Some(&plan.family),
            Self::Removal(plan) => Some(&plan.family),
            Self::Part(_) | Self::Sync(_) | Self::Log | Self::Purge | Self::Options => None,
        }
    }

    /// Whether it reads this table or blob file.
    fn reads(&self, file: FileNumber) -> bool {
        match self {
            Self::Compaction(plan, _) => {
                let mut tables = plan.inputs().map(|(_, table)| table).chain(plan.above.iter().flatten());
                let blob = BTreeSet::from([file]);
                let comes_home = plan.coming_home.contains(&file);
                plan.victims.contains(&file)
                    || tables.any(|table| table.number() == file || (comes_home && table.may_point_into(&blob)))
            }
            Self::Relocation(plan, _) => {
                let blob = BTreeSet::from([file]);
                let is_victim = plan.victims.contains(&file);
                let mut tables = plan.tables.iter().map(|(_, table)| table);
                tables.any(|table| table.number() == file || (is_victim && table.may_point_into(&blob)))
            }
            _ => false,
        }
    }

    fn is_reclaim(&self) -> bool {
        match self {
            Self::Compaction(plan, _) => plan.is_sweep,
            work => matches!(work, Self::Relocation(..) | Self::Punch(_)),
        }
    }
}

impl Store {
    fn run_work(&self, work: &Work) -> Result<FileChanges> {
        self.refresh_room();
        self.refresh_shortage();
        let changes = |()| FileChanges::default();
        let run = || match work {
            Work::Flush(plan) => self.run_flush(plan),
            Work::Compaction(plan, reserved) => self.run_compaction(plan, reserved),
            Work::Part(merge) => {
                // Whoever has the merge is told what came of it.
                merge.write_next(self);
                Ok(FileChanges::default())
            }
            Work::Relocation(plan, reserved) => self.run_relocation(plan, reserved),
            Work::Punch(plan) => self.run_punch(plan),
            Work::Removal(plan) => self.run_removal(plan),
            Work::Sync(sync) => sync.run().inspect_err(|error| self.fail(error)).map(changes),
            Work::Log => self.make_spare_log().map(changes),
            Work::Purge => self.trash.purge().map(changes),
            Work::Options => self.refresh_options_file(&mut self.installer.lock()).map(changes),
        };
        let run = || {
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                let error = panicked(&*panic);
                self.fail(&error);
                Err(error)
            })
        };
        let result = match work {
            Work::Part(_) | Work::Sync(_) | Work::Log | Work::Purge | Work::Options => run(),
            Work::Flush(plan) => self.run_job(|id| plan.job(id), run),
            Work::Compaction(plan, _) => self.run_job(|id| plan.job(id), run),
            Work::Relocation(plan, _) => self.run_job(|id| plan.job(id), run),
            Work::Punch(plan) => self.run_job(|id| plan.job(id), run),
            Work::Removal(plan) => self.run_job(|id| plan.job(id), run),
        };
        if result.is_err() {
            // What it left takes up the room that the next one needs, and would let whoever waits hope for more. Should that fail, the next
            // purge tries again, and tells.
            let _ = self.trash.purge();
        }
        result
    }

    /// Keeps what came of `work` where users can read it. Whether it failed in a way that trying again will not mend.
    fn note_result(&self, state: &mut State, work: &Work, result: &mut Result<FileChanges>) -> bool {
        // Of a family that was dropped nothing is tried again, and nobody would ask: its error would stay.
        if work.family().is_some_and(Family::is_dropped) {
            *result = Ok(FileChanges::default());
        }
        let error = result.as_ref().err().cloned();
        let is_beyond_help = match &error {
            Some(error) => state.is_beyond_help(work, error),
            None => {
                state.failing.retain(|file, _| !work.reads(*file));
                false
            }
        };
        match work {
            Work::Flush(plan) if error.is_some() || plan.is_done() => state.flush_error = error,
            // What met damage is kept elsewhere: it is not tried again, so whoever waits has what else is to be done.
            Work::Compaction(..) | Work::Relocation(..) | Work::Punch(_) => {
                state.compaction_error = error.filter(|_| !is_beyond_help);
            }
            Work::Purge => state.upkeep_error = error,
            Work::Removal(plan) if !plan.is_asked_for => state.compaction_error = error,
            // They keep their failures themselves, or whoever asked for them is told.
            Work::Flush(_) | Work::Removal(_) | Work::Part(_) | Work::Sync(_) | Work::Options => {}
            // Whoever needs the log makes it then, and is told.
            Work::Log => {}
        }
        self.changed.notify_all();
        is_beyond_help
    }

    /// Gives the claims of `work` back, or lets it rest with them (G4) if it `is_beyond_help`.
    fn release_work(&self, state: &mut State, work: Work, result: &Result<FileChanges>, is_beyond_help: bool) {
        match work {
            Work::Flush(plan) => plan.release(state),
            Work::Compaction(plan, _) => {
                state.compacting -= 1;
                plan.has_written();
                state.last_compacted = plan.family.id;
                match result {
                    Err(error) if is_beyond_help && plan.is_sweep => {
                        plan.set_claimed(false);
                        state.to_compact.insert(plan.family.id);
                        state.note_damaged_sweep(&plan, error);
                    }
                    Err(error) if is_beyond_help && state.note_damage_at_home(&plan, error) => {
                        plan.set_claimed(false);
                        state.to_compact.insert(plan.family.id);
                    }
                    Err(error) if is_beyond_help => state.resting.push(Resting { plan, error: error.clone() }),
                    _ => {
                        plan.set_claimed(false);
                        state.to_compact.insert(plan.family.id);
                    }
                }
            }
            Work::Relocation(plan, _) => {
                state.compacting -= 1;
                state.last_compacted = plan.family.id;
                plan.set_claimed(false);
                state.to_compact.insert(plan.family.id);
                if let Err(error) = result
                    && is_beyond_help
                {
                    state.note_damaged_pass(&plan, error);
                }
            }
            Work::Punch(plan) => {
                plan.look_again_if_refused();
                state.compacting -= 1;
                state.last_compacted = plan.family.id;
                state.to_compact.insert(plan.family.id);
                if let Err(error) = result
                    && is_beyond_help
                {
                    // It is not tried again before there is more to gain.
                    state.blob_damage.get_or_insert_with(|| error.clone());
                }
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
            Work::Options => state.writing_options = false,
            Work::Sync(_) => {}
        }
        // What others at work still read, they hold themselves.
        if state.compacting == 0 && state.helping == 0 {
            self.room.note_held(self.trash.held_bytes());
        }
        self.changed.notify_all();
    }

    /// Claims the tables of `plan`, runs it on this thread and gives them back.
    pub(crate) fn claim_and_run(&self, mut state: MutexGuard<'_, State>, plan: Relocation) -> Result<FileChanges> {
        self.claim_and_run_work(&mut state, Work::relocation(plan, &self.room))
    }

    /// Makes holes on this thread.
    pub(crate) fn claim_and_punch(&self, mut state: MutexGuard<'_, State>, plan: Punch) -> Result<FileChanges> {
        self.claim_and_run_work(&mut state, Work::Punch(plan))
    }

    /// The same for tables that go.
    pub(crate) fn claim_and_remove(&self, mut state: MutexGuard<'_, State>, plan: Removal) -> Result<()> {
        self.claim_and_run_work(&mut state, Work::Removal(plan)).map(drop)
    }

    /// The same for a compaction.
    pub(crate) fn claim_and_compact(&self, mut state: MutexGuard<'_, State>, plan: compaction::Plan) -> Result<()> {
        self.claim_and_run_work(&mut state, Work::compaction(plan, &self.room)).map(drop)
    }

    fn claim_and_run_work(&self, state: &mut MutexGuard<'_, State>, work: Work) -> Result<FileChanges> {
        work.claim_tables(state);
        let mut result = MutexGuard::unlocked(state, || self.run_work(&work));
        let is_beyond_help = self.note_result(state, &work, &mut result);
        self.release_work(state, work, &result, is_beyond_help);
        result
    }

    /// What a background thread does until the store closes.
    pub(crate) fn work_until_closed(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            let Some(work) = self.pick_work(&mut state) else {
                // Whoever drops the last reader of an obsolete file wakes nobody: look for it now and then.
                let is_soon = !state.crowded.is_empty() || !state.once_calm.is_empty();
                let looks_again = is_soon && state.compacting == 0 && self.check_writable().is_ok();
                let waited = self.changed.wait_for(&mut state, if looks_again { QUIET } else { TICK });
                if waited.timed_out() {
                    // Others may be about to fill the disk.
                    MutexGuard::unlocked(&mut state, || self.room.keep_ballast());
                }
                continue;
            };
            drop(state);
            let mut result = self.run_work(&work);
            state = self.state.lock();
            let is_beyond_help = self.note_result(&mut state, &work, &mut result);
            // Its claims are kept meanwhile, so that nobody else tries it either.
            if result.is_err() && !is_beyond_help && !state.closing {
                self.closing.wait_for(&mut state, RETRY_PAUSE);
            }
            self.release_work(&mut state, work, &result, is_beyond_help);
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
        self.commit.exclusive(Lead::end);
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
            let mut result = self.run_work(&work);
            let mut state = self.state.lock();
            let is_beyond_help = self.note_result(&mut state, &work, &mut result);
            self.release_work(&mut state, work, &result, is_beyond_help);
            drop(state);
            match result {
                Err(error) if is_flush => return Err(error),
                Err(_) if !is_purge && !is_beyond_help => return Ok(()),
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
        (state.upkeep_error, state.options_error) = (None, None);
        let result = self.do_all(&mut state).map_err(|error| error.while_doing("waiting for compactions"));
        state.awaited -= 1;
        result
    }

    /// Until nothing is due and nobody is at work; takes part in it.
    fn do_all(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        loop {
            self.check_writable()?;
            if let Some(error) = state.transient_error() {
                return Err(error.clone());
            }
            if let Some(work) = self.pick_work(state) {
                let mut result = MutexGuard::unlocked(state, || self.run_work(&work));
                let is_beyond_help = self.note_result(state, &work, &mut result);
                self.release_work(state, work, &result, is_beyond_help);
            } else if state.makes_files() || state.helping > 0 || state.is_tidying() || !state.manual.is_empty() {
                self.changed.wait_for(state, QUIET);
            } else {
                let resting = state.resting.first().map(|resting| resting.error.clone());
                return resting.or_else(|| state.blob_damage.clone()).map_or(Ok(()), Err);
            }
        }
    }

    /// Whether the error of background work leaves the store able to go on once its cause is mended.
    pub(crate) fn background_error(&self) -> Option<Error> {
        let state = self.state.lock();
        let resting = || state.resting.first().map(|resting| resting.error.clone());
        let transient = state.transient_error().cloned().or_else(resting);
        let transient = transient.or_else(|| state.blob_damage.clone());
        drop(state);
        self.failure().or(transient).filter(|error| error.kind() != ErrorKind::Closed)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("without a word");
    let reason = format!("background work panicked ({message}); report it, and reopen the store");
    Error::new(ErrorKind::ReadOnly, reason)
}
