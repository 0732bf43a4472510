//! A barrier between one thread that seldom passes and many that pass all the time: only the one pays for it.
//!
//! What [`pass`](Barrier::pass) promises to both sides is what two full fences promise: of two threads that each store, pass (one of them
//! [`pass_seldom`](Barrier::pass_seldom)) and load what the other has stored, one at least sees the other's store.
//!
//! - B1: where the system has `membarrier` (Linux 4.14), whoever passes often only keeps the compiler from moving things across, and whoever passes
//!   seldom makes every processor that runs a thread of this process pass a full barrier: some microseconds. Elsewhere both sides
//!   have a full fence, which costs the frequent side some 7 ns, and all loads that it could have begun beyond.
//! - B2: which of the two it is, is decided before the first pass and stays.

use std::sync::atomic::{Ordering, compiler_fence, fence};

/// See the module's head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Barrier {
    by_system: bool,
}

impl Barrier {
    pub(super) fn new() -> Self {
        Self { by_system: system::register() }
    }

    /// The side that passes often.
    #[inline]
    pub(super) fn pass(self) {
        if self.by_system {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The side that seldom passes. `false`: the system refused, and nothing is promised.
    pub(super) fn pass_seldom(self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_system || system::pass()
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether this process may use the system's barrier. As often as wanted.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn pass() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod system {
    pub(super) const fn register() -> bool {
        false
    }

    pub(super) const fn pass() -> bool {
        false
    }
}
