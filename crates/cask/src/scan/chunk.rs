//! A stretch of a data file, decoded: what of its records lives, and where key and value lie.
//!
//! - H1: a chunk ends between two records, with its file, or with damage. So its records need one look at the file, and stay
//!   where they are for as long as the chunk is held.
//! - H2: what is damaged is told once, behind the records that came before it; the next chunk begins with the next record that holds.
//!
//! Cost: some 25 ns for a record of 136 bytes, most of it for its CRC; 24 bytes of memory. No lock, no call, no allocation for each.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use esker_env::Access;
use esker_format::cask::record::{self, FIRST_OFFSET, HEAD_BYTES};
use esker_format::compression::Compression;

use parking_lot::Mutex;

use crate::file::{DataFile, DeadCursor, Walk};
use crate::{Error, Result};

/// Records in a chunk, at most: some 100 KiB of memory.
const CHUNK_LEN: usize = 4096;
/// Bytes that are looked at for a chunk, at most, where one record is not longer. Where a file is not mapped they are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// How far ahead the system is told what will be read.
const READ_AHEAD_BYTES: u64 = 8 << 20;

/// A file as it was at the start of a scan.
pub(super) struct Extent {
    pub(super) file: Arc<DataFile>,
    pub(super) end: u64,
    pub(super) dead_len: usize,
}

/// A record that lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    offset: u64,
    pub(super) version: u64,
    value_bytes: u32,
    key_bytes: u16,
    head_bytes: u8,
    pub(super) compression: Compression,
}

/// See the module's head.
pub(super) struct Chunk {
    pub(super) file: Arc<DataFile>,
    pub(super) items: Vec<Item>,
    /// The bytes, and where they begin, where the file cannot lend them.
    read: Option<(u64, Vec<u8>)>,
    /// What is wrong behind the last item.
    pub(super) error: Option<Error>,
}

impl Item {
    pub(super) const fn key(&self) -> Range<u64> {
        let start = self.offset + self.head_bytes as u64;
        start..start + self.key_bytes as u64
    }

    pub(super) const fn value(&self) -> Range<u64> {
        let start = self.key().end;
        start..start + self.value_bytes as u64
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) const fn record(&self) -> Range<u64> {
        self.offset..self.value().end
    }
}

impl Chunk {
    /// Bytes of one of its records.
    #[inline]
    pub(super) fn bytes(&self, range: Range<u64>) -> &[u8] {
        let Some((base, bytes)) = &self.read else { return self.file.slice(range).unwrap_or_default() };
        let local = |place: u64| usize::try_from(place.wrapping_sub(*base)).unwrap_or(usize::MAX);
        bytes.get(local(range.start)..local(range.end)).unwrap_or_default()
    }

    /// Whether the file lends its bytes, for as long as anybody holds it.
    pub(super) const fn is_lent(&self) -> bool {
        self.read.is_none()
    }
}

/// Takes one file after the other and makes chunks of it.
pub(super) struct Decoder {
    /// Files that nobody has taken.
    waiting: Arc<Mutex<VecDeque<Extent>>>,
    current: Option<Current>,
    wanted: Wanted,
}

/// Which records a scan shows.
#[derive(Clone)]
pub(super) struct Wanted {
    /// Those that live then.
    pub(super) now: u64,
    /// Only if their CRC holds.
    pub(super) verify: bool,
    /// None of these keys.
    pub(super) gone: Arc<HashSet<Vec<u8>>>,
}

struct Current {
    file: Arc<DataFile>,
    end: u64,
    dead: DeadCursor,
    /// Where the next record begins.
    next: u64,
    /// The system was told of everything before.
    announced: u64,
}

/// What stopped the decoding of a chunk.
enum Stop {
    /// There are more records, for the next chunk.
    Full,
    /// The record at `next` needs so many bytes.
    Needs(u64),
    Damaged(Error),
}

impl Decoder {
    pub(super) fn new(waiting: VecDeque<Extent>, wanted: Wanted) -> Self {
        Self { waiting: Arc::new(Mutex::new(waiting)), current: None, wanted }
    }

    /// One that takes of the same files.
    pub(super) fn another(&self) -> Self {
        Self { waiting: self.waiting.clone(), current: None, wanted: self.wanted.clone() }
    }

    /// Files that nobody has taken.
    pub(super) fn files_left(&self) -> usize {
        self.waiting.lock().len()
    }

    /// There is nothing more to do.
    pub(super) fn stop(&mut self) {
        self.waiting.lock().clear();
        self.current = None;
    }

    /// The next chunk; `None`: there is none, now and for good.
    ///
    /// # Errors
    /// The system refused to read; the file is given up.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(extent) = self.waiting.lock().pop_front() else { return Ok(None) };
                self.current = Some(Current::begin(extent));
                continue;
            };
            if current.next >= current.end {
                self.current = None;
                continue;
            }
            let chunk = current.chunk(&self.wanted);
            if chunk.is_err() {
                self.current = None;
            }
            return chunk.map(Some);
        }
    }
}

impl Current {
    fn begin(Extent { file, end, dead_len }: Extent) -> Self {
        file.advise(Access::Sequential);
        let dead = if dead_len == 0 { DeadCursor::new(Vec::new()) } else { file.dead_cursor(dead_len) };
        Self { file, end, dead, next: FIRST_OFFSET, announced: 0 }
    }

    /// Half a window before the end of what was announced, so that the device is never without work.
    fn announce(&mut self) {
        if self.announced < self.end && self.next + READ_AHEAD_BYTES / 2 >= self.announced {
            let until = (self.announced + READ_AHEAD_BYTES).min(self.end);
            self.file.will_read(self.announced..until);
            self.announced = until;
        }
    }

    fn chunk(&mut self, shown: &Wanted) -> Result<Chunk> {
        self.announce();
        let file = self.file.clone();
        let mut wanted = CHUNK_BYTES;
        loop {
            let (base, until) = (self.next, self.end.min(self.next.saturating_add(wanted)));
            let bytes = file.bytes(base..until)?;
            let mut items = Vec::with_capacity(CHUNK_LEN.min(bytes.len() / HEAD_BYTES));
            let error = match self.decode(&bytes, shown, &mut items) {
                Stop::Needs(more) if base == self.next => {
                    wanted = more;
                    continue;
                }
                Stop::Full | Stop::Needs(_) => None,
                Stop::Damaged(error) => {
                    self.skip_damage()?;
                    Some(error)
                }
            };
            let read = match bytes {
                Cow::Borrowed(_) => None,
                Cow::Owned(bytes) => Some((base, bytes)),
            };
            return Ok(Chunk { file: self.file.clone(), items, read, error });
        }
    }

    /// What lives in `bytes`, which begin at `next`; moves `next` behind what was looked at.
    fn decode(&mut self, bytes: &[u8], shown: &Wanted, items: &mut Vec<Item>) -> Stop {
        let mut rest = bytes;
        while items.len() < CHUNK_LEN && self.next < self.end {
            let Some(record_bytes) = record::peek_bytes(rest) else {
                // Of a head that is cut off, more may be there.
                let left = self.end - self.next;
                let needs = HEAD_BYTES as u64;
                return if rest.len() < HEAD_BYTES && left >= needs { Stop::Needs(needs) } else { self.no_record() };
            };
            if record_bytes > self.end - self.next {
                return self.no_record();
            }
            let Some((raw, behind)) = usize::try_from(record_bytes).ok().and_then(|at| rest.split_at_checked(at))
            else {
                return Stop::Needs(record_bytes);
            };
            let offset = self.next;
            let record = match self.file.decode(offset, raw) {
                Ok(record) => record,
                Err(error) => return Stop::Damaged(error),
            };
            // One that is damaged may only look as if it had expired.
            let is_expired = record.is_expired(shown.now);
            if (shown.verify || is_expired)
                && let Err(error) = self.file.verify(offset, raw)
            {
                return Stop::Damaged(error);
            }
            self.next += record_bytes;
            rest = behind;
            let is_dead = self.dead.is_dead(offset);
            if is_dead || record.is_tombstone || is_expired {
                continue;
            }
            if !shown.gone.is_empty() && shown.gone.contains(record.key) {
                continue;
            }
            // The widths of the fields on the disk.
            let (key_bytes, value_bytes) = (record.key.len() as u16, record.value.len() as u32);
            let head_bytes = (raw.len() - record.key.len() - record.value.len()) as u8;
            let (version, compression) = (record.version, record.compression);
            items.push(Item { offset, version, value_bytes, key_bytes, head_bytes, compression });
        }
        Stop::Full
    }

    #[cold]
    fn no_record(&self) -> Stop {
        Stop::Damaged(Error::corruption(&self.file.path, self.next, "no record begins here; run a repair"))
    }

    /// Goes to the next record that holds.
    #[cold]
    fn skip_damage(&mut self) -> Result<()> {
        self.file.mark_damaged();
        let bytes = self.file.bytes(0..self.end)?;
        self.next = Walk::new(&bytes, self.file.salt).next_record(self.next);
        Ok(())
    }
}
