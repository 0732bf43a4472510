//! The last bytes of a table.

use crate::checksum::ChecksumKind;
use crate::cursor::Cursor;
use crate::error::DecodeError;

use super::{BlockChecksum, BlockHandle, TRAILER_BYTES};

/// Length of the footer.
pub const FOOTER_BYTES: usize = 53;
/// Oldest format version that is read.
pub const FORMAT_VERSION_MIN: u32 = 2;
/// Newest format version that is read.
pub const FORMAT_VERSION_MAX: u32 = 7;

const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
const LEGACY_MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const PLAIN_MAGIC: u64 = 0x8242_2296_63bf_9564;
const LEGACY_PLAIN_MAGIC: u64 = 0x4f34_18eb_7a8f_13b8;
const CUCKOO_MAGIC: u64 = 0x9267_89d0_c5f1_7873;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];

const VERSION_AT: usize = 41;
const MAGIC_AT: usize = 45;
/// Format version from which checksums know their place.
const CONTEXT_VERSION: u32 = 6;

/// Where everything else is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// Which rules the file follows.
    pub format_version: u32,
    /// How its blocks are checked.
    pub checksum: BlockChecksum,
    /// Names of the other meta blocks.
    pub meta_index: BlockHandle,
    /// The index; `None` from version 6 on, where the metaindex names it.
    pub index: Option<BlockHandle>,
}

impl Footer {
    /// The footer's bytes, to be written at `offset`. From version 6 on the metaindex must end there.
    pub fn encode(&self, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut raw = Vec::with_capacity(FOOTER_BYTES);
        raw.push(self.checksum.kind.as_u8());
        if self.format_version < CONTEXT_VERSION {
            self.meta_index.encode(&mut raw);
            self.index.unwrap_or_default().encode(&mut raw);
        } else {
            raw.extend_from_slice(&EXTENDED_MAGIC);
            raw.extend_from_slice(&[0; 4]);
            raw.extend_from_slice(&self.checksum.base_context.to_le_bytes());
            raw.extend_from_slice(&(self.meta_index.bytes as u32).to_le_bytes());
        }
        raw.resize(VERSION_AT, 0);
        raw.extend_from_slice(&self.format_version.to_le_bytes());
        raw.extend_from_slice(&MAGIC.to_le_bytes());
        let mut footer = [0; FOOTER_BYTES];
        for (to, from) in footer.iter_mut().zip(raw) {
            *to = from;
        }
        if self.format_version >= CONTEXT_VERSION {
            let checksum = footer_checksum(self.checksum, &footer, offset).to_le_bytes();
            for (to, from) in footer.iter_mut().skip(5).zip(checksum) {
                *to = from;
            }
        }
        footer
    }

    /// Reads the footer at the end of `tail`, itself the end of a file of `file_bytes` bytes. Total; errors count from the start of the file.
    ///
    /// # Errors
    /// Corrupt if the file is no table or a field is damaged; unsupported if it is a table of another kind or version.
    pub fn decode(tail: &[u8], file_bytes: u64) -> Result<Self, DecodeError> {
        let too_short =
            || DecodeError::corrupt("footer", 0, format!("a file of {file_bytes} bytes is too short to be a table"));
        let magic = tail.last_chunk().map(|raw| u64::from_le_bytes(*raw)).ok_or_else(too_short)?;
        let magic_at = file_bytes.saturating_sub(8);
        check_magic(magic, magic_at)?;
        let raw: &[u8; FOOTER_BYTES] = tail.last_chunk().ok_or_else(too_short)?;
        let offset = file_bytes.checked_sub(FOOTER_BYTES as u64).ok_or_else(too_short)?;
        Self::decode_fields(raw, offset).map_err(|error| error.at_base(offset))
    }

    /// The format version that the footer at the end of `tail` claims, whatever else it holds.
    pub fn claimed_version(tail: &[u8]) -> Option<u32> {
        let raw: &[u8; FOOTER_BYTES] = tail.last_chunk()?;
        raw.get(VERSION_AT..)?.first_chunk().map(|version| u32::from_le_bytes(*version))
    }

    /// Every footer that a writer puts there and that differs in one byte from the end of `tail`, itself the end of a file of `file_bytes`
    /// bytes. Before version 6 no checksum tells which of them was written: that is for the blocks to say that they lead to.
    ///
    /// Cost: 13,515 attempts to decode, some milliseconds.
    pub fn one_byte_off(tail: &[u8], file_bytes: u64) -> Vec<Self> {
        let Some(raw) = tail.last_chunk::<FOOTER_BYTES>() else { return Vec::new() };
        let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let mut found = Vec::new();
        for at in 0..FOOTER_BYTES {
            let mut other = *raw;
            for byte in 0..=u8::MAX {
                other.iter_mut().skip(at).take(1).for_each(|place| *place = byte);
                let decoded = Self::decode(&other, file_bytes).ok();
                found.extend(decoded.filter(|footer| other != *raw && footer.encode(offset) == other));
            }
        }
        found
    }

    fn decode_fields(raw: &[u8; FOOTER_BYTES], offset: u64) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        let kind_byte = cursor.u8("checksum kind")?;
        let mut end = Cursor::new(raw);
        end.bytes("handles", VERSION_AT)?;
        let at = end.offset();
        let format_version = end.u32("format version")?;
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION_MAX).contains(&format_version) {
            let reason = format!("version {format_version} is none of {FORMAT_VERSION_MIN} to {FORMAT_VERSION_MAX}");
            return Err(DecodeError::unsupported("format version", at, reason));
        }
        let kind = ChecksumKind::from_u8(kind_byte)?;
        if format_version >= CONTEXT_VERSION {
            return Self::decode_with_context(raw, cursor, kind, format_version, offset);
        }
        let mut handle = |field| -> Result<BlockHandle, DecodeError> {
            let at = cursor.offset();
            let handle = BlockHandle { offset: cursor.varint64(field)?, bytes: cursor.varint64(field)? };
            match handle.end() {
                // No block is empty; version 6, mistaken for an earlier one, has an empty handle here.
                Some(end) if end <= offset && handle.bytes > 0 => Ok(handle),
                _ => Err(DecodeError::corrupt(field, at, format!("{handle:?} is empty or runs into the footer"))),
            }
        };
        let (meta_index, index) = (handle("metaindex")?, handle("index")?);
        if cursor.offset() > VERSION_AT as u64 {
            return Err(DecodeError::corrupt("index", 1, "the handles run into the format version"));
        }
        let checksum = BlockChecksum { kind, base_context: 0 };
        Ok(Self { format_version, checksum, meta_index, index: Some(index) })
    }

    fn decode_with_context(
        raw: &[u8; FOOTER_BYTES],
        mut cursor: Cursor<'_>,
        kind: ChecksumKind,
        format_version: u32,
        offset: u64,
    ) -> Result<Self, DecodeError> {
        if cursor.bytes("extended magic", EXTENDED_MAGIC.len())? != EXTENDED_MAGIC {
            return Err(DecodeError::corrupt("extended magic", 1, "is not 3e007a00"));
        }
        let found = cursor.u32("footer checksum")?;
        let base_context = cursor.u32("base context")?;
        if base_context == 0 {
            return Err(DecodeError::corrupt("base context", 9, "is zero"));
        }
        let checksum = BlockChecksum { kind, base_context };
        let computed = footer_checksum(checksum, raw, offset);
        if found != computed {
            let reason = format!("is {found:#010x}, of these bytes it would be {computed:#010x}");
            return Err(DecodeError::corrupt("footer checksum", 5, reason));
        }
        let bytes = u64::from(cursor.u32("metaindex size")?);
        let Some(at) = offset.checked_sub(bytes + TRAILER_BYTES as u64) else {
            return Err(DecodeError::corrupt(
                "metaindex size",
                13,
                format!("{bytes} bytes do not fit before the footer"),
            ));
        };
        cursor.bytes("reserved", 16)?;
        if cursor.u64("reserved")? != 0 {
            return Err(DecodeError::unsupported("reserved", 33, "a feature that is not known here"));
        }
        Ok(Self { format_version, checksum, meta_index: BlockHandle { offset: at, bytes }, index: None })
    }
}

fn check_magic(magic: u64, at: u64) -> Result<(), DecodeError> {
    let reason = match magic {
        MAGIC => return Ok(()),
        LEGACY_MAGIC => {
            "a block-based table of format version 0 or 1; a full compaction by RocksDB 4.6 to 10 upgrades it"
        }
        PLAIN_MAGIC | LEGACY_PLAIN_MAGIC => "a plain table; only block-based tables are read",
        CUCKOO_MAGIC => "a cuckoo table; only block-based tables are read",
        _ => return Err(DecodeError::corrupt("magic", at, format!("{magic:#018x} is no table's"))),
    };
    Err(DecodeError::unsupported("magic", at, reason))
}

/// Over all of the footer but the field itself. A block's checksum, where the last byte plays the type byte.
fn footer_checksum(checksum: BlockChecksum, raw: &[u8; FOOTER_BYTES], offset: u64) -> u32 {
    let mut cleared = *raw;
    for byte in cleared.iter_mut().skip(5).take(4) {
        *byte = 0;
    }
    let [head @ .., last] = &cleared;
    checksum.of(head, *last, offset)
}

const _: () = assert!(MAGIC_AT + 8 == FOOTER_BYTES);
