//! Whether what lies in a directory is what is left of a store at all. Names of tables and logs alone say nothing: other engines call theirs
//! `000001.sst`, too, and an application its diary `20240101.log`. A repair would read nothing of them, put all of them aside, and make an empty store in
//! their place.
//!
//! A file that only such a store has is enough, and so is one that can be read as what its name says; of all others nothing could be kept.
//!
//! Cost: as a rule a listing, else a read of the ends of tables and of what comes first in logs.

use std::path::Path;

use esker_env::FileSystem;
use esker_format::cask;
use esker_format::file_name::FileName;
use esker_format::raft::file_name as raft_name;
use esker_format::rocksdb::blob::{BlobFileHeader, HEADER_BYTES};
use esker_format::rocksdb::table::{FOOTER_BYTES, Footer};
use esker_format::rocksdb::write_batch;
use esker_format::{DecodeError, DecodeErrorKind};
use esker_log::copying;
use esker_log::scan::{RecoveryMode, Scanner};

use super::UNFINISHED;
use crate::{Error, ErrorKind, Result};

/// Refuses a directory with files of a store by their names only.
///
/// # Errors
/// `InvalidArgument`; what reading a file said.
pub(super) fn refuse_strangers(files: &dyn FileSystem, dir: &Path) -> Result<()> {
    let entries = files.list(dir)?;
    if entries.iter().any(|entry| [UNFINISHED, copying::UNFINISHED].contains(&&*entry.name)) {
        return Ok(());
    }
    let names: Vec<FileName> = entries.iter().filter_map(|entry| FileName::parse(&entry.name)).collect();
    let is_telling =
        |name: &FileName| matches!(name, FileName::Manifest(_) | FileName::Options(_) | FileName::Identity);
    if names.iter().any(is_telling) {
        return Ok(());
    }
    let other = entries.iter().find_map(|entry| Some((engine_of(&entry.name)?, &entry.name)));
    // CURRENT is a name that anybody may have given a file.
    let has_current = names.contains(&FileName::Current);
    if has_current && other.is_none() {
        return Ok(());
    }
    let mut doubtful = None;
    for name in &names {
        let path = dir.join(name.to_string());
        let is_known = match name {
            FileName::Table(_) | FileName::LegacyTable(_) => is_table(files, &path)?,
            FileName::Blob(_) => is_blob_file(files, &path)?,
            FileName::Wal(number) => is_log(files, &path, number.get() as u32)?,
            _ => continue,
        };
        if is_known {
            return Ok(());
        }
        doubtful.get_or_insert(name);
    }
    if let (true, Some((engine, name))) = (has_current, other) {
        let reason = format!(
            "holds {name:?}, as {engine} does, and of a Db nothing that can be read but the name CURRENT: move away what is not of this store"
        );
        return Err(Error::invalid_argument(reason).with_path(dir));
    }
    let Some(name) = doubtful else { return Ok(()) };
    let reason = format!(
        "holds {:?}, but nothing in it can be read as a table, a blob file or a log, nor is there a CURRENT, a manifest, an OPTIONS file or an \
         IDENTITY: nothing says that this is a store of Esker's or RocksDB's; open it with what wrote it, or restore a backup",
        name.to_string()
    );
    Err(Error::invalid_argument(reason).with_path(dir))
}

/// Whose file it is, of Esker's other engines.
fn engine_of(name: &str) -> Option<&'static str> {
    match (cask::FileName::parse(name), raft_name::FileName::parse(name)) {
        (Some(cask::FileName::Data(_)), _) => Some("a Cask"),
        (_, Some(raft_name::FileName::Log(_))) => Some("a Raft log"),
        _ => None,
    }
}

/// Whether it may be what was decoded, though Esker lacks what it needs.
fn is_of_its_kind<T>(decoded: std::result::Result<T, DecodeError>) -> bool {
    decoded.map_or_else(|error| error.kind == DecodeErrorKind::Unsupported, |_| true)
}

fn is_table(files: &dyn FileSystem, path: &Path) -> Result<bool> {
    let file = files.open(path)?;
    let file_bytes = file.len()?;
    let Some(start) = file_bytes.checked_sub(FOOTER_BYTES as u64) else { return Ok(false) };
    let mut raw = [0; FOOTER_BYTES];
    file.read_exact_at(start, &mut raw)?;
    Ok(is_of_its_kind(Footer::decode(&raw, file_bytes)))
}

fn is_blob_file(files: &dyn FileSystem, path: &Path) -> Result<bool> {
    let mut raw = [0; HEADER_BYTES];
    let got = files.open(path)?.read_at(0, &mut raw)?;
    Ok(got == raw.len() && is_of_its_kind(BlobFileHeader::decode(&raw)))
}

/// Whether there is a whole batch in it.
fn is_log(files: &dyn FileSystem, path: &Path, number: u32) -> Result<bool> {
    let mut scanner = Scanner::open(files, path, RecoveryMode::SkipCorrupt, true, number)?;
    loop {
        match scanner.next() {
            Ok(Some((_, batch))) if write_batch::records(batch).next().is_some_and(is_of_its_kind) => return Ok(true),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::UnsupportedFormat => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}
