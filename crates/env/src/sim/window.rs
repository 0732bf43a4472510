//! The window of a simulated file: what was appended, as memory.
//!
//! - W1: bytes that were appended never change until pages are evicted (D8), so a copy made when they are first asked for is as good as they
//!   are until then. Copies are kept in a list that only grows, for as long as the window lives.
//!
//! Cost: a copy for each range, and a walk of the list for each look.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::handle::Handle;
use crate::Window;

#[derive(Debug)]
pub(super) struct SimWindow {
    /// Keeps the file alive, name or no name.
    file: Handle,
    len: u64,
    /// Nothing behind it is shown; the writer's to say.
    lent_to: Arc<AtomicU64>,
    first: Link,
}

/// The way to the next copy, if there is one.
type Link = OnceLock<Box<Copied>>;

#[derive(Debug)]
struct Copied {
    start: u64,
    /// How often the file had changed when it was made.
    evictions: u64,
    bytes: Vec<u8>,
    next: Link,
}

impl SimWindow {
    /// Of the first `len` bytes of `file`, and no more than `lent_to`.
    pub(super) fn new(file: Handle, len: u64, lent_to: Arc<AtomicU64>) -> Self {
        Self { file, len, lent_to, first: Link::new() }
    }
}

impl Drop for SimWindow {
    fn drop(&mut self) {
        // One by one: a long list would take a deep stack.
        let mut next = self.first.take();
        while let Some(mut copied) = next {
            next = copied.next.take();
        }
    }
}

impl Copied {
    fn get(&self, range: &Range<u64>, evictions: u64) -> Option<&[u8]> {
        if self.evictions != evictions {
            return None;
        }
        let start = usize::try_from(range.start.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..usize::try_from(range.end.checked_sub(self.start)?).ok()?)
    }
}

impl Window for SimWindow {
    fn appended(&self, range: Range<u64>) -> Option<&[u8]> {
        let (appended, evictions) = self.file.len_and_evictions();
        let shown = self.len.min(self.lent_to.load(Ordering::Relaxed)).min(appended);
        if range.start > range.end || range.end > shown {
            return None;
        }
        let len = usize::try_from(range.end - range.start).ok()?;
        let mut link = &self.first;
        loop {
            // Whoever comes first puts its own copy there, which another may find does not fit.
            let copied = link.get_or_init(|| {
                let bytes = self.file.appended(range.start, len);
                Box::new(Copied { start: range.start, evictions, bytes, next: Link::new() })
            });
            if let Some(bytes) = copied.get(&range, evictions) {
                return Some(bytes);
            }
            link = &copied.next;
        }
    }
}
