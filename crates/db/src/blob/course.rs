//! Has the system read on in blob files from which values are taken in the order in which they lie, as whoever moves them
//! does. Blob files are opened for random reads, so nobody else does.
//!
//! - C1: a file is read on only where one value was near behind the last: values here and there cost their own reads only.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::rocksdb::internal_key::FileNumber;

use super::BlobFile;

/// How far ahead of the last value the system is told to read.
const AHEAD_BYTES: u64 = 1 << 20;
/// Values are taken in order if there are no more bytes than this between two of them, in the middle: dead ones.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// Where values were taken last, of each file.
#[derive(Debug, Default)]
pub(crate) struct Course {
    files: BTreeMap<FileNumber, Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// Where the last record ended.
    end: u64,
    /// Up to where the system was told to read.
    told: u64,
}

impl Course {
    /// The record at `extent` of `blob` is about to be read.
    pub(crate) fn pass(&mut self, blob: &BlobFile, extent: &Range<u64>) {
        let place = self.files.entry(blob.number()).or_default();
        let follows = extent.start >= place.end && extent.start - place.end <= GAP_BYTES_MAX;
        if !follows {
            place.told = 0;
        } else if extent.end + AHEAD_BYTES / 2 > place.told {
            let until = extent.end.saturating_add(AHEAD_BYTES).min(blob.records_end());
            let from = place.told.max(extent.start);
            if from < until {
                blob.file.will_read(from..until);
            }
            place.told = place.told.max(until);
        }
        place.end = extent.end;
    }
}
