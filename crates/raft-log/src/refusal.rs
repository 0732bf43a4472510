//! Why a call about entries was refused, for programs: the source of the [`Error`] that they get.

use std::fmt;

use esker_format::raft::entries::ENTRIES_BYTES_MAX;

use crate::{Error, ErrorKind};

/// What is wrong with the entries of a call. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Entries were to be appended behind a gap.
    Gap {
        /// The group.
        group: u64,
        /// The first index that was to be appended.
        index: u64,
        /// The index behind the group's last entry: the highest that can be appended.
        next: u64,
    },
    /// Entries were to be written, or read, below the group's first: they were compacted.
    Compacted {
        /// The group.
        group: u64,
        /// The index asked for.
        index: u64,
        /// The first index that the group has.
        first: u64,
    },
    /// Entries were to be read that the group does not have yet.
    Missing {
        /// The group.
        group: u64,
        /// The first index asked for that it does not have.
        index: u64,
    },
    /// Entries were to be added to a batch that has no room for them.
    Full {
        /// How many bytes of entries it would have.
        bytes: u64,
    },
}

impl Refusal {
    /// The refusal behind `error`, if it is one.
    pub fn of(error: &Error) -> Option<Self> {
        std::error::Error::source(error)?.downcast_ref().copied()
    }

    /// As an error of `kind`.
    pub(crate) fn into_error(self, kind: ErrorKind) -> Error {
        Error::new(kind, self.to_string()).with_source(self)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { group, index, next } => {
                write!(f, "group {group} would get a gap: index {index} cannot follow {}", next.saturating_sub(1))
            }
            Self::Compacted { group, index, first } => {
                write!(f, "index {index} of group {group} was compacted: its first is {first}")
            }
            Self::Missing { group, index } => write!(f, "group {group} has no entry {index}"),
            Self::Full { bytes } => {
                write!(f, "a batch has room for {ENTRIES_BYTES_MAX} bytes of entries, not for {bytes}; write it first")
            }
        }
    }
}

impl std::error::Error for Refusal {}
