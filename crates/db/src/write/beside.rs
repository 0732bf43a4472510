//! Makes values durable on a thread of its own, while the leader syncs the log that points to them.
//!
//! - B1: whoever has begun a sync waits for its end before anything else is done with the log: nobody is told of one without the other.
//! - B2: what became of a sync whose thread is gone nobody knows: it failed.
//!
//! Cost: a thread from the first such sync on; for each, two wake-ups in place of the wait for one file before the other.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use esker_env::{Env, Thread};

use crate::blob::BlobSync;
use crate::{Error, ErrorKind, Result};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Beside {
    /// `None` once nothing more comes.
    queue: Option<SyncSender<Vec<BlobSync>>>,
    results: Receiver<Result<()>>,
    thread: Box<dyn Thread>,
}

impl Beside {
    /// # Errors
    /// The system had no thread to give.
    pub(super) fn start(env: &Env) -> Result<Self> {
        let (queue, syncs) = sync_channel::<Vec<BlobSync>>(1);
        let (tell, results) = sync_channel(1);
        let work = move || {
            for files in syncs {
                if tell.send(files.iter().try_for_each(BlobSync::run)).is_err() {
                    return;
                }
            }
        };
        let thread = env.threads.spawn("esker-values", Box::new(work))?;
        Ok(Self { queue: Some(queue), results, thread })
    }

    /// Syncs `values` while `work` goes on (B1).
    ///
    /// # Errors
    /// `ReadOnly`: which of the values are durable is unknown.
    pub(super) fn sync<T>(&self, values: Vec<BlobSync>, work: impl FnOnce() -> T) -> (Result<()>, T) {
        let is_begun = self.queue.as_ref().is_some_and(|queue| queue.send(values).is_ok());
        let done = work();
        let synced = if is_begun { self.results.recv().unwrap_or_else(|_| Err(gone())) } else { Err(gone()) };
        (synced, done)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.queue = None;
        self.thread.join();
    }
}

#[cold]
fn gone() -> Error {
    let reason = "the thread that syncs blob files is gone, so what is durable is unknown; reopen to go on";
    Error::new(ErrorKind::ReadOnly, reason)
}
