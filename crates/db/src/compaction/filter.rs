//! What a program lets go of, or changes, as compactions come by.
//!
//! - CF1: only values are shown, and of a key the newest that a compaction meets, if no snapshot sees it that there is when the compaction begins: those keep
//!   what they see. One that is made while it goes on sees what the filter leaves as soon as it ends: nothing that hides the value is older than that snapshot,
//!   as there is where something newer has a value go.
//! - CF2: what is to go leaves a deletion in its place, unless nothing older of its key can be anywhere: nothing older comes to light.
//! - CF3: what pointed into a blob file, and does so no more, is counted as garbage there in the edit of the compaction (B10).
//! - CF4: where the filter panics, or asks for a value that it cannot have, all stays as it is. Nor does a value become longer: its room was not kept.

use std::cell::OnceCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use esker_format::rocksdb::blob::accounted_bytes;
use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};

use super::Plan;
use crate::entry::{self, Key};
use crate::pinned::PinnedSlice;
use crate::store::Store;
use crate::version::Version;
use crate::{Error, ErrorKind, Result};

/// Which values go, or change, when a compaction comes by (RocksDB's `CompactionFilter`): what has expired, or belongs to somebody who is gone.
///
/// ```
/// # extern crate esker_db as esker;
/// use esker::{CompactionFilter, FamilyOptions, FilterDecision};
///
/// // Values begin with the second at which they expire.
/// let expired = CompactionFilter::new(|candidate| {
///     match candidate.value().ok().and_then(|value| value.first_chunk()) {
///         Some(expires) if u64::from_be_bytes(*expires) <= candidate.unix_seconds() => FilterDecision::Remove,
///         _ => FilterDecision::Keep,
///     }
/// });
/// // (`FamilyOptions::with_ttl` is this for values that carry their time in RocksDB's way.)
/// let options = FamilyOptions {
///     compaction_filter: Some(expired),
///     // What no compaction comes by otherwise, one does within a day.
///     periodic_compaction_seconds: 24 * 60 * 60,
///     ..FamilyOptions::default()
/// };
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct CompactionFilter {
    decide: Arc<Decide>,
    /// Whether it takes values for what operands cannot be merged into.
    is_against_merges: bool,
}

type Decide = dyn Fn(&FilterCandidate<'_>) -> FilterDecision + Send + Sync;

impl CompactionFilter {
    /// `decide` is asked once for each value that a compaction meets, unless a snapshot from before the compaction sees it or something newer hides it there; not for what flushes write, tables that
    /// only change their level, files that are taken in, and what reclaim moves beside compactions. Readers see a value until the compaction is done;
    /// a snapshot, too, that was made while it went on. Operands of a merge above a value that goes are merged into nothing.
    ///
    /// It is called by the threads that compact, by several at once, and answers by what it is given and the time. It must not write to the store that asks it, nor wait
    /// for who does: they may wait for the compaction. Where it panics, the value stays.
    pub fn new(decide: impl Fn(&FilterCandidate<'_>) -> FilterDecision + Send + Sync + 'static) -> Self {
        Self { decide: Arc::new(decide), is_against_merges: false }
    }

    /// The same, for families without merge operator alone.
    pub(crate) fn against_merges(self) -> Self {
        Self { is_against_merges: true, ..self }
    }

    pub(crate) fn is_against_merges(&self) -> bool {
        self.is_against_merges
    }
}

impl fmt::Debug for CompactionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompactionFilter(..)")
    }
}

/// What a [`CompactionFilter`] says of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// It stays.
    Keep,
    /// Its key is deleted.
    Remove,
    /// This takes its place. Longer than that it must not be: then the value stays as it is, as it does if this is the same.
    Change(Vec<u8>),
}

/// A value that a [`CompactionFilter`] is asked about.
pub struct FilterCandidate<'a> {
    key: &'a [u8],
    level: usize,
    now: u64,
    stored: Stored<'a>,
    read: OnceCell<PinnedSlice>,
}

/// Where the value lies.
enum Stored<'a> {
    Here(&'a [u8]),
    In(&'a Version, &'a [u8]),
}

impl FilterCandidate<'_> {
    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// The level that the compaction writes to: 0 to 6, the deepest holding most of what there is.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What time it is, in seconds since 1970-01-01 UTC: when the compaction, or its part, began.
    pub fn unix_seconds(&self) -> u64 {
        self.now
    }

    /// The value. One that lies in a blob file is read the first time: decide by the key where that will do.
    ///
    /// # Errors
    /// `Corruption`, `Io` from reading a blob file: answer [`FilterDecision::Keep`], or decide without it.
    pub fn value(&self) -> Result<&[u8]> {
        let (version, pointer) = match self.stored {
            Stored::Here(value) => return Ok(value),
            Stored::In(version, pointer) => (version, pointer),
        };
        if let Some(value) = self.read.get() {
            return Ok(value);
        }
        let index = entry::pointer(self.key, pointer)?;
        let Some(blob) = version.blobs().get(&index.file) else {
            let reason = format!("a value lies in blob file {}, which the store does not have", index.file);
            return Err(Error::new(ErrorKind::Corruption, reason));
        };
        // Before anything is read: a damaged pointer may say any length.
        blob.file.extent(self.key, &index)?;
        let value = blob.file.read(self.key, &index)?;
        Ok(self.read.get_or_init(|| value))
    }
}

/// The key, and where the value lies.
impl fmt::Debug for FilterCandidate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_separated = matches!(self.stored, Stored::In(..));
        let mut shown = f.debug_struct("FilterCandidate");
        shown.field("key", &Key(self.key).to_string()).field("level", &self.level).field("is_separated", &is_separated);
        shown.finish_non_exhaustive()
    }
}

/// What becomes of an entry that the sieve lets through.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filtered {
    /// It stays.
    Kept,
    /// Nothing is left of it.
    Gone,
    /// This takes its place, an internal key and its value.
    Replaced(Vec<u8>, Vec<u8>),
}

/// A filter at work on a part of a plan.
pub(super) struct Filtering<'a> {
    filter: CompactionFilter,
    plan: &'a Plan,
    /// In seconds since 1970.
    now: u64,
    /// The newest.
    snapshot: Option<SequenceNumber>,
}

impl<'a> Filtering<'a> {
    /// Of the plan's family, if it has a filter.
    pub(super) fn of(plan: &'a Plan, snapshots: &[SequenceNumber], store: &Store) -> Option<Self> {
        let filter = plan.family.options().compaction_filter.clone()?;
        let now = store.env.clock.unix_seconds();
        Some(Self { filter, plan, now, snapshot: snapshots.last().copied() })
    }

    /// What becomes of the entry; `garbage` takes the record of a value in a blob file that goes or changes.
    pub(super) fn decide(
        &self,
        key: &InternalKey<'_>,
        value: &[u8],
        garbage: &mut super::run::ByFile,
    ) -> Result<Filtered> {
        let stored = match key.kind {
            ValueKind::Value => Stored::Here(value),
            ValueKind::BlobIndex => Stored::In(&self.plan.version, value),
            _ => return Ok(Filtered::Kept),
        };
        // One that has forgotten when it was written is seen by all (CF1).
        if self.snapshot.is_some_and(|newest| key.sequence <= newest) {
            return Ok(Filtered::Kept);
        }
        let (level, read) = (self.plan.output_level, OnceCell::new());
        let candidate = FilterCandidate { key: key.user_key, level, now: self.now, stored, read };
        let decided = catch_unwind(AssertUnwindSafe(|| (self.filter.decide)(&candidate)));
        let filtered = match decided.unwrap_or(FilterDecision::Keep) {
            FilterDecision::Keep => return Ok(Filtered::Kept),
            FilterDecision::Remove if self.snapshot.is_none() && !self.plan.may_hold_older(key.user_key) => {
                Filtered::Gone
            }
            FilterDecision::Remove => Filtered::Replaced(with_kind(key, ValueKind::Deletion), Vec::new()),
            FilterDecision::Change(new) => {
                let old = candidate.value().unwrap_or_default();
                // What is the same stays where it is: written anew, it would make garbage, for which it would be asked about again, without an end.
                if old.len() < new.len() || old == new {
                    return Ok(Filtered::Kept);
                }
                Filtered::Replaced(with_kind(key, ValueKind::Value), new)
            }
        };
        if key.kind == ValueKind::BlobIndex {
            let index = entry::pointer(key.user_key, value)?;
            garbage.entry(index.file).or_default().add(1, accounted_bytes(&index, key.user_key.len()));
        }
        Ok(filtered)
    }
}

fn with_kind(key: &InternalKey<'_>, kind: ValueKind) -> Vec<u8> {
    let mut internal = Vec::with_capacity(key.user_key.len() + internal_key::TAG_BYTES);
    internal_key::append(&mut internal, key.user_key, key.sequence, kind);
    internal
}

#[cfg(test)]
mod tests;
