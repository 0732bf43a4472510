//! The entries block of a log batch: the bytes of all its entries, one after the other, as a whole plain or LZ4.
//!
//! | byte | [`Packing`] | bytes                                            |
//! |-----:|-------------|--------------------------------------------------|
//! |    0 | `None`      | the entries                                      |
//! |    1 | `Lz4`       | u32 LE length of the entries, then one LZ4 block |
//!
//! Where an entry ends is said by the batch's items ([`super::item`]).
//!
//! Source: raft-engine `src/log_batch.rs`, `src/util.rs`.

use crate::error::DecodeError;
use crate::limits::TooLarge;
use crate::lz4;

/// Most bytes of entries in a batch: what LZ4 of the original accepts for one block.
pub const ENTRIES_BYTES_MAX: usize = i32::MAX as usize;
/// Longest input that LZ4 packs into one block.
pub const PACKED_BYTES_MAX: usize = crate::limits::LZ4_RAW_BYTES_MAX;
/// One LZ4 byte extends a match by at most 255.
const LZ4_RATIO_MAX: usize = 255;

/// How the entries of a batch are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Packing {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4.
    Lz4 = 1,
}

impl Packing {
    /// The kind that a batch's header calls `byte`.
    ///
    /// # Errors
    /// Corrupt for any other byte: the original knows no more, and batches of zeroes and rubbish are told by this.
    pub fn from_u8(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            _ => Err(DecodeError::corrupt("packing", 7, format!("kind {byte} is not known"))),
        }
    }

    /// The byte on disk.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

/// Replaces `out` by `raw`, packed by LZ4. Says whether that was possible: if not, `out` is empty.
///
/// # Errors
/// If `raw` is longer than [`PACKED_BYTES_MAX`]. `out` is then empty.
pub fn pack(raw: &[u8], out: &mut Vec<u8>) -> Result<bool, TooLarge> {
    out.clear();
    TooLarge::check("entries to compress", raw.len(), PACKED_BYTES_MAX)?;
    out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    out.resize(4 + lz4::packed_bytes_max(raw.len()), 0);
    let packed = lz4::pack(raw, out.get_mut(4..).unwrap_or_default()).unwrap_or(0);
    let packed_at_all = packed > 0;
    out.truncate(if packed_at_all { 4 + packed } else { 0 });
    Ok(packed_at_all)
}

/// Replaces `out` by what [`pack`] was given.
///
/// # Errors
/// Corrupt if `packed` is nothing that it writes. Nothing is allocated that `packed` is too short for.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    out.clear();
    let (raw_bytes, data) = split(packed)?;
    if raw_bytes == 0 && data.is_empty() {
        return Ok(());
    }
    out.resize(raw_bytes, 0);
    unpack_data(data, out).inspect_err(|_| out.clear())
}

/// The same into memory that is there, which has the size that [`raw_bytes`] says.
///
/// # Errors
/// As [`unpack`], and if the size is another. What `out` holds then is rubbish.
pub fn unpack_into(packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let (raw_bytes, data) = split(packed)?;
    if raw_bytes != out.len() {
        let reason = format!("{raw_bytes} bytes do not fill {}", out.len());
        return Err(DecodeError::corrupt("raw length", 0, reason));
    }
    if raw_bytes == 0 && data.is_empty() { Ok(()) } else { unpack_data(data, out) }
}

/// The first `wanted` bytes of them at least, into the front of memory that has the size that [`raw_bytes`] says; says how many there are.
/// What lies behind them in `out` is rubbish. Damage behind them may go unnoticed.
///
/// # Errors
/// As [`unpack_into`].
pub fn unpack_front(packed: &[u8], out: &mut [u8], wanted: usize) -> Result<usize, DecodeError> {
    let (raw_bytes, data) = split(packed)?;
    if raw_bytes != out.len() || wanted > raw_bytes {
        let reason = format!("{raw_bytes} bytes do not fill {}, or have no {wanted}", out.len());
        return Err(DecodeError::corrupt("raw length", 0, reason));
    }
    lz4::unpack_front(data, out, wanted)
        .ok_or_else(|| DecodeError::corrupt("LZ4 data", 4, format!("it has no {wanted} bytes")))
}

fn unpack_data(data: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let error = match lz4::unpack(data, out) {
        Ok(count) if count == out.len() => return Ok(()),
        Ok(count) => format!("{count} bytes come out, {} were promised", out.len()),
        Err(error) => error.to_string(),
    };
    Err(DecodeError::corrupt("LZ4 data", 4, error))
}

/// How many bytes `packed` unpacks to.
///
/// # Errors
/// Corrupt if it cannot hold as many as it says.
pub fn raw_bytes(packed: &[u8]) -> Result<usize, DecodeError> {
    split(packed).map(|(raw_bytes, _)| raw_bytes)
}

/// The length that a packed block says it has, and the LZ4 block behind it. Of nothing, nothing.
fn split(packed: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    if packed.is_empty() {
        return Ok((0, packed));
    }
    let Some((length, data)) = packed.split_first_chunk::<4>() else {
        return Err(DecodeError::corrupt("raw length", 0, "needs four bytes"));
    };
    let raw_bytes = u32::from_le_bytes(*length) as usize;
    if raw_bytes > data.len().saturating_mul(LZ4_RATIO_MAX) || raw_bytes > ENTRIES_BYTES_MAX {
        let reason = format!("{} packed bytes cannot hold {raw_bytes}", data.len());
        return Err(DecodeError::corrupt("raw length", 0, reason));
    }
    Ok((raw_bytes, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 206 bytes of a message: tag, `1`, tag, 200 times `z`; packed by the C library through raft-engine 0.4.2.
    const GOLDEN: &[u8] = b"\xce\0\0\0\x7f\x0a\x011\x12\xc8\x01z\x01\0\xafPzzzzz";

    #[test]
    fn what_the_original_packed_is_unpacked() {
        let mut out = Vec::new();
        unpack(GOLDEN, &mut out).unwrap();
        let entry = [&b"\x0a\x011\x12\xc8\x01"[..], &[b'z'; 200]].concat();
        assert_eq!(out, entry);
    }

    #[test]
    fn a_packed_block_says_its_length() {
        assert_eq!((raw_bytes(GOLDEN).unwrap(), raw_bytes(b"").unwrap()), (206, 0));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let mut out = Vec::new();
        for raw in [&b"\xff"[..], b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f\x10a", b"\x02\0\0\0\x10a"] {
            assert!(unpack(raw, &mut out).is_err(), "{raw:?}");
            assert!(out.is_empty());
        }
        unpack(b"", &mut out).unwrap();
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn packed_entries_read_back(raw in proptest::collection::vec(0u8..4, 0..3000), noise in proptest::collection::vec(any::<u8>(), 0..300), times in 1usize..400) {
            let raw = [raw, noise.repeat(times)].concat();
            let (mut packed, mut out) = (Vec::new(), Vec::new());
            prop_assert!(pack(&raw, &mut packed).unwrap());
            unpack(&packed, &mut out).unwrap();
            prop_assert_eq!(&out, &raw);
        }

        #[test]
        fn unpacking_is_total(mut raw in proptest::collection::vec(any::<u8>(), 0..200), small: bool) {
            if small && raw.len() > 3 {
                raw[1..4].fill(0);
            }
            let mut whole = Vec::new();
            let unpacked = unpack(&raw, &mut whole).is_ok();
            prop_assert_eq!(whole.len(), if unpacked { raw_bytes(&raw).unwrap() } else { 0 });
        }
    }
}
