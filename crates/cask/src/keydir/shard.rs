//! One shard of the directory: an open-addressing table whose slots are sorted by tag.
//!
//! A tag's *home* is its share of the table: `tag × homes / 2³²`, so homes ascend with tags. A slot lies at its home or
//! behind, as close as those with lower tags let it.
//!
//! - K1: occupied slots ascend by tag.
//! - K2: no slot lies before its home, and none between a slot and its home is empty.
//! - K3: storage is chunks of one size. A table grows by a twelfth, never by doubling, and what it frees fits whatever
//!   grows next: neither a peak nor fragmentation.
//!
//! By K1 and K2 a search ends at the first empty slot or higher tag, so a miss costs no more than a hit (at 7/8 full some
//! five slots, one or two cache lines), and a rebuild for another size is one pass in order.

use super::slot::{Place, Slot};

/// Slots in a chunk: 1 KiB.
const CHUNK_SLOTS: usize = 64;
/// Slots behind the last home, so that the last tags nearly always have somewhere to go.
const OVERFLOW_SLOTS_MAX: usize = 48;

#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "chunks stay where they are and have one size, see K3")]
pub(crate) struct Shard {
    chunks: Vec<Box<[Slot; CHUNK_SLOTS]>>,
    /// Places that are some tag's home; behind them is room for the last tags, as much as it takes.
    homes: usize,
    len: usize,
}

impl Shard {
    pub(crate) const EMPTY: Self = Self { chunks: Vec::new(), homes: 0, len: 0 };

    fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK_SLOTS
    }

    /// Bytes of memory behind it.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.capacity() * size_of::<Slot>() + self.chunks.capacity() * size_of::<usize>()
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.homes as u64) >> 32) as usize
    }

    /// The slot at `index`; empty if there is none.
    fn at(&self, index: usize) -> Slot {
        self.chunks
            .get(index / CHUNK_SLOTS)
            .and_then(|chunk| chunk.get(index % CHUNK_SLOTS))
            .copied()
            .unwrap_or(Slot::EMPTY)
    }

    fn at_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.chunks.get_mut(index / CHUNK_SLOTS)?.get_mut(index % CHUNK_SLOTS)
    }

    fn set(&mut self, index: usize, slot: Slot) {
        if let Some(place) = self.at_mut(index) {
            *place = slot;
        }
    }

    /// Where the first slot lies whose tag is not lower, or where it would.
    fn lower_bound(&self, tag: u32) -> usize {
        let mut index = self.home(tag);
        loop {
            let slot = self.at(index);
            if slot.is_empty() || slot.tag() >= tag {
                return index;
            }
            index += 1;
        }
    }

    /// Every slot with this tag.
    #[inline]
    pub(crate) fn with_tag(&self, tag: u32, mut take: impl FnMut(Slot)) {
        let mut index = self.lower_bound(tag);
        loop {
            let slot = self.at(index);
            if slot.is_empty() || slot.tag() != tag {
                return;
            }
            take(slot);
            index += 1;
        }
    }

    fn position(&self, tag: u32, place: Place) -> Option<usize> {
        let mut index = self.lower_bound(tag);
        loop {
            let slot = self.at(index);
            if slot.is_empty() || slot.tag() != tag {
                return None;
            }
            if slot.place() == place {
                return Some(index);
            }
            index += 1;
        }
    }

    /// Adds a slot.
    pub(crate) fn insert(&mut self, slot: Slot) {
        if (self.len + 1) * 8 > self.capacity() * 7 {
            self.rebuild(self.chunks.len() + self.chunks.len() / 12 + 1);
        }
        if let Some(pushed_out) = self.push(slot) {
            let index = self.capacity();
            self.add_chunk();
            self.set(index, pushed_out);
        }
        self.len += 1;
    }

    fn add_chunk(&mut self) {
        self.chunks.reserve_exact(1);
        self.chunks.push(Box::new([Slot::EMPTY; CHUNK_SLOTS]));
    }

    /// Puts a slot into its place, moving those with higher tags on; returns what falls off the end.
    fn push(&mut self, slot: Slot) -> Option<Slot> {
        let mut carried = slot;
        let mut index = self.lower_bound(slot.tag());
        while !carried.is_empty() {
            let Some(place) = self.at_mut(index) else { return Some(carried) };
            std::mem::swap(place, &mut carried);
            index += 1;
        }
        None
    }

    /// Puts `new` where the slot for `place` is. `false` if there is none: somebody was faster.
    pub(crate) fn replace(&mut self, place: Place, new: Slot) -> bool {
        let Some(index) = self.position(new.tag(), place) else { return false };
        self.set(index, new);
        true
    }

    /// Takes the slot for `place` out, and returns it.
    pub(crate) fn remove(&mut self, tag: u32, place: Place) -> Option<Slot> {
        let index = self.position(tag, place)?;
        let removed = self.at(index);
        self.close_gap(index);
        self.len -= 1;
        if self.chunks.len() > 1 && self.len * 2 < self.capacity() {
            self.rebuild((self.len * 8 / 7 / CHUNK_SLOTS) + 1);
        }
        Some(removed)
    }

    /// Moves those behind `index` back by one, as far as their homes allow (K2).
    fn close_gap(&mut self, mut index: usize) {
        loop {
            let next = self.at(index + 1);
            if next.is_empty() || self.home(next.tag()) > index {
                break;
            }
            self.set(index, next);
            index += 1;
        }
        self.set(index, Slot::EMPTY);
    }

    /// Every slot, by ascending tag.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter().copied()).filter(|slot| !slot.is_empty())
    }

    /// Keeps the slots that `keep` wants.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Slot) -> bool) {
        if self.iter().all(|slot| keep(&slot)) {
            return;
        }
        let kept: Vec<Slot> = self.iter().filter(|slot| keep(slot)).collect();
        self.fill(kept.len() * 8 / 7 / CHUNK_SLOTS + 1, &kept);
    }

    fn rebuild(&mut self, chunk_count: usize) {
        let slots: Vec<Slot> = self.iter().collect();
        self.fill(chunk_count, &slots);
    }

    /// Makes `slots`, which ascend, the contents of `chunk_count` chunks, or more if the last tags are many.
    fn fill(&mut self, chunk_count: usize, slots: &[Slot]) {
        self.chunks.truncate(chunk_count);
        self.chunks.iter_mut().for_each(|chunk| chunk.fill(Slot::EMPTY));
        self.chunks.reserve_exact(chunk_count.saturating_sub(self.chunks.len()));
        while self.chunks.len() < chunk_count {
            self.add_chunk();
        }
        let capacity = self.capacity();
        self.homes = capacity - (capacity / 16).min(OVERFLOW_SLOTS_MAX);
        let mut free = 0;
        for slot in slots {
            let index = self.home(slot.tag()).max(free);
            while index >= self.capacity() {
                self.add_chunk();
            }
            self.set(index, *slot);
            free = index + 1;
        }
        self.len = slots.len();
    }
}

#[cfg(test)]
mod tests;
