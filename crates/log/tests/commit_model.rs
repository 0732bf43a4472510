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

use commit::{CommitQueue, Terms};

/// The face of `parking_lot`, as far as it is used, on shuttle's locks.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, MutexGuard};
    pub(crate) use shuttle::thread_local;

    /// Who waits twice meets every schedule that one who does so more often meets; time goes by whoever is told.
    pub(crate) struct Patience(u32);

    impl Patience {
        pub(crate) fn begin() -> Self {
            Self(0)
        }

        pub(crate) fn lasts(&self) -> bool {
            self.0 < 2
        }

        pub(crate) fn wait<'a, T>(
            &mut self,
            _: &Condvar,
            line: &'a Mutex<T>,
            guard: MutexGuard<'a, T>,
        ) -> MutexGuard<'a, T> {
            drop(guard);
            shuttle::thread::yield_now();
            self.0 += 1;
            line.lock()
        }
    }

    /// A schedule in which somebody looks and finds nothing is one in which it did not look.
    pub(crate) fn look_for(_: impl Fn() -> bool) -> bool {
        false
    }

    pub(crate) fn give_way_for(_: impl Fn() -> bool) -> bool {
        false
    }

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
            // As there: a panic does not poison it.
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
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
                            written.extend_from_slice(group);
                            Ok(())
                        };
                        let is_patient = |(number, _): &(u8, u8)| *number > 0;
                        let request = (number, index);
                        let returned = queue.submit_and_return(request, |_| 1, is_patient, 2, write, |_| Ok(()));
                        assert_eq!(returned.unwrap(), Some(request), "everyone gets back its own");
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
    let schedule = |group_bytes_max: usize| {
        let queue = Arc::new(CommitQueue::new(Vec::<&str>::new()));
        let join = |name: &'static str| {
            let queue = queue.clone();
            move || {
                let write = |written: &mut Vec<&'static str>, group: &mut Vec<&'static str>| {
                    written.append(group);
                    Ok(())
                };
                queue.submit(name, |_| 1, group_bytes_max, write).unwrap();
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
    // Where both fit a group, who comes late may write for both.
    for group_bytes_max in [1, 2] {
        shuttle::check_random(move || schedule(group_bytes_max), 2000);
        shuttle::check_pct(move || schedule(group_bytes_max), 2000, 3);
    }
}

fn terms<R>(is_patient: fn(&R) -> bool) -> Terms<R> {
    Terms { weigh: |_| 1, is_patient, group_bytes_max: 2 }
}

/// Groups that are on their way, patient leaders among them: nobody is forgotten, one flies at a time, and the order is kept.
#[test]
fn no_schedule_of_flights_loses_a_wake_up_or_lets_two_fly() {
    let schedule = || {
        let queue = Arc::new(CommitQueue::new(Vec::<(u8, u8)>::new()));
        let flying = Arc::new(shuttle::sync::atomic::AtomicUsize::new(0));
        let writers: Vec<_> = (0..4u8)
            .map(|number| {
                let (queue, flying) = (queue.clone(), flying.clone());
                thread::spawn(move || {
                    for index in 0..2u8 {
                        let write = |written: &mut Vec<(u8, u8)>, group: &[(u8, u8)]| {
                            written.extend_from_slice(group);
                            Ok(number % 2 == 0)
                        };
                        // Who does not fly keeps the others from it, too (C8).
                        let finish = |flies: bool, _: &[(u8, u8)], flight: Option<commit::Flight<'_, _, _>>| {
                            assert_eq!(flight.is_some(), flies);
                            let others = flying.fetch_add(1, shuttle::sync::atomic::Ordering::SeqCst);
                            assert_eq!(others, 0);
                            thread::yield_now();
                            flying.fetch_sub(1, shuttle::sync::atomic::Ordering::SeqCst);
                            drop(flight);
                            thread::yield_now();
                            Ok(())
                        };
                        let terms = terms(|(number, _)| *number < 2);
                        queue.submit_and_finish((number, index), &terms, write, |flies| *flies, finish).unwrap();
                        if number == 1 {
                            queue.exclusive(|_| thread::yield_now());
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let written = queue.exclusive(std::mem::take);
        for number in 0..4 {
            let own: Vec<u8> = written.iter().filter(|(other, _)| *other == number).map(|(_, index)| *index).collect();
            assert_eq!(own, [0, 1]);
        }
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}

/// A finish that panics refuses those who wait, and nobody waits forever.
#[test]
fn a_finish_that_panics_refuses_who_waits_in_every_schedule() {
    let schedule = |flies: fn(&()) -> bool| {
        let queue = Arc::new(CommitQueue::new(()));
        let writers: Vec<_> = (0..3u8)
            .map(|number| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let finish = |(): (), group: &[u8], _: Option<commit::Flight<'_, _, _>>| {
                        thread::yield_now();
                        if group.contains(&1) { std::panic::panic_any("expected") } else { Ok(()) }
                    };
                    let write = || queue.submit_and_finish(number, &terms(|_| true), |_, _| Ok(()), flies, finish);
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err()
                })
            })
            .collect();
        let panics = writers.into_iter().map(|writer| writer.join().unwrap()).filter(|it| *it).count();
        assert_eq!(panics, 1, "who finished it, and nobody else");
        queue.exclusive(|()| ());
        let late = queue.submit_and_finish(9, &terms(|_| true), |_, _| Ok(()), |()| true, |(), _, _| Ok(()));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(queue.error().map(|error| error.kind()), Some(ErrorKind::ReadOnly));
    };
    shuttle::check_random(move || schedule(|()| true), 1000);
    shuttle::check_random(move || schedule(|()| false), 1000);
}

/// A finish that panics while the next leader waits for others: who is told that all is well was written, and nobody is forgotten.
#[test]
fn a_finish_that_panics_beside_a_patient_leader_forgets_nobody_in_any_schedule() {
    let schedule = || {
        let queue = Arc::new(CommitQueue::new(Vec::<u8>::new()));
        let alone = queue.clone();
        let alone = thread::spawn(move || alone.exclusive(|_| ()));
        let writers: Vec<_> = (0..3u8)
            .map(|number| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let run = |written: &mut Vec<u8>, group: &[u8]| {
                        written.extend_from_slice(group);
                        Ok(())
                    };
                    let finish = |(): (), group: &[u8], flight: Option<commit::Flight<'_, _, _>>| {
                        drop(flight);
                        thread::yield_now();
                        if group.contains(&0) { std::panic::panic_any("expected") } else { Ok(()) }
                    };
                    let write = || queue.submit_and_finish(number, &terms(|_| true), run, |()| true, finish);
                    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
                    let is_written = queue.exclusive(|written| written.contains(&number));
                    assert!(is_written || !matches!(told, Ok(Ok(()))), "{number} is not written");
                })
            })
            .collect();
        for thread in writers.into_iter().chain([alone]) {
            thread.join().unwrap();
        }
    };
    shuttle::check_random(schedule, 2000);
    shuttle::check_pct(schedule, 2000, 3);
}
