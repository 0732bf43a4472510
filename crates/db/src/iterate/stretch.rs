//! Some entries that follow each other, and their separated values: shared by whoever walks and the [`Aide`](super::aide), who each do a part.
//! Model-checked in `testing/models/ahead`, with the aide.
//!
//! - S1: entries do not change while they are shared; only what was read and unpacked of them is added, once.
//! - S2: all values are read at once, by who comes first; the other waits for that.
//! - S3: of a value that both may unpack one has the claim. The aide goes from the last to the first, so the two meet once; there, who walks
//!   unpacks what the other is at, rather than wait for somebody who may have no processor.
//! - S4: what the aide unpacks is no more than `UNPACKED_BYTES_MAX` and a value, however well values were packed.
//! - S5: a panic of one costs nothing but its help: what was not read at once is read by who comes next, and of a value that has the claim and
//!   nothing to show for it who walks makes it again.

use std::ops::Range;
use std::sync::Arc;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::ValueKind;

use super::pace::Walks;
use super::walk::Walker;
use crate::Result;
use crate::blob::{BlobBatch, Fetched};
use crate::cache::Block;
use crate::family::View;
use crate::pinned::PinnedSlice;
use crate::read::BlobReader;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, OnceLock};

/// Entries passed for that many separated values, where most are not separated.
const ENTRIES_PER_VALUE_MAX: usize = 8;

/// See S4: what was unpacked should lie in the processor's caches still when it is asked for.
const UNPACKED_BYTES_MAX: usize = 512 << 10;

/// Memory that is kept for the keys of the next entries.
const KEY_BYTES_KEPT: usize = 64 << 10;

/// See the module's head.
#[derive(Default)]
pub(super) struct Stretch {
    /// Those behind `count` keep their memory for later.
    slots: Vec<Slot>,
    count: usize,
    /// The keys of all entries, one behind the other.
    keys: Vec<u8>,
    /// What is read at once.
    batch: BlobBatch,
    is_read: OnceLock<()>,
    /// Memory for what is unpacked beside the walk.
    spaces: Mutex<Vec<Vec<u8>>>,
}

/// How far a stretch goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    pub(super) forward: bool,
    /// Separated values, at most.
    pub(super) values: usize,
    /// Of keys and values.
    pub(super) bytes_max: u64,
}

/// What reading a stretch took.
pub(super) struct Read {
    values: u64,
    bytes: u64,
    reads: u64,
}

impl Read {
    pub(super) fn count(&self, blobs: &BlobReader, walks: &Walks) {
        walks.note_batch(self.values, self.bytes, self.reads);
        blobs.counts().add(self.values, self.bytes, self.reads);
    }
}

/// An entry.
#[derive(Default)]
struct Slot {
    /// Where the key lies among `keys`.
    key: Range<usize>,
    value: Value,
    /// Where a separated value was read to.
    fetched: OnceLock<Fetched>,
    /// See S3.
    is_claimed: AtomicBool,
    unpacked: OnceLock<PinnedSlice>,
    was_asked: AtomicBool,
}

/// A value, as far as it is known.
pub(super) enum Value {
    /// Not separated, a pointer that does not decode, or an operand.
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

impl Stretch {
    /// How many entries it has.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<&Slot> {
        self.slots.get(..self.count)?.get(at)
    }

    #[inline]
    fn key_of(&self, slot: &Slot) -> &[u8] {
        self.keys.get(slot.key.clone()).unwrap_or_default()
    }

    /// The key of the entry at `at`; empty if there is none.
    #[inline]
    pub(super) fn key(&self, at: usize) -> &[u8] {
        self.slot(at).map_or(&[], |slot| self.key_of(slot))
    }

    #[inline]
    pub(super) fn value(&self, at: usize) -> Option<&Value> {
        self.slot(at).map(|slot| &slot.value)
    }

    /// The value of the entry at `at` is asked for.
    #[inline]
    pub(super) fn ask(&self, at: usize) {
        if let Some(slot) = self.slot(at) {
            slot.was_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the entry at `at` has a separated value that was asked for.
    pub(super) fn was_asked(&self, at: usize) -> bool {
        self.slot(at).is_some_and(|slot| slot.value.is_separated() && slot.was_asked.load(Ordering::Relaxed))
    }

    /// How many of its values are separated, and how many of these were asked for.
    pub(super) fn asked(&self) -> (usize, usize) {
        let separated = || (0..self.count).filter(|&at| self.value(at).is_some_and(Value::is_separated));
        (separated().count(), separated().filter(|&at| self.was_asked(at)).count())
    }

    /// What is read at once; fewer than two values are not.
    pub(super) fn batch(&self) -> Option<&BlobBatch> {
        (self.batch.len() > 1).then_some(&self.batch)
    }

    /// Reads all values that are to be read at once, unless that was done (S2); says what it took.
    pub(super) fn read(&self) -> Option<Read> {
        let batch = self.batch()?;
        let mut read = None;
        self.is_read.get_or_init(|| {
            let (mut values, mut bytes) = (0, 0);
            let reads = batch.fetch(|fetched| {
                if let Some(slot) = self.slot(fetched.id)
                    && let Value::Pointer(index) = &slot.value
                {
                    (values, bytes) = (values + 1, bytes + index.bytes);
                    // Each is wanted once, so nothing is there yet.
                    let _ = slot.fetched.set(fetched);
                }
            });
            read = Some(Read { values, bytes, reads });
        });
        read
    }

    /// The value at `at`, which `index` points to, if it was read.
    pub(super) fn take(&self, at: usize, index: &BlobIndex) -> Option<Result<PinnedSlice>> {
        let slot = self.slot(at)?;
        let fetched = slot.fetched.get()?;
        if slot.is_claimed.swap(true, Ordering::Acquire)
            && let Some(value) = slot.unpacked.get()
        {
            return Some(Ok(value.clone()));
        }
        Some(fetched.take(self.key_of(slot), index))
    }

    /// Unpacks what is not claimed, for whoever asks for it (S3, S4).
    pub(super) fn unpack(&self) {
        let mut left = UNPACKED_BYTES_MAX;
        let mut spaces = self.spaces.lock();
        for slot in self.slots.iter().take(self.count).rev() {
            if let (Value::Pointer(index), Some(fetched)) = (&slot.value, slot.fetched.get()) {
                if left == 0 || slot.is_claimed.swap(true, Ordering::Relaxed) {
                    return;
                }
                Block::leave(spaces.pop().unwrap_or_default());
                // One that is damaged is looked at again by whoever asks for it, and told.
                if let Ok(value) = fetched.take(self.key_of(slot), index) {
                    left = left.saturating_sub(value.len());
                    let _ = slot.unpacked.set(value);
                }
            }
        }
    }

    /// Forgets all entries; the memory of what they held serves the next ones.
    pub(super) fn empty(&mut self) {
        let spaces = self.spaces.get_mut();
        let mut left = UNPACKED_BYTES_MAX.saturating_sub(spaces.iter().map(Vec::capacity).sum());
        for slot in self.slots.iter_mut().take(self.count) {
            slot.value = Value::default();
            if let Some(space) = slot.unpacked.take().and_then(PinnedSlice::into_memory)
                && space.capacity() <= left
            {
                left -= space.capacity();
                spaces.push(space);
            }
            *slot.is_claimed.get_mut() = false;
            *slot.was_asked.get_mut() = false;
            if let Some(fetched) = slot.fetched.take() {
                fetched.recycle();
            }
        }
        self.batch.forget();
        self.is_read = OnceLock::new();
        self.keys.clear();
        self.keys.shrink_to(KEY_BYTES_KEPT);
        self.count = 0;
    }

    /// Passes entries after the one that the walker stands on, as far as `length` says.
    ///
    /// # Errors
    /// What the walker met: behind all that it has.
    pub(super) fn fill(&mut self, walker: &mut Walker, view: &View, length: Length) -> Result<()> {
        self.empty();
        let Length { forward, values, bytes_max } = length;
        let (mut separated, mut bytes) = (0, 0u64);
        let mut result = Ok(());
        while separated < values && self.count < values * ENTRIES_PER_VALUE_MAX && bytes < bytes_max {
            result = walker.step(forward);
            if result.is_err() || !walker.valid() {
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
        self.batch.arrange();
        result
    }

    /// Has the record of the next slot read, if there is one where `index` says, and it does not lie in memory.
    fn want(&mut self, user_key: &[u8], index: &BlobIndex, view: &View) {
        if let Some(blob) = view.blob(index.file)
            && !blob.is_memory()
            && let Ok(extent) = blob.extent(user_key, index)
        {
            self.batch.add(blob, extent, self.count);
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
            self.count += 1;
        }
    }
}

#[cfg(test)]
impl Stretch {
    /// Bytes of the values that were unpacked beside the walk, of each.
    pub(super) fn unpacked(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().take(self.count).filter_map(|slot| slot.unpacked.get()).map(|value| value.len())
    }
}

/// `stretch`, to be filled anew: as it is, unless somebody has it still.
pub(super) fn renewed(stretch: &mut Arc<Stretch>) -> Option<&mut Stretch> {
    if Arc::get_mut(stretch).is_none() {
        // Handed over, and perhaps done with.
        *stretch = Arc::new(Arc::into_inner(std::mem::take(stretch)).unwrap_or_default());
    }
    Arc::get_mut(stretch)
}

fn value_of(walker: &Walker) -> Value {
    if walker.kind() == ValueKind::BlobIndex
        && let Ok(index) = BlobIndex::decode(walker.stored_bytes())
    {
        return Value::Pointer(index);
    }
    Value::Stored(walker.kind(), walker.stored())
}
