//! What cannot be made out of an entry, or not be served: errors name its key, so that whoever walks can seek past it, and its table,
//! where that is known.
//!
//! Cost: none where entries are as they should be; every message is made in a function that is `#[cold]`.

use std::fmt;
use std::path::Path;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::{self, InternalKey, ValueKind};
use esker_format::{DecodeError, DecodeErrorKind};

use crate::iterate::InternalIterator;
use crate::{Error, ErrorKind, Result};

/// Of a longer key only the first bytes are told.
const KEY_BYTES_TOLD: usize = 128;

/// What else can be done than to wait for a later release.
const SEEK_PAST: &str = "other keys can be read: seek past this one";

/// The key that `entries` stands on, taken apart.
#[inline]
pub(crate) fn key_of<I: InternalIterator + ?Sized>(entries: &I) -> Result<InternalKey<'_>> {
    InternalKey::decode(entries.key()).map_err(|error| located(unreadable_key(entries.key(), error), entries.place()))
}

/// Reads the pointer that a table or memtable has in place of the value of `user_key`.
#[inline(always)]
pub(crate) fn pointer(user_key: &[u8], stored: &[u8]) -> Result<BlobIndex> {
    BlobIndex::decode(stored).map_err(|error| unreadable("following a pointer into a blob file", user_key, error))
}

/// That an internal key cannot be taken apart.
#[cold]
pub(crate) fn unreadable_key(internal: &[u8], error: DecodeError) -> Error {
    unreadable("reading an entry", internal_key::user_key(internal), error)
}

#[cold]
fn unreadable(doing: &str, user_key: &[u8], error: DecodeError) -> Error {
    let (kind, what_to_do) = match error.kind {
        DecodeErrorKind::Unsupported => (ErrorKind::UnsupportedFormat, SEEK_PAST),
        _ => (ErrorKind::Corruption, "run esker check"),
    };
    let (key, field, why) = (Key(user_key), error.field, &error.reason);
    Error::new(kind, format!("{doing} of key {key}: {field}: {why}; {what_to_do}")).with_source(error)
}

/// Whether an entry of this kind can be served.
pub(crate) const fn is_served(kind: ValueKind) -> bool {
    use ValueKind::{BlobIndex, Deletion, Merge, SingleDeletion, Value};
    matches!(kind, Value | BlobIndex | Merge | Deletion | SingleDeletion)
}

/// That an entry is of a kind that is not [served](is_served).
#[cold]
pub(crate) fn not_served(user_key: &[u8], kind: ValueKind) -> Error {
    let key = Key(user_key);
    Error::new(ErrorKind::UnsupportedFormat, format!("the entry of key {key} is of kind {kind:?}; {SEEK_PAST}"))
}

/// The same, with where the entry lies: the table, and in it the block. What has a path keeps it; what is no damage gets none.
#[cold]
pub(crate) fn located(error: Error, place: Option<(&Path, Option<u64>)>) -> Error {
    let is_about_entry = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat);
    let Some((path, offset)) = place.filter(|_| is_about_entry && error.path().is_none()) else { return error };
    let error = error.with_path(path);
    match offset {
        Some(offset) => error.with_offset(offset),
        None => error,
    }
}

/// That keys do not follow one another where `entries` stands.
#[cold]
pub(crate) fn disordered<I: InternalIterator + ?Sized>(entries: &I) -> Error {
    let key = Key(internal_key::user_key(entries.key()));
    let reason = format!("walking through the keys: those of a table are out of order at {key}; run esker check");
    located(Error::new(ErrorKind::Corruption, reason), entries.place())
}

/// A key as messages have it: between quotes, what is not printable ASCII escaped; its length if that is not all of it.
pub(crate) struct Key<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.0.get(..KEY_BYTES_TOLD).unwrap_or(self.0);
        write!(f, "\"{}\"", told.escape_ascii())?;
        if told.len() < self.0.len() { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
