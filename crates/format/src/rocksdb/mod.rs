//! The files of RocksDB, both ways.

pub mod block;
pub mod filter;
pub mod internal_key;
pub mod log;
pub mod table;
pub mod version_edit;
pub mod write_batch;
