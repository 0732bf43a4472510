//! `esker set-options STORE`

use std::path::PathBuf;

use clap::Args;

use crate::Answer;
use crate::failure::Failure;
use crate::stores::{FamilyArgument, FamilyChoices, open};

/// Change how a column family keeps its values
///
/// What is not named stays as it is. What was written before follows as it is compacted.
#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    /// The store's directory
    store: PathBuf,

    #[command(flatten)]
    family: FamilyArgument,

    #[command(flatten)]
    choices: FamilyChoices,
}

impl SetOptions {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        if !self.choices.is_any() {
            return Err(Failure::new("nothing to change: name an option, see --help"));
        }
        let db = open(&self.store, false)?;
        db.set_options(&self.family.find(&db)?, |options| *options = self.choices.apply(options.clone()))?;
        db.close()?;
        Ok(Answer::Yes)
    }
}
