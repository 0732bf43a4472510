//! Values that Esker wrote to blob files at once, read by RocksDB's tools once the store was closed in order.

use std::path::Path;

use esker::{ChecksumKind, Compression, Db, Options, Separation};
use esker_interop::contents::{Contents, Families, assert_esker_finds_no_damage, assert_esker_holds, family, must};
use esker_interop::workload::{self, INLINE, MIXED, Numbers, SEPARATE};
use esker_interop::{directory, ldb, sst_dump};

fn options(compression: Compression) -> Options {
    let options = workload::options(compression, ChecksumKind::Xxh3);
    // These two are kept as notes in the OPTIONS file, too.
    let mut options = Options { max_disk_bytes: 1 << 40, max_space_amp: 1.5, ..options };
    for name in [MIXED, SEPARATE] {
        if let Some(family) = options.families.get_mut(name) {
            family.separation = Separation::AtWrite;
        }
    }
    options
}

fn create(store: &Path, options: &Options) -> (Db, Families) {
    let db = must("creating a store", Db::open(store, options.clone()));
    for name in [SEPARATE, INLINE] {
        must("creating a family", db.create_column_family(name, options.families[name].clone()));
    }
    (db, [MIXED, SEPARATE, INLINE].map(|name| (name.to_owned(), Contents::new())).into())
}

fn fill(db: &Db, expected: &mut Families, numbers: &mut Numbers) {
    for round in 0..4 {
        workload::write(db, expected, numbers, 250);
        must("flushing", db.flush());
        if round == 2 {
            workload::compact(db);
        }
    }
    // These are in log, memtable and active blob files when the store is closed.
    workload::write(db, expected, numbers, 100);
}

fn assert_rocksdb_reads(store: &Path, expected: &Families) {
    ldb::assert_holds(store, expected);
    assert!(sst_dump::assert_tables_are_sound(store) > 0, "the store has no table, so nothing was shown");
    // It takes the OPTIONS file, with what stands in it for Esker alone.
    for name in expected.keys() {
        ldb::ldb(store, &["--try_load_options", "--hex", &format!("--column_family={name}"), "scan"]);
    }
    // Every blob file from front to back.
    ldb::ldb(store, &["dump_live_files"]);
}

#[test]
fn rocksdb_reads_values_that_were_written_at_once() {
    for compression in [Compression::None, Compression::Snappy, Compression::Zlib, Compression::Lz4, Compression::Zstd]
    {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let (db, mut expected) = create(&store, &options(compression));
        let mut numbers = Numbers::new(21);
        fill(&db, &mut expected, &mut numbers);
        assert!(db.stats().written.write_blob_bytes > 100_000, "nothing was written at once, so nothing is shown");
        assert_esker_holds(&db, &expected);
        must("closing", db.close());
        assert_rocksdb_reads(&store, &expected);

        // RocksDB writes and compacts, and Esker goes on with what comes of it.
        ldb::put(&store, MIXED, b"by ldb", b"a value");
        expected.entry(MIXED.into()).or_default().insert(b"by ldb".into(), b"a value".into());
        ldb::ldb(&store, &[&format!("--column_family={SEPARATE}"), "compact"]);
        let db = must("reopening", Db::open(&store, options(compression)));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
        fill(&db, &mut expected, &mut numbers);
        for name in [MIXED, SEPARATE] {
            must("reclaiming", db.reclaim(&family(&db, name), 0.0));
        }
        assert_esker_finds_no_damage(&db);
        must("closing", db.close());
        assert_rocksdb_reads(&store, &expected);
    }
}

/// Goal: after a death of the process, an open and a close by Esker bring the store back to what RocksDB reads.
/// Method: the files are copied while the store is open and nobody writes, as a killed process leaves them.
#[test]
fn rocksdb_reads_what_esker_recovered() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let mut options = options(Compression::Lz4);
    options.background_jobs = 0;
    let (db, mut expected) = create(&store, &options);
    fill(&db, &mut expected, &mut Numbers::new(22));
    let copy = directory.path().join("copy");
    directory::copy(&store, &copy);
    let recovered = must("recovering", Db::open(&copy, Options::default()));
    assert!(recovered.stats().recovery.batches > 0);
    assert_esker_holds(&recovered, &expected);
    assert_esker_finds_no_damage(&recovered);
    must("closing", recovered.close());
    assert_rocksdb_reads(&copy, &expected);
}
