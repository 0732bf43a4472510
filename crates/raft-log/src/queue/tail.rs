//! The file that a queue is written to: who holds it is its only writer.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use esker_env::{AppendFile, FileSystem};
use esker_format::raft::closed::QueueEnd;
use esker_log::distrust;
use esker_log::reserve::Reserve;

use super::LogFile;
use crate::{Error, ErrorKind, Result};

/// The last file of a queue, open for appending.
#[derive(Debug)]
pub(crate) struct Tail {
    files: Arc<dyn FileSystem>,
    pub(crate) file: Arc<LogFile>,
    pub(super) append: Arc<dyn AppendFile>,
    /// What was preallocated of it; 0 if nothing was.
    room: u64,
    /// Whether something was appended since the last sync.
    pub(super) unsynced: bool,
    /// Where something of files that could not be begun may be. A successor goes before anything is appended.
    pub(super) left: Vec<Left>,
    /// Why nothing may be written any more: what is durable is unknown.
    broken: Arc<OnceLock<Error>>,
}

/// What there may be of a file that could not be begun.
#[derive(Debug)]
pub(crate) struct Left {
    pub(super) sequence: u64,
    pub(super) path: PathBuf,
    /// Which of the log's directories it lies in.
    pub(super) dir: usize,
    /// It has no header: beside a file with its number in the other directory it is nothing, as the next open knows.
    pub(super) is_void: bool,
}

/// A sync of what was appended so far, for another thread than the writer.
#[derive(Debug)]
pub(crate) struct Sync {
    files: Arc<dyn FileSystem>,
    file: Arc<LogFile>,
    append: Arc<dyn AppendFile>,
    broken: Arc<OnceLock<Error>>,
}

impl Sync {
    /// Makes what was appended when it was begun survive power loss. No other sync of the file may run beside it.
    ///
    /// # Errors
    /// `ReadOnly`, from now on: what is durable is unknown, and asking again would not tell.
    pub(crate) fn run(&self) -> Result<()> {
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        self.append.sync().map_err(|error| {
            broke(
                &*self.files,
                &self.file,
                &self.broken,
                "a sync failed, so what is durable is unknown; reopen to go on",
                error,
            )
        })
    }
}

fn warn(files: &dyn FileSystem, file: &LogFile) {
    if let Some(dir) = file.path.parent() {
        // Should that fail too, the error that is told is the worse one.
        let _ = distrust::warn(files, dir);
    }
}

fn broke(
    files: &dyn FileSystem,
    file: &LogFile,
    broken: &OnceLock<Error>,
    doing: &str,
    error: esker_env::Error,
) -> Error {
    file.doubt();
    warn(files, file);
    let error = Error::from(error).while_doing(doing).with_kind(ErrorKind::ReadOnly);
    broken.get_or_init(|| error).clone()
}

impl Tail {
    /// `room` bytes of it were preallocated.
    pub(crate) fn new(files: Arc<dyn FileSystem>, file: Arc<LogFile>, append: Arc<dyn AppendFile>, room: u64) -> Self {
        Self { files, file, append, room, unsynced: false, left: Vec::new(), broken: Arc::default() }
    }

    /// Refuses to write where an earlier failure left something unknown.
    pub(crate) fn check(&self) -> Result<()> {
        match self.broken.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn broke(&mut self, doing: &str, error: esker_env::Error) -> Error {
        broke(&*self.files, &self.file, &self.broken, doing, error)
    }

    /// Sees to it that the `reserve` is whole: of the blocks that the file has ahead, if there are no others.
    ///
    /// # Errors
    /// As [`Reserve::restore`] and [`finish`](Self::finish).
    pub(crate) fn keep(&mut self, reserve: &Reserve) -> Result<()> {
        match reserve.restore() {
            Err(error) if error.wants_room() && self.room > self.append.len() => {
                self.finish()?;
                reserve.restore()
            }
            done => done,
        }
    }

    /// Adds `parts` at the end; readers see them when this returns. A failure leaves the file as it was.
    ///
    /// # Errors
    /// `Exhausted` if the disk is full; `ReadOnly` if part of it could not be taken back.
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.check()?;
        let before = self.append.len();
        if let Err(error) = self.append.append(parts) {
            // Where it is mapped, what got in lies behind the end, and may be whole batches, which the next open would replay.
            if let Err(worse) = self.append.truncate(before) {
                return Err(self.broke("taking back what a failed append left", worse));
            }
            if self.room > before {
                // What cannot be had is not there for who appends either.
                let _ = self.append.preallocate(self.room);
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
        match self.begin_sync() {
            Some(sync) => sync.run(),
            None => Ok(()),
        }
    }

    /// A sync of what was appended since the last one was begun; `None` if nothing was. Whoever begins it runs it.
    pub(crate) fn begin_sync(&mut self) -> Option<Sync> {
        std::mem::take(&mut self.unsynced).then(|| Sync {
            files: Arc::clone(&self.files),
            file: Arc::clone(&self.file),
            append: Arc::clone(&self.append),
            broken: Arc::clone(&self.broken),
        })
    }

    /// Whether the next file may be begun in this directory, whatever is left.
    pub(super) fn lets_begin_in(&self, dir: usize) -> bool {
        self.left.iter().all(|left| left.is_void && left.dir != dir)
    }

    /// Whether something may be left of a successor.
    pub(crate) fn has_successor(&self) -> bool {
        self.left.iter().any(|left| left.sequence > self.file.id.sequence)
    }

    /// Where the file ends; it is spoken of alone.
    pub(crate) fn end(&self) -> QueueEnd {
        let sequence = self.file.id.sequence;
        QueueEnd { first: sequence, sequence, bytes: self.file.len() }
    }

    /// Ends the file at its last batch, durably. Appending on is possible, but costs a system call each.
    pub(crate) fn finish(&mut self) -> Result<()> {
        // The last moment for a warning that could not be given then.
        self.check().inspect_err(|_| warn(&*self.files, &self.file))?;
        self.append.seal()?;
        self.room = 0;
        self.unsynced = true;
        self.sync()
    }
}
