//! In place of the walker: entries one after the other, all with separated values.

use esker_format::compression::Compression;
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{FileNumber, ValueKind};

use crate::Result;
use crate::pinned::PinnedSlice;

/// Stands before the first entry until it steps.
pub(crate) struct Walker {
    at: Option<u64>,
    count: u64,
    key: [u8; 8],
    pointer: Vec<u8>,
}

impl Walker {
    pub(crate) fn new(count: u64) -> Self {
        Self { at: None, count, key: [0; 8], pointer: Vec::new() }
    }

    pub(super) fn step(&mut self, _forward: bool) -> Result<()> {
        let at = self.at.map_or(0, |at| at + 1);
        let (file, compression) = (FileNumber::new(1), Compression::None);
        self.at = Some(at);
        self.key = at.to_be_bytes();
        self.pointer.clear();
        BlobIndex { file, offset: at, bytes: crate::VALUE_BYTES, compression }.encode(&mut self.pointer);
        Ok(())
    }

    pub(crate) fn valid(&self) -> bool {
        self.at.is_some_and(|at| at < self.count)
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn kind(&self) -> ValueKind {
        ValueKind::BlobIndex
    }

    pub(super) fn stored(&self) -> PinnedSlice {
        PinnedSlice::default()
    }

    pub(super) fn stored_bytes(&self) -> &[u8] {
        &self.pointer
    }
}
