//! Makes the small stores of RocksDB's newest release that `tests/stores.rs` reads where there is no such RocksDB:
//!
//!   bench/rocksdb ~/rocksdb-lib cargo run -p esker-interop --features rocksdb --example make_stores -- testing/interop/stores
//!
//! A store that is there already is left alone: what a release wrote stays.

use std::fs;
use std::path::Path;

use esker_interop::contents::{must, text};
use esker_interop::newest::{self, CASES};

/// What CI is to read of the newest release's.
const KEPT: [&str; 6] =
    ["defaults", "blobs", "keys apart", "keys apart, with hashes", "uniform indexes", "dictionaries"];

fn main() {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("usage: make_stores DIRECTORY");
        std::process::exit(2);
    };
    for (seed, case) in CASES.iter().enumerate().filter(|(_, case)| KEPT.contains(&case.name)) {
        let name = format!("rocksdb-11.8.1 {}", case.name).replace(", ", " ").replace(' ', "-");
        let store = Path::new(&directory).join(&name);
        if store.exists() {
            println!("{name} is there");
            continue;
        }
        let expected = newest::fill(&store, case, seed as u64, 500, 400);
        for file in must("listing a store", fs::read_dir(&store)) {
            let path = must("listing a store", file).path();
            let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
            // Nothing that a store needs.
            if file.starts_with("LOG") || file == "LOCK" {
                must("removing a file", fs::remove_file(&path));
            }
        }
        let contents = store.with_file_name(format!("{name}.contents"));
        must("writing what is in it", fs::write(contents, text(&expected)));
        println!("{name} is made");
    }
}
