//! How many separated values an iterator reads at once.
//!
//! Reading ahead pays as far as the user goes on, and costs reads for nothing beyond. So a family remembers how many values
//! its last walks asked for ([`Walks`]), and a walk reads as far as the shortest of them went, at once; beyond, or where
//! nothing is known, two values and then twice as many each time, for as long as most of them are asked for.
//!
//! - P1: it changes what is read when, never what is shown.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::blob::Onward;

/// Separated values read at once, at first and at most; and where they are read beside a walk that is sure to go on.
const VALUES_MIN: usize = 2;
const VALUES_MAX: usize = 64;
const VALUES_BESIDE_MAX: usize = 256;

/// Walks that are remembered: one that stops early makes the next ones careful for as long.
const WALKS: usize = 4;

/// Neighbours that are read together and say something about where values lie: in many places, if a read brings so few values, and
/// so few bytes that it takes much longer than they do.
const VALUES_TOGETHER_MIN: u64 = 8;
const VALUES_PER_READ: u64 = 4;
const BYTES_PER_READ: u64 = 64 << 10;

/// A walk that nobody expected goes on for sure from so many values a batch on.
const VALUES_SURE: usize = 16;

/// How many separated values the last walks through a family asked for; 0 while fewer than [`WALKS`] are known.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    last: [AtomicU32; WALKS],
    next: AtomicUsize,
    /// Bytes of values that were wanted together and lay here and there.
    scattered: AtomicU64,
}

impl Walks {
    fn note(&self, values: usize) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % WALKS;
        if let Some(last) = self.last.get(place) {
            last.store(u32::try_from(values).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// So many neighbours were read, with so many reads.
    pub(super) fn note_batch(&self, values: u64, bytes: u64, reads: u64) {
        let is_scattered = reads * VALUES_PER_READ > values && bytes < reads * BYTES_PER_READ;
        if values < VALUES_TOGETHER_MIN {
            return;
        }
        if is_scattered {
            self.scattered.fetch_add(bytes, Ordering::Relaxed);
        } else if self.scattered_bytes() > 0 {
            self.pay_scattered(bytes);
        }
    }

    /// Bytes of values that walks found here and there, less what they found together since, and what was brought together for that.
    pub(crate) fn scattered_bytes(&self) -> u64 {
        self.scattered.load(Ordering::Relaxed)
    }

    /// So many bytes are brought together.
    pub(crate) fn pay_scattered(&self, bytes: u64) {
        let paid = |owed: u64| Some(owed.saturating_sub(bytes));
        let _ = self.scattered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }

    /// What a walk may be expected to ask for at least.
    fn shortest(&self) -> usize {
        self.last.iter().map(|walk| walk.load(Ordering::Relaxed)).min().unwrap_or(0) as usize
    }
}

/// One walk: from a seek to the next, or to the iterator's end.
#[derive(Debug, Default)]
pub(super) struct Pace {
    forward: bool,
    /// Values that were asked for, those of the present batch not yet.
    asked: usize,
    expected: usize,
    /// The batch that is read now.
    batch: usize,
    /// The last batch beyond what was expected.
    grown: usize,
}

impl Pace {
    /// So many more values were asked for.
    #[inline]
    pub(super) fn count(&mut self, asked: usize) {
        self.asked += asked;
    }

    /// The walk ends, and another begins.
    pub(super) fn end(&mut self, walks: &Walks) {
        if self.asked > 0 {
            walks.note(self.asked);
        }
        *self = Self::default();
    }

    /// How many values to read next in this direction, after `asked` of the `read` ones of the last batch were asked for.
    pub(super) fn next(&mut self, forward: bool, read: usize, asked: usize, walks: &Walks) -> usize {
        self.forward = forward;
        if self.batch == 0 {
            self.expected = walks.shortest();
        }
        if 2 * asked < read {
            // This one picks and chooses.
            self.expected = 0;
            self.grown = self.batch / 4;
        } else if self.asked < self.expected {
            self.batch = (self.expected - self.asked).min(VALUES_MAX);
            return self.batch;
        } else {
            self.grown *= 2;
        }
        self.grown = self.grown.clamp(VALUES_MIN, VALUES_MAX);
        self.batch = self.grown;
        self.batch
    }

    /// How many values to read beside the walk, behind `ahead` ones that were read and are not counted yet; after `asked` of the `read` ones before
    /// were asked for. `None` where it is not sure enough to go on.
    pub(super) fn beyond(&mut self, ahead: usize, read: usize, asked: usize) -> Option<usize> {
        let passed = self.asked + ahead;
        let values = if 2 * asked < read {
            (self.expected, self.grown) = (0, VALUES_MIN);
            return None;
        } else if passed < self.expected {
            (self.expected - passed).min(VALUES_BESIDE_MAX)
        } else if self.grown >= VALUES_MAX {
            self.grown = (2 * self.grown).min(VALUES_BESIDE_MAX);
            self.grown
        } else {
            return None;
        };
        self.batch = ahead + values;
        Some(values)
    }

    /// How the walk goes on behind the present batch, if that is sure enough to read for it.
    pub(super) fn onward(&self) -> Option<Onward> {
        let (forward, passed) = (self.forward, self.asked + self.batch);
        if passed < self.expected {
            return Some(Onward { forward, values: self.expected - passed });
        }
        (self.grown >= VALUES_SURE).then_some(Onward { forward, values: usize::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of a walk that asks for `values` values and then ends.
    fn batches(values: usize, walks: &Walks) -> Vec<usize> {
        let mut pace = Pace::default();
        pace.count(1);
        let (mut left, mut batches) = (values - 1, Vec::new());
        let (mut read, mut asked) = (0, 0);
        while left > 0 {
            read = pace.next(true, read, asked, walks);
            asked = read.min(left);
            left -= asked;
            pace.count(asked);
            batches.push(read);
        }
        pace.end(walks);
        batches
    }

    #[test]
    fn a_walk_that_nobody_expects_reads_twice_as_much_each_time() {
        assert_eq!(batches(100, &Walks::default()), [2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn walks_of_the_same_length_read_just_that() {
        let walks = Walks::default();
        for _ in 0..WALKS {
            batches(100, &walks);
        }
        assert_eq!(batches(100, &walks), [64, 35]);
        assert_eq!(batches(110, &walks), [64, 35, 2, 4, 8], "careful beyond");
        batches(7, &walks);
        assert_eq!(batches(100, &walks)[..3], [6, 2, 4], "the shortest counts");
        for _ in 0..WALKS {
            batches(100, &walks);
        }
        assert_eq!(batches(100, &walks), [64, 35], "and is forgotten");
    }

    #[test]
    fn what_is_not_asked_for_is_read_ahead_less() {
        let walks = Walks::default();
        let mut pace = Pace::default();
        pace.count(1);
        let mut read = 0;
        for wanted in [2, 4, 8, 16] {
            read = pace.next(true, read, read, &walks);
            assert_eq!(read, wanted);
            pace.count(read);
        }
        assert_eq!(pace.next(true, read, 3, &walks), 4);
        assert!(pace.onward().is_none());
    }

    #[test]
    fn what_lies_beyond_is_told_as_far_as_the_walk_is_expected_to_go() {
        let walks = Walks::default();
        for _ in 0..WALKS {
            batches(100, &walks);
        }
        let mut pace = Pace::default();
        pace.count(1);
        assert_eq!(pace.next(false, 0, 0, &walks), 64);
        assert_eq!(pace.onward(), Some(Onward { forward: false, values: 35 }));
        pace.count(64);
        assert_eq!(pace.next(false, 64, 64, &walks), 35);
        assert_eq!(pace.onward(), None);
    }
}
