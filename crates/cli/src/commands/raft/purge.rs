//! `esker raft purge STORE`

use clap::Args;
use esker::raft::{Options, RecoveryMode};
use serde_json::json;

use super::LogArgument;
use crate::Answer;
use crate::failure::Failure;
use crate::output::Output;
use crate::sizes::{Bytes, parse_bytes, plural};

/// Give up files that nobody needs
///
/// As the log's user would: if the append queue is longer than --threshold, what old files still hold of groups with few
/// entries moves on to the rewrite queue. Groups that should be compacted first are named. With --all, everything moves on.
/// What is given up leaves the disk, and so do files that an earlier purge has kept to be written over.
#[derive(Debug, Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    log: LogArgument,

    /// How long the append queue may be
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "10GiB")]
    threshold: u64,

    /// How much of the log one group may keep for itself before its old entries move on [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    group_quota: Option<u64>,

    /// Move all that is alive to new files of the rewrite queue, and give up all others
    #[arg(long, conflicts_with_all = ["threshold", "group_quota"])]
    all: bool,

    /// Print an object: bytes_before, bytes_after, purged_files, moved_entries (of groups beyond --group-quota), compact
    #[arg(long)]
    json: bool,
}

impl Purge {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        self.log.expect()?;
        let options = self.log.options(RecoveryMode::TolerateTail);
        // A threshold below the size of a file would be refused.
        let file_bytes = options.file_bytes.min(self.threshold.max(1 << 10));
        let log = self.log.open(Options {
            file_bytes,
            purge_threshold_bytes: self.threshold.max(file_bytes),
            group_quota_bytes: self.group_quota,
            // Files kept to be written over would stay on the disk.
            recycle_files: false,
            ..options
        })?;
        let bytes = |stats: &esker::raft::Stats| stats.append.bytes + stats.rewrite.bytes;
        let before = bytes(&log.stats());
        let compact = if self.all {
            log.move_on(None)?;
            log.rewrite_again()?;
            Vec::new()
        } else {
            log.purge()?
        };
        let stats = log.stats();
        log.close()?;
        let after = bytes(&stats);
        if self.json {
            out.json(&json!({
                "bytes_before": before,
                "bytes_after": after,
                "purged_files": stats.purged_files,
                "moved_entries": stats.moved_entries,
                "compact": compact,
            }))?;
            return Ok(Answer::Yes);
        }
        let files = plural(stats.purged_files, "file", "files");
        out.line(format_args!("{} before, {} after; {files} given up", Bytes(before), Bytes(after)))?;
        if !compact.is_empty() {
            let groups: Vec<String> = compact.iter().map(u64::to_string).collect();
            out.line(format_args!("compact these groups first: {}", groups.join(", ")))?;
        }
        Ok(Answer::Yes)
    }
}
