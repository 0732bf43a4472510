//! Tables whose indexes and filters may go when the memory of a store is limited: a clock.
//!
//! Cost: nothing for whoever reads; whoever has an index read again passes tables until there is room.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Fewer are not worth a look.
const SWEPT_MIN: usize = 64;

/// Something that keeps memory of the budget.
pub(crate) trait Evict: Send + Sync {
    /// Gives the memory back, unless it was used since the last call; whether it did. Who uses it right now keeps it for as long.
    fn evict(&self) -> bool;
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Residents(Mutex<Clock>);

#[derive(Default)]
struct Clock {
    tables: Vec<Weak<dyn Evict>>,
    hand: usize,
    /// Once there are so many, those that are gone are let go of.
    sweep_at: usize,
}

impl Residents {
    pub(super) fn watch(&self, table: Weak<dyn Evict>) {
        let mut clock = self.0.lock();
        if clock.tables.len() >= clock.sweep_at {
            clock.tables.retain(|table| table.strong_count() > 0);
            clock.sweep_at = (2 * clock.tables.len()).max(SWEPT_MIN);
        }
        clock.tables.push(table);
    }

    /// Evicts one after the other, those first that were not used since they were passed last, while `is_over` says so.
    pub(super) fn evict_while(&self, is_over: impl Fn() -> bool) {
        if !is_over() {
            return;
        }
        // Dropped behind the lock: the last holder of a table does more than give back memory.
        let mut passed: Vec<Arc<dyn Evict>> = Vec::new();
        let mut clock = self.0.lock();
        // In the first round all may have been used.
        let mut left = 2 * clock.tables.len();
        while left > 0 && is_over() {
            left -= 1;
            let hand = if clock.hand < clock.tables.len() { clock.hand } else { 0 };
            clock.hand = hand + 1;
            match clock.tables.get(hand).map(Weak::upgrade) {
                Some(Some(table)) => {
                    table.evict();
                    passed.push(table);
                }
                Some(None) => {
                    clock.tables.swap_remove(hand);
                    clock.hand = hand;
                }
                None => break,
            }
        }
        drop(clock);
        drop(passed);
    }
}

impl std::fmt::Debug for Residents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Residents").field(&self.0.lock().tables.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    struct Table {
        used: AtomicBool,
        is_there: AtomicBool,
        there: Arc<AtomicUsize>,
    }

    impl Evict for Table {
        fn evict(&self) -> bool {
            if self.used.swap(false, Ordering::Relaxed) || !self.is_there.swap(false, Ordering::Relaxed) {
                return false;
            }
            self.there.fetch_sub(1, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn those_that_were_not_used_go_first_and_no_more_than_must() {
        let there = Arc::new(AtomicUsize::new(10));
        let table = |_| {
            let (used, is_there) = (AtomicBool::new(false), AtomicBool::new(true));
            Arc::new(Table { used, is_there, there: there.clone() })
        };
        let tables: Vec<Arc<Table>> = (0..10).map(table).collect();
        let residents = Residents::default();
        for table in &tables {
            let table: Weak<Table> = Arc::downgrade(table);
            residents.watch(table);
        }
        let used = [1, 4, 5];
        used.iter().for_each(|&at| tables[at].used.store(true, Ordering::Relaxed));
        residents.evict_while(|| there.load(Ordering::Relaxed) > 4);
        let kept: Vec<usize> = (0..10).filter(|&at| tables[at].is_there.load(Ordering::Relaxed)).collect();
        assert_eq!(kept, [1, 4, 5, 9]);
        residents.evict_while(|| there.load(Ordering::Relaxed) > 4);
        assert_eq!(there.load(Ordering::Relaxed), 4);
        // All in use, and yet there must be room.
        tables.iter().for_each(|table| table.used.store(true, Ordering::Relaxed));
        residents.evict_while(|| there.load(Ordering::Relaxed) > 2);
        assert_eq!(there.load(Ordering::Relaxed), 2);
        // Those that went where there always was room are forgotten, too.
        let gone = || Arc::downgrade(&table(0)) as Weak<dyn Evict>;
        (0..1000).for_each(|_| residents.watch(gone()));
        assert!(residents.0.lock().tables.len() <= 10 + SWEPT_MIN);
        drop(tables);
        residents.evict_while(|| true);
        assert!(residents.0.lock().tables.is_empty(), "what was closed is forgotten");
    }
}
