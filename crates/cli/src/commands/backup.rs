//! `esker backup STORE TARGET`

use std::path::PathBuf;

use clap::Args;
use esker::Error;

use super::checkpoint::Made;
use crate::Answer;
use crate::failure::Failure;
use crate::kind::{Kind, has_files_of_a_db};
use crate::output::Output;
use crate::progress::Progress;
use crate::stores::{open, open_cask};

/// Make a copy of a Db or a Cask that shares nothing with it, or bring an earlier one up to date
///
/// A backup is a store: to restore it, open it, or copy it back. It is checked as it is made, and where TARGET holds an
/// earlier one, only what is new is copied; for several in one directory, see `esker backups`. Nobody else may have the store open: a program that has makes its copies itself. For a
/// Raft log, see `esker raft fork`.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The store's directory
    store: PathBuf,

    /// Where the copy goes: an empty directory, none yet, or an earlier backup of the same store
    target: PathBuf,

    /// Print an object: files, bytes, linked, kept, copied_bytes, sequence (of a Cask: version), not_removed
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let made = match Kind::of(&self.store) {
            Some(Kind::Db) => self.back_up_db()?,
            Some(Kind::Raft) => return Err(Kind::Raft.refuse(&self.store).into()),
            None if has_files_of_a_db(&self.store) => self.back_up_db()?,
            Some(Kind::Cask) | None => self.back_up_cask()?,
        };
        made.print(out, self.json)?;
        Ok(Answer::Yes)
    }

    fn back_up_db(&self) -> Result<Made, Error> {
        let db = open(&self.store, false)?;
        let bar = Progress::begin("backing up", 0);
        let copied = db.backup(&self.target, &mut |progress| bar.set(progress.bytes_done, progress.bytes_total))?;
        drop(bar);
        db.close()?;
        Ok(copied.into())
    }

    fn back_up_cask(&self) -> Result<Made, Error> {
        let cask = open_cask(&self.store)?;
        let bar = Progress::begin("backing up", 0);
        let copied = cask.backup(&self.target, &mut |progress| bar.set(progress.bytes_done, progress.bytes_total))?;
        drop(bar);
        cask.close()?;
        Ok(copied.into())
    }
}
