//! `dump`.

use std::path::{Path, PathBuf};

use esker::{Compression, Db, Options};
use serde_json::Value;

use crate::run::{NONE, Place, Ran, esker, flip_bit};

fn dump(file: &Path, arguments: &[&str]) -> Ran {
    esker(["dump", file.to_str().unwrap()].iter().chain(arguments))
}

fn named(place: &Place, part: &str) -> PathBuf {
    place.files("").into_iter().find(|path| path.to_str().unwrap().contains(part)).unwrap()
}

fn objects<'a>(all: &'a [Value], what: &str) -> Vec<&'a Value> {
    all.iter().filter(|object| object["what"] == what).collect()
}

/// A store with a table, a blob file and something in its log.
fn loaded() -> Place {
    let place = Place::new();
    for number in 0..30u8 {
        place.write(&format!("tree/small{number:02}"), &[b'a' + number; 1000]);
    }
    place.write("tree/large", &[b'L'; 30_000]);
    place.run("import", ["--files", place.path("tree").to_str().unwrap(), "--compression", "none"]).done();
    place.run("put", ["inlog", "a\x01b"]).done();
    place
}

#[test]
fn a_log_is_printed_batch_by_batch() {
    let place = loaded();
    let wal = place.files(".log").pop().unwrap();
    let text = dump(&wal, &[]).done();
    assert!(text.text().contains("put key=\"inlog\" family=0 value=\"a\\x01b\""), "{}", text.text());
    let all = dump(&wal, &["--json"]).done().json_lines();
    let puts = objects(&all, "put");
    assert_eq!((&puts[0]["key_hex"], &puts[0]["value_hex"]), (&"696e6c6f67".into(), &"610162".into()));
    assert_eq!(objects(&all, "batch")[0]["count"], 1);
    assert_eq!(dump(&wal, &["--keys-only"]).done().text().lines().count(), 1);
}

#[test]
fn damage_in_a_log_is_shown_where_it_is_and_the_next_record_too() {
    let place = Place::new();
    place.run("put", ["first", &"x".repeat(100), "--create"]).done();
    let wal = place.files(".log").pop().unwrap();
    let copy = place.write("copy", &std::fs::read(&wal).unwrap().repeat(2));
    dump(&copy, &[]).failed(&["--kind"]);
    let arguments = ["--kind", "wal", "--json"];
    assert_eq!(objects(&dump(&copy, &arguments).done().json_lines(), "put").len(), 2);
    flip_bit(&copy, 40);
    let all = dump(&copy, &arguments).no().json_lines();
    assert_eq!((&all[0]["what"], &all[0]["offset"]), (&"damage".into(), &0.into()));
    assert_eq!(objects(&all, "put").len(), 1);
}

/// Goal: no batch is made of what lies before and behind a block that was lost.
#[test]
fn a_batch_whose_middle_was_lost_is_none() {
    let place = Place::new();
    place.run("put", ["large", &"x".repeat(80_000), "--create"]).done();
    let wal = place.files(".log").pop().unwrap();
    let mut bytes = std::fs::read(&wal).unwrap();
    bytes[32 << 10..64 << 10].fill(0);
    let copy = place.write("copy", &bytes);
    let all = dump(&copy, &["--kind", "wal", "--json"]).no().json_lines();
    assert_eq!((&all[0]["what"], &all[0]["offset"]), (&"torn record".into(), &0.into()));
    assert_eq!((objects(&all, "zeroes").len(), objects(&all, "damage").len(), objects(&all, "batch").len()), (1, 1, 0));
}

#[test]
fn a_manifest_is_printed_edit_by_edit() {
    let place = loaded();
    let manifest = named(&place, "MANIFEST");
    let all = dump(&manifest, &["--json"]).done().json_lines();
    assert!(!objects(&all, "edit").is_empty());
    assert!(!objects(&all, "add_table").is_empty());
    let text = dump(&manifest, &[]).done();
    assert!(
        text.text().contains("leveldb.BytewiseComparator") && text.text().contains("add_blob_file"),
        "{}",
        text.text()
    );
}

#[test]
fn a_table_is_printed_with_its_properties_and_entries() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    let all = dump(&table, &["--json"]).done().json_lines();
    assert_eq!((objects(&all, "put").len(), objects(&all, "blob").len()), (30, 1));
    assert!(
        objects(&all, "property")
            .iter()
            .any(|property| property["name"] == "rocksdb.num.entries" && property["value"] == 31)
    );
    assert_eq!(dump(&table, &["--keys-only"]).done().text().lines().count(), 31);
    assert_eq!(dump(&table, &["--keys-only", "--limit", "3"]).done().text().lines().count(), 3);
}

/// A table that ends with a range deletion, and has another in the midst of its entries.
fn ranged() -> Place {
    let place = Place::new();
    let db = Db::open(place.store(), Options { create_if_missing: true, ..Options::default() }).unwrap();
    ["a", "b", "d"].iter().for_each(|key| db.put(key, "1").unwrap());
    // What it hides stays.
    let _before = db.snapshot();
    db.delete_range("b", "c").unwrap();
    db.delete_range("d", "x\x01").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    place
}

#[test]
fn range_deletions_of_a_table_are_printed_with_their_ends() {
    let place = ranged();
    let table = place.files(".sst").remove(0);
    let all = dump(&table, &["--json"]).done().json_lines();
    let ranges = objects(&all, "delete_range");
    let field = |index: usize, name: &str| ranges[index][name].as_str().unwrap().to_owned();
    let ends: Vec<_> = (0..ranges.len()).map(|index| (field(index, "key_hex"), field(index, "end_hex"))).collect();
    assert_eq!(ends, [("62", "63"), ("64", "7801")].map(|(begin, end)| (begin.to_owned(), end.to_owned())));
    assert!(ranges[0]["sequence"].as_u64() < ranges[1]["sequence"].as_u64(), "{ranges:?}");
    assert_eq!((objects(&all, "put").len(), objects(&all, "range_deletions").len()), (3, 1));
    let text = dump(&table, &[]).done();
    assert!(text.text().contains("delete_range key=\"d\" sequence=5 end=\"x\\x01\""), "{}", text.text());
    assert_eq!(dump(&table, &["--keys-only"]).done().text().lines().count(), 5);
    assert_eq!(dump(&table, &["--keys-only", "--limit", "3"]).done().text().lines().count(), 3);
    let manifest = dump(&named(&place, "MANIFEST"), &["--json"]).done().json_lines();
    let table_added = *objects(&manifest, "add_table").last().unwrap();
    assert_eq!((&table_added["largest_hex"], &table_added["largest_is_excluded"]), (&"7801".into(), &true.into()));

    flip_bit(&table, ranges[0]["offset"].as_u64().unwrap() as usize);
    let all = dump(&table, &["--json"]).no().json_lines();
    assert_eq!((objects(&all, "put").len(), objects(&all, "damage").len()), (3, 1));
}

#[test]
fn deletions_in_a_log_are_printed_by_their_kinds() {
    let place = Place::with(&[("a", "1")]);
    for (command, arguments, words) in [
        ("delete-range", ["b", "c\x01"], "delete_range key=\"b\" family=0 end=\"c\\x01\""),
        ("delete", ["a", "--single"], "single_delete key=\"a\" family=0"),
    ] {
        place.run(command, arguments).done();
        let text = dump(&place.files(".log").pop().unwrap(), &[]).done();
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
}

#[test]
fn a_damaged_block_is_shown_and_the_others_are_printed() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    let blocks = objects(&dump(&table, &["--json"]).done().json_lines(), "block").len();
    assert!(blocks > 3);
    flip_bit(&table, 100);
    let all = dump(&table, &["--json"]).no().json_lines();
    assert_eq!((objects(&all, "block").len(), objects(&all, "damage").len()), (blocks - 1, 1));
}

#[test]
fn a_blob_file_is_printed_record_by_record() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    let all = dump(&blob, &["--json"]).done().json_lines();
    let records = objects(&all, "blob");
    assert_eq!((records.len(), &records[0]["key_hex"]), (1, &"6c61726765".into()));
    assert!(dump(&blob, &[]).done().text().contains("key=\"large\""));
    flip_bit(&blob, 80);
    assert_eq!(objects(&dump(&blob, &["--json"]).no().json_lines(), "damage").len(), 1);
}

/// Goal: zeroes behind the records of a file that still takes values, or took them when its writer died, are no damage.
#[test]
fn zeroes_at_the_end_of_a_blob_file_without_a_footer_are_no_damage() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    let whole = std::fs::read(&blob).unwrap();
    let mut growing = [&whole[..whole.len() - 32], &[0; 5000]].concat();
    std::fs::write(&blob, &growing).unwrap();
    let all = dump(&blob, &["--json"]).done().json_lines();
    assert_eq!((objects(&all, "blob").len(), objects(&all, "damage").len()), (1, 0));
    assert_eq!(objects(&all, "zeroes")[0]["bytes"], 5000);
    *growing.last_mut().unwrap() = 1;
    std::fs::write(&blob, &growing).unwrap();
    assert_eq!(objects(&dump(&blob, &["--json"]).no().json_lines(), "damage").len(), 1);
}

/// Goal: what rots of a blob file's header, which no checksum covers, is told, and hides no record.
#[test]
fn a_blob_file_with_a_rotten_header_is_printed_record_by_record() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    let whole = std::fs::read(&blob).unwrap();
    let records = |all: &[Value]| -> Vec<Value> { objects(all, "blob").into_iter().cloned().collect() };
    let expected = records(&dump(&blob, &["--json"]).done().json_lines());
    // Magic, version, flags and compression, a range of expiration; not the family, any of which may be one.
    for at in (0..30).filter(|at| !(8..12).contains(at)) {
        std::fs::write(&blob, &whole).unwrap();
        flip_bit(&blob, at);
        let all = dump(&blob, &["--json", "--kind", "blob"]).no().json_lines();
        assert_eq!((objects(&all, "damage").len(), objects(&all, "footer").len()), (1, 1), "byte {at}: {all:?}");
        let mut found = records(&all);
        if at == 13 {
            // Of the whole file, the header alone says how it is packed.
            let value: String =
                whole[30 + 32 + "large".len()..whole.len() - 32].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found[0].as_object_mut().unwrap().remove("stored_hex").unwrap(), value);
            found[0]["value_hex"] = expected[0]["value_hex"].clone();
        }
        assert_eq!(found, expected, "byte {at}");
    }
}

/// Twenty values of 64 KiB in one blob file, of which every second is dead and gave its pages back.
fn with_holes(holes_within_values: bool) -> Place {
    let place = Place::new();
    let mut options = Options { create_if_missing: true, punch_holes: true, holes_within_values, ..Options::default() };
    let family = options.families.entry("default".to_owned()).or_default();
    (family.min_blob_size, family.blob_compression) = (1000, Compression::None);
    let db = Db::open(place.store(), options).unwrap();
    for number in 0..20u8 {
        db.put([b'a' + number], [number | 0x80; 64 << 10]).unwrap();
    }
    db.flush().unwrap();
    (0..20).step_by(2).for_each(|number: u8| db.delete([b'a' + number]).unwrap());
    db.compact_range(&db.default_column_family(), None, None).unwrap();
    db.wait_for_compact().unwrap();
    assert!(db.stats().punched_bytes > 300_000, "{:?}", db.stats());
    db.close().unwrap();
    place
}

#[test]
fn holes_in_a_blob_file_are_no_damage_and_what_lies_behind_them_is_printed() {
    for holes_within_values in [true, false] {
        let place = with_holes(holes_within_values);
        place.run("check", NONE).done();
        let blob = place.files(".blob").remove(0);
        let all = dump(&blob, &["--json"]).done().json_lines();
        let keys: Vec<_> = objects(&all, "blob").iter().map(|record| record["key_hex"].as_str().unwrap()).collect();
        let alive: Vec<_> =
            (0..20u8).filter(|number| number % 2 == 1).map(|number| format!("{:02x}", b'a' + number)).collect();
        assert_eq!(keys, alive);
        assert_eq!((objects(&all, "hole").len(), objects(&all, "footer").len()), (10, 1));
        // The last record, which is alive.
        let last = objects(&all, "blob").last().unwrap()["offset"].as_u64().unwrap();
        flip_bit(&blob, last as usize + 100);
        let all = dump(&blob, &["--json"]).no().json_lines();
        assert_eq!((objects(&all, "blob").len(), objects(&all, "damage").len()), (9, 1));
    }
}

#[test]
fn options_are_printed_line_by_line() {
    let place = loaded();
    let all = dump(&named(&place, "OPTIONS"), &["--json"]).done().json_lines();
    assert!(objects(&all, "option").iter().any(|option| option["name"] == "options_file_version"), "{all:?}");
}

#[test]
fn the_smallest_files_say_what_they_name() {
    let place = loaded();
    let current = named(&place, "CURRENT");
    let manifest = named(&place, "MANIFEST").file_name().unwrap().to_str().unwrap().to_owned();
    assert!(dump(&current, &[]).done().text().contains(&format!("current manifest=\"{manifest}\"")));
    let id = std::fs::read_to_string(named(&place, "IDENTITY")).unwrap();
    assert!(dump(&named(&place, "IDENTITY"), &[]).done().text().contains(&format!("identity db_id=\"{id}\"")));
    assert!(dump(&named(&place, "LOCK"), &[]).done().text().contains("mark name=\"LOCK\" bytes=0"));
    for wrong in ["", "MANIFEST-000001", "000001.log\n", &"x".repeat(10_000)] {
        std::fs::write(&current, wrong).unwrap();
        assert!(dump(&current, &[]).no().text().contains("DAMAGE manifest"), "{wrong:?}");
    }
}

#[test]
fn what_is_not_a_store_file_is_damage_or_an_error_but_never_a_panic() {
    let place = Place::new();
    let file = place.write(
        "noise",
        &(0..200_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 11) as u8).collect::<Vec<_>>(),
    );
    for kind in ["wal", "manifest", "table", "blob"] {
        dump(&file, &["--kind", kind]).no();
    }
    for missing in ["/no/such/000001.sst", "/no/such/noise"] {
        dump(Path::new(missing), &[]).failed(&[missing, "No such file"]);
    }
    dump(&place.path(""), &[]).failed(&["is a directory", "files in it"]);
    for kind in ["wal", "manifest", "options"] {
        dump(&place.write("empty", b""), &["--kind", kind]).done();
    }
    dump(&place.path("empty"), &["--kind", "table"]).no();
}
