//! Names that you know, and what they are here. For RocksDB, Titan, Badger and Bitcask; a program written against the `raft-engine` crate needs no such list: it
//! changes an import (`esker-raft-engine`), and its files stay.
//!
//! # RocksDB
//!
//! A directory of RocksDB's is opened as it is, and stays one. Names of options in its OPTIONS file are kept; here are those that programs use.
//!
//! | there | here | and |
//! |---|---|---|
//! | `DB::Open`, `OpenForReadOnly` | [`Db::open`], [`Db::open_read_only`] | an open for reading shows one moment, with what is in the log |
//! | `OpenAsSecondary`, `TryCatchUpWithPrimary` | [`Db::open_read_only`], [`Db::catch_up`] | a new handle for each moment; the old one stays where it is |
//! | `RepairDB`, `ldb repair` | [`Db::repair`] | what is put aside and lost is told by name |
//! | `Put`, `Delete`, `SingleDelete`, `Merge` | [`Db::put`], [`Db::delete`], [`Db::single_delete`], [`Db::merge`] | `…_cf` for a family and options |
//! | `DeleteRange` | [`Db::delete_range`] | |
//! | `DeleteFilesInRange` | [`Db::delete_files_in_range`] | |
//! | `WriteBatch`, `SetSavePoint` | [`WriteBatch`], [`WriteBatch::set_save_point`] | |
//! | `WriteOptions::sync`, `disableWAL` | [`WriteOptions::sync`], [`WriteOptions::disable_wal`] | |
//! | `Get`, `MultiGet`, `PinnableSlice` | [`Db::get`], [`Db::multi_get`], [`PinnedSlice`] | part of a value: [`Db::get_range`]; its length: [`Db::value_len`] |
//! | `KeyMayExist` | [`Db::exists`] | certain, and reads no value of a blob file |
//! | `NewIterator`, `iterate_upper_bound` | [`Db::iter`], [`ReadOptions::upper_bound`] | values are read when asked for, and ahead; in parallel: [`Db::parallel_scan`] |
//! | `total_order_seek`, `prefix_same_as_start` | bounds: [`ReadOptions::lower_bound`], [`ReadOptions::prefix`] | a walk always shows all keys within its bounds; filters of prefixes are used where these allow |
//! | tailing iterators | [`DbIterator::refresh`] | |
//! | `GetSnapshot` | [`Db::snapshot`] | goes when it is dropped |
//! | `CreateColumnFamily`, `create_missing_column_families` | [`Db::create_column_family`], [`Options::create_missing_column_families`] | all families are open, whether named or not |
//! | `OptimisticTransactionDB` | [`Db::transaction`], [`Db::transact`] | of any store, beside plain writes; reads are of the beginning |
//! | `TransactionDB`, `GetForUpdate` | [`TransactionOptions::locking`], [`Transaction::get_for_update`] | reads are locked, too (shared); deadlocks are always looked for, and are [`ErrorKind::Conflict`], a wait that took too long is [`ErrorKind::Busy`]; plain writes ask for no lock, and are noticed at the commit |
//! | two-phase commit (`Prepare`) | none | a store with prepared transactions is refused |
//! | no name | [`Db::update`], [`Db::compare_and_set`], [`Db::put_if_absent`] | one key, in one step |
//! | `DBWithTTL` | [`Db::with_ttl`] | what has expired is not shown; a value may have a time of its own |
//! | `CompactionFilter`, `periodic_compaction_seconds` | [`CompactionFilter`], [`FamilyOptions::periodic_compaction_seconds`] | |
//! | `MergeOperator`, `AssociativeMergeOperator` | [`MergeOperator`] | RocksDB's own are known by name |
//! | `Comparator` | [`Comparator`], [`FamilyOptions::comparator`], [`Options::comparators`] | it says nothing but which key comes first; two keys are equal only if their bytes are |
//! | user-defined timestamps | none | |
//! | `SstFileWriter`, `IngestExternalFile` | [`SstFileWriter`], [`Db::ingest`] | sorted input without files: [`Db::bulk_load`] |
//! | `Checkpoint` | [`Db::checkpoint`] | |
//! | `BackupEngine` | [`Backups`] | each generation is a store that anybody opens; or one that is brought up to date: [`Db::backup`] |
//! | `Flush`, `CompactRange`, `SyncWAL` | [`Db::flush`], [`Db::compact_range`], [`Db::sync_wal`] | |
//! | `WaitForCompact` | [`Db::wait_for_compact`] | |
//! | `GetProperty`, `Statistics` | [`Db::property`], [`Db::stats`] | |
//! | `EventListener` | [`Listener`] | |
//! | `VerifyChecksum`, `VerifyFileChecksums` | [`Db::check`] | and all that names, levels, pointers and counts say of each other |
//! | `max_background_jobs` | [`Options::background_jobs`] | 0: work is done by who makes it necessary |
//! | `NewLRUCache`, `block_cache` | [`Options::cache_bytes`], or [`Cache`] for several stores | |
//! | `WriteBufferManager`, `cache_index_and_filter_blocks`, `strict_capacity_limit` | [`Options::memory_limit`], or [`Cache::within_limit`] | memtables, indexes, filters and the cache within one limit |
//! | `rate_limiter` | [`Options::background_bytes_per_second_max`] | also while it is open |
//! | `SstFileManager`, `max_allowed_space_usage` | [`Options::max_disk_bytes`] | never exceeded; reads, deletions and reclaim go on |
//! | `max_total_wal_size`, `recycle_log_file_num` | [`Options::wal_bytes_max`], [`Options::recycled_logs_max`] | |
//! | `wal_recovery_mode` | [`Options::wal_recovery`] | |
//! | `wal_dir` | [`Options::wal_dir`] | where logs lie that are needed and nobody said so, the store is not opened |
//! | `use_mmap_reads` | [`Options::mmap_reads`] | |
//! | `write_buffer_size`, `max_write_buffer_number` | [`FamilyOptions::write_buffer_bytes`], [`FamilyOptions::write_buffer_count_max`] | |
//! | `target_file_size_base`, `max_bytes_for_level_base`, `…_multiplier`, `num_levels` | [`FamilyOptions::target_file_bytes`], [`FamilyOptions::level_base_bytes`], [`FamilyOptions::level_multiplier`], [`FamilyOptions::level_count`] | levels are dynamic |
//! | `level0_file_num_compaction_trigger`, `…_slowdown_writes_trigger`, `…_stop_writes_trigger` | [`FamilyOptions::level0_compaction_trigger`] and its two neighbours | |
//! | `compression`, `bottommost_compression`, `compression_per_level` | [`FamilyOptions::compression`] and the like | |
//! | `BlockBasedTableOptions`: `block_size`, `filter_policy`, `checksum` | [`FamilyOptions::block_bytes`], [`FamilyOptions::bloom_bits_per_key`], [`FamilyOptions::checksum`] | |
//! | `prefix_extractor` | [`FamilyOptions::prefix`] | |
//! | `enable_blob_files`, `min_blob_size`, `blob_file_size`, `blob_compression_type` | [`FamilyOptions::separation`], [`FamilyOptions::min_blob_size`], [`FamilyOptions::blob_file_bytes`], [`FamilyOptions::blob_compression`] | |
//! | `enable_blob_garbage_collection`, `blob_garbage_collection_age_cutoff`, `…_force_threshold` | [`Options::max_space_amp`], [`Options::reclaim_mode`] | a bound to all files in place of an age |
//! | `SetOptions` | [`Db::set_options`] | all of a family but `merge_operator`, `comparator` and `level_count` |
//! | `SetDBOptions`, `Cache::SetCapacity` | [`Db::set_db_options`], [`Cache::set_bytes`] | limits of the disk, memory, logs and rates, and when reclaim runs; the others at the next open |
//! | `ldb`, `sst_dump`, `db_bench` | `esker get`, `put`, `scan` …, `esker dump`, `esker bench` | and they work on stores of Esker's |
//!
//! # Titan
//!
//! Its directories are not opened. Values leave the tree at the flush here, too ([`Separation::AtFlush`](Separation)).
//!
//! | there | here | and |
//! |---|---|---|
//! | `min_blob_size`, `blob_file_compression` | [`FamilyOptions::min_blob_size`], [`FamilyOptions::blob_compression`] | |
//! | `blob_run_mode`: `kNormal`, `kReadOnly`, `kFallback` | [`Db::set_separation`] | while it is open; a fall back goes on step by step until no blob file is left |
//! | `level_merge` | nothing to set | relocation brings together what scans find here and there |
//! | `blob_file_discardable_ratio`, `max_background_gc` | [`Options::max_space_amp`], [`Options::reclaim_mode`] | reclaim does not write through the log, and looks no key up |
//! | `punch_hole_threshold` | [`Options::punch_holes`] | |
//!
//! # Badger
//!
//! Its directories are not opened: write what it has into a [`Db`] (`esker import`, or [`Db::bulk_load`] of what a `Stream` gives, which is sorted).
//!
//! | there | here | and |
//! |---|---|---|
//! | `ValueThreshold` | [`FamilyOptions::min_blob_size`], [`Separation::AtWrite`](Separation) | |
//! | `DB.Update`, `ErrConflict` | [`Db::transact`], [`ErrorKind::Conflict`] | begins again by itself; [`Db::transaction`] does not |
//! | `DB.View` | [`Db::snapshot`], [`ReadOptions::snapshot`] | |
//! | `Entry.WithTTL` | [`TtlFamily::put_for`] | |
//! | `Entry.WithMeta` | none | a byte of the value |
//! | `RunValueLogGC` | nothing to call | by hand: [`Db::reclaim`] |
//! | `Stream` | [`Db::parallel_scan`], [`Db::split_cf`] | |
//! | `StreamWriter` | [`Db::bulk_load`] | |
//! | `MergeOperator`, `GetSequence` | [`Db::merge`], [`Db::update`] | |
//! | `DB.Backup`, `DB.Load` | [`Db::backup`], and opening it | |
//! | `DropPrefix`, `DropAll` | [`Db::delete_range`], [`Db::drop_column_family`] | |
//! | `InMemory` | [`env::sim`] | for tests |
//!
//! # Bitcask
//!
//! [`Cask`] has its shape, an index of all keys in memory over files that are only appended to, and its own files.
//!
//! | there | here | and |
//! |---|---|---|
//! | `open`, `read_write` | [`Cask::open`], [`Cask::open_read_only`] | |
//! | `get`, `put`, `delete` | [`Cask::get`], [`Cask::put`], [`Cask::delete`] | keys of up to 65,535 bytes; batches: [`Cask::write`] |
//! | `list_keys`, `fold` | [`Cask::scan`] | in the order of files: the disk is read from front to back |
//! | `merge` | nothing to call | by hand: [`Cask::compact`] |
//! | `sync`, `sync_strategy` | [`Cask::sync`], [`CaskWriteOptions`] | |
//! | `max_file_size`, `expiry_secs` | [`CaskOptions::file_bytes`], [`CaskOptions::default_ttl`] | or of each put |

#[expect(unused_imports, reason = "links above are looked up by it")]
use super::*;
