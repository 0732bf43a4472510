//! From records to fragments.

use super::{BLOCK_BYTES, FragmentKind, HEADER_BYTES, RECYCLABLE_HEADER_BYTES, RECYCLABLE_TYPES, UNCOVERED_BYTES};
use crate::checksum::{crc32c, crc32c_extend, mask};

/// Where in its block a log's next byte goes, and the way to get it there. Writes types 1–4, or 5–8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framer {
    block_offset: usize,
    /// The low half of the log's number, in whose records it stands (types 5–8).
    log: Option<u32>,
}

/// What goes before the payload of a fragment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Front {
    /// Bytes of padding, which are zero.
    pub padding: usize,
    header: [u8; RECYCLABLE_HEADER_BYTES],
    header_bytes: usize,
    /// How much payload the fragment holds.
    pub held: usize,
}

impl Front {
    /// The header.
    pub fn header(&self) -> &[u8] {
        self.header.get(..self.header_bytes).unwrap_or_default()
    }
}

impl Framer {
    /// For a log whose next byte is `block_offset` bytes into a block.
    pub const fn new(block_offset: usize) -> Self {
        Self { block_offset: block_offset % BLOCK_BYTES, log: None }
    }

    /// For a log that is `file_bytes` long.
    pub const fn at(file_bytes: u64) -> Self {
        Self { block_offset: (file_bytes % BLOCK_BYTES as u64) as usize, log: None }
    }

    /// The same, for records that tell which log they belong to: the one whose number has `log` for its low half.
    pub const fn recyclable(self, log: Option<u32>) -> Self {
        Self { log, ..self }
    }

    /// The same, for where a log of `file_bytes` ends.
    pub const fn moved_to(self, file_bytes: u64) -> Self {
        Self::at(file_bytes).recyclable(self.log)
    }

    /// How long a header is.
    pub const fn header_bytes(&self) -> usize {
        if self.log.is_some() { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES }
    }

    /// What is left of the block if no header fits into it, else 0.
    pub const fn padding(&self) -> usize {
        let left = BLOCK_BYTES - self.block_offset;
        if left < self.header_bytes() { left } else { 0 }
    }

    const fn type_byte(&self, kind: FragmentKind) -> u8 {
        if self.log.is_some() { kind.type_byte() + RECYCLABLE_TYPES } else { kind.type_byte() }
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
            self.put_header(out, FragmentKind::new(begins, left == 0), payload_bytes);
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
            self.block_offset = (self.block_offset + self.header_bytes() + payload_bytes) % BLOCK_BYTES;
            begins = false;
            if left == 0 {
                return;
            }
        }
    }

    /// The next fragment of a record of which `payload` is left, for who writes header and payload from where they are: what goes
    /// before the payload, and how much of it. `begins`: nothing of the record came before.
    ///
    /// Cost: one CRC of what it holds; no copy.
    pub fn next_header(&mut self, payload: &[u8], begins: bool) -> Front {
        let padding = self.padding();
        if padding > 0 {
            self.block_offset = 0;
        }
        let header_bytes = self.header_bytes();
        let held = payload.len().min(BLOCK_BYTES.saturating_sub(self.block_offset + header_bytes));
        let type_byte = self.type_byte(FragmentKind::new(begins, held == payload.len()));
        // A block's worth fits into 16 bits.
        let [l0, l1] = (held as u16).to_le_bytes();
        let number = self.log.unwrap_or_default().to_le_bytes();
        let mut crc = crc32c(&[type_byte]);
        if self.log.is_some() {
            crc = crc32c_extend(crc, &number);
        }
        let [c0, c1, c2, c3] = mask(crc32c_extend(crc, payload.get(..held).unwrap_or_default())).to_le_bytes();
        let [n0, n1, n2, n3] = number;
        self.block_offset = (self.block_offset + header_bytes + held) % BLOCK_BYTES;
        Front { padding, header: [c0, c1, c2, c3, l0, l1, type_byte, n0, n1, n2, n3], header_bytes, held }
    }

    fn put_header(&self, out: &mut Vec<u8>, kind: FragmentKind, payload_bytes: usize) {
        out.extend_from_slice(&[0; 4]);
        // A block's worth fits into 16 bits.
        out.extend_from_slice(&(payload_bytes as u16).to_le_bytes());
        out.push(self.type_byte(kind));
        if let Some(log) = self.log {
            out.extend_from_slice(&log.to_le_bytes());
        }
    }

    /// How many payload bytes fit into the block after a header, beginning a new block if not even that fits.
    fn room(&mut self, out: &mut Vec<u8>) -> usize {
        let padding = self.padding();
        if padding > 0 {
            out.resize(out.len() + padding, 0);
            self.block_offset = 0;
        }
        BLOCK_BYTES.saturating_sub(self.block_offset + self.header_bytes())
    }

    /// How many bytes [`frame`](Self::frame) appends for a record of `payload_bytes`.
    pub const fn framed_bytes(&self, payload_bytes: usize) -> usize {
        let (padding, header_bytes) = (self.padding(), self.header_bytes());
        let at = if padding > 0 { 0 } else { self.block_offset };
        let room = BLOCK_BYTES - at - header_bytes;
        let more = payload_bytes.saturating_sub(room).div_ceil(BLOCK_BYTES - header_bytes);
        padding + payload_bytes + (1 + more) * header_bytes
    }
}

/// Puts the checksum into the fragment that begins at `start` and ends where `out` does.
fn seal(out: &mut [u8], start: usize) {
    let Some(fragment) = out.get_mut(start..) else { return };
    let crc = mask(crc32c(fragment.get(UNCOVERED_BYTES..).unwrap_or_default()));
    if let Some(field) = fragment.first_chunk_mut() {
        *field = crc.to_le_bytes();
    }
}
