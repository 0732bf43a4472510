//! A data file that is being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::AppendFile;
use esker_format::cask::record::FIRST_OFFSET;
use parking_lot::Mutex;

use super::DataFile;
use crate::{Error, ErrorKind, Result};

/// The writing end of a data file.
///
/// - A1: syncs are grouped by waiting for each other: whoever comes while one runs finds, once it is over, that a single one
///   more covers all who waited.
/// - A2: a failed sync is never repeated: what it should have made durable may be gone, and the next one would not say so.
#[derive(Debug)]
pub(crate) struct ActiveFile {
    pub(crate) data: Arc<DataFile>,
    file: Arc<dyn AppendFile>,
    /// How long it shall get.
    pub(crate) room: u64,
    /// How much of it is durable.
    synced: AtomicU64,
    syncing: Mutex<SyncState>,
    /// Whether its writer asked already for the file that follows it.
    pub(crate) asked_for_next: AtomicBool,
}

#[derive(Debug, Default)]
struct SyncState {
    failed: bool,
}

impl ActiveFile {
    /// `synced` bytes of it are durable.
    pub(crate) fn new(data: Arc<DataFile>, file: Arc<dyn AppendFile>, room: u64, synced: u64) -> Self {
        let (synced, syncing, asked_for_next) = (AtomicU64::new(synced), Mutex::default(), AtomicBool::new(false));
        Self { data, file, room, synced, syncing, asked_for_next }
    }

    /// Whether there is room for `bytes` more: in a file that has nothing yet, for a record of any size.
    #[inline]
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        let end = self.data.end();
        end.saturating_add(bytes) <= self.room || end == FIRST_OFFSET
    }

    /// Whether it is filling up: three quarters are written.
    #[inline]
    pub(crate) fn is_filling_up(&self) -> bool {
        self.data.end() / 3 > self.room / 4
    }

    /// Adds `parts` behind the last record; the caller moves the end. Returns where they begin.
    ///
    /// # Errors
    /// What the system said; the flag says whether the file is as before and may be appended to again.
    #[inline]
    pub(crate) fn append(&self, parts: &[&[u8]]) -> std::result::Result<u64, (Error, bool)> {
        let offset = self.data.end();
        match self.file.append(parts) {
            Ok(()) => Ok(offset),
            Err(error) => {
                // A part of it may lie behind the end, where what comes next would not cover it: after a death it would pass for damage.
                let as_before = self.file.truncate(offset).is_ok();
                // What cannot be had is not there for who appends either.
                let _ = self.file.preallocate(self.room);
                Err((error.into(), as_before))
            }
        }
    }

    /// How many of its bytes are durable, for all that is known.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Makes the first `wanted` bytes survive power loss. Whether that took a sync.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown.
    pub(crate) fn sync_to(&self, wanted: u64) -> Result<bool> {
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(false);
        }
        let mut state = self.syncing.lock();
        if self.synced.load(Ordering::Acquire) >= wanted {
            return Ok(false);
        }
        if state.failed {
            return Err(self.unknown("an earlier sync failed"));
        }
        // Everything that was appended by now, not only what the caller needs (A1).
        let end = self.data.end();
        if let Err(error) = self.file.sync() {
            state.failed = true;
            return Err(self.unknown(&error.to_string()).with_source(error));
        }
        self.synced.fetch_max(end, Ordering::AcqRel);
        Ok(true)
    }

    /// Makes all of it survive power loss.
    ///
    /// # Errors
    /// As [`sync_to`](Self::sync_to).
    pub(crate) fn sync(&self) -> Result<bool> {
        self.sync_to(self.data.end())
    }

    /// Ends the file, for good, and makes all of it survive power loss.
    ///
    /// # Errors
    /// `ReadOnly` if a sync failed; else the file may still be longer, and can be ended again.
    pub(crate) fn finish(&self) -> Result<bool> {
        self.end()?;
        self.sync()
    }

    /// Ends the file behind its last record.
    ///
    /// # Errors
    /// What the system said: the file may still be longer.
    pub(crate) fn end(&self) -> Result<()> {
        let end = self.data.end();
        // An append failed, and what it left could not be cut off then: to an open it may pass for damage, or for a record.
        if self.file.len() > end {
            self.file.truncate(end)?;
        }
        Ok(self.file.seal()?)
    }

    fn unknown(&self, why: &str) -> Error {
        let reason = format!("a sync failed, so what is durable is unknown; reopen to go on: {why}");
        Error::new(ErrorKind::ReadOnly, reason).with_path(&self.data.path)
    }
}
