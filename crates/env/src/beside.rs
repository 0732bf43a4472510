//! A directory some of whose files lie in another one, on another device perhaps: whoever uses it need not know.
//!
//! - D1: a file of the kind that lies elsewhere is made there. One that is in the directory itself, from before, is found there, as long as it is.
//! - D2: a listing has the files of both. Two of one name are an error: nobody can say which is meant.
//! - D3: what makes names of the directory durable makes those of both so.
//!
//! Cost: a look for the file in the directory before each call that names one of that kind; nothing for reads and appends.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::durable;
use crate::{AppendFile, DirEntry, Error, FileSystem, Lock, Metadata, ReadFile, Result, Space};

/// Read and written at once by who moves a file from device to device.
const PIECE_BYTES: usize = 1 << 20;

/// See the module's head.
#[derive(Debug)]
pub struct Beside {
    files: Arc<dyn FileSystem>,
    dir: PathBuf,
    elsewhere: PathBuf,
    lies_elsewhere: fn(&str) -> bool,
}

impl Beside {
    /// `dir`, whose files that `lies_elsewhere` names are in the directory `elsewhere`. Both paths are absolute.
    pub fn over(
        files: Arc<dyn FileSystem>,
        dir: &Path,
        elsewhere: &Path,
        lies_elsewhere: fn(&str) -> bool,
    ) -> Arc<dyn FileSystem> {
        Arc::new(Self { files, dir: dir.to_owned(), elsewhere: elsewhere.to_owned(), lies_elsewhere })
    }

    /// Where a file of that kind is made; `None` of any other.
    fn place_elsewhere(&self, path: &Path) -> Option<PathBuf> {
        let name = path.file_name()?.to_str().filter(|name| (self.lies_elsewhere)(name))?;
        (path.parent() == Some(&*self.dir)).then(|| self.elsewhere.join(name))
    }

    /// Where the file is that goes by `path`, or would be made (D1).
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let Some(elsewhere) = self.place_elsewhere(path) else { return Ok(path.to_owned()) };
        match self.files.metadata(path) {
            Ok(_) => Ok(path.to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(elsewhere),
            Err(error) => Err(error),
        }
    }

    /// Moves a file, by a copy that is durable before it goes.
    fn carry(&self, from: &Path, to: &Path) -> Result<()> {
        let (source, copy) = (self.files.open(from)?, self.files.create(to)?);
        let (mut piece, mut at, len) = (vec![0; PIECE_BYTES], 0, source.len()?);
        while at < len {
            let bytes = (len - at).min(PIECE_BYTES as u64);
            let part = piece.get_mut(..bytes as usize).unwrap_or_default();
            source.read_exact_at(at, part)?;
            copy.append(&[part])?;
            at += bytes;
        }
        copy.seal()?;
        copy.sync()?;
        if let Some(parent) = durable::parent(to) {
            self.files.sync_dir(parent)?;
        }
        self.files.remove(from)
    }
}

impl FileSystem for Beside {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.files.absolute(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        self.files.create(&self.place(path)?)
    }

    fn reopen(&self, path: &Path, len: u64) -> Result<Arc<dyn AppendFile>> {
        self.files.reopen(&self.place(path)?, len)
    }

    fn recycle(&self, from: &Path, to: &Path) -> Result<Arc<dyn AppendFile>> {
        let from = self.place(from)?;
        let to = self.place(to)?;
        if from.parent() == to.parent() {
            return self.files.recycle(&from, &to);
        }
        // From before, and of another file system perhaps: all that it is good for is its room there.
        let file = self.files.create(&to)?;
        self.files.sync_dir(&self.elsewhere)?;
        self.files.remove(&from)?;
        Ok(file)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.files.open(&self.place(path)?)
    }

    fn list(&self, dir: &Path) -> Result<Vec<DirEntry>> {
        let mut entries = self.files.list(dir)?;
        if dir != self.dir {
            return Ok(entries);
        }
        let others = self.files.list(&self.elsewhere)?;
        entries.extend(others.into_iter().filter(|entry| (self.lies_elsewhere)(&entry.name)));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        match entries.iter().zip(entries.iter().skip(1)).find(|(one, other)| one.name == other.name) {
            Some((both, _)) => {
                let (name, elsewhere) = (&both.name, self.elsewhere.display());
                let reason = format!(
                    "there is a file {name} here and in {elsewhere}; take away the one that is not the store's"
                );
                Err(Error::new("listing", dir, io::Error::new(ErrorKind::InvalidData, reason)))
            }
            None => Ok(entries),
        }
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.files.metadata(&self.place(path)?)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.files.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let place = self.place(from)?;
        if place == from {
            return self.files.rename(from, to);
        }
        if let Some(to) = self.place_elsewhere(to) {
            return self.files.rename(&place, &to);
        }
        match self.files.rename(&place, to) {
            // Another device has it by a copy only.
            Err(error) if error.kind() == ErrorKind::CrossesDevices => self.carry(&place, to),
            renamed => renamed,
        }
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.link(&self.place(from)?, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.remove(&self.place(path)?)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.files.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if dir == self.dir {
            self.files.sync_dir(&self.elsewhere)?;
        }
        self.files.sync_dir(dir)
    }

    fn punch_hole(&self, path: &Path, range: Range<u64>) -> Result<()> {
        self.files.punch_hole(&self.place(path)?, range)
    }

    fn punch_holes(&self, path: &Path, ranges: &[Range<u64>]) -> Result<()> {
        self.files.punch_holes(&self.place(path)?, ranges)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.files.space(path)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimDisk, Survivors};

    fn write(files: &dyn FileSystem, path: &str, bytes: &[u8]) {
        let file = files.create(Path::new(path)).unwrap();
        file.append(&[bytes]).unwrap();
        file.sync().unwrap();
    }

    fn names(files: &dyn FileSystem, dir: &str) -> Vec<String> {
        files.list(Path::new(dir)).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    fn read(files: &dyn FileSystem, path: &str) -> Vec<u8> {
        files.read(Path::new(path)).unwrap()
    }

    /// Goal: D1 to D3: who goes by the directory finds, makes, renames and removes files of both, and names that it made durable are.
    #[test]
    fn files_lie_beside_and_go_by_the_directory() {
        let disk = SimDisk::new();
        let plain = disk.env().files;
        for dir in ["/dir", "/beside"] {
            plain.create_dir_all(Path::new(dir)).unwrap();
        }
        plain.sync_dir(Path::new("/")).unwrap();
        write(&*plain, "/dir/1.log", b"from before");
        write(&*plain, "/beside/unknown", b"not ours");
        let files = Beside::over(plain.clone(), Path::new("/dir"), Path::new("/beside"), |name| name.ends_with(".log"));
        write(&*files, "/dir/2.log", b"two");
        write(&*files, "/dir/table", b"table");
        assert!(files.create(Path::new("/dir/1.log")).is_err() && files.create(Path::new("/dir/2.log")).is_err());
        assert_eq!(names(&*files, "/dir"), ["1.log", "2.log", "table"]);
        assert_eq!(
            (names(&*plain, "/dir"), names(&*plain, "/beside")),
            (vec!["1.log".to_owned(), "table".to_owned()], vec!["2.log".to_owned(), "unknown".to_owned()])
        );
        assert_eq!(
            (read(&*files, "/dir/1.log"), read(&*files, "/dir/2.log")),
            (b"from before".to_vec(), b"two".to_vec())
        );
        assert_eq!(files.metadata(Path::new("/dir/2.log")).unwrap().len, 3);
        // Each becomes another log where that belongs, of which nobody reads the old bytes.
        for (from, to) in [("/dir/2.log", "/dir/3.log"), ("/dir/1.log", "/dir/4.log")] {
            files.recycle(Path::new(from), Path::new(to)).unwrap().seal().unwrap();
        }
        assert_eq!(
            (names(&*plain, "/dir"), names(&*plain, "/beside")),
            (vec!["table".to_owned()], vec!["3.log".to_owned(), "4.log".to_owned(), "unknown".to_owned()])
        );
        files.rename(Path::new("/dir/3.log"), Path::new("/dir/5.log")).unwrap();
        files.sync_dir(Path::new("/dir")).unwrap();
        let after = disk.after_power_loss(Survivors::Nothing).env().files;
        assert_eq!(
            (names(&*after, "/dir"), names(&*after, "/beside")),
            (vec!["table".to_owned()], vec!["4.log".to_owned(), "5.log".to_owned(), "unknown".to_owned()])
        );
        files.remove(Path::new("/dir/5.log")).unwrap();
        assert_eq!(names(&*files, "/dir"), ["4.log", "table"]);
        // Put aside, where it is another's by name.
        files.create_dir_all(Path::new("/dir/lost")).unwrap();
        files.rename(Path::new("/dir/4.log"), Path::new("/dir/lost/4.log")).unwrap();
        assert_eq!(
            (names(&*plain, "/beside"), names(&*plain, "/dir/lost")),
            (vec!["unknown".to_owned()], vec!["4.log".to_owned()])
        );
        write(&*plain, "/dir/6.log", b"here");
        write(&*plain, "/beside/6.log", b"and there");
        let error = files.list(Path::new("/dir")).unwrap_err();
        assert!(error.to_string().contains("6.log") && error.to_string().contains("/beside"), "{error}");
    }

    /// Goal: what goes to another device is there, durably, before it is gone here.
    #[test]
    fn what_is_carried_is_durable_before_it_goes() {
        let bytes: Vec<u8> = (0..PIECE_BYTES as u32 + 77).map(|n| (n % 251) as u8).collect();
        let mut died = 0;
        loop {
            let disk = SimDisk::new();
            let plain = disk.env().files;
            for dir in ["/dir", "/beside"] {
                plain.create_dir_all(Path::new(dir)).unwrap();
            }
            plain.sync_dir(Path::new("/")).unwrap();
            let file = plain.create(Path::new("/beside/1.log")).unwrap();
            file.append(&[&bytes]).unwrap();
            file.sync().unwrap();
            plain.sync_dir(Path::new("/beside")).unwrap();
            let (dir, elsewhere) = (PathBuf::from("/dir"), PathBuf::from("/beside"));
            let beside = Beside { files: plain, dir, elsewhere, lies_elsewhere: |name| name.ends_with(".log") };
            disk.die_after(disk.op_count() + died);
            let carried = beside.carry(Path::new("/beside/1.log"), Path::new("/dir/lost.log"));
            let after = disk.after_power_loss(Survivors::Nothing).env().files;
            let is_there = |path: &str| after.read(Path::new(path)).is_ok_and(|found| found == bytes);
            assert!(is_there("/beside/1.log") || is_there("/dir/lost.log"), "died at {died}");
            if carried.is_ok() {
                assert!(is_there("/dir/lost.log") && died > 4);
                return;
            }
            died += 1;
        }
    }
}
