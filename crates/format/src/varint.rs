//! Variable-length integers: seven bits a byte, least significant first, the top bit says that more follow.
//!
//! | value            | bytes |
//! |------------------|------:|
//! | `0..=127`        |     1 |
//! | `..=u32::MAX`    |  ≤  5 |
//! | `..=u64::MAX`    |  ≤ 10 |
//!
//! Source: RocksDB `util/coding.h`, LevelDB's and protocol buffers' encoding alike.

/// Longest encoding of a `u32`.
pub const VARINT32_BYTES_MAX: usize = 5;
/// Longest encoding of a `u64`.
pub const VARINT64_BYTES_MAX: usize = 10;
/// What is looked at at once.
const WORD_BYTES: usize = size_of::<u64>();

/// Appends `value`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value`.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    put_u64(out, u64::from(value));
}

/// Appends the length of `bytes` and then `bytes`.
#[inline]
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How many bytes [`put_u64`] appends for `value`.
#[inline]
pub const fn len_u64(value: u64) -> usize {
    // 64 - leading zeros, seven bits a byte, at least one byte.
    ((70 - (value | 1).leading_zeros()) / 7) as usize
}

/// The integer at the start of `raw` and how many bytes it takes; `None` if `raw` ends first or it is wider than 64 bits.
#[inline]
pub fn get_u64(raw: &[u8]) -> Option<(u64, usize)> {
    if let Some(&first) = raw.first()
        && first < 0x80
    {
        return Some((u64::from(first), 1));
    }
    let (value, bytes) = get_word(raw);
    (bytes > 0).then_some((value, bytes))
}

/// As [`get_u64`], for what is longer than a byte: none has no bytes, since so both fit registers.
#[inline]
fn get_word(raw: &[u8]) -> (u64, usize) {
    if let Some(word) = raw.first_chunk::<WORD_BYTES>() {
        let word = u64::from_le_bytes(*word);
        let last_bytes = !word & 0x8080_8080_8080_8080;
        if last_bytes != 0 {
            // All bits up to the end's, then without the top one of each byte: pairs, fours and eights of bytes move together.
            let word = word & (last_bytes ^ (last_bytes - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
            let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
            let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
            let word = word & 0x0000_0000_0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
            return (word, (last_bytes.trailing_zeros() / u8::BITS) as usize + 1);
        }
    }
    get_byte_by_byte(raw).unwrap_or_default()
}

/// As [`get_u64`], for what is longer than a word, or at the end of `raw`.
fn get_byte_by_byte(raw: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, &byte) in raw.iter().take(VARINT64_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// As [`get_u64`], refusing what is wider than 32 bits.
#[inline]
pub fn get_u32(raw: &[u8]) -> Option<(u32, usize)> {
    let (value, bytes) = get_u64(raw)?;
    u32::try_from(value).ok().filter(|_| bytes <= VARINT32_BYTES_MAX).map(|value| (value, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        for value in [0, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            put_u64(&mut out, value);
        }
        assert_eq!(out, b"\x00\x7f\x80\x01\xac\x02\xff\xff\xff\xff\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }

    #[test]
    fn every_width_reads_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_u64(&mut out, value);
                assert_eq!(out.len(), len_u64(value), "{value}");
                assert_eq!(get_u64(&out), Some((value, out.len())));
                assert_eq!(get_u64(&out[..out.len() - 1]), None);
                let bytes = out.len();
                for behind in [0x00, 0x7f, 0x80, 0xff] {
                    out.truncate(bytes);
                    out.resize(bytes + WORD_BYTES, behind);
                    assert_eq!(get_u64(&out), Some((value, bytes)), "whatever follows");
                }
            }
        }
    }

    #[test]
    fn what_is_too_wide_is_refused() {
        assert_eq!(get_u64(&[0xff; 10]), None);
        assert_eq!(get_u64(&[0x80; 11]), None);
        assert_eq!(get_u32(b"\xff\xff\xff\xff\x1f"), None);
        assert_eq!(get_u32(b"\xff\xff\xff\xff\x0f"), Some((u32::MAX, 5)));
    }
}
