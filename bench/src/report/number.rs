//! Numbers as people read them.

/// `1,234,567`.
pub(super) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One part of another; no number where there is nothing to divide by.
pub(super) fn per(part: u64, of: u64) -> f64 {
    if of == 0 { f64::NAN } else { part as f64 / of as f64 }
}

/// A number of bytes for each byte.
pub(super) fn multiple(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        number if number.is_nan() => "–".into(),
        number => format!("{number:.2}"),
    }
}

/// Nanoseconds, in the unit that leaves few digits.
pub(super) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A count or a rate in few letters: `1.2M`, `35k`, `7.5`.
pub(super) fn short(number: f64) -> String {
    let (number, unit) = match number {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e3 => (n / 1e3, "k"),
        n => (n, ""),
    };
    let text = if number >= 100.0 || number == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_right() {
        assert_eq!([1_234.0, 999.0].map(grouped), ["1,234", "999"]);
        assert_eq!([0.0, 7.5, 35_000.0, 1_250_000.0, 200.0].map(short), ["0", "7.5", "35k", "1.25M", "200"]);
        assert_eq!([120.0, 1_500.0, 2e6].map(time), ["120 ns", "1.5 µs", "2.0 ms"]);
    }
}
