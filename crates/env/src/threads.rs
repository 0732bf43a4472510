//! Threads.

use std::fmt::Debug;

use crate::Result;

/// A started thread.
pub trait Thread: Debug + Send + Sync {
    /// Waits until it has ended; `false` if it ended by a panic. The second call answers at once.
    fn join(&mut self) -> bool;
}

/// Who does background work.
pub trait Threads: Debug + Send + Sync {
    /// Runs `work` beside the caller; `name` (at most 15 bytes on Linux) is what a debugger and `top -H` show.
    ///
    /// # Errors
    /// The system had no thread to give.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>>;

    /// Leaves the processor to another thread that is ready to run, if there is one; nothing, where a system knows no such thing.
    fn give_way(&self) {}
}
