//! `torture`: a few seconds of it.

use crate::run::{Place, esker};

fn count_before(text: &str, words: &str) -> u64 {
    let before = text.split_once(words).unwrap().0;
    before.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn killed_processes_lose_nothing_that_they_acknowledged() {
    let place = Place::new();
    let store = place.store();
    for kind in [&["db"][..], &["db", "--at-write"], &["cask"], &["raft"]] {
        let asked = ["torture", store.to_str().unwrap(), "--minutes", "0.03", "--seed", "7", "--kind"];
        let ran = esker(asked.iter().chain(kind).copied());
        let text = ran.done().text().to_owned();
        assert!(count_before(&text, " processes killed") > 1, "{text}");
        assert!(count_before(&text, " operations acknowledged and found") > 50, "{text}");
        assert!(text.contains("no full disk in the rotation"), "{text}");
        assert!(!store.exists(), "its stores go when nothing is wrong");
    }
}

#[test]
fn what_is_in_a_directory_already_is_not_touched() {
    let place = Place::new();
    let store = place.store();
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(store.join("notes"), "mine").unwrap();
    esker(["torture", store.to_str().unwrap(), "--minutes", "0.01"]).failed(&["is not empty"]);
    let full = store.join("none");
    esker(["torture", place.store().join("x").to_str().unwrap(), "--full-disk", full.to_str().unwrap()])
        .failed(&["none"]);
    assert_eq!(std::fs::read(store.join("notes")).unwrap(), b"mine");
}
