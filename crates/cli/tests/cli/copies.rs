//! `checkpoint` and `backup` of a Db.

use crate::run::{NONE, Place, esker};

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
        assert!(esker(["verify", target]).done().text().contains("no damage"));
        esker(["put", target, "in the log", "of the copy"]).done();
        assert_eq!(place.run("get", ["in the log"]).done().out, b"only");
        // It is no backup only any more.
        place.run(command, [target]).failed(&[if command == "backup" { "written to" } else { "empty" }]);
    }
    place.run("verify", NONE).done();
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
