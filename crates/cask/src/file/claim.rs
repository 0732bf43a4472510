//! What damaged records were, as far as they still say.
//!
//! - A1: a single flipped bit is found, in head or key by trying each, in a value by what it makes of the CRC: a CRC of 32 bits holds by chance
//!   once in thousands of millions. So what such a record was is certain.
//! - A2: else head and key are taken at their word, if they make a record that ends within the damage.
//! - A3: a claim is never served. It keeps what is older from being taken for its key's newest (`suspects.rs`).
//!
//! Cost: one CRC of a damaged record for each bit of its head and key, and one of a byte for each bit of its value, up to a bound.

use std::ops::Range;

use esker_format::cask::data_file::DataFileHeader;
use esker_format::cask::record::{self, HEAD_BYTES_MAX, Record};
use esker_format::checksum::crc32c_extend;

/// Versions this far beyond what a file's head says are not believed without a CRC: random bytes nearly all are. So far a claim may push those that
/// are given after it (`suspects.rs`).
const VERSIONS_AHEAD_MAX: u64 = 1 << 48;
/// In a longer value no flipped bit is looked for: some bit would explain other damage too often, here once in some thousands of times.
const VALUE_BYTES_MAX: usize = 1 << 16;
/// Flipped bits are looked for as long as CRCs of so many bytes take: some tens of milliseconds for a stretch of damage.
const SEARCH_BYTES_MAX: u64 = 1 << 28;

/// A record that was once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) offset: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) version: u64,
    /// A1.
    pub(crate) is_certain: bool,
}

/// The records that were in `range` of a file, in which nothing holds, up to the first that says nothing; and where that is.
pub(crate) fn claims(bytes: &[u8], salt: u32, range: Range<u64>) -> (Vec<Claim>, u64) {
    let begin = version_at_begin(bytes);
    let mut found = Vec::new();
    let (mut offset, mut budget) = (range.start, SEARCH_BYTES_MAX);
    while let Some(rest) = super::walk::slice(bytes, offset..range.end).filter(|rest| !rest.is_empty()) {
        // The value first: that costs least.
        let said = Record::decode(rest).ok();
        let lacks_value_bit = said.is_some_and(|record| lacks_value_bit(rest, &record, salt, &mut budget));
        let raw = if lacks_value_bit { None } else { corrected(rest, salt, &mut budget) };
        // A2.
        let Ok(record) = Record::decode(raw.as_deref().unwrap_or(rest)) else { break };
        let is_certain = raw.is_some() || lacks_value_bit;
        let versions_end = if is_certain { 2 * VERSIONS_AHEAD_MAX } else { VERSIONS_AHEAD_MAX };
        if record.version >= begin.saturating_add(versions_end) {
            break;
        }
        found.push(Claim { offset, key: record.key.to_vec(), version: record.version, is_certain });
        offset += record.bytes();
    }
    (found, offset)
}

/// What the head of a file says of its versions: those that writers give it are no lower, those that a merge copies no higher.
fn version_at_begin(bytes: &[u8]) -> u64 {
    DataFileHeader::decode(bytes).map_or(0, |head| head.clean_as_of)
}

/// A record that holds may lie in the file `bytes` as long as its version is lower than this.
pub(super) fn plausible_versions_end(bytes: &[u8]) -> u64 {
    version_at_begin(bytes).saturating_add(2 * VERSIONS_AHEAD_MAX)
}

/// A1: whether `record`, with which `raw` begins, would hold with one bit of its value flipped.
fn lacks_value_bit(raw: &[u8], record: &Record<'_>, salt: u32, budget: &mut u64) -> bool {
    let raw = usize::try_from(record.bytes()).ok().and_then(|bytes| raw.get(..bytes));
    let Some((said, rest)) = raw.and_then(|raw| raw.split_first_chunk::<4>()) else { return false };
    if record.value.len() > VALUE_BYTES_MAX {
        return false;
    }
    // One CRC of a byte for each bit.
    let Some(left) = budget.checked_sub(8 * record.value.len() as u64) else { return false };
    *budget = left;
    let missing = crc32c_extend(salt, rest) ^ u32::from_le_bytes(*said);
    // A CRC is linear: what a bit makes of it depends on nothing but how many bytes follow. It begins and ends inverted.
    let mut changes: [u32; 8] = std::array::from_fn(|bit| !crc32c_extend(!0, &[1 << bit]));
    for _ in record.value {
        if changes.contains(&missing) {
            return true;
        }
        changes = changes.map(|change| !crc32c_extend(!change, &[0]));
    }
    false
}

/// A1: which byte of `rest`, which begins with a record but for one bit, has that bit; and how long the record is.
pub(super) fn flipped_byte(rest: &[u8], salt: u32) -> Option<(u64, u64)> {
    let raw = corrected(rest, salt, &mut SEARCH_BYTES_MAX.clone())?;
    let byte = raw.iter().zip(rest).position(|(was, is)| was != is)?;
    Some((byte as u64, raw.len() as u64))
}

/// A1: the record at the beginning of `rest` with one bit as it was.
fn corrected(rest: &[u8], salt: u32, budget: &mut u64) -> Option<Vec<u8>> {
    // As long as the damaged head says: if it is the length that is damaged, the bit is in the head.
    let key_bytes = Record::decode(rest).map_or(0, |record| record.key.len());
    let (front, _) = rest.split_at(rest.len().min(HEAD_BYTES_MAX + key_bytes));
    let mut front = front.to_vec();
    for bit in 0..front.len() * 8 {
        flip(&mut front, bit);
        let bytes = record::peek_bytes(&front).and_then(|bytes| usize::try_from(bytes).ok());
        if let Some(raw) = bytes.and_then(|bytes| rest.get(..bytes)) {
            *budget = budget.checked_sub(raw.len() as u64)?;
            let (front, behind) = match raw.get(front.len()..) {
                Some(behind) => (&front[..], behind),
                None => (front.get(..raw.len()).unwrap_or(&front), &[][..]),
            };
            if record::checksum_of_parts_holds(front, behind, salt) {
                return Some([front, behind].concat());
            }
        }
        flip(&mut front, bit);
    }
    None
}

fn flip(bytes: &mut [u8], bit: usize) {
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::compression::Compression;

    const SALT: u32 = 99;
    const START: u64 = 32;

    /// Two records, and where the second begins.
    fn file() -> (Vec<u8>, u64) {
        let mut bytes = vec![0; START as usize];
        let mut second = 0;
        for (version, expires_at) in [(5, None), (6, Some(1 << 31))] {
            second = bytes.len() as u64;
            let (is_tombstone, is_continued, compression) = (false, false, Compression::None);
            let (key, value) = (&[b'k', version as u8][..], &[7; 300][..]);
            let record = Record { version, is_tombstone, is_continued, expires_at, compression, key, value };
            record.encode(SALT, &mut bytes).unwrap();
        }
        (bytes, second)
    }

    #[test]
    fn one_flipped_bit_hides_neither_key_nor_version() {
        let (bytes, second) = file();
        let end = bytes.len() as u64;
        for (from, to, version) in [(START, second, 5), (second, end, 6)] {
            for bit in from * 8..to * 8 {
                let mut damaged = bytes.clone();
                flip(&mut damaged, bit as usize);
                let claim = Claim { offset: from, key: vec![b'k', version as u8], version, is_certain: true };
                assert_eq!(claims(&damaged, SALT, from..to), (vec![claim], to), "bit {bit}");
            }
        }
    }

    /// Goal: a file of damaged records holds up no open.
    #[test]
    fn bits_of_values_are_looked_for_within_the_bound() {
        let (mut bytes, second) = file();
        bytes[second as usize - 1] ^= 1;
        let raw = &bytes[START as usize..second as usize];
        let (record, mut budget) = (Record::decode(raw).unwrap(), 5000);
        let found: Vec<_> = (0..3).map(|_| lacks_value_bit(raw, &record, SALT, &mut budget)).collect();
        assert_eq!((found, budget), (vec![true, true, false], 200));
    }

    #[test]
    fn several_records_are_told_apart_and_what_is_none_claims_nothing() {
        let (mut bytes, second) = file();
        bytes[second as usize - 1] ^= 0xff;
        let end = bytes.len();
        bytes[end - 1] ^= 0xff;
        let (found, to) = claims(&bytes, SALT, START..end as u64);
        let found: Vec<_> = found.iter().map(|claim| (claim.offset, claim.version, claim.is_certain)).collect();
        assert_eq!((found, to), (vec![(START, 5, false), (second, 6, false)], end as u64));
        bytes[START as usize..].fill(0xff);
        assert_eq!(claims(&bytes, SALT, START..end as u64), (vec![], START));
        bytes[START as usize..].fill(0);
        assert_eq!(claims(&bytes, SALT, START..end as u64), (vec![], START));
        assert_eq!(claims(&bytes, SALT, START..u64::MAX), (vec![], START));
    }
}
