//! Writes blocks.

use crate::rocksdb::table::BlockHandle;
use crate::varint;

use super::WORD_BYTES;

/// Writes one block after the other, keeping its buffers.
#[derive(Debug, Clone)]
pub struct BlockBuilder {
    restart_interval: usize,
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    entry_count: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// With a full key every `restart_interval` entries (0 counts as 1). More make blocks smaller, fewer make seeks faster.
    pub fn new(restart_interval: usize) -> Self {
        Self {
            restart_interval: restart_interval.max(1),
            buffer: Vec::new(),
            restarts: vec![0],
            since_restart: 0,
            entry_count: 0,
            last_key: Vec::new(),
        }
    }

    /// Adds an entry. Keys must come in ascending order, which the caller has checked, and key, value and block must
    /// stay below 4 GiB.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = self.begin(key);
        varint::put_u64(&mut self.buffer, shared as u64);
        varint::put_u64(&mut self.buffer, (key.len() - shared) as u64);
        varint::put_u64(&mut self.buffer, value.len() as u64);
        self.buffer.extend_from_slice(key.get(shared..).unwrap_or_default());
        self.buffer.extend_from_slice(value);
        self.end(key, shared);
    }

    /// As [`add`](Self::add), where values are handles: `handle` in full, or as the difference to `previous`, which it follows.
    fn add_handle(&mut self, key: &[u8], handle: BlockHandle, previous: BlockHandle) {
        let shared = self.begin(key);
        varint::put_u64(&mut self.buffer, shared as u64);
        varint::put_u64(&mut self.buffer, (key.len() - shared) as u64);
        self.buffer.extend_from_slice(key.get(shared..).unwrap_or_default());
        if shared == 0 {
            handle.encode(&mut self.buffer);
        } else {
            varint::put_u64(&mut self.buffer, zigzag(handle.bytes.wrapping_sub(previous.bytes) as i64));
        }
        self.end(key, shared);
    }

    /// How much `key` shares with the key before; opens a restart when one is due.
    fn begin(&mut self, key: &[u8]) -> usize {
        if self.since_restart < self.restart_interval {
            // The last key is empty at the start of a block.
            return common_prefix(&self.last_key, key);
        }
        self.restarts.push(self.buffer.len() as u32);
        self.since_restart = 0;
        0
    }

    fn end(&mut self, key: &[u8], shared: usize) {
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(key.get(shared..).unwrap_or_default());
        self.since_restart += 1;
        self.entry_count += 1;
    }

    /// Completes the block and returns it. [`reset`](Self::reset) before the next entry.
    pub fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.buffer.extend_from_slice(&restart.to_le_bytes());
        }
        self.buffer.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.buffer
    }

    /// Begins another block.
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.restarts.clear();
        self.restarts.push(0);
        self.since_restart = 0;
        self.entry_count = 0;
        self.last_key.clear();
    }

    /// Length of the block if it were finished now.
    pub fn estimated_bytes(&self) -> usize {
        self.buffer.len() + (self.restarts.len() + 1) * WORD_BYTES
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// How many entries were added.
    pub fn entry_count(&self) -> usize {
        self.entry_count
    }
}

/// Writes an index block: a separator and a handle for each block, in order.
///
/// A separator is a key not before the last of its block and before the first of the next. It is an internal key, or
/// a user key if that is enough to tell all blocks apart.
#[derive(Debug, Clone)]
pub struct IndexBuilder {
    block: BlockBuilder,
    delta_encoded: bool,
    previous: BlockHandle,
}

impl IndexBuilder {
    /// `delta_encoded` as format version 4 and later have it; the handles added must then follow each other without gaps.
    pub fn new(restart_interval: usize, delta_encoded: bool) -> Self {
        Self { block: BlockBuilder::new(restart_interval), delta_encoded, previous: BlockHandle::default() }
    }

    /// Adds a block.
    pub fn add(&mut self, separator: &[u8], handle: BlockHandle) {
        if self.delta_encoded {
            self.block.add_handle(separator, handle, self.previous);
        } else {
            let mut value = Vec::with_capacity(2 * varint::VARINT64_BYTES_MAX);
            handle.encode(&mut value);
            self.block.add(separator, &value);
        }
        self.previous = handle;
    }

    /// Completes the block and returns it.
    pub fn finish(&mut self) -> &[u8] {
        self.block.finish()
    }

    /// Length of the block if it were finished now.
    pub fn estimated_bytes(&self) -> usize {
        self.block.estimated_bytes()
    }
}

/// Small for small differences of either sign.
const fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    // Whole words first; the zip stops at the shorter one.
    let words = left.chunks_exact(8).zip(right.chunks_exact(8)).take_while(|(left, right)| left == right).count();
    let (left, right) = (left.get(8 * words..).unwrap_or_default(), right.get(8 * words..).unwrap_or_default());
    8 * words + left.iter().zip(right).take_while(|(left, right)| left == right).count()
}
