//! XXPH3: the preview of XXH3 that RocksDB froze for its filters in 2019. Not the XXH3 that later became the standard;
//! no published crate computes it.
//!
//! | input bytes | way                                                                                    |
//! |------------:|----------------------------------------------------------------------------------------|
//! |           0 | a constant of the secret (RocksDB's own change: the preview said 0)                     |
//! |        1–16 | one or two words that cover the input, overlapping                                     |
//! |      17–128 | pairs of 16 bytes from both ends inwards                                               |
//! |     129–240 | 16 bytes at a time, then the last 16                                                   |
//! |        more | 64-byte stripes into eight lanes, scrambled after every sixteenth                      |
//!
//! Seed 0 only: filters use no other. Cost: a dozen instructions up to 16 bytes, then about a byte per quarter cycle.
//!
//! Source: RocksDB `util/xxph3.h`.

const PRIME32_1: u64 = 0x9e37_79b1;
const PRIME32_2: u64 = 0x85eb_ca77;
const PRIME32_3: u64 = 0xc2b2_ae3d;
const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME64_5: u64 = 0x27d4_eb2f_1656_67c5;

const STRIPE_BYTES: usize = 64;
/// Stripes between two scrambles: as often as the secret can move on by eight bytes.
const STRIPES_PER_ROUND: usize = (SECRET.len() - STRIPE_BYTES) / 8;
/// Where the secret of the last, overlapping stripe begins; of the scramble; of the merge; of the last 16 of 129–240 bytes.
const SECRET_LAST_STRIPE: usize = SECRET.len() - STRIPE_BYTES - 7;
const SECRET_SCRAMBLE: usize = SECRET.len() - STRIPE_BYTES;
const SECRET_MERGE: usize = 11;
const SECRET_LAST_PAIR: usize = 136 - 17;

#[rustfmt::skip]
static SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// The hash of `input` under seed 0.
#[inline]
pub fn xxph3_64(input: &[u8]) -> u64 {
    match input.len() {
        0..=16 => up_to_16(input),
        17..=128 => up_to_128(input),
        129..=240 => up_to_240(input),
        _ => long(input),
    }
}

/// Eight bytes at `at`. Every caller stays inside, so the zero is never seen.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)))
}

#[inline(always)]
fn secret(at: usize) -> u64 {
    word(&SECRET, at)
}

/// Both halves of the 128-bit product, folded.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(mut hash: u64) -> u64 {
    hash ^= hash >> 37;
    hash = hash.wrapping_mul(PRIME64_3);
    hash ^ (hash >> 32)
}

#[inline]
fn up_to_16(input: &[u8]) -> u64 {
    let len = input.len();
    if len > 8 {
        let low = word(input, 0) ^ secret(0);
        let high = word(input, len - 8) ^ secret(8);
        return avalanche((len as u64).wrapping_add(low).wrapping_add(high).wrapping_add(fold(low, high)));
    }
    if len >= 4 {
        let keyed = (half(input, 0) | half(input, len - 4) << 32) ^ secret(0);
        let mixed = (keyed ^ (keyed >> 51)).wrapping_mul(PRIME32_1).wrapping_add(len as u64);
        return avalanche((mixed ^ (mixed >> 47)).wrapping_mul(PRIME64_2));
    }
    let (Some(&first), Some(&middle), Some(&last)) = (input.first(), input.get(len / 2), input.last()) else {
        return fold(secret(0), PRIME64_2);
    };
    let combined = u32::from_le_bytes([first, middle, last, len as u8]);
    avalanche((u64::from(combined) ^ half(&SECRET, 0)).wrapping_mul(PRIME64_1))
}

/// Sixteen bytes at `at` with sixteen of the secret.
#[inline(always)]
fn pair(input: &[u8], at: usize, secret_at: usize) -> u64 {
    fold(word(input, at) ^ secret(secret_at), word(input, at + 8) ^ secret(secret_at + 8))
}

fn up_to_128(input: &[u8]) -> u64 {
    let len = input.len();
    let mut hash = (len as u64).wrapping_mul(PRIME64_1);
    // From the outside in: 0, 16, 32, 48 bytes from either end, as far as the two do not cross.
    for depth in 0..=(len - 1) / 32 {
        hash = hash.wrapping_add(pair(input, 16 * depth, 32 * depth));
        hash = hash.wrapping_add(pair(input, len - 16 * (depth + 1), 32 * depth + 16));
    }
    avalanche(hash)
}

fn up_to_240(input: &[u8]) -> u64 {
    let len = input.len();
    let mut hash = (len as u64).wrapping_mul(PRIME64_1);
    for round in 0..8 {
        hash = hash.wrapping_add(pair(input, 16 * round, 16 * round));
    }
    hash = avalanche(hash);
    for round in 8..len / 16 {
        hash = hash.wrapping_add(pair(input, 16 * round, 16 * (round - 8) + 3));
    }
    avalanche(hash.wrapping_add(pair(input, len - 16, SECRET_LAST_PAIR)))
}

#[inline(always)]
fn accumulate(lanes: &mut [u64; 8], stripe: &[u8], secret_at: usize) {
    for (index, lane) in lanes.iter_mut().enumerate() {
        let value = word(stripe, 8 * index);
        let keyed = value ^ secret(secret_at + 8 * index);
        let product = (keyed & 0xffff_ffff).wrapping_mul(keyed >> 32);
        *lane = lane.wrapping_add(value).wrapping_add(product);
    }
}

fn long(input: &[u8]) -> u64 {
    let mut lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];
    for round in input.chunks(STRIPE_BYTES * STRIPES_PER_ROUND) {
        for (index, stripe) in round.chunks_exact(STRIPE_BYTES).enumerate() {
            accumulate(&mut lanes, stripe, 8 * index);
        }
        if round.len() == STRIPE_BYTES * STRIPES_PER_ROUND {
            for (index, lane) in lanes.iter_mut().enumerate() {
                let mixed = *lane ^ (*lane >> 47) ^ secret(SECRET_SCRAMBLE + 8 * index);
                *lane = mixed.wrapping_mul(PRIME32_1);
            }
        }
    }
    if !input.len().is_multiple_of(STRIPE_BYTES) {
        let last = input.get(input.len().saturating_sub(STRIPE_BYTES)..).unwrap_or_default();
        accumulate(&mut lanes, last, SECRET_LAST_STRIPE);
    }
    let mut hash = (input.len() as u64).wrapping_mul(PRIME64_1);
    for (index, two) in lanes.chunks_exact(2).enumerate() {
        if let [left, right] = two {
            let at = SECRET_MERGE + 16 * index;
            hash = hash.wrapping_add(fold(left ^ secret(at), right ^ secret(at + 8)));
        }
    }
    avalanche(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes `7 i + 3`, hashed by RocksDB's own header.
    #[test]
    fn golden_hashes() {
        let golden: [(usize, u64); 23] = [
            (0, 0x5342c3010fe1dd04),
            (1, 0x81b78b21c2ce4f18),
            (3, 0x6731a716813ee5f1),
            (4, 0x3a5afd967acaf5c3),
            (8, 0xbcb56b6f8d4b12da),
            (9, 0x03787b4eec57bf4b),
            (16, 0x81720cc0702edd73),
            (17, 0x0b515520f462e96f),
            (32, 0x48f0396187b56dd5),
            (33, 0xd020587a3c72b988),
            (64, 0xc71b2c5a712e7f61),
            (65, 0xd40143de1beadd46),
            (100, 0x94051957d141ed9f),
            (128, 0x8ea76d838ce7563f),
            (129, 0x3992d120c8c4677a),
            (200, 0x4ddc3e63692b0196),
            (240, 0xdf41bc5fea3a61e8),
            (241, 0x91d10f0682af4ac3),
            (256, 0x4d37daabdb543458),
            (1000, 0xcc43607bfb576d0c),
            (1024, 0x7d54b94e043675ba),
            (1088, 0x419a510eca48a830),
            (5000, 0x0dda19623d7c49df),
        ];
        for (len, hash) in golden {
            let input: Vec<u8> = (0..len).map(|index| (index * 7 + 3) as u8).collect();
            assert_eq!(xxph3_64(&input), hash, "{len} bytes");
        }
    }
}
