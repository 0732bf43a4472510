//! Numbers for people: 1.5 GiB, 12,345; and sizes that people type.

use std::fmt;
use std::time::Duration;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Prints a size as `512 B`, `1.5 KiB`, `12 MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1 << 10 {
            return write!(f, "{} B", self.0);
        }
        let mut size = self.0 as f64;
        let mut unit = "B";
        for next in UNITS {
            // What would print as 1024 of a unit is one of the next.
            if size < 1023.5 {
                break;
            }
            (size, unit) = (size / 1024.0, next);
        }
        if size < 99.95 { write!(f, "{size:.1} {unit}") } else { write!(f, "{size:.0} {unit}") }
    }
}

/// Prints a number as `12,345`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        f.write_str(&grouped)
    }
}

/// `1 file`, `12,345 files`.
pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", Count(count)) }
}

/// Bytes per second over `time`, in bytes; as if at least a microsecond had passed.
pub(crate) fn rate(bytes: u64, time: Duration) -> u64 {
    (bytes as f64 / time.as_secs_f64().max(1e-6)) as u64
}

/// `4096`, `4KiB`, `1.5 MiB`, `1G`: bytes. `K`, `KB` and `KiB` all mean 1,024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == ' ');
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{unit:?} is no unit of size; use KiB, MiB or GiB")),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| "more bytes than 64 bits can count".to_owned());
    }
    match digits.parse::<f64>() {
        Ok(size) if size >= 0.0 && size < (u64::MAX >> shift) as f64 => Ok((size * (1u64 << shift) as f64) as u64),
        _ => Err("not a size; write it as 4096, 4KiB or 1.5GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(Count(0).to_string(), "0");
        assert_eq!(Count(1_234_567).to_string(), "1,234,567");
        assert_eq!(Count(123).to_string(), "123");
        assert_eq!(plural(1, "key", "keys"), "1 key");
    }

    #[test]
    fn typed_sizes_are_understood_or_refused() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("4KiB", 4096), ("4k", 4096), ("1.5 MiB", 3 << 19), ("1GB", 1 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1 parsec", "99999999999T", "nan"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
