//! Background work: one thread seals, prepares and syncs files, another merges them.
//!
//! - G1: failed work is kept as state that users can read (B8) and tried again after a pause.
//! - G2: without threads (`background_jobs` = 0) the same work is done by whoever made it necessary, after the write it came
//!   with was acknowledged; what fails is kept in the same place and is no failure of the write.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::seal::Wanted;
use crate::store::Store;
use crate::{ErrorKind, Result};

/// How long failed work rests before it is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long a thread sleeps when nobody wakes it.
const IDLE: Duration = Duration::from_secs(1);

impl Store {
    /// A write has made work necessary: somebody does it.
    #[cold]
    pub(crate) fn do_or_leave_work(&self) {
        if self.options.background_jobs == 0 {
            if self.is_work_due.swap(false, Ordering::AcqRel) {
                let _ = self.run_due_work();
            }
        } else {
            // The threads were woken. Too much left over is done here.
            let _ = self.help_sealing();
        }
    }

    /// Does everything that is due, on this thread.
    ///
    /// # Errors
    /// The first failure, which is kept as state too.
    pub(crate) fn run_due_work(&self) -> Result<()> {
        while self.seal_one()? {}
        self.merge_while_due().map(drop)
    }

    /// What the sealing thread does until the store closes.
    pub(crate) fn keep_files(&self) {
        self.keep(false);
    }

    /// The same, where there is one thread for everything.
    pub(crate) fn keep_everything(&self) {
        self.keep(true);
    }

    fn keep(&self, merges_too: bool) {
        let sync_interval = Duration::from_millis(self.options.sync_interval_ms);
        let merge_interval = Duration::from_millis(self.options.merge_interval_ms);
        let mut idle = if sync_interval.is_zero() { IDLE } else { sync_interval };
        if merges_too {
            idle = idle.min(merge_interval);
        }
        let mut merged_at = None;
        loop {
            let mut failed = self.seal_and_prepare().is_err();
            let now = self.env.clock.monotonic();
            let is_time = merged_at.is_none_or(|at| now.saturating_sub(at) >= merge_interval);
            if merges_too && !failed && (std::mem::take(&mut self.state.lock().merge_is_due) || is_time) {
                failed = self.merge_while_due().is_err();
                // What failed is tried again.
                merged_at = (!failed).then_some(now);
            }
            self.sync_if_due();
            let mut state = self.state.lock();
            if state.is_closing {
                return;
            }
            if failed {
                self.changed.wait_for(&mut state, RETRY_PAUSE);
            } else if state.retired.is_empty()
                && state.reserved.len() >= state.wanted
                && !(merges_too && state.merge_is_due)
            {
                self.changed.wait_for(&mut state, idle);
            }
        }
    }

    /// Looks at the clock for `sync_interval_ms`, whatever else its thread is in the middle of.
    pub(crate) fn sync_if_due(&self) {
        let interval = Duration::from_millis(self.options.sync_interval_ms);
        if interval.is_zero() {
            return;
        }
        let now = self.env.clock.monotonic();
        let mut synced_at = self.synced_at.lock();
        if now.saturating_sub(*synced_at) >= interval {
            *synced_at = now;
            drop(synced_at);
            // A failed sync makes the store refuse writes, which is where it is told.
            let _ = self.sync_all();
        }
    }

    fn seal_and_prepare(&self) -> Result<()> {
        if self.check_writable().is_err() {
            return Err(crate::Error::new(ErrorKind::Closed, "nothing is written any more"));
        }
        self.prepare_one()?;
        while self.seal_one()? {
            self.prepare_one()?;
            self.sync_if_due();
        }
        Ok(())
    }

    /// Makes a file that will be wanted soon.
    fn prepare_one(&self) -> Result<()> {
        let state = self.state.lock();
        if state.reserved.len() >= state.wanted {
            return Ok(());
        }
        drop(state);
        let prepared = self.create_active(Wanted { bytes: 0, adds: true });
        let mut state = self.state.lock();
        match prepared {
            Ok(file) => state.reserved.push(file),
            // Whoever needs it will make it, or be told: nothing is left undone.
            Err(_) => state.wanted = 0,
        }
        Ok(())
    }

    /// What the merging thread does until the store closes.
    pub(crate) fn keep_merging(&self) {
        let interval = Duration::from_millis(self.options.merge_interval_ms);
        loop {
            let failed = self.check_writable().is_ok() && self.merge_while_due().is_err();
            let mut state = self.state.lock();
            if state.is_closing {
                return;
            }
            if failed {
                self.changed.wait_for(&mut state, RETRY_PAUSE);
            } else if !std::mem::take(&mut state.merge_is_due) {
                self.changed.wait_for(&mut state, interval);
            }
        }
    }

    /// Whether background work should end as soon as it can.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }
}
