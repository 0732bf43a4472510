//! `esker raft dump STORE`, or one of its files

use std::path::PathBuf;

use clap::Args;

use super::LogArgument;
use crate::Answer;
use crate::commands::dump::raft::{Wanted, dump};
use crate::commands::dump::raft_file;
use crate::commands::dump::report::Report;
use crate::commands::dump::source::Source;
use crate::failure::Failure;
use crate::output::Output;

/// Print what the files of a log say, batch by batch
///
/// STORE is the log's directory, or one file of it, such as a repair keeps.
///
/// The rewrite queue first, then the append queue, each from its oldest file on: in the order in which they are replayed.
/// What is overwritten or compacted is printed, too. Damage is printed where it is; the exit code is 1 then. Long values
/// are shortened, except with --json. Takes no lock and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    log: LogArgument,

    /// Only what concerns these groups
    #[arg(long, visible_alias = "raft-groups", value_name = "GROUP", value_delimiter = ',')]
    group: Vec<u64>,

    /// Only these files, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    file: Vec<PathBuf>,

    /// Print which entries and keys there are; no bytes, no metadata
    #[arg(long)]
    keys_only: bool,

    /// Print at most so many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// Print an object a line
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let files = self.files()?;
        let mut report = Report::new(out, self.json, self.keys_only, self.limit);
        for (path, is_last) in files {
            if report.is_over() {
                break;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            report.begin_file(&name)?;
            dump(&Source::open(&path)?, Wanted { id: raft_file(&path), groups: &self.group, is_last }, &mut report)?;
        }
        Ok(if report.is_damaged() { Answer::No } else { Answer::Yes })
    }

    /// What to print, and whether it is the last of its queue.
    fn files(&self) -> Result<Vec<(PathBuf, bool)>, Failure> {
        let store = &self.log.store;
        if self.file.is_empty() && raft_file(store).is_some() && store.is_file() {
            return Ok(vec![(store.clone(), false)]);
        }
        self.log.expect()?;
        let files = self.log.inspect()?.files;
        let is_last = |id: esker::raft::FileId| {
            !files.iter().any(|other| other.id.queue == id.queue && other.id.sequence > id.sequence)
        };
        let found: Vec<(PathBuf, bool)> = files
            .iter()
            .filter(|file| {
                self.file.is_empty() || self.file.iter().any(|name| name.as_os_str() == file.id.to_string().as_str())
            })
            .map(|file| (file.path.clone(), is_last(file.id)))
            .collect();
        match self.file.iter().find(|name| !files.iter().any(|file| name.as_os_str() == file.id.to_string().as_str())) {
            Some(missing) => Err(Failure::new(format_args!(
                "{}: there is no file {} in use; see `esker raft stats --files`",
                self.log.store.display(),
                missing.display()
            ))),
            None => Ok(found),
        }
    }
}
