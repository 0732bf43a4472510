//! A second log with the content of this one, made while it is open.
//!
//! - K1: the fork holds exactly the batches that were acknowledged when it was made, all of them durable.
//! - K2: sealed files are shared by a second name (they never change; a file with two names is never written over), the
//!   last file of each queue is copied.

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
        let mut parts: Vec<(Arc<LogFile>, u64)> = with_lengths(store.rewrite.files());
        // In a turn of its own: no batch is half in.
        parts.extend(store.commit.exclusive(|lead| {
            store.catch_up(lead)?;
            lead.tail.as_mut().ok_or_else(closed)?.sync()?;
            Ok::<_, Error>(with_lengths(store.append.files()))
        })?);
        let mut fork = Fork::default();
        for (file, len) in parts {
            let to = target.join(file.id.to_string());
            let last = store.queue(file.id.queue).span().1;
            if file.is_sealed() && file.id.sequence < last && durable::link(&**files, &file.path, &to)? {
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

fn with_lengths(files: Vec<Arc<LogFile>>) -> Vec<(Arc<LogFile>, u64)> {
    files.into_iter().map(|file| (Arc::clone(&file), file.len())).collect()
}
