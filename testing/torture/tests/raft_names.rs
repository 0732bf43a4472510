//! Files of a Raft log under names that are not theirs.

use std::path::PathBuf;

use esker::env::sim::SimDisk;
use esker::raft::{ErrorKind, Options, RecoveryMode};
use esker::{LogBatch, RaftLog};
use esker_torture::raft::contents;

fn options(recovery_mode: RecoveryMode) -> Options {
    Options { file_bytes: 1024, compress_from_bytes: 0, recovery_threads: 1, recovery_mode, ..Options::default() }
}

fn open(disk: &SimDisk, recovery_mode: RecoveryMode) -> esker::raft::Result<RaftLog> {
    RaftLog::open_with_env("/log", options(recovery_mode), disk.env())
}

/// A log that somebody left, some of whose files were others before; its files of the append queue.
fn left() -> (SimDisk, Vec<PathBuf>) {
    let disk = SimDisk::new();
    let log = open(&disk, RecoveryMode::default()).unwrap();
    for index in 1..=40u64 {
        let mut batch = LogBatch::new();
        batch.add_entries(1, index, [[index as u8; 300]]).unwrap();
        log.write(&mut batch, true).unwrap();
        if index == 20 {
            log.compact_to(1, 18).unwrap();
            log.purge().unwrap();
        }
    }
    let left = disk.after_process_death();
    std::mem::forget(log);
    let is_of_queue = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "raftlog");
    let mut files: Vec<PathBuf> = left.paths().into_iter().filter(is_of_queue).collect();
    files.sort();
    (left, files)
}

/// Goal: a last file that another of the log was copied over does not pass for one that is recycled and was not written to yet: what was acknowledged
/// as durable would be missing, and nobody told.
#[test]
fn a_file_that_was_copied_over_the_last_one_is_no_earlier_life_of_it() {
    let (disk, files) = left();
    let (last, others) = files.split_last().unwrap();
    assert!(others.len() > 3, "{files:?}");
    for other in others {
        let copied = disk.after_process_death();
        copied.overwrite(last, disk.file_bytes(other).unwrap());
        for mode in [RecoveryMode::TolerateTail, RecoveryMode::AbsoluteConsistency] {
            let error = open(&copied, mode).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{other:?}: {error}");
            assert_eq!(error.path(), Some(&**last), "{other:?}: {error}");
        }
        let options = options(RecoveryMode::default());
        let check = RaftLog::check_with_env("/log", &options, &copied.env(), &mut |_, _| {}).unwrap();
        assert!(check.errors.iter().any(|error| error.path() == Some(&**last)), "{other:?}: {:?}", check.errors);
        let log = open(&copied, RecoveryMode::TolerateAny).unwrap();
        assert!(log.recovery().cuts.iter().any(|cut| cut.path == *last), "{other:?}");
    }
    // As a recycled one is, which was not written to yet.
    let (recycled, whole) =
        (disk.after_process_death(), contents(&open(&disk, RecoveryMode::default()).unwrap()).unwrap());
    let next = last.with_file_name(format!("{:016}.raftlog", number(last) + 1));
    let former = disk.paths().into_iter().find(|path| path.extension().is_some_and(|found| found == "reserved"));
    if let Some(former) = former {
        recycled.overwrite(&next, disk.file_bytes(&former).unwrap());
        assert_eq!(contents(&open(&recycled, RecoveryMode::default()).unwrap()).unwrap(), whole);
    }
}

fn number(path: &std::path::Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}
