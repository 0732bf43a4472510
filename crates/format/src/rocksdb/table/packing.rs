//! How the blocks of a table are packed: what the table says of that, and one block of it.

use super::BlockChecksum;
use crate::compression::{Compression, Dictionary, decompress};
use crate::error::DecodeError;
use crate::limits::BLOCK_BYTES_MAX;

/// Format version from which `rocksdb.compression` names whose kinds of compression a table has, and each of them.
const KINDS_VERSION: u32 = 7;
/// RocksDB's own kinds of compression, as opposed to a program's.
const BUILTIN: &str = "BuiltinV2";

/// What `rocksdb.compression` says of a table whose blocks are packed so, or not at all.
pub fn compression_name(kind: Compression, format_version: u32) -> String {
    match kind {
        _ if format_version < KINDS_VERSION => kind.name().to_owned(),
        Compression::None => ";;".to_owned(),
        _ => format!("{BUILTIN};{:02X};", kind.as_u8()),
    }
}

/// Whether a table of this version may call its compression `name`. Very old ones do not name it.
pub fn names_compression_as(format_version: u32, name: &str) -> bool {
    name.is_empty() || name.contains(';') == (format_version >= KINDS_VERSION)
}

/// What a table needs, of which `rocksdb.compression` says `name`, and is not known here.
pub fn missing_compression(name: &str) -> Option<String> {
    let Some((whose, kinds)) = name.split_once(';') else {
        return matches!(name, "BZip2" | "Xpress").then(|| format!("compression {name}"));
    };
    if !["", BUILTIN].contains(&whose) {
        return Some(format!("the compression manager {whose:?}"));
    }
    // What may come behind them is for later versions.
    let (kinds, _) = kinds.split_once(';').unwrap_or((kinds, ""));
    kinds.as_bytes().chunks(2).find_map(|digits| {
        let digits = String::from_utf8_lossy(digits);
        match u8::from_str_radix(&digits, 16).map(Compression::from_u8) {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("compression {digits}: {}", error.reason)),
            Err(_) => Some(format!("compression {digits}")),
        }
    })
}

/// Checks a block as stored at `offset`, trailer included, and unpacks it, in sight of the table's dictionary if there is one. A block of data may
/// have to be [put together](crate::rocksdb::block::put_together) after that.
///
/// Cost: a pass for the checksum, and one to unpack. Allocates the block.
///
/// # Errors
/// As [`BlockChecksum::verify`] and [`decompress`].
pub fn unpack(
    checksum: BlockChecksum,
    dictionary: Option<&Dictionary>,
    stored: &[u8],
    offset: u64,
) -> Result<Vec<u8>, DecodeError> {
    let (data, compression) = checksum.verify(stored, offset)?;
    unpack_data(dictionary, data, compression)
}

fn unpack_data(dictionary: Option<&Dictionary>, data: &[u8], compression: Compression) -> Result<Vec<u8>, DecodeError> {
    let mut unpacked = Vec::new();
    match dictionary {
        None => decompress(compression, data, &mut unpacked, BLOCK_BYTES_MAX)?,
        Some(dictionary) => dictionary.decompress(compression, data, &mut unpacked, BLOCK_BYTES_MAX)?,
    }
    Ok(unpacked)
}

/// The same of memory that is the caller's no more: a block that is as it was stored stays where it is.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_owned(
    checksum: BlockChecksum,
    dictionary: Option<&Dictionary>,
    mut stored: Vec<u8>,
    offset: u64,
) -> Result<Vec<u8>, DecodeError> {
    let (data, compression) = checksum.verify(&stored, offset)?;
    if compression != Compression::None {
        return unpack_data(dictionary, data, compression);
    }
    let count = data.len();
    stored.truncate(count);
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: RocksDB 11's names are understood, and what only others can unpack is told.
    #[test]
    fn what_is_missing_is_told() {
        for kind in Compression::ALL {
            for version in 2..=7 {
                let name = compression_name(kind, version);
                assert_eq!(missing_compression(&name), None, "{kind:?}, {version}");
                assert!(names_compression_as(version, &name) && !names_compression_as(13 - version, &name));
            }
        }
        assert_eq!(compression_name(Compression::Zstd, 7), "BuiltinV2;07;");
        for known in ["", ";;", "BuiltinV2;;", "BuiltinV2;0104050740;", "BuiltinV2;04;and more;", "Snappy", "kZSTD"] {
            assert_eq!(missing_compression(known), None, "{known}");
        }
        for (name, told) in [
            ("BZip2", "compression BZip2"),
            ("mine;80;", "the compression manager \"mine\""),
            ("BuiltinV2;0403;", "compression 03: bzip2 is not supported"),
            ("BuiltinV2;8A;", "compression 8A: kind 138 is not known"),
            ("BuiltinV2;é;", "compression é"),
            ("BuiltinV2;0x;", "compression 0x"),
        ] {
            assert_eq!(missing_compression(name).as_deref(), Some(told));
        }
    }
}
