//! Room for what must go on when others have filled the disk: blocks of a file that holds nothing.
//!
//! - G1: they are taken once the disk has less than [`PLENTY`] times as much left: where it has more, nothing is kept.
//! - G2: whoever finds no room is given what it needs, and a little more, for the next. Work leaves what says that files are gone, and is written anew by
//!   the next open, and a part at least; logs leave half of the rest, since what they hold has to become tables.
//! - G3: they are room and nothing else, and nobody reads them. Where the file system reserves no blocks, nothing is kept. They are synced, so that a
//!   power loss, which may bring back files that were removed, leaves them; where that fails, no more is lost than they.
//! - G4: a store that is closed leaves them behind only where room is short. So does a process that dies; to the next open they are what they were.
//! - G5: how much is kept follows the limit that the files have: should it fall, what is too much goes at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{BLOCK_BYTES, Need};
use crate::{AppendFile, FileSystem};

/// So many times as much is plenty.
const PLENTY: u64 = 64;
/// What is given at once besides what is needed, what tables leave, and what lies about on the disk for the next append, is such a part.
const STEP_PART: u64 = 16;
/// Work leaves no more than such a part, and logs, of the rest, such a one.
const HALF: u64 = 2;

/// The blocks that are kept.
#[derive(Debug)]
pub(super) struct Ballast {
    files: Arc<dyn FileSystem>,
    path: PathBuf,
    /// Changed under the lock.
    most: AtomicU64,
    /// The file, if it is there.
    held: Mutex<Option<Arc<dyn AppendFile>>>,
    /// How much it has. Changed under the lock.
    bytes: AtomicU64,
    /// What the files of the directory take up, this one included.
    all: Arc<AtomicU64>,
    /// What is vital would take if it was written anew.
    vital: AtomicU64,
    is_on: AtomicBool,
}

impl Ballast {
    /// Of at most so many bytes, whole blocks of them, in a file at `path`, which counts among `all` that the files take up.
    pub(super) fn new(files: Arc<dyn FileSystem>, path: PathBuf, most: u64, all: Arc<AtomicU64>) -> Self {
        let most = AtomicU64::new(most / BLOCK_BYTES * BLOCK_BYTES);
        let (held, bytes, is_on) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Self { files, path, most, held, bytes, all, vital: AtomicU64::new(0), is_on }
    }

    pub(super) fn most(&self) -> u64 {
        self.most.load(Ordering::Acquire)
    }

    /// Keeps no more than so many bytes from now on (G5).
    pub(super) fn set_most(&self, most: u64) {
        let mut held = self.held.lock();
        let most = most / BLOCK_BYTES * BLOCK_BYTES;
        self.most.store(most, Ordering::Release);
        if self.bytes() > most {
            self.leave(&mut held, most);
        }
    }

    /// How much is kept now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Takes over what was left behind (G4). It counts among all that the files take up from now on.
    pub(super) fn take_over(&self) {
        let mut held = self.held.lock();
        let left = self.files.metadata(&self.path).ok().filter(|found| found.len > 0 && found.allocated >= found.len);
        match left
            .filter(|left| left.len <= self.most())
            .map(|left| (left.len, self.files.reopen(&self.path, left.len)))
        {
            Some((bytes, Ok(file))) => {
                *held = Some(file);
                self.all.fetch_add(bytes, Ordering::AcqRel);
                self.bytes.store(bytes, Ordering::Release);
            }
            // More than there should be, or no more than a name.
            _ => self.drop_file(&mut held),
        }
    }

    pub(super) fn begin(&self) {
        self.is_on.store(self.most() > 0, Ordering::Release);
    }

    /// See G2.
    pub(super) fn note_vital(&self, bytes: u64) {
        self.vital.store(bytes, Ordering::Relaxed);
    }

    /// Takes what there is room for (G1), as far as all files take no more than `limit`.
    pub(super) fn keep(&self, limit: u64) {
        if self.is_plenty() || !self.is_on.load(Ordering::Acquire) {
            return;
        }
        // Whoever has it is at it.
        let Some(mut held) = self.held.try_lock() else { return };
        let (now, most, free) = (self.bytes(), self.most(), self.free());
        let step = most / STEP_PART;
        let wanted = most.min(free.saturating_sub(step)) / BLOCK_BYTES * BLOCK_BYTES;
        let more = wanted.saturating_sub(now);
        if more == 0 || (wanted < most && more < step) || !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let within = |all: u64| all.checked_add(more).filter(|&all| all <= limit);
        if self.all.fetch_update(Ordering::AcqRel, Ordering::Acquire, within).is_err() {
            return;
        }
        let file = match &*held {
            Some(file) => Ok(file.clone()),
            None => self.files.create(&self.path),
        };
        match file.and_then(|file| file.hold(wanted).map(|is_there| (file, is_there))) {
            Ok((file, true)) => {
                self.make_durable(&*file);
                *held = Some(file);
                self.bytes.store(wanted, Ordering::Release);
            }
            answer => {
                self.all.fetch_sub(more, Ordering::AcqRel);
                // G3.
                self.is_on.store(answer.is_err(), Ordering::Release);
                if now == 0 {
                    self.drop_file(&mut held);
                }
            }
        }
    }

    /// Gives room for so many bytes more (G2). `false` if nothing is left for that.
    pub(super) fn give(&self, bytes: u64, need: Need) -> bool {
        let mut held = self.held.lock();
        let most = self.most();
        let of_work = self.vital.load(Ordering::Relaxed).min(most / HALF).max(most / STEP_PART);
        let kept = match need {
            Need::Vital => 0,
            Need::Work => of_work,
            Need::Log => of_work + (most - of_work) / HALF,
        };
        let now = self.bytes();
        let given = bytes.saturating_add(most / STEP_PART).min(now.saturating_sub(kept));
        let left = (now - given) / BLOCK_BYTES * BLOCK_BYTES;
        left < now && self.leave(&mut held, left)
    }

    /// Gives back all but so many bytes. `false` if that fails: then all are still there.
    fn leave(&self, held: &mut Option<Arc<dyn AppendFile>>, left: u64) -> bool {
        if held.as_ref().is_none_or(|file| file.truncate(0).is_err()) {
            return false;
        }
        let file = held.as_ref().filter(|file| left > 0 && matches!(file.hold(left), Ok(true)));
        if let Some(file) = file {
            self.make_durable(&**file);
            self.set(left);
        } else {
            self.drop_file(held);
        }
        true
    }

    fn make_durable(&self, file: &dyn AppendFile) {
        let _ = file.sync();
        let _ = self.path.parent().map(|dir| self.files.sync_dir(dir));
    }

    fn drop_file(&self, held: &mut Option<Arc<dyn AppendFile>>) {
        *held = None;
        self.set(0);
        let _ = self.files.remove(&self.path);
    }

    /// It has less than it had.
    fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Ordering::AcqRel);
        self.all.fetch_sub(before.saturating_sub(bytes), Ordering::AcqRel);
    }

    /// Bytes of the disk that are free, what is kept included.
    fn free(&self) -> u64 {
        let space = self.path.parent().and_then(|dir| self.files.space(dir).ok());
        // A file system that does not say is taken for large enough.
        space.map_or(u64::MAX, |space| space.available.saturating_add(self.bytes()))
    }

    fn is_plenty(&self) -> bool {
        let most = self.most();
        most == 0 || self.free() / PLENTY >= most
    }

    /// See G4.
    pub(super) fn end(&self) {
        let mut held = self.held.lock();
        self.is_on.store(false, Ordering::Release);
        if held.is_some() && self.is_plenty() {
            self.drop_file(&mut held);
        }
        *held = None;
    }
}
