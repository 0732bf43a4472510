//! `esker backup STORE TARGET`

use std::path::PathBuf;

use clap::Args;

use crate::Answer;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::stores::open_cask;

/// Make a copy of a Cask that shares nothing with it
///
/// Nobody else may have the store open: a program that has makes its copies itself.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The store's directory
    store: PathBuf,

    /// Where the copy goes: an empty directory, or none yet
    target: PathBuf,
}

impl Backup {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(kind) if kind != Kind::Cask => return Err(kind.refuse(&self.store).into()),
            _ => (),
        }
        let cask = open_cask(&self.store)?;
        cask.backup(&self.target)?;
        cask.close()?;
        Ok(Answer::Yes)
    }
}
