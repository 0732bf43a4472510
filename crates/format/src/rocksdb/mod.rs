//! The files of RocksDB, both ways: logs and manifests are framed alike ([`log`]), what they hold is a [`write_batch`] or a
//! [`version_edit`]; tables and blob files are made of blocks and records under [`internal_key`]s.
//!
//! Bytes of every release since LevelDB are read where their meaning is known; what is written, 7.8 and later read.

pub mod blob;
pub mod blob_refs;
pub mod block;
pub mod filter;
pub mod internal_key;
pub mod log;
pub mod log_note;
pub mod options_file;
pub mod order;
pub mod prefix;
pub mod table;
pub mod ttl;
pub mod version_edit;
pub mod write_batch;
