//! Wherever a reclaim dies, and whichever of its calls fails: the kinds that `moves` and `small` have no tests of their own for.

use std::sync::{Arc, Mutex};

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Db, ErrorKind, EventKind, JobKind, Listener, Options, ReadOptions, ReclaimMode};
use esker_torture::crash::{kill, may_end_writes, operations, power_losses};
use esker_torture::model::{Contents, forward};
use esker_torture::numbered::{assert_sound, contents, files, key, noise};

use super::{options, value};

/// A kind of reclaim, and a store that has work for it.
struct Kind {
    name: &'static str,
    job: JobKind,
    options: fn() -> Options,
    /// Fills a store, under other options if it must, and closes it.
    make: fn(&SimDisk) -> Contents,
    /// What comes before it, while nothing fails.
    begin: fn(&Db),
    run: fn(&Db) -> esker::Result<()>,
    /// Whether nothing is left to do for it.
    is_done: fn(&Db) -> bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "sweep",
        job: JobKind::Sweep,
        options: || Options { max_space_amp: 1.05, ..options(ReclaimMode::Auto) },
        make: garbage,
        begin: |_| (),
        run: Db::wait_for_compact,
        is_done: |db| db.stats().families[0].blob_garbage_bytes < 16 << 10,
    },
    Kind {
        name: "gather",
        job: JobKind::Sweep,
        options: scattered_options,
        make: scattered,
        // Until scans have read what bringing it together costs. It is due with the next flush.
        begin: |db| {
            (0..12).for_each(|_| drop(contents(db)));
            db.put(key(0), noise(0, 0, 2000)).unwrap();
        },
        run: Db::flush,
        is_done: |db| db.stats().families[0].blob_files < 8,
    },
    Kind {
        name: "holes",
        job: JobKind::Punch,
        options: || large_options(ReclaimMode::Auto),
        make: large_garbage,
        begin: |_| (),
        run: Db::flush,
        is_done: |db| db.stats().punched_bytes > 50_000,
    },
    Kind {
        name: "files of a range",
        job: JobKind::DeleteFiles,
        options: || options(ReclaimMode::Manual),
        make: layers,
        begin: |_| (),
        run: |db| db.delete_files_in_range(&db.default_column_family(), Some(&FROM()), Some(&TO())).map(drop),
        is_done: |db| (60..170).contains(&contents(db).len()),
    },
];

/// The range of keys whose files go.
const FROM: fn() -> Vec<u8> = || key(30);
const TO: fn() -> Vec<u8> = || key(270);

fn put(db: &Db, expected: &mut Contents, n: u32, value: Vec<u8>) {
    db.put(key(n), &value).unwrap();
    expected.insert(key(n), value);
}

/// Blob files of which every third value is garbage.
fn garbage(disk: &SimDisk) -> Contents {
    let db = Db::open_with_env("/store", options(ReclaimMode::Manual), disk.env()).unwrap();
    let mut expected = Contents::new();
    for round in 0..2 {
        (0..300).step_by(1 + 2 * round as usize).for_each(|n| put(&db, &mut expected, n, value(n, round)));
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    db.close().unwrap();
    expected
}

fn scattered_options() -> Options {
    let mut options = Options { max_space_amp: 4.0, cache_bytes: 0, ..options(ReclaimMode::Auto) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 4 << 20);
    options
}

/// Files that each hold a few values from all over: too few files to be merged for that alone.
fn scattered(disk: &SimDisk) -> Contents {
    let db = Db::open_with_env("/store", scattered_options(), disk.env()).unwrap();
    let mut order: Vec<u32> = (0..56).collect();
    fastrand::Rng::with_seed(8).shuffle(&mut order);
    let mut expected = Contents::new();
    for some in order.chunks(4) {
        some.iter().for_each(|&n| put(&db, &mut expected, n, noise(n, 0, 2000)));
        db.flush().unwrap();
    }
    db.close().unwrap();
    expected
}

fn large_options(mode: ReclaimMode) -> Options {
    let mut options = options(mode);
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (1 << 20, 1 << 20);
    options
}

/// Two blob files of long values, every second of which is dead.
fn large_garbage(disk: &SimDisk) -> Contents {
    let db = Db::open_with_env("/store", large_options(ReclaimMode::Manual), disk.env()).unwrap();
    let mut expected = Contents::new();
    for round in 0..2 {
        (0..16).step_by(1 + round as usize).for_each(|n| put(&db, &mut expected, n, noise(n, round, 12_000)));
        db.compact_range(&db.default_column_family(), None, None).unwrap();
    }
    db.close().unwrap();
    expected
}

/// Tables in several levels, the upper ones of which hide some of what the lower ones hold; most values lie with their keys, so tables are many.
fn layers(disk: &SimDisk) -> Contents {
    let db = Db::open_with_env("/store", options(ReclaimMode::Manual), disk.env()).unwrap();
    let mut expected = Contents::new();
    let of = |n: u32, round: u32| if n.is_multiple_of(4) { value(n, round) } else { noise(n, round, 90) };
    (0..300).for_each(|n| put(&db, &mut expected, n, of(n, 0)));
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    for round in 1..3 {
        // At the beginning of the range they hide what a table holds that reaches beyond it, and stays.
        for n in (31..60).chain(150..260).filter(|n| n % 3 > 0) {
            put(&db, &mut expected, n, of(n, round));
        }
        for n in (32..60).chain(150..260).filter(|n| n % 3 == 0) {
            db.delete(key(n)).unwrap();
            expected.remove(&key(n));
        }
        db.flush().unwrap();
    }
    put(&db, &mut expected, 200, of(200, 3));
    db.flush().unwrap();
    let levels = db.stats().families[0].levels.iter().filter(|level| level.files > 0).count();
    assert_eq!(levels, 3);
    db.close().unwrap();
    expected
}

/// A store on which a kind of reclaim is tried, and what it may answer: what it held, and what it held without some.
struct Tried {
    db: Db,
    ended: Arc<Mutex<Vec<JobKind>>>,
}

impl Kind {
    fn open(&self, disk: &SimDisk) -> Tried {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let told = ended.clone();
        let listener = Listener::new(move |event| {
            if let EventKind::JobEnded { job, outcome: Ok(_), .. } = event.kind {
                told.lock().unwrap().push(job.kind);
            }
        });
        let options = Options { listeners: vec![listener], ..(self.options)() };
        Tried { db: Db::open_with_env("/store", options, disk.env()).unwrap(), ended }
    }

    /// Runs it on a sound disk: at which operations and which reads, and what the store holds then.
    fn healthy(&self, made: &SimDisk, before: &Contents) -> (std::ops::Range<u64>, std::ops::Range<u64>, Contents) {
        let disk = made.after_process_death();
        let tried = self.open(&disk);
        (self.begin)(&tried.db);
        let from = (disk.op_count(), disk.read_count());
        (self.run)(&tried.db).unwrap();
        let (ops, reads) = (from.0..disk.op_count(), from.1..disk.read_count());
        assert!(tried.ended.lock().unwrap().contains(&self.job), "{}: {:?}", self.name, tried.ended);
        assert!((self.is_done)(&tried.db), "{}: {:?}", self.name, tried.db.stats());
        assert_nothing_left(&tried.db, &disk, "healthy");
        let after = contents(&tried.db);
        let is_gone = |key: &[u8]| self.job == JobKind::DeleteFiles && *key >= FROM()[..] && *key <= TO()[..];
        assert!(after.iter().all(|(key, value)| before.get(key) == Some(value)), "{}: something old", self.name);
        assert!(before.keys().all(|key| after.contains_key(key) || is_gone(key)), "{}: something gone", self.name);
        (ops, reads, after)
    }
}

/// All files are the store's.
fn assert_nothing_left(db: &Db, disk: &SimDisk, what: &str) {
    let stats = db.stats().families[0].clone();
    let tables = stats.levels.iter().map(|level| level.files).sum::<usize>();
    let found = (files(disk, "blob").len(), files(disk, "sst").len());
    assert_eq!(found, (stats.blob_files, tables), "{what}: files left behind");
}

/// Goal (B1, B4): wherever the machine dies in a reclaim, and whatever of the unsynced survives, it has happened, or not, as a whole; the ledger is
/// exact, no file stays that is not the store's, and it can be done then.
#[test]
fn b4_death_at_every_operation_of_any_reclaim_leaves_all_or_nothing_of_it() {
    for kind in &KINDS {
        let made = SimDisk::new();
        let before = (kind.make)(&made);
        let (ops, _, after) = kind.healthy(&made, &before);
        assert!(ops.end - ops.start > 4, "{}: {ops:?}", kind.name);
        let mut found_after = 0;
        for n in ops.clone() {
            let disk = made.after_process_death();
            let tried = kind.open(&disk);
            (kind.begin)(&tried.db);
            kill(&disk, n);
            // What is only tidied up fails unheard.
            let result = (kind.run)(&tried.db);
            drop(tried);
            for image in power_losses(&disk, n) {
                let what = format!("{}: died at operation {n} of {ops:?}, {}", kind.name, image.name);
                let Tried { db, .. } = kind.open(&image.disk);
                let found = contents(&db);
                assert!(found == after || found == before && result.is_err(), "{what}: answers");
                found_after += u32::from(found == after);
                assert_sound(&db, &what);
                assert_nothing_left(&db, &image.disk, &what);
                (kind.begin)(&db);
                (kind.run)(&db).unwrap_or_else(|error| panic!("{what}, and then: {error}"));
                assert!(contents(&db) == after, "{what}: once it is done");
            }
        }
        assert!(found_after > 0, "{}", kind.name);
    }
}

/// Goal (B1, B8): a call that fails in a reclaim leaves all or nothing of it; iterators of before read on, snapshots see what everybody does; no
/// file is left behind, and the next try does it.
#[test]
fn b8_every_call_of_any_reclaim_may_fail() {
    for kind in &KINDS {
        let made = SimDisk::new();
        let before = (kind.make)(&made);
        let (ops, reads, after) = kind.healthy(&made, &before);
        let faults = ops.clone().flat_map(|n| [Fault::Eio, Fault::NoSpace].map(|fault| (n, Some(fault))));
        let read_faults = reads.step_by(5).map(|n| (n, None));
        let mut told = 0;
        for (nth, (n, fault)) in faults.chain(read_faults).enumerate() {
            let what = format!("{}: call {n} of {ops:?} fails with {fault:?}", kind.name);
            let disk = made.after_process_death();
            disk.set_tracing(true);
            let Tried { db, .. } = kind.open(&disk);
            (kind.begin)(&db);
            let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
            // It keeps files from being removed, so others are without.
            let mut iterator = (nth % 3 == 0).then(|| db.iter().unwrap());
            match fault {
                Some(fault) => disk.fail_at(n, fault),
                None => disk.fail_read_at(n, ReadFault::Eio),
            }
            let result = (kind.run)(&db);
            told += u32::from(result.is_err() || db.stats().background_error.is_some());
            let found = contents(&db);
            assert!(found == after || found == before, "{what}: answers");
            if kind.job == JobKind::DeleteFiles {
                // Only what goes from the disk may be told of once the rest is done.
                let is_removal = operations(&disk, ops.start, "remove").contains(&n);
                assert_eq!(found == before, result.is_err() && !is_removal, "{what}: {result:?}");
            }
            let seen = forward(&db, &db.default_column_family(), &then).unwrap();
            assert!(seen.into_iter().collect::<Contents>() == found, "{what}: a snapshot");
            if let Some(iterator) = &mut iterator {
                iterator.seek_to_first().unwrap();
                for (key, value) in &before {
                    assert!(iterator.key() == key && iterator.value().unwrap() == value[..], "{what}: an iterator");
                    iterator.next().unwrap();
                }
                assert!(!iterator.valid(), "{what}: an iterator");
            }
            drop((iterator, then));
            assert_sound(&db, &what);
            match result {
                Err(error) if error.kind() == ErrorKind::ReadOnly => {
                    assert!(fault.is_some() && may_end_writes(&disk, n), "{what}: no more writes");
                }
                // What could not be removed is tried again, and told until then, with the next file that goes.
                _ => drop((kind.run)(&db)),
            }
            let found = contents(&db);
            assert!(found == after || found == before, "{what}: answers after the next try");
            assert_sound(&db, &what);
            drop(db);
            let disk = disk.after_power_loss(Survivors::Everything);
            let Tried { db, .. } = kind.open(&disk);
            let found = contents(&db);
            assert!(found == after || found == before, "{what}: answers after reopening");
            assert_nothing_left(&db, &disk, &what);
            (kind.begin)(&db);
            (kind.run)(&db).unwrap_or_else(|error| panic!("{what}, and after reopening: {error}"));
            assert!(contents(&db) == after, "{what}: once it is done");
            assert_sound(&db, &what);
            assert_nothing_left(&db, &disk, &what);
        }
        assert!(told > 2, "{}: only {told} failures were told", kind.name);
    }
}
