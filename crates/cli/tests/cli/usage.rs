//! What is not understood is one line and exit code 2; what was asked for is printed.

use std::path::Path;

use esker::{Cask, CaskOptions};

use crate::raft;
use crate::run::{NONE, Place, command, esker};

const COMMANDS: [&str; 21] = [
    "create",
    "import",
    "get",
    "put",
    "delete",
    "delete-range",
    "scan",
    "count",
    "families",
    "create-family",
    "drop-family",
    "set-options",
    "stats",
    "check",
    "compact",
    "bench",
    "checkpoint",
    "backup",
    "repair",
    "dump",
    "completions",
];

#[test]
fn wrong_use_is_one_line_and_exit_code_2() {
    esker(["nonsense"]).failed(&["nonsense"]);
    esker(["chek"]).failed(&["'chek'; ", "'check'; see --help"]);
    for command in COMMANDS {
        esker([command]).failed(&["required"]);
        esker([command, "--nonsense", "store"]).failed(&["--nonsense"]);
    }
    esker(["scan", "store", "--limit", "many"]).failed(&["many"]);
    esker(["scan", "store", "--hex", "--raw"]).failed(&["--hex", "--raw"]);
    esker(["get", "store", "--hex", "xyz"]).failed(&["xyz"]);
    esker(["put", "store", "key", "value", "--value-file", "file"]).failed(&["--value-file"]);
    esker(["import", "store"]).failed(&["--files", "--jsonl"]);
    esker(["import", "store", "--files", "a", "--jsonl", "b", "--key", "c"]).failed(&["--files", "--jsonl"]);
    esker(["import", "store", "--jsonl", "b"]).failed(&["--key"]);
    esker(["import", "store", "--files", "a", "--batch-bytes", "1parsec"]).failed(&["parsec"]);
    assert_eq!(esker(NONE).code, 2);
}

#[test]
fn a_negative_number_is_refused_where_it_makes_no_sense_and_a_key_where_one_goes() {
    let place = Place::new();
    let refused = place.run("put", ["k", "v", "--ttl", "-1"]).failed(&["invalid value '-1' for '--ttl <SECONDS>'"]);
    assert!(!refused.err.contains("-- -1"), "{}", refused.err);
    place.run("scan", ["--limit", "-1"]).failed(&["invalid value '-1' for '--limit <"]);
    place.run("put", ["-1", "-2.5", "--create"]).done();
    assert_eq!(place.run("get", ["-1"]).done().text(), "-2.5");
}

#[test]
fn help_and_version_are_there_for_every_command() {
    assert!(esker(["--version"]).done().text().starts_with("esker "));
    let help = esker(["--help"]).done();
    for command in COMMANDS {
        assert!(help.text().contains(&format!("\n  {command} ")), "{command}");
        let help = esker([command, "--help"]).done();
        assert!(help.text().contains(&format!("Usage: esker {command} ")), "{command}");
    }
}

/// Goal: an answer that cannot be written is no answer, whoever gives it; that nobody reads it is no error.
#[test]
fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let place = Place::with(&[("key", "value")]);
    let (raft, store) = (raft::loaded(), place.store());
    let (log, log_file) = (raft.store(), raft.files(".raftlog").remove(0));
    let [store, log, log_file] = [&store, &log, &log_file].map(|path| path.to_str().unwrap());
    let wal = place.files(".log").remove(0);
    let answers: [&[&str]; 22] = [
        &["--help"],
        &["--version"],
        &["scan", "--help"],
        &["raft", "--help"],
        &["raft", "repair", "--help"],
        &["completions", "bash"],
        &["get", store, "key"],
        &["scan", store],
        &["scan", store, "--json"],
        &["count", store],
        &["families", store],
        &["stats", store],
        &["stats", store, "--json"],
        &["check", store],
        &["dump", wal.to_str().unwrap()],
        &["gc", store],
        &["repair", store],
        &["raft", "stats", log],
        &["raft", "check", log],
        &["raft", "dump", log],
        &["raft", "dump", log_file],
        &["raft", "purge", log],
    ];
    for arguments in answers {
        let said = command(arguments).output().unwrap();
        assert!(said.status.success() && !said.stdout.is_empty(), "{arguments:?}: {said:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = command(arguments).stdout(full).output().unwrap();
        let told = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(
            told.starts_with("esker: writing to standard output: ") && told.lines().count() == 1,
            "{arguments:?}: {told}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = command(arguments).stdout(writer).output().unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{arguments:?}: {ran:?}");
    }
}

#[test]
fn the_help_says_what_an_import_changes_for_good() {
    let help = esker(["import", "--help"]).done();
    assert!(help.text().contains("becomes the column family's own"), "{}", help.text());
}

#[test]
fn the_help_of_a_bench_has_only_a_raft_logs_options_under_their_heading() {
    let help = esker(["bench", "--help"]).done();
    let (others, raft) = help.text().split_once("Raft logs:\n").unwrap();
    for option in ["--cache-bytes", "--seed", "--use-existing", "--report", "--events"] {
        assert!(
            others.contains(&format!("\n      {option} ")) || others.contains(&format!("\n      {option}\n")),
            "{option}"
        );
        assert!(!raft.contains(&format!("      {option}")), "{option}");
    }
    assert!(raft.contains("--regions") && !others.contains("--regions"));
}

#[test]
fn every_argument_and_option_is_explained() {
    fn explained(words: &[&str]) {
        let help = esker(words.iter().copied().chain(["--help"])).done();
        let (mut lines, mut is_list) = (help.text().lines().peekable(), false);
        while let Some(line) = lines.next() {
            is_list = match line {
                "Arguments:" | "Options:" | "Raft logs:" => true,
                _ if line.starts_with(|first: char| !first.is_whitespace()) => false,
                _ => is_list,
            };
            let item = line.trim_start();
            // On the same line behind two spaces, or on the next one.
            let is_item = is_list && ["--", "<"].iter().any(|first| item.starts_with(first));
            if is_item && !item.contains("  ") {
                assert!(lines.peek().is_some_and(|next| !next.trim().is_empty()), "{words:?}: {item}");
            }
        }
    }
    COMMANDS.iter().for_each(|command| explained(&[command]));
    ["check", "dump", "fork", "purge", "repair", "stats"].iter().for_each(|command| explained(&["raft", command]));
}

#[test]
fn a_line_break_in_a_path_does_not_break_the_line() {
    let place = Place::new();
    let path = place.path("no\nstore");
    esker([std::ffi::OsStr::new("count"), path.as_os_str()]).failed(&["no\\nstore"]);
}

/// Goal: a line is a line, whatever the store is called, also where a crash has torn its last file.
#[test]
fn answers_about_a_path_with_a_line_break_have_no_line_more() {
    let place = Place::new();
    let torn_db = |dir: &str| {
        let store = place.path(dir);
        esker(["put".as_ref(), store.as_os_str(), "a".as_ref(), "b".as_ref(), "--create".as_ref()]).done();
        let log = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
        let log = log.filter(|path| path.extension().is_some_and(|found| found == "log")).max().unwrap();
        let bytes = std::fs::read(&log).unwrap();
        // A record that was begun.
        std::fs::write(&log, [&bytes[..], &bytes[..20]].concat()).unwrap();
        store
    };
    let torn_cask = |dir: &str| {
        let (open, store) = (place.path(&format!("{dir}-open")), place.path(dir));
        let options = CaskOptions { create_if_missing: true, ..CaskOptions::default() };
        let cask = Cask::open(&open, options).unwrap();
        for key in ["a", "b"] {
            cask.put(key, "value").unwrap();
        }
        std::fs::create_dir(&store).unwrap();
        for entry in std::fs::read_dir(&open).unwrap().map(|entry| entry.unwrap()) {
            let mut bytes = std::fs::read(entry.path()).unwrap();
            if entry.path().extension().is_some_and(|found| found == "data") {
                let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
                bytes.truncate(end - 2);
            }
            std::fs::write(store.join(entry.file_name()), bytes).unwrap();
        }
        store
    };
    for (plain, broken) in [(torn_db("db"), torn_db("db\nstore")), (torn_cask("cask"), torn_cask("cask\nstore"))] {
        for command in ["check", "stats"] {
            let lines = |store: &Path| {
                let ran = esker([command.as_ref(), store.as_os_str()]).done();
                ran.text().lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let (expected, found) = (lines(&plain), lines(&broken));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            let told = found.iter().find(|line| line.contains("torn"));
            assert!(command != "check" || told.is_some_and(|line| line.contains("\\nstore")), "{found:?}");
        }
    }
}

#[test]
fn shells_learn_to_complete_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = esker(["completions", shell]).done();
        for command in COMMANDS {
            assert!(script.text().contains(command), "{command} for {shell}");
        }
    }
    esker(["completions", "abacus"]).failed(&["abacus"]);
}
