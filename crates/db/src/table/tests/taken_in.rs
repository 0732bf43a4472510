//! Tables that were written outside of a store: their keys say nothing of when they count.

use crate::iterate::InternalIterator;

use super::model::{Random, assert_same, check_all};
use super::*;
use crate::ErrorKind;

/// Writes `entries` as an external file; their sequence numbers in the file are what is given.
fn write_external(env: &Env, options: &TableOptions, entries: &[Entry]) {
    let mut writer = TableWriter::create(&*env.files, Path::new(PATH), NUMBER, options, &identity()).unwrap();
    writer.set_external();
    for (key, value) in entries {
        writer.add(key, value).unwrap();
    }
    writer.finish().unwrap();
}

fn open_at(env: &Env, newest: u64) -> Result<Arc<Table>> {
    let file_bytes = env.files.metadata(Path::new(PATH))?.len;
    let cache = Arc::new(BlockCache::new(1 << 20));
    let orders = Order::BYTEWISE.into();
    Table::open_as(
        env.files.open(Path::new(PATH)).unwrap(),
        file_bytes,
        &orders,
        Some(SequenceNumber::new(newest)),
        cache,
    )
}

fn at(entries: &[Entry], sequence: u64) -> Vec<Entry> {
    let kind = |key: &[u8]| ValueKind::from_u8(internal_key::tag(key) as u8).unwrap();
    let user_key = |key| std::str::from_utf8(internal_key::user_key(key)).unwrap();
    entries.iter().map(|(key, value)| entry(user_key(key), sequence, kind(key), value)).collect()
}

/// Writes a sequence number over the one in the properties, as RocksDB does.
fn write_over(disk: &SimDisk, sequence: u64) {
    let mut raw = disk.file_bytes(Path::new(PATH)).unwrap();
    let place = raw.windows(12).position(|bytes| bytes == b"global_seqno").unwrap() + 12;
    raw[place..place + 8].copy_from_slice(&sequence.to_le_bytes());
    disk.overwrite(Path::new(PATH), raw);
}

#[test]
fn a_table_that_was_taken_in_is_a_sorted_list_of_one_moment() {
    let mut random = Random(7);
    for (index, count) in [1, 2, 30, 400, 400].into_iter().enumerate() {
        let mut keys: Vec<u64> = (0..count).map(|_| random.below(1000)).collect();
        keys.sort_unstable_by_key(u64::to_string);
        keys.dedup();
        let entries: Vec<Entry> = keys
            .iter()
            .map(|key| match random.below(5) {
                0 => entry(&key.to_string(), 0, ValueKind::Deletion, b""),
                _ => entry(&key.to_string(), 0, ValueKind::Value, &vec![b'v'; random.below(100) as usize]),
            })
            .collect();
        let env = SimDisk::new().env();
        let options = TableOptions {
            block_bytes: [64, 1024][index % 2],
            format_version: 5 + index as u32 % 3,
            ..Default::default()
        };
        write_external(&env, &options, &entries);
        for newest in [0, 1, 500_000, SequenceNumber::MAX.get()] {
            let table = open_at(&env, newest).unwrap();
            assert_eq!(table.taken_in(), Some(SequenceNumber::new(newest)));
            let expected = at(&entries, newest);
            assert_same(&table, &expected, &mut random);
            check_all(&table, &expected);
        }
    }
}

#[test]
fn a_read_of_before_sees_nothing_of_a_table_that_was_taken_in() {
    let env = SimDisk::new().env();
    write_external(&env, &TableOptions::default(), &[entry("k", 0, ValueKind::Value, b"v")]);
    let table = open_at(&env, 70).unwrap();
    assert!(table.get(&lookup("k", 69), true).unwrap().is_none());
    let hit = table.get(&lookup("k", 70), true).unwrap().unwrap();
    assert_eq!((hit.sequence.get(), hit.kind, &*hit.value), (70, ValueKind::Value, &b"v"[..]));
}

#[test]
fn a_sequence_number_written_over_the_properties_counts() {
    let disk = SimDisk::new();
    let env = disk.env();
    let entries = [entry("a", 0, ValueKind::Value, b"v"), entry("b", 0, ValueKind::Deletion, b"")];
    write_external(&env, &TableOptions::default(), &entries);
    write_over(&disk, 77);
    for table in [open(&env).unwrap(), open_at(&env, 77).unwrap()] {
        check_all(&table, &at(&entries, 77));
    }
    let error = open_at(&env, 78).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("77, the manifest says 78"), "{error}");

    write_over(&disk, u64::MAX);
    assert_eq!(open(&env).unwrap_err().kind(), ErrorKind::Corruption);

    write_over(&disk, 77);
    let mut raw = disk.file_bytes(Path::new(PATH)).unwrap();
    let place = raw.windows(12).position(|bytes| bytes == b"global_seqno").unwrap() + 12;
    raw[place + 8] ^= 1;
    disk.overwrite(Path::new(PATH), raw);
    assert_eq!(open(&env).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn keys_with_a_time_of_their_own_or_two_entries_are_damage() {
    for (entries, reason) in [
        (vec![entry("k", 3, ValueKind::Value, b"v")], "has a sequence number of its own, 3"),
        (vec![entry("k", 0, ValueKind::Value, b"v"), entry("k", 0, ValueKind::Deletion, b"")], "two entries of key"),
    ] {
        let env = SimDisk::new().env();
        write_external(&env, &TableOptions::default(), &entries);
        let table = open_at(&env, 9).unwrap();
        let error = table.check(&mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains(reason), "{error}");
        if reason.contains("of its own") {
            assert_eq!(table.get(&lookup("k", 10), true).unwrap_err().kind(), ErrorKind::Corruption);
            let mut iterator = table.iter(false);
            assert_eq!(iterator.seek_to_first().unwrap_err().kind(), ErrorKind::Corruption);
            assert!(!iterator.valid() && iterator.key().is_empty());
        }
    }
}
