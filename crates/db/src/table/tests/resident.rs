//! Which indexes and filters go where memory is limited.

use crate::iterate::InternalIterator;

use super::*;

/// Goal: a table that is walked through is used, as one that is looked into is; by a walk that leaves nothing in the cache it is not.
#[test]
fn a_table_that_is_walked_through_is_used() {
    let env = SimDisk::new().env();
    write(&env, &TableOptions::default(), &[entry("key", 1, ValueKind::Value, b"value")]).unwrap();
    let table_bytes = open(&env).unwrap().memory_bytes() as u64;
    for fill_cache in [true, false] {
        // Three quarters of it are the tables'.
        let cache = Arc::new(BlockCache::within_limit(4 * table_bytes));
        let watched = || {
            let file = env.files.open(Path::new(PATH)).unwrap();
            let file_bytes = file.len().unwrap();
            let table = Table::open(file, NUMBER, file_bytes, cache.clone()).unwrap();
            table.watch();
            table
        };
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
