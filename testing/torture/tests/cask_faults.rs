//! A call of the disk fails: a Cask says so, loses nothing, and goes on where it can.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::env::Env;
use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Cask, CaskOptions, CaskWriteOptions, ErrorKind};
use esker_torture::cask::{Past, Step, contents, options, reads_without_lost_pages, run_on, steps, verified};
use esker_torture::crash::{
    FAULTS, Replay, Tally, disk, every_read_of_an_open_fails, faults, images, is_warned, kept_by_reopening, operations,
    power_losses,
};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::seeds;
use fastrand::Rng;

const FILE: &str = "cask_faults";

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
    let test = "every_call_may_fail_once";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let (options, steps) = scene(300 + seed, 40);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&cask, &steps, &mut Past::new(&healthy));
        let ops = healthy.op_count();
        drop(cask);
        for (n, fault) in faults(&healthy, first..ops) {
            let fault = of_any_length(fault, n);
            one_fault(Replay { file: FILE, test, seed }, &options, &steps, n, fault, &tally);
        }
    }
}

/// What an append gets in before it fails: a part of one record, or some of a batch and a part.
fn of_any_length(fault: Fault, n: u64) -> Fault {
    match fault {
        Fault::ShortWrite { kept_bytes } => Fault::ShortWrite { kept_bytes: kept_bytes + (n % 8) as usize * 90 },
        fault => fault,
    }
}

fn one_fault(replay: Replay, options: &CaskOptions, steps: &[Step], n: u64, fault: Fault, tally: &Tally) {
    let what = format!("{replay}: operation {n} fails with {fault:?}");
    tally.fault();
    let disk = disk(replay.seed);
    let cask = open(&disk, options).unwrap();
    disk.fail_at(n, fault);
    let mut past = Past::new(&disk);
    run_on(&cask, steps, &mut past);
    answers(&disk, &cask, &past).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    for image in images(&disk, n) {
        let what = format!("{what}, then {}", image.name);
        tally.image();
        let cask = open(&image.disk, options).unwrap_or_else(|error| panic!("{what}: {error}"));
        verified(&cask, &past, past.promised(image.promise)).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        assert!(cask.recovery().damage.is_empty(), "{what}: {:?}", cask.recovery());
        let check = cask.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    }
    drop(cask);
    let cask = open(&disk, options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
    let kept = past.promised(kept_by_reopening(&disk));
    verified(&cask, &past, kept).unwrap_or_else(|wrong| panic!("{what}, then reopened: {wrong}"));
}

/// Reading goes on, and every answer is right.
fn answers(disk: &SimDisk, cask: &Cask, past: &Past) -> Result<(), String> {
    if disk.has_evicted() {
        reads_without_lost_pages(cask, past)
    } else {
        verified(cask, past, &past.acknowledged).map(drop)
    }
}

/// Goal: a read that fails is an error of that call, and no wrong answer: not of a get, a scan, a merge or an open.
#[test]
fn every_read_may_fail_once() {
    for seed in seeds(3) {
        let (options, steps) = scene(350 + seed, 40);
        let healthy = disk(seed);
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.read_count();
        run_on(&cask, &steps, &mut Past::new(&healthy));
        let reads = healthy.read_count();
        drop(cask);
        for n in first..reads {
            let what = format!("ESKER_SEED={seed}, read {n} fails");
            let disk = disk(seed);
            let cask = open(&disk, &options).unwrap();
            disk.fail_read_at(n, ReadFault::Eio);
            let mut past = Past::new(&disk);
            run_on(&cask, &steps, &mut past);
            verified(&cask, &past, &past.acknowledged).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
        }
    }
}

/// Goal: whatever read of an open fails, that open takes nothing for missing or trustworthy that is not.
#[test]
fn every_read_of_an_open_may_fail() {
    let test = "every_read_of_an_open_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(900 + seed, 40);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&cask, &steps, &mut Past::new(&healthy));
        // The process dies in health, or once a sync has failed.
        let syncs = operations(&healthy, first, "sync");
        for failed in [None, syncs.get(syncs.len() / 2), syncs.last()] {
            let what = format!("{replay}: sync {failed:?} failed before");
            let disk = disk(seed);
            let cask = open(&disk, &options).unwrap();
            failed.into_iter().for_each(|&n| disk.fail_at(n, Fault::Eio));
            run_on(&cask, &steps, &mut Past::new(&disk));
            let image = disk.after_process_death();
            let synced = |cask: &Cask| cask.sync().and_then(|()| contents(cask));
            every_read_of_an_open_fails(&image, &what, &tally, |disk| open(disk, &options), synced);
        }
    }
}

/// Goal: what a failed sync dropped may be readable until the power goes, so the next process takes it for good: what that one
/// promises must not rest on it. A system says nothing of it a second time.
#[test]
fn a_failed_sync_costs_the_next_life_nothing() {
    let test = "a_failed_sync_costs_the_next_life_nothing";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(600 + seed, 60);
        let (first_life, second_life) = steps.split_at(40);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&cask, first_life, &mut Past::new(&healthy));
        drop(cask);
        for n in operations(&healthy, first, "sync") {
            let what = format!("{replay}: sync {n} fails");
            let disk = disk(seed);
            let cask = open(&disk, &options).unwrap();
            disk.fail_at(n, Fault::Eio);
            let mut past = Past::new(&disk);
            run_on(&cask, first_life, &mut past);
            drop(cask);
            tally.fault();
            let cask = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
            let mut past = past.of_next_life(&contents(&cask).unwrap());
            assert_eq!(run_on(&cask, second_life, &mut past), 0, "{what}: the next life is healthy");
            cask.sync().unwrap();
            past.all_durable();
            drop(cask);
            for image in power_losses(&disk, n) {
                let what = format!("{what}, reopened, written to, synced, then {}", image.name);
                tally.image();
                let cask = open(&image.disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                verified(&cask, &past, &past.durable).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
            }
        }
    }
}

/// Goal: a disk that refuses everything that changes it, for as long as it likes, makes no wrong answer, and loses nothing.
#[test]
fn a_disk_that_goes_on_failing_makes_no_wrong_answer() {
    let test = "a_disk_that_goes_on_failing_makes_no_wrong_answer";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(700 + seed, 50);
        let healthy = disk(seed);
        let cask = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&cask, &steps, &mut Past::new(&healthy));
        drop(cask);
        for (n, fault) in (first..healthy.op_count()).step_by(5).zip([Fault::Eio, Fault::NoSpace].into_iter().cycle()) {
            let what = format!("{replay}: from operation {n} on all fail with {fault:?}");
            let disk = disk(seed);
            let cask = open(&disk, &options).unwrap();
            disk.fail_from(n, fault);
            let mut past = Past::new(&disk);
            run_on(&cask, &steps, &mut past);
            tally.fault();
            answers(&disk, &cask, &past).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            drop(cask);
            disk.heal();
            let cask = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then healed: {error}"));
            let kept = past.promised(kept_by_reopening(&disk));
            verified(&cask, &past, kept).unwrap_or_else(|wrong| panic!("{what}, then healed: {wrong}"));
            cask.put("healed", "yes").unwrap();
            cask.close().unwrap();
        }
    }
}

/// Goal: a bit that flips on its way from the disk, in any one read of an open and of reading all, is never part of an answer,
/// and what is missing for its sake is said to be.
#[test]
fn a_bit_flipped_in_any_read_is_no_wrong_answer() {
    let test = "a_bit_flipped_in_any_read_is_no_wrong_answer";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(800 + seed, 50);
        let options = CaskOptions { verify_reads: true, keep_versions: 1, ..options };
        let healthy = disk(seed);
        let cask = open(&healthy, &options).unwrap();
        let mut past = Past::new(&healthy);
        run_on(&cask, &steps, &mut past);
        drop(cask);
        let expected = past.now();
        let reads = {
            let disk = healthy.after_process_death();
            let cask = open(&disk, &options).unwrap();
            assert!(contents(&cask).unwrap() == expected);
            disk.read_count()
        };
        let mut noticed = 0;
        for n in 0..reads {
            let what = format!("{replay}: a bit flips in read {n}");
            let disk = healthy.after_process_death();
            disk.fail_read_at(n, ReadFault::FlippedBit { bit: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 });
            tally.fault();
            let opened = open(&disk, &options);
            let is_said = opened.as_ref().map_or(true, |cask| {
                let said = cask.recovery();
                !said.damage.is_empty() || !said.torn_files.is_empty() || !said.bad_hints.is_empty()
            });
            noticed += u64::from(is_said);
            let Ok(cask) = opened else { continue };
            // Each key by itself, since one that cannot be read says so.
            for (key, value) in &expected {
                match cask.get(key) {
                    Ok(found) if found.as_deref() == Some(value) => {}
                    Ok(found) => {
                        let was = past.keys[key].iter().any(|given| given.value.as_deref() == found.as_deref());
                        assert!(is_said && (was || found.is_none()), "{what}: {key:?} is wrong, and nobody says so");
                    }
                    Err(error) => {
                        noticed += 1;
                        let is_typed = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat);
                        assert!(is_typed, "{what}: {error}");
                    }
                }
            }
        }
        assert!(noticed > 0, "of {reads} flips none was noticed");
    }
}

/// Goal: the same of who opens for reading only: it maps no file that somebody may write to, so records of one key are read one by one, and again where they
/// are compared.
#[test]
fn a_bit_that_a_reader_reads_wrong_is_no_wrong_answer() {
    let test = "a_bit_that_a_reader_reads_wrong_is_no_wrong_answer";
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let mut random = Rng::with_seed(seed);
        let options = CaskOptions {
            create_if_missing: true,
            stripes: 1 + seed as usize % 2,
            background_jobs: 0,
            open_threads: 0,
            ..CaskOptions::default()
        };
        let disk = SimDisk::new();
        let cask = open(&disk, &options).unwrap();
        let mut now = BTreeMap::new();
        for n in 0..40u32 {
            let key = [b'a' + random.u8(..6); 8];
            if random.u8(..4) == 0 {
                cask.delete(key).unwrap();
                now.insert(key, None);
            } else {
                cask.put(key, n.to_le_bytes()).unwrap();
                now.insert(key, Some(n.to_le_bytes().to_vec()));
            }
        }
        let left = disk.after_process_death();
        let look = |disk: &SimDisk| Cask::open_read_only_with_env("/store", options.clone(), disk.env());
        let reads = {
            let disk = left.after_process_death();
            drop(look(&disk).unwrap());
            disk.read_count()
        };
        let mut noticed = 0;
        for n in (0..reads).flat_map(|n| [n; 20]) {
            let bit = random.u64(..20_000);
            let disk = left.after_process_death();
            disk.fail_read_at(n, ReadFault::FlippedBit { bit });
            let Ok(cask) = look(&disk) else {
                noticed += 1;
                continue;
            };
            let said = cask.recovery();
            let is_said = !said.damage.is_empty() || !said.torn_files.is_empty() || !said.bad_hints.is_empty();
            noticed += u64::from(is_said);
            for (key, value) in now.iter().filter(|_| !is_said) {
                let Ok(found) = cask.get(key) else { continue };
                assert_eq!(found.as_deref(), value.as_deref(), "{replay}: bit {bit} of read {n}: {key:?}");
            }
        }
        assert!(noticed > reads, "{noticed} of {reads} reads were noticed");
    }
}

/// Goal: work that failed leaves no files behind once it was done again, and takes none that are still needed.
#[test]
fn failed_work_leaves_no_files_behind() {
    let (options, steps) = scene(500, 80);
    let options = CaskOptions { keep_versions: 1, ..options };
    let scene = || {
        let disk = disk(1);
        let cask = open(&disk, &options).unwrap();
        let mut past = Past::new(&disk);
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
            let kept = past.promised(kept_by_reopening(&disk));
            verified(&cask, &past, kept).unwrap_or_else(|wrong| panic!("operation {n}: reopened: {wrong}"));
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
        let disk = disk(seed);
        let cask = open(&disk, &options).unwrap();
        disk.set_capacity(Some(40_000 + seed % 20 * 3_000));
        let mut past = Past::new(&disk);
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
    disk.fail_from(disk.op_count(), Fault::Eio);
    assert_eq!(cask.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(!is_warned(&disk), "the warning fails, too");
    disk.heal();
    assert_eq!(cask.put("after", "x").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(cask.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(cask.compact().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(cask.get("before").unwrap().is_some());
    assert!(cask.stats().background_error.is_some());
    assert!(cask.close().is_err(), "who closes is told");
    assert!(is_warned(&disk), "a close warns");
    let cask = open(&disk.after_power_loss(Survivors::Everything), &options).unwrap();
    assert!(cask.get("before").unwrap().is_some());
    assert!(cask.get("unsynced").unwrap().is_none());
    cask.put("after", "x").unwrap();
}

/// Goal: what a merge failed at is told until nothing is left to be merged, whoever did it, and no longer.
#[test]
fn what_a_merge_failed_at_is_told_until_nothing_is_due() {
    let options = CaskOptions {
        create_if_missing: true,
        file_bytes: 4 << 10,
        stripes: 1,
        background_jobs: 0,
        open_threads: 0,
        ..CaskOptions::default()
    };
    let play = |fails_at: Option<u64>| {
        let disk = SimDisk::new();
        let cask = open(&disk, &options).unwrap();
        let first = disk.op_count();
        fails_at.into_iter().for_each(|n| disk.fail_at(first + n, Fault::Eio));
        (0..40u8).for_each(|n| drop(cask.put([n % 3], [n; 500])));
        (cask, disk.op_count() - first)
    };
    let (healthy, ops) = play(None);
    assert!(healthy.stats().merges > 1);
    let mut told = 0;
    // Of the last merges, behind which nothing was due.
    for n in ops * 3 / 4..ops {
        let (cask, _) = play(Some(n));
        match cask.stats().background_error {
            Some(error) if error.kind() != ErrorKind::ReadOnly => told += 1,
            _ => continue,
        }
        cask.compact().unwrap();
        // Nothing is garbage of the files that these fill.
        for n in 100..120u8 {
            cask.put([n], [n; 500]).unwrap();
        }
        assert_eq!(cask.stats().background_error.map(|error| error.to_string()), None, "operation {n}");
    }
    assert!(told > 0);
}

/// Goal: what a failed sync took from memory is an error, also where reads are not verified: that trusts memory, which is none any more.
#[test]
fn what_a_failed_sync_took_is_no_answer_where_reads_are_not_verified() {
    let options = CaskOptions {
        create_if_missing: true,
        verify_reads: false,
        background_jobs: 0,
        stripes: 1,
        ..CaskOptions::default()
    };
    let mut lost = 0;
    for seed in 0..20 {
        let disk = disk(seed);
        let cask = open(&disk, &options).unwrap();
        cask.put("key", [7; 10_000]).unwrap();
        disk.fail_at(disk.op_count(), Fault::Eio);
        cask.sync().unwrap_err();
        match cask.get("key") {
            Ok(found) => assert!(found.unwrap() == [7; 10_000][..], "seed {seed}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "seed {seed}: {error}");
                lost += 1;
            }
        }
        let mut scan = cask.scan().unwrap();
        while scan.advance().unwrap_or(false) {
            assert!(scan.value().unwrap() == [7; 10_000], "seed {seed}");
        }
    }
    assert!((1..20).contains(&lost), "{lost}");
}

/// Goal: what an append that failed has left in a mapped file, behind its end, is no damage when the process dies after shorter ones.
#[test]
fn a_failed_append_leaves_nothing_that_passes_for_damage() {
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 1, ..CaskOptions::default() };
    for kept_bytes in (0..3_500).step_by(70) {
        let disk = SimDisk::new();
        disk.lend_windows(true);
        let cask = open(&disk, &options).unwrap();
        cask.put("before", "x").unwrap();
        disk.fail_at(disk.op_count(), Fault::ShortWrite { kept_bytes });
        assert_eq!(cask.put("refused", noise(3_000)).unwrap_err().kind(), ErrorKind::Exhausted);
        cask.put("after", "y").unwrap();
        let image = disk.after_process_death();
        drop(cask);
        let cask = open(&image, &options).unwrap();
        assert!(cask.recovery().damage.is_empty(), "{kept_bytes} bytes: {:?}", cask.recovery());
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty(), "{kept_bytes} bytes");
        let now = [("before", b"x".to_vec()), ("after", b"y".to_vec())];
        assert_eq!(contents(&cask).unwrap(), now.map(|(key, value)| (key.into(), value)).into());
    }
}

/// Goal: what was refused with a word that nothing was written is not there after a death, though all of it had come into the file and could
/// not be cut off at once; where it cannot be cut off at all, the word is another one.
#[test]
fn what_was_refused_does_not_come_back() {
    let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 1, ..CaskOptions::default() };
    for (fault, is_mapped) in FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        for for_good in [false, true] {
            let disk = SimDisk::new();
            disk.lend_windows(is_mapped);
            let cask = open(&disk, &options).unwrap();
            cask.put("before", "x").unwrap();
            let appending = disk.op_count();
            disk.fail_at(appending, fault);
            disk.fail_at(appending + 1, Fault::Eio);
            if for_good {
                disk.fail_from(appending + 1, Fault::Eio);
            }
            let error = cask.put("refused", "y").unwrap_err();
            assert_eq!(error.kind() == ErrorKind::ReadOnly, for_good, "{error}");
            assert_eq!(cask.get("refused").unwrap(), None);
            if !for_good {
                let again = open(&disk.after_process_death(), &options).unwrap();
                assert_eq!(again.get("refused").unwrap(), None, "{fault:?}, mapped: {is_mapped}");
                assert!(again.recovery().damage.is_empty(), "{fault:?}, mapped: {is_mapped}");
            }
            assert_eq!(cask.put_if_absent("refused", "z", &CaskWriteOptions::default()).is_ok(), !for_good);
            assert_eq!(cask.delete("refused").is_ok(), !for_good);
            disk.heal();
            assert_eq!(cask.close().is_ok(), !for_good);
            let again = open(&disk, &options).unwrap();
            assert_eq!(again.get("before").unwrap().as_deref(), Some(&b"x"[..]));
            assert_eq!(again.get("refused").unwrap(), None, "{fault:?}, mapped: {is_mapped}, for good: {for_good}");
        }
    }
}

/// Goal: versions that ended with a value whose time is over stay so though a read fails while a merge takes them out of the directory, whichever
/// it is.
#[test]
fn no_read_that_fails_in_a_merge_brings_ended_versions_back() {
    let (reads, failing) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let mut failed = 0;
    for n in 0.. {
        let disk = SimDisk::new();
        let (count, which) = (Arc::clone(&reads), Arc::clone(&failing));
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Map(path) => Err(esker::env::Error::new("mapping", path, std::io::ErrorKind::OutOfMemory.into())),
            Call::Read(path) if count.fetch_add(1, Ordering::Relaxed) == which.load(Ordering::Relaxed) => {
                Err(esker::env::Error::new("reading", path, std::io::ErrorKind::Other.into()))
            }
            _ => Ok(()),
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        let options = CaskOptions {
            create_if_missing: true,
            background_jobs: 0,
            open_threads: 0,
            stripes: 1,
            keep_versions: 3,
            merge_garbage_ratio: 1.0,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options.clone(), env).unwrap();
        // Ends the file; there is nothing to merge.
        cask.put("key", "older").unwrap();
        cask.compact().unwrap();
        let ends = CaskWriteOptions { ttl: Some(Duration::from_secs(1)), ..CaskWriteOptions::default() };
        cask.put_with("key", "ends", &ends).unwrap();
        cask.put("other", "").unwrap();
        disk.clock().advance(Duration::from_secs(10));
        let first = reads.load(Ordering::Relaxed);
        failing.store(first + n, Ordering::Relaxed);
        failed += u64::from(cask.compact().is_err());
        failing.store(u64::MAX, Ordering::Relaxed);
        let is_over = reads.load(Ordering::Relaxed) <= first + n;
        for _ in 0..2 {
            let _ = cask.compact();
            assert!(cask.get("key").unwrap().is_none(), "read {n} failed");
        }
        cask.close().unwrap();
        let cask = Cask::open_with_env("/store", options, disk.env()).unwrap();
        assert!(cask.get("key").unwrap().is_none(), "read {n} failed: what was ended is back");
        assert!(cask.check(&mut |_| {}).unwrap().errors.is_empty());
        if is_over {
            assert!(n > failed && failed > 0, "{failed} of {n}");
            break;
        }
    }
}
