//! `esker stats STORE`

mod cask;
mod json;
mod text;

use std::path::PathBuf;

use clap::Args;

use crate::Answer;
use crate::failure::Failure;
use crate::output::Output;
use crate::stores::{is_cask, open_read_only};

/// Show what a store is made of: levels, files, blobs, amplification
///
/// Reads the log, too, and shows what is only there as memtables. Takes no lock and changes nothing.
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
        if is_cask(&self.store) {
            return cask::run(&self.store, self.json, out);
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
