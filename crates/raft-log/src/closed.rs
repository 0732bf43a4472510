//! The note that a close leaves: how much of the last file of each queue is whole and durable, and which is the first that is needed.
//!
//! A crash may tear the end of a queue's last file, so an open cuts it there; nothing in raft-engine's files tells that from rot in one that
//! was closed in order, which would take all that was acknowledged behind it. The note does: a file that it names and that has whole
//! batches up to less than it says is damaged.
//!
//! - N1: it bounds from below. Whoever goes on with the log, Esker or raft-engine, adds to the files that it names, or gives them up, and
//!   gives no other file their number. So it stays until the next close, and holds, too, if there is none.
//! - N2: it goes, durably, before anything after which it would not hold: before damage is cut off that any is tolerated of, before an end is cut
//!   off while it cannot be read, before numbers begin anew where files are gone, before items are taken out.
//! - N3: a file that it names and that is not there was given up if later ones are. Nobody gives up the last of a queue: if none is there, that is
//!   damage, too, and if all files are gone.
//! - N4: without it, or with one that is damaged or cannot be read, ends are told as they are after a crash. So nothing fails that could not write it.
//! - N5: nobody gives up a file that is needed before something was written that says so, or moves what it held. Where both queues end as they did
//!   when the log was closed, to the byte, all files are there from the first that was needed on, or it is damage.
//!
//! Cost: a small file, two syncs and a rename for each close of a log that something was written to.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};

use esker_env::FileSystem;
use esker_format::raft::closed::{Closed, LEN_BYTES, NAME, NEW_NAME};

use crate::{Error, Result};

/// The note in `dir`, if there is one.
///
/// # Errors
/// `Corruption` if it is damaged, `UnsupportedFormat` if a newer version wrote it. What the system said.
pub(crate) fn read(files: &dyn FileSystem, dir: &Path) -> Result<Option<Closed>> {
    let path = dir.join(NAME);
    let file = match files.open(&path) {
        Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
        file => file?,
    };
    // However long it is, one byte too many tells.
    let mut bytes = [0; LEN_BYTES + 1];
    let got = file.read_at(0, &mut bytes)?;
    let bytes = bytes.get(..got).unwrap_or_default();
    let decoded = Closed::decode(bytes);
    decoded.map(Some).map_err(|error| Error::decode(&path, 0, "reading what a log was when it was closed", error))
}

/// Leaves `closed` in `dir`, durably and at once. Both files are durable.
pub(crate) fn write(files: &dyn FileSystem, dir: &Path, closed: &Closed) -> Result<()> {
    let new = dir.join(NEW_NAME);
    files.write_atomically(&dir.join(NAME), &new, &closed.encode()).map_err(|error| {
        let _ = files.remove(&new);
        error.into()
    })
}

/// Takes the note away, durably (N2), wherever it lies: of two directories, now one may be the log's own and now the other.
pub(crate) fn forget(files: &dyn FileSystem, dirs: &[PathBuf]) -> Result<()> {
    dirs.iter().try_for_each(|dir| match files.remove(&dir.join(NAME)) {
        Err(error) if error.kind() != IoKind::NotFound => Err(error.into()),
        _ => Ok(files.sync_dir(dir)?),
    })
}
