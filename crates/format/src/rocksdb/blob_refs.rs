//! Which blob files a table points into: the table property `esker.blob_refs`, which RocksDB ignores.
//!
//! | field | type     | meaning                                                                                   |
//! |-------|----------|-------------------------------------------------------------------------------------------|
//! | count | varint64 | how many blob files                                                                       |
//! |       |          | for each, by ascending number:                                                            |
//! | file  | varint64 | its number                                                                                |
//! | bytes | varint64 | of the records pointed to, headers and keys included, as [`super::blob::accounted_bytes`] |

use std::collections::BTreeMap;

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::limits::FILE_NUMBER_MAX;
use crate::rocksdb::internal_key::FileNumber;
use crate::varint;

/// The property's name.
pub const PROPERTY: &str = "esker.blob_refs";

/// By blob file, the bytes of the records that a table points to.
pub type BlobRefs = BTreeMap<FileNumber, u64>;

/// The property's bytes.
pub fn encode(refs: &BlobRefs) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put_u64(&mut out, refs.len() as u64);
    for (file, bytes) in refs {
        varint::put_u64(&mut out, file.get());
        varint::put_u64(&mut out, *bytes);
    }
    out
}

/// Reads back what [`encode`] wrote: all of `raw`. Total; allocates for what is there, whatever the count says.
///
/// # Errors
/// Corrupt if a field is missing, files are not in ascending order, or something follows.
pub fn decode(raw: &[u8]) -> Result<BlobRefs, DecodeError> {
    let mut cursor = Cursor::new(raw);
    let count = cursor.varint64("count of blob files")?;
    let mut refs = BlobRefs::new();
    for _ in 0..count {
        let number = cursor.varint64("blob file number")?;
        let is_next = refs.last_key_value().is_none_or(|(last, _)| last.get() < number);
        if !is_next || number > FILE_NUMBER_MAX {
            return Err(cursor.corrupt("blob file number", format!("{number} is too high, or does not follow")));
        }
        refs.insert(FileNumber::new(number), cursor.varint64("bytes pointed to")?);
    }
    if !cursor.is_empty() {
        return Err(cursor.corrupt("blob files", format!("{} bytes too many", cursor.rest().len())));
    }
    Ok(refs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refs(pairs: &[(u64, u64)]) -> BlobRefs {
        pairs.iter().map(|&(file, bytes)| (FileNumber::new(file), bytes)).collect()
    }

    #[test]
    fn golden_bytes() {
        let written = encode(&refs(&[(7, 300), (300, 1)]));
        assert_eq!(written, [2, 7, 0xac, 0x02, 0xac, 0x02, 1]);
        assert_eq!(decode(&written).unwrap(), refs(&[(7, 300), (300, 1)]));
        assert_eq!(decode(&[0]).unwrap(), refs(&[]));
    }

    #[test]
    fn what_no_writer_leaves_is_refused() {
        for raw in [&[][..], &[1], &[1, 7], &[2, 7, 1, 7, 1], &[2, 8, 1, 7, 1], &[0, 0], &[255, 255, 255, 255, 1, 7, 1]]
        {
            decode(raw).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(raw in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(refs) = decode(&raw) {
                prop_assert_eq!(decode(&encode(&refs)).unwrap(), refs);
            }
        }
    }
}
