//! Gives dead pages of blob files back to the file system, without reading or writing a value.
//!
//! - H1: what is dead is found by looking at what lives: the tables of a version say where, and everything between is dead
//!   in that version and in all that follow, as nobody ever points to an old record again. No memory of what died is
//!   needed, across restarts neither.
//! - H2: no hole is made while a version older than that one is held: its readers may read what died since. Nor, in this order, in a file of
//!   which somebody holds mapped values that such a reader got: they would become zeroes.
//! - H3: pointers lie in tables only: a memtable holds none, as open turns what the logs had into tables.
//! - H4: a file with a second name is shared with somebody who may point elsewhere into it: it stays whole.
//!   While a copy of the store is being made, no pass begins; what one that goes on takes away is dead in the copy, too (H1).
//! - H5: only whole pages between the living become holes: bytes of live records never change (F2). With `holes_within_values` headers
//!   and keys of dead ones stay, so that whoever walks a file from front to back, as RocksDB's tools do, finds the next record.
//! - H6: nor is one made while another handle has the store open for reading, in whatever process: it may see an older version. Such
//!   a handle shares the directory before it reads the manifest, and one for writing when it closes, until the last of what it handed out is
//!   gone; a pass has it alone, or does nothing.
//!
//! Cost: the keys of the tables that point into the files, once; a system call for each hole that is new or has grown; within values,
//! one read of each dead record's header. Worth it where values are so large that most of one is whole pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_env::Metadata;
use esker_format::rocksdb::blob::{BlobRecordHeader, HEADER_BYTES, RECORD_HEADER_BYTES, accounted_bytes};
use esker_format::rocksdb::internal_key::{FileNumber, ValueKind};
use esker_log::ledger::Usage;

use crate::blob::BlobFile;
use crate::entry;
use crate::events::{FileChanges, Job, JobKind};
use crate::family::Family;
use crate::iterate::InternalIterator;
use crate::store::Store;
use crate::version::{BlobHandle, Version};
use crate::{Error, ErrorKind, Result};

/// What file systems hand out; where it is more, holes are rounded by them.
const PAGE_BYTES: u64 = 4096;
/// Mean length of records from which on holes are worth looking for: of such a one, at least half is whole pages.
const RECORD_BYTES_MIN: u64 = 2 * PAGE_BYTES;
/// New garbage that is worth a look, in bytes and as a part of the file.
const GARBAGE_BYTES_MIN: u64 = 2 * PAGE_BYTES;
const GARBAGE_PART_MIN: u64 = 16;
/// So many a file system remembers in a page that counts as the file's: ext4 some 340 pieces of it.
const HOLES_IN_PAGE: u64 = 256;
/// Holes that are made before it is asked whether the store closes.
const HOLES_MAX: usize = 256;
/// Records that one pass keeps the places of: 64 MiB of memory.
const RECORDS_MAX: u64 = 4 << 20;

/// Blob files to make holes in.
#[derive(Debug)]
pub(crate) struct Punch {
    pub(crate) family: Arc<Family>,
    pub(crate) version: Arc<Version>,
    files: BTreeSet<FileNumber>,
    /// Whether the directory could not be claimed, for want of what will be there again.
    is_refused: AtomicBool,
}

impl Punch {
    pub(super) fn files(&self) -> &BTreeSet<FileNumber> {
        &self.files
    }

    fn blobs(&self) -> impl Iterator<Item = (&FileNumber, &Arc<BlobHandle>)> {
        self.files.iter().filter_map(|number| Some((number, self.version.blobs().get(number)?)))
    }

    /// How it is told.
    pub(crate) fn job(&self, id: u64) -> Job {
        let job = Job::over(id, JobKind::Punch, &self.family, std::iter::empty());
        Job { blob_files: self.files.len(), ..job }
    }

    /// Has the files looked at by the next pass, too, if this one could not claim them; where it was already, that makes no hole twice. Not before
    /// its pause is over: nothing else keeps others from trying the same meanwhile.
    pub(crate) fn look_again_if_refused(&self) {
        if self.is_refused.load(Ordering::Relaxed) {
            self.blobs().for_each(|(_, blob)| blob.holes.set_looked_at(0));
        }
    }
}

/// What a pass would free of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreedByHoles {
    pub(super) bytes: u64,
    /// What all holes of the file come to then.
    pub(super) hole_bytes: u64,
}

/// About what the next pass would free.
pub(crate) fn fresh_bytes(family: &Family) -> u64 {
    let version = family.view.load().version.clone();
    let fresh = |(number, usage): (FileNumber, Usage)| {
        let looked_at = version.blobs().get(&number).map_or(u64::MAX, |blob| blob.holes.looked_at());
        let record_bytes = usage.bytes / usage.count.max(1);
        if record_bytes < RECORD_BYTES_MIN {
            return 0;
        }
        // Of each value, about a page is shared with its neighbours.
        usage.garbage_bytes.saturating_sub(looked_at) / record_bytes * (record_bytes - PAGE_BYTES)
    };
    version.ledger().iter().map(fresh).sum()
}

/// Whether the values that live are, on average, long enough to leave whole pages behind.
pub(crate) fn has_pages(version: &Version) -> bool {
    let total = version.ledger().total();
    total.live_bytes() / total.live_count().max(1) >= RECORD_BYTES_MIN
}

/// The next pass over a family's blob files; `None` if there is nothing to gain, or not now (H2). Pure but for that. Files of `done` are taken for
/// looked at.
pub(crate) fn pick(family: &Arc<Family>, version: &Arc<Version>, done: &BTreeSet<FileNumber>) -> Option<Punch> {
    let mut records = 0u64;
    let files: BTreeSet<FileNumber> = version
        .ledger()
        .iter()
        .filter(|(number, _)| !done.contains(number))
        .filter(|(number, usage)| {
            let looked_at = version.blobs().get(number).map_or(u64::MAX, |blob| blob.holes.looked_at());
            let fresh = usage.garbage_bytes.saturating_sub(looked_at);
            fresh >= GARBAGE_BYTES_MIN.max(usage.bytes / GARBAGE_PART_MIN)
                && usage.bytes / usage.count.max(1) >= RECORD_BYTES_MIN
        })
        .take_while(|(_, usage)| {
            records = records.saturating_add(usage.count);
            records <= RECORDS_MAX
        })
        .map(|(number, _)| number)
        .collect();
    let is_due = !files.is_empty() && !family.is_older_version_held(version);
    let (family, version, is_refused) = (family.clone(), version.clone(), AtomicBool::new(false));
    is_due.then_some(Punch { family, version, files, is_refused })
}

impl Store {
    /// Runs a pass. Nothing is to be installed: no reader can tell the difference.
    pub(crate) fn run_punch(&self, plan: &Punch) -> Result<FileChanges> {
        let mut changes = FileChanges::default();
        if plan.family.is_dropped() {
            return Ok(changes);
        }
        self.counters.punches.add(1);
        for (number, blob) in plan.blobs() {
            let garbage = plan.version.ledger().get(*number).unwrap_or_default().garbage_bytes;
            // Whatever comes of it, but for what is over in a moment: the next look is for more garbage than this.
            blob.holes.set_looked_at(garbage);
        }
        let mut live = live_extents(plan, self)?;
        for (number, blob) in plan.blobs() {
            let Some(freed) = self.punch_file(plan, blob, live.remove(number).unwrap_or_default())? else {
                self.cannot_punch.store(true, Ordering::Relaxed);
                break;
            };
            self.counters.punched_bytes.add(freed);
            changes.punched_bytes += freed;
        }
        Ok(changes)
    }

    /// What a pass would free of each of its files, if nobody else reads the store, and what the file's holes come to then. Reads what the pass reads, and
    /// writes nothing.
    pub(super) fn foresee_punch(&self, plan: &Punch) -> Result<BTreeMap<FileNumber, FreedByHoles>> {
        let mut live = live_extents(plan, self)?;
        let mut foreseen = BTreeMap::new();
        for (number, blob) in plan.blobs() {
            let Some(found) = self.to_be_punched(blob)? else { continue };
            let dead = self.dead_pages(blob, live.remove(number).unwrap_or_default())?;
            let (count, dead) = (dead.len() as u64, dead.iter().map(|pages| pages.end - pages.start).sum::<u64>());
            // Whatever made those that are there, they lie in what is dead.
            let holes = found.len.next_multiple_of(PAGE_BYTES).saturating_sub(found.allocated);
            let fresh = dead.saturating_sub(holes);
            // As little as that is what the file system takes to remember them.
            let bytes = if fresh > PAGE_BYTES * (1 + count / HOLES_IN_PAGE) { fresh } else { 0 };
            let hole_bytes = found.len.saturating_sub(found.allocated.saturating_sub(bytes));
            foreseen.insert(*number, FreedByHoles { bytes, hole_bytes });
        }
        Ok(foreseen)
    }

    /// What the file system says of a file in which holes may be made (H2, H4); `None` if it stays whole.
    fn to_be_punched(&self, blob: &BlobHandle) -> Result<Option<Metadata>> {
        let found = self.env.files.metadata(blob.file.path())?;
        Ok((found.links <= 1 && !blob.file.is_lent()).then_some(found))
    }

    /// Returns how much came free; `None` where the file system has no holes, or no locks of directories.
    fn punch_file(&self, plan: &Punch, blob: &BlobHandle, live: Vec<Range<u64>>) -> Result<Option<u64>> {
        let (files, path) = (&*self.env.files, blob.file.path());
        let Some(before) = self.to_be_punched(blob)? else { return Ok(Some(0)) };
        let _alone = match files.claim_dir(&self.dir) {
            Ok(alone) => Some(alone),
            // A file system that only this process has.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => None,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Some(0)),
            // Of descriptors, say, there will be some again: it is told until it was tried again, for which nobody has to leave more garbage.
            Err(error) if error.is_exhausted() || error.kind() == std::io::ErrorKind::OutOfMemory => {
                plan.is_refused.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
            // A file system that cannot lock a directory.
            Err(_) => return Ok(None),
        };
        let mut punched = blob.holes.punched();
        // Should it fail, which of them are holes is not known: the next pass makes all anew.
        let mut known = std::mem::take(&mut *punched).into_iter().peekable();
        let all = self.dead_pages(blob, live)?;
        let is_fresh = |pages: &&Range<u64>| {
            while known.next_if(|hole| hole.start < pages.start).is_some() {}
            known.next_if_eq(*pages).is_none()
        };
        let fresh: Vec<Range<u64>> = all.iter().filter(is_fresh).cloned().collect();
        for holes in fresh.chunks(HOLES_MAX) {
            self.check_open()?;
            match files.punch_holes(path, holes) {
                Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(None),
                made => made?,
            }
        }
        *punched = all;
        let after = files.metadata(path)?;
        blob.holes.set_bytes(after.len.saturating_sub(after.allocated));
        Ok(Some(before.allocated.saturating_sub(after.allocated)))
    }

    /// The pages of a blob file that may go, ascending, where `live` is all that lives in it.
    fn dead_pages(&self, blob: &BlobHandle, live: Vec<Range<u64>>) -> Result<Vec<Range<u64>>> {
        let mut dead = Vec::new();
        for gap in gaps(live, blob.file.records_end()) {
            let mut at = gap.start;
            while let Some((pages, end)) = self.dead_pages_of_gap(&blob.file, at..gap.end)? {
                at = end;
                if !pages.is_empty() {
                    dead.push(pages);
                }
            }
        }
        Ok(dead)
    }

    /// The next pages of a gap that may go, and where to go on in it; `None` at its end.
    fn dead_pages_of_gap(&self, blob: &BlobFile, gap: Range<u64>) -> Result<Option<(Range<u64>, u64)>> {
        if self.options().holes_within_values {
            return dead_value(blob, gap.start, gap.end);
        }
        Ok((!gap.is_empty()).then(|| (whole_pages(gap.clone()), gap.end)))
    }
}

/// Where the records lie that tables point to, by file.
fn live_extents(plan: &Punch, store: &Store) -> Result<BTreeMap<FileNumber, Vec<Range<u64>>>> {
    let mut live: BTreeMap<FileNumber, Vec<Range<u64>>> = BTreeMap::new();
    for (_, table) in plan.version.tables() {
        if !table.blob_refs()?.keys().any(|file| plan.files.contains(file)) {
            continue;
        }
        let mut entries = table.table.iter(false);
        entries.seek_to_first()?;
        while entries.valid() {
            store.check_open()?;
            let key = entry::key_of(&entries)?;
            if key.kind == ValueKind::BlobIndex {
                let index = entry::pointer(key.user_key, entries.value())?;
                if plan.files.contains(&index.file) {
                    let Some(start) = index.record_offset(key.user_key.len()) else {
                        return Err(Error::new(ErrorKind::Corruption, "a table points before the first blob"));
                    };
                    let end = start.saturating_add(accounted_bytes(&index, key.user_key.len()));
                    live.entry(index.file).or_default().push(start..end);
                }
            }
            entries.next()?;
        }
    }
    Ok(live)
}

/// What lies between the living, up to `end`: dead records, one after the other.
fn gaps(mut live: Vec<Range<u64>>, end: u64) -> impl Iterator<Item = Range<u64>> {
    live.sort_by_key(|extent| extent.start);
    let mut dead_from = HEADER_BYTES as u64;
    live.into_iter().chain(std::iter::once(end..end)).filter_map(move |extent| {
        let gap = dead_from..extent.start;
        dead_from = dead_from.max(extent.end);
        (gap.start < gap.end).then_some(gap)
    })
}

/// The whole pages within the value of the dead record at `start`, and where it ends. `None` at the end of its gap, and where
/// no record is that can be read: what follows stays as it is.
fn dead_value(blob: &BlobFile, start: u64, gap_end: u64) -> Result<Option<(Range<u64>, u64)>> {
    let mut raw = [0; RECORD_HEADER_BYTES];
    if start >= gap_end || blob.read_raw(start, &mut raw)? < raw.len() {
        return Ok(None);
    }
    let Ok(header) = BlobRecordHeader::decode(&raw) else { return Ok(None) };
    let end = header.record_bytes().and_then(|bytes| start.checked_add(bytes)).filter(|&end| end <= gap_end);
    Ok(end.map(|end| (whole_pages(end - header.value_bytes..end), end)))
}

fn whole_pages(bytes: Range<u64>) -> Range<u64> {
    bytes.start.next_multiple_of(PAGE_BYTES)..bytes.end / PAGE_BYTES * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_living_is_dead() {
        let gaps = |live: &[(u64, u64)], end: u64| {
            let live = live.iter().map(|&(start, end)| start..end).collect();
            gaps(live, end).map(|gap| (gap.start, gap.end)).collect::<Vec<_>>()
        };
        assert_eq!(gaps(&[], 40_000), vec![(30, 40_000)]);
        assert_eq!(gaps(&[(30, 40_000)], 40_000), vec![]);
        assert_eq!(gaps(&[(20_000, 30_000), (30, 5000)], 40_000), vec![(5000, 20_000), (30_000, 40_000)]);
        // What overlaps, which no sound store has, is not counted dead either.
        assert_eq!(gaps(&[(30, 20_000), (30, 50)], 24_576), vec![(20_000, 24_576)]);
    }

    #[test]
    fn only_pages_that_a_value_fills_are_whole() {
        assert_eq!(whole_pages(5000..20_000), 8192..16_384);
        assert_eq!(whole_pages(4096..8192), 4096..8192);
        assert!(whole_pages(4097..8192).is_empty() && whole_pages(100..200).is_empty());
    }
}
