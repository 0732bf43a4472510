//! `families`, `create-family`, `drop-family`, `set-options`, `--cf`.

use crate::run::{NONE, Place};

#[test]
fn families_are_made_listed_and_dropped() {
    let place = Place::with(&[("k", "default's")]);
    place.run("create-family", ["other", "--separation", "off", "--compression", "zstd"]).done();
    place.run("put", ["k", "other's", "--cf", "other"]).done();
    assert_eq!(place.run("get", ["k"]).done().out, b"default's");
    assert_eq!(place.run("get", ["k", "--cf", "other"]).done().out, b"other's");
    assert_eq!(place.run("count", ["--cf", "other"]).done().text(), "1\n");
    assert_eq!(place.run("scan", ["--cf", "other"]).done().text(), "k\tother's\n");

    let listed = place.run("families", ["--json"]).done().json_lines();
    let names: Vec<_> = listed.iter().map(|family| family["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "other"]);
    assert!(place.run("families", NONE).done().text().contains("\nother "));
    let separations: Vec<_> = listed.iter().map(|family| family["separation"].as_str().unwrap()).collect();
    assert_eq!((separations[1], &listed[1]["compression"]), ("off", &"ZSTD".into()));
    let text = place.run("families", NONE).done();
    assert!(
        text.text().lines().zip(["separation", separations[0], "off"]).all(|(line, word)| line.ends_with(word)),
        "{}",
        text.text()
    );

    place.run("delete", ["k", "--cf", "other"]).done();
    place.run("get", ["k", "--cf", "other"]).no();
    place.run("compact", ["--cf", "other"]).done();
    place.run("drop-family", ["other"]).done();
    place.run("get", ["k", "--cf", "other"]).failed(&["other", "no column family"]);
    assert_eq!(place.run("get", ["k"]).done().out, b"default's");
}

/// Options of a family change where it is, and stay so; the merge operator does not.
#[test]
fn options_of_a_family_are_changed() {
    let place = Place::with(&[("k", "v")]);
    place.run("create-family", ["other", "--separation", "off"]).done();
    place.run("set-options", ["--cf", "other", "--separation", "at-write", "--min-blob-size", "77"]).done();
    place.run("set-options", ["--cf", "other", "--compression", "zstd"]).done();
    let listed = place.run("families", ["--json"]).done().json_lines();
    assert_eq!((&listed[1]["separation"], &listed[1]["compression"]), (&"at-write".into(), &"ZSTD".into()));
    assert_eq!((&listed[0]["separation"], &listed[0]["compression"]), (&"at-flush".into(), &"LZ4".into()));
    place.run("set-options", NONE).failed(&["nothing to change"]);
    place.run("set-options", ["--cf", "nobody", "--compression", "zstd"]).failed(&["nobody"]);
    place.run("set-options", ["--merge-operator", "max"]).failed(&["--merge-operator"]);
}

/// The order of a family is chosen once; what goes by prefixes is refused in another than that of bytes.
#[test]
fn a_family_has_its_own_order() {
    let place = Place::with(&[("k", "v")]);
    let backward = "rocksdb.ReverseBytewiseComparator";
    place.run("create-family", ["backward", "--comparator", backward]).done();
    for key in ["a", "c", "b"] {
        place.run("put", [key, "v", "--cf", "backward"]).done();
    }
    assert_eq!(place.run("scan", ["--keys", "--cf", "backward"]).done().text(), "c\nb\na\n");
    assert_eq!(place.run("scan", ["--keys", "--from", "b", "--cf", "backward"]).done().text(), "b\na\n");
    place.run("scan", ["--prefix", "a", "--cf", "backward"]).failed(&[backward, "bounds"]);
    place.run("delete-range", ["a", "c", "--cf", "backward"]).failed(&[backward, "cannot begin"]);
    place.run("delete-range", ["c", "a", "--cf", "backward"]).done();
    assert_eq!(place.run("count", ["--cf", "backward"]).done().text(), "1\n");
    assert!(place.run("families", NONE).done().text().ends_with(&format!("\nbackward is ordered by {backward}\n")));
    assert_eq!(place.run("families", ["--json"]).done().json_lines()[1]["comparator"], backward);
    place.run("compact", ["--from", "c", "--to", "a", "--cf", "backward"]).done();
    place.run("compact", ["--from", "a", "--to", "c", "--cf", "backward"]).failed(&["there is no key between"]);
    place.run("create-family", ["x", "--comparator", "none"]).failed(&["RocksDB's own"]);
}

#[test]
fn families_that_cannot_be_made_or_dropped_are_refused() {
    let place = Place::with(&[("k", "v")]);
    place.run("create-family", ["default"]).failed(&["default"]);
    place.run("drop-family", ["default"]).failed(&["default"]);
    place.run("drop-family", ["nobody"]).failed(&["nobody"]);
    place.run("create-family", ["x", "--compression", "zip"]).failed(&["zip"]);
}

#[test]
fn gc_takes_back_what_overwritten_values_left_and_a_dry_run_says_so_before() {
    let place = Place::with(&[("k", "v")]);
    place.run("create-family", ["large", "--min-blob-size", "100", "--blob-compression", "none"]).done();
    // Little enough garbage for `gc` to find it: more is taken back in the background.
    for (round, count) in [50, 7].into_iter().enumerate() {
        let line =
            |n: usize| format!("{{\"id\":\"key{n:02}\",\"value\":\"{}\"}}\n", format!("{round}/{n} ").repeat(100));
        let file = place.write("lines", (0..count).map(line).collect::<String>().as_bytes());
        place.run("import", ["--jsonl", file.to_str().unwrap(), "--key", "id", "--cf", "large"]).done();
        place.run("compact", ["--cf", "large"]).done();
    }
    let plan = || place.run("gc", ["--dry-run", "--cf", "large", "--min-garbage", "0", "--json"]).done().json_lines();
    let before = plan()[0].clone();
    assert_eq!(before["name"], "large");
    assert!(before["freed_bytes"].as_u64().unwrap() > 1000, "{before}");
    place.run("gc", ["--dry-run"]).done();
    let done = place.run("gc", ["--min-garbage", "0", "--json", "--cf", "large"]).done().json_lines()[0].clone();
    let freed = done["bytes_before"].as_u64().unwrap() - done["bytes_after"].as_u64().unwrap();
    assert_eq!(freed, before["freed_bytes"].as_u64().unwrap());
    assert_eq!(plan()[0]["freed_bytes"], 0);
    assert!(place.run("gc", NONE).done().text().contains("default: "));
    place.run("check", NONE).done();
    place.run("gc", ["--min-garbage", "2"]).failed(&["must be in 0..=1"]);
}
