//! One shard of the directory: an open-addressing table whose slots are sorted by tag.
//!
//! A tag's *home* is its share of the table: `tag × homes / 2³²`, so homes ascend with tags. A slot lies at its home or
//! behind, as close as those with lower tags let it.
//!
//! - K1: occupied slots ascend by tag.
//! - K2: no slot lies before its home, and none between a slot and its home is empty.
//! - K3: a table grows by a twelfth, never by doubling, and is laid out anew where it is; only its slots are copied aside meanwhile.
//!
//! By K1 and K2 a search ends at the first empty slot or higher tag, so a miss costs no more than a hit (at 7/8 full some
//! five slots, one or two cache lines), and a rebuild for another size is one pass in order.

use super::slot::{Place, Slot};
use super::table::{Cursor, SEGMENT_SLOTS, Table};

/// Slots behind the last home, so that the last tags nearly always have somewhere to go.
const OVERFLOW_SLOTS_MAX: usize = 48;

/// How many slots a table takes in memory that holds `len` of them.
pub(super) fn room_for(len: usize) -> usize {
    (len * 8 / 7 + 1).next_multiple_of(SEGMENT_SLOTS)
}

/// Looking: what it finds counts as the table's sequence says.
impl<'a> Table<'a> {
    #[inline]
    pub(super) fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.homes() as u64) >> 32) as usize
    }

    /// Where the search for a tag begins.
    #[inline]
    pub(super) fn begin(&self, tag: u32) -> Cursor<'a> {
        self.cursor(self.home(tag))
    }

    /// Where the first slot lies whose tag is not lower, or where it would.
    #[inline]
    fn lower_bound(&self, tag: u32) -> Cursor<'a> {
        let mut cursor = self.begin(tag);
        cursor.skip_lower(tag);
        while let Some(slot) = cursor.slot() {
            if slot.is_empty() || slot.tag() >= tag {
                break;
            }
            cursor.step();
        }
        cursor
    }

    /// Every slot with this tag.
    #[inline(always)]
    pub(super) fn with_tag(&self, tag: u32, mut take: impl FnMut(Slot)) {
        let mut cursor = self.begin(tag);
        // Half of all searches end in the second line.
        cursor.prefetch();
        cursor.skip_lower(tag);
        while let Some(slot) = cursor.slot() {
            // One question: which of the two it is cannot be guessed.
            if slot.is_empty() | (slot.tag() > tag) {
                return;
            }
            if slot.tag() == tag {
                take(slot);
            }
            cursor.step();
        }
    }

    fn position(&self, tag: u32, place: Place) -> Option<Cursor<'a>> {
        let mut cursor = self.lower_bound(tag);
        loop {
            let slot = cursor.slot().filter(|slot| !slot.is_empty() && slot.tag() == tag)?;
            if slot.place() == place {
                return Some(cursor);
            }
            cursor.step();
        }
    }
}

/// A shard that is the caller's alone to change, until this is dropped.
#[derive(Debug)]
pub(crate) struct Shard<'a> {
    pub(super) table: Table<'a>,
}

impl Drop for Shard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.table.end_change();
    }
}

impl<'a> Shard<'a> {
    /// `None`: somebody else changes it.
    #[inline]
    pub(super) fn try_lock(table: Table<'a>) -> Option<Self> {
        // Made only then: dropping one ends a change.
        table.try_begin_change().then(|| Self { table })
    }

    /// Adds a slot.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let (capacity, len) = (self.table.capacity(), self.table.len());
        if (len + 1) * 8 > capacity * 7 {
            self.resize(capacity + capacity / 12 + 1);
        }
        if let Some(pushed_out) = self.push(slot) {
            let end = self.table.capacity();
            self.lengthen(end + SEGMENT_SLOTS);
            self.table.cursor(end).set(pushed_out);
        }
        self.table.set_homes_and_len(self.table.homes(), len + 1);
    }

    /// Empty slots behind the last.
    fn lengthen(&mut self, capacity: usize) {
        let mut cursor_at = self.table.capacity();
        self.table.set_capacity(capacity);
        while cursor_at < capacity {
            self.table.cursor(cursor_at).set(Slot::EMPTY);
            cursor_at += 1;
        }
    }

    /// Puts a slot into its place, moving those with higher tags on; returns what falls off the end.
    fn push(&mut self, slot: Slot) -> Option<Slot> {
        let mut carried = slot;
        let mut cursor = self.table.lower_bound(slot.tag());
        while let Some(found) = cursor.slot() {
            cursor.set(carried);
            if found.is_empty() {
                return None;
            }
            carried = found;
            cursor.step();
        }
        Some(carried)
    }

    /// Puts `new` where the slot for `place` is. `false` if there is none: somebody was faster.
    pub(crate) fn replace(&mut self, place: Place, new: Slot) -> bool {
        self.table.position(new.tag(), place).is_some_and(|cursor| cursor.set(new))
    }

    /// Takes the slot for `place` out, and returns it.
    pub(crate) fn remove(&mut self, tag: u32, place: Place) -> Option<Slot> {
        let cursor = self.table.position(tag, place)?;
        let removed = cursor.slot();
        self.close_gap(cursor);
        let (capacity, len) = (self.table.capacity(), self.table.len() - 1);
        self.table.set_homes_and_len(self.table.homes(), len);
        if capacity > SEGMENT_SLOTS && len * 2 < capacity {
            self.resize(len * 8 / 7 + 1);
        }
        removed
    }

    /// Moves those behind `gap` back by one, as far as their homes allow (K2).
    fn close_gap(&mut self, mut gap: Cursor<'_>) {
        loop {
            let mut next = gap;
            next.step();
            let Some(slot) = next.slot().filter(|slot| !slot.is_empty()) else { break };
            if self.table.home(slot.tag()) > gap.index() {
                break;
            }
            gap.set(slot);
            gap = next;
        }
        gap.set(Slot::EMPTY);
    }

    /// Lays the slots out anew in a table of at least `capacity` (K3).
    fn resize(&mut self, capacity: usize) {
        self.lay_out(&self.table.taken(), capacity);
    }

    pub(super) fn row(&self, len: usize) -> impl Iterator<Item = Slot> + 'a {
        let mut cursor = self.table.cursor(0);
        (0..len).map_while(move |_| {
            let slot = cursor.slot();
            cursor.step();
            slot
        })
    }

    /// These and no others, which ascend by tag.
    fn lay_out(&mut self, slots: &[Slot], capacity: usize) {
        let capacity = capacity.max(slots.len() + 1).next_multiple_of(SEGMENT_SLOTS);
        let homes = capacity - (capacity / 16).min(OVERFLOW_SLOTS_MAX);
        self.table.set_homes_and_len(homes, slots.len());
        // Where the last one will lie: more room than was asked for, if the last tags are many.
        let end = slots.iter().fold(0, |free, slot| self.table.home(slot.tag()).max(free) + 1);
        self.table.set_capacity(end.max(capacity).next_multiple_of(SEGMENT_SLOTS));
        let mut free = 0;
        self.table.fill(slots, |slot| {
            let at = self.table.home(slot.tag()).max(free);
            free = at + 1;
            at
        });
    }
}

/// While a store is being opened, a shard is a list in no order first: in the memory of the table that it becomes.
impl Shard<'_> {
    /// Adds slots to the list.
    pub(crate) fn gather(&mut self, slots: &[Slot]) {
        let len = self.table.len();
        let end = len + slots.len();
        if end > self.table.capacity() {
            self.table.set_capacity(end.next_multiple_of(SEGMENT_SLOTS));
        }
        let mut cursor = self.table.cursor(len);
        for slot in slots {
            cursor.set(*slot);
            cursor.step();
        }
        self.table.set_homes_and_len(0, end);
    }

    /// Takes the list out.
    pub(crate) fn take_gathered(&mut self) -> Vec<Slot> {
        let gathered = self.row(self.table.len()).collect();
        self.table.set_homes_and_len(0, 0);
        gathered
    }

    /// A table of these, which ascend by tag, in place of everything.
    pub(crate) fn settle(&mut self, slots: &[Slot]) {
        if slots.is_empty() {
            self.table.set_homes_and_len(0, 0);
            self.table.set_capacity(0);
        } else {
            self.lay_out(slots, room_for(slots.len()));
        }
    }
}
