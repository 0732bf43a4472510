//! The Raft log answers as a map of groups does, under any options, through restarts and purges.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker::env::sim::SimDisk;
use esker::env::{Env, Error};
use esker::raft::{ErrorKind, FilterOptions, Offered, Options, Refusal, Renewed, Verdict};
use esker::{LogBatch, RaftLog};
use esker_torture::crash::disk;
use esker_torture::hooked::{Call, Hooked, Meanwhile};
use esker_torture::raft::{Contents, Ledger, Op, Step, apply, batch, contents, encode, options, steps};
use esker_torture::seeds;
use fastrand::Rng;

/// Goal: whatever is written, purged, moved and reopened, every entry and key is what the model says.
#[test]
fn answers_are_those_of_a_map() {
    let (mut purged, mut rewritten) = (0, 0);
    for seed in seeds(80) {
        let mut random = Rng::with_seed(seed);
        let (disk, options) = (disk(seed), options(&mut random));
        let steps = steps(&mut random, 150);
        let mut ledger = Ledger::default();
        let mut log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
        for (at, step) in steps.iter().enumerate() {
            ledger.step(&log, step).unwrap_or_else(|error| panic!("ESKER_SEED={seed}, step {at}: {error}"));
            if at % 10 == 9 {
                let found = contents(&log).unwrap_or_else(|error| panic!("ESKER_SEED={seed}, step {at}: {error}"));
                assert_eq!(found, ledger.after(ledger.batches.len()), "ESKER_SEED={seed}, step {at}");
            }
            if random.u8(..20) == 0 {
                purged += log.stats().purged_files;
                rewritten += log.stats().rewritten_bytes;
                log.close().unwrap();
                drop(log);
                log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
                let found = contents(&log).unwrap();
                assert_eq!(found, ledger.after(ledger.batches.len()), "ESKER_SEED={seed}, step {at}, reopened");
            }
        }
    }
    // A few seeds alone need not.
    let is_whole = seeds(80).count() >= 80;
    assert!(!is_whole || purged > 100 && rewritten > 10_000, "the scene does what it is for: {purged}, {rewritten}");
}

/// Goal: the same with threads of recovery as without.
#[test]
fn recovery_in_parallel_finds_the_same() {
    for seed in seeds(20) {
        let mut random = Rng::with_seed(1000 + seed);
        let (disk, options) = (disk(seed), options(&mut random));
        let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
        let mut ledger = Ledger::default();
        for step in steps(&mut random, 200) {
            ledger.step(&log, &step).unwrap();
        }
        drop(log);
        for recovery_threads in [1, 2, 5] {
            let options = Options { recovery_threads, ..options.clone() };
            let log = RaftLog::open_with_env("/log", options, disk.after_process_death().env()).unwrap();
            assert_eq!(contents(&log).unwrap(), ledger.after(ledger.batches.len()), "ESKER_SEED={seed}");
        }
    }
}

/// Goal: a gap and a compacted index are typed errors; nothing is written, and the batch can be written elsewhere.
#[test]
fn gaps_and_compacted_indexes_are_refused() {
    let log = RaftLog::open_with_env("/log", Options::default(), SimDisk::new().env()).unwrap();
    let mut one = LogBatch::new();
    one.add_entries(1, 10, [b"ten", b"11."]).unwrap();
    log.write(&mut one, false).unwrap();
    log.compact_to(1, 11).unwrap();
    let before = log.stats();
    for (first, refusal) in [
        (14, Refusal::Gap { group: 1, index: 14, next: 12 }),
        (10, Refusal::Compacted { group: 1, index: 10, first: 11 }),
    ] {
        let mut bad = LogBatch::new();
        bad.put(2, b"key", b"value").unwrap();
        bad.add_entries(1, first, [b"bad"]).unwrap();
        let same = bad.clone();
        let error = log.write(&mut bad, true).unwrap_err();
        assert_eq!((error.kind(), Refusal::of(&error)), (ErrorKind::InvalidArgument, Some(refusal)), "{error}");
        assert_eq!(bad, same, "the batch is as it was");
        assert_eq!(log.get(2, b"key"), None, "not even in part");
    }
    assert_eq!(log.stats().written_bytes, before.written_bytes);
    let found = |begin, end| Refusal::of(&log.entries(1, begin, end, None).unwrap_err());
    assert_eq!(found(10, 12), Some(Refusal::Compacted { group: 1, index: 10, first: 11 }));
    assert_eq!(found(11, 13), Some(Refusal::Missing { group: 1, index: 12 }));
    assert_eq!(log.entries(1, 11, 12, None).unwrap(), [b"11."]);
    assert_eq!(log.entry(1, 10).unwrap(), None);
    assert!(log.entries(1, 12, 11, None).unwrap().is_empty());
    let mut within = LogBatch::new();
    within.add_entries(1, 12, [b"12."]).unwrap();
    within.add_entries(1, 14, [b"gap"]).unwrap();
    assert!(log.write(&mut within, false).is_err(), "a gap within one batch");
    assert_eq!(log.last_index(1), Some(11));
}

/// Goal: a fetch takes as many bytes as it may, and one entry at least.
#[test]
fn fetches_keep_to_their_limit() {
    let log = RaftLog::open_with_env("/log", Options::default(), SimDisk::new().env()).unwrap();
    let mut batch = LogBatch::new();
    batch.add_entries(1, 1, [[0u8; 100]; 10]).unwrap();
    log.write(&mut batch, false).unwrap();
    for (limit, count) in [(None, 10), (Some(0), 1), (Some(99), 1), (Some(100), 1), (Some(250), 2), (Some(5000), 10)] {
        assert_eq!(log.entries(1, 1, 11, limit).unwrap().len(), count, "{limit:?}");
    }
}

/// Goal: what is gone stays gone when the files that say so are given up, over any number of restarts (B1).
#[test]
fn nothing_comes_back_from_the_rewrite_queue() {
    let disk = SimDisk::new();
    let options = Options { file_bytes: 1024, purge_threshold_bytes: 1024, ..Options::default() };
    let open = || RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    let log = open();
    let mut batch = LogBatch::new();
    batch.add_entries(1, 1, [b"old"; 20]).unwrap();
    batch.put(1, b"gone", b"old").unwrap();
    batch.put(1, b"kept", b"old").unwrap();
    batch.add_entries(2, 1, [b"old"; 5]).unwrap();
    log.write(&mut batch, false).unwrap();
    log.move_on(None).unwrap();
    let mut batch = LogBatch::new();
    batch.compact(1, 15);
    batch.delete(1, b"gone");
    batch.put(1, b"kept", b"new").unwrap();
    batch.clean(2);
    log.write(&mut batch, false).unwrap();
    for _ in 0..3 {
        log.move_on(None).unwrap();
    }
    log.close().unwrap();
    let (log, _) = (open(), drop(log));
    assert_eq!((log.first_index(1), log.last_index(1)), (Some(15), Some(20)));
    assert_eq!(log.get(1, b"gone"), None);
    assert_eq!(log.get(1, b"kept").as_deref(), Some(&b"new"[..]));
    assert_eq!(log.groups(), [1]);
}

/// Goal: a range of a group's keys is what lies from its first bound on up to but not including its second, an open one being none; other
/// groups and all entries stay; and what was deleted stays so when the files that say it are given up.
#[test]
fn a_range_of_keys_is_deleted_for_good() {
    let bounds = [None, Some("b"), Some("c"), Some("cc"), Some("z")];
    let options = Options { file_bytes: 1024, purge_threshold_bytes: 1024, ..Options::default() };
    for (from, to) in bounds.iter().flat_map(|from| bounds.map(|to| (*from, to))) {
        let (disk, what) = (SimDisk::new(), format!("{from:?}..{to:?}"));
        let open = || RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
        let (log, mut expected) = (open(), Contents::new());
        for group in 1..=3 {
            let mut ops = vec![Op::Entries(group, 1, vec![b"entry".to_vec()])];
            ops.extend(["a", "b", "c", "cc", "d"].map(|key| Op::Put(group, key.into(), vec![group as u8; 300])));
            log.write(&mut encode(&ops).unwrap(), false).unwrap();
            apply(&mut expected, &ops);
        }
        // In the rewrite queue, too.
        log.move_on(None).unwrap();
        let newer = [Op::Put(2, b"c".to_vec(), b"newer".to_vec())];
        log.write(&mut encode(&newer).unwrap(), false).unwrap();
        apply(&mut expected, &newer);
        let keys = &mut expected.get_mut(&2).unwrap().keys;
        let before = keys.len();
        keys.retain(|key, _| {
            from.is_some_and(|from| &key[..] < from.as_bytes()) || to.is_some_and(|to| &key[..] >= to.as_bytes())
        });
        let gone = before - keys.len();
        let delete = || log.delete_range(2, from.map(str::as_bytes), to.map(str::as_bytes), false).unwrap();
        assert_eq!((delete(), delete()), (gone, 0), "{what}");
        assert_eq!(log.delete_range(9, None, None, false).unwrap(), 0, "no such group");
        assert_eq!(contents(&log).unwrap(), expected, "{what}");
        log.move_on(None).unwrap();
        log.rewrite_again().unwrap();
        log.close().unwrap();
        drop(log);
        assert_eq!(contents(&open()).unwrap(), expected, "{what}, reopened");
    }
}

/// Goal: entries that were moved, then replaced by one of another leader, stay gone when that one is compacted, with more than there is, before
/// it is moved itself.
#[test]
fn what_was_replaced_stays_gone_when_what_replaced_it_is() {
    let disk = SimDisk::new();
    let open = || RaftLog::open_with_env("/log", Options::default(), disk.env()).unwrap();
    let log = open();
    let mut batch = LogBatch::new();
    for group in [1, 2] {
        batch.add_entries(group, 1, [b"old"; 20]).unwrap();
    }
    log.write(&mut batch, false).unwrap();
    log.move_on(None).unwrap();
    for group in [1, 2] {
        batch.add_entries(group, 10, [b"new"]).unwrap();
        log.write(&mut batch, false).unwrap();
        log.compact_to(group, 15).unwrap();
    }
    batch.add_entries(2, 18, [b"new"]).unwrap();
    log.write(&mut batch, false).unwrap();
    drop(log);
    let log = open();
    assert_eq!((log.first_index(1), log.last_index(1)), (None, None));
    assert_eq!((log.first_index(2), log.last_index(2)), (Some(18), Some(18)));
}

/// Goal: one group that nobody compacts pins no more than its quota, and it is reported.
#[test]
fn a_lagging_group_is_moved_on() {
    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<esker::raft::Moved>>);
    impl esker::raft::Listener for Heard {
        fn moved(&self, moved: &esker::raft::Moved) {
            self.0.lock().unwrap().push(*moved);
        }
    }
    let heard = std::sync::Arc::new(Heard::default());
    let options = Options {
        file_bytes: 4096,
        purge_threshold_bytes: 1 << 20,
        group_quota_bytes: Some(16 << 10),
        ..Options::default()
    };
    let log = RaftLog::open_with("/log", options, SimDisk::new().env(), vec![heard.clone()]).unwrap();
    let mut batch = LogBatch::new();
    batch.add_entries(7, 1, [[1u8; 20]; 50]).unwrap();
    log.write(&mut batch, false).unwrap();
    for index in 1..200 {
        batch.add_entries(8, index, [[2u8; 500]]).unwrap();
        log.write(&mut batch, false).unwrap();
        log.compact_to(8, index).unwrap();
        assert!(log.purge().unwrap().is_empty(), "the log is short: nobody is asked to compact");
        assert!(log.stats().append.bytes < 32 << 10, "{:?}", log.stats());
    }
    let moved = heard.0.lock().unwrap();
    let first = moved.first().unwrap();
    assert_eq!((first.group, first.first_index, first.entries), (7, 1, 50));
    assert!(first.pinned_bytes > 16 << 10);
    assert_eq!(log.entries(7, 1, 51, None).unwrap(), vec![vec![1u8; 20]; 50]);
}

/// Goal: groups in tens of thousands, each with a little, read back, through a purge and a restart.
#[test]
fn tens_of_thousands_of_groups() {
    let disk = SimDisk::new();
    let options = Options { file_bytes: 1 << 20, purge_threshold_bytes: 1 << 20, ..Options::default() };
    let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    const GROUPS: u64 = 20_000;
    let mut batch = LogBatch::new();
    for round in 0..3u64 {
        for group in 0..GROUPS {
            batch.add_entries(group, 1 + round, [[group.to_le_bytes(), round.to_le_bytes()].concat()]).unwrap();
            batch.put(group, b"state", &round.to_le_bytes()).unwrap();
            if group % 100 == 99 {
                log.write(&mut batch, false).unwrap();
            }
        }
        log.purge().unwrap();
    }
    assert!(log.stats().rewritten_entries > 0, "some were moved");
    let check = |log: &RaftLog| {
        assert_eq!(log.groups().len() as u64, GROUPS);
        for group in 0..GROUPS {
            let entries = log.entries(group, 1, 4, None).unwrap();
            for (round, entry) in (0u64..).zip(&entries) {
                assert_eq!(*entry, [group.to_le_bytes(), round.to_le_bytes()].concat());
            }
            assert_eq!(log.get(group, b"state").as_deref(), Some(&2u64.to_le_bytes()[..]));
        }
    };
    check(&log);
    log.close().unwrap();
    check(&RaftLog::open_with_env("/log", options, disk.env()).unwrap());
}

/// Goal: writers, readers and purging at once: every reader sees a prefix of its group, whole entries, right bytes.
#[test]
fn readers_see_whole_entries_while_files_come_and_go() {
    let options = Options {
        file_bytes: 4096,
        purge_threshold_bytes: 8192,
        purge_rewrite_threshold_bytes: Some(4096),
        purge_rewrite_garbage_ratio: 0.2,
        ..Options::default()
    };
    let dir = std::env::temp_dir().join(format!("esker-raft-threads-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let log = RaftLog::open(&dir, options.clone()).unwrap();
    let value = |group: u64, index: u64| vec![(group * 31 + index * 7) as u8; 40 + (index % 60) as usize];
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|group| {
                let log = log.clone();
                scope.spawn(move || {
                    let mut batch = LogBatch::new();
                    for index in 1..1500u64 {
                        batch.add_entries(group, index, [value(group, index)]).unwrap();
                        batch.put(group, b"last", &index.to_le_bytes()).unwrap();
                        if index > 40 {
                            batch.compact(group, index - 40);
                        }
                        log.write(&mut batch, index % 200 == 0).unwrap();
                    }
                })
            })
            .collect();
        let reading = log.clone();
        let reader = scope.spawn(move || {
            let log = reading;
            let mut seen = 0u64;
            while !writers.iter().all(|writer| writer.is_finished()) {
                for group in 0..4 {
                    let Some((first, last)) = log.first_index(group).zip(log.last_index(group)) else { continue };
                    match log.entries(group, first, last + 1, None) {
                        Ok(entries) => {
                            for (index, bytes) in (first..).zip(&entries) {
                                assert_eq!(*bytes, value(group, index));
                            }
                            seen += entries.len() as u64;
                        }
                        Err(error) => assert!(Refusal::of(&error).is_some(), "{error}"),
                    }
                }
            }
            seen
        });
        while !reader.is_finished() {
            log.purge().unwrap();
        }
        assert!(reader.join().unwrap() > 0);
    });
    assert!(log.stats().purged_files > 10);
    for group in 0..4 {
        assert_eq!(log.last_index(group), Some(1499));
    }
    log.close().unwrap();
    drop(log);
    let log = RaftLog::open(&dir, options).unwrap();
    for group in 0..4 {
        let entries = log.entries(group, 1459, 1500, None).unwrap();
        assert!((1459..).zip(&entries).all(|(index, bytes)| *bytes == value(group, index)));
    }
    drop(log);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Goal: batches merged are the batches one after the other.
#[test]
fn merged_batches_do_what_both_do() {
    let mut random = Rng::with_seed(7);
    let log = RaftLog::open_with_env("/log", Options::default(), SimDisk::new().env()).unwrap();
    let mut model = Contents::new();
    for _ in 0..300 {
        let (mut whole, mut ops) = (LogBatch::new(), Vec::new());
        for _ in 0..3 {
            let more = batch(&mut random, &model, 4);
            apply(&mut model, &more);
            whole.merge(&mut encode(&more).unwrap()).unwrap();
            ops.extend(more);
        }
        log.write(&mut whole, false).unwrap();
        assert_eq!(contents(&log).unwrap(), model, "{ops:?}");
    }
    let mut ledger = Ledger::default();
    ledger.step(&log, &Step::Sync).unwrap();
}

/// Goal: a fork made while others write holds a prefix of what was written; both then go their own way.
#[test]
fn a_fork_is_a_log_of_its_own() {
    let mut random = Rng::with_seed(11);
    let disk = SimDisk::new();
    let options = Options { file_bytes: 2048, purge_threshold_bytes: 4096, ..Options::default() };
    let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    let mut ledger = Ledger::default();
    for step in steps(&mut random, 150) {
        ledger.step(&log, &step).unwrap();
    }
    let made = log.fork("/fork").unwrap();
    assert!(!made.linked.is_empty() && made.copied.len() == 2, "{made:?}");
    assert_eq!(log.fork("/fork").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let at_fork = contents(&log).unwrap();
    // What is durable is enough: the power goes right after.
    let lost = disk.after_power_loss(esker::env::sim::Survivors::Nothing);
    let fork = RaftLog::open_with_env("/fork", options.clone(), lost.env()).unwrap();
    assert_eq!(contents(&fork).unwrap(), at_fork);
    drop(fork);
    // The source purges and recycles what both share; the fork does not notice.
    let fork = RaftLog::open_with_env("/fork", options.clone(), disk.env()).unwrap();
    let mut batch = LogBatch::new();
    for index in 0..100u64 {
        batch.put(99, &index.to_le_bytes(), &[7; 300]).unwrap();
        log.write(&mut batch, false).unwrap();
        log.purge().unwrap();
    }
    log.move_on(None).unwrap();
    log.rewrite_again().unwrap();
    assert_eq!(contents(&fork).unwrap(), at_fork);
    fork.compact_to(1, u64::MAX).unwrap();
    fork.close().unwrap();
    assert_eq!(log.keys(99, None, None).len(), 100);
}

/// Goal: a closed log shows no entry: whoever opens it next may write over what its handle remembers the place of.
#[test]
fn a_closed_log_shows_no_entries() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        file_bytes: 16 << 10,
        purge_threshold_bytes: 32 << 10,
        compress_from_bytes: 0,
        recovery_threads: 1,
        ..Options::default()
    };
    let fill = |log: &RaftLog, byte: u8, count: u64| {
        let mut batch = LogBatch::new();
        for _ in 0..count {
            let next = log.last_index(1).map_or(1, |last| last + 1);
            batch.add_entries(1, next, [[byte; 1000]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
    };
    let old = RaftLog::open(dir.path(), options.clone()).unwrap();
    fill(&old, 1, 40);
    assert_eq!(old.entry(1, 1).unwrap(), Some(vec![1; 1000]));
    assert_eq!(old.entry(1, 40).unwrap(), Some(vec![1; 1000]));
    // Who is reading keeps the next from writing.
    let reopened = || RaftLog::open(dir.path(), options.clone()).map(drop).map_err(|error| error.kind());
    let shown = old.with_entry(1, 2, |bytes| {
        old.close().unwrap();
        assert_eq!(reopened(), Err(ErrorKind::Busy));
        assert_eq!(bytes, [1; 1000]);
    });
    assert!(shown.unwrap());
    let new = RaftLog::open(dir.path(), options.clone()).unwrap();
    new.compact_to(1, 40).unwrap();
    new.purge().unwrap();
    fill(&new, 2, 40);
    for index in [1, 2, 40] {
        let shown = old.entry(1, index).map_err(|error| error.kind());
        assert_eq!(shown, Err(ErrorKind::Closed), "entry {index}");
        assert_eq!(old.entries(1, index, index + 1, None).unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(new.entry(1, 40).unwrap(), Some(vec![1; 1000]));
}

/// Goal: a filter sees the log as it is once it has the right to it, not as whoever had that before found it.
#[test]
fn a_filter_sees_what_is_there_when_it_has_the_right() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let options = Options { file_bytes: 1 << 10, purge_threshold_bytes: 1 << 10, ..Options::default() };
    let open = |disk: &SimDisk, options: &Options| RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    let fill = |log: &RaftLog, first: u64| {
        for index in first..first + 20 {
            let mut batch = LogBatch::new();
            batch.add_entries(1, index, [[7; 100]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
    };
    fill(&open(&disk, &options), 1);
    let (beside, theirs) = (disk.clone(), options.clone());
    meanwhile.before(
        |call| call.path().ends_with("LOCK"),
        move || {
            let log = open(&beside, &theirs);
            fill(&log, 21);
            log.compact_to(1, 21).unwrap();
            log.purge().unwrap();
        },
    );
    let mut last = 0;
    let mut decide = |_, _, offered: Offered| {
        if let Offered::Entries { last: found, .. } = offered {
            last = found;
        }
        Ok(Verdict::Keep)
    };
    let env = meanwhile.env(&disk);
    RaftLog::filter("/log", &options, &env, &FilterOptions::default(), &mut decide).unwrap();
    assert!(meanwhile.is_done());
    assert_eq!(last, 40);
}

/// Goal: a log that is said to be closed is, also by one who closes it while another does.
#[test]
fn who_closes_a_log_that_is_being_closed_waits_until_it_is() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let options = Options { file_bytes: 64 << 10, ..Options::default() };
    let log = RaftLog::open_with_env("/log", options, meanwhile.env(&disk)).unwrap();
    let (other, (said, heard)) = (log.clone(), std::sync::mpsc::channel());
    let is_sync = |call: Call<'_>| matches!(call, Call::Sync(_));
    let second = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&second);
    meanwhile.before(is_sync, move || {
        let close = move || {
            other.close().unwrap();
            // Nobody listens for long.
            let _ = said.send(());
        };
        *begun.lock().unwrap() = Some(std::thread::spawn(close));
        // It would have come back long ago.
        assert!(heard.recv_timeout(std::time::Duration::from_millis(100)).is_err(), "the log is still being closed");
    });
    log.close().unwrap();
    assert!(meanwhile.is_done());
    second.lock().unwrap().take().unwrap().join().unwrap();
}

/// Goal: a filter that fails, or is killed, leaves nothing behind that nobody takes away.
#[test]
fn a_filter_that_fails_leaves_no_copies() {
    let disk = SimDisk::new();
    let options = Options { file_bytes: 1 << 10, purge_threshold_bytes: 1 << 20, ..Options::default() };
    let open = || RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    let log = open();
    for index in 1..=40 {
        let mut batch = LogBatch::new();
        batch.add_entries(1, index, [[7; 100]]).unwrap();
        batch.put(2, b"key", &index.to_le_bytes()).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    let keys = log.keys(2, None, None);
    log.close().unwrap();
    let copies = || disk.paths().into_iter().filter(|path| path.to_string_lossy().ends_with(".filtered")).count();
    let filter = |fails_at: Option<u64>| {
        let mut decide = |_, _, offered: Offered| match offered {
            Offered::Entries { first, .. } if Some(first) == fails_at => {
                Err(esker::raft::Error::new(ErrorKind::Io, "it is not decided"))
            }
            _ => Ok(Verdict::Discard),
        };
        RaftLog::filter("/log", &options, &disk.env(), &FilterOptions::default(), &mut decide)
    };
    assert_eq!(filter(Some(30)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(copies(), 0);
    // One that was killed left these: a file's, and one's that was given up since.
    for name in ["0000000000000001.raftlog.filtered", "0000000000000077.rewrite.filtered"] {
        disk.env().files.create(std::path::Path::new("/log").join(name).as_path()).unwrap();
    }
    disk.env().files.create(std::path::Path::new("/log/notes.filtered")).unwrap();
    assert!(filter(None).unwrap().len() > 3);
    assert_eq!(copies(), 1, "it is not the log's");
    let log = open();
    assert_eq!((log.first_index(1), log.keys(2, None, None)), (None, keys));
}

/// A closed log of one group, in several files.
fn closed_in_files(options: &Options) -> SimDisk {
    let disk = SimDisk::new();
    let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
    for index in 1..=40 {
        let mut batch = LogBatch::new();
        batch.add_entries(1, index, [[7; 100]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
    log.close().unwrap();
    disk
}

fn files_of(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.paths().into_iter().filter_map(|path| Some((path.clone(), disk.file_bytes(&path)?))).collect()
}

/// Discards everything where there are no hard links, keeping the files; there is no room for the one called `fails_at`.
fn filter_without_links(
    disk: &SimDisk,
    options: &Options,
    fails_at: Option<&'static str>,
) -> Result<Vec<Renewed>, esker::Error> {
    let is_kept = |path: &Path| path.extension().is_some_and(|end| end == "before");
    let there = disk.clone();
    let files = Hooked::new(disk.env().files, move |call| match call {
        Call::Other(path) if is_kept(path) && !there.paths().contains(&path.to_path_buf()) => {
            Err(Error::new("linking to", path, std::io::ErrorKind::CrossesDevices.into()))
        }
        Call::Sync(path) if fails_at.is_some_and(|name| path.ends_with(name)) => {
            Err(Error::new("syncing", path, std::io::ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let how = FilterOptions { kept_suffix: Some(".before"), ..FilterOptions::default() };
    RaftLog::filter("/log", options, &env, &how, &mut |_, _, _| Ok(Verdict::Discard))
}

/// Goal: wherever a filter dies that copies files, no part of one has the name of one that was kept; and the next leaves nothing of what the first had begun.
#[test]
fn a_filter_that_dies_as_it_copies_leaves_no_part_under_a_kept_name() {
    let options = Options { file_bytes: 1 << 10, purge_threshold_bytes: 1 << 20, ..Options::default() };
    let whole = closed_in_files(&options);
    let before = files_of(&whole);
    let mut were_partial = 0;
    for op in 0.. {
        let disk = whole.after_process_death();
        disk.die_after(disk.op_count() + op);
        let is_done = filter_without_links(&disk, &options, None).is_ok() && !disk.is_dead();
        let left = disk.after_process_death();
        for round in ["first", "second"] {
            let files = files_of(&left);
            for (path, bytes) in files.iter().filter(|(path, _)| path.to_string_lossy().contains(".before")) {
                let is_whole = before
                    .iter()
                    .any(|(old, was)| was == bytes && path.to_string_lossy().starts_with(&*old.to_string_lossy()));
                assert!(is_whole, "dead after {op}, {round}: {}", path.display());
            }
            let parts = files
                .iter()
                .filter(|(path, _)| path.extension().is_some_and(|end| end == "copying" || end == "filtered"));
            match (parts.count(), round) {
                (0, _) => {}
                (_, "first") => were_partial += 1,
                (count, _) => panic!("dead after {op}: {count} parts are left"),
            }
            filter_without_links(&left, &options, None).unwrap();
        }
        if is_done {
            break;
        }
    }
    assert!(were_partial > 10, "{were_partial}");
}

/// Goal: where there are no hard links, files that a filter is to keep are copied, all of them or none: nothing changes before.
#[test]
fn a_filter_keeps_copies_where_there_are_no_links() {
    let options = Options { file_bytes: 1 << 10, purge_threshold_bytes: 1 << 20, ..Options::default() };
    for fails_at in [None, Some("0000000000000001.raftlog.copying"), Some("0000000000000003.raftlog.copying")] {
        let disk = closed_in_files(&options);
        let before = files_of(&disk);
        let done = filter_without_links(&disk, &options, fails_at);
        if fails_at.is_some() {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Exhausted);
            assert!(files_of(&disk) == before, "{fails_at:?}: nothing is changed, nor left");
            continue;
        }
        let done = done.unwrap();
        assert!(done.len() > 3, "{done:?}");
        for file in done {
            let (_, old) = before.iter().find(|(path, _)| *path == file.path).unwrap();
            assert_eq!(disk.file_bytes(&file.kept.unwrap()).as_ref(), Some(old));
        }
    }
}
