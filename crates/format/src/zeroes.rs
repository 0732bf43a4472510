//! Whether there is nothing: what was never written reads as zeroes.

/// Whether all these bytes are zero, as those of no bytes are. Cost: that of reading them.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    // The first is, and each is what the one before is: `memcmp` takes many at once, where a loop that ends at the first
    // byte that is not takes one.
    match bytes.split_first() {
        Some((first, rest)) => *first == 0 && bytes.get(..rest.len()) == Some(rest),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_is_seen() {
        for len in [0, 1, 2, 7, 8, 9, 31, 33, 64, 200, 4096] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes), "{len}");
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
