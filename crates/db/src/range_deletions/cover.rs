//! What hides a key of a view.
//!
//! Cost: a search in the range deletions of each memtable that has any, of each such table of level 0, and of one table of each deeper level that has
//! one with any.

use std::sync::Arc;

use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::order::Order;

use super::Fragments;
use super::fragments::Span;
use crate::family::{Generation, View};
use crate::iterate::Bounds;
use crate::version::{TableFile, Version};

impl View {
    /// Whether anything of it may be hidden.
    pub(crate) fn has_range_deletions(&self) -> bool {
        let has_some = |generation: &Arc<Generation>| !generation.memtable.range_deletions().is_empty();
        self.version.has_range_deletions() || self.generations().any(has_some)
    }

    /// The newest range deletion that hides `user_key` from who sees what was written up to `up_to`; 0: none.
    #[inline]
    pub(crate) fn cover(&self, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        let mut newest = SequenceNumber::default();
        for generation in self.generations() {
            newest = newest.max(generation.memtable.range_deletions().newest_at(user_key, up_to));
        }
        if self.version.has_range_deletions() {
            newest = newest.max(self.version.cover(user_key, up_to));
        }
        newest
    }
}

impl Version {
    /// The same, of those in tables.
    #[cold]
    pub(crate) fn cover(&self, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        let mut newest = SequenceNumber::default();
        self.each_span(user_key, |span| newest = newest.max(span.newest(up_to)));
        newest
    }

    /// What each table of level 0, and each deeper level, covers `user_key` with.
    fn each_span(&self, user_key: &[u8], mut each: impl FnMut(Span<'_>)) {
        let order = self.order();
        for table in self.level(0) {
            if !table.range_deletions().is_empty() {
                each(table.range_deletions().at(user_key));
            }
        }
        for (level, tables) in self.levels().skip(1) {
            if self.has_range_deletions_in(level) {
                let mut index = tables.partition_point(|table| table.ends_before(user_key));
                let after = |index: usize| tables.get(index).map(|table| table.smallest());
                if after(index).is_none_or(|smallest| order.is_before(user_key, smallest)) {
                    each(Span { sequences: &[], from: Some(user_key), to: after(index) });
                }
                // RocksDB may have a key's entries in neighbours, and pieces of one range over them in each.
                while let Some(table) =
                    tables.get(index).filter(|table| order.compare(table.smallest(), user_key).is_le())
                {
                    let span = table.range_deletions().at(user_key);
                    let next = after(index + 1).filter(|next| order.is_before(user_key, next));
                    let (from, to) =
                        (last_of(order, span.from, Some(table.smallest())), first_of(order, span.to, next));
                    each(Span { from, to, ..span });
                    index += 1;
                }
            }
        }
    }
}

/// What hides keys of a view from who sees what was written up to some number.
#[derive(Debug)]
pub(crate) struct Covers {
    memory: Vec<Arc<Fragments>>,
    version: Arc<Version>,
    up_to: SequenceNumber,
}

/// An answer, and for which keys it holds.
#[derive(Debug, Default)]
struct Known {
    is_known: bool,
    /// The newest that hides them; 0: none.
    sequence: SequenceNumber,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// How many more keys go by before somebody is told of the bounds again ([`Hider::bounds_to_skip`]), and how many the next time.
    wait: (u32, u32),
}

impl Known {
    #[inline]
    fn holds_for(&self, order: Order, user_key: &[u8]) -> bool {
        self.is_known
            && self.from.as_deref().is_none_or(|from| order.compare(from, user_key).is_le())
            && self.to.as_deref().is_none_or(|to| order.is_before(user_key, to))
    }
}

impl Covers {
    /// Of `view`; `None` if nothing hides anything.
    pub(crate) fn of(view: &View, up_to: SequenceNumber) -> Option<Self> {
        let memory: Vec<_> =
            view.generations().flat_map(|generation| generation.memtable.range_deletions().seen_by(up_to)).collect();
        if memory.is_empty() && !view.version.has_range_deletions() {
            return None;
        }
        Some(Self { memory, version: view.version.clone(), up_to })
    }

    /// Of the tables of a version alone.
    pub(crate) fn of_version(version: Arc<Version>, up_to: SequenceNumber) -> Self {
        Self { memory: Vec::new(), version, up_to }
    }

    /// Whether they hide all that `table` has.
    pub(crate) fn hide(&self, table: &TableFile) -> bool {
        let (mut known, mut user_key) = (Known::default(), table.smallest().to_vec());
        loop {
            if self.at(&user_key, &mut known) <= table.meta.largest_sequence {
                return false;
            }
            match &known.to {
                Some(to) if !table.ends_before(to) => user_key.clone_from(to),
                _ => return true,
            }
        }
    }

    /// The newest that hides `user_key`; 0: none. Asks only where the answer before does not hold.
    #[inline]
    fn at(&self, user_key: &[u8], known: &mut Known) -> SequenceNumber {
        if !known.holds_for(self.version.order(), user_key) {
            self.ask(user_key, known);
        }
        known.sequence
    }

    fn ask(&self, user_key: &[u8], known: &mut Known) {
        let order = self.version.order();
        let (mut from, mut to): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        let mut sequence = SequenceNumber::default();
        for fragments in &self.memory {
            let span = fragments.at(user_key);
            sequence = sequence.max(span.newest(self.up_to));
            from = last_of(order, from, span.from);
            to = first_of(order, to, span.to);
        }
        (known.is_known, known.wait) = (true, (0, 1));
        known.from = from.map(<[u8]>::to_vec);
        known.to = to.map(<[u8]>::to_vec);
        self.version.each_span(user_key, |span| {
            sequence = sequence.max(span.newest(self.up_to));
            if let Some(from) = span.from
                && known.from.as_deref().is_none_or(|known| order.is_before(known, from))
            {
                known.from = Some(from.to_vec());
            }
            if let Some(to) = span.to
                && known.to.as_deref().is_none_or(|known| order.is_before(to, known))
            {
                known.to = Some(to.to_vec());
            }
        });
        known.sequence = sequence;
    }
}

/// Says what is hidden to who goes from key to key.
#[derive(Debug)]
pub(crate) struct Hider {
    covers: Covers,
    known: Known,
}

impl Hider {
    pub(crate) fn new(covers: Covers) -> Self {
        Self { covers, known: Known::default() }
    }

    /// Whether an entry of `user_key` that was written at `sequence` is hidden. Cost: a comparison or two where the answer for the key is known from the
    /// one before, else what the module's head says.
    #[inline]
    pub(crate) fn hides(&mut self, user_key: &[u8], sequence: SequenceNumber) -> bool {
        sequence < self.covers.at(user_key, &mut self.known)
    }

    /// What hid the last key, from which key on it hides all that is older, and before which; now and then, where nothing could be skipped.
    pub(crate) fn bounds_to_skip(&mut self) -> Option<(SequenceNumber, Bounds<'_>)> {
        if self.known.wait.0 > 0 {
            self.known.wait.0 -= 1;
            return None;
        }
        let bounds = (self.known.from.as_deref(), self.known.to.as_deref());
        self.known.is_known.then_some((self.known.sequence, bounds))
    }

    /// Whether anything was skipped.
    pub(crate) fn note_skipped(&mut self, is_moved: bool) {
        self.known.wait = if is_moved { (0, 1) } else { (self.known.wait.1, (2 * self.known.wait.1).min(64)) };
    }
}

/// Of two ends, of which `None` is the last.
fn first_of<'a>(order: Order, a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(order.earlier(a, b)),
        (a, b) => a.or(b),
    }
}

/// Of two beginnings, of which `None` is the first.
fn last_of<'a>(order: Order, a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(order.later(a, b)),
        (a, b) => a.or(b),
    }
}
