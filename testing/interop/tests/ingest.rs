//! Tables that are written outside of a store and taken in: by RocksDB's tools, by Esker, and each of the other's.

use std::path::Path;

use esker::{Db, Options};
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
