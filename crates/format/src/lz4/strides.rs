//! Packing what repeats rarely: what costs other packers most is to search there.
//!
//! Four bytes are looked up by their hash among those that were looked up before. Places that repeat are found if they and their
//! originals were both looked at, so where nothing repeats looks go in strides whose places are a *difference set*: of a stride of
//! 13 bytes, the places 0, 1, 3 and 9 differ from one another by every number below 13. Whatever the distance of a copy from its
//! original, one place of each stride falls on one that was looked at, so no copy of 32 bytes is missed, at a third of the looks; what is
//! found is extended backwards. The longer nothing repeats, the longer the strides. Short copies follow one another too closely
//! for that: there every byte is looked at ([`step_by_step`]), and of a longer text [`pack`] says early that it is for a patient packer.
//!
//! Cost (AMD EPYC; in brackets lz4_flex): 50 random bytes, twice each: 1 KiB 0.41 µs (0.63), 8 KiB 2.4 (4.1), 32 KiB 9.6 (16.5), no larger;
//! texts as long as there and up to 0.5 % larger at 1 KiB, 1 to 3 % longer and no larger above [`SHORT_INPUT_BYTES`].
//!
//! Source of the sets: J. Singer, *A theorem in finite projective geometry*, 1938.

use std::ops::Range;

use super::MATCH_BYTES_MIN;

/// Longest input: places in it are of 16 bits.
pub(super) const INPUT_BYTES_MAX: usize = 1 << 16;
/// Inputs up to this have all their places in [`TABLE_SMALL`], which is sooner cleared.
const TINY_INPUT_BYTES: usize = 2 << 10;
const TABLE_SMALL: usize = 1 << 10;
const TABLE: usize = 1 << 12;
/// Inputs up to this are packed here whatever they are: to begin once more would cost more than it gains.
const SHORT_INPUT_BYTES: usize = 4 << 10;
/// After so many short copies a longer input is for another packer, if nothing spoke for strides till then.
const COPIES_SHORT: u32 = 8;
/// Copies below this say that every byte is to be looked at.
const LONG_COPY_BYTES: usize = 16;
/// Copies that are not short, so far behind the last one, say that strides will do: so many of them, after a short one.
const FAR_BYTES: usize = 32;
const PATIENCE: u32 = 2;
/// After so many looks in vain (a power of two), steps are one byte longer.
const STEP_BITS: usize = 5;
/// No copy begins in the last bytes of a block.
const LAST_START_BYTES: usize = 12;
/// And none reaches into the very last.
const LAST_LITERALS: usize = 5;

/// Where four bytes were seen last, by their hash. Place 0 stands for all that were not.
type Table<const N: usize> = [u16; N];

/// Packs `raw` into the front of `out`; says how many bytes that took.
/// `None`: it is not for this packer, or `out` is too short.
pub(super) fn pack(raw: &[u8], out: &mut [u8]) -> Option<usize> {
    if raw.len() > INPUT_BYTES_MAX {
        None
    } else if raw.len() > TINY_INPUT_BYTES {
        pack_with(raw, out, &mut [0; TABLE])
    } else {
        pack_with(raw, out, &mut [0; TABLE_SMALL])
    }
}

fn pack_with<const N: usize>(raw: &[u8], out: &mut [u8], table: &mut Table<N>) -> Option<usize> {
    let mut output = Output { raw, done: 0, out, len: 0 };
    if raw.len() >= LAST_START_BYTES {
        let mut patience = 1;
        let mut short_copies_left = if raw.len() > SHORT_INPUT_BYTES { COPIES_SHORT } else { u32::MAX };
        let mut goes_on = true;
        while goes_on {
            (output, goes_on) = step_by_step(raw, output, table, patience, short_copies_left)?;
            if goes_on {
                (output, goes_on) = in_strides(raw, output, table)?;
            }
            (patience, short_copies_left) = (PATIENCE, u32::MAX);
        }
    }
    output.last()
}

// Both take what they write and give it back, so that it is in registers meanwhile.

/// Packs what repeats often, until strides will do. Says whether they will, or all copies are found.
#[inline(never)]
fn step_by_step<'a, const N: usize>(
    raw: &[u8],
    mut output: Output<'a>,
    table: &mut Table<N>,
    mut patience: u32,
    mut short_copies_left: u32,
) -> Option<(Output<'a>, bool)> {
    // The first byte is never a copy, and place 0 is in the table already.
    let mut at = output.done.max(1);
    while let Some((place, from)) = find_near(raw, at, table) {
        let back = common_back_bytes(raw, output.done, from, place);
        let (place, from) = (place - back, from - back);
        let known = MATCH_BYTES_MIN + back;
        let count = known + common::<8>(raw, from + known, place + known);
        let is_far = place - output.done >= FAR_BYTES;
        output.copy::<16>(place, from, count)?;
        at = output.done;
        look(raw, table, four(raw, at - 2)?, at - 2);
        if count < LONG_COPY_BYTES {
            patience = PATIENCE;
            short_copies_left -= 1;
            if short_copies_left == 0 {
                return None;
            }
        } else if is_far {
            patience -= 1;
            if patience == 0 {
                return Some((output, true));
            }
        }
    }
    Some((output, false))
}

/// Packs what repeats rarely, until a copy is short. Says whether one was, or all copies are found.
#[inline(never)]
fn in_strides<'a, const N: usize>(
    raw: &[u8],
    mut output: Output<'a>,
    table: &mut Table<N>,
) -> Option<(Output<'a>, bool)> {
    while let Some((place, from)) = find_far(raw, output.done, table) {
        let back = common_back(raw, output.done, from, place);
        let (place, from) = (place - back, from - back);
        let known = MATCH_BYTES_MIN + back;
        let count = known + common::<16>(raw, from + known, place + known);
        output.copy::<64>(place, from, count)?;
        look(raw, table, four(raw, output.done - 2)?, output.done - 2);
        if count < LONG_COPY_BYTES {
            return Some((output, true));
        }
    }
    Some((output, false))
}

#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

#[inline(always)]
fn four(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Where else the bytes `seen` at `place` are, if that is known; from now on, they are at `place`. The multiplier is Knuth's.
#[inline(always)]
fn look<const N: usize>(raw: &[u8], table: &mut Table<N>, seen: u32, place: usize) -> Option<usize> {
    let hash = seen.wrapping_mul(2_654_435_761) >> (u32::BITS - N.trailing_zeros());
    let from = usize::from(std::mem::replace(table.get_mut(hash as usize)?, place as u16));
    (four(raw, from) == Some(seen)).then_some(from)
}

/// The first place from `at` on that repeats an earlier one, and that one, looking at every byte at first.
#[inline(always)]
fn find_near<const N: usize>(raw: &[u8], mut at: usize, table: &mut Table<N>) -> Option<(usize, usize)> {
    let last_start = raw.len().checked_sub(LAST_START_BYTES)?;
    let mut looks = 1 << STEP_BITS;
    while at <= last_start {
        if let Some(from) = look(raw, table, four(raw, at)?, at) {
            return Some((at, from));
        }
        at += looks >> STEP_BITS;
        looks += 1;
    }
    None
}

/// The same in strides. They begin at multiples of their length, or copies would not meet their originals.
#[inline(always)]
fn find_far<const N: usize>(raw: &[u8], mut at: usize, table: &mut Table<N>) -> Option<(usize, usize)> {
    macro_rules! strides {
        ($times:expr, $length:literal, $places:expr) => {
            at = at.next_multiple_of($length);
            for _ in 0..$times {
                let Some(window) = chunk::<{ $length + LAST_START_BYTES }>(raw, at) else {
                    return find_near(raw, at, table);
                };
                for place in $places {
                    if let Some(from) = look(raw, table, four(window, place)?, at + place) {
                        return Some((at + place, from));
                    }
                }
                at += $length;
            }
        };
    }
    strides!(12, 13, SET_13);
    strides!(16, 31, SET_31);
    strides!(usize::MAX, 73, SET_73);
    None
}

const SET_13: [usize; 4] = [0, 1, 3, 9];
const SET_31: [usize; 6] = [0, 1, 3, 8, 12, 18];
const SET_73: [usize; 9] = [0, 1, 3, 7, 15, 31, 36, 54, 63];
const _: () = assert!(covers(&SET_13, 13) && covers(&SET_31, 31) && covers(&SET_73, 73));

/// Whether each number below `length` is how far two places of `set` are apart, in strides that follow one another.
#[expect(clippy::indexing_slicing, reason = "runs while this is compiled")]
const fn covers(set: &[usize], length: usize) -> bool {
    let mut distance = 1;
    while distance < length {
        let (mut at, mut is_there) = (0, false);
        while at < set.len() * set.len() {
            is_there |= (set[at / set.len()] + length - set[at % set.len()]) % length == distance;
            at += 1;
        }
        if !is_there {
            return false;
        }
        distance += 1;
    }
    true
}

/// How many bytes before `place` are those before `from`, back to `floor`.
#[inline(always)]
fn common_back_bytes(raw: &[u8], floor: usize, from: usize, place: usize) -> usize {
    let most = (place - floor).min(from);
    let mut count = 0;
    while count < most && raw.get(place - count - 1) == raw.get(from - count - 1) {
        count += 1;
    }
    count
}

/// The same, eight at once.
#[inline(always)]
fn common_back(raw: &[u8], floor: usize, from: usize, place: usize) -> usize {
    let most = (place - floor).min(from);
    let before = |at: usize| raw.get(..at)?.last_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let mut count = 0;
    while count < most {
        let (Some(a), Some(b)) = (before(place - count), before(from - count)) else {
            return count + common_back_bytes(raw, floor, from - count, place - count);
        };
        let same = ((a ^ b).leading_zeros() / 8) as usize;
        count += same;
        if same < 8 {
            break;
        }
    }
    count.min(most)
}

/// How many bytes from `place` on are those from `from` on, but for the last of all, `WORD` (up to 16) at once.
#[inline(always)]
fn common<const WORD: usize>(raw: &[u8], mut from: usize, mut place: usize) -> usize {
    let word = |at| {
        let mut word = [0; 16];
        word.first_chunk_mut::<WORD>()?.clone_from(chunk(raw, at)?);
        Some(u128::from_le_bytes(word))
    };
    let (begin, end) = (place, raw.len() - LAST_LITERALS);
    while place + WORD <= end {
        let (Some(a), Some(b)) = (word(from), word(place)) else { break };
        let differ = a ^ b;
        if differ != 0 {
            return place - begin + (differ.trailing_zeros() / 8) as usize;
        }
        (from, place) = (from + WORD, place + WORD);
    }
    while place < end && raw.get(from) == raw.get(place) {
        (from, place) = (from + 1, place + 1);
    }
    place - begin
}

struct Output<'a> {
    raw: &'a [u8],
    /// Of `raw`, so much is in `out`.
    done: usize,
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

    /// Up to `PIECE` bytes in one step, where there is room to write too much.
    #[inline(always)]
    fn literals<const PIECE: usize>(&mut self, range: Range<usize>) -> Option<()> {
        let count = range.len();
        if count <= PIECE
            && let Some(source) = chunk::<PIECE>(self.raw, range.start)
            && let Some(room) = self.out.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut)
        {
            *room = *source;
        } else {
            self.out.get_mut(self.len..self.len + count)?.copy_from_slice(self.raw.get(range)?);
        }
        self.len += count;
        Some(())
    }

    /// Literals up to `place`, and there a copy of `count` bytes from `from` on.
    #[inline(always)]
    fn copy<const PIECE: usize>(&mut self, place: usize, from: usize, count: usize) -> Option<()> {
        let literals = self.done..place;
        let extra = count - MATCH_BYTES_MIN;
        self.byte((literals.len().min(15) << 4 | extra.min(15)) as u8)?;
        self.more(literals.len())?;
        self.literals::<PIECE>(literals)?;
        self.out.get_mut(self.len..self.len + 2)?.copy_from_slice(&((place - from) as u16).to_le_bytes());
        self.len += 2;
        self.more(extra)?;
        self.done = place + count;
        Some(())
    }

    /// What follows the last copy. Says how many bytes all are.
    fn last(mut self) -> Option<usize> {
        let literals = self.done..self.raw.len();
        self.byte((literals.len().min(15) << 4) as u8)?;
        self.more(literals.len())?;
        self.literals::<64>(literals)?;
        Some(self.len)
    }
}
