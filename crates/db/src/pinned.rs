//! Values that are handed out without a copy.
//!
//! - N1: the bytes of a block or a memtable entry never change and live as long as any slice pinned to them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use esker_env::ReadFile;
use esker_format::shown::Shown;

use crate::cache::Block;
use crate::memtable::PinnedEntry;

/// A value, shared with the cached block, memtable, read buffer or mapped file that holds it. Dereferences to `[u8]`.
///
/// Cost: cloning counts a reference; no byte is copied. A slice keeps the whole of what it shares in memory (a block,
/// usually 4 KiB; a memtable, up to `write_buffer_bytes`), so what is kept for long is better copied with
/// [`into_vec`](Self::into_vec). With [`mmap_reads`](crate::Options::mmap_reads) it may keep a whole blob file on the disk, which counts for
/// `max_disk_bytes` as long.
#[derive(Clone, Default)]
pub struct PinnedSlice(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Empty,
    /// The range lies within the block.
    Block(Arc<Block>, Range<usize>),
    /// The value of the entry.
    Entry(PinnedEntry),
    /// The range of a file that is memory.
    File(Arc<dyn ReadFile>, Range<u64>),
}

impl PinnedSlice {
    /// All of `bytes`.
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self(Source::Block(Arc::new(Block::new(bytes)), range))
    }

    /// The bytes of `block` at `range`; `None` if they do not all exist.
    pub(crate) fn from_block(block: Arc<Block>, range: Range<usize>) -> Option<Self> {
        block.bytes().get(range.clone())?;
        Some(Self(Source::Block(block, range)))
    }

    /// The bytes of `file` at `range`; `None` unless they are memory.
    pub(crate) fn from_file(file: Arc<dyn ReadFile>, range: Range<u64>) -> Option<Self> {
        file.memory(range.clone())?;
        Some(Self(Source::File(file, range)))
    }

    /// The value of `entry`.
    pub(crate) fn from_memtable(entry: PinnedEntry) -> Self {
        Self(Source::Entry(entry))
    }

    /// The bytes at `range`, as far as there are any. Shares what `self` shares, except with a memtable.
    pub(crate) fn within(self, range: Range<u64>) -> Self {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.len());
        let (start, end) = (place(range.start), place(range.end));
        match self.0 {
            _ if start >= end => Self::default(),
            Source::Block(block, whole) => Self(Source::Block(block, whole.start + start..whole.start + end)),
            Source::File(file, whole) => Self(Source::File(file, whole.start + start as u64..whole.start + end as u64)),
            source => Self::from_vec(source.bytes().get(start..end).unwrap_or_default().to_vec()),
        }
    }

    /// The memory of a buffer of its own, if nobody else has a slice of it.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        match self.0 {
            Source::Block(block, _) => Arc::into_inner(block).map(Block::into_bytes),
            _ => None,
        }
    }

    /// The bytes as a vector. Copies them unless this is the only slice of a buffer that holds nothing else.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Source::Block(block, range) if range.len() == block.bytes().len() => {
                Arc::try_unwrap(block).map_or_else(|shared| shared.bytes().to_vec(), Block::into_bytes)
            }
            source => source.bytes().to_vec(),
        }
    }
}

impl Source {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            // The range was checked when the slice was made, so the default is never taken.
            Self::Block(block, range) => block.bytes().get(range.clone()).unwrap_or_default(),
            Self::Entry(entry) => entry.value(),
            // The same, and a mapping never changes.
            Self::File(file, range) => file.memory(range.clone()).unwrap_or_default(),
        }
    }
}

impl Deref for PinnedSlice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for PinnedSlice {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PinnedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedSlice").field(&Shown(self)).finish()
    }
}

impl From<PinnedSlice> for Vec<u8> {
    fn from(slice: PinnedSlice) -> Self {
        slice.into_vec()
    }
}

impl PartialEq for PinnedSlice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for PinnedSlice {}

impl PartialEq<[u8]> for PinnedSlice {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for PinnedSlice {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for PinnedSlice {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for PinnedSlice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

impl PartialEq<Vec<u8>> for PinnedSlice {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_checked_when_the_slice_is_made() {
        let block = Arc::new(Block::new(b"0123456789".to_vec()));
        assert_eq!(PinnedSlice::from_block(block.clone(), 2..5).unwrap(), b"234");
        assert_eq!(PinnedSlice::from_block(block.clone(), 10..10).unwrap(), b"");
        for outside in [5..11, 11..11, Range { start: 5, end: 4 }, 0..usize::MAX] {
            assert!(PinnedSlice::from_block(block.clone(), outside).is_none());
        }
    }

    #[test]
    fn a_slice_outlives_the_handle_of_its_block() {
        let block = Arc::new(Block::new(b"0123456789".to_vec()));
        let slice = PinnedSlice::from_block(block, 3..6).unwrap();
        let other = slice.clone();
        drop(slice);
        assert_eq!(&*other, b"345");
        assert_eq!(other.into_vec(), b"345");
    }

    #[test]
    fn the_only_slice_of_a_whole_buffer_gives_the_buffer_back() {
        let bytes = b"value".to_vec();
        let address = bytes.as_ptr();
        let slice = PinnedSlice::from_vec(bytes);
        let copy = slice.clone().into_vec();
        assert_eq!(copy, b"value");
        assert_ne!(copy.as_ptr(), address);
        let original = slice.into_vec();
        assert_eq!(original.as_ptr(), address);
    }

    #[test]
    fn the_default_is_empty() {
        assert!(PinnedSlice::default().is_empty());
        assert_eq!(PinnedSlice::default(), PinnedSlice::from_vec(Vec::new()));
        assert_eq!(format!("{:?}", PinnedSlice::from_vec(vec![1, 2])), r#"PinnedSlice("\x01\x02")"#);
    }
}
