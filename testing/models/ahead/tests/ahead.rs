//! A walk and the thread beside it share what they read, in thousands of schedules: a value that is read twice, one that both have the claim
//! of and one that is another's show in some of them; who waits for what nobody will do shows as a deadlock.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker_models_ahead::{Deed, Side, Step, Store, Walk};
use shuttle::thread;

/// In how many random schedules each scene runs, and in how many with few, well chosen preemptions.
const SCHEDULES: usize = 300;

/// Values of a stretch, and of a store.
const STRETCH: usize = 4;
const COUNT: u64 = 3 * STRETCH as u64;

fn check(scene: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(scene.clone(), SCHEDULES);
    shuttle::check_pct(scene, SCHEDULES, 3);
}

fn stretch_of(value: u64) -> u64 {
    value / STRETCH as u64
}

/// The next `count` values, from `first` on.
fn walk_on(walk: &mut Walk, first: u64, count: u64) {
    for value in first..first + count {
        assert!(walk.step());
        assert_eq!(walk.value(), value);
    }
}

fn walk_to_the_end(store: &Store) {
    let mut walk = store.walk(STRETCH);
    walk_on(&mut walk, 0, COUNT);
    assert!(!walk.step());
}

/// Passes the second and third value of each stretch without asking for them.
fn walk_with_gaps(store: &Store) {
    let mut walk = store.walk(STRETCH);
    for value in 0..COUNT {
        assert!(walk.step());
        if [0, 3].contains(&(value % STRETCH as u64)) {
            assert_eq!(walk.value(), value);
        }
    }
    assert!(!walk.step());
}

/// How often each value was read.
fn reads(steps: &[Step]) -> BTreeMap<u64, usize> {
    let mut reads = BTreeMap::new();
    for (_, _, value) in steps.iter().filter(|(_, deed, _)| *deed == Deed::Read) {
        *reads.entry(*value).or_default() += 1;
    }
    reads
}

/// Of one walk without a panic: no value is read twice, and no stretch in part; each is unpacked by who has the claim, but where the two met.
fn assert_shared(steps: &[Step]) {
    let reads = reads(steps);
    assert!(reads.values().all(|count| *count == 1), "read twice: {steps:?}");
    let is_read = |value: &u64| reads.contains_key(value);
    for stretch in 0..stretch_of(COUNT) {
        let values = || (0..COUNT).filter(|value| stretch_of(*value) == stretch);
        assert!(values().all(|value| is_read(&value)) || !values().any(|value| is_read(&value)), "{steps:?}");
        let mut met = 0;
        for value in values() {
            let unpacked = steps.iter().filter(|(_, deed, of)| (*deed, *of) == (Deed::Unpack, value));
            match &*unpacked.map(|(side, ..)| *side).collect::<Vec<_>>() {
                [] | [_] => {}
                [Side::Aide, Side::Walk] => met += 1,
                sides => panic!("value {value} is unpacked by {sides:?}: {steps:?}"),
            }
        }
        assert!(met <= 1, "they met more than once: {steps:?}");
    }
}

/// Goal: a walk shows everything, each value read once, whenever the store is closed meanwhile and whenever the aide comes.
#[test]
fn in_no_schedule_is_a_value_read_twice_or_waited_for_in_vain() {
    check(|| walk_beside_a_close(walk_to_the_end));
    check(|| walk_beside_a_close(walk_with_gaps));
}

fn walk_beside_a_close(walk: fn(&Store)) {
    let store = Store::new(COUNT, true);
    let closing = store.clone();
    let closer = thread::spawn(move || {
        (0..9).for_each(|_| thread::yield_now());
        closing.close();
    });
    walk(&store);
    closer.join().unwrap();
    assert_shared(&store.steps());
    assert_eq!(reads(&store.steps()).len() as u64, COUNT);
}

/// Goal: the same without anybody who helps: there is no thread, or it was closed before.
#[test]
fn a_walk_needs_no_aide() {
    let alone = || {
        let closed = Store::new(COUNT, true);
        closed.close();
        for store in [Store::new(COUNT, false), closed] {
            walk_to_the_end(&store);
            assert_shared(&store.steps());
            assert!(store.steps().iter().all(|(side, ..)| *side == Side::Walk));
            store.close();
        }
    };
    // There is but one thread.
    shuttle::check_random(alone, 1);
}

/// Goal: of a walk that is let go somewhere no more is read than a stretch that was begun, and its aide ends with the store, closed or not.
#[test]
fn in_no_schedule_is_worked_on_what_was_let_go() {
    for shown in 0..COUNT {
        let scene = move |closes: bool| {
            let store = Store::new(COUNT, true);
            let mut walk = store.walk(STRETCH);
            walk_on(&mut walk, 0, shown);
            // The next is stood on, and not asked for.
            assert!(walk.step());
            let before = store.steps();
            drop(walk);
            (0..9).for_each(|_| thread::yield_now());
            if closes {
                store.close();
                let steps = store.steps();
                assert_shared(&steps);
                let mut after: Vec<u64> =
                    steps[before.len()..].iter().map(|(_, _, value)| stretch_of(*value)).collect();
                after.dedup();
                assert!(after.len() <= 1, "{after:?} of {steps:?} after {before:?}");
            }
        };
        check_fewer(move || scene(true));
        check_fewer(move || scene(false));
    }
}

/// Of a scene that there are many of.
fn check_fewer(scene: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(scene.clone(), SCHEDULES / 10);
    shuttle::check_pct(scene, SCHEDULES / 10, 3);
}

/// Goal: what is handed over is done, though nobody asks for it: whoever sleeps is woken each time.
#[test]
fn in_no_schedule_is_something_handed_over_and_forgotten() {
    check(|| {
        let store = Store::new(COUNT, true);
        let mut walk = store.walk(STRETCH);
        for first in (0..COUNT - STRETCH as u64).step_by(STRETCH) {
            walk_on(&mut walk, first, STRETCH as u64);
            let last_unpacked = (Side::Aide, Deed::Unpack, first + STRETCH as u64);
            while !store.steps().contains(&last_unpacked) {
                thread::yield_now();
            }
        }
        store.close();
        assert_shared(&store.steps());
    });
}

/// Goal: of two walks with one aide, neither gets what is the other's, nor waits for it.
#[test]
fn in_no_schedule_do_two_walks_meet() {
    check(|| {
        let store = Store::new(COUNT, true);
        let beside = store.clone();
        let other = thread::spawn(move || walk_on(&mut beside.walk(STRETCH), 0, COUNT / 2));
        walk_to_the_end(&store);
        other.join().unwrap();
        store.close();
        assert!(reads(&store.steps()).values().all(|count| *count <= 2));
    });
}

/// Goal: a panic of the aide costs its help, and one of whoever walks costs that call: nobody waits for what it did not do.
#[test]
fn in_no_schedule_is_waited_for_somebody_who_panicked() {
    const FIRST: u64 = STRETCH as u64;
    for side in [Side::Aide, Side::Walk] {
        for deed in [Deed::Read, Deed::Unpack] {
            for value in FIRST..2 * FIRST {
                check_fewer(move || {
                    let store = Store::new(COUNT, true);
                    store.panic_at((side, deed, value));
                    let mut walk = store.walk(STRETCH);
                    let mut panics = 0;
                    for value in 0..COUNT {
                        assert!(walk.step());
                        let shown = catch_unwind(AssertUnwindSafe(|| walk.value())).unwrap_or_else(|_| {
                            panics += 1;
                            walk.value()
                        });
                        assert_eq!(shown, value);
                    }
                    assert!(!walk.step());
                    store.close();
                    assert!(panics <= usize::from(side == Side::Walk), "{panics} panics");
                    for (value, count) in reads(&store.steps()) {
                        let again = usize::from(deed == Deed::Read && stretch_of(value) == 1);
                        assert!((1..=1 + again).contains(&count), "value {value} is read {count} times");
                    }
                });
            }
        }
    }
}

/// Goal: a panic of the aide costs the piece that it was at: what is handed over afterwards is done, and does not lie there for nobody.
#[test]
fn in_no_schedule_does_a_panic_end_all_help() {
    const FIRST: u64 = STRETCH as u64;
    for deed in [Deed::Read, Deed::Unpack] {
        check_fewer(move || {
            let store = Store::new(COUNT, true);
            store.panic_at((Side::Aide, deed, FIRST));
            let mut walk = store.walk(STRETCH);
            for (first, last) in [(0, deed), (FIRST, Deed::Unpack)] {
                walk_on(&mut walk, first, FIRST);
                while !store.steps().contains(&(Side::Aide, last, first + FIRST)) {
                    thread::yield_now();
                }
            }
            store.close();
        });
    }
}
