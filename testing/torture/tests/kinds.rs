//! Each kind of store refuses a directory of the other, whatever the options say, and leaves it as it was.

use esker::env::sim::SimDisk;
use esker::{Cask, CaskOptions, Db, ErrorKind, Options};

fn cask_options(create_if_missing: bool) -> CaskOptions {
    CaskOptions { create_if_missing, background_jobs: 0, ..CaskOptions::default() }
}

fn db_options(create_if_missing: bool) -> Options {
    Options { create_if_missing, background_jobs: 0, ..Options::default() }
}

#[test]
fn the_ordered_engine_makes_no_store_of_a_cask() {
    let disk = SimDisk::new();
    let cask = Cask::open_with_env("/store", cask_options(true), disk.env()).unwrap();
    let open_is_refused = |disk: &SimDisk| {
        for create_if_missing in [true, false] {
            let before = disk.op_count();
            let error = Db::open_with_env("/store", db_options(create_if_missing), disk.env()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::NotFound), "{error}");
            assert_eq!(disk.op_count(), before, "it has written: {error}");
        }
    };
    // Empty, with an open file, and with a sealed one.
    open_is_refused(&disk);
    cask.put("key", "value").unwrap();
    open_is_refused(&disk);
    cask.compact().unwrap();
    cask.close().unwrap();
    open_is_refused(&disk);
    let cask = Cask::open_with_env("/store", cask_options(false), disk.env()).unwrap();
    assert_eq!(cask.get("key").unwrap().unwrap(), b"value");
}

#[test]
fn a_cask_makes_no_store_of_the_ordered_engines() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", db_options(true), disk.env()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    assert!(!Cask::is_store_with_env("/store", &disk.env()).unwrap());
    for create_if_missing in [true, false] {
        let before = disk.op_count();
        let error = Cask::open_with_env("/store", cask_options(create_if_missing), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let error = Cask::open_read_only_with_env("/store", cask_options(false), disk.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(disk.op_count(), before, "it has written: {error}");
    }
    let db = Db::open_with_env("/store", db_options(false), disk.env()).unwrap();
    assert_eq!(&*db.get("key").unwrap().unwrap(), b"value");
}
