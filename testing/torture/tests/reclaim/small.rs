//! Small blob files are merged while nobody writes much, and values that lie scattered with them.

use std::time::Duration;

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{BlobPartition, Db, ErrorKind, Options, ReclaimMode};
use esker_torture::crash::may_end_writes;
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, files, key, noise};

use super::options;

/// Goal: the many small files that flushes of small memtables leave are merged, so that the first scan finds neighbours together; but not
/// beside a fast writer, not where values are so large that it would gain nothing, and not where a program keeps them apart.
#[test]
fn small_files_are_merged_while_nobody_writes_much() {
    let apart = || Some(BlobPartition::new(|_, value| u8::from(value.is_empty())));
    for (value_bytes, partition, merges) in [(400, None, true), (5000, None, false), (400, apart(), false)] {
        let disk = SimDisk::new();
        let mut options = Options { max_space_amp: 4.0, cache_bytes: 0, ..options(ReclaimMode::Auto) };
        let family = options.families.get_mut("default").unwrap();
        (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 4 << 20);
        family.blob_partition = partition;
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let mut order: Vec<u32> = (0..60).collect();
        fastrand::Rng::with_seed(6).shuffle(&mut order);
        for some in order.chunks(2) {
            some.iter().for_each(|&n| db.put(key(n), noise(n, 0, value_bytes)).unwrap());
            db.flush().unwrap();
        }
        // Less than scans have brought together for their own sake.
        let look = || {
            let before = db.stats().blob_read_calls;
            let found = contents(&db);
            (db.stats().families[0].blob_files, db.stats().blob_read_calls - before, found)
        };
        // With due work, and without a flush of its own.
        let pass = |time| {
            disk.clock().advance(time);
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            db.stats().relocations
        };
        let (files_before, reads_before, _) = look();
        assert_eq!((db.stats().relocations, files_before), (0, 30), "beside a writer");
        (0..2000).for_each(|_| db.put(key(90), b"short").unwrap());
        let expected = contents(&db);
        assert_eq!(pass(Duration::from_millis(100)), 0, "beside a fast one");
        for n in (0..60).cycle().take(3000) {
            assert_eq!(db.value_len(key(n)).unwrap(), Some(value_bytes as u64));
            assert!(db.get(key(n)).unwrap().is_some());
        }
        assert_eq!(pass(Duration::from_secs(1)), 0, "beside a reader");
        let passes = pass(Duration::from_secs(1));
        let (files_after, reads_after, found) = look();
        assert!(found == expected);
        let what = format!("{value_bytes}: {files_after} files, {passes} passes");
        assert_eq!((files_after < 16, reads_after * 5 < reads_before, passes > 0), (merges, merges, merges), "{what}");
        assert_eq!(pass(Duration::from_secs(1)), passes, "once is enough");
        assert_sound(&db, "merged");
    }
}

/// Goal: readers that never pause put a merge of small files off, but not for ever.
#[test]
fn readers_come_first_for_a_minute() {
    let made = SimDisk::new();
    let (options, expected) = crowd(&made);
    let db = Db::open_with_env("/store", Options { cache_bytes: 0, ..options }, made.env()).unwrap();
    let mut merged_after = None;
    for second in 0..80 {
        for n in (0..60).cycle().take(1500) {
            assert!(db.get(key(n)).unwrap().is_some());
        }
        made.clock().advance(Duration::from_secs(1));
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        if db.stats().relocations > 0 {
            merged_after = Some(second);
            break;
        }
    }
    assert!(merged_after.is_some_and(|second| (50..70).contains(&second)), "{merged_after:?}");
    assert!(db.stats().families[0].blob_files < 16 && contents(&db) == expected);
}

/// Goal: more small files than one pass may copy are merged as far as one goes, which leaves room for the keys that it writes, too.
#[test]
fn of_more_small_files_than_a_pass_copies_some_are_merged() {
    let disk = SimDisk::new();
    let mut options = Options { max_space_amp: 4.0, ..options(ReclaimMode::Auto) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 256 << 10);
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let mut order: Vec<u32> = (0..800).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut order);
    for some in order.chunks(20) {
        some.iter().for_each(|&n| db.put(key(n), noise(n, 0, 400)).unwrap());
        db.flush().unwrap();
    }
    assert_eq!(db.stats().families[0].blob_files, 40);
    for _ in 0..4 {
        disk.clock().advance(Duration::from_secs(1));
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    let (stats, files) = (db.stats(), db.stats().families[0].blob_files);
    assert!(files < 16 && stats.relocations > 0, "{files} files after {} passes", stats.relocations);
    assert!(contents(&db) == (0..800).map(|n| (key(n), noise(n, 0, 400))).collect());
    assert_sound(&db, "merged");
}

/// A store whose flushes have left thirty small blob files, closed.
fn crowd(disk: &SimDisk) -> (Options, Contents) {
    let mut options = Options { max_space_amp: 4.0, ..options(ReclaimMode::Auto) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 4 << 20);
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let mut order: Vec<u32> = (0..60).collect();
    fastrand::Rng::with_seed(8).shuffle(&mut order);
    for some in order.chunks(2) {
        some.iter().for_each(|&n| db.put(key(n), noise(n, 0, 400)).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    (options, (0..60).map(|n| (key(n), noise(n, 0, 400))).collect())
}

/// Lets a second pass in which nobody writes, twice, and what is due be done.
fn rest(disk: &SimDisk, db: &Db) -> esker::Result<()> {
    for _ in 0..2 {
        disk.clock().advance(Duration::from_secs(1));
        db.compact_range(&db.default_column_family(), None, None)?;
    }
    Ok(())
}

/// Goal: whoever waits for all that is due need not wait until it is quiet, and is told what failed; the next time it is done.
#[test]
fn b8_who_waits_for_compactions_has_small_files_merged_at_once_or_is_told_why_not() {
    let made = SimDisk::new();
    let (options, expected) = crowd(&made);
    for background_jobs in [0, 2] {
        let open = |disk: &SimDisk| {
            Db::open_with_env("/store", Options { background_jobs, ..options.clone() }, disk.env()).unwrap()
        };
        let healthy = made.after_process_death();
        let db = open(&healthy);
        let first = healthy.op_count();
        db.wait_for_compact().unwrap();
        let ops = healthy.op_count();
        assert!(db.stats().families[0].blob_files < 16, "merged");
        let relocations = db.stats().relocations;
        db.wait_for_compact().unwrap();
        assert_eq!(db.stats().relocations, relocations, "nothing is left to merge");
        // A thread of its own may still remove what was merged, and meets failures when it likes.
        if background_jobs > 0 {
            continue;
        }
        assert_eq!(healthy.op_count(), ops, "nothing is left to do");
        drop(db);
        let mut failures = 0;
        for n in first..ops {
            let disk = made.after_process_death();
            let db = open(&disk);
            disk.fail_at(n, Fault::NoSpace);
            failures += u32::from(db.wait_for_compact().is_err_and(|error| error.kind() == ErrorKind::Exhausted));
            if db.put(key(60), b"not read only").is_err() {
                continue;
            }
            db.wait_for_compact().unwrap_or_else(|error| panic!("call {n} failed, and then: {error}"));
            db.delete(key(60)).unwrap();
            assert!(db.stats().families[0].blob_files < 16, "call {n} failed");
            assert!(contents(&db) == expected, "call {n} failed");
            assert_sound(&db, "merged");
        }
        assert!(failures > 10, "{failures} of {} told", ops - first);
    }
}

/// Goal (B4): a merge of small files that ends anywhere loses nothing.
#[test]
fn b4_death_before_every_operation_of_a_merge_loses_nothing() {
    let made = SimDisk::new();
    let (options, expected) = crowd(&made);
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let healthy = made.after_process_death();
    let db = open(&healthy);
    let first = healthy.op_count();
    rest(&healthy, &db).unwrap();
    let ops = healthy.op_count();
    assert!(db.stats().relocations > 0 && db.stats().families[0].blob_files < 16, "it was a merge");
    drop(db);
    for n in first..ops {
        let disk = made.after_process_death();
        let db = open(&disk);
        disk.die_after(n);
        let _ = rest(&disk, &db);
        drop(db);
        for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
            let what = format!("died before operation {n} of {ops}, {survivors:?}");
            let db = open(&disk.after_power_loss(survivors));
            assert!(contents(&db) == expected, "{what}");
            assert_sound(&db, &what);
        }
    }
}

/// Goal (B8): a call that fails in a merge of small files changes no answer and leaves no file behind; once there is another file, it is
/// tried again.
#[test]
fn b8_every_call_of_a_merge_may_fail() {
    let made = SimDisk::new();
    let (options, expected) = crowd(&made);
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let healthy = made.after_process_death();
    let db = open(&healthy);
    let (first, first_read) = (healthy.op_count(), healthy.read_count());
    rest(&healthy, &db).unwrap();
    let (ops, reads) = (healthy.op_count(), healthy.read_count());
    drop(db);
    let faults = (first..ops).flat_map(|n| [(n, Some(Fault::Eio)), (n, Some(Fault::NoSpace))]);
    let read_faults = (first_read..reads).step_by(7).map(|n| (n, None));
    for (n, fault) in faults.chain(read_faults) {
        let what = format!("call {n} fails with {fault:?}");
        let disk = made.after_process_death();
        disk.set_tracing(true);
        let mut db = open(&disk);
        match fault {
            Some(fault) => disk.fail_at(n, fault),
            None => disk.fail_read_at(n, ReadFault::Eio),
        }
        let result = rest(&disk, &db);
        assert!(contents(&db) == expected, "{what}: answers");
        if result.is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
            assert!(fault.is_some() && may_end_writes(&disk, n), "{what}: no more writes");
            drop(db);
            db = open(&disk.after_power_loss(Survivors::Everything));
            assert!(contents(&db) == expected, "{what}: answers after reopening");
            continue;
        }
        let mut expected = expected.clone();
        db.put(key(60), noise(60, 0, 400)).unwrap();
        expected.insert(key(60), noise(60, 0, 400));
        db.flush().unwrap();
        rest(&disk, &db).unwrap_or_else(|error| panic!("{what}, and then: {error}"));
        assert!(contents(&db) == expected, "{what}: answers after the next try");
        let count = db.stats().families[0].blob_files;
        assert!(count < 16, "{what}: {count} files, not merged");
        assert_sound(&db, &what);
        assert_eq!(files(&disk, "blob").len(), count, "{what}: files left behind");
    }
}
