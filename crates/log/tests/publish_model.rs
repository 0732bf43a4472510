//! Showing in order, over a model of locks and atomics: shuttle runs thousands of schedules, and a lost wake-up shows as a deadlock.
//!
//! The file under test is compiled a second time here, over [`sync`] below instead of the real locks.

#![cfg(test)]

use std::sync::Arc;

pub(crate) use esker_log::{Error, ErrorKind, Result};
use shuttle::thread;

#[path = "../src/publish.rs"]
#[expect(unreachable_pub, dead_code, reason = "a part of another crate's source")]
mod publish;

use publish::Published;

/// The faces of `parking_lot` and of the standard library's atomics, as far as they are used, on shuttle's.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, MutexGuard, atomic};

    /// A schedule in which somebody looks and finds nothing is one in which it did not look.
    pub(crate) const SPIN_COUNT: u32 = 0;

    pub(crate) fn give_way_for(_: impl Fn() -> bool) -> bool {
        false
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap()
    }
}

#[test]
fn no_schedule_shows_a_range_before_those_before_it_or_loses_a_wake_up() {
    let schedule = || {
        let published = Arc::new(Published::new(0));
        let in_place = Arc::new(shuttle::sync::Mutex::new([false; 4]));
        let writers: Vec<_> = (0..4u64)
            .map(|index| {
                let (published, in_place) = (published.clone(), in_place.clone());
                thread::spawn(move || {
                    in_place.lock().unwrap()[index as usize] = true;
                    published.publish(index * 2, index * 2 + 2).unwrap();
                    assert!(published.get() >= index * 2 + 2, "who was shown is shown");
                })
            })
            .collect();
        let reader = thread::spawn(move || {
            let mut last = 0;
            for wanted in [2, 6, 8] {
                published.wait_for(wanted).unwrap();
                let shown = published.get();
                assert!(shown >= last.max(wanted), "the number never goes back");
                let in_place = in_place.lock().unwrap();
                assert!(in_place[..shown as usize / 2].iter().all(|there| *there), "shown before it was in place");
                last = shown;
            }
        });
        for thread in writers.into_iter().chain([reader]) {
            thread.join().unwrap();
        }
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}

#[test]
fn in_no_schedule_does_anybody_wait_for_a_range_that_never_comes() {
    let schedule = || {
        let published = Arc::new(Published::new(0));
        let wait = |number| {
            let published = published.clone();
            thread::spawn(move || published.wait_for(number).is_ok())
        };
        let (shown, never) = (wait(1), wait(3));
        let broken = published.clone();
        let breaker = thread::spawn(move || broken.break_off());
        published.publish(0, 1).unwrap();
        breaker.join().unwrap();
        assert!(!never.join().unwrap(), "what was broken off is shown");
        // Shown before or after: who waited for it may have been told either.
        let _ = shown.join().unwrap();
        assert_eq!(published.get(), 1);
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}
