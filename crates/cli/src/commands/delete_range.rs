//! `esker delete-range STORE BEGIN END`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use esker::WriteOptions;

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, open};

/// Remove all keys from one on and before another
///
/// However many they are, it is one write. Done as well if there is none, or if BEGIN and END are the same.
#[derive(Debug, Args)]
pub(crate) struct DeleteRange {
    /// The store's directory
    store: PathBuf,

    /// The first key to remove, whether it is there or not; after `--` if it begins with a dash
    begin: OsString,

    /// The key before which to stop: it stays
    end: OsString,

    #[command(flatten)]
    family: FamilyArgument,

    /// The keys are given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Wait until the removal survives power loss
    #[arg(long)]
    sync: bool,
}

impl DeleteRange {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let (begin, end) = (argument(self.begin, self.hex)?, argument(self.end, self.hex)?);
        let db = open(&self.store, false)?;
        let family = self.family.find(&db)?;
        db.delete_range_cf(&family, begin, end, &WriteOptions { sync: self.sync, ..WriteOptions::default() })?;
        db.close()?;
        Ok(Answer::Yes)
    }
}
