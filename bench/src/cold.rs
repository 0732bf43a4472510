//! Emptying the page cache of one directory, and no more: other processes keep theirs.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise, fdatasync};

use crate::Result;

fn for_each_file(dir: &Path, visit: &mut dyn FnMut(&File) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            for_each_file(&path, visit)?;
        } else if let Ok(file) = File::open(&path) {
            visit(&file)?;
        }
    }
    Ok(())
}

/// Sees that all bytes of all files in `dir` are on the device: every engine settles to the same point.
///
/// # Errors
/// The directory cannot be listed, or a sync fails.
pub fn sync_files(dir: &Path) -> Result<()> {
    for_each_file(dir, &mut |file| Ok(fdatasync(file)?))
}

/// Drops the pages of all files in `dir` from the page cache. Pages that a process still maps stay, so close first.
///
/// # Errors
/// As [`sync_files`]; only pages that are on the device can be dropped.
pub fn drop_pages(dir: &Path) -> Result<()> {
    for_each_file(dir, &mut |file| {
        fdatasync(file)?;
        Ok(fadvise(file, 0, None, Advice::DontNeed)?)
    })
}
