//! What purging gives back, and what keeps it from that.

#![expect(clippy::unwrap_used, reason = "the lint's leave for tests does not reach what tests share")]

use esker_env::sim::SimDisk;
use esker_raft_log::{LogBatch, Options, RaftLog};

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
