//! A sequence of batches that a seed determines, and a record of what the store said of each.

use esker::{Db, ErrorKind, ReadOptions, Result, WriteBatch, WriteOptions};
use fastrand::Rng;

use crate::crash::Promise;
use crate::model::{Model, Op};
use crate::noise;
use crate::orders::comparator_of;

/// One step of a workload.
#[derive(Debug, Clone)]
pub enum Step {
    /// A batch, synced or not.
    Write(Vec<Op>, bool),
    /// Memtables to tables.
    Flush,
    /// Everything to the deepest level.
    Compact,
    /// The log to the disk.
    Sync,
    /// Space in blob files is given back, where a twentieth of it is garbage.
    Reclaim,
}

/// Steps over the families of `families`, which exist already.
pub fn steps(random: &mut Rng, families: &[&str], count: usize) -> Vec<Step> {
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        steps.push(match random.u8(..100) {
            0..8 => Step::Flush,
            8..12 => Step::Compact,
            12..15 => Step::Sync,
            15..17 => Step::Reclaim,
            roll => Step::Write(batch(random, families), roll < 45),
        });
    }
    steps
}

/// A batch of one to four operations on few keys, so that they meet.
pub fn batch(random: &mut Rng, families: &[&str]) -> Vec<Op> {
    let count = if random.bool() { 1 } else { random.usize(1..=4) };
    (0..count).map(|_| op(random, families)).collect()
}

fn op(random: &mut Rng, families: &[&str]) -> Op {
    let family = families[random.usize(..families.len())].to_owned();
    let key = key(random);
    match random.u8(..16) {
        0..4 => Op::Delete(family, key),
        4..7 => Op::Merge(family, key, value(random)),
        7 => {
            let (begin, end) = range(random, &family);
            Op::DeleteRange(family, begin, end)
        }
        _ => Op::Put(family, key, value(random)),
    }
}

/// From one key of a family on and before another: mostly few of them, of all that [`key`] may say, at times none.
pub fn range(random: &mut Rng, family: &str) -> (Vec<u8>, Vec<u8>) {
    let begin = key(random);
    let end = match random.u8(..3) {
        0 => key(random),
        1 => [&begin[..], &[0xff]].concat(),
        _ => [begin.get(..4).unwrap_or(&begin), b"~"].concat(),
    };
    if comparator_of(family).compare(&begin, &end).is_gt() { (end, begin) } else { (begin, end) }
}

/// One of some 60 keys: empty, short, long, with bytes of all values.
pub fn key(random: &mut Rng) -> Vec<u8> {
    match random.u8(..60) {
        0 => Vec::new(),
        1 => vec![0xff; 20],
        2 => vec![0],
        n @ 3..8 => [b"long".repeat(50), vec![n]].concat(),
        n => format!("key{:02}", n).into_bytes(),
    }
}

/// A value, half compressible, of a size that lands on every side of every threshold.
pub fn value(random: &mut Rng) -> Vec<u8> {
    let len = match random.u8(..10) {
        0 => 0,
        1..5 => random.usize(..50),
        5..9 => random.usize(..1500),
        _ => random.usize(..9000),
    };
    let mut value = vec![random.u8(..); len];
    noise::fill(random, &mut value[len / 2..]);
    value
}

/// What a store was asked and what it promised: the batches in order, and how many of them must survive what.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Batches that were written, or may have been: only the last may be unknown.
    pub batches: Vec<Vec<Op>>,
    /// So many from the front were acknowledged: the death of the process must not lose them.
    pub acknowledged: usize,
    /// So many from the front must survive power loss.
    pub durable: usize,
}

impl Ledger {
    /// How many batches must be on a disk of which this was promised.
    pub fn least(&self, promise: Promise) -> usize {
        match promise {
            Promise::Acknowledged => self.acknowledged,
            Promise::Durable => self.durable,
        }
    }

    /// The model after the first `count` batches, starting from `start`.
    pub fn after(&self, start: &Model, count: usize) -> Model {
        let mut model = start.clone();
        self.batches[..count].iter().for_each(|batch| model.apply(batch));
        model
    }

    /// How many batches `found` holds, if it holds the first so many of at least `least`, whole and nothing else.
    pub fn prefix(&self, start: &Model, found: &Model, least: usize) -> Option<usize> {
        let mut model = self.after(start, least);
        for count in least..=self.batches.len() {
            if model == *found {
                return Some(count);
            }
            if let Some(batch) = self.batches.get(count) {
                model.apply(batch);
            }
        }
        None
    }
}

/// What is wrong with the answers of a store that has lost pages to a failed sync: each is that of `ledger`, or an error that says so, and
/// what is durable is there. A batch that may have got in is there as a whole, or not.
pub fn reads_without_lost_pages(db: &Db, start: &Model, ledger: &Ledger) -> std::result::Result<(), String> {
    let durable = ledger.after(start, ledger.durable);
    let later: Vec<&Op> = ledger.batches[ledger.durable..].iter().flatten().collect();
    let mut possible: Vec<Model> =
        (ledger.acknowledged..=ledger.batches.len()).map(|count| ledger.after(start, count)).collect();
    let written = ledger.batches.iter().flatten().map(Op::place);
    for (name, key) in
        written.chain(start.families.iter().flat_map(|(name, had)| had.keys().map(move |key| (name, key))))
    {
        let Some(family) = db.column_family(name) else { continue };
        match db.get_cf(&family, key, &ReadOptions::default()) {
            Ok(found) => {
                possible.retain(|model| model.families[name].get(key).map(|value| &value[..]) == found.as_deref())
            }
            Err(error) if error.kind() != ErrorKind::Corruption => return Err(format!("{name} {key:?}: {error}")),
            Err(error) => {
                let is_later = |op: &&Op| op.touches(name, key);
                if durable.families[name].contains_key(key) && !later.iter().any(is_later) {
                    return Err(format!("{name} {key:?} is durable: {error}"));
                }
            }
        }
        if possible.is_empty() {
            return Err(format!("{name} {key:?}: a wrong answer"));
        }
    }
    Ok(())
}

/// The batch as the store takes it; families that do not exist are left out, as the model does.
///
/// # Errors
/// As the store's.
pub fn to_batch(db: &Db, ops: &[Op]) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    for op in ops {
        match op {
            Op::Put(family, key, value) => {
                if let Some(family) = db.column_family(family) {
                    batch.put_cf(&family, key, value)?;
                }
            }
            Op::Delete(family, key) => {
                if let Some(family) = db.column_family(family) {
                    batch.delete_cf(&family, key)?;
                }
            }
            Op::Merge(family, key, operand) => {
                if let Some(family) = db.column_family(family) {
                    batch.merge_cf(&family, key, operand)?;
                }
            }
            Op::DeleteRange(family, begin, end) => {
                if let Some(family) = db.column_family(family) {
                    batch.delete_range_cf(&family, begin, end)?;
                }
            }
        }
    }
    Ok(batch)
}

/// Whether a transaction may write them: it has no range deletions.
pub fn may_transact(ops: &[Op]) -> bool {
    !ops.iter().any(|op| matches!(op, Op::DeleteRange(..)))
}

/// Writes the batch as a transaction does that has read all that it writes; what others write meanwhile is not to be among that.
///
/// # Errors
/// As the store's.
pub fn transact(db: &Db, ops: &[Op], options: &WriteOptions) -> Result<()> {
    let mut transaction = db.transaction();
    for op in ops {
        let (family, key) = op.place();
        let Some(family) = db.column_family(family) else { continue };
        transaction.get_cf(&family, key)?;
        match op {
            Op::Put(_, _, value) => transaction.put_cf(&family, key, value)?,
            Op::Delete(..) => transaction.delete_cf(&family, key)?,
            Op::Merge(_, _, operand) => transaction.merge_cf(&family, key, operand)?,
            Op::DeleteRange(..) => unreachable!("a transaction has no ranges"),
        }
    }
    transaction.commit(options)
}

/// Runs the steps until one fails; says in `ledger` what was promised. Returns the failure.
pub fn run(db: &Db, steps: &[Step], ledger: &mut Ledger) -> Result<()> {
    for step in steps {
        match step {
            Step::Write(ops, sync) => {
                ledger.batches.push(ops.clone());
                let options = WriteOptions { sync: *sync, ..WriteOptions::default() };
                if ledger.batches.len().is_multiple_of(3) && may_transact(ops) {
                    transact(db, ops, &options)?;
                } else {
                    db.write(to_batch(db, ops)?, &options)?;
                }
                ledger.acknowledged = ledger.batches.len();
                if *sync {
                    ledger.durable = ledger.acknowledged;
                }
            }
            Step::Flush => {
                db.flush()?;
                ledger.durable = ledger.acknowledged;
            }
            Step::Compact => {
                for family in db.column_families() {
                    db.compact_range(&family, None, None)?;
                }
                ledger.durable = ledger.acknowledged;
            }
            Step::Reclaim => {
                for family in db.column_families() {
                    db.reclaim(&family, 0.05)?;
                }
            }
            Step::Sync => {
                db.sync_wal()?;
                ledger.durable = ledger.acknowledged;
            }
        }
    }
    Ok(())
}

/// As [`run`], but goes on after failures that promise that nothing was written; their batch is struck off the ledger.
/// Ends at a failure that promises nothing. Returns how many steps failed.
pub fn run_on(db: &Db, steps: &[Step], ledger: &mut Ledger) -> usize {
    let mut failures = 0;
    for step in steps {
        let before = ledger.batches.len();
        let Err(error) = run(db, std::slice::from_ref(step), ledger) else { continue };
        failures += 1;
        match error.kind() {
            ErrorKind::Exhausted | ErrorKind::Io => ledger.batches.truncate(before),
            _ => return failures,
        }
    }
    failures
}
