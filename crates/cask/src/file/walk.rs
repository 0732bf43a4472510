//! Goes through the records of a data file from front to back, and tells the end of the file, a torn tail and damage apart.
//!
//! What a crash may leave in a file that was open: unsynced 512-byte sectors that were never written, so are zeroes; a
//! file that ends early; a last record of which the first eight bytes are zeroes, or the end is missing. All of that lies behind
//! what was synced, so the walk ends there ([`Step::End`]), unless it is known to have been durable. Whatever else does not check out is damage: it is named, and the walk
//! goes on with the next record that holds.
//!
//! - W1: a record counts only if its CRC, which begins from the file's random salt, holds. So nothing inside a value passes for one.
//! - W2: before the place up to which a file is known to be durable nothing is torn: there are records or damage. A sealed file is durable up
//!   to its end.

use std::cell::Cell;
use std::ops::Range;

use esker_format::cask::record::{self, HEAD_BYTES, Record};
use esker_format::zeroes::is_zero;

use super::claim;

/// The fault model's unit of what survives.
const SECTOR_BYTES: u64 = 512;
/// A record that an append left unfinished has zeroes at its end; so many are looked at.
const UNWRITTEN_BYTES: u64 = 8;

/// Records are looked for behind damage as long as CRCs of so many bytes take, some tenths of a second: where random bytes are, next to none.
const SEARCH_BYTES_MAX: u64 = 1 << 30;

/// What the walk met.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A record, where it begins, and all its bytes.
    Record { offset: u64, record: Record<'a>, raw: &'a [u8] },
    /// Bytes that are no records.
    Damage(Range<u64>),
    /// The last record ends here.
    End { at: u64, is_torn: bool },
}

#[derive(Debug)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    salt: u32,
    /// W2.
    durable: u64,
    offset: u64,
    /// What is left of [`SEARCH_BYTES_MAX`], for all damage of the file.
    search_bytes: Cell<u64>,
}

pub(crate) fn slice(bytes: &[u8], range: Range<u64>) -> Option<&[u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

impl<'a> Walk<'a> {
    /// From the first record of a sealed file on. `bytes` is the file from its beginning, up to where it should end.
    pub(crate) const fn new(bytes: &'a [u8], salt: u32) -> Self {
        Self::torn_behind(bytes, salt, bytes.len() as u64)
    }

    /// The same of a file that was open, of which so many bytes are known to be durable.
    pub(crate) const fn torn_behind(bytes: &'a [u8], salt: u32, durable: u64) -> Self {
        Self { bytes, salt, durable, offset: record::FIRST_OFFSET, search_bytes: Cell::new(SEARCH_BYTES_MAX) }
    }

    /// The same, from `offset` on, where a record begins or the file ends.
    pub(crate) const fn from(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    const fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The record at `offset`, if there is one and it holds.
    fn record_at(&self, offset: u64) -> Option<(Record<'a>, &'a [u8])> {
        let rest = slice(self.bytes, offset..self.len())?;
        let record_bytes = usize::try_from(record::peek_bytes(rest)?).ok()?;
        let raw = rest.get(..record_bytes)?;
        let record = Record::decode(raw).ok()?;
        record::checksum_holds(raw, self.salt).then_some((record, raw))
    }

    /// The next record, damage, or the end; after the end, the end again.
    pub(crate) fn step(&mut self) -> Step<'a> {
        let offset = self.offset;
        if offset >= self.len() {
            return Step::End { at: self.len(), is_torn: false };
        }
        if let Some((record, raw)) = self.record_at(offset) {
            self.offset += raw.len() as u64;
            return Step::Record { offset, record, raw };
        }
        if offset >= self.durable && self.ends_at(offset) {
            let rest = slice(self.bytes, offset..self.len()).unwrap_or_default();
            return Step::End { at: offset, is_torn: !is_zero(rest) };
        }
        let mut next = self.next_record(offset);
        if next == self.len() && offset < self.durable {
            // Nothing holds behind it: the rest may be what a crash left.
            next = self.durable.min(next);
        }
        self.offset = next;
        Step::Damage(offset..next)
    }

    /// Whether what begins at `offset`, which is no record that holds, may be what a crash left.
    fn ends_at(&self, offset: u64) -> bool {
        let rest = slice(self.bytes, offset..self.len()).unwrap_or_default();
        let Some(head) = rest.get(..HEAD_BYTES) else { return true };
        // The first eight bytes of a record are written last, and are never all zeroes.
        if head.first_chunk::<8>().is_some_and(|commit| is_zero(commit)) {
            return true;
        }
        // What a crash leaves is one bit away from a record only if that bit was all there was in a sector.
        if let Some((byte, record_bytes)) = claim::flipped_byte(rest, self.salt) {
            let sector = (offset + byte) / SECTOR_BYTES * SECTOR_BYTES;
            let part = sector.max(offset)..(sector + SECTOR_BYTES).min(offset + record_bytes);
            if !self.has_unwritten_sector(part) {
                return false;
            }
        }
        let head_end = offset + HEAD_BYTES as u64;
        // Of a head in two sectors one may be missing: then nobody knows how long the record is.
        if self.has_unwritten_sector(offset..head_end) {
            return true;
        }
        let Some(record_bytes) = record::peek_bytes(head) else { return false };
        let end = offset.saturating_add(record_bytes);
        let last = end.saturating_sub(UNWRITTEN_BYTES).max(head_end)..end;
        let is_unfinished = end > self.len()
            || slice(self.bytes, last).is_some_and(|bytes| bytes.len() as u64 == UNWRITTEN_BYTES && is_zero(bytes));
        let next = self.search(offset);
        // No record lies inside another (W1): if one does, it is the length that is rotten.
        if next < end.min(self.len()) {
            return false;
        }
        // What was never finished is followed by nothing.
        self.has_unwritten_sector(offset..end.min(self.len())) || is_unfinished && next == self.len()
    }

    /// Whether the part of `range` that lies in one sector is zeroes altogether.
    fn has_unwritten_sector(&self, range: Range<u64>) -> bool {
        let mut start = range.start;
        while start < range.end {
            let end = ((start / SECTOR_BYTES + 1) * SECTOR_BYTES).min(range.end);
            if slice(self.bytes, start..end).is_some_and(is_zero) {
                return true;
            }
            start = end;
        }
        false
    }

    /// Where the next record that holds begins, behind `offset`; the end if there is none.
    pub(crate) fn next_record(&self, offset: u64) -> u64 {
        // If only key or value are damaged, the head still says where the next one is.
        let rest = slice(self.bytes, offset..self.len()).unwrap_or_default();
        if let Some(record_bytes) = record::peek_bytes(rest)
            && let Some(next) = offset.checked_add(record_bytes)
            && (next == self.len() || self.record_at(next).is_some())
        {
            return next;
        }
        self.search(offset)
    }

    /// The same, without trusting the head at `offset`. Nothing, once that was too much work: then bytes were made to look like heads.
    pub(crate) fn search(&self, offset: u64) -> u64 {
        let versions_end = claim::plausible_versions_end(self.bytes);
        for offset in offset + 1..self.len() {
            let rest = slice(self.bytes, offset..self.len()).unwrap_or_default();
            let Some(record) = Record::decode(rest).ok().filter(|record| record.version < versions_end) else {
                continue;
            };
            let Some(left) = self.search_bytes.get().checked_sub(record.bytes()) else { break };
            self.search_bytes.set(left);
            if self.record_at(offset).is_some() {
                return offset;
            }
        }
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::cask::FileNumber;
    use esker_format::cask::data_file::DataFileHeader;
    use esker_format::compression::Compression;

    const SALT: u32 = 99;

    fn record<'a>(version: u64, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        let (is_tombstone, is_continued, expires_at) = (false, false, None);
        Record { version, is_tombstone, is_continued, expires_at, compression: Compression::None, key, value }
    }

    /// Three records of 1,000 bytes each, and where they begin.
    fn file() -> (Vec<u8>, Vec<u64>) {
        let mut bytes = vec![0; record::FIRST_OFFSET as usize];
        let mut offsets = Vec::new();
        for version in 1..4 {
            offsets.push(bytes.len() as u64);
            record(version, b"key", &[7; 977]).encode(SALT, &mut bytes).unwrap();
        }
        (bytes, offsets)
    }

    /// Versions found, damage, end, whether torn.
    fn walk(bytes: &[u8], is_sealed: bool) -> (Vec<u64>, Vec<(u64, u64)>, u64, bool) {
        walk_behind(bytes, if is_sealed { bytes.len() as u64 } else { 0 })
    }

    fn walk_behind(bytes: &[u8], durable: u64) -> (Vec<u64>, Vec<(u64, u64)>, u64, bool) {
        let (mut walk, mut versions, mut damage) = (Walk::torn_behind(bytes, SALT, durable), Vec::new(), Vec::new());
        loop {
            match walk.step() {
                Step::Record { record, .. } => versions.push(record.version),
                Step::Damage(range) => damage.push((range.start, range.end)),
                Step::End { at, is_torn } => return (versions, damage, at, is_torn),
            }
        }
    }

    #[test]
    fn a_whole_file_ends_with_its_last_record() {
        let (mut bytes, _) = file();
        assert_eq!(walk(&bytes, true), (vec![1, 2, 3], vec![], 3032, false));
        bytes.resize(10_000, 0);
        assert_eq!(walk(&bytes, false), (vec![1, 2, 3], vec![], 3032, false));
    }

    #[test]
    fn what_a_crash_leaves_ends_an_open_file() {
        let (bytes, offsets) = file();
        for cut in offsets[2] + 1..3032 {
            assert_eq!(walk(&bytes[..cut as usize], false), (vec![1, 2], vec![], offsets[2], true), "cut at {cut}");
            let mut zeroed = bytes.clone();
            zeroed[cut as usize..].fill(0);
            // Within the last eight bytes of the record nobody can tell.
            if cut + 8 <= 3032 {
                assert_eq!(walk(&zeroed, false), (vec![1, 2], vec![], offsets[2], true), "zeroes from {cut}");
            }
        }
        for sector in [1usize, 2] {
            let mut lost = bytes.clone();
            lost[sector * 512..][..512].fill(0);
            let (versions, damage, at, is_torn) = walk(&lost, false);
            assert_eq!((damage, is_torn), (vec![], true), "sector {sector}");
            assert_eq!(at, offsets[versions.len()]);
        }
        let mut unfinished = bytes.clone();
        unfinished[offsets[1] as usize..][..8].fill(0);
        assert_eq!(walk(&unfinished, false), (vec![1], vec![], offsets[1], true));
    }

    /// Goal: also where all that is missing of a record is one bit, in its value or in its key.
    #[test]
    fn a_sector_that_had_one_bit_is_what_a_crash_leaves() {
        let one = 1u64.to_be_bytes();
        for (key, value) in [(&b"key"[..], &one[..]), (&one, b""), (&one, &[0; 8])] {
            let mut last = Vec::new();
            record(2, key, value).encode(SALT, &mut last).unwrap();
            for boundary in 8..last.len() {
                let mut bytes = vec![0; record::FIRST_OFFSET as usize];
                // The first fills the file up to where the last record crosses from one sector into the next.
                let begin = 2 * SECTOR_BYTES as usize - boundary;
                let mut first = Vec::new();
                record(1, b"first", &[7; 600]).encode(SALT, &mut first).unwrap();
                let value_bytes = begin - bytes.len() - (first.len() - 600);
                record(1, b"first", &vec![7; value_bytes]).encode(SALT, &mut bytes).unwrap();
                assert_eq!(bytes.len(), begin);
                bytes.extend_from_slice(&last[..boundary]);
                bytes.resize(2048, 0);
                let is_whole = last[boundary..].iter().all(|&byte| byte == 0);
                let expected = if is_whole {
                    (vec![1, 2], vec![], (begin + last.len()) as u64, false)
                } else {
                    (vec![1], vec![], begin as u64, true)
                };
                assert_eq!(walk_behind(&bytes, 0), expected, "key {key:?}, value {value:?}, boundary {boundary}");
            }
        }
    }

    #[test]
    fn damage_is_named_and_the_rest_is_served() {
        let (bytes, offsets) = file();
        for place in offsets[1]..offsets[2] {
            let mut damaged = bytes.clone();
            damaged[place as usize] ^= 0x10;
            for is_sealed in [true, false] {
                let found = walk(&damaged, is_sealed);
                assert_eq!(found, (vec![1, 3], vec![(offsets[1], offsets[2])], 3032, false), "byte {place}");
            }
        }
    }

    #[test]
    fn what_was_durable_is_not_torn_and_what_lies_behind_is() {
        let (mut bytes, offsets) = file();
        bytes.resize(4096, 0);
        // The second record, with a lost sector; then the second and the third, whole.
        let mut damaged = bytes.clone();
        damaged[1536..2032].fill(0);
        assert_eq!(walk_behind(&damaged, 0), (vec![1], vec![], offsets[1], true));
        assert_eq!(walk_behind(&damaged, offsets[2]), (vec![1, 3], vec![(offsets[1], offsets[2])], 3032, false));
        bytes[offsets[1] as usize..3032].fill(0);
        assert_eq!(walk_behind(&bytes, offsets[2]), (vec![1], vec![(offsets[1], offsets[2])], offsets[2], false));
        assert_eq!(walk_behind(&bytes, 3032), (vec![1], vec![(offsets[1], 3032)], 3032, false));
    }

    #[test]
    fn bytes_that_look_like_heads_cost_a_bounded_search() {
        let mut bytes = vec![0; record::FIRST_OFFSET as usize];
        let mut head = Vec::new();
        record(1, b"", &[0; 400_000]).encode(SALT, &mut head).unwrap();
        // The first is no head, so that its length is not trusted.
        bytes.extend_from_slice(&[0xff; 40]);
        bytes.extend_from_slice(&head[..20].repeat(20_000));
        bytes.resize(bytes.len() + 400_000, 1);
        record(2, b"key", b"behind").encode(SALT, &mut bytes).unwrap();
        assert_eq!(walk(&bytes, true), (vec![], vec![(32, bytes.len() as u64)], bytes.len() as u64, false));
    }

    /// Goal: records are found behind damage whatever the versions of the store have come to.
    #[test]
    fn versions_may_be_as_high_as_the_head_says() {
        for begin in [1, 1 << 48, 1 << 52] {
            let number = FileNumber::new(1).unwrap();
            let mut bytes = DataFileHeader { number, salt: SALT, clean_as_of: begin }.encode();
            record(begin, b"first", &[7; 100]).encode(SALT, &mut bytes).unwrap();
            let second = bytes.len() as u64;
            // Others' damage may have pushed it on.
            let version = begin + (1 << 48);
            record(version, b"second", b"").encode(SALT, &mut bytes).unwrap();
            bytes[record::FIRST_OFFSET as usize..][..HEAD_BYTES].fill(0xff);
            let end = bytes.len() as u64;
            assert_eq!(walk(&bytes, true), (vec![version], vec![(record::FIRST_OFFSET, second)], end, false));
        }
    }

    #[test]
    fn a_record_inside_a_value_is_none() {
        let mut inner = Vec::new();
        record(9, b"inner", b"x").encode(SALT + 1, &mut inner).unwrap();
        let mut bytes = vec![0; record::FIRST_OFFSET as usize];
        record(1, b"outer", &inner).encode(SALT, &mut bytes).unwrap();
        let end = bytes.len() as u64;
        bytes[32] ^= 1;
        assert_eq!(walk(&bytes, true), (vec![], vec![(32, end)], end, false));
    }
}
