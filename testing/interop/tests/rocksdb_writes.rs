//! Stores that RocksDB's `db_bench` wrote, opened by Esker in place, changed, closed, and read again by RocksDB.

use std::path::Path;

use esker::{Db, ErrorKind, Options, ReadOptions};
use esker_interop::contents::{Families, assert_esker_finds_no_damage, assert_esker_holds, must};
use esker_interop::db_bench::Opening;
use esker_interop::workload::{self, Numbers};
use esker_interop::{db_bench, directory, ldb, sst_dump};

/// Options of `db_bench` under which a few hundred KiB make several levels; `--seed` makes every run the same.
const SMALL: [&str; 7] = [
    "--seed=7",
    "--num=3000",
    "--value_size=120",
    "--write_buffer_size=65536",
    "--target_file_size_base=32768",
    "--max_bytes_for_level_base=65536",
    "--max_bytes_for_level_multiplier=3",
];

/// Fills the store as told, and gives what RocksDB reads from it.
fn fill(store: &Path, more: &[&str]) -> Families {
    let arguments: Vec<&str> = SMALL.into_iter().chain(more.iter().copied()).collect();
    db_bench::db_bench(store, &arguments);
    let found = ldb::scan_all(store);
    assert!(found.values().all(|contents| contents.len() > 50), "db_bench {more:?} wrote next to nothing");
    found
}

/// The whole round: reading it without a trace, opening it in place, changing it, giving it back.
fn assert_round_trip(store: &Path, mut expected: Families) {
    let before = directory::bytes(store);
    let reader = must("opening read-only", Db::open_read_only(store, Options::default()));
    assert_esker_holds(&reader, &expected);
    drop(reader);
    directory::assert_unchanged(&before, &directory::bytes(store));

    let db = must("opening in place", Db::open(store, Options::default()));
    assert_esker_holds(&db, &expected);
    assert_esker_finds_no_damage(&db);
    let mut numbers = Numbers::new(13);
    workload::change(&db, &mut expected, &mut numbers);
    must("flushing", db.flush());
    assert_esker_holds(&db, &expected);
    workload::compact(&db);
    assert_esker_holds(&db, &expected);
    // The last of it stays in the log, for RocksDB to replay.
    workload::write(&db, &mut expected, &mut numbers, 10);
    must("closing", db.close());

    ldb::assert_holds(store, &expected);
    sst_dump::assert_tables_are_sound(store);
    db_bench::assert_finds_every_key(store, expected["default"].len(), Opening::ReadOnly);

    let db = must("reopening", Db::open(store, Options::default()));
    assert_esker_holds(&db, &expected);
    assert_esker_finds_no_damage(&db);
    must("closing", db.close());
    // RocksDB opens it for writing and rewrites all of it.
    for name in expected.keys() {
        ldb::ldb(store, &[&format!("--column_family={name}"), "compact"]);
    }
    ldb::assert_holds(store, &expected);
    let db = must("reopening", Db::open(store, Options::default()));
    assert_esker_holds(&db, &expected);
}

fn round_trip(more: &[&str]) {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let expected = fill(&store, more);
    assert_round_trip(&store, expected);
}

/// How many levels of the default family hold a table.
fn level_count(store: &Path) -> usize {
    let printed = ldb::ldb(store, &["get_property", "rocksdb.levelstats"]);
    let rows = printed.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().map(str::parse::<u64>);
        Some((columns.next()?.ok()?, columns.next()?.ok()?))
    });
    rows.filter(|(_, files)| *files > 0).count()
}

/// A store in `compression`, which `sst_dump` calls `name`.
#[track_caller]
fn assert_takes_over(compression: &str, name: &str) {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let option = format!("--compression_type={compression}");
    // More than it lets wait in level 0, above what it has compacted. Its `compact0` and `waitforcompaction` would sleep five seconds each.
    let expected =
        fill(&store, &["--benchmarks=fillrandom,compact,overwrite,overwrite,overwrite", "--num=8000", &option]);
    // Shown, not assumed: these tools were built with this compression, and the store needs what is claimed.
    let written = sst_dump::property(&store, "SST file compression algo");
    assert!(!written.is_empty() && written.iter().all(|one| one == name), "db_bench wrote {written:?}, not {name}");
    assert!(level_count(&store) >= 3, "db_bench filled fewer than three levels");
    assert!(!directory::filled(&store, ".log").is_empty(), "db_bench left nothing in the log");
    assert_round_trip(&store, expected);

    // Esker writes on as the store's own options say.
    let written = sst_dump::property(&store, "SST file compression algo");
    assert!(!written.is_empty() && written.iter().all(|one| one == name), "the tables became {written:?}");
}

// Tests of their own: each takes seconds, and they need not wait for each other.
#[test]
fn esker_takes_over_what_db_bench_wrote_unpacked() {
    assert_takes_over("none", "NoCompression");
}

#[test]
fn esker_takes_over_what_db_bench_wrote_in_snappy() {
    assert_takes_over("snappy", "Snappy");
}

#[test]
fn esker_takes_over_what_db_bench_wrote_in_zlib() {
    assert_takes_over("zlib", "Zlib");
}

#[test]
fn esker_takes_over_what_db_bench_wrote_in_lz4() {
    assert_takes_over("lz4", "LZ4");
}

#[test]
fn esker_takes_over_what_db_bench_wrote_in_zstd() {
    assert_takes_over("zstd", "ZSTD");
}

/// Goal: blocks that were packed in sight of a dictionary are read, whoever packed them, and however the dictionary was made.
#[test]
fn esker_takes_over_tables_with_dictionaries() {
    for (compression, more) in
        [("zstd", &[][..]), ("zstd", &["--compression_zstd_max_train_bytes=100000"]), ("lz4", &[]), ("zlib", &[])]
    {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let compression = format!("--compression_type={compression}");
        let asked = ["--benchmarks=fillrandom,compact", "--compression_max_dict_bytes=8192", &compression];
        let expected = fill(&store, &[&asked[..], more].concat());
        let name = b"rocksdb.compression_dict";
        let has_dictionary = |raw: &Vec<u8>| raw.windows(name.len()).any(|window| window == name);
        let files = directory::bytes(&store);
        let with = files.iter().filter(|(file, raw)| file.ends_with(".sst") && has_dictionary(raw)).count();
        assert!(with > 3, "db_bench {compression} {more:?} made {with} tables with a dictionary");
        assert_round_trip(&store, expected);
    }
}

/// Goal: records of a log that RocksDB packed are replayed, those of many blocks, too, and the store goes on with logs that are not packed.
#[test]
fn esker_takes_over_packed_logs() {
    for more in [&["--value_size=120"][..], &["--value_size=200000", "--num=40"]] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let asked = ["--benchmarks=fillrandom", "--wal_compression=zstd", "--write_buffer_size=1000000000"];
        db_bench::db_bench(&store, &[&SMALL[..], &asked, more].concat());
        let logs = directory::filled(&store, ".log");
        let files = directory::bytes(&store);
        assert!(!logs.is_empty() && logs.iter().all(|log| files[log][..7].ends_with(&[4, 0, 9])), "{logs:?}");
        let expected = ldb::scan_all(&store);
        assert!(expected["default"].len() > 20);
        assert_round_trip(&store, expected);
    }
}

/// Goal: logs in a directory of their own are found by whoever says where, and missed by whoever does not; RocksDB finds Esker's there.
#[test]
fn esker_takes_over_a_store_whose_logs_are_elsewhere() {
    let (directory, elsewhere) =
        (must("making a directory", tempfile::tempdir()), must("making a directory", tempfile::tempdir()));
    let store = directory.path().join("store");
    let wal_dir = format!("--wal_dir={}", elsewhere.path().display());
    let asked = ["--benchmarks=fillrandom", "--write_buffer_size=1000000000", &wal_dir];
    db_bench::db_bench(&store, &[&SMALL[..], &asked].concat());
    assert!(!directory::filled(elsewhere.path(), ".log").is_empty() && directory::filled(&store, ".log").is_empty());
    // It finds the options, and with them the logs.
    let mut expected = ldb::scan_all(&store);
    assert!(expected["default"].len() > 1000);

    let before = (directory::bytes(&store), directory::bytes(elsewhere.path()));
    for opened in [Db::open(&store, Options::default()), Db::open_read_only(&store, Options::default())] {
        let error = opened.err().map(|error| (error.kind(), error.to_string()));
        let said = elsewhere.path().display().to_string();
        assert!(
            error.as_ref().is_some_and(|(kind, told)| *kind == ErrorKind::InvalidArgument && told.contains(&said)),
            "{error:?}"
        );
    }
    directory::assert_unchanged(&before.0, &directory::bytes(&store));
    directory::assert_unchanged(&before.1, &directory::bytes(elsewhere.path()));

    let options = Options { wal_dir: Some(elsewhere.path().to_owned()), ..Options::default() };
    let mut numbers = Numbers::new(17);
    for _ in 0..2 {
        let db = must("opening in place", Db::open(&store, options.clone()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
        workload::change(&db, &mut expected, &mut numbers);
        workload::compact(&db);
        workload::write(&db, &mut expected, &mut numbers, 10);
        must("closing", db.close());
        assert!(!directory::filled(elsewhere.path(), ".log").is_empty() && directory::count(&store, ".log") == 0);
        ldb::assert_holds(&store, &expected);
    }
}

/// Goal: operands of RocksDB's own merge operators, in tables and in the log, are merged by Esker as by RocksDB, and those of Esker by RocksDB.
#[test]
fn esker_takes_over_what_is_to_be_merged() {
    for (operator, class, value_bytes) in [
        ("stringappend", "StringAppendOperator", 20),
        ("stringappendtest", "StringAppendTESTOperator", 20),
        ("uint64add", "UInt64AddOperator", 8),
        // Of a value in a blob file RocksDB 7.8 gives out memory that it has freed already.
        ("max", "MaxOperator", 90),
        ("bytesxor", "BytesXOR", 40),
        ("put", "PutOperator", 900),
    ] {
        // Its own compactions, which run when they like, would merge all of it at times.
        for more in [&["--enable_blob_files=1", "--min_blob_size=100"][..], &[]] {
            let directory = must("making a directory", tempfile::tempdir());
            let store = directory.path().join("store");
            let (operator, value) = (format!("--merge_operator={operator}"), format!("--value_size={value_bytes}"));
            let asked = [
                "--benchmarks=fillrandom,compact,mergerandom,flush,mergerandom",
                "--merge_keys=400",
                "--num=1500",
                "--disable_auto_compactions=1",
            ];
            let expected = fill(&store, &[&asked[..], &[operator.as_str(), value.as_str()], more].concat());
            let printed = sst_dump::property(&store, "# merge operands");
            let in_tables: u64 = printed.iter().filter_map(|one| one.parse::<u64>().ok()).sum();
            assert!(in_tables > 0 && !directory::filled(&store, ".log").is_empty(), "{class}: {printed:?}");
            assert_round_trip(&store, expected);
            let said = directory::bytes(&store);
            let said = said
                .iter()
                .filter(|(name, _)| name.starts_with("OPTIONS"))
                .map(|(_, raw)| String::from_utf8_lossy(raw));
            assert!(said.into_iter().all(|file| file.contains(class)), "{class} is forgotten");
        }
    }
}

#[test]
fn esker_takes_over_what_it_reads_but_does_not_write() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--compression_type=lz4hc"]);
}

#[test]
fn esker_takes_over_blob_files_with_each_compression() {
    for compression in ["none", "snappy", "zlib", "lz4", "zstd"] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let expected = fill(
            &store,
            &[
                "--benchmarks=fillrandom,overwrite",
                "--enable_blob_files=1",
                "--min_blob_size=100",
                "--blob_file_size=65536",
                &format!("--blob_compression_type={compression}"),
            ],
        );
        assert!(directory::count(&store, ".blob") > 3, "db_bench wrote few blob files");
        assert_round_trip(&store, expected);
    }
}

#[test]
fn esker_takes_over_blob_files_that_hold_garbage_and_values_of_every_size() {
    round_trip(&[
        "--benchmarks=fillrandom,overwrite,deleterandom,compact,overwrite",
        "--deletes=700",
        "--enable_blob_files=1",
        "--min_blob_size=300",
        "--blob_file_size=100000",
        "--enable_blob_garbage_collection=1",
        "--value_size_distribution_type=uniform",
        "--value_size_min=1",
        "--value_size_max=1500",
        "--blob_compression_type=lz4",
    ]);
}

#[test]
fn esker_takes_over_deletions_and_sequential_fills() {
    round_trip(&["--benchmarks=fillrandom,deleterandom", "--deletes=1500"]);
    round_trip(&["--benchmarks=fillseq,overwrite,deleteseq", "--deletes=900"]);
    round_trip(&["--benchmarks=fillseq"]);
    let replace = ["--benchmarks=randomreplacekeys", "--use_single_deletes=1"];
    round_trip(&replace);
    round_trip(&[replace.as_slice(), &["--write_buffer_size=67108864"]].concat());
}

#[test]
fn esker_takes_over_several_column_families_with_a_common_log() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--num_column_families=4"]);
    round_trip(&[
        "--benchmarks=fillrandom,overwrite",
        "--num_column_families=3",
        "--enable_blob_files=1",
        "--min_blob_size=100",
        "--compression_type=zstd",
    ]);
}

#[test]
fn esker_takes_over_a_log_that_was_never_flushed() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let expected =
        fill(&store, &["--benchmarks=fillrandom,deleterandom", "--deletes=200", "--write_buffer_size=67108864"]);
    assert_eq!(directory::count(&store, ".sst"), 0, "db_bench flushed");
    assert_round_trip(&store, expected);
}

/// Older releases of RocksDB name the directory of the log even where it is the store's own, and stores are moved.
/// What RocksDB was told and Esker has no use for is still there when RocksDB comes back.
#[test]
fn options_that_esker_does_not_know_are_carried_on() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let more = ["--prefix_size=8", "--use_keep_filter=0", "--stats_dump_period_sec=77"];
    let expected = fill(&store, &[more.as_slice(), &["--open_files=321", "--benchmarks=fillrandom"]].concat());
    let before = newest_options(&store);
    let db = must("opening in place", Db::open(&store, Options::default()));
    assert_esker_holds(&db, &expected);
    must("closing", db.close());
    let after = newest_options(&store);
    assert_ne!(before, after, "Esker wrote no options of its own, so nothing was shown");
    for carried in ["stats_dump_period_sec=77", "max_open_files=321", "prefix_extractor=rocksdb.FixedPrefix.8"] {
        assert!(before.contains(carried), "db_bench did not write {carried}:\n{before}");
        assert!(after.contains(carried), "Esker did not carry {carried} on:\n{after}");
    }
    ldb::assert_holds(&store, &expected);
}

/// Goal: nothing of what RocksDB was told is lost or changed by a life of Esker's to whom nobody said anything.
#[test]
fn options_that_nobody_chose_stay_as_they_were() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let more = [
        "--max_background_jobs=16",
        "--max_total_wal_size=1073741824",
        "--bloom_bits=10",
        "--use_ribbon_filter=1",
        "--max_bytes_for_level_multiplier=2.5",
        "--min_level_to_compress=2",
        "--level0_stop_writes_trigger=2000000",
        "--format_version=4",
        "--benchmarks=fillrandom",
    ];
    let mut expected = fill(&store, &more);
    let before = newest_options(&store);
    for told in ["max_background_jobs=16", "filter_policy=ribbonfilter", "max_bytes_for_level_multiplier=2.5"] {
        assert!(before.contains(told), "db_bench did not write {told}:\n{before}");
    }
    let db = must("opening in place", Db::open(&store, Options::default()));
    workload::change(&db, &mut expected, &mut Numbers::new(3));
    workload::compact(&db);
    must("closing", db.close());
    let after = newest_options(&store);
    for line in before.lines().filter(|line| !line.trim_start().starts_with('#')) {
        assert!(after.lines().any(|other| other.trim() == line.trim()), "Esker changed {line}:\n{after}");
    }
    ldb::assert_holds(&store, &expected);
}

fn newest_options(store: &Path) -> String {
    let names = directory::names(store);
    let newest = names.iter().rfind(|name| name.starts_with("OPTIONS-"));
    must("reading the options", std::fs::read_to_string(store.join(newest.map_or("", String::as_str))))
}

#[test]
fn db_bench_seeks_by_prefix_in_what_esker_rewrote() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let prefixes = ["--prefix_size=8", "--keys_per_prefix=10", "--bloom_bits=10"];
    let mut expected = fill(&store, &[prefixes.as_slice(), &["--benchmarks=fillrandom,overwrite"]].concat());
    let db = must("opening in place", Db::open(&store, Options::default()));
    workload::change(&db, &mut expected, &mut Numbers::new(3));
    workload::compact(&db);
    must("closing", db.close());
    // Each is a process: one of four.
    for key in expected["default"].keys().step_by(4) {
        let found = ldb::ldb(&store, &["--hex", "get", &ldb::to_hex(key)]);
        assert_eq!(found.trim(), ldb::to_hex(&expected["default"][key]), "ldb get of {key:?}");
    }
    let seek = ["--use_existing_db=1", "--use_existing_keys=1", "--benchmarks=seekrandom", "--prefix_same_as_start=1"];
    let printed = db_bench::db_bench(&store, &[prefixes.as_slice(), &seek].concat());
    let count = expected["default"].len();
    assert!(printed.contains(&format!("({count} of {count} found)")), "db_bench seekrandom:\n{printed}");
    let extractors = sst_dump::property(&store, "prefix extractor name");
    assert!(extractors.iter().all(|name| name == "rocksdb.FixedPrefix.8"), "{extractors:?}");
    assert!(!extractors.is_empty());
}

/// Both kinds of filter with prefixes that RocksDB writes: beside whole keys, and alone.
#[test]
fn esker_looks_for_prefixes_and_keys_in_filters_that_rocksdb_wrote() {
    for whole_keys in ["--whole_key_filtering=true", "--whole_key_filtering=false"] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let prefixes = ["--prefix_size=4", "--keys_per_prefix=2", "--bloom_bits=10", whole_keys];
        let work = ["--benchmarks=fillrandom,overwrite", "--disable_auto_compactions=1"];
        let expected = fill(&store, &[prefixes.as_slice(), &work].concat());
        let options = Options { cache_bytes: 0, ..Options::default() };
        let db = must("opening read-only", Db::open_read_only(&store, options));
        assert_esker_holds(&db, &expected);
        let tables = db.stats().families.iter().map(|family| family.levels[0].files as u64).sum::<u64>();
        assert!(tables > 5, "{tables} tables show nothing");
        // Each table has keys of a few of the prefixes, and reaches beyond all of them.
        let mut sought: Vec<&[u8]> = expected["default"].keys().map(|key| &key[..4]).collect();
        sought.dedup();
        let sought: Vec<&[u8]> = sought.into_iter().skip(200).take(100).collect();
        let family = db.default_column_family();
        let all = tables * sought.len() as u64;
        let before = db.stats().table_read_calls;
        for prefix in &sought {
            let count = must("counting", db.count_cf(&family, &ReadOptions::default().with_prefix(prefix)));
            assert_eq!(count, expected["default"].keys().filter(|key| key.starts_with(prefix)).count() as u64);
        }
        let counted = db.stats().table_read_calls;
        assert!(counted - before < all / 2, "{} reads for prefixes, without filters {all}", counted - before);
        for prefix in &sought {
            assert_eq!(must("reading", db.get([prefix, &b"absent"[..]].concat())), None);
        }
        let reads = db.stats().table_read_calls - counted;
        assert!(reads < all / 2, "{reads} reads for keys, without filters {all}");
    }
}

#[test]
fn esker_takes_over_a_store_that_was_moved_and_names_its_former_place() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let expected = fill(&store, &["--benchmarks=fillrandom"]);
    for name in directory::names(&store).iter().filter(|name| name.starts_with("OPTIONS-")) {
        let path = store.join(name);
        let text = must("reading the options", std::fs::read_to_string(&path));
        let text = text.replace("[DBOptions]\n", "[DBOptions]\n  wal_dir=/where/the/store/was\n");
        must("writing the options", std::fs::write(&path, text));
    }
    assert_round_trip(&store, expected);
}

#[test]
fn esker_takes_over_values_that_fill_many_blocks_of_the_log() {
    round_trip(&["--benchmarks=fillrandom", "--num=200", "--value_size=100000", "--write_buffer_size=4000000"]);
}

#[test]
fn esker_takes_over_every_format_version_of_a_table() {
    for version in 2..=5 {
        let version = format!("--format_version={version}");
        round_trip(&["--benchmarks=fillrandom,overwrite", "--bloom_bits=10", &version]);
    }
}

#[test]
fn esker_takes_over_every_checksum() {
    for kind in 0..=4 {
        round_trip(&["--benchmarks=fillrandom,overwrite", &format!("--checksum_type={kind}")]);
    }
}

#[test]
fn esker_takes_over_other_filters_and_block_sizes() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--bloom_bits=10"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--bloom_bits=10", "--use_ribbon_filter=1"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--bloom_bits=10", "--prefix_size=8", "--keys_per_prefix=10"]);
    round_trip(&[
        "--benchmarks=fillrandom,overwrite",
        "--block_size=512",
        "--block_restart_interval=1",
        "--index_block_restart_interval=8",
        "--enable_index_compression=0",
    ]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--block_align=1", "--compression_type=none"]);
}

#[test]
fn esker_takes_over_other_kinds_of_index() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--partition_index=1", "--metadata_block_size=512"]);
    let filters = ["--partition_index_and_filters=1", "--metadata_block_size=512", "--bloom_bits=10"];
    round_trip(&[filters.as_slice(), &["--benchmarks=fillrandom,overwrite"]].concat());
    round_trip(&["--benchmarks=fillrandom,overwrite", "--use_data_block_hash_index=1"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--use_hash_search=1", "--prefix_size=8"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--index_with_first_key=1"]);
}

#[test]
fn esker_takes_over_stores_of_other_compaction_styles() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--compaction_style=1"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--level_compaction_dynamic_level_bytes=1"]);
}

#[test]
fn esker_takes_over_logs_written_in_other_ways() {
    round_trip(&["--benchmarks=fillrandom,overwrite", "--enable_pipelined_write=1", "--threads=2"]);
    round_trip(&["--benchmarks=fillrandom,overwrite", "--track_and_verify_wals_in_manifest=1"]);
    round_trip(&["--benchmarks=fillbatch,overwrite", "--batch_size=100"]);
    round_trip(&["--benchmarks=fillrandom", "--transaction_db=1"]);
}

#[test]
fn a_flipped_bit_in_a_store_of_rocksdbs_is_seen_by_these_very_checks() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let expected = fill(&store, &["--benchmarks=fillrandom,overwrite", "--compression_type=none"]);
    let check = |expected: &Families| {
        let db = must("opening read-only", Db::open_read_only(&store, Options::default()));
        assert_esker_holds(&db, expected);
    };
    check(&expected);
    let mut fewer = expected.clone();
    fewer.entry("default".into()).or_default().pop_last();
    assert!(std::panic::catch_unwind(|| check(&fewer)).is_err(), "a pair too many went unnoticed");

    let table = directory::filled(&store, ".sst").remove(0);
    let mut raw = must("reading a table", std::fs::read(store.join(&table)));
    raw[100] ^= 1;
    must("damaging a table", std::fs::write(store.join(&table), raw));
    assert!(std::panic::catch_unwind(|| check(&expected)).is_err(), "a flipped bit in {table} went unnoticed");
}

/// What `db_bench` deletes by the range while it fills: ranges of ten keys, in tables with keys, and what lies below them.
const RANGES: [&str; 4] = [
    "--writes_per_range_tombstone=100",
    "--range_tombstone_width=10",
    "--max_num_range_tombstones=50",
    "--expand_range_tombstones=false",
];

/// Range deletions that the tables of a store hold.
fn range_deletions(store: &Path) -> u64 {
    let counts = sst_dump::property(store, "# range deletions");
    counts.iter().filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[test]
fn esker_heeds_range_deletions_in_tables() {
    for (kind, more) in [
        ("of level 0", &["--benchmarks=fillrandom,flush", "--disable_auto_compactions=1"][..]),
        (
            "of several levels",
            // Merging goes on for as long as it writes, and leaves off in the midst of it.
            &[
                "--benchmarks=fillrandom,compact,overwrite,flush",
                "--num=8000",
                "--level0_file_num_compaction_trigger=8",
            ],
        ),
        (
            "with blob files",
            &[
                "--benchmarks=fillrandom,flush",
                "--disable_auto_compactions=1",
                "--enable_blob_files=1",
                "--min_blob_size=100",
            ],
        ),
    ] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let expected = fill(&store, &[more, RANGES.as_slice()].concat());
        assert!(range_deletions(&store) > 0, "db_bench left no range deletions in tables {kind}");
        let db = must("opening in place", Db::open(&store, Options::default()));
        assert_esker_holds(&db, &expected);
        must("closing", db.close());
        assert_round_trip(&store, expected);
    }
}

#[test]
fn esker_heeds_range_deletions_in_the_log() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let all = fill(&store, &["--benchmarks=fillrandom,overwrite", "--num=8000", "--key_size=16"]);
    let keys: Vec<_> = all["default"].keys().cloned().collect();
    let at = |part: usize| ldb::to_hex(&keys[keys.len() * part / 10]);
    // The second finds what the first has left, in a table of its own; the third nothing.
    for (begin, end) in [(1, 4), (3, 6), (2, 5)] {
        ldb::ldb(&store, &["--hex", "deleterange", &at(begin), &at(end)]);
    }
    assert!(!directory::filled(&store, ".log").is_empty() && range_deletions(&store) > 0);
    let expected = ldb::scan_all(&store);
    assert!(expected["default"].len() < keys.len() * 6 / 10);
    assert_round_trip(&store, expected);
}

/// Goal: tables that hold nothing but range deletions, and ranges beyond all keys that are left, are no obstacle.
#[test]
fn esker_takes_over_a_store_of_which_everything_was_deleted() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    fill(&store, &["--benchmarks=fillrandom,overwrite", "--num=8000"]);
    for _ in 0..2 {
        ldb::ldb(&store, &["--hex", "deleterange", "0x00", "0xFF"]);
    }
    for read_only in [true, false] {
        let opened = if read_only { Db::open_read_only } else { Db::open };
        let db = must("opening", opened(&store, Options::default()));
        assert_esker_holds(&db, &[("default".to_owned(), Default::default())].into());
        assert_esker_finds_no_damage(&db);
        must("closing", db.close());
    }
    ldb::assert_holds(&store, &[("default".to_owned(), Default::default())].into());
}
