//! All column families at one moment, and their files for as long as that is held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{FileNumber, InternalKey, ValueKind};
use esker_format::rocksdb::version_edit::VersionEdit;

use super::Copied;
use super::said::Said;
use crate::family::Family;
use crate::ingest::Guest;
use crate::options::Options;
use crate::store::Store;
use crate::version::{BlobHandle, TableFile, Version};
use crate::{Error, ErrorKind, Result};

/// Memtables are flushed so often, as long as there is more than this in them, before writers have to wait for a flush.
const FLUSHES_MAX: usize = 4;
const MEMORY_BYTES: usize = 1 << 20;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    store: &'a Store,
    /// With the first log that they need: one that holds nothing of this moment.
    families: Vec<(Arc<Family>, Arc<Version>, FileNumber)>,
    family_id_max: u32,
    options: String,
    sequence: u64,
    _no_holes: NoHoles<'a>,
    _guest: Guest<'a>,
}

/// While it is there, no holes are made in blob files.
#[derive(Debug)]
struct NoHoles<'a>(&'a Store);

impl Drop for NoHoles<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.copies -= 1;
        // There may be holes to make that nobody could.
        state.to_compact.extend(self.0.families.load().keys());
        drop(state);
        self.0.changed.notify_all();
    }
}

/// One of the files.
#[derive(Debug)]
pub(super) enum Member<'a> {
    Table(&'a TableFile),
    /// Of which column family, and whether some of its values are dead.
    Blob(&'a BlobHandle, u32, bool),
}

impl Store {
    /// What is written now (C1): writers wait for a flush of what came while memtables were flushed without them waiting.
    pub(super) fn this_moment(&self) -> Result<Moment<'_>> {
        let guest = self.enter()?;
        self.state.lock().copies += 1;
        let no_holes = NoHoles(self);
        for _ in 0..FLUSHES_MAX {
            let families = self.families.load_full();
            let in_memory = |family: &Arc<Family>| {
                let view = family.view.load();
                view.generations().map(|generation| generation.memtable.allocated_bytes()).sum::<usize>()
            };
            let full = families.values().filter(|family| in_memory(family) > MEMORY_BYTES);
            let full: Vec<u32> = full.map(|family| family.id).collect();
            if full.is_empty() {
                break;
            }
            self.flush(&full)?;
        }
        self.alone(|lead| {
            self.check_takes_writes()?;
            let families = self.families.load_full();
            let ids: Vec<u32> = families.keys().copied().collect();
            self.state.lock().flush_error = None;
            let sealed = self.seal_for_flush(lead, &ids)?;
            sealed.iter().try_for_each(|(family, generation)| self.wait_for_flush(family, generation))?;
            let whole = |family: &Arc<Family>| {
                let view = family.view.load();
                if view.generations().any(|generation| !generation.memtable.is_empty()) {
                    let reason = "a column family is not flushed whole; report it";
                    return Err(Error::new(ErrorKind::Busy, reason).with_path(&self.dir));
                }
                Ok((family.clone(), view.version.clone(), lead.wal_number))
            };
            Ok(Moment {
                store: self,
                families: families.values().map(whole).collect::<Result<_>>()?,
                family_id_max: self.installer.lock().family_id_max,
                // Which has no logs, and would have its own beside its tables.
                options: crate::options::print(
                    &Options { wal_dir: None, ..(**self.options()).clone() },
                    &families,
                    &self.foreign_options,
                ),
                sequence: self.visible().get(),
                _no_holes: no_holes,
                _guest: guest,
            })
        })
    }
}

impl Moment<'_> {
    /// Tables and blob files of all families.
    pub(super) fn members(&self) -> impl Iterator<Item = Member<'_>> {
        self.families.iter().flat_map(|(family, version, _)| {
            let has_garbage =
                |blob: &BlobHandle| version.ledger().get(blob.number()).is_some_and(|usage| usage.garbage_count > 0);
            let tables = version.tables().map(|(_, table)| Member::Table(table));
            tables.chain(version.blobs().values().map(move |blob| Member::Blob(blob, family.id, has_garbage(blob))))
        })
    }

    /// Refuses the moment if a table points into a blob file that it does not have: all values behind that are lost.
    pub(super) fn refuse_missing_blobs(&self) -> Result<()> {
        for (_, version, _) in &self.families {
            let is_missing = |file: &FileNumber| !version.blobs().contains_key(file);
            for (_, table) in version.tables() {
                let missing = match table.known_blob_refs() {
                    Some(refs) => refs.keys().copied().find(is_missing),
                    None => table.meta.oldest_blob_file.filter(is_missing),
                };
                if let Some(file) = missing {
                    let reason = format!("it points into blob file {file}, which the manifest does not name");
                    return Err(Error::corruption(table.table.path(), 0, reason));
                }
            }
        }
        Ok(())
    }

    /// Refuses the moment if a value that lives begins in what was `passed_over` of its blob files: a hole is in none, so it is damaged.
    pub(super) fn refuse_lost_values(&self, passed_over: &BTreeMap<FileNumber, Vec<Range<u64>>>) -> Result<()> {
        let files: BTreeSet<FileNumber> = passed_over.keys().copied().collect();
        for (_, version, _) in &self.families {
            for (_, table) in version.tables().filter(|(_, table)| table.may_point_into(&files)) {
                self.store.check_open()?;
                table.table.check(&mut |key, value| {
                    let path = table.table.path();
                    let key =
                        InternalKey::decode(key).map_err(|error| Error::decode(path, 0, "reading a key", error))?;
                    if key.kind != ValueKind::BlobIndex {
                        return Ok(());
                    }
                    let index = BlobIndex::decode(value)
                        .map_err(|error| Error::decode(path, 0, "reading a pointer into a blob file", error))?;
                    let ranges = passed_over.get(&index.file).map_or(&[][..], Vec::as_slice);
                    let behind = ranges.partition_point(|range| range.end <= index.offset);
                    match ranges.get(behind).filter(|range| range.contains(&index.offset)) {
                        Some(range) => {
                            let path = self.store.path_of(&FileName::Blob(index.file));
                            Err(Error::corruption(&path, range.start, "a value that lives has lost sectors"))
                        }
                        None => Ok(()),
                    }
                })?;
            }
        }
        Ok(())
    }

    /// The manifest of a store that is just this.
    pub(super) fn edits(&self) -> Vec<VersionEdit> {
        self.store.edits_of(&self.families, self.family_id_max)
    }

    /// Its OPTIONS file.
    pub(super) fn options(&self) -> &str {
        &self.options
    }

    /// `copied`, with what is the same for all copies of this.
    pub(super) fn describe(&self, copied: Copied) -> Copied {
        let files = self.members().count() as u64;
        let bytes = self.members().map(|member| member.bytes()).sum();
        Copied { files, bytes, sequence: self.sequence, ..copied }
    }
}

impl Member<'_> {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Table(table) => table.table.path(),
            Self::Blob(blob, ..) => blob.file.path(),
        }
    }

    /// Its name in any directory.
    pub(super) fn name(&self) -> &str {
        self.path().file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Table(table) => table.meta.file_bytes,
            Self::Blob(blob, ..) => blob.file.file_bytes(),
        }
    }

    /// Whether dead parts of it may read as zeroes.
    pub(super) fn may_have_holes(&self) -> bool {
        matches!(self, Self::Blob(_, _, true))
    }

    /// Its number, if it is a blob file.
    pub(super) fn blob_number(&self) -> Option<FileNumber> {
        match self {
            Self::Table(_) => None,
            Self::Blob(blob, ..) => Some(blob.number()),
        }
    }

    /// What the store says of it.
    pub(super) fn said(&self) -> Said {
        match self {
            Self::Table(table) => Said::of_table(&table.meta),
            Self::Blob(blob, family_id, has_garbage) => {
                Said::Blob { number: blob.number(), family_id: *family_id, has_garbage: *has_garbage }
            }
        }
    }
}
