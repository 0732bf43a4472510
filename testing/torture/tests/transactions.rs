//! Transactions: as if each had run alone, in one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::env::sim::{Fault, SimDisk};
use esker::{
    BytewiseComparator, Comparator, Db, ErrorKind, FamilyOptions, IngestOptions, Options, PinnedSlice, ReadOptions,
    Separation, SstFileWriter, StringAppendOperator, Transaction, TransactionOptions, WriteBatch, WriteOptions,
};
use esker_torture::crash::{self, Promise};
use esker_torture::history::{self, Event, has_order, record};
use esker_torture::hooked::{Call, Meanwhile};
use esker_torture::orders::comparator_of;

const UNSYNCED: WriteOptions = WriteOptions { sync: false, disable_wal: false };
const SYNCED: WriteOptions = WriteOptions { sync: true, disable_wal: false };

/// Memtables of a few hundred entries, so that flushes come between reads and their commit.
fn open(disk: &SimDisk, background_jobs: usize, separation: Separation) -> Db {
    open_in(&BytewiseComparator, disk, background_jobs, separation)
}

fn open_in(comparator: &'static dyn Comparator, disk: &SimDisk, background_jobs: usize, separation: Separation) -> Db {
    let family = FamilyOptions {
        comparator,
        write_buffer_bytes: 64 << 10,
        min_blob_size: 200,
        separation,
        merge_operator: Some(Arc::new(StringAppendOperator::default())),
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs, families, ..Options::default() };
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn text(value: Option<PinnedSlice>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

fn is_conflict(result: esker::Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.to_string().contains("key \"k\" of column family \"default\""), "{error}");
            true
        }
    }
}

/// What others do between the beginning of a transaction and its commit.
type Between = fn(&SimDisk, &Db);
type Act = fn(&Db);

fn flush(db: &Db) {
    db.flush().unwrap();
}

fn compact(db: &Db) {
    db.compact_range(&db.default_column_family(), None, None).unwrap();
}

fn ingest(disk: &SimDisk, db: &Db, key: &str) {
    disk.env().files.create_dir_all("/outside".as_ref()).unwrap();
    let family = db.default_column_family();
    let mut writer = SstFileWriter::create_with_env("/outside/a.sst", &family.options(), disk.env()).unwrap();
    writer.put(key, "ingested").unwrap();
    writer.finish().unwrap();
    db.ingest(&family, &["/outside/a.sst"], &IngestOptions::default()).unwrap();
}

fn transact(db: &Db, act: impl FnMut(&mut Transaction) -> esker::Result<()>) {
    db.transact(&UNSYNCED, act).unwrap();
}

/// Goal: whatever comes to a key that was read is noticed, wherever it lies by then, and nothing else is.
#[test]
fn a_write_to_what_was_read_is_noticed_wherever_it_lies() {
    let writes: [(&str, Between); 10] = [
        ("put", |_, db| db.put("k", "new").unwrap()),
        ("put again what it had", |_, db| db.put("k", "old").unwrap()),
        ("deleted", |_, db| db.delete("k").unwrap()),
        ("put at length", |_, db| db.put("k", [7; 500]).unwrap()),
        ("put and deleted", |_, db| {
            db.put("k", "new").unwrap();
            db.delete("k").unwrap();
        }),
        ("written in a batch", |_, db| {
            let mut batch = WriteBatch::new();
            batch.put("a", "1").unwrap();
            batch.put("k", "2").unwrap();
            db.write(batch, &UNSYNCED).unwrap();
        }),
        ("put if it was there", |_, db| {
            db.update(&db.default_column_family(), "k", &UNSYNCED, |_| esker::Change::Put(vec![1])).unwrap();
        }),
        ("put by a transaction", |_, db| transact(db, |other| other.put("k", "new"))),
        ("ingested", |disk, db| ingest(disk, db, "k")),
        ("loaded", |_, db| {
            let mut load = db.bulk_load(&db.default_column_family()).unwrap();
            load.put("k", "loaded").unwrap();
            load.finish().unwrap();
        }),
    ];
    let others: [(&str, Between); 4] = [
        ("nothing", |_, _| {}),
        ("other keys", |_, db| ["j", "kk", "", "k\0"].iter().for_each(|key| db.put(key, "new").unwrap())),
        ("a transaction that reads it", |_, db| {
            transact(db, |other| {
                other.get("k")?;
                other.put("j", "new")
            });
        }),
        ("one that was dropped", |_, db| db.transaction().put("k", "new").unwrap()),
    ];
    let moves: [(&str, Act); 4] = [
        ("in memory", |_| {}),
        ("flushed", flush),
        ("compacted", compact),
        ("overtaken by other keys", |db| {
            (0..400).for_each(|n| db.put(format!("noise{n}"), [1; 300]).unwrap());
            compact(db);
            flush(db);
        }),
    ];
    let before: [(&str, Act); 4] = [
        ("absent", |_| {}),
        ("in memory", |db| db.put("k", "old").unwrap()),
        ("flushed", |db| {
            db.put("k", "old").unwrap();
            flush(db);
        }),
        ("compacted", |db| {
            db.put("k", "old").unwrap();
            compact(db);
        }),
    ];
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        for (was, before) in before {
            for (moved, moves) in moves {
                let begin = || {
                    let disk = SimDisk::new();
                    let db = open(&disk, 0, separation);
                    before(&db);
                    let mut transaction = db.transaction();
                    transaction.put("own", "1").unwrap();
                    (disk, db, transaction)
                };
                for (what, between) in writes {
                    for reads in [true, false] {
                        let what = format!("{was}, {what}, {moved}, {separation:?}, read {reads}");
                        let (disk, db, mut transaction) = begin();
                        if reads {
                            let found = text(transaction.get("k").unwrap());
                            assert_eq!(found.is_some(), was != "absent");
                        }
                        between(&disk, &db);
                        moves(&db);
                        let now = db.get("k").unwrap().map(Vec::from);
                        assert_eq!(is_conflict(transaction.commit(&UNSYNCED)), reads, "{what}");
                        assert_eq!(db.exists("own").unwrap(), !reads, "{what}");
                        assert_eq!(db.get("k").unwrap().map(Vec::from), now, "{what}");
                    }
                }
                for (what, between) in others {
                    let (disk, db, mut transaction) = begin();
                    assert_eq!(transaction.exists("k").unwrap(), was != "absent");
                    between(&disk, &db);
                    moves(&db);
                    let committed = transaction.commit(&SYNCED);
                    assert!(committed.is_ok(), "{was}, {what}, {moved}, {separation:?}: {committed:?}");
                    assert!(db.exists("own").unwrap());
                }
            }
        }
    }
}

/// Goal: what comes to a key after it was looked for, and before the transaction's turn to write, is noticed as well, and what comes to others does no harm.
/// Method: to look for the second key takes a read of a table; before that, others write to the first.
#[test]
fn what_comes_between_the_look_and_the_turn_is_noticed() {
    let between: [(&str, Between, bool); 8] = [
        ("put", |_, db| db.put("a", "new").unwrap(), true),
        ("deleted", |_, db| db.delete("a").unwrap(), true),
        (
            "put and flushed",
            |_, db| {
                db.put("a", "new").unwrap();
                flush(db);
            },
            true,
        ),
        (
            "put and compacted",
            |_, db| {
                db.put("a", "new").unwrap();
                compact(db);
            },
            true,
        ),
        ("ingested", |disk, db| ingest(disk, db, "a"), true),
        ("another ingested", |disk, db| ingest(disk, db, "z"), false),
        ("another put", |_, db| db.put("z", "new").unwrap(), false),
        (
            "another put and flushed",
            |_, db| {
                db.put("z", "new").unwrap();
                flush(db);
            },
            false,
        ),
    ];
    for (what, act, conflicts) in between {
        let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
        // Without a filter, which would say that the table does not have the second key.
        let family = FamilyOptions { bloom_bits_per_key: 0.0, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        let options =
            Options { create_if_missing: true, background_jobs: 0, cache_bytes: 0, families, ..Options::default() };
        let db = Db::open_with_env("/store", options, meanwhile.env(&disk)).unwrap();
        db.put("a", "old").unwrap();
        let mut transaction = db.transaction();
        assert!(transaction.exists("a").unwrap() && !transaction.exists("b").unwrap());
        transaction.put("own", "1").unwrap();
        ["aa", "bb"].iter().for_each(|key| db.put(key, "newer").unwrap());
        flush(&db);
        let (other, its_disk) = (db.clone(), disk.clone());
        let is_table =
            |call: Call<'_>| matches!(call, Call::Read(path) if path.extension().is_some_and(|end| end == "sst"));
        meanwhile.before(is_table, move || act(&its_disk, &other));
        let committed = transaction.commit(&SYNCED);
        assert!(meanwhile.is_done(), "{what}");
        assert_eq!(committed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict), conflicts, "{what}");
        assert_eq!(committed.is_ok(), !conflicts, "{what}: {committed:?}");
        assert_eq!(db.exists("own").unwrap(), !conflicts, "{what}");
    }
}

/// Goal: whoever is told of a conflict can see what came in between, and begins again once for it, not as often as it can while that is synced.
/// Method: two writes come while another is synced, and are synced together, in the memtables before that; it goes on until another transaction has
/// begun several times, or for so long that one that does not wait would have.
#[test]
fn who_is_told_of_a_conflict_can_see_what_came() {
    let wait_a_little = || (0..20_000).for_each(|_| std::thread::yield_now());
    let is_log = |call: Call<'_>| matches!(call, Call::Sync(path) if path.extension().is_some_and(|end| end == "log"));
    // Whether the two come together is up to the threads.
    for _ in 0..10 {
        let (disk, meanwhile) = (SimDisk::new(), Meanwhile::default());
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/store", options, meanwhile.env(&disk)).unwrap();
        db.put("k", 0u64.to_le_bytes()).unwrap();
        let begun = Arc::new(AtomicU64::new(0));
        let (hand_over, handed_over) = std::sync::mpsc::channel();
        let (other, counted, hand_on) = (db.clone(), begun.clone(), hand_over.clone());
        let meet = move || {
            let count = counted.clone();
            let adding = std::thread::spawn(move || {
                transact(&other, |transaction| {
                    count.fetch_add(1, Ordering::Relaxed);
                    let had = number(transaction.get("k")?.as_deref());
                    transaction.put("k", (had + 1).to_le_bytes())
                });
            });
            while counted.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            wait_a_little();
            hand_on.send(adding).unwrap();
        };
        let (two, next) = (db.clone(), meanwhile.clone());
        let come = move || {
            next.before(is_log, meet);
            let coming = Arc::new(AtomicU64::new(0));
            for place in 0..2 {
                let (db, comes) = (two.clone(), coming.clone());
                let writing = std::thread::spawn(move || {
                    let mut transaction = db.transaction();
                    if place == 0 {
                        let had = number(transaction.get("k").unwrap().as_deref());
                        transaction.put("k", (had + 1).to_le_bytes()).unwrap();
                    } else {
                        transaction.put("beside", "it").unwrap();
                    }
                    comes.fetch_add(1, Ordering::Relaxed);
                    transaction.commit(&SYNCED).unwrap();
                });
                hand_over.send(writing).unwrap();
            }
            while coming.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            wait_a_little();
        };
        meanwhile.before(is_log, come);
        db.put_cf(&db.default_column_family(), "first", "", &SYNCED).unwrap();
        (0..3).for_each(|_| handed_over.recv().unwrap().join().unwrap());
        assert_eq!(number(db.get("k").unwrap().as_deref()), 2);
        assert!(begun.load(Ordering::Relaxed) <= 3, "begun {begun:?} times");
    }
}

/// Goal: a transaction sees one moment and what it did itself; nobody else sees that before it commits.
#[test]
fn a_transaction_sees_its_moment_and_itself() {
    let disk = SimDisk::new();
    let db = open(&disk, 0, Separation::AtWrite);
    let other = db.create_column_family("other", FamilyOptions::default()).unwrap();
    db.put("a", "1").unwrap();
    db.put_cf(&other, "a", "other", &UNSYNCED).unwrap();
    let mut transaction = db.transaction();
    db.put("a", "2").unwrap();
    db.delete_cf(&other, "a", &UNSYNCED).unwrap();
    flush(&db);
    assert_eq!(text(transaction.get("a").unwrap()).as_deref(), Some("1"));
    assert_eq!(text(transaction.get_cf(&other, "a").unwrap()).as_deref(), Some("other"));
    let reading = ReadOptions { snapshot: Some(transaction.snapshot().clone()), ..ReadOptions::default() };
    assert_eq!(text(db.get_cf(&db.default_column_family(), "a", &reading).unwrap()).as_deref(), Some("1"));

    let long = "long".repeat(200);
    transaction.put("b", &long).unwrap();
    transaction.put("b2", "").unwrap();
    transaction.put("c", "1").unwrap();
    transaction.put("c", "22").unwrap();
    transaction.put("d", "1").unwrap();
    transaction.delete("d").unwrap();
    transaction.delete_cf(&other, "b").unwrap();
    transaction.put_cf(&other, "b", "there").unwrap();
    assert_eq!(text(transaction.get("b").unwrap()).as_deref(), Some(&*long));
    assert_eq!(text(transaction.get("b2").unwrap()).as_deref(), Some(""));
    assert_eq!(text(transaction.get("c").unwrap()).as_deref(), Some("22"));
    assert_eq!(text(transaction.get("d").unwrap()), None);
    assert_eq!(text(transaction.get_cf(&other, "b").unwrap()).as_deref(), Some("there"));
    assert!(transaction.exists("b2").unwrap() && !transaction.exists("d").unwrap());
    assert!(transaction.exists_cf(&other, "b").unwrap() && !transaction.exists_cf(&other, "d").unwrap());
    assert_eq!(db.get("c").unwrap(), None);
    assert_eq!(format!("{transaction:?}"), "Transaction { keys_read: 3, keys_written: 5, keys_locked: 0, .. }");
    // It has read "a", which was put meanwhile.
    let error = transaction.commit(&UNSYNCED).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(db.get("c").unwrap(), None);

    let made = db.transact(&SYNCED, |transaction| {
        transaction.put("c", "1")?;
        transaction.put("c", &long)?;
        transaction.delete("a")?;
        transaction.put_cf(&other, "b", "there")?;
        Ok(text(transaction.get("c")?))
    });
    assert_eq!(made.unwrap().as_deref(), Some(&*long));
    for db in [db, open(&disk.after_process_death(), 0, Separation::AtWrite)] {
        assert_eq!(text(db.get("c").unwrap()).as_deref(), Some(&*long));
        assert_eq!(text(db.get("a").unwrap()), None);
        let other = db.column_family("other").unwrap();
        assert_eq!(text(db.get_cf(&other, "b", &ReadOptions::default()).unwrap()).as_deref(), Some("there"));
    }
}

/// Goal: operands are in conflict with nobody, unless what they make is read.
#[test]
fn merges_are_in_conflict_only_where_they_are_read() {
    let db = open(&SimDisk::new(), 0, Separation::AtWrite);
    let none = db.create_column_family("none", FamilyOptions::default()).unwrap();
    db.put("list", "1").unwrap();
    let mut transaction = db.transaction();
    transaction.merge("list", "3").unwrap();
    transaction.merge("new", "a").unwrap();
    assert!(transaction.exists("new").unwrap() && transaction.exists("list").unwrap());
    db.merge("list", "2").unwrap();
    db.merge("new", "0").unwrap();
    transaction.commit(&UNSYNCED).unwrap();
    assert_eq!(text(db.get("list").unwrap()).as_deref(), Some("1,2,3"));
    assert_eq!(text(db.get("new").unwrap()).as_deref(), Some("0,a"));

    let mut transaction = db.transaction();
    transaction.put("put", "x").unwrap();
    transaction.merge("put", "y").unwrap();
    transaction.delete("new").unwrap();
    transaction.merge("new", "b").unwrap();
    // Neither asks the store.
    assert_eq!(text(transaction.get("put").unwrap()).as_deref(), Some("x,y"));
    assert_eq!(text(transaction.get("new").unwrap()).as_deref(), Some("b"));
    db.merge("put", "z").unwrap();
    transaction.merge("list", "4").unwrap();
    assert_eq!(text(transaction.get("list").unwrap()).as_deref(), Some("1,2,3,4"));
    db.merge("list", "5").unwrap();
    let error = transaction.commit(&UNSYNCED).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "it has read the list");
    assert_eq!(text(db.get("put").unwrap()).as_deref(), Some("z"));

    let mut transaction = db.transaction();
    transaction.merge_cf(&none, "k", "1").unwrap();
    assert_eq!(transaction.get_cf(&none, "k").unwrap_err().kind(), ErrorKind::UnsupportedFormat);
    transaction.put("put", "never").unwrap();
    assert_eq!(transaction.commit(&UNSYNCED).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(text(db.get("put").unwrap()).as_deref(), Some("z"));
}

fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("{:02}", random.u8(..40)).into_bytes()
}

fn merged(before: Option<&Vec<u8>>, operand: &[u8]) -> Vec<u8> {
    before.map_or_else(|| operand.to_vec(), |before| [before, &b","[..], operand].concat())
}

/// Goal: a walk shows what the transaction sees, in both directions, within bounds, whatever lies where.
/// Method: the same steps on a map.
#[test]
fn a_walk_of_a_transaction_is_one_of_what_it_sees() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let separation = if seed % 2 == 0 { Separation::AtFlush } else { Separation::AtWrite };
        let comparator = comparator_of(["default", "reversed"][seed as usize / 2 % 2]);
        let db = open_in(comparator, &SimDisk::new(), 0, separation);
        let mut sees = BTreeMap::new();
        for n in 0..random.u8(..60) {
            let (key, value) = (key(&mut random), vec![n; random.usize(..400)]);
            match random.u8(..12) {
                0 => flush(&db),
                1 => compact(&db),
                2..5 => {
                    db.delete(&key).unwrap();
                    sees.remove(&key);
                }
                5..8 => {
                    db.merge(&key, &value).unwrap();
                    let merged = merged(sees.get(&key), &value);
                    sees.insert(key, merged);
                }
                _ => {
                    db.put(&key, &value).unwrap();
                    sees.insert(key, value);
                }
            }
        }
        let mut transaction = db.transaction();
        // What comes later is not seen.
        db.put("00", "later").unwrap();
        db.delete("01").unwrap();
        for n in 0..random.u8(..30) {
            let (key, value) = (key(&mut random), vec![n; random.usize(..400)]);
            match random.u8(..3) {
                0 => {
                    transaction.delete(&key).unwrap();
                    sees.remove(&key);
                }
                1 => {
                    transaction.merge(&key, &value).unwrap();
                    let merged = merged(sees.get(&key), &value);
                    sees.insert(key, merged);
                }
                _ => {
                    transaction.put(&key, &value).unwrap();
                    sees.insert(key, value);
                }
            }
            let key = self::key(&mut random);
            assert_eq!(transaction.get(&key).unwrap().map(|value| value.to_vec()), sees.get(&key).cloned());
            assert_eq!(transaction.exists(&key).unwrap(), sees.contains_key(&key));
        }
        let bound = |random: &mut fastrand::Rng| random.bool().then(|| key(random));
        let (lower, upper) = (bound(&mut random), bound(&mut random));
        let is_before = |a: &[u8], b: &[u8]| comparator.compare(a, b).is_lt();
        let is_within = |key: &[u8]| {
            lower.as_deref().is_none_or(|lower| !is_before(key, lower))
                && upper.as_deref().is_none_or(|upper| is_before(key, upper))
        };
        sees.retain(|key, _| is_within(key));
        let options = ReadOptions { lower_bound: lower.clone(), upper_bound: upper.clone(), ..ReadOptions::default() };
        let mut walk = transaction.iter_cf(&db.default_column_family(), &options).unwrap();
        assert!(!walk.valid() && walk.key().is_empty() && walk.value().is_err());
        let mut sorted: Vec<Vec<u8>> = sees.keys().cloned().collect();
        sorted.sort_by(|a, b| comparator.compare(a, b));
        let mut at: Option<Vec<u8>> = None;
        for step in 0..200 {
            let key = key(&mut random);
            let keys = || sorted.iter().cloned();
            let what = match random.u8(..10) {
                0 => {
                    walk.seek_to_first().unwrap();
                    at = keys().next();
                    "first"
                }
                1 => {
                    walk.seek_to_last().unwrap();
                    at = keys().next_back();
                    "last"
                }
                2 => {
                    walk.seek(&key).unwrap();
                    at = keys().find(|there| !is_before(there, &key));
                    "seek"
                }
                3 => {
                    walk.seek_for_prev(&key).unwrap();
                    at = keys().rfind(|there| !is_before(&key, there));
                    "seek for prev"
                }
                4..7 => {
                    walk.next().unwrap();
                    at = at.and_then(|at| keys().find(|there| is_before(&at, there)));
                    "next"
                }
                _ => {
                    walk.prev().unwrap();
                    at = at.and_then(|at| keys().rfind(|there| is_before(there, &at)));
                    "prev"
                }
            };
            let what = format!("seed {seed}, step {step}, {what}, bounds {lower:?} {upper:?}");
            assert_eq!(walk.valid().then(|| walk.key().to_vec()), at, "{what}");
            if let Some(at) = &at {
                assert_eq!(walk.value().unwrap().to_vec(), sees[at], "{what}");
            }
        }
    }
}

/// Goal: what cannot be is refused, and nothing of it is written.
#[test]
fn what_a_transaction_cannot_do_is_refused() {
    let disk = SimDisk::new();
    let db = open(&disk, 0, Separation::AtFlush);
    let elsewhere = open(&SimDisk::new(), 0, Separation::AtFlush);
    let foreign = elsewhere.default_column_family();
    let invalid = |error: esker::Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let mut transaction = db.transaction();
    invalid(transaction.get_cf(&foreign, "a").unwrap_err());
    invalid(transaction.exists_cf(&foreign, "a").unwrap_err());
    invalid(transaction.put_cf(&foreign, "a", "1").unwrap_err());
    invalid(transaction.delete_cf(&foreign, "a").unwrap_err());
    invalid(transaction.iter_cf(&foreign, &ReadOptions::default()).unwrap_err());
    invalid(transaction.put(vec![0; (8 << 20) + 1], "1").unwrap_err());
    transaction.put("a", "1").unwrap();
    invalid(transaction.commit(&WriteOptions { sync: true, disable_wal: true }).unwrap_err());
    // A family that was dropped, whether it was read or written.
    for reads in [true, false] {
        let family = db.create_column_family("other", FamilyOptions::default()).unwrap();
        let mut transaction = db.transaction();
        transaction.put("a", "1").unwrap();
        if reads {
            transaction.get_cf(&family, "b").unwrap();
        } else {
            transaction.put_cf(&family, "b", "1").unwrap();
        }
        db.drop_column_family(&family).unwrap();
        invalid(transaction.commit(&UNSYNCED).unwrap_err());
        assert_eq!(db.get("a").unwrap(), None);
    }
    let error = db.transact(&UNSYNCED, |transaction| {
        transaction.put("a", "1")?;
        Err::<(), _>(esker::Error::invalid_argument("no"))
    });
    invalid(error.unwrap_err());
    assert_eq!(db.get("a").unwrap(), None);
    // Nothing written is no conflict, nor an error where nothing can be.
    let mut reader = db.transaction();
    reader.get("k").unwrap();
    db.put("k", "1").unwrap();
    reader.commit(&SYNCED).unwrap();
    let mut late = db.transaction();
    late.put("a", "1").unwrap();
    db.close().unwrap();
    assert_eq!(late.get("k").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(late.commit(&UNSYNCED).unwrap_err().kind(), ErrorKind::Closed);
    let db = Db::open_read_only_with_env("/store", Options::default(), disk.env()).unwrap();
    let mut transaction = db.transaction();
    assert_eq!(text(transaction.get("k").unwrap()).as_deref(), Some("1"));
    transaction.put("a", "1").unwrap();
    assert_eq!(transaction.commit(&UNSYNCED).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[derive(Debug, Clone, Copy)]
enum Action {
    /// Saw both, and wrote those.
    Both {
        seen: [u8; 2],
        written: [Option<u8>; 2],
    },
    Put(usize, u8),
    Get(usize, u8),
}

impl history::Action for Action {
    type State = [u8; 2];

    fn after(self, held: [u8; 2]) -> Option<[u8; 2]> {
        let mut next = held;
        let is_right = match self {
            Self::Both { seen, written } => {
                next.iter_mut().zip(written).for_each(|(next, written)| *next = written.unwrap_or(*next));
                seen == held
            }
            Self::Put(at, value) => {
                next[at] = value;
                true
            }
            Self::Get(at, seen) => held[at] == seen,
        };
        is_right.then_some(next)
    }
}

fn byte(value: Option<PinnedSlice>) -> u8 {
    value.map_or(0, |value| value[0])
}

fn act(db: &Db, dice: u64) -> Option<Action> {
    const KEYS: [&str; 2] = ["x", "y"];
    let (at, value) = ((dice >> 8) as usize % 2, 1 + (dice >> 16) as u8 % 3);
    match dice % 6 {
        0 => {
            db.put(KEYS[at], [value]).unwrap();
            Some(Action::Put(at, value))
        }
        1 => Some(Action::Get(at, byte(db.get(KEYS[at]).unwrap()))),
        _ => {
            let locking = dice >> 26 & 1 == 1;
            let mut transaction = db.transaction_with(&TransactionOptions { locking, ..TransactionOptions::default() });
            let refused = |error: esker::Error| assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            // Shared or alone, in either order.
            let order = if dice >> 27 & 1 == 1 { [0, 1] } else { [1, 0] };
            let mut seen = [0; 2];
            for at in order {
                let alone = dice >> (28 + at) & 1 == 1;
                let read = if alone { transaction.get_for_update(KEYS[at]) } else { transaction.get(KEYS[at]) };
                seen[at] = byte(read.map_err(refused).ok()?);
                std::thread::yield_now();
            }
            // One of them, both, or none.
            let written = [dice >> 24 & 1 == 1, dice >> 25 & 1 == 1].map(|writes| writes.then_some(value));
            for (key, written) in KEYS.iter().zip(written) {
                if let Some(value) = written {
                    transaction.put(key, [value]).map_err(refused).ok()?;
                }
            }
            match transaction.commit(if dice >> 30 & 1 == 1 { &SYNCED } else { &UNSYNCED }) {
                Ok(()) => Some(Action::Both { seen, written }),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    None
                }
            }
        }
    }
}

/// Goal: what threads do to two keys, in transactions and without, is as if one had come after the other.
/// Method: many short histories, each begun on keys that are known to be absent; a checker looks for an order. What was in conflict did nothing.
#[test]
fn every_history_of_two_keys_has_an_order() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 12;
    let disk = SimDisk::new();
    let db = open(&disk, 1, Separation::AtFlush);
    let (mut done, mut conflicts) = (0, 0);
    for round in 0..300u64 {
        transact(&db, |transaction| {
            transaction.delete("x")?;
            transaction.delete("y")
        });
        let events = record(round, THREADS, STEPS, |random, now| {
            let began = now();
            let dice = random.u64(..);
            // Now and then memtables go meanwhile.
            if dice.is_multiple_of(31) {
                db.flush().unwrap();
            }
            // What is in conflict saw nothing that anybody relies on: it is nothing.
            let action = act(&db, dice).unwrap_or(Action::Put(2, 0));
            Event { began, ended: now(), action }
        });
        let events: Vec<_> = events.into_iter().filter(|event| !matches!(event.action, Action::Put(2, _))).collect();
        conflicts += (THREADS * STEPS) as usize - events.len();
        done += events.len();
        assert!(has_order(&events), "round {round}: {events:#?}");
    }
    assert!(conflicts > 0 && done > conflicts, "{conflicts} conflicts, {done} done");
}

#[test]
fn the_checker_refuses_write_skew() {
    let both = |began, ended, seen, written| Event { began, ended, action: Action::Both { seen, written } };
    let skew = [both(0, 9, [0, 0], [Some(1), None]), both(1, 8, [0, 0], [None, Some(1)])];
    assert!(has_order(&skew[..1]) && !has_order(&skew));
    assert!(has_order(&[skew[0], both(1, 8, [1, 0], [None, Some(1)])]));
}

/// Goal: money is neither made nor lost, whoever moves it, and whoever looks sees all of it, while flushes and compactions go on.
#[test]
fn what_is_moved_between_keys_stays_the_same_in_all() {
    const ACCOUNTS: u64 = 5;
    const EACH: u64 = 1_000;
    const THREADS: u64 = 4;
    let disk = SimDisk::new();
    let db = open(&disk, 2, Separation::AtWrite);
    let key = |account: u64| format!("account{account}");
    (0..ACCOUNTS).for_each(|account| db.put(key(account), EACH.to_le_bytes()).unwrap());
    let sum = |transaction: &mut Transaction| -> esker::Result<u64> {
        (0..ACCOUNTS).map(|account| Ok(number(transaction.get(key(account))?.as_deref()))).sum()
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for round in 0..200 {
                    let (from, to, amount) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS), random.u64(1..5));
                    let moved = db.transact(if round % 20 == 0 { &SYNCED } else { &UNSYNCED }, |transaction| {
                        let left = number(transaction.get(key(from))?.as_deref());
                        if left < amount {
                            return Ok(());
                        }
                        transaction.put(key(from), (left - amount).to_le_bytes())?;
                        // Perhaps the same one, which it has written.
                        let had = number(transaction.get(key(to))?.as_deref());
                        transaction.put(key(to), (had + amount).to_le_bytes())?;
                        transaction.put(format!("noise{thread}/{round}"), [7; 400])
                    });
                    moved.unwrap();
                    assert_eq!(db.transact(&UNSYNCED, sum).unwrap(), ACCOUNTS * EACH);
                }
            });
        }
    });
    assert_eq!(sum(&mut db.transaction()).unwrap(), ACCOUNTS * EACH);
    drop(db);
    let db = open(&disk.after_process_death(), 0, Separation::AtWrite);
    assert_eq!(sum(&mut db.transaction()).unwrap(), ACCOUNTS * EACH);
}

/// Moves one from `a` to `b`, so often; returns how often it was told that it is done.
fn move_ones(db: &Db, times: u64, options: &WriteOptions) -> u64 {
    for time in 0..times {
        let moved = db.transact(options, |transaction| {
            let (a, b) = (number(transaction.get("a")?.as_deref()), number(transaction.get("b")?.as_deref()));
            transaction.put("a", a.wrapping_sub(1).to_le_bytes())?;
            // Long enough for a blob file, and for a flush now and then.
            transaction.put("noise", vec![time as u8; 20_000])?;
            transaction.put("b", (b + 1).to_le_bytes())
        });
        if moved.is_err() {
            return time;
        }
    }
    times
}

/// Goal: a transaction that was acknowledged survives whole, and no other in part, wherever the machine dies.
/// Method: one healthy run counts the operations; then it dies at each.
#[test]
fn transactions_survive_whole_death_after_every_operation() {
    const TIMES: u64 = 12;
    for (options, separation) in [(SYNCED, Separation::AtWrite), (UNSYNCED, Separation::AtFlush)] {
        let run = |disk: &SimDisk| {
            let family =
                FamilyOptions { write_buffer_bytes: 64 << 10, min_blob_size: 200, separation, ..Default::default() };
            let families = [("default".to_owned(), family)].into();
            let store = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
            Db::open_with_env("/store", store, disk.env()).map_or(0, |db| {
                let done = move_ones(&db, TIMES, &options);
                std::mem::forget(db);
                done
            })
        };
        let healthy = crash::disk(1);
        assert_eq!(run(&healthy), TIMES);
        for n in 0..=healthy.op_count() {
            let disk = crash::disk(n);
            crash::kill(&disk, n);
            let acknowledged = run(&disk);
            for image in crash::images(&disk, n) {
                let db = open(&image.disk, 0, separation);
                let (a, b) = (number(db.get("a").unwrap().as_deref()), number(db.get("b").unwrap().as_deref()));
                let what = format!("death at {n}, {}, {acknowledged} acknowledged: {a}, {b}", image.name);
                assert_eq!(a.wrapping_add(b), 0, "{what}");
                let is_kept = options.sync || image.promise == Promise::Acknowledged;
                assert!(b <= acknowledged + 1 && (b >= acknowledged || !is_kept), "{what}");
            }
        }
    }
}

/// Goal: whichever call fails while a transaction commits, it has taken effect whole or not at all, and one that is told so is not.
#[test]
fn whichever_call_fails_a_transaction_is_whole() {
    const TIMES: u64 = 6;
    let healthy = SimDisk::new();
    let db = open(&healthy, 0, Separation::AtWrite);
    let begun = healthy.op_count();
    assert_eq!(move_ones(&db, TIMES, &SYNCED), TIMES);
    for n in begun..healthy.op_count() {
        for fault in [Fault::Eio, Fault::NoSpace, Fault::EioAfter, Fault::ShortWrite { kept_bytes: 5 }] {
            let disk = SimDisk::new();
            let db = open(&disk, 0, Separation::AtWrite);
            disk.fail_at(n, fault);
            let acknowledged = move_ones(&db, TIMES, &SYNCED);
            let sums = |db: &Db| ["a", "b"].map(|key| number(db.get(key).unwrap().as_deref()));
            let [a, b] = sums(&db);
            assert_eq!(a.wrapping_add(b), 0, "call {n}, {fault:?}");
            assert!((acknowledged..=acknowledged + 1).contains(&b), "call {n}, {fault:?}: {b} of {acknowledged}");
            drop(db);
            let [a, b] = sums(&open(&disk.after_process_death(), 0, Separation::AtWrite));
            assert_eq!(a.wrapping_add(b), 0, "call {n}, {fault:?}, reopened");
            assert!(
                (acknowledged..=acknowledged + 1).contains(&b),
                "call {n}, {fault:?}, reopened: {b} of {acknowledged}"
            );
        }
    }
}
