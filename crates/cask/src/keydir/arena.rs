//! Memory for the directory: segments of 2 KiB, out of chunks in huge pages.
//!
//! - M1: a segment belongs to one shard, or to the list of free ones. Its memory stays the directory's until the end, so a number that
//!   a reader has from before leads to words of the directory, whoever's they are by now; which words count, the shard's
//!   sequence says (`shard.rs`).
//! - M2: what a new owner stores into a segment is stored behind a release fence. So a reader who meets it sees the sequence
//!   of the owner before as it was when that one gave the segment back, or later.
//!
//! Chunks double: the first has 128 KiB, the 27th would end beyond all numbers. From 512 KiB on they are huge pages, of which
//! only those that were used take memory.

use std::alloc::Layout;
use std::sync::OnceLock;

use esker_env::os::HUGE_PAGE_BYTES;

use super::table::{HEAD_WORDS, Head};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{FIRST_CHUNK_SEGMENTS, Mutex, SEGMENT_WORDS, Words};

/// As many as it takes to have a place for every number.
const CHUNK_COUNT: usize = 27;

/// The number of a segment; 0 is none.
pub(super) type SegmentId = u32;

#[derive(Debug)]
enum Chunk {
    Huge(Words),
    /// Small, or the system maps none.
    Heap(Box<[AtomicU64]>),
}

impl Chunk {
    fn new(words: usize) -> Self {
        let mapped = if words * size_of::<AtomicU64>() >= HUGE_PAGE_BYTES / 4 { Words::new(words) } else { None };
        mapped.map_or_else(|| Self::Heap((0..words).map(|_| AtomicU64::new(0)).collect()), Self::Huge)
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Huge(words) => words.words(),
            Self::Heap(words) => words,
        }
    }
}

#[derive(Debug, Default)]
struct Free {
    /// Segments that were ever given out.
    begun: u32,
    /// Those that came back.
    returned: Vec<SegmentId>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Arena {
    heads: Chunk,
    /// For a shard that is none: never used.
    no_head: Head,
    chunks: [OnceLock<Chunk>; CHUNK_COUNT],
    free: Mutex<Free>,
}

impl Arena {
    /// With so many words beside the segments, at a place of their own.
    pub(super) fn new(head_words: usize) -> Self {
        let no_head = [(); HEAD_WORDS].map(|()| AtomicU64::new(0));
        let chunks = [const { OnceLock::new() }; CHUNK_COUNT];
        Self { heads: Chunk::new(head_words), no_head, chunks, free: Mutex::default() }
    }

    /// The words beside the segments.
    #[inline]
    pub(super) fn heads(&self) -> &[AtomicU64] {
        self.heads.words()
    }

    pub(super) const fn no_head(&self) -> &Head {
        &self.no_head
    }

    /// The words of a segment; none if there is no such.
    #[inline]
    pub(super) fn segment(&self, id: SegmentId) -> &[AtomicU64] {
        // Chunk `n` begins with segment `64 × (2ⁿ - 1)`.
        let place = u64::from(id).wrapping_sub(1).wrapping_add(FIRST_CHUNK_SEGMENTS);
        let index = (place / FIRST_CHUNK_SEGMENTS).checked_ilog2().unwrap_or(u32::MAX) as usize;
        let Some(chunk) = self.chunks.get(index).and_then(OnceLock::get) else { return &[] };
        let start = (place - (FIRST_CHUNK_SEGMENTS << index)) as usize * SEGMENT_WORDS;
        chunk.words().get(start..start + SEGMENT_WORDS).unwrap_or_default()
    }

    /// A segment, whatever it holds. Ends the process where there is no memory, as every allocation does.
    pub(super) fn take(&self) -> SegmentId {
        let mut free = self.free.lock();
        let id = match free.returned.pop() {
            Some(id) => id,
            None => {
                free.begun = free.begun.checked_add(1).unwrap_or_else(|| exhausted());
                free.begun
            }
        };
        let place = u64::from(id) - 1 + FIRST_CHUNK_SEGMENTS;
        let index = (place / FIRST_CHUNK_SEGMENTS).ilog2() as usize;
        let words = (FIRST_CHUNK_SEGMENTS << index) as usize * SEGMENT_WORDS;
        if let Some(chunk) = self.chunks.get(index) {
            chunk.get_or_init(|| Chunk::new(words));
        }
        drop(free);
        // M2.
        fence(Ordering::Release);
        id
    }

    /// Takes a segment back, of which nobody but readers from before knows any more.
    pub(super) fn give_back(&self, id: SegmentId) {
        self.free.lock().returned.push(id);
    }

    /// Bytes of memory that are in use.
    pub(super) fn memory_bytes(&self) -> u64 {
        let free = self.free.lock();
        let segments = u64::from(free.begun) - free.returned.len() as u64;
        let words = segments * SEGMENT_WORDS as u64 + self.heads().len() as u64;
        words * size_of::<AtomicU64>() as u64
    }
}

/// Every number is taken: 8 TiB of directory, or 33 million slots in one shard of it.
#[cold]
pub(super) fn exhausted() -> ! {
    std::alloc::handle_alloc_error(Layout::new::<[u64; SEGMENT_WORDS]>())
}
