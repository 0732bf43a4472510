//! A Raft group in memory: where its entries lie, and its keys with their values.
//!
//! Replay and writing change a group through the same [`Group::apply`]; moving its content to other files goes through
//! [`Group::move_entries`] and [`Group::move_key`], which touch nothing but places (B2).
//!
//! Entries of the append queue are replayed beside those of the rewrite queue and joined at the end ([`Group::replay`]):
//! what was dead when entries were moved is missing from the rewrite queue, though it was alive in between.
//!
//! What the rewrite queue still holds of entries and keys that are gone would come back once the append queue's files
//! that say so are purged (B1). So a group remembers what replaying the rewrite queue alone would give ([`Group::residue`],
//! [`Value::copied`], [`Group::ghosts`]), and [`Group::owed`] says what must be written there before such a purge.

pub(crate) mod groups;
pub(crate) mod run;
pub(crate) mod span;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use esker_format::raft::file_name::{FileId, Queue};
use esker_format::raft::item::{ATOMIC_GROUP_KEY, Action, AtomicStatus};

pub(crate) use groups::Groups;
pub(crate) use run::{Place, Run, Runs, RunsBuilder};
pub(crate) use span::Span;

/// A key's value.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) file: FileId,
    /// Whether the rewrite queue may hold some value of this key.
    copied: bool,
}

/// What an item does to a group, without the bytes of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Entries { first: u64, count: u64 },
    Compact { index: u64 },
    Put { key: &'a [u8], value: &'a [u8] },
    Delete { key: &'a [u8] },
    Clean,
}

impl<'a> Change<'a> {
    /// `None` for what changes nothing.
    pub(crate) fn of(action: &Action<'a>) -> Option<Self> {
        Some(match action {
            Action::Entries(entries) if entries.count == 0 => return None,
            Action::Entries(entries) => Self::Entries { first: entries.first_index, count: entries.count },
            Action::Compact { index } => Self::Compact { index: *index },
            Action::Put { key: ATOMIC_GROUP_KEY, .. } | Action::Delete { key: ATOMIC_GROUP_KEY } => return None,
            Action::Put { key, value } => Self::Put { key, value },
            Action::Delete { key } => Self::Delete { key },
            Action::Clean => Self::Clean,
        })
    }
}

/// What must be written to the rewrite queue before files of the append queue may go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) compact: Option<u64>,
    pub(crate) deletes: Vec<Box<[u8]>>,
}

/// One group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) span: Span,
    pub(crate) runs: Runs,
    keys: BTreeMap<Box<[u8]>, Value>,
    /// What replaying the rewrite queue alone would give.
    residue: Span,
    /// Keys that are gone, of which the rewrite queue may hold a value.
    ghosts: BTreeSet<Box<[u8]>>,
    /// The files of the atomic group that holds its rewritten content: they go together.
    atomic: Option<(u64, u64)>,
    /// Entries of the append queue, until replay ends.
    beside: Option<Box<Beside>>,
}

/// Entries that are replayed for themselves.
#[derive(Debug)]
struct Beside {
    span: Span,
    runs: Runs,
    /// The lowest index that any of them was written to: they replaced what was there from it on, whatever became of them.
    from: u64,
}

impl Group {
    /// Does what an item of a batch at `place` says. [`Change::Clean`] is not a group's to do.
    pub(crate) fn apply(&mut self, change: &Change<'_>, place: Place) {
        match *change {
            Change::Entries { first, count } => {
                if !self.span.append(first, count) {
                    self.runs.clear();
                }
                self.runs.append(Run::new(first, place));
                if place.file.queue == Queue::Rewrite {
                    self.residue.append(first, count);
                }
            }
            Change::Compact { index } => {
                self.span.compact(index);
                self.runs.compact(self.span);
                if place.file.queue == Queue::Rewrite {
                    self.residue.compact(index);
                }
            }
            Change::Put { key, value } => self.put(key, value, place.file),
            Change::Delete { key } => self.delete(key, place.file.queue),
            Change::Clean => {}
        }
    }

    /// Takes in entries of a file that is replayed, each of which follows those before: `runs` hold those of `span`. Those of the append
    /// queue stay beside those of the rewrite queue.
    pub(crate) fn replay_entries(&mut self, entries: Span, newer: Runs, queue: Queue) {
        let (span, runs) = match queue {
            Queue::Rewrite => {
                self.residue.append(entries.first, entries.count());
                (&mut self.span, &mut self.runs)
            }
            Queue::Append => {
                let first = || Beside { span: Span::default(), runs: Runs::default(), from: entries.first };
                let Beside { span, runs, from } = &mut **self.beside.get_or_insert_with(|| Box::new(first()));
                *from = entries.first.min(*from);
                (span, runs)
            }
        };
        if !span.append(entries.first, entries.count()) {
            runs.clear();
        }
        runs.join(newer);
    }

    /// Entries before `index` are gone, says a file that is replayed.
    pub(crate) fn replay_compact(&mut self, index: u64, place: Place) {
        self.apply(&Change::Compact { index }, place);
        if let Some(Beside { span, runs, .. }) = self.beside.as_deref_mut() {
            span.compact(index);
            runs.compact(*span);
        }
    }

    /// Joins what was replayed: entries of the append queue take the place of what they overlap, and of what those overlapped that
    /// were compacted or replaced since; what would leave a gap is history.
    pub(crate) fn finish_replay(&mut self) {
        let Some(beside) = self.beside.take() else { return };
        if beside.from < self.span.next {
            self.span.truncate(beside.from);
            if self.span.is_empty() { self.runs.clear() } else { self.runs.truncate(self.span.next) }
        }
        if beside.span.is_empty() {
            return;
        }
        if !self.span.append(beside.span.first, beside.span.count()) {
            self.runs.clear();
        }
        self.runs.join(beside.runs);
    }

    fn put(&mut self, key: &[u8], bytes: &[u8], file: FileId) {
        let copied = file.queue == Queue::Rewrite || self.ghosts.remove(key);
        match self.keys.get_mut(key) {
            Some(value) => {
                // Mostly it is as long as it was, and nobody reads it.
                match Arc::get_mut(&mut value.bytes).filter(|old| old.len() == bytes.len()) {
                    Some(old) => old.copy_from_slice(bytes),
                    None => value.bytes = bytes.into(),
                }
                (value.file, value.copied) = (file, copied || value.copied);
            }
            None => {
                self.keys.insert(key.into(), Value { bytes: bytes.into(), file, copied });
            }
        }
    }

    fn delete(&mut self, key: &[u8], queue: Queue) {
        if let Some((key, value)) = self.keys.remove_entry(key)
            && value.copied
            && queue == Queue::Append
        {
            self.ghosts.insert(key);
        }
    }

    /// `items` of a rewritten batch put `new` in the place of `old`; says how many runs that replaced.
    pub(crate) fn move_entries(&mut self, old: &[Run], new: Run, count: u64) -> usize {
        self.residue.append(new.first, count);
        self.runs.replace(old, new)
    }

    /// The value of `key`, which lay in `from`, was written to `to` of the rewrite queue.
    pub(crate) fn move_key(&mut self, key: &[u8], from: FileId, to: FileId) {
        match self.keys.get_mut(key) {
            Some(value) => {
                value.copied = true;
                if value.file == from {
                    value.file = to;
                }
            }
            None => {
                self.ghosts.insert(key.into());
            }
        }
    }

    /// The same for the atomic group that ends the move.
    pub(crate) fn set_atomic(&mut self, files: (u64, u64)) {
        self.atomic = Some(files);
    }

    /// What the rewrite queue must be told, or history comes back.
    pub(crate) fn owed(&self) -> Owed {
        let compact = if self.residue.is_empty() {
            None
        } else if self.span.is_empty() {
            Some(self.residue.next.max(self.span.first))
        } else {
            (self.residue.first < self.span.first).then_some(self.span.first)
        };
        Owed { compact, deletes: self.ghosts.iter().cloned().collect() }
    }

    /// It was told.
    pub(crate) fn settle(&mut self, owed: &Owed) {
        if let Some(index) = owed.compact {
            self.residue.compact(index);
        }
        for key in &owed.deletes {
            self.ghosts.remove(key);
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Value> {
        self.keys.get(key)
    }

    /// The keys of a range with their values, in order.
    pub(crate) fn keys(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &Value)> {
        let empty = from.zip(to).is_some_and(|(from, to)| from >= to);
        // A range that ends before it begins is not one.
        let from = if empty { Bound::Excluded(&[][..]) } else { from.map_or(Bound::Unbounded, Bound::Included) };
        let to = if empty { Bound::Included(&[][..]) } else { to.map_or(Bound::Unbounded, Bound::Excluded) };
        let range = if empty { None } else { Some(self.keys.range::<[u8], _>((from, to))) };
        range.into_iter().flatten().map(|(key, value)| (&**key, value))
    }

    /// The oldest file of `queue` that must stay for this group.
    pub(crate) fn oldest_file(&self, queue: Queue) -> Option<u64> {
        let of_keys =
            self.keys.values().filter(|value| value.file.queue == queue).map(|value| value.file.sequence).min();
        let oldest = [self.runs.oldest_file(queue), of_keys].into_iter().flatten().min()?;
        match self.atomic {
            Some((begin, end)) if queue == Queue::Rewrite && oldest <= end => Some(oldest.min(begin)),
            _ => Some(oldest),
        }
    }

    /// Whether the rewrite queue holds entries from `index` on that are not the group's any more.
    pub(crate) const fn is_replaced_from(&self, index: u64) -> bool {
        self.residue.next > index
    }

    /// How many entries and keys lie in the rewrite queue.
    pub(crate) fn rewritten_count(&self) -> u64 {
        let keys = self.keys.values().filter(|value| value.file.queue == Queue::Rewrite).count() as u64;
        self.rewritten_entries() + keys
    }

    pub(crate) fn rewritten_entries(&self) -> u64 {
        self.runs.rewritten_until(self.span).saturating_sub(self.span.first)
    }

    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Memory that its index takes, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let entry = size_of::<(Box<[u8]>, Value)>() + 2 * size_of::<usize>();
        let keys = self.keys.iter().map(|(key, value)| entry + key.len() + value.bytes.len());
        self.runs.heap_bytes() + keys.sum::<usize>()
    }
}

/// Which part of which atomic group a batch is, by its first marker.
pub(crate) type Marker = (u64, AtomicStatus);

#[cfg(test)]
mod tests {
    use super::*;

    const APPEND: Place = Place { file: FileId::new(Queue::Append, 5), offset: 0 };
    const REWRITE: Place = Place { file: FileId::new(Queue::Rewrite, 2), offset: 0 };

    #[test]
    fn compacted_entries_that_the_rewrite_queue_holds_are_owed() {
        let mut group = Group::default();
        group.apply(&Change::Entries { first: 1, count: 10 }, REWRITE);
        assert_eq!(group.owed(), Owed::default());
        group.apply(&Change::Entries { first: 5, count: 2 }, APPEND);
        group.apply(&Change::Compact { index: 4 }, APPEND);
        assert_eq!(group.owed().compact, Some(4));
        group.settle(&Owed { compact: Some(4), deletes: Vec::new() });
        assert_eq!(group.owed(), Owed::default(), "what follows replaces the rest when it is replayed");
        group.apply(&Change::Compact { index: 7 }, APPEND);
        assert_eq!(group.owed().compact, Some(11), "with nothing behind it, all of it would come back");
        group.settle(&Owed { compact: Some(11), deletes: Vec::new() });
        assert_eq!(group.owed(), Owed::default());
    }

    /// A leader's entry takes the place of some that were moved, and is compacted, with more than there is, before it is moved itself.
    #[test]
    fn what_was_replaced_does_not_come_back_with_what_replaced_it_compacted() {
        let runs = |first, place| RunsBuilder::new(Run::new(first, place)).end();
        let mut group = Group::default();
        group.replay_entries(Span { first: 66, next: 95 }, runs(66, REWRITE), Queue::Rewrite);
        group.replay_entries(Span { first: 73, next: 74 }, runs(73, APPEND), Queue::Append);
        group.replay_compact(81, APPEND);
        group.finish_replay();
        assert!(group.span.is_empty(), "{:?}", group.span);
        assert_eq!((group.runs.len(), group.owed().compact), (0, Some(95)));

        let mut group = Group::default();
        group.replay_entries(Span { first: 66, next: 95 }, runs(66, REWRITE), Queue::Rewrite);
        group.replay_entries(Span { first: 73, next: 75 }, runs(73, APPEND), Queue::Append);
        group.replay_compact(75, APPEND);
        group.replay_entries(Span { first: 80, next: 82 }, runs(80, APPEND), Queue::Append);
        group.finish_replay();
        assert_eq!(group.span, Span { first: 80, next: 82 });

        let mut group = Group::default();
        group.replay_entries(Span { first: 66, next: 95 }, runs(66, REWRITE), Queue::Rewrite);
        group.replay_entries(Span { first: 90, next: 92 }, runs(90, APPEND), Queue::Append);
        group.finish_replay();
        assert_eq!((group.span, group.runs.len()), (Span { first: 66, next: 92 }, 2), "what it did not reach stays");
    }

    #[test]
    fn deleted_keys_that_the_rewrite_queue_holds_are_owed() {
        let mut group = Group::default();
        group.apply(&Change::Put { key: b"old", value: b"1" }, REWRITE);
        group.apply(&Change::Put { key: b"old", value: b"2" }, APPEND);
        group.apply(&Change::Put { key: b"new", value: b"1" }, APPEND);
        group.apply(&Change::Delete { key: b"old" }, APPEND);
        group.apply(&Change::Delete { key: b"new" }, APPEND);
        let owed = group.owed();
        assert_eq!(owed.deletes, [Box::from(&b"old"[..])]);
        group.settle(&owed);
        assert_eq!(group.owed(), Owed::default());
        group.move_key(b"new", APPEND.file, REWRITE.file);
        assert_eq!(group.owed().deletes.len(), 1, "it was copied while it was deleted");
    }

    #[test]
    fn moves_never_bring_back_an_older_value() {
        let mut group = Group::default();
        group.apply(&Change::Put { key: b"k", value: b"1" }, APPEND);
        let newer = Place { file: FileId::new(Queue::Append, 6), offset: 0 };
        group.apply(&Change::Put { key: b"k", value: b"2" }, newer);
        group.move_key(b"k", APPEND.file, REWRITE.file);
        let value = group.get(b"k").unwrap();
        assert_eq!((&*value.bytes, value.file), (&b"2"[..], newer.file));
        group.apply(&Change::Delete { key: b"k" }, newer);
        assert_eq!(group.owed().deletes.len(), 1);
    }

    #[test]
    fn files_of_an_atomic_group_stay_together() {
        let mut group = Group::default();
        let late = Place { file: FileId::new(Queue::Rewrite, 4), offset: 0 };
        group.apply(&Change::Entries { first: 1, count: 10 }, late);
        group.set_atomic((2, 5));
        assert_eq!(group.oldest_file(Queue::Rewrite), Some(2));
        group.set_atomic((2, 3));
        assert_eq!(group.oldest_file(Queue::Rewrite), Some(4));
        assert_eq!(group.oldest_file(Queue::Append), None);
    }
}
