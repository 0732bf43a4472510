//! Entropy that repeats, and the generator behind it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Entropy;

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): the step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// Bytes that look random and are the same for the same seed and the same calls.
#[derive(Debug, Default)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    fn next(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// Another source that goes on as this one would.
    pub(super) fn fork(&self) -> Self {
        Self::new(self.state.load(Ordering::Relaxed))
    }

    /// Heads or tails.
    pub(super) fn coin(&self) -> bool {
        self.next() & 1 == 1
    }

    /// A number below `end`; 0 if there is none.
    pub(super) fn below(&self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
    }
}
