//! The original's errors.

use std::fmt;

use esker_raft_log::{ErrorKind, Refusal};

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
    Protobuf(protobuf::ProtobufError),
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

impl std::error::Error for Error {}

impl From<protobuf::ProtobufError> for Error {
    fn from(error: protobuf::ProtobufError) -> Self {
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

impl From<esker_raft_log::Error> for Error {
    fn from(error: esker_raft_log::Error) -> Self {
        let reason = error.to_string();
        match (error.kind(), Refusal::of(&error)) {
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
