//! `import --jsonl`.

use std::io::Write;
use std::process::Stdio;

use crate::run::{NONE, Place, command, esker_with_input};

#[test]
fn lines_are_imported_as_they_are() {
    let place = Place::new();
    let lines = "{\"id\": \"a\", \"n\": 1}\n\n{ \"n\":2,\"id\": 12345678901234567890.10 }\r\n{\"id\":\"\\u00fc\"}";
    let file = place.write("lines", lines.as_bytes());
    let summary = place.run("import", ["--jsonl", file.to_str().unwrap(), "--key", "id", "--json"]).done().json();
    assert_eq!(summary["keys"], 3);
    assert_eq!(place.run("get", ["a"]).done().out, b"{\"id\": \"a\", \"n\": 1}");
    assert_eq!(
        place.run("get", ["12345678901234567890.10"]).done().out,
        b"{ \"n\":2,\"id\": 12345678901234567890.10 }\r"
    );
    assert_eq!(place.run("get", ["ü"]).done().out, b"{\"id\":\"\\u00fc\"}");
}

#[test]
fn a_bad_line_is_told_and_nothing_behind_it_is_imported() {
    let cases = [
        ("{\"id\":", "line 3: not a JSON object"),
        ("[1]", "line 3: not a JSON object"),
        ("{\"id\":\"\u{0}\"}", "line 3: not a JSON object"),
        ("{\"ID\":1}", "line 3: there is no field \"id\""),
        ("{\"id\":true}", "line 3: field \"id\" is neither a string nor a number"),
    ];
    for (bad, words) in cases {
        let place = Place::new();
        let lines = format!("{{\"id\":1}}\n{{\"id\":2}}\n{bad}\n{{\"id\":4}}\n");
        let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id"]);
        esker_with_input(arguments, lines.as_bytes()).failed(&[
            "standard input",
            words,
            "the 2 entries before it are imported",
        ]);
        assert_eq!(place.run("scan", ["--keys"]).done().text(), "1\n2\n");
    }
}

#[test]
fn lines_go_to_a_family_with_a_prefix_and_later_ones_win() {
    let place = Place::new();
    let arguments = ["--jsonl", "-", "--key", "id", "--cf", "people", "--prefix", "p/", "--batch-bytes", "10"];
    let lines = "{\"id\":7,\"v\":1}\n{\"id\":8}\n{\"id\":7,\"v\":2}\n";
    esker_with_input(place.arguments("import", arguments), lines.as_bytes()).done();
    assert_eq!(place.run("scan", ["--cf", "people"]).done().text(), "p/7\t{\"id\":7,\"v\":2}\np/8\t{\"id\":8}\n");
    assert_eq!(place.run("count", NONE).done().text(), "0\n");
}

#[test]
fn a_missing_file_leaves_no_store_behind() {
    let place = Place::new();
    place.run("import", ["--jsonl", "/no/such/file", "--key", "id"]).failed(&["/no/such/file"]);
    let dir = place.path("");
    place.run("import", ["--jsonl", dir.to_str().unwrap(), "--key", "id"]).failed(&["reading", "is a directory"]);
    assert!(!place.store().exists());
}

#[test]
fn what_an_interrupted_import_has_written_is_a_whole_store() {
    let place = Place::with(&[]);
    place.run("put", ["0", "first", "--create"]).done();
    let arguments = ["--jsonl", "-", "--key", "id", "--batch-bytes", "1KiB"];
    let mut child = command(place.arguments("import", arguments)).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // Until nobody reads any more.
        (1..).take_while(|id| writeln!(stdin, "{{\"id\":{id}}}").is_ok()).count()
    });
    let count = || place.run("count", NONE).done().text().trim().parse::<u64>().unwrap();
    // Readers see the import go on.
    while count() < 1000 {}
    child.kill().unwrap();
    child.wait().unwrap();
    feeder.join().unwrap();
    place.run("check", NONE).done();
    let entries = place.run("scan", ["--raw", "--from", "1"]).done();
    assert!(entries.text().lines().count() >= 999);
    for line in entries.text().lines() {
        let (key, value) = line.split_once('\t').unwrap();
        assert_eq!(value, format!("{{\"id\":{key}}}"));
    }
}

/// Goal: what one store prints another takes, whatever the bytes, and whichever engine's it is.
#[test]
fn what_a_scan_prints_goes_into_another_store() {
    let place = Place::new();
    place.run("create", NONE).done();
    for (key, value) in [("00ff0a095c", "0d0a"), ("61", ""), ("6c61726765", &"ab".repeat(10_000))] {
        place.run("put", ["--hex", key, value]).done();
    }
    let printed = place.run("scan", ["--json"]).done().out;
    for kind in ["db", "cask"] {
        let other = Place::new();
        esker_with_input(other.arguments("import", ["--entries", "-", "--kind", kind]), &printed).done();
        let scanned = other.run("scan", ["--json"]).done().out;
        let sorted = |text: &[u8]| {
            let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&scanned), sorted(&printed), "{kind}");
    }
    let other = Place::new();
    let arguments = ["--entries", "-", "--sorted", "--column_family", "new", "--prefix", "p"];
    esker_with_input(other.arguments("import", arguments), &printed).done();
    assert_eq!(other.run("get", ["--cf", "new", "--hex", "7061"]).done().text(), "\n");
    assert_eq!(other.run("count", ["--column_family", "new"]).done().text(), "3\n");
}

/// Goal: what ends at a time still does in another Cask; one that keeps no times says so, and what is over is left out.
#[test]
fn what_expires_does_so_in_another_store() {
    let place = Place::new();
    place.run("create", ["--kind", "cask"]).done();
    place.run("put", ["stays", "x"]).done();
    place.run("put", ["ends", "y", "--ttl", "3600"]).done();
    let mut printed = place.run("scan", ["--json"]).done().out;
    let ends = |place: &Place| {
        let lines = place.run("scan", ["--json", "--keys"]).done().json_lines();
        let at = |line: &serde_json::Value| (line["key_hex"].as_str().unwrap().to_owned(), line["expires_at"].as_u64());
        lines.iter().map(at).collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = ends(&place);
    assert!(before["656e6473"].is_some() && before["7374617973"].is_none(), "{before:?}");
    printed.extend_from_slice(b"{\"key_hex\":\"6f766572\",\"value_hex\":\"\",\"expires_at\":1000000000}\n");
    let other = Place::new();
    esker_with_input(other.arguments("import", ["--entries", "-", "--kind", "cask"]), &printed).done();
    let after = ends(&other);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let late = after["656e6473"].unwrap() - before["656e6473"].unwrap();
    assert!(late <= 60 && after["7374617973"].is_none(), "{after:?}");
    let db = Place::new();
    esker_with_input(db.arguments("import", ["--entries", "-"]), &printed).failed(&["expires_at", "--kind cask"]);
}

#[test]
fn a_line_that_is_no_entry_is_told() {
    for (bad, words) in [
        ("{\"key_hex\":\"61\"}", "there is no field \"value_hex\""),
        ("{\"key_hex\":\"6\",\"value_hex\":\"\"}", "field \"key_hex\": not hexadecimal: 6"),
        ("{\"key_hex\":6,\"value_hex\":\"\"}", "field \"key_hex\""),
        ("6", "not a JSON object"),
        ("{\"key_hex\":\"61\",\"value_hex\":\"\",\"expires_at\":\"soon\"}", "field \"expires_at\""),
    ] {
        let place = Place::new();
        esker_with_input(place.arguments("import", ["--entries", "-"]), bad.as_bytes()).failed(&["line 1", words]);
    }
}
