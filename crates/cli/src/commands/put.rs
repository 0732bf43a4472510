//! `esker put STORE KEY VALUE`

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::WriteOptions;

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, open};

/// Set a key to a value
///
/// Done means that the write survives the death of any process; with --sync, power loss too.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    /// Its bytes
    #[arg(required_unless_present = "value_file", conflicts_with = "value_file")]
    value: Option<OsString>,

    /// Take the value from this file, or from standard input if it is `-`, as it is
    #[arg(long, value_name = "FILE")]
    value_file: Option<PathBuf>,

    #[command(flatten)]
    family: FamilyArgument,

    /// Key and value are given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Wait until the write survives power loss
    #[arg(long)]
    sync: bool,

    /// Make the store if there is none
    #[arg(long)]
    create: bool,
}

impl Put {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let key = argument(self.key, self.hex)?;
        let value = match (self.value, &self.value_file) {
            (Some(value), _) => argument(value, self.hex)?,
            (None, Some(path)) => read_value(path)?,
            (None, None) => return Err(Failure::new("a VALUE or --value-file is needed")),
        };
        let db = open(&self.store, self.create)?;
        let family = self.family.find(&db)?;
        db.put_cf(&family, key, value, &WriteOptions { sync: self.sync, ..WriteOptions::default() })?;
        db.close()?;
        Ok(Answer::Yes)
    }
}

fn read_value(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut value).map(drop)
    } else {
        std::fs::read(path).map(|bytes| value = bytes)
    };
    read.map_err(|error| Failure::io("reading", path, &error))?;
    Ok(value)
}
