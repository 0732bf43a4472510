//! Where a group's entries lie: one record for each batch, not for each entry.
//!
//! - R1: runs are sorted by their first index, and each ends where the next begins, the last where the group does.
//! - R2: a run's `first` is that of its item in the batch, even after its front was compacted: that is how the item is found.
//! - R3: runs in the rewrite queue come before those in the append queue.
//!
//! Cost: 24 bytes a run; an entry is found by bisection.

use std::collections::VecDeque;

use esker_format::raft::file_name::{FileId, Queue};

use super::span::Span;

/// Room that is left over after compaction is given back from this many runs on.
const SHRINK_FROM: usize = 64;
/// The bit of a packed file id that says that it is of the append queue.
const APPEND_BIT: u64 = 1 << 63;

/// A batch in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
}

/// The entries that one batch holds of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    file: u64,
    offset: u64,
}

impl Run {
    pub(crate) const fn new(first: u64, place: Place) -> Self {
        let queue = match place.file.queue {
            Queue::Append => APPEND_BIT,
            Queue::Rewrite => 0,
        };
        Self { first, file: place.file.sequence & !APPEND_BIT | queue, offset: place.offset }
    }

    pub(crate) const fn place(&self) -> Place {
        Place { file: FileId::new(self.queue(), self.file & !APPEND_BIT), offset: self.offset }
    }

    pub(crate) const fn queue(&self) -> Queue {
        if self.file & APPEND_BIT == 0 { Queue::Rewrite } else { Queue::Append }
    }

    const fn sequence(&self) -> u64 {
        self.file & !APPEND_BIT
    }
}

/// All runs of a group.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: VecDeque<Run>,
}

impl Runs {
    pub(crate) fn clear(&mut self) {
        self.runs = VecDeque::new();
    }

    /// Adds the entries from `run.first` on; what was there from there on is replaced.
    pub(crate) fn append(&mut self, run: Run) {
        // Nearly always it comes behind all that is there.
        if self.runs.back().is_some_and(|last| last.first >= run.first) {
            let kept = self.runs.partition_point(|old| old.first < run.first);
            self.runs.truncate(kept);
        }
        // Grows by a quarter: a deque that doubles would waste as much as it holds.
        if self.runs.len() == self.runs.capacity() {
            self.runs.reserve_exact((self.runs.len() / 4).max(2));
        }
        self.runs.push_back(run);
    }

    /// Adds the runs of `newer`; what was there from its first index on is replaced. The first of them may begin before
    /// the group's entries do (R2), so what it overlaps is told by the others' ends.
    pub(crate) fn join(&mut self, newer: Self) {
        for run in newer.runs {
            self.append(run);
        }
    }

    /// Lets go of runs that end at or before `span.first`.
    pub(crate) fn compact(&mut self, span: Span) {
        if span.is_empty() {
            self.clear();
            return;
        }
        let gone = self.runs.partition_point(|run| run.first <= span.first).saturating_sub(1);
        self.runs.drain(..gone);
        if self.runs.capacity() > SHRINK_FROM && self.runs.len() < self.runs.capacity() / 2 {
            self.runs.shrink_to(self.runs.len() + self.runs.len() / 4);
        }
    }

    /// The runs with indexes of `wanted`, which lies within `span`, and where each one's indexes end.
    pub(crate) fn within(&self, span: Span, wanted: Span) -> impl Iterator<Item = (Run, Span)> + '_ {
        let begin = self.runs.partition_point(|run| run.first <= wanted.first).saturating_sub(1);
        (begin..self.runs.len()).map_while(move |at| {
            let run = *self.runs.get(at)?;
            let end = self.runs.get(at + 1).map_or(span.next, |next| next.first);
            let part = Span { first: run.first.max(wanted.first), next: end.min(wanted.next) };
            (!part.is_empty()).then_some((run, part))
        })
    }

    /// How many runs lie in the rewrite queue: the first ones (R3).
    fn rewritten_runs(&self) -> usize {
        self.runs.partition_point(|run| run.queue() == Queue::Rewrite)
    }

    /// The index from which on entries lie in the append queue.
    pub(crate) fn rewritten_until(&self, span: Span) -> u64 {
        self.runs.get(self.rewritten_runs()).map_or(span.next, |run| run.first.max(span.first))
    }

    /// The oldest file of `queue` that holds entries.
    pub(crate) fn oldest_file(&self, queue: Queue) -> Option<u64> {
        let run = match queue {
            Queue::Rewrite => self.runs.front(),
            Queue::Append => self.runs.get(self.rewritten_runs()),
        };
        run.filter(|run| run.queue() == queue).map(Run::sequence)
    }

    /// The indexes that lie in the rewrite queue or in a file of the append queue up to `file`.
    pub(crate) fn until_file(&self, span: Span, file: u64) -> Span {
        let old = |run: &Run| run.queue() == Queue::Rewrite || run.sequence() <= file;
        let next = self.runs.get(self.runs.partition_point(old)).map_or(span.next, |run| run.first);
        Span { first: span.first, next: next.max(span.first) }
    }

    /// Puts `new` in the place of those of `old` that are still as they were (compare and swap); says how many.
    /// Entries that were appended or compacted meanwhile are not touched.
    pub(crate) fn replace(&mut self, old: &[Run], new: Run) -> usize {
        let Some((begin, skipped)) = old.iter().enumerate().find_map(|(skipped, run)| {
            let at = self.runs.partition_point(|other| other.first < run.first);
            (self.runs.get(at) == Some(run)).then_some((at, skipped))
        }) else {
            return 0;
        };
        let same = self.runs.range(begin..).zip(old.iter().skip(skipped)).take_while(|(here, run)| here == run).count();
        if let Some(run) = self.runs.get_mut(begin) {
            *run = new;
        }
        self.runs.drain(begin + 1..begin + same);
        same
    }

    /// Memory that the records take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, queue: Queue, sequence: u64) -> Run {
        Run::new(first, Place { file: FileId::new(queue, sequence), offset: first * 10 })
    }

    fn runs(of: &[Run]) -> Runs {
        let mut runs = Runs::default();
        of.iter().for_each(|run| runs.append(*run));
        runs
    }

    #[test]
    fn a_run_is_small_and_says_where_it_lies() {
        assert_eq!(size_of::<Run>(), 24);
        let place = Place { file: FileId::new(Queue::Append, 1 << 40), offset: u64::MAX };
        assert_eq!(Run::new(7, place).place(), place);
    }

    #[test]
    fn runs_end_where_the_next_begins() {
        let (a, b, c) = (run(1, Queue::Append, 1), run(11, Queue::Append, 1), run(15, Queue::Append, 2));
        let mut runs = runs(&[a, b, c]);
        let span = Span { first: 1, next: 20 };
        let parts = |runs: &Runs, span, first, next| {
            runs.within(span, Span { first, next })
                .map(|(run, part)| (run.first, part.first, part.next))
                .collect::<Vec<_>>()
        };
        assert_eq!(parts(&runs, span, 5, 16), [(1, 5, 11), (11, 11, 15), (15, 15, 16)]);
        assert_eq!(parts(&runs, span, 11, 12), [(11, 11, 12)]);
        runs.append(run(13, Queue::Append, 3));
        assert_eq!(parts(&runs, Span { first: 1, next: 14 }, 1, 14), [(1, 1, 11), (11, 11, 13), (13, 13, 14)]);
        runs.compact(Span { first: 12, next: 14 });
        assert_eq!(parts(&runs, Span { first: 12, next: 14 }, 12, 14), [(11, 12, 13), (13, 13, 14)]);
        runs.compact(Span { first: 14, next: 14 });
        assert_eq!(runs.len(), 0);
    }

    #[test]
    fn only_what_is_as_it_was_is_replaced() {
        let (a, b, c) = (run(1, Queue::Append, 1), run(11, Queue::Append, 1), run(15, Queue::Append, 2));
        let new = run(1, Queue::Rewrite, 1);
        let mut whole = runs(&[a, b, c]);
        assert_eq!(whole.replace(&[a, b], new), 2);
        assert_eq!(whole.runs, [new, c]);
        assert_eq!(whole.rewritten_until(Span { first: 1, next: 20 }), 15);
        assert_eq!((whole.oldest_file(Queue::Append), whole.oldest_file(Queue::Rewrite)), (Some(2), Some(1)));

        let mut compacted = runs(&[a, b, c]);
        compacted.compact(Span { first: 12, next: 20 });
        assert_eq!(compacted.replace(&[a, b], new), 1);
        assert_eq!(compacted.runs, [new, c], "the run keeps the first index of its item");

        let mut overwritten = runs(&[a, b, c]);
        overwritten.append(run(5, Queue::Append, 3));
        assert_eq!(overwritten.replace(&[a, b], new), 1);
        assert_eq!(overwritten.runs, [new, run(5, Queue::Append, 3)]);

        let mut gone = runs(&[c]);
        assert_eq!(gone.replace(&[a, b], new), 0);
        assert_eq!(gone.runs, [c]);
    }

    #[test]
    fn old_files_are_told_from_newer_ones() {
        let span = Span { first: 1, next: 30 };
        let runs = runs(&[run(1, Queue::Rewrite, 9), run(10, Queue::Append, 3), run(20, Queue::Append, 5)]);
        assert_eq!(runs.until_file(span, 2).next, 10);
        assert_eq!(runs.until_file(span, 4).next, 20);
        assert_eq!(runs.until_file(span, 5).next, 30);
    }
}
