//! Peak memory. The kernel remembers the resident peak; anonymous memory is sampled, because most of what a
//! memory-mapped reader has resident is page cache that anybody may take back.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often anonymous memory is looked at.
const PERIOD: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Seen {
    anonymous: AtomicU64,
    ended: AtomicBool,
}

/// Samples until it is asked.
#[derive(Debug)]
pub struct PeakMemory {
    seen: Arc<Seen>,
    thread: JoinHandle<()>,
}

impl PeakMemory {
    /// From now on.
    pub fn watch() -> Self {
        let seen = Arc::new(Seen::default());
        let sampled = seen.clone();
        let thread = std::thread::spawn(move || {
            while !sampled.ended.load(Relaxed) {
                sampled.anonymous.fetch_max(status_bytes("RssAnon:"), Relaxed);
                std::thread::sleep(PERIOD);
            }
        });
        Self { seen, thread }
    }

    /// The resident and the anonymous peak, in bytes.
    pub fn end(self) -> (u64, u64) {
        self.seen.ended.store(true, Relaxed);
        // It cannot have panicked; if it had, what it saw would still count.
        let _ = self.thread.join();
        let anonymous = self.seen.anonymous.load(Relaxed).max(status_bytes("RssAnon:"));
        (status_bytes("VmHWM:"), anonymous)
    }
}

/// A field of `/proc/self/status` that is given in kB; 0 if it is not there.
fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
