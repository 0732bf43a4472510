//! A second log with the content of this one, made while it is open.
//!
//! - K1: the fork holds exactly the batches that were acknowledged when it was made, all of them durable.
//! - K2: files that had ended then are shared by a second name (they never change; a file with two names is never written over); the one
//!   that was the last of its queue is copied, whatever became of it since.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::durable;

use crate::queue::LogFile;
use crate::raft_log::RaftLog;
use crate::write::closed;
use crate::{Error, Result};

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
    /// purging waits for all of it.
    ///
    /// # Errors
    /// `InvalidArgument` if there is something in `target`; what making files says: then `target` is not a log yet.
    pub fn fork(&self, target: impl AsRef<Path>) -> Result<Fork> {
        let (store, target) = (&self.store, target.as_ref());
        let files = &store.env.files;
        let mut reclaim = store.reclaim.lock();
        match files.list(target) {
            Ok(names) if !names.is_empty() => {
                return Err(Error::invalid_argument("a fork needs an empty directory").with_path(target));
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        durable::create_dir(&**files, target)?;
        let tail = reclaim.tail.as_mut().ok_or_else(closed)?;
        tail.sync()?;
        let mut parts = as_they_are(store.rewrite.files());
        // In a turn of its own: no batch is half in.
        parts.extend(store.commit.exclusive(|lead| {
            store.catch_up(lead)?;
            lead.tail.as_mut().ok_or_else(closed)?.sync()?;
            Ok::<_, Error>(as_they_are(store.append.files()))
        })?);
        let mut fork = Fork::default();
        for Part { file, len, is_last } in parts {
            let to = target.join(file.id.to_string());
            if !is_last && durable::link(&**files, &file.path, &to)? {
                fork.linked.push(to);
            } else {
                durable::copy(&**files, &file.path, &to, len, |_| Ok::<_, Error>(()))?;
                fork.copied.push(to);
            }
        }
        files.sync_dir(target)?;
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
