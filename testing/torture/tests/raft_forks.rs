//! A fork of a Raft log is one moment of it, and shares nothing with it that either changes.

use std::path::{Path, PathBuf};

use esker::env::sim::SimDisk;
use esker::raft::{FileId, Options, Queue};
use esker::{LogBatch, RaftLog};
use esker_torture::hooked::{Call, Meanwhile};
use esker_torture::raft::contents;

fn options() -> Options {
    Options { file_bytes: 2048, purge_threshold_bytes: 4096, recovery_threads: 1, ..Options::default() }
}

fn open(disk: &SimDisk, dir: &str, options: Options) -> esker::Result<RaftLog> {
    RaftLog::open_with_env(dir, options, disk.env())
}

fn write(log: &RaftLog, count: u64) {
    let mut batch = LogBatch::new();
    for _ in 0..count {
        let next = log.last_index(1).map_or(1, |last| last + 1);
        batch.add_entries(1, next, [[next as u8; 300]]).unwrap();
        log.write(&mut batch, false).unwrap();
    }
}

fn name(dir: &str, queue: Queue, sequence: u64) -> PathBuf {
    Path::new(dir).join(FileId::new(queue, sequence).to_string())
}

/// Goal: a file that is written to when the fork is made, and ends before it is copied, is not shared.
/// Method: the log goes on to its next file when the fork's first is made.
#[test]
fn a_file_that_ends_while_a_fork_is_made_is_not_shared() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let log = RaftLog::open_with_env("/log", options(), meanwhile.env(&disk)).unwrap();
    write(&log, 20);
    let (moment, last) = (contents(&log).unwrap(), log.stats().append.last_file);
    let other = log.clone();
    meanwhile.before(
        |call| matches!(call, Call::Create(path) if path.starts_with("/fork") && path.extension().is_some()),
        move || {
            write(&other, 10);
            assert!(other.stats().append.last_file > last);
        },
    );
    let made = log.fork("/fork").unwrap();
    assert!(meanwhile.is_done());
    assert!(made.copied.contains(&name("/fork", Queue::Append, last)), "{made:?}");
    let fork =
        open(&disk, "/fork", Options { file_bytes: 1 << 20, purge_threshold_bytes: 1 << 20, ..options() }).unwrap();
    assert_eq!(contents(&fork).unwrap(), moment);
    write(&fork, 20);
    fork.close().unwrap();
    let found = contents(&log).unwrap();
    drop(log);
    assert_eq!(contents(&open(&disk, "/log", options()).unwrap()).unwrap(), found);
}

/// Goal: whoever else has a name for the last file keeps what it held: it is written to only once it has one name.
#[test]
fn a_last_file_with_another_name_is_not_written_to() {
    let disk = SimDisk::new();
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 8);
    log.move_on(Some(1)).unwrap();
    let moment = contents(&log).unwrap();
    let stats = log.stats();
    let last = [(Queue::Append, stats.append.last_file), (Queue::Rewrite, stats.rewrite.last_file)];
    // As a killed process leaves it: with more bytes than batches.
    let disk = disk.after_process_death();
    let files = disk.env().files;
    files.create_dir_all(Path::new("/other")).unwrap();
    for (queue, sequence) in last {
        files.link(&name("/log", queue, sequence), &name("/other", queue, sequence)).unwrap();
    }
    let before = last.map(|(queue, sequence)| disk.file_bytes(&name("/other", queue, sequence)));
    let log = open(&disk, "/log", options()).unwrap();
    write(&log, 8);
    log.move_on(None).unwrap();
    drop(log);
    let after = last.map(|(queue, sequence)| disk.file_bytes(&name("/other", queue, sequence)));
    assert!(before == after && before.iter().all(Option::is_some));
    let log = open(&disk, "/log", options()).unwrap();
    assert_eq!(log.last_index(1), Some(16));
    for (index, bytes) in &moment[&1].entries {
        assert_eq!(log.entry(1, *index).unwrap().as_ref(), Some(bytes));
    }
}
