//! Reading entries and keys.
//!
//! - V1: which files hold an entry, and the files themselves, are taken under the group's lock, so that no file is given
//!   up in between; the bytes are read without a lock.
//! - V2: batches that are in the cache are looked up several at a time, each step for all of them, since most of the time goes into waiting
//!   for memory; one that is not is read when it is its turn.
//! - V3: of a log that was closed no entry is read any more, since its files are another's to write over; who reads meanwhile keeps that one
//!   waiting (F4 of [`queue`](crate::queue)).
//! - V4: who wants so many bytes at most looks batches up step by step, under the lock each time. Where the last one of a step is still what it
//!   was, nothing before it was replaced, and where the first entry is still there, nothing was compacted: so what follows goes on from
//!   there; else it begins again, with all of them at once.
//!
//! Cost of entries that lie in memory: no system call, no copy before the caller's; a batch is checked, and unpacked if
//! it is packed, once for all entries wanted of it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::batch::EntryCodec;
use crate::block::{Block, Found};
use crate::group::{Group, Run, Span};
use crate::queue::LogFile;
use crate::raft_log::RaftLog;
use crate::store::Store;
use crate::write::closed;
use crate::{ErrorKind, Refusal, Result};

/// Batches that are looked up together, at most: what an entry of each takes still fits the processor's second cache.
const TOGETHER_MAX: usize = 16;

/// Batches of a step (V4): so many are looked up in ten microseconds or so.
pub(crate) const LOOKED_UP_MAX: usize = 256;

/// Indexes of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) run: Run,
    pub(crate) span: Span,
    /// Which of [`Parts::files`] they lie in.
    file: usize,
}

/// Where entries lie, in order. Each file is looked up and held once, however many of the batches are its own.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    files: Vec<Arc<LogFile>>,
}

impl Parts {
    pub(crate) fn file(&self, part: &Part) -> Option<&Arc<LogFile>> {
        self.files.get(part.file)
    }

    /// Tells the processor that `part` comes next.
    fn expect(&self, part: Option<&Part>, expect: fn(&LogFile, u64)) {
        if let Some(part) = part
            && let Some(file) = self.file(part)
        {
            expect(file, part.run.place().offset);
        }
    }
}

impl Store {
    /// Where the entries of `wanted` lie (V1), of the first `runs_max` batches; an error if the group does not have all of them.
    fn parts(&self, id: u64, group: &Group, wanted: Span, runs_max: usize) -> Result<Parts> {
        let refuse = |refusal: Refusal| Err(refusal.into_error(ErrorKind::NotFound));
        if group.span.is_empty() {
            return refuse(Refusal::Missing { group: id, index: wanted.first });
        }
        if wanted.first < group.span.first {
            return refuse(Refusal::Compacted { group: id, index: wanted.first, first: group.span.first });
        }
        if wanted.next > group.span.next {
            return refuse(Refusal::Missing { group: id, index: group.span.next.max(wanted.first) });
        }
        self.parts_there(group, wanted, runs_max)
    }

    /// The same of a part of the group's span.
    pub(crate) fn parts_there(&self, group: &Group, wanted: Span, runs_max: usize) -> Result<Parts> {
        let mut parts = Parts::default();
        // Mostly a batch has one entry of a group.
        let expected = usize::try_from(wanted.count()).unwrap_or(usize::MAX).min(runs_max).min(LOOKED_UP_MAX);
        parts.list.reserve_exact(expected);
        let mut last = None;
        for (run, span) in group.runs.within(group.span, wanted).take(runs_max) {
            let id = run.place().file;
            if last.replace(id) != Some(id) {
                let file = self.queue(id.queue).file(id.sequence).ok_or_else(|| self.lost(run))?;
                parts.files.push(file);
            }
            parts.list.push(Part { run, span, file: parts.files.len() - 1 });
        }
        Ok(parts)
    }

    pub(crate) fn lost(&self, run: Run) -> crate::Error {
        if self.append.is_closed() {
            return closed();
        }
        let file = run.place().file;
        crate::Error::new(
            ErrorKind::Corruption,
            format!("{file} is gone, though entries from {} on lie there", run.first),
        )
    }

    /// Shows the entries of `parts`, in order, until told to stop (V2).
    fn show(&self, group: u64, parts: &Parts, show: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<()> {
        let mut rest = parts.list.as_slice();
        rest.iter().take(2).for_each(|part| parts.expect(Some(part), Block::expect_header));
        while let Some((first, others)) = rest.split_first() {
            let mut blocks = [const { None }; TOGETHER_MAX];
            let mut count = 0;
            for (block, part) in blocks.iter_mut().zip(rest) {
                *block = self.blocks.get(part.run.place());
                if block.is_none() {
                    break;
                }
                count += 1;
            }
            if count == 0 {
                // Of the next one all, and of the one behind it where it begins.
                parts.expect(others.get(1), Block::expect_header);
                parts.expect(others.first(), Block::expect);
                let run = first.run;
                let file = parts.file(first).ok_or_else(|| self.lost(run))?;
                // Unpacked as far as the last that is wanted of it, or it would be twice.
                let is_of_same = |part: &Part| part.run.place() == run.place();
                let last = match others.first().filter(|part| is_of_same(part)) {
                    None => run.first,
                    Some(_) => rest.get(others.partition_point(is_of_same)).map_or(run.first, |part| part.run.first),
                };
                let shown = self.show_block(file, run.place(), (group, last), |block| {
                    self.show_part(first, block, block.find(group, run.first)?, show)
                });
                if shown?.is_break() {
                    return Ok(());
                }
                rest = others;
                continue;
            }
            let (these, others) = rest.split_at(rest.len().min(count));
            rest = others;
            let blocks = || blocks.iter().flatten();
            blocks().for_each(|block| block.touch_index());
            let mut found = [const { None }; TOGETHER_MAX];
            for ((found, part), block) in found.iter_mut().zip(these).zip(blocks()) {
                *found = Some(block.find(group, part.run.first)?);
            }
            found.iter().flatten().zip(blocks()).for_each(|(found, block)| block.touch_entry(found));
            for ((part, block), found) in these.iter().zip(blocks()).zip(found.into_iter().flatten()) {
                if self.show_part(part, block, found, show)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Shows what is wanted of one block, where `found` lie the entries of its run.
    fn show_part(
        &self,
        Part { run, span, .. }: &Part,
        block: &Block,
        found: Found<'_>,
        show: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let skipped = usize::try_from(span.first.saturating_sub(run.first)).unwrap_or(usize::MAX);
        let mut ranges = found.ranges().skip(skipped);
        for index in span.first..span.next {
            let range = ranges.next().ok_or_else(|| self.lost(*run))?;
            if show(index, block.entry(range)?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A key and its value, which shares memory with the log.
pub type KeyValue = (Box<[u8]>, Arc<[u8]>);

impl RaftLog {
    /// The bytes of one entry; `None` if the group has no such entry.
    ///
    /// # Errors
    /// `Corruption` if the stored bytes are not what was written; `Closed` if the log was closed.
    pub fn entry(&self, group: u64, index: u64) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.with_entry(group, index, |bytes| found = Some(bytes.to_vec()))?;
        Ok(found)
    }

    /// The same, without copying: `show` sees the bytes where they lie. Says whether there is such an entry.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    pub fn with_entry(&self, group: u64, index: u64, show: impl FnOnce(&[u8])) -> Result<bool> {
        let store = &self.store;
        store.check_here()?;
        let wanted = Span { first: index, next: index.saturating_add(1) };
        let parts = store.groups.with(group, |found| {
            let there = (found.span.first..found.span.next).contains(&index);
            there.then(|| store.parts(group, found, wanted, 1))
        });
        let Some(parts) = parts.flatten() else { return Ok(false) };
        let mut show = Some(show);
        store.show(group, &parts?, &mut |_, bytes| {
            if let Some(show) = show.take() {
                show(bytes);
            }
            ControlFlow::Break(())
        })?;
        store.counters.read(1);
        Ok(true)
    }

    /// Shows entries `begin..end` in order, with their indexes, until `show` breaks; says how many were shown.
    /// The bytes are seen where they lie: nothing is copied.
    ///
    /// # Errors
    /// `NotFound`, before anything is shown, if the group does not have all of them: [`Refusal`](crate::Refusal) says whether they
    /// were compacted or are not written yet. `Corruption` if stored bytes are not what was written, `Closed` if the log was closed.
    pub fn for_each_entry(
        &self,
        group: u64,
        begin: u64,
        end: u64,
        mut show: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<u64> {
        if begin >= end {
            return Ok(0);
        }
        let store = &self.store;
        store.check_here()?;
        let wanted = Span { first: begin, next: end };
        let parts = store.groups.with(group, |found| store.parts(group, found, wanted, usize::MAX));
        let Some(parts) = parts else {
            return Err(Refusal::Missing { group, index: begin }.into_error(ErrorKind::NotFound));
        };
        let mut count = 0;
        store.show(group, &parts?, &mut |index, bytes| {
            count += 1;
            show(index, bytes)
        })?;
        store.counters.read(count);
        Ok(count)
    }

    /// Entries `begin..end` of a type; with `bytes_max`, only as many from `begin` on as have so many bytes, but one at least, and at the cost
    /// of these.
    ///
    /// # Errors
    /// As [`for_each_entry`](Self::for_each_entry), and what the codec says. `NotFound` leaves `out` as it was.
    pub fn fetch<C: EntryCodec>(
        &self,
        group: u64,
        begin: u64,
        end: u64,
        bytes_max: Option<usize>,
        out: &mut Vec<C::Entry>,
    ) -> Result<usize> {
        self.fetch_with(group, begin..end, bytes_max, out, C::decode)
    }

    /// The same as bytes.
    ///
    /// # Errors
    /// As [`for_each_entry`](Self::for_each_entry).
    pub fn entries(&self, group: u64, begin: u64, end: u64, bytes_max: Option<usize>) -> Result<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        self.fetch_with(group, begin..end, bytes_max, &mut out, |bytes| Ok(bytes.to_vec()))?;
        Ok(out)
    }

    /// See V4.
    fn fetch_with<T>(
        &self,
        group: u64,
        indexes: Range<u64>,
        bytes_max: Option<usize>,
        out: &mut Vec<T>,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<usize> {
        let (store, before) = (&self.store, out.len());
        store.check_here()?;
        let mut runs_max = if bytes_max.is_some() { LOOKED_UP_MAX } else { usize::MAX };
        let (mut next, mut last, mut budget) = (indexes.start, None, Budget::new(bytes_max));
        while next < indexes.end {
            let wanted = Span { first: next, next: indexes.end };
            let parts = store.groups.with(group, |found| {
                let before = Span { first: next.saturating_sub(1), next };
                let goes_on = |last| found.runs.within(found.span, before).next().is_some_and(|(run, _)| run == last);
                let is_whole = last.is_none() || found.span.first <= indexes.start;
                (is_whole && last.is_none_or(goes_on)).then(|| store.parts(group, found, wanted, runs_max))
            });
            let parts = match parts.flatten() {
                Some(Ok(parts)) => parts,
                _ if last.is_some() => {
                    out.truncate(before);
                    (next, last, budget, runs_max) = (indexes.start, None, Budget::new(bytes_max), usize::MAX);
                    continue;
                }
                Some(Err(error)) => return Err(error),
                None => return Err(Refusal::Missing { group, index: next }.into_error(ErrorKind::NotFound)),
            };
            let mut ended = None;
            store.show(group, &parts, &mut |_, bytes| {
                if !budget.takes(bytes.len()) {
                    ended = Some(Ok(()));
                    return ControlFlow::Break(());
                }
                match decode(bytes) {
                    Ok(entry) => out.push(entry),
                    Err(error) => {
                        ended = Some(Err(error));
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            match (ended, parts.list.last()) {
                (None, Some(part)) => (next, last) = (part.span.next, Some(part.run)),
                (ended, _) => {
                    ended.unwrap_or(Ok(()))?;
                    break;
                }
            }
        }
        let count = out.len().saturating_sub(before);
        store.counters.read(count as u64);
        Ok(count)
    }

    /// The value of a key. Shares memory with the log.
    pub fn get(&self, group: u64, key: &[u8]) -> Option<Arc<[u8]>> {
        self.store.groups.with(group, |group| group.get(key).map(|value| Arc::clone(&value.bytes))).flatten()
    }

    /// The keys of a group from `from` up to but not including `to`, in order, with their values, as they are at one moment.
    pub fn keys(&self, group: u64, from: Option<&[u8]>, to: Option<&[u8]>) -> Vec<KeyValue> {
        let copy =
            |group: &Group| group.keys(from, to).map(|(key, value)| (key.into(), Arc::clone(&value.bytes))).collect();
        self.store.groups.with(group, copy).unwrap_or_default()
    }

    /// Index of the first entry of a group; `None` if it has none.
    pub fn first_index(&self, group: u64) -> Option<u64> {
        self.span(group).map(|span| span.first)
    }

    /// Index of the last entry of a group; `None` if it has none.
    pub fn last_index(&self, group: u64) -> Option<u64> {
        self.span(group).map(|span| span.next.saturating_sub(1))
    }

    fn span(&self, group: u64) -> Option<Span> {
        self.store.groups.with(group, |group| group.span).filter(|span| !span.is_empty())
    }

    /// All groups that were written to and not cleaned, in order.
    pub fn groups(&self) -> Vec<u64> {
        self.store.groups.ids()
    }

    /// Whether there is such a group.
    pub fn contains(&self, group: u64) -> bool {
        self.store.groups.with(group, |_| ()).is_some()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.store.groups.is_empty()
    }
}

/// How much more a fetch takes; the first entry always.
struct Budget {
    left: Option<usize>,
    first: bool,
}

impl Budget {
    fn new(bytes_max: Option<usize>) -> Self {
        Self { left: bytes_max, first: true }
    }

    fn takes(&mut self, bytes: usize) -> bool {
        let Some(left) = self.left else { return true };
        let fits = bytes <= left || self.first;
        self.first = false;
        self.left = Some(left.saturating_sub(bytes));
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use esker_env::sim::SimDisk;

    use super::*;
    use crate::{Error, LogBatch, Options};

    /// What happens when an entry is decoded.
    type Hook = Box<dyn FnMut(u64)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// An entry: its index and a word.
    struct Codec;

    impl EntryCodec for Codec {
        type Entry = (u64, u64);

        fn index(entry: &(u64, u64)) -> u64 {
            entry.0
        }

        fn encode(entry: &(u64, u64), out: &mut Vec<u8>) -> Result<()> {
            out.extend(entry.0.to_le_bytes().into_iter().chain(entry.1.to_le_bytes()));
            Ok(())
        }

        fn decode(bytes: &[u8]) -> Result<(u64, u64)> {
            let (words, _) = bytes.as_chunks::<8>();
            let [index, word] = *words else { return Err(Error::invalid_argument("no entry")) };
            let entry = (u64::from_le_bytes(index), u64::from_le_bytes(word));
            // It may fetch, too.
            let hook = HOOK.take();
            if let Some(mut hook) = hook {
                hook(entry.0);
                HOOK.replace(Some(hook));
            }
            Ok(entry)
        }
    }

    const COUNT: u64 = 3_000;

    fn append(log: &RaftLog, first: u64, word: u64) {
        let mut batch = LogBatch::new();
        for index in first..=COUNT {
            batch.add::<Codec>(1, &[(index, word)]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
    }

    fn loaded() -> (tempfile::TempDir, RaftLog) {
        let dir = tempfile::tempdir().unwrap();
        let log = RaftLog::open(dir.path(), Options { cache_bytes: 0, ..Options::default() }).unwrap();
        append(&log, 1, 0);
        (dir, log)
    }

    /// How many of `files` somebody holds beside those who hold them always, and how often in all, when the first entry is decoded
    /// of those that are fetched.
    fn held_meanwhile(log: &RaftLog, bytes_max: Option<usize>) -> (usize, usize) {
        let files = log.store.append.files();
        let counts: Vec<usize> = files.iter().map(Arc::strong_count).collect();
        let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
        let seen_there = std::rc::Rc::clone(&seen);
        let more = move || {
            let more = files.iter().zip(&counts).map(|(file, before)| Arc::strong_count(file) - before);
            (more.clone().filter(|more| *more > 0).count(), more.sum())
        };
        HOOK.replace(Some(Box::new(move |_| seen_there.borrow_mut().push(more()))));
        let next = log.last_index(1).unwrap() + 1;
        log.fetch::<Codec>(1, 1, next, bytes_max, &mut Vec::new()).unwrap();
        HOOK.take();
        seen.borrow()[0]
    }

    /// Goal: who wants few bytes does not pay for all entries that they may be of.
    #[test]
    fn a_fetch_of_few_bytes_looks_up_few_batches() {
        // Each in a file of its own: it is looked up with the batch, and held until all entries of the step were shown.
        let options = Options { file_bytes: 1 << 10, cache_bytes: 0, ..Options::default() };
        let log = RaftLog::open_with_env("/log", options, SimDisk::new().env()).unwrap();
        let (mut batch, count) = (LogBatch::new(), 2 * LOOKED_UP_MAX);
        for index in 1..=count as u64 {
            batch.add::<Codec>(1, &[(index, 0)]).unwrap();
            batch.put(1, b"key", &[7; 1 << 10]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        assert_eq!(held_meanwhile(&log, None).0, count);
        assert_eq!(held_meanwhile(&log, Some(100)).0, LOOKED_UP_MAX);
    }

    /// Goal: a file that all readers share is not looked up, nor held, once for each batch: its count is one cache line for all of them.
    #[test]
    fn a_file_is_held_once_for_all_its_batches() {
        let (_dir, log) = loaded();
        for bytes_max in [None, Some(1 << 20)] {
            let (files, times) = held_meanwhile(&log, bytes_max);
            assert_eq!(files, 1);
            assert!(times <= 2, "once for all, once for the block that is shown: {times}");
        }
    }

    /// Goal: nothing is different but the cost.
    #[test]
    fn a_fetch_of_few_bytes_is_the_beginning_of_one_of_all() {
        let (_dir, log) = loaded();
        let mut entries = Vec::new();
        assert_eq!(log.fetch::<Codec>(1, 1, COUNT + 1, Some(100), &mut entries).unwrap(), 6);
        for (bytes_max, count) in
            [(0, 1), (16, 1), (31, 1), (32, 2), (16 * 700, 700), (16 * 3_000, 3_000), (1 << 20, 3_000)]
        {
            entries.clear();
            assert_eq!(log.fetch::<Codec>(1, 1, COUNT + 1, Some(bytes_max), &mut entries).unwrap(), count);
            assert!(entries.iter().copied().eq((1..).map(|index| (index, 0)).take(count)), "{bytes_max}");
            assert_eq!(log.entries(1, 1, COUNT + 1, Some(bytes_max)).unwrap().len(), count);
        }
        assert_eq!(
            log.fetch::<Codec>(1, 1, COUNT + 2, Some(100), &mut entries).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }

    /// Goal: whatever becomes of a group while its entries are looked up step by step, what is fetched was there at one moment, or the error
    /// is that of one.
    #[test]
    fn entries_that_are_fetched_step_by_step_are_of_one_moment() {
        type Act = fn(&RaftLog);
        let acts: [(&str, Act); 7] = [
            ("replaced behind", |log| append(log, 2_500, 1)),
            ("replaced before", |log| append(log, 100, 1)),
            ("compacted", |log| assert!(log.compact_to(1, 2_000).unwrap() > 0)),
            ("compacted and replaced", |log| {
                assert!(log.compact_to(1, 100).unwrap() > 0);
                append(log, 2_500, 1);
            }),
            ("moved on", |log| log.move_on(None).unwrap()),
            ("cut", |log| {
                let mut batch = LogBatch::new();
                batch.add::<Codec>(1, &[(200, 1)]).unwrap();
                log.write(&mut batch, false).unwrap();
            }),
            ("cleaned", |log| {
                let mut batch = LogBatch::new();
                batch.clean(1);
                log.write(&mut batch, false).unwrap();
            }),
        ];
        for (name, act) in acts {
            for at in [1, 150, LOOKED_UP_MAX as u64, 1_000] {
                let (_dir, log) = loaded();
                let (acting, mut done) = (log.clone(), false);
                HOOK.replace(Some(Box::new(move |index| {
                    if index == at && !std::mem::replace(&mut done, true) {
                        act(&acting);
                    }
                })));
                let mut entries = vec![(0, 7)];
                let fetched = log.fetch::<Codec>(1, 1, COUNT + 1, Some(1 << 20), &mut entries);
                HOOK.take();
                assert_eq!(entries.remove(0), (0, 7));
                let what = format!("{name} at {at}: {fetched:?}");
                match fetched {
                    Ok(count) => {
                        assert!(!name.starts_with("compacted"), "{what}");
                        assert_eq!((count as u64, entries.len() as u64), (COUNT, COUNT), "{what}");
                        let old = entries.iter().take_while(|entry| entry.1 == 0).count() as u64;
                        assert!([COUNT, 99, 2_499].contains(&old), "{what}: {old}");
                        assert!(entries.iter().skip(old as usize).all(|entry| entry.1 == 1), "{what}");
                        assert!(entries.iter().map(|entry| entry.0).eq(1..=COUNT), "{what}");
                    }
                    Err(error) => {
                        let acts = ["compacted", "compacted and replaced", "cut", "cleaned"];
                        assert!(acts.contains(&name), "{what}");
                        assert_eq!((error.kind(), entries.len()), (ErrorKind::NotFound, 0), "{what}");
                    }
                }
            }
        }
    }
}
