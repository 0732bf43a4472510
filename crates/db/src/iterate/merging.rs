//! Several sorted runs as one.
//!
//! - M1: `heap` holds the children that are valid; its first is the one with the smallest key (largest, going backward).
//! - M2: going forward, every other child stands after the first one's key; going backward, before it.
//! - M3: a run's head is that of the key its child stands at.
//!
//! Cost of a step: one step of a child and `log2(children)` comparisons, fewer while the same child stays in front. Only those of keys
//! whose first eight bytes are the same look at the keys.

use std::cmp::Ordering;
use std::path::Path;

use esker_format::rocksdb::internal_key::{self, SequenceNumber};
use esker_format::rocksdb::order::Order;

use super::{Bounds, InternalIterator};
use crate::Result;
use crate::pinned::PinnedSlice;

/// See the module's head.
pub(crate) struct MergingIterator {
    children: Vec<Box<dyn InternalIterator>>,
    heap: Vec<Run>,
    forward: bool,
    order: Order,
}

/// A child that is valid.
#[derive(Clone, Copy)]
struct Run {
    child: usize,
    /// See [`Order::head`].
    head: u64,
}

impl Run {
    #[inline]
    fn of(child: usize, iterator: &dyn InternalIterator, order: Order) -> Self {
        Self { child, head: order.head(internal_key::user_key(iterator.key())) }
    }
}

#[derive(Clone, Copy)]
enum Seek<'a> {
    First,
    Last,
    AtOrAfter(&'a [u8]),
    AtOrBefore(&'a [u8]),
}

impl MergingIterator {
    /// Of runs of keys in `order`.
    pub(crate) fn new(order: Order, children: Vec<Box<dyn InternalIterator>>) -> Self {
        let heap = Vec::with_capacity(children.len());
        Self { children, heap, forward: true, order }
    }

    /// Whether `a` goes before `b`.
    fn goes_before(&self, a: Run, b: Run) -> bool {
        let key = |run: Run| self.children.get(run.child).map_or(&[][..], |child| child.key());
        let order = a.head.cmp(&b.head).then_with(|| self.order.compare_internal(key(a), key(b)));
        order == if self.forward { Ordering::Less } else { Ordering::Greater }
    }

    fn sift_down(&mut self, mut position: usize) {
        let Some(&moved) = self.heap.get(position) else { return };
        loop {
            let left = 2 * position + 1;
            let Some(&(mut run)) = self.heap.get(left) else { return };
            let mut best = left;
            if let Some(&right) = self.heap.get(left + 1)
                && self.goes_before(right, run)
            {
                (best, run) = (left + 1, right);
            }
            if !self.goes_before(run, moved) {
                return;
            }
            self.heap.swap(position, best);
            position = best;
        }
    }

    /// Restores M1 after all children moved.
    fn rebuild(&mut self) {
        self.heap.clear();
        let valid = self.children.iter().enumerate().filter(|(_, child)| child.valid());
        self.heap.extend(valid.map(|(index, child)| Run::of(index, &**child, self.order)));
        for position in (0..self.heap.len() / 2).rev() {
            self.sift_down(position);
        }
    }

    fn seek_all(&mut self, seek: Seek<'_>) -> Result<()> {
        self.heap.clear();
        self.forward = matches!(seek, Seek::First | Seek::AtOrAfter(_));
        for child in &mut self.children {
            match seek {
                Seek::First => child.seek_to_first()?,
                Seek::Last => child.seek_to_last()?,
                Seek::AtOrAfter(target) => child.seek(target)?,
                Seek::AtOrBefore(target) => child.seek_for_prev(target)?,
            }
        }
        self.rebuild();
        Ok(())
    }

    /// Restores M2 for the other direction; the current entry stays current.
    fn turn(&mut self, forward: bool) -> Result<()> {
        let Some(&Run { child: current, .. }) = self.heap.first() else { return Ok(()) };
        let key = self.key().to_vec();
        let mut turned = Ok(());
        for (index, child) in self.children.iter_mut().enumerate() {
            if index == current || turned.is_err() {
                continue;
            }
            turned = if forward { child.seek(&key) } else { child.seek_for_prev(&key) };
            // Two runs never hold the same internal key, but a damaged store may.
            if turned.is_ok() && child.valid() && child.key() == key.as_slice() {
                turned = if forward { child.next() } else { child.prev() };
            }
        }
        if turned.is_err() {
            self.heap.clear();
            return turned;
        }
        self.forward = forward;
        self.rebuild();
        // The rebuilt heap has the current entry first again: all others lie beyond it.
        Ok(())
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        if self.forward != forward {
            self.turn(forward)?;
        }
        let Some(front) = self.heap.first_mut() else { return Ok(()) };
        let Some(child) = self.children.get_mut(front.child) else { return Ok(()) };
        let moved = if forward { child.next() } else { child.prev() };
        if let Err(error) = moved {
            self.heap.clear();
            return Err(error);
        }
        if child.valid() {
            *front = Run::of(front.child, &**child, self.order);
        } else {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Of its keys.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    fn first(&self) -> Option<&dyn InternalIterator> {
        self.heap.first().and_then(|run| self.children.get(run.child)).map(|child| &**child)
    }
}

impl InternalIterator for MergingIterator {
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_all(Seek::First)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_all(Seek::Last)
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.seek_all(Seek::AtOrAfter(target))
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        self.seek_all(Seek::AtOrBefore(target))
    }

    fn next(&mut self) -> Result<()> {
        self.step(true)
    }

    fn prev(&mut self) -> Result<()> {
        self.step(false)
    }

    fn skip(&mut self, sequence: SequenceNumber, bounds: Bounds<'_>, forward: bool) -> Result<bool> {
        let mut is_moved = false;
        for child in self.children.iter_mut().filter(|child| child.valid()) {
            match child.skip(sequence, bounds, forward) {
                Ok(moved) => is_moved |= moved,
                Err(error) => {
                    self.heap.clear();
                    return Err(error);
                }
            }
        }
        if is_moved {
            self.rebuild();
        }
        Ok(is_moved)
    }

    fn key(&self) -> &[u8] {
        self.first().map_or(&[], |child| child.key())
    }

    fn value(&self) -> &[u8] {
        self.first().map_or(&[], |child| child.value())
    }

    fn pinned_value(&self) -> PinnedSlice {
        self.first().map(|child| child.pinned_value()).unwrap_or_default()
    }

    fn place(&self) -> Option<(&Path, Option<u64>)> {
        self.first()?.place()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_format::rocksdb::internal_key::ValueKind;
    use fastrand::Rng;

    use super::*;
    use crate::memtable::Memtable;

    /// Goal: runs come in the order of their keys, from either end and from any key, though first bytes are the same, fewer than eight, or zeroes.
    #[test]
    fn keys_that_begin_alike_or_are_short_come_in_their_order() {
        for seed in 0..200 {
            let mut random = Rng::with_seed(seed);
            let runs: Vec<_> = (0..random.usize(1..6)).map(|_| Arc::new(Memtable::default())).collect();
            let mut all = Vec::new();
            for sequence in 1..random.u64(2..60) {
                let user_key: Vec<u8> =
                    (0..random.usize(0..12)).map(|_| *random.choice(&[0, 1, 255]).unwrap()).collect();
                let sequence = SequenceNumber::new(sequence);
                random.choice(&runs).unwrap().add(sequence, ValueKind::Value, &user_key, b"");
                let mut key = Vec::new();
                internal_key::append(&mut key, &user_key, sequence, ValueKind::Value);
                all.push(key);
            }
            all.sort_by(|a, b| Order::BYTEWISE.compare_internal(a, b));
            let children = runs.iter().map(|run| Box::new(run.iter()) as Box<dyn InternalIterator>);
            let mut merged = MergingIterator::new(Order::BYTEWISE, children.collect());
            let start = random.usize(..all.len());
            merged.seek(&all[start]).unwrap();
            let mut at = start;
            // There and back, with turns.
            while merged.valid() && at < all.len() {
                assert_eq!(merged.key(), all[at], "seed {seed}, entry {at}");
                if at > 0 && random.u8(..3) == 0 {
                    merged.prev().unwrap();
                    at -= 1;
                    assert_eq!(merged.key(), all[at], "seed {seed}, entry {at}, backward");
                    merged.next().unwrap();
                    at += 1;
                }
                merged.next().unwrap();
                at += 1;
            }
            assert!(at == all.len() && !merged.valid(), "seed {seed}");
            merged.seek_to_last().unwrap();
            for key in all.iter().rev() {
                assert_eq!(merged.key(), key, "seed {seed}, from the end");
                merged.prev().unwrap();
            }
            assert!(!merged.valid());
        }
    }
}
