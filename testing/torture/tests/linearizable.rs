//! Atomic read-modify-write: what many threads at once see of one key has an order in which each operation makes sense.

use esker::env::sim::SimDisk;
use esker::{Change, ColumnFamily, Db, FamilyOptions, Options, WriteOptions};
use esker_torture::history::{self, Event, has_order, record};

/// Memtables of a few hundred entries, so that flushes come between reads and their writes.
fn open(disk: &SimDisk, background_jobs: usize) -> Db {
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs, families, ..Options::default() };
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

/// Goal: no increment is lost or done twice, whichever way it is made, while other keys fill and flush the memtables.
#[test]
fn increments_of_all_kinds_add_up() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 400;
    let disk = SimDisk::new();
    let db = open(&disk, 2);
    let (family, options) = (&db.default_column_family(), &WriteOptions::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = format!("counter{}", round % 3);
                    if (round + thread) % 2 == 0 {
                        let next = |value: Option<&[u8]>| Change::Put((number(value) + 1).to_le_bytes().to_vec());
                        db.update(family, &key, options, next).unwrap();
                    } else {
                        while !increment_by_comparing(db, family, &key) {}
                    }
                    db.put(format!("noise{thread}/{round}"), [7; 300]).unwrap();
                }
            });
        }
    });
    let sum = |db: &Db| (0..3).map(|key| number(db.get(format!("counter{key}")).unwrap().as_deref())).sum::<u64>();
    assert_eq!(sum(&db), THREADS * ROUNDS);
    drop(db);
    assert_eq!(sum(&open(&disk.after_process_death(), 0)), THREADS * ROUNDS);
}

fn increment_by_comparing(db: &Db, family: &ColumnFamily, key: &str) -> bool {
    let options = &WriteOptions::default();
    match db.get(key).unwrap() {
        None => db.put_if_absent(family, key, 1u64.to_le_bytes(), options).unwrap(),
        Some(found) => {
            let next = number(Some(&found)) + 1;
            db.compare_and_set(family, key, &found, next.to_le_bytes(), options).unwrap()
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Put(u8),
    Get(Option<u8>),
    CompareAndSet { expected: u8, value: u8, done: bool },
    PutIfAbsent { value: u8, done: bool },
    CompareAndDelete { expected: u8, done: bool },
}

impl history::Action for Action {
    type State = Option<u8>;

    fn after(self, held: Option<u8>) -> Option<Option<u8>> {
        let (is_right, next) = match self {
            Self::Put(value) => (true, Some(value)),
            Self::Get(found) => (found == held, held),
            Self::CompareAndSet { expected, value, done } => {
                (done == (held == Some(expected)), choose(done, Some(value), held))
            }
            Self::PutIfAbsent { value, done } => (done == held.is_none(), choose(done, Some(value), held)),
            Self::CompareAndDelete { expected, done } => (done == (held == Some(expected)), choose(done, None, held)),
        };
        is_right.then_some(next)
    }
}

fn choose(done: bool, changed: Option<u8>, held: Option<u8>) -> Option<u8> {
    if done { changed } else { held }
}

fn act(db: &Db, family: &ColumnFamily, dice: u64) -> Action {
    let options = &WriteOptions::default();
    let (value, expected) = ((dice >> 8) as u8 % 3, (dice >> 16) as u8 % 3);
    match dice % 6 {
        0 => {
            db.put("key", [value]).unwrap();
            Action::Put(value)
        }
        1 => Action::Get(db.get("key").unwrap().map(|found| found[0])),
        2 => {
            let done = db.put_if_absent(family, "key", [value], options).unwrap();
            Action::PutIfAbsent { value, done }
        }
        3 => {
            let done = db.compare_and_delete(family, "key", [expected], options).unwrap();
            Action::CompareAndDelete { expected, done }
        }
        // The same with a pause between the read and the write, in which others come in.
        4 => {
            let mut done = false;
            let decide = |found: Option<&[u8]>| {
                std::thread::yield_now();
                done = found == Some(&[expected]);
                if done { Change::Put(vec![value]) } else { Change::Keep }
            };
            db.update(family, "key", options, decide).unwrap();
            Action::CompareAndSet { expected, value, done }
        }
        _ => {
            let done = db.compare_and_set(family, "key", [expected], [value], options).unwrap();
            Action::CompareAndSet { expected, value, done }
        }
    }
}

/// Goal: what four threads do to one key is linearizable.
/// Method: many short histories, each begun on a key that is known to be absent; a checker looks for an order.
#[test]
fn every_history_of_one_key_has_an_order() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 12;
    let disk = SimDisk::new();
    let db = open(&disk, 1);
    let family = &db.default_column_family();
    for round in 0..400u64 {
        db.delete("key").unwrap();
        let events = record(round, THREADS, STEPS, |random, now| {
            let began = now();
            let action = act(&db, family, random.u64(..));
            Event { began, ended: now(), action }
        });
        assert!(has_order(&events), "round {round}: {events:#?}");
    }
}

#[test]
fn the_checker_refuses_what_cannot_have_been() {
    let event = |began, ended, action| Event { began, ended, action };
    let lost_update = [
        event(0, 1, Action::Put(1)),
        event(2, 9, Action::CompareAndSet { expected: 1, value: 2, done: true }),
        event(3, 4, Action::Put(0)),
        event(10, 11, Action::Get(Some(2))),
    ];
    assert!(has_order(&lost_update[..3]), "the put may come last");
    assert!(!has_order(&lost_update), "the put is lost");
    let stale = [event(0, 1, Action::Put(1)), event(2, 3, Action::Get(None))];
    assert!(!has_order(&stale));
}

#[test]
fn what_is_compared_is_the_whole_value_and_what_is_returned_is_what_was() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let (family, options) = (&db.default_column_family(), &WriteOptions { sync: true, ..WriteOptions::default() });
    assert!(!db.compare_and_set(family, "k", "", "x", options).unwrap(), "an absent value is not an empty one");
    assert!(db.put_if_absent(family, "k", "", options).unwrap());
    assert!(!db.put_if_absent(family, "k", "other", options).unwrap(), "an empty value is one");
    assert!(db.compare_and_set(family, "k", "", "first", options).unwrap());
    db.flush().unwrap();
    assert!(!db.compare_and_set(family, "k", "firs", "x", options).unwrap());
    assert!(
        db.compare_and_set(family, "k", "first", "second", options).unwrap(),
        "a flushed value is compared as well"
    );
    let before = db.update(family, "k", options, |_| Change::Delete).unwrap();
    assert_eq!((before.as_deref(), db.get("k").unwrap()), (Some(&b"second"[..]), None));
    assert!(!db.compare_and_delete(family, "k", "second", options).unwrap());
    let other = db.create_column_family("other", FamilyOptions::default()).unwrap();
    assert!(db.put_if_absent(&other, "k", "there", options).unwrap());
    db.drop_column_family(&other).unwrap();
    assert!(db.put_if_absent(&other, "l", "x", options).is_err(), "a dropped family takes nothing");
    let unlogged = WriteOptions { disable_wal: true, sync: true };
    assert!(db.put_if_absent(family, "m", "x", &unlogged).is_err());
}
