//! Taking items out of the files of a log that is closed: for who must mend one by rules of their own.
//!
//! - X1: items are shown in the order of the files, each queue's from its first to its last, batches that are whole. What follows
//!   damage in a file is not shown, and gone if the file is written anew.
//! - X2: a file of which something is taken out is written anew beside it, durably, all such files before the first takes its place; each
//!   takes it in one step. A crash leaves some files as they were: then it is to be done again.
//!   What was written anew and has taken no place goes, at the latest when it is done again.
//! - X3: a batch stays a batch, so that atomic groups stay whole.
//! - X4: files that are to be kept have their second names, durably, before another takes the place of the first: what cannot be kept
//!   leaves all as it was. Nor does a second name stay beside a file that none took the place of. A copy, where there are no second names, gets its name when it is whole.

use std::path::{Path, PathBuf};

use esker_env::{Env, FileSystem, durable};
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_header::{FileHeader, LEN_BYTES_MAX};
use esker_format::raft::file_name::{FileName, LOCK, Queue};
use esker_format::raft::item::{Action, Item};
use esker_format::raft::log_batch::HEADER_BYTES;

use crate::batch::LogBatch;
use crate::closed;
use crate::open::files::{Found, Listing, dirs, file_names, list};
use crate::open::scan::{Batch, Beside, How, Source, Step, Walk};
use crate::options::RecoveryMode;
use crate::raft_log::RaftLog;
use crate::{Cut, Error, ErrorKind, Options, Result};

/// What is behind the name of a file that is written anew, until it takes the old one's place.
const NEW_SUFFIX: &str = ".filtered";

/// What is behind the name of a file whose copy is being made, until that is whole.
const COPYING_SUFFIX: &str = ".copying";

/// An item that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offered {
    /// Entries.
    Entries {
        /// Index of the first.
        first: u64,
        /// Index of the last.
        last: u64,
    },
    /// Entries before this index are gone.
    Compact {
        /// The first that stays.
        index: u64,
    },
    /// The group is gone.
    Clean,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It goes.
    Discard,
    /// It stays, and all entries that its group had before go.
    DiscardEarlier,
}

/// Which items are offered, and what becomes of the files that they are taken out of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterOptions<'a> {
    /// Only items of this queue. Default none: those of the append queue, then those of the rewrite queue.
    pub queue: Option<Queue>,
    /// What is put behind the name of a file that is written anew, for it to stay under beside the new one: no log knows such a name. If there is
    /// one, a number follows (`-1`, `-2`…). Default none: the file goes. Costs no space of its own where the file system has hard links.
    pub kept_suffix: Option<&'a str>,
    /// Items are offered, and nothing else is done. Default false. Takes no lock: the log may be open, and change meanwhile.
    pub dry_run: bool,
}

/// A file that items were taken out of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewed {
    /// The file.
    pub path: PathBuf,
    /// Where it stays as it was, if that was asked for.
    pub kept: Option<PathBuf>,
    /// What of it is gone with its damage (X1).
    pub cut: Option<Cut>,
}

/// Decides about the items of groups; keys are not asked for.
pub type Decide<'a> = dyn FnMut(Queue, u64, Offered) -> Result<Verdict> + 'a;

impl RaftLog {
    /// Takes out of the files of the log in `dir` what `decide` says, and returns the files that were written anew for it, or would be. Of
    /// `options`, `spill_dir`, `compress_from_bytes` and whether `recovery_mode` tolerates any damage count.
    ///
    /// Nothing looks at what that makes of the log: a gap in a group's entries is one.
    ///
    /// # Errors
    /// - `Busy`: the log is open.
    /// - `NotFound`: there is none.
    /// - `Corruption`: files are gone since the log was closed, and that is not tolerated; nothing was changed. Or entries that stay cannot be
    ///   read, and stand beside items that go.
    /// - What `decide` says, with the place of the batch, and what files say: nothing, or not all, was done (X2).
    pub fn filter(
        dir: impl AsRef<Path>,
        options: &Options,
        env: &Env,
        how: &FilterOptions<'_>,
        decide: &mut Decide<'_>,
    ) -> Result<Vec<Renewed>> {
        let dirs = dirs(&*env.files, dir.as_ref(), options)?;
        let listing = || list(&*env.files, &dirs);
        let found = listing()?;
        if found.is_empty() {
            return Err(
                Error::new(ErrorKind::NotFound, "there is no Raft log here; check the path").with_path(dir.as_ref())
            );
        }
        let locks = dirs.iter().filter(|_| !how.dry_run);
        let _locks =
            locks.map(|dir| env.files.lock(&dir.join(LOCK)).map_err(Error::from)).collect::<Result<Vec<_>>>()?;
        // Whoever had the right may have changed them.
        let listing = listing()?;
        if options.recovery_mode != RecoveryMode::TolerateAny {
            listing.refuse_missing()?;
        }
        let run = Run { dirs: &dirs, listing: &listing, options, env, how };
        if how.dry_run {
            return Ok(run.pick(decide)?.into_iter().map(|changed| changed.renewed).collect());
        }
        // Of one that was killed.
        remove_new(&*env.files, &dirs)?;
        let done = run.pick(decide).and_then(|changed| run.install(changed));
        if done.is_err() {
            // What cannot be removed goes the next time; why it is there matters more.
            let _ = remove_new(&*env.files, &dirs);
        }
        done
    }
}

/// What a filter works on.
struct Run<'a> {
    dirs: &'a [PathBuf],
    listing: &'a Listing,
    options: &'a Options,
    env: &'a Env,
    how: &'a FilterOptions<'a>,
}

/// A file that items go out of, and what was written to take its place.
struct Changed {
    new: Option<PathBuf>,
    renewed: Renewed,
}

impl Run<'_> {
    /// Asks about every item; writes anew, beside them, the files that some go out of.
    fn pick(&self, decide: &mut Decide<'_>) -> Result<Vec<Changed>> {
        let mut changed = Vec::new();
        for (kind, files) in [(Queue::Append, &self.listing.append), (Queue::Rewrite, &self.listing.rewrite)] {
            if self.how.queue.is_some_and(|only| only != kind) {
                continue;
            }
            for found in files {
                let how = How::of(found, files, 1, Beside::Nobody);
                let (verdicts, cut) = verdicts(self.env, found, how, decide)?;
                if verdicts.iter().all(|verdict| *verdict == Verdict::Keep) {
                    continue;
                }
                let new = match self.how.dry_run {
                    true => None,
                    false => Some(write_anew(self.env, found, how, self.options, &verdicts)?),
                };
                changed.push(Changed { new, renewed: Renewed { path: found.path.clone(), kept: None, cut } });
            }
        }
        Ok(changed)
    }

    /// Puts what was written anew in the place of what it was made of (X2, X4).
    fn install(&self, mut changed: Vec<Changed>) -> Result<Vec<Renewed>> {
        let done = self.replace(&mut changed);
        if done.is_err() {
            for kept in changed.iter().filter(|one| one.new.is_some()).filter_map(|one| one.renewed.kept.as_ref()) {
                // Why it is there matters more.
                let _ = self.env.files.remove(kept);
            }
        }
        done.map(|()| changed.into_iter().map(|one| one.renewed).collect())
    }

    /// Takes each `new` that is in its place, or may be.
    fn replace(&self, changed: &mut [Changed]) -> Result<()> {
        let files = &*self.env.files;
        if let Some(suffix) = self.how.kept_suffix {
            for one in changed.iter_mut() {
                one.renewed.kept = Some(keep(files, &one.renewed.path, suffix)?);
            }
        }
        if !changed.is_empty() && self.listing.has_note {
            closed::forget(files, self.dirs)?;
        }
        for Changed { new, renewed } in changed {
            let Some(new) = new.take() else { continue };
            files.rename(&new, &renewed.path)?;
            if let Some(dir) = renewed.path.parent() {
                files.sync_dir(dir)?;
            }
        }
        Ok(())
    }
}

/// Gives the file at `path` a second name, or a copy where there are no such, and makes that durable; returns the name. If it fails, there is none.
fn keep(files: &dyn FileSystem, path: &Path, suffix: &str) -> Result<PathBuf> {
    let name = free_name(files, path, suffix)?;
    if !durable::link(files, path, &name)? {
        copy(files, path, &name)?;
    }
    let synced = path.parent().map_or(Ok(()), |dir| files.sync_dir(dir));
    if synced.is_err() {
        // Why it is there matters more.
        let _ = files.remove(&name);
    }
    Ok(synced.map(|()| name)?)
}

/// What `path` and `suffix` make, and a number where that is taken.
fn free_name(files: &dyn FileSystem, path: &Path, suffix: &str) -> Result<PathBuf> {
    for number in 0u32.. {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        if number > 0 {
            name.push(format!("-{number}"));
        }
        let name = PathBuf::from(name);
        if !durable::is_there(files, &name)? {
            return Ok(name);
        }
    }
    Err(Error::invalid_argument("there are too many files of this name that were kept; move them away").with_path(path))
}

/// Copies a file, whole or not at all. What is left of one that fails or is killed goes with what was [written anew](remove_new).
fn copy(files: &dyn FileSystem, path: &Path, to: &Path) -> Result<()> {
    let mut copying = path.as_os_str().to_owned();
    copying.push(COPYING_SUFFIX);
    let copying = PathBuf::from(copying);
    let len = files.metadata(path)?.len;
    durable::copy(files, path, &copying, len, |_| Ok::<_, Error>(()))?;
    Ok(files.rename(&copying, to)?)
}

/// Takes away what was written anew and is in no file's place, and copies that are not whole.
fn remove_new(files: &dyn FileSystem, dirs: &[PathBuf]) -> Result<()> {
    for dir in dirs {
        for name in file_names(files, dir)? {
            let of = name.strip_suffix(NEW_SUFFIX).or_else(|| name.strip_suffix(COPYING_SUFFIX));
            if let Some(FileName::Log(_)) = of.and_then(FileName::parse) {
                files.remove(&dir.join(name))?;
            }
        }
    }
    Ok(())
}

/// Shows every whole batch of a file; returns what is behind them, if that is no end.
fn walk<'a>(
    source: &'a Source,
    found: &Found,
    how: How,
    mut show: impl FnMut(usize, &Batch<'a>, &[Item<'a>]) -> Result<()>,
) -> Result<Option<Cut>> {
    let bytes = source.bytes();
    let Some(header) = header_of(bytes) else { return Ok(None) };
    let mut walk = Walk::new(bytes, header, found.id, how);
    loop {
        match walk.step() {
            Step::Batch(at, batch) => show(at, &batch, &walk.items)?,
            Step::End | Step::Unwritten => return Ok(None),
            Step::Torn(error) | Step::Rotten(error) => {
                let (offset, reason) = (walk.offset as u64, format!("{}: {}", error.field, error.reason));
                let bytes = source.len().saturating_sub(offset);
                return Ok(Some(Cut { path: found.path.clone(), offset, bytes, reason }));
            }
        }
    }
}

/// The header of a file, if it has one.
fn header_of(bytes: &[u8]) -> Option<FileHeader> {
    FileHeader::decode(bytes.get(..LEN_BYTES_MAX.min(bytes.len())).unwrap_or_default()).ok()
}

/// What is to become of each item of a file, and what is behind its last whole batch.
fn verdicts(env: &Env, found: &Found, how: How, decide: &mut Decide<'_>) -> Result<(Vec<Verdict>, Option<Cut>)> {
    let source = Source::open(&*env.files, &found.path, how.beside)?;
    let mut verdicts = Vec::new();
    let cut = walk(&source, found, how, |at, _, items| {
        for item in items {
            let offered = match &item.action {
                Action::Entries(entries) if entries.count > 0 => {
                    Offered::Entries { first: entries.first_index, last: entries.next_index().saturating_sub(1) }
                }
                Action::Compact { index } => Offered::Compact { index: *index },
                Action::Clean => Offered::Clean,
                Action::Entries(_) | Action::Put { .. } | Action::Delete { .. } => {
                    verdicts.push(Verdict::Keep);
                    continue;
                }
            };
            let decided = decide(found.id.queue, item.group, offered);
            verdicts.push(decided.map_err(|error| with_place(error, &found.path, at))?);
        }
        Ok(())
    })?;
    Ok((verdicts, cut))
}

/// The same error with the place of what was being decided about, if it has no other.
fn with_place(error: Error, path: &Path, at: usize) -> Error {
    if error.path().is_some() { error } else { error.with_path(path).with_offset(at as u64) }
}

/// Writes what stays of a file beside it; returns where.
fn write_anew(env: &Env, found: &Found, how: How, options: &Options, verdicts: &[Verdict]) -> Result<PathBuf> {
    let source = Source::open(&*env.files, &found.path, how.beside)?;
    let bytes = source.bytes();
    let mut new = found.path.clone().into_os_string();
    new.push(NEW_SUFFIX);
    let new = PathBuf::from(new);
    let file = env.files.create(&new)?;
    let version = header_of(bytes).map_or(options.format_version, |header| header.version);
    let mut head = Vec::new();
    FileHeader::new(version).encode(&mut head);
    file.append(&[&head])?;
    let salt = version.salt(found.id.sequence);
    let mut verdicts = verdicts.iter();
    let mut unpacked = Vec::new();
    walk(&source, found, how, |at, batch, items| {
        let is_needed = |(item, verdict): (&Item<'_>, &Verdict)| {
            matches!(item.action, Action::Entries(_)) && *verdict != Verdict::Discard
        };
        // Those of a batch that goes may be damaged.
        let block = if items.iter().zip(verdicts.as_slice()).any(is_needed) {
            entries_of(bytes, at, batch, &mut unpacked)
                .map_err(|error| Error::decode(&found.path, at as u64, "unpacking a batch", error))?
        } else {
            &[]
        };
        let mut kept = LogBatch::new();
        for (item, verdict) in items.iter().zip(&mut verdicts) {
            if *verdict == Verdict::DiscardEarlier {
                kept.compact(item.group, u64::MAX);
            }
            if *verdict != Verdict::Discard {
                kept.add_item(item, block)?;
            }
        }
        if !kept.is_empty() {
            let encoded = kept.encode(options.compress_from_bytes);
            let [head, entries, middle, items] = encoded.parts();
            file.append(&[head, entries, middle, items, &encoded.tail(salt)])?;
        }
        Ok(())
    })?;
    file.sync()?;
    Ok(new)
}

/// The entries of the batch at `at`, unpacked.
fn entries_of<'a>(
    bytes: &'a [u8],
    at: usize,
    batch: &Batch<'_>,
    unpacked: &'a mut Vec<u8>,
) -> std::result::Result<&'a [u8], esker_format::DecodeError> {
    let range = batch.header.entries();
    if range.is_empty() {
        return Ok(&[]);
    }
    let part = bytes.get(at.saturating_add(range.start as usize)..at.saturating_add(range.end as usize));
    let base = |error: esker_format::DecodeError| error.at_base(HEADER_BYTES as u64);
    let stored = esker_format::raft::log_batch::checked("entries", part.unwrap_or_default(), 0).map_err(base)?;
    match batch.header.packing {
        Packing::None => Ok(stored),
        Packing::Lz4 => entries::unpack(stored, unpacked).map(|()| unpacked.as_slice()).map_err(base),
    }
}
