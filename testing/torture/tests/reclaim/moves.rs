//! What is moved stays what it is, whatever else happens.

use std::sync::{Arc, Mutex};

use esker::env::Env;
use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::{Db, ErrorKind, Options, ReadOptions, ReclaimMode, Separation};
use esker_torture::crash::may_end_writes;
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::{Contents, forward};
use esker_torture::numbered::{assert_sound, contents, files, key};

use super::{BLOB_FILE_BYTES, garbage, open, options, value};

/// Goal: what a reclaim by hand promises: no garbage is left, the values are what they were, in as many bytes as they
/// need, and a plan told so before.
#[test]
fn a_reclaim_leaves_no_garbage_and_every_value() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    let family = db.default_column_family();
    let before = db.stats().families[0].clone();
    let plan = db.reclaim_plan(&family, 0.0).unwrap();
    assert_eq!(plan.freed_bytes, before.blob_garbage_bytes);
    assert_eq!(plan.files.len(), before.blob_files);
    let reclaimed = db.reclaim(&family, 0.0).unwrap();
    let after = db.stats().families[0].clone();
    assert_eq!((after.blob_garbage_bytes, after.blob_live_bytes), (0, before.blob_live_bytes));
    assert_eq!(reclaimed.bytes_before - reclaimed.bytes_after, before.blob_garbage_bytes);
    assert!(reclaimed.passes > 0);
    assert_eq!(files(&disk, "blob").len(), after.blob_files, "what was emptied is gone");
    assert!(contents(&db) == expected);
    assert_sound(&db, "after reclaim");
    assert_eq!(db.reclaim(&family, 0.0).unwrap().passes, 0, "nothing is left to do");
    let off = open(&SimDisk::new(), ReclaimMode::Off);
    assert_eq!(off.reclaim(&off.default_column_family(), 0.5).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.reclaim(&family, f64::NAN).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    assert!(contents(&open(&disk, ReclaimMode::Manual)) == expected);
}

/// Goal (B1): a deleted key stays deleted, wherever its deletion and its older values lie when they are moved.
/// Method: relocation comes between any two of the steps by which a deletion finds its way down.
#[test]
fn b1_deleted_keys_stay_deleted_through_reclaim() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let mut expected = garbage(&db);
    let family = db.default_column_family();
    for round in 0..6u32 {
        for n in (round..600).step_by(6) {
            db.delete(key(n)).unwrap();
            expected.remove(&key(n));
            if n % 12 == round {
                db.put(key(n + 1), value(n, round + 2)).unwrap();
                expected.insert(key(n + 1), value(n, round + 2));
            }
        }
        db.flush().unwrap();
        if round % 2 == 0 {
            // Every file is emptied then, so tables with fresh deletions in them are rewritten too.
            db.set_separation(&family, Separation::FallBack).unwrap();
        }
        db.reclaim(&family, 0.0).unwrap();
        db.set_separation(&family, Separation::AtFlush).unwrap();
        assert!(contents(&db) == expected, "round {round}");
        let (begin, end) = (key(100 * round), key(100 * round + 150));
        db.compact_range(&family, Some(&begin), Some(&end)).unwrap();
        db.reclaim(&family, 0.0).unwrap();
        assert!(contents(&db) == expected, "round {round}, in part compacted");
        assert_sound(&db, "each round");
    }
    db.compact_range(&family, None, None).unwrap();
    assert!(contents(&db) == expected);
    assert_eq!(db.stats().families[0].deletions, 0);
}

type Hook = Box<dyn FnOnce() + Send>;

/// Goal (B2): what is written, flushed and even compacted while values are being moved wins over what is moved.
#[test]
fn b2_a_put_during_a_reclaim_wins() {
    let disk = SimDisk::new();
    // What happens when the next blob file is made.
    let hook: Arc<Mutex<Option<Hook>>> = Arc::default();
    let asked = Arc::clone(&hook);
    let files = Hooked::new(disk.env().files, move |call| {
        let is_blob = matches!(call, Call::Create(path) if path.extension().is_some_and(|found| found == "blob"));
        let hook = if is_blob { asked.lock().unwrap().take() } else { None };
        hook.into_iter().for_each(|hook| hook());
        Ok(())
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let db = Db::open_with_env("/store", options(ReclaimMode::Manual), env).unwrap();
    let mut expected = garbage(&db);
    let family = db.default_column_family();
    let writer = db.clone();
    let happened = Arc::new(Mutex::new(0));
    let count = happened.clone();
    *hook.lock().unwrap() = Some(Box::new(move || {
        for n in (0..600).step_by(2) {
            writer.put(key(n), value(n, 9)).unwrap();
        }
        writer.delete(key(1)).unwrap();
        writer.flush().unwrap();
        *count.lock().unwrap() += 1;
    }));
    db.reclaim(&family, 0.0).unwrap();
    assert_eq!(*happened.lock().unwrap(), 1);
    (0..600).step_by(2).for_each(|n| drop(expected.insert(key(n), value(n, 9))));
    expected.remove(&key(1));
    assert!(contents(&db) == expected);
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    assert!(contents(&db) == expected);
    assert_sound(&db, "in the end");
}

/// Goal (B3): a file goes with the last who reads it: a snapshot and an iterator read on what they saw, whatever is
/// reclaimed meanwhile, and once they are gone, so are the files.
#[test]
fn b3_readers_keep_their_files_through_reclaim() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    let family = db.default_column_family();
    let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    let pinned = db.get(key(5)).unwrap().unwrap();
    for n in 0..600 {
        db.put(key(n), value(n, 5)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    let held = files(&disk, "blob").len();
    assert!(held > db.stats().families[0].blob_files, "the iterator holds files that no version has any more");
    let mut seen = Contents::new();
    while iterator.valid() {
        seen.insert(iterator.key().to_vec(), iterator.value().unwrap().to_vec());
        iterator.next().unwrap();
    }
    assert!(seen == expected);
    assert!(forward(&db, &family, &then).unwrap().into_iter().collect::<Contents>() == expected);
    assert_eq!(pinned, value(5, 0)[..]);
    drop((iterator, then));
    db.compact_range(&family, None, None).unwrap();
    db.reclaim(&family, 0.0).unwrap();
    assert_eq!(files(&disk, "blob").len(), db.stats().families[0].blob_files);
    assert!(contents(&db) == (0..600).map(|n| (key(n), value(n, 5))).collect());
    assert_sound(&db, "in the end");
}

/// A kind of reclaim, as the tests below try them.
type Kind = (&'static str, fn(&Db) -> esker::Result<()>);

const KINDS: [Kind; 2] = [
    ("relocate", |db| db.reclaim(&db.default_column_family(), 0.0).map(drop)),
    ("fall back", |db| {
        db.set_separation(&db.default_column_family(), Separation::FallBack)?;
        db.compact_range(&db.default_column_family(), None, None)
    }),
];

/// Goal (B4): values, tables and garbage change together: wherever the machine dies in a reclaim, and whatever of the
/// unsynced survives, every value is there, all pointers lead somewhere, and the ledger is exact.
#[test]
fn b4_death_before_every_operation_of_a_reclaim_loses_nothing() {
    for (kind, run) in KINDS {
        let made = SimDisk::new();
        let db = open(&made, ReclaimMode::Manual);
        let expected = garbage(&db);
        db.close().unwrap();
        let healthy = made.after_process_death();
        let db = open(&healthy, ReclaimMode::Manual);
        let first = healthy.op_count();
        run(&db).unwrap();
        let ops = healthy.op_count();
        drop(db);
        assert!(ops - first > 10, "{kind}: {} operations to die at", ops - first);
        for n in first..ops {
            let disk = made.after_process_death();
            let db = open(&disk, ReclaimMode::Manual);
            disk.die_after(n);
            run(&db).unwrap_err();
            drop(db);
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                let what = format!("{kind}: died before operation {n} of {ops}, {survivors:?}");
                let db = open(&disk.after_power_loss(survivors), ReclaimMode::Manual);
                assert!(contents(&db) == expected, "{what}");
                assert_sound(&db, &what);
            }
        }
    }
}

/// Goal (B8): a call that fails in a reclaim is told to whoever asked, changes no answer, and leaves no file behind;
/// and the next try does what this one could not.
#[test]
fn b8_every_call_of_a_reclaim_may_fail_and_says_so() {
    for (kind, run) in KINDS {
        let made = SimDisk::new();
        let db = open(&made, ReclaimMode::Manual);
        let expected = garbage(&db);
        db.close().unwrap();
        let healthy = made.after_process_death();
        let db = open(&healthy, ReclaimMode::Manual);
        let (first, first_read) = (healthy.op_count(), healthy.read_count());
        run(&db).unwrap();
        let (ops, reads) = (healthy.op_count(), healthy.read_count());
        drop(db);
        let faults = (first..ops).flat_map(|n| [(n, Some(Fault::Eio)), (n, Some(Fault::NoSpace))]);
        let read_faults = (first_read..reads).step_by(7).map(|n| (n, None));
        let mut told = 0;
        for (n, fault) in faults.chain(read_faults) {
            let what = format!("{kind}: call {n} fails with {fault:?}");
            let disk = made.after_process_death();
            disk.set_tracing(true);
            let mut db = open(&disk, ReclaimMode::Manual);
            match fault {
                Some(fault) => disk.fail_at(n, fault),
                None => disk.fail_read_at(n, ReadFault::Eio),
            }
            let result = run(&db);
            told += u32::from(result.is_err());
            assert!(contents(&db) == expected, "{what}: answers");
            if result.is_err_and(|error| error.kind() == ErrorKind::ReadOnly) {
                assert!(fault.is_some() && may_end_writes(&disk, n), "{what}: no more writes");
                drop(db);
                db = open(&disk.after_power_loss(Survivors::Everything), ReclaimMode::Manual);
                assert!(contents(&db) == expected, "{what}: answers after reopening");
                continue;
            }
            run(&db).unwrap_or_else(|error| panic!("{what}, and then: {error}"));
            assert!(contents(&db) == expected, "{what}: answers after the next try");
            assert_eq!(db.stats().families[0].blob_garbage_bytes, 0, "{what}");
            assert_sound(&db, &what);
            // What failed to be removed is tried again by whatever asks next.
            db.reclaim(&db.default_column_family(), 0.0).unwrap();
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            assert_eq!(files(&disk, "blob").len(), db.stats().families[0].blob_files, "{what}: files left behind");
        }
        assert!(told > 20, "{kind}: only {told} failures were told");
    }
}

/// Goal (B8): a value that cannot be read keeps its file from being emptied, and nothing else; the user can read why.
#[test]
fn b8_a_damaged_value_keeps_its_own_file_only() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let expected = garbage(&db);
    db.close().unwrap();
    let blobs = files(&disk, "blob");
    // A live value's byte: key 5 was never overwritten.
    let (victim, place) = blobs
        .iter()
        .find_map(|path| {
            let bytes = disk.file_bytes(path).unwrap();
            let value = value(5, 0);
            bytes.windows(value.len()).position(|window| window == value).map(|at| (path.clone(), at as u64))
        })
        .unwrap();
    assert!(disk.flip_bit(&victim, (place + 50) * 8));
    let db = open(&disk, ReclaimMode::Manual);
    let error = db.reclaim(&db.default_column_family(), 0.0).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(victim.as_path())), "{error}");
    db.close().unwrap();
    let options = Options { max_space_amp: 1.05, ..options(ReclaimMode::Auto) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    for n in 600..1200 {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    assert_eq!(stats.background_error.map(|error| error.kind()), Some(ErrorKind::Corruption));
    assert!(stats.relocations > 0 && disk.paths().contains(&victim));
    assert!(
        files(&disk, "blob").iter().filter(|path| blobs.contains(path)).count() < blobs.len(),
        "others were emptied"
    );
    for (key, value) in expected.iter().filter(|(at, _)| **at != key(5)) {
        assert!(db.get(key).unwrap().as_deref() == Some(value));
    }
    assert_eq!(db.get(key(5)).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Goal (B9): a reclaim needs room for about one blob file and the tables, however many files there are to empty.
/// Method: the disk has no more. Blob files of several sizes make it more than a matter of counting.
#[test]
fn b9_a_reclaim_goes_by_one_blob_file_at_a_time() {
    let disk = SimDisk::new();
    let db = open(&disk, ReclaimMode::Manual);
    let family = db.default_column_family();
    for n in 0..6000 {
        db.put(key(n), value(n, 0)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    for n in (0..6000).filter(|n| n % 5 < 2) {
        db.delete(key(n)).unwrap();
    }
    db.compact_range(&family, None, None).unwrap();
    let stats = db.stats();
    assert!(stats.families[0].blob_files > 25, "{}", stats.families[0].blob_files);
    let used = stats.on_disk.total_bytes();
    let blocks = disk.paths().len() as u64 * 4096;
    disk.set_capacity(Some(used + blocks + 3 * BLOB_FILE_BYTES + 2 * stats.on_disk.table_bytes));
    let reclaimed = db.reclaim(&family, 0.1).unwrap();
    assert!(reclaimed.passes > 10, "{reclaimed:?}");
    assert_eq!(db.stats().families[0].blob_garbage_bytes, 0);
    assert_eq!(contents(&db).len(), 3600);
    assert_sound(&db, "after reclaim");
}
