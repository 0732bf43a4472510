//! `esker checkpoint STORE TARGET`

use std::path::PathBuf;

use clap::Args;
use esker::{CaskCopied, Copied, Error};
use serde_json::json;

use crate::Answer;
use crate::failure::{Failure, one_line};
use crate::kind::{Kind, has_files_of_a_db};
use crate::output::Output;
use crate::sizes::{Bytes, plural};
use crate::stores::{open, open_cask};

/// Make a copy of a Db or a Cask that shares its files by hard links: at once, and for no space until either changes
///
/// Nobody else may have the store open: a program that has makes its copies itself. For a Raft log, see `esker raft fork`.
#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The store's directory
    store: PathBuf,

    /// Where the copy goes: an empty directory, or none yet
    target: PathBuf,

    /// Print an object: files, bytes, linked, kept, copied_bytes, sequence (of a Cask: version), not_removed
    #[arg(long)]
    json: bool,
}

impl Checkpoint {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let made = match Kind::of(&self.store) {
            Some(Kind::Db) => self.copy_db()?,
            Some(Kind::Raft) => return Err(Kind::Raft.refuse(&self.store).into()),
            None if has_files_of_a_db(&self.store) => self.copy_db()?,
            Some(Kind::Cask) | None => self.copy_cask()?,
        };
        made.print(out, self.json)?;
        Ok(Answer::Yes)
    }

    fn copy_db(&self) -> Result<Made, Error> {
        let db = open(&self.store, false)?;
        let copied = db.checkpoint(&self.target)?;
        db.close()?;
        Ok(copied.into())
    }

    fn copy_cask(&self) -> Result<Made, Error> {
        let cask = open_cask(&self.store)?;
        let copied = cask.checkpoint(&self.target)?;
        cask.close()?;
        Ok(copied.into())
    }
}

/// What a copy of either is made of.
pub(super) struct Made {
    files: u64,
    bytes: u64,
    linked: u64,
    kept: u64,
    copied_bytes: u64,
    /// The last write in it, and what an engine calls its number.
    last: (&'static str, u64),
    not_removed: Vec<(PathBuf, Error)>,
}

impl From<Copied> for Made {
    fn from(copied: Copied) -> Self {
        let Copied { files, bytes, linked, kept, copied_bytes, sequence, not_removed, .. } = copied;
        Self { files, bytes, linked, kept, copied_bytes, last: ("sequence", sequence), not_removed }
    }
}

impl From<CaskCopied> for Made {
    fn from(copied: CaskCopied) -> Self {
        let CaskCopied { files, bytes, linked, kept, copied_bytes, version, not_removed, .. } = copied;
        Self { files, bytes, linked, kept, copied_bytes, last: ("version", version), not_removed }
    }
}

impl Made {
    pub(super) fn print(&self, out: &mut Output, as_json: bool) -> Result<(), Failure> {
        let Self { files, bytes, linked, kept, copied_bytes, last, not_removed } = self;
        if as_json {
            return out.json(&json!({
                "files": files,
                "bytes": bytes,
                "linked": linked,
                "kept": kept,
                "copied_bytes": copied_bytes,
                last.0: last.1,
                "not_removed": not_removed.iter().map(|(path, _)| path.to_string_lossy()).collect::<Vec<_>>(),
            }));
        }
        let (files, bytes, copied) = (plural(*files, "file", "files"), Bytes(*bytes), Bytes(*copied_bytes));
        out.line(format_args!("{files}, {bytes}: {linked} linked, {kept} kept, {copied} copied"))?;
        for (path, error) in not_removed {
            let text = format!("{} could not be removed: {error}", path.display());
            out.line(one_line(&text))?;
        }
        Ok(())
    }
}
