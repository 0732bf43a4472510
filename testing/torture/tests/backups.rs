//! Sets of backups: each generation is the store at its moment, whatever becomes of the store and of other generations; and no call that
//! fails, nor a death at any moment, takes anything from those that there are, or leaves half a one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use esker::env::sim::{ReadFault, SimDisk, Survivors};
use esker::env::{Env, Error};
use esker::{BackupInfo, Backups, Db, ErrorKind, FamilyOptions, NewBackup, Options, Result, Separation, WriteBatch};
use esker_torture::crash::{Promise, Replay, Tally, faults, images, kill, power_losses};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::{Model, contents};
use esker_torture::workload::{Ledger, Step, run, steps};
use esker_torture::{options, seeds};
use fastrand::Rng;

const FILE: &str = "backups";
const FAMILIES: [&str; 2] = ["default", "reversed"];
const SET: &str = "/backups/set";
const TARGET: &str = "/restored/store";

fn scene(seed: u64, count: usize) -> (Options, Vec<Step>) {
    let mut random = Rng::with_seed(seed);
    let options = Options { punch_holes: true, ..options::store(&mut random, &FAMILIES, 0) };
    let steps = steps(&mut random, &FAMILIES, count);
    (options, steps)
}

fn open(disk: &SimDisk, dir: &str, options: &Options) -> Result<Db> {
    let db = Db::open_with_env(dir, options.clone(), disk.env())?;
    if db.column_family("reversed").is_none() {
        db.create_column_family("reversed", options.families["reversed"].clone())?;
    }
    Ok(db)
}

fn write(db: &Db, steps: &[Step]) {
    run(db, steps, &mut Ledger::default()).unwrap();
}

fn set(disk: &SimDisk) -> Backups {
    Backups::open_with_env(SET, disk.env()).unwrap()
}

fn create(disk: &SimDisk, db: &Db) -> Result<NewBackup> {
    Backups::open_with_env(SET, disk.env())?.create(db, &mut |_| ())
}

fn read_only() -> Options {
    Options { background_jobs: 0, ..options::known() }
}

fn dir_of(id: u64) -> String {
    format!("{SET}/{id:06}")
}

/// What the store in `dir` holds, which is without damage.
fn contents_of(disk: &SimDisk, dir: &str, what: &str) -> Model {
    let db = Db::open_read_only_with_env(dir, read_only(), disk.env());
    let db = db.unwrap_or_else(|error| panic!("{what}: {dir}: {error}"));
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty() && check.orphans.is_empty(), "{what}: {dir}: {check:?}");
    contents(&db).unwrap()
}

fn ids(disk: &SimDisk) -> Vec<u64> {
    set(disk).list().unwrap().iter().map(|info| info.id).collect()
}

/// All generations that there are are these, and whole.
fn holds(disk: &SimDisk, expected: &BTreeMap<u64, Model>, what: &str) {
    assert_eq!(ids(disk), expected.keys().copied().collect::<Vec<_>>(), "{what}");
    for (&id, model) in expected {
        assert!(contents_of(disk, &dir_of(id), what) == *model, "{what}: generation {id} is another");
    }
}

/// The bytes of the files under `dir`, but for locks.
fn bytes_under(disk: &SimDisk, dir: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let is_file = |path: &PathBuf| path.starts_with(dir) && !path.ends_with("LOCK");
    disk.paths().into_iter().filter(is_file).map(|path| (path.clone(), disk.file_bytes(&path).unwrap())).collect()
}

/// Names in the set itself.
fn names(disk: &SimDisk) -> Vec<String> {
    disk.env().files.list(SET.as_ref()).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

fn is_data(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "sst" || ending == "blob")
}

/// What `list` says of sizes is so.
fn is_true(disk: &SimDisk, infos: &[BackupInfo], what: &str) {
    let files = disk.env().files;
    let data: Vec<_> = disk.paths().into_iter().filter(|path| path.starts_with(SET) && is_data(path)).collect();
    for info in infos {
        let is_of_it = |path: &&PathBuf| path.starts_with(dir_of(info.id));
        let mine: Vec<_> = data.iter().filter(is_of_it).map(|path| files.metadata(path).unwrap()).collect();
        let others: BTreeSet<_> = data.iter().filter(|path| !is_of_it(path)).collect();
        let others: BTreeSet<_> = others.into_iter().map(|path| files.metadata(path).unwrap().identity).collect();
        let own = mine.iter().filter(|found| !others.contains(&found.identity)).map(|found| found.len).sum::<u64>();
        let sizes = (mine.len() as u64, mine.iter().map(|found| found.len).sum::<u64>(), own);
        assert_eq!((info.files, info.bytes, info.bytes_of_its_own), sizes, "{what}: {info:?}");
    }
}

/// Goal: whatever the store does, goes back to and goes on with, and whichever generations go, each one that there is is the store at its
/// moment, and so is what is restored of it, which goes on by itself; what they have in common is there once.
#[test]
fn a_generation_is_the_store_at_its_moment_whatever_happens_to_others() {
    let (mut kept, mut back) = (0, 0);
    for seed in seeds(16) {
        let mut random = Rng::with_seed(seed);
        let (options, steps) = scene(seed, 200);
        let disk = SimDisk::new();
        let (mut dir, mut lives) = ("/store".to_owned(), 0);
        let mut db = open(&disk, &dir, &options).unwrap();
        let mut expected = BTreeMap::new();
        for (round, steps) in steps.chunks(20).enumerate() {
            let what = format!("seed {seed}, round {round}");
            write(&db, steps);
            let now = contents(&db).unwrap();
            let before = bytes_under(&disk, SET);
            let made = create(&disk, &db).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(made.damaged.is_empty() && made.copied.not_removed.is_empty(), "{what}: {made:?}");
            assert_eq!(made.info.id, expected.keys().last().map_or(1, |id| id + 1), "{what}");
            let after = bytes_under(&disk, SET);
            assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)), "{what}: it changed another");
            kept += made.copied.kept;
            expected.insert(made.info.id, now);
            let infos = set(&disk).list().unwrap();
            assert_eq!(infos.last(), Some(&made.info), "{what}");
            is_true(&disk, &infos, &what);
            match random.u8(..5) {
                0 => {
                    let any = *expected.keys().nth(random.usize(..expected.len())).unwrap();
                    set(&disk).delete(any).unwrap();
                    expected.remove(&any);
                }
                1 => {
                    let count = random.usize(1..6);
                    let superfluous: Vec<u64> = expected.keys().rev().skip(count).rev().copied().collect();
                    assert_eq!(set(&disk).keep_newest(count).unwrap(), superfluous, "{what}");
                    superfluous.iter().for_each(|id| _ = expected.remove(id));
                }
                2 => {
                    // Back to one of them, and on from there.
                    let any = *expected.keys().nth(random.usize(..expected.len())).unwrap();
                    db.close().unwrap();
                    (lives, back) = (lives + 1, back + 1);
                    dir = format!("/restored/{lives}");
                    let mut last = (0, 0);
                    let restored = set(&disk).restore(any, &dir, &mut |at| last = (at.bytes_done, at.bytes_total));
                    assert_eq!(last, (2 * restored.unwrap().bytes, last.0), "{what}");
                    assert!(contents_of(&disk, &dir, &what) == expected[&any], "{what}: restored");
                    let links = |path: PathBuf| disk.env().files.metadata(&path).unwrap().links;
                    let is_restored = |path: &PathBuf| path.starts_with(&dir);
                    assert!(disk.paths().into_iter().filter(is_restored).all(|path| links(path) == 1), "{what}");
                    db = open(&disk, &dir, &options).unwrap();
                }
                _ => {}
            }
            holds(&disk, &expected, &what);
        }
        let check = |id: &u64| set(&disk).check(*id, read_only(), &mut |_| {}).unwrap();
        assert!(expected.keys().all(|id| check(id).errors.is_empty()), "seed {seed}");
    }
    assert!(kept > 100 && back > 5, "{kept} files were shared, and {back} stores went back");
}

/// Goal: beside writers a generation has each batch whole and all that was acknowledged before.
#[test]
fn generations_beside_writers_are_one_moment() {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        separation: Separation::AtFlush,
        min_blob_size: 256,
        blob_file_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        target_file_bytes: 16 << 10,
        ..FamilyOptions::default()
    };
    let families = FAMILIES.map(|name| (name.to_owned(), family.clone())).into();
    let options = Options { create_if_missing: true, background_jobs: 2, families, ..Options::default() };
    let disk = SimDisk::new();
    let db = open(&disk, "/store", &options).unwrap();
    let is_over = AtomicBool::new(false);
    let count = |db: &Db, family: &str| {
        let family = db.column_family(family).unwrap();
        let found = db.get_cf(&family, "counter", &Default::default()).unwrap();
        found.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let second = db.column_family("reversed").unwrap();
            for round in (1u64..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                let mut batch = WriteBatch::new();
                batch.put("counter", round.to_be_bytes()).unwrap();
                batch.put_cf(&second, "counter", round.to_be_bytes()).unwrap();
                batch.put(format!("value{:03}", round % 500), vec![round as u8; (round * 97 % 900) as usize]).unwrap();
                db.write(batch, &Default::default()).unwrap();
            }
        });
        for _ in 0..8 {
            let least = count(&db, "default");
            let id = create(&disk, &db).unwrap().info.id;
            let then = Db::open_read_only_with_env(dir_of(id), read_only(), disk.env()).unwrap();
            assert!(then.check(&mut |_| {}).unwrap().errors.is_empty());
            let rounds = count(&then, "default");
            assert!(rounds >= least && rounds == count(&then, "reversed"), "{least}, {rounds}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(ids(&disk), (1..=8).collect::<Vec<_>>());
}

/// A disk with a store, two generations of it, and what was written since; and what the three hold.
fn two_generations(seed: u64) -> (SimDisk, Options, BTreeMap<u64, Model>) {
    let (options, steps) = scene(seed, 90);
    let disk = SimDisk::new();
    let db = open(&disk, "/store", &options).unwrap();
    let mut expected = BTreeMap::new();
    for (id, steps) in (1..).zip(steps.chunks(30)) {
        write(&db, steps);
        expected.insert(id, contents(&db).unwrap());
        if id < 3 {
            create(&disk, &db).unwrap();
        }
    }
    db.close().unwrap();
    (disk, options, expected)
}

/// What is done to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Create,
    Delete(u64),
    Keep(usize),
}

const ACTS: [Act; 4] = [Act::Create, Act::Delete(1), Act::Delete(2), Act::Keep(0)];

impl Act {
    fn run(self, disk: &SimDisk, db: &Db) -> Result<()> {
        let set = Backups::open_with_env(SET, disk.env())?;
        match self {
            Self::Create => set.create(db, &mut |_| ()).map(drop),
            Self::Delete(id) => set.delete(id),
            Self::Keep(count) => set.keep_newest(count).map(drop),
        }
    }

    /// Whether such generations may be there when it was done, or not.
    fn allows(self, ids: &[u64], is_done: bool) -> bool {
        let after: &[&[u64]] = match self {
            Self::Create => &[&[1, 2, 3]],
            Self::Delete(1) => &[&[2]],
            Self::Delete(_) => &[&[1]],
            Self::Keep(_) => &[&[]],
        };
        let before: &[&[u64]] = if self == Self::Keep(0) { &[&[1, 2], &[2]] } else { &[&[1, 2]] };
        after.contains(&ids) || (!is_done && before.contains(&ids))
    }
}

/// Those that are there are whole, and the next generation is made, with nothing left beside.
fn goes_on(disk: &SimDisk, db: &Db, expected: &BTreeMap<u64, Model>, what: &str) {
    let there = ids(disk);
    let mut expected = expected.clone();
    expected.retain(|id, _| there.contains(id));
    holds(disk, &expected, what);
    let now = contents(db).unwrap();
    let made = create(disk, db).unwrap_or_else(|error| panic!("{what}, the next: {error}"));
    expected.insert(made.info.id, now);
    holds(disk, &expected, what);
    let wanted = expected.keys().map(|id| format!("{id:06}")).chain(["LOCK".to_owned()]);
    assert_eq!(names(disk), wanted.collect::<Vec<_>>(), "{what}");
}

/// Goal: wherever the machine dies while a generation is made or deleted, each one that there is is whole, what was said to be done is, and the
/// next one is made.
#[test]
fn generations_are_whole_wherever_a_change_of_the_set_dies() {
    let test = "generations_are_whole_wherever_a_change_of_the_set_dies";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let (left, options, expected) = two_generations(100 + seed);
        for act in ACTS {
            let healthy = left.after_process_death();
            let db = open(&healthy, "/store", &options).unwrap();
            let first = healthy.op_count();
            act.run(&healthy, &db).unwrap();
            let ops = healthy.op_count();
            drop(db);
            for n in first..=ops {
                let disk = left.after_process_death();
                let db = open(&disk, "/store", &options).unwrap();
                kill(&disk, n);
                let is_done = act.run(&disk, &db).is_ok();
                drop(db);
                for image in images(&disk, n) {
                    let what = format!("{replay}: {act:?} died at {n} in {first}..{ops}, {}", image.name);
                    tally.image();
                    let found = ids(&image.disk);
                    assert!(act.allows(&found, is_done), "{what}: {found:?}");
                    let db = open(&image.disk, "/store", &options).unwrap();
                    if image.promise == Promise::Acknowledged {
                        assert!(contents(&db).unwrap() == expected[&3], "{what}: the store lost something");
                    }
                    goes_on(&image.disk, &db, &expected, &what);
                }
            }
        }
    }
}

/// Goal: whatever call fails while a generation is made or deleted, those that there are are whole, and so are those that a loss of power
/// leaves; what was said to be done is; the next one is made.
#[test]
fn generations_are_whole_whatever_call_fails() {
    let test = "generations_are_whole_whatever_call_fails";
    let tally = Tally::new(test);
    for seed in seeds(2) {
        let replay = Replay { file: FILE, test, seed };
        let (left, options, expected) = two_generations(200 + seed);
        for act in ACTS {
            let healthy = left.after_process_death();
            healthy.set_tracing(true);
            let db = open(&healthy, "/store", &options).unwrap();
            let (first, first_read) = (healthy.op_count(), healthy.read_count());
            act.run(&healthy, &db).unwrap();
            let (ops, reads) = (healthy.op_count(), healthy.read_count());
            drop(db);
            let writes = faults(&healthy, first..ops).map(|(n, fault)| (n, Some(fault)));
            for (n, fault) in writes.chain((first_read..reads).map(|n| (n, None))) {
                let what = format!("{replay}: {act:?}, {fault:?} at {n} in {first}..{ops}, {first_read}..{reads}");
                tally.fault();
                let disk = left.after_process_death();
                let db = open(&disk, "/store", &options).unwrap();
                match fault {
                    Some(fault) => disk.fail_at(n, fault),
                    None => disk.fail_read_at(n, ReadFault::Eio),
                }
                let is_done = act.run(&disk, &db).is_ok();
                let found = ids(&disk);
                assert!(act.allows(&found, is_done), "{what}: {found:?}");
                for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Sample { seed: n }] {
                    let later = disk.after_power_loss(survivors);
                    let found = ids(&later);
                    assert!(act.allows(&found, is_done), "{what}, then power loss: {found:?}");
                    let mut expected = expected.clone();
                    expected.retain(|id, _| found.contains(id));
                    holds(&later, &expected, &what);
                }
                // The failure may have made the store read-only.
                drop(db);
                let db = open(&disk, "/store", &options).unwrap();
                assert!(contents(&db).unwrap() == expected[&3], "{what}: the store lost something");
                goes_on(&disk, &db, &expected, &what);
            }
        }
    }
}

/// Goal: what a death left, and the power has not taken yet, is not built upon before it is durable: a generation that comes back is whole.
#[test]
fn what_a_death_left_of_a_set_is_not_built_upon() {
    let test = "what_a_death_left_of_a_set_is_not_built_upon";
    let tally = Tally::new(test);
    let (left, options, expected) = two_generations(600);
    let replay = Replay { file: FILE, test, seed: 600 };
    for act in [Act::Create, Act::Delete(1), Act::Keep(0)] {
        let healthy = left.after_process_death();
        let db = open(&healthy, "/store", &options).unwrap();
        let first = healthy.op_count();
        act.run(&healthy, &db).unwrap();
        let ops = healthy.op_count();
        drop(db);
        // Of a generation that is made, the last ones: it gets its name there.
        let begin = if act == Act::Create { ops.saturating_sub(4) } else { first };
        for n in begin..=ops {
            let disk = left.after_process_death();
            let db = open(&disk, "/store", &options).unwrap();
            disk.die_after(n);
            let _ = act.run(&disk, &db);
            drop(db);
            let once = disk.after_process_death();
            let again = |disk: &SimDisk| {
                let db = open(disk, "/store", &options)?;
                let from = disk.op_count();
                create(disk, &db).map(|_| from)
            };
            let healthy = once.after_process_death();
            let from = again(&healthy).unwrap();
            let newest = ids(&healthy).pop().unwrap();
            let mut expected = expected.clone();
            let now = expected[&3].clone();
            expected.entry(newest).or_insert(now);
            // Every second one: the others are those of the death an operation later.
            for m in (from + n % 2..=healthy.op_count()).step_by(2) {
                let disk = once.after_process_death();
                disk.die_after(m);
                let _ = again(&disk);
                for image in power_losses(&disk, m) {
                    let what =
                        format!("{replay}: {act:?} died at {n} in {first}..{ops}, the next at {m}, {}", image.name);
                    tally.image();
                    for id in ids(&image.disk) {
                        // Where all were deleted, the numbers begin anew.
                        let found = contents_of(&image.disk, &dir_of(id), &what);
                        assert!(found == expected[&id] || (id == newest && found == expected[&3]), "{what}: {id}");
                    }
                }
            }
        }
    }
}

/// Goal: wherever a restore dies and whatever call of it fails, the set is what it was, and the target is the store of that moment, or none; the
/// same call made again makes it.
#[test]
fn a_restored_store_is_whole_or_none() {
    let test = "a_restored_store_is_whole_or_none";
    let tally = Tally::new(test);
    let restore = |disk: &SimDisk| Backups::open_with_env(SET, disk.env())?.restore(1, TARGET, &mut |_| ());
    let is_there = |disk: &SimDisk| disk.file_bytes(&Path::new(TARGET).join("CURRENT")).is_some();
    for seed in seeds(3) {
        let replay = Replay { file: FILE, test, seed };
        let (left, options, mut expected) = two_generations(300 + seed);
        expected.remove(&3);
        let healthy = left.after_process_death();
        healthy.set_tracing(true);
        restore(&healthy).unwrap();
        let (ops, reads) = (healthy.op_count(), healthy.read_count());
        let before = bytes_under(&left, SET);
        for n in 0..=ops {
            let disk = left.after_process_death();
            kill(&disk, n);
            let is_done = restore(&disk).is_ok();
            for image in images(&disk, n) {
                let what = format!("{replay}: died at {n} in 0..{ops}, {}", image.name);
                tally.image();
                assert!(bytes_under(&image.disk, SET) == before, "{what}: the set");
                match is_there(&image.disk) {
                    true => assert!(contents_of(&image.disk, TARGET, &what) == expected[&1], "{what}"),
                    false => {
                        assert!(!is_done, "{what}: it was said to be there");
                        restore(&image.disk).unwrap_or_else(|error| panic!("{what}, again: {error}"));
                    }
                }
                let db = open(&image.disk, TARGET, &options).unwrap();
                assert!(contents(&db).unwrap() == expected[&1], "{what}");
            }
        }
        let writes = faults(&healthy, 0..ops).map(|(n, fault)| (n, Some(fault)));
        for (n, fault) in writes.chain((0..reads).map(|n| (n, None))) {
            let what = format!("{replay}: {fault:?} at {n} in 0..{ops}, 0..{reads}");
            tally.fault();
            let disk = left.after_process_death();
            match fault {
                Some(fault) => disk.fail_at(n, fault),
                None => disk.fail_read_at(n, ReadFault::Eio),
            }
            if restore(&disk).is_err() && !is_there(&disk) {
                restore(&disk).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            }
            assert!(contents_of(&disk, TARGET, &what) == expected[&1], "{what}");
            assert!(bytes_under(&disk, SET) == before, "{what}: the set");
        }
    }
}

/// Goal: a full device keeps nothing of a generation that could not be made, nor a set that has none.
#[test]
fn a_full_device_keeps_nothing_of_a_generation() {
    let (options, steps) = scene(7, 160);
    let (first, second) = steps.split_at(80);
    for has_one in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk, "/store", &options).unwrap();
        write(&db, first);
        if has_one {
            create(&disk, &db).unwrap();
            write(&db, second);
            db.column_families().iter().for_each(|family| db.compact_range(family, None, None).unwrap());
        }
        db.flush().unwrap();
        let before = (names(&disk), bytes_under(&disk, SET));
        let used = disk.env().files.space("/".as_ref()).map(|space| space.total - space.available).unwrap();
        disk.set_capacity(Some(used + (16 << 10)));
        let error = create(&disk, &db).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!((names(&disk), bytes_under(&disk, SET)) == before, "{:?}", names(&disk));
        assert_eq!(disk.env().files.metadata(SET.as_ref()).is_ok(), has_one);
        disk.set_capacity(None);
        let id = create(&disk, &db).unwrap().info.id;
        assert!(contents_of(&disk, &dir_of(id), "with room") == contents(&db).unwrap());
    }
}

/// Goal: what rots of a generation is told when the next one is made, which has the store's file in place of it and shares the rest; and the
/// check of the damaged one finds it.
#[test]
fn damage_of_a_generation_is_told_and_not_handed_on() {
    let mut met = 0;
    for seed in 0..6 {
        let (options, steps) = scene(400 + seed, 60);
        let disk = SimDisk::new();
        let db = open(&disk, "/store", &options).unwrap();
        write(&db, &steps);
        create(&disk, &db).unwrap();
        let expected = contents(&db).unwrap();
        for path in disk.paths().into_iter().filter(|path| path.starts_with(SET) && is_data(path)) {
            let disk = disk.after_process_death();
            let db = open(&disk, "/store", &options).unwrap();
            let whole = disk.file_bytes(&path).unwrap();
            let mut bytes = whole.clone();
            let at = bytes.len() / 2;
            bytes[at] ^= 4;
            disk.overwrite(&path, bytes);
            let what = format!("seed {seed}, byte {at} of {}", path.display());
            let check = set(&disk).check(1, read_only(), &mut |_| {}).unwrap();
            let made = create(&disk, &db).unwrap();
            assert!(contents_of(&disk, &dir_of(2), &what) == expected, "{what}");
            let Some(found) = disk.file_bytes(&Path::new(&dir_of(2)).join(path.file_name().unwrap())) else {
                // The store, opened anew, has no such file any more.
                continue;
            };
            assert!(found == whole, "{what}");
            assert!(made.copied.kept < made.copied.files, "{what}");
            // A byte that no checksum covers is none that anybody reads.
            assert_eq!(
                made.damaged.is_empty(),
                check.errors.is_empty(),
                "{what}: {:?}, {:?}",
                made.damaged,
                check.errors
            );
            if let Some(error) = made.damaged.first() {
                met += 1;
                assert_eq!((made.damaged.len(), error.kind()), (1, ErrorKind::Corruption), "{what}: {error}");
                assert_eq!(error.path(), Some(&*path), "{what}: {error}");
                let error = set(&disk).restore(1, TARGET, &mut |_| ()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}");
                assert!(disk.env().files.metadata(TARGET.as_ref()).is_err(), "{what}: something was restored");
            }
            // The third shares with the second, and says it again.
            let made = create(&disk, &db).unwrap();
            assert_eq!((made.copied.kept, made.info.bytes_of_its_own), (made.copied.files, 0), "{what}");
        }
        // Without its manifest a generation still gives what the store has, too.
        disk.overwrite(&Path::new(&dir_of(1)).join("CURRENT"), b"rot".to_vec());
        disk.overwrite(&Path::new(&dir_of(1)).join("GENERATION"), b"rot".to_vec());
        let infos = set(&disk).list().unwrap();
        assert_eq!((infos[0].unix_seconds, infos[0].sequence), (None, None));
        let made = create(&disk, &db).unwrap();
        assert_eq!(made.copied.kept, made.copied.files, "seed {seed}");
        let check = set(&disk).check(1, read_only(), &mut |_| {}).unwrap();
        assert!(check.errors.iter().any(|error| error.path().is_some_and(|path| path.ends_with("GENERATION"))));
        set(&disk).delete(1).unwrap();
        holds(&disk, &[(2, expected)].into(), "the damaged one is gone");
    }
    assert!(met > 10, "{met} damages");
}

/// Goal: damage of the store is told as the store's, and no generation is made of it.
#[test]
fn damage_of_the_store_is_no_generation() {
    let (options, steps) = scene(11, 60);
    let disk = SimDisk::new();
    let db = open(&disk, "/store", &options).unwrap();
    write(&db, &steps);
    create(&disk, &db).unwrap();
    let expected = [(1, contents(&db).unwrap())].into();
    db.close().unwrap();
    let path = disk.paths().into_iter().find(|path| path.starts_with("/store") && is_data(path)).unwrap();
    let mut bytes = disk.file_bytes(&path).unwrap();
    bytes[40] ^= 4;
    disk.overwrite(&path, bytes);
    let db = open(&disk, "/store", &options).unwrap();
    let error = create(&disk, &db).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(&*path)), "{error}");
    holds(&disk, &expected, "after a damaged store");
    assert_eq!(names(&disk), ["000001", "LOCK"]);
}

/// Goal: where there are no hard links, each generation has files of its own.
#[test]
fn a_generation_without_links_has_copies() {
    let (options, steps) = scene(5, 60);
    let disk = SimDisk::new();
    let is_refused = |path: &Path| path.starts_with(SET) && is_data(path);
    let files = Hooked::new(disk.env().files, move |call| match call {
        Call::Other(path) if is_refused(path) => {
            Err(Error::new("linking to", path, std::io::ErrorKind::Unsupported.into()))
        }
        _ => Ok(()),
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    open(&disk, "/store", &options).unwrap().close().unwrap();
    let db = Db::open_with_env("/store", options, env).unwrap();
    write(&db, &steps);
    let expected = contents(&db).unwrap();
    for id in 1..=2 {
        let made = create(&disk, &db).unwrap();
        assert_eq!((made.info.id, made.copied.kept, made.info.bytes_of_its_own), (id, 0, made.info.bytes));
    }
    holds(&disk, &[(1, expected.clone()), (2, expected)].into(), "without links");
    is_true(&disk, &set(&disk).list().unwrap(), "without links");
}

/// Goal: a set may have more generations than a process may have files open: those that have nothing to give are not locked.
#[test]
fn of_many_generations_few_are_locked() {
    let disk = SimDisk::new();
    let locks = Arc::new(AtomicUsize::new(0));
    let counted = locks.clone();
    let files = Hooked::new(disk.env().files, move |call| {
        let of_generations: Vec<PathBuf> = (1..=20).map(|id| Path::new(&dir_of(id)).join("LOCK")).collect();
        let is_of_generation = |path: &Path| of_generations.iter().any(|lock| lock == path);
        counted.fetch_add(usize::from(matches!(call, Call::Other(path) if is_of_generation(path))), Ordering::Relaxed);
        Ok(())
    });
    let env = Env { files: Arc::new(files), ..disk.env() };
    let set = Backups::open_with_env(SET, env.clone()).unwrap();
    let db = Db::open_with_env("/store", scene(14, 0).0, env).unwrap();
    for n in 0..20u8 {
        db.put([n], [n; 1000]).unwrap();
        db.flush().unwrap();
        let before = locks.load(Ordering::Relaxed);
        let made = set.create(&db, &mut |_| ()).unwrap();
        let taken = locks.load(Ordering::Relaxed) - before;
        assert!(taken <= 1 && taken >= usize::from(made.copied.kept > 0), "{n}: {taken}, {made:?}");
    }
    assert!(locks.load(Ordering::Relaxed) > 0);
}

/// Goal: nothing is restored into the set, whatever it is called.
#[test]
fn a_set_by_another_name_is_no_place_for_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = Db::open(at("store"), Options { create_if_missing: true, ..Options::default() }).unwrap();
    let set = Backups::open(at("set")).unwrap();
    set.create(&db, &mut |_| ()).unwrap();
    std::fs::create_dir(at("beside")).unwrap();
    std::os::unix::fs::symlink(at("set"), at("link")).unwrap();
    for target in ["set/new", "beside/../set/000007", "link/000009", "link/deeper/new"] {
        let error = set.restore(1, at(target), &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{target}: {error}");
    }
    assert_eq!(std::fs::read_dir(at("set")).unwrap().count(), 2, "the generation and the lock");
    set.restore(1, at("beside/restored"), &mut |_| ()).unwrap();
}

/// Goal: what is not the store's set, or no set at all, is not touched, and is told.
#[test]
fn a_set_is_of_one_store_and_of_nothing_else() {
    let (options, steps) = scene(12, 40);
    let disk = SimDisk::new();
    let files = disk.env().files;
    let db = open(&disk, "/store", &options).unwrap();
    write(&db, &steps);
    let open_set = |dir: &str| Backups::open_with_env(dir, disk.env());
    fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, word: &str) {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(word), "{error}");
    }
    // None yet, and nothing comes of looking.
    let set = open_set(SET).unwrap();
    assert!(set.list().unwrap().is_empty());
    refused(set.delete(1), ErrorKind::NotFound, "no set");
    refused(set.keep_newest(1), ErrorKind::NotFound, "no set");
    refused(set.check(1, read_only(), &mut |_| {}), ErrorKind::NotFound, "generation 1");
    assert!(files.metadata(SET.as_ref()).is_err());
    create(&disk, &db).unwrap();
    refused(set.delete(2), ErrorKind::NotFound, "generation 2");
    refused(set.restore(2, TARGET, &mut |_| ()), ErrorKind::NotFound, "generation 2");
    refused(set.restore(1, SET.to_owned() + "/new", &mut |_| ()), ErrorKind::InvalidArgument, "in the set");
    refused(set.restore(1, "/store", &mut |_| ()), ErrorKind::Busy, "in use");
    // Another store's.
    let other = open(&disk, "/other", &options).unwrap();
    other.put("key", "value").unwrap();
    let before = bytes_under(&disk, SET);
    refused(create(&disk, &other), ErrorKind::Conflict, "another store");
    // Nor is it one without its label, or in a later generation.
    let label = Path::new(&dir_of(1)).join("GENERATION");
    let said = disk.file_bytes(&label).unwrap();
    disk.overwrite(&label, b"rot".to_vec());
    refused(create(&disk, &other), ErrorKind::Conflict, "another store");
    disk.overwrite(&label, said);
    // Other copies do not go where a generation is, nor into the set.
    refused(db.backup(dir_of(1), &mut |_| ()), ErrorKind::Conflict, "generation of a set");
    refused(db.checkpoint(dir_of(1)), ErrorKind::InvalidArgument, "empty");
    refused(db.backup(SET, &mut |_| ()), ErrorKind::InvalidArgument, "empty");
    assert!(bytes_under(&disk, SET) == before);
    // Emptied, it is anybody's.
    set.delete(1).unwrap();
    assert_eq!(create(&disk, &other).unwrap().info.id, 1);
    // No sets.
    files.create_dir_all("/full".as_ref()).unwrap();
    files.create("/full/letter.txt".as_ref()).unwrap();
    refused(open_set("/full"), ErrorKind::InvalidArgument, "letter.txt");
    refused(open_set("/full/letter.txt"), ErrorKind::InvalidArgument, "a file");
    refused(open_set("/store"), ErrorKind::InvalidArgument, "a store");
    db.backup("/backup", &mut |_| ()).unwrap();
    refused(open_set("/backup"), ErrorKind::InvalidArgument, "a store");
    // What comes into one later is left alone, too.
    files.create(&Path::new(SET).join("letter.txt")).unwrap();
    for result in [create(&disk, &other).map(drop), set.delete(1), set.list().map(drop)] {
        refused(result, ErrorKind::InvalidArgument, "letter.txt");
    }
    files.rename(&Path::new(SET).join("letter.txt"), &Path::new(&dir_of(1)).join("letter.txt")).unwrap();
    refused(set.delete(1), ErrorKind::InvalidArgument, "letter.txt");
    assert_eq!(ids(&disk), [1]);
}

/// Goal: who changes a set has it alone; who reads a generation keeps it, and keeps nobody from making another.
#[test]
fn one_at_a_time_changes_a_set() {
    let (options, steps) = scene(13, 40);
    let disk = SimDisk::new();
    let db = open(&disk, "/store", &options).unwrap();
    write(&db, &steps);
    create(&disk, &db).unwrap();
    let set = set(&disk);
    let is_busy = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Busy);
    let mut asked = false;
    let made = set.create(&db, &mut |_| {
        if !std::mem::replace(&mut asked, true) {
            is_busy(create(&disk, &db).map(drop));
            is_busy(set.delete(1));
            is_busy(set.keep_newest(0).map(drop));
            assert_eq!(ids(&disk), [1]);
            set.restore(1, TARGET, &mut |_| ()).unwrap();
        }
    });
    assert!(asked && made.unwrap().info.id == 2);
    let reader = Db::open_read_only_with_env(dir_of(1), read_only(), disk.env()).unwrap();
    is_busy(set.delete(1));
    create(&disk, &db).unwrap();
    assert!(contents(&reader).unwrap() == contents(&db).unwrap());
    drop(reader);
    let mut asked = false;
    set.restore(1, "/restored/other", &mut |_| {
        if !std::mem::replace(&mut asked, true) {
            is_busy(set.delete(1));
        }
    })
    .unwrap();
    assert!(asked);
    set.delete(1).unwrap();
    assert_eq!(ids(&disk), [2, 3]);
}

/// Goal: a generation that somebody writes to, which nobody should, takes nothing from others: no hole is made in what they share, none of its files
/// is taken while it is open, and one that it has changed is not taken afterwards.
#[test]
fn a_generation_that_is_written_to_changes_no_other() {
    let mut holes = 0;
    for seed in 0..8 {
        let what = format!("seed {seed}");
        let mut random = Rng::with_seed(500 + seed);
        let mut options = Options { punch_holes: true, ..options::store(&mut random, &FAMILIES, 0) };
        (options.reclaim_mode, options.max_space_amp) = (esker::ReclaimMode::Auto, 3.0);
        for family in options.families.values_mut() {
            (family.separation, family.min_blob_size) = (Separation::AtFlush, 100);
            (family.blob_compression, family.blob_partition) = (esker::Compression::None, None);
        }
        let disk = SimDisk::new();
        let db = open(&disk, "/store", &options).unwrap();
        (0..40u8).for_each(|key| db.put([key], vec![key; 10_000]).unwrap());
        create(&disk, &db).unwrap();
        let expected = contents(&db).unwrap();
        if seed % 2 == 1 {
            create(&disk, &db).unwrap();
        }
        // Its logs may be elsewhere.
        let wal_dir = (seed % 4 > 1).then(|| "/logs".into());
        let written = open(&disk, &dir_of(1), &Options { wal_dir, ..options.clone() }).unwrap();
        (0..40u8).filter(|key| key % 6 == 0).for_each(|key| written.put([key], "gone").unwrap());
        written.compact_range(&written.default_column_family(), None, None).unwrap();
        written.reclaim(&written.default_column_family(), 1.0).unwrap();
        let punched = |path: &PathBuf| {
            let found = disk.env().files.metadata(path).unwrap();
            found.allocated < found.len && path.starts_with(dir_of(1))
        };
        holes += disk.paths().iter().filter(|path| punched(path)).count();
        let made = create(&disk, &db).unwrap();
        assert_eq!(made.copied.kept > 0, seed % 2 == 1, "{what}: {made:?}");
        assert_eq!(set(&disk).delete(1).unwrap_err().kind(), ErrorKind::Busy, "{what}");
        written.close().unwrap();
        create(&disk, &db).unwrap();
        let error = set(&disk).restore(1, TARGET, &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error}");
        set(&disk).delete(1).unwrap();
        let expected = ids(&disk).into_iter().map(|id| (id, expected.clone())).collect();
        holds(&disk, &expected, &what);
    }
    assert!(holes > 0, "nobody made a hole, so nothing was shown");
}

/// Goal: a file of an earlier generation that has what was there before the store made holes is shared; not if that has rotted since, which no
/// comparison with the store tells.
#[test]
fn what_stands_in_place_of_a_hole_is_checked() {
    let mut met = 0;
    for seed in 0..12 {
        let mut random = Rng::with_seed(700 + seed);
        let mut options = Options { punch_holes: true, ..options::store(&mut random, &FAMILIES, 0) };
        (options.reclaim_mode, options.max_space_amp) = (esker::ReclaimMode::Auto, 3.0);
        for family in options.families.values_mut() {
            (family.separation, family.min_blob_size) = (Separation::AtFlush, 100);
            (family.blob_compression, family.blob_partition) = (esker::Compression::None, None);
        }
        let disk = SimDisk::new();
        let db = open(&disk, "/store", &options).unwrap();
        (0..40u8).for_each(|key| db.put([key], vec![key + 1; 10_000]).unwrap());
        create(&disk, &db).unwrap();
        (0..40u8).filter(|key| key % 6 == 0).for_each(|key| db.put([key], "gone").unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.reclaim(&db.default_column_family(), 1.0).unwrap();
        db.close().unwrap();
        // Of each file that has a hole, where that begins.
        let hole = |path: &PathBuf| {
            let (ours, path) = (disk.file_bytes(path).unwrap(), Path::new(&dir_of(1)).join(path.file_name().unwrap()));
            let theirs = disk.file_bytes(&path)?;
            let at = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs)?;
            (ours.len() == theirs.len()).then_some((path, at, theirs))
        };
        let is_blob = |path: &PathBuf| path.starts_with("/store") && path.extension().is_some_and(|of| of == "blob");
        for (path, at, theirs) in disk.paths().iter().filter(|path| is_blob(path)).filter_map(hole) {
            met += 1;
            let what = format!("seed {seed}, {}, {at}", path.display());
            for has_rot in [false, true] {
                let disk = disk.after_process_death();
                let db = open(&disk, "/store", &options).unwrap();
                let expected = contents(&db).unwrap();
                if has_rot {
                    let mut bytes = theirs.clone();
                    bytes[at + 100] ^= 1;
                    disk.overwrite(&path, bytes);
                }
                let made = create(&disk, &db).unwrap();
                let found = disk.file_bytes(&Path::new(&dir_of(2)).join(path.file_name().unwrap())).unwrap();
                assert_eq!((made.damaged.len(), found == theirs), (usize::from(has_rot), !has_rot), "{what}: {made:?}");
                assert!(contents_of(&disk, &dir_of(2), &what) == expected, "{what}");
            }
        }
    }
    assert!(met > 0, "there was no hole, so nothing was shown");
}
