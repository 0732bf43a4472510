//! `esker checkpoint STORE TARGET`

use std::path::PathBuf;

use clap::Args;
use esker::Copied;
use serde_json::json;

use crate::Answer;
use crate::failure::{Failure, one_line};
use crate::kind::Kind;
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

    /// Print an object: files, bytes, linked, kept, copied_bytes, sequence
    #[arg(long)]
    json: bool,
}

impl Checkpoint {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Db) => {
                let db = open(&self.store, false)?;
                let copied = db.checkpoint(&self.target)?;
                db.close()?;
                print(out, &copied, self.json)?;
            }
            Some(Kind::Raft) => return Err(Kind::Raft.refuse(&self.store).into()),
            Some(Kind::Cask) | None => {
                let cask = open_cask(&self.store)?;
                cask.checkpoint(&self.target)?;
                cask.close()?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// What a copy of a Db is made of.
pub(super) fn print(out: &mut Output, copied: &Copied, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out.json(&json!({
            "files": copied.files,
            "bytes": copied.bytes,
            "linked": copied.linked,
            "kept": copied.kept,
            "copied_bytes": copied.copied_bytes,
            "sequence": copied.sequence,
            "not_removed": copied.not_removed.iter().map(|(path, _)| path.to_string_lossy()).collect::<Vec<_>>(),
        }));
    }
    let files = plural(copied.files, "file", "files");
    out.line(format_args!(
        "{files}, {}: {} linked, {} kept, {} copied",
        Bytes(copied.bytes),
        copied.linked,
        copied.kept,
        Bytes(copied.copied_bytes),
    ))?;
    for (path, error) in &copied.not_removed {
        let text = format!("{} could not be removed: {error}", path.display());
        out.line(one_line(&text))?;
    }
    Ok(())
}
