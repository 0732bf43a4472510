//! Files of a Raft log are given up, moved on and written over while others read and write, in thousands of schedules: nothing that is
//! read is wrong or gone, no batch is seen in part, and a log that is opened again is what it was when it was left.
//!
//! The whole log runs here, over a model of its locks (see `Cargo.toml`) and on the simulated disk.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker_env::sim::SimDisk;
use esker_models_raft_log::{Error, LogBatch, Options, RaftLog, Refusal};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

/// In how many random schedules each scene runs, and in how many with few, well chosen preemptions.
const SCHEDULES: usize = 300;

/// Entries that the scene begins with, of each group.
const OLD: u64 = 6;

fn check(scene: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    // Below the log lies the simulated disk.
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(SCHEDULES), config.clone()).run(scene.clone());
    Runner::new(PctScheduler::new(3, SCHEDULES), config).run(scene);
}

/// Two entries fill a file, a purge is due when there are five files, and one or two that it gives up are kept to be written over.
fn options() -> Options {
    Options {
        file_bytes: 1 << 10,
        purge_threshold_bytes: 4 << 10,
        recovery_threads: 1,
        compress_from_bytes: 0,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> RaftLog {
    RaftLog::open_with_env("/log", options(), disk.env()).unwrap()
}

/// What entry `index` of `group` is, in its `life`-th life.
fn entry(group: u64, index: u64, life: u8) -> Vec<u8> {
    let mut bytes = vec![life; 500];
    bytes.extend([group as u8, index as u8]);
    bytes
}

fn append(log: &RaftLog, group: u64, index: u64, life: u8) {
    let mut batch = LogBatch::new();
    batch.add_entries(group, index, [entry(group, index, life)]).unwrap();
    batch.put(group, b"last", &index.to_le_bytes()).unwrap();
    log.write(&mut batch, false).unwrap();
}

/// A key of group 1, and groups 1 to 3 with [`OLD`] entries each, in several files: 3 in files of its own, before entry `third` of the others.
fn scene(third: u64) -> (SimDisk, RaftLog) {
    let disk = SimDisk::new();
    let log = open(&disk);
    let mut batch = LogBatch::new();
    batch.put(1, b"gone", b"0").unwrap();
    log.write(&mut batch, false).unwrap();
    for index in 1..=OLD {
        for index in (1..=OLD).filter(|_| index == third) {
            append(&log, 3, index, 0);
        }
        append(&log, 1, index, 0);
        append(&log, 2, index, 0);
    }
    (disk, log)
}

/// Everything that a group holds.
type Content = (Vec<(u64, Vec<u8>)>, Vec<(Box<[u8]>, Arc<[u8]>)>);

fn content(log: &RaftLog, group: u64) -> Content {
    let mut entries = Vec::new();
    if let (Some(first), Some(last)) = (log.first_index(group), log.last_index(group)) {
        log.for_each_entry(group, first, last + 1, |index, bytes| {
            entries.push((index, bytes.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    (entries, log.keys(group, None, None))
}

/// What is found is what was written, and is found again by the next life.
fn assert_same_after_reopening(disk: &SimDisk, log: &RaftLog) {
    let left = [1, 2, 3, 4].map(|group| content(log, group));
    let again = open(&disk.after_process_death());
    assert_eq!([1, 2, 3, 4].map(|group| content(&again, group)), left);
    log.close().unwrap();
    let again = open(disk);
    assert_eq!([1, 2, 3, 4].map(|group| content(&again, group)), left);
}

/// An entry that nobody may have taken away, or one that somebody compacts, is whole or not there.
fn read(log: &RaftLog, group: u64, index: u64, lives: u8) -> bool {
    let Some(found) = log.entry(group, index).unwrap() else { return false };
    assert!((0..lives).any(|life| found == entry(group, index, life)), "entry {index} of group {group}");
    true
}

fn is_compacted(error: &Error) -> bool {
    matches!(Refusal::of(error), Some(Refusal::Compacted { .. }))
}

/// Goal: who reads a group while one batch replaces what it says itself finds all of it as before the batch or as behind it.
#[test]
fn in_no_schedule_is_a_batch_seen_in_part() {
    check(|| {
        let disk = SimDisk::new();
        let log = open(&disk);
        append(&log, 1, 1, 0);
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                let mut batch = LogBatch::new();
                batch.add_entries(1, 2, [2, 3, 4].map(|index| entry(1, index, 1))).unwrap();
                batch.add_entries(2, 1, [entry(2, 1, 1)]).unwrap();
                batch.add_entries(1, 2, [entry(1, 2, 2)]).unwrap();
                log.write(&mut batch, false).unwrap();
            }
        });
        let last = log.last_index(1).unwrap();
        assert!([1, 2].contains(&last), "no entry {last} was ever there to stay");
        let found = log.entries(1, 1, last + 1, None).unwrap();
        assert!(found.get(1).is_none_or(|second| *second == entry(1, 2, 2)), "{found:?}");
        writer.join().unwrap();
        assert_eq!(log.entries(1, 1, 3, None).unwrap(), [entry(1, 1, 0), entry(1, 2, 2)]);
    });
}

/// Goal: files go only when nobody needs them: who reads entries that are being moved, or that lie beside such, finds them.
#[test]
fn in_no_schedule_are_entries_missed_that_nobody_took_away() {
    check(|| {
        let (disk, log) = scene(1);
        let purger = thread::spawn({
            let log = log.clone();
            move || {
                log.purge().unwrap();
                log.rewrite_again().unwrap();
            }
        });
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                log.compact_to(1, 4).unwrap();
                append(&log, 1, OLD + 1, 0);
            }
        });
        for index in 1..=OLD {
            assert!(read(&log, 2, index, 1), "nobody took it away");
            assert!(read(&log, 1, index, 1) || index < 4, "only what comes before 4 was compacted");
        }
        let some = log.entries(1, 2, OLD + 1, None);
        assert!(some.as_ref().map_or_else(is_compacted, |some| some.len() == 5), "{some:?}");
        purger.join().unwrap();
        writer.join().unwrap();
        assert_eq!((log.first_index(1), log.last_index(1)), (Some(4), Some(OLD + 1)));
        assert_same_after_reopening(&disk, &log);
    });
}

/// Goal: what is moved takes the place of nothing newer: entries that are replaced, keys that are put or deleted and groups that are cleaned
/// meanwhile stay so, now and after the files that said so are gone.
#[test]
fn in_no_schedule_does_what_is_moved_undo_a_write() {
    check(|| {
        let (disk, log) = scene(1);
        let purger = thread::spawn({
            let log = log.clone();
            move || {
                log.move_on(None).unwrap();
                log.move_on(None).unwrap();
            }
        });
        let cleaner = thread::spawn({
            let log = log.clone();
            move || {
                let mut batch = LogBatch::new();
                batch.clean(2);
                log.write(&mut batch, false).unwrap();
                append(&log, 4, 9, 0);
            }
        });
        // Another leader has another end of the log.
        append(&log, 1, 5, 1);
        assert_eq!((read(&log, 1, 5, 2), read(&log, 1, OLD, 1)), (true, false));
        let mut batch = LogBatch::new();
        batch.delete(1, b"gone");
        batch.put(1, b"vote", b"7").unwrap();
        log.write(&mut batch, true).unwrap();
        assert!(log.get(1, b"gone").is_none());
        purger.join().unwrap();
        cleaner.join().unwrap();
        log.move_on(None).unwrap();
        let (entries, keys) = content(&log, 1);
        assert_eq!(entries.last(), Some(&(5, entry(1, 5, 1))));
        let expected: [(&[u8], &[u8]); 2] = [(b"last", &5u64.to_le_bytes()), (b"vote", b"7")];
        assert!(keys.iter().map(|(key, value)| (&**key, &**value)).eq(expected), "{keys:?}");
        assert_eq!(log.groups(), [1, 3, 4]);
        assert_same_after_reopening(&disk, &log);
    });
}

/// Goal: a file that was given up is there for who reads it until it is read, whether files are removed or written over.
#[test]
fn in_no_schedule_does_a_file_go_or_change_that_is_read() {
    // The oldest files are removed, and some of the newest are written over.
    for (recycle_files, third) in [(true, 1), (true, OLD), (false, 1)] {
        check(move || {
            let (disk, log) = scene(third);
            drop(log);
            // Of files that were written by an earlier life nothing is in memory, nor are they open.
            let log = RaftLog::open_with_env("/log", Options { recycle_files, ..options() }, disk.env()).unwrap();
            let purger = thread::spawn({
                let log = log.clone();
                move || {
                    for group in [1, 3] {
                        log.compact_to(group, OLD).unwrap();
                    }
                    log.move_on(None).unwrap();
                    // Files that were given up take these.
                    for index in OLD + 1..=2 * OLD {
                        append(&log, 1, index, 0);
                    }
                }
            });
            let mut purger = Some(purger);
            for group in [3, 1, 2] {
                let shown = log.for_each_entry(group, 1, OLD + 1, |index, bytes| {
                    assert_eq!(bytes, entry(group, index, 0));
                    if let Some(purger) = purger.take() {
                        purger.join().unwrap();
                    }
                    ControlFlow::Continue(())
                });
                match shown {
                    Ok(shown) => assert_eq!(shown, OLD),
                    Err(error) => assert!(group != 2 && is_compacted(&error), "group {group}: {error}"),
                }
            }
            assert!(purger.is_none(), "group 2 was read");
            assert_same_after_reopening(&disk, &log);
        });
    }
}
