//! Where files live: the machine's file system, or one of the caller's own.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Reading.
    ReadOnly,
    /// Both.
    ReadWrite,
}

/// A file system of the caller's own: one that encrypts, or counts. What it does not do (listing, locks, syncing
/// directories, second names) the machine's does. An open log keeps it, so it borrows nothing; the original asks for that where one is opened.
pub trait FileSystem: Send + Sync + 'static {
    /// An open file.
    type Handle: Send + Sync + Handle;
    /// Who reads it.
    type Reader: Seek + Read + Send;
    /// Who writes it.
    type Writer: Seek + Write + Send + WriteExt;

    /// A new file.
    ///
    /// # Errors
    /// As the file system says; so with the others.
    fn create<P: AsRef<Path>>(&self, path: P) -> Result<Self::Handle>;

    /// A file that is there.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn open<P: AsRef<Path>>(&self, path: P, perm: Permission) -> Result<Self::Handle>;

    /// Takes it away.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn delete<P: AsRef<Path>>(&self, path: P) -> Result<()>;

    /// Gives it another name.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn rename<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<()>;

    /// Makes a file a new one under another name.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn reuse<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<()> {
        self.rename(src_path, dst_path)
    }

    /// The same, and opens it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn reuse_and_open<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<Self::Handle> {
        self.reuse(src_path.as_ref(), dst_path.as_ref())?;
        self.open(dst_path, Permission::ReadWrite)
    }

    /// Takes what is kept about a file that is gone away.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn delete_metadata<P: AsRef<Path>>(&self, _path: P) -> Result<()> {
        Ok(())
    }

    /// Whether anything is kept about it.
    fn exists_metadata<P: AsRef<Path>>(&self, _path: P) -> bool {
        false
    }

    /// Who reads an open file.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn new_reader(&self, handle: Arc<Self::Handle>) -> Result<Self::Reader>;

    /// Who writes it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn new_writer(&self, handle: Arc<Self::Handle>) -> Result<Self::Writer>;
}

/// An open file.
pub trait Handle {
    /// Cuts it.
    ///
    /// # Errors
    /// As the file system says.
    fn truncate(&self, offset: usize) -> Result<()>;

    /// How long it is.
    ///
    /// # Errors
    /// As the file system says.
    fn file_size(&self) -> Result<usize>;

    /// Makes it survive power loss.
    ///
    /// # Errors
    /// As the file system says.
    fn sync(&self) -> Result<()>;
}

/// What a writer can do beside writing.
pub trait WriteExt {
    /// Cuts the file.
    ///
    /// # Errors
    /// As the file system says.
    fn truncate(&mut self, offset: usize) -> Result<()>;

    /// Asks for space.
    ///
    /// # Errors
    /// As the file system says.
    fn allocate(&mut self, offset: usize, size: usize) -> Result<()>;
}

/// The machine's file system. An engine on it does not go through this face, but straight to the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultFileSystem;

/// An open file of the machine's.
#[derive(Debug)]
pub struct FileHandle(File);

/// A place in one.
#[derive(Debug)]
pub struct FileCursor {
    handle: Arc<FileHandle>,
    offset: u64,
}

impl Handle for FileHandle {
    fn truncate(&self, offset: usize) -> Result<()> {
        self.0.set_len(offset as u64)
    }

    fn file_size(&self) -> Result<usize> {
        Ok(self.0.metadata()?.len() as usize)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync_data()
    }
}

impl Read for FileCursor {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let count = self.handle.0.read_at(buf, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Write for FileCursor {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let count = self.handle.0.write_at(buf, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Seek for FileCursor {
    fn seek(&mut self, pos: SeekFrom) -> Result<u64> {
        let (from, by) = match pos {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.offset, by),
            SeekFrom::End(by) => (self.handle.file_size()? as u64, by),
        };
        self.offset = from.checked_add_signed(by).ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

impl WriteExt for FileCursor {
    fn truncate(&mut self, offset: usize) -> Result<()> {
        self.handle.truncate(offset)?;
        self.offset = offset as u64;
        Ok(())
    }

    fn allocate(&mut self, _: usize, _: usize) -> Result<()> {
        // A wish: writing works without.
        Ok(())
    }
}

impl FileSystem for DefaultFileSystem {
    type Handle = FileHandle;
    type Reader = FileCursor;
    type Writer = FileCursor;

    fn create<P: AsRef<Path>>(&self, path: P) -> Result<FileHandle> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).map(FileHandle)
    }

    fn open<P: AsRef<Path>>(&self, path: P, perm: Permission) -> Result<FileHandle> {
        OpenOptions::new().read(true).write(perm == Permission::ReadWrite).open(path).map(FileHandle)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> Result<()> {
        std::fs::remove_file(path)
    }

    fn rename<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<()> {
        std::fs::rename(src_path, dst_path)
    }

    fn new_reader(&self, handle: Arc<FileHandle>) -> Result<FileCursor> {
        Ok(FileCursor { handle, offset: 0 })
    }

    fn new_writer(&self, handle: Arc<FileHandle>) -> Result<FileCursor> {
        Ok(FileCursor { handle, offset: 0 })
    }
}

/// A file system for tests: adds one to every byte, takes one byte at a time, and counts its files.
#[derive(Debug, Default)]
pub struct ObfuscatedFileSystem {
    files: AtomicUsize,
}

/// Reads what [`ObfuscatedWriter`] wrote.
#[derive(Debug)]
pub struct ObfuscatedReader(FileCursor);

/// Adds one to every byte.
#[derive(Debug)]
pub struct ObfuscatedWriter(FileCursor);

impl ObfuscatedFileSystem {
    /// How many files were created and not deleted.
    pub fn file_count(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }
}

impl Read for ObfuscatedReader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let Some(first) = buf.get_mut(..1) else { return Ok(0) };
        let count = self.0.read(first)?;
        first.iter_mut().take(count).for_each(|byte| *byte = byte.wrapping_sub(1));
        Ok(count)
    }
}

impl Seek for ObfuscatedReader {
    fn seek(&mut self, pos: SeekFrom) -> Result<u64> {
        self.0.seek(pos)
    }
}

impl Write for ObfuscatedWriter {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        buf.first().map_or(Ok(0), |byte| self.0.write(&[byte.wrapping_add(1)]))
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

impl Seek for ObfuscatedWriter {
    fn seek(&mut self, pos: SeekFrom) -> Result<u64> {
        self.0.seek(pos)
    }
}

impl WriteExt for ObfuscatedWriter {
    fn truncate(&mut self, offset: usize) -> Result<()> {
        self.0.truncate(offset)
    }

    fn allocate(&mut self, offset: usize, size: usize) -> Result<()> {
        self.0.allocate(offset, size)
    }
}

impl FileSystem for ObfuscatedFileSystem {
    type Handle = FileHandle;
    type Reader = ObfuscatedReader;
    type Writer = ObfuscatedWriter;

    fn create<P: AsRef<Path>>(&self, path: P) -> Result<FileHandle> {
        let made = DefaultFileSystem.create(path)?;
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(made)
    }

    fn open<P: AsRef<Path>>(&self, path: P, perm: Permission) -> Result<FileHandle> {
        DefaultFileSystem.open(path, perm)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> Result<()> {
        DefaultFileSystem.delete(path)?;
        self.files.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn rename<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<()> {
        DefaultFileSystem.rename(src_path, dst_path)
    }

    fn reuse<P: AsRef<Path>>(&self, src_path: P, dst_path: P) -> Result<()> {
        self.delete(src_path)?;
        self.create(dst_path).map(drop)
    }

    fn new_reader(&self, handle: Arc<FileHandle>) -> Result<ObfuscatedReader> {
        DefaultFileSystem.new_reader(handle).map(ObfuscatedReader)
    }

    fn new_writer(&self, handle: Arc<FileHandle>) -> Result<ObfuscatedWriter> {
        DefaultFileSystem.new_writer(handle).map(ObfuscatedWriter)
    }
}
