//! Names of files in a Raft log's directory.
//!
//! | name                       | what                                                                    |
//! |----------------------------|-------------------------------------------------------------------------|
//! | `{seq:016}.raftlog`        | a file of the append queue: what users write                            |
//! | `{seq:016}.rewrite`        | a file of the rewrite queue: what was moved on, so that old files may go |
//! | `{seq:016}.raftlog.reserved` | a file that waits to be written over; its bytes mean nothing          |
//! | `LOCK`                     | held by the process that has the log open                               |
//! | `RESERVE`, `RESERVE-LAST`  | Esker's own room for what frees, on a full disk; their bytes mean nothing |
//! | `CLOSED`                   | Esker's own note of how much there was at the last close ([`closed`](super::closed)) |
//!
//! Source: raft-engine `src/file_pipe_log/format.rs`. Sequence numbers of a queue have no gaps and begin at 1.

use std::fmt;

/// Name of the lock file.
pub const LOCK: &str = "LOCK";
/// Names of the files that keep room.
pub const RESERVES: [&str; 2] = ["RESERVE", "RESERVE-LAST"];
/// Digits that a sequence number is padded to.
const SEQUENCE_WIDTH: usize = 16;
/// Highest sequence number: readers may keep one bit for something else. No log gets there in files that anybody wrote.
pub const SEQUENCE_MAX: u64 = u64::MAX >> 1;
const APPEND_SUFFIX: &str = ".raftlog";
const REWRITE_SUFFIX: &str = ".rewrite";
const RESERVED_SUFFIX: &str = ".raftlog.reserved";

/// One of the two sequences of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// What was moved on from old files of either queue. Older than anything in the append queue.
    Rewrite,
    /// What users write, in order.
    Append,
}

/// A file of a queue. The sequence number is unique within its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Its queue.
    pub queue: Queue,
    /// Its place in the queue.
    pub sequence: u64,
}

impl FileId {
    /// A file of `queue`.
    pub const fn new(queue: Queue, sequence: u64) -> Self {
        Self { queue, sequence }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.queue {
            Queue::Append => APPEND_SUFFIX,
            Queue::Rewrite => REWRITE_SUFFIX,
        };
        write!(f, "{:0width$}{suffix}", self.sequence, width = SEQUENCE_WIDTH)
    }
}

/// What a name in the directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileName {
    /// A file of a queue.
    Log(FileId),
    /// A file that waits to be written over.
    Reserved(u64),
    /// [`LOCK`].
    Lock,
    /// One of [`RESERVES`].
    Reserve {
        /// Whether it is the one that goes last.
        is_last: bool,
    },
}

impl FileName {
    /// What `name` stands for; `None` if it is none of this format's names, spelled as they are written.
    pub fn parse(name: &str) -> Option<Self> {
        let dot = name.find('.').unwrap_or(name.len());
        let (digits, suffix) = name.split_at_checked(dot)?;
        let sequence = || digits.parse::<u64>().ok().filter(|sequence| *sequence <= SEQUENCE_MAX);
        let parsed = match suffix {
            APPEND_SUFFIX => Self::Log(FileId::new(Queue::Append, sequence()?)),
            REWRITE_SUFFIX => Self::Log(FileId::new(Queue::Rewrite, sequence()?)),
            RESERVED_SUFFIX => Self::Reserved(sequence()?),
            "" if name == LOCK => Self::Lock,
            "" => Self::Reserve { is_last: RESERVES.iter().position(|reserve| *reserve == name)? == 1 },
            _ => return None,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(id) => id.fmt(f),
            Self::Reserved(sequence) => write!(f, "{sequence:0width$}{RESERVED_SUFFIX}", width = SEQUENCE_WIDTH),
            Self::Lock => f.write_str(LOCK),
            Self::Reserve { is_last } => {
                let [first, last] = RESERVES;
                f.write_str(if *is_last { last } else { first })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_on_disks_already() {
        let append = FileName::Log(FileId::new(Queue::Append, 123));
        assert_eq!(append.to_string(), "0000000000000123.raftlog");
        let rewrite = FileName::Log(FileId::new(Queue::Rewrite, 1));
        assert_eq!(rewrite.to_string(), "0000000000000001.rewrite");
        assert_eq!(FileName::Reserved(7).to_string(), "0000000000000007.raftlog.reserved");
        for name in [append, rewrite, FileName::Reserved(SEQUENCE_MAX), FileName::Lock] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for (name, is_last) in [("RESERVE", false), ("RESERVE-LAST", true)] {
            assert_eq!(FileName::parse(name), Some(FileName::Reserve { is_last }));
            assert_eq!(FileName::Reserve { is_last }.to_string(), name);
        }
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            "",
            "1.raftlog",
            "0000000000000001",
            "0000000000000001.raftlog.bak",
            "0000000000000001.RAFTLOG",
            "+000000000000001.raftlog",
            "00000000000000001.raftlog",
            "99999999999999999999.rewrite",
            "18446744073709551615.raftlog",
            "18446744073709551614.raftlog.reserved",
            "9223372036854775808.rewrite",
            "000000000000000é.rewrite",
            "lock",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_append_queue_is_newer() {
        assert!(FileId::new(Queue::Rewrite, 9) < FileId::new(Queue::Append, 1));
    }
}
