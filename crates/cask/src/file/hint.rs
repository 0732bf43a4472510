//! Writes the hint of a data file that changes no more: its keys, for the next open.

use std::path::{Path, PathBuf};

use esker_env::{AppendFile, FileSystem};
use esker_format::cask::record::Record;
use esker_format::cask::{FileName, FileNumber, hint};

use super::{Step, Walk};
use crate::{Error, Result};

/// A hint is handed to the disk in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Writes the hint of data file `number` of `dir`, which consists of `bytes`, in the place of one that may be there, and syncs it; not its name, which it has
/// once it is whole. Whether the file is free of damage.
pub(crate) fn write_hint(fs: &dyn FileSystem, dir: &Path, number: FileNumber, salt: u32, bytes: &[u8]) -> Result<bool> {
    let (path, temporary) = take_place(fs, dir, number)?;
    let file = fs.create(&temporary)?;
    let written = write_to(&*file, number, salt, bytes).and_then(|is_sound| {
        fs.rename(&temporary, &path)?;
        Ok(is_sound)
    });
    if written.is_err() {
        // If it stays, the next open removes it.
        let _ = fs.remove(&temporary);
    }
    written
}

/// The path of a hint that is to be written, and of what will become it; neither is there, so that what a bad one takes is room for the next.
pub(crate) fn take_place(fs: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<(PathBuf, PathBuf)> {
    let path_of = |name: FileName| dir.join(name.name());
    let (path, temporary) = (path_of(FileName::Hint(number)), path_of(FileName::HintTemporary(number)));
    remove_if_there(fs, &path)?;
    remove_if_there(fs, &temporary)?;
    Ok((path, temporary))
}

fn write_to(file: &dyn AppendFile, number: FileNumber, salt: u32, bytes: &[u8]) -> Result<bool> {
    let mut walk = Walk::new(bytes, salt);
    let (mut builder, mut out, mut is_sound) = (hint::Builder::new(salt), Vec::new(), true);
    loop {
        match walk.step() {
            Step::Record { offset, record, raw } => {
                let Record { version, is_tombstone, expires_at, key, .. } = record;
                let record_bytes = raw.len() as u64;
                builder.add(&hint::Entry { offset, record_bytes, version, is_tombstone, expires_at, key }, &mut out);
            }
            Step::Damage(_) => is_sound = false,
            Step::End { .. } => break,
        }
        if out.len() >= PIECE_BYTES {
            file.append(&[&out])?;
            out.clear();
        }
    }
    builder.finish(number, bytes.len() as u64, &mut out);
    file.append(&[&out])?;
    // A hint that is not durable is only a hint less; a data file is another matter.
    file.sync().map_err(Error::from)?;
    Ok(is_sound)
}

/// Removes what nobody needs; nothing is as good.
pub(crate) fn remove_if_there(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.remove(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}
