//! What a stretch of a file does, group by group: a group is looked up once for all of it.
//!
//! - G1: what is kept of a group does what its items would, one after the other: entries that each follow those before are taken in at
//!   once, and of a key's values in a row the last. Entries and keys do not concern each other; a clean concerns both.
//!
//! Cost: what the index takes for the same entries, and the keys and values that are kept; no file stays mapped for them.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::raft::file_name::FileId;
use esker_format::raft::item::{Action, Item};

use crate::group::groups::GroupMap;
use crate::group::{Groups, Place, Run, Runs, RunsBuilder, Span};

/// What is done to a group.
#[derive(Debug)]
pub(crate) enum Step {
    /// Entries of `span` lie in `runs`; each followed those before.
    Entries {
        span: Span,
        runs: Runs,
    },
    Compact {
        index: u64,
    },
    /// Where the key and the value are in [`Changes::bytes`].
    Put {
        key: Range<usize>,
        value: Range<usize>,
    },
    Delete {
        key: Range<usize>,
    },
    Clean,
}

/// What is done to one group, in order.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) group: u64,
    pub(crate) steps: Vec<Step>,
}

/// What is done to all groups, by the worker that will do it.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) by_worker: Vec<Vec<Steps>>,
    /// Keys and values.
    pub(crate) bytes: Vec<u8>,
}

/// Gathers what items do.
#[derive(Debug, Default)]
pub(super) struct Gatherer<'a> {
    places: GroupMap<usize>,
    groups: Vec<Gathered<'a>>,
    /// The last one that was looked at.
    last: usize,
    bytes: Vec<u8>,
}

/// Of one group. What most items touch comes first.
#[derive(Debug)]
struct Gathered<'a> {
    group: u64,
    /// Which group came behind this one last: mostly it does so again.
    next: usize,
    /// Entries that come after the steps, and where they lie.
    span: Span,
    runs: Option<RunsBuilder>,
    /// A key and its value that come after the steps; then others, if there is one.
    put: Option<(&'a [u8], &'a [u8])>,
    puts: BTreeMap<&'a [u8], &'a [u8]>,
    steps: Vec<Step>,
}

impl<'a> Gatherer<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes in the items of the batch at `offset` of `file`, but for what concerns the format's own key.
    pub(super) fn add(&mut self, file: FileId, offset: u64, items: &[Item<'a>]) {
        let place = Place { file, offset };
        let mut at = self.last;
        for item in items {
            if matches!(&item.action, Action::Entries(entries) if entries.count == 0) || item.is_internal() {
                continue;
            }
            at = self.place(item.group, at);
            let Self { groups, bytes, .. } = &mut *self;
            let Some(gathered) = groups.get_mut(at) else { continue };
            match &item.action {
                Action::Entries(entries) => gathered.append(entries.first_index, entries.count, place),
                Action::Put { key, value } => gathered.put(key, value),
                Action::Compact { index } => {
                    gathered.end_entries();
                    gathered.steps.push(Step::Compact { index: *index });
                }
                Action::Delete { key } => {
                    gathered.end_puts(bytes);
                    let key = keep(bytes, key);
                    gathered.steps.push(Step::Delete { key });
                }
                Action::Clean => {
                    gathered.end_entries();
                    gathered.end_puts(bytes);
                    gathered.steps.push(Step::Clean);
                }
            }
        }
        self.last = at;
    }

    /// Where `group` is, which comes behind the one at `last`.
    #[inline]
    fn place(&mut self, group: u64, last: usize) -> usize {
        let mut next = usize::MAX;
        if let Some(before) = self.groups.get(last) {
            if before.group == group {
                return last;
            }
            next = before.next;
        }
        if self.groups.get(next).is_some_and(|next| next.group == group) {
            return next;
        }
        let at = *self.places.entry(group).or_insert(self.groups.len());
        if at == self.groups.len() {
            self.groups.push(Gathered::new(group));
        }
        if let Some(before) = self.groups.get_mut(last) {
            before.next = at;
        }
        at
    }

    /// What was gathered since the last time, for so many workers.
    pub(super) fn take(&mut self, workers: usize) -> Changes {
        let Self { groups, mut bytes, .. } = std::mem::take(self);
        let mut by_worker: Vec<Vec<Steps>> = (0..workers).map(|_| Vec::new()).collect();
        for mut gathered in groups {
            gathered.end_entries();
            gathered.end_puts(&mut bytes);
            let Gathered { group, steps, .. } = gathered;
            if let Some(of_worker) = by_worker.get_mut(Groups::shard_index(group) % workers) {
                of_worker.push(Steps { group, steps });
            }
        }
        Changes { by_worker, bytes }
    }
}

impl<'a> Gathered<'a> {
    fn new(group: u64) -> Self {
        let (span, steps, puts) = (Span::default(), Vec::new(), BTreeMap::new());
        Self { group, next: usize::MAX, span, runs: None, put: None, puts, steps }
    }

    #[inline]
    fn append(&mut self, first: u64, count: u64, place: Place) {
        let run = Run::new(first, place);
        match &mut self.runs {
            Some(runs) if first == self.span.next => {
                self.span.next += count;
                runs.push(run);
            }
            _ => {
                self.end_entries();
                self.span = Span { first, next: first + count };
                self.runs = Some(RunsBuilder::new(run));
            }
        }
    }

    #[inline]
    fn put(&mut self, key: &'a [u8], value: &'a [u8]) {
        // The key as it was seen last, too: it lies where the processor looked a moment ago.
        match &mut self.put {
            Some(there) if there.0 == key => *there = (key, value),
            None => self.put = Some((key, value)),
            Some(_) => drop(self.puts.insert(key, value)),
        }
    }

    fn end_entries(&mut self) {
        if let Some(runs) = self.runs.take() {
            self.steps.push(Step::Entries { span: self.span, runs: runs.end() });
        }
    }

    fn end_puts(&mut self, bytes: &mut Vec<u8>) {
        for (key, value) in self.put.take().into_iter().chain(std::mem::take(&mut self.puts)) {
            let (key, value) = (keep(bytes, key), keep(bytes, value));
            self.steps.push(Step::Put { key, value });
        }
    }
}

/// Puts `part` behind `bytes`; says where it lies.
fn keep(bytes: &mut Vec<u8>, part: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(part);
    start..bytes.len()
}

#[cfg(test)]
mod tests {
    use esker_format::raft::file_name::Queue;

    use super::*;
    use crate::LogBatch;

    /// G1: what is gathered of all items at once does what each of them does alone, in either queue.
    #[test]
    fn what_is_gathered_does_what_its_items_do() {
        for seed in 0..150 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (together, alone) = (Groups::new(), Groups::new());
            let mut next = [1u64; 3];
            for (file, queue) in [(1, Queue::Rewrite), (2, Queue::Rewrite), (1, Queue::Append), (2, Queue::Append)] {
                let file = FileId::new(queue, file);
                let mut batches = Vec::new();
                for _ in 0..random.usize(..40) {
                    let mut batch = LogBatch::new();
                    for _ in 0..random.usize(1..6) {
                        let group = random.u64(..3);
                        let next = &mut next[group as usize];
                        match random.u32(..40) {
                            0..20 => {
                                *next = match random.u32(..12) {
                                    0 => next.saturating_sub(random.u64(..9)).max(1),
                                    1 => *next + random.u64(..3),
                                    _ => *next,
                                };
                                let count = random.u64(1..4);
                                batch.add_entries(group, *next, (0..count).map(|_| [7; 3])).unwrap();
                                *next += count;
                            }
                            20..22 => batch.compact(group, next.saturating_sub(random.u64(..9))),
                            22 => batch.delete(group, &[random.u8(..12)]),
                            23 => batch.clean(group),
                            _ => batch.put(group, &[random.u8(..12)], &vec![random.u8(..); random.usize(..9)]).unwrap(),
                        }
                    }
                    batches.push(batch.encode(0));
                }
                let mut gatherer = Gatherer::default();
                for (offset, batch) in (0..).step_by(100).zip(&batches) {
                    let mut items = Vec::new();
                    let mut reader = batch.items();
                    while let Some(item) = reader.read().unwrap() {
                        items.push(item);
                    }
                    gatherer.add(file, offset, &items);
                    for item in items {
                        let mut one = Gatherer::default();
                        one.add(file, offset, &[item]);
                        replay(&alone, one.take(1), file);
                    }
                }
                replay(&together, gatherer.take(1), file);
            }
            for groups in [&together, &alone] {
                groups.finish_replay();
            }
            assert_eq!(seen(&together), seen(&alone), "seed {seed}");
        }
    }

    fn replay(groups: &Groups, mut changes: Changes, file: FileId) {
        let mut shards = groups.part(0, 1);
        for Steps { group, steps } in changes.by_worker.remove(0) {
            shards.replay(group, steps, &changes.bytes, file, None);
        }
    }

    /// All that can be told of groups.
    fn seen(groups: &Groups) -> (Vec<u64>, BTreeMap<u64, String>) {
        let mut of_groups = BTreeMap::new();
        groups.for_each(|id, group| {
            let runs: Vec<_> = group.runs.within(group.span, group.span).collect();
            let keys: Vec<_> = group.keys(None, None).collect();
            of_groups.insert(id, format!("{:?} {runs:?} {keys:?} {:?}", group.span, group.owed()));
        });
        (groups.gone(), of_groups)
    }
}
