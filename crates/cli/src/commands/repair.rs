//! `esker repair STORE`

use std::path::PathBuf;

use clap::Args;
use esker::{AsideReason, Cask, CaskRepair, Db, DbRepair};
use serde_json::{Value, json};

use super::check::error_object;
use crate::Answer;
use crate::encoding::{escaped, hex};
use crate::failure::{Failure, one_line, path_text};
use crate::kind::{Kind, has_files_of_a_db};
use crate::output::Output;
use crate::sizes::{Bytes, plural};
use crate::stores::{self, why_not};

/// Keys of a Cask that are told one by one.
const KEYS_TOLD_MAX: usize = 10;

/// Mend a Db or a Cask with what can be read of its files
///
/// Of a Db, a new manifest is made from the old one, or without it from tables, blob files and logs; what is whole in damaged files is
/// written again, and everything that is not used any more goes to the folder `lost` in the store. Of a Cask, manifest and hints are
/// rebuilt from its data files; those with damage are copied without it and put aside as `.damaged`, and those with another's name get their
/// own again. Nothing is thrown away. If the manifest itself is lost, what was deleted or overwritten may reappear. For a Raft log, see
/// `esker raft repair`.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The store's directory
    store: PathBuf,

    /// Print an object
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        match Kind::of(&self.store) {
            Some(Kind::Raft) => Err(Kind::Raft.refuse(&self.store).into()),
            Some(Kind::Db) => self.mend(out),
            None if has_files_of_a_db(&self.store) => self.mend(out),
            Some(Kind::Cask) | None => self.mend_cask(out),
        }
    }

    fn mend(&self, out: &mut Output) -> Result<Answer, Failure> {
        let done = Db::repair(&self.store, stores::options())?;
        if self.json {
            print_json(out, &done)?
        } else {
            print_text(out, &done)?
        }
        Ok(Answer::Yes)
    }

    fn mend_cask(&self, out: &mut Output) -> Result<Answer, Failure> {
        let done = Cask::repair(&self.store).map_err(|error| why_not(&self.store, error))?;
        if self.json {
            out.json(&cask_object(&done))?
        } else {
            print_cask(out, &done)?
        }
        Ok(Answer::Yes)
    }
}

/// What a repair of a Cask did, or would do.
pub(super) fn cask_object(done: &CaskRepair) -> Value {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let texts = |paths: &[PathBuf]| paths.iter().map(text).collect::<Vec<_>>();
    let pairs = |pairs: &[(PathBuf, PathBuf)]| {
        pairs.iter().map(|(from, to)| json!({"from": text(from), "to": text(to)})).collect::<Vec<_>>()
    };
    json!({
        "files": done.files,
        "records": done.records,
        "put_aside": texts(&done.put_aside),
        "renamed": pairs(&done.renamed),
        "strangers": pairs(&done.strangers),
        "unnamed": texts(&done.unnamed),
        "damaged_bytes": done.damaged_bytes,
        "damaged_keys": done.damaged_keys.iter().map(|key| hex(key)).collect::<Vec<_>>(),
        "missing": texts(&done.missing),
    })
}

/// The same in lines.
pub(super) fn print_cask(out: &mut Output, done: &CaskRepair) -> Result<(), Failure> {
    let line = |path: &PathBuf| path_text(path);
    let (records, files) = (plural(done.records, "record", "records"), plural(done.files, "file", "files"));
    out.line(format_args!("{records} in {files}"))?;
    for (from, to) in &done.renamed {
        out.line(format_args!("named again as its head says: {} is {}", line(from), line(to)))?;
    }
    for path in &done.unnamed {
        out.line(format_args!("taken, though the manifest does not know it: {}", line(path)))?;
    }
    for (from, to) in &done.strangers {
        let (from, to) = (line(from), line(to));
        out.line(format_args!("put aside, as another store's or a second one of its number: {from} is {to}"))?;
    }
    for path in &done.put_aside {
        out.line(format_args!("put aside: {}", line(path)))?;
    }
    if done.damaged_bytes > 0 {
        out.line(format_args!("{} were damaged and are lost", Bytes(done.damaged_bytes)))?;
    }
    for key in done.damaged_keys.iter().take(KEYS_TOLD_MAX) {
        out.line(format_args!("lost: a record of {}", escaped(key)))?;
    }
    let more = done.damaged_keys.len().saturating_sub(KEYS_TOLD_MAX);
    if more > 0 {
        out.line(format_args!("lost: records of {more} more keys; see --json"))?;
    }
    for path in &done.missing {
        out.line(format_args!("lost: {} is not there", line(path)))?;
    }
    Ok(())
}

fn reason(reason: AsideReason) -> &'static str {
    match reason {
        AsideReason::Damaged => "damaged",
        AsideReason::Replaced => "replaced",
        _ => "unused",
    }
}

fn print_text(out: &mut Output, done: &DbRepair) -> Result<(), Failure> {
    for error in &done.damage {
        out.line(one_line(&error.to_string()))?;
    }
    if !done.had_manifest {
        out.line("no manifest could be read: what was deleted or overwritten may be back")?;
    }
    let (tables, blobs) = (plural(done.tables, "table", "tables"), plural(done.blob_files, "blob file", "blob files"));
    let families = plural(done.families.len() as u64, "column family", "column families");
    out.line(format_args!("{families}, {tables}, {blobs}"))?;
    if done.log_batches > 0 {
        out.line(format_args!("{} of the logs are in tables now", plural(done.log_batches, "batch", "batches")))?;
    }
    if done.rewritten_entries > 0 {
        out.line(format_args!("{} written again", plural(done.rewritten_entries, "entry", "entries")))?;
    }
    for file in done.put_aside.iter().filter(|file| file.reason != AsideReason::Replaced) {
        let path = path_text(&file.path);
        out.line(format_args!("put aside ({}): {path}", reason(file.reason)))?;
    }
    print_lost(out, done)
}

fn print_lost(out: &mut Output, done: &DbRepair) -> Result<(), Failure> {
    if done.lost_log_bytes > 0 {
        out.line(format_args!("lost: {} of the logs", Bytes(done.lost_log_bytes)))?;
    }
    if done.lost_tables > 0 {
        out.line(format_args!("lost: all of {}", plural(done.lost_tables, "table", "tables")))?;
    }
    if done.lost_blocks > 0 {
        out.line(format_args!("lost: {} of tables", plural(done.lost_blocks, "block", "blocks")))?;
    }
    for lost in &done.lost_keys {
        let (key, family) = (escaped(&lost.key), &lost.family);
        out.line(format_args!("lost: the value of {key} in {family}, which was in blob file {}", lost.blob_file))?;
    }
    let more = done.lost_values.saturating_sub(done.lost_keys.len() as u64);
    if more > 0 {
        out.line(format_args!("lost: {more} more values"))?;
    }
    if is_nothing_lost(done) { out.line("nothing is lost") } else { Ok(()) }
}

fn is_nothing_lost(done: &DbRepair) -> bool {
    // What only the manifest knew of, nobody misses.
    done.had_manifest
        && [done.lost_log_bytes, done.lost_tables, done.lost_blocks, done.lost_values] == [0; 4]
        && done.put_aside.iter().all(|file| file.reason != AsideReason::Damaged)
}

fn print_json(out: &mut Output, done: &DbRepair) -> Result<(), Failure> {
    let put_aside =
        |file: &esker::PutAside| json!({"path": file.path.to_string_lossy(), "reason": reason(file.reason)});
    let lost =
        |lost: &esker::LostKey| json!({"family": lost.family, "key": hex(&lost.key), "blob_file": lost.blob_file});
    out.json(&json!({
        "had_manifest": done.had_manifest,
        "families": done.families,
        "tables": done.tables,
        "blob_files": done.blob_files,
        "rewritten_entries": done.rewritten_entries,
        "log_batches": done.log_batches,
        "lost_log_bytes": done.lost_log_bytes,
        "lost_tables": done.lost_tables,
        "lost_blocks": done.lost_blocks,
        "lost_values": done.lost_values,
        "lost_keys": done.lost_keys.iter().map(lost).collect::<Vec<Value>>(),
        "damage": done.damage.iter().map(error_object).collect::<Vec<Value>>(),
        "put_aside": done.put_aside.iter().map(put_aside).collect::<Vec<Value>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of losses that are too many to be counted together, each counts.
    #[test]
    fn all_that_is_lost_is_not_nothing() {
        let mut done = DbRepair::default();
        done.had_manifest = true;
        assert!(is_nothing_lost(&done));
        (done.lost_log_bytes, done.lost_tables) = (u64::MAX, 1);
        assert!(!is_nothing_lost(&done));
    }
}
