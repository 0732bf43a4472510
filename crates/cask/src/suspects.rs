//! Keys whose newest record is damaged, and was met without a hint that would have it in the directory: what the directory has of
//! such a key is older, or it was deleted. Reads of it fail until it is written anew.
//!
//! - U1: a key comes in at the open alone, and goes when a record of it was written, under the key's lock.
//! - U2: what a damaged record was is a guess (`file/claim.rs`); so nothing is dead or dropped for it.
//!
//! Cost: where nothing is damaged, which is nearly always, one load a read.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{Error, Result};

/// Where a key's newest record was, and its version.
#[derive(Debug, Clone)]
pub(crate) struct Suspect {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) version: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Suspects {
    is_any: AtomicBool,
    by_key: Mutex<HashMap<Vec<u8>, Suspect>>,
}

impl Suspects {
    pub(crate) fn new(by_key: HashMap<Vec<u8>, Suspect>) -> Self {
        Self { is_any: AtomicBool::new(!by_key.is_empty()), by_key: Mutex::new(by_key) }
    }

    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `Corruption` if it is `key`.
    #[inline]
    pub(crate) fn refuse(&self, key: &[u8]) -> Result<()> {
        if self.is_any() { self.refuse_known(key) } else { Ok(()) }
    }

    #[cold]
    fn refuse_known(&self, key: &[u8]) -> Result<()> {
        let by_key = self.by_key.lock();
        let Some(Suspect { path, offset, .. }) = by_key.get(key) else { return Ok(()) };
        let reason = "the newest record of the key is damaged; write the key anew, restore it, or run a repair, which goes \
                      back to the record before";
        Err(Error::corruption(path, *offset, reason))
    }

    /// The version of the next record, from that which would follow those that hold: who writes one of the keys anew is to be newer, in a later
    /// life of the store, too.
    pub(crate) fn next_version(&self, known: u64) -> u64 {
        let highest = self.by_key.lock().values().map(|suspect| suspect.version).max();
        highest.map_or(known, |highest| known.max(highest.saturating_add(1)))
    }

    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.is_any() && self.by_key.lock().contains_key(key)
    }

    /// `key` was written.
    #[inline]
    pub(crate) fn clear(&self, key: &[u8]) {
        if self.is_any() {
            let mut by_key = self.by_key.lock();
            by_key.remove(key);
            self.is_any.store(!by_key.is_empty(), Ordering::Relaxed);
        }
    }

    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        if self.is_any() { self.by_key.lock().keys().cloned().collect() } else { Vec::new() }
    }
}
