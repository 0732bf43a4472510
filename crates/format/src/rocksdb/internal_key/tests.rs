use proptest::prelude::*;

use super::*;
use crate::rocksdb::order::Order;

fn key(user_key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, user_key, SequenceNumber::new(sequence), kind);
    out
}

#[test]
fn golden_bytes() {
    assert_eq!(key(b"key", 0x0001_0203_0405_0607, ValueKind::BlobIndex), b"key\x11\x07\x06\x05\x04\x03\x02\x01");
    assert_eq!(lookup(b"k", SequenceNumber::MAX), b"k\x18\xff\xff\xff\xff\xff\xff\xff");
}

#[test]
fn keys_come_apart_as_they_were_put_together() {
    let internal = key(b"key", 7, ValueKind::Value);
    let parsed = InternalKey::decode(&internal).unwrap();
    let expected = InternalKey { user_key: b"key", sequence: SequenceNumber::new(7), kind: ValueKind::Value };
    assert_eq!(parsed, expected);
    assert_eq!(user_key(&internal), b"key");
    assert_eq!(tag(&internal), pack(expected.sequence, expected.kind));
}

#[test]
fn short_keys_and_foreign_kinds_are_refused() {
    assert!(InternalKey::decode(b"1234567").is_err());
    assert_eq!(user_key(b"1234567"), b"");
    for byte in 0..=255u8 {
        let mut internal = b"key".to_vec();
        internal.extend_from_slice(&u64::from(byte).to_le_bytes());
        let decoded = InternalKey::decode(&internal);
        match ValueKind::from_u8(byte) {
            Some(kind) => {
                assert_eq!(kind.as_u8(), byte);
                assert_eq!(decoded.is_ok(), kind.is_in_tables());
                assert!(!kind.is_in_tables() || byte <= SEEK_KIND_TAG);
            }
            None => assert!(decoded.is_err()),
        }
    }
}

#[test]
fn numbers_stop_at_the_width_of_their_field() {
    assert_eq!(SequenceNumber::new(u64::MAX), SequenceNumber::MAX);
    assert_eq!(FileNumber::new(u64::MAX), FileNumber::MAX);
    assert_eq!(format!("{:>4} {:04}", SequenceNumber::new(7), FileNumber::new(12)), "   7 0012");
}

#[test]
fn the_newest_comes_first() {
    let ordered = [
        key(b"", 1, ValueKind::Value),
        lookup(b"a", SequenceNumber::new(9)),
        key(b"a", 9, ValueKind::BlobIndex),
        key(b"a", 9, ValueKind::Value),
        key(b"a", 9, ValueKind::Deletion),
        key(b"a", 8, ValueKind::BlobIndex),
        key(b"a\0", 99, ValueKind::Value),
        key(b"b", 1, ValueKind::Value),
    ];
    for (i, a) in ordered.iter().enumerate() {
        for (j, b) in ordered.iter().enumerate() {
            assert_eq!(Order::BYTEWISE.compare_internal(a, b), i.cmp(&j), "{i} {j}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_value_or_an_error(
        a in proptest::collection::vec(any::<u8>(), 0..20), b in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let _ = InternalKey::decode(&a);
        let _ = (user_key(&b), tag(&b), is_end_of_range(&a));
    }
}
