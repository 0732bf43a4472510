//! One blob file: written once, front to back, by a [`BlobWriter`] or, as values come, as an [`ActiveBlob`]; read through a [`BlobFile`]
//! by any number of threads.
//!
//! The bytes are [`esker_format::rocksdb::blob`]'s.

mod active;
mod batch;
mod check;
mod course;
pub(crate) mod header;
mod read;
mod stored;
mod write;
mod written;

pub(crate) use active::{ActiveBlob, BlobSync, Held};
pub(crate) use batch::{Announced, BlobBatch, Fetched, Onward};
pub(crate) use course::Course;
pub(crate) use read::BlobFile;
pub(crate) use write::BlobWriter;
pub(crate) use written::{ActiveBlobs, WrittenBlobs};

#[cfg(test)]
mod tests;
