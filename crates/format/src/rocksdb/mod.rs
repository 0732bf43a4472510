//! The files of RocksDB, both ways.

pub mod internal_key;
