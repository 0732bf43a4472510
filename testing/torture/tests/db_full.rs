//! A Db on a disk that it has filled, and whose last bytes others took: it opens again with all that it had, whatever it was amid, and goes on.

use std::collections::BTreeMap;

use esker::env::sim::{SimDisk, Survivors};
use esker::{Db, ErrorKind, FamilyOptions, Options, Separation};
use esker_torture::{options, seeds};
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
    random.fill(&mut value);
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
    for seed in seeds(15) {
        let mut random = Rng::with_seed(seed);
        let options = options::store(&mut random, &["default"], 0);
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
