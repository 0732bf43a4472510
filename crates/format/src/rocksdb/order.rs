//! In which order the keys of a column family lie.
//!
//! Source: RocksDB `include/rocksdb/comparator.h`, `util/comparator.cc`, `db/dbformat.cc`.

use std::cmp::Ordering;
use std::fmt;

use super::internal_key::{self, SEEK_KIND_TAG, user_key};
use crate::limits;

/// An order of keys that a program gives a column family (RocksDB's `Comparator`).
///
/// The order is total, never changes, and calls two keys equal only if their bytes are: files are written by it. Where it contradicts itself, or what it
/// said when they were written, keys are not found, and calls may panic. It is asked by many threads at once, and must not panic.
///
/// ```
/// use std::cmp::Ordering;
///
/// use esker_format::rocksdb::order::Comparator;
///
/// /// Short keys before long ones.
/// struct ByLength;
///
/// impl Comparator for ByLength {
///     fn name(&self) -> &str {
///         "example.ByLength"
///     }
///     fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
///         a.len().cmp(&b.len()).then_with(|| a.cmp(b))
///     }
/// }
///
/// assert!(ByLength.compare(b"z", b"aa").is_lt());
/// ```
pub trait Comparator: Send + Sync {
    /// Its name, which each file keeps: another one is refused. Change it with the order.
    fn name(&self) -> &str;

    /// How `a` lies to `b`. Called for each step of each search.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
}

impl dyn Comparator {
    /// RocksDB's own of that name, as OPTIONS files have it; `None` if there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        let of_rocksdb: [&'static Self; 2] = [&BytewiseComparator, &ReverseBytewiseComparator];
        of_rocksdb.into_iter().find(|comparator| comparator.name() == name)
    }
}

impl fmt::Debug for dyn Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comparator({})", self.name())
    }
}

/// Keys by their bytes, ascending: what every family has that is given no other order.
#[derive(Debug, Clone, Copy)]
pub struct BytewiseComparator;

impl BytewiseComparator {
    const NAME: &str = "leveldb.BytewiseComparator";
}

impl Comparator for BytewiseComparator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        by_bytes(a, b)
    }
}

/// Keys by their bytes, descending: RocksDB's own `ReverseBytewiseComparator`.
#[derive(Debug, Clone, Copy)]
pub struct ReverseBytewiseComparator;

impl Comparator for ReverseBytewiseComparator {
    fn name(&self) -> &str {
        "rocksdb.ReverseBytewiseComparator"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        by_bytes(b, a)
    }
}

/// The order of one family's keys. Bytewise, no call is made for a comparison.
#[derive(Clone, Copy, Default)]
pub struct Order(Option<&'static dyn Comparator>);

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({})", self.name())
    }
}

impl PartialEq for Order {
    /// By name: it stands for the order.
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Order {}

impl Order {
    /// By bytes, ascending.
    pub const BYTEWISE: Self = Self(None);

    /// The order that `comparator` tells.
    pub fn new(comparator: &'static dyn Comparator) -> Self {
        Self((comparator.name() != BytewiseComparator::NAME).then_some(comparator))
    }

    /// Whether it is [`BYTEWISE`](Self::BYTEWISE).
    #[inline]
    pub const fn is_bytewise(self) -> bool {
        self.0.is_none()
    }

    /// Who tells it.
    pub fn comparator(self) -> &'static dyn Comparator {
        self.0.unwrap_or(&BytewiseComparator)
    }

    /// As files name it.
    pub fn name(self) -> &'static str {
        self.0.map_or(BytewiseComparator::NAME, Comparator::name)
    }

    /// How user keys lie. Cost: bytewise, no call where the first eight bytes tell.
    #[inline]
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self.0 {
            None => by_bytes(a, b),
            Some(comparator) => comparator.compare(a, b),
        }
    }

    /// How internal keys lie. Total: what is shorter than a tag counts as the empty user key with tag 0.
    #[inline]
    pub fn compare_internal(self, a: &[u8], b: &[u8]) -> Ordering {
        let ((a_key, a_tag), (b_key, b_tag)) = (internal_key::split(a), internal_key::split(b));
        self.compare(a_key, b_key).then_with(|| b_tag.cmp(&a_tag))
    }

    /// Whether user key `a` lies before `b`.
    #[inline]
    pub fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        self.compare(a, b).is_lt()
    }

    /// The earlier of two user keys.
    #[inline]
    pub fn earlier<'a>(self, a: &'a [u8], b: &'a [u8]) -> &'a [u8] {
        if self.is_before(b, a) { b } else { a }
    }

    /// The later of two user keys.
    #[inline]
    pub fn later<'a>(self, a: &'a [u8], b: &'a [u8]) -> &'a [u8] {
        if self.is_before(a, b) { b } else { a }
    }

    /// A number that lies to that of another key as the keys do, or is the same: keys whose numbers differ need not be compared.
    #[inline]
    pub fn head(self, user_key: &[u8]) -> u64 {
        match self.0 {
            None => head(user_key),
            Some(_) => 0,
        }
    }

    /// A short internal key `s` with `start <= s < limit`, for the index entry between two blocks. `start < limit` must hold.
    pub fn shortest_separator(self, start: &[u8], limit: &[u8]) -> Vec<u8> {
        match self.0 {
            None => {
                let (from, to) = (user_key(start), user_key(limit));
                raised(start, shortest_user_separator(from, to))
            }
            Some(_) => start.to_vec(),
        }
    }

    /// A short internal key that is not before `key`, for the index entry after the last block.
    pub fn shortest_successor(self, key: &[u8]) -> Vec<u8> {
        match self.0 {
            None => raised(key, short_user_successor(user_key(key))),
            Some(_) => key.to_vec(),
        }
    }
}

/// By bytes. Cost: no call where the first eight bytes tell.
#[inline]
fn by_bytes(a: &[u8], b: &[u8]) -> Ordering {
    if let (Some(x), Some(y)) = (a.first_chunk(), b.first_chunk()) {
        let (x, y) = (u64::from_be_bytes(*x), u64::from_be_bytes(*y));
        if x != y {
            return x.cmp(&y);
        }
    }
    a.cmp(b)
}

/// The first eight bytes, as a number that lies to that of another key as they do by their bytes, or is the same. A key that is too short is filled up with
/// zeroes: no byte is lower.
#[inline]
pub fn head(user_key: &[u8]) -> u64 {
    if let Some(first) = user_key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut filled = [0; 8];
    filled.iter_mut().zip(user_key).for_each(|(place, byte)| *place = *byte);
    u64::from_be_bytes(filled)
}

/// A short user key `s` with `start <= s < limit`, or `start` if there is no shorter one (or `start >= limit`).
fn shortest_user_separator(start: &[u8], limit: &[u8]) -> Vec<u8> {
    let common = start.iter().zip(limit).take_while(|(a, b)| a == b).count();
    let (Some(&start_byte), Some(&limit_byte)) = (start.get(common), limit.get(common)) else {
        // One is the beginning of the other.
        return start.to_vec();
    };
    if start_byte >= limit_byte {
        return start.to_vec();
    }
    if common + 1 < limit.len() || start_byte + 1 < limit_byte {
        return cut_and_raised(start, common);
    }
    // Raising this byte would reach the limit; raise a later one instead.
    match start.iter().skip(common + 1).position(|&byte| byte != 0xff) {
        Some(after) => cut_and_raised(start, common + 1 + after),
        None => start.to_vec(),
    }
}

/// A short user key that is not before `key`.
fn short_user_successor(key: &[u8]) -> Vec<u8> {
    match key.iter().position(|&byte| byte != 0xff) {
        Some(index) => cut_and_raised(key, index),
        None => key.to_vec(),
    }
}

/// `key` up to and with the byte at `index`, which is raised by one.
fn cut_and_raised(key: &[u8], index: usize) -> Vec<u8> {
    let mut cut: Vec<u8> = key.iter().take(index + 1).copied().collect();
    if let Some(last) = cut.last_mut() {
        *last = last.saturating_add(1);
    }
    cut
}

/// `short` with the tag that sorts first, if it is after the user key of `internal`; else `internal`.
fn raised(internal: &[u8], mut short: Vec<u8>) -> Vec<u8> {
    let start = user_key(internal);
    if short.len() > start.len() || short.as_slice() <= start {
        return internal.to_vec();
    }
    short.extend_from_slice(&(limits::SEQUENCE_MAX << 8 | u64::from(SEEK_KIND_TAG)).to_le_bytes());
    short
}

#[cfg(test)]
mod tests;
