//! Scans: everything that lives, file by file, in the order of the bytes on the disk.
//!
//! - S1: a scan sees the store as of its start. It takes, in one moment in which no write and no merge is half done, the end of every
//!   file and how many of its records were dead; both only grow, and files are kept while a scan holds them.
//! - S2: the directory is not asked: what is dead is told by the file's own list. A file without dead records costs
//!   nothing but its bytes.
//! - S3: files are decoded chunk by chunk (`scan/chunk.rs`), with the help of another thread once a scan turns out
//!   long (`scan/ahead.rs`), where the store has threads at all. What it sees does not depend on who decodes; the order does.
//! - S4: of a key that `get` does not find nothing is shown, whatever versions of it are kept (`scan/gone.rs`).
//!
//! Cost: one sequential pass; a sort of the offsets of a file's dead records when it is begun. Space of files that are
//! merged meanwhile comes back when the scan is past them.

mod ahead;
mod chunk;
mod gone;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use esker_format::cask::record::FIRST_OFFSET;
use esker_format::compression::Compression;

use self::ahead::Source;
use self::chunk::{Chunk, Decoder, Extent, Item, Wanted};
use crate::file::DataFile;
use crate::read::Found;
use crate::store::Store;
use crate::value::CaskValue;
use crate::{ErrorKind, Result};

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
    source: Source,
    chunk: Option<Chunk>,
    /// The entry that the scan stands at is the one before.
    next: usize,
    packed_value: Vec<u8>,
    /// That it was closed was told.
    is_over: bool,
}

impl fmt::Debug for CaskScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaskScan").field("files_left", &self.source.files_left()).finish_non_exhaustive()
    }
}

impl Store {
    /// S1.
    pub(crate) fn extents(&self) -> Vec<(Arc<DataFile>, u64, usize)> {
        let _gate = self.gate.lock();
        let _stripes = self.stripes.lock_all();
        self.files.load().iter().map(|file| (file.clone(), file.end(), file.dead_len())).collect()
    }
}

impl CaskScan {
    pub(crate) fn new(store: Arc<Store>) -> Result<Self> {
        store.check_open()?;
        let extents = store.extents().into_iter().filter(|(_, end, _)| *end > FIRST_OFFSET);
        let mut waiting: Vec<_> = extents.map(|(file, end, dead_len)| Extent { file, end, dead_len }).collect();
        let now = store.env.clock.unix_seconds();
        let keeps_older = store.options.keep_versions > 1;
        let mut gone = if keeps_older { gone::find(&waiting, now)? } else { HashSet::new() };
        // The damage itself is told where the scan meets it.
        gone.extend(store.suspects.keys());
        let wanted = Wanted { now, verify: store.verifies_reads(), gone: Arc::new(gone) };
        let decoder = Decoder::new(waiting.drain(..).collect(), wanted);
        let source = Source::new(store.env.clone(), store.origin, decoder, store.options.background_jobs > 0);
        Ok(Self { store, source, chunk: None, next: 0, packed_value: Vec::new(), is_over: false })
    }

    /// Goes to the next entry. `false`: there is none, now and for good.
    ///
    /// # Errors
    /// `Corruption`: a record is damaged; the next call goes on behind it. `Io`: a file cannot be read; the next call goes on
    /// with the next one. `Closed`, in a process that was forked since, too.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.store.check_here()?;
        self.store.check_open()?;
        if let Some(chunk) = &self.chunk
            && self.next < chunk.items.len()
        {
            self.next += 1;
            return Ok(true);
        }
        self.advance_chunk()
    }

    fn advance_chunk(&mut self) -> Result<bool> {
        loop {
            if let Some(error) = self.chunk.take().and_then(|chunk| chunk.error) {
                return Err(error);
            }
            let Some(chunk) = self.source.next()? else { return Ok(false) };
            self.next = usize::from(!chunk.items.is_empty());
            self.chunk = Some(chunk);
            if self.next > 0 {
                return Ok(true);
            }
        }
    }

    #[inline]
    fn entry(&self) -> Option<(&Chunk, &Item)> {
        let chunk = self.chunk.as_ref()?;
        Some((chunk, chunk.items.get(self.next.checked_sub(1)?)?))
    }

    /// The entry's key; empty where there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |(chunk, item)| chunk.bytes(item.key()))
    }

    /// The entry's version.
    pub fn version(&self) -> u64 {
        self.entry().map_or(0, |(_, item)| item.version)
    }

    /// When the entry's time is over, in seconds since 1970; `None` if it stays, or there is none.
    ///
    /// # Errors
    /// `Corruption` if its record is damaged.
    pub fn expires_at(&self) -> Result<Option<u64>> {
        let Some((chunk, item)) = self.entry() else { return Ok(None) };
        Ok(chunk.file.decode(item.offset(), chunk.bytes(item.record()))?.expires_at)
    }

    /// The entry's value; empty where there is none.
    ///
    /// # Errors
    /// `Corruption` if a packed value cannot be unpacked.
    #[inline]
    pub fn value(&mut self) -> Result<&[u8]> {
        if self.entry().is_some_and(|(_, item)| item.compression != Compression::None) {
            self.packed_value = self.pinned_value()?.into_vec();
            return Ok(&self.packed_value);
        }
        Ok(self.entry().map_or(&[], |(chunk, item)| chunk.bytes(item.value())))
    }

    /// The entry's value, to keep.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn pinned_value(&self) -> Result<CaskValue> {
        let Some((chunk, item)) = self.entry() else { return Ok(CaskValue::default()) };
        if item.compression == Compression::None {
            let shared = || CaskValue::shared(&chunk.file, item.value());
            return Ok(if chunk.is_lent() { shared() } else { CaskValue::owned(chunk.bytes(item.value()).to_vec()) });
        }
        let raw = chunk.bytes(item.record());
        let record = chunk.file.decode(item.offset(), raw)?;
        self.store.unpacked(&Found { file: &chunk.file, offset: item.offset(), raw, is_lent: chunk.is_lent(), record })
    }
}

/// Keys and values as vectors of their own. After an error the iterator goes on behind what is damaged; after `Closed` it is over.
impl Iterator for CaskScan {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => Some(self.pinned_value().map(|value| (self.key().to_vec(), value.into_vec()))),
            Ok(false) => None,
            Err(error) if error.kind() == ErrorKind::Closed => {
                self.chunk = None;
                self.source.stop();
                // Once: who passes errors over comes to an end.
                (!std::mem::replace(&mut self.is_over, true)).then_some(Err(error))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
