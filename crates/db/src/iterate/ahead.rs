//! Entries that the walker has passed before the user asks for them, so that their separated values are read together.
//!
//! - L1: entries lie here in the order in which they will be shown: those of `shown`, then those of `coming`. The walker stands on the last of
//!   them, or has ended.
//! - L2: an error that the walker met is kept, and told when the user comes to where it was met; every entry before it
//!   is shown.
//! - L3: a value that could not be read ahead is read when it is asked for, and its error told then.
//! - L4: values are read once the first of them is asked for, and checked when each is: what is read ahead and not
//!   wanted costs its read only. Where the walk is sure to go on, those of what is coming are read and unpacked [beside](super::aide) it before.
//! - L5: memory is bounded by `look_ahead_bytes` of keys and values, and an entry more; with an aide by what it unpacks besides (`stretch` S4), twice.
//!
//! How far: nothing before the user has asked for a separated value; then as far as [`pace`](super::pace) says.

use std::cell::RefCell;
use std::sync::Arc;

use super::aide::{Aide, Errand};
use super::pace::Pace;
use super::stretch::{Length, Stretch, Value, renewed};
use super::walk::Walker;
use crate::Result;
use crate::blob::{Announced, BlobBatch};
use crate::family::{Family, View};
use crate::operands::Reader;
use crate::pinned::PinnedSlice;
use crate::read::BlobReader;

/// So many bytes of values are worth waking somebody up for: what takes 100 µs to check and unpack.
const WORTH_BYTES: u64 = 64 << 10;

/// See the module's head.
#[derive(Default)]
pub(super) struct Ahead {
    shown: Arc<Stretch>,
    /// The entry of `shown` that is shown; none if it has no such entry.
    at: usize,
    coming: Arc<Stretch>,
    /// What ended the walk (L2).
    failure: Option<crate::Error>,
    announced: RefCell<Announced>,
}

impl Ahead {
    /// Whether it shows an entry.
    #[inline]
    pub(super) fn shows(&self) -> bool {
        self.at < self.shown.count()
    }

    /// The key that it shows.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.shown.key(self.at)
    }

    /// The value of the entry that it shows.
    pub(super) fn value(&self, from: &Reader<'_>, pace: &Pace) -> Result<PinnedSlice> {
        let Some(value) = self.shown.value(self.at) else { return Ok(PinnedSlice::default()) };
        self.shown.ask(self.at);
        match value {
            Value::Stored(kind, stored) => from.value(self.key(), *kind, stored.clone()),
            Value::Pointer(index) => {
                if let Some(taken) = self.shown.take(self.at, index) {
                    return taken;
                }
                if let Some(read) = self.shown.read() {
                    read.count(from.blobs, &from.family.walks);
                    if self.coming.count() == 0 {
                        self.announce(&self.shown, pace);
                    }
                }
                let taken = self.shown.take(self.at, index);
                taken.unwrap_or_else(|| from.blobs.read_at(from.view, self.key(), index))
            }
        }
    }

    /// Has the system told of what comes after `stretch`, if that is sure enough.
    fn announce(&self, stretch: &Stretch, pace: &Pace) {
        if let (Some(batch), Some(onward)) = (stretch.batch(), pace.onward()) {
            batch.announce(&mut self.announced.borrow_mut(), onward);
        }
    }

    /// The length of that value.
    pub(super) fn value_len(&self, from: &Reader<'_>) -> Result<u64> {
        match self.shown.value(self.at) {
            None => Ok(0),
            Some(Value::Stored(kind, stored)) => from.value_len(self.key(), *kind, stored),
            Some(Value::Pointer(index)) => from.blobs.value_len_at(from.view, self.key(), index),
        }
    }

    /// To the next entry of those that are shown; `false` if that was the last of them.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        if self.at + 1 < self.shown.count() {
            self.at += 1;
            return true;
        }
        false
    }

    /// Shows what was coming; `false` if nothing was, and the walk goes on where it ended.
    pub(super) fn turn(&mut self) -> bool {
        if self.coming.count() == 0 {
            return false;
        }
        std::mem::swap(&mut self.shown, &mut self.coming);
        forget(&mut self.coming);
        self.at = 0;
        true
    }

    /// Whether the value of the entry that it shows is separated, and was asked for.
    pub(super) fn was_asked(&self) -> bool {
        self.shown.was_asked(self.at)
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

    /// Of the separated values that are shown, how many there are and how many were asked for.
    pub(super) fn asked(&self) -> (usize, usize) {
        self.shown.asked()
    }

    /// Forgets all entries; the memory of what they held serves the next ones.
    fn empty(&mut self) {
        forget(&mut self.shown);
        forget(&mut self.coming);
        self.at = 0;
    }

    /// Passes entries after the one that the walker stands on, as far as `length` says, and shows the first of them. Nothing is coming.
    /// Without any, the walk is over, or has failed: [`end`](Self::end) says which.
    pub(super) fn fill(&mut self, walker: &mut Walker, view: &View, length: Length) {
        self.at = 0;
        let filled = renewed(&mut self.shown).map(|shown| shown.fill(walker, view, length));
        self.failure = filled.and_then(Result::err);
    }

    /// The same for what is coming after that.
    pub(super) fn fill_coming(&mut self, walker: &mut Walker, view: &View, length: Length) {
        let filled = renewed(&mut self.coming).map(|coming| coming.fill(walker, view, length));
        self.failure = filled.and_then(Result::err);
    }

    /// Has what is coming read and unpacked beside the walk, or begun to be read where it is little; it is sure to be asked for.
    pub(super) fn hand_over(&self, aide: &Aide, blobs: &BlobReader, family: &Arc<Family>, pace: &Pace) {
        let Some(batch) = self.coming.batch() else { return };
        if batch.bytes() < WORTH_BYTES {
            batch.will_read();
        } else {
            let stretch = Arc::downgrade(&self.coming);
            aide.hand_over(Errand { stretch, blobs: blobs.clone(), family: family.clone() });
        }
        self.announce(&self.coming, pace);
    }

    /// Whether the values that were passed last lie beside each other.
    pub(super) fn lies_together(&self) -> bool {
        let last = if self.coming.count() > 0 { &self.coming } else { &self.shown };
        last.batch().is_some_and(BlobBatch::lies_together)
    }
}

#[cfg(test)]
impl Ahead {
    /// What is shown, and what is coming.
    pub(super) fn stretches(&self) -> (&Stretch, &Stretch) {
        (&self.shown, &self.coming)
    }
}

/// Forgets the entries of `stretch`, and keeps its memory unless somebody is at it.
fn forget(stretch: &mut Arc<Stretch>) {
    if let Some(stretch) = renewed(stretch) {
        stretch.empty();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The next iterator may use the memory.
        self.empty();
    }
}
