//! `import --files`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use esker::{Db, FamilyOptions, Options};

use crate::run::{NONE, Place, Ran, esker};

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn import(place: &Place, arguments: &[&str]) -> Ran {
    let tree = place.path("tree");
    place.run("import", ["--files", tree.to_str().unwrap()].iter().chain(arguments))
}

#[test]
fn every_regular_file_becomes_an_entry_and_is_read_back() {
    let place = Place::new();
    let large: Vec<u8> = (0..3_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    place.write("tree/large", &large);
    place.write("tree/dir/small", b"\x00\xff");
    place.write("tree/dir/empty", b"");
    let odd = place.path("tree").join(OsStr::from_bytes(b"not\xfftext\n"));
    std::fs::write(odd, "odd").unwrap();
    symlink("large", place.path("tree/link")).unwrap();
    symlink(".", place.path("tree/loop")).unwrap();

    let summary = import(&place, &["--json"]).done().json();
    assert_eq!((&summary["keys"], &summary["skipped"], &summary["not_read"]), (&4.into(), &2.into(), &0.into()));
    assert_eq!((&summary["read_back"]["equal"], &summary["read_back"]["differing"]), (&4.into(), &0.into()));
    assert_eq!(summary["bytes"], summary["read_back"]["bytes"]);
    for name in ["bytes_on_disk", "write_amplification", "seconds", "bytes_per_second"] {
        assert!(summary[name].as_f64().unwrap() > 0.0, "{name} in {summary}");
    }
    // What the closed store takes, not what an open one preallocates.
    let total: u64 = place.files("").iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(summary["bytes_on_disk"], total);
    assert_eq!(place.run("scan", ["--keys"]).done().text(), "dir/empty\ndir/small\nlarge\nnot\\xfftext\\x0a\n");
    assert_eq!(place.run("get", ["large"]).done().out, large);
    assert_eq!(place.run("get", ["dir/small"]).done().out, b"\x00\xff");
    place.run("check", NONE).done();
}

/// Goal: whose key a store refuses is told, and what is imported before it.
#[test]
fn a_file_whose_key_is_refused_is_named() {
    let place = Place::new();
    let refused = place.write("tree/b_with_a_long_name", b"2");
    place.write("tree/a", b"1");
    // The longest key of a Cask has 65,535 bytes.
    let prefix = "p".repeat(65_534);
    let arguments = ["--kind", "cask", "--batch-bytes", "1KiB", "--prefix", &prefix];
    let words = ["importing ", refused.to_str().unwrap(), "65535", "1 entry is imported"];
    let ran = import(&place, &arguments).failed(&words);
    assert!(!ran.err.contains("run again"), "{}", ran.err);
}

#[test]
fn the_summary_can_be_read() {
    let place = Place::new();
    place.write("tree/a", &[7; 5000]);
    let text = import(&place, &[]).done();
    for words in ["imported   1 key, 4.9 KiB in ", "on disk    ", "read back  1 key equal"] {
        assert!(text.text().contains(words), "{words:?} is not in {}", text.text());
    }
    assert!(import(&place, &["--no-read-back"]).done().text().contains("read back  nothing"));
}

#[test]
fn the_same_tree_can_be_imported_again_under_a_prefix_into_a_family_with_choices() {
    let place = Place::new();
    place.write("tree/a", &[1; 6000]);
    place.write("tree/b/c", b"2");
    for prefix in ["one/", "two/"] {
        let choices = ["--separation", "off", "--min-blob-size", "1KiB", "--compression", "snappy", "--sync"];
        let more = ["--blob-compression", "zstd", "--cf", "trees", "--prefix", prefix, "--batch-bytes", "1KiB"];
        import(&place, &[&choices[..], &more].concat()).done();
    }
    assert_eq!(place.run("scan", ["--keys", "--cf", "trees"]).done().text(), "one/a\none/b/c\ntwo/a\ntwo/b/c\n");
    assert_eq!(place.files(".blob").len(), 0);
    import(&place, &["--min-blob-size", "0", "--separation", "at-flush"]).done();
    assert_eq!(place.files(".blob").len(), 1);
}

#[test]
fn what_is_not_chosen_stays_as_the_family_has_it() {
    let place = Place::with(&[("k", "v")]);
    place.run("create-family", ["f", "--min-blob-size", "77", "--blob-compression", "zstd"]).done();
    place.write("tree/a", b"1");
    import(&place, &["--cf", "f", "--blob-compression", "none"]).done();
    let options =
        std::fs::read_to_string(place.files("").iter().rfind(|path| name_of(path).starts_with("OPTIONS")).unwrap());
    let of_family = options.unwrap().split_once("[CFOptions \"f\"]").unwrap().1.to_owned();
    for line in ["min_blob_size=77\n", "blob_compression_type=kNoCompression\n"] {
        assert!(of_family.contains(line), "{line} is not in {of_family}");
    }
}

#[test]
fn a_store_inside_the_tree_is_not_imported_into_itself() {
    let place = Place::new();
    place.write("tree/a", b"1");
    let (tree, store) = (place.path("tree"), place.path("tree/store"));
    for _ in 0..2 {
        esker([OsStr::new("import"), store.as_os_str(), OsStr::new("--files"), tree.as_os_str()]).done();
    }
    assert_eq!(esker([OsStr::new("count"), store.as_os_str()]).done().text(), "1\n");
}

#[test]
fn a_file_that_cannot_be_read_is_told_at_the_end_and_the_others_are_imported() {
    let place = Place::new();
    place.write("tree/a", b"1");
    let closed = place.write("tree/closed", b"2");
    place.write("tree/z", b"3");
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read(&closed).is_ok() {
        // Whoever may read everything cannot be refused; a file too long to be a value can.
        std::fs::File::options().write(true).open(&closed).unwrap().set_len(4 << 30).unwrap();
    }
    let ran = import(&place, &[]).failed(&[closed.to_str().unwrap(), "everything else is imported"]);
    assert!(ran.text().contains("not read   1 file"), "{}", ran.text());
    assert_eq!(place.run("scan", ["--keys"]).done().text(), "a\nz\n");
}

#[test]
fn a_store_does_not_import_its_own_files() {
    let place = Place::with(&[("k", "v")]);
    place.run("import", ["--files", place.store().to_str().unwrap()]).failed(&["the store itself"]);
    assert_eq!(place.run("count", NONE).done().text(), "1\n");
}

#[test]
fn a_missing_directory_leaves_no_store_behind() {
    let place = Place::new();
    import(&place, &[]).failed(&[place.path("tree").to_str().unwrap()]);
    assert!(!place.store().exists());
}

#[test]
fn a_kind_that_is_not_there_is_refused() {
    let place = Place::new();
    place.write("tree/a", b"v");
    import(&place, &["--kind", "cask"]).done();
    import(&place, &["--kind", "db"]).failed(&["this is a Cask", "--kind asks for a Db"]);
    import(&place, &["--kind", "cask"]).done();
    import(&place, &[]).done();
}

/// Goal: an import that the store ends says what of it is there, and the next one brings the rest.
#[test]
fn an_import_that_ends_midway_says_how_much_came_in_and_can_be_run_again() {
    const FILES: u32 = 200;
    let place = Place::new();
    let options = |max_disk_bytes| {
        let family = FamilyOptions { write_buffer_bytes: 1 << 20, ..FamilyOptions::default() };
        let families = [("default".to_owned(), family)].into();
        Options { create_if_missing: true, max_disk_bytes, families, ..Options::default() }
    };
    Db::open(place.store(), options(8 << 20)).unwrap().close().unwrap();
    for file in 0..FILES {
        // Noise, which does not pack.
        let mut state = file;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let bytes: Vec<u8> = noise.take(64 << 10).collect();
        place.write(&format!("tree/{file:03}"), &bytes);
    }
    let again = "the import can be run again";
    let ran = import(&place, &["--batch-bytes", "1"]).failed(&["exhausted: ", " entries are imported; ", again]);
    let said = ran.err.split(" entries are imported").next().unwrap().rsplit(' ').next().unwrap();
    assert_eq!(place.run("count", NONE).done().text().trim(), said, "{}", ran.err);
    import(&place, &["--sorted"]).failed(&["exhausted: ", "nothing is imported; ", again]);
    Db::open(place.store(), options(0)).unwrap().close().unwrap();
    import(&place, &[]).done();
    assert_eq!(place.run("count", NONE).done().text(), format!("{FILES}\n"));
}
