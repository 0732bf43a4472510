//! Tables one by one: whole, or what is left of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::ReadFile;
use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;
use esker_format::rocksdb::table::TableProperties;
use esker_format::rocksdb::version_edit::TableMeta;

use super::AsideReason;
use super::blobs::Blobs;
use super::identity::STRANGER;
use super::rewrite::{Age, Run, readable};
use super::survey::is_damage;
use super::wanted::{Said, Wanted};
use super::workshop::Bench;
use crate::memtable::Memtable;
use crate::output::FIRST_LOG_PROPERTY;
use crate::range_deletions::{RangeDeletion, widen};
use crate::table::{Remains, Salvaged, Table, TableCheck, taken_in_with};
use crate::version::{Garbage, range_deletions_within};
use crate::{Error, ErrorKind, Result};

/// A table that counts.
#[derive(Debug)]
pub(super) struct Source {
    /// Its own, by which it is newer than others: its file may have another.
    pub(super) number: FileNumber,
    pub(super) path: PathBuf,
    /// Of its keys.
    pub(super) order: Order,
    /// The level that the manifest says.
    pub(super) level: Option<usize>,
    /// The same of its epoch; 0 if it has none.
    pub(super) epoch: u64,
    pub(super) meta: TableMeta,
    /// By blob file, what it points to.
    pub(super) refs: BTreeMap<FileNumber, Garbage>,
    pub(super) contents: Contents,
    /// What it says of logs, if it does: see [`flushed`](super::flushed).
    pub(super) logs: Option<FirstLog>,
    /// It was taken in from outside, and nothing says when: see [`date`].
    pub(super) is_undated: bool,
    /// What was read of it, if it is whole.
    pub(super) checked: TableCheck,
    /// Entries of it, if it is whole, whose value cannot be read anywhere.
    pub(super) lost_values: u64,
}

/// Before which log all was in tables, of the store that the table is of.
#[derive(Debug)]
pub(super) struct FirstLog {
    db_id: String,
    log: FileNumber,
}

impl FirstLog {
    fn of(properties: &TableProperties) -> Option<Self> {
        let log = FileNumber::new(properties.number(FIRST_LOG_PROPERTY)?);
        Some(Self { db_id: properties.db_id.clone(), log })
    }
}

#[derive(Debug)]
pub(super) enum Contents {
    /// It can stay as it is.
    Whole(Arc<Table>),
    /// It points to values that are lost or have to move.
    Dangling(Arc<Table>),
    /// What can be read.
    Salvaged(Wreck),
}

/// A table and its family, if anything says which that is; else why nothing in it is used.
pub(super) type Vetted = std::result::Result<(Option<u32>, Source), AsideReason>;

/// What one pass gathers.
#[derive(Debug, Default)]
struct Pass {
    smallest: Option<Vec<u8>>,
    largest: Vec<u8>,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
    refs: BTreeMap<FileNumber, Garbage>,
    is_dangling: bool,
    lost_values: u64,
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
            if !blobs.is_whole(family, parsed.user_key, &index)? {
                self.is_dangling = true;
                self.lost_values += u64::from(!blobs.is_readable(family, parsed.user_key, &index)?);
            }
        }
        Ok(())
    }
}

/// A damaged table.
#[derive(Debug)]
pub(super) struct Wreck {
    file: Arc<dyn ReadFile>,
    /// Of its keys.
    order: Order,
    /// The sequence numbers in it, as a manifest says.
    said: Option<(SequenceNumber, SequenceNumber)>,
    /// That of entries that have none, if nobody knows it.
    undated: SequenceNumber,
}

/// Takes an entry, with its sequence number; an error ends the read.
type VisitEntry<'a> = dyn FnMut(SequenceNumber, &InternalKey<'_>, &[u8]) -> Result<()> + 'a;

impl Wreck {
    /// Shows every entry that is whole to `visit`.
    /// The range deletions that it returns are those of this table, with their numbers.
    fn read(&self, visit: &mut VisitEntry<'_>) -> Result<Salvaged> {
        let remains = Remains::open(&*self.file)?;
        let of_all = remains.properties().and_then(|properties| {
            taken_in_with(properties, Some(self.said.map_or(self.undated, |(_, newest)| newest)))
        });
        // Without properties: entries with no number of their own are those of a table that was taken in, if the manifest knows one for all.
        let of_none = self.said.filter(|(oldest, newest)| remains.properties().is_none() && oldest == newest);
        let dated = |sequence: SequenceNumber| match (of_all, of_none) {
            (Some(of_all), _) => of_all,
            (_, Some((_, of_none))) if sequence.get() == 0 => of_none,
            _ => sequence,
        };
        // What has another is no entry of this table, whatever its checksum says.
        let fits =
            |sequence: SequenceNumber| self.said.is_none_or(|(oldest, newest)| (oldest..=newest).contains(&sequence));
        let mut salvaged = remains.read(self.order, &mut |key, value| {
            let Ok(parsed) = InternalKey::decode(key) else { return Ok(()) };
            let sequence = dated(parsed.sequence);
            if fits(sequence) {
                visit(sequence, &parsed, value)?;
            }
            Ok(())
        })?;
        let mut ranges = std::mem::take(&mut salvaged.range_deletions).into_vec();
        ranges.iter_mut().for_each(|range| range.sequence = dated(range.sequence));
        ranges.retain(|range| fits(range.sequence));
        salvaged.range_deletions = ranges.into();
        Ok(salvaged)
    }

    /// Every entry that is whole, in memory.
    pub(super) fn to_memtable(&self) -> Result<Arc<Memtable>> {
        let memtable = Arc::new(Memtable::new(self.order));
        let salvaged = self.read(&mut |sequence, key, value| {
            memtable.add(sequence, key.kind, key.user_key, value);
            Ok(())
        })?;
        salvaged.range_deletions.into_iter().for_each(|range| memtable.add_range_deletion(range));
        Ok(memtable)
    }
}

impl Source {
    /// All of it. Of a damaged table, read anew into memory: it is there only while somebody needs it.
    pub(super) fn run(&self) -> Result<Run> {
        Ok(match &self.contents {
            Contents::Whole(table) | Contents::Dangling(table) => {
                let range_deletions = range_deletions_within(self.order, &self.meta, table.range_deletions());
                Run {
                    age: self.age(),
                    entries: Box::new(table.iter(false)),
                    range_deletions: vec![Arc::new(range_deletions)],
                }
            }
            Contents::Salvaged(wreck) => Run::of_memtable(self.age(), &wreck.to_memtable()?),
        })
    }

    /// Whether it was opened, and so says itself what it is.
    pub(super) fn is_readable(&self) -> bool {
        !matches!(self.contents, Contents::Salvaged(_))
    }

    /// Why it is not used any more, should it be written again.
    pub(super) fn reason(&self) -> AsideReason {
        match &self.contents {
            Contents::Whole(_) | Contents::Dangling(_) => AsideReason::Replaced,
            Contents::Salvaged(_) => AsideReason::Damaged,
        }
    }

    /// Before which log all was in tables, as it says of the store `db_id`.
    pub(super) fn first_log(&self, db_id: &str) -> Option<FileNumber> {
        self.logs.as_ref().filter(|said| said.db_id == db_id).map(|said| said.log)
    }

    pub(super) fn age(&self) -> Age {
        Age { is_undated: self.is_undated, number: self.number }
    }

    fn set_date(&mut self, sequence: SequenceNumber) -> Result<()> {
        (self.meta.smallest_sequence, self.meta.largest_sequence) = (sequence, sequence);
        match &mut self.contents {
            Contents::Salvaged(wreck) => wreck.undated = sequence,
            Contents::Whole(table) | Contents::Dangling(table) => match Arc::get_mut(table) {
                Some(table) => table.take_in(sequence),
                None => return Err(Error::new(ErrorKind::Busy, "a table is held by somebody else; report it")),
            },
        }
        Ok(())
    }
}

/// Gives those tables of a family a sequence number that have none and of which nothing says it: the last of any table with a lower number.
/// Before a table is taken in, what was written is flushed where their keys meet, and a number is given to no second file. So it is newer
/// than all entries up to that one ([`Age`]), and what else there is was written later; or it was compacted later, which nobody can tell.
pub(super) fn date(sources: &mut [Source]) -> Result<()> {
    sources.sort_by_key(|source| source.number);
    let mut newest = SequenceNumber::default();
    for source in sources {
        if source.is_undated {
            source.set_date(newest)?;
        }
        newest = newest.max(source.meta.largest_sequence);
    }
    Ok(())
}

impl Bench<'_> {
    /// Reads a table.
    pub(super) fn vet(
        &self,
        Wanted { name, number, said }: Wanted<'_>,
        damage: &mut Vec<Error>,
        lost_blocks: &mut u64,
    ) -> Result<Vetted> {
        let path = self.dir.join(name.to_string());
        let file = self.files.open(&path)?;
        let file_bytes = file.len()?;
        let newest = said.map(|said| said.meta.largest_sequence);
        let own_family = family_of;
        let family_of =
            |properties: &TableProperties| said.map_or_else(|| own_family(properties), |said| Some(said.family));
        let mut pass = Pass::default();
        let opened =
            Table::open_as(file.clone(), file_bytes, &self.orders, newest, self.cache.clone()).and_then(|table| {
                let family = family_of(table.properties());
                let of = (self.blobs, family.unwrap_or(0));
                let read = table.check(&mut |key, value| pass.take(of, &path, key, value))?;
                if read.entries == 0 && table.range_deletions().is_empty() {
                    return Err(Error::corruption(&path, 0, "the table has no entries"));
                }
                Ok((table, read))
            });
        let (table, checked) = match opened {
            Ok(whole) => whole,
            Err(error) if is_damage(&error) => {
                damage.push(error);
                return self.salvage(path, (name.number().unwrap_or(number), number), said, damage, lost_blocks);
            }
            Err(error) => return Err(error),
        };
        let family = family_of(table.properties());
        let Pass { smallest, largest, sequences, refs, is_dangling, lost_values } = pass;
        let ranges = table.range_deletions();
        let (mut smallest, mut largest) = (smallest.unwrap_or_default(), largest);
        let (order, entries) = (table.order(), (smallest.clone(), largest.clone()));
        widen(order, &mut smallest, &mut largest, ranges);
        let of_ranges = ranges.iter().map(|range| (range.sequence, range.sequence));
        let sequences = of_ranges.chain(sequences).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (smallest_sequence, largest_sequence) = sequences.unwrap_or_default();
        let number_of_file = name.number().unwrap_or(number);
        let measured = TableMeta {
            number: number_of_file,
            file_bytes,
            smallest,
            largest,
            smallest_sequence,
            largest_sequence,
            tail_bytes: file_bytes.saturating_sub(table.properties().tail_start_offset.min(file_bytes)),
            oldest_blob_file: refs.keys().next().copied(),
            oldest_ancestor_time: table.properties().creation_time,
            file_creation_time: table.properties().creation_time,
            unique_id: table.properties().unique_id(),
            ..TableMeta::default()
        };
        let has_bounds = |meta: &TableMeta| {
            // RocksDB cuts range deletions there when it reads them, but nothing else. Its own repair writes bounds by another order than the keys may have.
            let holds_entries = entries.1.is_empty()
                || (order.compare_internal(&meta.smallest, &entries.0).is_le()
                    && order.compare_internal(&entries.1, &meta.largest).is_le());
            let reaches = |bound: &[u8]| {
                let user_key = internal_key::user_key(bound);
                !order.is_before(user_key, internal_key::user_key(&measured.smallest))
                    && !order.is_before(internal_key::user_key(&measured.largest), user_key)
            };
            match ranges.is_empty() {
                true => meta.smallest == measured.smallest && meta.largest == measured.largest,
                false => holds_entries && reaches(&meta.smallest) && reaches(&meta.largest),
            }
        };
        let is_as_said = |meta: &TableMeta| table.taken_in().is_some() || has_bounds(meta);
        // Where ids do not tell. Whose bounds are others need not be another table.
        let is_stranger = said.is_some_and(|Said { family, meta, .. }| {
            let properties = table.properties();
            let sequences = meta.smallest_sequence..=meta.largest_sequence;
            let is_outside = |sequence| !sequences.contains(&sequence);
            let says_so = own_family(properties).is_some_and(|own| own != family)
                || ![0, meta.number.get()].contains(&properties.original_file_number)
                || !sequences.is_empty() && (is_outside(smallest_sequence) || is_outside(largest_sequence));
            meta.unique_id.is_none() && (meta.file_bytes != file_bytes || says_so && !is_as_said(meta))
        });
        if is_stranger {
            damage.push(Error::corruption(&path, 0, STRANGER));
            return Ok(Err(AsideReason::Unused));
        }
        // What the manifest says besides is kept.
        let of_manifest =
            said.filter(|said| said.level.is_some() && said.meta.file_bytes == file_bytes && is_as_said(said.meta));
        let meta = of_manifest.map(|said| TableMeta { number: number_of_file, ..said.meta.clone() });
        let is_undated = newest.is_none() && table.taken_in() == Some(SequenceNumber::default());
        let logs = FirstLog::of(table.properties());
        let contents = if is_dangling { Contents::Dangling(table) } else { Contents::Whole(table) };
        let (level, epoch) = place_of(said);
        let meta = meta.unwrap_or(measured);
        let source =
            Source { number, path, order, level, epoch, meta, refs, contents, logs, is_undated, checked, lost_values };
        Ok(Ok((family, source)))
    }

    /// What is whole in a damaged table.
    fn salvage(
        &self,
        path: PathBuf,
        (number_of_file, number): (FileNumber, FileNumber),
        said: Option<Said<'_>>,
        damage: &mut Vec<Error>,
        lost_blocks: &mut u64,
    ) -> Result<Vetted> {
        let range = said.map(|said| (said.meta.smallest_sequence, said.meta.largest_sequence));
        // Old releases of RocksDB say nothing.
        let range = range.filter(|(oldest, newest)| oldest <= newest);
        let file = self.files.open(&path)?;
        // What was cut or grew has lost its end, with what leads to the rest; or it is another table, which cannot say so.
        if said.is_some_and(|said| file.len().is_ok_and(|bytes| bytes != said.meta.file_bytes)) {
            return Ok(Err(AsideReason::Damaged));
        }
        let order = self.order_of_wreck(&*file, said.map(|said| said.family))?;
        let wreck = Wreck { file, order, said: range, undated: SequenceNumber::default() };
        let mut meta =
            TableMeta { number: number_of_file, smallest_sequence: SequenceNumber::MAX, ..TableMeta::default() };
        let salvaged = wreck.read(&mut |sequence, key, value| {
            if key.kind == ValueKind::BlobIndex {
                readable(key.user_key, value)?;
            }
            meta.largest.clear();
            internal_key::append(&mut meta.largest, key.user_key, sequence, key.kind);
            if meta.smallest.is_empty() {
                meta.smallest.clone_from(&meta.largest);
            }
            meta.smallest_sequence = meta.smallest_sequence.min(sequence);
            meta.largest_sequence = meta.largest_sequence.max(sequence);
            Ok(())
        });
        let salvaged = match salvaged {
            Ok(salvaged) => salvaged,
            Err(error) if is_damage(&error) => {
                damage.push(error);
                return Ok(Err(AsideReason::Damaged));
            }
            Err(error) => return Err(error),
        };
        *lost_blocks += salvaged.lost_blocks;
        widen(order, &mut meta.smallest, &mut meta.largest, &salvaged.range_deletions);
        for RangeDeletion { sequence, .. } in &salvaged.range_deletions {
            meta.smallest_sequence = meta.smallest_sequence.min(*sequence);
            meta.largest_sequence = meta.largest_sequence.max(*sequence);
        }
        let family = said.map(|said| said.family).or_else(|| salvaged.properties.as_ref().and_then(family_of));
        if meta.largest.is_empty() {
            return Ok(Err(AsideReason::Damaged));
        }
        let taken_in = salvaged.properties.as_ref().and_then(|properties| taken_in_with(properties, None));
        let is_undated = said.is_none() && taken_in == Some(SequenceNumber::default());
        let ((level, epoch), refs) = (place_of(said), BTreeMap::new());
        let (contents, logs) = (Contents::Salvaged(wreck), salvaged.properties.as_ref().and_then(FirstLog::of));
        let (checked, lost_values) = (TableCheck::default(), 0);
        let source =
            Source { number, path, order, level, epoch, meta, refs, contents, logs, is_undated, checked, lost_values };
        Ok(Ok((family, source)))
    }
}

impl Bench<'_> {
    /// The order of a damaged table's keys: what it says itself, else what is known of its family; by bytes if nobody knows.
    fn order_of_wreck(&self, file: &dyn ReadFile, family: Option<u32>) -> Result<Order> {
        let properties = match Remains::open(file) {
            Ok(remains) => remains.properties().cloned(),
            Err(error) if is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        let of_family = || family.and_then(|family| self.comparators.get(&family)).map_or("", String::as_str);
        self.orders.named(properties.as_ref().map_or_else(of_family, |properties| &properties.comparator))
    }
}

/// Level and epoch of a table of which the manifest says something.
fn place_of(said: Option<Said<'_>>) -> (Option<usize>, u64) {
    let of_manifest = said.and_then(|said| Some((said.level?, said.meta.epoch_number)));
    (of_manifest.map(|(level, _)| level), of_manifest.map_or(0, |(_, epoch)| epoch))
}

/// The column family that a table says it is of. One from outside may be for any.
pub(super) fn family_of(properties: &TableProperties) -> Option<u32> {
    u32::try_from(properties.column_family_id).ok().filter(|id| *id < i32::MAX as u32)
}
