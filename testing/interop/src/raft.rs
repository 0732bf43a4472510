//! The same work on Esker's Raft log and on raft-engine, and what each holds after it.

use std::collections::BTreeMap;
use std::path::Path;

use esker::RaftLog;
use esker::raft::{EntryCodec, Error, ErrorKind, Options, Version};
use fastrand::Rng;
use protobuf::Message;
use protobuf::well_known_types::Any;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize};

/// An entry: its index as text, and bytes.
#[derive(Debug, Clone, Copy)]
pub struct Codec;

impl MessageExt for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        entry.type_url.parse().unwrap_or(0)
    }
}

impl EntryCodec for Codec {
    type Entry = Any;

    fn index(entry: &Any) -> u64 {
        <Self as MessageExt>::index(entry)
    }

    fn encode(entry: &Any, out: &mut Vec<u8>) -> esker::Result<()> {
        entry.write_to_vec(out).map_err(|error| Error::invalid_argument(error.to_string()))
    }

    fn decode(bytes: &[u8]) -> esker::Result<Any> {
        Any::parse_from_bytes(bytes).map_err(|error| Error::new(ErrorKind::Corruption, error.to_string()))
    }
}

/// An entry with this index.
pub fn entry(index: u64, bytes: &[u8]) -> Any {
    let mut entry = Any::new();
    entry.type_url = index.to_string();
    entry.value = bytes.to_vec();
    entry
}

/// One change.
#[derive(Debug, Clone)]
pub enum Op {
    /// Entries of a group.
    Entries(u64, Vec<Any>),
    /// Those before the index go.
    Compact(u64, u64),
    /// The group goes.
    Clean(u64),
    /// A key gets a value.
    Put(u64, Vec<u8>, Vec<u8>),
    /// A key loses it.
    Delete(u64, Vec<u8>),
}

/// What a group holds: its entries by index, its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Entries, and their bytes.
    pub entries: BTreeMap<u64, Vec<u8>>,
    /// Keys and values.
    pub keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What a log holds.
pub type Contents = BTreeMap<u64, Group>;

/// How both are opened.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Version 1 rather than 2.
    pub version_1: bool,
    /// Entries are compressed from so many bytes on; 0 is never.
    pub compress_from: u64,
    /// Bytes of a file.
    pub file_bytes: u64,
}

impl Shape {
    fn threshold(&self) -> u64 {
        self.file_bytes * 4
    }

    /// Esker's options.
    pub fn options(&self) -> Options {
        Options {
            format_version: if self.version_1 { Version::V1 } else { Version::V2 },
            recycle_files: !self.version_1,
            compress_from_bytes: self.compress_from as usize,
            file_bytes: self.file_bytes,
            purge_threshold_bytes: self.threshold(),
            purge_rewrite_threshold_bytes: Some(self.file_bytes),
            purge_rewrite_garbage_ratio: 0.3,
            ..Options::default()
        }
    }

    /// Esker on `dir`.
    pub fn open_esker(&self, dir: &Path) -> esker::Result<RaftLog> {
        RaftLog::open(dir, self.options())
    }

    /// raft-engine's configuration.
    pub fn config(&self, dir: &Path) -> Config {
        Config {
            dir: dir.to_string_lossy().into_owned(),
            format_version: if self.version_1 { raft_engine::Version::V1 } else { raft_engine::Version::V2 },
            enable_log_recycle: !self.version_1,
            batch_compression_threshold: ReadableSize(self.compress_from),
            target_file_size: ReadableSize(self.file_bytes),
            purge_threshold: ReadableSize(self.threshold()),
            purge_rewrite_threshold: Some(ReadableSize(self.file_bytes)),
            purge_rewrite_garbage_ratio: 0.3,
            ..Config::default()
        }
    }

    /// raft-engine on `dir`.
    pub fn open_original(&self, dir: &Path) -> raft_engine::Result<Engine> {
        Engine::open(self.config(dir))
    }
}

/// Does what a batch of `ops` says to `model`.
pub fn apply(model: &mut Contents, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Entries(group, entries) => {
                let group = model.entry(*group).or_default();
                let first = entries.first().map_or(u64::MAX, <Codec as MessageExt>::index);
                group.entries.split_off(&first);
                group
                    .entries
                    .extend(entries.iter().map(|entry| (<Codec as MessageExt>::index(entry), entry.value.clone())));
            }
            Op::Compact(group, index) => {
                let group = model.entry(*group).or_default();
                group.entries = group.entries.split_off(index);
            }
            Op::Clean(group) => drop(model.remove(group)),
            Op::Put(group, key, value) => {
                model.entry(*group).or_default().keys.insert(key.clone(), value.clone());
            }
            Op::Delete(group, key) => drop(model.entry(*group).or_default().keys.remove(key)),
        }
    }
}

/// A batch that both accept in the state of `model`.
pub fn batch(random: &mut Rng, model: &Contents) -> Vec<Op> {
    let mut after = model.clone();
    let mut ops = Vec::new();
    for _ in 0..random.usize(1..4) {
        let group = random.u64(1..6);
        let there = after.get(&group).cloned().unwrap_or_default();
        let first = there.entries.keys().next().copied();
        let next = there.entries.keys().next_back().map_or(random.u64(1..1000), |last| last + 1);
        let op = match random.u8(0..20) {
            0 => Op::Clean(group),
            1..4 => Op::Compact(group, first.unwrap_or(1) + random.u64(0..20)),
            4..8 => Op::Put(group, vec![b'k', random.u8(0..8)], vec![random.u8(..); random.usize(0..50)]),
            8 | 9 => Op::Delete(group, vec![b'k', random.u8(0..8)]),
            roll => {
                let back = if roll == 10 { random.u64(0..4) } else { 0 };
                let begin = next.saturating_sub(back).max(first.unwrap_or(0));
                let entries = (begin..begin + random.u64(1..8))
                    .map(|index| entry(index, &vec![random.u8(b'a'..b'e'); random.usize(0..300)]))
                    .collect();
                Op::Entries(group, entries)
            }
        };
        apply(&mut after, std::slice::from_ref(&op));
        ops.push(op);
    }
    ops
}

/// Writes a batch with Esker.
pub fn write_esker(log: &RaftLog, ops: &[Op], sync: bool) -> esker::Result<()> {
    let mut batch = esker::LogBatch::new();
    for op in ops {
        match op {
            Op::Entries(group, entries) => batch.add::<Codec>(*group, entries)?,
            Op::Compact(group, index) => batch.compact(*group, *index),
            Op::Clean(group) => batch.clean(*group),
            Op::Put(group, key, value) => batch.put(*group, key, value)?,
            Op::Delete(group, key) => batch.delete(*group, key),
        }
    }
    log.write(&mut batch, sync).map(drop)
}

/// Writes a batch with raft-engine.
pub fn write_original(engine: &Engine, ops: &[Op], sync: bool) -> raft_engine::Result<()> {
    let mut batch = LogBatch::default();
    for op in ops {
        match op {
            Op::Entries(group, entries) => batch.add_entries::<Codec>(*group, entries)?,
            Op::Compact(group, index) => batch.add_command(*group, Command::Compact { index: *index }),
            Op::Clean(group) => batch.add_command(*group, Command::Clean),
            Op::Put(group, key, value) => batch.put(*group, key.clone(), value.clone())?,
            Op::Delete(group, key) => batch.delete(*group, key.clone()),
        }
    }
    engine.write(&mut batch, sync).map(drop)
}

/// All that a log holds, as Esker reads it.
pub fn read_esker(log: &RaftLog) -> esker::Result<Contents> {
    let mut contents = Contents::new();
    for id in log.groups() {
        let mut group = Group::default();
        if let Some((first, last)) = log.first_index(id).zip(log.last_index(id)) {
            let mut entries = Vec::new();
            log.fetch::<Codec>(id, first, last + 1, None, &mut entries)?;
            group.entries = (first..).zip(entries.into_iter().map(|entry| entry.value)).collect();
        }
        group.keys = log.keys(id, None, None).into_iter().map(|(key, value)| (key.into(), value.to_vec())).collect();
        contents.insert(id, group);
    }
    Ok(contents)
}

/// All that a log holds, as raft-engine reads it.
pub fn read_original(engine: &Engine) -> raft_engine::Result<Contents> {
    let mut contents = Contents::new();
    for id in engine.raft_groups() {
        let mut group = Group::default();
        if let Some((first, last)) = engine.first_index(id).zip(engine.last_index(id)) {
            let mut entries = Vec::new();
            engine.fetch_entries_to::<Codec>(id, first, last + 1, None, &mut entries)?;
            group.entries = (first..).zip(entries.into_iter().map(|entry| entry.value)).collect();
        }
        engine.scan_raw_messages(id, None, None, false, |key, value| {
            group.keys.insert(key.to_vec(), value.to_vec());
            true
        })?;
        contents.insert(id, group);
    }
    Ok(contents)
}

/// Groups without anything in them: whether they are there is not part of the format's promise once files were purged.
pub fn without_empty(contents: &Contents) -> Contents {
    contents.iter().filter(|(_, group)| **group != Group::default()).map(|(id, group)| (*id, group.clone())).collect()
}
