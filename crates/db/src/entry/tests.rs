use std::path::PathBuf;

use esker_env::sim::SimDisk;

use super::*;
use crate::version::testing::{change_kind, install, table_of_kinds};
use crate::{Db, Options, ReadOptions};

#[test]
fn keys_are_told_on_one_line_and_long_ones_in_part() {
    assert_eq!(Key(b"user\n\x00\xff\"1").to_string(), r#""user\n\x00\xff\"1""#);
    assert_eq!(Key(&[b'k'; KEY_BYTES_TOLD]).to_string().len(), KEY_BYTES_TOLD + 2);
    let long = Key(&[b'k'; 1000]).to_string();
    assert!(long.ends_with("k\"... (1000 bytes)") && long.len() < 200, "{long}");
}

/// Goal: whose path is known keeps it, and what has nothing to do with an entry gets none.
#[test]
fn only_what_is_about_an_entry_is_placed() {
    let (table, other) = (Path::new("/db/000007.sst"), Path::new("/db/000008.blob"));
    let place = Some((table, Some(99)));
    let placed = located(not_served(b"k", ValueKind::WideColumnEntity), place);
    assert_eq!((placed.path(), placed.offset()), (Some(table), Some(99)));
    assert_eq!(located(Error::corruption(other, 5, "damaged"), place).path(), Some(other));
    assert_eq!(located(Error::new(ErrorKind::Closed, "closed"), place).path(), None);
}

const V: ValueKind = ValueKind::Value;

fn options() -> Options {
    Options { create_if_missing: true, background_jobs: 0, ..Options::default() }
}

/// A store with a table of these entries below one that meets it, so that both are compacted; and where the former is.
fn store_of(disk: &SimDisk, entries: &[(&str, u64, ValueKind, &[u8])]) -> (Db, PathBuf) {
    let db = Db::open_with_env("/db", options(), disk.env()).unwrap();
    let table = table_of_kinds(db.store(), 1, entries);
    let path = table.table.path().to_owned();
    let above = table_of_kinds(db.store(), 2, &[("a", 98, V, b"newer"), ("z", 99, V, b"newer")]);
    install(&db, vec![(0, above), (6, table)], 99);
    (db, path)
}

fn count(db: &Db) -> Result<u64> {
    db.count_cf(&db.default_column_family(), &ReadOptions::default())
}

/// How an operation that comes to the entry of `key` fails: of that kind, with the table and the key in it.
fn assert_named<T>(doing: &str, result: Result<T>, kind: ErrorKind, path: &Path, key: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{doing} did not fail"));
    assert_eq!((error.kind(), error.path()), (kind, Some(path)), "{doing}: {error}");
    assert!(error.to_string().contains(key), "{doing}: {error}");
}

/// All that reads the entry of `key`, which a walk from either end comes to, and a compaction if it does `compact`.
fn assert_all_name(db: &Db, compact: bool, kind: ErrorKind, path: &Path, key: &str, told: &str) {
    let of = &db.default_column_family();
    assert_named("get", db.get(key), kind, path, told);
    assert_named("value_len", db.value_len(key), kind, path, told);
    assert_named("get_range", db.get_range(key, 0..1), kind, path, told);
    let many = db.multi_get(["a", key, "z"]).unwrap();
    assert!(many.iter().filter(|answer| answer.is_err()).count() == 1, "{many:?}");
    assert_named("multi_get", many.into_iter().nth(1).unwrap(), kind, path, told);
    let walk = |forward: bool| {
        let mut entries = db.iter_cf(of, &ReadOptions::default())?;
        if forward {
            entries.seek_to_first()?
        } else {
            entries.seek_to_last()?
        }
        while entries.valid() {
            if entries.key() == key.as_bytes() {
                entries.value()?;
            }
            if forward { entries.next()? } else { entries.prev()? }
        }
        Ok(())
    };
    assert_named("a walk", walk(true), kind, path, told);
    let backward = walk(false).unwrap_err();
    assert!(backward.kind() == kind && backward.to_string().contains(told), "{backward}");
    if compact {
        assert_named("compact", db.compact_range(of, None, None), kind, path, told);
    }
}

/// Goal: who meets an entry that cannot be shown is told which key it is of and where it lies, and can go on behind it.
#[test]
fn a_kind_that_is_not_served_is_told_with_key_and_table_and_can_be_passed() {
    let disk = SimDisk::new();
    let wide: (&str, u64, ValueKind, &[u8]) = ("k\n1", 2, ValueKind::WideColumnEntity, b"columns");
    let (db, path) = store_of(&disk, &[("b", 1, V, b"1"), wide, ("p", 3, V, b"3")]);
    let (kind, told) = (ErrorKind::UnsupportedFormat, r#""k\n1" is of kind WideColumnEntity"#);
    assert_all_name(&db, false, kind, &path, "k\n1", told);
    assert_named("count", count(&db), kind, &path, told);
    assert_named("exists", db.exists("k\n1"), kind, &path, told);
    let mut entries = db.iter().unwrap();
    entries.seek_to_first().unwrap();
    entries.next().unwrap();
    let error = entries.next().unwrap_err();
    assert_eq!((entries.valid(), error.offset()), (false, Some(0)), "where its block begins: {error}");
    entries.seek("k\n1\0").unwrap();
    assert_eq!(entries.key(), b"p");
    // A compaction carries it on.
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    assert_eq!(db.get("k\n1").unwrap_err().kind(), kind);
}

/// Goal: the same of an entry of a kind that a later RocksDB has, and it is nowhere taken for damage.
#[test]
fn a_kind_that_is_not_known_is_unsupported_whoever_meets_it() {
    let disk = SimDisk::new();
    let (db, path) = store_of(&disk, &[("b", 1, V, b"1"), ("k", 2, V, b"2"), ("p", 3, V, b"3")]);
    db.close().unwrap();
    change_kind(&disk, &path, ("k", 2, V), 0x1a);
    let db = Db::open_with_env("/db", options(), disk.env()).unwrap();
    let (kind, told) = (ErrorKind::UnsupportedFormat, r#"of key "k": kind: kind 0x1a"#);
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty() && check.unsupported_entries == 1, "{check:?}");
    assert_eq!(check.entries, 5, "those behind it are checked, too");
    assert_named("check", Err::<(), _>(check.unsupported[0].clone()), kind, &path, told);
    assert_named("count", count(&db), kind, &path, told);
    assert_named("exists", db.exists("k"), kind, &path, told);
    assert_all_name(&db, true, kind, &path, "k", told);
}

/// Goal: the same of a pointer into a blob file that is none.
#[test]
fn a_pointer_that_does_not_decode_is_told_with_key_and_table() {
    let disk = SimDisk::new();
    let (db, path) = store_of(&disk, &[("b", 1, V, b"1"), ("k", 2, ValueKind::BlobIndex, b"\x01"), ("p", 3, V, b"3")]);
    let told = r#"of key "k""#;
    assert_all_name(&db, true, ErrorKind::Corruption, &path, "k", told);
    assert_eq!(count(&db).unwrap(), 5, "which asks for no value");
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.iter().any(|error| error.to_string().contains(told)), "{check:?}");
}

/// Goal: a check says of what cannot be shown that it is there, and that nothing is damaged.
#[test]
fn a_check_counts_what_cannot_be_shown_apart_from_damage() {
    let wide = |key| (key, 2, ValueKind::WideColumnEntity, b"columns".as_slice());
    let timed = ("t", 2, ValueKind::ValuePreferredSequence, b"value and time".as_slice());
    let (db, path) = store_of(&SimDisk::new(), &[("b", 1, V, b"1"), wide("c"), wide("d"), timed]);
    let check = db.check(&mut |_| {}).unwrap();
    assert!(check.errors.is_empty(), "{check:?}");
    assert_eq!((check.entries, check.unsupported_entries, check.unsupported.len()), (6, 3, 1));
    let told = r#"the first of 3 entries: the entry of key "c" is of kind WideColumnEntity"#;
    assert_named("check", Err::<(), _>(check.unsupported[0].clone()), ErrorKind::UnsupportedFormat, &path, told);
}

/// Goal: a repair throws away nothing that a later release wrote, in a table that is damaged elsewhere either.
#[test]
fn a_repair_refuses_a_damaged_table_with_entries_of_unknown_kinds() {
    let disk = SimDisk::new();
    let (db, path) = store_of(&disk, &[("b", 1, V, b"1"), ("k", 2, V, b"2"), ("p", 3, V, b"3")]);
    db.close().unwrap();
    let behind_data = change_kind(&disk, &path, ("k", 2, V), 0x1a);
    // The filter.
    assert!(disk.flip_bit(&path, (behind_data as u64 + 10) * 8));
    assert_named(
        "repair",
        Db::repair_with_env("/db", options(), disk.env()),
        ErrorKind::UnsupportedFormat,
        &path,
        r#""k""#,
    );
}
