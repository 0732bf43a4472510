//! Prefixes of keys, as filters and options name them.
//!
//! | name                    | prefix of a key                                              |
//! |-------------------------|--------------------------------------------------------------|
//! | `rocksdb.FixedPrefix.n` | its first n bytes; a shorter key has none                    |
//! | `rocksdb.CappedPrefix.n`| its first n bytes, or all of it                              |
//!
//! Source: RocksDB `util/slice.cc`, whose releases before 6.29 also wrote `fixed:n` and `capped:n` in option files.

use std::fmt;

/// What of a key is its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrefixExtractor {
    /// The first bytes, so many; a shorter key has no prefix.
    Fixed(usize),
    /// The first bytes, so many, or all of a shorter key.
    Capped(usize),
}

impl PrefixExtractor {
    /// The extractor of that name; `None` for `nullptr` and for those of others.
    pub fn parse(name: &str) -> Option<Self> {
        let parts =
            [("rocksdb.FixedPrefix.", true), ("fixed:", true), ("rocksdb.CappedPrefix.", false), ("capped:", false)];
        parts.into_iter().find_map(|(begin, is_fixed)| {
            let count = name.strip_prefix(begin)?.parse().ok()?;
            Some(if is_fixed { Self::Fixed(count) } else { Self::Capped(count) })
        })
    }

    /// The longest prefix, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Fixed(count) | Self::Capped(count) => count,
        }
    }

    /// The prefix of `key`, if it has one.
    #[inline]
    pub fn of(self, key: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Fixed(count) => key.get(..count),
            Self::Capped(count) => Some(key.get(..count).unwrap_or(key)),
        }
    }

    /// The prefix that every key from `lower` on and before `upper` has, if they all have the same.
    pub fn of_range<'a>(self, lower: &'a [u8], upper: &[u8]) -> Option<&'a [u8]> {
        let prefix = lower.get(..self.bytes())?;
        let ends_within = match successor(prefix) {
            None => true,
            Some(beyond) => upper <= beyond.as_slice(),
        };
        ends_within.then_some(prefix)
    }
}

impl fmt::Display for PrefixExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(count) => write!(f, "rocksdb.FixedPrefix.{count}"),
            Self::Capped(count) => write!(f, "rocksdb.CappedPrefix.{count}"),
        }
    }
}

/// The first key after all that begin with `prefix`: the last byte that can be raised is, and nothing follows it. `None`
/// if every later key begins so.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let (byte, before) = prefix.get(..=last)?.split_last()?;
    Some([before, &[byte + 1]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rocksdbs() {
        for extractor in [PrefixExtractor::Fixed(8), PrefixExtractor::Capped(3)] {
            assert_eq!(PrefixExtractor::parse(&extractor.to_string()), Some(extractor));
        }
        assert_eq!(PrefixExtractor::Fixed(8).to_string(), "rocksdb.FixedPrefix.8");
        assert_eq!(PrefixExtractor::Capped(8).to_string(), "rocksdb.CappedPrefix.8");
        assert_eq!(PrefixExtractor::parse("fixed:5"), Some(PrefixExtractor::Fixed(5)));
        assert_eq!(PrefixExtractor::parse("capped:5"), Some(PrefixExtractor::Capped(5)));
        for other in ["nullptr", "", "rocksdb.Noop", "rocksdb.FixedPrefix", "rocksdb.FixedPrefix.-1", "fixed:x"] {
            assert_eq!(PrefixExtractor::parse(other), None, "{other}");
        }
    }

    #[test]
    fn short_keys_have_a_capped_prefix_and_no_fixed_one() {
        assert_eq!(PrefixExtractor::Fixed(3).of(b"abcd"), Some(&b"abc"[..]));
        assert_eq!(PrefixExtractor::Fixed(3).of(b"ab"), None);
        assert_eq!(PrefixExtractor::Capped(3).of(b"abcd"), Some(&b"abc"[..]));
        assert_eq!(PrefixExtractor::Capped(3).of(b"ab"), Some(&b"ab"[..]));
    }

    /// Every range of short keys over three bytes, against all keys that lie in it.
    #[test]
    fn a_range_has_a_prefix_only_if_all_its_keys_do() {
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..3 {
            let longer = keys.iter().flat_map(|key| [0, 7, 0xff].map(|byte| [key.as_slice(), &[byte]].concat()));
            keys = longer.chain(keys.iter().cloned()).collect();
            keys.sort();
            keys.dedup();
        }
        let mut found = 0;
        for extractor in [1, 2].into_iter().flat_map(|n| [PrefixExtractor::Fixed(n), PrefixExtractor::Capped(n)]) {
            for (lower, upper) in keys.iter().flat_map(|lower| keys.iter().map(move |upper| (lower, upper))) {
                let Some(prefix) = extractor.of_range(lower, upper) else { continue };
                found += 1;
                for key in keys.iter().filter(|key| *key >= lower && *key < upper) {
                    assert_eq!(extractor.of(key), Some(prefix), "{extractor}: {key:?} in {lower:?}..{upper:?}");
                }
            }
        }
        assert!(found > 500, "{found}");
        let beyond = successor(b"ab").unwrap();
        assert_eq!(PrefixExtractor::Fixed(2).of_range(b"ab", &beyond), Some(&b"ab"[..]));
        assert_eq!(PrefixExtractor::Fixed(2).of_range(b"ab", b"ac\0"), None);
        assert_eq!(PrefixExtractor::Fixed(3).of_range(b"ab", b"ac"), None);
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
    }
}
