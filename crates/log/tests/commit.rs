//! Group commit under real threads. The same code over a model of the locks: `commit_model.rs`.

#![cfg(test)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use esker_log::commit::CommitQueue;
use esker_log::{Error, ErrorKind};

const THREADS: usize = 16;

fn weigh_one<R>(_: &R) -> usize {
    1
}

/// Waits until `count` are in line.
fn until_waiting<R: Send, L: Send>(queue: &CommitQueue<R, L>, count: usize) {
    while queue.waiting_count() < count {
        thread::sleep(Duration::from_micros(50));
    }
}

/// Holds the line until `fill` has brought everyone into it, so that who stands where is no matter of luck.
fn while_held<'scope, R: Send, L: Send>(
    scope: &'scope thread::Scope<'scope, '_>,
    queue: &'scope CommitQueue<R, L>,
    fill: impl FnOnce(),
) {
    let (arrived, held) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel();
    scope.spawn(move || {
        queue.exclusive(|_| {
            arrived.send(()).unwrap();
            may_go.recv().unwrap();
        });
    });
    held.recv().unwrap();
    fill();
    let_go.send(()).unwrap();
}

#[test]
fn every_request_is_written_once_and_in_its_threads_order() {
    const EACH: usize = 4000;
    let queue = CommitQueue::new(Vec::<(usize, usize)>::new());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for index in 0..EACH {
                    let result = queue.submit((number, index), weigh_one, 8, |written, group| {
                        assert!(group.contains(&(number, index)), "the leader's own is among them");
                        assert!(group.len() <= 8);
                        // Every seventh group fails, and all of its members hear of it.
                        let fails = group.iter().any(|(_, index)| index % 7 == 3);
                        written.extend_from_slice(group);
                        if fails { Err(Error::invalid_argument("seven")) } else { Ok(()) }
                    });
                    assert!(result.is_err() || index % 7 != 3);
                }
            });
        }
    });
    let written = queue.exclusive(std::mem::take);
    assert_eq!(written.len(), THREADS * EACH);
    let mut next = [0; THREADS];
    for (number, index) in written {
        assert_eq!(index, next[number], "thread {number}");
        next[number] += 1;
    }
}

#[test]
fn everyone_who_came_during_a_slow_write_is_in_the_next_group() {
    let queue = CommitQueue::new(Vec::<usize>::new());
    thread::scope(|scope| {
        let queue = &queue;
        while_held(scope, queue, || {
            for number in 0..THREADS {
                scope.spawn(move || {
                    queue.submit(number, weigh_one, 100, |sizes, group| {
                        sizes.push(group.len());
                        Ok(())
                    })
                });
            }
            until_waiting(queue, THREADS);
        });
    });
    assert_eq!(queue.exclusive(std::mem::take), [THREADS]);
}

#[test]
fn a_slower_write_makes_larger_groups() {
    let mean_group_len = |write_time: Duration| {
        let queue = CommitQueue::new((0usize, 0usize));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let write = |lead: &mut (usize, usize), group: &mut Vec<()>| {
                            thread::sleep(write_time);
                            lead.0 += 1;
                            lead.1 += group.len();
                            Ok(())
                        };
                        queue.submit((), weigh_one, 100, write).unwrap();
                    }
                });
            }
        });
        let (groups, requests) = queue.exclusive(|lead| *lead);
        assert_eq!(requests, 400);
        requests as f64 / groups as f64
    };
    let slow = mean_group_len(Duration::from_millis(2));
    assert!(slow > 2.5, "groups of {slow} on average");
}

#[test]
fn a_group_weighs_what_it_may_and_a_heavy_request_goes_alone() {
    let queue = CommitQueue::new(Vec::<Vec<usize>>::new());
    thread::scope(|scope| {
        let queue = &queue;
        let submit = move |weight: usize| {
            queue.submit(
                weight,
                |weight| *weight,
                10,
                |groups, group| {
                    groups.push(std::mem::take(group));
                    Ok(())
                },
            )
        };
        while_held(scope, queue, || {
            for (index, weight) in [4, 6, 1, 50, 9, usize::MAX].into_iter().enumerate() {
                scope.spawn(move || submit(weight).unwrap());
                until_waiting(queue, index + 1);
            }
        });
    });
    let groups = queue.exclusive(std::mem::take);
    assert_eq!(groups, [vec![4, 6], vec![1], vec![50], vec![9], vec![usize::MAX]]);
}

#[test]
fn one_that_wants_to_be_alone_parts_the_groups_before_and_after() {
    let queue = CommitQueue::new(Vec::<Vec<u8>>::new());
    thread::scope(|scope| {
        let queue = &queue;
        while_held(scope, queue, || {
            for (index, name) in b"ab-cd".iter().enumerate() {
                scope.spawn(move || match name {
                    b'-' => queue.exclusive(|groups| groups.push(vec![*name])),
                    _ => queue
                        .submit(*name, weigh_one, 100, |groups, group| {
                            groups.push(group.clone());
                            Ok(())
                        })
                        .unwrap(),
                });
                until_waiting(queue, index + 1);
            }
        });
    });
    let groups = queue.exclusive(std::mem::take);
    assert_eq!(groups, [b"ab".to_vec(), b"-".to_vec(), b"cd".to_vec()]);
}

#[test]
fn a_panic_reaches_its_own_thread_and_the_others_are_refused() {
    let queue = CommitQueue::new(0u32);
    thread::scope(|scope| {
        let queue = &queue;
        let (mut panicking, mut refused, mut alone) = (None, Vec::new(), None);
        while_held(scope, queue, || {
            panicking = Some(scope.spawn(|| queue.submit((), weigh_one, 3, |_, _| panic!("as planned"))));
            until_waiting(queue, 1);
            // Two of them are in the group of the one that panics, two wait behind it.
            for index in 0..4 {
                refused.push(scope.spawn(|| queue.submit((), weigh_one, 3, |_, _| Ok(()))));
                until_waiting(queue, index + 2);
            }
            alone = Some(scope.spawn(|| queue.exclusive(|lead| std::mem::replace(lead, 7))));
            until_waiting(queue, 6);
        });
        let panic = panicking.unwrap().join().unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "as planned");
        for refused in refused {
            assert_eq!(refused.join().unwrap().unwrap_err().kind(), ErrorKind::ReadOnly);
        }
        assert_eq!(alone.unwrap().join().unwrap(), 0);
    });
    let late = queue.submit((), weigh_one, 3, |_, _| Ok(()));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(queue.exclusive(|lead| *lead), 7);
}

#[test]
fn requests_are_dropped_by_whoever_leads_before_the_answer() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let queue = CommitQueue::new(());
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..500 {
                    ALIVE.fetch_add(1, Ordering::SeqCst);
                    queue.submit(Counted, weigh_one, 5, |(), _| Ok(())).unwrap();
                }
            });
        }
    });
    assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
}

#[test]
fn threads_that_mix_two_lines_do_not_hear_answers_meant_for_the_other() {
    let lines = [CommitQueue::new(0u64), CommitQueue::new(0u64)];
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..8u64 {
            let (lines, sum) = (&lines, &sum);
            scope.spawn(move || {
                for index in 0..1000u64 {
                    // The leader of the first line joins the second one.
                    let result = lines[0].submit(number, weigh_one, 4, |total, group| {
                        *total += group.len() as u64;
                        let inner = lines[1].submit(index, weigh_one, 4, |total, group| {
                            *total += group.len() as u64;
                            Err(Error::invalid_argument("inner"))
                        });
                        assert!(inner.is_err());
                        Ok(())
                    });
                    result.unwrap();
                    let other = lines[1].submit(index, weigh_one, 4, |total, group| {
                        *total += group.len() as u64;
                        Err(Error::invalid_argument("inner"))
                    });
                    assert!(other.is_err());
                    sum.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(lines[0].exclusive(|total| *total), 8000);
    assert_eq!(sum.into_inner(), 8000);
}
