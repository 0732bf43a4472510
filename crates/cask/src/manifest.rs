//! The one place where the set of files changes (B4): manifest written whole under another name, synced, renamed, directory synced.
//!
//! - M1: whoever names a new file has made it and its name durable before (B6).
//! - M2: whoever drops a file removes it after the edit returned.
//! - M3: a failure before the rename changes nothing. A failure from then on leaves unknown which manifest is durable, so the
//!   store refuses writes from then on; either is right as long as no file is removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::FileSystem;
use esker_format::cask::manifest::{File, FileState, Manifest};
use esker_format::cask::{FileName, FileNumber};

use crate::open::unless_directory;
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(crate) struct Installer {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    store_id: [u8; 16],
    keep_versions: u16,
    next_file: u32,
    /// The next file and version that the manifest names: what was given since may be given again after a crash.
    installed: (u32, u64),
    files: BTreeMap<FileNumber, File>,
}

impl Installer {
    /// Goes on from what `manifest` says.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, dir: &Path, manifest: &Manifest) -> Self {
        let files = manifest.files.iter().map(|file| (file.number, *file)).collect();
        let Manifest { store_id, keep_versions, next_file, next_version, .. } = *manifest;
        let installed = (next_file, next_version);
        Self { fs, dir: dir.to_owned(), store_id, keep_versions, next_file, installed, files }
    }

    pub(crate) const fn store_id(&self) -> [u8; 16] {
        self.store_id
    }

    /// A number that no file ever had. It counts as used even if nothing comes of it.
    ///
    /// # Errors
    /// `Exhausted` after a thousand million files.
    pub(crate) fn new_number(&mut self) -> Result<FileNumber> {
        let number = FileNumber::new(self.next_file).ok_or_else(|| {
            Error::new(ErrorKind::Exhausted, "all file numbers are used; copy the store into a new one")
        })?;
        self.next_file += 1;
        Ok(number)
    }

    /// The manifest as it is now.
    pub(crate) fn manifest(&self, next_version: u64) -> Manifest {
        self.with_files(next_version, &self.files)
    }

    /// The manifest as it lies in the directory: with numbers that the store never falls behind, whatever becomes of it.
    pub(crate) fn installed(&self) -> Manifest {
        let (next_file, next_version) = self.installed;
        Manifest { next_file, ..self.manifest(next_version) }
    }

    fn with_files(&self, next_version: u64, files: &BTreeMap<FileNumber, File>) -> Manifest {
        let Self { store_id, keep_versions, next_file, .. } = *self;
        Manifest { store_id, keep_versions, next_file, next_version, files: files.values().copied().collect() }
    }

    /// Files come (or change) and go, all at once, durably. Of open ones so many bytes are `durable` by now.
    ///
    /// # Errors
    /// `Exhausted`, `Io`: nothing changed. `ReadOnly`: what is durable is unknown (M3).
    pub(crate) fn install(
        &mut self,
        next_version: u64,
        durable: &[(FileNumber, u64)],
        come: &[File],
        go: &[FileNumber],
    ) -> Result<()> {
        let mut files = self.grown(durable);
        files.extend(come.iter().map(|file| (file.number, *file)));
        for number in go {
            files.remove(number);
        }
        write(&*self.fs, &self.dir, &self.with_files(next_version, &files))?;
        self.files = files;
        self.installed = (self.next_file, next_version);
        Ok(())
    }

    /// Whether the manifest says less of open files than that so many bytes of them are durable.
    pub(crate) fn says_less(&self, durable: &[(FileNumber, u64)]) -> bool {
        self.grown(durable) != self.files
    }

    /// What is durable stays so.
    fn grown(&self, durable: &[(FileNumber, u64)]) -> BTreeMap<FileNumber, File> {
        let mut files = self.files.clone();
        for (number, bytes) in durable {
            if let Some(File { state: FileState::Open { durable_bytes }, .. }) = files.get_mut(number) {
                *durable_bytes = (*durable_bytes).max(*bytes);
            }
        }
        files
    }
}

/// Makes `manifest` that of the store in `dir`.
///
/// # Errors
/// As [`Installer::install`].
pub(crate) fn write(fs: &dyn FileSystem, dir: &Path, manifest: &Manifest) -> Result<()> {
    let temporary = dir.join(FileName::ManifestTemporary.name());
    if fs.metadata(&temporary).is_ok() {
        fs.remove(&temporary)?;
    }
    let file = fs.create(&temporary)?;
    file.append(&[&manifest.encode()])?;
    file.sync()?;
    drop(file);
    let replaced = fs.rename(&temporary, &dir.join(FileName::Manifest.name())).and_then(|()| fs.sync_dir(dir));
    replaced.map_err(|error| {
        let reason =
            format!("the manifest could not be replaced, so what is durable is unknown; reopen to go on: {error}");
        Error::new(ErrorKind::ReadOnly, reason).with_path(dir).with_source(error)
    })
}

/// What the manifest in `dir` says; `None` if there is none.
///
/// # Errors
/// `Corruption` or `UnsupportedFormat` if it does not decode; `Io`.
pub(crate) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Manifest>> {
    let path = dir.join(FileName::Manifest.name());
    let raw = match fs.read_small(&path) {
        Ok(raw) => raw,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unless_directory(dir, error)),
    };
    let manifest = Manifest::decode(&raw).map_err(|error| Error::decode(&path, 0, "reading the manifest", error))?;
    Ok(Some(manifest))
}
