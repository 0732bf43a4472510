//! A log batch: what is written at once and counts as a whole.
//!
//! | offset       | bytes | field         | type   | meaning                                                      |
//! |-------------:|------:|---------------|--------|--------------------------------------------------------------|
//! |            0 |     7 | length        | u56 BE | of the whole batch, these bytes included                     |
//! |            7 |     1 | packing       | u8     | of the entries: 0 none, 1 LZ4                                |
//! |            8 |     8 | items offset  | u64 BE | where the items begin; 16 if there are no entries            |
//! |           16 |     * | entries       |        | the entries block ([`super::entries`])                       |
//! | items - 4    |     4 | entries CRC   | u32 LE | CRC-32 of the entries block; absent with it                  |
//! | items        |     * | items         |        | the item block ([`super::item`])                             |
//! | length - 4   |     4 | items CRC     | u32 LE | CRC-32 of the item block, xored with the file's salt         |
//!
//! The header has no checksum of its own: a wrong one makes the items' checksum fail.
//!
//! Source: raft-engine `src/log_batch.rs`.

use super::crc32;
use super::entries::Packing;
use crate::error::DecodeError;

/// Length of the header.
pub const HEADER_BYTES: usize = 16;
/// Length of a checksum.
pub const CHECKSUM_BYTES: usize = 4;
/// Longest batch that its header can say.
pub const LEN_BYTES_MAX: u64 = (1 << 56) - 1;

/// The header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Length of the whole batch.
    pub len: u64,
    /// How its entries are packed.
    pub packing: Packing,
    /// Where its items begin.
    pub items_offset: u64,
}

impl BatchHeader {
    /// The header of a batch with so many bytes of packed entries and items, without checksums.
    pub const fn of(packing: Packing, entries_bytes: usize, items_bytes: usize) -> Self {
        let entries = if entries_bytes == 0 { 0 } else { entries_bytes + CHECKSUM_BYTES };
        let items_offset = (HEADER_BYTES + entries) as u64;
        Self { len: items_offset + (items_bytes + CHECKSUM_BYTES) as u64, packing, items_offset }
    }

    /// The bytes on disk.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        let (first, second) = raw.split_at_mut(8);
        first.copy_from_slice(&(self.len << 8 | u64::from(self.packing.as_u8())).to_be_bytes());
        second.copy_from_slice(&self.items_offset.to_be_bytes());
        raw
    }

    /// Reads back what [`encode`](Self::encode) wrote. Total; allocates nothing.
    ///
    /// # Errors
    /// Corrupt if no batch could have it: too short for items, an entries block too short for its checksum.
    pub fn decode(raw: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let [a, b, c, d, e, f, g, packing, rest @ ..] = *raw;
        let len = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        let items_offset = u64::from_be_bytes(rest);
        let header = Self { len, packing: Packing::from_u8(packing)?, items_offset };
        let entries = items_offset.checked_sub(HEADER_BYTES as u64);
        if !entries.is_some_and(|bytes| bytes == 0 || bytes > CHECKSUM_BYTES as u64) {
            return Err(DecodeError::corrupt("items offset", 8, format!("{items_offset} leaves no room for entries")));
        }
        if len.checked_sub(items_offset).is_none_or(|bytes| bytes <= CHECKSUM_BYTES as u64) {
            let reason = format!("{len}, with items from byte {items_offset} on");
            return Err(DecodeError::corrupt("length", 0, reason));
        }
        Ok(header)
    }

    /// Where the entries block lies in the batch, with its checksum; empty if there is none.
    pub fn entries(&self) -> std::ops::Range<u64> {
        HEADER_BYTES as u64..self.items_offset
    }

    /// Where the item block lies in the batch, with its checksum.
    pub fn items(&self) -> std::ops::Range<u64> {
        self.items_offset..self.len
    }
}

/// Takes the checksum off the end of a block and compares it; `salt` is 0 for entries, the file's for items.
///
/// # Errors
/// Corrupt if the block is too short or the checksum is another.
pub fn checked<'a>(field: &'static str, block: &'a [u8], salt: u32) -> Result<&'a [u8], DecodeError> {
    let Some((body, stored)) = block.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(DecodeError::corrupt(field, 0, format!("{} bytes are too few for a checksum", block.len())));
    };
    let (stored, found) = (u32::from_le_bytes(*stored) ^ salt, crc32(body));
    if stored != found {
        return Err(DecodeError::corrupt(field, 0, format!("checksum is {found:#010x}, should be {stored:#010x}")));
    }
    Ok(body)
}

/// The salt with which a block's checksum would be right; `None` if the block is too short for one.
pub fn signed_with(block: &[u8]) -> Option<u32> {
    let (body, stored) = block.split_last_chunk::<CHECKSUM_BYTES>()?;
    Some(u32::from_le_bytes(*stored) ^ crc32(body))
}

#[cfg(test)]
mod tests {
    use super::super::file_header::Version;
    use super::super::item::Items;
    use super::*;
    use proptest::prelude::*;

    /// Written by raft-engine 0.4.2 into file 1 of version 2: two entries of ten bytes, five items.
    fn golden() -> Vec<u8> {
        let header = b"\0\0\0\0\0\0\x50\0\0\0\0\0\0\0\0\x28";
        let entries = b"\x0a\x03300\x12\x03one\x0a\x03301\x12\x03two";
        let items = b"\x05\x07\x01\x02\xac\x02\x0a\x14\x07\x03\x01\x05state\x01S\x09\x02\x02\x80\x01\x07\x03\x02\x04gone\xe8\x07\x02\x01";
        [&header[..], entries, b"\x86\x5a\x4f\x57", &items[..], b"\x93\xff\x1f\x45"].concat()
    }

    #[test]
    fn golden_bytes() {
        let raw = golden();
        assert_eq!(raw.len(), 0x50);
        let header = BatchHeader::decode(raw.first_chunk().unwrap()).unwrap();
        assert_eq!(header, BatchHeader::of(Packing::None, 20, 0x50 - 40 - 4));
        assert_eq!(header.encode(), raw[..16]);
        let at = |range: std::ops::Range<u64>| &raw[range.start as usize..range.end as usize];
        let entries = checked("entries", at(header.entries()), 0).unwrap();
        assert_eq!(entries, b"\x0a\x03300\x12\x03one\x0a\x03301\x12\x03two");
        let items = checked("items", at(header.items()), Version::V2.salt(1)).unwrap();
        assert_eq!(Items::new(items).unwrap().left(), 5);
        assert!(checked("items", at(header.items()), Version::V2.salt(2)).is_err(), "another file's salt");
        assert_eq!((signed_with(at(header.items())), signed_with(b"abc")), (Some(1), None));
        assert!(checked("items", at(header.items()), 0).is_err(), "no salt");
    }

    #[test]
    fn headers_that_nobody_writes_are_refused() {
        let refused = |len: u64, packing: u8, items: u64| {
            let mut raw = [0; HEADER_BYTES];
            raw[..8].copy_from_slice(&(len << 8 | u64::from(packing)).to_be_bytes());
            raw[8..].copy_from_slice(&items.to_be_bytes());
            BatchHeader::decode(&raw).map_err(|error| error.field).unwrap_err()
        };
        assert_eq!(refused(0, 0, 0), "items offset", "zeroes are not a batch");
        assert_eq!(refused(100, 2, 16), "packing");
        assert_eq!(refused(100, 0, 20), "items offset");
        assert_eq!(refused(20, 0, 16), "length");
        assert_eq!(refused(30, 0, u64::MAX), "length");
    }

    proptest! {
        #[test]
        fn headers_read_back(entries in 0usize..1 << 40, items in 1usize..1 << 40, lz4: bool) {
            let packing = if lz4 { Packing::Lz4 } else { Packing::None };
            let header = BatchHeader::of(packing, entries, items);
            prop_assert_eq!(BatchHeader::decode(&header.encode()).unwrap(), header);
        }

        #[test]
        fn decoding_is_total(raw: [u8; HEADER_BYTES], block in proptest::collection::vec(any::<u8>(), 0..20), salt: u32) {
            if let Ok(header) = BatchHeader::decode(&raw) {
                prop_assert!(header.entries().end <= header.items().start && header.items().end == header.len);
            }
            let _ = checked("block", &block, salt);
        }
    }
}
