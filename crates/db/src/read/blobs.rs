//! Separated values, and what reading them cost.

use std::ops::Range;
use std::sync::Arc;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::filter;

use crate::blob::BlobFile;
use crate::cache::{Block, BlockCache};
use crate::counters::Counter;
use crate::entry::{self, Key};
use crate::family::View;
use crate::pinned::PinnedSlice;
use crate::{Error, ErrorKind, Result};

/// Reads separated values, and counts.
#[derive(Debug, Clone)]
pub(crate) struct BlobReader {
    counts: Arc<BlobCounts>,
    /// Where values that were read stay, if they do.
    cache: Option<Arc<BlockCache>>,
    /// Whether files are memory, as far as they can be.
    mapped: bool,
}

/// What blob reads cost so far.
#[derive(Debug, Default)]
pub(crate) struct BlobCounts {
    /// Values read, in whole or in part.
    pub(crate) values: Counter,
    /// Their bytes, as far as they were read.
    pub(crate) bytes: Counter,
    /// Reads that the file system was asked for: fewer where neighbours were read together.
    pub(crate) reads: Counter,
}

impl BlobCounts {
    /// Counts `reads` that brought so many values of so many bytes.
    #[inline]
    pub(crate) fn add(&self, values: u64, bytes: u64, reads: u64) {
        self.values.add(values);
        self.bytes.add(bytes);
        self.reads.add(reads);
    }
}

/// What a reader must know to have a cached value: a damaged pointer may lead to another key's.
fn tag(user_key: &[u8], index: &BlobIndex) -> u64 {
    filter::hash(user_key) ^ index.bytes.rotate_left(32)
}

impl BlobReader {
    pub(crate) fn new(cache: Option<Arc<BlockCache>>, mapped: bool) -> Self {
        Self { counts: Arc::default(), cache, mapped }
    }

    pub(crate) fn counts(&self) -> &BlobCounts {
        &self.counts
    }

    /// The value that `pointer` points to; stays in the cache if values do and `fill_cache` is set.
    pub(crate) fn read(&self, view: &View, user_key: &[u8], pointer: &[u8], fill_cache: bool) -> Result<PinnedSlice> {
        let index = entry::pointer(user_key, pointer)?;
        let Some(cache) = &self.cache else {
            return self.read_at(view, user_key, &index);
        };
        let blob = file_of(view, user_key, &index)?;
        if self.mapped && blob.is_plain() && blob.is_memory() {
            // It lies in memory as it is.
            return self.read_at(view, user_key, &index);
        }
        let tag = tag(user_key, &index);
        if let Some(held) = cache.get(blob.id(), index.offset).filter(|held| held.tag() == tag) {
            return blob.value_in(&index, held);
        }
        self.counts.add(1, index.bytes, 1);
        if !fill_cache || !cache.admits(blob.id(), index.offset, index.bytes) {
            return blob.read(user_key, &index);
        }
        let held = blob.read_record(user_key, &index, Some(tag))?;
        cache.insert(blob.id(), index.offset, held.clone());
        blob.value_in(&index, held)
    }

    /// Whether the value that `pointer` points to lies in memory: then nothing is gained by reading it together with others.
    pub(crate) fn is_in_memory(&self, view: &View, pointer: &[u8]) -> bool {
        self.mapped
            && BlobIndex::decode(pointer).is_ok_and(|index| view.blob(index.file).is_some_and(|blob| blob.is_memory()))
    }

    /// The value that `pointer` points to, if the cache has it.
    pub(crate) fn held(&self, view: &View, user_key: &[u8], pointer: &[u8]) -> Result<Option<PinnedSlice>> {
        if self.cache.is_none() {
            return Ok(None);
        }
        self.held_at(view, user_key, &entry::pointer(user_key, pointer)?)
    }

    fn held_at(&self, view: &View, user_key: &[u8], index: &BlobIndex) -> Result<Option<PinnedSlice>> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let blob = file_of(view, user_key, index)?;
        let tag = tag(user_key, index);
        let held = cache.get(blob.id(), index.offset).filter(|held| held.tag() == tag);
        held.map(|held| blob.value_in(index, held)).transpose()
    }

    /// The value that lies at `index`, past the cache.
    pub(crate) fn read_at(&self, view: &View, user_key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
        let blob = file_of(view, user_key, index)?;
        self.counts.add(1, index.bytes, 1);
        blob.read(user_key, index)
    }

    /// The length of the value that `pointer` points to.
    pub(crate) fn value_len(&self, view: &View, user_key: &[u8], pointer: &[u8]) -> Result<u64> {
        self.value_len_at(view, user_key, &entry::pointer(user_key, pointer)?)
    }

    /// The length of the value that lies at `index`.
    pub(crate) fn value_len_at(&self, view: &View, user_key: &[u8], index: &BlobIndex) -> Result<u64> {
        let blob = file_of(view, user_key, index)?;
        if !blob.is_plain()
            && let Some(value) = self.held_at(view, user_key, index)?
        {
            return Ok(value.len() as u64);
        }
        let (len, read_bytes) = blob.value_len(user_key, index)?;
        if read_bytes > 0 {
            self.counts.add(1, read_bytes, 1);
        }
        Ok(len)
    }

    /// The part of the value at `pointer` that lies in `range`.
    pub(crate) fn read_range(
        &self,
        view: &View,
        user_key: &[u8],
        pointer: &[u8],
        range: Range<u64>,
        fill_cache: bool,
    ) -> Result<PinnedSlice> {
        let index = entry::pointer(user_key, pointer)?;
        let blob = file_of(view, user_key, &index)?;
        let part = range.start.min(index.bytes)..range.end.min(index.bytes);
        // What is packed is unpacked whole, and what is read whole is checked.
        if !blob.has_parts(&index) || part == (0..index.bytes) {
            return Ok(self.read(view, user_key, pointer, fill_cache)?.within(range));
        }
        if part.is_empty() {
            return Ok(PinnedSlice::default());
        }
        if let Some(held) = self.held(view, user_key, pointer)? {
            return Ok(held.within(part));
        }
        let part = blob.read_range(user_key, &index, part)?;
        self.counts.add(1, part.read_bytes, part.reads);
        Ok(part.bytes)
    }

    /// Keeps a value that was read from `index`, if there is room for what is read for the first time, or it was read before.
    pub(crate) fn keep(&self, view: &View, user_key: &[u8], index: &BlobIndex, value: &[u8]) {
        if let Some(cache) = &self.cache
            && let Some(blob) = view.blob(index.file)
            && cache.admits(blob.id(), index.offset, index.bytes)
        {
            let held = Block::tagged(value.to_vec(), tag(user_key, index));
            cache.insert(blob.id(), index.offset, Arc::new(held));
        }
    }
}

/// The file that `index`, of `user_key`, points into.
pub(crate) fn file_of<'a>(view: &'a View, user_key: &[u8], index: &BlobIndex) -> Result<&'a Arc<BlobFile>> {
    view.blob(index.file).ok_or_else(|| missing(user_key, index))
}

#[cold]
fn missing(user_key: &[u8], index: &BlobIndex) -> Error {
    let (key, file) = (Key(user_key), index.file);
    let reason =
        format!("the value of key {key} lies in blob file {file}, which the store does not have; run esker check");
    Error::new(ErrorKind::Corruption, reason)
}
