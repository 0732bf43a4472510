//! Repairs of a Cask: what they may not lose, nor bring back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Cask, CaskOptions, CaskWriteOptions};
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

/// All that lives.
fn contents(cask: &Cask) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut scan, mut found) = (cask.scan().unwrap(), BTreeMap::new());
    while scan.advance().unwrap() {
        found.insert(scan.key().to_vec(), scan.value().unwrap().to_vec());
    }
    for (key, value) in &found {
        assert!(cask.get(key).unwrap().is_some_and(|got| *got == value[..]), "{key:?}");
    }
    found
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

/// Goal: what a repair keeps is durable when it ends, though who wrote it died before it had synced it, or was told that the sync failed.
/// Method: the owner dies after each of its operations, or is told so of each sync; with its manifest and without; the power goes right
/// after the repair.
#[test]
fn what_a_repair_of_a_cask_keeps_survives_a_power_loss() {
    let life = |disk: &SimDisk| {
        let Ok(cask) = Cask::open_with_env("/store", options(), disk.env()) else { return };
        for n in 0..40u8 {
            // Every third key has an older value that is durable. After a failure nothing is promised; what is there counts.
            let how = CaskWriteOptions { sync: n < 8, ..CaskWriteOptions::default() };
            let _ = cask.put_with([n % 16], vec![n; 320], &how);
            let _ = if n == 30 { cask.sync() } else { Ok(()) };
        }
        std::mem::forget(cask);
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy);
    let trace = healthy.trace();
    let is_sync = |n: u64| {
        let words: Vec<_> = trace[n as usize].split(' ').collect();
        words[0] == n.to_string() && words[1] == "sync" && words[2].contains(".data")
    };
    let (mut repaired, mut told) = (0, 0);
    for n in 0..healthy.op_count() {
        for (is_told, has_manifest) in [(false, false), (false, true), (true, false), (true, true)] {
            if is_told && !is_sync(n) {
                continue;
            }
            let what = format!("operation {n}, told: {is_told}, manifest: {has_manifest}");
            let disk = SimDisk::new();
            if is_told {
                disk.fail_at(n, Fault::Eio)
            } else {
                disk.die_after(n)
            }
            life(&disk);
            let disk = disk.after_process_death();
            if !has_manifest {
                let _ = disk.env().files.remove(Path::new("/store/MANIFEST"));
            }
            // Where it died before there was a record, there may be no store.
            let Ok(report) = Cask::repair_with_env("/store", &disk.env()) else {
                assert!(n < 20, "{what}");
                continue;
            };
            // A file that has no head yet may be put aside: nothing was in it.
            let is_begun = |path: &PathBuf| disk.file_bytes(path).unwrap().iter().all(|&byte| byte == 0);
            assert!(report.put_aside.iter().all(is_begun), "{what}: {report:?}");
            (repaired, told) = (repaired + 1, told + usize::from(is_told));
            let expected = contents(&open(&disk.after_process_death()));
            let sampled = (0..3).map(|seed| Survivors::Sample { seed });
            for survivors in sampled.chain([Survivors::Nothing]) {
                let left = Cask::open_with_env("/store", options(), disk.after_power_loss(survivors).env());
                let cask = left.unwrap_or_else(|error| panic!("{what}, {survivors:?}: {error}"));
                assert!(contents(&cask) == expected, "{what}, {survivors:?}");
                let check = cask.check(&mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{what}, {survivors:?}: {:?}", check.errors);
            }
        }
    }
    assert!(repaired > 100 && told > 10, "{repaired}, {told}");
}
