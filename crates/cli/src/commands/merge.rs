//! `esker merge STORE KEY OPERAND`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use esker::WriteOptions;

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, is_cask, open};

/// Merge an operand into the value of a key, by the family's merge operator
///
/// The store says which operator that is (`esker create --merge-operator`); RocksDB's own are known. Done means that it survives the death of any
/// process; with --sync, power loss too.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    /// What is merged into its value; for uint64add 8 bytes, the lowest first
    operand: OsString,

    #[command(flatten)]
    family: FamilyArgument,

    /// Key and operand are given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Wait until the write survives power loss
    #[arg(long)]
    sync: bool,
}

impl Merge {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let (key, operand) = (argument(self.key, self.hex)?, argument(self.operand, self.hex)?);
        if is_cask(&self.store) {
            return Err(Failure::new("a Cask has no merge operators; `esker put` replaces a value"));
        }
        let db = open(&self.store, false)?;
        let family = self.family.find(&db)?;
        db.merge_cf(&family, key, operand, &WriteOptions { sync: self.sync, ..WriteOptions::default() })?;
        db.close()?;
        Ok(Answer::Yes)
    }
}
