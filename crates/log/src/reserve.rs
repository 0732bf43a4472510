//! Room for what frees, on a disk that is full.
//!
//! - R1: in each of a store's directories with room for them lie two files of blocks that hold nothing. The first goes when there is no room for what says
//!   that something is gone. Only what gives its space back takes the second, and puts it back as soon as it is done: whoever deletes much would leave none
//!   for that.
//! - R2: then what adds is refused until both are there again, and no file takes its blocks ahead: what frees has that room to itself.
//! - R3: they are room and nothing else. Nobody reads or syncs them; where the file system reserves no blocks, or says anything but that it is full, the
//!   store does without.
//! - R4: one lock has all that is known of them: whoever gives and whoever takes back agree on what there is. Once the store is closed, they are somebody
//!   else's.
//!
//! Cost: their blocks, a few calls when the store is opened; one atomic read for each write.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::FileSystem;
use parking_lot::Mutex;

use crate::{Error, Result};

/// Four blocks: two files, and what is written to them.
const BYTES_MIN: u64 = 16 << 10;
/// Each has this part of the disk at most.
const DISK_PART: u64 = 64;
/// So many times as much room is plenty.
const PLENTY: u64 = 64;

/// A failure that may be one of room.
pub trait Shortage {
    /// Whether room would help.
    fn is_of_room(&self) -> bool;
}

impl Shortage for Error {
    fn is_of_room(&self) -> bool {
        self.wants_room()
    }
}

/// Of an append, and whether the file is as it was before it.
impl Shortage for (Error, bool) {
    fn is_of_room(&self) -> bool {
        self.1 && self.0.wants_room()
    }
}

/// The room that is kept.
#[derive(Debug)]
pub struct Reserve {
    files: Arc<dyn FileSystem>,
    /// What goes first, and what goes last (R1).
    parts: [Part; 2],
    held: Mutex<Held>,
    /// How much of what went first may still be [spent](Self::spend).
    unspent: AtomicU64,
    /// Whether what adds may be written (R2). Changed under the lock.
    is_whole: AtomicBool,
}

#[derive(Debug)]
struct Part {
    /// How much each file keeps.
    bytes: u64,
    /// One in each directory.
    paths: Vec<PathBuf>,
}

/// What there is (R4).
#[derive(Debug, Default)]
struct Held {
    /// Whether blocks are to be had.
    is_on: bool,
    first: Vec<PathBuf>,
    last: Vec<PathBuf>,
}

impl Reserve {
    /// That of a store in `dirs`: files of these names and so many bytes, but at most a 64th of the first one's disk, and 16 KiB at least; what goes first
    /// and what goes last. They are not there before [`begin`](Self::begin).
    pub fn new<N: AsRef<Path>>(files: Arc<dyn FileSystem>, dirs: &[PathBuf], parts: [(N, u64); 2]) -> Self {
        let disk = dirs.first().and_then(|dir| files.space(dir).ok()).map_or(u64::MAX, |space| space.total);
        let parts = parts.map(|(name, bytes)| Part {
            bytes: bytes.min(disk / DISK_PART).max(BYTES_MIN),
            paths: dirs.iter().map(|dir| dir.join(&name)).collect(),
        });
        Self { files, parts, held: Mutex::default(), unspent: AtomicU64::new(0), is_whole: AtomicBool::new(true) }
    }

    /// Takes what is there, or can be had. Without it, whoever adds something tries again.
    pub fn begin(&self) {
        self.held.lock().is_on = true;
        let _ = self.restore();
    }

    /// How much there is for deletions.
    pub const fn first_bytes(&self) -> u64 {
        let [first, _] = &self.parts;
        first.bytes
    }

    /// How much of it is there.
    pub fn held_bytes(&self) -> u64 {
        let ([first, last], held) = (&self.parts, self.held.lock());
        held.first.len() as u64 * first.bytes + held.last.len() as u64 * last.bytes
    }

    /// Whether what adds may be written, and files may take blocks ahead.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Takes the room back.
    ///
    /// # Errors
    /// `Exhausted` if it is in none of the directories, and not for another reason (R3).
    pub fn restore(&self) -> Result<()> {
        let ([first, last], mut held) = (&self.parts, self.held.lock());
        if !held.is_on {
            return Ok(());
        }
        let restored = self.take(last, &mut held.last).and_then(|()| self.take(first, &mut held.first));
        self.is_whole.store(restored.is_ok(), Ordering::Relaxed);
        let doing = "keeping room for deletions, which go ahead; delete something and have its space given back, or free space on the disk";
        restored.map_err(|error| error.while_doing(doing))
    }

    /// Takes one of the two in all directories where there is room for it.
    fn take(&self, part: &Part, held: &mut Vec<PathBuf>) -> Result<()> {
        let mut full = None;
        for path in &part.paths {
            if held.contains(path) {
                continue;
            }
            match self.take_file(path, part.bytes).map_err(Error::from) {
                Ok(true) => held.push(path.clone()),
                Err(error) if error.wants_room() => full = Some(error),
                Ok(false) | Err(_) => {}
            }
        }
        full.filter(|_| held.is_empty()).map_or(Ok(()), Err)
    }

    /// Whether the blocks of `path` are there now.
    fn take_file(&self, path: &Path, bytes: u64) -> esker_env::Result<bool> {
        match self.files.metadata(path) {
            Ok(found) if found.allocated >= bytes => return Ok(true),
            // A process died over it, or it was for smaller files.
            Ok(_) => self.files.remove(path)?,
            Err(error) if error.kind() == IoKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let taken = self.files.create(path).and_then(|file| file.hold(bytes));
        if !matches!(taken, Ok(true)) {
            let _ = self.files.remove(path);
        }
        taken
    }

    fn give_first(&self) -> bool {
        let mut held = self.held.lock();
        let is_given = self.give(&mut held.first);
        if is_given {
            self.unspent.store(self.first_bytes(), Ordering::Relaxed);
        }
        is_given
    }

    /// Gives one of the two away. `false` if it is not there.
    fn give(&self, held: &mut Vec<PathBuf>) -> bool {
        let before = held.len();
        held.retain(|path| self.files.remove(path).is_err_and(|error| error.kind() != IoKind::NotFound));
        let is_given = held.len() < before;
        if is_given {
            self.is_whole.store(false, Ordering::Relaxed);
        }
        is_given
    }

    /// Spends so much of the first part of the room; that goes, if it is there. `false` if so much was not left.
    pub fn spend(&self, bytes: u64) -> bool {
        self.give_first();
        self.unspent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |unspent| unspent.checked_sub(bytes)).is_ok()
    }

    /// Writes that something is gone, or makes the file for that; in the first part of the room if there is no other.
    ///
    /// # Errors
    /// What `write` failed at.
    pub fn to_delete<T, E: Shortage>(&self, mut write: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        match write() {
            Err(error) if error.is_of_room() && self.give_first() => write(),
            done => done,
        }
    }

    /// Does what gives space back, or leads to it; in any of the room if there is no other.
    ///
    /// # Errors
    /// What `write` failed at.
    pub fn to_reclaim<T, E: Shortage>(&self, mut write: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        match self.to_delete(&mut write) {
            Err(error) if error.is_of_room() && self.give(&mut self.held.lock().last) => {
                let done = write();
                // What it took for a while is not for deletions.
                let ([_, last], mut held) = (&self.parts, self.held.lock());
                if held.is_on {
                    let _ = self.take(last, &mut held.last);
                }
                done
            }
            done => done,
        }
    }

    /// For a store that is closed (R4): where the disk has plenty, nothing is left behind.
    pub fn end(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        let [first, last] = &self.parts;
        for (part, paths) in [(first, held.first), (last, held.last)] {
            for path in paths {
                let space = path.parent().and_then(|dir| self.files.space(dir).ok());
                if space.is_some_and(|space| space.available / PLENTY >= part.bytes) {
                    // It is in nobody's way.
                    let _ = self.files.remove(&path);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;

    fn reserve(disk: &SimDisk) -> Reserve {
        let (files, dir) = (disk.env().files, PathBuf::from("/store"));
        files.create_dir_all(&dir).unwrap();
        Reserve::new(files, &[dir], [("FIRST", 0), ("LAST", 0)])
    }

    fn is_there(disk: &SimDisk, name: &str) -> bool {
        disk.paths().iter().any(|path| path.ends_with(name))
    }

    fn full() -> Error {
        let source = std::io::Error::from(IoKind::StorageFull);
        Error::from(esker_env::Error::new("appending to", Path::new("/store/x"), source))
    }

    /// Goal: deletions take what is for them, and no more; what gives space back takes the rest, and puts it back; nothing is added until all is there.
    #[test]
    fn each_part_goes_to_whom_it_is_kept_for() {
        let disk = SimDisk::new();
        let reserve = reserve(&disk);
        reserve.begin();
        assert_eq!((reserve.is_whole(), reserve.held_bytes()), (true, 2 * BYTES_MIN));
        let mut tries = 0;
        let deleted = reserve.to_delete(|| {
            tries += 1;
            Err::<(), Error>(full())
        });
        assert!(deleted.is_err() && tries == 2 && !is_there(&disk, "FIRST") && is_there(&disk, "LAST"));
        assert!(!reserve.is_whole() && reserve.to_delete(|| Err::<(), Error>(full())).is_err());
        reserve.to_reclaim(|| if is_there(&disk, "LAST") { Err(full()) } else { Ok(()) }).unwrap();
        assert!(is_there(&disk, "LAST") && !reserve.is_whole());
        disk.set_capacity(Some(BYTES_MIN));
        assert!(reserve.restore().unwrap_err().wants_room());
        disk.set_capacity(None);
        reserve.restore().unwrap();
        assert!(reserve.is_whole() && is_there(&disk, "FIRST"));
    }

    /// Goal: once the store is closed, its directory is left alone by whoever comes late: another process may have it.
    #[test]
    fn a_closed_store_touches_nothing() {
        let disk = SimDisk::new();
        let reserve = reserve(&disk);
        reserve.begin();
        disk.set_capacity(Some(2 * BYTES_MIN));
        reserve.end();
        let (ops, paths) = (disk.op_count(), disk.paths());
        assert!(is_there(&disk, "FIRST"), "there is no plenty");
        assert!(reserve.restore().is_ok() && !reserve.spend(1));
        assert!(reserve.to_reclaim(|| Err::<(), Error>(full())).is_err());
        assert_eq!((disk.op_count(), disk.paths()), (ops, paths));
    }
}
