//! Copies what lives out of the victims into one new file. Changes nothing that anybody sees.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::cask::record::{FIRST_OFFSET, Record};
use esker_format::compression::Compression;
use esker_log::pacer::{Class, GiveWay, Pieces};

use super::{MOVES_MAX, Plan};
use crate::batch::too_large;
use crate::file::{ActiveFile, DataFile, DeadCursor, Step, Walk};
use crate::keydir::{KeyHash, Place, Slot};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// A record that was copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) hash: KeyHash,
    pub(crate) from: Place,
    pub(crate) fate: Fate,
    /// `u32::MAX` stands for that and more.
    pub(crate) bytes: u32,
}

/// What became of a record that lived.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// It was copied to this offset of the new file.
    Copied(u32),
    /// It had expired, and a deletion of its version was written in its place.
    Ended,
    /// It had expired, and is an older version that only history knows: nothing was written.
    Dropped,
}

/// What a merge made.
pub(crate) struct Output {
    /// The new file; `None` if nothing lived.
    pub(crate) file: Option<Arc<ActiveFile>>,
    pub(crate) moves: Vec<Move>,
    /// So many of the victims, from the front, were copied whole and can go.
    pub(crate) done: usize,
    /// Where in the next one copying ended.
    pub(crate) stopped_at: u64,
    pub(crate) bytes_read: u64,
}

struct Run<'a> {
    store: &'a Store,
    plan: &'a Plan,
    clean_as_of: u64,
    now: u64,
    file: Option<Arc<ActiveFile>>,
    moves: Vec<Move>,
    /// Records that wait to be appended together.
    buffer: Vec<u8>,
    stopped_at: u64,
    bytes_read: u64,
    pieces: Pieces,
    give_way: GiveWay,
}

/// A failure leaves an orphan at most, which is removed here or by the next open.
pub(crate) fn run(store: &Store, plan: &Plan) -> Result<Output> {
    // Writes that were given a lower version are in the directory once each stripe was held for a moment after the load (L1). The
    // next version itself may be given any time: a deletion of that version may come after its key was asked for.
    let next_version = store.next_version.load(Ordering::Acquire);
    store.stripes.iter().for_each(drop);
    let is_clean = super::pick::are_copies_clean(&store.files.load(), &store.options);
    let clean_as_of = if is_clean { next_version.saturating_sub(1) } else { 0 };
    let now = store.env.clock.unix_seconds();
    let (moves, buffer) = (Vec::new(), Vec::new());
    let (pieces, give_way) = (Pieces::default(), GiveWay::default());
    let stopped_at = FIRST_OFFSET;
    let file = None;
    let mut run =
        Run { store, plan, clean_as_of, now, file, moves, buffer, stopped_at, bytes_read: 0, pieces, give_way };
    let result = run.copy_all();
    match result {
        Ok(done) => {
            let Run { file, moves, stopped_at, bytes_read, .. } = run;
            Ok(Output { file, moves, done, stopped_at, bytes_read })
        }
        Err(error) => {
            if let Some(file) = run.file {
                // Nobody names it. If it stays, the next open removes it.
                let _ = store.env.files.remove(&file.data.path);
            }
            Err(error)
        }
    }
}

impl Run<'_> {
    fn copy_all(&mut self) -> Result<usize> {
        let mut done = 0;
        for (index, victim) in self.plan.victims.iter().enumerate() {
            if !self.copy(index, victim)? {
                break;
            }
            done = index + 1;
        }
        self.flush()?;
        Ok(done)
    }

    /// `false`: the output is full, and not everything was copied.
    fn copy(&mut self, index: usize, victim: &Arc<DataFile>) -> Result<bool> {
        let usage = victim.usage();
        // R6.
        let is_last = index > 0 || usage.live_records() < MOVES_MAX as u64;
        let begin = if is_last && usage.tombstones > 0 { FIRST_OFFSET } else { victim.merged_to() };
        let mut dead = victim.dead_cursor(victim.dead_len());
        let bytes = victim.bytes(0..victim.end())?;
        let mut walk = Walk::new(&bytes, victim.salt).from(begin);
        let mut unpaced = 0;
        loop {
            match walk.step() {
                Step::Record { offset, record, raw } => {
                    if self.is_full(index, raw.len() as u64) {
                        self.stopped_at = offset;
                        return Ok(false);
                    }
                    if is_last || !record.is_tombstone {
                        self.take(index, victim, &mut dead, offset, &record)?;
                    }
                    unpaced += raw.len() as u64;
                    self.bytes_read += raw.len() as u64;
                    if self.pieces.is_done_after(raw.len() as u64) {
                        self.give_way.give_way(&self.store.env);
                    }
                }
                Step::Damage(range) => {
                    // It is kept as it is, for a repair to look at.
                    victim.mark_damaged();
                    let reason = "the file has bytes that are no records, and is not merged; run a repair";
                    return Err(Error::corruption(&victim.path, range.start, reason));
                }
                Step::End { at, .. } => {
                    self.stopped_at = at;
                    return Ok(is_last || usage.tombstones == 0);
                }
            }
            if unpaced >= self.store.options.merge_batch_bytes {
                self.flush()?;
                self.pause(unpaced)?;
                unpaced = 0;
            }
        }
    }

    fn pause(&self, bytes: u64) -> Result<()> {
        self.store.pacer.request_while(Class::Reclaim, bytes, &mut || {
            // The thread that merges may be the one that syncs.
            self.store.sync_if_due();
            !self.store.is_closing()
        });
        self.store.sync_if_due();
        if self.store.is_closing() {
            return Err(Error::new(ErrorKind::Closed, "the store closes; the merge begins anew when it is opened"));
        }
        Ok(())
    }

    /// The first victim ends only at the bound on moves, so every merge gets somewhere.
    fn is_full(&self, index: usize, more: u64) -> bool {
        let end = self.file.as_ref().map_or(FIRST_OFFSET, |file| file.data.end()) + self.buffer.len() as u64;
        self.moves.len() >= MOVES_MAX || index > 0 && end + more > self.store.options.file_bytes
    }

    fn take(
        &mut self,
        index: usize,
        victim: &DataFile,
        dead: &mut DeadCursor,
        offset: u64,
        record: &Record<'_>,
    ) -> Result<()> {
        if record.is_tombstone {
            if self.tombstone_stays(index, record) {
                self.put(record)?;
            }
            return Ok(());
        }
        if dead.is_dead(offset) {
            return Ok(());
        }
        let hash = self.store.keydir.hash(record.key);
        let from = victim.slot(hash.tag(), offset, record.bytes())?;
        let mut moved = Move { hash, from: from.place(), fate: Fate::Dropped, bytes: u32::MAX };
        if !record.is_expired(self.now) {
            moved.fate = Fate::Copied(self.put(record)?);
            moved.bytes = u32::try_from(record.bytes()).unwrap_or(u32::MAX);
        } else if self.is_newest(hash, from.place()) {
            // R3.
            let buried =
                Record { is_tombstone: true, expires_at: None, value: &[], compression: Compression::None, ..*record };
            self.put(&buried)?;
            moved.fate = Fate::Ended;
        }
        self.moves.push(moved);
        Ok(())
    }

    fn is_newest(&self, hash: KeyHash, place: Place) -> bool {
        self.store.keydir.newest(hash).iter().any(|slot| slot.place() == place)
    }

    /// R2. Asked before anything of this merge is installed; what makes a deletion superfluous never ceases to. A newer put does not: it
    /// hides what is older no more once more versions are kept.
    fn tombstone_stays(&self, index: usize, record: &Record<'_>) -> bool {
        let merged = self.plan.victims.get(..=index).unwrap_or_default();
        let files = self.store.files.load();
        let mut staying = files.iter().filter(|file| !merged.iter().any(|victim| victim.number == file.number));
        !staying.all(|file| super::pick::cannot_hold_older(file, record.version))
    }

    /// Adds a copy of `record`; returns where it will begin.
    fn put(&mut self, record: &Record<'_>) -> Result<u32> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file.insert(self.create()?).clone(),
        };
        let copy = Record { is_continued: false, ..*record };
        let offset = file.data.end() + self.buffer.len() as u64;
        copy.encode(file.data.salt, &mut self.buffer).map_err(|error| too_large(&error))?;
        file.data.count(copy.bytes(), copy.version, copy.is_tombstone, copy.expires_at);
        u32::try_from(offset)
            .map_err(|_| Error::corruption(&file.data.path, offset, "a merged file has grown too long"))
    }

    fn create(&self) -> Result<Arc<ActiveFile>> {
        let number = self.store.installer.lock().new_number()?;
        // What lives in the victims, at most: blocks that turn out too many are given back.
        let usages = self.plan.victims.iter().map(|victim| victim.usage());
        let room: u64 = usages.map(|usage| usage.live_bytes()).sum();
        let room = (room + FIRST_OFFSET).min(self.store.options.file_bytes);
        let create = || self.store.create_data_file(number, self.clean_as_of, room);
        Ok(Arc::new(self.store.reserve.to_reclaim(create)?))
    }

    fn flush(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        let append = || file.append(&[&self.buffer]);
        let offset = self.store.reserve.to_reclaim(append).map_err(|(error, _)| error)?;
        file.data.set_end(offset + self.buffer.len() as u64);
        self.store.counters.merge_written_bytes.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
        self.buffer.clear();
        Ok(())
    }
}

impl Move {
    /// The slot for the copy in `file`.
    pub(crate) fn slot(&self, file: &DataFile) -> Option<Slot> {
        let bytes = if self.bytes == u32::MAX { u64::MAX } else { self.bytes.into() };
        let Fate::Copied(offset) = self.fate else { return None };
        Some(Slot::new(self.hash.tag(), Place { file: file.number, offset }, bytes))
    }
}
