//! Memory straight from the system, in huge pages where it has them: for tables that are walked at random, where the
//! look-up of a page costs as much as the memory behind it.

#![expect(unsafe_code, reason = "mapping memory is outside of what the compiler can check")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// What a huge page has on x86-64 and on aarch64 with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory, given back when dropped. Whoever writes into it by the pointer answers for that.
#[derive(Debug)]
pub struct Pages {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
}

/// Zeroed memory of the same kind, as words that any thread may load and store.
#[derive(Debug)]
pub struct Words {
    /// Nobody has a pointer into it but [`words`](Self::words).
    pages: Pages,
    count: usize,
}

impl Words {
    /// `count` words; `None` if the system has no memory for them.
    pub fn new(count: usize) -> Option<Self> {
        // Miri, which checks who uses them, knows no mappings.
        if cfg!(miri) {
            return None;
        }
        let pages = Pages::new(count.checked_mul(size_of::<AtomicU64>())?)?;
        Some(Self { pages, count })
    }

    /// All of them.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words were mapped, from a multiple of their alignment on, for as long as `self` lives; zeroes are
        // valid words, and nobody reaches them but through this shared slice.
        unsafe { std::slice::from_raw_parts(self.pages.start().as_ptr().cast::<AtomicU64>(), self.count) }
    }
}

// SAFETY: memory of the process, of no thread in particular; only the one owner gives it back.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives nothing but a pointer.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` of memory that begin at a multiple of [`HUGE_PAGE_BYTES`]; `None` if the system has none.
    pub fn new(bytes: usize) -> Option<Self> {
        // As much more as makes sure that a huge page begins in it. What is never touched costs no memory.
        let mapped_bytes = bytes.checked_add(HUGE_PAGE_BYTES)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free range, so no memory of ours is replaced.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, access, MapFlags::PRIVATE) }.ok()?;
        let mapped = NonNull::new(mapped.cast::<u8>())?;
        let skipped = mapped.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        // SAFETY: at most the bytes that were asked for on top.
        let start = unsafe { mapped.add(skipped) };
        let pages = Self { mapped, mapped_bytes, start };
        pages.advise(bytes);
        Some(pages)
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, bytes: usize) {
        use rustix::mm::{Advice, madvise};
        // A hint: without huge pages everything is only slower.
        // SAFETY: the range is ours, and the advice changes no byte of it.
        let _ = unsafe { madvise(self.start.as_ptr().cast::<c_void>(), bytes, Advice::LinuxHugepage) };
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(&self, _: usize) {}

    /// Where it begins.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this range came from `mmap_anonymous`; whoever kept a pointer into it answers for that.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast::<c_void>(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "a range from mmap can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zeroes_at_the_boundary_of_a_huge_page_and_writable() {
        for bytes in [8, 4096, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5] {
            let pages = Pages::new(bytes).unwrap();
            assert_eq!(pages.start().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
            for place in [0, bytes / 2, bytes - 1] {
                // SAFETY: `place < bytes`.
                let byte = unsafe { pages.start().add(place) };
                // SAFETY: mapped, and nobody else's.
                assert_eq!(unsafe { byte.read() }, 0);
                // SAFETY: as above.
                unsafe { byte.write(7) };
            }
        }
        assert!(Pages::new(usize::MAX).is_none() && Pages::new(usize::MAX / 2).is_none());
    }

    #[test]
    fn words_are_zeroes_and_keep_what_any_thread_stores() {
        use std::sync::atomic::Ordering::Relaxed;
        let words = Words::new(1 << 19).unwrap();
        assert_eq!(words.words().len(), 1 << 19);
        assert!(words.words().iter().all(|word| word.load(Relaxed) == 0));
        std::thread::scope(|scope| {
            for half in words.words().chunks(1 << 18) {
                scope.spawn(move || half.iter().zip(1..).for_each(|(word, n)| word.store(n, Relaxed)));
            }
        });
        assert_eq!(words.words().iter().map(|word| word.load(Relaxed)).sum::<u64>(), ((1 << 18) + 1) << 18);
        assert!(Words::new(usize::MAX).is_none() && Words::new(usize::MAX / 16).is_none());
    }
}
