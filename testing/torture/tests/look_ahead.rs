//! What a walk reads before it is asked for, and the thread that reads beside it: what that costs, what it does about damage and failures, and that
//! it shows the walk's own moment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use esker::env::Env;
use esker::env::sim::{ReadFault, SimDisk};
use esker::{Compression, Db, DbIterator, Error, ErrorKind, FamilyOptions, Options, ReadOptions};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::{Contents, backward, forward};
use esker_torture::reads::{Entries, walk};
use esker_torture::seeds;
use fastrand::Rng;

use crate::reads::{KEYS, entries, key, options, separated, store, value};

/// Goal: a scan that asks for every value reads each once, in few reads; one that asks for one value reads one.
#[test]
fn values_that_are_asked_for_one_after_the_other_are_read_together() {
    for compression in [Compression::None, Compression::Lz4] {
        let (db, expected) = store(&SimDisk::new(), compression);
        let family = db.default_column_family();
        for scan in [forward, backward] {
            let before = db.stats();
            assert!(scan(&db, &family, &ReadOptions::default()).unwrap() == entries(&expected));
            let after = db.stats();
            assert_eq!(after.blob_reads - before.blob_reads, separated(&expected), "each value once");
            let calls = after.blob_read_calls - before.blob_read_calls;
            assert!(calls < separated(&expected) / 4, "{calls} reads");
        }
        let before = db.stats();
        let one_by_one = ReadOptions { look_ahead_bytes: 0, ..ReadOptions::default() };
        assert!(forward(&db, &family, &one_by_one).unwrap() == entries(&expected));
        let after = db.stats();
        assert_eq!(after.blob_read_calls - before.blob_read_calls, separated(&expected), "none ahead");
        let mut iterator = db.iter().unwrap();
        iterator.seek(key(50)).unwrap();
        iterator.value().unwrap();
        assert_eq!(db.stats().blob_reads - after.blob_reads, 1);
    }
}

/// Goal: memory of a look ahead is bounded, whatever the values.
#[test]
fn values_beyond_the_bound_of_a_look_ahead_are_read_one_by_one() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(Compression::None), disk.env()).unwrap();
    let large = |n: u32| vec![n as u8; 40_000];
    for n in 0..30 {
        db.put(key(n), large(n)).unwrap();
    }
    db.flush().unwrap();
    let bounded = ReadOptions { look_ahead_bytes: 100_000, ..ReadOptions::default() };
    let before = db.stats();
    let found = forward(&db, &db.default_column_family(), &bounded).unwrap();
    assert!(found == (0..30).map(|n| (key(n), large(n))).collect::<Entries>());
    let calls = db.stats().blob_read_calls - before.blob_read_calls;
    assert!((15..=30).contains(&calls), "{calls} reads for 30 values of which two fit");
}

/// Goal: a damaged value is an error where it stands, and nowhere else: nothing is skipped, nothing else fails.
#[test]
fn damage_that_a_look_ahead_meets_is_told_at_its_entry() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = SimDisk::new();
        let (db, expected) = store(&disk, compression);
        let blobs: Vec<PathBuf> =
            disk.paths().into_iter().filter(|path| path.extension().is_some_and(|it| it == "blob")).collect();
        let mut damaged_count = 0;
        for path in &blobs {
            let bytes = disk.file_bytes(path).unwrap().len() as u64;
            for bit in (40 * 8..(bytes - 40) * 8).step_by(8 * 1999 + 3) {
                disk.flip_bit(path, bit);
                let damaged: Vec<&[u8]> =
                    expected.keys().filter(|key| db.get(key).is_err()).map(Vec::as_slice).collect();
                assert!(damaged.len() <= 1, "a bit lies in one value");
                damaged_count += damaged.len();
                scan_damaged(&db, &expected, &damaged);
                let many = db.multi_get(expected.keys()).unwrap();
                for ((key, value), found) in expected.iter().zip(many) {
                    match found {
                        Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice())),
                        Err(_) => assert!(damaged.contains(&key.as_slice()), "{key:?} is not damaged"),
                    }
                }
                disk.flip_bit(path, bit);
            }
        }
        assert!(damaged_count > 20, "{damaged_count} values were damaged in turn");
    }
}

fn scan_damaged(db: &Db, expected: &Contents, damaged: &[&[u8]]) {
    for is_forward in [true, false] {
        let mut iterator = db.iter().unwrap();
        if is_forward {
            iterator.seek_to_first().unwrap()
        } else {
            iterator.seek_to_last().unwrap()
        }
        let mut seen = Vec::new();
        while iterator.valid() {
            let key = iterator.key().to_vec();
            match iterator.value() {
                Ok(value) => assert_eq!(*value, expected[&key][..]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                    assert!(damaged.contains(&key.as_slice()), "{key:?} is not damaged: {error}");
                }
            }
            seen.push(key);
            if is_forward { iterator.next().unwrap() } else { iterator.prev().unwrap() }
        }
        seen.sort();
        assert!(seen.iter().eq(expected.keys()), "no entry is skipped");
    }
}

/// A store of long values in one blob file, whose iterators have a thread that reads beside them.
fn long_store(disk: &SimDisk, count: u32) -> (Db, Contents) {
    let family = FamilyOptions { min_blob_size: 100, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { background_jobs: 2, families, ..options(Compression::Lz4) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let value = |n: u32| [value(4 * n + 1, 1), value(4 * n + 3, 2), vec![n as u8; 2000]].concat();
    let expected: Contents = (0..count).map(|n| (key(n), value(n))).collect();
    expected.iter().for_each(|(key, value)| db.put(key, value).unwrap());
    db.flush().unwrap();
    (db, expected)
}

/// Goal: damage among what is read and unpacked beside a walk is told at its entry, either way, and nothing else fails.
#[test]
fn damage_that_is_met_beside_a_walk_is_told_at_its_entry() {
    let disk = SimDisk::new();
    let (db, expected) = long_store(&disk, 1500);
    let is_blob = |path: &PathBuf| path.extension().is_some_and(|it| it == "blob");
    let blob = disk.paths().into_iter().find(is_blob).unwrap();
    let bits = disk.file_bytes(&blob).unwrap().len() as u64 * 8;
    assert!((1..30).all(|n| disk.flip_bit(&blob, bits / 30 * n)));
    let damaged: Vec<&[u8]> = expected.keys().filter(|key| db.get(key).is_err()).map(Vec::as_slice).collect();
    assert!((20..30).contains(&damaged.len()), "{} values are damaged", damaged.len());
    (0..4).for_each(|_| scan_damaged(&db, &expected, &damaged));
}

/// Goal: walks that turn, jump, skip values and are let go, while others read beside them, show what a map does; so does one whose store is closed.
#[test]
fn walks_that_are_read_beside_show_what_a_map_does() {
    for seed in seeds(4) {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new();
        let (db, expected) = long_store(&disk, 1200);
        let entries = entries(&expected);
        let mut iterator = db.iter().unwrap();
        for _ in 0..12 {
            if random.u8(..3) == 0 {
                iterator = db.iter().unwrap();
            }
            let mut at = random.usize(..entries.len());
            iterator.seek(&entries[at].0).unwrap();
            for _ in 0..random.usize(1..4) {
                let (is_forward, is_asking) = (random.bool(), random.u8(..8) > 0);
                for _ in 0..random.usize(1..600) {
                    if !iterator.valid() {
                        break;
                    }
                    assert_eq!(iterator.key(), entries[at].0, "seed {seed}");
                    if is_asking {
                        assert_eq!(*iterator.value().unwrap(), entries[at].1[..], "seed {seed}");
                    }
                    if is_forward {
                        iterator.next().unwrap();
                        at += 1;
                    } else {
                        iterator.prev().unwrap();
                        at = at.wrapping_sub(1);
                    }
                    assert_eq!(iterator.valid(), at < entries.len(), "seed {seed}");
                }
            }
        }
        iterator.seek_to_first().unwrap();
        let mut db = Some(db);
        for (at, entry) in entries.iter().enumerate() {
            assert_eq!((iterator.key(), &*iterator.value().unwrap()), (&*entry.0, &*entry.1), "seed {seed}");
            iterator.next().unwrap();
            if at == 500 {
                db.take().unwrap().close().unwrap();
            }
        }
        assert!(!iterator.valid());
    }
}

/// Goal: walks that end too soon for a thread to read beside them have the system read on for them: what they will come to is announced before it is read.
#[test]
fn what_a_short_walk_will_come_to_is_announced() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let (db, _) = store(&disk, Compression::Lz4);
        db.close().unwrap();
        let calls: Arc<Mutex<Vec<char>>> = Arc::default();
        let seen = calls.clone();
        let files = Hooked::new(disk.env().files, move |call| {
            let is_blob = call.path().extension().is_some_and(|it| it == "blob");
            match call {
                Call::Announce(_) if is_blob => seen.lock().unwrap().push('a'),
                Call::Read(_) if is_blob => seen.lock().unwrap().push('r'),
                _ => {}
            }
            Ok(())
        });
        let options = Options { background_jobs, ..options(Compression::Lz4) };
        let db = Db::open_with_env("/store", options, Env { files: Arc::new(files), ..disk.env() }).unwrap();
        // Values in the order of their keys.
        db.reclaim(&db.default_column_family(), 0.0).unwrap();
        for walk in 0..6 {
            calls.lock().unwrap().clear();
            let mut iterator = db.iter().unwrap();
            iterator.seek_to_first().unwrap();
            for _ in 0..150 {
                iterator.value().unwrap();
                iterator.next().unwrap();
            }
            drop(iterator);
            let calls: String = calls.lock().unwrap().iter().collect();
            let after = calls.find('a').map(|at| calls[at..].matches('r').count());
            assert!(walk < 4 || after.is_some_and(|reads| reads > 0), "{background_jobs}, {walk}: {calls}");
        }
    }
}

/// Goal: whichever read of a scan fails, what was shown before is right and in order, the error is told where the walk
/// stood, and a seek goes on from there.
#[test]
fn every_read_of_a_scan_may_fail_once() {
    let disk = SimDisk::new();
    let (db, expected) = store(&disk, Compression::Lz4);
    let expected = entries(&expected);
    let first = disk.read_count();
    assert!(forward(&db, &db.default_column_family(), &ReadOptions::default()).unwrap() == expected);
    let reads = disk.read_count() - first;
    let mut told = 0;
    for n in 0..reads {
        let mut iterator = db.iter().unwrap();
        disk.fail_read_at(disk.read_count() + n, ReadFault::Eio);
        let mut shown = Entries::new();
        while let Err(error) = go_on(&mut iterator, &mut shown) {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            told += 1;
        }
        assert!(shown == expected, "read {n} of {reads} failed");
    }
    assert!(told > 0 && told < reads, "{told} of {reads}: tables' reads are told, those ahead of values tried again");
}

/// Shows what comes after `shown`.
fn go_on(iterator: &mut DbIterator, shown: &mut Entries) -> Result<(), Error> {
    match shown.last() {
        None => iterator.seek_to_first()?,
        Some((last, _)) => iterator.seek([last.as_slice(), &[0]].concat())?,
    }
    while iterator.valid() {
        shown.push((iterator.key().to_vec(), iterator.value()?.to_vec()));
        iterator.next()?;
    }
    Ok(())
}

/// Goal: what a walk looks at ahead is of the walk's moment, whatever is written, flushed and compacted meanwhile.
#[test]
fn a_look_ahead_sees_its_own_moment() {
    for seed in seeds(20) {
        let mut random = Rng::with_seed(seed);
        let (db, expected) = store(&SimDisk::new(), Compression::None);
        let snapshot = db.snapshot();
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        let mut shown = Entries::new();
        while iterator.valid() {
            shown.push((iterator.key().to_vec(), iterator.value().unwrap().to_vec()));
            let n = random.u32(..KEYS);
            match random.u8(..40) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
                2..12 => db.delete(key(n)).unwrap(),
                _ => db.put(key(n), value(n, random.u8(..))).unwrap(),
            }
            iterator.next().unwrap();
        }
        assert!(shown == entries(&expected), "seed {seed}");
        let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        let iterator = db.iter_cf(&db.default_column_family(), &then).unwrap();
        assert!(walk(&mut random, iterator).unwrap() == entries(&expected), "seed {seed}: the snapshot");
    }
}

/// Goal: a walk as long as those before it reads the values that it asks for and no others.
#[test]
fn walks_of_the_same_length_read_what_they_ask_for() {
    const VALUES: u64 = 40;
    let (db, _) = store(&SimDisk::new(), Compression::None);
    let mut read = Vec::new();
    for walk in 0..6 {
        let before = db.stats();
        let mut iterator = db.iter().unwrap();
        iterator.seek(key(walk)).unwrap();
        let mut asked = 0;
        while asked < VALUES {
            if iterator.value_len().unwrap() >= 100 {
                iterator.value().unwrap();
                asked += 1;
            }
            iterator.next().unwrap();
        }
        drop(iterator);
        let after = db.stats();
        read.push(after.blob_reads - before.blob_reads);
        if walk > 3 {
            assert!(after.blob_read_calls - before.blob_read_calls < VALUES / 4, "and reads them together");
        }
    }
    assert!(read[0] > VALUES, "the first does not know: {read:?}");
    assert_eq!(read[4..], [VALUES, VALUES]);
}
