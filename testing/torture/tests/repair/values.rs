//! Values in blob files that are lost, and what was there before them.

use std::path::PathBuf;

use esker::env::FileSystem;
use esker::env::sim::SimDisk;
use esker::{Db, FamilyOptions, Options, Separation, WriteBatch};

use super::{Scene, is_manifest, open};

/// Goal: of a key whose newest value is lost, no older one shows.
#[test]
fn a_lost_value_does_not_uncover_an_older_one() {
    let scene = Scene::new(1, 0, true);
    let mut options = scene.options.clone();
    for family in options.families.values_mut() {
        family.separation = esker::Separation::AtFlush;
        family.min_blob_size = 100;
        family.blob_compression = esker::Compression::None;
        family.level0_compaction_trigger = 10;
        family.level0_slowdown_trigger = 20;
        family.level0_stop_trigger = 30;
    }
    let disk = scene.again();
    let db = open(&disk, &options).unwrap();
    for value in [b"older", b"newer"] {
        db.put("key", value.repeat(100)).unwrap();
        db.put("other", value.repeat(100)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let mut blobs: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "blob")).collect();
    blobs.sort();
    // The first record is that of "key".
    assert!(disk.flip_bit(blobs.last().unwrap(), 8 * 100));
    let report = Db::repair_with_env("/store", options.clone(), disk.env()).unwrap();
    assert_eq!(report.lost_values, 1, "{report:?}");
    assert_eq!(
        (report.lost_keys[0].family.as_str(), report.lost_keys[0].key.as_slice()),
        ("default", b"key".as_slice())
    );
    let db = open(&disk, &options).unwrap();
    assert!(db.get("key").unwrap().is_none());
    assert_eq!(db.get("other").unwrap().unwrap()[..], b"newer".repeat(100));
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

/// Goal: nor where the newest value was only logged: with the manifest and without, and what else was in its batch is there.
#[test]
fn a_lost_value_of_a_log_does_not_uncover_an_older_one() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let families =
        [("default".to_owned(), FamilyOptions { blob_compression: esker::Compression::None, ..family })].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    for (has_manifest, is_gone) in [(true, false), (false, false), (true, true), (false, true)] {
        let what = format!("manifest: {has_manifest}, file gone: {is_gone}");
        let disk = SimDisk::new();
        let db = open(&disk);
        db.put("key", b"older".repeat(100)).unwrap();
        db.put("other", "older").unwrap();
        db.flush().unwrap();
        let mut batch = WriteBatch::new();
        batch.put("key", b"newer".repeat(100)).unwrap();
        batch.put("other", "newer").unwrap();
        db.write(batch, &Default::default()).unwrap();
        db.put("third", b"third".repeat(100)).unwrap();
        db.sync_wal().unwrap();
        let left = disk.after_process_death();
        std::mem::forget(db);
        let is_blob = |path: &PathBuf| path.extension().is_some_and(|of| of == "blob");
        let newest = left.paths().into_iter().filter(is_blob).max().unwrap();
        match is_gone {
            true => left.remove(&newest).unwrap(),
            false => assert!(left.flip_bit(&newest, 8 * 100), "{what}"),
        }
        for path in left.paths().iter().filter(|path| !has_manifest && (is_manifest(path) || path.ends_with("CURRENT")))
        {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        assert_eq!(report.had_manifest, has_manifest, "{what}");
        let lost: Vec<&[u8]> = report.lost_keys.iter().map(|lost| lost.key.as_slice()).collect();
        assert_eq!(
            lost,
            if is_gone { vec![b"key".as_slice(), b"third"] } else { vec![b"key".as_slice()] },
            "{what}: {report:?}"
        );
        let db = open(&left);
        assert!(db.get("key").unwrap().is_none(), "{what}");
        assert_eq!(db.get("other").unwrap().unwrap()[..], *b"newer", "{what}");
        let third = (!is_gone).then(|| b"third".repeat(100));
        assert_eq!(db.get("third").unwrap().map(|value| value.to_vec()), third, "{what}");
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
    }
}

/// Goal: what a log has of a value that has moved since, while another family's writes kept the log, takes nothing from the tables; nor does a
/// value that a power loss kept from ever being there.
#[test]
fn a_log_that_was_kept_takes_no_value_that_is_in_tables() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { blob_compression: esker::Compression::None, ..family };
    let families = [("default".to_owned(), family.clone())].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    for has_moved in [true, false] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let (of_values, other) =
            (db.default_column_family(), db.create_column_family("other", family.clone()).unwrap());
        db.put_cf(&other, "small", "stays in memory", &Default::default()).unwrap();
        for round in 0..2 {
            (0..20 - round * 10).for_each(|n| db.put(format!("key {n}"), [round; 500]).unwrap());
        }
        db.compact_range(&of_values, None, None).unwrap();
        let kept = disk.paths().iter().filter(|path| path.extension().is_some_and(|of| of == "log")).count();
        assert!(kept > 0);
        let left = if has_moved {
            db.reclaim(&of_values, 0.1).unwrap();
            disk.after_process_death()
        } else {
            db.put("key 15", [9; 5000]).unwrap();
            disk.after_process_death()
        };
        std::mem::forget(db);
        if !has_moved {
            let is_blob = |path: &PathBuf| path.extension().is_some_and(|of| of == "blob");
            let newest = left.paths().into_iter().filter(is_blob).max().unwrap();
            let mut bytes = vec![0; 1000];
            left.env().files.open(&newest).unwrap().read_at(0, &mut bytes).unwrap();
            left.overwrite(&newest, bytes);
        }
        for path in left.paths().iter().filter(|path| is_manifest(path) || path.ends_with("CURRENT")) {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        let db = Db::open_with_env("/store", options.clone(), left.env()).unwrap();
        for n in 0..20 {
            let value = [u8::from(n < 10); 500];
            assert_eq!(
                db.get(format!("key {n}")).unwrap().as_deref(),
                Some(&value[..]),
                "{has_moved}, {n}: {report:?}"
            );
        }
        assert!(report.lost_keys.is_empty(), "{has_moved}: {report:?}");
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

/// Goal: nor where the value has sectors of zeroes, as one has that a power loss kept from being written: in a file before the newest all are durable.
#[test]
fn a_lost_value_with_zeroes_does_not_uncover_an_older_one() {
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { blob_compression: esker::Compression::None, blob_file_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    for has_manifest in [true, false] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        // So much that several files may be written before their memtable is flushed.
        (0..1000).for_each(|n| db.put(format!("many {n}"), [5; 3000]).unwrap());
        db.put("key", b"older".repeat(100)).unwrap();
        db.flush().unwrap();
        let flushes = db.stats().flushes;
        let newer = [b"newer".repeat(100), vec![0; 3000]].concat();
        db.put("key", newer).unwrap();
        let blobs = |disk: &SimDisk| -> Vec<PathBuf> {
            disk.paths().into_iter().filter(|path| path.extension().is_some_and(|of| of == "blob")).collect()
        };
        let damaged = blobs(&disk).into_iter().max().unwrap();
        (0..40).for_each(|n| db.put(format!("other {n}"), [7; 3000]).unwrap());
        assert_eq!(db.stats().flushes, flushes);
        let left = disk.after_process_death();
        std::mem::forget(db);
        assert!(blobs(&left).into_iter().max() > Some(damaged.clone()));
        assert!(left.flip_bit(&damaged, 8 * 100));
        for path in left.paths().iter().filter(|path| !has_manifest && (is_manifest(path) || path.ends_with("CURRENT")))
        {
            left.remove(path).unwrap();
        }
        let report = Db::repair_with_env("/store", options.clone(), left.env()).unwrap();
        let lost: Vec<&[u8]> = report.lost_keys.iter().map(|lost| lost.key.as_slice()).collect();
        assert_eq!(lost, [b"key"], "{has_manifest}: {report:?}");
        let db = Db::open_with_env("/store", options.clone(), left.env()).unwrap();
        assert!(db.get("key").unwrap().is_none(), "{has_manifest}");
        assert!((0..40).all(|n| db.get(format!("other {n}")).unwrap().as_deref() == Some(&[7; 3000][..])));
    }
}
