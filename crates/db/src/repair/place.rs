//! Where tables go of which no manifest says the level. Pure.
//!
//! A reader takes the first entry of a key that it meets, going from level 0, newest table first, to the deepest. So a table that
//! shares no key with another may lie anywhere; of two that overlap, one must be newer in all that they have in common, and
//! disjoint sequence numbers prove that. Everything else is to be merged.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::order::Order;

/// What is known of a table.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    /// First and last user key.
    pub(super) keys: RangeInclusive<Vec<u8>>,
    /// `None` if nothing says when it was written.
    pub(super) sequences: Option<RangeInclusive<u64>>,
    /// Blob files that it points to.
    pub(super) blobs: BTreeSet<FileNumber>,
    /// It has to be written again in any case.
    pub(super) is_broken: bool,
}

/// What to do with tables, by their index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Alone with its keys: the deepest level.
    Deepest(usize),
    /// Level 0, where the highest sequence number goes first.
    Newest(Vec<usize>),
    /// One sorted run, in the deepest level.
    Merged(Vec<usize>),
}

/// A place for each table: those that overlap, directly or by others, have one together.
pub(super) fn places(order: Order, extents: &[Extent]) -> Vec<Place> {
    let mut sorted: Vec<(usize, &Extent)> = extents.iter().enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| {
        order.compare(a.keys.start(), b.keys.start()).then_with(|| order.compare(a.keys.end(), b.keys.end()))
    });
    let mut groups: Vec<(Vec<usize>, &[u8])> = Vec::new();
    for (index, extent) in sorted {
        match groups.last_mut() {
            Some((group, end)) if !order.is_before(end, extent.keys.start()) => {
                group.push(index);
                *end = order.later(end, extent.keys.end());
            }
            _ => groups.push((vec![index], extent.keys.end())),
        }
    }
    groups.into_iter().map(|(group, _)| place(extents, group)).collect()
}

fn place(extents: &[Extent], group: Vec<usize>) -> Place {
    let of = || group.iter().filter_map(|&index| extents.get(index));
    if of().any(|extent| extent.is_broken) {
        return Place::Merged(group);
    }
    if let [only] = group[..] {
        return Place::Deepest(only);
    }
    let sequences: Option<Vec<_>> = of().map(|extent| extent.sequences.clone()).collect();
    let Some(mut sequences) = sequences else { return Place::Merged(group) };
    sequences.sort_by_key(|of| (*of.start(), *of.end()));
    let is_ordered = sequences.windows(2).all(|pair| match pair {
        [before, after] => before.end() < after.start(),
        _ => true,
    });
    // Two entries that point to one value are one that a compaction wrote again: only a merge finds that out.
    let blobs: usize = of().map(|extent| extent.blobs.len()).sum();
    let distinct: BTreeSet<FileNumber> = of().flat_map(|extent| extent.blobs.iter().copied()).collect();
    if is_ordered && blobs == distinct.len() { Place::Newest(group) } else { Place::Merged(group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(keys: (&str, &str), sequences: RangeInclusive<u64>) -> Extent {
        let keys = keys.0.as_bytes().to_vec()..=keys.1.as_bytes().to_vec();
        Extent { keys, sequences: Some(sequences), blobs: BTreeSet::new(), is_broken: false }
    }

    #[test]
    fn tables_that_share_no_key_lie_deepest_whatever_their_age() {
        let extents = [extent(("m", "p"), 5..=9), extent(("a", "c"), 1..=20), extent(("d", "d"), 7..=7)];
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Deepest(1), Place::Deepest(2), Place::Deepest(0)]);
    }

    #[test]
    fn overlapping_tables_of_different_times_lie_above_each_other() {
        let extents = [extent(("a", "m"), 5..=9), extent(("c", "d"), 1..=4), extent(("l", "z"), 10..=10)];
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Newest(vec![0, 1, 2])]);
    }

    #[test]
    fn tables_whose_times_say_nothing_are_merged() {
        // The second has the newer "k", the first the higher number: level 0 would show the older one.
        let extents = [extent(("k", "x"), 1..=100), extent(("k", "k"), 60..=60)];
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Merged(vec![1, 0])]);
        let bridged = [extent(("a", "c"), 1..=2), extent(("e", "g"), 1..=2), extent(("b", "f"), 3..=4)];
        assert_eq!(places(Order::BYTEWISE, &bridged), [Place::Merged(vec![0, 2, 1])]);
    }

    #[test]
    fn tables_that_point_into_one_blob_file_are_merged() {
        let mut extents = [extent(("a", "m"), 5..=9), extent(("c", "d"), 1..=4)];
        extents.iter_mut().for_each(|extent| extent.blobs = [FileNumber::new(7)].into());
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Merged(vec![0, 1])]);
    }

    #[test]
    fn a_table_of_which_nothing_says_when_it_was_written_is_merged_with_what_it_overlaps() {
        let mut extents = [extent(("a", "c"), 0..=0), extent(("b", "d"), 1..=4), extent(("x", "y"), 0..=0)];
        extents[0].sequences = None;
        extents[2].sequences = None;
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Merged(vec![0, 1]), Place::Deepest(2)]);
    }

    #[test]
    fn what_is_broken_is_written_again() {
        let mut extents = [extent(("a", "b"), 1..=2), extent(("x", "y"), 1..=2)];
        extents[1].is_broken = true;
        assert_eq!(places(Order::BYTEWISE, &extents), [Place::Deepest(0), Place::Merged(vec![1])]);
    }
}
