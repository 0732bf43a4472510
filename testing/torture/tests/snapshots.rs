//! What a snapshot shows stays, whatever becomes of the files behind it.

use esker::env::sim::SimDisk;
use esker::{Db, FamilyOptions, Options, ReadOptions, Separation, Snapshot};
use esker_torture::model::{backward, forward};

const VERSION_COUNT: u8 = 40;

/// Tables so small that the versions of one key fill several of them.
fn options() -> Options {
    let family = FamilyOptions {
        separation: Separation::Off,
        target_file_bytes: 4 << 10,
        level_base_bytes: 16 << 10,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn value(version: u8) -> Vec<u8> {
    (0..1000u32).map(|n| (n * 7 + u32::from(version) * 31) as u8).collect()
}

/// A store in which snapshot `n` was taken after version `n` of the key, between neighbours on both sides.
fn versions(disk: &SimDisk) -> (Db, Vec<Snapshot>) {
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    db.put("a", "before").unwrap();
    db.put("z", "after").unwrap();
    let write = |version: u8| {
        db.put("key", value(version)).unwrap();
        db.snapshot()
    };
    let snapshots = (0..VERSION_COUNT).map(write).collect();
    (db, snapshots)
}

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() }
}

fn check(db: &Db, snapshots: &[Snapshot], what: &str) {
    let family = db.default_column_family();
    for (version, snapshot) in (0..).zip(snapshots) {
        let found = db.get_cf(&family, "key", &at(snapshot)).unwrap();
        assert!(found.as_deref() == Some(value(version).as_slice()), "{what}: get of version {version}");
        let expected = [
            (b"a".to_vec(), b"before".to_vec()),
            (b"key".to_vec(), value(version)),
            (b"z".to_vec(), b"after".to_vec()),
        ];
        assert!(forward(db, &family, &at(snapshot)).unwrap() == expected, "{what}: forward at version {version}");
        assert!(backward(db, &family, &at(snapshot)).unwrap() == expected, "{what}: backward at version {version}");
    }
}

/// Goal: each snapshot finds its version of a key, in memory and in tables, though the versions outgrow a table.
#[test]
fn each_snapshot_finds_its_version_of_a_key_that_outgrows_a_table() {
    let disk = SimDisk::new();
    let (db, snapshots) = versions(&disk);
    check(&db, &snapshots, "in memory");
    db.flush().unwrap();
    check(&db, &snapshots, "flushed");
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    check(&db, &snapshots, "compacted");
    // Once more, with something to merge with.
    db.put("a", "before").unwrap();
    db.put("z", "after").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    check(&db, &snapshots, "compacted again");
}

/// Goal: of two snapshots of the same moment, the one that stays still protects what it shows.
#[test]
fn a_snapshot_outlives_its_twin() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    db.put("key", "then").unwrap();
    let (kept, twin) = (db.snapshot(), db.snapshot());
    let copy = kept.clone();
    db.put("key", "now").unwrap();
    drop((twin, copy));
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let found = db.get_cf(&db.default_column_family(), "key", &at(&kept)).unwrap();
    assert_eq!(found.as_deref(), Some(&b"then"[..]));
}

/// Goal: versions that no snapshot needs any more go.
#[test]
fn what_only_a_dropped_snapshot_showed_goes() {
    let disk = SimDisk::new();
    let (db, snapshots) = versions(&disk);
    let family = db.default_column_family();
    db.compact_range(&family, None, None).unwrap();
    let entries = |db: &Db| db.stats().families[0].entries;
    assert_eq!(entries(&db), u64::from(VERSION_COUNT) + 2);
    drop(snapshots);
    db.put("key", value(0)).unwrap();
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(entries(&db), 3);
}

/// Goal: what only a dropped snapshot showed goes by a compaction by hand, though nothing was written since: from the
/// deepest level, where no other compaction comes by. Deletions go with it.
#[test]
fn the_deepest_level_gives_up_what_only_a_dropped_snapshot_showed() {
    let disk = SimDisk::new();
    let (db, snapshots) = versions(&disk);
    let family = db.default_column_family();
    db.delete("z").unwrap();
    db.compact_range(&family, None, None).unwrap();
    let stats = |db: &Db| (db.stats().families[0].entries, db.stats().families[0].deletions);
    assert_eq!(stats(&db), (u64::from(VERSION_COUNT) + 3, 1));
    // As long as one of them is held, what it shows stays, whatever else goes.
    let first = snapshots.first().unwrap().clone();
    check(&db, &snapshots, "before");
    drop(snapshots);
    db.compact_range(&family, None, None).unwrap();
    check(&db, std::slice::from_ref(&first), "one is left");
    assert_eq!(stats(&db), (5, 1));
    drop(first);
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(stats(&db), (2, 0));
    let compactions = db.stats().compactions;
    db.compact_range(&family, None, None).unwrap();
    assert_eq!(db.stats().compactions, compactions, "nothing is left to rewrite");
}

/// Goal: the same without anybody's asking for it, the next time that work is looked for.
#[test]
fn a_dropped_snapshot_makes_its_garbage_due() {
    let disk = SimDisk::new();
    let (db, mut snapshots) = versions(&disk);
    let family = db.default_column_family();
    db.compact_range(&family, None, None).unwrap();
    let entries = |db: &Db| db.stats().families[0].entries;
    let last = snapshots.pop().unwrap();
    drop(snapshots);
    db.flush().unwrap();
    assert_eq!(entries(&db), 3);
    check_last(&db, &last);
    // What a table holds that the last snapshot sees needs no time: a snapshot of now sees it as well.
    let compactions = db.stats().compactions;
    drop(last);
    db.flush().unwrap();
    assert_eq!((entries(&db), db.stats().compactions), (3, compactions));
    check_last(&db, &db.snapshot());
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

fn check_last(db: &Db, snapshot: &Snapshot) {
    let found = db.get_cf(&db.default_column_family(), "key", &at(snapshot)).unwrap();
    assert!(found.as_deref() == Some(value(VERSION_COUNT - 1).as_slice()));
}
