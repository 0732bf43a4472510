//! A store at its limit, whatever its options and whatever is asked of it there.

use esker::env::sim::SimDisk;
use esker::{
    Compression, Db, Error, ErrorKind, FamilyOptions, Options, ReclaimMode, Separation, WriteBatch, WriteOptions,
};
use esker_torture::model::Contents;
use esker_torture::numbered::{assert_sound, contents, key, noise};
use esker_torture::seeds;
use fastrand::Rng;

const SEPARATIONS: [Separation; 4] = [Separation::Off, Separation::AtFlush, Separation::AtWrite, Separation::FallBack];

fn any<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

fn any_options(random: &mut Rng) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: any(random, &[64 << 10, 128 << 10, 256 << 10]),
        separation: any(random, &SEPARATIONS),
        min_blob_size: any(random, &[0, 100, 4096]),
        blob_file_bytes: any(random, &[64 << 10, 256 << 10, 16 << 20]),
        blob_compression: Compression::None,
        compression: Compression::None,
        target_file_bytes: any(random, &[4 << 10, 64 << 10, 1 << 20]),
        level_base_bytes: any(random, &[16 << 10, 256 << 10, 4 << 20]),
        level_count: any(random, &[2, 3, 7]),
        level0_compaction_trigger: any(random, &[2, 4]),
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        max_disk_bytes: random.u64(6..16) << 20,
        max_space_amp: any(random, &[1.1, 1.3, 3.0, 100.0]),
        reclaim_mode: any(random, &[ReclaimMode::Auto, ReclaimMode::Manual]),
        recycled_logs_max: any(random, &[0, 2]),
        punch_holes: random.bool(),
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// Whether there was room; any other error is one.
fn had_room(done: esker::Result<()>, what: impl Fn(Error) -> String) -> bool {
    match done {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Exhausted => false,
        Err(error) => panic!("{}", what(error)),
    }
}

fn live_at_the_limit(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let options = any_options(&mut random);
    // More than there is room for.
    let mut sizes = || (any(&mut random, &[300, 4000]), any(&mut random, &[5000, 60_000]));
    let (keys, value_bytes) = std::iter::repeat_with(&mut sizes)
        .find(|(keys, value_bytes)| u64::from(*keys) * *value_bytes as u64 > options.max_disk_bytes)
        .unwrap();
    let disk = SimDisk::new();
    let open = || Db::open_with_env("/store", options.clone(), disk.env());
    let what = |doing: &str, error: Error| format!("seed {seed}, {doing}: {error}");
    let (mut db, mut expected, mut refused) = (open().unwrap(), Contents::new(), 0);
    let mut steps = 0;
    while refused < 200 {
        steps += 1;
        let (family, n) = (db.default_column_family(), random.u32(..keys));
        // Most of what is done once it is full is what shall help.
        let rare = if refused == 0 { 400 } else { 12 };
        match random.u32(..rare) {
            0 => db
                .set_separation(&family, any(&mut random, &SEPARATIONS))
                .unwrap_or_else(|e| panic!("{}", what("separation", e))),
            1 => drop(had_room(db.compact_range(&family, None, None), |error| what("compaction", error))),
            2 => drop(had_room(db.reclaim(&family, 0.1).map(drop), |error| what("reclaim", error))),
            3 => db.flush().unwrap_or_else(|error| panic!("{}", what("flush", error))),
            4 => {
                db.close().unwrap_or_else(|error| panic!("{}", what("close", error)));
                db = open().unwrap_or_else(|error| panic!("{}", what("open", error)));
            }
            5 | 6 => {
                db.delete(key(n)).unwrap_or_else(|error| panic!("{}", what("deletion", error)));
                expected.remove(&key(n));
            }
            _ => {
                let value = noise(n, steps, random.usize(..2 * value_bytes));
                match had_room(db.put(key(n), value.clone()), |error| what("put", error)) {
                    true => drop(expected.insert(key(n), value)),
                    false => refused += 1,
                }
            }
        }
    }
    assert!(contents(&db) == expected, "seed {seed}");
    for n in 0..keys {
        db.delete(key(n)).unwrap_or_else(|error| panic!("{}", what("deletion", error)));
        if n % 8 == 0 {
            db.flush().unwrap_or_else(|error| panic!("{}", what("flush", error)));
        }
    }
    db.close().unwrap_or_else(|error| panic!("{}", what("close", error)));
    let db = open().unwrap_or_else(|error| panic!("{}", what("open", error)));
    // By hand nothing comes back that nobody asks for.
    if options.reclaim_mode == ReclaimMode::Manual {
        let family = db.default_column_family();
        had_room(db.compact_range(&family, None, None), |error| what("compaction", error));
        had_room(db.reclaim(&family, 0.0).map(drop), |error| what("reclaim", error));
    }
    let mut written = 0;
    for n in 0..keys {
        let value = noise(n, 0, value_bytes);
        if written < options.max_disk_bytes / 8 {
            db.put(key(n), &value).unwrap_or_else(|error| panic!("{}", what("puts in the end", error)));
            written += value.len() as u64;
        }
    }
    assert_sound(&db, &format!("seed {seed}"));
}

/// Goal (W3): a store at its limit takes deletions and flushes, closes and opens, and takes puts again, whatever its options, though
/// separations are switched, and values moved by hand, where there is no room for it.
#[test]
fn a_store_at_its_limit_gets_out_whatever_its_options() {
    for seed in seeds(8) {
        live_at_the_limit(seed);
    }
}

/// Goal (H4 of `home`): values come home to tables of one block each, which take twice what they hold, and as much again where they are merged: deletions go ahead
/// all the same.
#[test]
fn values_that_come_home_to_tiny_tables_leave_room_for_merges() {
    live_at_the_limit(68);
}

/// Of a store that 6 MiB hold.
fn small(family: FamilyOptions) -> Options {
    let family = FamilyOptions { write_buffer_bytes: 64 << 10, target_file_bytes: 16 << 10, ..family };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        max_disk_bytes: 6 << 20,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

/// Puts until there is no more room; how many.
fn fill_up(db: &Db, value_bytes: usize) -> u32 {
    let is_put = |n: u32| had_room(db.put(key(n), noise(n, 0, value_bytes)), |error| format!("put {n}: {error}"));
    (0..).find(|&n| !is_put(n)).unwrap()
}

/// Goal (D1, D2): a reader keeps a full store's merges from freeing anything, or what is deleted is not there at all: deletions, each flushed, go on only as far as there
/// is a way out. Once the reader has gone the store closes, opens and takes deletions and puts again.
#[test]
fn deletions_that_free_nothing_leave_a_way_out() {
    let cases = [(Separation::Off, 7), (Separation::Off, 2), (Separation::AtFlush, 7), (Separation::AtWrite, 3)];
    for ((separation, level_count), held) in cases.into_iter().flat_map(|case| [(case, 1), (case, 40)]) {
        let what =
            |doing: &str, error: Error| format!("{separation:?}, {level_count} levels, {held}, {doing}: {error}");
        let options = small(FamilyOptions {
            separation,
            min_blob_size: 100,
            blob_file_bytes: 128 << 10,
            compression: Compression::None,
            level_base_bytes: 64 << 10,
            level_count,
            ..FamilyOptions::default()
        });
        let disk = SimDisk::new();
        let open = || Db::open_with_env("/store", options.clone(), disk.env());
        let db = open().unwrap();
        let count = fill_up(&db, 500);
        let (mut readers, mut deleted) = (Vec::new(), 0);
        for n in 0..2000 {
            // A reader of its own for each of the first states.
            if readers.len() < held {
                let mut reader = db.iter().unwrap();
                reader.seek_to_first().unwrap();
                readers.push(reader);
            }
            // Half of them are of keys that are there.
            let key = if n % 2 == 0 { key(n * 7 % count) } else { format!("absent {n}").into_bytes() };
            if !had_room(db.delete(key), |error| what("deletion", error)) {
                break;
            }
            deleted = n;
            db.flush().unwrap_or_else(|error| panic!("{}", what("flush", error)));
        }
        assert!(deleted >= 8, "{}", what("only so many deletions", db.delete("one more").unwrap_err()));
        drop(readers);
        db.close().unwrap_or_else(|error| panic!("{}", what("close", error)));
        let db = open().unwrap_or_else(|error| panic!("{}", what("open", error)));
        for n in 0..count {
            db.delete(key(n)).unwrap_or_else(|error| panic!("{}", what("deletions after that", error)));
        }
        let again = fill_up(&db, 500);
        assert!(again >= count / 3, "{separation:?}, {level_count} levels: {again} puts, {count} at first");
        assert_sound(&db, "in the end");
    }
}

/// Goal (D3): a batch of deletions that would take what merges need is refused, and the store closes and opens; in pieces they go ahead.
#[test]
fn a_batch_of_deletions_takes_no_more_than_is_kept_for_them() {
    let options = small(FamilyOptions::default());
    let disk = SimDisk::new();
    let open = || Db::open_with_env("/store", options.clone(), disk.env());
    let db = open().unwrap();
    let count = fill_up(&db, 500);
    let all_of = |count: u32| {
        let mut batch = WriteBatch::new();
        (0..count).for_each(|n| batch.delete(format!("absent {n:08}")).unwrap());
        batch
    };
    let refused =
        (1..20).find_map(|n| db.write(all_of(n * 1000), &WriteOptions::default()).err().map(|error| (n, error)));
    let (thousands, error) = refused.unwrap();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(error.to_string().contains("delete less at a time"), "{error}");
    assert!(thousands > 1, "{error}");
    db.close().unwrap();
    let db = open().unwrap();
    for n in 0..count {
        db.delete(key(n)).unwrap();
    }
    assert!(fill_up(&db, 500) >= count / 2);
    assert_sound(&db, "in the end");
}
