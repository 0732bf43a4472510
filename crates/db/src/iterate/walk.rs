//! Walks from one visible key to the next: of each key the newest entry at or before the reader's sequence number,
//! unless it is a deletion, or a range deletion hides it.
//!
//! - W1: going forward, `inner` stands on the entry that is shown.
//! - W2: going backward, `inner` stands before all entries of the key that is shown, farther where what lies between is hidden; key and value are saved.
//! - W3: not valid after an error; a seek begins anew.
//! - W4: while the direction stays the same, `inner` stands at `target` or beyond. So each seek that skips entries begins beyond the one before,
//!   and a walk ends even where a damaged table has its keys in another order.

use esker_format::rocksdb::internal_key::{self, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

use super::{InternalIterator, MergingIterator};
use crate::entry;
use crate::options::ReadOptions;
use crate::pinned::PinnedSlice;
use crate::range_deletions::Hider;
use crate::{Error, Result};

/// Hidden entries of one key that are passed one by one before a seek skips the rest.
const STEPS_BEFORE_SEEK: usize = 8;

/// See the module's head.
pub(super) struct Walker {
    inner: MergingIterator,
    order: Order,
    /// What range deletions hide, if there are any.
    hider: Option<Hider>,
    sequence: SequenceNumber,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    forward: bool,
    valid: bool,
    key: Vec<u8>,
    kind: ValueKind,
    saved_value: PinnedSlice,
    /// What `inner` was led to last; empty if that was an end of everything.
    target: Vec<u8>,
}

impl Walker {
    pub(super) fn new(
        (inner, hider): (MergingIterator, Option<Hider>),
        sequence: SequenceNumber,
        options: &ReadOptions,
    ) -> Self {
        Self {
            order: inner.order(),
            inner,
            hider,
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

    /// Walks over `inner` as of `sequence` from now on; stands nowhere.
    pub(super) fn renew(&mut self, inner: Option<(MergingIterator, Option<Hider>)>, sequence: SequenceNumber) {
        if let Some(inner) = inner {
            (self.inner, self.hider) = inner;
        }
        self.sequence = sequence;
        self.valid = false;
        self.saved_value = PinnedSlice::default();
    }

    /// Stands nowhere from now on.
    pub(super) fn leave(&mut self) {
        self.valid = false;
    }

    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.valid
    }

    pub(super) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The key that is shown; an old one unless valid.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// How the entry that is shown was written: a value, a pointer into a blob file, or an operand, with older entries of the key to be merged with.
    #[inline]
    pub(super) fn kind(&self) -> ValueKind {
        self.kind
    }

    /// What the table or memtable has for the key that is shown.
    #[inline]
    pub(super) fn stored(&self) -> PinnedSlice {
        if self.forward { self.inner.pinned_value() } else { self.saved_value.clone() }
    }

    /// The same, not pinned.
    #[inline]
    pub(super) fn stored_bytes(&self) -> &[u8] {
        if self.forward { self.inner.value() } else { &self.saved_value }
    }

    pub(super) fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        match self.lower.take() {
            Some(lower) => {
                let result = self.seek_inner(&lower);
                self.lower = Some(lower);
                result?;
            }
            None => {
                self.target.clear();
                self.inner.seek_to_first()?;
            }
        }
        self.forward = true;
        self.show_next(false)
    }

    pub(super) fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        self.forward = false;
        match self.upper.take() {
            Some(upper) => {
                let result = self.stand_before(&upper);
                self.upper = Some(upper);
                result?;
            }
            None => {
                self.target.clear();
                self.inner.seek_to_last()?;
            }
        }
        self.show_previous()
    }

    pub(super) fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.lower.as_deref().is_some_and(|lower| self.order.is_before(key, lower)) {
            return self.seek_to_first();
        }
        self.valid = false;
        self.seek_inner(key)?;
        self.forward = true;
        self.show_next(false)
    }

    pub(super) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.upper.as_deref().is_some_and(|upper| !self.order.is_before(key, upper)) {
            return self.seek_to_last();
        }
        self.valid = false;
        self.last_of(key);
        self.inner.seek_for_prev(&self.target)?;
        self.forward = false;
        self.show_previous()
    }

    /// To the key after `key`, which is or was shown.
    pub(super) fn seek_after(&mut self, key: &[u8]) -> Result<()> {
        self.valid = false;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.last_of(key);
        self.inner.seek(&self.target)?;
        self.forward = true;
        self.show_next(true)
    }

    /// To the key before `key`.
    pub(super) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.valid = false;
        self.forward = false;
        self.stand_before(key)?;
        self.show_previous()
    }

    /// [`next`](Self::next) or [`prev`](Self::prev).
    #[inline]
    pub(super) fn step(&mut self, forward: bool) -> Result<()> {
        if forward { self.next() } else { self.prev() }
    }

    /// To the next key; nothing if it is not valid.
    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        self.valid = false;
        if self.forward {
            self.inner.next()?;
        } else if self.hider.is_some() {
            // What was skipped on the way back lies between `inner` and `key`.
            let key = std::mem::take(&mut self.key);
            return self.seek_after(&key);
        } else {
            // W2: `inner` stands before the entries of `key`, or nowhere if `key` is the very first.
            self.forward = true;
            self.target.clear();
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
    fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if !self.forward {
            self.valid = false;
            return self.show_previous();
        }
        let key = std::mem::take(&mut self.key);
        self.seek_before(&key)
    }

    fn seek_inner(&mut self, key: &[u8]) -> Result<()> {
        self.target.clear();
        internal_key::append_lookup(&mut self.target, key, self.sequence);
        self.inner.seek(&self.target)
    }

    /// `inner` to the last entry before all entries of `key`.
    fn stand_before(&mut self, key: &[u8]) -> Result<()> {
        self.target.clear();
        // The smallest internal key that it could have.
        internal_key::append_lookup(&mut self.target, key, SequenceNumber::MAX);
        self.inner.seek_for_prev(&self.target)?;
        if self.inner.valid() && self.inner.key() == self.target.as_slice() {
            self.inner.prev()?;
        }
        Ok(())
    }

    /// `target` becomes the largest internal key that `key` could have.
    fn last_of(&mut self, key: &[u8]) {
        self.target.clear();
        internal_key::append(&mut self.target, key, SequenceNumber::new(0), ValueKind::Deletion);
    }

    /// Shows the first entry from `inner` on that the reader sees; with `skipping`, past those of `key`.
    fn show_next(&mut self, mut skipping: bool) -> Result<()> {
        let mut hidden = 0;
        while self.inner.valid() {
            let entry = entry::key_of(&self.inner)?;
            if self.upper.as_deref().is_some_and(|upper| !self.order.is_before(entry.user_key, upper)) {
                return Ok(());
            }
            let is_same = skipping && entry.user_key == self.key.as_slice();
            if !is_same && entry.sequence <= self.sequence {
                self.key.clear();
                self.key.extend_from_slice(entry.user_key);
                let is_hidden = self.hider.as_mut().is_some_and(|hider| hider.hides(entry.user_key, entry.sequence));
                if is_hidden {
                    (skipping, hidden) = (true, 0);
                    if !self.skip_hidden(true)? {
                        self.inner.next()?;
                    }
                    continue;
                }
                match is_shown(entry.kind) {
                    Some(true) => {
                        self.kind = entry.kind;
                        self.valid = true;
                        return Ok(());
                    }
                    Some(false) => {}
                    None => return Err(self.located(entry::not_served(entry.user_key, entry.kind))),
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
            if !self.target.is_empty() && self.order.compare_internal(self.inner.key(), &self.target).is_lt() {
                return Err(self.disordered());
            }
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
            let entry = entry::key_of(&self.inner)?;
            if self.lower.as_deref().is_some_and(|lower| self.order.is_before(entry.user_key, lower)) {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(entry.user_key);
            let Some((sequence, kind)) = self.newest_seen()? else { continue };
            let is_hidden = self.hider.as_mut().is_some_and(|hider| hider.hides(&self.key, sequence));
            match is_shown(kind) {
                _ if is_hidden => {
                    if self.inner.valid() {
                        self.skip_hidden(false)?;
                    }
                }
                Some(true) => {
                    self.kind = kind;
                    self.valid = true;
                    return Ok(());
                }
                Some(false) => {}
                None => return Err(self.not_served_behind(kind)),
            }
        }
        Ok(())
    }

    /// Past what hides the key that was just passed as far as that can be done without looking at each entry; `false` if nothing was skipped.
    #[cold]
    fn skip_hidden(&mut self, forward: bool) -> Result<bool> {
        let Some(hider) = &mut self.hider else { return Ok(false) };
        let Some((sequence, bounds)) = hider.bounds_to_skip() else { return Ok(false) };
        let is_moved = self.inner.skip(sequence, bounds, forward)?;
        hider.note_skipped(is_moved);
        Ok(is_moved)
    }

    /// The newest entry of `key` that the reader sees, its value saved. `inner` stands on the oldest entry of `key`, and
    /// afterwards before all of them.
    fn newest_seen(&mut self) -> Result<Option<(SequenceNumber, ValueKind)>> {
        let mut seen = None;
        for _ in 0..=STEPS_BEFORE_SEEK {
            // Entries of the key come oldest first: the last one that the reader may see is the one it sees.
            match self.entry_of_key()? {
                Some(entry) if entry.sequence <= self.sequence => {
                    seen = Some((entry.sequence, entry.kind));
                    self.saved_value = self.inner.pinned_value();
                }
                Some(_) => {}
                None => return Ok(seen),
            }
            self.inner.prev()?;
        }
        if self.entry_of_key()?.is_none() {
            return Ok(seen);
        }
        // Many versions: two seeks are cheaper than passing all of them.
        let key = std::mem::take(&mut self.key);
        let found = self.newest_sought(&key);
        self.key = key;
        found
    }

    fn newest_sought(&mut self, key: &[u8]) -> Result<Option<(SequenceNumber, ValueKind)>> {
        if !self.target.is_empty() && self.order.compare_internal(self.inner.key(), &self.target).is_gt() {
            return Err(self.disordered());
        }
        self.seek_inner(key)?;
        let mut seen = None;
        if self.inner.valid() {
            let entry = entry::key_of(&self.inner)?;
            if entry.user_key == key {
                seen = Some((entry.sequence, entry.kind));
                self.saved_value = self.inner.pinned_value();
            }
        }
        self.stand_before(key)?;
        Ok(seen)
    }

    /// That the newest entry of `key`, which `inner` has passed going backward, is of a kind that cannot be shown.
    #[cold]
    fn not_served_behind(&mut self, kind: ValueKind) -> Error {
        let key = std::mem::take(&mut self.key);
        let error = entry::not_served(&key, kind);
        // Only to say where it lies: a seek begins anew (W3).
        let is_there = self.seek_inner(&key).is_ok() && internal_key::user_key(self.inner.key()) == key;
        if is_there { self.located(error) } else { error }
    }

    #[cold]
    fn disordered(&self) -> Error {
        entry::disordered(&self.inner)
    }

    /// `error`, which is about the entry that `inner` stands on, with where that lies.
    #[cold]
    fn located(&self, error: Error) -> Error {
        entry::located(error, self.inner.place())
    }

    /// The same of an error of the value that is shown.
    #[cold]
    pub(super) fn located_value(&self, error: Error) -> Error {
        if self.forward { self.located(error) } else { error }
    }

    /// The entry that `inner` stands on, if it is one of `key`.
    fn entry_of_key(&self) -> Result<Option<InternalKey<'_>>> {
        if !self.inner.valid() {
            return Ok(None);
        }
        Ok(Some(entry::key_of(&self.inner)?).filter(|entry| entry.user_key == self.key.as_slice()))
    }
}

/// Whether an entry of this kind is shown, or hides its key; `None` if neither can be said.
fn is_shown(kind: ValueKind) -> Option<bool> {
    match kind {
        ValueKind::Value | ValueKind::BlobIndex | ValueKind::Merge => Some(true),
        ValueKind::Deletion | ValueKind::SingleDeletion => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::iterate::InternalIterator;

    /// Internal keys in any order: a table whose writer was at fault.
    struct Disordered {
        keys: Vec<Vec<u8>>,
        at: Option<usize>,
    }

    impl InternalIterator for Disordered {
        fn valid(&self) -> bool {
            self.at.is_some_and(|at| at < self.keys.len())
        }
        fn seek_to_first(&mut self) -> Result<()> {
            self.at = Some(0);
            Ok(())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            self.at = self.keys.len().checked_sub(1);
            Ok(())
        }
        fn seek(&mut self, target: &[u8]) -> Result<()> {
            self.at = self.keys.iter().position(|key| Order::BYTEWISE.compare_internal(key, target).is_ge());
            Ok(())
        }
        fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
            self.at = self.keys.iter().rposition(|key| Order::BYTEWISE.compare_internal(key, target).is_le());
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.at = self.at.map(|at| at + 1);
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.at = self.at.and_then(|at| at.checked_sub(1));
            Ok(())
        }
        fn key(&self) -> &[u8] {
            self.at.and_then(|at| self.keys.get(at)).map_or(&[], Vec::as_slice)
        }
        fn value(&self) -> &[u8] {
            &[]
        }
        fn pinned_value(&self) -> PinnedSlice {
            PinnedSlice::default()
        }
        fn place(&self) -> Option<(&std::path::Path, Option<u64>)> {
            None
        }
    }

    /// As many versions of a key as a walk seeks past.
    fn versions(key: &str) -> Vec<Vec<u8>> {
        let version = |sequence| {
            let mut internal = Vec::new();
            internal_key::append(&mut internal, key.as_bytes(), SequenceNumber::new(sequence), ValueKind::Value);
            internal
        };
        (1..=2 * STEPS_BEFORE_SEEK as u64 + 3).rev().map(version).collect()
    }

    /// The keys that are shown from one end to the other, or how that failed.
    fn walk(keys: Vec<Vec<u8>>, sequence: SequenceNumber, forward: bool) -> Result<Vec<Vec<u8>>> {
        let entries = MergingIterator::new(Order::BYTEWISE, vec![Box::new(Disordered { keys, at: None })]);
        let mut walker = Walker::new((entries, None), sequence, &ReadOptions::default());
        let mut shown = Vec::new();
        if forward {
            walker.seek_to_first()?
        } else {
            walker.seek_to_last()?
        }
        while walker.valid() {
            shown.push(walker.key().to_vec());
            assert!(shown.len() < 100, "the walk does not end");
            walker.step(forward)?;
        }
        Ok(shown)
    }

    /// Goal: a walk through keys that are out of order ends, with an error where it would go round in circles.
    #[test]
    fn a_walk_through_keys_out_of_order_ends() {
        let ends = [(1, true), (3, true), (30, true), (1, false), (3, false), (30, false)];
        let (a, b) = (versions("a"), versions("b"));
        for (sequence, forward) in ends {
            let shown = walk([a.clone(), b.clone()].concat(), SequenceNumber::new(sequence), forward).unwrap();
            assert_eq!(shown.concat(), if forward { b"ab" } else { b"ba" });
        }
        let circles = [([&b[..1], &a].concat(), true), ([&b, &a[..1]].concat(), false)];
        for (keys, forward) in circles {
            let error = walk(keys, SequenceNumber::new(30), forward).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        }
        for (sequence, forward) in ends {
            // Whatever they show.
            let _ = walk([b.clone(), a.clone()].concat(), SequenceNumber::new(sequence), forward);
        }
    }

    /// Goal: turning round in the middle of keys that are in order is no fault of theirs.
    #[test]
    fn a_walk_may_turn_anywhere() {
        let keys = ["a", "b", "c", "d"].map(versions).concat();
        let entries = MergingIterator::new(Order::BYTEWISE, vec![Box::new(Disordered { keys, at: None })]);
        let mut walker = Walker::new((entries, None), SequenceNumber::new(2), &ReadOptions::default());
        for key in [b"b", b"c"] {
            for forward in [true, false] {
                for seek in [Walker::seek, Walker::seek_for_prev, Walker::seek_after, Walker::seek_before] {
                    seek(&mut walker, key).unwrap();
                    while walker.valid() {
                        walker.step(forward).unwrap();
                    }
                    if forward {
                        walker.seek_to_last().unwrap()
                    } else {
                        walker.seek_to_first().unwrap()
                    }
                    let mut shown = Vec::new();
                    for forward in [!forward, !forward, forward, forward] {
                        shown.extend_from_slice(walker.key());
                        walker.step(forward).unwrap();
                    }
                    assert_eq!(shown, if forward { b"dcbc" } else { b"abcb" });
                }
            }
        }
    }
}
