//! A failed call to the world: what was being done, to which path, where in the file, and what the system said.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failed call. Boxed, so that a `Result` stays as small as a pointer on paths that do not fail.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    doing: &'static str,
    path: PathBuf,
    offset: Option<u64>,
    source: io::Error,
}

/// The result of a call to the world.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `doing` is a present participle with its object: `"appending to"`, `"syncing"`, `"listing"`.
    pub fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self(Box::new(Inner { doing, path: path.to_owned(), offset: None, source }))
    }

    /// The same, saying where in the file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset = Some(offset);
        self
    }

    /// What was being done, as a present participle.
    pub fn doing(&self) -> &'static str {
        self.0.doing
    }

    /// The file or directory it was done to.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Where in the file, if the call had a place.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What the system said.
    pub fn io(&self) -> &io::Error {
        &self.0.source
    }

    /// The kind of what the system said.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// Whether something that can be freed has run out: space, quota, inodes or descriptors.
    pub fn is_exhausted(&self) -> bool {
        // EMFILE 24 and ENFILE 23 have no stable `ErrorKind`.
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
            || matches!(self.0.source.raw_os_error(), Some(23 | 24))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.doing, self.0.path.display())?;
        if let Some(offset) = self.0.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.0.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}
