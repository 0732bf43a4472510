//! Asking the processor for memory that will be needed soon, without waiting for it.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "the instruction is outside of what the compiler can check")
)]

/// What a processor fetches at once, on x86-64 and most of the others.
const LINE_BYTES: usize = 64;
/// More lines than this are fetched in the order in which they are read, by the processor itself.
const LINES_MAX: usize = 4;

/// Says that `items` will be read soon, the first 256 bytes above all. A hint: it changes nothing, whatever comes of it.
#[inline(always)]
pub fn prefetch<T>(items: &[T]) {
    let bytes = size_of_val(items);
    let start = items.as_ptr().cast::<u8>();
    for line in 0..LINES_MAX {
        // A last line that begins before the end of the items, wherever they begin in their first.
        let at = (line * LINE_BYTES).min(bytes.saturating_sub(1));
        line_of(start.wrapping_add(at));
        if at < line * LINE_BYTES {
            break;
        }
    }
}

/// Says that the first `N` lines of `items`, or what lies there behind them, will be read soon: [`prefetch`] for those who know how many.
#[inline(always)]
pub fn prefetch_lines<const N: usize, T>(items: &[T]) {
    for line in 0..N {
        line_of(items.as_ptr().cast::<u8>().wrapping_add(line * LINE_BYTES));
    }
}

/// Says that all of `bytes` will be read soon, one after the other, but not at once.
#[inline]
pub fn prefetch_all(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        line_of(line.as_ptr());
    }
    // The line in which it ends, should it not begin with one.
    line_of(bytes.as_ptr().wrapping_add(bytes.len().saturating_sub(1)));
}

/// Says that the line of this address, which need not be one of the process, will be used soon.
#[inline(always)]
pub(super) fn line_of(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it reads nothing: no address makes it fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
