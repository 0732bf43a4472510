//! A section: what it is about, and its statements.

use std::fmt::Display;

use crate::error::DecodeError;

/// What a section is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SectionKind {
    /// Who wrote the file.
    Version,
    /// The store.
    Database,
    /// The column family of this name.
    Family(String),
    /// The tables of a column family.
    Table {
        /// The kind of table: [`BLOCK_BASED`](Self::BLOCK_BASED), or one that Esker lacks.
        factory: String,
        /// The column family.
        family: String,
    },
}

impl SectionKind {
    /// The kind of table that is written.
    pub const BLOCK_BASED: &'static str = "BlockBasedTable";
}

/// A section of an options file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// What it is about.
    pub kind: SectionKind,
    /// Keys and values in the order of the file, values as they stand there.
    pub entries: Vec<(String, String)>,
    /// What Esker says of itself where RocksDB sees comments; keys begin with [`NOTE_PREFIX`](super::NOTE_PREFIX).
    pub(super) notes: Vec<(String, String)>,
}

impl Section {
    /// Without a word.
    pub fn new(kind: SectionKind) -> Self {
        Self { kind, entries: Vec::new(), notes: Vec::new() }
    }

    /// The note of that key.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Gives the note of that key, which begins with [`NOTE_PREFIX`](super::NOTE_PREFIX), a value of one line and without `#`.
    pub fn set_note(&mut self, key: &str, value: &str) {
        self.remove_note(key);
        self.notes.push((key.to_owned(), value.to_owned()));
    }

    /// Leaves out the note of that key.
    pub fn remove_note(&mut self, key: &str) {
        self.notes.retain(|(name, _)| name != key);
    }

    /// The value of `key` as it stands in the file.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Gives `key` a value as it is to stand in the file, in place of what it has.
    pub fn set(&mut self, key: &str, value: impl Display) {
        let value = value.to_string();
        match self.entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.entries.push((key.to_owned(), value)),
        }
    }

    /// The same for a string, which is escaped.
    pub fn set_string(&mut self, key: &str, value: &str) {
        self.set(key, super::escape(value));
    }

    /// The same for a number with a fraction, with six digits as RocksDB has them.
    pub fn set_f64(&mut self, key: &str, value: f64) {
        self.set(key, format_args!("{value:.6}"));
    }

    /// The string of `key`.
    pub fn get_string(&self, key: &str) -> Option<String> {
        self.get(key).map(super::unescape)
    }

    fn get_with<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, DecodeError> {
        let refuse = |value| DecodeError::corrupt("option", 0, format!("{key}={value} is not {wanted}"));
        self.get(key).map(|value| read(value).ok_or_else(|| refuse(value))).transpose()
    }

    /// The number of `key`; `None` if there is no such key.
    ///
    /// # Errors
    /// Corrupt if its value is no number that fits.
    pub fn get_u64(&self, key: &str) -> Result<Option<u64>, DecodeError> {
        self.get_with(key, "a number of 64 bits", |value| {
            let (digits, shift) = without_unit(value);
            digits.parse::<u64>().ok()?.checked_mul(1 << shift)
        })
    }

    /// As [`get_u64`](Self::get_u64), with a sign.
    ///
    /// # Errors
    /// Corrupt if its value is no number that fits.
    pub fn get_i64(&self, key: &str) -> Result<Option<i64>, DecodeError> {
        self.get_with(key, "a number of 64 bits with a sign", |value| {
            let (digits, shift) = without_unit(value);
            digits.parse::<i64>().ok()?.checked_mul(1 << shift)
        })
    }

    /// The number, maybe with a fraction, of `key`.
    ///
    /// # Errors
    /// Corrupt if its value is no number, or not a finite one.
    pub fn get_f64(&self, key: &str) -> Result<Option<f64>, DecodeError> {
        self.get_with(key, "a finite number", |value| value.parse().ok().filter(|number: &f64| number.is_finite()))
    }

    /// Whether `key` is true.
    ///
    /// # Errors
    /// Corrupt if its value is neither true nor false.
    pub fn get_bool(&self, key: &str) -> Result<Option<bool>, DecodeError> {
        self.get_with(key, "true or false", |value| match value {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    /// Bits per key of the Bloom filter that `filter_policy` names; 0 for none.
    ///
    /// # Errors
    /// Unsupported if it names another kind of filter.
    pub fn get_bloom_bits(&self) -> Result<Option<f64>, DecodeError> {
        let read = |value: &str| {
            if value == "nullptr" {
                return Some(0.0);
            }
            let (name, rest) = value.split_once(':')?;
            let bits = rest.split_once(':').map_or(rest, |(bits, _)| bits);
            let is_bloom = matches!(name, "bloomfilter" | "rocksdb.BloomFilter");
            bits.parse().ok().filter(|bits: &f64| is_bloom && bits.is_finite() && *bits >= 0.0)
        };
        let refuse = |value| DecodeError::unsupported("filter_policy", 0, format!("{value} is not a Bloom filter"));
        self.get("filter_policy").map(|value| read(value).ok_or_else(|| refuse(value))).transpose()
    }

    /// Names the Bloom filter with so many bits per key, to a thousandth; none for 0.
    pub fn set_bloom_bits(&mut self, bits_per_key: f64) {
        let thousandths = (bits_per_key * 1000.0).round();
        if thousandths < 1.0 {
            return self.set("filter_policy", "nullptr");
        }
        // The boolean is for RocksDB 6.29 and earlier, which wanted one.
        self.set("filter_policy", format_args!("bloomfilter:{}:false", thousandths / 1000.0));
    }
}

/// The digits, and the power of two that the unit behind them stands for.
fn without_unit(value: &str) -> (&str, u32) {
    let units = [(['k', 'K'], 10), (['m', 'M'], 20), (['g', 'G'], 30), (['t', 'T'], 40)];
    let found = units.iter().find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, *shift)));
    found.unwrap_or((value, 0))
}
