//! `esker raft stats STORE`

use std::path::Path;

use clap::Args;
use esker::raft::{FileSummary, GroupSummary, Inspection, Queue};
use serde_json::{Value, json};

use super::{LogArgument, cut_object, index_text};
use crate::Answer;
use crate::columns::Columns;
use crate::failure::{Failure, path_text};
use crate::output::Output;
use crate::sizes::{Bytes, Count, plural};

/// Show what a log holds: files, groups, entries, bytes
///
/// Reads the files as an open would. Takes no lock and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    log: LogArgument,

    /// A line for each group, too: first and last index, and the oldest file that it keeps from being given up
    #[arg(long)]
    groups: bool,

    /// A line for each file, too
    #[arg(long)]
    files: bool,

    /// Print an object with everything
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) fn of(store: &Path, json: bool) -> Self {
        Self { log: LogArgument::of(store), groups: false, files: false, json }
    }

    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        self.log.expect()?;
        let found = self.log.inspect()?;
        if self.json {
            out.json(&object(&found))?;
            return Ok(Answer::Yes);
        }
        out.line(path_text(&self.log.store))?;
        summary(&found).lines("  ").iter().try_for_each(|line| out.line(line))?;
        let sum = |of: fn(&GroupSummary) -> u64| found.groups.iter().map(of).sum::<u64>();
        out.line(format_args!(
            "  {}: {}, {} of them in the rewrite queue, and {}",
            plural(found.groups.len() as u64, "group", "groups"),
            plural(sum(|group| group.entries), "entry", "entries"),
            Count(sum(|group| group.rewritten_entries)),
            plural(sum(|group| group.keys as u64), "key", "keys"),
        ))?;
        for cut in &found.cuts {
            let path = path_text(&cut.path);
            out.line(format_args!("  {path} holds no batch from byte {} on: see `esker raft check`", cut.offset))?;
        }
        if self.files {
            out.line("")?;
            files(&found).lines("").iter().try_for_each(|line| out.line(line))?;
        }
        if self.groups {
            out.line("")?;
            groups(&found).lines("").iter().try_for_each(|line| out.line(line))?;
        }
        Ok(Answer::Yes)
    }
}

fn queue(found: &Inspection, queue: Queue) -> impl Iterator<Item = &FileSummary> {
    found.files.iter().filter(move |file| file.id.queue == queue)
}

fn summary(found: &Inspection) -> Columns {
    let mut columns = Columns::with_head(&["on disk", "files", "batches", "bytes of batches", "bytes"]);
    for (name, which) in [("append queue", Queue::Append), ("rewrite queue", Queue::Rewrite)] {
        let sum = |of: fn(&FileSummary) -> u64| queue(found, which).map(of).sum::<u64>();
        columns.row(vec![
            name.to_owned(),
            Count(queue(found, which).count() as u64).to_string(),
            Count(sum(|file| file.batches)).to_string(),
            Bytes(sum(|file| file.valid_bytes)).to_string(),
            Bytes(sum(|file| file.file_bytes)).to_string(),
        ]);
    }
    if found.reserved_files > 0 {
        columns.row(vec!["waiting for use".to_owned(), Count(found.reserved_files as u64).to_string()]);
    }
    if !found.stale.is_empty() {
        columns.row(vec!["left over by a crash".to_owned(), Count(found.stale.len() as u64).to_string()]);
    }
    columns
}

fn files(found: &Inspection) -> Columns {
    let mut columns = Columns::with_head(&["file", "version", "batches", "bytes of batches", "bytes"]);
    for file in &found.files {
        columns.row(vec![
            file.id.to_string(),
            index_text(file.version.map(esker::raft::Version::as_u64)),
            Count(file.batches).to_string(),
            Bytes(file.valid_bytes).to_string(),
            Bytes(file.file_bytes).to_string(),
        ]);
    }
    columns
}

fn groups(found: &Inspection) -> Columns {
    let mut columns = Columns::with_head(&["group", "first", "last", "entries", "rewritten", "keys", "oldest file"]);
    for group in &found.groups {
        columns.row(vec![
            group.group.to_string(),
            index_text(group.first_index),
            index_text(group.last_index),
            Count(group.entries).to_string(),
            Count(group.rewritten_entries).to_string(),
            Count(group.keys as u64).to_string(),
            index_text(group.oldest_file),
        ]);
    }
    columns
}

fn object(found: &Inspection) -> Value {
    let files = found.files.iter().map(|file| {
        json!({
            "name": file.id.to_string(),
            "queue": if file.id.queue == Queue::Append { "append" } else { "rewrite" },
            "version": file.version.map(esker::raft::Version::as_u64),
            "batches": file.batches,
            "batch_bytes": file.valid_bytes,
            "file_bytes": file.file_bytes,
        })
    });
    let groups = found.groups.iter().map(|group| {
        json!({
            "group": group.group,
            "first_index": group.first_index,
            "last_index": group.last_index,
            "entries": group.entries,
            "rewritten_entries": group.rewritten_entries,
            "keys": group.keys,
            "oldest_file": group.oldest_file,
        })
    });
    json!({
        "entries": found.groups.iter().map(|group| group.entries).sum::<u64>(),
        "keys": found.groups.iter().map(|group| group.keys as u64).sum::<u64>(),
        "batch_bytes": found.files.iter().map(|file| file.valid_bytes).sum::<u64>(),
        "file_bytes": found.files.iter().map(|file| file.file_bytes).sum::<u64>(),
        "reserved_files": found.reserved_files,
        "stale": found.stale.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "cuts": found.cuts.iter().map(cut_object).collect::<Vec<Value>>(),
        "files": files.collect::<Vec<Value>>(),
        "groups": groups.collect::<Vec<Value>>(),
    })
}
