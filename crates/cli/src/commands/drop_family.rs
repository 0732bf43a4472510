//! `esker drop-family STORE NAME`

use std::path::PathBuf;

use clap::Args;

use crate::Answer;
use crate::failure::Failure;
use crate::stores::{find_family, open};

/// Drop a column family and all that is in it
#[derive(Debug, Args)]
pub(crate) struct DropFamily {
    /// The store's directory
    store: PathBuf,

    /// The column family's name
    name: String,
}

impl DropFamily {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let db = open(&self.store, false)?;
        let family = find_family(&db, &self.name)?;
        db.drop_column_family(&family)?;
        drop(family);
        db.close()?;
        Ok(Answer::Yes)
    }
}
