//! Backups of which files rot.

use std::path::{Path, PathBuf};

use esker_env::sim::SimDisk;
use esker_format::checksum::ChecksumKind;

use crate::{Db, ErrorKind, FamilyOptions, Options, Separation};

const COPY: &str = "/copy";

/// A store with a table and a blob file, and a backup of it.
fn scene(checksum: ChecksumKind) -> (SimDisk, Db) {
    let family =
        FamilyOptions { separation: Separation::AtFlush, min_blob_size: 100, checksum, ..FamilyOptions::default() };
    let families = [("default".to_owned(), family)].into();
    let options = Options { create_if_missing: true, background_jobs: 0, families, ..Options::default() };
    let disk = SimDisk::new();
    let db = Db::open_with_env("/store", options, disk.env()).unwrap();
    (0..3u8).for_each(|n| db.put([n], vec![n; 90 + usize::from(n) * 10]).unwrap());
    db.flush().unwrap();
    db.backup(COPY, &mut |_| ()).unwrap();
    (disk, db)
}

/// The file in `dir` whose name ends so, and its bytes.
fn file(disk: &SimDisk, dir: &str, ending: &str) -> (PathBuf, Vec<u8>) {
    let is_it = |path: &PathBuf| path.starts_with(dir) && path.to_string_lossy().ends_with(ending);
    let path = disk.paths().into_iter().find(is_it).unwrap();
    let bytes = disk.file_bytes(&path).unwrap();
    (path, bytes)
}

fn flip(disk: &SimDisk, path: &Path, bytes: &[u8], at: usize) {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x40;
    disk.overwrite(path, bytes);
}

/// Goal: whatever byte rots of a file of a backup, the next backup brings the file anew; where there are no checksums that would tell, it says at
/// least that there is another file, and never that a newer version wrote it.
#[test]
fn a_rotten_file_of_a_backup_is_brought_anew() {
    for (checksum, ending) in
        [(ChecksumKind::Xxh3, ".sst"), (ChecksumKind::Xxh3, ".blob"), (ChecksumKind::None, ".sst")]
    {
        let (disk, db) = scene(checksum);
        let (path, whole) = file(&disk, COPY, ending);
        for at in 0..whole.len() {
            let what = format!("byte {at} of {}, {checksum:?}", path.display());
            flip(&disk, &path, &whole, at);
            match db.backup(COPY, &mut |_| ()) {
                Ok(copied) => {
                    assert_eq!((copied.kept, copied.files), (1, 2), "{what}");
                    assert!(disk.file_bytes(&path).unwrap() == whole, "{what}");
                }
                Err(error) => {
                    let kind = (checksum, error.kind());
                    assert_eq!(kind, (ChecksumKind::None, ErrorKind::Conflict), "{what}: {error}");
                    disk.overwrite(&path, whole.clone());
                }
            }
        }
    }
}

/// Goal: a file that rots while the store has it open is told as damage of the store, and no backup is made of it.
#[test]
fn a_file_that_rots_under_an_open_store_is_told_as_damage() {
    let (disk, db) = scene(ChecksumKind::Xxh3);
    let (path, whole) = file(&disk, "/store", ".blob");
    for at in 0..whole.len() {
        flip(&disk, &path, &whole, at);
        let error = db.backup("/another", &mut |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}");
    }
}
