//! Blocks against a sorted map, golden bytes, and arbitrary bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::rocksdb::internal_key;
use crate::rocksdb::order::Order;
use crate::rocksdb::table::BlockHandle;
use crate::{DecodeErrorKind, rocksdb::internal_key::SequenceNumber};

fn block_of(entries: &BTreeMap<Vec<u8>, Vec<u8>>, restart_interval: usize) -> Vec<u8> {
    let mut builder = BlockBuilder::new(restart_interval);
    for (key, value) in entries {
        builder.add(key, value);
    }
    assert_eq!((builder.is_empty(), builder.entry_count()), (entries.is_empty(), entries.len()));
    let estimated_bytes = builder.estimated_bytes();
    let block = builder.finish().to_vec();
    assert_eq!(block.len(), estimated_bytes);
    block
}

fn current(cursor: &BlockCursor, block: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.value(block).to_vec()))
}

fn owned(entry: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
    entry.map(|(key, value)| (key.clone(), value.clone()))
}

#[test]
fn golden_bytes() {
    let mut builder = BlockBuilder::new(2);
    builder.add(b"apple", b"1");
    builder.add(b"apply", b"22");
    builder.add(b"apps", b"");
    #[rustfmt::skip]
    let golden = [
        0, 5, 1, b'a', b'p', b'p', b'l', b'e', b'1',
        4, 1, 2, b'y', b'2', b'2',
        0, 4, 0, b'a', b'p', b'p', b's',
        0, 0, 0, 0, 15, 0, 0, 0,
        2, 0, 0, 0,
    ];
    assert_eq!(builder.finish(), golden);
}

#[test]
fn golden_index_bytes() {
    let mut builder = IndexBuilder::new(2, true);
    for (separator, offset, bytes) in [(b"ab", 0, 300), (b"ac", 305, 290), (b"ad", 600, 1)] {
        builder.add(separator, BlockHandle { offset, bytes });
    }
    #[rustfmt::skip]
    let golden = [
        0, 2, b'a', b'b', 0, 0xac, 0x02,
        1, 1, b'c', 19,
        0, 2, b'a', b'd', 0xd8, 0x04, 1,
        0, 0, 0, 0, 11, 0, 0, 0,
        2, 0, 0, 0,
    ];
    assert_eq!(builder.finish(), golden);
}

#[test]
fn an_empty_block_has_no_entries() {
    let block = block_of(&BTreeMap::new(), 16);
    let mut cursor = BlockCursor::new(BlockLayout::parse(&block).unwrap());
    cursor.seek_to_first(&block).unwrap();
    assert!(!cursor.valid());
    cursor.seek_to_last(&block).unwrap();
    assert!(!cursor.valid());
    cursor.seek(&block, b"a", KeyOrder::BYTES).unwrap();
    assert!(!cursor.valid());
    assert!(BlockLayout::parse(&[0; 4]).is_ok());
}

#[test]
fn flags_are_known_or_refused() {
    let mut block = block_of(&BTreeMap::from([(b"k".to_vec(), b"v".to_vec())]), 16);
    let layout = BlockLayout::parse(&block).unwrap();
    let at = block.len() - 1;
    block[at] |= 0x20;
    assert_eq!(BlockLayout::parse(&block).unwrap(), layout);
    for flag in [0x10, 0x40] {
        let mut other = block.clone();
        other[at] |= flag;
        assert_eq!(BlockLayout::parse(&other).unwrap_err().kind, DecodeErrorKind::Unsupported);
    }
    // Three buckets and their count before the footer.
    let footer = block.split_off(block.len() - 4);
    block.extend([255, 0, 255, 3, 0]);
    block.extend(footer);
    let at = block.len() - 1;
    block[at] = 0x80;
    assert_eq!(BlockLayout::parse(&block).unwrap(), layout);
    block[at - 4] = 0xff;
    assert_eq!(BlockLayout::parse(&block).unwrap_err().kind, DecodeErrorKind::Corrupt);
}

#[test]
fn an_index_reads_back_in_every_format() {
    for (restart_interval, delta_encoded, user_keys) in
        [1, 2, 3, 16].into_iter().flat_map(|i| [(i, false, false), (i, false, true), (i, true, false), (i, true, true)])
    {
        let mut builder = IndexBuilder::new(restart_interval, delta_encoded);
        let mut handles = Vec::new();
        let mut handle = BlockHandle { offset: 0, bytes: 4000 };
        for number in 0..100u64 {
            let user_key = format!("key{:05}", number * 10);
            let internal = internal_key::lookup(user_key.as_bytes(), SequenceNumber::MAX);
            let separator = if user_keys { user_key.as_bytes() } else { internal.as_slice() };
            builder.add(separator, handle);
            handles.push(handle);
            handle = BlockHandle { offset: handle.end().unwrap(), bytes: 3900 + number * 37 % 250 };
        }
        let block = builder.finish().to_vec();
        let format = IndexFormat { delta_encoded, user_keys, first_keys: false, order: Order::BYTEWISE };
        let mut cursor = IndexCursor::new(BlockLayout::parse(&block).unwrap(), format);
        for target in 0..=1000usize {
            let key = internal_key::lookup(format!("key{target:05}").as_bytes(), SequenceNumber::new(7));
            cursor.seek(&block, &key).unwrap();
            // An internal separator `key, newest` lies before `key, 7`.
            let expected = if user_keys { target.div_ceil(10) } else { target / 10 + 1 };
            let found = cursor.valid().then(|| cursor.handle(&block).unwrap());
            assert_eq!(found, handles.get(expected).copied(), "{target} {format:?} {restart_interval}");
        }
        let mut backwards = Vec::new();
        cursor.seek_to_last(&block).unwrap();
        while cursor.valid() {
            backwards.push(cursor.handle(&block).unwrap());
            cursor.prev(&block).unwrap();
        }
        backwards.reverse();
        assert_eq!(backwards, handles);
        assert!(cursor.handle(&block).is_err());
    }
}

#[test]
fn first_keys_in_an_index_are_passed_over() {
    #[rustfmt::skip]
    let block = [
        0, 2, b'a', b'b', 0, 10, 1, b'a',
        1, 1, b'c', 4, 2, b'a', b'c',
        0, 0, 0, 0,
        1, 0, 0, 0,
    ];
    let format = IndexFormat { delta_encoded: true, user_keys: true, first_keys: true, order: Order::BYTEWISE };
    let mut cursor = IndexCursor::new(BlockLayout::parse(&block).unwrap(), format);
    cursor.seek_to_first(&block).unwrap();
    assert_eq!(cursor.handle(&block), Ok(BlockHandle { offset: 0, bytes: 10 }));
    cursor.next(&block).unwrap();
    assert_eq!(cursor.handle(&block), Ok(BlockHandle { offset: 15, bytes: 12 }));
    cursor.next(&block).unwrap();
    assert!(!cursor.valid());
}

fn walk_everywhere(block: &[u8]) {
    let Ok(layout) = BlockLayout::parse(block) else { return };
    let mut cursor = BlockCursor::new(layout);
    let mut forward = || -> Result<(), crate::DecodeError> {
        cursor.seek_to_first(block)?;
        while cursor.valid() {
            let _ = (cursor.key().len(), cursor.value(block).len());
            cursor.next(block)?;
        }
        Ok(())
    };
    let _ = forward();
    let mut backward = || -> Result<(), crate::DecodeError> {
        cursor.seek_to_last(block)?;
        while cursor.valid() {
            cursor.prev(block)?;
        }
        Ok(())
    };
    let _ = backward();
    let _ = cursor.seek(block, b"key", KeyOrder::BYTES);
    let _ = cursor.seek(block, b"key12345678", KeyOrder::Internal(Order::BYTEWISE));
    for delta_encoded in [false, true] {
        let mut index = IndexCursor::new(
            layout,
            IndexFormat { delta_encoded, user_keys: true, first_keys: block.len() % 2 == 1, order: Order::BYTEWISE },
        );
        let _ = index.seek(block, b"key12345678");
        let _ = index.handle(block);
        let _ = index.seek_to_first(block);
        while index.valid() {
            let _ = index.handle(block);
            if index.next(block).is_err() {
                break;
            }
        }
    }
}

fn entries() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let key = prop_oneof![
        "[ab]{0,6}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(Just(7u8), 100..300),
    ];
    prop::collection::btree_map(key, prop::collection::vec(any::<u8>(), 0..200), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_block_is_a_sorted_map(entries in entries(), restart_interval in 1usize..20, targets in prop::collection::vec("[ab]{0,6}", 8)) {
        let block = block_of(&entries, restart_interval);
        let mut cursor = BlockCursor::new(BlockLayout::parse(&block).unwrap());

        let mut forwards = Vec::new();
        cursor.seek_to_first(&block).unwrap();
        while let Some(entry) = current(&cursor, &block) {
            forwards.push(entry);
            cursor.next(&block).unwrap();
        }
        prop_assert_eq!(&forwards, &entries.clone().into_iter().collect::<Vec<_>>());

        let mut backwards = Vec::new();
        cursor.seek_to_last(&block).unwrap();
        while let Some(entry) = current(&cursor, &block) {
            backwards.push(entry);
            cursor.prev(&block).unwrap();
        }
        backwards.reverse();
        prop_assert_eq!(&backwards, &forwards);

        let targets = targets.into_iter().map(String::into_bytes).chain(entries.keys().cloned());
        for target in targets {
            cursor.seek(&block, &target, KeyOrder::BYTES).unwrap();
            prop_assert_eq!(current(&cursor, &block), owned(entries.range(target.clone()..).next()));
            if cursor.valid() {
                cursor.prev(&block).unwrap();
                prop_assert_eq!(current(&cursor, &block), owned(entries.range(..target).next_back()));
            }
        }
    }

    #[test]
    fn a_seek_among_versions_finds_the_first_that_is_not_before(
        versions in prop::collection::btree_map("[ab\\x00\\x01]{0,5}", prop::collection::btree_set(0u64..600, 1..4), 0..40),
        restart_interval in 1usize..20,
        targets in prop::collection::vec(("[ab\\x00\\x01]{0,5}", 0u64..600), 12),
    ) {
        let keys: Vec<Vec<u8>> = versions
            .iter()
            .flat_map(|(key, sequences)| sequences.iter().rev().map(move |sequence| (key.as_bytes(), *sequence)))
            .map(|(key, sequence)| {
                let mut internal = Vec::new();
                internal_key::append(&mut internal, key, SequenceNumber::new(sequence), internal_key::ValueKind::Value);
                internal
            })
            .collect();
        let mut builder = BlockBuilder::new(restart_interval);
        keys.iter().for_each(|key| builder.add(key, b"v"));
        let block = builder.finish().to_vec();
        let mut cursor = BlockCursor::new(BlockLayout::parse(&block).unwrap());
        let lookups = targets.iter().map(|(key, sequence)| internal_key::lookup(key.as_bytes(), SequenceNumber::new(*sequence)));
        for target in lookups.chain(keys.clone()) {
            cursor.seek(&block, &target, KeyOrder::Internal(Order::BYTEWISE)).unwrap();
            let mut at = keys.iter().position(|key| Order::BYTEWISE.compare_internal(key, &target).is_ge());
            prop_assert_eq!(cursor.valid().then(|| cursor.key()), at.map(|at| keys[at].as_slice()));
            while let Some(before) = at {
                cursor.next(&block).unwrap();
                at = Some(before + 1).filter(|at| *at < keys.len());
                prop_assert_eq!(cursor.valid().then(|| cursor.key()), at.map(|at| keys[at].as_slice()));
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(block in prop::collection::vec(any::<u8>(), 0..300)) {
        walk_everywhere(&block);
    }

    #[test]
    fn damaged_blocks_are_read_without_a_panic(
        entries in entries(), restart_interval in 1usize..20, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut block = block_of(&entries, restart_interval);
        for (at, byte) in damage {
            let at = at.index(block.len());
            block[at] = byte;
        }
        walk_everywhere(&block);
    }
}

/// What RocksDB makes of the entries of an ordinary block where values lie apart.
fn apart(block: &[u8], hash_index: &[u8]) -> Vec<u8> {
    let layout = BlockLayout::parse(block).unwrap();
    let starts: Vec<usize> = (0..layout.restart_count()).map(|index| layout.restart(block, index).unwrap()).collect();
    let (mut keys, mut values, mut restarts) = (Vec::new(), Vec::new(), Vec::new());
    let mut entries = crate::cursor::Cursor::new(&block[..layout.entries_bytes()]);
    while !entries.is_empty() {
        let is_restart = starts.contains(&(entries.offset() as usize));
        if is_restart {
            restarts.extend_from_slice(&(keys.len() as u32).to_le_bytes());
        }
        let lengths = ["shared", "unshared", "value"].map(|field| entries.varint32(field).unwrap());
        lengths.iter().for_each(|&length| crate::varint::put_u32(&mut keys, length));
        if is_restart {
            crate::varint::put_u32(&mut keys, values.len() as u32);
        }
        keys.extend_from_slice(entries.bytes("key", lengths[1] as usize).unwrap());
        values.extend_from_slice(entries.bytes("value", lengths[2] as usize).unwrap());
    }
    if keys.is_empty() {
        restarts = vec![0; 4 * starts.len()];
    }
    let values_at = keys.len() as u32;
    let mut flags = SEPARATE_VALUES_BIT;
    if !hash_index.is_empty() {
        flags |= HASH_INDEX_BIT;
        restarts.extend_from_slice(hash_index);
        restarts.extend_from_slice(&(hash_index.len() as u16).to_le_bytes());
    }
    let footer = [values_at.to_le_bytes(), (starts.len() as u32 | flags).to_le_bytes()].concat();
    [keys, values, restarts, footer].concat()
}

/// Goal: a block whose values lie apart is the same as one whose values do not; what is broken is an error, and never more than it was.
#[test]
fn values_that_lie_apart_are_put_back() {
    for interval in [1, 2, 16] {
        for count in [0u32, 1, 2, 3, 40] {
            let entry = |n: u32| (format!("key {:04}", n * n).into_bytes(), vec![n as u8; n as usize * 7 % 50]);
            let ordinary = block_of(&(0..count).map(entry).collect(), interval);
            assert_eq!(put_together(ordinary.clone()).unwrap(), ordinary);
            for hash_index in [&[][..], &[1, 2, 255]] {
                let block = apart(&ordinary, hash_index);
                assert_eq!(BlockLayout::parse(&block).unwrap_err().kind, DecodeErrorKind::Unsupported);
                assert_eq!(put_together(block.clone()).unwrap(), ordinary, "{count} entries, {interval}");
                for end in 0..block.len() - 4 {
                    let mut cut = block[..end].to_vec();
                    cut.extend_from_slice(&block[block.len() - 4..]);
                    assert!(put_together(cut).is_err(), "{end} of {}", block.len());
                }
                for at in 0..block.len() {
                    let mut other = block.clone();
                    other[at] ^= 0x41;
                    if let Ok(together) = put_together(other) {
                        assert!(together.len() <= block.len());
                        let _ = BlockLayout::parse(&together);
                    }
                }
            }
        }
    }
    // None that RocksDB writes, but another one's bytes, which may be as many as there are restarts.
    let ordinary = block_of(&(0..9u8).map(|n| (vec![n], vec![7; 90])).collect(), 1);
    let mut block = apart(&ordinary, &[]);
    assert_eq!(block[5 + 3], 90);
    block[5 + 3] = 0;
    let error = put_together(block).unwrap_err();
    assert_eq!((error.field, error.offset), ("value offset", 5));
}
