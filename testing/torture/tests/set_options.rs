//! Options of a family that change while its store is open.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{
    BlobPartition, ColumnFamily, CompactionFilter, Compression, Db, ErrorKind, FamilyOptions, FilterDecision, Options,
    Separation, StringAppendOperator, WriteOptions,
};
use esker_torture::hooked::{Call, Meanwhile};

fn options(family: FamilyOptions) -> Options {
    Options {
        create_if_missing: true,
        background_jobs: 0,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn assert_sound(db: &Db) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

fn value(n: u8) -> Vec<u8> {
    (0..3000u32).map(|at| (at / 7) as u8 ^ n).collect()
}

/// Goal: what was changed holds at once and after the next open, of whatever kind; what was refused or could not be written down changed nothing.
#[test]
fn a_change_is_whole_and_lasts_or_is_none() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(FamilyOptions::default()), disk.env()).unwrap();
    let family = db.default_column_family();
    db.set_options(&family, |options| {
        options.write_buffer_bytes = 96 << 10;
        options.min_blob_size = 1;
        options.compression = Compression::Zstd;
        options.level0_slowdown_trigger = 7;
        options.separation = Separation::AtWrite;
    })
    .unwrap();
    let is_changed = |family: &ColumnFamily| {
        let now = family.options();
        (now.write_buffer_bytes, now.min_blob_size, now.compression, now.level0_slowdown_trigger, now.separation)
            == (96 << 10, 1, Compression::Zstd, 7, Separation::AtWrite)
    };
    assert!(is_changed(&family) && family.separation() == Separation::AtWrite);

    type Change = fn(&mut FamilyOptions);
    let refused: [(&str, Change); 4] = [
        ("write_buffer_bytes", |options| options.write_buffer_bytes = 1),
        ("level0_stop_trigger", |options| options.level0_stop_trigger = 7),
        ("level_count", |options| options.level_count = 3),
        ("merge_operator", |options| options.merge_operator = Some(Arc::new(StringAppendOperator::default()))),
    ];
    for (name, change) in refused {
        let error = db.set_options(&family, change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(name), "{error}");
        assert!(is_changed(&family));
    }
    // Every call of it in turn, until there is none left to fail.
    let mut failures = 0;
    loop {
        disk.fail_at(disk.op_count() + failures, Fault::Eio);
        let done = db.set_options(&family, |options| options.min_blob_size = 5);
        disk.heal();
        match done {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
        assert!(is_changed(&family));
        failures += 1;
    }
    assert!(failures > 2, "{failures}");
    db.set_options(&family, |options| options.min_blob_size = 1).unwrap();

    let disk = disk.after_power_loss(Survivors::Nothing);
    let db = Db::open_with_env("/store", Options { background_jobs: 0, ..Options::default() }, disk.env()).unwrap();
    assert!(is_changed(&db.default_column_family()));

    let dropped = db.create_column_family("dropped", FamilyOptions::default()).unwrap();
    db.drop_column_family(&dropped).unwrap();
    let error = db.set_options(&dropped, |options| options.min_blob_size = 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    db.close().unwrap();
    let beside = Db::open_read_only_with_env("/store", Options::default(), disk.env()).unwrap();
    let error = beside.set_options(&beside.default_column_family(), |options| options.min_blob_size = 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}

/// Goal: wherever the machine dies in a change, the store has the options before or those after it, and after it once it was said to be done.
#[test]
fn a_death_in_a_change_leaves_one_or_the_other() {
    let left = SimDisk::new();
    let family = FamilyOptions { separation: Separation::AtWrite, min_blob_size: 100, ..FamilyOptions::default() };
    let db = Db::open_with_env("/store", options(family), left.env()).unwrap();
    db.put("a", value(1)).unwrap();
    db.close().unwrap();
    let open = |disk: &SimDisk| {
        let options = Options { background_jobs: 0, ..Options::default() };
        Db::open_with_env("/store", options, disk.env()).unwrap()
    };
    let (mut deaths, mut seen) = (0, [0; 2]);
    loop {
        let disk = left.after_process_death();
        let db = open(&disk);
        disk.die_after(disk.op_count() + deaths);
        let is_done = db.set_options(&db.default_column_family(), |options| options.min_blob_size = 77).is_ok();
        let is_over = !disk.is_dead();
        drop(db);
        let samples = (0..8).map(|seed| Survivors::Sample { seed });
        for survivors in [Survivors::Nothing, Survivors::Everything].into_iter().chain(samples) {
            let db = open(&disk.after_power_loss(survivors));
            let now = db.default_column_family().options();
            assert!(now.min_blob_size == 77 || (now.min_blob_size == 100 && !is_done), "{deaths}: {now:?}");
            assert_eq!(now.separation, Separation::AtWrite);
            assert_eq!(db.get("a").unwrap().as_deref(), Some(&*value(1)));
            seen[usize::from(now.min_blob_size == 77)] += 1;
        }
        if is_over {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 2 && seen.iter().all(|&seen| seen > 0), "{deaths} deaths, {seen:?}");
}

/// Goal: two that change options at once lose nothing of each other's, even if one does so between another's look and change.
#[test]
fn who_is_overtaken_begins_again() {
    let db = Db::open_with_env("/store", options(FamilyOptions::default()), SimDisk::new().env()).unwrap();
    let family = db.default_column_family();
    let seen = Mutex::new(Vec::new());
    db.set_options(&family, |options| {
        let is_first = seen.lock().unwrap().is_empty();
        if is_first {
            db.set_options(&family, |options| options.min_blob_size = 77).unwrap();
        }
        seen.lock().unwrap().push(options.min_blob_size);
        options.block_bytes = 512;
    })
    .unwrap();
    assert_eq!(*seen.lock().unwrap(), [4096, 77]);
    assert_eq!((family.options().min_blob_size, family.options().block_bytes), (77, 512));
}

/// Goal: who waits for a flush goes on once more memtables may wait for one: that is how an operator gets out of a stall.
#[test]
fn writers_go_on_when_they_may() {
    let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, write_buffer_count_max: 2, ..FamilyOptions::default() };
    let options = Options { background_jobs: 1, ..options(family) };
    let db = Db::open_with_env("/store", options, meanwhile.env(&disk)).unwrap();
    let (go_on, may_go_on) = channel::<()>();
    let is_table =
        |call: Call<'_>| matches!(call, Call::Create(path) if path.extension().is_some_and(|end| end == "sst"));
    meanwhile.before(is_table, move || may_go_on.recv().unwrap_or_default());
    let (writing, waited) = (db.clone(), Arc::new(OnceLock::new()));
    let (done, is_done) = channel();
    let stuck = waited.clone();
    let writer = std::thread::spawn(move || {
        (0..100u8).for_each(|n| writing.put([n], value(n)).unwrap());
        stuck.set(()).unwrap();
        done.send(()).unwrap();
    });
    // Two memtables are not enough for 300 KB, and the flush waits.
    while !meanwhile.is_done() {
        std::thread::yield_now();
    }
    (0..20_000).for_each(|_| std::thread::yield_now());
    assert!(waited.get().is_none());
    db.set_options(&db.default_column_family(), |options| options.write_buffer_count_max = 64).unwrap();
    let went_on = is_done.recv_timeout(Duration::from_secs(60));
    go_on.send(()).unwrap();
    writer.join().unwrap();
    went_on.unwrap();
    (0..100u8).for_each(|n| assert_eq!(db.get([n]).unwrap().as_deref(), Some(&*value(n))));
}

/// V6: a value that was packed before `blob_compression` changed, and comes to a file that was begun after that, is packed as that says; plain
/// ones, and those of a batch with others, too.
#[test]
fn values_packed_before_a_change_are_packed_as_their_file_says() {
    const KINDS: [Compression; 4] = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy];
    for before in KINDS {
        for after in KINDS.into_iter().filter(|after| *after != before) {
            let disk = SimDisk::new();
            let hook: Arc<OnceLock<(Db, ColumnFamily)>> = Arc::default();
            let inside = hook.clone();
            // Whoever packs asks for this in between.
            let partition = BlobPartition::new(move |key, _| {
                if let (b'c', Some((db, family))) = (key[0], inside.get()) {
                    db.set_options(family, |options| options.blob_compression = after).unwrap();
                }
                0
            });
            let family = FamilyOptions {
                separation: Separation::AtWrite,
                min_blob_size: 100,
                blob_compression: before,
                blob_partition: Some(partition),
                ..FamilyOptions::default()
            };
            let db = Db::open_with_env("/store", options(family), disk.env()).unwrap();
            assert!(hook.set((db.clone(), db.default_column_family())).is_ok());
            db.put(b"a", value(0)).unwrap();
            db.put(b"c", value(1)).unwrap();
            let mut batch = esker::WriteBatch::new();
            db.set_options(&db.default_column_family(), |options| options.blob_compression = before).unwrap();
            db.put(b"b", value(2)).unwrap();
            for (key, n) in [("b1", 3), ("c1", 4), ("d1", 5)] {
                batch.put(key, value(n)).unwrap();
            }
            db.write(batch, &WriteOptions { sync: true, ..WriteOptions::default() }).unwrap();
            db.put(b"d", value(6)).unwrap();
            let expected = [("a", 0), ("c", 1), ("b", 2), ("b1", 3), ("c1", 4), ("d1", 5), ("d", 6)];
            let assert_all = |db: &Db| {
                for (key, n) in expected {
                    assert_eq!(db.get(key).unwrap().as_deref(), Some(&*value(n)), "{before:?} {after:?} {key}");
                }
                assert_sound(db);
            };
            assert_all(&db);
            // Through the log, and through the flush.
            let survivor = disk.after_process_death();
            let replayed = Options { background_jobs: 0, ..Options::default() };
            assert_all(&Db::open_with_env("/store", replayed, survivor.env()).unwrap());
            db.flush().unwrap();
            assert_all(&db);
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            db.reclaim(&db.default_column_family(), 0.0).unwrap();
            assert_all(&db);
        }
    }
}

/// Goal: a period that is set while the store is open holds for the tables that are there.
#[test]
fn a_period_holds_for_what_is_there() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let filter = CompactionFilter::new(move |_| {
        *count.lock().unwrap() += 1;
        FilterDecision::Keep
    });
    let disk = SimDisk::new();
    let family = FamilyOptions { compaction_filter: Some(filter), ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let family = db.default_column_family();
    db.set_options(&family, |options| options.periodic_compaction_seconds = 60).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(*asked.lock().unwrap(), 0);
    disk.clock().advance(Duration::from_secs(1000));
    db.wait_for_compact().unwrap();
    assert_eq!(*asked.lock().unwrap(), 1);
}
