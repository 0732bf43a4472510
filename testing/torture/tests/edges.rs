//! Sizes at every limit, odd paths, directories that are open already or may not be written, clocks that jump: all engines.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::env::sim::SimDisk;
use esker::env::{Clock, Env, Error as EnvError};
use esker::raft;
use esker::{
    Cask, CaskBatch, CaskOptions, CaskWriteOptions, Compression, Db, ErrorKind, FamilyOptions, LogBatch, Options,
    RaftLog, Separation, WriteBatch,
};
use esker_torture::hooked::{Call, Hooked};
use fastrand::Rng;

const KEY_BYTES_MAX: usize = 8 << 20;

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Rng::with_seed(bytes as u64).fill(&mut noise);
    noise
}

fn db_options(separation: Separation) -> Options {
    let family = FamilyOptions {
        separation,
        min_blob_size: 1000,
        block_bytes: 512,
        write_buffer_bytes: 64 << 10,
        blob_file_bytes: 64 << 10,
        compression: Compression::None,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

fn cask_options() -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        stripes: 1,
        file_bytes: 16 << 10,
        background_jobs: 0,
        open_threads: 0,
        ..CaskOptions::default()
    }
}

fn raft_options() -> raft::Options {
    raft::Options { file_bytes: 16 << 10, recovery_threads: 1, ..raft::Options::default() }
}

/// Lengths around everything that has a size: sectors, pages, blocks of tables and of logs, thresholds, buffers, files.
fn lengths() -> impl Iterator<Item = usize> {
    [0, 512, 1000, 4096, 16 << 10, 32 << 10, 64 << 10, 128 << 10]
        .into_iter()
        .flat_map(|edge: usize| edge.saturating_sub(40)..=edge + 8)
        .step_by(3)
}

/// Goal: values of any length come back, before and after a death and a compaction, wherever they are kept.
#[test]
fn values_on_both_sides_of_every_size_come_back_from_a_db() {
    for separation in [Separation::Off, Separation::AtFlush, Separation::AtWrite] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", db_options(separation), disk.env()).unwrap();
        for length in lengths() {
            db.put(length.to_be_bytes(), noise(length)).unwrap();
        }
        let check = |db: &Db| {
            for length in lengths() {
                assert!(db.get(length.to_be_bytes()).unwrap().as_deref() == Some(&noise(length)[..]), "{length} bytes");
            }
        };
        check(&db);
        std::mem::forget(db);
        let db = Db::open_with_env("/store", db_options(separation), disk.after_process_death().env()).unwrap();
        check(&db);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        check(&db);
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
    }
}

#[test]
fn values_on_both_sides_of_every_size_come_back_from_a_cask() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", cask_options(), disk.env()).unwrap();
    for length in lengths() {
        cask.put(length.to_be_bytes(), noise(length)).unwrap();
        cask.put(b"overwritten", noise(length)).unwrap();
    }
    let check = |cask: &Cask| {
        for length in lengths() {
            assert!(cask.get(length.to_be_bytes()).unwrap().as_deref() == Some(&noise(length)[..]), "{length} bytes");
        }
    };
    check(&cask);
    let disk = disk.after_process_death();
    drop(cask);
    let cask = Cask::open_with_env("/store", cask_options(), disk.env()).unwrap();
    check(&cask);
    cask.compact().unwrap();
    check(&cask);
    assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
}

#[test]
fn entries_on_both_sides_of_every_size_come_back_from_a_raft_log() {
    let disk = SimDisk::new();
    let log = RaftLog::open_with_env("/log", raft_options(), disk.env()).unwrap();
    let mut batch = LogBatch::new();
    for (index, length) in (1..).zip(lengths()) {
        batch.add_entries(u64::MAX, index, [noise(length)]).unwrap();
        batch.put(0, &length.to_be_bytes(), &noise(length)).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    let check = |log: &RaftLog| {
        for (index, length) in (1..).zip(lengths()) {
            assert!(log.entry(u64::MAX, index).unwrap().unwrap() == noise(length), "{length} bytes");
            assert!(log.get(0, &length.to_be_bytes()).as_deref() == Some(&noise(length)[..]), "{length} bytes");
        }
    };
    check(&log);
    let disk = disk.after_process_death();
    drop(log);
    let log = RaftLog::open_with_env("/log", raft_options(), disk.env()).unwrap();
    check(&log);
    log.move_on(None).unwrap();
    check(&log);
}

/// Goal: the longest key is a key; one byte more, and a value over its limit, are refused before anything is written.
#[test]
fn a_db_takes_its_longest_key_and_refuses_more() {
    let disk = SimDisk::new();
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let path = format!("/{separation:?}");
        let db = Db::open_with_env(&path, db_options(separation), disk.env()).unwrap();
        let (longest, long) = (noise(KEY_BYTES_MAX), noise(2000));
        db.put(&longest, &long).unwrap();
        db.put("", &long).unwrap();
        let ops = disk.op_count();
        // Zeroes that nobody touches take no memory.
        let too_long = vec![0; (3 << 30) + 1];
        let mut batch = WriteBatch::new();
        for error in [
            db.put(vec![0; KEY_BYTES_MAX + 1], "").unwrap_err(),
            db.put("key", &too_long).unwrap_err(),
            db.delete(vec![0; KEY_BYTES_MAX + 1]).unwrap_err(),
            batch.put("key", &too_long).unwrap_err(),
            batch.delete(vec![0; KEY_BYTES_MAX + 1]).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        assert!(batch.is_empty() && disk.op_count() == ops);
        drop(too_long);
        for round in 0..3 {
            assert!(db.get(&longest).unwrap().as_deref() == Some(&long[..]), "round {round}");
            assert!(db.get("").unwrap().as_deref() == Some(&long[..]), "round {round}");
            assert_eq!(db.get(vec![0; KEY_BYTES_MAX + 1]).unwrap(), None, "no such key can be there");
            match round {
                0 => db.flush().unwrap(),
                _ => db.compact_range(&db.default_column_family(), None, None).unwrap(),
            }
        }
        db.close().unwrap();
    }
}

#[test]
fn a_cask_takes_its_longest_key_and_refuses_more() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", cask_options(), disk.env()).unwrap();
    let longest = noise(usize::from(u16::MAX));
    cask.put(&longest, "value").unwrap();
    cask.put("", "empty").unwrap();
    let (long_key, too_long, ops) = (vec![0; 1 << 16], vec![0; 1 << 32], disk.op_count());
    let (plain, mut batch) = (CaskWriteOptions::default(), CaskBatch::new());
    for error in [
        cask.put(&long_key, "").unwrap_err(),
        cask.put("key", &too_long).unwrap_err(),
        cask.put_if_absent(&long_key, "", &plain).unwrap_err(),
        cask.compare_and_set("key", None, Some(&too_long), &plain).unwrap_err(),
        batch.put(&long_key, "").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert!(disk.op_count() == ops && cask.len() == 2);
    assert_eq!(cask.get(&long_key).unwrap().as_deref(), None);
    cask.compact().unwrap();
    cask.close().unwrap();
    let cask = Cask::open_with_env("/store", cask_options(), disk.env()).unwrap();
    assert_eq!(cask.get(&longest).unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(cask.get("").unwrap().as_deref(), Some(&b"empty"[..]));
}

#[test]
fn a_raft_log_takes_the_highest_index_and_refuses_more() {
    let disk = SimDisk::new();
    let log = RaftLog::open_with_env("/log", raft_options(), disk.env()).unwrap();
    let mut batch = LogBatch::new();
    let (last, too_long) = (u64::MAX - 1, vec![0; 1 << 31]);
    batch.add_entries(1, last, [b"last"]).unwrap();
    for error in [
        batch.add_entries(1, u64::MAX, [b"behind all"]).unwrap_err(),
        batch.add_entries(2, 1, [&too_long]).unwrap_err(),
        batch.put(2, b"key", &too_long).unwrap_err(),
        batch.put(2, b"__\x01", b"reserved").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    log.write(&mut batch, true).unwrap();
    for round in 0..2 {
        let log = RaftLog::open_with_env("/log", raft_options(), disk.after_process_death().env()).unwrap();
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(last), Some(last)), "round {round}");
        assert_eq!(log.entries(1, last, u64::MAX, None).unwrap(), [b"last"]);
        assert!(log.groups() == [1]);
        log.compact_to(1, u64::MAX).unwrap();
        assert_eq!(log.first_index(1), None);
    }
}

/// What each engine is opened with, and what is said of its directory.
type Engine = (&'static str, fn(&Path) -> esker::Result<()>, fn(&Path) -> esker::Result<()>);

/// Opening with a write and a close; opening, reading what was written.
const ENGINES: [Engine; 3] = [
    (
        "db",
        |path| {
            let db = Db::open(path, db_options(Separation::AtWrite))?;
            db.put("key", noise(3000))?;
            db.flush()?;
            db.close()
        },
        |path| {
            let db = Db::open_read_only(path, db_options(Separation::AtWrite))?;
            assert!(db.get("key")?.as_deref() == Some(&noise(3000)[..]));
            db.close()
        },
    ),
    (
        "cask",
        |path| {
            let cask = Cask::open(path, cask_options())?;
            cask.put("key", noise(3000))?;
            cask.close()
        },
        |path| {
            let cask = Cask::open_read_only(path, cask_options())?;
            assert!(cask.get("key")?.as_deref() == Some(&noise(3000)[..]));
            cask.close()
        },
    ),
    (
        "raft log",
        |path| {
            let log = RaftLog::open(path, raft_options())?;
            let mut batch = LogBatch::new();
            batch.put(1, b"key", &noise(3000))?;
            log.write(&mut batch, true)?;
            log.close()
        },
        |path| {
            let check = RaftLog::check(path, &raft_options(), &mut |_, _| {})?;
            assert!(check.is_sound());
            let log = RaftLog::open(path, raft_options())?;
            assert!(log.get(1, b"key").as_deref() == Some(&noise(3000)[..]));
            log.close()
        },
    ),
];

/// A directory of its own that goes with the test.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("esker-edges-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Goal: a path is a path, whatever characters it has, however it is written and through whichever links it leads.
#[test]
fn any_path_will_do() {
    let room = Room::new("paths");
    let deep: PathBuf = std::iter::repeat_n("d".repeat(200), 12).collect();
    let odd = [
        PathBuf::from("a b"),
        PathBuf::from("new\nline\ttab"),
        PathBuf::from("Öl ❄ 砂丘"),
        PathBuf::from("-rf"),
        PathBuf::from("quote'\"\\"),
        PathBuf::from("*?[a]"),
        PathBuf::from("x".repeat(255)),
        PathBuf::from(OsStr::from_bytes(b"not \xff utf-8 \xc0")),
        PathBuf::from("trailing/"),
        PathBuf::from("a/../b"),
        PathBuf::from("./here/."),
        PathBuf::from("000007.log"),
        PathBuf::from("deep").join(deep),
    ];
    std::fs::create_dir_all(room.0.join("a")).unwrap();
    for (name, write, read) in ENGINES {
        for path in &odd {
            let parent = room.0.join(name);
            std::fs::create_dir_all(parent.join("a")).unwrap();
            let path = parent.join(path);
            for round in 0..2 {
                write(&path).unwrap_or_else(|error| panic!("{name}, round {round}: {path:?}: {error}"));
                read(&path).unwrap_or_else(|error| panic!("{name}, round {round}: {path:?}: {error}"));
            }
        }
        let (target, link) = (room.0.join(name).join("target"), room.0.join(name).join("link"));
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link).unwrap();
        read(&target).unwrap();
        std::fs::rename(&target, room.0.join(name).join("moved")).unwrap();
        read(&room.0.join(name).join("moved")).unwrap();
        assert!(read(&link).is_err(), "a link to nowhere");
    }
}

/// Goal: what is no directory, or cannot be one, is a typed error that names it; nothing is made on the way.
#[test]
fn what_is_no_directory_is_refused_by_name() {
    let room = Room::new("no-directory");
    let file = room.0.join("file");
    std::fs::write(&file, "mine").unwrap();
    let too_long = room.0.join("x".repeat(256));
    for (name, write, read) in ENGINES {
        assert_eq!(write(&file).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
        for path in [&file, &file.join("below"), &too_long, &PathBuf::from("/proc/esker")] {
            for attempt in [write, read] {
                let error = attempt(path).unwrap_err();
                let (kind, words) = (error.kind(), error.to_string());
                assert!(
                    matches!(kind, ErrorKind::Io | ErrorKind::InvalidArgument | ErrorKind::NotFound),
                    "{name}: {path:?}: {kind:?}: {words}"
                );
                assert!(error.path().is_some(), "{name}: {path:?}: {words}");
            }
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&room.0).unwrap().count(), 1, "{name} left something");
    }
}

const CHILD: &str = "ESKER_TEST_EDGES_CHILD";

/// Does nothing unless it is the other process: tries to open each store of the room.
#[test]
fn the_other_process() {
    let Some(room) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    for (name, write, _) in ENGINES {
        let said = match write(&room.join(name)) {
            Ok(()) => "free".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        };
        println!("{name}: {said}.");
    }
    for (name, opened) in [
        ("db", Db::open_read_only(room.join("db"), db_options(Separation::AtWrite)).map(drop)),
        ("cask", Cask::open_read_only(room.join("cask"), cask_options()).map(drop)),
    ] {
        println!("{name}, to read: {opened:?}.");
    }
}

/// Goal: a store has one writer, in this process and in others, under any of its names; readers may come beside it; and once it is
/// closed the next may open it.
#[test]
fn a_directory_is_open_for_writing_once() {
    let room = Room::new("double");
    let paths = ENGINES.map(|(name, write, _)| {
        let path = room.0.join(name);
        write(&path).unwrap();
        path
    });
    let elsewhere = || {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "edges::the_other_process", "--nocapture"])
            .env(CHILD, &room.0)
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        let said = String::from_utf8(child.stdout).unwrap();
        said.lines().filter(|line| line.ends_with('.')).map(|line| format!("{line}\n")).collect::<String>()
    };
    let db = Db::open(&paths[0], db_options(Separation::AtWrite)).unwrap();
    let cask = Cask::open(&paths[1], cask_options()).unwrap();
    let log = RaftLog::open(&paths[2], raft_options()).unwrap();
    for ((name, write, _), path) in ENGINES.iter().zip(&paths) {
        let alias = room.0.join(format!("{name} alias"));
        std::os::unix::fs::symlink(path, &alias).unwrap();
        for path in [path, &alias] {
            let error = write(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "{name}: {error}");
        }
    }
    let said = elsewhere();
    for (name, ..) in ENGINES {
        assert!(said.contains(&format!("{name}: Busy.")), "{said}");
    }
    assert!(said.contains("db, to read: Ok(()).") && said.contains("cask, to read: Ok(())."), "{said}");
    // What was refused has not given up the lock of who has it.
    assert_eq!(elsewhere(), said);
    db.put("key", "still mine").unwrap();
    db.close().unwrap();
    cask.close().unwrap();
    log.close().unwrap();
    drop(log);
    let said = elsewhere();
    for (name, ..) in ENGINES {
        assert!(said.contains(&format!("{name}: free.")), "{said}");
    }
}

/// The room in which a process of `a_store_stays_where_it_is…` goes about.
const WANDERER: &str = "ESKER_TEST_EDGES_WANDERER";

/// Part of the test below, in a process of its own.
#[test]
fn the_process_that_goes_elsewhere() {
    let Some(room) = std::env::var_os(WANDERER).map(PathBuf::from) else { return };
    std::env::set_current_dir(&room).unwrap();
    let db = Db::open("db", db_options(Separation::AtFlush)).unwrap();
    let cask = Cask::open("cask", cask_options()).unwrap();
    let log = RaftLog::open("log", raft_options()).unwrap();
    let reader = Db::open_read_only("db", db_options(Separation::AtFlush)).unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    let mut batch = LogBatch::new();
    for n in 0..40u8 {
        db.put([n], noise(3000)).unwrap();
        cask.put([n], noise(3000)).unwrap();
        batch.add_entries(1, 1 + u64::from(n), [noise(3000)]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    db.flush().unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    cask.compact().unwrap();
    assert!(reader.check(&mut |_| {}).unwrap().errors.is_empty());
    assert_eq!(db.path(), room.join("db"));
    db.close().unwrap();
    cask.close().unwrap();
    log.close().unwrap();
    assert_eq!(std::fs::read_dir(".").unwrap().count(), 0, "nothing lies where the process went");
    let db = Db::open_read_only(room.join("db"), db_options(Separation::AtFlush)).unwrap();
    assert_eq!(db.iter().unwrap().entries().count(), 40);
}

/// Goal: a store that was opened by a relative path stays where it is, wherever its process goes.
#[test]
fn a_store_stays_where_it_is_wherever_its_process_goes() {
    let room = Room::new("wanderer");
    std::fs::create_dir(room.0.join("elsewhere")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "edges::the_process_that_goes_elsewhere", "--nocapture"])
        .env(WANDERER, &room.0)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    assert!(room.0.join("db/CURRENT").is_file());
}

/// Goal: a directory `blob_dir` that may not be read keeps no store from being opened.
#[test]
fn a_store_is_opened_beside_a_directory_that_may_not_be_read() {
    let disk = SimDisk::new();
    disk.env().files.create_dir_all("/db".as_ref()).unwrap();
    drop(Db::open_with_env("/db", db_options(Separation::AtFlush), disk.env()).unwrap());
    disk.env().files.create_dir_all("/db/blob_dir".as_ref()).unwrap();
    let refuse = |call: Call<'_>| match call {
        Call::List(path) if path.ends_with("blob_dir") => {
            Err(EnvError::new("listing", path, io::ErrorKind::PermissionDenied.into()))
        }
        _ => Ok(()),
    };
    let env = Env { files: Arc::new(Hooked::new(disk.env().files, refuse)), ..disk.env() };
    drop(Db::open_with_env("/db", db_options(Separation::AtFlush), env).unwrap());
}

/// Goal: a store can be made in an empty directory that is there, though the one above may be entered and not read.
#[test]
fn a_store_is_made_below_a_directory_that_may_not_be_read() {
    let above = Path::new("/above");
    let refuse = move |call: Call<'_>| match call {
        Call::List(path) | Call::Other(path) if path == above => {
            Err(EnvError::new("opening", path, io::ErrorKind::PermissionDenied.into()))
        }
        _ => Ok(()),
    };
    let disk = SimDisk::new();
    let env = Env { files: Arc::new(Hooked::new(disk.env().files, refuse)), ..disk.env() };
    for name in ["db", "cask", "log"] {
        disk.env().files.create_dir_all(&above.join(name)).unwrap();
    }
    drop(Db::open_with_env("/above/db", db_options(Separation::AtFlush), env.clone()).unwrap());
    drop(Cask::open_with_env("/above/cask", cask_options(), env.clone()).unwrap());
    drop(RaftLog::open_with_env("/above/log", raft_options(), env.clone()).unwrap());
    // A name that is new there would have to be made durable.
    let error = Db::open_with_env("/above/new", db_options(Separation::AtFlush), env).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

/// Goal: small files that have become endless, of holes, are damage, and take no memory.
#[test]
fn small_files_that_are_endless_are_damage() {
    let room = Room::new("endless");
    for ((name, write, _), small) in ENGINES.iter().zip([&["CURRENT", "OPTIONS-"][..], &["MANIFEST"], &["CLOSED"]]) {
        let path = room.0.join(name);
        write(&path).unwrap();
        for small in small {
            let names =
                std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let file = path.join(names.filter(|name| name.starts_with(small)).max().unwrap());
            let before = std::fs::read(&file).unwrap();
            std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
            match write(&path) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error}"),
                // It opens without knowing how it was closed.
                Ok(()) => assert_eq!(*small, "CLOSED"),
            }
            std::fs::write(&file, before).unwrap();
        }
    }
}

/// Goal: in a directory that may not be written, what only reads works, closed cleanly or not; what writes says so and what it is about;
/// nothing changes.
#[test]
fn a_directory_that_may_not_be_written_can_be_read() {
    for (closes, kind) in [
        (true, io::ErrorKind::PermissionDenied),
        (false, io::ErrorKind::PermissionDenied),
        (false, io::ErrorKind::ReadOnlyFilesystem),
    ] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/db", db_options(Separation::AtWrite), disk.env()).unwrap();
        let cask = Cask::open_with_env("/cask", cask_options(), disk.env()).unwrap();
        let log = RaftLog::open_with_env("/log", raft_options(), disk.env()).unwrap();
        for n in 0..40u8 {
            db.put([n], noise(2000 + usize::from(n))).unwrap();
            cask.put([n], noise(2000)).unwrap();
            let mut batch = LogBatch::new();
            batch.add_entries(1, 1 + u64::from(n), [[n; 100]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        if closes {
            db.close().unwrap();
            cask.close().unwrap();
            log.close().unwrap();
        }
        let disk = disk.after_process_death();
        // As on a file system that is mounted for reading only, or in a directory of somebody else's.
        let refuse = move |call: Call<'_>| match call {
            Call::Metadata(_) | Call::Open(_) | Call::Read(_) | Call::Map(_) | Call::List(_) | Call::Share(_) => Ok(()),
            _ => Err(EnvError::new("changing", call.path(), io::Error::from(kind))),
        };
        let env = Env { files: Arc::new(Hooked::new(disk.env().files, refuse)), ..disk.env() };
        let before: Vec<_> = disk.paths().into_iter().map(|path| (disk.file_bytes(&path), path)).collect();

        let db = Db::open_read_only_with_env("/db", db_options(Separation::AtWrite), env.clone()).unwrap();
        assert!((0..40u8).all(|n| db.get([n]).unwrap().unwrap() == noise(2000 + usize::from(n))[..]));
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
        assert_eq!(db.put("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
        db.close().unwrap();
        let cask = Cask::open_read_only_with_env("/cask", cask_options(), env.clone()).unwrap();
        assert!((0..40u8).all(|n| cask.get([n]).unwrap().unwrap() == noise(2000)[..]));
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        assert_eq!(cask.put("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
        cask.close().unwrap();
        assert!(RaftLog::check_with_env("/log", &raft_options(), &env, &mut |_, _| {}).unwrap().is_sound());

        for error in [
            Db::open_with_env("/db", db_options(Separation::AtWrite), env.clone()).map(drop).unwrap_err(),
            Db::open_with_env("/new", db_options(Separation::AtWrite), env.clone()).map(drop).unwrap_err(),
            Cask::open_with_env("/cask", cask_options(), env.clone()).map(drop).unwrap_err(),
            Cask::open_with_env("/new", cask_options(), env.clone()).map(drop).unwrap_err(),
            Cask::repair_with_env("/cask", &env).map(drop).unwrap_err(),
            RaftLog::open_with_env("/log", raft_options(), env.clone()).map(drop).unwrap_err(),
            RaftLog::open_with_env("/new", raft_options(), env.clone()).map(drop).unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::ReadOnly), "{:?}: {error}", error.kind());
            assert!(error.path().is_some(), "{error}");
        }
        let after: Vec<_> = disk.paths().into_iter().map(|path| (disk.file_bytes(&path), path)).collect();
        assert!(before == after, "something changed");
    }
}

/// A wall clock that shows what it is told, and a steady one that goes on.
#[derive(Debug)]
struct Jumping {
    shows: AtomicU64,
    steady: AtomicU64,
}

impl Clock for Jumping {
    fn unix_seconds(&self) -> u64 {
        self.shows.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.steady.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) {
        self.steady.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Goal: whatever the clock shows, at whatever moment it jumps, nothing panics and nothing is lost that did not expire by it.
#[test]
fn clocks_that_jump_take_nothing_with_them() {
    let clock = Arc::new(Jumping { shows: AtomicU64::new(1_700_000_000), steady: AtomicU64::new(0) });
    let disk = SimDisk::new();
    let env = Env { clock: clock.clone(), ..disk.env() };
    let moments = [1_700_000_000, 0, u64::MAX, 1, u64::from(u32::MAX) + 7, i64::MAX as u64, 1_700_000_010];
    let brief = CaskWriteOptions { ttl: Some(Duration::from_secs(60)), ..CaskWriteOptions::default() };
    for round in 0..moments.len() as u64 {
        let db = Db::open_with_env("/db", db_options(Separation::AtFlush), env.clone()).unwrap();
        let cask = Cask::open_with_env("/cask", cask_options(), env.clone()).unwrap();
        let log = RaftLog::open_with_env("/log", raft_options(), env.clone()).unwrap();
        for (step, now) in moments.into_iter().enumerate() {
            clock.shows.store(now, Ordering::Relaxed);
            let key = [round as u8, step as u8];
            db.put(key, noise(3000)).unwrap();
            db.flush().unwrap();
            cask.put(key, noise(3000)).unwrap();
            cask.put_with("brief", key, &brief).unwrap();
            // By the clock that it was put by, it has not expired.
            assert!(now == u64::MAX || cask.get("brief").unwrap().as_deref() == Some(&key[..]), "at {now}");
            cask.compact().unwrap();
            let mut batch = LogBatch::new();
            batch.put(1, &key, &noise(300)).unwrap();
            log.write(&mut batch, true).unwrap();
            log.purge().unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        for (round, step) in (0..=round).flat_map(|round| (0..moments.len()).map(move |step| (round, step))) {
            let key = [round as u8, step as u8];
            assert!(db.get(key).unwrap().is_some() && cask.get(key).unwrap().is_some() && log.get(1, &key).is_some());
        }
        clock.shows.store(moments[round as usize], Ordering::Relaxed);
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        db.close().unwrap();
        cask.close().unwrap();
        log.close().unwrap();
    }
}

/// Goal: the root of a file system, which is never empty, takes a store or a copy of one as any empty directory does, and keeps what is its own.
#[test]
fn the_root_of_a_file_system_takes_a_store() {
    let disk = SimDisk::new();
    let root = |name: &str| {
        let root = Path::new("/mnt").join(name);
        disk.env().files.create_dir_all(&root.join("lost+found")).unwrap();
        root
    };
    let db = Db::open_with_env(root("db"), db_options(Separation::AtFlush), disk.env()).unwrap();
    db.put("key", "value").unwrap();
    db.checkpoint(root("checkpoint")).unwrap();
    db.backup(root("backup"), &mut |_| {}).unwrap();
    db.backup(root("backup"), &mut |_| {}).unwrap();
    let cask = Cask::open_with_env(root("cask"), cask_options(), disk.env()).unwrap();
    cask.put("key", "value").unwrap();
    cask.checkpoint(root("checkpoint of a cask")).unwrap();
    cask.backup(root("backup of a cask"), &mut |_| {}).unwrap();
    let log = RaftLog::open_with_env(root("log"), raft_options(), disk.env()).unwrap();
    log.fork(root("fork")).unwrap();
    for name in ["checkpoint", "backup"] {
        let copy = Db::open_with_env(Path::new("/mnt").join(name), Options::default(), disk.env()).unwrap();
        assert_eq!(copy.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
    for entry in disk.env().files.list(Path::new("/mnt")).unwrap() {
        let is_there = disk.env().files.list(&Path::new("/mnt").join(&entry.name).join("lost+found"));
        assert!(is_there.is_ok(), "{}", entry.name);
    }
}
