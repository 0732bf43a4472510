//! Logs in a directory of their own: where they are, who is told when they are not, and what else goes by them.

use std::path::{Path, PathBuf};

use esker::env::sim::{SimDisk, Survivors};
use esker::{Db, ErrorKind, FamilyOptions, Options, Separation, WriteOptions};

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
