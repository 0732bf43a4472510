//! A log that gives wrong answers is told from one that does not: between the threads and the reading back, it is
//! changed behind the back of the run.

use esker::LogBatch;
use esker::raft::Options;
use tempfile::TempDir;

use super::*;
use crate::bench::sizes::ValueSizes;

fn plan() -> RaftPlan {
    RaftPlan {
        // No test takes so long: see `stress_all`.
        time: Duration::from_secs(60),
        groups: 6,
        write_threads: 2,
        read_threads: 1,
        write_rate: None,
        read_rate: None,
        entry_sizes: ValueSizes::parse("uniform:16:300").unwrap(),
        batch_entries: 3,
        batch_groups: 2,
        sync: false,
        compact_count: Some(20),
        force_compact_factor: 0.5,
        purge_interval: Some(Duration::from_millis(1)),
        seed: 3,
        use_existing: false,
    }
}

fn log() -> (TempDir, RaftLog) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { file_bytes: 4 << 10, purge_threshold_bytes: 8 << 10, ..Options::default() };
    let log = RaftLog::open(dir.path(), options).unwrap();
    (dir, log)
}

/// Runs until much was done and every group has entries, however long that takes on this machine.
fn stress_all(run: &mut Run<'_>) -> Result<Outcome, Stop> {
    let (shared, runner) = (run.shared, std::thread::current());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let ends = |id| Some((shared.log.first_index(id)?, shared.log.last_index(id)?));
            let has_some = |id| ends(id).is_some_and(|(first, last)| last > first + 4);
            let is_enough = || shared.done.load(Ordering::Relaxed) >= 500 && (1..=shared.plan.groups).all(has_some);
            while !shared.is_stopped() && !is_enough() {
                std::thread::yield_now();
            }
            shared.stop.store(true, Ordering::Relaxed);
            runner.unpark();
        });
        run.stress()
    })
}

/// What is found wrong after `change`.
fn found_after(change: impl FnOnce(&RaftLog)) -> Option<Wrong> {
    let (_dir, log) = log();
    let plan = plan();
    let shared = Shared::new(&plan, &log);
    let mut run =
        Run { shared: &shared, samples: Samples::default(), began: Instant::now(), peak_anonymous_bytes: None };
    assert!(stress_all(&mut run).unwrap().tally.operations > 0);
    change(&log);
    match run.verify() {
        Ok(outcome) => {
            assert!(outcome.tally.operations > 0);
            None
        }
        Err(Stop::Wrong(wrong)) => Some(wrong),
        Err(Stop::Failed(failure)) => panic!("{failure}"),
    }
}

#[test]
fn what_a_log_should_hold_passes() {
    assert_eq!(found_after(|_| ()), None);
}

#[test]
fn a_lost_end_a_lost_beginning_and_a_lost_group_are_noticed() {
    let entry = |log: &RaftLog, index| log.entry(1, index).unwrap().unwrap();
    let lost_end = found_after(|log| {
        let last = log.last_index(1).unwrap();
        let mut batch = LogBatch::new();
        batch.add_entries(1, last - 1, [entry(log, last - 1)]).unwrap();
        log.write(&mut batch, false).unwrap();
    });
    assert!(lost_end.is_some_and(|wrong| wrong.fault == Fault::Missing));
    let lost_beginning = found_after(|log| assert!(log.compact_to(1, log.last_index(1).unwrap()).unwrap() > 0));
    assert!(lost_beginning.is_some_and(|wrong| wrong.fault == Fault::Missing));
    let lost_group = found_after(|log| {
        let mut batch = LogBatch::new();
        batch.clean(2);
        log.write(&mut batch, false).unwrap();
    });
    let spot = |wrong: &Wrong| matches!(wrong.spot, Spot::Entry { group: 2, .. });
    assert!(lost_group.is_some_and(|wrong| spot(&wrong) && wrong.fault == Fault::Missing));
}

#[test]
fn an_entry_too_many_and_another_ones_bytes_are_noticed() {
    let write = |log: &RaftLog, index, bytes: Vec<u8>| {
        let mut batch = LogBatch::new();
        batch.add_entries(3, index, [bytes]).unwrap();
        log.write(&mut batch, false).unwrap();
    };
    let too_many = found_after(|log| {
        let last = log.last_index(3).unwrap();
        write(log, last + 1, log.entry(3, last).unwrap().unwrap());
    });
    assert!(too_many.is_some_and(|wrong| wrong.fault == Fault::Unexpected));
    let mixed_up = found_after(|log| {
        let last = log.last_index(3).unwrap();
        write(log, last, log.entry(3, last - 1).unwrap().unwrap());
    });
    assert!(mixed_up.is_some_and(|wrong| matches!(wrong.fault, Fault::Stale { .. })));
}
