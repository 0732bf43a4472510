//! Transactions that lock: who comes second waits, in order, and never for ever; and save points.

use std::collections::BTreeMap;
use std::time::Duration;

use esker::env::sim::SimDisk;
use esker::{
    Db, ErrorKind, FamilyOptions, Options, PinnedSlice, StringAppendOperator, Transaction, TransactionOptions,
    WriteBatch, WriteOptions,
};

const UNSYNCED: WriteOptions = WriteOptions { sync: false, disable_wal: false };
/// For who must not wait.
const AT_ONCE: TransactionOptions = TransactionOptions { locking: true, lock_timeout: Duration::ZERO };
/// For who may wait as long as it takes.
const PATIENT: TransactionOptions = TransactionOptions { locking: true, lock_timeout: Duration::MAX };

fn open(disk: &SimDisk) -> Db {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        merge_operator: Some(std::sync::Arc::new(StringAppendOperator::default())),
        ..FamilyOptions::default()
    };
    let options =
        Options { create_if_missing: true, families: [("default".to_owned(), family)].into(), ..Options::default() };
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn number(value: Option<PinnedSlice>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes((&*value).try_into().unwrap()))
}

fn kind<T>(result: esker::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Whether `key` could be had, shared or alone, by one who waits for nobody.
fn is_free(db: &Db, key: &str, alone: bool) -> bool {
    let mut transaction = db.transaction_with(&AT_ONCE);
    let read = if alone { transaction.get_for_update(key) } else { transaction.get(key) };
    match read {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            false
        }
    }
}

/// Goal: each way to a key locks it as it should, until the transaction ends, in whichever way; nobody else's key, no other family's.
#[test]
fn what_is_read_is_shared_and_what_is_written_is_had_alone_until_the_end() {
    type Act = fn(&mut Transaction) -> esker::Result<()>;
    type End = fn(Transaction);
    let ways: [(&str, bool, Act); 8] = [
        ("get", false, |transaction| transaction.get("k").map(drop)),
        ("exists", false, |transaction| transaction.exists("k").map(drop)),
        ("multi_get", false, |transaction| transaction.multi_get(["a", "k", "a", "k"]).map(drop)),
        ("get_for_update", true, |transaction| transaction.get_for_update("k").map(drop)),
        ("put", true, |transaction| transaction.put("k", "v")),
        ("delete", true, |transaction| transaction.delete("k")),
        ("merge", true, |transaction| transaction.merge("k", "v")),
        ("get, then put", true, |transaction| {
            transaction.get("k")?;
            transaction.put("k", "v")
        }),
    ];
    let ends: [(&str, End); 3] = [
        ("committed", |transaction| transaction.commit(&UNSYNCED).unwrap()),
        ("dropped", drop),
        ("refused", |transaction| {
            let options = WriteOptions { sync: true, disable_wal: true };
            assert_eq!(kind(transaction.commit(&options)), Some(ErrorKind::InvalidArgument));
        }),
    ];
    let disk = SimDisk::new();
    let db = open(&disk);
    let other = db.create_column_family("other", FamilyOptions::default()).unwrap();
    for (way, alone, act) in ways {
        for (end, finish) in ends {
            let mut transaction = db.transaction_with(&AT_ONCE);
            act(&mut transaction).unwrap();
            assert_eq!(is_free(&db, "k", false), !alone, "{way}");
            assert!(!is_free(&db, "k", true), "{way}");
            assert!(is_free(&db, "kk", true) && is_free(&db, "", true), "{way}");
            let mut beside = db.transaction_with(&AT_ONCE);
            beside.put_cf(&other, "k", "v").unwrap();
            drop(beside);
            finish(transaction);
            assert!(is_free(&db, "k", true), "{way}, {end}");
        }
    }
    // Without locks nobody waits, nor keeps anybody waiting.
    let mut optimistic = db.transaction();
    let mut locking = db.transaction_with(&AT_ONCE);
    locking.put("k", "1").unwrap();
    optimistic.get_for_update("k").unwrap();
    optimistic.put("k", "2").unwrap();
    locking.commit(&UNSYNCED).unwrap();
    assert_eq!(kind(optimistic.commit(&UNSYNCED)), Some(ErrorKind::Conflict));
}

/// Goal: who has waited too long is told what for, is as it was before, and leaves its place to those behind it.
#[test]
fn who_has_waited_too_long_goes_on_without() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut holder = db.transaction_with(&AT_ONCE);
    holder.get("k").unwrap();
    for lock_timeout in [Duration::ZERO, Duration::from_millis(1)] {
        let mut late = db.transaction_with(&TransactionOptions { locking: true, lock_timeout });
        late.put("own", "1").unwrap();
        let error = late.put("k", "late").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let told = error.to_string();
        assert!(
            told.contains("locking key \"k\" of column family \"default\"") && told.contains("lock_timeout"),
            "{told}"
        );
        // It is not in line any more, and has what it had.
        assert!(is_free(&db, "k", false) && !is_free(&db, "own", false));
        assert_eq!(late.get("k").unwrap(), None);
        late.commit(&UNSYNCED).unwrap();
        assert_eq!(db.get("k").unwrap(), None);
    }
    holder.put("k", "v").unwrap();
    holder.commit(&UNSYNCED).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Goal: what locks keep apart is never in conflict, and nothing is lost, whoever reads, writes, waits.
#[test]
fn those_who_lock_are_never_in_conflict() {
    const THREADS: u64 = 4;
    const TIMES: u64 = 300;
    let disk = SimDisk::new();
    let db = open(&disk);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for time in 0..TIMES {
                    // In one order, so that nobody is in a deadlock.
                    let (low, high) = (random.u8(..2), 2 + random.u8(..2));
                    let mut transaction = db.transaction_with(&PATIENT);
                    let from = number(transaction.get_for_update([low]).unwrap());
                    transaction.put([low], from.wrapping_sub(1).to_le_bytes()).unwrap();
                    std::thread::yield_now();
                    let to = number(transaction.get_for_update([high]).unwrap());
                    transaction.put([high], to.wrapping_add(1).to_le_bytes()).unwrap();
                    transaction.put(format!("noise {thread} {time}"), [7; 300]).unwrap();
                    let options = WriteOptions { sync: time % 50 == 0, disable_wal: false };
                    transaction.commit(&options).unwrap();
                    if time % 70 == 0 {
                        db.flush().unwrap();
                    }
                    // What is only read is of one moment.
                    let mut reader = db.transaction_with(&PATIENT);
                    let sum = (0..4).fold(0u64, |sum, key| sum.wrapping_add(number(reader.get([key]).unwrap())));
                    reader.commit(&UNSYNCED).unwrap();
                    assert_eq!(sum, 0);
                }
            });
        }
    });
    let moved = [2u8, 3].map(|key| number(db.get([key]).unwrap()));
    assert_eq!(moved[0] + moved[1], THREADS * TIMES);
}

/// Goal: who would wait for itself is told at once; the others get what it had when it is dropped; `transact_with` begins it again.
#[test]
fn a_deadlock_is_told_and_begun_again() {
    let disk = SimDisk::new();
    let db = open(&disk);
    // Both have one of two keys, and want the other.
    let [first, second] = [("a", "b"), ("b", "a")].map(|(had, wanted)| {
        let mut transaction = db.transaction_with(&PATIENT);
        transaction.put(had, wanted).unwrap();
        move || match transaction.put(wanted, wanted) {
            Ok(()) => {
                transaction.commit(&UNSYNCED).unwrap();
                Some(wanted)
            }
            Err(error) => {
                let told = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Conflict, "{told}");
                assert!(told.contains(&format!("locking key \"{wanted}\"")) && told.contains("deadlock"), "{told}");
                None
            }
        }
    });
    let went = std::thread::scope(|scope| {
        let all = [scope.spawn(first), scope.spawn(second)];
        all.map(|one| one.join().unwrap())
    });
    let &[winner] = &*went.into_iter().flatten().collect::<Vec<_>>() else { panic!("one of both goes on: {went:?}") };
    assert_eq!(["a", "b"].map(|key| db.get(key).unwrap().unwrap().to_vec()), [winner.as_bytes(), winner.as_bytes()]);

    // Both in each order, all day long.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..100 {
                    let keys = if thread % 2 == 0 { ["x", "y"] } else { ["y", "x"] };
                    let moved = db.transact_with(&PATIENT, &UNSYNCED, |transaction| {
                        for key in keys {
                            let had = number(transaction.get(key)?);
                            std::thread::yield_now();
                            transaction.put(key, (had + 1).to_le_bytes())?;
                        }
                        Ok(())
                    });
                    moved.unwrap();
                }
            });
        }
    });
    assert_eq!(["x", "y"].map(|key| number(db.get(key).unwrap())), [400, 400]);
    // A conflict of the program's own is no deadlock.
    let mut runs = 0;
    let own = db.transact_with(&PATIENT, &UNSYNCED, |_| -> esker::Result<()> {
        runs += 1;
        let mut optimistic = db.transaction();
        optimistic.get("x")?;
        optimistic.put("z", "")?;
        db.put("x", "")?;
        optimistic.commit(&UNSYNCED)
    });
    assert_eq!((kind(own), runs), (Some(ErrorKind::Conflict), 1));
}

/// Goal: a locking transaction reads what is newest, and is told at its commit of whatever came to that without a lock, wherever it lies by then;
/// of nothing else.
#[test]
fn what_comes_without_a_lock_is_noticed_at_the_commit() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let compact = |db: &Db| db.compact_range(&db.default_column_family(), None, None).unwrap();
    let put = |db: &Db| db.put("k", "later").unwrap();
    let befores: [fn(&Db); 3] =
        [|_| {}, |db| db.flush().unwrap(), |db| db.compact_range(&db.default_column_family(), None, None).unwrap()];
    for (round, before) in befores.into_iter().enumerate() {
        for writes in [false, true] {
            for comes in [false, true] {
                db.put("k", "old").unwrap();
                let mut transaction = db.transaction_with(&AT_ONCE);
                // All this is older than the read, and newer than the beginning.
                db.put("k", "new").unwrap();
                before(&db);
                assert_eq!(transaction.get("k").unwrap().as_deref(), Some(&b"new"[..]));
                if writes {
                    transaction.put("other", "v").unwrap();
                }
                if comes {
                    put(&db);
                }
                before(&db);
                // A second look shows what is there now; what counts is the first.
                let again = if comes { &b"later"[..] } else { &b"new"[..] };
                assert_eq!(transaction.get("k").unwrap().as_deref(), Some(again));
                let expected = comes.then_some(ErrorKind::Conflict);
                assert_eq!(kind(transaction.commit(&UNSYNCED)), expected, "round {round}, {writes}, {comes}");
            }
        }
    }
    // Not what is written and was not read, nor what is in another's snapshot.
    let mut blind = db.transaction_with(&AT_ONCE);
    blind.put("k", "blind").unwrap();
    put(&db);
    compact(&db);
    assert_eq!(blind.get("k").unwrap().as_deref(), Some(&b"blind"[..]));
    blind.commit(&UNSYNCED).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"blind"[..]));
    // A walk shows what is there when it begins, with what the transaction wrote; its beginning can still be read.
    let mut walker = db.transaction_with(&AT_ONCE);
    walker.put("a", "own").unwrap();
    put(&db);
    let mut walk = walker.iter().unwrap();
    walk.seek_to_first().unwrap();
    let mut seen = BTreeMap::new();
    while walk.valid() {
        seen.insert(walk.key().to_vec(), walk.value().unwrap().to_vec());
        walk.next().unwrap();
    }
    assert_eq!((&*seen[&b"a"[..]], &*seen[&b"k"[..]]), (&b"own"[..], &b"later"[..]));
    let reading = esker::ReadOptions { snapshot: Some(walker.snapshot().clone()), ..esker::ReadOptions::default() };
    assert_eq!(db.get_cf(&db.default_column_family(), "k", &reading).unwrap().as_deref(), Some(&b"blind"[..]));
}

/// What a transaction shows of the keys "0" to "9".
fn shown(transaction: &mut Transaction) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let keys: Vec<String> = (0..10).map(|key| key.to_string()).collect();
    let got = transaction.multi_get(&keys).unwrap();
    let of_keys: BTreeMap<_, _> = keys
        .into_iter()
        .zip(got)
        .filter_map(|(key, value)| {
            let value = value.unwrap();
            assert_eq!(value, transaction.get(&key).unwrap());
            assert_eq!(value.is_some(), transaction.exists(&key).unwrap());
            value.map(|value| (key, text(&value)))
        })
        .collect();
    let mut walk = transaction.iter().unwrap();
    walk.seek_to_first().unwrap();
    let mut walked = BTreeMap::new();
    while walk.valid() {
        walked.insert(text(walk.key()), text(&walk.value().unwrap()));
        walk.next().unwrap();
    }
    assert_eq!(walked, of_keys);
    of_keys
}

/// Goal: rolled back to a save point, a transaction is as it was then, and what it commits is what it shows; so is a batch.
/// Method: random operations beside a model that keeps a copy for each save point.
#[test]
fn a_save_point_is_what_was_written_up_to_it() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let mut random = fastrand::Rng::with_seed(5);
    let mut stored: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..60 {
        let options = TransactionOptions { locking: round % 2 == 0, ..AT_ONCE };
        let mut transaction = db.transaction_with(&options);
        let mut batch = WriteBatch::new();
        let mut model = stored.clone();
        let mut saved: Vec<BTreeMap<String, String>> = Vec::new();
        for step in 0..random.usize(1..40) {
            let (key, value) = (random.u8(..10).to_string(), format!("{round}.{step}"));
            match random.u8(..9) {
                0..3 => {
                    transaction.put(&key, &value).unwrap();
                    batch.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                3 => {
                    transaction.delete(&key).unwrap();
                    batch.delete(&key).unwrap();
                    model.remove(&key);
                }
                4 => {
                    transaction.merge(&key, &value).unwrap();
                    batch.merge(&key, &value).unwrap();
                    let merged = model.get(&key).map_or(value.clone(), |had| format!("{had},{value}"));
                    model.insert(key, merged);
                }
                5 | 6 => {
                    transaction.set_save_point();
                    batch.set_save_point();
                    saved.push(model.clone());
                }
                7 => {
                    let rolled = [transaction.rollback_to_save_point(), batch.rollback_to_save_point()];
                    match saved.pop() {
                        Some(before) => {
                            rolled.into_iter().for_each(Result::unwrap);
                            model = before;
                        }
                        None => rolled.into_iter().for_each(|none| assert_eq!(kind(none), Some(ErrorKind::NotFound))),
                    }
                }
                _ => {
                    let popped = [transaction.pop_save_point(), batch.pop_save_point()];
                    let expected = if saved.pop().is_some() { None } else { Some(ErrorKind::NotFound) };
                    popped.into_iter().for_each(|popped| assert_eq!(kind(popped), expected));
                }
            }
            if random.bool() {
                assert_eq!(shown(&mut transaction), model, "round {round}, step {step}");
            }
        }
        if random.bool() {
            transaction.commit(&UNSYNCED).unwrap();
        } else {
            drop(transaction);
            db.write(batch, &UNSYNCED).unwrap();
        }
        stored = model;
        assert_eq!(shown(&mut db.transaction()), stored, "round {round}");
    }
    assert!(stored.len() > 3, "{stored:?}");
    // A batch that is cleared has none.
    let mut batch = WriteBatch::new();
    batch.set_save_point();
    batch.clear();
    assert_eq!(kind(batch.rollback_to_save_point()), Some(ErrorKind::NotFound));
}

/// Goal: a batch that named no column family when it was saved is for any store again; one that did stays with that one.
#[test]
fn a_batch_that_is_rolled_back_is_for_the_store_that_it_was_for() {
    let [first, second] = [open(&SimDisk::new()), open(&SimDisk::new())];
    let [of_first, of_second] = [&first, &second].map(Db::default_column_family);
    let mut batch = WriteBatch::new();
    batch.put("k", "v").unwrap();
    batch.set_save_point();
    batch.put_cf(&of_first, "k", "first").unwrap();
    batch.set_save_point();
    batch.put_cf(&of_first, "k", "again").unwrap();
    batch.rollback_to_save_point().unwrap();
    assert_eq!(kind(batch.put_cf(&of_second, "k", "second")), Some(ErrorKind::InvalidArgument));
    batch.rollback_to_save_point().unwrap();
    batch.put_cf(&of_second, "k2", "second").unwrap();
    second.write(batch, &UNSYNCED).unwrap();
    assert_eq!(["k", "k2"].map(|key| second.get(key).unwrap().unwrap().to_vec()), [&b"v"[..], b"second"]);
}
