//! The same answers as a sorted list.

use std::cmp::Ordering;

use esker_format::rocksdb::order::{Comparator, Order, ReverseBytewiseComparator};

use super::*;
use crate::iterate::InternalIterator;

/// A small generator: tests repeat their seed's answers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Short keys before long ones.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

fn orders() -> [Order; 3] {
    [Order::BYTEWISE, Order::new(&ReverseBytewiseComparator), Order::new(&ByLength)]
}

/// Up to three versions of each key, and values that compress or do not.
fn random_entries(random: &mut Random, order: Order, key_count: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    for _ in 0..key_count {
        let user_key = format!("{:0width$}", random.below(key_count * 3), width = 1 + random.below(12) as usize);
        for _ in 0..1 + random.below(3) {
            let sequence = random.below(1 << 20);
            let count = random.below(120) as usize;
            let value: Vec<u8> = if random.below(2) == 0 {
                vec![b'v'; count]
            } else {
                (0..count).map(|_| random.below(256) as u8).collect()
            };
            let is_deletion = random.below(5) == 0;
            entries.push(match is_deletion {
                true => entry(&user_key, sequence, ValueKind::Deletion, b""),
                false => entry(&user_key, sequence, ValueKind::Value, &value),
            });
        }
    }
    entries.sort_by(|(a, _), (b, _)| order.compare_internal(a, b));
    entries.dedup_by(|(a, _), (b, _)| a == b);
    entries
}

fn current(iterator: &TableIterator) -> Option<Entry> {
    assert!(iterator.valid() || (iterator.key().is_empty() && iterator.value().is_empty()));
    assert_eq!(iterator.pinned_value(), iterator.value());
    iterator.valid().then(|| (iterator.key().to_vec(), iterator.value().to_vec()))
}

pub(super) fn assert_same(table: &Arc<Table>, entries: &[Entry], random: &mut Random) {
    let mut forwards = Vec::new();
    let mut iterator = table.iter(false);
    assert!(!iterator.valid());
    iterator.seek_to_first().unwrap();
    while let Some(entry) = current(&iterator) {
        forwards.push(entry);
        iterator.next().unwrap();
    }
    assert!(forwards == entries);

    let mut backwards = Vec::new();
    iterator.seek_to_last().unwrap();
    while let Some(entry) = current(&iterator) {
        backwards.push(entry);
        iterator.prev().unwrap();
    }
    backwards.reverse();
    assert!(backwards == entries);

    let mut cached = table.iter(true);
    for _ in 0..300 {
        let user_key = format!("{:0width$}", random.below(1000), width = 1 + random.below(12) as usize);
        let target = lookup(&user_key, random.below(1 << 20));
        let at = entries.partition_point(|(key, _)| table.order().compare_internal(key, &target).is_lt());
        cached.seek(&target).unwrap();
        assert_eq!(current(&cached).as_ref(), entries.get(at));
        for step in 1..1 + random.below(20) as usize {
            if cached.valid() {
                cached.next().unwrap();
                assert_eq!(current(&cached).as_ref(), entries.get(at + step));
            }
        }
        cached.seek_for_prev(&target).unwrap();
        assert_eq!(current(&cached).as_ref(), at.checked_sub(1).and_then(|at| entries.get(at)));
        for step in 2..random.below(20) as usize {
            if cached.valid() {
                cached.prev().unwrap();
                assert_eq!(current(&cached).as_ref(), at.checked_sub(step).and_then(|at| entries.get(at)));
            }
        }
        let expected = entries.get(at).filter(|(key, _)| internal_key::user_key(key) == user_key.as_bytes());
        let hit = table.get(&target, true).unwrap();
        let found = hit.map(|hit| {
            let mut key = user_key.clone().into_bytes();
            key.extend_from_slice(&internal_key::pack(hit.sequence, hit.kind).to_le_bytes());
            (key, hit.value.into_vec())
        });
        assert_eq!(found.as_ref(), expected);
    }
    let mut targets: Vec<Vec<u8>> =
        (0..random.below(60)).map(|_| random.below(1000)).map(|n| lookup(&n.to_string(), 9)).collect();
    targets.sort_by(|a, b| table.order().compare_internal(a, b));
    let lookups: Vec<&[u8]> = targets.iter().map(Vec::as_slice).collect();
    let fill_cache = random.below(2) == 0;
    // As of two tables, whose blocks are read together.
    let (first, second) = lookups.split_at(random.below(lookups.len() as u64 + 1) as usize);
    let mut searches = [first, second].map(|lookups| table.begin_many(lookups.to_vec()));
    Many::read_missing(&mut searches, fill_cache);
    let hits = searches.into_iter().flat_map(|search| search.finish(fill_cache));
    for (lookup, found) in lookups.iter().zip(hits) {
        let alone = table.get(lookup, false).unwrap().map(|hit| (hit.sequence, hit.kind, hit.value));
        assert_eq!(found.unwrap().map(|hit| (hit.sequence, hit.kind, hit.value)), alone);
    }
    for (key, value) in entries.iter().step_by(7) {
        let hit = table.get(key, false).unwrap().unwrap();
        assert_eq!(hit.value, *value);
        let found = cached.seek_for_prev(key).map(|()| cached.key() == key.as_slice()).unwrap();
        assert!(found);
    }
}

pub(super) fn check_all(table: &Table, entries: &[Entry]) {
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    let check = table.check(&mut visit).unwrap();
    assert_eq!(check.entries, entries.len() as u64);
    assert_eq!(check.bytes, table.file_bytes);
    assert!(seen == entries);
}

#[test]
fn a_table_is_a_sorted_list_under_every_option() {
    let mut random = Random(1);
    let kinds = [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let checksums =
        [ChecksumKind::None, ChecksumKind::Crc32c, ChecksumKind::XxHash32, ChecksumKind::XxHash64, ChecksumKind::Xxh3];
    for (index, compression) in kinds.into_iter().cycle().take(40).enumerate() {
        let options = TableOptions {
            block_bytes: [64, 256, 1024, 4096][random.below(4) as usize],
            restart_interval: [1, 2, 16, 1000][random.below(4) as usize],
            compression,
            bits_per_key: [0.0, 5.0, 10.0][random.below(3) as usize],
            merge_operator: None,
            order: orders()[random.below(3) as usize],
            prefix: [None, Some(PrefixExtractor::Fixed(1)), Some(PrefixExtractor::Capped(2))][random.below(3) as usize],
            checksum: checksums[index % checksums.len()],
            format_version: 3 + index as u32 % 5,
        };
        let key_count = [1, 30, 300][index % 3];
        let entries = random_entries(&mut random, options.order, key_count);
        let table = table_of(&options, &entries);
        assert_same(&table, &entries, &mut random);
        check_all(&table, &entries);
    }
}

#[test]
fn a_table_without_entries_has_none() {
    let table = table_of(&TableOptions::default(), &[]);
    let mut iterator = table.iter(true);
    iterator.seek_to_first().unwrap();
    assert!(!iterator.valid());
    iterator.seek_to_last().unwrap();
    assert!(!iterator.valid());
    iterator.seek_for_prev(&lookup("a", 1)).unwrap();
    assert!(!iterator.valid());
    assert!(table.get(&lookup("a", 1), true).unwrap().is_none());
    check_all(&table, &[]);
}

#[test]
fn a_summary_says_what_was_written() {
    let env = SimDisk::new().env();
    let entries = [
        entry("a", 9, ValueKind::Value, b"12345"),
        entry("a", 4, ValueKind::Value, b"1"),
        entry("b", 70, ValueKind::Deletion, b""),
        entry("c", 5, ValueKind::SingleDeletion, b""),
        entry("d", 6, ValueKind::BlobIndex, b"index"),
    ];
    let summary = write(&env, &TableOptions::default(), &entries).unwrap();
    assert_eq!(summary.file_bytes, env.files.metadata(Path::new(PATH)).unwrap().len);
    assert_eq!((&summary.smallest, &summary.largest), (&entries[0].0, &entries[4].0));
    assert_eq!((summary.smallest_sequence.get(), summary.largest_sequence.get()), (4, 70));
    let table = open(&env).unwrap();
    assert_eq!(summary.tail_bytes, summary.file_bytes - table.data_end());
    let properties = table.properties();
    assert_eq!((properties.column_family_id, properties.column_family_name.as_str()), (3, "letters"));
    assert_eq!((properties.entry_count, properties.filter_entry_count, properties.deletion_count), (5, 4, 2));
    assert_eq!((properties.raw_key_bytes, properties.raw_value_bytes), (45, 11));
}

#[test]
fn a_user_property_travels() {
    let env = SimDisk::new().env();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, &options, &identity()).unwrap();
    let (key, value) = entry("k", 1, ValueKind::Value, b"v");
    writer.add(&key, &value).unwrap();
    writer.set_user_property("esker.blob_refs", vec![1, 2, 3]);
    writer.finish().unwrap();
    assert_eq!(open(&env).unwrap().properties().other.get("esker.blob_refs"), Some(&vec![1, 2, 3]));
}

#[test]
fn a_key_whose_versions_span_blocks_is_found_at_every_sequence() {
    let entries: Vec<Entry> = (0..200u64)
        .rev()
        .map(|sequence| entry("key", 1000 + sequence, ValueKind::Value, &sequence.to_le_bytes()))
        .collect();
    let table = table_of(&TableOptions { block_bytes: 100, ..TableOptions::default() }, &entries);
    assert_eq!(table.properties().index_key_is_user_key, 0);
    for sequence in 0..200u64 {
        let hit = table.get(&lookup("key", 1000 + sequence), true).unwrap().unwrap();
        assert_eq!((hit.sequence.get(), hit.value.into_vec()), (1000 + sequence, sequence.to_le_bytes().to_vec()));
    }
    assert!(table.get(&lookup("key", 999), true).unwrap().is_none());
}

#[test]
fn a_scan_reads_far_ahead_and_a_lookup_does_not() {
    let disk = SimDisk::new();
    let env = disk.env();
    let entries: Vec<Entry> =
        (0..4000).map(|number| entry(&format!("{number:06}"), 1, ValueKind::Value, &[b'v'; 100])).collect();
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    write(&env, &options, &entries).unwrap();
    let table = open(&env).unwrap();
    assert!(table.properties().data_block_count > 100);
    for is_backward in [false, true] {
        let before = disk.read_count();
        let mut iterator = table.iter(false);
        if is_backward {
            iterator.seek_to_last().unwrap()
        } else {
            iterator.seek_to_first().unwrap()
        }
        let mut count = 0;
        while iterator.valid() {
            count += 1;
            if is_backward { iterator.prev().unwrap() } else { iterator.next().unwrap() }
        }
        assert_eq!(count, 4000);
        assert!(disk.read_count() - before < 10, "{} reads", disk.read_count() - before);
    }

    let before = disk.read_count();
    for _ in 0..3 {
        assert!(table.get(&lookup("001234", 9), true).unwrap().is_some());
    }
    assert_eq!(disk.read_count() - before, 1);
}
