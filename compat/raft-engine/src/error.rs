//! The original's errors.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use esker_raft_log::{ErrorKind, Refusal};
use protobuf::ProtobufError;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, as the original sorts it.
#[derive(Debug)]
pub enum Error {
    /// The call was wrong; nothing changed.
    InvalidArgument(String),
    /// Stored bytes are not what was written.
    Corruption(String),
    /// The system refused, or a sync failed.
    Io(std::io::Error),
    /// Bytes that were handed over are not what they should be.
    Codec(esker_format::DecodeError),
    /// An entry is not what its type can read.
    Protobuf(ProtobufError),
    /// Nothing was written; once more may do.
    TryAgain(String),
    /// The entry was compacted.
    EntryCompacted,
    /// There is no such entry.
    EntryNotFound,
    /// The batch is full.
    Full,
    /// Anything else.
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument(reason) => write!(f, "Invalid Argument: {reason}"),
            Self::Corruption(reason) => write!(f, "Corruption: {reason}"),
            Self::Io(error) => write!(f, "IO Error: {error:?}"),
            Self::Codec(error) => write!(f, "Codec Error: {error}"),
            Self::Protobuf(error) => write!(f, "Protobuf Error: {error}"),
            Self::TryAgain(reason) => write!(f, "TryAgain Error: {reason}"),
            Self::EntryCompacted => f.write_str("Entry Compacted"),
            Self::EntryNotFound => f.write_str("Entry Not Found"),
            Self::Full => f.write_str("Full"),
            Self::Other(error) => write!(f, "Other Error: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Codec(error) => Some(error),
            Self::Protobuf(error) => Some(error),
            Self::Other(error) => Some(&**error),
            _ => None,
        }
    }
}

/// An error of protobuf's on its way through Esker's log, which knows none.
#[derive(Debug)]
pub(crate) struct Carried(Mutex<Option<ProtobufError>>);

impl Carried {
    /// As an error of `kind`.
    pub(crate) fn into_error(error: ProtobufError, kind: ErrorKind) -> esker_raft_log::Error {
        esker_raft_log::Error::new(kind, error.to_string()).with_source(Self(Mutex::new(Some(error))))
    }

    /// What `error` carries.
    fn take(error: &esker_raft_log::Error) -> Option<ProtobufError> {
        let carried: &Self = std::error::Error::source(error)?.downcast_ref()?;
        carried.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error of protobuf's")
    }
}

impl std::error::Error for Carried {}

impl From<ProtobufError> for Error {
    fn from(error: ProtobufError) -> Self {
        Self::Protobuf(error)
    }
}

impl From<esker_format::DecodeError> for Error {
    fn from(error: esker_format::DecodeError) -> Self {
        Self::Codec(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::Other(error)
    }
}

impl From<esker_raft_log::Error> for Error {
    fn from(error: esker_raft_log::Error) -> Self {
        if let Some(error) = Carried::take(&error) {
            return Self::Protobuf(error);
        }
        // The variant says the kind already.
        let text = error.to_string();
        let reason = text.strip_prefix(&format!("{}: ", error.kind())).unwrap_or(&text).to_owned();
        match (error.kind(), Refusal::of(&error)) {
            (_, Some(Refusal::Full { .. })) => Self::Full,
            (ErrorKind::NotFound, Some(Refusal::Compacted { .. })) => Self::EntryCompacted,
            (ErrorKind::NotFound, Some(Refusal::Missing { .. })) => Self::EntryNotFound,
            (ErrorKind::InvalidArgument, _) => Self::InvalidArgument(reason),
            (ErrorKind::Corruption | ErrorKind::UnsupportedFormat, _) => Self::Corruption(reason),
            (ErrorKind::Exhausted, _) => Self::Io(std::io::Error::new(std::io::ErrorKind::StorageFull, error)),
            (ErrorKind::Io | ErrorKind::ReadOnly, _) => Self::Io(std::io::Error::other(error)),
            _ => Self::Other(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_others_are_wrapped_and_given_back() {
        fn failing() -> Result<()> {
            Err(Box::<dyn std::error::Error + Send + Sync>::from("reason"))?
        }
        let other = failing().unwrap_err();
        assert!(matches!(other, Error::Other(_)));
        let io = Error::from(std::io::Error::other("reason"));
        for error in [other, io] {
            assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "reason");
        }
        assert!(std::error::Error::source(&Error::Full).is_none());
    }

    #[test]
    fn a_batch_without_room_is_full() {
        let mut batch = esker_raft_log::LogBatch::new();
        // Zeroes that nobody reads: they take no memory.
        let refused = batch.add_entries(1, 1, [vec![0; 1 << 31]]).unwrap_err();
        assert!(matches!(Error::from(refused), Error::Full) && batch.is_empty());
    }
}
