//! Repairs of a Cask: what they may not lose, nor bring back.

use esker::env::sim::SimDisk;
use esker::{Cask, CaskOptions};
use esker_torture::hooked::Meanwhile;

fn options() -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        background_jobs: 0,
        open_threads: 0,
        stripes: 1,
        file_bytes: 4 << 10,
        merge_garbage_ratio: 1.0,
        ..CaskOptions::default()
    }
}

fn open(disk: &SimDisk) -> Cask {
    Cask::open_with_env("/store", options(), disk.env()).unwrap()
}

/// Goal: a repair takes in what the owner of the store wrote until it gave up the lock, however late.
/// Method: it goes on to other files and closes just before the repair takes the lock.
#[test]
fn a_repair_knows_what_was_written_until_it_had_the_lock() {
    let disk = SimDisk::new();
    let cask = open(&disk);
    cask.put([0], [0; 300]).unwrap();
    let meanwhile = Meanwhile::default();
    meanwhile.before(
        move |call| call.path().ends_with("LOCK"),
        move || {
            for n in 1..60u8 {
                cask.put([n], [n; 300]).unwrap();
            }
            assert!(cask.stats().files > 3, "{:?}", cask.stats());
            cask.close().unwrap();
        },
    );
    let report = Cask::repair_with_env("/store", &meanwhile.env(&disk)).unwrap();
    assert!(meanwhile.is_done());
    assert_eq!((report.records, report.missing.len()), (60, 0), "{report:?}");
    let cask = open(&disk);
    for n in 0..60u8 {
        assert!(cask.get([n]).unwrap().is_some_and(|value| *value == [n; 300]), "{n}");
    }
}
