//! How fast background work may go ([`Pacer`]), and how much writers are held back while it is behind ([`WriteDelay`]).
//!
//! Both are pure at heart: time comes in as an argument, so the same calls give the same waits on every machine.

mod bucket;
mod courtesy;
mod delay;
mod give_way;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use esker_env::Clock;
use parking_lot::Mutex;

pub use bucket::Bucket;
pub use courtesy::{Courtesy, Latencies, Window};
pub use delay::{Debt, WriteDelay};
pub use give_way::{GiveWay, Pieces};
pub use queue::{Grant, Queues};

/// Longest sleep at a stretch: a new rate, or a class that goes first, is noticed this soon.
const STEP: Duration = Duration::from_millis(10);

/// What a byte is moved for, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A caller waits for it.
    Foreground,
    /// Memory waits for it.
    Flush,
    /// Reads and later writes gain by it.
    Compaction,
    /// Space comes back by it.
    Reclaim,
    /// Looks for damage that nobody has met yet.
    Scrub,
}

impl Class {
    /// All of them, most urgent first.
    pub const ALL: [Self; 5] = [Self::Foreground, Self::Flush, Self::Compaction, Self::Reclaim, Self::Scrub];
}

/// Token buckets, one for each class and one for all together. Unlimited until told otherwise.
///
/// Where the rate of all together is what holds requests back, the more urgent class goes first, always: keep that
/// rate above what the foreground alone uses, or the rest gets nothing.
#[derive(Debug)]
pub struct Pacer {
    clock: Arc<dyn Clock>,
    queues: Mutex<Queues>,
}

impl Pacer {
    /// No limits yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let now = clock.monotonic();
        Self { clock, queues: Mutex::new(Queues::new(now)) }
    }

    /// From now on, `class` moves so many bytes per second; `None` is as fast as it can, 0 is not at all.
    /// Whoever waits already waits by the new rate, within 10 ms.
    pub fn set_rate(&self, class: Class, bytes_per_second: Option<u64>) {
        self.queues.lock().set_rate(self.clock.monotonic(), class, bytes_per_second);
    }

    /// The same for all classes together.
    pub fn set_total_rate(&self, bytes_per_second: Option<u64>) {
        self.queues.lock().set_total_rate(self.clock.monotonic(), bytes_per_second);
    }

    /// The rate of a class.
    pub fn rate(&self, class: Class) -> Option<u64> {
        self.queues.lock().rate(class)
    }

    /// Returns when `bytes` may be moved. Large requests are granted piece by piece, so that a more urgent one
    /// need not wait for the end of this one.
    ///
    /// Cost: one lock where there is no limit.
    pub fn request(&self, class: Class, bytes: u64) {
        self.request_while(class, bytes, &mut || true);
    }

    /// The same, but whoever waits is asked every 10 ms whether to go on. Returns at once when it says no.
    pub fn request_while(&self, class: Class, bytes: u64, goes_on: &mut dyn FnMut() -> bool) {
        let mut left = bytes;
        let mut queued = false;
        while left > 0 {
            let grant = self.queues.lock().ask(self.clock.monotonic(), class, left, &mut queued);
            match grant {
                Grant::Moves(granted) => left = left.saturating_sub(granted),
                Grant::Waits(wait) => self.clock.sleep(wait.min(STEP)),
            }
            if left > 0 && !goes_on() {
                self.queues.lock().leave(class, &mut queued);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
