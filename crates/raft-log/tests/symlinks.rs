//! raft-engine's forks are symbolic links to the files of their source: nothing is written through one.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use esker_raft_log::{LogBatch, Options, RaftLog, RecoveryMode};
use tempfile::TempDir;

fn options() -> Options {
    Options { file_bytes: 2 << 10, purge_threshold_bytes: 8 << 10, ..Options::default() }
}

fn write(log: &RaftLog, count: u64) {
    let mut batch = LogBatch::new();
    for _ in 0..count {
        let next = log.last_index(1).map_or(1, |last| last + 1);
        batch.add_entries(1, next, [[next as u8; 300]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
}

/// A log of twenty entries, `source`, and the directory that it lies in.
fn source() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let log = RaftLog::open(&source, options()).unwrap();
    write(&log, 20);
    log.close().unwrap();
    (dir, source)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(dir).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// As raft-engine makes one: the last file of each queue is copied. With `links_last`, no file is.
fn fork(source: &Path, links_last: bool) -> PathBuf {
    let target = source.with_file_name("fork");
    std::fs::create_dir(&target).unwrap();
    for queue in ["raftlog", "rewrite"] {
        let of_queue = |path: &PathBuf| path.extension().is_some_and(|extension| extension == queue);
        let paths: Vec<PathBuf> = files(source).into_iter().filter(of_queue).collect();
        let (last, shared) = paths.split_last().unwrap();
        let link = |path: &PathBuf| symlink(path, target.join(path.file_name().unwrap())).unwrap();
        shared.iter().for_each(link);
        if links_last {
            link(last);
        } else {
            std::fs::copy(last, target.join(last.file_name().unwrap())).unwrap();
        }
    }
    target
}

#[test]
fn damage_is_not_cut_out_of_a_file_that_is_somebody_elses() {
    let (_dir, source) = source();
    let first = files(&source).into_iter().find(|path| path.extension().is_some_and(|end| end == "raftlog")).unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 400].fill(0xff);
    std::fs::write(&first, bytes).unwrap();
    let before = contents(&source);
    let any = Options { recovery_mode: RecoveryMode::TolerateAny, ..options() };
    let log = RaftLog::open(fork(&source, false), any).unwrap();
    assert_eq!(log.recovery().cuts.len(), 1);
    log.close().unwrap();
    assert_eq!(contents(&source), before);
}

#[test]
fn a_file_that_is_somebody_elses_is_neither_appended_to_nor_written_over() {
    for links_last in [false, true] {
        let (_dir, source) = source();
        let before = contents(&source);
        let target = fork(&source, links_last);
        for round in 0..3 {
            let log = RaftLog::open(&target, Options { recycle_files: true, ..options() }).unwrap();
            assert_eq!(log.last_index(1), Some(20 * (round + 1)));
            log.compact_to(1, 20 * (round + 1)).unwrap();
            log.purge().unwrap();
            write(&log, 20);
            log.close().unwrap();
            assert_eq!(contents(&source), before);
        }
    }
}

#[test]
fn a_link_to_what_is_gone_is_not_left_when_the_queue_goes_on() {
    let (_dir, source) = source();
    let target = fork(&source, false);
    let log = RaftLog::open(&target, options()).unwrap();
    log.compact_to(1, 20).unwrap();
    log.purge().unwrap();
    std::fs::remove_dir_all(&source).unwrap();
    write(&log, 100);
    log.close().unwrap();
    assert_eq!(RaftLog::open(&target, options()).unwrap().last_index(1), Some(120));
    let links = files(&target).into_iter().filter(|path| path.is_symlink()).count();
    assert_eq!(links, 0);
}
