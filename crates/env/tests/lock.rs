//! Goal: the lock of a directory keeps other processes out, by the kind of lock that RocksDB takes.
//! Method: the test binary runs itself as the other process.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use esker_env::Env;

const PATH_VARIABLE: &str = "ESKER_TEST_LOCK_PATH";

/// What another process finds when it tries to lock `path`.
fn tried_elsewhere(path: &Path) -> bool {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("taken") != said.contains("free"), "{said}");
    said.contains("free")
}

/// Does nothing unless it is the other process.
#[test]
fn the_other_process() {
    let Some(path) = env::var_os(PATH_VARIABLE).map(PathBuf::from) else {
        return;
    };
    match Env::os().files.lock(&path) {
        Ok(_) => println!("free"),
        Err(error) if error.kind() == ErrorKind::WouldBlock => println!("taken"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn another_process_is_kept_out_until_the_lock_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let files = Env::os().files;
    assert!(tried_elsewhere(&path));
    let lock = files.lock(&path).unwrap();
    assert!(!tried_elsewhere(&path));
    assert!(files.lock(&path).is_err());
    assert!(!tried_elsewhere(&path), "the refused attempt closed no descriptor of the locked file");
    drop(lock);
    assert!(tried_elsewhere(&path));
}
