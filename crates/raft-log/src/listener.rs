//! Who is told of what happens to files.

use std::fmt;
use std::sync::Arc;

use esker_format::raft::file_name::{FileId, Queue};

use crate::Moved;

/// Told of what happens to files. All methods do nothing unless they are written.
///
/// They are called by the thread that does the work, some while it keeps other writers waiting: be brief, and do not
/// call the log.
pub trait Listener: Send + Sync {
    /// A file was created, or found when the log was opened.
    fn file_created(&self, _file: FileId) {}

    /// A batch of `bytes` was written at `offset` of `file`.
    fn batch_appended(&self, _file: FileId, _offset: u64, _bytes: u64) {}

    /// A batch in `file` is visible to readers, or, in the rewrite queue, nothing that they see depends on it. Called once for each
    /// [`batch_appended`](Self::batch_appended), after it: in the rewrite queue for many at once, after a sync.
    fn batch_applied(&self, _file: FileId) {}

    /// The oldest file of `queue` that must not be purged yet, if this listener needs one.
    fn oldest_needed(&self, _queue: Queue) -> Option<u64> {
        None
    }

    /// All files of a queue up to `file` were purged.
    fn purged(&self, _file: FileId) {}

    /// Old entries of a group were moved on, since nobody compacted them.
    fn moved(&self, _moved: &Moved) {}
}

/// All who listen.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<[Arc<dyn Listener>]>);

impl Listeners {
    pub(crate) fn new(listeners: Vec<Arc<dyn Listener>>) -> Self {
        Self(listeners.into())
    }

    pub(crate) fn file_created(&self, file: FileId) {
        self.0.iter().for_each(|listener| listener.file_created(file));
    }

    pub(crate) fn batch_appended(&self, file: FileId, offset: u64, bytes: u64) {
        self.0.iter().for_each(|listener| listener.batch_appended(file, offset, bytes));
    }

    pub(crate) fn batch_applied(&self, file: FileId) {
        self.0.iter().for_each(|listener| listener.batch_applied(file));
    }

    pub(crate) fn oldest_needed(&self, queue: Queue) -> Option<u64> {
        self.0.iter().filter_map(|listener| listener.oldest_needed(queue)).min()
    }

    pub(crate) fn purged(&self, file: FileId) {
        self.0.iter().for_each(|listener| listener.purged(file));
    }

    pub(crate) fn moved(&self, moved: &Moved) {
        self.0.iter().for_each(|listener| listener.moved(moved));
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} listeners", self.0.len())
    }
}
