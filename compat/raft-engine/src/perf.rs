//! How long this thread's writes took, part by part.

use std::cell::RefCell;
use std::ops::AddAssign;
use std::time::Duration;

use esker_raft_log::WriteTimes;

/// Sums of this thread's writes, `compact_to` included. What is written for several threads at once counts for each of them; what purges write, for
/// nobody.
#[derive(Debug, Clone, Default)]
pub struct PerfContext {
    /// Encoding and compressing entries.
    pub log_populating_duration: Duration,
    /// Waiting for the group to be written.
    pub write_wait_duration: Duration,
    /// Writing to files, with all that belongs to it, rotating as well.
    pub log_write_duration: Duration,
    /// Rotating files.
    pub log_rotate_duration: Duration,
    /// Syncing files.
    pub log_sync_duration: Duration,
    /// Changing the index.
    pub apply_duration: Duration,
}

impl AddAssign<&'_ PerfContext> for PerfContext {
    fn add_assign(&mut self, other: &PerfContext) {
        self.log_populating_duration += other.log_populating_duration;
        self.write_wait_duration += other.write_wait_duration;
        self.log_write_duration += other.log_write_duration;
        self.log_rotate_duration += other.log_rotate_duration;
        self.log_sync_duration += other.log_sync_duration;
        self.apply_duration += other.apply_duration;
    }
}

thread_local! {
    static CONTEXT: RefCell<PerfContext> = RefCell::default();
}

/// What this thread's writes took so far.
pub fn get_perf_context() -> PerfContext {
    CONTEXT.with_borrow(Clone::clone)
}

/// The same, beginning again from zero.
pub fn take_perf_context() -> PerfContext {
    CONTEXT.take()
}

/// Goes on from `context`.
pub fn set_perf_context(context: PerfContext) {
    CONTEXT.set(context);
}

/// Adds a write of this thread's.
pub(crate) fn wrote(times: &WriteTimes) {
    CONTEXT.with_borrow_mut(|context| {
        *context += &PerfContext {
            log_populating_duration: times.encode,
            write_wait_duration: times.wait,
            log_write_duration: times.append + times.rotate,
            log_rotate_duration: times.rotate,
            log_sync_duration: times.sync,
            apply_duration: times.apply,
        };
    });
}
