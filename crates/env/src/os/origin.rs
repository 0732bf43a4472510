//! Which process something was made in: a child that is forked has all of its parent's memory, but none of its threads, and waits for ever
//! for what one of them was about to do.
//!
//! The system counts forks for us, so that a look is one load of what never changes; asking who one is, is a system call. A child that was
//! made past the C library (`clone` by its number) is not told; nor is one that only runs another program.

#![expect(unsafe_code, reason = "what a fork calls is outside of what the compiler can check")]

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Alone in its line, which nobody writes to but the first step of a child.
#[repr(align(64))]
struct Line(AtomicU32);

/// Forks that lie between this process and the first one that looked.
static FORKS: Line = Line(AtomicU32::new(0));

/// Runs in each child, before anything else does.
extern "C" fn count_fork() {
    FORKS.0.fetch_add(1, Ordering::Relaxed);
}

#[cfg(not(miri))]
fn is_told_of_forks() -> bool {
    use std::ffi::c_int;

    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    // SAFETY: the handler is there as long as the program, and may be called anywhere: it counts, and does nothing else.
    unsafe { pthread_atfork(None, None, Some(count_fork)) == 0 }
}

#[cfg(miri)]
fn is_told_of_forks() -> bool {
    let _ = count_fork;
    false
}

/// The process in which it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    forks: u32,
    /// Where the system does not tell of forks.
    process: Option<u32>,
}

impl Origin {
    /// This process.
    pub fn here() -> Self {
        static IS_TOLD: OnceLock<bool> = OnceLock::new();
        let process = if *IS_TOLD.get_or_init(is_told_of_forks) { None } else { Some(process::id()) };
        Self { forks: FORKS.0.load(Ordering::Relaxed), process }
    }

    /// Whether it is this process, not one that it was forked from.
    #[inline]
    pub fn is_here(self) -> bool {
        self.forks == FORKS.0.load(Ordering::Relaxed) && self.process.is_none_or(|process| process == process::id())
    }
}
