//! RocksDB's benchmark, `db_bench`: fills stores, and looks up the keys of others' stores.

use std::path::Path;

use crate::directory;
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

/// What the store's OPTIONS file calls the merge operator of the default family, its first.
fn merge_operator(store: &Path) -> Option<String> {
    let files = directory::bytes(store);
    let (_, newest) = files.iter().rfind(|(name, _)| name.starts_with("OPTIONS-"))?;
    let newest = String::from_utf8_lossy(newest);
    let said = newest.lines().find_map(|line| line.trim().strip_prefix("merge_operator="))?;
    let id = said.trim_start_matches("{id=").split(';').next()?;
    (id != "nullptr").then(|| id.to_owned())
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
    // It takes the options from the file, but for this one.
    let operator = merge_operator(store).map(|operator| format!("--merge_operator={operator}"));
    arguments.extend(operator.as_deref());
    let printed = db_bench(store, &arguments);
    let wanted = format!("({key_count} of {key_count} found)");
    if !printed.contains(&wanted) {
        fail(&format!("db_bench readrandom did not print {wanted:?}:\n{printed}"));
    }
}
