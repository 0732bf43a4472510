//! Many threads at once: what they promise each other, and what a crash in their midst leaves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use esker::env::sim::{SimDisk, Survivors};
use esker::{
    ColumnFamily, Db, EventKind, FamilyOptions, JobKind, Listener, Options, ReadOptions, WriteBatch, WriteOptions,
};

const WRITERS: u64 = 4;

fn options() -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 3,
        min_blob_size: 256,
        blob_file_bytes: 64 << 10,
        target_file_bytes: 16 << 10,
        level_base_bytes: 32 << 10,
        level_multiplier: 3,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 3,
        families: [("default".to_owned(), family.clone()), ("second".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// Batch `round` of a writer: the same counter under one key of each family, and a value that is only its.
fn batch(second: &ColumnFamily, writer: u64, round: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    let counter = round.to_be_bytes();
    batch.put(format!("counter{writer}"), counter).unwrap();
    batch.put_cf(second, format!("counter{writer}"), counter).unwrap();
    batch.put(format!("value{writer}/{round:06}"), value(writer, round)).unwrap();
    batch
}

fn value(writer: u64, round: u64) -> Vec<u8> {
    vec![(writer * 31 + round) as u8; (round as usize * 97) % 600]
}

fn counter(db: &Db, family: &ColumnFamily, writer: u64, options: &ReadOptions) -> u64 {
    let found = db.get_cf(family, format!("counter{writer}"), options).unwrap();
    found.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Whether the store holds, of each writer, the first so many batches whole and nothing else; returns how many.
fn check_state(db: &Db, what: &str) -> Vec<u64> {
    let second = db.column_family("second").unwrap();
    let snapshot = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    let mut rounds = Vec::new();
    for writer in 0..WRITERS {
        let count = counter(db, &db.default_column_family(), writer, &snapshot);
        assert_eq!(count, counter(db, &second, writer, &snapshot), "{what}: a batch of writer {writer} came apart");
        let mut iterator = db.iter_cf(&db.default_column_family(), &snapshot).unwrap();
        let prefix = format!("value{writer}/");
        iterator.seek(&prefix).unwrap();
        for round in 1..=count {
            assert_eq!(iterator.key(), format!("{prefix}{round:06}").as_bytes(), "{what}: writer {writer} has {count}");
            assert_eq!(iterator.value().unwrap(), value(writer, round)[..], "{what}");
            iterator.next().unwrap();
        }
        assert!(!iterator.valid() || !iterator.key().starts_with(prefix.as_bytes()), "{what}: more than {count}");
        rounds.push(count);
    }
    rounds
}

/// Goal: while writers, flushes and compactions run, every snapshot shows each batch whole and each writer's batches
/// in order; a machine that dies at any such moment keeps every synced batch, and every process death every batch.
/// Method: crash images are taken while all run, without stopping them.
#[test]
fn snapshots_and_crashes_among_running_threads_show_whole_batches() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
    let second = db.create_column_family("second", options().families["second"].clone()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let durable: Arc<Vec<AtomicU64>> = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, second, stop) = (db.clone(), second.clone(), stop.clone());
            let (durable, acknowledged) = (durable.clone(), acknowledged.clone());
            std::thread::spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) && round < 3000 {
                    round += 1;
                    let sync = round % (writer + 2) == 0;
                    let options = WriteOptions { sync, ..WriteOptions::default() };
                    db.write(batch(&second, writer, round), &options).unwrap();
                    acknowledged[writer as usize].store(round, Ordering::Release);
                    if sync {
                        durable[writer as usize].store(round, Ordering::Release);
                    }
                }
            })
        })
        .collect();
    let promised = |counts: &[AtomicU64]| counts.iter().map(|count| count.load(Ordering::Acquire)).collect::<Vec<_>>();
    for image in 0..25u64 {
        check_state(&db, "running");
        let least = promised(if image % 5 == 4 { &acknowledged } else { &durable });
        let (crashed, what) = match image % 5 {
            0 => (disk.after_power_loss(Survivors::Nothing), "nothing unsynced survives"),
            1 => (disk.after_power_loss(Survivors::Everything), "everything survives"),
            4 => (disk.after_process_death(), "the process dies"),
            _ => (disk.after_power_loss(Survivors::Sample { seed: image }), "a sample survives"),
        };
        let reopened = Db::open_with_env("/store", options(), crashed.env()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = check_state(&reopened, what);
        assert!(found.iter().zip(&least).all(|(found, least)| found >= least), "{what}: {found:?} of {least:?}");
        let check = reopened.check(&mut |_| {}).unwrap();
        assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    }
    stop.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(check_state(&db, "at the end"), promised(&acknowledged));
    let stats = db.stats();
    assert!(stats.flushes > 2 && stats.compactions > 0, "{stats:?}");
    db.close().unwrap();
}

/// Lets only so many flushes begin as it was told to.
#[derive(Debug, Default)]
struct Gate {
    /// How many have come, and how many may go.
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Gate {
    fn come(&self) {
        let mut counts = self.counts.lock().unwrap();
        counts.0 += 1;
        let number = counts.0;
        self.changed.notify_all();
        drop(self.changed.wait_while(counts, |(_, may_go)| *may_go < number).unwrap());
    }

    fn let_through(&self, count: u64) {
        self.counts.lock().unwrap().1 += count;
        self.changed.notify_all();
    }

    fn wait_for_arrival(&self, number: u64) {
        let counts = self.counts.lock().unwrap();
        drop(self.changed.wait_while(counts, |(come, _)| *come < number).unwrap());
    }
}

/// Goal: once a flush is done, the logs of the memtables that were sealed meanwhile are still needed: the death of the
/// process loses nothing of them.
/// Method: the first flush is held up until three more memtables are sealed, and the second while the image is taken.
#[test]
fn memtables_sealed_during_a_flush_keep_their_logs() {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 8,
        level0_compaction_trigger: 100,
        level0_slowdown_trigger: 200,
        level0_stop_trigger: 300,
        ..FamilyOptions::default()
    };
    let options = Options { background_jobs: 1, families: [("default".to_owned(), family)].into(), ..options() };
    let disk = SimDisk::new();
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let gated = Listener::new(move |event| {
        if matches!(event.kind, EventKind::JobBegan(job) if job.kind == JobKind::Flush) {
            passed.come();
        }
    });
    let db = Db::open_with_env("/store", Options { listeners: vec![gated], ..options.clone() }, disk.env()).unwrap();
    let mut count = 0u64;
    let mut write_until_sealed = |wanted: usize| {
        while db.stats().families[0].immutable_memtables < wanted {
            db.put(count.to_be_bytes(), value(1, count)).unwrap();
            count += 1;
        }
        count
    };
    write_until_sealed(1);
    gate.wait_for_arrival(1);
    let count = write_until_sealed(4);
    gate.let_through(1);
    gate.wait_for_arrival(2);
    let crashed = disk.after_process_death();
    gate.let_through(1000);
    db.close().unwrap();
    let reopened = Db::open_with_env("/store", Options { background_jobs: 0, ..options }, crashed.env()).unwrap();
    let keys: Vec<_> = reopened.iter().unwrap().entries().map(|entry| entry.unwrap().0).collect();
    assert!(keys == (0..count).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>(), "{} of {count}", keys.len());
}

/// Goal: however many threads flush, each memtable becomes one table: nothing is in two of them.
#[test]
fn each_memtable_is_flushed_once() {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 8,
        level0_compaction_trigger: 100,
        level0_slowdown_trigger: 200,
        level0_stop_trigger: 300,
        ..FamilyOptions::default()
    };
    let options = Options { background_jobs: 4, families: [("default".to_owned(), family)].into(), ..options() };
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 0..4000u64 {
        db.put(n.to_be_bytes(), value(2, n)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.stats().families[0].entries, 4000);
    db.close().unwrap();
}

/// Goal: a large batch becomes visible at one moment: a reader who sees any of it sees all of it, by get and by scan.
/// Method: every batch sets all keys to the same value; readers look at the last key first, as it is inserted last.
#[test]
fn a_large_batch_is_seen_whole_or_not_at_all() {
    const KEY_COUNT: u32 = 3000;
    let disk = SimDisk::new();
    let family = FamilyOptions { write_buffer_bytes: 8 << 20, ..FamilyOptions::default() };
    let options = Options { families: [("default".to_owned(), family)].into(), ..options() };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || {
            for round in 1..=60u64 {
                let mut batch = WriteBatch::new();
                (0..KEY_COUNT).for_each(|key| batch.put(key.to_be_bytes(), round.to_be_bytes()).unwrap());
                db.write(batch, &WriteOptions::default()).unwrap();
            }
        })
    };
    let family = db.default_column_family();
    let mut seen = 0;
    while seen < 60 {
        let snapshot = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
        let at = |key: u32| {
            let found = db.get_cf(&family, key.to_be_bytes(), &snapshot).unwrap();
            found.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
        };
        let (last, middle, first) = (at(KEY_COUNT - 1), at(KEY_COUNT / 2), at(0));
        assert_eq!((last, middle), (first, first), "last, middle and first key of one batch");
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_last().unwrap();
        let last = iterator.valid().then(|| iterator.value().unwrap().to_vec());
        iterator.seek_to_first().unwrap();
        assert_eq!(iterator.valid().then(|| iterator.value().unwrap().to_vec()), last, "both ends of one scan");
        assert!(first >= seen, "time goes forward");
        seen = first;
    }
    writer.join().unwrap();
    db.close().unwrap();
}

/// Goal: whoever inserts a batch, its leader (small ones) or its own thread (large ones, beside the next group), a write that returned is read, and
/// nobody waits forever for one before it; all are there in the end.
/// Method: every writer's batches are of all sizes in turn, so that groups of all mixtures follow each other; some are synced.
#[test]
fn batches_of_all_sizes_beside_each_other_are_read_when_their_write_returns() {
    const SIZES: [usize; 4] = [10, 100 << 10, 300, 40 << 10];
    const ROUNDS: usize = 80;
    let disk = SimDisk::new();
    let mut options = options();
    for family in options.families.values_mut() {
        (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 4 << 20);
    }
    let db = Db::open_with_env("/db", options.clone(), disk.env()).unwrap();
    let size = |writer: usize, round: usize| SIZES[(writer + round) % SIZES.len()];
    let fill = |writer: usize, round: usize| (writer * 31 + round) as u8;
    std::thread::scope(|scope| {
        for writer in 0..6 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("{writer}"), vec![fill(writer, round); size(writer, round)]).unwrap();
                    batch.put(format!("{writer}/{round}"), (round as u64).to_be_bytes()).unwrap();
                    let sync = round % 7 == writer;
                    db.write(batch, &WriteOptions { sync, ..WriteOptions::default() }).unwrap();
                    let found = db.get(format!("{writer}")).unwrap().expect("a write that returned is read");
                    assert_eq!((found.len(), found[0]), (size(writer, round), fill(writer, round)));
                }
            });
        }
    });
    let check = |db: &Db| {
        for writer in 0..6 {
            let found = db.get(format!("{writer}")).unwrap().unwrap();
            assert_eq!((found.len(), found[0]), (size(writer, ROUNDS - 1), fill(writer, ROUNDS - 1)));
            for round in 0..ROUNDS {
                assert!(db.exists(format!("{writer}/{round}")).unwrap());
            }
        }
    };
    check(&db);
    db.close().unwrap();
    check(&Db::open_with_env("/db", options, disk.env()).unwrap());
}

/// Goal: automatic and manual compactions share the work and never take the same table twice, nor fail each other.
#[test]
fn compactions_do_not_get_into_each_others_way() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", Options { background_jobs: 4, ..options() }, disk.env()).unwrap();
    let family = db.default_column_family();
    let stop = Arc::new(AtomicBool::new(false));
    let compactor = {
        let (db, stop) = (db.clone(), stop.clone());
        std::thread::spawn(move || {
            let family = db.default_column_family();
            while !stop.load(Ordering::Relaxed) {
                db.compact_range(&family, None, None).unwrap();
            }
        })
    };
    // On a busy machine writers may be far ahead of whoever compacts.
    let enough = |n: u64| n >= 6000 && db.stats().compactions > 10;
    for n in (0..1_000_000u64).take_while(|&n| !enough(n)) {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2000;
        db.put(key.to_be_bytes(), value(0, n)).unwrap();
        assert!(db.stats().background_error.is_none(), "{:?}", db.stats().background_error);
    }
    stop.store(true, Ordering::Relaxed);
    compactor.join().unwrap();
    db.compact_range(&family, None, None).unwrap();
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
    assert!(db.stats().compactions > 10);
    db.close().unwrap();
}

/// Goal: closing, dropping a family and flushing while others write ends in an answer for everyone, never in a wait.
#[test]
fn close_and_drop_among_running_writers_answer_everyone() {
    for round in 0..20u64 {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
        let second = db.create_column_family("second", options().families["second"].clone()).unwrap();
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (db, second) = (db.clone(), second.clone());
                std::thread::spawn(move || {
                    for n in 0..2000u64 {
                        let written = db.put_cf(&second, n.to_be_bytes(), value(writer, n), &WriteOptions::default());
                        let flushed = if n % 100 == 99 { db.flush() } else { Ok(()) };
                        if let Err(error) = written.and(flushed) {
                            use esker::ErrorKind::{Closed, InvalidArgument};
                            assert!(matches!(error.kind(), Closed | InvalidArgument), "{error}");
                            return n;
                        }
                    }
                    2000
                })
            })
            .collect();
        while db.stats().writes < round * 40 {
            std::thread::yield_now();
        }
        if round % 2 == 0 {
            db.drop_column_family(&second).unwrap();
        } else {
            db.close().unwrap();
        }
        let reached: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(reached.len(), 3);
    }
}

/// Goal: a write that was acknowledged while the store closed survives the close, without the log too; one that comes
/// too late is refused.
#[test]
fn writes_beside_a_close_are_kept_or_refused() {
    for round in 0..60u64 {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
        let unlogged = WriteOptions { disable_wal: round % 2 == 0, ..WriteOptions::default() };
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let db = db.clone();
                std::thread::spawn(move || {
                    let mut count = 0u64;
                    let family = db.default_column_family();
                    while db.put_cf(&family, format!("{writer}/{count:06}"), "v", &unlogged).is_ok() {
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        while db.stats().writes < round * 20 {
            std::thread::yield_now();
        }
        db.close().unwrap();
        let counts: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        let db = Db::open_with_env("/store", options(), disk.env()).unwrap();
        for (writer, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let last = format!("{writer}/{:06}", count - 1);
            assert!(db.get(&last).unwrap().is_some(), "round {round}: acknowledged {last} is lost");
        }
    }
}
