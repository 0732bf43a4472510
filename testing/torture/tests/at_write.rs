//! Values that go to a blob file as they are written: what a crash leaves of two files that belong together, and what
//! becomes of values that nothing points to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use esker::env::Env;
use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    BlobPartition, Compression, Db, ErrorKind, FamilyOptions, Options, ReadOptions, ReclaimMode, RecoveryMode,
    Separation, WriteBatch, WriteOptions,
};
use esker_torture::crash::{Tally, every_read_of_an_open_fails};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::{Model, Op, contents};
use esker_torture::workload::{Ledger, Step, run};
use esker_torture::{noise, seeds};
use fastrand::Rng;

const SYNCED: WriteOptions = WriteOptions { sync: true, disable_wal: false };
const UNLOGGED: WriteOptions = WriteOptions { sync: false, disable_wal: true };

fn options() -> Options {
    let family = FamilyOptions {
        separation: Separation::AtWrite,
        min_blob_size: 200,
        // A log is preallocated for what the memtable holds, and every open of an image reads it.
        write_buffer_bytes: 256 << 10,
        blob_file_bytes: 64 << 10,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        reclaim_mode: ReclaimMode::Manual,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> esker::Result<Db> {
    Db::open_with_env("/store", options(), disk.env())
}

/// As [`options`], with three blob files at a time; the last byte of the key says which.
fn partitioned() -> Options {
    let mut options = options();
    for family in options.families.values_mut() {
        family.blob_partition = Some(BlobPartition::new(|key, _| key.last().map_or(0, |last| last % 3)));
    }
    options
}

fn value(seed: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    noise::fill(&mut Rng::with_seed(seed), &mut value);
    value
}

fn blob_files(disk: &SimDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == "blob")).collect()
}

fn assert_sound(db: &Db) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

/// Goal: a value is written to the device once, and neither the death of the process nor recovery writes it again.
#[test]
fn a_value_is_written_once_whatever_comes() {
    let disk = SimDisk::new();
    // So much lives that a memtable may point to twenty of them.
    let db = open(&disk).unwrap();
    for n in 0..800u64 {
        db.put(n.to_be_bytes(), value(n, 16 << 10)).unwrap();
    }
    db.flush().unwrap();
    for n in 800..820u64 {
        db.put(n.to_be_bytes(), value(n, 16 << 10)).unwrap();
    }
    let stats = db.stats();
    assert!(stats.write_amplification().unwrap() <= 1.05, "{:?}", stats.written);
    assert_eq!(stats.written.flush_blob_bytes, 0);
    assert!(stats.families[0].active_blob_bytes > 20 * (16 << 10));
    std::mem::forget(db);
    let db = open(&disk.after_process_death()).unwrap();
    assert_eq!(db.stats().written.flush_blob_bytes, 0, "recovery takes the file over as it is");
    for n in 0..820u64 {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), value(n, 16 << 10)[..], "{n}");
    }
    assert_eq!(db.stats().families[0].blob_garbage_bytes, 0);
    assert_sound(&db);
}

/// Goal: a value that cannot be read while an open looks whether the power took it is not taken for lost, though it has a sector of zeroes.
#[test]
fn a_value_that_cannot_be_read_is_not_lost() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    for n in 0..3u64 {
        let mut zeroes = value(n, 3000);
        zeroes[600..2400].fill(0);
        db.put(n.to_be_bytes(), zeroes).unwrap();
    }
    let synced = |db: &Db| db.sync_wal().and_then(|()| contents(db));
    let tally = Tally::new("a_value_that_cannot_be_read_is_not_lost");
    every_read_of_an_open_fails(&disk.after_process_death(), "values of zeroes", &tally, open, synced);
}

/// A store with a synced value and three that are not.
fn unsynced_store() -> SimDisk {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    db.put("synced", value(0, 3000)).unwrap();
    db.sync_wal().unwrap();
    for n in 1..4u64 {
        db.put(format!("unsynced {n}"), value(n, 3000)).unwrap();
    }
    std::mem::forget(db);
    disk.after_process_death()
}

fn keys(db: &Db) -> Vec<String> {
    let contents = contents(db).unwrap();
    contents.families["default"].keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

/// Goal: what little a synced write brings is synced with the log alone, and goes to a blob file at the flush; more, or with
/// partitions, to a blob file at once, which is synced, too: before the log, where there are no threads.
#[test]
fn a_small_synced_write_waits_for_the_log_alone() {
    let synced = |options: Options, bytes: usize| {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let put = |key| db.put_cf(&db.default_column_family(), key, value(9, bytes), &SYNCED).unwrap();
        // The first may have to make a file.
        put("first");
        disk.set_tracing(true);
        put("second");
        let trace = disk.trace();
        disk.set_tracing(false);
        let synced: Vec<_> = trace.iter().filter(|line| line.split(' ').nth(1) == Some("sync")).collect();
        let is_blob = |line: &&&String| line.contains(".blob");
        let blobs = synced.iter().filter(is_blob).count();
        assert!(synced.len() - blobs == 1 && !synced.last().is_some_and(|line| is_blob(&line)), "{trace:#?}");
        for seed in 0..20 {
            let db =
                Db::open_with_env("/store", options.clone(), disk.after_power_loss(Survivors::Sample { seed }).env())
                    .unwrap();
            for key in ["first", "second"] {
                assert_eq!(db.get(key).unwrap().unwrap(), value(9, bytes)[..]);
            }
            assert_sound(&db);
        }
        db.flush().unwrap();
        assert!(db.stats().on_disk.blob_bytes > 2 * bytes as u64);
        assert_eq!(db.get("first").unwrap().unwrap(), value(9, bytes)[..]);
        blobs
    };
    assert_eq!(synced(options(), 3000), 0);
    assert_eq!(synced(options(), 9000), 1);
    assert_eq!(synced(partitioned(), 3000), 1);
}

/// Goal: values and the log that points to them are synced at once, and nobody is told before both are durable; whichever of them fails, the
/// write does, and so do all after it.
#[test]
fn values_are_synced_beside_the_log() {
    for (log_fails, values_fail) in [(false, false), (true, false), (false, true)] {
        let disk = SimDisk::new();
        let both = Arc::new((Mutex::new(BTreeSet::new()), Condvar::new()));
        let (met, is_watched) = (both.clone(), Arc::new(AtomicBool::new(false)));
        let watches = is_watched.clone();
        let files = Hooked::new(disk.env().files, move |call| {
            let Call::Sync(path) = call else { return Ok(()) };
            if !watches.load(Ordering::SeqCst) {
                return Ok(());
            }
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            // Neither ends before the other has begun.
            let mut begun = met.0.lock().unwrap();
            begun.insert(is_log);
            met.1.notify_all();
            while begun.len() < 2 {
                let (next, waited) = met.1.wait_timeout(begun, Duration::from_secs(20)).unwrap();
                begun = next;
                assert!(!waited.timed_out(), "one waits for the other");
            }
            let fails = if is_log { log_fails } else { values_fail };
            if fails { Err(esker::env::Error::new("syncing", path, std::io::ErrorKind::Other.into())) } else { Ok(()) }
        });
        let options = Options { background_jobs: 1, ..options() };
        let db = Db::open_with_env("/store", options, Env { files: Arc::new(files), ..disk.env() }).unwrap();
        let put = |key| db.put_cf(&db.default_column_family(), key, value(9, 9000), &SYNCED);
        // Makes the file, and the thread.
        put("first").unwrap();
        is_watched.store(true, Ordering::SeqCst);
        let result = put("second");
        is_watched.store(false, Ordering::SeqCst);
        assert_eq!(both.0.lock().unwrap().len(), 2, "both were begun when one was told");
        if log_fails || values_fail {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly);
            assert_eq!(put("third").unwrap_err().kind(), ErrorKind::ReadOnly);
            continue;
        }
        result.unwrap();
        for seed in 0..20 {
            let db = open(&disk.after_power_loss(Survivors::Sample { seed })).unwrap();
            for key in ["first", "second"] {
                assert_eq!(db.get(key).unwrap().unwrap(), value(9, 9000)[..], "{key}, seed {seed}");
            }
        }
    }
}

/// Goal: a small synced write, whose value is in the log, takes along what earlier writes left in a blob file that nobody synced.
#[test]
fn a_small_synced_write_makes_earlier_values_durable() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    db.put("unsynced", value(1, 3000)).unwrap();
    db.put_cf(&db.default_column_family(), "synced", value(2, 3000), &SYNCED).unwrap();
    for seed in 0..50 {
        let db = open(&disk.after_power_loss(Survivors::Sample { seed })).unwrap();
        for (key, n) in [("unsynced", 1), ("synced", 2)] {
            assert_eq!(db.get(key).unwrap().unwrap(), value(n, 3000)[..], "{key}, seed {seed}");
        }
        assert_sound(&db);
    }
}

/// Goal: where a power loss took a value and left the log, the store ends before the value's batch, and goes on from there.
#[test]
fn a_value_that_a_power_loss_took_ends_the_log() {
    let header_and_key = 32 + "unsynced 1".len();
    // Whole sectors of the second unsynced value; the file's end within it; its last bytes only.
    let second = 30 + 32 + "synced".len() + 3000 + header_and_key + 3000;
    for (from, to) in [(second + 500, second + 3000), (second + 2000, usize::MAX), (second - 3000, usize::MAX)] {
        let disk = unsynced_store();
        let path = blob_files(&disk).remove(0);
        let mut bytes = disk.file_bytes(&path).unwrap();
        if to == usize::MAX {
            bytes.truncate(from);
        } else {
            bytes[from..to].fill(0);
        }
        disk.overwrite(&path, bytes);
        for attempt in ["first", "second"] {
            let db = open(&disk).unwrap();
            let expected: &[&str] = if from < second { &["synced"] } else { &["synced", "unsynced 1"] };
            assert_eq!(keys(&db), expected, "{attempt} open");
            assert_sound(&db);
            assert_eq!(db.stats().families[0].blob_garbage_bytes, 0, "what is lost is cut off");
            if attempt == "first" {
                assert!(db.stats().recovery.torn_at.is_some());
                db.close().unwrap();
            }
        }
    }
}

/// Goal: what no power loss does is told, not passed over; and `SkipCorrupt` goes on without that batch alone.
#[test]
fn a_flipped_bit_in_a_value_that_only_the_log_points_to_is_told() {
    let disk = unsynced_store();
    let path = blob_files(&disk).remove(0);
    assert!(disk.flip_bit(&path, (30 + 32 + 6 + 100) * 8));
    let before: Vec<_> = disk.paths().into_iter().map(|path| (disk.file_bytes(&path), path)).collect();
    let error = open(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains(".blob"), "{error}");
    let after: Vec<_> = disk.paths().into_iter().map(|path| (disk.file_bytes(&path), path)).collect();
    assert!(before == after, "what cannot be opened stays as it was");
    let options = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    assert_eq!(keys(&db), ["unsynced 1", "unsynced 2", "unsynced 3"]);
    assert_eq!(db.stats().families[0].blob_garbage_bytes, 32 + 6 + 3000);
    assert!(db.stats().recovery.skipped_bytes > 0);
}

/// The same for a file that is gone, and under the modes that want more than `PointInTime`.
#[test]
fn each_recovery_mode_says_what_it_says_of_torn_logs() {
    let disk = unsynced_store();
    disk.env().files.remove(&blob_files(&disk)[0]).unwrap();
    assert_eq!(open(&disk).unwrap_err().kind(), ErrorKind::Corruption);
    let torn = || {
        let disk = unsynced_store();
        let path = blob_files(&disk).remove(0);
        let bytes = disk.file_bytes(&path).unwrap();
        disk.overwrite(&path, bytes[..5000].to_vec());
        disk
    };
    let with =
        |mode: RecoveryMode| Db::open_with_env("/store", Options { wal_recovery: mode, ..options() }, torn().env());
    assert_eq!(with(RecoveryMode::AbsoluteConsistency).unwrap_err().kind(), ErrorKind::Corruption);
    for mode in [RecoveryMode::TolerateTornTail, RecoveryMode::PointInTime, RecoveryMode::SkipCorrupt] {
        assert_eq!(keys(&with(mode).unwrap()), ["synced"], "{mode:?}");
    }
    let disk = torn();
    let db = Db::open_read_only_with_env("/store", options(), disk.env()).unwrap();
    assert_eq!(keys(&db), ["synced"], "read-only");
}

/// Found by fuzzing: where the header of a skipped value is damaged, no record can be counted from there on, so fewer are found
/// than are pointed to.
#[test]
fn a_skipped_value_with_a_damaged_header_costs_only_itself() {
    let disk = unsynced_store();
    assert!(disk.flip_bit(&blob_files(&disk).remove(0), 30 * 8));
    let options = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
    for attempt in ["first", "second"] {
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        assert_eq!(keys(&db), ["unsynced 1", "unsynced 2", "unsynced 3"], "{attempt} open");
        assert_eq!(db.stats().families[0].blob_garbage_bytes, 32 + 6 + 3000, "{attempt} open");
        db.close().unwrap();
    }
}

/// Goal: values of a batch that is not logged leave nothing behind, wherever it fails: no garbage, no gap.
#[test]
fn a_batch_that_fails_leaves_nothing_in_the_blob_files() {
    let scene = |disk: &SimDisk| {
        let db = open(disk).unwrap();
        let second = db.create_column_family("second", options().families["second"].clone()).unwrap();
        db.put("before", value(1, 5000)).unwrap();
        (db, second)
    };
    let batch = |second: &esker::ColumnFamily| {
        let mut batch = WriteBatch::new();
        batch.put("a", value(2, 5000)).unwrap();
        batch.put_cf(second, "b", value(3, 5000)).unwrap();
        batch.put("small", "x").unwrap();
        batch
    };
    let healthy = SimDisk::new();
    let (db, second) = scene(&healthy);
    let first = healthy.op_count();
    db.write(batch(&second), &WriteOptions::default()).unwrap();
    let last = healthy.op_count();
    assert!(last - first >= 4, "a new blob file, two appends and the log's");
    for n in first..last {
        for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite { kept_bytes: 700 }] {
            let disk = SimDisk::new();
            let (db, second) = scene(&disk);
            disk.fail_at(n, fault);
            let written = db.write(batch(&second), &WriteOptions::default());
            if written.is_ok() {
                // Space that could not be had in advance.
                continue;
            }
            assert_eq!(db.get("a").unwrap(), None);
            db.put("after", value(4, 5000)).unwrap();
            db.put_cf(&second, "after", value(5, 5000), &WriteOptions::default()).unwrap();
            db.flush().unwrap();
            assert_sound(&db);
            let families = db.stats().families;
            assert!(families.iter().all(|family| family.blob_garbage_bytes == 0), "operation {n}, {fault:?}");
            assert_eq!(db.get("after").unwrap().unwrap(), value(4, 5000)[..]);
            let live: Vec<u64> = families.iter().map(|family| family.blob_live_bytes).collect();
            assert_eq!(live, [2 * 5032 + 11, 5032 + 5], "operation {n}, {fault:?}");
        }
    }
}

/// Goal: what is overwritten before its memtable is flushed is garbage from the flush on, and a file of nothing else goes.
#[test]
fn values_overwritten_in_their_memtable_are_garbage_from_the_start() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    for n in 0..5u64 {
        db.put("key", value(n, 1000)).unwrap();
    }
    db.put("other", value(9, 1000)).unwrap();
    db.delete("other").unwrap();
    db.flush().unwrap();
    let family = &db.stats().families[0];
    assert_eq!((family.blob_live_bytes, family.blob_garbage_bytes), (1035, 4 * 1035 + 1037));
    assert_sound(&db);
    db.put("all", value(10, 1000)).unwrap();
    db.put("all", "small").unwrap();
    db.flush().unwrap();
    db.stats();
    assert_eq!(db.stats().families[0].blob_files, 1, "of the second file nothing lives");
    assert_sound(&db);
    db.close().unwrap();
    assert_eq!(blob_files(&disk).len(), 1);
}

/// Goal: a close leaves no value that only a log leads to: RocksDB would take its file for an orphan.
#[test]
fn a_closed_store_has_all_blob_files_in_its_manifest() {
    for drops in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk).unwrap();
        db.put("key", value(1, 1000)).unwrap();
        if drops {
            drop(db)
        } else {
            db.close().unwrap()
        }
        let db = open(&disk).unwrap();
        assert_eq!(db.stats().recovery.batches, 0);
        assert_eq!(db.stats().families[0].blob_files, 1);
        assert_eq!(db.get("key").unwrap().unwrap(), value(1, 1000)[..]);
    }
}

/// Goal: whoever writes without the log gets what it promises: nothing before a flush, everything after.
#[test]
fn values_without_a_log_are_separated_at_the_flush() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    db.put_cf(&db.default_column_family(), "unlogged", value(1, 1000), &UNLOGGED).unwrap();
    assert_eq!(db.stats().families[0].active_blob_files, 0);
    db.put("logged", value(2, 1000)).unwrap();
    std::mem::forget(db);
    let db = open(&disk.after_process_death()).unwrap();
    assert_eq!(keys(&db), ["logged"]);
    assert_sound(&db);
    db.put_cf(&db.default_column_family(), "unlogged", value(1, 1000), &UNLOGGED).unwrap();
    db.flush().unwrap();
    assert!(db.stats().written.flush_blob_bytes > 1000);
    assert_eq!(db.get("unlogged").unwrap().unwrap(), value(1, 1000)[..]);
}

/// Goal: the files of a dropped family go, also those that only its memtable points to; iterators read on.
#[test]
fn blob_files_of_a_dropped_family_go() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    let second = db.create_column_family("second", options().families["second"].clone()).unwrap();
    db.put_cf(&second, "key", value(1, 1000), &WriteOptions::default()).unwrap();
    let mut reader = db.iter_cf(&second, &ReadOptions::default()).unwrap();
    db.drop_column_family(&second).unwrap();
    reader.seek_to_first().unwrap();
    assert_eq!(reader.value().unwrap(), value(1, 1000)[..]);
    drop((reader, second));
    db.close().unwrap();
    assert!(blob_files(&disk).is_empty());
}

/// Goal: the mode survives a reopen without options, and may change at any time.
#[test]
fn the_mode_is_kept_and_may_change_between_writes() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    let family = db.default_column_family();
    for (n, mode) in [Separation::Off, Separation::AtWrite, Separation::AtFlush, Separation::AtWrite].iter().enumerate()
    {
        db.set_separation(&family, *mode).unwrap();
        db.put(format!("key {n}"), value(n as u64, 1000)).unwrap();
    }
    db.close().unwrap();
    let db = Db::open_with_env("/store", Options { background_jobs: 0, ..Options::default() }, disk.env()).unwrap();
    assert_eq!(db.default_column_family().separation(), Separation::AtWrite);
    assert_eq!(keys(&db).len(), 4);
    assert_eq!(db.get("key 1").unwrap().unwrap(), value(1, 1000)[..]);
    assert_sound(&db);
}

/// Goal: where a memtable's values take several files, one after the other, the same holds as for one: an acknowledged batch
/// survives the death of the process, a synced one power loss, wherever either strikes.
#[test]
fn a_memtable_of_many_files_survives_death_before_every_operation() {
    for seed in seeds(1) {
        let mut random = Rng::with_seed(seed);
        let mut steps = Vec::new();
        for n in 0..60u64 {
            let large = value(seed << 32 | n, random.usize(200..9000));
            let key = format!("key {:03}", random.u8(..150)).into_bytes();
            let mut ops = vec![Op::Put("default".into(), key.clone(), large)];
            if random.bool() {
                ops.push(Op::Put("default".into(), [&key[..], b" small"].concat(), b"small".to_vec()));
            }
            steps.push(Step::Write(ops, random.u8(..6) == 0));
        }
        // What lives below lets a memtable point to more than one file.
        let prepared = SimDisk::new();
        let mut start = Model::new();
        let db = open(&prepared).unwrap();
        for n in 0..100u64 {
            let op = Op::Put("default".into(), n.to_be_bytes().to_vec(), value(n, 34_000));
            start.apply(std::slice::from_ref(&op));
            run(&db, &[Step::Write(vec![op], false)], &mut Ledger::default()).unwrap();
        }
        db.close().unwrap();
        for (options, least_files) in [(options(), 2), (partitioned(), 3)] {
            assert_survives_death(seed, &prepared, &start, &steps, &options, least_files);
        }
    }
}

fn assert_survives_death(
    seed: u64,
    prepared: &SimDisk,
    start: &Model,
    steps: &[Step],
    options: &Options,
    least_files: usize,
) {
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env());
    let play = |disk: &SimDisk, ledger: &mut Ledger| -> esker::Result<usize> {
        let db = open(disk)?;
        let mut most_files = 0;
        let played = steps.iter().try_for_each(|step| {
            run(&db, std::slice::from_ref(step), ledger)?;
            most_files = most_files.max(db.stats().families[0].active_blob_files);
            Ok(())
        });
        std::mem::forget(db);
        played.map(|()| most_files)
    };
    let healthy = prepared.after_process_death();
    let files = play(&healthy, &mut Ledger::default()).unwrap();
    assert!(files >= least_files, "a memtable of {files} blob files shows nothing");
    let ops = healthy.op_count();
    for n in (seed..ops).step_by(29) {
        let disk = prepared.after_process_death();
        disk.die_after(n);
        let mut ledger = Ledger::default();
        let _ = play(&disk, &mut ledger);
        let losses = [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }];
        let images = losses.map(|loss| (disk.after_power_loss(loss), ledger.durable));
        for (image, least) in images.into_iter().chain([(disk.after_process_death(), ledger.acknowledged)]) {
            let what = format!("ESKER_SEED={seed}, died before operation {n} of {ops}");
            let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = contents(&db).unwrap();
            assert!(ledger.prefix(start, &found, least).is_some(), "{what}: {least} batches must survive");
            assert_sound(&db);
        }
    }
}

/// Goal: values that die together lie together: the file of the short-lived goes whole, nobody moves the others, and a partition
/// that does not exist is refused before anything is written.
#[test]
fn values_lie_where_their_partition_says() {
    let disk = SimDisk::new();
    let mut options = options();
    let by_lifetime = BlobPartition::new(|key, value| match key.first() {
        Some(b's') => 3,
        _ if value.len() > 5000 => 200,
        _ => 0,
    });
    options.families.values_mut().for_each(|family| family.blob_partition = Some(by_lifetime.clone()));
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 0..10u64 {
        db.put(format!("long {n}"), value(n, 2000)).unwrap();
        db.put(format!("short {n}"), value(100 + n, 2000)).unwrap();
    }
    let refused = db.put("long", value(1, 5001)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("200"), "{refused}");
    assert_eq!(db.stats().families[0].active_blob_files, 2);
    db.flush().unwrap();
    for n in 0..10u64 {
        db.delete(format!("short {n}")).unwrap();
        assert_eq!(db.get(format!("long {n}")).unwrap().unwrap(), value(n, 2000)[..]);
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let stats = db.stats();
    let family = &stats.families[0];
    assert_eq!((family.blob_files, family.blob_garbage_bytes, stats.written.reclaim_bytes), (1, 0, 0));
    assert_sound(&db);
}

/// Goal: recovery takes only what was logged since the newest file's first value for possibly lost; so whatever a power loss
/// leaves then, no value before is.
#[test]
fn a_file_takes_its_first_value_once_those_in_others_are_durable() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", partitioned(), disk.env()).unwrap();
    let before = ["a 0", "b 1", "c 0", "d 2"];
    for (n, key) in before.iter().enumerate() {
        db.put(key, value(n as u64, 3000)).unwrap();
    }
    std::mem::forget(db);
    for seed in 0..200 {
        let image = disk.after_power_loss(Survivors::Sample { seed });
        let db = open(&image).unwrap_or_else(|error| panic!("sample {seed}: {error}"));
        let found = keys(&db);
        assert_eq!(found, before[..found.len()], "sample {seed}");
        assert_sound(&db);
    }
}

/// Goal: values that were taken back after they had become durable do not make damage of what a power loss takes of those that came in
/// their place.
/// Method: the second partition's first value makes those of the first durable (V5), then a call fails; the next value is as long.
#[test]
fn values_that_were_taken_back_are_no_damage() {
    let mut taken_back = 0;
    for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite { kept_bytes: 700 }] {
        for n in 0.. {
            let disk = SimDisk::new();
            let db = Db::open_with_env("/store", partitioned(), disk.env()).unwrap();
            db.put("a 0", value(1, 3000)).unwrap();
            let at = disk.op_count() + n;
            disk.fail_at(at, fault);
            let mut batch = WriteBatch::new();
            batch.put("b 0", value(2, 3000)).unwrap();
            batch.put("c 1", value(3, 3000)).unwrap();
            let written = db.write(batch, &WriteOptions::default()).map_err(|error| error.kind());
            if disk.op_count() <= at {
                assert_eq!(written, Ok(()));
                break;
            }
            let later = db.put("d 0", value(4, 3000)).map_err(|error| error.kind());
            std::mem::forget(db);
            let (kept, is_sound) = match written {
                Err(ErrorKind::ReadOnly) => (&["a 0", "b 0", "c 1"][..], later == Err(ErrorKind::ReadOnly)),
                _ => (&["a 0", "d 0"][..], later.is_ok()),
            };
            assert!(is_sound, "{fault:?}, operation {n}: {written:?}, then {later:?}");
            taken_back += usize::from(later.is_ok());
            for seed in 0..200 {
                let what = format!("{fault:?}, operation {n}, seed {seed}");
                let image = disk.after_power_loss(Survivors::Sample { seed });
                let db = Db::open_with_env("/store", partitioned(), image.env());
                let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
                let keys = keys(&db);
                assert!(kept.iter().take(keys.len()).eq(keys.iter()), "{what}: {keys:?}");
                assert_sound(&db);
            }
        }
    }
    assert!(taken_back >= 6, "both appends, and that to the log: {taken_back}");
}

/// Goal: what a failed sync of a recovery dropped is written anew by the next one, to which the system says that all is well.
#[test]
fn a_failed_sync_of_a_recovery_costs_the_next_nothing() {
    let scene = unsynced_store();
    let healthy = scene.after_process_death();
    healthy.set_tracing(true);
    let db = open(&healthy).unwrap();
    let (expected, trace) = (contents(&db).unwrap(), healthy.trace());
    let syncs = trace.iter().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|words| words[1] == "sync");
    let syncs: Vec<u64> = syncs.map(|words| words[0].parse().unwrap()).collect();
    assert!(syncs.len() >= 3, "the values, the table, and the manifest: {trace:#?}");
    for n in syncs {
        let disk = scene.after_process_death();
        disk.fail_at(n, Fault::Eio);
        open(&disk).expect_err("a sync failed");
        let db = open(&disk).unwrap();
        assert_eq!(contents(&db).unwrap(), expected);
        db.sync_wal().unwrap();
        std::mem::forget(db);
        let sampled = (0..10).map(|seed| Survivors::Sample { seed });
        for survivors in sampled.chain([Survivors::Nothing]) {
            let db = open(&disk.after_power_loss(survivors)).unwrap();
            assert_sound(&db);
            assert_eq!(contents(&db).unwrap(), expected, "operation {n}, {survivors:?}");
        }
    }
}
