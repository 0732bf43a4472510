//! Internal keys and their values in order, in a skip list that many threads add to and read at the same time.
//!
//! | part of a node | bytes     | what                                                                              |
//! |----------------|----------:|-----------------------------------------------------------------------------------|
//! | links above    | 8 (h - 1) | next node at level h - 1, ..., at level 1, for a node of height h                  |
//! | next           |         8 | next node at level 0; pointers to a node point here                                |
//! | key bytes      |         4 | length of the internal key                                                        |
//! | value bytes    |         4 | length of the value                                                               |
//! | key            |         k | user key and tag                                                                  |
//! | value          |         v | the value, up to the next multiple of 8                                           |
//!
//! Thread safety: [`SkipList::insert`] and all reads may run at the same time in any number of threads, without locks.
//! Nothing is ever removed, so readers announce themselves to nobody.
//!
//! - S1: a node is alive as long as the list: it lies in the list's arena (A2).
//! - S2: a node's height, key and value are written before it is linked and never again.
//! - S3: only a node of a height above `level` is linked at `level`. Who came to a node at `level` may follow its links
//!   at `level` and below.
//! - S4: a node is linked from level 0 upward: whoever meets it at a level has it at the levels below.
//! - S5: at each level nodes are in order. A link changes only from a node's successor to a new node between the two.
//!
//! Memory order. A link is set with release and followed with acquire, so whoever meets a node sees what was written
//! before it was linked: its key and value (S2) and its own links (S4). Nothing else is read through a node. The height
//! of the list and the last nodes are hints: any value of theirs gives the same answer, sooner or later, so relaxed
//! order does for the first, and the second needs acquire only because keys are compared through it.
//!
//! After Herlihy and Shavit, "The Art of Multiprocessor Programming", chapter 14, without removal; the place of the links
//! before the node is that of RocksDB's `InlineSkipList`.
//!
//! - S6: fingers point to nodes of this list of a height above 1.
//!
//! Cost: of a short list, `log4(n)` levels of two comparisons on average, a cache miss for each; a key after all others, one comparison.
//! Of a long one, a search in the cache ([`super::fingers`]) and some three to six nodes at the lowest two levels.

use std::cmp;
use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use esker_format::rocksdb::internal_key::TAG_BYTES;
use esker_format::rocksdb::order::Order;

use super::TALL_MIN;
use super::arena::{Arena, PIECE_ALIGNMENT};
use super::fingers::Fingers;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Levels at most: with every fourth node one higher, enough for 4^12, 16 million nodes.
const HEIGHT_MAX: usize = 12;

/// How often they are made: the last time for 2^19 nodes, which takes some ten milliseconds. From then on, steps get more.
const FINGERS_MAX: usize = 8;
/// Steps from a finger on, at each level, after which a search begins anew from the top: many keys with equal first bytes.
const STEPS_MAX: usize = 24;

type Link = AtomicPtr<Node>;

/// What a pointer to a node points to; links lie before it, key and value after it.
#[repr(C, align(8))]
#[derive(Debug)]
struct Node {
    next: Link,
    key_bytes: u32,
    value_bytes: u32,
}

const _: () = assert!(align_of::<Node>() == PIECE_ALIGNMENT && align_of::<Link>() <= PIECE_ALIGNMENT);

/// Before the first node: of full height, without key and value.
#[repr(C)]
#[derive(Debug)]
struct Head {
    above: [Link; HEIGHT_MAX - 1],
    node: Node,
}

/// A node of height above the level at which it was met, or the head.
type NodePointer = NonNull<Node>;

/// See the module's head.
#[derive(Debug)]
pub(super) struct SkipList {
    head: Head,
    /// Height of the highest node.
    height: AtomicUsize,
    /// At each level a node that was the last there not long ago, or null: where a sequence of rising keys goes on.
    last: [Link; HEIGHT_MAX],
    /// How many nodes are of a height above 1.
    tall_count: AtomicUsize,
    fingers: [OnceLock<Fingers<Detached>>; FINGERS_MAX],
    /// How many of them there are.
    fingers_count: AtomicUsize,
    /// Memory that they take.
    fingers_bytes: AtomicUsize,
    arena: Arena,
    order: Order,
}

/// A user key and a tag, in parts.
#[derive(Clone, Copy)]
struct Place<'a> {
    user_key: &'a [u8],
    tag: u64,
}

impl<'a> Place<'a> {
    /// Total, as [`Order::compare_internal`] is: too short counts as the empty key with tag 0.
    #[inline]
    fn of(internal: &'a [u8]) -> Self {
        match internal.split_last_chunk::<TAG_BYTES>() {
            Some((user_key, tag)) => Self { user_key, tag: u64::from_le_bytes(*tag) },
            None => Self { user_key: &[], tag: 0 },
        }
    }

    #[inline]
    fn compare(self, other: Self, order: Order) -> cmp::Ordering {
        order.compare(self.user_key, other.user_key).then_with(|| other.tag.cmp(&self.tag))
    }
}

/// Between which two nodes a new one goes, at one level.
#[derive(Clone, Copy)]
struct Gap {
    before: NodePointer,
    after: *mut Node,
}

impl Default for SkipList {
    fn default() -> Self {
        Self {
            head: Head {
                above: Default::default(),
                node: Node { next: Link::default(), key_bytes: 0, value_bytes: 0 },
            },
            height: AtomicUsize::new(1),
            last: Default::default(),
            tall_count: AtomicUsize::new(0),
            fingers: Default::default(),
            fingers_count: AtomicUsize::new(0),
            fingers_bytes: AtomicUsize::new(0),
            arena: Arena::default(),
            order: Order::default(),
        }
    }
}

impl SkipList {
    /// An empty one of keys in `order`.
    pub(super) fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// An empty one, which takes over the memory of this one once it goes.
    pub(super) fn next(&self) -> Self {
        Self { arena: self.arena.next(), order: self.order, ..Self::default() }
    }

    /// See [`Arena::spare_bytes`].
    pub(super) fn spare_bytes(&self) -> usize {
        self.arena.spare_bytes()
    }

    /// See [`Arena::give_back_spare`].
    pub(super) fn give_back_spare(&self, bytes: usize) {
        self.arena.give_back_spare(bytes);
    }

    /// Memory taken so far; see [`Arena::used_bytes`].
    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        self.arena.used_bytes() + self.fingers_bytes.load(Ordering::Relaxed)
    }

    /// Adds an entry. A reader that begins after this returned meets it.
    ///
    /// Of two entries with equal keys both stay, in any order; going backward only one of them may be met.
    /// Ends the process if memory cannot be had, or if key or value exceed 4 GiB, which no batch can hold.
    pub(super) fn insert(&self, user_key: &[u8], tag: u64, value: &[u8]) {
        let height = height_of(user_key, tag);
        let node = self.new_node(height, user_key, tag, value);
        self.height.fetch_max(height, Ordering::Relaxed);
        let place = Place { user_key, tag };
        let mut gaps = [Gap { before: self.head(), after: ptr::null_mut() }; HEIGHT_MAX];
        if !self.find_gaps_at_end(place, height, &mut gaps) && !self.find_low_gaps(place, height, &mut gaps) {
            self.find_gaps(place, height, &mut gaps);
        }
        for (level, gap) in gaps.iter_mut().enumerate().take(height) {
            // SAFETY: S3: `gap.before` was met at `level`, the head is of full height, and `node` of `height`.
            unsafe { self.link(node, place, level, gap) };
        }
        if height > 1 {
            self.note_tall();
        }
    }

    /// Makes fingers when there are enough nodes for them: whoever adds the last of these does.
    fn note_tall(&self) {
        let count = self.tall_count.fetch_add(1, Ordering::Relaxed) + 1;
        // They go by bytes.
        if count < TALL_MIN || !count.is_power_of_two() || !self.order.is_bytewise() {
            return;
        }
        let index = (count / TALL_MIN).trailing_zeros() as usize;
        if let Some(place) = self.fingers.get(index) {
            let fingers = self.make_fingers(count);
            self.fingers_bytes.fetch_add(fingers.bytes(), Ordering::Relaxed);
            let _ = place.set(fingers);
            self.fingers_count.fetch_max(index + 1, Ordering::Release);
        }
    }

    #[cold]
    fn make_fingers(&self, count: usize) -> Fingers<Detached> {
        let mut nodes = Vec::with_capacity(count);
        let mut at = self.head();
        // SAFETY: S3: the head is of full height, and the others were met at level 1.
        while let Some(next) = NonNull::new(unsafe { link_at(at, 1) }.load(Ordering::Acquire)) {
            let entry = self.entry(next);
            nodes.push((Place::of(entry.key()).user_key, entry.detach()));
            at = next;
        }
        Fingers::new(&nodes)
    }

    /// The gaps for `place` at levels 1 and 0, if it is not far behind a finger.
    #[inline]
    fn low_gaps(&self, place: Place<'_>, is_before: impl Fn(&[u8]) -> bool) -> Option<[Gap; 2]> {
        let newest = self.fingers_count.load(Ordering::Acquire).checked_sub(1)?;
        let before = self.fingers.get(newest)?.get()?.before(place.user_key)?.0;
        // SAFETY: S6, so it has links at levels 1 and 0; so has whoever was met at level 1 (S3).
        let above = unsafe { self.walk_some(before, 1, ptr::null_mut(), &is_before) }?;
        // SAFETY: as above.
        let lowest = unsafe { self.walk_some(above.before, 0, above.after, &is_before) }?;
        Some([lowest, above])
    }

    /// The gaps for `place` at levels below `height`, if that is no more than 2 and a finger is near.
    fn find_low_gaps(&self, place: Place<'_>, height: usize, gaps: &mut [Gap; HEIGHT_MAX]) -> bool {
        if height > 2 {
            return false;
        }
        let Some(found) = self.low_gaps(place, |key| Place::of(key).compare(place, self.order).is_lt()) else {
            return false;
        };
        gaps.iter_mut().zip(found).for_each(|(gap, found)| *gap = found);
        true
    }

    /// A node with everything but its links, which are null.
    fn new_node(&self, height: usize, user_key: &[u8], tag: u64, value: &[u8]) -> NodePointer {
        let key_bytes = user_key.len().saturating_add(TAG_BYTES);
        let data_bytes = key_bytes.saturating_add(value.len());
        let links_bytes = (height - 1) * size_of::<Link>();
        let (Ok(key_length), Ok(value_length)) = (u32::try_from(key_bytes), u32::try_from(value.len())) else {
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<Node>());
        };
        let piece = self.arena.allocate(data_bytes.saturating_add(links_bytes + size_of::<Node>()));
        for level in 1..height {
            // SAFETY: the piece begins with room for `height - 1` links.
            let link = unsafe { piece.cast::<Link>().add(level - 1) };
            // SAFETY: A1: the piece is ours and aligned for a link.
            unsafe { link.write(Link::default()) };
        }
        // SAFETY: the piece has room for a node after the links.
        let node = unsafe { piece.add(links_bytes) }.cast::<Node>();
        // SAFETY: A1: the piece is ours; links take a multiple of a node's alignment.
        unsafe { node.write(Node { next: Link::default(), key_bytes: key_length, value_bytes: value_length }) };
        let mut end = data(node);
        for part in [user_key, &tag.to_le_bytes(), value] {
            // SAFETY: A1: the piece is ours, so it overlaps no part, and has room for all three after the node.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), end.as_ptr(), part.len()) };
            // SAFETY: as above; at most one past the end of the piece.
            end = unsafe { end.add(part.len()) };
        }
        node
    }

    /// Links `node` at `level` into `gap`, or into what became of it.
    ///
    /// # Safety
    /// `gap.before` and `node` are of a height above `level`, and `gap.before` goes before `place`, the place of `node`.
    unsafe fn link(&self, node: NodePointer, place: Place<'_>, level: usize, gap: &mut Gap) {
        // SAFETY: as the caller says.
        let own = unsafe { link_at(node, level) };
        loop {
            // Relaxed: the exchange below publishes it, or nobody sees it.
            own.store(gap.after, Ordering::Relaxed);
            // SAFETY: as the caller says; `walk` returns nodes met at `level`.
            let link = unsafe { link_at(gap.before, level) };
            // Release: whoever follows the link sees the node whole (S2, S4).
            if link.compare_exchange(gap.after, node.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok() {
                break;
            }
            // Others came in between. Nothing is removed, so the place is further on from here.
            // SAFETY: as the caller says.
            *gap = unsafe {
                self.walk(gap.before, level, ptr::null_mut(), |key| Place::of(key).compare(place, self.order).is_lt())
            };
        }
        if gap.after.is_null()
            && let Some(last) = self.last.get(level)
        {
            last.store(node.as_ptr(), Ordering::Release);
        }
    }

    /// The gaps for `place` at levels below `height`, if it is after all nodes or nearly so; else `false`.
    fn find_gaps_at_end(&self, place: Place<'_>, height: usize, gaps: &mut [Gap; HEIGHT_MAX]) -> bool {
        let is_before = |key: &[u8]| Place::of(key).compare(place, self.order).is_lt();
        for (level, (gap, last)) in gaps.iter_mut().zip(&self.last).enumerate().take(height) {
            let last = NonNull::new(last.load(Ordering::Acquire));
            let Some(last) = last.filter(|&last| is_before(self.entry(last).key())) else { return false };
            // One that a thread noted late may be any node: the way from there is no longer than from a finger.
            // SAFETY: only nodes linked at a level are stored as last of it; this one goes before `place`.
            let Some(found) = (unsafe { self.walk_some(last, level, ptr::null_mut(), is_before) }) else {
                return false;
            };
            *gap = found;
        }
        true
    }

    /// The gaps for `place` at levels below `height`.
    fn find_gaps(&self, place: Place<'_>, height: usize, gaps: &mut [Gap; HEIGHT_MAX]) {
        self.descend(
            |key| Place::of(key).compare(place, self.order).is_lt(),
            |level, gap| {
                if level < height
                    && let Some(slot) = gaps.get_mut(level)
                {
                    *slot = gap;
                }
            },
        );
    }

    /// At each level, from the highest down to 0, the gap between what `is_before` says yes to and what it does not.
    #[inline]
    fn descend(&self, is_before: impl Fn(&[u8]) -> bool, mut at_level: impl FnMut(usize, Gap)) -> Gap {
        let mut gap = Gap { before: self.head(), after: ptr::null_mut() };
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            // SAFETY: S3: the head is of full height, and other nodes were met at the level above.
            gap = unsafe { self.walk(gap.before, level, gap.after, &is_before) };
            at_level(level, gap);
        }
        gap
    }

    /// From `before` along `level` to the last node that `is_before` says yes to, and what follows. `known_after` is a node
    /// that it is known to say no to, met at the level above, or null.
    ///
    /// # Safety
    /// `before` is a node of this list of a height above `level`, or its head.
    #[inline]
    unsafe fn walk(
        &self,
        mut before: NodePointer,
        level: usize,
        known_after: *mut Node,
        is_before: impl Fn(&[u8]) -> bool,
    ) -> Gap {
        loop {
            // SAFETY: `before` is as the caller says, or was met at `level` below (S3).
            let after = unsafe { link_at(before, level) }.load(Ordering::Acquire);
            if level > 0 {
                // Should `after` be too far, this is what comes next: it is fetched while `after` is waited for.
                // SAFETY: as above.
                prefetch(unsafe { link_at(before, level - 1) }.load(Ordering::Relaxed));
            }
            match NonNull::new(after) {
                Some(next) if after != known_after && is_before(self.entry(next).key()) => before = next,
                _ => return Gap { before, after },
            }
        }
    }

    /// As [`walk`](Self::walk), but no more than [`STEPS_MAX`] steps; `None` if the place is further on.
    ///
    /// # Safety
    /// As there.
    #[inline]
    unsafe fn walk_some(
        &self,
        mut before: NodePointer,
        level: usize,
        known_after: *mut Node,
        is_before: impl Fn(&[u8]) -> bool,
    ) -> Option<Gap> {
        for _ in 0..STEPS_MAX {
            // SAFETY: `before` is as the caller says, or was met at `level` below (S3).
            let after = unsafe { link_at(before, level) }.load(Ordering::Acquire);
            if level > 0 {
                // SAFETY: as above.
                prefetch(unsafe { link_at(before, level - 1) }.load(Ordering::Relaxed));
            }
            match NonNull::new(after) {
                Some(next) if after != known_after && is_before(self.entry(next).key()) => before = next,
                _ => return Some(Gap { before, after }),
            }
        }
        None
    }

    #[inline]
    fn head(&self) -> NodePointer {
        // Through the whole head, because its links lie before its node.
        let head = NonNull::from(&self.head);
        // SAFETY: within the head.
        unsafe { head.byte_add(offset_of!(Head, node)) }.cast()
    }

    /// `node` is a linked node of this list, not the head.
    #[inline]
    fn entry(&self, node: NodePointer) -> Entry<'_> {
        Entry { node, list: PhantomData }
    }

    #[inline]
    fn entry_before(&self, gap: Gap) -> Option<Entry<'_>> {
        (gap.before != self.head()).then(|| self.entry(gap.before))
    }

    /// The first entry.
    pub(super) fn first(&self) -> Option<Entry<'_>> {
        NonNull::new(self.head.node.next.load(Ordering::Acquire)).map(|node| self.entry(node))
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<Entry<'_>> {
        self.entry_before(self.descend(|_| true, |_, _| ()))
    }

    /// The first entry whose key is not before `target`.
    #[inline]
    pub(super) fn first_at_or_after(&self, target: &[u8]) -> Option<Entry<'_>> {
        let target = Place::of(target);
        let is_before = |key: &[u8]| Place::of(key).compare(target, self.order).is_lt();
        let gap = match self.low_gaps(target, is_before) {
            Some([lowest, _]) => lowest,
            None => self.descend(is_before, |_, _| ()),
        };
        NonNull::new(gap.after).map(|node| self.entry(node))
    }

    /// The last entry whose key is not after `target`.
    pub(super) fn last_at_or_before(&self, target: &[u8]) -> Option<Entry<'_>> {
        let target = Place::of(target);
        self.entry_before(self.descend(|key| Place::of(key).compare(target, self.order).is_le(), |_, _| ()))
    }

    /// The last entry whose key is before `target`.
    pub(super) fn last_before(&self, target: &[u8]) -> Option<Entry<'_>> {
        let target = Place::of(target);
        self.entry_before(self.descend(|key| Place::of(key).compare(target, self.order).is_lt(), |_, _| ()))
    }
}

/// An entry of a list that cannot go away while this exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    node: NodePointer,
    list: PhantomData<&'a SkipList>,
}

impl<'a> Entry<'a> {
    /// The internal key.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: S1, S2: alive for 'a and written before it was linked.
        let bytes = unsafe { (*self.node.as_ptr()).key_bytes } as usize;
        // SAFETY: S1, S2: as many bytes were written right after the node, and do not change.
        unsafe { slice::from_raw_parts(data(self.node).as_ptr(), bytes) }
    }

    /// The value.
    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        // SAFETY: S1, S2: alive for 'a and written before it was linked.
        let key_bytes = unsafe { (*self.node.as_ptr()).key_bytes } as usize;
        // SAFETY: as above.
        let value_bytes = unsafe { (*self.node.as_ptr()).value_bytes } as usize;
        // SAFETY: S2: the value was written right after the key.
        let value = unsafe { data(self.node).add(key_bytes) };
        // SAFETY: S1, S2: it has as many bytes, and they do not change.
        unsafe { slice::from_raw_parts(value.as_ptr(), value_bytes) }
    }

    /// The entry after it.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        // SAFETY: S1: alive for 'a; every node has a link at level 0.
        let next = unsafe { link_at(self.node, 0) }.load(Ordering::Acquire);
        NonNull::new(next).map(|node| Self { node, list: PhantomData })
    }

    /// Itself without the lifetime, for who keeps the list alive by other means.
    #[inline]
    pub(super) fn detach(self) -> Detached {
        Detached(self.node)
    }
}

/// An [`Entry`] that says nothing of how long its list lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detached(NodePointer);

// SAFETY: it gives access to nothing but through `attach`, whose caller answers for the list, and the list is shared
// between threads as it is.
unsafe impl Send for Detached {}
// SAFETY: as above.
unsafe impl Sync for Detached {}

impl Detached {
    /// The entry again.
    ///
    /// # Safety
    /// The list that the entry is of is alive for 'a.
    #[inline]
    pub(super) unsafe fn attach<'a>(self) -> Entry<'a> {
        Entry { node: self.0, list: PhantomData }
    }
}

/// Where key and value of `node` begin.
#[inline]
fn data(node: NodePointer) -> NonNull<u8> {
    // Wrapping would only matter at the end of the address space, where no node ends.
    // SAFETY: key and value (or the end of the head) lie right after the node, in the same allocation.
    unsafe { node.add(1) }.cast()
}

/// Asks for the node's memory, without waiting for it. A hint, for any pointer.
#[inline]
fn prefetch(node: *mut Node) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which no address makes fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(node.cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = node;
}

/// The link of `node` at `level`.
///
/// # Safety
/// `node` is alive for 'a and of a height above `level`.
#[inline]
unsafe fn link_at<'a>(node: NodePointer, level: usize) -> &'a Link {
    // A link at level n lies n links before the node, whose first field is the link at level 0.
    // SAFETY: as the caller says.
    let link = unsafe { node.cast::<Link>().sub(level) };
    // SAFETY: as the caller says; links are only ever changed as atomics.
    unsafe { link.as_ref() }
}

/// 1, and one more with a chance of a quarter each, up to [`HEIGHT_MAX`]. Heights decide how fast, never what, is found. This one follows from what
/// is added and from nothing else: what threads draw for themselves is fair only of each that adds many entries.
#[inline]
fn height_of(user_key: &[u8], tag: u64) -> usize {
    let end = match user_key.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end),
        None => user_key.iter().fold(0, |end, &byte| (end << 8) | u64::from(byte)),
    };
    // SplitMix64. No two entries that were written have one tag; those that a repair takes from a table may, and have keys of their own.
    let next = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ end;
    let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let zeroes = (mixed ^ (mixed >> 31)).trailing_zeros() as usize;
    (1 + zeroes / 2).min(HEIGHT_MAX)
}

#[cfg(test)]
mod tests;
