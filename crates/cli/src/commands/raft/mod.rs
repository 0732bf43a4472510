//! `esker raft …`: what there is to do with a Raft log.

mod check;
mod dump;
mod purge;
mod repair;
mod stats;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker::RaftLog;
use esker::raft::{Cut, Inspection, Options, RecoveryMode};
use serde_json::{Value, json};

use crate::Answer;
use crate::failure::{Failure, one_line};
use crate::kind::Kind;
use crate::output::Output;

/// Look at, check and mend a Raft log: Esker's, or one that raft-engine has written
#[derive(Debug, Args)]
pub(crate) struct Raft {
    #[command(subcommand)]
    command: RaftCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum RaftCommand {
    Dump(dump::Dump),
    Check(check::Check),
    Repair(repair::Repair),
    Purge(purge::Purge),
    Stats(stats::Stats),
}

impl Raft {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match self.command {
            RaftCommand::Dump(command) => command.run(out),
            RaftCommand::Check(command) => command.run(out),
            RaftCommand::Repair(command) => command.run(out),
            RaftCommand::Purge(command) => command.run(out),
            RaftCommand::Stats(command) => command.run(out),
        }
    }
}

/// Which log.
#[derive(Debug, Args)]
struct LogArgument {
    /// The log's directory
    store: PathBuf,

    /// Where its files go when that is full
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
}

impl LogArgument {
    /// How to open it, with `mode`.
    fn options(&self, mode: RecoveryMode) -> Options {
        Options { spill_dir: self.spill_dir.clone(), recovery_mode: mode, ..Options::default() }
    }

    /// Refuses what is no Raft log.
    fn expect(&self) -> Result<(), Failure> {
        match Kind::of(&self.store) {
            Some(kind) if kind != Kind::Raft => Err(kind.refuse(&self.store).into()),
            _ => Ok(()),
        }
    }

    /// What is in it, without a lock.
    fn inspect(&self) -> Result<Inspection, Failure> {
        Ok(RaftLog::inspect(&self.store, &self.options(RecoveryMode::TolerateAny))?)
    }

    /// Opens it for writing. A log is there, or this would make one.
    fn open(&self, options: Options) -> Result<RaftLog, Failure> {
        self.inspect()?;
        Ok(RaftLog::open(&self.store, options)?)
    }
}

fn cut_object(cut: &Cut) -> Value {
    json!({ "path": cut.path.to_string_lossy(), "offset": cut.offset, "bytes": cut.bytes, "reason": cut.reason })
}

fn path_text(path: &Path) -> String {
    one_line(&path.display().to_string())
}

/// An index of what may have none.
fn index_text(index: Option<u64>) -> String {
    index.map_or_else(|| "-".to_owned(), |index| index.to_string())
}
