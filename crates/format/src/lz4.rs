//! LZ4 blocks: packing, unpacking, and unpacking the front of one, where no more is wanted.
//!
//! Any reader of LZ4 blocks unpacks what is packed here. Two share the work: what repeats rarely or for long, and all that is short, is
//! packed ([`strides`]) and unpacked here; longer texts are left to lz4_flex and to the C library, which are faster there, and so is the packing of
//! what is longer than [`strides::INPUT_BYTES_MAX`].
//!
//! Source: the [LZ4 block format](https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).

mod strides;

use std::cell::RefCell;

use lz4_flex::block::CompressTable;

use crate::kept::with_kept;

/// The shortest copy that LZ4 knows.
const MATCH_BYTES_MIN: usize = 4;
/// Where the first so many sequences make fewer bytes than that, the library unpacks faster.
const SEQUENCES_FIRST: u32 = 8;
const SHORT_SEQUENCES_BYTES: usize = 8 * 32;
/// Short literals and copies are written in pieces of this size, where there is room to write too much.
const PIECE_BYTES: usize = 64;

thread_local! {
    /// Making a table costs more than packing a block.
    static TABLE: RefCell<CompressTable> = RefCell::default();
}

/// How many bytes `raw_bytes` take at most, packed.
pub(crate) fn packed_bytes_max(raw_bytes: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(raw_bytes)
}

/// Packs `raw` into the front of `out`, which has [`packed_bytes_max`]; says how many bytes that took.
///
/// `None`: `out` is too short.
pub(crate) fn pack(raw: &[u8], out: &mut [u8]) -> Option<usize> {
    strides::pack(raw, out)
        .or_else(|| with_kept(&TABLE, |table| lz4_flex::block::compress_into_with_table(raw, out, table)).ok())
}

/// Unpacks a block into the front of `out`; says how many bytes came out.
///
/// # Errors
/// If it is none, or `out` is too short.
pub(crate) fn unpack(packed: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    match unpack_sequences(packed, out, out.len()) {
        Some((len, 0)) if len == out.len() => Ok(len),
        _ => unpack_by_library(packed, out),
    }
}

/// Unpacks `packed` into the front of `out`, up to `wanted` bytes or more; says how many. What is packed may be more than
/// `out` holds, as far as it is not looked at.
///
/// `None`: it is no LZ4 block, or holds less.
pub(crate) fn unpack_front(packed: &[u8], out: &mut [u8], wanted: usize) -> Option<usize> {
    let by_library = |out: &mut [u8]| unpack_by_library(packed, out).ok().filter(|len| *len >= wanted);
    // All of a text takes the library half as long.
    match unpack_sequences(packed, out, wanted) {
        Some((len, _)) => Some(len),
        None if wanted > out.len() / 2 => by_library(out),
        None => None,
    }
}

fn unpack_by_library(packed: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    // More than LZ4 packs is refused there.
    lz4::block::decompress_to_buffer(packed, Some(i32::try_from(out.len()).unwrap_or(i32::MAX)), out)
}

/// Unpacks one sequence after the other, until there are `wanted` bytes; says how many there are, and how much of `packed` is left.
///
/// `None`: it is no LZ4 block, or holds less, or more than half of `out` is wanted and its sequences are so short that the library is faster.
///
/// Cost (AMD EPYC; in brackets the library): 50 random bytes, twice each: 1 KiB 0.06 µs (0.08), 8 KiB 0.40 (0.66).
fn unpack_sequences(packed: &[u8], out: &mut [u8], wanted: usize) -> Option<(usize, usize)> {
    let mut input = Input { rest: packed };
    let mut len = 0;
    let mut sequences = 0u32;
    while len < wanted {
        let token = input.byte()?;
        let count = input.length(token >> 4)?;
        input.literals(out, len, count)?;
        len += count;
        if len >= wanted {
            break;
        }
        // The last literals have nothing behind them.
        let distance = usize::from(u16::from_le_bytes(*input.chunk()?));
        let count = input.length(token & 15)? + MATCH_BYTES_MIN;
        copy_again(out, len, distance, count)?;
        len += count;
        sequences = sequences.wrapping_add(1);
        if sequences == SEQUENCES_FIRST && len < SHORT_SEQUENCES_BYTES && wanted > out.len() / 2 {
            return None;
        }
    }
    Some((len, input.rest.len()))
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(chunk)
    }

    /// A length whose first part is in the token.
    #[inline(always)]
    fn length(&mut self, first: u8) -> Option<usize> {
        let mut length = usize::from(first);
        if first == 15 {
            loop {
                let more = self.byte()?;
                length = length.checked_add(usize::from(more))?;
                if more < 255 {
                    break;
                }
            }
        }
        Some(length)
    }

    #[inline(always)]
    fn literals(&mut self, out: &mut [u8], at: usize, count: usize) -> Option<()> {
        let (literals, rest) = self.rest.split_at_checked(count)?;
        let room = out.get_mut(at..)?;
        // Mostly there are few: one step, where there is room to write too much.
        match (self.rest.first_chunk::<PIECE_BYTES>(), room.first_chunk_mut()) {
            (Some(piece), Some(room)) if count <= PIECE_BYTES => *room = *piece,
            _ => room.get_mut(..count)?.copy_from_slice(literals),
        }
        self.rest = rest;
        Some(())
    }
}

/// Copies to `at` the `count` bytes from `distance` before it on, which may be some that are only copied by this.
#[inline(always)]
fn copy_again(out: &mut [u8], at: usize, distance: usize, count: usize) -> Option<()> {
    let from = at.checked_sub(distance).filter(|_| distance > 0)?;
    let end = at.checked_add(count).filter(|end| *end <= out.len())?;
    if count <= distance.min(PIECE_BYTES)
        && let Some(piece) = out.get(from..)?.first_chunk::<PIECE_BYTES>().copied()
        && let Some(room) = out.get_mut(at..)?.first_chunk_mut()
    {
        *room = piece;
        return Some(());
    }
    // Each step has twice as much to copy.
    let mut done = at;
    while done < end {
        let step = (done - from).min(end - done);
        out.copy_within(from..from + step, done);
        done += step;
    }
    Some(())
}

#[cfg(test)]
mod tests;
