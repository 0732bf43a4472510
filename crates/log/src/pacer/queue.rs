//! A bucket for each class and one for all, pure. More urgent classes go first where all share.

use std::time::Duration;

use super::{Bucket, Class};

/// How soon one that stepped aside for a more urgent class looks again.
const ASIDE: Duration = Duration::from_millis(1);

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// So many bytes may be moved now; ask again for the rest.
    Moves(u64),
    /// Nothing yet; ask again after so long, or earlier.
    Waits(Duration),
}

/// The state behind a [`Pacer`](super::Pacer).
#[derive(Debug)]
pub struct Queues {
    classes: [Bucket; Class::ALL.len()],
    total: Bucket,
    /// How many of each class wait for `total`.
    waiting: [usize; Class::ALL.len()],
}

impl Queues {
    /// No limits.
    pub fn new(now: Duration) -> Self {
        let unlimited = || Bucket::new(now, None);
        Self { classes: Class::ALL.map(|_| unlimited()), total: unlimited(), waiting: [0; Class::ALL.len()] }
    }

    fn bucket(&mut self, class: Class) -> &mut Bucket {
        let [foreground, flush, compaction, reclaim, scrub] = &mut self.classes;
        match class {
            Class::Foreground => foreground,
            Class::Flush => flush,
            Class::Compaction => compaction,
            Class::Reclaim => reclaim,
            Class::Scrub => scrub,
        }
    }

    /// Changes the rate of one class.
    pub fn set_rate(&mut self, now: Duration, class: Class, rate: Option<u64>) {
        self.bucket(class).set_rate(now, rate);
    }

    /// Changes the rate of all together.
    pub fn set_total_rate(&mut self, now: Duration, rate: Option<u64>) {
        self.total.set_rate(now, rate);
    }

    /// The rate of one class.
    pub fn rate(&mut self, class: Class) -> Option<u64> {
        self.bucket(class).rate()
    }

    /// Asks for up to `bytes`. `queued` is the asker's own note of whether it is counted as waiting:
    /// `false` at first, and then whatever the last call made of it. Ask until nothing is left, or [`leave`](Self::leave): else the count stays.
    pub fn ask(&mut self, now: Duration, class: Class, bytes: u64, queued: &mut bool) -> Grant {
        let own_wait = self.bucket(class).wait(now);
        if !own_wait.is_zero() {
            self.note(class, queued, false);
            return Grant::Waits(own_wait);
        }
        if self.total.rate().is_some() {
            let aside = Class::ALL.iter().zip(self.waiting).any(|(other, count)| *other < class && count > 0);
            let wait = self.total.wait(now).max(if aside { ASIDE } else { Duration::ZERO });
            if !wait.is_zero() {
                self.note(class, queued, true);
                return Grant::Waits(wait);
            }
        }
        let piece = bytes.min(self.bucket(class).piece_bytes()).min(self.total.piece_bytes());
        self.bucket(class).spend(piece);
        self.total.spend(piece);
        self.note(class, queued, false);
        Grant::Moves(piece)
    }

    /// Whoever asked with this note asks no more.
    pub fn leave(&mut self, class: Class, queued: &mut bool) {
        self.note(class, queued, false);
    }

    fn note(&mut self, class: Class, queued: &mut bool, waits: bool) {
        let index = Class::ALL.iter().position(|other| *other == class);
        if let Some(count) = index.and_then(|index| self.waiting.get_mut(index)) {
            match (*queued, waits) {
                (false, true) => *count += 1,
                (true, false) => *count = count.saturating_sub(1),
                _ => {}
            }
            *queued = waits;
        }
    }
}
