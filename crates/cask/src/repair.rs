//! Repair: a new manifest from the data files alone, for a store whose manifest is lost or whose files are damaged.
//!
//! - P1: nothing is thrown away. A data file with damage is copied without it into a new file, and put aside as `NNNNNN.damaged`.
//! - P2: files that a manifest has dropped are left to the next open, which removes them. Only if the manifest is lost do they come back, if
//!   they are still there: a key that was deleted may reappear, if the machine died between a merge and the removal of what it merged.
//! - P3: only damage is mended. A manifest or a data file of a newer version, whose checksum holds, and a manifest that the system does not
//!   let us read end the repair before anything is written.
//! - P4: what a repair builds on, it has read after it had the lock: whoever had the store before may have written until then.
//! - P5: what the new manifest names is durable. Files that were not sealed may never have been synced; after a sync that failed, they
//!   are written anew (see [`distrust`]).
//! - P6: zeroes are no end of a file that was sealed, as the manifest says, else its hint. Of a file of which nobody says how it ended, they
//!   are none if records follow. Nor are they before the place up to which the manifest says that an open one is durable.
//! - P7: a file is what its head says, whatever its name is (`names`), and gets its name again. What is not the store's is put aside. No file takes
//!   the place of another.
//! - P8: what lies behind the end of a file is none of it. Zeroes are what was preallocated, and may stay; because of anything else the file is
//!   copied without it and put aside whole.
//!
//! Of each key the highest version wins, as in every open. Order: new files and hints, directory sync, names of what is put aside, then
//! of the others, directory sync, manifest; a repair that is interrupted can be run again.

mod names;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{AppendFile, Env, Mapping};
use esker_format::DecodeErrorKind;
use esker_format::cask::data_file::{DataFileHeader, HEADER_BYTES};
use esker_format::cask::hint::Footer;
use esker_format::cask::manifest::{File, FileState, Manifest};
use esker_format::cask::record::Record;
use esker_format::cask::{FileName, FileNumber};
use esker_format::zeroes::is_zero;
use esker_log::distrust;

use self::names::{Named, Role};
use crate::file::{Step, Walk, claims, write_hint};
use crate::{Error, ErrorKind, Result, manifest, open};

/// What a repair did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CaskRepair {
    /// Data files of the store as it is now.
    pub files: u64,
    /// Their records.
    pub records: u64,
    /// Data files that were copied without what was damaged, or lay behind their end, and are put aside.
    pub put_aside: Vec<PathBuf>,
    /// Data files that had another name than their heads say, and the names that they have now: nothing is lost of them.
    pub renamed: Vec<(PathBuf, PathBuf)>,
    /// Data files that are not the store's, by what they were called and where they are put aside: another store's, or a second one of a number.
    /// Nothing of them is used.
    pub strangers: Vec<(PathBuf, PathBuf)>,
    /// Data files that are used though the manifest, which can be read, does not know of them, as it had not given numbers that high: of
    /// a repair that died, or newer than the manifest. Another store's would look the same.
    pub unnamed: Vec<PathBuf>,
    /// Bytes that were lost with them.
    pub damaged_bytes: u64,
    /// The keys that were in these bytes, as far as they still say: of each, a record is lost. If it was the newest, the one before it is the
    /// key's now, or the key is gone; or it is back, if what was lost was its deletion.
    pub damaged_keys: Vec<Vec<u8>>,
    /// Data files that the manifest named and that are not there, or a stranger instead: what was in them is lost.
    pub missing: Vec<PathBuf>,
}

struct Repair<'a> {
    env: &'a Env,
    dir: &'a Path,
    /// What the old manifest says, if it can be read.
    known: Option<Manifest>,
    /// A sync failed in the store's life before.
    is_warned: bool,
    /// Nothing is written: only the report is wanted.
    is_dry: bool,
    next_file: u32,
    version_max: u64,
    files: Vec<File>,
    report: CaskRepair,
    /// Old names of what is put aside, and new ones.
    aside: Vec<(PathBuf, PathBuf)>,
    /// Names that are taken, or will be.
    taken: BTreeSet<FileName>,
    /// By name, data files of other numbers.
    misplaced: BTreeMap<FileNumber, FileNumber>,
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
    mend(dir, env, false)
}

/// What a repair would do. Takes no lock, writes nothing.
pub(crate) fn outlook(dir: &Path, env: &Env) -> Result<CaskRepair> {
    mend(dir, env, true)
}

fn mend(dir: &Path, env: &Env, is_dry: bool) -> Result<CaskRepair> {
    let (taken, known) = look(dir, env)?;
    let names = taken.iter().filter_map(|name| match name {
        FileName::Data(number) => Some(*number),
        _ => None,
    });
    let files = names.map(|name| read_head(dir, env, name)).collect::<Result<Vec<_>>>()?;
    let mut roles = names::roles(&files, known.as_ref());
    if let Some(known) = &known {
        let bears_out = |file: Named, salt| Ok(has_records(&Raw::read(dir, env, file.name)?, salt));
        names::find_by_records(&files, &mut roles, known, bears_out)?;
    }
    let numbers = roles.iter().filter_map(|role| match role {
        Role::Is(number) => Some(*number),
        _ => None,
    });
    let numbers: BTreeSet<_> = numbers.collect();
    let highest = files.iter().map(|file| file.name).chain(numbers.iter().copied()).max();
    let next_file = known.as_ref().map_or(1, |known| known.next_file).max(highest.map_or(0, FileNumber::get) + 1);
    let named = known.iter().flat_map(|known| &known.files).map(|file| file.number);
    let missing = named.filter(|number| !numbers.contains(number));
    let missing = missing.map(|number| dir.join(FileName::Data(number).name())).collect();
    let mut repair = Repair {
        env,
        dir,
        known,
        is_warned: distrust::is_warned(&*env.files, dir)?,
        is_dry,
        next_file,
        version_max: 0,
        files: Vec::new(),
        report: CaskRepair { missing, ..CaskRepair::default() },
        aside: Vec::new(),
        taken,
        misplaced: BTreeMap::new(),
    };
    for (file, role) in files.into_iter().zip(roles) {
        match role {
            Role::Is(number) => repair.take(file, number)?,
            Role::Stranger => repair.put_stranger_aside(file.name)?,
            Role::Unknown => {
                let bytes = env.files.metadata(&repair.path_of(file.name))?.len;
                repair.put_aside(file.name, file.name, bytes)?;
            }
            // P2.
            Role::Dropped => {}
        }
    }
    repair.finish()
}

/// The names in `dir`, and what the manifest says, if it can be read.
fn look(dir: &Path, env: &Env) -> Result<(BTreeSet<FileName>, Option<Manifest>)> {
    let entries = env.files.list(dir).map_err(|error| open::unless_directory(dir, error))?;
    let names: BTreeSet<_> = entries.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
    let known = match manifest::read(&*env.files, dir) {
        Err(error) if error.kind() == ErrorKind::Corruption => None,
        known => known?,
    };
    if known.is_none() {
        open::refuse_unfinished(env, dir)?;
    }
    if known.is_none() && !names.iter().any(|name| matches!(name, FileName::Data(_))) {
        return Err(open::no_store(dir));
    }
    Ok((names, known))
}

fn read_head(dir: &Path, env: &Env, name: FileNumber) -> Result<Named> {
    let path = dir.join(FileName::Data(name).name());
    let mut raw = [0; HEADER_BYTES];
    let len = env.files.open(&path)?.read_at(0, &mut raw)?;
    match DataFileHeader::decode(raw.get(..len).unwrap_or(&raw)) {
        // P3.
        Err(error) if error.kind == DecodeErrorKind::Unsupported => {
            Err(Error::decode(&path, 0, "reading the head of a data file", error))
        }
        // Files are counted from 1.
        head => Ok(Named { name, head: head.ok().filter(|head| head.number.get() > 0) }),
    }
}

impl Repair<'_> {
    fn path_of(&self, name: FileNumber) -> PathBuf {
        self.dir.join(FileName::Data(name).name())
    }

    /// What the manifest says of a file.
    fn known(&self, number: FileNumber) -> Option<&File> {
        self.known.as_ref()?.files.iter().find(|file| file.number == number)
    }

    /// Salt and cleanness of a file: as the manifest says, else as its own head does, else as its hint does. Whether its head is bad.
    fn identity(&self, file: Named, number: FileNumber, hint: Option<Footer>) -> Option<(u32, u64, bool)> {
        match (self.known(number), file.head) {
            (Some(known), head) => {
                let is_bad = head.is_none_or(|head| (head.number, head.salt) != (number, known.salt));
                Some((known.salt, known.clean_as_of, is_bad))
            }
            (None, Some(head)) => Some((head.salt, head.clean_as_of, false)),
            (None, None) => hint.map(|hint| (hint.salt, 0, true)),
        }
    }

    /// Takes a file for that of `number`.
    fn take(&mut self, named: Named, number: FileNumber) -> Result<()> {
        let path = self.path_of(named.name);
        let contents = Raw::read(self.dir, self.env, named.name)?;
        let raw = &*contents;
        let hint = self.hinted(number)?;
        let Some((salt, clean_as_of, head_is_bad)) = self.identity(named, number, hint) else {
            return self.put_aside(named.name, number, raw.len() as u64);
        };
        // A deletion of a version up to this, written later, would be taken for one that hides nothing in the file.
        self.version_max = self.version_max.max(clean_as_of);
        let state = self.state(number, salt, hint, raw);
        let Measured { records, damaged_bytes, end, is_whole, .. } = self.measure(raw, salt, state);
        let sealed = |data_bytes, record_count| FileState::Sealed { data_bytes, record_count };
        let (whole, behind) = usize::try_from(end).ok().and_then(|end| raw.split_at_checked(end)).unwrap_or((raw, &[]));
        // P8.
        if is_whole && is_zero(behind) && !head_is_bad {
            if !self.is_dry {
                write_hint(&*self.env.files, self.dir, number, salt, whole)?;
            }
            // Nothing is looked at any more that may be cut off.
            drop(contents);
            // One that has another's name was written by whoever gave it that, who need not have synced it.
            if named.name != number || self.known(number).is_none_or(|file| file.state.is_open()) {
                self.make_durable(&path, end)?;
            }
            self.files.push(File { number, state: sealed(end, records), salt, clean_as_of });
            if named.name != number {
                self.report.renamed.push((path, self.path_of(number)));
                self.misplaced.insert(named.name, number);
            }
            if self.known.is_some() && self.known(number).is_none() {
                self.report.unnamed.push(self.path_of(number));
            }
            return Ok(());
        }
        if records > 0 {
            // Who knows what the damage hid: nothing is proven of the copy.
            let copy = self.copy(whole, salt)?;
            self.files.push(File { clean_as_of: 0, ..copy });
        }
        self.put_aside(named.name, number, damaged_bytes)
    }

    /// P5. Of the file, so much counts; zeroes may follow.
    fn make_durable(&self, path: &Path, end: u64) -> Result<()> {
        let fs = &*self.env.files;
        if self.is_dry {
            return Ok(());
        }
        if self.is_warned {
            distrust::write_anew(fs, path)?;
        }
        let reopened = match fs.reopen(path, end) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                distrust::write_anew(fs, path)?;
                fs.reopen(path, end)
            }
            reopened => reopened,
        };
        self.sync(&*reopened?)
    }

    /// Makes a data file durable, or warns whoever comes next.
    fn sync(&self, file: &dyn AppendFile) -> Result<()> {
        Ok(file.sync().inspect_err(|_| {
            // Should that fail too, the error that is told is the worse one.
            let _ = distrust::warn(&*self.env.files, self.dir);
        })?)
    }

    /// Puts the file called `name` aside, which is that of `number`.
    fn put_aside(&mut self, name: FileNumber, number: FileNumber, damaged_bytes: u64) -> Result<()> {
        let (_, to) = self.set_aside(name, number)?;
        self.report.put_aside.push(to);
        self.report.damaged_bytes += damaged_bytes;
        Ok(())
    }

    fn put_stranger_aside(&mut self, name: FileNumber) -> Result<()> {
        let names = self.set_aside(name, name)?;
        self.report.strangers.push(names);
        Ok(())
    }

    fn set_aside(&mut self, name: FileNumber, number: FileNumber) -> Result<(PathBuf, PathBuf)> {
        let mut to = FileName::Damaged(number);
        // An earlier repair may have put another aside.
        while !self.taken.insert(to) {
            to = FileName::Damaged(self.new_number()?);
        }
        let names = (self.path_of(name), self.dir.join(to.name()));
        self.aside.push(names.clone());
        Ok(names)
    }

    /// A number that no file ever had.
    fn new_number(&mut self) -> Result<FileNumber> {
        let number = FileNumber::new(self.next_file)
            .ok_or_else(|| Error::new(ErrorKind::Exhausted, "all file numbers are used"))?;
        self.next_file += 1;
        Ok(number)
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

    /// How a file is known to have ended. Who dies between a hint and the manifest leaves the hint to a file that may go on: then it says nothing.
    fn state(&self, number: FileNumber, salt: u32, hint: Option<Footer>, raw: &[u8]) -> Option<FileState> {
        let has_grown = |end: u64| {
            raw.len() as u64 > end && records_behind(raw, salt, end.saturating_sub(1)).is_some_and(|(to, _)| to > end)
        };
        let hint = hint.filter(|hint| hint.salt == salt && !has_grown(hint.data_bytes));
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

    /// The file's sound records in a new file, each once: where nobody knows the end of a file, a copy of it may lie behind.
    fn copy(&mut self, raw: &[u8], salt: u32) -> Result<File> {
        let number = self.new_number()?;
        let mut new_salt = [0; 4];
        self.env.entropy.fill(&mut new_salt);
        let new_salt = u32::from_le_bytes(new_salt);
        let mut out = DataFileHeader { number, salt: new_salt, clean_as_of: 0 }.encode();
        let mut walk = Walk::new(raw, salt);
        let (mut record_count, mut seen) = (0, HashSet::new());
        loop {
            match walk.step() {
                Step::Record { record, .. } if seen.insert((record.version, record.is_tombstone)) => {
                    record_count += 1;
                    let copy = Record { is_continued: false, ..record };
                    copy.encode(new_salt, &mut out).map_err(|error| crate::batch::too_large(&error))?;
                }
                Step::Record { .. } | Step::Damage(_) => {}
                Step::End { .. } => break,
            }
        }
        if !self.is_dry {
            let file = self.env.files.create(&self.path_of(number))?;
            file.append(&[&out])?;
            self.sync(&*file)?;
            write_hint(&*self.env.files, self.dir, number, new_salt, &out)?;
        }
        let data_bytes = out.len() as u64;
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
        self.report.missing.sort_unstable();
        let misplaced = std::mem::take(&mut self.misplaced);
        let renames = names::renames(misplaced, || self.new_number())?;
        if self.is_dry {
            return Ok(self.report);
        }
        fs.sync_dir(self.dir)?;
        // Before the manifest: an open removes data files that it does not name.
        for (from, to) in &self.aside {
            fs.rename(from, to)?;
        }
        for (from, to) in renames {
            fs.rename(&self.path_of(from), &self.path_of(to))?;
        }
        fs.sync_dir(self.dir)?;
        let (files, next_file) = (self.files, self.next_file);
        manifest::write(fs, self.dir, &Manifest { store_id, keep_versions, next_file, next_version, files })?;
        if self.is_warned {
            distrust::trust_again(fs, self.dir)?;
        }
        Ok(self.report)
    }
}

/// All bytes of a data file.
enum Raw {
    Mapped(Arc<dyn Mapping>),
    Read(Vec<u8>),
}

impl Raw {
    fn read(dir: &Path, env: &Env, name: FileNumber) -> Result<Self> {
        let path = dir.join(FileName::Data(name).name());
        match env.files.open(&path)?.map().unwrap_or_default() {
            Some(mapping) => Ok(Self::Mapped(mapping)),
            None => Ok(Self::Read(env.files.read(&path)?)),
        }
    }
}

impl Deref for Raw {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Read(raw) => raw,
        }
    }
}

/// Whether any record holds.
fn has_records(raw: &[u8], salt: u32) -> bool {
    let mut walk = Walk::new(raw, salt);
    loop {
        match walk.step() {
            Step::Record { .. } => return true,
            Step::Damage(_) => {}
            Step::End { .. } => return false,
        }
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
