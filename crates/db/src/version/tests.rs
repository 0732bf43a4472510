use esker_env::sim::{Fault, SimDisk};
use esker_format::rocksdb::order::Order;

use super::testing::{install, table};
use crate::options::{Options, ReclaimMode};
use crate::{Db, FamilyOptions, ReadOptions};

fn open(disk: &SimDisk) -> Db {
    let families =
        [("default".to_owned(), FamilyOptions { level0_compaction_trigger: 20, ..FamilyOptions::default() })];
    let (families, reclaim_mode) = (families.into(), ReclaimMode::Off);
    let options = Options { create_if_missing: true, background_jobs: 0, reclaim_mode, families, ..Options::default() };
    Db::open_with_env("/db", options, disk.env()).unwrap()
}

fn value(db: &Db, key: &str) -> Vec<u8> {
    let found = db.get(key).unwrap().unwrap().to_vec();
    let many = db.multi_get([key]).unwrap().pop().unwrap().unwrap();
    assert_eq!(many.as_deref(), Some(&*found));
    let mut iter = db.iter_cf(&db.default_column_family(), &ReadOptions::default()).unwrap();
    iter.seek(key).unwrap();
    assert_eq!((iter.key(), &*iter.value().unwrap()), (key.as_bytes(), &*found));
    found
}

fn epochs(db: &Db) -> Vec<(usize, u64)> {
    let view = db.store().family(0).unwrap().view.load_full();
    view.version.tables().map(|(level, table)| (level, table.epoch())).collect()
}

/// Goal (V4): RocksDB merges tables within level 0 so that one has a newer entry than a table above it. Its epochs say which is newer, however
/// the store goes on.
#[test]
fn a_table_that_rocksdb_merged_within_level_0_hides_nothing_newer() {
    for reopens in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk);
        let store = db.store();
        // As if files with "y" and "z" had been taken in while "new" was in memory, and merged with the table of "old".
        let merged = table(store, 1, &[("k", 1, Some("old")), ("y", 3, Some("-")), ("z", 4, Some("-"))]);
        let newer = table(store, 4, &[("k", 2, Some("new"))]);
        install(&db, vec![(0, merged), (0, newer)], 4);
        assert_eq!(value(&db, "k"), b"new");
        db.close().unwrap();
        let mut db = open(&disk);
        db.put("l", "1").unwrap();
        db.flush().unwrap();
        assert_eq!(epochs(&db), [(0, 5), (0, 4), (0, 1)], "RocksDB goes by epochs only where all tables have one");
        if reopens {
            db.close().unwrap();
            db = open(&disk);
        }
        assert_eq!(value(&db, "k"), b"new");
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_eq!((value(&db, "k"), value(&db, "z")), (b"new".to_vec(), b"-".to_vec()));
        assert!(epochs(&db).iter().all(|(level, epoch)| *level > 0 && *epoch == 1), "{:?}", epochs(&db));
    }
}

/// Goal (V4): a repair leaves level 0 in the order that the manifest says, whatever it has to write anew.
#[test]
fn a_repair_keeps_the_order_of_level_0() {
    for damages in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk);
        let merged = table(db.store(), 1, &[("k", 1, Some("old")), ("y", 3, Some("-")), ("z", 4, Some("-"))]);
        let newer = table(db.store(), 4, &[("k", 2, Some("new"))]);
        let path = merged.table.path().to_owned();
        install(&db, vec![(0, merged), (0, newer)], 4);
        db.close().unwrap();
        let db = open(&disk);
        db.put("l", "logged").unwrap();
        drop(db);
        let disk = disk.after_process_death();
        if damages {
            // The bloom filter or an index, after the only block: what is salvaged is written anew.
            let at = disk.file_bytes(&path).unwrap().len() as u64 - 100;
            assert!(disk.flip_bit(&path, at * 8));
        }
        let report = Db::repair_with_env("/db", Options::default(), disk.env()).unwrap();
        assert_eq!(report.damage.is_empty(), !damages, "{report:?}");
        let db = open(&disk);
        assert_eq!((value(&db, "k"), value(&db, "l")), (b"new".to_vec(), b"logged".to_vec()));
        let epochs: Vec<u64> = epochs(&db).iter().map(|(_, epoch)| *epoch).collect();
        assert_eq!(epochs, [5, 4, 1], "{damages}");
    }
}

/// Goal (V4): a log that is replayed is newer than all tables.
#[test]
fn what_only_the_log_held_is_newer_than_what_rocksdb_merged() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let store = db.store();
    let merged = table(store, 3, &[("k", 1, Some("old")), ("z", 9, Some("-"))]);
    install(&db, vec![(0, merged)], 1);
    db.put("k", "new").unwrap();
    let after = disk.after_process_death();
    drop(db);
    let db = open(&after);
    assert_eq!(epochs(&db), [(0, 4), (0, 3)]);
    assert_eq!(value(&db, "k"), b"new");
}

/// Goal (V4): a store whose tables have no epochs, or not all, is ordered by sequence numbers.
#[test]
fn without_epochs_the_newest_entry_tells() {
    for epoch in [0, 7] {
        let disk = SimDisk::new();
        let db = open(&disk);
        let older = table(db.store(), epoch, &[("k", 1, Some("old")), ("l", 2, Some("-"))]);
        let newer = table(db.store(), 0, &[("k", 3, Some("new"))]);
        // Not the store's own doing, which would give them one.
        let edit = super::Edit { added: vec![(0, newer), (0, older)], ..super::Edit::default() };
        let version = super::Version::empty(Order::BYTEWISE).apply(&edit).unwrap();
        let order: Vec<u64> = version.level(0).iter().map(|table| table.meta.largest_sequence.get()).collect();
        assert_eq!(order, [3, 2]);
    }
}

/// Goal: a manifest that cannot be made the current one, for want of room say, costs nothing: the one before goes on.
#[test]
fn a_manifest_that_cannot_become_current_leaves_the_one_before() {
    let life = |disk: &SimDisk| {
        let family = FamilyOptions { write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            manifest_bytes_max: 4096,
            families,
            ..Options::default()
        };
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        let written = (0..60u8).try_for_each(|n| db.put([n], [n; 20]).and_then(|()| db.flush()));
        (db, written)
    };
    let healthy = SimDisk::new();
    healthy.set_tracing(true);
    life(&healthy).1.unwrap();
    let trace = healthy.trace();
    let lines = trace.iter().map(|line| line.split(' ').collect::<Vec<_>>()).enumerate();
    // Those of the store's beginning come first.
    let temporary: Vec<u64> = lines
        .filter(|(at, words)| *at > 100 && words[2].contains("dbtmp"))
        .map(|(_, words)| words[0].parse().unwrap())
        .collect();
    assert!(temporary.len() >= 4, "made, written, synced and renamed: {trace:#?}");
    for n in temporary {
        let disk = SimDisk::new();
        disk.fail_at(n, Fault::NoSpace);
        let (db, written) = life(&disk);
        written.unwrap_or_else(|error| panic!("operation {n}: {error}"));
        db.put("key", "value").unwrap();
        let manifests = disk.paths().iter().filter(|path| path.to_string_lossy().contains("MANIFEST")).count();
        assert_eq!(manifests, 1, "operation {n}");
        drop(db);
        let (db, _) = life(&disk.after_process_death());
        assert!((0..60u8).all(|n| db.get([n]).unwrap().as_deref() == Some(&[n; 20][..])) && db.exists("key").unwrap());
    }
}

/// Goal: a state larger than the size at which a manifest is begun anew is not written whole with every edit, nor is an attempt that failed
/// made again with the next.
#[test]
fn a_manifest_is_begun_anew_only_after_as_much_was_appended() {
    for fails in [false, true] {
        let disk = SimDisk::new();
        let family = FamilyOptions {
            write_buffer_bytes: 64 << 10,
            level0_compaction_trigger: 1000,
            level0_slowdown_trigger: 1001,
            level0_stop_trigger: 1002,
            ..FamilyOptions::default()
        };
        let families = [("default".to_owned(), family)].into();
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            manifest_bytes_max: 4096,
            families,
            ..Options::default()
        };
        let db = Db::open_with_env("/db", options, disk.env()).unwrap();
        if fails {
            // None can be made where there is one already.
            let taken = (100..1000).map(|number| format!("/db/MANIFEST-{number:06}"));
            taken.for_each(|path| disk.overwrite(path.as_ref(), vec![0]));
        }
        disk.set_tracing(true);
        for n in 0..200u8 {
            db.put([n], [n]).unwrap();
            db.flush().unwrap();
        }
        let trace = disk.trace();
        let begun = trace.iter().filter(|line| line.contains(" create ") && line.contains("MANIFEST")).count();
        assert!((1..=4).contains(&begun), "{fails}: {begun}");
        let (state, written) = (db.store().state_edits(0), db.store().counters.manifest_bytes.get());
        let state_bytes: usize = state
            .iter()
            .map(|edit| {
                let mut raw = Vec::new();
                edit.encode(&mut raw);
                raw.len()
            })
            .sum();
        assert!(state_bytes > 2 * 4096 && written < 6 * state_bytes as u64, "{fails}: {written} for {state_bytes}");
    }
}
