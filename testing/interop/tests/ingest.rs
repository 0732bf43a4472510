//! Tables that are written outside of a store and taken in: by RocksDB's tools, by Esker, and each of the other's.

use std::path::Path;

use esker::{Compression, Db, FamilyOptions, IngestOptions, Options, SstFileWriter};
use esker_interop::contents::{Contents, Families, assert_esker_finds_no_damage, assert_esker_holds, must};
use esker_interop::{db_bench, ldb, sst_dump};

fn bench(store: &Path, more: &[&str]) {
    let small =
        ["--seed=7", "--num=2000", "--value_size=120", "--write_buffer_size=65536", "--compression_type=snappy"];
    let arguments: Vec<&str> = small.into_iter().chain(more.iter().copied()).collect();
    db_bench::db_bench(store, &arguments);
}

/// RocksDB writes `pairs` into a table outside of any store.
fn write_table(store: &Path, table: &Path, pairs: &Contents) {
    let line = |(key, value): (&Vec<u8>, &Vec<u8>)| format!("{} ==> {}\n", ldb::to_hex(key), ldb::to_hex(value));
    let input: String = pairs.iter().map(line).collect();
    let table = table.display().to_string();
    ldb::with_input(store, &["--hex", "write_extern_sst", &table], &input).succeeded();
}

fn holds(store: &Path, contents: &Contents) -> Db {
    let expected = Families::from([("default".to_owned(), contents.clone())]);
    let db = must("opening", Db::open(store, Options::default()));
    assert_esker_holds(&db, &expected);
    assert_esker_finds_no_damage(&db);
    db
}

/// The entries of a table that RocksDB took in have their sequence number from a property of the table, written over its
/// checksum, or from the manifest, and not from their keys. Taken at their word, older values would win.
#[test]
fn a_table_that_rocksdb_took_in_is_read_at_its_sequence_number() {
    for write_number in ["--write_global_seqno=true", "--write_global_seqno=false"] {
        for benchmark in ["--benchmarks=fillseq,flush", "--benchmarks=fillseq", "--benchmarks=fillseq,compact"] {
            let directory = must("making a directory", tempfile::tempdir());
            let (store, table) = (directory.path().join("store"), directory.path().join("taken.sst"));
            bench(&store, &[benchmark]);
            let mut contents = ldb::scan(&store, "default");
            let over: Contents = contents.keys().step_by(7).take(100).map(|key| (key.clone(), vec![0xee; 9])).collect();
            write_table(&store, &table, &over);
            ldb::ldb(&store, &["ingest_extern_sst", &table.display().to_string(), write_number]);
            contents.extend(over);
            ldb::put(&store, "default", b"later", b"than all");
            contents.insert(b"later".to_vec(), b"than all".to_vec());

            let db = holds(&store, &contents);
            // Over what was taken in, then merged with it.
            let (key, _) = contents.pop_first().unwrap_or_default();
            must("deleting", db.delete(&key));
            must("closing", db.close());
            ldb::assert_holds(&store, &Families::from([("default".to_owned(), contents.clone())]));
            let db = holds(&store, &contents);
            must("compacting", db.compact_range(&db.default_column_family(), None, None));
            must("closing", db.close());
            sst_dump::assert_tables_are_sound(&store);
            ldb::assert_holds(&store, &Families::from([("default".to_owned(), contents.clone())]));
            drop(holds(&store, &contents));
        }
    }
}

/// Pairs whose values lie on both sides of what is separated, under keys that begin with `prefix`.
fn pairs(prefix: &str, count: usize, step: usize) -> Contents {
    let value = |number: usize| match number % 4 {
        0 => vec![number as u8; 6000],
        1 => Vec::new(),
        _ => format!("value {number}").repeat(number % 9).into_bytes(),
    };
    (0..count).map(|number| (format!("{prefix}{:07}", number * step).into_bytes(), value(number))).collect()
}

fn families(contents: &Contents) -> Families {
    Families::from([("default".to_owned(), contents.clone())])
}

/// Both directions, over what is there and into gaps, under every compression.
#[test]
fn each_takes_in_what_the_other_wrote() {
    for compression in [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let mut contents = pairs("k", 2000, 3);
        let db = must("opening", Db::open(&store, Options { create_if_missing: true, ..Options::default() }));
        let family = db.default_column_family();
        let mut load = must("loading", db.bulk_load(&family));
        for (key, value) in &contents {
            must("putting", load.put(key, value));
        }
        must("finishing", load.finish());

        // RocksDB's tool needs a store for its options; any will do.
        let other = directory.path().join("other");
        bench(&other, &["--benchmarks=fillseq"]);
        let theirs = directory.path().join("theirs.sst");
        let over = pairs("k", 300, 7);
        write_table(&other, &theirs, &over);
        let chosen = IngestOptions { move_files: true, ..IngestOptions::default() };
        let ingested = must("ingesting", db.ingest(&family, &[&theirs], &chosen));
        assert!(ingested.not_removed.is_empty() && !theirs.exists());
        contents.extend(over);
        must("closing", db.close());
        ldb::assert_holds(&store, &families(&contents));
        sst_dump::assert_tables_are_sound(&store);
        drop(holds(&store, &contents));

        let ours = directory.path().join("ours.sst");
        let mut writer =
            must("creating", SstFileWriter::create(&ours, &FamilyOptions { compression, ..FamilyOptions::default() }));
        for (key, value) in pairs("k", 500, 4) {
            if value.is_empty() {
                must("deleting", writer.delete(&key));
                contents.remove(&key);
            } else {
                must("putting", writer.put(&key, &value));
                contents.insert(key, value);
            }
        }
        must("finishing", writer.finish());
        ldb::ldb(&store, &["ingest_extern_sst", &ours.display().to_string(), "--write_global_seqno=false"]);
        ldb::assert_holds(&store, &families(&contents));
        let db = holds(&store, &contents);
        must("compacting", db.compact_range(&db.default_column_family(), None, None));
        must("closing", db.close());
        ldb::assert_holds(&store, &families(&contents));
        sst_dump::assert_tables_are_sound(&store);
    }
}

/// What was loaded with values in blob files is a store that RocksDB reads, compacts, and gives back.
#[test]
fn rocksdb_reads_and_compacts_what_was_loaded() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let db = must("opening", Db::open(&store, Options { create_if_missing: true, ..Options::default() }));
    let mut contents = pairs("b", 1500, 2);
    let mut load = must("loading", db.bulk_load(&db.default_column_family()));
    for (key, value) in &contents {
        must("putting", load.put(key, value));
    }
    let loaded = must("finishing", load.finish());
    assert_eq!((loaded.entries, loaded.tables, loaded.blob_files), (1500, 1, 1));
    must("putting", db.put("later", "than the load"));
    contents.insert(b"later".to_vec(), b"than the load".to_vec());
    must("closing", db.close());

    ldb::assert_holds(&store, &families(&contents));
    let (first, _) = contents.pop_first().unwrap_or_default();
    ldb::delete(&store, "default", &first);
    ldb::put(&store, "default", b"b0000004", b"over what was loaded");
    contents.insert(b"b0000004".to_vec(), b"over what was loaded".to_vec());
    drop(holds(&store, &contents));
    ldb::ldb(&store, &["compact"]);
    ldb::assert_holds(&store, &families(&contents));
    sst_dump::assert_tables_are_sound(&store);
    drop(holds(&store, &contents));
}
