//! `verify`, and what damage looks like.

use std::path::Path;

use esker::{Db, Options};
use esker_format::checksum::{ChecksumKind, block_checksum};

use crate::run::{NONE, Place, flip_bit};

fn loaded() -> Place {
    let place = Place::new();
    for number in 0..20u8 {
        place.write(&format!("tree/small{number}"), &[number; 100]);
        place.write(&format!("tree/large{number}"), &vec![number; 20_000]);
    }
    place.run("import", ["--files", place.path("tree").to_str().unwrap()]).done();
    place
}

#[test]
fn a_sound_store_is_read_to_its_last_byte() {
    let place = loaded();
    let found = place.run("check", ["--json"]).done().json();
    assert_eq!((&found["entries"], &found["blobs"], &found["damaged"]), (&40.into(), &20.into(), &false.into()));
    assert!(found["errors"].as_array().unwrap().is_empty());
    assert!(place.run("check", NONE).done().text().contains("no damage"));
}

/// Goal: what Esker does not read is told, and nobody is sent to a repair, which would refuse.
#[test]
fn what_is_whole_and_cannot_be_shown_is_no_damage() {
    let place = Place::new();
    let tree = place.path("tree");
    for key in ["a", "k", "z"] {
        place.write(&format!("tree/{key}"), b"value");
    }
    place.run("import", ["--files", tree.to_str().unwrap(), "--compression", "none"]).done();
    let table = place.files(".sst").remove(0);
    // A wide-column entity, and a kind of a later release.
    for (kind, exit) in [(0x16, "is of kind WideColumnEntity"), (0x1a, "kind 0x1a is not known")] {
        set_kind(&table, b"k", kind);
        let text = place.run("check", NONE).done();
        for words in ["unsupported format: ", exit, "1 entry of kinds that Esker does not read", "no damage\n"] {
            assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
        }
        assert!(!text.text().contains("see `esker repair`"), "{}", text.text());
        let found = place.run("check", ["--json"]).done().json();
        assert_eq!((&found["unsupported_entries"], &found["damaged"]), (&1.into(), &false.into()), "{found}");
        assert_eq!(found["unsupported"][0]["path"], table.to_str().unwrap());
        place.run("get", ["k"]).failed(&["unsupported format: ", "\"k\"", table.to_str().unwrap(), "seek past"]);
    }
}

/// Has the entry of `key`, in the first block of a table, be of another kind.
fn set_kind(table: &Path, key: &[u8], kind: u8) {
    let mut file = std::fs::read(table).unwrap();
    let sum = |file: &[u8], end: usize| block_checksum(ChecksumKind::Xxh3, &file[..end], file[end]).to_le_bytes();
    let end = (0..file.len() - 5).find(|&end| file[end + 1..end + 5] == sum(&file, end)).unwrap();
    // With a key of its own, not shared: its length with the tag, that of the value, the key.
    let entry = [&[0, key.len() as u8 + 8, 5][..], key].concat();
    let at = file[..end].windows(entry.len()).position(|window| window == entry).unwrap();
    file[at + entry.len()] = kind;
    let checksum = sum(&file, end);
    file[end + 1..end + 5].copy_from_slice(&checksum);
    std::fs::write(table, file).unwrap();
}

#[test]
fn a_flipped_bit_in_a_table_is_told_with_its_file_and_offset() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    flip_bit(&table, 20);
    let text = place.run("check", NONE).no();
    let line = text.text().lines().find(|line| line.starts_with("corruption: ")).unwrap();
    assert!(line.contains(table.to_str().unwrap()) && line.contains(" at byte "), "{line}");
    let found = place.run("check", ["--json"]).no().json();
    assert_eq!((&found["damaged"], &found["errors"][0]["path"]), (&true.into(), &table.to_str().unwrap().into()));
    assert!(found["errors"][0]["offset"].is_u64());
    // Whoever reads it hears the same, in one line.
    place.run("scan", NONE).failed(&["corruption: ", table.to_str().unwrap(), " at byte "]);
}

#[test]
fn a_flipped_bit_in_a_blob_file_is_told_with_its_file_and_offset() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    flip_bit(&blob, 90);
    let found = place.run("check", ["--json"]).no().json();
    assert_eq!(found["errors"][0]["path"], blob.to_str().unwrap());
}

#[test]
fn a_store_too_damaged_to_open_is_damaged() {
    let place = loaded();
    let manifest = place.files("").into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
    flip_bit(&manifest, 12);
    let text = place.run("check", NONE).no();
    assert!(text.text().contains(manifest.to_str().unwrap()), "{}", text.text());
    place.run("count", NONE).failed(&["corruption", manifest.to_str().unwrap()]);
}

#[test]
fn a_missing_table_is_damage() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    std::fs::remove_file(&table).unwrap();
    assert!(place.run("check", NONE).no().text().contains(table.to_str().unwrap()));
}

#[test]
fn what_is_only_in_the_log_is_read_and_a_torn_end_is_told() {
    let place = Place::new();
    place.run("put", ["--create", "key", "value"]).done();
    assert!(place.run("check", NONE).done().text().contains("read 1 batch in 1 log"));
    // As a process leaves it that dies.
    let db = Db::open(place.store(), Options::default()).unwrap();
    db.put("key", "another").unwrap();
    std::mem::forget(db);
    let log = place.files(".log").remove(0);
    let bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    std::fs::write(&log, &bytes[..end - 3]).unwrap();
    let verified = place.run("check", NONE).done();
    let text = verified.text();
    assert!(text.contains("ends torn at byte 0") && text.contains("no damage"), "{text}");
}

#[test]
fn what_is_missing_of_the_log_of_a_closed_store_is_damage() {
    let place = Place::new();
    place.run("put", ["--create", "a", "one", "--sync"]).done();
    place.run("put", ["b", "two", "--sync"]).done();
    let log = place.files(".log").remove(0);
    let bytes = std::fs::read(&log).unwrap();
    for left in [Some(vec![0; bytes.len()]), Some(bytes[..bytes.len() - 3].to_vec()), None] {
        match left {
            Some(left) => std::fs::write(&log, left).unwrap(),
            None => std::fs::remove_file(&log).unwrap(),
        }
        let verified = place.run("check", NONE).no();
        let text = verified.text();
        let said = format!("the manifest says that {} bytes of this log are durable", bytes.len());
        assert!(text.contains(&said) && text.contains("1 damage") && text.contains(log.to_str().unwrap()), "{text}");
        place.run("get", ["b"]).failed(&["corruption", "repair", log.to_str().unwrap()]);
    }
    std::fs::write(&log, bytes).unwrap();
    assert_eq!(place.run("get", ["b"]).done().text(), "two");
}

#[test]
fn a_repair_says_what_is_missing_of_the_log_of_a_closed_store() {
    for case in ["zeroes", "cut behind its first record", "removed"] {
        let place = Place::new();
        let db = Db::open(place.store(), Options { create_if_missing: true, ..Options::default() }).unwrap();
        ["a", "b", "c"].into_iter().for_each(|key| db.put(key, "value").unwrap());
        db.close().unwrap();
        let log = place.files(".log").remove(0);
        let bytes = std::fs::read(&log).unwrap();
        let is_recyclable = (5..9).contains(&bytes[6]);
        let first = u16::from_le_bytes([bytes[4], bytes[5]]) as usize + if is_recyclable { 11 } else { 7 };
        let left = if case.starts_with("cut") { first } else { 0 };
        match case {
            "zeroes" => std::fs::write(&log, vec![0; bytes.len()]).unwrap(),
            "removed" => std::fs::remove_file(&log).unwrap(),
            _ => std::fs::write(&log, &bytes[..first]).unwrap(),
        }
        let lost = bytes.len() - left;
        let repaired = place.run("repair", NONE).done();
        let text = repaired.text();
        assert!(text.contains(&format!("lost: {lost} B of the logs")), "{case}: {text}");
        assert!(!text.contains("nothing is lost"), "{case}: {text}");
        assert_eq!(place.run("count", NONE).done().text(), if left > 0 { "1\n" } else { "0\n" }, "{case}");
    }
}

/// Goal: what a damaged block hides is not told as damage of its own, in the table or in the blob files that it points to.
#[test]
fn one_damaged_block_is_one_damage() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    flip_bit(&table, 20);
    let found = place.run("check", ["--json"]);
    assert_eq!(found.code, 1, "{}", found.err);
    let errors = found.json()["errors"].clone();
    assert_eq!(errors.as_array().unwrap().len(), 1, "{errors}");
    assert!(errors[0]["reason"].as_str().unwrap().contains("block checksum"), "{errors}");
}

/// Goal: whoever has only the command is not sent to options of a program's.
#[test]
fn what_a_repair_mends_says_so() {
    for (ending, words) in [
        (".log", "the log is damaged; repair the store"),
        ("CURRENT", "repair the store"),
        (".blob", "repair the store"),
    ] {
        let place = loaded();
        place.run("put", ["k", "v"]).done();
        let file = place.files(ending).pop().unwrap();
        match ending {
            ".log" => flip_bit(&file, 20),
            "CURRENT" => flip_bit(&file, 3),
            _ => std::fs::remove_file(&file).unwrap(),
        }
        place.run("get", ["k"]).failed(&["corruption: ", file.to_str().unwrap(), words]);
        assert_eq!(place.run("repair", NONE).code, 0, "{ending}");
        assert_eq!(place.run("check", NONE).code, 0, "{ending}");
    }
}
