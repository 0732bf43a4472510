//! Memory that is given out in pieces and taken back as a whole.
//!
//! | part of a chunk | bytes          | what                                                        |
//! |-----------------|---------------:|-------------------------------------------------------------|
//! | header          |             24 | the chunk made before it, its size, how much of it is given |
//! | pieces          | size - 24      | given out from front to back, each a multiple of 8 bytes     |
//!
//! Thread safety: [`Arena::allocate`] may be called by any number of threads; only the one that finds its chunk full
//! takes a lock.
//!
//! - A1: a piece belongs to whoever got it. `given` only grows, by compare-and-swap, so no byte is given out twice.
//! - A2: a chunk is never moved, and freed only when the arena is dropped: a piece lives as long as the arena.
//! - A3: `current` is null or a chunk whose header was written before `current` was set (release, acquire).
//! - A4: `newest` and `older` link all chunks; they change under `growing` only.
//! - A5: the arena that follows another one takes over its huge pages ([`Spare`]): what the system must fill with zeroes before it
//!   hands it out is handed out once. What is spare is no more than an arena has, and none is added where nobody writes; whoever counts
//!   the memory of all may give some back.
//!
//! Cost: one compare-and-swap for a piece. The first chunk has 4 KiB, so an idle column family costs nothing and one
//! with a few keys little; each further chunk doubles the whole, up to 2 MiB a chunk, which is one huge page: without
//! those, a search among a million keys waits as long for the addresses as for the memory. A piece larger than a quarter of
//! the next chunk gets one of its own, so at most a quarter of a chunk is lost at its end.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use esker_env::os::{HUGE_PAGE_BYTES, Pages};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Size of the first chunk.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Size of a chunk once there are many.
const CHUNK_BYTES_MAX: usize = HUGE_PAGE_BYTES;
/// Whoever has so much already takes a chunk of that size, if there is a spare one.
const CHUNK_BYTES_IF_SPARE: usize = 64 << 10;
/// Where pieces begin, and what their sizes are rounded up to.
pub(super) const PIECE_ALIGNMENT: usize = 8;

/// The first bytes of a chunk.
#[repr(C, align(8))]
struct Chunk {
    older: *mut Chunk,
    /// All of it, this header included.
    bytes: usize,
    /// How much is given out, this header included.
    given: AtomicUsize,
    /// The memory that this header lies in, if it did not come from the allocator.
    pages: Option<Pages>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    newest: AtomicPtr<Chunk>,
    growing: Mutex<()>,
    /// Sizes of all chunks.
    reserved_bytes: AtomicUsize,
    /// Where huge pages come from, and go.
    spare: Arc<Spare>,
}

/// Huge pages of arenas that are gone, for the one that is filled now.
#[derive(Debug, Default)]
struct Spare(Mutex<Spared>);

#[derive(Debug, Default)]
struct Spared {
    pages: Vec<Pages>,
    /// How many the arena has taken that is filled now.
    taken: usize,
    /// How many the one before it had taken in the end.
    taken_before: usize,
}

impl Spare {
    fn begin_next(&self) {
        let mut spared = self.0.lock();
        spared.taken_before = std::mem::take(&mut spared.taken);
    }

    fn count(&self) -> usize {
        self.0.lock().pages.len()
    }

    fn take(&self) -> Option<Pages> {
        let mut spared = self.0.lock();
        spared.taken += 1;
        spared.pages.pop()
    }

    fn give_back(&self, count: usize) {
        let mut spared = self.0.lock();
        let kept = spared.pages.len().saturating_sub(count);
        let pages = spared.pages.split_off(kept);
        // The system takes its time.
        drop(spared);
        drop(pages);
    }

    /// Keeps them where they will be wanted soon: somebody writes, and an arena will not be larger than the one before it.
    fn give(&self, pages: Pages) {
        let mut spared = self.0.lock();
        if spared.taken > 0 && spared.pages.len() < spared.taken_before.max(spared.taken) {
            spared.pages.push(pages);
        } else {
            // As above.
            drop(spared);
            drop(pages);
        }
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::with(Arc::default())
    }
}

impl Arena {
    /// The one to be filled after this one, which takes over its memory once it goes (A5).
    pub(super) fn next(&self) -> Self {
        self.spare.begin_next();
        Self::with(self.spare.clone())
    }

    fn with(spare: Arc<Spare>) -> Self {
        Self {
            current: AtomicPtr::default(),
            newest: AtomicPtr::default(),
            growing: Mutex::default(),
            reserved_bytes: AtomicUsize::default(),
            spare,
        }
    }

    /// `bytes` bytes, aligned to [`PIECE_ALIGNMENT`], not initialised, nobody else's, for as long as the arena lives.
    ///
    /// Ends the process, as any allocation in Rust does, if the system has no memory.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = rounded_up(bytes);
        match self.take_from_current(bytes) {
            Some(piece) => piece,
            None => self.allocate_from_new(bytes),
        }
    }

    #[inline]
    fn take_from_current(&self, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: A2, A3: null or a chunk of this arena.
        unsafe { take(self.current.load(Ordering::Acquire), bytes) }
    }

    #[cold]
    fn allocate_from_new(&self, bytes: usize) -> NonNull<u8> {
        let _growing = self.growing.lock();
        // Somebody else may have made a chunk while we waited.
        if let Some(piece) = self.take_from_current(bytes) {
            return piece;
        }
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        let doubled = reserved
            .checked_next_power_of_two()
            .map_or(CHUNK_BYTES_MAX, |whole| whole.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX));
        let takes_spare = reserved >= CHUNK_BYTES_IF_SPARE && self.spare.count() > 0;
        let usual = if takes_spare { CHUNK_BYTES_MAX } else { doubled };
        let alone = bytes > usual / 4;
        let chunk_bytes = if alone { bytes.saturating_add(size_of::<Chunk>()) } else { usual };
        let chunk = self.add_chunk(chunk_bytes);
        // SAFETY: A2: a chunk of this arena.
        let piece = unsafe { take(chunk, bytes) };
        if !alone {
            self.current.store(chunk, Ordering::Release);
        }
        // A new chunk holds what it was made for.
        piece.unwrap_or_else(|| handle_alloc_error(chunk_layout(chunk_bytes)))
    }

    /// A new chunk, linked. `growing` must be held.
    fn add_chunk(&self, bytes: usize) -> *mut Chunk {
        let (memory, pages) = self.chunk_memory(bytes);
        let chunk = memory.cast::<Chunk>();
        let older = self.newest.load(Ordering::Relaxed);
        let header = Chunk { older, bytes, given: AtomicUsize::new(size_of::<Chunk>()), pages };
        // SAFETY: the memory is ours, aligned for and not smaller than a `Chunk`.
        unsafe { ptr::write(chunk, header) };
        self.newest.store(chunk, Ordering::Relaxed);
        self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        chunk
    }

    /// Memory for a chunk of `bytes`, and its owner if that is not the allocator.
    fn chunk_memory(&self, bytes: usize) -> (*mut u8, Option<Pages>) {
        if bytes == CHUNK_BYTES_MAX
            && let Some(pages) = self.spare.take().or_else(|| Pages::new(bytes))
        {
            return (pages.start().as_ptr(), Some(pages));
        }
        let layout = chunk_layout(bytes);
        // SAFETY: the layout is not empty: it has room for a header.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        (memory, None)
    }

    /// What is kept for this arena and those that follow it.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.count() * CHUNK_BYTES_MAX
    }

    /// Gives so many bytes of that back to the system, or a part of a page more.
    pub(super) fn give_back_spare(&self, bytes: usize) {
        self.spare.give_back(bytes.div_ceil(CHUNK_BYTES_MAX));
    }

    /// Bytes given out, headers and lost ends of chunks included; while others allocate, off by a chunk at most.
    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        // SAFETY: A2, A3: null, or a header that lives as long as `self` does.
        let current = unsafe { self.current.load(Ordering::Acquire).as_ref() };
        let free = current.map_or(0, |chunk| chunk.bytes.saturating_sub(chunk.given.load(Ordering::Relaxed)));
        self.reserved_bytes.load(Ordering::Relaxed).saturating_sub(free)
    }
}

fn rounded_up(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(PIECE_ALIGNMENT).unwrap_or(usize::MAX)
}

fn chunk_layout(bytes: usize) -> Layout {
    let bytes = bytes.max(size_of::<Chunk>());
    // More than half the address space cannot be had: the same end as when the system refuses.
    Layout::from_size_align(bytes, PIECE_ALIGNMENT).unwrap_or_else(|_| handle_alloc_error(Layout::new::<Chunk>()))
}

/// The next `bytes` (a multiple of 8) of `chunk`; `None` if it is null or they do not fit.
///
/// # Safety
/// `chunk` is null, or a chunk of an arena that is alive, whose header this thread has seen written.
#[inline]
unsafe fn take(chunk: *mut Chunk, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: as the caller says.
    let header = unsafe { chunk.as_ref() }?;
    // Relaxed: which bytes are whose follows from the order of changes to `given` alone (A1); what is written into them
    // is published by whoever got them.
    let mut given = header.given.load(Ordering::Relaxed);
    loop {
        if header.bytes.checked_sub(given)? < bytes {
            return None;
        }
        match header.given.compare_exchange_weak(given, given + bytes, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => given = now,
        }
    }
    // SAFETY: `given + bytes` does not exceed the size of the allocation that `chunk` points to the start of.
    let piece = unsafe { chunk.cast::<u8>().add(given) };
    NonNull::new(piece)
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut chunk = *self.newest.get_mut();
        while !chunk.is_null() {
            // SAFETY: A2, A4: every chunk on the way is alive until this loop frees it.
            let older = unsafe { (*chunk).older };
            // SAFETY: as above; `bytes` never changes.
            let bytes = unsafe { (*chunk).bytes };
            // SAFETY: as above.
            let pages = unsafe { &raw const (*chunk).pages };
            // SAFETY: the header is not read again, so its owner moves out of it before the memory goes.
            let pages = unsafe { pages.read() };
            match pages {
                Some(pages) => self.spare.give(pages),
                // SAFETY: allocated in `chunk_memory` with this layout; `&mut self`: nobody has a piece any more.
                None => unsafe { dealloc(chunk.cast(), chunk_layout(bytes)) },
            }
            chunk = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to every byte of pieces of these sizes, then checks that no piece changed.
    fn fill(arena: &Arena, sizes: impl Iterator<Item = usize>, mark: u8) {
        let pieces: Vec<(NonNull<u8>, usize, u8)> = sizes
            .enumerate()
            .map(|(index, bytes)| {
                let piece = arena.allocate(bytes);
                assert_eq!(piece.as_ptr() as usize % PIECE_ALIGNMENT, 0);
                let mark = mark ^ index as u8;
                // SAFETY: A1: the piece has `bytes` bytes and is ours.
                unsafe { piece.as_ptr().write_bytes(mark, bytes) };
                (piece, bytes, mark)
            })
            .collect();
        for (piece, bytes, mark) in pieces {
            // SAFETY: A2: alive and written above.
            let piece = unsafe { std::slice::from_raw_parts(piece.as_ptr(), bytes) };
            assert!(piece.iter().all(|&byte| byte == mark));
        }
    }

    #[test]
    fn pieces_do_not_overlap() {
        let arena = Arena::default();
        assert_eq!(arena.used_bytes(), 0);
        fill(&arena, (0..2000).map(|index| index * 7 % 300), 1);
        let used = arena.used_bytes();
        assert!(used > 298_000 && used < 400_000, "{used}");
        let large = if cfg!(miri) { 9000 } else { 2 << 20 };
        fill(&arena, [1, large, 9, large / 7, 0, 3000, large / 4].into_iter(), 2);
    }

    #[test]
    fn threads_get_pieces_of_their_own() {
        let arena = Arena::default();
        let rounds = if cfg!(miri) { 100 } else { 5000 };
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let arena = &arena;
                scope.spawn(move || fill(arena, (0..rounds).map(|index| index * 13 % 200), thread << 6));
            }
        });
    }

    #[test]
    fn a_few_small_pieces_cost_one_small_chunk() {
        let arena = Arena::default();
        arena.allocate(100);
        arena.allocate(30);
        assert_eq!(arena.reserved_bytes.load(Ordering::Relaxed), CHUNK_BYTES_MIN);
        assert_eq!(arena.used_bytes(), size_of::<Chunk>() + 104 + 32);
    }

    fn fill_pages(arena: &Arena, count: usize) {
        while arena.spare.0.lock().taken < count {
            arena.allocate(CHUNK_BYTES_MAX / 8);
        }
    }

    #[test]
    fn pages_go_to_the_arena_that_follows_and_to_no_more_than_it_will_want() {
        let spare_count = |arena: &Arena| arena.spare.0.lock().pages.len();
        let first = Arena::default();
        fill_pages(&first, 3);
        let second = first.next();
        drop(first);
        assert_eq!(spare_count(&second), 0, "nobody writes");
        fill_pages(&second, 3);
        let third = second.next();
        fill_pages(&third, 1);
        drop(second);
        assert_eq!(spare_count(&third), 3);
        fill_pages(&third, 4);
        assert_eq!(spare_count(&third), 0);
        fill(&third, [100, 3000].into_iter(), 3);
        let fourth = third.next();
        fill_pages(&fourth, 1);
        let fifth = fourth.next();
        fill_pages(&fifth, 1);
        drop((third, fourth));
        assert_eq!(spare_count(&fifth), 1, "the one before it took one");
        assert_eq!(fifth.spare_bytes(), CHUNK_BYTES_MAX);
    }

    #[test]
    fn a_large_piece_leaves_the_current_chunk_in_use() {
        let arena = Arena::default();
        arena.allocate(8);
        arena.allocate(CHUNK_BYTES_MAX);
        let before = arena.reserved_bytes.load(Ordering::Relaxed);
        arena.allocate(1000);
        assert_eq!(arena.reserved_bytes.load(Ordering::Relaxed), before);
    }
}
