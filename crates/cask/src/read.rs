//! Reading: directory, then the record itself.
//!
//! - R1: no lock is held while a record is read. A slot may be moved by a merge meanwhile; its file is then gone from the
//!   table, and the reader asks the directory again. A file stays readable while somebody looks at the table that has it, or holds it.
//! - R2: a record is the key's if the key in it is. One that does not check out is never taken for another key's: it is an
//!   error, as long as no sound record has the key. Of one whose slot is not in the directory, `suspects` knows the key.

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
/// A record up to this length is read while the table is looked at: a page or two. Of a longer one the file is held, so that nobody waits
/// who replaces the table.
const LOOKED_AT_BYTES_MAX: u64 = 4096;

/// So many keys are looked for at once: for as many a processor can have memory on its way.
const TOGETHER: usize = 16;

/// A record in its file.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) file: &'a Arc<DataFile>,
    pub(crate) offset: u64,
    pub(crate) raw: &'a [u8],
    /// Whether the file lent it, rather than that it was read into a buffer.
    pub(crate) is_lent: bool,
    pub(crate) record: Record<'a>,
}

/// What becomes of a key's record.
trait Take {
    fn take(&mut self, found: &Found<'_>) -> Result<()>;
}

impl<T: FnMut(&Found<'_>) -> Result<()>> Take for T {
    fn take(&mut self, found: &Found<'_>) -> Result<()> {
        self(found)
    }
}

/// Its value is the answer. No closure, so that all of a get can be one function.
struct IntoAnswer<'a> {
    store: &'a Store,
    answer: &'a mut Result<Option<CaskValue>>,
}

impl Take for IntoAnswer<'_> {
    #[inline(always)]
    fn take(&mut self, found: &Found<'_>) -> Result<()> {
        if !self.store.is_gone_for_sure(found)? {
            self.store.value_into(found, self.answer);
        }
        Ok(())
    }
}

impl Store {
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<CaskValue>> {
        self.check_open()?;
        self.get_at(self.keydir.hash(key), key)
    }

    #[inline]
    pub(crate) fn get_at(&self, hash: KeyHash, key: &[u8]) -> Result<Option<CaskValue>> {
        // Made where the caller will find it: moved, it would cost more than the copy out of the record.
        let mut answer = Ok(None);
        self.get_into(hash, key, &mut answer);
        answer
    }

    fn get_into(&self, hash: KeyHash, key: &[u8], answer: &mut Result<Option<CaskValue>>) {
        if let Err(error) = self.newest(hash, key, IntoAnswer { store: self, answer }) {
            *answer = Err(error);
        }
    }

    /// Every key as [`get`](Self::get), with what it will look at asked for before.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Result<Option<CaskValue>>>> {
        self.check_open()?;
        let mut values = Vec::with_capacity(keys.len());
        let mut hashes = Vec::with_capacity(TOGETHER);
        for some in keys.chunks(TOGETHER) {
            hashes.clear();
            hashes.extend(some.iter().map(|key| self.keydir.hash(key.as_ref())));
            hashes.iter().for_each(|hash| self.keydir.prefetch(*hash));
            hashes.iter().for_each(|hash| self.keydir.prefetch_slots(*hash));
            hashes.iter().for_each(|hash| self.prefetch_record(*hash));
            for (hash, key) in hashes.iter().zip(some) {
                values.push(Ok(None));
                if let Some(answer) = values.last_mut() {
                    self.get_into(*hash, key.as_ref(), answer);
                }
            }
        }
        Ok(values)
    }

    /// Says that the records with this tag will be read soon.
    fn prefetch_record(&self, hash: KeyHash) {
        for slot in self.keydir.newest(hash).iter() {
            let Some(bytes) = slot.bytes().filter(|bytes| *bytes <= LOOKED_AT_BYTES_MAX) else { continue };
            let offset = u64::from(slot.place().offset);
            self.with_file_of(&slot, |file| file.slice(offset..offset + bytes).map(prefetch));
        }
    }

    pub(crate) fn exists_at(&self, hash: KeyHash, key: &[u8]) -> Result<bool> {
        let mut is_there = false;
        self.newest(hash, key, |found: &Found<'_>| {
            is_there = !self.is_gone_for_sure(found)?;
            Ok(())
        })?;
        Ok(is_there)
    }

    pub(crate) fn value_len(&self, key: &[u8]) -> Result<Option<u64>> {
        self.check_open()?;
        let mut len = None;
        self.newest(self.keydir.hash(key), key, |found: &Found<'_>| {
            if !self.is_gone_for_sure(found)? {
                len = Some(unpacked_len(found)?);
            }
            Ok(())
        })?;
        Ok(len)
    }

    pub(crate) fn expires_at(&self, key: &[u8]) -> Result<Option<u64>> {
        self.check_open()?;
        let mut at = None;
        self.newest(self.keydir.hash(key), key, |found: &Found<'_>| {
            found.file.verify(found.offset, found.raw)?;
            at = found.record.expires_at.filter(|_| !self.is_gone(&found.record));
            Ok(())
        })?;
        Ok(at)
    }

    /// Where a sync has failed, memory is nothing to trust: the system may show the bytes that are on the disk in place of those that were written.
    #[inline]
    pub(crate) fn verifies_reads(&self) -> bool {
        self.options.verify_reads || self.has_failed()
    }

    pub(crate) fn is_gone(&self, record: &Record<'_>) -> bool {
        record.expires_at.is_some() && record.is_expired(self.env.clock.unix_seconds())
    }

    /// The same of a record that was found: one that is damaged may only look as if it had expired.
    #[inline(always)]
    fn is_gone_for_sure(&self, found: &Found<'_>) -> Result<bool> {
        if !self.is_gone(&found.record) {
            return Ok(false);
        }
        found.file.verify(found.offset, found.raw).map(|()| true)
    }

    /// What `look` makes of the file that has the record of `slot`; `None`: it is not there any more.
    #[inline(always)]
    pub(crate) fn with_file_of<R>(&self, slot: &Slot, mut look: impl FnMut(&Arc<DataFile>) -> R) -> Option<R> {
        let is_short = slot.bytes().is_some_and(|bytes| bytes <= LOOKED_AT_BYTES_MAX);
        // After the slot was read: what it points to is in the table, or was moved since.
        if is_short {
            return self.files.look(|files| files.get(slot.place().file).map(look));
        }
        let file = self.files.look(|files| files.get(slot.place().file).cloned())?;
        Some(look(&file))
    }

    /// Shows `take` the key's newest record, if it has any.
    #[inline(always)]
    fn newest(&self, hash: KeyHash, key: &[u8], mut take: impl Take) -> Result<()> {
        self.suspects.refuse(key)?;
        match self.among(&self.keydir.newest(hash), key, &mut take) {
            Search::Found | Search::Absent => Ok(()),
            Search::Damaged(error) | Search::Refused(error) => Err(error),
            Search::Moved => self.newest_again(hash, key, &mut take),
        }
    }

    #[cold]
    fn newest_again(&self, hash: KeyHash, key: &[u8], take: &mut impl Take) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            match self.among(&self.keydir.newest(hash), key, take) {
                Search::Found | Search::Absent => return Ok(()),
                Search::Damaged(error) | Search::Refused(error) => return Err(error),
                Search::Moved => {}
            }
        }
        Err(lost(self))
    }

    #[inline(always)]
    fn among(&self, candidates: &Candidates, key: &[u8], take: &mut impl Take) -> Search {
        let mut search = Search::Absent;
        let mut index = 0;
        while let Some(slot) = candidates.get(index) {
            match self.try_slot(slot, key, take) {
                Search::Absent => {}
                Search::Damaged(error) => search = Search::Damaged(error),
                done => return done,
            }
            index += 1;
        }
        search
    }

    /// The record at `slot`, shown to `take` if it is the key's.
    #[inline(always)]
    fn try_slot(&self, slot: &Slot, key: &[u8], take: &mut impl Take) -> Search {
        if slot.bytes().is_none_or(|bytes| bytes > LOOKED_AT_BYTES_MAX) {
            return self.try_long(slot, key, take);
        }
        self.files.look(|files| match files.get(slot.place().file) {
            Some(file) => try_record(file, slot, key, take),
            None => Search::Moved,
        })
    }

    #[cold]
    fn try_long(&self, slot: &Slot, key: &[u8], take: &mut impl Take) -> Search {
        match self.files.look(|files| files.get(slot.place().file).cloned()) {
            Some(file) => try_record(&file, slot, key, take),
            None => Search::Moved,
        }
    }

    /// The value of a record, lent where that can be.
    #[inline(always)]
    fn value_into(&self, found: &Found<'_>, answer: &mut Result<Option<CaskValue>>) {
        let Found { file, offset, raw, record, .. } = found;
        if self.verifies_reads()
            && let Err(error) = file.verify(*offset, raw)
        {
            *answer = Err(error);
            return;
        }
        if record.compression == Compression::None {
            *answer = Ok(Some(CaskValue::default()));
            if let Ok(Some(value)) = answer
                && value.copy_short(record.value)
            {
                return;
            }
        }
        // By value: a reference would have all of it in memory, for each get.
        *answer = self.long_value(*found).map(Some);
    }

    #[inline(never)]
    fn long_value(&self, found: Found<'_>) -> Result<CaskValue> {
        let Found { file, offset, raw, is_lent, record } = &found;
        if record.compression != Compression::None {
            return self.unpacked(&found);
        }
        if !is_lent {
            return Ok(CaskValue::owned(record.value.to_vec()));
        }
        let end = offset + raw.len() as u64;
        Ok(CaskValue::shared(file, end - record.value.len() as u64..end))
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
        self.suspects.refuse(key)?;
        let hash = self.keydir.hash(key);
        'again: for _ in 0..ATTEMPTS_MAX {
            let mut versions = Vec::new();
            let candidates = self.keydir.all(hash);
            let files = self.files.load();
            for slot in candidates.iter() {
                let Some(file) = files.get(slot.place().file) else { continue 'again };
                let raw = file.record_bytes(&slot)?;
                let Some(found) = examine(file, &slot, &raw, key)? else { continue };
                if !self.is_gone_for_sure(&found)? {
                    let mut value = Ok(None);
                    self.value_into(&found, &mut value);
                    versions.extend(value?.map(|value| (found.record.version, value)));
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

enum Search {
    Found,
    Absent,
    /// What may be the key's record does not check out.
    Damaged(Error),
    /// The file cannot be read, or who was shown the key's record could make nothing of it.
    Refused(Error),
    /// A merge has moved it since the directory was asked.
    Moved,
}

/// The record of `file` at `slot`, shown to `take` if it is the key's.
#[inline(always)]
fn try_record(file: &Arc<DataFile>, slot: &Slot, key: &[u8], take: &mut impl Take) -> Search {
    let offset = u64::from(slot.place().offset);
    let lent = slot.bytes().and_then(|bytes| file.slice(offset..offset + bytes));
    if let Some(raw) = lent {
        // All of it at once: the head, which is looked at first, says nothing that would be needed for that.
        prefetch(raw);
        if let Some(record) = Record::plain_of(raw, key) {
            return show(take, &Found { file, offset, raw, is_lent: true, record });
        }
    }
    try_other(file, slot, key, take)
}

/// As [`try_record`], for records of all kinds, and files that lend nothing.
#[inline(never)]
fn try_other(file: &Arc<DataFile>, slot: &Slot, key: &[u8], take: &mut impl Take) -> Search {
    match file.record_bytes(slot) {
        Ok(raw) => match examine(file, slot, &raw, key) {
            Ok(Some(found)) => show(take, &found),
            Ok(None) => Search::Absent,
            Err(error) => Search::Damaged(error),
        },
        Err(error) => Search::Refused(error),
    }
}

#[inline(always)]
fn show(take: &mut impl Take, found: &Found<'_>) -> Search {
    match take.take(found) {
        Ok(()) => Search::Found,
        Err(error) => Search::Refused(error),
    }
}

/// The record at `slot`, if it is the key's.
fn examine<'a>(file: &'a Arc<DataFile>, slot: &Slot, raw: &'a Cow<'a, [u8]>, key: &[u8]) -> Result<Option<Found<'a>>> {
    let offset = u64::from(slot.place().offset);
    let record = file.decode(offset, raw)?;
    if record.key == key {
        return Ok(Some(Found { file, offset, raw, is_lent: matches!(raw, Cow::Borrowed(_)), record }));
    }
    file.verify(offset, raw)?;
    Ok(None)
}

/// How long the value is as it was given.
fn unpacked_len(found: &Found<'_>) -> Result<u64> {
    let record = &found.record;
    if record.compression == Compression::None {
        return Ok(record.value.len() as u64);
    }
    // Every packing begins with the length of what was packed.
    let prefix = record.value.get(..VARINT64_BYTES_MAX).unwrap_or(record.value);
    let (bytes, _) = varint::get_u64(prefix)
        .ok_or_else(|| Error::corruption(&found.file.path, found.offset, "a packed value has no length"))?;
    Ok(bytes)
}

#[cold]
fn lost(store: &Store) -> Error {
    Error::corruption(&store.dir, 0, "the directory points to a file that is not there")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use esker_env::sim::SimDisk;

    use crate::{Cask, CaskOptions};

    /// Goal: whichever bit of a record rots, its key is never said to be gone, nor its history over, though nothing was asked to be verified.
    #[test]
    fn a_damaged_record_does_not_pass_for_an_expired_one() {
        let options = CaskOptions {
            create_if_missing: true,
            background_jobs: 0,
            stripes: 1,
            keep_versions: 3,
            verify_reads: false,
            default_ttl: Some(Duration::from_secs(1 << 20)),
            ..CaskOptions::default()
        };
        let disk = SimDisk::new();
        let open = || Cask::open_with_env("/store", options.clone(), disk.env()).unwrap();
        let cask = open();
        cask.put("key", "older").unwrap();
        cask.put("key", "value").unwrap();
        cask.close().unwrap();
        let cask = open();
        let is_data = |path: &&std::path::PathBuf| path.extension().is_some_and(|end| end == "data");
        let path = disk.paths().iter().find(is_data).unwrap().clone();
        let bytes = disk.file_bytes(Path::new(&path)).unwrap();
        let end = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
        for bit in 0..8 * end as u64 {
            assert!(disk.flip_bit(&path, bit));
            assert!(cask.get("key").map_or(true, |found| found.is_some()), "bit {bit}: get");
            assert!(cask.exists("key").unwrap_or(true), "bit {bit}: exists");
            assert!(cask.value_len("key").map_or(true, |found| found.is_some()), "bit {bit}: value_len");
            assert!(cask.expires_at("key").map_or(true, |found| found.is_some()), "bit {bit}: expires_at");
            assert!(cask.history("key").map_or(true, |found| !found.is_empty()), "bit {bit}: history");
            let located = cask.store().locate(cask.store().keydir.hash(b"key"), b"key");
            assert!(located.map_or(true, |located| !located.is_over), "bit {bit}: locate");
            let shown: Vec<_> = cask.scan().unwrap().collect();
            // Of each key all versions that are kept.
            assert!(shown.len() == 2 || shown.iter().any(|entry| entry.is_err()), "bit {bit}: {shown:?}");
            assert!(disk.flip_bit(&path, bit));
        }
    }
}
