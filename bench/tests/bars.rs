//! Goal: the programs that measure bars leave a user's directory as they found it.
//! Method: each with as little work as it can have, in a directory where something lies under every name that they ever used.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What a user may have there.
const MINE: [&str; 6] = ["store/file", "log/file", "write_bars/file", "memory", "plain", "file"];

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// Runs a program in such a directory: it succeeds, and nothing has gone or come.
#[track_caller]
fn assert_leaves(program: &str, arguments: impl Fn(&str) -> Vec<String>) {
    let user = tempfile::tempdir().unwrap();
    for name in MINE {
        let path = user.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    let entries = fs::read_dir(user.path()).unwrap().count();
    let output = Command::new(program).args(arguments(user.path().to_str().unwrap())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in MINE {
        assert_eq!(fs::read(user.path().join(name)).ok().as_deref(), Some(&b"mine"[..]), "{name}");
    }
    assert_eq!(fs::read_dir(user.path()).unwrap().count(), entries);
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_file_beside_stays() {
    assert_leaves(env!("CARGO_BIN_EXE_cask_bars"), |dir| {
        words(&format!("--directory {dir} --only few,large --few-keys 1000 --large-values 5"))
    });
    assert_leaves(env!("CARGO_BIN_EXE_reclaim_bars"), |dir| {
        let rest = "--data-bytes 1048576 --value-bytes 4096 --keys uniform --parts space --overwrites 1";
        words(&format!("--directory {dir} {rest}"))
    });
    assert_leaves(env!("CARGO_BIN_EXE_raft_bars"), |dir| words(&format!("{dir} sync 1 1000 2")));
}

#[test]
fn a_log_that_is_not_whole_is_no_log_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("esker-raft-bars-open-0");
    let open = || run(env!("CARGO_BIN_EXE_raft_bars"), &[dir.path().to_str().unwrap(), "open", "0", "1"]);
    fs::create_dir(&own).unwrap();
    assert!(!open().status.success(), "it is somebody else's");
    assert!(own.exists());
    let state = |path: &Path| fs::read_to_string(path.join("made-by-raft-bars")).unwrap();
    fs::write(own.join("made-by-raft-bars"), "being filled").unwrap();
    fs::write(own.join("half"), "").unwrap();
    assert!(open().status.success());
    assert_eq!(state(&own), "whole");
    assert!(!own.join("half").exists(), "it is filled anew");
    fs::write(own.join("log/kept"), "").unwrap();
    assert!(open().status.success());
    assert!(own.join("log/kept").exists(), "what is whole stays");
}

#[test]
fn threads_and_entries_that_cannot_be_divided_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for arguments in [["write", "1", "15999", "1"], ["sync", "1", "1000", "0"], ["sync", "1", "1000", "1001"]] {
        let output = run(env!("CARGO_BIN_EXE_raft_bars"), &[&[dir][..], &arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !error.contains("panicked"), "{arguments:?}: {error}");
    }
}

#[test]
fn what_cannot_be_measured_overwrites_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let (table, stores) = (dir.path().join("table.md"), dir.path().join("stores"));
    fs::write(&table, "mine").unwrap();
    let [out, stores] = [&table, &stores].map(|path| path.to_str().unwrap());
    let output = run(env!("CARGO_BIN_EXE_reclaim_bars"), &["--parts", "bogus", "--out", out, "--directory", stores]);
    assert!(!output.status.success());
    assert_eq!(fs::read(&table).unwrap(), b"mine");
}
