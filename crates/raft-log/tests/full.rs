//! A log on a disk that is full.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::Path;

use esker_env::sim::SimDisk;
use esker_raft_log::{LogBatch, Options, RaftLog};

fn options() -> Options {
    Options { file_bytes: 4 << 10, purge_threshold_bytes: 4 << 10, ..Options::default() }
}

fn open(disk: &SimDisk) -> RaftLog {
    RaftLog::open_with_env("/log", options(), disk.env()).unwrap()
}

fn append(log: &RaftLog, index: u64) {
    let mut batch = LogBatch::new();
    batch.add_entries(1, index, [[7; 3000]]).unwrap();
    log.write(&mut batch, false).unwrap();
}

/// Goal: a process that died on a full disk before a file had its header leaves a log that can be opened while the disk is full, and that goes on by
/// itself once there is room.
#[test]
fn a_file_that_was_not_begun_keeps_no_log_closed() {
    for unbegun in ["/log/0000000000000003.raftlog", "/log/0000000000000002.rewrite"] {
        let disk = SimDisk::new();
        let log = open(&disk);
        (1..=4).for_each(|index| append(&log, index));
        assert_eq!((log.stats().append.last_file, log.stats().rewrite.last_file), (2, 1));
        let image = disk.after_process_death();
        image.env().files.create(Path::new(unbegun)).unwrap();
        image.set_capacity(Some(0));
        let log = open(&image);
        assert_eq!(log.entries(1, 1, 5, None).unwrap(), [[7; 3000]; 4]);
        assert!(image.file_bytes(Path::new(unbegun)).is_none(), "nothing is left of it");
        image.set_capacity(None);
        (5..=8).for_each(|index| append(&log, index));
        log.rewrite_again().unwrap();
        log.move_on(None).unwrap();
        assert!(log.stats().append.last_file > 3 && log.stats().rewritten_entries == 8, "{:?}", log.stats());
        let log = open(&image.after_process_death());
        assert_eq!(log.entries(1, 1, 9, None).unwrap(), [[7; 3000]; 8]);
    }
}
