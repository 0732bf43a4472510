//! Files that nobody names become part of a version: between two writes, and all at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::rocksdb::internal_key::SequenceNumber;

use super::place::{Known, is_in_memory, levels};
use super::{Ingested, LOAD_AHEAD, Newcomer};
use crate::events::EventKind;
use crate::family::Family;
use crate::store::{Store, out_of_numbers};
use crate::version::{BlobHandle, Edit, TableFile};
use crate::write::Lead;
use crate::{Error, ErrorKind, Result};

/// How often memtables are flushed for a call before writers have to wait for it.
const FLUSHES_MAX: usize = 2;

/// What became of tables.
#[derive(Debug)]
pub(super) enum Outcome {
    TakenIn(Ingested),
    /// Writers have used the sequence numbers in them (N2).
    Late(Vec<Newcomer>),
}

/// A sequence number that a load took ahead. When it goes, the next load may have it again unless others took some since: either it was not
/// used, or it is published.
#[derive(Debug)]
pub(super) struct LoadSequence {
    store: Arc<Store>,
    first: u64,
    /// What was taken last before.
    before: u64,
}

impl LoadSequence {
    pub(super) fn get(&self) -> SequenceNumber {
        SequenceNumber::new(self.first)
    }
}

impl Drop for LoadSequence {
    fn drop(&mut self) {
        let taken = &self.store.load_sequence;
        let _ = taken.compare_exchange(self.first, self.before, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// What is to be taken in.
struct Incoming<'a> {
    newcomers: Vec<Newcomer>,
    blobs: &'a [Arc<BlobHandle>],
    /// The sequence number in the keys of the first table; those of the next follow. `None`: they have none.
    first: Option<SequenceNumber>,
}

impl Store {
    /// The sequence number for the first table of a load.
    pub(super) fn take_load_sequence(self: &Arc<Self>) -> Result<LoadSequence> {
        let mut before = self.load_sequence.load(Ordering::Acquire);
        loop {
            let first = before.max(self.visible().get()).saturating_add(LOAD_AHEAD);
            if first >= SequenceNumber::MAX.get() {
                return Err(out_of_numbers());
            }
            match self.load_sequence.compare_exchange(before, first, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(LoadSequence { store: self.clone(), first, before }),
                Err(now) => before = now,
            }
        }
    }

    /// Takes `newcomers` in, in their order, and the blob files that they point to. `is_named` is called once a manifest may name the
    /// files, so that they are no longer the caller's to remove.
    ///
    /// # Errors
    /// As [`Db::ingest`](crate::Db::ingest).
    pub(super) fn take_in(
        &self,
        family: &Arc<Family>,
        newcomers: Vec<Newcomer>,
        blobs: &[Arc<BlobHandle>],
        first: Option<SequenceNumber>,
        is_named: impl FnOnce(),
    ) -> Result<Outcome> {
        let _quiet = self.quiet(family.id);
        let mut known = Known::new();
        for _ in 0..FLUSHES_MAX {
            // A first look while writers go on: what it reads and learns holds later.
            let view = family.view.load_full();
            levels(&view.version, &family.options(), &[], &newcomers, &mut known)?;
            if !is_in_memory(&view, ranges(&newcomers))? {
                break;
            }
            self.flush(&[family.id])?;
        }
        // Most of what the leader would have to sync is on the disk by then (N5).
        self.sync_wal()?;
        let incoming = Incoming { newcomers, blobs, first };
        self.alone(|lead| self.take_in_alone(lead, family, incoming, known, is_named))
    }

    fn take_in_alone(
        &self,
        lead: &mut Lead,
        family: &Arc<Family>,
        incoming: Incoming<'_>,
        mut known: Known,
        is_named: impl FnOnce(),
    ) -> Result<Outcome> {
        let Incoming { newcomers, blobs, first } = incoming;
        self.check_takes_writes()?;
        let before = lead.last_sequence.get();
        let begin = first.map_or(before.saturating_add(1), SequenceNumber::get);
        if begin <= before {
            return Ok(Outcome::Late(newcomers));
        }
        let last = begin.saturating_add(newcomers.len() as u64) - 1;
        if last > SequenceNumber::MAX.get() {
            return Err(out_of_numbers());
        }
        self.drain(lead)?;
        if is_in_memory(&family.view.load(), ranges(&newcomers))? {
            self.flush_alone(lead, family)?;
        }
        self.sync_log(lead)?;
        let writing = family.writing();
        let version = family.view.load().version.clone();
        let levels = levels(&version, &family.options(), &writing, &newcomers, &mut known)?;
        let mut edit = Edit { blobs: blobs.to_vec(), ..Edit::default() };
        for ((newcomer, sequence), &level) in newcomers.into_iter().zip(begin..).zip(&levels) {
            let sequence = first.is_none().then(|| SequenceNumber::new(sequence));
            edit.added.push((level, self.table_file(newcomer, sequence)?));
        }
        let changes = match self.install(family, edit, &[]) {
            Ok(changes) => changes,
            Err(failure) => {
                if !failure.files_are_orphans {
                    is_named();
                }
                return Err(failure.error.while_doing("taking files in"));
            }
        };
        is_named();
        lead.last_sequence = SequenceNumber::new(last);
        // Before it is published: see `Family::taken_in_up_to`.
        family.note_taken_in(last);
        self.published.publish(before, last).inspect_err(|error| self.fail(error))?;
        self.tell(EventKind::TakenIn { column_family: &family.name, changes: &changes });
        Ok(Outcome::TakenIn(Ingested { levels, sequence: last, not_removed: Vec::new() }))
    }

    /// A table of the next version; one without a sequence number gets `sequence`. Others are of a load, and watched already.
    fn table_file(&self, newcomer: Newcomer, sequence: Option<SequenceNumber>) -> Result<Arc<TableFile>> {
        let Newcomer { mut meta, mut table, path } = newcomer;
        let Some(sequence) = sequence else {
            return Ok(TableFile::of_watched(meta, table, path, self.trash.clone()));
        };
        let Some(open) = Arc::get_mut(&mut table) else {
            let reason = "a table that is taken in is held by somebody already; report it";
            return Err(Error::new(ErrorKind::Busy, reason).with_path(&path));
        };
        open.take_in(sequence);
        meta.smallest_sequence = sequence;
        meta.largest_sequence = sequence;
        Ok(TableFile::new(meta, table, path, self.trash.clone()))
    }

    /// Flushes what `family` has in memory while writers wait.
    fn flush_alone(&self, lead: &mut Lead, family: &Arc<Family>) -> Result<()> {
        let sealed = self.seal_for_flush(lead, &[family.id])?;
        sealed.iter().try_for_each(|(family, generation)| self.wait_for_flush(family, generation))
    }
}

/// First and last keys.
fn ranges(newcomers: &[Newcomer]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    newcomers.iter().map(|newcomer| (newcomer.smallest(), newcomer.largest()))
}
