//! Damaged files: never a panic, never a wrong answer, and an error that says where.

use std::path::{Path, PathBuf};

use esker::env::sim::SimDisk;
use esker::{
    Db, Error, ErrorKind, FamilyOptions, Options, ReadOptions, RecoveryMode, Separation, WriteBatch, WriteOptions,
};
use esker_torture::model::{Contents, backward, forward};

fn options() -> Options {
    let family = FamilyOptions { min_blob_size: 200, write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        // A blob file with garbage is part of the scene.
        reclaim_mode: esker::ReclaimMode::Manual,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// A store with tables in two levels, a blob file with garbage, two column families and a log with writes.
fn store() -> (SimDisk, Contents) {
    store_with(Separation::AtFlush)
}

fn store_with(separation: Separation) -> (SimDisk, Contents) {
    let disk = SimDisk::new();
    let mut with = options();
    with.families.values_mut().for_each(|family| family.separation = separation);
    let db = Db::open_with_env("/store", with, disk.env()).unwrap();
    let second = db.create_column_family("second", options().families["second"].clone()).unwrap();
    let mut expected = Contents::new();
    let sync = WriteOptions { sync: true, ..WriteOptions::default() };
    for round in 0..3u8 {
        for n in (0..12u8).filter(|n| n % (round + 1) == 0) {
            let (key, value) = (vec![b'k', n], vec![round; usize::from(n) * 40]);
            db.put_cf(&db.default_column_family(), &key, &value, &sync).unwrap();
            expected.insert(key, value);
        }
        db.put_cf(&second, [round], b"second", &sync).unwrap();
        match round {
            0 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
            1 => db.flush().unwrap(),
            _ => {}
        }
    }
    db.delete(b"k\x04").unwrap();
    expected.remove(&b"k\x04"[..]);
    db.sync_wal().unwrap();
    std::mem::forget(db);
    (disk.after_process_death(), expected)
}

/// Where in a table's footer the format version is: before the magic number.
const VERSION_FROM_END: u64 = 12;

fn files(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.file_bytes(&path).unwrap())).collect()
}

fn is_typed(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::InvalidArgument | ErrorKind::NotFound
    )
}

/// A log of a store that was not closed, without the preallocated space behind its last record.
fn written(log: &[u8]) -> &[u8] {
    let end = log.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &log[..end]
}

/// Opens, reads everything both ways and checks; whatever is answered must be true.
fn use_damaged(disk: &SimDisk, expected: &Contents, what: &str) -> Result<(), Error> {
    let before = files(disk);
    let db = match Db::open_with_env("/store", Options { families: Default::default(), ..options() }, disk.env()) {
        Ok(db) => db,
        Err(error) => {
            assert!(is_typed(&error), "{what}: {error}");
            assert!(files(disk) == before, "{what}: a failed open changed the directory");
            return Err(error);
        }
    };
    let family = db.default_column_family();
    for (key, value) in expected {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(value.as_slice()), "{what}: get {key:?}"),
            Err(error) => assert!(is_typed(&error), "{what}: {error}"),
        }
    }
    assert!(db.get(b"k\x04").map_or(true, |found| found.is_none()), "{what}: a deleted key is back");
    for entries in [forward(&db, &family, &ReadOptions::default()), backward(&db, &family, &ReadOptions::default())] {
        match entries {
            Ok(entries) => assert!(entries.into_iter().collect::<Contents>() == *expected, "{what}: a scan is wrong"),
            Err(error) => assert!(is_typed(&error), "{what}: {error}"),
        }
    }
    let check = db.check(&mut |_| {}).unwrap();
    check.errors.into_iter().next().map_or(Ok(()), Err)
}

/// Goal: no flipped bit in any file makes a panic, a wrong answer, or a failed open that changes the directory.
/// In tables, blob files, manifest and log it is reported by open or by check.
#[test]
fn a_flipped_bit_is_never_a_wrong_answer() {
    flip_every_byte(&store(), 1000, |_| true);
}

/// The same of logs that point to values in blob files that no manifest names yet, and of these.
#[test]
fn a_flipped_bit_is_never_a_wrong_answer_where_values_are_separated_as_they_are_written() {
    flip_every_byte(&store_with(Separation::AtWrite), 500, |name| name.ends_with(".log") || name.ends_with(".blob"));
}

fn flip_every_byte((disk, expected): &(SimDisk, Contents), least: u64, is_wanted: fn(&str) -> bool) {
    assert!(use_damaged(&disk.after_process_death(), expected, "undamaged").is_ok());
    let mut reported = 0u64;
    let mut flipped = 0u64;
    for (path, bytes) in files(disk) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !is_wanted(&name) {
            continue;
        }
        // Behind its last record, a log has nothing but the zeroes of preallocated space.
        let written = if name.ends_with(".log") { written(&bytes) } else { &bytes };
        for byte in 0..written.len() as u64 {
            let bit = byte * 8 + (byte * 7 + 3) % 8;
            // Format version 5 becomes 4: no checksum covers it, and tables of both are read alike.
            if name.ends_with(".sst") && bit == (bytes.len() as u64 - VERSION_FROM_END) * 8 {
                continue;
            }
            let damaged = disk.after_process_death();
            damaged.flip_bit(&path, bit);
            let what = format!("bit {bit} of {name} flipped");
            let result = use_damaged(&damaged, expected, &what);
            if !matches!(name.split('-').next(), Some("OPTIONS" | "IDENTITY" | "LOCK")) {
                flipped += 1;
                reported += u64::from(result.is_err());
                let error = result.err();
                assert!(error.is_some(), "{what}: nobody noticed");
                assert!(error.is_some_and(|error| error.path().is_some()), "{what}: the error does not say where");
            }
        }
    }
    assert!(flipped > least && reported == flipped, "{reported} of {flipped}");
}

/// Goal: a file cut short is never a wrong answer, except that a log without its end is a shorter log. (A manifest cut
/// between two edits, or at a sector's boundary, looks like one that a power loss ended: not tried here.)
#[test]
fn a_truncated_file_is_an_error_and_a_truncated_log_a_shorter_log() {
    let (disk, expected) = store();
    for (path, bytes) in files(&disk) {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let is_manifest = path.to_string_lossy().contains("MANIFEST");
        for len in (0..bytes.len()).step_by(7).filter(|len| !is_manifest || !edit_ends(&bytes).contains(len)) {
            let damaged = disk.after_process_death();
            damaged.overwrite(&path, bytes[..len].to_vec());
            let what = format!("{} cut to {len} bytes", path.display());
            if is_log {
                let db =
                    Db::open_with_env("/store", options(), damaged.env()).unwrap_or_else(|e| panic!("{what}: {e}"));
                for key in expected.keys() {
                    assert!(db.get(key).unwrap().is_some(), "{what}: older values of all keys are in tables");
                }
            } else {
                let _ = use_damaged(&damaged, &expected, &what);
            }
        }
    }
}

/// Where the records of a small manifest end: in each header, length is at byte 4.
fn edit_ends(manifest: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some(header) = manifest[ends[ends.len() - 1]..].get(..7) {
        ends.push(ends[ends.len() - 1] + 7 + usize::from(u16::from_le_bytes([header[4], header[5]])));
    }
    ends
}

/// Goal: a missing file is an error that names it, and the directory stays as it was.
#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let (disk, expected) = store();
    for (path, _) in files(&disk) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if matches!(name.split('-').next(), Some("OPTIONS" | "IDENTITY" | "LOCK")) || name.ends_with(".log") {
            continue;
        }
        let damaged = disk.after_process_death();
        damaged.env().files.remove(&path).unwrap();
        let error = use_damaged(&damaged, &expected, &name).expect_err(&name);
        let shown = error.to_string();
        assert!(shown.contains(&name) || name == "CURRENT", "{shown}");
        assert!(!shown.contains('\n'), "{shown}");
    }
}

/// Goal: a flipped bit in the synced part of a log is an error by default; `SkipCorrupt` goes on without the batch.
#[test]
fn skip_corrupt_goes_on_without_the_damaged_batch() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    for n in 0..20u8 {
        db.put([n], [n; 100]).unwrap();
    }
    db.sync_wal().unwrap();
    std::mem::forget(db);
    let log = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    let disk = disk.after_process_death();
    disk.flip_bit(&log, 8 * 700);
    let error = Db::open_with_env("/store", options(), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert_eq!((error.path(), error.offset().is_some()), (Some(log.as_path()), true));
    assert!(error.to_string().contains("SkipCorrupt"), "{error}");
    let skipping = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
    let db = Db::open_with_env("/store", skipping, disk.env()).unwrap();
    assert!(db.stats().recovery.skipped_bytes > 0);
    let found = forward(&db, &db.default_column_family(), &ReadOptions::default()).unwrap();
    assert!(found.len() < 20 && found.iter().all(|(key, value)| *value == vec![key[0]; 100]), "{found:?}");
    assert!(!found.is_empty());
}

/// Goal: a log that a crash tore is an error only to those who asked for absolute consistency; the others are told.
#[test]
fn a_torn_tail_is_what_the_recovery_mode_says() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    for n in 0..20u8 {
        db.put([n], [n; 100]).unwrap();
    }
    std::mem::forget(db);
    let log = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    let bytes = disk.file_bytes(&log).unwrap();
    let bytes = written(&bytes);
    for mode in [
        RecoveryMode::AbsoluteConsistency,
        RecoveryMode::TolerateTornTail,
        RecoveryMode::PointInTime,
        RecoveryMode::SkipCorrupt,
    ] {
        let torn = disk.after_process_death();
        torn.overwrite(&log, bytes[..bytes.len() - 30].to_vec());
        let opened = Db::open_with_env("/store", Options { wal_recovery: mode, ..options() }, torn.env());
        if mode == RecoveryMode::AbsoluteConsistency {
            let error = opened.unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(log.as_path())), "{error}");
            continue;
        }
        let db = opened.unwrap();
        assert!(db.get([18]).unwrap().is_some() && db.get([19]).unwrap().is_none(), "{mode:?}");
        let recovery = db.stats().recovery;
        assert_eq!((recovery.wal_files, recovery.batches), (1, 19));
        if mode == RecoveryMode::SkipCorrupt {
            assert!(recovery.skipped_bytes > 0);
        } else {
            assert_eq!(recovery.torn_at.map(|(path, _)| path), Some(log.clone()), "{mode:?}");
            assert!(recovery.dropped_bytes > 0);
        }
    }
}

/// Goal: what callers get wrong is refused by name, and nothing changes.
#[test]
fn bad_calls_are_refused() {
    let (disk, expected) = store();
    let missing = Db::open_with_env("/nowhere", Options::default(), disk.env()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(disk.paths().iter().all(|path| path.starts_with("/store")), "a failed open makes nothing");
    let not_a_store = Db::open_with_env("/store/CURRENT", options(), disk.env()).unwrap_err();
    assert_eq!(not_a_store.kind(), ErrorKind::InvalidArgument);

    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    let busy = Db::open_with_env("/store", options(), disk.env()).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    let long = vec![0u8; (8 << 20) + 1];
    assert_eq!(db.put(&long, b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
    // Zeroes that nobody touches take no memory.
    let huge = vec![0u8; (3 << 30) + 1];
    assert_eq!(db.put("huge", &huge).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(huge);
    assert_eq!(db.create_column_family("", FamilyOptions::default()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.create_column_family("second", FamilyOptions::default()).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(db.drop_column_family(&db.default_column_family()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let second = db.column_family("second").unwrap();
    db.drop_column_family(&second).unwrap();
    assert_eq!(db.drop_column_family(&second).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut batch = WriteBatch::new();
    batch.put_cf(&second, "a", "b").unwrap();
    batch.put("a", "b").unwrap();
    assert_eq!(db.write(batch, &WriteOptions::default()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(db.get("a").unwrap().is_none());
    let nonsense = WriteOptions { sync: true, disable_wal: true };
    let family = db.default_column_family();
    assert_eq!(db.put_cf(&family, "a", "b", &nonsense).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(other.put("a", "b").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.get("a").unwrap_err().kind(), ErrorKind::Closed);

    let read_only = Db::open_read_only_with_env("/store", Options::default(), disk.env()).unwrap();
    let before = files(&disk);
    assert_eq!(read_only.put("a", "b").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(read_only.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    let found = forward(&read_only, &read_only.default_column_family(), &ReadOptions::default()).unwrap();
    assert!(found.into_iter().collect::<Contents>() == expected);
    read_only.close().unwrap();
    assert!(files(&disk) == before, "reading changes nothing");
}

/// Goal: a directory with strangers' files is not taken for an empty one.
#[test]
fn a_store_is_not_made_among_other_files() {
    let disk = SimDisk::new();
    disk.env().files.create_dir_all(Path::new("/home")).unwrap();
    disk.overwrite(Path::new("/home/letter.txt"), b"dear".to_vec());
    let error = Db::open_with_env("/home", options(), disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert_eq!(disk.paths(), [PathBuf::from("/home/letter.txt")]);
}
