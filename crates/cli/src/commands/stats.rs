//! `esker stats STORE`

mod cask;
mod json;
mod text;

use std::path::PathBuf;

use clap::Args;

use super::raft;
use crate::Answer;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::stores::open_read_only;

/// Show what a store is made of: levels, files, blobs, amplification, and what an open takes of memory
///
/// Reads the log, too, and shows what is only there as memtables. Keeps no writer out and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// The store's directory
    store: PathBuf,

    /// Print an object with everything
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Cask) => return cask::run(&self.store, self.json, out),
            Some(Kind::Raft) => return raft::stats(&self.store, self.json, out),
            Some(Kind::Db) | None => {}
        }
        let db = open_read_only(&self.store)?;
        let stats = db.stats();
        if self.json {
            out.json(&json::object(&stats))?
        } else {
            text::print(out, db.path(), &stats)?
        }
        Ok(Answer::Yes)
    }
}
