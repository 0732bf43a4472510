//! One shard of the directory: an open-addressing table whose slots are sorted by tag.
//!
//! A tag's *home* is its share of the table: `tag × homes / 2³²`, so homes ascend with tags. A slot lies at its home or
//! behind, as close as those with lower tags let it.
//!
//! - K1: occupied slots ascend by tag.
//! - K2: no slot lies before its home, and none between a slot and its home is empty.
//! - K3: a table grows by a twelfth, never by doubling, and is laid out anew in place: no second table beside it.
//!
//! By K1 and K2 a search ends at the first empty slot or higher tag, so a miss costs no more than a hit (at 7/8 full some
//! five slots, one or two cache lines), and a rebuild for another size is two passes in order.

use super::slot::{Place, Slot};

/// A table grows in steps of so many slots: 1 KiB.
const STEP_SLOTS: usize = 64;
/// Slots behind the last home, so that the last tags nearly always have somewhere to go.
const OVERFLOW_SLOTS_MAX: usize = 48;

#[derive(Debug, Default)]
pub(crate) struct Shard {
    slots: Vec<Slot>,
    /// Places that are some tag's home; behind them is room for the last tags, as much as it takes.
    homes: usize,
    len: usize,
}

impl Shard {
    pub(crate) const EMPTY: Self = Self { slots: Vec::new(), homes: 0, len: 0 };

    const fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory behind it.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.homes as u64) >> 32) as usize
    }

    /// The slot at `index`; empty if there is none.
    #[inline]
    fn at(&self, index: usize) -> Slot {
        self.slots.get(index).copied().unwrap_or(Slot::EMPTY)
    }

    fn at_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)
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

    /// How many slots a table takes in memory that holds `len` of them.
    pub(crate) fn room_for(len: usize) -> usize {
        (len * 8 / 7 + 1).div_ceil(STEP_SLOTS) * STEP_SLOTS
    }

    /// A table of `slots`, which ascend by tag: in the memory that they have, if that is about what a table needs.
    pub(crate) fn from_sorted(slots: Vec<Slot>) -> Self {
        let (len, room) = (slots.len(), slots.capacity() / STEP_SLOTS * STEP_SLOTS);
        if len == 0 {
            return Self::default();
        }
        let least = Self::room_for(len);
        let mut shard = Self { slots, homes: 0, len };
        shard.resize(if room <= least + least / 8 { room.max(least) } else { least });
        shard
    }

    /// Adds a slot.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let capacity = self.capacity();
        if (self.len + 1) * 8 > capacity * 7 {
            self.resize(capacity + capacity / 12 + 1);
        }
        if let Some(pushed_out) = self.push(slot) {
            let index = self.capacity();
            self.lengthen(index + STEP_SLOTS);
            self.set(index, pushed_out);
        }
        self.len += 1;
    }

    /// Empty slots behind the last.
    fn lengthen(&mut self, capacity: usize) {
        self.slots.reserve_exact(capacity.saturating_sub(self.slots.len()));
        self.slots.resize(capacity, Slot::EMPTY);
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
        if self.capacity() > STEP_SLOTS && self.len * 2 < self.capacity() {
            self.resize(self.len * 8 / 7 + 1);
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

    /// Lays the slots out anew in a table of at least `capacity`, in place (K3): first all move to the end, then each to where
    /// it belongs, which is never behind where it waits.
    fn resize(&mut self, capacity: usize) {
        let capacity = capacity.max(self.len + 1).div_ceil(STEP_SLOTS) * STEP_SLOTS;
        self.homes = capacity - (capacity / 16).min(OVERFLOW_SLOTS_MAX);
        self.slots.retain(|slot| !slot.is_empty());
        // Where the last one will lie: more room than was asked for, if the last tags are many.
        let end = self.slots.iter().fold(0, |free, slot| self.home(slot.tag()).max(free) + 1);
        let capacity = end.max(capacity);
        self.lengthen(capacity);
        self.slots.shrink_to(capacity);
        self.slots.copy_within(..self.len, capacity - self.len);
        let vacated = (capacity - self.len).min(self.len);
        self.slots.iter_mut().take(vacated).for_each(|slot| *slot = Slot::EMPTY);
        let mut free = 0;
        for index in capacity - self.len..capacity {
            let slot = self.at(index);
            // Never behind `index`: those that follow need as many places before the end as they wait in.
            let place = self.home(slot.tag()).max(free);
            self.set(index, Slot::EMPTY);
            self.set(place, slot);
            free = place + 1;
        }
    }
}

#[cfg(test)]
mod tests;
