//! One blob file: written once by a [`BlobWriter`], front to back, then read through a [`BlobFile`] by any number of threads.

mod read;
mod write;

pub(crate) use read::BlobFile;
pub(crate) use write::BlobWriter;

#[cfg(test)]
mod tests;
