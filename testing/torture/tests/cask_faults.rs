//! A call of the disk fails: a Cask says so, loses nothing, and goes on where it can.

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Cask, CaskOptions, ErrorKind};
use esker_torture::cask::{Past, Step, contents, options, run_on, steps};
use esker_torture::seeds;
use fastrand::Rng;

fn scene(seed: u64, count: usize) -> (CaskOptions, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let options = options(&mut random);
    let steps = steps(&mut random, count);
    (options, steps)
}

fn open(disk: &SimDisk, options: &CaskOptions) -> esker::Result<Cask> {
    Cask::open_with_env("/store", options.clone(), disk.env())
}

/// Goal: after any single failed call, answers stay right; a failure that says that nothing was written is true; and what
/// was acknowledged survives the crash that follows.
#[test]
fn every_call_may_fail_once() {
    for seed in seeds(3) {
        let (options, steps) = scene(300 + seed, 40);
        let healthy = SimDisk::new();
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&cask, &steps, &mut Past::default());
        let ops = healthy.op_count();
        drop(cask);
        for n in first..ops {
            for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite { kept_bytes: 5 }] {
                one_fault(seed, &options, &steps, n, fault);
            }
        }
    }
}

fn one_fault(seed: u64, options: &CaskOptions, steps: &[Step], n: u64, fault: Fault) {
    let what = format!("ESKER_SEED={seed}, operation {n} fails with {fault:?}");
    let disk = SimDisk::new();
    let cask = open(&disk, options).unwrap();
    disk.fail_at(n, fault);
    let mut past = Past::default();
    run_on(&cask, steps, &mut past);
    let found = contents(&cask).unwrap_or_else(|error| panic!("{what}: reading goes on: {error}"));
    past.verify(&found, &past.acknowledged).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
        let image = disk.after_power_loss(survivors);
        let cask =
            open(&image, options).unwrap_or_else(|error| panic!("{what}, then power loss {survivors:?}: {error}"));
        let found = contents(&cask).unwrap();
        past.verify(&found, &past.durable)
            .unwrap_or_else(|wrong| panic!("{what}, then power loss {survivors:?}: {wrong}"));
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    }
    drop(cask);
    let cask = open(&disk, options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
    let found = contents(&cask).unwrap();
    past.verify(&found, &past.acknowledged).unwrap_or_else(|wrong| panic!("{what}, then reopened: {wrong}"));
}

/// Goal: a read that fails is an error of that call, and no wrong answer: not of a get, a scan, a merge or an open.
#[test]
fn every_read_may_fail_once() {
    for seed in seeds(3) {
        let (options, steps) = scene(350 + seed, 40);
        let healthy = SimDisk::new();
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.read_count();
        run_on(&cask, &steps, &mut Past::default());
        let reads = healthy.read_count();
        drop(cask);
        for n in (first..reads).step_by(3) {
            let what = format!("ESKER_SEED={seed}, read {n} fails");
            let disk = SimDisk::new();
            let cask = open(&disk, &options).unwrap();
            disk.fail_read_at(n, ReadFault::Eio);
            let mut past = Past::default();
            run_on(&cask, &steps, &mut past);
            let found = contents(&cask).unwrap_or_else(|error| panic!("{what}: {error}"));
            past.verify(&found, &past.acknowledged).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        }
    }
}

/// Goal: work that failed leaves no files behind once it was done again, and takes none that are still needed.
#[test]
fn failed_work_leaves_no_files_behind() {
    let (options, steps) = scene(500, 80);
    let options = CaskOptions { keep_versions: 1, ..options };
    let scene = || {
        let disk = SimDisk::new();
        let cask = open(&disk, &options).unwrap();
        let mut past = Past::default();
        assert_eq!(run_on(&cask, &steps, &mut past), 0);
        (disk, cask, past)
    };
    let (healthy, cask, _) = scene();
    let first = healthy.op_count();
    cask.compact().unwrap();
    for n in first..healthy.op_count() {
        let (disk, cask, past) = scene();
        disk.fail_at(n, Fault::Eio);
        if cask.compact().is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
            // What is durable is unknown: only an open may judge what is needed.
            drop(cask);
            let cask = open(&disk, &options).unwrap_or_else(|error| panic!("operation {n}: {error}"));
            assert!(contents(&cask).unwrap() == past.now(), "operation {n}: reopened");
            continue;
        }
        cask.compact().unwrap_or_else(|error| panic!("operation {n}: again: {error}"));
        assert!(contents(&cask).unwrap() == past.now(), "operation {n}");
        let on_disk =
            |kind: &str| disk.paths().iter().filter(|path| path.extension().is_some_and(|e| e == kind)).count();
        let stats = cask.stats();
        assert_eq!(on_disk("data") as u64, stats.files, "operation {n}: data files on the disk and in the store");
        assert_eq!(on_disk("hint") as u64, stats.sealed_files, "operation {n}: hints on the disk and sealed files");
    }
}

/// Bytes that no compression makes shorter.
fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Rng::with_seed(1).fill(&mut noise);
    noise
}

/// Goal: a full disk refuses writes with `Exhausted`, and nothing else: reads go on, deletes and merges where there is room,
/// and all of it once there is.
#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    for seed in seeds(20) {
        let (options, steps) = scene(400 + seed, 150);
        let disk = SimDisk::new();
        let cask = open(&disk, &options).unwrap();
        disk.set_capacity(Some(40_000 + seed * 3_000));
        let mut past = Past::default();
        run_on(&cask, &steps, &mut past);
        assert!(contents(&cask).unwrap() == past.now(), "seed {seed}: what was refused is not there");
        let error = cask.put("big", noise(1 << 20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        disk.set_capacity(None);
        cask.put("key", "value").unwrap();
        cask.compact().unwrap();
        assert_eq!(cask.get("key").unwrap().unwrap(), b"value");
        assert!(cask.stats().background_error.is_none());
        cask.close().unwrap();
    }
}

/// Goal: a failed sync is never taken for durable, nor repeated: the store takes no writes until it is reopened.
#[test]
fn a_failed_sync_makes_the_store_read_only() {
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 1, ..CaskOptions::default() };
    let disk = SimDisk::new();
    let cask = open(&disk, &options).unwrap();
    cask.put("before", "x").unwrap();
    cask.sync().unwrap();
    cask.put("unsynced", "x").unwrap();
    disk.fail_at(disk.op_count(), Fault::Eio);
    assert_eq!(cask.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(cask.put("after", "x").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(cask.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(cask.compact().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(cask.get("before").unwrap().is_some());
    assert!(cask.stats().background_error.is_some());
    assert!(cask.close().is_err(), "who closes is told");
    let cask = open(&disk.after_power_loss(Survivors::Everything), &options).unwrap();
    assert!(cask.get("before").unwrap().is_some());
    assert!(cask.get("unsynced").unwrap().is_none());
    cask.put("after", "x").unwrap();
}
