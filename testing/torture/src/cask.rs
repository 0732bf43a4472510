//! The same for Cask: what it should answer ([`Past`]), random options, and a workload whose every step is known.
//!
//! A Cask keeps no order between keys: of writes that were not synced, a power loss may keep a later one and lose an earlier
//! one of another key. So what must survive is said key by key, and batch by batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use esker::env::Clock;
use esker::env::sim::{SimClock, SimDisk};
use esker::{Cask, CaskBatch, CaskOptions, CaskWriteOptions, Compression, ErrorKind, Result};
use fastrand::Rng;

use crate::crash::Promise;
use crate::workload;

/// Options small enough that a hundred writes meet rotation, sealing and merging. All work is done by the caller.
pub fn options(random: &mut Rng) -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        stripes: [1, 1, 2, 4][random.usize(..4)],
        file_bytes: [4 << 10, 6 << 10, 16 << 10][random.usize(..3)],
        keep_versions: [1, 1, 1, 2, 4][random.usize(..5)],
        compression: [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd][random.usize(..4)],
        compression_bytes_min: [0, 100, 1000][random.usize(..3)],
        verify_reads: random.bool(),
        merge_garbage_ratio: [0.01, 0.2, 0.5, 1.0][random.usize(..4)],
        merge_batch_bytes: 4 << 10,
        background_jobs: 0,
        open_threads: 0,
        ..CaskOptions::default()
    }
}

/// No value of a workload lives longer, in seconds, unless it lives for ever.
pub const TTL_SECONDS_MAX: u64 = 30;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// What is written to.
    pub key: Vec<u8>,
    /// `None` deletes.
    pub value: Option<Vec<u8>>,
    /// For how many seconds; `None`: for ever.
    pub ttl: Option<u64>,
}

/// One step of a workload.
#[derive(Debug, Clone)]
pub enum Step {
    /// One write, synced or not.
    One(Op, bool),
    /// A batch, synced or not. Keys differ.
    Batch(Vec<Op>, bool),
    /// Everything to the disk.
    Sync,
    /// All garbage goes.
    Compact,
    /// So many seconds pass.
    Wait(u64),
}

/// So many steps on some forty keys, and in half of all workloads values that expire. No two values are the same, so a value says
/// which write it is of.
pub fn steps(random: &mut Rng, count: usize) -> Vec<Step> {
    // By themselves: what is written is the same with and without.
    let mut times = Rng::with_seed(random.clone().u64(..));
    let expires = times.bool();
    let mut steps = timeless_steps(random, count);
    if !expires {
        return steps;
    }
    for at in (0..steps.len()).rev() {
        let mut limit = |op: &mut Op| {
            op.ttl = (op.value.is_some() && times.u8(..3) == 0).then(|| times.u64(1..=TTL_SECONDS_MAX));
        };
        match &mut steps[at] {
            Step::One(op, _) => limit(op),
            Step::Batch(ops, _) => ops.iter_mut().for_each(limit),
            _ => {}
        }
        if times.u8(..8) == 0 {
            steps.insert(at, Step::Wait(times.u64(1..=12)));
        }
    }
    steps
}

fn timeless_steps(random: &mut Rng, count: usize) -> Vec<Step> {
    let mut serial = 0u32;
    let mut op = |random: &mut Rng| {
        serial += 1;
        let key = workload::key(random);
        let key = if random.bool() { key } else { vec![b'a' + random.u8(..8)] };
        let value = (random.u8(..4) > 0).then(|| {
            let mut value = workload::value(random);
            value.truncate(if random.u8(..8) == 0 { 3000 } else { 400 });
            [format!("{serial} ").into_bytes(), value].concat()
        });
        Op { key, value, ttl: None }
    };
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        steps.push(match random.u8(..100) {
            0..4 => Step::Compact,
            4..8 => Step::Sync,
            8..30 => {
                let ops = (0..random.usize(1..=6)).map(|_| op(random));
                let ops: BTreeMap<_, _> = ops.map(|op| (op.key.clone(), op)).collect();
                Step::Batch(ops.into_values().collect(), random.u8(..4) == 0)
            }
            roll => Step::One(op(random), roll < 50),
        });
    }
    steps
}

/// What a write gave a key.
#[derive(Debug, Clone)]
pub struct Given {
    /// The number of the write.
    pub number: usize,
    /// `None`: it was a deletion.
    pub value: Option<Vec<u8>>,
    /// When it is gone, in seconds since 1970; `None`: never.
    pub expires_at: Option<u64>,
}

impl Given {
    /// What a reader finds of it at `time`.
    pub fn seen_at(&self, time: u64) -> Option<&Vec<u8>> {
        self.value.as_ref().filter(|_| self.expires_at.is_none_or(|at| at > time))
    }
}

/// Everything a store was asked, and what it promised of it.
#[derive(Debug, Clone)]
pub struct Past {
    clock: Arc<SimClock>,
    /// Of each key, which write gave it which value. Before the first it has none.
    pub keys: BTreeMap<Vec<u8>, Vec<Given>>,
    /// The keys of each write, by its number.
    pub writes: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Writes so far.
    pub count: usize,
    /// Writes that returned `Ok`: the death of the process must not lose them.
    pub acknowledged: BTreeSet<usize>,
    /// Writes that power loss must not lose.
    pub durable: BTreeSet<usize>,
}

impl Past {
    /// Of a store on this disk.
    pub fn new(disk: &SimDisk) -> Self {
        let (keys, writes, count) = (BTreeMap::new(), BTreeMap::new(), 0);
        let (acknowledged, durable) = (BTreeSet::new(), BTreeSet::new());
        Self { clock: disk.clock(), keys, writes, count, acknowledged, durable }
    }

    /// The same, looked at from another disk, whose clock may go on.
    pub fn seen_from(&self, disk: &SimDisk) -> Self {
        Self { clock: disk.clock(), ..self.clone() }
    }

    /// Of a life that begins with what an earlier one has left: `found`, which is acknowledged.
    pub fn of_next_life(&self, found: &BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        let mut next = Self { clock: self.clock.clone(), ..Self::new(&SimDisk::new()) };
        for (number, (key, value)) in found.iter().enumerate() {
            let was = self.keys[key].iter().find(|given| given.value.as_ref() == Some(value)).unwrap();
            next.keys.insert(key.clone(), vec![Given { number, ..was.clone() }]);
            next.writes.insert(number, vec![key.clone()]);
            next.acknowledged.insert(number);
        }
        next.count = found.len();
        // Such as are still counted.
        let time = self.time();
        for (key, past) in self.keys.iter().filter(|(key, _)| !found.contains_key(*key)) {
            let expired = |given: &&Given| given.value.is_some() && given.seen_at(time).is_none();
            next.keys.entry(key.clone()).or_default().extend(past.iter().filter(expired).cloned().map(|given| {
                next.count += 1;
                Given { number: next.count - 1, ..given }
            }));
        }
        next
    }

    /// Seconds since 1970.
    pub fn time(&self) -> u64 {
        self.clock.unix_seconds()
    }

    /// The store is about to be asked for this write.
    pub fn begin(&mut self, ops: &[Op]) -> usize {
        let number = self.count;
        self.count += 1;
        let time = self.time();
        for Op { key, value, ttl } in ops {
            let given = Given { number, value: value.clone(), expires_at: ttl.map(|ttl| time + ttl) };
            self.keys.entry(key.clone()).or_default().push(given);
        }
        self.writes.insert(number, ops.iter().map(|op| op.key.clone()).collect());
        number
    }

    /// The write promised that it did nothing.
    pub fn strike(&mut self, number: usize) {
        self.writes.remove(&number);
        self.keys.values_mut().for_each(|past| past.retain(|given| given.number != number));
    }

    fn acknowledge(&mut self, number: usize, sync: bool) {
        self.acknowledged.insert(number);
        if sync {
            self.durable.insert(number);
        }
    }

    /// The writes that must be on a disk of which this was promised.
    pub fn promised(&self, promise: Promise) -> &BTreeSet<usize> {
        match promise {
            Promise::Acknowledged => &self.acknowledged,
            Promise::Durable => &self.durable,
        }
    }

    /// Everything that was acknowledged is durable.
    pub fn all_durable(&mut self) {
        self.durable = self.acknowledged.clone();
    }

    /// The values that keys should have now.
    pub fn now(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let time = self.time();
        let newest = |(key, past): (&Vec<u8>, &Vec<Given>)| Some((key.clone(), past.last()?.seen_at(time)?.clone()));
        self.keys.iter().filter_map(newest).collect()
    }

    /// What is wrong with `found`, if the writes of `promised` must have survived and others may have.
    pub fn verify(
        &self,
        found: &BTreeMap<Vec<u8>, Vec<u8>>,
        promised: &BTreeSet<usize>,
    ) -> std::result::Result<(), String> {
        if let Some(key) = found.keys().find(|key| !self.keys.contains_key(*key)) {
            return Err(format!("key {key:?} was never written"));
        }
        // Which writes may have been the last on each key, by what is there.
        let mut possible: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        let time = self.time();
        for (key, past) in &self.keys {
            let value = found.get(key);
            let least = past.iter().rposition(|given| promised.contains(&given.number));
            let is_possible = |(_, given): &(usize, &Given)| given.seen_at(time) == value;
            let from = least.unwrap_or(0);
            let candidates = past.iter().enumerate().skip(from).filter(is_possible);
            // `number + 1`: zero stands for before the first write.
            let mut numbers: Vec<usize> = candidates.map(|(_, given)| given.number + 1).collect();
            if least.is_none() && value.is_none() {
                numbers.insert(0, 0);
            }
            if numbers.is_empty() {
                let what = value.map(|value| String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned());
                return Err(format!(
                    "key {key:?} has {what:?}, which is lost, stale or revived; must have {least:?} of its past"
                ));
            }
            possible.insert(key, numbers);
        }
        for (number, keys) in &self.writes {
            // What a later write gave a key says nothing of this one.
            let present = |key: &Vec<u8>| possible.get(&key[..]).is_some_and(|found| found[..] == [*number + 1]);
            let may_be = |key: &Vec<u8>| possible.get(&key[..]).is_some_and(|found| found.iter().any(|&n| n > *number));
            if keys.iter().any(present) && !keys.iter().all(may_be) {
                let found: Vec<_> = keys.iter().map(|key| (key, possible.get(&key[..]))).collect();
                return Err(format!("write {number} is there in part: {found:?}"));
            }
        }
        Ok(())
    }
}

/// What is wrong with the answers of a store that has lost pages to a failed sync: each is right, or an error that says so, and what is
/// durable is there.
pub fn reads_without_lost_pages(cask: &Cask, past: &Past) -> std::result::Result<(), String> {
    let time = past.time();
    for (key, given) in &past.keys {
        // The newest is known to be there, or may be.
        let is_known = |given: &&Given| past.acknowledged.contains(&given.number);
        let unknown = given.iter().rev().take_while(|given| !is_known(given)).count();
        let known = given.iter().rev().nth(unknown);
        let mut possible = given
            .iter()
            .rev()
            .take(unknown)
            .map(|given| given.seen_at(time))
            .chain([known.and_then(|given| given.seen_at(time))]);
        match cask.get(key) {
            Ok(found) if possible.any(|value| value.map(|value| &value[..]) == found.as_deref()) => {}
            Ok(found) => {
                return Err(format!(
                    "{key:?} is {:?}, a wrong answer",
                    found.as_deref().map(|value| String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned())
                ));
            }
            Err(error) if error.kind() != ErrorKind::Corruption => return Err(format!("{key:?}: {error}")),
            Err(error) => {
                if unknown == 0 && known.is_some_and(|given| past.durable.contains(&given.number)) {
                    return Err(format!("{key:?} is durable: {error}"));
                }
            }
        }
    }
    let mut scan = cask.scan().map_err(|error| error.to_string())?;
    loop {
        match scan.advance() {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let key = scan.key().to_vec();
                if let Ok(value) = scan.value()
                    && !past
                        .keys
                        .get(&key)
                        .is_some_and(|given| given.iter().any(|given| given.value.as_deref() == Some(value)))
                {
                    return Err(format!("a scan shows of {key:?} what it never was"));
                }
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {}
            Err(error) => return Err(format!("a scan: {error}")),
        }
    }
}

/// The batch as the store takes it.
pub fn to_batch(ops: &[Op]) -> Result<CaskBatch> {
    let mut batch = CaskBatch::new();
    for Op { key, value, ttl } in ops {
        match (value, ttl) {
            (Some(value), Some(ttl)) => batch.put_with_ttl(key, value.clone(), Duration::from_secs(*ttl))?,
            (Some(value), None) => batch.put(key, value.clone())?,
            (None, _) => batch.delete(key)?,
        }
    }
    Ok(batch)
}

/// Writes of one thread go to one stripe by themselves: so each of these says which, the files of all are written in turn, and a key has
/// records in several.
fn write_options(number: usize, sync: bool) -> CaskWriteOptions {
    CaskWriteOptions { sync, ttl: None, stripe: Some(number / 3) }
}

/// Takes one step; says in `past` what was promised.
pub fn take(cask: &Cask, step: &Step, past: &mut Past) -> Result<()> {
    match step {
        Step::One(op, sync) => {
            let number = past.begin(std::slice::from_ref(op));
            let options = CaskWriteOptions { ttl: op.ttl.map(Duration::from_secs), ..write_options(number, *sync) };
            match &op.value {
                Some(value) => cask.put_with(&op.key, value, &options).map(drop)?,
                None => cask.delete_with(&op.key, &options).map(drop)?,
            }
            past.acknowledge(number, *sync);
        }
        Step::Batch(ops, sync) => {
            let number = past.begin(ops);
            cask.write(&to_batch(ops)?, &write_options(number, *sync))?;
            past.acknowledge(number, *sync);
        }
        Step::Sync => {
            cask.sync()?;
            past.all_durable();
        }
        Step::Compact => {
            cask.compact()?;
            past.all_durable();
        }
        Step::Wait(seconds) => past.clock.advance(Duration::from_secs(*seconds)),
    }
    Ok(())
}

/// Takes steps until one fails. Returns the failure.
pub fn run(cask: &Cask, steps: &[Step], past: &mut Past) -> Result<()> {
    steps.iter().try_for_each(|step| take(cask, step, past))
}

/// As [`run`], but goes on after failures that promise that nothing was written; those writes are struck off. Ends at a
/// failure that promises nothing. Returns how many steps failed.
pub fn run_on(cask: &Cask, steps: &[Step], past: &mut Past) -> usize {
    let mut failures = 0;
    for step in steps {
        let number = past.count;
        let Err(error) = take(cask, step, past) else { continue };
        failures += 1;
        match error.kind() {
            ErrorKind::Exhausted | ErrorKind::Io => past.strike(number),
            _ => return failures,
        }
    }
    failures
}

/// Everything a store holds, by scanning; each key is also looked up.
///
/// # Errors
/// As the store's.
pub fn contents(cask: &Cask) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let keep = cask.options().keep_versions;
    let mut scan = cask.scan()?;
    while scan.advance()? {
        let (key, version) = (scan.key().to_vec(), scan.version());
        let value = scan.value()?.to_vec();
        let kept = cask.get_version(&key, version)?;
        assert_eq!(kept.as_deref(), Some(&value[..]), "a scan shows what history does not have");
        // Older versions that are kept live too.
        let newest = cask.get(&key)?.map(Vec::from);
        if keep == 1 || newest.as_ref() == Some(&value) {
            assert_eq!(newest.as_ref(), Some(&value), "{key:?}: scan and get differ");
            assert!(found.insert(key, value).is_none(), "a scan shows a key twice");
        }
    }
    assert!(cask.len() >= found.len() as u64, "keys are counted wrong");
    Ok(found)
}

/// Everything a store holds, which is what its past allows if the writes of `promised` must be there.
///
/// # Errors
/// What is wrong.
pub fn verified(
    cask: &Cask,
    past: &Past,
    promised: &BTreeSet<usize>,
) -> std::result::Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let found = contents(cask).map_err(|error| format!("reading: {error}"))?;
    past.verify(&found, promised)?;
    // What has expired counts until a merge has met it.
    let time = past.time();
    let may_have_expired = |(key, past): &(&Vec<u8>, &Vec<Given>)| {
        !found.contains_key(*key) && past.iter().any(|given| given.value.is_some() && given.seen_at(time).is_none())
    };
    let most = found.len() + past.keys.iter().filter(may_have_expired).count();
    match usize::try_from(cask.len()) {
        Ok(count) if count <= most => Ok(found),
        _ => Err(format!("{} keys are counted, there are {} to {most}", cask.len(), found.len())),
    }
}
