//! Values that carry when they were written, as RocksDB's `DBWithTTL` and `ldb --ttl` have them. Nothing in a store says that its values do.
//!
//! | offset | bytes | field | type   | meaning                                                                   |
//! |-------:|------:|-------|--------|---------------------------------------------------------------------------|
//! |      0 |     … | value |        |                                                                           |
//! |    end |     4 | time  | u32 LE | seconds since 1970-01-01 UTC, [`TIME_MIN`] to [`TIME_MAX`]; expired once more than the time to live has passed since |
//!
//! Source: RocksDB `utilities/ttl/db_ttl_impl.{h,cc}`.

use crate::error::DecodeError;

/// What a value is longer by.
pub const TIME_BYTES: usize = 4;
/// When RocksDB had this first, in May 2013: it takes an earlier time for damage.
pub const TIME_MIN: u64 = 1_368_146_402;
/// In January 2038: it reads the time as signed.
pub const TIME_MAX: u64 = i32::MAX as u64;

/// Appends when `value` was written, in seconds since 1970. `false`, and it is as it was, if that cannot be said.
#[must_use]
pub fn put_time(value: &mut Vec<u8>, time: u64) -> bool {
    let said = u32::try_from(time).ok().filter(|_| (TIME_MIN..=TIME_MAX).contains(&time));
    if let Some(time) = said {
        value.extend_from_slice(&time.to_le_bytes());
    }
    said.is_some()
}

/// The value in `bytes`, and when it was written, in seconds since 1970.
///
/// # Errors
/// Corrupt: there are not as many bytes, or they name no time that may be.
pub fn split(bytes: &[u8]) -> Result<(&[u8], u64), DecodeError> {
    let offset = bytes.len().saturating_sub(TIME_BYTES) as u64;
    let Some((value, field)) = bytes.split_last_chunk() else {
        return Err(DecodeError::corrupt("time", offset, format!("{} bytes, {TIME_BYTES} are needed", bytes.len())));
    };
    let time = u64::from(u32::from_le_bytes(*field));
    if (TIME_MIN..=TIME_MAX).contains(&time) {
        Ok((value, time))
    } else {
        Err(DecodeError::corrupt("time", offset, format!("{time} is no time between May 2013 and January 2038")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_what_was_put_behind_the_value() {
        for (value, at) in [(&b""[..], TIME_MIN), (b"value", 1_700_000_000), (b"\xff\xff\xff\xff", TIME_MAX)] {
            let mut bytes = value.to_vec();
            assert!(put_time(&mut bytes, at));
            assert_eq!(bytes.len(), value.len() + TIME_BYTES);
            assert_eq!(split(&bytes).unwrap(), (value, at));
        }
        assert_eq!(split(b"v\x01\x02\x03\x65").unwrap(), (&b"v"[..], 0x6503_0201));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for at in [0, TIME_MIN - 1, TIME_MAX + 1, u64::MAX, u64::from(u32::MAX)] {
            let mut bytes = b"value".to_vec();
            assert!(!put_time(&mut bytes, at));
            assert_eq!(bytes, b"value");
        }
        for bytes in [&b""[..], b"abc", b"v\0\0\0\0", b"\xff\xff\xff\xff"] {
            let error = split(bytes).unwrap_err().to_string();
            assert!(error.contains("time"), "{error}");
        }
    }
}
