//! `esker count STORE`

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::cask_entries::CaskEntries;
use crate::failure::Failure;
use crate::output::Output;
use crate::ranges::RangeArguments;
use crate::stores::{FamilyArgument, is_cask, open_cask_read_only, open_read_only};

/// Count keys, one by one; values in blob files are not read
///
/// Of a Cask with damage, the keys that can be read are counted; what cannot be read is told, with exit code 1.
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
        let json = self.json;
        let (count, answer) = if is_cask(&self.store) { self.count_cask()? } else { (self.count_db()?, Answer::Yes) };
        if json {
            out.json(&json!({ "count": count }))?
        } else {
            out.line(count)?
        }
        Ok(answer)
    }

    fn count_db(self) -> Result<u64, Failure> {
        let db = open_read_only(&self.store)?;
        let family = self.family.find(&db)?;
        let options = self.range.read_options(&family, self.hex)?;
        let mut entries = db.iter_cf(&family, &options)?;
        let mut count = 0u64;
        entries.seek_to_first()?;
        while entries.valid() {
            count += 1;
            entries.next()?;
        }
        Ok(count)
    }

    fn count_cask(self) -> Result<(u64, Answer), Failure> {
        self.family.refuse_on_cask()?;
        let prefix = self.range.cask_prefix(self.hex)?;
        let cask = open_cask_read_only(&self.store)?;
        let mut entries = CaskEntries::of(&cask)?;
        let mut count = 0u64;
        while entries.advance()? {
            count += u64::from(entries.key().starts_with(&prefix));
        }
        Ok((count, entries.answer()))
    }
}
