//! What purging a Raft log gives up and what it keeps, while others write, and when the process is killed again and again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use esker::env::sim::{Fault, SimDisk};
use esker::raft::{FileId, Listener, Moved, Options, Queue, Version};
use esker::{LogBatch, RaftLog};
use esker_torture::hooked::{Call, Meanwhile};
use esker_torture::raft::{Ledger, Op, Step, contents};

fn open(disk: &SimDisk, options: &Options) -> RaftLog {
    RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap()
}

/// Writes entries of a group until the append queue ends with this file.
fn fill(log: &RaftLog, group: u64, last_file: u64) {
    let mut batch = LogBatch::new();
    while log.stats().append.last_file < last_file {
        let next = log.last_index(group).map_or(1, |last| last + 1);
        batch.add_entries(group, next, [[7; 100]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
}

/// Goal: a group that is cleaned and begun anew while a purge is at it keeps what it has now, though files with that count as old before the
/// purge is over.
/// Method: while the rewrite queue is told who is gone, it is cleaned, begun anew, and many files follow.
#[test]
fn a_group_begun_anew_during_a_purge_keeps_what_it_has() {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 2 << 10, recovery_threads: 1, ..Options::default() };
    for quota in [None, Some(1 << 10)] {
        let options = Options { group_quota_bytes: quota, ..options.clone() };
        let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
        let log = RaftLog::open_with_env("/log", options.clone(), meanwhile.env(&disk)).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(7, 1, [b"old"]).unwrap();
        batch.put(8, b"key", b"value").unwrap();
        log.write(&mut batch, false).unwrap();
        batch.clean(8);
        log.write(&mut batch, false).unwrap();
        fill(&log, 9, 5);
        let other = log.clone();
        let is_told = |call: Call<'_>| matches!(call, Call::Sync(path) if path.extension().is_some_and(|found| found == "rewrite"));
        meanwhile.before(is_told, move || {
            let mut batch = LogBatch::new();
            batch.clean(7);
            other.write(&mut batch, false).unwrap();
            batch.add_entries(7, 50, [b"new"]).unwrap();
            batch.put(7, b"key", b"new").unwrap();
            other.write(&mut batch, true).unwrap();
            fill(&other, 10, 20);
        });
        log.purge().unwrap();
        assert!(meanwhile.is_done());
        log.compact_to(9, u64::MAX).unwrap();
        log.compact_to(10, u64::MAX).unwrap();
        fill(&log, 11, 24);
        log.move_on(None).unwrap();
        log.purge().unwrap();
        assert!(log.stats().append.first_file > 20, "what says that the group was cleaned is given up");
        drop(log);
        let log = open(&disk, &options);
        assert_eq!((log.first_index(7), log.last_index(7)), (Some(50), Some(50)), "{quota:?}");
        assert_eq!(log.entry(7, 50).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(log.get(7, b"key").as_deref(), Some(&b"new"[..]));
    }
}

/// Goal (P1): what entries replaced that had been moved does not come back, though those that replaced it are compacted, with more than there is, while
/// a purge is at it, and so the file with them goes in this purge.
/// Method: that is written while the rewrite queue is told of something else.
#[test]
fn what_was_replaced_does_not_come_back_for_a_compaction_during_a_purge() {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 1 << 20, recovery_threads: 1, ..Options::default() };
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let log = RaftLog::open_with_env("/log", options.clone(), meanwhile.env(&disk)).unwrap();
    let mut batch = LogBatch::new();
    batch.add_entries(7, 1, [b"old"; 32]).unwrap();
    batch.put(8, b"key", b"value").unwrap();
    log.write(&mut batch, false).unwrap();
    log.move_on(None).unwrap();
    fill(&log, 9, 3);
    batch.add_entries(7, 5, [b"new"]).unwrap();
    log.write(&mut batch, false).unwrap();
    fill(&log, 10, 4);
    batch.delete(8, b"key");
    batch.compact(9, u64::MAX);
    batch.compact(10, u64::MAX);
    log.write(&mut batch, false).unwrap();
    let other = log.clone();
    let is_told =
        |call: Call<'_>| matches!(call, Call::Sync(path) if path.extension().is_some_and(|found| found == "rewrite"));
    meanwhile.before(is_told, move || assert_eq!(other.compact_to(7, 6).unwrap(), 5));
    log.purge().unwrap();
    assert!(meanwhile.is_done());
    assert_eq!(log.stats().append.first_file, 4, "the file with what replaced it went");
    assert_eq!(log.first_index(7), None);
    drop(log);
    assert_eq!(open(&disk, &options).first_index(7), None);
}

/// Goal (F2): whoever is about to open a file, the first to read it, reads it though it is given up and removed meanwhile.
#[test]
fn a_file_that_is_removed_while_its_first_reader_opens_it_is_read() {
    let options = Options {
        file_bytes: 1 << 10,
        purge_threshold_bytes: 1 << 10,
        recycle_files: false,
        cache_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    };
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let log = RaftLog::open_with_env("/log", options, meanwhile.env(&disk)).unwrap();
    let mut batch = LogBatch::new();
    batch.add_entries(7, 1, [b"first"]).unwrap();
    log.write(&mut batch, false).unwrap();
    fill(&log, 9, 5);
    let (other, looked_at) = (log.clone(), disk.clone());
    let is_first = |call: Call<'_>| matches!(call, Call::Open(path) if path.ends_with("0000000000000001.raftlog"));
    meanwhile.before(is_first, move || {
        for group in [7, 9] {
            other.compact_to(group, u64::MAX).unwrap();
        }
        other.purge().unwrap();
        assert!(numbers(&looked_at)[0] > 1, "it is removed");
    });
    assert_eq!(log.entry(7, 1).unwrap().as_deref(), Some(&b"first"[..]));
    assert!(meanwhile.is_done());
}

/// Numbers of the files of the append queue.
fn numbers(disk: &SimDisk) -> Vec<u64> {
    let names = disk.env().files.list(Path::new("/log")).unwrap();
    names.iter().filter_map(|entry| entry.name.strip_suffix(".raftlog")?.parse().ok()).collect()
}

/// Goal: whoever kills a process finds files that wait to be written over next to those in use: the next one takes them for its own and gives
/// them up, so that they do not pile up.
#[test]
fn files_given_up_do_not_pile_up_where_processes_are_killed() {
    // Three files in use and waiting.
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 2 << 10, recovery_threads: 1, ..Options::default() };
    let (mut disk, mut ledger) = (SimDisk::new(), Ledger::default());
    for life in 0..5u64 {
        let log = open(&disk, &options);
        assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()), "life {life}");
        assert!(log.recovery().stale.is_empty(), "{:?}", log.recovery().stale);
        for index in 0..12 {
            let ops = vec![Op::Entries(1, 1 + life * 12 + index, vec![vec![index as u8; 400]])];
            ledger.step(&log, &Step::Write(ops, false)).unwrap();
        }
        ledger.step(&log, &Step::Write(vec![Op::Compact(1, 12 + life * 12)], false)).unwrap();
        ledger.step(&log, &Step::Purge).unwrap();
        assert!(log.stats().recycled_files > 0);
        let left = numbers(&disk);
        assert!(left.len() <= 3 && left.windows(2).all(|pair| pair[0] + 1 == pair[1]), "life {life}: {left:?}");
        // Before it is closed.
        disk = disk.after_process_death();
    }
}

/// Goal: files whose old bytes could not be told from new ones are not kept, nor any before them.
#[test]
fn files_of_an_older_version_are_not_kept() {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 4 << 10, recovery_threads: 1, ..Options::default() };
    let older = Options { format_version: Version::V1, recycle_files: false, ..options.clone() };
    let disk = SimDisk::new();
    let mut next = 1;
    for (options, until) in [(&options, 3), (&older, 6), (&options, 9)] {
        let log = open(&disk, options);
        fill(&log, 1, until);
        next = log.last_index(1).unwrap();
        log.close().unwrap();
    }
    let log = open(&disk, &options);
    log.compact_to(1, next).unwrap();
    log.purge().unwrap();
    let kept = numbers(&disk);
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{kept:?}");
    assert!(kept[0] > 6 && log.stats().recycled_files > 0, "{kept:?}");
    fill(&log, 1, 14);
    assert_eq!(log.entry(1, next).unwrap(), Some(vec![7; 100]));
}

/// Goal: a file that could not be removed keeps none behind it from being given up, and goes with the next that do.
#[test]
fn a_file_that_could_not_be_removed_goes_later() {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 2 << 10, recovery_threads: 1, ..Options::default() };
    let fill = |log: &RaftLog, ledger: &mut Ledger, from: u64| {
        for index in from..from + 12 {
            ledger.step(log, &Step::Write(vec![Op::Entries(1, index, vec![vec![7; 400]])], false)).unwrap();
        }
        ledger.step(log, &Step::Write(vec![Op::Compact(1, from + 11)], false)).unwrap();
    };
    let play = |disk: &SimDisk, fail: Option<u64>| {
        let log = open(disk, &options);
        let mut ledger = Ledger::default();
        fill(&log, &mut ledger, 1);
        disk.set_tracing(true);
        if let Some(n) = fail {
            disk.fail_at(n, Fault::Eio);
        }
        let purged = ledger.step(&log, &Step::Purge);
        assert_eq!(purged.is_err(), fail.is_some());
        (log, ledger)
    };
    let healthy = SimDisk::new();
    let played = play(&healthy, None);
    let removals = esker_torture::crash::operations(&healthy, 0, "remove");
    drop(played);
    assert!(removals.len() >= 2, "{:?}", healthy.trace());
    for n in removals {
        let disk = SimDisk::new();
        let (log, mut ledger) = play(&disk, Some(n));
        for disk in [disk.after_process_death(), disk.clone()] {
            let kept = numbers(&disk);
            assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "removal {n}: {kept:?}");
        }
        fill(&log, &mut ledger, 13);
        ledger.step(&log, &Step::Purge).unwrap();
        let left: BTreeSet<u64> = numbers(&disk).into_iter().collect();
        assert!(left.len() <= 3, "removal {n}: {left:?}");
        assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()));
        drop(log);
        assert_eq!(contents(&open(&disk, &options)).unwrap(), ledger.after(ledger.batches.len()));
    }
}

/// Goal: what says that groups are gone is garbage, too: however many come and go, the rewrite queue stays short.
#[test]
fn groups_that_come_and_go_do_not_pile_up() {
    let options =
        Options { file_bytes: 1 << 10, purge_threshold_bytes: 4 << 10, recovery_threads: 1, ..Options::default() };
    for live in [0, 100] {
        let disk = SimDisk::new();
        let mut log = open(&disk, &options);
        let mut batch = LogBatch::new();
        for group in 1..=live {
            batch.put(group, b"key", b"value").unwrap();
            log.write(&mut batch, false).unwrap();
        }
        log.move_on(None).unwrap();
        let mut most = 0;
        for round in 0..300 {
            for group in (1_000..).skip(10 * round).take(10) {
                match round % 3 {
                    0 => batch.put(group, b"key", b"value").unwrap(),
                    1 => batch.add_entries(group, 1, [b"entry"]).unwrap(),
                    _ => batch.compact(group, 10),
                }
                log.write(&mut batch, false).unwrap();
                batch.clean(group);
                log.write(&mut batch, false).unwrap();
            }
            if round % 2 == 0 {
                log.move_on(None).unwrap();
            }
            log.purge().unwrap();
            most = most.max(log.stats().rewrite.bytes);
            if round % 100 == 50 {
                log.close().unwrap();
                log = open(&disk, &options);
            }
        }
        assert!(most < (4 + live / 10) << 10, "{live} groups live: {most} bytes");
        assert_eq!(log.groups(), (1..=live).collect::<Vec<_>>());
    }
}

/// Goal: files of the rewrite queue that nobody needs go, though little enough of it is dead that nothing is rewritten.
#[test]
fn files_at_the_front_of_the_rewrite_queue_go_by_themselves() {
    let options = Options {
        file_bytes: 1 << 10,
        purge_threshold_bytes: 4 << 10,
        purge_rewrite_garbage_ratio: 1.0,
        recovery_threads: 1,
        ..Options::default()
    };
    let disk = SimDisk::new();
    let mut log = open(&disk, &options);
    let mut batch = LogBatch::new();
    for group in 1..=40 {
        batch.add_entries(group, 1, [[7; 500]]).unwrap();
        batch.put(group, b"key", &group.to_le_bytes()).unwrap();
        log.write(&mut batch, false).unwrap();
        log.move_on(None).unwrap();
    }
    let before = log.stats().rewrite;
    assert!(before.first_file + 10 < before.last_file, "{before:?}");
    log.purge().unwrap();
    assert_eq!(log.stats().rewrite.first_file, before.first_file, "all of it is needed");
    for group in (1..=40).filter(|group| *group != 30) {
        batch.compact(group, 2);
        batch.put(group, b"key", b"new").unwrap();
        log.write(&mut batch, false).unwrap();
    }
    log.purge().unwrap();
    let after = log.stats().rewrite;
    assert!(after.first_file > before.first_file + 10 && after.bytes < before.bytes / 2, "{before:?}, {after:?}");
    for _ in 0..2 {
        for group in 1..=40u64 {
            let (value, entry) =
                if group == 30 { (group.to_le_bytes().to_vec(), Some(1)) } else { (b"new".to_vec(), None) };
            assert_eq!(log.get(group, b"key").as_deref(), Some(&value[..]));
            assert_eq!(log.first_index(group), entry);
        }
        log.close().unwrap();
        log = open(&disk, &options);
    }
}

/// Goal: small groups are synced together, however many are moved: for a disk that takes a millisecond for each, a thousand would be a second.
#[test]
fn groups_that_are_moved_share_a_sync() {
    for quota in [None, Some(4 << 10)] {
        let options = Options {
            file_bytes: 8 << 10,
            purge_rewrite_threshold_bytes: Some(1 << 20),
            group_quota_bytes: quota,
            recovery_threads: 1,
            ..Options::default()
        };
        let disk = SimDisk::new();
        let log = open(&disk, &options);
        let mut batch = LogBatch::new();
        for group in 1..=100 {
            batch.add_entries(group, 1, [[7; 5]]).unwrap();
            batch.put(group, b"key", b"value").unwrap();
            log.write(&mut batch, false).unwrap();
        }
        fill(&log, 200, 4);
        batch.clean(200);
        log.write(&mut batch, false).unwrap();
        disk.set_tracing(true);
        if quota.is_none() {
            log.move_on(None).unwrap()
        } else {
            drop(log.purge().unwrap())
        }
        assert!(log.stats().append.first_file > 1, "they were moved");
        let is_sync = |line: &&String| line.contains(" sync ") && line.ends_with(".rewrite");
        let syncs: Vec<String> = disk.trace().iter().filter(is_sync).cloned().collect();
        // And that group 200 is gone.
        assert_eq!(syncs.len(), 2, "{syncs:?}");
    }
}

/// Tells a test of what the log's own thread does.
struct Tells(Mutex<mpsc::Sender<Told>>);

#[derive(Debug)]
enum Told {
    Moved(Moved),
    Purged(FileId),
}

impl Listener for Tells {
    fn moved(&self, moved: &Moved) {
        let _ = self.0.lock().unwrap().send(Told::Moved(*moved));
    }

    fn purged(&self, file: FileId) {
        let _ = self.0.lock().unwrap().send(Told::Purged(file));
    }
}

/// Goal: a log that purges by itself moves a group that keeps too much of it, and gives the files up that only that one needed, though nobody asks for it
/// and the log is not yet longer than it may be.
#[test]
fn a_log_with_an_interval_keeps_its_quota_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        file_bytes: 1 << 10,
        group_quota_bytes: Some(8 << 10),
        purge_interval: Some(Duration::from_millis(1)),
        ..Options::default()
    };
    let (teller, told) = mpsc::channel();
    let listeners: Vec<Arc<dyn Listener>> = vec![Arc::new(Tells(Mutex::new(teller)))];
    let log = RaftLog::open_with(dir.path(), options.clone(), esker::env::Env::os(), listeners).unwrap();
    let mut ledger = Ledger::default();
    let old = vec![Op::Entries(1, 1, vec![b"old".to_vec(); 3]), Op::Put(1, b"key".to_vec(), b"old".to_vec())];
    ledger.step(&log, &Step::Write(old, false)).unwrap();
    for index in 1..=30u64 {
        let ops = vec![Op::Entries(2, index, vec![vec![index as u8; 900]]), Op::Compact(2, index)];
        ledger.step(&log, &Step::Write(ops, false)).unwrap();
    }
    let (mut moved, mut purged) = (None, 0);
    while moved.is_none() || purged + 1 < log.stats().append.last_file {
        match told.recv_timeout(Duration::from_secs(60)).expect("the log's own thread is at it") {
            Told::Moved(this) => assert_eq!(moved.replace(this), None, "once"),
            Told::Purged(file) if file.queue == Queue::Append => {
                assert!(moved.is_some(), "file 1 is needed until then");
                purged = file.sequence;
            }
            Told::Purged(_) => {}
        }
    }
    let moved = moved.unwrap();
    assert_eq!((moved.group, moved.first_index, moved.entries), (1, 1, 3));
    assert!(moved.pinned_bytes > 8 << 10, "{moved:?}");
    log.close().unwrap();
    assert_eq!(log.stats().purge_error, None);
    drop(log);
    let log = RaftLog::open(dir.path(), options).unwrap();
    assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()));
}
