//! What the user sees: of each key the newest entry at or before the reader's sequence number, unless it is a deletion.
//!
//! - I1: going forward, `inner` stands on the entry that is shown.
//! - I2: going backward, `inner` stands before all entries of the key that is shown; key and value are saved.

use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};

use super::{InternalIterator, LevelIterator, MergingIterator};
use crate::family::View;
use crate::options::ReadOptions;
use crate::pinned::PinnedSlice;
use crate::read::BlobReader;
use crate::snapshot::Snapshot;
use crate::{Error, ErrorKind, Result};

/// Hidden entries of one key that are passed one by one before a seek skips the rest.
const STEPS_BEFORE_SEEK: usize = 8;

/// A position among the keys of a column family, as they were when the iterator was made. Not on an entry until a seek.
///
/// Holds the tables and memtables it reads: drop it when done, or they stay in memory and on the disk.
/// Cost: a step reads no value; [`value`](Self::value) reads a separated value with at most one device read.
pub struct DbIterator {
    inner: MergingIterator,
    view: Arc<View>,
    blobs: BlobReader,
    /// Keeps compaction from dropping what this iterator could only read through a later view; held for the snapshot's sake.
    _snapshot: Option<Snapshot>,
    sequence: SequenceNumber,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    forward: bool,
    valid: bool,
    key: Vec<u8>,
    kind: ValueKind,
    saved_value: PinnedSlice,
    target: Vec<u8>,
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DbIterator");
        shown
            .field("valid", &self.valid)
            .field("key", &self.key)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl DbIterator {
    pub(crate) fn new(view: Arc<View>, sequence: SequenceNumber, options: &ReadOptions, blobs: BlobReader) -> Self {
        let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
        for generation in view.generations() {
            children.push(Box::new(generation.memtable.iter()));
        }
        for table in view.version.level(0) {
            children.push(Box::new(table.table.iter(options.fill_cache)));
        }
        for (_, tables) in view.version.levels().skip(1).filter(|(_, tables)| !tables.is_empty()) {
            children.push(Box::new(LevelIterator::new(tables.to_vec(), options.fill_cache)));
        }
        Self {
            inner: MergingIterator::new(children),
            view,
            blobs,
            _snapshot: options.snapshot.clone(),
            sequence,
            lower: options.lower_bound.clone(),
            upper: options.upper_bound.clone(),
            forward: true,
            valid: false,
            key: Vec::new(),
            kind: ValueKind::Value,
            saved_value: PinnedSlice::default(),
            target: Vec::new(),
        }
    }

    /// Whether it stands on an entry.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key it stands on; empty unless valid.
    pub fn key(&self) -> &[u8] {
        if self.valid { &self.key } else { &[] }
    }

    /// The value it stands on, sharing memory with the block or memtable that holds it; a separated value is read now.
    ///
    /// # Errors
    /// `InvalidArgument` unless valid; `Corruption` or `Io` from reading a blob.
    pub fn value(&self) -> Result<PinnedSlice> {
        if !self.valid {
            return Err(Error::invalid_argument("the iterator stands on no entry; seek first, and check valid()"));
        }
        let stored = if self.forward { self.inner.pinned_value() } else { self.saved_value.clone() };
        match self.kind {
            ValueKind::BlobIndex => self.blobs.read(&self.view.version, &self.key, &stored),
            _ => Ok(stored),
        }
    }

    /// To the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading a table; the iterator is then not valid, and may be used on.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        match self.lower.take() {
            Some(lower) => {
                let result = self.seek_inner(&lower);
                self.lower = Some(lower);
                result?;
            }
            None => self.inner.seek_to_first()?,
        }
        self.forward = true;
        self.show_next(false)
    }

    /// To the last key within the bounds.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        self.target.clear();
        match &self.upper {
            Some(upper) => {
                // The smallest internal key that the bound could have: what is before it is below the bound.
                internal_key::append_lookup(&mut self.target, upper, SequenceNumber::MAX);
                self.inner.seek_for_prev(&self.target)?;
            }
            None => self.inner.seek_to_last()?,
        }
        self.forward = false;
        self.show_previous()
    }

    /// To the first key at or after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if self.lower.as_deref().is_some_and(|lower| key < lower) {
            return self.seek_to_first();
        }
        self.valid = false;
        self.seek_inner(key)?;
        self.forward = true;
        self.show_next(false)
    }

    /// To the last key at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return self.seek_to_last();
        }
        self.valid = false;
        self.target.clear();
        // The largest internal key that the key could have.
        internal_key::append(&mut self.target, key, SequenceNumber::new(0), ValueKind::Deletion);
        self.inner.seek_for_prev(&self.target)?;
        self.forward = false;
        self.show_previous()
    }

    /// To the next key; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "a cursor that borrows out of itself cannot be an Iterator")]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        if self.forward {
            self.inner.next()?;
        } else {
            // I2: `inner` stands before the entries of `key`, or nowhere if `key` is the very first.
            self.forward = true;
            self.saved_value = PinnedSlice::default();
            if self.inner.valid() {
                self.inner.next()?;
            } else {
                self.inner.seek_to_first()?;
            }
        }
        self.show_next(true)
    }

    /// To the previous key; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        if self.forward {
            self.forward = false;
            // To before the first entry of `key`, seen or not.
            while self.inner.valid() && internal_key::user_key(self.inner.key()) >= self.key.as_slice() {
                self.inner.prev()?;
            }
        }
        self.show_previous()
    }

    /// Keys and values from here on, forward, as a standard iterator.
    pub fn entries(self) -> Entries {
        Entries { iterator: self, started: false }
    }

    fn seek_inner(&mut self, key: &[u8]) -> Result<()> {
        self.target.clear();
        internal_key::append_lookup(&mut self.target, key, self.sequence);
        self.inner.seek(&self.target)
    }

    /// Shows the first entry from `inner` on that the reader sees; with `skipping`, past those of `key`.
    fn show_next(&mut self, mut skipping: bool) -> Result<()> {
        let mut hidden = 0;
        while self.inner.valid() {
            let entry = decode(self.inner.key())?;
            if self.upper.as_deref().is_some_and(|upper| entry.user_key >= upper) {
                return Ok(());
            }
            let is_same = skipping && entry.user_key == self.key.as_slice();
            if !is_same && entry.sequence <= self.sequence {
                self.key.clear();
                self.key.extend_from_slice(entry.user_key);
                if is_shown(entry.kind)? {
                    self.kind = entry.kind;
                    self.valid = true;
                    return Ok(());
                }
                // Deleted: the older entries of the key are hidden as well.
                skipping = true;
                hidden = 0;
            } else {
                hidden += 1;
            }
            if hidden <= STEPS_BEFORE_SEEK {
                self.inner.next()?;
                continue;
            }
            hidden = 0;
            self.target.clear();
            if is_same {
                internal_key::append(&mut self.target, entry.user_key, SequenceNumber::new(0), ValueKind::Deletion);
            } else {
                internal_key::append_lookup(&mut self.target, entry.user_key, self.sequence);
            }
            self.inner.seek(&self.target)?;
            // The very last entry that a key can have would be found again and again.
            if self.inner.valid() && is_same && self.inner.key() == self.target.as_slice() {
                self.inner.next()?;
            }
        }
        Ok(())
    }

    /// Shows the last entry up to `inner` that the reader sees. `inner` stands on the oldest entry of some key.
    fn show_previous(&mut self) -> Result<()> {
        while self.inner.valid() {
            let entry = decode(self.inner.key())?;
            if self.lower.as_deref().is_some_and(|lower| entry.user_key < lower) {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(entry.user_key);
            // Entries of the key come oldest first: the last one that the reader may see is the one it sees.
            let mut seen = None;
            while self.inner.valid() {
                let entry = decode(self.inner.key())?;
                if entry.user_key != self.key.as_slice() {
                    break;
                }
                if entry.sequence <= self.sequence {
                    seen = Some(entry.kind);
                    self.saved_value = self.inner.pinned_value();
                }
                self.inner.prev()?;
            }
            if let Some(kind) = seen
                && is_shown(kind)?
            {
                self.kind = kind;
                self.valid = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

fn decode(key: &[u8]) -> Result<InternalKey<'_>> {
    InternalKey::decode(key).map_err(|error| Error::new(ErrorKind::Corruption, "reading a key").with_source(error))
}

fn is_shown(kind: ValueKind) -> Result<bool> {
    match kind {
        ValueKind::Value | ValueKind::BlobIndex => Ok(true),
        ValueKind::Deletion | ValueKind::SingleDeletion => Ok(false),
        kind => Err(Error::new(ErrorKind::UnsupportedFormat, format!("an entry is of kind {kind:?}"))),
    }
}

/// Keys and values of a [`DbIterator`], forward; ends after the first error.
#[derive(Debug)]
pub struct Entries {
    iterator: DbIterator,
    started: bool,
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, PinnedSlice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = match (self.started, self.iterator.valid()) {
            (false, false) => self.iterator.seek_to_first(),
            (false, true) => Ok(()),
            (true, _) => self.iterator.next(),
        };
        self.started = true;
        if let Err(error) = moved {
            return Some(Err(error));
        }
        if !self.iterator.valid() {
            return None;
        }
        match self.iterator.value() {
            Ok(value) => Some(Ok((self.iterator.key().to_vec(), value))),
            Err(error) => {
                self.iterator.valid = false;
                Some(Err(error))
            }
        }
    }
}
