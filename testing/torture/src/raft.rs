//! A Raft log at work: batches that a seed determines, a model of what each group holds, and a record of what was promised.

use std::collections::{BTreeMap, BTreeSet};

use esker::raft::{ErrorKind, Options, RecoveryMode, Version};
use esker::{LogBatch, RaftLog, Result};
use fastrand::Rng;

use crate::crash::Promise;

/// What a group holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Entries by index.
    pub entries: BTreeMap<u64, Vec<u8>>,
    /// Keys and values.
    pub keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a log holds, but for groups with nothing in them.
pub type Contents = BTreeMap<u64, Group>;

/// One change.
#[derive(Debug, Clone)]
pub enum Op {
    /// Entries of a group from an index on.
    Entries(u64, u64, Vec<Vec<u8>>),
    /// Those before the index go.
    Compact(u64, u64),
    /// The group goes.
    Clean(u64),
    /// A key gets a value.
    Put(u64, Vec<u8>, Vec<u8>),
    /// A key loses it.
    Delete(u64, Vec<u8>),
}

/// One step.
#[derive(Debug, Clone)]
pub enum Step {
    /// A batch, synced or not.
    Write(Vec<Op>, bool),
    /// The keys of a group from one on, up to but not including another, are deleted, synced or not.
    DeleteRange(u64, Option<Vec<u8>>, Option<Vec<u8>>, bool),
    /// A sync.
    Sync,
    /// Files are given up.
    Purge,
    /// Everything is moved on to the rewrite queue.
    MoveOn,
    /// Everything in the rewrite queue is rewritten.
    RewriteAgain,
}

/// Does what `ops` say.
pub fn apply(model: &mut Contents, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Entries(group, first, entries) => {
                let group = model.entry(*group).or_default();
                group.entries.split_off(first);
                group.entries.extend((*first..).zip(entries.iter().cloned()));
            }
            Op::Compact(group, index) => {
                if let Some(group) = model.get_mut(group) {
                    group.entries = group.entries.split_off(index);
                }
            }
            Op::Clean(group) => drop(model.remove(group)),
            Op::Put(group, key, value) => {
                model.entry(*group).or_default().keys.insert(key.clone(), value.clone());
            }
            Op::Delete(group, key) => {
                if let Some(group) = model.get_mut(group) {
                    group.keys.remove(key);
                }
            }
        }
    }
    model.retain(|_, group| *group != Group::default());
}

/// A batch that the log accepts when it holds `model`.
pub fn batch(random: &mut Rng, model: &Contents, groups: u64) -> Vec<Op> {
    let mut after = model.clone();
    let mut ops = Vec::new();
    for _ in 0..random.usize(1..4) {
        let id = random.u64(1..=groups);
        let there = after.get(&id).cloned().unwrap_or_default();
        let first = there.entries.keys().next().copied();
        let next = there.entries.keys().next_back().map_or(random.u64(1..100), |last| last + 1);
        let op = match random.u8(0..24) {
            0 => Op::Clean(id),
            1..3 => Op::Compact(id, first.unwrap_or(1) + random.u64(0..12)),
            // Beyond the last, perhaps, as after a snapshot.
            3 => Op::Compact(id, first.unwrap_or(1) + random.u64(0..40)),
            4..8 => Op::Put(id, key(random), vec![random.u8(..); random.usize(0..40)]),
            8..11 => Op::Delete(id, key(random)),
            roll => {
                let back = match roll {
                    11 => random.u64(0..40),
                    12 => random.u64(0..4),
                    _ => 0,
                };
                let begin = next.saturating_sub(back).max(first.unwrap_or(0));
                let count = random.usize(1..6);
                Op::Entries(id, begin, (0..count).map(|_| vec![random.u8(b'a'..b'f'); random.usize(0..200)]).collect())
            }
        };
        apply(&mut after, std::slice::from_ref(&op));
        ops.push(op);
    }
    ops
}

/// What takes a range of the keys of a group away.
fn deletes(model: &Contents, group: u64, from: Option<&[u8]>, to: Option<&[u8]>) -> Vec<Op> {
    let within = |key: &&Vec<u8>| from.is_none_or(|from| &key[..] >= from) && to.is_none_or(|to| &key[..] < to);
    let keys = model.get(&group).into_iter().flat_map(|found| found.keys.keys());
    keys.filter(within).map(|key| Op::Delete(group, key.clone())).collect()
}

fn key(random: &mut Rng) -> Vec<u8> {
    vec![b'k', random.u8(0..5)]
}

/// Steps over few groups, so that they meet.
pub fn steps(random: &mut Rng, count: usize) -> Vec<Step> {
    let mut model = Contents::new();
    (0..count)
        .map(|_| match random.u8(..100) {
            0..6 => Step::Purge,
            6..9 => Step::MoveOn,
            9..12 => Step::RewriteAgain,
            12..16 => Step::Sync,
            roll @ 16..19 => {
                let bound = |random: &mut Rng| random.bool().then(|| key(random));
                let (group, from, to) = (random.u64(1..=4), bound(random), bound(random));
                let ops = deletes(&model, group, from.as_deref(), to.as_deref());
                apply(&mut model, &ops);
                Step::DeleteRange(group, from, to, roll == 16)
            }
            roll => {
                let ops = batch(random, &model, 4);
                apply(&mut model, &ops);
                Step::Write(ops, roll < 40)
            }
        })
        .collect()
}

/// Options with files so small that everything happens often.
pub fn options(random: &mut Rng) -> Options {
    let file_bytes = 1 << random.u8(10..13);
    let recycle_files = random.bool();
    Options {
        recovery_threads: 1,
        compress_from_bytes: if random.bool() { 0 } else { 64 },
        format_version: if recycle_files || random.bool() { Version::V2 } else { Version::V1 },
        file_bytes,
        purge_threshold_bytes: file_bytes * random.u64(1..4),
        purge_rewrite_threshold_bytes: Some(file_bytes),
        purge_rewrite_garbage_ratio: 0.3,
        recycle_files,
        group_quota_bytes: random.bool().then_some(file_bytes * 3),
        recovery_mode: RecoveryMode::TolerateTail,
        ..Options::default()
    }
}

/// As the log takes it.
pub fn encode(ops: &[Op]) -> Result<LogBatch> {
    let mut batch = LogBatch::new();
    for op in ops {
        match op {
            Op::Entries(group, first, entries) => batch.add_entries(*group, *first, entries)?,
            Op::Compact(group, index) => batch.compact(*group, *index),
            Op::Clean(group) => batch.clean(*group),
            Op::Put(group, key, value) => batch.put(*group, key, value)?,
            Op::Delete(group, key) => batch.delete(*group, key),
        }
    }
    Ok(batch)
}

/// All that a log holds, read in every way there is.
///
/// # Errors
/// What reading says.
pub fn contents(log: &RaftLog) -> Result<Contents> {
    let mut contents = Contents::new();
    for id in log.groups() {
        let mut group = Group::default();
        if let Some((first, last)) = log.first_index(id).zip(log.last_index(id)) {
            let entries = log.entries(id, first, last + 1, None)?;
            assert_eq!(entries.len() as u64, last + 1 - first);
            for (index, bytes) in (first..).zip(entries) {
                assert_eq!(log.entry(id, index)?.as_ref(), Some(&bytes), "group {id}, entry {index}");
                group.entries.insert(index, bytes);
            }
        }
        for (key, value) in log.keys(id, None, None) {
            assert_eq!(log.get(id, &key).as_ref(), Some(&value));
            group.keys.insert(key.into(), value.to_vec());
        }
        if group != Group::default() {
            contents.insert(id, group);
        }
    }
    Ok(contents)
}

/// What is wrong with the answers of a log that has lost pages to a failed sync: each is that of `ledger`, or, of what was not durable, an error that
/// says so.
pub fn reads_without_lost_pages(log: &RaftLog, ledger: &Ledger) -> std::result::Result<(), String> {
    let mut possible: Vec<Contents> =
        (ledger.acknowledged..=ledger.batches.len()).map(|count| ledger.after(count)).collect();
    let keys =
        |id: u64| log.keys(id, None, None).into_iter().map(|(key, value)| (key.into(), value.to_vec())).collect();
    let of = |model: &Contents, id: u64| model.get(&id).cloned().unwrap_or_default();
    let durable = ledger.still_durable();
    let is_durable = |id: u64, index: u64| durable.contains(&(id, index));
    for id in 1..=4 {
        let bounds = log.first_index(id).zip(log.last_index(id));
        possible.retain(|model| {
            let group = of(model, id);
            group.keys == keys(id)
                && group.entries.keys().next().copied().zip(group.entries.keys().next_back().copied()) == bounds
        });
        let Some((first, last)) = bounds else { continue };
        for index in first..=last {
            match log.entry(id, index) {
                Ok(found) => possible.retain(|model| of(model, id).entries.get(&index) == found.as_ref()),
                Err(error) if error.kind() == ErrorKind::Corruption && !is_durable(id, index) => {}
                Err(error) => return Err(format!("group {id}, entry {index}: {error}")),
            }
        }
        match log.entries(id, first, last + 1, None) {
            Ok(found) => possible.retain(|model| of(model, id).entries.into_values().eq(found.iter().cloned())),
            Err(error)
                if error.kind() == ErrorKind::Corruption && !(first..=last).all(|index| is_durable(id, index)) => {}
            Err(error) => return Err(format!("group {id}: {error}")),
        }
    }
    if possible.is_empty() { Err("a wrong answer".to_owned()) } else { Ok(()) }
}

/// What was written, and what was said of it.
#[derive(Debug, Default, Clone)]
pub struct Ledger {
    /// Batches that may be there, in order.
    pub batches: Vec<Vec<Op>>,
    /// How many of them survive the death of the process.
    pub acknowledged: usize,
    /// How many of them survive power loss.
    pub durable: usize,
}

impl Ledger {
    /// Of a life that begins with what was found, as its first batch; nothing is durable.
    pub fn found(found: &Contents) -> Self {
        let mut ops = Vec::new();
        for (&id, group) in found {
            if let Some(first) = group.entries.keys().next() {
                ops.push(Op::Entries(id, *first, group.entries.values().cloned().collect()));
            }
            ops.extend(group.keys.iter().map(|(key, value)| Op::Put(id, key.clone(), value.clone())));
        }
        Self { batches: vec![ops], acknowledged: 1, durable: 0 }
    }

    /// How many batches must be on a disk of which this was promised.
    pub fn least(&self, promise: Promise) -> usize {
        match promise {
            Promise::Acknowledged => self.acknowledged,
            Promise::Durable => self.durable,
        }
    }

    /// What the log holds after the first `count` batches.
    pub fn after(&self, count: usize) -> Contents {
        let mut model = Contents::new();
        self.batches.iter().take(count).for_each(|ops| apply(&mut model, ops));
        model
    }

    /// How many batches `found` is the outcome of, if it is that of at least `least`.
    pub fn prefix(&self, found: &Contents, least: usize) -> Option<usize> {
        let mut model = self.after(least);
        for count in least..=self.batches.len() {
            if count > least {
                apply(&mut model, self.batches.get(count - 1)?);
            }
            if model == *found {
                return Some(count);
            }
        }
        None
    }

    /// Groups and indexes of the entries that are durable and were not replaced since.
    fn still_durable(&self) -> BTreeSet<(u64, u64)> {
        let groups = self.after(self.durable).into_iter();
        let mut entries: BTreeSet<_> =
            groups.flat_map(|(id, group)| group.entries.into_keys().map(move |index| (id, index))).collect();
        for op in self.batches.iter().skip(self.durable).flatten() {
            if let Op::Entries(group, first, _) = op {
                entries.retain(|(id, index)| id != group || index < first);
            }
        }
        entries
    }

    /// The batch that a step writes.
    pub fn batch_of(&self, step: &Step) -> Option<Vec<Op>> {
        match step {
            Step::Write(ops, _) => Some(ops.clone()),
            Step::DeleteRange(group, from, to, _) => {
                Some(deletes(&self.after(self.batches.len()), *group, from.as_deref(), to.as_deref()))
            }
            _ => None,
        }
    }

    /// Notes a batch, and what was said of it.
    fn wrote(&mut self, ops: Vec<Op>, sync: bool, done: Result<()>) -> Result<()> {
        match &done {
            Ok(()) => {
                self.batches.push(ops);
                self.acknowledged = self.batches.len();
                self.durable = if sync { self.acknowledged } else { self.durable };
            }
            // Only this one may have got in nevertheless.
            Err(error) if error.kind() == ErrorKind::ReadOnly => self.batches.push(ops),
            Err(_) => {}
        }
        done
    }

    /// Does one step, and notes what was said of it.
    ///
    /// # Errors
    /// What the log says.
    ///
    /// # Panics
    /// If more or fewer keys are deleted than there are.
    pub fn step(&mut self, log: &RaftLog, step: &Step) -> Result<()> {
        match step {
            Step::Write(ops, sync) => {
                let done = log.write(&mut encode(ops)?, *sync).map(drop);
                self.wrote(ops.clone(), *sync, done)
            }
            Step::DeleteRange(group, from, to, sync) => {
                let ops = self.batch_of(step).unwrap_or_default();
                let done = log.delete_range(*group, from.as_deref(), to.as_deref(), *sync);
                let done = done.map(|count| assert_eq!(count, ops.len(), "{step:?}"));
                self.wrote(ops, *sync, done)
            }
            Step::Sync => log.sync().map(|()| self.durable = self.acknowledged),
            Step::Purge => log.purge().map(drop),
            Step::MoveOn => log.move_on(None),
            Step::RewriteAgain => log.rewrite_again(),
        }
    }
}
