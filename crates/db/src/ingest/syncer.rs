//! Syncs files on a thread of its own, while others are written, or while the same one goes on.
//!
//! - Y1: the first failure is kept, and everybody who comes later gets it: no file of a set is whole once one is not.
//! - Y2: at most [`WAITING_MAX`] files wait: whoever writes faster than the device waits for it here, and not at the end for
//!   everything at once.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esker_env::{AppendFile, Env, Thread};
use parking_lot::Mutex;

use crate::{Error, ErrorKind, Result};

/// See Y2.
const WAITING_MAX: usize = 2;

/// See the module's head.
pub(crate) struct Syncer {
    /// `None` once nothing more comes.
    queue: Option<SyncSender<Arc<dyn AppendFile>>>,
    thread: Box<dyn Thread>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Syncer {
    /// # Errors
    /// The system had no thread to give.
    pub(crate) fn start(env: &Env) -> Result<Self> {
        let (queue, files) = sync_channel(WAITING_MAX);
        let failure = Arc::default();
        let told = Arc::clone(&failure);
        let thread = env.threads.spawn("esker-sync", Box::new(move || sync_all(&files, &told)))?;
        Ok(Self { queue: Some(queue), thread, failure })
    }

    /// Has `file` synced.
    ///
    /// # Errors
    /// Why an earlier one could not be.
    pub(crate) fn sync(&self, file: Arc<dyn AppendFile>) -> Result<()> {
        if let Some(queue) = &self.queue
            && queue.send(file).is_ok()
        {
            return self.told();
        }
        // The thread has ended, which it does after a failure.
        self.told().and(Err(ended()))
    }

    fn told(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Waits until all files are synced.
    ///
    /// # Errors
    /// Why one could not be.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.queue = None;
        let joined = self.thread.join();
        self.told()?;
        if joined { Ok(()) } else { Err(ended()) }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Io, "the thread that syncs files ended by a panic; report it")
}

fn sync_all(files: &Receiver<Arc<dyn AppendFile>>, failure: &Mutex<Option<Error>>) {
    for file in files {
        if let Err(error) = file.sync() {
            *failure.lock() = Some(error.into());
            return;
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.queue = None;
        self.thread.join();
    }
}

impl fmt::Debug for Syncer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Syncer").finish_non_exhaustive()
    }
}
