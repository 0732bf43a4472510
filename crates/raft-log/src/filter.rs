//! Taking items out of the files of a log that is closed: for who must mend one by rules of their own.
//!
//! - X1: items are shown in the order of the files, each queue's from its first to its last, batches that are whole. What follows
//!   damage in a file is not shown, and gone if the file is written anew.
//! - X2: a file of which something is taken out is written anew beside it, durably, all such files before the first takes its place; each
//!   takes it in one step. A crash leaves some files as they were: then it is to be done again.
//!   What was written anew and has taken no place goes, at the latest when it is done again.
//! - X3: a batch stays a batch, so that atomic groups stay whole.

use std::path::{Path, PathBuf};

use esker_env::{Env, FileSystem};
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_header::{FileHeader, LEN_BYTES_MAX};
use esker_format::raft::file_name::{FileName, LOCK, Queue};
use esker_format::raft::item::{Action, Item};
use esker_format::raft::log_batch::HEADER_BYTES;

use crate::batch::LogBatch;
use crate::closed;
use crate::open::files::{Found, Listing, dirs, file_names, list};
use crate::open::scan::{Batch, How, Source, Step, Walk};
use crate::options::RecoveryMode;
use crate::raft_log::RaftLog;
use crate::{Error, ErrorKind, Options, Result};

/// What is behind the name of a file that is written anew, until it takes the old one's place.
const NEW_SUFFIX: &str = ".filtered";

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

/// Decides about the items of groups; keys are not asked for.
pub type Decide<'a> = dyn FnMut(Queue, u64, Offered) -> Result<Verdict> + 'a;

impl RaftLog {
    /// Takes out of the files of the log in `dir` what `decide` says, those of one queue or of the append queue and then the rewrite queue.
    /// Returns the files that were written anew. Of `options`, `spill_dir`, `compress_from_bytes` and whether `recovery_mode` tolerates any damage
    /// count.
    ///
    /// Nothing looks at what that makes of the log: a gap in a group's entries is one.
    ///
    /// # Errors
    /// - `Busy`: the log is open.
    /// - `NotFound`: there is none.
    /// - `Corruption`: files are gone since the log was closed, and that is not tolerated; nothing was changed.
    /// - What `decide` says, and what files say: nothing, or not all, was done (X2).
    pub fn filter(
        dir: impl AsRef<Path>,
        options: &Options,
        env: &Env,
        queue: Option<Queue>,
        decide: &mut Decide<'_>,
    ) -> Result<Vec<PathBuf>> {
        let dirs = dirs(dir.as_ref(), options)?;
        let listing = || list(&*env.files, &dirs);
        let found = listing()?;
        if found.is_empty() {
            return Err(
                Error::new(ErrorKind::NotFound, "there is no Raft log here; check the path").with_path(dir.as_ref())
            );
        }
        let _locks =
            dirs.iter().map(|dir| env.files.lock(&dir.join(LOCK)).map_err(Error::from)).collect::<Result<Vec<_>>>()?;
        // Whoever had the right may have changed them.
        let listing = listing()?;
        if options.recovery_mode != RecoveryMode::TolerateAny {
            listing.refuse_missing()?;
        }
        // Of one that was killed.
        remove_new(&*env.files, &dirs)?;
        let done = filter(&dirs, &listing, options, env, queue, decide);
        if done.is_err() {
            // What cannot be removed goes the next time; why it is there matters more.
            let _ = remove_new(&*env.files, &dirs);
        }
        done
    }
}

fn filter(
    dirs: &[PathBuf],
    listing: &Listing,
    options: &Options,
    env: &Env,
    queue: Option<Queue>,
    decide: &mut Decide<'_>,
) -> Result<Vec<PathBuf>> {
    let mut renewed = Vec::new();
    for (kind, files) in [(Queue::Append, &listing.append), (Queue::Rewrite, &listing.rewrite)] {
        if queue.is_some_and(|only| only != kind) {
            continue;
        }
        for found in files {
            let how = How::of(found, files.first(), files.last(), 1);
            let verdicts = verdicts(env, found, how, decide)?;
            if verdicts.iter().any(|verdict| *verdict != Verdict::Keep) {
                renewed.push((write_anew(env, found, how, options, &verdicts)?, found));
            }
        }
    }
    if !renewed.is_empty() && listing.has_note {
        closed::forget(&*env.files, dirs)?;
    }
    for (new, found) in &renewed {
        env.files.rename(new, &found.path)?;
        if let Some(dir) = found.path.parent() {
            env.files.sync_dir(dir)?;
        }
    }
    Ok(renewed.into_iter().map(|(_, found)| found.path.clone()).collect())
}

/// Takes away what was written anew and is in no file's place.
fn remove_new(files: &dyn FileSystem, dirs: &[PathBuf]) -> Result<()> {
    for dir in dirs {
        for name in file_names(files, dir)? {
            if let Some(FileName::Log(_)) = name.strip_suffix(NEW_SUFFIX).and_then(FileName::parse) {
                files.remove(&dir.join(name))?;
            }
        }
    }
    Ok(())
}

/// Shows every whole batch of a file.
fn walk<'a>(
    bytes: &'a [u8],
    found: &Found,
    how: How,
    mut show: impl FnMut(usize, &Batch<'a>, &[Item<'a>]) -> Result<()>,
) -> Result<()> {
    let Some(header) = header_of(bytes) else { return Ok(()) };
    let mut walk = Walk::new(bytes, header, found.id, how);
    while let Step::Batch(at, batch) = walk.step() {
        show(at, &batch, &walk.items)?;
    }
    Ok(())
}

/// The header of a file, if it has one.
fn header_of(bytes: &[u8]) -> Option<FileHeader> {
    FileHeader::decode(bytes.get(..LEN_BYTES_MAX.min(bytes.len())).unwrap_or_default()).ok()
}

/// What is to become of each item of a file.
fn verdicts(env: &Env, found: &Found, how: How, decide: &mut Decide<'_>) -> Result<Vec<Verdict>> {
    let source = Source::open(&*env.files, &found.path)?;
    let mut verdicts = Vec::new();
    walk(source.bytes(), found, how, |_, _, items| {
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
            verdicts.push(decide(found.id.queue, item.group, offered)?);
        }
        Ok(())
    })?;
    Ok(verdicts)
}

/// Writes what stays of a file beside it; returns where.
fn write_anew(env: &Env, found: &Found, how: How, options: &Options, verdicts: &[Verdict]) -> Result<PathBuf> {
    let source = Source::open(&*env.files, &found.path)?;
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
    walk(bytes, found, how, |at, batch, items| {
        let block = entries_of(bytes, at, batch, &mut unpacked)
            .map_err(|error| Error::decode(&found.path, at as u64, "unpacking a batch", error))?;
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
