//! The files of [raft-engine](https://github.com/tikv/raft-engine): one log for many Raft groups.
//!
//! | module          | what                                                                              |
//! |-----------------|-----------------------------------------------------------------------------------|
//! | [`file_name`]   | `NNNNNNNNNNNNNNNN.raftlog`, `.rewrite`, `.raftlog.reserved`                        |
//! | [`file_header`] | the first bytes of a file: magic, version, alignment                              |
//! | [`log_batch`]   | header, entries block, item block: what a file is a sequence of                   |
//! | [`item`]        | what the item block says: where entries lie, commands, keys and values            |
//! | [`entries`]     | the entries block: plain or LZ4                                                   |
//! | [`closed`]      | Esker's own note of how much there was when the log was closed                    |
//!
//! Source: raft-engine 0.4.2, which reads and writes versions 1 and 2. Its integers of fixed width are big-endian, its
//! checksums little-endian; its checksum is the CRC-32 of zip, not CRC-32C.

pub mod closed;
pub mod entries;
pub mod file_header;
pub mod file_name;
pub mod item;
pub mod log_batch;

/// CRC-32 (IEEE 802.3, reflected) of `bytes`: the checksum of entries and items.
#[inline]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32 of some string and then `bytes`, where `crc` is that of the string alone.
#[inline]
pub fn crc32_extend(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32_extend(crc32(b"1234"), b"56789"), 0xcbf4_3926);
    }
}
