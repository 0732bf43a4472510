//! The file that a queue is written to: who holds it is its only writer.

use std::sync::Arc;

use esker_env::{AppendFile, FileSystem};
use esker_log::distrust;

use super::LogFile;
use crate::{Error, ErrorKind, Result};

/// The last file of a queue, open for appending.
#[derive(Debug)]
pub(crate) struct Tail {
    files: Arc<dyn FileSystem>,
    pub(crate) file: Arc<LogFile>,
    pub(super) append: Arc<dyn AppendFile>,
    /// Whether something was appended since the last sync.
    pub(super) unsynced: bool,
    /// Why nothing may be written any more: what is durable is unknown.
    pub(super) broken: Option<Error>,
}

impl Tail {
    pub(crate) fn new(files: Arc<dyn FileSystem>, file: Arc<LogFile>, append: Arc<dyn AppendFile>) -> Self {
        Self { files, file, append, unsynced: false, broken: None }
    }

    /// Refuses to write where an earlier failure left something unknown.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn broke(&mut self, doing: &str, error: esker_env::Error) -> Error {
        if let Some(dir) = self.append.path().parent() {
            // Should that fail too, the error that is told is the worse one.
            let _ = distrust::warn(&*self.files, dir);
        }
        let error = Error::from(error).while_doing(doing).with_kind(ErrorKind::ReadOnly);
        self.broken = Some(error.clone());
        error
    }

    /// Adds `parts` at the end; readers see them when this returns. A failure leaves the file as it was.
    ///
    /// # Errors
    /// `Exhausted` if the disk is full; `ReadOnly` if part of it could not be taken back.
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.check()?;
        let before = self.append.len();
        if let Err(error) = self.append.append(parts) {
            if self.append.len() != before
                && let Err(worse) = self.append.truncate(before)
            {
                return Err(self.broke("taking back what a failed append left", worse));
            }
            return Err(error.into());
        }
        self.unsynced = true;
        self.file.set_len(self.append.len());
        Ok(before)
    }

    /// Makes all that was appended survive power loss.
    ///
    /// # Errors
    /// `ReadOnly`, from now on: what is durable is unknown, and asking again would not tell.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.check()?;
        if self.unsynced {
            if let Err(error) = self.append.sync() {
                return Err(self.broke("a sync failed, so what is durable is unknown; reopen to go on", error));
            }
            self.unsynced = false;
        }
        Ok(())
    }

    /// Ends the file at its last batch, durably. Appending on is possible, but costs a system call each.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.check()?;
        self.append.seal()?;
        self.unsynced = true;
        self.sync()
    }
}
