//! One block in memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_format::rocksdb::block::BlockDirectory;

/// The bytes of one block, checked and uncompressed, or of one value. Never changes, so those who share it need no lock.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Tells whose value it is; 0 for blocks.
    tag: u64,
    /// Whether it was searched before: most blocks of a large store are not searched twice.
    is_searched: AtomicBool,
    directory: OnceLock<Option<BlockDirectory>>,
}

impl Block {
    /// Takes `bytes` as they are; excess capacity stays, and counts.
    #[inline]
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self::tagged(bytes, 0)
    }

    /// The same for a value; `tag` is what its reader must know to have it.
    #[inline]
    pub(crate) const fn tagged(bytes: Vec<u8>, tag: u64) -> Self {
        Self { bytes, tag, is_searched: AtomicBool::new(false), directory: OnceLock::new() }
    }

    /// See [`tagged`](Self::tagged).
    #[inline]
    pub(crate) const fn tag(&self) -> u64 {
        self.tag
    }

    /// What is in it.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What makes a search shorter, of a block of a table that is searched again.
    #[inline]
    pub(crate) fn directory(&self) -> Option<&BlockDirectory> {
        match self.directory.get() {
            Some(directory) => directory.as_ref(),
            None if self.is_searched.load(Ordering::Relaxed) => {
                self.directory.get_or_init(|| BlockDirectory::of(&self.bytes)).as_ref()
            }
            None => {
                self.is_searched.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Gives the bytes back.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Memory that it keeps, or will when it is searched again.
    pub(super) fn allocated_bytes(&self) -> usize {
        let words_bytes = BlockDirectory::bytes_max(self.bytes.len());
        // Small ones, as values, have none.
        let has_directory = self.tag == 0 && words_bytes > 0;
        self.bytes.capacity() + if has_directory { words_bytes } else { 0 }
    }
}
