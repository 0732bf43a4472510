//! Fills the key directory from hints and data files, on several threads, in any order.
//!
//! - L1: of the records of a key, the one with the highest version is the newest; a deletion is a record like others, and
//!   leaves the directory when all files are in. So the order in which records come does not matter.
//! - L2: every record that is met is in the directory or entered as dead in the ledger of its file, so the ledger is exact
//!   after every open, crash or not.
//! - L3: two copies of one record (a merge was interrupted) have one version: the second is dead.
//!
//! Cost: one pass over the hints. Only for a record whose key is in the directory already, the record there is read: one access
//! for each record that was dead when its file was sealed or died since.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_env::Env;
use esker_format::cask::FileName;
use esker_format::cask::hint::{Block, Entry, Footer};
use esker_format::cask::manifest::FileState;
use esker_format::cask::record::{self, FIRST_OFFSET, Record};
use parking_lot::Mutex;

use super::{CaskRecovery, OpenedFile};
use crate::file::{DataFile, Step, Walk};
use crate::keydir::{KeyDir, KeyHash, Shard, Slot};
use crate::{Error, Result};

/// Keys that a thread sorts by shard before it enters them: some 5 MiB of memory. Their places fit into 16 bits.
const BATCH_LEN: usize = 1 << 16;

pub(crate) struct Loader {
    keydir: KeyDir,
    files: Vec<Mutex<OpenedFile>>,
    /// The same files, by ascending number, for whoever looks one up.
    by_number: Vec<Arc<DataFile>>,
    keep_versions: usize,
    /// Records that the manifest knows of, for each shard. Those that turn out to be dead leave room, which is given up at the end.
    records_per_shard: usize,
    next: AtomicUsize,
    version_max: AtomicU64,
    recovery: Mutex<CaskRecovery>,
    failure: Mutex<Option<Error>>,
}

/// What came of it.
pub(crate) struct Loaded {
    pub(crate) keydir: KeyDir,
    pub(crate) files: Vec<OpenedFile>,
    pub(crate) recovery: CaskRecovery,
    pub(crate) version_max: u64,
}

/// Reads all files, on `threads` threads beside this one if there is more than one file.
pub(crate) fn load(loader: Loader, env: &Env, threads: usize) -> Result<Loader> {
    let loader = Arc::new(loader);
    let mut helpers = Vec::new();
    // Starting one costs more than an empty file.
    for index in 1..threads.min(loader.files.len()) {
        let (helper, env_of_helper) = (loader.clone(), env.clone());
        let work = Box::new(move || helper.run(&env_of_helper));
        helpers.push(env.threads.spawn(&format!("esker-open-{index}"), work)?);
    }
    loader.run(env);
    let ended_well = helpers.iter_mut().all(|helper| helper.join());
    drop(helpers);
    if let Some(error) = loader.failure.lock().take() {
        return Err(error);
    }
    match Arc::try_unwrap(loader) {
        Ok(loader) if ended_well => Ok(loader),
        _ => Err(Error::new(crate::ErrorKind::Io, "a thread that read files for the open ended early")),
    }
}

impl Loader {
    /// `files` by ascending number.
    pub(crate) fn new(keydir: KeyDir, files: Vec<OpenedFile>, keep_versions: usize) -> Self {
        let sealed = |file: &OpenedFile| match file.state {
            FileState::Sealed { record_count, .. } => record_count,
            FileState::Open => 0,
        };
        let records: u64 = files.iter().map(sealed).sum();
        let records_per_shard = usize::try_from(records / keydir.shards().len() as u64).unwrap_or(0);
        Self {
            records_per_shard,
            keydir,
            by_number: files.iter().map(|file| file.data.clone()).collect(),
            files: files.into_iter().map(Mutex::new).collect(),
            keep_versions,
            next: AtomicUsize::new(0),
            version_max: AtomicU64::new(0),
            recovery: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn run(&self, env: &Env) {
        while self.failure.lock().is_none() {
            let Some(file) = self.files.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(error) = self.load_file(env, &mut file.lock()) {
                self.failure.lock().get_or_insert(error);
            }
        }
    }

    fn load_file(&self, env: &Env, file: &mut OpenedFile) -> Result<()> {
        let data = file.data.clone();
        let count = match file.state {
            FileState::Open => self.load_open(file)?,
            FileState::Sealed { record_count, .. } => match self.load_hint(env, &data, record_count)? {
                Some(count) => count,
                None => {
                    let hint = data.path.with_file_name(FileName::Hint(data.number).name());
                    self.recovery.lock().bad_hints.push(hint);
                    self.load_sealed(&data)?
                }
            },
        };
        self.version_max.fetch_max(data.version_max(), Ordering::Relaxed);
        self.recovery.lock().records += count;
        Ok(())
    }

    /// `None`: there is no hint, or it is of no use; nothing was taken from it.
    fn load_hint(&self, env: &Env, data: &DataFile, record_count: u64) -> Result<Option<u64>> {
        let path = data.path.with_file_name(FileName::Hint(data.number).name());
        let file = match env.files.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mapping = file.map()?;
        let read;
        let raw = match &mapping {
            Some(mapping) => mapping.bytes(),
            None => {
                read = env.files.read(&path)?;
                &read
            }
        };
        let Ok(footer) = Footer::decode(raw) else { return Ok(None) };
        let fits = footer.number == data.number
            && footer.salt == data.salt
            && footer.data_bytes == data.end()
            && footer.record_count == record_count;
        let blocks = usize::try_from(footer.block_bytes).ok().and_then(|bytes| raw.get(..bytes)).filter(|_| fits);
        // First all of it is looked at, then taken: a bad block must not leave half a file in the directory.
        let Some(blocks) = blocks.filter(|blocks| hint_holds(blocks, data, record_count)) else { return Ok(None) };
        let mut end = FIRST_OFFSET;
        let mut rest = blocks;
        let mut batch = Vec::with_capacity(BATCH_LEN.min(usize::try_from(record_count).unwrap_or(BATCH_LEN)));
        while let Ok((block, bytes)) = Block::decode(rest, data.salt) {
            rest = rest.get(bytes..).unwrap_or_default();
            for entry in block.entries().flatten() {
                if entry.offset != end {
                    self.note_damage(data, end..entry.offset);
                }
                end = entry.offset + entry.record_bytes;
                batch.push((self.keydir.hash(entry.key), entry));
                if batch.len() == BATCH_LEN {
                    self.meet_all(data, &mut batch)?;
                }
            }
        }
        self.meet_all(data, &mut batch)?;
        if end != data.end() {
            self.note_damage(data, end..data.end());
        }
        Ok(Some(record_count))
    }

    fn load_sealed(&self, data: &DataFile) -> Result<u64> {
        let bytes = data.bytes(0..data.end())?;
        let mut walk = Walk::new(&bytes, data.salt, true);
        let mut count = 0;
        loop {
            match walk.step() {
                Step::Record { offset, record, raw } => {
                    count += 1;
                    self.meet(data, &entry(offset, &record, raw.len() as u64))?;
                }
                Step::Damage(range) => self.note_damage(data, range),
                Step::End { .. } => return Ok(count),
            }
        }
    }

    /// A file that was open: ends where a crash cut it, and a batch of which the end is missing never was.
    fn load_open(&self, file: &mut OpenedFile) -> Result<u64> {
        let data = file.data.clone();
        let bytes = data.bytes(0..data.end())?;
        let mut walk = Walk::new(&bytes, data.salt, false);
        let mut pending = Vec::new();
        let mut count = 0;
        // The batch that damage tore apart goes on until here.
        let mut in_torn_batch = false;
        loop {
            match walk.step() {
                Step::Record { offset, record, raw } if in_torn_batch => {
                    in_torn_batch = record.is_continued;
                    self.note_damage(&data, offset..offset + raw.len() as u64);
                }
                Step::Record { offset, record, raw } => {
                    pending.push((offset, record, raw.len() as u64));
                    if record.is_continued {
                        continue;
                    }
                    count += pending.len() as u64;
                    for (offset, record, bytes) in pending.drain(..) {
                        self.meet(&data, &entry(offset, &record, bytes))?;
                    }
                }
                Step::Damage(range) => {
                    let start = pending.first().map_or(range.start, |(offset, ..)| *offset);
                    in_torn_batch = !pending.is_empty();
                    pending.clear();
                    self.note_damage(&data, start..range.end);
                }
                Step::End { at, is_torn } => {
                    let end = pending.first().map_or(at, |(offset, ..)| *offset);
                    file.is_torn = is_torn || end != at;
                    data.set_end(end);
                    if file.is_torn {
                        self.recovery.lock().torn_files.push(data.path.clone());
                    }
                    return Ok(count);
                }
            }
        }
    }

    fn note_damage(&self, data: &DataFile, range: Range<u64>) {
        data.mark_damaged();
        self.recovery.lock().damage.push((data.path.clone(), range));
    }

    /// Shard by shard, so that each is fetched into the processor's caches once for several keys.
    fn meet_all(&self, data: &DataFile, batch: &mut Vec<(KeyHash, Entry<'_>)>) -> Result<()> {
        // Sixteen bits of the shard and sixteen of the place: numbers are sorted several times as fast as entries.
        let mut order: Vec<u32> =
            batch.iter().zip(0u32..).map(|((hash, _), place)| (hash.shard() as u32) << 16 | place).collect();
        order.sort_unstable();
        for place in order {
            if let Some((hash, entry)) = batch.get((place & 0xffff) as usize) {
                self.meet_hashed(data, *hash, entry)?;
            }
        }
        batch.clear();
        Ok(())
    }

    fn meet(&self, data: &DataFile, entry: &Entry<'_>) -> Result<()> {
        self.meet_hashed(data, self.keydir.hash(entry.key), entry)
    }

    fn meet_hashed(&self, data: &DataFile, hash: KeyHash, entry: &Entry<'_>) -> Result<()> {
        let Entry { offset, record_bytes, version, is_tombstone, expires_at, key } = *entry;
        data.count(record_bytes, version, is_tombstone, expires_at);
        let slot = data.slot(hash.tag(), offset, record_bytes)?;
        let slot = if is_tombstone { slot.with_tombstone() } else { slot };
        let mut shard = self.keydir.shard(hash).write();
        shard.reserve(self.records_per_shard);
        let mut known = Vec::new();
        shard.with_tag(hash.tag(), |slot| known.push(slot));
        let mut same = Vec::new();
        for slot in known {
            if let Some(version) = self.version_if_same(&slot, key)? {
                same.push((version, slot));
            }
        }
        self.settle(&mut shard, version, slot, same);
        Ok(())
    }

    /// The version of the record at `slot`, if it has this key.
    fn version_if_same(&self, slot: &Slot, key: &[u8]) -> Result<Option<u64>> {
        let place = slot.place();
        let Some(file) = self.file(place.file) else { return Ok(None) };
        let raw = file.record_bytes(slot)?;
        match file.decode(place.offset.into(), &raw) {
            Ok(record) => Ok((record.key == key && record::checksum_holds(&raw, file.salt)).then_some(record.version)),
            // What cannot be read is nobody's: it stays, and reads of its key will say so.
            Err(_) => Ok(None),
        }
    }

    fn file(&self, number: esker_format::cask::FileNumber) -> Option<&Arc<DataFile>> {
        let index = self.by_number.binary_search_by_key(&number, |file| file.number).ok()?;
        self.by_number.get(index)
    }

    /// Puts a record among the `same` key's (L1).
    fn settle(&self, shard: &mut Shard, version: u64, met: Slot, mut same: Vec<(u64, Slot)>) {
        if same.is_empty() {
            shard.insert(met);
            return;
        }
        if same.iter().any(|(other, _)| *other == version) {
            self.bury(&met);
            return;
        }
        same.push((version, met));
        same.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
        let is_met = |slot: &Slot| slot.place() == met.place();
        // Values since the last deletion, as many as are kept; and the newest deletion, for those yet to come.
        let mut kept = 0;
        let mut is_ended = false;
        for (_, slot) in &same {
            let stays = !is_ended && (slot.is_tombstone() || kept < self.keep_versions);
            is_ended |= slot.is_tombstone();
            if !stays {
                if !is_met(slot) {
                    shard.remove(slot.tag(), slot.place());
                }
                self.bury(slot);
                continue;
            }
            let marked = if slot.is_tombstone() { *slot } else { slot.with_old(kept > 0) };
            kept += usize::from(!slot.is_tombstone());
            if is_met(slot) {
                shard.insert(marked);
            } else if marked != *slot {
                shard.replace(slot.place(), marked);
            }
        }
    }

    /// A deletion is not entered as dead: it is needed until nothing older is left (see `reclaim`).
    fn bury(&self, slot: &Slot) {
        if !slot.is_tombstone()
            && let Some(file) = self.file(slot.place().file)
        {
            file.bury(slot);
        }
    }

    /// All files are in: deletions leave the directory.
    pub(crate) fn finish(self) -> Loaded {
        for shard in self.keydir.shards() {
            shard.write().retain(|slot| !slot.is_tombstone());
        }
        Loaded {
            keydir: self.keydir,
            files: self.files.into_iter().map(Mutex::into_inner).collect(),
            recovery: sorted(self.recovery.into_inner()),
            version_max: self.version_max.into_inner(),
        }
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

/// Whether every block of a hint holds, and names so many records in order within the data file.
fn hint_holds(mut blocks: &[u8], data: &DataFile, record_count: u64) -> bool {
    let (mut end, mut count) = (FIRST_OFFSET, 0);
    while !blocks.is_empty() {
        let Ok((block, bytes)) = Block::decode(blocks, data.salt) else { return false };
        blocks = blocks.get(bytes..).unwrap_or_default();
        for entry in block.entries() {
            let Ok(entry) = entry else { return false };
            if !fits(&entry, end, data.end()) {
                return false;
            }
            end = entry.offset + entry.record_bytes;
            count += 1;
        }
    }
    count == record_count
}

fn fits(entry: &Entry<'_>, from: u64, to: u64) -> bool {
    let end = entry.offset.checked_add(entry.record_bytes);
    entry.version > 0
        && entry.offset >= from
        && entry.record_bytes >= record::record_bytes(entry.key.len(), 0, false)
        && end.is_some_and(|end| end <= to)
}
