//! Group commit over a model of the locks: shuttle runs thousands of schedules, and a lost wake-up shows as a deadlock.
//!
//! The file under test is compiled a second time here, over [`sync`] below instead of the real locks.

#![cfg(test)]

use std::sync::Arc;

pub(crate) use esker_log::{Error, ErrorKind, Result};
use shuttle::thread;

#[path = "../src/commit.rs"]
#[expect(unreachable_pub, reason = "a part of another crate's source")]
mod commit;

use commit::CommitQueue;

/// The face of `parking_lot`, as far as it is used, on shuttle's locks.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, MutexGuard};
    pub(crate) use shuttle::thread_local;

    /// A schedule in which somebody looks and finds nothing is one in which it did not look.
    pub(crate) fn look_for(_: impl Fn() -> bool) {}

    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap()
    }
}

#[test]
fn no_schedule_loses_a_wake_up_a_request_or_the_order() {
    let schedule = || {
        let queue = Arc::new(CommitQueue::new(Vec::<(u8, u8)>::new()));
        let writers: Vec<_> = (0..3u8)
            .map(|number| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for index in 0..3u8 {
                        let write = |written: &mut Vec<(u8, u8)>, group: &mut Vec<(u8, u8)>| {
                            thread::yield_now();
                            written.append(group);
                            Ok(())
                        };
                        queue.submit((number, index), |_| 1, 2, write).unwrap();
                        if number == 0 {
                            queue.exclusive(|written| written.retain(|(number, _)| *number != 9));
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let written = queue.exclusive(std::mem::take);
        for number in 0..3 {
            let own: Vec<u8> = written.iter().filter(|(other, _)| *other == number).map(|(_, index)| *index).collect();
            assert_eq!(own, [0, 1, 2]);
        }
        assert_eq!(written.len(), 9);
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}

#[test]
fn in_no_schedule_does_a_late_comer_overtake_one_who_waits() {
    let schedule = || {
        let queue = Arc::new(CommitQueue::new(Vec::<&str>::new()));
        let join = |name: &'static str| {
            let queue = queue.clone();
            move || {
                let write = |written: &mut Vec<&'static str>, group: &mut Vec<&'static str>| {
                    written.append(group);
                    Ok(())
                };
                queue.submit(name, |_| 1, 1, write).unwrap();
            }
        };
        let (tell, told) = shuttle::sync::mpsc::channel();
        let held = queue.clone();
        let holder = thread::spawn(move || {
            held.exclusive(|_| {
                tell.send("held").unwrap();
                while held.waiting_count() == 0 {
                    thread::yield_now();
                }
                tell.send("early waits").unwrap();
            });
        });
        told.recv().unwrap();
        let early = thread::spawn(join("early"));
        told.recv().unwrap();
        join("late")();
        holder.join().unwrap();
        early.join().unwrap();
        assert_eq!(queue.exclusive(std::mem::take), ["early", "late"]);
    };
    shuttle::check_random(schedule, 2000);
}
