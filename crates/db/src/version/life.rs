//! The end of a file's life; see [`file`](super::file). Model-checked in `tests/view_model.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::reclaim::Trash;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What takes a file off the disk once it is obsolete and its last holder goes.
#[derive(Debug)]
pub(crate) struct Life {
    path: PathBuf,
    obsolete: AtomicBool,
    /// What it takes up while it is held though obsolete.
    held_bytes: AtomicU64,
    trash: Arc<Trash>,
}

impl Life {
    pub(crate) fn new(path: PathBuf, trash: Arc<Trash>) -> Self {
        Self { path, obsolete: AtomicBool::new(false), held_bytes: AtomicU64::new(0), trash }
    }

    /// The edit that drops it is durable. It takes up `bytes` as long as somebody holds it.
    pub(crate) fn mark_obsolete(&self, bytes: u64) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.trash.hold(bytes);
            self.held_bytes.store(bytes, Ordering::Release);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.trash.let_go(*self.held_bytes.get_mut());
            self.trash.add(std::mem::take(&mut self.path));
        }
    }
}
