//! CRC-32C of a few bytes by the processor's own instruction, wherever they begin. The only `unsafe` of this crate.

#![cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(unsafe_code, reason = "the compiler does not know what the processor was found to have")
)]

/// The CRC of some string, `crc`, and then `bytes`. `None`: the processor has no instruction that is used here.
#[inline]
pub(super) fn extend(crc: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has what the function was made for.
        return Some(unsafe { extend_by_sse(crc, bytes) });
    }
    let _ = (crc, bytes);
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[inline]
fn extend_by_sse(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let (halves, rest) = rest.as_chunks();
    // The instruction has no more than 32 bits to say.
    let state = words.iter().fold(!crc, |state, word| _mm_crc32_u64(state.into(), u64::from_le_bytes(*word)) as u32);
    let state = halves.iter().fold(state, |state, half| _mm_crc32_u32(state, u32::from_le_bytes(*half)));
    !rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}
