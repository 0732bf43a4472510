//! Appends records to a log in RocksDB's framing.
//!
//! - W1: what is staged reaches the file in one append.
//! - W2: after a failed append the file is as long as before it, so nothing of it remains and the next one may follow.
//! - W3: no append begins with the padding of a block: what is left of one is filled by the append before. So the first bytes
//!   of each are a header, which tells whether a process got to the end of it ([`AppendFile`]).
//! - W4: where that cannot be had, or a sync failed, the writer is broken: nobody knows what the file holds, and
//!   nothing more is written to it. Only a recovery can tell.
//!
//! Cost: one copy and one CRC of each record, one append per flush; no allocation once the buffer has grown. A record that goes
//! alone and has at most `FRAGMENTS_IN_PLACE` fragments is not copied: the file takes it from where it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_env::AppendFile;
use esker_format::rocksdb::log::{BLOCK_BYTES, Framer, Front, RECYCLABLE_HEADER_BYTES};

use crate::{Error, ErrorKind, Result};

/// The buffer is kept up to this capacity; one large record does not hold its memory for ever.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Fragments of a record that is not copied: up to 64 KiB at the least.
const FRAGMENTS_IN_PLACE: usize = 3;
/// No more than this is left of a block before a header.
const PADDING: [u8; RECYCLABLE_HEADER_BYTES - 1] = [0; RECYCLABLE_HEADER_BYTES - 1];

/// The writing end of a log.
pub struct LogWriter {
    file: Arc<dyn AppendFile>,
    /// Where the staged bytes end, in its block.
    framer: Framer,
    /// Framed and not yet in the file.
    staged: Vec<u8>,
    len: u64,
    /// W4. Syncs may come from other threads than appends.
    is_broken: AtomicBool,
}

impl LogWriter {
    /// At the start of `file`, which must be empty.
    pub fn new(file: Arc<dyn AppendFile>) -> Self {
        Self::at_end(file)
    }

    /// At the end of `file`, whose last record is whole: recovery cut off what was not.
    pub fn at_end(file: Arc<dyn AppendFile>) -> Self {
        let len = file.len();
        Self { file, framer: Framer::at(len), staged: Vec::new(), len, is_broken: AtomicBool::new(false) }
    }

    /// As [`new`](Self::new); each record carries `log`, the low half of the log's number, so that the file may once be written
    /// over as another log, or was already.
    pub fn recyclable(file: Arc<dyn AppendFile>, log: u32) -> Self {
        let mut writer = Self::at_end(file);
        writer.framer = writer.framer.recyclable(Some(log));
        writer
    }

    /// Appends one record that holds all `parts`, one after the other, and whatever was staged before it, in one
    /// append to the file. Returns where the record begins in the file, its header included.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: nothing was written, of what was staged either; a later call may succeed.
    /// - `ReadOnly`: the writer is broken, by this call or an earlier one; what the file holds is unknown.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<u64> {
        let offset = self.stage(parts);
        self.flush()?;
        Ok(offset)
    }

    /// Appends each of `records` as a record of its own, all in one append to the file; nothing if there are none.
    ///
    /// # Errors
    /// As [`append`](Self::append); all of them are written, or none.
    pub fn append_all<'a>(&mut self, records: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        let mut records = records.into_iter();
        let (Some(first), second) = (records.next(), records.next()) else { return self.flush() };
        let Some(second) = second else { return self.append_one(first) };
        self.stage(&[first]);
        self.stage(&[second]);
        for record in records {
            self.stage(&[record]);
        }
        self.flush()
    }

    /// Appends one record, from where it is if it has few fragments and nothing is staged.
    fn append_one(&mut self, record: &[u8]) -> Result<()> {
        let few = record.len() <= (FRAGMENTS_IN_PLACE - 1) * (BLOCK_BYTES - RECYCLABLE_HEADER_BYTES);
        if !few || !self.staged.is_empty() {
            self.stage(&[record]);
            return self.flush();
        }
        self.check()?;
        let mut framer = self.framer;
        let mut made = [Front::default(); FRAGMENTS_IN_PLACE];
        let (mut left, mut begins, mut count) = (record, true, 0);
        for fragment in &mut made {
            if !begins && left.is_empty() {
                break;
            }
            *fragment = framer.next_header(left, begins);
            left = left.get(fragment.held..).unwrap_or_default();
            begins = false;
            count += 1;
        }
        let mut parts: [&[u8]; 3 * FRAGMENTS_IN_PLACE + 1] = [&[]; 3 * FRAGMENTS_IN_PLACE + 1];
        let (mut at, mut bytes) = (0, 0);
        for (front, places) in made.iter().take(count).zip(parts.chunks_exact_mut(3)) {
            let padding = PADDING.get(..front.padding).unwrap_or_default();
            let payload = record.get(at..at + front.held).unwrap_or_default();
            for (place, part) in places.iter_mut().zip([padding, front.header(), payload]) {
                *place = part;
                bytes += part.len() as u64;
            }
            at += front.held;
        }
        let end = padding_after(framer);
        if let Some(place) = parts.get_mut(3 * count) {
            *place = end;
            bytes += end.len() as u64;
        }
        let written = self.append_parts(parts.get(..=3 * count).unwrap_or_default(), bytes);
        self.framer = self.framer.moved_to(self.len);
        written
    }

    /// Frames one record for the next [`flush`](Self::flush). Returns where it will begin in the file.
    pub fn stage(&mut self, parts: &[&[u8]]) -> u64 {
        // Too few bytes for a header are left empty at the end of a block.
        let offset = self.len + (self.staged.len() + self.framer.padding()) as u64;
        self.framer.frame_parts(parts, &mut self.staged);
        offset
    }

    /// Hands what is staged to the file. Afterwards nothing is staged, whatever came of it.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn flush(&mut self) -> Result<()> {
        if self.staged.is_empty() {
            return self.check();
        }
        self.staged.extend_from_slice(padding_after(self.framer));
        let staged = std::mem::take(&mut self.staged);
        let result = self.check().and_then(|()| self.append_parts(&[&staged], staged.len() as u64));
        self.staged = staged;
        self.staged.clear();
        self.staged.shrink_to(BUFFER_BYTES_KEPT);
        self.framer = self.framer.moved_to(self.len);
        result
    }

    fn append_parts(&mut self, parts: &[&[u8]], bytes: u64) -> Result<()> {
        let Err(error) = self.file.append(parts) else {
            self.len += bytes;
            return Ok(());
        };
        let error = Error::from(error);
        match self.file.truncate(self.len) {
            Ok(()) => Err(error),
            Err(truncating) => {
                self.mark_broken();
                let reason = format!(
                    "an append failed ({}) and what it left cannot be cut off ({truncating}); reopen to go on",
                    error.reason()
                );
                Err(Error::new(ErrorKind::ReadOnly, reason)
                    .with_path(self.file.path())
                    .with_offset(self.len)
                    .with_source(error))
            }
        }
    }

    /// Makes every record appended before the call survive power loss. May run beside an append.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown, now and for good; every later append and sync fails as well.
    pub fn sync(&self) -> Result<()> {
        self.check()?;
        self.file.sync().map_err(|error| {
            self.mark_broken();
            let reason = format!("a sync failed, so what is durable is unknown; reopen to go on: {}", error.io());
            Error::new(ErrorKind::ReadOnly, reason).with_path(self.file.path()).with_source(error)
        })
    }

    /// Sets off for the device what [`sync`](Self::sync) will wait for; a hint.
    pub fn begin_sync(&self) {
        self.file.begin_sync();
    }

    /// Ends the file where the last record does, if it was preallocated. For a log that gets no more records, before its last sync.
    ///
    /// # Errors
    /// As the file system's: the log may end with zeroes, which are no records.
    pub fn seal(&self) -> Result<()> {
        Ok(self.file.seal()?)
    }

    /// Cuts off, if that is possible by now, what an append that failed left in the file: to whoever opens it next it may pass for damage.
    ///
    /// # Errors
    /// As the file system's: the file is as it was.
    pub fn cut_back(&self) -> Result<()> {
        if !self.is_broken() {
            return Ok(());
        }
        Ok(self.file.truncate(self.len)?)
    }

    /// Breaks the writer: for whoever synced [`file`](Self::file) by other ways, and failed.
    pub fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether nothing can be written any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn check(&self) -> Result<()> {
        if !self.is_broken() {
            return Ok(());
        }
        let reason =
            "an earlier append or sync failed in a way that leaves unknown what the log holds; reopen to go on";
        Err(Error::new(ErrorKind::ReadOnly, reason).with_path(self.file.path()))
    }

    /// The file, to sync it while another thread appends.
    pub fn file(&self) -> Arc<dyn AppendFile> {
        Arc::clone(&self.file)
    }

    /// Bytes in the file; not what is only staged.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What is left of the block where `framer` stands, if no header fits into it.
fn padding_after(framer: Framer) -> &'static [u8] {
    PADDING.get(..framer.padding()).unwrap_or_default()
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("path", &self.file.path())
            .field("len", &self.len)
            .field("staged_bytes", &self.staged.len())
            .field("is_broken", &self.is_broken())
            .finish()
    }
}

#[cfg(test)]
mod tests;
