//! The files of RocksDB, both ways.

pub mod filter;
pub mod internal_key;
pub mod log;
pub mod write_batch;
