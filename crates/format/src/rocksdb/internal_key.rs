//! Internal keys: a user key, and when and how it was written.
//!
//! | offset | bytes | field    | type   | meaning                                              |
//! |-------:|------:|----------|--------|------------------------------------------------------|
//! |      0 |     n | user key | bytes  | any bytes, none too                                  |
//! |      n |     8 | tag      | u64 LE | sequence number in the upper 56 bits, [`ValueKind`] in the lower 8 |
//!
//! Order: user key as [`Order`](super::order::Order) says, then tag descending, so that the newest comes first. A reader at sequence `s` looks
//! for the first key not before [`lookup`]`(user_key, s)`.
//!
//! Source: RocksDB `db/dbformat.h`, `db/dbformat.cc`, `util/comparator.cc`, `table/block_based/index_builder.cc`.

use std::fmt;

use crate::error::DecodeError;
use crate::limits;

/// Width of the tag.
pub const TAG_BYTES: usize = 8;

/// The kind in the tag of a [`lookup`] key: the highest that an entry may have, so that no entry at the same sequence
/// number sorts before it.
pub const SEEK_KIND_TAG: u8 = 0x18;

macro_rules! value_kinds {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)*) => {
        /// What a record says of its key. Some kinds occur only in write batches, others only in tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ValueKind {
            $($(#[$doc])* $name = $byte,)*
        }

        impl ValueKind {
            /// The kind with this byte; `None` if RocksDB has none.
            #[inline]
            pub const fn from_u8(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

value_kinds! {
    /// The key is gone.
    Deletion = 0x0,
    /// The key has this value.
    Value = 0x1,
    /// An operand for the merge operator.
    Merge = 0x2,
    /// A note in the log, for nobody's memtable. Batches only.
    LogData = 0x3,
    /// [`Deletion`](Self::Deletion) in a named column family. Batches only.
    ColumnFamilyDeletion = 0x4,
    /// [`Value`](Self::Value) in a named column family. Batches only.
    ColumnFamilyValue = 0x5,
    /// [`Merge`](Self::Merge) in a named column family. Batches only.
    ColumnFamilyMerge = 0x6,
    /// The key, written once, is gone.
    SingleDeletion = 0x7,
    /// [`SingleDeletion`](Self::SingleDeletion) in a named column family. Batches only.
    ColumnFamilySingleDeletion = 0x8,
    /// A prepared transaction begins. Batches only.
    BeginPrepare = 0x9,
    /// A prepared transaction ends. Batches only.
    EndPrepare = 0xa,
    /// A prepared transaction counts. Batches only.
    Commit = 0xb,
    /// A prepared transaction does not count. Batches only.
    Rollback = 0xc,
    /// Nothing. Batches only.
    Noop = 0xd,
    /// [`RangeDeletion`](Self::RangeDeletion) in a named column family. Batches only.
    ColumnFamilyRangeDeletion = 0xe,
    /// All keys up to another are gone.
    RangeDeletion = 0xf,
    /// [`BlobIndex`](Self::BlobIndex) in a named column family. Batches only.
    ColumnFamilyBlobIndex = 0x10,
    /// The key's value is in a blob file.
    BlobIndex = 0x11,
    /// A prepared transaction that is also in the memtable begins. Batches only.
    BeginPersistedPrepare = 0x12,
    /// A part of a transaction that is not prepared yet begins. Batches only.
    BeginUnprepare = 0x13,
    /// The key is gone since a timestamp.
    DeletionWithTimestamp = 0x14,
    /// A prepared transaction counts since a timestamp. Batches only.
    CommitWithTimestamp = 0x15,
    /// The key has several named values.
    WideColumnEntity = 0x16,
    /// [`WideColumnEntity`](Self::WideColumnEntity) in a named column family. Batches only.
    ColumnFamilyWideColumnEntity = 0x17,
    /// The key has this value, written at a time.
    ValuePreferredSequence = 0x18,
    /// [`ValuePreferredSequence`](Self::ValuePreferredSequence) in a named column family. Batches only.
    ColumnFamilyValuePreferredSequence = 0x19,
}

impl ValueKind {
    /// The byte on disk.
    #[inline]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// Whether an internal key may have it.
    pub const fn is_in_tables(self) -> bool {
        matches!(
            self,
            Self::Deletion
                | Self::Value
                | Self::Merge
                | Self::SingleDeletion
                | Self::RangeDeletion
                | Self::BlobIndex
                | Self::DeletionWithTimestamp
                | Self::WideColumnEntity
                | Self::ValuePreferredSequence
        )
    }
}

/// When something was written: one more for each record. At most [`SequenceNumber::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SequenceNumber(u64);

impl SequenceNumber {
    /// The highest: 2^56 - 1.
    pub const MAX: Self = Self(limits::SEQUENCE_MAX);

    /// `number`, or [`MAX`](Self::MAX) if it is higher. Decoders refuse what is higher instead.
    #[inline]
    pub const fn new(number: u64) -> Self {
        if number > limits::SEQUENCE_MAX { Self::MAX } else { Self(number) }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which file: logs, tables, blob files, manifests and options of a store are numbered together. At most [`FileNumber::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileNumber(u64);

impl FileNumber {
    /// The highest: 2^62 - 1.
    pub const MAX: Self = Self(limits::FILE_NUMBER_MAX);

    /// `number`, or [`MAX`](Self::MAX) if it is higher. Decoders refuse what is higher instead.
    #[inline]
    pub const fn new(number: u64) -> Self {
        if number > limits::FILE_NUMBER_MAX { Self::MAX } else { Self(number) }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tag of an internal key.
#[inline]
pub const fn pack(sequence: SequenceNumber, kind: ValueKind) -> u64 {
    sequence.0 << 8 | kind as u64
}

/// Appends an internal key.
#[inline]
pub fn append(out: &mut Vec<u8>, user_key: &[u8], sequence: SequenceNumber, kind: ValueKind) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&pack(sequence, kind).to_le_bytes());
}

/// Where a table ends whose last entry is a range deletion: right before all entries of `user_key`, at which the range ends.
///
/// Source: RocksDB `db/dbformat.h`, `kRangeTombstoneSentinel`.
pub fn end_of_range(user_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(user_key.len() + TAG_BYTES);
    append(&mut key, user_key, SequenceNumber::MAX, ValueKind::RangeDeletion);
    key
}

/// Whether `internal` is such an [end](end_of_range), and its user key lies behind what ends there.
pub fn is_end_of_range(internal: &[u8]) -> bool {
    internal.len() >= TAG_BYTES && tag(internal) == pack(SequenceNumber::MAX, ValueKind::RangeDeletion)
}

/// The internal key before every entry of `user_key` that a reader at `sequence` may see, and after all that it may not.
#[inline]
pub fn lookup(user_key: &[u8], sequence: SequenceNumber) -> Vec<u8> {
    let mut key = Vec::with_capacity(user_key.len() + TAG_BYTES);
    append_lookup(&mut key, user_key, sequence);
    key
}

/// Appends what [`lookup`] returns.
#[inline]
pub fn append_lookup(out: &mut Vec<u8>, user_key: &[u8], sequence: SequenceNumber) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&(sequence.0 << 8 | u64::from(SEEK_KIND_TAG)).to_le_bytes());
}

/// An internal key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The key as the user knows it.
    pub user_key: &'a [u8],
    /// When it was written.
    pub sequence: SequenceNumber,
    /// How.
    pub kind: ValueKind,
}

impl<'a> InternalKey<'a> {
    /// Takes `internal` apart.
    ///
    /// # Errors
    /// Corrupt if it is shorter than a tag, or of a kind that tables do not hold; unsupported if RocksDB may have added the kind.
    #[inline]
    pub fn decode(internal: &'a [u8]) -> Result<Self, DecodeError> {
        let Some((user_key, tag)) = internal.split_last_chunk() else {
            return Err(DecodeError::corrupt(
                "internal key",
                0,
                format!("{} bytes, a tag alone has 8", internal.len()),
            ));
        };
        let tag = u64::from_le_bytes(*tag);
        match ValueKind::from_u8(tag as u8) {
            Some(kind) if kind.is_in_tables() => Ok(Self { user_key, sequence: SequenceNumber(tag >> 8), kind }),
            found => Err(wrong_kind(found, tag as u8, user_key.len())),
        }
    }
}

#[cold]
fn wrong_kind(found: Option<ValueKind>, byte: u8, offset: usize) -> DecodeError {
    match found {
        Some(kind) => {
            DecodeError::corrupt("kind", offset as u64, format!("{kind:?} does not belong in an internal key"))
        }
        None if byte < 0x80 => DecodeError::unsupported("kind", offset as u64, format!("kind {byte:#x} is not known")),
        None => DecodeError::corrupt("kind", offset as u64, format!("no entry has kind {byte:#x}")),
    }
}

/// The user key in `internal`; empty if `internal` is shorter than a tag.
#[inline]
pub fn user_key(internal: &[u8]) -> &[u8] {
    split(internal).0
}

/// The tag of `internal`; 0 if it is shorter than one.
#[inline]
pub fn tag(internal: &[u8]) -> u64 {
    split(internal).1
}

#[inline]
pub(super) fn split(internal: &[u8]) -> (&[u8], u64) {
    match internal.split_last_chunk() {
        Some((user_key, tag)) => (user_key, u64::from_le_bytes(*tag)),
        None => (&[], 0),
    }
}

#[cfg(test)]
mod tests;
