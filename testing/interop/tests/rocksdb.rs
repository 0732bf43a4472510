//! Esker and RocksDB's own tools on the same directories.

mod at_write;
mod both_write;
mod esker_writes;
mod ingest;
mod refused;
mod rocksdb_writes;
mod ttl;

/// Goal: no file of tests is left out.
#[test]
fn every_file_is_named_here() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_named = include_str!("rocksdb.rs").contains(&format!("\nmod {name};\n"));
        assert!(
            is_named || ["rocksdb", "newest", "stores", "raft_engine"].contains(&name),
            "{}: no module of this program",
            path.display()
        );
    }
}
