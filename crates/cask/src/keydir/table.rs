//! The memory of one shard: a head and a row of slots, as words that anybody may read at any time.
//!
//! | words of a head | meaning                                                                                         |
//! |----------------:|-------------------------------------------------------------------------------------------------|
//! |               0 | the sequence: odd while somebody changes the shard                                              |
//! |               1 | homes; slots that are taken                                                                     |
//! |               2 | slots that there is room for; segment with the numbers of 512 more segments                     |
//! |               3 | segment with the numbers of 512 segments, each of which has those of 512 more                   |
//! |           4..32 | numbers of the first 56 segments: enough for 25 million keys in the whole directory             |
//!
//! - Q1: words of a shard change only while its sequence is odd, by whoever made it odd. It never goes down.
//! - Q2: what a reader has seen counts if the sequence was even before and is the same afterwards: then nothing of it
//!   changed in between. What it saw otherwise may be any words at all, so every step of a reader is bounded, and nothing but
//!   words of the directory is touched.
//! - Q3: order. Whoever makes the sequence odd has a release fence behind that, and makes it even by a release store. A reader loads
//!   it first with acquire, and last behind an acquire fence. So who sees one word of a change sees the odd sequence, or a later one
//!   (for segments that change hands, by M2 of `arena.rs`).

use super::arena::{Arena, SegmentId, exhausted};
use super::slot::Slot;
use crate::sync::SEGMENT_WORDS;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Four lines of a processor's cache.
pub(super) const HEAD_WORDS: usize = 32;
/// What of a head, and of slots, is fetched ahead.
const FETCH_LINES: usize = 2;
/// The same for who adds a slot: all behind it up to an empty one move on.
const FETCH_LINES_TO_INSERT: usize = 5;
/// A table grows in steps of so many slots: a segment.
pub(super) const SEGMENT_SLOTS: usize = SEGMENT_WORDS / 2;
/// Numbers of segments in a segment.
const LIST_LEN: usize = SEGMENT_WORDS * 2;
/// Slots that are looked at together: two lines.
const AT_ONCE: usize = 8;
const DIRECT_AT: usize = 4;
const DIRECT_LEN: usize = (HEAD_WORDS - DIRECT_AT) * 2;

pub(super) type Head = [AtomicU64; HEAD_WORDS];

/// See the module's head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    arena: &'a Arena,
    head: &'a Head,
}

const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

const fn word(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The number at `index` of a row of numbers.
fn number(words: &[AtomicU64], index: usize) -> u32 {
    let Some(both) = words.get(index / 2) else { return 0 };
    let (low, high) = halves(both.load(Ordering::Relaxed));
    if index.is_multiple_of(2) { low } else { high }
}

fn set_number(words: &[AtomicU64], index: usize, number: u32) {
    let Some(both) = words.get(index / 2) else { return };
    let (low, high) = halves(both.load(Ordering::Relaxed));
    let changed = if index.is_multiple_of(2) { word(number, high) } else { word(low, number) };
    both.store(changed, Ordering::Relaxed);
}

#[inline]
fn loaded([first, second]: &[AtomicU64; 2]) -> Slot {
    Slot::from_words([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)])
}

#[inline]
fn store([first, second]: &[AtomicU64; 2], slot: Slot) {
    let [tag_and_file, offset_and_bytes] = slot.words();
    first.store(tag_and_file, Ordering::Relaxed);
    second.store(offset_and_bytes, Ordering::Relaxed);
}

impl<'a> Table<'a> {
    /// Of the shard at `index`.
    #[inline]
    pub(super) fn new(arena: &'a Arena, index: usize) -> Self {
        let head = arena.heads().get(index * HEAD_WORDS..).and_then(|heads| heads.first_chunk());
        Self { arena, head: head.unwrap_or_else(|| arena.no_head()) }
    }

    /// Its sequence, if nobody changes it now.
    #[inline]
    pub(super) fn begin_read(&self) -> Option<u64> {
        let sequence = self.head[0].load(Ordering::Acquire);
        sequence.is_multiple_of(2).then_some(sequence)
    }

    /// Whether nothing has changed since.
    #[inline]
    pub(super) fn is_as_at(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.head[0].load(Ordering::Relaxed) == sequence
    }

    /// Makes it the caller's to change. `false`: somebody else changes it.
    #[inline]
    pub(super) fn try_begin_change(&self) -> bool {
        let sequence = self.head[0].load(Ordering::Relaxed);
        let begun = sequence.is_multiple_of(2)
            && self.head[0].compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        fence(Ordering::Release);
        begun
    }

    /// Shows what was changed. Only by whoever began it.
    #[inline]
    pub(super) fn end_change(&self) {
        let sequence = self.head[0].load(Ordering::Relaxed);
        self.head[0].store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// Says that it will be looked at soon.
    #[inline]
    pub(super) fn prefetch_head(&self) {
        esker_env::os::prefetch_lines::<FETCH_LINES, _>(self.head);
    }

    #[inline]
    pub(super) fn homes(&self) -> usize {
        halves(self.head[1].load(Ordering::Relaxed)).0 as usize
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        halves(self.head[1].load(Ordering::Relaxed)).1 as usize
    }

    /// Neither can be more than the slots that [`capacity`](Self::capacity) counts.
    pub(super) fn set_homes_and_len(&self, homes: usize, len: usize) {
        self.head[1].store(word(homes as u32, len as u32), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        halves(self.head[2].load(Ordering::Relaxed)).0 as usize
    }

    fn list(&self) -> SegmentId {
        halves(self.head[2].load(Ordering::Relaxed)).1
    }

    fn list_of_lists(&self) -> SegmentId {
        self.head[3].load(Ordering::Relaxed) as u32
    }

    fn direct(&self) -> &'a [AtomicU64] {
        self.head.split_at(DIRECT_AT).1
    }

    fn segment_id(&self, index: usize) -> SegmentId {
        let Some(index) = index.checked_sub(DIRECT_LEN) else { return number(self.direct(), index) };
        let Some(index) = index.checked_sub(LIST_LEN) else { return number(self.arena.segment(self.list()), index) };
        let list = number(self.arena.segment(self.list_of_lists()), index / LIST_LEN);
        number(self.arena.segment(list), index % LIST_LEN)
    }

    /// Notes the number of the segment behind the last.
    fn add_segment(&self, index: usize, id: SegmentId) {
        let Some(index) = index.checked_sub(DIRECT_LEN) else { return set_number(self.direct(), index, id) };
        let Some(index) = index.checked_sub(LIST_LEN) else {
            if index == 0 {
                self.head[2].store(word(self.capacity() as u32, self.arena.take()), Ordering::Relaxed);
            }
            return set_number(self.arena.segment(self.list()), index, id);
        };
        if index / LIST_LEN >= LIST_LEN {
            exhausted();
        }
        if index == 0 {
            self.head[3].store(self.arena.take().into(), Ordering::Relaxed);
        }
        let lists = self.arena.segment(self.list_of_lists());
        if index.is_multiple_of(LIST_LEN) {
            set_number(lists, index / LIST_LEN, self.arena.take());
        }
        set_number(self.arena.segment(number(lists, index / LIST_LEN)), index % LIST_LEN, id);
    }

    /// Gives the last segment back, and the lists that had no number but its.
    fn remove_segment(&self, index: usize) {
        self.arena.give_back(self.segment_id(index));
        let Some(index) = index.checked_sub(DIRECT_LEN) else { return };
        if index == 0 {
            self.arena.give_back(self.list());
        }
        let Some(index) = index.checked_sub(LIST_LEN) else { return };
        if index.is_multiple_of(LIST_LEN) {
            self.arena.give_back(number(self.arena.segment(self.list_of_lists()), index / LIST_LEN));
        }
        if index == 0 {
            self.arena.give_back(self.list_of_lists());
        }
    }

    /// Room for so many slots, a multiple of [`SEGMENT_SLOTS`]. New ones hold anything.
    pub(super) fn set_capacity(&self, capacity: usize) {
        let (now, wanted) = (self.capacity() / SEGMENT_SLOTS, capacity / SEGMENT_SLOTS);
        for index in now..wanted {
            self.add_segment(index, self.arena.take());
        }
        for index in (wanted..now).rev() {
            self.remove_segment(index);
        }
        self.head[2].store(word(capacity as u32, self.list()), Ordering::Relaxed);
    }

    /// The words of the segment that slot `index` is in; none behind the last.
    #[inline]
    fn segment_of(&self, index: usize) -> &'a [AtomicU64] {
        if index < self.capacity() { self.arena.segment(self.segment_id(index / SEGMENT_SLOTS)) } else { &[] }
    }

    /// The words of all segments in their order. The next one is on its way while one is looked at: they lie anywhere in memory.
    fn segments(&self) -> impl Iterator<Item = &'a [AtomicU64]> {
        let table = *self;
        let indexes = (0..self.capacity()).step_by(SEGMENT_SLOTS);
        indexes.map(move |index| {
            esker_env::os::prefetch(table.segment_of(index + SEGMENT_SLOTS));
            table.segment_of(index)
        })
    }

    /// The slots that are taken, in their order.
    pub(super) fn taken(&self) -> Vec<Slot> {
        let mut taken = vec![Slot::EMPTY; self.len() + 1];
        let mut count = 0;
        for pair in self.segments().flat_map(|words| words.as_chunks().0) {
            let slot = loaded(pair);
            // No question asked: which of them are empty cannot be guessed.
            if let Some(place) = taken.get_mut(count) {
                *place = slot;
            }
            count += usize::from(!slot.is_empty());
        }
        taken.truncate(count);
        taken
    }

    /// Puts slots where `place` says, which ascends, and makes all others empty.
    pub(super) fn fill(&self, slots: &[Slot], mut place: impl FnMut(&Slot) -> usize) {
        let mut segments =
            self.segments().inspect(|words| words.iter().for_each(|word| word.store(0, Ordering::Relaxed)));
        let (mut words, mut end): (&[AtomicU64], _) = (&[], 0);
        for slot in slots {
            let at = place(slot);
            while at >= end {
                let Some(next) = segments.next() else { return };
                (words, end) = (next, end + SEGMENT_SLOTS);
            }
            if let Some(pair) = words.as_chunks().0.get(at % SEGMENT_SLOTS) {
                store(pair, *slot);
            }
        }
        segments.for_each(drop);
    }

    /// At slot `index`.
    #[inline]
    pub(super) fn cursor(&self, index: usize) -> Cursor<'a> {
        Cursor { table: *self, index, words: self.segment_of(index) }
    }
}

/// Goes along the slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    table: Table<'a>,
    index: usize,
    /// Of the segment that it is in.
    words: &'a [AtomicU64],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    #[inline]
    fn pair(&self) -> Option<&'a [AtomicU64; 2]> {
        self.words.get(self.index % SEGMENT_SLOTS * 2..)?.first_chunk()
    }

    /// The slot that it stands at; `None` behind the last.
    #[inline]
    pub(super) fn slot(&self) -> Option<Slot> {
        self.pair().map(loaded)
    }

    /// Puts a slot in its place. `false` behind the last.
    #[inline]
    pub(super) fn set(&self, slot: Slot) -> bool {
        self.pair().map(|pair| store(pair, slot)).is_some()
    }

    /// Goes on to the first slot whose tag is not lower, which is not before this one, if it is one of the next few. By K1 and K2 of
    /// `shard.rs` it is as many slots away as there are lower tags, so the processor need not guess where the search ends: a wrong guess
    /// would take back what it has begun beyond.
    #[inline]
    pub(super) fn skip_lower(&mut self, tag: u32) {
        let from = self.index % SEGMENT_SLOTS * 2;
        let Some(few) = self.words.get(from..).and_then(<[AtomicU64]>::first_chunk::<{ AT_ONCE * 2 + 2 }>) else {
            return;
        };
        let is_lower = |[first, _]: &&[AtomicU64; 2]| {
            let (found, file) = halves(first.load(Ordering::Relaxed));
            (found < tag) & (file != 0)
        };
        self.index += few.as_chunks().0.iter().take(AT_ONCE).filter(is_lower).count();
    }

    #[inline]
    pub(super) fn step(&mut self) {
        self.index += 1;
        if self.index.is_multiple_of(SEGMENT_SLOTS) {
            self.words = self.table.segment_of(self.index);
        }
    }

    /// Says that the next few will be looked at soon.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.prefetch_lines::<FETCH_LINES>();
    }

    /// Says that the next few will be moved on soon.
    #[inline]
    pub(super) fn prefetch_for_insertion(&self) {
        self.prefetch_lines::<FETCH_LINES_TO_INSERT>();
    }

    #[inline]
    fn prefetch_lines<const N: usize>(&self) {
        let from = self.index % SEGMENT_SLOTS * 2;
        esker_env::os::prefetch_lines::<N, _>(self.words.get(from..).unwrap_or_default());
    }
}
