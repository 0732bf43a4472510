use proptest::prelude::*;

use super::*;
use crate::rocksdb::internal_key::{SequenceNumber, ValueKind, append, lookup};

const ORDER: Order = Order::BYTEWISE;

fn key(user_key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, user_key, SequenceNumber::new(sequence), kind);
    out
}

#[test]
fn an_order_is_known_by_its_name() {
    let reversed = Order::new(&ReverseBytewiseComparator);
    assert_eq!(Order::new(&BytewiseComparator), Order::BYTEWISE);
    assert!(Order::new(&BytewiseComparator).is_bytewise() && !reversed.is_bytewise());
    assert_eq!(
        (Order::BYTEWISE.name(), reversed.name()),
        ("leveldb.BytewiseComparator", "rocksdb.ReverseBytewiseComparator")
    );
    assert_ne!(reversed, Order::BYTEWISE);
    // The newest of a key comes first in every order.
    let (new, old, next) =
        (key(b"b", 2, ValueKind::Value), key(b"b", 1, ValueKind::Value), key(b"a", 9, ValueKind::Value));
    assert!(reversed.compare_internal(&new, &old).is_lt() && reversed.compare_internal(&old, &next).is_lt());
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
    assert_eq!(
        ORDER.shortest_separator(&start, &key(b"abc3", 9, ValueKind::Value)),
        lookup(b"abc2", SequenceNumber::MAX)
    );
    assert_eq!(ORDER.shortest_separator(&start, &key(b"abc1xxxx", 4, ValueKind::Value)), start);
    assert_eq!(ORDER.shortest_successor(&start), lookup(b"b", SequenceNumber::MAX));
}

proptest! {
    #[test]
    fn a_separator_separates(
        a in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..6), a_sequence in 0u64..3,
        b in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..6), b_sequence in 0u64..3,
    ) {
        let a = key(&a, a_sequence, ValueKind::Value);
        let b = key(&b, b_sequence, ValueKind::Value);
        if ORDER.compare_internal(&a, &b).is_lt() {
            let separator = ORDER.shortest_separator(&a, &b);
            prop_assert!(ORDER.compare_internal(&a, &separator).is_le());
            prop_assert!(ORDER.compare_internal(&separator, &b).is_lt());
            prop_assert!(separator.len() <= a.len());
        }
        prop_assert!(ORDER.compare_internal(&a, &ORDER.shortest_successor(&a)).is_le());
    }

    #[test]
    fn an_order_contradicts_itself_nowhere(
        a in proptest::collection::vec(any::<u8>(), 0..20), b in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        for order in [Order::BYTEWISE, Order::new(&ReverseBytewiseComparator)] {
            prop_assert_eq!(order.compare_internal(&a, &b), order.compare_internal(&b, &a).reverse());
            prop_assert_eq!(order.compare(&a, &b).is_eq(), a == b);
            prop_assert!(order.head(&a) == order.head(&b) || order.head(&a).cmp(&order.head(&b)) == order.compare(&a, &b));
            prop_assert_eq!([order.earlier(&a, &b), order.later(&a, &b)], if order.is_before(&b, &a) { [&b[..], &a] } else { [&a[..], &b] });
            if order.compare_internal(&a, &b).is_lt() {
                let separator = order.shortest_separator(&a, &b);
                prop_assert!(order.compare_internal(&a, &separator).is_le() && order.compare_internal(&separator, &b).is_lt());
            }
            prop_assert!(order.compare_internal(&a, &order.shortest_successor(&a)).is_le());
        }
    }
}
