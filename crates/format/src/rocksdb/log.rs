//! Framing of write-ahead logs and manifests: records, cut into fragments that do not cross 32 KiB blocks.
//!
//! | offset | bytes | field      | type   | meaning                                                              |
//! |-------:|------:|------------|--------|----------------------------------------------------------------------|
//! |      0 |     4 | crc        | u32 LE | masked CRC-32C of everything that follows, from `type` on            |
//! |      4 |     2 | length     | u16 LE | bytes of payload                                                     |
//! |      6 |     1 | type       | u8     | see below                                                            |
//! |      7 |     4 | log number | u32 LE | only in recyclable types: low half of the number in the file's name  |
//! | 7 / 11 |     n | payload    | bytes  | a piece of the record                                                |
//!
//! | type    | meaning                                                                                          |
//! |--------:|--------------------------------------------------------------------------------------------------|
//! |       0 | nothing was written here: the rest of a block, or of a preallocated file                         |
//! |     1–4 | a whole record; the first, a middle, the last piece of one                                       |
//! |     5–8 | the same, recyclable: the number tells a file's own records from those of its former life        |
//! |       9 | the first of a log: each record that follows is one frame of Zstandard, when it is whole (payload: u32 LE 7) |
//! |  10, 11 | sizes of user-defined timestamps (11: recyclable); unsupported                                   |
//! | 12–127  | unknown; unsupported                                                                             |
//! | 128–255 | may be ignored (130, 131: which log went before). From 10 on, odd types are recyclable           |
//!
//! The last bytes of a block, too few for a header, are zero. A piece may be empty.
//!
//! Source: RocksDB `db/log_format.h`, `db/log_writer.cc`, `db/log_reader.cc`.

use std::ops::Range;

use crate::checksum::{crc32c, crc32c_extend, mask, unmask};
use crate::error::DecodeError;
use crate::zeroes::is_zero;

mod frame;
mod join;

pub use frame::{Framer, Front};
pub use join::{Assembler, Reader};

/// No fragment crosses a multiple of this.
pub const BLOCK_BYTES: usize = 32 << 10;
/// Header of types 1–4.
pub const HEADER_BYTES: usize = 7;
/// Header of types 5–8.
pub const RECYCLABLE_HEADER_BYTES: usize = 11;

/// What sets a recyclable type apart from the plain one of the same kind.
const RECYCLABLE_TYPES: u8 = 4;

/// Says how the records of a log are packed; and what stands there if that is known here.
const PACKED_TYPE: u8 = 9;
const PACKED_BY_ZSTD: [u8; 5] = [PACKED_TYPE, 7, 0, 0, 0];

/// Bytes of the header that its CRC does not cover: the CRC and the length.
const UNCOVERED_BYTES: usize = 6;

/// Which piece of a record a fragment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FragmentKind {
    /// All of it.
    Full,
    /// Its beginning.
    First,
    /// Neither its beginning nor its end.
    Middle,
    /// Its end.
    Last,
}

impl FragmentKind {
    /// Whether a record begins with it.
    pub const fn begins(self) -> bool {
        matches!(self, Self::Full | Self::First)
    }

    /// Whether a record ends with it.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Full | Self::Last)
    }

    const fn new(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Full,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    const fn type_byte(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::First => 2,
            Self::Middle => 3,
            Self::Last => 4,
        }
    }
}

/// What stands at a position of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fragment {
    /// A piece of a record, with a good checksum.
    Whole {
        /// Which piece.
        kind: FragmentKind,
        /// Where its payload is, in the block.
        payload: Range<usize>,
        /// Where the next fragment begins, in the block.
        next: usize,
        /// Whether it carries the number of its log.
        recyclable: bool,
    },
    /// Something with a good checksum that readers may ignore.
    Ignored {
        /// Where the next fragment begins, in the block.
        next: usize,
    },
    /// Each record that follows is packed as a frame of Zstandard's. Only where a log begins.
    Packed {
        /// Where the next fragment begins, in the block.
        next: usize,
    },
    /// Too few bytes for a header are left of a whole block, or none of a short one. What follows is in the next block, if there is one.
    EndOfBlock,
    /// A header of zeroes, or of as many as are left of the file: nothing was written here, nor, as far as a writer is concerned, in the rest of the block.
    Zeroes,
    /// The data ends before the header or the payload does. Only in a block shorter than [`BLOCK_BYTES`], the last of a file.
    /// What only looks so, because a bit of its length or type flipped, is damaged instead.
    Torn,
    /// A good fragment of another log, which this file was in a former life. The log ends here.
    StaleRecycled,
    /// Not what any writer writes, or of a kind that is not supported.
    Damaged {
        /// Where the fragment ends if its header can be believed, else where the block ends.
        end: usize,
        /// What is wrong; its offset counts from the start of the block.
        reason: DecodeError,
    },
}

/// The low half of a log's number, as recyclable records carry it.
pub const fn log_number_tag(number: u64) -> u32 {
    number as u32
}

/// What stands at `at` in `block`, which begins at a multiple of [`BLOCK_BYTES`] of the file and is shorter only if the file ends there.
///
/// With `log_number`, recyclable fragments of other logs are [`Fragment::StaleRecycled`]; without, their number is not looked at.
/// Total; allocates only for a reason with a number in it. Cost: one CRC of the fragment.
pub fn next_fragment(block: &[u8], at: usize, log_number: Option<u32>) -> Fragment {
    let block = block.get(..BLOCK_BYTES).unwrap_or(block);
    let is_short = block.len() < BLOCK_BYTES;
    let rest = block.get(at..).unwrap_or_default();
    let Some(&[c0, c1, c2, c3, l0, l1, type_byte]) = rest.first_chunk::<HEADER_BYTES>() else {
        return match rest {
            [] => Fragment::EndOfBlock,
            _ if !is_short => Fragment::EndOfBlock,
            zeroes if is_zero(zeroes) => Fragment::Zeroes,
            _ => Fragment::Torn,
        };
    };
    let stored_crc = u32::from_le_bytes([c0, c1, c2, c3]);
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    if stored_crc == 0 && length == 0 && type_byte == 0 {
        // A writer of recyclable records pads as soon as its own header does not fit.
        let is_padding = !is_short && rest.len() < RECYCLABLE_HEADER_BYTES && is_zero(rest);
        return if is_padding { Fragment::EndOfBlock } else { Fragment::Zeroes };
    }
    let recyclable = is_recyclable(type_byte);
    let header_bytes = if recyclable { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES };
    let offset = at as u64;
    let Some(covered) = rest.get(UNCOVERED_BYTES..header_bytes + length) else {
        if is_short && at + header_bytes + length <= BLOCK_BYTES && !is_one_bit_from_whole(rest) {
            return Fragment::Torn;
        }
        let reason = DecodeError::corrupt("length", offset + 4, format!("{length} bytes, but the block ends before"));
        return Fragment::Damaged { end: block.len(), reason };
    };
    let next = at + header_bytes + length;
    let crc = crc32c(covered);
    if mask(crc) != stored_crc {
        let stored = unmask(stored_crc);
        let reason = DecodeError::corrupt("crc", offset, format!("checksum is {crc:#010x}, should be {stored:#010x}"));
        return Fragment::Damaged { end: next, reason };
    }
    // Only a fragment whose checksum is good has a number that can be believed.
    let number = rest.get(HEADER_BYTES..RECYCLABLE_HEADER_BYTES).and_then(|bytes| bytes.try_into().ok());
    if let (true, Some(expected), Some(number)) = (recyclable, log_number, number)
        && u32::from_le_bytes(number) != expected
    {
        return Fragment::StaleRecycled;
    }
    let kind = match type_byte {
        1 | 5 => FragmentKind::Full,
        2 | 6 => FragmentKind::First,
        3 | 7 => FragmentKind::Middle,
        4 | 8 => FragmentKind::Last,
        PACKED_TYPE if covered == PACKED_BY_ZSTD => return Fragment::Packed { next },
        128.. => return Fragment::Ignored { next },
        _ => return Fragment::Damaged { end: next, reason: unsupported(type_byte, offset) },
    };
    Fragment::Whole { kind, payload: at + header_bytes..next, next, recyclable }
}

/// Whether one flipped bit in the length or type makes a good fragment of the start of `rest`. Then it was written to its
/// end, and only looks torn. A fragment that really is torn passes for that once in 2^27 times.
#[cold]
fn is_one_bit_from_whole(rest: &[u8]) -> bool {
    let Some(&[c0, c1, c2, c3, l0, l1, type_byte]) = rest.first_chunk::<HEADER_BYTES>() else { return false };
    let stored_crc = unmask(u32::from_le_bytes([c0, c1, c2, c3]));
    let header = u32::from_le_bytes([l0, l1, type_byte, 0]);
    (0..24).any(|bit| {
        let [l0, l1, type_byte, _] = (header ^ 1 << bit).to_le_bytes();
        let header_bytes = if is_recyclable(type_byte) { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES };
        let end = header_bytes + usize::from(u16::from_le_bytes([l0, l1]));
        rest.get(HEADER_BYTES..end).is_some_and(|covered| crc32c_extend(crc32c(&[type_byte]), covered) == stored_crc)
    })
}

const fn is_recyclable(type_byte: u8) -> bool {
    matches!(type_byte, 5..=8) || (type_byte >= 10 && type_byte % 2 == 1)
}

#[cold]
fn unsupported(type_byte: u8, offset: u64) -> DecodeError {
    let offset = offset + UNCOVERED_BYTES as u64;
    match type_byte {
        0 => DecodeError::corrupt("type", offset, "a record of type 0 with a checksum"),
        PACKED_TYPE => DecodeError::unsupported("type", offset, "records that are packed otherwise than by Zstandard"),
        10 | 11 => DecodeError::unsupported("type", offset, "user-defined timestamps are not supported"),
        _ => DecodeError::unsupported("type", offset, format!("records of type {type_byte} are not known")),
    }
}

#[cfg(test)]
mod tests;
