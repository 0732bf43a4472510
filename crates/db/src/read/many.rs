//! Many keys at once: sorted, so that each block is searched once it is there; missing blocks of a level's tables and
//! separated values are read in batches, by place.
//!
//! - G1: answers are those of one moment, whatever is written meanwhile.
//! - G2: `KEYS_AT_ONCE` keys are looked up at a time, so that blocks read for them take bounded memory.

use std::ops::Range;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};

use super::blobs::file_of;
use super::{Found, cover, found, located};
use crate::Result;
use crate::blob::BlobBatch;
use crate::entry;
use crate::family::{Family, View};
use crate::options::ReadOptions;
use crate::pinned::PinnedSlice;
use crate::store::Store;
use crate::table::{Many, Table};

/// See G2: enough to keep a device busy, and at most about a megabyte of blocks of the usual size.
const KEYS_AT_ONCE: usize = 256;

/// What was found for a key, if anything was.
type Answer = Result<Option<PinnedSlice>>;

/// A key that is looked up.
struct Wanted {
    /// Where its lookup lies among `Keys::bytes`.
    lookup: Range<usize>,
    /// Which of the caller's keys it is.
    id: usize,
    found: Option<Result<Found>>,
}

/// Sorted keys, and what is known of them.
struct Keys {
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
}

impl Keys {
    fn new<'a>(keys: impl Iterator<Item = (usize, &'a [u8])>, sequence: SequenceNumber) -> Self {
        let mut bytes = Vec::new();
        let wanted = keys.map(|(id, key)| {
            let start = bytes.len();
            internal_key::append_lookup(&mut bytes, key, sequence);
            Wanted { lookup: start..bytes.len(), id, found: None }
        });
        let wanted = wanted.collect();
        Self { bytes, wanted }
    }

    fn lookup(&self, wanted: &Wanted) -> &[u8] {
        self.bytes.get(wanted.lookup.clone()).unwrap_or_default()
    }

    /// Those of which nothing is known yet, by their places among `wanted`.
    fn open(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let open = self.wanted.iter().enumerate().filter(|(_, wanted)| wanted.found.is_none());
        open.map(|(at, wanted)| (at, self.lookup(wanted)))
    }

    fn set(&mut self, at: usize, found: Result<Found>) {
        if let Some(wanted) = self.wanted.get_mut(at) {
            wanted.found = Some(found);
        }
    }

    fn set_hit(&mut self, at: usize, view: &View, sequence: SequenceNumber, kind: ValueKind, value: PinnedSlice) {
        if let Some(wanted) = self.wanted.get(at) {
            let lookup = self.lookup(wanted);
            let is_hidden = sequence < cover(view, lookup);
            let found = if is_hidden { Ok(Found::Deleted) } else { found(lookup, kind, value) };
            self.set(at, found);
        }
    }

    fn search_memtables(&mut self, view: &View) {
        for generation in view.generations() {
            let hits: Vec<_> =
                self.open().filter_map(|(at, lookup)| Some((at, generation.memtable.get(lookup)?))).collect();
            for (at, hit) in hits {
                self.set_hit(at, view, hit.sequence, hit.kind, hit.value);
            }
        }
    }

    /// As [`Version::get`](crate::version::Version::get) for each: the first hit from above is the newest.
    fn search_tables(&mut self, view: &View, fill_cache: bool) {
        for table in view.version.level(0) {
            let within = |lookup: &[u8]| {
                let key = internal_key::user_key(lookup);
                table.overlaps(Some(key), Some(key))
            };
            let places: Vec<usize> = self.open().filter(|(_, lookup)| within(lookup)).map(|(at, _)| at).collect();
            self.search(view, [(&*table.table, places)].into_iter(), fill_cache);
        }
        for (level, _) in view.version.levels().skip(1).filter(|(_, tables)| !tables.is_empty()) {
            let tables: Vec<_> = self
                .open()
                .filter_map(|(at, lookup)| Some((at, view.version.table_for(level, internal_key::user_key(lookup))?)))
                .collect();
            // Sorted keys of the same table follow each other.
            let of_tables = tables.chunk_by(|(_, a), (_, b)| a.number() == b.number());
            let of_tables: Vec<_> = of_tables
                .filter_map(|group| Some((group.first()?.1, group.iter().map(|(at, _)| *at).collect::<Vec<_>>())))
                .collect();
            self.search(view, of_tables.iter().map(|(table, places)| (&*table.table, places.clone())), fill_cache);
        }
    }

    /// Searches tables, each for the keys at its places. What they have to read is read at once.
    fn search<'a>(&mut self, view: &View, of_tables: impl Iterator<Item = (&'a Table, Vec<usize>)>, fill_cache: bool) {
        let begin = |(table, places): (&'a Table, Vec<usize>)| {
            let lookups = places.iter().filter_map(|&at| self.wanted.get(at)).map(|wanted| self.lookup(wanted));
            (table.begin_many(lookups.collect()), places)
        };
        let (mut searches, places): (Vec<_>, Vec<_>) = of_tables.map(begin).unzip();
        Many::read_missing(&mut searches, fill_cache);
        let hits: Vec<_> = searches.into_iter().flat_map(|search| search.finish(fill_cache)).collect();
        for (at, hit) in places.into_iter().flatten().zip(hits) {
            match hit {
                Ok(None) => {}
                Ok(Some(hit)) => self.set_hit(at, view, hit.sequence, hit.kind, hit.value),
                Err(error) => self.set(at, Err(error)),
            }
        }
    }

    /// Pointers into blob files, with the places of their keys.
    fn pointers(&self) -> impl Iterator<Item = (usize, &[u8], BlobIndex)> {
        self.wanted.iter().enumerate().filter_map(|(at, wanted)| match &wanted.found {
            // One that does not decode is told as an error when it is read.
            Some(Ok(Found::Blob(pointer))) => {
                Some((at, internal_key::user_key(self.lookup(wanted)), BlobIndex::decode(pointer).ok()?))
            }
            _ => None,
        })
    }
}

impl Store {
    /// See [`Db::multi_get_cf`](crate::Db::multi_get_cf).
    pub(crate) fn multi_get<'a>(
        &self,
        family: &Family,
        keys: impl Iterator<Item = &'a [u8]>,
        options: &ReadOptions,
    ) -> Result<Vec<Answer>> {
        let (view, sequence) = self.moment(family, options)?;
        let mut sorted: Vec<(usize, &[u8])> = keys.enumerate().collect();
        let mut answers: Vec<Answer> = (0..sorted.len()).map(|_| Ok(None)).collect();
        sorted.sort_unstable_by(|(_, a), (_, b)| family.order.compare(a, b));
        for some in sorted.chunks(KEYS_AT_ONCE) {
            let mut keys = Keys::new(some.iter().copied(), sequence);
            keys.search_memtables(&view);
            keys.search_tables(&view, options.fill_cache);
            self.answer(family, &view, keys, options.fill_cache, &mut answers);
        }
        Ok(answers)
    }

    /// Reads separated values, and puts everything that was found where the caller expects it.
    fn answer(&self, family: &Family, view: &View, mut keys: Keys, fill_cache: bool, answers: &mut [Answer]) {
        for at in 0..keys.wanted.len() {
            let Some(wanted) = keys.wanted.get(at) else { continue };
            let Some(Ok(Found::Blob(pointer))) = &wanted.found else { continue };
            match self.blobs.held(view, internal_key::user_key(keys.lookup(wanted)), pointer) {
                Ok(None) => {}
                Ok(Some(value)) => keys.set(at, Ok(Found::Value(value))),
                Err(error) => keys.set(at, Err(error)),
            }
        }
        let mut batch = BlobBatch::default();
        for (at, key, index) in keys.pointers() {
            // What lies in memory gains nothing by a copy beside others.
            if let Ok(blob) = file_of(view, key, &index)
                && !blob.is_memory()
                && let Ok(extent) = blob.extent(key, &index)
            {
                batch.add(blob, extent, at);
            }
        }
        // A value alone is read below.
        if batch.len() < 2 {
            batch.forget();
        }
        let (mut values, mut bytes) = (0, 0);
        let mut fetched = Vec::new();
        batch.arrange();
        let reads = batch.fetch(|record| fetched.push(record));
        for record in fetched {
            let Some(wanted) = keys.wanted.get(record.id) else { continue };
            let Some(Ok(Found::Blob(pointer))) = &wanted.found else { continue };
            let key = internal_key::user_key(keys.lookup(wanted));
            let value = entry::pointer(key, pointer).and_then(|index| {
                (values, bytes) = (values + 1, bytes + index.bytes);
                let value = record.take(key, &index)?;
                if fill_cache {
                    self.blobs.keep(view, key, &index, &value);
                }
                Ok(value)
            });
            keys.set(record.id, value.map(Found::Value));
        }
        self.blobs.counts().add(values, bytes, reads);
        for at in 0..keys.wanted.len() {
            let Some(id) = keys.wanted.get(at).map(|wanted| wanted.id) else { continue };
            let found = keys.wanted.get_mut(at).and_then(|wanted| wanted.found.take());
            let lookup = keys.wanted.get(at).map(|wanted| keys.lookup(wanted)).unwrap_or_default();
            let answer = match found {
                None | Some(Ok(Found::Nothing | Found::Deleted)) => Ok(None),
                Some(Ok(Found::Value(value))) => Ok(Some(value)),
                Some(Ok(Found::Blob(pointer))) => {
                    self.blobs.read(view, internal_key::user_key(lookup), &pointer, fill_cache).map(Some)
                }
                Some(Ok(Found::Operand(sequence))) => {
                    self.merged(family, view, internal_key::user_key(lookup), sequence, fill_cache).map(Some)
                }
                Some(Err(error)) => Err(error),
            };
            let answer = answer.map_err(|error| located(view, lookup, error));
            if let Some(slot) = answers.get_mut(id) {
                *slot = answer;
            }
        }
    }
}
