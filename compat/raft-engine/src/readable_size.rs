//! Sizes as people write them.

use std::fmt;
use std::ops::{Div, Mul};
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const UNITS: [(&str, u64); 6] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes that reads and prints as `4KiB`, `0.5 GB`.
#[derive(Clone, Debug, Copy, PartialEq, Eq, PartialOrd)]
pub struct ReadableSize(pub u64);

impl ReadableSize {
    /// Kibibytes.
    pub const fn kb(count: u64) -> Self {
        Self(count << 10)
    }

    /// Mebibytes.
    pub const fn mb(count: u64) -> Self {
        Self(count << 20)
    }

    /// Gibibytes.
    pub const fn gb(count: u64) -> Self {
        Self(count << 30)
    }

    /// Whole mebibytes.
    pub const fn as_mb(self) -> u64 {
        self.0 >> 20
    }
}

impl Div<u64> for ReadableSize {
    type Output = Self;

    fn div(self, by: u64) -> Self {
        Self(self.0 / by)
    }
}

impl Div<ReadableSize> for ReadableSize {
    type Output = u64;

    fn div(self, by: ReadableSize) -> u64 {
        self.0 / by.0
    }
}

impl Mul<u64> for ReadableSize {
    type Output = Self;

    fn mul(self, by: u64) -> Self {
        Self(self.0 * by)
    }
}

impl fmt::Display for ReadableSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0KiB");
        }
        let whole = UNITS.iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes));
        let (unit, bytes) = whole.copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

impl FromStr for ReadableSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !(c.is_ascii_digit() || ".eE-+".contains(c))).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let bytes = match unit.trim() {
            "" | "B" => 1u64,
            "K" | "KB" | "KiB" => 1 << 10,
            "M" | "MB" | "MiB" => 1 << 20,
            "G" | "GB" | "GiB" => 1 << 30,
            "T" | "TB" | "TiB" => 1 << 40,
            "P" | "PB" | "PiB" => 1 << 50,
            other => {
                return Err(format!(
                    "{other:?} is no unit of bytes: B, KB, KiB, MB, MiB, GB, GiB, TB, TiB, PB, PiB are"
                ));
            }
        };
        match number.parse::<f64>() {
            Ok(number) => Ok(Self((number * bytes as f64) as u64)),
            Err(_) => Err(format!("{text:?} is no size")),
        }
    }
}

impl Serialize for ReadableSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReadableSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = ReadableSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or text like 4KiB")
            }

            fn visit_u64<E: de::Error>(self, size: u64) -> Result<ReadableSize, E> {
                Ok(ReadableSize(size))
            }

            fn visit_i64<E: de::Error>(self, size: i64) -> Result<ReadableSize, E> {
                u64::try_from(size).map(ReadableSize).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, size: &str) -> Result<ReadableSize, E> {
                size.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_as_the_originals() {
        for (size, text) in [(0, "0KiB"), (512, "512B"), (2048, "2KiB"), (5 << 30, "5GiB"), (1500, "1500B")] {
            assert_eq!(ReadableSize(size).to_string(), text);
            assert_eq!(text.parse::<ReadableSize>().unwrap(), ReadableSize(size));
        }
        assert_eq!(" 0.5 PB".parse::<ReadableSize>().unwrap(), ReadableSize(1 << 49));
        assert_eq!("23".parse::<ReadableSize>().unwrap().0, 23);
        assert!("1XB".parse::<ReadableSize>().is_err() && "".parse::<ReadableSize>().is_err());
        assert_eq!(ReadableSize::mb(2) / ReadableSize::kb(1), 2048);
    }
}
