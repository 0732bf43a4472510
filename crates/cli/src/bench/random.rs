//! Randomness that a seed repeats: a stream of numbers, and an order in which every number comes once.

/// The golden ratio in 64 bits, the step of SplitMix64 (Steele, Lea and Flood 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scatters `x`: each bit of the result depends on each of `x`. A bijection, the finalizer of SplitMix64.
#[inline]
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of numbers: SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(STEP))))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Below `limit`; 0 if that is 0.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// In `0.0..1.0`.
    #[inline]
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// An order of the numbers below `size` in which each comes once: rank to number and back, without a table.
///
/// A Feistel network over the least power of two that is no smaller, walked until the result is below `size`: at most
/// two walks on average. Cost: about 20 ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    size: u64,
    low_bits: u32,
    low_mask: u64,
    high_mask: u64,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    /// Even, so that both halves are where they were.
    const ROUNDS: usize = 4;

    /// The order that `seed` means.
    pub(super) fn new(size: u64, seed: u64) -> Self {
        // At least one bit for each half.
        let bits = (64 - size.saturating_sub(1).leading_zeros()).max(2);
        let low_bits = bits / 2;
        let mut random = Random::new(seed, size);
        Self {
            size,
            low_bits,
            low_mask: (1 << low_bits) - 1,
            high_mask: (1 << (bits - low_bits)) - 1,
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// The number at `rank`, which must be below the size.
    #[inline]
    pub(super) fn number(&self, rank: u64) -> u64 {
        let mut x = rank;
        loop {
            let (mut high, mut low) = (x >> self.low_bits, x & self.low_mask);
            for pair in self.keys.chunks_exact(2) {
                high ^= mix(low ^ pair[0]) & self.high_mask;
                low ^= mix(high ^ pair[1]) & self.low_mask;
            }
            x = high << self.low_bits | low;
            if x < self.size || self.size == 0 {
                return x;
            }
        }
    }

    /// The rank of `number`, which must be below the size.
    #[inline]
    pub(super) fn rank(&self, number: u64) -> u64 {
        let mut x = number;
        loop {
            let (mut high, mut low) = (x >> self.low_bits, x & self.low_mask);
            for pair in self.keys.rchunks_exact(2) {
                low ^= mix(high ^ pair[1]) & self.low_mask;
                high ^= mix(low ^ pair[0]) & self.high_mask;
            }
            x = high << self.low_bits | low;
            if x < self.size || self.size == 0 {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_visits_every_number_once_and_finds_back() {
        for size in [1, 2, 3, 5, 64, 1000, 4097] {
            let order = Permutation::new(size, 7);
            let mut seen = vec![false; size as usize];
            for rank in 0..size {
                let number = order.number(rank);
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} of {size} twice");
                assert_eq!(order.rank(number), rank, "{size}");
            }
        }
    }

    #[test]
    fn another_seed_is_another_order() {
        let ranks = |seed| (0..100).map(|rank| Permutation::new(100, seed).number(rank)).collect::<Vec<u64>>();
        assert_eq!(ranks(1), ranks(1));
        assert_ne!(ranks(1), ranks(2));
        assert_ne!(ranks(1), (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(1, 2);
        assert!((0..1000).all(|_| random.below(10) < 10 && (0.0..1.0).contains(&random.fraction())));
        assert_eq!(random.below(0), 0);
    }
}
