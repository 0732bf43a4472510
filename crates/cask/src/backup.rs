//! Copies of a store: a checkpoint shares its files by hard links, a backup has its own.
//!
//! - C1: all active files end in one moment, which is the copy's, and are sealed. So a copy consists of files that change no more, and a
//!   manifest that names them. Merges wait meanwhile; writes go to other files.
//! - C2: the copy's manifest comes last, when all else is durable: until then it is no store, or still the backup that it was.
//! - C3: a file of an earlier backup is the store's if number, salt and length are; and it is good if every byte of it still checks out.
//! - C4: a copy that failed takes away what it made; one that died leaves a mark ([`Place`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_env::{Access, FileSystem, durable};
use esker_format::cask::manifest::{File, Manifest};
use esker_format::cask::{FileName, FileNumber};
use esker_log::copying::Place;

use crate::file::{DataFile, Step, Walk, remove_if_there, take_place};
use crate::manifest;
use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaskCopyProgress {
    /// Bytes of data files copied, and read again to be checked.
    pub bytes_done: u64,
    /// Bytes to copy and to read again.
    pub bytes_total: u64,
}

/// What a copy of a store is made of.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CaskCopied {
    /// Data files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Data files that it shares with the store.
    pub linked: u64,
    /// Data files that were in an earlier backup.
    pub kept: u64,
    /// Bytes of data files that were written for it.
    pub copied_bytes: u64,
    /// Every write that was given a version up to this is in it, and some later ones may be.
    pub version: u64,
    /// Files of an earlier backup that could not be removed, and why; the next backup tries again.
    pub not_removed: Vec<(PathBuf, Error)>,
}

/// Where a copy goes. What was made is removed when it is dropped, unless it is a store.
struct Target<'a> {
    files: &'a dyn FileSystem,
    place: Place<'a>,
    /// The backup that is there.
    earlier: Option<Manifest>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Unfinished,
    /// The manifest may have been replaced.
    Unknown,
    Finished,
}

impl Store {
    /// See [`Cask::checkpoint`](crate::Cask::checkpoint).
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<CaskCopied> {
        self.check_writable()?;
        let mut target = Target::take(self, to, false)?;
        let _merging = self.lock_for_copy()?;
        let mut copied = self.begin_copy()?;
        let sealed = self.seal_everything()?;
        for file in &sealed {
            if target.link(file)? {
                copied.linked += 1;
            } else {
                target.copy(file, &mut |_| self.check_open())?;
                copied.copied_bytes += file.end();
            }
        }
        let mut store_id = [0; 16];
        self.env.entropy.fill(&mut store_id);
        self.finish_copy(target, &sealed, store_id, copied)
    }

    /// See [`Cask::backup`](crate::Cask::backup).
    pub(crate) fn backup(&self, to: &Path, progress: &mut dyn FnMut(CaskCopyProgress)) -> Result<CaskCopied> {
        self.check_writable()?;
        let mut target = Target::take(self, to, true)?;
        let _merging = self.lock_for_copy()?;
        let mut copied = self.begin_copy()?;
        let sealed = self.seal_everything()?;
        let bytes_total = 2 * sealed.iter().map(|file| file.end()).sum::<u64>();
        let mut at = CaskCopyProgress { bytes_done: 0, bytes_total };
        progress(at);
        for file in &sealed {
            let before = at.bytes_done;
            if target.keeps(file)? {
                copied.kept += 1;
            } else {
                target.copy(file, &mut |piece| {
                    at.bytes_done += piece;
                    progress(at);
                    self.check_open()
                })?;
                target.check(file)?;
                target.settle(file);
                copied.copied_bytes += file.end();
            }
            at.bytes_done = before + 2 * file.end();
            progress(at);
            self.check_open()?;
        }
        self.finish_copy(target, &sealed, self.store_id, copied)
    }

    /// Everything up to this version will be in a copy that begins now.
    fn begin_copy(&self) -> Result<CaskCopied> {
        let version = self.next_version.load(Ordering::Acquire).saturating_sub(1);
        Ok(CaskCopied { version, ..CaskCopied::default() })
    }

    fn finish_copy(
        &self,
        mut target: Target<'_>,
        sealed: &[Arc<DataFile>],
        store_id: [u8; 16],
        mut copied: CaskCopied,
    ) -> Result<CaskCopied> {
        let files: Vec<File> = sealed.iter().map(|file| file.in_manifest_sealed()).collect();
        copied.files = files.len() as u64;
        copied.bytes = sealed.iter().map(|file| file.end()).sum();
        // Not what was given since: a power loss may take that, and the store would seem to be behind its own backup.
        let own = self.installer.lock().installed();
        copied.not_removed = target.finish(&Manifest { store_id, files, ..own })?;
        Ok(copied)
    }
}

impl<'a> Target<'a> {
    /// Takes the directory for a copy, with what an earlier backup has left there, if `is_backup`.
    fn take(store: &'a Store, dir: &Path, is_backup: bool) -> Result<Self> {
        let files = &*store.env.files;
        let mut target = Self { files, place: Place::take(files, dir)?, earlier: None, state: State::Unfinished };
        let root = FileName::Manifest.name();
        if !is_backup || !durable::is_there(files, &target.place.path_of(&root))? {
            target.place.begin_empty(&root)?;
            return Ok(target);
        }
        let earlier = manifest::read(files, dir).map_err(|error| error.while_doing("reading the earlier backup"))?;
        if let Some(earlier) = &earlier {
            refuse_other(store, earlier, dir)?;
        }
        target.earlier = earlier;
        // Left by an attempt that died. It may be the backup before, which the manifest would be again after a power loss.
        files.sync_dir(dir)?;
        target.remove_others(|number| target.is_named(number)).into_iter().try_for_each(|(_, error)| Err(error))?;
        Ok(target)
    }

    fn is_named(&self, number: FileNumber) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.files.iter().any(|file| file.number == number))
    }

    /// Whether the store's file was shared.
    fn link(&mut self, file: &DataFile) -> Result<bool> {
        let (data, hint) = names(file);
        let path = self.place.begin(&data)?;
        if !durable::link(self.files, &file.path, &path)? {
            self.place.settle(&data);
            return Ok(false);
        }
        let from = file.path.with_file_name(&hint);
        let path = self.place.begin(&hint)?;
        // A store without some hint is still one.
        if durable::is_there(self.files, &from)? && !durable::link(self.files, &from, &path)? {
            self.copy_hint(file)?;
        }
        Ok(true)
    }

    /// A copy of the store's file, and of its hint.
    fn copy(&mut self, file: &DataFile, each: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        let path = self.place.begin(&names(file).0)?;
        durable::copy(self.files, &file.path, &path, file.end(), |piece| each(piece.len() as u64))
            .map_err(|error: Error| error.while_doing("copying a file of the store"))?;
        self.copy_hint(file)
    }

    fn copy_hint(&mut self, file: &DataFile) -> Result<()> {
        let hint = names(file).1;
        let from = file.path.with_file_name(&hint);
        self.place.begin(&hint)?;
        self.place.begin(&FileName::HintTemporary(file.number).name())?;
        let (path, temporary) = take_place(self.files, self.place.dir(), file.number)?;
        if durable::is_there(self.files, &from)? {
            let len = self.files.metadata(&from)?.len;
            durable::copy(self.files, &from, &temporary, len, |_| Ok::<_, Error>(()))?;
            self.files.rename(&temporary, &path)?;
        }
        Ok(())
    }

    /// Every byte of what is in the place of the store's file; if something is wrong with that, it is the store's file that is named.
    fn check(&self, file: &DataFile) -> Result<()> {
        let path = self.place.path_of(&names(file).0);
        let checked = check(self.files, &path, file);
        let checked = checked.or_else(|error| check(self.files, &file.path, file).and(Err(error)));
        checked.map_err(|error| error.while_doing("checking a file of a backup"))
    }

    /// What was copied takes the place of a damaged file of the earlier backup: it stays.
    fn settle(&mut self, file: &DataFile) {
        if self.is_named(file.number) {
            let (data, hint) = names(file);
            self.place.settle(&data);
            self.place.settle(&hint);
        }
    }

    /// C3. A file that is not good any more is removed.
    fn keeps(&mut self, file: &DataFile) -> Result<bool> {
        let wanted = file.in_manifest_sealed();
        let earlier = self.earlier.iter().flat_map(|earlier| &earlier.files);
        if !earlier.into_iter().any(|earlier| *earlier == wanted) {
            return Ok(false);
        }
        let (data, hint) = names(file);
        let path = self.place.path_of(&data);
        match self.check(file) {
            Ok(()) => {
                if !durable::is_there(self.files, &self.place.path_of(&hint))? {
                    self.copy_hint(file)?;
                }
                Ok(true)
            }
            // The store's own is good.
            Err(error) if error.kind() == ErrorKind::Corruption && error.path() == Some(&path) => {
                remove_if_there(self.files, &path)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a store of it (C2), and removes what only the earlier backup had. What could not be removed.
    fn finish(&mut self, manifest: &Manifest) -> Result<Vec<(PathBuf, Error)>> {
        self.files.sync_dir(self.place.dir())?;
        self.place.begin(&FileName::ManifestTemporary.name())?;
        self.state = State::Unknown;
        let written = manifest::write(self.files, self.place.dir(), manifest);
        self.state = match &written {
            Ok(()) => State::Finished,
            Err(error) if error.kind() == ErrorKind::ReadOnly => State::Unknown,
            Err(_) => State::Unfinished,
        };
        written?;
        self.place.finish()?;
        let named: BTreeMap<_, _> = manifest.files.iter().map(|file| (file.number, ())).collect();
        Ok(self.remove_others(|number| named.contains_key(&number)))
    }

    /// Removes data files and hints but those that `is_named`. What could not be removed.
    fn remove_others(&self, is_named: impl Fn(FileNumber) -> bool) -> Vec<(PathBuf, Error)> {
        let names = match self.place.names() {
            Ok(names) => names,
            Err(error) => return vec![(self.place.dir().to_owned(), error)],
        };
        let is_superfluous = |name: &String| match FileName::parse(name) {
            Some(FileName::Data(number) | FileName::Hint(number)) => !is_named(number),
            Some(FileName::HintTemporary(_) | FileName::ManifestTemporary) => true,
            _ => false,
        };
        let paths = names.iter().filter(|name| is_superfluous(name)).map(|name| self.place.path_of(name));
        paths.filter_map(|path| Some((path.clone(), remove_if_there(self.files, &path).err()?))).collect()
    }

    fn abandon(&mut self) -> Result<()> {
        if self.state == State::Unknown {
            if self.earlier.is_some() {
                // Which of the two backups is durable is unknown: both have their files.
                return Ok(());
            }
            self.place.remove_root(&FileName::Manifest.name())?;
        }
        self.place.abandon()
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.state != State::Finished {
            // Why it is given up was told; what stays is no store.
            let _ = self.abandon();
        }
    }
}

/// Names of a data file and its hint.
fn names(file: &DataFile) -> (String, String) {
    (FileName::Data(file.number).name(), FileName::Hint(file.number).name())
}

/// Every byte of a copy of `file`, or of the file itself.
fn check(files: &dyn FileSystem, path: &Path, file: &DataFile) -> Result<()> {
    let reader = files.open(path)?;
    reader.advise(Access::Sequential);
    let (len, wanted) = (reader.len()?, file.end());
    if len < wanted {
        return Err(Error::corruption(path, len, format!("the file has {len} bytes, {wanted} were in it")));
    }
    let mapping = reader.map().unwrap_or_default();
    let read;
    let bytes = match &mapping {
        Some(mapping) => mapping.bytes(),
        None => {
            read = files.read(path)?;
            &read
        }
    };
    let bytes = usize::try_from(wanted).ok().and_then(|end| bytes.get(..end)).unwrap_or(bytes);
    let mut walk = Walk::new(bytes, file.salt);
    loop {
        match walk.step() {
            Step::Record { .. } => {}
            Step::Damage(range) => {
                let reason = "bytes that are no records; run a repair of the store, or restore an earlier backup";
                return Err(Error::corruption(path, range.start, reason));
            }
            Step::End { .. } => return Ok(()),
        }
    }
}

/// A backup can be brought up to date only by the store whose earlier state it is.
fn refuse_other(store: &Store, earlier: &Manifest, dir: &Path) -> Result<()> {
    let refuse = |reason: &str| Err(Error::new(ErrorKind::Conflict, reason).with_path(dir));
    if earlier.store_id != store.store_id {
        return refuse("there is a checkpoint, another store, or a backup of one; choose another directory");
    }
    let own = store.installer.lock().manifest(store.next_version.load(Ordering::Acquire));
    let known: BTreeMap<FileNumber, u32> = own.files.iter().map(|file| (file.number, file.salt)).collect();
    let is_foreign =
        |file: &File| file.state.is_open() || known.get(&file.number).is_some_and(|salt| *salt != file.salt);
    if earlier.next_file > own.next_file
        || earlier.next_version > own.next_version
        || earlier.files.iter().any(is_foreign)
    {
        return refuse("there is a store that went on by itself, not only a backup; choose another directory");
    }
    Ok(())
}
