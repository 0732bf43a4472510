//! Finds a key in a block without putting keys together on the way.
//!
//! After a binary search over the restarts, entries are passed one by one until one is not before the target. Of the last
//! entry that was passed it is enough to know how many bytes its key has in common with the target: an entry that shares more
//! than those with it is before the target too, and the bytes of any other begin as the target does.
//!
//! - S1: `passed.decided`: the byte after those `in_common` exists in both user keys and is less in the entry's.
//! - S2: otherwise the whole key of the entry that was passed is in the cursor.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::DecodeError;
use crate::rocksdb::internal_key;
use crate::rocksdb::order::Order;

use super::cursor::{BlockCursor, shares_too_much};

/// How the keys of a block are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// As user keys.
    User(Order),
    /// As internal keys: see [`internal_key`].
    Internal(Order),
}

impl KeyOrder {
    /// By bytes.
    pub const BYTES: Self = Self::User(Order::BYTEWISE);

    /// The part that is compared as a user key, and the tag that tells versions of it apart, the highest first.
    #[inline(always)]
    fn split(self, key: &[u8]) -> (&[u8], u64) {
        match self {
            Self::User(_) => (key, 0),
            Self::Internal(_) => (internal_key::user_key(key), internal_key::tag(key)),
        }
    }

    #[inline(always)]
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::User(order) => order.compare(a, b),
            Self::Internal(order) => order.compare_internal(a, b),
        }
    }

    #[inline(always)]
    const fn is_bytewise(self) -> bool {
        let (Self::User(order) | Self::Internal(order)) = self;
        order.is_bytewise()
    }
}

/// The last entry that was passed.
struct Passed {
    key_bytes: usize,
    in_common: usize,
    decided: bool,
}

/// How an entry's key lies to the target.
struct Judgement {
    order: Ordering,
    in_common: usize,
    /// See S1.
    decided: bool,
}

/// Judges an entry whose user key begins with `begin` bytes of `wanted` and goes on with `rest`.
#[inline(always)]
fn judge(begin: usize, rest: &[u8], tag: u64, wanted: &[u8], wanted_tag: u64) -> Judgement {
    let wanted_rest = wanted.get(begin..).unwrap_or_default();
    let common = common_bytes(rest, wanted_rest);
    let in_common = begin + common;
    let (order, decided) = match (rest.get(common), wanted_rest.get(common)) {
        (Some(byte), Some(wanted_byte)) => (byte.cmp(wanted_byte), true),
        (None, Some(_)) => (Ordering::Less, false),
        (Some(_), None) => (Ordering::Greater, false),
        (None, None) => (wanted_tag.cmp(&tag), false),
    };
    Judgement { order, in_common, decided }
}

/// How many bytes both begin with.
#[inline(always)]
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let mut common = 0;
    loop {
        let (a, b) = (a.get(common..).unwrap_or_default(), b.get(common..).unwrap_or_default());
        let (Some(x), Some(y)) = (a.first_chunk::<8>(), b.first_chunk::<8>()) else {
            return common + a.iter().zip(b).take_while(|(a, b)| a == b).count();
        };
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return common + (differing.trailing_zeros() / 8) as usize;
        }
        common += 8;
    }
}

impl BlockCursor {
    /// To the first entry whose key is not before `target`.
    ///
    /// Cost: a binary search over the restarts, then at most one restart interval of entries.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek(&mut self, block: &[u8], target: &[u8], order: KeyOrder) -> Result<(), DecodeError> {
        self.seek_within(block, target, order, 0..self.layout.restart_count)
    }

    /// As [`seek`](Self::seek) for one who knows part of the answer: the restarts before `restarts` are before `target`,
    /// those behind it are not. A wrong range gives a wrong entry, nothing worse.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek_within(
        &mut self,
        block: &[u8],
        target: &[u8],
        order: KeyOrder,
        restarts: Range<usize>,
    ) -> Result<(), DecodeError> {
        self.valid = false;
        // Before `low`, or at it, lies a restart before `target` (or none does); from `high` on, none does.
        let mut high = restarts.end.min(self.layout.restart_count);
        let mut low = restarts.start.saturating_sub(1).min(high.saturating_sub(1));
        while high.saturating_sub(low) > 1 {
            let middle = low + (high - low) / 2;
            if order.compare(self.restart_key(block, middle)?, target) == Ordering::Less {
                low = middle;
            } else {
                high = middle;
            }
        }
        let at = if high == 0 { 0 } else { self.layout.restart(block, low)? };
        self.restart_at(at);
        if !order.is_bytewise() {
            return self.pass_whole(block, target, order);
        }
        self.pass(block, target, order, Passed { key_bytes: 0, in_common: 0, decided: true })
    }

    /// From the entry at `at` on to the first that is not before `target`. The key of that entry begins with `known`, and shares
    /// no more than that with the one before it.
    #[inline]
    pub(super) fn pass_from(
        &mut self,
        block: &[u8],
        target: &[u8],
        at: usize,
        known: [&[u8]; 2],
    ) -> Result<(), DecodeError> {
        self.restart_at(at);
        known.iter().for_each(|part| self.key.extend_from_slice(part));
        // S2, of a key that may be longer than that.
        let passed = Passed { key_bytes: self.key.len(), in_common: 0, decided: false };
        self.pass(block, target, KeyOrder::Internal(Order::BYTEWISE), passed)
    }

    /// From the restart at `next` on to the first entry that is not before `target`, whose bytes say nothing of where it lies.
    #[cold]
    fn pass_whole(&mut self, block: &[u8], target: &[u8], order: KeyOrder) -> Result<(), DecodeError> {
        while self.step(block)? && order.compare(&self.key, target).is_lt() {}
        Ok(())
    }

    /// From `next` on, after an entry was passed (or none, at a restart), to the first entry that is not before `target`.
    #[inline]
    fn pass(&mut self, block: &[u8], target: &[u8], order: KeyOrder, mut passed: Passed) -> Result<(), DecodeError> {
        let entries = block.get(..self.layout.entries_bytes()).unwrap_or_default();
        let (wanted, wanted_tag) = order.split(target);
        let tag_bytes = if matches!(order, KeyOrder::Internal(_)) { internal_key::TAG_BYTES } else { 0 };
        while self.next < entries.len() {
            let at = self.next;
            let entry = self.entry(entries, at)?;
            let (shared, unshared) = (entry.shared, entry.unshared);
            if shared > passed.key_bytes {
                return Err(shares_too_much(at));
            }
            let key_bytes = shared + unshared.len();
            let user_key_bytes = key_bytes.saturating_sub(tag_bytes);
            if passed.decided && shared > passed.in_common {
                if user_key_bytes <= passed.in_common {
                    return Err(DecodeError::corrupt("key", at as u64, "it is before the key before"));
                }
                (passed.key_bytes, self.next) = (key_bytes, entry.value.end);
                continue;
            }
            // Where the tag begins before the bytes that are not shared, the whole key is needed to find it.
            let in_parts = passed.decided && shared <= user_key_bytes && key_bytes >= tag_bytes;
            if !in_parts && passed.decided {
                self.put_together(wanted, shared, unshared);
            } else if !in_parts {
                self.key.truncate(shared);
                self.key.extend_from_slice(unshared);
            }
            let (begin, part) = if in_parts { (shared, unshared) } else { (0, self.key.as_slice()) };
            let (rest, tag) = order.split(part);
            let found = judge(begin, rest, tag, wanted, wanted_tag);
            if in_parts && (found.order != Ordering::Less || !found.decided) {
                self.put_together(wanted, shared, unshared);
            }
            if found.order != Ordering::Less {
                self.stand_on(at, entry.value);
                return Ok(());
            }
            passed = Passed { key_bytes, in_common: found.in_common, decided: found.decided };
            self.next = entry.value.end;
        }
        Ok(())
    }

    /// The key that begins as `wanted` does and ends with `unshared`.
    #[inline(always)]
    fn put_together(&mut self, wanted: &[u8], shared: usize, unshared: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(wanted.get(..shared).unwrap_or_default());
        self.key.extend_from_slice(unshared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_common_are_counted_across_words() {
        for len in 0..40usize {
            for differing in 0..=len {
                let a: Vec<u8> = (0..len as u8).collect();
                let mut b = a.clone();
                if let Some(byte) = b.get_mut(differing) {
                    *byte ^= 0x80;
                }
                assert_eq!(common_bytes(&a, &b), differing);
                assert_eq!(common_bytes(&a, &a[..differing]), differing);
            }
        }
    }
}
