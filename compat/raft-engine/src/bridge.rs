//! A file system of the caller's own, as Esker wants one.
//!
//! - B1: files are made, opened, read, written, renamed and removed by the caller's; everything else is the machine's, and so is the note of a
//!   close, which the original knows nothing of.
//! - B2: nothing is preallocated, mapped or linked: only the caller's knows what bytes look like on the machine. A file that is
//!   recycled is reused by the caller's, and then cut.

use std::any::TypeId;
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;

use esker_env::{
    Access, AppendFile, DirEntry, Env, Error, FileSystem as EskerFiles, Lock, Mapping, Metadata, ReadFile, Result,
    Space, Window,
};
use esker_format::raft::closed;

use crate::env::{DefaultFileSystem, FileSystem, Handle, Permission, WriteExt};

/// The machine with `files` in it.
pub(crate) fn env<F: FileSystem>(files: Arc<F>) -> Env {
    let machine = Env::os();
    if TypeId::of::<F>() == TypeId::of::<DefaultFileSystem>() {
        return machine;
    }
    Env { files: Arc::new(Bridge { files, machine: Arc::clone(&machine.files) }), ..machine }
}

struct Bridge<F> {
    files: Arc<F>,
    machine: Arc<dyn EskerFiles>,
}

impl<F> fmt::Debug for Bridge<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bridge")
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::new(doing, path, source)
}

/// What was left behind by a thread that panicked is as good as what it found: every use begins with a seek.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<F: FileSystem> Bridge<F> {
    fn writer(&self, path: &Path, handle: F::Handle, len: u64) -> io::Result<Arc<dyn AppendFile>> {
        let handle = Arc::new(handle);
        let writer = self.files.new_writer(Arc::clone(&handle))?;
        let end = Mutex::new(End { writer, len });
        Ok(Arc::new(BridgedAppend::<F> { path: path.to_owned(), handle, end }))
    }

    fn reopened(&self, path: &Path, len: u64) -> io::Result<Arc<dyn AppendFile>> {
        let handle = self.files.open(path, Permission::ReadWrite)?;
        let found = handle.file_size()? as u64;
        if len > found {
            let reason = format!("cannot append at byte {len} of a file of {found}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        if len < found {
            handle.truncate(len as usize)?;
        }
        self.writer(path, handle, len)
    }
}

/// See B1.
fn is_note(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == closed::NAME || name == closed::NEW_NAME)
}

impl<F: FileSystem> EskerFiles for Bridge<F> {
    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        if is_note(path) {
            return self.machine.create(path);
        }
        if self.machine.metadata(path).is_ok() {
            return Err(Error::new("creating", path, io::ErrorKind::AlreadyExists.into()));
        }
        let made = self.files.create(path).and_then(|handle| self.writer(path, handle, 0));
        made.map_err(failed("creating", path))
    }

    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        self.reopened(path, len).map_err(failed("reopening", path))
    }

    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        let handle = self.files.reuse_and_open(from, to).map_err(failed("recycling", from))?;
        self.machine.sync_dir(to.parent().unwrap_or(Path::new("")))?;
        handle.truncate(0).map_err(failed("truncating", to))?;
        self.writer(to, handle, 0).map_err(failed("recycling", to))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        if is_note(path) {
            return self.machine.open(path);
        }
        let open = || {
            let handle = Arc::new(self.files.open(path, Permission::ReadOnly)?);
            let reader = Mutex::new(self.files.new_reader(Arc::clone(&handle))?);
            Ok(BridgedRead::<F> { path: path.to_owned(), handle, reader })
        };
        Ok(Arc::new(open().map_err(failed("opening", path))?))
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.machine.list(dir)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.machine.metadata(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.machine.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if is_note(from) {
            return self.machine.rename(from, to);
        }
        self.files.rename(from, to).map_err(failed("renaming", from))
    }

    fn link(&self, from: &Path, _: &Path) -> Result<()> {
        Err(Error::new("linking to", from, io::ErrorKind::Unsupported.into()))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if is_note(path) {
            return self.machine.remove(path);
        }
        self.files.delete(path).map_err(failed("removing", path))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.machine.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.machine.sync_dir(dir)
    }

    fn punch_hole(&self, path: &Path, _: Range<u64>) -> Result<()> {
        Err(Error::new("punching a hole into", path, io::ErrorKind::Unsupported.into()))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.machine.space(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.machine.lock(path)
    }
}

struct BridgedRead<F: FileSystem> {
    path: PathBuf,
    handle: Arc<F::Handle>,
    reader: Mutex<F::Reader>,
}

impl<F: FileSystem> fmt::Debug for BridgedRead<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BridgedRead({})", self.path.display())
    }
}

impl<F: FileSystem> ReadFile for BridgedRead<F> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        self.handle.file_size().map(|bytes| bytes as u64).map_err(failed("measuring", &self.path))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut reader = lock(&self.reader);
        let mut read = || {
            reader.seek(SeekFrom::Start(offset))?;
            let mut done = 0;
            while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
                match reader.read(rest) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        };
        read().map_err(|source| Error::new("reading", &self.path, source).at(offset))
    }

    fn map(&self) -> Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }

    fn advise(&self, _: Access) {}
}

struct BridgedAppend<F: FileSystem> {
    path: PathBuf,
    handle: Arc<F::Handle>,
    end: Mutex<End<F::Writer>>,
}

struct End<W> {
    writer: W,
    len: u64,
}

impl<F: FileSystem> fmt::Debug for BridgedAppend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BridgedAppend({})", self.path.display())
    }
}

impl<F: FileSystem> BridgedAppend<F> {
    fn cut(&self, end: &mut End<F::Writer>, len: u64) -> Result<()> {
        end.writer.truncate(len as usize).map_err(failed("truncating", &self.path))?;
        end.len = len;
        Ok(())
    }
}

impl<F: FileSystem> AppendFile for BridgedAppend<F> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        lock(&self.end).len
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let mut end = lock(&self.end);
        let End { writer, len } = &mut *end;
        let from = *len;
        let mut write = || {
            writer.seek(SeekFrom::Start(from))?;
            for part in parts {
                let mut rest = *part;
                while !rest.is_empty() {
                    match writer.write(rest) {
                        Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                        Ok(count) => {
                            *len += count as u64;
                            rest = rest.get(count..).unwrap_or_default();
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            writer.flush()
        };
        write().map_err(|source| Error::new("appending to", &self.path, source).at(from))
    }

    fn sync(&self) -> Result<()> {
        self.handle.sync().map_err(failed("syncing", &self.path))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut end = lock(&self.end);
        if len > end.len {
            return Err(Error::new("truncating", &self.path, io::ErrorKind::InvalidInput.into()));
        }
        self.cut(&mut end, len)
    }

    fn preallocate(&self, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn seal(&self) -> Result<()> {
        let mut end = lock(&self.end);
        let len = end.len;
        self.cut(&mut end, len)
    }

    fn window(&self) -> Result<Option<Arc<dyn Window>>> {
        Ok(None)
    }
}
