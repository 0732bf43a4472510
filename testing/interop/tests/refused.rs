//! Stores with features that Esker does not have yet: told as such, and left exactly as they were.

use std::fs;
use std::path::Path;

use esker::{Db, Error, ErrorKind, Options, ReadOptions};
use esker_interop::contents::must;
use esker_interop::{db_bench, directory, ldb};

const SMALL: [&str; 5] =
    ["--seed=7", "--num=2000", "--value_size=120", "--write_buffer_size=65536", "--compression_type=snappy"];

fn bench(store: &Path, more: &[&str]) {
    let arguments: Vec<&str> = SMALL.into_iter().chain(more.iter().copied()).collect();
    db_bench::db_bench(store, &arguments);
}

fn refusal<T>(opened: Result<T, Error>, what: &str) -> Error {
    match opened {
        Err(error) => error,
        Ok(_) => esker_interop::program::fail(&format!("{what} was opened as if Esker could read it")),
    }
}

/// Neither way of opening accepts the store, the error says what the store needs, and no byte of it changed.
fn assert_refused(store: &Path, what: &str, words: &[&str]) {
    let before = directory::bytes(store);
    for read_only in [false, true] {
        let options = Options { create_if_missing: true, ..Options::default() };
        let opened = if read_only { Db::open_read_only(store, options) } else { Db::open(store, options) };
        let error = refusal(opened, what);
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{what}: {error}");
        let told = error.to_string().to_lowercase();
        assert!(words.iter().any(|word| told.contains(word)), "{what}: the error does not say so: {error}");
        assert!(!told.contains('\n'), "{what}: the error runs over more than one line: {error}");
        directory::assert_unchanged(&before, &directory::bytes(store));
    }
}

/// Makes a store, and has it refused.
fn refused(what: &str, words: &[&str], make: impl FnOnce(&Path)) {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    make(&store);
    assert_refused(&store, what, words);
}

#[test]
fn values_of_the_stacked_blobdb_are_refused() {
    refused("a store of the stacked BlobDB", &["stacked blobdb"], |store| {
        bench(store, &["--benchmarks=fillrandom,compact", "--use_blob_db=1"]);
        assert!(directory::count(&store.join("blob_dir"), ".blob") > 0);
    });
}

#[test]
fn other_orders_of_keys_are_refused() {
    refused("a store ordered by numbers", &["comparator"], |store| {
        bench(store, &["--benchmarks=fillrandom", "--use_uint64_comparator=1", "--key_size=8"]);
    });
    refused("a store with timestamps in its keys", &["comparator", "timestamp"], |store| {
        bench(store, &["--benchmarks=fillrandom", "--user_timestamp_size=8"]);
    });
}

#[test]
fn plain_tables_are_refused() {
    refused("a store of plain tables", &["table"], |store| {
        bench(store, &["--benchmarks=fillrandom,flush", "--use_plain_table=1", "--prefix_size=8", "--mmap_read=1"]);
        assert!(directory::count(store, ".sst") > 0);
    });
}

/// No table tells: the log alone would become block-based tables, among which RocksDB then finds none of its own.
#[test]
fn a_store_of_plain_tables_that_has_only_a_log_is_refused() {
    refused("a store that is to have plain tables", &["plaintable"], |store| {
        bench(
            store,
            &["--benchmarks=fillrandom", "--num=50", "--use_plain_table=1", "--prefix_size=8", "--mmap_read=1"],
        );
        assert_eq!(directory::count(store, ".sst"), 0);
    });
}

#[test]
fn another_order_of_files_is_refused() {
    refused("a store whose oldest tables go first", &["fifo"], |store| {
        let fifo = ["--compaction_style=2", "--fifo_compaction_max_table_files_size_mb=100"];
        bench(store, &[fifo.as_slice(), &["--benchmarks=fillrandom,flush"]].concat());
        assert!(directory::count(store, ".sst") > 0);
    });
}

#[test]
fn more_than_seven_levels_are_refused() {
    refused("a store of twelve levels", &["level"], |store| {
        let levels = ["--num_levels=12", "--level_compaction_dynamic_level_bytes=1"];
        bench(store, &[levels.as_slice(), &["--benchmarks=fillrandom,compact"]].concat());
    });
}

#[test]
fn compressions_that_esker_lacks_are_refused() {
    // No blobs: RocksDB itself cannot write small ones with it.
    refused("tables in another compression", &["bzip2"], |store| {
        bench(store, &["--benchmarks=fillrandom,flush", "--compression_type=bzip2"]);
    });
}

#[test]
fn a_directory_that_is_no_store_is_an_error_and_stays_as_it_was() {
    let directory = must("making a directory", tempfile::tempdir());
    let path = directory.path();
    must("writing a file", fs::write(path.join("letter.txt"), "Dear reader"));
    let before = directory::bytes(path);
    let error = refusal(Db::open(path, Options::default()), "a directory of letters");
    assert!(error.path().is_some(), "the error names no path: {error}");
    refusal(Db::open_read_only(path, Options::default()), "a directory of letters");
    directory::assert_unchanged(&before, &directory::bytes(path));
}

/// The counterpart: what these tests do to a store does not by itself make Esker refuse it.
#[test]
fn the_same_store_without_the_feature_is_not_refused() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    bench(&store, &["--benchmarks=fillrandom,flush"]);
    let before = directory::bytes(&store);
    let db = must("opening read-only", Db::open_read_only(&store, Options::default()));
    let family = esker_interop::contents::family(&db, "default");
    let first = ldb::scan(&store, "default").pop_first();
    let (key, value) = first.unwrap_or_default();
    let got = must("getting", db.get_cf(&family, &key, &ReadOptions::default()));
    assert_eq!(got.as_deref(), Some(value.as_slice()));
    drop(db);
    // `ldb` begins a new LOG of its own; Esker does not write there.
    let without_log = |mut files: std::collections::BTreeMap<String, Vec<u8>>| {
        files.retain(|name, _| !name.starts_with("LOG"));
        files
    };
    directory::assert_unchanged(&without_log(before), &without_log(directory::bytes(&store)));
}
