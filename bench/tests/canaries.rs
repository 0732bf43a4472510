//! Goal: an engine that lies is caught, whatever workload happens to read.
//! Method: engines that lie on purpose, each run once for every way of reading. An honest one passes the same plans.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

use esker_compare::engine::Entry;
use esker_compare::plan::{Line, Plan, Settings};
use esker_compare::run::run;
use esker_compare::workload::Workload;

/// Enough keys that one put in 5,000 is lost twice.
const KEYS: u64 = 12_000;

fn outcome(engine: &str, workloads: &[Workload]) -> Result<usize, String> {
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        engine: engine.into(),
        directory: directory.path().into(),
        settings: Settings { memory_bytes: 64 << 20, min_blob_bytes: 256, background_jobs: 2, sync: false },
        num: KEYS,
        reads: KEYS,
        value_bytes: 300,
        batch: if Entry::find(engine).unwrap().is_single() { 1 } else { 7 },
        range_entries: 20,
        groups: 50,
        keep_entries: 0,
        threads: 2,
        seconds_max: 0,
        seed: 5,
        workloads: workloads.to_vec(),
        cold: true,
    };
    let mut lines = 0;
    let mut count = |line: Line| {
        assert!(!matches!(line, Line::Failed(_)));
        lines += 1;
        Ok(())
    };
    run(&plan, &mut count).map(|()| lines).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_caught(engine: &str, workloads: &[Workload], by: &str, words: &str) {
    let caught = outcome(engine, workloads).expect_err("a lie went unnoticed");
    assert!(caught.contains("wrong answer") && caught.contains(words), "{caught}");
    assert!(caught.starts_with(by), "caught by something else than {by}: {caught}");
}

#[test]
fn an_honest_engine_passes() {
    use Workload::*;
    let all = [Load, Update, Delete, ReadRandom, ReadMissing, Exists, Range, Scan, ScanKeys];
    for engine in ["esker", "esker-inline", "cask", "candystore", "emdb", "fjall", "fjall-blob", "redb", "lmdb"] {
        assert_eq!(outcome(engine, &all), Ok(all.len() + 1), "{engine}");
    }
}

#[test]
fn a_lost_put_is_caught_by_every_way_of_reading() {
    use Workload::*;
    assert_caught("canary-lost-put", &[Load, ReadRandom], "readrandom", "is missing");
    // Each pass asks for half of the keys, chosen by chance: twelve passes leave none out.
    assert_caught("canary-lost-put", &[&[Load][..], &[Exists; 12]].concat(), "exists", "is missing");
    assert_caught("canary-lost-put", &[Load, Range], "range", "left out a key");
    assert_caught("canary-lost-put", &[Load, Scan], "scan:", "keys where 12000 are");
    assert_caught("canary-lost-put", &[Load, ScanKeys], "scankeys", "keys where 12000 are");
}

#[test]
fn a_dropped_update_is_caught_by_every_read_of_values() {
    use Workload::*;
    assert_caught("canary-stale-key", &[Load, Update, ReadRandom], "readrandom", "was overwritten");
    assert_caught("canary-stale-key", &[Load, Update, Range], "range", "another value than was put last");
    assert_caught("canary-stale-key", &[Load, Update, Scan], "scan:", "another value than was put last");
}

#[test]
fn a_flipped_bit_is_caught_by_every_read_of_values() {
    use Workload::*;
    assert_caught("canary-flipped-bit", &[Load, ReadRandom], "readrandom", "never put");
    assert_caught("canary-flipped-bit", &[Load, Range], "range", "another value than was put last");
    assert_caught("canary-flipped-bit", &[Load, Scan], "scan:", "another value than was put last");
}

#[test]
fn a_key_left_out_is_caught_by_every_read_in_order() {
    use Workload::*;
    assert_caught("canary-skipped-key", &[Load, Range], "range", "left out a key");
    assert_caught("canary-skipped-key", &[Load, Scan], "scan:", "keys where 12000 are");
    assert_caught("canary-skipped-key", &[Load, ScanKeys], "scankeys", "keys where 12000 are");
}

#[test]
fn a_dropped_delete_is_caught_by_every_way_of_reading() {
    use Workload::*;
    for (workload, by) in
        [(ReadRandom, "readrandom"), (Exists, "exists"), (Range, "range"), (Scan, "scan:"), (ScanKeys, "scankeys")]
    {
        assert_caught("canary-lost-delete", &[Load, Delete, workload], by, "is there and must not be");
    }
    assert_caught("canary-lost-delete", &[Load, Delete], "scan:", "is there and must not be");
}

#[test]
fn a_run_without_reads_is_read_through_at_its_end() {
    assert_caught("canary-lost-put", &[Workload::Load], "scan:", "keys where 12000 are");
    assert_caught("canary-flipped-bit", &[Workload::Load], "scan:", "another value than was put last");
    assert_caught("canary-stale-key", &[Workload::Load, Workload::Update], "scan:", "another value");
}

#[test]
fn raft_logs_are_checked_by_fetches_and_read_through_at_the_end() {
    use Workload::*;
    for engine in ["esker-raft", "raft-engine"] {
        assert_eq!(outcome(engine, &[Append, Fetch, Reopen]), Ok(4), "{engine}");
    }
    assert_caught("canary-raft", &[Append, Fetch], "fetch", "are not what was written");
    assert_caught("canary-raft", &[Append], "", "are not what was written");
}
