use super::*;

fn block(bytes: usize) -> Arc<Block> {
    Arc::new(Block::new(vec![7; bytes]))
}

#[test]
fn what_was_inserted_is_found_under_its_file_and_offset_only() {
    let cache = BlockCache::new(1 << 20);
    cache.insert(1, 4096, block(10));
    assert_eq!(cache.get(1, 4096).unwrap().bytes(), [7; 10]);
    assert!(cache.get(2, 4096).is_none());
    assert!(cache.get(1, 0).is_none());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 2, 1));
    assert_eq!((stats.used_bytes, stats.capacity_bytes), (10 + ENTRY_OVERHEAD_BYTES, 1 << 20));
}

#[test]
fn capacity_zero_keeps_nothing_and_counts_misses() {
    let cache = BlockCache::new(0);
    cache.insert(1, 0, block(0));
    assert!(cache.get(1, 0).is_none());
    assert_eq!(cache.stats(), BlockCacheStats { misses: 1, ..BlockCacheStats::default() });
}

#[test]
fn used_bytes_stay_within_capacity() {
    for capacity_bytes in [1, 1000, 100_000, 20 << 20] {
        let cache = BlockCache::new(capacity_bytes);
        for offset in 0..10_000 {
            cache.insert(offset % 3, offset, block(offset as usize % 8192));
            assert!(offset % 100 != 0 || cache.stats().used_bytes <= capacity_bytes, "{:?}", cache.stats());
        }
    }
}

#[test]
fn a_block_of_a_megabyte_fits_a_cache_of_two() {
    let cache = BlockCache::new(2 << 20);
    cache.insert(1, 0, block(1 << 20));
    assert!(cache.get(1, 0).is_some());
}

#[test]
fn what_is_read_again_and_again_survives_a_scan() {
    let cache = BlockCache::new(4 << 20);
    for offset in 0..100 {
        cache.insert(1, offset, block(4096));
    }
    for round in 0..100_000 {
        if cache.get(1, round % 100).is_none() {
            cache.insert(1, round % 100, block(4096));
        }
        cache.insert(2, round, block(4096));
    }
    let kept = (0..100).filter(|&offset| cache.get(1, offset).is_some()).count();
    assert!(kept > 90, "{kept} of 100");
}

#[test]
fn a_pinned_block_outlives_its_eviction() {
    let cache = BlockCache::new(10_000);
    cache.insert(1, 0, block(5000));
    let pinned = cache.get(1, 0).unwrap();
    for offset in 1..100 {
        cache.insert(1, offset, block(5000));
    }
    assert_eq!(pinned.bytes(), [7; 5000]);
}

#[test]
fn the_cache_gets_what_others_leave_of_a_limit() {
    const LIMIT: u64 = 8 << 20;
    let cache = Arc::new(BlockCache::within_limit(LIMIT));
    let fill = || (0..10_000).for_each(|offset| cache.insert(1, offset, block(4096)));
    let assert_within = |capacity_bytes: u64| {
        let stats = cache.stats();
        assert_eq!(stats.capacity_bytes, capacity_bytes);
        assert!(stats.used_bytes <= capacity_bytes, "{stats:?}");
    };
    fill();
    assert_within(LIMIT);
    let (memtables, others) = (MemtableShare::new(cache.clone()), MemtableShare::new(cache.clone()));
    memtables.set(3 << 20);
    assert_within(5 << 20);
    others.set(1 << 20);
    assert_within(4 << 20);
    others.set(2 << 20);
    assert_within(3 << 20);
    drop(others);
    assert_within(5 << 20);
    let table = cache.reserve(1 << 20);
    let other = cache.reserve(2 << 20);
    assert_within(2 << 20);
    fill();
    assert!(cache.stats().used_bytes > 1 << 20, "what is left is used: {:?}", cache.stats());
    memtables.set(LIMIT);
    assert_within(LIMIT / 64);
    drop((table, other));
    memtables.set(0);
    fill();
    assert_within(LIMIT);
    assert!(cache.stats().used_bytes > LIMIT / 2, "{:?}", cache.stats());
    let fixed = Arc::new(BlockCache::new(1 << 20));
    let _reserved = fixed.reserve(1 << 19);
    assert_eq!(fixed.stats().capacity_bytes, 1 << 20, "a capacity of its own is shared with nobody");
}
