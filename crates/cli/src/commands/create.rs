//! `esker create STORE`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use esker::{Cask, CaskOptions, Db, FamilyOptions, Options, RaftLog};
use esker_format::raft::file_name::LOCK;

use crate::Answer;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::stores::{self, NewFamilyChoices};

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

    /// Versions of each key that a Cask keeps, the newest included; see `esker history` [default: 1]
    #[arg(long, value_name = "COUNT")]
    keep_versions: Option<usize>,

    #[command(flatten)]
    choices: NewFamilyChoices,
}

impl Create {
    pub(crate) fn run(self) -> Result<Answer, Failure> {
        if let Some(kind) = Kind::of(&self.store) {
            return Err(Failure::new(format_args!("{}: there is already {kind}", self.store.display())));
        }
        if self.kind != Kind::Db && self.choices.is_any() {
            return Err(Failure::new(
                "--separation, --min-blob-size, --merge-operator, --comparator and compression are kept only in a Db",
            ));
        }
        if self.kind != Kind::Cask && self.keep_versions.is_some() {
            return Err(Failure::new("--keep-versions needs --kind cask"));
        }
        // To the engine, 0 means as many as so far.
        if self.keep_versions == Some(0) {
            return Err(Failure::new("--keep-versions is at least 1: the newest is one of them"));
        }
        match self.kind {
            Kind::Db => {
                let mut options = Options { create_if_missing: true, error_if_exists: true, ..stores::options() };
                options.families.insert("default".to_owned(), self.choices.apply(FamilyOptions::default()));
                Db::open(&self.store, options)?.close()?;
            }
            Kind::Cask => {
                let keep_versions = self.keep_versions.unwrap_or(1);
                let (create_if_missing, error_if_exists) = (true, true);
                let options =
                    CaskOptions { create_if_missing, error_if_exists, keep_versions, ..CaskOptions::default() };
                Cask::open(&self.store, options)?.close()?;
            }
            Kind::Raft => {
                self.expect_empty()?;
                RaftLog::open(&self.store, esker::raft::Options::default()).and_then(|log| log.close())?;
            }
        }
        Ok(Answer::Yes)
    }

    /// A Raft log opens among other files, as raft-engine's does; whoever makes one by hand may have mistaken the directory. The other engines
    /// see to it themselves.
    fn expect_empty(&self) -> Result<(), Failure> {
        let Ok(entries) = std::fs::read_dir(&self.store) else { return Ok(()) };
        // The root of a file system may be a store, and one that was not finished left its lock.
        let is_strange = |name: &OsString| name != "lost+found" && name != LOCK;
        match entries.flatten().map(|entry| entry.file_name()).find(is_strange) {
            Some(stranger) => Err(Failure::new(format_args!(
                "{}: is no store and holds {stranger:?}; give an empty or a new directory",
                self.store.display()
            ))),
            None => Ok(()),
        }
    }
}
