//! Reads many separated values at once: sorted by place, neighbours in one read, all files in one batch.
//!
//! - A1: a read that fails spoils only itself: values that it should have brought are read one by one by whoever asks
//!   for them, so that an error is told of the value that has it.
//! - A2: memory is bounded by the caller, who decides what to add; a run of neighbours is read into one buffer of at
//!   most `RUN_BYTES_MAX`, or as large as a single record.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use esker_env::{ReadRequest, read_many};
use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::FileNumber;

use parking_lot::Mutex;

use super::BlobFile;
use crate::Result;
use crate::cache::Block;
use crate::pinned::PinnedSlice;

/// Neighbours are read together up to this size: large enough for the device's full speed (64 values of 4 KiB), small
/// enough that one value kept for long does not keep much else in memory.
const RUN_BYTES_MAX: u64 = 256 << 10;

/// Bytes between two records that are rather read than skipped: a page, which a device reads in no extra time.
const GAP_BYTES_MAX: u64 = 4 << 10;

/// Records that lie together on average, if keys and values are in the same order: then what comes next is known.
const RECORDS_PER_RUN_MIN: usize = 2;

/// How much of a file the system is told to read on: so many times the last batch, within these bounds. The least is what
/// a device reads in little more time than a page; the most keeps it busy while values are unpacked.
const ANNOUNCED_PER_BATCH: u64 = 4;
const ANNOUNCED_BYTES_MIN: u64 = 32 << 10;
const ANNOUNCED_BYTES_MAX: u64 = 2 << 20;
/// Files of which it is remembered what was told.
const ANNOUNCED_FILES_MAX: usize = 16;

/// Buffers that a thread keeps for its next batch, and their bytes.
const KEPT_BUFFERS_MAX: usize = 64;
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A record to read.
#[derive(Debug)]
struct Wanted {
    /// One of the files of the batch.
    file: usize,
    extent: Range<u64>,
    /// Which of the caller's values it is.
    id: usize,
}

/// Neighbours that are read together: some of the sorted `wanted`.
#[derive(Debug)]
struct Run {
    /// One of the files of the batch.
    file: usize,
    wanted: Range<usize>,
    extent: Range<u64>,
}

/// Where the record of a value was read to.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    /// Which of the caller's values it is.
    pub(crate) id: usize,
    /// What was read, and where the record begins in it.
    from: Arc<Brought>,
    start: usize,
}

/// What one read brought.
#[derive(Debug)]
struct Brought {
    file: Arc<BlobFile>,
    buffer: Arc<Block>,
}

impl Fetched {
    /// The value of `user_key` in it, which `index` points to: what was asked for.
    ///
    /// # Errors
    /// As [`BlobFile::read`], but for the read itself.
    pub(crate) fn take(&self, user_key: &[u8], index: &BlobIndex) -> Result<PinnedSlice> {
        self.from.file.take(user_key, index, &self.from.buffer, self.start)
    }

    /// Keeps the memory for the next batch, if nobody else holds it.
    pub(crate) fn recycle(self) {
        if let Some(brought) = Arc::into_inner(self.from)
            && let Some(block) = Arc::into_inner(brought.buffer)
        {
            keep(block.into_bytes());
        }
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Memory for buffers: it need not be had again, nor filled with zeroes.
#[derive(Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Kept {
    fn put(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < KEPT_BUFFERS_MAX && self.bytes + buffer.len() <= KEPT_BYTES_MAX {
            self.bytes += buffer.len();
            self.buffers.push(buffer);
        }
    }

    /// A buffer of `count` bytes or more, but not many more: what is pinned to it keeps all of it.
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let fits = self.buffers.iter().position(|buffer| buffer.len() >= count && buffer.len() / 4 <= count)?;
        let buffer = self.buffers.swap_remove(fits);
        self.bytes -= buffer.len();
        Some(buffer)
    }
}

/// Keeps a buffer for the next batch.
fn keep(buffer: Vec<u8>) {
    // A thread that is ending keeps nothing.
    let _ = KEPT.try_with(|kept| kept.borrow_mut().put(buffer));
}

/// What is likely to be asked for after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Onward {
    /// Whether records beyond the last, or before the first.
    pub(crate) forward: bool,
    /// How many values, at most.
    pub(crate) values: usize,
}

/// What the system was told to read last of each file. After updates, what lies in key order lies in several.
#[derive(Debug, Default)]
pub(crate) struct Announced(Vec<(FileNumber, Range<u64>)>);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct BlobBatch {
    wanted: Vec<Wanted>,
    /// Of all that is wanted, each once.
    files: Vec<Arc<BlobFile>>,
    /// How it is read, once that is [arranged](Self::arrange).
    runs: Vec<Run>,
    /// What the runs are read to, until they are: memory of the thread that arranged them, which gets it back.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl BlobBatch {
    /// Adds the record at `extent` of `file`.
    pub(crate) fn add(&mut self, file: &Arc<BlobFile>, extent: Range<u64>, id: usize) {
        // Nearly always that of the one before.
        let known = self.files.iter().rposition(|known| Arc::ptr_eq(known, file));
        let file = known.unwrap_or_else(|| {
            self.files.push(file.clone());
            self.files.len() - 1
        });
        self.wanted.push(Wanted { file, extent, id });
    }

    /// Records that were added.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Bytes of the records that were added.
    pub(crate) fn bytes(&self) -> u64 {
        self.wanted.iter().map(|wanted| wanted.extent.end - wanted.extent.start).sum()
    }

    /// Whether records were found together, of what was arranged.
    pub(crate) fn lies_together(&self) -> bool {
        self.runs.len() * RECORDS_PER_RUN_MIN <= self.wanted.len()
    }

    /// Reads nothing of what was added.
    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
        self.files.clear();
        self.runs.clear();
        self.buffers.get_mut().drain(..).for_each(keep);
    }

    /// Puts what was added in the order of places, and neighbours together: before it is read.
    pub(crate) fn arrange(&mut self) {
        self.wanted.sort_unstable_by_key(|wanted| (wanted.file, wanted.extent.start));
        self.runs = runs(&self.wanted);
        self.buffers.get_mut().extend(self.runs.iter().map(|run| buffer(&run.extent)));
    }

    /// Reads everything that was arranged, once, and hands each record that was read to `take`; the others are left out (A1).
    /// Returns how many reads that were.
    pub(crate) fn fetch(&self, mut take: impl FnMut(Fetched)) -> u64 {
        let mut buffers = std::mem::take(&mut *self.buffers.lock());
        let is_read = self.read(&mut buffers);
        for ((run, buffer), _) in self.runs.iter().zip(buffers).zip(is_read).filter(|(_, is_read)| *is_read) {
            let Some(file) = self.files.get(run.file).cloned() else { continue };
            let from = Arc::new(Brought { file, buffer: Arc::new(Block::new(buffer)) });
            for wanted in self.wanted.get(run.wanted.clone()).unwrap_or_default() {
                let start = usize::try_from(wanted.extent.start - run.extent.start).unwrap_or(usize::MAX);
                take(Fetched { id: wanted.id, from: from.clone(), start });
            }
        }
        self.runs.len() as u64
    }

    /// Tells the system that all of it is about to be read, if that takes few calls.
    pub(crate) fn will_read(&self) {
        for run in self.runs.iter().filter(|_| self.lies_together()) {
            if let Some(file) = self.files.get(run.file) {
                file.file.will_read(run.extent.clone());
            }
        }
    }

    /// Of files in which neighbours were found together, tells the system to read on for what is likely to come `onward`.
    pub(crate) fn announce(&self, announced: &mut Announced, onward: Onward) {
        for of_file in self.runs.chunk_by(|a, b| a.file == b.file) {
            let records: usize = of_file.iter().map(|run| run.wanted.len()).sum();
            if of_file.len() * RECORDS_PER_RUN_MIN <= records {
                self.announce_file(announced, of_file, records, onward);
            }
        }
    }

    /// Reads the runs, of all files at once; says which were read.
    fn read(&self, buffers: &mut [Vec<u8>]) -> Vec<bool> {
        let places = self.runs.iter().zip(buffers).filter_map(|(run, buffer)| {
            let count = usize::try_from(run.extent.end - run.extent.start).unwrap_or(usize::MAX);
            let file = self.files.get(run.file)?;
            Some(ReadRequest::new(&*file.file, run.extent.start, buffer.get_mut(..count).unwrap_or_default()))
        });
        let mut requests: Vec<ReadRequest<'_>> = places.collect();
        read_many(&mut requests);
        requests.iter().map(|request| request.result.is_ok()).collect()
    }

    /// Tells the system of the place where the next records of a file are likely to be, unless half of it or more was told
    /// before. `runs` brought `records` of it.
    fn announce_file(&self, announced: &mut Announced, runs: &[Run], records: usize, onward: Onward) {
        let Announced(announced) = announced;
        let forward = onward.forward;
        let Some(edge) = (if forward { runs.last() } else { runs.first() }) else { return };
        let Some(file) = self.files.get(edge.file) else { return };
        let brought: u64 = runs.iter().map(|run| run.extent.end - run.extent.start).sum();
        // As many of the next values will be in this file as of these.
        let share = (records as u64).saturating_mul(onward.values as u64) / (self.wanted.len() as u64).max(1);
        let expected = (brought / (records as u64).max(1)).saturating_mul(share.max(1));
        let bytes = (brought * ANNOUNCED_PER_BATCH).clamp(ANNOUNCED_BYTES_MIN, ANNOUNCED_BYTES_MAX).min(expected);
        let known = announced.iter().position(|(of, _)| *of == file.number());
        let told = known.map(|at| announced.swap_remove(at).1).unwrap_or_default();
        let mut next = if forward {
            edge.extent.end..edge.extent.end.saturating_add(bytes).min(file.records_end())
        } else {
            edge.extent.start.saturating_sub(bytes)..edge.extent.start
        };
        let overlap = next.start.max(told.start)..next.end.min(told.end);
        let half = (next.end - next.start) / 2;
        if overlap.end.saturating_sub(overlap.start) >= half {
            announced.push((file.number(), told));
            return;
        }
        if announced.len() >= ANNOUNCED_FILES_MAX {
            announced.remove(0);
        }
        announced.push((file.number(), next.clone()));
        if !overlap.is_empty() {
            next = if forward { overlap.end..next.end } else { next.start..overlap.start };
        }
        file.file.will_read(next);
    }
}

/// Puts neighbours together.
fn runs(wanted: &[Wanted]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, next) in wanted.iter().enumerate() {
        match runs.last_mut() {
            Some(run)
                if run.file == next.file
                    && next.extent.start <= run.extent.end.saturating_add(GAP_BYTES_MAX)
                    && next.extent.end.max(run.extent.end) - run.extent.start <= RUN_BYTES_MAX =>
            {
                run.wanted.end = at + 1;
                run.extent.end = run.extent.end.max(next.extent.end);
            }
            _ => runs.push(Run { file: next.file, wanted: at..at + 1, extent: next.extent.clone() }),
        }
    }
    runs
}

/// Memory for `extent`, which lies within a file. May be longer.
fn buffer(extent: &Range<u64>) -> Vec<u8> {
    let count = usize::try_from(extent.end - extent.start).unwrap_or(usize::MAX);
    let kept = KEPT.try_with(|kept| kept.borrow_mut().take(count)).ok().flatten();
    kept.unwrap_or_else(|| vec![0; count])
}
