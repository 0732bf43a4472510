//! How fast writers may write while background work falls behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_log::pacer::{Debt, WriteDelay};

use crate::compaction::Levels;
use crate::events::EventKind;
use crate::family::{Family, View};
use crate::store::Store;

impl Store {
    /// Whether writers are held back until compactions are done.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed_rate.load(Ordering::Relaxed) > 0
    }

    /// Works out how fast writers may write now. Called whenever a view of `family` has changed.
    pub(crate) fn refresh_delay(&self, family: &Family) {
        if self.background_jobs == 0 {
            return;
        }
        let (mut state, rate) = loop {
            let view = family.view.load_full();
            let rate = if family.is_dropped() { None } else { self.view_rate(family, &view) };
            let state = self.state.lock();
            // Views change under `state`: of two who work it out, who has the older one goes again.
            if Arc::ptr_eq(&view, &family.view.load()) {
                break (state, rate);
            }
        };
        match rate {
            Some(rate) => state.rates.insert(family.id, rate),
            None => state.rates.remove(&family.id),
        };
        let rate = state.rates.values().min().copied();
        let before = self.delayed_rate.swap(rate.unwrap_or(0), Ordering::Relaxed);
        // Of two changes that are told at once, this says which came last.
        let moment = self.env.clock.monotonic();
        drop(state);
        if before != rate.unwrap_or(0) {
            self.tell_of(moment, EventKind::WriteRate(rate));
        }
    }

    fn view_rate(&self, family: &Family, view: &View) -> Option<u64> {
        let options = family.options();
        let debt = Debt {
            level0_tables: view.version.level(0).len(),
            level0_slowdown: options.level0_slowdown_trigger,
            level0_stop: options.level0_stop_trigger,
            pending_bytes: Levels::of(&view.version, &options).debt_bytes,
            pending_bytes_soft: options.pending_compaction_bytes_soft,
            pending_bytes_hard: options.pending_compaction_bytes_hard,
            sealed_memtables: view.sealed.len(),
            sealed_memtables_max: options.write_buffer_count_max,
        };
        WriteDelay { bytes_per_second_min: self.options().delayed_write_bytes_per_second_min }.rate(&debt)
    }
}
