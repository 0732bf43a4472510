//! One error for the family of engines, split by what the caller can do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_format::{DecodeError, DecodeErrorKind};

/// What the caller can do about a failure. Two causes with the same remedy share a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call was wrong and nothing changed. Mend the argument and call again.
    InvalidArgument,
    /// Something named that must exist does not: a store, a column family.
    NotFound,
    /// Somebody else holds it: another process has the store open. Try again later.
    Busy,
    /// A condition the call was made under no longer holds.
    Conflict,
    /// Space or descriptors ran out and nothing changed. Free some and call again; reads and deletes go on.
    Exhausted,
    /// Stored bytes are not what was written. What is undamaged can still be read; run `esker check`, restore the rest.
    Corruption,
    /// Written by a newer version, or with a feature this one lacks. Nothing was touched.
    UnsupportedFormat,
    /// A sync or a manifest write failed, so what is durable is unknown. Reads work; writes fail until the store is reopened.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// The system refused: permission, a failing device. [`source`](std::error::Error::source) has its words.
    Io,
}

impl ErrorKind {
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::NotFound => "not found",
            Self::Busy => "busy",
            Self::Conflict => "conflict",
            Self::Exhausted => "exhausted",
            Self::Corruption => "corruption",
            Self::UnsupportedFormat => "unsupported format",
            Self::ReadOnly => "read-only",
            Self::Closed => "closed",
            Self::Io => "I/O error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was being done, where, why it failed, and what can be done about it. Cheap to clone: one failure is told to all who wait for it.
///
/// Prints on one line: `corruption: /store/000012.sst at byte 4096: reading a block: block checksum: is 0x.., of these bytes it would be 0x..`.
/// So does `Debug`, since that is what `unwrap` and a `main` that returns an error print.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: ErrorKind,
    reason: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    /// Whether room was refused by the store itself, whatever the system would say.
    lacks_room: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The result of an engine's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// `reason` says what was being done, why it failed and what to do, in one sentence without a full stop.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, reason: reason.into(), path: None, offset: None, lacks_room: false, source: None }))
    }

    /// [`ErrorKind::Exhausted`] of room on the disk, or of what a store may take of it.
    pub fn no_room(reason: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Exhausted, reason);
        error.inner().lacks_room = true;
        error
    }

    /// Whether room would help, on the disk or under a limit (a quota, `max_disk_bytes`): `Exhausted`, but not of descriptors or numbers. Then
    /// deletions, and time for reclaim, help, too.
    pub fn wants_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let said = std::error::Error::source(self).and_then(|source| source.downcast_ref::<esker_env::Error>());
        self.kind() == ErrorKind::Exhausted
            && (self.0.lacks_room || said.is_some_and(|said| matches!(said.kind(), StorageFull | QuotaExceeded)))
    }

    /// [`ErrorKind::InvalidArgument`].
    pub fn invalid_argument(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, reason)
    }

    /// [`ErrorKind::Corruption`] of the file at `path`.
    pub fn corruption(path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, reason).with_path(path).with_offset(offset)
    }

    /// What a decoder said of bytes that begin at `base` in the file at `path`.
    pub fn decode(path: &Path, base: u64, doing: &str, error: DecodeError) -> Self {
        let offset = base.saturating_add(error.offset);
        Self::undecoded(doing, error).with_path(path).with_offset(offset)
    }

    /// The same of bytes of which nobody here knows where they lie.
    fn undecoded(doing: &str, error: DecodeError) -> Self {
        let kind = match error.kind {
            DecodeErrorKind::Unsupported => ErrorKind::UnsupportedFormat,
            _ => ErrorKind::Corruption,
        };
        let reason = format!("{doing}: {}: {}", error.field, error.reason);
        Self::new(kind, reason).with_source(error)
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }

    /// The same, about the file or directory at `path`.
    #[must_use]
    pub fn with_path(mut self, path: &Path) -> Self {
        self.inner().path = Some(path.to_owned());
        self
    }

    /// The same, at `offset` in the file.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.inner().offset = Some(offset);
        self
    }

    /// The same, because of `source`.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.inner().source = Some(Arc::new(source));
        self
    }

    /// The same, with another kind: what one layer calls an I/O error another may call a read-only store.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.inner().kind = kind;
        self
    }

    /// The same, with `doing: ` before the reason.
    #[must_use]
    pub fn while_doing(mut self, doing: impl fmt::Display) -> Self {
        let inner = self.inner();
        inner.reason = format!("{doing}: {}", inner.reason);
        self
    }

    /// The same, with what can be done about it behind the reason.
    #[must_use]
    pub fn with_advice(mut self, advice: impl fmt::Display) -> Self {
        let inner = self.inner();
        inner.reason = format!("{}; {advice}", inner.reason);
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done and why it failed.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The file or directory concerned.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Where in the file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

impl From<esker_env::Error> for Error {
    fn from(error: esker_env::Error) -> Self {
        let kind = match error.kind() {
            _ if error.is_exhausted() => ErrorKind::Exhausted,
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::WouldBlock => ErrorKind::Busy,
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData => ErrorKind::Corruption,
            std::io::ErrorKind::OutOfMemory => ErrorKind::Exhausted,
            _ => ErrorKind::Io,
        };
        let made = Self::new(kind, format!("{}: {}", error.doing(), error.io())).with_path(error.path());
        let made = match error.offset() {
            Some(offset) => made.with_offset(offset),
            None => made,
        };
        made.with_source(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)?;
        if let Some(path) = &self.0.path {
            write!(f, ": {}", path.display())?;
        }
        if let Some(offset) = self.0.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.0.reason)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unwrap_shows_is_the_line_for_people() {
        let error =
            Error::corruption(Path::new("/store/000012.sst"), 4096, "reading a block").with_source(std::fmt::Error);
        assert_eq!(format!("{error:?}"), "corruption: /store/000012.sst at byte 4096: reading a block");
        assert_eq!(format!("{:?}", Err::<(), _>(error.clone())), format!("Err({error})"));
    }

    #[test]
    fn room_that_a_store_refuses_itself_is_room_that_would_help() {
        let error = Error::no_room("the store takes up all that it may").with_path(Path::new("/store"));
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.wants_room());
        assert!(!error.with_kind(ErrorKind::ReadOnly).wants_room());
        assert!(!Error::new(ErrorKind::Exhausted, "all numbers are used").wants_room());
    }
}
