//! `esker exists STORE KEY`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use esker::ReadOptions;
use serde_json::json;

use crate::Answer;
use crate::encoding::{argument, hex};
use crate::failure::Failure;
use crate::output::Output;
use crate::stores::{FamilyArgument, is_cask, open_cask_read_only, open_read_only};

/// Whether there is such a key: exit code 0 if there is, 1 if not. Its value is not read
#[derive(Debug, Args)]
pub(crate) struct Exists {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    #[command(flatten)]
    family: FamilyArgument,

    /// The key is given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Print an object: key_hex, exists
    #[arg(long)]
    json: bool,
}

impl Exists {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let key = argument(self.key, self.hex)?;
        let exists = if is_cask(&self.store) {
            self.family.refuse_on_cask()?;
            open_cask_read_only(&self.store)?.exists(&key)?
        } else {
            let db = open_read_only(&self.store)?;
            let family = self.family.find(&db)?;
            db.exists_cf(&family, &key, &ReadOptions::default())?
        };
        if self.json {
            out.json(&json!({ "key_hex": hex(&key), "exists": exists }))?;
        }
        Ok(if exists { Answer::Yes } else { Answer::No })
    }
}
