use proptest::prelude::*;

use super::*;

const SALT: u32 = 0x1234_5678;

/// Offset, length, version, whether it is a tombstone, expiry, key.
type Row = (u64, u64, u64, bool, Option<u64>, Vec<u8>);

fn number() -> FileNumber {
    FileNumber::new(12).unwrap()
}

fn build(entries: &[Row]) -> Vec<u8> {
    let (mut out, mut builder) = (Vec::new(), Builder::new(SALT));
    for (offset, record_bytes, version, is_tombstone, expires_at, key) in entries {
        let (offset, record_bytes, version) = (*offset, *record_bytes, *version);
        let (is_tombstone, expires_at) = (*is_tombstone, *expires_at);
        builder.add(&Entry { offset, record_bytes, version, is_tombstone, expires_at, key }, &mut out);
    }
    builder.finish(number(), 999, &mut out);
    out
}

fn read(raw: &[u8]) -> Result<Vec<Row>, DecodeError> {
    let footer = Footer::decode(raw)?;
    assert_eq!((footer.number, footer.data_bytes, footer.salt), (number(), 999, SALT));
    let mut rest = &raw[..footer.block_bytes as usize];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (block, bytes) = Block::decode(rest, SALT)?;
        rest = &rest[bytes..];
        for entry in block.entries() {
            let Entry { offset, record_bytes, version, is_tombstone, expires_at, key } = entry?;
            found.push((offset, record_bytes, version, is_tombstone, expires_at, key.to_vec()));
        }
    }
    assert_eq!(footer.record_count, found.len() as u64);
    Ok(found)
}

fn golden() -> Vec<Row> {
    vec![
        (32, 28, 7, false, None, b"key".to_vec()),
        (60, 21, 9, true, None, b"k".to_vec()),
        (90, 300, 8, false, Some(5), Vec::new()),
    ]
}

/// These bytes are a promise to files already on disk.
#[test]
fn golden_bytes() {
    let raw = build(&golden());
    let block = b"\x2b\x80\x80\x18\x13\0\0\0\x20\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\
        \0\x1c\0\x03key\x01\x15\x04\x01k\x06\x09\xac\x02\x01\x05\0";
    let footer = b"eskrhint\x01\0\0\0\x0c\0\0\0\x78\x56\x34\x12\xe7\x03\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
        \x2b\0\0\0\0\0\0\0\x29\x1c\x00\x48";
    assert_eq!(raw, [&block[..], footer].concat(), "{raw:02x?}");
    assert_eq!(read(&raw).unwrap(), golden());
}

#[test]
fn an_iteration_goes_on_from_where_it_was() {
    let raw = build(&golden());
    let (block, _) = Block::decode(&raw, SALT).unwrap();
    let all: Vec<_> = block.entries().map(Result::unwrap).collect();
    for passed in 0..=all.len() {
        let mut entries = block.entries();
        entries.by_ref().take(passed).for_each(drop);
        let mark = entries.mark();
        let rest = &block.payload[block.payload.len() - mark.bytes_left..];
        let found: Vec<_> = Entries::from_mark(mark, rest).map(Result::unwrap).collect();
        assert_eq!(found, all[passed..], "after {passed}");
    }
}

#[test]
fn every_flipped_bit_and_missing_byte_is_noticed() {
    let raw = build(&golden());
    for bit in 0..raw.len() * 8 {
        let mut damaged = raw.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..raw.len() {
        assert!(read(&raw[..len]).is_err(), "{len} bytes");
    }
    assert!(Block::decode(&raw, SALT + 1).is_err(), "of another data file");
}

proptest! {
    #[test]
    fn entries_read_back(
        steps in proptest::collection::vec(
            (
                (0u64..3, 20u64..1 << 33, 1..=record::VERSION_MAX),
                any::<bool>(),
                any::<Option<u64>>(),
                proptest::collection::vec(any::<u8>(), 0..200),
            ),
            0..200,
        ),
    ) {
        let mut offset = record::FIRST_OFFSET;
        let entries: Vec<_> = steps
            .into_iter()
            .map(|((gap, bytes, version), is_tombstone, expires_at, key)| {
                let entry = (offset + gap, bytes, version, is_tombstone, expires_at, key);
                offset += gap + bytes;
                entry
            })
            .collect();
        prop_assert_eq!(read(&build(&entries)).unwrap(), entries);
    }

    #[test]
    fn versions_that_no_record_has_are_refused(version in prop_oneof![Just(0), record::VERSION_MAX + 1..]) {
        let entry = (record::FIRST_OFFSET, 20, version, false, None, b"key".to_vec());
        prop_assert!(read(&build(&[entry])).is_err());
    }

    #[test]
    fn any_payload_gives_entries_or_an_error(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let block = Block { first_offset: 32, first_version: 1, payload: &payload };
        prop_assert!(block.entries().count() <= payload.len());
    }
}
