//! One file of a queue: written at its end by one, read anywhere by many.
//!
//! - F1: bytes below [`LogFile::len`] never change while anyone holds the file, unless a sync of it fails: then the system may show the bytes
//!   that are on the disk instead, at any time. So from then on its window is not used, and what was checked in it is checked again, as a copy.
//! - F2: a file is written over only when nobody but its list holds it ([`super::Queue`]); so whoever reads holds it. One that is
//!   held is open before its name goes.
//! - F3: only a sealed file is mapped; while it grows, it is read through its window, or by system calls.
//! - F4: whoever holds a file holds the right to the log's directories: no other process, nor another handle of this one, opens the log as long
//!   as somebody reads.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{FileSystem, Mapping, ReadFile, Window};
use esker_format::raft::file_header::FileHeader;
use esker_format::raft::file_name::FileId;

use super::{Rights, Shape};
use crate::{Error, Result};

/// So much is read at first of what is not in memory and says itself how long it is: mostly all of it.
const FRONT_BYTES: usize = 4 << 10;

/// A file that readers may use.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) id: FileId,
    /// No other file of the process has it, nor had it.
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// Which of the log's directories it lies in.
    pub(crate) dir: usize,
    pub(crate) header: FileHeader,
    files: Arc<dyn FileSystem>,
    /// See F4.
    _rights: Option<Arc<Rights>>,
    /// Bytes that may be read.
    len: AtomicU64,
    sealed: AtomicBool,
    reader: OnceLock<Arc<dyn ReadFile>>,
    window: Option<Arc<dyn Window>>,
    /// A sync failed (F1).
    is_doubtful: AtomicBool,
    mapping: OnceLock<Option<Arc<dyn Mapping>>>,
}

/// Whether a file still grows, and how long it is.
#[derive(Debug)]
pub(crate) enum End {
    Sealed(u64),
    Grows(u64, Option<Arc<dyn Window>>),
}

/// Bytes of a file: as they lie in memory, or a copy.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Arc<dyn Mapping>, Range<usize>),
    Window(Arc<dyn Window>, Range<u64>),
    Owned(Vec<u8>),
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping, range) => mapping.bytes().get(range.clone()).unwrap_or_default(),
            Self::Window(window, range) => window.appended(range.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl LogFile {
    pub(crate) fn new(shape: &Shape, id: FileId, dir: usize, path: PathBuf, header: FileHeader, end: End) -> Self {
        let (len, sealed, window) = match end {
            End::Sealed(len) => (len, true, None),
            End::Grows(len, window) => (len, false, window),
        };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            path,
            dir,
            header,
            files: Arc::clone(&shape.env.files),
            _rights: shape.rights.upgrade(),
            len: AtomicU64::new(len),
            sealed: AtomicBool::new(sealed),
            reader: OnceLock::new(),
            window,
            is_doubtful: AtomicBool::new(false),
            mapping: OnceLock::new(),
        }
    }

    /// Bytes that may be read.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(super) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// A sync of it failed (F1).
    pub(super) fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Release);
    }

    /// Whether `bytes` of it that were checked are still what they were (F1).
    pub(crate) fn has_still(&self, bytes: &Bytes) -> bool {
        !matches!(bytes, Bytes::Window(..)) || !self.is_doubtful.load(Ordering::Acquire)
    }

    fn window(&self) -> Option<&Arc<dyn Window>> {
        self.window.as_ref().filter(|_| !self.is_doubtful.load(Ordering::Acquire))
    }

    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// What the checksums of its items are xored with.
    pub(crate) fn salt(&self) -> u32 {
        self.header.version.salt(self.id.sequence)
    }

    /// An error about the bytes at `offset`.
    pub(crate) fn corruption(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, reason)
    }

    /// The bytes of `range`.
    ///
    /// # Errors
    /// `Corruption` if the file has fewer.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.check(&range)?;
        if let Some(window) = self.window()
            && window.appended(range.clone()).is_some()
        {
            return Ok(Bytes::Window(Arc::clone(window), range));
        }
        if let Some(mapping) = self.mapping()? {
            let mapped = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
            if let Some((start, end)) = mapped.filter(|(_, end)| *end <= mapping.bytes().len()) {
                return Ok(Bytes::Mapped(Arc::clone(mapping), start..end));
            }
        }
        Ok(Bytes::Owned(self.copy(range, &[])?))
    }

    /// The bytes from `offset` on, as many as `len_of` says by the first of them, and what else that makes of these. What is not in memory takes one
    /// system call while it is short.
    ///
    /// # Errors
    /// As [`read`](Self::read), and what `len_of` says.
    pub(crate) fn read_behind<const HEAD: usize, T>(
        &self,
        offset: u64,
        len_of: impl FnOnce(&[u8; HEAD]) -> Result<(u64, T)>,
    ) -> Result<(T, Cow<'_, [u8]>)> {
        let head = offset..offset.saturating_add(HEAD as u64);
        self.check(&head)?;
        let mut there = self.in_memory(head.clone());
        if there.is_none() && self.mapping()?.is_some() {
            there = self.in_memory(head);
        }
        let Some(head) = there.and_then(<[u8]>::first_chunk) else {
            return self.copy_behind(offset, len_of).map(|(made, bytes)| (made, Cow::Owned(bytes)));
        };
        let (len, made) = len_of(head)?;
        let range = offset..offset.saturating_add(len);
        self.check(&range)?;
        match self.in_memory(range.clone()) {
            Some(bytes) => Ok((made, Cow::Borrowed(bytes))),
            None => Ok((made, Cow::Owned(self.copy(range, &[])?))),
        }
    }

    /// The same, as a copy.
    #[inline(never)]
    fn copy_behind<const HEAD: usize, T>(
        &self,
        offset: u64,
        len_of: impl FnOnce(&[u8; HEAD]) -> Result<(u64, T)>,
    ) -> Result<(T, Vec<u8>)> {
        let mut front = [0; FRONT_BYTES];
        let left = usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let front = front.get_mut(..left.min(FRONT_BYTES)).unwrap_or_default();
        let read = self.reader()?.read_exact_at(offset, front);
        let front = match read {
            Ok(()) => front,
            // What cannot be read may be another's.
            Err(_) => {
                let head = front.get_mut(..HEAD).ok_or_else(|| self.corruption(offset, "it ends within a header"))?;
                self.reader()?.read_exact_at(offset, head)?;
                head
            }
        };
        let head = front.first_chunk().ok_or_else(|| self.corruption(offset, "it ends within a header"))?;
        let (len, made) = len_of(head)?;
        let range = offset..offset.saturating_add(len);
        self.check(&range)?;
        Ok((made, self.copy(range, front)?))
    }

    /// Refuses what the file does not have.
    fn check(&self, range: &Range<u64>) -> Result<()> {
        let len = self.len();
        if range.start <= range.end && range.end <= len {
            return Ok(());
        }
        let reason = format!("bytes {}..{} are to be read of {len}", range.start, range.end);
        Err(self.corruption(range.start, reason))
    }

    /// A copy of `range`, of which `front` is known, and may be more.
    fn copy(&self, range: Range<u64>, front: &[u8]) -> Result<Vec<u8>> {
        let count = usize::try_from(range.end.saturating_sub(range.start))
            .map_err(|_| self.corruption(range.start, "longer than memory can be"))?;
        if let Some(all) = front.get(..count) {
            return Ok(all.to_vec());
        }
        let mut bytes = vec![0; count];
        let (known, rest) = bytes.split_at_mut(front.len());
        known.copy_from_slice(front);
        self.reader()?.read_exact_at(range.start.saturating_add(front.len() as u64), rest)?;
        Ok(bytes)
    }

    /// The bytes of `range`, if they are known to lie in memory.
    pub(crate) fn in_memory(&self, range: Range<u64>) -> Option<&[u8]> {
        if range.end > self.len() {
            return None;
        }
        if let Some(bytes) = self.window().and_then(|window| window.appended(range.clone())) {
            return Some(bytes);
        }
        let mapping = self.mapping.get()?.as_ref()?;
        mapping.bytes().get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    /// Opens it for reading, unless that was done: from then on it can be read without its name.
    pub(super) fn reader(&self) -> Result<&Arc<dyn ReadFile>> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        match self.files.open(&self.path) {
            Ok(opened) => Ok(self.reader.get_or_init(|| opened)),
            // Whoever took its name away meanwhile has opened it before (F2).
            Err(error) => self.reader.get().ok_or_else(|| error.into()),
        }
    }

    /// The file in memory, if it is sealed and the system can do that.
    fn mapping(&self) -> Result<Option<&Arc<dyn Mapping>>> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping.as_ref());
        }
        if !self.sealed.load(Ordering::Acquire) {
            return Ok(None);
        }
        // A system that is out of mappings can still be read.
        let mapped = self.reader()?.map().unwrap_or_default();
        Ok(self.mapping.get_or_init(|| mapped).as_ref())
    }
}
