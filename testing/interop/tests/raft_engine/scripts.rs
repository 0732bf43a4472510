//! A log that a script is asked about: what Esker makes of it, and what raft-engine's own `unsafe_repair` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker::RaftLog;
use esker::raft::{Options, RecoveryMode};
use esker_interop::raft::{
    Contents, Op, Shape, apply, batch, read_esker, read_original, without_empty, write_original,
};
use fastrand::Rng;
use raft_engine::internals::LogQueue;
use raft_engine::{Config, Engine};

use crate::{copy, shapes};

/// What is done to a log before the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Log {
    /// Nothing: all of it is in the append queue.
    AsWritten,
    /// What was written is moved to the rewrite queue, then other groups are written.
    Moved,
    /// A file in the middle loses its end, so that groups have gaps.
    Cut,
}

const KEEPS: &str = "keeps everything";
const DISCARDS_MOVED: &str = "discards what was moved";
const LEAVES_GAPS: &str = "leaves gaps";

/// Scripts, some of which ask what a group has so far.
const SCRIPTS: [(&str, &str); 9] = [
    (KEEPS, ""),
    (
        "discards a group",
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if id % 5 == 2 { 1 } else { 0 } }",
    ),
    (
        "discards what came before an index",
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if ilast % 16 == 3 { 2 } else { 0 } }",
    ),
    (
        "discards entries from an index on",
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if ilast >= 600 { 1 } else { 0 } }",
    ),
    (
        "brings compacted entries back",
        "fn filter_compact(id, first, count, rewrite_count, queue, compact_to) { if compact_to < first + count { 1 } else { 0 } }",
    ),
    (
        "discards what was before a compaction",
        "fn filter_compact(id, first, count, rewrite_count, queue, compact_to) { if count > 8 { 2 } else { 0 } }",
    ),
    (
        "begins a group anew where entries do not fit, and brings back what was cleaned",
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) {
             if count > 0 && (ifirst < first || ifirst > first + count) { 2 } else { 0 }
         }
         fn filter_clean(id, first, count, rewrite_count, queue) { 1 }",
    ),
    (
        DISCARDS_MOVED,
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { queue }
         fn filter_compact(id, first, count, rewrite_count, queue, compact_to) { queue }",
    ),
    (
        LEAVES_GAPS,
        "fn filter_append(id, first, count, rewrite_count, queue, ifirst, ilast) { if ifirst % 11 == 5 { 1 } else { 0 } }",
    ),
];

/// Goal: a script leaves of a log what it leaves of it by the original's `unsafe_repair`, as both read it. Where the original leaves gaps, which
/// it panics at when it opens the log, or gives up on a sound log, Esker refuses, or leaves what both read.
#[test]
fn a_script_leaves_what_it_leaves_by_the_original() {
    let mut changed = BTreeMap::<_, BTreeSet<_>>::new();
    for (number, shape) in shapes().into_iter().enumerate() {
        for seed in 0..2 {
            for log in [Log::AsWritten, Log::Moved, Log::Cut] {
                let base = tempfile::tempdir().unwrap();
                let (written, unread) = (base.path().join("written"), base.path().join("unread"));
                write(&shape, &written, log, &mut Rng::with_seed(300 + seed));
                let before = by_esker(&shape, &written, &unread);
                // Both queues, or one.
                let (queue, same_queue) = match seed {
                    0 => (None, None),
                    _ => (Some(LogQueue::Append), Some(esker_raft_engine::internals::LogQueue::Append)),
                };
                for (script, text) in SCRIPTS {
                    let what = format!("shape {number}, seed {seed}, {log:?}, {queue:?}: a script that {script}");
                    let (theirs, ours) =
                        (base.path().join("theirs").join(script), base.path().join("ours").join(script));
                    copy(&written, &theirs).unwrap();
                    copy(&written, &ours).unwrap();
                    let by_original = Engine::unsafe_repair(&theirs, queue, text.to_owned());
                    let done = esker_raft_engine::Engine::unsafe_repair(&ours, same_queue, text.to_owned());
                    let left = done.is_ok().then(|| by_esker(&shape, &ours, &unread));
                    if let Some(left) = &left {
                        assert!(!has_gaps(&ours), "{what}");
                        assert!(*left == by_the_original(&shape, &ours, &unread), "{what}: both read the same");
                    }
                    match by_original {
                        Ok(()) if has_gaps(&theirs) => assert_eq!(log, Log::Cut, "{what}"),
                        Ok(()) => {
                            let expected = by_the_original(&shape, &theirs, &unread);
                            assert!(left.as_ref() == Some(&expected), "{what}: {done:?}");
                            if expected != before {
                                changed.entry(script).or_default().insert(log);
                            }
                        }
                        Err(raft_engine::Error::Corruption(reason)) if reason == "Write to compacted" => (),
                        Err(error) => assert!(left.is_none(), "{what}: {error}"),
                    }
                }
            }
        }
    }
    let all = [Log::AsWritten, Log::Moved, Log::Cut];
    for (script, _) in SCRIPTS {
        let expected: &[Log] = match script {
            KEEPS | LEAVES_GAPS => &[],
            DISCARDS_MOVED => &[Log::Moved],
            _ => &all,
        };
        let changed: Vec<_> = changed.get(script).into_iter().flatten().copied().collect();
        assert_eq!(changed, expected, "logs that were changed by a script that {script}");
    }
}

/// Writes a log that the original's `unsafe_repair` takes. It counts wrong what a group has from a compaction to the next entries, and takes what
/// follows a second one for a gap: so there are entries between any two.
fn write(shape: &Shape, dir: &Path, log: Log, random: &mut Rng) {
    let engine = shape.open_original(dir).unwrap();
    write_groups(&engine, random, 0);
    if log == Log::Moved {
        engine.purge_manager().must_rewrite_append_queue(None, None);
        write_groups(&engine, random, 10);
    }
    drop(engine);
    if log == Log::Cut {
        let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
        let files: BTreeSet<_> =
            files.filter(|path| path.extension().is_some_and(|ending| ending == "raftlog")).collect();
        let cut = files.iter().nth(files.len() / 2).unwrap();
        let len = std::fs::metadata(cut).unwrap().len();
        std::fs::File::options().write(true).open(cut).unwrap().set_len(len - len / 3).unwrap();
    }
}

/// Writes groups with the numbers from `base` on.
fn write_groups(engine: &Engine, random: &mut Rng, base: u64) {
    let mut model = Contents::new();
    let mut compacted = BTreeSet::new();
    for _ in 0..200 {
        let mut ops = batch(random, &model);
        let fits = ops.iter().take_while(|op| match op {
            Op::Compact(group, _) | Op::Clean(group) => compacted.insert(*group),
            Op::Entries(group, _) => {
                compacted.remove(group);
                true
            }
            Op::Put(..) | Op::Delete(..) => true,
        });
        ops.truncate(fits.count());
        apply(&mut model, &ops);
        let ops: Vec<_> = ops.into_iter().map(|op| moved(op, base)).collect();
        write_original(engine, &ops, false).unwrap();
    }
}

/// The same of another group.
fn moved(op: Op, by: u64) -> Op {
    match op {
        Op::Entries(group, entries) => Op::Entries(group + by, entries),
        Op::Compact(group, index) => Op::Compact(group + by, index),
        Op::Clean(group) => Op::Clean(group + by),
        Op::Put(group, key, value) => Op::Put(group + by, key, value),
        Op::Delete(group, key) => Op::Delete(group + by, key),
    }
}

/// Whether entries are missing in a log, which the original panics at when it opens it.
fn has_gaps(dir: &Path) -> bool {
    !RaftLog::check(dir, &Options::default(), &mut |_, _| {}).unwrap().gaps.is_empty()
}

/// What the original reads in a log, which stays as it is.
fn by_the_original(shape: &Shape, dir: &Path, scratch: &Path) -> Contents {
    copy(dir, scratch).unwrap();
    let config = Config { recovery_mode: raft_engine::RecoveryMode::TolerateAnyCorruption, ..shape.config(scratch) };
    let read = read_original(&Engine::open(config).unwrap()).unwrap();
    std::fs::remove_dir_all(scratch).unwrap();
    without_empty(&read)
}

/// What Esker reads in it.
fn by_esker(shape: &Shape, dir: &Path, scratch: &Path) -> Contents {
    copy(dir, scratch).unwrap();
    let options = Options { recovery_mode: RecoveryMode::TolerateAny, ..shape.options() };
    let log = RaftLog::open(scratch, options).unwrap();
    let read = read_esker(&log).unwrap();
    log.close().unwrap();
    std::fs::remove_dir_all(scratch).unwrap();
    without_empty(&read)
}
