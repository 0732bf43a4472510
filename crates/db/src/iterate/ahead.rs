//! Entries that the walker has passed before the user asks for them, so that their separated values are read together.
//!
//! - L1: entries lie here in the order in which they will be shown; the walker stands on the last of them, or has ended.
//! - L2: an error that the walker met is kept, and told when the user comes to where it was met; every entry before it
//!   is shown.
//! - L3: a value that could not be read ahead is read when it is asked for, and its error told then.
//! - L4: values are read once the first of them is asked for, and checked when each is: what is read ahead and not
//!   wanted costs its read only.
//! - L5: memory is bounded by `look_ahead_bytes` of keys and values, and one entry more.
//!
//! How far: nothing before the user has asked for a separated value; then as far as [`pace`](super::pace) says.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::ValueKind;

use super::pace::{Pace, Walks};
use super::walk::Walker;
use crate::Result;
use crate::blob::{BlobBatch, Fetched};
use crate::family::View;
use crate::pinned::PinnedSlice;
use crate::read::BlobReader;

/// Entries passed for that many separated values, where most are not separated.
const ENTRIES_PER_VALUE_MAX: usize = 8;

/// Memory that is kept for the keys of the next entries.
const KEY_BYTES_KEPT: usize = 64 << 10;

/// See the module's head.
#[derive(Default)]
pub(super) struct Ahead {
    slots: Vec<Slot>,
    /// The keys of all entries, one behind the other.
    keys: Vec<u8>,
    /// The slot that is shown; none if it is not below `count`.
    at: usize,
    /// Slots in use: those behind keep their memory for later.
    count: usize,
    /// What ended the walk (L2).
    failure: Option<crate::Error>,
    /// What is read with the first value that is asked for (L4).
    batch: RefCell<BlobBatch>,
}

/// An entry.
#[derive(Default)]
struct Slot {
    /// Where the key lies among `keys`.
    key: Range<usize>,
    value: Value,
    /// Where a separated value was read to.
    fetched: OnceCell<Fetched>,
    asked: Cell<bool>,
}

/// A value, as far as it is known.
enum Value {
    /// Not separated, or a pointer that does not decode.
    Stored(ValueKind, PinnedSlice),
    /// Separated.
    Pointer(BlobIndex),
}

impl Default for Value {
    fn default() -> Self {
        Self::Stored(ValueKind::Value, PinnedSlice::default())
    }
}

impl Value {
    const fn is_separated(&self) -> bool {
        matches!(self, Self::Pointer(_))
    }
}

impl Ahead {
    /// Whether it shows an entry.
    #[inline]
    pub(super) fn shows(&self) -> bool {
        self.at < self.count
    }

    /// The key that it shows.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.slots.get(self.at).map_or(&[], |slot| self.key_of(slot))
    }

    #[inline]
    fn key_of(&self, slot: &Slot) -> &[u8] {
        self.keys.get(slot.key.clone()).unwrap_or_default()
    }

    /// The value of the entry that it shows.
    pub(super) fn value(&self, blobs: &BlobReader, view: &View, pace: &Pace, walks: &Walks) -> Result<PinnedSlice> {
        let Some(slot) = self.slots.get(self.at) else { return Ok(PinnedSlice::default()) };
        slot.asked.set(true);
        match &slot.value {
            Value::Stored(ValueKind::BlobIndex, pointer) => blobs.read(view, self.key_of(slot), pointer, false),
            Value::Stored(_, value) => Ok(value.clone()),
            Value::Pointer(index) => {
                if slot.fetched.get().is_none() {
                    self.fetch(blobs, pace, walks);
                }
                match slot.fetched.get() {
                    Some(fetched) => fetched.take(self.key_of(slot), index),
                    None => blobs.read_at(view, self.key_of(slot), index),
                }
            }
        }
    }

    /// Reads what is to be read together, if that was not done yet.
    fn fetch(&self, blobs: &BlobReader, pace: &Pace, walks: &Walks) {
        let mut batch = self.batch.borrow_mut();
        if batch.len() < 2 {
            // Nothing is saved by reading one value as a batch.
            batch.forget();
            return;
        }
        let (mut values, mut bytes) = (0, 0);
        let reads = batch.fetch(pace.onward(), |fetched| {
            if let Some(slot) = self.slots.get(fetched.id)
                && let Value::Pointer(index) = slot.value
            {
                (values, bytes) = (values + 1, bytes + index.bytes);
                // Each is wanted once, so nothing is there yet.
                let _ = slot.fetched.set(fetched);
            }
        });
        walks.note_batch(values, bytes, reads);
        blobs.counts().add(values, bytes, reads);
    }

    /// The length of that value.
    pub(super) fn value_len(&self, blobs: &BlobReader, view: &View) -> Result<u64> {
        let Some(slot) = self.slots.get(self.at) else { return Ok(0) };
        match &slot.value {
            Value::Stored(ValueKind::BlobIndex, pointer) => blobs.value_len(view, self.key_of(slot), pointer),
            Value::Stored(_, value) => Ok(value.len() as u64),
            Value::Pointer(index) => blobs.value_len_at(view, self.key_of(slot), index),
        }
    }

    /// To the next entry it has; `false` if it has none, and the walk goes on where it ended.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        if self.at + 1 < self.count {
            self.at += 1;
            return true;
        }
        false
    }

    /// Whether the value of the entry that it shows is separated, and was asked for.
    pub(super) fn was_asked(&self) -> bool {
        self.slots.get(self.at).is_some_and(|slot| slot.value.is_separated() && slot.asked.get())
    }

    /// Forgets all entries; returns what ended the walk.
    pub(super) fn end(&mut self) -> Result<()> {
        self.empty();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Forgets everything: a new walk begins.
    pub(super) fn clear(&mut self) {
        self.empty();
        self.failure = None;
    }

    /// Of the separated values that it holds, how many there are and how many were asked for.
    pub(super) fn asked(&self) -> (usize, usize) {
        let separated = || self.slots.iter().take(self.count).filter(|slot| slot.value.is_separated());
        (separated().count(), separated().filter(|slot| slot.asked.get()).count())
    }

    /// Forgets all entries; the memory of what they held serves the next ones.
    fn empty(&mut self) {
        for slot in self.slots.iter_mut().take(self.count) {
            slot.value = Value::default();
            if let Some(fetched) = slot.fetched.take() {
                fetched.recycle();
            }
        }
        self.batch.get_mut().forget();
        self.keys.clear();
        self.keys.shrink_to(KEY_BYTES_KEPT);
        (self.at, self.count) = (0, 0);
    }

    /// Passes entries after the one that the walker stands on, up to `wanted` separated ones, and shows the first of them.
    /// Without any, the walk is over, or has failed: [`end`](Self::end) says which.
    pub(super) fn fill(&mut self, walker: &mut Walker, forward: bool, view: &View, wanted: usize, bytes_max: u64) {
        self.empty();
        let (mut separated, mut bytes) = (0, 0u64);
        while separated < wanted && self.count < wanted * ENTRIES_PER_VALUE_MAX && bytes < bytes_max {
            if let Err(error) = walker.step(forward) {
                self.failure = Some(error);
                break;
            }
            if !walker.valid() {
                break;
            }
            let value = value_of(walker);
            bytes = bytes.saturating_add(walker.key().len() as u64);
            match &value {
                Value::Pointer(index) => {
                    separated += 1;
                    bytes = bytes.saturating_add(index.bytes);
                    if bytes <= bytes_max {
                        self.want(walker.key(), index, view);
                    }
                }
                Value::Stored(_, stored) => bytes = bytes.saturating_add(stored.len() as u64),
            }
            self.push(walker.key(), value);
        }
    }

    /// Has the record of the next slot read, if there is one where `index` says, and it does not lie in memory.
    fn want(&mut self, user_key: &[u8], index: &BlobIndex, view: &View) {
        if let Some(blob) = view.blob(index.file)
            && !blob.is_memory()
            && let Ok(extent) = blob.extent(user_key, index)
        {
            self.batch.get_mut().add(blob, extent, self.count);
        }
    }

    fn push(&mut self, key: &[u8], value: Value) {
        if self.slots.len() == self.count {
            self.slots.push(Slot::default());
        }
        if let Some(slot) = self.slots.get_mut(self.count) {
            let start = self.keys.len();
            self.keys.extend_from_slice(key);
            slot.key = start..self.keys.len();
            slot.value = value;
            slot.asked.set(false);
            self.count += 1;
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The next iterator may use the memory.
        self.empty();
    }
}

fn value_of(walker: &Walker) -> Value {
    if walker.kind() == ValueKind::BlobIndex
        && let Ok(index) = BlobIndex::decode(walker.stored_bytes())
    {
        return Value::Pointer(index);
    }
    Value::Stored(walker.kind(), walker.stored())
}
