//! C programs, built with the header and the library as a user would, and run.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the lint's leave for tests does not reach what tests share")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where cargo puts the library: beside the tests.
fn library_dir() -> PathBuf {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(dir.join("libesker_c.so").exists() || dir.join("libesker_c.dylib").exists(), "no library in {dir:?}");
    dir
}

fn run(command: &mut Command) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|error| {
        panic!("{command:?}: {error}; this needs a C compiler (Debian: apt-get install gcc), or its name in CC")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What the program `source` prints in an empty directory.
fn printed(source: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (dir, library) = (tempfile::tempdir().unwrap(), library_dir());
    let program = dir.path().join("program");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut cc = Command::new(compiler);
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]).arg(root.join(source));
    cc.arg("-I").arg(root.join("include")).arg("-L").arg(&library).arg("-lesker_c");
    run(cc.arg(format!("-Wl,-rpath,{}", library.display())).arg("-o").arg(&program));
    String::from_utf8(run(Command::new(&program).arg(dir.path())).stdout).unwrap()
}

#[test]
fn the_tour_shows_what_it_says() {
    let expected = "bern: 0.1 million\nbe...: berlin\nbe...: bern\nsession was there\nentry 1: put a\nentry 2: put b\n";
    assert_eq!(printed("examples/tour.c"), expected);
}

/// Goal: each call of the ordered store does what the header says, and what it does when it cannot.
#[test]
fn an_ordered_store_does_what_its_header_says() {
    assert_eq!(printed("tests/programs/db.c"), "done\n");
}

/// Goal: the same of what is copied from it, checked in it, and brought to it as files.
#[test]
fn copies_and_files_of_an_ordered_store_are_what_its_header_says() {
    assert_eq!(printed("tests/programs/copies.c"), "done\n");
}

#[test]
fn values_that_live_for_a_time_do_as_its_header_says() {
    assert_eq!(printed("tests/programs/ttl.c"), "done\n");
}

#[test]
fn a_hash_store_does_what_its_header_says() {
    assert_eq!(printed("tests/programs/cask.c"), "done\n");
}

#[test]
fn a_raft_log_does_what_its_header_says() {
    assert_eq!(printed("tests/programs/raft_log.c"), "done\n");
}

/// Goal: nothing that the header declares goes untried.
#[test]
fn every_function_is_called_by_a_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/esker.h")).unwrap();
    let sources = ["db.c", "copies.c", "ttl.c", "cask.c", "raft_log.c", "must.h"]
        .map(|name| root.join("tests/programs").join(name));
    let programs: String = sources.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let declared = header.lines().filter(|line| line.ends_with(");") && !line.starts_with("typedef"));
    let names = declared.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    let names: Vec<&str> = names.filter(|name| name.starts_with("esker_")).collect();
    assert!(names.len() > 90, "{names:?}");
    let untried: Vec<_> = names.iter().filter(|name| !programs.contains(&format!("{name}("))).collect();
    assert!(untried.is_empty(), "{untried:?}");
}
