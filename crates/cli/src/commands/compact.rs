//! `esker compact STORE`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::encoding::{argument, escaped};
use crate::failure::Failure;
use crate::output::Output;
use crate::ranges::refuse_reversed;
use crate::sizes::Bytes;
use crate::stores::{FamilyArgument, bytes_at_rest, is_cask, open, open_cask};

/// Move everything to the deepest level, or a Cask's files together, dropping what is overwritten or deleted
#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The store's directory
    store: PathBuf,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Only keys before this one; a table that has any of them is compacted whole
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,

    #[command(flatten)]
    family: FamilyArgument,

    /// Keys are given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Print an object: bytes_before, bytes_after
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let decode = |text: Option<OsString>| text.map(|text| argument(text, self.hex)).transpose();
        let (from, to) = (decode(self.from)?, decode(self.to)?);
        let (before, after) = if is_cask(&self.store) {
            self.family.refuse_on_cask()?;
            if from.is_some() || to.is_some() {
                return Err(Failure::new("--from and --to need keys in order; a Cask has none"));
            }
            let cask = open_cask(&self.store)?;
            let before = cask.stats().bytes;
            cask.compact()?;
            let after = cask.stats().bytes;
            cask.close()?;
            (before, after)
        } else {
            let before = bytes_at_rest(&self.store)?;
            let db = open(&self.store, false)?;
            let family = self.family.find(&db)?;
            refuse_reversed(&family, from.as_deref(), to.as_deref())?;
            if let Some(key) = from.as_deref().filter(|_| from == to) {
                let key = escaped(key);
                return Err(Failure::new(format_args!("--from {key} is --to {key}: there is no key between")));
            }
            // The engine's end is inclusive, and no key is the last one before `to`. Tables are compacted whole in any case.
            db.compact_range(&family, from.as_deref(), to.as_deref())?;
            drop(family);
            db.close()?;
            (before, bytes_at_rest(&self.store)?)
        };
        if self.json {
            out.json(&json!({ "bytes_before": before, "bytes_after": after }))?;
        } else {
            out.line(format_args!("{} before, {} after", Bytes(before), Bytes(after)))?;
        }
        Ok(Answer::Yes)
    }
}
