//! What a manifest says of a file, to check that by.

use std::ops::Range;
use std::sync::Arc;

use esker_env::ReadFile;
use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::version_edit::TableMeta;

use crate::blob::BlobFile;
use crate::cache::BlockCache;
use crate::options::Orders;
use crate::table::Table;
use crate::version::Recovered;
use crate::{ErrorKind, Result};

/// See the module's head.
#[derive(Debug, Clone, Copy)]
pub(super) enum Said {
    Table { number: FileNumber, bytes: u64, newest: SequenceNumber },
    Blob { number: FileNumber, family_id: u32, has_garbage: bool },
}

impl Said {
    pub(super) fn of_table(meta: &TableMeta) -> Self {
        Self::Table { number: meta.number, bytes: meta.file_bytes, newest: meta.largest_sequence }
    }

    /// Of all files of a store.
    pub(super) fn of_store(store: &Recovered) -> impl Iterator<Item = Self> {
        store.families.iter().flat_map(|(&family_id, family)| {
            let blob = move |&number: &FileNumber| {
                let has_garbage = family.ledger.get(number).is_some_and(|usage| usage.garbage_count > 0);
                Self::Blob { number, family_id, has_garbage }
            };
            family.tables.values().map(Self::of_table).chain(family.blobs.keys().map(blob))
        })
    }

    /// Whether a file of this name is meant.
    pub(super) fn names(&self) -> Vec<FileName> {
        match *self {
            Self::Table { number, .. } => vec![FileName::Table(number), FileName::LegacyTable(number)],
            Self::Blob { number, .. } => vec![FileName::Blob(number)],
        }
    }

    /// Reads all of `file`, which is the one that is meant or a copy of it, and checks what it says of itself. `each` may end that.
    /// Returns what of a blob file was passed over, as it has holes.
    ///
    /// # Errors
    /// What the file and `each` say. A format that is not known is `Corruption`, too: a store refuses such when it opens, and a backup has only
    /// what a store had.
    pub(super) fn check(
        &self,
        file: Arc<dyn ReadFile>,
        each: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Range<u64>>> {
        self.read(file, each).map_err(|error| match error.kind() {
            ErrorKind::UnsupportedFormat => error.with_kind(ErrorKind::Corruption),
            _ => error,
        })
    }

    fn read(&self, file: Arc<dyn ReadFile>, each: &mut dyn FnMut() -> Result<()>) -> Result<Vec<Range<u64>>> {
        match *self {
            Self::Table { bytes, newest, .. } => {
                let table = Table::open_as(file, bytes, &Orders::any(), Some(newest), Arc::new(BlockCache::new(0)))?;
                table.check(&mut |_, _| each())?;
                Ok(Vec::new())
            }
            Self::Blob { number, family_id, has_garbage } => {
                let file = BlobFile::open_pointed_to(file, number, family_id, || true)?;
                each()?;
                Ok(file.check(has_garbage)?.passed_over)
            }
        }
    }
}
