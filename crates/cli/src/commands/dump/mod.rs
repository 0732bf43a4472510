//! `esker dump FILE`

mod blob;
mod cask;
mod manifest;
mod options;
pub(crate) mod raft;
pub(crate) mod report;
mod small;
pub(crate) mod source;
mod table;
mod wal;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use esker_format::cask as cask_name;
use esker_format::file_name::FileName;
use esker_format::raft::{closed, file_name as raft_name};
use esker_format::rocksdb::log::log_number_tag;

use self::report::Report;
use self::source::Source;
use crate::Answer;
use crate::commands::raft::script::KEPT_SUFFIX;
use crate::failure::Failure;
use crate::output::Output;

/// Print what is in one file of a store, with offsets
///
/// Reads write-ahead logs, manifests, tables, blob files, OPTIONS, CURRENT, IDENTITY, files of a Cask and of a Raft log without a store around them. Damage is printed where
/// it is, and what the format lets be found behind it, too; the exit code is 1 then. Long values are shortened, except
/// with --json.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// The file; what it is, its name says
    file: PathBuf,

    /// What the file is, if its name does not say so
    #[arg(long, value_enum)]
    kind: Option<Kind>,

    /// Print keys only; no values, no metadata
    #[arg(long)]
    keys_only: bool,

    /// Print at most so many entries
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,

    /// Print an object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Wal,
    Manifest,
    Table,
    Blob,
    Options,
    Current,
    Identity,
    /// Its name is all it says
    Mark,
    CaskData,
    CaskHint,
    CaskManifest,
    Raft,
    RaftClosed,
}

impl Dump {
    pub(crate) fn run(self, out: &mut Output) -> Result<Answer, Failure> {
        let name = file_name(&self.file);
        let raft_file = raft_file(&self.file);
        let named = name.and_then(kind_of).or(raft_kind(&self.file)).or(cask_kind(&self.file)).or(mark(&self.file));
        // First: of what is no file, or not there, the name need not say anything.
        let source = Source::open(&self.file)?;
        let kind = self.kind.or(named).ok_or_else(|| {
            let path = self.file.display();
            Failure::new(format_args!("{path}: the name does not say what it is; use --kind"))
        })?;
        let mut report = Report::new(out, self.json, self.keys_only, self.limit);
        match kind {
            Kind::Wal => {
                let number = name.and_then(|name| name.number());
                wal::dump(&source, number.map(|number| log_number_tag(number.get())), &mut report)?;
            }
            Kind::Manifest => manifest::dump(&source, &mut report)?,
            Kind::Table => table::dump(&source, &mut report)?,
            Kind::Blob => blob::dump(&source, &mut report)?,
            Kind::Options => options::dump(&source, &mut report)?,
            Kind::Current => small::current(&source, &mut report)?,
            Kind::Identity => small::identity(&source, &mut report)?,
            Kind::Mark => small::mark(&self.file, &source, &mut report)?,
            Kind::CaskData => cask::data(&source, &mut report)?,
            Kind::CaskHint => cask::hint(&source, &mut report)?,
            Kind::CaskManifest => cask::manifest(&source, &mut report)?,
            Kind::Raft => {
                raft::dump(&source, raft::Wanted { id: raft_file, ..raft::Wanted::default() }, &mut report)?;
            }
            Kind::RaftClosed => small::closed(&source, &mut report)?,
        }
        Ok(if report.is_damaged() { Answer::No } else { Answer::Yes })
    }
}

fn file_name(path: &Path) -> Option<FileName> {
    FileName::parse(path.file_name()?.to_str()?)
}

/// Which file of a Raft log it is, or was before a repair changed it, if its name says so.
pub(crate) fn raft_file(path: &Path) -> Option<raft_name::FileId> {
    let name = path.file_name()?.to_str()?;
    let suffixes = [".damaged", KEPT_SUFFIX];
    let kept = suffixes.into_iter().find_map(|suffix| name.split_once(suffix));
    match raft_name::FileName::parse(kept.map_or(name, |(before, _)| before))? {
        raft_name::FileName::Log(id) => Some(id),
        raft_name::FileName::Reserved(_) | raft_name::FileName::Lock | raft_name::FileName::Reserve { .. } => None,
    }
}

/// What a file of a Raft log is, by its name.
fn raft_kind(path: &Path) -> Option<Kind> {
    match path.file_name()?.to_str()? {
        closed::NAME | closed::NEW_NAME => Some(Kind::RaftClosed),
        name if matches!(raft_name::FileName::parse(name), Some(raft_name::FileName::Reserved(_))) => Some(Kind::Mark),
        _ => raft_file(path).map(|_| Kind::Raft),
    }
}

/// What a file of a Cask is, by its name.
fn cask_kind(path: &Path) -> Option<Kind> {
    match cask_name::FileName::parse(path.file_name()?.to_str()?)? {
        cask_name::FileName::Data(_) | cask_name::FileName::Damaged(_) => Some(Kind::CaskData),
        cask_name::FileName::Hint(_) | cask_name::FileName::HintTemporary(_) => Some(Kind::CaskHint),
        cask_name::FileName::Manifest | cask_name::FileName::ManifestTemporary => Some(Kind::CaskManifest),
        _ => None,
    }
}

/// Marks of every engine: the lock, room that is kept, a failed sync, a checkpoint, and what was not finished.
fn mark(path: &Path) -> Option<Kind> {
    let is_mark = matches!(
        path.file_name()?.to_str()?,
        "LOCK" | "RESERVE" | "RESERVE-LAST" | "SYNC-FAILED" | "CHECKPOINT" | "UNFINISHED-REPAIR" | "UNFINISHED-COPY"
    );
    is_mark.then_some(Kind::Mark)
}

fn kind_of(name: FileName) -> Option<Kind> {
    match name {
        FileName::Wal(_) => Some(Kind::Wal),
        FileName::Manifest(_) => Some(Kind::Manifest),
        FileName::Table(_) | FileName::LegacyTable(_) => Some(Kind::Table),
        FileName::Blob(_) => Some(Kind::Blob),
        FileName::Options(_) | FileName::OptionsTemporary(_) => Some(Kind::Options),
        FileName::Current => Some(Kind::Current),
        FileName::Identity => Some(Kind::Identity),
        _ => None,
    }
}
