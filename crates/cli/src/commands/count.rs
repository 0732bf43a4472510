//! `esker count STORE`

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::failure::Failure;
use crate::output::Output;
use crate::ranges::RangeArguments;
use crate::stores::{FamilyArgument, open_read_only};

/// Count keys, one by one; values in blob files are not read
#[derive(Debug, Args)]
pub(crate) struct Count {
    /// The store's directory
    store: PathBuf,

    #[command(flatten)]
    range: RangeArguments,

    #[command(flatten)]
    family: FamilyArgument,

    /// Keys are given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Print an object: count
    #[arg(long)]
    json: bool,
}

impl Count {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let options = self.range.read_options(self.hex)?;
        let db = open_read_only(&self.store)?;
        let family = self.family.find(&db)?;
        let mut entries = db.iter_cf(&family, &options)?;
        let mut count = 0u64;
        entries.seek_to_first()?;
        while entries.valid() {
            count += 1;
            entries.next()?;
        }
        if self.json {
            out.json(&json!({ "count": count }))?
        } else {
            out.line(count)?
        }
        Ok(Answer::Yes)
    }
}
