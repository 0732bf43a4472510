//! Open files and locks of the simulated disk. A handle keeps its file alive, name or no name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use super::Shared;
use super::disk::Disk;
use super::names::Inode;
use super::window::SimWindow;
use crate::{Access, AppendFile, Error, Lock, Mapping, ReadFile, Result, Window};

/// An open file; both kinds of handle are one.
pub(super) struct Handle {
    shared: Arc<Shared>,
    inode: Inode,
    path: PathBuf,
    /// How much of it is mapped; 0 if nothing is, as where there are no windows.
    mapped_bytes: AtomicU64,
    /// How much of what is appended windows show; 0 if there are none.
    lent_to: Arc<AtomicU64>,
    /// Zeroes follow every append.
    is_padded: AtomicBool,
}

impl Handle {
    /// `disk` is that of `shared`, locked.
    pub(super) fn new(shared: &Arc<Shared>, disk: &mut Disk, inode: Inode, path: &Path) -> Self {
        disk.hold(inode);
        let (mapped_bytes, lent_to) = (AtomicU64::new(0), Arc::default());
        Self {
            shared: Arc::clone(shared),
            inode,
            path: path.to_owned(),
            mapped_bytes,
            lent_to,
            is_padded: AtomicBool::new(false),
        }
    }

    /// How much was appended, and how often that has changed since.
    pub(super) fn len_and_evictions(&self) -> (u64, u64) {
        let disk = self.shared.disk.lock();
        disk.tree.file(self.inode).map_or((0, 0), |file| (file.content.len(), file.content.evictions()))
    }

    /// Bytes that were appended, by copying them out of the memory of the machine.
    pub(super) fn appended(&self, start: u64, len: usize) -> Vec<u8> {
        let disk = self.shared.disk.lock();
        let mut bytes = vec![0; len];
        if let Ok(file) = disk.tree.file(self.inode) {
            file.content.read(start, &mut bytes);
        }
        bytes
    }

    /// Windows go on to show what was appended so far, `len` bytes, and nothing else.
    fn unmap(&self, len: u64) {
        self.mapped_bytes.store(0, Ordering::Relaxed);
        self.lent_to.fetch_min(len, Ordering::Relaxed);
    }

    fn error(&self, doing: &'static str, errno: Errno) -> Error {
        Error::new(doing, &self.path, io::Error::from(errno))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.disk.lock().release(self.inode);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.path.display())
    }
}

impl ReadFile for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        let mut disk = self.shared.disk.lock();
        let content = disk.read(self.inode).map_err(|errno| self.error("measuring", errno))?;
        Ok(content.file_len())
    }

    fn identity(&self) -> Result<(u64, u64)> {
        let mut disk = self.shared.disk.lock();
        disk.identity(self.inode).map_err(|errno| self.error("looking at", errno))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut disk = self.shared.disk.lock();
        let content = disk.read(self.inode).map_err(|errno| self.error("reading", errno).at(offset))?;
        let count = content.read(offset, buffer);
        disk.schedule.rot(buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }

    fn map(&self) -> Result<Option<Arc<dyn Mapping>>> {
        let mut disk = self.shared.disk.lock();
        let content = disk.read(self.inode).map_err(|errno| self.error("mapping", errno))?;
        let mut bytes = content.to_vec();
        disk.schedule.rot(&mut bytes);
        Ok(Some(Arc::new(Copied(bytes))))
    }

    fn advise(&self, _: Access) {}
}

impl AppendFile for Handle {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.shared.disk.lock().len(self.inode)
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let mut disk = self.shared.disk.lock();
        let is_mapped = self.mapped_bytes.load(Ordering::Relaxed) > 0;
        let is_padded = self.is_padded.load(Ordering::Relaxed);
        let answer = disk.append(self.inode, &self.path, parts, is_mapped, is_padded);
        answer.map_err(|errno| self.error("appending to", errno).at(disk.len(self.inode)))?;
        if is_padded {
            disk.pad(self.inode);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let answer = self.shared.disk.lock().sync(self.inode, &self.path);
        answer.map_err(|errno| self.error("syncing", errno))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut disk = self.shared.disk.lock();
        let now = disk.len(self.inode);
        if len < self.lent_to.load(Ordering::Relaxed).min(now) {
            return Err(self.error("truncating", Errno::INVAL));
        }
        disk.truncate(self.inode, &self.path, len).map_err(|errno| self.error("truncating", errno))?;
        self.unmap(now);
        Ok(())
    }

    fn preallocate(&self, len: u64) -> Result<bool> {
        let mut disk = self.shared.disk.lock();
        let answer = disk.preallocate(self.inode, &self.path, len);
        answer.map_err(|errno| self.error("preallocating", errno).at(len))?;
        if disk.has_windows {
            self.mapped_bytes.fetch_max(len, Ordering::Relaxed);
        }
        Ok(true)
    }

    fn pad(&self) {
        self.is_padded.store(true, Ordering::Relaxed);
    }

    fn seal(&self) -> Result<()> {
        let mut disk = self.shared.disk.lock();
        disk.seal(self.inode, &self.path).map_err(|errno| self.error("sealing", errno))?;
        self.unmap(disk.len(self.inode));
        self.is_padded.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn window(&self) -> Result<Option<Arc<dyn Window>>> {
        let len = self.mapped_bytes.load(Ordering::Relaxed);
        if len == 0 {
            return Ok(None);
        }
        self.lent_to.store(u64::MAX, Ordering::Relaxed);
        let file = Self::new(&self.shared, &mut self.shared.disk.lock(), self.inode, &self.path);
        Ok(Some(Arc::new(SimWindow::new(file, len, Arc::clone(&self.lent_to)))))
    }
}

/// What the file held when it was mapped.
#[derive(Debug)]
struct Copied(Vec<u8>);

impl Mapping for Copied {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A locked file or directory, or a share of one; given up when dropped.
pub(super) struct SimLock {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: Inode,
    pub(super) is_share: bool,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.shared.disk.lock();
        if self.is_share { disk.unshare(self.inode) } else { disk.unlock(self.inode) }
    }
}

impl std::fmt::Debug for SimLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimLock({})", self.inode)
    }
}
