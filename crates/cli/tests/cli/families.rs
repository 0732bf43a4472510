//! `families`, `create-family`, `drop-family`, `--cf`.

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

    place.run("delete", ["k", "--cf", "other"]).done();
    place.run("get", ["k", "--cf", "other"]).no();
    place.run("compact", ["--cf", "other"]).done();
    place.run("drop-family", ["other"]).done();
    place.run("get", ["k", "--cf", "other"]).failed(&["other", "no column family"]);
    assert_eq!(place.run("get", ["k"]).done().out, b"default's");
}

#[test]
fn families_that_cannot_be_made_or_dropped_are_refused() {
    let place = Place::with(&[("k", "v")]);
    place.run("create-family", ["default"]).failed(&["default"]);
    place.run("drop-family", ["default"]).failed(&["default"]);
    place.run("drop-family", ["nobody"]).failed(&["nobody"]);
    place.run("create-family", ["x", "--compression", "zip"]).failed(&["zip"]);
}
