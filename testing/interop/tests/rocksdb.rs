//! Esker and RocksDB's own tools on the same directories.

mod at_write;
mod both_write;
mod esker_writes;
mod ingest;
mod refused;
mod rocksdb_writes;
