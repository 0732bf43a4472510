//! `esker check STORE`

mod cask;

use std::path::PathBuf;

use clap::Args;
use esker::{Check as Found, CheckProgress, Db, Error, ErrorKind, WithoutCurrent};
use serde_json::{Value, json};

use super::raft;
use crate::Answer;
use crate::failure::{Failure, one_line, path_text};
use crate::kind::Kind;
use crate::output::Output;
use crate::progress::Progress;
use crate::sizes::{Bytes, plural};
use crate::stores::{self, why_not};

/// Read and check every byte, and that everything fits together
///
/// Checksums, the order of keys, levels that overlap, pointers into blob files, and what of them the manifest counts as garbage.
/// Prints what was read, each damage with its file and offset, entries of kinds that Esker does not read, and files that nothing names.
/// Exit code 1 if there is any damage. Keeps no writer out and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The store's directory
    store: PathBuf,

    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Cask) => return cask::run(&self.store, self.json, out),
            Some(Kind::Raft) => return raft::check(&self.store, self.json, out),
            Some(Kind::Db) | None => {}
        }
        let bar = Progress::begin("checking", 0);
        let show = &mut |progress: CheckProgress| bar.set(progress.bytes_done, progress.bytes_total);
        let check = Db::check_store(&self.store, stores::options(), show).map_err(|error| why_not(&self.store, error));
        drop(bar);
        tell(out, &check?, self.json)
    }
}

/// Prints what was found.
pub(super) fn tell(out: &mut Output, check: &Found, as_json: bool) -> Result<Answer, Failure> {
    if as_json {
        print_json(out, check)?
    } else {
        print_text(out, check)?
    }
    Ok(if check.errors.is_empty() { Answer::Yes } else { Answer::No })
}

fn print_text(out: &mut Output, check: &Found) -> Result<(), Failure> {
    let log = &check.recovery;
    out.line(format_args!(
        "read {}: {} in {} and {}, {} in {}",
        Bytes(check.bytes),
        plural(check.entries, "entry", "entries"),
        plural(check.blocks, "block", "blocks"),
        plural(check.tables, "table", "tables"),
        plural(check.blobs, "blob", "blobs"),
        plural(check.blob_files, "blob file", "blob files"),
    ))?;
    if log.batches > 0 || log.torn_at.is_some() {
        let (batches, files) = (plural(log.batches, "batch", "batches"), plural(log.wal_files, "log", "logs"));
        out.line(format_args!("read {batches} in {files}, not yet in tables"))?;
    }
    if let Some((path, offset)) = &log.torn_at {
        // Natural after a power loss, so not damage; but whoever looks shall know.
        let (dropped, path) = (Bytes(log.dropped_bytes), path_text(path));
        out.line(format_args!(
            "{path} ends torn at byte {offset}: {dropped} are left out, as what a crash had under way"
        ))?;
    }
    for error in &check.errors {
        out.line(one_line(&error.to_string()))?;
    }
    for error in &check.unsupported {
        out.line(one_line(&error.to_string()))?;
    }
    for path in &check.orphans {
        // Work of whoever has the store open, or left by a crash: the next open for writing removes it.
        out.line(format_args!("nothing names {}", path_text(path)))?;
    }
    if check.unsupported_entries > 0 {
        let entries = plural(check.unsupported_entries, "entry", "entries");
        out.line(format_args!("{entries} of kinds that Esker does not read: no damage, and nothing to repair"))?;
    }
    if let Some(without) = &check.without_current {
        print_without_current(out, without, !check.unsupported.is_empty())?;
    }
    // What the device refuses, no repair brings back.
    let is_mended = check.errors.iter().any(|error| error.kind() == ErrorKind::Corruption);
    match check.errors.len() as u64 {
        0 => out.line("no damage"),
        count if is_mended => out.line(format_args!("{}; see `esker repair`", plural(count, "damage", "damages"))),
        count => out.line(plural(count, "damage", "damages")),
    }
}

/// What the check went by, what it could not look at, and what a repair would do.
fn print_without_current(out: &mut Output, without: &WithoutCurrent, is_refused: bool) -> Result<(), Failure> {
    if let Some(manifest) = &without.manifest {
        let manifest = path_text(manifest);
        return out.line(format_args!("all else was checked by {manifest}, which is whole: `esker repair` goes by it"));
    }
    out.line(
        "no manifest is whole, so each file was checked by itself: not which of them the store needs, whether one is missing, levels, or \
         what is garbage",
    )?;
    if is_refused {
        return out.line("`esker repair` refuses the store, as Esker does not read all of it");
    }
    let lost = [
        (without.lost_tables, plural(without.lost_tables, "table", "tables")),
        (without.lost_blocks, plural(without.lost_blocks, "block", "blocks")),
        (without.lost_values, plural(without.lost_values, "value", "values")),
        (without.lost_log_bytes, format!("{} of logs", Bytes(without.lost_log_bytes))),
    ];
    let lost: Vec<_> = lost.into_iter().filter(|(count, _)| *count > 0).map(|(_, what)| what).collect();
    let but = if lost.is_empty() { String::new() } else { format!(" but {}", lost.join(", ")) };
    out.line(format_args!(
        "`esker repair` would get all of them back{but}; what was deleted or overwritten may come back with them"
    ))
}

fn without_current_object(without: &WithoutCurrent) -> Value {
    json!({
        "manifest": without.manifest.as_ref().map(|path| path.to_string_lossy()),
        "lost_tables": without.lost_tables,
        "lost_blocks": without.lost_blocks,
        "lost_values": without.lost_values,
        "lost_log_bytes": without.lost_log_bytes,
    })
}

fn print_json(out: &mut Output, check: &Found) -> Result<(), Failure> {
    let log = &check.recovery;
    let errors: Vec<Value> = check.errors.iter().map(error_object).collect();
    out.json(&json!({
        "tables": check.tables,
        "blob_files": check.blob_files,
        "blocks": check.blocks,
        "entries": check.entries,
        "blobs": check.blobs,
        "bytes": check.bytes,
        "logs": log.wal_files,
        "log_batches": log.batches,
        "log_dropped_bytes": log.dropped_bytes,
        "orphans": check.orphans.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "damaged": !check.errors.is_empty(),
        "errors": errors,
        "without_current": check.without_current.as_ref().map(without_current_object),
        "unsupported_entries": check.unsupported_entries,
        "unsupported": check.unsupported.iter().map(error_object).collect::<Vec<Value>>(),
    }))
}

pub(super) fn error_object(error: &Error) -> Value {
    json!({
        "path": error.path().map(|path| path.to_string_lossy()),
        "offset": error.offset(),
        "reason": error.reason(),
    })
}
