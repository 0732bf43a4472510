//! One store, written by Esker and by RocksDB's tools by turns.

use std::path::Path;

use esker::env::Env;
use esker::{
    BytewiseComparator, ChecksumKind, Comparator, Compression, Db, FamilyOptions, IngestOptions, Options,
    ReverseBytewiseComparator, SstFileWriter,
};
use esker_format::rocksdb::internal_key::SequenceNumber;
use esker_format::rocksdb::write_batch::WriteBatch;
use esker_interop::contents::{Contents, Families, assert_esker_finds_no_damage, assert_esker_holds, must};
use esker_interop::db_bench::Opening;
use esker_interop::workload::{self, INLINE, MIXED, Numbers, SEPARATE};
use esker_interop::{contents, db_bench, directory, ldb, sst_dump};
use esker_log::writer::LogWriter;

const FAMILIES: [&str; 3] = [MIXED, SEPARATE, INLINE];

fn create(store: &Path) -> (Db, Families) {
    create_in(&BytewiseComparator, store)
}

fn create_in(comparator: &'static dyn Comparator, store: &Path) -> (Db, Families) {
    let mut options = workload::options(Compression::Lz4, ChecksumKind::Xxh3);
    options.families.values_mut().for_each(|family| family.comparator = comparator);
    let db = must("creating a store", Db::open(store, options.clone()));
    for name in [SEPARATE, INLINE] {
        must("creating a family", db.create_column_family(name, options.families[name].clone()));
    }
    (db, FAMILIES.map(|name| (name.to_owned(), Contents::new())).into())
}

fn esker_holds(store: &Path, expected: &Families) -> Db {
    let db = must("opening", Db::open(store, Options::default()));
    assert_esker_holds(&db, expected);
    assert_esker_finds_no_damage(&db);
    db
}

/// Goal: what Esker keeps of a short disk, and leaves behind where its process dies, is no one's for long: RocksDB takes it away.
#[test]
fn rocksdb_takes_away_what_was_kept_of_the_disk() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    must("closing", create(&store).0.close());
    must("writing", std::fs::write(store.join("000001.dbtmp"), [0; 100_000]));
    ldb::put(&store, MIXED, b"key", b"value");
    assert_eq!(directory::count(&store, ".dbtmp"), 0);
}

#[test]
fn esker_and_ldb_write_by_turns() {
    write_by_turns(&BytewiseComparator);
}

#[test]
fn esker_and_ldb_write_by_turns_where_keys_lie_backward() {
    write_by_turns(&ReverseBytewiseComparator);
}

/// Goal: RocksDB's repair writes a manifest in which keys lie by their bytes, whatever they do. Esker's goes by what tables say.
#[test]
fn a_store_whose_keys_lie_backward_outlives_a_repair_of_rocksdbs() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create_in(&ReverseBytewiseComparator, &store);
    workload::write(&db, &mut expected, &mut Numbers::new(5), 300);
    must("flushing", db.flush());
    must("closing", db.close());
    ldb::ldb(&store, &["--try_load_options", "repair"]);
    let error = Db::open(&store, Options::default()).err().unwrap_or_else(|| panic!("as RocksDB's repair left it"));
    assert!(error.to_string().contains("ordered by"), "{error}");
    must("repairing", Db::repair(&store, Options::default()));
    let db = must("opening", Db::open(&store, Options::default()));
    let ordered = |name: &str| contents::family(&db, name).options().comparator.name().to_owned();
    assert!(FAMILIES.iter().all(|name| ordered(name) == ReverseBytewiseComparator.name()));
    assert_esker_finds_no_damage(&db);
    assert_esker_holds(&db, &expected);
}

fn write_by_turns(comparator: &'static dyn Comparator) {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create_in(comparator, &store);
    let mut numbers = Numbers::new(1);
    workload::write(&db, &mut expected, &mut numbers, 300);
    must("closing", db.close());
    for turn in 0..6_u64 {
        for name in FAMILIES {
            let contents = expected.entry(name.into()).or_default();
            for number in 0..4_u64 {
                let key = format!("turn/{number}/{}", turn % 3).into_bytes();
                let value = numbers.value(200 * number as usize);
                ldb::put(&store, name, &key, &value);
                contents.insert(key, value);
            }
            let gone = contents.keys().nth(numbers.below(contents.len() as u64) as usize).cloned();
            if let Some(key) = gone {
                ldb::delete(&store, name, &key);
                contents.remove(&key);
            }
            if turn % 2 == 1 {
                ldb::ldb(&store, &[&format!("--column_family={name}"), "compact"]);
            }
        }
        ldb::assert_holds(&store, &expected);

        let db = esker_holds(&store, &expected);
        workload::change(&db, &mut expected, &mut numbers);
        if turn % 3 > 0 {
            must("flushing", db.flush());
        }
        if turn % 3 == 2 {
            workload::compact(&db);
        }
        assert_esker_holds(&db, &expected);
        must("closing", db.close());
        ldb::assert_holds(&store, &expected);
        sst_dump::assert_tables_are_sound(&store);
    }
}

#[test]
fn esker_and_db_bench_write_by_turns() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let blobs = ["--enable_blob_files=1", "--min_blob_size=100", "--write_buffer_size=65536", "--value_size=150"];
    let bench = |more: &[&str]| {
        let arguments: Vec<&str> = blobs.into_iter().chain(more.iter().copied()).collect();
        db_bench::db_bench(&store, &arguments);
    };
    bench(&["--benchmarks=fillrandom", "--num=2000", "--seed=1"]);
    let mut numbers = Numbers::new(2);
    for seed in ["--seed=2", "--seed=3", "--seed=4"] {
        let mut expected = ldb::scan_all(&store);
        let db = esker_holds(&store, &expected);
        workload::change(&db, &mut expected, &mut numbers);
        must("flushing", db.flush());
        workload::compact(&db);
        workload::write(&db, &mut expected, &mut numbers, 20);
        must("closing", db.close());
        ldb::assert_holds(&store, &expected);
        db_bench::assert_finds_every_key(&store, expected["default"].len(), Opening::Writable);
        bench(&["--use_existing_db=1", "--benchmarks=overwrite,deleterandom", "--num=2000", "--deletes=300", seed]);
    }
    let expected = ldb::scan_all(&store);
    drop(esker_holds(&store, &expected));
}

#[test]
fn rocksdb_collects_the_garbage_in_eskers_blob_files() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store);
    let mut numbers = Numbers::new(9);
    for _ in 0..3 {
        workload::write(&db, &mut expected, &mut numbers, 300);
        must("flushing", db.flush());
        workload::compact(&db);
    }
    must("closing", db.close());
    let before = directory::filled(&store, ".blob");
    assert!(before.len() > 2, "few blob files: {before:?}");
    for name in FAMILIES {
        ldb::ldb(
            &store,
            &[
                &format!("--column_family={name}"),
                "--enable_blob_files",
                "--enable_blob_garbage_collection",
                "--blob_garbage_collection_age_cutoff=1.0",
                "compact",
            ],
        );
    }
    let after = directory::filled(&store, ".blob");
    assert!(before.iter().all(|name| !after.contains(name)), "RocksDB kept some of {before:?}: {after:?}");
    ldb::assert_holds(&store, &expected);
    let db = esker_holds(&store, &expected);
    workload::change(&db, &mut expected, &mut numbers);
    must("flushing", db.flush());
    workload::compact(&db);
    must("closing", db.close());
    ldb::assert_holds(&store, &expected);
}

#[test]
fn esker_reads_the_column_families_that_ldb_creates_and_drops() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store);
    let mut numbers = Numbers::new(4);
    workload::write(&db, &mut expected, &mut numbers, 200);
    must("flushing", db.flush());
    must("closing", db.close());
    ldb::ldb(&store, &["create_column_family", "by_ldb"]);
    ldb::put(&store, "by_ldb", b"key", b"value");
    ldb::ldb(&store, &["drop_column_family", SEPARATE]);
    expected.insert("by_ldb".into(), [(b"key".to_vec(), b"value".to_vec())].into());
    expected.remove(SEPARATE);
    ldb::assert_holds(&store, &expected);
    let db = esker_holds(&store, &expected);
    workload::write(&db, &mut expected, &mut numbers, 200);
    must("flushing", db.flush());
    must("closing", db.close());
    ldb::assert_holds(&store, &expected);
}

/// A log of the writes that RocksDB's programs make and its tools do not, as the last life left it.
fn write_log(store: &Path, number: u64, batches: Vec<WriteBatch>) {
    let path = store.join(format!("{number:06}.log"));
    let mut log = LogWriter::new(must("creating a log", Env::os().files.create(&path)));
    for batch in batches {
        must("writing a log", log.append(&[batch.bytes()]));
    }
    must("syncing a log", log.sync());
}

/// Goal: a single deletion that a newer value hides is still there when RocksDB lets the next one cancel that value.
/// Method: the first value in the deepest level, a table around it above that; its deletion and the second value flushed by Esker; the second deletion merged with
/// that by RocksDB, above the deepest level.
#[test]
fn what_a_single_deletion_cancelled_stays_gone_when_rocksdb_goes_on() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let open = || {
        let compression = Compression::None;
        let family = FamilyOptions { level_base_bytes: 16 << 10, compression, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        must("opening", Db::open(&store, Options { create_if_missing: true, families, ..Options::default() }))
    };
    let db = open();
    must("putting", db.put("key", "first"));
    // So much that a level is wanted above the deepest.
    for n in 0..50 {
        must("putting", db.put(format!("key {n}"), [b'v'; 1000]));
    }
    must("flushing", db.flush());
    let family = db.default_column_family();
    must("compacting", db.compact_range(&family, None, None));
    let around = directory.path().join("around.sst");
    let mut table = must("beginning a table", SstFileWriter::create(&around, &FamilyOptions::default()));
    must("filling a table", table.put("a", "").and_then(|()| table.put("z", "")));
    must("finishing a table", table.finish());
    must("taking a table in", db.ingest(&family, &[&around], &IngestOptions::default()));
    assert_eq!(
        db.stats().families[0].levels.iter().map(|level| level.files).collect::<Vec<_>>(),
        [0, 0, 0, 0, 0, 1, 1]
    );
    must("closing", db.close());
    let batch = |sequence: u64, value: Option<&[u8]>| {
        let mut batch = WriteBatch::new();
        let added = match value {
            Some(value) => batch.put(0, b"key", value),
            None => batch.single_delete(0, b"key"),
        };
        must("filling a batch", added);
        batch.set_sequence(SequenceNumber::new(sequence));
        batch
    };
    write_log(&store, 1000, vec![batch(20, None), batch(30, Some(b"second"))]);
    let db = open();
    assert_eq!(must("reading", db.get("key")).as_deref(), Some(&b"second"[..]));
    must("closing", db.close());
    write_log(&store, 2000, vec![batch(40, None)]);
    db_bench::db_bench(&store, &["--use_existing_db=1", "--disable_auto_compactions=1", "--benchmarks=compact0"]);
    let left: Vec<_> = ldb::scan(&store, "default").into_keys().collect();
    assert!(!left.contains(&b"key".to_vec()), "what was deleted is there again");
    assert_eq!(left.len(), 52);
    let db = open();
    assert_eq!(must("reading", db.get("key")), None);
}
