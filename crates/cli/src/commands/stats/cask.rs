//! A picture of a Cask.

use std::path::Path;

use esker::CaskStats;
use serde_json::json;

use crate::Answer;
use crate::columns::Columns;
use crate::failure::{Failure, path_text};
use crate::output::Output;
use crate::sizes::{Bytes, Count, plural};
use crate::stores::open_cask_read_only;

/// Shows the Cask in `path`.
pub(super) fn run(path: &Path, json: bool, out: &mut Output) -> Result<Answer, Failure> {
    let cask = open_cask_read_only(path)?;
    let (stats, keep_versions) = (cask.stats(), cask.options().keep_versions);
    if json {
        print_json(out, &stats, keep_versions)?
    } else {
        print_text(out, path, &stats, keep_versions)?
    }
    Ok(Answer::Yes)
}

fn print_text(out: &mut Output, path: &Path, stats: &CaskStats, keep_versions: usize) -> Result<(), Failure> {
    out.line(path_text(path))?;
    let live = (stats.records.saturating_sub(stats.dead_records + stats.tombstones), live_bytes(stats));
    let mut columns = Columns::with_head(&["  records", "count", "bytes"]);
    for (name, (count, bytes)) in [
        ("  alive", live),
        ("  superseded", (stats.dead_records, stats.dead_bytes)),
        ("  deletions", (stats.tombstones, stats.tombstone_bytes)),
        ("  all", (stats.records, stats.bytes)),
    ] {
        columns.row(vec![name.to_owned(), Count(count).to_string(), Bytes(bytes).to_string()]);
    }
    columns.lines("").iter().try_for_each(|line| out.line(line))?;
    let (keys, files) = (plural(stats.keys, "key", "keys"), plural(stats.files, "data file", "data files"));
    out.line(format_args!("  {keys} in {files}, {} of them sealed", Count(stats.sealed_files)))?;
    if live.1 > 0 {
        out.line(format_args!("  {:.2} bytes of records per live byte", stats.bytes as f64 / live.1 as f64))?;
    }
    out.line(format_args!("  key directory {} of memory", Bytes(stats.directory_bytes)))?;
    if keep_versions > 1 {
        out.line(format_args!("  {keep_versions} versions of each key are kept"))?;
    }
    if stats.damaged_files > 0 {
        let files = plural(stats.damaged_files, "file", "files");
        out.line(format_args!("  {files} with damage: see `esker check`"))?;
    }
    Ok(())
}

/// Of records that are neither superseded nor deletions.
fn live_bytes(stats: &CaskStats) -> u64 {
    stats.bytes.saturating_sub(stats.dead_bytes + stats.tombstone_bytes)
}

fn print_json(out: &mut Output, stats: &CaskStats, keep_versions: usize) -> Result<(), Failure> {
    out.json(&json!({
        "keys": stats.keys,
        "keep_versions": keep_versions,
        "files": stats.files,
        "sealed_files": stats.sealed_files,
        "damaged_files": stats.damaged_files,
        "records": stats.records,
        "bytes": stats.bytes,
        "live_bytes": live_bytes(stats),
        "dead_records": stats.dead_records,
        "dead_bytes": stats.dead_bytes,
        "tombstones": stats.tombstones,
        "tombstone_bytes": stats.tombstone_bytes,
        "directory_bytes": stats.directory_bytes,
        "last_version": stats.last_version,
    }))
}
