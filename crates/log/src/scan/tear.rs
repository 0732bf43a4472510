//! Which damage a power loss makes: the rule of the [module above](super), pure.

use std::ops::Range;

use esker_format::rocksdb::log::{Fragment, next_fragment};
use esker_format::zeroes::is_zero;

/// What a device writes whole or not at all (env's fault model).
pub(super) const SECTOR_BYTES: usize = 512;

/// Whether `block[from..to]`, which does not decode, may be a write of which some sector never reached the disk.
///
/// `block` begins at a multiple of the sector's size, and the file goes on to its end at least. Of each sector that
/// the range touches, all bytes from the range's beginning to the end of the sector were new with this write, or came
/// later, so if the sector is missing they are zeroes.
pub(super) fn may_be_torn(block: &[u8], from: usize, to: usize) -> bool {
    let first_sector = from - from % SECTOR_BYTES;
    (first_sector..to.min(block.len())).step_by(SECTOR_BYTES).any(|sector| {
        let new = block.get(sector.max(from)..(sector + SECTOR_BYTES).min(block.len()));
        new.is_some_and(is_zero)
    })
}

/// Whether a flipped bit in the length or type of the header at `at` is what keeps a fragment from decoding. Then it was
/// written to its end, though its false length may reach into sectors that were not. What is really torn passes for
/// that once in 2^27 times: a checksum of 32 bits, 24 tries.
#[cold]
pub(super) fn is_one_bit_from_whole(block: &[u8], at: usize, log_number: u32) -> bool {
    const UNCHECKED_BITS: Range<usize> = 4 * 8..7 * 8;
    let mut block = block.to_vec();
    UNCHECKED_BITS.into_iter().any(|bit| {
        let (index, mask) = (at + bit / 8, 1 << (bit % 8));
        let Some(byte) = block.get_mut(index) else { return false };
        *byte ^= mask;
        // Those that are no records, too.
        let found = next_fragment(&block, at, Some(log_number));
        let is_whole = matches!(found, Fragment::Whole { .. } | Fragment::Packed { .. } | Fragment::Ignored { .. });
        if let Some(byte) = block.get_mut(index) {
            *byte ^= mask;
        }
        is_whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of ones with zeroes in `hole`.
    fn block(len: usize, hole: Range<usize>) -> Vec<u8> {
        let mut block = vec![1; len];
        block[hole].fill(0);
        block
    }

    #[test]
    fn a_missing_sector_anywhere_in_the_record_is_a_tear() {
        for sector in [1024..1536, 1536..2048, 2048..2560] {
            assert!(may_be_torn(&block(4096, sector), 1024, 2500));
        }
    }

    #[test]
    fn the_bytes_before_the_record_in_its_first_sector_are_older() {
        assert!(may_be_torn(&block(4096, 1100..1536), 1100, 1200));
        assert!(!may_be_torn(&block(4096, 1101..1536), 1100, 1200));
    }

    #[test]
    fn the_bytes_after_the_record_in_its_last_sector_are_newer() {
        assert!(!may_be_torn(&block(4096, 1536..1600), 1100, 1600));
        assert!(may_be_torn(&block(4096, 1536..2048), 1100, 1600));
        assert!(may_be_torn(&block(1600, 1536..1600), 1100, 1600), "the file ends there");
    }

    #[test]
    fn zeroes_elsewhere_are_no_tear() {
        assert!(!may_be_torn(&block(4096, 512..1024), 1024, 2048));
        assert!(!may_be_torn(&block(4096, 2048..4096), 1024, 2048));
        assert!(!may_be_torn(&block(4096, 1025..1535), 1024, 2048));
        assert!(!may_be_torn(&[], 0, 7));
    }
}
