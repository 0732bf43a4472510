//! What writers are let write, who waits, and for how long.

use std::cell::Cell;

use esker_env::sim::SimDisk;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::FileNumber;

use super::*;
use crate::options::Options;
use crate::version::testing;
use crate::{Compression, Db, FamilyOptions};

fn open(options: Options, family: FamilyOptions) -> Db {
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..options };
    Db::open_with_env("/db", options, SimDisk::new().env()).unwrap()
}

/// A store with a few values in a blob file, and little that it may take above them.
fn small(max_disk_bytes: u64) -> Db {
    let family = FamilyOptions {
        min_blob_size: 1000,
        write_buffer_bytes: 1 << 20,
        blob_file_bytes: 4 << 20,
        ..FamilyOptions::default()
    };
    let db = open(Options { max_disk_bytes, ..Options::default() }, family);
    (0..20u8).for_each(|n| db.put([n], [n; 10_000]).unwrap());
    db.flush().unwrap();
    db
}

/// Does so while somebody else is at work, who does not end before.
fn beside_work<T>(store: &Store, waits: impl FnOnce() -> T) -> T {
    store.state.lock().compacting += 1;
    let result = waits();
    store.state.lock().compacting -= 1;
    result
}

/// Leaves writers nothing.
fn fill_up(store: &Store) -> Reserved {
    store.room.reserve(store.for_writers(&store.left_afresh()).max(0) as u64)
}

/// A store whose keys are divided.
fn divided() -> Db {
    let family = FamilyOptions {
        min_blob_size: 1000,
        write_buffer_bytes: 512 << 10,
        blob_file_bytes: 512 << 10,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    let db = open(Options::default(), family);
    (0..8000u32).for_each(|n| db.put((n % 4000).to_be_bytes(), [n as u8; 1500]).unwrap());
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert!(db.store().family(0).unwrap().ranges.count() > 1);
    db
}

/// Goal (W1): who asks for more than the bound can ever leave goes ahead beside those who write little, and a few flushes do for it. Nor are those
/// made to look for each of its looks.
#[test]
fn a_batch_that_never_fits_goes_ahead_beside_other_writers() {
    let db = small(0);
    let (store, looks) = (db.store(), Cell::new(0u32));
    let (bytes, before) = (signed(store.left().slack), db.stats().flushes);
    let mut lost = 0;
    let admitted = store.wait_until(COPIES * bytes, 0, |is_last| {
        looks.set(looks.get() + 1);
        assert!(looks.get() < 50, "after {} flushes", db.stats().flushes - before);
        db.put("small", looks.get().to_le_bytes()).unwrap();
        store.take(bytes, is_last)
    });
    assert!(admitted.is_ok(), "{admitted:?}");
    drop(admitted);
    assert!(db.stats().flushes - before <= u64::from(TRIES_MAX), "{}", db.stats().flushes - before);
    for _ in 0..5 {
        db.put("small", "small").unwrap();
        assert!(store.take(bytes, false).is_none());
        lost += u32::from(store.room.credit.load(Ordering::Relaxed) <= 0);
    }
    assert_eq!(lost, 0);
}

/// Goal (W5): files that are larger than what is left beside those who write little are refused, after a few flushes.
#[test]
fn files_that_never_fit_are_refused_beside_writers() {
    let db = small(64 << 20);
    let (store, looks) = (db.store(), Cell::new(0u32));
    let (bytes, before) = (128u64 << 20, db.stats().flushes);
    let reserved = store.wait_until(signed(bytes), 0, |_| {
        looks.set(looks.get() + 1);
        assert!(looks.get() < 50, "after {} flushes", db.stats().flushes - before);
        db.put("small", looks.get().to_le_bytes()).unwrap();
        store.take_for_files(bytes, false)
    });
    assert_eq!(reserved.unwrap_err().kind(), crate::ErrorKind::Exhausted);
    assert!(db.stats().flushes - before <= u64::from(TRIES_MAX), "{}", db.stats().flushes - before);
}

/// Goal (W1, W6): nor does a batch wait for ever where somebody is always at work, and others take what that frees; no longer either where a
/// load waits for a moment, which takes little, and leaves writers much.
#[test]
fn a_batch_waits_while_others_are_let_write_no_more_than_their_turns() {
    let looked = [false, true].map(|beside_load| {
        let db = small(0);
        let (store, looks) = (db.store(), Cell::new(0u32));
        let bytes = signed(store.left().slack);
        let load = Cell::new(beside_load.then(|| Wanted::of(&store.room, bytes, signed(store.room.of_writers()))));
        let admitted = beside_work(store, || {
            store.wait_until(COPIES * bytes, 0, |is_last| {
                looks.set(looks.get() + 1);
                if looks.get() == 5 {
                    return Some(None);
                }
                for _ in 0..400 {
                    assert!(store.take(1 << 18, false).is_some());
                    store.room.credit.store(0, Ordering::Relaxed);
                }
                drop(load.take());
                store.take(bytes, is_last).map(Some)
            })
        });
        assert!(admitted.unwrap().is_some() && looks.get() > 1, "it waits at first, and not for ever");
        looks.get()
    });
    assert_eq!(looked[0], looked[1], "alone, and beside a load");
}

/// Goal (W1): who waits does not go beyond the bound as long as something is freed, though others come first and take it.
#[test]
fn what_others_take_of_what_is_freed_counts_for_who_waits() {
    let db = small(0);
    let (store, looks, bytes) = (db.store(), Cell::new(0u32), 1 << 18);
    let full = Cell::new(Some(fill_up(store)));
    let admitted = store.wait_until(COPIES * bytes, 0, |is_last| {
        looks.set(looks.get() + 1);
        assert!(!is_last, "at look {}", looks.get());
        db.delete(looks.get().to_le_bytes()).unwrap();
        if looks.get() > 1 {
            drop(full.take());
            assert!(store.take(bytes, false).is_some());
            full.set((looks.get() < 10).then(|| fill_up(store)));
        }
        store.take(bytes, is_last)
    });
    assert!(admitted.is_ok() && looks.get() == 10, "{admitted:?}");
}

/// Goal (W3): nobody is refused for what others began to hide just after it had all brought to light.
#[test]
fn what_is_hidden_later_is_brought_to_light_too() {
    let family = FamilyOptions {
        min_blob_size: 1000,
        write_buffer_bytes: 1 << 20,
        blob_file_bytes: 1 << 20,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    let db = open(Options { max_disk_bytes: 64 << 20, max_space_amp: 50.0, ..Options::default() }, family);
    (0..10u8).for_each(|n| db.put([n], vec![n; 1 << 20]).unwrap());
    db.flush().unwrap();
    let (store, looks, bytes) = (db.store(), Cell::new(0u32), 1 << 20);
    let lacking = store.room.reserve(store.left_afresh().disk as u64 + (2 << 20));
    let admitted = store.wait_until(COPIES * bytes, 0, |is_last| {
        looks.set(looks.get() + 1);
        if looks.get() == 2 {
            (0..8u8).for_each(|n| db.delete([n]).unwrap());
        }
        store.take(bytes, is_last)
    });
    assert!(admitted.is_ok(), "{admitted:?} after {} looks", looks.get());
    drop(lacking);
}

/// Goal (W6): who wants little where much is lacking gets an answer, though others free a little again and again, and a few flushes do for it.
#[test]
fn what_frees_little_of_what_is_lacking_keeps_nobody_waiting() {
    let db = small(0);
    let (store, looks, before) = (db.store(), Cell::new(0u32), db.stats().flushes);
    let lacking = store.room.reserve(store.left_afresh().bound as u64 + (10 << 20));
    let admitted = store.wait_until(COPIES * 100, 0, |is_last| {
        looks.set(looks.get() + 1);
        assert!(looks.get() < 10, "after {} flushes", db.stats().flushes - before);
        lacking.note_written(64 << 10);
        db.delete(looks.get().to_le_bytes()).unwrap();
        store.take(100, is_last)
    });
    assert!(admitted.is_ok(), "{admitted:?}");
    assert!(db.stats().flushes - before <= u64::from(TRIES_MAX), "{}", db.stats().flushes - before);
}

/// Goal (W6): the same where others bring files, or are let go beyond the bound.
#[test]
fn whatever_others_are_let_write_has_its_turn_once() {
    for of_files in [true, false] {
        let db = small(0);
        let (store, looks) = (db.store(), Cell::new(0u32));
        let bytes = signed(store.left().slack);
        let _beyond = store.room.reserve(64 << 20);
        let admitted = beside_work(store, || {
            store.wait_until(COPIES * bytes, 0, |is_last| {
                looks.set(looks.get() + 1);
                if looks.get() == 5 {
                    return Some(None);
                }
                for _ in 0..400 {
                    let is_let = match of_files {
                        true => store.take_for_files(4 << 20, false).is_some(),
                        false => store.take(1 << 18, true).is_some(),
                    };
                    assert!(is_let);
                    store.room.credit.store(0, Ordering::Relaxed);
                }
                store.take(bytes, is_last).map(Some)
            })
        });
        assert!(admitted.unwrap().is_some() && looks.get() > 1, "it waits at first, and not for ever");
    }
}

/// Goal (W1): where many wait and somebody is always at work, who comes late goes beyond the bound only after all have had their turns: else
/// what it takes would be a reason for the next.
#[test]
fn who_waits_beside_many_lets_all_of_them_have_their_turns() {
    let db = small(0);
    let (store, looks, bytes) = (db.store(), Cell::new(0), 1 << 18);
    let _others: Vec<_> = (0..63).map(|_| Wanted::of(&store.room, COPIES * bytes, 0)).collect();
    let full = Cell::new(Some(fill_up(store)));
    let admitted = beside_work(store, || {
        store.wait_until(COPIES * bytes, 0, |is_last| {
            looks.set(looks.get() + 1);
            if looks.get() == 9 {
                return Some(None);
            }
            let admitted = store.take(bytes, is_last).map(Some);
            for _ in 0..1000 {
                drop(full.take());
                assert!(store.take(bytes, false).is_some());
                full.set(Some(fill_up(store)));
            }
            admitted
        })
    });
    assert!(admitted.unwrap().is_some(), "nobody waits for ever");
    let turns = (looks.get() - 1) * 1000;
    assert_eq!(turns, 4000, "64 times 48 turns, and up to a thousand more");
}

/// Goal (W2): what is let write beyond the bound is there on the disk.
#[test]
fn what_goes_beyond_the_bound_takes_no_more_of_the_disk_than_there_is() {
    let db = small(64 << 20);
    let (store, bytes, more) = (db.store(), 100_000, 1000);
    let lacking = store.left_afresh().disk - COPIES * (bytes + more);
    let _full = store.room.reserve(lacking as u64);
    assert!(store.left().bound < 0 && store.take(bytes, false).is_none());
    assert!(store.take(bytes, true).is_some());
    let credit = store.room.credit.load(Ordering::Relaxed);
    assert!((1..=more).contains(&credit), "{credit}");
}

/// Goal (W3): deletions that take of what is kept are flushed, though a put waits and looks again and again; a large put that comes makes
/// nobody flush.
#[test]
fn deletions_are_flushed_beside_a_put_that_waits() {
    let db = small(64 << 20);
    let (store, before) = (db.store(), db.stats().flushes);
    db.put("small", "small").unwrap();
    let credit = store.room.credit.fetch_sub(1 << 40, Ordering::Relaxed);
    assert!(!store.room.has_deletions_to_flush());
    store.room.credit.store(credit.min(0), Ordering::Relaxed);
    for n in 0..8000u32 {
        assert!(store.take(1 << 40, false).is_none());
        store.room.credit.store(0, Ordering::Relaxed);
        db.delete(n.to_be_bytes()).unwrap();
    }
    let flushes = db.stats().flushes - before;
    assert!((1..4).contains(&flushes), "{flushes} for {} bytes", 8000 * 21);
}

/// Goal: while a pass is under way, whatever of it is written, nothing is left for one more; other work is no pass.
#[test]
fn nothing_is_left_for_another_pass_while_one_is_under_way() {
    let db = divided();
    let store = db.store();
    let next_pass = || store.left().next_pass;
    let before = next_pass();
    assert!(before > 0);
    let merge = store.room.reserve(1 << 30);
    assert_eq!(next_pass(), before);
    drop(merge);
    let pass = store.room.reserve_for_pass(before as u64);
    assert_eq!(next_pass(), 0);
    pass.note_written(before as u64 - 1);
    assert_eq!(next_pass(), 0);
    pass.note_written(before as u64);
    assert_eq!(next_pass(), 0);
    drop(pass);
    assert_eq!(next_pass(), before);
}

/// Goal (W3): nobody frees whatever can be freed for somebody who has given up.
#[test]
fn space_is_short_no_longer_than_somebody_waits_for_it() {
    let db = small(64 << 20);
    let store = db.store();
    let refused = db.put("huge", vec![0; 30 << 20]).unwrap_err();
    assert!(refused.kind() == crate::ErrorKind::Exhausted && store.room.is_short());
    db.delete("small").unwrap();
    db.flush().unwrap();
    assert!(!store.room.is_short());
}

/// Goal: whatever tables say that they point to, writers look what is left, and passes are picked.
#[test]
fn what_tables_say_is_summed_up_without_overflow() {
    let db = small(0);
    let store = db.store();
    let refs = [(1, u64::MAX), (2, u64::MAX)].map(|(file, bytes)| (FileNumber::new(file), bytes)).into();
    let pointing = testing::pointing_table(store, 9, &[("k", 7, Some("-"))], &refs);
    let deepest = testing::table(store, 1, &[("k", 1, Some("old"))]);
    testing::install(&db, vec![(0, pointing.clone()), (6, deepest)], 100);
    store.left();
    db.put("large", [3; 2000]).unwrap();
    db.wait_for_compact().unwrap();
    let version = store.family(0).unwrap().view.load().version.clone();
    assert_eq!(version.bytes_into(&refs.keys().copied().collect(), [&pointing]), 0);
}

/// Goal: the same of one that says nothing, and is read for it.
#[test]
fn what_pointers_of_a_table_say_is_summed_up_without_overflow() {
    let db = small(0);
    let file = FileNumber::new(1);
    let index = BlobIndex { file, offset: 100, bytes: u64::MAX, compression: Compression::None };
    let table = testing::table_of_pointers(db.store(), 1, &[("k", 1, index), ("l", 2, index)]);
    assert_eq!(table.blob_refs().unwrap().get(&file), Some(&u64::MAX));
}

/// Goal: who waits for work wakes others only if they could begin some, and waits all the same for what is kept out a while.
#[test]
fn nobody_is_woken_for_a_family_that_is_kept_out() {
    let db = small(0);
    let mut state = db.store().state.lock();
    state.to_compact.clear();
    assert!(!state.is_due() && !state.can_begin());
    state.to_compact.extend([0, 1]);
    for (kept_out, can_begin) in [(KeptOut::All, false), (KeptOut::Compactions, true)] {
        state.manual.extend([(0, KeptOut::All), (1, kept_out)]);
        assert_eq!((state.is_due(), state.can_begin()), (true, can_begin));
    }
    state.manual.insert(1, KeptOut::All);
    state.to_flush.insert(0);
    assert!(state.can_begin(), "memtables of such a family are flushed");
    (state.to_flush, state.manual) = Default::default();
}

/// Goal (W1): a compaction of a store without blob files holds no writer back, however much it merges; with one, it counts.
#[test]
fn a_compaction_counts_for_the_bound_only_where_there_are_blob_files() {
    let family = FamilyOptions { min_blob_size: 1000, blob_file_bytes: 1 << 20, ..FamilyOptions::default() };
    let db = open(Options::default(), family);
    let store = db.store();
    let merge = || store.room.reserve(1 << 30);
    for n in 0..1000u32 {
        db.put(n.to_le_bytes(), [1; 100]).unwrap();
    }
    store.flush(&[0]).unwrap();
    let running = merge();
    assert_eq!(store.left().bound, i64::MAX);
    drop(running);
    db.put("large", [2; 2000]).unwrap();
    store.flush(&[0]).unwrap();
    assert!((0..i64::MAX).contains(&store.left().bound));
    let _running = merge();
    assert!(store.left().bound < 0);
}

/// Goal (W1): where most of what lives lies with its keys, what writers leave for the next pass over a range is no more than there is.
#[test]
fn the_next_pass_takes_no_more_than_a_part_of_the_bound() {
    let family = FamilyOptions {
        min_blob_size: 1000,
        write_buffer_bytes: 512 << 10,
        blob_file_bytes: 512 << 10,
        ..FamilyOptions::default()
    };
    let db = open(Options::default(), family);
    let noise = |n: u32, bytes: u32| (0..bytes).map(move |at| (n.wrapping_mul(at | 1) >> 7) as u8).collect::<Vec<_>>();
    for n in 0..8000u32 {
        let key = [b"large".as_slice(), &(n % 4000).to_be_bytes()].concat();
        db.put(key, noise(n, 1500)).unwrap();
    }
    for n in 0..40_000u32 {
        db.put(n.to_be_bytes(), noise(n, 700)).unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let (store, family) = (db.store(), db.store().family(0).unwrap());
    let left = store.left();
    assert!(family.ranges.count() > 1 && left.next_pass > 0, "{left:?}");
    assert!(left.bound > left.next_pass * 2, "writers would wait where there is no garbage: {left:?}");
}

/// Goal (W5): what comes in as files, into whatever family, takes nothing of the bound, before it is taken in, afterwards, or given up.
#[test]
fn files_that_come_in_take_nothing_of_the_bound() {
    let family = FamilyOptions { min_blob_size: 1000, ..FamilyOptions::default() };
    let db = open(Options::default(), family.clone());
    let (store, other) = (db.store(), db.create_column_family("other", family).unwrap());
    db.put("large", [2; 2000]).unwrap();
    store.flush(&[0]).unwrap();
    let before = store.left();
    let load_into = |value_bytes: usize| {
        let mut load = db.bulk_load(&other).unwrap();
        let value = |n: u32| (0..value_bytes as u32).map(move |at| (n.wrapping_mul(at | 1) >> 7) as u8);
        (0..40u32 << 20 >> value_bytes.ilog2())
            .for_each(|n| load.put(n.to_be_bytes(), value(n).collect::<Vec<_>>()).unwrap());
        load
    };
    for value_bytes in [256, 4096] {
        let load = load_into(value_bytes);
        let during = store.left();
        assert!(before.disk - during.disk > 4 << 20, "{before:?}, {during:?}");
        assert!((before.bound - during.bound).abs() < 3 << 20, "{before:?}, {during:?}");
        drop(load);
        store.trash.purge().unwrap();
        let after = store.left();
        assert_eq!((after.disk, after.bound), (before.disk, before.bound), "given up, it leaves nothing");
    }
    for value_bytes in [256, 4096] {
        let (before, load) = (store.left(), load_into(value_bytes));
        load.finish().unwrap();
        let after = store.left();
        assert!(after.bound > before.bound, "{before:?}, {after:?}");
    }
}

/// Goal: who is refused at a limit is told how near it is, and which one, and that room would help.
#[test]
fn a_refusal_for_want_of_room_names_the_limit() {
    let refused = small(64 << 20).put("huge", vec![0; 30 << 20]).unwrap_err();
    assert!(refused.to_string().contains("of 67108864 (max_disk_bytes)"), "{refused}");
    assert!(refused.wants_room());
    let refused = small(0).store().no_room("for more");
    assert!(refused.to_string().contains("that the disk has for it"), "{refused}");
}
