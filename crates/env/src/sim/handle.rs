//! Open files and locks of the simulated disk. A handle keeps its file alive, name or no name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::Shared;
use super::disk::Disk;
use super::names::Inode;
use crate::{Access, AppendFile, Error, Lock, Mapping, ReadFile, Result, Window};

/// An open file; both kinds of handle are one.
pub(super) struct Handle {
    shared: Arc<Shared>,
    inode: Inode,
    path: PathBuf,
}

impl Handle {
    /// `disk` is that of `shared`, locked.
    pub(super) fn new(shared: &Arc<Shared>, disk: &mut Disk, inode: Inode, path: &Path) -> Self {
        disk.hold(inode);
        Self { shared: Arc::clone(shared), inode, path: path.to_owned() }
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
        let answer = disk.append(self.inode, &self.path, parts);
        answer.map_err(|errno| self.error("appending to", errno).at(disk.len(self.inode)))
    }

    fn sync(&self) -> Result<()> {
        let answer = self.shared.disk.lock().sync(self.inode, &self.path);
        answer.map_err(|errno| self.error("syncing", errno))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let answer = self.shared.disk.lock().truncate(self.inode, &self.path, len);
        answer.map_err(|errno| self.error("truncating", errno))
    }

    fn preallocate(&self, len: u64) -> Result<bool> {
        let answer = self.shared.disk.lock().preallocate(self.inode, &self.path, len);
        answer.map_err(|errno| self.error("preallocating", errno).at(len))?;
        Ok(true)
    }

    fn seal(&self) -> Result<()> {
        let answer = self.shared.disk.lock().seal(self.inode, &self.path);
        answer.map_err(|errno| self.error("sealing", errno))
    }

    fn window(&self) -> Result<Option<Arc<dyn Window>>> {
        Ok(None)
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
