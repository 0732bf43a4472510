//! Reading entries and keys.
//!
//! - V1: which files hold an entry, and the files themselves, are taken under the group's lock, so that no file is given
//!   up in between; the bytes are read without a lock.
//! - V2: batches that are in the cache are looked up several at a time, each step for all of them, since most of the time goes into waiting
//!   for memory; one that is not is read when it is its turn.
//! - V3: of a log that was closed no entry is read any more, since its files are another's to write over; who reads meanwhile keeps that one
//!   waiting (F4 of [`queue`](crate::queue)).
//!
//! Cost of entries that lie in memory: no system call, no copy before the caller's; a batch is checked, and unpacked if
//! it is packed, once for all entries wanted of it.

use std::ops::ControlFlow;
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

/// Indexes of one run, and the file that they lie in.
type Part = (Run, Span, Arc<LogFile>);

impl Store {
    /// Where the entries of `wanted` lie (V1).
    fn parts(&self, id: u64, group: &Group, wanted: Span) -> Result<Vec<Part>> {
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
        let found = group.runs.within(group.span, wanted).map(|(run, part)| {
            let file = self.queue(run.queue()).file(run.place().file.sequence);
            match file {
                Some(file) => Ok((run, part, file)),
                None => Err(self.lost(run)),
            }
        });
        found.collect()
    }

    fn lost(&self, run: Run) -> crate::Error {
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
    fn show(&self, group: u64, parts: &[Part], show: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<()> {
        let mut rest = parts;
        parts.iter().take(2).for_each(|(run, _, file)| Block::expect_header(file, run.place().offset));
        while let Some((first, others)) = rest.split_first() {
            let together = rest.iter().take(TOGETHER_MAX);
            let blocks: Vec<_> = together.map_while(|(run, ..)| self.blocks.get(run.place())).collect();
            if blocks.is_empty() {
                // Of the next one all, and of the one behind it where it begins.
                if let Some((run, _, file)) = others.get(1) {
                    Block::expect_header(file, run.place().offset);
                }
                if let Some((run, _, file)) = others.first() {
                    Block::expect(file, run.place().offset);
                }
                let (run, _, file) = first;
                let shown = self.show_block(file, run.place(), (group, run.first), |block| {
                    self.show_part(first, block, block.find(group, run.first)?, show)
                });
                if shown?.is_break() {
                    return Ok(());
                }
                rest = others;
                continue;
            }
            let (these, others) = rest.split_at(blocks.len().min(rest.len()));
            rest = others;
            blocks.iter().for_each(|block| block.touch_index());
            let found = these.iter().zip(&blocks).map(|((run, ..), block)| block.find(group, run.first));
            let found = found.collect::<Result<Vec<_>>>()?;
            found.iter().zip(&blocks).for_each(|(found, block)| block.touch_entry(found));
            for ((part, block), found) in these.iter().zip(&blocks).zip(found) {
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
        (run, part, _): &Part,
        block: &Block,
        found: Found<'_>,
        show: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let skipped = usize::try_from(part.first.saturating_sub(run.first)).unwrap_or(usize::MAX);
        let mut ranges = found.ranges().skip(skipped);
        for index in part.first..part.next {
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
        let wanted = Span { first: index, next: index.saturating_add(1) };
        let parts = store.groups.with(group, |found| {
            let there = (found.span.first..found.span.next).contains(&index);
            there.then(|| store.parts(group, found, wanted))
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
        let wanted = Span { first: begin, next: end };
        let parts = store.groups.with(group, |found| store.parts(group, found, wanted));
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

    /// Entries `begin..end` of a type; with `bytes_max`, only as many from `begin` on as have so many bytes, but one at least.
    ///
    /// # Errors
    /// As [`for_each_entry`](Self::for_each_entry), and what the codec says.
    pub fn fetch<C: EntryCodec>(
        &self,
        group: u64,
        begin: u64,
        end: u64,
        bytes_max: Option<usize>,
        out: &mut Vec<C::Entry>,
    ) -> Result<usize> {
        let before = out.len();
        let mut failed = Ok(());
        let mut budget = Budget::new(bytes_max);
        self.for_each_entry(group, begin, end, |_, bytes| {
            if !budget.takes(bytes.len()) {
                return ControlFlow::Break(());
            }
            match C::decode(bytes) {
                Ok(entry) => out.push(entry),
                Err(error) => {
                    failed = Err(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        failed.map(|()| out.len() - before)
    }

    /// The same as bytes.
    ///
    /// # Errors
    /// As [`for_each_entry`](Self::for_each_entry).
    pub fn entries(&self, group: u64, begin: u64, end: u64, bytes_max: Option<usize>) -> Result<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        let mut budget = Budget::new(bytes_max);
        self.for_each_entry(group, begin, end, |_, bytes| {
            if !budget.takes(bytes.len()) {
                return ControlFlow::Break(());
            }
            out.push(bytes.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(out)
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
