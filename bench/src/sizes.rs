//! Sizes as people write them.

/// `512`, `4KiB`, `1MiB`, `2GiB`; `k`, `m` and `g` mean the same.
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        unit => return Err(format!("{unit:?} is no unit of size; use KiB, MiB or GiB")),
    };
    let number: u64 = digits.replace('_', "").parse().map_err(|_| format!("{digits:?} is no whole number"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

/// With two digits or more, in the largest unit that leaves at least one.
pub fn print(bytes: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1_024.0)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => {
            let number = bytes / size;
            if number < 10.0 { format!("{number:.1} {unit}") } else { format!("{number:.0} {unit}") }
        }
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed() {
        assert_eq!(parse("100"), Ok(100));
        assert_eq!(parse("4KiB"), Ok(4_096));
        assert_eq!(parse("512m"), Ok(512 << 20));
        assert!(parse("4 parsecs").is_err() && parse("").is_err());
        assert_eq!(print(1_536.0), "1.5 KiB");
        assert_eq!(print(100.0), "100 B");
    }
}
