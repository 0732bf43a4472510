//! Fills the key directory from hints and data files, on several threads: first every file is read (this room), then every
//! shard is settled (`settle.rs`).
//!
//! - L1: of the records of a key, the one with the highest version is the newest; a deletion is a record like others, and
//!   does not come into the directory. All records of a key are in one list when it is settled, so the order in which files are
//!   read does not matter.
//! - L2: every record that is met is in the directory or entered as dead in the ledger of its file, so the ledger is exact
//!   after every open, crash or not.
//! - L3: two copies of one record (a merge was interrupted) have one version: the second is dead.
//!
//! Cost: one pass over the hints, one over the slots, some 100 ns of a processor for each key. Where several records have a key's
//! tag, the hint is asked again which keys and versions they have. No data file with a hint is read.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_env::Env;
use esker_format::cask::FileName;
use esker_format::cask::hint::Entry;
use esker_format::cask::manifest::FileState;
use esker_format::cask::record::{FIRST_OFFSET, Record};
use esker_format::zeroes::is_zero;
use parking_lot::Mutex;

use super::gather::{Batch, Gathered};
use super::hint::Hint;
use super::{CaskRecovery, OpenedFile};
use crate::file::{Claim, DataFile, Step, Tally, Walk, claims, slice, write_hint};
use crate::keydir::KeyDir;
use crate::room;
use crate::suspects::{Suspect, Suspects};
use crate::{Error, ErrorKind, Result};

/// Fewer records than this are settled by one thread: starting another would take longer.
const RECORDS_PER_THREAD_MIN: u64 = 1 << 17;

pub(crate) struct Loader {
    pub(super) keydir: KeyDir,
    gathered: Gathered,
    files: Vec<OpenedFile>,
    /// The same files, by ascending number, for whoever looks one up.
    pub(super) by_number: Vec<Known>,
    pub(super) keep_versions: usize,
    /// Whether hints that are missing or bad are written anew.
    mends_hints: bool,
    /// Of the newest records, how many are values.
    pub(super) key_count: AtomicU64,
    /// The next file, then the next 64 shards that nobody has taken.
    next: AtomicUsize,
    version_max: AtomicU64,
    recovery: Mutex<CaskRecovery>,
    failure: Mutex<Option<Error>>,
    /// What the damage that was met was, of each key the newest.
    pub(super) suspects: Mutex<HashMap<Vec<u8>, Suspect>>,
    /// The first place of damage of which it is not certain which keys it was of.
    uncertain: Mutex<Option<(PathBuf, u64)>>,
    /// There was no room for their hints.
    hintless: Mutex<Vec<Arc<DataFile>>>,
}

/// A file, and its hint if that is what was read of it.
pub(super) struct Known {
    pub(super) data: Arc<DataFile>,
    pub(super) hint: OnceLock<Hint>,
}

/// What came of it.
pub(crate) struct Loaded {
    pub(crate) keydir: KeyDir,
    pub(crate) files: Vec<OpenedFile>,
    pub(crate) recovery: CaskRecovery,
    pub(crate) version_max: u64,
    pub(crate) key_count: u64,
    pub(crate) suspects: Suspects,
    pub(crate) uncertain: Option<(PathBuf, u64)>,
    pub(crate) hintless: Vec<Arc<DataFile>>,
}

/// Reads all files, on so many threads, this one included.
pub(crate) fn load(loader: Loader, env: &Env, threads: usize) -> Result<Loaded> {
    let loader = Arc::new(loader);
    // Starting a thread costs more than an empty file.
    together(&loader, env, threads.min(loader.files.len()), Loader::read_files)?;
    loader.clear_outlived()?;
    loader.next.store(0, Ordering::Relaxed);
    let records = loader.recovery.lock().records;
    let worth = usize::try_from(records / RECORDS_PER_THREAD_MIN).unwrap_or(threads);
    together(&loader, env, threads.min(worth), Loader::settle_shards)?;
    match Arc::try_unwrap(loader) {
        Ok(loader) => Ok(loader.finish()),
        Err(_) => Err(ended_early()),
    }
}

fn together(loader: &Arc<Loader>, env: &Env, threads: usize, work: fn(&Loader, &Env) -> Result<()>) -> Result<()> {
    let mut helpers = Vec::new();
    for index in 1..threads {
        let (helper, env_of_helper) = (loader.clone(), env.clone());
        let work = Box::new(move || helper.keep_failure(work(&helper, &env_of_helper)));
        helpers.push(env.threads.spawn(&format!("esker-open-{index}"), work)?);
    }
    loader.keep_failure(work(loader, env));
    let ended_well = helpers.iter_mut().all(|helper| helper.join());
    match loader.failure.lock().take() {
        Some(error) => Err(error),
        None if ended_well => Ok(()),
        None => Err(ended_early()),
    }
}

fn ended_early() -> Error {
    Error::new(crate::ErrorKind::Io, "a thread that read files for the open ended early")
}

impl Loader {
    /// `files` by ascending number.
    pub(crate) fn new(keydir: KeyDir, files: Vec<OpenedFile>, keep_versions: usize, mends_hints: bool) -> Self {
        let known = |file: &OpenedFile| Known { data: file.data.clone(), hint: OnceLock::new() };
        Self {
            keydir,
            gathered: Gathered::none(),
            by_number: files.iter().map(known).collect(),
            files,
            keep_versions,
            mends_hints,
            key_count: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            version_max: AtomicU64::new(0),
            recovery: Mutex::default(),
            failure: Mutex::default(),
            suspects: Mutex::default(),
            uncertain: Mutex::default(),
            hintless: Mutex::default(),
        }
    }

    fn keep_failure(&self, result: Result<()>) {
        if let Err(error) = result {
            self.failure.lock().get_or_insert(error);
        }
    }

    fn read_files(&self, env: &Env) -> Result<()> {
        let mut batch = Batch::new(&self.keydir, &self.gathered);
        while self.failure.lock().is_none() {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let (Some(file), Some(known)) = (self.files.get(index), self.by_number.get(index)) else { break };
            self.read_file(env, file.state, known, &mut batch)?;
        }
        batch.hand_on();
        Ok(())
    }

    fn settle_shards(&self, _: &Env) -> Result<()> {
        while self.failure.lock().is_none() {
            let Some(mut shards) = self.gathered.of(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            shards.try_for_each(|shard| self.settle_shard(shard))?;
        }
        Ok(())
    }

    fn read_file(&self, env: &Env, state: FileState, known: &Known, batch: &mut Batch<'_>) -> Result<()> {
        let data = &known.data;
        let tally = match state {
            FileState::Open { durable_bytes } => self.read_open(data, durable_bytes, batch)?,
            FileState::Sealed { record_count, .. } => match self.read_hint(env, known, record_count, batch)? {
                Some(tally) => tally,
                None => {
                    let hint = data.path.with_file_name(FileName::Hint(data.number).name());
                    self.recovery.lock().bad_hints.push(hint);
                    let tally = self.read_sealed(data, batch)?;
                    self.write_hint_anew(env, data, &tally, record_count)?;
                    tally
                }
            },
        };
        data.count_all(&tally);
        self.version_max.fetch_max(tally.version_max, Ordering::Relaxed);
        self.recovery.lock().records += tally.records;
        Ok(())
    }

    /// `None`: there is no hint, or it is of no use; nothing was taken from it.
    fn read_hint(&self, env: &Env, known: &Known, record_count: u64, batch: &mut Batch<'_>) -> Result<Option<Tally>> {
        let data = &known.data;
        let Some(mut hint) = Hint::open(env, data, record_count)? else { return Ok(None) };
        let (mut tally, mut gaps, mut end) = (Tally::default(), Vec::new(), FIRST_OFFSET);
        let is_whole = hint.read_all(data.end(), |entry| {
            if entry.offset != end {
                gaps.push((end..entry.offset, Some(entry.version)));
            }
            end = entry.offset + entry.record_bytes;
            self.meet(data, entry, &mut tally, batch)
        })?;
        if !is_whole || tally.records != record_count {
            batch.forget(data.number);
            return Ok(None);
        }
        if end != data.end() {
            gaps.push((end..data.end(), None));
        }
        if !gaps.is_empty() {
            let bytes = data.bytes(0..data.end())?;
            for (gap, next) in gaps {
                self.note_damage(data, &bytes, gap, data.end(), next);
            }
        }
        // It is set once: every file is read once.
        let _ = known.hint.set(hint);
        Ok(Some(tally))
    }

    /// So that the next open need not read the data. A store that cannot be written to is served all the same.
    fn write_hint_anew(&self, env: &Env, data: &Arc<DataFile>, tally: &Tally, record_count: u64) -> Result<()> {
        // One that lacks a record would be refused; and which it lacks, a repair has to find in the data file.
        let (Some(dir), true) = (data.path.parent(), self.mends_hints && tally.records == record_count) else {
            return Ok(());
        };
        // As much as any file is left for a merge of it.
        let most = self.by_number.iter().map(|known| known.data.end()).max().unwrap_or_default();
        if !room::leaves(&*env.files, dir, most, data.end()) {
            self.hintless.lock().push(data.clone());
            return Ok(());
        }
        match write_hint(&*env.files, dir, data.number, data.salt, &data.bytes(0..data.end())?) {
            Err(error) if error.kind() == ErrorKind::Io => Ok(()),
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                self.hintless.lock().push(data.clone());
                Ok(())
            }
            written => written.map(drop),
        }
    }

    fn read_sealed(&self, data: &DataFile, batch: &mut Batch<'_>) -> Result<Tally> {
        let bytes = data.bytes(0..data.end())?;
        let mut walk = Walk::new(&bytes, data.salt);
        let mut tally = Tally::default();
        let mut damage = None;
        loop {
            let step = walk.step();
            if let Some(range) = damage.take() {
                self.note_damage(data, &bytes, range, data.end(), version_of(&step));
            }
            match step {
                Step::Record { offset, record, raw } => {
                    self.meet(data, &entry(offset, &record, raw.len() as u64), &mut tally, batch)?;
                }
                Step::Damage(range) => damage = Some(range),
                Step::End { .. } => return Ok(tally),
            }
        }
    }

    /// A file that was open: ends where a crash cut it, and a batch of which the end is missing never was. One that has damage in it was
    /// written whole: what of it holds counts.
    fn read_open(&self, data: &DataFile, durable_bytes: u64, batch: &mut Batch<'_>) -> Result<Tally> {
        let bytes = data.bytes_left()?;
        let mut walk = Walk::torn_behind(&bytes, data.salt, durable_bytes);
        let mut pending = Vec::new();
        let mut tally = Tally::default();
        let mut damage = None;
        loop {
            let step = walk.step();
            let note = |range| self.note_damage(data, &bytes, range, durable_bytes, version_of(&step));
            let damage_end = damage.take().map(note);
            match step {
                Step::Record { offset, record, raw } => {
                    pending.push((offset, record, raw.len() as u64));
                    if record.is_continued {
                        continue;
                    }
                }
                Step::Damage(range) => damage = Some(range),
                Step::End { at, is_torn } => {
                    let end = pending.first().map_or(at, |(offset, ..)| *offset);
                    data.set_end(damage_end.unwrap_or(end));
                    if is_torn || end != at {
                        self.recovery.lock().torn_files.push(data.path.clone());
                    }
                    return Ok(tally);
                }
            }
            for (offset, record, bytes) in pending.drain(..) {
                self.meet(data, &entry(offset, &record, bytes), &mut tally, batch)?;
            }
        }
    }

    /// `bytes` are the file's, of which so many are known to be `durable`. Where the damage ends, but for zeroes that were never anything else.
    /// `next` is the version of the record behind it, if that holds.
    fn note_damage(&self, data: &DataFile, bytes: &[u8], range: Range<u64>, durable: u64, next: Option<u64>) -> u64 {
        data.mark_damaged();
        self.recovery.lock().damage.push((data.path.clone(), range.clone()));
        let (found, to) = claims(bytes, data.salt, range.clone());
        let is_unwritten = to >= durable && slice(bytes, to..range.end).is_some_and(is_zero);
        let end = if is_unwritten { to } else { range.end };
        if to != end || found.iter().any(|claim| !claim.is_certain) {
            let mut first = self.uncertain.lock();
            let place = (data.path.clone(), range.start);
            if first.as_ref().is_none_or(|first| place < *first) {
                *first = Some(place);
            }
        }
        // Versions ascend in a file that writers filled; none of one that a merge filled is higher than what it is clean as of.
        let version_max = match next.filter(|_| data.clean_as_of > 0) {
            Some(next) if next > data.clean_as_of => next - 1,
            Some(_) => data.clean_as_of,
            None => u64::MAX,
        };
        let mut suspects = self.suspects.lock();
        for Claim { offset, key, version, is_certain } in found {
            let version = if is_certain { version } else { version.min(version_max) };
            let suspect = Suspect { path: data.path.clone(), offset, version };
            match suspects.get(&key) {
                Some(known) if known.version >= version => {}
                _ => drop(suspects.insert(key, suspect)),
            }
        }
        end
    }

    /// Of damaged records, those stay under suspicion that nothing newer took the place of.
    fn clear_outlived(&self) -> Result<()> {
        let mut suspects = self.suspects.lock();
        if suspects.is_empty() {
            return Ok(());
        }
        let mut outlive = |key: &[u8], version: u64| {
            if suspects.get(key).is_some_and(|suspect| suspect.version <= version) {
                suspects.remove(key);
            }
        };
        for Known { data, hint } in &self.by_number {
            if let Some(hint) = hint.get() {
                hint.entries().for_each(|entry| outlive(entry.key, entry.version));
                continue;
            }
            let bytes = data.bytes(0..data.end())?;
            let mut walk = Walk::new(&bytes, data.salt);
            loop {
                match walk.step() {
                    Step::Record { record, .. } => outlive(record.key, record.version),
                    Step::Damage(_) => {}
                    Step::End { .. } => break,
                }
            }
        }
        Ok(())
    }

    fn meet(&self, data: &DataFile, entry: &Entry<'_>, tally: &mut Tally, batch: &mut Batch<'_>) -> Result<()> {
        let hash = self.keydir.hash(entry.key);
        let slot = data.slot(hash.tag(), entry.offset, entry.record_bytes)?;
        tally.add(entry);
        batch.add(hash, if entry.is_tombstone { slot.with_tombstone() } else { slot });
        Ok(())
    }

    fn finish(self) -> Loaded {
        let suspects = self.suspects.into_inner();
        let mut recovery = sorted(self.recovery.into_inner());
        recovery.damaged_keys = suspects.keys().cloned().collect();
        recovery.damaged_keys.sort_unstable();
        Loaded {
            suspects: Suspects::new(suspects),
            uncertain: self.uncertain.into_inner(),
            hintless: self.hintless.into_inner(),
            keydir: self.keydir,
            files: self.files,
            recovery,
            version_max: self.version_max.into_inner(),
            key_count: self.key_count.into_inner(),
        }
    }
}

/// The version of the record that a walk has met.
fn version_of(step: &Step<'_>) -> Option<u64> {
    match step {
        Step::Record { record, .. } => Some(record.version),
        _ => None,
    }
}

/// What a hint would say of a record.
fn entry<'a>(offset: u64, record: &Record<'a>, record_bytes: u64) -> Entry<'a> {
    let Record { version, is_tombstone, expires_at, key, .. } = *record;
    Entry { offset, record_bytes, version, is_tombstone, expires_at, key }
}

/// Threads came to files in any order.
fn sorted(mut recovery: CaskRecovery) -> CaskRecovery {
    let by_place = |entry: &(PathBuf, Range<u64>)| (entry.0.clone(), entry.1.start);
    recovery.torn_files.sort_unstable();
    recovery.bad_hints.sort_unstable();
    recovery.damage.sort_unstable_by_key(by_place);
    recovery
}
