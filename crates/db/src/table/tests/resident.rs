//! Which indexes and filters go where memory is limited.

use crate::cache::MemtableShare;
use crate::iterate::InternalIterator;
use esker_format::rocksdb::order::Order;

use super::*;

/// A table whose index is some 100 KB.
fn write_indexed(env: &Env) {
    let options = TableOptions { block_bytes: 64, compression: Compression::None, ..TableOptions::default() };
    let entries: Vec<Entry> =
        (0..100).map(|n| entry(&format!("{:01000}", 2 * n), 1, ValueKind::Value, b"value")).collect();
    write(env, &options, &entries).unwrap();
}

fn open_watched(env: &Env, cache: &Arc<BlockCache>) -> Arc<Table> {
    let file = env.files.open(Path::new(PATH)).unwrap();
    let file_bytes = file.len().unwrap();
    let table = Table::open(file, file_bytes, &Order::BYTEWISE.into(), cache.clone()).unwrap();
    table.watch();
    table
}

/// What is looked up of these tables without a read of a block: their filters deny it.
fn absent_lookup(env: &Env) -> Vec<u8> {
    let table = open(env).unwrap();
    let key =
        (0..100).map(|n| format!("{:01000}", 2 * n + 1)).find(|key| table.filter_holds(key.as_bytes()) == Some(false));
    lookup(&key.unwrap(), 9)
}

/// Goal: what is evicted of a table while iterators hold it makes room, and is had back from them: there is one copy of it.
/// Method: iterators hold all tables, three times as much as may be kept; then nothing is read for lookups any more.
#[test]
fn what_iterators_hold_is_never_read_again() {
    let env = SimDisk::new().env();
    write_indexed(&env);
    let absent = absent_lookup(&env);
    let table_bytes = open(&env).unwrap().memory_bytes() as u64;
    // Three quarters of it are the tables': four of twelve.
    let limit = table_bytes * 4 * 4 / 3 + 4;
    let cache = Arc::new(BlockCache::within_limit(limit));
    let tables: Vec<_> = (0..12).map(|_| open_watched(&env, &cache)).collect();
    let reserved = || limit - cache.stats().capacity_bytes;
    let mut iterators = Vec::new();
    for n in 0..50 {
        let mut iterator = tables[n * 5 % tables.len()].iter(true);
        iterator.seek(&lookup("0", 9)).unwrap();
        assert!(iterator.valid());
        iterators.push(iterator);
        assert!(reserved() <= 4 * table_bytes, "{} of {table_bytes} each", reserved());
    }
    let before = cache.table_reads.calls.get();
    for n in 0..100 {
        assert!(tables[n * 7 % tables.len()].get(&absent, true).unwrap().is_none());
        assert!(reserved() <= 4 * table_bytes, "{} of {table_bytes} each", reserved());
    }
    assert_eq!(cache.table_reads.calls.get(), before);
    // They walk on in what they hold.
    for mut iterator in iterators {
        iterator.seek_to_last().unwrap();
        assert!(iterator.valid());
    }
    assert_eq!(tables.iter().filter(|table| table.memory_bytes() > 0).count(), 4);
}

/// Goal: a table that is looked into again and again is not read again and again, however little memory there is.
#[test]
fn the_last_table_that_was_read_stays() {
    let env = SimDisk::new().env();
    write_indexed(&env);
    let absent = absent_lookup(&env);
    let table_bytes = open(&env).unwrap().memory_bytes() as u64;
    // Larger than the share of all tables; and within the one that memtables leave, which else take everything.
    for (limit, memtable_bytes) in [(table_bytes, 0), (table_bytes * 32, table_bytes * 32)] {
        let cache = Arc::new(BlockCache::within_limit(limit));
        let memtables = MemtableShare::new(cache.clone());
        memtables.set(memtable_bytes);
        let tables = [open_watched(&env, &cache), open_watched(&env, &cache)];
        for table in &tables {
            table.get(&absent, true).unwrap();
            let before = cache.table_reads.calls.get();
            for _ in 0..100 {
                assert!(table.get(&absent, true).unwrap().is_none());
            }
            assert_eq!(cache.table_reads.calls.get(), before, "{memtable_bytes} bytes of memtables");
        }
        assert_eq!(tables.each_ref().map(|table| table.memory_bytes() > 0), [false, true]);
    }
}

/// Goal: many who need a table that was evicted, at the same time, read it once.
#[test]
fn what_was_evicted_is_read_once_for_all() {
    let env = SimDisk::new().env();
    write_indexed(&env);
    let absent = absent_lookup(&env);
    let cache = Arc::new(BlockCache::within_limit(open(&env).unwrap().memory_bytes() as u64));
    let table = open_watched(&env, &cache);
    for _ in 0..20 {
        // All that is over goes.
        cache.make_room();
        cache.make_room();
        assert_eq!(table.memory_bytes(), 0);
        let before = cache.table_reads.calls.get();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(table.get(&absent, true).unwrap().is_none()));
            }
        });
        // Index and filter.
        assert_eq!(cache.table_reads.calls.get() - before, 2);
    }
}

/// Goal: a table that is walked through is used, as one that is looked into is; by a walk that leaves nothing in the cache it is not.
#[test]
fn a_table_that_is_walked_through_is_used() {
    let env = SimDisk::new().env();
    write(&env, &TableOptions::default(), &[entry("key", 1, ValueKind::Value, b"value")]).unwrap();
    let table_bytes = open(&env).unwrap().memory_bytes() as u64;
    for fill_cache in [true, false] {
        // Three quarters of it are the tables'.
        let cache = Arc::new(BlockCache::within_limit(4 * table_bytes));
        let watched = || open_watched(&env, &cache);
        let tables = [watched(), watched(), watched()];
        let mut walk = tables[0].iter(fill_cache);
        walk.seek_to_first().unwrap();
        assert!(walk.valid());
        drop(walk);
        let _fourth = watched();
        let kept = tables.each_ref().map(|table| table.memory_bytes() > 0);
        assert_eq!(kept, [fill_cache, !fill_cache, true]);
    }
}
