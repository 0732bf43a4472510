//! Background work: threads that pick, run and install flushes and compactions, flushes first.
//!
//! - G1: work is picked and claimed in one step under `state`, and released there, whatever came of it.
//! - G2: failed work is kept as state that users can read (B8) and tried again after a pause; writers that would wait
//!   for it get its error instead.
//! - G3: without threads (`background_jobs` = 0) the same work is done by whoever made it necessary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::pacer::{Debt, WriteDelay};

use crate::compaction::{self, Levels};
use crate::family::Family;
use crate::flush;
use crate::store::{State, Store};
use crate::{ErrorKind, Result};

/// How long failed work rests before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
enum Work {
    Flush(flush::Plan),
    Compaction(compaction::Plan),
    Purge,
}

impl Store {
    /// The most urgent work that nobody does yet; claimed.
    fn pick_work(&self, state: &mut State) -> Option<Work> {
        if self.check_writable().is_err() {
            return None;
        }
        let families = self.families.load();
        if let Some(plan) = flush::pick(families.values(), &state.flushing) {
            plan.claim(state);
            return Some(Work::Flush(plan));
        }
        if self.trash.is_filled() {
            return Some(Work::Purge);
        }
        // One thread stays free for flushes, where there is more than one.
        if state.compacting > 0 && state.compacting + 1 >= self.options.background_jobs {
            return None;
        }
        let free = |family: &&Arc<Family>| !family.is_dropped() && !state.manual.contains(&family.id);
        // In turn, so that a family whose compaction fails starves no other.
        let last = state.last_compacted;
        let in_turn = families.range(last.saturating_add(1)..).chain(families.range(..=last));
        let plan = in_turn.map(|(_, family)| family).filter(free).find_map(compaction::pick)?;
        plan.set_claimed(true);
        state.compacting += 1;
        Some(Work::Compaction(plan))
    }

    fn run_work(&self, work: &Work) -> Result<()> {
        match work {
            Work::Flush(plan) => self.run_flush(plan),
            Work::Compaction(plan) => self.run_compaction(plan),
            Work::Purge => self.trash.purge(),
        }
    }

    /// Keeps what came of `work` where users can read it.
    fn note_result(&self, state: &mut State, work: &Work, result: &Result<()>) {
        let error = result.as_ref().err().cloned();
        match work {
            Work::Flush(_) => state.flush_error = error,
            Work::Compaction(_) | Work::Purge => state.compaction_error = error,
        }
        self.changed.notify_all();
    }

    /// Gives the claims of `work` back.
    fn release_work(&self, state: &mut State, work: &Work) {
        match work {
            Work::Flush(plan) => plan.release(state),
            Work::Compaction(plan) => {
                plan.set_claimed(false);
                state.compacting -= 1;
                state.last_compacted = plan.family.id;
            }
            Work::Purge => {}
        }
        self.changed.notify_all();
    }

    /// What a background thread does until the store closes.
    pub(crate) fn work_until_closed(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            let Some(work) = self.pick_work(&mut state) else {
                // Whoever drops the last reader of an obsolete file wakes nobody: look for it now and then.
                self.changed.wait_for(&mut state, Duration::from_secs(1));
                continue;
            };
            drop(state);
            let result = self.run_work(&work);
            state = self.state.lock();
            self.note_result(&mut state, &work, &result);
            // Its claims are kept meanwhile, so that nobody else tries it either.
            if result.is_err() && !state.closing {
                self.closing.wait_for(&mut state, RETRY_PAUSE);
            }
            self.release_work(&mut state, &work);
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
        while state.compacting > 0 || !state.flushing.is_empty() {
            self.changed.wait_for(&mut state, Duration::from_millis(50));
        }
    }

    /// Does everything that is due, on this thread.
    ///
    /// # Errors
    /// The first failure; what it concerns is tried again the next time.
    pub(crate) fn run_due_work(&self) -> Result<()> {
        loop {
            let Some(work) = self.pick_work(&mut self.state.lock()) else {
                return Ok(());
            };
            let result = self.run_work(&work);
            let mut state = self.state.lock();
            self.note_result(&mut state, &work, &result);
            self.release_work(&mut state, &work);
            drop(state);
            // A file that stays is no reason to refuse a write.
            if !matches!(work, Work::Purge) {
                result?;
            }
        }
    }

    /// Works out how fast writers may write now. Called whenever a view has changed.
    pub(crate) fn refresh_delay(&self) {
        if self.options.background_jobs == 0 {
            return;
        }
        let families = self.families.load();
        let rates = families.values().filter_map(|family| self.family_rate(family));
        self.delayed_rate.store(rates.min().unwrap_or(0), Ordering::Relaxed);
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
        drop(state);
        let result = self.compact_levels(family, begin, end);
        self.state.lock().manual.retain(|&id| id != family.id);
        self.changed.notify_all();
        result?;
        // What was replaced goes now: space is what manual compactions are for.
        self.trash.purge_again()?;
        if self.options.background_jobs == 0 { self.run_due_work() } else { Ok(()) }
    }

    fn compact_levels(&self, family: &Arc<Family>, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        let deepest = family.view.load().version.deepest_level().max(1);
        for level in 0..deepest {
            let mut after: Option<Vec<u8>> = None;
            loop {
                self.check_writable()?;
                let mut state = self.state.lock();
                let after_key = after.as_deref();
                let Some(plan) = compaction::pick_range(family, level, begin, end, after_key) else {
                    // An automatic compaction that began before may have some of it, here or in the level below.
                    if state.compacting > 0 && compaction::is_left_in_range(family, level, begin, end, after_key) {
                        self.changed.wait_for(&mut state, Duration::from_millis(100));
                        continue;
                    }
                    break;
                };
                plan.set_claimed(true);
                state.compacting += 1;
                drop(state);
                after = plan.upper.last().map(|table| table.largest().to_vec());
                let work = Work::Compaction(plan);
                let result = self.run_work(&work);
                let mut state = self.state.lock();
                self.note_result(&mut state, &work, &result);
                self.release_work(&mut state, &work);
                drop(state);
                result?;
                if level == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether the error of background work leaves the store able to go on once its cause is mended.
    pub(crate) fn background_error(&self) -> Option<crate::Error> {
        let state = self.state.lock();
        let transient = state.flush_error.clone().or_else(|| state.compaction_error.clone());
        drop(state);
        self.failure().or(transient).filter(|error| error.kind() != ErrorKind::Closed)
    }
}
