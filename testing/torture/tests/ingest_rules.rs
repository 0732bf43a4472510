//! Files that come in, rule by rule.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Change, Compression, Db, ErrorKind, FamilyOptions, IngestOptions, Options, ReadOptions, SstFileWriter};
use esker_torture::hooked::{Call, Meanwhile};

fn open(disk: &SimDisk, background_jobs: usize) -> Db {
    open_in(disk.env(), background_jobs)
}

fn open_in(env: Env, background_jobs: usize) -> Db {
    // A log is preallocated for what the memtable holds, and the simulated disk copies it.
    let family = FamilyOptions { write_buffer_bytes: 256 << 10, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs, families, ..Options::default() };
    Db::open_with_env("/store", options, env).unwrap()
}

fn begin(disk: &SimDisk, name: &str) -> (PathBuf, SstFileWriter) {
    disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
    let path = PathBuf::from(format!("/outside/{name}.sst"));
    let options = FamilyOptions { compression: Compression::None, ..FamilyOptions::default() };
    let writer = SstFileWriter::create_with_env(&path, &options, disk.env()).unwrap();
    (path, writer)
}

fn file(disk: &SimDisk, name: &str, pairs: &[(&str, &str)]) -> PathBuf {
    let (path, mut writer) = begin(disk, name);
    pairs.iter().for_each(|(key, value)| writer.put(key, value).unwrap());
    writer.finish().unwrap();
    path
}

fn ingest(db: &Db, files: &[PathBuf]) -> esker::Result<Vec<usize>> {
    Ok(db.ingest(&db.default_column_family(), files, &IngestOptions::default())?.levels)
}

fn get(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn tables_on(disk: &SimDisk) -> usize {
    let is_table = |path: &&PathBuf| path.starts_with("/store") && path.extension().is_some_and(|end| end == "sst");
    disk.paths().iter().filter(is_table).count()
}

/// Goal: loads that are given up, in whatever order, use up no sequence numbers.
#[test]
fn loads_that_are_given_up_use_up_no_sequence_numbers() {
    const AHEAD: u64 = 1 << 28;
    let db = open(&SimDisk::new(), 0);
    let family = db.default_column_family();
    let begin = || db.bulk_load(&family).unwrap();
    for _ in 0..10 {
        drop(begin());
    }
    let (first, second) = (begin(), begin());
    drop(second);
    drop(begin());
    drop(first);
    let (first, second) = (begin(), begin());
    drop((first, second));
    let mut load = begin();
    load.put("key", "value").unwrap();
    let sequence = load.finish().unwrap().sequence;
    assert!(sequence <= 2 * AHEAD, "{sequence}");
    // One that another has begun after does not become the next one's.
    let (mut first, mut second) = (begin(), begin());
    first.put("a", "first").unwrap();
    second.put("b", "second").unwrap();
    let sequences = [first.finish().unwrap().sequence, second.finish().unwrap().sequence];
    assert!(sequence < sequences[0] && sequences[0] < sequences[1], "{sequence}, {sequences:?}");
    assert_eq!(["key", "a", "b"].map(|key| get(&db, key).unwrap()), ["value", "first", "second"]);
}

#[test]
fn keys_that_do_not_ascend_are_refused_with_both_named() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let (path, mut writer) = begin(&disk, "a");
    let mut load = db.bulk_load(&db.default_column_family()).unwrap();
    writer.put("b", "1").unwrap();
    load.put("b", "1").unwrap();
    for (key, words) in [("a\n", "keys must ascend: \"a\\n\" does not come after \"b\""), ("b", "\"b\" is there twice")]
    {
        for error in [writer.put(key, "2"), writer.delete(key), load.put(key, "2"), load.delete(key)] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    // What was refused is left out, and no more.
    writer.put("c", "3").unwrap();
    load.put("c", "3").unwrap();
    assert_eq!(load.finish().unwrap().entries, 2);
    let info = writer.finish().unwrap();
    assert_eq!((info.entries, info.smallest_key, info.largest_key), (2, b"b".to_vec(), b"c".to_vec()));
    assert_eq!(info.file_bytes, disk.file_bytes(&path).unwrap().len() as u64);
    assert_eq!((get(&db, "b"), get(&db, "c"), get(&db, "a\n")), (Some("1".into()), Some("3".into()), None));
}

#[test]
fn a_file_that_is_given_up_is_removed() {
    let disk = SimDisk::new();
    let (path, mut writer) = begin(&disk, "a");
    writer.put("a", "1").unwrap();
    drop(writer);
    assert!(disk.file_bytes(&path).is_none());
    let (path, writer) = begin(&disk, "a");
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(disk.file_bytes(&path).is_none());
}

/// RocksDB writes the sequence number that a table gets into the table, if it is asked to.
#[test]
fn a_table_that_rocksdb_has_taken_in_is_refused() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let path = file(&disk, "a", &[("a", "1")]);
    let mut raw = disk.file_bytes(&path).unwrap();
    let place = raw.windows(12).position(|bytes| bytes == b"global_seqno").unwrap() + 12;
    raw[place..place + 8].copy_from_slice(&77u64.to_le_bytes());
    disk.overwrite(&path, raw.clone());
    for move_files in [false, true] {
        let options = IngestOptions { move_files, ..IngestOptions::default() };
        let error = db.ingest(&db.default_column_family(), &[&path], &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("taken in before"), "{error}");
    }
    assert_eq!((disk.file_bytes(&path).unwrap(), tables_on(&disk)), (raw.clone(), 0));
    raw[place..place + 8].fill(0);
    disk.overwrite(&path, raw);
    ingest(&db, std::slice::from_ref(&path)).unwrap();
    db.close().unwrap();
    assert_eq!(get(&open(&disk, 0), "a").as_deref(), Some("1"));
}

/// Goal: no way to spell the path of a table that is in a store makes it one that may be given to a store.
#[test]
fn a_table_of_a_store_is_refused_however_its_path_is_spelled() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let db = Db::open(at("store"), options).unwrap();
    let mut writer = SstFileWriter::create(at("a.sst"), &FamilyOptions::default()).unwrap();
    writer.put("a", "1").unwrap();
    writer.finish().unwrap();
    let moved = IngestOptions { move_files: true, ..IngestOptions::default() };
    db.ingest(&db.default_column_family(), &[at("a.sst")], &moved).unwrap();
    std::os::unix::fs::symlink(at("store"), at("other")).unwrap();
    let entries = std::fs::read_dir(at("store")).unwrap().map(|entry| entry.unwrap().path());
    let table = entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    for path in [table.clone(), at("store/../store").join(name), at("other").join(name)] {
        let error = db.ingest(&db.default_column_family(), &[&path], &moved).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("is the store's"), "{}: {error}", path.display());
    }
    assert!(table.exists());
}

#[test]
fn a_table_goes_as_deep_as_it_hides_nothing_newer() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    assert_eq!(ingest(&db, &[file(&disk, "1", &[("a", "1"), ("c", "1")])]).unwrap(), [6]);
    assert_eq!(ingest(&db, &[file(&disk, "2", &[("d", "2"), ("f", "2")])]).unwrap(), [6]);
    // Over the first: above it.
    assert_eq!(ingest(&db, &[file(&disk, "3", &[("b", "3"), ("c", "3")])]).unwrap(), [0]);
    // Into the range of the second, though none of its keys.
    assert_eq!(ingest(&db, &[file(&disk, "4", &[("e", "4")])]).unwrap(), [0]);
    // The range of a table of level 0 that has none of these keys is no obstacle.
    db.put("g", "5").unwrap();
    db.put("z", "5").unwrap();
    db.flush().unwrap();
    assert_eq!(ingest(&db, &[file(&disk, "5", &[("h", "6"), ("i", "6")])]).unwrap(), [6]);
    // Nor is what is in memory, unless it has one.
    db.put("k", "7").unwrap();
    let flushes = db.stats().flushes;
    assert_eq!(ingest(&db, &[file(&disk, "6", &[("l", "8"), ("m", "8")])]).unwrap(), [6]);
    assert_eq!(db.stats().flushes, flushes);
    assert_eq!(ingest(&db, &[file(&disk, "7", &[("j", "9"), ("k", "9")])]).unwrap(), [0]);
    assert_eq!(db.stats().flushes, flushes + 1);
    for (key, value) in [("a", "1"), ("b", "3"), ("c", "3"), ("d", "2"), ("e", "4"), ("h", "6"), ("k", "9"), ("z", "5")]
    {
        assert_eq!(get(&db, key).as_deref(), Some(value), "{key}");
    }
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

/// Goal: tables of level 0 are not merged over what is in memory still and goes between them: older than a file that came in, newer than
/// the tables before it.
#[test]
fn what_is_in_memory_stays_above_older_tables_that_are_merged_beside_a_newer_file() {
    let disk = SimDisk::new();
    let db = open(&disk, 1);
    for n in 0..4000 {
        db.put(format!("base{n}"), [n as u8; 50]).unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    for round in ["1", "2", "3"] {
        for key in ["a", "k", "z"] {
            db.put(key, round).unwrap();
        }
        db.flush().unwrap();
    }
    db.put("k", "4").unwrap();
    let before = db.stats();
    assert_eq!(before.families[0].levels[0].files, 3);
    assert_eq!(ingest(&db, &[file(&disk, "1", &[("a", "5")])]).unwrap(), [0]);
    assert_eq!(db.stats().flushes, before.flushes, "the memtable has none of its keys");
    while db.stats().compactions == before.compactions {
        std::thread::yield_now();
    }
    db.flush().unwrap();
    for (key, value) in [("a", "5"), ("k", "4"), ("z", "3")] {
        assert_eq!(get(&db, key).as_deref(), Some(value), "{key}");
    }
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

#[test]
fn of_the_files_of_a_call_a_later_one_wins() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let files = [("1", ["a", "1"]), ("2", ["a", "2"]), ("3", ["a", "3"])]
        .map(|(name, [key, value])| file(&disk, name, &[(key, value)]));
    assert_eq!(ingest(&db, &files).unwrap(), [6, 0, 0]);
    assert_eq!(get(&db, "a").as_deref(), Some("3"));
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!(get(&db, "a").as_deref(), Some("3"));
}

#[test]
fn who_read_before_sees_nothing_of_it() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    db.put("a", "old").unwrap();
    let snapshot = db.snapshot();
    let mut before = db.iter().unwrap();
    ingest(&db, &[file(&disk, "1", &[("a", "new"), ("b", "new")])]).unwrap();
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    let family = db.default_column_family();
    assert_eq!(db.get_cf(&family, "a", &then).unwrap().as_deref(), Some(&b"old"[..]));
    assert!(!db.exists_cf(&family, "b", &then).unwrap());
    before.seek_to_first().unwrap();
    assert_eq!((before.key(), &*before.value().unwrap()), (&b"a"[..], &b"old"[..]));
    before.next().unwrap();
    assert!(!before.valid());
    before.refresh().unwrap();
    before.seek(b"b").unwrap();
    assert_eq!(&*before.value().unwrap(), b"new");
    // The snapshot outlives a compaction of everything.
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.get_cf(&family, "a", &then).unwrap().as_deref(), Some(&b"old"[..]));
    assert!(!db.exists_cf(&family, "b", &then).unwrap());
}

#[test]
fn files_are_moved_or_stay_as_they_are() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let [stays, moves] = ["1", "2"].map(|name| file(&disk, name, &[(name, "v")]));
    let raw = disk.file_bytes(&stays).unwrap();
    ingest(&db, std::slice::from_ref(&stays)).unwrap();
    assert_eq!(disk.file_bytes(&stays), Some(raw));
    let options = IngestOptions { move_files: true, ..IngestOptions::default() };
    let ingested = db.ingest(&db.default_column_family(), &[&moves], &options).unwrap();
    assert!(ingested.not_removed.is_empty() && disk.file_bytes(&moves).is_none());
    assert_eq!(ingested.sequence, db.stats().sequence);
    assert_eq!((get(&db, "1"), get(&db, "2")), (Some("v".into()), Some("v".into())));
}

/// Nothing is taken in, not even the good file beside it, and nothing is left in the directory.
#[track_caller]
fn assert_refused(disk: &SimDisk, db: &Db, bad: &Path, kind: ErrorKind, words: &str) {
    let good = file(disk, "good", &[("good", "1")]);
    let before = tables_on(disk);
    let error = ingest(db, &[good.clone(), bad.to_owned()]).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(get(db, "good"), None);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!(tables_on(disk), before);
    disk.env().files.remove(&good).unwrap();
}

#[test]
fn what_cannot_be_taken_in_is_refused_and_leaves_nothing() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    db.put("x", "1").unwrap();
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let own = disk.paths().into_iter().find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap();
    assert_refused(&disk, &db, &own, ErrorKind::InvalidArgument, "in the directory of the store");
    let copy = PathBuf::from("/outside/copy.sst");
    let written = disk.env().files.create(&copy).unwrap();
    written.append(&[&disk.file_bytes(&own).unwrap()]).unwrap();
    assert_refused(&disk, &db, &copy, ErrorKind::InvalidArgument, "was not written to be taken in");
    assert_refused(&disk, &db, "/outside/none.sst".as_ref(), ErrorKind::NotFound, "none.sst");

    let damaged = file(&disk, "damaged", &[("d", &"v".repeat(5000)), ("e", &"v".repeat(5000))]);
    let mut raw = disk.file_bytes(&damaged).unwrap();
    raw[100] ^= 1;
    disk.overwrite(&damaged, raw);
    assert_refused(&disk, &db, &damaged, ErrorKind::Corruption, "checking a file that is taken in");
}

/// Goal: what comes in is what was looked at, though another file takes its name in between: here a table of a store, which has sequence numbers of
/// its own, and nobody could read them beside the one that it would get.
#[test]
fn a_file_that_another_one_replaces_on_its_way_in_is_looked_at_again() {
    for (move_files, verify) in [(false, false), (false, true), (true, false), (true, true)] {
        let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
        let db = open_in(meanwhile.env(&disk), 0);
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        let own = disk.paths().into_iter().find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap();
        let path = file(&disk, "1", &[("a", "2")]);
        let (elsewhere, other, fits) = (disk.clone(), disk.file_bytes(&own).unwrap(), path.clone());
        let replace = move || elsewhere.overwrite(&fits, other);
        // Once it was opened, it is asked for again when it gets its name in the store.
        let mut opened = false;
        let asked = std::sync::Mutex::new(move |call: Call<'_>| {
            opened |= matches!(call, Call::Open(at) if at.ends_with("1.sst"));
            opened && matches!(call, Call::Metadata(at) if at.ends_with("1.sst"))
        });
        meanwhile.before(move |call| asked.lock().unwrap()(call), replace);
        let options = IngestOptions { move_files, verify };
        let error = db.ingest(&db.default_column_family(), &[&path], &options).unwrap_err();
        assert!(meanwhile.is_done());
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*path)), "{error}");
        assert_eq!((get(&db, "a").as_deref(), tables_on(&disk)), (Some("1"), 1));
        assert!(disk.file_bytes(&path).is_some());
    }
}

#[test]
fn a_load_that_is_given_up_leaves_nothing() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let db = open(&disk, background_jobs);
        let mut load = db.bulk_load(&db.default_column_family()).unwrap();
        for number in 0..3000 {
            load.put(format!("{number:06}"), vec![b'v'; number % 7 * 1000]).unwrap();
        }
        drop(load);
        assert!(db.iter().unwrap().entries().next().is_none());
        db.close().unwrap();
        let ends = |end: &str| disk.paths().iter().any(|path| path.extension().is_some_and(|found| found == end));
        assert!(!ends("sst") && !ends("blob"), "{:?}", disk.paths());
    }
}

#[test]
fn a_store_closes_without_waiting_for_an_open_load() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let db = open(&disk, background_jobs);
        let mut load = db.bulk_load(&db.default_column_family()).unwrap();
        load.put("a", "1").unwrap();
        db.close().unwrap();
        let error = load.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(open(&disk, 0).get("a").unwrap().is_none());
    }
}

#[test]
fn a_load_into_a_family_that_is_dropped_is_a_conflict() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    let family = db.create_column_family("gone", FamilyOptions::default()).unwrap();
    let mut load = db.bulk_load(&family).unwrap();
    load.put("a", "1").unwrap();
    db.drop_column_family(&family).unwrap();
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(tables_on(&disk), 0);
}

#[test]
fn a_load_of_nothing_changes_nothing() {
    let disk = SimDisk::new();
    let db = open(&disk, 2);
    let loaded = db.bulk_load(&db.default_column_family()).unwrap().finish().unwrap();
    assert_eq!((loaded.entries, loaded.tables, loaded.blob_files, loaded.sequence), (0, 0, 0, 0));
    assert_eq!(ingest(&db, &[]).unwrap(), []);
}

/// A change is decided on what the key is when it takes effect, files that came in meanwhile included.
#[test]
fn a_change_that_was_decided_before_a_file_came_in_is_decided_again() {
    let disk = SimDisk::new();
    let db = open(&disk, 0);
    db.put("k", "old").unwrap();
    db.flush().unwrap();
    let path = file(&disk, "1", &[("k", "new")]);
    let mut seen = Vec::new();
    let before = db.update(&db.default_column_family(), "k", &Default::default(), |value| {
        seen.push(value.unwrap().to_vec());
        if seen.len() == 1 {
            ingest(&db, std::slice::from_ref(&path)).unwrap();
        }
        Change::Put([value.unwrap(), b" and more"].concat())
    });
    assert_eq!(before.unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(seen, [b"old".to_vec(), b"new".to_vec()]);
    assert_eq!(get(&db, "k").as_deref(), Some("new and more"));
}

/// A file is seen as a whole, and by everybody who sees what was written after it.
#[test]
fn readers_see_files_whole_and_in_their_place() {
    let disk = SimDisk::new();
    let db = open(&disk, 2);
    let keys = ["a", "m", "z"];
    let write = |round: usize| {
        let value = format!("{round:06}");
        let path = file(&disk, &round.to_string(), &keys.map(|key| (key, value.as_str())));
        ingest(&db, &[path]).unwrap();
        db.put("q", &value).unwrap();
    };
    write(0);
    let is_done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (db, is_done) = (db.clone(), is_done.clone());
            scope.spawn(move || {
                let mut last = String::new();
                let mut kept = db.iter().unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    let [a, m, q, z] = match reader {
                        0 => {
                            let found = db.multi_get(["a", "m", "q", "z"]).unwrap();
                            found.into_iter().map(|value| text(&value.unwrap().unwrap())).collect::<Vec<_>>()
                        }
                        1 => db.iter().unwrap().entries().map(|entry| text(&entry.unwrap().1)).collect(),
                        _ => {
                            kept.refresh().unwrap();
                            kept.seek_to_first().unwrap();
                            let mut found = Vec::new();
                            while kept.valid() {
                                found.push(text(&kept.value().unwrap()));
                                kept.next().unwrap();
                            }
                            found
                        }
                    }
                    .try_into()
                    .unwrap();
                    assert!(a == m && m == z, "a file in part: {a} {m} {z}");
                    assert!(q <= a, "{q} was written after a file that is not seen: {a}");
                    assert!(a >= last, "{a} after {last}");
                    last = a;
                }
            });
        }
        for round in 1..30 {
            write(round);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    assert!(db.stats().background_error.is_none());
}

/// Of two loads, the one that ends last is the newer, whichever began first; and so are writes, against both.
#[test]
fn loads_count_from_their_end() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let db = open(&disk, background_jobs);
        let family = db.default_column_family();
        let fill = |value: &str| {
            let mut load = db.bulk_load(&family).unwrap();
            for number in 0..2000_usize {
                let value = if number.is_multiple_of(5) { value.repeat(3000) } else { value.to_owned() };
                load.put(format!("{number:06}"), value).unwrap();
            }
            load
        };
        let (first, second, third) = (fill("first"), fill("second"), fill("third"));
        db.put("000001", "before").unwrap();
        let second = second.finish().unwrap();
        let snapshot = db.snapshot();
        db.put("000002", "between").unwrap();
        let first = first.finish().unwrap();
        assert!(first.sequence > second.sequence && first.blob_files == 1);
        let expect = |number: usize, value: &str| {
            let value = if number.is_multiple_of(5) { value.repeat(3000) } else { value.to_owned() };
            assert_eq!(get(&db, &format!("{number:06}")), Some(value), "{number}");
        };
        (0..2000).for_each(|number| expect(number, "first"));
        let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
        assert_eq!(db.get_cf(&family, "000002", &then).unwrap().as_deref(), Some(&b"second"[..]));
        db.put("000003", "after").unwrap();
        expect(3, "after");
        third.finish().unwrap();
        expect(3, "third");
        db.compact_range(&family, None, None).unwrap();
        (0..2000).for_each(|number| expect(number, "third"));
        assert_eq!(db.get_cf(&family, "000001", &then).unwrap().as_deref(), Some(&b"second"[..]));
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

/// Goal: a file that is moved is durable when it is taken in, though the first attempt failed at any call, its sync included: the
/// system tells of bytes that it dropped only once. Method: a file that nobody synced; each call of a first attempt fails once;
/// after a second attempt the power goes.
#[test]
fn a_moved_file_whose_sync_failed_does_not_pass_for_durable_when_it_is_taken_in_again() {
    let unsynced = Path::new("/outside/unsynced.sst");
    let options = IngestOptions { move_files: true, ..IngestOptions::default() };
    let (mut again, mut warned) = (0, 0);
    for n in 0.. {
        let disk = SimDisk::new();
        let bytes = disk.file_bytes(&file(&disk, "a", &[("key", "value")])).unwrap();
        disk.env().files.create(unsynced).unwrap().append(&[&bytes]).unwrap();
        let db = open(&disk, 0);
        let fails_at = disk.op_count() + n;
        disk.fail_at(fails_at, Fault::Eio);
        let mut taken = db.ingest(&db.default_column_family(), &[unsynced], &options);
        if disk.op_count() <= fails_at {
            assert!(taken.is_ok() && n > 5, "{taken:?} after {n} calls");
            break;
        }
        if taken.as_ref().is_err_and(|error| error.kind() != ErrorKind::ReadOnly) {
            again += 1;
            warned += usize::from(disk.paths().contains(&PathBuf::from("/outside/SYNC-FAILED")));
            taken = db.ingest(&db.default_column_family(), &[unsynced], &options);
            assert!(taken.is_ok(), "call {n}: {taken:?}");
        }
        drop(db);
        let after = open(&disk.after_power_loss(Survivors::Nothing), 0);
        assert!(taken.is_err() || get(&after, "key").as_deref() == Some("value"), "call {n} failed: lost");
        assert!(after.check(&mut |_| {}).unwrap().errors.is_empty());
    }
    assert!(again > 3 && warned == 1, "{again} attempts failed, {warned} at the sync");
}

/// Goal: what came in as a file is newer than all before it in a manifest that is begun anew for that very file, too.
/// Method: keys so long that the manifest is full when it has them.
#[test]
fn a_manifest_that_begins_with_a_file_that_came_in_knows_how_new_it_is() {
    let (long, disk) = ("k".repeat(3000), SimDisk::new());
    let family = FamilyOptions { write_buffer_bytes: 256 << 10, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options {
        create_if_missing: true,
        background_jobs: 0,
        manifest_bytes_max: 4 << 10,
        families,
        ..Options::default()
    };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let db = open(&disk);
    db.put("key", "before").unwrap();
    db.put(&long, "before").unwrap();
    let [first, last] = ["1", "2"].map(|end| format!("{long}{end}"));
    let path = file(&disk, "a", &[("key", "in"), (&long, "in"), (&first, "in"), (&last, "in")]);
    ingest(&db, &[path]).unwrap();
    let disk = disk.after_process_death();
    drop(db);
    let db = open(&disk);
    for key in ["key", &long, &first, &last] {
        assert_eq!(get(&db, key).as_deref(), Some("in"));
    }
    db.put("key", "after").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!((get(&db, "key").as_deref(), get(&db, &long).as_deref()), (Some("after"), Some("in")));
}

/// Goal (N7): what is in memory in the range of a deletion of a file, and of none of its keys, goes to a table with a lower number first.
#[test]
fn what_a_range_deletion_of_a_file_takes_is_in_a_table_before() {
    let disk = SimDisk::new();
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let tables = || {
        let of_store = |path: &PathBuf| path.starts_with("/store") && path.extension().is_some_and(|end| end == "sst");
        disk.paths().into_iter().filter(of_store).count()
    };
    db.put("k", "old").unwrap();
    disk.env().files.create_dir_all(Path::new("/outside")).unwrap();
    for (file, (begin, end), expected) in [("1", ("n", "p"), 1), ("2", ("a", "m"), 3)] {
        let path = Path::new("/outside").join(file);
        let mut writer = SstFileWriter::create_with_env(&path, &FamilyOptions::default(), disk.env()).unwrap();
        writer.delete_range(begin, end).unwrap();
        writer.put("z", file).unwrap();
        writer.finish().unwrap();
        db.ingest(&db.default_column_family(), &[path], &IngestOptions::default()).unwrap();
        assert_eq!(tables(), expected, "{begin} to {end}");
    }
    assert_eq!(db.get("k").unwrap(), None);
}
