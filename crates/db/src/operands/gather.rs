//! Reads: the operands of a key, from the newest source to the oldest, down to what they are merged with.
//!
//! Cost: a search in each memtable, and in each table whose filter does not deny the key, down to the one that has its value; the value, if it lies in
//! a blob file; one call of the operator. Nothing of that for a key whose newest entry is a value or a deletion.

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};

use crate::entry::{self, Key};
use crate::family::{Family, View};
use crate::iterate::InternalIterator;
use crate::pinned::PinnedSlice;
use crate::read::BlobReader;
use crate::table::NO_OPERATOR;
use crate::{Error, ErrorKind, Result};

/// What stands for a value in a table or memtable, made into it.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) family: &'a Family,
    pub(crate) view: &'a View,
    pub(crate) blobs: &'a BlobReader,
    /// What the reader sees of the key.
    pub(crate) sequence: SequenceNumber,
    pub(crate) fill_cache: bool,
}

/// Whether the entries of this kind are operands: what they stand for is for [`Reader::merged`] to say.
#[inline]
pub(crate) const fn has_operands(kind: ValueKind) -> bool {
    matches!(kind, ValueKind::Merge)
}

/// What the operands are merged with.
enum Base {
    Nothing,
    Value(PinnedSlice),
    Pointer(PinnedSlice),
}

/// Operands of a key, the newest first.
struct Gathered<'a> {
    lookup: &'a [u8],
    /// What is older was deleted with a range.
    cover: SequenceNumber,
    operands: Vec<PinnedSlice>,
    base: Option<Base>,
}

impl Gathered<'_> {
    /// Takes what `entries` have of the key; older ones than those before.
    fn take(&mut self, entries: &mut impl InternalIterator) -> Result<()> {
        entries.seek(self.lookup)?;
        while entries.valid() && self.base.is_none() {
            let key = entry::key_of(entries)?;
            if key.user_key != internal_key::user_key(self.lookup) {
                break;
            }
            if key.sequence < self.cover {
                self.base = Some(Base::Nothing);
                break;
            }
            match key.kind {
                ValueKind::Merge => self.operands.push(entries.pinned_value()),
                ValueKind::Value => self.base = Some(Base::Value(entries.pinned_value())),
                ValueKind::BlobIndex => self.base = Some(Base::Pointer(entries.pinned_value())),
                ValueKind::Deletion | ValueKind::SingleDeletion => self.base = Some(Base::Nothing),
                kind => return Err(entry::located(entry::not_served(key.user_key, kind), entries.place())),
            }
            entries.next()?;
        }
        Ok(())
    }
}

impl Reader<'_> {
    /// The value of `user_key`, of which an entry of `kind` has `stored`.
    ///
    /// # Errors
    /// As reading a blob file, and [`merged`](Self::merged).
    #[inline]
    pub(crate) fn value(&self, user_key: &[u8], kind: ValueKind, stored: PinnedSlice) -> Result<PinnedSlice> {
        match kind {
            ValueKind::BlobIndex => self.blobs.read(self.view, user_key, &stored, self.fill_cache),
            ValueKind::Merge => self.merged(user_key),
            _ => Ok(stored),
        }
    }

    /// Its length.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    #[inline]
    pub(crate) fn value_len(&self, user_key: &[u8], kind: ValueKind, stored: &[u8]) -> Result<u64> {
        match kind {
            ValueKind::BlobIndex => self.blobs.value_len(self.view, user_key, stored),
            ValueKind::Merge => Ok(self.merged(user_key)?.len() as u64),
            _ => Ok(stored.len() as u64),
        }
    }

    /// The value of `user_key`, whose newest entry that the reader sees is an operand.
    ///
    /// # Errors
    /// `UnsupportedFormat`: the family has no merge operator. `Corruption`: the operator could not tell. As reading tables and blob files.
    #[cold]
    pub(crate) fn merged(&self, user_key: &[u8]) -> Result<PinnedSlice> {
        let lookup = internal_key::lookup(user_key, self.sequence);
        let mut gathered = Gathered {
            lookup: &lookup,
            cover: self.view.cover(user_key, self.sequence),
            operands: Vec::new(),
            base: None,
        };
        for generation in self.view.generations() {
            if gathered.base.is_none() {
                gathered.take(&mut generation.memtable.iter())?;
            }
        }
        for table in self.view.version.tables_for(user_key) {
            if gathered.base.is_none() && table.table.filter_holds(user_key) != Some(false) {
                gathered.take(&mut table.table.iter(self.fill_cache))?;
            }
        }
        let existing = match gathered.base {
            None | Some(Base::Nothing) => None,
            Some(Base::Value(value)) => Some(value),
            Some(Base::Pointer(pointer)) => Some(self.blobs.read(self.view, user_key, &pointer, self.fill_cache)?),
        };
        let operands: Vec<&[u8]> = gathered.operands.iter().rev().map(|operand| &**operand).collect();
        merge(self.family, user_key, existing.as_deref(), &operands)
    }
}

/// What `operands`, the oldest first, make of `existing`.
///
/// # Errors
/// `UnsupportedFormat`: the family has no merge operator. `Corruption`: it could not tell.
pub(crate) fn merge(
    family: &Family,
    user_key: &[u8],
    existing: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<PinnedSlice> {
    let Some(operator) = &family.merge_operator else {
        return Err(no_operator(user_key, operands.len(), family));
    };
    let merged = operator.full_merge(user_key, existing, operands);
    merged.map(PinnedSlice::from_vec).ok_or_else(|| refused(user_key, operands.len(), operator.name()))
}

#[cold]
fn no_operator(user_key: &[u8], count: usize, family: &Family) -> Error {
    let (key, view) = (Key(user_key), family.view.load());
    let mut said = view.version.tables().map(|(_, table)| &*table.table.properties().merge_operator);
    let said = said.find(|name| !matches!(*name, "" | NO_OPERATOR));
    let said = said.map_or_else(String::new, |name| format!(" (its tables name {name:?})"));
    let reason = format!(
        "the value of key {key} is to be merged of {count} operands, and column family {:?} has no merge operator that does so{said}; \
         open the store with FamilyOptions::merge_operator or Options::merge_operators; other keys can be read",
        family.name
    );
    Error::new(ErrorKind::UnsupportedFormat, reason)
}

#[cold]
fn refused(user_key: &[u8], count: usize, operator: &str) -> Error {
    let key = Key(user_key);
    let reason = format!("the merge operator {operator} cannot merge the {count} operands of key {key}");
    Error::new(ErrorKind::Corruption, reason)
}
