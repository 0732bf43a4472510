//! The simulated disk as a [`FileSystem`].

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::SimDisk;
use super::disk::Disk;
use super::handle::{Handle, SimLock};
use super::names::Inode;
use crate::{AppendFile, DirEntry, Error, FileSystem, Lock, Metadata, ReadFile, Result, Space};

/// What `doing` something to `path` failed with, in the words of the system.
fn failed(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::new(doing, path, io::Error::from(errno))
}

impl SimDisk {
    /// A handle to the file that `open` finds, without a moment in between for somebody to take its last name.
    fn handle(
        &self,
        path: &Path,
        open: impl FnOnce(&mut Disk) -> std::result::Result<Inode, Errno>,
    ) -> std::result::Result<Arc<Handle>, Errno> {
        let mut disk = self.shared.disk.lock();
        let inode = open(&mut disk)?;
        Ok(Arc::new(Handle::new(&self.shared, &mut disk, inode, path)))
    }
}

impl FileSystem for SimDisk {
    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        Ok(self.handle(path, |disk| disk.create(path)).map_err(failed("creating", path))?)
    }

    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        Ok(self.handle(path, |disk| disk.reopen(path, len)).map_err(failed("reopening", path))?)
    }

    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        FileSystem::rename(self, from, to)?;
        FileSystem::sync_dir(self, to.parent().unwrap_or(Path::new("")))?;
        Ok(self.handle(to, |disk| disk.write_over(to)).map_err(failed("recycling", to))?)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        Ok(self.handle(path, |disk| disk.open(path)).map_err(failed("opening", path))?)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.shared.disk.lock().list(dir).map_err(failed("listing", dir))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.shared.disk.lock().metadata(path).map_err(failed("inspecting", path))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.shared.disk.lock().create_dir_all(dir).map_err(failed("creating", dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.disk.lock().rename(from, to).map_err(failed("renaming", from))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.disk.lock().link(from, to).map_err(failed("linking to", from))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.shared.disk.lock().remove(path).map_err(failed("removing", path))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.shared.disk.lock().remove_dir(dir).map_err(failed("removing", dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.shared.disk.lock().sync_dir(dir).map_err(failed("syncing", dir))
    }

    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()> {
        let answer = self.shared.disk.lock().punch_hole(path, &range);
        answer.map_err(|errno| failed("punching a hole into", path)(errno).at(range.start))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.shared.disk.lock().space(path).map_err(failed("measuring the space of", path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let inode = self.shared.disk.lock().lock(path).map_err(failed("locking", path))?;
        Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), inode, is_share: false }))
    }

    fn share_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        loop {
            match self.shared.disk.lock().share_dir(dir) {
                // Another thread has it, for as long as a few calls take.
                Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(failed("sharing", dir)(errno)),
                Ok(inode) => {
                    return Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), inode, is_share: true }));
                }
            }
            std::thread::yield_now();
        }
    }

    fn claim_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        let inode = self.shared.disk.lock().claim_dir(dir).map_err(failed("claiming", dir))?;
        Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), inode, is_share: false }))
    }
}
