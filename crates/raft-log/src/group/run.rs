//! Where a group's entries lie: one record for each batch, not for each entry.
//!
//! - R1: runs are sorted by their first index, and each ends where the next begins, the last where the group does.
//! - R2: a run's `first` is that of its item in the batch, even after its front was compacted: that is how the item is found.
//! - R3: runs in the rewrite queue come before those in the append queue.
//! - R4: runs are kept in pieces of one file each: the first as it is, of each other one how far it is behind the one before.
//!   Of every piece there is at least one run.
//!
//! Cost: some four bytes a run where batches hold one entry of each of many groups; with keys and all a process grows by some 5 bytes for an entry of 128
//! bytes, with raft-engine 0.4.2 by 74 (`raft_bars index` in `bench/`: 2 million of them in 1,000 groups, batches of eight, memory that is no file's). An entry is found by bisection of the pieces
//! and a walk over one of them, [`PIECE_RUNS`] at most.

use std::collections::VecDeque;
use std::iter;

use esker_format::raft::file_name::{FileId, Queue};
use esker_format::varint;

use super::span::Span;

/// Runs in a piece, at most. More take less memory: a piece has 56 bytes of its own. A walk over all takes 100 ns.
const PIECE_RUNS: u32 = 64;
/// What is kept of a run at most, and usually.
const STEP_BYTES_MAX: usize = 2 * varint::VARINT64_BYTES_MAX;
const STEP_BYTES_USUAL: usize = 4;
/// Room that is left over after compaction is given back from this many pieces on.
const SHRINK_FROM: usize = 8;
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

/// Some runs of one file (R4).
#[derive(Debug)]
struct Piece {
    head: Run,
    count: u32,
    /// Of each run behind the head: a varint of twice the bytes from the batch before to its own, plus one where its first index is not
    /// one more than that before; then a varint of how much more it is.
    steps: Vec<u8>,
}

impl Piece {
    fn new(head: Run) -> Self {
        Self { head, count: 1, steps: Vec::new() }
    }

    /// Takes `run` in behind `last`, the last one that is here. `false`: it needs a piece of its own.
    fn push(&mut self, last: Run, run: Run) -> bool {
        let (Some(forward), Some(more)) = (run.offset.checked_sub(last.offset), run.first.checked_sub(last.first))
        else {
            return false;
        };
        if self.count >= PIECE_RUNS || run.file != last.file || forward > u64::MAX / 2 {
            return false;
        }
        self.make_room();
        varint::put_u64(&mut self.steps, forward << 1 | u64::from(more != 1));
        if more != 1 {
            varint::put_u64(&mut self.steps, more);
        }
        self.count += 1;
        true
    }

    /// For another run. What is left over goes when the piece is full.
    #[inline]
    fn make_room(&mut self) {
        if self.steps.capacity() - self.steps.len() < STEP_BYTES_MAX {
            // Grows by half: a vector that doubles would waste as much as it holds.
            self.steps.reserve_exact((self.steps.len() / 2).max(STEP_BYTES_MAX));
        }
    }

    /// The next piece, which begins with `run` and grows in the memory of this one, which does not any more: so the pieces of many groups
    /// do not leave holes behind that none of them fits into.
    fn end(&mut self, run: Run) -> Self {
        let mut next = Self::new(run);
        let steps = std::mem::take(&mut self.steps);
        self.steps = steps.as_slice().into();
        next.steps = steps;
        next.steps.clear();
        next
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut steps = self.steps.iter();
        let mut next = Some(self.head);
        iter::from_fn(move || {
            let run = next?;
            next = number(&mut steps).map(|step| {
                let more = if step & 1 == 0 { Some(1) } else { number(&mut steps) };
                Run { first: run.first + more.unwrap_or(1), offset: run.offset + (step >> 1), ..run }
            });
            Some(run)
        })
    }
}

/// The next varint, which this process wrote.
fn number(steps: &mut std::slice::Iter<'_, u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *steps.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some(value)
}

/// Runs that are gathered one behind the other. What the next one needs lies together: while files are scanned, thousands of groups take turns.
#[derive(Debug)]
pub(crate) struct RunsBuilder {
    last: Run,
    open: Piece,
    full: Vec<Piece>,
}

impl RunsBuilder {
    pub(crate) fn new(run: Run) -> Self {
        Self { last: run, open: Piece::new(run), full: Vec::new() }
    }

    /// Puts `run`, whose first index is a later one, behind all.
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        // In two steps: it will be full, or given back at the end.
        let steps = &mut self.open.steps;
        if steps.capacity() - steps.len() < STEP_BYTES_MAX {
            steps.reserve_exact(if steps.is_empty() {
                2 * STEP_BYTES_MAX
            } else {
                PIECE_RUNS as usize * STEP_BYTES_USUAL
            });
        }
        if !self.open.push(self.last, run) {
            let next = self.open.end(run);
            self.full.push(std::mem::replace(&mut self.open, next));
        }
        self.last = run;
    }

    pub(crate) fn end(mut self) -> Runs {
        self.open.steps.shrink_to_fit();
        self.full.push(self.open);
        Runs { pieces: self.full.into(), last: Some(self.last) }
    }
}

/// All runs of a group.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pieces: VecDeque<Piece>,
    /// The last run of the last piece; of no piece, nothing.
    last: Option<Run>,
}

impl Runs {
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds the entries from `run.first` on; what was there from there on is replaced.
    pub(crate) fn append(&mut self, run: Run) {
        // Nearly always it comes behind all that is there.
        if self.last.is_some_and(|last| last.first >= run.first) {
            self.truncate(run.first);
        }
        self.push(run);
    }

    /// Puts `run` behind all.
    fn push(&mut self, run: Run) {
        let joined = match (self.pieces.back_mut(), self.last) {
            (Some(piece), Some(last)) => piece.push(last, run),
            _ => false,
        };
        if !joined {
            let next = self.pieces.back_mut().map_or_else(|| Piece::new(run), |full| full.end(run));
            self.reserve(1);
            self.pieces.push_back(next);
        }
        self.last = Some(run);
    }

    /// Makes room for so many more pieces.
    fn reserve(&mut self, more: usize) {
        if self.pieces.capacity() - self.pieces.len() < more {
            self.pieces.reserve_exact(more.max(self.pieces.len() / 4));
        }
    }

    /// Lets go of the runs from index `first` on.
    pub(crate) fn truncate(&mut self, first: u64) {
        let kept = self.pieces.partition_point(|piece| piece.head.first < first);
        self.pieces.truncate(kept);
        let Some(cut) = self.pieces.pop_back() else {
            self.last = None;
            return;
        };
        self.last = self.pieces.back().and_then(|piece| piece.runs().last());
        cut.runs().take_while(|run| run.first < first).for_each(|run| self.push(run));
    }

    /// Adds the runs of `newer`; what was there from its first index on is replaced. The first of them may begin before
    /// the group's entries do (R2), so what it overlaps is told by the others' ends.
    pub(crate) fn join(&mut self, mut newer: Self) {
        let Some(first) = newer.pieces.front().map(|piece| piece.head.first) else { return };
        if self.last.is_some_and(|last| last.first >= first) {
            self.truncate(first);
        }
        let Some(last) = self.last else {
            *self = newer;
            return;
        };
        // A piece may go on in the same file.
        while newer.pieces.front().is_some_and(|piece| piece.head.file == last.file) {
            newer.pieces.pop_front().iter().flat_map(Piece::runs).for_each(|run| self.push(run));
        }
        if newer.pieces.is_empty() {
            return;
        }
        if let Some(last) = self.pieces.back_mut() {
            last.steps.shrink_to_fit();
        }
        self.reserve(newer.pieces.len());
        self.pieces.append(&mut newer.pieces);
        self.last = newer.last;
    }

    /// Lets go of runs that end at or before `span.first`.
    pub(crate) fn compact(&mut self, span: Span) {
        if span.is_empty() {
            self.clear();
            return;
        }
        let gone = self.pieces.partition_point(|piece| piece.head.first <= span.first).saturating_sub(1);
        self.pieces.drain(..gone);
        let Some(front) = self.pieces.front() else { return };
        let dead = front.runs().take_while(|run| run.first <= span.first).count().saturating_sub(1);
        if dead > 0 {
            self.drop_front(dead);
        }
        if self.pieces.capacity() > SHRINK_FROM && self.pieces.len() < self.pieces.capacity() / 2 {
            self.pieces.shrink_to(self.pieces.len() + self.pieces.len() / 4);
        }
    }

    /// Takes `dead` runs, not all, off the first piece.
    fn drop_front(&mut self, dead: usize) {
        let Some(front) = self.pieces.pop_front() else { return };
        let mut left = Self::default();
        front.runs().skip(dead).for_each(|run| left.push(run));
        left.pieces.into_iter().rev().for_each(|piece| self.pieces.push_front(piece));
    }

    /// All runs from the piece with index `first` on.
    fn from(&self, first: u64) -> impl Iterator<Item = Run> + '_ {
        let begin = self.pieces.partition_point(|piece| piece.head.first <= first).saturating_sub(1);
        self.pieces.range(begin..).flat_map(Piece::runs)
    }

    /// The runs with indexes of `wanted`, which lies within `span`, and where each one's indexes end.
    pub(crate) fn within(&self, span: Span, wanted: Span) -> impl Iterator<Item = (Run, Span)> + '_ {
        let mut runs = self.from(wanted.first).peekable();
        iter::from_fn(move || {
            loop {
                let run = runs.next()?;
                let end = runs.peek().map_or(span.next, |next| next.first);
                if end <= wanted.first && runs.peek().is_some() {
                    continue;
                }
                let part = Span { first: run.first.max(wanted.first), next: end.min(wanted.next) };
                return (!part.is_empty()).then_some((run, part));
            }
        })
    }

    /// The first run in the append queue: those before it are in the rewrite queue (R3), and pieces are of one file.
    fn first_appended(&self) -> Option<Run> {
        let at = self.pieces.partition_point(|piece| piece.head.queue() == Queue::Rewrite);
        self.pieces.get(at).map(|piece| piece.head)
    }

    /// The index from which on entries lie in the append queue.
    pub(crate) fn rewritten_until(&self, span: Span) -> u64 {
        self.first_appended().map_or(span.next, |run| run.first.max(span.first))
    }

    /// The oldest file of `queue` that holds entries.
    pub(crate) fn oldest_file(&self, queue: Queue) -> Option<u64> {
        let run = match queue {
            Queue::Rewrite => self.pieces.front().map(|piece| piece.head),
            Queue::Append => self.first_appended(),
        };
        run.filter(|run| run.queue() == queue).map(|run| run.sequence())
    }

    /// The indexes that lie in the rewrite queue or in a file of the append queue up to `file`.
    pub(crate) fn until_file(&self, span: Span, file: u64) -> Span {
        let old = |piece: &Piece| piece.head.queue() == Queue::Rewrite || piece.head.sequence() <= file;
        let next = self.pieces.get(self.pieces.partition_point(old)).map_or(span.next, |piece| piece.head.first);
        Span { first: span.first, next: next.max(span.first) }
    }

    /// Puts `new` in the place of those of `old` that are still as they were (compare and swap); says how many.
    /// Entries that were appended or compacted meanwhile are not touched.
    pub(crate) fn replace(&mut self, old: &[Run], new: Run) -> usize {
        let (Some(oldest), Some(newest)) = (old.first(), old.last()) else { return 0 };
        // The pieces that may hold any of them.
        let begin = self.pieces.partition_point(|piece| piece.head.first <= oldest.first).saturating_sub(1);
        let end = self.pieces.partition_point(|piece| piece.head.first <= newest.first);
        let mut runs: Vec<Run> = self.pieces.range(begin..end.max(begin)).flat_map(Piece::runs).collect();
        let Some((at, skipped)) = old.iter().enumerate().find_map(|(skipped, run)| {
            let at = runs.partition_point(|other| other.first < run.first);
            (runs.get(at) == Some(run)).then_some((at, skipped))
        }) else {
            return 0;
        };
        let here = runs.iter().skip(at).zip(old.iter().skip(skipped));
        let same = here.take_while(|(here, run)| here == run).count();
        runs.splice(at..at + same, [new]);
        let behind = self.pieces.split_off(end);
        self.pieces.truncate(begin);
        let last = self.last;
        self.last = self.pieces.back().and_then(|piece| piece.runs().last());
        runs.into_iter().for_each(|run| self.push(run));
        if !behind.is_empty() {
            self.pieces.extend(behind);
            self.last = last;
        }
        same
    }

    /// Memory that the records take.
    pub(crate) fn heap_bytes(&self) -> usize {
        let steps: usize = self.pieces.iter().map(|piece| piece.steps.capacity()).sum();
        self.pieces.capacity() * size_of::<Piece>() + steps
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.count as usize).sum()
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

    fn list(runs: &Runs) -> Vec<Run> {
        let all: Vec<Run> = runs.pieces.iter().flat_map(Piece::runs).collect();
        assert_eq!((all.len(), all.last().copied()), (runs.len(), runs.last));
        all
    }

    #[test]
    fn a_run_says_where_it_lies() {
        let place = Place { file: FileId::new(Queue::Append, 1 << 40), offset: u64::MAX };
        assert_eq!(Run::new(7, place).place(), place);
    }

    /// The aim of R4: entries that come alone take a tenth of what raft-engine's index does.
    #[test]
    fn runs_of_one_entry_take_few_bytes() {
        let place = |index: u64| Place { file: FileId::new(Queue::Append, 1 + index / 1_000), offset: index * 150_000 };
        let mut runs = Runs::default();
        (1..=10_000).for_each(|index| runs.append(Run::new(index, place(index))));
        assert_eq!(runs.len(), 10_000);
        assert!(runs.heap_bytes() < 5 * 10_000, "{} bytes", runs.heap_bytes());
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
        assert_eq!(list(&whole), [new, c]);
        assert_eq!(whole.rewritten_until(Span { first: 1, next: 20 }), 15);
        assert_eq!((whole.oldest_file(Queue::Append), whole.oldest_file(Queue::Rewrite)), (Some(2), Some(1)));

        let mut compacted = runs(&[a, b, c]);
        compacted.compact(Span { first: 12, next: 20 });
        assert_eq!(compacted.replace(&[a, b], new), 1);
        assert_eq!(list(&compacted), [new, c], "the run keeps the first index of its item");

        let mut overwritten = runs(&[a, b, c]);
        overwritten.append(run(5, Queue::Append, 3));
        assert_eq!(overwritten.replace(&[a, b], new), 1);
        assert_eq!(list(&overwritten), [new, run(5, Queue::Append, 3)]);

        let mut gone = runs(&[c]);
        assert_eq!(gone.replace(&[a, b], new), 0);
        assert_eq!(list(&gone), [c]);
    }

    #[test]
    fn old_files_are_told_from_newer_ones() {
        let span = Span { first: 1, next: 30 };
        let runs = runs(&[run(1, Queue::Rewrite, 9), run(10, Queue::Append, 3), run(20, Queue::Append, 5)]);
        assert_eq!(runs.until_file(span, 2).next, 10);
        assert_eq!(runs.until_file(span, 4).next, 20);
        assert_eq!(runs.until_file(span, 5).next, 30);
    }

    /// The same as a plain list of runs, whatever is done to both.
    #[test]
    fn packed_runs_are_a_list_of_runs() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut packed, mut plain) = (Runs::default(), Vec::<Run>::new());
            let mut span = Span { first: 1, next: 1 };
            let (mut sequence, mut offset) = (1, 0);
            for _ in 0..random.usize(..400) {
                match random.u32(..100) {
                    0..80 => {
                        let back = if random.u32(..20) == 0 { random.u64(..20) } else { 0 };
                        let first = span.next.saturating_sub(back).max(span.first);
                        let count = if random.bool() { 1 } else { random.u64(1..300) };
                        if random.u32(..60) == 0 {
                            (sequence, offset) = (sequence + 1, 0);
                        }
                        let forward = 1 << random.u32(1..40);
                        offset += random.u64(1..forward);
                        let run = Run::new(first, Place { file: FileId::new(Queue::Append, sequence), offset });
                        if first == span.first {
                            (packed, plain) = (Runs::default(), Vec::new());
                        }
                        plain.retain(|old| old.first < first);
                        plain.push(run);
                        packed.append(run);
                        span.next = first + count;
                    }
                    80..90 => {
                        span.first = random.u64(span.first..=span.next);
                        packed.compact(span);
                        let dead = plain.iter().filter(|run| run.first <= span.first).count().saturating_sub(1);
                        plain.drain(..if span.is_empty() { plain.len() } else { dead });
                    }
                    _ if plain.is_empty() => {}
                    _ => {
                        let begin = plain.iter().filter(|run| run.queue() == Queue::Rewrite).count();
                        if begin == plain.len() {
                            continue;
                        }
                        let old = plain[begin..random.usize(begin + 1..=plain.len())].to_vec();
                        let place = Place { file: FileId::new(Queue::Rewrite, 1), offset: random.u64(..1 << 40) };
                        let new = Run::new(old[0].first.max(span.first), place);
                        let old: Vec<Run> = old.into_iter().skip(random.usize(..2)).collect();
                        if old.is_empty() || old[0].first != new.first {
                            continue;
                        }
                        assert_eq!(packed.replace(&old, new), old.len());
                        let at = plain.iter().position(|run| *run == old[0]).unwrap();
                        plain.splice(at..at + old.len(), [new]);
                    }
                }
                let from = random.u64(span.first..=span.next);
                let wanted = Span { first: from, next: random.u64(from..=span.next) };
                let ends = plain.iter().skip(1).map(|run| run.first).chain([span.next]);
                let expected: Vec<(Run, Span)> = plain
                    .iter()
                    .zip(ends)
                    .map(|(run, end)| (*run, Span { first: run.first.max(wanted.first), next: end.min(wanted.next) }))
                    .filter(|(_, part)| !part.is_empty())
                    .collect();
                assert_eq!(packed.within(span, wanted).collect::<Vec<_>>(), expected, "seed {seed}");
                let oldest = plain.iter().find(|run| run.queue() == Queue::Append).map(Run::sequence);
                assert_eq!(packed.oldest_file(Queue::Append), oldest, "seed {seed}");
            }
            assert_eq!(list(&packed), plain, "seed {seed}");
        }
    }
}
