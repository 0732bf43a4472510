//! Stores that are not there, are none, or are somebody else's.

use std::process::Command;

use esker::{Db, FamilyOptions, Options, ReclaimMode};

use crate::run::{NONE, Place, esker};

const READERS: [&[&str]; 6] = [&["get", "k"], &["scan"], &["count"], &["families"], &["stats"], &["check"]];
const WRITERS: [&[&str]; 5] =
    [&["put", "k", "v"], &["delete", "k"], &["compact"], &["create-family", "f"], &["drop-family", "f"]];

#[test]
fn a_missing_store_is_an_error_and_is_not_made() {
    let place = Place::new();
    for command in READERS.iter().chain(&WRITERS) {
        let (name, arguments) = command.split_first().unwrap();
        // None names an option of programs.
        place.run(name, arguments).failed(&["not found", place.store().to_str().unwrap(), "esker create"]);
        assert!(!place.store().exists(), "{name}");
    }
    let copy = place.path("copy");
    let copy = copy.to_str().unwrap();
    let more =
        [&["history", "k"][..], &["checkpoint", copy], &["backup", copy], &["repair"], &["gc"], &["gc", "--dry-run"]];
    for arguments in more.iter().chain(&[&["bench", "--use-existing"][..]]) {
        let (name, arguments) = arguments.split_first().unwrap();
        place.run(name, arguments.iter().copied()).failed(&["not found", "esker create"]);
        assert!(!place.store().exists() && !place.path("copy").exists(), "{name}");
    }
    place.write("store/UNFINISHED-COPY", b"");
    place.run("history", ["k"]).failed(&["was not finished here"]);
}

#[test]
fn what_is_no_store_is_an_error_and_left_alone() {
    let place = Place::new();
    place.write("store/letter.txt", b"dear");
    for command in READERS.iter().chain(&WRITERS) {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).failed(&[place.store().to_str().unwrap()]);
    }
    assert_eq!(place.files(""), [place.path("store/letter.txt")]);
    let file = place.write("file", b"");
    for command in ["scan", "compact", "check"] {
        esker([std::ffi::OsStr::new(command), file.as_os_str()]).failed(&[file.to_str().unwrap()]);
    }
}

#[test]
fn who_has_a_store_open_keeps_writers_out_and_lets_readers_in() {
    let place = Place::with(&[("k", "v")]);
    let db = Db::open(place.store(), Options::default()).unwrap();
    db.put("k2", "v2").unwrap();
    for command in WRITERS {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).failed(&["busy", place.store().to_str().unwrap()]);
    }
    place.run("import", ["--files", place.path("").to_str().unwrap()]).failed(&["busy"]);
    assert_eq!(place.run("scan", NONE).done().text(), "k\tv\nk2\tv2\n");
    place.run("check", NONE).done();
    db.close().unwrap();
    place.run("put", ["k", "w"]).done();
}

/// A limit that a program gave its store holds for the command, too, and stays.
#[test]
fn the_command_goes_by_what_the_stores_program_chose() {
    let place = Place::new();
    let limit = 8 << 20;
    let family = FamilyOptions { write_buffer_bytes: 1 << 20, ..FamilyOptions::default() };
    let options = Options {
        create_if_missing: true,
        max_disk_bytes: limit,
        reclaim_mode: ReclaimMode::Off,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    };
    let db = Db::open(place.store(), options).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let kept = || {
        let options = Options::of_store(place.store()).unwrap();
        (options.max_disk_bytes, options.reclaim_mode)
    };
    let bytes: Vec<u8> = (0..9 << 20u32).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = place.write("large", &bytes);
    place.run("put", ["large", "--value-file", file.to_str().unwrap()]).failed(&["exhausted", "max_disk_bytes"]);
    place.write("tree/large", &bytes);
    place.run("import", ["--files", place.path("tree").to_str().unwrap()]).failed(&["exhausted"]);
    for command in [&["put", "k", "w"][..], &["compact"], &["gc"], &["repair"], &["put", "k", "x"]] {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).done();
        assert_eq!(kept(), (limit, ReclaimMode::Off), "{name}");
    }
    let total: u64 = place.files("").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(total < limit, "{total}");
}

/// Every command finds logs that are elsewhere, where it is told; where it is not, it says where the store has them.
#[test]
fn commands_find_logs_where_they_are_told() {
    let place = Place::new();
    let logs = place.path("logs");
    let wal_dir = format!("--wal-dir={}", logs.display());
    let all = [&*wal_dir];
    place.run("create", all).done();
    place.run("put", ["k", "v", &wal_dir]).done();
    assert!(
        std::fs::read_dir(&logs).unwrap().any(|entry| entry.unwrap().path().extension().is_some_and(|it| it == "log"))
    );
    for command in [&["get", "k"][..], &["stats"], &["check"], &["put", "k", "w"], &["compact"], &["gc"]] {
        let (name, arguments) = command.split_first().unwrap();
        // Something that is in the log alone.
        place.run("put", ["k", "w", &wal_dir]).done();
        place.run(name, arguments).failed(&[logs.to_str().unwrap(), "wal_dir"]);
        place.run(name, arguments.iter().chain(&all)).done();
    }
    place.run("repair", all).done();
    assert_eq!(place.run("get", ["k", &wal_dir]).done().text(), "w");
    // Who names a directory of logs where there are none is told.
    let cask = Place::new();
    let ran = cask.run("create", ["--kind", "cask", &wal_dir]);
    assert!(ran.code == 0 && ran.err.contains("--wal-dir") && ran.err.contains("of no use"), "{}", ran.err);
}

/// A store keeps all of its files open. Here one has more of them than the soft limit that shells set allows.
#[test]
fn the_command_raises_the_soft_limit_of_open_files() {
    let place = Place::new();
    let family =
        FamilyOptions { level0_compaction_trigger: 1000, level0_slowdown_trigger: 1000, ..FamilyOptions::default() };
    let options = Options {
        create_if_missing: true,
        families: [("default".to_owned(), FamilyOptions { level0_stop_trigger: 1001, ..family })].into(),
        ..Options::default()
    };
    let db = Db::open(place.store(), options).unwrap();
    for key in 0..40u8 {
        db.put([key], b"v").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    assert_eq!(place.files(".sst").len(), 40);
    for command in ["count", "check", "compact"] {
        let script = format!("ulimit -Sn 32; exec \"$0\" {command} \"$1\"");
        let shell = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_esker")]).arg(place.store()).output();
        let ran = shell.unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[test]
fn a_reader_changes_no_file() {
    let place = Place::with(&[("k", "v")]);
    let contents =
        || -> Vec<_> { place.files("").into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect() };
    let before = contents();
    for command in READERS {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).done();
    }
    assert_eq!(contents(), before);
}
