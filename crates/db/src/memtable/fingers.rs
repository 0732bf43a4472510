//! Where in the skip list to begin a search: of every fourth node the first bytes of its key, in one array.
//!
//! A search in the list waits for memory at each node that it comes by. The array is small enough for the processor's cache, and
//! a search in it leads to a node a few steps before the place; so the list's upper levels are not touched. It is made anew when
//! twice as many nodes are there; what came since lies between its nodes, and is met by the steps.
//!
//! - F1: a place that is given out is that of a key before the one asked for. Which of them it is decides how fast, never
//!   what, is found.
//!
//! Cost: 16 bytes for every fourth entry, and as much again for those made before; a key in four comes by each node
//! once in a while, some milliseconds for 100,000 entries.

use esker_format::rocksdb::order::head;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Fingers<P> {
    /// What all keys began with: says nothing about their order.
    common: Vec<u8>,
    /// The next eight bytes of each key, ascending.
    prefixes: Vec<u64>,
    places: Vec<P>,
}

impl<P: Copy> Fingers<P> {
    /// `nodes` have ascending keys.
    pub(super) fn new(nodes: &[(&[u8], P)]) -> Self {
        let (first, last) = (nodes.first().map_or(&[][..], |node| node.0), nodes.last().map_or(&[][..], |node| node.0));
        let shared = first.iter().zip(last).take_while(|(first, last)| first == last).count();
        let common = first.get(..shared).unwrap_or_default().to_vec();
        let prefixes = nodes.iter().map(|(key, _)| head(key.get(shared..).unwrap_or_default())).collect();
        Self { common, prefixes, places: nodes.iter().map(|node| node.1).collect() }
    }

    /// A node with a key before `key`, the last of those that the first bytes tell; `None` if they tell of none (F1).
    #[inline]
    pub(super) fn before(&self, key: &[u8]) -> Option<P> {
        let rest = key.strip_prefix(&self.common[..])?;
        let prefix = head(rest);
        // Strictly: keys with the same first bytes may be on either side.
        let count = self.prefixes.partition_point(|&known| known < prefix);
        self.places.get(count.checked_sub(1)?).copied()
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.prefixes.capacity() * size_of::<u64>() + self.places.capacity() * size_of::<P>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_that_of_the_last_key_that_is_surely_before() {
        let keys: [&[u8]; 7] = [b"ab", b"ab\0", b"abc", b"abcdefghij", b"abcdefghijk", b"abd", b"abz"];
        let nodes: Vec<_> = keys.iter().enumerate().map(|(index, &key)| (key, index)).collect();
        let fingers = Fingers::new(&nodes);
        for (key, expected) in [
            (&b"ab"[..], None),
            (b"ab\0", None),
            (b"ab\x01", Some(1)),
            (b"abcdefghij", Some(2)),
            (b"abcdefghijk", Some(2)),
            (b"abcdefghik", Some(4)),
            (b"abce", Some(4)),
            (b"abzz", Some(6)),
            (b"a", None),
            (b"b", None),
            (b"", None),
        ] {
            assert_eq!(fingers.before(key), expected, "{key:?}");
            assert!(expected.is_none_or(|place| keys[place] < key));
        }
        assert!(Fingers::<u8>::new(&[]).before(b"key").is_none());
    }
}
