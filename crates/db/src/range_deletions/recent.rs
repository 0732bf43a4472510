//! Range deletions of a memtable: in runs, each at least twice as long as the next, so that one more costs a logarithm of work, and a look another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_format::rocksdb::internal_key::SequenceNumber;
use parking_lot::RwLock;

use super::{Fragments, RangeDeletion};

/// Those of a memtable. Empty until the first is added, and a look at a number as long.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    count: AtomicU64,
    bytes: AtomicUsize,
    runs: RwLock<Vec<Run>>,
}

#[derive(Debug, Clone)]
struct Run {
    ranges: Vec<Arc<RangeDeletion>>,
    fragments: Arc<Fragments>,
    bytes: usize,
}

impl Run {
    fn of(ranges: Vec<Arc<RangeDeletion>>) -> Self {
        let fragments = Arc::new(Fragments::of(ranges.iter().map(|range| &**range)));
        let bytes = fragments.bytes() + ranges.iter().map(|range| bytes_of(range)).sum::<usize>();
        Self { ranges, fragments, bytes }
    }
}

fn bytes_of(range: &RangeDeletion) -> usize {
    size_of::<RangeDeletion>() + range.begin.len() + range.end.len()
}

impl Recent {
    /// Adds one. Whoever begins to look after this returned meets it.
    pub(crate) fn add(&self, range: RangeDeletion) {
        let mut runs = self.runs.write();
        let mut ranges = vec![Arc::new(range)];
        while let Some(last) = runs.pop_if(|last| last.ranges.len() <= ranges.len()) {
            ranges.extend(last.ranges);
        }
        runs.push(Run::of(ranges));
        self.bytes.store(runs.iter().map(|run| run.bytes).sum(), Ordering::Relaxed);
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
        let runs = self.runs.read();
        runs.iter().map(|run| run.fragments.newest_at(user_key, up_to)).max().unwrap_or_default()
    }

    /// As they are now.
    pub(crate) fn runs(&self) -> Vec<Arc<Fragments>> {
        if self.is_empty() {
            return Vec::new();
        }
        self.runs.read().iter().map(|run| run.fragments.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: in however many runs, a key is hidden by the newest of all that cover it; few runs are looked at.
    #[test]
    fn the_newest_of_all_runs_hides_a_key() {
        let recent = Recent::default();
        assert!(recent.is_empty() && recent.runs().is_empty());
        for n in 1..=100u64 {
            let begin = [(n * 7 % 100) as u8];
            let range =
                RangeDeletion { begin: begin.into(), end: [begin[0] + 10].into(), sequence: SequenceNumber::new(n) };
            recent.add(range);
            assert!(recent.runs().len() <= 7, "{} runs of {n}", recent.runs().len());
            for key in 0..110 {
                for up_to in [n / 2, n] {
                    let covers = |n: &u64| (n * 7 % 100..n * 7 % 100 + 10).contains(&key);
                    let newest = (1..=up_to).rev().find(covers).unwrap_or(0);
                    assert_eq!(recent.newest_at(&[key as u8], SequenceNumber::new(up_to)).get(), newest);
                }
            }
        }
        assert_eq!(recent.count(), 100);
    }
}
