//! The regular files under a directory, in the order of their keys.
//!
//! Cost: one listing of each directory, one `lstat` per file, and about 20 bytes of memory a file beside its path.

use std::ffi::OsStr;
use std::fs::{DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, one_line};

/// What was found. Paths are bytes from the root on, one after another.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: PathBuf,
    paths: Vec<u8>,
    /// Where each file's path ends in `paths`.
    ends: Vec<usize>,
    /// Of all files, as they were then.
    pub(crate) bytes: u64,
    /// Symbolic links, sockets and other things that are no regular files.
    pub(crate) skipped: u64,
    pub(crate) problems: Problems,
}

/// What could not be read.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    pub(crate) count: u64,
    /// The first, on one line.
    pub(crate) first: Option<String>,
}

impl Problems {
    pub(crate) fn note(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        self.count += 1;
        self.first.get_or_insert_with(|| one_line(&format!("reading {}: {error}", path.display())));
    }
}

/// Which file a path means.
type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// A store below the directory is left out; of the store itself nothing would be left to import.
pub(crate) fn refuse_own_files(root: &Path, store: &Path) -> Result<(), Failure> {
    let identity_of = |path| std::fs::metadata(path).ok().map(|metadata| identity(&metadata));
    match identity_of(root) {
        Some(found) if identity_of(store) == Some(found) => {
            Err(Failure::new(format_args!("reading {}: this is the store itself", root.display())))
        }
        _ => Ok(()),
    }
}

/// Something of a directory that is still to be looked at.
struct Pending {
    path: Vec<u8>,
    is_dir: bool,
}

impl Tree {
    /// Walks through `root`, except for `store` if it lies in it.
    pub(crate) fn walk(root: &Path, store: &Path) -> Result<Self, Failure> {
        let metadata = std::fs::metadata(root).map_err(|error| Failure::io("reading", root, &error))?;
        if !metadata.is_dir() {
            return Err(Failure::new(format_args!("reading {}: not a directory", root.display())));
        }
        let store = std::fs::metadata(store).ok().map(|metadata| identity(&metadata));
        let mut tree = Self { root: root.to_owned(), ..Self::default() };
        let mut pending = vec![Pending { path: Vec::new(), is_dir: true }];
        while let Some(next) = pending.pop() {
            if next.is_dir {
                tree.list(&next.path, store, &mut pending);
            } else {
                tree.add(&next.path);
            }
        }
        Ok(tree)
    }

    /// How many files there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The path of a file from the root on.
    pub(crate) fn relative(&self, index: usize) -> &[u8] {
        let end = self.ends.get(index).copied().unwrap_or_default();
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.paths.get(start..end).unwrap_or_default()
    }

    /// The path of a file.
    pub(crate) fn path(&self, index: usize) -> PathBuf {
        self.absolute(self.relative(index))
    }

    fn absolute(&self, relative: &[u8]) -> PathBuf {
        if relative.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(relative)) }
    }

    fn list(&mut self, dir: &[u8], store: Option<Identity>, pending: &mut Vec<Pending>) {
        let path = self.absolute(dir);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => return self.problems.note(&path, &error),
        };
        let begin = pending.len();
        for entry in entries {
            match entry.and_then(|entry| look(dir, &entry, store)) {
                Ok(Some(found)) => pending.push(found),
                Ok(None) => self.skipped += 1,
                Err(error) => self.problems.note(&path, &error),
            }
        }
        if let Some(added) = pending.get_mut(begin..) {
            // Keys below a directory begin with its name and a slash. Reversed, as the last is looked at first.
            added.sort_by(|a, b| sort_key(b).cmp(sort_key(a)));
        }
    }

    fn add(&mut self, relative: &[u8]) {
        let path = self.absolute(relative);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) => {
                self.bytes += metadata.len();
                self.paths.extend_from_slice(relative);
                self.ends.push(self.paths.len());
            }
            Err(error) => self.problems.note(&path, &error),
        }
    }
}

fn sort_key(pending: &Pending) -> impl Iterator<Item = u8> + '_ {
    pending.path.iter().copied().chain(pending.is_dir.then_some(b'/'))
}

/// `None` for what is not imported.
fn look(dir: &[u8], entry: &DirEntry, store: Option<Identity>) -> std::io::Result<Option<Pending>> {
    let kind = entry.file_type()?;
    let is_store = || Ok::<_, std::io::Error>(store.is_some() && Some(identity(&entry.metadata()?)) == store);
    if !kind.is_file() && (!kind.is_dir() || is_store()?) {
        return Ok(None);
    }
    let mut path = dir.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(entry.file_name().as_bytes());
    Ok(Some(Pending { path, is_dir: kind.is_dir() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_order_of_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        for name in ["a/x", "a.b", "a0", "b/c/d", "b/c.d", "store/CURRENT"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "1234").unwrap();
        }
        std::os::unix::fs::symlink("a.b", dir.path().join("link")).unwrap();
        let tree = Tree::walk(dir.path(), &store).unwrap();
        let keys: Vec<_> = (0..tree.len()).map(|index| tree.relative(index)).collect();
        assert_eq!(keys, [&b"a.b"[..], b"a/x", b"a0", b"b/c.d", b"b/c/d"]);
        // The link, and the store itself.
        assert_eq!((tree.bytes, tree.skipped, tree.problems.count), (20, 2, 0));
    }
}
