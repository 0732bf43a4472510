//! Batches that were read and may be read again.
//!
//! - K1: blocks are kept by weight, at most [`Options::cache_bytes`](crate::Options::cache_bytes) of memory of their own.
//! - K2: a kept block holds its file, so blocks of a file are let go after the file left its queue; who puts one in looks
//!   afterwards whether it did meanwhile.
//! - K3: each thread keeps what it read last, without its file, and reads the next into the same memory. What lies at
//!   a place of an open file never changes (F1 of [`queue`](crate::queue)), and a file that is written over is another one.
//! - K4: what is packed is kept while there is room; of what lies in memory, one of a few that a thread reads: who reads many does not wait for new
//!   memory for each. Once there is none, it is kept if it comes again soon: who reads a log from end to end, or a little of each of very many
//!   batches, drives out nothing that others come back for.
//!
//! Cost: of what is not kept, nothing is allocated as long as it is short. Of 200 MiB in batches of 8 KiB, read at random, an entry of a block that
//! was found took 2.4 us, one of a block that was not kept 2.6 to 3.6, and to keep one 8 more, most of that the system's for new pages.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use esker_format::raft::file_name::FileId;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::Result;
use crate::block::{Block, How, Last, RunKey};
use crate::group::Place;
use crate::queue::LogFile;
use crate::store::Store;

/// What a block usually weighs: sizes the cache's own tables, nothing else.
const BLOCK_BYTES_USUAL: usize = 8 << 10;
/// A shard of the cache is never smaller: what is larger than its shard cannot be kept.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// Shards at most.
const SHARDS_MAX: usize = 16;
/// Memory that a thread keeps (K3).
const LAST_BYTES_MAX: usize = 64 << 10;
/// What was read lately is remembered for one in so many bytes of the cache: so much sooner than it would be driven out of it.
const SEEN_PART_BYTES: usize = 32 << 10;
/// What is made ahead is made for a cache of so many bytes at most: a larger one may be meant to have no bound.
const MADE_AHEAD_FOR_BYTES_MAX: usize = 64 << 30;
/// While there is room, a thread keeps one of so many. Of fetches of 16 batches from a log that nobody had read, the slowest hundredth took 212 us
/// with all of them kept, 145 with a quarter, and 115 to 143 with this; no more of them were done with any of these.
const KEPT_OF: u8 = 8;
/// There is no room any more once less than this part is left.
const ROOM_PART: u64 = 16;

thread_local! {
    /// See K3.
    static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    /// How many were read since one was kept because there is room (K4).
    static PASSED: Cell<u8> = const { Cell::new(0) };
}

/// Where a block lies.
type Key = (FileId, u64);

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Key, Arc<Block>> for Weight {
    fn weight(&self, _: &Key, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64
    }
}

/// Those that all threads share (K1).
#[derive(Debug)]
pub(crate) struct Blocks {
    /// `None` keeps nothing.
    cache: Option<Cache<Key, Arc<Block>, Weight>>,
    /// Whether there is no room any more (K4).
    is_full: AtomicBool,
    /// What was read since, by parts of a hash.
    seen: Box<[AtomicU32]>,
}

impl Blocks {
    /// With room for `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        // The cache rounds the number of shards up to a power of two: round down first.
        let shards = 1usize << (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX).ilog2();
        let ahead = bytes.min(MADE_AHEAD_FOR_BYTES_MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .weight_capacity(bytes as u64)
            .estimated_items_capacity((ahead / BLOCK_BYTES_USUAL).max(shards * 32))
            .build();
        // Both required options are set, so it does not fail; if it did, reading would only be slower.
        let cache = options.ok().filter(|_| bytes > 0);
        let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        let seen = ahead.div_ceil(SEEN_PART_BYTES).next_power_of_two();
        Self {
            is_full: AtomicBool::new(cache.is_none()),
            cache: cache.map(|options| Cache::with_options(options, Weight, hashes, life)),
            seen: (0..seen).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The batch at `place`, if it is here.
    pub(crate) fn get(&self, place: Place) -> Option<Arc<Block>> {
        self.cache.as_ref()?.get(&(place.file, place.offset)).filter(|block| block.is_sound())
    }

    /// Whether to keep the block at `place`, which is read now, from memory or not (K4).
    fn wants(&self, place: Place, from_memory: bool) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            if !from_memory {
                return true;
            }
            return PASSED
                .try_with(|passed| passed.replace((passed.get() + 1) % KEPT_OF))
                .is_ok_and(|passed| passed == 0);
        }
        // Offsets differ in a file, and their sum with so much for each file in a queue. The multiplier is Fibonacci's.
        let hash = (place.file.sequence << 32).wrapping_add(place.offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (at, mark) = ((hash >> 16) as usize & self.seen.len().wrapping_sub(1), (hash >> 32) as u32);
        let came_before = self.seen.get(at).is_some_and(|seen| seen.swap(mark, Ordering::Relaxed) == mark);
        came_before && self.cache.is_some()
    }

    /// Keeps `block`, which lies at `place`; `is_there` says whether its queue still has the file (K2).
    fn put(&self, place: Place, block: Block, is_there: impl FnOnce() -> bool) -> Arc<Block> {
        let block = Arc::new(block);
        if let Some(cache) = &self.cache {
            let key = (place.file, place.offset);
            cache.insert(key, Arc::clone(&block));
            if !is_there() {
                cache.remove(&key);
            }
            let is_full = cache.weight() > cache.capacity() - cache.capacity() / ROOM_PART;
            self.is_full.store(is_full, Ordering::Relaxed);
        }
        block
    }

    /// Lets go of all files: both queues are closed (K2).
    pub(crate) fn forget_all(&self) {
        if let Some(cache) = &self.cache {
            cache.clear();
        }
    }

    /// Lets go of the files of one queue before `file`, which have left it (K2).
    pub(crate) fn forget_before(&self, file: FileId) {
        if let Some(cache) = &self.cache {
            cache.retain(|(of, _), _| of.queue != file.queue || *of >= file);
            self.is_full.store(false, Ordering::Relaxed);
        }
    }
}

/// Keeps `last`, if it is something, for the next batch of this thread (K3).
fn stay(last: Option<Last>) {
    if last.is_some() {
        // A thread that is ending keeps nothing.
        let _ = LAST.try_with(|kept| kept.set(last));
    }
}

impl Store {
    /// Shows the batch at `place`, which lies in `file`, as [`show_block`](Self::show_block) does if it is not kept.
    pub(crate) fn with_block<T>(
        &self,
        file: &Arc<LogFile>,
        place: Place,
        run: RunKey,
        show: impl FnOnce(&Block) -> Result<T>,
    ) -> Result<T> {
        match self.blocks.get(place) {
            Some(block) => show(&block),
            None => self.show_block(file, place, run, show),
        }
    }

    /// Shows the batch at `place`, which lies in `file` and is not kept yet, or as much of it as the run needs (K3, K4).
    pub(crate) fn show_block<T>(
        &self,
        file: &Arc<LogFile>,
        place: Place,
        run: RunKey,
        show: impl FnOnce(&Block) -> Result<T>,
    ) -> Result<T> {
        // Taken, not borrowed: `show` may read from another log.
        let last = LAST.try_with(Cell::take).ok().flatten();
        let (again, mut spare, wanted) = match last {
            Some(last) if last.is(file, place.offset) => match last.again(file) {
                block if block.reaches(run) => (Some(block), None, None),
                // Whoever comes for more may come for all of it.
                block => (None, block.into_last(LAST_BYTES_MAX), None),
            },
            spare => (None, spare, Some(run)),
        };
        let mut is_kept = again.is_none();
        let read = || {
            Block::read(Arc::clone(file), place.offset, |from_memory| {
                is_kept = self.blocks.wants(place, from_memory);
                if is_kept { How::default() } else { How { spare: spare.take(), wanted } }
            })
        };
        let block = again.map_or_else(read, Ok);
        // What was not needed serves the next.
        stay(spare);
        let block = block?;
        if is_kept {
            return show(&self.keep(place, block));
        }
        let shown = show(&block);
        stay(block.into_last(LAST_BYTES_MAX));
        shown
    }

    fn keep(&self, place: Place, block: Block) -> Arc<Block> {
        self.blocks.put(place, block, || self.queue(place.file.queue).has(place.file.sequence))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{OnceLock, Weak};

    use esker_env::Env;
    use parking_lot::Mutex;

    use super::*;
    use crate::{Listener, LogBatch, Options, RaftLog};

    fn log(dir: &std::path::Path) -> RaftLog {
        RaftLog::open(dir, Options { compress_from_bytes: 1, ..Options::default() }).unwrap()
    }

    /// Goal: who sets no bound says so with the largest number, and has a log: what is made ahead is bounded nevertheless.
    #[test]
    fn a_cache_may_have_any_size() {
        for bytes in [0, 1, usize::MAX / 2, usize::MAX] {
            let blocks = Blocks::new(bytes);
            assert_eq!(blocks.cache.is_some(), bytes > 0);
            assert!(blocks.seen.len() <= 1 << 24, "{}", blocks.seen.len());
        }
    }

    /// K3: what a thread read last is told from what lies at the same place of another log, of the same log opened again, and of
    /// a file that was written over; whatever is read while it is shown.
    #[test]
    fn what_a_thread_read_last_is_no_other_batch() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let logs = [log(dirs[0].path()), log(dirs[1].path())];
        let write = |log: &RaftLog, index: u64, byte: u8| {
            let mut batch = LogBatch::new();
            batch.add_entries(1, index, [[byte; 100], [byte + 1; 100]]).unwrap();
            log.write(&mut batch, false).unwrap();
        };
        let read = |log: &RaftLog, index: u64| log.entry(1, index).unwrap().unwrap()[0];
        for (log, byte) in logs.iter().zip([10, 20]) {
            write(log, 1, byte);
            write(log, 3, byte + 2);
        }
        for _ in 0..2 {
            for (log, byte) in logs.iter().zip([10, 20]) {
                assert_eq!(
                    [1, 2, 3, 4, 1, 1, 2].map(|index| read(log, index)),
                    [0, 1, 2, 3, 0, 0, 1].map(|n| byte + n)
                );
            }
        }
        let mut seen = Vec::new();
        let shown = logs[0].with_entry(1, 1, |outer| {
            logs[1].with_entry(1, 1, |inner| seen.push((outer[0], inner[0]))).unwrap();
            seen.push((outer[0], read(&logs[0], 3)));
        });
        assert!(shown.unwrap());
        assert_eq!(seen, [(10, 20), (10, 12)]);
        assert_eq!(read(&logs[0], 2), 11);
        let [first, second] = logs;
        drop((first, second));
        std::fs::remove_dir_all(dirs[0].path()).unwrap();
        let again = log(dirs[0].path());
        write(&again, 1, 50);
        assert_eq!(read(&again, 2), 51);
    }

    /// K3: what a thread keeps is small with all that belongs to it, however many items a batch has.
    #[test]
    fn a_thread_keeps_little() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compress_from_bytes: 1, cache_bytes: 0, ..Options::default() };
        let log = RaftLog::open(dir.path(), options).unwrap();
        for (group, items) in [(1, 1u64), (2, 10), (3, 5000), (4, 10)] {
            let mut batch = LogBatch::new();
            let entry = vec![1; if items > 10 { 4 } else { 200 }];
            (0..items).for_each(|n| batch.add_entries(group, 1 + n, [&entry]).unwrap());
            log.write(&mut batch, false).unwrap();
            assert_eq!(log.entry(group, items).unwrap().unwrap(), entry);
            let last = super::LAST.take();
            assert_eq!(last.is_some(), items <= 10, "{items} items");
            super::LAST.set(last);
        }
    }

    /// K3: a fetch unpacks a batch once, with whatever lies between its entries, if nothing is kept, too; as far as it wants of it.
    #[test]
    fn a_batch_that_is_not_kept_is_read_once_by_a_fetch() {
        let disk = esker_env::sim::SimDisk::new();
        let options = Options { compress_from_bytes: 1, cache_bytes: 0, ..Options::default() };
        let log = RaftLog::open_with("/log", options, disk.env(), Vec::new()).unwrap();
        let entry = |index: u64| [[index as u8; 100], [index as u8 + 1; 100]].concat();
        const BATCHES: u64 = 20;
        for first in (0..BATCHES).map(|batch| 1 + batch * 9) {
            let mut batch = LogBatch::new();
            for from in [first, first + 3, first + 6] {
                for group in [7, 8] {
                    batch.add_entries(group, from, (from..from + 3).map(entry)).unwrap();
                }
            }
            log.write(&mut batch, false).unwrap();
        }
        let reads = |begin, end| {
            let (before, mut next) = (disk.read_count(), begin);
            let shown = log.for_each_entry(7, begin, end, |index, bytes| {
                assert_eq!((index, bytes), (next, &*entry(index)));
                next += 1;
                std::ops::ControlFlow::Continue(())
            });
            assert_eq!(shown.unwrap(), end - begin);
            disk.read_count() - before
        };
        // Whatever the first one of a file takes.
        reads(1, 2);
        assert_eq!(reads(1, 1 + BATCHES * 9), BATCHES);
        // Two batches in part.
        assert_eq!(reads(5, 14), 2);
    }

    /// K1, K4: while there is room one of eight is kept, in the end all that comes again, never more than there is room for; then only what comes
    /// again soon.
    #[test]
    fn what_is_kept_fits_and_what_is_read_once_drives_nothing_out() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compress_from_bytes: 1, cache_bytes: 1 << 20, ..Options::default() };
        let log = RaftLog::open(dir.path(), options).unwrap();
        let value = |n: u64, bytes: usize| vec![n as u8; bytes];
        let bytes = |n: u64| if n.is_multiple_of(2) { 1000 } else { 60_000 };
        for n in 1..=200u64 {
            let mut batch = LogBatch::new();
            batch.add_entries(1, n, [value(n, bytes(n))]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        let cache = log.store.blocks.cache.as_ref().unwrap();
        let read = |n: u64| {
            assert_eq!(log.entry(1, n).unwrap().unwrap(), value(n, bytes(n)));
            assert!(cache.weight() <= 1 << 20);
        };
        (1..=20).for_each(read);
        assert_eq!(cache.len(), 3);
        (0..40).for_each(|_| (1..=20).for_each(read));
        // The one that is left the thread has (K3).
        assert!(cache.len() >= 19, "{}", cache.len());
        (0..3).for_each(|_| (1..=200).for_each(read));
        let keys = || cache.iter().map(|(key, _)| key).collect::<Vec<_>>();
        let full = keys();
        assert!(cache.weight() > 900_000 && full.len() < 60, "{} of {}", cache.weight(), full.len());
        let new = || keys().iter().filter(|key| !full.contains(key)).count();
        (100..=200).for_each(read);
        // Of a hundred reads the mark of some may outlast as many others.
        assert!(new() < 20, "{} of what was read in turn is kept", new());
        let before = keys();
        for _ in 0..3 {
            (101..=110).for_each(read);
        }
        let came = keys().iter().filter(|key| !before.contains(key)).count();
        assert!(came >= 3, "{came} of what comes again soon is kept");
    }

    /// K3: a plain batch is no reason to let go of the memory that packed ones are unpacked into, nor is one that is kept.
    #[test]
    fn what_is_not_unpacked_leaves_the_memory_for_that_alone() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compress_from_bytes: 4 << 10, cache_bytes: 0, ..Options::default() };
        let log = RaftLog::open(dir.path(), options).unwrap();
        let mut batch = LogBatch::new();
        for (index, bytes) in [(1, 8 << 10), (2, 100)] {
            batch.add_entries(1, index, [vec![7; bytes]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        log.entry(1, 1).unwrap();
        log.entry(1, 2).unwrap();
        let last = super::LAST.take();
        assert!(last.is_some());
        super::LAST.set(last);
        let dir = tempfile::tempdir().unwrap();
        let keeps = RaftLog::open(dir.path(), Options { compress_from_bytes: 1, ..Options::default() }).unwrap();
        batch.add_entries(1, 1, [[7; 1 << 10]]).unwrap();
        keeps.write(&mut batch, false).unwrap();
        keeps.entry(1, 1).unwrap();
        assert_eq!(keeps.store.blocks.cache.as_ref().unwrap().len(), 1);
        assert!(super::LAST.take().is_some());
    }

    /// Says where blocks lie that were kept when something was moved.
    #[derive(Default)]
    struct Kept(OnceLock<Weak<Store>>, Mutex<BTreeSet<Key>>);

    impl Kept {
        fn keys(&self) -> BTreeSet<Key> {
            let store = self.0.get().and_then(Weak::upgrade);
            store.iter().flat_map(|store| store.blocks.cache.as_ref().unwrap().iter().map(|(key, _)| key)).collect()
        }
    }

    impl Listener for Kept {
        fn batch_appended(&self, _: FileId, _: u64, _: u64) {
            self.1.lock().extend(self.keys());
        }
    }

    /// K4: who purges reads everything once, and drives out nothing that others come back for, nor takes memory for what goes.
    #[test]
    fn what_is_moved_is_kept_while_there_is_room() {
        let (dir, kept) = (tempfile::tempdir().unwrap(), Arc::new(Kept::default()));
        let options = Options { compress_from_bytes: 1, cache_bytes: 1 << 20, ..Options::default() };
        let log = RaftLog::open_with(dir.path(), options, Env::os(), vec![kept.clone()]).unwrap();
        let mut batch = LogBatch::new();
        for index in 1..=400 {
            batch.add_entries(1, index, [[7; 30_000]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        (1..=400).for_each(|index| drop(log.entry(1, index).unwrap()));
        kept.0.set(Arc::downgrade(&log.store)).unwrap();
        let before = kept.keys();
        assert!(before.len() > 20, "{}", before.len());
        log.move_on(None).unwrap();
        let came = kept.1.lock().difference(&before).count();
        // Of those read last some marks are left.
        assert!(came < 20, "{came} of what was moved");
    }
}
