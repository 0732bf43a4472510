use proptest::prelude::*;

use super::*;

const SALT: u32 = 0x1234_5678;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record {
        version: 7,
        is_tombstone: false,
        is_continued: false,
        expires_at: None,
        compression: Compression::None,
        key,
        value,
    }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut raw = Vec::new();
    record.encode(SALT, &mut raw).unwrap();
    raw
}

/// What [`Record::plain_of`] should make of `raw`.
fn plain<'a>(raw: &'a [u8], key: &[u8]) -> Option<Record<'a>> {
    let record = Record::decode(raw).ok()?;
    let is_plain = !record.is_tombstone && record.expires_at.is_none() && record.compression == Compression::None;
    (is_plain && record.key == key && record.bytes() == raw.len() as u64).then_some(record)
}

/// These bytes are a promise to files already on disk.
#[test]
fn golden_bytes() {
    let plain = encoded(&put(b"key", b"value"));
    assert_eq!(plain, b"\x75\x02\x30\x63\x03\0\x80\0\x05\0\0\0\x07\0\0\0\0\0\0\0keyvalue", "{plain:02x?}");
    let expiring = encoded(&Record { expires_at: Some(258), is_continued: true, ..put(b"k", b"") });
    assert_eq!(
        expiring, b"\x87\x46\x4a\x79\x01\0\x86\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0k",
        "{expiring:02x?}"
    );
    let tombstone = encoded(&Record { is_tombstone: true, ..put(b"k", b"") });
    assert_eq!(tombstone, b"\x27\x96\xc8\x29\x01\0\x81\0\0\0\0\0\x07\0\0\0\0\0\0\0k", "{tombstone:02x?}");
    for raw in [plain, expiring, tombstone] {
        assert!(checksum_holds(&raw, SALT));
        assert_eq!(encoded(&Record::decode(&raw).unwrap()), raw);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let raw = encoded(&Record { expires_at: Some(1 << 40), compression: Compression::Lz4, ..put(b"key", b"value") });
    for bit in 0..raw.len() * 8 {
        let mut damaged = raw.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!checksum_holds(&damaged, SALT), "bit {bit}");
    }
    assert!(!checksum_holds(&raw, SALT + 1), "of another file");
}

#[test]
fn zeroes_are_no_record_and_no_record_begins_with_zeroes() {
    assert!(Record::decode(&[0; 64]).is_err());
    assert_eq!(peek_bytes(&[0; 64]), None);
    let least = encoded(&put(b"", b""));
    assert_ne!(least[4..8], [0; 4]);
}

#[test]
fn what_is_too_long_is_refused() {
    let key = vec![0; KEY_BYTES_MAX + 1];
    assert_eq!(put(&key, b"").head(SALT).unwrap_err().field, "key");
    assert!(put(&key[1..], b"").head(SALT).is_ok());
}

/// Goal: no version is so high that those that follow begin anew.
#[test]
fn versions_end_long_before_their_field_does() {
    for (version, is_one) in [(0, false), (1, true), (VERSION_MAX, true), (VERSION_MAX + 1, false), (u64::MAX, false)] {
        let raw = encoded(&Record { version, ..put(b"key", b"value") });
        assert_eq!(Record::decode(&raw).is_ok(), is_one, "{version}");
        assert_eq!(Record::plain_of(&raw, b"key").is_some(), is_one, "{version}");
    }
}

proptest! {
    #[test]
    fn records_read_back(
        version in 1..=VERSION_MAX,
        is_tombstone: bool,
        is_continued: bool,
        expires_at: Option<u64>,
        key in proptest::collection::vec(any::<u8>(), 0..300),
        value in proptest::collection::vec(any::<u8>(), 0..300),
        behind in proptest::collection::vec(any::<u8>(), 0..10),
    ) {
        let value: &[u8] = if is_tombstone { &[] } else { &value };
        let expires_at = expires_at.filter(|_| !is_tombstone);
        let record =
            Record { version, is_tombstone, is_continued, expires_at, compression: Compression::Zstd, key: &key, value };
        let mut raw = encoded(&record);
        prop_assert_eq!(raw.len() as u64, record.bytes());
        prop_assert_eq!(peek_bytes(&raw), Some(record.bytes()));
        for len in 0..raw.len() {
            prop_assert!(Record::decode(&raw[..len]).is_err());
        }
        raw.extend_from_slice(&behind);
        prop_assert_eq!(Record::decode(&raw).unwrap(), record);
    }

    #[test]
    fn any_bytes_give_a_record_or_an_error(mut raw in proptest::collection::vec(any::<u8>(), 0..200), flags: u8) {
        if raw.len() > 6 {
            raw[6] = flags | RECORD;
        }
        if let Ok(record) = Record::decode(&raw) {
            prop_assert!(record.bytes() <= raw.len() as u64);
            prop_assert_eq!(peek_bytes(&raw), Some(record.bytes()));
        }
    }

    /// Every key and value length around those that are compared or copied in another way, every flag, and every place of a difference.
    #[test]
    fn plain_records_are_told_from_all_others(
        key in proptest::collection::vec(any::<u8>(), 0..70),
        value in proptest::collection::vec(any::<u8>(), 0..40),
        is_continued: bool,
        at: prop::sample::Index,
        by: u8,
        cut in 0usize..3,
    ) {
        let whole = encoded(&Record { is_continued, ..put(&key, &value) });
        prop_assert_eq!(Record::plain_of(&whole, &key), Some(Record { is_continued, ..put(&key, &value) }));
        let mut raw = whole.clone();
        raw[at.index(whole.len())] ^= by;
        prop_assert_eq!(Record::plain_of(&raw, &key), plain(&raw, &key));
        let raw = &whole[..whole.len() - cut];
        prop_assert_eq!(Record::plain_of(raw, &key), plain(raw, &key));
        if !key.is_empty() {
            let mut other = key.clone();
            other[at.index(key.len())] ^= by | 1;
            prop_assert_eq!(Record::plain_of(&whole, &other), None);
            prop_assert_eq!(Record::plain_of(&whole, &key[1..]), plain(&whole, &key[1..]));
        }
        let packed = encoded(&Record { compression: Compression::Lz4, ..put(&key, &value) });
        prop_assert_eq!(Record::plain_of(&packed, &key), None);
        let expiring = encoded(&Record { expires_at: Some(1), ..put(&key, &value) });
        prop_assert_eq!(Record::plain_of(&expiring, &key), None);
        let tombstone = encoded(&Record { is_tombstone: true, ..put(&key, b"") });
        prop_assert_eq!(Record::plain_of(&tombstone, &key), None);
    }
}
