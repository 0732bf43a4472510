//! Reading: directory, then the record itself.
//!
//! - R1: no lock is held while a record is read. A slot may be moved by a merge meanwhile; its file is then gone from the
//!   table, and the reader asks the directory again.
//! - R2: a record is the key's if the key in it is. One that does not check out is never taken for another key's: it is an
//!   error, as long as no sound record has the key.

use std::borrow::Cow;
use std::sync::Arc;

use esker_env::os::prefetch;
use esker_format::cask::record::{self, HEAD_BYTES_MAX, Record};
use esker_format::compression::{self, Compression};
use esker_format::varint::{self, VARINT64_BYTES_MAX};

use crate::file::DataFile;
use crate::keydir::{Candidates, KeyHash, Slot};
use crate::store::Store;
use crate::value::CaskValue;
use crate::{Error, Result};

/// How often a file may vanish under a reader. Each time a merge has ended, which takes far longer than a read.
const ATTEMPTS_MAX: usize = 1000;

/// A record in its file.
pub(crate) struct Found<'a> {
    pub(crate) file: &'a Arc<DataFile>,
    pub(crate) offset: u64,
    pub(crate) raw: &'a Cow<'a, [u8]>,
    pub(crate) record: Record<'a>,
}

impl Store {
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<CaskValue>> {
        self.check_open()?;
        self.get_at(self.keydir.hash(key), key)
    }

    #[inline]
    pub(crate) fn get_at(&self, hash: KeyHash, key: &[u8]) -> Result<Option<CaskValue>> {
        self.newest(hash, key, |found| if self.is_gone(&found.record) { Ok(None) } else { self.value(found).map(Some) })
    }

    pub(crate) fn exists_at(&self, hash: KeyHash, key: &[u8]) -> Result<bool> {
        Ok(self.newest(hash, key, |found| Ok((!self.is_gone(&found.record)).then_some(())))?.is_some())
    }

    pub(crate) fn value_len(&self, key: &[u8]) -> Result<Option<u64>> {
        self.check_open()?;
        self.newest(self.keydir.hash(key), key, |found| {
            let record = &found.record;
            if self.is_gone(record) {
                return Ok(None);
            }
            if record.compression == Compression::None {
                return Ok(Some(record.value.len() as u64));
            }
            // Every packing begins with the length of what was packed.
            let prefix = record.value.get(..VARINT64_BYTES_MAX).unwrap_or(record.value);
            let (bytes, _) = varint::get_u64(prefix)
                .ok_or_else(|| Error::corruption(&found.file.path, found.offset, "a packed value has no length"))?;
            Ok(Some(bytes))
        })
    }

    fn is_gone(&self, record: &Record<'_>) -> bool {
        record.expires_at.is_some() && record.is_expired(self.env.clock.unix_seconds())
    }

    /// What `take` makes of the key's newest record.
    #[inline]
    fn newest<T>(
        &self,
        hash: KeyHash,
        key: &[u8],
        mut take: impl FnMut(&Found<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        for _ in 0..ATTEMPTS_MAX {
            let candidates = self.keydir.newest(hash);
            match self.among(&candidates, key, &mut take)? {
                Search::Found(answer) => return Ok(answer),
                Search::Absent => return Ok(None),
                Search::Moved => {}
            }
        }
        Err(lost(self))
    }

    #[inline]
    fn among<T>(
        &self,
        candidates: &Candidates,
        key: &[u8],
        take: &mut impl FnMut(&Found<'_>) -> Result<Option<T>>,
    ) -> Result<Search<Option<T>>> {
        let mut files = None;
        let mut damage = None;
        for slot in candidates.iter() {
            // After the slot was read: what it points to is in the table, or was moved since.
            let files = files.get_or_insert_with(|| self.files.load());
            let Some(file) = files.get(slot.place().file) else { return Ok(Search::Moved) };
            let raw = file.record_bytes(&slot)?;
            // All of it at once: the head, which is looked at first, says nothing that would be needed for that.
            prefetch(&raw);
            match self.examine(file, &slot, &raw, key) {
                Ok(Some(found)) => return Ok(Search::Found(take(&found)?)),
                Ok(None) => {}
                Err(error) => damage = Some(error),
            }
        }
        damage.map_or(Ok(Search::Absent), Err)
    }

    /// The record at `slot`, if it is the key's.
    #[inline]
    fn examine<'a>(
        &self,
        file: &'a Arc<DataFile>,
        slot: &Slot,
        raw: &'a Cow<'a, [u8]>,
        key: &[u8],
    ) -> Result<Option<Found<'a>>> {
        let offset = u64::from(slot.place().offset);
        let record = file.decode(offset, raw)?;
        if record.key == key {
            return Ok(Some(Found { file, offset, raw, record }));
        }
        file.verify(offset, raw)?;
        Ok(None)
    }

    /// The value of a record, lent where that can be.
    #[inline]
    pub(crate) fn value(&self, found: &Found<'_>) -> Result<CaskValue> {
        let Found { file, offset, raw, record } = found;
        if self.options.verify_reads {
            file.verify(*offset, raw)?;
        }
        if record.compression != Compression::None {
            return self.unpacked(found);
        }
        if let Some(value) = CaskValue::short(record.value) {
            return Ok(value);
        }
        match raw {
            Cow::Borrowed(_) => {
                let end = offset + raw.len() as u64;
                Ok(CaskValue::shared(file, end - record.value.len() as u64..end))
            }
            Cow::Owned(_) => Ok(CaskValue::owned(record.value.to_vec())),
        }
    }

    pub(crate) fn unpacked(&self, found: &Found<'_>) -> Result<CaskValue> {
        let Found { file, offset, record, .. } = found;
        let mut out = Vec::new();
        compression::decompress(record.compression, record.value, &mut out, record::VALUE_BYTES_MAX).map_err(
            |error| {
                let base = offset + HEAD_BYTES_MAX as u64 + record.key.len() as u64;
                Error::decode(&file.path, base, "unpacking a value", error)
            },
        )?;
        Ok(CaskValue::owned(out))
    }

    /// The versions of `key` that are kept, newest first.
    pub(crate) fn history(&self, key: &[u8]) -> Result<Vec<(u64, CaskValue)>> {
        self.check_open()?;
        let hash = self.keydir.hash(key);
        'again: for _ in 0..ATTEMPTS_MAX {
            let mut versions = Vec::new();
            let candidates = self.keydir.all(hash);
            let files = self.files.load();
            for slot in candidates.iter() {
                let Some(file) = files.get(slot.place().file) else { continue 'again };
                let raw = file.record_bytes(&slot)?;
                let Some(found) = self.examine(file, &slot, &raw, key)? else { continue };
                if !self.is_gone(&found.record) {
                    versions.push((found.record.version, self.value(&found)?));
                } else if !slot.is_old() {
                    return Ok(Vec::new());
                }
            }
            versions.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
            return Ok(versions);
        }
        Err(lost(self))
    }
}

enum Search<T> {
    Found(T),
    Absent,
    /// A merge has moved it since the directory was asked.
    Moved,
}

#[cold]
fn lost(store: &Store) -> Error {
    Error::corruption(&store.dir, 0, "the directory points to a file that is not there")
}
