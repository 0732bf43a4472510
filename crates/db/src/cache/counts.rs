//! Hits and misses, counted without one cache line that all threads fight for.

use std::sync::atomic::{AtomicU64, Ordering};

const STRIPES: usize = 16;

/// Alone on its cache line (two, where the CPU fetches lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Which stripe is counted on follows from the block, not from the thread: whoever meets there has met at the lock of
/// the block's shard already.
#[derive(Debug, Default)]
pub(super) struct Counts {
    stripes: [Stripe; STRIPES],
}

impl Counts {
    /// Counts one lookup of the block at `offset`.
    #[inline]
    pub(super) fn add(&self, offset: u64, hit: bool) {
        // Offsets of neighbouring blocks differ in their low bits and by about 4 KiB: spread both (2^64 / golden ratio).
        let spread = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        if let Some(stripe) = self.stripes.get(spread as usize % STRIPES) {
            let count = if hit { &stripe.hits } else { &stripe.misses };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hits and misses so far.
    pub(super) fn sums(&self) -> (u64, u64) {
        self.stripes.iter().fold((0, 0), |(hits, misses), stripe| {
            (hits + stripe.hits.load(Ordering::Relaxed), misses + stripe.misses.load(Ordering::Relaxed))
        })
    }
}
