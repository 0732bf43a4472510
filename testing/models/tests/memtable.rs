//! Threads add to a memtable and read it, in thousands of schedules. An entry that is lost, met out of order or not written to its
//! end shows in some of them; that each is met by whom it was told shows in all.

use std::sync::Arc;

use esker_models::List;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

/// Goal: nothing that was added is lost, and all is in order, whoever adds beside whom: to the same gap, at the end, everywhere.
#[test]
fn no_schedule_loses_an_entry_or_its_order() {
    let schedule = || {
        let list = Arc::new(List::default());
        let adders: Vec<_> = [[1, 9, 5], [2, 10, 6], [3, 8, 11]]
            .into_iter()
            .map(|keys| {
                let list = list.clone();
                thread::spawn(move || {
                    for key in keys {
                        list.insert(key);
                        assert_eq!(list.first_at_or_after(key), Some(key), "its own");
                        assert_eq!(list.last_at_or_before(key), Some(key), "its own, from the top");
                    }
                })
            })
            .collect();
        for adder in adders {
            adder.join().unwrap();
        }
        let expected = [1, 2, 3, 5, 6, 8, 9, 10, 11];
        assert_eq!(list.keys(), expected);
        for key in 0..12 {
            let after = expected.iter().find(|other| **other >= key).copied();
            let before = expected.iter().rev().find(|other| **other <= key).copied();
            assert_eq!((list.first_at_or_after(key), list.last_at_or_before(key)), (after, before));
        }
    };
    shuttle::check_random(schedule, 1500);
    shuttle::check_pct(schedule, 1500, 3);
}

/// Goal: a reader meets whatever was added before it began, in order, and of the rest only what is whole.
#[test]
fn a_reader_meets_all_that_was_added_before_it_began() {
    let schedule = || {
        let list = Arc::new(List::default());
        // How many of the rising keys were added.
        let told = Arc::new(AtomicU64::new(0));
        let (adding, telling) = (list.clone(), told.clone());
        let rising = thread::spawn(move || {
            for key in 1..=6 {
                adding.insert(key * 10);
                telling.store(key, Ordering::Release);
            }
        });
        let adding = list.clone();
        let between = thread::spawn(move || [35, 15, 5].into_iter().for_each(|key| adding.insert(key)));
        for _ in 0..3 {
            let least = told.load(Ordering::Acquire);
            let met = list.keys();
            assert!(met.is_sorted_by(|one, other| one < other), "{met:?}");
            assert!((1..=least).all(|key| met.contains(&(key * 10))), "{met:?} lacks one of {least}");
            if let Some(last) = least.checked_sub(1) {
                assert!(list.first_at_or_after(last * 10 + 6).is_some_and(|found| found <= (last + 1) * 10));
            }
        }
        rising.join().unwrap();
        between.join().unwrap();
    };
    shuttle::check_random(schedule, 1500);
    shuttle::check_pct(schedule, 1500, 3);
}
