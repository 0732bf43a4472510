//! What reads cost, by key, many at once, in part and by threads; what memory they take; and reads that follow what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker::env::sim::{ReadFault, SimDisk};
use esker::{
    Compression, Db, Error, ErrorKind, FamilyOptions, Options, PrefixExtractor, ReadOptions, Separation, Stats,
    WriteOptions,
};
use esker_torture::model::{Contents, backward, forward};
use esker_torture::reads::{Entries, walk};
use fastrand::Rng;

pub(crate) const KEYS: u32 = 200;

pub(crate) fn options(blob_compression: Compression) -> Options {
    let family = FamilyOptions {
        min_blob_size: 100,
        blob_compression,
        blob_file_bytes: 64 << 10,
        target_file_bytes: 4 << 10,
        block_bytes: 256,
        ..FamilyOptions::default()
    };
    Options {
        create_if_missing: true,
        background_jobs: 0,
        cache_bytes: 0,
        families: [("default".to_owned(), family)].into(),
        ..Options::default()
    }
}

pub(crate) fn key(n: u32) -> Vec<u8> {
    format!("key/{n:05}").into_bytes()
}

/// Three in four values are separated; of different lengths, and none like another.
pub(crate) fn value(n: u32, round: u8) -> Vec<u8> {
    let len = if n.is_multiple_of(4) { 20 } else { 300 + n as usize % 700 };
    (0..len).map(|at| (at as u32 * 31 + n * 7) as u8 ^ round).collect()
}

/// A store whose values lie in several blob files, in another order than their keys.
pub(crate) fn store(disk: &SimDisk, blob_compression: Compression) -> (Db, Contents) {
    let db = Db::open_with_env("/store", options(blob_compression), disk.env()).unwrap();
    let mut expected = Contents::new();
    for round in 0..3u8 {
        for n in (0..KEYS).filter(|n| n % 3 >= u32::from(round)) {
            db.put(key(n), value(n, round)).unwrap();
            expected.insert(key(n), value(n, round));
        }
        db.flush().unwrap();
    }
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    (db, expected)
}

pub(crate) fn entries(expected: &Contents) -> Entries {
    expected.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub(crate) fn separated(expected: &Contents) -> u64 {
    expected.values().filter(|value| value.len() >= 100).count() as u64
}

/// Goal: whoever does not ask for a value does not pay for it: of a packed one, whose length is among its own bytes, with its first bytes.
#[test]
fn existence_lengths_counts_and_keys_read_no_blob() {
    for compression in [Compression::None, Compression::Lz4] {
        read_all_but_values(compression);
    }
}

fn read_all_but_values(compression: Compression) {
    let (db, expected) = store(&SimDisk::new(), compression);
    let family = db.default_column_family();
    let options = ReadOptions::default();
    let before = db.stats();
    for (key, value) in &expected {
        assert!(db.exists(key).unwrap());
        assert_eq!(db.value_len(key).unwrap(), Some(value.len() as u64));
    }
    assert_eq!(db.value_len("no such key").unwrap(), None);
    assert_eq!(db.count_cf(&family, &options).unwrap(), expected.len() as u64);
    let mut iterator = db.iter().unwrap();
    for backward in [false, true] {
        if backward {
            iterator.seek_to_last().unwrap()
        } else {
            iterator.seek_to_first().unwrap()
        }
        let mut keys = Vec::new();
        while iterator.valid() {
            assert_eq!(iterator.value_len().unwrap(), expected[iterator.key()].len() as u64);
            keys.push(iterator.key().to_vec());
            if backward { iterator.prev().unwrap() } else { iterator.next().unwrap() }
        }
        keys.sort();
        assert!(keys.iter().eq(expected.keys()));
    }
    let after = db.stats();
    // Asked for by key, and by each of two walks.
    let lengths = if compression == Compression::None { 0 } else { 3 * separated(&expected) };
    assert_eq!(after.blob_reads - before.blob_reads, lengths);
    assert_eq!(after.blob_read_calls - before.blob_read_calls, lengths);
    let (front, bytes) = (32 + key(1).len() as u64 + 10, after.blob_read_bytes - before.blob_read_bytes);
    assert!(bytes <= lengths * front, "{compression:?}: {bytes} bytes for {lengths} lengths");
    db.get(key(1)).unwrap();
    let get = db.stats();
    assert_eq!(
        (get.blob_reads, get.blob_read_calls),
        (after.blob_reads + 1, after.blob_read_calls + 1),
        "one each get"
    );
}

/// Whether a key is there.
type Look<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Goal: a key that is not there costs no read of a table, however many there are whose keys lie around it: filters are asked before blocks.
#[test]
fn a_key_that_is_not_there_reads_no_block() {
    let (db, expected) = store(&SimDisk::new(), Compression::None);
    let absent: Vec<Vec<u8>> = expected.keys().map(|key| [key.as_slice(), b"?"].concat()).collect();
    let read_for = |keys: &[Vec<u8>], look: Look<'_>| {
        let before = db.stats().table_read_calls;
        let found = keys.iter().filter(|key| look(key)).count();
        (found, db.stats().table_read_calls - before)
    };
    let family = db.default_column_family();
    let many = |key: &[u8]| {
        let answers = db.multi_get_cf(&family, [key], &ReadOptions::default()).unwrap();
        answers.into_iter().any(|answer| answer.unwrap().is_some())
    };
    let looks: [Look<'_>; 3] = [&|key| db.get(key).unwrap().is_some(), &|key| db.exists(key).unwrap(), &many];
    for look in looks {
        let (found, reads) = read_for(&absent, look);
        // Ten bits a key leave one in a hundred or so.
        assert!(found == 0 && reads <= absent.len() as u64 / 20, "{reads} reads for {} keys", absent.len());
        let present: Vec<Vec<u8>> = expected.keys().cloned().collect();
        let (found, reads) = read_for(&present, look);
        assert!(found == present.len() && reads >= found as u64, "the count counts: {reads}");
    }
}

/// Goal: the length of a large value that is packed costs a read of its first bytes; it is right, or damage there is told.
#[test]
fn lengths_of_large_packed_values_read_their_first_bytes() {
    for compression in [Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let disk = SimDisk::new();
        let db = Db::open_with_env("/store", options(compression), disk.env()).unwrap();
        let mut rng = Rng::with_seed(5);
        let lens = [90_000, 120_000, 200_000];
        for (n, len) in lens.into_iter().enumerate() {
            let mut value = vec![n as u8; len];
            rng.fill(&mut value[..len / 2]);
            db.put(key(n as u32), value).unwrap();
        }
        db.flush().unwrap();
        let before = db.stats();
        for (n, len) in lens.into_iter().enumerate() {
            assert_eq!(db.value_len(key(n as u32)).unwrap(), Some(len as u64), "{compression:?}");
        }
        let mut iterator = db.iter().unwrap();
        iterator.seek_to_first().unwrap();
        assert_eq!(iterator.value_len().unwrap(), lens[0] as u64);
        drop(iterator);
        let after = db.stats();
        let read = (after.blob_read_calls - before.blob_read_calls, after.blob_read_bytes - before.blob_read_bytes);
        assert!(read.0 == 4 && read.1 < 4 * 64, "{compression:?}: {read:?}");
        db.close().unwrap();

        // The first record's header begins behind that of the file, and ends with the checksum of what it was not read for; after it come its
        // key and the length.
        let blob = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "blob")).unwrap();
        for byte in 30..30 + 32 + 9 + 3 {
            let disk = disk.after_process_death();
            assert!(disk.flip_bit(&blob, byte * 8 + 6));
            let db = Db::open_with_env("/store", options(compression), disk.env()).unwrap();
            match db.value_len(key(0)) {
                Ok(len) => assert!(
                    (58..62).contains(&byte) || byte >= 30 + 32 + 9,
                    "{compression:?}: {len:?} with damage at {byte}"
                ),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{compression:?}: damage at {byte}"),
            }
            assert_eq!(db.get(key(0)).unwrap_err().kind(), ErrorKind::Corruption, "damage at {byte}");
        }
    }
}

/// Goal: an iterator that is refreshed follows what is written, through flushes and compactions.
#[test]
fn a_refreshed_iterator_follows_what_is_written() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(Compression::None), disk.env()).unwrap();
    let mut tail = db.iter().unwrap();
    let mut next = 0;
    for n in 0..KEYS {
        db.put(key(n), value(n, 0)).unwrap();
        match n % 40 {
            13 => db.flush().unwrap(),
            29 => db.compact_range(&db.default_column_family(), None, None).unwrap(),
            _ => {}
        }
        tail.seek(key(next)).unwrap();
        assert!(!tail.valid(), "before a refresh it shows what was there");
        if n % 7 == 0 {
            tail.refresh().unwrap();
            assert!(!tail.valid(), "a refreshed iterator stands nowhere");
            tail.seek(key(next)).unwrap();
            while tail.valid() {
                assert_eq!((tail.key(), &*tail.value().unwrap()), (&*key(next), &*value(next, 0)));
                next += 1;
                tail.next().unwrap();
            }
            assert_eq!(next, n + 1, "everything written so far was shown");
        }
    }
    let then = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::default() };
    let mut fixed = db.iter_cf(&db.default_column_family(), &then).unwrap();
    assert_eq!(fixed.refresh().unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.close().unwrap();
    assert_eq!(tail.refresh().unwrap_err().kind(), ErrorKind::Closed);
    tail.seek_to_first().unwrap();
    assert!(tail.valid(), "what it held stays readable");
}

/// Goal: the entries of an iterator go on where it stands: beyond either end there are none, so that a pager ends.
#[test]
fn entries_begin_where_the_iterator_stands() {
    let (db, expected) = store(&SimDisk::new(), Compression::None);
    let family = db.default_column_family();
    let prefix = ReadOptions::default().with_prefix("key/0001");
    for (options, count) in [(ReadOptions::default(), expected.len()), (prefix, 10)] {
        let iter = || db.iter_cf(&family, &options).unwrap();
        assert_eq!(iter().entries().count(), count, "nothing was sought: from the first");
        let mut beyond = iter();
        beyond.seek("key/99999").unwrap();
        assert_eq!(beyond.entries().count(), 0);
        let mut before = iter();
        before.seek_for_prev("key/").unwrap();
        assert_eq!(before.entries().count(), 0);
        for forward in [true, false] {
            let mut stepped = iter();
            if forward {
                stepped.seek_to_last().unwrap()
            } else {
                stepped.seek_to_first().unwrap()
            }
            stepped.value().unwrap();
            if forward {
                stepped.next().unwrap()
            } else {
                stepped.prev().unwrap()
            }
            assert_eq!(stepped.entries().count(), 0);
        }
        let mut refreshed = iter();
        refreshed.seek("key/99999").unwrap();
        refreshed.refresh().unwrap();
        assert_eq!(refreshed.entries().count(), count);
    }
}

/// Goal: a part of a large value costs a part of its bytes, and every part is right.
#[test]
fn a_part_of_a_large_value_reads_a_part() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(Compression::None), disk.env()).unwrap();
    let large: Vec<u8> = (0..300_000u32).map(|at| (at / 3) as u8).collect();
    db.put("large", &large).unwrap();
    db.put("in memory", &large).unwrap();
    db.flush().unwrap();
    db.put("in memory", &large).unwrap();
    for range in [0..10, 0..300_000, 299_990..300_010, 100_000..100_001, 5..5, 400_000..400_001, 100_000..200_000] {
        let end = (range.end as usize).min(large.len());
        let wanted = large.get(range.start as usize..end).unwrap_or_default();
        let before = db.stats().blob_read_bytes;
        let found = db.get_range("large", range.clone()).unwrap().unwrap();
        assert!(*found == *wanted, "{range:?}");
        assert_eq!(db.stats().blob_read_bytes - before, wanted.len() as u64, "{range:?}");
        assert!(*db.get_range("in memory", range.clone()).unwrap().unwrap() == *wanted, "{range:?} in memory");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it holds nothing")]
    let backward = db.get_range("large", 10..5).unwrap().unwrap();
    assert!(backward.is_empty());
    assert!(db.get_range("none", 0..10).unwrap().is_none());
}

/// Goal: threads share a scan without losing or repeating a key, and its end is the first error.
#[test]
fn a_scan_by_many_threads_shows_everything_once_and_ends_with_the_first_error() {
    let (db, expected) = store(&SimDisk::new(), Compression::Lz4);
    let family = db.default_column_family();
    let parts = db.split_cf(&family, &ReadOptions::default(), 8).unwrap();
    assert!(parts.len() > 3, "{} parts", parts.len());
    let mut random = Rng::with_seed(1);
    let lengths: Vec<usize> = parts.into_iter().map(|part| walk(&mut random, part).unwrap().len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), expected.len());
    assert!(lengths.iter().all(|&length| length < expected.len() / 2), "{lengths:?}");

    let shown = Arc::new(AtomicUsize::new(0));
    let counted = shown.clone();
    let error = db.parallel_scan_cf(&family, &ReadOptions::default(), 4, move |entry| {
        counted.fetch_add(1, Ordering::Relaxed);
        if entry.key() == key(77) { Err(Error::invalid_argument("enough")) } else { Ok(()) }
    });
    assert!(error.unwrap_err().to_string().contains("enough"));
    assert!(shown.load(Ordering::Relaxed) <= expected.len());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.parallel_scan_cf(&family, &ReadOptions::default(), 3, |entry| {
            assert_ne!(entry.key(), key(150), "as wanted");
            Ok(())
        })
    }));
    assert!(panics.is_err(), "a panic goes on in the caller");
    for (threads, parts) in [(0, 0), (257, 65_537)] {
        let scanned = db.parallel_scan_cf(&family, &ReadOptions::default(), threads, |_| Ok(()));
        assert_eq!(scanned.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(db.split_cf(&family, &ReadOptions::default(), parts).is_err());
    }
}

/// Goal: many keys at once cost few reads; a failed batch is no failed answer, a failed read one of its own keys only.
#[test]
fn many_keys_at_once_are_read_together_and_fail_one_by_one() {
    let disk = SimDisk::new();
    let (db, expected) = store(&disk, Compression::None);
    let wanted: Vec<Vec<u8>> = (0..KEYS).rev().map(key).chain([b"none".to_vec(), key(3), key(3)]).collect();
    // How many answers are errors; the others are right.
    let failed = |db: &Db| {
        let found = db.multi_get(&wanted).unwrap();
        let is_failed = |(key, found): (&Vec<u8>, Result<Option<esker::PinnedSlice>, Error>)| match found {
            Ok(found) => {
                assert_eq!(found.as_deref(), expected.get(key).map(Vec::as_slice), "{key:?}");
                false
            }
            Err(error) => error.kind() == ErrorKind::Io,
        };
        wanted.iter().zip(found).map(is_failed).filter(|&failed| failed).count()
    };
    let (before, first) = (db.stats(), disk.read_count());
    assert_eq!(failed(&db), 0);
    let (after, reads) = (db.stats(), disk.read_count() - first);
    assert_eq!(after.blob_reads - before.blob_reads, separated(&expected) + 2);
    assert!(after.blob_read_calls - before.blob_read_calls < separated(&expected) / 4);
    let mut survived = 0;
    for n in 0..reads {
        disk.fail_read_at(disk.read_count() + n, ReadFault::Eio);
        let count = failed(&db);
        assert!(count <= 10, "read {n} failed, and with it {count} answers");
        survived += u64::from(count == 0);
        assert_eq!(failed(&db), 0, "read {n} failed once");
    }
    assert!(survived > reads / 2, "{survived} of {reads} failures were survived");
    let snapshot = db.snapshot();
    let sync = WriteOptions { sync: true, ..WriteOptions::default() };
    db.put_cf(&db.default_column_family(), key(3), "new", &sync).unwrap();
    let then = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
    let found = db.multi_get_cf(&db.default_column_family(), [key(3)], &then).unwrap().remove(0).unwrap().unwrap();
    assert!(*found == *expected[&key(3)]);
    assert_eq!(db.multi_get([key(3)]).unwrap().remove(0).unwrap().unwrap(), b"new"[..]);
    assert!(db.multi_get::<&[u8]>([]).unwrap().is_empty());
}

/// Goal: memtables, indexes, filters and cache together keep to the limit, while there is more to cache than fits.
#[test]
fn everything_in_memory_keeps_to_the_limit() {
    const LIMIT: u64 = 1 << 20;
    let disk = SimDisk::new();
    let mut options = Options { memory_limit: LIMIT, cache_blobs: true, ..options(Compression::Lz4) };
    options.families.get_mut("default").unwrap().write_buffer_bytes = 128 << 10;
    let db = Db::open_with_env("/store", options.clone(), disk.env()).unwrap();
    let mut random = Rng::with_seed(1);
    let mut most = 0;
    for n in 0..6000 {
        let mut value = vec![n as u8; 100 + n as usize % 900];
        random.fill(&mut value[..50]);
        db.put(key(n), &value).unwrap();
        if n % 4 == 0 {
            let wanted = random.u32(..=n);
            let found = db.get(key(wanted)).unwrap().unwrap();
            assert_eq!(found[50..], vec![wanted as u8; 50 + wanted as usize % 900]);
        }
        if n % 100 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total_bytes() <= LIMIT, "{memory:?}");
            most = most.max(memory.cache_bytes);
        }
    }
    assert!(most > LIMIT / 4, "the cache gets what is left: {most}");
    assert!(db.stats().memory.index_filter_bytes > 0);
}

/// Goal: memtables of many families keep to the limit, though no one of them is full.
#[test]
fn memtables_of_many_families_keep_to_the_limit() {
    const LIMIT: u64 = 4 << 20;
    let disk = SimDisk::new();
    for separation in [Separation::AtFlush, Separation::AtWrite] {
        let dir = format!("/{separation:?}");
        let options = Options { memory_limit: LIMIT, ..options(Compression::Lz4) };
        let db = Db::open_with_env(&dir, options, disk.env()).unwrap();
        let names: Vec<String> = (0..12).map(|n| format!("family {n}")).collect();
        let large = || FamilyOptions { write_buffer_bytes: 64 << 20, separation, ..FamilyOptions::default() };
        let families: Vec<_> = names.iter().map(|name| db.create_column_family(name, large()).unwrap()).collect();
        let mut random = Rng::with_seed(9);
        let mut most = 0;
        for n in 0..20_000u32 {
            // A few take most of it, and one value in a thousand is large.
            let family = &families[random.usize(..families.len()).min(random.usize(..families.len()))];
            let len = if n % 1000 == 0 { 200_000 } else { 300 + n as usize % 900 };
            db.put_cf(family, key(n), vec![n as u8; len], &WriteOptions::default()).unwrap();
            if n % 50 == 0 {
                let memory = db.stats().memory;
                assert!(memory.total_bytes() <= LIMIT, "{separation:?}: {memory:?}");
                most = most.max(memory.memtable_bytes);
            }
        }
        let stats = db.stats();
        assert!(most > LIMIT / 8, "they get what they may: {most}");
        assert!((10..200).contains(&stats.flushes), "and are not flushed for nothing: {}", stats.flushes);
        let found: u64 = families.iter().map(|of| db.count_cf(of, &ReadOptions::default()).unwrap()).sum();
        assert_eq!(found, 20_000);
    }
}

/// Goal: indexes and filters that take more than their share go, and everything is found all the same.
#[test]
fn indexes_and_filters_go_where_memory_is_limited() {
    const LIMIT: u64 = 1 << 20;
    const COUNT: u32 = 50_000;
    let long_key =
        |n: u32| [b"the beginning of all keys, which every separator of an index has".as_slice(), &key(n)].concat();
    let disk = SimDisk::new();
    let family = FamilyOptions {
        write_buffer_bytes: 64 << 10,
        target_file_bytes: 16 << 10,
        block_bytes: 256,
        bloom_bits_per_key: 64.0,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let unlimited = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open_with_env("/store", unlimited.clone(), disk.env()).unwrap();
    let sorted = (0..COUNT).map(|n| (long_key(n), n.to_le_bytes()));
    let mut load = db.bulk_load(&db.default_column_family()).unwrap();
    sorted.for_each(|(key, value)| load.put(key, value).unwrap());
    load.finish().unwrap();
    let all_bytes = db.stats().memory.index_filter_bytes;
    assert!(all_bytes > LIMIT * 3 / 4, "{all_bytes} bytes show nothing");
    db.close().unwrap();

    let db = Db::open_with_env("/store", Options { memory_limit: LIMIT, ..unlimited }, disk.env()).unwrap();
    let mut random = Rng::with_seed(5);
    let mut least = u64::MAX;
    for round in 0..2000 {
        let wanted = random.u32(..COUNT);
        assert_eq!(db.get(long_key(wanted)).unwrap().unwrap(), wanted.to_le_bytes());
        assert_eq!(db.get([long_key(wanted), vec![0]].concat()).unwrap(), None);
        if round % 20 == 0 {
            let memory = db.stats().memory;
            assert!(memory.total_bytes() <= LIMIT, "{memory:?}");
            least = least.min(memory.index_filter_bytes);
        }
    }
    assert!(least > LIMIT / 4, "as much stays as may: {least}");
    assert_eq!(db.count_cf(&db.default_column_family(), &ReadOptions::default()).unwrap(), u64::from(COUNT));
    let keys: Vec<_> = (0..COUNT).step_by(97).map(long_key).collect();
    assert!(db.multi_get(&keys).unwrap().into_iter().all(|found| found.unwrap().is_some()));
    assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
}

/// Goal: a value in the cache costs no read, and is nobody else's.
#[test]
fn a_cached_value_costs_no_read() {
    for compression in [Compression::None, Compression::Zstd] {
        let disk = SimDisk::new();
        let (db, expected) = store(&disk, compression);
        db.close().unwrap();
        let options = Options { cache_bytes: 8 << 20, cache_blobs: true, ..options(compression) };
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let mut reads = Vec::new();
        for round in 0..3 {
            let family = db.default_column_family();
            let fill_cache = round > 0;
            for (key, value) in &expected {
                let options = ReadOptions { fill_cache, ..ReadOptions::default() };
                assert_eq!(db.get_cf(&family, key, &options).unwrap().unwrap(), *value, "round {round}");
            }
            reads.push(db.stats().blob_reads);
        }
        let each = separated(&expected);
        assert_eq!(reads, [each, 2 * each, 2 * each], "unless it fills the cache, the cache stays as it is");
        assert!(db.stats().memory.cache_bytes > 0);
        let before = db.stats().blob_reads;
        let found = db.multi_get(expected.keys()).unwrap();
        assert!(found.into_iter().zip(expected.values()).all(|(found, value)| found.unwrap().unwrap() == *value));
        assert_eq!(db.stats().blob_reads, before, "nor do many at once");
        for (key, value) in &expected {
            assert_eq!(db.value_len(key).unwrap(), Some(value.len() as u64));
            assert_eq!(db.get_range(key, 5..15).unwrap().unwrap(), value[5..15]);
        }
        assert_eq!(db.stats().blob_reads, before, "nor do lengths and parts");
    }
}

/// Goal: many keys at once leave their values in the cache as single ones do; a packed value that is read part by part is read once.
#[test]
fn what_many_keys_and_parts_read_is_in_the_cache() {
    for compression in [Compression::None, Compression::Lz4] {
        let disk = SimDisk::new();
        let (db, expected) = store(&disk, compression);
        let large = vec![7; 200_000];
        db.put("large", &large).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let options = Options { cache_bytes: 8 << 20, cache_blobs: true, ..options(compression) };
        let db = Db::open_with_env("/store", options, disk.env()).unwrap();
        let family = db.default_column_family();
        let read = |fill_cache| {
            let options = ReadOptions { fill_cache, ..ReadOptions::default() };
            let found = db.multi_get_cf(&family, expected.keys(), &options).unwrap();
            assert!(found.into_iter().zip(expected.values()).all(|(found, value)| found.unwrap().unwrap() == *value));
            db.stats().blob_reads
        };
        let each = separated(&expected);
        assert_eq!([read(false), read(true), read(true)], [each, 2 * each, 2 * each], "{compression:?}");
        let parts = (0..200_000u64).step_by(1000).map(|at| db.get_range("large", at..at + 1000).unwrap().unwrap());
        assert!(parts.flat_map(|part| part.to_vec()).eq(large.iter().copied()));
        let reads = db.stats().blob_reads - 2 * each;
        assert_eq!(reads, if compression == Compression::None { 200 } else { 1 }, "{compression:?}");
    }
}

/// Goal: damage in a large value is told to whoever reads all of it, also by its range.
#[test]
fn a_range_of_all_of_a_value_is_checked() {
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options(Compression::None), disk.env()).unwrap();
    db.put("large", vec![3; 100_000]).unwrap();
    db.flush().unwrap();
    let blob = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "blob")).unwrap();
    assert!(disk.flip_bit(&blob, 50_000 * 8));
    for range in [0..100_000, 0..u64::MAX] {
        assert_eq!(db.get_range("large", range).unwrap_err().kind(), ErrorKind::Corruption);
    }
    assert!(db.get_range("large", 60_000..u64::MAX).unwrap().unwrap() == vec![3; 40_000]);
}

/// Reads that the file system was asked for, of tables and of blob files.
fn device_reads(stats: &Stats) -> u64 {
    stats.table_read_calls + stats.blob_read_calls
}

/// Goal: once the tables are in memory, a get of a separated value is one read, of another value none.
#[test]
fn a_get_costs_one_read_while_the_tables_fit_in_memory() {
    let disk = SimDisk::new();
    let (db, expected) = store(&disk, Compression::Lz4);
    db.close().unwrap();
    let options = Options { cache_bytes: 8 << 20, cache_blobs: false, ..options(Compression::Lz4) };
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    let before = db.stats();
    expected.keys().for_each(|key| assert!(db.exists(key).unwrap()));
    let warm = db.stats();
    assert!(warm.table_read_calls > before.table_read_calls && warm.table_read_bytes > before.table_read_bytes);
    for (key, value) in &expected {
        assert_eq!(db.get(key).unwrap().unwrap(), *value);
    }
    assert_eq!(device_reads(&db.stats()) - device_reads(&warm), separated(&expected));
}

/// Goal: who looks for a prefix does not read tables whose filters deny it, and sees the same.
#[test]
fn a_prefix_is_looked_for_only_in_tables_that_may_have_it() {
    const TABLES: u32 = 8;
    let mut reads = Vec::new();
    for prefix in [None, Some(PrefixExtractor::Fixed(3)), Some(PrefixExtractor::Capped(3))] {
        let mut options = options(Compression::None);
        let family = options.families.get_mut("default").unwrap();
        (family.prefix, family.level0_compaction_trigger) = (prefix, 100);
        (family.level0_slowdown_trigger, family.level0_stop_trigger) = (200, 300);
        let db = Db::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        // Each table reaches from the first key to the last, so that only filters tell them apart.
        for table in 0..TABLES {
            db.put("a", "first").unwrap();
            db.put("z", "last").unwrap();
            for n in 0..50 {
                db.put(format!("p{table}/{n:03}"), format!("value {n}")).unwrap();
            }
            db.flush().unwrap();
        }
        let family = db.default_column_family();
        let before = db.stats();
        for table in 0..TABLES {
            let within = ReadOptions::default().with_prefix(format!("p{table}/"));
            for scan in [forward, backward] {
                let found = scan(&db, &family, &within).unwrap();
                assert_eq!(found.len(), 50);
                assert!(found.iter().all(|(key, _)| key.starts_with(format!("p{table}/").as_bytes())));
            }
            let longer = ReadOptions::default().with_prefix(format!("p{table}/01"));
            assert_eq!(db.count_cf(&family, &longer).unwrap(), 10);
        }
        // Two prefixes, or none that all keys have: everything is looked at.
        let across = ReadOptions {
            lower_bound: Some(b"p1/049".to_vec()),
            upper_bound: Some(b"p2/001".to_vec()),
            ..ReadOptions::default()
        };
        assert_eq!(db.count_cf(&family, &across).unwrap(), 2);
        assert_eq!(db.count_cf(&family, &ReadOptions::default().with_prefix("p")).unwrap(), 50 * u64::from(TABLES));
        reads.push(db.stats().table_read_calls - before.table_read_calls);
    }
    assert!(reads[1] < reads[0] / 2 && reads[2] < reads[0] / 2, "{reads:?}");
}
