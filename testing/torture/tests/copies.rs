//! Checkpoints and backups: one moment of the store, beside whoever writes; a store of its own once it is there; and nothing
//! that opens before, wherever the machine dies and whatever call fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::env::sim::{Fault, ReadFault, SimDisk, Survivors};
use esker::env::{Env, Error, FileKind};
use esker::{Copied, Db, ErrorKind, FamilyOptions, Options, Result, Separation, WriteBatch};
use esker_torture::crash::{
    FAULTS, Promise, Replay, Tally, faults, images, kill, may_end_writes, operations, power_losses,
};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::{Model, contents};
use esker_torture::workload::{Ledger, Step, run, steps};
use esker_torture::{options, seeds};
use fastrand::Rng;

const FILE: &str = "copies";
const FAMILIES: [&str; 2] = ["default", "reversed"];
const COPY: &str = "/copies/copy";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Checkpoint,
    Backup,
}

const KINDS: [Kind; 2] = [Kind::Checkpoint, Kind::Backup];

impl Kind {
    fn make(self, db: &Db) -> Result<Copied> {
        match self {
            Self::Checkpoint => db.checkpoint(COPY),
            Self::Backup => db.backup(COPY, &mut |_| ()),
        }
    }
}

fn scene(seed: u64, count: usize) -> (Options, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let options = options::store(&mut random, &FAMILIES, 0);
    let steps = steps(&mut random, &FAMILIES, count);
    (options, steps)
}

fn open(disk: &SimDisk, options: &Options) -> Result<Db> {
    let db = Db::open_with_env("/store", options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

/// A store with what `steps` wrote.
fn filled(disk: &SimDisk, options: &Options, steps: &[Step]) -> Db {
    let db = open(disk, options).unwrap();
    run(&db, steps, &mut Ledger::default()).unwrap();
    db
}

/// What the copy holds; `None` if it is no store.
fn copy_of(disk: &SimDisk, what: &str) -> Option<Model> {
    let options = Options { background_jobs: 0, ..options::known() };
    if disk.env().files.metadata(&Path::new(COPY).join("CURRENT")).is_err() {
        assert!(Db::open_with_env(COPY, options, disk.env()).is_err(), "{what}: it opens");
        return None;
    }
    let db = Db::open_read_only_with_env(COPY, options, disk.env()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
    Some(contents(&db).unwrap())
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    let entries = disk.env().files.list(dir.as_ref()).unwrap_or_default();
    entries.into_iter().filter(|entry| entry.kind == FileKind::File).map(|entry| entry.name).collect()
}

fn clean(db: &Db, what: &str) {
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{what}: {:?}", check.errors);
}

/// Goal: a copy is what the store is at that moment; from then on neither knows of the other, whatever either overwrites,
/// compacts, punches holes into or removes.
#[test]
fn a_copy_and_its_store_go_separate_ways() {
    for seed in seeds(20) {
        for kind in KINDS {
            let what = format!("seed {seed}, {kind:?}");
            let (options, steps) = scene(seed, 150);
            let options = Options { punch_holes: true, ..options };
            let (first, second) = steps.split_at(75);
            let disk = SimDisk::new();
            let db = filled(&disk, &options, first);
            let before = contents(&db).unwrap();
            let copied = kind.make(&db).unwrap();
            assert_eq!(copied.linked > 0, kind == Kind::Checkpoint && copied.files > 0, "{what}");
            run(&db, second, &mut Ledger::default()).unwrap();
            db.column_families().iter().for_each(|family| db.compact_range(family, None, None).unwrap());
            assert!(copy_of(&disk, &what).unwrap() == before, "{what}: the store changed the copy");
            // Now the other way round.
            let after = contents(&db).unwrap();
            let copy = Db::open_with_env(COPY, options.clone(), disk.env()).unwrap();
            run(&copy, second, &mut Ledger::default()).unwrap();
            copy.column_families().iter().for_each(|family| copy.compact_range(family, None, None).unwrap());
            assert!(contents(&copy).unwrap() == after, "{what}: the copy is no store like the first");
            assert!(contents(&db).unwrap() == after, "{what}: the copy changed the store");
            clean(&db, &what);
            clean(&copy, &what);
            copy.close().unwrap();
            db.close().unwrap();
            let db = open(&disk, &options).unwrap();
            assert!(contents(&db).unwrap() == after, "{what}: reopened");
        }
    }
}

/// Goal: beside writers of all kinds a copy shows the same counter in all families, each writer's batches in their order, and
/// everything that was acknowledged before it was asked for.
#[test]
fn copies_beside_writers_are_one_moment() {
    const WRITERS: u64 = 3;
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let family = FamilyOptions {
            write_buffer_bytes: 64 << 10,
            separation,
            min_blob_size: 256,
            blob_file_bytes: 64 << 10,
            level0_compaction_trigger: 2,
            target_file_bytes: 16 << 10,
            ..FamilyOptions::default()
        };
        let families = FAMILIES.map(|name| (name.to_owned(), family.clone())).into();
        let options = Options { create_if_missing: true, background_jobs: 2, families, ..Options::default() };
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        let is_over = AtomicBool::new(false);
        let write = |db: &Db, writer: u64, round: u64| {
            let second = db.column_family("reversed").unwrap();
            let mut batch = WriteBatch::new();
            batch.put(format!("counter{writer}"), round.to_be_bytes()).unwrap();
            batch.put_cf(&second, format!("counter{writer}"), round.to_be_bytes()).unwrap();
            batch.put(format!("value{writer}/{round:06}"), vec![round as u8; (round * 97 % 900) as usize]).unwrap();
            // Without the log, too: a flush must take it.
            let disable_wal = writer == 2;
            db.write(batch, &esker::WriteOptions { disable_wal, ..Default::default() }).unwrap();
        };
        let count = |db: &Db, family: &str, writer: u64| {
            let family = db.column_family(family).unwrap();
            let found = db.get_cf(&family, format!("counter{writer}"), &Default::default()).unwrap();
            found.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
        };
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    (1..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|round| write(db, writer, round));
                });
            }
            for number in 0..12 {
                let target = format!("/copies/{number}");
                let before: Vec<u64> = (0..WRITERS).map(|writer| count(&db, "default", writer)).collect();
                match number % 2 {
                    0 => db.checkpoint(&target).unwrap(),
                    _ => db.backup(&target, &mut |_| ()).unwrap(),
                };
                let read_only = Options { background_jobs: 0, ..Options::default() };
                let copy = Db::open_read_only_with_env(&target, read_only, disk.env()).unwrap();
                clean(&copy, &target);
                for (writer, least) in (0..WRITERS).zip(before) {
                    let rounds = count(&copy, "default", writer);
                    assert_eq!(rounds, count(&copy, "reversed", writer), "{target}: a batch came apart");
                    assert!(rounds >= least, "{target}: {least} were acknowledged before, {rounds} are there");
                    let mut iterator = copy.iter().unwrap();
                    iterator.seek(format!("value{writer}/")).unwrap();
                    for round in 1..=rounds {
                        assert_eq!(iterator.key(), format!("value{writer}/{round:06}").as_bytes(), "{target}");
                        assert_eq!(iterator.value().unwrap().len() as u64, round * 97 % 900, "{target}");
                        iterator.next().unwrap();
                    }
                    let next = format!("value{writer}/");
                    assert!(!iterator.valid() || !iterator.key().starts_with(next.as_bytes()), "{target}: more");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// Goal: wherever a copy dies, the store has lost nothing, the copy is whole or no store, and the same call made again makes it.
#[test]
fn a_copy_is_whole_or_no_store_wherever_it_dies() {
    let test = "a_copy_is_whole_or_no_store_wherever_it_dies";
    let tally = Tally::new(test);
    for seed in seeds(4) {
        for kind in KINDS {
            let replay = Replay { file: FILE, test, seed };
            let (options, steps) = scene(300 + seed, 60);
            let healthy = SimDisk::new();
            let db = filled(&healthy, &options, &steps);
            let expected = contents(&db).unwrap();
            let first = healthy.op_count();
            kind.make(&db).unwrap();
            let ops = healthy.op_count();
            drop(db);
            for n in first..ops {
                let disk = SimDisk::new();
                let db = filled(&disk, &options, &steps);
                kill(&disk, n);
                // Without its last step, that of its mark, it is made.
                let is_made = kind.make(&db).is_ok();
                drop(db);
                for image in images(&disk, n) {
                    let what = format!("{replay}: {kind:?} died at {n} in {first}..{ops}, {}", image.name);
                    tally.image();
                    match copy_of(&image.disk, &what) {
                        Some(found) => assert!(found == expected, "{what}: a copy of something else"),
                        None => {
                            assert!(!is_made, "{what}: it was said to be there");
                            refuses_to_repair(&image.disk, &what);
                        }
                    }
                    again(&image, kind, &options, &expected, &what);
                }
            }
        }
    }
}

/// Goal: a backup of which a repair died is not brought up to date before that is run again: the repair would take what is new for its own. Should
/// somebody have done it all the same, by another program, the repair keeps it.
#[test]
fn a_backup_that_is_half_repaired_is_left_alone() {
    let (options, steps) = scene(700, 60);
    let (first, second) = steps.split_at(40);
    let disk = SimDisk::new();
    let db = filled(&disk, &options, first);
    Kind::Backup.make(&db).unwrap();
    db.close().unwrap();
    let healthy = disk.after_process_death();
    Db::repair_with_env(COPY, options.clone(), healthy.env()).unwrap();
    let mut met = 0;
    for n in 0..healthy.op_count() {
        let what = format!("the repair died at {n}");
        let disk = disk.after_process_death();
        disk.die_after(n);
        Db::repair_with_env(COPY, options.clone(), disk.env()).unwrap_err();
        let disk = disk.after_process_death();
        let db = open(&disk, &options).unwrap();
        run(&db, second, &mut Ledger::default()).unwrap();
        db.flush().unwrap();
        let mark = Path::new(COPY).join("UNFINISHED-REPAIR");
        let marked = disk.file_bytes(&mark);
        if marked.is_some() {
            met += 1;
            let before = names(&disk, COPY);
            let error = Kind::Backup.make(&db).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
            assert!(error.to_string().contains("repair"), "{what}: {error}");
            assert_eq!(names(&disk, COPY), before, "{what}");
            disk.env().files.remove(&mark).unwrap();
        }
        Kind::Backup.make(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Some(marked) = marked {
            disk.overwrite(&mark, marked);
            Db::repair_with_env(COPY, options.clone(), disk.env()).unwrap();
        }
        assert!(copy_of(&disk, &what).unwrap() == contents(&db).unwrap(), "{what}");
    }
    assert!(met > 0, "there never was a mark");
}

/// What its mark tells from a store is not made one.
fn refuses_to_repair(disk: &SimDisk, what: &str) {
    if names(disk, COPY).contains(&"UNFINISHED-COPY".to_owned()) {
        let before = names(disk, COPY);
        let error = Db::repair_with_env(COPY, Options::default(), disk.env()).unwrap_err();
        let has_files = before.iter().any(|name| name.ends_with(".sst") || name.ends_with(".blob"));
        let kind = if has_files { ErrorKind::Corruption } else { error.kind() };
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert!(names(disk, COPY).iter().all(|name| name == "LOCK" || before.contains(name)), "{what}");
    }
}

fn again(image: &esker_torture::crash::Image, kind: Kind, options: &Options, expected: &Model, what: &str) {
    let disk = &image.disk;
    let db = open(disk, options).unwrap_or_else(|error| panic!("{what}: the store: {error}"));
    let now = contents(&db).unwrap();
    if image.promise == Promise::Acknowledged {
        assert!(now == *expected, "{what}: the store lost something");
    }
    clean(&db, what);
    match kind.make(&db) {
        Ok(_) => assert!(copy_of(disk, what).unwrap() == now, "{what}: made again"),
        // It had come to its end but for the answer.
        Err(error) => {
            let is_there = copy_of(disk, what).is_some();
            let is_told = error.kind() == ErrorKind::InvalidArgument && kind == Kind::Checkpoint;
            // A death before the mark was durable leaves a directory that nobody can tell from a damaged store's.
            assert!(
                is_told && (is_there || !names(disk, COPY).contains(&"UNFINISHED-COPY".to_owned())),
                "{what}: {error}"
            );
            assert!(is_there, "{what}: {error}");
        }
    }
}

/// Goal: whatever call fails, the store goes on; what is left of the copy is no store, and nothing of it is in the way of the
/// next; if the copy says that it is there, it is.
#[test]
fn a_copy_that_fails_leaves_nothing() {
    let test = "a_copy_that_fails_leaves_nothing";
    let tally = Tally::new(test);
    for seed in seeds(3) {
        for kind in KINDS {
            let replay = Replay { file: FILE, test, seed };
            let (options, steps) = scene(500 + seed, 60);
            let healthy = SimDisk::new();
            healthy.set_tracing(true);
            let db = filled(&healthy, &options, &steps);
            let expected = contents(&db).unwrap();
            let first = healthy.op_count();
            kind.make(&db).unwrap();
            let ops = healthy.op_count();
            drop(db);
            for (n, fault) in faults(&healthy, first..ops) {
                let what = format!("{replay}: {kind:?}, operation {n} in {first}..{ops} fails with {fault:?}");
                tally.fault();
                let disk = SimDisk::new();
                disk.set_tracing(true);
                let db = filled(&disk, &options, &steps);
                disk.fail_at(n, fault);
                match kind.make(&db) {
                    Ok(_) => assert!(copy_of(&disk, &what).unwrap() == expected, "{what}: it said that it is there"),
                    Err(_) => {
                        assert!(copy_of(&disk, &what).is_none_or(|found| found == expected), "{what}: half a copy");
                        if let Err(error) = kind.make(&db) {
                            // The failure made the store read-only, or was that of taking the mark away.
                            let is_there = copy_of(&disk, &what).is_some();
                            let is_read_only = error.kind() == ErrorKind::ReadOnly && may_end_writes(&disk, n);
                            assert!(is_read_only || is_there, "{what}, made again: {error}");
                        } else {
                            assert!(copy_of(&disk, &what).unwrap() == expected, "{what}, made again");
                        }
                    }
                }
                assert!(contents(&db).unwrap() == expected, "{what}: the store");
                drop(db);
                let db = open(&disk, &options).unwrap();
                assert!(contents(&db).unwrap() == expected, "{what}: the store, reopened");
                clean(&db, &what);
            }
        }
    }
}

/// Goal: no file is left where a copy could not be made because the device is full.
#[test]
fn a_full_device_keeps_no_half_of_a_copy() {
    let (options, steps) = scene(7, 80);
    let disk = SimDisk::new();
    let db = filled(&disk, &options, &steps);
    db.flush().unwrap();
    let expected = contents(&db).unwrap();
    let used = disk.env().files.space("/".as_ref()).map(|space| space.total - space.available).unwrap();
    disk.set_capacity(Some(used + (16 << 10)));
    let error = db.backup(COPY, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(disk.env().files.metadata(COPY.as_ref()).is_err(), "left: {:?}", names(&disk, COPY));
    disk.set_capacity(None);
    db.backup(COPY, &mut |_| ()).unwrap();
    assert!(copy_of(&disk, "with room").unwrap() == expected);
}

/// Goal: a second backup copies what is new and no more, and removes what is old; wherever it dies or fails, there is the
/// earlier backup, whole, or the new one, for a repair, too; and the next one gets through.
#[test]
fn a_backup_is_brought_up_to_date_and_is_a_backup_at_every_moment() {
    let test = "a_backup_is_brought_up_to_date_and_is_a_backup_at_every_moment";
    let tally = Tally::new(test);
    let mut kept = 0;
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(700 + seed, 90);
        let (first, second) = steps.split_at(60);
        let both = |disk: &SimDisk| {
            let db = filled(disk, &options, first);
            db.backup(COPY, &mut |_| ()).unwrap();
            let earlier = contents(&db).unwrap();
            run(&db, second, &mut Ledger::default()).unwrap();
            (db, earlier)
        };
        let healthy = SimDisk::new();
        healthy.set_tracing(true);
        let (db, earlier) = both(&healthy);
        let later = contents(&db).unwrap();
        let from = healthy.op_count();
        let copied = db.backup(COPY, &mut |_| ()).unwrap();
        let ops = healthy.op_count();
        assert!(copied.not_removed.is_empty());
        assert!(copied.kept <= copied.files && (copied.kept == 0 || copied.copied_bytes < copied.bytes));
        kept += copied.kept;
        let found = names(&healthy, COPY);
        let (files, others): (Vec<_>, Vec<_>) =
            found.iter().partition(|name| name.ends_with(".sst") || name.ends_with(".blob"));
        assert_eq!(files.len() as u64, copied.files, "{replay}: {found:?}");
        assert_eq!(others.len(), 5, "{replay}: CURRENT, IDENTITY, LOCK, a manifest and options: {found:?}");
        assert!(copy_of(&healthy, "brought up to date").unwrap() == later, "{replay}");
        // Once more: there is nothing to copy.
        let copied = db.backup(COPY, &mut |_| ()).unwrap();
        assert_eq!((copied.kept, copied.copied_bytes), (copied.files, 0), "{replay}");
        drop(db);
        for n in from..ops {
            let disk = SimDisk::new();
            let (db, _) = both(&disk);
            kill(&disk, n);
            let _ = db.backup(COPY, &mut |_| ());
            drop(db);
            for image in images(&disk, n) {
                let what = format!("{replay}: died at {n} in {from}..{ops}, {}", image.name);
                tally.image();
                let found = copy_of(&image.disk, &what).unwrap_or_else(|| panic!("{what}: no backup is left"));
                assert!(found == earlier || found == later, "{what}: it is neither backup");
                if n % 4 == 0 && image.promise == Promise::Acknowledged {
                    let repaired = image.disk.after_process_death();
                    let report = Db::repair_with_env(COPY, options.clone(), repaired.env()).unwrap();
                    assert!(report.had_manifest, "{what}: {:?}", report.damage);
                    assert!(copy_of(&repaired, &what).unwrap() == found, "{what}: repaired, it is another");
                }
                let db = open(&image.disk, &options).unwrap();
                db.backup(COPY, &mut |_| ()).unwrap_or_else(|error| panic!("{what}, made again: {error}"));
                assert!(copy_of(&image.disk, &what).unwrap() == contents(&db).unwrap(), "{what}, made again");
            }
            for (_, fault) in faults(&healthy, n..n + 1) {
                let what = format!("{replay}: operation {n} in {from}..{ops} fails with {fault:?}");
                tally.fault();
                let disk = SimDisk::new();
                let (db, _) = both(&disk);
                disk.fail_at(n, fault);
                let done = db.backup(COPY, &mut |_| ());
                let found = copy_of(&disk, &what).unwrap_or_else(|| panic!("{what}: no backup is left"));
                assert!(found == later || (done.is_err() && found == earlier), "{what}: it is neither backup");
                if done.is_err() && db.put("writable", "yes").is_ok() {
                    db.backup(COPY, &mut |_| ()).unwrap_or_else(|error| panic!("{what}, made again: {error}"));
                    assert!(copy_of(&disk, &what).unwrap() == contents(&db).unwrap(), "{what}, made again");
                }
            }
        }
    }
    assert!(kept > 0, "no backup kept a file, so nothing was shown");
}

/// Goal: an idle store, which records no number of the files that only its backups have, never gives one of them to another file.
#[test]
fn numbers_of_an_earlier_backup_come_to_no_other_file() {
    let disk = SimDisk::new();
    let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    // Each takes two numbers, far beyond those that the manifest knows of.
    (0..4).for_each(|_| drop(db.backup(COPY, &mut |_| ()).unwrap()));
    db.close().unwrap();
    let expected = copy_of(&disk, "before").unwrap();
    // Reopened once, twice, and so on, the store comes near those numbers, to them and past them.
    for reopened in 0..6 {
        let disk = disk.after_process_death();
        let open = || Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
        (0..reopened).for_each(|_| open().close().unwrap());
        let db = open();
        let what = format!("reopened {reopened} times");
        db.backup(COPY, &mut |_| ()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(copy_of(&disk, &what).unwrap() == expected, "{what}");
        db.backup(COPY, &mut |_| ()).unwrap_or_else(|error| panic!("{what}, once more: {error}"));
        assert!(copy_of(&disk, &what).unwrap() == expected, "{what}, once more");
        clean(&db, &what);
    }
}

/// Goal: what says that a copy is unfinished does not outlive it: a store that loses its CURRENT later would be taken for what a copy left.
#[test]
fn a_finished_copy_is_not_called_unfinished() {
    let mark = Path::new(COPY).join("UNFINISHED-COPY");
    let (options, steps) = scene(14, 20);
    let disk = SimDisk::new();
    let db = filled(&disk, &options, &steps);
    for kind in KINDS {
        let disk = disk.after_process_death();
        let db = open(&disk, &options).unwrap();
        kind.make(&db).unwrap();
        let disk = disk.after_power_loss(Survivors::Nothing);
        assert!(copy_of(&disk, "after a loss of power").is_some());
        assert!(disk.file_bytes(&mark).is_none(), "{kind:?}");
        // One that an earlier version left.
        disk.env().files.create(&mark).unwrap();
        disk.env().files.sync_dir(COPY.as_ref()).unwrap();
        Db::open_with_env(COPY, options.clone(), disk.env()).unwrap().close().unwrap();
        assert!(disk.after_power_loss(Survivors::Nothing).file_bytes(&mark).is_none(), "{kind:?}, opened");
    }
    drop(db);
}

/// All files of the copy, without its lock.
fn bytes_of_copy(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let all = names(disk, COPY).into_iter().filter(|name| name != "LOCK");
    all.map(|name| (name.clone(), disk.file_bytes(&Path::new(COPY).join(name)).unwrap())).collect()
}

/// Goal: a store that went back to an earlier state and on from there does not touch the backup of its other life where a name tells them
/// apart, whatever the lengths of the files, or where that has writes that it has not.
#[test]
fn a_backup_of_another_life_of_the_store_is_left_alone() {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        separation: Separation::AtFlush,
        min_blob_size: 100,
        blob_compression: esker::Compression::None,
        level0_compaction_trigger: 50,
        level0_slowdown_trigger: 60,
        level0_stop_trigger: 70,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let mut met = 0;
    for sizes in [[3, 3], [3, 30], [30, 3], [3, 300], [300, 3], [300, 400], [400, 300]] {
        for (reopened, rounds) in [(1, 12), (2, 12), (3, 12), (1, 1)] {
            let what = format!("values of {sizes:?} bytes, reopened {reopened} times, {rounds} rounds");
            let disk = SimDisk::new();
            let open = |dir: &str| Db::open_with_env(dir, options.clone(), disk.env()).unwrap();
            let db = open("/store");
            let live = |db: &Db, rounds: u32, value: Vec<u8>| {
                for round in 0..rounds {
                    db.put(format!("{round}"), &value).unwrap();
                    db.flush().unwrap();
                }
            };
            live(&db, 1, b"before".to_vec());
            db.checkpoint("/twin").unwrap();
            live(&db, 6, vec![1; sizes[0]]);
            db.backup(COPY, &mut |_| ()).unwrap();
            let (before, expected) = (bytes_of_copy(&disk), contents(&db).unwrap());
            // Each takes numbers.
            (1..reopened).for_each(|_| open("/twin").close().unwrap());
            let twin = open("/twin");
            live(&twin, rounds, vec![2; sizes[1]]);
            let is_other = |name: &&String| {
                let is_data = name.ends_with(".sst") || name.ends_with(".blob");
                let theirs = disk.file_bytes(&Path::new("/twin").join(name));
                is_data && theirs.is_some_and(|theirs| theirs != before[*name])
            };
            let others = before.keys().filter(is_other).count();
            if others == 0 && rounds > 1 {
                continue;
            }
            met += others;
            let error = twin.backup(COPY, &mut |_| ()).expect_err(&what);
            assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error}");
            assert!(bytes_of_copy(&disk) == before, "{what}: {:?}", names(&disk, COPY));
            assert!(copy_of(&disk, &what).unwrap() == expected, "{what}");
        }
    }
    assert!(met > 20, "{met} names of one were another's");
}

/// Goal: a checkpoint is no earlier backup: nothing of it is touched, though it shares no file with the store any more, or never did.
#[test]
fn a_checkpoint_without_a_file_of_the_store_is_taken_for_no_backup() {
    let (options, steps) = scene(5, 60);
    for is_elsewhere in [false, true] {
        let disk = SimDisk::new();
        let is_data = |path: &Path| path.extension().is_some_and(|end| end == "sst" || end == "blob");
        let is_refused = move |path: &Path| is_elsewhere && path.starts_with(COPY) && is_data(path);
        let files = Hooked::new(disk.env().files, move |call| match call {
            Call::Other(path) if is_refused(path) => {
                Err(Error::new("linking to", path, std::io::ErrorKind::CrossesDevices.into()))
            }
            _ => Ok(()),
        });
        let env = Env { files: Arc::new(files), ..disk.env() };
        filled(&disk, &options, &steps).close().unwrap();
        let db = Db::open_with_env("/store", options.clone(), env).unwrap();
        let copied = db.checkpoint(COPY).unwrap();
        assert_eq!((copied.linked > 0, copied.copied_bytes > 0), (!is_elsewhere, is_elsewhere), "{copied:?}");
        let (before, expected) = (bytes_of_copy(&disk), contents(&db).unwrap());
        run(&db, &steps, &mut Ledger::default()).unwrap();
        db.put("written", "since").unwrap();
        db.column_families().iter().for_each(|family| db.compact_range(family, None, None).unwrap());
        let error = db.backup(COPY, &mut |_| ()).unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("a checkpoint"), "{error}");
        assert!(bytes_of_copy(&disk) == before && copy_of(&disk, "refused").unwrap() == expected);
        // Nothing of it is in the way of a store that is made of it, or in a copy of that.
        let copy = Db::open_with_env(COPY, options.clone(), disk.env()).unwrap();
        assert!(copy.check(&mut |_| {}).unwrap().orphans.is_empty());
        copy.backup("/copies/backup", &mut |_| ()).unwrap();
        copy.backup("/copies/backup", &mut |_| ()).unwrap();
    }
}

/// Goal: a checkpoint that does not say so, as those of RocksDB do not, is known by the files that it shares with the store.
#[test]
fn a_checkpoint_is_taken_for_no_backup() {
    let (options, steps) = scene(5, 60);
    let disk = SimDisk::new();
    let db = filled(&disk, &options, &steps);
    db.flush().unwrap();
    let checkpoint = |db: &Db, to: &str| {
        assert!(db.checkpoint(to).unwrap().linked > 0);
        disk.env().files.remove(&Path::new(to).join("CHECKPOINT")).unwrap();
    };
    checkpoint(&db, COPY);
    let (before, expected) = (bytes_of_copy(&disk), contents(&db).unwrap());
    db.put("written", "since").unwrap();
    let error = db.backup(COPY, &mut |_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("a checkpoint"), "{error}");
    assert!(bytes_of_copy(&disk) == before && copy_of(&disk, "refused").unwrap() == expected);
    // Nor is one whose files were in a backup that went where the store is.
    db.backup("/copies/backup", &mut |_| ()).unwrap();
    let twin = Db::open_with_env("/copies/backup", options, disk.env()).unwrap();
    checkpoint(&twin, "/copies/twin");
    assert_eq!(twin.backup("/copies/twin", &mut |_| ()).unwrap_err().kind(), ErrorKind::Conflict);
}

/// Goal: a damaged file of an earlier backup stays until there is a whole one in its place, whatever fails and wherever it dies; what cannot be
/// read is not taken for damaged; and the next attempt mends it and leaves nothing else.
#[test]
fn a_damaged_file_of_a_backup_stays_until_there_is_a_whole_one() {
    let (options, steps) = scene(15, 60);
    let scene = || {
        let disk = SimDisk::new();
        let db = filled(&disk, &options, &steps);
        db.backup(COPY, &mut |_| ()).unwrap();
        let path = tables_in(&disk, COPY).pop().unwrap();
        let whole = disk.file_bytes(&path).unwrap();
        flip(&disk, &path, 40);
        disk.env().files.sync_dir(COPY.as_ref()).unwrap();
        (disk, db, path, whole)
    };
    let (healthy, db, path, whole) = scene();
    let damaged = healthy.file_bytes(&path).unwrap();
    let (from, reads) = (healthy.op_count(), healthy.read_count());
    db.backup(COPY, &mut |_| ()).unwrap();
    let (ops, reads) = (from..healthy.op_count(), reads..healthy.read_count());
    let expected = contents(&db).unwrap();
    let mended = |disk: &SimDisk, db: &Db, what: &str| {
        db.backup(COPY, &mut |_| ()).unwrap_or_else(|error| panic!("{what}, made again: {error}"));
        assert!(copy_of(disk, what).unwrap() == expected, "{what}, made again");
        let is_data = |name: &&String| name.ends_with(".sst") || name.ends_with(".blob");
        let names = names(disk, COPY);
        assert_eq!(names.len() - names.iter().filter(is_data).count(), 5, "{what}, made again: {names:?}");
    };
    for n in ops.clone() {
        for fault in FAULTS {
            let what = format!("operation {n} in {ops:?} fails with {fault:?}");
            let (disk, db, path, _) = scene();
            disk.fail_at(n, fault);
            let _ = db.backup(COPY, &mut |_| ());
            let left = disk.file_bytes(&path).unwrap_or_else(|| panic!("{what}: the file is gone"));
            assert!(left == damaged || left == whole, "{what}");
            if db.put("writable", "yes").is_ok() {
                db.delete("writable").unwrap();
                mended(&disk, &db, &what);
            }
        }
        let (disk, db, path, _) = scene();
        kill(&disk, n);
        let _ = db.backup(COPY, &mut |_| ());
        for image in images(&disk, n) {
            let what = format!("died at {n} in {ops:?}, {}", image.name);
            let left = image.disk.file_bytes(&path).unwrap_or_else(|| panic!("{what}: the file is gone"));
            assert!(left == damaged || left == whole, "{what}");
            let db = open(&image.disk, &options).unwrap();
            mended(&image.disk, &db, &what);
        }
    }
    let read_only = Options { background_jobs: 0, ..options::known() };
    for n in reads.clone() {
        let what = format!("read {n} in {reads:?} fails");
        let (disk, db, path, _) = scene();
        let before = bytes_of_copy(&disk);
        // A damaged file, and one that cannot be read.
        disk.fail_read_at(n, ReadFault::Eio);
        match db.backup(COPY, &mut |_| ()) {
            Ok(_) => assert!(copy_of(&disk, &what).unwrap() == expected, "{what}"),
            Err(_) => {
                let after = bytes_of_copy(&disk);
                let is_mended = |name: &String| path.ends_with(name) && after[name] == whole;
                // What fails after the new one is current takes nothing of it back.
                let is_current = after["CURRENT"] != before["CURRENT"];
                let is_kept = |(name, of)| after.get(name) == Some(of) || is_mended(name) || name == "CURRENT";
                assert!(before.iter().all(is_kept), "{what}");
                assert!(!is_current || copy_of(&disk, &what).unwrap() == expected, "{what}");
                Db::open_read_only_with_env(COPY, read_only.clone(), disk.env()).unwrap();
            }
        }
    }
}

/// Goal: a backup that was made current, and may not be durably so, is not taken for the one that there is: its predecessor's files stay.
#[test]
fn a_backup_that_may_not_be_durable_is_not_built_upon() {
    let test = "a_backup_that_may_not_be_durable_is_not_built_upon";
    let tally = Tally::new(test);
    let current = |disk: &SimDisk| disk.file_bytes(&Path::new(COPY).join("CURRENT"));
    let mut met = 0;
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (options, steps) = scene(1100 + seed, 90);
        let (first, rest) = steps.split_at(50);
        let (second, third) = rest.split_at(25);
        let twice = |disk: &SimDisk| {
            let db = filled(disk, &options, first);
            db.backup(COPY, &mut |_| ()).unwrap();
            run(&db, second, &mut Ledger::default()).unwrap();
            db
        };
        let healthy = SimDisk::new();
        let db = twice(&healthy);
        let earlier = copy_of(&healthy, "earlier").unwrap();
        let from = healthy.op_count();
        db.backup(COPY, &mut |_| ()).unwrap();
        let (ops, later) = (healthy.op_count(), contents(&db).unwrap());
        drop(db);
        for n in from..ops {
            let disk = SimDisk::new();
            let db = twice(&disk);
            disk.die_after(n);
            // It may only have had files left to remove.
            let _ = db.backup(COPY, &mut |_| ());
            drop(db);
            let left = disk.after_process_death();
            if current(&left) == current(&disk.after_power_loss(Survivors::Nothing)) {
                continue;
            }
            met += 1;
            let once_more = |disk: &SimDisk| {
                let db = open(disk, &options)?;
                run(&db, third, &mut Ledger::default())?;
                db.backup(COPY, &mut |_| ()).map(drop)
            };
            let healthy = left.after_process_death();
            let begun = healthy.op_count();
            once_more(&healthy).unwrap();
            let latest = copy_of(&healthy, "latest").unwrap();
            for m in begun..=healthy.op_count() {
                let disk = left.after_process_death();
                disk.die_after(m);
                let _ = once_more(&disk);
                for image in power_losses(&disk, m) {
                    let what = format!("{replay}: died at {n} in {from}..{ops}, and at {m}, {}", image.name);
                    tally.image();
                    let found = copy_of(&image.disk, &what).unwrap_or_else(|| panic!("{what}: no backup is left"));
                    assert!([&earlier, &later, &latest].contains(&&found), "{what}: it is no backup");
                }
            }
        }
    }
    assert!(met > 0, "every CURRENT was durable at once");
}

/// Goal: a copy is one where its mark could not be taken away: that is told, and is no failure.
#[test]
fn a_copy_whose_mark_stays_is_one() {
    let (options, steps) = scene(16, 30);
    for kind in KINDS {
        let healthy = SimDisk::new();
        healthy.set_tracing(true);
        let db = filled(&healthy, &options, &steps);
        kind.make(&db).unwrap();
        let is_removal = |line: &&String| line.contains(" remove ") && line.contains("UNFINISHED-COPY");
        let at = healthy.trace().iter().find(is_removal).unwrap().split(' ').next().unwrap().parse().unwrap();
        let disk = SimDisk::new();
        let db = filled(&disk, &options, &steps);
        disk.fail_at(at, Fault::Eio);
        let copied = kind.make(&db).unwrap();
        assert_eq!(copied.not_removed.len(), 1, "{kind:?}: {copied:?}");
        assert!(copied.not_removed[0].0.ends_with("UNFINISHED-COPY"), "{kind:?}: {copied:?}");
        assert!(copy_of(&disk, "with its mark").unwrap() == contents(&db).unwrap(), "{kind:?}");
        Db::repair_with_env(COPY, options.clone(), disk.env()).unwrap();
        assert!(!names(&disk, COPY).contains(&"UNFINISHED-COPY".to_owned()), "{kind:?}");
        assert!(copy_of(&disk, "repaired").unwrap() == contents(&db).unwrap(), "{kind:?}");
    }
}

fn flip(disk: &SimDisk, path: &Path, at: u64) {
    let files = disk.env().files;
    let mut bytes = files.read(path).unwrap();
    let at = usize::try_from(at).unwrap().min(bytes.len() - 1);
    bytes[at] ^= 4;
    files.remove(path).unwrap();
    let file = files.create(path).unwrap();
    file.append(&[&bytes]).unwrap();
    file.sync().unwrap();
}

fn tables_in(disk: &SimDisk, dir: &str) -> Vec<PathBuf> {
    let is_table = |name: &String| name.ends_with(".sst");
    names(disk, dir).iter().filter(|name| is_table(name)).map(|name| Path::new(dir).join(name)).collect()
}

/// Goal: a backup never takes damage for data: that of the store is told and no backup is made of it; that of an earlier backup is
/// mended.
#[test]
fn a_backup_takes_no_damage_over() {
    let (options, steps) = scene(11, 60);
    let disk = SimDisk::new();
    let db = filled(&disk, &options, &steps);
    db.backup(COPY, &mut |_| ()).unwrap();
    let expected = contents(&db).unwrap();
    let damaged = tables_in(&disk, COPY).pop().unwrap();
    flip(&disk, &damaged, 40);
    let copied = db.backup(COPY, &mut |_| ()).unwrap();
    assert_eq!(copied.kept + 1, copied.files, "the damaged file, and it alone, is copied again");
    assert!(copy_of(&disk, "mended").unwrap() == expected);
    db.close().unwrap();
    let damaged = tables_in(&disk, "/store").pop().unwrap();
    flip(&disk, &damaged, 40);
    let db = open(&disk, &options).unwrap();
    for target in [COPY, "/copies/other"] {
        let error = db.backup(target, &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    assert!(copy_of(&disk, "after a damaged store").unwrap() == expected, "the earlier backup");
    assert!(disk.env().files.metadata("/copies/other".as_ref()).is_err());
}

/// Goal: a lost sector of a value that lives is no hole, though its file has garbage: a backup takes none over, and one of its own is mended.
#[test]
fn a_lost_sector_of_a_live_value_is_no_hole() {
    let family = FamilyOptions { separation: Separation::AtFlush, min_blob_size: 100, ..FamilyOptions::default() };
    let family = FamilyOptions { blob_compression: esker::Compression::None, write_buffer_bytes: 64 << 10, ..family };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let open = |disk: &SimDisk| Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let disk = SimDisk::new();
    let db = open(&disk);
    // The most of the file lives: nothing makes room of it.
    (0..6u8).for_each(|n| db.put([n], vec![n + 1; 3000]).unwrap());
    db.flush().unwrap();
    db.put([0], "short").unwrap();
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert!(db.stats().families[0].blob_garbage_bytes > 0);
    db.backup(COPY, &mut |_| ()).unwrap();
    let expected = contents(&db).unwrap();
    let lose_a_sector = |disk: &SimDisk, dir: &str| {
        let is_blob = |path: &PathBuf| path.starts_with(dir) && path.extension().is_some_and(|of| of == "blob");
        let path = disk.paths().into_iter().find(is_blob).unwrap();
        let mut bytes = disk.file_bytes(&path).unwrap();
        let at = bytes.windows(3000).position(|part| part == [5; 3000]).unwrap().next_multiple_of(512);
        bytes[at..at + 512].fill(0);
        disk.overwrite(&path, bytes);
    };
    lose_a_sector(&disk, COPY);
    let copied = db.backup(COPY, &mut |_| ()).unwrap();
    assert_eq!(copied.kept + 1, copied.files, "the damaged file, and it alone, is copied again");
    assert!(copy_of(&disk, "mended").unwrap() == expected);
    db.close().unwrap();
    lose_a_sector(&disk, "/store");
    let db = open(&disk);
    let error = db.backup("/copies/other", &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(disk.env().files.metadata("/copies/other".as_ref()).is_err());
    // Where both have damage, each its own, a file of the backup that was refused is what it was.
    let is_blob = |path: &PathBuf| path.starts_with(COPY) && path.extension().is_some_and(|of| of == "blob");
    let blob = disk.paths().into_iter().find(is_blob).unwrap();
    flip(&disk, &blob, 40);
    let before = disk.file_bytes(&blob);
    let error = db.backup(COPY, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(disk.file_bytes(&blob) == before, "a file of the earlier backup was replaced");
}

/// Goal: what is not this store's backup is not written into: another store's, one that was written to, and whatever else.
#[test]
fn a_copy_goes_only_where_it_belongs() {
    let (options, steps) = scene(12, 40);
    let disk = SimDisk::new();
    let files = disk.env().files;
    let db = filled(&disk, &options, &steps);
    let other = Db::open_with_env("/other", options.clone(), disk.env()).unwrap();
    other.put("key", "value").unwrap();
    other.backup(COPY, &mut |_| ()).unwrap();
    let refused = |result: Result<Copied>, kind| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    };
    refused(db.backup(COPY, &mut |_| ()), ErrorKind::Conflict);
    refused(db.checkpoint(COPY), ErrorKind::InvalidArgument);
    refused(db.backup("/other", &mut |_| ()), ErrorKind::Busy);
    refused(db.backup("/store", &mut |_| ()), ErrorKind::Busy);
    refused(db.checkpoint("/store"), ErrorKind::Busy);
    // Opened for writing, it is a store of its own.
    Db::open_with_env(COPY, options.clone(), disk.env()).unwrap().close().unwrap();
    refused(other.backup(COPY, &mut |_| ()), ErrorKind::Conflict);
    files.create_dir_all("/full".as_ref()).unwrap();
    files.create("/full/letter.txt".as_ref()).unwrap();
    refused(db.checkpoint("/full"), ErrorKind::InvalidArgument);
    refused(db.backup("/full", &mut |_| ()), ErrorKind::InvalidArgument);
    assert_eq!(names(&disk, "/full"), ["letter.txt"]);
    // An earlier life of the store that went on elsewhere has other files of the same names.
    db.flush().unwrap();
    db.checkpoint("/twin").unwrap();
    let twin = Db::open_with_env("/twin", options, disk.env()).unwrap();
    for (store, value, rounds) in [(&db, "one", 41), (&twin, "another", 40)] {
        for round in 0..rounds {
            store.put(format!("{round}"), value).unwrap();
            store.flush().unwrap();
        }
    }
    db.backup("/copies/mine", &mut |_| ()).unwrap();
    let mine = names(&disk, "/copies/mine");
    refused(twin.backup("/copies/mine", &mut |_| ()), ErrorKind::Conflict);
    assert_eq!(names(&disk, "/copies/mine"), mine);
    let files_of = |copied: Copied| copied.files;
    assert!(files_of(db.checkpoint("/copies/last").unwrap()) > 0);
}

/// Goal: no file goes and no hole is made while a copy is under way, whatever happens to the store meanwhile; the bytes that it
/// says it does are those that it does.
#[test]
fn files_are_held_and_whole_while_they_are_copied() {
    let mut compared = 0;
    for seed in seeds(6) {
        let mut random = Rng::with_seed(900 + seed);
        let mut options = options::store(&mut random, &FAMILIES, 0);
        options.punch_holes = true;
        options.reclaim_mode = esker::ReclaimMode::Auto;
        options.max_space_amp = 1.05;
        for family in options.families.values_mut() {
            family.separation = Separation::AtFlush;
            family.min_blob_size = 100;
            family.blob_compression = esker::Compression::None;
        }
        let disk = SimDisk::new();
        let db = open(&disk, &options).unwrap();
        for key in 0..40 {
            db.put(format!("key{key}"), vec![key; 10_000]).unwrap();
        }
        db.flush().unwrap();
        let expected = contents(&db).unwrap();
        disk.set_tracing(true);
        let from = disk.op_count();
        let (mut calls, mut last) = (0, 0);
        let copied = db.backup(COPY, &mut |progress| {
            assert!(progress.bytes_done <= progress.bytes_total && progress.bytes_done >= last);
            last = progress.bytes_done;
            calls += 1;
            if calls == 2 {
                (0..40).filter(|key| key % 3 > 0).for_each(|key| db.put(format!("key{key}"), "gone").unwrap());
                db.compact_range(&db.default_column_family(), None, None).unwrap();
            }
        });
        let copied = copied.unwrap();
        assert_eq!(last, 2 * copied.bytes, "seed {seed}");
        assert!(calls > 2, "seed {seed}: {calls} calls");
        assert_eq!(operations(&disk, from, "punch_hole"), [], "seed {seed}");
        assert!(copy_of(&disk, "beside a compaction").unwrap() == expected, "seed {seed}");
        (0..40).filter(|key| key % 6 == 0).for_each(|key| db.put(format!("key{key}"), "gone").unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        compared += operations(&disk, from, "punch_hole").len();
        clean(&db, "after a backup");
    }
    assert!(compared > 0, "no store made a hole afterwards, so nothing was shown");
}

/// Goal: a checkpoint that meets another file system copies; here the link is refused as there.
#[test]
fn a_failed_link_of_a_healthy_device_is_no_copy() {
    let (options, steps) = scene(13, 40);
    let disk = SimDisk::new();
    disk.set_tracing(true);
    let db = filled(&disk, &options, &steps);
    db.flush().unwrap();
    db.checkpoint("/copies/warm-up").unwrap();
    let from = disk.op_count();
    db.checkpoint("/copies/first").unwrap();
    assert!(!operations(&disk, from, "link").is_empty());
    // EIO is the device's: it is told, not passed over.
    let distance = operations(&disk, from, "link")[0] - from;
    disk.fail_at(disk.op_count() + distance, Fault::Eio);
    db.checkpoint(COPY).unwrap_err();
    assert!(disk.env().files.metadata(COPY.as_ref()).is_err(), "left: {:?}", names(&disk, COPY));
    db.checkpoint(COPY).unwrap();
}
