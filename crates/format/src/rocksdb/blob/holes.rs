//! Holes: dead pages that reclaim has given back to the file system, and that read as zeroes. Whoever walks a file from record to
//! record gets past them.

use std::ops::Range;

use super::{BlobRecordHeader, RECORD_HEADER_BYTES};
use crate::zeroes::is_zero;

/// What a device writes whole.
const SECTOR_BYTES: usize = 512;
/// Read at once, besides the rest of a header.
const CHUNK_BYTES: usize = 256 << 10;

/// Whether a hole is in `bytes`, which begin at `offset` of the file. It is known by a sector of zeroes: after a power loss, part of
/// one may hold old bytes again.
pub fn has_hole(offset: u64, bytes: &[u8]) -> bool {
    let before_sector = (offset.wrapping_neg() % SECTOR_BYTES as u64) as usize;
    let mut sectors = bytes.get(before_sector..).unwrap_or_default().chunks_exact(SECTOR_BYTES);
    sectors.any(is_zero)
}

/// Where records go on behind the damage at `at`, if a hole is part of it, one that took a header with it: at the next header, or
/// at `records_end`. `None` if there is no hole. `read` fills the bytes from an offset before `records_end` on.
///
/// # Errors
/// What `read` says.
pub fn behind_hole<E>(
    at: u64,
    records_end: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<u64>, E> {
    let mut is_met = false;
    let mut start = at - at % SECTOR_BYTES as u64;
    let mut chunk = Vec::new();
    while start < records_end {
        let count = (records_end - start).min((CHUNK_BYTES + RECORD_HEADER_BYTES) as u64);
        chunk.resize(usize::try_from(count).unwrap_or(0), 0);
        read(start, &mut chunk)?;
        let headers = chunk.windows(RECORD_HEADER_BYTES).enumerate().take(CHUNK_BYTES);
        let mut next = headers.filter(|(offset, raw)| start + *offset as u64 > at && may_be_header(raw));
        let next = next.find(|(_, raw)| BlobRecordHeader::decode(raw).is_ok()).map(|(offset, _)| offset);
        is_met |= has_hole(start, chunk.get(..next.unwrap_or(chunk.len())).unwrap_or_default());
        if let Some(offset) = next {
            return Ok(is_met.then_some(start + offset as u64));
        }
        start += CHUNK_BYTES as u64;
    }
    Ok(is_met.then_some(records_end))
}

/// Whether these can be the first bytes of a header, lengths being what they are and nothing expiring: spares most of
/// what is no header the checksum.
fn may_be_header(raw: &[u8]) -> bool {
    let no = |range: Range<usize>| raw.get(range).is_some_and(is_zero);
    no(4..8) && no(13..24) && !no(24..28)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn behind(file: &[u8], at: u64) -> Option<u64> {
        let read = |offset: u64, out: &mut [u8]| {
            out.copy_from_slice(&file[offset as usize..][..out.len()]);
            Ok::<_, Infallible>(())
        };
        behind_hole(at, file.len() as u64, read).unwrap()
    }

    #[test]
    fn a_hole_is_a_whole_sector_of_zeroes() {
        assert!(has_hole(1024, &[0; 512]) && has_hole(u64::MAX, &[0; 513]) && has_hole(30, &[0; 482 + 512]));
        assert!(!has_hole(1, &[0; 1022]) && !has_hole(0, &[0; 511]) && !has_hole(0, &[7; 4096]) && !has_hole(5, b""));
    }

    #[test]
    fn records_go_on_at_the_next_header_or_not_at_all() {
        for gap in [2000, CHUNK_BYTES - 1, CHUNK_BYTES + 700] {
            let mut file = vec![7; 600];
            file.extend(vec![0; gap]);
            let next = file.len() as u64;
            assert_eq!(behind(&file, 590), Some(next), "to the end");
            file.extend(BlobRecordHeader::of(b"key", b"value").encode());
            file.extend(b"keyvalue");
            assert_eq!(behind(&file, 590), Some(next));
        }
        // Damage, and no hole.
        assert_eq!(behind(&[7; 5000], 30), None);
    }
}
