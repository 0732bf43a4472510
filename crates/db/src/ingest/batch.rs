//! Entries of a load on their way to the files, and the packing of their values, on as many threads as there are for it.

use std::sync::mpsc::{Receiver, SyncSender};

use esker_format::compression::compress;
use esker_format::rocksdb::internal_key::ValueKind;

use crate::options::FamilyOptions;
use crate::{Error, Result};

/// Memory for a batch is used again up to this size.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// What an entry needs in files beside its key and value: a record's header, the way to it, its part of a table's index and filter.
const OVERHEAD_BYTES: u64 = 64;

/// One of a [`Batch`]. Lengths are below 2^32, as the limits of keys and values are, and packing adds little.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key_bytes: u32,
    value_bytes: u32,
    kind: ValueKind,
    /// Whether the value is as a blob file has it.
    is_packed: bool,
}

/// Entries, one after another.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes of keys and values as they came.
    raw_bytes: u64,
}

impl Batch {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8], kind: ValueKind) {
        self.push(key, value, kind, false);
        self.raw_bytes += (key.len() + value.len()) as u64;
    }

    fn push(&mut self, key: &[u8], value: &[u8], kind: ValueKind, is_packed: bool) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_bytes, value_bytes) = (key.len() as u32, value.len() as u32);
        self.entries.push(Entry { key_bytes, value_bytes, kind, is_packed });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of keys and values as they came.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.raw_bytes
    }

    /// What they take in files, about, and no less.
    pub(super) fn file_bytes(&self) -> u64 {
        self.raw_bytes + self.entries.len() as u64 * OVERHEAD_BYTES
    }

    /// Empties it; its memory is kept unless there is much of it.
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            *self = Self::default();
        }
        self.bytes.clear();
        self.entries.clear();
        self.raw_bytes = 0;
    }

    /// Key, value, how it was changed, and whether the value is packed; in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8], ValueKind, bool)> {
        let mut rest = self.bytes.as_slice();
        self.entries.iter().map(move |entry| {
            let (key, behind) = rest.split_at_checked(entry.key_bytes as usize).unwrap_or_default();
            let (value, behind) = behind.split_at_checked(entry.value_bytes as usize).unwrap_or_default();
            rest = behind;
            (key, value, entry.kind, entry.is_packed)
        })
    }

    /// Packs the values that go to blob files; `spare` is empty, and left with what memory is not needed.
    fn pack(self, options: &FamilyOptions, spare: &mut Self, packed: &mut Vec<u8>) -> Result<Self> {
        let goes = |entry: &Entry| {
            entry.kind == ValueKind::Value && !entry.is_packed && options.belongs_in_blob(entry.value_bytes as usize)
        };
        if !self.entries.iter().any(goes) {
            return Ok(self);
        }
        let mut whole = std::mem::take(spare);
        whole.raw_bytes = self.raw_bytes;
        for ((key, value, kind, is_packed), entry) in self.entries().zip(&self.entries) {
            if goes(entry) {
                compress(options.blob_compression, value, packed)
                    .map_err(|error| Error::invalid_argument(error.to_string()))?;
                whole.push(key, packed, kind, true);
            } else {
                whole.push(key, value, kind, is_packed);
            }
        }
        *spare = self;
        spare.clear();
        Ok(whole)
    }
}

/// What goes from the caller to the thread that writes: batches, and at last the word that there are no more.
pub(super) type Step = Option<Batch>;

/// Packs what comes until nothing more does, or nobody wants it.
pub(super) fn pack_all(options: &FamilyOptions, from: &Receiver<Step>, to: &SyncSender<Result<Step>>) {
    let (mut spare, mut packed) = (Batch::default(), Vec::new());
    for step in from {
        let step = step.map(|batch| batch.pack(options, &mut spare, &mut packed)).transpose();
        if to.send(step).is_err() {
            return;
        }
    }
}
