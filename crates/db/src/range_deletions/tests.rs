use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_format::rocksdb::internal_key::ValueKind;
use fastrand::Rng;

use crate::operands::{MergeOperator, StringAppendOperator};
use crate::options::{FamilyOptions, Options, ReadOptions, Separation, WriteOptions};
use crate::version::testing::{install, ranged_table, table_of_kinds};
use crate::{Change, Db, DbIterator, ErrorKind, ReclaimMode, Snapshot, SstFileWriter, WriteBatch};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(random: &mut Rng) -> Options {
    let family = FamilyOptions {
        separation: [Separation::Off, Separation::AtFlush, Separation::AtWrite][random.usize(..3)],
        min_blob_size: 100,
        merge_operator: Some(Arc::new(StringAppendOperator::default())),
        write_buffer_bytes: 64 << 10,
        target_file_bytes: 4 << 10,
        level0_compaction_trigger: random.usize(2..6),
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let reclaim_mode = [ReclaimMode::Auto, ReclaimMode::Manual][random.usize(..2)];
    Options { create_if_missing: true, background_jobs: 0, reclaim_mode, families, ..Options::default() }
}

fn key(random: &mut Rng) -> Vec<u8> {
    format!("{:03}", random.u32(..300)).into_bytes()
}

fn delete_range(model: &mut Contents, begin: &[u8], end: &[u8]) {
    model.retain(|key, _| **key < *begin || **key >= *end);
}

/// One operation, of a batch and of the model.
fn operation(batch: &mut WriteBatch, model: &mut Contents, random: &mut Rng) {
    let (key, value) = (key(random), vec![random.u8(..); random.usize(..300)]);
    match random.u8(..20) {
        0..3 => {
            let end = [&key[..], &[255u8; 2][..random.usize(..3)]].concat();
            let end = if random.bool() { end } else { self::key(random).max(key.clone()) };
            batch.delete_range(&key, &end).unwrap();
            delete_range(model, &key, &end);
        }
        3..5 => {
            batch.delete(&key).unwrap();
            model.remove(&key);
        }
        5..8 => {
            batch.merge(&key, &value).unwrap();
            let merged = model.get(&key).map_or(value.clone(), |before| [before, &b","[..], &value].concat());
            model.insert(key, merged);
        }
        _ => {
            batch.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn walked(entries: &mut DbIterator, forward: bool) -> Contents {
    let mut found = Contents::new();
    if forward {
        entries.seek_to_first().unwrap()
    } else {
        entries.seek_to_last().unwrap()
    }
    while entries.valid() {
        found.insert(entries.key().to_vec(), entries.value().unwrap().to_vec());
        if forward { entries.next().unwrap() } else { entries.prev().unwrap() }
    }
    found
}

fn assert_holds(db: &Db, snapshot: Option<&Snapshot>, expected: &Contents, random: &mut Rng, what: &str) {
    let (family, options) =
        (db.default_column_family(), ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() });
    let mut entries = db.iter_cf(&family, &options).unwrap();
    assert!(walked(&mut entries, true) == *expected, "{what}, forward");
    assert!(walked(&mut entries, false) == *expected, "{what}, backward");
    assert_eq!(db.count_cf(&family, &options).unwrap(), expected.len() as u64, "{what}");
    let keys: Vec<Vec<u8>> = (0..20).map(|_| key(random)).collect();
    let many = db.multi_get_cf(&family, keys.iter(), &options).unwrap();
    for (key, of_many) in keys.iter().zip(many) {
        let value = expected.get(key);
        assert_eq!(of_many.unwrap().as_deref(), value.map(Vec::as_slice), "{what}, {key:?} of many");
        assert_eq!(db.get_cf(&family, key, &options).unwrap().as_deref(), value.map(Vec::as_slice), "{what}, {key:?}");
        assert_eq!(db.exists_cf(&family, key, &options).unwrap(), value.is_some());
        entries.seek(key).unwrap();
        let next = expected.range(key.clone()..).next().map(|(key, _)| key.as_slice());
        assert_eq!(entries.valid().then(|| entries.key()), next, "{what}, from {key:?}");
        if random.bool() && entries.valid() {
            // There, and back.
            let at = entries.key().to_vec();
            entries.prev().unwrap();
            let before = expected.range(..at).next_back().map(|(key, _)| key.as_slice());
            assert_eq!(entries.valid().then(|| entries.key()), before, "{what}, back from {key:?}");
        }
        entries.seek_for_prev(key).unwrap();
        let before = expected.range(..=key.clone()).next_back().map(|(key, _)| key.as_slice());
        assert_eq!(entries.valid().then(|| entries.key()), before, "{what}, back to {key:?}");
    }
}

/// An iterator that is kept while others write, and what it has to show.
struct Kept {
    entries: DbIterator,
    shows: Contents,
    at: Option<Vec<u8>>,
}

impl Kept {
    fn new(db: &Db, model: &Contents) -> Self {
        Self { entries: db.iter().unwrap(), shows: model.clone(), at: None }
    }

    fn refresh(&mut self, model: &Contents) {
        self.entries.refresh().unwrap();
        (self.shows, self.at) = (model.clone(), None);
    }

    /// Some steps and seeks, with turns.
    fn walk(&mut self, random: &mut Rng, what: &str) {
        for _ in 0..random.usize(..20) {
            let (key, from) = (key(random), self.at.take());
            let next = |from: Bound<Vec<u8>>| self.shows.range((from, Unbounded)).next().map(|(key, _)| key.clone());
            let before = |to: Bound<Vec<u8>>| self.shows.range((Unbounded, to)).next_back().map(|(key, _)| key.clone());
            let entries = &mut self.entries;
            let (done, at) = match (random.u8(..8), from.clone()) {
                (0, _) => (entries.seek(&key), next(Included(key))),
                (1, _) => (entries.seek_for_prev(&key), before(Included(key))),
                (2, _) => (entries.seek_to_first(), next(Unbounded)),
                (3, _) => (entries.seek_to_last(), before(Unbounded)),
                (4..6, Some(at)) => (entries.next(), next(Excluded(at))),
                (_, Some(at)) => (entries.prev(), before(Excluded(at))),
                (_, None) => (Ok(()), None),
            };
            done.unwrap();
            self.at = at;
            assert_eq!(self.entries.valid().then(|| self.entries.key()), self.at.as_deref(), "{what}, from {from:?}");
            if let Some(at) = &self.at {
                assert!(*self.entries.value().unwrap() == *self.shows[at], "{what}, at {at:?}");
            }
        }
    }
}

/// Takes a file in with some of everything.
fn take_in(db: &Db, disk: &SimDisk, options: &Options, model: &mut Contents, random: &mut Rng) {
    let path = format!("/{}.sst", disk.op_count());
    let mut writer = SstFileWriter::create_with_env(&path, &options.families["default"], disk.env()).unwrap();
    let mut added = Contents::new();
    for _ in 0..random.usize(1..4) {
        let (begin, end) = (key(random), key(random));
        let (begin, end) = (begin.clone().min(end.clone()), begin.max(end));
        let end = if random.bool() { [&begin[..], b"~"].concat() } else { end };
        writer.delete_range(&begin, &end).unwrap();
        delete_range(model, &begin, &end);
        added.insert(key(random), vec![random.u8(..); random.usize(..300)]);
    }
    added.iter().for_each(|(key, value)| writer.put(key, value).unwrap());
    writer.finish().unwrap();
    db.ingest(&db.default_column_family(), &[path], &crate::IngestOptions::default()).unwrap();
    model.extend(added);
}

fn assert_whole(db: &Db, what: &str) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
}

/// Goal: whatever is put, merged, deleted and deleted by the range, flushed, merged, reclaimed and opened again, everybody sees what is there, and
/// snapshots what was; in the end nothing is left of the ranges.
#[test]
fn ranges_hide_what_is_older_and_nothing_else() {
    for seed in 0..if cfg!(miri) { 1 } else { 120 } {
        let (mut random, disk) = (Rng::with_seed(seed), SimDisk::new());
        let options = options(&mut random);
        let mut db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
        let (mut model, mut snapshots) = (Contents::new(), Vec::<(Snapshot, Contents)>::new());
        let mut kept: Vec<Kept> = Vec::new();
        for step in 0..60 {
            let what = format!("seed {seed}, step {step}");
            let mut batch = WriteBatch::new();
            for _ in 0..random.usize(1..40) {
                operation(&mut batch, &mut model, &mut random);
            }
            db.write(batch, &WriteOptions::default()).unwrap();
            match random.u8(..20) {
                0..4 => db.flush().unwrap(),
                4 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
                5 => {
                    let (begin, end) = (key(&mut random), key(&mut random));
                    db.compact_range(&db.default_column_family(), Some(&begin), Some(&end)).unwrap();
                }
                6 | 7 => snapshots.push((db.snapshot(), model.clone())),
                8 if !snapshots.is_empty() => drop(snapshots.swap_remove(random.usize(..snapshots.len()))),
                9 => drop(db.reclaim(&db.default_column_family(), 0.1).unwrap()),
                10 => {
                    snapshots.clear();
                    kept.clear();
                    if random.bool() {
                        db.close().unwrap();
                    } else {
                        drop(db);
                    }
                    db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
                }
                11 | 12 => take_in(&db, &disk, &options, &mut model, &mut random),
                13 if kept.len() < 4 => kept.push(Kept::new(&db, &model)),
                14 => kept.iter_mut().for_each(|kept| kept.refresh(&model)),
                15 => drop(kept.pop()),
                _ => {}
            }
            kept.iter_mut().for_each(|kept| kept.walk(&mut random, &what));
            assert_holds(&db, None, &model, &mut random, &what);
            if let Some((snapshot, before)) = random.choice(&snapshots) {
                assert_holds(&db, Some(snapshot), before, &mut random, &format!("{what}, a snapshot"));
            }
        }
        assert_whole(&db, &format!("seed {seed}"));
        let reader = Db::open_read_only_with_env("/db", options.clone(), disk.env()).unwrap();
        assert_holds(&reader, None, &model, &mut random, &format!("seed {seed}, a reader"));
        drop(reader);
        snapshots.clear();
        kept.clear();
        db.flush().unwrap();
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert!(!db.store().family(0).unwrap().view.load().version.has_range_deletions(), "seed {seed}");
        assert_holds(&db, None, &model, &mut random, &format!("seed {seed}, in the end"));
        assert_whole(&db, &format!("seed {seed}, in the end"));
    }
}

/// Goal: a range that ends before it begins is a mistake, one that is empty nothing.
#[test]
fn a_range_ends_after_it_begins() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/db", options(&mut Rng::with_seed(0)), disk.env()).unwrap();
    db.put("k", "v").unwrap();
    assert_eq!(db.delete_range("l", "k").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let before = db.store().visible();
    db.delete_range("k", "k").unwrap();
    assert_eq!((db.store().visible(), db.exists("k").unwrap()), (before, true));
    db.delete_range("", "l").unwrap();
    assert!(!db.exists("k").unwrap());
}

/// Separated values in several tables, all in the deepest level.
fn filled(disk: &SimDisk, separation: Separation) -> (Db, Options) {
    let family = FamilyOptions {
        separation,
        min_blob_size: 100,
        target_file_bytes: 4 << 10,
        blob_file_bytes: 64 << 10,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
    let mut random = Rng::with_seed(7);
    // Twice, or what there is would be moved down as it is.
    for n in (0..2000u32).chain(0..2000) {
        if n == 1999 {
            db.flush().unwrap();
        }
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(if n % 2 == 0 { 300 } else { 30 }).collect();
        db.put(format!("{n:04}"), value).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert!(tables(&db) > 5, "{} tables", tables(&db));
    (db, options)
}

fn tables(db: &Db) -> usize {
    db.store().family(0).unwrap().view.load().version.tables().count()
}

/// RD4: tables that a range has whole go unread, with what they point to, once no snapshot sees them; then what is left of the range goes.
#[test]
fn whole_tables_go_unread() {
    for separation in [Separation::Off, Separation::AtFlush, Separation::AtWrite] {
        let disk = SimDisk::new();
        let (db, options) = filled(&disk, separation);
        let before = db.count_cf(&db.default_column_family(), &ReadOptions::default()).unwrap();
        let (many, read) = (tables(&db), db.stats().compaction_read_bytes);
        let snapshot = db.snapshot();
        db.delete_range("0001", "1999").unwrap();
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
        assert_eq!(tables(&db), many + 1, "a snapshot sees them");
        let seen = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
        assert_eq!(db.count_cf(&db.default_column_family(), &seen).unwrap(), before);
        drop((snapshot, seen));
        db.wait_for_compact().unwrap();
        assert!(tables(&db) <= 3, "what is at both ends, and the range");
        let read = db.stats().compaction_read_bytes - read;
        assert!(read < 3 * (8 << 10), "{read} bytes of tables were read");
        assert_whole(&db, "without them");
        let blobs = db.store().family(0).unwrap().view.load().version.ledger().total().live_bytes();
        assert!(blobs < 500, "{blobs} bytes of values are left");
        let left = walked(&mut db.iter().unwrap(), true);
        assert_eq!(left.keys().map(|key| &key[..]).collect::<Vec<_>>(), [b"0000", b"1999"]);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_eq!(tables(&db), 1);
        drop(db);
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        assert!(walked(&mut db.iter().unwrap(), true) == left);
    }
}

/// Goal: one whose pointers cannot be read stays for a merge to tell of, and keeps nothing else.
#[test]
fn a_damaged_table_stays_though_it_is_hidden() {
    let disk = SimDisk::new();
    let (db, options) = filled(&disk, Separation::AtFlush);
    let version = db.store().family(0).unwrap().view.load().version.clone();
    let path = version.level(version.deepest_level())[2].table.path().to_owned();
    drop(version);
    db.close().unwrap();
    let mut bytes = disk.file_bytes(&path).unwrap();
    bytes[100] ^= 1;
    disk.overwrite(&path, bytes);
    let db = Db::open_with_env("/db", options, disk.env()).unwrap();
    db.delete_range("0001", "1999").unwrap();
    db.flush().unwrap();
    let told = db.wait_for_compact().unwrap_err();
    assert_eq!((told.kind(), told.path()), (ErrorKind::Corruption, Some(&*path)));
    assert!(tables(&db) <= 4, "{} tables", tables(&db));
    db.put("0500", "new").unwrap();
    assert_eq!(db.get("0500").unwrap().as_deref(), Some(&b"new"[..]));
}

/// Goal: a walk skips what is hidden, whole blocks of it unread, in both directions.
#[test]
fn a_walk_skips_what_is_hidden() {
    let disk = SimDisk::new();
    let (db, _) = filled(&disk, Separation::Off);
    let _snapshot = db.snapshot();
    db.delete_range("0001", "1999").unwrap();
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
        }
        for forward in [true, false] {
            let before = db.stats().table_read_calls;
            let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
            let mut entries = db.iter_cf(&db.default_column_family(), &options).unwrap();
            assert_eq!(walked(&mut entries, forward).len(), 2);
            let reads = db.stats().table_read_calls - before;
            assert!(reads < 2 * tables(&db) as u64, "{reads} reads, {} tables", tables(&db));
        }
    }
}

/// Goal: whoever changes a key by what it was hears of a range that was deleted meanwhile, in memory or in a table.
#[test]
fn a_range_is_a_change_of_its_keys() {
    for is_flushed in [false, true] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/db", options(&mut Rng::with_seed(1)), disk.env()).unwrap();
        let delete = || {
            db.delete_range("a", "m").unwrap();
            if is_flushed {
                db.flush().unwrap();
            }
        };
        for (key, is_within) in [("k", true), ("m", false)] {
            db.put(key, "1").unwrap();
            let mut transaction = db.transaction();
            assert!(transaction.get(key).unwrap().is_some());
            transaction.put("other", "1").unwrap();
            delete();
            let committed = transaction.commit(&WriteOptions::default());
            assert_eq!(committed.err().map(|error| error.kind()), is_within.then_some(ErrorKind::Conflict), "{key}");
            db.put(key, "1").unwrap();
            let mut seen = Vec::new();
            db.update(&db.default_column_family(), key, &WriteOptions::default(), |value: Option<&[u8]>| {
                seen.push(value.is_some());
                if seen.len() == 1 {
                    delete();
                }
                Change::Put(b"2".to_vec())
            })
            .unwrap();
            // Where a flush came between, it is asked again in any case.
            assert_eq!((seen.first(), seen.last()), (Some(&true), Some(&!is_within)), "{key}");
        }
    }
}

/// Goal: a file that is taken in hides what the store has of its ranges, and nothing of its own; what is deleted in memory does not hide it.
#[test]
fn a_file_hides_what_is_older_and_nothing_else() {
    for is_in_memory in [true, false] {
        let (disk, mut random) = (SimDisk::new(), Rng::with_seed(3));
        let options = options(&mut random);
        let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
        for n in 0..100 {
            db.put(format!("{n:03}"), "old").unwrap();
        }
        db.delete_range("000", "010").unwrap();
        db.put("005", "later").unwrap();
        if !is_in_memory {
            db.flush().unwrap();
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            db.delete_range("000", "004").unwrap();
            db.flush().unwrap();
        }
        let (snapshot, before) = (db.snapshot(), walked(&mut db.iter().unwrap(), true));
        let family = &options.families["default"];
        let mut writer = SstFileWriter::create_with_env("/in.sst", family, disk.env()).unwrap();
        assert_eq!(writer.delete_range("2", "1").unwrap_err().kind(), ErrorKind::InvalidArgument);
        writer.delete_range("040", "060").unwrap();
        writer.put("002", "in").unwrap();
        writer.put("050", "in").unwrap();
        writer.delete_range("001", "003").unwrap();
        writer.delete_range("050", "070").unwrap();
        let info = writer.finish().unwrap();
        assert_eq!((info.entries, info.range_deletions), (2, 3));
        // Nothing but ranges.
        let mut writer = SstFileWriter::create_with_env("/ranges.sst", family, disk.env()).unwrap();
        writer.delete_range("090", "095").unwrap();
        writer.finish().unwrap();
        let files = ["/in.sst", "/ranges.sst"];
        db.ingest(&db.default_column_family(), &files, &crate::IngestOptions::default()).unwrap();
        let mut expected = before.clone();
        for (begin, end) in [("001", "003"), ("040", "070"), ("090", "095")] {
            delete_range(&mut expected, begin.as_bytes(), end.as_bytes());
        }
        expected.extend(["002", "050"].map(|key| (key.as_bytes().to_vec(), b"in".to_vec())));
        let what = format!("in memory: {is_in_memory}");
        assert_holds(&db, None, &expected, &mut random, &what);
        assert_holds(&db, Some(&snapshot), &before, &mut random, &format!("{what}, the snapshot"));
        assert_whole(&db, &what);
        // As the manifest has it.
        drop((snapshot, db));
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        assert_holds(&db, None, &expected, &mut random, &format!("{what}, again"));
        db.put("041", "new").unwrap();
        expected.insert(b"041".to_vec(), b"new".to_vec());
        db.flush().unwrap();
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_holds(&db, None, &expected, &mut random, &format!("{what}, merged"));
    }
}

/// Goal: keys that are put once and deleted once, again and again, are there when they should be, and leave nothing.
#[test]
fn a_single_deletion_cancels_its_put() {
    for seed in 0..20 {
        let (disk, mut random) = (SimDisk::new(), Rng::with_seed(seed));
        let db = Db::open_with_env("/db", options(&mut random), disk.env()).unwrap();
        let (mut model, mut snapshots) = (Contents::new(), Vec::new());
        for step in 0..400 {
            let key = format!("{:03}", random.u32(..40)).into_bytes();
            match model.remove(&key) {
                Some(_) => db.single_delete(&key).unwrap(),
                None => {
                    let value = vec![random.u8(..); random.usize(..300)];
                    db.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            match random.u8(..40) {
                0..3 => db.flush().unwrap(),
                3 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
                4 => snapshots.push((db.snapshot(), model.clone())),
                5 => snapshots.truncate(1),
                6 => {
                    assert_holds(&db, None, &model, &mut random, &format!("seed {seed}, step {step}"));
                    for (snapshot, before) in &snapshots {
                        assert_holds(&db, Some(snapshot), before, &mut random, &format!("seed {seed}, step {step}"));
                    }
                }
                _ => {}
            }
        }
        snapshots.clear();
        for key in model.keys() {
            db.single_delete(key).unwrap();
        }
        db.flush().unwrap();
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_eq!((tables(&db), walked(&mut db.iter().unwrap(), true).len()), (0, 0), "seed {seed}");
    }
}

/// Goal (W2): a step forward after one back over what is hidden goes on.
#[test]
fn a_walk_turns_beside_what_is_hidden() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/db", options(&mut Rng::with_seed(2)), disk.env()).unwrap();
    for key in ["a", "c", "g", "z"] {
        db.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    let _snapshot = db.snapshot();
    db.delete_range("b", "y").unwrap();
    db.put("e", "new").unwrap();
    let mut entries = db.iter().unwrap();
    entries.seek_for_prev("x").unwrap();
    assert_eq!(entries.key(), b"e");
    entries.next().unwrap();
    assert_eq!(entries.key(), b"z");
    entries.prev().unwrap();
    assert_eq!(entries.key(), b"e");
    entries.prev().unwrap();
    assert_eq!(entries.key(), b"a");
}

/// Goal: where RocksDB has divided a key over two tables, ranges of the second count for it, too; what is hidden is found, and all of it goes.
#[test]
fn a_divided_key_lies_under_the_ranges_of_both_tables() {
    use ValueKind::{Merge, Value};
    let disk = SimDisk::new();
    let options = || {
        let merge_operator: Option<Arc<dyn MergeOperator>> = Some(Arc::new(StringAppendOperator::default()));
        let families = [("default".to_owned(), FamilyOptions { merge_operator, ..FamilyOptions::default() })].into();
        Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
    };
    let db = Db::open_with_env("/db", options(), disk.env()).unwrap();
    let store = db.store();
    let newer = table_of_kinds(store, 1, &[("c", 3, Value, b"-"), ("k", 9, Merge, b"new")]);
    let older = ranged_table(store, 1, &[("k", 5, Some("old")), ("m", 8, Some("-"))], ("k", "l", 7));
    install(&db, vec![(6, newer), (6, older)], 20);
    let mut entries = db.iter().unwrap();
    entries.seek("k").unwrap();
    assert_eq!((db.get("k").unwrap().as_deref(), &*entries.value().unwrap()), (Some(&b"new"[..]), &b"new"[..]));
    drop(entries);
    // All of both lies under one range of a third, which does not end with the first.
    let range = ranged_table(db.store(), 2, &[], ("a", "n", 20));
    install(&db, vec![(0, range)], 20);
    db.wait_for_compact().unwrap();
    assert_eq!((db.get("k").unwrap(), tables(&db)), (None, 1));
}

/// Goal: ranges that lie in one another, as a queue leaves them that is cut at its head, cost about as much as others do.
#[test]
fn ranges_within_each_other_are_written_as_one() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/db", options(&mut Rng::with_seed(1)), disk.env()).unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..20_000u32 {
        batch.put(n.to_be_bytes(), "entry").unwrap();
        batch.delete_range("", n.to_be_bytes()).unwrap();
    }
    db.write(batch, &WriteOptions::default()).unwrap();
    db.flush().unwrap();
    assert_eq!(db.count_cf(&db.default_column_family(), &ReadOptions::default()).unwrap(), 1);
    let version = db.store().family(0).unwrap().view.load().version.clone();
    let pieces: usize = version.tables().map(|(_, table)| table.range_deletions().iter().count()).sum();
    assert_eq!(pieces, 1);
}

/// RD3: a range deletion goes down with what it is merged with as long as something deeper may lie under it; by hand all of it comes down, tables that begin
/// where a range ends one, too.
#[test]
fn a_range_stays_above_what_it_hides() {
    use ValueKind::Value;
    for end in [Some(&b"a"[..]), None] {
        let disk = SimDisk::new();
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        let store = db.store();
        let deepest = table_of_kinds(store, 1, &[("c", 1, Value, b"-"), ("l", 2, Value, b"-"), ("z", 3, Value, b"-")]);
        let middle = table_of_kinds(store, 2, &[("aa", 4, Value, b"-"), ("d", 5, Value, b"-")]);
        let ranged = ranged_table(store, 3, &[("a", 13, Some("-"))], ("b", "k", 14));
        let beside = table_of_kinds(store, 3, &[("k", 15, Value, b"-"), ("m", 16, Value, b"-")]);
        install(&db, vec![(6, deepest), (5, middle), (4, ranged), (4, beside)], 20);
        let family = store.family(0).unwrap();
        let keys = || walked(&mut db.iter().unwrap(), true).into_keys().map(|key| key[0]).collect::<Vec<_>>();
        assert_eq!(keys(), b"aaklmz");
        let version = family.view.load().version.clone();
        let plan = crate::compaction::testing::down(&family, &version, 4, 0);
        if end.is_some() {
            // One step, to where something deeper lies under it.
            store.run_compaction(&plan, &Arc::new(store.room.reserve(plan.written_bytes()))).unwrap();
            assert_eq!(keys(), b"aaklmz");
        }
        db.compact_range(&db.default_column_family(), None, end).unwrap();
        assert_eq!(keys(), b"aaklmz");
        let version = family.view.load().version.clone();
        let levels = [4, 5].map(|level| version.level(level).len());
        assert_eq!(levels, if end.is_some() { [1, 0] } else { [0, 0] });
        assert!(!version.has_range_deletions());
    }
}

/// Goal: where the disk is full, an open keeps ranges in memory as the log has them, in several memtables; whatever their flush dies of, nothing comes back.
#[test]
fn ranges_that_a_full_disk_kept_in_memory_hide_what_they_hid() {
    let open = |disk: &SimDisk, write_buffer_bytes| {
        let compression = crate::Compression::None;
        let family = FamilyOptions { write_buffer_bytes, compression, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
        Db::open_with_env("/db", options, disk.env()).unwrap()
    };
    let disk = SimDisk::new();
    let db = open(&disk, 4 << 20);
    (0..300).for_each(|n| db.put(format!("{n:03}"), "in a table").unwrap());
    db.flush().unwrap();
    for n in 0..3000u32 {
        db.put(format!("{:03}", n * 7 % 300), format!("{n:0>150}")).unwrap();
        if n % 50 == 0 {
            db.delete_range(format!("{:03}", n % 300), format!("{:03}", n % 300 + 20)).unwrap();
        }
    }
    let expected = walked(&mut db.iter().unwrap(), true);
    assert!((100..300).contains(&expected.len()), "{}", expected.len());
    db.close().unwrap();
    let mut died = 0;
    for n in 0.. {
        let disk = disk.after_process_death();
        disk.set_capacity(Some(64 << 20));
        let space = disk.env().files.space("/db".as_ref()).unwrap();
        disk.set_capacity(Some(space.total - space.available + (128 << 10)));
        let db = open(&disk, 64 << 10);
        let view = db.store().family(0).unwrap().view.load_full();
        assert!(view.sealed.len() > 1 && view.has_range_deletions(), "several share the log");
        drop(view);
        assert!(walked(&mut db.iter().unwrap(), true) == expected, "kept");
        disk.set_capacity(None);
        disk.die_after(disk.op_count() + n);
        let is_over = db.flush().is_ok();
        std::mem::forget(db);
        let left = open(&disk.after_process_death(), 64 << 10);
        assert!(walked(&mut left.iter().unwrap(), true) == expected, "operation {n}");
        if is_over {
            break;
        }
        died += 1;
    }
    assert!(died > 5, "{died}");
}
