//! Life of a table or blob file: `written --install--> live --install--> obsolete --(last holder drops it)--> trash --> deleted`
//!
//! - F1: a file is named by a durable manifest before any reader can hold it, and no durable manifest names it once it
//!   is obsolete: [`mark_obsolete`](TableFile::mark_obsolete) is called only after the edit that drops it was synced.
//! - F2: whoever reads a file holds its `Arc` (through a `Version`), so the trash never gets a file that is being read.
//! - F3: a file that is not obsolete when its last holder goes (the store closes) stays where it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_format::rocksdb::internal_key::{self, FileNumber};
use esker_format::rocksdb::version_edit::{BlobFileAddition, TableMeta};

use crate::blob::BlobFile;
use crate::output::OLDER_VERSIONS_PROPERTY;
use crate::reclaim::Trash;
use crate::table::Table;

/// An open table and what the manifest says of it.
#[derive(Debug)]
pub(crate) struct TableFile {
    /// What the manifest says.
    pub(crate) meta: TableMeta,
    /// The open file.
    pub(crate) table: Arc<Table>,
    life: Life,
    /// Whether a running compaction reads it; only the picker and the end of a job change it.
    claimed: AtomicBool,
}

/// An open blob file and what the manifest says of it.
#[derive(Debug)]
pub(crate) struct BlobHandle {
    /// What the manifest says.
    pub(crate) addition: BlobFileAddition,
    /// The open file.
    pub(crate) file: Arc<BlobFile>,
    life: Life,
}

#[derive(Debug)]
struct Life {
    path: PathBuf,
    obsolete: AtomicBool,
    trash: Arc<Trash>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.trash.add(std::mem::take(&mut self.path));
        }
    }
}

impl TableFile {
    pub(crate) fn new(meta: TableMeta, table: Arc<Table>, path: PathBuf, trash: Arc<Trash>) -> Arc<Self> {
        let life = Life { path, obsolete: AtomicBool::new(false), trash };
        Arc::new(Self { meta, table, life, claimed: AtomicBool::new(false) })
    }

    /// See F1.
    pub(crate) fn mark_obsolete(&self) {
        self.life.obsolete.store(true, Ordering::Release);
    }

    /// Whether a compaction reads it.
    pub(crate) fn is_claimed(&self) -> bool {
        self.claimed.load(Ordering::Acquire)
    }

    /// Says that a compaction reads it, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.claimed.store(claimed, Ordering::Release);
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.meta.number
    }

    /// Entries that a rewrite in the deepest level may drop once no snapshot asks for them: deletions and older versions.
    /// `None`: unknown, since somebody else wrote the table.
    pub(crate) fn droppable_entries(&self) -> Option<u64> {
        let properties = self.table.properties();
        let older = properties.number(OLDER_VERSIONS_PROPERTY)?;
        Some(older.saturating_add(properties.deletion_count))
    }

    /// Its first user key.
    pub(crate) fn smallest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.smallest)
    }

    /// Its last user key.
    pub(crate) fn largest(&self) -> &[u8] {
        internal_key::user_key(&self.meta.largest)
    }

    /// Whether a user key of it lies in the range; both ends inclusive, `None` is open.
    pub(crate) fn overlaps(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        begin.is_none_or(|begin| self.largest() >= begin) && end.is_none_or(|end| self.smallest() <= end)
    }
}

impl BlobHandle {
    pub(crate) fn new(addition: BlobFileAddition, file: Arc<BlobFile>, path: PathBuf, trash: Arc<Trash>) -> Arc<Self> {
        Arc::new(Self { addition, file, life: Life { path, obsolete: AtomicBool::new(false), trash } })
    }

    /// See F1.
    pub(crate) fn mark_obsolete(&self) {
        self.life.obsolete.store(true, Ordering::Release);
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.addition.number
    }
}
