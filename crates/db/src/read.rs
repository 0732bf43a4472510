//! Point reads: pin a view → memtables → tables, newest first → at most one blob.
//!
//! | room         | what it does                                                                      |
//! |--------------|-----------------------------------------------------------------------------------|
//! | [`blobs`]    | separated values                                                                  |
//! | [`many`]     | many keys at once                                                                 |
//! | [`parallel`] | parts of a family that threads walk through                                       |
//!
//! - R1: no lock is taken. The view is pinned with one atomic step, the sequence number read after it (family V3).
//! - R2: values are shared with the memtable, block or blob buffer that holds them; nothing is copied.

mod blobs;
mod many;
mod parallel;

use std::ops::Range;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};

use crate::entry;
use crate::family::{Family, View};
use crate::iterate::DbIterator;
use crate::operands::Reader;
use crate::options::ReadOptions;
use crate::pinned::PinnedSlice;
use crate::store::Store;
use crate::{Error, Result};

pub(crate) use blobs::BlobReader;

enum Found {
    Nothing,
    Deleted,
    Value(PinnedSlice),
    Blob(PinnedSlice),
    /// The newest of some, as far as this is seen.
    Operand(SequenceNumber),
}

fn found(lookup: &[u8], kind: ValueKind, value: PinnedSlice) -> Result<Found> {
    match kind {
        ValueKind::Value => Ok(Found::Value(value)),
        ValueKind::BlobIndex => Ok(Found::Blob(value)),
        ValueKind::Deletion | ValueKind::SingleDeletion => Ok(Found::Deleted),
        ValueKind::Merge => Ok(Found::Operand(SequenceNumber::new(internal_key::tag(lookup) >> 8))),
        kind => Err(entry::not_served(internal_key::user_key(lookup), kind)),
    }
}

fn find(view: &View, lookup: &[u8], fill_cache: bool) -> Result<Found> {
    let cover = cover(view, lookup);
    for generation in view.generations() {
        if let Some(hit) = generation.memtable.get(lookup) {
            return if hit.sequence < cover { Ok(Found::Deleted) } else { found(lookup, hit.kind, hit.value) };
        }
    }
    match view.version.get(lookup, fill_cache)? {
        Some(hit) if hit.sequence >= cover => found(lookup, hit.kind, hit.value),
        Some(_) => Ok(Found::Deleted),
        None => Ok(Found::Nothing),
    }
}

/// The newest range deletion that whoever looks sees over the key; 0: none.
#[inline]
fn cover(view: &View, lookup: &[u8]) -> SequenceNumber {
    view.cover(internal_key::user_key(lookup), SequenceNumber::new(internal_key::tag(lookup) >> 8))
}

/// `error`, of the entry that `lookup` leads to, with the table where that lies.
#[cold]
fn located(view: &View, lookup: &[u8], error: Error) -> Error {
    if view.generations().any(|generation| generation.memtable.get(lookup).is_some()) {
        return error;
    }
    match view.version.table_with(lookup) {
        Some(table) => entry::located(error, Some((table.table.path(), None))),
        None => error,
    }
}

/// Longest key whose lookup needs no allocation.
const INLINE_KEY_BYTES: usize = 120;

impl Store {
    /// Finds `key` and hands what was found to `take`, with the version that a blob would be in.
    fn look_up<T>(
        &self,
        family: &Family,
        key: &[u8],
        options: &ReadOptions,
        take: impl FnOnce(&View, Found) -> Result<T>,
    ) -> Result<T> {
        self.check_open()?;
        let began = self.pace.begin_call(&*self.env.clock);
        let view = family.view.load();
        let sequence = self.sequence_for(options)?;
        let tag = (sequence.get() << 8 | u64::from(internal_key::SEEK_KIND_TAG)).to_le_bytes();
        let mut inline = [0u8; INLINE_KEY_BYTES + 8];
        let found = match inline.get_mut(..key.len() + 8) {
            Some(lookup) => {
                let (user_key, end) = lookup.split_at_mut(key.len());
                user_key.copy_from_slice(key);
                end.copy_from_slice(&tag);
                find(&view, lookup, options.fill_cache)
            }
            None => find(&view, &[key, &tag].concat(), options.fill_cache),
        };
        let taken = found.and_then(|found| take(&view, found));
        let taken = taken.map_err(|error| located(&view, &internal_key::lookup(key, sequence), error));
        self.pace.end_call(began, &*self.env.clock);
        taken
    }

    /// What a read sees: up to its snapshot, or up to now.
    fn sequence_for(&self, options: &ReadOptions) -> Result<SequenceNumber> {
        match &options.snapshot {
            None => Ok(self.visible()),
            Some(snapshot) if snapshot.is_of(&self.snapshots) => Ok(snapshot.number()),
            Some(_) => {
                Err(Error::invalid_argument("the snapshot is of another store, or of an earlier open of this one"))
            }
        }
    }

    /// The value of `key`, of which an operand was found.
    fn merged(
        &self,
        family: &Family,
        view: &View,
        key: &[u8],
        sequence: SequenceNumber,
        fill_cache: bool,
    ) -> Result<PinnedSlice> {
        Reader { family, view, blobs: &self.blobs, sequence, fill_cache }.merged(key)
    }

    /// See [`Db::get_cf`](crate::Db::get_cf).
    pub(crate) fn get(&self, family: &Family, key: &[u8], options: &ReadOptions) -> Result<Option<PinnedSlice>> {
        self.look_up(family, key, options, |view, found| match found {
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Value(value) => Ok(Some(value)),
            Found::Blob(pointer) => self.blobs.read(view, key, &pointer, options.fill_cache).map(Some),
            Found::Operand(sequence) => self.merged(family, view, key, sequence, options.fill_cache).map(Some),
        })
    }

    /// See [`Db::exists_cf`](crate::Db::exists_cf).
    pub(crate) fn exists(&self, family: &Family, key: &[u8], options: &ReadOptions) -> Result<bool> {
        // Whatever operands are merged to, it is a value.
        self.look_up(family, key, options, |_, found| Ok(!matches!(found, Found::Nothing | Found::Deleted)))
    }

    /// See [`Db::value_len_cf`](crate::Db::value_len_cf).
    pub(crate) fn value_len(&self, family: &Family, key: &[u8], options: &ReadOptions) -> Result<Option<u64>> {
        self.look_up(family, key, options, |view, found| match found {
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Value(value) => Ok(Some(value.len() as u64)),
            Found::Blob(pointer) => self.blobs.value_len(view, key, &pointer).map(Some),
            Found::Operand(sequence) => {
                let merged = self.merged(family, view, key, sequence, options.fill_cache)?;
                Ok(Some(merged.len() as u64))
            }
        })
    }

    /// See [`Db::get_range_cf`](crate::Db::get_range_cf).
    pub(crate) fn get_range(
        &self,
        family: &Family,
        key: &[u8],
        range: Range<u64>,
        options: &ReadOptions,
    ) -> Result<Option<PinnedSlice>> {
        self.look_up(family, key, options, |view, found| match found {
            Found::Nothing | Found::Deleted => Ok(None),
            Found::Value(value) => Ok(Some(value.within(range))),
            Found::Blob(pointer) => self.blobs.read_range(view, key, &pointer, range, options.fill_cache).map(Some),
            Found::Operand(sequence) => {
                let merged = self.merged(family, view, key, sequence, options.fill_cache)?;
                Ok(Some(merged.within(range)))
            }
        })
    }

    /// See [`Db::iter_cf`](crate::Db::iter_cf).
    pub(crate) fn iter(self: &Arc<Self>, family: &Arc<Family>, options: &ReadOptions) -> Result<DbIterator> {
        let options = options.bounded(family.order)?;
        let (view, sequence) = self.moment(family, &options)?;
        let store = Arc::downgrade(self);
        Ok(DbIterator::new(store, family.clone(), view, sequence, &options, self.blobs.clone(), self.aide.clone()))
    }

    /// See [`Db::count_cf`](crate::Db::count_cf).
    pub(crate) fn count(self: &Arc<Self>, family: &Arc<Family>, options: &ReadOptions) -> Result<u64> {
        let mut keys = self.iter(family, options)?;
        let mut count = 0;
        keys.seek_to_first()?;
        while keys.valid() {
            count += 1;
            keys.next()?;
        }
        Ok(count)
    }

    /// What a read sees (R1).
    pub(crate) fn moment(&self, family: &Family, options: &ReadOptions) -> Result<(Arc<View>, SequenceNumber)> {
        self.check_open()?;
        family.view_at(|| self.sequence_for(options))
    }
}
