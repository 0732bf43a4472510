use std::sync::atomic::{AtomicBool, Ordering};

use esker_format::cask::FileNumber;

use super::directory::SHARD_SHIFT;
use super::*;

mod arena;
mod shard;

fn place(offset: u32) -> Place {
    Place { file: FileNumber::new(1).unwrap(), offset }
}

/// Keys of one shard, with tags that differ, and one of another.
fn hashes(count: u64) -> (Vec<KeyHash>, KeyHash) {
    let one = |n: u64, shard: u64| KeyHash((shard << SHARD_SHIFT) | (n * (u64::from(u32::MAX) / (count + 1))));
    ((1..=count).map(|n| one(n, 77)).collect(), one(1, 78))
}

fn offset(keydir: &KeyDir, hash: KeyHash) -> Option<u32> {
    let candidates = keydir.newest(hash);
    let mut offsets = candidates.iter().map(|slot| slot.place().offset);
    let first = offsets.next();
    assert!(offsets.next().is_none(), "two slots of one key");
    first
}

/// Goal (Q1 to Q3): a reader finds a key that is there at every moment, with a slot that was put there whole and none that is older than one
/// it has seen, while others come and go around it and the table grows, shrinks and hands its memory to another shard.
#[test]
fn a_reader_finds_its_key_whatever_moves_around_it() {
    let keydir = KeyDir::new(1);
    let (all, other) = hashes(if cfg!(miri) { 70 } else { 300 });
    let (key, around) = all.split_at(all.len() / 2);
    let (key, around) = (key[key.len() - 1], [around, &key[..key.len() - 1]].concat());
    let rounds = if cfg!(miri) { 4 } else { 300 };
    keydir.lock(key.shard()).insert(Slot::new(key.tag(), place(1), 1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let candidates = keydir.newest(key);
                    let slots: Vec<Slot> = candidates.iter().collect();
                    assert_eq!(slots.len(), 1, "the key is always there, once");
                    let (now, bytes) = (slots[0].place().offset, slots[0].bytes());
                    assert_eq!(bytes, Some(now.into()), "half of one slot and half of another");
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            });
        }
        let mut next = 1;
        for _ in 0..rounds {
            for hash in &around {
                keydir.lock(hash.shard()).insert(Slot::new(hash.tag(), place(9), 9));
            }
            next += 1;
            assert!(keydir.replace(key, place(next - 1), Slot::new(key.tag(), place(next), next.into())));
            for hash in &around {
                assert!(keydir.remove(*hash, place(9)).is_some());
            }
            // Takes what was given back, and fills it with slots that have the same tags.
            let foreign: Vec<Slot> = all.iter().map(|hash| Slot::new(hash.tag(), place(5), 6)).collect();
            keydir.lock(other.shard()).settle(&foreign);
            keydir.lock(other.shard()).settle(&[]);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Goal (T1): whoever has seen one change of a batch sees the others, in whatever order they are looked at.
#[test]
fn a_batch_is_seen_whole() {
    let keydir = KeyDir::new(1);
    let hash = |shard: u64| KeyHash((shard << SHARD_SHIFT) | 5);
    let keys = [hash(3), hash(900), hash(40)];
    for key in keys {
        keydir.lock(key.shard()).insert(Slot::new(key.tag(), place(1), 1));
    }
    let rounds = if cfg!(miri) { 30 } else { 5_000 };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let (keydir, done) = (&keydir, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    for index in order {
                        let now = offset(keydir, keys[index]).unwrap();
                        assert!(now >= last, "a batch came apart: {now} after {last}");
                        last = now;
                    }
                }
            });
        }
        for round in 1..rounds {
            let mut held = keydir.hold(keys.into_iter());
            for key in keys {
                let new = Slot::new(key.tag(), place(round + 1), 1);
                assert!(held.change(key, |shard| shard.replace(place(round), new)));
            }
            held.release();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Goal: who finds a shard locked by a batch waits for the end of it, and changes what it finds then.
#[test]
fn a_change_waits_for_a_batch() {
    let keydir = KeyDir::new(1);
    let (keys, _) = hashes(2);
    let held = keydir.hold(keys.iter().copied());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| keydir.lock(keys[0].shard()).insert(Slot::new(keys[0].tag(), place(3), 1)));
        let reading = scope.spawn(|| offset(&keydir, keys[1]));
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished() && !reading.is_finished());
        held.release();
        waiting.join().unwrap();
        assert_eq!(reading.join().unwrap(), None);
    });
    assert_eq!(offset(&keydir, keys[0]), Some(3));
}
