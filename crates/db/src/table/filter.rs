//! The filter of an open table: of whole keys, of prefixes, or of both, as the table's properties say.

use esker_format::rocksdb::filter;
use esker_format::rocksdb::prefix::PrefixExtractor;
use esker_format::rocksdb::table::TableProperties;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// Empty if there is none that can be used.
    bytes: Vec<u8>,
    has_keys: bool,
    prefixes: Option<PrefixExtractor>,
}

impl Filter {
    /// Whether a table with these properties has a filter that can be used.
    pub(super) fn is_usable(properties: &TableProperties) -> bool {
        properties.has_whole_key_filter() || properties.filtered_prefixes().is_some()
    }

    /// What `bytes` are in a table with these properties.
    pub(super) fn new(bytes: Vec<u8>, properties: &TableProperties) -> Self {
        // A Ribbon filter, say, denies nothing: that is no word for a key, nor worth its memory.
        let bytes = if filter::is_understood(&bytes) { bytes } else { Vec::new() };
        Self { bytes, has_keys: properties.has_whole_key_filter(), prefixes: properties.filtered_prefixes() }
    }

    /// Whether it knows of whole keys.
    pub(super) fn has_keys(&self) -> bool {
        self.has_keys && !self.bytes.is_empty()
    }

    /// Whether the table may hold `user_key`.
    #[inline]
    pub(super) fn may_hold(&self, user_key: &[u8]) -> bool {
        if self.has_keys {
            return filter::may_contain(&self.bytes, user_key);
        }
        self.may_hold_prefix_of(user_key)
    }

    /// Whether the table may hold a key with the prefix of `user_key`.
    pub(super) fn may_hold_prefix_of(&self, user_key: &[u8]) -> bool {
        let prefix = self.prefixes.and_then(|prefixes| prefixes.of(user_key));
        prefix.is_none_or(|prefix| filter::may_contain(&self.bytes, prefix))
    }

    /// Whether the table may hold a key from `lower` on and before `upper`.
    pub(super) fn may_hold_range(&self, lower: &[u8], upper: &[u8]) -> bool {
        let prefix = self.prefixes.and_then(|prefixes| prefixes.of_range(lower, upper));
        prefix.is_none_or(|prefix| filter::may_contain(&self.bytes, prefix))
    }

    /// Memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use esker_format::rocksdb::filter::FilterBuilder;

    use super::*;

    /// Goal: of a Ribbon filter, say, nobody believes that it has a key only because it does not deny it.
    #[test]
    fn a_filter_that_is_not_understood_knows_of_no_key() {
        let mut builder = FilterBuilder::new(10.0).unwrap();
        builder.add(b"there");
        let bytes = builder.finish();
        let of = |bytes: Vec<u8>| Filter::new(bytes, &TableProperties::default());
        let understood = of(bytes.clone());
        assert!(understood.has_keys() && understood.may_hold(b"there") && !understood.may_hold(b"missing"));
        let marker = bytes.len() - 5;
        for raw in [0xfe, 7] {
            let mut other = bytes.clone();
            other[marker] = raw;
            let other = of(other);
            assert!(!other.has_keys() && other.may_hold(b"there") && other.may_hold(b"missing"));
            assert_eq!(other.memory_bytes(), 0);
        }
        assert!(!of(Vec::new()).has_keys());
    }
}
