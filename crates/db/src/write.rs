//! Writing: batch → group commit → log → memtables → publish → acknowledge. The log's side is in [`log`], that of
//! values that go to blob files at once in [`values`], how fast writers may go in [`delay`], and what some writes depend on in [`condition`].
//!
//! - W1: a group is one append to the log and at most one sync, in the order in which its members joined.
//! - W2: sequence numbers are given out by the leader and used up only when the append succeeded; they have no gaps.
//! - W3: a write is published, and so visible, only when all of it is in the memtables.
//! - W4: a power loss takes no write without all that came after it, whichever logs they are in ([`log`], L1 and L2).
//! - W5: a failed sync makes the store read-only; a failed append leaves the log as it was. So once a group is in the log, it fails only
//!   with the store: else its numbers would be given out again, beside what is logged under them.
//! - W6: whoever seals a memtable has waited until every batch that was logged before is in it.
//! - W7: a panic of who writes makes the store read-only, that of a leader before anybody else leads: what is logged, sealed or counted is
//!   unknown.

mod beside;
mod condition;
mod delay;
pub(crate) mod log;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::Guard;
use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber, ValueKind};
use esker_format::rocksdb::write_batch::Record;
use esker_log::pacer::Bucket;
use esker_log::writer::LogWriter;

use self::beside::Beside;
use self::condition::Asked;
pub(crate) use self::condition::{Ahead, Condition};
use self::values::Values;
use crate::batch::WriteBatch;
use crate::entry;
use crate::events::{EventKind, WaitCause};
use crate::family::{Family, Generation, View};
use crate::memtable::Memtable;
use crate::options::WriteOptions;
use crate::range_deletions::RangeDeletion;
use crate::store::{Store, out_of_numbers};
use crate::{Error, ErrorKind, Result};

/// Shorter sleeps than this take longer than they say.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// No group is held back longer than this at once.
const DELAY_MAX: Duration = Duration::from_millis(50);

/// Batches of no more bytes on average are inserted by the leader of their group: 10 µs each, less than it takes to wake a thread. Measured on two
/// processors, thousands of puts a second, where members insert for themselves and where their leader does: 1 KiB by 4 threads
/// 210 and 455, by 16 threads 120 and 390; 16 KiB by 4 threads 44 and 58, by 16 threads 31 and 54; 100 KiB by 4 threads 10.3 and 8.4.
/// 100 B by 4 threads 320 and 500.
const LED_BYTES_MAX: usize = 32 << 10;

/// But what is this small, and alone in its group while one other waits, its writer inserts beside that one: they are two who take turns, and
/// each may have a processor. 100 B by 2 threads: 410 where the leader does it, 495 so, 550 if it also did while nobody waits, which
/// costs three threads a third.
const ASIDE_BYTES_MAX: usize = 256;

/// A member of a group.
#[derive(Debug)]
pub(crate) struct Request {
    batch: WriteBatch,
    options: WriteOptions,
    /// What goes to blob files; the leader puts pointers into `batch` in place of it.
    values: Option<Values>,
    /// The batch as the user gave it.
    user_bytes: usize,
    stage: Stage,
    /// Whether it is written at all; most are.
    asked: Option<Box<Asked>>,
}

/// How far a batch is that is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Logged,
    /// In the memtables, where nobody sees it yet.
    Inserted,
    Shown,
}

/// What only the leader touches.
#[derive(Debug)]
pub(crate) struct Lead {
    /// `None` in a store open for reading only.
    pub(crate) wal: Option<LogWriter>,
    pub(crate) wal_number: FileNumber,
    pub(crate) order: log::Order,
    pub(crate) last_sequence: SequenceNumber,
    /// Families that take writes, by ascending id.
    pub(crate) actives: Vec<Active>,
    /// Written since it was last looked what all memtables take.
    pub(crate) unweighed_bytes: u64,
    /// Whether something was ever written without the log.
    pub(crate) unlogged: bool,
    /// Holds writers back while compaction is behind.
    pub(crate) pace: Bucket,
    /// Memory for the next batch that gets pointers.
    spare: WriteBatch,
    /// Syncs values beside the log, from the first that are to be synced on.
    beside: Option<Beside>,
}

/// A family and the memtable that takes its writes.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) family: Arc<Family>,
    pub(crate) generation: Arc<Generation>,
}

impl Lead {
    /// Nothing is written any more.
    pub(crate) fn end(&mut self) {
        self.wal = None;
        self.beside = None;
    }

    /// Without a log yet: `wal_number` is the one it will have.
    pub(crate) fn new(wal_number: FileNumber, last_sequence: SequenceNumber) -> Self {
        Self {
            wal: None,
            wal_number,
            order: log::Order::default(),
            last_sequence,
            actives: Vec::new(),
            unweighed_bytes: 0,
            unlogged: false,
            pace: Bucket::new(Duration::ZERO, None),
            spare: WriteBatch::new(),
            beside: None,
        }
    }

    /// Takes the active memtables from the views: after recovery, and when families come and go.
    pub(crate) fn reload(&mut self, families: &BTreeMap<u32, Arc<Family>>) {
        let active =
            |family: &Arc<Family>| Active { family: family.clone(), generation: family.view.load().active.clone() };
        self.actives = families.values().map(active).collect();
    }
}

/// A batch on its way into the memtables: should its thread panic there, nobody waits for it, and the store takes no more writes.
struct Unfinished<'a>(&'a Store);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.published.break_off();
        self.0.fail(&panicked());
    }
}

/// Somebody who leads: the same of its panic (W7).
struct Leading<'a>(&'a Store);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.fail(&panicked());
    }
}

/// Puts one record where it belongs. Writes and recovery go through here alike.
///
/// # Errors
/// `UnsupportedFormat` for an operation that Esker does not have (yet).
pub(crate) fn apply(memtable: &Memtable, sequence: SequenceNumber, record: &Record<'_>) -> Result<()> {
    match record.kind {
        kind if entry::is_served(kind) => {
            memtable.add(sequence, kind, record.key, record.value);
            Ok(())
        }
        ValueKind::RangeDeletion => {
            let (begin, end) = (record.key.into(), record.value.into());
            memtable.add_range_deletion(RangeDeletion { begin, end, sequence });
            Ok(())
        }
        kind => Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!(
                "the log holds an operation of kind {kind:?}, which Esker cannot apply; open the store with RocksDB"
            ),
        )),
    }
}

impl Store {
    /// See [`Db::write`](crate::Db::write).
    pub(crate) fn write(&self, batch: WriteBatch, options: WriteOptions) -> Result<()> {
        self.write_and_return(batch, options).map(drop)
    }

    /// As [`write`](Self::write); gives the batch back, for its memory.
    pub(crate) fn write_and_return(&self, batch: WriteBatch, options: WriteOptions) -> Result<Option<WriteBatch>> {
        check_options(options)?;
        self.check_writable()?;
        if !batch.is_for(&self.session_id) {
            let reason = "the batch names column families of another store, or of an earlier open of this one";
            return Err(Error::invalid_argument(reason));
        }
        if batch.is_empty() {
            return if options.sync { self.sync_wal().map(|()| None) } else { Ok(None) };
        }
        let request = self.prepare(batch, options)?;
        self.submit(request).map(|written| written.map(Request::into_batch))
    }

    /// As [`write_and_return`](Self::write_and_return), of one put; a value that goes to a blob file is packed from where it is.
    /// `batch` is empty.
    pub(crate) fn put(
        &self,
        family: &Family,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
        batch: WriteBatch,
    ) -> Result<Option<WriteBatch>> {
        check_options(options)?;
        self.check_writable()?;
        if family.is_dropped() {
            return Err(dropped(family.id));
        }
        let request = match self.prepare_put(family, key, value, options, batch)? {
            Ok(request) => request,
            Err(mut batch) => {
                batch.put_id(family.id, key, value)?;
                return self.write_and_return(batch, options);
            }
        };
        self.submit(request).map(|written| written.map(Request::into_batch))
    }

    pub(crate) fn submit(&self, request: Request) -> Result<Option<Request>> {
        let _admitted = self.admit(&request)?;
        let began = self.pace.begin_call(&*self.env.clock);
        let group_bytes_max = usize::try_from(self.options().group_bytes_max).unwrap_or(usize::MAX);
        let weigh = |request: &Request| request.user_bytes;
        let waits_for_device = |request: &Request| request.options.sync;
        let write = |lead: &mut Lead, group: &mut Vec<Request>| {
            let leading = Leading(self);
            let written = self.write_group(lead, group);
            // Who waits for the device is waited for by others: the next group shall go there first.
            let finished =
                written.and_then(|()| if group.iter().any(waits_for_device) { Ok(()) } else { self.finish_led(group) });
            std::mem::forget(leading);
            finished
        };
        let settle = |group: &mut [Request]| self.finish_led(group);
        let Some(mut logged) =
            self.commit.submit_and_return(request, weigh, waits_for_device, group_bytes_max, write, settle)?
        else {
            return Ok(None);
        };
        logged.check_not_refused()?;
        if logged.stage != Stage::Shown {
            self.finish(&logged)?;
        }
        self.pace.end_call(began, &*self.env.clock);
        Ok(Some(logged))
    }

    /// Leads alone, in its turn: see [`CommitQueue::exclusive`](esker_log::commit::CommitQueue::exclusive).
    pub(crate) fn alone<T>(&self, run: impl FnOnce(&mut Lead) -> T) -> T {
        self.commit.exclusive(|lead| {
            let leading = Leading(self);
            let made = run(lead);
            std::mem::forget(leading);
            made
        })
    }

    /// Finishes what is small for all of a group, so that its members wait once, to return (C8 of the commit queue): woken to insert, they
    /// would wait for each other again, to be shown in order.
    fn finish_led(&self, group: &mut [Request]) -> Result<()> {
        if group.iter().all(|request| request.stage == Stage::Shown) {
            return Ok(());
        }
        let left = group.iter().filter(|request| request.stage == Stage::Logged);
        let bytes: usize = left.map(|request| request.batch.len_bytes()).sum();
        let goes_aside = group.len() == 1 && bytes <= ASIDE_BYTES_MAX && self.commit.waiting_count() == 1;
        if bytes > LED_BYTES_MAX * group.len() || goes_aside {
            return Ok(());
        }
        let mut result = Ok(());
        for request in group.iter_mut().filter(|request| request.stage != Stage::Shown) {
            // Also after one that failed: those behind wait to be shown after it.
            result = result.and(self.finish(request));
            request.stage = Stage::Shown;
        }
        result
    }

    /// As [`sync_wal`](Self::sync_wal), by one sync with all who write meanwhile.
    pub(crate) fn sync_with_others(&self) -> Result<()> {
        let options = WriteOptions { sync: true, ..WriteOptions::default() };
        self.submit(self.request(WriteBatch::new(), options)?).map(drop)
    }

    /// What [`write_alone`](Self::write_alone) takes: all that can be done before one leads.
    ///
    /// # Errors
    /// As [`Db::write`](crate::Db::write).
    pub(crate) fn request(&self, batch: WriteBatch, options: WriteOptions) -> Result<Request> {
        check_options(options)?;
        self.prepare(batch, options)
    }

    /// Writes one batch under the leadership that the caller has.
    ///
    /// # Errors
    /// As [`Db::write`](crate::Db::write).
    pub(crate) fn write_alone(&self, lead: &mut Lead, request: Request) -> Result<()> {
        let mut group = [request];
        self.write_group(lead, &mut group)?;
        group.iter().try_for_each(|request| self.finish(request))
    }

    /// See [`Db::sync_wal`](crate::Db::sync_wal).
    pub(crate) fn sync_wal(&self) -> Result<()> {
        self.check_writable()?;
        self.alone(|lead| self.sync_log(lead))
    }

    fn write_group(&self, lead: &mut Lead, group: &mut [Request]) -> Result<()> {
        self.check_takes_writes()?;
        self.ask_conditions(lead, group)?;
        let group_bytes = group.iter().map(|request| request.user_bytes as u64).sum();
        self.make_room(lead, group_bytes)?;
        let mut last = lead.last_sequence.get();
        for request in group.iter_mut() {
            request.batch.raw_mut().set_sequence(SequenceNumber::new(last + 1));
            last += u64::from(request.batch.count());
        }
        if last > SequenceNumber::MAX.get() {
            return Err(out_of_numbers());
        }
        let syncs = group.iter().any(|request| request.options.sync);
        if syncs {
            // L2, before anything of the group is written: a log that cannot be sealed fails it, and the next one goes on.
            self.sync_ended_logs()?;
        }
        let appended = self.store_values(lead, group)?;
        self.log_group(lead, group).map_err(|error| self.take_back(appended, error))?;
        if syncs {
            self.sync_group(lead, group)?;
        }
        lead.unlogged |= group.iter().any(|request| request.options.disable_wal);
        lead.last_sequence = SequenceNumber::new(last);
        if syncs {
            self.durable_sequence.store(last, Ordering::Release);
        }
        self.counters.user_bytes.add(group_bytes);
        self.counters.user_writes.add(group.iter().filter(|request| request.batch.count() > 0).count() as u64);
        Ok(())
    }

    /// Makes the group durable, which is in the log. What is small goes into the memtables while the device is at it: should that fail, nobody
    /// ever sees it there, as the store takes no more writes. Measured, 16 threads that put 1 KiB each: 9 % more of them.
    fn sync_group(&self, lead: &mut Lead, group: &mut [Request]) -> Result<()> {
        let bytes: usize = group.iter().map(|request| request.batch.len_bytes()).sum();
        if let Some(wal) = lead.wal.as_ref().filter(|_| group.len() > 1 && bytes <= LED_BYTES_MAX * group.len()) {
            wal.begin_sync();
            for request in group.iter_mut() {
                self.insert(&request.batch, request.batch.raw().sequence().get())
                    .inspect_err(|error| self.fail(error))?;
                request.stage = Stage::Inserted;
            }
        }
        self.sync_last_log(lead)
    }

    /// Puts a logged batch into the memtables and shows it when all before it are shown (W3). Where batches are large every member of a group
    /// does so for itself, beside the others and beside the next group's log.
    fn finish(&self, request: &Request) -> Result<()> {
        let batch = &request.batch;
        if batch.count() == 0 {
            // It came to be synced with what was written before it, and has no number to be shown.
            return Ok(());
        }
        let first = batch.raw().sequence().get();
        let before = first.saturating_sub(1);
        let unfinished = Unfinished(self);
        let inserted = if request.stage == Stage::Logged { self.insert(batch, first) } else { Ok(()) };
        std::mem::forget(unfinished);
        let shown = self.published.publish(before, before + u64::from(batch.count()));
        shown.and(inserted).inspect_err(|error| self.fail(error))
    }

    fn insert(&self, batch: &WriteBatch, first: u64) -> Result<()> {
        // Sealing waits for this batch (W6), so what takes writes now did so when it was logged.
        let default = &*self.default_family;
        let mut at = Some((default.view.load(), default));
        let others = batch.names_families().then(|| self.families.load());
        for (sequence, record) in (first..).zip(batch.raw().records()) {
            let record = record.map_err(|error| Error::invalid_argument(error.to_string()))?;
            if at.as_ref().is_none_or(|(_, family)| family.id != record.cf) {
                self.note_fill(at.as_ref());
                let family = others.as_ref().and_then(|families| families.get(&record.cf));
                at = family.map(|family| (family.view.load(), &**family));
            }
            // A family dropped since the batch was checked takes nothing any more.
            if let Some((view, _)) = &at {
                apply(&view.active.memtable, SequenceNumber::new(sequence), &record)?;
            }
        }
        self.note_fill(at.as_ref());
        Ok(())
    }

    /// The next leader looks for full memtables only if somebody met one.
    #[inline]
    fn note_fill(&self, at: Option<&(Guard<Arc<View>>, &Family)>) {
        if let Some((view, family)) = at
            && view.active.memtable.allocated_bytes() as u64 >= family.memtable_bytes()
        {
            self.has_full.store(true, Ordering::Release);
        }
    }

    /// Waits until everything that was logged is in the memtables: before they are sealed.
    pub(crate) fn drain(&self, lead: &Lead) -> Result<()> {
        self.published.wait_for(lead.last_sequence.get())
    }

    /// Seals what is full, and waits where compaction or flush cannot keep up.
    fn make_room(&self, lead: &mut Lead, bytes: u64) -> Result<()> {
        let mut sealing = Vec::new();
        // Acquire, with the release of who met it. Taken back before the look, so that nobody's later find is lost.
        if self.has_full.load(Ordering::Acquire) {
            self.has_full.store(false, Ordering::Release);
            let full = |active: &&Active| {
                active.generation.memtable.allocated_bytes() as u64 >= active.family.memtable_bytes()
                    || active.has_enough_blobs()
            };
            sealing.extend(lead.actives.iter().filter(full).map(|active| active.family.id));
        }
        if sealing.is_empty() {
            sealing = self.holders_of_oldest_log(lead);
        }
        if sealing.is_empty() {
            sealing.extend(self.largest_of_too_many(lead, bytes));
        }
        if !sealing.is_empty() {
            // Whatever fails, the memtables are still full.
            self.seal(lead, &sealing).inspect_err(|_| self.has_full.store(true, Ordering::Release))?;
        } else if self.room.has_deletions_to_flush()
            && let Some(family) = crate::memory::largest(lead)
            && self.state.lock().flush_error.is_none()
        {
            // Deletions go on whether or not that can be done, but not in a store that it made read-only.
            let _ = self.seal(lead, &[family]);
            self.check_takes_writes()?;
        }
        self.delay_writes(lead, bytes);
        Ok(())
    }

    pub(crate) fn seal(&self, lead: &mut Lead, families: &[u32]) -> Result<()> {
        self.wait_for_buffers(families)?;
        self.rotate(lead, families)?;
        if self.background_jobs == 0 {
            self.run_due_work()?;
        }
        Ok(())
    }

    /// The families to flush because the logs together have grown too large.
    fn holders_of_oldest_log(&self, lead: &Lead) -> Vec<u32> {
        let wal_bytes = lead.wal.as_ref().map_or(0, LogWriter::len);
        let sealed = self.sealed_wal_bytes.load(Ordering::Relaxed);
        if wal_bytes == 0 || sealed + wal_bytes < self.wal_bytes_max.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let Some(oldest) = self.state.lock().wals.keys().next().copied() else {
            return Vec::new();
        };
        let holds = |a: &&Active| !a.generation.memtable.is_empty() && a.generation.first_wal() <= oldest;
        lead.actives.iter().filter(holds).map(|active| active.family.id).collect()
    }

    /// Waits until each of the families may have one more sealed memtable.
    fn wait_for_buffers(&self, families: &[u32]) -> Result<()> {
        for &id in families {
            let Some(family) = self.family(id) else { continue };
            let is_full = || family.view.load().sealed.len() + 1 >= family.options().write_buffer_count_max;
            if self.background_jobs == 0 {
                // A flush that failed before is tried again, or memory would have no bound.
                if is_full() {
                    self.run_due_work()?;
                }
                continue;
            }
            let began = self.env.clock.monotonic();
            let (mut waited, mut result) = (false, Ok(()));
            let mut state = self.state.lock();
            while is_full() && !family.is_dropped() {
                result = self.check_writable().and_then(|()| match &state.flush_error {
                    Some(error) => Err(error.clone().while_doing("writers wait for a flush that fails")),
                    None => Ok(()),
                });
                if result.is_err() {
                    break;
                }
                waited = true;
                self.changed.wait(&mut state);
            }
            drop(state);
            if waited {
                self.note_wait(WaitCause::Flush, began);
            }
            result?;
        }
        Ok(())
    }

    /// Seals the active memtables of `families` and begins a new log. If all are empty, the log goes on: one more for each such call would
    /// be one more that stays until others' memtables are flushed.
    pub(crate) fn rotate(&self, lead: &mut Lead, families: &[u32]) -> Result<()> {
        self.drain(lead)?;
        let families: BTreeSet<u32> = families.iter().copied().collect();
        let holds = |active: &&Active| families.contains(&active.family.id) && !active.generation.memtable.is_empty();
        let sealing: BTreeSet<u32> = lead.actives.iter().filter(holds).map(|active| active.family.id).collect();
        if sealing.is_empty() {
            return Ok(());
        }
        self.end_blobs(lead, &sealing)?;
        self.begin_log(lead)?;
        let mut told = Vec::with_capacity(sealing.len());
        let mut state = self.state.lock();
        state.wals.entry(lead.wal_number).or_insert(0);
        for active in &mut lead.actives {
            if active.generation.memtable.is_empty() {
                active.generation.set_first_wal(lead.wal_number);
                continue;
            }
            if !sealing.contains(&active.family.id) {
                continue;
            }
            active.generation = active.generation.next(lead.wal_number);
            let view = active.family.view.load_full();
            told.push((active.family.clone(), view.active.memtable.allocated_bytes() as u64));
            let mut sealed = Vec::with_capacity(view.sealed.len() + 1);
            sealed.push(view.active.clone());
            sealed.extend(view.sealed.iter().cloned());
            let next = View { active: active.generation.clone(), sealed, version: view.version.clone() };
            active.family.view.store(Arc::new(next));
            state.to_flush.insert(active.family.id);
        }
        drop(state);
        for (family, bytes) in told {
            self.tell(EventKind::MemtableSealed { column_family: &family.name, bytes });
            self.refresh_delay(&family);
        }
        self.refresh_memory();
        self.changed.notify_all();
        Ok(())
    }

    /// A writer waited since `began`.
    pub(crate) fn note_wait(&self, cause: WaitCause, began: Duration) {
        let waited = self.env.clock.monotonic().saturating_sub(began);
        self.counters.stall_micros.add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        self.tell(EventKind::Waited { cause, waited });
    }

    /// Holds the group back while compaction is behind: smoothly, see [`esker_log::pacer`]. What a group owes is
    /// gathered until it is worth a sleep, and paid by those who come next if it is more than the longest one.
    fn delay_writes(&self, lead: &mut Lead, bytes: u64) {
        let rate = Some(self.delayed_rate.load(Ordering::Relaxed)).filter(|&rate| rate > 0);
        if rate.is_none() && lead.pace.rate().is_none() {
            return;
        }
        let now = self.env.clock.monotonic();
        if lead.pace.rate() != rate {
            lead.pace.set_rate(now, rate);
        }
        lead.pace.spend(bytes);
        let wait = lead.pace.wait(now).min(DELAY_MAX);
        if wait >= DELAY_MIN {
            self.counters.stall_micros.add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
            self.env.clock.sleep(wait);
        }
    }

    /// See [`Db::flush`](crate::Db::flush).
    pub(crate) fn flush(&self, families: &[u32]) -> Result<()> {
        self.check_writable()?;
        // What failed before may have been mended: this flush says how it is now.
        self.state.lock().flush_error = None;
        let sealed = self.alone(|lead| self.seal_for_flush(lead, families))?;
        for (family, generation) in sealed {
            self.wait_for_flush(&family, &generation)?;
        }
        Ok(())
    }

    /// Seals what `families` have in memory; returns what has to be flushed before that is in tables.
    pub(crate) fn seal_for_flush(
        &self,
        lead: &mut Lead,
        families: &[u32],
    ) -> Result<Vec<(Arc<Family>, Arc<Generation>)>> {
        self.check_writable()?;
        self.wait_for_buffers(families)?;
        self.rotate(lead, families)?;
        if self.background_jobs == 0 {
            self.run_due_work()?;
        }
        let last = |id: &u32| self.family(*id).and_then(|f| f.view.load().sealed.first().cloned().map(|g| (f, g)));
        Ok(families.iter().filter_map(last).collect())
    }

    pub(crate) fn wait_for_flush(&self, family: &Family, generation: &Arc<Generation>) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if family.is_dropped() || !family.view.load().sealed.iter().any(|sealed| Arc::ptr_eq(sealed, generation)) {
                return Ok(());
            }
            self.check_writable()?;
            if let Some(error) = &state.flush_error {
                return Err(error.clone().while_doing("waiting for a flush"));
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cold]
fn panicked() -> Error {
    let reason = "a thread panicked while it wrote, so what was written is unknown; reopen to go on";
    Error::new(ErrorKind::ReadOnly, reason)
}

#[cold]
fn dropped(id: u32) -> Error {
    Error::invalid_argument(format!("the batch writes to column family {id}, which was dropped or is of another store"))
}

/// What no write may ask for.
///
/// # Errors
/// `InvalidArgument`: both a sync and no log.
pub(crate) fn check_options(options: WriteOptions) -> Result<()> {
    if options.sync && options.disable_wal {
        return Err(Error::invalid_argument("a write cannot be synced without the log: choose sync or disable_wal"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
