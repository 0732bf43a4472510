//! Appending.
//!
//! Cost: one `pwrite` (one part) or `pwritev` (up to [`IOVEC_MAX`] parts) for an append; no allocation up to
//! [`PARTS_ON_STACK`] parts.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{AppendFile, Error, Result};

/// Parts in one system call: `UIO_MAXIOV` of Linux, and not less elsewhere.
const IOVEC_MAX: usize = 1024;
/// Parts that need no allocation: a log record is a header and a payload, a group commit a few of them.
const PARTS_ON_STACK: usize = 16;

/// A file open for appending.
#[derive(Debug)]
pub(super) struct OsAppendFile {
    file: File,
    path: PathBuf,
    /// Where the next byte goes. Changed only under `tail`, read without.
    len: AtomicU64,
    /// Whoever moves the end of the file.
    tail: Mutex<()>,
    /// Whether preallocated blocks are those that will be written to; asked once.
    reserves: OnceLock<bool>,
}

impl OsAppendFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Self::new(file, path, 0))
    }

    pub(super) fn reopen(path: &Path, len: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let found = file.metadata()?.len();
        if len > found {
            let reason = format!("cannot append at byte {len} of a file of {found}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        if len < found {
            file.set_len(len)?;
        }
        Ok(Self::new(file, path, len))
    }

    fn new(file: File, path: &Path, len: u64) -> Self {
        Self { file, path: path.to_owned(), len: AtomicU64::new(len), tail: Mutex::new(()), reserves: OnceLock::new() }
    }

    fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::new(doing, &self.path, source)
    }

    /// Writes `slices` at the end, moving the end with every byte that the system has taken.
    fn write_all(&self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let place = self.len.load(Ordering::Relaxed);
            let batch = slices.get(..IOVEC_MAX).unwrap_or(slices);
            match rustix::io::pwritev(&self.file, batch, place) {
                Ok(0) => return Err(self.error("appending to", io::ErrorKind::WriteZero.into()).at(place)),
                Ok(count) => {
                    self.len.store(place.saturating_add(count as u64), Ordering::Release);
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.error("appending to", error.into()).at(place)),
            }
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn reserve(&self, from: u64, len: u64) -> io::Result<bool> {
        use rustix::fs::{FallocateFlags, fallocate};
        if !*self.reserves.get_or_init(|| !is_copy_on_write(&self.file)) {
            return Ok(false);
        }
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(*self.reserves.get_or_init(|| false))
    }
}

impl AppendFile for OsAppendFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let _tail = self.tail.lock();
        let mut on_stack = [IoSlice::new(&[]); PARTS_ON_STACK];
        if let Some(slices) = on_stack.get_mut(..parts.len()) {
            for (slice, part) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(part);
            }
            return self.write_all(slices);
        }
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.write_all(&mut slices)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| self.error("syncing", source))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let _tail = self.tail.lock();
        let now = self.len.load(Ordering::Relaxed);
        if len > now {
            let reason = format!("cannot cut a file of {now} bytes to {len}");
            return Err(self.error("truncating", io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        self.file.set_len(len).map_err(|source| self.error("truncating", source))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn preallocate(&self, len: u64) -> Result<bool> {
        let now = self.len();
        // At least one byte is asked for, so that the answer is the file system's even when nothing is missing.
        let (from, count) = if len > now { (now, len - now) } else { (now.saturating_sub(1), 1) };
        self.reserve(from, count).map_err(|source| self.error("preallocating", source).at(len))
    }
}

/// Whether every write goes to new blocks, so that blocks reserved beforehand guarantee nothing.
#[cfg(target_os = "linux")]
fn is_copy_on_write(file: &File) -> bool {
    // `f_type` of statfs(2); zfs and bcachefs from their own sources.
    const BTRFS: u32 = 0x9123_683e;
    const ZFS: u32 = 0x2fc1_2fc1;
    const BCACHEFS: u32 = 0xca45_1a4e;
    const NILFS: u32 = 0x0000_3434;
    // The magic numbers have 32 bits, whatever width and sign the field has on this architecture.
    rustix::fs::fstatfs(file).is_ok_and(|found| matches!(found.f_type as u32, BTRFS | ZFS | BCACHEFS | NILFS))
}
