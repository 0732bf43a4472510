//! Names, directories, space.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

use super::append_file::OsAppendFile;
use super::lock;
use super::read_file::OsReadFile;
use super::regular;
use crate::{AppendFile, DirEntry, Error, FileKind, FileSystem, Lock, Metadata, ReadFile, Result, Space};

/// `st_blocks` counts in these, whatever the file system's own block is (`stat(2)`).
pub(super) const STAT_BLOCK_BYTES: u64 = 512;

/// The system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(here_if_empty(path)).map_err(|source| Error::new("resolving", path, source))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        let file = OsAppendFile::create(path).map_err(|source| Error::new("creating", path, source))?;
        Ok(Arc::new(file))
    }

    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        let file = OsAppendFile::reopen(path, len).map_err(|source| Error::new("reopening", path, source))?;
        Ok(Arc::new(file))
    }

    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        self.rename(from, to)?;
        self.sync_dir(to.parent().unwrap_or(Path::new("")))?;
        let file = OsAppendFile::write_over(to).map_err(|source| Error::new("recycling", to, source))?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let file = OsReadFile::open(path).map_err(|source| Error::new("opening", path, source))?;
        Ok(Arc::new(file))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        list(here_if_empty(dir)).map_err(|source| Error::new("listing", dir, source))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        metadata(here_if_empty(path)).map_err(|source| Error::new("inspecting", path, source))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        // `here/.` cannot be made before `here` is: without what names nothing.
        let names: PathBuf = dir.components().collect();
        fs::create_dir_all(names).map_err(|source| Error::new("creating", dir, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|source| Error::new("renaming", from, source))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
            .map_err(|source| Error::new("linking to", from, source.into()))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|source| Error::new("removing", path, source))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        fs::remove_dir(dir).map_err(|source| Error::new("removing", dir, source))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        sync_dir(here_if_empty(dir)).map_err(|source| Error::new("syncing", dir, source))
    }

    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()> {
        self.punch_holes(path, std::slice::from_ref(&range))
    }

    fn punch_holes(&self, path: &Path, ranges: &[Range<u64>]) -> Result<()> {
        let failed = |source| Error::new("punching a hole into", path, source);
        let file = regular::open(path, fs::OpenOptions::new().write(true)).map_err(failed)?;
        let punch = |range: &Range<u64>| punch_hole(&file, range).map_err(|source| failed(source).at(range.start));
        ranges.iter().filter(|range| !range.is_empty()).try_for_each(punch)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let found = rustix::fs::statvfs(here_if_empty(path))
            .map_err(|source| Error::new("measuring the space of", path, source.into()))?;
        Ok(Space {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            available: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let lock = lock::lock(path).map_err(|source| Error::new("locking", path, source))?;
        Ok(Box::new(lock))
    }

    fn share_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        let lock = lock::share_dir(here_if_empty(dir)).map_err(|source| Error::new("sharing", dir, source))?;
        Ok(Box::new(lock))
    }

    fn claim_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        let lock = lock::claim_dir(here_if_empty(dir)).map_err(|source| Error::new("claiming", dir, source))?;
        Ok(Box::new(lock))
    }
}

/// The parent of a bare name is the empty path, which means here and which the system does not know.
fn here_if_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn kind(found: fs::FileType) -> FileKind {
    if found.is_file() {
        FileKind::File
    } else if found.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    }
}

fn metadata(path: &Path) -> io::Result<Metadata> {
    let named = fs::symlink_metadata(path)?;
    let is_symlink = named.is_symlink();
    let found = if is_symlink { fs::metadata(path)? } else { named };
    Ok(Metadata {
        kind: kind(found.file_type()),
        len: found.len(),
        allocated: found.blocks().saturating_mul(STAT_BLOCK_BYTES),
        links: found.nlink().saturating_add(u64::from(is_symlink)),
        identity: (found.dev(), found.ino()),
    })
}

fn list(dir: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Some(kind) = still_there(entry.file_type())?.map(kind) else { continue };
        entries.push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), kind });
    }
    entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    Ok(entries)
}

/// `None` for what went since its directory was read: some file systems do not say there what an entry is, and it is asked itself.
fn still_there(found: io::Result<fs::FileType>) -> io::Result<Option<fs::FileType>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::File::from(rustix::fs::open(dir, flags, Mode::empty())?);
    dir.sync_all()
}

#[cfg(target_os = "linux")]
fn punch_hole(file: &fs::File, range: &Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match fallocate(file, flags, range.start, range.end - range.start) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "this file system has no holes"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn punch_hole(_: &fs::File, _: &Range<u64>) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "Esker punches holes on Linux only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_since_its_directory_was_read_is_left_out() {
        let kind_of = |path: &str| fs::symlink_metadata(path).map(|found| found.file_type());
        assert!(still_there(kind_of("/")).unwrap().is_some_and(|found| found.is_dir()));
        assert!(still_there(kind_of("/none/at/all")).unwrap().is_none());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(still_there(Err(denied)).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
