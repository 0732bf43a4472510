//! RocksDB's newest release, as a library: stores under options that Debian's older tools do not know.

use std::cmp::Ordering;
use std::path::Path;

use esker::{BytewiseComparator, Comparator, ReverseBytewiseComparator};
use rocksdb::{
    ColumnFamilyDescriptor, DB, IteratorMode, MergeOperands, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::contents::{Contents, Families, assert_same, must};
use crate::workload::Numbers;

/// The family of every store, and one more.
pub const FAMILIES: [&str; 2] = ["default", "second"];

/// How a store is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// RocksDB's options that make it so, in its own words.
    pub options: &'static str,
}

const fn case(name: &'static str, options: &'static str) -> Case {
    Case { name, options }
}

/// What stores of the newest release may look like, as far as Esker reads them.
pub const CASES: [Case; 31] = [
    case("defaults", ""),
    case("blobs", "enable_blob_files=true;min_blob_size=200;blob_compression_type=kLZ4Compression"),
    case(
        "blobs, collected",
        "enable_blob_files=true;min_blob_size=0;enable_blob_garbage_collection=true;blob_file_size=20000",
    ),
    case("format 2", "block_based_table_factory={format_version=2;block_size=512}"),
    case("format 3", "block_based_table_factory={format_version=3;block_size=512}"),
    case("format 4", "block_based_table_factory={format_version=4;block_size=512}"),
    case("format 5", "block_based_table_factory={format_version=5;block_size=512}"),
    case("format 6", "block_based_table_factory={format_version=6;block_size=512}"),
    case("no compression", "compression=kNoCompression;block_based_table_factory={block_size=512}"),
    case("CRC-32C", "block_based_table_factory={checksum=kCRC32c}"),
    case("XXH32", "block_based_table_factory={checksum=kxxHash}"),
    case("XXH64", "block_based_table_factory={checksum=kxxHash64}"),
    case("no checksums", "block_based_table_factory={checksum=kNoChecksum}"),
    case("keys apart", "block_based_table_factory={block_size=700;separate_key_value_in_data_block=true}"),
    case(
        "keys apart, each a restart",
        "compression=kNoCompression;block_based_table_factory={block_restart_interval=1;separate_key_value_in_data_block=true;format_version=6}",
    ),
    case(
        "keys apart, with hashes",
        "block_based_table_factory={block_restart_interval=4;separate_key_value_in_data_block=true;\
         data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.75}",
    ),
    case("hashes in blocks", "block_based_table_factory={data_block_index_type=kDataBlockBinaryAndHash}"),
    case(
        "uniform indexes",
        "block_based_table_factory={block_size=256;index_block_search_type=kAuto;uniform_cv_threshold=5.0}",
    ),
    case(
        "partitions",
        "block_based_table_factory={index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=256;block_size=256;\
         filter_policy=bloomfilter:10:false}",
    ),
    case("ribbons", "block_based_table_factory={filter_policy=ribbonfilter:10;block_size=512}"),
    case(
        "prefixes",
        "prefix_extractor=rocksdb.CappedPrefix.5;block_based_table_factory={index_type=kHashSearch;filter_policy=bloomfilter:12}",
    ),
    case(
        "indexes as long as can be",
        "block_based_table_factory={index_type=kBinarySearchWithFirstKey;index_shortening=kNoShortening;enable_index_compression=false;\
         use_delta_encoding=false;block_align=true};compression=kNoCompression;bottommost_compression=kNoCompression",
    ),
    case(
        "dictionaries",
        "compression=kLZ4Compression;compression_opts={max_dict_bytes=4096;enabled=true};bottommost_compression=kLZ4Compression;\
         bottommost_compression_opts={max_dict_bytes=2048;enabled=true};block_based_table_factory={block_size=512}",
    ),
    case("backward", "comparator=rocksdb.ReverseBytewiseComparator;block_based_table_factory={block_size=512}"),
    case("in an order of its own", "block_based_table_factory={block_size=512}"),
    case("universal", "compaction_style=kCompactionStyleUniversal"),
    case(
        "told in the manifest",
        "track_and_verify_wals_in_manifest=true;track_and_verify_wals=true;write_dbid_to_manifest=true;max_manifest_file_size=2000;\
         file_checksum_gen_factory=FileChecksumGenCrc32cFactory",
    ),
    case(
        "a manifest that goes on",
        "reuse_manifest_on_open=true;optimize_manifest_for_recovery=true;verify_manifest_content_on_close=true;fast_sst_open=true",
    ),
    case("logs made ahead", "async_wal_precreate=true"),
    case(
        "values past the log",
        "enable_blob_files=true;min_blob_size=300;enable_blob_direct_write=true;allow_concurrent_memtable_write=false",
    ),
    case(
        "logs again",
        "recycle_log_file_num=3;wal_bytes_per_sync=4096;manual_wal_flush=true;avoid_flush_during_shutdown=true",
    ),
];

/// Short keys before long ones, those of a length backward.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "interop.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| b.cmp(a))
    }
}

/// The order of the keys of such a store.
pub fn comparator(case: &Case) -> &'static dyn Comparator {
    match case.name {
        "backward" => &ReverseBytewiseComparator,
        "in an order of its own" => &ByLength,
        _ => &BytewiseComparator,
    }
}

/// How Esker opens any of them.
pub fn known() -> esker::Options {
    esker::Options { comparators: vec![&ByLength], ..esker::Options::default() }
}

/// Options of the case for a store small enough that a few hundred KiB make several levels.
#[track_caller]
pub fn options(case: &Case) -> Options {
    let mut small = Options::default();
    small.create_if_missing(true);
    small.create_missing_column_families(true);
    small.set_write_buffer_size(64 << 10);
    small.set_target_file_size_base(16 << 10);
    small.set_max_bytes_for_level_base(32 << 10);
    small.set_max_bytes_for_level_multiplier(4.0);
    // In every table.
    let options = format!("db_host_id=a_host;{}", case.options);
    let mut made = must(case.name, small.get_options_from_string(options));
    if comparator(case).name() == ByLength.name() {
        made.set_comparator(ByLength.name(), Box::new(|a, b| ByLength.compare(a, b)));
    }
    // Under the name and with the meaning of Esker's own.
    made.set_merge_operator_associative("StringAppendOperator", |_, had, operands: &MergeOperands| {
        let parts: Vec<&[u8]> = had.into_iter().chain(operands).collect();
        Some(parts.join(&b","[..]))
    });
    made
}

/// Opens it, for writing unless that is not wanted.
#[track_caller]
pub fn open(store: &Path, case: &Case, read_only: bool) -> DB {
    let options = options(case);
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, self::options(case)));
    let opened = if read_only {
        DB::open_cf_descriptors_read_only(&options, store, families, false)
    } else {
        DB::open_cf_descriptors(&options, store, families)
    };
    must(&format!("{}: opening {} by RocksDB", case.name, store.display()), opened)
}

/// Has RocksDB write `count` puts, overwrites, merges and deletions of all kinds, and notes in `expected` what they leave.
#[track_caller]
pub fn write(
    db: &DB,
    case: &Case,
    expected: &mut Families,
    numbers: &mut Numbers,
    count: usize,
    value_bytes_max: usize,
) {
    for _ in 0..count {
        let name = FAMILIES[numbers.below(2) as usize];
        let family = db.cf_handle(name);
        let family = must("finding a family", family.ok_or(name));
        let contents = expected.entry(name.to_owned()).or_default();
        let key = numbers.key();
        let bytes = numbers.value_bytes().min(value_bytes_max);
        let value = numbers.value(bytes);
        match numbers.below(12) {
            0 => {
                must("deleting", db.delete_cf(family, &key));
                contents.remove(&key);
            }
            1 if numbers.below(3) == 0 => {
                let order = comparator(case);
                let (begin, end) = numbers.range(order);
                must("deleting a range", db.delete_range_cf(family, &begin, &end));
                contents.retain(|key, _| order.compare(key, &begin).is_lt() || order.compare(key, &end).is_ge());
            }
            2 => {
                let mut batch = WriteBatch::default();
                batch.delete_cf(family, &key);
                batch.put_cf(family, &key, &value);
                must("writing a batch", db.write_opt(batch, &WriteOptions::default()));
                contents.insert(key, value);
            }
            // RocksDB merges into no value that went past its log.
            3 if !case.options.contains("enable_blob_direct_write") => {
                let operand = numbers.value(20);
                must("merging", db.merge_cf(family, &key, &operand));
                let merged = match contents.get(&key) {
                    Some(had) => [had, &b","[..], &operand].concat(),
                    None => operand,
                };
                contents.insert(key, merged);
            }
            _ => {
                must("putting", db.put_cf(family, &key, &value));
                contents.insert(key, value);
            }
        }
    }
}

/// Makes a new store under the options of the case: several levels, and something in its log.
#[track_caller]
pub fn fill(store: &Path, case: &Case, seed: u64, count: usize, value_bytes_max: usize) -> Families {
    let mut expected: Families = FAMILIES.iter().map(|&name| (name.to_owned(), Contents::new())).collect();
    let mut numbers = Numbers::new(seed);
    let db = open(store, case, false);
    for _ in 0..3 {
        write(&db, case, &mut expected, &mut numbers, count / 4, value_bytes_max);
        for name in FAMILIES {
            if let Some(family) = db.cf_handle(name) {
                must("flushing", db.flush_cf(family));
            }
        }
    }
    compact(&db);
    drop(db);
    // What a store that was opened again leaves.
    let db = open(store, case, false);
    write(&db, case, &mut expected, &mut numbers, count / 4, value_bytes_max);
    must("flushing the log", db.flush_wal(true));
    assert_finds(&db, case, &expected);
    expected
}

/// Compacts every family, whole.
#[track_caller]
pub fn compact(db: &DB) {
    for name in FAMILIES {
        if let Some(family) = db.cf_handle(name) {
            db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        }
    }
}

/// Fails unless RocksDB finds exactly `expected`, by scans and by gets.
#[track_caller]
pub fn assert_finds(db: &DB, case: &Case, expected: &Families) {
    for (name, contents) in expected {
        let whose = format!("RocksDB's scan of {name}, {}", case.name);
        let family = must(&whose, db.cf_handle(name).ok_or("no such family"));
        let mut all = ReadOptions::default();
        all.set_total_order_seek(true);
        let pairs = db.iterator_cf_opt(family, all, IteratorMode::Start).map(|pair| must(&whose, pair));
        assert_same(&whose, contents, &pairs.map(|(key, value)| (key.into_vec(), value.into_vec())).collect());
        for (key, value) in contents {
            let got = must(&whose, db.get_cf(family, key));
            assert!(got.as_ref() == Some(value), "{whose}: a get finds something else");
        }
    }
}
