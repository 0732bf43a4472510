//! Batches, snapshots, scans and conditional writes of several keys at once: what threads saw has an order in which each batch took
//! effect as a whole, each snapshot shows one moment, and nobody saw a moment before what had already returned to somebody.
//!
//! That is strict serializability of batches and snapshots, which says more than snapshot isolation does.

use esker::env::sim::SimDisk;
use esker::{
    Cask, CaskBatch, CaskOptions, CaskWriteOptions, ColumnFamily, Db, FamilyOptions, Options, ReadOptions, Separation,
    WriteBatch, WriteOptions,
};
use esker_torture::crash::Replay;
use esker_torture::history::{self, has_order, record};
use esker_torture::seeds;
use fastrand::Rng;

const FILE: &str = "isolation";
const THREADS: u64 = 4;
const STEPS: u64 = 9;
/// Keys of the state.
const KEYS: usize = 3;

/// What the keys hold.
type State = [Option<u8>; KEYS];

#[derive(Debug, Clone, Copy)]
enum Action {
    /// The keys that the inner `Some` names get what it says.
    Write([Option<Option<u8>>; KEYS]),
    /// All keys at one moment.
    See(State),
    /// One key.
    Get(usize, Option<u8>),
    CompareAndSet {
        key: usize,
        expected: u8,
        value: u8,
        done: bool,
    },
}

impl history::Action for Action {
    type State = State;

    fn after(self, mut state: State) -> Option<State> {
        match self {
            Self::Write(changes) => {
                for (held, change) in state.iter_mut().zip(changes) {
                    *held = change.unwrap_or(*held);
                }
                Some(state)
            }
            Self::See(seen) => (seen == state).then_some(state),
            Self::Get(key, found) => (state[key] == found).then_some(state),
            Self::CompareAndSet { key, expected, value, done } => {
                let is_right = done == (state[key] == Some(expected));
                if done {
                    state[key] = Some(value);
                }
                is_right.then_some(state)
            }
        }
    }
}

type Event = history::Event<Action>;

/// Runs many short histories, each from a state of nothing, and looks for an order of each.
fn check(replay: Replay, rounds: u64, clear: impl Fn(), act: impl Fn(&mut Rng, &dyn Fn() -> u64) -> Event + Sync) {
    for round in 0..rounds {
        clear();
        let events = record(replay.seed << 24 | round, THREADS, STEPS, &act);
        assert!(has_order(&events), "{replay}: round {round}: {events:#?}");
    }
}

/// What a batch does to each key: nothing, or a value, or a deletion.
fn changes(random: &mut Rng) -> [Option<Option<u8>>; KEYS] {
    std::array::from_fn(|_| (random.u8(..4) > 0).then(|| (random.u8(..5) > 0).then(|| random.u8(..))))
}

/// Large enough to be kept apart, and flushed often.
fn bytes(value: u8) -> Vec<u8> {
    vec![value; 400]
}

fn first(value: Option<impl AsRef<[u8]>>) -> Option<u8> {
    value.map(|value| {
        let value = value.as_ref();
        assert!(value.len() == 400 && value.iter().all(|byte| *byte == value[0]), "a value that nobody wrote");
        value[0]
    })
}

struct Places<'a> {
    db: &'a Db,
    /// Family and key of each key of the state.
    keys: [(ColumnFamily, &'static str); KEYS],
}

impl Places<'_> {
    /// All keys, by one of the ways in which a Db shows a moment. The moment is between `began` and the second number.
    fn see(&self, random: &mut Rng, now: &dyn Fn() -> u64) -> (u64, State) {
        let snapshot = self.db.snapshot();
        let ended = now();
        let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let way = random.u8(..3);
        let see = |(family, key): &(ColumnFamily, &'static str)| match way {
            0 => first(self.db.get_cf(family, key, &options).unwrap()),
            1 => first(self.db.multi_get_cf(family, [key], &options).unwrap().remove(0).unwrap()),
            _ => {
                let mut iterator = self.db.iter_cf(family, &options).unwrap();
                iterator.seek(key.as_bytes()).unwrap();
                let is_there = iterator.valid() && iterator.key() == key.as_bytes();
                first(is_there.then(|| iterator.value().unwrap().to_vec()))
            }
        };
        (ended, std::array::from_fn(|index| see(&self.keys[index])))
    }

    fn act(&self, random: &mut Rng, now: &dyn Fn() -> u64) -> Event {
        let began = now();
        let plain = WriteOptions::default();
        let action = match random.u8(..10) {
            0..4 => {
                let changes = changes(random);
                let mut batch = WriteBatch::new();
                for ((family, key), change) in self.keys.iter().zip(changes) {
                    match change {
                        Some(Some(value)) => batch.put_cf(family, key, bytes(value)).unwrap(),
                        Some(None) => batch.delete_cf(family, key).unwrap(),
                        None => {}
                    }
                }
                let sync = random.u8(..8) == 0;
                self.db.write(batch, &WriteOptions { sync, ..plain }).unwrap();
                Action::Write(changes)
            }
            4..8 => {
                let (ended, seen) = self.see(random, now);
                return Event { began, ended, action: Action::See(seen) };
            }
            8 => {
                let key = random.usize(..KEYS);
                let (family, name) = &self.keys[key];
                Action::Get(key, first(self.db.get_cf(family, name, &ReadOptions::default()).unwrap()))
            }
            _ => {
                let (key, value) = (random.usize(..KEYS), random.u8(..));
                let (family, name) = &self.keys[key];
                let found = first(self.db.get_cf(family, name, &ReadOptions::default()).unwrap());
                let expected = found.unwrap_or_default();
                let began = now();
                let done = self.db.compare_and_set(family, name, bytes(expected), bytes(value), &plain).unwrap();
                let action = Action::CompareAndSet { key, expected, value, done };
                return Event { began, ended: now(), action };
            }
        };
        Event { began, ended: now(), action }
    }
}

/// Goal: batches over two families, snapshots read in three ways, single reads and conditional writes are strictly serializable,
/// while flushes and compactions go on.
#[test]
fn batches_and_snapshots_of_a_db_have_an_order() {
    let test = "batches_and_snapshots_of_a_db_have_an_order";
    for seed in seeds(3) {
        let separation = [Separation::Off, Separation::AtFlush, Separation::AtWrite][seed as usize % 3];
        let family = FamilyOptions {
            write_buffer_bytes: 64 << 10,
            level0_compaction_trigger: 2,
            separation,
            min_blob_size: 200,
            ..FamilyOptions::default()
        };
        let families = ["default", "second"].map(|name| (name.to_owned(), family.clone())).into();
        let options = Options { create_if_missing: true, background_jobs: 2, families, ..Options::default() };
        let db = Db::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let (one, two) = (db.default_column_family(), db.create_column_family("second", family).unwrap());
        let places = Places { db: &db, keys: [(one.clone(), "a"), (one, "b"), (two, "c")] };
        let clear = || {
            let mut batch = WriteBatch::new();
            places.keys.iter().for_each(|(family, key)| batch.delete_cf(family, key).unwrap());
            db.write(batch, &WriteOptions::default()).unwrap();
        };
        check(Replay { file: FILE, test, seed }, 250, clear, |random, now| places.act(random, now));
        assert!(db.stats().compactions > 0, "nothing went on beside it");
    }
}

const NAMES: [&str; KEYS] = ["a", "b", "c"];

fn act_on_cask(cask: &Cask, random: &mut Rng, now: &dyn Fn() -> u64) -> Event {
    let began = now();
    let plain = CaskWriteOptions::default();
    let action = match random.u8(..10) {
        0..4 => {
            let changes = changes(random);
            let mut batch = CaskBatch::new();
            for (key, change) in NAMES.iter().zip(changes) {
                match change {
                    Some(Some(value)) => batch.put(key, bytes(value)).unwrap(),
                    Some(None) => batch.delete(key).unwrap(),
                    None => {}
                }
            }
            cask.write(&batch, &plain).unwrap();
            Action::Write(changes)
        }
        4..7 => {
            let mut scan = cask.scan().unwrap();
            let ended = now();
            let mut seen = State::default();
            while scan.advance().unwrap() {
                let Some(index) = NAMES.iter().position(|name| name.as_bytes() == scan.key()) else { continue };
                let twice = std::mem::replace(&mut seen[index], first(Some(scan.value().unwrap())));
                assert_eq!(twice, None, "a scan shows a key twice");
            }
            return Event { began, ended, action: Action::See(seen) };
        }
        7..9 => {
            let key = random.usize(..KEYS);
            Action::Get(key, first(cask.get(NAMES[key]).unwrap()))
        }
        _ => {
            let (key, value) = (random.usize(..KEYS), random.u8(..));
            let expected = first(cask.get(NAMES[key]).unwrap()).unwrap_or_default();
            let began = now();
            let (old, new) = (bytes(expected), bytes(value));
            let done = cask.compare_and_set(NAMES[key], Some(&old[..]), Some(&new[..]), &plain).unwrap();
            return Event { began, ended: now(), action: Action::CompareAndSet { key, expected, value, done } };
        }
    };
    Event { began, ended: now(), action }
}

/// Goal: the same of a Cask's batches, scans, single reads and conditional writes, while files are sealed and merged.
#[test]
fn batches_and_scans_of_a_cask_have_an_order() {
    let test = "batches_and_scans_of_a_cask_have_an_order";
    for seed in seeds(3) {
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1 + seed as usize % 3,
            file_bytes: 16 << 10,
            merge_garbage_ratio: 0.2,
            background_jobs: 2,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let clear = || {
            let mut batch = CaskBatch::new();
            NAMES.iter().for_each(|name| batch.delete(name).unwrap());
            cask.write(&batch, &CaskWriteOptions::default()).unwrap();
        };
        check(Replay { file: FILE, test, seed }, 250, clear, |random, now| act_on_cask(&cask, random, now));
        cask.close().unwrap();
    }
}

#[test]
fn the_checker_refuses_what_cannot_have_been() {
    let event = |began, ended, action| Event { began, ended, action };
    let write = |value| Action::Write([Some(Some(value)); KEYS]);
    let see = |a, b, c| Action::See([Some(a), Some(b), Some(c)]);
    let beside = [event(0, 9, write(1)), event(1, 8, write(2)), event(10, 11, see(2, 2, 2))];
    assert!(has_order(&beside));
    let torn = [event(0, 9, write(1)), event(1, 8, write(2)), event(10, 11, see(2, 1, 2))];
    assert!(!has_order(&torn), "half a batch");
    let torn_beside = [event(0, 1, write(1)), event(2, 9, write(2)), event(3, 4, see(1, 2, 1))];
    assert!(!has_order(&torn_beside), "half a batch that is being written");
    let stale = [event(0, 1, write(1)), event(2, 3, write(2)), event(4, 5, see(1, 1, 1))];
    assert!(!has_order(&stale), "a moment before what had returned");
    let one = |key, value| Action::Write(std::array::from_fn(|at| (at == key).then_some(Some(value))));
    let none = None;
    // Two writes of two keys at once, and two readers who saw them in opposite orders.
    let apart = [
        event(0, 20, one(0, 1)),
        event(0, 20, one(1, 1)),
        event(1, 2, Action::See([Some(1), none, none])),
        event(3, 4, Action::See([none, Some(1), none])),
    ];
    assert!(!has_order(&apart), "snapshots that no order has");
    let lost = [
        event(0, 1, write(1)),
        event(2, 9, Action::CompareAndSet { key: 0, expected: 1, value: 2, done: true }),
        event(2, 9, Action::CompareAndSet { key: 0, expected: 1, value: 3, done: true }),
    ];
    assert!(!has_order(&lost), "both found the same");
}
