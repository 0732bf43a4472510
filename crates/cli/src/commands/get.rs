//! `esker get STORE KEY`

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

/// Print the value of a key: its bytes as they are, nothing added
///
/// Exit code 1 if there is no such key; nothing is printed then, and no file written.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    #[command(flatten)]
    family: FamilyArgument,

    /// The value that the write of this version gave the key, if it is kept; only in a Cask, see `esker history`
    #[arg(long, value_name = "NUMBER")]
    version: Option<u64>,

    /// Write the value to this file instead, as it is
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,

    /// The key is given, and the value printed as a line, in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Print an object: key_hex, value_hex
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let key = argument(self.key, self.hex)?;
        let found = if is_cask(&self.store) {
            self.family.refuse_on_cask()?;
            let cask = open_cask_read_only(&self.store)?;
            let value = self.version.map_or_else(|| cask.get(&key), |version| cask.get_version(&key, version))?;
            value.map(Vec::from)
        } else if self.version.is_some() {
            return Err(Failure::new("--version: a Db keeps no versions of a key; a Cask does"));
        } else {
            let db = open_read_only(&self.store)?;
            let family = self.family.find(&db)?;
            db.get_cf(&family, &key, &ReadOptions::default())?.map(|value| value.to_vec())
        };
        let Some(value) = found else { return Ok(Answer::No) };
        if let Some(path) = &self.out {
            std::fs::write(path, &value).map_err(|error| Failure::io("writing", path, &error))?;
        } else if self.json {
            out.json(&json!({ "key_hex": hex(&key), "value_hex": hex(&value) }))?;
        } else if self.hex {
            out.line(hex(&value))?;
        } else {
            out.bytes(&value)?;
        }
        Ok(Answer::Yes)
    }
}
