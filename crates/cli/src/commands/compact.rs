//! `esker compact STORE`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::Bytes;
use crate::stores::{FamilyArgument, open};

/// Move everything to the deepest level, dropping what is overwritten or deleted
#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The store's directory
    store: PathBuf,

    /// Only from this key on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Only up to this key, and it too
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
        let db = open(&self.store, false)?;
        let family = self.family.find(&db)?;
        let before = db.stats().on_disk.total_bytes();
        db.compact_range(&family, from.as_deref(), to.as_deref())?;
        let after = db.stats().on_disk.total_bytes();
        drop(family);
        db.close()?;
        if self.json {
            out.json(&json!({ "bytes_before": before, "bytes_after": after }))?;
        } else {
            out.line(format_args!("{} before, {} after", Bytes(before), Bytes(after)))?;
        }
        Ok(Answer::Yes)
    }
}
