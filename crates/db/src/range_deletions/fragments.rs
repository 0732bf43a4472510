//! Ranges that may overlap, cut into pieces that do not.
//!
//! Cost: a search by key. Made of n ranges, at most 2n pieces, each with a number for each stripe between snapshots that it is made for: ranges that lie in
//! one another would be as many pieces with up to as many numbers, if all of them were kept.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::order::Order;

use super::RangeDeletion;

/// A piece of one or more ranges: all of them cover all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) begin: Box<[u8]>,
    pub(crate) end: Box<[u8]>,
    /// When they were written, the newest first; one at least.
    pub(crate) sequences: Box<[SequenceNumber]>,
}

impl Fragment {
    /// One range for each number.
    pub(super) fn ranges(&self) -> impl Iterator<Item = RangeDeletion> {
        let range = |&sequence| RangeDeletion { begin: self.begin.clone(), end: self.end.clone(), sequence };
        self.sequences.iter().map(range)
    }
}

/// Pieces in the order of their keys.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Fragments {
    pieces: Box<[Fragment]>,
    order: Order,
}

/// What covers a key, and for which other keys that is so.
#[derive(Debug, Default)]
pub(crate) struct Span<'a> {
    /// The newest first.
    pub(crate) sequences: &'a [SequenceNumber],
    /// From which on; `None`: from the first key.
    pub(crate) from: Option<&'a [u8]>,
    /// Before which; `None`: to the last key.
    pub(crate) to: Option<&'a [u8]>,
}

impl Span<'_> {
    /// The newest that somebody sees who sees what was written up to `up_to`; 0: none.
    pub(crate) fn newest(&self, up_to: SequenceNumber) -> SequenceNumber {
        let seen = self.sequences.iter().find(|sequence| **sequence <= up_to);
        seen.copied().unwrap_or_default()
    }
}

impl Fragments {
    /// Of ranges in any order, each with its number; those without keys are left out. For what tables hold, which was reduced when it was written.
    pub(crate) fn of<'a>(order: Order, ranges: impl IntoIterator<Item = &'a RangeDeletion>) -> Self {
        Self::sweep(order, ranges, |open| open.keys().map(|Reverse(sequence)| *sequence).collect())
    }

    /// The same, of each key only the newest of those that look alike to all `snapshots`, which are ascending.
    pub(crate) fn reduced<'a>(
        order: Order,
        ranges: impl IntoIterator<Item = &'a RangeDeletion>,
        snapshots: &[SequenceNumber],
    ) -> Self {
        Self::sweep(order, ranges, |open| {
            let mut newest = Vec::new();
            let mut before = Bound::Unbounded;
            while let Some((Reverse(sequence), _)) = open.range((before, Bound::Unbounded)).next() {
                newest.push(*sequence);
                // Those that this stripe's oldest snapshot, the newest before it, sees are the next.
                let stripe = snapshots.partition_point(|snapshot| snapshot < sequence);
                let Some(seen) = stripe.checked_sub(1).and_then(|at| snapshots.get(at)) else { break };
                before = Bound::Included(Reverse(*seen));
            }
            newest.into()
        })
    }

    fn sweep<'a>(
        order: Order,
        ranges: impl IntoIterator<Item = &'a RangeDeletion>,
        kept: impl Fn(&BTreeMap<Reverse<SequenceNumber>, usize>) -> Box<[SequenceNumber]>,
    ) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|range| order.is_before(&range.begin, &range.end)).collect();
        ranges.sort_unstable_by(|a, b| order.compare(&a.begin, &b.begin));
        let mut points: Vec<&[u8]> = ranges.iter().flat_map(|range| [&*range.begin, &*range.end]).collect();
        points.sort_unstable_by(|a, b| order.compare(a, b));
        points.dedup();
        let mut ends: Vec<_> = ranges.clone();
        ends.sort_unstable_by(|a, b| order.compare(&a.end, &b.end));
        let (mut begins, mut ends) = (ranges.iter().peekable(), ends.iter().peekable());
        // How many there are of each number: ranges of a file that was taken in have one.
        let mut open: BTreeMap<Reverse<SequenceNumber>, usize> = BTreeMap::new();
        let mut found: Vec<Fragment> = Vec::new();
        for pair in points.windows(2) {
            let [from, to] = pair else { continue };
            while let Some(range) = ends.next_if(|range| order.compare(&range.end, from).is_le()) {
                if let Some(count) = open.get_mut(&Reverse(range.sequence)) {
                    *count -= 1;
                    if *count == 0 {
                        open.remove(&Reverse(range.sequence));
                    }
                }
            }
            while let Some(range) = begins.next_if(|range| order.compare(&range.begin, from).is_le()) {
                *open.entry(Reverse(range.sequence)).or_default() += 1;
            }
            if open.is_empty() {
                continue;
            }
            let sequences = kept(&open);
            match found.last_mut() {
                Some(last) if *last.end == **from && last.sequences == sequences => last.end = (*to).into(),
                _ => found.push(Fragment { begin: (*from).into(), end: (*to).into(), sequences }),
            }
        }
        Self { pieces: found.into(), order }
    }

    /// Those of some, of which each key is covered by one at most, in order.
    pub(super) fn of_sorted(order: Order, fragments: Vec<Fragment>) -> Self {
        Self { pieces: fragments.into(), order }
    }

    /// The order of the keys.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Fragment> {
        self.pieces.iter()
    }

    /// Each piece as one range for each number.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeDeletion> {
        self.pieces.iter().flat_map(Fragment::ranges)
    }

    /// Whether one covers a key of the range; both ends inclusive.
    pub(crate) fn meets(&self, begin: &[u8], end: &[u8]) -> bool {
        self.pieces
            .get(self.first_behind(begin))
            .is_some_and(|fragment| self.order.compare(&fragment.begin, end).is_le())
    }

    /// Takes out what lies before `user_key`.
    pub(crate) fn take_before(&mut self, user_key: &[u8]) -> Self {
        let mut before = std::mem::take(&mut self.pieces).into_vec();
        let mut rest =
            before.split_off(before.partition_point(|fragment| self.order.is_before(&fragment.begin, user_key)));
        if let Some(last) = before.last_mut()
            && self.order.is_before(user_key, &last.end)
        {
            rest.insert(0, Fragment { begin: user_key.into(), ..last.clone() });
            last.end = user_key.into();
        }
        self.pieces = rest.into();
        Self { pieces: before.into(), order: self.order }
    }

    /// The first that ends behind `user_key`.
    pub(super) fn first_behind(&self, user_key: &[u8]) -> usize {
        self.pieces.partition_point(|fragment| self.order.compare(&fragment.end, user_key).is_le())
    }

    pub(super) fn get(&self, index: usize) -> Option<&Fragment> {
        self.pieces.get(index)
    }

    /// What covers `user_key`.
    pub(crate) fn at(&self, user_key: &[u8]) -> Span<'_> {
        let index = self.first_behind(user_key);
        match self.pieces.get(index) {
            Some(fragment) if self.order.compare(&fragment.begin, user_key).is_le() => {
                Span { sequences: &fragment.sequences, from: Some(&fragment.begin), to: Some(&fragment.end) }
            }
            next => {
                let before = index.checked_sub(1).and_then(|before| self.pieces.get(before));
                let (from, to) = (before.map(|before| &*before.end), next.map(|next| &*next.begin));
                Span { sequences: &[], from, to }
            }
        }
    }

    /// The newest that covers `user_key` and that somebody sees who sees what was written up to `up_to`; 0: none.
    pub(crate) fn newest_at(&self, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        self.at(user_key).newest(up_to)
    }

    /// Memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |fragment: &Fragment| {
            size_of::<Fragment>() + fragment.begin.len() + fragment.end.len() + size_of_val(&*fragment.sequences)
        };
        self.pieces.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// Goal: of any ranges, each key is covered by those that have it, and the answer holds as far as it says.
    #[test]
    fn a_key_is_covered_by_the_ranges_that_have_it() {
        for seed in 0..300 {
            let mut random = Rng::with_seed(seed);
            let ranges: Vec<_> = (0..random.usize(0..12))
                .map(|_| {
                    let (begin, end) = (random.u8(0..20), random.u8(0..20));
                    let sequence = SequenceNumber::new(random.u64(1..9));
                    RangeDeletion { begin: [begin].into(), end: [end].into(), sequence }
                })
                .collect();
            let fragments = Fragments::of(Order::BYTEWISE, &ranges);
            let covering = |key: u8| {
                let has = |range: &&RangeDeletion| *range.begin <= [key][..] && *range.end > [key][..];
                let mut all: Vec<_> = ranges.iter().filter(has).map(|range| range.sequence).collect();
                all.sort_unstable_by_key(|sequence| Reverse(*sequence));
                all.dedup();
                all
            };
            for key in 0..21 {
                let span = fragments.at(&[key]);
                assert_eq!(span.sequences, covering(key), "seed {seed}, key {key} of {ranges:?}");
                let within =
                    |other: u8| span.from.is_none_or(|from| from <= &[other]) && span.to.is_none_or(|to| to > &[other]);
                assert!(within(key));
                for other in (0..21).filter(|other| within(*other)) {
                    assert_eq!(covering(other), covering(key), "seed {seed}, {other} beside {key}");
                }
                for up_to in 0..10 {
                    let newest = covering(key).into_iter().map(SequenceNumber::get).find(|sequence| *sequence <= up_to);
                    let found = fragments.newest_at(&[key], SequenceNumber::new(up_to)).get();
                    assert_eq!(found, newest.unwrap_or(0));
                }
            }
            let snapshots: Vec<_> = (1..8).filter(|_| random.u8(..3) == 0).map(SequenceNumber::new).collect();
            let reduced = Fragments::reduced(Order::BYTEWISE, &ranges, &snapshots);
            for key in 0..21 {
                let stripe = |of: &SequenceNumber| snapshots.partition_point(|snapshot| snapshot < of);
                let mut newest = covering(key);
                newest.dedup_by_key(|sequence| stripe(sequence));
                assert_eq!(reduced.at(&[key]).sequences, newest, "seed {seed}, key {key}, {snapshots:?}");
            }
            for key in 0..21 {
                let (mut rest, key) = (fragments.clone(), [key]);
                assert_eq!(rest.take_before(&key), fragments.within(None, Some(&key)));
                assert_eq!(rest, fragments.within(Some(&key), None));
            }
            // Made of its own pieces, it is the same.
            assert_eq!(Fragments::of(Order::BYTEWISE, &fragments.ranges().collect::<Vec<_>>()), fragments);
            assert!(fragments.iter().collect::<Vec<_>>().windows(2).all(|pair| pair[0].end <= pair[1].begin));
        }
    }
}
