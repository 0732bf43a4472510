//! What a store takes up stays within what it may: `max_space_amp`, `max_disk_bytes` and a full disk, however values are kept,
//! whatever the machine does at the limit; and there are ways out.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use esker::env::sim::{SimDisk, Survivors};
use esker::{
    Compression, Db, ErrorKind, FamilyOptions, IngestOptions, Options, ReadOptions, ReclaimMode, Separation,
    SstFileWriter, WriteOptions,
};
use esker_torture::hooked::{Call, Hooked};
use esker_torture::model::Contents;
use esker_torture::numbered::{RECORD_HEADER_BYTES, assert_sound, contents, key, noise};

const BLOB_FILE_BYTES: u64 = 128 << 10;
/// A store that may take up no more, and has to reclaim to go on.
const LIMIT_BYTES: u64 = 3 << 20;

/// How values are kept: where they go, and how long they are.
#[derive(Debug, Clone, Copy)]
struct Kind {
    separation: Separation,
    value_bytes: usize,
    keys: u32,
}

const KINDS: [Kind; 4] = [
    Kind { separation: Separation::AtFlush, value_bytes: 700, keys: 1200 },
    Kind { separation: Separation::AtFlush, value_bytes: 17_000, keys: 60 },
    Kind { separation: Separation::AtWrite, value_bytes: 2000, keys: 500 },
    Kind { separation: Separation::Off, value_bytes: 500, keys: 1500 },
];

fn options(kind: &Kind) -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        separation: kind.separation,
        min_blob_size: 100,
        blob_file_bytes: BLOB_FILE_BYTES,
        blob_compression: Compression::None,
        compression: Compression::None,
        target_file_bytes: 16 << 10,
        level_base_bytes: 64 << 10,
        level0_compaction_trigger: 2,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        punch_holes: true,
        background_jobs: 0,
        // What it grows to is bounded by this, not by what lives.
        manifest_bytes_max: 16 << 10,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: &Options) -> esker::Result<Db> {
    Db::open_with_env("/store", options.clone(), disk.env())
}

fn value(kind: &Kind, n: u32, round: u32) -> Vec<u8> {
    noise(n, round, kind.value_bytes)
}

/// Bytes that the files of the store occupy, without those of which the name ends so.
fn occupied(disk: &SimDisk, without: &str) -> u64 {
    let files = disk.env().files;
    let counts = |path: &&std::path::PathBuf| {
        path.parent() == Some(Path::new("/store")) && (without.is_empty() || !path.to_string_lossy().ends_with(without))
    };
    disk.paths().iter().filter(counts).map(|path| files.metadata(path).unwrap().allocated).sum()
}

/// Goal: all files together, logs too, never take more than the bound allows for what lives, by more than one blob file and what one
/// memtable becomes, while data are overwritten at random eight times over; a narrow bound, too.
#[test]
fn all_files_stay_within_the_bound_while_everything_is_overwritten() {
    let kinds = KINDS.iter().filter(|kind| kind.separation != Separation::Off);
    for (kind, percent) in kinds.flat_map(|kind| [(kind, 130), (kind, 110)]) {
        let disk = SimDisk::new();
        let db = open(&disk, &Options { max_space_amp: percent as f64 / 100.0, ..options(kind) }).unwrap();
        let live = u64::from(kind.keys) * (RECORD_HEADER_BYTES + 8 + kind.value_bytes as u64);
        let mut random = fastrand::Rng::with_seed(3);
        let mut rounds = vec![0; kind.keys as usize];
        for n in 0..kind.keys {
            db.put(key(n), value(kind, n, 0)).unwrap();
        }
        for put in 0..kind.keys * 8 {
            let n = random.u32(..kind.keys);
            rounds[n as usize] += 1;
            db.put(key(n), value(kind, n, rounds[n as usize])).unwrap();
            if put % 8 > 0 {
                continue;
            }
            let used = occupied(&disk, "");
            let (files, tables) = (disk.paths().len() as u64, db.stats().on_disk.table_bytes);
            // Blocks round each file up; tables count as they are.
            let bound = (live + tables) * percent / 100 + BLOB_FILE_BYTES + (64 << 10) + files * 4096;
            assert!(
                used <= bound,
                "{kind:?}, {percent} %: {used} bytes after {put} puts, {live} live and {tables} of tables: {bound}"
            );
        }
        let expected = (0..kind.keys).map(|n| (key(n), value(kind, n, rounds[n as usize]))).collect();
        assert!(contents(&db) == expected, "{kind:?}");
        let stats = db.stats();
        assert!(stats.relocations + stats.punches > 3, "{kind:?}: {stats:?}");
        assert_eq!(kind.value_bytes > 8192, stats.punches > 0, "{kind:?}");
        assert_sound(&db, "in the end");
    }
}

/// Goal: the bound holds while work is under way, too, when what a pass copies lies there twice, and memtables beside the logs they came from:
/// large values, of which a pass may copy as few as it likes, with and without holes.
/// Method: the directory is looked at before whatever changes it.
#[test]
fn all_files_stay_within_the_bound_while_a_pass_is_under_way() {
    for (separation, punch_holes) in
        [Separation::AtFlush, Separation::AtWrite].map(|to| [(to, false), (to, true)]).concat()
    {
        let kind = Kind { separation, value_bytes: 17_000, keys: 300 };
        let disk = SimDisk::new();
        let (most, watched) = (Arc::new(AtomicU64::new(0)), disk.clone());
        let (mut env, peak) = (disk.env(), Arc::clone(&most));
        let hook = move |call: Call<'_>| {
            if matches!(call, Call::Create(_) | Call::Sync(_) | Call::Synced(_) | Call::Other(_)) {
                // Blocks round each file up; tables count as they are.
                let tables = occupied(&watched, "") - occupied(&watched, ".sst");
                let more = watched.paths().len() as u64 * 4096 + tables * 13 / 10;
                peak.fetch_max(occupied(&watched, "").saturating_sub(more), Ordering::Relaxed);
            }
            Ok(())
        };
        env.files = Arc::new(Hooked::new(env.files, hook));
        let options = Options { punch_holes, ..options(&kind) };
        let db = Db::open_with_env("/store", options, env).unwrap();
        (0..kind.keys).for_each(|n| db.put(key(n), value(&kind, n, 0)).unwrap());
        let mut random = fastrand::Rng::with_seed(4);
        let mut rounds = vec![0; kind.keys as usize];
        for _ in 0..kind.keys * 4 {
            let n = random.u32(..kind.keys);
            rounds[n as usize] += 1;
            db.put(key(n), value(&kind, n, rounds[n as usize])).unwrap();
        }
        let live = u64::from(kind.keys) * (RECORD_HEADER_BYTES + 8 + kind.value_bytes as u64);
        let over = most.load(Ordering::Relaxed).saturating_sub(live * 13 / 10);
        assert!(over <= BLOB_FILE_BYTES, "{separation:?}, holes: {punch_holes}: {over} bytes over");
        let stats = db.stats();
        assert!(stats.relocations > 10 || stats.punches > 3, "{separation:?}, holes: {punch_holes}: {stats:?}");
        let expected = (0..kind.keys).map(|n| (key(n), value(&kind, n, rounds[n as usize]))).collect();
        assert!(contents(&db) == expected, "{separation:?}, holes: {punch_holes}");
    }
}

/// Goal: the bound holds from the first overwrite on, when no compaction has told yet that anything is, and none will soon. Until it is
/// noticed, which takes a few dozens of samples, one for every 64 KiB, what is written passes for living.
#[test]
fn overwriting_is_noticed_before_any_compaction() {
    let kind = Kind { separation: Separation::AtFlush, value_bytes: 2000, keys: 3000 };
    let disk = SimDisk::new();
    let mut options = options(&kind);
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.level0_compaction_trigger) = (256 << 10, 36);
    (family.level0_slowdown_trigger, family.level0_stop_trigger) = (50, 60);
    let db = open(&disk, &options).unwrap();
    let live = u64::from(kind.keys) * (RECORD_HEADER_BYTES + 8 + kind.value_bytes as u64);
    for n in 0..kind.keys {
        db.put(key(n), value(&kind, n, 0)).unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut rounds = vec![0; kind.keys as usize];
    for put in 0..kind.keys * 4 {
        let n = random.u32(..kind.keys);
        rounds[n as usize] += 1;
        db.put(key(n), value(&kind, n, rounds[n as usize])).unwrap();
        let (used, files) = (occupied(&disk, ".log"), disk.paths().len() as u64);
        let bound = live * 13 / 10 + BLOB_FILE_BYTES + (1 << 20) + files * 4096;
        assert!(put % 16 > 0 || used <= bound, "{used} bytes after {put} puts, {live} live: {bound}");
    }
    let expected = (0..kind.keys).map(|n| (key(n), value(&kind, n, rounds[n as usize]))).collect();
    assert!(contents(&db) == expected);
}

/// A history at the limit: puts until there is room for no more, overwrites that need reclaim, deletions, and puts again.
struct AtLimit {
    expected: Contents,
    /// What the put that failed last might have left, had the machine died.
    refused: usize,
}

/// Does all of it; `look` is called after each call.
fn live_at_the_limit(db: &Db, kind: &Kind, mut look: impl FnMut()) -> esker::Result<AtLimit> {
    let mut at = AtLimit { expected: Contents::new(), refused: 0 };
    let mut random = fastrand::Rng::with_seed(9);
    let mut put = |at: &mut AtLimit, n: u32, round: u32| -> esker::Result<bool> {
        let value = value(kind, n, round);
        let result = db.put(key(n), &value);
        look();
        match result {
            Ok(()) => {
                at.expected.insert(key(n), value);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                at.refused += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    };
    let mut count = 0;
    while put(&mut at, count, 0)? {
        count += 1;
        assert!(count < 100_000, "there is no limit");
    }
    for round in 1..4 {
        for _ in 0..count / 2 {
            put(&mut at, random.u32(..count), round)?;
        }
    }
    // However full it is, deletions are taken, and bring room for puts without anybody's help.
    let family = db.default_column_family();
    for n in (0..count).filter(|n| n % 4 != 0) {
        let value = at.expected.remove(&key(n)).unwrap();
        if n % 2 == 0 {
            db.delete(key(n))?;
        } else {
            assert!(db.compare_and_delete(&family, key(n), value, &WriteOptions::default())?);
        }
    }
    let mut resumed = 0;
    for n in 0..count / 4 {
        resumed += u32::from(put(&mut at, n, 9)?);
    }
    let all = count / 4;
    assert!(
        resumed >= all / 2,
        "{kind:?}: only {resumed} of {all} puts after three quarters were deleted: {:?}",
        db.stats()
    );
    Ok(at)
}

/// Puts one key after the other until there is no more room; how many there are.
fn fill_up(db: &Db, kind: &Kind) -> u32 {
    for count in 0.. {
        match db.put(key(count), value(kind, count, 0)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Exhausted => return count,
            Err(error) => panic!("{error}"),
        }
    }
    u32::MAX
}

/// Goal (W3, H4): a full store takes deletions however few of them each flush writes, closes, opens, and takes puts again: with no level between level 0
/// and the deepest, too, and while values come home, as far as there is room for that.
#[test]
fn deletions_that_are_flushed_one_by_one_bring_room_for_writes() {
    let kinds = [Separation::Off, Separation::AtFlush, Separation::AtWrite].into_iter();
    let cases = kinds.flat_map(|separation| [(separation, 2), (separation, 3), (separation, 7)]);
    let cases = cases.flat_map(|case| [(case, false), (case, true)]);
    // Without blob files there is nothing to bring home.
    let cases = cases.filter(|((separation, _), falls_back)| *separation != Separation::Off || !falls_back);
    for ((separation, level_count), falls_back) in cases {
        let what = format!("{separation:?}, {level_count} levels, falls back: {falls_back}");
        let kind = Kind { separation, value_bytes: 2000, keys: 0 };
        let disk = SimDisk::new();
        let mut options = Options { max_disk_bytes: 2 * LIMIT_BYTES, ..options(&kind) };
        options.families.get_mut("default").unwrap().level_count = level_count;
        let db = open(&disk, &options).unwrap();
        let count = fill_up(&db, &kind);
        if falls_back {
            db.set_separation(&db.default_column_family(), Separation::FallBack).unwrap();
            db.wait_for_compact().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        // From all over, so that every table meets all others.
        for n in (0..7).flat_map(|first| (first..count).step_by(7)) {
            db.delete(key(n)).unwrap_or_else(|error| panic!("{what}: {n} of {count}: {error}"));
            if n % 3 == 0 {
                db.flush().unwrap_or_else(|error| panic!("{what}: {n} of {count}: {error}"));
            }
        }
        db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        let db = open(&disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let again = fill_up(&db, &kind);
        assert!(again >= count / 3, "{what}: {again} puts, {count} at first");
        assert_sound(&db, &what);
    }
}

/// Goal (W3): deletions alone bring room for puts, though memtables are so large that all of them would fit into one: it would need more room than is
/// kept for reclaim.
#[test]
fn deletions_alone_bring_room_for_writes() {
    for separation in [Separation::AtFlush, Separation::AtWrite, Separation::Off] {
        let kind = Kind { separation, value_bytes: 250, keys: 0 };
        let disk = SimDisk::new();
        let mut options = Options { max_disk_bytes: 8 << 20, ..options(&kind) };
        let family = options.families.get_mut("default").unwrap();
        (family.write_buffer_bytes, family.target_file_bytes, family.level_base_bytes) =
            (1 << 20, 128 << 10, 512 << 10);
        let db = open(&disk, &options).unwrap();
        let count = fill_up(&db, &kind);
        for n in (0..count).filter(|n| n % 4 != 0) {
            db.delete(key(n)).unwrap();
            assert!(occupied(&disk, "") <= 8 << 20);
        }
        let (mut expected, mut resumed) = (Contents::new(), 0);
        for n in (0..count).step_by(4) {
            expected.insert(key(n), value(&kind, n, 0));
            match db.put(key(n), value(&kind, n, 1)) {
                Ok(()) => {
                    resumed += 1;
                    expected.insert(key(n), value(&kind, n, 1));
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}"),
            }
        }
        assert!(resumed >= count / 8, "{separation:?}: {resumed} puts resumed after three of {count} were deleted");
        assert!(contents(&db) == expected, "{separation:?}");
        assert_sound(&db, "in the end");
    }
}

/// Goal: `max_disk_bytes` is never exceeded, by no file and at no moment; at the limit puts get `Exhausted` and nothing else fails, reads
/// and deletions go on, and puts resume by themselves.
#[test]
fn the_limit_is_never_exceeded_and_writes_resume() {
    for kind in &KINDS {
        let disk = SimDisk::new();
        let options = Options { max_disk_bytes: LIMIT_BYTES, ..options(kind) };
        let db = open(&disk, &options).unwrap();
        let mut worst = 0;
        // A look at every file takes its time.
        let mut calls = 0;
        let look = || {
            calls += 1;
            if calls % 16 == 0 {
                worst = worst.max(occupied(&disk, ""));
            }
        };
        let at = live_at_the_limit(&db, kind, look).unwrap();
        assert!(worst <= LIMIT_BYTES, "{kind:?}: {worst}");
        assert!(worst >= LIMIT_BYTES / 3, "{kind:?}: most of it can be used, not {worst}");
        assert!(at.refused > 0 && contents(&db) == at.expected, "{kind:?}: {}", at.refused);
        assert_sound(&db, "at the limit");
        db.close().unwrap();
        assert!(occupied(&disk, "") <= LIMIT_BYTES);
        let db = open(&disk, &options).unwrap();
        assert!(contents(&db) == at.expected, "{kind:?}");
    }
}

/// Goal: the same on a disk that is full, which nobody limited: and once there is room, everything goes on.
#[test]
fn a_full_disk_refuses_puts_only_and_all_goes_on_when_there_is_room() {
    for kind in &KINDS {
        let disk = SimDisk::new();
        disk.set_capacity(Some(LIMIT_BYTES));
        let db = open(&disk, &options(kind)).unwrap();
        let at = live_at_the_limit(&db, kind, || ()).unwrap();
        assert!(at.refused > 0 && contents(&db) == at.expected, "{kind:?}: {}", at.refused);
        disk.set_capacity(None);
        for n in 0..400 {
            db.put(key(n), value(kind, n, 20)).unwrap();
        }
        db.flush().unwrap();
        assert!(db.stats().background_error.is_none(), "{:?}", db.stats().background_error);
        assert_sound(&db, "with room again");
    }
}

/// Goal: a machine that dies at the limit, or on a full disk, comes back with everything that was acknowledged, within the limit.
#[test]
fn death_at_the_limit_loses_nothing() {
    for kind in &KINDS {
        let options = Options { max_disk_bytes: LIMIT_BYTES, ..options(kind) };
        let healthy = SimDisk::new();
        live_at_the_limit(&open(&healthy, &options).unwrap(), kind, || ()).unwrap();
        let ops = healthy.op_count();
        for n in (1..24).map(|part| ops * part / 24 + part) {
            let disk = SimDisk::new();
            let db = open(&disk, &options).unwrap();
            disk.die_after(n);
            let mut acknowledged = Contents::new();
            for n in 0.. {
                match db.put(key(n % 2000), value(kind, n % 2000, n / 2000)) {
                    Ok(()) => drop(acknowledged.insert(key(n % 2000), value(kind, n % 2000, n / 2000))),
                    Err(error) if error.kind() == ErrorKind::Exhausted && n < 20_000 => {
                        if db.delete(key(n % 2000 / 2)).is_err() {
                            break;
                        }
                        acknowledged.remove(&key(n % 2000 / 2));
                    }
                    Err(_) => break,
                }
                if n >= 20_000 {
                    break;
                }
            }
            drop(db);
            // The process died; what it wrote is there.
            let disk = disk.after_process_death();
            let db = open(&disk, &options).unwrap();
            let found = contents(&db);
            let differs = acknowledged.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
            // The call that the machine died in may have happened.
            assert!(differs <= 1 && found.len().abs_diff(acknowledged.len()) <= 1, "{kind:?}, {n}: {differs}");
            assert!(occupied(&disk, "") <= LIMIT_BYTES, "{kind:?}, {n}");
            assert_sound(&db, "after death");
            drop(db);
            let image = disk.after_power_loss(Survivors::Sample { seed: n });
            assert_sound(&open(&image, &options).unwrap(), "after power loss");
        }
    }
}

/// Goal: what iterators keep is nobody's to free: writers go on past the bound, and the space comes back when it is let go.
#[test]
fn what_a_reader_keeps_holds_no_writer_back() {
    let kind = &KINDS[0];
    let disk = SimDisk::new();
    let db = open(&disk, &options(kind)).unwrap();
    for n in 0..kind.keys {
        db.put(key(n), value(kind, n, 0)).unwrap();
    }
    db.flush().unwrap();
    let mut iterator = db.iter().unwrap();
    iterator.seek_to_first().unwrap();
    for n in 0..kind.keys * 3 {
        db.put(key(n % kind.keys), value(kind, n % kind.keys, n)).unwrap();
    }
    let plan = db.reclaim_plan(&db.default_column_family(), 0.0).unwrap();
    assert!(plan.held_bytes > 500_000 && plan.is_earlier_state_held, "{plan:?}");
    let held = occupied(&disk, "");
    drop(iterator);
    db.put(key(0), "x").unwrap();
    db.flush().unwrap();
    assert!(held - occupied(&disk, "") > plan.held_bytes / 2);
    assert_eq!(db.reclaim_plan(&db.default_column_family(), 0.0).unwrap().held_bytes, 0);
}

/// Goal (B1, B10): tables that go with a range of keys are counted as garbage to the byte, and bring nothing older to light.
/// Method: the same keys lie in several levels; ranges cut through them at random.
#[test]
fn files_deleted_in_a_range_leave_an_exact_ledger_and_nothing_old() {
    let kind = &KINDS[0];
    let mut dropped = 0;
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new();
        let mut options = Options { reclaim_mode: ReclaimMode::Manual, ..options(kind) };
        options.families.get_mut("default").unwrap().target_file_bytes = 4 << 10;
        let db = open(&disk, &options).unwrap();
        let family = db.default_column_family();
        let mut newest = vec![0; 900];
        for round in 1..6 {
            for n in 0..900 {
                if random.u32(..round) == 0 {
                    db.put(key(n), value(kind, n, round)).unwrap();
                    newest[n as usize] = round;
                }
            }
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        let (from, to) = (random.u32(..450), random.u32(450..900));
        dropped += db.delete_files_in_range(&family, Some(&key(from)), Some(&key(to))).unwrap();
        drop(snapshot);
        let check = |db: &Db| {
            for n in 0..900 {
                let found = db.get(key(n)).unwrap();
                let is_newest = found.as_deref() == Some(&value(kind, n, newest[n as usize])[..]);
                assert!(
                    is_newest || found.is_none() && (from..=to).contains(&n),
                    "seed {seed}: key {n} is something old"
                );
            }
            assert_sound(db, "after files were deleted");
        };
        check(&db);
        let mut seen = 0;
        while iterator.valid() {
            assert!(iterator.value().unwrap().len() == kind.value_bytes);
            seen += 1;
            iterator.next().unwrap();
        }
        assert_eq!(seen, 900, "an iterator reads on");
        drop(iterator);
        db.close().unwrap();
        let db = open(&disk, &options).unwrap();
        check(&db);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        db.reclaim(&db.default_column_family(), 0.0).unwrap();
        check(&db);
        let stats = db.stats().families[0].clone();
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| RECORD_HEADER_BYTES + (key.len() + value.len()) as u64;
        assert_eq!(stats.blob_live_bytes, contents(&db).iter().map(record).sum::<u64>(), "seed {seed}");
        assert_eq!(stats.blob_garbage_bytes, 0, "seed {seed}");
        db.close().unwrap();
    }
    assert!(dropped > 50_000, "{dropped} bytes of tables");
}

/// Goal: a family that comes and goes leaves no blob file, and what comes in as files counts for the limit, too.
#[test]
fn dropped_families_and_files_from_outside_are_counted() {
    let kind = &KINDS[0];
    let disk = SimDisk::new();
    let options = Options { max_disk_bytes: LIMIT_BYTES, ..options(kind) };
    let db = open(&disk, &options).unwrap();
    for round in 0..6 {
        let family = db.create_column_family("passing", options.families["default"].clone()).unwrap();
        for n in 0..1200 {
            db.put_cf(&family, key(n), value(kind, n, round), &Default::default()).unwrap();
        }
        db.drop_column_family(&family).unwrap();
        drop(family);
        db.flush().unwrap();
        assert!(occupied(&disk, "") <= LIMIT_BYTES, "round {round}");
    }
    let path = Path::new("/outside.sst");
    let mut writer = SstFileWriter::create_with_env(path, &options.families["default"], disk.env()).unwrap();
    for n in 0..6000 {
        writer.put(key(n), value(kind, n, 0)).unwrap();
    }
    writer.finish().unwrap();
    let error = db.ingest(&db.default_column_family(), &[path], &IngestOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(contents(&db).is_empty() && occupied(&disk, "") <= LIMIT_BYTES);
    assert_sound(&db, "after files were refused");
}

/// Goal (W3): overwriting within the limit is never refused, however much of it one memtable takes: a log that is preallocated
/// takes nothing that the flush before it needs.
#[test]
fn overwriting_within_the_limit_goes_on() {
    let limits = [4u64, 5, 6, 7, 9, 12].into_iter().flat_map(|limit| KINDS.iter().map(move |kind| (limit << 20, kind)));
    for (limit, kind) in limits {
        let disk = SimDisk::new();
        let mut options = Options { max_disk_bytes: limit, max_space_amp: 50.0, ..options(kind) };
        let family = options.families.get_mut("default").unwrap();
        (family.write_buffer_bytes, family.blob_file_bytes) = (512 << 10, 1 << 20);
        let db = open(&disk, &options).unwrap();
        let mut random = fastrand::Rng::with_seed(limit);
        let keys = 1_200_000 / kind.value_bytes as u32;
        let mut expected = Contents::new();
        for at in 0..keys * 10 {
            let n = if at < keys { at } else { random.u32(..keys) };
            let value = noise(n, at, random.usize(kind.value_bytes * 7 / 8..kind.value_bytes));
            db.put(key(n), &value)
                .unwrap_or_else(|error| panic!("{kind:?} in {limit} bytes, {at}: {error}\n{:?}", db.stats()));
            expected.insert(key(n), value);
        }
        assert!(contents(&db) == expected, "{kind:?} in {limit} bytes");
        assert!(db.stats().background_error.is_none(), "{:?}", db.stats().background_error);
        assert_sound(&db, "within the limit");
    }
}

/// Goal (P7): without blob files, too, most of the disk can be used: what is overwritten goes in steps for which there is room, though there is
/// none to merge everything at once. What is deleted comes to take effect in the same way, and snapshots see what they saw.
#[test]
fn without_blob_files_room_for_a_few_tables_is_enough() {
    let kind = &KINDS[3];
    for (seed, live) in [(0, 40), (1, 50), (2, 60), (3, 65)] {
        let limit = 8 << 20;
        let disk = SimDisk::new();
        let mut options = Options { max_disk_bytes: limit, ..options(kind) };
        let family = options.families.get_mut("default").unwrap();
        // So large that only the smallness of the disk keeps tables small.
        (family.write_buffer_bytes, family.target_file_bytes) = (256 << 10, 64 << 20);
        (family.level0_compaction_trigger, family.level_base_bytes) = (4, 256 << 20);
        let db = open(&disk, &options).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let keys = (limit * live / 100 / (kind.value_bytes as u64 + 30)) as u32;
        let (mut expected, mut seen, mut looked) = (Contents::new(), None, 0);
        for at in 0..keys * 8 {
            let n = if at < keys { at } else { random.u32(..keys) };
            let (key, value) = (key(n), noise(n, at, random.usize(kind.value_bytes / 2..=kind.value_bytes)));
            if at >= keys && at % 16 == 0 {
                db.delete(&key).unwrap();
                expected.remove(&key);
                continue;
            }
            let said = format!("{live} of a hundred live, put {at}");
            db.put(&key, &value).unwrap_or_else(|error| panic!("{said}: {error}\n{:?}", db.stats()));
            expected.insert(key, value);
            // For a while: what it sees is nobody's to drop.
            let part = at % (keys / 4);
            if part < keys / 40 {
                seen.get_or_insert_with(|| (db.snapshot(), expected.clone()));
            } else if let Some((snapshot, then)) = seen.take() {
                let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
                for key in then.keys().step_by(50) {
                    let found = db.get_cf(&db.default_column_family(), key, &options).unwrap();
                    assert!(found.as_deref() == then.get(key).map(Vec::as_slice), "{said}");
                }
                looked += 1;
            }
            assert!(at % 64 > 0 || occupied(&disk, "") <= limit, "{said}");
        }
        assert!(contents(&db) == expected && looked >= 30, "{live}, {looked}");
        assert_sound(&db, "within the limit");
        let (levels, tables) = (&db.stats().families[0].levels, db.stats().on_disk.table_bytes);
        let largest = levels.iter().map(|level| level.bytes / u64::try_from(level.files.max(1)).unwrap()).max();
        assert!(largest.unwrap() <= 512 << 10, "tables are small: {levels:?}");
        assert!(tables > limit / 100 * live / 2, "{tables}");
        drop(db);
        assert!(contents(&open(&disk, &options).unwrap()) == expected, "{live}, after opening");
    }
}

/// Goal (W3): the same where blob files are larger than they would become on so small a disk: from when it was larger.
#[test]
fn large_files_from_before_can_be_reclaimed_within_the_limit() {
    let kind = &KINDS[0];
    let disk = SimDisk::new();
    let mut options = Options { reclaim_mode: ReclaimMode::Manual, max_space_amp: 50.0, ..options(kind) };
    let family = options.families.get_mut("default").unwrap();
    (family.write_buffer_bytes, family.blob_file_bytes) = (512 << 10, 1 << 20);
    let mut random = fastrand::Rng::with_seed(1);
    let (mut expected, mut round) = (Contents::new(), 0);
    let mut put = |db: &Db, expected: &mut Contents| {
        round += 1;
        let n = random.u32(..kind.keys);
        db.put(key(n), value(kind, n, round)).unwrap();
        expected.insert(key(n), value(kind, n, round));
    };
    let db = open(&disk, &options).unwrap();
    (0..kind.keys * 5).for_each(|_| put(&db, &mut expected));
    db.close().unwrap();
    let limit = occupied(&disk, "") + (1 << 20);
    let db = open(&disk, &Options { max_disk_bytes: limit, reclaim_mode: ReclaimMode::Auto, ..options }).unwrap();
    (0..kind.keys * 10).for_each(|_| put(&db, &mut expected));
    assert!(contents(&db) == expected);
    assert_sound(&db, "within the limit");
}

/// Goal (W3, W4): several writers at the limit, beside threads that flush and reclaim, wait for what these free, and are not refused:
/// neither between a pass and the removal of what it emptied, nor because two passes began in the room for one.
#[test]
fn writers_wait_at_the_limit_as_long_as_something_can_be_freed() {
    for (seed, kind) in (0..3).flat_map(|seed| KINDS.iter().map(move |kind| (seed, kind))) {
        let disk = SimDisk::new();
        let mut options = Options { max_disk_bytes: LIMIT_BYTES, max_space_amp: 50.0, ..options(kind) };
        options.background_jobs = 2 + seed as usize;
        options.families.get_mut("default").unwrap().write_buffer_bytes = 128 << 10;
        let db = open(&disk, &options).unwrap();
        let keys = 1_100_000 / kind.value_bytes as u32;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 10 + thread);
                    for round in 0..keys * 4 {
                        let n = random.u32(..keys);
                        db.put(key(n), value(kind, n, round)).unwrap_or_else(|error| {
                            panic!("{kind:?}, {seed}: {error}\n{:?}", db.stats());
                        });
                    }
                });
            }
        });
        assert!(db.stats().background_error.is_none(), "{:?}", db.stats().background_error);
        assert_sound(&db, "at the limit");
        db.close().unwrap();
        assert!(occupied(&disk, "") <= LIMIT_BYTES);
    }
}

/// Goal (W3, B8): work that fails again and again is not waited for, whether it leaves files behind or none: whoever puts is told that there is
/// no room, and goes on once it is mended. That files are removed meanwhile hides no failure.
#[test]
fn work_that_goes_on_failing_keeps_no_writer_waiting() {
    let cases = [false, true].into_iter().flat_map(|at_sync| [0, 1, 2].map(|jobs| (at_sync, jobs)));
    for (at_sync, background_jobs) in cases {
        let kind = &KINDS[0];
        let disk = SimDisk::new();
        let options = Options { reclaim_mode: ReclaimMode::Manual, max_space_amp: 50.0, ..options(kind) };
        let db = open(&disk, &options).unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..kind.keys * 3 {
            let n = random.u32(..kind.keys);
            db.put(key(n), value(kind, n, round)).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let is_broken = Arc::new(AtomicBool::new(true));
        let hook = {
            let is_broken = is_broken.clone();
            move |call: Call<'_>| match call {
                Call::Create(path) | Call::Sync(path)
                    if is_broken.load(Ordering::Relaxed)
                        && matches!(call, Call::Sync(_)) == at_sync
                        && path.extension().is_some_and(|e| e == "sst" || e == "blob") =>
                {
                    let source = std::io::Error::from_raw_os_error(5);
                    Err(esker::env::Error::new("making a file", path, source))
                }
                _ => Ok(()),
            }
        };
        let mut env = disk.env();
        env.files = Arc::new(Hooked::new(env.files, hook));
        let max_disk_bytes = occupied(&disk, "") + (256 << 10);
        let options = Options { max_disk_bytes, reclaim_mode: ReclaimMode::Auto, background_jobs, ..options };
        let db = Db::open_with_env("/store", options, env).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| told.send(db.put(key(0), value(kind, 0, 1))));
            // Far longer than any number of attempts take.
            let result = hears.recv_timeout(Duration::from_secs(20));
            let told = db.stats().background_error;
            is_broken.store(false, Ordering::Relaxed);
            let error = result.unwrap_or_else(|_| panic!("{background_jobs}: it waits for what fails")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            assert_eq!(told.map(|error| error.kind()), Some(ErrorKind::Io), "{background_jobs}");
        });
        db.wait_for_compact().unwrap();
        db.put(key(0), value(kind, 0, 1)).unwrap();
        assert_sound(&db, "once it is mended");
    }
}

/// Goal (G4): a file that cannot be read keeps no other from being emptied, and is not copied in vain for ever; what is wrong is told.
#[test]
fn a_blob_file_that_cannot_be_read_keeps_no_other_from_being_reclaimed() {
    for kind in KINDS.iter().filter(|kind| kind.separation == Separation::AtFlush) {
        let disk = SimDisk::new();
        let options = Options { reclaim_mode: ReclaimMode::Manual, punch_holes: false, ..options(kind) };
        let db = open(&disk, &options).unwrap();
        for n in 0..kind.keys {
            db.put(key(n), value(kind, n, 0)).unwrap();
        }
        // The first files have the most garbage.
        let overwritten: Vec<u32> = (0..kind.keys).filter(|n| n % 3 != 0 || *n > kind.keys / 2 && n % 4 != 0).collect();
        for n in &overwritten {
            db.put(key(*n), value(kind, *n, 1)).unwrap();
        }
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let uses = |db: &Db| db.reclaim_plan(&db.default_column_family(), 0.3).unwrap().files;
        let part = |file: &esker::BlobFileUse| file.garbage_bytes as f64 / file.bytes as f64;
        let before = uses(&db);
        let unread =
            before.iter().filter(|file| file.live_bytes > 0).max_by(|a, b| part(a).total_cmp(&part(b))).unwrap();
        db.close().unwrap();
        let is_broken = Arc::new(AtomicBool::new(false));
        let hook = {
            let (is_broken, name) = (is_broken.clone(), format!("{:06}.blob", unread.number));
            move |call: Call<'_>| match call {
                Call::Read(path) if is_broken.load(Ordering::Relaxed) && path.ends_with(&name) => {
                    Err(esker::env::Error::new("reading", path, std::io::Error::from_raw_os_error(5)))
                }
                _ => Ok(()),
            }
        };
        let mut env = disk.env();
        env.files = Arc::new(Hooked::new(env.files, hook));
        let options = Options { reclaim_mode: ReclaimMode::Auto, max_space_amp: 1.1, cache_bytes: 0, ..options };
        let db = Db::open_with_env("/store", options, env).unwrap();
        is_broken.store(true, Ordering::Relaxed);
        let live: u64 = before.iter().map(|file| file.live_bytes).sum();
        for round in 0..20 {
            // Not of that file, or it would be dead before long.
            for n in overwritten.iter().filter(|n| **n % 2 == 0) {
                db.put(key(*n), value(kind, *n, 2 + round)).unwrap();
            }
            db.flush().unwrap();
        }
        let after = uses(&db);
        let left: Vec<_> = before.iter().filter(|file| after.iter().any(|left| left.number == file.number)).collect();
        assert!(left.iter().any(|file| file.number == unread.number), "it holds what lives");
        let picked = left.iter().filter(|file| file.number != unread.number && part(file) > 0.4).count();
        assert_eq!(picked, 0, "{kind:?}: {left:?}");
        let told = db.stats().background_error.unwrap();
        assert!(
            told.kind() == ErrorKind::Io && told.to_string().contains(&format!("{:06}.blob", unread.number)),
            "{told}"
        );
        let stats = db.stats();
        assert!(stats.written.reclaim_bytes < live * 20, "{} bytes of {live}", stats.written.reclaim_bytes);
        is_broken.store(false, Ordering::Relaxed);
        assert_sound(&db, "once it can be read");
    }
}

/// A key that is none of [`key`]'s, and behind them all.
fn later(n: u32) -> Vec<u8> {
    format!("later {n:06}").into_bytes()
}

/// Goal: a load that finds no room waits for what reclaim frees; a larger one is refused before writers are, and leaves nothing. The same of
/// files from outside, copied and moved.
#[test]
fn what_comes_in_as_files_asks_for_room_too() {
    let mut needed_reclaim = 0;
    for kind in &KINDS {
        let disk = SimDisk::new();
        let options = Options { max_disk_bytes: LIMIT_BYTES, max_space_amp: 10.0, ..options(kind) };
        let db = open(&disk, &options).unwrap();
        let family = db.default_column_family();
        let keys = kind.keys / 2;
        let mut expected = Contents::new();
        let mut random = fastrand::Rng::with_seed(5);
        let fifths = if kind.separation == Separation::Off { 2 } else { 3 };
        // Without what is kept for deletions on so small a disk.
        let count = (LIMIT_BYTES * fifths / 5 - (64 << 10)) as u32 / kind.value_bytes as u32;
        let mut room = LIMIT_BYTES;
        // Until the load needs what is garbage: reclaim frees some now and then.
        for put in 0..keys * 12 {
            let n = if put < keys { put } else { random.u32(..keys) };
            db.put(key(n), value(kind, n, put)).unwrap();
            expected.insert(key(n), value(kind, n, put));
            room = LIMIT_BYTES - occupied(&disk, "");
            if put > keys * 6 && room < u64::from(count) * kind.value_bytes as u64 {
                break;
            }
        }
        let mut load = db.bulk_load(&family).unwrap();
        for n in 0..count {
            load.put(later(n), value(kind, n, 7)).unwrap();
            expected.insert(later(n), value(kind, n, 7));
        }
        let loaded = load
            .finish()
            .unwrap_or_else(|error| panic!("{kind:?}, {room} bytes free: {error}\n{:#?}", db.stats().on_disk));
        needed_reclaim += u32::from(loaded.file_bytes > room);
        assert!(contents(&db) == expected, "{kind:?}");
        for n in (0..count).filter(|n| n % 4 > 0) {
            db.delete(later(n)).unwrap();
            expected.remove(&later(n));
        }

        let mut load = db.bulk_load(&family).unwrap();
        let (mut n, mut puts) = (count, 0);
        let refused = loop {
            if let Err(error) = load.put(later(n), value(kind, n, 8)) {
                break error;
            }
            if n % 8 == 0 && kind.value_bytes < 10_000 {
                db.put(key(puts % keys), value(kind, puts % keys, n)).unwrap();
                expected.insert(key(puts % keys), value(kind, puts % keys, n));
                puts += 1;
            }
            n += 1;
            assert!(u64::from(n) * (kind.value_bytes as u64) < 3 * LIMIT_BYTES, "{kind:?}: there is no limit");
        };
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{kind:?}: {refused}");
        assert!(refused.to_string().contains("there is no room"), "{refused}");
        for n in 0..keys {
            db.put(key(n), value(kind, n, 9)).unwrap();
            expected.insert(key(n), value(kind, n, 9));
        }
        assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Exhausted);
        assert!(contents(&db) == expected, "{kind:?}");

        for (move_files, too_large) in [(false, true), (true, true), (false, false), (true, false)] {
            let path = format!("/outside-{move_files}-{too_large}.sst");
            let mut writer = SstFileWriter::create_with_env(&path, &options.families["default"], disk.env()).unwrap();
            let bytes = if too_large { LIMIT_BYTES } else { LIMIT_BYTES / 20 };
            let mut taken_in = Contents::new();
            for n in 0..bytes as u32 / kind.value_bytes as u32 {
                let at = later(n + 10_000 * u32::from(move_files));
                writer.put(&at, value(kind, n, 9)).unwrap();
                taken_in.insert(at, value(kind, n, 9));
            }
            writer.finish().unwrap();
            let options = IngestOptions { move_files, ..IngestOptions::default() };
            let ingested = db.ingest(&family, &[path], &options);
            match ingested {
                Ok(_) if !too_large => expected.extend(taken_in),
                Err(error) if too_large && error.kind() == ErrorKind::Exhausted => {}
                other => panic!("{kind:?}, moved {move_files}, too large {too_large}: {other:?}"),
            }
            assert!(occupied(&disk, "") <= LIMIT_BYTES);
            db.put(key(0), value(kind, 0, 10)).unwrap();
            expected.insert(key(0), value(kind, 0, 10));
        }
        db.flush().unwrap();
        assert!(contents(&db) == expected, "{kind:?}");
        assert_sound(&db, "after all of it");
    }
    assert!(needed_reclaim >= 2, "there was room enough for all loads but {needed_reclaim}");
}

/// Goal (W5): loads beside writers and background threads, at the limit: each call gets on or is told that there is no room, nobody waits for ever,
/// a load is there whole or not at all, and all files stay within the limit.
#[test]
fn loads_and_writers_share_what_there_is() {
    let refused = AtomicUsize::new(0);
    for (jobs, kind) in [1, 2, 3, 2].into_iter().zip(&KINDS) {
        let disk = SimDisk::new();
        let options =
            Options { max_disk_bytes: LIMIT_BYTES, max_space_amp: 2.0, background_jobs: jobs, ..options(kind) };
        let db = open(&disk, &options).unwrap();
        let keys = 500_000 / kind.value_bytes as u32;
        let is_over = AtomicBool::new(false);
        let is_refusal = |error: &esker::Error| {
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{kind:?}, {jobs}: {error}");
            refused.fetch_add(1, Ordering::Relaxed);
        };
        let (puts, loads) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut random, mut puts, mut round) = (fastrand::Rng::with_seed(jobs as u64), Contents::new(), 0);
                while !is_over.load(Ordering::Relaxed) || round < keys {
                    let n = random.u32(..keys);
                    round += 1;
                    match db.put(key(n), value(kind, n, round)) {
                        Ok(()) => drop(puts.insert(key(n), value(kind, n, round))),
                        Err(error) => is_refusal(&error),
                    }
                }
                puts
            });
            let (family, mut loads) = (db.default_column_family(), Contents::new());
            // One of them is about as large as what there is, or larger: then it is refused once the writer has had many times as much.
            let large = if jobs == 2 { 7 } else { 4 };
            for (round, times) in [1, large, 2].into_iter().enumerate() {
                let (round, count) = (round as u32, keys * times);
                let mut load = db.bulk_load(&family).unwrap();
                let put = (0..count).try_for_each(|n| load.put(later(n), value(kind, n, round)));
                match put.and_then(|()| load.finish().map(drop)) {
                    Ok(()) => loads.extend((0..count).map(|n| (later(n), value(kind, n, round)))),
                    Err(error) => is_refusal(&error),
                }
                for (key, _) in loads.split_off(&later(keys)) {
                    db.delete(key).unwrap();
                }
            }
            is_over.store(true, Ordering::Relaxed);
            (writer.join().unwrap(), loads)
        });
        let expected: Contents = puts.into_iter().chain(loads).collect();
        assert!(contents(&db) == expected, "{kind:?}, {jobs}");
        assert_sound(&db, "after all loads");
        db.close().unwrap();
        assert!(occupied(&disk, "") <= LIMIT_BYTES);
    }
    assert!(refused.into_inner() > 0, "some of the loads are too large");
}
