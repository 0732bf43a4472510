//! What compaction drops for range deletions, and which of them it writes again. Pure.

use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::order::Order;

use super::fragments::Fragment;
use super::{Fragments, RangeDeletion};
use crate::version::Version;

/// Range deletions that entries of a sorted run may lie under: all of the store's, wherever they lie (RD4).
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    fragments: Fragments,
    /// The first that ends behind the key that was asked for last.
    next: usize,
}

impl Version {
    /// What all range deletions of its tables throw over the keys from `begin` up to `end`; both inclusive, `None` is open.
    pub(crate) fn shadow_over(
        &self,
        (begin, end): (Option<&[u8]>, Option<&[u8]>),
        snapshots: &[SequenceNumber],
    ) -> Shadow {
        if !self.has_range_deletions() {
            return Shadow::default();
        }
        let meets = |fragment: &&Fragment| {
            begin.is_none_or(|begin| self.order().is_before(begin, &fragment.end))
                && end.is_none_or(|end| self.order().compare(&fragment.begin, end).is_le())
        };
        let all = self.tables().flat_map(|(_, table)| table.range_deletions().iter().filter(meets));
        Shadow::of(self.order(), &all.flat_map(Fragment::ranges).collect::<Vec<_>>(), snapshots)
    }
}

impl Shadow {
    /// Of all these, where these snapshots, ascending, have to be told apart.
    pub(crate) fn of<'a>(
        order: Order,
        all: impl IntoIterator<Item = &'a RangeDeletion>,
        snapshots: &[SequenceNumber],
    ) -> Self {
        Self { fragments: Fragments::reduced(order, all, snapshots), next: 0 }
    }

    /// The oldest of those that are kept that hides an entry of `user_key` written at `sequence`: of the entry's stripe, if one of that does. Ask for keys in
    /// their order.
    #[inline]
    pub(crate) fn oldest_above(&mut self, user_key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        if self.fragments.is_empty() { None } else { self.look_up(user_key, sequence) }
    }

    fn look_up(&mut self, user_key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        let order = self.fragments.order();
        while self.fragments.get(self.next).is_some_and(|fragment| order.compare(&fragment.end, user_key).is_le()) {
            self.next += 1;
        }
        let fragment =
            self.fragments.get(self.next).filter(|fragment| order.compare(&fragment.begin, user_key).is_le())?;
        fragment.sequences.iter().copied().take_while(|&of_range| of_range > sequence).last()
    }

    /// Whether any covers `user_key`, be it older than all that there is of it: then its entries must say when they were written (RD1).
    #[inline]
    pub(crate) fn covers(&self, user_key: &[u8]) -> bool {
        !self.fragments.is_empty() && !self.fragments.at(user_key).sequences.is_empty()
    }
}

impl Fragments {
    /// Of those that were [reduced](Self::reduced) by `snapshots`, what has to be written again: of what all see only what `may_hide` something deeper,
    /// which is told the first key and the one before which the piece ends (RD3).
    pub(crate) fn left(self, snapshots: &[SequenceNumber], may_hide: impl Fn(&[u8], &[u8]) -> bool) -> Self {
        let stripe = |sequence: SequenceNumber| snapshots.partition_point(|&snapshot| snapshot < sequence);
        let mut left = Vec::new();
        for fragment in self.iter() {
            let mut sequences = fragment.sequences.to_vec();
            if sequences.last().is_some_and(|oldest| stripe(*oldest) == 0) && !may_hide(&fragment.begin, &fragment.end)
            {
                sequences.pop();
            }
            if !sequences.is_empty() {
                left.push(Fragment { sequences: sequences.into(), ..fragment.clone() });
            }
        }
        Self::of_sorted(self.order(), left)
    }

    /// What of them lies from `begin` on and before `end`; `None` is open.
    pub(crate) fn within(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let order = self.order();
        let cut = |fragment: &Fragment| {
            let from = begin.map_or(&*fragment.begin, |begin| order.later(begin, &fragment.begin));
            let to = end.map_or(&*fragment.end, |end| order.earlier(end, &fragment.end));
            order.is_before(from, to).then(|| Fragment {
                begin: from.into(),
                end: to.into(),
                sequences: fragment.sequences.clone(),
            })
        };
        Self::of_sorted(order, self.iter().filter_map(cut).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &str, end: &str, sequence: u64) -> RangeDeletion {
        RangeDeletion {
            begin: begin.as_bytes().into(),
            end: end.as_bytes().into(),
            sequence: SequenceNumber::new(sequence),
        }
    }

    fn told(fragments: &Fragments) -> Vec<(String, String, Vec<u64>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let told = |it: &Fragment| (text(&it.begin), text(&it.end), it.sequences.iter().map(|s| s.get()).collect());
        fragments.iter().map(told).collect()
    }

    /// Goal: of those that all snapshots see alike one is left, and none of what all see where nothing lies deeper.
    #[test]
    fn what_no_snapshot_tells_apart_is_written_once() {
        let ranges = [range("a", "m", 3), range("c", "p", 5), range("c", "p", 7), range("x", "z", 9)];
        let left = |snapshots: &[u64], bounds: (Option<&str>, Option<&str>), deeper: &str| {
            let snapshots: Vec<_> = snapshots.iter().copied().map(SequenceNumber::new).collect();
            let bounds = (bounds.0.map(str::as_bytes), bounds.1.map(str::as_bytes));
            let may_hide = |_: &[u8], end: &[u8]| end > deeper.as_bytes();
            told(
                &Fragments::reduced(Order::BYTEWISE, &ranges, &snapshots)
                    .within(bounds.0, bounds.1)
                    .left(&snapshots, may_hide),
            )
        };
        let piece = |begin: &str, end: &str, sequences: &[u64]| (begin.to_owned(), end.to_owned(), sequences.to_vec());
        let all = (None, None);
        assert_eq!(left(&[], all, ""), [piece("a", "c", &[3]), piece("c", "p", &[7]), piece("x", "z", &[9])]);
        assert_eq!(left(&[], all, "y"), [piece("x", "z", &[9])]);
        assert_eq!(left(&[6], all, "z"), [piece("c", "p", &[7]), piece("x", "z", &[9])]);
        assert_eq!(left(&[6], (Some("d"), Some("e")), "z"), [piece("d", "e", &[7])]);
        assert_eq!(
            left(&[4, 6], (None, Some("n")), ""),
            [piece("a", "c", &[3]), piece("c", "m", &[7, 5, 3]), piece("m", "n", &[7, 5])]
        );
    }

    /// Goal: an entry lies under the oldest of those that are newer than it.
    #[test]
    fn the_oldest_that_is_newer_hides_an_entry() {
        let ranges = [range("b", "m", 3), range("c", "p", 7), range("x", "z", 9)];
        let mut shadow = Shadow::of(Order::BYTEWISE, &ranges, &[SequenceNumber::new(5)]);
        let mut above =
            |key: &str, sequence| shadow.oldest_above(key.as_bytes(), SequenceNumber::new(sequence)).map(|s| s.get());
        assert_eq!([above("a", 1), above("c", 1), above("c", 3), above("c", 7)], [None, Some(3), Some(7), None]);
        assert_eq!([above("n", 3), above("q", 0), above("x", 8), above("z", 0)], [Some(7), None, Some(9), None]);
        assert!(shadow.covers(b"c") && !shadow.covers(b"a") && shadow.covers(b"y") && !shadow.covers(b"p"));
        assert!(!Shadow::default().covers(b"a"));
    }
}
