//! Which separated values are worth memory: all while there is room, then those that are read a second time soon.
//!
//! Most values of a large store are read once and then not for long. Keeping each would push out others that are no worse, and
//! blocks of tables, of which each serves many keys; remembering that one was read costs two bytes.
//!
//! - A1: a wrong answer costs a read or some memory, nothing else: marks are lost whenever two values share a place.

use std::sync::atomic::{AtomicU16, Ordering};

/// One place for so many bytes of the cache: a value that is read again before about as many others of its length were that the cache
/// could hold is admitted. Longer ones share places in the same measure.
const BYTES_PER_PLACE: u64 = 1 << 10;
const PLACES_MIN: u64 = 1 << 10;
const PLACES_MAX: u64 = 1 << 20;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Admission {
    /// What was read last of all that share a place; a power of two of them.
    marks: Box<[AtomicU16]>,
}

impl Admission {
    /// For a cache of that capacity.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let places = (capacity_bytes / BYTES_PER_PLACE).clamp(PLACES_MIN, PLACES_MAX).next_power_of_two();
        Self { marks: (0..places).map(|_| AtomicU16::new(0)).collect() }
    }

    /// Notes that the value of so many bytes with this hash was read; whether it was before, not long ago.
    pub(super) fn is_read_again(&self, hash: u64, bytes: u64) -> bool {
        let places_each = (bytes / BYTES_PER_PLACE).max(1).ilog2();
        let place = hash as usize & (self.marks.len() >> places_each).saturating_sub(1);
        // Of other bits than the place; 0 marks nothing.
        let mark = (hash >> 48) as u16 | 1;
        self.marks.get(place).is_some_and(|last| {
            let is_known = last.load(Ordering::Relaxed) == mark;
            if !is_known {
                last.store(mark, Ordering::Relaxed);
            }
            is_known
        })
    }

    /// Memory that it takes: a five-hundredth of the cache's.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn what_is_read_again_soon_is_told_from_what_is_not() {
        let admission = Admission::new(1 << 20);
        assert_eq!(admission.memory_bytes(), 2 << 10);
        let again = |n| admission.is_read_again(hash(n), 1000);
        assert!((0..50).filter(|&n| again(n)).count() == 0);
        assert!((0..50).filter(|&n| again(n)).count() > 45);
        for n in 1000..20_000 {
            again(n);
        }
        assert!((0..50).filter(|&n| again(n)).count() < 5, "long ago");
    }

    #[test]
    fn of_long_values_fewer_are_remembered() {
        let admission = Admission::new(1 << 20);
        for (bytes, between, is_admitted) in [(16 << 10, 20, true), (16 << 10, 500, false), (1 << 10, 500, true)] {
            let again = |n| admission.is_read_again(hash(n), bytes);
            let admitted: usize = (0..100)
                .map(|round| {
                    let first = 10_000 * round;
                    again(first);
                    let _ = (1..between).filter(|n| again(first + n)).count();
                    usize::from(again(first))
                })
                .sum();
            assert_eq!(admitted > 50, is_admitted, "{bytes} {between} {admitted}");
        }
        assert!(!admission.is_read_again(hash(1), u64::MAX));
    }
}
