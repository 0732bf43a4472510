//! Every byte that Esker puts on disk, and nothing else: no I/O, no clock, and no `unsafe` but for one instruction.
//!
//! - F1: decoding is total. Any input gives a value or a [`DecodeError`]; nothing panics, and nothing is allocated
//!   before the input has shown that it is that long.
//! - F2: encoding writes explicit little-endian and named hashes only; the host's byte order never reaches a file.
//! - F3: one module per format. Its head shows the layout as a table, its tests hold golden bytes.
//!
//! | room            | bytes                                                                    |
//! |-----------------|--------------------------------------------------------------------------|
//! | [`cursor`], [`varint`] | integers and length-prefixed strings                              |
//! | [`checksum`]    | CRC-32C (plain and masked), xxHash, XXH3: the trailers of records and blocks |
//! | [`compression`] | none, Snappy, Zlib, LZ4, Zstandard as RocksDB frames them                |
//! | [`file_name`]   | what a name in a store's directory says                                  |
//! | [`kept`]        | none: what a thread keeps to pack and read them                           |
//! | [`limits`]      | the longest key, value and file, and which field's width says so         |
//! | `lz4`           | LZ4 blocks, for [`compression`] and [`raft`]                             |
//! | [`shown`]       | none: what `Debug` shows of a user's bytes                                |
//! | [`xxph3`]       | the hash of RocksDB's filters                                            |
//! | [`zeroes`]      | none: whether there are any                                              |
//! | [`raft`]        | the files of [raft-engine](https://github.com/tikv/raft-engine)           |
//! | [`cask`]        | the files of Esker's hash engine                                         |
//! | [`rocksdb`]     | the files of [RocksDB](https://github.com/facebook/rocksdb)              |

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod cask;
pub mod checksum;
pub mod compression;
pub mod cursor;
pub mod error;
pub mod file_name;
pub mod kept;
pub mod limits;
mod lz4;
pub mod raft;
pub mod rocksdb;
pub mod shown;
pub mod varint;
pub mod xxph3;
pub mod zeroes;

pub use error::{DecodeError, DecodeErrorKind};
