//! `esker import STORE --files DIR`, `esker import STORE --jsonl FILE --key FIELD`, `esker import STORE --entries FILE`

mod ahead;
mod files;
mod lines;
mod loader;
mod read_back;
mod summary;
mod target;
mod tree;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use esker::{Cask, CaskOptions, Error, ErrorKind, FamilyOptions, Options};

use self::lines::Form;
use self::target::Target;
use crate::Answer;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::parse_bytes;
use crate::stores::{self, NewFamilyChoices, open_read_only, open_with, warn_of_damage};

/// Load a directory tree, lines of JSON, or what `scan --json` printed; makes the store if there is none
///
/// With --files, each regular file under DIR becomes an entry: the key is its path from DIR on, with `/` between names,
/// the value its bytes. Symbolic links are not followed. Afterwards every key is read back and compared with its file;
/// exit code 1 if one differs and its file did not change meanwhile. A file that cannot be read is left out, and told at
/// the end with exit code 2.
///
/// With --jsonl, each line is an object; the key is one of its fields, the value is the line. Nothing behind a line that
/// is not so is imported.
///
/// With --entries, each line is an object as `esker scan --json` prints it, of any store: `esker scan OLD --json | esker import NEW --entries -`.
/// What ends at a time (expires_at) goes into a Cask only, and is left out if that is over.
///
/// With --sorted, keys must ascend, each once, as the paths of --files do. They go straight into tables and blob files, past
/// log and memory, at the speed of the device, and take effect all at once: after an error, or an interruption, nothing
/// of them is there.
///
/// What an interrupted import has written so far is a whole store.
///
/// What --separation, --min-blob-size, --compression and --blob-compression choose becomes the column family's own, also of a store
/// that is there: it holds for all that is written from now on, by whoever opens it.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["files", "jsonl", "entries"]))]
pub(crate) struct Import {
    /// The store's directory
    store: PathBuf,

    /// Import the regular files under this directory
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,

    /// Import the lines of this file, or of standard input if it is `-`
    #[arg(long, value_name = "FILE", requires = "key")]
    jsonl: Option<PathBuf>,

    /// The field of each line that is its key: a string, or a number as it is spelt
    #[arg(long, value_name = "FIELD", requires = "jsonl")]
    key: Option<String>,

    /// Import what `esker scan --json` has printed to this file, or to standard input if it is `-`
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,

    /// Put this before each key
    #[arg(long, default_value = "")]
    prefix: std::ffi::OsString,

    /// Which engine's store [default: what is there, else db]
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    /// Column family; made if there is none
    #[arg(long = "cf", alias = "column_family", value_name = "NAME", default_value = "default")]
    family: String,

    #[command(flatten)]
    choices: NewFamilyChoices,

    /// The keys ascend: write tables and blob files at once, and install all of them at the end or nothing
    #[arg(long, conflicts_with_all = ["sync", "batch_bytes"])]
    sorted: bool,

    /// Write small values together until they have so many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1MiB")]
    batch_bytes: u64,

    /// Wait after each batch until it survives power loss
    #[arg(long)]
    sync: bool,

    /// How long each key lives that says nothing else; only in a Cask
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,

    /// Do not read back what was imported
    #[arg(long)]
    no_read_back: bool,

    /// Print the summary as an object
    #[arg(long)]
    json: bool,
}

impl Import {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match (&self.files, &self.jsonl, &self.key, &self.entries) {
            (Some(dir), _, _, _) => files::import(&self, dir, out),
            (_, Some(file), Some(field), _) => lines::import(&self, file, &Form::Object { field }, out),
            (_, _, _, Some(file)) => lines::import(&self, file, &Form::Entry, out),
            _ => Err(Failure::new("--files DIR, --jsonl FILE and --key FIELD, or --entries FILE are needed")),
        }
    }

    /// The store, and the family if it has such, with what was chosen, each made if it is missing.
    fn open(&self) -> Result<Target, Failure> {
        let kind = Kind::asked_or_there(self.kind, &self.store)?;
        if kind == Kind::Cask {
            return self.open_cask();
        }
        if kind == Kind::Raft {
            return Err(Failure::new(format_args!(
                "{}: this command does not work on a Raft log, which has groups of entries, no keys and values; see `esker raft`",
                self.store.display()
            )));
        }
        if self.ttl.is_some() {
            return Err(Failure::new("--ttl needs a Cask; see --kind"));
        }
        let name = &self.family;
        let mut options = Options { create_if_missing: true, ..stores::options_of(&self.store)? };
        let chosen = match self.present_options()? {
            Some(present) => self.choices.apply_to_present(present)?,
            None => self.choices.apply(FamilyOptions::default()),
        };
        if self.choices.is_any() {
            options.families.insert(name.clone(), chosen.clone());
        }
        let db = open_with(&self.store, options)?;
        let family = match db.column_family(name) {
            Some(family) => family,
            None => db.create_column_family(name, chosen)?,
        };
        Ok(Target::Db { db, family })
    }

    fn open_cask(&self) -> Result<Target, Failure> {
        if self.family != "default" {
            return Err(Failure::new("--cf names a column family; a Cask has none"));
        }
        if self.sorted {
            return Err(Failure::new("--sorted: a Cask keeps its keys in no order, and takes them as they come"));
        }
        let compression = self.choices.of_cask()?;
        let default_ttl = self.ttl.map(Duration::from_secs);
        let options = CaskOptions { create_if_missing: true, compression, default_ttl, ..CaskOptions::default() };
        Ok(Target::Cask(Cask::open(&self.store, options).inspect(warn_of_damage)?))
    }

    /// What the family has now, so that what is not chosen stays as it is; `None` if there is no such family yet.
    fn present_options(&self) -> Result<Option<FamilyOptions>, Error> {
        if !self.choices.is_any() {
            return Ok(None);
        }
        match open_read_only(&self.store) {
            Ok(db) => Ok(db.column_family(&self.family).map(|family| (*family.options()).clone())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn loader<'a>(&self, target: &'a Target) -> Result<loader::Loader<'a>, Failure> {
        match target {
            Target::Db { db, family } if self.sorted => Ok(loader::Loader::sorted(db.bulk_load(family)?)),
            _ => Ok(loader::Loader::new(target, self.sync, self.batch_bytes)),
        }
    }
}
