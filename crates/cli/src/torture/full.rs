//! A small file system that is filled up, so that a child finds no room, and emptied again.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use esker::env::Env;

use crate::failure::Failure;
use crate::kind::Kind;

/// A file system with more room than this is nobody's to fill.
const BYTES_MAX: u64 = 2 << 30;
/// Room that a child finds.
const ROOM_BYTES: u64 = 1 << 20;
const PIECE_BYTES: usize = 1 << 20;

/// A directory on it.
#[derive(Debug)]
pub(crate) struct FullDisk {
    dir: PathBuf,
}

impl FullDisk {
    /// In `dir`, which exists and is on a small file system.
    pub(crate) fn new(dir: &Path) -> Result<Self, Failure> {
        let total = space(dir)?.total;
        if total > BYTES_MAX {
            return Err(Failure::new(format_args!(
                "{} is on a file system of {total} bytes; torture fills only those of at most {BYTES_MAX}, as `mount -t tmpfs -o size=64M tmpfs DIR` makes them",
                dir.display()
            )));
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Where stores of these kinds go. None of them is there: an earlier run's holds what this one never wrote.
    pub(crate) fn new_stores(&self, kinds: &[Kind]) -> Result<Vec<PathBuf>, Failure> {
        let paths = kinds.iter().map(|&kind| self.dir.join(format!("esker-torture-{}", super::name(kind))));
        let refuse_used = |path: PathBuf| {
            if path.symlink_metadata().is_err() {
                return Ok(path);
            }
            let path = path.display();
            Err(Failure::new(format_args!(
                "{path} is there: an earlier run found something wrong, or was ended; remove {path} to start anew"
            )))
        };
        paths.map(refuse_used).collect()
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("esker-torture-ballast")
    }

    /// Takes up all room but a little.
    pub(crate) fn fill(&self) -> Result<(), Failure> {
        let path = self.ballast();
        let failed = |error: &std::io::Error| Failure::io("filling the disk with", &path, error);
        let mut left = space(&self.dir)?.available.saturating_sub(ROOM_BYTES);
        let mut file = File::create(&path).map_err(|error| failed(&error))?;
        let piece = vec![0x5a; PIECE_BYTES];
        while left > 0 {
            let count = piece.len().min(left as usize);
            match file.write_all(piece.get(..count).unwrap_or_default()) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                done => done.map_err(|error| failed(&error))?,
            }
            left -= count as u64;
        }
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn empty(&self) -> Result<(), Failure> {
        let path = self.ballast();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("removing", &path, &error)),
            _ => Ok(()),
        }
    }
}

fn space(dir: &Path) -> Result<esker::env::Space, Failure> {
    Env::os().files.space(dir).map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_an_earlier_run_has_left_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FullDisk { dir: dir.path().to_owned() };
        let kinds = [Kind::Db, Kind::Cask];
        let made = disk.new_stores(&kinds).unwrap();
        assert_eq!(made, ["db", "cask"].map(|kind| dir.path().join(format!("esker-torture-{kind}"))));
        std::fs::create_dir(&made[1]).unwrap();
        let refused = disk.new_stores(&kinds).unwrap_err().to_string();
        assert!(refused.contains(&format!("remove {}", made[1].display())), "{refused}");
        disk.new_stores(&[Kind::Db]).unwrap();
    }
}
