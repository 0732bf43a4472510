//! Esker against the original systems' own tools: what RocksDB's `ldb`, `sst_dump` and `db_bench` say of stores that
//! Esker wrote, and what Esker says of stores that they wrote.
//!
//! | module        | what it is for                                                          |
//! |---------------|-------------------------------------------------------------------------|
//! | [`program`]   | runs one tool; a tool that is missing fails the test and says what to install |
//! | [`ldb`]       | RocksDB's administration tool: scan, put, delete, compact, consistency   |
//! | [`sst_dump`]  | RocksDB's table reader: every block's checksum, properties               |
//! | [`db_bench`]  | RocksDB's benchmark: fills stores, and looks up the keys of others'      |
//! | [`contents`]  | what a store holds, and the comparison of two of them                    |
//! | [`workload`]  | writes that leave every kind of entry behind, and the contents expected  |
//! | [`directory`] | a directory's bytes, to show that it was left alone                      |
//! | `newest`      | RocksDB's newest release, as a library (feature `rocksdb`)               |
//! | `raft`        | raft-engine itself, as a library: the same work on both (feature `raft-engine`) |
//!
//! Everything here asserts: a failure is the test's failure, and says what was run and what it printed.

pub mod contents;
pub mod db_bench;
pub mod directory;
pub mod ldb;
#[cfg(feature = "rocksdb")]
pub mod newest;
pub mod program;
#[cfg(feature = "raft-engine")]
pub mod raft;
pub mod sst_dump;
pub mod workload;
