//! Footers, trailers, metaindex and properties: golden bytes, round trips, arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::DecodeErrorKind;
use crate::compression::{compress, decompress};
use crate::rocksdb::block::BlockBuilder;
use crate::rocksdb::order::Order;
use crate::rocksdb::prefix::PrefixExtractor;

/// The last bytes of a table that RocksDB 7.8 wrote.
const ROCKSDB_FOOTER: [u8; FOOTER_BYTES] = [
    0x04, 0xa2, 0xa1, 0x01, 0x53, 0xc9, 0x99, 0x01, 0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x05, 0, 0, 0, 0xf7, 0xcf, 0xf4, 0x85, 0xb7, 0x41, 0xe2, 0x88,
];

fn footer(format_version: u32, kind: ChecksumKind, offset: u64) -> Footer {
    let with_context = format_version >= 6;
    Footer {
        format_version,
        checksum: BlockChecksum { kind, base_context: if with_context { 0x1234_5678 } else { 0 } },
        meta_index: BlockHandle { offset: offset - 88, bytes: 83 },
        index: (!with_context).then_some(BlockHandle { offset: 19_657, bytes: 86 }),
    }
}

#[test]
fn golden_footer() {
    let footer = Footer {
        format_version: 5,
        checksum: BlockChecksum { kind: ChecksumKind::Xxh3, base_context: 0 },
        meta_index: BlockHandle { offset: 20_642, bytes: 83 },
        index: Some(BlockHandle { offset: 19_657, bytes: 86 }),
    };
    assert_eq!(footer.encode(20_730), ROCKSDB_FOOTER);
    assert_eq!(Footer::decode(&ROCKSDB_FOOTER, 20_783), Ok(footer));
}

#[test]
fn footers_of_every_version_read_back() {
    for format_version in FORMAT_VERSION_MIN..=FORMAT_VERSION_MAX {
        for kind in [ChecksumKind::None, ChecksumKind::Crc32c, ChecksumKind::XxHash64, ChecksumKind::Xxh3] {
            let offset = 0x1_2345_6789;
            let footer = footer(format_version, kind, offset);
            let raw = footer.encode(offset);
            assert_eq!(Footer::decode(&raw, offset + FOOTER_BYTES as u64), Ok(footer));
        }
    }
}

#[test]
fn a_footer_with_context_notices_every_flipped_bit_and_a_wrong_place() {
    let offset = 1 << 20;
    let raw = footer(6, ChecksumKind::Xxh3, offset).encode(offset);
    for bit in 0..8 * FOOTER_BYTES {
        let mut other = raw;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(Footer::decode(&other, offset + FOOTER_BYTES as u64).is_err(), "bit {bit}");
    }
    assert!(Footer::decode(&raw, offset + 1 + FOOTER_BYTES as u64).is_err());
}

/// Goal: whichever byte of a footer rots, and to whatever, what it was is among what it may have been.
#[test]
fn a_footer_with_a_rotten_byte_is_found_again() {
    let offset = 1 << 20;
    for (version, kind) in [(5, ChecksumKind::Xxh3), (2, ChecksumKind::Crc32c), (6, ChecksumKind::Xxh3)] {
        let footer = footer(version, kind, offset);
        let (raw, file_bytes) = (footer.encode(offset), offset + FOOTER_BYTES as u64);
        for at in 0..FOOTER_BYTES {
            for flipped in [1, 0x80, 0xff] {
                let mut rotten = raw;
                rotten[at] ^= flipped;
                assert!(Footer::one_byte_off(&rotten, file_bytes).contains(&footer), "version {version}, byte {at}");
            }
        }
        assert!(!Footer::one_byte_off(&raw, file_bytes).contains(&footer), "it has no rotten byte");
        assert_eq!(Footer::claimed_version(&raw), Some(version));
    }
}

#[test]
fn other_tables_are_unsupported_and_other_files_corrupt() {
    let with = |at: usize, bytes: &[u8]| {
        let mut raw = ROCKSDB_FOOTER;
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        Footer::decode(&raw, 20_783).unwrap_err()
    };
    for magic in [0xdb47_7524_8b80_fb57u64, 0x8242_2296_63bf_9564, 0x4f34_18eb_7a8f_13b8, 0x9267_89d0_c5f1_7873] {
        assert_eq!(with(45, &magic.to_le_bytes()).kind, DecodeErrorKind::Unsupported);
    }
    assert_eq!(with(45, b"no table").kind, DecodeErrorKind::Corrupt);
    for version in [0u32, 1, 8, u32::MAX] {
        let error = with(41, &version.to_le_bytes());
        assert_eq!((error.kind, error.offset), (DecodeErrorKind::Unsupported, 20_730 + 41));
    }
    assert_eq!(with(0, &[9]).kind, DecodeErrorKind::Unsupported);
    assert_eq!(with(1, &[0xff; 11]).kind, DecodeErrorKind::Corrupt);
    assert_eq!(with(1, &[0xff, 0xff, 0x7f]).kind, DecodeErrorKind::Corrupt);
    assert!(Footer::decode(&ROCKSDB_FOOTER[1..], 52).is_err());
    assert!(Footer::decode(&[], 0).is_err());
}

#[test]
fn a_trailer_guards_block_kind_and_place() {
    for (kind, base_context) in [(ChecksumKind::Crc32c, 0), (ChecksumKind::Xxh3, 0), (ChecksumKind::Xxh3, 77)] {
        let checksum = BlockChecksum { kind, base_context };
        let mut stored = b"a block".to_vec();
        stored.extend(checksum.trailer(b"a block", Compression::Lz4, 4096));
        assert_eq!(checksum.verify(&stored, 4096), Ok((b"a block".as_slice(), Compression::Lz4)));
        assert_eq!(checksum.verify(&stored, 8192).is_ok(), base_context == 0);
        for bit in 0..8 * stored.len() {
            let mut other = stored.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(checksum.verify(&other, 4096).is_err(), "bit {bit}");
        }
    }
    let unchecked = BlockChecksum { kind: ChecksumKind::None, base_context: 0 };
    assert!(unchecked.verify(b"block\0\0\0\0\0", 0).is_ok());
    assert!(unchecked.verify(b"\0\0\0\0", 0).is_err());
    assert_eq!(unchecked.verify(b"block\x03\0\0\0\0", 0).unwrap_err().kind, DecodeErrorKind::Unsupported);
}

/// Goal: a block that was packed by Zstandard before its format was final, as its trailer calls it, is one that is read.
#[test]
fn a_block_of_not_final_zstandard_is_read() {
    let (raw, mut packed, mut unpacked) = ([7; 1000], Vec::new(), Vec::new());
    compress(Compression::Zstd, &raw, &mut packed).unwrap();
    for kind in [ChecksumKind::Crc32c, ChecksumKind::Xxh3] {
        let checksum = BlockChecksum { kind, base_context: 0 };
        let trailer = [&[0x40], &checksum.of(&packed, 0x40, 0).to_le_bytes()[..]].concat();
        let stored = [packed.as_slice(), &trailer].concat();
        let (block, compression) = checksum.verify(&stored, 0).unwrap();
        decompress(compression, block, &mut unpacked, raw.len()).unwrap();
        assert_eq!(unpacked, raw);
    }
}

#[test]
fn a_handle_stays_before_its_limit() {
    let handle = BlockHandle { offset: 100, bytes: 20 };
    assert_eq!(handle.stored_bytes(125), Ok(25));
    assert!(handle.stored_bytes(124).is_err());
    assert!(BlockHandle { offset: u64::MAX, bytes: 1 }.stored_bytes(u64::MAX).is_err());
    assert!(BlockHandle::decode(&[0x80]).is_err());
    assert!(BlockHandle::decode(&[1]).is_err());
}

#[test]
fn a_metaindex_reads_back_by_name() {
    let mut meta = MetaIndex::default();
    meta.insert(PROPERTIES, BlockHandle { offset: 9, bytes: 1 });
    meta.insert(FILTER, BlockHandle { offset: 1, bytes: 2 });
    meta.insert(PROPERTIES, BlockHandle { offset: 10, bytes: 3 });
    let decoded = MetaIndex::decode(&meta.encode()).unwrap();
    assert_eq!(decoded, meta);
    assert_eq!(decoded.get(PROPERTIES), Some(BlockHandle { offset: 10, bytes: 3 }));
    assert_eq!(decoded.get(RANGE_DELETIONS), None);
    assert_eq!(decoded.entries().count(), 2);
}

/// RocksDB 7.8 wrote this table, and its manifest has this id of it.
#[test]
fn a_table_has_the_id_that_rocksdb_gives_it() {
    let table = TableProperties {
        db_id: "06e5bfb2-9ef5-430b-8216-01c1b96d8cd3".into(),
        session_id: "O41FOESTTKUN3V2C6NPQ".into(),
        original_file_number: 9,
        ..TableProperties::default()
    };
    assert_eq!(table.unique_id(), Some((8_504_950_585_596_461_454, 16_281_321_786_223_160_988)));
    let nameless =
        ["", "O", "41FOESTTKUN3", "O41FOESTTKUN3V2C6N-Q", "O41FOESTTKUN3V2C6NPQ12345", "O41FOESTTKUN\u{fc}3V2C6NP"];
    for session in nameless {
        assert_eq!(TableProperties { session_id: session.into(), ..table.clone() }.unique_id(), None, "{session}");
    }
    assert_eq!(TableProperties { original_file_number: 0, ..table.clone() }.unique_id(), None);
    assert_eq!(TableProperties { db_id: String::new(), ..table }.unique_id(), None);
}

#[test]
fn properties_read_back_and_unknown_ones_are_kept() {
    let mut properties = TableProperties {
        data_bytes: 1 << 40,
        entry_count: 300,
        comparator: Order::BYTEWISE.name().to_owned(),
        index_key_is_user_key: 1,
        ..TableProperties::default()
    };
    properties.set_index_type(IndexType::TwoLevel);
    properties.other.insert("esker.blob_refs".to_owned(), vec![1, 2, 3]);
    properties.other.insert("rocksdb.newest.key.time".to_owned(), vec![5]);
    let decoded = TableProperties::decode(&properties.encode()).unwrap();
    assert_eq!(decoded, properties);
    assert_eq!(decoded.index_type(), Ok(IndexType::TwoLevel));
    assert_eq!(decoded.number("rocksdb.newest.key.time"), Some(5));
    assert!(decoded.has_whole_key_filter());
    assert_eq!(decoded.filtered_prefixes(), None);
    properties.prefix_extractor = PrefixExtractor::Fixed(4).to_string();
    assert_eq!(properties.filtered_prefixes(), None, "an extractor alone is no filter of prefixes");
    properties.set_index_type(IndexType::BinarySearch);
    let with_prefixes = TableProperties::decode(&properties.encode()).unwrap();
    assert_eq!(with_prefixes.filtered_prefixes(), Some(PrefixExtractor::Fixed(4)));
    assert!(!decoded.timestamps_were_cut());
    assert_eq!(decoded.external_version(), None);
}

/// Goal: a block in which each name is the one before and a byte takes no memory for all of them in full.
#[test]
fn names_that_take_far_more_than_their_block_are_refused() {
    let mut block = BlockBuilder::new(usize::MAX);
    let mut name = vec![b'n'; 128 << 10];
    let mut handle = Vec::new();
    BlockHandle { offset: 1, bytes: 2 }.encode(&mut handle);
    let meta = |block: &mut BlockBuilder| {
        let raw = block.clone().finish().to_vec();
        (
            MetaIndex::decode(&raw).map(|index| index.entries().count()),
            TableProperties::decode(&raw).map(|found| found.other.len()),
        )
    };
    for _ in 0..10 {
        block.add(&name, &handle);
        name.push(b'n');
    }
    assert_eq!(meta(&mut block), (Ok(10), Ok(10)), "long names that share much are no harm");
    for _ in 10..100 {
        block.add(&name, &handle);
        name.push(b'n');
    }
    let (index, properties) = meta(&mut block);
    let (index, properties) = (index.unwrap_err(), properties.unwrap_err());
    assert_eq!((index.field, index.kind), ("name", DecodeErrorKind::Corrupt));
    assert_eq!(index, properties);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_read_without_a_panic(raw in prop::collection::vec(any::<u8>(), 0..200), file_bytes in any::<u64>()) {
        let mut tail = raw.clone();
        let _ = Footer::decode(&tail, file_bytes);
        tail.extend([5, 0, 0, 0]);
        tail.extend(0x88e2_41b7_85f4_cff7u64.to_le_bytes());
        let _ = Footer::decode(&tail, file_bytes);
        let _ = MetaIndex::decode(&raw);
        let _ = TableProperties::decode(&raw);
    }

    #[test]
    fn a_footer_that_reads_points_into_its_file(handles in prop::collection::vec(any::<u8>(), 40), file_bytes in 53u64..1 << 40) {
        let mut raw = vec![4];
        raw.extend(handles);
        raw.extend([5, 0, 0, 0]);
        raw.extend(0x88e2_41b7_85f4_cff7u64.to_le_bytes());
        if let Ok(footer) = Footer::decode(&raw, file_bytes) {
            prop_assert!(footer.meta_index.end().unwrap() <= file_bytes);
            prop_assert!(footer.index.unwrap().end().unwrap() <= file_bytes);
        }
    }
}

#[test]
fn an_external_file_says_so_with_a_version_and_a_sequence_number() {
    let mut properties = TableProperties::default();
    assert_eq!(properties.has_external_sequence(), Ok(false));
    properties.set_external();
    // As RocksDB 7.8 writes them.
    assert_eq!(properties.other["rocksdb.external_sst_file.version"], [2, 0, 0, 0]);
    assert_eq!(properties.other["rocksdb.external_sst_file.global_seqno"], [0; 8]);
    let block = properties.encode();
    let decoded = TableProperties::decode(&block).unwrap();
    assert_eq!((decoded.has_external_sequence(), decoded.external_sequence()), (Ok(true), 0));
    let range = TableProperties::external_sequence_range(&block).unwrap();
    assert_eq!(block[range.clone()], [0; 8]);
    let mut written_over = block;
    written_over[range].copy_from_slice(&0x0102_0304_u64.to_le_bytes());
    assert_eq!(TableProperties::decode(&written_over).unwrap().external_sequence(), 0x0102_0304);
}

#[test]
fn an_external_file_that_is_neither_version_is_refused() {
    let of = |version: Option<u32>, sequence: Option<&[u8]>| {
        let mut properties = TableProperties::default();
        if let Some(version) = version {
            let raw = version.to_le_bytes().to_vec();
            properties.other.insert("rocksdb.external_sst_file.version".into(), raw);
        }
        if let Some(raw) = sequence {
            properties.other.insert("rocksdb.external_sst_file.global_seqno".into(), raw.to_vec());
        }
        properties.has_external_sequence().map_err(|error| error.kind)
    };
    assert_eq!(of(Some(1), None), Ok(false));
    assert_eq!(of(Some(2), None), Ok(true));
    assert_eq!(of(Some(3), Some(&[0; 8])), Err(DecodeErrorKind::Unsupported));
    for corrupt in [of(None, Some(&[0; 8])), of(Some(1), Some(&[0; 8])), of(Some(2), Some(&[0; 7]))] {
        assert_eq!(corrupt, Err(DecodeErrorKind::Corrupt));
    }
}
