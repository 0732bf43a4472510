//! After an import: every key is read from the store, every file once more from the directory, and both are compared.

use std::time::{Duration, Instant};

use super::ahead::{Stamp, Taken, read_ahead};
use super::target::Target;
use super::tree::Tree;
use crate::encoding::escaped;
use crate::failure::{Failure, one_line};
use crate::progress::Progress;

/// Differences that are named; the others are counted.
const NAMED_MAX: usize = 100;

/// What reading back found.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    /// Keys that have the bytes of their files, and the bytes of these keys and values.
    pub(crate) equal: u64,
    pub(crate) bytes: u64,
    /// Keys whose files changed or vanished since they were imported, so that there is nothing to compare with.
    pub(crate) changed: u64,
    /// Keys that are not there any more, and whose time may be over.
    pub(crate) expired: u64,
    /// Keys that do not have the bytes they were given.
    pub(crate) differing: u64,
    /// The first of them, and what is wrong, a line each.
    pub(crate) named: Vec<String>,
    pub(crate) time: Duration,
}

/// Reads back the files that have a stamp, of an import that began at `begun`.
pub(crate) fn read_back(
    target: &Target,
    begun: Instant,
    prefix: &[u8],
    tree: &Tree,
    stamps: &[Option<Stamp>],
) -> Result<ReadBack, Failure> {
    let progress = Progress::begin("reading back", tree.bytes);
    let begin = Instant::now();
    let mut found = ReadBack::default();
    let mut key = prefix.to_vec();
    std::thread::scope(|scope| {
        for taken in read_ahead(scope, tree) {
            let Some(stamp) = stamps.get(taken.index).copied().flatten() else { continue };
            key.truncate(prefix.len());
            key.extend_from_slice(tree.relative(taken.index));
            let bytes = found.compare(target, begun, &key, &taken, stamp);
            progress.advance(bytes);
        }
    });
    found.time = begin.elapsed();
    Ok(found)
}

impl ReadBack {
    /// Returns how many bytes of the file were compared.
    fn compare(&mut self, target: &Target, begun: Instant, key: &[u8], taken: &Taken, stamp: Stamp) -> u64 {
        let compared = target.get(key, |value| match value {
            Some(value) => self.compare_value(key, value, taken, stamp),
            None if target.may_have_expired(begun) => self.expire(),
            None => self.differ(key, "the store does not have it"),
        });
        compared.unwrap_or_else(|error| self.differ(key, &error.to_string()))
    }

    fn compare_value(&mut self, key: &[u8], value: &[u8], taken: &Taken, stamp: Stamp) -> u64 {
        match &taken.content {
            Ok(content) if *content.bytes == *value => {
                self.equal += 1;
                self.bytes += (key.len() + value.len()) as u64;
                return value.len() as u64;
            }
            Ok(content) if content.stamp == stamp => {
                let (stored, read) = (value.len(), content.bytes.len());
                return self.differ(key, &format!("the store has other bytes than the file ({stored}, {read} bytes)"));
            }
            Ok(_) | Err(_) => self.changed += 1,
        }
        0
    }

    fn expire(&mut self) -> u64 {
        self.expired += 1;
        0
    }

    fn differ(&mut self, key: &[u8], reason: &str) -> u64 {
        self.differing += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(one_line(&format!("{}: {reason}", escaped(key))));
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use esker::{Cask, CaskOptions, Db, Options};

    use super::*;

    fn stamps_of(tree: &Tree) -> Vec<Option<Stamp>> {
        std::thread::scope(|scope| {
            read_ahead(scope, tree).iter().map(|taken| Some(taken.content.unwrap().stamp)).collect()
        })
    }

    #[test]
    fn a_value_that_is_not_its_files_is_named_unless_the_file_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (store, root) = (dir.path().join("store"), dir.path().join("tree"));
        std::fs::create_dir(&root).unwrap();
        for name in ["changed", "equal", "gone", "left-out", "missing", "other"] {
            std::fs::write(root.join(name), name).unwrap();
        }
        let tree = Tree::walk(&root, &store).unwrap();
        let mut stamps = stamps_of(&tree);
        stamps[3] = None;
        let db = Db::open(&store, Options { create_if_missing: true, ..Options::default() }).unwrap();
        let options = CaskOptions { create_if_missing: true, ..CaskOptions::default() };
        let cask = Cask::open(dir.path().join("cask"), options).unwrap();
        for (key, value) in [("p/changed", "changed"), ("p/equal", "equal"), ("p/gone", "gone"), ("p/other", "0ther")] {
            db.put(key, value).unwrap();
            cask.put(key, value).unwrap();
        }
        std::fs::write(root.join("changed"), "changed since").unwrap();
        std::fs::remove_file(root.join("gone")).unwrap();

        for target in [Target::Db { family: db.default_column_family(), db }, Target::Cask(cask)] {
            let found = read_back(&target, Instant::now(), b"p/", &tree, &stamps).unwrap();
            assert_eq!((found.equal, found.bytes, found.changed, found.differing), (1, 12, 2, 2));
            let other = "p/other: the store has other bytes than the file (5, 5 bytes)";
            assert_eq!(found.named, ["p/missing: the store does not have it", other]);
        }
    }

    #[test]
    fn a_key_that_may_have_expired_is_counted_and_no_difference() {
        for (seconds, expected) in [(1, (1, 0)), (1000, (0, 1))] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("tree");
            std::fs::create_dir(&root).unwrap();
            std::fs::write(root.join("gone"), "").unwrap();
            let tree = Tree::walk(&root, &dir.path().join("cask")).unwrap();
            let default_ttl = Some(Duration::from_secs(seconds));
            let options = CaskOptions { create_if_missing: true, default_ttl, ..CaskOptions::default() };
            let target = Target::Cask(Cask::open(dir.path().join("cask"), options).unwrap());
            let found = read_back(&target, Instant::now(), b"", &tree, &stamps_of(&tree)).unwrap();
            assert_eq!((found.expired, found.differing), expected, "{seconds}");
        }
    }
}
