//! One block in memory.

/// The bytes of one block, checked and uncompressed. Never changes, so those who share it need no lock.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
}

impl Block {
    /// Takes `bytes` as they are; excess capacity stays, and counts.
    #[inline]
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
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
