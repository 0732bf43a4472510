//! A file as read-only memory.
//!
//! - M1: only sealed files are mapped. Esker never writes to them again but for punching holes in what nobody reads.
//! - M2: should a stranger truncate such a file, touching the lost pages is a `SIGBUS` that ends the process, as
//!   for every program that maps files. The directory's lock is what keeps well-behaved strangers away.
//! - M3: the mapping outlives the handle and the name: both may go while readers stay.

#![expect(unsafe_code, reason = "mapping memory is outside of what the compiler can check")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::{Access, Mapping};

/// `len` bytes of a file, mapped read-only until dropped.
#[derive(Debug)]
pub(super) struct OsMapping {
    /// Dangling if `len` is zero: the system maps no empty range.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are read-only and belong to the process, not to a thread; only the one owner unmaps them.
unsafe impl Send for OsMapping {}
// SAFETY: shared access only reads.
unsafe impl Sync for OsMapping {}

impl OsMapping {
    /// Maps the first `len` bytes, which must be the length of `file`.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { start: NonNull::dangling(), len });
        }
        // SAFETY: the kernel chooses a free range, so no memory of ours is replaced.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Mapping for OsMapping {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is `len` mapped, readable bytes until drop (or dangling with `len` zero); by M1 nobody
        // changes the bytes that are read.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn advise(&self, access: Access) {
        let advice = match access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        if self.len > 0 {
            // A hint: reads work without it.
            // SAFETY: the range is mapped until drop, and the advice changes no byte of it.
            let _ = unsafe { madvise(self.start.as_ptr().cast::<c_void>(), self.len, advice) };
        }
    }
}

impl Drop for OsMapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this range came from `mmap`, and `bytes` lends it for no longer than `self` lives.
            let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
            debug_assert!(unmapped.is_ok(), "a range from mmap can be unmapped");
        }
    }
}
