//! What can be wrong with an answer.

use std::fmt;

use crate::encoding::hex;
use crate::failure::Failure;

/// How an answer differs from every right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It was written and not deleted, and is not there.
    Missing,
    /// It was deleted, or never written, and is there.
    Unexpected,
    /// The key is none that a benchmark of this key size makes.
    Foreign,
    /// A scan in no order met fewer or more keys than are there.
    Count { keys: u64, due: u64 },
    /// An iterator went the wrong way.
    OutOfOrder,
    /// The value says it belongs to the key of this number.
    OtherKey(u64),
    /// The value was replaced by a later benchmark.
    Stale { generation: u64, oldest: u64 },
    /// No benchmark has written that yet.
    Unwritten { generation: u64, newest: u64 },
    /// As many bytes as the value never had.
    Length { bytes: usize, expected: Option<usize> },
    /// A byte differs.
    Bytes { offset: usize },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("was written and not deleted, and is not there"),
            Self::Unexpected => f.write_str("was deleted or never written, and is there"),
            Self::Foreign => f.write_str("is no key of this benchmark: other seed, key size or store"),
            Self::Count { keys, due } => write!(f, "a scan met {keys} keys in place of {due}"),
            Self::OutOfOrder => f.write_str("is out of order"),
            Self::OtherKey(number) => write!(f, "has the value of key number {number}"),
            Self::Stale { generation, oldest } => {
                write!(f, "has its value of generation {generation}, which generation {oldest} has replaced")
            }
            Self::Unwritten { generation, newest } => {
                write!(f, "has a value of generation {generation}, and only {newest} were written")
            }
            Self::Length { bytes, expected: None } => write!(f, "has a value of {bytes} bytes, too short to be one"),
            Self::Length { bytes, expected: Some(expected) } => {
                write!(f, "has a value of {bytes} bytes in place of {expected}")
            }
            Self::Bytes { offset } => write!(f, "has a value that differs at byte {offset}"),
        }
    }
}

/// What an answer was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    Key(Vec<u8>),
    /// Of a Raft log.
    Entry {
        group: u64,
        index: u64,
    },
}

impl Spot {
    /// As a field.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Key(key) => hex(key),
            Self::Entry { group, index } => format!("{group}/{index}"),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "key 0x{}", hex(key)),
            Self::Entry { group, index } => write!(f, "entry {index} of group {group}"),
        }
    }
}

/// A wrong answer: it ends the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) spot: Spot,
    pub(super) fault: Fault,
}

impl Wrong {
    pub(super) fn key(key: &[u8], fault: Fault) -> Self {
        Self { spot: Spot::Key(key.to_vec()), fault }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            // No key's, but a scan's.
            Fault::Count { .. } => self.fault.fmt(f),
            fault => write!(f, "{} {fault}", self.spot),
        }
    }
}

/// Why a benchmark ended before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The store gave a wrong answer.
    Wrong(Wrong),
    /// The store, or something else, could not do what it was asked for.
    Failed(Failure),
}

impl From<esker::Error> for Stop {
    fn from(error: esker::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
