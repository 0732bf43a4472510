//! Atomic read-modify-write of one key, without locks that plain writes would have to take.
//!
//! The key is read and the caller decides as if alone; then the change is written if nothing was written to the key since, and otherwise all is
//! done again.
//!
//! - U1: the change takes effect directly after the value that it was decided on: between that value and it there is no
//!   entry of the key in the order of sequence numbers. A decision to change nothing takes effect where the value was read.
//! - U2: what came since is looked for in memtables alone. They have all of it as long as the memtable that was
//!   active at the read is still there; once it is flushed, or files came in from outside, the key is read anew.
//! - U3: who has lost [`ATTEMPTS_MAX`] races reads and decides, too, as leader: then nobody can come in between. A panic of who decides
//!   goes on when it leads no more.
//!
//! - U4: with `sync`, a change that goes alone is logged and shown in its turn, and synced afterwards, with all who write or change keys at the same
//!   moment. Who reads it before it is durable may see what a power loss takes; who writes upon it becomes durable with
//!   it or after it, never without it. An error of the sync is never one that says that nothing changed. Who changes nothing waits
//!   until what that was decided on is durable: of who saw a change and did nothing, others believe that it was done.
//!
//! - U5: a change joins the group commit as any write, under the condition that nobody wrote to the key, which is asked for it in its turn. One that
//!   lost goes on alone, in a turn of its own, and so do the next [`ALONE_AFTER_A_LOSS`] of anybody: where many change the same keys, one of a
//!   group would win, and each loss would cost a sync.
//!
//! Cost: a read, a place in the commit queue, a look into each memtable that is newer than the read, a write. To change nothing takes no place where
//! everything is durable. Of a change that goes alone, the queue for itself; with `sync`, a second place, for a sync that is shared.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::rocksdb::internal_key;

use crate::batch::WriteBatch;
use crate::family::{ColumnFamily, Family, Generation};
use crate::options::{ReadOptions, WriteOptions};
use crate::pinned::PinnedSlice;
use crate::store::Store;
use crate::write::{Ahead, Condition, Lead, Request, check_options};
use crate::{Error, ErrorKind, Result};

/// Races that are lost before others must wait.
const ATTEMPTS_MAX: usize = 16;
/// See U5.
const ALONE_AFTER_A_LOSS: u32 = 256;

/// What [`Db::update`](crate::Db::update) makes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// It has this value from now on.
    Put(Vec<u8>),
    /// It has none from now on.
    Delete,
}

/// Chooses by the value that the key has.
pub(crate) type Decide<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Change;

/// What became of a decision.
enum Attempt {
    Done(Changed),
    /// Somebody else was faster.
    Lost,
}

/// What came of a change.
struct Changed {
    /// The value that was decided on.
    before: Option<PinnedSlice>,
    /// Whether it is another now.
    is_changed: bool,
    /// Whether that is as durable as was asked for.
    is_settled: bool,
}

impl Changed {
    fn nothing(before: Option<PinnedSlice>) -> Self {
        Self { before, is_changed: false, is_settled: false }
    }

    fn alone(before: Option<PinnedSlice>) -> Self {
        Self { before, is_changed: true, is_settled: false }
    }
}

impl Store {
    /// See [`Db::update`](crate::Db::update).
    pub(crate) fn update(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        options: WriteOptions,
        decide: Decide<'_>,
    ) -> Result<Option<PinnedSlice>> {
        check_options(options)?;
        self.check_writable()?;
        let changed = self.change(family, key, options, decide)?;
        match (options.sync && !changed.is_settled, changed.is_changed) {
            (false, _) => {}
            (true, true) => self.sync_in_turn("the change took effect")?,
            (true, false) => self.sync_seen()?,
        }
        Ok(changed.before)
    }

    /// Makes what was seen durable, for who changes nothing.
    pub(crate) fn sync_seen(&self) -> Result<()> {
        if self.durable_sequence.load(Ordering::Acquire) >= self.visible().get() {
            return Ok(());
        }
        self.sync_in_turn("nothing changed, and what was read was written before")
    }

    /// Makes durable what others see already: whatever fails now does not say that it is none (U4), but what `is_so`.
    fn sync_in_turn(&self, is_so: &str) -> Result<()> {
        let is_final = |error: &Error| matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Closed);
        // A group fails for what others bring, or for want of a new log: this needs neither.
        let synced =
            self.sync_with_others().or_else(|error| if is_final(&error) { Err(error) } else { self.sync_wal() });
        synced.map_err(|error| {
            let kind = if is_final(&error) { error.kind() } else { ErrorKind::Io };
            error.with_kind(kind).while_doing(format_args!("{is_so}, but may not survive power loss"))
        })
    }

    fn change(&self, family: &ColumnFamily, key: &[u8], options: WriteOptions, decide: Decide<'_>) -> Result<Changed> {
        let mut joins = self.may_join();
        let in_turn = WriteOptions { sync: false, ..options };
        for _ in 0..ATTEMPTS_MAX {
            let options = if joins { options } else { in_turn };
            match self.try_update(family, key, options, joins, decide)? {
                Attempt::Done(changed) => return Ok(changed),
                Attempt::Lost if joins => self.alone_for.store(ALONE_AFTER_A_LOSS, Ordering::Relaxed),
                Attempt::Lost => {}
            }
            joins = false;
        }
        // A leader cannot wait for room; each of the answers that came to nothing was counted as one that is written.
        let decided = self.alone(|lead| -> Result<std::thread::Result<_>> {
            self.check_takes_writes()?;
            self.drain(lead)?;
            let before = self.get(&family.0, key, &ReadOptions::default())?;
            // Its panic is the caller's matter, no leader's.
            let asked = || self.change_request(family, key, decide(before.as_deref()), in_turn);
            let request = match catch_unwind(AssertUnwindSafe(asked)) {
                Ok(request) => request?,
                Err(panic) => return Ok(Err(panic)),
            };
            Ok(Ok(match request {
                None => Changed::nothing(before),
                Some(request) => {
                    self.write_change(lead, family, request)?;
                    Changed::alone(before)
                }
            }))
        })?;
        Ok(decided.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Whether a change may join a group (U5).
    fn may_join(&self) -> bool {
        self.alone_for.load(Ordering::Relaxed) == 0
            || self.alone_for.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    fn try_update(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        options: WriteOptions,
        joins: bool,
        decide: Decide<'_>,
    ) -> Result<Attempt> {
        // In this order: whatever is newer than `seen` is in this memtable or a later one.
        let active = family.0.view.load().active.clone();
        let seen = self.visible().get();
        let before = self.get(&family.0, key, &ReadOptions::default())?;
        let Some(request) = self.change_request(family, key, decide(before.as_deref()), options)? else {
            return Ok(Attempt::Done(Changed::nothing(before)));
        };
        if joins {
            let condition = Unchanged { family: family.clone(), key: key.into(), seen, active };
            return match self.submit(request.under(Box::new(condition))) {
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(Attempt::Lost),
                written => {
                    written?;
                    Ok(Attempt::Done(Changed { is_settled: true, ..Changed::alone(before) }))
                }
            };
        }
        let _admitted = self.admit(&request)?;
        self.alone(|lead| {
            self.check_takes_writes()?;
            self.drain(lead)?;
            if !is_unchanged(&family.0, key, seen, &active) {
                return Ok(Attempt::Lost);
            }
            self.write_change(lead, family, request)?;
            Ok(Attempt::Done(Changed::alone(before)))
        })
    }

    /// What is to be written for `change`, if anything is.
    fn change_request(
        &self,
        family: &ColumnFamily,
        key: &[u8],
        change: Change,
        options: WriteOptions,
    ) -> Result<Option<Request>> {
        let mut batch = WriteBatch::new();
        match change {
            Change::Keep => return Ok(None),
            Change::Put(value) => batch.put_cf(family, key, value)?,
            Change::Delete => batch.delete_cf(family, key)?,
        }
        self.request(batch, options).map(Some)
    }

    fn write_change(&self, lead: &mut Lead, family: &ColumnFamily, request: Request) -> Result<()> {
        family.0.check_not_dropped()?;
        self.write_alone(lead, request)
    }
}

/// That nobody wrote to a key since it was read.
#[derive(Debug)]
struct Unchanged {
    family: ColumnFamily,
    key: Box<[u8]>,
    seen: u64,
    active: Arc<Generation>,
}

impl Condition for Unchanged {
    fn ask(&self, _: &Store, ahead: &Ahead) -> Result<()> {
        let family = &self.family.0;
        family.check_not_dropped()?;
        if !ahead.writes(family, &self.key) && is_unchanged(family, &self.key, self.seen, &self.active) {
            return Ok(());
        }
        // Whoever asked for the change hears nothing of it: it is tried again.
        Err(Error::new(ErrorKind::Conflict, "another write came first"))
    }
}

/// Whether no entry of `key`, nor a range that has it, is newer than `seen`, as far as memtables tell (U2). `active` took writes when `seen` was the last.
pub(crate) fn is_unchanged(family: &Family, key: &[u8], seen: u64, active: &Arc<Generation>) -> bool {
    if family.has_taken_in_since(seen) {
        return false;
    }
    let tag = u64::MAX.to_le_bytes();
    let lookup = [key, &tag].concat();
    let view = family.view.load();
    for generation in view.generations() {
        let memtable = &generation.memtable;
        if memtable.get(&lookup).is_some_and(|hit| hit.sequence.get() > seen)
            || memtable.range_deletions().newest_at(key, internal_key::SequenceNumber::MAX).get() > seen
        {
            return false;
        }
        if Arc::ptr_eq(generation, active) {
            return true;
        }
    }
    false
}

const _: () = assert!(internal_key::TAG_BYTES == size_of::<u64>(), "the tag of a lookup");
