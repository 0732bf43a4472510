use super::*;
use proptest::prelude::*;

/// What one batch of raft-engine 0.4.2 holds: entries 300 and 301 of group 7 (10 bytes each), a put, a compaction of
/// group 9, a delete and a clean.
const GOLDEN: &[u8] = b"\x05\x07\x01\x02\xac\x02\x0a\x14\x07\x03\x01\x05state\x01S\x09\x02\x02\x80\x01\x07\x03\x02\x04gone\xe8\x07\x02\x01";

#[test]
fn golden_bytes() {
    let mut out = vec![5];
    put_entries(&mut out, 7, 300, [10, 20].into_iter());
    put_put(&mut out, 7, b"state", b"S");
    put_compact(&mut out, 9, 128);
    put_delete(&mut out, 7, b"gone");
    put_clean(&mut out, 1000);
    assert_eq!(out, GOLDEN);
}

#[test]
fn what_the_original_wrote_is_read() {
    let mut items = Items::new(GOLDEN).unwrap();
    let first = items.read().unwrap().unwrap();
    let Action::Entries(entries) = first.action else { panic!("{first:?}") };
    assert_eq!((first.group, entries.first_index, entries.count, entries.next_index()), (7, 300, 2, 302));
    assert_eq!(entries.ranges().collect::<Vec<_>>(), [0..10, 10..20]);
    let rest: Vec<_> = std::iter::from_fn(|| items.read().unwrap()).collect();
    assert_eq!(
        rest,
        [
            Item { group: 7, action: Action::Put { key: b"state", value: b"S" } },
            Item { group: 9, action: Action::Compact { index: 128 } },
            Item { group: 7, action: Action::Delete { key: b"gone" } },
            Item { group: 1000, action: Action::Clean },
        ]
    );
    assert_eq!((items.left(), items.entries_end()), (0, 20));
}

#[test]
fn reading_goes_on_from_any_place() {
    let mut items = Items::new(GOLDEN).unwrap();
    loop {
        let place = items.place();
        let item = items.read().unwrap();
        assert_eq!(Items::at(GOLDEN, place).read().unwrap(), item);
        if item.is_none() {
            break;
        }
    }
}

#[test]
fn atomic_markers_are_those_of_the_original() {
    let mut out = Vec::new();
    put_atomic_marker(&mut out, 0, AtomicStatus::End);
    assert_eq!(out, b"\x00\x03\x01\x03__\x01\x01\x02");
    let item = Items::of_body(&out, 1).read().unwrap().unwrap();
    assert_eq!(item.atomic_marker(), Some((0, AtomicStatus::End)));
    let other = Item { group: 0, action: Action::Put { key: ATOMIC_GROUP_KEY, value: b"\x03" } };
    assert_eq!((other.atomic_marker(), other.is_internal(), item.is_internal()), (None, true, true));
    let others = Item { group: 0, action: Action::Put { key: b"__\x02", value: b"\x02" } };
    assert!(!others.is_internal());
}

#[test]
fn items_that_nobody_writes_are_refused() {
    for (raw, field) in [
        (&b""[..], "item count"),
        (b"\x01", "group"),
        (b"\x01\x07\x04", "item kind"),
        (b"\x01\x07\x02\x03", "command"),
        (b"\x01\x07\x03\x00\x00", "key operation"),
        (b"\x01\x07\x03\x01\x05key", "key"),
        (b"\x01\x07\x01\x02\x01\x0a\x09", "entry end"),
        (b"\x01\x07\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x05\x01", "entry count"),
    ] {
        let error = Items::new(raw).and_then(|mut items| items.read()).unwrap_err();
        assert_eq!(error.field, field, "{raw:?}");
    }
}

proptest! {
    #[test]
    fn decoding_is_total(raw in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(mut items) = Items::new(&raw) {
            while let Ok(Some(item)) = items.read() {
                if let Action::Entries(entries) = &item.action {
                    prop_assert_eq!(entries.ranges().count() as u64, entries.count);
                }
                item.atomic_marker();
            }
        }
    }

    #[test]
    fn items_read_back(
        group: u64,
        first in 0..u64::MAX / 2,
        lengths in proptest::collection::vec(0u32..5000, 0..20),
        key in proptest::collection::vec(any::<u8>(), 0..30),
        value in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let ends: Vec<u32> = lengths.iter().scan(0, |end, len| { *end += len; Some(*end) }).collect();
        let mut out = Vec::new();
        put_entries(&mut out, group, first, ends.iter().copied());
        put_put(&mut out, group, &key, &value);
        let mut items = Items::of_body(&out, 2);
        let item = items.read().unwrap().unwrap();
        let Action::Entries(entries) = item.action else { panic!("entries") };
        prop_assert_eq!(entries.ranges().map(|range| range.end - range.start).collect::<Vec<_>>(), lengths);
        let put = Item { group, action: Action::Put { key: &key, value: &value } };
        prop_assert_eq!(items.read().unwrap().unwrap(), put);
        prop_assert!(items.read().unwrap().is_none());
    }
}
