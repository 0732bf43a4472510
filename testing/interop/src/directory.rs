//! A directory's bytes: to show that a store was left alone, and to copy one before it is written to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::program::fail;

/// Every file directly in `path`, by name, with its bytes.
#[track_caller]
pub fn bytes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    names(path)
        .into_iter()
        .map(|name| {
            let read = fs::read(path.join(&name)).unwrap_or_else(|error| fail(&format!("{name}: {error}")));
            (name, read)
        })
        .collect()
}

/// The names of the files directly in `path`, in order.
#[track_caller]
pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// How many files in `path` have a name that ends with `ending`.
#[track_caller]
pub fn count(path: &Path, ending: &str) -> usize {
    names(path).iter().filter(|name| name.ends_with(ending)).count()
}

/// The files in `path` whose name ends with `ending` and that are not empty.
#[track_caller]
pub fn filled(path: &Path, ending: &str) -> Vec<String> {
    bytes(path)
        .into_iter()
        .filter(|(name, raw)| name.ends_with(ending) && !raw.is_empty())
        .map(|(name, _)| name)
        .collect()
}

/// Copies the files directly in `from` to the new directory `to`.
#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    let copied = fs::create_dir(to)
        .and_then(|()| names(from).iter().try_for_each(|name| fs::copy(from.join(name), to.join(name)).map(|_| ())));
    if let Err(error) = copied {
        fail(&format!("copying {} to {}: {error}", from.display(), to.display()));
    }
}

/// Fails unless `after` is `before`, file by file and byte by byte.
#[track_caller]
pub fn assert_unchanged(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    for (name, raw) in before {
        match after.get(name) {
            None => fail(&format!("{name} is gone")),
            Some(now) if now != raw => fail(&format!("{name} had {} bytes, now {} others", raw.len(), now.len())),
            Some(_) => {}
        }
    }
    if let Some(name) = after.keys().find(|name| !before.contains_key(*name)) {
        fail(&format!("{name} is new"));
    }
}
