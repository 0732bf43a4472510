//! A value that any number of threads look at, and that is replaced as a whole: looking neither waits nor stores into anything
//! that another thread looks at.
//!
//! - C1: who looks makes the sequence of its seat odd, passes the barrier, loads the pointer, looks, and makes the sequence even. Only the
//!   thread that has the seat stores into it.
//! - C2: who replaces stores the pointer, passes the barrier and then looks at every seat. By the barrier, one that it finds
//!   even belongs to somebody who will load the new pointer, and one that it finds odd is waited for until it changes. Then nobody has the former
//!   value any more, and the reference to it is dropped.
//! - C3: the pointer is that of an `Arc` that is owned until C2 is through, so it leads to a value at every moment at which somebody looks.
//! - C4: who has no seat, or looks while it looks already, counts a reference instead. So nobody who looks waits for somebody who
//!   replaces; the other way round it has to be, so who looks must not replace.
//!
//! Cost: looking two stores and a load of one's own cache line, no locked instruction. Replacing some microseconds, and as long as the
//! longest look that had begun. 8 KiB of memory.

#![expect(
    unsafe_code,
    reason = "that a pointer is good for as long as somebody looks is outside of what the compiler can check"
)]

use std::fmt;
use std::sync::Arc;

use super::barrier::Barrier;
use super::seat;
use super::sync::{AtomicPtr, AtomicU64, Mutex, Ordering, rest};

/// Threads with a higher number count references: more than run at once on most machines.
const SEATS: usize = 64;

/// How often a thread has begun or ended a look. On cache lines of its own.
#[repr(align(128))]
struct Seat(AtomicU64);

/// See the module's head.
pub struct Current<T> {
    /// Where `owner` points, for those with a seat (C3).
    shown: AtomicPtr<T>,
    owner: Mutex<Arc<T>>,
    seats: Box<[Seat]>,
    barrier: Barrier,
}

/// A look; ends when dropped, by a panic too.
struct Look<'a> {
    seat: &'a AtomicU64,
    ended: u64,
}

impl Drop for Look<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what was read is read before the replacer, who acquires this, drops it.
        self.seat.store(self.ended, Ordering::Release);
    }
}

impl<T> fmt::Debug for Current<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

impl<T: Send + Sync> Current<T> {
    /// `value` is what is seen.
    pub fn new(value: Arc<T>) -> Self {
        Self {
            shown: AtomicPtr::new(Arc::as_ptr(&value).cast_mut()),
            owner: Mutex::new(value),
            seats: (0..SEATS).map(|_| Seat(AtomicU64::new(0))).collect(),
            barrier: Barrier::new(),
        }
    }

    /// The value, to keep. Cost: a lock and a reference.
    pub fn load(&self) -> Arc<T> {
        Arc::clone(&*self.owner.lock())
    }

    /// Calls `look` with the value, which stays at least as long as that takes. Whoever replaces it waits meanwhile: `look` is short, and
    /// replaces nothing itself.
    #[inline(always)]
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        let looking = self.begin();
        let kept;
        let value = if looking.is_some() {
            // Acquire: what made the value happens before the look at it.
            let value = self.shown.load(Ordering::Acquire);
            // SAFETY: C2, C3: an `Arc` owned the value when the pointer was loaded, and whoever takes it away drops it only after this
            // thread's sequence was even again, which `looking` makes it behind this look. Nobody has a `&mut` to what an `Arc` shares.
            unsafe { &*value }
        } else {
            kept = self.load();
            &*kept
        };
        let answer = look(value);
        drop(looking);
        answer
    }

    /// Makes the thread's sequence odd. `None`: it has no seat, or looks already.
    #[inline(always)]
    fn begin(&self) -> Option<Look<'_>> {
        let Seat(seat) = seat::number().and_then(|number| self.seats.get(number))?;
        // Relaxed: only this thread changes it.
        let sequence = seat.load(Ordering::Relaxed);
        if !sequence.is_multiple_of(2) {
            return None;
        }
        seat.store(sequence + 1, Ordering::Relaxed);
        let looking = Look { seat, ended: sequence + 2 };
        self.barrier.pass();
        Some(looking)
    }

    /// Puts `value` in place of what is seen. When this returns, nobody looks at the former one, and it was dropped unless
    /// somebody has [loaded](Self::load) it. Of two at once, one is the last.
    pub fn replace(&self, value: Arc<T>) {
        let mut owner = self.owner.lock();
        self.shown.store(Arc::as_ptr(&value).cast_mut(), Ordering::Release);
        let former = std::mem::replace(&mut *owner, value);
        // Somebody may need it to end a look (C4).
        drop(owner);
        if !self.barrier.pass_seldom() {
            // Who looks at it is unknown, and will be.
            std::mem::forget(former);
            return;
        }
        self.seats.iter().for_each(|Seat(seat)| wait_for(seat));
    }
}

/// Until a look that goes on has ended.
fn wait_for(seat: &AtomicU64) {
    let mut attempts = 0;
    // Acquire: what was read while it was odd was read before what follows here.
    let sequence = seat.load(Ordering::Acquire);
    while !sequence.is_multiple_of(2) && seat.load(Ordering::Acquire) == sequence {
        rest(&mut attempts);
    }
}
