//! What purging a Raft log gives up and what it keeps, while others write.

use esker::env::sim::SimDisk;
use esker::raft::Options;
use esker::{LogBatch, RaftLog};
use esker_torture::hooked::{Call, Meanwhile};

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
