//! The header of a blob file, and whether one that cannot be read is rotten.
//!
//! No checksum covers it, so one rotten byte may read as what only a later RocksDB has. A whole record behind it tells that of version and flags; how
//! values are packed, every pointer into the file says, too. Where neither tells, it may be either, and the error says so.
//!
//! Cost: one small read; for a header that cannot be read, what finding a pointer costs.

use std::path::Path;

use esker_env::ReadFile;
use esker_format::DecodeErrorKind;
use esker_format::rocksdb::blob::{BlobFileHeader, HEAD_BYTES};

use crate::{Error, ErrorKind, Result};

const DOING: &str = "opening a blob file";
const ROTTEN: &str = "what the file holds is of the version that is read here, so its header is rotten; repair the store, or restore the file from a backup";
const ROTTEN_OR_NEWER: &str = "a newer RocksDB wrote the file, or its header is damaged: open the store with that, or restore the file from a backup";

/// The header of `file`. `is_packing_known` is asked if it names a compression that is not: whether somebody points into the file whose pointer names
/// one that is.
///
/// # Errors
/// - `Corruption`: it is damaged.
/// - `UnsupportedFormat`: it is of another kind or version, and nothing tells that a byte is rotten.
pub(crate) fn read(
    file: &dyn ReadFile,
    path: &Path,
    is_packing_known: impl FnOnce() -> bool,
) -> Result<BlobFileHeader> {
    let mut raw = [0; HEAD_BYTES];
    let got = file.read_at(0, &mut raw)?;
    BlobFileHeader::decode_with_next(raw.get(..got).unwrap_or_default()).map_err(|error| {
        let is_newer = error.kind == DecodeErrorKind::Unsupported;
        let is_rotten = match error.field {
            "compression" => is_newer && is_packing_known(),
            "version" | "flags" => !is_newer,
            _ => false,
        };
        let error = Error::decode(path, 0, DOING, error);
        match is_rotten {
            true => error.with_kind(ErrorKind::Corruption).with_advice(ROTTEN),
            false if is_newer => error.with_advice(ROTTEN_OR_NEWER),
            false => error,
        }
    })
}
