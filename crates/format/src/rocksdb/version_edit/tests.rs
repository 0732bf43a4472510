use proptest::prelude::*;

use super::*;
use crate::rocksdb::internal_key::{self, SEEK_KIND_TAG, ValueKind};
use crate::{DecodeError, DecodeErrorKind};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter(u8::is_ascii_hexdigit).map(|b| (b as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn key(user_key: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::new();
    internal_key::append(&mut out, user_key, SequenceNumber::new(sequence), kind);
    out
}

fn encoded(edit: &VersionEdit) -> Vec<u8> {
    let mut out = Vec::new();
    edit.encode(&mut out);
    out
}

const N: fn(u64) -> FileNumber = FileNumber::new;

/// Written by RocksDB 7.8.3: a flush that made a table and a blob file.
const FLUSH: &str = "
    0208 0900 030c 04c201
    67 00 09 c51c
    18 000000000000001e3030303030303030 11a6000000000000
    18 0000000000000ba83030303030303030 1141000000000000
    01 c201
    0505f08586d806 0605f08586d806 0700 0807556e6b6e6f776e 04010a 0c1075eaef8180e1a0e45fcbc54a35627327 01
    9003 0a ba01 b0a739 00 00 00";

fn flush() -> VersionEdit {
    let user_key = |number: u64| [number.to_be_bytes(), [b'0'; 8]].concat();
    let table = TableMeta {
        number: N(9),
        file_bytes: 3653,
        smallest: key(&user_key(0x1e), 166, ValueKind::BlobIndex),
        largest: key(&user_key(0xba8), 65, ValueKind::BlobIndex),
        smallest_sequence: SequenceNumber::new(1),
        largest_sequence: SequenceNumber::new(194),
        oldest_blob_file: Some(N(10)),
        oldest_ancestor_time: 1_795_261_168,
        file_creation_time: 1_795_261_168,
        unique_id: Some((16_474_415_378_973_321_845, 2_842_723_770_828_180_319)),
        ..TableMeta::default()
    };
    VersionEdit {
        log_number: Some(N(8)),
        prev_log_number: Some(N(0)),
        next_file_number: Some(12),
        last_sequence: Some(SequenceNumber::new(194)),
        new_files: vec![(0, table)],
        blob_additions: vec![BlobFileAddition {
            number: N(10),
            total_count: 186,
            total_bytes: 938_928,
            ..BlobFileAddition::default()
        }],
        ..VersionEdit::default()
    }
}

/// An edit in which every field says something.
fn full() -> VersionEdit {
    let table = TableMeta {
        path_id: 3,
        marked_for_compaction: true,
        epoch_number: 300,
        file_checksum: b"\x01\x02".to_vec(),
        file_checksum_func_name: "FileChecksumCrc32c".into(),
        temperature: 0x0c,
        tail_bytes: 77,
        compensated_range_deletion_bytes: 78,
        timestamps_stripped: true,
        min_timestamp: b"1".to_vec(),
        max_timestamp: b"2".to_vec(),
        ..flush().new_files[0].1.clone()
    };
    VersionEdit {
        db_id: Some("a-b-c".into()),
        comparator: Some("leveldb.BytewiseComparator".into()),
        max_column_family: Some(3),
        min_log_number_to_keep: Some(N(7)),
        compact_cursors: vec![(2, key(b"c", 3, ValueKind::Value))],
        deleted_files: vec![(0, N(4)), (6, FileNumber::MAX)],
        new_files: vec![
            (6, table),
            (0, TableMeta { smallest: vec![0; 8], largest: vec![0; 8], ..TableMeta::default() }),
        ],
        column_family: 3,
        column_family_add: Some("meta".into()),
        column_family_drop: true,
        atomic_group_remaining: Some(2),
        blob_garbage: vec![BlobFileGarbage { number: N(10), count: 2, bytes: 10_096 }],
        wal_additions: vec![
            WalAddition { number: N(8), synced_bytes: None },
            WalAddition { number: N(8), synced_bytes: Some(0) },
        ],
        wal_deletion: Some(N(8)),
        durable_logs: vec![DurableLog { number: N(9), bytes: 300 }, DurableLog::default()],
        full_history_ts_low: Some(b"ts".to_vec()),
        timestamps_persisted: Some(false),
        ..flush()
    }
}

#[test]
fn golden_flush() {
    assert_eq!(VersionEdit::decode(&hex(FLUSH)), Ok(flush()));
    // What RocksDB says of no checksum goes without saying since release 8; the rest is byte for byte the same.
    assert_eq!(encoded(&flush()), hex(&FLUSH.replace("0700 0807556e6b6e6f776e ", "")));
}

/// Written by RocksDB 7.8.3: all edits of a manifest with two column families.
#[test]
fn golden_manifest() {
    let comparator = Some("leveldb.BytewiseComparator".to_owned());
    let create = VersionEdit { comparator: comparator.clone(), ..VersionEdit::default() };
    let bytes = hex("011a 6c6576656c64622e4279746577697365436f6d70617261746f72");
    assert_eq!(VersionEdit::decode(&bytes), Ok(create.clone()));
    assert_eq!(encoded(&create), bytes);

    let second = VersionEdit { comparator, column_family: 1, column_family_add: Some("second".into()), ..create };
    let bytes = hex("011a 6c6576656c64622e4279746577697365436f6d70617261746f72 c80101 c901 06 7365636f6e64");
    assert_eq!(VersionEdit::decode(&bytes), Ok(second.clone()));
    assert_eq!(encoded(&second), bytes);

    let state = VersionEdit {
        prev_log_number: Some(N(0)),
        next_file_number: Some(27),
        max_column_family: Some(1),
        last_sequence: Some(SequenceNumber::new(3)),
        ..VersionEdit::default()
    };
    let bytes = hex("0900 031b cb0101 0403");
    assert_eq!(VersionEdit::decode(&bytes), Ok(state.clone()));
    assert_eq!(encoded(&state), bytes);

    let drop = VersionEdit {
        prev_log_number: Some(N(0)),
        next_file_number: Some(31),
        last_sequence: Some(SequenceNumber::new(4)),
        deleted_files: vec![(0, N(10)), (0, N(20))],
        ..VersionEdit::default()
    };
    let bytes = hex("0900 031f 0404 06000a 060014");
    assert_eq!(VersionEdit::decode(&bytes), Ok(drop.clone()));
    assert_eq!(encoded(&drop), bytes);

    // A range deletion to the end, and the number of the oldest log inside a table's fields.
    let bytes = hex(
        "0211 0a11 0403 67 00 14 e907 09 61 0f03000000000000 09 63 0fffffffffffffff 03 03 0505ef8586d806 060100 0700
         0807556e6b6e6f776e 0308 1100000000000000 0c103707aba1eafff0dba23fa1e1927904a2 01",
    );
    let edit = VersionEdit::decode(&bytes).unwrap();
    assert_eq!(edit.min_log_number_to_keep, Some(N(17)));
    assert_eq!(edit.new_files[0].1.largest, key(b"c", (1 << 56) - 1, ValueKind::RangeDeletion));
    assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
}

#[test]
fn golden_garbage() {
    let edit = VersionEdit {
        blob_garbage: vec![BlobFileGarbage { number: N(0x3b), count: 39, bytes: 196_872 }],
        ..VersionEdit::default()
    };
    assert_eq!(encoded(&edit), hex("9103 3b 27 88820c 00"));
    assert_eq!(VersionEdit::decode(&hex("9103 3b 27 88820c 00")), Ok(edit.clone()));
    assert_eq!(VersionEdit::decode(&hex("8340 3b 27 88820c 00")), Ok(edit));
}

#[test]
fn table_is_true() {
    assert_eq!(VersionEdit::decode(&encoded(&full())), Ok(full()));
    assert_eq!(VersionEdit::decode(&[]), Ok(VersionEdit::default()));
    assert_eq!(encoded(&VersionEdit::default()), b"");
}

#[test]
fn older_forms_of_a_table_are_read() {
    let keys = "09 61 0103000000000000 09 62 0102000000000000";
    let meta = TableMeta {
        number: N(5),
        file_bytes: 300,
        smallest: key(b"a", 3, ValueKind::Value),
        largest: key(b"b", 2, ValueKind::Value),
        smallest_sequence: SequenceNumber::new(2),
        largest_sequence: SequenceNumber::new(3),
        ..TableMeta::default()
    };
    let first =
        TableMeta { smallest_sequence: SequenceNumber::MAX, largest_sequence: SequenceNumber::new(0), ..meta.clone() };
    let third = TableMeta { path_id: 1, ..meta.clone() };
    for (bytes, expected) in [
        (format!("07 01 05 ac02 {keys}"), first),
        (format!("64 01 05 ac02 {keys} 02 03"), meta),
        (format!("66 01 05 01 ac02 {keys} 02 03"), third),
    ] {
        assert_eq!(VersionEdit::decode(&hex(&bytes)).unwrap().new_files, [(1, expected)]);
    }
}

/// Goal: the bound of a range deletion has whatever kind was the highest to the RocksDB that wrote it.
#[test]
fn bounds_of_a_kind_that_no_entry_has_are_read() {
    let edit = |kind: &str| {
        VersionEdit::decode(&hex(&format!("64 01 05 ac02 09 61 {kind}03000000000000 09 62 0102000000000000 02 03")))
    };
    let bound = [&b"a"[..], &(3u64 << 8 | u64::from(SEEK_KIND_TAG)).to_le_bytes()].concat();
    for kind in ["18", "19", "1a", "7f"] {
        assert_eq!(edit(kind).unwrap().new_files[0].1.smallest, bound, "{kind}");
    }
    for kind in ["17", "80", "ff"] {
        assert_eq!(edit(kind).unwrap_err().field, "smallest key", "{kind}");
    }
}

#[test]
fn older_forms_of_logs_are_read() {
    let edit = VersionEdit::decode(&hex("8440 08 02 ac02 01 8540 07")).unwrap();
    assert_eq!(edit.wal_additions, [WalAddition { number: N(8), synced_bytes: Some(300) }]);
    assert_eq!(edit.wal_deletion, Some(N(7)));
}

/// Golden: stores that were closed have these bytes. RocksDB reads past them, as bit 13 of the tag is set.
#[test]
fn how_much_of_a_log_is_durable_is_esker_s_own() {
    let logs = vec![DurableLog { number: N(8), bytes: 300 }, DurableLog { number: N(11), bytes: 26 }];
    let edit = VersionEdit { durable_logs: logs, ..VersionEdit::default() };
    assert_eq!(encoded(&edit), hex("81c080a806 03 08 ac02 81c080a806 02 0b 1a"));
    assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
}

#[test]
fn what_may_be_ignored_is_and_the_rest_is_unsupported() {
    let kind = |text: &str| VersionEdit::decode(&hex(text)).map_err(|error| error.kind);
    let empty = VersionEdit::default();
    assert_eq!(kind("8a40 02 ffff 8b40 01 05 ff7f 00"), Ok(empty));
    assert_eq!(kind("08"), Err(DecodeErrorKind::Unsupported));
    assert_eq!(kind("9203"), Err(DecodeErrorKind::Unsupported));
    let table = "67 00 05 ac02 08 0000000000000000 08 0000000000000000 02 03";
    assert!(kind(&format!("{table} 3f 02 abcd 11 00 01")).is_ok());
    assert_eq!(kind(&format!("{table} 42 02 abcd 01")), Err(DecodeErrorKind::Unsupported));
    assert_eq!(kind(&format!("{table} 41 01 04 01")), Err(DecodeErrorKind::Corrupt));
    assert!(kind("9103 3b 27 01 05 01 ff 00").is_ok());
    assert_eq!(kind("9103 3b 27 01 40 01 ff 00"), Err(DecodeErrorKind::Unsupported));
}

#[test]
fn errors_say_where() {
    let at = |text: &str| {
        VersionEdit::decode(&hex(text)).map_err(|error: DecodeError| (error.field, error.offset)).unwrap_err()
    };
    assert_eq!(at("0900 04 ffffffffffffffffff01"), ("last sequence", 3));
    assert_eq!(at("0900 02 ffffffffffffffffff01"), ("log number", 3));
    assert_eq!(at("0900 05 01 04 61626364"), ("compact cursor", 5));
    assert_eq!(at("0900 c840 03 08 02"), ("field of a later release", 4));
    assert_eq!(at("0900 8740 02 08 03"), ("tag of an added log", 6));
    assert_eq!(at("ff"), ("tag", 0));
}

#[test]
fn every_shorter_edit_is_an_edit_or_an_error() {
    let bytes = encoded(&full());
    for len in 0..bytes.len() {
        let _ = VersionEdit::decode(&bytes[..len]);
    }
}

fn any_table() -> impl Strategy<Value = TableMeta> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    let numbers = (0..=FileNumber::MAX.get(), any::<u64>(), 0..=SequenceNumber::MAX.get(), any::<u64>(), any::<u64>());
    (numbers, bytes(), bytes(), proptest::option::of(1..=FileNumber::MAX.get()), any::<bool>(), "[a-z]{0,5}", 0u32..=3)
        .prop_map(
            |((number, file_bytes, sequence, time, epoch_number), user_key, checksum, oldest, flag, name, path_id)| {
                TableMeta {
                    number: N(number),
                    path_id,
                    file_bytes,
                    smallest: key(&user_key, sequence, ValueKind::Value),
                    largest: key(&user_key, 0, ValueKind::Deletion),
                    smallest_sequence: SequenceNumber::new(0),
                    largest_sequence: SequenceNumber::new(sequence),
                    marked_for_compaction: flag,
                    oldest_blob_file: oldest.map(N),
                    oldest_ancestor_time: time,
                    file_creation_time: time / 2,
                    epoch_number,
                    file_checksum: if name.is_empty() { vec![] } else { checksum },
                    file_checksum_func_name: name,
                    unique_id: flag.then_some((time, epoch_number)).filter(|&id| id != (0, 0)),
                    temperature: u8::from(flag),
                    tail_bytes: file_bytes / 3,
                    ..TableMeta::default()
                }
            },
        )
}

proptest! {
    #[test]
    fn what_is_encoded_decodes(
        tables in proptest::collection::vec((any::<u32>(), any_table()), 0..4), column_family in any::<u32>(),
        deleted in proptest::collection::vec((any::<u32>(), 0..=FileNumber::MAX.get()), 0..4), name in proptest::option::of(".{0,8}"),
        log in proptest::option::of(0..=FileNumber::MAX.get()), group in any::<Option<u32>>(),
    ) {
        let edit = VersionEdit {
            new_files: tables,
            column_family,
            deleted_files: deleted.into_iter().map(|(level, number)| (level, N(number))).collect(),
            column_family_add: name,
            log_number: log.map(N),
            atomic_group_remaining: group,
            ..VersionEdit::default()
        };
        prop_assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
    }

    #[test]
    fn any_bytes_give_an_edit_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = VersionEdit::decode(&bytes);
    }

    #[test]
    fn a_damaged_edit_gives_an_edit_or_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encoded(&full());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(edit) = VersionEdit::decode(&bytes) {
            // Whatever it says, it can be said again.
            prop_assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
        }
    }
}
