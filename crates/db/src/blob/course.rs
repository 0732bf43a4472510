//! Has the system read on in blob files from which values are taken in the order in which they lie, as whoever moves them
//! does. Blob files are opened for random reads, so nobody else does.
//!
//! - C1: a file is read on only where one value was near behind the last: values here and there cost their own reads only.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::rocksdb::internal_key::FileNumber;

use super::BlobFile;

/// How far ahead of the last value the system is told to read: less where values come out of many files, so much in all of them together as long
/// as it is not less than the least in each. What does not stay in the page cache until it is wanted is read twice.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
const AHEAD_BYTES_TOTAL: u64 = 8 << 20;
const AHEAD_BYTES_MIN: u64 = 64 << 10;
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
    }
}
