//! How fast writers may write while background work falls behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_log::pacer::{Debt, WriteDelay};

use crate::compaction::Levels;
use crate::events::EventKind;
use crate::family::{Family, View};
use crate::options::{FamilyOptions, Options};
use crate::store::Store;

impl Store {
    /// Whether writers are held back until compactions are done.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed_rate.load(Ordering::Relaxed) > 0
    }

    /// Works out how fast writers may write now. Called whenever a view of `family`, or an option, has changed.
    pub(crate) fn refresh_delay(&self, family: &Family) {
        if self.background_jobs == 0 {
            return;
        }
        loop {
            let grounds = self.grounds(family);
            if self.note_rate(family, &grounds, grounds.rate()) {
                return;
            }
        }
    }

    fn grounds(&self, family: &Family) -> Grounds {
        let (of_family, of_store) = (family.options().clone(), self.options().clone());
        Grounds { view: family.view.load_full(), of_family, of_store }
    }

    /// Writers may write so fast on such `grounds`. `false` if there are others by now.
    ///
    /// Whoever changes a view or an option, or drops the family, notes the rate after that: so of two who note it, the later one sees what has changed.
    fn note_rate(&self, family: &Family, grounds: &Grounds, rate: Option<u64>) -> bool {
        let mut state = self.state.lock();
        if !grounds.are_those_of(&self.grounds(family)) {
            return false;
        }
        match rate.filter(|_| !family.is_dropped()) {
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
        true
    }
}

/// What a rate is worked out from.
struct Grounds {
    view: Arc<View>,
    of_family: Arc<FamilyOptions>,
    of_store: Arc<Options>,
}

impl Grounds {
    fn are_those_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.view, &other.view)
            && Arc::ptr_eq(&self.of_family, &other.of_family)
            && Arc::ptr_eq(&self.of_store, &other.of_store)
    }

    fn rate(&self) -> Option<u64> {
        let Self { view, of_family: options, of_store } = self;
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
        WriteDelay { bytes_per_second_min: of_store.delayed_write_bytes_per_second_min }.rate(&debt)
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use crate::{Db, FamilyOptions, Options};

    /// Goal: a family that was dropped, or has other options, holds no writer back, though somebody worked out that it does just before, and says so after.
    #[test]
    fn a_rate_that_comes_too_late_is_not_noted() {
        let options = Options { create_if_missing: true, background_jobs: 1, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let (store, slow) = (db.store(), 1 << 20);
        let handle = db.create_column_family("a", FamilyOptions::default()).unwrap();
        let family = store.own(&handle).unwrap();
        let grounds = store.grounds(family);
        assert!(store.note_rate(family, &grounds, Some(slow)) && store.is_delayed());
        store.refresh_delay(family);
        assert!(!store.is_delayed(), "it has nothing to be slow for");
        db.set_options(&handle, |options| options.level0_stop_trigger += 1).unwrap();
        assert!(!store.note_rate(family, &grounds, Some(slow)) && !store.is_delayed());
        let grounds = store.grounds(family);
        db.set_db_options(|options| options.delayed_write_bytes_per_second_min += 1).unwrap();
        assert!(!store.note_rate(family, &grounds, Some(slow)) && !store.is_delayed());

        let grounds = store.grounds(family);
        db.drop_column_family(&handle).unwrap();
        assert!(store.note_rate(family, &grounds, Some(slow)));
        assert!(!store.is_delayed() && store.state.lock().rates.is_empty());
    }
}
