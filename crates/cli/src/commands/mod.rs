//! The commands, one file each. Each has its arguments as a struct, whose comments are its help, and `run`.

mod backup;
mod backups;
mod bench;
mod check;
mod checkpoint;
mod compact;
mod completions;
mod count;
mod create;
mod create_family;
mod delete;
mod delete_range;
mod drop_family;
mod dump;
mod exists;
mod families;
mod gc;
mod get;
mod history;
mod import;
mod merge;
mod put;
mod raft;
mod repair;
mod scan;
mod set_options;
mod stats;
mod torture;

use clap::Subcommand;

use crate::Answer;
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Import(import::Import),
    Get(get::Get),
    Exists(exists::Exists),
    History(history::History),
    Put(put::Put),
    Merge(merge::Merge),
    Delete(delete::Delete),
    DeleteRange(delete_range::DeleteRange),
    Scan(scan::Scan),
    Count(count::Count),
    Families(families::Families),
    CreateFamily(create_family::CreateFamily),
    DropFamily(drop_family::DropFamily),
    SetOptions(set_options::SetOptions),
    Stats(stats::Stats),
    #[command(visible_alias = "verify")]
    Check(check::Check),
    Compact(compact::Compact),
    Gc(gc::Gc),
    Bench(Box<bench::Bench>),
    Checkpoint(checkpoint::Checkpoint),
    Backup(backup::Backup),
    Backups(backups::Backups),
    Repair(repair::Repair),
    Dump(dump::Dump),
    Raft(raft::Raft),
    Torture(torture::Torture),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match self {
            Self::Create(command) => command.run(),
            Self::Import(command) => command.run(out),
            Self::Get(command) => command.run(out),
            Self::Exists(command) => command.run(out),
            Self::History(command) => command.run(out),
            Self::Put(command) => command.run(),
            Self::Merge(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::DeleteRange(command) => command.run(),
            Self::Scan(command) => command.run(out),
            Self::Count(command) => command.run(out),
            Self::Families(command) => command.run(out),
            Self::CreateFamily(command) => command.run(),
            Self::SetOptions(command) => command.run(),
            Self::DropFamily(command) => command.run(),
            Self::Stats(command) => command.run(out),
            Self::Check(command) => command.run(out),
            Self::Compact(command) => command.run(out),
            Self::Gc(command) => command.run(out),
            Self::Bench(command) => command.run(out),
            Self::Checkpoint(command) => command.run(out),
            Self::Backup(command) => command.run(out),
            Self::Backups(command) => command.run(out),
            Self::Repair(command) => command.run(out),
            Self::Dump(command) => command.run(out),
            Self::Raft(command) => command.run(out),
            Self::Torture(command) => command.run(out),
            Self::Completions(command) => command.run(out),
        }
    }
}
