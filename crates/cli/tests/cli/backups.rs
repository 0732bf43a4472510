//! `esker backups …`

use crate::run::{NONE, Place, esker, flip_bit};

fn set(place: &Place) -> String {
    place.path("set").to_str().unwrap().to_owned()
}

#[test]
fn generations_are_made_listed_checked_restored_and_deleted() {
    let place = Place::with(&[("key", "first")]);
    let set = set(&place);
    esker(["backups", "list", &set]).failed(&["no set of backups", "set", "No such file"]);
    let store = place.store();
    let store = store.to_str().unwrap();
    let made = esker(["backups", "create", store, &set, "--json"]).done().json();
    assert_eq!((made["id"].as_u64(), made["kept"].as_u64()), (Some(1), Some(0)), "{made}");
    assert_eq!(made["damaged"].as_array().map(Vec::len), Some(0), "{made}");
    place.run("put", ["key", "second"]).done();
    let text = esker(["backups", "create", store, &set]).done();
    assert!(text.text().starts_with("generation 2\n") && text.text().contains(" 1 kept"), "{}", text.text());
    let listed = esker(["backups", "list", &set, "--json"]).done().json_lines();
    assert_eq!(listed.iter().map(|info| info["id"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!((listed[0]["files"].as_u64(), listed[1]["files"].as_u64()), (Some(1), Some(2)), "{listed:?}");
    assert_eq!(listed[0]["bytes_of_its_own"], 0, "{listed:?}");
    let text = esker(["backups", "list", &set]).done();
    assert!(text.text().contains(" UTC") && text.text().contains("of its own"), "{}", text.text());
    assert!(esker(["backups", "check", &set, "1"]).done().text().contains("no damage"));
    for (id, value) in [("1", "first"), ("2", "second")] {
        let target = place.path(&format!("restored{id}"));
        let target = target.to_str().unwrap();
        let done = esker(["backups", "restore", &set, id, target, "--json"]).done().json();
        assert_eq!(done["linked"], 0, "{done}");
        assert_eq!(esker(["get", target, "key"]).done().text().trim_end(), value);
        esker(["put", target, "key", "another"]).done();
        // As it is, a generation is a store to read.
        assert_eq!(esker(["get", &format!("{set}/00000{id}"), "key"]).done().text().trim_end(), value);
    }
    esker(["backups", "delete", &set, "1", "3"]).failed(&["not found", "generation 3"]);
    assert_eq!(esker(["backups", "list", &set, "--json"]).done().json_lines().len(), 1);
    esker(["backups", "create", store, &set]).done();
    assert_eq!(esker(["backups", "keep", &set, "1"]).done().text(), "2\n");
    assert_eq!(esker(["backups", "list", &set, "--json"]).done().json()["id"], 3);
}

#[test]
fn damage_of_a_generation_is_told() {
    let place = Place::with(&[("key", "value")]);
    let (set, store) = (set(&place), place.store());
    let store = store.to_str().unwrap();
    esker(["backups", "create", store, &set]).done();
    let is_table = |path: &std::path::PathBuf| path.extension().is_some_and(|ending| ending == "sst");
    let files = std::fs::read_dir(place.path("set/000001")).unwrap().map(|entry| entry.unwrap().path());
    flip_bit(&files.into_iter().find(is_table).unwrap(), 20);
    assert!(esker(["backups", "check", &set, "1"]).no().text().contains("1 damage"));
    let text = esker(["backups", "create", store, &set]).done();
    assert!(text.text().contains("damage of an earlier generation"), "{}", text.text());
    esker(["backups", "check", &set, "2"]).done();
    let target = place.path("restored");
    esker(["backups", "restore", &set, "1", target.to_str().unwrap()]).failed(&["corruption", "000001"]);
    assert!(!target.exists());
}

#[test]
fn what_is_no_set_is_refused() {
    let place = Place::with(&[("key", "value")]);
    let store = place.store();
    let store = store.to_str().unwrap();
    esker(["backups", "list", store]).failed(&["invalid argument", "this is a store"]);
    esker(["backups", "create", store, store]).failed(&["invalid argument", "this is a store"]);
    place.write("full/letter.txt", b"contents");
    let full = place.path("full");
    esker(["backups", "create", store, full.to_str().unwrap()]).failed(&["invalid argument", "letter.txt"]);
    let set = set(&place);
    esker(["backups", "create", place.path("none").to_str().unwrap(), &set]).failed(&["not found"]);
    assert!(!std::path::Path::new(&set).exists());
    esker(["backups", "create", store, &set]).done();
    let other = Place::with(&[("key", "value")]);
    esker(["backups", "create", other.store().to_str().unwrap(), &set]).failed(&["conflict", "another store"]);
    place.run("check", NONE).done();
    let cask = Place::new();
    cask.run("create", ["--kind", "cask"]).done();
    esker(["backups", "create", cask.store().to_str().unwrap(), &set]).failed(&["Cask"]);
}
