//! RocksDB's table reader, `sst_dump`.

use std::path::Path;

use crate::directory;
use crate::program::run;

/// Fails unless `sst_dump` accepts every table in the directory: each block's checksum (`verify`), and each entry in
/// order (`check`). Gives the number of tables.
#[track_caller]
pub fn assert_tables_are_sound(store: &Path) -> usize {
    let table_count = directory::count(store, ".sst");
    if table_count == 0 {
        return 0;
    }
    let file = format!("--file={}", store.display());
    for command in ["--command=verify", "--command=check"] {
        // Without the flag `verify` reads the blocks and checks no checksum, whatever its name says.
        let arguments = [file.clone(), command.to_owned(), "--verify_checksum".to_owned()];
        let outcome = run("sst_dump", &arguments, "");
        // Damage is told on stderr, with status 0 and "The file is ok" all the same.
        if !outcome.stderr.is_empty() {
            outcome.give_up("complained");
        }
        let printed = outcome.succeeded();
        let seen = printed.matches("Sst file format: block-based").count();
        assert_eq!(seen, table_count, "sst_dump {command} read other tables than are there:\n{printed}");
    }
    table_count
}

/// The value of the property that `sst_dump` prints as `name`, of every table in the directory.
#[track_caller]
pub fn property(store: &Path, name: &str) -> Vec<String> {
    let arguments = [format!("--file={}", store.display()), "--command=check".into(), "--show_properties".into()];
    let printed = run("sst_dump", &arguments, "").succeeded();
    let start = format!("{name}: ");
    printed
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix(&start))
        .map(|value| value.trim().to_owned())
        .collect()
}
