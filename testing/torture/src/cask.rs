//! The same for Cask: what it should answer ([`Past`]), random options, and a workload whose every step is known.
//!
//! A Cask keeps no order between keys: of writes that were not synced, a power loss may keep a later one and lose an earlier
//! one of another key. So what must survive is said key by key, and batch by batch.

use std::collections::{BTreeMap, BTreeSet};

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

/// One write: the key, and its value or its deletion.
pub type Op = (Vec<u8>, Option<Vec<u8>>);

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
}

/// So many steps on some forty keys. No two values are the same, so a value says which write it is of.
pub fn steps(random: &mut Rng, count: usize) -> Vec<Step> {
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
        (key, value)
    };
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        steps.push(match random.u8(..100) {
            0..4 => Step::Compact,
            4..8 => Step::Sync,
            8..30 => {
                let ops: BTreeMap<_, _> = (0..random.usize(1..=6)).map(|_| op(random)).collect();
                Step::Batch(ops.into_iter().collect(), random.u8(..4) == 0)
            }
            roll => Step::One(op(random), roll < 50),
        });
    }
    steps
}

/// The number of a write, and what it gave a key.
pub type Given = (usize, Option<Vec<u8>>);

/// Everything a store was asked, and what it promised of it.
#[derive(Debug, Clone, Default)]
pub struct Past {
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
    /// The store is about to be asked for this write.
    pub fn begin(&mut self, ops: &[Op]) -> usize {
        let number = self.count;
        self.count += 1;
        for (key, value) in ops {
            self.keys.entry(key.clone()).or_default().push((number, value.clone()));
        }
        self.writes.insert(number, ops.iter().map(|(key, _)| key.clone()).collect());
        number
    }

    /// The write promised that it did nothing.
    pub fn strike(&mut self, number: usize) {
        self.writes.remove(&number);
        self.keys.values_mut().for_each(|past| past.retain(|(write, _)| *write != number));
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
        let newest = |(key, past): (&Vec<u8>, &Vec<Given>)| Some((key.clone(), past.last()?.1.clone()?));
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
        for (key, past) in &self.keys {
            let value = found.get(key);
            let least = past.iter().rposition(|(number, _)| promised.contains(number));
            let is_possible = |(_, (_, was)): &(usize, &Given)| was.as_ref() == value;
            let from = least.unwrap_or(0);
            let candidates = past.iter().enumerate().skip(from).filter(is_possible);
            // `number + 1`: zero stands for before the first write.
            let mut numbers: Vec<usize> = candidates.map(|(_, (number, _))| number + 1).collect();
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

/// The batch as the store takes it.
pub fn to_batch(ops: &[Op]) -> Result<CaskBatch> {
    let mut batch = CaskBatch::new();
    for (key, value) in ops {
        match value {
            Some(value) => batch.put(key, value.clone())?,
            None => batch.delete(key)?,
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
        Step::One((key, value), sync) => {
            let number = past.begin(&[(key.clone(), value.clone())]);
            let options = write_options(number, *sync);
            match value {
                Some(value) => cask.put_with(key, value, &options).map(drop)?,
                None => cask.delete_with(key, &options).map(drop)?,
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
    assert_eq!(cask.len(), found.len() as u64, "keys are counted wrong");
    Ok(found)
}
