//! The directory of a set of backups: which names are in it, and how generations come and go.
//!
//! | name              | holds                                                                        |
//! |-------------------|------------------------------------------------------------------------------|
//! | `000012`          | the generation 12, a store ([`label`](super::label) tells it from others)     |
//! | `000012.gone`     | what is left of one that was deleted                                         |
//! | `UNFINISHED`      | what is left of one that did not come to be, or becomes one just now         |
//! | `LOCK`            | nothing; whoever changes the set has it locked                               |
//!
//! - G1: a generation gets its name when all of it is durable, and loses it, durably, before anything of it goes: under its name it is whole,
//!   wherever the machine dies.
//! - G2: the files of a generation are never written, cut or punched: another may have them, too. Who makes a generation has all others
//!   locked that it takes files from, so that nobody who has one open for writing makes holes in a file that had one name a moment ago.
//! - G3: a set is one store's. Other lives of it may come and go: what they do not share is copied.
//! - G4: nothing is removed but files of names that a store's directory has, of directories of the names above.
//! - G5: who reads a generation shares its directory, and who deletes it has that alone.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use esker_env::{DirEntry, FileKind, FileSystem, durable};
use esker_format::file_name::FileName;
use esker_log::copying::{Place, UNFINISHED as MARK};

use super::CopyProgress;
use super::generation::{Made, Source};
use super::label::{LABEL, Label};
use super::target::CHECKPOINT;
use crate::store::Store;
use crate::version::recover;
use crate::{Error, ErrorKind, Result};

pub(super) const LOCK: &str = "LOCK";
const UNFINISHED: &str = "UNFINISHED";
const GONE: &str = ".gone";

/// Its name in the set.
fn name_of(id: u64) -> String {
    format!("{id:06}")
}

/// The id of the generation of that name.
fn id_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|&id| id > 0 && name_of(id) == name)
}

pub(super) fn dir_of(set: &Path, id: u64) -> PathBuf {
    set.join(name_of(id))
}

/// What is in a set.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Oldest first.
    pub(super) ids: BTreeSet<u64>,
    /// Directories that mean nothing any more.
    left: Vec<PathBuf>,
}

impl Names {
    /// Nothing, if there is no such directory.
    ///
    /// # Errors
    /// `InvalidArgument` if there is something that is not a set's; what the system said.
    pub(super) fn read(files: &dyn FileSystem, set: &Path) -> Result<Self> {
        let entries = match files.list(set) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut names = Self::default();
        match entries.iter().find(|entry| !names.take(set, entry)) {
            None => Ok(names),
            Some(DirEntry { name, .. }) => {
                let all = entries.iter().map(|entry| entry.name.as_str());
                let reason = match FileName::are_of_a_store(all) {
                    true => {
                        "this is a store, not a set of backups; give a directory for that, empty or none yet".to_owned()
                    }
                    false => format!("holds {name:?}, which no set of backups has; give an empty or a new directory"),
                };
                Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(set))
            }
        }
    }

    /// Takes note of it, unless no set has such.
    fn take(&mut self, set: &Path, DirEntry { name, kind }: &DirEntry) -> bool {
        let is_left = name == UNFINISHED || name.strip_suffix(GONE).and_then(id_of).is_some();
        match (id_of(name), kind) {
            (Some(id), FileKind::Directory) => _ = self.ids.insert(id),
            (None, FileKind::Directory) if is_left => self.left.push(set.join(name)),
            (None, FileKind::File) if name == LOCK => {}
            (None, _) if name == durable::OF_THE_FILE_SYSTEM => {}
            _ => return false,
        }
        true
    }

    /// Where the generation is.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn find(&self, set: &Path, id: u64) -> Result<PathBuf> {
        match self.ids.contains(&id) {
            true => Ok(dir_of(set, id)),
            false => Err(no_such(set, id)),
        }
    }
}

fn no_such(set: &Path, id: u64) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no generation {id}")).with_path(set)
}

/// The set, with the right to change it.
pub(super) struct Set<'a> {
    files: &'a dyn FileSystem,
    place: Place<'a>,
    names: Names,
    /// Whether it stays one: a directory that was made for a generation that did not come to be goes.
    is_one: bool,
}

impl<'a> Set<'a> {
    /// One to make a generation in: made, if there is none.
    ///
    /// # Errors
    /// `Busy` if somebody else changes it; as [`Names::read`].
    pub(super) fn make(files: &'a dyn FileSystem, dir: &Path) -> Result<Self> {
        // Before anything is made: a stranger's directory gets no lock.
        Names::read(files, dir)?;
        let place = Place::take(files, dir)?;
        let mut set = Self { files, place, names: Names::default(), is_one: false };
        set.names = Names::read(files, dir)?;
        set.is_one = !set.names.ids.is_empty();
        Ok(set)
    }

    /// One that is there.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory; as [`make`](Self::make).
    pub(super) fn take(files: &'a dyn FileSystem, dir: &Path) -> Result<Self> {
        if !durable::is_there(files, dir)? {
            return Err(Error::new(ErrorKind::NotFound, "there is no set of backups").with_path(dir));
        }
        Self::make(files, dir)
    }

    fn dir(&self) -> &Path {
        self.place.dir()
    }

    pub(super) fn ids(&self) -> &BTreeSet<u64> {
        &self.names.ids
    }

    /// A new generation of `store`: its id, and what it is made of.
    pub(super) fn create(&mut self, store: &Store, progress: &mut dyn FnMut(CopyProgress)) -> Result<(u64, Made)> {
        self.refuse_other(store)?;
        self.clear()?;
        let newest = self.names.ids.last().copied().unwrap_or(0);
        let id = newest.checked_add(1).ok_or_else(|| {
            Error::new(ErrorKind::Exhausted, "there are no more numbers for generations").with_path(self.dir())
        })?;
        let unfinished = self.place.path_of(UNFINISHED);
        let mut made = store.make_generation(&unfinished, self.sources(), progress)?;
        let to = dir_of(self.dir(), id);
        if let Err(error) = self.settle(&unfinished, &to) {
            // What failed is told. Under another name nothing is a generation, and the next one takes away what is left.
            let is_named = durable::is_there(self.files, &to).unwrap_or(true);
            let _ = if is_named { self.remove(id) } else { remove_all(self.files, &unfinished) };
            return Err(error);
        }
        self.is_one = true;
        for (path, _) in &mut made.copied.not_removed {
            if let Ok(name) = path.strip_prefix(&unfinished) {
                *path = to.join(name);
            }
        }
        Ok((id, made))
    }

    /// G1. What is in `from` is durable.
    fn settle(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)?;
        Ok(self.files.sync_dir(self.dir())?)
    }

    /// See G3.
    fn refuse_other(&self, store: &Store) -> Result<()> {
        for &id in &self.names.ids {
            let dir = dir_of(self.dir(), id);
            let db_id = match Label::read(self.files, &dir) {
                Ok(label) => label.db_id,
                Err(error) if is_damage(&error) => match recover(self.files, &dir) {
                    Ok(recovered) => recovered.db_id,
                    // It is nobody's any more.
                    Err(error) if is_damage(&error) => continue,
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if db_id != store.db_id {
                let reason = format!("the set has generations of another store, {db_id}; choose another directory");
                return Err(Error::new(ErrorKind::Conflict, reason).with_path(self.dir()));
            }
        }
        Ok(())
    }

    /// Generations that files may be taken from, the newest first.
    fn sources(&self) -> Vec<Source> {
        self.names.ids.iter().rev().map(|&id| Source::new(dir_of(self.dir(), id))).collect()
    }

    /// Removes what attempts left that died.
    pub(super) fn clear(&mut self) -> Result<()> {
        if !self.names.left.is_empty() {
            // A power loss might bring back the name that something had before.
            self.files.sync_dir(self.dir())?;
        }
        std::mem::take(&mut self.names.left).iter().try_for_each(|dir| remove_all(self.files, dir))
    }

    /// Deletes a generation.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if somebody has it open; `InvalidArgument` if there is something in it that no generation has. After another one it
    /// may be there or not, and is whole if it is.
    pub(super) fn delete(&mut self, id: u64) -> Result<()> {
        let dir = self.names.find(self.dir(), id)?;
        files_of(self.files, &dir)?;
        let busy = |error: esker_env::Error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                Error::new(ErrorKind::Busy, "the generation is open; close it first").with_path(&dir).with_source(error)
            }
            _ => error.into(),
        };
        let _lock = self.files.lock(&dir.join(LOCK)).map_err(busy)?;
        let _alone = match self.files.claim_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            claimed => Some(claimed.map_err(busy)?),
        };
        self.remove(id)?;
        self.names.ids.remove(&id);
        Ok(())
    }

    /// See G1.
    fn remove(&self, id: u64) -> Result<()> {
        let gone = self.place.path_of(&format!("{}{GONE}", name_of(id)));
        self.settle(&dir_of(self.dir(), id), &gone)?;
        remove_all(self.files, &gone)
    }
}

impl Drop for Set<'_> {
    fn drop(&mut self) {
        if !self.is_one {
            // Why there is none was told. A directory too many is no harm, and one in which something is left stays.
            let _ = self.place.abandon();
        }
    }
}

/// Whether a file is not what it was, as opposed to one that cannot be read just now.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat | ErrorKind::NotFound)
}

/// Removes a directory that is no generation, or no more.
fn remove_all(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    for name in files_of(files, dir)? {
        files.remove(&dir.join(name))?;
    }
    Ok(files.remove_dir(dir)?)
}

/// Its files.
///
/// # Errors
/// See G4.
fn files_of(files: &dyn FileSystem, dir: &Path) -> Result<Vec<String>> {
    let entries = files.list(dir)?;
    let is_ours = |name: &str| FileName::parse(name).is_some() || [LABEL, MARK, CHECKPOINT].contains(&name);
    match entries.iter().find(|entry| entry.kind != FileKind::File || !is_ours(&entry.name)) {
        Some(DirEntry { name, .. }) => {
            let reason =
                format!("holds {name:?}, which no generation has; take it out, or remove the directory yourself");
            Err(Error::new(ErrorKind::InvalidArgument, reason).with_path(dir))
        }
        None => Ok(entries.into_iter().map(|entry| entry.name).collect()),
    }
}
