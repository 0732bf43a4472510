//! What values consist of, and whether a value that was read is one that was written.
//!
//! A value is its head, then a piece of a pool of bytes that is made once:
//!
//! | offset | bytes | field      | type   | meaning                                    |
//! |-------:|------:|------------|--------|--------------------------------------------|
//! |      0 |     8 | key        | u64 LE | the number of its key                      |
//! |      8 |     8 | generation | u64 LE | the store's sequence number before it, and 1 |
//!
//! Its length and where its piece lies follow from seed, key and generation, so nothing about single values is
//! remembered. About half of it is compressible. Cost: a copy to make one, a comparison to check one.

use super::fault::Fault;
use super::random::{Random, mix};
use super::sizes::ValueSizes;

/// What precedes the piece.
pub(super) const HEAD_BYTES: usize = 16;
/// Places where a piece may begin: few enough to stay in the processor's cache. A power of two.
const OFFSETS: usize = 1 << 19;
/// Random bytes, which are then repeated once: half of what a compressor sees is new. Short, so that small values
/// show it, too.
const FRESH_BYTES: usize = 32;

/// Makes and checks values.
#[derive(Debug)]
pub(super) struct Values {
    seed: u64,
    sizes: ValueSizes,
    pool: Vec<u8>,
}

/// Which generations are right for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generations {
    pub(super) oldest: u64,
    pub(super) newest: u64,
}

impl Values {
    pub(super) fn new(seed: u64, sizes: ValueSizes) -> Self {
        let mut random = Random::new(seed, u64::MAX);
        let pool_bytes = OFFSETS + sizes.largest();
        let mut pool = Vec::with_capacity(pool_bytes + 2 * FRESH_BYTES);
        while pool.len() < pool_bytes {
            let begin = pool.len();
            for _ in 0..FRESH_BYTES / 8 {
                pool.extend_from_slice(&random.next().to_le_bytes());
            }
            pool.extend_from_within(begin..);
        }
        Self { seed: mix(seed), sizes, pool }
    }

    /// The average size.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.sizes.mean()
    }

    /// The value of `key` in `generation`, in place of what `out` held.
    #[inline]
    pub(super) fn write(&self, key: u64, generation: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
        out.extend_from_slice(self.piece(key, generation));
    }

    /// What follows the head.
    #[inline]
    fn piece(&self, key: u64, generation: u64) -> &[u8] {
        let random = mix(self.seed ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation.rotate_left(32));
        let begin = random as usize & (OFFSETS - 1);
        let bytes = self.sizes.pick((random >> 32) as u32) - HEAD_BYTES;
        self.pool.get(begin..begin + bytes).unwrap_or_default()
    }

    /// Whether `value` is what was written to `key` in one of `generations`.
    #[inline]
    pub(super) fn check(&self, key: u64, value: &[u8], generations: Generations) -> Result<(), Fault> {
        let Some((head, body)) = value.split_first_chunk::<HEAD_BYTES>() else {
            return Err(Fault::Length { bytes: value.len(), expected: None });
        };
        let head = u128::from_le_bytes(*head);
        let (of, generation) = (head as u64, (head >> 64) as u64);
        if of != key {
            return Err(Fault::OtherKey(of));
        }
        if generation < generations.oldest {
            return Err(Fault::Stale { generation, oldest: generations.oldest });
        }
        if generation > generations.newest {
            return Err(Fault::Unwritten { generation, newest: generations.newest });
        }
        let piece = self.piece(key, generation);
        if body == piece { Ok(()) } else { Err(difference(body, piece)) }
    }
}

#[cold]
fn difference(body: &[u8], piece: &[u8]) -> Fault {
    if body.len() != piece.len() {
        return Fault::Length { bytes: body.len() + HEAD_BYTES, expected: Some(piece.len() + HEAD_BYTES) };
    }
    let at = body.iter().zip(piece).position(|(one, other)| one != other).unwrap_or_default();
    Fault::Bytes { offset: at + HEAD_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Generations = Generations { oldest: 2, newest: 9 };

    fn values() -> Values {
        Values::new(7, ValueSizes::parse("uniform:16:400").unwrap())
    }

    fn value(key: u64, generation: u64) -> Vec<u8> {
        let mut value = Vec::new();
        values().write(key, generation, &mut value);
        value
    }

    #[test]
    fn what_was_written_passes() {
        for key in 0..1000 {
            values().check(key, &value(key, 2 + key % 8), ALL).unwrap();
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let right = value(5, 3);
        for bit in 0..right.len() * 8 {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(values().check(5, &wrong, ALL).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_value_of_another_key_generation_or_length_is_noticed() {
        let check = |value: &[u8]| values().check(5, value, ALL).unwrap_err();
        assert_eq!(check(&value(6, 3)), Fault::OtherKey(6));
        assert_eq!(check(&value(5, 1)), Fault::Stale { generation: 1, oldest: 2 });
        assert_eq!(check(&value(5, 10)), Fault::Unwritten { generation: 10, newest: 9 });
        assert_eq!(check(b"short"), Fault::Length { bytes: 5, expected: None });
        let mut long = value(5, 3);
        let expected = Some(long.len());
        long.push(0);
        assert_eq!(check(&long), Fault::Length { bytes: long.len(), expected });
        let mut changed = value(5, 3);
        changed[40] ^= 1;
        assert_eq!(check(&changed), Fault::Bytes { offset: 40 });
    }

    #[test]
    fn another_seed_makes_other_values() {
        let mut other = Vec::new();
        Values::new(8, ValueSizes::Fixed(100)).write(1, 2, &mut other);
        let mut one = Vec::new();
        Values::new(7, ValueSizes::Fixed(100)).write(1, 2, &mut one);
        assert_ne!(one, other);
    }

    #[test]
    fn about_half_of_a_value_is_compressible() {
        let values = Values::new(1, ValueSizes::Fixed(4096));
        let mut value = Vec::new();
        values.write(1, 1, &mut value);
        let mut small = Vec::new();
        esker_format::compression::compress(esker::Compression::Zstd, &value, &mut small).unwrap();
        let ratio = small.len() as f64 / value.len() as f64;
        assert!((0.45..0.65).contains(&ratio), "{ratio}");
    }
}
