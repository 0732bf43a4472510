//! The items of a log batch: what it does, without the entries' bytes.
//!
//! | field  | bytes    | type     | meaning                                                 |
//! |--------|---------:|----------|---------------------------------------------------------|
//! | count  |    1..10 | varint   | how many items follow                                   |
//! | items  |          |          | one after the other                                     |
//!
//! An item is a varint of the Raft group, a byte for its kind, and
//!
//! | kind | what    | then                                                                                     |
//! |-----:|---------|------------------------------------------------------------------------------------------|
//! |    1 | entries | varint count; if it is not 0: varint index of the first, and for each entry a varint: where it ends in the unpacked entries block. It begins where the one before it ended, that of an earlier item too |
//! |    2 | command | a byte: 1 clean (the group is gone), 2 compact and a varint index: entries before it are gone |
//! |    3 | key     | a byte: 1 put, 2 delete; varint length and bytes of the key, for a put also of the value  |
//!
//! A batch of the rewrite queue may be part of an atomic group, which counts as a whole or not at all. It then has a
//! put of [`ATOMIC_GROUP_KEY`] with a one-byte value ([`AtomicStatus`]); the item's Raft group is the atomic group's number.
//!
//! Source: raft-engine `src/log_batch.rs`.

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::varint;

/// The key of an atomic group's marker. No user may put it; it is passed over, whatever its value, when a log is read.
pub const ATOMIC_GROUP_KEY: &[u8] = b"__\x01";
/// The command that ends a group.
pub const COMMAND_CLEAN: u8 = 1;
/// The command that ends entries; the index of the first that stays follows, a variable-length number.
pub const COMMAND_COMPACT: u8 = 2;

const KIND_ENTRIES: u8 = 1;
const KIND_COMMAND: u8 = 2;
const KIND_KEY: u8 = 3;
const KEY_PUT: u8 = 1;
const KEY_DELETE: u8 = 2;

/// Which part of an atomic group a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicStatus {
    /// The first batch.
    Begin = 0,
    /// Neither.
    Middle = 1,
    /// The last: now the group counts.
    End = 2,
}

/// What an item does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<'a> {
    /// Entries with consecutive indexes; those from the first one's index on that the group had before are gone.
    Entries(Entries<'a>),
    /// The group is gone, with all its keys.
    Clean,
    /// Entries before `index` are gone.
    Compact {
        /// The first that stays.
        index: u64,
    },
    /// `key` has `value` from now on.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// `key` has no value any more.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item<'a> {
    /// The Raft group it belongs to.
    pub group: u64,
    /// What it does.
    pub action: Action<'a>,
}

impl Item<'_> {
    /// Whether it concerns the key that the format keeps for itself: no group has it, whatever its value.
    #[inline]
    pub fn is_internal(&self) -> bool {
        matches!(self.action, Action::Put { key: ATOMIC_GROUP_KEY, .. } | Action::Delete { key: ATOMIC_GROUP_KEY })
    }

    /// The atomic group that a batch with this item is part of.
    pub fn atomic_marker(&self) -> Option<(u64, AtomicStatus)> {
        let Action::Put { key: ATOMIC_GROUP_KEY, value } = self.action else { return None };
        let status = match value {
            [0] => AtomicStatus::Begin,
            [1] => AtomicStatus::Middle,
            [2] => AtomicStatus::End,
            _ => return None,
        };
        Some((self.group, status))
    }
}

/// Where the entries of an item lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<'a> {
    /// Index of the first.
    pub first_index: u64,
    /// How many.
    pub count: u64,
    /// Where the first begins in the unpacked entries block.
    pub start: u32,
    /// Where the last ends.
    pub end: u32,
    ends: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Where each entry lies in the unpacked entries block, in order of their indexes.
    pub fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u32>> + use<'a> {
        let mut cursor = Cursor::new(self.ends);
        let mut start = self.start;
        std::iter::from_fn(move || {
            // They were checked when the item was decoded.
            let end = cursor.varint32("entry end").ok()?;
            let range = start..end;
            start = end;
            Some(range)
        })
    }

    /// The index behind the last.
    pub const fn next_index(&self) -> u64 {
        self.first_index.saturating_add(self.count)
    }
}

/// A place in an item block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemPlace {
    offset: u64,
    left: u64,
    entries_end: u32,
}

/// Reads items from front to back. Allocates nothing.
#[derive(Debug, Clone)]
pub struct Items<'a> {
    cursor: Cursor<'a>,
    left: u64,
    /// Where the next entry begins.
    entries_end: u32,
}

impl<'a> Items<'a> {
    /// Of an item block without its checksum.
    ///
    /// # Errors
    /// Corrupt if it does not begin with a count.
    pub fn new(raw: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(raw);
        let left = cursor.varint64("item count")?;
        Ok(Self { cursor, left, entries_end: 0 })
    }

    /// Of items without their count: `count` of them.
    pub const fn of_body(raw: &'a [u8], count: u64) -> Self {
        Self { cursor: Cursor::new(raw), left: count, entries_end: 0 }
    }

    /// Where the next item begins, to come back to it with [`at`](Self::at).
    pub const fn place(&self) -> ItemPlace {
        ItemPlace { offset: self.cursor.offset(), left: self.left, entries_end: self.entries_end }
    }

    /// Of the item block `raw`, from a place on that an earlier reading of it was at.
    pub fn at(raw: &'a [u8], place: ItemPlace) -> Self {
        let rest = usize::try_from(place.offset).ok().and_then(|offset| raw.get(offset..)).unwrap_or_default();
        Self { cursor: Cursor::new(rest), left: place.left, entries_end: place.entries_end }
    }

    /// How many items have not been read.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Where the last entry read so far ends in the unpacked entries block.
    pub const fn entries_end(&self) -> u32 {
        self.entries_end
    }

    /// The next item; `None` behind the last.
    ///
    /// # Errors
    /// Corrupt if no writer could have produced it.
    // Opening a log reads millions: an item that is returned in memory, part by part, waits for its parts.
    #[inline(always)]
    pub fn read(&mut self) -> Result<Option<Item<'a>>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        let group = self.cursor.varint64("group")?;
        let offset = self.cursor.offset();
        let action = match self.cursor.u8("item kind")? {
            KIND_ENTRIES => Action::Entries(self.entries()?),
            KIND_COMMAND => self.command()?,
            KIND_KEY => self.key()?,
            kind => return Err(unknown("item kind", offset, kind)),
        };
        self.left -= 1;
        Ok(Some(Item { group, action }))
    }

    #[inline(always)]
    fn entries(&mut self) -> Result<Entries<'a>, DecodeError> {
        let offset = self.cursor.offset();
        let count = self.cursor.varint64("entry count")?;
        let start = self.entries_end;
        if count == 0 {
            return Ok(Entries { first_index: 0, count, start, end: start, ends: &[] });
        }
        let first_index = self.cursor.varint64("first index")?;
        if first_index.checked_add(count).is_none() {
            return Err(too_many(offset, count, first_index));
        }
        let before = self.cursor.rest();
        for _ in 0..count {
            let offset = self.cursor.offset();
            let end = self.cursor.varint32("entry end")?;
            if end < self.entries_end {
                return Err(ends_early(offset, self.entries_end, end));
            }
            self.entries_end = end;
        }
        let ends_bytes = before.len().saturating_sub(self.cursor.rest().len());
        let ends = before.get(..ends_bytes).unwrap_or_default();
        Ok(Entries { first_index, count, start, end: self.entries_end, ends })
    }

    #[inline(always)]
    fn command(&mut self) -> Result<Action<'a>, DecodeError> {
        let offset = self.cursor.offset();
        match self.cursor.u8("command")? {
            COMMAND_CLEAN => Ok(Action::Clean),
            COMMAND_COMPACT => Ok(Action::Compact { index: self.cursor.varint64("compact index")? }),
            command => Err(unknown("command", offset, command)),
        }
    }

    #[inline(always)]
    fn key(&mut self) -> Result<Action<'a>, DecodeError> {
        let offset = self.cursor.offset();
        match self.cursor.u8("key operation")? {
            KEY_PUT => {
                let key = self.cursor.prefixed("key")?;
                Ok(Action::Put { key, value: self.cursor.prefixed("value")? })
            }
            KEY_DELETE => Ok(Action::Delete { key: self.cursor.prefixed("key")? }),
            operation => Err(unknown("key operation", offset, operation)),
        }
    }
}

#[cold]
fn unknown(field: &'static str, offset: u64, kind: u8) -> DecodeError {
    DecodeError::corrupt(field, offset, format!("{kind} is not known"))
}

#[cold]
fn too_many(offset: u64, count: u64, first_index: u64) -> DecodeError {
    DecodeError::corrupt("entry count", offset, format!("{count} from index {first_index} on"))
}

#[cold]
fn ends_early(offset: u64, start: u32, end: u32) -> DecodeError {
    DecodeError::corrupt("entry end", offset, format!("{end}, before its start {start}"))
}

/// Appends an item of entries: `ends` says where each one ends in the unpacked entries block.
pub fn put_entries(out: &mut Vec<u8>, group: u64, first_index: u64, ends: impl ExactSizeIterator<Item = u32>) {
    varint::put_u64(out, group);
    out.push(KIND_ENTRIES);
    let count = ends.len() as u64;
    varint::put_u64(out, count);
    if count > 0 {
        varint::put_u64(out, first_index);
    }
    for end in ends {
        varint::put_u32(out, end);
    }
}

/// Appends an item that says that a group is gone.
pub fn put_clean(out: &mut Vec<u8>, group: u64) {
    varint::put_u64(out, group);
    out.extend_from_slice(&[KIND_COMMAND, COMMAND_CLEAN]);
}

/// Appends an item that says that a group's entries before `index` are gone.
pub fn put_compact(out: &mut Vec<u8>, group: u64, index: u64) {
    varint::put_u64(out, group);
    out.extend_from_slice(&[KIND_COMMAND, COMMAND_COMPACT]);
    varint::put_u64(out, index);
}

/// Appends an item that gives a key a value.
pub fn put_put(out: &mut Vec<u8>, group: u64, key: &[u8], value: &[u8]) {
    varint::put_u64(out, group);
    out.extend_from_slice(&[KIND_KEY, KEY_PUT]);
    varint::put_prefixed(out, key);
    varint::put_prefixed(out, value);
}

/// Appends an item that takes a key's value away.
pub fn put_delete(out: &mut Vec<u8>, group: u64, key: &[u8]) {
    varint::put_u64(out, group);
    out.extend_from_slice(&[KIND_KEY, KEY_DELETE]);
    varint::put_prefixed(out, key);
}

/// Appends the marker of an atomic group.
pub fn put_atomic_marker(out: &mut Vec<u8>, atomic_group: u64, status: AtomicStatus) {
    put_put(out, atomic_group, ATOMIC_GROUP_KEY, &[status as u8]);
}

#[cfg(test)]
mod tests;
