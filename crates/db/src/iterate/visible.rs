//! What the user holds: a position among the keys of a column family, and their values when they are asked for.
//!
//! - I1: what is shown is the entry of `ahead`, if it shows one, else that of the walker.
//! - I2: no value is read before the first call of [`DbIterator::value`] after a seek.
//! - I3: in a process that was forked since, it does nothing that another thread may have been at: the aide that reads for it is not there. So it
//!   is asked where it is before the walker moves and before a blob is read; not for entries that lie ready.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use esker_env::os::Origin;
use esker_format::rocksdb::internal_key::{SequenceNumber, ValueKind};

use super::ahead::Ahead;
use super::aide::Aide;
use super::pace::Pace;
use super::stretch::Length;
use super::walk::Walker;
use super::{InternalIterator, LevelIterator, MergingIterator};
use crate::family::{Family, View};
use crate::operands::Reader;
use crate::options::{LEVEL_COUNT, ReadOptions};
use crate::pinned::PinnedSlice;
use crate::range_deletions::{Covers, Hider};
use crate::read::BlobReader;
use crate::snapshot::Snapshot;
use crate::store::{self, Store};
use crate::version::TableFile;
use crate::{Error, ErrorKind, Result};

/// See [`DbIterator::stretch_bytes_max`].
const TOGETHER_BYTES_MAX: u64 = 128 << 10;

/// A position among the keys of a column family, as they were when the iterator was made. Not on an entry until a seek.
///
/// Holds the tables and memtables it reads: drop it when done, or they stay in memory and on the disk.
///
/// Cost: a step reads no value. [`value`](Self::value) reads a separated value; once it has been called, the steps
/// after it read the values that follow, many at once ([`ReadOptions::look_ahead_bytes`]), for as long as they are asked for.
pub struct DbIterator {
    walker: Walker,
    ahead: Ahead,
    pace: Pace,
    /// Whether the value that the walker shows is separated and was asked for.
    asked: Cell<bool>,
    /// Which way `ahead` goes.
    forward: bool,
    /// Whether a seek said where to stand: not valid, it is then beyond an end.
    is_placed: bool,
    view: Arc<View>,
    blobs: BlobReader,
    aide: Arc<Aide>,
    /// Keeps compaction from dropping what this iterator could only read through a later view; held for the snapshot's sake.
    snapshot: Option<Snapshot>,
    reach: Reach,
    look_ahead_bytes: u64,
    /// Where a later view comes from.
    store: Weak<Store>,
    family: Arc<Family>,
    /// See I3.
    origin: Origin,
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("DbIterator");
        shown
            .field("valid", &self.valid())
            .field("key", &self.key())
            .field("sequence", &self.walker.sequence())
            .finish_non_exhaustive()
    }
}

/// The keys that an iterator may show, and how it reads them.
#[derive(Clone)]
struct Reach {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    fill_cache: bool,
}

impl Reach {
    fn of(options: &ReadOptions) -> Self {
        let ReadOptions { lower_bound, upper_bound, fill_cache, .. } = options;
        Self { lower: lower_bound.clone(), upper: upper_bound.clone(), fill_cache: *fill_cache }
    }

    /// Whether `table` may have a key of it: neither does it lie beyond, nor does its filter deny the one prefix that all keys have.
    fn meets(&self, table: &TableFile) -> bool {
        if !table.overlaps(self.lower.as_deref(), self.upper.as_deref()) {
            return false;
        }
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) => table.table.may_hold_range(lower, upper),
            _ => true,
        }
    }

    /// Everything in `view` that it may show as of `sequence`, newest and oldest, in the order of internal keys; and what of that is hidden.
    fn entries_of(&self, view: &View, sequence: SequenceNumber) -> (MergingIterator, Option<Hider>) {
        let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
        for generation in view.generations() {
            children.push(Box::new(generation.memtable.iter()));
        }
        let covers = Covers::of(view, sequence);
        for table in view.version.level(0).iter().filter(|table| self.meets(table)) {
            children.push(match &covers {
                None => Box::new(table.table.iter(self.fill_cache)),
                // It knows what may be skipped.
                Some(_) => Box::new(LevelIterator::new(view.version.order(), vec![table.clone()], self.fill_cache)),
            });
        }
        for level in 1..LEVEL_COUNT {
            let mut tables = view.version.within(level, self.lower.as_deref(), self.upper.as_deref()).iter();
            if tables.any(|table| self.meets(table)) {
                children.push(Box::new(LevelIterator::of_version(view.version.clone(), level, self.fill_cache)));
            }
        }
        (MergingIterator::new(view.version.order(), children), covers.map(Hider::new))
    }
}

impl DbIterator {
    pub(crate) fn new(
        store: Weak<Store>,
        family: Arc<Family>,
        view: Arc<View>,
        sequence: SequenceNumber,
        options: &ReadOptions,
        blobs: BlobReader,
        aide: Arc<Aide>,
    ) -> Self {
        let reach = Reach::of(options);
        Self {
            walker: Walker::new(reach.entries_of(&view, sequence), sequence, options),
            reach,
            ahead: Ahead::default(),
            pace: Pace::default(),
            asked: Cell::new(false),
            forward: true,
            is_placed: false,
            view,
            look_ahead_bytes: options.look_ahead_bytes,
            blobs,
            aide,
            snapshot: options.snapshot.clone(),
            store,
            family,
            origin: Origin::here(),
        }
    }

    /// Whether it stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.ahead.shows() || self.walker.valid()
    }

    /// The key it stands on; empty unless valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.ahead.shows() {
            self.ahead.key()
        } else if self.walker.valid() {
            self.walker.key()
        } else {
            &[]
        }
    }

    /// The value it stands on, sharing memory with the block, memtable or buffer that holds it (the buffer of a look
    /// ahead is up to 256 KiB); a separated value that was not read ahead is read now.
    ///
    /// # Errors
    /// `InvalidArgument` unless valid; `Corruption` or `Io` from reading a blob. Steps go on after it. `Closed` in a process that was forked since
    /// it was made.
    pub fn value(&self) -> Result<PinnedSlice> {
        if self.ahead.shows() {
            self.check_here()?;
            return self.ahead.value(&self.reader(), &self.pace);
        }
        self.check_valid()?;
        let (stored, kind) = (self.walker.stored(), self.walker.kind());
        if kind == ValueKind::Value {
            return Ok(stored);
        }
        self.check_here()?;
        self.asked.set(kind == ValueKind::BlobIndex);
        let value = self.reader().value(self.walker.key(), kind, stored);
        value.map_err(|error| self.walker.located_value(error))
    }

    /// The length of the value it stands on, in bytes. Of a separated value that is packed it reads the first bytes: what it unpacks to
    /// stands there. See [`Db::value_len_cf`](crate::Db::value_len_cf).
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn value_len(&self) -> Result<u64> {
        self.check_here()?;
        if self.ahead.shows() {
            return self.ahead.value_len(&self.reader());
        }
        self.check_valid()?;
        let len = self.reader().value_len(self.walker.key(), self.walker.kind(), self.walker.stored_bytes());
        len.map_err(|error| self.walker.located_value(error))
    }

    /// Of what it sees.
    fn reader(&self) -> Reader<'_> {
        let (family, view, blobs) = (&*self.family, &*self.view, &self.blobs);
        Reader { family, view, blobs, sequence: self.walker.sequence(), fill_cache: false }
    }

    #[inline]
    fn check_here(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(store::elsewhere()) }
    }

    /// As [`check_here`](Self::check_here), of who would stand elsewhere afterwards: it then stands nowhere.
    #[inline]
    fn check_moves(&mut self) -> Result<()> {
        let is_here = self.check_here();
        if is_here.is_err() {
            self.ahead.clear();
            self.walker.leave();
        }
        is_here
    }

    fn check_valid(&self) -> Result<()> {
        if self.walker.valid() {
            return Ok(());
        }
        Err(Error::invalid_argument("the iterator stands on no entry; seek first, and check valid()"))
    }

    /// To the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading a table; the iterator is then not valid, and may be used on. `Closed` in a process that was forked since
    /// it was made.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.begin()?;
        self.walker.seek_to_first()
    }

    /// To the last key within the bounds.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.begin()?;
        self.walker.seek_to_last()
    }

    /// To the first key at or after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin()?;
        self.walker.seek(key.as_ref())
    }

    /// To the last key at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.begin()?;
        self.walker.seek_for_prev(key.as_ref())
    }

    /// To the next key; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "a cursor that borrows out of itself cannot be an Iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.step(true)
    }

    /// To the previous key; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.step(false)
    }

    /// Shows the store as it is now, from the next seek on; until then it stands on no entry. Cheaper than a new
    /// iterator, and next to nothing while no memtable was flushed: for whoever follows what is written.
    ///
    /// # Errors
    /// - `InvalidArgument`: it reads a snapshot, which does not change.
    /// - `Closed`.
    pub fn refresh(&mut self) -> Result<()> {
        if self.snapshot.is_some() {
            return Err(Error::invalid_argument("the iterator reads a snapshot, which does not change"));
        }
        let closed = || Error::new(ErrorKind::Closed, "the store was closed; open it again");
        let store = self.store.upgrade().ok_or_else(closed)?;
        store.check_open()?;
        self.begin()?;
        let (view, sequence) = self.family.view_at(|| Ok(store.visible()))?;
        // Ranges that were deleted since hide what came before them.
        let is_same = Arc::ptr_eq(&view, &self.view) && !view.has_range_deletions();
        let entries = (!is_same).then(|| self.reach.entries_of(&view, sequence));
        self.walker.renew(entries, sequence);
        self.is_placed = false;
        self.view = view;
        Ok(())
    }

    /// Keys and values from here on, forward, as a standard iterator: from the first key if no seek came before, none if it stands
    /// beyond either end.
    pub fn entries(self) -> Entries {
        Entries { iterator: self, state: Progress::Before }
    }

    /// A seek follows.
    fn begin(&mut self) -> Result<()> {
        self.check_moves()?;
        self.end_walk();
        self.ahead.clear();
        self.is_placed = true;
        Ok(())
    }

    fn end_walk(&mut self) {
        let (_, asked) = self.ahead.asked();
        self.pace.count(asked + usize::from(self.asked.take()));
        self.pace.end(&self.family.walks);
    }

    #[inline]
    fn step(&mut self, forward: bool) -> Result<()> {
        if self.ahead.shows() {
            return self.step_ahead(forward);
        }
        self.check_moves()?;
        if self.asked.take() {
            self.pace.count(1);
            if self.look_ahead_bytes > 0 && !self.stands_in_memory() {
                return self.look_ahead(forward, 0, 0);
            }
        }
        self.walker.step(forward)
    }

    /// Passes the entry that `ahead` shows.
    fn step_ahead(&mut self, forward: bool) -> Result<()> {
        if self.forward != forward {
            self.check_moves()?;
            let key = self.ahead.key().to_vec();
            let (_, asked) = self.ahead.asked();
            self.pace.count(asked);
            self.ahead.clear();
            return if forward { self.walker.seek_after(&key) } else { self.walker.seek_before(&key) };
        }
        let was_asked = self.ahead.was_asked();
        if self.ahead.step() {
            return Ok(());
        }
        self.check_moves()?;
        let (read, asked) = self.ahead.asked();
        self.pace.count(asked);
        if self.ahead.turn() {
            if was_asked {
                self.read_beside(read, asked);
            }
            return Ok(());
        }
        if !self.walker.valid() {
            return self.ahead.end();
        }
        if was_asked && !self.stands_in_memory() {
            return self.look_ahead(forward, read, asked);
        }
        self.ahead.clear();
        self.walker.step(forward)
    }

    /// Whether the separated value that the walker stands on lies in memory.
    fn stands_in_memory(&self) -> bool {
        self.blobs.is_in_memory(&self.view, self.walker.stored_bytes())
    }

    /// Passes the next entries, after `asked` of the `read` values of the last ones were asked for.
    fn look_ahead(&mut self, forward: bool, read: usize, asked: usize) -> Result<()> {
        self.forward = forward;
        let values = self.pace.next(forward, read, asked, &self.family.walks);
        let length = Length { forward, values, bytes_max: self.stretch_bytes_max() };
        self.ahead.fill(&mut self.walker, &self.view, length);
        if !self.ahead.shows() {
            return self.ahead.end();
        }
        self.read_beside(0, 0);
        Ok(())
    }

    /// Has somebody else read and unpack what comes after the entries that were just passed, if the walk is sure to go there; of the values before
    /// them, `read`, so many were asked for.
    fn read_beside(&mut self, read: usize, asked: usize) {
        if !self.walker.valid() || !self.aide.is_there() || self.stands_in_memory() {
            return;
        }
        let (ahead, _) = self.ahead.asked();
        if let Some(values) = self.pace.beyond(ahead, read, asked) {
            let length = Length { forward: self.forward, values, bytes_max: self.stretch_bytes_max() };
            self.ahead.fill_coming(&mut self.walker, &self.view, length);
            self.ahead.hand_over(&self.aide, &self.blobs, &self.family, &self.pace);
        }
    }

    /// Of keys and values that are read at once: half of all where as much again is read beside them, and less where the system reads on by itself,
    /// so that what was unpacked beside lies in the processor's caches still.
    fn stretch_bytes_max(&self) -> u64 {
        match self.aide.is_there() {
            false => self.look_ahead_bytes,
            true if self.ahead.lies_together() => self.look_ahead_bytes.div_ceil(2).min(TOGETHER_BYTES_MAX),
            true => self.look_ahead_bytes.div_ceil(2),
        }
    }
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        self.end_walk();
    }
}

#[cfg(test)]
impl DbIterator {
    /// What it has passed ahead.
    pub(super) fn ahead(&self) -> &Ahead {
        &self.ahead
    }
}

/// Keys and values of a [`DbIterator`], forward; ends after the first error.
#[derive(Debug)]
pub struct Entries {
    iterator: DbIterator,
    state: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Before,
    Within,
    Over,
}

impl Entries {
    fn advance(&mut self) -> Result<Option<(Vec<u8>, PinnedSlice)>> {
        match self.state {
            Progress::Before if self.iterator.is_placed => {}
            Progress::Before => self.iterator.seek_to_first()?,
            Progress::Within => self.iterator.next()?,
            Progress::Over => return Ok(None),
        }
        self.state = Progress::Within;
        if !self.iterator.valid() {
            return Ok(None);
        }
        Ok(Some((self.iterator.key().to_vec(), self.iterator.value()?)))
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, PinnedSlice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.advance().transpose();
        if !matches!(entry, Some(Ok(_))) {
            self.state = Progress::Over;
        }
        entry
    }
}
