//! What purging gives back, and what keeps it from that.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the lint's leave for tests does not reach what tests share")]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use esker_env::Env;
use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_raft_log::{ErrorKind, FileId, Listener, LogBatch, Options, Queue, RaftLog};

fn options() -> Options {
    Options {
        file_bytes: 4 << 10,
        purge_threshold_bytes: 32 << 10,
        purge_rewrite_threshold_bytes: Some(16 << 10),
        purge_rewrite_garbage_ratio: 0.5,
        compress_from_bytes: 0,
        cache_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: &Options) -> RaftLog {
    RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap()
}

/// Entries of 400 bytes, a batch each.
fn fill(log: &RaftLog, group: u64, first: u64, count: u64) {
    for index in first..first + count {
        let mut batch = LogBatch::new();
        batch.add_entries(group, index, [vec![index as u8; 400]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
}

/// What is dead in the rewrite queue is counted across restarts, or a log that is opened often never gives it back.
#[test]
fn what_died_in_the_rewrite_queue_before_an_open_is_given_back() {
    let disk = SimDisk::new();
    for round in 0..10 {
        let log = open(&disk, &options());
        fill(&log, 1, 1 + 100 * round, 100);
        log.move_on(None).unwrap();
        log.compact_to(1, 100 * round + 91).unwrap();
        // That they are gone is carried on, so that opening finds them dead.
        log.move_on(None).unwrap();
        drop(log);
        let log = open(&disk, &options());
        log.purge().unwrap();
        assert_eq!(log.entries(1, 100 * round + 91, 100 * round + 101, None).unwrap().len(), 10);
        let bytes = log.stats().rewrite.bytes;
        assert!(bytes < 100 << 10, "round {round}: {bytes} bytes, of which some 4,000 are alive");
    }
}

/// Groups 1 to 4, each in a batch of the rewrite queue, most of which is dead; the append queue is longer than it should be. An entry of
/// group 2 is rotten.
fn rotten() -> (SimDisk, RaftLog) {
    let disk = SimDisk::new();
    let log = open(&disk, &options());
    for group in [5, 1, 2, 3, 4] {
        fill(&log, group, 1, 60);
        log.move_on(None).unwrap();
    }
    log.compact_to(5, 61).unwrap();
    for group in 1..=4 {
        log.compact_to(group, 51).unwrap();
    }
    let (path, at) = disk
        .paths()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == "rewrite"))
        .filter_map(|path| {
            let bytes = disk.file_bytes(&path).unwrap();
            // The second group's: entries of all groups are alike, so its place is told by the first index that is alive.
            let at = bytes.windows(400).position(|part| part == [55; 400])?;
            Some((path, at))
        })
        .nth(2)
        .unwrap();
    assert!(disk.flip_bit(&path, at as u64 * 8));
    let unreadable: Vec<u64> = (1..=4).filter(|group| log.entry(*group, 55).is_err()).collect();
    assert_eq!(unreadable, [2]);
    fill(&log, 5, 61, 100);
    log.compact_to(5, 161).unwrap();
    (disk, log)
}

/// One batch that cannot be read is told, and keeps nobody but its own group.
#[test]
fn a_rotten_batch_keeps_no_other_group_from_being_moved() {
    let (_disk, log) = rotten();
    let before = log.stats();
    assert_eq!(log.purge().unwrap_err().kind(), ErrorKind::Corruption);
    let after = log.stats();
    assert!(after.append.first_file > before.append.first_file, "{before:?} {after:?}");
    let last = after.rewrite.last_file;
    for round in 0..10 {
        fill(&log, 5, 161 + 100 * round, 100);
        log.compact_to(5, 261 + 100 * round).unwrap();
        let before = log.stats().append.first_file;
        let _ = log.purge();
        let after = log.stats();
        assert!(after.append.first_file > before, "{after:?}");
        assert_eq!(after.rewrite.last_file, last, "round {round}");
    }
    for group in [1, 3, 4] {
        assert_eq!(log.entries(group, 51, 61, None).unwrap().len(), 10);
    }
    assert_eq!(log.entry(2, 55).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Of a group in the append queue that cannot be read, what follows stays; others are moved.
#[test]
fn a_rotten_batch_of_the_append_queue_keeps_no_other_group_from_being_moved() {
    let disk = SimDisk::new();
    let log = open(&disk, &options());
    (1..=4).for_each(|group| fill(&log, group, 1, 1));
    let path = Path::new("/log/0000000000000001.raftlog");
    let bytes = disk.file_bytes(path).unwrap();
    let at = bytes.windows(400).position(|part| part == [1; 400]).unwrap();
    assert!(disk.flip_bit(path, at as u64 * 8));
    fill(&log, 5, 1, 100);
    for _ in 0..3 {
        assert_eq!(log.move_on(None).unwrap_err().kind(), ErrorKind::Corruption);
    }
    let stats = log.stats();
    assert_eq!((stats.append.first_file, stats.rewritten_entries), (1, 103));
}

/// A full disk is no reason for a purge to fail as long as the log itself holds files that nobody needs.
#[test]
fn a_full_disk_takes_files_that_wait_to_be_written_over() {
    let disk = SimDisk::new();
    let log = open(&disk, &options());
    fill(&log, 2, 1, 3);
    fill(&log, 1, 1, 400);
    log.compact_to(1, 401).unwrap();
    log.move_on(None).unwrap();
    fill(&log, 2, 4, 25);
    fill(&log, 1, 401, 60);
    log.compact_to(1, 461).unwrap();
    let before = log.stats();
    assert!(before.recycled_files > 0 && before.append.bytes > 32 << 10, "{before:?}");
    let files = disk.env().files;
    let used = disk.paths().iter().filter_map(|path| files.metadata(path).ok()).map(|found| found.allocated).sum();
    disk.set_capacity(Some(used));
    log.purge().unwrap();
    let after = log.stats();
    assert!(after.append.first_file > before.append.first_file, "{after:?}");
    assert_eq!(log.entries(2, 1, 29, None).unwrap().len(), 28);
}

/// What files take of the disk.
fn used_bytes(disk: &SimDisk) -> u64 {
    let files = disk.env().files;
    disk.paths().iter().filter_map(|path| files.metadata(path).ok()).map(|found| found.allocated).sum()
}

/// What is dead in the rewrite queue goes by a copy of the rest, for which there may be no room before what is dead in the append queue went.
#[test]
fn a_full_disk_with_a_rewrite_queue_that_is_due_gives_up_what_nobody_needs() {
    for recycle_files in [true, false] {
        let disk = SimDisk::new();
        let log = open(&disk, &Options { recycle_files, ..options() });
        fill(&log, 1, 1, 150);
        log.move_on(None).unwrap();
        log.compact_to(1, 111).unwrap();
        log.purge_stale().unwrap();
        fill(&log, 2, 1, 60);
        log.compact_to(2, 61).unwrap();
        let before = log.stats();
        assert_eq!(before.recycled_files > 0, recycle_files);
        assert!(before.rewrite.bytes > 16 << 10 && before.rewritten_entries * 2 < 150, "{before:?}");
        disk.set_capacity(Some(used_bytes(&disk)));
        let done = log.purge();
        assert_eq!(done.as_ref().map_err(|error| error.kind()).err(), (!recycle_files).then_some(ErrorKind::Exhausted));
        let after = log.stats();
        assert!(after.append.first_file > before.append.first_file, "{after:?}");
        // What went is room for the rest.
        log.purge().unwrap();
        assert!(log.stats().rewrite.bytes < before.rewrite.bytes);
        assert_eq!(log.entries(1, 111, 151, None).unwrap().len(), 40);
        for call in [RaftLog::rewrite_again, RaftLog::purge_stale, |log: &RaftLog| log.move_on(None)] {
            disk.set_capacity(Some(used_bytes(&disk)));
            if let Err(error) = call(&log) {
                assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            }
            disk.set_capacity(None);
            call(&log).unwrap();
        }
        assert_eq!(log.entries(1, 111, 151, None).unwrap().len(), 40);
    }
}

/// Nor does it fail for want of room to tell what is gone, whatever else that room could be used for.
#[test]
fn a_full_disk_with_a_rewrite_queue_that_must_be_told_gives_up_what_nobody_needs() {
    for recycle_files in [true, false] {
        let disk = SimDisk::new();
        let log = open(&disk, &Options { recycle_files, file_bytes: 32 << 10, ..options() });
        let keys: Vec<String> = (0..300).map(|key| format!("key of some length {key}")).collect();
        let mut batch = LogBatch::new();
        keys.iter().for_each(|key| batch.put(1, key.as_bytes(), b"value").unwrap());
        log.write(&mut batch, false).unwrap();
        fill(&log, 1, 1, 150);
        fill(&log, 3, 1, 3);
        log.move_on(None).unwrap();
        log.compact_to(1, 111).unwrap();
        log.purge_stale().unwrap();
        fill(&log, 2, 1, 200);
        log.compact_to(2, 201).unwrap();
        log.compact_to(1, 113).unwrap();
        // More than the last block of the rewrite queue has room for.
        keys.iter().for_each(|key| batch.delete(1, key.as_bytes()));
        batch.clean(3);
        log.write(&mut batch, false).unwrap();
        let before = log.stats();
        disk.set_capacity(Some(used_bytes(&disk)));
        if let Err(error) = log.purge() {
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        }
        assert!(log.stats().append.first_file > before.append.first_file, "{:?}", log.stats());
        log.purge().unwrap();
        assert!(log.stats().rewrite.bytes < before.rewrite.bytes);
        log.sync().unwrap();
        drop(log);
        disk.set_capacity(None);
        let log = open(&disk, &options());
        assert_eq!(
            (log.first_index(1), log.last_index(1), log.get(1, keys[0].as_bytes())),
            (Some(113), Some(150), None)
        );
        assert_eq!(log.first_index(3), None);
    }
}

/// One group that there is no room to move keeps no file that it has nothing in.
#[test]
fn a_full_disk_keeps_no_file_for_a_group_that_cannot_be_moved() {
    let disk = SimDisk::new();
    let log = open(&disk, &Options { recycle_files: false, ..options() });
    fill(&log, 1, 1, 60);
    fill(&log, 2, 1, 25);
    fill(&log, 1, 61, 60);
    log.compact_to(1, 121).unwrap();
    let before = log.stats();
    disk.set_capacity(Some(used_bytes(&disk)));
    assert_eq!(log.purge().unwrap_err().kind(), ErrorKind::Exhausted);
    let after = log.stats();
    assert!(after.append.first_file > before.append.first_file, "{after:?}");
    log.purge().unwrap();
    assert!(log.stats().append.first_file > after.append.first_file);
    assert_eq!(log.entries(2, 1, 26, None).unwrap().len(), 25);
}

/// Files that were purged.
#[derive(Default)]
struct Purged(Mutex<Vec<FileId>>);

impl Listener for Purged {
    fn purged(&self, file: FileId) {
        self.0.lock().unwrap().push(file);
    }
}

/// Files that left the queue count, and listeners hear of them, though one of them stays on the disk for now.
#[test]
fn files_that_cannot_be_removed_are_told_as_purged() {
    let begin = || {
        let (disk, purged) = (SimDisk::new(), Arc::new(Purged::default()));
        let listeners: Vec<Arc<dyn Listener>> = vec![purged.clone()];
        let options = Options { recycle_files: false, ..options() };
        let log = RaftLog::open_with("/log", options, disk.env(), listeners).unwrap();
        fill(&log, 1, 1, 60);
        log.compact_to(1, 61).unwrap();
        disk.set_tracing(true);
        (disk, log, purged)
    };
    let (healthy, log, _) = begin();
    log.purge().unwrap();
    let trace = healthy.trace();
    let removed = trace.iter().find(|line| line.contains(" remove ")).unwrap();
    let (disk, log, purged) = begin();
    disk.fail_at(removed.split(' ').next().unwrap().parse().unwrap(), Fault::Eio);
    assert_eq!(log.purge().unwrap_err().kind(), ErrorKind::Io);
    let stats = log.stats();
    assert!(stats.append.first_file > 1);
    assert_eq!(stats.purged_files, stats.append.first_file - 1);
    assert_eq!(purged.0.lock().unwrap().as_slice(), [FileId::new(Queue::Append, stats.append.first_file - 1)]);
}

/// The same for who writes.
#[test]
fn a_full_disk_takes_them_for_writers_too() {
    let disk = SimDisk::new();
    let log = open(&disk, &options());
    fill(&log, 1, 1, 400);
    log.compact_to(1, 401).unwrap();
    log.purge().unwrap();
    let waiting = log.stats().recycled_files;
    assert!(waiting > 2);
    disk.set_capacity(Some(0));
    let mut batch = LogBatch::new();
    batch.add_entries(1, 401, [[7; 20_000]]).unwrap();
    assert_eq!(log.write(&mut batch, true).unwrap_err().kind(), ErrorKind::Exhausted, "there is no room at all");
    assert_eq!(log.stats().recycled_files, 0, "{waiting} waited");
    disk.set_capacity(None);
    log.write(&mut batch, true).unwrap();
}

/// Files that are kept to be written over are bounded by their bytes, too: one batch may make a file far longer than the others.
#[test]
fn files_that_wait_to_be_written_over_are_bounded_by_their_bytes() {
    let disk = SimDisk::new();
    let log = open(&disk, &options());
    for index in 1..=20u64 {
        let mut batch = LogBatch::new();
        batch.add_entries(1, index, [vec![7; 100_000]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    log.compact_to(1, 21).unwrap();
    log.purge().unwrap();
    let bytes = || -> usize {
        let files = disk.paths().into_iter().filter(|path| path.to_str().unwrap().contains(".raftlog"));
        files.map(|path| disk.file_bytes(&path).unwrap().len()).sum()
    };
    // Twelve files of 4 KiB are to be kept.
    assert!(bytes() < 250_000, "{} bytes", bytes());
    log.close().unwrap();
    // Nor are long ones kept that an earlier life left.
    for number in 1..=9 {
        disk.overwrite(Path::new(&format!("/log/{number:016}.raftlog.reserved")), vec![0; 100_000]);
    }
    let log = open(&disk, &options());
    assert!(bytes() < 250_000, "{} bytes, of {} files", bytes(), log.stats().recycled_files);
}

/// A file that cannot be taken to be written over waits on, whether or not that lasts, and fails no write: a new one serves as well. One that
/// got its new name and could not be opened goes.
#[test]
fn a_file_that_could_not_be_written_over_fails_no_write() {
    let begin = || {
        let disk = SimDisk::new();
        let log = open(&disk, &options());
        fill(&log, 1, 1, 200);
        log.compact_to(1, 201).unwrap();
        log.purge().unwrap();
        disk.set_tracing(true);
        (disk, log)
    };
    let (healthy, log) = begin();
    fill(&log, 1, 201, 30);
    let trace = healthy.trace();
    let at = |what: &str| {
        let line = trace.iter().find(|line| line.contains(what)).unwrap();
        line.split(' ').next().unwrap().parse().unwrap()
    };
    let (renamed, synced): (u64, u64) = (at(" rename "), at(" sync_dir "));
    assert!(synced > renamed);
    drop(log);
    for (op, fault) in [(renamed, Fault::Eio), (renamed, Fault::EioAfter), (synced, Fault::Eio)] {
        let (disk, log) = begin();
        let (waiting, last) = (log.stats().recycled_files, log.stats().append.last_file);
        disk.fail_at(op, fault);
        let mut next = 201;
        while log.stats().append.last_file == last {
            fill(&log, 1, next, 1);
            next += 1;
        }
        let left = log.stats().recycled_files;
        assert!(if fault == Fault::Eio && op == renamed { left == waiting } else { left < waiting }, "{left}");
        fill(&log, 1, next, 261 - next);
        assert!(log.stats().recycled_files < waiting);
        drop(log);
        let log = open(&disk.after_power_loss(Survivors::Nothing), &options());
        assert_eq!((log.last_index(1), log.recovery().stale.len()), (Some(260), 0));
    }
}

/// How long batches of the rewrite queue are.
#[derive(Default)]
struct Rewritten(Mutex<Vec<u64>>);

impl Listener for Rewritten {
    fn batch_appended(&self, file: FileId, _: u64, bytes: u64) {
        if file.queue == Queue::Rewrite {
            self.0.lock().unwrap().push(bytes);
        }
    }
}

/// A batch holds what fits a format of 2 GiB: what is long is moved alone, not behind what was gathered before.
#[test]
fn a_long_batch_is_moved_alone() {
    let (disk, rewritten) = (SimDisk::new(), Arc::new(Rewritten::default()));
    let listeners: Vec<Arc<dyn Listener>> = vec![rewritten.clone()];
    let log = RaftLog::open_with("/log", options(), disk.env(), listeners).unwrap();
    let long = |group: u64, index: u64| {
        let mut batch = LogBatch::new();
        batch.add_entries(group, index, [vec![9; 300_000]]).unwrap();
        log.write(&mut batch, false).unwrap();
    };
    // Behind a few of its own, behind those of another group, and before others.
    fill(&log, 1, 1, 5);
    long(1, 6);
    fill(&log, 2, 1, 5);
    long(3, 1);
    fill(&log, 3, 2, 5);
    long(3, 7);
    log.move_on(None).unwrap();
    for _ in 0..2 {
        let lengths = std::mem::take(&mut *rewritten.0.lock().unwrap());
        assert_eq!(lengths.iter().filter(|bytes| **bytes > 300_000).count(), 3, "{lengths:?}");
        assert!(lengths.iter().all(|bytes| *bytes < 300_300), "{lengths:?}");
        log.rewrite_again().unwrap();
    }
    for (group, count) in [(1, 6), (2, 5), (3, 7)] {
        assert_eq!(log.entries(group, 1, count + 1, None).unwrap().len() as u64, count);
    }
}

thread_local! {
    /// Goes with the thread that purges.
    static TOLD: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) };
}

/// Panics whenever a purge asks it.
struct Panics(Mutex<Option<mpsc::Sender<()>>>);

impl Listener for Panics {
    fn oldest_needed(&self, _: Queue) -> Option<u64> {
        TOLD.with_borrow_mut(|told| {
            let told = told.get_or_insert_with(|| self.0.lock().unwrap().take().unwrap());
            let _ = told.send(());
        });
        panic!("a listener's own");
    }
}

/// A listener that panics does not end the log's own purging, least of all without a word.
#[test]
fn a_listener_that_panics_is_a_purge_error() {
    let dir = tempfile::tempdir().unwrap();
    let (told, asked) = mpsc::channel();
    let listeners: Vec<Arc<dyn Listener>> = vec![Arc::new(Panics(Mutex::new(Some(told))))];
    let options = Options { purge_interval: Some(Duration::from_millis(1)), ..options() };
    let log = RaftLog::open_with(dir.path(), options, Env::os(), listeners).unwrap();
    fill(&log, 1, 1, 100);
    for _ in 0..3 {
        asked.recv().expect("purging goes on");
    }
    log.close().unwrap();
    let error = log.stats().purge_error;
    assert!(error.as_ref().is_some_and(|error| error.contains("panicked")), "{error:?}");
}

/// Panics when it is told of a batch of the rewrite queue, once.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl Listener for PanicsOnce {
    fn batch_appended(&self, file: FileId, _: u64, _: u64) {
        if file.queue == Queue::Rewrite && !self.0.swap(true, Ordering::Relaxed) {
            panic!("a listener's own");
        }
    }
}

/// What was moved counts, whatever a listener does when it hears of it: else nothing would say that its copy was deleted.
#[test]
fn a_key_that_was_deleted_stays_so_whatever_a_listener_does() {
    let disk = SimDisk::new();
    let listeners: Vec<Arc<dyn Listener>> = vec![Arc::new(PanicsOnce::default())];
    let log = RaftLog::open_with("/log", options(), disk.env(), listeners).unwrap();
    let mut batch = LogBatch::new();
    batch.put(1, b"key", b"value").unwrap();
    log.write(&mut batch, false).unwrap();
    catch_unwind(AssertUnwindSafe(|| log.move_on(None))).unwrap_err();
    batch.delete(1, b"key");
    log.write(&mut batch, false).unwrap();
    log.move_on(None).unwrap();
    assert_eq!(log.get(1, b"key"), None);
    log.close().unwrap();
    let log = RaftLog::open_with("/log", options(), disk.env(), Vec::new()).unwrap();
    assert_eq!(log.get(1, b"key"), None);
}

/// Panics when a batch of users' is in the index.
struct PanicsOfWriters;

impl Listener for PanicsOfWriters {
    fn batch_applied(&self, file: FileId) {
        if file.queue == Queue::Append {
            panic!("a listener's own");
        }
    }
}

/// Why nothing can be written any more is told, also if that is a listener's fault, and at once.
#[test]
fn a_writer_that_panicked_is_a_write_error() {
    let disk = SimDisk::new();
    let listeners: Vec<Arc<dyn Listener>> = vec![Arc::new(PanicsOfWriters)];
    let log = RaftLog::open_with("/log", options(), disk.env(), listeners).unwrap();
    let mut batch = LogBatch::new();
    batch.put(1, b"key", b"value").unwrap();
    assert_eq!(log.stats().write_error, None);
    catch_unwind(AssertUnwindSafe(|| log.write(&mut batch, false))).unwrap_err();
    let told = log.stats().write_error;
    assert!(told.as_ref().is_some_and(|error| error.contains("panicked")), "{told:?}");
    batch.put(1, b"key", b"value").unwrap();
    assert_eq!(log.write(&mut batch, false).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// Files go in their order for a power loss, too, wherever it strikes: one that is left would else stand before a gap.
#[test]
fn a_power_loss_leaves_no_file_before_a_gap() {
    for recycle_files in [false, true] {
        let options = Options { recycle_files, ..options() };
        let begin = || {
            let disk = SimDisk::new();
            let log = open(&disk, &options);
            fill(&log, 1, 1, 50);
            log.compact_to(1, 45).unwrap();
            log.sync().unwrap();
            (disk, log)
        };
        let end = |log: &RaftLog| {
            let _ = log.purge_stale();
            let _ = log.close();
        };
        let (disk, log) = begin();
        let begun = disk.op_count();
        end(&log);
        assert!(log.stats().purged_files >= 3);
        for op in begun..=disk.op_count() {
            let (disk, log) = begin();
            disk.die_after(op);
            end(&log);
            for seed in 0..20 {
                let left = disk.after_power_loss(Survivors::Sample { seed });
                let log = open(&left, &options);
                assert_eq!(log.recovery().stale, [] as [&Path; 0], "dead after {op}, seed {seed}");
                assert_eq!((log.first_index(1), log.last_index(1)), (Some(45), Some(50)));
            }
        }
    }
}
