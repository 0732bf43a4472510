use std::collections::BTreeSet;

use esker_format::cask::FileNumber;
use fastrand::Rng;

use super::super::arena::Arena;
use super::super::shard::{Shard, room_for};
use super::super::slot::{Place, Slot};
use super::super::table::{HEAD_WORDS, Table};

fn place(n: u32) -> Place {
    Place { file: FileNumber::new(1 + n / 1000).unwrap(), offset: n % 1000 }
}

fn arena() -> Arena {
    Arena::new(2 * HEAD_WORDS)
}

/// The second of two, so that one that writes beside its head is noticed.
fn shard(arena: &Arena) -> Shard<'_> {
    Shard::try_lock(Table::new(arena, 1)).unwrap()
}

impl Shard<'_> {
    /// Every slot, by ascending tag.
    fn iter(&self) -> impl Iterator<Item = Slot> {
        self.row(self.table.capacity()).filter(|slot| !slot.is_empty())
    }

    fn memory_bytes(&self) -> usize {
        self.table.capacity() * size_of::<Slot>()
    }

    fn len(&self) -> usize {
        self.table.len()
    }
}

fn check_invariants(shard: &Shard<'_>) {
    let slots: Vec<Slot> = shard.row(shard.table.capacity()).collect();
    assert_eq!(slots.len(), shard.table.capacity());
    let (mut last, mut full_from) = (0, 0);
    for (index, slot) in slots.iter().enumerate() {
        if slot.is_empty() {
            full_from = index + 1;
            continue;
        }
        assert!(slot.tag() >= last, "K1 at {index}");
        last = slot.tag();
        let home = shard.table.home(slot.tag());
        assert!(home <= index, "K2: before its home");
        assert!(home >= full_from, "K2: a gap before {index}");
    }
    assert_eq!(shard.iter().count(), shard.len());
}

fn found(shard: &Shard<'_>, tag: u32) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    shard.table.with_tag(tag, |slot| assert!(found.insert(slot.place())));
    found
}

/// Goal: the same answers as a set, whatever is inserted, replaced and removed, with tags that crowd and tags that collide.
#[test]
fn a_shard_answers_as_a_set_does() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        let mut random = Rng::with_seed(seed);
        let arena = arena();
        let mut shard = shard(&arena);
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
        assert_eq!(shard.len(), model.len());
        for &(tag, place) in &model {
            assert!(found(&shard, tag).contains(&place), "seed {seed}");
        }
        for tag in 0..300 {
            let wanted = model.iter().filter(|entry| entry.0 == tag).map(|entry| entry.1).collect();
            assert_eq!(found(&shard, tag), wanted, "seed {seed}");
        }
        let even: Vec<Slot> = shard.iter().filter(|slot| slot.tag() % 2 == 0).collect();
        shard.settle(&even);
        check_invariants(&shard);
        assert_eq!(shard.iter().collect::<Vec<_>>(), even, "seed {seed}");
    }
}

/// Goal: a table that is made of a list wastes no more than one that grew, and the list comes out as it went in.
#[test]
fn a_table_made_of_a_list_is_about_as_large_as_it_must_be() {
    let mut random = Rng::with_seed(3);
    let arena = arena();
    for len in [0, 1, 50, 1000, 5000, 200, 0, 64] {
        let mut shard = shard(&arena);
        let mut slots: Vec<Slot> = (0..len as u32).map(|n| Slot::new(random.u32(..), place(n), 7)).collect();
        shard.settle(&[]);
        slots.chunks(70).for_each(|some| shard.gather(some));
        assert_eq!(shard.take_gathered(), slots);
        slots.sort_unstable_by_key(Slot::tag);
        shard.settle(&slots);
        check_invariants(&shard);
        assert_eq!(shard.iter().collect::<Vec<_>>(), slots);
        assert!(shard.memory_bytes() <= room_for(len) * size_of::<Slot>(), "{len} in {}", shard.memory_bytes());
    }
}

/// Goal: tables of any size: numbers of segments in the head, in a list, in lists of lists; and all of it is given back.
#[test]
fn a_table_grows_through_all_kinds_of_lists_and_gives_every_segment_back() {
    let arena = arena();
    let empty = arena.memory_bytes();
    let mut shard = shard(&arena);
    let count = if cfg!(miri) { 7_500u32 } else { 100_000 };
    let slots: Vec<Slot> = (0..count).map(|n| Slot::new(n * 42_000, place(n), 7)).collect();
    let lens = [1_000, 7_000, 60_000, 100_000, 65_000, 63_000, 6_000, 6_500, 100_000, 10];
    for len in lens.map(|len| slots.len().min(len)) {
        shard.settle(&slots[..len]);
        check_invariants(&shard);
        assert!(shard.iter().eq(slots[..len].iter().copied()), "{len} slots");
    }
    shard.settle(&[]);
    assert_eq!(arena.memory_bytes(), empty);
}

/// Goal: 24 bytes a key, at every moment from two thousand keys a shard on.
#[test]
fn a_growing_shard_wastes_little() {
    let mut random = Rng::with_seed(1);
    let arena = arena();
    let mut shard = shard(&arena);
    for n in 0..if cfg!(miri) { 2_000 } else { 30_000 } {
        shard.insert(Slot::new(random.u32(..), place(n), 100));
        if shard.len() >= 2_000 {
            let bytes = shard.memory_bytes() as f64 / shard.len() as f64;
            assert!(bytes < 22.5, "{bytes} bytes a key at {} keys", shard.len());
        }
    }
}

#[test]
fn a_shard_gives_memory_back() {
    let arena = arena();
    let mut shard = shard(&arena);
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
