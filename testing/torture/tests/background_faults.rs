//! Calls that fail while background threads work and two threads write and read: what each of these was told stays true.
//!
//! Threads come in any order, so a seed repeats the faults and the workloads, not the runs. A failure prints both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    Cask, CaskOptions, CaskWriteOptions, ColumnFamily, Db, ErrorKind, LogBatch, Options, RaftLog, ReadOptions, Result,
    WriteBatch, WriteOptions, raft,
};
use esker_torture::crash::{Promise, Tally, disk, images, kept_by_reopening, may_end_writes};
use esker_torture::{cask, noise, options, seeds};
use fastrand::Rng;

const THREADS: u64 = 2;
/// Of each thread.
const KEYS: u64 = 16;
/// How long a run may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many operations fail in a row.
const A_WHILE: u64 = 30;

/// How calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    EioOnce,
    EioForever,
    FullOnce,
    FullForAWhile,
    FailedSync,
}

const KINDS: [Kind; 5] = [Kind::EioOnce, Kind::EioForever, Kind::FullOnce, Kind::FullForAWhile, Kind::FailedSync];

impl Kind {
    fn arm(self, disk: &SimDisk, n: u64) {
        match self {
            Self::EioOnce => disk.fail_at(n, Fault::Eio),
            Self::EioForever => disk.fail_from(n, Fault::Eio),
            Self::FullOnce => disk.fail_at(n, Fault::NoSpace),
            Self::FullForAWhile => (n..n + A_WHILE).for_each(|n| disk.fail_at(n, Fault::NoSpace)),
            Self::FailedSync => disk.fail_next_sync(n, Fault::Eio),
        }
    }

    /// Whether what failed is a reason to take no more writes.
    fn may_end_writes(self, disk: &SimDisk, n: u64) -> bool {
        match self {
            Self::EioOnce | Self::FullOnce => may_end_writes(disk, n),
            Self::FullForAWhile => (n..n + A_WHILE).any(|n| may_end_writes(disk, n)),
            Self::EioForever | Self::FailedSync => true,
        }
    }
}

/// A store with threads of its own.
trait Engine: Sized + Send + Sync + 'static {
    /// Whether what survives of a thread's writes are the first so many of them.
    const IS_ORDERED: bool;
    /// Writes and reads of each thread.
    const STEPS: u64;

    fn open(disk: &SimDisk, seed: u64, background: bool) -> Result<Self>;
    fn write(&self, thread: u64, key: u64, value: Option<&[u8]>, sync: bool) -> Result<()>;
    fn read(&self, thread: u64, key: u64) -> Result<Option<Vec<u8>>>;
    /// Something that is otherwise done in the background, or a sync. Whether all that was acknowledged before is durable afterwards.
    fn work(&self, roll: u64) -> Result<bool>;
    /// All that is due.
    fn settle(&self) -> Result<()>;
    fn error(&self) -> Option<String>;
    /// How many writes of a thread are there, if the store knows.
    fn count(&self, _: u64) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Looks at all that is there, and closes. What is wrong.
    fn end(self, disk: &SimDisk, seed: u64) -> Vec<String>;
}

struct OfDb {
    db: Db,
    families: [ColumnFamily; 2],
}

impl Engine for OfDb {
    const IS_ORDERED: bool = true;
    const STEPS: u64 = 300;

    fn open(disk: &SimDisk, seed: u64, background: bool) -> Result<Self> {
        let jobs = if background { 2 } else { 0 };
        let options: Options = options::store_anywhere(&mut Rng::with_seed(seed), &["default", "second"], jobs);
        let second = options.families["second"].clone();
        let db = Db::open_with_env("/store", options, disk.env())?;
        let second = match db.column_family("second") {
            Some(second) => second,
            None => db.create_column_family("second", second)?,
        };
        let families = [db.default_column_family(), second];
        Ok(Self { db, families })
    }

    fn write(&self, thread: u64, key: u64, value: Option<&[u8]>, sync: bool) -> Result<()> {
        let (family, mut batch) = (&self.families[key as usize % 2], WriteBatch::new());
        match value {
            Some(value) => batch.put_cf(family, [thread as u8, key as u8], value)?,
            None => batch.delete_cf(family, [thread as u8, key as u8])?,
        }
        self.db.write(batch, &WriteOptions { sync, ..WriteOptions::default() })
    }

    fn read(&self, thread: u64, key: u64) -> Result<Option<Vec<u8>>> {
        let family = &self.families[key as usize % 2];
        Ok(self.db.get_cf(family, [thread as u8, key as u8], &ReadOptions::default())?.map(|value| value.to_vec()))
    }

    fn work(&self, roll: u64) -> Result<bool> {
        match roll % 4 {
            0 => self.db.flush().map(|()| true),
            1 => self.db.sync_wal().map(|()| true),
            2 => self.db.compact_range(&self.families[0], None, None).map(|()| false),
            _ => self.db.reclaim(&self.families[1], 0.05).map(|_| false),
        }
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        self.db.wait_for_compact()
    }

    fn error(&self) -> Option<String> {
        self.db.stats().background_error.map(|error| error.to_string())
    }

    fn end(self, _: &SimDisk, _: u64) -> Vec<String> {
        let mut wrong: Vec<String> =
            self.db.check(&mut |_| {}).unwrap().errors.iter().map(|error| format!("{error:?}")).collect();
        wrong.extend(self.db.close().err().map(|error| error.to_string()));
        wrong
    }
}

struct OfCask(Cask);

impl Engine for OfCask {
    const IS_ORDERED: bool = false;
    const STEPS: u64 = 300;

    fn open(disk: &SimDisk, seed: u64, background: bool) -> Result<Self> {
        let options = cask::options(&mut Rng::with_seed(seed));
        let background_jobs = if background { 2 } else { 0 };
        // What is not verified may change once a sync fails, until that is known.
        let options = CaskOptions { background_jobs, merge_interval_ms: 10, verify_reads: true, ..options };
        Cask::open_with_env("/store", options, disk.env()).map(Self)
    }

    fn write(&self, thread: u64, key: u64, value: Option<&[u8]>, sync: bool) -> Result<()> {
        let (key, options) = ([thread as u8, key as u8], CaskWriteOptions { sync, ..CaskWriteOptions::default() });
        match value {
            Some(value) => self.0.put_with(key, value, &options).map(drop),
            None => self.0.delete_with(key, &options).map(drop),
        }
    }

    fn read(&self, thread: u64, key: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get([thread as u8, key as u8])?.map(Vec::from))
    }

    fn work(&self, roll: u64) -> Result<bool> {
        if roll.is_multiple_of(2) {
            self.0.sync()?
        } else {
            self.0.compact()?
        }
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        self.0.compact()
    }

    fn error(&self) -> Option<String> {
        self.0.stats().background_error.map(|error| error.to_string())
    }

    fn end(self, _: &SimDisk, _: u64) -> Vec<String> {
        let mut wrong: Vec<String> =
            self.0.check(&mut |_| {}).unwrap().errors.iter().map(|error| format!("{error:?}")).collect();
        wrong.extend(self.0.recovery().damage.iter().map(|damage| format!("{damage:?}")));
        wrong.extend(self.0.close().err().map(|error| error.to_string()));
        wrong
    }
}

/// Each write is a key and an entry.
struct OfRaft {
    log: RaftLog,
    disk: SimDisk,
}

impl OfRaft {
    fn options(seed: u64, background: bool) -> raft::Options {
        let options = esker_torture::raft::options(&mut Rng::with_seed(seed));
        raft::Options { purge_interval: background.then_some(Duration::from_millis(1)), ..options }
    }

    fn entry(thread: u64, index: u64) -> Vec<u8> {
        vec![(thread * 100 + index) as u8; index as usize * 37 % 300]
    }
}

impl Engine for OfRaft {
    const IS_ORDERED: bool = true;
    const STEPS: u64 = 300;

    fn open(disk: &SimDisk, seed: u64, background: bool) -> Result<Self> {
        RaftLog::open_with_env("/log", Self::options(seed, background), disk.env())
            .map(|log| Self { log, disk: disk.clone() })
    }

    fn write(&self, thread: u64, key: u64, value: Option<&[u8]>, sync: bool) -> Result<()> {
        let (group, mut batch) = (thread + 1, LogBatch::new());
        match value {
            Some(value) => batch.put(group, &[key as u8], value)?,
            None => batch.delete(group, &[key as u8]),
        }
        let index = self.log.last_index(group).unwrap_or(0) + 1;
        batch.add_entries(group, index, [Self::entry(thread, index)])?;
        if index.is_multiple_of(8) {
            batch.compact(group, index - 5);
        }
        self.log.write(&mut batch, sync).map(drop)
    }

    fn read(&self, thread: u64, key: u64) -> Result<Option<Vec<u8>>> {
        let group = thread + 1;
        // One that is not compacted away while it is read.
        if let Some(last) = self.log.last_index(group) {
            let (was_whole, entry) = (!self.disk.has_evicted(), self.log.entry(group, last)?);
            // What goes from memory while it is copied was checked before.
            let is_going = was_whole && self.disk.has_evicted();
            let is_right = entry.is_none_or(|entry| entry == Self::entry(thread, last));
            assert!(is_right || is_going, "entry {last} of group {group}");
        }
        Ok(self.log.get(group, &[key as u8]).map(|value| value.to_vec()))
    }

    fn work(&self, roll: u64) -> Result<bool> {
        match roll % 4 {
            0 => self.log.sync().map(|()| true),
            1 => self.log.purge().map(|_| false),
            2 => self.log.move_on(None).map(|()| false),
            _ => self.log.rewrite_again().map(|()| false),
        }
    }

    fn settle(&self) -> Result<()> {
        self.log.purge()?;
        self.log.sync()
    }

    fn error(&self) -> Option<String> {
        let stats = self.log.stats();
        stats.write_error.or(stats.purge_error)
    }

    fn count(&self, thread: u64) -> Result<Option<u64>> {
        let group = thread + 1;
        let Some((first, last)) = self.log.first_index(group).zip(self.log.last_index(group)) else {
            return Ok(Some(0));
        };
        for (index, entry) in (first..).zip(self.log.entries(group, first, last + 1, None)?) {
            assert_eq!(entry, Self::entry(thread, index), "entry {index} of group {group}");
        }
        Ok(Some(last))
    }

    fn end(self, disk: &SimDisk, seed: u64) -> Vec<String> {
        let closed = self.log.close();
        drop(self);
        let check = RaftLog::check_with_env("/log", &Self::options(seed, false), &disk.env(), &mut |_, _| {}).unwrap();
        let wrong = (!check.is_sound()).then(|| format!("{check:?}"));
        wrong.into_iter().chain(closed.err().map(|error| error.to_string())).collect()
    }
}

/// What was said of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Nothing, or that it is unknown.
    Unknown,
    /// That it did nothing.
    Refused,
    Done,
}

#[derive(Debug, Clone)]
struct Write {
    key: u64,
    /// Its serial number is its place in the list, from 1 on.
    deletes: bool,
    said: Said,
    is_durable: bool,
}

/// The writes of a thread.
type Writes = Vec<Write>;

/// Serial number, thread and key of the write, and a filling of some length.
fn value(thread: u64, key: u64, serial: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(serial as u64 * THREADS + thread);
    let len = if random.u8(..4) == 0 { random.usize(..3000) } else { random.usize(..300) };
    let mut value = [&(serial as u32).to_le_bytes()[..], &[thread as u8, key as u8]].concat();
    value.resize(6 + len, serial as u8);
    noise::fill(&mut random, &mut value[6 + len / 2..]);
    value
}

fn serial_of(value: &[u8]) -> usize {
    u32::from_le_bytes(value[..4].try_into().unwrap()) as usize
}

/// What a key may have, of these writes, which are all of its thread: the last that must be there, or one behind it that may be.
fn may_have(
    writes: &Writes,
    key: u64,
    must: impl Fn(&Write) -> bool,
    may: impl Fn(&Write) -> bool,
) -> BTreeSet<Option<usize>> {
    let of_key = (1..).zip(writes).filter(|(_, write)| write.key == key);
    let mut found = BTreeSet::from([None]);
    for (serial, write) in of_key {
        let value = (!write.deletes).then_some(serial);
        if must(write) {
            found.clear();
        }
        if must(write) || may(write) {
            found.insert(value);
        }
    }
    found
}

fn is_unknown(write: &Write) -> bool {
    write.said == Said::Unknown
}

/// Where it failed, and how to come near to it again.
#[derive(Clone, Copy)]
struct Run {
    test: &'static str,
    seed: u64,
    kind: Kind,
    n: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, seed, kind, n } = self;
        write!(
            f,
            "ESKER_SEED={seed} cargo test -p esker-torture --test all background_faults::{test}: {kind:?} at operation {n}"
        )
    }
}

/// What a thread does. `told` has what it was told. Whether no more writes are taken, and which of the other's it has seen.
fn work<E: Engine>(run: Run, thread: u64, disk: &SimDisk, store: &E, told: &Mutex<Writes>) -> (bool, BTreeSet<usize>) {
    let mut random = Rng::with_seed(run.seed * 1000 + thread);
    let mut newest_seen: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut has_ended, mut seen) = (false, BTreeSet::new());
    let mut steps_left = E::STEPS;
    while steps_left > 0 {
        steps_left -= 1;
        let key = random.u64(..KEYS);
        match random.u8(..100) {
            0..3 => {
                let before = told.lock().unwrap().len();
                match store.work(random.u64(..)) {
                    Ok(true) => {
                        for write in &mut told.lock().unwrap()[..before] {
                            write.is_durable |= write.said == Said::Done;
                        }
                    }
                    Ok(false) => {}
                    Err(error) => {
                        let is_typed =
                            matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted | ErrorKind::ReadOnly);
                        assert!(
                            is_typed || disk.has_evicted() && error.kind() == ErrorKind::Corruption,
                            "{run}: {error}"
                        );
                    }
                }
            }
            roll @ 3..65 => {
                let (deletes, sync) = (roll < 15, random.u8(..6) == 0);
                let mut writes = told.lock().unwrap();
                writes.push(Write { key, deletes, said: Said::Unknown, is_durable: false });
                let serial = writes.len();
                drop(writes);
                let value = value(thread, key, serial);
                let done = store.write(thread, key, (!deletes).then_some(&value), sync);
                let mut writes = told.lock().unwrap();
                match done {
                    Ok(()) => {
                        assert!(!has_ended, "{run}: a write after the last");
                        writes[serial - 1].said = Said::Done;
                        let first = if E::IS_ORDERED { 0 } else { serial - 1 };
                        for write in writes[first..serial].iter_mut().filter(|_| sync) {
                            write.is_durable |= write.said == Said::Done;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::ReadOnly => {
                        steps_left = if has_ended { steps_left } else { steps_left.min(30) };
                        has_ended = true;
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted), "{run}: {error}");
                        assert!(!has_ended, "{run}: {error}");
                        writes[serial - 1].said = Said::Refused;
                    }
                }
            }
            roll => {
                let of = if roll < 85 { thread } else { 1 - thread };
                let found = match store.read(of, key) {
                    Ok(found) => found,
                    Err(error) => {
                        let is_lost = disk.has_evicted() && error.kind() == ErrorKind::Corruption;
                        assert!(is_lost, "{run}: reading {of} {key}: {error}");
                        continue;
                    }
                };
                let serial = found.as_ref().map(|value| serial_of(value));
                if let (Some(found), Some(serial)) = (&found, serial) {
                    assert!(*found == value(of, key, serial), "{run}: {of} {key} has what nobody wrote");
                }
                if of == thread {
                    let may = may_have(&told.lock().unwrap(), key, |write| write.said == Said::Done, is_unknown);
                    assert!(may.contains(&serial), "{run}: {of} {key} is {serial:?}, not one of {may:?}");
                } else if let Some(serial) = serial {
                    let newest = newest_seen.insert(key, serial);
                    assert!(newest <= Some(serial), "{run}: {of} {key} was {newest:?}, is {serial}");
                    seen.insert(serial);
                }
            }
        }
    }
    (has_ended, seen)
}

/// What is there of each thread, and it is what may be: `must` says of which writes.
fn verify<E: Engine>(
    what: &dyn fmt::Display,
    disk: &SimDisk,
    store: &E,
    told: &[Writes],
    must: impl Fn(u64, usize, &Write) -> bool,
    may: impl Fn(&Write) -> bool + Copy,
) {
    for (thread, writes) in (0..).zip(told) {
        let mut found = BTreeMap::new();
        for key in 0..KEYS {
            match store.read(thread, key) {
                Ok(value_found) => {
                    let serial = value_found.as_ref().map(|value| serial_of(value));
                    if let (Some(found), Some(serial)) = (value_found, serial) {
                        assert!(found == value(thread, key, serial), "{what}: {thread} {key} has what nobody wrote");
                    }
                    found.insert(key, serial);
                }
                Err(error) => {
                    let is_lost = disk.has_evicted() && error.kind() == ErrorKind::Corruption;
                    assert!(is_lost, "{what}: reading {thread} {key}: {error}");
                }
            }
        }
        let count = match store.count(thread) {
            Err(error) if disk.has_evicted() && error.kind() == ErrorKind::Corruption => None,
            count => count.unwrap_or_else(|error| panic!("{what}: {thread}: {error}")),
        };
        let numbered: Vec<(usize, &Write)> = (1..).zip(writes).collect();
        let least = numbered.iter().rposition(|(serial, write)| must(thread, *serial, write)).map_or(0, |at| at + 1);
        if E::IS_ORDERED {
            // The first so many, and no other.
            let fits = |upto: usize, last: Option<usize>| {
                let is_there =
                    |serial: usize| serial <= upto && writes[serial - 1].said != Said::Refused || last == Some(serial);
                let there = (1..=writes.len()).filter(|&serial| is_there(serial));
                let mut state = BTreeMap::new();
                let mut applied = 0;
                for serial in there {
                    let write = &writes[serial - 1];
                    state.insert(write.key, (!write.deletes).then_some(serial));
                    applied += 1;
                }
                found.iter().all(|(key, serial)| state.get(key).copied().flatten() == *serial)
                    && count.is_none_or(|count| count == applied)
            };
            let is_prefix = (least..=writes.len()).any(|upto| {
                let next = writes.get(upto).filter(|write| write.said == Said::Refused && may(write)).map(|_| upto + 1);
                fits(upto, None) || next.is_some_and(|next| fits(upto, Some(next)))
            });
            assert!(
                is_prefix,
                "{what}: of thread {thread} {found:?} and {count:?} are not the first of {least} or more of {numbered:?}"
            );
            continue;
        }
        for (key, serial) in found {
            let required: BTreeSet<usize> = numbered
                .iter()
                .filter(|(serial, write)| must(thread, *serial, write))
                .map(|(serial, _)| *serial)
                .collect();
            let last = numbered.iter().rfind(|(serial, write)| write.key == key && required.contains(serial));
            let from = last.map_or(0, |(serial, _)| *serial);
            let mut possible: BTreeSet<Option<usize>> = numbered
                .iter()
                .filter(|(serial, write)| {
                    *serial >= from
                        && write.key == key
                        && (*serial == from || may(write) || write.said != Said::Refused)
                })
                .map(|(serial, write)| (!write.deletes).then_some(*serial))
                .collect();
            if last.is_none() {
                possible.insert(None);
            }
            assert!(possible.contains(&serial), "{what}: {thread} {key} is {serial:?}, not one of {possible:?}");
        }
    }
}

/// Which writes must be on an image of which this was promised when these had been told.
fn promised(told: &[Writes], promise: Promise) -> Vec<BTreeSet<usize>> {
    let is_promised = |write: &Write| match promise {
        Promise::Acknowledged => write.said == Said::Done,
        Promise::Durable => write.is_durable,
    };
    let of =
        |writes: &Writes| (1..).zip(writes).filter(|(_, write)| is_promised(write)).map(|(serial, _)| serial).collect();
    told.iter().map(of).collect()
}

fn look_at<E: Engine>(
    what: &dyn fmt::Display,
    disk: &SimDisk,
    seed: u64,
    told: &[Writes],
    must: &[BTreeSet<usize>],
    is_midst: bool,
) {
    let store = E::open(disk, seed, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    // What was refused later had perhaps got in by then.
    verify(what, disk, &store, told, |thread, serial, _| must[thread as usize].contains(&serial), |_| is_midst);
    let wrong = store.end(disk, seed);
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

fn run_one<E: Engine>(run: Run) {
    let Run { seed, kind, n, .. } = run;
    let disk = disk(seed);
    disk.set_tracing(true);
    let store = Arc::new(E::open(&disk, seed, true).unwrap());
    kind.arm(&disk, n);
    let told: Arc<[Mutex<Writes>; 2]> = Arc::default();
    let workers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (disk, store, told) = (disk.clone(), store.clone(), told.clone());
            thread::spawn(move || work(run, thread, &disk, &*store, &told[thread as usize]))
        })
        .collect();
    let now = || told.iter().map(|writes| writes.lock().unwrap().clone()).collect::<Vec<_>>();
    // The power goes in the midst of what the failure has brought about.
    let midst = n + seed % 50;
    while disk.op_count() <= midst && !workers.iter().all(|worker| worker.is_finished()) {
        thread::yield_now();
    }
    let must = promised(&now(), Promise::Durable);
    let left = disk.after_power_loss(if n % 2 == 0 { Survivors::Nothing } else { Survivors::Sample { seed: n } });
    let ended: Vec<_> =
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect();
    let has_ended = ended.iter().any(|(has_ended, _)| *has_ended);
    let told_now = now();
    look_at::<E>(&format_args!("{run}, power loss in the midst"), &left, seed, &told_now, &must, true);
    for (writes, (_, seen)) in told_now.iter().rev().zip(&ended) {
        let refused = seen.iter().find(|&&serial| writes[serial - 1].said == Said::Refused);
        assert_eq!(refused, None, "{run}: what did nothing was seen");
    }
    let done = |_: u64, _: usize, write: &Write| write.said == Said::Done;
    verify(&run, &disk, &*store, &told_now, done, |_| false);
    if has_ended {
        assert!(kind.may_end_writes(&disk, n), "{run}: writes have ended: {:?}", store.error());
        assert!(store.error().is_some(), "{run}: nobody says why");
    }
    for image in images(&disk, n) {
        let what = format!("{run}, then {}", image.name);
        look_at::<E>(&what, &image.disk, seed, &told_now, &promised(&told_now, image.promise), false);
    }
    // Once it is over, the store goes on by itself, or by being opened again.
    disk.heal();
    let goes_on = loop {
        told[0].lock().unwrap().push(Write { key: 0, deletes: true, said: Said::Unknown, is_durable: false });
        let done = store.write(0, 0, None, true);
        let mut writes = told[0].lock().unwrap();
        let last = writes.last_mut().unwrap();
        match done {
            Ok(()) => {
                last.said = Said::Done;
                writes.iter_mut().for_each(|write| write.is_durable |= E::IS_ORDERED && write.said == Said::Done);
                break true;
            }
            Err(error) if error.kind() == ErrorKind::ReadOnly => break false,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted), "{run}: {error}");
                last.said = Said::Refused;
            }
        }
        drop(writes);
        thread::yield_now();
    };
    assert!(goes_on || kind.may_end_writes(&disk, n), "{run}: writes have ended: {:?}", store.error());
    assert!(!(goes_on && has_ended), "{run}: a store that took no writes takes some");
    if goes_on {
        match store.settle() {
            // A thread of its own says so when it has tried again.
            Ok(()) => {
                let begun = Instant::now();
                while let Some(error) = store.error() {
                    assert!(begun.elapsed() < PATIENCE / 8, "{run}: it is over, but for {error}");
                    thread::yield_now();
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::ReadOnly, "{run}: {error}"),
        }
    } else {
        assert!(store.error().is_some(), "{run}: nobody says why");
    }
    verify(&run, &disk, &*store, &now(), done, |_| false);
    drop(store);
    let told = now();
    let store = E::open(&disk, seed, true).unwrap_or_else(|error| panic!("{run}, reopened: {error}"));
    let must = promised(&told, kept_by_reopening(&disk));
    let what = format!("{run}, reopened");
    verify(&what, &disk, &store, &told, |thread, serial, _| must[thread as usize].contains(&serial), |_| false);
    store.write(0, 0, None, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    store.settle().unwrap_or_else(|error| panic!("{what}: {error}"));
    let wrong = store.end(&disk, seed);
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

/// Every kind of failure at places all over a run.
fn run_all<E: Engine>(test: &'static str) {
    let tally = Tally::new(test);
    for seed in seeds(3) {
        // How many operations there are, about.
        let healthy = disk(seed);
        let store = E::open(&healthy, seed, true).unwrap();
        let first = healthy.op_count();
        let told: [Mutex<Writes>; 2] = Default::default();
        let run = Run { test, seed, kind: Kind::EioOnce, n: u64::MAX };
        thread::scope(|scope| {
            for (thread, told) in (0..).zip(&told) {
                let (store, healthy) = (&store, &healthy);
                scope.spawn(move || assert!(!work(run, thread, healthy, store, told).0));
            }
        });
        let ops = healthy.op_count() - first;
        let mut random = Rng::with_seed(seed);
        for kind in KINDS.into_iter().cycle().take(2 * KINDS.len()) {
            let run = Run { kind, n: first + random.u64(..ops), ..run };
            tally.fault();
            let (done, is_done) = channel();
            let runs = thread::spawn(move || {
                let _done = done;
                run_one::<E>(run);
            });
            // Whoever panics lets go of it, too.
            assert_eq!(is_done.recv_timeout(PATIENCE), Err::<(), _>(RecvTimeoutError::Disconnected), "{run}: it hangs");
            runs.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// Goal: whatever call fails while flushes, compactions, reclaim, logs and manifests are at work beside two writers, no answer is wrong, nothing
/// that was promised is lost, nobody waits for ever, and what ends with its cause is over then.
#[test]
fn a_db_whose_threads_meet_failures_breaks_no_promise() {
    run_all::<OfDb>("a_db_whose_threads_meet_failures_breaks_no_promise");
}

/// Goal: the same for a Cask that seals, prepares and merges files.
#[test]
fn a_cask_whose_threads_meet_failures_breaks_no_promise() {
    run_all::<OfCask>("a_cask_whose_threads_meet_failures_breaks_no_promise");
}

/// Goal: the same for a Raft log that purges by itself.
#[test]
fn a_raft_log_whose_thread_meets_failures_breaks_no_promise() {
    run_all::<OfRaft>("a_raft_log_whose_thread_meets_failures_breaks_no_promise");
}
