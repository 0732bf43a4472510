//! What a decoder says of bytes that it cannot accept.

use std::borrow::Cow;
use std::fmt;

/// What the reader of a [`DecodeError`] can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// No writer could have produced these bytes: they were damaged, or are not of this format.
    Corrupt,
    /// A writer newer than this library, or one with a feature that it lacks, may well have produced them.
    Unsupported,
}

/// The first field of the input that could not be accepted, where it lies, and why.
///
/// Costs no allocation unless the reason has a number in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Corrupt or unsupported.
    pub kind: DecodeErrorKind,
    /// The field, in the words of the layout table of its module.
    pub field: &'static str,
    /// Where the field begins, in bytes from the start of the decoded input.
    pub offset: u64,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
}

impl DecodeError {
    /// Bytes that no writer could have produced.
    pub fn corrupt(field: &'static str, offset: u64, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: DecodeErrorKind::Corrupt, field, offset, reason: reason.into() }
    }

    /// Bytes of a version or feature that this library does not know.
    pub fn unsupported(field: &'static str, offset: u64, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: DecodeErrorKind::Unsupported, field, offset, reason: reason.into() }
    }

    /// The same error, seen from input in which these bytes begin at `base`.
    #[must_use]
    pub fn at_base(mut self, base: u64) -> Self {
        self.offset = self.offset.saturating_add(base);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.field, self.offset, self.reason)
    }
}

impl std::error::Error for DecodeError {}
