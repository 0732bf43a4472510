//! `checkpoint`, `backup`, `repair` of a Db.

use crate::run::{NONE, Place, esker, flip_bit};

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
fn copies_are_stores_of_their_own() {
    let place = loaded();
    place.run("put", ["in the log", "only"]).done();
    for command in ["checkpoint", "backup"] {
        let target = place.path(command);
        let target = target.to_str().unwrap();
        let made = place.run(command, [target, "--json"]).done().json();
        assert!(made["files"].as_u64() > Some(1) && made["sequence"].as_u64() >= Some(41), "{made}");
        assert_eq!(made["linked"].as_u64() > Some(0), command == "checkpoint", "{made}");
        assert_eq!(esker(["get", target, "in the log"]).done().out, b"only");
        assert!(esker(["check", target]).done().text().contains("no damage"));
        esker(["put", target, "in the log", "of the copy"]).done();
        assert_eq!(place.run("get", ["in the log"]).done().out, b"only");
        // It is no backup only any more.
        place.run(command, [target]).failed(&[if command == "backup" { "written to" } else { "empty" }]);
    }
    place.run("check", NONE).done();
}

#[test]
fn a_backup_is_brought_up_to_date() {
    let place = loaded();
    let target = place.path("backup");
    let target = target.to_str().unwrap();
    let text = place.run("backup", [target]).done();
    assert!(text.text().contains(" 0 kept"), "{}", text.text());
    place.run("put", ["new", "value"]).done();
    let made = place.run("backup", [target, "--json"]).done().json();
    assert!(made["kept"].as_u64() > Some(0) && made["copied_bytes"].as_u64() < Some(10_000), "{made}");
    assert_eq!(esker(["get", target, "new"]).done().out, b"value");
}

/// Goal: a Db that lost its CURRENT is one all the same, and a copy of it says what to do.
#[test]
fn a_store_without_its_root_is_copied_only_after_a_repair() {
    let place = loaded();
    std::fs::remove_file(place.path("store/CURRENT")).unwrap();
    let target = place.path("copy");
    for command in ["checkpoint", "backup"] {
        place.run(command, [target.to_str().unwrap()]).failed(&["corruption", "no CURRENT", "repair"]);
        assert!(!target.exists());
    }
}

#[test]
fn a_file_is_no_target_of_a_copy() {
    let db = loaded();
    let cask = Place::new();
    cask.run("create", ["--kind", "cask"]).done();
    for place in [&db, &cask] {
        let file = place.write("file", b"contents");
        for command in ["checkpoint", "backup"] {
            let words = ["invalid argument", file.to_str().unwrap(), "a copy goes to a directory"];
            place.run(command, [file.to_str().unwrap()]).failed(&words);
            assert_eq!(std::fs::read(&file).unwrap(), b"contents");
        }
    }
}

#[test]
fn a_store_without_a_manifest_is_mended() {
    let place = loaded();
    place.run("put", ["in the log", "only"]).done();
    let lost = place.files("").into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == "CURRENT" || name.starts_with("MANIFEST")
    });
    lost.for_each(|path| std::fs::remove_file(path).unwrap());
    place.run("get", ["in the log"]).failed(&["corruption", "repair"]);
    place.run("stats", NONE).failed(&["corruption", "repair"]);
    assert!(place.run("check", NONE).no().text().contains("no CURRENT"));
    let text = place.run("repair", NONE).done();
    assert!(text.text().contains("no manifest") && !text.text().contains("lost"), "{}", text.text());
    assert_eq!(place.run("count", NONE).done().text(), "41\n");
    assert_eq!(place.run("get", ["in the log"]).done().out, b"only");
    assert!(place.run("check", NONE).done().text().contains("no damage"));
}

#[test]
fn what_is_lost_is_named_and_the_rest_is_kept() {
    let place = loaded();
    let blob = place.files(".blob").remove(0);
    flip_bit(&blob, 90);
    assert!(place.run("check", NONE).no().text().contains("esker repair"));
    let done = place.run("repair", ["--json"]).done().json();
    assert_eq!(done["lost_values"], 1, "{done}");
    assert_eq!(done["had_manifest"], true);
    let aside = done["put_aside"].as_array().unwrap();
    let damaged: Vec<_> = aside.iter().filter(|file| file["reason"] == "damaged").collect();
    assert_eq!(damaged.len(), 1, "{done}");
    assert!(std::path::Path::new(damaged[0]["path"].as_str().unwrap()).exists());
    assert_eq!(place.run("count", NONE).done().text(), "39\n");
    assert!(place.run("check", NONE).done().text().contains("no damage"));
}

#[test]
fn a_table_that_is_missing_is_lost() {
    let place = loaded();
    // The next command makes a table of it.
    place.run("put", ["in the log", "only"]).done();
    place.run("put", ["after it", "more"]).done();
    let tables = place.files(".sst");
    assert!(tables.len() > 1, "{tables:?}");
    std::fs::remove_file(&tables[0]).unwrap();
    let text = place.run("repair", NONE).done();
    assert!(text.text().contains("lost: all of 1 table"), "{}", text.text());
    assert!(!text.text().contains("nothing is lost"), "{}", text.text());
    assert_eq!(place.run("get", ["after it"]).done().out, b"more");
}

#[test]
fn what_nothing_names_is_told_and_no_damage() {
    let place = loaded();
    std::fs::copy(place.files(".sst").remove(0), place.store().join("999999.sst")).unwrap();
    let text = place.run("check", NONE).done();
    assert!(text.text().contains("nothing names") && text.text().contains("999999.sst"), "{}", text.text());
    let orphans = place.run("check", ["--json"]).done().json()["orphans"].clone();
    assert_eq!(orphans.as_array().unwrap().len(), 1, "{orphans}");
}

#[test]
fn a_table_that_is_missing_is_lost_where_the_manifest_is_too() {
    let place = loaded();
    place.run("put", ["in the log", "only"]).done();
    place.run("put", ["after it", "more"]).done();
    std::fs::remove_file(&place.files(".sst")[0]).unwrap();
    std::fs::remove_file(place.store().join("CURRENT")).unwrap();
    let is_manifest = |path: &std::path::PathBuf| path.to_str().unwrap().contains("MANIFEST-");
    let manifest = place.files("").into_iter().find(is_manifest).unwrap();
    let bytes = std::fs::read(&manifest).unwrap();
    flip_bit(&manifest, bytes.len() - 1);
    let text = place.run("repair", NONE).done();
    assert!(text.text().contains("no manifest") && text.text().contains("lost: all of 1 table"), "{}", text.text());
    assert!(text.text().contains("may be missing"), "{}", text.text());
}

#[test]
fn an_unfinished_copy_is_told() {
    let place = Place::new();
    place.write("copy/UNFINISHED-COPY", b"");
    let copy = place.path("copy");
    for command in ["get", "stats"] {
        let key = (command == "get").then_some("key");
        let arguments = [command, copy.to_str().unwrap()].into_iter().chain(key);
        esker(arguments).failed(&["corruption", "not finished"]);
    }
}
