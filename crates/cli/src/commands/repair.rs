//! `esker repair STORE`

use std::path::PathBuf;

use clap::Args;
use esker::Cask;
use serde_json::json;

use crate::Answer;
use crate::failure::{Failure, one_line};
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::{Bytes, plural};

/// Rebuild a Cask's manifest and hints from its data files alone
///
/// Data files with damage are copied without it and put aside as `.damaged`: nothing is thrown away. If the manifest itself is
/// lost, a key that was deleted may reappear. For a Raft log, see `esker raft repair`.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The store's directory
    store: PathBuf,

    /// Print an object: files, records, put_aside, damaged_bytes
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Cask) | None => (),
            Some(kind) => return Err(kind.refuse(&self.store).into()),
        }
        let done = Cask::repair(&self.store)?;
        if self.json {
            out.json(&json!({
                "files": done.files,
                "records": done.records,
                "put_aside": done.put_aside.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "damaged_bytes": done.damaged_bytes,
            }))?;
            return Ok(Answer::Yes);
        }
        let (records, files) = (plural(done.records, "record", "records"), plural(done.files, "file", "files"));
        out.line(format_args!("{records} in {files}"))?;
        for path in &done.put_aside {
            out.line(format_args!("put aside: {}", one_line(&path.display().to_string())))?;
        }
        if done.damaged_bytes > 0 {
            out.line(format_args!("{} were damaged and are lost", Bytes(done.damaged_bytes)))?;
        }
        Ok(Answer::Yes)
    }
}
