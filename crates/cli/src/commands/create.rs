//! `esker create STORE`

use std::path::PathBuf;

use clap::Args;
use esker::{Cask, CaskOptions, Db, FamilyOptions, Options, RaftLog};

use crate::Answer;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::stores::FamilyChoices;

/// Make an empty store
///
/// All other commands tell its kind by its files. The options are those of a Db's default column family.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The store's directory
    store: PathBuf,

    /// Which engine's store
    #[arg(long, value_enum, default_value = "db")]
    kind: Kind,

    #[command(flatten)]
    choices: FamilyChoices,
}

impl Create {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        if let Some(kind) = Kind::of(&self.store) {
            return Err(Failure::new(format_args!("{}: there is {kind} already", self.store.display())));
        }
        if self.kind != Kind::Db && self.choices.is_any() {
            return Err(Failure::new("--separation, --min-blob-size and compression are kept only in a Db"));
        }
        match self.kind {
            Kind::Db => {
                let mut options = Options { create_if_missing: true, error_if_exists: true, ..Options::default() };
                options.families.insert("default".to_owned(), self.choices.apply(FamilyOptions::default()));
                Db::open(&self.store, options)?.close()?;
            }
            Kind::Cask => {
                let options = CaskOptions { create_if_missing: true, error_if_exists: true, ..CaskOptions::default() };
                Cask::open(&self.store, options)?.close()?;
            }
            Kind::Raft => RaftLog::open(&self.store, esker::raft::Options::default()).and_then(|log| log.close())?,
        }
        Ok(Answer::Yes)
    }
}
