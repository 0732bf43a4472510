//! Reads a blob file front to back and checks it.

use std::ops::Range;

use esker_format::checksum::crc32c_extend;
use esker_format::rocksdb::blob::holes::{behind_hole, has_hole};
use esker_format::rocksdb::blob::{BlobRecordHeader, FOOTER_BYTES, HEADER_BYTES, RECORD_HEADER_BYTES};

use super::BlobFile;
use crate::{Error, Result};

/// Read at once. Large enough for the device's full speed, and the only memory that a check needs.
const CHUNK_BYTES: usize = 256 << 10;

/// What a device writes whole.
const SECTOR_BYTES: u64 = 512;

const DOING: &str = "checking a blob file";

/// What [`BlobFile::check`] read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlobCheck {
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    /// What was passed over for its holes: no value that lives begins there.
    pub(crate) passed_over: Vec<Range<u64>>,
}

impl BlobFile {
    /// Reads every record and checks both of its CRCs; that records follow each other without gaps up to the footer; and
    /// that they are as many as it says. Packed values are not unpacked: reading one does that.
    ///
    /// Where reclaim made holes, which it does only in files with garbage (`may_have_holes`), a dead value has pages of zeroes,
    /// and is passed over. Whether it was dead, who follows pointers finds out.
    ///
    /// Cost: one sequential read, in chunks of 256 KiB, whatever the length of a record.
    ///
    /// # Errors
    /// Corruption at the first damaged record.
    pub(crate) fn check(&self, may_have_holes: bool) -> Result<BlobCheck> {
        let mut scan = Scan { blobs: self, next: HEADER_BYTES as u64, chunk: Vec::new(), used: 0 };
        let (mut blobs, mut is_whole, mut passed_over) = (0, true, Vec::new());
        while scan.left() > 0 {
            let at = scan.at();
            let Err(error) = scan.record() else {
                blobs += 1;
                continue;
            };
            let mut behind = if may_have_holes { self.behind_punched_value(at)? } else { None };
            if behind.is_some() {
                blobs += 1;
            } else if may_have_holes {
                // One that took a header with it, as Esker once made them.
                let read = |offset: u64, out: &mut [u8]| self.file.read_exact_at(offset, out);
                behind = behind_hole(at, self.records_end(), read)?;
                is_whole = false;
            }
            let Some(behind) = behind else { return Err(error) };
            passed_over.push(at..behind);
            scan.go_to(behind);
        }
        if is_whole && blobs != self.blob_count() {
            let reason = format!("{DOING}: holds {blobs} values, its footer says {}", self.blob_count());
            return Err(Error::corruption(&self.path, self.records_end(), reason));
        }
        Ok(BlobCheck { blobs, bytes: self.records_end() + FOOTER_BYTES as u64, passed_over })
    }

    /// Where the record at `at` ends, if its value has a hole.
    fn behind_punched_value(&self, at: u64) -> Result<Option<u64>> {
        let mut raw = [0; RECORD_HEADER_BYTES];
        if self.file.read_at(at, &mut raw)? < raw.len() {
            return Ok(None);
        }
        let Ok(header) = BlobRecordHeader::decode(&raw) else { return Ok(None) };
        let end = header.record_bytes().and_then(|bytes| at.checked_add(bytes));
        let Some(end) = end.filter(|&end| end <= self.records_end()) else { return Ok(None) };
        let mut sector = [0; SECTOR_BYTES as usize];
        let mut start = (end - header.value_bytes).next_multiple_of(SECTOR_BYTES);
        while start + SECTOR_BYTES <= end {
            self.file.read_exact_at(start, &mut sector)?;
            if has_hole(start, &sector) {
                return Ok(Some(end));
            }
            start += SECTOR_BYTES;
        }
        Ok(None)
    }
}

/// A walk over the records.
struct Scan<'a> {
    blobs: &'a BlobFile,
    /// Where in the file the bytes behind the chunk are.
    next: u64,
    chunk: Vec<u8>,
    /// Of the chunk.
    used: usize,
}

impl Scan<'_> {
    /// Where in the file the walk is.
    fn at(&self) -> u64 {
        self.next - (self.chunk.len() - self.used) as u64
    }

    /// Goes on at `offset`: within the chunk, if it lies there.
    fn go_to(&mut self, offset: u64) {
        let chunk_start = self.next - self.chunk.len() as u64;
        match offset.checked_sub(chunk_start).and_then(|used| usize::try_from(used).ok()) {
            Some(used) if used <= self.chunk.len() => self.used = used,
            _ => {
                self.chunk.clear();
                (self.next, self.used) = (offset, 0);
            }
        }
    }

    /// Bytes of records to come.
    fn left(&self) -> u64 {
        self.blobs.records_end() - self.at()
    }

    /// Reads and checks the next record.
    fn record(&mut self) -> Result<()> {
        let at = self.at();
        let damaged = |error| Error::decode(&self.blobs.path, at, DOING, error);
        let mut raw = [0; RECORD_HEADER_BYTES];
        let mut filled = 0;
        self.take(raw.len() as u64, |part| {
            raw.iter_mut().skip(filled).zip(part).for_each(|(to, from)| *to = *from);
            filled += part.len();
        })?;
        let header = BlobRecordHeader::decode(&raw).map_err(damaged)?;
        let Some(record_bytes) = header.record_bytes() else {
            return Err(Error::corruption(&self.blobs.path, at, format!("{DOING}: a record without end")));
        };
        let mut crc = 0;
        self.take(record_bytes - raw.len() as u64, |part| crc = crc32c_extend(crc, part))?;
        header.check_crc(crc).map_err(damaged)
    }

    /// Hands the next `count` bytes to `each`, in as many parts as they are read in.
    fn take(&mut self, count: u64, mut each: impl FnMut(&[u8])) -> Result<()> {
        if count > self.left() {
            let reason = format!("{DOING}: a record needs {count} bytes, {} are left before the footer", self.left());
            return Err(Error::corruption(&self.blobs.path, self.at(), reason));
        }
        let mut missing = count;
        while missing > 0 {
            if self.used == self.chunk.len() {
                self.read_chunk()?;
            }
            let rest = self.chunk.get(self.used..).unwrap_or_default();
            let part = rest.get(..usize::try_from(missing).unwrap_or(usize::MAX)).unwrap_or(rest);
            each(part);
            self.used += part.len();
            missing -= part.len() as u64;
        }
        Ok(())
    }

    fn read_chunk(&mut self) -> Result<()> {
        let left = self.blobs.records_end() - self.next;
        self.chunk.resize(usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES), 0);
        self.used = 0;
        let read = self.blobs.file.read_exact_at(self.next, &mut self.chunk);
        if read.is_err() {
            self.chunk.clear();
        }
        self.next += self.chunk.len() as u64;
        Ok(read?)
    }
}
