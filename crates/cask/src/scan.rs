//! Scans: everything that lives, file by file, in the order of the bytes on the disk.
//!
//! - S1: a scan sees the store as of its start. It takes, in one moment in which no write and no merge is half done, the end of every
//!   file and how many of its records were dead; both only grow, and files are kept while a scan holds them.
//! - S2: the directory is not asked: what is dead is told by the file's own list. A file without dead records costs
//!   nothing but its bytes.
//!
//! Cost: one sequential pass; a sort of the offsets of a file's dead records when it is begun. Space of files that are
//! merged meanwhile comes back when the scan is past them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use esker_env::Access;
use esker_format::cask::record::{FIRST_OFFSET, HEAD_BYTES};
use esker_format::compression::Compression;

use crate::file::{DataFile, DeadCursor, Walk};
use crate::read::Found;
use crate::store::Store;
use crate::value::CaskValue;
use crate::{Error, Result};

/// A file as it was at the start of a scan.
struct Extent {
    file: Arc<DataFile>,
    end: u64,
    dead_len: usize,
    clean: bool,
}

struct Current {
    file: Arc<DataFile>,
    end: u64,
    dead: DeadCursor,
    /// Where the next record begins.
    next: u64,
}

/// Where the scan stands: a record of the current file.
struct Position {
    offset: u64,
    record: Range<u64>,
    key: Range<u64>,
    value: Range<u64>,
    version: u64,
    compression: Compression,
    /// Its bytes, where the file cannot lend them.
    owned: Option<Vec<u8>>,
}

/// Goes through everything that lived when it was made, in no order of keys. See [`Cask::scan`](crate::Cask::scan).
///
/// ```no_run
/// # fn main() -> esker_cask::Result<()> {
/// # let cask = esker_cask::Cask::open("/tmp/cask", esker_cask::CaskOptions::default())?;
/// let mut scan = cask.scan()?;
/// while scan.advance()? {
///     let value_bytes = scan.value()?.len();
///     println!("{:?} has {value_bytes} bytes", scan.key());
/// }
/// # Ok(())
/// # }
/// ```
pub struct CaskScan {
    store: Arc<Store>,
    waiting: VecDeque<Extent>,
    current: Option<Current>,
    position: Option<Position>,
    now: u64,
    packed_value: Vec<u8>,
}

impl fmt::Debug for CaskScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaskScan").field("files_left", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Store {
    /// S1.
    pub(crate) fn extents(&self) -> Vec<(Arc<DataFile>, u64, usize)> {
        let _gate = self.gate.lock();
        let _stripes = self.all_stripes();
        self.files.load().iter().map(|file| (file.clone(), file.end(), file.dead_len())).collect()
    }
}

impl CaskScan {
    pub(crate) fn new(store: Arc<Store>) -> Result<Self> {
        store.check_open()?;
        let extents = store.extents();
        let waiting = extents.into_iter().filter(|(_, end, _)| *end > FIRST_OFFSET);
        let waiting =
            waiting.map(|(file, end, dead_len)| Extent { clean: dead_len == 0, file, end, dead_len }).collect();
        let now = store.env.clock.unix_seconds();
        Ok(Self { store, waiting, current: None, position: None, now, packed_value: Vec::new() })
    }

    /// Goes to the next entry. `false`: there is none, now and for good.
    ///
    /// # Errors
    /// `Corruption`: a record is damaged; the next call goes on behind it. `Io`; `Closed`.
    pub fn advance(&mut self) -> Result<bool> {
        self.store.check_open()?;
        self.position = None;
        loop {
            let Some(current) = &mut self.current else {
                let Some(extent) = self.waiting.pop_front() else { return Ok(false) };
                self.current = Some(begin(extent));
                continue;
            };
            if current.next >= current.end {
                self.current = None;
                continue;
            }
            let verify = self.store.options.verify_reads;
            match current.step(self.now, verify) {
                Ok(Some(position)) => {
                    self.position = Some(position);
                    return Ok(true);
                }
                Ok(None) => {}
                Err(error) => {
                    current.skip_damage()?;
                    return Err(error);
                }
            }
        }
    }

    /// The entry's key; empty where there is none.
    pub fn key(&self) -> &[u8] {
        self.part(|position| position.key.clone())
    }

    /// The entry's version.
    pub fn version(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.version)
    }

    /// The entry's value; empty where there is none.
    ///
    /// # Errors
    /// `Corruption` if a packed value cannot be unpacked.
    pub fn value(&mut self) -> Result<&[u8]> {
        if self.position.as_ref().is_none_or(|position| position.compression == Compression::None) {
            return Ok(self.part(|position| position.value.clone()));
        }
        self.packed_value = self.pinned_value()?.into_vec();
        Ok(&self.packed_value)
    }

    /// The entry's value, to keep.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn pinned_value(&self) -> Result<CaskValue> {
        let (Some(current), Some(position)) = (&self.current, &self.position) else { return Ok(CaskValue::default()) };
        let raw = match &position.owned {
            Some(owned) => Cow::Borrowed(&owned[..]),
            None => current.file.bytes(position.record.clone())?,
        };
        let record = current.file.decode(position.offset, &raw)?;
        if position.owned.is_some() && record.compression == Compression::None {
            return Ok(CaskValue::owned(record.value.to_vec()));
        }
        self.store.value(&Found { file: &current.file, offset: position.offset, raw: &raw, record })
    }

    fn part(&self, range: impl Fn(&Position) -> Range<u64>) -> &[u8] {
        let (Some(current), Some(position)) = (&self.current, &self.position) else { return &[] };
        let range = range(position);
        match &position.owned {
            Some(owned) => {
                let local = |place: u64| usize::try_from(place - position.offset).unwrap_or(usize::MAX);
                owned.get(local(range.start)..local(range.end)).unwrap_or_default()
            }
            None => current.file.slice(range).unwrap_or_default(),
        }
    }
}

fn begin(extent: Extent) -> Current {
    let Extent { file, end, dead_len, clean } = extent;
    file.advise(Access::Sequential);
    let dead = if clean { DeadCursor::new(Vec::new()) } else { file.dead_cursor(dead_len) };
    Current { file, end, dead, next: FIRST_OFFSET }
}

impl Current {
    /// The record at `next`, and goes past it. `None`: it is dead, a deletion, or has expired.
    #[inline]
    fn step(&mut self, now: u64, verify: bool) -> Result<Option<Position>> {
        let offset = self.next;
        let head = self.file.bytes(offset..(offset + HEAD_BYTES as u64).min(self.end))?;
        let record_bytes = esker_format::cask::record::peek_bytes(&head)
            .filter(|bytes| offset.checked_add(*bytes).is_some_and(|end| end <= self.end))
            .ok_or_else(|| Error::corruption(&self.file.path, offset, "no record begins here; run a repair"))?;
        let raw = self.file.bytes(offset..offset + record_bytes)?;
        let record = self.file.decode(offset, &raw)?;
        if verify {
            self.file.verify(offset, &raw)?;
        }
        self.next = offset + record_bytes;
        let is_dead = self.dead.is_dead(offset);
        if is_dead || record.is_tombstone || record.is_expired(now) {
            return Ok(None);
        }
        let end = offset + record_bytes;
        let value = end - record.value.len() as u64..end;
        let key = value.start - record.key.len() as u64..value.start;
        let (version, compression) = (record.version, record.compression);
        let owned = match raw {
            Cow::Borrowed(_) => None,
            Cow::Owned(raw) => Some(raw),
        };
        Ok(Some(Position { offset, record: offset..end, key, value, version, compression, owned }))
    }

    /// Goes to the next record that holds.
    #[cold]
    fn skip_damage(&mut self) -> Result<()> {
        self.file.mark_damaged();
        let bytes = self.file.bytes(0..self.end)?;
        self.next = Walk::new(&bytes, self.file.salt, true).next_record(self.next);
        Ok(())
    }
}

/// Keys and values as vectors of their own. After an error the iterator goes on behind what is damaged.
impl Iterator for CaskScan {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => Some(self.pinned_value().map(|value| (self.key().to_vec(), value.into_vec()))),
            Ok(false) => None,
            Err(error) if error.kind() == crate::ErrorKind::Closed => {
                (self.current, self.position) = (None, None);
                self.waiting.clear();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}
