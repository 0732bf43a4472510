//! Moving what groups hold in old files to the end of the rewrite queue.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_format::raft::file_name::{FileId, Queue as Kind};
use esker_format::raft::item::AtomicStatus;

use super::Reclaim;
use crate::batch::LogBatch;
use crate::block::Block;
use crate::group::{Group, Place, Run, Span};
use crate::queue::LogFile;
use crate::read::{LOOKED_UP_MAX, Parts};
use crate::stats::Counters;
use crate::store::Store;
use crate::write::closed;
use crate::{Error, ErrorKind, Result};

/// A batch of moved entries has so many bytes at most, unless one that it was read from has more; raft-engine's number.
pub(super) const BATCH_BYTES: usize = 128 << 10;
/// So many bytes are written between syncs, so that the last one does not keep the disk from writers; raft-engine's number. Nor takes what the
/// index is to be told after it more memory.
const SYNC_BYTES: usize = 512 << 10;

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// What files of the append queue up to this one hold.
    Until(u64),
    /// What the rewrite queue holds.
    Rewritten,
}

/// A key of a group, its value, and the file that holds them.
type Key = (Box<[u8]>, Arc<[u8]>, FileId);

/// What a group has to move.
#[derive(Debug, Default)]
struct Load {
    entries: Parts,
    /// `None` if more entries follow.
    keys: Option<Vec<Key>>,
    /// Entries that the rewrite queue holds behind these were replaced: a copy without them must not be durable before
    /// what replaced them is.
    replaced: bool,
}

/// Entries of one item that is written, and the records that it replaces.
#[derive(Debug, Default)]
struct Chunk {
    first: u64,
    /// Copies: of a block that holds much else, a few bytes may be wanted.
    entries: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    old: Vec<Run>,
}

/// What the index is told once a batch is durable (P10).
#[derive(Debug)]
enum Move {
    Entries { group: u64, first: u64, count: u64, old: Vec<Run> },
    Key { group: u64, key: Box<[u8]>, from: FileId },
}

impl Move {
    fn memory_bytes(&self) -> usize {
        let own = match self {
            Self::Entries { old, .. } => old.len() * size_of::<Run>(),
            Self::Key { key, .. } => key.len(),
        };
        size_of::<Self>() + own
    }
}

/// A batch in the making.
#[derive(Debug, Default)]
struct Rewriter {
    batch: LogBatch,
    moves: Vec<Move>,
}

/// What was written and counts as a whole (P4).
#[derive(Debug)]
enum Whole {
    Batch(Place, Vec<Move>),
    Atomic(u64, Atomic),
}

/// The batches of an atomic group that were written: what they move counts at its end.
#[derive(Debug)]
struct Atomic {
    first_file: u64,
    moves: Vec<(Place, Vec<Move>)>,
}

/// What was written of which the index is to be told, in its order (P10).
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    wholes: VecDeque<Whole>,
    /// Bytes that were written since the last sync.
    written_bytes: usize,
    /// What `wholes` take.
    memory_bytes: usize,
}

impl Unsynced {
    fn push(&mut self, whole: Whole) {
        let bytes = |moves: &[Move]| moves.iter().map(Move::memory_bytes).sum::<usize>();
        self.memory_bytes += size_of::<Whole>()
            + match &whole {
                Whole::Batch(_, moves) => bytes(moves),
                Whole::Atomic(_, atomic) => atomic.moves.iter().map(|(_, moves)| bytes(moves)).sum(),
            };
        self.wholes.push_back(whole);
    }
}

impl Chunk {
    /// Memory that it takes, which entries without bytes do, too.
    const fn bytes(&self) -> usize {
        self.entries.len() + self.ends.len() * size_of::<usize>() + self.old.len() * size_of::<Run>()
    }

    /// Puts the entries into the batch.
    fn add_to(self, group: u64, rewriter: &mut Rewriter) -> Result<()> {
        let Self { first, entries, ends, old } = self;
        if ends.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(&0).chain(&ends);
        let each = starts.zip(&ends).map(|(start, end)| entries.get(*start..*end).unwrap_or_default());
        rewriter.batch.add_entries(group, first, each)?;
        rewriter.moves.push(Move::Entries { group, first, count: ends.len() as u64, old });
        Ok(())
    }
}

impl Store {
    /// Moves what `groups` hold within `scope`, but for what cannot be read (P7). The files may be given up then.
    pub(super) fn move_groups(&self, reclaim: &mut Reclaim, groups: &[u64], scope: Scope) -> Result<()> {
        let mut rewriter = Rewriter::default();
        let moved = groups.iter().try_for_each(|group| {
            // Whoever closes the log waits for this.
            if *self.closing.lock() {
                return Err(closed());
            }
            if let Some(error) = self.move_group(reclaim, &mut rewriter, *group, scope)? {
                reclaim.unmoved.get_or_insert(error);
            }
            Ok(())
        });
        let moved = moved.and_then(|()| self.flush(reclaim, &mut rewriter));
        // Where there was no room for more, what was moved may be what makes some.
        let installed = self.install(reclaim);
        moved.and(installed)
    }

    /// What a group has to move from index `from` on. The files are held from now on.
    ///
    /// Of the append queue's, so much at a time that those who write to the group hardly wait. What lies in files that have ended only
    /// becomes less meanwhile, at either end: what is left behind `from` follows what was there before it, or all of that is dead. What moves as
    /// a whole (P4) is looked up as a whole: it was moved before, and is few batches.
    fn load(&self, group: &Group, scope: Scope, from: u64) -> Result<Load> {
        let appended = group.runs.rewritten_until(group.span);
        let (wanted, kind, until, runs_max) = match scope {
            Scope::Until(file) => {
                let next = group.runs.until_file(group.span, file).next;
                (Span { first: appended.max(from), next }, Kind::Append, file, LOOKED_UP_MAX)
            }
            Scope::Rewritten => (Span { first: group.span.first, next: appended }, Kind::Rewrite, u64::MAX, usize::MAX),
        };
        let mut load = Load { replaced: group.is_replaced_from(appended), ..Load::default() };
        if !wanted.is_empty() {
            load.entries = self.parts_there(group, wanted, runs_max)?;
            if load.entries.list.last().is_some_and(|last| last.span.next < wanted.next) {
                return Ok(load);
            }
        }
        let old = |file: FileId| file.queue == kind && file.sequence <= until;
        let keys = group.keys(None, None).filter(|(_, value)| old(value.file));
        load.keys = Some(keys.map(|(key, value)| (key.into(), Arc::clone(&value.bytes), value.file)).collect());
        Ok(load)
    }

    /// Returns what could not be read: the group stays where it is then, but for what was written before of the append queue's. What was
    /// begun of an atomic group and does not end is history.
    fn move_group(
        &self,
        reclaim: &mut Reclaim,
        rewriter: &mut Rewriter,
        group: u64,
        scope: Scope,
    ) -> Result<Option<Error>> {
        let mut atomic: Option<Atomic> = None;
        let (mut chunk, mut next) = (Chunk::default(), 0);
        let keys = loop {
            let load = match self.groups.with(group, |found| self.load(found, scope, next)) {
                Some(Ok(load)) => load,
                Some(Err(error)) => return Ok(Some(error)),
                // It was cleaned.
                None => return Ok(None),
            };
            if scope == Scope::Rewritten && load.replaced {
                self.sync_appended()?;
            }
            if load.entries.list.first().is_some_and(|first| first.span.first != next) {
                // Compacted meanwhile.
                chunk = Chunk::default();
            }
            for part in &load.entries.list {
                let Some(file) = load.entries.file(part) else { return Ok(Some(self.lost(part.run))) };
                next = part.span.next;
                let before = chunk.entries.len();
                let full = match self.read_run(group, part.run, part.span, file, &mut chunk) {
                    Ok(full) => full,
                    Err(error) => return Ok(Some(error)),
                };
                let there = if full.is_some() { 0 } else { before };
                reclaim.looked_at(chunk.entries.len().saturating_sub(there), &self.env);
                let Some(full) = full else { continue };
                if atomic.is_none() {
                    self.flush(reclaim, rewriter)?;
                }
                full.add_to(group, rewriter)?;
                if scope == Scope::Rewritten {
                    self.write_part(reclaim, rewriter, group, &mut atomic, AtomicStatus::Middle)?;
                } else {
                    self.flush(reclaim, rewriter)?;
                }
            }
            if let Some(keys) = load.keys {
                break keys;
            }
        };
        if rewriter.batch.approximate_bytes() + chunk.bytes() > BATCH_BYTES && atomic.is_none() {
            self.flush(reclaim, rewriter)?;
        }
        chunk.add_to(group, rewriter)?;
        for (key, value, from) in keys {
            reclaim.looked_at(key.len() + value.len(), &self.env);
            rewriter.batch.put(group, &key, &value)?;
            rewriter.moves.push(Move::Key { group, key, from });
        }
        if atomic.is_some() {
            self.write_part(reclaim, rewriter, group, &mut atomic, AtomicStatus::End)?;
        } else if rewriter.batch.approximate_bytes() > BATCH_BYTES {
            self.flush(reclaim, rewriter)?;
        }
        Ok(None)
    }

    /// Reads the entries of a run into `chunk`. What was there is returned if both would be too much for a batch: what is long is written
    /// alone, or a batch might not hold it.
    fn read_run(
        &self,
        group: u64,
        run: Run,
        part: Span,
        file: &Arc<LogFile>,
        chunk: &mut Chunk,
    ) -> Result<Option<Chunk>> {
        self.with_block(file, run.place(), (group, run.first), |block| Self::copy_run(block, group, run, part, chunk))
    }

    fn copy_run(block: &Block, group: u64, run: Run, part: Span, chunk: &mut Chunk) -> Result<Option<Chunk>> {
        let skipped = usize::try_from(part.first.saturating_sub(run.first)).unwrap_or(usize::MAX);
        let wanted = usize::try_from(part.count()).unwrap_or(usize::MAX);
        let entries = || Ok::<_, Error>(block.find(group, run.first)?.ranges().skip(skipped).take(wanted));
        let bytes: usize = entries()?.map(|range| range.end.saturating_sub(range.start) as usize).sum();
        let is_full = !chunk.ends.is_empty() && chunk.bytes() + bytes > BATCH_BYTES;
        let full = is_full.then(|| std::mem::take(chunk));
        if chunk.old.is_empty() {
            chunk.first = part.first;
        }
        let before = chunk.ends.len();
        for range in entries()? {
            chunk.entries.extend_from_slice(block.entry(range)?);
            chunk.ends.push(chunk.entries.len());
        }
        if chunk.ends.len() - before != wanted {
            let place = run.place();
            let reason = format!("{} at byte {}: entries of group {group} are missing", place.file, place.offset);
            return Err(Error::new(ErrorKind::Corruption, reason));
        }
        chunk.old.push(run);
        Ok(full)
    }

    /// Writes one batch of an atomic group. The index is told at the end of all of them, or not at all (P4).
    fn write_part(
        &self,
        reclaim: &mut Reclaim,
        rewriter: &mut Rewriter,
        group: u64,
        atomic: &mut Option<Atomic>,
        status: AtomicStatus,
    ) -> Result<()> {
        rewriter.batch.mark_atomic(group, if atomic.is_none() { AtomicStatus::Begin } else { status });
        let moves = std::mem::take(&mut rewriter.moves);
        let (place, bytes) = self.append_rewritten(reclaim, &mut rewriter.batch)?;
        reclaim.unsynced.written_bytes += bytes as usize;
        let begun = atomic.get_or_insert_with(|| Atomic { first_file: place.file.sequence, moves: Vec::new() });
        begun.moves.push((place, moves));
        if status == AtomicStatus::End
            && let Some(ended) = atomic.take()
        {
            reclaim.unsynced.push(Whole::Atomic(group, ended));
        }
        self.listeners.batch_appended(place.file, place.offset, bytes);
        // Not at the group's end: a group that never ends would leave a listener waiting.
        self.listeners.batch_applied(place.file);
        self.install_much(reclaim)
    }

    /// Writes what was gathered.
    fn flush(&self, reclaim: &mut Reclaim, rewriter: &mut Rewriter) -> Result<()> {
        if rewriter.batch.is_empty() {
            return Ok(());
        }
        let moves = std::mem::take(&mut rewriter.moves);
        let (place, bytes) = self.append_rewritten(reclaim, &mut rewriter.batch)?;
        reclaim.unsynced.written_bytes += bytes as usize;
        reclaim.unsynced.push(Whole::Batch(place, moves));
        self.listeners.batch_appended(place.file, place.offset, bytes);
        self.install_much(reclaim)
    }

    /// Syncs what was written, if it is much.
    fn install_much(&self, reclaim: &mut Reclaim) -> Result<()> {
        let Unsynced { written_bytes, memory_bytes, .. } = reclaim.unsynced;
        if written_bytes.max(memory_bytes) < SYNC_BYTES { Ok(()) } else { self.install(reclaim) }
    }

    /// Syncs the rewrite queue, and tells the index where what was written lies now. If the sync fails, it is never told: nothing that readers see
    /// depends on what was written then, and nothing is given up any more.
    pub(super) fn install(&self, reclaim: &mut Reclaim) -> Result<()> {
        let synced = reclaim.tail()?.sync();
        // One by one: what a listener that panics leaves is the next call's.
        while let Some(whole) = reclaim.unsynced.wholes.pop_front() {
            match whole {
                Whole::Batch(place, moves) => {
                    if synced.is_ok() {
                        self.apply_moves(reclaim, moves, place);
                    }
                    self.listeners.batch_applied(place.file);
                }
                Whole::Atomic(group, Atomic { first_file, moves }) if synced.is_ok() => {
                    let last_file = moves.last().map_or(first_file, |(place, _)| place.file.sequence);
                    for (place, moves) in moves {
                        self.apply_moves(reclaim, moves, place);
                    }
                    self.groups.with_mut(group, |group| group.set_atomic((first_file, last_file)));
                }
                Whole::Atomic(..) => {}
            }
        }
        reclaim.unsynced = Unsynced::default();
        synced
    }

    /// Appends `batch` to the rewrite queue; says where and how many bytes. Listeners hear of it once it is noted what the index is to be told: one
    /// that panics must not keep from the index what an open would replay.
    pub(super) fn append_rewritten(&self, reclaim: &mut Reclaim, batch: &mut LogBatch) -> Result<(Place, u64)> {
        let encoded = batch.encode(self.options.compress_from_bytes);
        let tail = reclaim.tail()?;
        let append = || self.rewrite.append(tail, &[&encoded], || Ok(()));
        let appended = match encoded.only_frees() {
            true => self.with_room_to_reclaim(append),
            false => self.may_add().and_then(|()| self.with_room(append)),
        };
        let place = appended.map(|offset| Place { file: tail.file.id, offset });
        let bytes = encoded.len();
        batch.take_back(encoded, false);
        let place = place?;
        Counters::add(&self.counters.rewritten_bytes, bytes);
        Ok((place, bytes))
    }

    fn apply_moves(&self, reclaim: &mut Reclaim, moves: Vec<Move>, place: Place) {
        for moved in moves {
            reclaim.wrote(place.file, if let Move::Entries { count, .. } = &moved { *count } else { 1 });
            match moved {
                Move::Entries { group, first, count, old } => {
                    self.groups.with_mut(group, |group| group.move_entries(&old, Run::new(first, place), count));
                }
                Move::Key { group, key, from } => {
                    self.groups.with_mut(group, |group| group.move_key(&key, from, place.file));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{OnceLock, Weak};
    use std::time::Duration;

    use esker_env::sim::SimDisk;
    use esker_env::{Env, Thread, Threads};

    use super::*;
    use crate::{Listener, Options, RaftLog};

    /// Goal: what waits to be written is copies, however little of each block it is.
    #[test]
    fn of_what_is_moved_no_block_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { compress_from_bytes: 1, cache_bytes: 0, ..Options::default() };
        let log = RaftLog::open(dir.path(), options).unwrap();
        let mut batch = LogBatch::new();
        for index in 1..=50u64 {
            batch.add_entries(1, index, [[index as u8]]).unwrap();
            batch.add_entries(2, index, [vec![index as u8; 50_000]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        let (store, mut chunk) = (&log.store, Chunk::default());
        let file = store.append.file(1).unwrap();
        // A block holds its file.
        let held = Arc::strong_count(&file);
        let load = store.groups.with(1, |group| store.load(group, Scope::Until(1), 0)).unwrap().unwrap();
        for part in &load.entries.list {
            let file = load.entries.file(part).unwrap();
            store.read_run(1, part.run, part.span, file, &mut chunk).unwrap();
        }
        drop(load);
        assert_eq!(Arc::strong_count(&file), held);
        assert_eq!((chunk.first, chunk.entries, chunk.old.len()), (1, (1..=50).collect(), 50));
    }

    #[derive(Default)]
    struct Rewritten(AtomicUsize);

    impl Listener for Rewritten {
        fn batch_appended(&self, file: FileId, _: u64, _: u64) {
            self.0.fetch_add(usize::from(file.queue == Kind::Rewrite), Ordering::Relaxed);
        }
    }

    /// Begins to close the log when something is moved.
    #[derive(Default)]
    struct Closes(OnceLock<Weak<Store>>, AtomicUsize);

    impl Listener for Closes {
        fn batch_appended(&self, file: FileId, _: u64, _: u64) {
            if let Some(store) = self.0.get().and_then(Weak::upgrade).filter(|_| file.queue == Kind::Rewrite) {
                *store.closing.lock() = true;
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Goal: whoever closes the log waits for a group that is being moved, not for all.
    #[test]
    fn nothing_is_moved_of_a_log_that_is_closing() {
        let (dir, closes) = (tempfile::tempdir().unwrap(), Arc::new(Closes::default()));
        let listeners: Vec<Arc<dyn Listener>> = vec![closes.clone()];
        let log = RaftLog::open_with(dir.path(), Options::default(), Env::os(), listeners).unwrap();
        let mut batch = LogBatch::new();
        for group in 1..=20 {
            batch.add_entries(group, 1, [vec![7; 2 * BATCH_BYTES]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        closes.0.set(Arc::downgrade(&log.store)).unwrap();
        assert_eq!(log.move_on(None).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(closes.1.load(Ordering::Relaxed), 1);
    }

    /// Goal: entries without bytes take memory, too: not all of them are gathered first.
    #[test]
    fn entries_without_bytes_are_moved_in_several_batches() {
        const COUNT: u64 = 20_000;
        let (dir, rewritten) = (tempfile::tempdir().unwrap(), Arc::new(Rewritten::default()));
        let listeners: Vec<Arc<dyn Listener>> = vec![rewritten.clone()];
        let log = RaftLog::open_with(dir.path(), Options::default(), Env::os(), listeners).unwrap();
        let mut batch = LogBatch::new();
        for index in 1..=COUNT {
            batch.add_entries(1, index, [[]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        log.move_on(None).unwrap();
        let count = rewritten.0.load(Ordering::Relaxed);
        assert!((4..100).contains(&count), "{count} batches");
        assert_eq!(log.entries(1, 1, COUNT + 1, None).unwrap(), vec![Vec::new(); COUNT as usize]);
    }

    /// Counts how often somebody gives way.
    #[derive(Debug, Default)]
    struct GivesWay(AtomicUsize);

    impl Threads for GivesWay {
        fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> esker_env::Result<Box<dyn Thread>> {
            Env::os().threads.spawn(name, work)
        }

        fn give_way(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins to close the log when files were given up.
    impl Listener for OnceLock<Weak<Store>> {
        fn purged(&self, _: FileId) {
            if let Some(store) = self.get().and_then(Weak::upgrade) {
                *store.closing.lock() = true;
            }
        }
    }

    /// Goal: the log's own purge leaves its processor to callers, every 64 KiB of entries or values; one that somebody waits for does not.
    #[test]
    fn the_logs_own_purge_gives_way() {
        let options = Options { file_bytes: 16 << 10, purge_threshold_bytes: 32 << 10, ..Options::default() };
        for (by_itself, keys) in [(false, false), (false, true), (true, false), (true, true)] {
            let (threads, store) = (Arc::new(GivesWay::default()), Arc::new(OnceLock::new()));
            let env = Env { threads: threads.clone(), ..SimDisk::new().env() };
            let log = RaftLog::open_with("/log", options.clone(), env, vec![store.clone()]).unwrap();
            let mut batch = LogBatch::new();
            for group in 1..=400 {
                match keys {
                    true => batch.put(group, b"key", &[7; 1 << 10]).unwrap(),
                    false => batch.add_entries(group, 1, [[7; 1 << 10]]).unwrap(),
                }
                log.write(&mut batch, false).unwrap();
            }
            if by_itself {
                store.set(Arc::downgrade(&log.store)).unwrap();
                log.store.purge_until_closed(Duration::ZERO);
            } else {
                log.purge().unwrap();
            }
            assert!(log.stats().append.first_file > 1);
            let times = threads.0.load(Ordering::Relaxed);
            // Of 400 KiB, some two thirds are old; each entry counts as 1 KiB more.
            assert!(if by_itself { (4..12).contains(&times) } else { times == 0 }, "{by_itself}, {keys}: {times}");
        }
    }

    /// Goal: what waits for a sync takes little memory, however few bytes are written meanwhile.
    #[test]
    fn groups_with_few_bytes_wait_for_a_sync_together_but_not_all() {
        const COUNT: u64 = 40_000;
        let disk = SimDisk::new();
        let log = RaftLog::open_with_env("/log", Options::default(), disk.env()).unwrap();
        let mut batch = LogBatch::new();
        (0..COUNT).for_each(|group| batch.add_entries(group, 1, [[]]).unwrap());
        log.write(&mut batch, false).unwrap();
        disk.set_tracing(true);
        log.move_on(None).unwrap();
        assert!(log.stats().rewrite.bytes < SYNC_BYTES as u64, "{}", log.stats().rewrite.bytes);
        let is_sync = |line: &&String| line.contains(" sync ") && line.ends_with(".rewrite");
        let syncs = disk.trace().iter().filter(is_sync).count();
        assert!((2..10).contains(&syncs), "{syncs}");
    }

    /// Does something once, when the numbered batch was written, of which the index does not know yet.
    struct Acts<F> {
        at: usize,
        seen: AtomicUsize,
        act: F,
    }

    impl<F: Fn() + Send + Sync> Listener for Acts<F> {
        fn batch_appended(&self, file: FileId, _: u64, _: u64) {
            if file.queue == Kind::Rewrite && self.seen.fetch_add(1, Ordering::Relaxed) == self.at {
                (self.act)();
            }
        }
    }

    /// A log of so many batches, each of which has an entry of 1 KiB of group 1.
    fn loaded(batches: u64, disk: &SimDisk, options: &Options, listener: Arc<dyn Listener>) -> RaftLog {
        let log = RaftLog::open_with("/log", options.clone(), disk.env(), vec![listener]).unwrap();
        let mut batch = LogBatch::new();
        for index in 1..=batches {
            batch.add_entries(1, index, [[7; 1 << 10]]).unwrap();
            log.write(&mut batch, false).unwrap();
        }
        log
    }

    /// Goal: however many batches a group lies in, few of them are looked up and held at a time, so that little memory is taken, and whoever
    /// writes to the group hardly waits.
    #[test]
    fn few_batches_of_a_group_are_looked_up_at_a_time() {
        const COUNT: usize = LOOKED_UP_MAX + 50;
        // Each has a file of its own.
        let options = Options { file_bytes: 1 << 10, cache_bytes: 0, ..Options::default() };
        let (store, held) = (Arc::new(OnceLock::<Weak<Store>>::new()), Arc::new(AtomicUsize::new(0)));
        let (of, most) = (Arc::clone(&store), Arc::clone(&held));
        let act = move || {
            let files = of.get().and_then(Weak::upgrade).unwrap().append.files();
            let count = files.iter().filter(|file| Arc::strong_count(file) > 2).count();
            most.store(count, Ordering::Relaxed);
        };
        let log = loaded(COUNT as u64, &SimDisk::new(), &options, Arc::new(Acts { at: 0, seen: 0.into(), act }));
        store.set(Arc::downgrade(&log.store)).unwrap();
        log.move_on(None).unwrap();
        // And the one that is written to.
        assert!((2..=LOOKED_UP_MAX + 1).contains(&held.load(Ordering::Relaxed)), "{held:?}");
        assert_eq!(log.entries(1, 1, COUNT as u64 + 1, None).unwrap(), vec![vec![7; 1 << 10]; COUNT]);
    }

    /// Goal: whatever becomes of a group while it is moved step by step, nothing of it is lost, and nothing comes back.
    #[test]
    fn a_group_that_changes_while_it_is_moved_is_what_it_became() {
        const COUNT: u64 = 2 * LOOKED_UP_MAX as u64 + 50;
        type Act = fn(&mut LogBatch);
        let acts: [(&str, Act); 10] = [
            ("compacted", |batch| batch.compact(1, 50)),
            ("compacted within a step", |batch| batch.compact(1, 200)),
            ("compacted within another", |batch| batch.compact(1, 300)),
            ("compacted far", |batch| batch.compact(1, COUNT)),
            ("all compacted", |batch| batch.compact(1, COUNT + 1)),
            ("cut", |batch| batch.add_entries(1, 200, [[8; 100]; 500]).unwrap()),
            ("a key replaced", |batch| batch.put(1, b"key 1", b"newer").unwrap()),
            ("a key deleted", |batch| batch.delete(1, b"key 1")),
            ("cleaned", |batch| batch.clean(1)),
            ("cleaned and begun anew", |batch| {
                batch.clean(1);
                batch.add_entries(1, 100, [[8; 100]; 500]).unwrap();
            }),
        ];
        let options = Options { cache_bytes: 0, ..Options::default() };
        let contents = |log: &RaftLog| {
            let (first, last) = (log.first_index(1).unwrap_or(1), log.last_index(1).unwrap_or(0));
            (first, log.entries(1, first, last + 1, None).unwrap(), log.keys(1, None, None))
        };
        let loaded = |disk: &SimDisk, listener| {
            let log = loaded(COUNT, disk, &options, listener);
            let mut batch = LogBatch::new();
            ["key 1", "key 2"].iter().for_each(|key| batch.put(1, key.as_bytes(), b"value").unwrap());
            log.write(&mut batch, false).unwrap();
            log
        };
        for (name, change) in acts {
            let plain = loaded(&SimDisk::new(), Arc::new(Rewritten::default()));
            let mut batch = LogBatch::new();
            change(&mut batch);
            plain.write(&mut batch, false).unwrap();
            let expected = contents(&plain);
            for at in [0, 2, 4] {
                let what = format!("{name} at {at}");
                let (disk, acting) = (SimDisk::new(), Arc::new(OnceLock::<RaftLog>::new()));
                let of = Arc::clone(&acting);
                let act = move || {
                    let mut batch = LogBatch::new();
                    change(&mut batch);
                    of.get().unwrap().write(&mut batch, false).unwrap();
                };
                let acts = Arc::new(Acts { at, seen: 0.into(), act });
                let log = loaded(&disk, acts.clone());
                let _ = acting.set(log.clone());
                log.move_on(None).unwrap();
                assert!(acts.seen.load(Ordering::Relaxed) > at, "{what}");
                assert_eq!(contents(&log), expected, "{what}");
                // What says so is given up, too.
                log.move_on(None).unwrap();
                assert_eq!(contents(&log), expected, "{what}, moved on again");
                log.close().unwrap();
                let log = RaftLog::open_with_env("/log", options.clone(), disk.env()).unwrap();
                assert_eq!(contents(&log), expected, "{what}, reopened");
            }
        }
    }
}
