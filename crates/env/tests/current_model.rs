//! Looks and replacements over a model of locks and atomics: shuttle runs thousands of schedules.
//!
//! The file under test is compiled a second time here, over [`sync`] below. Shuttle's atomics are in one order for all threads, so the barrier
//! has nothing to do; what it does on real processors is the system's promise.

#![cfg(test)]
#![deny(unsafe_code)]

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

#[path = "../src/os/current.rs"]
#[expect(unreachable_pub, reason = "a part of another crate's source")]
mod current;

use current::Current;

mod barrier {
    #[derive(Debug, Clone, Copy)]
    pub(super) struct Barrier;

    impl Barrier {
        pub(super) const fn new() -> Self {
            Self
        }

        pub(super) const fn pass(self) {}

        pub(super) const fn pass_seldom(self) -> bool {
            true
        }
    }
}

mod seat {
    use shuttle::thread;

    /// Threads of the model are numbered from 0 in every schedule. Those from this on have none.
    pub(super) const SEATED: usize = 4;

    pub(super) fn number() -> Option<usize> {
        Some(usize::from(thread::current().id())).filter(|number| *number < SEATED)
    }
}

mod sync {
    use shuttle::sync::MutexGuard;
    pub(super) use shuttle::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    #[derive(Debug, Default)]
    pub(super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(super) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(super) fn rest(_: &mut u32) {
        shuttle::thread::yield_now();
    }
}

struct Live {
    number: usize,
    gone: Arc<[AtomicBool; VALUES]>,
}

const VALUES: usize = 5;

impl Drop for Live {
    fn drop(&mut self) {
        self.gone[self.number].store(true, Ordering::SeqCst);
    }
}

/// Goal (C2 to C4): in no schedule is a value gone while somebody looks at it, with a seat, without, or within another look; and when a
/// replacement is over, the former value is gone.
#[test]
fn in_no_schedule_is_a_value_gone_that_somebody_looks_at() {
    let schedule = || {
        let gone: Arc<[AtomicBool; VALUES]> = Arc::default();
        let live = |number| Arc::new(Live { number, gone: gone.clone() });
        let current = Arc::new(Current::new(live(0)));
        let look = |nested: bool| {
            let (current, gone) = (current.clone(), gone.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    current.look(|live| {
                        let number = live.number;
                        assert!(!gone[number].load(Ordering::SeqCst), "gone before the look");
                        if nested {
                            let inner = current.look(|live| live.number);
                            assert!(!gone[inner].load(Ordering::SeqCst) || inner != number);
                            assert!(!gone[number].load(Ordering::SeqCst), "gone within a look within a look");
                        }
                        thread::yield_now();
                        assert!(!gone[number].load(Ordering::SeqCst), "gone in the midst of the look");
                    });
                }
            })
        };
        // The main thread is 0; the last of these has no seat.
        let mut threads = vec![look(false), look(true)];
        threads.push({
            let (current, next) = (current.clone(), [live(1), live(2)]);
            thread::spawn(move || next.into_iter().for_each(|value| current.replace(value)))
        });
        threads.push(look(false));
        current.replace(live(3));
        for thread in threads {
            thread.join().unwrap();
        }
        current.replace(live(4));
        assert!(gone.iter().take(4).all(|gone| gone.load(Ordering::SeqCst)), "all but the last are gone");
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}
