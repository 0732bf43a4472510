//! Range deletions of a memtable: in runs, each at least twice as long as the next, so that one more costs a logarithm of work, and a look another.
//!
//! - RR1: who sees all of a run is hidden a key by the newest that covers it, and asks for that alone; so a run takes memory as its ranges are many, however
//!   they lie in one another. Who came before some of it looks at each, or, for a walk, has a run made of what it sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::order::Order;
use parking_lot::Mutex;

use super::{Fragments, RangeDeletion};

/// Those of a memtable. Empty until the first is added, and a look at a number as long.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    order: Order,
    count: AtomicU64,
    bytes: AtomicUsize,
    /// Held by who adds: readers go on with the runs as they were.
    adding: Mutex<()>,
    runs: ArcSwap<Vec<Arc<Run>>>,
}

#[derive(Debug)]
struct Run {
    ranges: Vec<Arc<RangeDeletion>>,
    /// Of each key the newest.
    fragments: Arc<Fragments>,
    /// Of all.
    newest: SequenceNumber,
    bytes: usize,
}

impl Run {
    fn of(order: Order, ranges: Vec<Arc<RangeDeletion>>) -> Self {
        let fragments = Arc::new(Fragments::reduced(order, ranges.iter().map(|range| &**range), &[]));
        let newest = ranges.iter().map(|range| range.sequence).max().unwrap_or_default();
        let bytes = fragments.bytes() + ranges.iter().map(|range| bytes_of(range)).sum::<usize>();
        Self { ranges, fragments, newest, bytes }
    }

    fn newest_at(&self, order: Order, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        if self.newest <= up_to {
            return self.fragments.newest_at(user_key, up_to);
        }
        let covers = |range: &&Arc<RangeDeletion>| range.sequence <= up_to && range.covers(order, user_key);
        self.ranges.iter().filter(covers).map(|range| range.sequence).max().unwrap_or_default()
    }

    fn seen_by(&self, order: Order, up_to: SequenceNumber) -> Arc<Fragments> {
        if self.newest <= up_to {
            return self.fragments.clone();
        }
        let seen = self.ranges.iter().map(|range| &**range).filter(|range| range.sequence <= up_to);
        Arc::new(Fragments::reduced(order, seen, &[]))
    }
}

fn bytes_of(range: &RangeDeletion) -> usize {
    size_of::<RangeDeletion>() + range.begin.len() + range.end.len()
}

impl Recent {
    /// None yet, of keys in `order`.
    pub(crate) fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// Those of the memtable after: none yet.
    pub(crate) fn next(&self) -> Self {
        Self::new(self.order)
    }

    /// Adds one. Whoever begins to look after this returned meets it.
    pub(crate) fn add(&self, range: RangeDeletion) {
        let _alone = self.adding.lock();
        let mut runs = Vec::clone(&self.runs.load());
        let mut ranges = vec![Arc::new(range)];
        while let Some(last) = runs.pop_if(|last| last.ranges.len() <= ranges.len()) {
            ranges.extend_from_slice(&last.ranges);
        }
        runs.push(Arc::new(Run::of(self.order, ranges)));
        self.bytes.store(runs.iter().map(|run| run.bytes).sum(), Ordering::Relaxed);
        self.runs.store(Arc::new(runs));
        // Release, with the acquire of who looks whether there are any.
        self.count.fetch_add(1, Ordering::Release);
    }

    /// How many were added.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Memory that they take.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The newest up to `up_to` that covers `user_key`; 0: none.
    #[inline]
    pub(crate) fn newest_at(&self, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        if self.is_empty() { SequenceNumber::default() } else { self.search(user_key, up_to) }
    }

    #[cold]
    fn search(&self, user_key: &[u8], up_to: SequenceNumber) -> SequenceNumber {
        self.runs.load().iter().map(|run| run.newest_at(self.order, user_key, up_to)).max().unwrap_or_default()
    }

    /// What somebody sees of them who sees what was written up to `up_to`: in several pieces, of each the newest counts.
    pub(crate) fn seen_by(&self, up_to: SequenceNumber) -> Vec<Arc<Fragments>> {
        if self.is_empty() {
            return Vec::new();
        }
        self.runs.load().iter().map(|run| run.seen_by(self.order, up_to)).filter(|seen| !seen.is_empty()).collect()
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<RangeDeletion>> {
        if self.is_empty() {
            return Vec::new();
        }
        self.runs.load().iter().flat_map(|run| run.ranges.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in however many runs, a key is hidden by the newest of all that cover it; few runs are looked at.
    #[test]
    fn the_newest_of_all_runs_hides_a_key() {
        let recent = Recent::default();
        assert!(recent.is_empty() && recent.all().is_empty());
        for n in 1..=100u64 {
            let begin = [(n * 7 % 100) as u8];
            let range =
                RangeDeletion { begin: begin.into(), end: [begin[0] + 10].into(), sequence: SequenceNumber::new(n) };
            recent.add(range);
            assert!(recent.runs.load().len() <= 7, "{} runs of {n}", recent.runs.load().len());
            for key in 0..110 {
                for up_to in [n / 2, n] {
                    let covers = |n: &u64| (n * 7 % 100..n * 7 % 100 + 10).contains(&key);
                    let newest = (1..=up_to).rev().find(covers).unwrap_or(0);
                    let up_to = SequenceNumber::new(up_to);
                    assert_eq!(recent.newest_at(&[key as u8], up_to).get(), newest);
                    let seen = recent.seen_by(up_to);
                    let of_all = seen.iter().map(|run| run.newest_at(&[key as u8], up_to).get()).max();
                    assert_eq!(of_all.unwrap_or(0), newest);
                }
            }
        }
        assert_eq!((recent.count(), recent.all().len()), (100, 100));
    }

    /// Goal: ranges that lie in one another take no more memory than others.
    #[test]
    fn ranges_within_each_other_take_room_as_they_are_many() {
        let bytes = |begin: fn(u32) -> u32| {
            let recent = Recent::default();
            for n in 0..2000u32 {
                let (begin, end) = (begin(n).to_be_bytes().into(), (n + 1).to_be_bytes().into());
                recent.add(RangeDeletion { begin, end, sequence: SequenceNumber::new(u64::from(n) + 1) });
            }
            recent.bytes()
        };
        assert!(bytes(|_| 0) <= bytes(|n| n));
    }
}
