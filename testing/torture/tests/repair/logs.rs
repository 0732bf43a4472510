//! Without a manifest, logs that were kept longer than needed: what they have of a key that compactions have brought to the bottom, where
//! entries have no number any more, is older than that.

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker::{
    ColumnFamily, Db, DbRepair, FamilyOptions, Options, Separation, WriteOptions,
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
