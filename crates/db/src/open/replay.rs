//! The write-ahead logs at open: read twice, so that nothing is written before all of them are known to be good.
//!
//! - A torn end of the last log is where the store ends, unless the manifest says that more was durable: after a power loss the writes
//!   behind it were never acknowledged as durable.
//! - A log that begins with a note of the one before it was begun before that one was durable. If that one lacks anything,
//!   the store ends there, and this log and all later ones are left out, unless one says that it was durable since: then
//!   it is damage.
//! - So is a torn end of any other earlier log, unless the next
//!   log goes on with the very next sequence number: RocksDB leaves that after a failed append.
//! - A pointer to a value that a power loss took ends the log like a torn record ([`super::pointers`]).
//! - Beside a writer, who may go on meanwhile, no log is replayed further than it was checked, and none that had not been begun when
//!   the first was looked at: so all but the last were complete, and what is replayed is what the store was at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::file_name::FileName;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::log::RECYCLABLE_HEADER_BYTES;
use esker_format::rocksdb::log_note::LogNote;
use esker_format::rocksdb::write_batch;
use esker_format::zeroes::is_zero;
use esker_log::distrust;
use esker_log::scan::{LogEnd, RecoveryMode, Scanner};
use parking_lot::MutexGuard;

use super::Recovery;
use super::before::{Clean, Extent, Memtables, Trail};
use super::pointers::{Pointers, Values, is_needed};
use crate::entry;
use crate::family::Family;
use crate::store::Store;
use crate::write::apply;
use crate::{Error, ErrorKind, Result};

/// From where a log ended, what shows whether it goes on: the rest of a block that has no room for a header, and a header.
const NEXT_BYTES: usize = 2 * RECYCLABLE_HEADER_BYTES;

#[derive(Debug)]
struct Log {
    number: FileNumber,
    path: PathBuf,
    /// Nothing was written to a later one, or the next one says that this was not durable: only there is a torn end natural.
    is_last: bool,
}

/// Logs that were read and found good.
#[derive(Debug)]
pub(super) struct Logs {
    logs: Vec<Log>,
    pub(super) found: Recovery,
    /// Blob files that they point to.
    pub(super) pointers: Pointers,
    /// Where what is replayed of each ends.
    ends: BTreeMap<FileNumber, u64>,
    /// Those that hold nothing, whole or in part.
    empty: BTreeSet<FileNumber>,
    /// Single batches that are left out.
    skipped: BTreeSet<(FileNumber, u64)>,
    /// What there is to replay, if the store is open for reading only.
    course: Course,
}

/// What there is to replay, seen from memtables that hold a part of it ([`super::before`] C2, C3).
#[derive(Debug, Default)]
pub(super) struct Course {
    trail: Trail,
    /// How far the memtables go.
    known: Option<Trail>,
    /// Where the first record begins that they lack.
    next: Option<(FileNumber, u64)>,
    /// The first sequence number that they lack.
    next_sequence: Option<u64>,
}

impl Course {
    fn pass(&mut self, log: FileNumber, offset: u64, batch: &Batch, record: &[u8]) {
        if self.next.is_none() && Some(self.trail) == self.known {
            self.next = Some((log, offset));
        }
        if self.next.is_some() && batch.count > 0 {
            self.next_sequence.get_or_insert(batch.sequence);
        }
        self.trail.add(log, record);
    }

    /// Whether the memtables hold the beginning of it, and nobody who reads them may see what follows; `seen_up_to` is what they may see.
    fn goes_on(&self, seen_up_to: u64) -> bool {
        let is_beginning = self.next.is_some() || Some(self.trail) == self.known;
        is_beginning && self.next_sequence.is_none_or(|sequence| sequence > seen_up_to)
    }
}

impl Logs {
    /// Reads the logs that some family needs, whole.
    ///
    /// # Errors
    /// As the recovery mode has it: corruption with path, offset and what to do; `UnsupportedFormat` for operations that Esker lacks.
    pub(super) fn check(store: &Store) -> Result<Self> {
        Self::check_from(store, None)
    }

    /// The same for memtables that hold as much of them as `known` says, or may.
    pub(super) fn check_from(store: &Store, known: Option<Trail>) -> Result<Self> {
        let mut course = Course { known, ..Course::default() };
        let mut wals = store.state.lock().wals.clone();
        if store.read_only {
            leave_out_unbegun(store, &mut wals)?;
        }
        let last = last_durable(store, &wals)?;
        let log = |&number: &FileNumber| {
            let is_last = last.is_none_or(|last| number >= last);
            Log { number, path: store.path_of(&FileName::Wal(number)), is_last }
        };
        let mut logs: Vec<Log> = wals.keys().map(log).collect();
        let mut found = Recovery::default();
        let mut pointers = Pointers::default();
        for log in logs.iter().filter(|_| store.has_stray_blobs) {
            let mut scanner = scanner(store, log)?;
            while let Some((_, record)) = scanner.next()? {
                pointers.notice(store, log.number, &log.path, record)?;
            }
            pointers.notice_end(matches!(scanner.end(), LogEnd::Clean { .. }) && scanner.skipped_bytes() == 0);
        }
        let mut skipped = BTreeSet::new();
        let mut empty = BTreeSet::new();
        // Where an earlier log ended torn, and the sequence number that should follow.
        let mut torn: Option<(PathBuf, u64)> = None;
        let mut expected: Option<u64> = None;
        // The one that a note is about need not be the one before: another may have been begun in vain between them.
        let mut ends: BTreeMap<FileNumber, u64> = BTreeMap::new();
        let mut rest = logs.iter();
        while let Some(log) = rest.next() {
            let path = &log.path;
            let mut scanner = scanner(store, log)?;
            let mut lost: Option<u64> = None;
            let mut missing = None;
            while let Some((offset, record)) = scanner.next()? {
                let batch = check_batch(path, offset, record)?;
                let Batch { sequence, count } = batch;
                if let Some(note) = LogNote::of_batch(record) {
                    if offset == 0 && store.options().wal_recovery != RecoveryMode::SkipCorrupt {
                        let before = ends.get(&note.log).copied();
                        missing = before.filter(|&end| lacks(end, note.end)).map(|end| (note.log, end));
                        if missing.is_some() {
                            break;
                        }
                        if before.is_some() {
                            // Whole, whatever a process that died before it sealed the file left behind its end.
                            torn = None;
                            found.torn_at = None;
                        }
                    }
                    course.pass(log.number, offset, &batch, record);
                    continue;
                }
                if let Some((torn_path, torn_offset)) = torn.take()
                    && expected.is_some_and(|expected| expected != sequence)
                    && store.options().wal_recovery == RecoveryMode::PointInTime
                {
                    let reason = format!(
                        "the log ends torn, but a later log ({}) has writes; repair the store, or reopen with recovery mode SkipCorrupt, to \
                         go on without what is missing, or restore from a backup",
                        path.display()
                    );
                    return Err(Error::corruption(&torn_path, torn_offset, reason));
                }
                refuse_shared_numbers(path, offset, sequence, expected)?;
                match pointers.follow(store, log.number, path, record)? {
                    Values::Whole => {}
                    Values::Lost(_) | Values::Damaged(_)
                        if store.options().wal_recovery == RecoveryMode::SkipCorrupt =>
                    {
                        skipped.insert((log.number, offset));
                        found.skipped_bytes = found.skipped_bytes.saturating_add(record.len() as u64);
                        expected = Some(sequence + count);
                        continue;
                    }
                    Values::Damaged(error) => return Err(error.while_doing("following a pointer of the log")),
                    Values::Lost(_) if may_end_here(store, log) => {
                        lost = Some(offset);
                        expected = Some(sequence);
                        break;
                    }
                    Values::Lost(reason) => {
                        let reason = format!("the log points to a value that is not there: {reason}");
                        return Err(Error::corruption(path, offset, reason));
                    }
                }
                course.pass(log.number, offset, &batch, record);
                expected = Some(sequence + count);
                found.batches += 1;
            }
            if let Some((number, offset)) = missing {
                let before = store.path_of(&FileName::Wal(number));
                for log in std::iter::once(log).chain(rest.by_ref()) {
                    may_be_left_out(store, log, (number, offset))?;
                    ends.insert(log.number, 0);
                    found.dropped_bytes += written_behind(store, &log.path, 0)?;
                }
                found.torn_at.get_or_insert((before, offset));
                break;
            }
            if let Some(offset) = lost {
                torn = Some((path.clone(), offset));
                found.torn_at = torn.clone();
                found.dropped_bytes += written_behind(store, path, offset)?;
            }
            found.wal_files += 1;
            let mut end = lost;
            match scanner.end() {
                LogEnd::Torn { offset, dropped_bytes, .. } => {
                    torn = Some((path.clone(), offset));
                    found.torn_at = torn.clone();
                    found.dropped_bytes += dropped_bytes;
                    end = end.or(Some(offset));
                }
                LogEnd::Clean { offset } => {
                    end = end.or(Some(offset));
                    empty.extend((offset == 0 && scanner.skipped_bytes() == 0).then_some(log.number));
                }
                LogEnd::NotReached => {}
            }
            // In mode SkipCorrupt what is missing; of that, what is there and no record was passed over.
            let missing = end.map_or(0, |end| missing_bytes(store, log.number, end));
            found.skipped_bytes = found.skipped_bytes.saturating_add(scanner.skipped_bytes().max(missing));
            ends.extend(end.map(|end| (log.number, end)));
        }
        check_durable(store, &ends, &mut found)?;
        logs.retain(|log| !empty.contains(&log.number));
        Ok(Self { logs, found, pointers, ends, empty, skipped, course })
    }

    /// Whether a log is nobody's: nothing is in it, nor in any after it. One before others is missed by those that say where it ended.
    pub(super) fn is_nobodys(&self, number: FileNumber) -> bool {
        self.empty.contains(&number) && self.logs.last().is_none_or(|last| last.number < number)
    }

    /// Whether they can stay, and the next one follow them: nothing in their midst is passed over, what they show is on the disk, and nobody else has them.
    pub(super) fn can_stay(&self, store: &Store) -> Result<bool> {
        let files = &*store.env.files;
        let is_alone = |log: &Log| files.metadata(&log.path).is_ok_and(|found| found.links == 1);
        let are_whole = self.skipped.is_empty() && self.found.skipped_bytes == 0 && self.logs.iter().all(is_alone);
        Ok(are_whole && !distrust::is_warned(files, &store.dir)?)
    }

    /// Ends those that stay where they end, and makes them durable; returns how long they are. Others hold nothing from then on.
    pub(super) fn keep(&self, store: &Store) -> Result<BTreeMap<FileNumber, u64>> {
        let mut kept = BTreeMap::new();
        // In the order in which they are read: what is left out says so as long as one before it is not cut.
        for log in &self.logs {
            let end = self.ends.get(&log.number).copied().unwrap_or(0);
            let file = store.env.files.reopen(&log.path, end)?;
            file.sync().inspect_err(|_| {
                // As in `pointers`.
                let _ = distrust::warn(&*store.env.files, &store.dir);
            })?;
            kept.extend((end > 0).then_some((log.number, end)));
            store.durable_log.fetch_max(log.number.get(), Ordering::AcqRel);
        }
        Ok(kept)
    }

    /// Replays into memtables of a store that is open for reading only: those `before`, if what they hold is how the logs begin, or else new ones.
    ///
    /// # Errors
    /// `Busy`, too, if a writer took back what was read before it was read again. To be tried again.
    pub(super) fn replay_for_readers(
        &self,
        store: &Store,
        before: Option<(&Arc<Memtables>, MutexGuard<'_, Extent>)>,
    ) -> Result<Arc<Memtables>> {
        let goes_on = |extent: &Extent| self.course.goes_on(extent.seen_up_to) && !self.pointers.has_led_to_any();
        if let Some((memtables, mut extent)) = before.filter(|(_, extent)| goes_on(extent)) {
            memtables.show_in(store);
            let mut last = extent.last;
            if let Some(next) = self.course.next {
                extent.begin();
                last = self.replay_course(store, Some(next), extent.trail)?;
            }
            extent.end(self.course.trail, last, self.clean(store));
            extent.publish_in(store);
            drop(extent);
            memtables.note_bytes();
            return Ok(memtables.clone());
        }
        let last = self.replay_course(store, None, Trail::default())?;
        store.publish(store.visible().max(SequenceNumber::new(last)));
        Ok(Memtables::of(store, self.course.trail, last, self.clean(store)))
    }

    /// What whoever catches up need not find out again, if nothing was written since.
    fn clean(&self, store: &Store) -> Option<Clean> {
        let is_whole = self.found.torn_at.is_none() && self.found.dropped_bytes == 0 && self.found.skipped_bytes == 0;
        (is_whole && !store.has_stray_blobs && !self.pointers.has_led_to_any()).then(|| Clean {
            ends: self.ends.clone(),
            durable_logs: store.durable_logs.clone(),
            recovery: self.found.clone(),
        })
    }

    /// From `start` on, behind `trail`. Returns the last sequence number.
    fn replay_course(&self, store: &Store, start: Option<(FileNumber, u64)>, trail: Trail) -> Result<u64> {
        let mut trail = trail;
        let last = self.replay_from(store, start, |log, record| trail.add(log, record), |_| Ok(()))?;
        if trail != self.course.trail {
            let reason = "the log was written anew while it was read; try again";
            return Err(Error::new(ErrorKind::Busy, reason).with_path(&store.dir));
        }
        Ok(last.get())
    }

    /// Replays into the active memtables of the families; `full` is called with a family whose memtable is full.
    /// Returns the last sequence number.
    pub(super) fn replay(&self, store: &Store, full: impl FnMut(&Arc<Family>) -> Result<()>) -> Result<SequenceNumber> {
        self.replay_from(store, None, |_, _| {}, full)
    }

    /// The same from a record on that begins at `start`; `each` is called with every record.
    fn replay_from(
        &self,
        store: &Store,
        start: Option<(FileNumber, u64)>,
        mut each: impl FnMut(FileNumber, &[u8]),
        mut full: impl FnMut(&Arc<Family>) -> Result<()>,
    ) -> Result<SequenceNumber> {
        let families = store.families.load();
        let mut last = SequenceNumber::new(0);
        let (first, start) = start.unwrap_or_default();
        for log in self.logs.iter().filter(|log| log.number >= first) {
            let path = &log.path;
            let mut scanner = scanner(store, log)?.up_to(self.ends.get(&log.number).copied().unwrap_or(0));
            if log.number == first {
                scanner = scanner.from(start)?;
            }
            while let Some((offset, record)) = scanner.next()? {
                if self.skipped.contains(&(log.number, offset)) {
                    continue;
                }
                each(log.number, record);
                let mut sequence = check_batch(path, offset, record)?.sequence;
                for record in write_batch::records(record) {
                    let record = record.map_err(|error| Error::decode(path, offset, "replaying the log", error))?;
                    if !record.is_counted() {
                        continue;
                    }
                    // A family that was dropped since, or whose tables have this already, takes nothing.
                    if let Some(family) = families.get(&record.cf)
                        && is_needed(store, log.number, &record)
                    {
                        let view = family.view.load_full();
                        apply(&view.active.memtable, SequenceNumber::new(sequence), &record)?;
                        if view.active.memtable.allocated_bytes() as u64 >= family.memtable_bytes() {
                            full(family)?;
                        }
                    }
                    last = last.max(SequenceNumber::new(sequence));
                    sequence += 1;
                }
            }
        }
        Ok(last)
    }
}

/// Whether the logs of `store` are as they were when memtables went as far as `extent` says ([`super::before`] C7); what they were then.
///
/// Cost: one read of what is in them, not of what is only allocated.
pub(super) fn unchanged(store: &Store, extent: &Extent) -> Result<Option<Recovery>> {
    let Some(clean) = &extent.clean else { return Ok(None) };
    // A record whose header was lost or is not there yet looks like the end. These modes do not take it for that.
    if matches!(store.options().wal_recovery, RecoveryMode::AbsoluteConsistency | RecoveryMode::SkipCorrupt) {
        return Ok(None);
    }
    let wals = store.state.lock().wals.clone();
    let are_there = clean.ends.keys().all(|number| wals.contains_key(number));
    if !are_there || clean.durable_logs != store.durable_logs || store.has_stray_blobs {
        return Ok(None);
    }
    let mut trail = Trail::default();
    for &number in wals.keys() {
        // One that was not there, or in which nothing had begun, has ended where it begins.
        let end = clean.ends.get(&number).copied().unwrap_or(0);
        let path = store.path_of(&FileName::Wal(number));
        let log = Log { number, path, is_last: true };
        let mut scanner = scanner(store, &log)?.up_to(end);
        while let Some((_, record)) = scanner.next()? {
            trail.add(number, record);
        }
        let mut next = [0; NEXT_BYTES];
        let got = store.env.files.open(&log.path)?.read_at(end, &mut next)?;
        if !next.get(..got).is_some_and(is_zero) {
            return Ok(None);
        }
    }
    Ok((trail == extent.trail).then(|| clean.recovery.clone()))
}

/// Leaves out the last logs as far as nothing was written to them yet: those that a writer has ready for later, of which the manifest
/// knows nothing.
fn leave_out_unbegun(store: &Store, wals: &mut BTreeMap<FileNumber, u64>) -> Result<()> {
    while let Some((&number, &bytes)) = wals.last_key_value() {
        if store.durable_logs.contains_key(&number) || (bytes > 0 && has_begun(store, number)?) {
            break;
        }
        wals.remove(&number);
    }
    Ok(())
}

/// Whether there is anything in a log, be it torn or damaged.
fn has_begun(store: &Store, number: FileNumber) -> Result<bool> {
    let mut scanner = first_record_scanner(store, number)?;
    match scanner.next() {
        Ok(Some(_)) => Ok(true),
        Ok(None) => Ok(scanner.end() != LogEnd::Clean { offset: 0 }),
        Err(error) if is_damage(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Of any log, to look at how it begins.
fn first_record_scanner(store: &Store, number: FileNumber) -> Result<Scanner> {
    let log = Log { number, path: store.path_of(&FileName::Wal(number)), is_last: true };
    open_scanner(store, &log, RecoveryMode::PointInTime)
}

/// Whether whoever reads the whole log says it better.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat)
}

/// The first log that may have lost its end: the newest that a record is left of, or the first before it of which each
/// next one says that it was not durable, or says nothing because its own beginning is lost. A length says nothing: logs are preallocated.
fn last_durable(store: &Store, wals: &BTreeMap<FileNumber, u64>) -> Result<Option<FileNumber>> {
    let mut last = None;
    let mut is_unsaid = false;
    for (&number, _) in wals.iter().rev().filter(|(_, bytes)| **bytes > 0) {
        if !is_unsaid && last.is_some_and(|last| number < last) {
            break;
        }
        is_unsaid = false;
        let mut scanner = first_record_scanner(store, number)?;
        let first = scanner.next().map(|first| first.map(|(_, record)| LogNote::of_batch(record)));
        let note = match first {
            Ok(Some(note)) => note,
            // Nothing of it was ever synced, or its beginning would be there. Nor need the one before it have been: what it said of that
            // is lost. Should either have been durable, a later log says so (`may_be_left_out`).
            Ok(None) => {
                is_unsaid = true;
                continue;
            }
            Err(error) if is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        last = Some(note.map_or(number, |note| note.log.min(number)));
    }
    Ok(last)
}

/// Whether a log that ends at `end` is not whole, as it once ended at `before`.
fn lacks(end: u64, before: u64) -> bool {
    // Padding of a block is no record, and shorter than any.
    end.saturating_add(RECYCLABLE_HEADER_BYTES as u64) <= before
}

/// How many bytes there are behind `offset`, without the zeroes at the end: a log has room before it is written.
fn written_behind(store: &Store, path: &Path, offset: u64) -> Result<u64> {
    let file = store.env.files.open(path)?;
    let (mut end, mut block) = (file.len()?, vec![0; 64 << 10]);
    while end > offset {
        let from = offset.max(end.saturating_sub(block.len() as u64));
        let part = block.get_mut(..(end - from) as usize).unwrap_or_default();
        file.read_exact_at(from, part)?;
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            return Ok(from + last as u64 + 1 - offset);
        }
        end = from;
    }
    Ok(0)
}

/// What a log that ends at `end` lacks of what the manifest says is durable of it.
pub(super) fn missing_bytes(store: &Store, log: FileNumber, end: u64) -> u64 {
    let durable = store.durable_logs.get(&log).copied().unwrap_or(0);
    if lacks(end, durable) { durable - end } else { 0 }
}

/// Whether the logs are there as far as the manifest says that they are durable: what is missing of that, no crash has taken. `ends`
/// is where they end. In mode `SkipCorrupt` a log that is gone is counted; what others lack was.
fn check_durable(store: &Store, ends: &BTreeMap<FileNumber, u64>, found: &mut Recovery) -> Result<()> {
    for (&number, &durable) in &store.durable_logs {
        let end = ends.get(&number).copied();
        if missing_bytes(store, number, end.unwrap_or(0)) == 0 {
            continue;
        }
        if store.options().wal_recovery == RecoveryMode::SkipCorrupt {
            found.skipped_bytes = found.skipped_bytes.saturating_add(if end.is_none() { durable } else { 0 });
            continue;
        }
        let is = end.map_or("it is not there".to_owned(), |end| format!("its records end at byte {end}"));
        let reason = format!(
            "the manifest says that {durable} bytes of this log are durable, but {is}; repair the store, or reopen with recovery mode \
             SkipCorrupt, to go on without what is missing, or restore from a backup"
        );
        return Err(Error::corruption(&store.path_of(&FileName::Wal(number)), end.unwrap_or(0), reason));
    }
    Ok(())
}

/// Whether `log` may be left out because an earlier one ends at `before`, too early.
fn may_be_left_out(store: &Store, log: &Log, (number, offset): (FileNumber, u64)) -> Result<()> {
    let damaged = |what: &str| {
        let reason = format!(
            "the log ends here, {what} ({}); repair the store, or reopen with recovery mode SkipCorrupt, to go on without what is \
             missing, or restore from a backup",
            log.path.display()
        );
        Err(Error::corruption(&store.path_of(&FileName::Wal(number)), offset, reason))
    };
    if store.options().wal_recovery == RecoveryMode::AbsoluteConsistency {
        return damaged("but a later log has writes that came after what is missing");
    }
    let mut scanner = scanner(store, log)?;
    while let Some((_, record)) = scanner.next()? {
        if LogNote::of_batch(record).is_some_and(|note| note.is_durable && note.log >= number) {
            return damaged("but was durable beyond, as a later log says");
        }
    }
    Ok(())
}

/// Whether a log that lost a value to a power loss is taken for one that ends there.
fn may_end_here(store: &Store, log: &Log) -> bool {
    match store.options().wal_recovery {
        RecoveryMode::AbsoluteConsistency => false,
        RecoveryMode::TolerateTornTail => log.is_last,
        RecoveryMode::PointInTime | RecoveryMode::SkipCorrupt => true,
    }
}

fn scanner(store: &Store, log: &Log) -> Result<Scanner> {
    open_scanner(store, log, store.options().wal_recovery)
}

fn open_scanner(store: &Store, log: &Log, mode: RecoveryMode) -> Result<Scanner> {
    // The low half of the number is what a recycled log's records carry.
    let salt = log.number.get() as u32;
    Scanner::open(&*store.env.files, &log.path, mode, log.is_last, salt)
}

/// Refuses a batch that begins before the one before it ends: of transactions that are written when they are prepared, a batch has one number
/// for all its operations, and each operation counted for itself, older ones would come to be the newer.
fn refuse_shared_numbers(path: &std::path::Path, offset: u64, sequence: u64, expected: Option<u64>) -> Result<()> {
    if expected.is_none_or(|expected| sequence >= expected) {
        return Ok(());
    }
    let reason = format!(
        "a batch of the log begins at sequence number {sequence}, which one before it has taken, as RocksDB's write-prepared \
         transactions have it; flush the log with RocksDB first"
    );
    Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(path).with_offset(offset))
}

/// A batch that was accepted.
#[derive(Debug)]
pub(super) struct Batch {
    /// Its first sequence number.
    pub(super) sequence: u64,
    /// How many it takes.
    pub(super) count: u64,
}

/// Accepts a batch.
pub(super) fn check_batch(path: &std::path::Path, offset: u64, raw: &[u8]) -> Result<Batch> {
    let doing = "reading a batch of the log";
    let header = write_batch::header(raw).map_err(|error| Error::decode(path, offset, doing, error))?;
    let mut count = 0;
    for record in write_batch::records(raw) {
        let record = record.map_err(|error| Error::decode(path, offset, doing, error))?;
        match record.kind {
            ValueKind::RangeDeletion => count += 1,
            kind if entry::is_served(kind) => count += 1,
            ValueKind::LogData | ValueKind::Noop => {}
            kind => {
                let reason = format!(
                    "{doing}: an operation of kind {kind:?} is not supported yet; flush the log with RocksDB first"
                );
                return Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(path).with_offset(offset));
            }
        }
    }
    if count != u64::from(header.count) {
        let reason = format!("{doing}: it says {} operations and holds {count}", header.count);
        return Err(Error::corruption(path, offset, reason));
    }
    Ok(Batch { sequence: header.sequence.get(), count })
}
