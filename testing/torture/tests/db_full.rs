//! A Db on a disk that it has filled, and whose last bytes others took: it opens again with all that it had, whatever it was amid, and goes on.

use std::collections::BTreeMap;
use std::path::Path;

use esker::env::sim::{SimDisk, Survivors};
use esker::{CompactionFilter, Db, ErrorKind, FamilyOptions, FilterDecision, Options, ReclaimMode, Separation};
use esker_torture::{noise, options, seeds};
use fastrand::Rng;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk, options: &Options) -> esker::Result<Db> {
    Db::open_with_env("/db", options.clone(), disk.env())
}

fn used(disk: &SimDisk) -> u64 {
    let space = disk.env().files.space("/db".as_ref()).unwrap();
    space.total - space.available
}

/// Nothing that compression makes small.
fn value(random: &mut Rng, bytes_max: usize) -> Vec<u8> {
    let mut value = vec![0; random.usize(..=bytes_max)];
    noise::fill(random, &mut value);
    value
}

/// New keys and old ones, until there is no room for more.
fn fill(db: &Db, random: &mut Rng, bytes_max: usize, model: &mut Model) {
    let error = loop {
        let (key, value) = (random.u32(..1 << 20).to_be_bytes().to_vec(), value(random, bytes_max));
        match db.put(&key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
}

fn contents(db: &Db) -> Model {
    let mut model = Model::new();
    let mut at = db.iter().unwrap();
    at.seek_to_first().unwrap();
    while at.valid() {
        model.insert(at.key().to_vec(), at.value().unwrap().to_vec());
        at.next().unwrap();
    }
    model
}

/// Goal: where others took all that was left, the store opens after whatever end with all that it had, keeps taking deletions or refuses them as
/// `Exhausted`, and takes writes as soon as there is room; nothing of it is damaged.
#[test]
fn a_store_opens_on_a_disk_without_a_free_byte() {
    for seed in seeds(8) {
        let mut random = Rng::with_seed(seed);
        let options = options::store_anywhere(&mut random, &["default"], 0);
        let capacity = random.u64(3 << 20..12 << 20);
        let mut disk = SimDisk::new();
        disk.set_capacity(Some(capacity));
        let mut db = open(&disk, &options).unwrap();
        let mut model = Model::new();
        for round in 0..3 {
            let what = |done: &str| format!("seed {seed}, round {round}: {done}");
            let bytes_max = random.usize(50..5000);
            fill(&db, &mut random, bytes_max, &mut model);
            disk.set_capacity(Some(used(&disk)));
            for _ in 0..random.usize(1..3) {
                for _ in 0..random.usize(..200) {
                    let Some(key) = model.keys().nth(random.usize(..model.len().max(1))).cloned() else { break };
                    match db.delete(&key) {
                        Ok(()) => drop(model.remove(&key)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted, "{}: {error}", what("deleting")),
                    }
                }
                let left = used(&disk);
                match random.u8(..4) {
                    0 => {
                        // What it flushes finds no room, perhaps; then that stays in the logs.
                        if let Err(error) = db.close() {
                            assert_eq!(error.kind(), ErrorKind::Exhausted, "{}: {error}", what("closing"));
                        }
                    }
                    1 => {
                        db.sync_wal().unwrap();
                        disk = disk.after_power_loss(Survivors::Sample { seed: random.u64(..) });
                        drop(db);
                    }
                    _ => {
                        disk = disk.after_process_death();
                        drop(db);
                    }
                }
                // A power loss brings back what was removed.
                disk.set_capacity(None);
                disk.set_capacity(Some(left.max(used(&disk))));
                db = open(&disk, &options).unwrap_or_else(|error| panic!("{}: {error}", what("opening")));
                assert!(contents(&db) == model, "{}", what("opened"));
            }
            disk.set_capacity(Some(capacity * 4));
            // What failed for want of room is tried again.
            db.wait_for_compact().unwrap_or_else(|error| panic!("{}: {error}", what("compacting")));
            db.put("key", "value").unwrap_or_else(|error| panic!("{}: {error}", what("writing")));
            model.insert(b"key".to_vec(), b"value".to_vec());
            assert!(contents(&db) == model, "{}", what("in the end"));
            let check = db.check(&mut |_| {}).unwrap();
            assert!(check.errors.is_empty(), "{}: {:?}", what("checked"), check.errors);
            db.close().unwrap();
            disk.set_capacity(Some(capacity));
            db = open(&disk, &options).unwrap();
        }
    }
}

/// Goal: where values lie in blob files, a store on such a disk is emptied key by key, gives its space back, and is written to again, though others keep what
/// they took; after whatever end, too.
#[test]
fn what_is_deleted_makes_room_though_others_have_the_rest() {
    for seed in seeds(15) {
        let mut random = Rng::with_seed(seed);
        let family = FamilyOptions {
            separation: if random.bool() { Separation::AtFlush } else { Separation::AtWrite },
            min_blob_size: 1000,
            ..FamilyOptions::default()
        };
        let families = [("default".to_owned(), family)].into();
        let options = Options { create_if_missing: true, families, background_jobs: 0, ..Options::default() };
        let mut disk = SimDisk::new();
        let capacity = random.u64(8 << 20..24 << 20);
        disk.set_capacity(Some(capacity));
        let mut db = open(&disk, &options).unwrap();
        for round in 0..3 {
            let what = |done: &str| format!("seed {seed}, round {round}: {done}");
            let mut model = Model::new();
            disk.set_capacity(Some(capacity));
            fill(&db, &mut random, 20_000, &mut model);
            assert!(
                model.len() as u64 > capacity / 10_000 / 4,
                "{}: {} keys",
                what("most of it holds values"),
                model.len()
            );
            disk.set_capacity(Some(used(&disk)));
            match random.u8(..4) {
                0 => {
                    db.close().unwrap();
                    db = open(&disk, &options).unwrap();
                }
                1 => {
                    disk = disk.after_process_death();
                    drop(db);
                    db = open(&disk, &options).unwrap();
                }
                _ => {}
            }
            let said = |done: &str, result: esker::Result<()>| {
                result.unwrap_or_else(|error| panic!("{}: {error}", what(done)));
            };
            for key in contents(&db).keys() {
                said("deleting", db.delete(key));
            }
            said("compacting", db.compact_range(&db.default_column_family(), None, None));
            said("writing", db.put("key", value(&mut random, 20_000)));
            said("deleting", db.delete("key"));
            assert!(contents(&db).is_empty());
        }
    }
}

/// Whether `found` is `base` after a beginning of `changes`, at least the first `durable` of them.
fn is_a_beginning(found: &Model, base: &Model, changes: &[(Vec<u8>, Option<Vec<u8>>)], durable: usize) -> bool {
    let mut model = base.clone();
    for (done, (key, value)) in changes.iter().enumerate() {
        if done >= durable && model == *found {
            return true;
        }
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
    model == *found
}

/// Others have all of the disk but so many bytes.
fn others_take_all_but(disk: &SimDisk, left: u64) {
    let (files, path) = (disk.env().files, Path::new("/others"));
    let _ = files.remove(path);
    let free = files.space("/".as_ref()).unwrap().available;
    files.create(path).unwrap().preallocate(free.saturating_sub(left)).unwrap();
}

/// Goal: what the logs hold, and there is no room for as tables, stays in the logs, through one end after another: nothing that was acknowledged as durable is
/// lost, nor what follows in the next log; and it goes to tables once there is room.
#[test]
fn logs_stay_where_there_is_no_room_for_tables() {
    let mut kept = 0;
    for seed in seeds(60) {
        let mut random = Rng::with_seed(seed);
        let family = FamilyOptions {
            separation: [Separation::Off, Separation::AtFlush, Separation::AtWrite][random.usize(..3)],
            min_blob_size: 300,
            write_buffer_bytes: random.u64(64 << 10..300 << 10),
            ..FamilyOptions::default()
        };
        let options = Options {
            create_if_missing: true,
            families: [("default".to_owned(), family)].into(),
            background_jobs: 0,
            recycled_logs_max: random.usize(..2),
            // For a manifest and a little of a log.
            ballast_bytes: 64 << 10,
            ..Options::default()
        };
        let mut disk = SimDisk::new();
        disk.set_capacity(Some(4 << 20));
        let mut db = open(&disk, &options).unwrap();
        let mut base = Model::new();
        for round in 0..4 {
            let what = |done: &str| format!("seed {seed}, round {round}: {done}");
            let (mut changes, mut durable) = (Vec::new(), 0);
            let (before, after) = (random.usize(100..400), random.usize(1..200));
            for change in 0..before + after {
                if change == before {
                    others_take_all_but(&disk, random.u64(..16 << 10));
                }
                let key = random.u16(..500).to_be_bytes().to_vec();
                let new = (random.u8(..4) > 0).then(|| value(&mut random, 1000));
                let written = match &new {
                    Some(value) => db.put(&key, value),
                    None => db.delete(&key),
                };
                match written {
                    Ok(()) => changes.push((key, new)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted, "{}: {error}", what("writing")),
                }
                if random.u8(..100) == 0 && db.sync_wal().is_ok() {
                    durable = changes.len();
                }
            }
            for _ in 0..random.usize(1..3) {
                disk = if random.bool() {
                    disk.after_power_loss(Survivors::Sample { seed: random.u64(..) })
                } else {
                    durable = changes.len();
                    disk.after_process_death()
                };
                drop(db);
                others_take_all_but(&disk, 0);
                // A crash may have left a torn tail, and values of it: what is wrong beyond that is an error.
                let check = Db::check_store_with_env("/db", options.clone(), disk.env(), &mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{}: {:?}", what("as it died"), check.errors);
                db = open(&disk, &options).unwrap_or_else(|error| panic!("{}: {error}", what("opening")));
                let logs = disk.paths().iter().filter(|path| path.extension().is_some_and(|end| end == "log")).count();
                kept += usize::from(logs > 1);
                let found = contents(&db);
                assert!(is_a_beginning(&found, &base, &changes, durable), "{}", what("opened"));
                let check = db.check(&mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{}: {:?}", what("opened, checked"), check.errors);
                // An open makes durable what it finds.
                (base, changes, durable) = (found, Vec::new(), 0);
            }
            others_take_all_but(&disk, u64::MAX);
            if random.bool() {
                db.wait_for_compact().unwrap_or_else(|error| panic!("{}: {error}", what("compacting")));
                assert!(contents(&db) == base, "{}", what("in the end"));
                let check = db.check(&mut |_| {}).unwrap();
                assert!(check.errors.is_empty(), "{}: {:?}", what("checked"), check.errors);
            }
        }
    }
    assert!(kept > 20, "logs stayed {kept} times");
}

/// Goal: a compaction by hand needs room for a step at a time, and not for all that it writes anew: what a step replaced is gone before the next.
/// Method: with a filter each table is written again by itself; and with values on their way home, each blob file.
#[test]
fn a_compaction_by_hand_needs_no_room_for_all_that_it_rewrites() {
    const KEYS: u32 = 4000;
    const ROOM: u64 = 2 << 20;
    for comes_home in [false, true] {
        let disk = SimDisk::new();
        let keep = CompactionFilter::new(|_| FilterDecision::Keep);
        let family = FamilyOptions {
            target_file_bytes: 16 << 10,
            write_buffer_bytes: 64 << 10,
            blob_file_bytes: 64 << 10,
            min_blob_size: 100,
            separation: if comes_home { Separation::AtFlush } else { Separation::Off },
            compaction_filter: Some(keep).filter(|_| !comes_home),
            ..FamilyOptions::default()
        };
        let options = Options {
            create_if_missing: true,
            background_jobs: 0,
            ballast_bytes: 0,
            reclaim_mode: ReclaimMode::Manual,
            families: [("default".to_owned(), family)].into(),
            ..Options::default()
        };
        let db = open(&disk, &options).unwrap();
        let random = &mut Rng::with_seed(1);
        let mut model = Model::new();
        for n in 0..KEYS {
            let mut value = vec![0; 1000];
            noise::fill(random, &mut value);
            db.put(n.to_be_bytes(), &value).unwrap();
            model.insert(n.to_be_bytes().to_vec(), value);
        }
        let family = db.default_column_family();
        db.compact_range(&family, None, None).unwrap();
        db.wait_for_compact().unwrap();
        if comes_home {
            db.set_separation(&family, Separation::FallBack).unwrap();
        }
        let rewritten = || db.stats().written.compaction_bytes + db.stats().written.reclaim_bytes;
        let before = rewritten();
        disk.set_capacity(Some(used(&disk) + ROOM));
        db.compact_range(&family, None, None).unwrap();
        assert!(rewritten() - before > ROOM / 2 * 3, "{comes_home}: {} bytes", rewritten() - before);
        assert!(!comes_home || db.stats().families[0].blob_files == 0);
        assert!(contents(&db) == model, "{comes_home}");
    }
}
