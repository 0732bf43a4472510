//! The recovery scan: reads a log back and tells whole records, the end, a torn tail and corruption apart.
//!
//! # Torn or corrupt
//!
//! A torn write never counted: nobody was told that it was durable, so recovery may end the log before it. Corruption
//! took something that may well have counted, so recovery must not pass over it in silence. RocksDB calls both by
//! one name at the end of a log; here they are told apart by what a power loss can do. It leaves each unsynced sector
//! of 512 bytes with its old content, and where a log grows the old content is zeroes, or nothing.
//!
//! So what does not decode at bytes `[a, b)` is **torn** if
//! - T1: the file ends before `b`, or within a record of several fragments; or
//! - T2: for some sector that `[a, b)` touches, all its bytes from `a` on, or from its start if that comes later, are
//!   zeroes, up to its end or the file's; or
//! - T3: the log is a recycled one, as its whole records or the type of this one say: then the old content of a sector is a
//!   former log, which looks like anything. Manifests are never recycled; or
//! - T4: its header is all zeroes: a process died while it copied a record into preallocated space, of which the first
//!   bytes are stored last ([`esker_env::AppendFile`]).
//!
//! Everything else is **corruption**, and so is what one flipped bit in the length or type of its header sets apart from
//! a good fragment: it was written whole, whatever its false length touches. `b` is what the header says; if the header cannot be true, the end of its
//! block of 32 KiB. A record is torn if one of its fragments is. Zeroes from the end of a record to the end of the file are
//! the clean end of a file whose space was allocated in advance.
//!
//! In a manifest each record is durable before the next is appended, so one that is torn is the last: if a whole record begins
//! anywhere behind it, that is corruption too. So may be what a power loss leaves of a group that RocksDB syncs at once: better a repair
//! too many, for what the edits behind it name would pass for orphans.
//!
//! What the rule cannot see: rot inside a record that holds a sector's worth of zeroes of its own passes for a tear.
//! [`LogEnd::Torn`] therefore says how much it drops, and whether whole records lie behind.
//!
//! # Cost
//!
//! One read of 32 KiB for each block; no more memory than that and one record, which grows only by bytes that were read.

mod tear;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Access, FileSystem, ReadFile};
use esker_format::DecodeErrorKind;
use esker_format::compression::unpack_frame;
use esker_format::limits::BATCH_BYTES_MAX;
use esker_format::rocksdb::log::{Assembler, BLOCK_BYTES, Fragment, FragmentKind, HEADER_BYTES, next_fragment};
use esker_format::zeroes::is_zero;

use crate::{Error, Result};
use tear::{is_one_bit_from_whole, may_be_torn};

/// Zstandard's frames begin with it.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What says how records are packed is so long, and the first of a log.
const PACKED_BYTES: usize = HEADER_BYTES + size_of::<u32>();

/// What recovery makes of a log that does not end cleanly. RocksDB has the same four.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum RecoveryMode {
    /// Every log must be whole: a torn tail is an error too. For stores that are always closed before the machine stops.
    AbsoluteConsistency,
    /// A torn tail ends the last log; everything else is an error.
    TolerateTornTail,
    /// A torn tail ends a log; what follows it is the caller's to judge. Corruption is an error.
    #[default]
    PointInTime,
    /// Goes on behind whatever is torn or corrupt, and counts it. For salvage: what was written together may come apart.
    SkipCorrupt,
}

/// How a log ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEnd {
    /// It did not, yet, or an error came first.
    NotReached,
    /// With a whole record, or before the first one; zeroes, or a recycled file's former life, may follow.
    Clean {
        /// Where the last record ends.
        offset: u64,
    },
    /// With a record that was not written to its end.
    Torn {
        /// Where that record begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
        /// From `offset` to the end of the file, or where nothing follows to the last byte that is not zero: what is behind was only
        /// allocated.
        dropped_bytes: u64,
        /// Whether something that decodes lies behind it. Natural where several writes were unsynced.
        is_followed: bool,
    },
}

/// Reads one log from front to back.
#[derive(Debug)]
pub struct Scanner {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    mode: RecoveryMode,
    is_last: bool,
    is_manifest: bool,
    log_number: u32,
    file_bytes: u64,
    /// The block being read, where it begins in the file, and where its next fragment begins.
    block: Vec<u8>,
    block_offset: u64,
    at: usize,
    /// Of the first block, what is not looked at.
    skipped_within: usize,
    assembler: Assembler,
    /// Whether records are packed, and the last one as it was before.
    is_packed: bool,
    /// What would say so is damaged: the next record shows it.
    may_be_packed: bool,
    unpacked: Vec<u8>,
    /// Where the record begins that was returned, or is being assembled.
    record_offset: u64,
    /// Where the last whole record ends.
    whole_bytes: u64,
    /// A record with a log number was met (T3).
    is_recycled: bool,
    end: LogEnd,
    failure: Option<Error>,
    /// Something other than zeroes stands here, or behind.
    nonzero_at: u64,
    /// A recyclable fragment of this log stands here, or behind.
    own_at: u64,
    /// See [`Scanner::is_cut_off`].
    is_cut: bool,
    /// Where the damage begins that is being skipped.
    skipping_from: Option<u64>,
    skipped_count: u64,
    skipped_bytes: u64,
}

/// Where a whole record is held.
enum Place {
    Block(Range<usize>),
    Assembler,
    Unpacked,
}

impl Scanner {
    /// At the start of the log at `path`. `is_last`: it is the newest of its kind, the only one where a torn tail is natural.
    /// `log_number`: the low half of its number, which tells its recyclable records from those of a former life.
    ///
    /// # Errors
    /// As the file system's; `NotFound` if there is no such file.
    pub fn open(
        files: &dyn FileSystem,
        path: &Path,
        mode: RecoveryMode,
        is_last: bool,
        log_number: u32,
    ) -> Result<Self> {
        let file = files.open(path)?;
        file.advise(Access::Sequential);
        let file_bytes = file.len()?;
        Ok(Self {
            file,
            path: path.to_owned(),
            mode,
            is_last,
            is_manifest: false,
            log_number,
            file_bytes,
            block: Vec::new(),
            block_offset: 0,
            at: 0,
            skipped_within: 0,
            assembler: Assembler::new(),
            is_packed: false,
            may_be_packed: false,
            unpacked: Vec::new(),
            record_offset: 0,
            whole_bytes: 0,
            is_recycled: false,
            end: LogEnd::NotReached,
            failure: None,
            nonzero_at: 0,
            own_at: 0,
            is_cut: false,
            skipping_from: None,
            skipped_count: 0,
            skipped_bytes: 0,
        })
    }

    /// What is read is a manifest: none is opened with less of it, whatever the mode, nor without an edit that others follow.
    pub fn of_manifest(mut self) -> Self {
        self.is_manifest = true;
        self
    }

    /// Reads no further than to `end`, where a record ended when the log was read before: whoever writes to it may have gone on.
    pub fn up_to(mut self, end: u64) -> Self {
        self.file_bytes = self.file_bytes.min(end);
        self
    }

    /// Begins at `start`, where a record began when the log was read before. To be called before anything is read.
    ///
    /// # Errors
    /// As the file system's.
    pub fn from(mut self, start: u64) -> Result<Self> {
        let mut front = vec![0; HEADER_BYTES + size_of::<u32>()];
        if start >= front.len() as u64 {
            self.file.read_exact_at(0, &mut front)?;
            self.is_packed = matches!(next_fragment(&front, 0, Some(self.log_number)), Fragment::Packed { .. });
            self.may_be_packed = !self.is_packed && self.mode == RecoveryMode::SkipCorrupt && !self.is_manifest;
        }
        self.skipped_within = (start % BLOCK_BYTES as u64) as usize;
        self.block_offset = start - start % BLOCK_BYTES as u64;
        self.whole_bytes = start;
        Ok(self)
    }

    /// The next whole record and where it begins in the file; `None` when the log has ended, and [`end`](Self::end) says how.
    ///
    /// # Errors
    /// - `Corruption`: the mode does not go on behind what is here. The same error again on every later call.
    /// - `UnsupportedFormat`, in every mode: an undamaged record of a kind that this library lacks.
    /// - as the file system's.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        let Some(place) = self.advance()? else { return Ok(None) };
        Ok(Some((self.record_offset, self.at_place(&place))))
    }

    fn at_place(&self, place: &Place) -> &[u8] {
        match place {
            Place::Block(range) => self.block.get(range.clone()).unwrap_or_default(),
            Place::Assembler => self.assembler.record(),
            Place::Unpacked => &self.unpacked,
        }
    }

    /// Whether the file ends within a record at a length that no power loss leaves: each append is one record or more, and
    /// a lost append ends at a sector's boundary. Where that is so of a log whose writer appends every record at
    /// once, as a manifest's does, somebody else cut the file.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut
    }

    /// How the log ended.
    pub fn end(&self) -> LogEnd {
        self.end.clone()
    }

    /// The log's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that [`RecoveryMode::SkipCorrupt`] went over, so far.
    pub const fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// At how many places.
    pub const fn skipped_count(&self) -> u64 {
        self.skipped_count
    }

    fn offset(&self) -> u64 {
        self.block_offset + self.at as u64
    }

    fn advance(&mut self) -> Result<Option<Place>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        while self.end == LogEnd::NotReached {
            if self.at >= self.block.len() && !self.read_block()? {
                self.end_of_file()?;
                break;
            }
            let fragment = next_fragment(&self.block, self.at, Some(self.log_number));
            match fragment {
                Fragment::Whole { kind, payload, next, recyclable } => {
                    self.is_recycled |= recyclable && !self.is_manifest;
                    let Some(place) = self.take(kind, payload, next)? else { continue };
                    if std::mem::take(&mut self.may_be_packed) {
                        let record = self.at_place(&place);
                        self.is_packed = record.starts_with(&FRAME_MAGIC)
                            && unpack_frame(record, &mut Vec::new(), BATCH_BYTES_MAX).is_ok();
                    }
                    if !self.is_packed {
                        return Ok(Some(place));
                    }
                    if self.unpack(&place)? {
                        return Ok(Some(Place::Unpacked));
                    }
                }
                Fragment::Packed { next } if self.offset() == 0 => {
                    self.is_packed = true;
                    self.at = next;
                    self.whole_bytes = self.offset();
                }
                Fragment::Packed { next } => {
                    self.damaged(next, false, "it says how records are packed, where no log begins")?;
                }
                Fragment::Ignored { next } => {
                    self.at = next;
                    if !self.assembler.is_within() {
                        self.whole_bytes = self.offset();
                    }
                }
                // Only recyclable headers are too long for so much room: here was a short one, and is no more.
                Fragment::EndOfBlock if !self.is_recycled && self.block.len() - self.at >= HEADER_BYTES => {
                    self.zeroes()?;
                }
                Fragment::EndOfBlock => self.at = self.block.len(),
                Fragment::Zeroes => self.zeroes()?,
                Fragment::Torn => self.cut_off()?,
                Fragment::StaleRecycled if self.assembler.is_within() => {
                    self.damaged(
                        self.block.len(),
                        true,
                        "a recycled file's former life begins before the record ends",
                    )?;
                }
                Fragment::StaleRecycled => self.end_clean(self.offset()),
                Fragment::Damaged { reason, .. } if reason.kind == DecodeErrorKind::Unsupported => {
                    return Err(self.fail(Error::decode(&self.path, self.block_offset, "reading the log", reason)));
                }
                Fragment::Damaged { end, reason } => {
                    let type_byte = self.block.get(self.at + HEADER_BYTES - 1);
                    let is_recycled =
                        !self.is_manifest && type_byte.is_some_and(|type_byte| matches!(type_byte, 5..=8));
                    let is_torn = (is_recycled || may_be_torn(&self.block, self.at, end))
                        && !is_one_bit_from_whole(&self.block, self.at, self.log_number);
                    self.damaged(end, is_torn, &format!("{}: {}", reason.field, reason.reason))?;
                }
            }
        }
        Ok(None)
    }

    /// Takes a good fragment; returns the record if that completes one.
    fn take(&mut self, kind: FragmentKind, payload: Range<usize>, next: usize) -> Result<Option<Place>> {
        let offset = self.offset();
        if kind == FragmentKind::Full && !self.assembler.is_within() {
            self.begin(offset, next);
            self.whole_bytes = self.offset();
            return Ok(Some(Place::Block(payload)));
        }
        match self.assembler.push(kind, self.block.get(payload).unwrap_or_default()) {
            Ok(is_whole) => {
                if kind.begins() {
                    self.begin(offset, next);
                }
                self.at = next;
                if is_whole {
                    self.whole_bytes = self.offset();
                }
                Ok(is_whole.then_some(Place::Assembler))
            }
            // The rest of what is being skipped.
            Err(_) if self.skipping_from.is_some() && !kind.begins() => {
                self.at = next;
                Ok(None)
            }
            Err(error) => {
                // What begins a record may begin the next one; what does not has been dropped by the assembler.
                let end = if kind.begins() { self.at } else { next };
                let begun = if kind.begins() { self.record_offset } else { offset };
                self.damaged_from(begun, end, false, &error.reason)?;
                Ok(None)
            }
        }
    }

    /// False if what was written whole does not unpack, and the mode goes on behind that.
    fn unpack(&mut self, place: &Place) -> Result<bool> {
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let record = self.at_place(place);
        // RocksDB packs no empty record.
        let result = match record {
            [] => {
                unpacked.clear();
                Ok(())
            }
            _ => unpack_frame(record, &mut unpacked, BATCH_BYTES_MAX),
        };
        self.unpacked = unpacked;
        let Err(error) = result else { return Ok(true) };
        let reason = format!("{}: {}", error.field, error.reason);
        self.damaged_from(self.record_offset, self.at, false, &reason)?;
        Ok(false)
    }

    fn begin(&mut self, offset: u64, next: usize) {
        self.end_skipping(offset);
        self.record_offset = offset;
        self.at = next;
    }

    /// Zeroes where a header should be: the rest of a file allocated in advance, those that were written ahead into a recycled
    /// one, with its former life behind, or a hole that something follows.
    fn zeroes(&mut self) -> Result<()> {
        let offset = self.offset();
        if self.is_zero_to_the_end()? || (self.is_recycled && !self.own_follows()?) {
            if self.assembler.is_within() {
                return self.damaged(self.block.len(), true, "nothing was written behind its beginning");
            }
            self.end_clean(offset);
            return Ok(());
        }
        self.damaged(self.block.len(), true, "zeroes where a record should begin")
    }

    fn end_of_file(&mut self) -> Result<()> {
        if self.assembler.is_within() {
            self.cut_off()?;
        }
        if self.end == LogEnd::NotReached {
            self.end_clean(self.file_bytes);
        }
        Ok(())
    }

    fn cut_off(&mut self) -> Result<()> {
        self.is_cut = !self.file_bytes.is_multiple_of(tear::SECTOR_BYTES as u64);
        self.damaged(self.block.len(), true, "the file ends before the record does")
    }

    /// What stands here, up to `end` in the block at best, is no record, nor is what was begun.
    fn damaged(&mut self, end: usize, is_torn: bool, reason: &str) -> Result<()> {
        let begun = if self.assembler.is_within() { self.record_offset } else { self.offset() };
        self.damaged_from(begun, end, is_torn, reason)
    }

    fn damaged_from(&mut self, begun: u64, end: usize, is_torn: bool, reason: &str) -> Result<()> {
        self.assembler.drop_begun();
        let is_torn = is_torn || self.is_recycled;
        match self.mode {
            RecoveryMode::SkipCorrupt => {
                if self.skipping_from.is_none() {
                    self.skipping_from = Some(begun);
                    self.skipped_count += 1;
                }
                let is_first = begun == 0 && !self.is_manifest;
                self.may_be_packed |= is_first;
                // Right behind it if something decodes there, or where it would end if it said that records are packed, else in the next block.
                self.at = match self.decodes_at(end) {
                    true => end,
                    false if is_first && self.block_offset == 0 && self.decodes_at(PACKED_BYTES) => PACKED_BYTES,
                    false => self.block.len(),
                };
                Ok(())
            }
            RecoveryMode::PointInTime if is_torn => self.end_torn(begun, end, reason),
            RecoveryMode::TolerateTornTail if is_torn && self.is_last => self.end_torn(begun, end, reason),
            _ => Err(self.refuse(begun, is_torn, reason)),
        }
    }

    fn end_clean(&mut self, offset: u64) {
        self.end_skipping(offset);
        self.end = LogEnd::Clean { offset: self.whole_bytes };
    }

    fn end_torn(&mut self, begun: u64, end: usize, reason: &str) -> Result<()> {
        if self.is_manifest && self.record_follows()? {
            return Err(self.refuse(begun, false, reason));
        }
        let mut is_followed = self.is_whole_at(end);
        let mut written = self.written_bytes();
        while !is_followed && self.read_block()? {
            is_followed = self.is_whole_at(0);
            written = written.max(self.written_bytes());
        }
        let dropped_bytes = if is_followed { self.file_bytes } else { written }.saturating_sub(begun);
        self.end = LogEnd::Torn { offset: begun, reason: reason.to_owned(), dropped_bytes, is_followed };
        Ok(())
    }

    /// Where the last byte of the block ends that is not zero; 0 if there is none.
    fn written_bytes(&self) -> u64 {
        if is_zero(&self.block) {
            return 0;
        }
        let last = self.block.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        self.block_offset + last as u64 + 1
    }

    fn end_skipping(&mut self, offset: u64) {
        if let Some(from) = self.skipping_from.take() {
            self.skipped_bytes += offset.saturating_sub(from);
        }
    }

    fn refuse(&mut self, offset: u64, is_torn: bool, reason: &str) -> Error {
        let what = match (is_torn, self.mode) {
            _ if self.is_manifest => "the manifest is damaged; restore the store from a backup, or repair it",
            (true, RecoveryMode::AbsoluteConsistency) => {
                "the log ends torn; reopen with recovery mode PointInTime to end it here, or restore from a backup"
            }
            (true, _) => {
                "a log that is not the last ends torn; reopen with recovery mode PointInTime or SkipCorrupt to go on \
                 without what is missing, or restore from a backup"
            }
            (false, _) => {
                "the log is damaged; repair the store, or reopen with recovery mode SkipCorrupt, to go on without it, or restore \
                 from a backup"
            }
        };
        self.fail(Error::corruption(&self.path, offset, format!("{what} ({reason})")))
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(error.clone());
        error
    }

    fn is_whole_at(&self, at: usize) -> bool {
        matches!(next_fragment(&self.block, at, Some(self.log_number)), Fragment::Whole { .. })
    }

    /// The same, or something good that is none.
    fn decodes_at(&self, at: usize) -> bool {
        let found = next_fragment(&self.block, at, Some(self.log_number));
        matches!(found, Fragment::Whole { .. } | Fragment::Ignored { .. })
    }

    /// Reads the next block; `false` if there is none.
    fn read_block(&mut self) -> Result<bool> {
        let offset = self.block_offset + self.block.len() as u64;
        let left = self.file_bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        if wanted == 0 {
            return Ok(false);
        }
        self.block.resize(wanted, 0);
        let got = self.file.read_at(offset, &mut self.block);
        self.block.truncate(*got.as_ref().unwrap_or(&0));
        // A failed read leaves an empty block here, so that the next call tries again.
        self.block_offset = offset;
        self.at = 0;
        let got = got?;
        self.at = std::mem::take(&mut self.skipped_within);
        if got < wanted {
            self.file_bytes = offset + got as u64;
        }
        Ok(got > 0)
    }

    /// Whether a whole fragment of this log follows, wherever it begins, to the end of the file. Reads that, each block once.
    fn own_follows(&mut self) -> Result<bool> {
        let mut offset = self.block_offset + self.block.len() as u64;
        if offset <= self.own_at {
            return Ok(true);
        }
        let number = self.log_number;
        if has_own(self.block.get(self.at..).unwrap_or_default(), number) {
            return Ok(true);
        }
        let mut block = vec![0; BLOCK_BYTES];
        while offset < self.file_bytes {
            let got = self.file.read_at(offset, &mut block)?;
            if got == 0 {
                break;
            }
            if has_own(block.get(..got).unwrap_or_default(), number) {
                self.own_at = offset;
                return Ok(true);
            }
            offset += got as u64;
        }
        Ok(false)
    }

    /// Whether a whole fragment that begins a record follows, wherever, to the end of the file. Reads that.
    fn record_follows(&self) -> Result<bool> {
        if begins_record(self.block.get(self.at..).unwrap_or_default(), self.log_number) {
            return Ok(true);
        }
        let mut offset = self.block_offset + self.block.len() as u64;
        let mut block = vec![0; BLOCK_BYTES];
        while offset < self.file_bytes {
            let got = self.file.read_at(offset, &mut block)?;
            if got == 0 {
                break;
            }
            if begins_record(block.get(..got).unwrap_or_default(), self.log_number) {
                return Ok(true);
            }
            offset += got as u64;
        }
        Ok(false)
    }

    /// Whether nothing but zeroes follows, to the end of the file. Reads them, each block once.
    fn is_zero_to_the_end(&mut self) -> Result<bool> {
        let mut offset = self.block_offset + self.block.len() as u64;
        if !is_zero(self.block.get(self.at..).unwrap_or_default()) || offset <= self.nonzero_at {
            return Ok(false);
        }
        let mut block = vec![0; BLOCK_BYTES];
        while offset < self.file_bytes {
            let got = self.file.read_at(offset, &mut block)?;
            if got == 0 {
                break;
            }
            if !is_zero(block.get(..got).unwrap_or_default()) {
                self.nonzero_at = offset;
                return Ok(false);
            }
            offset += got as u64;
        }
        Ok(true)
    }
}

/// Whether a whole recyclable fragment of log `number` begins anywhere in the part of a block.
fn has_own(block: &[u8], number: u32) -> bool {
    let number_bytes = number.to_le_bytes();
    let is_own = |at: usize| {
        let next = next_fragment(block, at, Some(number));
        matches!(next, Fragment::Whole { recyclable: true, .. })
    };
    block
        .get(HEADER_BYTES..)
        .unwrap_or_default()
        .windows(number_bytes.len())
        .enumerate()
        .any(|(at, bytes)| bytes == number_bytes && is_own(at))
}

/// Whether a whole fragment that begins a record stands anywhere in the part of a block.
fn begins_record(block: &[u8], log_number: u32) -> bool {
    block.windows(HEADER_BYTES).enumerate().any(|(at, header)| {
        let &[.., l0, l1, 1 | 2] = header else { return false };
        let fits = at + HEADER_BYTES + usize::from(u16::from_le_bytes([l0, l1])) <= block.len();
        fits && matches!(next_fragment(block, at, Some(log_number)), Fragment::Whole { .. })
    })
}

#[cfg(test)]
mod tests;
