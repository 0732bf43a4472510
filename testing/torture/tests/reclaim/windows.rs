//! Where blob files belong to ranges of keys, a pass takes one of them: what lies above it stays, and what that hides goes.

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Compression, Db, FamilyOptions, Options, ReadOptions};
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, key, noise};

const KEYS: u32 = 1500;

fn options() -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 512 << 10,
        min_blob_size: 100,
        blob_file_bytes: 64 << 10,
        blob_compression: Compression::None,
        target_file_bytes: 32 << 10,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() }
}

fn open(disk: &SimDisk) -> esker::Result<Db> {
    Db::open_with_env("/store", options(), disk.env())
}

fn value(n: u32, round: u32) -> Vec<u8> {
    noise(n, round, 700 + (n as usize * 37) % 200)
}

/// Passes that copied, and left tables in level 0 where they were.
#[derive(Default)]
struct Windows {
    passes: u64,
    count: u64,
}

impl Windows {
    fn look(&mut self, db: &Db) {
        let stats = db.stats();
        let is_covered = stats.families[0].levels.first().is_some_and(|level| level.files > 0);
        self.count += u64::from(is_covered) * (stats.relocations - self.passes);
        self.passes = stats.relocations;
    }
}

/// Goal: whatever windows do beside puts, deletions, flushes and compactions, everybody sees what was written: readers of now, snapshots and
/// iterators of before; garbage is counted once, and nothing comes back when what lay above comes down.
#[test]
fn windows_beside_writes_change_nothing_that_is_read() {
    let disk = SimDisk::new();
    let db = open(&disk).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut now, mut windows) = (Contents::new(), Windows::default());
    for n in 0..KEYS {
        db.put(key(n), value(n, 0)).unwrap();
        now.insert(key(n), value(n, 0));
    }
    let mut held = Vec::new();
    for put in 0..KEYS * 6 {
        let n = random.u32(..KEYS);
        if random.u8(..) < 16 {
            db.delete(key(n)).unwrap();
            now.remove(&key(n));
        } else {
            db.put(key(n), value(n, put + 1)).unwrap();
            now.insert(key(n), value(n, put + 1));
        }
        windows.look(&db);
        if put % 1000 == 400 {
            let snapshot = db.snapshot();
            let mut iterator = db.iter().unwrap();
            iterator.seek_to_first().unwrap();
            held.push((snapshot, iterator, now.clone()));
        }
        if put % 1000 == 900 {
            let (snapshot, mut iterator, then) = held.remove(0);
            let mut seen = Contents::new();
            while iterator.valid() {
                seen.insert(iterator.key().to_vec(), iterator.value().unwrap().to_vec());
                iterator.next().unwrap();
            }
            assert!(seen == then, "an iterator, {put}");
            let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
            for n in 0..KEYS {
                let value = db.get_cf(&db.default_column_family(), key(n), &options).unwrap();
                assert!(value.as_deref() == then.get(&key(n)).map(Vec::as_slice), "a snapshot, {put}, {n}");
            }
        }
        if put % 700 == 0 {
            assert!(contents(&db) == now, "{put}");
            assert_sound(&db, "on the way");
        }
    }
    assert!(windows.count > 10, "{} windows of {} passes", windows.count, windows.passes);
    assert!(contents(&db) == now);
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert!(contents(&db) == now, "once all came down");
    assert_sound(&db, "in the end");
    db.close().unwrap();
    assert!(contents(&open(&disk).unwrap()) == now);
}

/// What was written of each key: up to which round it is durable, and up to which it may be there.
struct Rounds {
    synced: Vec<u32>,
    put: Vec<u32>,
}

/// Overwrites with a sync now and then, until something fails; calls `look` after each.
fn overwrite(db: &Db, mut look: impl FnMut(&Db)) -> Rounds {
    let mut random = fastrand::Rng::with_seed(5);
    let mut rounds = Rounds { synced: vec![0; KEYS as usize], put: vec![0; KEYS as usize] };
    for put in 1..KEYS * 12 {
        let n = if put < KEYS { put } else { random.u32(..KEYS) };
        rounds.put[n as usize] = put;
        if db.put(key(n), value(n, put)).is_err() || (put % 500 == 0 && db.sync_wal().is_err()) {
            break;
        }
        if put % 500 == 0 {
            rounds.synced.clone_from(&rounds.put);
        }
        look(db);
    }
    rounds
}

/// Whether each key has a value that it may have: of `least` or a later round.
fn assert_rounds(found: &Contents, least: &[u32], rounds: &Rounds, what: &str) {
    for n in 0..KEYS {
        let (least, put) = (least[n as usize], rounds.put[n as usize]);
        let is_right = match found.get(&key(n)) {
            Some(found) => (least..=put).any(|round| round > 0 && *found == value(n, round)),
            None => least == 0,
        };
        assert!(is_right, "{what}: key {n}, of round {least} to {put}");
    }
}

/// Goal: a death or a failure anywhere among windows takes nothing that was acknowledged, nor after power loss anything that was synced.
#[test]
fn death_and_failures_among_windows_lose_nothing() {
    let healthy = SimDisk::new();
    let db = open(&healthy).unwrap();
    let (mut windows, mut points) = (Windows::default(), Vec::new());
    overwrite(&db, |db| {
        let (before, ops) = (windows.count, healthy.op_count());
        windows.look(db);
        if windows.count > before {
            points.push(ops);
        }
    });
    drop(db);
    assert!(points.len() > 8, "{} windows", points.len());
    // Each at another place: a window is some dozens of operations, and its last one is the last but a few of its put.
    for (nth, end) in points.iter().enumerate().step_by(points.len() / 2) {
        for back in [1, 5, 17] {
            let n = end.saturating_sub(back + nth as u64 % 3);
            let disk = SimDisk::new();
            let db = open(&disk).unwrap();
            disk.die_after(n);
            let rounds = overwrite(&db, |_| ());
            drop(db);
            for survivors in [None, Some(Survivors::Nothing), Some(Survivors::Sample { seed: n })] {
                let what = format!("died after operation {n}, {survivors:?}");
                let image = survivors.map_or_else(|| disk.after_process_death(), |kind| disk.after_power_loss(kind));
                let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
                let least = if survivors.is_some() { &rounds.synced } else { &rounds.put };
                // The put that it died in may not have happened.
                let least: Vec<u32> = least
                    .iter()
                    .map(|round| if *round == *rounds.put.iter().max().unwrap() { 0 } else { *round })
                    .collect();
                let found = contents(&db);
                let missing = (0..KEYS).filter(|n| least[*n as usize] > 0 && !found.contains_key(&key(*n))).count();
                assert_eq!(missing, 0, "{what}");
                assert_rounds(&found, &least, &rounds, &what);
                assert_sound(&db, &what);
            }
            let disk = SimDisk::new();
            let db = open(&disk).unwrap();
            disk.fail_at(n, Fault::Eio);
            let rounds = overwrite(&db, |_| ());
            drop(db);
            let db = open(&disk.after_process_death()).unwrap();
            let last = *rounds.put.iter().max().unwrap();
            let least: Vec<u32> = rounds.put.iter().map(|round| if *round == last { 0 } else { *round }).collect();
            assert_rounds(&contents(&db), &least, &rounds, &format!("operation {n} failed"));
            assert_sound(&db, "after a failure");
        }
    }
}
