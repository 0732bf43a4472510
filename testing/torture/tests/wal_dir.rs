//! Logs in a directory of their own: where they are, who is told when they are not, and what else goes by them.

use std::path::{Path, PathBuf};

use esker::env::sim::{SimDisk, Survivors};
use esker::{Backups, Db, ErrorKind, FamilyOptions, Options, Separation, WriteOptions};
use esker_torture::numbered::{key, noise};

const SYNCED: WriteOptions = WriteOptions { sync: true, disable_wal: false };

fn options(wal_dir: Option<&str>) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        separation: Separation::AtWrite,
        min_blob_size: 500,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        wal_dir: wal_dir.map(PathBuf::from),
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, wal_dir: Option<&str>) -> esker::Result<Db> {
    Db::open_with_env("/store", options(wal_dir), disk.env())
}

fn logs(disk: &SimDisk, dir: &str) -> usize {
    let is_log =
        |path: &PathBuf| path.parent() == Some(Path::new(dir)) && path.extension().is_some_and(|it| it == "log");
    disk.paths().iter().filter(|path| is_log(path)).count()
}

/// Some values of each kind, from `from` on.
fn write(db: &Db, from: u32) {
    let family = db.default_column_family();
    for n in from..from + 30 {
        db.put_cf(&family, n.to_be_bytes(), vec![n as u8; n as usize * 40], &SYNCED).unwrap();
    }
}

fn assert_has(db: &Db, up_to: u32) {
    for n in 0..up_to {
        let value = db.get(n.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&vec![n as u8; n as usize * 40][..]), "{n}");
    }
    assert!(db.get(up_to.to_be_bytes()).unwrap().is_none());
}

/// Goal: logs are where they are wanted, from one open to the next, and those from before are found in the store's directory.
#[test]
fn logs_are_where_they_are_wanted() {
    let disk = SimDisk::new();
    let db = open(&disk, None).unwrap();
    write(&db, 0);
    db.close().unwrap();
    assert!(logs(&disk, "/store") > 0);
    // The directory is made, and what was in the store's is replayed.
    let db = open(&disk, Some("/logs")).unwrap();
    assert_has(&db, 30);
    write(&db, 30);
    db.close().unwrap();
    assert!(logs(&disk, "/logs") > 0 && logs(&disk, "/store") == 0, "{:?}", disk.paths());
    for _ in 0..3 {
        let db = open(&disk, Some("/logs")).unwrap();
        assert_has(&db, 60);
        let reader = Db::open_read_only_with_env("/store", options(Some("/logs")), disk.env()).unwrap();
        assert_has(&reader, 60);
        assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
        assert!(db.stats().on_disk.wal_bytes > 0);
        db.close().unwrap();
    }
    // Power loss takes no synced value, wherever it was.
    let db = open(&disk, Some("/logs")).unwrap();
    write(&db, 60);
    let after = disk.after_power_loss(Survivors::Nothing);
    assert_has(&open(&after, Some("/logs")).unwrap(), 90);
    db.close().unwrap();
    // What is flushed needs no log, so they may lie elsewhere from then on.
    let db = open(&disk, Some("/logs")).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&disk, Some("/other")).unwrap();
    assert_has(&db, 90);
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&disk, None).unwrap();
    assert_has(&db, 90);
    db.close().unwrap();
}

/// Goal: a store is not opened without its logs, by whoever does not say where they are, or says something else; nor where they are gone. Nothing is changed.
#[test]
fn a_store_is_not_opened_without_its_logs() {
    let disk = SimDisk::new();
    assert_eq!(open(&disk, Some("")).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let db = open(&disk, Some("/logs")).unwrap();
    write(&db, 0);
    // Who has them has them alone.
    let beside = Db::open_with_env("/another", options(Some("/logs")), disk.env()).unwrap_err();
    assert_eq!((beside.kind(), beside.path()), (ErrorKind::Busy, Some(Path::new("/logs"))), "{beside}");
    db.close().unwrap();
    for wal_dir in [None, Some("/store"), Some("/elsewhere")] {
        let before = disk.paths();
        for error in [
            open(&disk, wal_dir).unwrap_err(),
            Db::open_read_only_with_env("/store", options(wal_dir.filter(|dir| *dir == "/store")), disk.env())
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("/logs") && error.to_string().contains("wal_dir"), "{error}");
        }
        let made = |path: &&PathBuf| !before.contains(path) && !path.starts_with("/elsewhere");
        assert_eq!(disk.paths().iter().find(made), None);
    }
    for path in disk.paths().iter().filter(|path| path.starts_with("/logs/")) {
        disk.env().files.remove(path).unwrap();
    }
    for is_there in [true, false] {
        if !is_there {
            disk.env().files.remove_dir(Path::new("/logs")).unwrap();
        }
        let read_only = Db::open_read_only_with_env("/store", options(Some("/logs")), disk.env());
        for gone in [open(&disk, Some("/logs")).unwrap_err(), read_only.unwrap_err()] {
            assert_eq!((gone.kind(), gone.path()), (ErrorKind::NotFound, Some(Path::new("/logs"))), "{gone}");
            assert!(gone.to_string().contains("mounted"), "{gone}");
        }
        // Nor is it opened by who forgets them just then.
        for wal_dir in [None, Some("/elsewhere")] {
            assert_eq!(open(&disk, wal_dir).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
    // Something is there, and no log: what a closed store says of its logs tells that they are missing.
    disk.env().files.create_dir_all(Path::new("/logs")).unwrap();
    disk.env().files.create(Path::new("/logs/LOCK")).unwrap();
    assert_eq!(open(&disk, Some("/logs")).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal: a copy has no logs, nor says where any are; a repair gets back what is in them, and leaves none.
#[test]
fn copies_and_repairs_know_where_logs_are() {
    let disk = SimDisk::new();
    let db = open(&disk, Some("/logs")).unwrap();
    write(&db, 0);
    db.checkpoint("/copy").unwrap();
    // A copy sends nobody there who opens it by its OPTIONS file, as RocksDB does.
    let names_them = |path: &Path| String::from_utf8_lossy(&disk.file_bytes(path).unwrap()).contains("/logs");
    let of = |start: &str| {
        disk.paths().into_iter().filter(|path| path.to_string_lossy().starts_with(start)).collect::<Vec<_>>()
    };
    assert!(of("/store/OPTIONS").iter().any(|path| names_them(path)));
    assert!(!of("/copy/OPTIONS").is_empty() && !of("/copy/OPTIONS").iter().any(|path| names_them(path)));
    let copy = Db::open_with_env("/copy", options(None), disk.env()).unwrap();
    assert_has(&copy, 30);
    copy.close().unwrap();
    write(&db, 30);
    db.close().unwrap();

    let manifest = disk.paths().into_iter().find(|path| path.to_string_lossy().starts_with("/store/MANIFEST"));
    let manifest = manifest.unwrap();
    disk.overwrite(&manifest, b"no manifest".repeat(9));
    let check = Db::check_store_with_env("/store", options(Some("/logs")), disk.env(), &mut |_| {}).unwrap();
    assert!(!check.errors.is_empty());
    let repair = Db::repair_with_env("/store", options(Some("/logs")), disk.env()).unwrap();
    assert!(repair.put_aside.iter().any(|aside| aside.path.extension().is_some_and(|it| it == "log")), "{repair:?}");
    assert_eq!((logs(&disk, "/logs"), logs(&disk, "/store")), (0, 0));
    let db = open(&disk, Some("/logs")).unwrap();
    assert_has(&db, 60);
    db.close().unwrap();
}

fn remove_store(disk: &SimDisk, dir: &str) {
    for path in disk.paths().iter().filter(|path| path.parent() == Some(Path::new(dir))) {
        disk.env().files.remove(path).unwrap();
    }
    disk.env().files.remove_dir(Path::new(dir)).unwrap();
}

/// Goal: no store takes for its own what another, or a life before, has left where its logs are to be, nor touches it.
#[test]
fn logs_of_others_are_not_taken() {
    let disk = SimDisk::new();
    let other = Db::open_with_env("/other", options(None), disk.env()).unwrap();
    other.close().unwrap();
    let db = open(&disk, Some("/logs")).unwrap();
    write(&db, 0);
    let set = Backups::open_with_env("/set", disk.env()).unwrap();
    set.create(&db, &mut |_| ()).unwrap();
    db.put("flushed", "x").unwrap();
    db.flush().unwrap();
    db.put("logged", "x").unwrap();
    let assert_refused = |done: esker::Result<()>| {
        let error = done.unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(Path::new("/logs"))), "{error}");
    };
    // Nor by a repair, while somebody writes them.
    let repaired = Db::repair_with_env("/other", options(Some("/logs")), disk.env()).unwrap_err();
    assert_eq!((repaired.kind(), repaired.path()), (ErrorKind::Busy, Some(Path::new("/logs"))), "{repaired}");
    db.close().unwrap();
    let there = logs(&disk, "/logs");
    assert_refused(Db::open_with_env("/other", options(Some("/logs")), disk.env()).map(drop));
    assert_refused(Db::open_read_only_with_env("/other", options(Some("/logs")), disk.env()).map(drop));
    assert_refused(Db::repair_with_env("/other", options(Some("/logs")), disk.env()).map(drop));
    assert_refused(Db::open_with_env("/new", options(Some("/logs")), disk.env()).map(drop));
    // What a backup has is older than they are: together it would be what never was.
    remove_store(&disk, "/store");
    set.restore(1, Path::new("/store"), &mut |_| ()).unwrap();
    assert_refused(open(&disk, Some("/logs")).map(drop));
    assert_eq!(logs(&disk, "/logs"), there);
    for path in disk.paths().iter().filter(|path| path.starts_with("/logs")) {
        disk.env().files.remove(path).unwrap();
    }
    let db = open(&disk, Some("/logs")).unwrap();
    assert_has(&db, 30);
    db.close().unwrap();
    Db::open_with_env("/other", options(None), disk.env()).unwrap().close().unwrap();
}

/// Goal: with the logs of before in the store's directory, where they stay when the disk is full (O4), and the next ones in another, nobody opens the
/// store without those.
#[test]
fn logs_in_both_directories_are_both_wanted() {
    let mut stayed = 0;
    for room in (8..200).step_by(8) {
        let disk = SimDisk::new();
        let db = open(&disk, None).unwrap();
        let family = db.default_column_family();
        for n in 0..100 {
            db.put_cf(&family, key(n), noise(n, 0, 4000), &SYNCED).unwrap();
        }
        drop(db);
        let disk = disk.after_power_loss(Survivors::Nothing);
        let space = disk.env().files.space(Path::new("/store")).unwrap();
        disk.set_capacity(Some(space.total - space.available + (room << 10)));
        let Ok(db) = open(&disk, Some("/logs")) else { continue };
        disk.set_capacity(None);
        if logs(&disk, "/store") == 0 {
            continue;
        }
        stayed += 1;
        db.put_cf(&db.default_column_family(), "new", "x", &SYNCED).unwrap();
        let after = disk.after_power_loss(Survivors::Nothing);
        for wal_dir in [None, Some("/elsewhere")] {
            assert!(
                Db::open_read_only_with_env("/store", options(wal_dir), after.env()).is_err(),
                "{room}, {wal_dir:?}"
            );
            let error = open(&after, wal_dir).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{room}, {wal_dir:?}: {error}");
        }
        let db = open(&after, Some("/logs")).unwrap();
        assert!(db.get("new").unwrap().is_some() && db.get(key(99)).unwrap().is_some());
    }
    assert!(stayed > 0);
}

/// Goal: recycled logs of which nothing is needed may lie anywhere, like others.
#[test]
fn recycled_logs_that_are_not_needed_may_lie_elsewhere() {
    for rounds in 0..6 {
        let disk = SimDisk::new();
        let open = |disk: &SimDisk, wal_dir| {
            Db::open_with_env("/store", Options { recycled_logs_max: 2, ..options(wal_dir) }, disk.env())
        };
        let db = open(&disk, Some("/logs")).unwrap();
        for _ in 0..rounds {
            write(&db, 0);
            db.flush().unwrap();
        }
        let assert_opens = || {
            for wal_dir in [Some("/other"), None] {
                let after = disk.after_power_loss(Survivors::Everything);
                assert_has(&open(&after, wal_dir).unwrap(), 30 * rounds.min(1));
            }
        };
        // A process that was killed leaves what its log held before.
        assert_opens();
        db.close().unwrap();
        assert_opens();
    }
}

/// Goal: the store's own directory is that by any name.
#[test]
fn the_stores_directory_may_be_named_in_other_words() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let db = Db::open(&store, options(None)).unwrap();
    write(&db, 0);
    drop(db);
    std::os::unix::fs::symlink(&store, dir.path().join("alias")).unwrap();
    for name in [store.join("../store"), dir.path().join("alias"), store.join(".")] {
        let options = Options { wal_dir: Some(name), ..options(None) };
        assert_has(&Db::open_read_only(&store, options.clone()).unwrap(), 30);
        assert_has(&Db::open(&store, options).unwrap(), 30);
    }
    assert_has(&Db::open(&store, options(None)).unwrap(), 30);
}

/// Goal: logs may lie in a directory within the store's, wherever power fails while it is made; or where a device was mounted before.
#[test]
fn logs_may_lie_within_the_store() {
    let open = |disk: &SimDisk| Db::open_with_env("/store", options(Some("/store/logs")), disk.env());
    for died in 0.. {
        let disk = SimDisk::new();
        disk.die_after(disk.op_count() + died);
        let is_made = open(&disk).is_ok();
        for survivors in [Survivors::Nothing, Survivors::Everything] {
            let after = disk.after_power_loss(survivors);
            let db = open(&after).unwrap_or_else(|error| panic!("{died}: {error}"));
            write(&db, 0);
            assert_has(&open(&after.after_power_loss(Survivors::Nothing)).unwrap(), 30);
        }
        if is_made {
            return;
        }
    }
}

/// Goal: no synced value is lost wherever power fails on the way from one directory of logs to the next.
#[test]
fn logs_move_from_one_directory_to_the_next_through_deaths() {
    for recycled_logs_max in [0, 2] {
        (0..).find(|died| is_over_before(*died, recycled_logs_max));
    }
}

/// What somebody finds whose disk dies after so many calls. Whether it was done by then.
fn is_over_before(died: u64, recycled_logs_max: usize) -> bool {
    let disk = SimDisk::new();
    let at = |wal_dir| Options { recycled_logs_max, ..options(wal_dir) };
    let mut synced = 0u32;
    let mut live = |wal_dir| -> esker::Result<()> {
        let db = Db::open_with_env("/store", at(wal_dir), disk.env())?;
        for n in 0..5 {
            db.put_cf(&db.default_column_family(), key(synced), noise(synced, 0, 300), &SYNCED)?;
            synced += 1;
            if n % 2 == 1 {
                db.flush()?;
            }
        }
        db.close()
    };
    disk.die_after(disk.op_count() + died);
    let done = [None, Some("/logs"), Some("/logs")].into_iter().try_for_each(&mut live);
    for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: died }] {
        let db = Db::open_with_env("/store", at(Some("/logs")), disk.after_power_loss(survivors).env());
        let db = db.unwrap_or_else(|error| panic!("{recycled_logs_max} {died}: {error}"));
        let is_there = |n: &u32| db.get(key(*n)).unwrap().is_some_and(|value| *value == noise(*n, 0, 300));
        assert_eq!((0..synced).find(|n| !is_there(n)), None, "{recycled_logs_max} {died}");
    }
    done.is_ok()
}
