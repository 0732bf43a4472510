//! A value that is replaced while others look at it, on real threads. Every schedule of a few: `current_model.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_env::os::Current;

/// More threads than have a seat.
const MANY: usize = 68;

/// Seats are the process': beside a test that takes all of them, another's threads keep what they look at longer than they say.
static SEATS: Mutex<()> = Mutex::new(());

fn all_seats() -> MutexGuard<'static, ()> {
    SEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends those who look, also where a test fails: a scope waits for its threads.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Knows whether it is still there.
struct Live(u64, Arc<AtomicU64>);

impl Drop for Live {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Goal (C2, C3): a look sees one value from beginning to end, none older than one seen before, and by the time `replace` returns the former
/// one is gone. Under Miri, nobody touches what was freed.
#[test]
fn what_is_looked_at_stays_until_nobody_looks() {
    let _seats = all_seats();
    let dropped = Arc::new(AtomicU64::new(0));
    let current = Current::new(Arc::new(vec![Live(0, dropped.clone())]));
    let rounds = if cfg!(miri) { 40 } else { 3000 };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let (now, again) = current.look(|live| (live[0].0, live[0].0));
                    assert!(now == again && now >= last, "{now} after {last}, {again} a moment later");
                    last = now;
                }
            });
        }
        let _done = Done(&done);
        for round in 1..=rounds {
            current.replace(Arc::new(vec![Live(round, dropped.clone())]));
            assert_eq!(dropped.load(Ordering::Relaxed), round, "the former value, and no other, is gone");
        }
    });
}

/// Goal (C4): a look within a look sees the value, and what was loaded stays whatever comes after.
#[test]
fn looks_within_looks_and_kept_values_stay_good() {
    let _seats = all_seats();
    let current = Current::new(Arc::new(String::from("first")));
    let kept = current.look(|outer| current.look(|inner| (outer.clone(), inner.clone(), current.load())));
    current.replace(Arc::new(String::from("second")));
    assert_eq!((&*kept.0, &*kept.1, &**kept.2), ("first", "first", "first"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| current.look(|_| panic!("within a look"))));
    assert!(panicked.is_err());
    // Would wait for ever if the look had not ended.
    current.replace(Arc::new(String::from("third")));
    assert_eq!(current.look(String::clone), "third");
}

/// Goal: threads without a seat see what the others see.
#[test]
fn more_threads_than_seats_look() {
    let _seats = all_seats();
    let current = Current::new(Arc::new(7u64));
    let all_run = std::sync::Barrier::new(MANY);
    std::thread::scope(|scope| {
        let look = || {
            scope.spawn(|| {
                // Every thread has its number before the first gives its own back.
                assert_eq!(current.look(|value| *value), 7);
                all_run.wait();
                assert_eq!(current.look(|value| *value), 7);
            })
        };
        let threads: Vec<_> = (0..MANY).map(|_| look()).collect();
        // A scope ends before the threads have given their seats back; a join does not.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
