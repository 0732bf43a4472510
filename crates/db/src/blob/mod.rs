//! One blob file: written once by a [`BlobWriter`], front to back, then read through a [`BlobFile`] by any number of threads.
//!
//! The bytes are [`esker_format::rocksdb::blob`]'s.

mod batch;
mod check;
mod read;
mod stored;
mod write;

pub(crate) use batch::{BlobBatch, Fetched};
pub(crate) use read::BlobFile;
pub(crate) use write::BlobWriter;

#[cfg(test)]
mod tests;
