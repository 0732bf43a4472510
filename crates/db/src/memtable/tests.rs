use esker_format::rocksdb::order::Order;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::iterate::InternalIterator;
use crate::pinned::PinnedSlice;

/// The order of a memtable, as a `BTreeMap` can have it: user key, then newest first.
type ModelKey = (Vec<u8>, std::cmp::Reverse<u64>);
type Model = BTreeMap<ModelKey, Vec<u8>>;

/// Pseudo-random numbers, the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A short key of few letters, so that keys repeat and begin alike; sometimes a longer one.
    fn key(&mut self) -> Vec<u8> {
        let bytes = if self.below(8) == 0 { self.below(40) } else { self.below(4) };
        (0..bytes).map(|_| [0, b'a', 0xff][self.below(3) as usize]).collect()
    }
}

fn internal(user_key: &[u8], tag: u64) -> Vec<u8> {
    [user_key, &tag.to_le_bytes()].concat()
}

fn model_key(internal: &[u8]) -> ModelKey {
    (internal_key::user_key(internal).to_vec(), std::cmp::Reverse(internal_key::tag(internal)))
}

fn put(memtable: &Memtable, sequence: u64, key: &[u8], value: &[u8]) {
    memtable.add(SequenceNumber::new(sequence), ValueKind::Value, key, value);
}

fn lookup(key: &[u8], sequence: u64) -> Vec<u8> {
    internal_key::lookup(key, SequenceNumber::new(sequence))
}

#[track_caller]
fn assert_stands_on(iterator: &MemtableIterator, expected: Option<(&ModelKey, &Vec<u8>)>) {
    assert_eq!(iterator.valid(), expected.is_some());
    let (key, value) = expected.map_or((Vec::new(), &[][..]), |(key, value)| (internal(&key.0, key.1.0), &value[..]));
    assert_eq!(iterator.key(), key);
    assert_eq!(iterator.value(), value);
    assert_eq!(iterator.pinned_value(), value);
}

/// Goal: the same answers as a `BTreeMap`. Method: random additions, seeks and steps from wherever the iterator stands.
#[test]
fn it_answers_as_a_sorted_map_does() {
    let mut numbers = Numbers(1);
    for round in 0..if cfg!(miri) { 1 } else { 40 } {
        let memtable = Arc::new(Memtable::default());
        let mut model = Model::new();
        let mut iterator = memtable.iter();
        for step in 0..if cfg!(miri) { 200 } else { 2000 } {
            let target = internal(&numbers.key(), numbers.below(step + 2) << 8);
            let at = model_key(&target);
            match numbers.below(10) {
                0..4 => {
                    let (key, value) = (numbers.key(), vec![round; numbers.below(30) as usize]);
                    let kind = if numbers.below(5) == 0 { ValueKind::Deletion } else { ValueKind::Value };
                    memtable.add(SequenceNumber::new(step), kind, &key, &value);
                    let tag = internal_key::pack(SequenceNumber::new(step), kind);
                    model.insert((key, std::cmp::Reverse(tag)), value);
                    continue;
                }
                4 => iterator.seek_to_first().unwrap(),
                5 => {
                    iterator.seek_to_last().unwrap();
                    assert_stands_on(&iterator, model.iter().next_back());
                }
                6 | 7 => {
                    iterator.seek(&target).unwrap();
                    assert_stands_on(&iterator, model.range(&at..).next());
                }
                8 => {
                    iterator.seek_for_prev(&target).unwrap();
                    assert_stands_on(&iterator, model.range(..=&at).next_back());
                }
                _ => {
                    let key = internal_key::user_key(&target);
                    let expected = model.range(&at..).next().filter(|(found, _)| found.0 == key);
                    let found = memtable.get(&target);
                    assert_eq!(found.as_ref().map(|hit| &*hit.value), expected.map(|(_, value)| &value[..]));
                    let tag = found.map(|hit| internal_key::pack(hit.sequence, hit.kind));
                    assert_eq!(tag, expected.map(|(key, _)| key.1.0));
                }
            }
            for _ in 0..numbers.below(6) {
                if !iterator.valid() {
                    break;
                }
                let here = model_key(iterator.key());
                let expected = if numbers.below(2) == 0 {
                    iterator.next().unwrap();
                    model.range((std::ops::Bound::Excluded(&here), std::ops::Bound::Unbounded)).next()
                } else {
                    iterator.prev().unwrap();
                    model.range(..&here).next_back()
                };
                assert_stands_on(&iterator, expected);
            }
        }
        let mut forward = memtable.iter();
        forward.seek_to_first().unwrap();
        for entry in &model {
            assert_stands_on(&forward, Some(entry));
            forward.next().unwrap();
        }
        assert_stands_on(&forward, None);
    }
}

#[test]
fn get_finds_the_newest_that_the_reader_may_see() {
    let memtable = Arc::new(Memtable::default());
    put(&memtable, 5, b"k", b"old");
    memtable.add(SequenceNumber::new(7), ValueKind::Deletion, b"k", b"");
    put(&memtable, 9, b"k", b"new");
    let found =
        |sequence| memtable.get(&lookup(b"k", sequence)).map(|hit| (hit.sequence.get(), hit.kind, hit.value.to_vec()));
    assert_eq!(found(4), None);
    assert_eq!(found(5), Some((5, ValueKind::Value, b"old".to_vec())));
    assert_eq!(found(8), Some((7, ValueKind::Deletion, Vec::new())));
    assert_eq!(found(u64::MAX), Some((9, ValueKind::Value, b"new".to_vec())));
    assert!(memtable.get(&lookup(b"", 9)).is_none() && memtable.get(&lookup(b"k\0", 9)).is_none());
    assert!(memtable.get(b"k").is_none());
}

#[test]
fn it_counts_what_was_added() {
    let memtable = Memtable::default();
    assert!(memtable.is_empty());
    assert_eq!(memtable.allocated_bytes(), 0);
    put(&memtable, 12, b"key", b"value");
    memtable.add(SequenceNumber::new(11), ValueKind::SingleDeletion, b"k", b"");
    assert!(!memtable.is_empty());
    assert_eq!((memtable.entry_count(), memtable.deletion_count()), (2, 1));
    let allocated = memtable.allocated_bytes();
    assert!(allocated > 25 && allocated < 400, "{allocated}");
}

#[test]
fn an_entry_takes_few_bytes_besides_its_own() {
    let memtable = Memtable::default();
    let count = if cfg!(miri) { 500 } else { 10_000 };
    for number in 0..count {
        put(&memtable, number, &number.to_be_bytes(), &[1; 64]);
    }
    let overhead = memtable.allocated_bytes() as u64 / count - (8 + 8 + 64);
    assert!(overhead <= 24, "{overhead} bytes");
}

#[test]
fn a_value_outlives_the_memtable_handle() {
    let memtable = Arc::new(Memtable::default());
    put(&memtable, 1, b"key", b"value");
    let mut iterator = memtable.iter();
    iterator.seek_to_first().unwrap();
    let values = [memtable.get(&lookup(b"key", 1)).unwrap().value, iterator.pinned_value()];
    let gone = Arc::downgrade(&memtable);
    drop((memtable, iterator));
    let [first, second] = values;
    drop(first);
    let copy = std::thread::spawn(move || second.clone()).join().unwrap();
    assert_eq!(copy, b"value");
    assert_eq!(copy.into_vec(), b"value");
    assert!(gone.upgrade().is_none());
}

#[test]
fn an_empty_value_pins_nothing() {
    let memtable = Arc::new(Memtable::default());
    put(&memtable, 1, b"key", b"");
    let value = memtable.get(&lookup(b"key", 1)).unwrap().value;
    assert_eq!((Arc::strong_count(&memtable), value), (1, PinnedSlice::default()));
}

/// Goal: M2, and order at every moment. Method: four threads add; each says how far it is. A reader notes that, iterates
/// both ways, and must meet everything said before it began, each key once, in order, with its own value.
#[test]
fn a_reader_among_writers_sees_order_and_all_that_was_added_before_it_began() {
    const WRITERS: u64 = 4;
    let per_writer = if cfg!(miri) { 30 } else { 20_000u64 };
    let memtable = Arc::new(Memtable::default());
    let done: [AtomicU64; WRITERS as usize] = Default::default();
    // An odd factor scatters the numbers and no two of them fall together.
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (memtable, done) = (&memtable, &done);
            scope.spawn(move || {
                for index in 0..per_writer {
                    let number = index * WRITERS + writer;
                    put(memtable, number + 1, &scattered(number), &number.to_le_bytes());
                    done[writer as usize].store(index + 1, Ordering::Release);
                }
            });
        }
        let mut finished = false;
        while !finished {
            let before: Vec<u64> = done.iter().map(|done| done.load(Ordering::Acquire)).collect();
            finished = before.iter().all(|&done| done == per_writer);
            let mut iterator = memtable.iter();
            let mut met = [0u64; WRITERS as usize];
            let mut last: Option<Vec<u8>> = None;
            iterator.seek_to_first().unwrap();
            while iterator.valid() {
                let number = u64::from_le_bytes(iterator.value().try_into().unwrap());
                assert_eq!(iterator.key()[..8], scattered(number));
                assert!(last.is_none_or(|last| Order::BYTEWISE.compare_internal(&last, iterator.key()).is_lt()));
                last = Some(iterator.key().to_vec());
                if number / WRITERS < before[(number % WRITERS) as usize] {
                    met[(number % WRITERS) as usize] += 1;
                }
                iterator.next().unwrap();
            }
            assert_eq!(met[..], before[..]);
            iterator.seek_to_last().unwrap();
            for _ in 0..100 {
                if !iterator.valid() {
                    break;
                }
                let key = iterator.key().to_vec();
                iterator.prev().unwrap();
                assert!(!iterator.valid() || Order::BYTEWISE.compare_internal(iterator.key(), &key).is_lt());
            }
            for (writer, &count) in before.iter().enumerate().filter(|(_, count)| **count > 0) {
                let number = (count - 1) * WRITERS + writer as u64;
                let hit = memtable.get(&lookup(&scattered(number), u64::MAX)).unwrap();
                assert_eq!(hit.value, number.to_le_bytes());
            }
        }
    });
    assert_eq!(memtable.entry_count(), per_writer * WRITERS);
}
