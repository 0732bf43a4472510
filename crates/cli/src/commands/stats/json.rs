//! A picture of a store as one object.

use esker::{FamilyStats, Stats};
use serde_json::{Value, json};

/// Everything, sizes in bytes. Counters that begin at zero with each open are left out, but for what opening the store has read: this open
/// did nothing else.
pub(crate) fn object(stats: &Stats) -> Value {
    let torn_at = stats.recovery.torn_at.as_ref();
    json!({
        "families": stats.families.iter().map(family).collect::<Vec<Value>>(),
        "sequence": stats.sequence,
        "wal_files": stats.wal_files,
        "on_disk": {
            "table_bytes": stats.on_disk.table_bytes,
            "blob_bytes": stats.on_disk.blob_bytes,
            "wal_bytes": stats.on_disk.wal_bytes,
            "other_bytes": stats.on_disk.other_bytes,
            "total_bytes": stats.on_disk.total_bytes(),
            "ballast_bytes": stats.on_disk.ballast_bytes,
        },
        "memory": {
            "memtable_bytes": stats.memory.memtable_bytes,
            "index_filter_bytes": stats.memory.index_filter_bytes,
            "cache_bytes": stats.memory.cache_bytes,
            "total_bytes": stats.memory.total_bytes(),
            "limit_bytes": stats.memory.limit_bytes,
        },
        "cache": {
            "hits": stats.cache.hits,
            "misses": stats.cache.misses,
            "used_bytes": stats.cache.used_bytes,
            "capacity_bytes": stats.cache.capacity_bytes,
        },
        "space_amplification": stats.space_amplification(),
        "recovery": {
            "wal_files": stats.recovery.wal_files,
            "batches": stats.recovery.batches,
            "dropped_bytes": stats.recovery.dropped_bytes,
            "skipped_bytes": stats.recovery.skipped_bytes,
            "torn_at": torn_at.map(|(path, offset)| json!({ "path": path.to_string_lossy(), "offset": offset })),
        },
    })
}

fn family(family: &FamilyStats) -> Value {
    let levels = family.levels.iter();
    let levels = levels.map(|level| json!({ "level": level.level, "files": level.files, "bytes": level.bytes }));
    json!({
        "name": family.name,
        "id": family.id,
        "levels": levels.collect::<Vec<Value>>(),
        "base_level": family.base_level,
        "entries": family.entries,
        "deletions": family.deletions,
        "table_bytes": family.table_bytes(),
        "table_raw_bytes": family.table_raw_bytes,
        "blob_files": family.blob_files,
        "blob_live_bytes": family.blob_live_bytes,
        "not_compacted_bytes": family.not_compacted_bytes,
        "blob_garbage_bytes": family.blob_garbage_bytes,
        "memtable_bytes": family.memtable_bytes,
        "index_filter_bytes": family.index_filter_bytes,
        "pending_compaction_bytes": family.pending_compaction_bytes,
    })
}
