//! `put`, `get`, `delete`, `delete-range`, `scan`, `count`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;

use crate::run::{NONE, Place, command, esker_with_input};

#[test]
fn what_was_put_can_be_got_until_it_is_deleted() {
    let place = Place::with(&[("key", "value")]);
    assert_eq!(place.run("get", ["key"]).done().out, b"value");
    place.run("put", ["key", "other", "--sync"]).done();
    assert_eq!(place.run("get", ["key"]).done().out, b"other");
    assert_eq!(place.run("delete", ["key", "--sync"]).done().out, b"");
    assert_eq!(place.run("get", ["key"]).no().out, b"");
    // Nothing to remove is not an error.
    place.run("delete", ["key"]).done();
}

#[test]
fn a_single_deletion_removes_what_was_put_once() {
    let place = Place::with(&[("key", "value"), ("other", "value")]);
    assert_eq!(place.run("delete", ["key", "--single", "--sync"]).done().out, b"");
    place.run("delete", ["none", "--single"]).done();
    place.run("get", ["key"]).no();
    place.run("compact", NONE).done();
    assert_eq!(place.run("scan", NONE).done().text(), "other\tvalue\n");
}

#[test]
fn a_range_of_keys_is_deleted_but_for_its_end() {
    let place = Place::with(&[("a", "1"), ("b", "1"), ("bb", "1"), ("c", "1"), ("d", "1")]);
    let keys = || place.run("scan", ["--keys"]).done().text().replace('\n', " ");
    assert_eq!(place.run("delete-range", ["b", "c"]).done().out, b"");
    assert_eq!(keys(), "a c d ");
    place.run("put", ["bb", "2"]).done();
    // What is not there is no error, and nothing is no range.
    for (begin, end) in [("x", "z"), ("a", "a")] {
        place.run("delete-range", [begin, end, "--sync"]).done();
    }
    place.run("compact", NONE).done();
    assert_eq!((keys(), place.run("get", ["bb"]).done().text()), ("a bb c d ".to_owned(), "2"));
    place.run("delete-range", ["--hex", "62", "64"]).done();
    assert_eq!(keys(), "a d ");
    place.run("delete-range", ["d", "a"]).failed(&["range", "\"d\"", "\"a\""]);
    place.run("delete-range", ["--hex", "6", "64"]).failed(&["not hexadecimal: 6"]);
    place.run("delete-range", ["a"]).failed(&["required"]);
    place.run("delete-range", ["a", "z", "--cf", "none"]).failed(&["none", "esker families"]);
    assert_eq!(keys(), "a d ");
    place.run("create-family", ["others"]).done();
    place.run("put", ["a", "1", "--cf", "others"]).done();
    place.run("delete-range", ["", "z", "--cf", "others"]).done();
    assert_eq!((keys(), place.run("count", ["--cf", "others"]).done().text()), ("a d ".to_owned(), "0\n"));
    Place::new().run("delete-range", ["a", "b"]).failed(&["no store"]);
}

#[test]
fn bytes_of_all_kinds_survive_arguments_files_and_output() {
    let place = Place::with(&[]);
    let key = OsStr::from_bytes(b"k\xff\xfe\n\t\\");
    let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let file = place.write("value", &value);
    let mut arguments = place.arguments("put", [key, OsStr::new("--create"), OsStr::new("--value-file")]);
    arguments.push(file.into());
    crate::run::esker(arguments).done();
    assert_eq!(place.run("get", [key]).done().out, value);
    assert_eq!(place.run("get", ["--hex", "6bfffe0a095c"]).done().out.len(), 200_001);

    let out = place.path("out");
    place.run("get", [key, OsStr::new("--out"), out.as_os_str()]).done();
    assert_eq!(std::fs::read(&out).unwrap(), value);
    std::fs::remove_file(&out).unwrap();
    place.run("get", [OsStr::new("nokey"), OsStr::new("--out"), out.as_os_str()]).no();
    assert!(!out.exists());

    let object = place.run("get", [key, OsStr::new("--json")]).done().json();
    assert_eq!(object["key_hex"], "6bfffe0a095c");
    assert_eq!(object["value_hex"].as_str().unwrap().len(), 200_000);
    let entries = place.run("scan", ["--json"]).done().json_lines();
    assert_eq!(entries, [object]);
}

#[test]
fn a_value_may_come_from_standard_input_and_be_empty() {
    let place = Place::new();
    esker_with_input(place.arguments("put", ["a", "--value-file", "-", "--create"]), b"from\0there\n").done();
    assert_eq!(place.run("get", ["a"]).done().out, b"from\0there\n");
    place.run("put", ["b", ""]).done();
    assert_eq!(place.run("get", ["b"]).done().out, b"");
    place.run("put", ["--", "-dash", "-value"]).done();
    assert_eq!(place.run("get", ["--", "-dash"]).done().out, b"-value");
    place.run("put", ["c"]).failed(&["required"]);
    place.run("put", ["c", "--value-file", "/no/such/file"]).failed(&["/no/such/file"]);
}

#[test]
fn scan_prints_entries_in_order_and_escapes_what_is_not_printable() {
    let place = Place::with(&[("b", "2"), ("a\tb", "1\\\n"), ("c", "größe")]);
    assert_eq!(place.run("scan", NONE).done().text(), "a\\x09b\t1\\\\\\x0a\nb\t2\nc\tgröße\n");
    assert_eq!(place.run("scan", ["--hex", "--limit", "1"]).done().text(), "610962\t315c0a\n");
    assert_eq!(place.run("scan", ["--raw", "--limit", "2"]).done().text(), "a\tb\t1\\\n\nb\t2\n");
    assert_eq!(place.run("scan", ["--keys", "--reverse"]).done().text(), "c\nb\na\\x09b\n");
    assert_eq!(place.run("scan", ["--keys", "--json", "--limit", "1"]).done().text(), "{\"key_hex\":\"610962\"}\n");
    assert_eq!(place.run("scan", ["--limit", "0"]).done().text(), "");
}

#[test]
fn ranges_bound_scans_and_counts_from_both_ends() {
    let place = Place::with(&[("a", ""), ("a1", ""), ("a2", ""), ("b", ""), ("c", "")]);
    let keys = |arguments: &[&str]| {
        let counted = place.run("count", arguments).done().text().trim().parse::<usize>().unwrap();
        let forwards = place.run("scan", ["--keys"].iter().chain(arguments)).done();
        let backwards = place.run("scan", ["--keys", "--reverse"].iter().chain(arguments)).done();
        let lines: Vec<_> = forwards.text().lines().collect();
        let reversed: Vec<_> = backwards.text().lines().rev().collect();
        assert_eq!((&lines, counted), (&reversed, lines.len()));
        lines.join(" ")
    };
    assert_eq!(keys(&[]), "a a1 a2 b c");
    assert_eq!(keys(&["--prefix", "a"]), "a a1 a2");
    assert_eq!(keys(&["--from", "a1", "--to", "c"]), "a1 a2 b");
    assert_eq!(keys(&["--prefix", "a", "--from", "a1", "--to", "a2"]), "a1");
    assert_eq!(keys(&["--from", "c"]), "c");
    assert_eq!(keys(&["--from", "c", "--to", "c"]), "");
    for command in ["scan", "count"] {
        place.run(command, ["--from", "c", "--to", "a"]).failed(&["--from c lies behind --to a"]);
    }
    assert_eq!(place.run("count", ["--json", "--hex", "--prefix", "61"]).done().json()["count"], 3);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::with(&[]);
    let lines: String = (0..20_000).map(|line| format!("{{\"k\":{line}}}\n")).collect();
    esker_with_input(place.arguments("import", ["--jsonl", "-", "--key", "k"]), lines.as_bytes()).done();
    let mut child = command(place.arguments("scan", NONE)).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "0\t{\"k\":0}\n");
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaint.as_str()), (Some(0), ""));
}
