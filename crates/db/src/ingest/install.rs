//! Files that nobody names become part of a version: between two writes, and all at once.

use std::sync::Arc;

use esker_format::rocksdb::internal_key::SequenceNumber;

use super::place::{Known, Writing, is_in_memory, levels};
use super::{Ingested, Newcomer};
use crate::family::Family;
use crate::store::Store;
use crate::version::{BlobHandle, Edit, TableFile};
use crate::write::Lead;
use crate::{Error, ErrorKind, Result};

/// How often memtables are flushed for a call before writers have to wait for it.
const FLUSHES_MAX: usize = 2;

impl Store {
    /// Takes `newcomers` in, in their order, and the blob files that they point to. `is_named` is called once a manifest may name the
    /// files, so that they are no longer the caller's to remove.
    ///
    /// # Errors
    /// As [`Db::ingest`](crate::Db::ingest).
    pub(super) fn take_in(
        &self,
        family: &Arc<Family>,
        newcomers: Vec<Newcomer>,
        blobs: Vec<Arc<BlobHandle>>,
        is_named: impl FnOnce(),
    ) -> Result<Ingested> {
        let _quiet = self.quiet(family.id);
        let mut known = Known::new();
        for _ in 0..FLUSHES_MAX {
            // A first look while writers go on: what it reads and learns holds later.
            let view = family.view.load_full();
            levels(&view.version, &family.options, &[], &newcomers, &mut known)?;
            if !is_in_memory(&view, &newcomers)? {
                break;
            }
            self.flush(&[family.id])?;
        }
        // Most of what the leader would have to sync is on the disk by then (N5).
        self.sync_wal()?;
        self.commit.exclusive(|lead| self.take_in_alone(lead, family, newcomers, blobs, known, is_named))
    }

    fn take_in_alone(
        &self,
        lead: &mut Lead,
        family: &Arc<Family>,
        mut newcomers: Vec<Newcomer>,
        blobs: Vec<Arc<BlobHandle>>,
        mut known: Known,
        is_named: impl FnOnce(),
    ) -> Result<Ingested> {
        self.check_takes_writes()?;
        self.drain(lead)?;
        if is_in_memory(&family.view.load(), &newcomers)? {
            self.flush_alone(lead, family)?;
        }
        self.sync_log(lead)?;
        let before = lead.last_sequence.get();
        let last = before.saturating_add(newcomers.len() as u64);
        if last > SequenceNumber::MAX.get() {
            return Err(Error::new(ErrorKind::Exhausted, "all 2^56 sequence numbers of the store are used up"));
        }
        let writing: Vec<Writing> = {
            let state = self.state.lock();
            state.writing.iter().filter(|writing| writing.family_id == family.id).cloned().collect()
        };
        let version = family.view.load().version.clone();
        let levels = levels(&version, &family.options, &writing, &newcomers, &mut known)?;
        let mut edit = Edit { blobs, ..Edit::default() };
        for ((newcomer, sequence), &level) in newcomers.drain(..).zip(before + 1..).zip(&levels) {
            edit.added.push((level, self.table_file(newcomer, SequenceNumber::new(sequence))?));
        }
        let installed = self.install(family, edit, &[]);
        if let Err(failure) = installed {
            if !failure.files_are_orphans {
                is_named();
            }
            return Err(failure.error.while_doing("taking files in"));
        }
        is_named();
        lead.last_sequence = SequenceNumber::new(last);
        // Before it is published: see `Family::taken_in_up_to`.
        family.note_taken_in(last);
        self.published.publish(before, last).inspect_err(|error| self.fail(error))?;
        Ok(Ingested { levels, sequence: last, not_removed: Vec::new() })
    }

    fn table_file(&self, newcomer: Newcomer, sequence: SequenceNumber) -> Result<Arc<TableFile>> {
        let Newcomer { mut meta, mut table, path } = newcomer;
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
