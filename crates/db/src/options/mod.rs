//! What a user may choose, each with its default, its range and its cost. [`Options::validate`] is called by every
//! open before the first file is touched; nothing is adjusted silently.

mod kept;
mod mutable;
mod orders;
mod partition;
mod persist;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_format::checksum::ChecksumKind;
use esker_format::compression::Compression;
use esker_format::limits;
use esker_format::rocksdb::order::{BytewiseComparator, Comparator, Order};
use esker_format::rocksdb::prefix::{self, PrefixExtractor};
use esker_log::scan::RecoveryMode;

use crate::cache::Cache;
use crate::compaction::CompactionFilter;
use crate::events::Listener;
use crate::operands::MergeOperator;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

pub use mutable::MutableOptions;
pub(crate) use orders::Orders;
pub use partition::BlobPartition;
pub(crate) use persist::{ForeignOptions, OptionsInFile, print, wal_dir_line};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// How many levels a tree may have, as RocksDB's default `num_levels`.
pub(crate) const LEVEL_COUNT: usize = 7;
/// Level 0 and one to compact it into.
pub(crate) const LEVEL_COUNT_MIN: usize = 2;

/// Options of a whole store.
///
/// An open store has a file descriptor for each table and each blob file: some 16,000 for a TiB at the defaults, as tables end at 64 MiB
/// ([`target_file_bytes`](FamilyOptions::target_file_bytes)) and blob files are as long as what a memtable moves out. Where a process may
/// not have so many, calls that need one more are `Exhausted`. Its soft limit (`RLIMIT_NOFILE`, often 1,024) is the program's to raise to
/// the hard one, as the `esker` command does; or let files be larger.
#[derive(Debug, Clone)]
pub struct Options {
    /// Make a new store where there is none. Default `false`: a mistyped path is an error, not an empty store.
    pub create_if_missing: bool,

    /// Refuse a store that is already there. Default `false`.
    pub error_if_exists: bool,

    /// Options of column families, by name; `"default"` always exists.
    ///
    /// A family of an existing store that is not named here keeps what the store's OPTIONS file says of it, whoever
    /// wrote that file, Esker or RocksDB. Naming a family that does not exist does not create it, unless
    /// [`create_missing_column_families`](Self::create_missing_column_families) is set, and is no error, so that a program may
    /// name all that it is about to make, at every open: a mistyped name has no effect then, and
    /// [`Db::column_family`](crate::Db::column_family) says whether there is one.
    /// [`Db::create_column_family`](crate::Db::create_column_family) goes by the options that it is given, not by these.
    pub families: BTreeMap<String, FamilyOptions>,

    /// Create the column families that [`families`](Self::families) names and the store lacks, one after the other, in the order of their names: an open that
    /// fails in between, or dies, leaves those that it has made. Default `false`. An open for reading only creates none.
    pub create_missing_column_families: bool,

    /// What open does about a damaged write-ahead log. Default [`RecoveryMode::PointInTime`].
    pub wal_recovery: RecoveryMode,

    /// Threads for flush and compaction. Default 2. Range 0..=64. Walks that are sure to go on share one more, from the first on: it reads and
    /// unpacks what they will be asked for.
    ///
    /// 0 means that the writer whose write makes work necessary does it before it returns: no thread is started, and
    /// the same calls do the same I/O in the same order on every run.
    pub background_jobs: usize,

    /// Budget of the cache of uncompressed table blocks, in bytes. Default 64 MiB. Range 0..=1 TiB; 0 caches nothing.
    /// Indexes and filters of open tables are held beside it. Without effect where `memory_limit` is set.
    pub cache_bytes: u64,

    /// Budget of everything that the store keeps in memory, in bytes: memtables, indexes and filters of open tables, and
    /// the cache, which gets what the others leave. Default 0: there is no such limit. Range 0 or 1 MiB..=1 TiB.
    ///
    /// The memtables that are written to, of all families, get a quarter of it together: beyond, the largest is flushed though its
    /// `write_buffer_bytes` are not full. Those that wait for their flush come on top (`write_buffer_count_max`), and what is large in one write.
    /// Indexes and filters get at most three quarters of what memtables leave: beyond, those not used for longest go, and are read again
    /// when they are needed; those of one table alone may be more. Where memtables that wait take nearly all of it, the cache keeps a 64th,
    /// indexes and filters three, and the limit is exceeded for as long. Values and iterators that are held count as the user's.
    pub memory_limit: u64,

    /// The cache of several stores, in place of one of its own; then `cache_bytes` and `memory_limit` are without effect. Default `None`.
    pub cache: Option<Cache>,

    /// Whether separated values that [`Db::get_cf`](crate::Db::get_cf) and its like read stay in the cache, unpacked, beside the blocks of
    /// tables. Default `true`: while there is room, and then those that are read a second time before long, so that values
    /// that are read once do not push out blocks, of which each serves many keys. Iterators leave none there.
    pub cache_blobs: bool,

    /// Whether tables and blob files are read as mapped memory (RocksDB's `allow_mmap_reads`). Default `false`. Blob files that values are
    /// written to as they come ([`Separation::AtWrite`]) are from the flush on.
    ///
    /// Saves the system call and the copy of each read, and the look ahead of iterators, where the page cache holds the data.
    /// Where it does not, a read waits for one page after the other, so leave it off for stores that are larger than memory.
    /// When the device fails, or somebody truncates a file, the system ends the process with `SIGBUS`, where otherwise the
    /// read returns an error. A process has 65,530 mappings by default (`vm.max_map_count`); files beyond are read.
    pub mmap_reads: bool,

    /// Who is told of what goes on in the background (RocksDB's `listeners`). Default none. Not kept in the store.
    pub listeners: Vec<Listener>,

    /// Merge operators of the program, for families that are named here by nobody and whose OPTIONS say one of these names. Default none. RocksDB's own
    /// (`uint64add`, `stringappend`, `max`, `bytesxor`, `put`) are known without.
    pub merge_operators: Vec<Arc<dyn MergeOperator>>,

    /// Orders of the program, for families that are named here by nobody and that a store says are ordered by one of these names. Default none. RocksDB's
    /// own two ([`BytewiseComparator`], [`ReverseBytewiseComparator`](crate::ReverseBytewiseComparator)) are known without.
    pub comparators: Vec<&'static dyn Comparator>,

    /// Directory of the logs, on a device of their own perhaps; made where it is missing (RocksDB's `wal_dir`). In UTF-8. Default none: the store's. It has to be
    /// given at every open, also for reading only: a store whose logs are not where it is is refused otherwise. Logs that lie in the store's directory
    /// from before are found there; those that are in another one, which was given before, have to be moved, unless all that is in them was flushed. No
    /// other store may have the same one: a store is not made where logs are already, nor opened with logs where it had none by its OPTIONS file, as when it was
    /// restored from a backup: move what an earlier life left out of the way.
    ///
    /// `max_disk_bytes` counts them, too; [`ballast_bytes`](Self::ballast_bytes) is of no use to them.
    pub wal_dir: Option<PathBuf>,

    /// Write-ahead log, in bytes, after which the memtables that hold the oldest of it are flushed, so that it can be
    /// deleted. Default 0: four times the sum of the families' write buffers. Range 0 or 64 KiB..=1 TiB.
    /// Smaller means a faster open after a crash, larger fewer small tables of families that are seldom written.
    pub wal_bytes_max: u64,

    /// Logs that are kept when no memtable needs them, to be written over as the next ones, as RocksDB's `recycle_log_file_num`.
    /// Default 0. Range 0..=64. Their blocks are in use already, which spares synced writes a part of each sync and memory
    /// pages their zeroes. The price: after a crash, damage to such a log passes for its end, since what lies behind
    /// the end looks like anything.
    pub recycled_logs_max: usize,

    /// Size at which a new manifest is begun, in bytes. Default 64 MiB. Range 4 KiB..=1 GiB. One that begins with more than half of that
    /// doubles first. On a small disk, or with a small [`max_disk_bytes`](Self::max_disk_bytes), a 64th of what all files may take up, if that is less.
    pub manifest_bytes_max: u64,

    /// The largest group of concurrent writes that goes to the log in one append, in bytes. Default 1 MiB.
    /// Range 4 KiB..=1 GiB. A single larger batch is a group of its own.
    pub group_bytes_max: u64,

    /// Writing speed that is left when the tree is at its limits, in bytes per second. Default 4 MiB/s.
    /// Range 64 KiB/s..=1 TiB/s. The delay grows smoothly from the slowdown triggers on; see [`esker_log::pacer`].
    pub delayed_write_bytes_per_second_min: u64,

    /// When space is taken back from blob files. Default [`ReclaimMode::Auto`].
    pub reclaim_mode: ReclaimMode,

    /// Bytes on the disk per byte that lives in tables and blob files, of the whole store, beyond one blob file
    /// ([`blob_file_bytes`](FamilyOptions::blob_file_bytes)), which a small store may have besides. Default 1.3. Range 1.05..=100.
    /// Logs count as far as they leave half of what may be taken above what lives, and what tables take to lead to values in blob files as far as it
    /// leaves three quarters. A store without blob files has
    /// no such bound: a compaction needs what it merges once more until it ends, and writers do not wait for that.
    ///
    /// Reclaim frees what is needed in time; writers that make garbage faster than it can wait for it (`reclaim_mode` `Auto`). Smaller
    /// means less space and more copying: at 1.3, values of less than two pages that are overwritten at random are copied
    /// once or twice more in their life. What is overwritten but not yet compacted is reckoned with as an estimate, from samples of what
    /// is written: a quarter of a blob file is kept for what that is off by, and still the bound may be exceeded for a moment, by a percent or two of
    /// what lives. Files that only iterators and values in
    /// the user's hands keep are not counted.
    pub max_space_amp: f64,

    /// Bytes that all files in the store's directory may take up. Default 0: there is no such limit, but for the disk. Range 0 or
    /// 1 MiB..=1 EiB.
    ///
    /// Never exceeded, counted in whole blocks. Well before it is reached reclaim frees what it can; then writes are refused with `Exhausted`,
    /// as on a full disk, but for those that only delete: these are once deletions take a part of the room that is kept for them (1/64 of the limit, at least
    /// 64 KiB and at most 64 MiB) and can take no effect, since readers or snapshots hold what they delete. Room is kept for the flush of every memtable and for a pass of
    /// reclaim or a step of a compaction, as blob files and tables end at 1/64 of the limit, if that is less than
    /// [`blob_file_bytes`](FamilyOptions::blob_file_bytes) or [`target_file_bytes`](FamilyOptions::target_file_bytes) (but no less than
    /// 64 KiB). Choose it four write buffers above what shall be stored, or more; without blob files eight above one and a half times that, or above twice
    /// that with a [`level_count`](FamilyOptions::level_count) of 2, since all tables are merged at once then.
    pub max_disk_bytes: u64,

    /// Whether reclaim makes holes of the dead pages of blob files, before it copies what lives there. Default `false`: RocksDB
    /// reads such files, but its tools that dump every record of a blob file, dead ones too (`ldb dump_live_files`), fail at a packed value with
    /// a hole in it.
    ///
    /// Costs no write, and is worth it for values of two pages (8 KiB) or more. Where the file system has no
    /// holes, values are copied, as long as another process reads the store with Esker, too. RocksDB's read-only
    /// processes tell nobody that they read: switch it off to run them beside a writer.
    pub punch_holes: bool,

    /// Whether holes stay within values. Default `true`: RocksDB's tools that walk through a blob file from front to back
    /// (`ldb dump_live_files`, `blob_dump`) get past them if values are not packed; without, they stop or abort there. Nothing else needs it.
    ///
    /// Without, whole dead pages between the living go, with headers and keys of dead records: values of two to four pages give back a quarter
    /// to a half more, and much less is copied.
    pub holes_within_values: bool,

    /// Bytes of values that reclaim copies per second, at most. Default 0: as fast as it can, but slower, down to 4 MiB/s, where the slowest
    /// puts and gets take longer for it and there is space left. Range 0 or 64 KiB/s..=1 TiB/s.
    /// A limit leaves more of the device to reads and writes, and lets `max_space_amp` be exceeded where they make garbage faster.
    pub reclaim_bytes_per_second_max: u64,

    /// Bytes that flushes, compactions and reclaim together write per second, at most (RocksDB's `rate_limiter`). Default 0: as fast as they can.
    /// Range 0 or 64 KiB/s..=1 TiB/s. Flushes go first, reclaim last.
    ///
    /// It leaves the device to reads and to the log, which no limit holds back. Below what writers bring, some times over since compaction writes it again, they are held back
    /// as wherever compaction is behind; and reclaim, which comes last, lets `max_space_amp` be exceeded. What an open flushes, loads, files that are
    /// taken in, copies and repairs go as fast as they can. May change while the store is open, with
    /// [`Db::set_db_options`](crate::Db::set_db_options).
    pub background_bytes_per_second_max: u64,

    /// Bytes of the disk that an open store keeps for itself, in a file that holds nothing, for when others have filled it: then deletions, flushes and
    /// reclaim, and the next open, have room to go on with. Default 128 MiB, two memtables of the default size. Range 0..=1 TiB; 0: none.
    ///
    /// At most a 16th of the disk, or of `max_disk_bytes`, also one that is set while the store is open; taken once less than 64 times as much is free, where the file system reserves blocks. A store that is
    /// closed leaves the file, `000001.dbtmp`, only while so little is free; the next open has it. RocksDB takes it away.
    ///
    /// Deletions of values in blob files, whole files of which come free by that, need no more than this. A merge of tables that hold the values themselves may:
    /// what it leaves has to fit; ten times [`target_file_bytes`](FamilyOptions::target_file_bytes) let most of them go ahead on a disk without a free byte.
    pub ballast_bytes: u64,

    /// Whether the store keeps what is chosen here of `max_disk_bytes`, `max_space_amp`, `reclaim_mode`, `punch_holes` and
    /// `holes_within_values`, for tools that open it after this program: see [`Options::of_store`]. Default `true`; `false` leaves what it
    /// keeps as it is. An open itself always goes by its own options.
    pub keep_space_options: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            create_missing_column_families: false,
            error_if_exists: false,
            families: BTreeMap::new(),
            wal_recovery: RecoveryMode::PointInTime,
            background_jobs: 2,
            cache_bytes: 64 * MIB,
            memory_limit: 0,
            cache: None,
            cache_blobs: true,
            listeners: Vec::new(),
            merge_operators: Vec::new(),
            comparators: Vec::new(),
            mmap_reads: false,
            wal_dir: None,
            wal_bytes_max: 0,
            recycled_logs_max: 0,
            manifest_bytes_max: 64 * MIB,
            group_bytes_max: MIB,
            delayed_write_bytes_per_second_min: 4 * MIB,
            reclaim_mode: ReclaimMode::Auto,
            max_space_amp: 1.3,
            max_disk_bytes: 0,
            ballast_bytes: 128 * MIB,
            punch_holes: false,
            holes_within_values: true,
            reclaim_bytes_per_second_max: 0,
            background_bytes_per_second_max: 0,
            keep_space_options: true,
        }
    }
}

/// Where values live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Separation {
    /// With their keys, in the tables.
    Off,
    /// Values of at least `min_blob_size` bytes move to blob files when their memtable is flushed (Titan's way): the
    /// log has them once, a blob file once, and compaction never copies them.
    AtFlush,
    /// Values of at least `min_blob_size` bytes go to a blob file as they are written (the way of WiscKey and Badger): log and
    /// memtable have a pointer, and flush and compaction copy none. Of the three it writes least, and memtables
    /// hold many more keys. In exchange values lie in the order in which they were written, so scans read here and there;
    /// values that are overwritten soon reach the disk, too; and a synced write of more than 8 KiB waits for two files. Values of shorter
    /// ones are synced with the log, and go to blob files at the flush, unless there is a `blob_partition`.
    ///
    /// Crash-safe like the others. But RocksDB knows of a blob file only once it is in the manifest: a store that was not
    /// closed must be opened by Esker before RocksDB opens it, or RocksDB removes the files of values that are only in the log.
    /// Values written with `disable_wal` go to blob files at the flush.
    AtWrite,
    /// With their keys, also those that lie in blob files now: reclaim brings them back, a part of the tables at a time while writers go on, and
    /// compactions do with what they meet, until there is no blob file left and a RocksDB without them opens the store. What lives is written once
    /// for that where `max_space_amp` and the disk leave room for it twice, else some times. Tables that hold values need more room for merges, which is kept:
    /// of a store that nearly fills its disk, values come home as others are deleted. RocksDB calls this blob garbage collection without blob files,
    /// Titan its fallback mode.
    FallBack,
}

impl Separation {
    const ALL: [Self; 4] = [Self::Off, Self::AtFlush, Self::AtWrite, Self::FallBack];

    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The other way round; `Off` for a number that none has.
    pub(crate) fn of_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Off)
    }

    /// Whether a flush or compaction moves values out that it meets with their keys.
    pub(crate) const fn moves_out(self) -> bool {
        matches!(self, Self::AtFlush | Self::AtWrite)
    }
}

/// When space is taken back that overwritten and deleted values leave in blob files. A blob file without a live value
/// goes in any case, and where there is no more room, compactions let deletions take effect in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReclaimMode {
    /// Before `max_space_amp` or `max_disk_bytes` is exceeded, in the background.
    #[default]
    Auto,
    /// When [`Db::reclaim`](crate::Db::reclaim) asks for it.
    Manual,
    /// Never.
    Off,
}

/// Options of one column family. All but `merge_operator` and `level_count` may change while the store is open, with
/// [`Db::set_options`](crate::Db::set_options).
#[derive(Debug, Clone)]
pub struct FamilyOptions {
    /// Size at which a memtable is sealed and flushed, in bytes of arena. Default 64 MiB. Range 64 KiB..=16 GiB. It is sealed at 1/32 of what
    /// the store may take up (the disk's free space, or [`max_disk_bytes`](Options::max_disk_bytes)), but no less than 128 KiB, if that is less.
    /// Larger means fewer, larger flushes and more memory; smaller means a faster open after a crash.
    pub write_buffer_bytes: u64,

    /// Memtables of the family in memory, the active one included, at which writers wait for a flush. Default 4.
    /// Range 2..=64.
    pub write_buffer_count_max: usize,

    /// Where values live. Default [`Separation::AtFlush`]. May change on reopen, and while the store is open, by
    /// [`Db::set_separation`](crate::Db::set_separation), too: values stay where they are until compaction.
    pub separation: Separation,

    /// Smallest value that is separated, in bytes. Default 4,096, below which one more read per value costs more than
    /// compaction saves (Titan's default). Range 0..=3 GiB. May change on reopen.
    pub min_blob_size: u64,

    /// Size at which a blob file is sealed and the next one opened, in bytes. Default 256 MiB. Range 64 KiB..=4 GiB. It is sealed at 1/64 of what
    /// the store may take up (the disk's free space, or [`max_disk_bytes`](Options::max_disk_bytes)) if that is less.
    /// Larger means fewer files and longer sequential reads; smaller means space returns sooner. Sixteen files of like size below a sixteenth of it,
    /// as small memtables leave them, are merged while fewer than 10,000 entries a second are written, where values are smaller than pages, keys
    /// are the lesser part and there is no [`blob_partition`](Self::blob_partition): that writes each value once more for each time
    /// that its file grows by sixteen, and has a range read from few places.
    pub blob_file_bytes: u64,

    /// Which of up to 16 blob files a value goes to, with [`Separation::AtWrite`]: by its expected lifetime, for example, so that
    /// files die whole and reclaim moves little. Default `None`: all go to one. Not kept in the store; may change on reopen.
    ///
    /// Each partition in use has one more file open that takes values; one more sync of the others whenever a file takes its first value.
    pub blob_partition: Option<BlobPartition>,

    /// What is made of operands ([`Db::merge`](crate::Db::merge), RocksDB's `merge_operator`). Default `None`: merges are refused, and a key that
    /// has operands can be neither read nor made into a value.
    ///
    /// The store keeps its name: an open that does not name the family finds it by that in [`Options::merge_operators`], and RocksDB's own
    /// anyway. Another one than the operands are for makes other values of them; nobody notices.
    pub merge_operator: Option<Arc<dyn MergeOperator>>,

    /// In which order the keys lie (RocksDB's `comparator`). Default [`BytewiseComparator`]. It holds for as long as there is the family: an open with
    /// another is refused.
    ///
    /// ```
    /// use std::cmp::Ordering;
    ///
    /// use esker_db::{Comparator, Db, FamilyOptions, Options};
    ///
    /// /// Short keys before long ones.
    /// struct ByLength;
    ///
    /// impl Comparator for ByLength {
    ///     fn name(&self) -> &str {
    ///         "example.ByLength"
    ///     }
    ///     fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
    ///         a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    ///     }
    /// }
    ///
    /// # fn main() -> esker_db::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("esker-order-{}", std::process::id()));
    /// let family = FamilyOptions { comparator: &ByLength, ..FamilyOptions::default() };
    /// let families = [("default".to_owned(), family)].into();
    /// let db = Db::open(&dir, Options { create_if_missing: true, families, ..Options::default() })?;
    /// db.put("aa", "")?;
    /// db.put("b", "")?;
    /// let first = db.iter()?.entries().next().unwrap()?;
    /// assert_eq!(first.0, b"b");
    /// db.close()?;
    ///
    /// // Who opens it knows the order, or is told its name.
    /// assert!(Db::open(&dir, Options::default()).unwrap_err().to_string().contains("example.ByLength"));
    /// Db::open(&dir, Options { comparators: vec![&ByLength], ..Options::default() })?.close()?;
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cost of another: each comparison is a call, and what goes by the first bytes of keys (arrays in memory that spare a search most of its cache
    /// misses, short separators in indexes, [`prefix`](Self::prefix) of ranges) is not made.
    pub comparator: &'static dyn Comparator,

    /// What a program lets go of, or changes, when a compaction comes by. Default `None`. Not kept in the store; may change on reopen.
    ///
    /// With one, [`Db::compact_range`](crate::Db::compact_range) writes the deepest tables again, too, to show all there is.
    pub compaction_filter: Option<CompactionFilter>,

    /// Seconds after which a table is written again if no compaction came by, so that a [`compaction_filter`](Self::compaction_filter) sees what is in it.
    /// Default 0: never. Range 0 or 60..=3,153,600,000 (100 years). RocksDB's "as there is a filter", which it writes for 30 days, is read as 0.
    ///
    /// Costs a read and a write of every table each time, where nothing else is to be done.
    pub periodic_compaction_seconds: u64,

    /// How separated values are compressed, one by one. Default LZ4. May change on reopen.
    pub blob_compression: Compression,

    /// How table blocks are compressed, where the two that follow say nothing else. Default LZ4. May change on reopen.
    pub compression: Compression,

    /// How blocks of tables in the deepest level with any are compressed (RocksDB's `bottommost_compression`). Default `None`: as the others.
    /// May change on reopen. Most of a tree lies there, and it is rewritten least: the place for what packs tighter and slower.
    pub bottommost_compression: Option<Compression>,

    /// How table blocks are compressed level by level (RocksDB's `compression_per_level`): the first is level 0's, the second that of the level
    /// which it is compacted into, and so on; the last holds for all below. Default empty: `compression`. May change on reopen.
    pub compression_per_level: Vec<Compression>,

    /// Uncompressed size at which a table block is closed, in bytes. Default 4 KiB. Range 256 B..=16 MiB.
    /// Larger means a smaller index and better compression; smaller means less read per point lookup.
    pub block_bytes: u64,

    /// Keys between restart points in a block, where a key is stored whole. Default 16. Range 1..=1,024.
    pub restart_interval: usize,

    /// Bloom filter bits per key. Default 10.0: about one useless table probe in a hundred. Range 0.0..=64.0; 0 writes no filter.
    pub bloom_bits_per_key: f64,

    /// Which prefixes of keys the filters have, too (RocksDB's `prefix_extractor`). Default `None`. May change on reopen.
    ///
    /// An iterator whose bounds lie within one prefix ([`ReadOptions::with_prefix`]) then leaves out tables that have no key
    /// of it. Costs `bloom_bits_per_key` for each prefix in a table. Esker needs no option to see all keys in order.
    pub prefix: Option<PrefixExtractor>,

    /// Checksum of table blocks. Default XXH3, RocksDB's own default since 6.27. With `None` damage to tables is not noticed.
    pub checksum: ChecksumKind,

    /// Size at which compaction begins the next table, in bytes. Default 64 MiB. Range 4 KiB..=16 GiB. On a disk of less than 64 of them,
    /// it is a 64th of what the store may take up.
    pub target_file_bytes: u64,

    /// Size of the first level below level 0 that has data, at most, in bytes. Default 256 MiB. Range 16 KiB..=1 TiB.
    pub level_base_bytes: u64,

    /// How many times larger each level may be than the one above. Default 10. Range 2..=100.
    /// Level sizes are dynamic: they follow from the last level's, so that about 1/10 of the tree lies above it.
    pub level_multiplier: u64,

    /// How many levels the tree may have, level 0 included. Default 7, as RocksDB's `num_levels`. Range 2..=7.
    ///
    /// The deepest one is filled first, so a program that opens the store with fewer levels will not find them all.
    /// A store's own number holds where its OPTIONS file says it. Fewer than its tables need are refused at open.
    pub level_count: usize,

    /// Tables in level 0 at which compaction begins: into the level below once level 0 is a quarter of that, within level 0 before.
    /// Default 4. Range 1..=10,000.
    pub level0_compaction_trigger: usize,

    /// Tables in level 0 from which on writers are slowed down, smoothly. Default 20. Range trigger..=10,000.
    pub level0_slowdown_trigger: usize,

    /// Tables in level 0 at which writers are at their slowest. Default 36. Range slowdown + 1..=20,000.
    pub level0_stop_trigger: usize,

    /// Bytes that compaction owes from which on writers are slowed down. Default 64 GiB. Range 1 MiB..=2⁶³ - 1.
    pub pending_compaction_bytes_soft: u64,

    /// Bytes that compaction owes at which writers are at their slowest. Default 256 GiB. Range soft limit + 1..=2⁶⁴ - 1.
    pub pending_compaction_bytes_hard: u64,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        Self {
            write_buffer_bytes: 64 * MIB,
            write_buffer_count_max: 4,
            separation: Separation::AtFlush,
            min_blob_size: 4 * KIB,
            blob_file_bytes: 256 * MIB,
            blob_partition: None,
            merge_operator: None,
            comparator: &BytewiseComparator,
            compaction_filter: None,
            periodic_compaction_seconds: 0,
            blob_compression: Compression::Lz4,
            compression: Compression::Lz4,
            bottommost_compression: None,
            compression_per_level: Vec::new(),
            block_bytes: 4 * KIB,
            restart_interval: 16,
            bloom_bits_per_key: 10.0,
            prefix: None,
            checksum: ChecksumKind::Xxh3,
            target_file_bytes: 64 * MIB,
            level_base_bytes: 256 * MIB,
            level_multiplier: 10,
            level_count: LEVEL_COUNT,
            level0_compaction_trigger: 4,
            level0_slowdown_trigger: 20,
            level0_stop_trigger: 36,
            pending_compaction_bytes_soft: 64 * GIB,
            pending_compaction_bytes_hard: 256 * GIB,
        }
    }
}

/// Of periodic compactions: a minute, and 100 years.
pub(crate) const PERIOD_SECONDS_MIN: u64 = 60;
pub(crate) const PERIOD_SECONDS_MAX: u64 = 3_153_600_000;

fn in_range<T: PartialOrd + std::fmt::Display>(name: &str, value: T, least: T, most: T) -> Result<()> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("option {name} is {value}, must be in {least}..={most}")))
}

fn check_background_rate(bytes_per_second: u64) -> Result<()> {
    if bytes_per_second == 0 {
        return Ok(());
    }
    in_range("background_bytes_per_second_max", bytes_per_second, 64 * KIB, GIB << 10)
}

pub(crate) fn check_cache_bytes(cache_bytes: u64) -> Result<()> {
    in_range("cache_bytes", cache_bytes, 0, GIB << 10)
}

pub(crate) fn check_memory_limit(memory_limit: u64) -> Result<()> {
    in_range("memory_limit", memory_limit, MIB, GIB << 10)
}

impl Options {
    /// Refuses what is out of range. Called by every open before the first file is touched.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first option out of its range, and the range.
    pub fn validate(&self) -> Result<()> {
        in_range("background_jobs", self.background_jobs, 0, 64)?;
        check_cache_bytes(self.cache_bytes)?;
        if self.memory_limit != 0 {
            check_memory_limit(self.memory_limit)?;
        }
        if self.wal_dir.as_ref().is_some_and(|dir| dir.to_str().is_none_or(str::is_empty)) {
            let reason =
                "option wal_dir has to be a path in UTF-8, as the OPTIONS file is that names it, and not empty";
            return Err(Error::invalid_argument(reason));
        }
        if self.wal_bytes_max != 0 {
            in_range("wal_bytes_max", self.wal_bytes_max, 64 * KIB, GIB << 10)?;
        }
        in_range("recycled_logs_max", self.recycled_logs_max, 0, 64)?;
        in_range("manifest_bytes_max", self.manifest_bytes_max, 4 * KIB, GIB)?;
        in_range("group_bytes_max", self.group_bytes_max, 4 * KIB, GIB)?;
        let rate = self.delayed_write_bytes_per_second_min;
        in_range("delayed_write_bytes_per_second_min", rate, 64 * KIB, GIB << 10)?;
        in_range("max_space_amp", self.max_space_amp, 1.05, 100.0)?;
        if self.max_disk_bytes != 0 {
            in_range("max_disk_bytes", self.max_disk_bytes, MIB, GIB << 30)?;
        }
        in_range("ballast_bytes", self.ballast_bytes, 0, GIB << 10)?;
        check_background_rate(self.background_bytes_per_second_max)?;
        if self.reclaim_bytes_per_second_max != 0 {
            in_range("reclaim_bytes_per_second_max", self.reclaim_bytes_per_second_max, 64 * KIB, GIB << 10)?;
        }
        for (name, family) in &self.families {
            validate_family_name(name)?;
            family.validate().map_err(|error| error.while_doing(format!("column family {name:?}")))?;
        }
        Ok(())
    }
}

impl FamilyOptions {
    /// Whether a value of that length is separated, if any are. An empty one never is (nor is it by RocksDB), nor one that LZ4's
    /// block format cannot hold.
    pub(crate) fn belongs_in_blob(&self, value_bytes: usize) -> bool {
        let fits = self.blob_compression != Compression::Lz4 || value_bytes <= limits::LZ4_RAW_BYTES_MAX;
        value_bytes > 0 && value_bytes as u64 >= self.min_blob_size && fits
    }

    /// Whether tables are compressed alike in all levels.
    pub(crate) fn is_compressed_evenly(&self) -> bool {
        self.bottommost_compression.is_none() && self.compression_per_level.is_empty()
    }

    /// How tables of `level` are compressed, where level 0 is compacted into `base` and no table lies below `deepest`. As RocksDB has it.
    pub(crate) fn compression_at(&self, level: usize, base: usize, deepest: usize) -> Compression {
        if let Some(kind) = self.bottommost_compression.filter(|_| level > 0 && level >= deepest) {
            return kind;
        }
        let place = if level == 0 { 0 } else { (level + 1).saturating_sub(base) };
        let of_level = self.compression_per_level.get(place).or(self.compression_per_level.last());
        of_level.copied().unwrap_or(self.compression)
    }

    /// The same for tables that come in as whole files, to lie as deep as they can.
    pub(crate) fn compression_of_loads(&self) -> Compression {
        self.compression_at(LEVEL_COUNT, 1, LEVEL_COUNT)
    }

    /// Refuses what is out of range.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first option out of its range, and the range.
    pub fn validate(&self) -> Result<()> {
        in_range("write_buffer_bytes", self.write_buffer_bytes, 64 * KIB, 16 * GIB)?;
        in_range("write_buffer_count_max", self.write_buffer_count_max, 2, 64)?;
        in_range("min_blob_size", self.min_blob_size, 0, limits::VALUE_BYTES_MAX as u64)?;
        in_range("blob_file_bytes", self.blob_file_bytes, 64 * KIB, 4 * GIB)?;
        in_range("block_bytes", self.block_bytes, 256, 16 * MIB)?;
        in_range("restart_interval", self.restart_interval, 1, 1024)?;
        in_range("bloom_bits_per_key", self.bloom_bits_per_key, 0.0, 64.0)?;
        in_range("prefix", self.prefix.map_or(1, PrefixExtractor::bytes), 1, limits::KEY_BYTES_MAX)?;
        in_range("target_file_bytes", self.target_file_bytes, 4 * KIB, 16 * GIB)?;
        in_range("level_base_bytes", self.level_base_bytes, 16 * KIB, GIB << 10)?;
        if self.merge_operator.is_some()
            && self.compaction_filter.as_ref().is_some_and(CompactionFilter::is_against_merges)
        {
            let reason = "option compaction_filter lets go of values by the time that they carry, and what a merge_operator makes carries none";
            return Err(Error::invalid_argument(reason));
        }
        if self.periodic_compaction_seconds > 0 {
            let (least, most) = (PERIOD_SECONDS_MIN, PERIOD_SECONDS_MAX);
            in_range("periodic_compaction_seconds", self.periodic_compaction_seconds, least, most)?;
        }
        in_range("level_multiplier", self.level_multiplier, 2, 100)?;
        in_range("level_count", self.level_count, LEVEL_COUNT_MIN, LEVEL_COUNT)?;
        in_range("level0_compaction_trigger", self.level0_compaction_trigger, 1, 10_000)?;
        let slowdown = self.level0_slowdown_trigger;
        in_range("level0_slowdown_trigger", slowdown, self.level0_compaction_trigger, 10_000)?;
        in_range("level0_stop_trigger", self.level0_stop_trigger, slowdown + 1, 20_000)?;
        let soft = self.pending_compaction_bytes_soft;
        in_range("pending_compaction_bytes_soft", soft, MIB, u64::MAX / 2)?;
        in_range("pending_compaction_bytes_hard", self.pending_compaction_bytes_hard, soft + 1, u64::MAX)?;
        let of_tables = [("compression", self.compression), ("blob_compression", self.blob_compression)].into_iter();
        let of_bottom = self.bottommost_compression.map(|kind| ("bottommost_compression", kind));
        let of_levels = self.compression_per_level.iter().map(|&kind| ("compression_per_level", kind));
        for (name, kind) in of_tables.chain(of_bottom).chain(of_levels) {
            if kind == Compression::Lz4hc {
                return Err(Error::invalid_argument(format!(
                    "option {name} is {kind:?}, which can be read but not written; choose None, Snappy, Zlib, Lz4 or Zstd"
                )));
            }
        }
        Ok(())
    }
}

/// What may name a column family.
pub(crate) fn validate_family_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_argument("the name of a column family is empty; give it at least one character"));
    }
    if name.len() > limits::COLUMN_FAMILY_NAME_BYTES_MAX {
        return Err(Error::invalid_argument(format!(
            "the name of a column family has {} bytes, at most {} are allowed",
            name.len(),
            limits::COLUMN_FAMILY_NAME_BYTES_MAX
        )));
    }
    Ok(())
}

/// Options of one write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Whether `Ok` means that the write survives power loss, not only the death of the process. Default `false`.
    /// Costs one `fdatasync`, shared by all who write at the same time.
    pub sync: bool,

    /// Leave the write-ahead log out: the write survives nothing until a flush. Default `false`. Not with `sync`.
    pub disable_wal: bool,
}

/// Options of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Whether it locks the keys that it reads and writes until it ends, so that others wait for it instead of beginning again (*pessimistic*). Default
    /// `false`: what came to the keys that it read is looked for when it commits.
    ///
    /// A read shares its key with other reads; a write, or [`get_for_update`](crate::Transaction::get_for_update), has it alone. Who waits for a key gets it in
    /// the order of coming. Who would wait for itself, round whatever corners, is refused instead: a *deadlock*, of kind `Conflict`. Reads
    /// show the newest value, not that of the transaction's beginning; so does a walk, which locks nothing. Plain writes,
    /// [`update`](crate::Db::update)s and transactions without locks ask for none: whoever read a key that these write is told at its commit, as without locks.
    /// Two of one thread that want the same key wait for each other until `lock_timeout`: nobody sees that as a deadlock.
    pub locking: bool,

    /// How long a locking transaction waits for a key; then the call is `Busy`, and the transaction as it was before. Zero waits for nobody.
    /// Default one second.
    pub lock_timeout: Duration,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self { locking: false, lock_timeout: Duration::from_secs(1) }
    }
}

/// Options of one read or iterator.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Read the store as it was then. Default `None`: as it is now.
    pub snapshot: Option<Snapshot>,

    /// Keep blocks that had to be read in the cache. Default `true`; `false` for scans of what is read once.
    pub fill_cache: bool,

    /// Iterators begin at this key. Default `None`.
    pub lower_bound: Option<Vec<u8>>,

    /// Iterators end before this key. Default `None`.
    pub upper_bound: Option<Vec<u8>>,

    /// Iterators show only keys that begin with this, within the bounds. Default `None`. For families whose keys lie by their bytes: in those of another
    /// [comparator](FamilyOptions::comparator), where such keys need not lie together, it is `InvalidArgument`, unless it is empty.
    pub prefix: Option<Vec<u8>>,

    /// How much of separated values an iterator reads before it is asked for them, in bytes. Default 1 MiB; 0 reads
    /// nothing ahead. Reading begins with two values once one was asked for, doubles up to 64 while they are wanted,
    /// and neighbours are read together. More keeps a device busier and takes as much memory for each iterator.
    ///
    /// Once 64 values in a row were asked for, or where the last walks went further, up to 256 are read and unpacked by another thread
    /// ([`background_jobs`](Options::background_jobs)) while those before them are looked at; that takes up to 2 MiB more.
    pub look_ahead_bytes: u64,
}

impl ReadOptions {
    /// The same for the keys that begin with `prefix`. See [`prefix`](Self::prefix).
    #[must_use]
    pub fn with_prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        Self { prefix: Some(prefix.as_ref().to_vec()), ..self }
    }

    /// The same for keys in `order`, with bounds alone.
    ///
    /// # Errors
    /// `InvalidArgument` for a prefix where bounds cannot say it.
    pub(crate) fn bounded(&self, order: Order) -> Result<Cow<'_, Self>> {
        let Some(prefix) = self.prefix.as_ref().filter(|prefix| !prefix.is_empty()) else {
            return Ok(Cow::Borrowed(self));
        };
        if !order.is_bytewise() {
            let name = order.name();
            let reason = format!(
                "keys are looked for by a prefix only where they lie by their bytes, and here they do by {name:?}; set bounds instead"
            );
            return Err(Error::invalid_argument(reason));
        }
        let lower_bound = self.lower_bound.clone().max(Some(prefix.clone()));
        let upper_bound = match (prefix::successor(prefix), self.upper_bound.clone()) {
            (Some(end), Some(upper)) => Some(end.min(upper)),
            (end, upper) => end.or(upper),
        };
        Ok(Cow::Owned(Self { lower_bound, upper_bound, prefix: None, ..self.clone() }))
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        let (lower_bound, upper_bound) = (None, None);
        Self { snapshot: None, fill_cache: true, lower_bound, upper_bound, prefix: None, look_ahead_bytes: MIB }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_and_bounds_hold_together() {
        let some = |key: &[u8]| (!key.is_empty()).then(|| key.to_vec());
        let bounded = |prefix: &[u8], lower: &[u8], upper: &[u8]| {
            let options = ReadOptions { lower_bound: some(lower), upper_bound: some(upper), ..ReadOptions::default() };
            let bounded = options.with_prefix(prefix).bounded(Order::BYTEWISE).unwrap().into_owned();
            (bounded.lower_bound, bounded.upper_bound, bounded.prefix)
        };
        assert_eq!(bounded(b"", b"", b""), (None, None, Some(Vec::new())));
        assert_eq!(bounded(b"a", b"", b""), (some(b"a"), some(b"b"), None));
        assert_eq!(bounded(b"a", b"ab", b"ac"), (some(b"ab"), some(b"ac"), None));
        assert_eq!(bounded(b"b", b"a", b"c\xff"), (some(b"b"), some(b"c"), None));
        assert_eq!(bounded(b"\xff\xff", b"", b""), (some(b"\xff\xff"), None, None));
        assert_eq!(bounded(b"a\xff", b"", b""), (some(b"a\xff"), some(b"b"), None));
        let reversed = Order::new(&crate::ReverseBytewiseComparator);
        let error = ReadOptions::default().with_prefix("a").bounded(reversed).unwrap_err();
        assert!(error.to_string().contains("rocksdb.ReverseBytewiseComparator"), "{error}");
        assert!(ReadOptions::default().bounded(reversed).is_ok());
    }

    #[test]
    fn defaults_are_in_range() {
        Options::default().validate().unwrap();
        FamilyOptions::default().validate().unwrap();
    }

    #[test]
    fn each_level_is_compressed_as_it_says() {
        use Compression::{Lz4, None, Snappy, Zstd};
        let even = FamilyOptions::default();
        let bottom = FamilyOptions { bottommost_compression: Some(Zstd), ..FamilyOptions::default() };
        let levels = FamilyOptions { compression_per_level: vec![None, Snappy, Zstd], ..FamilyOptions::default() };
        let both = FamilyOptions { compression_per_level: vec![None, Snappy], ..bottom.clone() };
        let with = |options: &FamilyOptions| [0, 4, 5, 6].map(|level| options.compression_at(level, 4, 6));
        assert_eq!(with(&even), [Lz4; 4]);
        assert_eq!(with(&bottom), [Lz4, Lz4, Lz4, Zstd]);
        assert_eq!(with(&levels), [None, Snappy, Zstd, Zstd]);
        assert_eq!(with(&both), [None, Snappy, Snappy, Zstd]);
        assert_eq!(bottom.compression_at(0, 6, 0), Lz4, "the first flush is not at the bottom");
        assert_eq!([&even, &bottom, &levels].map(FamilyOptions::compression_of_loads), [Lz4, Zstd, Zstd]);
        assert!(FamilyOptions { compression_per_level: vec![Compression::Lz4hc], ..even }.validate().is_err());
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        let family = FamilyOptions { level_multiplier: 1, ..FamilyOptions::default() };
        let mut options = Options::default();
        options.families.insert("default".into(), family);
        let error = options.validate().unwrap_err();
        assert!(error.to_string().contains("level_multiplier is 1, must be in 2..=100"), "{error}");
        let family = FamilyOptions { bloom_bits_per_key: f64::NAN, ..FamilyOptions::default() };
        assert!(family.validate().is_err());
        options.families.clear();
        options.families.insert(String::new(), FamilyOptions::default());
        assert!(options.validate().is_err());
    }
}
