//! Directories and copies of files that survive power loss: what every engine needs that makes a store, or another of one.
//!
//! - D1: a copy is synced when it is said to be there; its name is when its directory is synced.
//! - D2: a link shares its bytes with the file: only what never changes again may be linked.
//! - D3: a copy or a link that failed may have left a file, which is the caller's to remove.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::{Error, FileSystem, Result};

/// Read and written at once by a copy: whole pages.
const PIECE_BYTES: usize = 1 << 20;
/// No file system makes smaller holes that free anything.
const PAGE_BYTES: usize = 4 << 10;

/// A directory that a file system has in its root: no file of anybody's, so that a store may be made where one is mounted.
pub const OF_THE_FILE_SYSTEM: &str = "lost+found";

/// Whether `path` stands for anything.
///
/// # Errors
/// What the system said, unless that is that there is nothing.
pub fn is_there(files: &dyn FileSystem, path: &Path) -> Result<bool> {
    match files.metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The directory that `path` lies in, as a path that can be synced; `None` for the root.
pub fn parent(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Makes `dir` and what is missing above it, and all their names durable. A directory with nothing but the next one in it
/// may be what an attempt left that died, so its name counts as new, too.
///
/// # Errors
/// As the file system's; some of the directories may be there.
pub fn create_dir(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    let mut fresh = Vec::new();
    for ancestor in dir.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        match files.list(ancestor) {
            Ok(names) if names.len() > 1 => break,
            // Who may not look into it has not made it, nor what was in it before; and may not sync it either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fresh.pop_if(|(_, was_there)| *was_there);
                break;
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            listed => fresh.push((ancestor, listed.is_ok())),
        }
    }
    files.create_dir_all(dir)?;
    fresh.into_iter().filter_map(|(dir, _)| parent(dir)).try_for_each(|parent| files.sync_dir(parent))
}

/// Makes `to` of the first `len` bytes of `from`, durable but for its name (D1). `each` is told of every piece; what it
/// returns ends the copy. Where `from` has holes, pages of zeroes become holes of the copy, if its file system has such.
///
/// # Errors
/// `AlreadyExists` if the name is taken, `UnexpectedEof` if there is less, and what else the system said; what `each` said.
pub fn copy<E: From<Error>>(
    files: &dyn FileSystem,
    from: &Path,
    to: &Path,
    len: u64,
    mut each: impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let source = files.open(from)?;
    let metadata = files.metadata(from)?;
    let mut zeroes = (metadata.allocated < metadata.len).then(Vec::new);
    let copy = files.create(to)?;
    let mut piece = vec![0; usize::try_from(len).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    while copy.len() < len {
        let wanted = usize::try_from(len - copy.len()).unwrap_or(PIECE_BYTES).min(piece.len());
        let (part, _) = piece.split_at_mut(wanted);
        source.read_exact_at(copy.len(), part)?;
        if let Some(zeroes) = &mut zeroes {
            note_zeroes(copy.len(), part, zeroes);
        }
        copy.append(&[part])?;
        each(part)?;
    }
    copy.sync()?;
    drop(copy);
    match zeroes.map(|zeroes| files.punch_holes(to, &zeroes)) {
        Some(Err(error)) if error.kind() != io::ErrorKind::Unsupported => Err(error.into()),
        _ => Ok(()),
    }
}

/// Adds pages of `piece`, which begins at `offset`, that are all zeroes to `zeroes`, as ranges that are as long as can be.
fn note_zeroes(offset: u64, piece: &[u8], zeroes: &mut Vec<Range<u64>>) {
    let pages = piece.chunks_exact(PAGE_BYTES).zip((offset..).step_by(PAGE_BYTES));
    for (_, begin) in pages.filter(|(page, _)| page.iter().all(|&byte| byte == 0)) {
        let end = begin + PAGE_BYTES as u64;
        match zeroes.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => zeroes.push(begin..end),
        }
    }
}

/// Gives the file `from`, which never changes again, the second name `to` (D2). `false` where the system has no such thing for
/// the two places: between file systems, or where it is not allowed, or too often done.
///
/// # Errors
/// What else the system said.
pub fn link(files: &dyn FileSystem, from: &Path, to: &Path) -> Result<bool> {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    match files.link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether `a` and `b` are names of one file (D2); not if either is not there.
///
/// # Errors
/// What the system said.
pub fn is_same_file(files: &dyn FileSystem, a: &Path, b: &Path) -> Result<bool> {
    let identity = |path: &Path| match files.metadata(path) {
        Ok(found) => Ok((found.links > 1).then_some(found.identity)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    match identity(a)? {
        Some(found) => Ok(identity(b)? == Some(found)),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimDisk, Survivors};
    use crate::{ReadFile, os};
    use std::sync::Arc;

    fn file_of(files: &dyn FileSystem, path: &str, bytes: &[u8]) {
        let file = files.create(path.as_ref()).unwrap();
        file.append(&[bytes]).unwrap();
        file.sync().unwrap();
    }

    /// Wherever an attempt died, the next one leaves directories that the power does not take.
    #[test]
    fn a_directory_survives_power_loss_also_where_an_earlier_attempt_died() {
        for died_at in 0..6 {
            let disk = SimDisk::new();
            FileSystem::create_dir_all(&disk, "/data".as_ref()).unwrap();
            for name in ["/data/one", "/data/two"] {
                file_of(&disk, name, b"x");
            }
            for dir in ["/", "/data"] {
                FileSystem::sync_dir(&disk, dir.as_ref()).unwrap();
            }
            disk.die_after(disk.op_count() + died_at);
            let _ = create_dir(&disk, "/data/a/b/store".as_ref());
            let disk = disk.after_process_death();
            create_dir(&disk, "/data/a/b/store".as_ref()).unwrap();
            let disk = disk.after_power_loss(Survivors::Nothing);
            assert!(is_there(&disk, "/data/a/b/store".as_ref()).unwrap(), "died at {died_at}");
        }
    }

    #[test]
    fn a_copy_has_as_much_as_was_asked_for_and_survives_power_loss() {
        let disk = SimDisk::new();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        file_of(&disk, "/from", &bytes);
        let mut seen = 0;
        let each = |piece: &[u8]| {
            seen += piece.len();
            Ok::<_, Error>(())
        };
        copy(&disk, "/from".as_ref(), "/to".as_ref(), 2_500_000, each).unwrap();
        FileSystem::sync_dir(&disk, "/".as_ref()).unwrap();
        let disk = disk.after_power_loss(Survivors::Nothing);
        assert!(FileSystem::read(&disk, "/to".as_ref()).unwrap() == bytes[..2_500_000]);
        assert_eq!(seen, 2_500_000);
        let more = copy(&disk, "/to".as_ref(), "/more".as_ref(), 2_500_001, |_| Ok::<_, Error>(()));
        assert_eq!(more.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// What is given a second name is the file: a symbolic link of its own would lead nowhere once the file is gone.
    #[test]
    fn a_link_to_a_symbolic_link_is_one_to_the_file() {
        let files = os::env().files;
        let dir = tempfile::tempdir().unwrap();
        let (file, symbolic, to) = (dir.path().join("file"), dir.path().join("symbolic"), dir.path().join("to"));
        file_of(&*files, file.to_str().unwrap(), b"bytes");
        std::os::unix::fs::symlink(&file, &symbolic).unwrap();
        assert!(link(&*files, &symbolic, &to).unwrap());
        assert!(std::fs::symlink_metadata(&to).unwrap().is_file());
        assert_eq!(files.metadata(&file).unwrap().links, 2);
        files.remove(&file).unwrap();
        assert_eq!(files.read(&to).unwrap(), b"bytes");
    }

    #[test]
    fn a_copy_has_holes_where_the_file_has() {
        let dir = tempfile::tempdir().unwrap();
        for files in [os::env().files, SimDisk::new().env().files] {
            create_dir(&*files, dir.path()).unwrap();
            let (from, to) = (dir.path().join("from"), dir.path().join("to"));
            // Zeroes that nobody punched, a hole over two pieces and one at an end that fills no page.
            let mut bytes: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[0] | 1).collect();
            bytes[8192..50_000].fill(0);
            file_of(&*files, from.to_str().unwrap(), &bytes);
            let allocated = |path| files.metadata(path).unwrap().allocated;
            copy(&*files, &from, &to, 3_000_000, |_| Ok::<_, Error>(())).unwrap();
            assert!(allocated(&to) >= 3_000_000, "holes in a copy of a file that has none");
            files.remove(&to).unwrap();
            let holes = [500_000..2_500_000, 2_990_000..3_000_000];
            match files.punch_holes(&from, &holes) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => continue,
                punched => punched.unwrap(),
            }
            for hole in holes {
                bytes[hole.start as usize..hole.end as usize].fill(0);
            }
            copy(&*files, &from, &to, 3_000_000, |_| Ok::<_, Error>(())).unwrap();
            assert!(files.read(&to).unwrap() == bytes);
            assert!(allocated(&to) <= allocated(&from), "{} for {} bytes", allocated(&to), allocated(&from));
        }
    }

    #[test]
    fn what_cannot_be_linked_is_told_apart_from_what_failed() {
        let files = os::env().files;
        let dir = std::env::temp_dir().join(format!("esker-durable-{}", std::process::id()));
        create_dir(&*files, &dir).unwrap();
        let (from, to) = (dir.join("from"), dir.join("to"));
        file_of(&*files, from.to_str().unwrap(), b"bytes");
        assert!(link(&*files, &from, &to).unwrap());
        assert_eq!(files.metadata(&to).unwrap().links, 2);
        assert!(is_same_file(&*files, &from, &to).unwrap());
        assert!(!is_same_file(&*files, &from, &dir.join("none")).unwrap());
        assert_eq!(link(&*files, &from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(link(&*files, &dir.join("none"), &dir.join("x")).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Where there is another file system at hand.
        if files.space("/dev/shm".as_ref()).is_ok() {
            let elsewhere = Path::new("/dev/shm").join(format!("esker-durable-{}", std::process::id()));
            let linked = link(&*files, &from, &elsewhere).unwrap();
            if linked {
                files.remove(&elsewhere).unwrap();
            }
        }
        let file: Arc<dyn ReadFile> = files.open(&to).unwrap();
        assert_eq!(file.len().unwrap(), 5);
        for path in [from, to] {
            files.remove(&path).unwrap();
        }
        files.remove_dir(&dir).unwrap();
    }
}
