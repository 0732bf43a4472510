//! A sync that failed, told to the next process.
//!
//! After a failed sync the system goes on showing bytes that are not on the disk, and says nothing of it to whoever opens the file
//! next: a second sync succeeds, and the bytes go with the power (Rebello et al., "Can Applications Recover from fsync Failures?",
//! ATC 2020). So the process that learns of it leaves a file called [`NAME`] beside the one that failed, and the next open writes
//! anew whatever may be concerned before it builds on it.
//!
//! - X1: the warning is not synced, and need not be: a power loss that takes it takes the bytes that it warns of, too.
//! - X2: a file is written anew as a copy that replaces it when it is durable, so a death on the way loses nothing.
//! - X3: the warning goes when everything was written anew, not before.
//!
//! Cost: one look at the directory for each open; a copy of the files in question after a failed sync.

use std::io;
use std::path::Path;

use esker_env::{FileSystem, durable};

use crate::Result;

/// The warning's name.
pub const NAME: &str = "SYNC-FAILED";
/// Name of a copy that is not finished.
const COPY: &str = "SYNC-FAILED.copy";

/// Warns the next process that opens `dir`: a sync of a file in it failed.
///
/// # Errors
/// What the system said. Then only a restart of the machine makes the files trustworthy.
pub fn warn(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    match files.create(&dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => Ok(made.map(drop)?),
    }
}

/// Whether an earlier process left a warning in `dir`.
///
/// # Errors
/// What the system said.
pub fn is_warned(files: &dyn FileSystem, dir: &Path) -> Result<bool> {
    Ok(durable::is_there(files, &dir.join(NAME))?)
}

/// Writes the file at `path` anew, as it reads now, durably (X2). Nobody may have it open for appending.
///
/// # Errors
/// `Exhausted` if there is no room for a copy. The file is as before.
pub fn write_anew(files: &dyn FileSystem, path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let copy_path = dir.join(COPY);
    match files.remove(&copy_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    durable::copy(files, path, &copy_path, files.metadata(path)?.len, |_| Ok::<_, esker_env::Error>(()))?;
    files.rename(&copy_path, path)?;
    Ok(files.sync_dir(dir)?)
}

/// Takes the warning away: everything was written anew (X3).
///
/// # Errors
/// What the system said.
pub fn trust_again(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    files.remove(&dir.join(NAME))?;
    Ok(files.sync_dir(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_env::sim::{Fault, SimDisk, Survivors};

    #[test]
    fn what_a_failed_sync_dropped_is_durable_once_it_was_written_anew() {
        let (disk, dir, path) = (SimDisk::new(), Path::new("/store"), Path::new("/store/log"));
        disk.create_dir_all(dir).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let file = disk.create(path).unwrap();
        file.append(&[&[7; 3 << 20]]).unwrap();
        disk.sync_dir(dir).unwrap();
        assert!(!is_warned(&disk, dir).unwrap());
        disk.fail_at(disk.op_count(), Fault::Eio);
        file.sync().unwrap_err();
        warn(&disk, dir).unwrap();
        warn(&disk, dir).unwrap();
        drop(file);
        assert!(is_warned(&disk.after_process_death(), dir).unwrap());
        // Wherever it dies, the file is as it was, or safe.
        for n in 0.. {
            let next = disk.after_process_death();
            next.die_after(n);
            let done = write_anew(&next, path).and_then(|()| trust_again(&next, dir));
            let again = next.after_process_death();
            assert_eq!(again.file_bytes(path).unwrap(), [7; 3 << 20]);
            let left = next.after_power_loss(Survivors::Nothing);
            let is_safe = left.file_bytes(path).unwrap() == [7; 3 << 20];
            assert!(is_safe || is_warned(&again, dir).unwrap(), "the warning stays until all is done");
            if done.is_ok() {
                assert!(is_safe && !is_warned(&left, dir).unwrap());
                break;
            }
            write_anew(&again, path).unwrap();
        }
    }
}
