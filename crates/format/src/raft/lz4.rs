//! Packing small blocks in which little repeats by LZ4: what costs other packers most is to search there. And unpacking the front of one, where
//! no more is wanted.
//!
//! Any reader of LZ4 blocks unpacks them. The search goes in long steps from the fifth byte behind a copy on, and what it finds is
//! extended backwards, so that what repeats for long is found all the same. Where copies follow one another closely it would miss too
//! much: then [`pack`] says so early, and a patient packer takes over.
//!
//! Source: the [LZ4 block format](https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).

/// Longest input: places in it are of 16 bits.
pub(super) const INPUT_BYTES_MAX: usize = 1 << 16;
/// Bits of a hash.
const HASH_BITS: u32 = 12;
/// The shortest copy that LZ4 knows.
const MATCH_BYTES_MIN: usize = 4;
/// No copy begins in the last bytes of a block.
const LAST_START_BYTES: usize = 12;
/// And none reaches into the very last.
const LAST_LITERALS: usize = 5;
/// Steps behind the first few looks, in bytes.
const STEP_BYTES: usize = 4;
/// After so many looks in vain (a power of two), steps are one byte longer.
const PATIENCE_BITS: usize = 3;
/// Blocks whose first so many copies come sooner than one in so many bytes are not for this.
const COPIES_FIRST: usize = 16;
const COPY_BYTES_MIN: usize = 40;
/// Literals are copied in pieces of this size, where there is room to write too much.
const PIECE_BYTES: usize = 32;

/// Where four bytes were seen last, by their hash.
type Table = [u16; 1 << HASH_BITS];

#[inline(always)]
fn four(raw: &[u8], at: usize) -> u32 {
    raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[inline(always)]
fn eight(raw: &[u8], at: usize) -> Option<u64> {
    raw.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes))
}

/// The entry of `table` for these bytes. The multiplier is Knuth's.
#[inline(always)]
fn slot(table: &mut Table, bytes: u32) -> Option<&mut u16> {
    table.get_mut((bytes.wrapping_mul(2_654_435_761) >> (u32::BITS - HASH_BITS)) as usize)
}

/// Packs `raw` into the front of `out`, which has room for what does not compress; says how many bytes that took.
/// `None`: it is not for this packer, or `out` is too short.
pub(super) fn pack(raw: &[u8], out: &mut [u8]) -> Option<usize> {
    if raw.len() > INPUT_BYTES_MAX {
        return None;
    }
    pack_with(raw, out, &mut [0; 1 << HASH_BITS])
}

fn pack_with(raw: &[u8], out: &mut [u8], table: &mut Table) -> Option<usize> {
    let mut done = 0;
    let mut out = Output { out, len: 0 };
    if let Some(last_start) = raw.len().checked_sub(LAST_START_BYTES) {
        let copied_to = raw.len() - LAST_LITERALS;
        // The first byte is never a copy, and place 0 is in the table already.
        let mut at = 1;
        let mut copies = 0;
        while let Some((place, from)) = find(raw, at, last_start, table) {
            let back = common_back(raw, done, from, place);
            let (place, from) = (place - back, from - back);
            let behind = MATCH_BYTES_MIN + back;
            let count = behind + common(raw, from + behind, place + behind, copied_to);
            out.sequence(raw, done..place, place - from, count)?;
            done = place + count;
            at = done;
            copies += 1;
            if copies == COPIES_FIRST && done < COPIES_FIRST * COPY_BYTES_MIN {
                return None;
            }
            if let Some(seen) = slot(table, four(raw, at - 2)) {
                *seen = (at - 2) as u16;
            }
        }
    }
    out.last(raw.get(done..).unwrap_or_default())?;
    Some(out.len)
}

/// The first place from `at` on, before `last_start`, whose four bytes are known from an earlier one; all that is in the table is.
#[inline(always)]
fn find(raw: &[u8], mut at: usize, last_start: usize, table: &mut Table) -> Option<(usize, usize)> {
    // The first few looks at once: their loads do not wait for one another.
    if at + 3 <= last_start {
        let word = eight(raw, at)?;
        let bytes = [word as u32, (word >> 8) as u32, (word >> 16) as u32, (word >> 24) as u32];
        let mut from = [0; 4];
        let mut found = 0u32;
        for ((place, from), bytes) in (at..).zip(&mut from).zip(bytes) {
            *from = std::mem::replace(slot(table, bytes)?, place as u16);
        }
        for ((bit, from), bytes) in (0..).zip(from).zip(bytes) {
            found |= u32::from(four(raw, usize::from(from)) == bytes) << bit;
        }
        if found != 0 {
            let first = found.trailing_zeros() as usize;
            return from.get(first).map(|from| (at + first, usize::from(*from)));
        }
        at += from.len();
    }
    let mut looks = STEP_BYTES << PATIENCE_BITS;
    while at <= last_start {
        let bytes = four(raw, at);
        let from = usize::from(std::mem::replace(slot(table, bytes)?, at as u16));
        if four(raw, from) == bytes {
            return Some((at, from));
        }
        at += looks >> PATIENCE_BITS;
        looks += 1;
    }
    None
}

/// How many bytes before `place` are those before `from`, back to `floor`.
#[inline(always)]
fn common_back(raw: &[u8], floor: usize, from: usize, place: usize) -> usize {
    let most = (place - floor).min(from);
    let ends = raw.get(..place).unwrap_or_default().iter().rev().zip(raw.get(..from).unwrap_or_default().iter().rev());
    ends.take(most).take_while(|(a, b)| a == b).count()
}

/// How many bytes from `at` on, before `end`, are those from `from` on.
#[inline(always)]
fn common(raw: &[u8], mut from: usize, mut at: usize, end: usize) -> usize {
    let begin = at;
    while at + 8 <= end {
        let (Some(a), Some(b)) = (eight(raw, from), eight(raw, at)) else { break };
        let differ = a ^ b;
        if differ != 0 {
            return at - begin + (differ.trailing_zeros() / 8) as usize;
        }
        (from, at) = (from + 8, at + 8);
    }
    while at < end && raw.get(from) == raw.get(at) {
        (from, at) = (from + 1, at + 1);
    }
    at - begin
}

struct Output<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) -> Option<()> {
        *self.out.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    /// What of a length does not fit its half of the token.
    #[inline(always)]
    fn more(&mut self, length: usize) -> Option<()> {
        if let Some(mut left) = length.checked_sub(15) {
            while left >= 255 {
                self.byte(255)?;
                left -= 255;
            }
            self.byte(left as u8)?;
        }
        Some(())
    }

    #[inline(always)]
    fn literals(&mut self, raw: &[u8], range: std::ops::Range<usize>) -> Option<()> {
        let count = range.len();
        let rounded = count.next_multiple_of(PIECE_BYTES);
        let source = raw.get(range.start..range.start + rounded);
        match (source, self.out.get_mut(self.len..self.len + rounded)) {
            (Some(source), Some(room)) => {
                let (source, _) = source.as_chunks::<PIECE_BYTES>();
                let (room, _) = room.as_chunks_mut::<PIECE_BYTES>();
                room.iter_mut().zip(source).for_each(|(room, piece)| *room = *piece);
            }
            _ => self.out.get_mut(self.len..self.len + count)?.copy_from_slice(raw.get(range)?),
        }
        self.len += count;
        Some(())
    }

    /// Literals, then a copy of `count` bytes from `distance` before.
    #[inline(always)]
    fn sequence(&mut self, raw: &[u8], literals: std::ops::Range<usize>, distance: usize, count: usize) -> Option<()> {
        let extra = count - MATCH_BYTES_MIN;
        self.byte((literals.len().min(15) << 4 | extra.min(15)) as u8)?;
        self.more(literals.len())?;
        self.literals(raw, literals)?;
        let [low, high] = (distance as u16).to_le_bytes();
        self.byte(low)?;
        self.byte(high)?;
        self.more(extra)
    }

    /// What follows the last copy.
    fn last(&mut self, literals: &[u8]) -> Option<()> {
        self.byte((literals.len().min(15) << 4) as u8)?;
        self.more(literals.len())?;
        self.literals(literals, 0..literals.len())
    }
}

/// Unpacks `packed` into the front of `out`, up to `wanted` bytes or a little more; says how many. What is packed may be more than
/// `out` holds, as far as it is not looked at.
///
/// `None`: it is no LZ4 block, or holds less.
pub(super) fn unpack_front(packed: &[u8], out: &mut [u8], wanted: usize) -> Option<usize> {
    let mut input = Input { rest: packed };
    let mut len = 0;
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
    }
    Some(len)
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
    if distance >= PIECE_BYTES && count <= PIECE_BYTES && at + PIECE_BYTES <= out.len() {
        out.copy_within(from..from + PIECE_BYTES, at);
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(raw: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; lz4_flex::block::get_maximum_output_size(raw.len())];
        let count = pack(raw, &mut out)?;
        out.truncate(count);
        Some(out)
    }

    fn noise(count: usize) -> Vec<u8> {
        let mut random = 1u32;
        let mut byte = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        (0..count).map(|_| byte()).collect()
    }

    #[test]
    fn what_repeats_is_packed_and_what_does_not_hardly_grows() {
        assert!(packed(&noise(8_000)).unwrap().len() <= 8_000 + 8_000 / 255 + 16);
        assert!(packed(&[0; 60_000]).unwrap().len() < 300);
        let twice: Vec<u8> = noise(8_000).chunks(50).flat_map(|piece| [piece, piece].concat()).collect();
        let (own, other) = (packed(&twice).unwrap().len(), lz4_flex::block::compress(&twice).len());
        assert!(own <= other + other / 200, "{own} against {other}, of {}", twice.len());
    }

    #[test]
    fn what_is_for_a_patient_packer_is_refused_early() {
        let words =
            noise(4_000).iter().map(|byte| ["ridge ", "gravel ", "sand "][usize::from(byte % 3)]).collect::<String>();
        assert_eq!(packed(words.as_bytes()), None);
        assert_eq!(pack(&noise(40), &mut [0; 40]), None, "no room");
        assert_eq!(pack(&vec![0; INPUT_BYTES_MAX + 1], &mut vec![0; INPUT_BYTES_MAX * 2]), None, "too long");
        assert!(pack(&vec![0; INPUT_BYTES_MAX], &mut vec![0; INPUT_BYTES_MAX * 2]).is_some());
    }

    proptest! {
        /// Copies of every length and distance, literals of every length, ends near and far.
        #[test]
        fn packed_blocks_read_back(
            parts in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..80), 0usize..400, 1usize..5000), 0..60),
        ) {
            let mut raw = Vec::new();
            for (literals, count, distance) in parts {
                raw.extend_from_slice(&literals);
                for _ in 0..count {
                    let at = raw.len().checked_sub(distance).and_then(|at| raw.get(at).copied());
                    raw.push(at.unwrap_or(7));
                }
            }
            raw.truncate(INPUT_BYTES_MAX);
            if let Some(packed) = packed(&raw) {
                prop_assert_eq!(&lz4_flex::block::decompress(&packed, raw.len()).unwrap(), &raw);
            }
            // What others have packed, too, up to every place.
            let packed = lz4_flex::block::compress(&raw);
            for wanted in [0, 1.min(raw.len()), raw.len() / 3, raw.len() / 2, raw.len().saturating_sub(1), raw.len()] {
                let mut out = vec![0; raw.len()];
                let count = unpack_front(&packed, &mut out, wanted).unwrap();
                prop_assert!(count >= wanted && out[..count] == raw[..count]);
            }
            prop_assert_eq!(unpack_front(&packed, &mut vec![0; raw.len() + 1], raw.len() + 1), None);
            prop_assert!(raw.is_empty() || unpack_front(&packed, &mut vec![0; raw.len() - 1], raw.len()).is_none());
        }

        #[test]
        fn unpacking_is_total(packed in proptest::collection::vec(any::<u8>(), 0..300), room in 0usize..3000, wanted in 0usize..4000) {
            let mut out = vec![0; room];
            let count = unpack_front(&packed, &mut out, wanted);
            prop_assert!(count.is_none_or(|count| count >= wanted && count <= room));
        }

        /// Of damaged blocks the same comes out as of another unpacker, or nothing.
        #[test]
        fn damage_is_unpacked_as_others_do(
            words in proptest::collection::vec(0u8..4, 20..400), at: proptest::sample::Index, byte: u8,
        ) {
            let raw: Vec<u8> = words.iter().flat_map(|word| [*word; 7]).collect();
            let mut packed = lz4_flex::block::compress(&raw);
            *at.get_mut(&mut packed) = byte;
            let (mut own, mut other) = (vec![0; raw.len()], vec![0; raw.len()]);
            let unpacked = unpack_front(&packed, &mut own, raw.len());
            if lz4_flex::block::decompress_into(&packed, &mut other).ok() == Some(raw.len()) {
                prop_assert!(unpacked == Some(raw.len()) && own == other);
            }
        }
    }
}
