//! Stores that Esker wrote, read by RocksDB's tools.

use std::path::Path;

use esker::{Backups, ChecksumKind, Compression, Db, Options, ReclaimMode, Separation, WriteOptions};
use esker_interop::contents::{Contents, Families, assert_esker_finds_no_damage, assert_esker_holds, family, must};
use esker_interop::db_bench::Opening;
use esker_interop::workload::{self, INLINE, MIXED, Numbers, SEPARATE};
use esker_interop::{db_bench, directory, ldb, program, sst_dump};

const COMPRESSIONS: [(Compression, &str); 5] = [
    (Compression::None, "NoCompression"),
    (Compression::Snappy, "Snappy"),
    (Compression::Lz4, "LZ4"),
    (Compression::Zlib, "Zlib"),
    (Compression::Zstd, "ZSTD"),
];

const CHECKSUMS: [ChecksumKind; 5] =
    [ChecksumKind::None, ChecksumKind::Crc32c, ChecksumKind::XxHash32, ChecksumKind::XxHash64, ChecksumKind::Xxh3];

/// A new store with the three families of the workload, all empty.
fn create(store: &Path, options: &Options) -> (Db, Families) {
    let db = must("creating a store", Db::open(store, options.clone()));
    for name in [SEPARATE, INLINE] {
        let options = options.families[name].clone();
        must("creating a family", db.create_column_family(name, options));
    }
    (db, [MIXED, SEPARATE, INLINE].map(|name| (name.to_owned(), Contents::new())).into())
}

/// Writes, flushes and compacts until the store has tables on several levels, level 0 among them, and blob files.
fn fill(db: &Db, expected: &mut Families, numbers: &mut Numbers) {
    for round in 0..5 {
        workload::write(db, expected, numbers, 250);
        must("flushing", db.flush());
        if round == 2 {
            workload::compact(db);
        }
    }
}

/// What RocksDB's tools say of a closed store, all of them.
fn assert_rocksdb_reads(store: &Path, expected: &Families) {
    ldb::assert_holds(store, expected);
    let tables = sst_dump::assert_tables_are_sound(store);
    assert!(tables > 0, "the store has no table, so nothing was shown");
    for (name, contents) in expected {
        let arguments = ["--try_load_options", "--hex", &format!("--column_family={name}"), "scan"];
        let lines = ldb::ldb(store, &arguments).lines().count();
        assert_eq!(lines, contents.len(), "ldb --try_load_options scan of {name}");
    }
    ldb::ldb(store, &["list_live_files_metadata"]);
    ldb::ldb(store, &["idump", "--count_only"]);
    let count = expected[MIXED].len();
    db_bench::assert_finds_every_key(store, count, Opening::ReadOnly);
}

#[test]
fn rocksdb_reads_every_compression_and_checksum_that_esker_writes() {
    // A checksum is of a block as it is stored, however that came about: each with the next compression in turn.
    for seed in 0..COMPRESSIONS.len().max(CHECKSUMS.len()) {
        let (compression, name) = COMPRESSIONS[seed % COMPRESSIONS.len()];
        let checksum = CHECKSUMS[seed % CHECKSUMS.len()];
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let (db, mut expected) = create(&store, &workload::options(compression, checksum));
        fill(&db, &mut expected, &mut Numbers::new(seed as u64));
        assert_esker_holds(&db, &expected);
        must("closing", db.close());

        assert_rocksdb_reads(&store, &expected);
        assert!(directory::count(&store, ".blob") > 0, "no blob file: {:?}", directory::names(&store));
        let written = sst_dump::property(&store, "SST file compression algo");
        assert!(written.iter().all(|one| one == name), "tables should be {name}: {written:?}");
    }
}

/// Goal: every generation of a set of backups is a store that RocksDB reads as it is, which changes nothing of it, and so is what is restored.
#[test]
fn rocksdb_reads_every_generation_of_a_set_of_backups() {
    let directory = must("making a directory", tempfile::tempdir());
    let (store, set) = (directory.path().join("store"), directory.path().join("set"));
    let (db, mut expected) = create(&store, &workload::options(Compression::Lz4, ChecksumKind::Xxh3));
    let backups = must("opening a set", Backups::open(&set));
    let mut numbers = Numbers::new(21);
    let mut generations = Vec::new();
    for _ in 0..3 {
        fill(&db, &mut expected, &mut numbers);
        let made = must("making a generation", backups.create(&db, &mut |_| ()));
        generations.push((made.info.id, expected.clone()));
        workload::write(&db, &mut expected, &mut numbers, 50);
    }
    must("closing", db.close());
    for (id, expected) in &generations {
        let generation = set.join(format!("{id:06}"));
        let read_only = |arguments: &[&str]| ldb::ldb(&generation, arguments);
        ldb::assert_holds(&generation, expected);
        read_only(&["list_live_files_metadata"]);
        let check = must("checking", backups.check(*id, Options::default(), &mut |_| ()));
        assert!(check.errors.is_empty(), "after RocksDB read it: {:?}", check.errors);
        let restored = directory.path().join(format!("restored{id}"));
        must("restoring", backups.restore(*id, &restored, &mut |_| ()));
        assert_rocksdb_reads(&restored, expected);
    }
    // What RocksDB left there, a diary, is in nobody's way.
    must("deleting", backups.keep_newest(0));
    assert!(must("listing", backups.list()).is_empty());
}

#[test]
fn rocksdb_replays_what_esker_left_in_the_log() {
    for sync in [false, true] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        // With recycled logs, the last of which has a former life behind its end until it is closed.
        let recycled_logs_max = if sync { 2 } else { 0 };
        let options = Options { recycled_logs_max, ..workload::options(Compression::Lz4, ChecksumKind::Xxh3) };
        let (db, mut expected) = create(&store, &options);
        let mut numbers = Numbers::new(77);
        fill(&db, &mut expected, &mut numbers);
        // Few enough for the write buffer, with one value that runs over several blocks of the log.
        let target = family(&db, MIXED);
        let long = numbers.value(100_000);
        for key in [b"left in the log".as_slice(), b"", b"\xff\xff\xff"] {
            must(
                "putting",
                db.put_cf(&target, key, &long[..key.len() * 100], &WriteOptions { sync, disable_wal: false }),
            );
            expected.entry(MIXED.into()).or_default().insert(key.into(), long[..key.len() * 100].into());
        }
        workload::write(&db, &mut expected, &mut numbers, 15);
        must("closing", db.close());
        assert!(!directory::filled(&store, ".log").is_empty(), "nothing was left in the log, so nothing is shown");

        for name in directory::filled(&store, ".log") {
            let file = format!("--walfile={}", store.join(&name).display());
            let printed = ldb::ldb(&store, &["dump_wal", &file, "--header", "--print_value"]);
            assert!(printed.contains("PUT"), "ldb dump_wal of {name} shows no put:\n{printed}");
        }
        assert_rocksdb_reads(&store, &expected);
        // Opening for writing replays the log for good: RocksDB flushes it into tables of its own.
        ldb::put(&store, MIXED, b"by ldb", b"a value");
        expected.entry(MIXED.into()).or_default().insert(b"by ldb".into(), b"a value".into());
        assert_rocksdb_reads(&store, &expected);
        let db = must("reopening", Db::open(&store, Options::default()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}

/// Goal: after a death of the process RocksDB reads what Esker would: all that was acknowledged.
/// Method: the files are copied while the store is open and nobody writes, as a killed process leaves them.
#[test]
fn rocksdb_reads_all_that_was_written_before_the_process_died() {
    [0, 2].into_iter().for_each(rocksdb_reads_what_a_death_left);
}

fn rocksdb_reads_what_a_death_left(recycled_logs_max: usize) {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let mut options = Options { recycled_logs_max, ..workload::options(Compression::Lz4, ChecksumKind::Xxh3) };
    // Flush and compaction in the writer's own thread: when it returns nothing is under way.
    options.background_jobs = 0;
    let (db, mut expected) = create(&store, &options);
    let mut numbers = Numbers::new(55);
    for death in 0..6 {
        // Little in one family, much in another: the log that holds the little outlives those after it.
        must("putting", db.put(format!("little {death}"), "in the default family"));
        let little = expected.entry(MIXED.into()).or_default();
        little.insert(format!("little {death}").into_bytes(), b"in the default family".to_vec());
        let mut much: Families = [(INLINE.to_owned(), expected[INLINE].clone())].into();
        workload::write(&db, &mut much, &mut numbers, 80);
        expected.extend(much);

        let copy = directory.path().join(format!("death {death}"));
        directory::copy(&store, &copy);
        ldb::assert_holds(&copy, &expected);
        if death == 5 {
            let logs = directory::filled(&copy, ".log");
            assert!(logs.len() > 1, "only {logs:?} hold anything, so several logs were not shown");
        }
        ldb::put(&copy, INLINE, b"by ldb", b"after the death");
        let mut expected = expected.clone();
        expected.entry(INLINE.into()).or_default().insert(b"by ldb".to_vec(), b"after the death".to_vec());
        let survivor = must("opening what was left", Db::open(&copy, Options::default()));
        assert_esker_holds(&survivor, &expected);
        assert_esker_finds_no_damage(&survivor);
    }
    must("closing", db.close());
    ldb::assert_holds(&store, &expected);
}

#[test]
fn rocksdb_reads_what_many_threads_wrote_at_once() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store, &workload::options(Compression::Lz4, ChecksumKind::Xxh3));
    std::thread::scope(|scope| {
        for thread in 0..6_u8 {
            let db = db.clone();
            scope.spawn(move || {
                let target = family(&db, [MIXED, SEPARATE, INLINE][usize::from(thread) % 3]);
                for number in 0..300_u32 {
                    let sync = number % 50 == 0;
                    let (key, value) = (format!("{thread}/{number}"), vec![thread; number as usize * 4]);
                    must("putting", db.put_cf(&target, key, value, &WriteOptions { sync, disable_wal: false }));
                }
            });
        }
    });
    for thread in 0..6_u8 {
        let contents = expected.entry([MIXED, SEPARATE, INLINE][usize::from(thread) % 3].to_owned()).or_default();
        let pairs = (0..300).map(|number| (format!("{thread}/{number}").into_bytes(), vec![thread; number * 4]));
        contents.extend(pairs);
    }
    assert_esker_holds(&db, &expected);
    must("closing", db.close());
    assert_rocksdb_reads(&store, &expected);
}

#[test]
fn rocksdb_reads_a_store_that_was_never_flushed() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store, &workload::options(Compression::Zstd, ChecksumKind::Crc32c));
    let mut numbers = Numbers::new(3);
    workload::write(&db, &mut expected, &mut numbers, 20);
    must("closing", db.close());
    ldb::assert_holds(&store, &expected);
}

/// Goal: a checkpoint and a backup are whole stores to RocksDB's tools, made while the store takes writes, whatever is separated when.
#[test]
fn rocksdb_reads_checkpoints_and_backups() {
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let mut options = workload::options(Compression::Lz4, ChecksumKind::Xxh3);
        options.families.values_mut().filter(|family| family.separation != Separation::Off).for_each(|family| {
            family.separation = separation;
        });
        let (db, mut expected) = create(&store, &options);
        let mut numbers = Numbers::new(21);
        fill(&db, &mut expected, &mut numbers);
        let (checkpoint, backup) = (directory.path().join("checkpoint"), directory.path().join("backup"));
        must("backing up", db.backup(&backup, &mut |_| ()));
        workload::write(&db, &mut expected, &mut numbers, 40);
        must("making a checkpoint", db.checkpoint(&checkpoint));
        must("backing up again", db.backup(&backup, &mut |_| ()));
        let at_that_moment = expected.clone();
        workload::write(&db, &mut expected, &mut numbers, 200);
        workload::compact(&db);
        for copy in [&checkpoint, &backup] {
            assert_rocksdb_reads(copy, &at_that_moment);
            // What RocksDB writes into a copy is the copy's.
            ldb::put(copy, MIXED, b"by ldb", b"a value");
            let mut with_that = at_that_moment.clone();
            with_that.entry(MIXED.into()).or_default().insert(b"by ldb".into(), b"a value".into());
            let opened = must("opening the copy", Db::open(copy, Options::default()));
            assert_esker_holds(&opened, &with_that);
            assert_esker_finds_no_damage(&opened);
        }
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}

/// Goal: what a repair makes of tables, blob files and logs alone is a store to RocksDB's tools.
#[test]
fn rocksdb_reads_what_a_repair_made() {
    for is_lost in [false, true] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let (db, mut expected) = create(&store, &workload::options(Compression::Lz4, ChecksumKind::Xxh3));
        let mut numbers = Numbers::new(31);
        fill(&db, &mut expected, &mut numbers);
        workload::write(&db, &mut expected, &mut numbers, 20);
        must("closing", db.close());
        if is_lost {
            let is_manifest = |name: &String| name.starts_with("MANIFEST") || name == "CURRENT";
            for name in directory::names(&store).iter().filter(|name| is_manifest(name)) {
                must("removing", std::fs::remove_file(store.join(name)));
            }
        }
        let done = must("repairing", Db::repair(&store, Options::default()));
        assert_eq!((done.had_manifest, done.lost_values + done.lost_blocks), (!is_lost, 0), "{done:?}");
        assert_rocksdb_reads(&store, &expected);
        ldb::put(&store, MIXED, b"by ldb", b"a value");
        expected.entry(MIXED.into()).or_default().insert(b"by ldb".into(), b"a value".into());
        let db = must("opening", Db::open(&store, Options::default()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}

#[test]
fn rocksdb_reads_an_empty_store() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, expected) = create(&store, &workload::options(Compression::Lz4, ChecksumKind::Xxh3));
    must("closing", db.close());
    ldb::assert_holds(&store, &expected);
    ldb::put(&store, SEPARATE, b"key", b"value");
    let db = must("reopening", Db::open(&store, Options::default()));
    let got = must("getting", db.get_cf(&family(&db, SEPARATE), b"key", &esker::ReadOptions::default()));
    assert_eq!(got.as_deref(), Some(b"value".as_slice()));
}

#[test]
fn rocksdb_reads_the_store_after_every_one_of_five_openings() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let options = workload::options(Compression::Lz4, ChecksumKind::Xxh3);
    let (db, mut expected) = create(&store, &options);
    let mut numbers = Numbers::new(5);
    fill(&db, &mut expected, &mut numbers);
    must("closing", db.close());
    assert_rocksdb_reads(&store, &expected);
    for opening in 0..5 {
        // By turns: everything left in the log, some of it, none of it; with the options given, and with those found.
        let options = if opening % 2 == 0 { options.clone() } else { Options::default() };
        let db = must("reopening", Db::open(&store, options));
        assert_esker_holds(&db, &expected);
        workload::write(&db, &mut expected, &mut numbers, 60);
        if opening % 3 > 0 {
            must("flushing", db.flush());
        }
        if opening % 3 == 1 {
            workload::write(&db, &mut expected, &mut numbers, 10);
        }
        must("closing", db.close());
        assert_rocksdb_reads(&store, &expected);
    }
}

#[test]
fn a_dropped_column_family_is_gone_for_rocksdb_and_a_new_one_of_its_name_is_empty() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let options = workload::options(Compression::Snappy, ChecksumKind::Xxh3);
    let (db, mut expected) = create(&store, &options);
    fill(&db, &mut expected, &mut Numbers::new(8));
    must("dropping", db.drop_column_family(&family(&db, SEPARATE)));
    expected.remove(SEPARATE);
    must("closing", db.close());
    assert_rocksdb_reads(&store, &expected);

    let db = must("reopening", Db::open(&store, options.clone()));
    must("creating it again", db.create_column_family(SEPARATE, options.families[SEPARATE].clone()));
    expected.insert(SEPARATE.into(), Contents::new());
    must("closing", db.close());
    assert_rocksdb_reads(&store, &expected);
}

#[test]
fn db_bench_finds_every_key_that_esker_wrote_and_overwrites_them() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let mut options = workload::options(Compression::Lz4, ChecksumKind::Xxh3);
    options.families.retain(|name, _| name == MIXED);
    let db = must("creating a store", Db::open(&store, options));
    let mut expected: Families = [(MIXED.to_owned(), Contents::new())].into();
    // db_bench writes keys of 16 bytes only, so these have 16.
    for number in 0..2000_u32 {
        let key = format!("{number:016}").into_bytes();
        let value = vec![number as u8; 100 + number as usize];
        must("putting", db.put(&key, &value));
        expected.entry(MIXED.into()).or_default().insert(key, value);
    }
    must("flushing", db.flush());
    workload::compact(&db);
    must("closing", db.close());
    db_bench::assert_finds_every_key(&store, 2000, Opening::Writable);
    ldb::assert_holds(&store, &expected);

    let arguments = ["--use_existing_db=1", "--use_existing_keys=1", "--benchmarks=overwrite,compact", "--seed=5"];
    db_bench::db_bench(&store, &arguments);
    let changed = ldb::scan_all(&store);
    assert_ne!(changed, expected, "db_bench overwrote nothing");
    assert_eq!(changed[MIXED].len(), 2000);
    let db = must("reopening", Db::open(&store, Options::default()));
    assert_esker_holds(&db, &changed);
    assert_esker_finds_no_damage(&db);
}

#[test]
fn rocksdb_takes_a_checkpoint_and_a_backup_of_a_store_that_esker_wrote() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store, &workload::options(Compression::Lz4, ChecksumKind::Xxh3));
    fill(&db, &mut expected, &mut Numbers::new(21));
    must("closing", db.close());
    let [checkpoint, backup, restored] = ["checkpoint", "backup", "restored"].map(|name| directory.path().join(name));
    ldb::ldb(&store, &["checkpoint", &format!("--checkpoint_dir={}", checkpoint.display())]);
    ldb::assert_holds(&checkpoint, &expected);
    ldb::ldb(&store, &["backup", &format!("--backup_dir={}", backup.display())]);
    ldb::ldb(&restored, &["restore", &format!("--backup_dir={}", backup.display())]);
    ldb::assert_holds(&restored, &expected);
    for copy in [&checkpoint, &restored, &store] {
        let db = must("opening", Db::open(copy, Options::default()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}

#[test]
fn damage_that_is_put_into_a_store_of_eskers_is_seen_by_these_very_checks() {
    let directory = must("making a directory", tempfile::tempdir());
    let store = directory.path().join("store");
    let (db, mut expected) = create(&store, &workload::options(Compression::None, ChecksumKind::Xxh3));
    fill(&db, &mut expected, &mut Numbers::new(34));
    must("closing", db.close());
    let table = directory::filled(&store, ".sst").remove(0);
    let path = store.join(table);
    let mut raw = must("reading a table", std::fs::read(&path));
    raw[20] ^= 1;
    must("damaging a table", std::fs::write(&path, raw));

    let file = format!("--file={}", path.display());
    let outcome = program::run("sst_dump", &[file, "--command=verify".into(), "--verify_checksum".into()], "");
    assert!(outcome.stderr.contains("is corrupted"), "sst_dump verify saw nothing: {outcome:?}");
    let caught = std::panic::catch_unwind(|| sst_dump::assert_tables_are_sound(&store));
    assert!(caught.is_err(), "the check accepted a damaged table");
    let mut fewer = expected.clone();
    fewer.entry(MIXED.into()).or_default().pop_first();
    let caught = std::panic::catch_unwind(|| ldb::assert_holds(&store, &fewer));
    assert!(caught.is_err(), "the comparison accepted a pair too many");
}

/// Goal: RocksDB reads what reclaim leaves: values moved to other blob files under their old keys, and a family that fell
/// back to values in tables, which it opens as one without blob files.
#[test]
fn rocksdb_reads_what_reclaim_has_moved() {
    // Records are moved as they are packed: one that packs stands for all.
    for compression in [Compression::None, Compression::Lz4] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let options =
            Options { reclaim_mode: ReclaimMode::Manual, ..workload::options(compression, ChecksumKind::Xxh3) };
        let (db, mut expected) = create(&store, &options);
        let mut numbers = Numbers::new(5);
        for _ in 0..3 {
            fill(&db, &mut expected, &mut numbers);
            workload::change(&db, &mut expected, &mut numbers);
        }
        workload::compact(&db);
        let mut passes = 0;
        for name in [MIXED, SEPARATE] {
            let reclaimed = must("reclaiming", db.reclaim(&family(&db, name), 0.0));
            passes += reclaimed.passes;
        }
        assert!(passes > 0, "nothing was moved, so nothing is shown");
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
        must("closing", db.close());
        assert_rocksdb_reads(&store, &expected);

        let db = must("reopening", Db::open(&store, Options::default()));
        for name in [MIXED, SEPARATE] {
            must("falling back", db.set_separation(&family(&db, name), Separation::FallBack));
        }
        workload::compact(&db);
        must("closing", db.close());
        assert_eq!(directory::count(&store, ".blob"), 0, "{:?}", directory::names(&store));
        assert_rocksdb_reads(&store, &expected);
        // RocksDB compacts it, by the options that Esker left but for what ldb has flags for, and makes no blob file either.
        ldb::ldb(&store, &["--try_load_options", &format!("--column_family={SEPARATE}"), "compact"]);
        assert_eq!(directory::count(&store, ".blob"), 0, "{:?}", directory::names(&store));
        let db = must("reopening", Db::open(&store, Options::default()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}

/// Goal: holes that reclaim made in blob files are nothing to RocksDB: it reads every value and rewrites them all; and walks the files
/// from front to back past dead ones, where holes lie within values.
#[test]
fn rocksdb_reads_blob_files_with_holes() {
    for holes_within_values in [false, true] {
        let directory = must("making a directory", tempfile::tempdir());
        let store = directory.path().join("store");
        let options = workload::options(Compression::None, ChecksumKind::Xxh3);
        let options = Options { background_jobs: 0, punch_holes: true, holes_within_values, ..options };
        let (db, mut expected) = create(&store, &Options { reclaim_mode: ReclaimMode::Manual, ..options.clone() });
        let mut numbers = Numbers::new(3);
        let target = family(&db, SEPARATE);
        for round in 0..2_usize {
            for n in (0..100_usize).step_by(1 + round) {
                let (key, value) = (format!("large/{n:03}").into_bytes(), numbers.value(20_000));
                must("putting", db.put_cf(&target, &key, &value, &WriteOptions::default()));
                expected.entry(SEPARATE.into()).or_default().insert(key, value);
            }
            workload::compact(&db);
        }
        // A handle of a closed store keeps holes out.
        drop(target);
        must("closing", db.close());
        let db = must("reopening", Db::open(&store, options));
        must("flushing", db.flush());
        let stats = db.stats();
        assert!(stats.punched_bytes > 100_000, "no hole was made: does the file system have them? {stats:?}");
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
        must("closing", db.close());
        ldb::assert_holds(&store, &expected);
        if holes_within_values {
            let dump = ldb::ldb(&store, &["dump_live_files"]);
            let records = dump.matches("Read record with offset").count();
            assert!(records >= 150 && !dump.contains("Corruption"), "{records} records, dead ones too, in:\n{dump}");
        }
        ldb::ldb(&store, &[&format!("--column_family={SEPARATE}"), "compact"]);
        ldb::assert_holds(&store, &expected);
        let db = must("reopening", Db::open(&store, Options::default()));
        assert_esker_holds(&db, &expected);
        assert_esker_finds_no_damage(&db);
    }
}
