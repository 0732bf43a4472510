//! A store of any kind, with what torture asks of it.

use std::path::Path;

use esker::raft;
use esker::{
    Cask, CaskBatch, CaskOptions, CaskWriteOptions, Compression, Db, FamilyOptions, LogBatch, Options, RaftLog,
    ReadOptions, Result, Separation, WriteBatch, WriteOptions,
};

use super::Choice;
use super::work::{Operation, State, Step, entry_key, group_key};
use crate::bench::random::Random;
use crate::kind::Kind;

/// An open store.
#[derive(Clone)]
pub(crate) enum Engine {
    Db(Db),
    Cask(Cask),
    Raft(RaftLog),
}

impl Engine {
    /// Opens or makes the store, with options that `choice` chooses, small enough that seconds meet every mechanism.
    pub(crate) fn open(kind: Kind, path: &Path, choice: Choice) -> Result<Self> {
        let mut random = Random::new(choice.random, 1);
        match kind {
            Kind::Db => Db::open(path, db_options(&mut random, choice.at_write)).map(Self::Db),
            Kind::Cask => Cask::open(path, cask_options(&mut random)).map(Self::Cask),
            Kind::Raft => RaftLog::open(path, raft_options(&mut random)).map(Self::Raft),
        }
    }

    /// Does all of an operation, or fails.
    pub(crate) fn write(&self, operation: &Operation) -> Result<()> {
        match self {
            Self::Db(db) => {
                let mut batch = WriteBatch::new();
                for step in &operation.steps {
                    match step {
                        Step::Put(key, value) => batch.put(key, value)?,
                        Step::Delete(key) => batch.delete(key)?,
                        _ => {}
                    }
                }
                db.write(batch, &WriteOptions { sync: operation.sync, ..WriteOptions::default() })
            }
            Self::Cask(cask) => {
                let mut batch = CaskBatch::new();
                for step in &operation.steps {
                    match step {
                        Step::Put(key, value) => batch.put(key, value.clone())?,
                        Step::Delete(key) => batch.delete(key)?,
                        _ => {}
                    }
                }
                let options = CaskWriteOptions { sync: operation.sync, ..CaskWriteOptions::default() };
                cask.write(&batch, &options).map(drop)
            }
            Self::Raft(log) => {
                let mut batch = LogBatch::new();
                for step in &operation.steps {
                    match step {
                        Step::Append(group, first, entries) => batch.add_entries(*group, *first, entries)?,
                        Step::Compact(group, index) => batch.compact(*group, *index),
                        Step::PutInGroup(group, key, value) => batch.put(*group, key, value)?,
                        Step::DeleteInGroup(group, key) => batch.delete(*group, key),
                        Step::Put(..) | Step::Delete(..) => {}
                    }
                }
                log.write(&mut batch, operation.sync).map(drop)
            }
        }
    }

    /// What an engine does by itself only when asked: a Raft log purges.
    pub(crate) fn tidy(&self) -> Result<()> {
        match self {
            Self::Raft(log) => log.purge().map(drop),
            Self::Db(_) | Self::Cask(_) => Ok(()),
        }
    }

    /// Everything that the store holds.
    pub(crate) fn contents(&self) -> Result<State> {
        let mut state = State::new();
        match self {
            Self::Db(db) => {
                let mut entries = db.iter_cf(&db.default_column_family(), &ReadOptions::default())?;
                entries.seek_to_first()?;
                while entries.valid() {
                    state.insert(entries.key().to_vec(), entries.value()?.to_vec());
                    entries.next()?;
                }
            }
            Self::Cask(cask) => {
                let mut scan = cask.scan()?;
                while scan.advance()? {
                    let key = scan.key().to_vec();
                    state.insert(key, scan.value()?.to_vec());
                }
            }
            Self::Raft(log) => {
                for group in log.groups() {
                    if let Some((first, last)) = log.first_index(group).zip(log.last_index(group)) {
                        let entries = log.entries(group, first, last + 1, None)?;
                        state.extend((first..).zip(entries).map(|(index, entry)| (entry_key(group, index), entry)));
                    }
                    let keys = log.keys(group, None, None).into_iter();
                    state.extend(keys.map(|(key, value)| (group_key(group, &key), value.to_vec())));
                }
            }
        }
        Ok(state)
    }

    /// Ends with the store, and says the first thing that the engine's own check finds wrong.
    pub(crate) fn check_and_close(self) -> Result<Option<String>> {
        match self {
            Self::Db(db) => {
                let found = db.check(&mut |_| {})?.errors.first().map(ToString::to_string);
                db.close().map(|()| found)
            }
            Self::Cask(cask) => {
                let found = cask.check(&mut |_| {})?.errors.first().map(ToString::to_string);
                cask.close().map(|()| found)
            }
            Self::Raft(log) => {
                log.close()?;
                let found = RaftLog::check(log.path(), log.options(), &mut |_, _| {})?;
                Ok((!found.is_sound()).then(|| format!("{:?} {:?}", found.errors, found.gaps)))
            }
        }
    }
}

fn pick<T: Copy>(random: &mut Random, choices: &[T], default: T) -> T {
    choices.get(random.below(choices.len() as u64) as usize).copied().unwrap_or(default)
}

fn db_options(random: &mut Random, at_write: bool) -> Options {
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let family = FamilyOptions {
        write_buffer_bytes: pick(random, &[64 << 10, 256 << 10, 1 << 20], 1 << 20),
        separation: match at_write {
            true => Separation::AtWrite,
            false => pick(random, &[Separation::Off, Separation::AtFlush, Separation::AtWrite], Separation::AtFlush),
        },
        min_blob_size: pick(random, &[100, 1_000], 1_000),
        blob_file_bytes: 256 << 10,
        compression: pick(random, &compressions, Compression::None),
        blob_compression: pick(random, &compressions, Compression::None),
        target_file_bytes: 128 << 10,
        level_base_bytes: 256 << 10,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        families: [("default".to_owned(), family)].into(),
        background_jobs: 2,
        wal_bytes_max: pick(random, &[0, 1 << 20], 0),
        punch_holes: random.below(2) == 0,
        holes_within_values: random.below(2) == 0,
        manifest_bytes_max: 64 << 10,
        ..Options::default()
    }
}

fn cask_options(random: &mut Random) -> CaskOptions {
    CaskOptions {
        create_if_missing: true,
        stripes: pick(random, &[1, 2, 4], 4),
        file_bytes: pick(random, &[64 << 10, 1 << 20], 1 << 20),
        compression: pick(random, &[Compression::None, Compression::Lz4], Compression::None),
        merge_garbage_ratio: pick(random, &[0.1, 0.5], 0.5),
        ..CaskOptions::default()
    }
}

fn raft_options(random: &mut Random) -> raft::Options {
    raft::Options {
        file_bytes: pick(random, &[64 << 10, 512 << 10], 512 << 10),
        purge_threshold_bytes: 2 << 20,
        compress_from_bytes: pick(random, &[0, 1_000], 0),
        recycle_files: random.below(2) == 0,
        ..raft::Options::default()
    }
}
