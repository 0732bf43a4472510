//! A generation of a set: a backup that takes what it can from those before it.
//!
//! - H1: a file of another generation is taken only if it has the bytes of the store's own: damage is handed on to no generation, nor is a file
//!   of another life of the store that has the same name and length. Where it has something in place of the store's holes, it is checked, too.
//! - H2: it is taken before it is compared: whoever makes holes in a file looks first whether it has one name.
//!
//! Cost: reads all tables and blob files of the store, and once those of the set that it shares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use esker_env::{FileKind, FileSystem, Lock, Metadata, durable};
use esker_format::file_name::FileName;

use super::label::{LABEL, Label};
use super::moment::Member;
use super::said::Said;
use super::same::{self, Likeness};
use super::set::LOCK;
use super::target::Target;
use super::{Copied, CopyProgress, Teller};
use crate::store::Store;
use crate::version::recover;
use crate::{Error, ErrorKind, Result};

/// A generation that files may be taken from.
pub(super) struct Source {
    dir: PathBuf,
    /// What its manifest says, once somebody asked.
    said: Option<Result<BTreeMap<FileName, Said>>>,
    lock: Claim,
}

/// The right to take files from a generation, which is asked for only where it has one to take: there may be more generations than a process may
/// have files open.
enum Claim {
    Unasked,
    /// Somebody has it open for writing.
    Refused,
    Held(#[expect(dead_code, reason = "held")] Box<dyn Lock>),
}

impl Source {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, said: None, lock: Claim::Unasked }
    }

    /// Whether nobody has it open for writing, from now on until this goes (G2 of [`set`](super::set)).
    fn is_ours(&mut self, files: &dyn FileSystem) -> Result<bool> {
        if matches!(self.lock, Claim::Unasked) {
            self.lock = match files.lock(&self.dir.join(LOCK)) {
                Ok(lock) => Claim::Held(lock),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Claim::Refused,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(matches!(self.lock, Claim::Held(_)))
    }

    /// What its manifest says of the file `name`; of a file that it does not name it says nothing.
    fn said(&mut self, files: &dyn FileSystem, name: &str) -> Result<Option<Said>> {
        let of_all = |dir: &Path| {
            let recovered = recover(files, dir)?;
            Ok(Said::of_store(&recovered)
                .flat_map(|said| said.names().into_iter().map(move |name| (name, said)))
                .collect())
        };
        let said = self.said.get_or_insert_with(|| of_all(&self.dir));
        match (said, FileName::parse(name)) {
            (Ok(said), Some(name)) => Ok(said.get(&name).copied()),
            (Ok(_), None) => Ok(None),
            (Err(error), _) => Err(error.clone()),
        }
    }
}

/// What was made.
pub(super) struct Made {
    pub(super) copied: Copied,
    pub(super) unix_seconds: u64,
    /// See [`NewBackup::damaged`](super::NewBackup).
    pub(super) damaged: Vec<Error>,
}

impl Store {
    /// A generation in `dir`, which is empty or not there, durable but for the name of the directory.
    pub(super) fn make_generation(
        &self,
        dir: &Path,
        mut sources: Vec<Source>,
        progress: &mut dyn FnMut(CopyProgress),
    ) -> Result<Made> {
        self.check_takes_writes()?;
        let mut target = Target::empty(&*self.env.files, dir)?;
        let moment = self.this_moment()?;
        moment.refuse_missing_blobs()?;
        let mut teller = Teller::of(&moment, progress);
        let (mut copied, mut damaged, mut missing) = (Copied::default(), Vec::new(), Vec::new());
        for member in moment.members() {
            match self.take_over(&member, &mut sources, &mut target, &mut teller, &mut damaged)? {
                true => copied.kept += 1,
                false => missing.push(member),
            }
        }
        self.copy_members(&moment, missing, &mut target, &mut teller, &mut copied)?;
        let copied = moment.describe(copied);
        let unix_seconds = self.env.clock.unix_seconds();
        let label = Label { unix_seconds, sequence: copied.sequence, db_id: self.db_id.clone() };
        target.write(LABEL, &label.encode())?;
        let mut copied = copied;
        self.complete(&moment, &mut target, &mut copied)?;
        Ok(Made { copied, unix_seconds, damaged })
    }

    /// Takes the file from one of `sources`, if one has it and there are links. What is wrong with files that were not taken goes to `damaged`.
    fn take_over(
        &self,
        member: &Member<'_>,
        sources: &mut [Source],
        target: &mut Target<'_>,
        teller: &mut Teller<'_>,
        damaged: &mut Vec<Error>,
    ) -> Result<bool> {
        let files = &*self.env.files;
        // A file that the store itself has may get holes once the store is done with this, and is no copy.
        let mut seen = vec![files.metadata(member.path())?.identity];
        for source in sources {
            let path = source.dir.join(member.name());
            let found = match files.metadata(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    damaged.push(error.into());
                    continue;
                }
            };
            let Metadata { kind, len, identity, .. } = found;
            if kind != FileKind::File || seen.contains(&identity) || !source.is_ours(files)? {
                continue;
            }
            seen.push(identity);
            let before = teller.at.bytes_done;
            if len == member.bytes() {
                let to = target.begin(member.name())?;
                if !durable::link(files, &path, &to)? {
                    return Ok(false);
                }
                let found = passable(self.is_good(member, &to, teller))?;
                if let Ok(true) = found {
                    return Ok(true);
                }
                files.remove(&to)?;
                teller.at.bytes_done = before;
                if let Err(error) = found {
                    // It has a name that stays, and that is the one to tell.
                    damaged.push(if error.path() == Some(&to) { error.with_path(&path) } else { error });
                    continue;
                }
            }
            // It is of another life, or not what it was.
            let said = source.said(files, member.name());
            let checked = said.and_then(|said| said.map_or(Ok(()), |said| self.check_file(&said, &path).map(drop)));
            damaged.extend(passable(checked)?.err());
        }
        Ok(false)
    }

    /// See H1. `path` is the other generation's file.
    fn is_good(&self, member: &Member<'_>, path: &Path, teller: &mut Teller<'_>) -> Result<bool> {
        match same::likeness(self, member, path, &mut |bytes| teller.advance(2 * bytes))? {
            Likeness::Same => Ok(true),
            Likeness::Fuller => self.check_file(&member.said(), path).map(|_| true),
            Likeness::Zeroed | Likeness::Another => Ok(false),
        }
    }
}

/// `result`, if what is wrong is the other generation's file: then the store's is copied.
fn passable<T>(result: Result<T>) -> Result<Result<T>> {
    match result {
        Err(error) if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound) => {
            Err(error)
        }
        result => Ok(result),
    }
}
