//! Tables one by one: whole, or what is left of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_format::file_name::FileName;
use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::internal_key::{FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::table::TableProperties;
use esker_format::rocksdb::version_edit::TableMeta;

use super::blobs::Blobs;
use super::survey::is_damage;
use super::workshop::Bench;
use crate::iterate::InternalIterator;
use crate::memtable::Memtable;
use crate::table::{Table, salvage, taken_in_with};
use crate::version::Garbage;
use crate::{Error, Result};

/// A table that counts.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) number: FileNumber,
    pub(super) path: PathBuf,
    /// The level that the manifest says.
    pub(super) level: Option<usize>,
    /// The same of its epoch; 0 if it has none.
    pub(super) epoch: u64,
    pub(super) meta: TableMeta,
    /// By blob file, what it points to.
    pub(super) refs: BTreeMap<FileNumber, Garbage>,
    pub(super) contents: Contents,
}

#[derive(Debug)]
pub(super) enum Contents {
    /// It can stay as it is.
    Whole(Arc<Table>),
    /// It points to values that are lost or have to move.
    Dangling(Arc<Table>),
    /// What could be read.
    Salvaged(Arc<Memtable>),
}

/// A table and its family; `None` if nothing in it can be used.
pub(super) type Vetted = Option<(u32, Source)>;

/// What one pass gathers.
#[derive(Debug, Default)]
struct Pass {
    smallest: Option<Vec<u8>>,
    largest: Vec<u8>,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
    refs: BTreeMap<FileNumber, Garbage>,
    is_dangling: bool,
}

impl Pass {
    fn take(&mut self, (blobs, family): (&Blobs, u32), path: &Path, key: &[u8], value: &[u8]) -> Result<()> {
        self.smallest.get_or_insert_with(|| key.to_vec());
        self.largest.clear();
        self.largest.extend_from_slice(key);
        let doing = "reading an entry";
        let parsed = InternalKey::decode(key).map_err(|error| Error::decode(path, 0, doing, error))?;
        let (low, high) = self.sequences.unwrap_or((parsed.sequence, parsed.sequence));
        self.sequences = Some((low.min(parsed.sequence), high.max(parsed.sequence)));
        if parsed.kind == ValueKind::BlobIndex {
            let index = BlobIndex::decode(value).map_err(|error| Error::decode(path, 0, doing, error))?;
            self.refs.entry(index.file).or_default().add(1, accounted_bytes(&index, parsed.user_key.len()));
            self.is_dangling |= !blobs.is_whole(family, parsed.user_key, &index)?;
        }
        Ok(())
    }
}

impl Source {
    /// All of it.
    pub(super) fn iter(&self) -> Box<dyn InternalIterator> {
        match &self.contents {
            Contents::Whole(table) | Contents::Dangling(table) => Box::new(table.iter(false)),
            Contents::Salvaged(memtable) => Box::new(memtable.iter()),
        }
    }
}

impl Bench<'_> {
    /// Reads the table `name`; `said` is what the manifest says of it, with its family and level.
    pub(super) fn vet(
        &self,
        name: &FileName,
        number: FileNumber,
        said: Option<(u32, usize, &TableMeta)>,
        damage: &mut Vec<Error>,
        lost_blocks: &mut u64,
    ) -> Result<Vetted> {
        let path = self.dir.join(name.to_string());
        let file = self.files.open(&path)?;
        let file_bytes = file.len()?;
        let newest = said.map(|(_, _, meta)| meta.largest_sequence);
        let mut pass = Pass::default();
        let opened = Table::open_as(file.clone(), number, file_bytes, newest, self.cache.clone()).and_then(|table| {
            let family = said.map_or_else(|| family_of(table.properties()), |(family, ..)| Some(family));
            let of = (self.blobs, family.unwrap_or(0));
            let read = table.check(&mut |key, value| pass.take(of, &path, key, value))?;
            if read.entries == 0 {
                return Err(Error::corruption(&path, 0, "the table has no entries"));
            }
            Ok(table)
        });
        let table = match opened {
            Ok(table) => table,
            Err(error) if is_damage(&error) => {
                damage.push(error);
                return self.salvage(path, number, said, damage, lost_blocks);
            }
            Err(error) => return Err(error),
        };
        let family = said.map_or_else(|| family_of(table.properties()), |(family, ..)| Some(family));
        let Some(family) = family else { return Ok(self.without_family(&path, damage)) };
        let Pass { smallest, largest, sequences, refs, is_dangling } = pass;
        let (smallest_sequence, largest_sequence) = sequences.unwrap_or_default();
        let measured = TableMeta {
            number,
            file_bytes,
            smallest: smallest.unwrap_or_default(),
            largest,
            smallest_sequence,
            largest_sequence,
            tail_bytes: file_bytes.saturating_sub(table.properties().tail_start_offset.min(file_bytes)),
            oldest_blob_file: refs.keys().next().copied(),
            oldest_ancestor_time: table.properties().creation_time,
            file_creation_time: table.properties().creation_time,
            ..TableMeta::default()
        };
        // What the manifest says besides is kept, unless it is of another file.
        let is_same = |meta: &&TableMeta| {
            let bounds = meta.smallest == measured.smallest && meta.largest == measured.largest;
            meta.file_bytes == file_bytes && (bounds || table.taken_in().is_some())
        };
        let meta = said.map(|(_, _, meta)| meta).filter(is_same).cloned();
        let contents = if is_dangling { Contents::Dangling(table) } else { Contents::Whole(table) };
        let (level, epoch) = place_of(said);
        Ok(Some((family, Source { number, path, level, epoch, meta: meta.unwrap_or(measured), refs, contents })))
    }

    fn without_family(&self, path: &Path, damage: &mut Vec<Error>) -> Vetted {
        damage.push(Error::corruption(path, 0, "nothing says of which column family the table is"));
        None
    }

    /// What is whole in a damaged table, in memory.
    fn salvage(
        &self,
        path: PathBuf,
        number: FileNumber,
        said: Option<(u32, usize, &TableMeta)>,
        damage: &mut Vec<Error>,
        lost_blocks: &mut u64,
    ) -> Result<Vetted> {
        let file = self.files.open(&path)?;
        let mut kept: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let salvaged = salvage(&*file, &mut |key, value| {
            kept.push((key.to_vec(), value.to_vec()));
            Ok(())
        });
        let salvaged = match salvaged {
            Ok(salvaged) => salvaged,
            Err(error) if is_damage(&error) => {
                damage.push(error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        *lost_blocks += salvaged.lost_blocks;
        let family = said.map(|(family, ..)| family).or_else(|| salvaged.properties.as_ref().and_then(family_of));
        let Some(family) = family else { return Ok(self.without_family(&path, damage)) };
        let newest = said.map(|(_, _, meta)| meta.largest_sequence);
        let taken_in = salvaged.properties.as_ref().and_then(|properties| taken_in_with(properties, newest));
        let (memtable, mut pass) = (Arc::new(Memtable::new()), Pass::default());
        for (key, value) in &kept {
            let Ok(parsed) = InternalKey::decode(key) else { continue };
            let sequence = taken_in.unwrap_or(parsed.sequence);
            memtable.add(sequence, parsed.kind, parsed.user_key, value);
            let (low, high) = pass.sequences.unwrap_or((sequence, sequence));
            pass.sequences = Some((low.min(sequence), high.max(sequence)));
        }
        let (Some((smallest, _)), Some((largest, _))) = (kept.first(), kept.last()) else { return Ok(None) };
        let (smallest_sequence, largest_sequence) = pass.sequences.unwrap_or_default();
        let (smallest, largest) = (smallest.clone(), largest.clone());
        let meta = TableMeta { number, smallest, largest, smallest_sequence, largest_sequence, ..TableMeta::default() };
        let ((level, epoch), refs) = (place_of(said), BTreeMap::new());
        Ok(Some((family, Source { number, path, level, epoch, meta, refs, contents: Contents::Salvaged(memtable) })))
    }
}

/// Level and epoch of a table of which the manifest says something.
fn place_of(said: Option<(u32, usize, &TableMeta)>) -> (Option<usize>, u64) {
    (said.map(|(_, level, _)| level), said.map_or(0, |(.., meta)| meta.epoch_number))
}

/// The column family that a table says it is of.
pub(super) fn family_of(properties: &TableProperties) -> Option<u32> {
    // Of a table from outside, which may be for any, only the first is likely.
    let id = u32::try_from(properties.column_family_id).unwrap_or(u32::MAX);
    Some(if id > i32::MAX as u32 { 0 } else { id })
}
