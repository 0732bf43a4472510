//! Reads a byte string from front to back, and says where it was when something did not fit.

use crate::error::DecodeError;
use crate::varint;

/// A position in a byte string. Every read either moves it past what was read or leaves it and returns an error.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Cursor<'a> {
    /// At the start of `raw`.
    pub const fn new(raw: &'a [u8]) -> Self {
        Self { rest: raw, offset: 0 }
    }

    /// Bytes already read.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Everything not yet read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// An error about `field`, here.
    pub fn corrupt(&self, field: &'static str, reason: impl Into<std::borrow::Cow<'static, str>>) -> DecodeError {
        DecodeError::corrupt(field, self.offset, reason)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// Corrupt if fewer are left.
    #[inline]
    pub fn bytes(&mut self, field: &'static str, count: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(too_short(field, self.offset, count, self.rest.len()));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(count as u64);
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    /// One byte.
    ///
    /// # Errors
    /// Corrupt if nothing is left.
    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// Corrupt if fewer are left.
    #[inline]
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// Corrupt if fewer are left.
    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// Corrupt if fewer are left.
    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A variable-length integer of at most 64 bits.
    ///
    /// # Errors
    /// Corrupt if it does not end, or is wider.
    #[inline]
    pub fn varint64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        match varint::get_u64(self.rest) {
            Some((value, count)) => self.bytes(field, count).map(|_| value),
            None => Err(no_varint(field, self.offset, u64::BITS)),
        }
    }

    /// A variable-length integer of at most 32 bits.
    ///
    /// # Errors
    /// Corrupt if it does not end, or is wider.
    #[inline]
    pub fn varint32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        match varint::get_u32(self.rest) {
            Some((value, count)) => self.bytes(field, count).map(|_| value),
            None => Err(no_varint(field, self.offset, u32::BITS)),
        }
    }

    /// A byte string that its length (a varint) goes before.
    ///
    /// # Errors
    /// Corrupt if the length does not decode or exceeds what is left; the cursor has then not moved.
    #[inline(always)]
    pub fn prefixed(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (rest, offset) = (self.rest, self.offset);
        let count = self.varint64(field)?;
        let left = self.rest.len();
        if count <= left as u64 {
            // It is at most a length.
            return self.bytes(field, count as usize);
        }
        (self.rest, self.offset) = (rest, offset);
        Err(too_long(field, offset, count, left))
    }
}

// Errors are made out of line, and of numbers: a cursor that is lent to a function lives in memory, not in registers.

#[cold]
fn too_short(field: &'static str, offset: u64, count: usize, left: usize) -> DecodeError {
    DecodeError::corrupt(field, offset, format!("needs {count} bytes, {left} are left"))
}

#[cold]
fn too_long(field: &'static str, offset: u64, count: u64, left: usize) -> DecodeError {
    DecodeError::corrupt(field, offset, format!("says {count} bytes, {left} are left"))
}

#[cold]
fn no_varint(field: &'static str, offset: u64, bits: u32) -> DecodeError {
    DecodeError::corrupt(field, offset, format!("not a variable-length integer of at most {bits} bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_move_and_failures_do_not() {
        let mut cursor = Cursor::new(b"\x01\x02\x00\x03\x00\x00\x00\x80\x01\x02hi\x09hi");
        assert_eq!(cursor.u8("a").unwrap(), 1);
        assert_eq!(cursor.u16("b").unwrap(), 2);
        assert_eq!(cursor.u32("c").unwrap(), 3);
        assert_eq!(cursor.varint32("d").unwrap(), 128);
        assert_eq!(cursor.prefixed("e").unwrap(), b"hi");
        let error = cursor.prefixed("f").unwrap_err();
        assert_eq!((error.field, error.offset), ("f", 12));
        assert_eq!(cursor.offset(), 12);
        assert!(cursor.u64("g").is_err());
        assert_eq!(cursor.rest(), b"\x09hi");
    }
}
