//! The exclusive right to a directory: a record lock on its `LOCK` file.
//!
//! It must keep out whatever else may open the directory, RocksDB too. RocksDB takes `fcntl(F_SETLK)` on the whole
//! file and remembers what its own process holds; so does this. (`flock` and `fcntl` do not see each other on Linux.)
//!
//! - L1: a record lock belongs to the process. A second one on the same file by the same process succeeds, so what
//!   this process holds stands in a table, by device and inode: another path to the same file is the same file.
//! - L2: closing *any* descriptor of the file gives the lock up. So the table is asked before the file is opened, and
//!   nothing in Esker opens a file named `LOCK` for anything else.
//! - A RocksDB inside the same process has its own table and is not kept out.
//!
//! Source: RocksDB `env/fs_posix.cc`; `fcntl(2)`, "Advisory record locking".

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock, flock};
use rustix::io::Errno;

use super::regular;
use crate::Lock;

/// Device and inode: what a path stands for, whatever it is called.
type Identity = (u64, u64);

/// The files that this process has locked (L1). Held while one is taken or given up, so that both are one step.
static HELD: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// A locked file; given up when dropped.
#[derive(Debug)]
pub(super) struct OsLock {
    /// `None` only inside `drop`.
    file: Option<File>,
    identity: Identity,
}

impl Lock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        // Closing gives the lock up; only then may another handle of this process try.
        drop(self.file.take());
        held.remove(&self.identity);
    }
}

/// Locks the file at `path`, creating it if there is none. `WouldBlock` if somebody holds it.
pub(super) fn lock(path: &Path) -> io::Result<OsLock> {
    let mut held = HELD.lock();
    if let Ok(metadata) = fs::metadata(path)
        && held.contains(&identity(&metadata))
    {
        return Err(taken("it is locked by this process"));
    }
    let file = regular::open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
    let identity_opened = identity(&file.metadata()?);
    if held.contains(&identity_opened) {
        // Somebody gave a held file this name just now. Closing it would give the lock up (L2), so it stays open.
        mem::forget(file);
        return Err(taken("it is locked by this process"));
    }
    loop {
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(taken("it is locked by another process")),
            Err(error) => return Err(error.into()),
        }
    }
    // Who held it before may have removed the name: then the lock is on a file that nobody else will find.
    if identity(&fs::metadata(path)?) != identity_opened {
        return Err(taken("it was replaced while being locked"));
    }
    held.insert(identity_opened);
    Ok(OsLock { file: Some(file), identity: identity_opened })
}

/// A directory that is shared, or claimed: an open file with a `flock`, which is the handle's, not the process's, so that readers in the
/// writer's own process count. A directory can be locked by whoever may read it, and there is no file to make for it.
#[derive(Debug)]
pub(super) struct OsDirLock {
    dir: OwnedFd,
    /// The process that locked it.
    owner: u32,
}

impl Lock for OsDirLock {}

impl Drop for OsDirLock {
    fn drop(&mut self) {
        // Closing alone would leave it to a child that is being started: until that runs its program, it has what its parent has open.
        // A child that drops what it inherited only closes it: the lock is its parent's, too.
        if process::id() == self.owner {
            let _ = flock(&self.dir, FlockOperation::Unlock);
        }
    }
}

/// Waits for whoever claimed it.
pub(super) fn share_dir(dir: &Path) -> io::Result<OsDirLock> {
    flock_dir(dir, FlockOperation::LockShared).map_err(not_shared)
}

/// What network file systems say of a lock that they do not have for directories means that there is none.
fn not_shared(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF | Errno::INVAL) => {
            io::Error::new(io::ErrorKind::Unsupported, error)
        }
        _ => error,
    }
}

/// `WouldBlock` if somebody shares it.
pub(super) fn claim_dir(dir: &Path) -> io::Result<OsDirLock> {
    flock_dir(dir, FlockOperation::NonBlockingLockExclusive).map_err(not_claimed)
}

/// Never `Unsupported`: that would say that there is nobody to share with, and here are other processes.
fn not_claimed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Unsupported => io::Error::other(error),
        _ => error,
    }
}

fn flock_dir(dir: &Path, operation: FlockOperation) -> io::Result<OsDirLock> {
    let dir = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        match flock(&dir, operation) {
            Ok(()) => return Ok(OsDirLock { dir, owner: process::id() }),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn taken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who cannot share a directory learns whether there is such a thing at all; who cannot claim it does not take it for his own.
    #[test]
    fn a_lock_that_the_file_system_lacks_is_told_from_one_that_was_refused() {
        for missing in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK, Errno::BADF, Errno::INVAL] {
            assert_eq!(not_shared(missing.into()).kind(), io::ErrorKind::Unsupported, "{missing}");
            assert_ne!(not_claimed(missing.into()).kind(), io::ErrorKind::Unsupported, "{missing}");
        }
        for refused in [Errno::ACCESS, Errno::MFILE, Errno::NFILE, Errno::NOENT] {
            assert_eq!(not_shared(refused.into()).raw_os_error(), Some(refused.raw_os_error()), "{refused}");
            assert_eq!(not_claimed(refused.into()).raw_os_error(), Some(refused.raw_os_error()), "{refused}");
        }
    }

    /// Goal: what a child still has open, which was forked and does not run its own program yet, keeps nobody out.
    #[test]
    fn a_claim_ends_with_its_handle_whoever_else_has_the_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let claim = claim_dir(dir.path()).unwrap();
        let of_a_child = rustix::io::dup(&claim.dir).unwrap();
        assert_eq!(claim_dir(dir.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(claim);
        drop(claim_dir(dir.path()).unwrap());
        drop(of_a_child);
    }

    /// Goal: a forked child that drops what it inherited gives up nothing of its parent's.
    #[test]
    fn only_the_process_that_locked_a_directory_unlocks_it() {
        let dir = tempfile::tempdir().unwrap();
        let share = share_dir(dir.path()).unwrap();
        let inherited = OsDirLock { dir: rustix::io::dup(&share.dir).unwrap(), owner: share.owner.wrapping_add(1) };
        drop(inherited);
        assert_eq!(claim_dir(dir.path()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(share);
        drop(claim_dir(dir.path()).unwrap());
    }
}
