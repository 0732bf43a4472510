//! `esker delete STORE KEY`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use esker::{CaskWriteOptions, WriteOptions};

use crate::Answer;
use crate::encoding::argument;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, is_cask, open, open_cask};

/// Remove a key; done as well if it is not there
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The store's directory
    store: PathBuf,

    /// Its bytes; after `--` if it begins with a dash
    key: OsString,

    #[command(flatten)]
    family: FamilyArgument,

    /// The key is given in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Wait until the removal survives power loss
    #[arg(long)]
    sync: bool,

    /// As RocksDB's SingleDelete: goes with the put that it cancels as soon as they meet. Only for a key that was put at most once since it was
    /// last removed, and not merged: any other may show an older value again
    #[arg(long)]
    single: bool,
}

impl Delete {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let key = argument(self.key, self.hex)?;
        if is_cask(&self.store) {
            self.family.refuse_on_cask()?;
            if self.single {
                return Err(Failure::new("--single is a Db's: a Cask has only one kind of deletion"));
            }
            let cask = open_cask(&self.store)?;
            cask.delete_with(key, &CaskWriteOptions { sync: self.sync, ttl: None, stripe: None })?;
            cask.close()?;
            return Ok(Answer::Yes);
        }
        let db = open(&self.store, false)?;
        let family = self.family.find(&db)?;
        let options = WriteOptions { sync: self.sync, ..WriteOptions::default() };
        if self.single {
            db.single_delete_cf(&family, key, &options)?;
        } else {
            db.delete_cf(&family, key, &options)?;
        }
        db.close()?;
        Ok(Answer::Yes)
    }
}
