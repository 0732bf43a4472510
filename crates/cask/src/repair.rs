//! Repair: a new manifest from the data files alone, for a store whose manifest is lost or whose files are damaged.
//!
//! - P1: nothing is thrown away. A data file with damage is copied without it into a new file, and put aside as `NNNNNN.damaged`.
//! - P2: files that a manifest has dropped are left to the next open, which removes them. Only if the manifest is lost do they come back, if
//!   they are still there: a key that was deleted may reappear, if the machine died between a merge and the removal of what it merged.
//!
//! - P3: only damage is mended. A manifest or a data file of a newer version, whose checksum holds, and a manifest that the system does not
//!   let us read end the repair before anything is written.
//! - P4: what a repair builds on, it has read after it had the lock: whoever had the store before may have written until then.
//! - P5: what the new manifest names is durable. Files that were not sealed may never have been synced; after a sync that failed, they
//!   are written anew (see [`distrust`]).
//! - P6: zeroes are no end of a file that was sealed, as the manifest says, else its hint. Of a file of which nobody says how it ended, they
//!   are none if records follow. Nor are they before the place up to which the manifest says that an open one is durable.
//!
//! Of each key the highest version wins, as in every open. Order: new files and hints, directory sync, names of
//! the old ones, directory sync, manifest; a repair that is interrupted can be run again.

use std::path::{Path, PathBuf};

use esker_env::{AppendFile, Env};
use esker_format::DecodeErrorKind;
use esker_format::cask::data_file::{DataFileHeader, HEADER_BYTES};
use esker_format::cask::hint::Footer;
use esker_format::cask::manifest::{File, FileState, Manifest};
use esker_format::cask::record::Record;
use esker_format::cask::{FileName, FileNumber};
use esker_log::distrust;

use crate::file::{Step, Walk, claims, write_hint};
use crate::{Error, ErrorKind, Result, manifest, open};

/// What a repair did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CaskRepair {
    /// Data files of the store as it is now.
    pub files: u64,
    /// Their records.
    pub records: u64,
    /// Data files that were copied without what was damaged, and are put aside.
    pub put_aside: Vec<PathBuf>,
    /// Bytes that were lost with them.
    pub damaged_bytes: u64,
    /// The keys that were in these bytes, as far as they still say: of each, a record is lost. If it was the newest, the one before it is the
    /// key's now, or the key is gone; or it is back, if what was lost was its deletion.
    pub damaged_keys: Vec<Vec<u8>>,
    /// Data files that the manifest named and that are not there: what was in them is lost.
    pub missing: Vec<PathBuf>,
}

struct Repair<'a> {
    env: &'a Env,
    dir: &'a Path,
    /// What the old manifest says, if it can be read.
    known: Option<Manifest>,
    /// A sync failed in the store's life before.
    is_warned: bool,
    next_file: u32,
    version_max: u64,
    files: Vec<File>,
    report: CaskRepair,
    /// Old names of what is put aside, and new ones.
    aside: Vec<(PathBuf, PathBuf)>,
}

/// What there is in a file.
struct Measured {
    records: u64,
    damaged_bytes: u64,
    /// Where the last record ends that counts.
    end: u64,
    /// Where the walk ended.
    walked_to: u64,
    is_whole: bool,
}

/// See the module's head.
pub(crate) fn repair(dir: &Path, env: &Env) -> Result<CaskRepair> {
    // Where there is nothing to repair, not even a lock is made.
    look(dir, env)?;
    let _lock = open::lock(env, dir)?;
    // What counts is what is there now (P4).
    let (mut numbers, known) = look(dir, env)?;
    if let Some(known) = &known {
        // P2. Higher numbers are what a repair that died has copied, or hold nothing that is not in others.
        let named = |number: &FileNumber| known.files.iter().any(|file| file.number == *number);
        numbers.retain(|number| number.get() >= known.next_file || named(number));
    }
    let highest = numbers.last().map_or(0, |number| number.get());
    let next_file = known.as_ref().map_or(1, |known| known.next_file).max(highest + 1);
    let named = known.iter().flat_map(|known| &known.files).map(|file| file.number);
    let missing = named.filter(|number| numbers.binary_search(number).is_err());
    let missing = missing.map(|number| dir.join(FileName::Data(number).name())).collect();
    let (files, aside, report) = (Vec::new(), Vec::new(), CaskRepair { missing, ..CaskRepair::default() });
    let is_warned = distrust::is_warned(&*env.files, dir)?;
    let mut repair = Repair { env, dir, known, is_warned, next_file, version_max: 0, files, report, aside };
    for number in &numbers {
        repair.refuse_newer(*number)?;
    }
    for number in numbers {
        repair.take(number)?;
    }
    repair.finish()
}

/// The numbers of the data files, ascending, and what the manifest says, if it can be read.
fn look(dir: &Path, env: &Env) -> Result<(Vec<FileNumber>, Option<Manifest>)> {
    let mut numbers = Vec::new();
    for entry in env.files.list(dir).map_err(|error| open::unless_directory(dir, error))? {
        if let Some(FileName::Data(number)) = FileName::parse(&entry.name) {
            numbers.push(number);
        }
    }
    let known = match manifest::read(&*env.files, dir) {
        Err(error) if error.kind() == ErrorKind::Corruption => None,
        known => known?,
    };
    if known.is_none() {
        open::refuse_unfinished(env, dir)?;
    }
    if numbers.is_empty() && known.is_none() {
        return Err(open::no_store(dir));
    }
    numbers.sort_unstable();
    Ok((numbers, known))
}

impl Repair<'_> {
    /// P3.
    fn refuse_newer(&self, number: FileNumber) -> Result<()> {
        let path = self.dir.join(FileName::Data(number).name());
        let file = self.env.files.open(&path)?;
        let mut head = [0; HEADER_BYTES];
        let len = file.read_at(0, &mut head)?;
        match DataFileHeader::decode(head.get(..len).unwrap_or(&head)) {
            Err(error) if error.kind == DecodeErrorKind::Unsupported => {
                Err(Error::decode(&path, 0, "reading the head of a data file", error))
            }
            _ => Ok(()),
        }
    }

    /// What the manifest says of a file.
    fn known(&self, number: FileNumber) -> Option<&File> {
        self.known.as_ref()?.files.iter().find(|file| file.number == number)
    }

    /// Salt and cleanness of a file: as the manifest says, else as its own head does, else as its hint does. Whether its head is bad.
    fn identity(&self, number: FileNumber, raw: &[u8], hint: Option<Footer>) -> Option<(u32, u64, bool)> {
        let known = self.known(number);
        let head = DataFileHeader::decode(raw).ok().filter(|head| head.number == number);
        match (known, head) {
            (Some(known), head) => Some((known.salt, known.clean_as_of, head.is_none())),
            (None, Some(head)) => Some((head.salt, head.clean_as_of, false)),
            (None, None) => hint.map(|hint| (hint.salt, 0, true)),
        }
    }

    fn take(&mut self, number: FileNumber) -> Result<()> {
        let path = self.dir.join(FileName::Data(number).name());
        let file = self.env.files.open(&path)?;
        let mapping = file.map().unwrap_or_default();
        let read;
        let raw = match &mapping {
            Some(mapping) => mapping.bytes(),
            None => {
                read = self.env.files.read(&path)?;
                &read
            }
        };
        let hint = self.hinted(number)?;
        let Some((salt, clean_as_of, head_is_bad)) = self.identity(number, raw, hint) else {
            self.put_aside(number, raw.len() as u64);
            return Ok(());
        };
        // A deletion of a version up to this, written later, would be taken for one that hides nothing in the file.
        self.version_max = self.version_max.max(clean_as_of);
        let state = self.state(number, salt, hint);
        let Measured { records, damaged_bytes, end, is_whole, .. } = self.measure(raw, salt, state);
        let sealed = |data_bytes, record_count| FileState::Sealed { data_bytes, record_count };
        if is_whole && !head_is_bad {
            if self.known(number).is_none_or(|file| file.state.is_open()) {
                self.make_durable(&path, raw.len() as u64)?;
            }
            let raw = usize::try_from(end).ok().and_then(|end| raw.get(..end)).unwrap_or(raw);
            write_hint(&*self.env.files, self.dir, number, salt, raw)?;
            self.files.push(File { number, state: sealed(end, records), salt, clean_as_of });
            return Ok(());
        }
        if records > 0 {
            // Who knows what the damage hid: nothing is proven of the copy.
            let whole = usize::try_from(end).ok().and_then(|end| raw.get(..end)).unwrap_or(raw);
            let copy = self.copy(whole, salt)?;
            self.files.push(File { clean_as_of: 0, ..copy });
        }
        self.put_aside(number, damaged_bytes);
        Ok(())
    }

    /// P5. The file keeps its length: what lies behind its last record is not known to be nothing.
    fn make_durable(&self, path: &Path, len: u64) -> Result<()> {
        let fs = &*self.env.files;
        if self.is_warned {
            return distrust::write_anew(fs, path);
        }
        match fs.reopen(path, len) {
            Ok(file) => self.sync(&*file),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => distrust::write_anew(fs, path),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a data file durable, or warns whoever comes next.
    fn sync(&self, file: &dyn AppendFile) -> Result<()> {
        Ok(file.sync().inspect_err(|_| {
            // Should that fail too, the error that is told is the worse one.
            let _ = distrust::warn(&*self.env.files, self.dir);
        })?)
    }

    fn put_aside(&mut self, number: FileNumber, damaged_bytes: u64) {
        let [from, to] = [FileName::Data(number), FileName::Damaged(number)].map(|name| self.dir.join(name.name()));
        self.report.put_aside.push(to.clone());
        self.report.damaged_bytes += damaged_bytes;
        self.aside.push((from, to));
    }

    /// What the hint says of a file that the manifest says nothing of (P6).
    fn hinted(&self, number: FileNumber) -> Result<Option<Footer>> {
        if self.known(number).is_some() {
            return Ok(None);
        }
        match self.env.files.read(&self.dir.join(FileName::Hint(number).name())) {
            Ok(raw) => Ok(Footer::decode(&raw).ok().filter(|footer| footer.number == number)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// How a file is known to have ended.
    fn state(&self, number: FileNumber, salt: u32, hint: Option<Footer>) -> Option<FileState> {
        let hint = hint.filter(|hint| hint.salt == salt);
        let sealed = hint.map(|Footer { data_bytes, record_count, .. }| FileState::Sealed { data_bytes, record_count });
        self.known(number).map(|known| known.state).or(sealed)
    }

    fn measure(&mut self, raw: &[u8], salt: u32, state: Option<FileState>) -> Measured {
        if let Some(FileState::Sealed { data_bytes, record_count }) = state {
            let sealed = usize::try_from(data_bytes).ok().and_then(|end| raw.get(..end)).unwrap_or(raw);
            let mut found = self.walk(sealed, salt, sealed.len() as u64);
            found.damaged_bytes += data_bytes.saturating_sub(sealed.len() as u64);
            found.is_whole = found.damaged_bytes == 0 && found.records == record_count;
            return found;
        }
        let durable = match state {
            Some(FileState::Open { durable_bytes }) => durable_bytes,
            _ => 0,
        };
        let mut found = self.walk(raw, salt, durable);
        let missing = durable.saturating_sub(raw.len() as u64);
        found.damaged_bytes += missing;
        found.is_whole &= missing == 0;
        let Some((end, keys)) = records_behind(raw, salt, found.walked_to) else { return found };
        match state {
            // A crash may leave this, too: what a batch is made of, or nothing, is for the open's rules to say.
            Some(_) => {
                self.report.damaged_keys.extend(keys);
                found.damaged_bytes += end - found.walked_to;
                found.is_whole = false;
                found
            }
            None => {
                let written = usize::try_from(end).ok().and_then(|end| raw.get(..end)).unwrap_or(raw);
                self.walk(written, salt, end)
            }
        }
    }

    /// So much of it is known to be durable.
    fn walk(&mut self, raw: &[u8], salt: u32, durable: u64) -> Measured {
        let mut walk = Walk::torn_behind(raw, salt, durable);
        let (mut records, mut damaged_bytes, mut batch_begin) = (0, 0, None);
        loop {
            match walk.step() {
                Step::Record { offset, record, .. } => {
                    records += 1;
                    self.version_max = self.version_max.max(record.version);
                    batch_begin = record.is_continued.then(|| batch_begin.unwrap_or((offset, records - 1)));
                }
                Step::Damage(range) => {
                    damaged_bytes += range.end - range.start;
                    self.report.damaged_keys.extend(claims(raw, salt, range).0.into_iter().map(|claim| claim.key));
                    batch_begin = None;
                }
                Step::End { at, .. } => {
                    // A batch without its end never was; what was sealed was whole.
                    let cut = batch_begin.filter(|(begin, _)| *begin >= durable);
                    let (end, records) = cut.unwrap_or((at, records));
                    return Measured { records, damaged_bytes, end, walked_to: at, is_whole: damaged_bytes == 0 };
                }
            }
        }
    }

    /// The file's sound records in a new file.
    fn copy(&mut self, raw: &[u8], salt: u32) -> Result<File> {
        let number = FileNumber::new(self.next_file)
            .ok_or_else(|| Error::new(ErrorKind::Exhausted, "all file numbers are used"))?;
        self.next_file += 1;
        let mut new_salt = [0; 4];
        self.env.entropy.fill(&mut new_salt);
        let new_salt = u32::from_le_bytes(new_salt);
        let mut out = DataFileHeader { number, salt: new_salt, clean_as_of: 0 }.encode();
        let mut walk = Walk::new(raw, salt);
        let mut record_count = 0;
        loop {
            match walk.step() {
                Step::Record { record, .. } => {
                    record_count += 1;
                    let copy = Record { is_continued: false, ..record };
                    copy.encode(new_salt, &mut out).map_err(|error| crate::batch::too_large(&error))?;
                }
                Step::Damage(_) => {}
                Step::End { .. } => break,
            }
        }
        let file = self.env.files.create(&self.dir.join(FileName::Data(number).name()))?;
        file.append(&[&out])?;
        self.sync(&*file)?;
        let data_bytes = out.len() as u64;
        write_hint(&*self.env.files, self.dir, number, new_salt, &out)?;
        Ok(File { number, state: FileState::Sealed { data_bytes, record_count }, salt: new_salt, clean_as_of: 0 })
    }

    fn finish(mut self) -> Result<CaskRepair> {
        let fs = &*self.env.files;
        let next_version =
            self.known.as_ref().map_or(1, |known| known.next_version).max(self.version_max.saturating_add(1));
        if next_version > open::NEXT_VERSION_MAX {
            let reason = "manifest or data files say that next to no version can follow their own; restore a backup";
            return Err(Error::new(ErrorKind::Exhausted, reason).with_path(self.dir));
        }
        fs.sync_dir(self.dir)?;
        self.files.sort_unstable_by_key(|file| file.number);
        let mut store_id = [0; 16];
        self.env.entropy.fill(&mut store_id);
        let store_id = self.known.as_ref().map_or(store_id, |known| known.store_id);
        let keep_versions = self.known.as_ref().map_or(0, |known| known.keep_versions);
        self.report.damaged_keys.sort_unstable();
        self.report.damaged_keys.dedup();
        self.report.files = self.files.len() as u64;
        let counts = self.files.iter().map(|file| match file.state {
            FileState::Sealed { record_count, .. } => record_count,
            FileState::Open { .. } => 0,
        });
        self.report.records = counts.sum();
        let files = std::mem::take(&mut self.files);
        // Before the manifest: an open removes data files that it does not name.
        for (from, to) in &self.aside {
            fs.rename(from, to)?;
        }
        fs.sync_dir(self.dir)?;
        let next_file = self.next_file;
        manifest::write(fs, self.dir, &Manifest { store_id, keep_versions, next_file, next_version, files })?;
        if self.is_warned {
            distrust::trust_again(fs, self.dir)?;
        }
        Ok(self.report)
    }
}

/// Where the last record ends that holds behind `at`, and the keys of all of them; `None` if there is none.
fn records_behind(raw: &[u8], salt: u32, at: u64) -> Option<(u64, Vec<Vec<u8>>)> {
    let mut walk = Walk::new(raw, salt);
    if walk.search(at) == raw.len() as u64 {
        return None;
    }
    let (mut end, mut keys) = (at, Vec::new());
    loop {
        match walk.step() {
            Step::Record { offset, record, raw } if offset >= at => {
                end = offset + raw.len() as u64;
                keys.push(record.key.to_vec());
            }
            Step::Record { .. } | Step::Damage(_) => {}
            Step::End { .. } => return (end > at).then_some((end, keys)),
        }
    }
}
