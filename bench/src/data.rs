//! Keys and values. Both follow from a seed, so that nobody has to remember what was written to know what must be read.
//!
//! | bytes of a key | field | why |
//! |---:|---|---|
//! | 0..8 | `mix(index ^ seed)`, big-endian | neighbours by index are far apart in key order |
//! | 8..16 | `index`, big-endian | a scan knows what it met |
//!
//! A value is 8 bytes that no other value has, then a piece of a pool in which every 50 random bytes occur twice in a
//! row: about half of it compresses away, as `db_bench`'s values do. `badger/data.go` does the same, byte for byte.

/// Length of every key, in bytes.
pub const KEY_BYTES: usize = 16;

/// Shortest value: its stamp and nothing else, in bytes.
pub const VALUE_BYTES_MIN: usize = 8;

/// Where pieces of the pool may begin: small enough to stay in a processor's cache, larger than LZ4's window by far.
const POOL_STARTS: usize = 1 << 20;

/// Random bytes that occur twice in a row.
const HALF_FRAGMENT_BYTES: usize = 50;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// Shuffles the 64-bit numbers: a bijection (the last step of SplitMix64, Steele et al. 2014).
pub const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Step of SplitMix64's counter.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The data of one run.
#[derive(Debug)]
pub struct Data {
    seed: u64,
    value_bytes: usize,
    pool: Vec<u8>,
}

impl Data {
    /// Keys and values of `value_bytes` (at least [`VALUE_BYTES_MIN`]) that follow from `seed`.
    pub fn new(seed: u64, value_bytes: usize) -> Self {
        let wanted = POOL_STARTS + value_bytes;
        let mut pool = Vec::with_capacity(wanted + 2 * HALF_FRAGMENT_BYTES);
        let mut counter = seed;
        while pool.len() < wanted {
            let start = pool.len();
            while pool.len() < start + HALF_FRAGMENT_BYTES {
                counter = counter.wrapping_add(GOLDEN);
                let missing = start + HALF_FRAGMENT_BYTES - pool.len();
                pool.extend_from_slice(&mix(counter).to_le_bytes()[..missing.min(8)]);
            }
            pool.extend_from_within(start..);
        }
        Self { seed, value_bytes: value_bytes.max(VALUE_BYTES_MIN), pool }
    }

    /// Length of every value, in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The key with that number.
    pub fn key(&self, index: u64) -> Key {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&mix(index ^ self.seed).to_be_bytes());
        key[8..].copy_from_slice(&index.to_be_bytes());
        key
    }

    /// The number of a key; `None` if it is none of ours.
    pub fn index(&self, key: &[u8]) -> Option<u64> {
        let index = u64::from_be_bytes(key.get(8..)?.try_into().ok()?);
        (self.key(index) == key).then_some(index)
    }

    /// The key's first eight bytes, which no other has: keys are in their order.
    pub fn rank(&self, index: u64) -> u64 {
        mix(index ^ self.seed)
    }

    fn parts(&self, index: u64, generation: u32) -> ([u8; 8], &[u8]) {
        let stamp = mix(mix(index ^ self.seed).wrapping_add(u64::from(generation).wrapping_mul(GOLDEN)));
        let start = (stamp % POOL_STARTS as u64) as usize;
        (stamp.to_be_bytes(), &self.pool[start..start + self.value_bytes - VALUE_BYTES_MIN])
    }

    /// Puts the value that `index` has in its `generation` into `out`, in place of what was there.
    pub fn value(&self, index: u64, generation: u32, out: &mut Vec<u8>) {
        let (stamp, body) = self.parts(index, generation);
        out.clear();
        out.extend_from_slice(&stamp);
        out.extend_from_slice(body);
    }

    /// Whether `value` is what `index` has in its `generation`, to the last byte.
    pub fn matches(&self, index: u64, generation: u32, value: &[u8]) -> bool {
        let (stamp, body) = self.parts(index, generation);
        value.len() == self.value_bytes && value[..8] == stamp && value[8..] == *body
    }
}

/// The random number that follows from `salt` for one `step`.
pub const fn draw(salt: u64, step: u64) -> u64 {
    mix(salt.wrapping_add(step.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// An order of `0..count` in which each number comes once and neighbours are far apart.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    count: u64,
    factor: u64,
    offset: u64,
}

impl Order {
    /// The order that follows from `salt`.
    pub fn new(count: u64, salt: u64) -> Self {
        let count = count.max(1);
        let mut draw = salt;
        let factor = loop {
            draw = mix(draw.wrapping_add(GOLDEN));
            let factor = draw % count;
            if greatest_common_divisor(factor, count) == 1 {
                break factor;
            }
        };
        Self { count, factor, offset: mix(draw) % count }
    }

    /// What comes at `position` (modulo the count).
    pub fn at(&self, position: u64) -> u64 {
        let position = if position < self.count { position } else { position % self.count };
        // A division of 128 bits costs more than all the rest of an operation of the harness.
        match self.factor.checked_mul(position).and_then(|product| product.checked_add(self.offset)) {
            Some(sum) => sum % self.count,
            None => {
                let sum = u128::from(self.factor) * u128::from(position) + u128::from(self.offset);
                (sum % u128::from(self.count)) as u64
            }
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_number_once() {
        for count in [1, 2, 7, 1_000, 4_096] {
            let order = Order::new(count, 42);
            let mut seen: Vec<u64> = (0..count).map(|position| order.at(position)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_value_is_told_from_every_change_of_it() {
        let data = Data::new(7, 100);
        let mut value = Vec::new();
        data.value(3, 1, &mut value);
        assert!(data.matches(3, 1, &value));
        assert!(!data.matches(3, 2, &value) && !data.matches(4, 1, &value));
        for at in 0..value.len() {
            value[at] ^= 1;
            assert!(!data.matches(3, 1, &value), "a change of byte {at} went unnoticed");
            value[at] ^= 1;
        }
        assert!(!data.matches(3, 1, &value[..99]));
    }

    /// The Go program has the same test with the same numbers: both make the same data.
    #[test]
    fn golden_data() {
        let data = Data::new(301, 1_000);
        let mut value = Vec::new();
        data.value(12_345, 6, &mut value);
        let digest = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| mix(sum ^ u64::from(*byte)));
        let order = Order::new(1_000_003, 9);
        let found = (digest(&data.key(12_345)), digest(&value), order.at(77), draw(9, 5));
        assert_eq!(found, GOLDEN_DATA);
        assert_eq!(data.index(&data.key(12_345)), Some(12_345));
    }

    const GOLDEN_DATA: (u64, u64, u64, u64) =
        (13_339_216_198_225_707_266, 6_375_583_973_889_143_251, 444_395, 2_114_146_066_760_625_150);
}
