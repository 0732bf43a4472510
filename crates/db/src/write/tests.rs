//! What is seen only from within: logs that were made ahead of time, whatever background thread makes them, and syncs that several
//! changes share.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use esker_env::sim::{Fault, SimDisk, Survivors};
use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber, ValueKind};
use esker_log::scan::RecoveryMode;

use crate::{BlobPartition, Change, Db, ErrorKind, FamilyOptions, Options, Separation, WriteBatch, WriteOptions};

const SYNCED: WriteOptions = WriteOptions { sync: true, disable_wal: false };
/// The default column family.
const FAMILY: [u32; 1] = [0];

fn options(recycled_logs_max: usize) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        write_buffer_count_max: 8,
        separation: Separation::Off,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, recycled_logs_max, families, ..Options::default() }
}

fn open(disk: &SimDisk, recycled_logs_max: usize) -> crate::Result<Db> {
    Db::open_with_env("/store", options(recycled_logs_max), disk.env())
}

/// Begins another log, without a flush.
fn rotate(db: &Db) -> crate::Result<()> {
    db.store().commit.exclusive(|lead| db.store().rotate(lead, &FAMILY))
}

/// What a store holds: the newest of each key.
fn contents(db: &Db) -> BTreeMap<u8, u32> {
    let entry = |entry: crate::Result<(Vec<u8>, Vec<u8>)>| {
        let (key, value) = entry.unwrap();
        (key[0], u32::from_be_bytes(value[..4].try_into().unwrap()))
    };
    db.iter().unwrap().entries().map(|found| entry(found.map(|(key, value)| (key.to_vec(), value.to_vec())))).collect()
}

/// What was written, in order, and how many from the front were acknowledged, and promised to survive power loss.
#[derive(Debug, Default)]
struct Ledger {
    written: Vec<u32>,
    acknowledged: usize,
    durable: usize,
}

impl Ledger {
    fn key(n: u32) -> u8 {
        (n % 5) as u8
    }

    fn holds(&self, found: &BTreeMap<u8, u32>, least: usize) -> bool {
        (least..=self.written.len()).any(|count| {
            let expected: BTreeMap<u8, u32> = self.written[..count].iter().map(|&n| (Self::key(n), n)).collect();
            expected == *found
        })
    }
}

/// Writes while logs are made ahead of time and taken, and memtables are sealed and flushed. Ends when nothing can be written any more.
fn life(disk: &SimDisk, recycled_logs_max: usize) -> Ledger {
    let mut ledger = Ledger::default();
    let Ok(db) = open(disk, recycled_logs_max) else { return ledger };
    let family = db.default_column_family();
    for n in 1..=30u32 {
        // Should it fail, whoever needs the log makes it.
        if n % 6 == 2 {
            let _ = db.store().make_spare_log();
        }
        let sealed = match n % 12 {
            6 => rotate(&db),
            0 => db.flush(),
            _ => Ok(()),
        };
        if sealed.is_ok() && n % 12 == 0 {
            ledger.durable = ledger.acknowledged;
        }
        ledger.written.push(n);
        let options = if n % 7 == 0 { SYNCED } else { WriteOptions::default() };
        match db.put_cf(&family, [Ledger::key(n)], n.to_be_bytes().repeat(40), &options) {
            Ok(()) => {
                ledger.acknowledged = ledger.written.len();
                ledger.durable = if options.sync { ledger.acknowledged } else { ledger.durable };
            }
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Exhausted) && !disk.is_dead() => {
                ledger.written.pop();
            }
            Err(_) => break,
        }
    }
    std::mem::forget(db);
    ledger
}

fn survivors(seed: u64) -> [Survivors; 3] {
    [Survivors::Sample { seed }, Survivors::Nothing, Survivors::Everything]
}

fn assert_holds(ledger: &Ledger, least: usize, image: &SimDisk, recycled: usize, what: &str) {
    let db = open(image, recycled).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = contents(&db);
    assert!(ledger.holds(&found, least), "{what}: {found:?} of {ledger:?}");
    db.put("after", "x").unwrap();
    db.close().unwrap();
}

/// Goal: wherever the machine dies while logs are made ahead of time and taken, what was promised is there, in order.
#[test]
fn spare_logs_lose_nothing_wherever_the_machine_dies() {
    for recycled in [0, 2] {
        let healthy = SimDisk::new();
        healthy.set_tracing(true);
        assert_eq!(life(&healthy, recycled).acknowledged, 30);
        let made =
            |word: &str| healthy.trace().iter().filter(|line| line.contains(word) && line.contains(".log")).count();
        assert!(made("create") + made("rename") >= 6, "one for each rotation, and the first");
        for n in 0..healthy.op_count() {
            let disk = SimDisk::new();
            disk.die_after(n);
            let ledger = life(&disk, recycled);
            let what = format!("{recycled} logs kept, died at operation {n}");
            assert_holds(&ledger, ledger.acknowledged, &disk.after_process_death(), recycled, &what);
            for survivors in survivors(n) {
                let what = format!("{what}, {survivors:?}");
                assert_holds(&ledger, ledger.durable, &disk.after_power_loss(survivors), recycled, &what);
            }
        }
    }
}

/// Goal: whatever call fails while logs are made ahead of time and taken, a failure that says that nothing was written is true, and
/// what was promised is there.
#[test]
fn spare_logs_lose_nothing_whatever_call_fails() {
    for recycled in [0, 2] {
        let healthy = SimDisk::new();
        life(&healthy, recycled);
        let faults = [Fault::Eio, Fault::NoSpace, Fault::EioAfter, Fault::ShortWrite { kept_bytes: 5 }];
        // Each kind of fault at every fourth operation, another one where logs are kept.
        for (n, &fault) in (0..healthy.op_count()).zip(faults.iter().cycle().skip(recycled)) {
            let disk = SimDisk::new();
            disk.fail_at(n, fault);
            let ledger = life(&disk, recycled);
            let what = format!("{recycled} logs kept, operation {n} fails with {fault:?}");
            for survivors in survivors(n) {
                let what = format!("{what}, {survivors:?}");
                assert_holds(&ledger, ledger.durable, &disk.after_power_loss(survivors), recycled, &what);
            }
            assert_holds(&ledger, ledger.acknowledged, &disk.after_process_death(), recycled, &what);
        }
    }
}

/// Goal: a log that was being made when another one was needed at once is not taken afterwards: logs count in the order of
/// their numbers, and a power loss takes no write without all that came after it.
#[test]
fn a_spare_log_that_came_too_late_is_not_taken() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    let store = db.store();
    db.put([1], [1; 600]).unwrap();
    let late = store.make_log().unwrap();
    rotate(&db).unwrap();
    db.put([2], [2; 600]).unwrap();
    store.state.lock().spare_log = Some(late);
    rotate(&db).unwrap();
    db.put([3], [3; 600]).unwrap();
    std::mem::forget(db);
    for seed in 0..100 {
        let db = open(&disk.after_power_loss(Survivors::Sample { seed }), 0).unwrap();
        let keys: Vec<u8> = contents(&db).into_keys().collect();
        assert!([1, 2, 3].starts_with(&keys), "seed {seed}: {keys:?}");
    }
    assert_eq!(contents(&open(&disk.after_process_death(), 0).unwrap()).len(), 3);
}

/// Goal: a log that was begun in vain, and stands between two others, does not hide that a power loss took the end of the first.
#[test]
fn a_spare_log_that_nobody_took_hides_nothing_of_the_one_before_it() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    db.put([1], [1; 600]).unwrap();
    drop(db.store().make_log().unwrap());
    rotate(&db).unwrap();
    db.put([2], [2; 600]).unwrap();
    std::mem::forget(db);
    for seed in 0..60 {
        let db = open(&disk.after_power_loss(Survivors::Sample { seed }), 0).unwrap();
        let keys: Vec<u8> = contents(&db).into_keys().collect();
        assert!([1, 2].starts_with(&keys), "seed {seed}: {keys:?}");
    }
}

/// Goal: a log that was made in vain goes when the store is closed.
#[test]
fn a_spare_log_does_not_outlive_the_store() {
    let logs = |spare: bool| {
        let disk = SimDisk::new();
        let db = open(&disk, 0).unwrap();
        db.put("key", "value").unwrap();
        if spare {
            db.store().make_spare_log().unwrap();
        }
        db.close().unwrap();
        disk.paths().iter().filter(|path| path.extension().is_some_and(|found| found == "log")).count()
    };
    assert_eq!((logs(false), logs(true)), (1, 1));
}

/// Goal: where no log says what became of the one before it, as in a store that RocksDB wrote, only the last one may end torn, though
/// both carry their numbers as logs do that were written over.
/// Method: the second log is begun without its note.
#[test]
fn a_spare_log_without_a_note_makes_the_one_before_it_no_last_one() {
    let disk = SimDisk::new();
    let db = open(&disk, 2).unwrap();
    let store = db.store();
    db.put([1], [1; 600]).unwrap();
    db.put([2], [2; 600]).unwrap();
    let first = store.commit.exclusive(|lead| {
        let number = store.new_file_number();
        let path = store.path_of(&esker_format::file_name::FileName::Wal(number));
        lead.wal = Some(store.create_log(number, &path).unwrap());
        store.state.lock().wals.insert(number, 0);
        std::mem::replace(&mut lead.wal_number, number)
    });
    assert!(first < FileNumber::MAX);
    db.put([3], [3; 600]).unwrap();
    let path = store.path_of(&esker_format::file_name::FileName::Wal(first));
    std::mem::forget(db);
    let disk = disk.after_process_death();
    let whole = disk.file_bytes(&path).unwrap();
    let end = whole.iter().rposition(|&byte| byte != 0).unwrap();
    disk.overwrite(&path, whole[..end - 5].to_vec());
    let options = Options { wal_recovery: RecoveryMode::TolerateTornTail, ..options(2) };
    let error = Db::open_with_env("/store", options, disk.env()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(path.as_path())), "{error}");
}

/// Goal: a synced write that fails leaves nothing behind that a later one is shadowed by, or an open takes for damage, whatever call
/// fails while the log before is not durable yet.
#[test]
fn a_synced_write_that_fails_beside_an_ended_log_leaves_nothing() {
    let mut at_write = options(0);
    for family in at_write.families.values_mut() {
        family.separation = Separation::AtWrite;
        family.min_blob_size = 100;
        family.blob_partition = Some(BlobPartition::new(|key, _| key[0] % 2));
    }
    let value = |n: u32| n.to_be_bytes().repeat(40);
    let mut refused = 0;
    for options in [options(0), options(2), at_write] {
        let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env());
        for n in 0.. {
            let disk = SimDisk::new();
            let db = open(&disk).unwrap();
            db.put([0], value(10)).unwrap();
            rotate(&db).unwrap();
            let at = disk.op_count() + n;
            disk.fail_at(at, Fault::Eio);
            let mut batch = WriteBatch::new();
            batch.put([1], value(11)).unwrap();
            batch.put([2], value(12)).unwrap();
            let written = db.write(batch, &SYNCED).map_err(|error| error.kind());
            if disk.op_count() <= at {
                assert_eq!(written, Ok(()));
                break;
            }
            let later = db.put_cf(&db.default_column_family(), [2], value(22), &SYNCED);
            std::mem::forget(db);
            let expected = match (written, later.map_err(|error| error.kind())) {
                (Err(ErrorKind::Io), Ok(())) => [[(0, 10), (2, 22)].into()].to_vec(),
                // Unknown what is there, and nothing was written upon it.
                (Err(ErrorKind::ReadOnly), Err(ErrorKind::ReadOnly)) => {
                    [BTreeMap::new(), [(0, 10)].into(), [(0, 10), (1, 11), (2, 12)].into()].to_vec()
                }
                other => panic!("operation {n}: {other:?}"),
            };
            refused += usize::from(expected.len() == 1);
            let images = survivors(n).map(|survivors| disk.after_power_loss(survivors));
            for image in images.into_iter().chain([disk.after_process_death()]) {
                let found = contents(&open(&image).unwrap_or_else(|error| panic!("operation {n}: {error}")));
                assert!(expected.contains(&found), "operation {n}: {found:?}");
            }
        }
    }
    assert!(refused >= 6, "the seal, and the append, at least: {refused}");
}

/// Goal: where a power loss took the end of a log and the beginning of the next, with the note that the first was not durable, the store
/// ends with the first, in every mode that goes on at all; a third log does not change that, unless it says that the second was durable.
#[test]
fn a_log_without_its_beginning_makes_the_one_before_it_no_earlier_one() {
    // The last write is synced, and told of by one more, where `is_durable`.
    let scene = |logs: u8, is_durable: bool| {
        let disk = SimDisk::new();
        let db = open(&disk, 0).unwrap();
        for n in 0..2 * logs {
            if n > 0 && n % 2 == 0 {
                rotate(&db).unwrap();
            }
            db.put([n], [7; 600]).unwrap();
        }
        if is_durable {
            db.put_cf(&db.default_column_family(), [90], [7; 600], &SYNCED).unwrap();
            db.put([91], [7; 600]).unwrap();
        }
        std::mem::forget(db);
        let disk = disk.after_process_death();
        let paths = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == "log"));
        let paths: Vec<_> = paths.collect();
        assert_eq!(paths.len(), usize::from(logs));
        let mut first = disk.file_bytes(&paths[0]).unwrap();
        first.truncate(first.iter().rposition(|&byte| byte != 0).unwrap() - 5);
        disk.overwrite(&paths[0], first);
        let mut second = disk.file_bytes(&paths[1]).unwrap();
        second[..512].fill(0);
        disk.overwrite(&paths[1], second);
        disk
    };
    for mode in [RecoveryMode::PointInTime, RecoveryMode::TolerateTornTail] {
        let open =
            |disk: &SimDisk| Db::open_with_env("/store", Options { wal_recovery: mode, ..options(0) }, disk.env());
        for logs in [2, 3] {
            let db = open(&scene(logs, false)).unwrap_or_else(|error| panic!("{mode:?}, {logs} logs: {error}"));
            assert_eq!(contents(&db).into_keys().collect::<Vec<_>>(), [0], "{mode:?}, {logs} logs");
        }
        let error = open(&scene(3, true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{mode:?}: {error}");
    }
}

/// Writes of four keys, each by a thread of its own, all in line when the first of them is let in; what each was told.
fn together(db: &Db, write: impl Fn(u32) -> crate::Result<()> + Sync) -> Vec<Result<(), ErrorKind>> {
    let write = &write;
    std::thread::scope(|scope| {
        let writers: Vec<_> = db.store().commit.exclusive(|_| {
            let writers = (0..4).map(|n| scope.spawn(move || write(n).map_err(|error| error.kind()))).collect();
            while db.store().commit.waiting_count() < 4 {
                std::thread::yield_now();
            }
            writers
        });
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// Changes go alone from now on, as where others have lost (U5 of `update`).
fn change_alone(db: &Db) {
    db.store().alone_for.store(u32::MAX, Ordering::Relaxed);
}

/// The same of changes.
fn changes(db: &Db) -> Vec<Result<(), ErrorKind>> {
    let family = db.default_column_family();
    together(db, |n| {
        let mut decide = |_: Option<&[u8]>| Change::Put(n.to_be_bytes().to_vec());
        db.store().update(&family, &[n as u8], SYNCED, &mut decide).map(drop)
    })
}

/// Goal: a change that was to be synced is durable when it returns, and those who come together share syncs (U4).
#[test]
fn changes_that_are_a_shared_sync_are_all_durable() {
    for (goes_alone, most) in [(true, 2), (false, 1)] {
        let disk = SimDisk::new();
        let db = open(&disk, 0).unwrap();
        if goes_alone {
            change_alone(&db);
        }
        let before = db.stats().wal_syncs;
        assert!(changes(&db).iter().all(Result::is_ok));
        let syncs = db.stats().wal_syncs - before;
        assert!(
            (1..=most).contains(&syncs),
            "{syncs}: the last that goes alone may come too late for that of the others"
        );
        let db = open(&disk.after_power_loss(Survivors::Nothing), 0).unwrap();
        assert_eq!(contents(&db), (0..4).map(|n| (n as u8, n)).collect());
    }
}

/// Goal: of changes of one key that come together one joins a group and wins; the others go on alone, and none is lost (U5).
#[test]
fn changes_of_one_key_in_one_group_are_all_made() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    let family = db.default_column_family();
    let add = |_| {
        let mut decide = |found: Option<&[u8]>| {
            let before = found.map_or(0, |found| u32::from_be_bytes(found.try_into().unwrap()));
            Change::Put((before + 1).to_be_bytes().to_vec())
        };
        db.store().update(&family, &[7], SYNCED, &mut decide).map(drop)
    };
    assert!(together(&db, add).iter().all(Result::is_ok));
    assert_eq!(contents(&db), [(7, 4)].into());
    assert!(db.store().alone_for.load(Ordering::Relaxed) > 200, "some have lost");
    assert_eq!(contents(&open(&disk.after_power_loss(Survivors::Nothing), 0).unwrap()), [(7, 4)].into());
}

/// Goal: of changes whose shared sync fails none is acknowledged, whoever of them ran it; the next life builds on none of them that a power
/// loss may take.
#[test]
fn changes_whose_shared_sync_fails_are_not_acknowledged() {
    // One append for each that goes alone, one for all that are of one group; what follows is the sync.
    for (goes_alone, appends) in [(true, 4), (false, 1)] {
        assert_not_acknowledged(goes_alone, appends);
    }
}

fn assert_not_acknowledged(goes_alone: bool, appends: u64) {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    if goes_alone {
        change_alone(&db);
    }
    db.put_cf(&db.default_column_family(), [9], 9u32.to_be_bytes(), &SYNCED).unwrap();
    disk.fail_at(disk.op_count() + appends, Fault::Eio);
    assert_eq!(changes(&db), [Err(ErrorKind::ReadOnly); 4]);
    assert_eq!(
        contents(&db).len(),
        if goes_alone { 5 } else { 1 },
        "those of a group are not seen before they are durable"
    );
    assert_eq!(db.put("after", "x").unwrap_err().kind(), ErrorKind::ReadOnly);
    std::mem::forget(db);
    for survivors in survivors(7) {
        let found = contents(&open(&disk.after_power_loss(survivors), 0).unwrap());
        assert_eq!(found.get(&9), Some(&9), "{survivors:?}");
    }
    let again = disk.after_process_death();
    let db = open(&again, 0).unwrap();
    let kept = contents(&db);
    db.put_cf(&db.default_column_family(), [8], 8u32.to_be_bytes(), &SYNCED).unwrap();
    std::mem::forget(db);
    let found = contents(&open(&again.after_power_loss(Survivors::Nothing), 0).unwrap());
    assert_eq!(found, kept.into_iter().chain([(8, 8)]).collect());
}

/// Goal: of writes whose shared sync fails nothing is ever seen, though it was in the memtable by then; of those that succeed, all.
#[test]
fn writes_whose_shared_sync_fails_are_not_seen() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    let family = db.default_column_family();
    let write = |more: u32| together(&db, |n| db.put_cf(&family, [n as u8], (n + more).to_be_bytes(), &SYNCED));
    let syncs = db.stats().wal_syncs;
    assert_eq!(write(0), [Ok(()); 4]);
    assert_eq!(db.stats().wal_syncs, syncs + 1, "they are one group");
    assert_eq!(contents(&db), (0..4).map(|n| (n as u8, n)).collect());
    db.delete_cf(&family, [3], &SYNCED).unwrap();
    // Their append, then the sync.
    disk.fail_at(disk.op_count() + 1, Fault::Eio);
    assert_eq!(write(10), [Err(ErrorKind::ReadOnly); 4]);
    let in_memory = family.0.view.load().active.memtable.get(&internal_key::lookup(&[3], SequenceNumber::MAX));
    assert_eq!(in_memory.unwrap().kind, ValueKind::Value, "it is there");
    assert_eq!(contents(&db), (0..3).map(|n| (n as u8, n)).collect());
    assert_eq!(db.get([3]).unwrap(), None);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    std::mem::forget(db);
    for image in survivors(7).map(|survivors| disk.after_power_loss(survivors)) {
        let found = contents(&open(&image, 0).unwrap());
        let is_one = |key: &u8, n: u32| [Some(&n), Some(&(n + 10))].contains(&found.get(key));
        assert!((0..3).all(|n| is_one(&(n as u8), n)), "{found:?}");
    }
}

/// Goal: a change that is told as `Exhausted` did not take effect, whatever runs out of space after its append: the next log, which it makes due
/// as it fills the memtable; its sync; the end of the log before.
#[test]
fn a_synced_change_that_is_exhausted_did_not_take_effect() {
    let mut unknown = 0;
    let cases = [(false, false), (true, false), (false, true), (true, true)];
    for ((lasts, follows_a_log), goes_alone) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        for n in 0.. {
            let disk = SimDisk::new();
            let db = open(&disk, 0).unwrap();
            if goes_alone {
                change_alone(&db);
            }
            if follows_a_log {
                db.put([9], [9; 600]).unwrap();
                rotate(&db).unwrap();
            }
            let at = disk.op_count() + n;
            if lasts {
                disk.fail_from(at, Fault::NoSpace);
            } else {
                disk.fail_at(at, Fault::NoSpace);
            }
            let changed = db.put_if_absent(&db.default_column_family(), [1], vec![1; 70 << 10], &SYNCED);
            if disk.op_count() <= at {
                assert!(changed.unwrap());
                break;
            }
            let (is_there, changed) = (db.get([1]).unwrap().is_some(), changed.map_err(|error| error.kind()));
            let what = format!(
                "operation {n}, lasts: {lasts}, follows a log: {follows_a_log}, alone: {goes_alone}: {changed:?}"
            );
            match changed {
                Err(ErrorKind::Exhausted) => assert!(!is_there, "{what}"),
                Err(ErrorKind::Io) => {
                    assert!(is_there, "{what}");
                    unknown += 1;
                }
                Err(kind) => assert_eq!(kind, ErrorKind::ReadOnly, "{what}"),
                Ok(is_changed) => assert!(is_changed && is_there, "{what}"),
            }
        }
    }
    assert!(unknown > 0, "a log that cannot be ended is one of them");
}

/// Goal: a deletion is not acknowledged by a store that became read-only as its memtable was sealed: that need not succeed, but what it does counts.
#[test]
fn a_deletion_at_the_limit_is_refused_where_its_seal_made_the_store_read_only() {
    let mut failed = 0;
    for n in 0.. {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", Options { max_disk_bytes: 8 << 20, ..options(0) }, disk.env()).unwrap();
        db.put([1], [1; 100]).unwrap();
        // Nothing is left, and this takes more than a deletion or two.
        db.store().room.take_back();
        let at = disk.op_count() + n;
        disk.fail_at(at, Fault::Eio);
        let deleted = db.delete(vec![2; 40 << 10]);
        if disk.op_count() <= at {
            break;
        }
        if db.store().failure().is_some() {
            assert_eq!(deleted.map_err(|error| error.kind()), Err(ErrorKind::ReadOnly), "operation {n}");
            failed += 1;
        }
    }
    assert!(failed > 0);
}

/// Goal: only a store that is read-only says so: a new log that can neither take its first record nor be cut is given up, and the next one
/// tried. One that cannot be removed either ends all writing: to an open it might pass for damage.
#[test]
fn a_log_that_cannot_be_begun_makes_no_store_read_only_unless_it_stays() {
    let (mut refused, mut ended) = (0, 0);
    for (n, is_for_good) in (0..10).flat_map(|n| [(n, false), (n, true)]) {
        let disk = SimDisk::new();
        let db = open(&disk, 0).unwrap();
        db.put([1], [1; 100]).unwrap();
        let at = disk.op_count() + n;
        disk.fail_at(at, Fault::Eio);
        disk.fail_at(at + 1, Fault::Eio);
        if is_for_good {
            disk.fail_from(at, Fault::Eio);
        }
        let rotated = rotate(&db);
        if disk.op_count() <= at {
            continue;
        }
        disk.heal();
        let stays = db.store().failure().is_some();
        let kind = if stays { ErrorKind::ReadOnly } else { ErrorKind::Io };
        assert_eq!(rotated.map_err(|error| error.kind()), Err(kind), "operation {n}");
        assert!(is_for_good || !stays, "operation {n}");
        if !stays {
            rotate(&db).unwrap();
        }
        assert_eq!(db.put([2], [2; 100]).is_ok(), !stays, "operation {n}");
        *if stays { &mut ended } else { &mut refused } += 1;
        drop(db);
        assert_eq!(contents(&open(&disk, 0).unwrap()).len(), if stays { 1 } else { 2 }, "operation {n}");
    }
    assert!(refused > 3 && ended == 1, "{refused} {ended}");
}

/// Goal: what another write of its group fails for is no matter of a change that is to be synced.
#[test]
fn a_change_whose_group_fails_is_synced_by_itself() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    change_alone(&db);
    let (store, family) = (db.store(), db.default_column_family());
    let wait_for = |count: usize| {
        while store.commit.waiting_count() < count {
            std::thread::yield_now();
        }
    };
    // After the change's append, that of the group.
    disk.fail_at(disk.op_count() + 1, Fault::NoSpace);
    let (changed, put) = std::thread::scope(|scope| {
        let (change, put) = store.commit.exclusive(|_| {
            let change = scope.spawn(|| db.put_if_absent(&family, [1], 1u32.to_be_bytes(), &SYNCED));
            wait_for(1);
            // Until the sync of the change stands behind the put.
            scope.spawn(|| store.commit.exclusive(|_| wait_for(2)));
            wait_for(2);
            let put = scope.spawn(|| db.put_cf(&family, [2], [2; 32 << 10], &WriteOptions::default()));
            wait_for(3);
            (change, put)
        });
        (change.join().unwrap(), put.join().unwrap())
    });
    assert_eq!(put.map_err(|error| error.kind()), Err(ErrorKind::Exhausted));
    assert_eq!(changed.map_err(|error| error.kind()), Ok(true));
    assert_eq!(contents(&open(&disk.after_power_loss(Survivors::Nothing), 0).unwrap()), [(1, 1)].into());
}

/// Goal: to flush a family that has nothing in memory costs nothing, however often it is done: no log, and no space, while writes of another
/// family keep the logs from going.
#[test]
fn a_flush_of_nothing_begins_no_log() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    let idle = FamilyOptions { write_buffer_bytes: 64 << 10, ..FamilyOptions::default() };
    let idle = db.create_column_family("idle", idle).unwrap();
    db.put([0], [0; 100]).unwrap();
    let used = db.store().room.used();
    for n in 1..=100 {
        db.put([n], [n; 100]).unwrap();
        db.flush_cf(&idle).unwrap();
        db.compact_range(&idle, None, None).unwrap();
    }
    let paths = disk.paths();
    let logs = paths.iter().filter(|path| path.extension().is_some_and(|found| found == "log")).count();
    assert!(logs <= 2, "{logs}");
    let grown = db.store().room.used().saturating_sub(used);
    assert!(grown <= 64 << 10, "{grown} bytes");
    assert!(db.store().ended_logs.lock().is_empty());
}

/// Goal: sealed memtables hold writers back as soon as there are many, not only once the next one of them is flushed.
/// Method: flushes wait to be installed.
#[test]
fn memtables_that_wait_for_a_flush_slow_writers_down_at_once() {
    let disk = SimDisk::new();
    let options = Options { background_jobs: 1, ..options(0) };
    let count_max = options.families["default"].write_buffer_count_max as u8;
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let installer = db.store().installer.lock();
    let rates: Vec<u64> = (0..=count_max / 2)
        .map(|n| {
            db.put([n], [n; 100]).unwrap();
            rotate(&db).unwrap();
            db.store().delayed_rate.load(Ordering::Relaxed)
        })
        .collect();
    drop(installer);
    let (last, before) = rates.split_last().unwrap();
    assert!(*last > 0 && before.iter().all(|&rate| rate == 0), "{rates:?}");
}

/// Goal: a panic of who decides is a matter of its caller alone, if it happens where nobody can come in between, too (U3).
#[test]
fn a_panic_while_deciding_ends_no_writing() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    let family = db.default_column_family();
    let mut calls = 0u32;
    let update = || {
        db.update(&family, [1], &SYNCED, |_| {
            calls += 1;
            assert!(calls <= 16, "on purpose");
            // Faster than whoever decides.
            db.put([1], calls.to_be_bytes()).unwrap();
            Change::Delete
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
    assert_eq!(calls, 17);
    db.put([2], 2u32.to_be_bytes()).unwrap();
    assert!(db.put_if_absent(&family, [3], 3u32.to_be_bytes(), &SYNCED).unwrap());
    assert!(db.stats().background_error.is_none());
    assert_eq!(contents(&db), [(1, 16), (2, 2), (3, 3)].into());
}

/// Goal: after a panic of a leader nobody writes, in company or alone, as numbers may be logged that it did not count; and everybody is told.
#[test]
fn after_a_panic_of_a_leader_nobody_writes() {
    let disk = SimDisk::new();
    let db = open(&disk, 0).unwrap();
    db.put([1], 1u32.to_be_bytes()).unwrap();
    let lead = || db.store().alone(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(lead)).is_err());
    let read_only = |result: crate::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly);
    read_only(db.put([2], 2u32.to_be_bytes()));
    read_only(db.put_if_absent(&db.default_column_family(), [3], [3], &WriteOptions::default()).map(drop));
    read_only(db.flush());
    read_only(db.create_column_family("other", FamilyOptions::default()).map(drop));
    assert!(db.stats().background_error.is_some_and(|error| error.kind() == ErrorKind::ReadOnly));
    assert_eq!(contents(&db), [(1, 1)].into());
}
