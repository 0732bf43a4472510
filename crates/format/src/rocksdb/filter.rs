//! Filters: may a table hold a key? RocksDB's FastLocalBloom, one filter for a whole table.
//!
//! | bytes        | field        | meaning                                                                     |
//! |--------------|--------------|-----------------------------------------------------------------------------|
//! | 64 n         | lines        | n cache lines of 512 bits                                                   |
//! | 1            | marker       | `0xff`: a newer Bloom filter; `0xfe` Ribbon, 1..=127 legacy, both not read  |
//! | 1            | kind         | 0: FastLocalBloom                                                           |
//! | 1            | probes       | low five bits, 1..=30; upper three are 0 for lines of 64 bytes               |
//! | 2            | reserved     | 0                                                                           |
//!
//! The low half of a key's hash ([`xxph3_64`]) picks its line, and the high half, multiplied by the golden ratio
//! again and again, the bits in it: one cache miss a lookup, whatever the number of probes.
//!
//! - B1: a filter never denies a key that was added. One that is not understood denies nothing.
//!
//! Source: RocksDB `util/bloom_impl.h`, `table/block_based/filter_policy.cc`.

use crate::xxph3::xxph3_64;

/// Bytes after the lines.
const TRAILER_BYTES: usize = 5;
const LINE_BYTES: usize = 64;
const GOLDEN_RATIO: u32 = 0x9e37_79b9;
/// Longest array of lines.
const LINES_BYTES_MAX: u64 = 0xffff_ffc0;

/// Probes for a size, from RocksDB's measurements: up to this many thousandths of a bit a key, this many probes.
const PROBES: [(u64, u8); 12] = [
    (2080, 1),
    (3580, 2),
    (5100, 3),
    (6640, 4),
    (8300, 5),
    (10070, 6),
    (11720, 7),
    (14001, 8),
    (16050, 9),
    (18300, 10),
    (22001, 11),
    (25501, 12),
];

/// Collects the hashes of a table's keys: eight bytes a key until [`finish`](Self::finish).
#[derive(Debug, Clone)]
pub struct FilterBuilder {
    millibits_per_key: u64,
    hashes: Vec<u64>,
    last_key: Option<u64>,
    last_prefix: Option<u64>,
}

impl FilterBuilder {
    /// For `bits_per_key` bits a key; 10 let through one key in a hundred that is not there. As RocksDB takes the
    /// option: less than a half is no filter (`None`), and at least 1 and at most 100 are used.
    pub fn new(bits_per_key: f64) -> Option<Self> {
        if bits_per_key < 0.5 {
            return None;
        }
        // NaN is the most, as RocksDB has it.
        let bits = if bits_per_key < 100.0 { bits_per_key.max(1.0) } else { 100.0 };
        Some(Self {
            millibits_per_key: (bits * 1000.0).round() as u64,
            hashes: Vec::new(),
            last_key: None,
            last_prefix: None,
        })
    }

    /// Adds a key. Adding the key of the call before again costs nothing: versions of a key lie side by side.
    pub fn add(&mut self, user_key: &[u8]) {
        let hash = xxph3_64(user_key);
        if self.last_key.replace(hash) != Some(hash) {
            self.hashes.push(hash);
        }
    }

    /// Adds the prefix of keys that are added, too; as for keys, again costs nothing. RocksDB hashes both alike.
    pub fn add_prefix(&mut self, prefix: &[u8]) {
        let hash = xxph3_64(prefix);
        if self.last_prefix.replace(hash) != Some(hash) {
            self.hashes.push(hash);
        }
    }

    /// How many different keys and prefixes were added.
    pub fn key_count(&self) -> usize {
        self.hashes.len()
    }

    /// The filter's bytes. Keeps the room for hashes, without the hashes, for the next filter.
    pub fn finish(&mut self) -> Vec<u8> {
        let bits = (self.hashes.len() as u64).saturating_mul(self.millibits_per_key);
        let lines_bytes = bits.div_ceil(8000).next_multiple_of(LINE_BYTES as u64).min(LINES_BYTES_MAX);
        let lines_bytes = if self.hashes.is_empty() { 0 } else { usize::try_from(lines_bytes).unwrap_or(0) };
        let mut filter = vec![0; lines_bytes];
        let probes = probes_for(self.millibits_per_key);
        for &hash in &self.hashes {
            let (offset, seed) = place(hash, lines_bytes);
            let line = filter.get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<LINE_BYTES>());
            if let Some(line) = line {
                set_bits(line, seed, probes);
            }
        }
        self.hashes.clear();
        (self.last_key, self.last_prefix) = (None, None);
        filter.extend_from_slice(&[0xff, 0, probes, 0, 0]);
        filter
    }
}

fn probes_for(millibits_per_key: u64) -> u8 {
    let measured = PROBES.iter().find(|(millibits, _)| millibits_per_key <= *millibits);
    match measured {
        Some(&(_, probes)) => probes,
        None if millibits_per_key > 50_000 => 24,
        None => ((millibits_per_key - 1) / 2000 - 1) as u8,
    }
}

/// The offset of a hash's line and what its bits come from.
#[inline]
fn place(hash: u64, lines_bytes: usize) -> (usize, u32) {
    let line_count = (lines_bytes / LINE_BYTES) as u64;
    // Multiply and shift: the low half of the hash as a fraction of all lines.
    let line = (u64::from(hash as u32) * line_count) >> 32;
    (line as usize * LINE_BYTES, (hash >> 32) as u32)
}

/// The byte and the bit of the top nine bits of `hash`.
#[inline(always)]
const fn bit_of(hash: u32) -> (usize, u8) {
    let bit = hash >> 23;
    ((bit >> 3) as usize, 1 << (bit & 7))
}

fn set_bits(line: &mut [u8; LINE_BYTES], seed: u32, probes: u8) {
    let mut hash = seed;
    for _ in 0..probes {
        let (byte, mask) = bit_of(hash);
        if let Some(byte) = line.get_mut(byte) {
            *byte |= mask;
        }
        hash = hash.wrapping_mul(GOLDEN_RATIO);
    }
}

/// What filters know of a key. Computed once for any number of them.
#[inline]
pub fn hash(user_key: &[u8]) -> u64 {
    xxph3_64(user_key)
}

/// Whether a key that `filter` was built from may equal `user_key`. A filter of a kind not known here, or no filter at all, says yes.
///
/// Cost: one hash and one cache line; no allocation.
#[inline]
pub fn may_contain(filter: &[u8], user_key: &[u8]) -> bool {
    may_contain_hash(filter, hash(user_key))
}

/// Whether `filter` is of a kind known here, and not empty: of others, [`may_contain`] says yes to whatever it is asked.
pub fn is_understood(filter: &[u8]) -> bool {
    parts(filter).is_some()
}

/// The lines and the number of probes; `None` of a filter that is not understood.
#[inline]
fn parts(filter: &[u8]) -> Option<(&[u8], u8)> {
    let (lines, &[marker, kind, probes, reserved_low, reserved_high]) = filter.split_last_chunk::<TRAILER_BYTES>()?;
    // Zeroes in the top three bits of `probes` stand for lines of 64 bytes.
    let known = marker == 0xff && kind == 0 && (1..=30).contains(&probes) && reserved_low == 0 && reserved_high == 0;
    (known && lines.len() >= LINE_BYTES).then_some((lines, probes))
}

/// As [`may_contain`], for the key with this [`hash`].
#[inline]
pub fn may_contain_hash(filter: &[u8], hash: u64) -> bool {
    let Some((lines, probes)) = parts(filter) else {
        return true;
    };
    let (offset, seed) = place(hash, lines.len());
    let Some(line) = lines.get(offset..).and_then(|rest| rest.first_chunk::<LINE_BYTES>()) else {
        return true;
    };
    let mut hash = seed;
    for _ in 0..probes {
        let (byte, mask) = bit_of(hash);
        if line.get(byte).is_some_and(|byte| byte & mask == 0) {
            return false;
        }
        hash = hash.wrapping_mul(GOLDEN_RATIO);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(keys: impl Iterator<Item = u64>, bits_per_key: f64) -> Vec<u8> {
        let mut builder = FilterBuilder::new(bits_per_key).unwrap();
        for key in keys {
            builder.add(&key.to_be_bytes());
        }
        builder.finish()
    }

    #[test]
    fn every_added_key_is_found_and_few_others() {
        for bits_per_key in [1.0, 5.0, 10.0, 16.0, 24.5, 60.0] {
            let filter = filter_of(0..10_000, bits_per_key);
            assert!((0..10_000u64).all(|key| may_contain(&filter, &key.to_be_bytes())), "{bits_per_key}");
            let wrong = (10_000..30_000u64).filter(|key| may_contain(&filter, &key.to_be_bytes())).count();
            // RocksDB promises 0.95 % at ten bits; 1.9 * 0.62^b bounds a line-local filter of b bits, luck included.
            let expected = 20_000.0 * (1.9 * 0.62f64.powf(bits_per_key)).max(0.0005);
            assert!((wrong as f64) < expected, "{wrong} of 20000 at {bits_per_key} bits, {expected} expected");
        }
    }

    #[test]
    fn sizes_and_probes_are_rocksdbs() {
        assert_eq!(filter_of(0..100, 10.0).len(), 128 + 5);
        assert_eq!(filter_of(0..1000, 10.0).len(), 1280 + 5);
        assert_eq!(filter_of(0..1, 10.0)[64..], [0xff, 0, 6, 0, 0]);
        assert_eq!(filter_of(0..0, 10.0), [0xff, 0, 6, 0, 0]);
        let probes: Vec<u8> =
            [1000, 5101, 14_001, 25_501, 28_000, 28_001, 50_000, 50_001, 100_000].map(probes_for).into();
        assert_eq!(probes, [1, 4, 8, 12, 12, 13, 23, 24, 24]);
    }

    #[test]
    fn options_are_taken_as_rocksdb_takes_them() {
        assert!(FilterBuilder::new(0.0).is_none());
        assert!(FilterBuilder::new(0.49).is_none());
        assert_eq!(FilterBuilder::new(0.7).unwrap().millibits_per_key, 1000);
        assert_eq!(FilterBuilder::new(9.9).unwrap().millibits_per_key, 9900);
        assert_eq!(FilterBuilder::new(f64::NAN).unwrap().millibits_per_key, 100_000);
    }

    #[test]
    fn what_is_not_understood_denies_nothing() {
        let filter = filter_of(0..100, 10.0);
        assert!(!may_contain(&filter, b"no such key"));
        for (from_end, value) in [(5, 0xfe), (5, 6), (4, 1), (3, 0), (3, 31), (3, 0x26), (2, 1), (1, 1)] {
            let mut other = filter.clone();
            let at = other.len() - from_end;
            other[at] = value;
            assert!(may_contain(&other, b"no such key"), "{value} at {from_end} from the end");
        }
        for len in 0..64 + TRAILER_BYTES {
            assert!(may_contain(&filter[filter.len() - len..], b"no such key"), "{len} bytes");
        }
    }

    #[test]
    fn versions_of_a_key_count_once() {
        let mut builder = FilterBuilder::new(10.0).unwrap();
        for key in [b"a", b"a", b"b", b"b", b"b"] {
            builder.add(key);
        }
        assert_eq!(builder.key_count(), 2);
    }

    #[test]
    fn prefixes_count_once_beside_the_keys_that_have_them() {
        let mut builder = FilterBuilder::new(10.0).unwrap();
        for key in [b"a1", b"a1", b"a2", b"b1"] {
            builder.add(key);
            builder.add_prefix(&key[..1]);
        }
        assert_eq!(builder.key_count(), 5);
        let filter = builder.finish();
        assert!([&b"a"[..], b"b", b"a1", b"a2", b"b1"].iter().all(|part| may_contain(&filter, part)));
        assert!(!may_contain(&filter, b"c"));
        assert_eq!(builder.key_count(), 0);
        builder.add(b"b1");
        assert_eq!(builder.key_count(), 1, "a new filter begins anew");
    }
}
