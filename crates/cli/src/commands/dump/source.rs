//! The file that is dumped.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use esker_format::zeroes::is_zero;
use rustix::fs::OFlags;

use crate::failure::Failure;
use crate::sizes::Bytes;

/// A store reads no more of a file of which nobody makes a large one.
const SMALL_BYTES_MAX: u64 = 256 << 20;

/// An open file, read by position.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    pub(crate) bytes: u64,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let fail = |error| Failure::io("reading", path, &error);
        // An open of a pipe would wait for who writes to it.
        let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
        let file = opened.map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            let reason = "is a directory; name one of the files in it, or see `esker scan` for what is in the store";
            return Err(Failure::new(format_args!("{} {reason}", path.display())));
        }
        if !metadata.is_file() {
            let reason = "not a regular file; name a file of a store, or a copy of one";
            return Err(Failure::new(format_args!("reading {}: {reason}", path.display())));
        }
        Ok(Self { path: path.to_owned(), file, bytes: metadata.len() })
    }

    /// Up to `count` bytes from `offset` on: fewer if the file ends there.
    pub(crate) fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>, Failure> {
        let left = self.bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(count);
        let mut bytes = Vec::new();
        let read = bytes.try_reserve_exact(wanted).map_err(io::Error::from).and_then(|()| {
            bytes.resize(wanted, 0);
            self.file.read_exact_at(&mut bytes, offset)
        });
        read.map_err(|error| Failure::new(format_args!("reading {} at byte {offset}: {error}", self.path.display())))?;
        Ok(bytes)
    }

    /// Whether there is nothing but zeroes from `offset` on.
    pub(crate) fn is_zero_from(&self, offset: u64) -> Result<bool, Failure> {
        let mut at = offset;
        while at < self.bytes {
            let piece = self.read(at, 64 << 10)?;
            if !is_zero(&piece) {
                return Ok(false);
            }
            at += piece.len() as u64;
        }
        Ok(true)
    }

    /// All of a file of which nobody makes a large one.
    pub(crate) fn read_small(&self) -> Result<Vec<u8>, Failure> {
        if self.bytes > SMALL_BYTES_MAX {
            let (path, bytes) = (self.path.display(), Bytes(self.bytes));
            return Err(Failure::new(format_args!(
                "reading {path}: {bytes}, far more than such a file is written with"
            )));
        }
        self.read_all()
    }

    /// All of it.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>, Failure> {
        self.read(0, usize::MAX)
    }
}
