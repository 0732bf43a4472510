//! What a store is made of and what it has done: a picture of one moment.

use esker_format::file_name::FileName;

use crate::Error;
use crate::cache::BlockCacheStats;
use crate::compaction::Levels;
use crate::family::Family;
use crate::open::{BALLAST, Recovery};
use crate::reclaim;
use crate::store::Store;

/// The tables of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// 0 is where flushes go, 6 is the deepest.
    pub level: usize,
    /// Tables in it.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// One column family.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FamilyStats {
    /// Its name.
    pub name: String,
    /// Its number in log and manifest.
    pub id: u32,
    /// All levels, empty ones too.
    pub levels: Vec<LevelStats>,
    /// Where level 0 is compacted to.
    pub base_level: usize,
    /// Memory of its memtables, in bytes.
    pub memtable_bytes: u64,
    /// Memory that indexes and filters of its tables take, in bytes.
    pub index_filter_bytes: u64,
    /// Memtables that wait for their flush.
    pub immutable_memtables: usize,
    /// Entries in tables and memtables: keys, older versions of them and deletions.
    pub entries: u64,
    /// Of these, deletions.
    pub deletions: u64,
    /// Blob files.
    pub blob_files: usize,
    /// Blob files that only memtables point to: those that values go to as they are written.
    pub active_blob_files: usize,
    /// Their bytes.
    pub active_blob_bytes: u64,
    /// Bytes of blob records that some table points to.
    pub blob_live_bytes: u64,
    /// Bytes of blob records that nothing points to any more.
    pub blob_garbage_bytes: u64,
    /// Of `blob_live_bytes`, at most so many are overwritten or deleted, but not yet compacted with what did that.
    pub not_compacted_bytes: u64,
    /// Bytes of tables that may not overwrite what lies in others below.
    table_live_bytes: u64,
    /// Bytes of keys and values in tables, before compression, counting a separated value as its pointer.
    pub table_raw_bytes: u64,
    /// Of `table_raw_bytes`, in the deepest level with data: about what the keys take without older versions.
    pub deepest_level_bytes: u64,
    /// What compaction has to move until all levels are within their targets, in bytes; an estimate.
    pub pending_compaction_bytes: u64,
}

impl FamilyStats {
    /// Bytes of its tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }
}

/// The block cache; that of several stores ([`Options::cache`](crate::Options::cache)), for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Blocks found.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Bytes held.
    pub used_bytes: u64,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
}

/// What the store keeps in memory now, in bytes. What iterators and values that are held keep besides is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// [`Options::memory_limit`](crate::Options::memory_limit); 0 if there is none.
    pub limit_bytes: u64,
    /// Memtables of all families.
    pub memtable_bytes: u64,
    /// Indexes and filters of open tables of all families.
    pub index_filter_bytes: u64,
    /// Blocks of tables, and separated values, in the cache.
    pub cache_bytes: u64,
}

impl MemoryStats {
    /// All of it but for what is kept, which is room and holds nothing.
    pub fn total_bytes(&self) -> u64 {
        self.memtable_bytes + self.index_filter_bytes + self.cache_bytes
    }
}

/// Bytes written since the store was opened, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// What users wrote: batches with keys, values and their headers.
    pub user_bytes: u64,
    /// The write-ahead log.
    pub wal_bytes: u64,
    /// Blob files by writes themselves (`Separation::AtWrite`).
    pub write_blob_bytes: u64,
    /// Tables by flush.
    pub flush_bytes: u64,
    /// Blob files by flush.
    pub flush_blob_bytes: u64,
    /// Tables by compaction.
    pub compaction_bytes: u64,
    /// Tables and blob files by reclaim.
    pub reclaim_bytes: u64,
    /// Tables and blob files that came in from outside or were loaded in bulk.
    pub ingested_bytes: u64,
    /// Manifests.
    pub manifest_bytes: u64,
}

impl Written {
    /// All but what users wrote.
    pub fn device_bytes(&self) -> u64 {
        let flush_bytes = self.flush_bytes + self.flush_blob_bytes;
        let work_bytes = self.compaction_bytes + self.reclaim_bytes + self.ingested_bytes;
        self.wal_bytes + self.write_blob_bytes + flush_bytes + work_bytes + self.manifest_bytes
    }
}

/// Bytes on the disk, by kind of file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDisk {
    /// Tables, obsolete ones too.
    pub table_bytes: u64,
    /// Blob files.
    pub blob_bytes: u64,
    /// Write-ahead logs; that of an open store with what is preallocated.
    pub wal_bytes: u64,
    /// Manifests, OPTIONS, CURRENT, IDENTITY and what else lies there.
    pub other_bytes: u64,
    /// What is kept for when others have filled the disk ([`ballast_bytes`](crate::Options::ballast_bytes)).
    pub ballast_bytes: u64,
}

impl OnDisk {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.table_bytes + self.blob_bytes + self.wal_bytes + self.other_bytes
    }
}

/// A picture of one moment. Counters begin at zero with each open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// By column family.
    pub families: Vec<FamilyStats>,
    /// Write-ahead logs that are still needed, the active one included.
    pub wal_files: usize,
    /// The last sequence number that readers see.
    pub sequence: u64,
    /// Snapshots held.
    pub snapshots: usize,
    /// The block cache.
    pub cache: CacheStats,
    /// What is in memory.
    pub memory: MemoryStats,
    /// Bytes written, by cause.
    pub written: Written,
    /// Batches written.
    pub writes: u64,
    /// Syncs of the log.
    pub wal_syncs: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Compactions done, and moves of a table to the next level without rewriting it.
    pub compactions: u64,
    /// See [`compactions`](Self::compactions).
    pub trivial_moves: u64,
    /// Passes of reclaim over the tables that point into blob files with garbage.
    pub relocations: u64,
    /// Passes of reclaim that made holes in blob files.
    pub punches: u64,
    /// Bytes of blob files that came free by that.
    pub punched_bytes: u64,
    /// Bytes that compactions read.
    pub compaction_read_bytes: u64,
    /// Reads of tables for blocks that the cache lacked, those of background work included.
    pub table_read_calls: u64,
    /// Their bytes.
    pub table_read_bytes: u64,
    /// Separated values read, ahead of being asked for or in part included.
    pub blob_reads: u64,
    /// Their stored bytes, as far as they were read.
    pub blob_read_bytes: u64,
    /// Reads of blob files for them: fewer than values where neighbours were read together.
    pub blob_read_calls: u64,
    /// Time that writers were held back, in microseconds.
    pub stall_micros: u64,
    /// What lies on the disk.
    pub on_disk: OnDisk,
    /// What open found in the logs.
    pub recovery: Recovery,
    /// Compactions that met damage and rest until the tables of their family change; `background_error` says what it is.
    pub resting_compactions: usize,
    /// Why background work fails at present, or why the store is read-only.
    pub background_error: Option<Error>,
}

impl Stats {
    /// Bytes written to the device per byte that users wrote; `None` before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let user = self.written.user_bytes;
        (user > 0).then(|| self.written.device_bytes() as f64 / user as f64)
    }

    /// Bytes of tables and blob files on the disk per byte of them that is live: tables count as live if no other below them, or older in
    /// level 0, may have keys of theirs, blob files as far as tables point to them, less what those above others may hide. `None` for an empty store.
    pub fn space_amplification(&self) -> Option<f64> {
        let live: u64 = self.families.iter().map(|family| family.live_bytes()).fold(0, u64::saturating_add);
        let all = self.on_disk.table_bytes + self.on_disk.blob_bytes;
        (live > 0).then(|| all as f64 / live as f64)
    }
}

impl FamilyStats {
    fn live_bytes(&self) -> u64 {
        self.table_live_bytes.saturating_add(self.blob_live_bytes.saturating_sub(self.not_compacted_bytes))
    }
}

impl From<BlockCacheStats> for CacheStats {
    fn from(cache: BlockCacheStats) -> Self {
        let BlockCacheStats { hits, misses, used_bytes, capacity_bytes, .. } = cache;
        Self { hits, misses, used_bytes, capacity_bytes }
    }
}

impl Store {
    /// See [`Db::stats`](crate::Db::stats).
    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let cache = self.cache.stats();
        let state = self.state.lock();
        let (wal_files, resting_compactions) = (state.wals.len(), state.resting.len());
        drop(state);
        let families: Vec<FamilyStats> = self.families.load().values().map(|family| family_stats(family)).collect();
        let memory = MemoryStats {
            limit_bytes: self.cache.limit_bytes(),
            memtable_bytes: families.iter().map(|family| family.memtable_bytes).sum(),
            index_filter_bytes: families.iter().map(|family| family.index_filter_bytes).sum(),
            cache_bytes: cache.used_bytes,
        };
        Stats {
            families,
            memory,
            wal_files,
            sequence: self.visible().get(),
            snapshots: self.snapshots.count(),
            cache: cache.into(),
            written: Written {
                user_bytes: counters.user_bytes.get(),
                wal_bytes: counters.wal_bytes.get(),
                write_blob_bytes: counters.write_blob_bytes.get(),
                flush_bytes: counters.flush_bytes.get(),
                flush_blob_bytes: counters.flush_blob_bytes.get(),
                compaction_bytes: counters.compaction_bytes.get(),
                reclaim_bytes: counters.reclaim_bytes.get(),
                ingested_bytes: counters.ingested_bytes.get(),
                manifest_bytes: counters.manifest_bytes.get(),
            },
            writes: counters.user_writes.get(),
            wal_syncs: counters.wal_syncs.get(),
            flushes: counters.flushes.get(),
            compactions: counters.compactions.get(),
            trivial_moves: counters.trivial_moves.get(),
            relocations: counters.relocations.get(),
            punches: counters.punches.get(),
            punched_bytes: counters.punched_bytes.get(),
            compaction_read_bytes: counters.compaction_read_bytes.get(),
            table_read_calls: self.cache.table_reads.calls.get(),
            table_read_bytes: self.cache.table_reads.bytes.get(),
            blob_reads: self.blobs.counts().values.get(),
            blob_read_bytes: self.blobs.counts().bytes.get(),
            blob_read_calls: self.blobs.counts().reads.get(),
            stall_micros: counters.stall_micros.get(),
            on_disk: self.on_disk(),
            recovery: self.recovery.clone(),
            resting_compactions,
            background_error: self.background_error(),
        }
    }

    /// What cannot be listed counts as nothing: this is a report, and whoever needs the files finds the error there.
    pub(crate) fn on_disk(&self) -> OnDisk {
        let mut sum = OnDisk::default();
        for entry in self.env.files.list(&self.dir).unwrap_or_default() {
            let Ok(metadata) = self.env.files.metadata(&self.dir.join(&entry.name)) else { continue };
            let kind = match FileName::parse(&entry.name) {
                Some(FileName::Table(_)) => &mut sum.table_bytes,
                Some(FileName::Blob(_)) => {
                    // Without its holes; a file of which none was made takes what it is long, as the others here.
                    sum.blob_bytes += metadata.len.min(metadata.allocated);
                    continue;
                }
                Some(FileName::Wal(_)) => &mut sum.wal_bytes,
                Some(BALLAST) => &mut sum.ballast_bytes,
                _ => &mut sum.other_bytes,
            };
            *kind += metadata.len;
        }
        sum
    }

    /// See [`Db::property`](crate::Db::property).
    pub(crate) fn property(&self, family: &Family, name: &str) -> Option<String> {
        let name = name.strip_prefix("rocksdb.")?;
        if let Some(level) = name.strip_prefix("num-files-at-level") {
            let level: usize = level.parse().ok().filter(|&level| level < crate::options::LEVEL_COUNT)?;
            return Some(family.view.load().version.level(level).len().to_string());
        }
        let stats = family_stats(family);
        let value = match name {
            "estimate-num-keys" => stats.entries.saturating_sub(stats.deletions.saturating_mul(2)),
            "cur-size-all-mem-tables" => stats.memtable_bytes,
            "num-immutable-mem-table" => stats.immutable_memtables as u64,
            "total-sst-files-size" | "live-sst-files-size" => stats.table_bytes(),
            "num-blob-files" => stats.blob_files as u64,
            "total-blob-file-size" | "live-blob-file-size" => stats.blob_live_bytes + stats.blob_garbage_bytes,
            "live-blob-file-garbage-size" => stats.blob_garbage_bytes,
            "num-snapshots" => self.snapshots.count() as u64,
            "base-level" => stats.base_level as u64,
            "estimate-pending-compaction-bytes" => stats.pending_compaction_bytes,
            "block-cache-usage" => self.cache.stats().used_bytes,
            "block-cache-capacity" => self.cache.stats().capacity_bytes,
            "background-errors" => u64::from(self.background_error().is_some()),
            _ => return None,
        };
        Some(value.to_string())
    }
}

fn family_stats(family: &Family) -> FamilyStats {
    let view = family.view.load();
    let version = &view.version;
    let levels = Levels::of(version, &family.options());
    let properties = || version.tables().map(|(level, table)| (level, table.table.properties()));
    // Whoever wrote a table may have said anything.
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
    let raw = |level: Option<usize>| {
        let of_level = properties().filter(|(at, _)| level.is_none_or(|level| level == *at));
        sum(&mut of_level.flat_map(|(_, properties)| [properties.raw_key_bytes, properties.raw_value_bytes]))
    };
    let memtables = || view.generations().map(|generation| &generation.memtable);
    let deepest_level = version.deepest_level();
    let overlying_bytes: u64 = reclaim::overlying(version).iter().map(|table| table.meta.file_bytes).sum();
    FamilyStats {
        name: family.name.clone(),
        id: family.id,
        levels: version
            .levels()
            .map(|(level, tables)| LevelStats { level, files: tables.len(), bytes: version.level_bytes(level) })
            .collect(),
        base_level: levels.base,
        memtable_bytes: memtables().map(|memtable| memtable.allocated_bytes() as u64).sum(),
        index_filter_bytes: version.tables().map(|(_, table)| table.table.memory_bytes() as u64).sum(),
        immutable_memtables: view.sealed.len(),
        entries: sum(&mut properties()
            .map(|(_, properties)| properties.entry_count)
            .chain(memtables().map(|memtable| memtable.entry_count()))),
        deletions: sum(&mut properties()
            .map(|(_, properties)| properties.deletion_count)
            .chain(memtables().map(|memtable| memtable.deletion_count()))),
        blob_files: version.blobs().len(),
        active_blob_files: view.generations().map(|generation| generation.blobs.count()).sum(),
        active_blob_bytes: view.generations().map(|generation| generation.blobs.bytes()).sum(),
        blob_live_bytes: version.ledger().total().live_bytes(),
        blob_garbage_bytes: version.ledger().total().garbage_bytes,
        not_compacted_bytes: reclaim::not_compacted_bytes(version),
        table_live_bytes: version.table_sums().bytes.saturating_sub(overlying_bytes),
        table_raw_bytes: raw(None),
        deepest_level_bytes: raw(Some(deepest_level)),
        pending_compaction_bytes: levels.debt_bytes,
    }
}
