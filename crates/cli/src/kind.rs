//! Which of the engines a directory belongs to, told by its files; nothing is opened.

use std::fmt;
use std::path::Path;

use clap::ValueEnum;
use esker::{Cask, Error};
use esker_format::cask;
use esker_format::file_name::FileName;
use esker_format::raft::file_name as raft_name;

use crate::failure::Failure;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Keys in order, in RocksDB's files
    Db,
    /// Keys in no order, 20 bytes of memory each, in Esker's own files
    Cask,
    /// Entries and keys of Raft groups, in raft-engine's files
    Raft,
}

impl Kind {
    /// What is in the directory `path`; `None` if that is no store, or cannot be listed: whoever opens it says why. A file or two of
    /// another engine that lie there make it none of that.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (mut has_current, mut has_more_of_a_db, mut other) = (false, false, None);
        for entry in std::fs::read_dir(path).ok()?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match FileName::parse(name) {
                Some(FileName::Current) => has_current = true,
                Some(FileName::Manifest(_) | FileName::Options(_) | FileName::Identity) => has_more_of_a_db = true,
                _ => {}
            }
            if let Some(cask::FileName::Data(_)) = cask::FileName::parse(name) {
                other = Some(Self::Cask);
            }
            if let Some(raft_name::FileName::Log(_)) = raft_name::FileName::parse(name) {
                other = Some(Self::Raft);
            }
        }
        if has_current && names_a_manifest(path) {
            return Some(Self::Db);
        }
        // A new Cask has no data file; one that lost its manifest has nothing else.
        if Cask::is_store(path).is_ok_and(|is_store| is_store) {
            return Some(Self::Cask);
        }
        if has_current && (has_more_of_a_db || other.is_none()) {
            return Some(Self::Db);
        }
        other.filter(|_| !has_more_of_a_db)
    }

    /// What was asked for, which must be what is there; a Db where there is neither.
    pub(crate) fn asked_or_there(asked: Option<Self>, path: &Path) -> Result<Self, Failure> {
        match (asked, Self::of(path)) {
            (Some(asked), Some(there)) if asked != there => {
                let path = path.display();
                Err(Failure::new(format_args!("{path}: this is {there}, and --kind asks for {asked}")))
            }
            (asked, there) => Ok(asked.or(there).unwrap_or(Self::Db)),
        }
    }

    /// That this command does not work on this kind of store, and what does.
    pub(crate) fn refuse(self, path: &Path) -> Error {
        let hint = match self {
            Self::Db => "see `esker help`",
            Self::Cask => "a Cask has keys in no order and no column families",
            Self::Raft => "see `esker raft`",
        };
        Error::invalid_argument(format!("this command does not work on {self}; {hint}")).with_path(path)
    }
}

/// Whether CURRENT says which manifest counts, and that is there.
fn names_a_manifest(store: &Path) -> bool {
    let current = store.join(FileName::Current.to_string());
    // Of anything but a file a read might not end.
    if !current.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 10) {
        return false;
    }
    let text = std::fs::read_to_string(current).unwrap_or_default();
    let named = FileName::parse(text.trim_end_matches('\n'));
    named.is_some_and(|name| matches!(name, FileName::Manifest(_)) && store.join(name.to_string()).exists())
}

/// Whether the directory is a Db that lost its CURRENT.
pub(crate) fn has_files_of_a_db(store: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(store) else { return false };
    let names = entries.flatten().filter_map(|entry| FileName::parse(entry.file_name().to_str()?));
    // Logs alone are enough for a repair.
    names.into_iter().any(|name| name.is_of_a_store() || matches!(name, FileName::Wal(_)))
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Db => "a Db",
            Self::Cask => "a Cask",
            Self::Raft => "a Raft log",
        })
    }
}
