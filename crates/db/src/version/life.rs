//! The end of a file's life; see [`file`](super::file). Model-checked in `tests/view_model.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::reclaim::Trash;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What takes a file off the disk once it is obsolete and its last holder goes.
#[derive(Debug)]
pub(crate) struct Life {
    path: PathBuf,
    obsolete: AtomicBool,
    trash: Arc<Trash>,
}

impl Life {
    pub(crate) fn new(path: PathBuf, trash: Arc<Trash>) -> Self {
        Self { path, obsolete: AtomicBool::new(false), trash }
    }

    /// The edit that drops it is durable.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.trash.add(std::mem::take(&mut self.path));
        }
    }
}
