use std::collections::BTreeSet;

use esker_format::cask::FileNumber;
use fastrand::Rng;

use super::*;

fn place(n: u32) -> Place {
    Place { file: FileNumber::new(1 + n / 1000).unwrap(), offset: n % 1000 }
}

impl Shard {
    /// Every slot, by ascending tag.
    fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.iter().copied().filter(|slot| !slot.is_empty())
    }
}

fn check_invariants(shard: &Shard) {
    let mut last = 0;
    for index in 0..shard.capacity() {
        let slot = shard.at(index);
        if slot.is_empty() {
            continue;
        }
        assert!(slot.tag() >= last, "K1 at {index}");
        last = slot.tag();
        let home = shard.home(slot.tag());
        assert!(home <= index, "K2: before its home");
        assert!((home..index).all(|index| !shard.at(index).is_empty()), "K2: a gap before {index}");
    }
    assert_eq!(shard.iter().count(), shard.len);
}

fn found(shard: &Shard, tag: u32) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    shard.with_tag(tag, |slot| assert!(found.insert(slot.place())));
    found
}

/// Goal: the same answers as a set, whatever is inserted, replaced and removed, with tags that crowd and tags that collide.
#[test]
fn a_shard_answers_as_a_set_does() {
    for seed in 0..30 {
        let mut random = Rng::with_seed(seed);
        let mut shard = Shard::default();
        let mut model: BTreeSet<(u32, Place)> = BTreeSet::new();
        let width = [u32::MAX, 1 << 20, 300][seed as usize % 3];
        let mut fresh = 0;
        for step in 0..4000 {
            let tag = if random.u8(..10) == 0 { u32::MAX - random.u32(..5) } else { random.u32(..width) };
            let known = model.range((tag, place(0))..).next().copied();
            match (random.u8(..10), known) {
                (0..3, Some((tag, place))) if step > 2000 || random.bool() => {
                    assert_eq!(shard.remove(tag, place).map(|slot| slot.place()), Some(place), "seed {seed}");
                    assert!(shard.remove(tag, place).is_none());
                    model.remove(&(tag, place));
                }
                (3, Some((tag, old))) => {
                    fresh += 1;
                    assert!(shard.replace(old, Slot::new(tag, place(fresh), 7)));
                    assert!(!shard.replace(old, Slot::new(tag, place(fresh), 7)), "it is there no more");
                    model.remove(&(tag, old));
                    model.insert((tag, place(fresh)));
                }
                _ => {
                    fresh += 1;
                    shard.insert(Slot::new(tag, place(fresh), 7));
                    model.insert((tag, place(fresh)));
                }
            }
            if step % 64 == 0 {
                check_invariants(&shard);
            }
        }
        assert_eq!(shard.len, model.len());
        for &(tag, place) in &model {
            assert!(found(&shard, tag).contains(&place), "seed {seed}");
        }
        for tag in 0..300 {
            let wanted = model.iter().filter(|entry| entry.0 == tag).map(|entry| entry.1).collect();
            assert_eq!(found(&shard, tag), wanted, "seed {seed}");
        }
        let even: Vec<Slot> = shard.iter().filter(|slot| slot.tag() % 2 == 0).collect();
        let made = Shard::from_sorted(even.clone());
        check_invariants(&made);
        assert_eq!(made.iter().collect::<Vec<_>>(), even, "seed {seed}");
    }
}

/// Goal: a table that is made at once wastes no more than one that grew, whatever memory its slots came in.
#[test]
fn a_table_made_of_a_list_is_about_as_large_as_it_must_be() {
    let mut random = Rng::with_seed(3);
    for len in [0, 1, 50, 1000, 5000] {
        let least = Shard::room_for(len);
        for room in [len, least, least + least / 10, 3 * least] {
            let mut slots = Vec::with_capacity(room);
            slots.extend((0..len as u32).map(|n| Slot::new(random.u32(..), place(n), 7)));
            slots.sort_unstable_by_key(Slot::tag);
            let shard = Shard::from_sorted(slots);
            check_invariants(&shard);
            assert_eq!(shard.len, len);
            assert!(shard.memory_bytes() <= (least + least / 7 + 64) * size_of::<Slot>(), "{len} in {room}");
        }
    }
}

/// Goal: 24 bytes a key, at every moment from a few hundred keys a shard on.
#[test]
fn a_growing_shard_wastes_little() {
    let mut random = Rng::with_seed(1);
    let mut shard = Shard::default();
    for n in 0..30_000 {
        shard.insert(Slot::new(random.u32(..), place(n), 100));
        if shard.len >= 600 {
            let bytes = shard.memory_bytes() as f64 / shard.len as f64;
            assert!(bytes < 22.5, "{bytes} bytes a key at {} keys", shard.len);
        }
    }
}

#[test]
fn a_shard_gives_memory_back() {
    let mut shard = Shard::default();
    for n in 0..5000 {
        shard.insert(Slot::new(n * 800_000, place(n), 100));
    }
    let full = shard.memory_bytes();
    for n in 0..4900 {
        shard.remove(n * 800_000, place(n)).unwrap();
    }
    check_invariants(&shard);
    assert!(shard.memory_bytes() * 4 < full);
}
