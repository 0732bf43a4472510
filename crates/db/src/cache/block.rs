//! One block in memory.

/// The bytes of one block, checked and uncompressed, or of one value. Never changes, so those who share it need no lock.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Tells whose value it is; 0 for blocks.
    tag: u64,
}

impl Block {
    /// Takes `bytes` as they are; excess capacity stays, and counts.
    #[inline]
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, tag: 0 }
    }

    /// The same for a value; `tag` is what its reader must know to have it.
    #[inline]
    pub(crate) const fn tagged(bytes: Vec<u8>, tag: u64) -> Self {
        Self { bytes, tag }
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

    /// Gives the bytes back.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Memory that it keeps.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
