//! `verify`, and what damage looks like.

use std::path::Path;

use esker::{Db, FamilyOptions, Options, Separation};
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

/// Goal: what keeps a store from being opened hides nothing: each damaged file is told once, what is whole is read, and no file changes.
#[test]
fn all_damage_is_told_of_a_store_that_does_not_open() {
    let place = Place::new();
    let family = FamilyOptions {
        separation: Separation::AtFlush,
        min_blob_size: 100,
        level0_compaction_trigger: 10,
        ..FamilyOptions::default()
    };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let db = Db::open(place.store(), options).unwrap();
    for file in 0..4u8 {
        (0..4u8).for_each(|n| db.put([file, n], vec![n; 1000]).unwrap());
        db.put([file, 9], "short").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let (tables, blobs) = (place.files(".sst"), place.files(".blob"));
    let last = |path: &Path| std::fs::read(path).unwrap().len() - 1;
    std::fs::remove_file(&tables[0]).unwrap();
    flip_bit(&tables[1], 20);
    flip_bit(&tables[2], last(&tables[2]));
    flip_bit(&blobs[1], 90);
    flip_bit(&blobs[2], last(&blobs[2]));
    std::fs::remove_file(&blobs[3]).unwrap();
    let everything =
        || place.files("").into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect::<Vec<_>>();
    let before = everything();

    place.run("count", NONE).failed(&["corruption: "]);
    let found = place.run("check", ["--json"]).no().json();
    let paths = found["errors"].as_array().unwrap().iter().map(|error| error["path"].as_str().unwrap().to_owned());
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    let damaged = [&blobs[1], &blobs[2], &blobs[3], &tables[0], &tables[1], &tables[2]];
    let mut damaged = damaged.map(|path| path.to_str().unwrap().to_owned());
    damaged.sort();
    assert_eq!(paths, damaged, "{found}");
    assert_eq!((&found["tables"], &found["entries"]), (&1.into(), &5.into()), "{found}");
    assert_eq!((&found["blob_files"], &found["blobs"]), (&1.into(), &4.into()), "{found}");
    assert_eq!(found["orphans"], serde_json::json!([]));
    let text = place.run("check", NONE).no();
    assert!(text.text().ends_with("6 damages; see `esker repair`\n"), "{}", text.text());
    assert!(everything() == before);
}

/// Goal: the same of what is no table or blob file: its damage does not hide theirs.
#[test]
fn a_damaged_log_or_options_file_hides_no_other_damage() {
    let place = loaded();
    place.run("put", ["k", "v"]).done();
    let (log, table) = (place.files(".log").remove(0), place.files(".sst").remove(0));
    flip_bit(&log, 20);
    flip_bit(&table, 20);
    let options = place.files("").into_iter().rfind(|path| path.to_str().unwrap().contains("OPTIONS")).unwrap();
    let bytes = std::fs::read(&options).unwrap();
    std::fs::write(&options, &bytes[..bytes.len() / 2]).unwrap();
    let found = place.run("check", NONE).no();
    for path in [&log, &table, &options] {
        let line = format!("corruption: {}", path.display());
        assert_eq!(found.text().matches(&line).count(), 1, "{}", found.text());
    }
    assert!(found.text().ends_with("3 damages; see `esker repair`\n"), "{}", found.text());
}

/// Goal: a file that lost its end is told by its length, by whoever comes to it, and not by what lies where its footer should.
#[test]
fn a_cut_blob_file_is_told_with_both_lengths() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    let bytes = std::fs::read(&blob).unwrap();
    for left in [bytes.len() - 1, 100, 0] {
        std::fs::write(&blob, &bytes[..left]).unwrap();
        let words = format!("the file is cut: it has {left} bytes, by the manifest it has {}", bytes.len());
        place.run("get", ["large1"]).failed(&["corruption: ", blob.to_str().unwrap(), &words]);
        let found = place.run("check", NONE).no();
        assert!(found.text().contains(&words) && found.text().contains("\n1 damage;"), "{}", found.text());
    }
    let repaired = place.run("repair", NONE);
    assert!(repaired.text().contains("the file is cut: it has 0 bytes"), "{}", repaired.text());
}

/// Goal: what leads to the data, and is lost, hides no damage of the data, and the check says what it went by, what it could not see, and what a repair
/// will bring back; which it does.
#[test]
fn a_check_without_current_or_manifest_goes_on() {
    let unseen = "no manifest is whole, so each file was checked by itself";
    for (lost, words, but) in [
        ("CURRENT", "MANIFEST", ""),
        ("MANIFEST", unseen, "would get all of them back but 1 table, 1 block;"),
        ("both", unseen, "would get all of them back but 1 table, 1 block;"),
    ] {
        let place = loaded();
        place.run("put", ["k", "v"]).done();
        let (current, table) = (place.files("CURRENT").remove(0), place.files(".sst").remove(0));
        let manifest = place.files("").into_iter().find(|path| path.to_str().unwrap().contains("MANIFEST")).unwrap();
        if lost != "CURRENT" {
            flip_bit(&manifest, 12);
        }
        if lost != "MANIFEST" {
            std::fs::remove_file(&current).unwrap();
        }
        let found = place.run("check", NONE).no();
        for words in [
            "40 entries in",
            "20 blobs in 1 blob file",
            "read 1 batch in 1 log",
            words,
            "1 damage; see `esker repair`\n",
        ] {
            assert!(found.text().contains(words), "{lost}: {words:?} is not in {}", found.text());
        }
        assert!(lost == "CURRENT" || found.text().contains("would get all of them back;"), "{}", found.text());
        flip_bit(&table, 20);
        let found = place.run("check", NONE).no();
        let line = format!("corruption: {}", table.display());
        assert_eq!(found.text().matches(&line).count(), 1, "{}", found.text());
        assert!(
            found.text().contains(but) && found.text().ends_with("2 damages; see `esker repair`\n"),
            "{}",
            found.text()
        );
        let json = place.run("check", ["--json"]).no().json();
        assert_eq!(json["without_current"]["manifest"].is_null(), lost != "CURRENT", "{json}");
        flip_bit(&table, 20);
        assert_eq!(place.run("repair", NONE).code, 0);
        assert_eq!(place.run("count", NONE).done().text(), "41\n");
        place.run("check", NONE).done();
    }
}

/// Goal: a rotten byte that reads as a newer version's is told as rot, and costs nothing.
#[test]
fn a_rotten_version_of_a_table_is_damage_that_a_repair_mends() {
    let place = loaded();
    let table = place.files(".sst").remove(0);
    let version_at = std::fs::read(&table).unwrap().len() - 12;
    flip_bit(&table, version_at);
    for command in ["check", "count"] {
        let ran = place.run(command, NONE);
        let said = if command == "check" { ran.text().to_owned() } else { ran.err.clone() };
        for words in ["corruption: ", table.to_str().unwrap(), "so it is rotten; repair the store"] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
    }
    let repaired = place.run("repair", NONE);
    assert!(repaired.code == 0 && !repaired.text().contains("lost:"), "{}", repaired.text());
    assert_eq!(place.run("count", NONE).done().text(), "40\n");
    place.run("check", NONE).done();
}

#[test]
fn a_rotten_version_of_a_blob_file_is_damage_that_a_repair_mends() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    flip_bit(&blob, 4);
    for command in ["check", "count"] {
        let ran = place.run(command, NONE);
        let said = if command == "check" { ran.text().to_owned() } else { ran.err.clone() };
        for words in ["corruption: ", blob.to_str().unwrap(), "so its header is rotten; repair the store"] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
    }
    let repaired = place.run("repair", NONE);
    assert!(repaired.code == 0 && !repaired.text().contains("lost:"), "{}", repaired.text());
    assert_eq!(place.run("count", NONE).done().text(), "40\n");
    place.run("check", NONE).done();
}

/// Goal: a family's options are not lost unseen with a byte of its name, nor with the newest file: a repair takes the one before.
#[test]
fn the_options_of_a_family_come_from_the_file_before_a_damaged_one() {
    for is_cut in [true, false] {
        let place = Place::new();
        let second = FamilyOptions { min_blob_size: 77, ..FamilyOptions::default() };
        let options = Options { create_if_missing: true, ..Options::default() };
        let db = Db::open(place.store(), options).unwrap();
        db.create_column_family("second", second).unwrap();
        db.close().unwrap();
        place.run("put", ["k", "v"]).done();
        let newest = || place.files("").into_iter().rfind(|path| path.to_str().unwrap().contains("OPTIONS")).unwrap();
        let damaged = newest();
        let text = std::fs::read_to_string(&damaged).unwrap();
        // The family comes last, what is said of its tables behind it.
        let family = "[CFOptions \"second\"]";
        let (before, of_family) = text.split_once(family).unwrap();
        let of_family = of_family.split("[TableOptions").next().unwrap();
        let text = if is_cut {
            before[..before.len() / 2].to_owned()
        } else {
            format!("{before}[CFOptions \"recond\"]{of_family}")
        };
        std::fs::write(&damaged, text).unwrap();
        place.run("get", ["k"]).failed(&["corruption: ", damaged.to_str().unwrap(), "; repair the store"]);
        assert!(place.run("check", NONE).no().text().contains("corruption: "));
        let repaired = place.run("repair", NONE).done();
        assert!(repaired.text().contains(" count instead"), "{}", repaired.text());
        let text = std::fs::read_to_string(newest()).unwrap();
        let of_second = text.split_once(family).map(|(_, of_second)| of_second);
        assert!(of_second.is_some_and(|said| said.contains("min_blob_size=77")), "{is_cut}: {text}");
        place.run("check", NONE).done();
    }
}

/// Goal: what an unreadable OPTIONS file is refused with is true: either of the two helps.
#[test]
fn an_unreadable_options_file_is_refused_with_what_helps() {
    for is_repaired in [true, false] {
        let place = loaded();
        let options = place.files("").into_iter().rfind(|path| path.to_str().unwrap().contains("OPTIONS")).unwrap();
        let bytes = std::fs::read(&options).unwrap();
        std::fs::write(&options, &bytes[..bytes.len() / 2]).unwrap();
        for command in [&["get", "small1"][..], &["put", "k", "v"]] {
            let words = ["corruption: ", options.to_str().unwrap(), "; repair the store, or move this file away"];
            place.run(command[0], &command[1..]).failed(&words);
        }
        if is_repaired {
            assert_eq!(place.run("repair", NONE).code, 0);
        } else {
            std::fs::rename(&options, place.path("aside")).unwrap();
        }
        place.run("put", ["k", "v"]).done();
        assert_eq!(place.run("get", ["small1"]).done().out, [1; 100]);
        place.run("check", NONE).done();
    }
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

/// Goal: a file of another engine that lies in a Db makes it none of that, also where the Db has lost its CURRENT.
#[test]
fn a_stray_file_of_a_cask_makes_no_cask_of_a_db() {
    let place = loaded();
    let stray = place.store().join("000001.data");
    std::fs::write(&stray, "anything").unwrap();
    assert_eq!(place.run("get", ["small3"]).done().out, [3; 100]);
    std::fs::remove_file(place.store().join("CURRENT")).unwrap();
    place.run("get", ["small3"]).failed(&["CURRENT"]);
    place.run("repair", NONE).done();
    assert_eq!(place.run("get", ["small3"]).done().out, [3; 100]);
    assert_eq!(std::fs::read(&stray).unwrap(), b"anything");
}

/// Goal: a log that is a link to where nothing is any more is not passed over as if it had been removed: what it holds was acknowledged.
#[test]
fn a_log_that_is_a_link_to_nowhere_is_missed() {
    let place = Place::new();
    place.run("create", NONE).done();
    place.run("put", ["key", "value"]).done();
    let log = place.files(".log").remove(0);
    let elsewhere = place.path("elsewhere.log");
    std::fs::rename(&log, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &log).unwrap();
    assert_eq!(place.run("get", ["key"]).done().out, b"value");
    std::fs::rename(&elsewhere, place.path("lost.log")).unwrap();
    for command in ["get", "put"] {
        place
            .run(command, ["key", "value"].into_iter().take(if command == "get" { 1 } else { 2 }))
            .failed(&["leads nowhere"]);
    }
    assert!(place.run("check", NONE).no().text().contains("leads nowhere"));
    std::fs::rename(place.path("lost.log"), &elsewhere).unwrap();
    assert_eq!(place.run("get", ["key"]).done().out, b"value");
}

/// Goal: a file that has become far longer than what is in it, or that has no end, is an error, and no end of the process.
#[cfg(target_os = "linux")]
#[test]
fn what_there_is_no_memory_for_is_told() {
    use crate::run::esker_within;
    let place = Place::with(&[("a", "b")]);
    let within = |arguments: &[&str]| esker_within(1 << 20, arguments);
    let sparse = |name: &str| {
        let path = place.path(name);
        std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    within(&["dump", &sparse("OPTIONS-000007")]).failed(&["OPTIONS-000007", "4.0 GiB", "far more"]);
    within(&["dump", &sparse("000001.hint")]).failed(&["000001.hint", "memory"]);
    let kinds = ["table", "blob", "current", "identity", "mark", "cask-data", "cask-manifest", "raft", "raft-closed"];
    for kind in kinds {
        // However it ends, it ends by itself.
        within(&["dump", "--limit", "3", "--kind", kind, &sparse("any")]);
    }
    let store = place.store().into_os_string().into_string().unwrap();
    within(&["import", &store, "--entries", "/dev/zero"]).failed(&["/dev/zero line 1", "memory"]);
    within(&["import", &store, "--jsonl", "/dev/zero", "--key", "a"]).failed(&["/dev/zero line 1", "memory"]);
    within(&["put", &store, "c", "--value-file", "/dev/zero"]).failed(&["/dev/zero", "memory"]);
    place.write("tree/small", b"");
    sparse("tree/large");
    within(&["import", &store, "--files", place.path("tree").to_str().unwrap()]).failed(&["tree/large", "3221225472"]);
    assert_eq!(place.run("scan", ["--keys"]).done().text(), "a\nsmall\n");
}
