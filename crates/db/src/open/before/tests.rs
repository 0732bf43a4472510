//! What is handed on, and what is not, seen from within.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_format::compression::Compression;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::log::RECYCLABLE_HEADER_BYTES;

use crate::family::Generation;
use crate::open::tests::{DIR, edit_manifest, open, options};
use crate::options::{FamilyOptions, Options, ReadOptions, Separation, TransactionOptions};
use crate::version::{BlobHandle, TableFile};
use crate::{Db, ErrorKind, RecoveryMode, WriteOptions};

fn plain() -> Options {
    options(FamilyOptions { separation: Separation::Off, ..FamilyOptions::default() })
}

fn separating(separation: Separation) -> Options {
    let compression = Compression::None;
    options(FamilyOptions { separation, min_blob_size: 200, blob_compression: compression, ..FamilyOptions::default() })
}

fn read(disk: &SimDisk, options: &Options) -> Db {
    Db::open_read_only_with_env(DIR, options.clone(), disk.env()).unwrap()
}

fn get(db: &Db, key: &str) -> Option<Vec<u8>> {
    db.get(key).unwrap().map(|value| value.to_vec())
}

fn active(db: &Db) -> Arc<Generation> {
    db.store().default_family.view.load().active.clone()
}

fn are_continued(before: &Db, after: &Db) -> bool {
    Arc::ptr_eq(&active(before), &active(after))
}

fn tables(db: &Db) -> BTreeMap<FileNumber, Arc<TableFile>> {
    let view = db.store().default_family.view.load();
    view.version.tables().map(|(_, table)| (table.number(), table.clone())).collect()
}

fn blobs(db: &Db) -> BTreeMap<FileNumber, Arc<BlobHandle>> {
    db.store().default_family.view.load().version.blobs().clone()
}

/// How many of the tables of `after` are those that `before` has open.
fn shared_tables(before: &Db, after: &Db) -> usize {
    let before = tables(before);
    let is_same = |(number, table): &(_, Arc<TableFile>)| before.get(number).is_some_and(|one| Arc::ptr_eq(one, table));
    tables(after).into_iter().filter(is_same).count()
}

fn files(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.file_bytes(&path).unwrap())).collect()
}

/// Puts other files in place of those that are there; none is the file that it was.
fn replace(disk: &SimDisk, by: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in disk.paths() {
        disk.env().files.remove(&path).unwrap();
    }
    for (path, bytes) in by {
        disk.overwrite(path, bytes.clone());
    }
}

#[test]
fn only_an_open_handle_for_reading_catches_up() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    let error = db.catch_up().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let reader = read(&disk, &plain());
    let (other, next) = (reader.clone(), reader.catch_up().unwrap());
    reader.close().unwrap();
    assert_eq!(other.catch_up().unwrap_err().kind(), ErrorKind::Closed);
    db.put("key", "value").unwrap();
    assert_eq!(get(&next.catch_up().unwrap(), "key").unwrap(), b"value", "it is open by itself");
    assert_eq!(next.put("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
    db.close().unwrap();
    assert_eq!(get(&next.catch_up().unwrap(), "key").unwrap(), b"value");
}

/// Goal: the log goes on in the same memtables, and who read them before sees nothing of it.
#[test]
fn memtables_go_on_and_older_handles_do_not() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    for n in 0..100u32 {
        db.put(format!("key {n:03}"), n.to_string()).unwrap();
    }
    let mut handles = vec![read(&disk, &plain())];
    let iterator = handles[0].iter().unwrap();
    for round in 0..5u32 {
        db.put("key 001", format!("round {round}")).unwrap();
        db.delete("key 002").unwrap();
        db.delete_range(format!("key {:03}", 10 * round + 10), format!("key {:03}", 10 * round + 20)).unwrap();
        db.put(format!("new {round}"), "").unwrap();
        let next = handles.last().unwrap().catch_up().unwrap();
        assert!(are_continued(&handles[0], &next));
        handles.push(next);
    }
    for (rounds, handle) in handles.iter().enumerate() {
        let expected = if rounds == 0 { "1".to_owned() } else { format!("round {}", rounds - 1) };
        assert_eq!(get(handle, "key 001").unwrap(), expected.as_bytes());
        assert_eq!(get(handle, "key 002").is_none(), rounds > 0);
        let many = handle.multi_get(["key 001", "key 010", "key 050"]).unwrap();
        let many: Vec<_> = many.into_iter().map(|found| found.unwrap().map(|value| value.to_vec())).collect();
        assert_eq!(many[0].as_deref(), Some(expected.as_bytes()));
        assert_eq!((many[1].is_none(), many[2].is_none()), (rounds > 0, rounds > 4));
        let keys: Vec<_> = handle.iter().unwrap().entries().map(|entry| entry.unwrap().0).collect();
        let expected = if rounds == 0 { 100 } else { 99 - 10 * rounds + rounds };
        assert_eq!(keys.len(), expected, "after {rounds} rounds");
        let (mut backward, mut count) = (handle.iter().unwrap(), 0);
        backward.seek_to_last().unwrap();
        while backward.valid() {
            count += 1;
            backward.prev().unwrap();
        }
        assert_eq!(count, expected);
        assert_eq!(handle.exists("new 0").unwrap(), rounds > 0);
    }
    assert_eq!(iterator.entries().count(), 100);
    // Whoever catches up from an older one comes to the same.
    let again = handles[1].catch_up().unwrap();
    assert!(are_continued(&handles[0], &again));
    assert_eq!(get(&again, "key 001").unwrap(), b"round 4");
}

/// Goal: what comes into memtables for others is no write to what a transaction of an older handle reads.
#[test]
fn a_transaction_of_an_older_handle_is_in_conflict_with_nobody() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    db.put("key", "1").unwrap();
    let reader = read(&disk, &plain());
    for locking in [false, true] {
        let mut transaction = reader.transaction_with(&TransactionOptions { locking, ..TransactionOptions::default() });
        let first = transaction.get("key").unwrap();
        db.put("key", "2").unwrap();
        db.delete_range("a", "z").unwrap();
        assert!(are_continued(&reader, &reader.catch_up().unwrap()));
        assert_eq!(transaction.multi_get(["key"]).unwrap()[0].as_ref().unwrap(), &first);
        transaction.commit(&WriteOptions::default()).unwrap();
        assert_eq!(first.as_deref(), Some(&b"1"[..]));
    }
}

/// Goal: nothing is read again but the manifest and the logs.
#[test]
fn what_did_not_change_is_not_opened_again() {
    let disk = SimDisk::new();
    let db = open(&disk, &separating(Separation::AtFlush)).unwrap();
    // No more than that, or they would be merged.
    for n in 0..3u8 {
        db.put([n], [n; 1000]).unwrap();
        db.flush().unwrap();
    }
    let reader = read(&disk, &separating(Separation::AtFlush));
    assert_eq!(*reader.get([2]).unwrap().unwrap(), [2; 1000]);
    let next = reader.catch_up().unwrap();
    assert_eq!((tables(&next).len(), shared_tables(&reader, &next)), (3, 3));
    assert!(blobs(&next).iter().all(|(number, blob)| Arc::ptr_eq(blob, &blobs(&reader)[number])));
    assert_eq!(blobs(&next).len(), 3);
    assert!(Arc::ptr_eq(&reader.store().cache, &next.store().cache));
    let before = next.stats();
    assert!(before.blob_reads > 0, "counts go on");
    assert_eq!(*next.get([2]).unwrap().unwrap(), [2; 1000]);
    assert_eq!(next.stats().table_read_calls, before.table_read_calls, "the cache has it");
    db.put([3], [3; 1000]).unwrap();
    let last = next.catch_up().unwrap();
    assert_eq!((tables(&last).len(), shared_tables(&reader, &last)), (3, 3));
    assert!(are_continued(&next, &last));
    db.flush().unwrap();
    let last = next.catch_up().unwrap();
    assert!(shared_tables(&reader, &last) >= tables(&last).len() - 1);
    assert!(!are_continued(&next, &last), "a flush came between");
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let compacted = last.catch_up().unwrap();
    for n in 0..3 {
        assert_eq!(*compacted.get([n]).unwrap().unwrap(), [n; 1000]);
        assert_eq!(*reader.get([n]).unwrap().unwrap(), [n; 1000]);
    }
    assert_eq!((compacted.exists([3]).unwrap(), reader.exists([3]).unwrap()), (true, false));
}

/// Goal: files stay open as long as one handle, iterator or value needs them, and no longer; so does the share of the directory.
#[test]
fn files_and_the_share_of_the_directory_go_with_the_last_that_needs_them() {
    for mmap_reads in [false, true] {
        let options = Options { mmap_reads, ..separating(Separation::AtFlush) };
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        db.put("a", [1; 1000]).unwrap();
        db.flush().unwrap();
        let is_shared = || disk.env().files.claim_dir(Path::new(DIR)).is_err();
        assert!(!is_shared());
        let first = read(&disk, &options);
        let second = first.catch_up().unwrap();
        let (table, blob) = (tables(&first).into_values().next(), blobs(&first).into_values().next());
        let (table, blob) = (Arc::downgrade(&table.unwrap()), Arc::downgrade(&blob.unwrap()));
        drop(first);
        assert!(is_shared() && table.upgrade().is_some() && blob.upgrade().is_some());
        db.put("a", [2; 1000]).unwrap();
        db.flush().unwrap();
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let third = second.catch_up().unwrap();
        let value = second.get("a").unwrap().unwrap();
        second.close().unwrap();
        assert!(table.upgrade().is_none() && blob.upgrade().is_none(), "the third has no need of them");
        assert!(is_shared());
        assert_eq!(*value, [1; 1000]);
        let iterator = third.iter().unwrap();
        third.close().unwrap();
        assert!(is_shared());
        drop(iterator);
        assert_eq!(is_shared(), mmap_reads, "a value that lies in a file keeps it");
        drop(value);
        assert!(!is_shared());
    }
}

/// Goal: a record that its writer takes back after a reader has seen it, and the one in its place, come to different handles.
#[test]
fn a_record_in_place_of_another_is_in_memtables_of_their_own() {
    // As long as it, from the same sequence number on.
    let log_with = |records: &[[&str; 2]]| {
        let disk = SimDisk::new();
        let db = open(&disk, &plain()).unwrap();
        records.iter().for_each(|[key, value]| db.put(key, value).unwrap());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|found| found == "log");
        let path = disk.paths().into_iter().find(is_log).unwrap();
        let bytes = disk.file_bytes(&path).unwrap();
        (disk, db, path, bytes)
    };
    let (disk, _db, path, first) = log_with(&[["a", "1"], ["b", "1"]]);
    let reader = read(&disk, &plain());
    let shared = reader.catch_up().unwrap();
    assert!(are_continued(&reader, &shared));
    let (.., other) = log_with(&[["a", "1"], ["b", "2"]]);
    let (.., longer) = log_with(&[["a", "1"], ["c", "3"], ["d", "4"]]);
    let (.., shorter) = log_with(&[["a", "1"]]);
    for (bytes, b, d) in [(&other, Some(b"2"), None), (&longer, None, Some(b"4")), (&shorter, None, None)] {
        disk.overwrite(&path, bytes.clone());
        let next = shared.catch_up().unwrap();
        assert!(!are_continued(&shared, &next));
        assert_eq!(get(&next, "a").unwrap(), b"1");
        assert_eq!((get(&next, "b"), get(&next, "d")), (b.map(|b| b.to_vec()), d.map(|d| d.to_vec())));
        let after = next.catch_up().unwrap();
        assert!(are_continued(&next, &after), "from there on they go on");
        for old in [&reader, &shared] {
            assert_eq!((get(old, "b").unwrap(), get(old, "c")), (b"1".to_vec(), None));
        }
    }
    disk.overwrite(&path, first);
    assert!(are_continued(&reader, &reader.catch_up().unwrap()), "what it holds is true again");
}

/// Goal: a record without its header, behind what was replayed, is to who catches up what it is to an open, in each mode: the end, damage, or a gap
/// with more behind it.
#[test]
fn a_record_without_its_header_is_what_it_is_to_an_open() {
    let modes = [
        RecoveryMode::AbsoluteConsistency,
        RecoveryMode::TolerateTornTail,
        RecoveryMode::PointInTime,
        RecoveryMode::SkipCorrupt,
    ];
    for wal_recovery in modes {
        let options = Options { wal_recovery, ..plain() };
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        db.put("a", "1").unwrap();
        let reader = read(&disk, &options);
        let is_log = |path: &PathBuf| path.extension().is_some_and(|found| found == "log");
        let path = disk.paths().into_iter().find(is_log).unwrap();
        let end = disk.file_bytes(&path).unwrap().iter().rposition(|&byte| byte != 0).unwrap() + 1;
        for key in ["b", "c"] {
            db.put(key, "1").unwrap();
            let mut bytes = disk.file_bytes(&path).unwrap();
            bytes[end..end + 2 * RECYCLABLE_HEADER_BYTES].fill(0);
            disk.overwrite(&path, bytes);
            let shown = |opened: crate::Result<Db>| {
                let shown = opened.map(|db| ["a", "b", "c"].map(|key| get(&db, key)));
                shown.map_err(|error| error.to_string())
            };
            let of_open = shown(Db::open_read_only_with_env(DIR, options.clone(), disk.env()));
            assert_eq!(shown(reader.catch_up()), of_open, "{wal_recovery:?}, up to {key}");
        }
    }
}

/// Goal: of two handles that went on from the same memtables, one by a record that was taken back, none sees what the other does.
#[test]
fn who_catches_up_from_an_older_handle_minds_what_others_made_of_the_memtables() {
    let log_with = |values: &[&str]| {
        let disk = SimDisk::new();
        let db = open(&disk, &plain()).unwrap();
        values.iter().for_each(|value| db.put("key", value).unwrap());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|found| found == "log");
        let path = disk.paths().into_iter().find(is_log).unwrap();
        let bytes = disk.file_bytes(&path).unwrap();
        (disk, db, path, bytes)
    };
    let (disk, db, path, one) = log_with(&["1"]);
    let oldest = read(&disk, &plain());
    db.put("key", "2").unwrap();
    let misled = oldest.catch_up().unwrap();
    assert!(are_continued(&oldest, &misled));
    disk.overwrite(&path, log_with(&["1", "3"]).3);
    let next = oldest.catch_up().unwrap();
    assert!(!are_continued(&oldest, &next), "the memtables hold 2");
    disk.overwrite(&path, one);
    let back = misled.catch_up().unwrap();
    let all = [&oldest, &misled, &next, &back].map(|db| get(db, "key").unwrap());
    assert_eq!(all, [b"1", b"2", b"3", b"1"].map(|value| value.to_vec()));
}

/// Goal: memtables take nothing that whoever reads them may see: a manifest may say a higher sequence number than the log goes on with.
#[test]
fn what_an_older_handle_may_see_does_not_come_into_its_memtables() {
    let log_with = |keys: &[&str]| {
        let disk = SimDisk::new();
        let db = open(&disk, &plain()).unwrap();
        keys.iter().for_each(|key| db.put(key, "value").unwrap());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|found| found == "log");
        let path = disk.paths().into_iter().find(is_log).unwrap();
        let bytes = disk.file_bytes(&path).unwrap();
        (disk, db, path, bytes)
    };
    let (disk, _db, path, _) = log_with(&["a"]);
    edit_manifest(&disk, |edit| {
        if edit.last_sequence.is_some() {
            edit.last_sequence = Some(SequenceNumber::new(100));
        }
    });
    let reader = read(&disk, &plain());
    disk.overwrite(&path, log_with(&["a", "b"]).3);
    let next = reader.catch_up().unwrap();
    assert!(!are_continued(&reader, &next));
    assert_eq!([&reader, &next].map(|db| get(db, "b").is_some()), [false, true]);
}

/// Goal: a table is taken for the same only if it is the same file, though number, length, bounds and the store's identity are.
/// Method: a store goes on in two ways from one copy of it.
#[test]
fn a_store_that_went_back_has_other_files_of_the_same_names() {
    for separation in [Separation::Off, Separation::AtFlush, Separation::AtWrite] {
        let options = Options { cache_blobs: true, ..separating(separation) };
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        db.put("old", [0; 1000]).unwrap();
        db.close().unwrap();
        let copy = files(&disk);
        let mut readers = Vec::new();
        for round in 1..4u8 {
            replace(&disk, &copy);
            let db = open(&disk, &options).unwrap();
            db.put("key", [round; 1000]).unwrap();
            db.flush().unwrap();
            let reader = readers.last().map_or_else(|| read(&disk, &options), |before: &Db| before.catch_up().unwrap());
            // Twice: the second time the cache may have it.
            for _ in 0..2 {
                assert_eq!(*reader.get("key").unwrap().unwrap(), [round; 1000]);
            }
            if let Some(before) = readers.last() {
                assert!(tables(&reader).keys().eq(tables(before).keys()), "they have the same numbers");
                let (new, old) = (tables(&reader), tables(before));
                let ours = new.values().next_back().unwrap();
                assert!(old.values().next_back().unwrap().meta.file_bytes == ours.meta.file_bytes);
                assert_eq!(shared_tables(before, &reader), 0);
            }
            readers.push(reader);
            db.close().unwrap();
        }
        for (round, reader) in (1..).zip(&readers) {
            assert_eq!(*reader.get("key").unwrap().unwrap(), [round; 1000]);
            let entries = reader.iter().unwrap().entries();
            assert_eq!(entries.map(|entry| entry.unwrap().1.to_vec()).next().unwrap(), [round; 1000]);
        }
    }
}

/// Goal: values that go to a file as they come are found, however far it has grown, and when it was ended.
#[test]
fn blob_files_that_grow_are_read_as_far_as_each_handle_knows_them() {
    for mmap_reads in [false, true] {
        let options = Options { mmap_reads, cache_blobs: true, ..separating(Separation::AtWrite) };
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        let mut handles: Vec<Db> = Vec::new();
        for n in 0..6u8 {
            db.put([n], [n; 1000]).unwrap();
            if n == 3 {
                db.flush().unwrap();
            }
            handles.push(handles.last().map_or_else(|| read(&disk, &options), |before| before.catch_up().unwrap()));
            for (last, handle) in (0u8..).zip(&handles) {
                for key in 0..6 {
                    let found = handle.get([key]).unwrap().map(|value| value.to_vec());
                    assert_eq!(found, (key <= last).then(|| vec![key; 1000]), "{key} after {last}");
                }
                assert_eq!(handle.iter().unwrap().entries().count(), usize::from(last) + 1);
            }
        }
        assert_eq!((blobs(&handles[2]).len(), blobs(&handles[3]).len()), (0, 1));
        assert!(Arc::ptr_eq(
            &blobs(&handles[3]).into_values().next().unwrap(),
            &blobs(&handles[5]).into_values().next().unwrap()
        ));
    }
}

/// Goal: column families are the moment's, and a handle's own.
#[test]
fn families_come_and_go_and_belong_to_their_handle() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    let first = read(&disk, &plain());
    let put =
        |family: &crate::ColumnFamily, value: &str| db.put_cf(family, "key", value, &WriteOptions::default()).unwrap();
    let a = db.create_column_family("a", FamilyOptions::default()).unwrap();
    put(&a, "1");
    let second = first.catch_up().unwrap();
    db.drop_column_family(&a).unwrap();
    let third = second.catch_up().unwrap();
    let a = db.create_column_family("a", FamilyOptions::default()).unwrap();
    put(&a, "2");
    let fourth = third.catch_up().unwrap();
    let in_a = |db: &Db| {
        let family = db.column_family("a")?;
        Some(db.get_cf(&family, "key", &ReadOptions::default()).unwrap().unwrap().to_vec())
    };
    assert_eq!([&first, &second, &third, &fourth].map(in_a), [None, Some(b"1".to_vec()), None, Some(b"2".to_vec())]);
    let old = second.column_family("a").unwrap();
    let error = fourth.get_cf(&old, "key", &ReadOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("of an earlier open of this one"), "{error}");
    assert!(fourth.iter_cf(&first.default_column_family(), &ReadOptions::default()).is_err());
}

/// Goal: what the store's OPTIONS file says of families holds as at an open.
#[test]
fn options_that_a_writer_changed_hold_from_then_on() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    let asking = Options { families: BTreeMap::new(), ..plain() };
    let reader = read(&disk, &asking);
    db.set_separation(&db.default_column_family(), Separation::AtWrite).unwrap();
    let next = reader.catch_up().unwrap();
    let separations = [&reader, &next].map(|db| db.default_column_family().options().separation);
    assert_eq!(separations, [Separation::Off, Separation::AtWrite]);
}

/// Goal: what makes an open fail makes a catch-up fail, in the same words, and leaves the older handle as it was.
#[test]
fn a_catch_up_fails_as_an_open_does_and_can_be_tried_again() {
    let disk = SimDisk::new();
    let db = open(&disk, &plain()).unwrap();
    db.put("flushed", "1").unwrap();
    db.flush().unwrap();
    db.put("logged", "1").unwrap();
    let reader = read(&disk, &plain());
    db.put("later", "1").unwrap();
    let whole = files(&disk);
    let named = |part: &str| whole.keys().rfind(|path| path.to_string_lossy().contains(part)).cloned().unwrap();
    let remove = |path: &PathBuf| disk.env().files.remove(path).unwrap();
    type Damage<'a> = Box<dyn Fn() + 'a>;
    let damages: [(Damage<'_>, ErrorKind); 5] = [
        (Box::new(|| remove(&named("CURRENT"))), ErrorKind::Corruption),
        (Box::new(|| remove(&named(".sst"))), ErrorKind::Corruption),
        (Box::new(|| assert!(disk.flip_bit(&named(".log"), 8 * 20))), ErrorKind::Corruption),
        (Box::new(|| assert!(disk.flip_bit(&named("MANIFEST"), 8 * 20))), ErrorKind::Corruption),
        (Box::new(|| replace(&disk, &BTreeMap::new())), ErrorKind::NotFound),
    ];
    for (damage, kind) in damages {
        damage();
        let error = reader.catch_up().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let of_open = Db::open_read_only_with_env(DIR, plain(), disk.env()).unwrap_err();
        assert_eq!(error.to_string(), of_open.to_string());
        assert_eq!(["flushed", "logged", "later"].map(|key| get(&reader, key).is_some()), [true, true, false]);
        replace(&disk, &whole);
        let next = reader.catch_up().unwrap();
        assert_eq!(["flushed", "logged", "later"].map(|key| get(&next, key).is_some()), [true; 3]);
    }
}

/// Goal: a limit of memory is one for all handles, and what a handle took of it comes back with it.
#[test]
fn handles_keep_to_one_limit_of_memory() {
    const LIMIT: u64 = 8 << 20;
    let options = Options { memory_limit: LIMIT, ..plain() };
    let disk = SimDisk::new();
    let db = open(&disk, &options).unwrap();
    (0..1000u32).for_each(|n| db.put(n.to_be_bytes(), [0; 1000]).unwrap());
    let first = read(&disk, &options);
    let capacity = |db: &Db| db.stats().cache.capacity_bytes;
    let with_one = capacity(&first);
    assert!(with_one < LIMIT - (1000 << 10) && with_one > LIMIT / 2, "{with_one}");
    let second = first.catch_up().unwrap();
    assert_eq!((capacity(&first), capacity(&second)), (with_one, with_one), "the memtable is one for both");
    db.flush().unwrap();
    let third = second.catch_up().unwrap();
    drop((first, second));
    assert!(capacity(&third) > LIMIT - (100 << 10), "{}", capacity(&third));
}
