//! A file system that knows how much the files of one directory take up, and refuses what would go beyond a limit.
//!
//! - M1: bytes are counted before they are written, in whole blocks, and given back only when the file system has given them
//!   up: what the files occupy never exceeds what is counted, nor that the limit.
//! - M2: small files without which nothing could be given up any more, those that `is_vital` names, may use the last
//!   [`RESERVE_BYTES`]; others may not.
//!
//! Other directories are nobody's concern here. Cost: of an append within blocks that are counted already, one atomic load.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{
    Access, AppendFile, DirEntry, Error, FileKind, FileSystem, Lock, Metadata, ReadFile, Result, Space, Window,
};

/// What file systems hand out at least.
const BLOCK_BYTES: u64 = 4096;

/// See M2.
pub const RESERVE_BYTES: u64 = 128 << 10;

/// How much the files take up.
#[derive(Debug)]
pub struct Meter {
    used: AtomicU64,
    limit: u64,
    is_vital: fn(&Path) -> bool,
}

impl Meter {
    /// Bytes that the files take up, or are about to.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// What they may take up before none but vital ones can grow.
    pub fn limit(&self) -> u64 {
        if self.limit == u64::MAX { u64::MAX } else { self.limit.saturating_sub(RESERVE_BYTES) }
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
        meter.used.fetch_add(bytes, Ordering::AcqRel);
        Arc::new(Self { meter: meter.clone(), bytes: Mutex::new(bytes) })
    }

    /// Makes it `bytes`, whatever it was, once they are known.
    fn set(&self, bytes: u64) {
        let mut held = self.bytes.lock();
        self.meter.used.fetch_add(bytes.saturating_sub(*held), Ordering::AcqRel);
        self.meter.used.fetch_sub(held.saturating_sub(bytes), Ordering::AcqRel);
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
        let most = if (self.meter.is_vital)(path) { self.meter.limit } else { self.meter.limit() };
        let fits = |used: u64| used.checked_add(more).filter(|&used| used <= most);
        if self.meter.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_err() {
            let reason = format!("the files in the directory may take up {} bytes", self.meter.limit);
            return Err(Error::new("appending to", path, std::io::Error::new(std::io::ErrorKind::StorageFull, reason)));
        }
        *held = wanted;
        Ok(before)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(*self.bytes.get_mut(), Ordering::AcqRel);
    }
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
    /// Counts what lies in `dir` now and what comes. `limit` bytes may be there; `None` only counts.
    ///
    /// # Errors
    /// `dir` could not be listed.
    pub fn over(
        files: Arc<dyn FileSystem>,
        dir: &Path,
        limit: Option<u64>,
        is_vital: fn(&Path) -> bool,
    ) -> Result<(Arc<Self>, Arc<Meter>)> {
        let meter = Arc::new(Meter { used: AtomicU64::new(0), limit: limit.unwrap_or(u64::MAX), is_vital });
        let mut charges = HashMap::new();
        for entry in files.list(dir)? {
            let path = dir.join(&entry.name);
            match files.metadata(&path) {
                Ok(found) if found.kind == FileKind::File => {
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
        Arc::new(MeteredAppend { file, charge, charged })
    }
}

impl FileSystem for Metered {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.files.absolute(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        let file = self.files.create(path)?;
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
        let left = self.meter.limit().saturating_sub(self.meter.used());
        Ok(if path == self.dir { Space { available: space.available.min(left), ..space } } else { space })
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

    fn set(&self, bytes: u64) {
        self.charge.set(bytes);
        self.charged.store(bytes, Ordering::Relaxed);
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
        self.grow(self.file.len().saturating_add(bytes), || self.file.append(parts))
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

    fn seal(&self) -> Result<()> {
        self.file.seal()?;
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
        Metered::over(files, Path::new("/store"), Some(limit), |path| path.ends_with("MANIFEST")).unwrap()
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
}
