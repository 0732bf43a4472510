//! Pointers of the logs into blob files that no manifest names yet: values of [`Separation::AtWrite`](crate::Separation::AtWrite)
//! whose memtable was not flushed.
//!
//! - P1: a batch is replayed only if every value that it points to is there, whole. The first that is not ends the log, as a
//!   torn record does: nobody was told that the pointer is durable before the value was, so what lies behind was never acknowledged as durable.
//! - P2: missing because of a power loss, or damaged: what a power loss takes ends the log before the record does, or reads
//!   as a sector of zeroes (`esker_log::scan`, T1 and T2). Everything else is damage, and told.
//! - P3: before a file takes its first value, the values in all others of its family are durable. So only what was logged from the
//!   first pointer to a family's newest file on can be lost. Other values are checked when they are read.
//! - P4: what the logs point to is taken over: cut where the last replayed value ends, given a footer, synced. Whoever has to
//!   recover again finds the same values, and is warned if that sync failed. A file that nothing points to is an orphan.
//!
//! Cost: a pass over the logs, where there are such files, and a read of those values that P3 leaves in doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::{
    BlobFooter, BlobIndex, BlobRecordHeader, HEADER_BYTES, RECORD_HEADER_BYTES, accounted_bytes,
};
use esker_format::rocksdb::internal_key::{FileNumber, ValueKind};
use esker_format::rocksdb::version_edit::BlobFileAddition;
use esker_format::rocksdb::write_batch::{self, Record};
use esker_format::zeroes::is_zero;
use esker_log::distrust;

use crate::blob::{BlobFile, header};
use crate::family::View;
use crate::reclaim::Trash;
use crate::store::Store;
use crate::version::{BlobHandle, Edit, Garbage};
use crate::{Error, ErrorKind, Result};

/// What a power loss keeps or takes.
const SECTOR_BYTES: u64 = 512;

/// Blob files that the logs point to.
#[derive(Debug, Default)]
pub(super) struct Pointers {
    files: BTreeMap<FileNumber, Found>,
    /// All that any batch names, also one that is not replayed.
    named: BTreeSet<FileNumber>,
    /// Not all batches could be read that are in the logs: others may be named.
    has_unread: bool,
    /// By family, the newest of them (P3).
    newest: BTreeMap<u32, FileNumber>,
    /// Families of which the first pointer to the newest was met: what follows is in doubt.
    in_doubt: BTreeSet<u32>,
    /// The bytes of a value.
    record: Vec<u8>,
}

/// One of them.
#[derive(Debug)]
struct Found {
    family: u32,
    path: PathBuf,
    /// `None` if not even its header is there.
    blob: Option<Arc<BlobFile>>,
    /// What batches that are replayed point to.
    live: Garbage,
    /// Where the last of that ends.
    end: u64,
}

/// What became of the values of a batch.
#[derive(Debug)]
pub(super) enum Values {
    Whole,
    /// A power loss took one of them; why.
    Lost(String),
    Damaged(Error),
}

/// Whether a record of the log `log` is for a family that still needs it.
pub(super) fn is_needed(store: &Store, log: FileNumber, record: &Record<'_>) -> bool {
    store.families.load().contains_key(&record.cf)
        && store.log_numbers.get(&record.cf).is_none_or(|first| *first <= log)
}

fn pointer(path: &Path, record: &Record<'_>) -> Result<BlobIndex> {
    BlobIndex::decode(record.value)
        .map_err(|error| Error::decode(path, 0, "reading a pointer of the log into a blob file", error))
}

impl Pointers {
    /// Takes notice of the files that a batch of the log `log`, at `path`, points to: for P3, before any is followed.
    pub(super) fn notice(&mut self, store: &Store, log: FileNumber, path: &Path, batch: &[u8]) -> Result<()> {
        // What does not decode is told by who checks the batch.
        for record in write_batch::records(batch).map_while(std::result::Result::ok) {
            if record.kind != ValueKind::BlobIndex {
                continue;
            }
            let is_needed = is_needed(store, log, &record);
            match pointer(path, &record) {
                Ok(index) => {
                    self.named.insert(index.file);
                    if is_needed {
                        let newest = self.newest.entry(record.cf).or_default();
                        *newest = (*newest).max(index.file);
                    }
                }
                Err(error) if is_needed => return Err(error),
                Err(_) => self.has_unread = true,
            }
        }
        Ok(())
    }

    /// Takes notice of how a log ends.
    pub(super) fn notice_end(&mut self, is_clean: bool) {
        self.has_unread |= !is_clean;
    }

    /// Whether no log leads to the blob file, nor could.
    pub(super) fn is_nobodys(&self, file: FileNumber) -> bool {
        !self.has_unread && !self.named.contains(&file)
    }

    /// Follows the pointers of a batch; if all lead somewhere, counts them.
    pub(super) fn follow(&mut self, store: &Store, log: FileNumber, path: &Path, batch: &[u8]) -> Result<Values> {
        let mut led_to = Vec::new();
        for record in write_batch::records(batch) {
            let record = record.map_err(|error| Error::decode(path, 0, "reading a batch of the log", error))?;
            if record.kind != ValueKind::BlobIndex || !is_needed(store, log, &record) {
                continue;
            }
            let index = pointer(path, &record)?;
            match self.follow_one(store, &record, &index)? {
                Values::Whole => led_to.push((index, record.key.len())),
                other => return Ok(other),
            }
        }
        for (index, key_bytes) in led_to {
            if let Some(found) = self.files.get_mut(&index.file) {
                found.live.add(1, accounted_bytes(&index, key_bytes));
                found.end = found.end.max(index.offset.saturating_add(index.bytes));
            }
        }
        Ok(Values::Whole)
    }

    fn follow_one(&mut self, store: &Store, record: &Record<'_>, index: &BlobIndex) -> Result<Values> {
        let family = store.family(record.cf);
        let view = family.as_ref().map(|family| family.view.load());
        if let Some(blob) = view.as_ref().and_then(|view| view.version.blobs().get(&index.file)) {
            return Ok(blob.file.extent(record.key, index).map_or_else(Values::Damaged, |_| Values::Whole));
        }
        let found = match self.files.entry(index.file) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => match Found::open(store, record.cf, index.file)? {
                Ok(found) => place.insert(found),
                Err(damage) => return Ok(Values::Damaged(damage)),
            },
        };
        let Some(blob) = &found.blob else {
            return Ok(Values::Lost(format!("not even the header of {} is there", found.path.display())));
        };
        if found.family != record.cf {
            let reason = format!("the logs of column families {} and {} point here", found.family, record.cf);
            return Ok(Values::Damaged(Error::corruption(&found.path, 0, reason)));
        }
        if self.newest.get(&record.cf).is_none_or(|newest| *newest <= index.file) {
            self.in_doubt.insert(record.cf);
        }
        let may_be_lost = self.in_doubt.contains(&record.cf);
        let end = index.offset.saturating_add(index.bytes);
        if end > blob.records_end() {
            let reason = format!(
                "{} ends at {}, before the value at {}",
                found.path.display(),
                blob.records_end(),
                index.offset
            );
            return Ok(match may_be_lost {
                true => Values::Lost(reason),
                false => Values::Damaged(Error::corruption(&found.path, index.offset, reason)),
            });
        }
        if !may_be_lost {
            return Ok(blob.extent(record.key, index).map_or_else(Values::Damaged, |_| Values::Whole));
        }
        match blob.read_stored(record.key, index, &mut self.record) {
            Ok(_) => Ok(Values::Whole),
            Err(error) if error.kind() != ErrorKind::Corruption => Err(error),
            Err(error) => {
                let start = index.record_offset(record.key.len()).unwrap_or(index.offset);
                let is_lost = has_lost_sector(blob, start, end)?;
                Ok(if is_lost { Values::Lost(error.to_string()) } else { Values::Damaged(error) })
            }
        }
    }

    /// Whether a batch that is replayed points into one of them.
    pub(super) fn has_led_to_any(&self) -> bool {
        self.files.values().any(|found| found.live.count > 0)
    }

    /// Leads readers of `view`, of a store open for reading, to the files.
    pub(super) fn show_to(&self, family: u32, view: &View, trash: &Arc<Trash>) {
        for found in self.files.values().filter(|found| found.family == family && found.live.count > 0) {
            if let Some(blob) = &found.blob {
                view.active.blobs.add_found(blob.clone(), found.path.clone(), trash);
            }
        }
    }

    /// Makes the files whole (P4); returns them by family, for its version. Nothing of the logs was replayed yet.
    pub(super) fn take_over(&self, store: &Store) -> Result<BTreeMap<u32, Edit>> {
        let mut edits: BTreeMap<u32, Edit> = BTreeMap::new();
        // After a failed sync they may show what is not on the disk; the logs are replayed into new files in any case.
        let is_distrusted = distrust::is_warned(&*store.env.files, &store.dir)?;
        for (&number, found) in self.files.iter().filter(|(_, found)| found.live.count > 0) {
            let Some(blob) = &found.blob else { continue };
            let total_bytes = found.end.saturating_sub(HEADER_BYTES as u64);
            let unused_bytes = total_bytes.saturating_sub(found.live.bytes);
            // Only where batches were skipped, that is in mode SkipCorrupt. The count ends where a record's header is damaged.
            let unused_count = match unused_bytes {
                0 => 0,
                _ => count_records(blob, found.end)?.saturating_sub(found.live.count).max(1),
            };
            let total_count = found.live.count.saturating_add(unused_count);
            if is_distrusted {
                distrust::write_anew(&*store.env.files, &found.path)?;
            }
            let file = store.env.files.reopen(&found.path, found.end)?;
            file.append(&[&BlobFooter { blob_count: total_count }.encode()])?;
            file.sync().inspect_err(|_| {
                // Should that fail too, the error that is told is the worse one.
                let _ = distrust::warn(&*store.env.files, &store.dir);
            })?;
            let file = BlobFile::open(store.open_sealed(&found.path)?, number, found.family)?;
            let addition = BlobFileAddition { number, total_count, total_bytes, ..BlobFileAddition::default() };
            let edit = edits.entry(found.family).or_default();
            edit.blobs.push(BlobHandle::new(addition, file, found.path.clone(), store.trash.clone()));
            if unused_bytes > 0 {
                edit.garbage.insert(number, Garbage { count: unused_count, bytes: unused_bytes });
            }
        }
        Ok(edits)
    }
}

impl Found {
    /// Opens the file; the inner error is damage.
    fn open(store: &Store, family: u32, number: FileNumber) -> Result<std::result::Result<Self, Error>> {
        let path = store.path_of(&FileName::Blob(number));
        let file = match store.env.files.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let reason = "the log points to values in this file, but it is not there; restore it from a backup, or \
                    repair the store, or reopen with recovery mode SkipCorrupt, to go on without them";
                return Ok(Err(Error::corruption(&path, 0, reason)));
            }
            Err(error) => return Err(error.into()),
        };
        let file_bytes = file.len()?;
        let mut raw = [0; HEADER_BYTES];
        let got = file.read_at(0, &mut raw)?;
        let mut found = Self { family, path, blob: None, live: Garbage::default(), end: 0 };
        // A power loss takes whole sectors: of the header, all or nothing.
        if got < HEADER_BYTES || raw == [0; HEADER_BYTES] {
            return Ok(Ok(found));
        }
        // The log's pointer says how its value is packed.
        let header = match header::read(&*file, &found.path, || true) {
            Ok(header) if header.column_family_id == family => header,
            Ok(header) => {
                let reason = format!("is of column family {}, the log says {family}", header.column_family_id);
                return Ok(Err(Error::corruption(&found.path, 8, reason)));
            }
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => return Ok(Err(error)),
        };
        found.blob = Some(BlobFile::growing(file, &found.path, number, header.compression, file_bytes));
        Ok(Ok(found))
    }
}

/// Whether a sector with a part of `start..end` was never written (P2).
pub(crate) fn has_lost_sector(blob: &BlobFile, start: u64, end: u64) -> Result<bool> {
    let mut sector = [0; SECTOR_BYTES as usize];
    let mut at = start;
    while at < end {
        let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let wanted = usize::try_from(sector_end - at).unwrap_or(0);
        let Some(part) = sector.get_mut(..wanted) else { break };
        let got = blob.read_raw(at, part)?;
        if part.get(..got).is_some_and(is_zero) {
            return Ok(true);
        }
        at = sector_end;
    }
    Ok(false)
}

/// How many records there are before `end`; what is no record ends the count.
fn count_records(blob: &BlobFile, end: u64) -> Result<u64> {
    let (mut at, mut count) = (HEADER_BYTES as u64, 0);
    let mut raw = [0; RECORD_HEADER_BYTES];
    while at < end {
        let got = blob.read_raw(at, &mut raw)?;
        let header = raw.get(..got).map(BlobRecordHeader::decode).and_then(std::result::Result::ok);
        let Some(bytes) = header.and_then(|header| header.record_bytes()) else { break };
        at = at.saturating_add(bytes);
        count += 1;
    }
    Ok(count)
}
