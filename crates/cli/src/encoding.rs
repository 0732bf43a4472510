//! Bytes as text, both ways: escaped for people, hexadecimal for machines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::failure::Failure;

/// How keys and values are printed, one entry a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Printable text as it is; a backslash and what is not printable escaped.
    Text,
    /// Hexadecimal.
    Hex,
    /// As it is.
    Raw,
    /// An object.
    Json,
}

/// More of what is no hexadecimal helps nobody.
const SHOWN_BYTES_MAX: usize = 64;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A key or value from the command line: its bytes, or what its hexadecimal digits say.
pub(crate) fn argument(text: OsString, is_hex: bool) -> Result<Vec<u8>, Failure> {
    let bytes = text.into_vec();
    if is_hex { from_hex(&bytes) } else { Ok(bytes) }
}

/// The bytes that an even number of digits say, after `0x` or without it.
pub(crate) fn from_hex(text: &[u8]) -> Result<Vec<u8>, Failure> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(digits.len() / 2).map_err(Failure::new)?;
    for pair in digits.chunks(2) {
        let byte = match pair {
            &[high, low] => nibble(high).zip(nibble(low)).map(|(high, low)| (high << 4) | low),
            _ => None,
        };
        let refuse = || Failure::new(format_args!("not hexadecimal: {}", shortened(text, SHOWN_BYTES_MAX)));
        bytes.push(byte.ok_or_else(refuse)?);
    }
    Ok(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// `bytes` in hexadecimal, two digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        push_hex(&mut text, byte);
    }
    text
}

/// `bytes` as text in which every printable character of UTF-8 stands for itself, but a backslash is `\\` and any other
/// byte `\xNN`. No two byte strings give the same text.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                _ if is_printable(character) => text.push(character),
                _ => push_escaped(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_escaped(&mut text, chunk.invalid());
    }
    text
}

/// Whether a terminal shows it and goes on. Also refuses what breaks lines or turns the direction of writing.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    for &byte in bytes {
        text.push_str("\\x");
        push_hex(text, byte);
    }
}

fn push_hex(text: &mut String, byte: u8) {
    for nibble in [byte >> 4, byte & 15] {
        text.push(DIGITS[usize::from(nibble)] as char);
    }
}

/// At most `limit` bytes of `bytes`, escaped, and how many there are if that is not all.
pub(crate) fn shortened(bytes: &[u8], limit: usize) -> String {
    match bytes.get(..limit) {
        Some(start) if bytes.len() > limit => format!("{}… ({} bytes)", escaped(start), bytes.len()),
        _ => escaped(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(hex(&all).as_bytes()).unwrap(), all);
        assert_eq!(from_hex(b"0xAbCd").unwrap(), b"\xab\xcd");
        assert_eq!(from_hex(b"").unwrap(), b"");
        assert!(from_hex(b"abc").is_err() && from_hex(b"zz").is_err() && from_hex(b"+1").is_err());
    }

    #[test]
    fn what_is_not_printable_is_escaped() {
        assert_eq!(escaped(b"a\tb\\\x00\xff\n"), "a\\x09b\\\\\\x00\\xff\\x0a");
        assert_eq!(escaped("größe".as_bytes()), "größe");
        assert_eq!(escaped("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
        assert_eq!(shortened(b"abcdef", 3), "abc… (6 bytes)");
        assert_eq!(shortened(b"abc", 3), "abc");
    }
}
