use proptest::prelude::*;

use super::*;

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
            assert_eq!(compare(a, b), i.cmp(&j), "{i} {j}");
        }
    }
}

#[test]
fn separators_are_those_of_rocksdb() {
    // (start, limit, separator)
    for (start, limit, expected) in [
        (&b"abc1xxxx"[..], &b"abc3"[..], &b"abc2"[..]),
        (b"abc1xxxx", b"abc2", b"abc1y"),
        (b"abc1xxxx", b"abc2y", b"abc2"),
        (b"abc1\xff\xff\x05zz", b"abc2", b"abc1\xff\xff\x06"),
        (b"abc1\xff\xff", b"abc2", b"abc1\xff\xff"),
        (b"abc", b"abcd", b"abc"),
        (b"abcd", b"abc", b"abcd"),
        (b"b", b"a", b"b"),
        (b"", b"a", b""),
    ] {
        assert_eq!(shortest_user_separator(start, limit), expected, "{start:?} {limit:?}");
    }
    assert_eq!(short_user_successor(b"\xff\xffab"), b"\xff\xffb");
    assert_eq!(short_user_successor(b"\xff\xff"), b"\xff\xff");
    let start = key(b"abc1xxxx", 5, ValueKind::Value);
    assert_eq!(shortest_separator(&start, &key(b"abc3", 9, ValueKind::Value)), lookup(b"abc2", SequenceNumber::MAX));
    assert_eq!(shortest_separator(&start, &key(b"abc1xxxx", 4, ValueKind::Value)), start);
    assert_eq!(shortest_successor(&start), lookup(b"b", SequenceNumber::MAX));
}

proptest! {
    #[test]
    fn a_separator_separates(
        a in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..6), a_sequence in 0u64..3,
        b in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..6), b_sequence in 0u64..3,
    ) {
        let a = key(&a, a_sequence, ValueKind::Value);
        let b = key(&b, b_sequence, ValueKind::Value);
        if compare(&a, &b).is_lt() {
            let separator = shortest_separator(&a, &b);
            prop_assert!(compare(&a, &separator).is_le());
            prop_assert!(compare(&separator, &b).is_lt());
            prop_assert!(separator.len() <= a.len());
        }
        prop_assert!(compare(&a, &shortest_successor(&a)).is_le());
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(
        a in proptest::collection::vec(any::<u8>(), 0..20), b in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let _ = InternalKey::decode(&a);
        prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        let _ = shortest_separator(&a, &b);
        let _ = shortest_successor(&a);
    }
}
