//! A data file, open for reading: by the window while it grows, by a mapping once it is sealed, by system calls where there
//! is neither.
//!
//! Life of a data file: `reserved --first write--> active --full--> retired --seal--> sealed --merge--> gone`
//!
//! - F1: the manifest names a file, durably, before the first record goes into it, and until its last live record has a durable copy.
//! - F2: bytes before `end` never change, so readers need no lock. Only the writer who holds the file's stripe moves `end`.
//! - F3: a file that was taken out of the [`FileTable`] stays readable for whoever holds it.

mod active;
mod claim;
mod dead;
mod expiry;
mod hint;
mod table;
mod tally;
mod walk;

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{Access, Mapping, ReadFile, Window};
use esker_format::cask::record::{self, HEAD_BYTES, Record};
use esker_format::cask::{FileNumber, manifest};
use esker_format::zeroes::is_zero;
use parking_lot::Mutex;

pub(crate) use active::ActiveFile;
pub(crate) use claim::{Claim, claims};
pub(crate) use dead::{DeadCursor, DeadList};
pub(crate) use expiry::Expiry;
pub(crate) use hint::{remove_if_there, take_place, write_hint};
pub(crate) use table::FileTable;
pub(crate) use tally::Tally;
pub(crate) use walk::{Step, Walk, slice};

use crate::keydir::{Place, Slot};
use crate::{Error, Result};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) number: FileNumber,
    pub(crate) salt: u32,
    /// No record in it was superseded by a version up to this.
    pub(crate) clean_as_of: u64,
    pub(crate) path: PathBuf,
    reader: Arc<dyn ReadFile>,
    window: Option<Arc<dyn Window>>,
    mapping: OnceLock<Option<Arc<dyn Mapping>>>,
    /// Where its last record ends.
    end: AtomicU64,
    record_count: AtomicU64,
    tombstone_count: AtomicU64,
    tombstone_bytes: AtomicU64,
    expiry: Mutex<Expiry>,
    /// The highest version in it.
    version_max: AtomicU64,
    dead: Mutex<DeadList>,
    is_sealed: AtomicBool,
    /// What lives in it lies behind this: merges have moved all that did before.
    merged_to: AtomicU64,
    /// Has bytes that are no records: never merged, so that a repair may still look at them.
    is_damaged: AtomicBool,
}

/// What of a data file is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileUsage {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) dead_records: u64,
    pub(crate) dead_bytes: u64,
    pub(crate) tombstones: u64,
    pub(crate) tombstone_bytes: u64,
}

impl FileUsage {
    pub(crate) const fn live_records(&self) -> u64 {
        self.records.saturating_sub(self.dead_records + self.tombstones)
    }

    /// Bytes that do not lie in dead records.
    pub(crate) const fn live_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.dead_bytes)
    }
}

/// What identifies a data file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) number: FileNumber,
    pub(crate) salt: u32,
    pub(crate) clean_as_of: u64,
}

impl DataFile {
    pub(crate) fn new(
        identity: Identity,
        path: PathBuf,
        reader: Arc<dyn ReadFile>,
        window: Option<Arc<dyn Window>>,
    ) -> Self {
        let Identity { number, salt, clean_as_of } = identity;
        Self {
            number,
            salt,
            clean_as_of,
            path,
            reader,
            window,
            mapping: OnceLock::new(),
            end: AtomicU64::new(record::FIRST_OFFSET),
            record_count: AtomicU64::new(0),
            tombstone_count: AtomicU64::new(0),
            tombstone_bytes: AtomicU64::new(0),
            expiry: Mutex::default(),
            version_max: AtomicU64::new(0),
            dead: Mutex::default(),
            is_sealed: AtomicBool::new(false),
            merged_to: AtomicU64::new(record::FIRST_OFFSET),
            is_damaged: AtomicBool::new(false),
        }
    }

    /// The same file, as it was found when the store was opened, now to be written: its end in memory.
    pub(crate) fn with_window(&self, window: Option<Arc<dyn Window>>) -> Self {
        let identity = Identity { number: self.number, salt: self.salt, clean_as_of: self.clean_as_of };
        let mut dead = self.dead.lock();
        Self {
            end: AtomicU64::new(self.end()),
            record_count: AtomicU64::new(self.record_count()),
            tombstone_count: AtomicU64::new(self.tombstone_count.load(Ordering::Relaxed)),
            tombstone_bytes: AtomicU64::new(self.tombstone_bytes.load(Ordering::Relaxed)),
            expiry: Mutex::new(self.expiry.lock().clone()),
            version_max: AtomicU64::new(self.version_max()),
            dead: Mutex::new(std::mem::take(&mut *dead)),
            ..Self::new(identity, self.path.clone(), self.reader.clone(), window)
        }
    }

    /// Where its last record ends.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Counts a record that is in the file now. Only by whoever appends.
    #[inline]
    pub(crate) fn count(&self, bytes: u64, version: u64, is_tombstone: bool, expires_at: Option<u64>) {
        // Nobody else counts: loads and stores cost less than atomic additions.
        let add =
            |counter: &AtomicU64, more: u64| counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.record_count, 1);
        self.version_max.store(self.version_max().max(version), Ordering::Relaxed);
        if is_tombstone {
            add(&self.tombstone_count, 1);
            add(&self.tombstone_bytes, bytes);
        }
        if let Some(expires_at) = expires_at {
            self.expiry.lock().add(expires_at, bytes);
        }
    }

    /// Counts records that an open has found in the file.
    pub(crate) fn count_all(&self, tally: &Tally) {
        self.record_count.fetch_add(tally.records, Ordering::Relaxed);
        self.version_max.fetch_max(tally.version_max, Ordering::Relaxed);
        self.tombstone_count.fetch_add(tally.tombstones, Ordering::Relaxed);
        self.tombstone_bytes.fetch_add(tally.tombstone_bytes, Ordering::Relaxed);
        self.expiry.lock().add_all(&tally.expiry);
    }

    /// Whether it has records that expire, whenever that is.
    pub(crate) fn expires(&self) -> bool {
        self.expiry.lock().has_any()
    }

    /// Bytes of records that have expired at `now` (seconds since 1970), dead ones included: no more than that, and less by those that
    /// expired last (`expiry.rs`).
    pub(crate) fn expired_bytes(&self, now: u64) -> u64 {
        self.expiry.lock().expired_bytes(now)
    }

    pub(crate) fn version_max(&self) -> u64 {
        self.version_max.load(Ordering::Relaxed)
    }

    pub(crate) fn record_count(&self) -> u64 {
        self.record_count.load(Ordering::Relaxed)
    }

    /// The record that `slot` pointed to is dead.
    pub(crate) fn bury(&self, slot: &Slot) {
        // Of a record that cannot be read, the least that a slot means by "more than it can say".
        let measured = || self.record_bytes_at(slot.place().offset.into()).unwrap_or(u64::from(u32::MAX));
        let bytes = slot.bytes().unwrap_or_else(measured);
        self.dead.lock().push(slot.place().offset, bytes);
    }

    pub(crate) fn dead_len(&self) -> usize {
        self.dead.lock().len()
    }

    /// The first `len` records that died, by offset.
    pub(crate) fn dead_cursor(&self, len: usize) -> DeadCursor {
        DeadCursor::new(self.dead.lock().sorted(len))
    }

    pub(crate) fn usage(&self) -> FileUsage {
        let dead = self.dead.lock();
        FileUsage {
            records: self.record_count(),
            bytes: self.end().saturating_sub(record::FIRST_OFFSET),
            dead_records: dead.len() as u64,
            dead_bytes: dead.bytes(),
            tombstones: self.tombstone_count.load(Ordering::Relaxed),
            tombstone_bytes: self.tombstone_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.dead.lock().memory_bytes() + size_of::<Self>() as u64
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed.load(Ordering::Acquire)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    pub(crate) fn mark_damaged(&self) {
        self.is_damaged.store(true, Ordering::Release);
    }

    /// From now on it is read through a mapping, where one is to be had: a process may have only so many. It changes no more.
    pub(crate) fn map(&self) {
        // What cannot be mapped is read, and what cannot be read is told then.
        self.mapping.get_or_init(|| self.reader.map().unwrap_or_default());
    }

    pub(crate) fn merged_to(&self) -> u64 {
        self.merged_to.load(Ordering::Relaxed)
    }

    /// A merge has moved what lived before `offset`, and is installed.
    pub(crate) fn set_merged_to(&self, offset: u64) {
        self.merged_to.store(offset, Ordering::Relaxed);
    }

    /// The manifest calls it sealed.
    pub(crate) fn mark_sealed(&self) {
        self.is_sealed.store(true, Ordering::Release);
    }

    /// How the manifest names it while it may grow, and so much of it is durable.
    pub(crate) const fn in_manifest(&self, durable_bytes: u64) -> manifest::File {
        let (number, salt, clean_as_of) = (self.number, self.salt, self.clean_as_of);
        manifest::File { number, state: manifest::FileState::Open { durable_bytes }, salt, clean_as_of }
    }

    /// How the manifest names it once it changes no more.
    pub(crate) fn in_manifest_sealed(&self) -> manifest::File {
        let state = manifest::FileState::Sealed { data_bytes: self.end(), record_count: self.record_count() };
        manifest::File { state, ..self.in_manifest(0) }
    }

    /// Bytes that can be lent without a copy.
    #[inline]
    pub(crate) fn slice(&self, range: Range<u64>) -> Option<&[u8]> {
        if let Some(Some(mapping)) = self.mapping.get() {
            let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
            return mapping.bytes().get(start..end);
        }
        self.window.as_ref()?.appended(range)
    }

    /// Bytes before `end`, lent or read.
    ///
    /// # Errors
    /// `Corruption` if the file is shorter; `Io`.
    #[inline]
    pub(crate) fn bytes(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>> {
        match self.slice(range.clone()) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.read(range).map(Cow::Owned),
        }
    }

    /// All bytes before `end`, lent or read, or as many as there are: whoever writes the file may have cut off what follows its records.
    pub(crate) fn bytes_left(&self) -> Result<Cow<'_, [u8]>> {
        let end = self.end();
        if let Some(bytes) = self.slice(0..end) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut buffer = buffer_of(end)?;
        let count = self.reader.read_at(0, &mut buffer)?;
        buffer.truncate(count);
        Ok(Cow::Owned(buffer))
    }

    #[cold]
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let end = self.end();
        if range.start > range.end || range.end > end {
            let reason = format!("a record should end at byte {}, the file ends at byte {end}", range.end);
            return Err(Error::corruption(&self.path, range.start, reason));
        }
        let mut buffer = buffer_of(range.end - range.start)?;
        self.reader.read_exact_at(range.start, &mut buffer)?;
        Ok(buffer)
    }

    /// How long the file is, whatever of it counts.
    pub(crate) fn len(&self) -> Result<u64> {
        Ok(self.reader.len()?)
    }

    /// Whether nothing but zeroes lies behind `offset`.
    pub(crate) fn is_zero_from(&self, mut offset: u64) -> Result<bool> {
        const PIECE_BYTES: usize = 64 << 10;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = self.reader.read_at(offset, &mut piece)?;
            match piece.get(..count) {
                Some(read) if count > 0 && is_zero(read) => offset += count as u64,
                read => return Ok(read.is_none_or(<[u8]>::is_empty)),
            }
        }
    }

    /// How it is about to be read. A hint.
    pub(crate) fn advise(&self, access: Access) {
        self.reader.advise(access);
    }

    /// `range` is about to be read. A hint.
    pub(crate) fn will_read(&self, range: Range<u64>) {
        self.reader.will_read(range);
    }

    fn record_bytes_at(&self, offset: u64) -> Result<u64> {
        let head = self.bytes(offset..offset + HEAD_BYTES as u64)?;
        record::peek_bytes(&head).ok_or_else(|| Error::corruption(&self.path, offset, "no record begins here"))
    }

    /// The bytes of the record that `slot` points to.
    #[inline]
    pub(crate) fn record_bytes(&self, slot: &Slot) -> Result<Cow<'_, [u8]>> {
        let offset = u64::from(slot.place().offset);
        let bytes = match slot.bytes() {
            Some(bytes) => bytes,
            None => self.record_bytes_at(offset)?,
        };
        self.bytes(offset..offset + bytes)
    }

    /// What `raw`, the bytes of a record at `offset`, is.
    ///
    /// # Errors
    /// `Corruption` if it is none, or none of so many bytes.
    #[inline(always)]
    pub(crate) fn decode<'a>(&self, offset: u64, raw: &'a [u8]) -> Result<Record<'a>> {
        match Record::decode(raw) {
            Ok(record) if record.bytes() == raw.len() as u64 => Ok(record),
            Ok(_) => {
                Err(Error::corruption(&self.path, offset, "the record has another length than it was written with"))
            }
            // A newer version's only if its checksum holds.
            Err(error) => {
                self.verify(offset, raw)?;
                Err(Error::decode(&self.path, offset, "reading a record", error))
            }
        }
    }

    /// Refuses a record whose CRC does not hold.
    #[inline]
    pub(crate) fn verify(&self, offset: u64, raw: &[u8]) -> Result<()> {
        if record::checksum_holds(raw, self.salt) {
            return Ok(());
        }
        Err(Error::corruption(&self.path, offset, "the record does not check out; restore it, or run a repair"))
    }

    /// The slot for a record of it.
    pub(crate) fn slot(&self, tag: u32, offset: u64, bytes: u64) -> Result<Slot> {
        match u32::try_from(offset) {
            Ok(offset) => Ok(Slot::new(tag, Place { file: self.number, offset }, bytes)),
            Err(_) => Err(Error::corruption(&self.path, offset, "a record begins farther out than any is written")),
        }
    }
}

fn buffer_of(bytes: u64) -> Result<Vec<u8>> {
    let bytes =
        usize::try_from(bytes).map_err(|_| Error::invalid_argument("the record is longer than memory can be"))?;
    Ok(vec![0; bytes])
}
