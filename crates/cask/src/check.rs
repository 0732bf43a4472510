//! Check: reads every byte and says what is wrong, going on after each damage.
//!
//! - C1: every byte of a data file is its head, a record that holds, or damage. So is what lies behind the end of a sealed one, but for zeroes:
//!   a power loss may bring back what was preallocated, if all records were durable before the file was cut.
//! - C2: every record is in the directory, or dead in the ledger, or a deletion: exactly one of them. So nothing drifts (B10).
//! - C3: hint and manifest say what the data file says. A hint may be missing: it was written for speed, and says nothing more. One that is there
//!   is whole: it had no name before.
//!
//! Cost: one sequential read of every file, and one look-up for each record. Writes and merges go on meanwhile; what they add
//! is not checked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use esker_env::DirEntry;
use esker_format::cask::hint::{Block, Footer};
use esker_format::cask::manifest::Manifest;
use esker_format::cask::record::{FIRST_OFFSET, Record};
use esker_format::cask::{FileName, data_file::DataFileHeader};

use crate::file::{DataFile, DeadCursor, Step, Walk};
use crate::keydir::{KeyHash, Place};
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// How far a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaskCheckProgress {
    /// Bytes of files checked.
    pub bytes_done: u64,
    /// Bytes of files to check.
    pub bytes_total: u64,
}

/// What a check read, and what it found wrong.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CaskCheck {
    /// Data files read.
    pub files: u64,
    /// Their records.
    pub records: u64,
    /// Those of them that live.
    pub live_records: u64,
    /// Deletions among them.
    pub tombstones: u64,
    /// Hints read.
    pub hints: u64,
    /// Bytes of the data files.
    pub bytes: u64,
    /// Damage, with path and offset. Empty: the store is sound.
    pub errors: Vec<Error>,
    /// Data files of the directory that nothing names, and their sizes in bytes: work under way when the check looked, what a crash has left, or what
    /// somebody has put there. The next open for writing removes them; a repair puts aside what is not the store's.
    pub orphans: Vec<(PathBuf, u64)>,
}

/// A data file, its end and how much of it was dead when the check began.
type Extent = (Arc<DataFile>, u64, usize);

impl Store {
    pub(crate) fn check(&self, progress: &mut dyn FnMut(CaskCheckProgress)) -> Result<CaskCheck> {
        self.check_open()?;
        let mut check = CaskCheck::default();
        // Before it is asked what is named: what comes meanwhile is not in it, and what goes has lost its name first.
        let entries = self.env.files.list(&self.dir)?;
        let extents = self.extents();
        let bytes_total = extents.iter().map(|(_, end, _)| *end).sum();
        for extent in &extents {
            self.check_data(extent, &mut check)?;
            self.check_hint(&extent.0, &mut check)?;
            check.files += 1;
            check.bytes += extent.1;
            progress(CaskCheckProgress { bytes_done: check.bytes, bytes_total });
        }
        match crate::manifest::read(&*self.env.files, &self.dir) {
            Ok(manifest) => check.orphans = self.orphans(&entries, &extents, manifest.as_ref()),
            Err(error) => check.errors.push(error),
        }
        Ok(check)
    }

    /// Neither the store knows them nor the `manifest`, which is whoever's writes the store.
    fn orphans(&self, entries: &[DirEntry], known: &[Extent], manifest: Option<&Manifest>) -> Vec<(PathBuf, u64)> {
        let mut named: BTreeSet<_> = known.iter().map(|(file, ..)| file.number).collect();
        named.extend(manifest.iter().flat_map(|manifest| &manifest.files).map(|file| file.number));
        let data_files = entries.iter().filter_map(|entry| match FileName::parse(&entry.name) {
            Some(FileName::Data(number)) => Some(number),
            _ => None,
        });
        let paths =
            data_files.filter(|number| !named.contains(number)).map(|number| self.path_of(FileName::Data(number)));
        let sized = |path: PathBuf| match self.env.files.metadata(&path) {
            Ok(metadata) => Some((path, metadata.len)),
            // Gone since.
            Err(_) => None,
        };
        let mut orphans: Vec<_> = paths.filter_map(sized).collect();
        orphans.sort_unstable();
        orphans
    }

    fn check_data(&self, (file, end, dead_len): &Extent, check: &mut CaskCheck) -> Result<()> {
        let bytes = file.bytes(0..*end)?;
        if let Err(error) = DataFileHeader::decode(&bytes) {
            check.errors.push(Error::decode(&file.path, 0, "reading the head of a data file", error));
        }
        let mut dead = file.dead_cursor(*dead_len);
        let mut walk = Walk::new(&bytes, file.salt);
        let (mut records, mut live) = (0, 0);
        let mut changed = Vec::new();
        loop {
            match walk.step() {
                Step::Record { offset, record, .. } => {
                    records += 1;
                    live += u64::from(self.check_record(file, &mut dead, offset, &record, check, &mut changed)?);
                }
                Step::Damage(range) => {
                    file.mark_damaged();
                    let reason = format!("{} bytes are no records; run a repair", range.end - range.start);
                    check.errors.push(Error::corruption(&file.path, range.start, reason));
                }
                Step::End { .. } => break,
            }
        }
        self.check_changed(file, changed, check);
        check.records += records;
        check.live_records += live;
        // One that was sealed meanwhile may have got more before.
        let is_whole = file.is_sealed() && file.end() == *end;
        let len = if is_whole { file.len()? } else { *end };
        if len > *end && !file.is_zero_from(*end)? {
            let reason = format!("{} bytes that are not the file's lie behind its end; run a repair", len - end);
            check.errors.push(Error::corruption(&file.path, *end, reason));
        }
        if is_whole && records != file.record_count() && !file.is_damaged() {
            let reason = format!("{records} records are in the file, {} should be", file.record_count());
            check.errors.push(Error::corruption(&file.path, 0, reason));
        }
        Ok(())
    }

    /// C2. Whether the record lived when the check began. If that is not so now, it is one that has `changed`.
    fn check_record(
        &self,
        file: &DataFile,
        dead: &mut DeadCursor,
        offset: u64,
        record: &Record<'_>,
        check: &mut CaskCheck,
        changed: &mut Vec<(KeyHash, Place)>,
    ) -> Result<bool> {
        let was_dead = dead.is_dead(offset);
        let hash = self.keydir.hash(record.key);
        let slot = file.slot(hash.tag(), offset, record.bytes())?;
        let is_known = || self.is_known(hash, slot.place());
        let mut complain = |reason: &str| check.errors.push(Error::corruption(&file.path, offset, reason));
        if record.is_tombstone {
            if was_dead || is_known() {
                complain("a deletion is counted as dead, or as a value");
            }
            check.tombstones += 1;
            return Ok(false);
        }
        if is_known() == was_dead {
            changed.push((hash, slot.place()));
        }
        Ok(!was_dead)
    }

    fn is_known(&self, hash: KeyHash, place: Place) -> bool {
        self.keydir.all(hash).iter().any(|known| known.place() == place)
    }

    /// Records, by ascending offset, that may have died since the check began: then they are in the list by now. Only for what still does not
    /// fit is a key held, and the list gone through for it alone.
    fn check_changed(&self, file: &DataFile, changed: Vec<(KeyHash, Place)>, check: &mut CaskCheck) {
        let mut dead = file.dead_cursor(file.dead_len());
        for (hash, place) in changed {
            let offset = place.offset.into();
            if self.is_known(hash, place) != dead.is_dead(offset) {
                continue;
            }
            let _at_rest = self.key_locks.lock(hash);
            let is_dead = file.dead_cursor(file.dead_len()).is_dead(offset);
            if self.is_known(hash, place) == is_dead {
                let reason =
                    if is_dead { "a live record is counted as dead" } else { "a record is neither live nor dead" };
                check.errors.push(Error::corruption(&file.path, offset, reason));
            }
        }
    }

    /// C3.
    fn check_hint(&self, file: &DataFile, check: &mut CaskCheck) -> Result<()> {
        if !file.is_sealed() {
            return Ok(());
        }
        let path = self.path_of(FileName::Hint(file.number));
        let raw = match self.env.files.read(&path) {
            Ok(raw) => raw,
            // Merged since, by whoever writes the store; or there was no room for it. An open reads the data file then.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                check.errors.push(error.into());
                return Ok(());
            }
        };
        check.hints += 1;
        if let Err(error) = compare(&raw, file) {
            let advice = "remove this file: no data is lost, and the next open for writing makes it anew";
            check.errors.push(error.with_path(&path).with_advice(advice));
        }
        Ok(())
    }
}

/// Every entry of a hint against the record that it stands for.
fn compare(raw: &[u8], file: &DataFile) -> Result<()> {
    let decoding = |error| Error::decode(&file.path, 0, "reading a hint", error);
    let footer = Footer::decode(raw).map_err(decoding)?;
    let mut blocks = usize::try_from(footer.block_bytes).ok().and_then(|bytes| raw.get(..bytes)).unwrap_or_default();
    let other = |offset, reason: &str| Err(Error::corruption(&file.path, offset, reason));
    if footer.data_bytes != file.end() || footer.salt != file.salt {
        return other(0, "the hint is of another file");
    }
    let mut end = FIRST_OFFSET;
    while !blocks.is_empty() {
        let (block, bytes) = Block::decode(blocks, file.salt).map_err(decoding)?;
        blocks = blocks.get(bytes..).unwrap_or_default();
        for entry in block.entries() {
            let entry = entry.map_err(decoding)?;
            end = entry.offset.saturating_add(entry.record_bytes);
            let Ok(raw) = file.bytes(entry.offset..end) else { return other(entry.offset, "the hint points outside") };
            let record = Record::decode(&raw).ok();
            let is_same = |record: &Record<'_>| {
                (record.key, record.version, record.is_tombstone, record.expires_at)
                    == (entry.key, entry.version, entry.is_tombstone, entry.expires_at)
            };
            if !record.as_ref().is_some_and(is_same) {
                return other(entry.offset, "the hint says something else than the record");
            }
        }
    }
    if end != file.end() && !file.is_damaged() {
        return Err(Error::new(ErrorKind::Corruption, "the hint ends before its data file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use crate::{Cask, CaskBatch, CaskOptions, CaskWriteOptions};

    /// Goal: what is written while a check is at it is no error, though a file that had an end when it began has another, and is sealed, when it
    /// is its turn.
    #[test]
    fn a_file_that_is_sealed_during_a_check_is_sound() {
        let options = CaskOptions {
            create_if_missing: true,
            background_jobs: 0,
            stripes: 2,
            file_bytes: 4096,
            ..CaskOptions::default()
        };
        let cask = Cask::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let put = |key: u32| {
            let stripe = CaskWriteOptions { stripe: Some(key as usize % 2), ..CaskWriteOptions::default() };
            cask.put_with(key.to_le_bytes(), [7; 500], &stripe).unwrap();
        };
        (0..2).for_each(put);
        let mut seen = 0;
        let check = cask.check(&mut |_| {
            if seen == 0 {
                (2..40).for_each(put);
            }
            seen += 1;
        });
        let check = check.unwrap();
        assert!(check.errors.is_empty(), "{:?}", check.errors);
        assert_eq!((check.files, check.records, seen), (2, 2, 2));
        assert!(cask.check(&mut |_| {}).unwrap().files > 2, "both were sealed");
    }

    /// Goal (C2): a record that the directory lost, and one that it has though it is counted as dead, are found, each where it lies.
    #[test]
    fn a_check_notices_what_has_drifted() {
        let options = CaskOptions { create_if_missing: true, background_jobs: 0, stripes: 1, ..CaskOptions::default() };
        let store = crate::open::open("/store".as_ref(), options, SimDisk::new().env()).unwrap().store;
        let mut batch = CaskBatch::new();
        for key in ["lost", "sound", "counted twice"] {
            batch.put(key, "value").unwrap();
        }
        store.write_batch(&batch, &CaskWriteOptions::default()).unwrap();
        assert!(store.check(&mut |_| {}).unwrap().errors.is_empty());
        let [lost, twice] = [&b"lost"[..], b"counted twice"].map(|key| store.keydir.hash(key));
        let slot = *store.keydir.newest(lost).get(0).unwrap();
        store.keydir.remove(lost, slot.place());
        store.bury(store.keydir.newest(twice).get(0).unwrap());
        let errors: Vec<_> = store.check(&mut |_| {}).unwrap().errors.iter().map(ToString::to_string).collect();
        assert!(errors.len() == 2, "{errors:?}");
        assert!(errors[0].contains("neither live nor dead") && errors[1].contains("counted as dead"), "{errors:?}");
    }
}
