//! How bytes of users are shown in `Debug`: as text, and not all of what is long.

use std::fmt;

/// So much of it is shown.
const SHOWN_BYTES_MAX: usize = 64;

/// See the module's head. What is no printable ASCII is escaped.
#[derive(Clone, Copy)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..SHOWN_BYTES_MAX) {
            Some(front) if front.len() < self.0.len() => {
                write!(f, "\"{}\".. of {} bytes", front.escape_ascii(), self.0.len())
            }
            _ => write!(f, "\"{}\"", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_shown_whole_and_what_is_long_in_part() {
        let shown = |bytes: &[u8]| format!("{:?}", Shown(bytes));
        assert_eq!([shown(b""), shown(b"sand\0\xff\"")], [r#""""#, r#""sand\x00\xff\"""#]);
        assert_eq!(shown(&[b'a'; 64]), format!("\"{}\"", "a".repeat(64)));
        assert_eq!(shown(&[b'a'; 65]), format!("\"{}\".. of 65 bytes", "a".repeat(64)));
    }
}
