//! The directory in which a store is made as a copy of another, until it is one. For all engines.
//!
//! - Y1: while a copy is made where there was none, the file [`UNFINISHED`] says so, durably, before there is any other: what
//!   a death leaves can be told from a store that lost its root, and the next copy takes it away.
//! - Y2: who gives a copy up removes what was made for it, the last first, so the mark last, once that is durable; what cannot be removed
//!   is told apart by it.
//!
//! The root of a store is the one file that makes a directory one: CURRENT of a Db, MANIFEST of a Cask. A Raft log has none: there the mark alone
//! tells.

use std::path::{Path, PathBuf};

use esker_env::{FileKind, FileSystem, Lock, durable};

use crate::{Error, ErrorKind, Result};

/// See Y1.
pub const UNFINISHED: &str = "UNFINISHED-COPY";
/// All engines' name for it.
const LOCK: &str = "LOCK";

/// Takes the mark away from a store in `dir`, durably: should its root be lost later, nobody shall take it for what a copy that died
/// has left, to be removed.
///
/// # Errors
/// What the system said.
pub fn remove_mark(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    let mark = dir.join(UNFINISHED);
    if durable::is_there(files, &mark)? {
        files.remove(&mark)?;
        files.sync_dir(dir)?;
    }
    Ok(())
}

/// Refuses a target that is there and is no directory.
///
/// # Errors
/// `InvalidArgument`; what the system said.
pub fn refuse_file(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    if durable::is_there(files, dir)? && files.metadata(dir)?.kind != FileKind::Directory {
        let reason = "this is a file; a copy goes to a directory, an empty one or none yet";
        return Err(Error::invalid_argument(reason).with_path(dir));
    }
    Ok(())
}

/// See the module's head. Its owner says whether the copy came to be, with [`finish`](Self::finish) or [`abandon`](Self::abandon).
#[derive(Debug)]
pub struct Place<'a> {
    files: &'a dyn FileSystem,
    dir: PathBuf,
    lock: Option<Box<dyn Lock>>,
    /// Whether there was nothing before.
    was_missing: bool,
    had_lock: bool,
    /// In the order in which they were begun.
    begun: Vec<PathBuf>,
}

impl<'a> Place<'a> {
    /// Makes the directory, and the right to it.
    ///
    /// # Errors
    /// `InvalidArgument` if it is no directory; `Busy` if somebody else has it; what the system said.
    pub fn take(files: &'a dyn FileSystem, dir: &Path) -> Result<Self> {
        refuse_file(files, dir)?;
        let was_missing = !durable::is_there(files, dir)?;
        let had_lock = durable::is_there(files, &dir.join(LOCK))?;
        durable::create_dir(files, dir)?;
        let lock = files.lock(&dir.join(LOCK)).map_err(|error| {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return error.into();
            }
            let reason = "the directory is in use; close what is open there, or choose another";
            Error::new(ErrorKind::Busy, reason).with_path(dir).with_source(error)
        });
        let (lock, failure) = match lock {
            Ok(lock) => (Some(lock), None),
            Err(error) => (None, Some(error)),
        };
        let mut place = Self { files, dir: dir.to_owned(), lock, was_missing, had_lock, begun: Vec::new() };
        match failure {
            Some(error) => {
                // What failed is told; a directory too many is no harm.
                let _ = place.abandon();
                Err(error)
            }
            None => Ok(place),
        }
    }

    /// Sees to it that nothing is in it but the mark (Y1). `root` is the name of the store's root; empty if it has none.
    ///
    /// # Errors
    /// `InvalidArgument` if there is something that no unfinished copy has left; what the system said.
    pub fn begin_empty(&mut self, root: &str) -> Result<()> {
        let names = self.names()?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let is_unfinished = has(UNFINISHED) && !has(root);
        if let Some(name) = names.iter().find(|name| *name != LOCK).filter(|_| !is_unfinished) {
            let reason = format!("holds {name:?}; give an empty or a new directory");
            return Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(&self.dir));
        }
        for name in names.iter().filter(|name| *name != LOCK && *name != UNFINISHED) {
            self.files.remove(&self.path_of(name))?;
        }
        let mark = self.path_of(UNFINISHED);
        self.begun.push(mark.clone());
        if !durable::is_there(self.files, &mark)? {
            self.files.create(&mark)?;
        }
        Ok(self.files.sync_dir(&self.dir)?)
    }

    /// What is in it, but for what a file system has in its root.
    ///
    /// # Errors
    /// What the system said.
    pub fn names(&self) -> Result<Vec<String>> {
        let names = self.files.list(&self.dir)?.into_iter().map(|entry| entry.name);
        Ok(names.filter(|name| name != durable::OF_THE_FILE_SYSTEM).collect())
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file in it.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A file of that name is about to be made: here. One that is there already is somebody else's, and never removed.
    ///
    /// # Errors
    /// What the system said.
    pub fn begin(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.path_of(name);
        if !durable::is_there(self.files, &path)? {
            self.begun.push(path.clone());
        }
        Ok(path)
    }

    /// The file of that name stays, whatever becomes of the copy.
    pub fn settle(&mut self, name: &str) {
        let path = self.path_of(name);
        self.begun.retain(|begun| *begun != path);
    }

    /// The copy is there and durable: takes the mark away.
    ///
    /// # Errors
    /// What the system said. Should it stay, it says nothing where there is a root.
    pub fn finish(&mut self) -> Result<()> {
        remove_mark(self.files, &self.dir)
    }

    /// Removes the root of the copy, durably, before anything that it names: it is unknown whether it is there.
    ///
    /// # Errors
    /// What the system said.
    pub fn remove_root(&mut self, root: &str) -> Result<()> {
        let path = self.path_of(root);
        if durable::is_there(self.files, &path)? {
            self.files.remove(&path)?;
            self.files.sync_dir(&self.dir)?;
        }
        Ok(())
    }

    /// See Y2.
    ///
    /// # Errors
    /// What the system said; the next copy goes on with it.
    pub fn abandon(&mut self) -> Result<()> {
        let mark = self.path_of(UNFINISHED);
        for path in self.begun.drain(..).rev() {
            if path == mark {
                self.files.sync_dir(&self.dir)?;
            }
            if durable::is_there(self.files, &path)? {
                self.files.remove(&path)?;
            }
        }
        // The name goes before the right does: who comes in between would have it by a name that is taken away.
        let lock = self.lock.take();
        if lock.is_some() && !self.had_lock {
            self.files.remove(&self.path_of(LOCK))?;
        }
        drop(lock);
        if self.was_missing {
            self.files.remove_dir(&self.dir)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_env::sim::SimDisk;

    #[test]
    fn what_was_there_before_stays_whatever_becomes_of_a_copy() {
        let disk = SimDisk::new();
        let files = disk.env().files;
        let dir = Path::new("/copy");
        durable::create_dir(&*files, dir).unwrap();
        files.create(&dir.join("MANIFEST-000014")).unwrap();
        let mut place = Place::take(&*files, dir).unwrap();
        assert!(files.create(&place.begin("MANIFEST-000014").unwrap()).is_err());
        files.create(&place.begin("000013.sst").unwrap()).unwrap();
        place.abandon().unwrap();
        assert_eq!(place.names().unwrap(), ["MANIFEST-000014"]);
    }
}
