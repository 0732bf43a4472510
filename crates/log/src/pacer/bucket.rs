//! One token bucket, pure.
//!
//! - P1: over any stretch of time `t`, at most `rate × t + burst + one request` bytes are granted.
//! - P2: a request of any size is granted whole as soon as no debt is left; what it takes beyond the bucket's
//!   contents is the debt of those who come next. So nothing starves for being large.

use std::time::Duration;

/// How much unused rate is saved up: 100 ms of it.
const BURST: Duration = Duration::from_millis(100);

const NANOS: i128 = 1_000_000_000;

/// Tokens drip in at a rate, requests take them out.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Bytes per second; `None` is unlimited.
    rate: Option<u64>,
    /// Contents in bytes × 10⁹, so that a nanosecond's drip is a whole number; below zero it is debt.
    level: i128,
    filled_at: Duration,
}

impl Bucket {
    /// Full at `now`.
    pub fn new(now: Duration, rate: Option<u64>) -> Self {
        Self { rate, level: Self::level_max(rate), filled_at: now }
    }

    /// Bytes per second; `None` is unlimited.
    pub const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// From `now` on, another rate. What the new rate could not save up is lost, and debt beyond that is forgiven:
    /// it was made when it weighed less.
    pub fn set_rate(&mut self, now: Duration, rate: Option<u64>) {
        self.fill(now);
        self.rate = rate;
        let max = Self::level_max(rate);
        self.level = self.level.clamp(-max, max);
    }

    /// Takes `bytes` out, or says how long to wait before asking again; nothing was taken then.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let wait = self.wait(now);
        if wait.is_zero() {
            self.spend(bytes);
        }
        wait
    }

    /// How long until something can be taken.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        match self.rate {
            _ if self.level >= 0 && self.rate != Some(0) => Duration::ZERO,
            None => Duration::ZERO,
            Some(0) => Duration::MAX,
            Some(rate) => {
                let nanos = self.level.unsigned_abs().div_ceil(u128::from(rate));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }

    /// Takes `bytes` out, whatever is in.
    pub fn spend(&mut self, bytes: u64) {
        if self.rate.is_some() {
            self.level = self.level.saturating_sub(i128::from(bytes) * NANOS);
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at);
        self.filled_at = self.filled_at.max(now);
        let Some(rate) = self.rate else { return };
        let nanos = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
        let drip = nanos.saturating_mul(i128::from(rate));
        self.level = self.level.saturating_add(drip).min(Self::level_max(self.rate));
    }

    fn level_max(rate: Option<u64>) -> i128 {
        let nanos = i128::from(BURST.subsec_nanos());
        i128::from(rate.unwrap_or(0)).saturating_mul(nanos)
    }

    /// How much of a request to grant at a time: about a burst, but not so little that asking costs more than moving.
    pub(super) fn piece_bytes(&self) -> u64 {
        const PIECE_BYTES_MIN: u64 = 4096;
        self.rate.map_or(u64::MAX, |rate| (rate / 10).max(PIECE_BYTES_MIN))
    }
}
