//! A store that gives wrong answers is told from one that does not: between two benchmarks the store is changed behind
//! the back of the run, as a store would that has lost or mixed up something.

use std::sync::Arc;
use std::time::Duration;

use esker::{Cask, CaskOptions, Db, FamilyOptions, Options, PutOperator};
use tempfile::TempDir;

use super::*;
use crate::bench::fault::{Fault, Spot, Wrong};
use crate::bench::keys::Key;
use crate::bench::sizes::ValueSizes;
use crate::kind::Kind;

const NUM: u64 = 500;

fn plan(benchmarks: &[Benchmark]) -> Plan {
    Plan {
        benchmarks: benchmarks.to_vec(),
        num: NUM,
        reads: 3 * NUM,
        value_sizes: ValueSizes::parse("uniform:16:300").unwrap(),
        key_bytes: 16,
        threads: 2,
        time: None,
        batch: 3,
        sync: false,
        distribution: None,
        seed: 5,
        nexts: 4,
        range_keys: 7,
        use_existing: false,
    }
}

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let family = FamilyOptions { merge_operator: Some(Arc::new(PutOperator)), ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let db = Db::open(dir.path(), Options { create_if_missing: true, families, ..Options::default() }).unwrap();
    (dir, Store::Db(db))
}

fn cask() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let cask = Cask::open(dir.path(), CaskOptions { create_if_missing: true, ..CaskOptions::default() }).unwrap();
    (dir, Store::Cask(cask))
}

/// Runs what is before the change, makes it, and says how what is after it ended.
fn fault_after(before: &[Benchmark], change: impl FnOnce(&Db, &Values), after: Benchmark) -> Option<Wrong> {
    let change = |store: &Store, values: &Values| match store {
        Store::Db(db) => change(db, values),
        Store::Cask(_) => unreachable!(),
    };
    fault_in(store(), before, change, after)
}

/// As [`fault_after`], in a Cask.
fn fault_in_cask(before: &[Benchmark], change: impl FnOnce(&Cask, &Values), after: Benchmark) -> Option<Wrong> {
    let change = |store: &Store, values: &Values| match store {
        Store::Cask(cask) => change(cask, values),
        Store::Db(_) => unreachable!(),
    };
    fault_in(cask(), before, change, after)
}

fn fault_in(
    (_dir, store): (TempDir, Store),
    before: &[Benchmark],
    change: impl FnOnce(&Store, &Values),
    after: Benchmark,
) -> Option<Wrong> {
    let plan = Plan { threads: if after == Benchmark::Scan { 1 } else { 2 }, ..plan(before) };
    let values = Values::new(plan.seed, plan.value_sizes.clone());
    let mut run = Run::begin(&plan, &store, &values);
    for (index, &benchmark) in before.iter().enumerate() {
        run.one(index, benchmark).unwrap();
    }
    change(&store, &values);
    match run.one(before.len(), after) {
        Ok(_) => None,
        Err(Stop::Wrong(wrong)) => Some(wrong),
        Err(Stop::Failed(failure)) => panic!("{failure}"),
    }
}

fn key(number: u64) -> Vec<u8> {
    Key::new(16).of(number).to_vec()
}

/// Benchmarks that meet every key, or, with three times as many tries as keys, all but surely this one.
const READERS: [Benchmark; 5] =
    [Benchmark::ReadSeq, Benchmark::ReadReverse, Benchmark::ReadRandom, Benchmark::SeekRandom, Benchmark::YcsbC];

/// Uniform reads may miss a key, so that a good many are changed.
fn every_tenth() -> impl Iterator<Item = u64> {
    (0..NUM).step_by(10)
}

#[test]
fn a_right_store_passes_every_benchmark() {
    use clap::ValueEnum;
    let mut all = vec![Benchmark::FillRandom];
    all.extend(Benchmark::value_variants());
    all.extend([Benchmark::ReadSeq, Benchmark::ReadReverse, Benchmark::ReadRandom, Benchmark::Scan]);
    for (kind, (_dir, store)) in [(Kind::Db, store()), (Kind::Cask, cask())] {
        let possible: Vec<_> = all.iter().copied().filter(|benchmark| benchmark.refusal(kind).is_none()).collect();
        let figures = run(&plan(&possible), &store, Value::Null).unwrap();
        assert_eq!(figures.wrong, None, "{kind}");
        assert_eq!(figures.outcomes.len(), possible.len(), "{kind}");
        assert!(figures.end.user_bytes > 0 && figures.end.written_bytes() > figures.end.user_bytes / 2, "{kind}");
    }
}

#[test]
fn what_a_kind_of_store_cannot_do_is_refused_before_anything_runs() {
    for (refused, (_dir, store)) in
        [(Benchmark::Scan, store()), (Benchmark::ReadSeq, cask()), (Benchmark::YcsbE, cask())]
    {
        let failure = run(&plan(&[Benchmark::FillSeq, refused]), &store, Value::Null).unwrap_err();
        assert!(failure.to_string().contains(&refused.name()), "{failure}");
        assert_eq!(store.picture().user_bytes, 0);
    }
}

/// Benchmarks of a Cask that meet every key, or all but surely one of those that were changed.
const CASK_READERS: [Benchmark; 3] = [Benchmark::ReadRandom, Benchmark::YcsbC, Benchmark::Scan];

fn put(cask: &Cask, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    cask.put(key, value).unwrap();
}

#[test]
fn lost_keys_of_a_cask_are_noticed() {
    // Not readwhilewriting: a Cask may have put all of them again before the first is read.
    for reader in [Benchmark::ReadRandom, Benchmark::YcsbC, Benchmark::Exists] {
        let lose =
            |cask: &Cask, _: &Values| every_tenth().for_each(|number| assert!(cask.delete(key(number)).unwrap()));
        assert_eq!(fault_in_cask(&[Benchmark::FillRandom], lose, reader).unwrap().fault, Fault::Missing, "{reader:?}");
    }
    for reader in [Benchmark::Scan, Benchmark::ScanKeys] {
        let lose = |cask: &Cask, _: &Values| assert!(cask.delete(key(7)).unwrap());
        let wrong = fault_in_cask(&[Benchmark::FillRandom], lose, reader).unwrap();
        assert_eq!(wrong.fault, Fault::Count { keys: NUM - 1, due: NUM });
        assert_eq!(wrong.to_string(), "a scan met 499 keys in place of 500");
    }
}

#[test]
fn old_changed_and_revived_values_of_a_cask_are_noticed() {
    let old = |values: &Values, number: u64| {
        let mut old = Vec::new();
        values.write(number, 1, &mut old);
        old
    };
    for reader in CASK_READERS {
        let go_back = |cask: &Cask, values: &Values| {
            every_tenth().for_each(|number| put(cask, key(number), old(values, number)));
        };
        let wrong = fault_in_cask(&[Benchmark::FillSeq, Benchmark::Overwrite], go_back, reader);
        assert!(matches!(wrong.unwrap().fault, Fault::Stale { generation: 1, .. }), "{reader:?}");
        let flip = |cask: &Cask, _: &Values| {
            for number in every_tenth() {
                let mut value = cask.get(key(number)).unwrap().unwrap().into_vec();
                *value.last_mut().unwrap() ^= 1;
                cask.put(key(number), value).unwrap();
            }
        };
        let wrong = fault_in_cask(&[Benchmark::FillSeq], flip, reader).unwrap();
        assert!(every_tenth().any(|number| wrong.spot == Spot::Key(key(number))), "{reader:?}: {wrong}");
        let revive = |cask: &Cask, values: &Values| {
            (0..NUM).for_each(|number| put(cask, key(number), old(values, number)));
        };
        let wrong = fault_in_cask(&[Benchmark::FillSeq, Benchmark::DeleteRandom], revive, reader).unwrap();
        assert_eq!(wrong.fault, Fault::Unexpected, "{reader:?}");
    }
    let strange = |cask: &Cask, _: &Values| put(cask, "strange", "x");
    assert_eq!(fault_in_cask(&[Benchmark::FillSeq], strange, Benchmark::Scan).unwrap().fault, Fault::Foreign);
    let there = |cask: &Cask, _: &Values| (0..NUM).for_each(|number| put(cask, Key::new(16).missing(number), "x"));
    let wrong = fault_in_cask(&[Benchmark::FillSeq], there, Benchmark::ReadMissing).unwrap();
    assert_eq!(wrong.fault, Fault::Unexpected);
}

#[test]
fn lost_keys_are_noticed_by_whoever_reads() {
    // Not readwhilewriting: its writer may put a lost key again before it is read.
    for reader in READERS.into_iter().chain([Benchmark::ScanKeys, Benchmark::Exists]) {
        let lose = |db: &Db, _: &Values| every_tenth().for_each(|number| db.delete(key(number)).unwrap());
        let wrong = fault_after(&[Benchmark::FillRandom], lose, reader).unwrap_or_else(|| panic!("{reader:?}"));
        assert_eq!(wrong.fault, Fault::Missing, "{reader:?}");
    }
}

#[test]
fn dropped_updates_are_noticed() {
    for reader in READERS {
        let go_back = |db: &Db, values: &Values| {
            for number in every_tenth() {
                let mut old = Vec::new();
                values.write(number, 1, &mut old);
                db.put(key(number), old).unwrap();
            }
        };
        let wrong = fault_after(&[Benchmark::FillSeq, Benchmark::Overwrite], go_back, reader);
        assert!(matches!(wrong.unwrap().fault, Fault::Stale { generation: 1, .. }), "{reader:?}");
    }
}

#[test]
fn a_flipped_bit_is_noticed() {
    for reader in READERS {
        let flip = |db: &Db, _: &Values| {
            for number in every_tenth() {
                let mut value = db.get(key(number)).unwrap().unwrap().into_vec();
                *value.last_mut().unwrap() ^= 1;
                db.put(key(number), value).unwrap();
            }
        };
        let wrong = fault_after(&[Benchmark::FillSeq], flip, reader).unwrap();
        assert!(every_tenth().any(|number| wrong.spot == Spot::Key(key(number))), "{reader:?}: {wrong}");
    }
}

#[test]
fn deleted_keys_that_come_back_are_noticed() {
    for reader in [Benchmark::ReadRandom, Benchmark::ReadSeq, Benchmark::ReadReverse, Benchmark::ScanKeys] {
        let resurrect = |db: &Db, values: &Values| {
            for number in 0..NUM {
                let mut value = Vec::new();
                values.write(number, 1, &mut value);
                db.put(key(number), value).unwrap();
            }
        };
        for delete in [Benchmark::DeleteRandom, Benchmark::DeleteRange] {
            let wrong = fault_after(&[Benchmark::FillSeq, delete], resurrect, reader).unwrap();
            assert_eq!(wrong.fault, Fault::Unexpected, "{delete:?} {reader:?}");
        }
    }
}

#[test]
fn foreign_keys_and_values_are_noticed() {
    let strange = |db: &Db, _: &Values| db.put("strange", "x").unwrap();
    assert_eq!(fault_after(&[Benchmark::FillSeq], strange, Benchmark::ReadSeq).unwrap().fault, Fault::Foreign);
    let swapped = |db: &Db, _: &Values| db.put(key(7), db.get(key(8)).unwrap().unwrap()).unwrap();
    let wrong = fault_after(&[Benchmark::FillSeq], swapped, Benchmark::ReadSeq).unwrap();
    assert_eq!(wrong, Wrong::key(&key(7), Fault::OtherKey(8)));
    let there = |db: &Db, _: &Values| (0..NUM).for_each(|number| db.put(Key::new(16).missing(number), "x").unwrap());
    assert_eq!(fault_after(&[Benchmark::FillSeq], there, Benchmark::ReadMissing).unwrap().fault, Fault::Unexpected);
}

#[test]
fn time_ends_a_benchmark_that_would_go_on() {
    let (mut plan, (_dir, store)) = (plan(&[Benchmark::FillSeq, Benchmark::YcsbA, Benchmark::ReadSeq]), store());
    // The clock starts a moment before the threads do.
    let (time, least) = (Duration::from_millis(100), Duration::from_millis(90));
    plan.time = Some(time);
    let figures = run(&plan, &store, Value::Null).unwrap();
    let times: Vec<Duration> = figures.outcomes.iter().map(|outcome| outcome.time).collect();
    assert!(times[1..].iter().all(|&time| time >= least), "{times:?}");
    assert!(figures.is_right());
}
