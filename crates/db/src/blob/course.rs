//! Reads values out of blob files in the order in which they lie, as whoever moves them does: many with one read, and has the system read on.
//! Blob files are opened for random reads, so nobody else does.
//!
//! - C1: a file is read on only where one value was near behind the last: values here and there cost their own reads only.
//! - C2: what lies around a value, and cannot be read, does not matter: then it is read by itself.
//!
//! Memory: [`CHUNK_BYTES`] for each of up to [`CHUNKS_MAX`] files.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::rocksdb::blob::BlobIndex;
use esker_format::rocksdb::internal_key::FileNumber;

use super::BlobFile;
use crate::Result;

/// How far ahead of the last value the system is told to read: less where values come out of many files, so much in all of them together as long
/// as it is not less than the least in each. What does not stay in the page cache until it is wanted is read twice.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
const AHEAD_BYTES_TOTAL: u64 = 8 << 20;
const AHEAD_BYTES_MIN: u64 = 64 << 10;
/// Values are taken in order if there are no more bytes than this between two of them, in the middle: dead ones.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Read at once: some dozens of values of 1 KiB. Values of which it does not hold [`VALUES_MIN`] are read by themselves.
const CHUNK_BYTES: u64 = 64 << 10;
const VALUES_MIN: u64 = 4;
const CHUNKS_MAX: usize = 128;

/// Where values were taken last, of each file.
#[derive(Debug, Default)]
pub(crate) struct Course {
    files: BTreeMap<FileNumber, Place>,
    chunks: usize,
}

#[derive(Debug, Default)]
struct Place {
    /// Where the last record ended.
    end: u64,
    /// Up to where the system was told to read.
    told: u64,
    /// What was read last, and from where on.
    chunk: Vec<u8>,
    chunk_start: u64,
}

impl Place {
    fn held(&self, extent: &Range<u64>) -> Option<&[u8]> {
        let from = usize::try_from(extent.start.checked_sub(self.chunk_start)?).ok()?;
        let count = usize::try_from(extent.end - extent.start).ok()?;
        self.chunk.get(from..from.checked_add(count)?)
    }

    /// Reads what lies at `start` and behind it; nothing where that fails (C2).
    fn fill(&mut self, blob: &BlobFile, start: u64) {
        let count = CHUNK_BYTES.min(blob.records_end().saturating_sub(start)) as usize;
        self.chunk.resize(count, 0);
        self.chunk_start = start;
        let read = blob.read_raw(start, &mut self.chunk).unwrap_or(0);
        self.chunk.truncate(read);
    }
}

impl Course {
    /// As [`BlobFile::read_stored`], with as few reads as the order allows; the value is in `record` or in what is held here.
    pub(crate) fn read_stored<'a>(
        &'a mut self,
        blob: &BlobFile,
        user_key: &[u8],
        index: &BlobIndex,
        record: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let extent = blob.extent(user_key, index)?;
        let follows = self.pass(blob, &extent);
        let Some(place) = self.files.get_mut(&blob.number()) else { return blob.read_stored(user_key, index, record) };
        let is_short = (extent.end - extent.start).saturating_mul(VALUES_MIN) <= CHUNK_BYTES;
        let may_keep = !place.chunk.is_empty() || self.chunks < CHUNKS_MAX;
        if place.held(&extent).is_none() && follows && is_short && may_keep {
            self.chunks += usize::from(place.chunk.is_empty());
            place.fill(blob, extent.start);
        }
        match place.held(&extent) {
            Some(held) => blob.checked(user_key, index, held),
            None => blob.read_stored(user_key, index, record),
        }
    }

    /// The record at `extent` of `blob` is about to be read. Whether it is near behind the last.
    pub(crate) fn pass(&mut self, blob: &BlobFile, extent: &Range<u64>) -> bool {
        let files = self.files.len() as u64;
        let ahead = (AHEAD_BYTES_TOTAL / files.max(1)).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let place = self.files.entry(blob.number()).or_default();
        let follows = extent.start >= place.end && extent.start - place.end <= GAP_BYTES_MAX;
        if !follows {
            place.told = 0;
        } else if extent.end + ahead / 2 > place.told {
            let until = extent.end.saturating_add(ahead).min(blob.records_end());
            let from = place.told.max(extent.start);
            if from < until {
                blob.file.will_read(from..until);
            }
            place.told = place.told.max(until);
        }
        place.end = extent.end;
        follows
    }
}
