//! Which logs and files are kept, and what open makes of those that it finds.

use std::path::{Path, PathBuf};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    Change, ColumnFamily, Db, ErrorKind, FamilyOptions, Options, ReadOptions, RecoveryMode, WriteBatch, WriteOptions,
};
use esker_torture::hooked::{Call, Meanwhile};

const UNLOGGED: WriteOptions = WriteOptions { sync: false, disable_wal: true };

fn options() -> Options {
    let family = FamilyOptions { min_blob_size: 200, write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        // Tests look at garbage in blob files.
        reclaim_mode: esker::ReclaimMode::Manual,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> (Db, ColumnFamily) {
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    let second = db.column_family("second");
    let second =
        second.unwrap_or_else(|| db.create_column_family("second", options().families["second"].clone()).unwrap());
    (db, second)
}

fn file_count(disk: &SimDisk, extension: &str) -> usize {
    disk.paths().iter().filter(|path| path.extension().is_some_and(|found| found == extension)).count()
}

/// Goal: a log that one family still needs does not bring back what another family's tables have overtaken.
/// Method: what overtakes it was written without the log, so that nothing in the log makes up for it.
#[test]
fn a_log_kept_for_one_family_undoes_nothing_of_another() {
    let disk = SimDisk::new();
    let (db, second) = open(&disk);
    let default = db.default_column_family();
    db.put_cf(&second, "holds", "the log", &WriteOptions::default()).unwrap();
    db.put("overwritten", "old").unwrap();
    db.put("deleted", "old").unwrap();
    db.put_cf(&default, "overwritten", "new", &UNLOGGED).unwrap();
    db.delete_cf(&default, "deleted", &UNLOGGED).unwrap();
    // To the deepest level, where the deletion itself goes.
    db.compact_range(&default, None, None).unwrap();
    std::mem::forget(db);
    assert_eq!(file_count(&disk, "log"), 2, "the first log is kept");
    let (db, second) = open(&disk.after_process_death());
    assert_eq!(db.get("overwritten").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(db.get("deleted").unwrap().as_deref(), None);
    assert!(db.get_cf(&second, "holds", &Default::default()).unwrap().is_some());
}

/// Goal: what was written without the log survives an orderly close, whether by `close` or by dropping the last handle.
#[test]
fn unlogged_writes_survive_a_close() {
    for drops in [false, true] {
        let disk = SimDisk::new();
        let (db, second) = open(&disk);
        db.put_cf(&second, "a", "1", &UNLOGGED).unwrap();
        db.put_cf(&second, "b", vec![2; 500], &UNLOGGED).unwrap();
        if drops {
            drop(db)
        } else {
            db.close().unwrap()
        }
        let (db, second) = open(&disk);
        assert_eq!(db.get_cf(&second, "a", &Default::default()).unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get_cf(&second, "b", &Default::default()).unwrap().as_deref(), Some(&[2; 500][..]));
    }
}

/// Goal: a family that comes after another was dropped has nothing of it, though the log still holds its writes.
/// Method: the dropped family's id must not be given out again, however often the manifest was begun anew.
#[test]
fn a_new_family_takes_nothing_from_the_log_of_a_dropped_one() {
    let disk = SimDisk::new();
    let (db, second) = open(&disk);
    db.drop_column_family(&second).unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        // Each open begins a manifest, which has to pass on that the id was given out.
        Db::open_with_env("/store", options(), disk.env()).unwrap().close().unwrap();
    }
    let (db, third) = open(&disk);
    assert!(third.id() > second.id());
    db.put("holds", "the log").unwrap();
    db.put_cf(&third, "key", "of the third", &WriteOptions::default()).unwrap();
    db.drop_column_family(&third).unwrap();
    let fourth = db.create_column_family("second", FamilyOptions::default()).unwrap();
    assert!(fourth.id() > third.id());
    std::mem::forget(db);
    let (db, fourth) = open(&disk.after_process_death());
    assert!(db.get_cf(&fourth, "key", &Default::default()).unwrap().is_none());
    assert!(db.get("holds").unwrap().is_some());
}

/// Goal: open removes what crashes leave, files of names that stores give and that no manifest names, and nothing else.
#[test]
fn open_removes_what_no_manifest_names_and_nothing_else() {
    let disk = SimDisk::new();
    let (db, _) = open(&disk);
    db.put("small", "x").unwrap();
    db.put("large", vec![7; 500]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let orphans =
        ["000900.sst", "000901.blob", "000001.log", "MANIFEST-000902", "000903.dbtmp", "OPTIONS-000904.dbtmp"];
    let strangers = ["letter.txt", "000905.sst.kept", "LOG"];
    for name in orphans.iter().chain(&strangers) {
        disk.overwrite(&Path::new("/store").join(name), b"not of this store".to_vec());
    }
    let (db, _) = open(&disk);
    let paths = disk.paths();
    let is_there = |name: &&&str| paths.contains(&Path::new("/store").join(name));
    assert_eq!(orphans.iter().filter(is_there).collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(strangers.iter().filter(is_there).count(), strangers.len());
    assert_eq!((file_count(&disk, "sst"), file_count(&disk, "blob"), file_count(&disk, "log")), (1, 1, 1));
    assert_eq!(paths.iter().filter(|path| path.to_string_lossy().contains("MANIFEST")).count(), 1);
    assert_eq!(db.get("large").unwrap().as_deref(), Some(&[7; 500][..]));
}

/// Goal: a family that is seldom written does not make the logs grow beyond `wal_bytes_max`.
#[test]
fn an_idle_family_does_not_hold_the_logs_for_ever() {
    let disk = SimDisk::new();
    let options = Options { wal_bytes_max: 256 << 10, ..options() };
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let idle = db.create_column_family("second", options.families["second"].clone()).unwrap();
    db.put_cf(&idle, "idle", "x", &WriteOptions::default()).unwrap();
    for n in 0..4000u32 {
        db.put(n.to_be_bytes(), [7; 300]).unwrap();
        // The log that is being written may grow by a memtable after the limit was met.
        assert!(db.stats().on_disk.wal_bytes < (256 + 128) << 10, "{:?} after {n}", db.stats().on_disk);
    }
    assert!(db.get_cf(&idle, "idle", &Default::default()).unwrap().is_some());
}

/// Goal: a blob file goes with its last live value, and not before.
#[test]
fn a_blob_file_goes_with_its_last_value() {
    let disk = SimDisk::new();
    let (db, _) = open(&disk);
    let default = db.default_column_family();
    for key in ["a", "b"] {
        db.put(key, vec![7; 500]).unwrap();
    }
    db.compact_range(&default, None, None).unwrap();
    db.delete("a").unwrap();
    db.compact_range(&default, None, None).unwrap();
    assert_eq!((file_count(&disk, "blob"), db.stats().families[0].blob_files), (1, 1));
    assert!(db.stats().families[0].blob_garbage_bytes > 0);
    db.put("b", "small").unwrap();
    db.compact_range(&default, None, None).unwrap();
    assert_eq!((file_count(&disk, "blob"), db.stats().families[0].blob_files), (0, 0));
    db.close().unwrap();
    let (db, _) = open(&disk);
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"small"[..]));
}

/// Goal: a log that lost its end is refused if a later log has writes: what is between them is gone, and no power loss
/// takes it, as a log is synced before its successor takes a write.
#[test]
fn a_log_cut_short_before_another_is_damage() {
    let disk = SimDisk::new();
    let (db, second) = open(&disk);
    for n in 0..20u8 {
        db.put_cf(&second, [n], [n; 100], &WriteOptions::default()).unwrap();
    }
    // Begins a second log; the first is kept for the other family.
    db.put("first", "x").unwrap();
    db.put_cf(&second, "last", "x", &WriteOptions::default()).unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.put("second", "x").unwrap();
    std::mem::forget(db);
    let disk = disk.after_process_death();
    let logs: Vec<_> = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    assert_eq!(logs.len(), 2);
    let whole = disk.file_bytes(&logs[0]).unwrap();
    disk.overwrite(&logs[0], whole[..whole.len() - 5].to_vec());
    let before = disk.paths();
    let error = Db::open_with_env("/store", options(), disk.env()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(logs[0].as_path())), "{error}");
    assert_eq!(disk.paths(), before);
    let skipping = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
    let db = Db::open_with_env("/store", skipping, disk.env()).unwrap();
    let second = db.column_family("second").unwrap();
    assert!(db.get("second").unwrap().is_some());
    assert!(db.get_cf(&second, [19], &Default::default()).unwrap().is_some());
    assert!(db.get_cf(&second, "last", &Default::default()).unwrap().is_none());
}

/// A store whose first log could not be made durable when the second one began, and then took what `more` says; and the two
/// logs.
fn two_logs(more: &[(&str, WriteOptions)]) -> (SimDisk, Vec<PathBuf>) {
    let fill_here = |disk: &SimDisk| {
        let db = open(disk).0;
        disk.set_tracing(true);
        let put = |index: u32| db.put(index.to_be_bytes(), [7; 150]);
        // Until the first log is ended, which a disk with a fault refuses for now.
        let ended = |disk: &SimDisk| disk.trace().iter().any(|line| line.contains("seal") && line.contains(".log"));
        (0..2000).find(|&index| put(index).is_err() || ended(disk)).unwrap();
        db
    };
    // In a thread of its own, whose memtables are like those of any other new thread: full after the same write.
    let fill = |disk: &SimDisk| std::thread::scope(|scope| scope.spawn(|| fill_here(disk)).join().unwrap());
    let healthy = SimDisk::new();
    drop(fill(&healthy));
    let trace = healthy.trace();
    let sealing = trace.iter().find(|line| line.contains("seal") && line.contains(".log")).unwrap();
    let disk = SimDisk::new();
    disk.fail_at(sealing.split(' ').next().unwrap().parse().unwrap(), Fault::NoSpace);
    let db = fill(&disk);
    for (key, options) in more {
        db.put_cf(&db.default_column_family(), key, "x", options).unwrap();
    }
    std::mem::forget(db);
    assert!(disk.trace().iter().any(|line| line.contains("seal") && line.ends_with("NoSpace")), "the fault struck");
    let logs = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect::<Vec<_>>();
    assert_eq!(logs.len(), 2);
    (disk, logs)
}

/// Goal: a log takes writes before the one before it is durable; if a power loss takes the end of the first, none of the second
/// is there, in every recovery mode that goes on at all; what was synced since is all there.
#[test]
fn a_power_loss_takes_no_write_without_all_that_came_after_it() {
    let plain = WriteOptions::default();
    let (left, logs) = two_logs(&[("second", plain), ("third", plain)]);
    let count = |db: &Db| db.iter().unwrap().entries().count();
    let whole = open(&left.after_process_death()).0;
    assert!(whole.get("third").unwrap().is_some());
    let all = count(&whole);
    let disk = left.after_process_death();
    let bytes = disk.file_bytes(&logs[0]).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    // Cut within the last record, right before it, and lost as sectors of zeroes.
    for cut in [end - 5, end - 2000, 512] {
        for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail] {
            let image = disk.after_process_death();
            let mut left = bytes.clone();
            left[cut..].fill(0);
            image.overwrite(&logs[0], if cut == 512 { left } else { left[..cut].to_vec() });
            let options = Options { wal_recovery: mode, ..options() };
            let db = Db::open_with_env("/store", options.clone(), image.env()).unwrap();
            assert!(count(&db) < all - 2 && db.get("second").unwrap().is_none() && db.get("third").unwrap().is_none());
            assert_eq!(db.stats().recovery.torn_at.as_ref().map(|(path, _)| path), Some(&logs[0]));
            let left = count(&db);
            db.put("after", "x").unwrap();
            db.close().unwrap();
            assert_eq!(count(&Db::open_with_env("/store", options, image.env()).unwrap()), left + 1);
        }
        let image = disk.after_process_death();
        image.overwrite(&logs[0], bytes[..cut].to_vec());
        let options = Options { wal_recovery: RecoveryMode::AbsoluteConsistency, ..options() };
        let error = Db::open_with_env("/store", options, image.env()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    // Any sectors of both logs.
    for seed in 0..200 {
        let image = left.after_power_loss(Survivors::Sample { seed });
        let db = open(&image).0;
        let keys: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap().0).collect();
        let numbers = keys.iter().filter(|key| key.len() == 4).count();
        assert!(
            numbers == all - 2 || keys.len() == numbers,
            "seed {seed}: the second log without the end of the first"
        );
        assert!(keys.iter().take(numbers).enumerate().all(|(index, key)| **key == (index as u32).to_be_bytes()));
    }
    let synced = WriteOptions { sync: true, ..plain };
    let (disk, _) = two_logs(&[("second", plain), ("third", synced)]);
    assert_eq!(count(&open(&disk.after_power_loss(Survivors::Nothing)).0), all);
}

/// Goal: what is missing of a log that a later one says was durable is damage, not a power loss.
#[test]
fn a_durable_log_cut_short_is_damage() {
    let plain = WriteOptions::default();
    let synced = WriteOptions { sync: true, ..plain };
    let (disk, logs) = two_logs(&[("second", synced), ("third", plain)]);
    let disk = disk.after_process_death();
    let bytes = disk.file_bytes(&logs[0]).unwrap();
    disk.overwrite(&logs[0], bytes[..bytes.len() - 3000].to_vec());
    let before = disk.paths();
    let error = Db::open_with_env("/store", options(), disk.env()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(logs[0].as_path())), "{error}");
    assert_eq!(disk.paths(), before);
    let skipping = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
    assert!(Db::open_with_env("/store", skipping, disk.env()).unwrap().get("third").unwrap().is_some());
}

/// What may be left of a log: zeroes, not quite all, nothing, no file.
fn damages(whole: &[u8]) -> [Option<Vec<u8>>; 4] {
    [Some(vec![0; whole.len()]), Some(whole[..whole.len() - 3].to_vec()), Some(Vec::new()), None]
}

fn leave_of(image: &SimDisk, log: &Path, left: Option<Vec<u8>>) {
    match left {
        Some(left) => image.overwrite(log, left),
        None => image.env().files.remove(log).unwrap(),
    }
}

/// Goal: whatever is missing of the logs of a store that was closed is damage, of the last one, too: what they hold was durable. An open
/// refuses it and changes nothing, `SkipCorrupt` passes over it and tells, and so does a repair.
#[test]
fn what_is_missing_of_a_closed_stores_logs_is_damage() {
    let disk = SimDisk::new();
    let (db, second) = open(&disk);
    let synced = WriteOptions { sync: true, ..WriteOptions::default() };
    // The other family keeps the first log.
    db.put_cf(&second, "second", [2; 100], &synced).unwrap();
    db.put("first", [1; 100]).unwrap();
    db.flush_cf(&db.default_column_family()).unwrap();
    db.put_cf(&db.default_column_family(), "last", [3; 100], &synced).unwrap();
    db.close().unwrap();
    let logs: Vec<_> = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    assert_eq!(logs.len(), 2);
    let files =
        |disk: &SimDisk| disk.paths().into_iter().map(|path| (disk.file_bytes(&path), path)).collect::<Vec<_>>();
    for log in &logs {
        let whole = disk.file_bytes(log).unwrap();
        for (at, left) in damages(&whole).into_iter().enumerate() {
            let what = format!("{}, damage {at}", log.display());
            let image = disk.after_process_death();
            leave_of(&image, log, left);
            let before = files(&image);
            for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail, RecoveryMode::AbsoluteConsistency] {
                let options = Options { wal_recovery: mode, ..options() };
                let error = Db::open_with_env("/store", options.clone(), image.env()).unwrap_err();
                assert_eq!(
                    (error.kind(), error.path()),
                    (ErrorKind::Corruption, Some(log.as_path())),
                    "{what}: {error}"
                );
                let error = Db::open_read_only_with_env("/store", options, image.env()).unwrap_err();
                assert_eq!(
                    (error.kind(), error.path()),
                    (ErrorKind::Corruption, Some(log.as_path())),
                    "{what}: {error}"
                );
            }
            assert!(files(&image) == before, "{what}");
            let skipping = Options { wal_recovery: RecoveryMode::SkipCorrupt, ..options() };
            for env in [image.after_process_death().env(), image.env()] {
                let read_only = Db::open_read_only_with_env("/store", skipping.clone(), env.clone()).unwrap();
                assert!(read_only.stats().recovery.skipped_bytes > 0, "{what}");
                let repaired = Db::repair_with_env("/store", options(), env.clone()).unwrap();
                let is_told = repaired.damage.iter().any(|error| error.path() == Some(log.as_path()));
                assert!(is_told, "{what}: {:?}", repaired.damage);
                let db = Db::open_with_env("/store", options(), env).unwrap();
                assert_eq!(db.get("last").unwrap().is_some(), *log == logs[0], "{what}");
                assert!(db.get("first").unwrap().is_some(), "{what}");
            }
        }
        let image = disk.after_process_death();
        image.overwrite(log, [whole, vec![0; 600]].concat());
        let (db, second) = open(&image);
        assert!(
            db.get("last").unwrap().is_some() && db.get_cf(&second, "second", &Default::default()).unwrap().is_some()
        );
    }
}

/// Goal: a manifest says nothing of logs that a life after it has taken into tables, and nothing that it cannot know: what a process
/// did not live to say.
#[test]
fn logs_that_are_gone_are_not_missed() {
    let disk = SimDisk::new();
    let (db, _) = open(&disk);
    db.put("first", "x").unwrap();
    db.close().unwrap();
    let (db, _) = open(&disk);
    assert_eq!(db.stats().recovery.batches, 1);
    // A close with nothing in the log, another with something, and a death.
    db.close().unwrap();
    let (db, _) = open(&disk);
    db.put("second", "x").unwrap();
    db.close().unwrap();
    let (db, _) = open(&disk);
    db.put("third", "x").unwrap();
    std::mem::forget(db);
    let image = disk.after_process_death();
    for log in image.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "log")) {
        image.env().files.remove(log).unwrap();
    }
    let (db, _) = open(&image);
    assert!(db.get("first").unwrap().is_some() && db.get("second").unwrap().is_some());
}

/// Goal: a close whose last edit of the manifest fails says so; what was written is there.
#[test]
fn a_close_that_cannot_say_what_is_durable_tells() {
    let life = |disk: &SimDisk, at: Option<u64>| {
        let (db, _) = open(disk);
        db.put("key", "value").unwrap();
        if let Some(at) = at {
            disk.fail_at(at, Fault::Eio);
        }
        db.close()
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy, None).unwrap();
    let is_manifest = |line: &&String| line.contains("MANIFEST") && !line.contains("sync_dir");
    let number = |line: &String| line.split(' ').next()?.parse::<u64>().ok();
    let edit: Vec<u64> = healthy.trace().iter().filter(is_manifest).filter_map(number).collect();
    for &at in &edit[edit.len() - 2..] {
        let disk = SimDisk::new();
        let error = life(&disk, Some(at)).unwrap_err();
        assert!(error.to_string().contains("how much of the logs is durable"), "{error}");
        let (db, _) = open(&disk);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// Goal: a synced answer that changes nothing is as durable as one that does: it waits for what it was read from (U4), and for nothing where all is.
#[test]
fn a_synced_condition_that_does_not_hold_makes_durable_what_it_saw() {
    let synced = WriteOptions { sync: true, ..WriteOptions::default() };
    let asks: [fn(&Db, &WriteOptions) -> bool; 4] = [
        |db, synced| db.put_if_absent(&db.default_column_family(), "key", "other", synced).unwrap(),
        |db, synced| db.compare_and_set(&db.default_column_family(), "key", "other", "x", synced).unwrap(),
        |db, synced| db.compare_and_delete(&db.default_column_family(), "key", "other", synced).unwrap(),
        |db, synced| db.update(&db.default_column_family(), "key", synced, |_| Change::Keep).unwrap().is_none(),
    ];
    for ask in asks {
        let disk = SimDisk::new();
        let (db, _) = open(&disk);
        db.put("key", "value").unwrap();
        assert!(!ask(&db, &synced));
        let ops = disk.op_count();
        assert!(!ask(&db, &synced));
        assert_eq!(disk.op_count(), ops, "there was nothing to sync");
        let (db, _) = open(&disk.after_power_loss(Survivors::Nothing));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        let ops = disk.op_count();
        assert!(!ask(&db, &synced));
        assert_eq!(disk.op_count(), ops, "what an open found is durable");
    }
}

/// Goal: what a log held in a former life is never replayed (B5), wherever the machine dies while logs are written over.
/// Method: all writes are as long as each other, so that an old record stands right where a new one would, and each key is
/// written again and again: an old record shows. `crash.rs` has recycled logs among its random options.
#[test]
fn what_a_recycled_log_held_before_is_never_replayed() {
    let synced = WriteOptions { sync: true, ..WriteOptions::default() };
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    let options = Options { recycled_logs_max: 2, families: [("default".to_owned(), family)].into(), ..options() };
    // Returns how many writes were acknowledged, and how many of them were synced.
    let life = |disk: &SimDisk| {
        let (mut written, mut durable) = (0u32, 0);
        let Ok(db) = Db::open_with_env("/store", options.clone(), disk.env()) else { return (0, 0) };
        for n in 1..3000u32 {
            let write = if n % 97 == 0 { &synced } else { &WriteOptions::default() };
            if db.put_cf(&db.default_column_family(), (n % 7).to_be_bytes(), n.to_be_bytes().repeat(25), write).is_err()
            {
                break;
            }
            (written, durable) = (n, if write.sync { n } else { durable });
        }
        std::mem::forget(db);
        (written, durable)
    };
    let disk = SimDisk::new();
    disk.set_tracing(true);
    life(&disk);
    let trace = disk.trace();
    let recycled: Vec<u64> = trace
        .iter()
        .filter(|line| line.contains("rename") && line.ends_with(".log"))
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(recycled.len() >= 3, "{recycled:?}");
    // Around each place where a log becomes another, and now and then between them.
    let near = recycled.iter().flat_map(|&at| at..at + 12);
    for n in near.chain((recycled[0]..disk.op_count()).step_by(41)) {
        let disk = SimDisk::new();
        disk.die_after(n);
        let (written, durable) = life(&disk);
        let images = (0..4).map(|seed| (durable, disk.after_power_loss(Survivors::Sample { seed: seed * 1000 + n })));
        let images = images.chain([
            (written, disk.after_process_death()),
            (durable, disk.after_power_loss(Survivors::Nothing)),
            (durable, disk.after_power_loss(Survivors::Everything)),
        ]);
        for (least, image) in images {
            let db = Db::open_with_env("/store", options.clone(), image.env()).unwrap_or_else(|e| panic!("{n}: {e}"));
            let newest = db.iter().unwrap().entries().map(|entry| {
                let (key, value) = entry.unwrap();
                let [k, v] = [&key[..], &value[..4]].map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
                assert_eq!(v % 7, k);
                v
            });
            let newest: std::collections::BTreeSet<_> = newest.collect();
            let last = newest.last().copied().unwrap_or(0);
            assert!(last >= least && last <= written + 1, "died at {n}: {least} to {written} written, {last} found");
            let expected: std::collections::BTreeSet<_> = (1..=last).rev().take(7).collect();
            assert_eq!(newest, expected, "died at {n}: the newest of each key");
        }
    }
}

/// Goal: a dropped family gives its tables, its blob files and its hold on the logs back; its readers keep what they read.
#[test]
fn a_dropped_family_gives_its_space_back() {
    let disk = SimDisk::new();
    let (db, second) = open(&disk);
    db.put_cf(&second, "large", vec![7; 500], &WriteOptions::default()).unwrap();
    db.flush().unwrap();
    db.put_cf(&second, "in the log", "x", &WriteOptions::default()).unwrap();
    db.put("default", "x").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!((file_count(&disk, "sst"), file_count(&disk, "blob"), file_count(&disk, "log")), (2, 1, 2));
    let reader = db.iter_cf(&second, &Default::default()).unwrap();
    db.drop_column_family(&second).unwrap();
    drop(second);
    db.flush().unwrap();
    assert_eq!(reader.entries().map(|entry| entry.unwrap().1.len()).collect::<Vec<_>>(), [1, 500]);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!((file_count(&disk, "sst"), file_count(&disk, "blob"), file_count(&disk, "log")), (1, 0, 1));
}

/// Goal: what was written without the log survives a close, also after another family was flushed by itself.
#[test]
fn unlogged_writes_survive_a_close_after_another_family_was_flushed() {
    for background_jobs in [0, 2] {
        let disk = SimDisk::new();
        let options = Options { create_if_missing: true, background_jobs, ..Options::default() };
        let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let second = db.create_column_family("second", FamilyOptions::default()).unwrap();
        let unlogged = WriteOptions { disable_wal: true, ..WriteOptions::default() };
        db.put_cf(&db.default_column_family(), "key", "value", &unlogged).unwrap();
        db.compact_range(&second, None, None).unwrap();
        db.close().unwrap();
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        assert!(db.get("key").unwrap().is_some());
    }
}

/// Goal: a handle of another store's family, or of an earlier open, is refused and touches nothing.
#[test]
fn a_family_of_another_store_is_refused() {
    let disk = SimDisk::new();
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let one = Db::open_with_env("/one", options.clone(), disk.env()).unwrap();
    let other = Db::open_with_env("/other", options, disk.env()).unwrap();
    one.put("key", "one").unwrap();
    other.put("key", "other").unwrap();
    other.flush().unwrap();
    let family = other.default_column_family();
    let refused = |error: esker::Error| assert_eq!(error.kind(), esker::ErrorKind::InvalidArgument, "{error}");
    refused(one.get_cf(&family, "key", &ReadOptions::default()).unwrap_err());
    refused(one.put_cf(&family, "key", "x", &WriteOptions::default()).unwrap_err());
    refused(one.compact_range(&family, None, None).unwrap_err());
    refused(one.iter_cf(&family, &ReadOptions::default()).unwrap_err());
    let mut batch = WriteBatch::new();
    batch.put("key", "x").unwrap();
    batch.put_cf(&family, "key", "x").unwrap();
    refused(batch.delete_cf(&one.default_column_family(), "key").unwrap_err());
    refused(one.write(batch.clone(), &WriteOptions::default()).unwrap_err());
    let mut own = WriteBatch::new();
    own.put_cf(&one.default_column_family(), "key", "x").unwrap();
    refused(own.append(&batch).unwrap_err());
    assert_eq!((own.count(), batch.count()), (1, 2));
    // Cleared, it is for anybody.
    batch.clear();
    batch.append(&own).unwrap();
    refused(other.write(batch, &WriteOptions::default()).unwrap_err());
    assert_eq!(one.get("key").unwrap().unwrap(), b"one"[..]);
    assert_eq!(other.get("key").unwrap().unwrap(), b"other"[..]);
}

/// Goal: a tree never grows deeper than its options say, that number survives a reopen without options, and too few
/// levels for what is there are refused without a touch.
#[test]
fn a_tree_has_as_many_levels_as_its_options_say() {
    let disk = SimDisk::new();
    let mut options = options();
    for family in options.families.values_mut() {
        (family.level_count, family.level_base_bytes, family.target_file_bytes) = (4, 16 << 10, 4 << 10);
        (family.separation, family.level_multiplier) = (esker::Separation::Off, 2);
    }
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    for n in 0..4000u32 {
        db.put((n.wrapping_mul(2_654_435_761)).to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let deepest = |db: &Db| db.stats().families[0].levels.iter().filter(|level| level.files > 0).map(|l| l.level).max();
    assert_eq!(deepest(&db), Some(3));
    db.close().unwrap();
    let before = disk.paths();
    options.families.get_mut("default").unwrap().level_count = 3;
    let error = Db::open_with_env("/store", options, disk.env()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(disk.paths(), before);
    let db = Db::open_with_env("/store", Options { background_jobs: 0, ..Options::default() }, disk.env()).unwrap();
    assert_eq!(db.default_column_family().options().level_count, 4);
    db.put("key", "value").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!(deepest(&db), Some(3));
}

/// Goal: many tables are opened side by side with the same outcome: all of them, or an error that names the file.
#[test]
fn tables_opened_side_by_side_are_all_there_or_an_error_names_the_one_that_is_not() {
    let disk = SimDisk::new();
    let small = FamilyOptions {
        separation: esker::Separation::Off,
        compression: esker::Compression::None,
        target_file_bytes: 4 << 10,
        ..Default::default()
    };
    let of_threads = |background_jobs| Options {
        background_jobs,
        families: [("default".to_owned(), small.clone())].into(),
        ..options()
    };
    let db = Db::open_with_env("/store", of_threads(0), disk.env()).unwrap();
    for n in 0..4000u32 {
        db.put(n.to_be_bytes(), (n.wrapping_mul(2_654_435_761)).to_be_bytes().repeat(25)).unwrap();
    }
    // One table would go down as it is.
    db.flush().unwrap();
    db.put(0u32.to_be_bytes(), "again").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.close().unwrap();
    assert!(file_count(&disk, "sst") > 64);
    let db = Db::open_with_env("/store", of_threads(2), disk.env()).unwrap();
    let keys: Vec<_> = db.iter().unwrap().entries().map(|entry| entry.unwrap().0).collect();
    assert!(keys == (0..4000u32).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
    db.close().unwrap();
    let tables: Vec<_> = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    disk.env().files.remove(&tables[40]).unwrap();
    let before = disk.paths();
    let error = Db::open_with_env("/store", of_threads(2), disk.env()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(tables[40].as_path())), "{error}");
    assert_eq!(disk.paths(), before);
}

/// Goal: a repair that begins, and dies, after open has looked for one is not gone on with.
#[test]
fn a_repair_that_begins_while_a_store_is_opened_keeps_it_closed() {
    let mark = Path::new("/store/UNFINISHED-REPAIR");
    let open_while = |disk: &SimDisk, opens: fn(esker::env::Env) -> esker::Result<Db>, is_it: fn(Call<'_>) -> bool| {
        let (meanwhile, machine) = (Meanwhile::default(), disk.clone());
        meanwhile.before(is_it, move || machine.overwrite(mark, b"a repair".to_vec()));
        let opened = opens(meanwhile.env(disk));
        assert!(meanwhile.is_done());
        let error = opened.map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("repair"), "{error}");
    };
    let (disk, is_lock) = (SimDisk::new(), |call: Call<'_>| call.path().ends_with("LOCK"));
    let (db, _) = open(&disk);
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let writing = |env| Db::open_with_env("/store", options(), env);
    let reading = |env| Db::open_read_only_with_env("/store", options(), env);
    let paths = disk.paths();
    open_while(&disk, writing, is_lock);
    disk.env().files.remove(mark).unwrap();
    assert_eq!(disk.paths(), paths);
    let is_log_read =
        |call: Call<'_>| matches!(call, Call::Read(path) if path.extension().is_some_and(|found| found == "log"));
    open_while(&disk, reading, is_log_read);
}

/// Goal: a synced batch makes durable what was written before it, though there is nothing in it.
#[test]
fn an_empty_synced_batch_is_a_barrier() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    db.put("before", "x").unwrap();
    db.write(WriteBatch::new(), &WriteOptions { sync: true, ..WriteOptions::default() }).unwrap();
    let db = Db::open_with_env("/store", options(), disk.after_power_loss(Survivors::Nothing).env()).unwrap();
    assert!(db.get("before").unwrap().is_some());
}

/// Goal: a log with a second name, as in a copy that somebody makes by links, is not written over.
#[test]
fn a_log_with_another_name_is_not_recycled() {
    let disk = SimDisk::new();
    let options = Options { recycled_logs_max: 2, ..options() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let put = |round: u32| {
        let synced = WriteOptions { sync: true, ..WriteOptions::default() };
        db.put_cf(&db.default_column_family(), round.to_be_bytes(), [round as u8; 5000], &synced).unwrap();
    };
    put(1);
    let is_log = |path: &&PathBuf| path.extension().is_some_and(|found| found == "log");
    let log = disk.paths().iter().rfind(is_log).unwrap().clone();
    disk.env().files.link(&log, "/kept".as_ref()).unwrap();
    let before = disk.file_bytes("/kept".as_ref()).unwrap();
    let end = 1 + before.iter().rposition(|&byte| byte != 0).unwrap();
    for round in 2..6 {
        db.flush().unwrap();
        put(round);
    }
    assert!(disk.file_bytes(&log).is_none(), "the log is done with");
    assert!(disk.file_bytes("/kept".as_ref()).unwrap()[..end] == before[..end], "it was written over");
}
