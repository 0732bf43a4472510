//! `stats`, `compact`.

use crate::run::{NONE, Place};

/// A store with tables and blob files.
fn loaded() -> Place {
    let place = Place::new();
    for number in 0..40u8 {
        place.write(&format!("tree/small{number}"), &[number; 100]);
        place.write(&format!("tree/large{number}"), &vec![number; 20_000]);
    }
    let tree = place.path("tree");
    let arguments = ["--files", tree.to_str().unwrap(), "--blob-compression", "none", "--compression", "none"];
    place.run("import", arguments).done();
    place
}

#[test]
fn stats_tell_levels_and_files() {
    let place = loaded();
    let stats = place.run("stats", ["--json"]).done().json();
    let family = &stats["families"][0];
    assert_eq!((family["name"].as_str(), family["entries"].as_u64()), (Some("default"), Some(80)));
    assert_eq!(family["blob_files"], 1);
    assert!(family["blob_live_bytes"].as_u64() >= Some(800_000), "{stats}");
    let on_disk = &stats["on_disk"];
    let files: u64 = place.files("").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(on_disk["total_bytes"], files);
    let tables: u64 = place.files(".sst").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((&on_disk["table_bytes"], &family["table_bytes"]), (&tables.into(), &tables.into()));

    let text = place.run("stats", NONE).done();
    for words in [place.store().to_str().unwrap(), "column family default: 80 entries", "1 blob file", "level"] {
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
}

#[test]
fn stats_tell_what_is_in_memory() {
    let place = loaded();
    place.run("put", ["k", "v"]).done();
    let stats = place.run("stats", ["--json"]).done().json();
    let (memory, cache) = (&stats["memory"], &stats["cache"]);
    let bytes = |name: &str| memory[name].as_u64().unwrap();
    assert!(bytes("memtable_bytes") > 0 && bytes("index_filter_bytes") > 0, "{stats}");
    assert_eq!(bytes("total_bytes"), bytes("memtable_bytes") + bytes("index_filter_bytes") + bytes("cache_bytes"));
    assert_eq!((&cache["used_bytes"], cache["hits"].is_u64()), (&memory["cache_bytes"], true), "{stats}");
    assert!(cache["capacity_bytes"].as_u64() > Some(0) && cache["misses"].is_u64(), "{stats}");
    let text = place.run("stats", NONE).done();
    for words in ["in memory", "memtables", "indexes and filters", "cache of ", " hits, "] {
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
}

#[test]
fn what_is_only_in_the_log_is_told_too() {
    let place = Place::with(&[("k", "v")]);
    assert!(place.run("stats", NONE).done().text().contains("1 batch in the log"));
}

#[test]
fn compaction_gives_the_space_of_deleted_values_back() {
    let place = loaded();
    // Some of it comes back in the background, while the deletions are made.
    let before = place.run("stats", ["--json"]).done().json()["on_disk"]["total_bytes"].as_u64().unwrap();
    for number in 0..40 {
        place.run("delete", [format!("large{number}")]).done();
    }
    let sizes = place.run("compact", ["--json"]).done().json();
    let after = sizes["bytes_after"].as_u64().unwrap();
    assert!(before > 800_000 && after < 100_000 && sizes["bytes_before"].as_u64().unwrap() >= after, "{sizes}");
    assert_eq!(place.run("count", NONE).done().text(), "40\n");
    assert!(place.run("compact", ["--from", "a", "--to", "z"]).done().text().contains(" after"));
    for (from, to) in [("z", "a"), ("a", "a")] {
        place.run("compact", ["--from", from, "--to", to]).failed(&["--from", from, "--to", to, "no key between"]);
    }
}
