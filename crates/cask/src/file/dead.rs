//! Which records of a file are dead: the ledger of one file, by place.
//!
//! - E1: an offset is entered once, when its slot leaves the directory, and never taken out. So what the list held at some
//!   moment, a prefix of it, is exactly what was dead then: that is how a scan sees the store as of its start.
//!
//! Cost: 4 bytes for each dead record, until its file is merged.

/// Entries in a piece: 4 KiB. Pieces of one size leave no holes in the heap, and growing copies nothing.
const PIECE_LEN: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct DeadList {
    pieces: Vec<Vec<u32>>,
    len: usize,
    bytes: u64,
}

impl DeadList {
    /// The record of `bytes` at `offset` is dead.
    pub(crate) fn push(&mut self, offset: u32, bytes: u64) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE_LEN => piece.push(offset),
            _ => {
                let mut piece = Vec::with_capacity(PIECE_LEN);
                piece.push(offset);
                self.pieces.push(piece);
            }
        }
        self.len += 1;
        self.bytes += bytes;
    }

    /// How many records are dead.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Their bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first `len` of them, by ascending offset.
    pub(crate) fn sorted(&self, len: usize) -> Vec<u32> {
        let mut offsets: Vec<u32> = self.pieces.iter().flatten().take(len).copied().collect();
        offsets.sort_unstable();
        offsets
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.pieces.len() * PIECE_LEN * size_of::<u32>()) as u64
    }
}

/// Goes through the offsets of a file in order and says which of them are dead.
#[derive(Debug)]
pub(crate) struct DeadCursor {
    sorted: Vec<u32>,
    next: usize,
}

impl DeadCursor {
    pub(crate) const fn new(sorted: Vec<u32>) -> Self {
        Self { sorted, next: 0 }
    }

    /// Whether the record at `offset` is dead. Offsets come in ascending order.
    pub(crate) fn is_dead(&mut self, offset: u64) -> bool {
        while let Some(&dead) = self.sorted.get(self.next) {
            if u64::from(dead) >= offset {
                return u64::from(dead) == offset;
            }
            self.next += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_what_was_dead_then() {
        let mut list = DeadList::default();
        for n in 0..3000u32 {
            list.push((n * 7919) % 30_000 + 1, 10);
        }
        assert_eq!((list.len(), list.bytes()), (3000, 30_000));
        let mut cursor = DeadCursor::new(list.sorted(2000));
        let dead: Vec<u64> = (0..=40_000).filter(|&offset| cursor.is_dead(offset)).collect();
        let mut wanted: Vec<u64> = (0..2000).map(|n| (n * 7919) % 30_000 + 1).collect();
        wanted.sort_unstable();
        assert_eq!(dead, wanted);
    }
}
