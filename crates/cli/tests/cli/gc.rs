//! `gc`: what the dry run tells is what is done then, for people and for programs.

use esker::{ColumnFamily, Compression, Db, FamilyOptions, Options, ReclaimMode, Separation};
use serde_json::Value;

use crate::run::{NONE, Place};

const BLOB_FILE_BYTES: u64 = 64 << 10;

fn options(punch_holes: bool) -> Options {
    let family = FamilyOptions {
        min_blob_size: 100,
        blob_file_bytes: BLOB_FILE_BYTES,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        reclaim_mode: ReclaimMode::Manual,
        punch_holes,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// A store open for writing, with a fifth of its values overwritten, and that compacted.
fn garbage(place: &Place, value_bytes: usize, punch_holes: bool) -> (Db, ColumnFamily) {
    let db = Db::open(place.store(), options(punch_holes)).unwrap();
    let family = db.default_column_family();
    for step in [1, 5] {
        (0..100u8).step_by(step).for_each(|n| db.put([n], vec![n ^ step as u8; value_bytes]).unwrap());
        db.compact_range(&family, None, None).unwrap();
    }
    (db, family)
}

fn close(db: Db, family: ColumnFamily) {
    drop(family);
    db.close().unwrap();
}

/// What the dry run tells of the default family, and what is done then.
fn told_and_done(place: &Place, part: &str) -> (Value, Value) {
    let told = place.run("gc", ["--dry-run", "--json", "--min-garbage", part]).done().json_lines()[0].clone();
    let done = place.run("gc", ["--json", "--min-garbage", part]).done().json_lines()[0].clone();
    place.run("check", NONE).done();
    (told, done)
}

fn bytes(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap()
}

fn freed(done: &Value) -> u64 {
    bytes(done, "bytes_before") - bytes(done, "bytes_after")
}

#[test]
fn holes_are_made_as_the_dry_run_foretells_and_nothing_is_written() {
    let place = Place::new();
    let (db, family) = garbage(&place, 40_000, true);
    close(db, family);
    let text = place.run("gc", ["--dry-run", "--min-garbage", "0.5"]).done();
    assert!(text.text().contains("holes: would free") && text.text().contains("to become holes"), "{}", text.text());
    let (told, done) = told_and_done(&place, "0.5");
    assert!(bytes(&told, "punched_bytes") > 500_000, "{told}");
    assert_eq!(told["punched_bytes"], done["punched_bytes"]);
    assert_eq!((&told["passes"], bytes(&told, "freed_bytes"), bytes(&done, "written_bytes")), (&done["passes"], 0, 0));
    let text = place.run("gc", ["--dry-run", "--min-garbage", "0.5"]).done();
    assert!(text.text().contains("are holes") && text.text().contains("nothing to do"), "{}", text.text());
}

#[test]
fn values_are_copied_as_the_dry_run_foretells() {
    let place = Place::new();
    let (db, family) = garbage(&place, 1000, true);
    // Open elsewhere, it can be looked at.
    let beside = place.run("gc", ["--dry-run", "--json"]).done().json_lines()[0].clone();
    place.run("gc", NONE).failed(&["busy", "close it there", "--dry-run", "Db::reclaim"]);
    close(db, family);
    let (told, done) = told_and_done(&place, "0.1");
    assert_eq!((&told["passes"], bytes(&told, "freed_bytes")), (&done["passes"], freed(&done)));
    assert!(freed(&done) > 15_000 && bytes(&told, "punched_bytes") == 0, "{told} {done}");
    assert_eq!(beside["freed_bytes"], told["freed_bytes"]);
    let [copied, tables] = ["copied_bytes", "table_bytes"].map(|name| bytes(&told, name));
    assert!((copied + tables).abs_diff(bytes(&done, "written_bytes")) < tables / 10 + 1024 * bytes(&told, "passes"));
}

#[test]
fn values_come_home_as_the_dry_run_foretells() {
    let place = Place::new();
    let (db, family) = garbage(&place, 1000, false);
    close(db, family);
    // What is done by itself in the background is not foretold.
    let mut falling_back = options(false);
    falling_back.families.get_mut("default").unwrap().separation = Separation::FallBack;
    falling_back.families.get_mut("default").unwrap().compression = Compression::None;
    Db::open(place.store(), falling_back).unwrap().close().unwrap();
    let text = place.run("gc", ["--dry-run"]).done();
    assert!(text.text().contains("falls back: would remove all blob files"), "{}", text.text());
    let (told, done) = told_and_done(&place, "0.1");
    assert_eq!((told["comes_home"].as_bool(), bytes(&done, "bytes_after")), (Some(true), 0));
    assert_eq!((&told["passes"], bytes(&told, "freed_bytes")), (&done["passes"], freed(&done)));
    let written = bytes(&told, "copied_bytes") + bytes(&told, "table_bytes");
    assert!(written.abs_diff(bytes(&done, "written_bytes")) < written / 10, "{told} {done}");
    assert!(place.files(".blob").is_empty());
    assert!(place.run("gc", ["--dry-run"]).done().text().contains("no blob files"));
}

#[test]
fn what_a_pass_does_not_find_is_told_apart() {
    let place = Place::new();
    let db = Db::open(place.store(), options(false)).unwrap();
    let family = db.default_column_family();
    (0..100u8).for_each(|n| db.put([n], [n; 1000]).unwrap());
    db.compact_range(&family, None, None).unwrap();
    (0..50u8).for_each(|n| db.put([n], [!n; 1000]).unwrap());
    db.flush().unwrap();
    db.put("k", "only in the log").unwrap();
    let text = place.run("gc", ["--dry-run"]).done();
    for words in ["not yet compacted: up to", "`esker compact`", "not yet flushed", "not seen: ", "close"] {
        assert!(text.text().contains(words), "{words}: {}", text.text());
    }
    assert!(!text.text().contains("left over"));
    close(db, family);
    // As a process that died has left it.
    let left = place.write("store/000003.blob", &[0; 5000]);
    assert!(place.run("gc", ["--dry-run"]).done().text().contains("left over: files of 4.9 KiB"));
    let (told, done) = told_and_done(&place, "0.1");
    assert_eq!((bytes(&told, "leftover_bytes"), freed(&done), left.exists()), (5000, 0, false));
    let hidden = bytes(&told, "not_compacted_bytes");
    place.run("compact", NONE).done();
    let (told, done) = told_and_done(&place, "0.1");
    assert!(freed(&done) > 50_000 && freed(&done) <= hidden, "{told} {done}");
    assert_eq!(bytes(&told, "freed_bytes"), freed(&done));
}
