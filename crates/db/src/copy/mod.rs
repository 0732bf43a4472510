//! Copies of a store at work: a checkpoint shares its files, a backup has its own, and generations of backups share theirs with each other ([`set`]).
//!
//! - C1: a copy is one moment: everything in it was written before everything that is not, in all column families.
//! - C2: it consists of tables and blob files, which change no more, and of what names them. It has no logs, so RocksDB reads
//!   it whatever [`Separation`](crate::Separation) is in force.
//! - C3: CURRENT comes last, when all else is durable: until then the target is no store, or still the backup that it was.
//! - C4: what a version has is on the disk as long as somebody holds the version ([`crate::version`]), and [`Moment`] does.
//! - C5: a copy that failed takes away what it made. One that died leaves a file that says so ([`Target`]).

mod backups;
mod generation;
mod label;
mod moment;
mod restore;
mod said;
mod same;
mod set;
pub(crate) mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_env::durable;
use esker_format::file_name::FileName;

pub use self::backups::{BackupInfo, Backups, NewBackup};
use self::moment::{Member, Moment};
use self::said::Said;
use self::same::Likeness;
use self::target::Target;
use crate::store::Store;
use crate::version::{prepare_new, set_current};
use crate::{Error, ErrorKind, Result};

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Bytes copied, and read again to be checked.
    pub bytes_done: u64,
    /// Bytes to copy and to read again.
    pub bytes_total: u64,
}

/// What a copy of a store is made of.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Copied {
    /// Tables and blob files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that it shares with the store.
    pub linked: u64,
    /// Files that were in an earlier backup.
    pub kept: u64,
    /// Bytes that were written for it.
    pub copied_bytes: u64,
    /// The last sequence number in it: everything up to it is there.
    pub sequence: u64,
    /// Files of an earlier backup that could not be removed, and why; the next backup tries again. Or the mark of an unfinished
    /// copy: it means nothing any more, and goes when the copy is opened for writing.
    pub not_removed: Vec<(PathBuf, Error)>,
}

/// What is told of a copy while it goes on.
struct Teller<'a> {
    progress: &'a mut dyn FnMut(CopyProgress),
    at: CopyProgress,
}

impl<'a> Teller<'a> {
    /// Of a copy of all of `moment`: each byte is copied, or found, and read again.
    fn of(moment: &Moment<'_>, progress: &'a mut dyn FnMut(CopyProgress)) -> Self {
        Self::of_bytes(moment.members().map(|member| member.bytes()).sum(), progress)
    }

    fn of_bytes(bytes: u64, progress: &'a mut dyn FnMut(CopyProgress)) -> Self {
        let mut teller = Self { progress, at: CopyProgress { bytes_done: 0, bytes_total: 2 * bytes } };
        teller.advance(0);
        teller
    }

    fn advance(&mut self, bytes: u64) {
        self.at.bytes_done += bytes;
        (self.progress)(self.at);
    }
}

impl Store {
    /// See [`Db::checkpoint`](crate::Db::checkpoint).
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<Copied> {
        self.check_takes_writes()?;
        let mut target = Target::for_checkpoint(self, to)?;
        let moment = self.this_moment()?;
        let mut copied = Copied::default();
        for member in moment.members() {
            let path = target.begin(member.name())?;
            if durable::link(&*self.env.files, member.path(), &path)? {
                copied.linked += 1;
            } else {
                self.copy_file(member.path(), &path, member.bytes(), &mut |_| ())?;
                copied.copied_bytes += member.bytes();
            }
        }
        self.complete(&moment, &mut target, &mut copied)?;
        Ok(moment.describe(copied))
    }

    /// See [`Db::backup`](crate::Db::backup).
    pub(crate) fn backup(&self, to: &Path, progress: &mut dyn FnMut(CopyProgress)) -> Result<Copied> {
        self.check_takes_writes()?;
        let mut target = Target::for_backup(self, to)?;
        let moment = self.this_moment()?;
        moment.refuse_missing_blobs()?;
        let mut teller = Teller::of(&moment, progress);
        let mut copied = Copied::default();
        // First what there is: a conflict is told before anything is touched.
        let mut missing = Vec::new();
        for member in moment.members() {
            match self.is_kept(&member, &target, &mut teller)? {
                true => copied.kept += 1,
                false => missing.push(member),
            }
        }
        target.clear()?;
        self.copy_members(&moment, missing, &mut target, &mut teller, &mut copied)?;
        self.complete(&moment, &mut target, &mut copied)?;
        let names: BTreeSet<_> = moment.members().map(|member| member.name().to_owned()).collect();
        copied.not_removed.extend(target.remove_others(&names)?);
        Ok(moment.describe(copied))
    }

    /// Copies of files of the moment that the target lacks, or has damaged.
    fn copy_members(
        &self,
        moment: &Moment<'_>,
        missing: Vec<Member<'_>>,
        target: &mut Target<'_>,
        teller: &mut Teller<'_>,
        copied: &mut Copied,
    ) -> Result<()> {
        let mut passed_over = BTreeMap::new();
        for member in missing {
            let path = target.begin_file(member.name())?;
            self.copy_file(member.path(), &path, member.bytes(), &mut |bytes| teller.advance(bytes))?;
            let holed = self.check_file(&member.said(), &path).map_err(|error| self.whose_damage(&member, error))?;
            if let Some(number) = member.blob_number().filter(|_| !holed.is_empty()) {
                passed_over.insert(number, holed);
                // The one in whose place it comes goes now.
                if target.said(member.name()).is_some() {
                    moment.refuse_lost_values(&passed_over)?;
                    passed_over.clear();
                }
            }
            target.settle_file(member.name(), &path)?;
            teller.advance(member.bytes());
            copied.copied_bytes += member.bytes();
        }
        moment.refuse_lost_values(&passed_over)
    }

    /// What is told of a copy that is damaged: the file that it was made of, if that is what has the damage.
    fn whose_damage(&self, member: &Member<'_>, error: Error) -> Error {
        if error.kind() != ErrorKind::Corruption {
            return error;
        }
        self.check_file(&member.said(), member.path()).err().unwrap_or(error)
    }

    /// Whether the earlier backup has this file, and as good as this one.
    ///
    /// # Errors
    /// `Conflict` if it has another of this name.
    fn is_kept(&self, member: &Member<'_>, target: &Target<'_>, teller: &mut Teller<'_>) -> Result<bool> {
        let Some(said) = target.said(member.name()) else { return Ok(false) };
        let path = target.path_of(member.name());
        let before = teller.at.bytes_done;
        let likeness = same::likeness(self, member, &path, &mut |bytes| teller.advance(2 * bytes))?;
        if likeness <= Likeness::Fuller {
            return Ok(true);
        }
        teller.at.bytes_done = before;
        // Which of the two is to blame? Theirs need not be this one: it is damaged if it is not what its own manifest says.
        self.check_file(&member.said(), member.path())?;
        match self.check_file(said, &path) {
            // Sectors that it lost look like the holes of dead values, and the store has what was there.
            Ok(_) if likeness == Likeness::Zeroed => Ok(false),
            Ok(_) => {
                let reason = "the backup has another file of this name: it, or the store, went on by itself since they were \
                    one; choose another directory";
                Err(Error::new(ErrorKind::Conflict, reason).with_path(&path))
            }
            Err(error) if error.kind() == ErrorKind::Corruption => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A copy of `bytes` at `from`, which ends with the store.
    fn copy_file(&self, from: &Path, to: &Path, bytes: u64, each: &mut dyn FnMut(u64)) -> Result<()> {
        durable::copy(&*self.env.files, from, to, bytes, |piece| {
            each(piece.len() as u64);
            self.check_open()
        })
        .map_err(|error: Error| error.while_doing("copying a file of the store"))
    }

    /// All checksums of what is at `path`, of which a manifest says `said`; what was passed over, as it has holes.
    fn check_file(&self, said: &Said, path: &Path) -> Result<Vec<Range<u64>>> {
        let checked = said.check(self.env.files.open(path)?, &mut || self.check_open());
        checked.map_err(|error| error.while_doing("checking a file of a backup"))
    }

    /// Everything that makes a store of the files (C3).
    fn complete(&self, moment: &Moment<'_>, target: &mut Target<'_>, copied: &mut Copied) -> Result<()> {
        let files = &*self.env.files;
        if !durable::is_there(files, &target.path_of(&FileName::Identity.to_string()))? {
            target.write(&FileName::Identity.to_string(), self.db_id.as_bytes())?;
        }
        target.write_options(self.new_file_number(), moment.options().as_bytes())?;
        let number = self.new_file_number();
        target.begin(&FileName::Manifest(number).to_string())?;
        prepare_new(files, target.dir(), number, &moment.edits())?;
        target.begin(&FileName::Temporary(number).to_string())?;
        target.will_be_current();
        set_current(files, target.dir(), number)?;
        copied.not_removed.extend(target.keep(number));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
