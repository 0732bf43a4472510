//! Without a manifest, logs that were kept longer than needed: what they have of a key that compactions have brought to the bottom, where
//! entries have no number any more, is older than that.

use std::path::{Path, PathBuf};

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker::{
    ColumnFamily, Db, DbRepair, FamilyOptions, IngestOptions, Options, Separation, SstFileWriter, WriteOptions,
};

use super::is_manifest;

fn options(family: FamilyOptions) -> Options {
    // So large is a log that is preallocated.
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

/// Large values go to blob files as they are written.
fn at_write() -> FamilyOptions {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    FamilyOptions { blob_compression: esker::Compression::None, ..family }
}

/// A store whose other column family keeps every log.
fn keeping_logs(disk: &SimDisk, options: &Options) -> (Db, ColumnFamily) {
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let other = db.create_column_family("other", options.families["default"].clone()).unwrap();
    db.put_cf(&other, "small", "stays in memory", &WriteOptions::default()).unwrap();
    (db, other)
}

fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|of| of == extension)).collect()
}

/// What a death leaves, without CURRENT and manifest.
fn left_by(db: Db, disk: &SimDisk) -> SimDisk {
    let left = disk.after_process_death();
    std::mem::forget(db);
    for path in left.paths().iter().filter(|path| is_manifest(path) || path.ends_with("CURRENT")) {
        left.remove(path).unwrap();
    }
    left
}

fn repaired(left: &SimDisk, options: &Options) -> (Db, DbRepair) {
    let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
    assert!(!report.had_manifest);
    let db = Db::open_with_env("/store", options.clone(), left.env()).unwrap();
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    (db, report)
}

/// Goal: a value that tables and logs point to from several entries of its key, others between them, is counted once: the store is repaired.
#[test]
fn entries_that_point_to_one_value_are_one_whatever_lies_between_them() {
    for old_tables_are_left in [false, true] {
        let (options, disk) = (options(at_write()), SimDisk::new());
        let (db, _) = keeping_logs(&disk, &options);
        let family = db.default_column_family();
        (0..20).for_each(|n| db.put(format!("key {n:02}"), [1; 500]).unwrap());
        db.flush_cf(&family).unwrap();
        (0..2).for_each(|n| db.put(format!("key {n:02}"), [2; 500]).unwrap());
        if old_tables_are_left {
            db.flush_cf(&family).unwrap();
        }
        let reader = old_tables_are_left.then(|| db.iter().unwrap());
        db.compact_range(&family, None, None).unwrap();
        std::mem::forget(reader);
        let (db, report) = repaired(&left_by(db, &disk), &options);
        for n in 0..20 {
            let value = [if n < 2 { 2 } else { 1 }; 500];
            assert_eq!(db.get(format!("key {n:02}")).unwrap().as_deref(), Some(&value[..]), "{n}: {report:?}");
        }
        assert_eq!(report.lost_values, 0, "{report:?}");
    }
}

fn ingest(db: &Db, disk: &SimDisk, family: &FamilyOptions, key: &str, value: &str) {
    let path = Path::new("/outside.sst");
    let mut writer = SstFileWriter::create_with_env(path, family, disk.env()).unwrap();
    writer.put(key, value).unwrap();
    writer.finish().unwrap();
    db.ingest(&db.default_column_family(), &[path.to_owned()], &IngestOptions::default()).unwrap();
}

/// Goal: what came past the log and has no number any more is not taken back by what is still logged. What was logged later counts.
#[test]
fn what_came_past_the_log_is_newer_than_what_a_log_has_kept() {
    for how in ["load", "no log", "ingest"] {
        let (family, disk) = (FamilyOptions::default(), SimDisk::new());
        let options = options(family.clone());
        let (db, _) = keeping_logs(&disk, &options);
        ["a", "k", "z"].iter().for_each(|key| db.put(key, "old").unwrap());
        db.flush_cf(&db.default_column_family()).unwrap();
        match how {
            "load" => {
                let mut load = db.bulk_load(&db.default_column_family()).unwrap();
                load.put("k", "new").unwrap();
                // Not in the way of the load.
                db.put("z", "new").unwrap();
                load.finish().unwrap();
            }
            "no log" => {
                let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
                db.put_cf(&db.default_column_family(), "k", "new", &unlogged).unwrap();
                db.put("z", "new").unwrap();
            }
            _ => {
                ingest(&db, &disk, &family, "k", "new");
                db.put("z", "new").unwrap();
            }
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.put("a", "newest").unwrap();
        assert!(files(&disk, "log").len() > 1);
        let (db, report) = repaired(&left_by(db, &disk), &options);
        for (key, value) in [("a", "newest"), ("k", "new"), ("z", "new")] {
            let found = db.get(key).unwrap();
            assert_eq!(found.as_deref(), Some(value.as_bytes()), "{how}, {key}: {report:?}");
        }
    }
}

/// Goal: of a value that was moved, the log's older one whose file still lives takes nothing; what was logged later counts.
#[test]
fn a_value_that_was_moved_is_newer_than_what_a_log_has_kept() {
    let (options, disk) = (options(at_write()), SimDisk::new());
    let (db, _) = keeping_logs(&disk, &options);
    let family = db.default_column_family();
    (0..100).for_each(|n| db.put(format!("key {n:02}"), [0; 500]).unwrap());
    db.flush_cf(&family).unwrap();
    let oldest = files(&disk, "blob");
    for n in 0..40 {
        db.put(format!("pad {n:02}"), [0; 500]).unwrap();
        if n < 10 {
            db.put(format!("key {n:02}"), [1; 500]).unwrap();
        }
    }
    db.flush_cf(&family).unwrap();
    (0..40).for_each(|n| db.put(format!("pad {n:02}"), "gone").unwrap());
    db.compact_range(&family, None, None).unwrap();
    db.put("key 03", [3; 500]).unwrap();
    let reclaimed = db.reclaim(&family, 0.5).unwrap();
    db.put("key 04", [4; 500]).unwrap();
    let left = left_by(db, &disk);
    let is_left = |path: &PathBuf| left.paths().contains(path);
    assert!(oldest.iter().all(is_left), "{reclaimed:?}");
    let (db, report) = repaired(&left, &options);
    for n in 0..100 {
        let value = match n {
            3 | 4 => n as u8,
            _ => u8::from(n < 10),
        };
        let found = db.get(format!("key {n:02}")).unwrap();
        assert_eq!(found.as_deref(), Some(&[value; 500][..]), "{n}: {report:?}");
    }
    assert_eq!(report.lost_values, 0, "{report:?}");
}

/// Goal: logs that are kept to be written over bring back neither what was overwritten nor what was deleted since.
#[test]
fn logs_that_are_to_be_written_over_bring_nothing_back() {
    let family = FamilyOptions { level0_compaction_trigger: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { level0_slowdown_trigger: 200, level0_stop_trigger: 300, ..family };
    let options = Options { recycled_logs_max: 2, ..options(family) };
    let disk = SimDisk::new();
    let (db, other) = keeping_logs(&disk, &options);
    let family = db.default_column_family();
    db.put("overwritten", "oldest").unwrap();
    db.put("deleted", "old").unwrap();
    db.flush_cf(&family).unwrap();
    db.put("overwritten", "older").unwrap();
    db.flush_cf(&family).unwrap();
    // Two logs are free at once.
    db.flush_cf(&other).unwrap();
    db.delete("deleted").unwrap();
    db.put("overwritten", "newest").unwrap();
    for n in 0..3 {
        db.flush_cf(&family).unwrap();
        db.put("later", format!("{n}")).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    let left = left_by(db, &disk);
    assert!(files(&left, "log").len() > 2);
    let (db, report) = repaired(&left, &options);
    assert_eq!(db.get("overwritten").unwrap().as_deref(), Some(&b"newest"[..]), "{report:?}");
    assert!(db.get("deleted").unwrap().is_none(), "{report:?}");
    assert_eq!(db.get("later").unwrap().as_deref(), Some(&b"2"[..]), "{report:?}");
}

/// Goal: after a load, whose numbers are far ahead, a value of a log that is lost is told, and uncovers no older one: whether that has still its
/// number or not.
#[test]
fn after_a_load_a_lost_value_of_a_log_does_not_uncover_an_older_one() {
    for is_at_the_bottom in [false, true] {
        let (options, disk) = (options(at_write()), SimDisk::new());
        let (db, _) = keeping_logs(&disk, &options);
        let family = db.default_column_family();
        for round in 0..2 {
            db.put("key", [round; 500]).unwrap();
            db.flush_cf(&family).unwrap();
        }
        if is_at_the_bottom {
            db.compact_range(&family, None, None).unwrap();
        }
        let mut load = db.bulk_load(&family).unwrap();
        load.put("loaded", "value").unwrap();
        db.put("key", [2; 500]).unwrap();
        load.finish().unwrap();
        db.put("another", [3; 500]).unwrap();
        let left = left_by(db, &disk);
        let newest = files(&left, "blob").into_iter().max().unwrap();
        assert!(left.flip_bit(&newest, 8 * 100));
        let (db, report) = repaired(&left, &options);
        let lost: Vec<&[u8]> = report.lost_keys.iter().map(|lost| lost.key.as_slice()).collect();
        assert_eq!(lost, [b"key"], "at the bottom: {is_at_the_bottom}: {report:?}");
        assert!(db.get("key").unwrap().is_none(), "at the bottom: {is_at_the_bottom}: {report:?}");
        assert_eq!(db.get("another").unwrap().as_deref(), Some(&[3; 500][..]), "{report:?}");
        assert_eq!(db.get("loaded").unwrap().as_deref(), Some(&b"value"[..]), "{report:?}");
    }
}
