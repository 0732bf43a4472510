//! New keys, added behind all others by several threads at once.
//!
//! - F1: every key below `acknowledged` is in the store. Keys above it may be.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where the keys end.
#[derive(Debug)]
pub(super) struct Frontier {
    base: u64,
    next: AtomicU64,
    acknowledged: AtomicU64,
    /// Written, while a smaller one is not yet.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Frontier {
    /// Keys up to `base` are there.
    pub(super) fn new(base: u64) -> Self {
        let at_base = || AtomicU64::new(base);
        Self { base, next: at_base(), acknowledged: at_base(), ahead: Mutex::default() }
    }

    /// The first key that was new.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// A number for a new key, given out once.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The key of `number` is in the store.
    pub(super) fn acknowledge(&self, number: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.insert(number);
        let mut end = self.acknowledged.load(Ordering::Relaxed);
        while ahead.remove(&end) {
            end += 1;
        }
        self.acknowledged.store(end, Ordering::Release);
    }

    /// F1.
    #[inline]
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_gap_before_it_is_acknowledged() {
        let frontier = Frontier::new(10);
        assert_eq!((frontier.take(), frontier.take(), frontier.take()), (10, 11, 12));
        frontier.acknowledge(11);
        assert_eq!(frontier.acknowledged(), 10);
        frontier.acknowledge(10);
        assert_eq!(frontier.acknowledged(), 12);
        frontier.acknowledge(12);
        assert_eq!((frontier.acknowledged(), frontier.base()), (13, 10));
    }
}
