//! Reads files in a thread of its own, ahead of whoever takes them.
//!
//! - A1: files come in the order of the tree, each once.
//! - A2: what is read and not yet dropped by its taker counts against a budget of bytes; a file larger than the budget
//!   waits until it is alone. So memory is bounded by the budget and the largest file.
//! - A3: the thread ends when the taker goes away: all that waits for a permit gets one then, and finds nobody to send to.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;

use super::tree::Tree;

/// Enough for the device to work while the store does.
const BUDGET_BYTES: u64 = 64 << 20;
/// What a file costs beside its bytes.
const FILE_BYTES: u64 = 1 << 10;
/// Longest value that a store takes.
const VALUE_BYTES_MAX: u64 = esker_format::limits::VALUE_BYTES_MAX as u64;

/// What tells whether a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// One file, or why there is none.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) index: usize,
    pub(crate) content: io::Result<Content>,
    _permit: Option<Permit>,
}

/// What is in a file, and its stamp from before that was read.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Stamp,
}

/// Begins to read all files of `tree`.
pub(crate) fn read_ahead<'scope>(scope: &'scope Scope<'scope, '_>, tree: &'scope Tree) -> Receiver<Taken> {
    let (sender, receiver) = channel();
    scope.spawn(move || read_all(tree, &sender));
    receiver
}

fn read_all(tree: &Tree, sender: &Sender<Taken>) {
    let budget = Arc::new(Budget { free: Mutex::new(BUDGET_BYTES), freed: Condvar::new() });
    for index in 0..tree.len() {
        let mut permit = None;
        let content = read(&tree.path(index), |bytes| permit = Some(budget.take(bytes)));
        if sender.send(Taken { index, content, _permit: permit }).is_err() {
            return;
        }
    }
}

/// As many bytes as the file has when it is opened: one that grows meanwhile is not chased.
fn read(path: &Path, take_permit: impl FnOnce(u64)) -> io::Result<Content> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let stamp = Stamp {
        bytes: metadata.len(),
        inode: metadata.ino(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    if !metadata.is_file() {
        return Err(io::Error::other("no longer a regular file"));
    }
    if stamp.bytes > VALUE_BYTES_MAX {
        let words = format!("has {} bytes, more than the {VALUE_BYTES_MAX} of the longest value", stamp.bytes);
        return Err(io::Error::other(words));
    }
    take_permit(stamp.bytes + FILE_BYTES);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(stamp.bytes as usize)?;
    file.take(stamp.bytes).read_to_end(&mut bytes)?;
    Ok(Content { bytes, stamp })
}

/// Bytes that may be held at once.
#[derive(Debug)]
struct Budget {
    free: Mutex<u64>,
    freed: Condvar,
}

/// Gives its bytes back when dropped.
#[derive(Debug)]
struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    fn take(self: &Arc<Self>, bytes: u64) -> Permit {
        let bytes = bytes.min(BUDGET_BYTES);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free < bytes {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= bytes;
        Permit { budget: self.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.budget.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.freed.notify_one();
    }
}
