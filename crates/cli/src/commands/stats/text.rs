//! A picture of a store for people.

use std::path::Path;

use esker::{FamilyStats, Stats};

use crate::columns::Columns;
use crate::encoding::escaped;
use crate::failure::{Failure, path_text};
use crate::output::Output;
use crate::sizes::{Bytes, Count, plural};

/// The store as a whole, then each family with its levels.
pub(crate) fn print(out: &mut Output, path: &Path, stats: &Stats) -> Result<(), Failure> {
    out.line(path_text(path))?;
    on_disk(stats).lines("  ").iter().try_for_each(|line| out.line(line))?;
    if let Some(factor) = stats.space_amplification() {
        out.line(format_args!("  {factor:.2} bytes on disk per live byte, sequence number {}", stats.sequence))?;
    }
    in_memory(stats).lines("  ").iter().try_for_each(|line| out.line(line))?;
    let (hits, misses) = (plural(stats.cache.hits, "hit", "hits"), plural(stats.cache.misses, "miss", "misses"));
    out.line(format_args!("  cache of {}: {hits}, {misses}", Bytes(stats.cache.capacity_bytes)))?;
    recovery(out, stats)?;
    stats.families.iter().try_for_each(|one| family(out, one))
}

fn on_disk(stats: &Stats) -> Columns {
    let mut columns = Columns::with_head(&["on disk", "files", "bytes"]);
    let tables: usize = stats.families.iter().flat_map(|family| &family.levels).map(|level| level.files).sum();
    let blobs: usize = stats.families.iter().map(|family| family.blob_files).sum();
    let disk = &stats.on_disk;
    for (name, files, bytes) in [
        ("tables", Some(tables), disk.table_bytes),
        ("blob files", Some(blobs), disk.blob_bytes),
        ("write-ahead logs", Some(stats.wal_files), disk.wal_bytes),
        ("manifest, options and others", None, disk.other_bytes),
        ("all", None, disk.total_bytes()),
    ] {
        let files = files.map(|count| Count(count as u64).to_string()).unwrap_or_default();
        columns.row(vec![name.to_owned(), files, Bytes(bytes).to_string()]);
    }
    if disk.ballast_bytes > 0 {
        let kept = "kept for when the disk is full".to_owned();
        columns.row(vec![kept, String::new(), Bytes(disk.ballast_bytes).to_string()]);
    }
    columns
}

/// What opening the store has brought there.
fn in_memory(stats: &Stats) -> Columns {
    let mut columns = Columns::with_head(&["in memory", "bytes"]);
    let memory = &stats.memory;
    for (name, bytes) in [
        ("memtables", memory.memtable_bytes),
        ("indexes and filters", memory.index_filter_bytes),
        ("cache", memory.cache_bytes),
        ("all", memory.total_bytes()),
    ] {
        columns.row(vec![name.to_owned(), Bytes(bytes).to_string()]);
    }
    columns
}

fn recovery(out: &mut Output, stats: &Stats) -> Result<(), Failure> {
    let recovery = &stats.recovery;
    if recovery.batches > 0 {
        out.line(format_args!("  {} in the log, not yet in tables", plural(recovery.batches, "batch", "batches")))?;
    }
    if let Some((path, offset)) = &recovery.torn_at {
        let path = path_text(path);
        let dropped = Bytes(recovery.dropped_bytes);
        out.line(format_args!("  the log ends torn in {path} at byte {offset}; {dropped} behind it do not count"))?;
    }
    if recovery.skipped_bytes > 0 {
        out.line(format_args!("  {} of damaged log passed over", Bytes(recovery.skipped_bytes)))?;
    }
    Ok(())
}

fn family(out: &mut Output, family: &FamilyStats) -> Result<(), Failure> {
    let deletions = plural(family.deletions, "deletion", "deletions");
    let entries = plural(family.entries, "entry", "entries");
    out.line("")?;
    out.line(format_args!("column family {}: {entries}, {deletions} among them", escaped(family.name.as_bytes())))?;
    let mut columns = Columns::with_head(&["level", "files", "bytes"]);
    for level in family.levels.iter().filter(|level| level.files > 0) {
        columns.row(vec![
            level.level.to_string(),
            Count(level.files as u64).to_string(),
            Bytes(level.bytes).to_string(),
        ]);
    }
    let files: usize = family.levels.iter().map(|level| level.files).sum();
    columns.row(vec!["all".to_owned(), Count(files as u64).to_string(), Bytes(family.table_bytes()).to_string()]);
    columns.lines("  ").iter().try_for_each(|line| out.line(line))?;
    if family.blob_files > 0 {
        let (live, garbage) = (family.blob_live_bytes, family.blob_garbage_bytes);
        let files = plural(family.blob_files as u64, "blob file", "blob files");
        out.line(format_args!("  {files}: {} live, {} garbage", Bytes(live), Bytes(garbage)))?;
    }
    if family.memtable_bytes > 0 {
        out.line(format_args!("  memtables: {}", Bytes(family.memtable_bytes)))?;
    }
    if family.pending_compaction_bytes > 0 {
        out.line(format_args!("  compaction owes: {}", Bytes(family.pending_compaction_bytes)))?;
    }
    Ok(())
}
