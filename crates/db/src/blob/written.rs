//! The blob files that the values of one memtable were written to as they came, oldest first.
//!
//! - W1: who reads the memtable finds each file that it points to here, as long as it holds the memtable's generation; no
//!   lock is taken. Files come at the end and stay.
//! - W2: a file is here before the first pointer to it is in the memtable.
//! - W3: when the memtable is sealed, all of its files are ended; the flush makes them the version's, by the same edit as
//!   the table that points to them. Where files are read as memory, the version's are; those here, which grow, are read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_format::rocksdb::internal_key::FileNumber;
use esker_format::rocksdb::version_edit::BlobFileAddition;
use parking_lot::{Mutex, MutexGuard};

use super::{ActiveBlob, BlobFile};
use crate::Result;
use crate::reclaim::Trash;
use crate::version::{BlobHandle, Life};

/// Those that take values, by partition.
pub(crate) type ActiveBlobs = BTreeMap<u8, ActiveBlob>;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct WrittenBlobs {
    first: OnceLock<Box<Link>>,
    /// Only whoever leads the commit queue takes this lock for long.
    active: Mutex<ActiveBlobs>,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Link {
    blob: WrittenBlob,
    next: OnceLock<Box<Link>>,
}

/// One of the files.
#[derive(Debug)]
pub(crate) struct WrittenBlob {
    file: Arc<BlobFile>,
    /// Shared with the version's handle.
    life: Arc<Life>,
    /// What the manifest shall say of it, once it is ended.
    addition: OnceLock<BlobFileAddition>,
}

impl WrittenBlobs {
    fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::successors(self.first.get(), |link| link.next.get()).map(Box::as_ref)
    }

    /// The file of that number.
    #[inline]
    pub(crate) fn find(&self, number: FileNumber) -> Option<&Arc<BlobFile>> {
        self.links().map(|link| &link.blob.file).find(|file| file.number() == number)
    }

    fn add(&self, blob: WrittenBlob) {
        let link = Box::new(Link { blob, next: OnceLock::new() });
        let mut place = &self.first;
        while let Some(link) = place.get() {
            place = &link.next;
        }
        // Only the leader adds, or recovery, alone: the place is empty.
        let _ = place.set(link);
    }

    /// A file that a store open for reading found the logs to point to.
    pub(crate) fn add_found(&self, file: Arc<BlobFile>, path: PathBuf, trash: &Arc<Trash>) {
        self.add(WrittenBlob { file, life: Arc::new(Life::new(path, trash.clone())), addition: OnceLock::new() });
    }

    /// Whether there never was one: known without a lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// The files that take values.
    pub(crate) fn active(&self) -> MutexGuard<'_, ActiveBlobs> {
        self.active.lock()
    }

    /// `blob`, just begun at `path`, is the one of its partition that takes values, and stands in `active`.
    pub(crate) fn begin(
        &self,
        active: &mut ActiveBlobs,
        partition: u8,
        blob: ActiveBlob,
        path: PathBuf,
        trash: &Arc<Trash>,
    ) {
        let life = Arc::new(Life::new(path, trash.clone()));
        self.add(WrittenBlob { file: blob.reader().clone(), life, addition: OnceLock::new() });
        active.insert(partition, blob);
    }

    /// Ends the file of the partition that takes values. One without values is none of the version's, and goes with the memtable.
    ///
    /// # Errors
    /// As [`ActiveBlob::end`]; it is still there then.
    pub(crate) fn end(&self, active: &mut ActiveBlobs, partition: u8) -> Result<()> {
        let Some(blob) = active.get_mut(&partition) else { return Ok(()) };
        let number = blob.reader().number();
        let Some(link) = self.links().find(|link| link.blob.file.number() == number) else { return Ok(()) };
        if blob.held().count == 0 {
            link.blob.mark_obsolete();
        } else {
            let _ = link.blob.addition.set(blob.end()?);
        }
        active.remove(&partition);
        Ok(())
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub(crate) fn end_all(&self, active: &mut ActiveBlobs) -> Result<()> {
        while let Some(partition) = active.keys().next().copied() {
            self.end(active, partition)?;
        }
        Ok(())
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// So many more, or less, are in them.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// See [`add_bytes`](Self::add_bytes).
    pub(crate) fn take_bytes(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many files there are.
    pub(crate) fn count(&self) -> usize {
        self.links().count()
    }

    /// Whether the file of that number is one of them.
    pub(crate) fn has(&self, number: FileNumber) -> bool {
        self.find(number).is_some()
    }

    /// Those that are ended, for a version, each as `sealed` has it.
    pub(crate) fn handles(
        &self,
        sealed: impl Fn(&Arc<BlobFile>) -> Arc<BlobFile>,
    ) -> impl Iterator<Item = Arc<BlobHandle>> {
        self.links().filter_map(move |link| {
            let WrittenBlob { file, life, addition } = &link.blob;
            Some(BlobHandle::sharing(addition.get()?.clone(), sealed(file), life.clone()))
        })
    }

    /// Nobody will want them: their family was dropped.
    pub(crate) fn mark_obsolete(&self) {
        self.links().for_each(|link| link.blob.mark_obsolete());
    }
}

impl WrittenBlob {
    fn mark_obsolete(&self) {
        self.life.mark_obsolete(self.file.records_end());
    }
}
