//! A call of the disk fails: the store says so, loses nothing, and goes on where it can.

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Db, ErrorKind, Options, WriteOptions};
use esker_torture::crash::{
    Replay, Tally, disk, every_read_of_an_open_fails, faults, images, is_warned, kept_by_reopening, may_end_writes,
    operations, power_losses,
};
use esker_torture::model::{Model, Op, contents};
use esker_torture::workload::{Ledger, Step, reads_without_lost_pages, run_on, steps};
use esker_torture::{options, seeds};
use fastrand::Rng;

const FILE: &str = "faults";
const FAMILIES: [&str; 2] = ["default", "reversed"];

fn scene(seed: u64) -> (Options, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let options = options::store_anywhere(&mut random, &FAMILIES, 0);
    let steps = steps(&mut random, &FAMILIES, 60);
    (options, steps)
}

fn open(disk: &SimDisk, options: &Options) -> esker::Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

fn start() -> Model {
    let mut model = Model::new();
    model.families.insert("reversed".to_owned(), Default::default());
    model
}

/// Goal: after any single failed call, answers stay right; a failure that says that nothing was written is true; and
/// what was acknowledged survives the crash that follows.
#[test]
fn every_call_may_fail_once() {
    let test = "every_call_may_fail_once";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let (options, steps) = scene(300 + seed);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let db = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&db, &steps, &mut Ledger::default());
        let ops = healthy.op_count();
        drop(db);
        for (n, fault) in faults(&healthy, first..ops) {
            one_fault(Replay { file: FILE, test, seed }, &options, &steps, n, fault, &tally);
        }
    }
}

fn one_fault(replay: Replay, options: &Options, steps: &[Step], n: u64, fault: Fault, tally: &Tally) {
    let what = format!("{replay}: operation {n} fails with {fault:?}");
    tally.fault();
    let disk = disk(replay.seed);
    disk.set_tracing(true);
    let db = open(&disk, options).unwrap();
    disk.fail_at(n, fault);
    let mut ledger = Ledger::default();
    run_on(&db, steps, &mut ledger);
    answers(&disk, &db, &ledger).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    for image in images(&disk, n) {
        let what = format!("{what}, then {}", image.name);
        tally.image();
        let db = open(&image.disk, options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = contents(&db).unwrap();
        let kept = ledger.prefix(&start(), &found, ledger.least(image.promise));
        assert!(kept.is_some(), "{what}: a durable batch is lost");
        let check = db.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    }
    // What says nothing of what is durable does not end the store's writes.
    let last = Step::Write(vec![Op::Put("default".to_owned(), b"last".to_vec(), b"x".to_vec())], true);
    let refused = run_on(&db, &[last], &mut ledger);
    assert!(refused == 0 || may_end_writes(&disk, n), "{what}: the next write is refused");
    // The end of the process alone loses nothing that was acknowledged, unless a failed sync took it.
    drop(db);
    let db = open(&disk, options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
    let found = contents(&db).unwrap();
    let least = ledger.least(kept_by_reopening(&disk));
    assert!(ledger.prefix(&start(), &found, least).is_some(), "{what}: lost by reopening");
}

/// Reading goes on, and every answer is right.
fn answers(disk: &SimDisk, db: &Db, ledger: &Ledger) -> Result<(), String> {
    if disk.has_evicted() {
        return reads_without_lost_pages(db, &start(), ledger);
    }
    let found = contents(db).map_err(|error| format!("reading goes on: {error}"))?;
    let known = ledger.prefix(&start(), &found, ledger.acknowledged);
    known.map(drop).ok_or_else(|| "the answers are those of no prefix".to_owned())
}

/// Goal: what a failed sync dropped may be readable until the power goes, so the next process takes it for good: what that one
/// promises must not rest on it. A system says nothing of it a second time.
#[test]
fn a_failed_sync_costs_the_next_life_nothing() {
    let test = "a_failed_sync_costs_the_next_life_nothing";
    let tally = Tally::new(test);
    for seed in seeds(6) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(600 + seed);
        let (first_life, second_life) = steps.split_at(40);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let db = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&db, first_life, &mut Ledger::default());
        drop(db);
        for n in operations(&healthy, first, "sync") {
            let what = format!("{replay}: sync {n} fails");
            let disk = disk(seed);
            let db = open(&disk, &options).unwrap();
            disk.fail_at(n, Fault::Eio);
            run_on(&db, first_life, &mut Ledger::default());
            drop(db);
            tally.fault();
            let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then reopened: {error}"));
            let found = contents(&db).unwrap();
            let mut ledger = Ledger::default();
            assert_eq!(run_on(&db, second_life, &mut ledger), 0, "{what}: the next life is healthy");
            db.sync_wal().unwrap();
            ledger.durable = ledger.batches.len();
            drop(db);
            for image in power_losses(&disk, n) {
                let what = format!("{what}, reopened, written to, synced, then {}", image.name);
                tally.image();
                let db = open(&image.disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                let kept = ledger.prefix(&found, &contents(&db).unwrap(), ledger.durable);
                assert!(kept.is_some(), "{what}: what the second life promised is lost");
                assert!(db.check(&mut |_| {}).unwrap().errors.is_empty(), "{what}");
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
        let (options, steps) = scene(700 + seed);
        let healthy = disk(seed);
        let db = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&db, &steps, &mut Ledger::default());
        drop(db);
        for (n, fault) in (first..healthy.op_count()).step_by(5).zip([Fault::Eio, Fault::NoSpace].into_iter().cycle()) {
            let what = format!("{replay}: from operation {n} on all fail with {fault:?}");
            let disk = disk(seed);
            let db = open(&disk, &options).unwrap();
            disk.fail_from(n, fault);
            let mut ledger = Ledger::default();
            run_on(&db, &steps, &mut ledger);
            tally.fault();
            answers(&disk, &db, &ledger).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            drop(db);
            disk.heal();
            let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}, then healed and reopened: {error}"));
            let found = contents(&db).unwrap();
            let least = ledger.least(kept_by_reopening(&disk));
            assert!(ledger.prefix(&start(), &found, least).is_some(), "{what}: lost by reopening");
            db.put("healed", "yes").unwrap();
            db.close().unwrap();
        }
    }
}

/// Goal: whatever read of an open fails, that open takes nothing for missing, lost or trustworthy that is not.
#[test]
fn every_read_of_an_open_may_fail() {
    let test = "every_read_of_an_open_may_fail";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let (options, mut steps) = scene(900 + seed);
        steps.truncate(30);
        let healthy = disk(seed);
        healthy.set_tracing(true);
        let db = open(&healthy, &options).unwrap();
        let first = healthy.op_count();
        run_on(&db, &steps, &mut Ledger::default());
        // The process dies in health, or once a sync has failed.
        let syncs = operations(&healthy, first, "sync");
        for failed in [None, syncs.last()] {
            let what = format!("{replay}: sync {failed:?} failed before");
            let disk = disk(seed);
            let db = open(&disk, &options).unwrap();
            failed.into_iter().for_each(|&n| disk.fail_at(n, Fault::Eio));
            run_on(&db, &steps, &mut Ledger::default());
            let image = disk.after_process_death();
            let synced = |db: &Db| db.sync_wal().and_then(|()| contents(db));
            every_read_of_an_open_fails(&image, &what, &tally, |disk| open(disk, &options), synced);
        }
    }
}

/// Goal: a bit that flips on its way from the disk, in any one read of a life or of an open, is never part of an answer.
#[test]
fn a_bit_flipped_in_any_read_is_no_wrong_answer() {
    let test = "a_bit_flipped_in_any_read_is_no_wrong_answer";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(800 + seed);
        // Nothing cached: every read goes to the disk. And no log that once was another: rot in it passes for its end, which is
        // the price that the option names.
        let options = Options { cache_bytes: 0, recycled_logs_max: 0, ..options };
        let healthy = disk(seed);
        let db = open(&healthy, &options).unwrap();
        let mut ledger = Ledger::default();
        run_on(&db, &steps, &mut ledger);
        db.close().unwrap();
        let expected = ledger.after(&start(), ledger.batches.len());
        let reads = {
            let disk = healthy.after_process_death();
            let db = open(&disk, &options).unwrap();
            assert!(contents(&db).unwrap() == expected);
            disk.read_count()
        };
        let mut noticed = 0;
        for n in 0..reads {
            let disk = healthy.after_process_death();
            disk.fail_read_at(n, ReadFault::FlippedBit { bit: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 });
            tally.fault();
            match open(&disk, &options).and_then(|db| contents(&db)) {
                Ok(found) => assert!(found == expected, "{replay}: a bit flips in read {n}: a wrong answer"),
                Err(error) => {
                    noticed += 1;
                    let is_typed = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat);
                    assert!(is_typed || error.path().is_some(), "{replay}: a bit flips in read {n}: {error}");
                }
            }
        }
        assert!(noticed > reads / 10, "{noticed} of {reads} flips noticed");
    }
}

/// Goal: work that failed leaves no files behind once it was done again, and takes none that are still needed.
#[test]
fn failed_work_leaves_no_files_behind() {
    let (options, steps) = scene(500);
    let scene = || {
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        let mut ledger = Ledger::default();
        assert_eq!(run_on(&db, &steps, &mut ledger), 0);
        (disk, db, ledger)
    };
    let compact = |db: &Db| db.column_families().iter().try_for_each(|family| db.compact_range(family, None, None));
    let (healthy, db, _) = scene();
    let first = healthy.op_count();
    compact(&db).unwrap();
    let ops = healthy.op_count();
    for n in first..ops {
        let what = format!("operation {n}, of {first} to {ops}");
        let (disk, db, ledger) = scene();
        disk.fail_at(n, Fault::Eio);
        if compact(&db).is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
            // A failed sync: only an open may judge what is needed.
            drop(db);
            let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(contents(&db).unwrap() == ledger.after(&start(), ledger.batches.len()), "{what}: reopened");
            continue;
        }
        compact(&db).unwrap_or_else(|error| panic!("{what}: again: {error}"));
        assert!(contents(&db).unwrap() == ledger.after(&start(), ledger.batches.len()), "{what}");
        let count = |extension: &str| {
            disk.paths().iter().filter(|path| path.extension().is_some_and(|found| found == extension)).count()
        };
        let families = db.stats().families;
        let tables: usize = families.iter().flat_map(|family| &family.levels).map(|level| level.files).sum();
        let blobs: usize = families.iter().map(|family| family.blob_files + family.active_blob_files).sum();
        assert_eq!((count("sst"), count("blob")), (tables, blobs), "{what}: files on the disk and in the versions");
    }
}

/// Goal: what a write, or the beginning of a log or a manifest, left in a file when it failed, and could not be cut off, keeps nobody out of the
/// store for long: nothing is acknowledged beside it, and a close cuts it off if the disk has come round.
#[test]
fn what_cannot_be_cut_off_is_gone_with_a_close() {
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let sync = WriteOptions { sync: true, ..WriteOptions::default() };
    let writes: [fn(&Db) -> esker::Result<()>; 2] = [|db| db.put("refused", "x"), |db| db.flush()];
    let (mut went_on, mut ended) = (0, 0);
    for (kept_bytes, is_mapped) in [1, 5, 20].into_iter().flat_map(|kept| [(kept, false), (kept, true)]) {
        for write in writes {
            for n in 0.. {
                let disk = SimDisk::new();
                disk.lend_windows(is_mapped);
                let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
                db.put("before", "x").unwrap();
                disk.fail_from(disk.op_count() + n, Fault::ShortWrite { kept_bytes });
                let written = write(&db);
                disk.heal();
                if written.is_ok() {
                    break;
                }
                let what = format!("{kept_bytes} bytes, mapped: {is_mapped}, operation {n}: {written:?}");
                let goes_on = db.put_cf(&db.default_column_family(), "after", "x", &sync).is_ok();
                if goes_on {
                    went_on += 1;
                    for image in images(&disk, n) {
                        let db = Db::open_with_env("/store", options.clone(), image.disk.env());
                        let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert!(db.get("before").unwrap().is_some() && db.get("after").unwrap().is_some(), "{what}");
                    }
                }
                ended += u32::from(!goes_on);
                drop(db);
                let db = Db::open_with_env("/store", options.clone(), disk.env());
                let db = db.unwrap_or_else(|error| panic!("{what}, closed: {error}"));
                assert!(db.get("before").unwrap().is_some(), "{what}");
                assert_eq!(db.get("after").unwrap().is_some(), goes_on, "{what}");
                assert_eq!(db.get("refused").unwrap(), None, "{what}");
            }
        }
    }
    assert!(went_on > 20 && ended > 20, "{went_on} went on, {ended} did not");
}

/// Goal: a full disk refuses writes with `Exhausted`, and nothing else: reads go on, and so do writes once there is room.
#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    for seed in seeds(20) {
        let (options, steps) = scene(400 + seed);
        let disk = disk(seed);
        let db = open(&disk, &options).unwrap();
        disk.set_capacity(Some(120_000 + seed % 20 * 10_000));
        let mut ledger = Ledger::default();
        run_on(&db, &steps, &mut ledger);
        let found = contents(&db).unwrap();
        assert!(found == ledger.after(&start(), ledger.batches.len()), "seed {seed}: what was refused is not there");
        // Nothing that compression makes small.
        let mut big = vec![0; 1 << 20];
        Rng::with_seed(seed).fill(&mut big);
        let error = db.put("big", big).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        disk.set_capacity(None);
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), b"value"[..]);
        db.close().unwrap();
    }
}

/// Goal: a failed sync is never taken for durable, nor repeated: the store is read-only until it is reopened.
#[test]
fn a_failed_sync_makes_the_store_read_only() {
    let disk = SimDisk::new();
    let db =
        Db::open_with_env("/store", Options { create_if_missing: true, ..Options::default() }, disk.env()).unwrap();
    db.put("before", "x").unwrap();
    db.sync_wal().unwrap();
    db.put("unsynced", "x").unwrap();
    disk.fail_from(disk.op_count(), Fault::Eio);
    assert_eq!(db.sync_wal().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(!is_warned(&disk), "the warning fails, too");
    disk.heal();
    assert_eq!(db.put("after", "x").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(db.sync_wal().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(db.get("before").unwrap().is_some());
    assert!(db.stats().background_error.is_some());
    drop(db);
    assert!(is_warned(&disk), "a close warns");
    let disk = disk.after_power_loss(Survivors::Everything);
    let db = Db::open_with_env("/store", Options::default(), disk.env()).unwrap();
    assert!(db.get("before").unwrap().is_some());
    assert!(db.get("unsynced").unwrap().is_none());
    db.put("after", "x").unwrap();
}
