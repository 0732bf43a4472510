//! Directories of other engines: refused by name before anything is written, by a repair, too.
//!
//! Some keep what Esker does not read beside RocksDB's own files, and no manifest says so; others call their files by RocksDB's names. A
//! store of theirs is healthy, and must neither pass for a damaged one nor be mended as such.
//!
//! Cost: two listings, as a rule, and one that finds nothing.

use std::path::Path;

use esker_env::Env;
use esker_format::file_name::FileName;

use crate::{Error, ErrorKind, Result};

/// Where RocksDB's stacked BlobDB (`utilities/blob_db`) keeps its files, unless it is told otherwise.
const STACKED_BLOB_DIR: &str = "blob_dir";
/// Where Titan, a plugin of RocksDB's, keeps large values and a manifest of its own, unless it is told otherwise (`dirname`). Tables that point
/// there say so, too (`table/open.rs`).
const TITAN_DIR: &str = "titandb";
/// Badger's manifest; a Cask's has this name, too.
const BADGER_MANIFEST: &str = "MANIFEST";
const BADGER_MAGIC: [u8; 4] = *b"Bdgr";
/// The keys that Badger's files are encrypted with.
const BADGER_KEYS: &str = "KEYREGISTRY";

/// Refuses a directory of an engine whose files Esker does not read.
///
/// # Errors
/// `UnsupportedFormat` with the engine's name and the path that tells.
pub(crate) fn refuse(env: &Env, dir: &Path) -> Result<()> {
    for name in names_in(env, dir)? {
        let reason = if is_badgers(env, dir, &name)? {
            "this is a store of Badger's, whose tables have RocksDB's names and another format; open it with Badger"
        } else if is_pebbles_marker(&name) {
            "this is a store of a newer Pebble, which has no CURRENT and a format of its own; open it with Pebble"
        } else {
            continue;
        };
        return Err(unsupported(reason, &dir.join(name)));
    }
    refuse_stacked_blobs(env, dir)?;
    refuse_titan(env, dir)
}

fn unsupported(reason: &str, path: &Path) -> Error {
    Error::new(ErrorKind::UnsupportedFormat, reason).with_path(path)
}

/// The names in a directory; none if it is not there, or may not be listed: it is somebody else's then, or whoever opens it says why.
fn names_in(env: &Env, dir: &Path) -> Result<Vec<String>> {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match env.files.list(dir) {
        Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Badger's manifest, keys, or value logs (`000001.vlog`).
fn is_badgers(env: &Env, dir: &Path, name: &str) -> Result<bool> {
    let is_value_log = name.strip_suffix(".vlog").is_some_and(is_number);
    if name != BADGER_MANIFEST {
        return Ok(is_value_log || name == BADGER_KEYS);
    }
    use std::io::ErrorKind::{IsADirectory, NotFound};
    let mut magic = [0; BADGER_MAGIC.len()];
    let read = env.files.open(&dir.join(name)).and_then(|file| file.read_at(0, &mut magic));
    match read {
        Ok(got) => Ok(got == magic.len() && magic == BADGER_MAGIC),
        // Nobody's, or a Cask that is being made.
        Err(error) if matches!(error.kind(), NotFound | IsADirectory) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// `marker.manifest.000001.MANIFEST-000003`: in place of CURRENT, a name that says it (Pebble's `vfs/atomicfs`).
fn is_pebbles_marker(name: &str) -> bool {
    let mut parts = name.splitn(4, '.');
    parts.next() == Some("marker")
        && parts.next().is_some()
        && parts.next().is_some_and(is_number)
        && parts.next().is_some()
}

fn is_number(digits: &str) -> bool {
    digits.len() >= 6 && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// RocksDB's older, stacked BlobDB: its values lie in files that Esker does not read, and no manifest names them.
fn refuse_stacked_blobs(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(STACKED_BLOB_DIR);
    let names = names_in(env, &path)?;
    // With a manifest, it is a store of its own.
    if has(&names, |name| matches!(name, FileName::Current | FileName::Manifest(_)))
        || !has(&names, |name| matches!(name, FileName::Blob(_)))
    {
        return Ok(());
    }
    let reason = "the values of this store are RocksDB's stacked BlobDB's, in files of their own format; copy them with RocksDB into a store \
                  with enable_blob_files";
    Err(unsupported(reason, &path))
}

/// Titan: large values, and a manifest that names their files.
fn refuse_titan(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(TITAN_DIR);
    let names = names_in(env, &path)?;
    // With what Titan has none of there, it is a store of its own.
    let is_of_a_store = |name: &FileName| {
        matches!(name, FileName::Options(_) | FileName::Identity | FileName::Wal(_) | FileName::Table(_))
    };
    if has(&names, is_of_a_store) || !has(&names, |name| matches!(name, FileName::Current | FileName::Manifest(_))) {
        return Ok(());
    }
    let reason = "the large values of this store are Titan's, in files of its own format; have Titan bring them back (blob_run_mode=kFallback, \
                  and a compaction of everything), and then remove this directory";
    Err(unsupported(reason, &path))
}

fn has(names: &[String], is_it: impl Fn(&FileName) -> bool) -> bool {
    names.iter().filter_map(|name| FileName::parse(name)).any(|name| is_it(&name))
}
