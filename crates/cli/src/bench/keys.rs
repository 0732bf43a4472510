//! Keys: the number of a key in eight bytes, most significant first, then `0` up to the length asked for, as
//! `db_bench` makes them. So keys are ordered as their numbers are.

/// The shortest key.
pub(crate) const KEY_BYTES_MIN: usize = 8;
/// The longest that may be asked for.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;
const PADDING: u8 = b'0';
/// What a key has behind it that is never in the store.
const NEVER: u8 = b'.';

/// Makes keys of one length, one after another in the same memory.
#[derive(Debug, Clone)]
pub(super) struct Key {
    bytes: Vec<u8>,
    len: usize,
}

impl Key {
    pub(super) fn new(key_bytes: usize) -> Self {
        let mut bytes = vec![PADDING; key_bytes];
        bytes.push(NEVER);
        Self { bytes, len: key_bytes }
    }

    /// The key of that number.
    #[inline]
    pub(super) fn of(&mut self, number: u64) -> &[u8] {
        self.set(number);
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// A key that is never written, behind that of `number` and before the next.
    #[inline]
    pub(super) fn missing(&mut self, number: u64) -> &[u8] {
        self.set(number);
        &self.bytes
    }

    #[inline]
    fn set(&mut self, number: u64) {
        if let Some(first) = self.bytes.first_chunk_mut::<KEY_BYTES_MIN>() {
            *first = number.to_be_bytes();
        }
    }

    /// The number of a key; `None` if it is none of these.
    #[inline]
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let (number, rest) = key.split_first_chunk::<KEY_BYTES_MIN>()?;
        let is_padding = key.len() == self.len && rest.iter().all(|&byte| byte == PADDING);
        is_padding.then(|| u64::from_be_bytes(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_numbers_and_read_back() {
        let mut key = Key::new(20);
        let mut before = Vec::new();
        for number in [0, 1, 255, 256, 1 << 40, u64::MAX] {
            let missing = key.missing(number).to_vec();
            let now = key.of(number).to_vec();
            assert!(before < now && now < missing && now.len() == 20);
            assert_eq!((key.number(&now), key.number(&missing)), (Some(number), None));
            before = missing;
        }
        assert_eq!((key.number(b""), key.number(b"12345678")), (None, None));
        assert_eq!(Key::new(8).of(1), b"\0\0\0\0\0\0\0\x01");
    }
}
