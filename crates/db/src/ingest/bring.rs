//! A table that was written elsewhere comes into the directory: linked or copied, synced, opened and checked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::durable;
use esker_format::file_name::FileName;
use esker_format::rocksdb::blob_refs;
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::version_edit::TableMeta;
use esker_log::distrust;

use super::sst_file::UNKNOWN_FAMILY;
use super::{Brought, IngestOptions, Newcomer, refuse};
use crate::cache::BlockCache;
use crate::family::Family;
use crate::iterate::InternalIterator;
use crate::range_deletions::widen;
use crate::reclaim::{Incoming, Reserved};
use crate::store::Store;
use crate::table::Table;
use crate::{Error, ErrorKind, Result};

const CHECKING: &str = "checking a file that is taken in";

impl Store {
    /// Whether `family` can take in the table at `path`, as far as its end tells; its first and last keys.
    ///
    /// # Errors
    /// `InvalidArgument` if it is another family's, empty, was not written to be taken in, or was before; as [`Table::open`].
    pub(super) fn inspect(&self, family: &Family, path: &Path) -> Result<(Vec<u8>, Vec<u8>)> {
        let file_bytes = self.env.files.metadata(path)?.len;
        let cache = Arc::new(BlockCache::new(0));
        let table = Table::open(self.env.files.open(path)?, file_bytes, &family.order.into(), cache)?;
        check_fits(family, &table, path)?;
        let (mut smallest, mut largest) = bounds(&table).map_err(|error| error.while_doing(CHECKING))?;
        widen(table.order(), &mut smallest, &mut largest, table.range_deletions());
        Ok((internal_key::user_key(&smallest).to_vec(), internal_key::user_key(&largest).to_vec()))
    }

    /// Gives the table at `from` a name in the directory.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect): there may be another file since.
    pub(super) fn bring(
        &self,
        family: &Family,
        from: &Path,
        options: IngestOptions,
        brought: &mut Brought<'_>,
        incoming: &Incoming,
    ) -> Result<Newcomer> {
        let from_bytes = self.env.files.metadata(from)?.len;
        let number = self.new_file_number();
        let path = self.path_of(&FileName::Table(number));
        brought.paths.push(path.clone());
        // A link takes nothing of the disk.
        let mut room =
            (!options.move_files || self.room.is_limited()).then(|| self.let_in(incoming, from_bytes)).transpose()?;
        incoming.grow(from_bytes);
        let is_linked = options.move_files && self.link_in(from, &path)?;
        if !is_linked {
            let room = match room.take() {
                Some(room) => room,
                None => self.let_in(incoming, from_bytes)?,
            };
            self.copy_in(from, &path, from_bytes, &room)?;
        }
        drop(room);
        let file_bytes = self.env.files.metadata(&path)?.len;
        let table = Table::open(self.open_sealed(&path)?, file_bytes, &family.order.into(), self.cache.clone())?;
        check_fits(family, &table, from)?;
        if options.verify {
            self.verify(&table)?;
        }
        newcomer(table, number, path, self.env.clock.unix_seconds(), file_bytes)
    }

    /// `false` if it cannot be linked or, being somebody else's, not synced. Nor if a sync failed in its directory once: it may
    /// read as what never got to the disk, and no later sync would say so. A copy is what was read.
    fn link_in(&self, from: &Path, path: &Path) -> Result<bool> {
        let files = &*self.env.files;
        let from_dir = from.parent().unwrap_or(Path::new(""));
        if distrust::is_warned(files, from_dir)? || !durable::link(files, from, path)? {
            return Ok(false);
        }
        // Whoever wrote it need not have synced it.
        let file_bytes = files.metadata(path)?.len;
        match files.reopen(path, file_bytes) {
            Ok(file) => match file.sync() {
                Ok(()) => Ok(true),
                Err(error) => {
                    // Should that fail too, the error that is told is the worse one.
                    let _ = distrust::warn(files, from_dir);
                    Err(error.into())
                }
            },
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                files.remove(path).map(|()| false).map_err(Error::from)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn copy_in(&self, from: &Path, path: &Path, bytes: u64, room: &Reserved) -> Result<()> {
        durable::copy(&*self.env.files, from, path, bytes, |piece| {
            room.note_written(piece.len() as u64);
            // Whoever closes the store does not wait for gigabytes to be copied.
            self.check_open()
        })
    }

    /// Every byte of it.
    fn verify(&self, table: &Table) -> Result<()> {
        let checked = table.check(&mut |key, _| {
            self.check_open()?;
            let key = decode(table, key)?;
            if matches!(key.kind, ValueKind::Value | ValueKind::Deletion | ValueKind::Merge) {
                return Ok(());
            }
            let reason = format!("an entry of kind {:?} cannot be taken in", key.kind);
            Err(Error::new(ErrorKind::UnsupportedFormat, reason).with_path(table.path()))
        });
        checked.map(drop).map_err(|error| error.while_doing(CHECKING))
    }
}

/// Whether `family` can take in `table`, which is or was at `path`, as far as its properties tell.
fn check_fits(family: &Family, table: &Table, path: &Path) -> Result<()> {
    let properties = table.properties();
    if table.taken_in().is_none() {
        return Err(refuse(path, "the table was not written to be taken in: an SstFileWriter does that"));
    }
    if table.taken_in() != Some(SequenceNumber::default()) {
        let reason = "the table has been taken in before: RocksDB has written a sequence number into it, which would be another here; write \
            its entries into a new one, or take in a copy from before that";
        return Err(refuse(path, reason));
    }
    if properties.entry_count == 0 {
        return Err(refuse(path, "the table has no entries"));
    }
    let written_for = properties.column_family_id;
    if written_for != UNKNOWN_FAMILY && written_for != u64::from(family.id) {
        let reason = format!("the table is for column family {written_for}, not for {} ({:?})", family.id, family.name);
        return Err(refuse(path, reason));
    }
    if properties.other.contains_key(blob_refs::PROPERTY) {
        return Err(refuse(path, "the table points into blob files, which cannot be taken in"));
    }
    Ok(())
}

fn decode<'a>(table: &Table, key: &'a [u8]) -> Result<InternalKey<'a>> {
    InternalKey::decode(key).map_err(|error| Error::decode(table.path(), 0, "reading a key", error))
}

/// Its first and last keys; empty if it has none.
fn bounds(table: &Arc<Table>) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut keys = table.iter(false);
    keys.seek_to_first()?;
    if !keys.valid() {
        return Ok((Vec::new(), Vec::new()));
    }
    let smallest = keys.key().to_vec();
    keys.seek_to_last()?;
    let largest = keys.key().to_vec();
    decode(table, &smallest).and_then(|_| decode(table, &largest))?;
    Ok((smallest, largest))
}

fn newcomer(table: Arc<Table>, number: FileNumber, path: PathBuf, now: u64, file_bytes: u64) -> Result<Newcomer> {
    let (mut smallest, mut largest) = bounds(&table)?;
    widen(table.order(), &mut smallest, &mut largest, table.range_deletions());
    let meta = TableMeta {
        number,
        file_bytes,
        smallest,
        largest,
        tail_bytes: file_bytes.saturating_sub(table.properties().tail_start_offset.min(file_bytes)),
        oldest_ancestor_time: now,
        file_creation_time: now,
        unique_id: table.properties().unique_id(),
        ..TableMeta::default()
    };
    Ok(Newcomer { meta, table, path })
}
