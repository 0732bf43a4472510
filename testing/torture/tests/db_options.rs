//! Options of a store that change while it is open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use esker::env::sim::{Fault, SimDisk, Survivors};
use esker::{Cache, Compression, Db, ErrorKind, FamilyOptions, MutableOptions, Options, ReclaimMode};

const BLOCK_BYTES: u64 = 4096;

fn options() -> Options {
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        blob_file_bytes: 64 << 10,
        min_blob_size: 512,
        blob_compression: Compression::None,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        ballast_bytes: 0,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: Options) -> Db {
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn value(n: u32) -> Vec<u8> {
    (0..2000u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(n) >> 13) as u8).collect()
}

/// What all files of the store take up.
fn used(disk: &SimDisk) -> u64 {
    let is_ours = |path: &&std::path::PathBuf| path.parent() == Some(Path::new("/store"));
    let bytes = |path| disk.file_bytes(path).map_or(0, |raw| (raw.len() as u64).next_multiple_of(BLOCK_BYTES));
    disk.paths().iter().filter(is_ours).map(|path| bytes(path)).sum()
}

/// Puts values from `next` on until there is no room; which was the first that did not go in.
fn fill(db: &Db, next: u32, most: u32) -> u32 {
    for n in next..next + most {
        match db.put(n.to_be_bytes(), value(n)) {
            Err(error) if error.kind() == ErrorKind::Exhausted => return n,
            done => done.unwrap(),
        }
    }
    next + most
}

fn assert_holds(db: &Db, keys: std::ops::Range<u32>) {
    keys.for_each(|n| assert_eq!(db.get(n.to_be_bytes()).unwrap().as_deref(), Some(&*value(n)), "{n}"));
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{:?}", check.errors);
}

/// Goal: what was changed holds at once, and what a store keeps of it after the next open; what was refused or could not be written down changed nothing.
#[test]
fn a_change_is_whole_and_lasts_or_is_none() {
    let disk = SimDisk::new();
    let db = open(&disk, options());
    let change = |options: &mut MutableOptions| {
        options.wal_bytes_max = 1 << 20;
        options.manifest_bytes_max = 8 << 10;
        options.max_space_amp = 1.75;
        options.max_disk_bytes = 64 << 20;
        options.reclaim_mode = ReclaimMode::Manual;
        options.holes_within_values = false;
    };
    // Every call of it in turn, until there is none left to fail.
    let before = db.db_options();
    let mut failures = 0;
    loop {
        disk.fail_at(disk.op_count() + failures, Fault::Eio);
        let done = db.set_db_options(change);
        disk.heal();
        match done {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
        assert_eq!(db.db_options(), before);
        failures += 1;
    }
    assert!(failures > 2, "{failures}");
    let mut changed = before.clone();
    change(&mut changed);
    assert_eq!(db.db_options(), changed);

    type Change = fn(&mut MutableOptions);
    let refused: [(&str, Change); 5] = [
        ("wal_bytes_max", |options| options.wal_bytes_max = 1),
        ("max_space_amp", |options| options.max_space_amp = 1.0),
        ("max_disk_bytes", |options| options.max_disk_bytes = 1 << 10),
        ("memory_limit", |options| options.memory_limit = 64 << 20),
        ("background_bytes_per_second_max", |options| options.background_bytes_per_second_max = 1),
    ];
    for (name, change) in refused {
        let error = db.set_db_options(change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(db.db_options(), changed);
    }

    let disk = disk.after_power_loss(Survivors::Nothing);
    let kept = Options::of_store_with_env("/store", &disk.env()).unwrap();
    let space = |options: &MutableOptions| {
        (options.max_space_amp, options.max_disk_bytes, options.reclaim_mode, options.holes_within_values)
    };
    assert_eq!(space(&MutableOptions::from(&kept)), space(&changed));
    let names = disk.paths().into_iter().filter(|path| path.to_string_lossy().contains("OPTIONS-"));
    let newest = String::from_utf8(disk.file_bytes(&names.max().unwrap()).unwrap()).unwrap();
    assert!(
        newest.contains("max_total_wal_size=1048576") && newest.contains("max_manifest_file_size=8192"),
        "{newest}"
    );

    let beside = Db::open_read_only_with_env("/store", Options::default(), disk.env()).unwrap();
    assert_eq!(beside.set_db_options(|options| options.max_space_amp = 2.0).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// Goal: an operator gets a store out that has reached its limit, and may set it a lower one as long as it leaves room; never is it exceeded.
#[test]
fn the_limit_of_the_disk_rises_and_falls() {
    for reclaim_mode in [ReclaimMode::Auto, ReclaimMode::Off] {
        let disk = SimDisk::new();
        let db = open(&disk, Options { max_disk_bytes: 4 << 20, reclaim_mode, ..options() });
        let limit = |bytes: u64| db.set_db_options(|options| options.max_disk_bytes = bytes);
        let full = fill(&db, 0, 10_000);
        assert!(full < 2_500 && used(&disk) <= 4 << 20, "{full}");
        assert_eq!(db.put("more", value(0)).unwrap_err().kind(), ErrorKind::Exhausted);

        // What cannot be written down changes nothing, though it would help.
        for n in 0..3 {
            disk.fail_at(disk.op_count() + n, Fault::Eio);
            assert_eq!(limit(8 << 20).unwrap_err().kind(), ErrorKind::Io);
            disk.heal();
            assert_eq!(db.put("more", value(0)).unwrap_err().kind(), ErrorKind::Exhausted);
            assert!(db.db_options().max_disk_bytes == 4 << 20 && used(&disk) <= 4 << 20);
        }
        limit(8 << 20).unwrap();
        let more = fill(&db, full, 10_000);
        assert!(more > full + full / 2 && more < 5_000 && used(&disk) <= 8 << 20, "{full}, {more}");
        assert_holds(&db, 0..more);

        // There is no going back while all that is there.
        for bytes in [1 << 20, 4 << 20, (8 << 20) - BLOCK_BYTES] {
            let error = limit(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("max_disk_bytes cannot become"), "{error}");
            assert_eq!(db.db_options().max_disk_bytes, 8 << 20);
        }
        limit(0).unwrap();
        let most = fill(&db, more, 3_000);
        assert_eq!(most, more + 3_000);
        assert_holds(&db, 0..most);

        (0..most - 100).for_each(|n| db.delete(n.to_be_bytes()).unwrap());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        limit(4 << 20).unwrap();
        let last = fill(&db, most, 10_000);
        assert!(last > most + 300 && used(&disk) <= 4 << 20, "{most}, {last}");
        assert_holds(&db, most - 100..last);
        db.close().unwrap();
        assert_holds(&open(&disk, Options { max_disk_bytes: 4 << 20, ..options() }), most - 100..last);
    }
}

/// Goal: garbage that was left to lie goes once reclaim is on again, as far as the bound says, and the bound that holds is the one that was set last.
#[test]
fn reclaim_may_rest_and_go_on() {
    let disk = SimDisk::new();
    let db = open(&disk, Options { reclaim_mode: ReclaimMode::Off, ..options() });
    let key = |n: u32| (n.wrapping_mul(2_654_435_761) >> 16) % 500;
    let overwrite = || (0..4_000u32).for_each(|n| db.put(key(n).to_be_bytes(), value(n)).unwrap());
    let part = || db.stats().space_amplification().unwrap();
    let settle = || {
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
    };
    overwrite();
    settle();
    let resting = part();
    db.set_db_options(|options| (options.reclaim_mode, options.max_space_amp) = (ReclaimMode::Auto, 2.5)).unwrap();
    overwrite();
    settle();
    let loose = part();
    db.set_db_options(|options| options.max_space_amp = 1.2).unwrap();
    overwrite();
    settle();
    let tight = part();
    assert!(resting > 3.0 && loose < 2.7 && tight < 1.4 && tight < loose, "{resting}, {loose}, {tight}");
    let newest: BTreeMap<u32, u32> = (0..4_000).map(|n| (key(n), n)).collect();
    assert!(newest.len() > 400);
    newest.into_iter().for_each(|(key, n)| {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().as_deref(), Some(&*value(n)));
    });
}

/// Goal: memory is given back at once, and taken again; what a store cannot have so is refused.
#[test]
fn caches_shrink_and_grow() {
    let disk = SimDisk::new();
    let db = open(&disk, Options { cache_bytes: 4 << 20, ..options() });
    (0..1_000u32).for_each(|n| db.put(n.to_be_bytes(), value(n)).unwrap());
    db.flush().unwrap();
    let read_all = |db: &Db| {
        (0..1_000u32).for_each(|n| assert_eq!(db.get(n.to_be_bytes()).unwrap().as_deref(), Some(&*value(n))));
        db.stats().cache.used_bytes
    };
    let all = read_all(&db);
    assert!(all > 2_000_000, "{all}");
    db.set_db_options(|options| options.cache_bytes = 1 << 20).unwrap();
    let (used, most) = (db.stats().cache.used_bytes, db.stats().cache.capacity_bytes);
    assert!(used <= 1 << 20 && used > 500_000 && most == 1 << 20, "{used} of {most}");
    assert!(read_all(&db) <= 1 << 20);
    db.set_db_options(|options| options.cache_bytes = 0).unwrap();
    assert_eq!(read_all(&db), 0);
    db.set_db_options(|options| options.cache_bytes = 8 << 20).unwrap();
    assert_eq!((read_all(&db), read_all(&db)), (all, all));
    db.close().unwrap();

    let refused = |db: &Db, change: fn(&mut MutableOptions), why: &str| {
        let before = db.db_options();
        let error = db.set_db_options(change).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(db.db_options(), before);
    };
    let none = open(&disk, Options { cache_bytes: 0, ..options() });
    refused(&none, |options| options.cache_bytes = 1 << 20, "cannot become larger");
    none.close().unwrap();

    let limited = open(&disk, Options { memory_limit: 8 << 20, ..options() });
    assert!(read_all(&limited) > 1 << 20);
    limited.set_db_options(|options| options.memory_limit = 1 << 20).unwrap();
    let memory = limited.stats().memory;
    assert!(memory.limit_bytes == 1 << 20 && memory.total_bytes() <= 1 << 20, "{memory:?}");
    read_all(&limited);
    assert!(limited.stats().memory.total_bytes() <= 1 << 20);
    refused(&limited, |options| options.memory_limit = 0, "memory_limit");
    limited.close().unwrap();

    let cache = Cache::new(4 << 20).unwrap();
    let shared = open(&disk, Options { cache: Some(cache.clone()), ..options() });
    refused(&shared, |options| options.cache_bytes = 1 << 20, "Cache::set_bytes");
    assert!(read_all(&shared) > 1 << 20);
    cache.set_bytes(1 << 20).unwrap();
    assert!(cache.stats().used_bytes <= 1 << 20 && read_all(&shared) <= 1 << 20);
    assert_eq!(cache.set_bytes(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(Cache::new(0).unwrap().set_bytes(1 << 20).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let limited = Cache::within_limit(4 << 20).unwrap();
    assert_eq!(limited.set_bytes(1 << 10).unwrap_err().kind(), ErrorKind::InvalidArgument);
    limited.set_bytes(1 << 20).unwrap();
}

/// Goal: two that change options at once lose nothing of each other's.
#[test]
fn who_is_overtaken_begins_again() {
    let db = open(&SimDisk::new(), options());
    let seen = Mutex::new(Vec::new());
    db.set_db_options(|options| {
        let is_first = seen.lock().unwrap().is_empty();
        if is_first {
            db.set_db_options(|options| options.max_space_amp = 1.5).unwrap();
        }
        seen.lock().unwrap().push(options.max_space_amp);
        options.wal_bytes_max = 1 << 20;
    })
    .unwrap();
    assert_eq!(*seen.lock().unwrap(), [1.3, 1.5]);
    assert_eq!((db.db_options().max_space_amp, db.db_options().wal_bytes_max), (1.5, 1 << 20));
}
