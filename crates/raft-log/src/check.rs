//! Looking at a log without opening it: takes no lock and writes nothing, so that it may be done beside whoever has it open.
//!
//! - C1: [`RaftLog::inspect`] replays the files as an open that tolerates any damage would, and says what came out.
//! - C2: [`RaftLog::check`] also reads every batch whole: both checksums, the entries unpacked, every entry within them.
//! - C3: in the append queue the entries of a group follow one another, unless a command between them says that those
//!   before are gone: nothing else makes a gap. In the rewrite queue only what is alive is carried on, so gaps say nothing.
//! - C4: a last file that ends torn is a crash's work, and no damage; any other is, and so is one with less in it than when the log was closed,
//!   or one that is gone since ([`crate::closed`]).
//! - C5: whoever has the log open gives files up meanwhile, cuts them, and writes them over under other names. So what is read is a copy, and what is
//!   wrong with a file counts only if its name is still there.
//!
//! Cost: inspecting reads like an open; checking reads once more and unpacks. What was written to a file is in memory as a whole, for each thread.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileSystem};
use esker_format::DecodeError;
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_header::{FileHeader, LEN_BYTES_MAX, Version};
use esker_format::raft::file_name::{FileId, Queue};
use esker_format::raft::item::{Action, Items};
use esker_format::raft::log_batch::{BatchHeader, CHECKSUM_BYTES, HEADER_BYTES};
use esker_format::zeroes::is_zero;

use crate::group::groups::GroupMap;
use crate::group::{Groups, Place, Span};
use crate::open::files::{Found, Listing, dirs, list};
use crate::open::replay;
use crate::open::scan::{Batch, Beside, Ending, How, Source, Step, Walk, given_up, lost_since_closed, without_header};
use crate::options::{Options, RecoveryMode};
use crate::raft_log::RaftLog;
use crate::{Cut, Error, ErrorKind, Result};

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSummary {
    /// Its queue and number.
    pub id: FileId,
    /// Where it lies.
    pub path: PathBuf,
    /// How it is written; `None` if it does not say so.
    pub version: Option<Version>,
    /// Whole batches in it.
    pub batches: u64,
    /// Where the last of them ends.
    pub valid_bytes: u64,
    /// Its length.
    pub file_bytes: u64,
}

/// What a log holds of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSummary {
    /// The group.
    pub group: u64,
    /// Index of its first entry, if it has any.
    pub first_index: Option<u64>,
    /// Index of its last entry.
    pub last_index: Option<u64>,
    /// How many entries it has.
    pub entries: u64,
    /// Of them, those in the rewrite queue.
    pub rewritten_entries: u64,
    /// Keys with values.
    pub keys: usize,
    /// The oldest file of the append queue that it needs: it keeps those behind it, too.
    pub oldest_file: Option<u64>,
}

/// What is in a log's directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Files of the rewrite queue, then those of the append queue, oldest first.
    pub files: Vec<FileSummary>,
    /// Groups, in order.
    pub groups: Vec<GroupSummary>,
    /// Where files end with something else than a batch.
    pub cuts: Vec<Cut>,
    /// Files before a gap in their queue's numbers, which an open leaves out: the loss of a file leaves such, and so does a purge of
    /// raft-engine's that power loss cut short, or one in a directory that gave up no file while the other was full. Nothing else tells which it was.
    pub stale: Vec<PathBuf>,
    /// Files that are gone since the log was closed: last files of queues, with any behind them, or else the last of those that are missing before.
    pub missing: Vec<PathBuf>,
    /// Files that wait to be written over.
    pub reserved_files: usize,
}

/// Entries that are missing in the middle of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// The group.
    pub group: u64,
    /// The last index before the gap.
    pub last_before: u64,
    /// The first behind it.
    pub first_behind: u64,
    /// The file and the place in it where that stands.
    pub path: PathBuf,
    /// See `path`.
    pub offset: u64,
}

/// Entries of a group that are alive and cannot be read: their batch is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The group.
    pub group: u64,
    /// Index of the first of them.
    pub first_index: u64,
    /// Index of the last.
    pub last_index: u64,
    /// The file and the place in it where their batch begins.
    pub path: PathBuf,
    /// See `path`.
    pub offset: u64,
}

/// What a check read, and what it found wrong.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Check {
    /// What an open would find.
    pub inspection: Inspection,
    /// Batches that hold.
    pub batches: u64,
    /// Entries in them, dead ones included.
    pub entries: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Ends that a crash explains: an open cuts them.
    pub torn: Vec<Cut>,
    /// Missing entries.
    pub gaps: Vec<Gap>,
    /// Damage.
    pub errors: Vec<Error>,
    /// Which entries that are alive it took, of those that an open would not cut off.
    pub lost: Vec<Lost>,
}

impl Check {
    /// Whether nothing is wrong, nor left out.
    pub fn is_sound(&self) -> bool {
        self.errors.is_empty() && self.gaps.is_empty() && self.inspection.stale.is_empty()
    }
}

impl RaftLog {
    /// What the log in `dir` holds, as an open that tolerates any damage would find it (C1). Of `options`, only
    /// `spill_dir` and `recovery_threads` count.
    ///
    /// # Errors
    /// - `NotFound`: there is no log.
    /// - `InvalidArgument`: `spill_dir` is `dir`.
    /// - `Corruption`: two files have the same number, or `dir` is a fork that was not finished.
    /// - `UnsupportedFormat`: a file was written by a newer version.
    /// - `Io`: the system refused; whoever has the log open may have given up a file meanwhile: look again.
    pub fn inspect(dir: impl AsRef<Path>, options: &Options) -> Result<Inspection> {
        Self::inspect_with_env(dir, options, &Env::os())
    }

    /// The same on another machine, for tests.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn inspect_with_env(dir: impl AsRef<Path>, options: &Options, env: &Env) -> Result<Inspection> {
        let listing = listing(env, dir.as_ref(), options)?;
        inspect(env, options, &listing).map(|(inspection, _)| inspection)
    }

    /// Reads the whole log in `dir` and says what is wrong with it (C2 to C4). `progress` is told of bytes read, of all.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect). Damage is no error of the check: it is listed in what it returns.
    pub fn check(dir: impl AsRef<Path>, options: &Options, progress: &mut dyn FnMut(u64, u64)) -> Result<Check> {
        Self::check_with_env(dir, options, &Env::os(), progress)
    }

    /// The same on another machine, for tests.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with_env(
        dir: impl AsRef<Path>,
        options: &Options,
        env: &Env,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Check> {
        let listing = listing(env, dir.as_ref(), options)?;
        let (inspection, groups) = inspect(env, options, &listing)?;
        let mut check = Check { inspection, ..Check::default() };
        check.errors.extend(listing.closed_error.iter().chain(&listing.missing).cloned());
        let mut damaged = Vec::new();
        let total = check.inspection.files.iter().map(|file| file.valid_bytes).sum();
        for queue in [&listing.rewrite, &listing.append] {
            let mut spans = GroupMap::default();
            for found in queue {
                let how = How::of(found, queue, 1, Beside::Anybody);
                let known = check.errors.len();
                check_file(&*env.files, found, how, &mut spans, &mut check, &mut damaged)?;
                if check.errors.len() > known {
                    is_still_there(env, &found.path)?;
                }
                progress(check.bytes, total);
            }
        }
        check.lost = lost(&groups, &damaged);
        Ok(check)
    }
}

fn listing(env: &Env, dir: &Path, options: &Options) -> Result<Listing> {
    let listing = list(&*env.files, &dirs(&*env.files, dir, options)?)?;
    if listing.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is no Raft log here; check the path").with_path(dir));
    }
    Ok(listing)
}

/// What of `groups` lies in the batches at these places.
fn lost(groups: &Groups, damaged: &[(Place, PathBuf)]) -> Vec<Lost> {
    let mut lost = Vec::new();
    let damaged: HashMap<Place, &PathBuf> = damaged.iter().map(|(place, path)| (*place, path)).collect();
    groups.for_each(|id, group| {
        for (run, part) in group.runs.within(group.span, group.span) {
            let place = run.place();
            if let Some(path) = damaged.get(&place) {
                lost.push(Lost {
                    group: id,
                    first_index: part.first,
                    last_index: part.next.saturating_sub(1),
                    path: path.to_path_buf(),
                    offset: place.offset,
                });
            }
        }
    });
    lost.sort_unstable_by_key(|lost| (lost.group, lost.first_index));
    lost
}

/// C1.
fn inspect(env: &Env, options: &Options, listing: &Listing) -> Result<(Inspection, Arc<Groups>)> {
    let groups = Arc::new(Groups::new());
    let mut found = Inspection {
        stale: listing.stale.iter().map(|file| file.path.clone()).collect(),
        missing: listing.missing.iter().filter_map(|error| error.path().map(Path::to_owned)).collect(),
        reserved_files: listing.reserved.len(),
        ..Inspection::default()
    };
    for queue in [&listing.rewrite, &listing.append] {
        let threads = options.recovery_threads.min(queue.len()).max(1);
        let mode = RecoveryMode::TolerateAny;
        let replayed = replay::replay(env, threads, mode, Beside::Anybody, queue, &groups, &mut found.cuts)?;
        found.files.extend(replayed.into_iter().map(|file| FileSummary {
            id: file.found.id,
            path: file.found.path,
            version: file.header.map(|header| header.version),
            batches: file.batches,
            valid_bytes: file.valid_len,
            file_bytes: file.file_len,
        }));
    }
    found.cuts.iter().try_for_each(|cut| is_still_there(env, &cut.path))?;
    groups.finish_replay();
    groups.for_each(|id, group| {
        let span = Some(group.span).filter(|span| !span.is_empty());
        found.groups.push(GroupSummary {
            group: id,
            first_index: span.map(|span| span.first),
            last_index: span.map(|span| span.next.saturating_sub(1)),
            entries: group.span.count(),
            rewritten_entries: group.rewritten_entries(),
            keys: group.key_count(),
            oldest_file: group.oldest_file(Queue::Append),
        });
    });
    found.groups.sort_unstable_by_key(|group| group.group);
    Ok((found, groups))
}

/// C5: refuses to say that a file is damaged that was given up meanwhile.
fn is_still_there(env: &Env, path: &Path) -> Result<()> {
    env.files.metadata(path).map(drop).map_err(given_up)
}

/// C2, and where the file ends (C4).
fn check_file(
    files: &dyn FileSystem,
    found: &Found,
    how: How,
    spans: &mut GroupMap<Span>,
    check: &mut Check,
    damaged: &mut Vec<(Place, PathBuf)>,
) -> Result<()> {
    let is_last = how.entries;
    let source = Source::open(files, &found.path, how.beside)?;
    let bytes = source.bytes();
    let header = match FileHeader::decode(bytes.get(..LEN_BYTES_MAX.min(bytes.len())).unwrap_or_default()) {
        Ok(header) => header,
        Err(error) => {
            let error = Error::decode(&found.path, 0, "reading a file's header", error);
            match without_header(bytes, error.clone()) {
                Ending::Rotten(error) => check.errors.push(error),
                _ => end(found, 0, &source, is_last, error, check),
            }
            return Ok(());
        }
    };
    // A last file ends where its entries do not hold, as for an open. Elsewhere that is told, and the next batch read.
    let mut walk = Walk::new(bytes, header, found.id, how);
    let mut unpacked = Vec::new();
    let error = loop {
        let offset = walk.offset;
        match walk.step() {
            Step::Batch(at, batch) => {
                check.batches += 1;
                if let Err(error) = check_entries(bytes, at, &batch, &mut unpacked) {
                    check.errors.push(Error::decode(&found.path, at as u64, "reading a batch's entries", error));
                    damaged.push((Place { file: found.id, offset: at as u64 }, found.path.clone()));
                }
                check_items(found, at as u64, &batch, spans, check);
            }
            Step::End => break None,
            Step::Unwritten if is_last => break None,
            Step::Unwritten => {
                let reason = "nothing was written where a batch should begin, though later files were";
                break Some((offset, Error::corruption(&found.path, offset as u64, reason)));
            }
            Step::Torn(error) => break Some((offset, Error::decode(&found.path, 0, "reading a batch", error))),
            Step::Rotten(error) => {
                check.errors.push(Error::decode(&found.path, 0, "reading a batch", error));
                check.bytes += walk.offset as u64;
                return Ok(());
            }
        }
    };
    let valid_len = walk.offset as u64;
    check.bytes += valid_len;
    match error {
        Some((offset, error)) => end(found, offset, &source, is_last, error, check),
        None => {
            let lost = lost_since_closed(found, valid_len);
            check.errors.extend(lost.map(|reason| Error::corruption(&found.path, valid_len, reason)));
        }
    }
    Ok(())
}

fn end(found: &Found, offset: usize, source: &Source, is_last: bool, error: Error, check: &mut Check) {
    if let Some(reason) = lost_since_closed(found, offset as u64) {
        check.errors.push(error.while_doing(reason));
    } else if !is_last {
        check.errors.push(error);
    } else if offset > 0 || !is_zero(source.bytes()) {
        let (path, offset) = (found.path.clone(), offset as u64);
        let left = source.len().saturating_sub(offset);
        check.torn.push(Cut { path, offset, bytes: left, reason: error.reason().to_owned() });
    }
}

/// The entries block of the batch at `at`: its checksum, and that it unpacks to all entries that the items speak of.
fn check_entries(
    bytes: &[u8],
    at: usize,
    batch: &Batch<'_>,
    unpacked: &mut Vec<u8>,
) -> std::result::Result<(), DecodeError> {
    let BatchHeader { packing, .. } = batch.header;
    let range = batch.header.entries();
    let start = at.saturating_add(range.start as usize);
    let block = bytes.get(start..at.saturating_add(range.end as usize)).unwrap_or_default();
    let mut items = Items::new(batch.items)?;
    while items.read()?.is_some() {}
    let needed = items.entries_end() as usize;
    let held = if block.is_empty() {
        0
    } else {
        let base = |error: DecodeError| error.at_base(HEADER_BYTES as u64);
        let block = esker_format::raft::log_batch::checked("entries", block, 0).map_err(base)?;
        match packing {
            Packing::None => block.len(),
            Packing::Lz4 => entries::unpack(block, unpacked).map(|()| unpacked.len()).map_err(base)?,
        }
    };
    if needed > held {
        let at = batch.header.items_offset.saturating_sub(CHECKSUM_BYTES as u64);
        return Err(DecodeError::corrupt("entries", at, format!("end at {needed}, the block has {held} bytes")));
    }
    Ok(())
}

/// C3. The items were read once when the batch was.
fn check_items(found: &Found, at: u64, batch: &Batch<'_>, spans: &mut GroupMap<Span>, check: &mut Check) {
    let Ok(mut items) = Items::new(batch.items) else { return };
    while let Ok(Some(item)) = items.read() {
        let span = spans.entry(item.group).or_default();
        match item.action {
            Action::Entries(entries) if entries.count > 0 => {
                check.entries += entries.count;
                let is_gap = !span.is_empty() && entries.first_index > span.next;
                if is_gap && found.id.queue == Queue::Append {
                    check.gaps.push(Gap {
                        group: item.group,
                        last_before: span.next.saturating_sub(1),
                        first_behind: entries.first_index,
                        path: found.path.clone(),
                        offset: at,
                    });
                }
                span.append(entries.first_index, entries.count);
            }
            Action::Compact { index } => drop(span.compact(index)),
            Action::Clean => *span = Span::default(),
            Action::Entries(_) | Action::Put { .. } | Action::Delete { .. } => {}
        }
    }
}
