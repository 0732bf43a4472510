//! From fragments to records.

use super::{BLOCK_BYTES, Fragment, FragmentKind, next_fragment};
use crate::error::DecodeError;

/// Joins the pieces of a record. Holds no more than the pieces it was given.
#[derive(Debug, Clone, Default)]
pub struct Assembler {
    record: Vec<u8>,
    is_within: bool,
}

impl Assembler {
    /// Within no record.
    pub const fn new() -> Self {
        Self { record: Vec::new(), is_within: false }
    }

    /// Takes the next piece. True: [`record`](Self::record) is whole. False: more is to come.
    ///
    /// # Errors
    /// Corrupt if the piece does not go with those before. They are dropped, and so is the piece, unless it begins a record
    /// ([`FragmentKind::begins`]): then it may be pushed again.
    pub fn push(&mut self, kind: FragmentKind, payload: &[u8]) -> Result<bool, DecodeError> {
        // Writers of old left an empty beginning at the end of a block and began again in the next.
        if self.is_within && kind.begins() && !self.record.is_empty() {
            let bytes = self.drop_begun();
            return Err(DecodeError::corrupt("type", 0, format!("{bytes} bytes of a record that has no end")));
        }
        if !self.is_within && !kind.begins() {
            let bytes = payload.len();
            return Err(DecodeError::corrupt("type", 0, format!("{bytes} bytes of a record that has no beginning")));
        }
        if kind.begins() {
            self.record.clear();
        }
        self.record.extend_from_slice(payload);
        self.is_within = !kind.ends();
        Ok(kind.ends())
    }

    /// The record, as far as it was pushed.
    pub fn record(&self) -> &[u8] {
        &self.record
    }

    /// Whether a record has begun and not ended.
    pub const fn is_within(&self) -> bool {
        self.is_within
    }

    /// Forgets a record that has begun; how many bytes it had.
    pub fn drop_begun(&mut self) -> usize {
        let bytes = if self.is_within { self.record.len() } else { 0 };
        self.is_within = false;
        self.record.clear();
        bytes
    }
}

/// The records of a whole log in memory, and what is wrong with it. For small logs and for tools that show damage.
///
/// After damage it goes on at the next block, as RocksDB does when it skips corrupted records.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    log_number: Option<u32>,
    at: usize,
    record_offset: usize,
    assembler: Assembler,
    is_over: bool,
}

impl<'a> Reader<'a> {
    /// At the start of the log `bytes`. For `log_number`, see [`next_fragment`].
    pub const fn new(bytes: &'a [u8], log_number: Option<u32>) -> Self {
        Self { bytes, log_number, at: 0, record_offset: 0, assembler: Assembler::new(), is_over: false }
    }

    /// The offset of the next record in the log, and its payload; `None` after the last. Call again after an error to go on.
    ///
    /// # Errors
    /// What is wrong, with its offset in the log: damage, or a record that was not written to its end.
    // Not an iterator: the payload is borrowed from the reader.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Option<Result<(u64, &[u8]), DecodeError>> {
        match self.advance()? {
            Ok(()) => Some(Ok((self.record_offset as u64, self.assembler.record()))),
            Err(error) => Some(Err(error)),
        }
    }

    /// How far the log was read, in bytes.
    pub const fn offset(&self) -> u64 {
        self.at as u64
    }

    fn advance(&mut self) -> Option<Result<(), DecodeError>> {
        while !self.is_over {
            let block_start = self.at - self.at % BLOCK_BYTES;
            let block_end = (block_start + BLOCK_BYTES).min(self.bytes.len());
            let block = self.bytes.get(block_start..block_end).unwrap_or_default();
            match next_fragment(block, self.at - block_start, self.log_number) {
                Fragment::Whole { kind, payload, next, .. } => {
                    let payload = block.get(payload).unwrap_or_default();
                    let fragment_offset = self.at;
                    match self.assembler.push(kind, payload) {
                        Ok(is_whole) => {
                            if kind.begins() {
                                self.record_offset = fragment_offset;
                            }
                            self.at = block_start + next;
                            if is_whole {
                                return Some(Ok(()));
                            }
                        }
                        Err(error) => {
                            if !kind.begins() {
                                self.at = block_start + next;
                            }
                            return Some(Err(error.at_base(fragment_offset as u64)));
                        }
                    }
                }
                Fragment::Ignored { next } => self.at = block_start + next,
                Fragment::Packed { next } => {
                    let reason = "packed records are for who scans a log";
                    let error = DecodeError::unsupported("type", self.at as u64, reason);
                    self.at = block_start + next;
                    return Some(Err(error));
                }
                // What follows in another block does not go with it: what was between is lost.
                Fragment::Zeroes if self.assembler.is_within() => {
                    self.assembler.drop_begun();
                    self.at = block_end;
                    let begun = self.record_offset as u64;
                    return Some(Err(DecodeError::corrupt("record", begun, "zeroes stand where it should go on")));
                }
                Fragment::EndOfBlock | Fragment::Zeroes => {
                    self.at = block_end;
                    self.is_over = block_end == self.bytes.len();
                }
                Fragment::Damaged { reason, .. } => {
                    self.assembler.drop_begun();
                    self.at = block_end;
                    return Some(Err(reason.at_base(block_start as u64)));
                }
                Fragment::Torn => {
                    self.is_over = true;
                    self.assembler.drop_begun();
                    return Some(Err(DecodeError::corrupt("fragment", self.at as u64, "the log ends before it does")));
                }
                Fragment::StaleRecycled => self.is_over = true,
            }
        }
        let begun = self.record_offset as u64;
        let is_unfinished = self.assembler.is_within();
        self.assembler.drop_begun();
        is_unfinished.then(|| Err(DecodeError::corrupt("record", begun, "the log ends before it does")))
    }
}
