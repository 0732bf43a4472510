//! What must be in the store, told by what was written in which order, without a table of keys.
//!
//! - K1: a benchmark that writes or deletes a known set of keys takes ranks of an order from 0 on and finishes each that
//!   it took, so the first `count` ranks are what it did.
//! - K2: the latest such benchmark that touched a key says the least its value may be. One that writes keys at random
//!   may have touched any.

use super::random::Permutation;

/// Among more keys than these, those that are there are not counted: a look at every key would take longer than a run.
const COUNTED_KEYS_MAX: u64 = 100_000_000;

/// In which order keys were touched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Ascending,
    Random(Permutation),
    /// As many keys that follow each other at once, from [`number`](Self::number) on: the last may be fewer.
    Ranges(Permutation, u64),
}

impl Order {
    #[inline]
    pub(super) fn number(&self, rank: u64) -> u64 {
        match self {
            Self::Ascending => rank,
            Self::Random(order) => order.number(rank),
            Self::Ranges(order, keys) => order.number(rank) * keys,
        }
    }

    #[inline]
    fn rank(&self, number: u64) -> u64 {
        match self {
            Self::Ascending => number,
            Self::Random(order) => order.rank(number),
            Self::Ranges(order, keys) => order.rank(number / keys),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Put {
        generation: u64,
    },
    Delete,
    /// Some were put, nobody knows which.
    Scatter,
}

/// What one benchmark did to the keys of `base..base + size`.
#[derive(Debug, Clone, Copy)]
struct Layer {
    base: u64,
    size: u64,
    order: Order,
    /// Ranks that were done.
    count: u64,
    action: Action,
}

impl Layer {
    #[inline]
    fn covers(&self, number: u64) -> bool {
        let offset = number.wrapping_sub(self.base);
        offset < self.size && (self.count == self.size || self.order.rank(offset) < self.count)
    }
}

/// What is right for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expectation {
    /// It must be there, with a value of at least this generation.
    pub(super) oldest: Option<u64>,
    /// It may be there.
    pub(super) may_exist: bool,
}

/// All that was done so far.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Oldest first.
    layers: Vec<Layer>,
    /// Keys have numbers below this.
    space: u64,
    /// The store was there before.
    is_foreign: bool,
}

impl Known {
    /// Of a store for `num` keys: a new one, or one that `is_foreign`, of which nothing is known.
    pub(super) fn new(num: u64, is_foreign: bool) -> Self {
        Self { layers: Vec::new(), space: num, is_foreign }
    }

    pub(super) fn space(&self) -> u64 {
        self.space
    }

    /// What is right for the key of `number`.
    #[inline]
    pub(super) fn expect(&self, number: u64) -> Expectation {
        let mut may_exist = false;
        for layer in self.layers.iter().rev().filter(|layer| layer.covers(number)) {
            match layer.action {
                Action::Put { generation } => return Expectation { oldest: Some(generation), may_exist: true },
                Action::Delete => return Expectation { oldest: None, may_exist },
                Action::Scatter => may_exist = true,
            }
        }
        Expectation { oldest: None, may_exist: may_exist || self.is_foreign }
    }

    /// The first `count` of the keys below `size` in that order were put.
    pub(super) fn put(&mut self, size: u64, order: Order, count: u64, generation: u64) {
        if count >= size {
            self.layers.retain(|layer| layer.base + layer.size > size);
        }
        self.layers.push(Layer { base: 0, size, order, count, action: Action::Put { generation } });
    }

    /// As many keys were added behind all others.
    pub(super) fn extend(&mut self, count: u64, generation: u64) {
        let (base, action) = (self.space, Action::Put { generation });
        self.layers.push(Layer { base, size: count, order: Order::Ascending, count, action });
        self.space += count;
    }

    /// The first `count` of the keys below `size`, or of the ranges of such keys, in that order were deleted.
    pub(super) fn delete(&mut self, size: u64, order: Order, count: u64) {
        self.layers.push(Layer { base: 0, size, order, count, action: Action::Delete });
    }

    /// Keys were put, or will be, nobody knows which.
    pub(super) fn scatter(&mut self) {
        let size = self.space;
        self.layers.push(Layer { base: 0, size, order: Order::Ascending, count: size, action: Action::Scatter });
    }

    /// How many keys the store has; `None` if that is not known. Cost: a look at every key, unless there is room for too many.
    pub(super) fn live_keys(&self) -> Option<u64> {
        if self.space > COUNTED_KEYS_MAX {
            return None;
        }
        let mut live = 0;
        for number in 0..self.space {
            match self.expect(number) {
                Expectation { oldest: Some(_), .. } => live += 1,
                Expectation { may_exist: true, .. } => return None,
                Expectation { .. } => (),
            }
        }
        Some(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: Expectation = Expectation { oldest: None, may_exist: false };

    fn at_least(generation: u64) -> Expectation {
        Expectation { oldest: Some(generation), may_exist: true }
    }

    #[test]
    fn the_latest_to_touch_a_key_says_what_it_holds() {
        let mut known = Known::new(100, false);
        assert_eq!(known.expect(5), ABSENT);
        known.put(100, Order::Ascending, 10, 1);
        assert_eq!((known.expect(9), known.expect(10)), (at_least(1), ABSENT));
        let order = Order::Random(Permutation::new(100, 1));
        known.put(100, order, 100, 2);
        assert_eq!((known.expect(9), known.layers.len()), (at_least(2), 1));
        known.delete(100, order, 40);
        assert_eq!((known.expect(order.number(39)), known.expect(order.number(40))), (ABSENT, at_least(2)));
        assert_eq!(known.live_keys(), Some(60));
        known.extend(5, 3);
        assert_eq!((known.expect(104), known.expect(105), known.live_keys()), (at_least(3), ABSENT, Some(65)));
    }

    #[test]
    fn a_deleted_range_is_all_of_its_keys_and_the_last_may_be_shorter() {
        let mut known = Known::new(25, false);
        known.put(25, Order::Ascending, 25, 1);
        let order = Order::Ranges(Permutation::new(3, 1), 10);
        known.delete(25, order, 1);
        let first = order.number(0);
        let gone = first..25.min(first + 10);
        for number in 0..25 {
            let expected = if gone.contains(&number) { ABSENT } else { at_least(1) };
            assert_eq!(known.expect(number), expected, "{number} of {gone:?}");
        }
        known.delete(25, order, 3);
        assert_eq!(known.live_keys(), Some(0));
    }

    #[test]
    fn too_many_keys_are_not_counted() {
        let mut known = Known::new(COUNTED_KEYS_MAX + 1, false);
        known.put(COUNTED_KEYS_MAX + 1, Order::Ascending, 5, 1);
        assert_eq!((known.expect(4), known.live_keys()), (at_least(1), None));
    }

    #[test]
    fn what_was_written_at_random_may_be_anywhere() {
        let mut known = Known::new(10, false);
        known.put(10, Order::Ascending, 5, 1);
        known.scatter();
        let perhaps = Expectation { oldest: None, may_exist: true };
        assert_eq!((known.expect(4), known.expect(5), known.live_keys()), (at_least(1), perhaps, None));
        known.delete(10, Order::Ascending, 10);
        assert_eq!((known.expect(4), known.expect(5)), (ABSENT, ABSENT));
        assert_eq!(Known::new(10, true).expect(3), perhaps);
    }
}
