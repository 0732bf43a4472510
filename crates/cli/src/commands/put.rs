//! `esker put STORE KEY VALUE`

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use esker::{CaskWriteOptions, WriteOptions};
use esker_format::limits::VALUE_BYTES_MAX;

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, is_cask, open, open_cask};

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

    /// How long the key lives; only in a Cask
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,

    /// Make the store, a Db, if there is none
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
        if is_cask(&self.store) {
            self.family.refuse_on_cask()?;
            let cask = open_cask(&self.store)?;
            let ttl = self.ttl.map(Duration::from_secs);
            cask.put_with(key, value, &CaskWriteOptions { sync: self.sync, ttl, stripe: None })?;
            cask.close()?;
            return Ok(Answer::Yes);
        }
        if self.ttl.is_some() {
            return Err(Failure::new("--ttl needs a Cask; see `esker create --kind cask`"));
        }
        let db = open(&self.store, self.create)?;
        let family = self.family.find(&db)?;
        db.put_cf(&family, key, value, &WriteOptions { sync: self.sync, ..WriteOptions::default() })?;
        db.close()?;
        Ok(Answer::Yes)
    }
}

fn read_value(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    // The store refuses what is longer, of which there may be no end.
    let bytes_max = VALUE_BYTES_MAX as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(bytes_max).read_to_end(&mut value)
    } else {
        File::open(path).and_then(|file| file.take(bytes_max).read_to_end(&mut value))
    };
    read.map_err(|error| Failure::io("reading", path, &error))?;
    Ok(value)
}
