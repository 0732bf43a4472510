//! From records to fragments.

use super::{BLOCK_BYTES, FragmentKind, HEADER_BYTES, UNCOVERED_BYTES};
use crate::checksum::{crc32c, crc32c_extend, mask};

/// Where in its block a log's next byte goes, and the way to get it there. Writes types 1–4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framer {
    block_offset: usize,
}

impl Framer {
    /// For a log whose next byte is `block_offset` bytes into a block.
    pub const fn new(block_offset: usize) -> Self {
        Self { block_offset: block_offset % BLOCK_BYTES }
    }

    /// For a log that is `file_bytes` long.
    pub const fn at(file_bytes: u64) -> Self {
        Self { block_offset: (file_bytes % BLOCK_BYTES as u64) as usize }
    }

    /// Where in its block the next byte goes.
    pub const fn block_offset(&self) -> usize {
        self.block_offset
    }

    /// Appends to `out` one record that holds `payload`, and moves on.
    pub fn frame(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.frame_parts(&[payload], out);
    }

    /// Appends to `out` one record that holds all `parts`, one after the other, and moves on.
    ///
    /// Cost: one copy and one CRC of the payload.
    pub fn frame_parts(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(self.framed_bytes(left));
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        let mut begins = true;
        loop {
            let room = self.room(out);
            let payload_bytes = left.min(room);
            left -= payload_bytes;
            let start = out.len();
            put_header(out, FragmentKind::new(begins, left == 0), payload_bytes);
            let mut wanted = payload_bytes;
            while wanted > 0 {
                if part.is_empty() {
                    match parts.next() {
                        Some(next) => part = next,
                        None => break,
                    }
                }
                let (taken, rest) = part.split_at(wanted.min(part.len()));
                out.extend_from_slice(taken);
                wanted -= taken.len();
                part = rest;
            }
            seal(out, start);
            self.block_offset = (self.block_offset + HEADER_BYTES + payload_bytes) % BLOCK_BYTES;
            begins = false;
            if left == 0 {
                return;
            }
        }
    }

    /// The next fragment of a record of which `payload` is left, for who writes header and payload from where they are: the
    /// bytes of padding before it, its header, and how much of `payload` it holds. `begins`: nothing of the record came before.
    ///
    /// Cost: one CRC of what it holds; no copy.
    pub fn next_header(&mut self, payload: &[u8], begins: bool) -> (usize, [u8; HEADER_BYTES], usize) {
        let mut left = BLOCK_BYTES.saturating_sub(self.block_offset);
        let padding = if left < HEADER_BYTES { left } else { 0 };
        if padding > 0 {
            left = BLOCK_BYTES;
            self.block_offset = 0;
        }
        let payload_bytes = payload.len().min(left - HEADER_BYTES);
        let kind = FragmentKind::new(begins, payload_bytes == payload.len());
        let held = payload.get(..payload_bytes).unwrap_or_default();
        let [c0, c1, c2, c3] = mask(crc32c_extend(crc32c(&[kind.type_byte()]), held)).to_le_bytes();
        // A block's worth fits into 16 bits.
        let [l0, l1] = (payload_bytes as u16).to_le_bytes();
        self.block_offset = (self.block_offset + HEADER_BYTES + payload_bytes) % BLOCK_BYTES;
        (padding, [c0, c1, c2, c3, l0, l1, kind.type_byte()], payload_bytes)
    }

    /// How many payload bytes fit into the block after a header, beginning a new block if not even that fits.
    fn room(&mut self, out: &mut Vec<u8>) -> usize {
        let mut left = BLOCK_BYTES.saturating_sub(self.block_offset);
        if left < HEADER_BYTES {
            out.resize(out.len() + left, 0);
            self.block_offset = 0;
            left = BLOCK_BYTES;
        }
        left - HEADER_BYTES
    }

    /// How many bytes [`frame`](Self::frame) appends for a record of `payload_bytes`.
    pub const fn framed_bytes(&self, payload_bytes: usize) -> usize {
        let left = BLOCK_BYTES - self.block_offset;
        let (padding, room) = match left {
            0..HEADER_BYTES => (left, BLOCK_BYTES - HEADER_BYTES),
            _ => (0, left - HEADER_BYTES),
        };
        let more = payload_bytes.saturating_sub(room).div_ceil(BLOCK_BYTES - HEADER_BYTES);
        padding + payload_bytes + (1 + more) * HEADER_BYTES
    }
}

fn put_header(out: &mut Vec<u8>, kind: FragmentKind, payload_bytes: usize) {
    out.extend_from_slice(&[0; 4]);
    // A block's worth fits into 16 bits.
    out.extend_from_slice(&(payload_bytes as u16).to_le_bytes());
    out.push(kind.type_byte());
}

/// Puts the checksum into the fragment that begins at `start` and ends where `out` does.
fn seal(out: &mut [u8], start: usize) {
    let Some(fragment) = out.get_mut(start..) else { return };
    let crc = mask(crc32c(fragment.get(UNCOVERED_BYTES..).unwrap_or_default()));
    if let Some(field) = fragment.first_chunk_mut() {
        *field = crc.to_le_bytes();
    }
}
