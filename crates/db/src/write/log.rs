//! The write-ahead log: a group goes into it, and the next one is begun when memtables are sealed.
//!
//! A log is preallocated for what its memtables will hold, so that small writes are copied into mapped memory; it is sealed before
//! its last sync. Where space is short nothing is preallocated.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_env::AppendFile;
use esker_format::file_name::FileName;
use esker_log::writer::LogWriter;

use super::{Lead, Request};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// The most that is preallocated for a log.
const PREALLOCATED_BYTES_MAX: u64 = 256 << 20;
/// A log is preallocated only where so many times its size is free.
const FREE_SHARE: u64 = 8;

impl Store {
    pub(super) fn log_group(&self, lead: &mut Lead, group: &[Request]) -> Result<()> {
        let Some(wal) = lead.wal.as_mut() else {
            return Err(read_only(self));
        };
        let before = wal.len();
        let logged = group.iter().filter(|request| !request.options.disable_wal);
        let result = wal.append_all(logged.map(|request| request.batch.raw().bytes()));
        self.check_log(result)?;
        self.counters.wal_bytes.add(wal.len() - before);
        if group.iter().any(|request| request.options.sync) {
            return self.sync_log(lead);
        }
        Ok(())
    }

    pub(crate) fn sync_log(&self, lead: &mut Lead) -> Result<()> {
        self.sync_values(lead)?;
        let Some(wal) = lead.wal.as_mut() else {
            return Err(read_only(self));
        };
        self.counters.wal_syncs.add(1);
        let result = wal.sync();
        self.check_log(result)
    }

    /// A log that cannot say what it holds makes the store read-only (W5).
    fn check_log(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result
            && error.kind() == ErrorKind::ReadOnly
        {
            self.fail(error);
        }
        result
    }

    /// The next log, once the last is durable (W4). One without a record is used on.
    pub(super) fn begin_log(&self, lead: &mut Lead) -> Result<()> {
        let Some(wal) = lead.wal.as_ref() else {
            return Err(read_only(self));
        };
        let wal_bytes = wal.len();
        if wal_bytes == 0 {
            return Ok(());
        }
        let number = self.new_file_number();
        let path = self.path_of(&FileName::Wal(number));
        let next = self.create_log(&path)?;
        let named = self.env.files.sync_dir(&self.dir).map_err(Error::from);
        let durable = named.and_then(|()| self.end_log(lead));
        if let Err(error) = durable {
            // Nothing was written to it, nor will be: the next attempt begins another one.
            self.trash.add(path);
            return Err(error);
        }
        self.state.lock().wals.insert(lead.wal_number, wal_bytes);
        self.sealed_wal_bytes.fetch_add(wal_bytes, Ordering::Relaxed);
        lead.wal = Some(next);
        lead.wal_number = number;
        Ok(())
    }

    /// Seals the log and makes it durable: nothing is written to it any more.
    pub(crate) fn end_log(&self, lead: &mut Lead) -> Result<()> {
        if let Some(wal) = lead.wal.as_ref() {
            wal.seal()?;
        }
        self.sync_log(lead)
    }

    /// An empty log at `path`.
    pub(crate) fn create_log(&self, path: &Path) -> Result<LogWriter> {
        let file = self.env.files.create(path)?;
        if let Err(error) = self.preallocate_log(&file) {
            // Nothing was written to it.
            self.trash.add(path.to_owned());
            return Err(error);
        }
        Ok(LogWriter::new(file))
    }

    fn preallocate_log(&self, file: &Arc<dyn AppendFile>) -> Result<()> {
        // What a full memtable has in the log is less than what it takes up in memory.
        let families = self.families.load();
        let largest = families.values().map(|family| family.options.write_buffer_bytes).max().unwrap_or(0);
        let bytes = largest.min(PREALLOCATED_BYTES_MAX);
        if self.env.files.space(&self.dir)?.available / FREE_SHARE < bytes {
            return Ok(());
        }
        match file.preallocate(bytes) {
            Ok(_) => Ok(()),
            Err(error) if error.is_exhausted() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn read_only(store: &Store) -> Error {
    Error::new(ErrorKind::ReadOnly, "the store is open for reading only; open it for writing").with_path(&store.dir)
}
