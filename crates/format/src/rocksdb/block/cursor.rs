//! Reads blocks: the innermost loop of every read.

use std::ops::Range;

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::rocksdb::table::BlockHandle;
use crate::varint;

use super::BlockLayout;

/// What stands behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ValueEncoding {
    /// Bytes, with their length before the key.
    #[default]
    Prefixed,
    /// A block handle, in full or as a difference, without a length.
    Handle,
    /// The same, and a key with its length.
    HandleAndKey,
}

/// A position in a block. Owns the key, which is put together from several entries, and borrows nothing: every call takes
/// the bytes of the block again, so that whoever owns both needs no self-reference. They must be the bytes that the layout
/// was parsed from; others give errors or nonsense, never a panic.
///
/// - C1: `next` is where the entry after the current one begins; all before it has been checked.
/// - C2: after an error the cursor is not valid.
///
/// Cost of a step: three bytes of header, the key's new bytes copied. No allocation once the key's buffer has grown.
#[derive(Debug, Clone, Default)]
pub struct BlockCursor {
    pub(super) layout: BlockLayout,
    encoding: ValueEncoding,
    pub(super) valid: bool,
    pub(super) key: Vec<u8>,
    value: Range<usize>,
    entry: usize,
    pub(super) next: usize,
    handle: BlockHandle,
}

/// The lengths at the front of an entry, and where they end.
struct Header {
    shared: usize,
    unshared: usize,
    value_bytes: usize,
    end: usize,
}

/// An entry, taken apart.
pub(super) struct Entry<'a> {
    /// Bytes that its key shares with the key before.
    pub(super) shared: usize,
    /// What follows them.
    pub(super) unshared: &'a [u8],
    /// Where its value lies.
    pub(super) value: Range<usize>,
}

#[cold]
pub(super) fn shares_too_much(at: usize) -> DecodeError {
    DecodeError::corrupt("shared", at as u64, "more than the key before has")
}

impl BlockCursor {
    /// Before any entry of a block with this layout.
    pub fn new(layout: BlockLayout) -> Self {
        Self { layout, ..Self::default() }
    }

    pub(super) fn with_encoding(layout: BlockLayout, encoding: ValueEncoding) -> Self {
        Self { layout, encoding, ..Self::default() }
    }

    /// The same for another block, keeping the key's buffer.
    #[inline]
    pub fn reset(&mut self, layout: BlockLayout) {
        self.layout = layout;
        self.valid = false;
    }

    #[inline]
    pub(super) fn reset_encoding(&mut self, layout: BlockLayout, encoding: ValueEncoding) {
        self.reset(layout);
        self.encoding = encoding;
    }

    /// Whether the cursor stands on an entry.
    #[inline]
    pub const fn valid(&self) -> bool {
        self.valid
    }

    /// The key; empty unless valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    /// Where in the block the value lies; empty unless valid.
    #[inline]
    pub const fn value_range(&self) -> Range<usize> {
        if self.valid { self.value.start..self.value.end } else { 0..0 }
    }

    /// The value; empty unless valid.
    #[inline]
    pub fn value<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block.get(self.value_range()).unwrap_or_default()
    }

    /// Where the entry begins that the cursor stands on.
    pub(super) const fn entry_offset(&self) -> usize {
        self.entry
    }

    /// Bytes that the key it stands on shares with the one before; `None` unless valid.
    pub(super) fn shared(&self, block: &[u8]) -> Option<usize> {
        let entries = block.get(..self.layout.entries_bytes)?;
        self.valid.then(|| self.header(entries, self.entry).ok()).flatten().map(|header| header.shared)
    }

    /// The handle that the current value stands for, in a block of handles.
    pub(super) const fn handle(&self) -> BlockHandle {
        self.handle
    }

    /// To the first entry, if there is one.
    ///
    /// # Errors
    /// Corrupt, naming the field of the first entry that does not decode.
    pub fn seek_to_first(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.restart_at(0);
        self.step(block).map(drop)
    }

    /// To the last entry, if there is one. Cost: the entries since the last restart.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        self.valid = false;
        let Some(last) = self.layout.restart_count.checked_sub(1) else {
            return Ok(());
        };
        let at = self.layout.restart(block, last)?;
        self.restart_at(at);
        while self.next < self.layout.entries_bytes {
            self.step(block)?;
        }
        Ok(())
    }

    /// To the entry after, if there is one. Does nothing unless valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn next(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        if self.valid { self.step(block).map(drop) } else { Ok(()) }
    }

    /// To the entry before, if there is one. Does nothing unless valid. Cost: up to one restart interval of steps.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self, block: &[u8]) -> Result<(), DecodeError> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        let current = self.entry;
        // The last restart before the current entry.
        let (mut low, mut high) = (0, self.layout.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.layout.restart(block, middle)? < current {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(restart) = low.checked_sub(1) else {
            return Ok(());
        };
        let at = self.layout.restart(block, restart)?;
        self.restart_at(at);
        while self.next < current {
            self.step(block)?;
        }
        if self.next == current {
            return Ok(());
        }
        self.valid = false;
        Err(DecodeError::corrupt("restarts", at as u64, "entries do not meet"))
    }

    /// The next step reads the entry at `at`, which shares nothing.
    #[inline]
    pub(super) fn restart_at(&mut self, at: usize) {
        self.valid = false;
        self.key.clear();
        self.next = at;
    }

    /// Reads the entry at `next`; `false` behind the last.
    #[inline]
    pub(super) fn step(&mut self, block: &[u8]) -> Result<bool, DecodeError> {
        self.valid = false;
        let at = self.next;
        if at >= self.layout.entries_bytes {
            return Ok(false);
        }
        let entries = block.get(..self.layout.entries_bytes).unwrap_or_default();
        let entry = self.entry(entries, at)?;
        if entry.shared > self.key.len() {
            return Err(shares_too_much(at));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.unshared);
        self.stand_on(at, entry.value);
        Ok(true)
    }

    /// The entry at `at`, whose key was put together.
    #[inline(always)]
    pub(super) fn stand_on(&mut self, at: usize, value: Range<usize>) {
        self.entry = at;
        self.next = value.end;
        self.value = value;
        self.valid = true;
    }

    /// Takes the entry at `at` apart; a handle for a value goes to `handle`.
    #[inline(always)]
    pub(super) fn entry<'a>(&mut self, entries: &'a [u8], at: usize) -> Result<Entry<'a>, DecodeError> {
        let header = self.header(entries, at)?;
        let value_at = header.end + header.unshared;
        let Some(unshared) = entries.get(header.end..value_at) else {
            return Err(DecodeError::corrupt("unshared", at as u64, "the key runs past the entries"));
        };
        let end = match self.encoding {
            ValueEncoding::Prefixed => value_at + header.value_bytes,
            ValueEncoding::Handle => self.read_handle(entries, value_at, header.shared > 0)?,
            ValueEncoding::HandleAndKey => {
                let key_at = self.read_handle(entries, value_at, header.shared > 0)?;
                let mut cursor = Cursor::new(entries.get(key_at..).unwrap_or_default());
                cursor.prefixed("first key").map_err(|error| error.at_base(key_at as u64))?;
                key_at + cursor.offset() as usize
            }
        };
        if end > entries.len() {
            return Err(DecodeError::corrupt("value len", at as u64, "the value runs past the entries"));
        }
        Ok(Entry { shared: header.shared, unshared, value: value_at..end })
    }

    /// The lengths of the entry at `at`. Each fits 32 bits, so their sums cannot overflow.
    #[inline(always)]
    fn header(&self, entries: &[u8], at: usize) -> Result<Header, DecodeError> {
        let prefixed = self.encoding == ValueEncoding::Prefixed;
        // Nearly always every length fits one byte.
        if let Some(&[shared, unshared, value_bytes]) = entries.get(at..).and_then(|rest| rest.first_chunk()) {
            let (value_bytes, end) = if prefixed { (value_bytes, at + 3) } else { (0, at + 2) };
            if (shared | unshared | value_bytes) < 0x80 {
                let (shared, unshared, value_bytes) = (shared.into(), unshared.into(), value_bytes.into());
                return Ok(Header { shared, unshared, value_bytes, end });
            }
        }
        let mut end = at;
        let mut length = |field| match varint::get_u32(entries.get(end..).unwrap_or_default()) {
            Some((value, count)) => {
                end += count;
                Ok(value as usize)
            }
            None => Err(DecodeError::corrupt(field, end as u64, "not a variable-length integer of at most 32 bits")),
        };
        let (shared, unshared) = (length("shared")?, length("unshared")?);
        let value_bytes = if prefixed { length("value len")? } else { 0 };
        Ok(Header { shared, unshared, value_bytes, end })
    }

    /// Reads the handle at `at` into `handle`; returns where it ends.
    fn read_handle(&mut self, entries: &[u8], at: usize, follows: bool) -> Result<usize, DecodeError> {
        let raw = entries.get(at..).unwrap_or_default();
        if !follows {
            let (handle, count) = BlockHandle::decode(raw).map_err(|error| error.at_base(at as u64))?;
            self.handle = handle;
            return Ok(at + count);
        }
        let bad = |reason| DecodeError::corrupt("handle", at as u64, reason);
        let (zigzag, count) = varint::get_u64(raw).ok_or_else(|| bad("not a variable-length integer"))?;
        let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let offset = self.handle.end().ok_or_else(|| bad("it lies beyond 2^64"))?;
        let bytes = self.handle.bytes.checked_add_signed(difference).ok_or_else(|| bad("its size is negative"))?;
        self.handle = BlockHandle { offset, bytes };
        Ok(at + count)
    }

    /// The key of restart `index`, in place.
    #[inline]
    pub(super) fn restart_key<'a>(&self, block: &'a [u8], index: usize) -> Result<&'a [u8], DecodeError> {
        let at = self.layout.restart(block, index)?;
        let entries = block.get(..self.layout.entries_bytes).unwrap_or_default();
        let header = self.header(entries, at)?;
        match entries.get(header.end..header.end + header.unshared) {
            Some(key) if header.shared == 0 => Ok(key),
            Some(_) => Err(DecodeError::corrupt("shared", at as u64, "a restart shares bytes with the key before")),
            None => Err(DecodeError::corrupt("unshared", at as u64, "the key runs past the entries")),
        }
    }
}
