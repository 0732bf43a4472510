//! What [`Current`](super::Current) is made of. A seam: its model (`tests/current_model.rs`) is made of others.

use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::Duration;

pub(super) use parking_lot::Mutex;
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A look at memory is over within so many rounds.
const SPINS: u32 = 100;
/// One whose thread was interrupted, when that thread has run again.
const YIELDS: u32 = 50;
/// And one that waits for a page from the device, some such pauses later.
const PAUSE: Duration = Duration::from_micros(50);

/// A moment, the longer the more there were.
pub(super) fn rest(attempts: &mut u32) {
    *attempts = attempts.saturating_add(1);
    match *attempts {
        ..=SPINS => spin_loop(),
        attempts if attempts <= SPINS + YIELDS => yield_now(),
        _ => sleep(PAUSE),
    }
}
