use proptest::prelude::*;

use super::*;
use crate::DecodeErrorKind;

/// `ldb put key value` on an empty store, without the log's framing.
const PUT: &[u8] = b"\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\x03key\x05value";

fn read(batch: &WriteBatch) -> Vec<(u32, ValueKind, &[u8], &[u8])> {
    batch.records().map(|record| record.unwrap()).map(|r| (r.cf, r.kind, r.key, r.value)).collect()
}

#[test]
fn golden_bytes() {
    let mut batch = WriteBatch::new();
    batch.put(0, b"key", b"value").unwrap();
    batch.set_sequence(SequenceNumber::new(1));
    assert_eq!(batch.bytes(), PUT);
    assert_eq!(header(PUT).unwrap(), Header { sequence: SequenceNumber::new(1), count: 1 });
}

#[test]
fn table_is_true() {
    let mut batch = WriteBatch::default();
    batch.put(300, b"k", b"v").unwrap();
    batch.delete(300, b"k").unwrap();
    batch.single_delete(1, b"").unwrap();
    batch.single_delete(0, b"s").unwrap();
    batch.delete(0, b"d").unwrap();
    batch.delete_range(0, b"a", b"b").unwrap();
    batch.delete_range(2, b"a", b"b").unwrap();
    batch.merge(0, b"m", b"+1").unwrap();
    batch.merge(2, b"m", b"").unwrap();
    batch.put_blob_index(0, b"b", b"i").unwrap();
    batch.put_blob_index(3, b"b", b"i").unwrap();
    batch.put_log_data(b"note").unwrap();
    assert_eq!(
        &batch.bytes()[HEADER_BYTES..],
        b"\x05\xac\x02\x01k\x01v\x04\xac\x02\x01k\x08\x01\x00\x07\x01s\x00\x01d\x0f\x01a\x01b\x0e\x02\x01a\x01b\
          \x02\x01m\x02+1\x06\x02\x01m\x00\x11\x01b\x01i\x10\x03\x01b\x01i\x03\x04note"
    );
    assert_eq!(batch.count(), 11);
    assert_eq!(
        read(&batch),
        [
            (300, ValueKind::Value, &b"k"[..], &b"v"[..]),
            (300, ValueKind::Deletion, b"k", b""),
            (1, ValueKind::SingleDeletion, b"", b""),
            (0, ValueKind::SingleDeletion, b"s", b""),
            (0, ValueKind::Deletion, b"d", b""),
            (0, ValueKind::RangeDeletion, b"a", b"b"),
            (2, ValueKind::RangeDeletion, b"a", b"b"),
            (0, ValueKind::Merge, b"m", b"+1"),
            (2, ValueKind::Merge, b"m", b""),
            (0, ValueKind::BlobIndex, b"b", b"i"),
            (3, ValueKind::BlobIndex, b"b", b"i"),
            (0, ValueKind::LogData, b"note", b""),
        ]
    );
    assert_eq!(WriteBatch::decode(batch.bytes().to_vec()).unwrap(), batch);
}

#[test]
fn the_markers_of_transactions_are_read() {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend_from_slice(b"\x0d\x09\x0a\x01x\x0b\x01x\x0c\x01x\x12\x13\x15\x02ts\x01x");
    let batch = WriteBatch::decode(bytes).unwrap();
    let kinds: Vec<_> = read(&batch).into_iter().map(|(_, kind, key, value)| (kind.as_u8(), key, value)).collect();
    let none = &b""[..];
    let expected = [
        (0xd, none, none),
        (0x9, none, none),
        (0xa, b"x", none),
        (0xb, b"x", none),
        (0xc, b"x", none),
        (0x12, none, none),
        (0x13, none, none),
        (0x15, b"x", b"ts"),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn clearing_and_appending_keep_the_header_true() {
    let mut a = WriteBatch::with_capacity(100);
    assert!(a.is_empty());
    a.put(0, b"a", b"1").unwrap();
    let mut b = WriteBatch::new();
    b.delete(7, b"b").unwrap();
    b.put(0, b"c", b"").unwrap();
    b.set_sequence(SequenceNumber::new(99));
    a.append(&b).unwrap();
    assert_eq!((a.count(), a.sequence().get(), a.records().count()), (3, 0, 3));
    a.clear();
    assert_eq!(a, WriteBatch::new());
}

#[test]
fn what_does_not_fit_leaves_the_batch_as_it_was() {
    let mut batch = WriteBatch::new();
    let error = batch.put(0, &vec![0; KEY_BYTES_MAX + 1], b"").unwrap_err();
    assert_eq!((error.field, error.bytes, error.limit_bytes), ("key", 8_388_609, 8_388_608));
    assert!(batch.delete_range(0, b"", &vec![0; KEY_BYTES_MAX + 1]).is_err());
    assert!(batch.is_empty() && batch.count() == 0);
    batch.set_count(u32::MAX - 1);
    batch.put(0, b"", b"").unwrap();
    assert!(batch.put(0, b"", b"").is_err());
    assert_eq!((batch.count(), batch.records().count()), (u32::MAX, 1));
    let full = batch.clone();
    assert!(batch.append(&full).is_err());
    assert_eq!(batch, full);
}

#[test]
fn what_no_writer_writes_is_refused() {
    assert!(WriteBatch::decode(vec![0; 11]).is_err());
    assert_eq!(records(&[0; 11]).map(|record| record.is_err()).collect::<Vec<_>>(), [true]);
    let mut wrong_count = PUT.to_vec();
    wrong_count[8] = 2;
    assert_eq!(WriteBatch::decode(wrong_count).unwrap_err().field, "count");
    let mut wide = PUT.to_vec();
    wide[7] = 1;
    assert_eq!(WriteBatch::decode(wide).unwrap_err().field, "sequence");
    for len in HEADER_BYTES..PUT.len() {
        assert!(WriteBatch::decode(PUT[..len].to_vec()).is_err(), "{len}");
    }
    let mut later = PUT.to_vec();
    later[12] = 0x1a;
    assert_eq!(WriteBatch::decode(later.clone()).unwrap_err().kind, DecodeErrorKind::Unsupported);
    later[12] = 0x81;
    assert_eq!(WriteBatch::decode(later).unwrap_err().kind, DecodeErrorKind::Corrupt);
}

#[test]
fn pointers_take_the_place_of_values() {
    let mut batch = WriteBatch::new();
    batch.put(0, b"large", &[7; 5000]).unwrap();
    batch.put_log_data(b"a note").unwrap();
    batch.put(3, b"small", b"x").unwrap();
    batch.delete(0, b"gone").unwrap();
    batch.put(3, b"last", &[8; 300]).unwrap();
    batch.set_sequence(SequenceNumber::new(77));
    let mut pointed = WriteBatch::new();
    pointed.put(9, b"left over", b"from before").unwrap();
    let pointers: [Option<&[u8]>; 5] = [Some(b"first index"), None, None, None, Some(b"second")];
    batch.point(&mut pointed, |place| pointers[place]).unwrap();
    let mut expected = WriteBatch::new();
    expected.put_blob_index(0, b"large", b"first index").unwrap();
    expected.put_log_data(b"a note").unwrap();
    expected.put(3, b"small", b"x").unwrap();
    expected.delete(0, b"gone").unwrap();
    expected.put_blob_index(3, b"last", b"second").unwrap();
    expected.set_sequence(SequenceNumber::new(77));
    assert_eq!(pointed, expected);
    batch.point(&mut pointed, |_| None).unwrap();
    assert_eq!(pointed, batch);
}

proptest! {
    #[test]
    fn what_is_put_is_read(
        puts in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..200), proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
        sequence in 0..=SEQUENCE_MAX,
    ) {
        let mut batch = WriteBatch::new();
        for (cf, key, value) in &puts {
            batch.put(*cf, key, value).unwrap();
        }
        batch.set_sequence(SequenceNumber::new(sequence));
        let batch = WriteBatch::decode(batch.bytes().to_vec()).unwrap();
        prop_assert_eq!(batch.sequence().get(), sequence);
        let expected: Vec<_> = puts.iter().map(|(cf, key, value)| (*cf, ValueKind::Value, &key[..], &value[..])).collect();
        prop_assert_eq!(read(&batch), expected);
    }

    #[test]
    fn any_bytes_give_a_batch_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), low in any::<bool>()) {
        if low {
            bytes.iter_mut().for_each(|byte| *byte %= 0x1b);
        }
        prop_assert!(records(&bytes).count() <= bytes.len());
        let _ = WriteBatch::decode(bytes);
    }

    #[test]
    fn a_damaged_batch_gives_a_batch_or_an_error(at in 0..PUT.len(), byte in any::<u8>()) {
        let mut bytes = PUT.to_vec();
        bytes[at] = byte;
        if let Ok(batch) = WriteBatch::decode(bytes.clone()) {
            prop_assert_eq!(batch.bytes(), bytes);
        }
    }
}
