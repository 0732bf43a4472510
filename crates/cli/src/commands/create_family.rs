//! `esker create-family STORE NAME`

use std::path::PathBuf;

use clap::Args;
use esker::FamilyOptions;

use crate::Answer;
use crate::failure::Failure;
use crate::stores::{NewFamilyChoices, open};

/// Make a column family
#[derive(Debug, Args)]
pub(crate) struct CreateFamily {
    /// The store's directory
    store: PathBuf,

    /// The column family's name
    name: String,

    #[command(flatten)]
    choices: NewFamilyChoices,
}

impl CreateFamily {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        let db = open(&self.store, false)?;
        db.create_column_family(&self.name, self.choices.apply(FamilyOptions::default()))?;
        db.close()?;
        Ok(Answer::Yes)
    }
}
