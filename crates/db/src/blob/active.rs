//! A blob file that takes values as they are written ([`Separation::AtWrite`](crate::Separation::AtWrite)).
//!
//! `created --append*--> ended (footer, sealed, synced) --flush of the memtable that points here--> one of the version's`
//!
//! - A1: whoever leads the commit queue is the only one who appends, takes back, syncs and ends.
//! - A2: nobody is told of a place in the file before the log has the pointer to it; so what an append left that failed, or
//!   whose group was not logged, is cut off again, and the file has no record that was never written.
//! - A3: where a file cannot be cut, or a sync failed, the store becomes read-only: only a recovery can tell what is there.
//! - A4: a file is ended, with a sync, before its successor in its partition is created.
//! - A5: while it grows, whoever has time syncs what came ([`BlobSync`]), so that those who must wait for a sync, at the end of
//!   a file or a log, do not wait for all of it.
//! - A6: syncs of a file wait for each other, and after one that failed all fail: the system tells of lost bytes once, to whoever
//!   happens to ask, and then says that all is well.
//! - A7: what a sync may have made durable before it was cut off is cut off durably before something else takes its place: a power loss
//!   would bring it back there, and recovery takes what is neither the new bytes nor zeroes for damage.
//!
//! - A8: until it is ended, zeroes may follow its records, up to [`PAD_BYTES`](esker_env::PAD_BYTES) less one: nothing points there.
//!
//! Cost: one append for all values of a group, from where they are. It is padded, not preallocated: a mapped window is faster for values
//! of a few KiB as long as nobody syncs, but each sync takes its pages away (measured with 16 KiB values: 17 µs a put instead of
//! 22, and 45 with A5), and without A5 whoever comes to the end of a file waits for 200 ms instead of 10.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::{AppendFile, FileSystem};
use esker_format::compression::Compression;
use esker_format::rocksdb::blob::{BlobFileHeader, BlobFooter, HEADER_BYTES};
use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::BlobFileAddition;
use parking_lot::Mutex;

use super::BlobFile;
use crate::{Error, ErrorKind, Result};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct ActiveBlob {
    file: Arc<dyn AppendFile>,
    reader: Arc<BlobFile>,
    held: Held,
    synced: Arc<Mutex<Synced>>,
    /// As in `synced`.
    written: Arc<AtomicU64>,
    /// As in `synced`: who asks for a sync waits for none.
    taken_back: u64,
    /// A sync was asked for when the file went to here.
    asked_at: u64,
    /// Whether the footer is there: it takes no more values.
    has_footer: bool,
}

/// A sync of what a file held at some moment, for another thread than the leader.
#[derive(Debug)]
pub(crate) struct BlobSync {
    file: Arc<dyn AppendFile>,
    to: u64,
    /// Of `synced` when this was asked for.
    taken_back: u64,
    synced: Arc<Mutex<Synced>>,
}

/// What survives power loss. Locked for as long as a sync takes (A6).
#[derive(Debug, Default)]
struct Synced {
    /// Everything before this does.
    to: u64,
    /// Nothing behind this does.
    reached: u64,
    /// Nothing was written behind this, yet: set before an append, so that whoever ends a sync knows what it may have taken along.
    written: Arc<AtomicU64>,
    /// How often something was taken back: a sync of what was there before says nothing of what came in its place.
    taken_back: u64,
    failed: bool,
}

impl Synced {
    /// Syncs `file`, which holds `to` bytes or more.
    fn sync(&mut self, file: &dyn AppendFile, to: u64) -> Result<()> {
        let unknown = |why: &str| {
            let reason = format!("a sync of a blob file failed, so what is durable is unknown; reopen to go on: {why}");
            Error::new(ErrorKind::ReadOnly, reason).with_path(file.path())
        };
        if self.failed {
            return Err(unknown("it was another thread's"));
        }
        if let Err(error) = file.sync() {
            self.failed = true;
            return Err(unknown(&error.io().to_string()).with_source(error));
        }
        self.to = self.to.max(to);
        self.reached = self.written.load(Ordering::Acquire);
        Ok(())
    }
}

impl BlobSync {
    /// Whether it is of the same file, which has grown since, or been cut.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }

    /// Whether there is something to sync, as far as one can tell without waiting for a sync that goes on.
    pub(crate) fn is_due(&self) -> bool {
        self.synced.try_lock().is_none_or(|synced| synced.to < self.to || synced.failed)
    }

    /// Syncs, unless somebody did.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown.
    pub(crate) fn run(&self) -> Result<()> {
        let mut synced = self.synced.lock();
        let is_done = synced.to >= self.to || synced.taken_back != self.taken_back;
        if is_done && !synced.failed {
            return Ok(());
        }
        synced.sync(&*self.file, self.to)
    }

    /// Makes what the file held then durable, of which nothing was taken back since.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown.
    pub(crate) fn run_whole(&self) -> Result<()> {
        let mut synced = self.synced.lock();
        if synced.to >= self.to && !synced.failed {
            return Ok(());
        }
        synced.sync(&*self.file, self.to)
    }
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Where its records end.
    pub(crate) end: u64,
    /// How many they are.
    pub(crate) count: u64,
}

impl ActiveBlob {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// As the file system's; there may be a file, which is nobody's.
    pub(crate) fn create(
        files: &dyn FileSystem,
        path: &Path,
        number: FileNumber,
        column_family_id: u32,
        compression: Compression,
    ) -> Result<Self> {
        let file = files.create(path)?;
        file.pad();
        file.append(&[&BlobFileHeader { column_family_id, compression }.encode()])?;
        let held = Held { end: HEADER_BYTES as u64, count: 0 };
        let written = Arc::new(AtomicU64::new(held.end));
        let synced = Arc::new(Mutex::new(Synced { written: written.clone(), ..Synced::default() }));
        let reader = BlobFile::growing(files.open(path)?, path, number, compression, held.end);
        Ok(Self { file, reader, held, synced, written, taken_back: 0, asked_at: 0, has_footer: false })
    }

    /// For whoever reads what was appended.
    pub(crate) fn reader(&self) -> &Arc<BlobFile> {
        &self.reader
    }

    /// What it holds now.
    pub(crate) fn held(&self) -> Held {
        self.held
    }

    /// Whether it takes no more values.
    pub(crate) fn has_footer(&self) -> bool {
        self.has_footer
    }

    /// Appends `count` records, given in `parts`, `bytes` in all.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: nothing was appended.
    /// - `ReadOnly`: unknown what the file holds (A3).
    pub(crate) fn append(&mut self, parts: &[&[u8]], count: u64, bytes: u64) -> Result<()> {
        self.append_or_cut(parts)?;
        self.held = Held { end: self.held.end + bytes, count: self.held.count + count };
        self.reader.set_records(self.held.end, self.held.count);
        Ok(())
    }

    fn append_or_cut(&self, parts: &[&[u8]]) -> Result<()> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.written.store(self.held.end + bytes, Ordering::Release);
        let Err(error) = self.file.append(parts) else { return Ok(()) };
        let error = Error::from(error);
        self.cut(&mut self.synced.lock(), &error)?;
        Err(error)
    }

    /// Cuts off what was appended since it held `before`: because of `error`, nothing points there (A2).
    ///
    /// # Errors
    /// `ReadOnly`: it cannot be cut, or not durably.
    pub(crate) fn take_back(&mut self, before: Held, error: &Error) -> Result<()> {
        self.held = before;
        self.reader.set_records(before.end, before.count);
        let mut synced = self.synced.lock();
        synced.to = synced.to.min(before.end);
        synced.taken_back += 1;
        self.taken_back = synced.taken_back;
        self.cut(&mut synced, error)
    }

    fn cut(&self, synced: &mut Synced, error: &Error) -> Result<()> {
        self.file.truncate(self.held.end).map_err(|cutting| {
            let reason = format!(
                "a write failed ({}) and what it left in a blob file cannot be cut off ({cutting}); reopen to go on",
                error.reason()
            );
            let read_only = Error::new(ErrorKind::ReadOnly, reason).with_path(self.file.path());
            read_only.with_offset(self.held.end).with_source(error.clone())
        })?;
        self.written.store(self.held.end, Ordering::Release);
        // A7.
        if synced.reached > self.held.end { synced.sync(&*self.file, self.held.end) } else { Ok(()) }
    }

    /// Makes every value appended so far survive power loss; nothing if they do already.
    ///
    /// # Errors
    /// `ReadOnly`: what is durable is unknown.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.pending_sync().run()
    }

    /// A sync of what it holds.
    pub(crate) fn pending_sync(&self) -> BlobSync {
        let (file, synced, taken_back) = (self.file.clone(), self.synced.clone(), self.taken_back);
        BlobSync { file, to: self.held.end, taken_back, synced }
    }

    /// A sync for somebody with time, if so many bytes came since the last.
    pub(crate) fn due_sync(&mut self, bytes: u64) -> Option<BlobSync> {
        if self.held.end - self.asked_at.min(self.held.end) < bytes {
            return None;
        }
        self.asked_at = self.held.end;
        Some(self.pending_sync())
    }

    /// Writes the footer and syncs. Again after a failure goes on where that was.
    ///
    /// # Errors
    /// - `Exhausted`, `Io`: it is not ended; what it holds is as it was.
    /// - `ReadOnly`: what is durable is unknown.
    pub(crate) fn end(&mut self) -> Result<BlobFileAddition> {
        if !self.has_footer {
            self.append_or_cut(&[&BlobFooter { blob_count: self.held.count }.encode()])?;
            self.has_footer = true;
        }
        self.file.seal()?;
        self.synced.lock().sync(&*self.file, self.held.end)?;
        Ok(BlobFileAddition {
            number: self.reader.number(),
            total_count: self.held.count,
            total_bytes: self.held.end - HEADER_BYTES as u64,
            ..BlobFileAddition::default()
        })
    }
}
