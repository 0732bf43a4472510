//! Orders of keys: which one a family has, its name says.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use esker::{BytewiseComparator, Comparator, ReverseBytewiseComparator};

/// Short keys before long ones, those of a length backward.
pub struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "torture.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| b.cmp(a))
    }
}

/// The order of a family of this name, in every test.
pub fn comparator_of(family: &str) -> &'static dyn Comparator {
    match family {
        "reversed" => &ReverseBytewiseComparator,
        "by_length" => &ByLength,
        _ => &BytewiseComparator,
    }
}

/// Whether `key` lies from `begin` on and before `end` in that family.
pub fn is_within(family: &str, key: &[u8], begin: &[u8], end: &[u8]) -> bool {
    let order = comparator_of(family);
    order.compare(begin, key).is_le() && order.compare(key, end).is_lt()
}

/// What a family of this name holds, as it shows it.
pub fn entries<V: Clone>(family: &str, contents: &BTreeMap<Vec<u8>, V>) -> Vec<(Vec<u8>, V)> {
    let mut entries: Vec<_> = contents.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    entries.sort_by(|(a, _), (b, _)| comparator_of(family).compare(a, b));
    entries
}
