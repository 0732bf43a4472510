use esker_env::sim::SimDisk;

use super::*;
use crate::options::{FamilyOptions, Options, Separation, WriteOptions};
use crate::{Db, ErrorKind, ReadOptions};

const MIB: u64 = 1 << 20;

fn open(disk: &SimDisk, cache: &Cache, separation: Separation) -> Db {
    let family = FamilyOptions { separation, min_blob_size: 100, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options {
        create_if_missing: true,
        background_jobs: 0,
        families,
        cache: Some(cache.clone()),
        // Would be far too little.
        cache_bytes: 0,
        ..Options::default()
    };
    Db::open_with_env("/store", options, disk.env()).unwrap()
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn memtable_bytes(db: &Db) -> u64 {
    db.stats().memory.memtable_bytes
}

/// Goal: stores with the same files, by number, and the same keys in them, read their own values through one cache; what one has read stays
/// when another has gone, and both count in it.
#[test]
fn stores_read_their_own_values_through_one_cache() {
    for separation in [Separation::Off, Separation::AtFlush] {
        let cache = Cache::new(8 * MIB).unwrap();
        let disks = [SimDisk::new(), SimDisk::new()];
        let stores = [0, 1].map(|of: usize| open(&disks[of], &cache, separation));
        for (of, db) in stores.iter().enumerate() {
            for n in 0..1000 {
                db.put(key(n), [of as u8; 300]).unwrap();
            }
            db.flush().unwrap();
        }
        let read = |of: usize, db: &Db| {
            for n in 0..1000 {
                assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&[of as u8; 300][..]));
            }
        };
        for _ in 0..2 {
            stores.iter().enumerate().for_each(|(of, db)| read(of, db));
        }
        let [first, second] = stores;
        let stats = cache.stats();
        assert_eq!((stats, stats.capacity_bytes), (first.stats().cache, 8 * MIB));
        assert!(stats.used_bytes > 600_000, "{stats:?}");
        assert_eq!(first.stats().memory.limit_bytes, 0);
        first.close().unwrap();
        let before = cache.stats();
        read(1, &second);
        assert_eq!(cache.stats().misses, before.misses);
    }
}

/// Goal: all that the stores keep is within one limit; one that writes beside others that rest has memtables of a size that is worth it; and what a
/// store had goes to the others with it.
#[test]
fn stores_keep_to_one_limit_of_memory() {
    const LIMIT: u64 = 32 * MIB;
    const STORES: u64 = 4;
    let cache = Cache::within_limit(LIMIT).unwrap();
    let disks: Vec<SimDisk> = (0..STORES).map(|_| SimDisk::new()).collect();
    let stores: Vec<Db> = disks.iter().map(|disk| open(disk, &cache, Separation::Off)).collect();
    let write = |db: &Db, from: u32| {
        for n in from..from + 2000 {
            db.put(key(n), [7; 4000]).unwrap();
        }
    };
    let mut most = 0;
    for round in 0..3 {
        for db in &stores {
            let before = db.stats().flushes;
            write(db, round * 2000);
            let all: u64 = stores.iter().map(memtable_bytes).sum();
            most = most.max(all);
            assert!(all <= LIMIT / 2, "{all} bytes of memtables");
            // Of 8 MB, in memtables of two MiB or so: not one for every few writes.
            let flushes = db.stats().flushes - before;
            assert!(flushes <= 6 && (round == 0 || flushes > 0), "{flushes} flushes");
        }
    }
    assert!(most > LIMIT / 4, "{most}");
    for db in &stores {
        assert_eq!(db.stats().memory.limit_bytes, LIMIT);
        assert_eq!(db.count_cf(&db.default_column_family(), &ReadOptions::default()).unwrap(), 6000);
        let kept = db.stats();
        let others: u64 = stores.iter().map(|db| db.stats().memory.index_filter_bytes + memtable_bytes(db)).sum();
        assert!(kept.cache.used_bytes + others <= LIMIT, "{kept:?}");
    }
    let before = cache.stats().capacity_bytes;
    let mut stores = stores.into_iter();
    let last = stores.next_back().unwrap();
    for db in stores {
        db.close().unwrap();
    }
    assert!(cache.stats().capacity_bytes > before);
    // Alone, it has a quarter again.
    last.flush().unwrap();
    for n in 0..1700 {
        last.put_cf(&last.default_column_family(), key(n), [1; 4000], &WriteOptions::default()).unwrap();
    }
    assert!(memtable_bytes(&last) > LIMIT / 5, "{} bytes", memtable_bytes(&last));
    last.close().unwrap();
    assert_eq!(cache.stats().capacity_bytes, LIMIT);
    assert_eq!(cache.0.budget.amounts(), [0; 4]);
}

#[test]
fn what_is_out_of_range_is_refused() {
    for refused in [Cache::new((1 << 40) + 1), Cache::within_limit(MIB - 1), Cache::within_limit((1 << 40) + 1)] {
        let error = refused.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("must be in"), "{error}");
    }
    assert_eq!(Cache::new(0).unwrap().stats(), CacheStats::default());
}

/// Goal: what stores keep follows a limit that is set another while they rest: all of them are within it at once.
/// Method: what their memtables were reckoned to take is looked at, and with what was written to them what they do.
#[test]
fn memtables_follow_a_limit_that_changes_while_stores_rest() {
    const HIGH: u64 = 128 * MIB;
    const LOW: u64 = 33 * MIB;
    let cache = Cache::within_limit(HIGH).unwrap();
    let disks: Vec<SimDisk> = (0..4).map(|_| SimDisk::new()).collect();
    let stores: Vec<Db> = disks.iter().map(|disk| open(disk, &cache, Separation::Off)).collect();
    let reckoned = || cache.0.budget.amounts()[1];
    let assert_within = |limit: u64| {
        let (memtables, stats) = (reckoned(), cache.stats());
        assert!(memtables + stats.capacity_bytes <= limit, "{memtables} and {stats:?} of {limit}");
        assert!(memtables <= limit / 2, "{memtables}");
    };
    // They have written nothing: what they may write is kept for them.
    let at_first = reckoned();
    cache.set_bytes(LOW).unwrap();
    assert!(reckoned() < at_first, "{} of {at_first}", reckoned());
    // Each may have the quarter as long as it is the only one.
    assert!(reckoned() <= 4 * LOW / 4, "{}", reckoned());
    cache.set_bytes(HIGH).unwrap();
    assert_eq!(reckoned(), at_first);

    for db in &stores {
        (0..1700).for_each(|n| db.put(key(n), [3; 4000]).unwrap());
    }
    let written: u64 = stores.iter().map(memtable_bytes).sum();
    assert!(written > 4 * 1700 * 4000 && stores.iter().all(|db| db.stats().flushes == 0), "{written}");
    cache.set_bytes(LOW).unwrap();
    let left: u64 = stores.iter().map(memtable_bytes).sum();
    assert!(left <= LOW / 4, "{left} bytes of memtables");
    assert_within(LOW);
    cache.set_bytes(MIB).unwrap();
    assert!(stores.iter().map(memtable_bytes).sum::<u64>() <= MIB / 4);
    for db in stores {
        (0..1700).for_each(|n| assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&[3; 4000][..])));
        db.close().unwrap();
    }
    assert_eq!(cache.0.budget.amounts(), [0; 4]);
}
