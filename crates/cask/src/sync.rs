//! What the key directory is made of. A seam: its model (`tests/keydir_model.rs`) is made of others, and smaller.

use std::hint::spin_loop;
use std::thread::yield_now;

pub(crate) use esker_env::os::Words;
pub(crate) use parking_lot::{Mutex, RwLock, RwLockReadGuard};
pub(crate) use std::sync::atomic;

/// Fixed: 1 MiB of empty shards, of which a look needs a line or two: as many as stay in the processor's nearer cache while slots and
/// records pass through it. Measured with four times as many: the wait for a shard's head is half of that for its slot.
pub(crate) const SHARD_COUNT: usize = 1 << 12;
/// Words of a segment: 128 slots, or the numbers of 512 segments.
pub(crate) const SEGMENT_WORDS: usize = 256;
/// Segments in the first chunk of memory.
pub(crate) const FIRST_CHUNK_SEGMENTS: u64 = 64;
/// Who finds a shard locked looks so often again, which takes about as long as a change.
const SPINS: u32 = 64;
/// And lets others run so often, in case that one of them was interrupted in the middle of its change.
const YIELDS: u32 = 64;

/// Lets a moment pass, the longer the more there were. `false`: there were so many that it is time to sleep.
pub(crate) fn rest(attempts: &mut u32) -> bool {
    *attempts = attempts.saturating_add(1);
    if *attempts <= SPINS {
        spin_loop()
    } else {
        yield_now()
    }
    *attempts <= SPINS + YIELDS
}
