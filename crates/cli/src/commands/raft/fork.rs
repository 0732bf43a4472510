//! `esker raft fork STORE TARGET`

use std::path::PathBuf;

use clap::Args;
use esker::raft::RecoveryMode;
use serde_json::json;

use super::LogArgument;
use crate::Answer;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::plural;

/// Make a second log with the content of this one, which shares its full files by hard links
///
/// Both can be written to from then on: a file that both have is never changed. The log must not be open: a program that has it
/// open forks it itself.
#[derive(Debug, Args)]
pub(crate) struct Fork {
    #[command(flatten)]
    log: LogArgument,

    /// Where the second log goes: an empty directory, or none yet
    target: PathBuf,

    /// Print an object: linked, copied
    #[arg(long)]
    json: bool,
}

impl Fork {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        self.log.expect()?;
        let log = self.log.open(self.log.options(RecoveryMode::TolerateTail))?;
        let made = log.fork(&self.target)?;
        log.close()?;
        if self.json {
            let names =
                |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>();
            out.json(&json!({ "linked": names(&made.linked), "copied": names(&made.copied) }))?;
        } else {
            let (linked, copied) = (made.linked.len() as u64, made.copied.len() as u64);
            let (linked, copied) = (plural(linked, "file", "files"), plural(copied, "file", "files"));
            out.line(format_args!("{linked} shared, {copied} copied"))?;
        }
        Ok(Answer::Yes)
    }
}
