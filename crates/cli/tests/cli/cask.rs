//! The commands on a Cask, whose kind they tell by its files.

use esker::{Db, Options};

use crate::run::{NONE, Place, esker, flip_bit};

fn created() -> Place {
    let place = Place::new();
    place.run("create", ["--kind", "cask"]).done();
    place
}

fn loaded() -> Place {
    let place = created();
    for (key, value) in [("ridge/1", "gravel"), ("ridge/2", "sand"), ("lake", "water")] {
        place.run("put", [key, value]).done();
    }
    place
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn keys_are_put_read_counted_scanned_and_deleted() {
    let place = loaded();
    assert_eq!(place.run("get", ["ridge/1"]).done().out, b"gravel");
    assert_eq!(place.run("get", ["lake", "--json"]).done().json()["value_hex"], "7761746572");
    place.run("get", ["river"]).no();
    assert_eq!(place.run("count", NONE).done().text(), "3\n");
    assert_eq!(place.run("count", ["--prefix", "ridge/"]).done().text(), "2\n");
    assert_eq!(sorted(place.run("scan", NONE).done().text()), ["lake\twater", "ridge/1\tgravel", "ridge/2\tsand"]);
    assert_eq!(sorted(place.run("scan", ["--prefix", "ridge/", "--keys"]).done().text()), ["ridge/1", "ridge/2"]);
    assert_eq!(place.run("scan", ["--limit", "2"]).done().text().lines().count(), 2);
    place.run("put", ["lake", "ice", "--sync"]).done();
    place.run("delete", ["ridge/1", "--sync"]).done();
    place.run("delete", ["ridge/1"]).done();
    assert_eq!(place.run("get", ["lake"]).done().out, b"ice");
    assert_eq!(place.run("count", NONE).done().text(), "2\n");
    place.run("put", ["brief", "x", "--ttl", "1000"]).done();
    assert_eq!(place.run("get", ["brief"]).done().out, b"x");
    place.run("put", ["never", "x", "--ttl", "0"]).failed(&["time to live"]);
}

#[test]
fn versions_are_kept_for_who_does_not_know_of_them() {
    let place = Place::new();
    place.run("create", ["--kind", "cask", "--keep-versions", "2"]).done();
    for value in ["one", "two", "three"] {
        place.run("put", ["key", value]).done();
    }
    place.run("put", ["other", "x"]).done();
    place.run("compact", NONE).done();
    assert_eq!(place.run("history", ["key"]).done().text(), "3\tthree\n2\ttwo\n");
    assert_eq!(place.run("history", ["key", "--json"]).done().text().lines().count(), 2);
    assert_eq!(place.run("get", ["key", "--version", "2"]).done().out, b"two");
    place.run("get", ["key", "--version", "1"]).no();
    place.run("history", ["none"]).no();
    assert_eq!(place.run("stats", ["--json"]).done().json()["keep_versions"], 2);
    // Keys, not versions.
    assert_eq!(place.run("count", NONE).done().text(), "2\n");
    assert_eq!(sorted(place.run("scan", NONE).done().text()), ["key\tthree", "other\tx"]);
    let db = Place::new();
    db.run("put", ["key", "value", "--create"]).done();
    db.run("history", ["key"]).failed(&["a Db keeps no versions"]);
    db.run("get", ["key", "--version", "1"]).failed(&["a Db keeps no versions"]);
    Place::new().run("create", ["--keep-versions", "2"]).failed(&["--kind cask"]);
    Place::new().run("create", ["--kind", "cask", "--keep-versions", "0"]).failed(&["at least 1"]);
}

#[test]
fn who_writes_to_a_damaged_store_is_warned_too() {
    let place = loaded();
    let path = place.files(".data").remove(0);
    let bytes = std::fs::read(&path).unwrap();
    flip_bit(&path, bytes.windows(6).position(|bytes| bytes == b"gravel").unwrap());
    let lines = place.write("lines", b"{\"id\":1}\n");
    let import = place.run("import", ["--jsonl", lines.to_str().unwrap(), "--key", "id"]);
    let put = place.run("put", ["lake", "ice"]);
    for ran in [import, put] {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("damage in 1 place") && ran.err.contains("of 1 key the newest"), "{}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    assert_eq!(place.run("get", ["lake"]).out, b"ice");
}

/// Whose record it was cannot be told, so an older value might be shown.
#[test]
fn nobody_writes_to_a_store_whose_damage_hides_keys() {
    let place = loaded();
    let path = place.files(".data").remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    // The head of the first record.
    bytes[32..56].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let lines = place.write("lines", b"{\"id\":1}\n");
    place.run("import", ["--jsonl", lines.to_str().unwrap(), "--key", "id"]).failed(&[
        "corruption",
        "at byte 32",
        "repair",
    ]);
    place.run("put", ["lake", "ice"]).failed(&["corruption", "at byte 32", "repair"]);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    place.run("repair", NONE);
    place.run("put", ["lake", "ice"]).done();
    assert_eq!(place.run("get", ["lake"]).done().out, b"ice");
}

#[test]
fn damage_in_an_older_version_hides_no_newer_one_and_is_told_once() {
    for damaged in ["gravel-two", "gravel-three"] {
        let place = Place::new();
        place.run("create", ["--kind", "cask", "--keep-versions", "3"]).done();
        for value in ["gravel-one", "gravel-two", "gravel-three"] {
            place.run("put", ["key", value]).done();
        }
        place.run("put", ["other", "x"]).done();
        // With a hint, so that the damage is met by who reads the record.
        place.run("compact", NONE).done();
        let path = place.files(".data").remove(0);
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(damaged.len()).position(|bytes| bytes == damaged.as_bytes()).unwrap();
        flip_bit(&path, at);
        let (scan, count) = (place.run("scan", NONE), place.run("count", NONE));
        // Where the newest version is damaged, no older one is shown for it.
        let is_older = damaged == "gravel-two";
        let shown = if is_older { vec!["key\tgravel-three", "other\tx"] } else { vec!["other\tx"] };
        assert_eq!((scan.code, sorted(scan.text())), (1, shown), "{damaged}: {}", scan.err);
        assert!(scan.err.contains(": 1 place could not be read") && scan.err.lines().count() == 2, "{}", scan.err);
        assert_eq!((count.code, count.text()), (1, if is_older { "2\n" } else { "1\n" }), "{damaged}");
        assert_eq!(place.run("get", ["key"]).code, if is_older { 0 } else { 2 });
    }
}

#[test]
fn a_key_is_there_or_not() {
    let (cask, db) = (loaded(), Place::new());
    db.run("put", ["lake", "water", "--create"]).done();
    for place in [cask, db] {
        assert!(place.run("exists", ["lake"]).done().out.is_empty());
        place.run("exists", ["river"]).no();
        assert_eq!(place.run("exists", ["lake", "--json"]).done().json()["exists"], true);
    }
}

#[test]
fn what_can_be_read_of_a_damaged_store_is_shown() {
    let place = loaded();
    place.run("put", ["lake", "ice"]).done();
    // In the newest value of "lake", of which an older one is there.
    let path = place.files(".data").remove(0);
    let end = std::fs::read(&path).unwrap().iter().rposition(|&byte| byte != 0).unwrap();
    flip_bit(&path, end);
    let (scan, count) = (place.run("scan", NONE), place.run("count", NONE));
    assert_eq!((scan.code, sorted(scan.text())), (1, vec!["ridge/1\tgravel", "ridge/2\tsand"]));
    assert!(scan.err.contains("1 place could not be read") && scan.err.contains("000001.data at byte"), "{}", scan.err);
    assert_eq!((count.code, count.text()), (1, "2\n"));
    let get = place.run("get", ["ridge/1"]);
    assert_eq!((get.code, &get.out[..]), (0, &b"gravel"[..]));
    assert!(get.err.contains("of 1 key the newest value is lost"), "{}", get.err);
    let get = place.run("get", ["lake"]);
    assert_eq!((get.code, get.out.len()), (2, 0));
    assert!(get.err.contains("the newest record of the key is damaged"), "{}", get.err);
    let checked = place.run("check", ["--json"]);
    assert_eq!(checked.no().json()["damaged_keys"], serde_json::json!(["6c616b65"]));
    let repaired = place.run("repair", ["--json"]).done().json();
    assert_eq!(repaired["damaged_keys"], serde_json::json!(["6c616b65"]));
    assert_eq!(place.run("get", ["lake"]).done().out, b"water");
}

#[test]
fn who_asks_for_what_a_cask_has_not_is_told_where_it_is() {
    let place = loaded();
    place.run("gc", NONE).failed(&["esker compact"]);
    place.run("gc", ["--dry-run"]).failed(&["esker stats"]);
    let lines = place.path("lines");
    std::fs::write(&lines, "{\"k\":\"a\"}\n").unwrap();
    let lines = lines.to_str().unwrap();
    place.run("import", ["--jsonl", lines, "--key", "k", "--ttl", "1000"]).done();
    let data = place.files(".data").remove(0);
    assert!(esker(["dump", data.to_str().unwrap()]).done().text().contains("expires_at="));
    let manifest = place.store().join("MANIFEST");
    let dumped = esker(["dump", manifest.to_str().unwrap()]).done();
    assert!(dumped.text().contains("keep_versions=1") && dumped.text().contains("salt="), "{}", dumped.text());
    std::fs::remove_file(manifest).unwrap();
    for command in [&["get", "a"][..], &["scan"], &["stats"], &["put", "a", "b"]] {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).failed(&["no manifest", "repair"]);
    }
    let db = Place::new();
    db.run("import", ["--jsonl", lines, "--key", "k", "--ttl", "1000"]).failed(&["--ttl needs a Cask"]);
}

#[test]
fn what_needs_an_order_or_a_column_family_is_refused() {
    let place = loaded();
    for (command, arguments) in [
        ("scan", &["--from", "a"][..]),
        ("scan", &["--to", "a"]),
        ("scan", &["--reverse"]),
        ("count", &["--from", "a"]),
        ("compact", &["--from", "a"]),
    ] {
        place.run(command, arguments).failed(&["in order", "a Cask has none"]);
    }
    for command in [&["get", "k"][..], &["put", "k", "v"], &["delete", "k"], &["scan"], &["count"], &["compact"]] {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments.iter().chain(&["--cf", "other"])).failed(&["--cf", "a Cask has none"]);
    }
    for command in
        [&["families"][..], &["create-family", "f"], &["drop-family", "f"], &["gc"], &["delete-range", "a", "b"]]
    {
        let (name, arguments) = command.split_first().unwrap();
        place.run(name, arguments).failed(&["does not work on a Cask"]);
    }
    place.run("delete", ["lake", "--single"]).failed(&["--single is a Db's"]);
    esker(["raft", "stats", place.store().to_str().unwrap()]).failed(&["does not work on a Cask"]);
    assert_eq!(place.run("count", NONE).done().text(), "3\n");
    Place::with(&[("k", "v")]).run("put", ["k", "v", "--ttl", "9"]).failed(&["--ttl", "Cask"]);
}

#[test]
fn a_tree_is_imported_and_every_value_read_back() {
    let place = created();
    for number in 0..200u32 {
        let bytes: Vec<u8> = (0..number * 90).map(|byte| (byte ^ number) as u8).collect();
        place.write(&format!("tree/{}/{number}", number % 7), &bytes);
    }
    let tree = place.path("tree");
    let done = place.run("import", ["--files", tree.to_str().unwrap(), "--json", "--compression", "lz4"]).done().json();
    assert_eq!((&done["keys"], &done["read_back"]["equal"]), (&200.into(), &200.into()));
    let value = place.run("get", ["3/150"]).done();
    assert_eq!(value.out, std::fs::read(tree.join("3/150")).unwrap());
    place.run("check", NONE).done();
    place.run("import", ["--files", tree.to_str().unwrap(), "--cf", "f"]).failed(&["--cf"]);
    place.run("import", ["--files", tree.to_str().unwrap(), "--min-blob-size", "9"]).failed(&["--compression"]);
}

#[test]
fn an_import_makes_a_cask_and_takes_lines_of_json() {
    let place = Place::new();
    let lines = place.write("lines", b"{\"id\":1,\"a\":2}\n{\"id\":\"x\"}\n");
    let arguments = ["--kind", "cask", "--jsonl", lines.to_str().unwrap(), "--key", "id"];
    place.run("import", arguments).done();
    assert_eq!(place.run("get", ["1"]).done().out, b"{\"id\":1,\"a\":2}");
    let stats = place.run("stats", ["--json"]).done().json();
    assert_eq!((&stats["keys"], &stats["records"]), (&2.into(), &2.into()));
    place.run("create", ["--kind", "db"]).failed(&["there is already a Cask"]);
    Place::new().run("import", ["--kind", "raft", "--jsonl", lines.to_str().unwrap(), "--key", "id"]).failed(&["raft"]);
}

#[test]
fn compaction_takes_back_what_is_dead() {
    let place = created();
    let value = "x".repeat(5000);
    for _ in 0..6 {
        place.run("put", ["key", &value]).done();
    }
    let before = place.run("stats", ["--json"]).done().json();
    assert_eq!((&before["keys"], &before["dead_records"]), (&1.into(), &5.into()));
    assert!(place.run("stats", NONE).done().text().contains("superseded"));
    let done = place.run("compact", ["--json"]).done().json();
    assert!(done["bytes_after"].as_u64() < Some(6000) && done["bytes_before"].as_u64() > Some(30_000), "{done}");
    assert_eq!(place.run("get", ["key"]).done().out, value.as_bytes());
    assert_eq!(place.run("stats", ["--json"]).done().json()["dead_records"], 0);
}

#[test]
fn damage_is_found_and_repair_serves_the_rest() {
    let place = loaded();
    assert!(place.run("check", NONE).done().text().contains("3 of them alive"));
    // The file of the second key, in its value or key.
    let path = place
        .files(".data")
        .into_iter()
        .find(|path| std::fs::read(path).unwrap().windows(4).any(|bytes| bytes == b"sand"))
        .unwrap();
    let at = std::fs::read(&path).unwrap().windows(4).position(|bytes| bytes == b"sand").unwrap();
    flip_bit(&path, at);
    let found = place.run("check", ["--json"]).no().json();
    assert_eq!((&found["damaged"], &found["errors"][0]["path"]), (&true.into(), &path.to_str().unwrap().into()));
    let done = place.run("repair", ["--json"]).done().json();
    assert_eq!((done["put_aside"].as_array().unwrap().len(), done["damaged_bytes"].as_u64() > Some(0)), (1, true));
    place.run("check", NONE).done();
    assert_eq!(place.run("get", ["ridge/1"]).done().out, b"gravel");
    place.run("get", ["ridge/2"]).no();
}

#[test]
fn a_store_without_its_manifest_is_damaged() {
    let place = loaded();
    std::fs::remove_file(place.store().join("MANIFEST")).unwrap();
    assert!(place.run("check", NONE).no().text().contains("no manifest"));
    assert_eq!(place.run("check", ["--json"]).no().json()["damaged"], true);
    place.run("get", ["ridge/1"]).failed(&["corruption", "repair"]);
    place.run("repair", NONE).done();
    place.run("check", NONE).done();
}

/// Goal: what the next open for writing would remove is told before, with its size, and is no damage.
#[test]
fn a_check_tells_of_data_files_that_nothing_names() {
    let place = loaded();
    let [file] = &place.files(".data")[..] else { panic!("{:?}", place.files(".data")) };
    assert_eq!(place.run("check", ["--json"]).done().json()["orphans"], serde_json::json!([]));
    let orphan = place.store().join("000777.data");
    std::fs::write(&orphan, [&std::fs::read(file).unwrap()[..], &[7; 10]].concat()).unwrap();
    let bytes = std::fs::metadata(&orphan).unwrap().len();
    let told = place.run("check", NONE).done();
    let path = orphan.to_str().unwrap();
    assert!(told.text().contains(&format!("nothing names {path}, of ")), "{}", told.text());
    assert!(told.text().ends_with("no damage\n"), "{}", told.text());
    let told = place.run("check", ["--json"]).done().json();
    assert_eq!(told["orphans"], serde_json::json!([{"path": path, "bytes": bytes}]));
}

/// Goal: what lies behind the end of a file is told as damage there, and a repair mends it.
#[test]
fn a_check_tells_of_what_lies_behind_the_end_of_a_file() {
    let place = loaded();
    place.run("compact", NONE).done();
    let [file] = &place.files(".data")[..] else { panic!("{:?}", place.files(".data")) };
    let raw = std::fs::read(file).unwrap();
    std::fs::write(file, raw.repeat(2)).unwrap();
    let told = place.run("check", ["--json"]).no().json();
    assert_eq!(told["errors"][0]["offset"], raw.len());
    assert!(place.run("check", NONE).no().text().contains("lie behind its end"));
    assert!(place.run("repair", NONE).done().text().contains("put aside: "));
    assert!(place.run("check", NONE).done().text().contains("no damage"));
    assert_eq!(place.run("get", ["lake"]).done().out, b"water");
}

#[test]
fn a_check_says_what_a_repair_would_do_with_files_that_were_mixed_up() {
    let place = loaded();
    place.run("compact", NONE).done();
    for key in ["fen", "moor"] {
        place.run("put", [key, "peat"]).done();
    }
    let [first, second] = &place.files(".data")[..] else { panic!("{:?}", place.files(".data")) };
    let between = place.path("between");
    for (from, to) in [(first, &between), (second, first), (&between, second)] {
        std::fs::rename(from, to).unwrap();
    }
    place.run("get", ["lake"]).failed(&["corruption", ".data", "run a repair"]);
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let expected = format!(
        "5 records in 2 files\nnamed again as its head says: {first} is {second}\nnamed again as its head says: {second} is {first}\n"
    );
    let told = place.run("check", NONE).no();
    assert!(told.text().contains(&format!("`esker repair` would say of it:\n{expected}1 damage;")), "{}", told.text());
    let told = place.run("check", ["--json"]).no().json();
    assert_eq!(told["repair"]["renamed"][0], serde_json::json!({"from": first, "to": second}));
    assert_eq!(place.run("repair", NONE).done().text(), expected);
    assert!(place.run("check", ["--json"]).done().json()["repair"].is_null());
    assert_eq!(place.run("get", ["lake"]).done().out, b"water");
    assert_eq!(place.run("count", NONE).done().text(), "5\n");
    // Another store's under a name of this one.
    let other = loaded();
    let foreign = std::fs::read(other.files(".data").remove(0)).unwrap();
    std::fs::write(place.files(".data").remove(0), &foreign).unwrap();
    let told = place.run("check", NONE).no();
    let done = place.run("repair", NONE).done();
    assert!(
        told.text().contains(done.text()) && done.text().contains("put aside, as another store's"),
        "{}",
        done.text()
    );
    assert!(done.text().contains(".data is not there"), "{}", done.text());
    assert_eq!(std::fs::read(place.files(".damaged").remove(0)).unwrap(), foreign);
    place.run("check", NONE).done();
}

#[test]
fn copies_are_stores_of_their_own() {
    let place = loaded();
    for (command, refusal) in [("checkpoint", "empty"), ("backup", "went on by itself")] {
        let target = place.path(command);
        let target = target.to_str().unwrap();
        let made = place.run(command, [target, "--json"]).done().json();
        assert_eq!((made["files"].as_u64(), made["version"].as_u64()), (Some(1), Some(3)), "{made}");
        assert_eq!(made["linked"].as_u64(), Some(u64::from(command == "checkpoint")), "{made}");
        if command == "backup" {
            assert!(place.run(command, [target]).done().text().contains(" 1 kept, 0 B copied"));
        }
        esker(["put", target, "lake", "ice"]).done();
        assert_eq!(esker(["count", target]).done().text(), "3\n");
        assert_eq!(place.run("get", ["lake"]).done().out, b"water");
        place.run(command, [target]).failed(&[refusal]);
    }
    place.run("check", NONE).done();
}

#[test]
fn stores_of_every_kind_are_made_once() {
    for (kind, name) in [("db", "a Db"), ("cask", "a Cask"), ("raft", "a Raft log")] {
        let place = Place::new();
        place.run("create", ["--kind", kind]).done();
        place.run("create", ["--kind", kind]).failed(&[name]);
    }
    let place = Place::new();
    place.run("create", ["--separation", "off", "--compression", "zstd"]).done();
    place.run("put", ["k", "v"]).done();
    Place::new().run("create", ["--kind", "cask", "--separation", "off"]).failed(&["only in a Db"]);
}

#[test]
fn every_file_of_a_cask_is_printed_and_damage_told() {
    let place = loaded();
    place.run("delete", ["ridge/2"]).done();
    let dump = |path: &std::path::Path| esker(["dump", path.to_str().unwrap(), "--json"]);
    let lines: Vec<_> = place.files(".data").iter().flat_map(|path| dump(path).done().json_lines()).collect();
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).count();
    assert_eq!((of("put"), of("delete")), (3, 1));
    assert!(lines.iter().any(|line| line["value_hex"] == "67726176656c" && line["key_hex"] == "72696467652f31"));
    place.run("compact", NONE).done();
    let hints: Vec<_> = place.files(".hint").iter().flat_map(|path| dump(path).done().json_lines()).collect();
    for key in ["6c616b65", "72696467652f31"] {
        assert!(hints.iter().any(|line| line["what"] == "put" && line["key_hex"] == key), "{hints:?}");
    }
    let manifest = dump(&place.store().join("MANIFEST")).done().json_lines();
    assert_eq!(manifest[0]["what"], "manifest");
    let file = manifest.iter().find(|line| line["what"] == "file" && line["state"] == "sealed").unwrap();
    for field in ["number", "salt", "clean_as_of", "data_bytes", "records"] {
        assert!(file[field].is_u64(), "{field}: {file}");
    }

    let holds = |path: &std::path::PathBuf| std::fs::read(path).unwrap().windows(6).any(|bytes| bytes == b"gravel");
    let path = place.files(".data").into_iter().find(holds).unwrap();
    let at = std::fs::read(&path).unwrap().windows(6).position(|bytes| bytes == b"gravel").unwrap();
    flip_bit(&path, at);
    assert!(dump(&path).no().json_lines().iter().any(|line| line["what"] == "damage"));
}

/// Goal: a file of a Db's that lies in a Cask makes it no Db: neither is it read as one, nor does a repair make one of it.
#[test]
fn a_stray_current_makes_no_db_of_a_cask() {
    for has_manifest in [true, false] {
        let place = loaded();
        std::fs::write(place.store().join("CURRENT"), "").unwrap();
        if !has_manifest {
            std::fs::remove_file(place.store().join("MANIFEST")).unwrap();
            let report = Db::repair(place.store(), Options::default()).unwrap_err().to_string();
            assert!(report.contains("as a Cask does") && report.contains("move away"), "{report}");
            place.run("repair", NONE).done();
        }
        assert_eq!(place.run("get", ["ridge/1"]).done().out, b"gravel");
        place.run("check", NONE).done();
        assert!(place.files(".dbtmp").is_empty() && !place.store().join("IDENTITY").exists());
    }
}
