//! What a group has by the items that were kept so far, as scripts are told.

use esker_raft_log::{Offered, Queue, Verdict};

/// What a group has, and would have if nothing was discarded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Group {
    pub(crate) kept: State,
    all: State,
}

impl Group {
    /// What `verdict` on an item makes of it.
    ///
    /// # Errors
    /// The item stays, and leaves a gap behind what was kept: in the append queue no sound log has one. In the rewrite queue, which carries on
    /// only what is alive, one that there is without the script says nothing.
    pub(crate) fn apply(&mut self, queue: Queue, verdict: Verdict, item: Offered) -> Result<(), &'static str> {
        if verdict == Verdict::DiscardEarlier {
            self.kept = State::default();
        }
        if verdict != Verdict::Discard {
            let is_gap = !self.kept.reaches(queue, item);
            if is_gap && (queue == Queue::Append || self.all.reaches(queue, item)) {
                return Err("entries are missing before it");
            }
            self.kept.apply(queue, item);
        }
        self.all.apply(queue, item);
        Ok(())
    }
}

/// Its first index, how many entries follow, and how many of them come from the rewrite queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) rewritten: u64,
}

impl State {
    fn next(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// Whether there is no gap before entries; those of the rewrite queue follow one another.
    fn reaches(&self, queue: Queue, item: Offered) -> bool {
        let end = match queue {
            Queue::Append => self.next(),
            Queue::Rewrite => self.first.saturating_add(self.rewritten),
        };
        !matches!(item, Offered::Entries { first, .. } if self.count > 0 && first > end)
    }

    fn apply(&mut self, queue: Queue, item: Offered) {
        match item {
            // What is behind a gap is all that there is. So is what begins below the first: what is between lies in files that were given up.
            Offered::Entries { first, last } if first < self.first || !self.reaches(queue, item) => {
                *self = Self::default();
                self.add(queue, first, last);
            }
            Offered::Entries { first, last } => self.add(queue, first, last),
            Offered::Compact { index } => self.compact(index),
            Offered::Clean => *self = Self::default(),
            _ => {}
        }
    }

    fn add(&mut self, queue: Queue, first: u64, last: u64) {
        if self.count == 0 {
            *self = Self { first, ..Self::default() };
        }
        self.count = last.saturating_sub(self.first).saturating_add(1);
        self.rewritten = match queue {
            Queue::Rewrite => self.count,
            Queue::Append => self.rewritten.min(first.saturating_sub(self.first)),
        };
    }

    fn compact(&mut self, index: u64) {
        if self.count == 0 || index <= self.first {
            return;
        }
        if index >= self.next() {
            *self = Self::default();
            return;
        }
        let gone = index - self.first;
        *self = Self { first: index, count: self.count - gone, rewritten: self.rewritten.saturating_sub(gone) };
    }
}
