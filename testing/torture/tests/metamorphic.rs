//! The same answers whatever the options: one list of operations, many stores, each with options of its own.
//!
//! Method: a seed makes a list of operations and questions; it is played under several random sets of options, and every answer is
//! written down. All transcripts must be the same. There is no model here that could share a mistake with the engine.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use esker::env::sim::SimDisk;
use esker::{
    Cask, CaskBatch, CaskOptions, CaskWriteOptions, Db, Options, RaftLog, ReadOptions, Result, Snapshot, WriteBatch,
    WriteOptions,
};
use esker_torture::crash::Replay;
use esker_torture::raft::{self, Contents};
use esker_torture::{cask, model, options, seeds, workload};
use fastrand::Rng;

const FILE: &str = "metamorphic";
/// Sets of options for each list.
const SETS: u64 = 6;

/// Plays one list under many options and compares what was answered.
fn compare<O: Debug>(replay: Replay, choose: impl Fn(&mut Rng) -> O, play: impl Fn(&O) -> Result<Vec<String>>) {
    let mut first: Option<(O, Vec<String>)> = None;
    for set in 0..SETS {
        let chosen = choose(&mut Rng::with_seed(replay.seed * 1000 + set));
        let answers = play(&chosen).unwrap_or_else(|error| panic!("{replay}: {error}: {chosen:?}"));
        let Some((other, expected)) = &first else {
            first = Some((chosen, answers));
            continue;
        };
        if let Some(at) = (0..expected.len().max(answers.len())).find(|&at| expected.get(at) != answers.get(at)) {
            let (one, two) = (expected.get(at), answers.get(at));
            panic!("{replay}: answer {at}: {one:?} with {other:?}, but {two:?} with {chosen:?}");
        }
    }
}

/// Short, and another for other bytes.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("{}:{hash:x}", bytes.len())
}

fn found(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "none".to_owned(), digest)
}

#[derive(Debug)]
enum CaskDeed {
    Put(Vec<u8>, Vec<u8>, Option<u64>),
    Delete(Vec<u8>),
    PutIfAbsent(Vec<u8>, Vec<u8>),
    CompareAndSet(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>),
    Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Get(Vec<u8>),
    Scan,
    Compact,
    Reopen { dies: bool },
    Wait(u64),
}

fn cask_deeds(random: &mut Rng) -> Vec<CaskDeed> {
    // Few values, so that comparing sometimes finds what it expects.
    let some = |random: &mut Rng| vec![random.u8(..3); [1, 300, 2000][random.usize(..3)]];
    let deed = |random: &mut Rng| {
        let key = workload::key(random);
        match random.u8(..100) {
            0..24 => CaskDeed::Put(key, workload::value(random), (random.u8(..5) == 0).then(|| random.u64(1..50))),
            24..30 => CaskDeed::Put(key, some(random), None),
            30..38 => CaskDeed::Delete(key),
            38..44 => CaskDeed::PutIfAbsent(key, some(random)),
            44..54 => {
                let (expected, new) = (random.bool().then(|| some(random)), random.bool().then(|| some(random)));
                CaskDeed::CompareAndSet(key, expected, new)
            }
            54..64 => {
                let op = |random: &mut Rng| (workload::key(random), random.bool().then(|| workload::value(random)));
                CaskDeed::Batch((0..random.usize(1..8)).map(|_| op(random)).collect())
            }
            64..88 => CaskDeed::Get(key),
            88..91 => CaskDeed::Scan,
            91..93 => CaskDeed::Compact,
            93..97 => CaskDeed::Reopen { dies: random.bool() },
            _ => CaskDeed::Wait(random.u64(1..12)),
        }
    };
    (0..220).map(|_| deed(random)).collect()
}

fn play_cask(deeds: &[CaskDeed], options: &CaskOptions) -> Result<Vec<String>> {
    let mut disk = SimDisk::new();
    let mut cask = Cask::open_with_env("/store", options.clone(), disk.env())?;
    let plain = CaskWriteOptions::default();
    let mut answers = Vec::new();
    for deed in deeds {
        answers.push(match deed {
            CaskDeed::Put(key, value, ttl) => {
                let ttl = ttl.map(Duration::from_secs);
                cask.put_with(key, value, &CaskWriteOptions { ttl, stripe: Some(answers.len()), ..plain })?;
                String::new()
            }
            // Whether an expired value was still there is nobody's promise.
            CaskDeed::Delete(key) => {
                let was_there = cask.get(key)?.is_some();
                let deleted = cask.delete(key)?;
                format!("{was_there} {}", deleted || !was_there)
            }
            CaskDeed::PutIfAbsent(key, value) => cask.put_if_absent(key, value, &plain)?.to_string(),
            CaskDeed::CompareAndSet(key, expected, new) => {
                cask.compare_and_set(key, expected.as_deref(), new.as_deref(), &plain)?.to_string()
            }
            CaskDeed::Batch(ops) => {
                let mut batch = CaskBatch::new();
                for (key, value) in ops {
                    match value {
                        Some(value) => batch.put(key, value.clone())?,
                        None => batch.delete(key)?,
                    }
                }
                cask.write(&batch, &plain)?;
                String::new()
            }
            CaskDeed::Get(key) => {
                format!("{} {:?} {}", found(cask.get(key)?.as_deref()), cask.value_len(key)?, cask.exists(key)?)
            }
            CaskDeed::Scan => {
                // Of several versions that are kept, the scan shows all, but only of keys that `get` finds.
                let mut entries = BTreeMap::new();
                let mut scan = cask.scan()?;
                while scan.advance()? {
                    entries.insert(digest(scan.key()), found(cask.get(scan.key())?.as_deref()));
                }
                format!("{entries:?}")
            }
            CaskDeed::Compact => {
                cask.compact()?;
                String::new()
            }
            CaskDeed::Reopen { dies } => {
                if *dies {
                    disk = disk.after_process_death();
                    drop(cask);
                } else {
                    cask.close()?;
                }
                cask = Cask::open_with_env("/store", options.clone(), disk.env())?;
                String::new()
            }
            CaskDeed::Wait(seconds) => {
                disk.clock().advance(Duration::from_secs(*seconds));
                String::new()
            }
        });
    }
    Ok(answers)
}

/// Goal: stripes, file sizes, compression, versions kept, merges and the places of reopenings change no answer of a Cask.
#[test]
fn a_cask_answers_the_same_under_all_options() {
    let test = "a_cask_answers_the_same_under_all_options";
    for seed in seeds(40) {
        let deeds = cask_deeds(&mut Rng::with_seed(seed));
        compare(Replay { file: FILE, test, seed }, cask::options, |options| play_cask(&deeds, options));
    }
}

/// What is asked of every group, with limits that fall within entries.
fn raft_answers(log: &RaftLog, random: &mut Rng) -> Result<String> {
    let mut answers =
        format!("{:?}", log.groups().into_iter().filter(|&id| raft_group_has_something(log, id)).collect::<Vec<_>>());
    for id in 1..=4 {
        let (first, last) = (log.first_index(id), log.last_index(id));
        answers += &format!(" {id}: {first:?} {last:?}");
        if let Some((first, last)) = first.zip(last) {
            let begin = random.u64(first..=last);
            let end = random.u64(begin..=last + 1);
            let limit = [None, Some(0), Some(150), Some(700)][random.usize(..4)];
            for entry in log.entries(id, begin, end, limit)? {
                answers += &format!(" {}", digest(&entry));
            }
            answers += &format!(" {}", found(log.entry(id, begin)?.as_deref()));
        }
        for (key, value) in log.keys(id, None, None) {
            answers += &format!(" {key:?}={}", digest(&value));
        }
    }
    Ok(answers)
}

fn raft_group_has_something(log: &RaftLog, id: u64) -> bool {
    log.first_index(id).is_some() || !log.keys(id, None, None).is_empty()
}

/// Goal: file sizes, compression, recycling, both formats, quotas, threads of recovery and purges change no answer of a Raft log.
#[test]
fn a_raft_log_answers_the_same_under_all_options() {
    let test = "a_raft_log_answers_the_same_under_all_options";
    for seed in seeds(40) {
        let mut random = Rng::with_seed(seed);
        let mut model = Contents::new();
        // Purges and moves are work that nobody sees: which of them come is the options' seed's business.
        let batches: Vec<_> = (0..130)
            .map(|_| {
                let ops = raft::batch(&mut random, &model, 4);
                raft::apply(&mut model, &ops);
                ops
            })
            .collect();
        let choose = |random: &mut Rng| {
            let mut options = raft::options(random);
            options.recovery_threads = random.usize(1..4);
            (options, random.u64(..))
        };
        compare(Replay { file: FILE, test, seed }, choose, |(options, work)| {
            let (mut asking, mut working) = (Rng::with_seed(seed), Rng::with_seed(*work));
            let mut disk = SimDisk::new();
            let mut log = RaftLog::open_with_env("/log", options.clone(), disk.env())?;
            let mut answers = Vec::new();
            for ops in &batches {
                log.write(&mut raft::encode(ops)?, working.bool())?;
                match working.u8(..16) {
                    0 => drop(log.purge()?),
                    1 => log.move_on(None)?,
                    2 => log.rewrite_again()?,
                    3 => {
                        if working.bool() {
                            disk = disk.after_process_death();
                            drop(log);
                        } else {
                            log.close()?;
                            drop(log);
                        }
                        log = RaftLog::open_with_env("/log", options.clone(), disk.env())?;
                    }
                    _ => {}
                }
                answers.push(raft_answers(&log, &mut asking)?);
            }
            Ok(answers)
        });
    }
}

const FAMILIES: [&str; 2] = ["default", "reversed"];

#[derive(Debug)]
enum DbDeed {
    Write(Vec<model::Op>),
    CompareAndSet(Vec<u8>, Option<u8>, u8),
    Get(Vec<u8>, Option<usize>),
    Scan { family: usize, prefix: Vec<u8>, is_backward: bool, at: Option<usize> },
    Hold(usize),
}

fn db_deeds(random: &mut Rng) -> Vec<DbDeed> {
    let at = |random: &mut Rng| random.bool().then(|| random.usize(..3));
    let deed = |random: &mut Rng| match random.u8(..100) {
        0..45 => DbDeed::Write(workload::batch(random, &FAMILIES)),
        45..55 => {
            let key = vec![b'c', random.u8(..3)];
            DbDeed::CompareAndSet(key, random.bool().then(|| random.u8(..3)), random.u8(..3))
        }
        55..82 => DbDeed::Get(workload::key(random), at(random)),
        82..95 => {
            let key = workload::key(random);
            let prefix = key[..random.usize(..=key.len())].to_vec();
            DbDeed::Scan { family: random.usize(..2), prefix, is_backward: random.bool(), at: at(random) }
        }
        _ => DbDeed::Hold(random.usize(..3)),
    };
    (0..160).map(|_| deed(random)).collect()
}

fn open_db(options: &Options, disk: &SimDisk) -> Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

fn play_db(deeds: &[DbDeed], options: &Options, working: &mut Rng) -> Result<Vec<String>> {
    let disk = SimDisk::new();
    let mut db = open_db(options, &disk)?;
    let mut held: [Option<Snapshot>; 3] = Default::default();
    let mut answers = Vec::new();
    for deed in deeds {
        let moment =
            |at: &Option<usize>| ReadOptions { snapshot: at.and_then(|at| held[at].clone()), ..ReadOptions::default() };
        answers.push(match deed {
            DbDeed::Write(ops) => {
                db.write(workload::to_batch(&db, ops)?, &WriteOptions::default())?;
                String::new()
            }
            DbDeed::CompareAndSet(key, expected, new) => {
                let (family, plain, new) = (db.default_column_family(), WriteOptions::default(), vec![*new; 500]);
                match expected {
                    Some(expected) => db.compare_and_set(&family, key, vec![*expected; 500], new, &plain)?.to_string(),
                    None => db.put_if_absent(&family, key, new, &plain)?.to_string(),
                }
            }
            DbDeed::Get(key, at) => {
                let (options, mut answer) = (moment(at), String::new());
                for name in FAMILIES {
                    let family = db.column_family(name).expect("made above");
                    let length = db.value_len_cf(&family, key, &options)?;
                    answer += &format!("{} {length:?} ", found(db.get_cf(&family, key, &options)?.as_deref()));
                }
                answer
            }
            DbDeed::Scan { family, prefix, is_backward, at } => {
                let family = db.column_family(FAMILIES[*family]).expect("made above");
                let options = ReadOptions { lower_bound: Some(prefix.clone()), ..moment(at) };
                let entries = if *is_backward { model::backward } else { model::forward }(&db, &family, &options)?;
                entries.iter().map(|(key, value)| format!("{key:?}={} ", digest(value))).collect()
            }
            DbDeed::Hold(place) => {
                held[*place] = Some(db.snapshot());
                String::new()
            }
        });
        match working.u8(..40) {
            0 => db.flush()?,
            1 => db.compact_range(&db.default_column_family(), None, None)?,
            2 => drop(db.reclaim(&db.column_family("reversed").expect("made above"), 0.1)?),
            3 if held.iter().all(Option::is_none) => {
                db.close()?;
                db = open_db(options, &disk)?;
            }
            _ => {}
        }
    }
    let check = db.check(&mut |_| {})?;
    assert!(check.errors.is_empty(), "{:?}: {options:?}", check.errors);
    let mut last = WriteBatch::new();
    last.put("last", "write")?;
    db.write(last, &WriteOptions::default())?;
    db.close()?;
    Ok(answers)
}

/// Goal: separation, buffers, levels, blocks, filters, compression, caches, memory limits, threads, reclaim, flushes and
/// compactions change no answer of a Db, of the present or of a snapshot.
#[test]
fn a_db_answers_the_same_under_all_options() {
    let test = "a_db_answers_the_same_under_all_options";
    for seed in seeds(40) {
        let deeds = db_deeds(&mut Rng::with_seed(seed));
        let choose = |random: &mut Rng| {
            let background_jobs = if random.u8(..4) == 0 { 2 } else { 0 };
            (options::store_anywhere(random, &FAMILIES, background_jobs), random.u64(..))
        };
        compare(Replay { file: FILE, test, seed }, choose, |(options, work)| {
            play_db(&deeds, options, &mut Rng::with_seed(*work))
        });
    }
}

/// Goal: an answer that differs is noticed, and its seed is named.
#[test]
fn another_answer_is_noticed() {
    let replay = Replay { file: FILE, test: "none", seed: 7 };
    let play = |odd: &bool| Ok(vec!["same".to_owned(), if *odd { "other" } else { "same" }.to_owned()]);
    let died = std::panic::catch_unwind(|| compare(replay, |random| random.bool(), play)).unwrap_err();
    let words = died.downcast_ref::<String>().unwrap();
    assert!(words.contains("ESKER_SEED=7") && words.contains("answer 1"), "{words}");
}
