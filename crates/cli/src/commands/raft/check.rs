//! `esker raft check STORE`

use std::path::Path;

use clap::Args;
use esker::RaftLog;
use esker::raft::{Check as Found, RecoveryMode};
use serde_json::{Value, json};

use super::{LogArgument, cut_object, gap_object, gap_text, left_out_text, lost_object, lost_text, unmended_text};
use crate::Answer;
use crate::failure::{Failure, one_line, path_text};
use crate::output::Output;
use crate::progress::Progress;
use crate::sizes::{Bytes, plural};

/// Read and check every batch, and that no group lacks entries in its middle
///
/// Prints what was read, each damage with its file and offset, and each gap. Exit code 1 if there is any. A last file that
/// ends torn is what a crash leaves, and no damage: the next open cuts it. Takes no lock and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    log: LogArgument,

    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn of(store: &Path, json: bool) -> Self {
        Self { log: LogArgument::of(store), json }
    }

    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        self.log.expect()?;
        let bar = Progress::begin("checking", 0);
        let options = self.log.options(RecoveryMode::TolerateAny);
        let found = RaftLog::check(&self.log.store, &options, &mut |done, total| bar.set(done, total))?;
        drop(bar);
        if self.json {
            print_json(out, &found)?
        } else {
            print_text(out, &found)?
        }
        Ok(if found.is_sound() { Answer::Yes } else { Answer::No })
    }
}

fn print_text(out: &mut Output, found: &Found) -> Result<(), Failure> {
    let inspection = &found.inspection;
    out.line(format_args!(
        "read {}: {} in {} and {}",
        Bytes(found.bytes),
        plural(found.entries, "entry", "entries"),
        plural(found.batches, "batch", "batches"),
        plural(inspection.files.len() as u64, "file", "files"),
    ))?;
    let alive = inspection.groups.iter().map(|group| group.entries).sum();
    let groups = plural(inspection.groups.len() as u64, "group", "groups");
    out.line(format_args!("alive: {} of {groups}", plural(alive, "entry", "entries")))?;
    for cut in &found.torn {
        let (path, bytes) = (path_text(&cut.path), Bytes(cut.bytes));
        out.line(format_args!("{path} ends torn at byte {}: the {bytes} behind it do not count", cut.offset))?;
    }
    for path in &inspection.stale {
        out.line(left_out_text(path))?;
    }
    for error in &found.errors {
        out.line(one_line(&error.to_string()))?;
    }
    for gap in &found.gaps {
        out.line(gap_text(gap))?;
    }
    for lost in &found.lost {
        out.line(lost_text(lost))?;
    }
    if found.errors.is_empty() {
        return out.line(unmended_text(found).as_deref().unwrap_or("no damage"));
    }
    let damages = plural((found.errors.len() + found.gaps.len()) as u64, "damage", "damages");
    out.line(format_args!("{damages}; see `esker raft repair`"))
}

fn print_json(out: &mut Output, found: &Found) -> Result<(), Failure> {
    let errors: Vec<Value> = found
        .errors
        .iter()
        .map(|error| {
            json!({
                "path": error.path().map(|path| path.to_string_lossy()),
                "offset": error.offset(),
                "reason": error.reason(),
            })
        })
        .collect();
    out.json(&json!({
        "files": found.inspection.files.len(),
        "groups": found.inspection.groups.len(),
        "batches": found.batches,
        "entries": found.entries,
        "bytes": found.bytes,
        "torn": found.torn.iter().map(cut_object).collect::<Vec<Value>>(),
        "damaged": !found.is_sound(),
        "left_out": found.inspection.stale.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "errors": errors,
        "gaps": found.gaps.iter().map(gap_object).collect::<Vec<Value>>(),
        "lost": found.lost.iter().map(lost_object).collect::<Vec<Value>>(),
    }))
}
