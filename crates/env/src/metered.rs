//! A file system that knows how much the files of one directory take up, and refuses what would go beyond a limit.
//!
//! - M1: bytes are counted before they are written, in whole blocks, and given back only when the file system has given them
//!   up: what the files occupy never exceeds what is counted, nor that the limit.
//! - M2: small files without which nothing could be given up any more, the [`Vital`](Need::Vital) ones, may use the last
//!   [`RESERVE_BYTES`]; others may not.
//! - M3: when others have filled the disk, what is written goes into blocks that were kept for that (`ballast`). To whoever asks how much
//!   room there is, they are free.
//!
//! Other directories are nobody's concern here. Cost: of an append within blocks that are counted already, one atomic load.

mod ballast;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use self::ballast::Ballast;
use crate::{
    Access, AppendFile, DirEntry, Error, FileKind, FileSystem, Lock, Metadata, PAD_BYTES, ReadFile, Result, Space,
    Window,
};

/// What file systems hand out at least.
const BLOCK_BYTES: u64 = 4096;

/// See [`Limits::ballast_bytes`].
const BALLAST_PART: u64 = 16;

/// See M2.
pub const RESERVE_BYTES: u64 = 128 << 10;

/// What a file is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// That others may go.
    Vital,
    /// To bring what it holds where it can be given up.
    Work,
    /// That what it holds may come there later.
    Log,
}

/// How much the files may take up.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes that may be there; `u64::MAX`: as many as the disk has room for.
    pub bytes: u64,
    /// Bytes that are kept for when others have filled the disk, but at most a 16th of that; 0: none.
    pub ballast_bytes: u64,
    /// The name that their file has in the directory.
    pub ballast_name: String,
    /// What a file is written for.
    pub need: fn(&Path) -> Need,
}

/// How much the files take up.
#[derive(Debug)]
pub struct Meter {
    /// What is kept of it included.
    all: Arc<AtomicU64>,
    limit: AtomicU64,
    /// That of the vital ones (M2).
    vital_limit: AtomicU64,
    need: fn(&Path) -> Need,
    ballast: Ballast,
    /// What was asked for of it, and what the disk has in all.
    ballast_chosen: u64,
    disk_bytes: u64,
}

impl Meter {
    /// Bytes that the files take up, or are about to.
    pub fn used(&self) -> u64 {
        self.all.load(Ordering::Acquire).saturating_sub(self.ballast.bytes())
    }

    /// What they may take up before none but vital ones can grow.
    pub fn limit(&self) -> u64 {
        let limit = self.limit.load(Ordering::Acquire);
        if limit == u64::MAX { u64::MAX } else { limit.saturating_sub(RESERVE_BYTES) }
    }

    /// They may take up so much from now on; `u64::MAX`: whatever there is. Those that take up more stay as they are. What is kept for when others have filled the disk
    /// follows: what is too much goes, and more is [kept](Self::keep_ballast) as there is room.
    pub fn set_limit(&self, bytes: u64) {
        self.set_vital_limit(bytes);
        self.limit.store(bytes, Ordering::Release);
        self.ballast.set_most(ballast_most(self.ballast_chosen, bytes, self.disk_bytes));
    }

    /// All files may take up so much if vital ones make it that, until the next [`set_limit`](Self::set_limit): of a limit that is about to rise, as soon as that is written down.
    pub fn set_vital_limit(&self, bytes: u64) {
        self.vital_limit.store(bytes, Ordering::Release);
    }

    /// Bytes that are kept for when others have filled the disk, once it is short of room.
    pub fn ballast_bytes(&self) -> u64 {
        self.ballast.most()
    }

    /// Has what an earlier process left behind of them.
    pub fn take_over_ballast(&self) {
        self.ballast.take_over();
    }

    /// Keeps them from now on.
    pub fn begin_ballast(&self) {
        self.ballast.begin();
    }

    /// Says how much the vital files would take if they were written anew: the last of the ballast is for that, but no more than half of it.
    pub fn note_vital(&self, bytes: u64) {
        self.ballast.note_vital(bytes);
    }

    /// Takes as many of them as there is room for. Cost: one call where there is plenty.
    pub fn keep_ballast(&self) {
        self.ballast.keep(self.limit());
    }

    /// Keeps none any more, and leaves nothing behind where there is plenty of room.
    pub fn end_ballast(&self) {
        self.ballast.end();
    }

    /// Tries it again with what is kept, if there is no room for `bytes` of the file at `path`. `again` leaves nothing behind if it fails.
    fn with_ballast<T>(&self, path: &Path, bytes: u64, mut again: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match again() {
                Err(error) if error.is_exhausted() && self.ballast.give(bytes, (self.need)(path)) => {}
                done => return done,
            }
        }
    }
}

/// What one file takes up.
#[derive(Debug)]
struct Charge {
    meter: Arc<Meter>,
    bytes: Mutex<u64>,
}

impl Charge {
    fn new(meter: &Arc<Meter>, bytes: u64) -> Arc<Self> {
        meter.all.fetch_add(bytes, Ordering::AcqRel);
        Arc::new(Self { meter: meter.clone(), bytes: Mutex::new(bytes) })
    }

    /// Makes it `bytes`, whatever it was, once they are known.
    fn set(&self, bytes: u64) {
        let mut held = self.bytes.lock();
        self.meter.all.fetch_add(bytes.saturating_sub(*held), Ordering::AcqRel);
        self.meter.all.fetch_sub(held.saturating_sub(bytes), Ordering::AcqRel);
        *held = bytes;
    }

    /// Makes it at least enough for `len` bytes of the file at `path`; returns what it was.
    fn raise(&self, path: &Path, len: u64) -> Result<u64> {
        let wanted = blocks(len);
        let mut held = self.bytes.lock();
        let before = *held;
        let more = wanted.saturating_sub(before);
        if more == 0 {
            return Ok(before);
        }
        let need = (self.meter.need)(path);
        let (limit, most) = match need {
            Need::Vital => {
                let limit = self.meter.vital_limit.load(Ordering::Acquire);
                (limit, limit)
            }
            Need::Work | Need::Log => (self.meter.limit.load(Ordering::Acquire), self.meter.limit()),
        };
        let within = |all: u64| all.checked_add(more).filter(|&all| all <= most);
        let raise = || self.meter.all.fetch_update(Ordering::AcqRel, Ordering::Acquire, within);
        let mut raised = raise();
        // Of the limit it takes nothing from anybody.
        while raised.is_err() && within(self.meter.used()).is_some() && self.meter.ballast.give(more, Need::Vital) {
            raised = raise();
        }
        if raised.is_err() {
            let reason = format!("the files in the directory may take up {limit} bytes");
            return Err(Error::new("appending to", path, std::io::Error::new(std::io::ErrorKind::StorageFull, reason)));
        }
        *held = wanted;
        Ok(before)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.all.fetch_sub(*self.bytes.get_mut(), Ordering::AcqRel);
    }
}

/// How much of what was asked for is kept at most.
fn ballast_most(chosen: u64, limit: u64, disk_bytes: u64) -> u64 {
    chosen.min(limit.min(disk_bytes) / BALLAST_PART)
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// See the module's head.
#[derive(Debug)]
pub struct Metered {
    files: Arc<dyn FileSystem>,
    dir: PathBuf,
    meter: Arc<Meter>,
    charges: Mutex<HashMap<PathBuf, Arc<Charge>>>,
}

impl Metered {
    /// Counts what lies in `dir` now and what comes.
    ///
    /// # Errors
    /// `dir` could not be listed.
    pub fn over(files: Arc<dyn FileSystem>, dir: &Path, limits: &Limits) -> Result<(Arc<Self>, Arc<Meter>)> {
        let disk_bytes = files.space(dir).map_or(u64::MAX, |space| space.total);
        let ballast_path = dir.join(&limits.ballast_name);
        let (all, limit, ballast_chosen) = (Arc::<AtomicU64>::default(), limits.bytes, limits.ballast_bytes);
        let ballast_bytes = ballast_most(ballast_chosen, limit, disk_bytes);
        let ballast = Ballast::new(files.clone(), ballast_path, ballast_bytes, all.clone());
        let (limit, vital_limit) = (AtomicU64::new(limit), AtomicU64::new(limit));
        let need = limits.need;
        let meter = Arc::new(Meter { all, limit, vital_limit, need, ballast, ballast_chosen, disk_bytes });
        let mut charges = HashMap::new();
        for entry in files.list(dir)? {
            let path = dir.join(&entry.name);
            match files.metadata(&path) {
                Ok(found) if found.kind == FileKind::File && entry.name != limits.ballast_name => {
                    drop(charges.insert(path, Charge::new(&meter, found.allocated)));
                }
                _ => {}
            }
        }
        let metered = Self { files, dir: dir.to_owned(), meter: meter.clone(), charges: Mutex::new(charges) };
        Ok((Arc::new(metered), meter))
    }

    fn counts(&self, path: &Path) -> bool {
        path.parent() == Some(&self.dir)
    }

    fn charge(&self, path: &Path) -> Arc<Charge> {
        self.charges.lock().entry(path.to_owned()).or_insert_with(|| Charge::new(&self.meter, 0)).clone()
    }

    /// Counts the file as large as the file system says it is, if it is there.
    fn measure(&self, path: &Path) {
        if !self.counts(path) {
            return;
        }
        match self.files.metadata(path) {
            Ok(found) => self.charge(path).set(found.allocated),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => drop(self.charges.lock().remove(path)),
            Err(_) => {}
        }
    }

    /// What was counted of one is the other's.
    fn note_renamed(&self, from: &Path, to: &Path) {
        let mut charges = self.charges.lock();
        let moved = charges.remove(from);
        match moved.filter(|_| self.counts(to)) {
            Some(charge) => drop(charges.insert(to.to_owned(), charge)),
            None => {
                charges.remove(to);
                drop(charges);
                self.measure(to);
            }
        }
    }

    fn metered(&self, path: &Path, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        if !self.counts(path) {
            return file;
        }
        let charge = self.charge(path);
        let charged = AtomicU64::new(*charge.bytes.lock());
        Arc::new(MeteredAppend { file, charge, charged, is_padded: AtomicBool::new(false) })
    }
}

impl FileSystem for Metered {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.files.absolute(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        let create = || self.files.create(path);
        // The directory may need a block.
        let file = if self.counts(path) { self.meter.with_ballast(path, BLOCK_BYTES, create) } else { create() }?;
        Ok(self.metered(path, file))
    }

    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        let file = self.files.reopen(path, len)?;
        self.measure(path);
        Ok(self.metered(path, file))
    }

    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        let recycled = self.files.recycle(from, to).inspect_err(|_| {
            // It is left with either name.
            self.measure(to);
            self.measure(from);
        })?;
        self.note_renamed(from, to);
        self.measure(to);
        Ok(self.metered(to, recycled))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.files.open(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        self.files.list(dir)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.files.metadata(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.files.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)?;
        self.note_renamed(from, to);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        if !self.counts(to) {
            return self.files.link(from, to);
        }
        // Not that of a file which has the name already: then the link fails, and it is counted as before.
        let charge = Charge::new(&self.meter, 0);
        charge.raise(to, self.files.metadata(from)?.allocated)?;
        self.files.link(from, to)?;
        self.charges.lock().insert(to.to_owned(), charge);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.files.remove(path);
        if removed.as_ref().err().is_none_or(|error| error.kind() == std::io::ErrorKind::NotFound) {
            self.charges.lock().remove(path);
        }
        removed
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.files.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.files.sync_dir(dir)
    }

    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()> {
        let punched = self.files.punch_hole(path, range);
        self.measure(path);
        punched
    }

    fn punch_holes(&self, path: &Path, ranges: &[Range<u64>]) -> Result<()> {
        let punched = self.files.punch_holes(path, ranges);
        self.measure(path);
        punched
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let space = self.files.space(path)?;
        if path != self.dir {
            return Ok(space);
        }
        let left = self.meter.limit().saturating_sub(self.meter.used());
        // M3.
        let available = space.available.saturating_add(self.meter.ballast.bytes()).min(left);
        Ok(Space { available, ..space })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.files.lock(path)
    }

    fn share_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        self.files.share_dir(dir)
    }

    fn claim_dir(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        self.files.claim_dir(dir)
    }
}

/// A file of the directory that is being written.
#[derive(Debug)]
struct MeteredAppend {
    file: Arc<dyn AppendFile>,
    charge: Arc<Charge>,
    /// What is counted of it, for whoever appends.
    charged: AtomicU64,
    /// See [`AppendFile::pad`].
    is_padded: AtomicBool,
}

impl MeteredAppend {
    /// Counts what the file needs for `len` bytes before `grow` makes it so.
    fn grow<T>(&self, len: u64, grow: impl FnOnce() -> Result<T>) -> Result<T> {
        if len <= self.charged.load(Ordering::Relaxed) {
            return grow();
        }
        let before = self.charge.raise(self.file.path(), len)?;
        let grown = grow();
        // What a failure left is in the file: no less than its length.
        let bytes = if grown.is_ok() { blocks(len).max(before) } else { blocks(self.file.len()).max(before) };
        self.set(bytes);
        grown
    }

    /// Where the file will end, for all who measure it, when `end` bytes were appended.
    fn file_end(&self, end: u64) -> u64 {
        if self.is_padded.load(Ordering::Relaxed) { end.next_multiple_of(PAD_BYTES) } else { end }
    }

    fn set(&self, bytes: u64) {
        self.charge.set(bytes);
        self.charged.store(bytes, Ordering::Relaxed);
    }

    /// Appends `parts`, of so many `bytes`, behind the first `before` of the file, which found no room.
    #[cold]
    fn append_with_ballast(&self, before: u64, bytes: u64, parts: &[&[u8]], mut error: Error) -> Result<()> {
        let (meter, path, end) = (&self.charge.meter, self.file.path(), self.file_end(before.saturating_add(bytes)));
        while error.is_exhausted() {
            // What the limit refuses, no room on the disk helps.
            let Ok(charged) = self.charge.raise(path, end) else { break };
            self.charge.set(charged);
            if !meter.ballast.give(bytes, (meter.need)(path)) {
                break;
            }
            if self.file.len() > before {
                self.file.truncate(before)?;
            }
            match self.grow(end, || self.file.append(parts)) {
                Err(again) => error = again,
                Ok(()) => return Ok(()),
            }
        }
        Err(error)
    }
}

impl AppendFile for MeteredAppend {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let before = self.file.len();
        let end = self.file_end(before.saturating_add(bytes));
        let appended = self.grow(end, || self.file.append(parts));
        match appended {
            Err(error) if error.is_exhausted() => self.append_with_ballast(before, bytes, parts, error),
            done => done,
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)?;
        self.set(blocks(self.file.len()));
        Ok(())
    }

    fn preallocate(&self, len: u64) -> Result<bool> {
        let before = *self.charge.bytes.lock();
        let preallocated = self.grow(len, || self.file.preallocate(len));
        if !matches!(preallocated, Ok(true)) {
            self.set(before);
        }
        preallocated
    }

    fn hold(&self, len: u64) -> Result<bool> {
        let before = *self.charge.bytes.lock();
        let held = self.grow(len, || self.file.hold(len));
        if !matches!(held, Ok(true)) {
            self.set(before);
        }
        held
    }

    fn pad(&self) {
        self.file.pad();
        self.is_padded.store(true, Ordering::Relaxed);
    }

    fn seal(&self) -> Result<()> {
        self.file.seal()?;
        self.is_padded.store(false, Ordering::Relaxed);
        self.set(blocks(self.file.len()));
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Fault, SimDisk};

    fn metered(disk: &SimDisk, limit: u64) -> (Arc<Metered>, Arc<Meter>) {
        let files = disk.env().files;
        files.create_dir_all(Path::new("/store")).unwrap();
        let need = |path: &Path| if path.ends_with("MANIFEST") { Need::Vital } else { Need::Work };
        let limits = Limits { bytes: limit, ballast_bytes: 0, ballast_name: "ballast".into(), need };
        Metered::over(files, Path::new("/store"), &limits).unwrap()
    }

    fn allocated(disk: &SimDisk) -> u64 {
        let files = disk.env().files;
        let of = |path: &PathBuf| files.metadata(path).unwrap().allocated;
        disk.paths().iter().filter(|path| path.parent() == Some(Path::new("/store"))).map(of).sum()
    }

    #[test]
    fn whatever_happens_to_files_is_counted() {
        let disk = SimDisk::new();
        let (files, meter) = metered(&disk, 1 << 20);
        let path = |name: &str| Path::new("/store").join(name);
        let first = files.create(&path("a")).unwrap();
        first.append(&[&[1; 5000], &[2; 5000]]).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (12_288, 12_288));
        first.preallocate(50_000).unwrap();
        assert_eq!(meter.used(), allocated(&disk));
        first.seal().unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (12_288, 12_288));
        files.link(&path("a"), &path("b")).unwrap();
        files.rename(&path("b"), Path::new("/elsewhere")).unwrap();
        assert_eq!(meter.used(), 12_288);
        files.punch_hole(&path("a"), 4096..8192).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (8192, 8192));
        let (_again, counted_anew) = metered(&disk, 1 << 20);
        assert_eq!(counted_anew.used(), 8192);
        files.create(Path::new("/other")).unwrap().append(&[&[0; 5000]]).unwrap();
        files.write_atomically(&path("c"), &path("d"), b"x").unwrap();
        files.write_atomically(&path("c"), &path("d"), b"y").unwrap();
        assert_eq!(meter.used(), 12_288);
        drop(first);
        files.remove(&path("a")).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (4096, 4096));
    }

    #[test]
    fn zeroes_that_pad_a_file_are_counted() {
        let disk = SimDisk::new();
        let (files, meter) = metered(&disk, RESERVE_BYTES + PAD_BYTES + 4096);
        let file = files.create(Path::new("/store/a")).unwrap();
        file.pad();
        file.append(&[&[1; 5000]]).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (PAD_BYTES, PAD_BYTES));
        assert!(file.append(&[&vec![1; PAD_BYTES as usize]]).unwrap_err().is_exhausted());
        file.truncate(4000).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (4096, 4096));
        file.append(&[&[1; 100]]).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (PAD_BYTES, PAD_BYTES));
        file.seal().unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (8192, 8192));
        file.append(&[&[1; 100]]).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (8192, 8192));
    }

    #[test]
    fn a_file_whose_name_a_link_could_not_take_stays_counted() {
        let disk = SimDisk::new();
        let (files, meter) = metered(&disk, 1 << 20);
        let path = |name: &str| Path::new("/store").join(name);
        for (name, bytes) in [("a", 5000), ("b", 3000)] {
            files.create(&path(name)).unwrap().append(&[&vec![1; bytes]]).unwrap();
        }
        assert_eq!(files.link(&path("a"), &path("b")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!((meter.used(), allocated(&disk)), (12_288, 12_288));
        files.remove(&path("b")).unwrap();
        assert_eq!((meter.used(), allocated(&disk)), (8192, 8192));
    }

    #[test]
    fn nothing_goes_beyond_the_limit_and_a_little_is_kept_for_what_is_vital() {
        let disk = SimDisk::new();
        let limit = RESERVE_BYTES + 8192;
        let (files, meter) = metered(&disk, limit);
        let file = files.create(Path::new("/store/a")).unwrap();
        file.append(&[&[1; 8000]]).unwrap();
        let error = file.append(&[&[1; 200]]).unwrap_err();
        assert!(error.is_exhausted() && file.len() == 8000, "{error}");
        assert!(file.preallocate(10_000).unwrap_err().is_exhausted());
        let available = |path: &str| files.space(Path::new(path)).unwrap().available;
        assert!(available("/store") == 0 && available("/") > 1 << 30);
        file.append(&[&[1; 192]]).unwrap();
        assert_eq!(meter.used(), 8192);
        let vital = files.create(Path::new("/store/MANIFEST")).unwrap();
        vital.append(&[&vec![1; RESERVE_BYTES as usize]]).unwrap();
        assert!(vital.append(&[&[1]]).unwrap_err().is_exhausted());
        assert_eq!(meter.used(), limit);
        drop(file);
        files.remove(Path::new("/store/a")).unwrap();
        vital.append(&[&[1]]).unwrap();
    }
    /// Method: a recycling that fails leaves the file with either name; whoever wants to be rid of it removes both, as often as it takes.
    #[test]
    fn a_file_that_could_not_be_recycled_is_counted_until_it_goes() {
        for at in 0..3 {
            let disk = SimDisk::new();
            let (files, meter) = metered(&disk, 1 << 20);
            let (old, new) = (Path::new("/store/a"), Path::new("/store/b"));
            files.create(old).unwrap().append(&[&[1; 5000]]).unwrap();
            disk.fail_at(disk.op_count() + at, Fault::Eio);
            let recycled = files.recycle(old, new).is_ok();
            assert_eq!((meter.used(), allocated(&disk)), (8192, 8192), "{recycled}, operation {at}");
            for path in [old, new] {
                let _ = files.remove(path);
            }
            assert_eq!((meter.used(), allocated(&disk)), (0, 0), "operation {at}");
        }
    }

    #[test]
    fn a_file_that_somebody_else_removed_is_counted_until_that_is_noticed() {
        let disk = SimDisk::new();
        let (files, meter) = metered(&disk, 1 << 20);
        let path = Path::new("/store/a");
        files.create(path).unwrap().append(&[&[1; 5000]]).unwrap();
        disk.env().files.remove(path).unwrap();
        files.remove(path).unwrap_err();
        assert_eq!(meter.used(), 0);
    }

    fn with_ballast(disk: &SimDisk, limit: u64, ballast_bytes: u64) -> (Arc<Metered>, Arc<Meter>) {
        let files = disk.env().files;
        files.create_dir_all(Path::new("/store")).unwrap();
        let need = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
            Some("manifest") => Need::Vital,
            Some("log") => Need::Log,
            _ => Need::Work,
        };
        let limits = Limits { bytes: limit, ballast_bytes, ballast_name: "ballast".into(), need };
        let (files, meter) = Metered::over(files, Path::new("/store"), &limits).unwrap();
        meter.begin_ballast();
        meter.keep_ballast();
        (files, meter)
    }

    /// What is left on the disk.
    fn left(disk: &SimDisk) -> u64 {
        disk.env().files.space(Path::new("/")).unwrap().available
    }

    /// Appends blocks until there is no room; how many there are.
    fn fill(file: &dyn AppendFile) -> u64 {
        while file.append(&[&[1; 4096]]).is_ok() {}
        assert_eq!(file.len() % 4096, 0, "what failed is not there in part");
        file.len() / 4096
    }

    /// Goal: on a disk that others have filled, logs leave half of what is kept, work leaves a part of that, and what says that files are gone has the
    /// rest; what is kept counts as free, and comes back as soon as there is room.
    #[test]
    fn what_is_kept_goes_to_those_whom_it_is_kept_for() {
        let disk = SimDisk::new();
        disk.set_capacity(Some(64 * 16 * 4096));
        let (files, meter) = with_ballast(&disk, u64::MAX, 1 << 30);
        let kept = 64 * 4096;
        assert_eq!((meter.ballast_bytes(), meter.used()), (kept, 0));
        assert_eq!(left(&disk), 64 * 16 * 4096 - kept);
        disk.set_capacity(Some(kept));
        assert_eq!((left(&disk), files.space(Path::new("/store")).unwrap().available), (0, kept));
        let create = |name: &str| files.create(&Path::new("/store").join(name)).unwrap();
        let (log, work, vital) = (create("log"), create("table"), create("manifest"));
        assert_eq!((fill(&*log), fill(&*work), fill(&*vital)), (30, 30, 4));
        assert_eq!((meter.used(), allocated(&disk), left(&disk)), (kept, kept, 0));
        meter.keep_ballast();
        assert_eq!(allocated(&disk), kept, "there is no room");
        drop(log);
        files.remove(Path::new("/store/log")).unwrap();
        meter.keep_ballast();
        let written = 34 * 4096;
        assert_eq!((meter.used(), allocated(&disk), left(&disk)), (written, kept - 4 * 4096, 4 * 4096));
        meter.note_vital(10 * 4096);
        let log = create("log");
        assert_eq!((fill(&*log), fill(&*work)), (4, 30 + 16));
        drop(log);
        files.remove(Path::new("/store/log")).unwrap();
        disk.set_capacity(Some(8 << 20));
        meter.keep_ballast();
        assert_eq!(allocated(&disk), meter.used() + kept);
        disk.set_capacity(Some(1 << 30));
        meter.end_ballast();
        assert_eq!(allocated(&disk), meter.used(), "there is plenty");
    }

    #[test]
    fn nothing_is_kept_where_there_is_plenty_and_what_is_left_behind_was_needed() {
        let disk = SimDisk::new();
        let (_files, meter) = with_ballast(&disk, u64::MAX, 1 << 20);
        assert_eq!(allocated(&disk), 0);
        disk.set_capacity(Some(200 << 20));
        meter.keep_ballast();
        assert_eq!((allocated(&disk), meter.used()), (0, 0));
        disk.set_capacity(Some(60 << 20));
        meter.keep_ballast();
        assert_eq!((allocated(&disk), meter.used()), (1 << 20, 0));
        meter.end_ballast();
        meter.keep_ballast();
        assert_eq!(allocated(&disk), 1 << 20, "it is short, and nobody's any more");
        let disk = SimDisk::new();
        let (_files, meter) = with_ballast(&disk, u64::MAX, 0);
        disk.set_capacity(Some(1 << 20));
        meter.keep_ballast();
        assert_eq!((allocated(&disk), meter.ballast_bytes()), (0, 0));
    }

    /// Goal: what a process left behind is the next one's, if it is what was asked for.
    #[test]
    fn what_was_left_behind_is_taken_over() {
        let disk = SimDisk::new();
        disk.set_capacity(Some(64 * 16 * 4096));
        let kept = 64 * 4096;
        drop(with_ballast(&disk, u64::MAX, 1 << 30));
        assert_eq!(allocated(&disk), kept);
        let limits = |ballast_bytes| Limits {
            bytes: u64::MAX,
            ballast_bytes,
            ballast_name: "ballast".into(),
            need: |_| Need::Work,
        };
        let dir = Path::new("/store");
        let over = |ballast_bytes| Metered::over(disk.env().files, dir, &limits(ballast_bytes)).unwrap();
        let (files, meter) = over(kept);
        meter.take_over_ballast();
        disk.set_capacity(Some(kept));
        assert_eq!((meter.used(), files.space(dir).unwrap().available), (0, kept));
        assert_eq!(fill(&*files.create(&dir.join("table")).unwrap()), 60);
        assert_eq!((meter.used(), allocated(&disk)), (60 * 4096, kept));
        files.remove(&dir.join("table")).unwrap();
        let (_files, less) = over(4096);
        less.take_over_ballast();
        assert_eq!((less.used(), allocated(&disk)), (0, 0), "it is longer than it should be");
    }

    /// Goal: within a limit of the user's, what is kept takes nothing from anybody.
    #[test]
    fn what_is_kept_gives_way_within_the_limit() {
        let disk = SimDisk::new();
        disk.set_capacity(Some(4 << 20));
        let (files, meter) = with_ballast(&disk, 2 << 20, 1 << 20);
        assert_eq!((allocated(&disk), meter.used()), (128 << 10, 0));
        let file = files.create(Path::new("/store/log")).unwrap();
        let within = (2 << 20) - RESERVE_BYTES;
        while file.append(&[&[1; 4096]]).is_ok() {
            assert!(allocated(&disk) <= 2 << 20);
        }
        assert_eq!((file.len(), meter.used(), allocated(&disk)), (within, within, within));
        meter.keep_ballast();
        assert_eq!(allocated(&disk), within);
    }

    /// Goal: how much is kept follows the limit, up to what was asked for.
    #[test]
    fn what_is_kept_follows_a_limit_that_changes() {
        let disk = SimDisk::new();
        disk.set_capacity(Some(40 << 20));
        let (files, meter) = with_ballast(&disk, 4 << 20, 1 << 20);
        let file = files.create(Path::new("/store/log")).unwrap();
        file.append(&[&[1; 1 << 20]]).unwrap();
        // It is short for each of them.
        disk.set_capacity(Some(8 << 20));
        let set = |limit: u64| {
            meter.set_limit(limit);
            let at_once = allocated(&disk) - (1 << 20);
            meter.keep_ballast();
            assert_eq!((meter.used(), allocated(&disk) - (1 << 20)), (1 << 20, meter.ballast_bytes()), "{limit}");
            (at_once, meter.ballast_bytes())
        };
        const KIB: u64 = 1 << 10;
        assert_eq!(set(4 << 20), (0, 256 * KIB));
        assert_eq!(set(u64::MAX), (256 * KIB, 1024 * KIB));
        assert_eq!(set(8 << 20), (512 * KIB, 512 * KIB));
        assert_eq!(set(2 << 20), (128 * KIB, 128 * KIB));
        assert_eq!(set(16 << 20), (128 * KIB, 1024 * KIB));
        assert_eq!(set(1 << 40), (1024 * KIB, 1024 * KIB));
    }

    /// Goal: of a limit that is about to rise, only vital files have what is more.
    #[test]
    fn a_limit_that_is_about_to_rise_is_that_of_vital_files() {
        let disk = SimDisk::new();
        let (files, meter) = with_ballast(&disk, 1 << 20, 0);
        let create = |name: &str| files.create(&Path::new("/store").join(name)).unwrap();
        let (work, vital) = (create("table"), create("manifest"));
        let blocks = |bytes: u64| bytes / 4096;
        assert_eq!((fill(&*work), fill(&*vital)), (blocks((1 << 20) - RESERVE_BYTES), blocks(RESERVE_BYTES)));
        meter.set_vital_limit(2 << 20);
        assert_eq!((fill(&*work), meter.limit()), (blocks((1 << 20) - RESERVE_BYTES), (1 << 20) - RESERVE_BYTES));
        assert_eq!(fill(&*vital), blocks((1 << 20) + RESERVE_BYTES));
        vital.truncate(RESERVE_BYTES).unwrap();
        meter.set_limit(1 << 20);
        assert_eq!(fill(&*vital), blocks(RESERVE_BYTES));
        meter.set_limit(2 << 20);
        assert_eq!(fill(&*work), blocks((2 << 20) - 2 * RESERVE_BYTES));
    }
}
