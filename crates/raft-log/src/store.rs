//! What all parts of an open log share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use esker_env::Env;
use esker_env::os::Origin;
use esker_format::raft::closed::{Closed, QueueEnd};
use esker_format::raft::file_name::Queue as Kind;
use esker_log::commit::CommitQueue;
use esker_log::publish::Published;
use esker_log::reserve::Reserve;
use parking_lot::{Condvar, Mutex};

use crate::blocks::Blocks;
use crate::closed;
use crate::group::Groups;
use crate::listener::Listeners;
use crate::open::Recovery;
use crate::options::Options;
use crate::queue::{Queue, Rights};
use crate::reclaim::Reclaim;
use crate::stats::Counters;
use crate::write::{Lead, Request};
use crate::{Error, ErrorKind, Result};

/// An open log.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) listeners: Listeners,
    pub(crate) recovery: Recovery,
    /// What a note says that the log was when it was closed.
    pub(crate) closed: Option<Closed>,
    pub(crate) append: Queue,
    pub(crate) rewrite: Queue,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) groups: Groups,
    pub(crate) blocks: Blocks,
    pub(crate) commit: CommitQueue<Request, Lead>,
    /// How many groups of batches are in the index, of those that were written.
    pub(crate) applied: Published,
    pub(crate) reclaim: Mutex<Reclaim>,
    pub(crate) counters: Counters,
    /// Why nothing can be written any more.
    pub(crate) write_error: Mutex<Option<Error>>,
    /// Why the log could not be closed in order.
    pub(crate) close_error: OnceLock<Error>,
    /// What the log's own purging failed with last.
    pub(crate) purge_error: Mutex<Option<Error>>,
    /// Whether the log is closing, for whoever sleeps.
    pub(crate) closing: Mutex<bool>,
    pub(crate) wake: Condvar,
    /// The right to the directories, until the log is closed.
    pub(crate) rights: Mutex<Option<Arc<Rights>>>,
    /// Where it was opened. Its threads are there, and its files are that process's.
    pub(crate) origin: Origin,
}

impl Store {
    pub(crate) fn queue(&self, kind: Kind) -> &Queue {
        match kind {
            Kind::Append => &self.append,
            Kind::Rewrite => &self.rewrite,
        }
    }

    /// # Errors
    /// `Closed` in a process that was forked since it was opened.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        if self.origin.is_here() { Ok(()) } else { Err(elsewhere(&self.dir)) }
    }

    /// Ends both queues' files and gives the directories up, at the latest when those are done who read. Again is once.
    pub(crate) fn close(&self) -> Result<()> {
        *self.closing.lock() = true;
        self.wake.notify_all();
        let (tail, is_indexed) = self.commit.exclusive(|lead| {
            // If a thread panicked over it, what is written is still closed in order.
            let caught_up = self.catch_up(lead);
            (lead.tail.take(), caught_up.is_ok())
        });
        let Some(mut tail) = tail else { return self.close_error.get().map_or(Ok(()), |error| Err(error.clone())) };
        let appended = tail.finish().map(|()| tail.end());
        drop(tail);
        let rewritten = self.close_reclaim();
        let closed = appended.and_then(|append| Ok(Closed { append, rewrite: rewritten? }));
        let closed = closed.map(|Closed { append, rewrite }| {
            let first = |queue, end| if is_indexed { self.end_since_needed(queue, end) } else { end };
            Closed { append: first(&self.append, append), rewrite: first(&self.rewrite, rewrite) }
        });
        self.append.close();
        self.rewrite.close();
        self.reserve.end();
        self.blocks.forget_all();
        if let Ok(closed) = &closed
            && self.closed != Some(*closed)
        {
            // Without it, the next open tells less (N4).
            let _ = closed::write(&*self.env.files, &self.dir, closed);
        }
        self.rights.lock().take();
        closed.map(drop).inspect_err(|error| {
            self.close_error.get_or_init(|| error.clone());
        })
    }

    /// `end`, with the first file of the queue that some group needs.
    pub(crate) fn end_since_needed(&self, queue: &Queue, end: QueueEnd) -> QueueEnd {
        // An atomic group may speak of files that were given up.
        let first = self.needed(queue.kind, end.sequence).max(queue.span().0);
        QueueEnd { first, ..end }
    }
}

/// What a child is told that was forked while the log was open.
#[cold]
pub(crate) fn elsewhere(dir: &Path) -> Error {
    Error::new(ErrorKind::Closed, "the log is open in the process that this one was forked from").with_path(dir)
}
