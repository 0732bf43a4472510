//! Bytes that compression makes nothing of, copied out of a pool: to draw them anew took a tenth of the suite's time.

use std::sync::LazyLock;

use fastrand::Rng;

const POOL_BYTES: usize = 1 << 20;

static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Rng::with_seed(1);
    std::iter::repeat_with(|| random.u64(..).to_le_bytes()).take(POOL_BYTES / 8).flatten().collect()
});

/// Begins with eight bytes of their own; what follows is another's, too, once in a million.
pub fn fill(random: &mut Rng, out: &mut [u8]) {
    let drawn = random.u64(..);
    let (own, pooled) = out.split_at_mut(out.len().min(8));
    own.copy_from_slice(&drawn.to_le_bytes()[..own.len()]);
    let mut from = drawn as usize % POOL_BYTES;
    for part in pooled.chunks_mut(POOL_BYTES / 2) {
        from = if from + part.len() > POOL_BYTES { 0 } else { from };
        part.copy_from_slice(&POOL[from..from + part.len()]);
        from += part.len();
    }
}
