//! `esker history STORE KEY`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::Answer;
use crate::encoding::{argument, escaped, hex};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::stores::open_cask_read_only;

/// Print the versions of a key that a Cask keeps, newest first: version, tab, value
///
/// How many are kept, `esker create --kind cask --keep-versions` says, or the program that opened the store last. Values are escaped
/// as those of `esker scan`; one as it is: `esker get --version`. Exit code 1 if there is no such key.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    /// The key is given, and values printed, in hexadecimal
    #[arg(long, conflicts_with = "json")]
    hex: bool,

    /// Print an object a line: version, value_hex
    #[arg(long)]
    json: bool,
}

impl History {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Db) => return Err(Failure::new("history: a Db keeps no versions of a key; a Cask does")),
            Some(Kind::Raft) => return Err(Kind::Raft.refuse(&self.store).into()),
            Some(Kind::Cask) | None => {}
        }
        let key = argument(self.key, self.hex)?;
        let versions = open_cask_read_only(&self.store)?.history(&key)?;
        for (version, value) in &versions {
            if self.json {
                out.json(&json!({ "version": version, "value_hex": hex(value) }))?;
                continue;
            }
            let value = if self.hex { hex(value) } else { escaped(value) };
            out.line(format_args!("{version}\t{value}"))?;
        }
        Ok(if versions.is_empty() { Answer::No } else { Answer::Yes })
    }
}
