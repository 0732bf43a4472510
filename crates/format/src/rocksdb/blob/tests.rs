use proptest::prelude::*;

use super::*;

// Written by RocksDB's db_bench 7.8.3: the first of three records of blob file 10.
const HEADER: &[u8] = b"\x37\x8f\x24\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const RECORD: &[u8] = b"\x10\0\0\0\0\0\0\0\x28\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xcb\x34\x1c\xd0\x4e\x34\x6d\x6a";
const KEY: &[u8] = b"\0\0\0\0\0\0\0\x0000000000";
const VALUE: &[u8] = br#"^{Vhz"!/%wMZ;'a F/REZJ4Tw@%NXxy2?.ArVCZ2"#;
const FOOTER: &[u8] = b"\x37\x8f\x24\x00\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x9c\x50\xa0\x44";
const INDEX: &[u8] = b"\x01\x0a\x4e\x28\x00";

#[test]
fn golden_bytes() {
    let header = BlobFileHeader { column_family_id: 0, compression: Compression::None };
    assert_eq!(header.encode(), HEADER);
    assert_eq!(BlobFileHeader::decode(HEADER).unwrap(), header);

    let record = BlobRecordHeader::of(KEY, VALUE);
    assert_eq!(record.encode(), RECORD);
    assert_eq!(BlobRecordHeader::decode(RECORD).unwrap(), record);
    record.check(KEY, VALUE).unwrap();

    let footer = BlobFooter { blob_count: 3 };
    assert_eq!(footer.encode(), FOOTER);
    assert_eq!(BlobFooter::decode(FOOTER).unwrap(), footer);

    let index = BlobIndex { file: FileNumber::new(10), offset: 78, bytes: 40, compression: Compression::None };
    let mut encoded = Vec::new();
    index.encode(&mut encoded);
    assert_eq!(encoded, INDEX);
    assert_eq!(BlobIndex::decode(INDEX).unwrap(), index);
    assert_eq!(index.record_offset(KEY.len()), Some(30));
    // As RocksDB's manifest counts it: the whole file of three has 326 bytes.
    assert_eq!(3 * accounted_bytes(&index, KEY.len()) + 62, 326);
}

/// Each row of a layout: field, offset, bytes.
type Row = (&'static str, usize, usize);

fn rows_tile(rows: &[Row], total: usize) {
    let mut at = 0;
    for &(field, offset, bytes) in rows {
        assert_eq!(offset, at, "{field}");
        at += bytes;
    }
    assert_eq!(at, total);
}

/// Overwrites each row and says which field the decoder names then; `None` if it takes the bytes.
fn noticed(
    rows: &[Row],
    raw: &[u8],
    decode: impl Fn(&[u8]) -> Result<(), DecodeError>,
) -> Vec<(&'static str, Option<&'static str>)> {
    rows_tile(rows, raw.len());
    let each = |&(field, offset, bytes): &Row| {
        let mut damaged = raw.to_vec();
        damaged[offset..offset + bytes].iter_mut().for_each(|byte| *byte ^= 0xc0);
        (field, decode(&damaged).err().map(|error| error.field))
    };
    rows.iter().map(each).collect()
}

#[test]
fn the_table_of_the_header_is_true() {
    let rows = [
        ("magic", 0, 4),
        ("version", 4, 4),
        ("column family", 8, 4),
        ("flags", 12, 1),
        ("compression", 13, 1),
        ("expiration range", 14, 16),
    ];
    for (field, named) in noticed(&rows, HEADER, |raw| BlobFileHeader::decode(raw).map(drop)) {
        // A column family is a number like any other: only the opener knows which it should be.
        assert_eq!(named, (field != "column family").then_some(field));
    }
}

#[test]
fn the_table_of_the_record_is_true() {
    let rows = [
        ("key length", 0, 8),
        ("value length", 8, 8),
        ("expiration", 16, 8),
        ("header CRC", 24, 4),
        ("blob CRC", 28, 4),
    ];
    let decode = |raw: &[u8]| BlobRecordHeader::decode(raw)?.check(KEY, VALUE);
    for (field, named) in noticed(&rows, RECORD, decode) {
        assert_eq!(named, Some(if field == "blob CRC" { field } else { "header CRC" }));
    }
}

#[test]
fn the_table_of_the_footer_is_true() {
    let rows = [("magic", 0, 4), ("blob count", 4, 8), ("expiration range", 12, 16), ("footer CRC", 28, 4)];
    for (field, named) in noticed(&rows, FOOTER, |raw| BlobFooter::decode(raw).map(drop)) {
        assert_eq!(named, Some(if field == "blob count" { "footer CRC" } else { field }));
    }
}

#[test]
fn a_record_is_its_key_and_value() {
    let record = BlobRecordHeader::of(KEY, VALUE);
    assert_eq!(record.record_bytes(), Some(88));
    assert!(record.check(&KEY[1..], VALUE).is_err());
    assert!(record.check(KEY, &VALUE[1..]).is_err());
    for at in 0..VALUE.len() {
        let mut other = VALUE.to_vec();
        other[at] ^= 1;
        assert_eq!(record.check(KEY, &other).unwrap_err().field, "blob CRC");
    }
    let endless = BlobRecordHeader { key_bytes: u64::MAX, value_bytes: 1, blob_crc: 0 };
    assert_eq!(BlobRecordHeader::decode(&endless.encode()).unwrap().record_bytes(), None);
    assert_eq!(record_bytes(u64::MAX, 1), u64::MAX);
}

fn record_that_expires() -> [u8; RECORD_HEADER_BYTES] {
    let lengths: [u8; 24] = tiled(&[&RECORD[..16], &7u64.to_le_bytes()]);
    tiled(&[&lengths, &mask(crc32c(&lengths)).to_le_bytes(), &RECORD[28..]])
}

#[test]
fn what_expires_is_unsupported() {
    let mut header = HEADER.to_vec();
    header[12] = 1;
    let unsupported = |error: DecodeError| error.kind == crate::DecodeErrorKind::Unsupported;
    assert!(unsupported(BlobFileHeader::decode(&header).unwrap_err()));
    assert!(unsupported(BlobRecordHeader::decode(&record_that_expires()).unwrap_err()));
    for index in [&b"\x00\x07value"[..], b"\x02\x07\x0a\x4e\x28\x00", b"\x01\x00\x4e\x28\x00", b"\x01\x0a\x4e\x28\x03"]
    {
        assert!(unsupported(BlobIndex::decode(index).unwrap_err()), "{index:?}");
    }
}

/// Goal: a rotten byte makes no newer version of a file whose records, or whose footer, follow as in this one. What packs the values it does not tell.
#[test]
fn a_rotten_version_or_flag_is_damage_where_what_follows_is_known() {
    let is_corrupt = |error: DecodeError| error.kind == crate::DecodeErrorKind::Corrupt;
    let empty = BlobFooter { blob_count: 0 }.encode();
    for next in [RECORD, &empty] {
        let whole = [HEADER, next].concat();
        assert_eq!(BlobFileHeader::decode_with_next(&whole), BlobFileHeader::decode(HEADER));
        for (at, flipped) in (0..HEADER_BYTES).flat_map(|at| (1..=255).map(move |flipped| (at, flipped))) {
            let mut rotten = whole.clone();
            rotten[at] ^= flipped;
            match BlobFileHeader::decode_with_next(&rotten) {
                // Whose values they are, whoever opens the file knows.
                Ok(_) => assert!((8..12).contains(&at) || at == 13, "byte {at}, {flipped:#x}"),
                Err(error) => assert_eq!(is_corrupt(error), at != 13, "byte {at}, {flipped:#x}"),
            }
        }
    }
}

/// Goal: what may be whole and newer is not called damage.
#[test]
fn a_header_that_may_be_another_versions_is_unsupported() {
    let expires = record_that_expires();
    let three = BlobFooter { blob_count: 3 }.encode();
    let newer: [(u8, u8, &[u8]); 5] =
        [(2, 0, b"of another layout"), (2, 2, RECORD), (2, 0, &three), (1, 1, &expires), (2, 0, b"")];
    for (version, flags, next) in newer {
        let mut raw = [HEADER, next].concat();
        (raw[4], raw[12]) = (version, flags);
        let error = BlobFileHeader::decode_with_next(&raw).unwrap_err();
        assert_eq!(error.kind, crate::DecodeErrorKind::Unsupported, "{error}");
    }
}

/// Goal: a pointer of Titan's, which ends where RocksDB's has the compression, is none that is damaged.
#[test]
fn a_pointer_of_titans_is_unsupported() {
    let error = BlobIndex::decode(b"\x01\x0a\x4e\x28").unwrap_err();
    assert!(error.kind == crate::DecodeErrorKind::Unsupported && error.reason.contains("Titan"), "{error}");
    for len in 0..4 {
        let error = BlobIndex::decode(&b"\x01\x0a\x4e\x28"[..len]).unwrap_err();
        assert_eq!(error.kind, crate::DecodeErrorKind::Corrupt, "{len}");
    }
}

#[test]
fn an_index_is_read_whole_or_not_at_all() {
    for len in 0..INDEX.len() {
        assert!(BlobIndex::decode(&INDEX[..len]).is_err());
    }
    assert!(BlobIndex::decode(b"\x01\x0a\x4e\x28\x00\x00").is_err());
    assert!(BlobIndex::decode(b"\x03\x0a\x4e\x28\x00").is_err());
    assert!(BlobIndex::decode(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x4e\x28\x00").is_err());
    let early = BlobIndex { file: FileNumber::new(1), offset: 61, bytes: 0, compression: Compression::None };
    assert_eq!(early.record_offset(0), None);
    assert_eq!(BlobIndex { offset: 62, ..early }.record_offset(0), Some(30));
    assert_eq!(early.record_offset(usize::MAX), None);
}

fn any_compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(vec![
        Compression::None,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Lz4hc,
        Compression::Zstd,
    ])
}

proptest! {
    #[test]
    fn an_index_reads_back(file in 1..=FILE_NUMBER_MAX, offset: u64, bytes: u64, compression in any_compression()) {
        let index = BlobIndex { file: FileNumber::new(file), offset, bytes, compression };
        let mut encoded = Vec::new();
        index.encode(&mut encoded);
        prop_assert!(encoded.len() <= BlobIndex::ENCODED_BYTES_MAX);
        prop_assert_eq!(BlobIndex::decode(&encoded).unwrap(), index);
    }

    #[test]
    fn a_header_and_a_footer_read_back(column_family_id: u32, compression in any_compression(), blob_count: u64) {
        let header = BlobFileHeader { column_family_id, compression };
        prop_assert_eq!(BlobFileHeader::decode(&header.encode()).unwrap(), header);
        let footer = BlobFooter { blob_count };
        prop_assert_eq!(BlobFooter::decode(&footer.encode()).unwrap(), footer);
    }

    #[test]
    fn decoders_are_total(raw in prop::collection::vec(any::<u8>(), 0..48)) {
        let _ = BlobFileHeader::decode(&raw);
        let _ = BlobFileHeader::decode_with_next(&raw);
        let _ = BlobRecordHeader::decode(&raw);
        let _ = BlobFooter::decode(&raw);
        let _ = BlobIndex::decode(&raw);
    }

    #[test]
    fn a_damaged_index_decodes_or_not(at in 0usize..5, bit in 0u8..8, user_key_bytes in 0usize..100) {
        let mut raw = INDEX.to_vec();
        raw[at] ^= 1 << bit;
        if let Ok(index) = BlobIndex::decode(&raw) {
            let _ = index.record_offset(user_key_bytes);
            let _ = accounted_bytes(&index, user_key_bytes);
        }
    }
}
