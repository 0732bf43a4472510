//! `import --sorted`.

use std::fmt::Write;
use std::io::Write as _;
use std::process::Stdio;

use crate::run::{NONE, Place, command, esker_with_input};

#[test]
fn sorted_lines_go_straight_into_tables_and_blob_files() {
    let place = Place::new();
    let mut lines = String::new();
    for id in 0..3000 {
        let text = if id % 3 == 0 { "x".repeat(5000) } else { "y".repeat(20) };
        writeln!(lines, "{{\"id\":\"{id:06}\",\"text\":\"{text}\"}}").unwrap();
    }
    let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id", "--sorted", "--json", "--prefix", "p/"]);
    let summary = esker_with_input(arguments, lines.as_bytes()).done().json();
    assert_eq!(summary["keys"], 3000);
    // The log was not written, nor anything twice.
    let factor = summary["write_amplification"].as_f64().unwrap();
    assert!(factor > 0.0 && factor < 1.1, "{factor}");
    assert_eq!(place.files(".blob").len(), 1);
    let line = lines.lines().nth(1500).unwrap();
    assert_eq!(place.run("get", ["p/001500"]).done().text(), line);
    assert_eq!(place.run("count", NONE).done().text(), "3000\n");
    place.run("check", NONE).done();

    // A second load hides what is there.
    let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id", "--sorted", "--prefix", "p/"]);
    esker_with_input(arguments, b"{\"id\":\"001500\"}\n{\"id\":\"z\"}\n").done();
    assert_eq!(place.run("get", ["p/001500"]).done().text(), "{\"id\":\"001500\"}");
    assert_eq!(place.run("count", NONE).done().text(), "3001\n");
    place.run("check", NONE).done();
}

#[test]
fn lines_that_do_not_ascend_are_told_by_number_and_nothing_is_imported() {
    for (lines, words) in [
        (
            "{\"id\":\"a\"}\n{\"id\":\"c\"}\n{\"id\":\"b\"}\n",
            "line 3: keys must ascend: \"b\" does not come after \"c\"",
        ),
        ("{\"id\":\"a\"}\n{\"id\":\"a\"}\n", "line 2: keys must ascend: \"a\" is there twice"),
        ("{\"id\":\"a\"}\n{\"id\":true}\n", "line 2: field \"id\" is neither"),
    ] {
        let place = Place::with(&[("k", "v")]);
        let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id", "--sorted"]);
        esker_with_input(arguments, lines.as_bytes()).failed(&[words, "nothing is imported"]);
        assert_eq!(place.run("scan", NONE).done().text(), "k\tv\n");
        // The table is what the log had before.
        assert_eq!((place.files(".sst").len(), place.files(".blob").len()), (1, 0));
    }
}

#[test]
fn files_that_were_begun_before_a_bad_line_go() {
    let place = Place::with(&[("k", "v")]);
    let text = "z".repeat(5000);
    let mut lines: String =
        (0..4000).fold(String::new(), |lines, id| lines + &format!("{{\"id\":\"{id:06}\",\"text\":\"{text}\"}}\n"));
    lines.push_str("{\"id\":true}\n");
    let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id", "--sorted"]);
    esker_with_input(arguments, lines.as_bytes()).failed(&["line 4001", "nothing is imported"]);
    assert_eq!((place.files(".sst").len(), place.files(".blob").len()), (1, 0));
    assert_eq!(place.run("scan", NONE).done().text(), "k\tv\n");
}

#[test]
fn a_tree_is_sorted_and_read_back() {
    let place = Place::new();
    place.write("tree/large", &vec![7; 3_000_000]);
    for name in ["tree/dir/small", "tree/dir.txt", "tree/dir/empty", "tree/z"] {
        place.write(name, name.as_bytes());
    }
    let tree = place.path("tree");
    let summary = place.run("import", ["--files", tree.to_str().unwrap(), "--sorted", "--json"]).done().json();
    assert_eq!((&summary["keys"], &summary["read_back"]["equal"]), (&5.into(), &5.into()));
    assert_eq!(place.run("scan", ["--keys"]).done().text(), "dir.txt\ndir/empty\ndir/small\nlarge\nz\n");
    place.run("check", NONE).done();
}

#[test]
fn what_cannot_be_sorted_is_refused() {
    let place = Place::new();
    place.write("tree/a", b"1");
    let tree = place.path("tree").to_str().unwrap().to_owned();
    place.run("import", ["--files", &tree, "--sorted", "--kind", "cask"]).failed(&["--sorted", "a Cask"]);
    assert!(!place.store().exists());
}

#[test]
fn an_interrupted_sorted_import_leaves_nothing() {
    let place = Place::with(&[("k", "v")]);
    let arguments = place.arguments("import", ["--jsonl", "-", "--key", "id", "--sorted"]);
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = "z".repeat(5000);
    // More than the pipe and all buffers hold, so that files were begun.
    for id in 0..4000 {
        writeln!(stdin, "{{\"id\":\"{id:06}\",\"text\":\"{text}\"}}").unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(place.run("scan", NONE).done().text(), "k\tv\n");
    place.run("put", ["l", "w"]).done();
    assert_eq!(place.run("count", NONE).done().text(), "2\n");
    assert_eq!(place.files(".blob").len(), 0, "what was written so far went when the store was opened");
    place.run("check", NONE).done();
}
