//! Files that no durable manifest names and nobody reads, on their way off the disk.
//!
//! - T1: a file gets here only after the edit that drops it was synced (B6), so deleting it loses nothing, at any moment or never.
//! - T2: a deletion that fails is not forgotten (B8): the file stays here and the next purge tries again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use esker_env::{FileSystem, Lock};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Error, Result};

/// See the module's head. Dropping the last reader of a file adds to it, on whatever thread that happens; files are
/// removed by [`purge`](Self::purge), on a background thread.
#[derive(Debug)]
pub(crate) struct Trash {
    files: Arc<dyn FileSystem>,
    waiting: Mutex<Vec<PathBuf>>,
    /// Whether there may be something in `waiting`: keeps the common check free of the lock.
    filled: AtomicBool,
    /// Bytes of files that are obsolete, but that somebody still reads.
    held_bytes: AtomicU64,
    /// Held while files are removed.
    is_closed: Mutex<bool>,
    /// Whoever holds a file of a store that is open for reading, or was closed, shares its directory with the writer.
    share: Mutex<Option<Arc<dyn Lock>>>,
}

impl Trash {
    pub(crate) fn new(files: Arc<dyn FileSystem>) -> Arc<Self> {
        Self::sharing(files, None)
    }

    /// Of a store open for reading, in which nothing is removed: every file holds it, and so `share` until the last of them goes.
    pub(crate) fn sharing(files: Arc<dyn FileSystem>, share: Option<Arc<dyn Lock>>) -> Arc<Self> {
        Arc::new(Self {
            files,
            waiting: Mutex::default(),
            filled: AtomicBool::new(false),
            held_bytes: AtomicU64::new(0),
            is_closed: Mutex::new(false),
            share: Mutex::new(share),
        })
    }

    /// The same from now on, of a store that closes.
    pub(crate) fn share(&self, share: Option<Arc<dyn Lock>>) {
        *self.share.lock() = share;
    }

    /// Bytes of files that shall go as soon as nobody reads them any more.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// Such a file takes up `bytes`.
    pub(crate) fn hold(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Nobody reads it any more.
    pub(crate) fn let_go(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// `path` shall be removed.
    pub(crate) fn add(&self, path: PathBuf) {
        self.waiting.lock().push(path);
        self.filled.store(true, Ordering::Release);
    }

    /// Whether a purge would have something to do.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Removes what waits. What cannot be removed waits for the purge after the next file has come.
    ///
    /// # Errors
    /// The first failure; all files were tried.
    pub(crate) fn purge(&self) -> Result<()> {
        let is_closed = self.is_closed.lock();
        if *is_closed || !self.filled.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let taken = std::mem::take(&mut *self.waiting.lock());
        let mut first = Ok(());
        for path in taken {
            match self.files.remove(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    first = first.and(Err(Error::from(error)));
                    self.waiting.lock().push(path);
                }
            }
        }
        first
    }

    /// As [`purge`](Self::purge), trying again what could not be removed before.
    pub(crate) fn purge_again(&self) -> Result<()> {
        self.filled.store(true, Ordering::Release);
        self.purge()
    }

    /// From now on nothing is removed: the directory may be another handle's, with other files of the same names.
    pub(crate) fn close(&self) {
        *self.is_closed.lock() = true;
    }
}
