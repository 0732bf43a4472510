//! A file system that asks before it does something: to hold a call until something else has happened, to let it fail, or to panic.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker::env::sim::SimDisk;
use esker::env::{
    Access, AppendFile, DirEntry, Env, FileSystem, Lock, Mapping, Metadata, ReadFile, Result, Space, Window,
};

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<'a> {
    /// A file is made.
    Create(&'a Path),
    /// A file is made durable.
    Sync(&'a Path),
    /// It is, and nobody was told yet.
    Synced(&'a Path),
    /// The end of a file is cut off, of an append that failed for example.
    Truncate(&'a Path),
    /// A part of a file is given back.
    PunchHole(&'a Path),
    /// The length of a file is asked for, or whether it is there.
    Metadata(&'a Path),
    /// A file is opened for reading.
    Open(&'a Path),
    /// A part of a file is read.
    Read(&'a Path),
    /// The system is told that a part of a file will be read.
    Announce(&'a Path),
    /// A file is mapped.
    Map(&'a Path),
    /// A directory is claimed, before parts of its files are given back.
    Claim(&'a Path),
    /// The names in a directory are asked for.
    List(&'a Path),
    /// A directory is shared.
    Share(&'a Path),
    /// Anything else that changes files or directories, or takes a lock, is done at this path.
    Other(&'a Path),
}

impl<'a> Call<'a> {
    /// Where it is done.
    pub fn path(&self) -> &'a Path {
        match self {
            Self::Create(path) | Self::Sync(path) | Self::Synced(path) | Self::PunchHole(path) => path,
            Self::Metadata(path) | Self::Open(path) | Self::Read(path) | Self::Map(path) => path,
            Self::Announce(path) | Self::Truncate(path) => path,
            Self::Claim(path) | Self::Share(path) | Self::List(path) | Self::Other(path) => path,
        }
    }
}

type Hook = Arc<dyn Fn(Call<'_>) -> Result<()> + Send + Sync>;
type Sight = Arc<dyn Fn(&mut Vec<DirEntry>) + Send + Sync>;

/// See the module's head.
#[derive(Clone)]
pub struct Hooked {
    files: Arc<dyn FileSystem>,
    hook: Hook,
    sight: Option<Sight>,
}

impl Hooked {
    /// `files`, but only what `hook` returns from is done, unless it returns an error: that is the call's.
    pub fn new(files: Arc<dyn FileSystem>, hook: impl Fn(Call<'_>) -> Result<()> + Send + Sync + 'static) -> Self {
        Self { files, hook: Arc::new(hook), sight: None }
    }

    /// The same, where whoever lists a directory sees what `sight` leaves of it: a listing takes a while, and names come and go.
    #[must_use]
    pub fn with_sight(self, sight: impl Fn(&mut Vec<DirEntry>) + Send + Sync + 'static) -> Self {
        Self { sight: Some(Arc::new(sight)), ..self }
    }

    fn appended(&self, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        Arc::new(HookedFile { file, hook: Arc::clone(&self.hook) })
    }
}

type IsIt = Box<dyn Fn(Call<'_>) -> bool + Send>;
type Action = Box<dyn FnOnce() + Send>;

/// What is done once, just before some call.
#[derive(Clone, Default)]
pub struct Meanwhile {
    armed: Arc<Mutex<Option<(IsIt, Action)>>>,
}

impl Meanwhile {
    /// The machine of `disk`, where it is done.
    pub fn env(&self, disk: &SimDisk) -> Env {
        let asked = self.clone();
        let files = Hooked::new(disk.env().files, move |call| {
            let mut armed = asked.armed.lock().unwrap();
            let action = armed.take_if(|(is_it, _)| is_it(call));
            drop(armed);
            if let Some((_, action)) = action {
                action();
            }
            Ok(())
        });
        Env { files: Arc::new(files), ..disk.env() }
    }

    /// Does `action` before the first call from now on of which `is_it` is true.
    pub fn before(&self, is_it: impl Fn(Call<'_>) -> bool + Send + 'static, action: impl FnOnce() + Send + 'static) {
        *self.armed.lock().unwrap() = Some((Box::new(is_it), Box::new(action)));
    }

    /// Whether it was done.
    pub fn is_done(&self) -> bool {
        self.armed.lock().unwrap().is_none()
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooked").field(&self.files).finish()
    }
}

impl FileSystem for Hooked {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.files.absolute(path)
    }
    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        (self.hook)(Call::Create(path))?;
        self.files.create(path).map(|file| self.appended(file))
    }
    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        (self.hook)(Call::Other(path))?;
        self.files.reopen(path, len).map(|file| self.appended(file))
    }
    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        (self.hook)(Call::Other(to))?;
        self.files.recycle(from, to).map(|file| self.appended(file))
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        (self.hook)(Call::Open(path))?;
        let file = self.files.open(path)?;
        Ok(Arc::new(HookedReads { file, hook: Arc::clone(&self.hook) }))
    }
    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        (self.hook)(Call::List(dir))?;
        let mut entries = self.files.list(dir)?;
        if let Some(sight) = &self.sight {
            sight(&mut entries);
        }
        Ok(entries)
    }
    fn metadata(&self, path: &Path) -> Result<Metadata> {
        (self.hook)(Call::Metadata(path))?;
        self.files.metadata(path)
    }
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        (self.hook)(Call::Other(dir))?;
        self.files.create_dir_all(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        (self.hook)(Call::Other(from))?;
        self.files.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        (self.hook)(Call::Other(to))?;
        self.files.link(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        (self.hook)(Call::Other(path))?;
        self.files.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> Result<()> {
        (self.hook)(Call::Other(dir))?;
        self.files.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        (self.hook)(Call::Other(dir))?;
        self.files.sync_dir(dir)
    }
    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()> {
        (self.hook)(Call::PunchHole(path))?;
        self.files.punch_hole(path, range)
    }
    fn space(&self, path: &Path) -> Result<Space> {
        self.files.space(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        (self.hook)(Call::Other(path))?;
        self.files.lock(path)
    }
    fn share_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        (self.hook)(Call::Share(dir))?;
        self.files.share_dir(dir)
    }
    fn claim_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        (self.hook)(Call::Claim(dir))?;
        self.files.claim_dir(dir)
    }
}

struct HookedReads {
    file: Arc<dyn ReadFile>,
    hook: Hook,
}

impl fmt::Debug for HookedReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedReads").field(&self.file).finish()
    }
}

impl ReadFile for HookedReads {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn identity(&self) -> Result<(u64, u64)> {
        self.file.identity()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        (self.hook)(Call::Read(self.file.path()))?;
        self.file.read_at(offset, buffer)
    }
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        (self.hook)(Call::Read(self.file.path())).is_ok() && self.file.read_now(offset, buffer)
    }
    fn memory(&self, range: Range<u64>) -> Option<&[u8]> {
        self.file.memory(range)
    }
    fn map(&self) -> Result<Option<Arc<dyn Mapping>>> {
        (self.hook)(Call::Map(self.file.path()))?;
        self.file.map()
    }
    fn advise(&self, access: Access) {
        self.file.advise(access);
    }
    fn will_read(&self, range: Range<u64>) {
        // A hint: nobody is told what became of it.
        let _ = (self.hook)(Call::Announce(self.file.path()));
        self.file.will_read(range);
    }
}

struct HookedFile {
    file: Arc<dyn AppendFile>,
    hook: Hook,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedFile").field(&self.file).finish()
    }
}

impl AppendFile for HookedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        self.file.append(parts)
    }
    fn sync(&self) -> Result<()> {
        (self.hook)(Call::Sync(self.file.path()))?;
        self.file.sync()?;
        (self.hook)(Call::Synced(self.file.path()))
    }
    fn truncate(&self, len: u64) -> Result<()> {
        (self.hook)(Call::Truncate(self.file.path()))?;
        self.file.truncate(len)
    }
    fn preallocate(&self, len: u64) -> Result<bool> {
        self.file.preallocate(len)
    }
    fn hold(&self, len: u64) -> Result<bool> {
        self.file.hold(len)
    }
    fn pad(&self) {
        self.file.pad();
    }
    fn seal(&self) -> Result<()> {
        self.file.seal()
    }
    fn window(&self) -> Result<Option<Arc<dyn Window>>> {
        self.file.window()
    }
    fn begin_sync(&self) {
        self.file.begin_sync();
    }
    fn advise(&self, access: Access) {
        self.file.advise(access);
    }
}
