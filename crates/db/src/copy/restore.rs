//! A generation becomes a store again, elsewhere.
//!
//! - R1: what is restored has files of its own, each read back and checked before there is a CURRENT.
//!
//! Cost: reads all files of the generation, writes them, and reads them again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use esker_env::{FileSystem, durable};
use esker_format::file_name::FileName;

use super::said::Said;
use super::target::Target;
use super::{Copied, CopyProgress, Teller};
use crate::options::wal_dir_line;
use crate::version::{current_manifest, recover_from, set_current};
use crate::{Error, ErrorKind, Result};

/// A file of the generation.
struct Part {
    name: String,
    bytes: u64,
    said: Said,
}

/// Makes a store in `to` of the generation in `from`.
pub(super) fn restore(
    files: &dyn FileSystem,
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(CopyProgress),
) -> Result<Copied> {
    let names: BTreeSet<String> = files.list(from)?.into_iter().map(|entry| entry.name).collect();
    let elsewhere = logs_elsewhere(files, from, &names)?;
    if elsewhere.is_some() || names.iter().any(|name| matches!(FileName::parse(name), Some(FileName::Wal(_)))) {
        let place = elsewhere.map_or_else(String::new, |dir| format!(" in {}", dir.display()));
        let reason = format!(
            "the generation was opened for writing since it was made, and has logs of its own{place}: open it, and make a backup of that"
        );
        return Err(Error::new(ErrorKind::Conflict, reason).with_path(from));
    }
    let manifest = current_manifest(files, from)?;
    let recovered = recover_from(files, from, manifest)?;
    let parts = Said::of_store(&recovered).map(|said| part(files, from, &names, said)).collect::<Result<Vec<_>>>()?;
    let bytes = parts.iter().map(|part| part.bytes).sum();
    let mut target = Target::empty(files, to)?;
    let mut teller = Teller::of_bytes(bytes, progress);
    for Part { name, bytes, said } in &parts {
        let (source, path) = (from.join(name), target.begin(name)?);
        durable::copy(files, &source, &path, *bytes, |piece| {
            teller.advance(piece.len() as u64);
            Ok::<_, Error>(())
        })?;
        if let Err(error) = check(files, said, &path) {
            // It is as good as what it was made of.
            return Err(check(files, said, &source).err().unwrap_or(error));
        }
        teller.advance(*bytes);
    }
    let is_small = |name: &&String| matches!(FileName::parse(name), Some(FileName::Identity | FileName::Options(_)));
    let manifest_name = FileName::Manifest(manifest).to_string();
    for name in names.iter().filter(is_small).chain([&manifest_name]) {
        let (source, path) = (from.join(name), target.begin(name)?);
        durable::copy(files, &source, &path, files.metadata(&source)?.len, |_| Ok::<_, Error>(()))?;
        if files.read(&path)? != files.read(&source)? {
            return Err(Error::corruption(&path, 0, "it is not what was written"));
        }
    }
    files.sync_dir(to)?;
    target.begin(&FileName::Temporary(manifest).to_string())?;
    target.will_be_current();
    set_current(files, to, manifest)?;
    let not_removed = target.keep(manifest).into_iter().collect();
    let sequence = recovered.last_sequence.get();
    Ok(Copied { files: parts.len() as u64, bytes, copied_bytes: bytes, sequence, not_removed, ..Copied::default() })
}

/// Where who opened it for writing has its logs, if not in it: a generation is made with none.
fn logs_elsewhere(files: &dyn FileSystem, from: &Path, names: &BTreeSet<String>) -> Result<Option<PathBuf>> {
    let options = |name: &String| match FileName::parse(name) {
        Some(FileName::Options(number)) => Some((number, from.join(name))),
        _ => None,
    };
    let Some((_, newest)) = names.iter().filter_map(options).max() else { return Ok(None) };
    let said = wal_dir_line(&files.read_small(&newest)?);
    Ok(said.filter(|said| !said.as_os_str().is_empty() && said != from))
}

fn part(files: &dyn FileSystem, from: &Path, names: &BTreeSet<String>, said: Said) -> Result<Part> {
    let spellings: Vec<String> = said.names().iter().map(FileName::name).collect();
    match spellings.iter().find(|name| names.contains(*name)) {
        Some(name) => Ok(Part { name: name.clone(), bytes: files.metadata(&from.join(name))?.len, said }),
        None => {
            let name = spellings.first().map_or("", String::as_str);
            Err(Error::corruption(&from.join(name), 0, "the manifest names it, and it is not there"))
        }
    }
}

fn check(files: &dyn FileSystem, said: &Said, path: &Path) -> Result<()> {
    said.check(files.open(path)?, &mut || Ok(()))
        .map(drop)
        .map_err(|error| error.while_doing("checking a file of a backup"))
}
