//! What scripts are told of sound logs.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::Path;

use esker_env::sim::SimDisk;
use esker_raft_log::{FilterOptions, LogBatch, Options, Queue, RaftLog};
use esker_raft_script::Script;
use fastrand::Rng;

fn options() -> Options {
    Options { file_bytes: 1 << 10, purge_threshold_bytes: 4 << 10, recovery_threads: 1, ..Options::default() }
}

fn open(disk: &SimDisk) -> RaftLog {
    RaftLog::open_with_env("/log", options(), disk.env()).unwrap()
}

/// Appends, overwrites, compactions and cleans of three groups; purges and rewrites, if `moves`.
fn history(disk: &SimDisk, seed: u64, moves: bool) {
    let (mut rng, log) = (Rng::with_seed(seed), open(disk));
    for _ in 0..200 {
        let group = rng.u64(1..=3);
        let (first, next) = (log.first_index(group), log.last_index(group).map_or(1, |last| last + 1));
        match rng.u32(0..20) {
            0 => log.compact_to(group, rng.u64(first.unwrap_or(0)..=next)).map(drop).unwrap(),
            1 if rng.u32(0..4) == 0 => {
                let mut batch = LogBatch::new();
                batch.clean(group);
                log.write(&mut batch, false).unwrap();
            }
            2 if moves => log.purge().map(drop).unwrap(),
            3 if moves => log.move_on(None).map(drop).unwrap(),
            4 if moves && rng.u32(0..4) == 0 => log.rewrite_again().map(drop).unwrap(),
            _ => {
                let from = rng.u64(first.unwrap_or(next).max(next.saturating_sub(3))..=next);
                let mut batch = LogBatch::new();
                let count = rng.usize(1..4);
                batch.add_entries(group, from, vec![[7; 60]; count]).unwrap();
                log.write(&mut batch, false).unwrap();
            }
        }
    }
    log.close().unwrap();
}

/// Goal: a script that keeps everything is refused by no sound log, whatever was purged and rewritten, and changes none.
#[test]
fn a_script_that_keeps_everything_changes_nothing() {
    let script = "
        fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { 0 }
        fn filter_compact(id, first, count, rewrite_count, queue, compact_to) { 0 }
        fn filter_clean(id, first, count, rewrite_count, queue) { 0 }";
    let script = Script::new("keep", script).unwrap();
    for seed in 0..200 {
        let disk = SimDisk::new();
        history(&disk, seed, true);
        for queue in [None, Some(Queue::Append), Some(Queue::Rewrite)] {
            let how = FilterOptions { queue, ..FilterOptions::default() };
            let found = script.filter(Path::new("/log"), &options(), &disk.env(), &how);
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, {queue:?}: {error}"));
            assert!(found.files.is_empty() && found.groups.is_empty(), "seed {seed}: {found:?}");
        }
    }
}

/// Goal: what a script is told of a group is what the group has, where no file was given up: a script knows by it whether an item is the last.
#[test]
fn a_script_is_told_what_a_group_has() {
    for seed in 0..50 {
        let disk = SimDisk::new();
        history(&disk, seed, false);
        let log = open(&disk);
        // Written behind everything else, for the script to be asked about once more.
        let mut batch = LogBatch::new();
        for group in 1..=3 {
            batch.compact(group, 0);
        }
        log.write(&mut batch, false).unwrap();
        let spans: Vec<(u64, u64)> = (1..=3)
            .map(|group| {
                log.first_index(group).map_or((0, 0), |first| (first, log.last_index(group).unwrap() - first + 1))
            })
            .collect();
        log.close().unwrap();
        let (firsts, counts): (Vec<u64>, Vec<u64>) = spans.into_iter().unzip();
        let script = format!(
            "fn filter_compact(id, first, count, rewrite_count, queue, compact_to) {{
                if compact_to == 0 && ({firsts:?}[id - 1] != first || {counts:?}[id - 1] != count) {{
                    throw `group ${{id}}: ${{count}} from ${{first}}`;
                }}
                0
            }}"
        );
        let how = FilterOptions { queue: Some(Queue::Append), ..FilterOptions::default() };
        let told = Script::new("compare", script).unwrap().filter(Path::new("/log"), &options(), &disk.env(), &how);
        told.unwrap_or_else(|error| panic!("seed {seed}: {error}, of {firsts:?} and {counts:?}"));
    }
}

/// Goal: a script that would leave a gap in what was rewritten is refused: an open takes what is before a gap there for dead.
#[test]
fn a_gap_that_a_script_makes_is_refused_in_the_rewrite_queue_too() {
    let disk = SimDisk::new();
    let log = open(&disk);
    for first in [1, 4, 7] {
        let mut batch = LogBatch::new();
        batch.add_entries(1, first, [[7; 60]; 3]).unwrap();
        log.write(&mut batch, false).unwrap();
        log.move_on(None).unwrap();
    }
    log.close().unwrap();
    let filter = |begins: u64, verdict: u64| {
        let script = format!(
            "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) {{ if ifirst == {begins} {{ {verdict} }} else {{ 0 }} }}"
        );
        let script = Script::new("gap", script).unwrap();
        let found = script.filter(Path::new("/log"), &options(), &disk.env(), &FilterOptions::default());
        found.map(|found| found.groups).map_err(|error| error.to_string())
    };
    let told = filter(4, 1).unwrap_err();
    for words in ["group 1, entries 7 to 9", "3 entries from 1 on", "return 1 for it"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert_eq!(filter(4, 2).unwrap()[&1].earlier, 3);
    assert_eq!(filter(7, 1).unwrap()[&1].entries, 3);
    let log = open(&disk);
    assert_eq!((log.first_index(1), log.last_index(1)), (Some(4), Some(6)));
}
