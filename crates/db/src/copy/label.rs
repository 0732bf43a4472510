//! The file that tells a generation of a set of backups from other stores, and says when it was made and of which store.
//!
//! | line                | holds                                                          |
//! |---------------------|----------------------------------------------------------------|
//! | `esker generation 1`| what it is, and the version of this format                     |
//! | `made 1764547200`   | when, in seconds since 1970-01-01 UTC                          |
//! | `sequence 42`       | the last sequence number in it                                 |
//! | `store 6e0f`        | the id of the store, which may have line feeds in it           |
//! | `crc32c 6349855e`   | of everything before this line, in eight hexadecimal digits    |
//!
//! RocksDB passes over a file of that name.

use std::path::Path;

use esker_env::FileSystem;
use esker_format::checksum::crc32c;

use crate::{Error, Result};

/// Its name.
pub(super) const LABEL: &str = "GENERATION";
const FIRST_LINE: &str = "esker generation 1";

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) unix_seconds: u64,
    pub(super) sequence: u64,
    pub(super) db_id: String,
}

impl Label {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { unix_seconds, sequence, db_id } = self;
        let text = format!("{FIRST_LINE}\nmade {unix_seconds}\nsequence {sequence}\nstore {db_id}\n");
        let crc = crc32c(text.as_bytes());
        format!("{text}crc32c {crc:08x}\n").into_bytes()
    }

    /// Reads back what [`encode`](Self::encode) wrote; `None` for anything else.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (lines, _) = text.rsplit_once("crc32c ")?;
        let rest = lines.strip_prefix(FIRST_LINE)?.strip_prefix("\nmade ")?;
        let (unix_seconds, rest) = rest.split_once("\nsequence ")?;
        let (sequence, rest) = rest.split_once("\nstore ")?;
        let db_id = rest.strip_suffix('\n')?.to_owned();
        let label = Self { unix_seconds: unix_seconds.parse().ok()?, sequence: sequence.parse().ok()?, db_id };
        // It is what would be written, checksum and all, or it is none.
        (label.encode() == bytes).then_some(label)
    }

    /// That of the generation in `dir`.
    ///
    /// # Errors
    /// `Corruption` if it is damaged; `NotFound`; what else the system said.
    pub(super) fn read(files: &dyn FileSystem, dir: &Path) -> Result<Self> {
        let path = dir.join(LABEL);
        let bytes = files.read_small(&path)?;
        Self::decode(&bytes).ok_or_else(|| Error::corruption(&path, 0, "this is no label of a generation of backups"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label { unix_seconds: 1_764_547_200, sequence: 42, db_id: "6e0f".to_owned() }
    }

    #[test]
    fn golden_bytes() {
        let text = "esker generation 1\nmade 1764547200\nsequence 42\nstore 6e0f\ncrc32c 6349855e\n";
        assert_eq!(String::from_utf8(label().encode()).unwrap(), text);
        assert_eq!(Label::decode(text.as_bytes()), Some(label()));
    }

    #[test]
    fn whatever_id_a_store_has_is_read_back() {
        for db_id in ["", "with\nline\nfeeds\n", "crc32c 00000000", "\nstore x\ncrc32c 1\n"] {
            let label = Label { db_id: db_id.to_owned(), ..label() };
            assert_eq!(Label::decode(&label.encode()), Some(label));
        }
    }

    #[test]
    fn any_other_bytes_are_none() {
        let whole = label().encode();
        for len in 0..whole.len() {
            assert_eq!(Label::decode(&whole[..len]), None);
        }
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert_eq!(Label::decode(&bytes), None, "bit {bit} of byte {at}");
        }
        assert_eq!(Label::decode(&[&whole[..], b"\n"].concat()), None);
    }
}
