//! A second log with the content of this one, made while it is open.
//!
//! - K1: the fork holds exactly the batches that were acknowledged when it was made, all of them durable.
//! - K2: files that had ended then are shared by a second name (they never change; a file with two names is never written over); the one
//!   that was the last of its queue is copied, whatever became of it since.
//! - K3: it has the note of a log that was closed (`closed.rs`): an end of it that is torn later, or a file that is not there, is damage.
//! - K4: until all of it is durable, the directory says that it is unfinished ([`Place`]): it is refused, but by the next fork into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::durable;
use esker_format::raft::closed::{Closed, NAME};
use esker_log::copying::Place;

use crate::closed;
use crate::queue::LogFile;
use crate::raft_log::RaftLog;
use crate::reclaim::Reclaim;
use crate::store::Store;
use crate::write::closed as was_closed;
use crate::{Error, Result};

/// No file of a log makes a directory one.
const NO_ROOT: &str = "";

/// What a fork is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fork {
    /// Files that both share.
    pub linked: Vec<PathBuf>,
    /// Files of its own.
    pub copied: Vec<PathBuf>,
}

impl RaftLog {
    /// Makes a log in `target`, an empty directory or none, with all that was written so far. Writers wait for one sync;
    /// purging waits for all of it. What an earlier fork left in `target` that was not finished goes first.
    ///
    /// # Errors
    /// `InvalidArgument` if there is something else in `target`, `Busy` if it is in use; what making files says: then `target` is not a log yet.
    pub fn fork(&self, target: impl AsRef<Path>) -> Result<Fork> {
        let (store, target) = (&self.store, target.as_ref());
        store.check_here()?;
        let mut reclaim = store.reclaim.lock();
        reclaim.tail()?;
        let mut place = Place::take(&*store.env.files, target)?;
        let begun = place.begin_empty(NO_ROOT).map_err(|error| error.while_doing("a fork needs an empty directory"));
        match begun.and_then(|()| store.copy_to(&mut place, &mut reclaim)) {
            Ok(fork) => {
                // From here on it is whole, whether or not it says so.
                place.finish()?;
                Ok(fork)
            }
            Err(error) => {
                // What is left is told apart by its mark.
                let _ = place.abandon();
                Err(error)
            }
        }
    }
}

impl Store {
    /// Makes what is in `place` the log as it is now, durably.
    fn copy_to(&self, place: &mut Place<'_>, reclaim: &mut Reclaim) -> Result<Fork> {
        let files = &*self.env.files;
        reclaim.tail()?.sync()?;
        let rewrite_end = reclaim.tail()?.end();
        let mut parts = as_they_are(self.rewrite.files());
        // In a turn of its own: no batch is half in.
        let (appended, note) = self.commit.exclusive(|lead| {
            self.catch_up(lead)?;
            let tail = lead.tail.as_mut().ok_or_else(was_closed)?;
            tail.sync()?;
            let note = Closed {
                append: self.end_since_needed(&self.append, tail.end()),
                rewrite: self.end_since_needed(&self.rewrite, rewrite_end),
            };
            Ok::<_, Error>((as_they_are(self.append.files()), note))
        })?;
        parts.extend(appended);
        let mut fork = Fork::default();
        for Part { file, len, is_last } in parts {
            let to = place.begin(&file.id.to_string())?;
            if !is_last && durable::link(files, &file.path, &to)? {
                fork.linked.push(to);
            } else {
                durable::copy(files, &file.path, &to, len, |_| Ok::<_, Error>(()))?;
                fork.copied.push(to);
            }
        }
        files.sync_dir(place.dir())?;
        place.begin(NAME)?;
        // Without it, the next open tells less.
        let _ = closed::write(files, place.dir(), &note);
        Ok(fork)
    }
}

/// A file as it was when the fork was made.
struct Part {
    file: Arc<LogFile>,
    len: u64,
    is_last: bool,
}

/// The files of a queue, oldest first.
fn as_they_are(files: Vec<Arc<LogFile>>) -> Vec<Part> {
    let last = files.last().map(|file| file.id);
    let part = |file: Arc<LogFile>| Part { len: file.len(), is_last: Some(file.id) == last, file };
    files.into_iter().map(part).collect()
}
