//! One block in memory.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_format::rocksdb::block::BlockDirectory;

/// Longer values leave no memory to the next one.
const LEFT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// What the last passing value that this thread let go lay in: in the processor's caches, and already cleared.
    static LEFT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes of one block, checked and uncompressed, or of one value. Never changes, so those who share it need no lock.
#[derive(Debug, Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Tells whose value it is; 0 for blocks.
    tag: u64,
    /// Whether it was searched before: most blocks of a large store are not searched twice.
    is_searched: AtomicBool,
    /// Whether its memory is for the next one like it.
    is_passing: bool,
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
        Self { bytes, tag, is_searched: AtomicBool::new(false), is_passing: false, directory: OnceLock::new() }
    }

    /// A value that nobody keeps, made by `fill` in memory that the thread may have left from the last one: nothing is allocated, nor
    /// cleared, if it was as long. What `fill` finds there it has to replace.
    pub(crate) fn passing<E>(fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Self, E> {
        // A thread that ends has none, and keeps none.
        let mut bytes = LEFT.try_with(Cell::take).unwrap_or_default();
        fill(&mut bytes)?;
        // Whoever does keep it keeps no more than twice as much.
        if bytes.capacity() / 2 > bytes.len() {
            let fitting = bytes.as_slice().to_vec();
            let long = std::mem::replace(&mut bytes, fitting);
            Self::leave(long);
        }
        let mut block = Self::new(bytes);
        block.is_passing = true;
        Ok(block)
    }

    /// Leaves memory for the next passing value of this thread.
    pub(crate) fn leave(bytes: Vec<u8>) {
        let _ = LEFT.try_with(|left| left.set(bytes));
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
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.is_passing = false;
        std::mem::take(&mut self.bytes)
    }

    /// Memory that it keeps, or will when it is searched again.
    pub(super) fn allocated_bytes(&self) -> usize {
        let words_bytes = BlockDirectory::bytes_max(self.bytes.len());
        // Small ones, as values, have none.
        let has_directory = self.tag == 0 && words_bytes > 0;
        self.bytes.capacity() + if has_directory { words_bytes } else { 0 }
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        if self.is_passing && self.bytes.capacity() <= LEFT_BYTES_MAX {
            Self::leave(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(bytes: &[u8]) -> Block {
        let fill = |space: &mut Vec<u8>| {
            space.clear();
            space.extend_from_slice(bytes);
            Ok::<(), ()>(())
        };
        Block::passing(fill).unwrap()
    }

    #[test]
    fn the_next_passing_value_lies_where_the_last_one_did() {
        let first = passing(&[1; 1000]);
        let place = first.bytes().as_ptr();
        let beside = passing(&[2; 1000]);
        assert_ne!(beside.bytes().as_ptr(), place);
        drop(first);
        let next = passing(&[3; 900]);
        assert_eq!((next.bytes().as_ptr(), next.bytes()), (place, &[3; 900][..]));
        assert_eq!(beside.bytes(), [2; 1000]);
    }

    #[test]
    fn a_short_value_keeps_no_long_memory() {
        drop(passing(&[1; 10_000]));
        let short = passing(&[2; 100]);
        assert_eq!((short.bytes(), short.bytes.capacity()), (&[2; 100][..], 100));
        assert!(passing(&[3; 9000]).bytes.capacity() >= 10_000, "the long one is for the next");
        assert!(passing(&vec![4; LEFT_BYTES_MAX + 1]).into_bytes().capacity() > LEFT_BYTES_MAX);
        drop(passing(&vec![4; LEFT_BYTES_MAX + 1]));
        assert!(LEFT.take().capacity() <= LEFT_BYTES_MAX);
    }

    #[test]
    fn what_is_taken_out_is_not_for_the_next() {
        let taken = passing(&[1; 1000]).into_bytes();
        assert_ne!(passing(&[2; 1000]).bytes().as_ptr(), taken.as_ptr());
        assert_eq!(taken, [1; 1000]);
    }

    #[test]
    fn what_failed_is_not_seen_again() {
        drop(passing(&[1; 1000]));
        assert_eq!(Block::passing(|_| Err("bad")).unwrap_err(), "bad");
        assert_eq!(passing(&[]).bytes(), [0; 0]);
    }
}
