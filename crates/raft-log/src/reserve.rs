//! Room for what frees, on a disk that is full.
//!
//! - R1: in each of the log's directories with room for it lies a file of blocks that hold nothing. They go when there is no room for what frees: for a
//!   compaction, the end of a group or of a key, for what a purge tells the rewrite queue of these, and for the next file, which they are written to.
//! - R2: then what adds is refused until one is there again, and no file takes all its blocks at once: what frees has that room to itself.
//! - R3: they are room and nothing else. Nobody reads or syncs them; where the file system reserves no blocks, or says anything but that it is full, the
//!   log does without.
//!
//! Cost: up to 1 MiB of disk, a few calls when the log is opened; one atomic read for each group of batches.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_env::FileSystem;
use esker_format::raft::file_name::RESERVE;
use parking_lot::Mutex;

use crate::queue::Tail;
use crate::write::wants_room;
use crate::{Error, Result};

/// Part of a log's file that a reserve has.
const FILE_PART: u64 = 64;
/// Four blocks: a file of each queue, and what is written to it.
const BYTES_MIN: u64 = 16 << 10;
/// What some twenty thousand groups need that are compacted one by one.
const BYTES_MAX: u64 = 1 << 20;

/// The room that is kept.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn FileSystem>,
    dirs: Arc<[PathBuf]>,
    bytes: u64,
    /// Whether blocks are to be had.
    is_on: AtomicBool,
    held: Mutex<Vec<PathBuf>>,
    /// Whether what adds may be written (R2).
    is_whole: AtomicBool,
}

impl Reserve {
    /// Of a log with such files in `dirs`, before they are there.
    pub(crate) fn new(files: Arc<dyn FileSystem>, dirs: Arc<[PathBuf]>, file_bytes: u64) -> Self {
        let bytes = (file_bytes / FILE_PART).clamp(BYTES_MIN, BYTES_MAX);
        Self {
            files,
            dirs,
            bytes,
            is_on: AtomicBool::new(false),
            held: Mutex::default(),
            is_whole: AtomicBool::new(true),
        }
    }

    /// Takes what is there, or can be had, beside `tail`, to which users write.
    ///
    /// # Errors
    /// As [`restore_beside`](Self::restore_beside), but for want of room: whoever adds something tries again, and is told.
    pub(crate) fn begin(&self, tail: &mut Tail) -> Result<()> {
        self.is_on.store(tail.reserves_blocks(), Ordering::Relaxed);
        self.restore_beside(tail).or_else(|error| if wants_room(&error) { Ok(()) } else { Err(error) })
    }

    /// Takes the room back, from what `tail` has ahead if there is no other.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), and as [`Tail::finish`].
    pub(crate) fn restore_beside(&self, tail: &mut Tail) -> Result<()> {
        match self.restore() {
            Err(error) if wants_room(&error) && tail.has_room_ahead() => {
                tail.finish()?;
                self.restore()
            }
            done => done,
        }
    }

    /// Whether what adds may be written, and files may take blocks ahead.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Takes the room back.
    ///
    /// # Errors
    /// `Exhausted` if it is in none of the directories, and not for another reason (R3).
    pub(crate) fn restore(&self) -> Result<()> {
        if !self.is_on.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut held = self.held.lock();
        let mut full = None;
        for path in self.dirs.iter().map(|dir| dir.join(RESERVE)) {
            if held.contains(&path) {
                continue;
            }
            match self.take(&path).map_err(Error::from) {
                Ok(true) => held.push(path),
                Err(error) if wants_room(&error) => full = Some(error),
                Ok(false) | Err(_) => {}
            }
        }
        let full = full.filter(|_| held.is_empty());
        self.is_whole.store(full.is_none(), Ordering::Relaxed);
        full.map_or(Ok(()), |error| {
            Err(error.while_doing(
                "keeping room for compactions, which go ahead; compact groups and purge, or free space on the disk",
            ))
        })
    }

    /// Whether the blocks of `path` are there now.
    fn take(&self, path: &Path) -> esker_env::Result<bool> {
        match self.files.metadata(path) {
            Ok(found) if found.allocated >= self.bytes => return Ok(true),
            // A process died over it, or it was for smaller files.
            Ok(_) => self.files.remove(path)?,
            Err(error) if error.kind() == IoKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let taken = self.files.create(path).and_then(|file| file.preallocate(self.bytes));
        if !matches!(taken, Ok(true)) {
            let _ = self.files.remove(path);
        }
        taken
    }

    /// Gives the room to what frees. `false` if there is none.
    pub(crate) fn give(&self) -> bool {
        let mut held = self.held.lock();
        let before = held.len();
        held.retain(|path| self.files.remove(path).is_err_and(|error| error.kind() != IoKind::NotFound));
        let is_given = held.len() < before;
        if is_given {
            self.is_whole.store(false, Ordering::Relaxed);
        }
        is_given
    }
}
