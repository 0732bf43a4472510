//! RocksDB's benchmark, `db_bench`: fills stores, and looks up the keys of others' stores.

use std::path::Path;

use crate::program::{Outcome, fail, run};

/// Runs `db_bench` on the store with these arguments, however it ends.
#[track_caller]
pub fn attempt(store: &Path, arguments: &[&str]) -> Outcome {
    let mut all = vec![format!("--db={}", store.display())];
    all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    run("db_bench", &all, "")
}

/// Runs `db_bench` on the store with these arguments, must succeed, and gives what it printed.
#[track_caller]
pub fn db_bench(store: &Path, arguments: &[&str]) -> String {
    attempt(store, arguments).succeeded()
}

/// How [`assert_finds_every_key`] opens the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Leaves the files alone. The way for stores with several column families, which `db_bench` would otherwise want to
    /// know the names of.
    ReadOnly,
    /// Flushes the log first.
    Writable,
}

/// Looks up the keys of the default column family at random, which must all be found, and must be `key_count`.
#[track_caller]
pub fn assert_finds_every_key(store: &Path, key_count: usize, opening: Opening) {
    let mut arguments = vec!["--use_existing_db=1", "--use_existing_keys=1", "--benchmarks=readrandom", "--seed=11"];
    if opening == Opening::ReadOnly {
        // Read-only, with all files open and everything on one level, RocksDB 7.8 takes a short cut that finds no value
        // in a blob file, not even in its own stores. A bound on open files keeps it off that path.
        arguments.extend(["--readonly=1", "--open_files=1000"]);
    }
    let printed = db_bench(store, &arguments);
    let wanted = format!("({key_count} of {key_count} found)");
    if !printed.contains(&wanted) {
        fail(&format!("db_bench readrandom did not print {wanted:?}:\n{printed}"));
    }
}
