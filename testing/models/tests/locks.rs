//! Transactions lock keys of each other in thousands of schedules. A key that two have at once who may not, one who waits for ever, or who is refused for
//! nothing, shows in some of them.

use std::sync::Arc;

use esker_models::{Holder, Locks};
use shuttle::sync::atomic::{AtomicI32, Ordering};
use shuttle::thread;

const KEYS: usize = 3;
const SHARED: bool = false;
const ALONE: bool = true;

/// What is held, by the word of those who hold it: how many share a key, or less than nothing.
type Word = [AtomicI32; KEYS];

/// A transaction that locks `wanted` one after the other, and looks whether it may have believed that; `false` if it was refused. One that is
/// impatient goes on without what it did not get.
fn run(locks: &Locks, word: &Word, wanted: &[(u8, bool)], turns: Option<u8>) -> bool {
    let mut holder: Holder = turns.map_or_else(|| locks.holder(), |turns| locks.impatient(turns));
    let mut said: Vec<(u8, i32)> = Vec::new();
    let mut is_refused = false;
    for &(key, is_alone) in wanted {
        if !holder.lock(key, is_alone) {
            is_refused = true;
            if turns.is_some() {
                continue;
            }
            break;
        }
        let of_key = &word[usize::from(key)];
        let own: i32 = said.iter().filter(|(other, _)| *other == key).map(|(_, by)| by).sum();
        let by = match (is_alone, own) {
            (false, 0) => 1,
            (true, 0..) => -100 - own,
            _ => 0,
        };
        let before = of_key.fetch_add(by, Ordering::SeqCst) - own;
        if is_alone {
            assert_eq!(before, 0, "key {key} is held by others, too");
        } else {
            assert!(before >= 0 || own < 0, "key {key} is held by another alone");
        }
        said.push((key, by));
    }
    for (key, by) in said {
        word[usize::from(key)].fetch_sub(by, Ordering::SeqCst);
    }
    !is_refused
}

fn check(of_each: &'static [&'static [(u8, bool)]], may_refuse: bool) {
    check_beside(of_each, &[], may_refuse);
}

/// The same beside others who wait for so many turns only, and end then.
fn check_beside(
    of_each: &'static [&'static [(u8, bool)]],
    impatient: &'static [(u8, &'static [(u8, bool)])],
    may_refuse: bool,
) {
    let schedule = move || {
        let locks = Arc::new(Locks::default());
        let word: Arc<Word> = Arc::default();
        let patient = of_each.iter().map(|wanted| (None, *wanted));
        let all: Vec<_> = patient
            .chain(impatient.iter().map(|(turns, wanted)| (Some(*turns), *wanted)))
            .map(|(turns, wanted)| {
                let (locks, word) = (locks.clone(), word.clone());
                thread::spawn(move || {
                    while !run(&locks, &word, wanted, turns) && turns.is_none() {
                        assert!(may_refuse, "nobody waits for {wanted:?}");
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
        assert!(locks.are_free(KEYS as u8), "something was left locked");
    };
    shuttle::check_random(schedule, 1500);
    shuttle::check_pct(schedule, 1500, 3);
}

/// Goal: nobody has what another has alone, nobody waits for ever, and where no circle can be nobody is refused.
#[test]
fn who_locks_in_order_waits_and_is_never_refused() {
    check(
        &[
            &[(0, ALONE), (1, ALONE), (2, ALONE)],
            &[(0, SHARED), (1, ALONE)],
            &[(0, SHARED), (1, SHARED), (2, SHARED)],
            &[(1, ALONE), (2, ALONE)],
        ],
        false,
    );
}

/// Goal: a circle is broken in every schedule in which one comes to be, whatever it goes through: holders, those before in line, three of them.
#[test]
fn a_circle_is_broken_wherever_it_comes_to_be() {
    check(&[&[(0, ALONE), (1, ALONE)], &[(1, ALONE), (0, ALONE)]], true);
    check(&[&[(0, ALONE), (1, ALONE)], &[(1, ALONE), (2, ALONE)], &[(2, ALONE), (0, ALONE)]], true);
    check(&[&[(0, SHARED), (1, ALONE)], &[(1, SHARED), (0, ALONE)], &[(0, SHARED), (1, SHARED)]], true);
    // The third would share the first key with its holder, and waits all the same, for the second, who came before.
    check(&[&[(0, SHARED), (2, ALONE)], &[(0, ALONE)], &[(2, ALONE), (0, SHARED)]], true);
}

/// Goal: who shares a key and then wants it alone gets it before those who came meanwhile; of two who do, one is refused.
#[test]
fn who_shares_a_key_and_wants_it_alone_comes_first() {
    check(&[&[(0, SHARED), (0, ALONE)], &[(0, ALONE)], &[(0, SHARED)], &[(0, ALONE)]], false);
    check(&[&[(0, SHARED), (0, ALONE)], &[(0, SHARED), (0, ALONE)], &[(0, SHARED)]], true);
}

/// Goal: who gives up, at whatever moment, the one of being served too, leaves no place in a line, no key locked and nobody waiting; those who stay
/// are refused for a circle only.
#[test]
fn who_gives_up_leaves_nothing_behind() {
    // Shared, with one behind who waits for the impatient one in the middle alone.
    check_beside(&[&[(0, SHARED), (1, ALONE)], &[(0, SHARED), (1, SHARED)]], &[(1, &[(0, ALONE), (1, ALONE)])], false);
    check_beside(
        &[&[(0, ALONE)], &[(0, SHARED), (2, ALONE)]],
        &[(0, &[(0, SHARED)]), (2, &[(0, ALONE), (2, ALONE)])],
        false,
    );
    // Of two who share a key and want it alone, the impatient one may give up first.
    check_beside(&[&[(0, SHARED), (0, ALONE)], &[(0, SHARED)]], &[(2, &[(0, SHARED), (0, ALONE)])], true);
    // A circle that is none any more once one has given up.
    check_beside(&[&[(0, ALONE), (1, ALONE)], &[(1, ALONE), (2, ALONE)]], &[(3, &[(2, ALONE), (0, ALONE)])], true);
}
