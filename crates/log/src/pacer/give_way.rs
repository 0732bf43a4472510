//! How work in the background leaves its processor to callers: it gives way, often, to whoever is ready to run.
//!
//! A caller that wakes up where a thread in the background is at work does not always interrupt it. Linux (EEVDF, since 6.6) lets that one
//! go on to the end of its slice first, which with a clock of 250 Hz may take 4 ms; a put itself takes 1 µs. Of puts of 1 KiB, 12,000 a second
//! beside flushes, compactions and reclaim on two processors, the slowest hundredth took 0.6 to 1.3 ms, and 0.15 to 0.28 ms where all three gave
//! way (Linux 6.18, in turns). Not for what somebody waits for: four threads that wrote at full speed were a tenth slower where flushes gave way.
//!
//! - G1: giving way takes no longer, all told, than the work in between: where others ask for all of the processors, the work goes half as fast
//!   as it would, and still goes on.
//!
//! Cost: an addition for each entry; two readings of the clock and a system call, together less than 1 µs, for each [`PIECE_BYTES`].

use std::time::Duration;

use esker_env::Env;

/// Work between two times, some 50 µs of it.
const PIECE_BYTES: u64 = 64 << 10;
/// What an entry is counted as, beside its bytes.
const ENTRY_BYTES: u64 = 1 << 10;

/// Work, counted in pieces of 64 KiB.
#[derive(Debug, Default)]
pub struct Pieces {
    done_bytes: u64,
}

impl Pieces {
    /// An entry of `bytes` was worked on. Whether a piece is done by that.
    #[inline]
    pub fn is_done_after(&mut self, bytes: u64) -> bool {
        self.done_bytes = self.done_bytes.saturating_add(ENTRY_BYTES).saturating_add(bytes);
        let is_done = self.done_bytes >= PIECE_BYTES;
        if is_done {
            self.done_bytes = 0;
        }
        is_done
    }
}

/// See the module's head. For one thread and one pass.
#[derive(Debug, Default)]
pub struct GiveWay {
    /// Since the clock began: not again before (G1).
    due_at: Duration,
}

impl GiveWay {
    /// Leaves the processor to whoever is ready to run. Not while callers wait for this very work.
    pub fn give_way(&mut self, env: &Env) {
        let began = env.clock.monotonic();
        if began < self.due_at {
            return;
        }
        env.threads.give_way();
        let ended = env.clock.monotonic();
        self.due_at = ended + ended.saturating_sub(began);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use esker_env::sim::SimDisk;
    use esker_env::{Clock, Result, Thread, Threads};

    use super::*;

    /// Others who take the processor for so long each time they get it.
    #[derive(Debug)]
    struct Others {
        clock: Arc<dyn Clock>,
        takes: Duration,
        times: AtomicU64,
    }

    impl Threads for Others {
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> Result<Box<dyn Thread>> {
            Err(esker_env::Error::new("starting a thread", "".as_ref(), std::io::ErrorKind::Unsupported.into()))
        }

        fn give_way(&self) {
            self.times.fetch_add(1, Ordering::Relaxed);
            self.clock.sleep(self.takes);
        }
    }

    /// How often 1,000 entries of 1 KiB, 10 µs of work each, give way to others who take so long.
    fn times(takes: Duration) -> u64 {
        let mut env = SimDisk::new().env();
        let others = Arc::new(Others { clock: env.clock.clone(), takes, times: AtomicU64::new(0) });
        env.threads = others.clone();
        let (mut pieces, mut give_way, began) = (Pieces::default(), GiveWay::default(), env.clock.monotonic());
        for _ in 0..1000 {
            env.clock.sleep(Duration::from_micros(10));
            if pieces.is_done_after(1 << 10) {
                give_way.give_way(&env);
            }
        }
        let times = others.times.load(Ordering::Relaxed);
        let taken = env.clock.monotonic() - began;
        assert!(taken <= Duration::from_millis(20) + takes, "{times} times made 10 ms {taken:?}");
        times
    }

    #[test]
    fn work_gives_way_often_and_loses_no_more_than_half_of_its_time() {
        assert_eq!(times(Duration::ZERO), 1000 / 32, "each 64 KiB");
        assert_eq!(times(Duration::from_micros(300)), 1000 / 32, "as long as the work in between");
        assert_eq!(times(Duration::from_millis(4)), 3);
        assert_eq!(times(Duration::from_secs(1)), 1);
    }
}
