//! Entries of several runs as one, with every value in its place: what is kept is written to new tables.
//!
//! - R1: of entries with one key and sequence number one stays: that of the younger file ([`Age`]), unless its value is lost.
//! - R2: a pointer into a sound blob file stays. A value in another is moved. A value that is lost becomes a deletion (P5).
//!   A range deletion of a file without numbers hides those of an older file that have its number, which is that of the last of them.
//! - R3: of entries of a key that point to one place, whatever lies between them, the newest stays: compactions have made one of the other.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use esker_format::DecodeErrorKind;
use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

use super::blobs::Blobs;
use super::{DbRepair, LostKey};
use crate::Result;
use crate::blob::BlobFile;
use crate::entry;
use crate::family::Family;
use crate::iterate::InternalIterator;
use crate::memtable::Memtable;
use crate::output::Outputs;
use crate::range_deletions::Fragments;
use crate::store::Store;
use crate::version::{Garbage, TableFile};

/// A sorted run, and how young the file is that it came from.
pub(super) struct Run {
    pub(super) age: Age,
    pub(super) entries: Box<dyn InternalIterator>,
    pub(super) range_deletions: Vec<Arc<Fragments>>,
}

impl Run {
    pub(super) fn of_memtable(age: Age, memtable: &Arc<Memtable>) -> Self {
        Self {
            age,
            entries: Box::new(memtable.iter()),
            range_deletions: memtable.range_deletions().seen_by(SequenceNumber::MAX),
        }
    }
}

/// How young a file is, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    /// Its entries have no number of their own but that of the last one before it ([`date`](super::tables::date)).
    pub(super) is_undated: bool,
    pub(super) number: FileNumber,
}

impl Age {
    pub(super) const fn of(number: FileNumber) -> Self {
        Self { is_undated: false, number }
    }
}

/// New tables.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) tables: Vec<(usize, Arc<TableFile>)>,
    /// By blob file, what they point to.
    pub(super) refs: BTreeMap<FileNumber, Garbage>,
}

/// Where a run stands.
struct Head {
    order: Order,
    key: Vec<u8>,
    age: Age,
    run: usize,
}

impl Head {
    fn place(&self) -> (&[u8], u64) {
        (internal_key::user_key(&self.key), internal_key::tag(&self.key) >> 8)
    }
}

impl Ord for Head {
    /// The greatest comes first: the smallest key, the newest of its entries, the youngest file.
    fn cmp(&self, other: &Self) -> Ordering {
        let ((key, sequence), (other_key, other_sequence)) = (self.place(), other.place());
        let keys = self.order.compare(other_key, key).then(sequence.cmp(&other_sequence));
        keys.then(self.age.cmp(&other.age)).then(other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// What becomes of an entry.
enum Fate {
    Stays,
    Moves(Arc<BlobFile>, BlobIndex),
    Lost(FileNumber),
}

/// Writes the entries of `runs` to tables of `level`. With `separates`, large values go to blob files, as by a flush.
pub(super) fn rewrite(
    store: &Store,
    family: &Arc<Family>,
    blobs: &mut Blobs,
    runs: Vec<Run>,
    level: usize,
    separates: bool,
    report: &mut DbRepair,
) -> Result<Rewritten> {
    let undated: Vec<(Age, Arc<Fragments>)> = runs
        .iter()
        .filter(|run| run.age.is_undated)
        .flat_map(|run| run.range_deletions.iter().map(|some| (run.age, some.clone())))
        .collect();
    let ranges: Vec<_> = runs.iter().flat_map(|run| &run.range_deletions).flat_map(|some| some.ranges()).collect();
    let mut outputs =
        Outputs::new(store, family, level, separates).with_range_deletions(Fragments::of(family.order, &ranges));
    let mut refs: BTreeMap<FileNumber, Garbage> = BTreeMap::new();
    let (mut ages, mut runs): (Vec<_>, Vec<_>) = runs.into_iter().map(|run| (run.age, run.entries)).unzip();
    let mut heads = BinaryHeap::new();
    for (run, (iterator, age)) in runs.iter_mut().zip(ages.drain(..)).enumerate() {
        iterator.seek_to_first()?;
        if iterator.valid() {
            heads.push(Head { order: family.order, key: iterator.key().to_vec(), age, run });
        }
    }
    // Of the entry that was written last.
    let mut settled: Option<(Vec<u8>, u64)> = None;
    // Where entries of its key point to.
    let mut pointed: BTreeSet<(FileNumber, u64)> = BTreeSet::new();
    while let Some(mut head) = heads.pop() {
        let Some(iterator) = runs.get_mut(head.run) else { continue };
        let is_settled = settled.as_ref().is_some_and(|(key, sequence)| (key.as_slice(), *sequence) == head.place());
        if !is_settled {
            let key = InternalKey::decode(&head.key).map_err(|error| entry::unreadable_key(&head.key, error))?;
            let is_last = heads.peek().is_none_or(|next| next.place() != head.place());
            let value = iterator.value();
            let fate = fate(blobs, family.id, &key, value)?;
            if settled.as_ref().is_none_or(|(settled, _)| settled != key.user_key) {
                pointed.clear();
            }
            let mut is_written = true;
            match fate {
                _ if is_hidden(&undated, head.age, &key) => is_written = false,
                Fate::Stays if key.kind == ValueKind::BlobIndex => {
                    let index = entry::pointer(key.user_key, value)?;
                    if pointed.insert((index.file, index.offset)) {
                        outputs.add(&key, &head.key, value)?;
                        let bytes = accounted_bytes(&index, key.user_key.len());
                        refs.entry(index.file).or_default().add(1, bytes);
                    }
                }
                Fate::Stays => outputs.add(&key, &head.key, value)?,
                Fate::Moves(file, index) => {
                    if pointed.insert((index.file, index.offset)) {
                        outputs.add_moved(&key, &index, &file)?;
                    }
                }
                // A file that is older may have it.
                Fate::Lost(_) if !is_last => is_written = false,
                Fate::Lost(blob_file) => {
                    let mut deletion = Vec::with_capacity(head.key.len());
                    let gone = InternalKey { kind: ValueKind::Deletion, ..key };
                    internal_key::append(&mut deletion, gone.user_key, gone.sequence, gone.kind);
                    outputs.add(&gone, &deletion, &[])?;
                    let (family, key) = (family.name.clone(), key.user_key.to_vec());
                    report.lose(LostKey { family, key, blob_file: blob_file.get() });
                }
            }
            if is_written {
                report.rewritten_entries += 1;
                let (key, sequence) = head.place();
                settled = Some((key.to_vec(), sequence));
            }
        }
        iterator.next()?;
        if iterator.valid() {
            head.key.clear();
            head.key.extend_from_slice(iterator.key());
            heads.push(head);
        }
    }
    let edit = outputs.finish()?.edit;
    for blob in &edit.blobs {
        let addition = blob.addition.clone();
        refs.entry(addition.number).or_default().add(addition.total_count, addition.total_bytes);
        blobs.add(blob.file.clone(), addition, family.id, &*store.env.files)?;
    }
    Ok(Rewritten { tables: edit.added, refs })
}

/// Whether a younger file deleted it that has its number for want of any ([`Age`]).
fn is_hidden(undated: &[(Age, Arc<Fragments>)], age: Age, key: &InternalKey<'_>) -> bool {
    let hides = |ranges: &Fragments| ranges.at(key.user_key).sequences.contains(&key.sequence);
    undated.iter().any(|(younger, ranges)| *younger > age && hides(ranges))
}

/// How many of these have a value that a rewrite would find nowhere.
pub(super) fn lost_values(entries: &mut dyn InternalIterator, family: u32, blobs: &Blobs) -> Result<u64> {
    let mut lost = 0;
    entries.seek_to_first()?;
    while entries.valid() {
        let key = InternalKey::decode(entries.key()).map_err(|error| entry::unreadable_key(entries.key(), error))?;
        lost += u64::from(matches!(fate(blobs, family, &key, entries.value())?, Fate::Lost(_)));
        entries.next()?;
    }
    Ok(lost)
}

fn fate(blobs: &Blobs, family: u32, key: &InternalKey<'_>, value: &[u8]) -> Result<Fate> {
    if key.kind != ValueKind::BlobIndex {
        return Ok(Fate::Stays);
    }
    let Some(index) = readable(key.user_key, value)? else { return Ok(Fate::Lost(FileNumber::default())) };
    if blobs.is_whole(family, key.user_key, &index)? {
        return Ok(Fate::Stays);
    }
    Ok(match blobs.reader(key.user_key, &index)? {
        Some(file) => Fate::Moves(file, index),
        None => Fate::Lost(index.file),
    })
}

/// A pointer; `None` if it is damaged. One that Esker lacks, as Titan's, ends the repair: what it leads to is not lost.
pub(super) fn readable(user_key: &[u8], pointer: &[u8]) -> Result<Option<BlobIndex>> {
    match BlobIndex::decode(pointer) {
        Err(error) if error.kind == DecodeErrorKind::Corrupt => Ok(None),
        _ => entry::pointer(user_key, pointer).map(Some),
    }
}
