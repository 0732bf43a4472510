//! A walk over what a transaction sees: the store at its beginning, and on top of that what it wrote.
//!
//! - I1: both sides stand, in the direction of the walk, on their first entry that was not shown yet, or on the one that is shown; the nearer one is
//!   shown, of two with the same key the transaction's own. What it deleted is passed over, on both sides.
//! - I2: who turns round seeks the key that is shown, so that I1 holds the other way.
//!
//! Cost: as a [`DbIterator`], a comparison of keys for each step, and a step through what the transaction wrote.

use esker_format::rocksdb::order::Order;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::own::Own;
use crate::batch::WriteBatch;
use crate::family::ColumnFamily;
use crate::iterate::DbIterator;
use crate::pinned::PinnedSlice;
use crate::{Error, Result};

/// A walk over the keys of a family as a transaction sees them: made by [`Transaction::iter`](super::Transaction::iter).
///
/// It stands on no entry until a seek.
pub struct TransactionIterator<'a> {
    family: ColumnFamily,
    store: DbIterator,
    own: Range<'a>,
    batch: &'a WriteBatch,
    shown: Shown,
    way: Way,
}

impl std::fmt::Debug for TransactionIterator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionIterator").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// Which side has the entry that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    /// The store alone.
    Stored,
    /// The transaction; perhaps the store has the key, too.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// What a transaction wrote to a family.
#[derive(Debug)]
enum Written<'a> {
    ByBytes(&'a BTreeMap<Box<[u8]>, Own>),
    /// In an order of the family's own.
    Sorted(Vec<(&'a [u8], &'a Own)>),
}

impl<'a> Written<'a> {
    fn of(written: Option<&'a BTreeMap<Box<[u8]>, Own>>, order: Order) -> Self {
        match written {
            Some(written) if order.is_bytewise() => Self::ByBytes(written),
            _ => {
                let mut sorted: Vec<_> = written.into_iter().flatten().map(|(key, own)| (&**key, own)).collect();
                sorted.sort_unstable_by(|(a, _), (b, _)| order.compare(a, b));
                Self::Sorted(sorted)
            }
        }
    }

    /// The first from `begin` on, or the last up to `end`.
    fn find(&self, order: Order, way: Way, begin: Bound<&[u8]>, end: Bound<&[u8]>) -> Option<(&'a [u8], &'a Own)> {
        match self {
            Self::ByBytes(written) => {
                // What the map would take for a mistake.
                let is_empty = match (begin, end) {
                    (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                    (Bound::Included(begin), Bound::Included(end)) => begin > end,
                    (Bound::Included(begin) | Bound::Excluded(begin), Bound::Included(end) | Bound::Excluded(end)) => {
                        begin >= end
                    }
                };
                if is_empty {
                    return None;
                }
                let mut range = written.range::<[u8], _>((begin, end));
                let found = if way == Way::Forward { range.next() } else { range.next_back() };
                found.map(|(key, own)| (&**key, own))
            }
            Self::Sorted(sorted) => {
                let before = |bound: &[u8]| sorted.partition_point(|(key, _)| order.is_before(key, bound));
                let up_to = |bound: &[u8]| sorted.partition_point(|(key, _)| !order.is_before(bound, key));
                let from = match begin {
                    Bound::Unbounded => 0,
                    Bound::Included(begin) => before(begin),
                    Bound::Excluded(begin) => up_to(begin),
                };
                let to = match end {
                    Bound::Unbounded => sorted.len(),
                    Bound::Included(end) => up_to(end),
                    Bound::Excluded(end) => before(end),
                };
                let within = sorted.get(from..to).unwrap_or_default();
                if way == Way::Forward { within.first() } else { within.last() }.copied()
            }
        }
    }
}

/// The same within bounds, and where the walk stands in it.
#[derive(Debug)]
struct Range<'a> {
    written: Written<'a>,
    order: Order,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    at: Option<(&'a [u8], &'a Own)>,
}

impl<'a> Range<'a> {
    /// Goes to the first from `begin` on, or the last up to `end`, within the bounds.
    fn seek(&mut self, way: Way, begin: Bound<&[u8]>, end: Bound<&[u8]>) {
        let lower = self.lower.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let upper = self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (begin, end) = (later(self.order, begin, lower), earlier(self.order, end, upper));
        self.at = self.written.find(self.order, way, begin, end);
    }

    fn step(&mut self, way: Way) {
        let Some((key, _)) = self.at else { return };
        match way {
            Way::Forward => self.seek(way, Bound::Excluded(key), Bound::Unbounded),
            Way::Backward => self.seek(way, Bound::Unbounded, Bound::Excluded(key)),
        }
    }
}

/// The one of two beginnings that leaves less; the second is a bound of the walk.
fn later<'b>(order: Order, begin: Bound<&'b [u8]>, lower: Bound<&'b [u8]>) -> Bound<&'b [u8]> {
    match (begin, lower) {
        (Bound::Included(key) | Bound::Excluded(key), Bound::Included(bound)) if !order.is_before(key, bound) => begin,
        (_, Bound::Unbounded) => begin,
        _ => lower,
    }
}

fn earlier<'b>(order: Order, end: Bound<&'b [u8]>, upper: Bound<&'b [u8]>) -> Bound<&'b [u8]> {
    match (end, upper) {
        (Bound::Included(key), Bound::Excluded(bound)) if order.is_before(key, bound) => end,
        (Bound::Excluded(key), Bound::Excluded(bound)) if !order.is_before(bound, key) => end,
        (_, Bound::Unbounded) => end,
        _ => upper,
    }
}

impl<'a> TransactionIterator<'a> {
    pub(super) fn new(
        family: ColumnFamily,
        store: DbIterator,
        written: Option<&'a BTreeMap<Box<[u8]>, Own>>,
        batch: &'a WriteBatch,
        (lower, upper): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Self {
        let order = family.0.order;
        let own = Range { written: Written::of(written, order), order, lower, upper, at: None };
        Self { family, store, own, batch, shown: Shown::Nothing, way: Way::Forward }
    }

    /// Whether it stands on an entry.
    pub fn valid(&self) -> bool {
        self.shown != Shown::Nothing
    }

    /// The key it stands on; empty unless valid.
    pub fn key(&self) -> &[u8] {
        match (self.shown, self.own.at) {
            (Shown::Own, Some((key, _))) => key,
            (Shown::Stored, _) => self.store.key(),
            _ => &[],
        }
    }

    /// The value it stands on.
    ///
    /// # Errors
    /// As [`DbIterator::value`].
    pub fn value(&self) -> Result<PinnedSlice> {
        match (self.shown, self.own.at) {
            (Shown::Own, Some((key, own))) => {
                let is_stored = self.store.valid() && self.store.key() == key;
                let stored = || if is_stored { self.store.value().map(Some) } else { Ok(None) };
                Ok(own.read(self.batch, &self.family.0, key, stored)?.unwrap_or_default())
            }
            (Shown::Stored, _) => self.store.value(),
            _ => Err(Error::invalid_argument("the iterator stands on no entry; seek first")),
        }
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// As [`DbIterator::seek`]; it stands on no entry then.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.begin(Way::Forward, Bound::Unbounded, Bound::Unbounded, DbIterator::seek_to_first)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// As [`DbIterator::seek`]; it stands on no entry then.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.begin(Way::Backward, Bound::Unbounded, Bound::Unbounded, DbIterator::seek_to_last)
    }

    /// Goes to the first entry whose key is not less than `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek`]; it stands on no entry then.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.begin(Way::Forward, Bound::Included(key), Bound::Unbounded, |store| store.seek(key))
    }

    /// Goes to the last entry whose key is not greater than `key`.
    ///
    /// # Errors
    /// As [`DbIterator::seek`]; it stands on no entry then.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.begin(Way::Backward, Bound::Unbounded, Bound::Included(key), |store| store.seek_for_prev(key))
    }

    /// Goes to the next entry; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`DbIterator::next`]; it stands on no entry then.
    #[expect(clippy::should_implement_trait, reason = "a cursor that borrows out of itself cannot be an Iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.step(Way::Forward)
    }

    /// Goes to the entry before; nothing if it is not valid.
    ///
    /// # Errors
    /// As [`DbIterator::prev`]; it stands on no entry then.
    pub fn prev(&mut self) -> Result<()> {
        self.step(Way::Backward)
    }

    fn begin(
        &mut self,
        way: Way,
        begin: Bound<&[u8]>,
        end: Bound<&[u8]>,
        seek: impl FnOnce(&mut DbIterator) -> Result<()>,
    ) -> Result<()> {
        (self.way, self.shown) = (way, Shown::Nothing);
        seek(&mut self.store)?;
        self.own.seek(way, begin, end);
        self.settle()
    }

    fn step(&mut self, way: Way) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        if way != self.way {
            // I2.
            let key = self.key().to_vec();
            match way {
                Way::Forward => self.seek(&key)?,
                Way::Backward => self.seek_for_prev(&key)?,
            }
        }
        let shown = std::mem::replace(&mut self.shown, Shown::Nothing);
        self.pass(shown)?;
        self.settle()
    }

    /// Leaves what is shown, on each side that has its key.
    fn pass(&mut self, shown: Shown) -> Result<()> {
        let is_own = shown == Shown::Own;
        let has_both = is_own && self.store.valid() && self.own.at.is_some_and(|(key, _)| key == self.store.key());
        if is_own {
            self.own.step(self.way);
        }
        if !is_own || has_both {
            match self.way {
                Way::Forward => self.store.next()?,
                Way::Backward => self.store.prev()?,
            }
        }
        Ok(())
    }

    /// Shows the nearer one (I1).
    fn settle(&mut self) -> Result<()> {
        loop {
            let Some((key, own)) = self.own.at else {
                self.shown = if self.store.valid() { Shown::Stored } else { Shown::Nothing };
                return Ok(());
            };
            if self.store.valid() {
                let order = self.own.order.compare(self.store.key(), key);
                let order = if self.way == Way::Forward { order } else { order.reverse() };
                if order == Ordering::Less {
                    self.shown = Shown::Stored;
                    return Ok(());
                }
            }
            if own.is_there() {
                self.shown = Shown::Own;
                return Ok(());
            }
            self.pass(Shown::Own)?;
        }
    }
}
