//! `esker raft …`: what there is to do with a Raft log.

mod check;
mod dump;
mod fork;
mod purge;
mod repair;
pub(super) mod script;
mod stats;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker::RaftLog;
use esker::raft::{Check as Found, Cut, Gap, Inspection, Lost, Options, RecoveryMode};
use serde_json::{Value, json};

use crate::Answer;
use crate::failure::{Failure, path_text};
use crate::kind::Kind;
use crate::output::Output;
use crate::sizes::plural;

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
    Fork(fork::Fork),
    Stats(stats::Stats),
}

impl Raft {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match self.command {
            RaftCommand::Dump(command) => command.run(out),
            RaftCommand::Check(command) => command.run(out),
            RaftCommand::Repair(command) => command.run(out),
            RaftCommand::Purge(command) => command.run(out),
            RaftCommand::Fork(command) => command.run(out),
            RaftCommand::Stats(command) => command.run(out),
        }
    }
}

/// What `esker check` does with a Raft log.
pub(super) fn check(store: &Path, json: bool, out: &mut Output) -> Result<Answer, Failure> {
    let answer = check::Check::of(store, json).run(out)?;
    if answer == Answer::No && !json {
        // Where its files lie elsewhere, too, they are missed here.
        out.line("with a spill directory: `esker raft check --spill-dir`")?;
    }
    Ok(answer)
}

/// What `esker stats` does with a Raft log.
pub(super) fn stats(store: &Path, json: bool, out: &mut Output) -> Result<Answer, Failure> {
    stats::Stats::of(store, json).run(out)
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
    fn of(store: &Path) -> Self {
        Self { store: store.to_owned(), spill_dir: None }
    }

    /// How to open it, with `mode`.
    fn options(&self, mode: RecoveryMode) -> Options {
        Options { spill_dir: self.spill_dir.clone(), recovery_mode: mode, ..Options::default() }
    }

    /// Refuses what is no Raft log, and a directory for what spills that is not there: an open would make it.
    fn expect(&self) -> Result<(), Failure> {
        if let Some(dir) = &self.spill_dir
            && let Err(error) = std::fs::read_dir(dir)
        {
            return Err(Failure::io("--spill-dir: reading", dir, &error));
        }
        let path = self.store.display();
        match Kind::of(&self.store) {
            Some(kind) if kind != Kind::Raft => Err(Failure::new(format_args!(
                "{path}: this command does not work on {kind}, but on a Raft log; see `esker help`"
            ))),
            None if self.store.is_file() => Err(Failure::new(format_args!(
                "{path}: a Raft log is a directory, and this is a file; `esker dump` prints one"
            ))),
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

fn lost_object(lost: &Lost) -> Value {
    json!({
        "group": lost.group,
        "first_index": lost.first_index,
        "last_index": lost.last_index,
        "path": lost.path.to_string_lossy(),
        "offset": lost.offset,
    })
}

/// What is lost, and both ways to go on without it.
fn lost_text(lost: &Lost) -> String {
    let Lost { group, first_index, last_index, .. } = *lost;
    let place = format!("{} at byte {}", path_text(&lost.path), lost.offset);
    format!(
        "group {group}: entries {first_index} to {last_index} cannot be read ({place}); `esker raft repair` drops them with all \
         behind them by --truncate {group}:{first_index}, or with all before them by --compact {group}:{}",
        last_index.saturating_add(1)
    )
}

fn gap_object(gap: &Gap) -> Value {
    json!({
        "group": gap.group,
        "last_before": gap.last_before,
        "first_behind": gap.first_behind,
        "path": gap.path.to_string_lossy(),
        "offset": gap.offset,
    })
}

fn gap_text(gap: &Gap) -> String {
    let Gap { group, last_before, first_behind, ref path, offset, .. } = *gap;
    let place = format!("{} at byte {offset}", path_text(path));
    format!("group {group}: entries between {last_before} and {first_behind} are missing ({place})")
}

fn left_out_text(path: &Path) -> String {
    let path = path_text(path);
    format!("{path} is left out: a file behind it is missing, or power was lost while it was given up")
}

/// Of what no repair mends: what else is to be done. A check and a repair say the same.
fn unmended_text(found: &Found) -> Option<String> {
    if !found.gaps.is_empty() {
        let gaps = plural(found.gaps.len() as u64, "gap", "gaps");
        return Some(format!(
            "{gaps}: no repair brings back what is missing, and only what is behind it counts; `esker raft purge --all` gives up what is before it"
        ));
    }
    let is_left_out = !found.inspection.stale.is_empty();
    is_left_out.then(|| {
        "no damage in the files that count; bring back the file that is missing, or move away those that are left out"
            .to_owned()
    })
}

/// An index of what may have none.
fn index_text(index: Option<u64>) -> String {
    index.map_or_else(|| "-".to_owned(), |index| index.to_string())
}
