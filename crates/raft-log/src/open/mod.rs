//! Opening: directories → files → replay → the ends of both queues.
//!
//! - O1: nothing is written before every file was read and accepted, but for the directories and their locks.
//! - O2: what is cut off is synced away before anything is written in its place.
//! - O3: a last file that has another name, too, or is a symbolic link, is written anew: whoever gave it that keeps what it held.
//! - O4: whoever had the log before may have died and left the last file of each queue, and names that came or went, to the system alone. They
//!   are durable before anything is built on them; should a sync fail, the next open is warned ([`distrust`]).
//! - O5: what was there when the log was closed is there, or it is damage ([`closed`]).

pub(crate) mod changes;
pub(crate) mod files;
pub(crate) mod replay;
pub(crate) mod scan;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use esker_env::os::Origin;
use esker_env::{Env, FileSystem, durable};
use esker_format::raft::file_header::FileHeader;
use esker_format::raft::file_name::{FileId, FileName, LOCK, Queue as Kind, RESERVES};
use esker_log::commit::CommitQueue;
use esker_log::distrust;
use esker_log::publish::Published;
use esker_log::reserve::Reserve;
use parking_lot::{Condvar, Mutex};

use crate::blocks::Blocks;
use crate::closed;
use crate::group::Groups;
use crate::listener::{Listener, Listeners};
use crate::options::{Options, RecoveryMode};
use crate::queue::{End, FIRST_SEQUENCE, LogFile, Queue, Retired, Rights, Shape, Tail, begin_file, encoded, open_tail};
use crate::reclaim::Reclaim;
use crate::stats::Counters;
use crate::store::Store;
use crate::write::Lead;
use crate::{Error, ErrorKind, Result};
use files::{Found, Listing};
use replay::Replayed;
use scan::Beside;

/// Part of a file that each of the two files of the [`Reserve`] has.
const RESERVE_PART: u64 = 128;
/// What some twenty thousand groups need that are compacted one by one.
const RESERVE_BYTES_MAX: u64 = 1 << 20;
/// Prefilled files are written in pieces of this size.
const PREFILL_PIECE_BYTES: u64 = 1 << 20;

/// A file that was damaged, and where it was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// Where its last whole batch ends.
    pub offset: u64,
    /// How many bytes lie behind that.
    pub bytes: u64,
    /// What they are instead of a batch.
    pub reason: String,
}

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Files that were replayed.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Batches that were replayed.
    pub batches: u64,
    /// Damage that the recovery mode tolerates.
    pub cuts: Vec<Cut>,
    /// Files before a gap in their queue's numbers: they were not replayed, and are left alone. A file behind them was lost, or raft-engine's
    /// purge had given them up and a power loss kept them, or they could not be removed and those behind them went for want of room.
    pub stale: Vec<PathBuf>,
    /// Files that are gone since the log was closed, which was told to go on without: last files of queues, with any behind them, or else the last of
    /// those that are missing before.
    pub missing: Vec<PathBuf>,
}

/// Opens the log in `dir`.
pub(crate) fn open_store(dir: &Path, options: Options, env: Env, listeners: Vec<Arc<dyn Listener>>) -> Result<Store> {
    let dirs: Arc<[PathBuf]> = files::dirs(&*env.files, dir, &options)?.into();
    files::may_begin(&*env.files, &dirs, options.create_if_missing)?;
    let rights = Arc::new(lock(&env, &dirs)?);
    let listing = files::list(&*env.files, &dirs)?;
    if let Some(stale) = listing.stale.last().filter(|_| options.recovery_mode == RecoveryMode::AbsoluteConsistency) {
        let reason = "a file behind it is missing, so it would be left out; a purge of raft-engine's that power loss cut short leaves it so, too";
        return Err(Error::new(ErrorKind::Corruption, reason).with_path(&stale.path));
    }
    if options.recovery_mode != RecoveryMode::TolerateAny {
        listing.refuse_missing()?;
    }
    if let Some(error) = &listing.closed_error
        && options.recovery_mode == RecoveryMode::AbsoluteConsistency
    {
        return Err(error.clone());
    }
    write_distrusted_anew(&env, &dirs, &listing)?;
    let groups = Arc::new(Groups::new());
    let mut recovery = Recovery::default();
    let rewrite = replay_queue(&env, &options, &listing.rewrite, &groups, &mut recovery)?;
    let rewritten = rewrite.iter().map(|file| (file.found.id.sequence, file.rewritten)).collect();
    let append = replay_queue(&env, &options, &listing.append, &groups, &mut recovery)?;
    groups.finish_replay();
    recovery.stale = listing.stale.iter().map(|file| file.path.clone()).collect();
    recovery.missing = listing.missing.iter().filter_map(|error| error.path().map(Path::to_owned)).collect();

    // A tail that is torn lies behind what a note says that was read; one that was not may be read another time.
    let holds_behind = options.recovery_mode != RecoveryMode::TolerateAny && listing.closed_error.is_none();
    let is_cut = !holds_behind && !recovery.cuts.is_empty();
    let is_begun = listing.append.is_empty() || listing.rewrite.is_empty();
    let mut closed = listing.closed;
    let forgets = listing.has_note && (is_cut || is_begun || !listing.missing.is_empty());
    if is_cut || forgets {
        [&rewrite, &append].into_iter().try_for_each(|queue| may_write(&*env.files, queue))?;
    }
    if forgets {
        closed::forget(&*env.files, &dirs)?;
        closed = None;
    }
    // Left alone, they would stand before files in use once those with their numbers are gone.
    listing.void.iter().try_for_each(|found| env.files.remove(&found.path))?;
    // Names that came or went (O4).
    dirs.iter().try_for_each(|dir| env.files.sync_dir(dir))?;
    let listeners = Listeners::new(listeners);
    let bytes = (options.file_bytes / RESERVE_PART).min(RESERVE_BYTES_MAX);
    let reserve = Arc::new(Reserve::new(Arc::clone(&env.files), &dirs, RESERVES.map(|name| (name, bytes))));
    let shape = Shape {
        env: env.clone(),
        dirs,
        rights: Arc::downgrade(&rights),
        header: FileHeader::new(options.format_version),
        file_bytes: options.file_bytes,
        reserve: Arc::clone(&reserve),
        recycle_capacity: options.recycle_capacity(Kind::Rewrite),
        listeners: listeners.clone(),
    };
    let (rewrite, rewrite_tail) =
        finish(Kind::Rewrite, shape.clone(), rewrite, VecDeque::new(), options.recovery_mode)?;
    let shape = Shape { recycle_capacity: options.recycle_capacity(Kind::Append), ..shape };
    let retired = waiting(&shape, &options, &listing, append.len())?;
    let (append, mut append_tail) = finish(Kind::Append, shape, append, retired, options.recovery_mode)?;
    reserve.begin();
    // Whoever adds something tries again, and is told.
    append_tail.keep(&reserve).or_else(|error| if error.wants_room() { Ok(()) } else { Err(error) })?;
    let Some(groups) = Arc::into_inner(groups) else {
        return Err(Error::new(ErrorKind::Io, "a thread of recovery did not end"));
    };
    Ok(Store {
        env,
        dir: dir.to_owned(),
        blocks: Blocks::new(options.cache_bytes),
        reserve,
        options,
        listeners,
        recovery,
        closed,
        append,
        rewrite,
        groups,
        commit: CommitQueue::new(Lead::new(append_tail)),
        applied: Published::default(),
        reclaim: Mutex::new(Reclaim::new(rewrite_tail, rewritten)),
        counters: Counters::default(),
        write_error: Mutex::new(None),
        close_error: OnceLock::new(),
        purge_error: Mutex::new(None),
        closing: Mutex::new(false),
        wake: Condvar::new(),
        rights: Mutex::new(Some(rights)),
        origin: Origin::here(),
    })
}

/// After a failed sync, the last file of a queue may show what is not on the disk (see [`distrust`]). Those before it were
/// synced (Q2). What is written anew reads as before, so this does not break O1.
fn write_distrusted_anew(env: &Env, dirs: &[PathBuf], listing: &Listing) -> Result<()> {
    let mut warned = Vec::new();
    for dir in dirs {
        if distrust::is_warned(&*env.files, dir)? {
            warned.push(dir);
        }
    }
    if warned.is_empty() {
        return Ok(());
    }
    for last in [listing.append.last(), listing.rewrite.last()].into_iter().flatten() {
        distrust::write_anew(&*env.files, &last.path)?;
    }
    warned.into_iter().try_for_each(|dir| distrust::trust_again(&*env.files, dir))
}

/// Creates the directories and takes the right to them.
fn lock(env: &Env, dirs: &[PathBuf]) -> Result<Rights> {
    dirs.iter().try_for_each(|dir| durable::create_dir(&*env.files, dir).map(drop))?;
    // Of two that were not there before, only now.
    files::refuse_same(&*env.files, dirs)?;
    let mut locks = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let taken = env.files.lock(&dir.join(LOCK)).map_err(|error| {
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return Error::from(error).while_doing("locking the log");
            }
            let reason =
                "the log is open elsewhere, in another process or by another handle of this one; close it there";
            Error::new(ErrorKind::Busy, reason).with_path(dir).with_source(error)
        })?;
        locks.push(taken);
    }
    Ok(locks)
}

fn replay_queue(
    env: &Env,
    options: &Options,
    files: &[Found],
    groups: &Arc<Groups>,
    recovery: &mut Recovery,
) -> Result<Vec<Replayed>> {
    let threads = options.recovery_threads.min(files.len()).max(1);
    let replayed =
        replay::replay(env, threads, options.recovery_mode, Beside::Nobody, files, groups, &mut recovery.cuts)?;
    recovery.files += replayed.len();
    recovery.bytes += replayed.iter().map(|file| file.valid_len).sum::<u64>();
    recovery.batches += replayed.iter().map(|file| file.batches).sum::<u64>();
    Ok(replayed)
}

/// Refuses, while nothing was changed, a file that will be cut or gone on with, and cannot be written to.
fn may_write(disk: &dyn FileSystem, queue: &[Replayed]) -> Result<()> {
    let last = queue.last().map(|last| last.found.id);
    let is_written = |file: &&Replayed| file.valid_len < file.file_len || Some(file.found.id) == last;
    queue.iter().filter(is_written).try_for_each(|Replayed { found, file_len, .. }| {
        if disk.metadata(&found.path)?.links == 1 {
            disk.reopen(&found.path, *file_len)?;
        }
        Ok(())
    })
}

/// Cuts what is to be cut, and opens the last file to go on with, or a first one.
fn finish(
    kind: Kind,
    shape: Shape,
    mut replayed: Vec<Replayed>,
    retired: VecDeque<Retired>,
    mode: RecoveryMode,
) -> Result<(Queue, Tail)> {
    let disk = &shape.env.files;
    let mut last = replayed.pop();
    if is_unbegun(&**disk, last.as_ref(), replayed.last())? {
        last.iter().try_for_each(|last| remove_unbegun(&**disk, &last.found))?;
        last = replayed.pop();
    }
    let mut files = VecDeque::with_capacity(replayed.len() + 1);
    for Replayed { found, header, mut valid_len, file_len, .. } in replayed {
        let Found { id, path, dir, .. } = found;
        // A fork shares a file that has two names: it is read as if it were cut.
        let is_damaged = valid_len < file_len || header.is_none();
        if mode == RecoveryMode::TolerateAny && is_damaged && disk.metadata(&path)?.links == 1 {
            let cut = disk.reopen(&path, valid_len)?;
            if header.is_none() {
                // Without one, only this mode would open the log.
                cut.append(&[&encoded(shape.header)])?;
                valid_len = cut.len();
            }
            cut.sync()?;
        }
        let header = header.unwrap_or(shape.header);
        files.push_back(Arc::new(LogFile::new(&shape, id, dir, path, header, End::Sealed(valid_len))));
    }
    let tail = match last {
        None => begin_file(&shape, FileId::new(kind, FIRST_SEQUENCE), None, None)?,
        Some(Replayed { found, header: None, .. }) => {
            remove_unbegun(&**disk, &found)?;
            begin_file(&shape, found.id, None, None)?
        }
        Some(Replayed { found, header: Some(header), valid_len, .. }) => {
            if disk.metadata(&found.path)?.links > 1 {
                distrust::write_anew(&**disk, &found.path)?;
            }
            let append = disk.reopen(&found.path, valid_len)?;
            // Those before it were synced (Q2).
            append.sync().inspect_err(|_| {
                // Should that fail too, the error that is told is the worse one.
                let _ = found.path.parent().map(|dir| distrust::warn(&**disk, dir));
            })?;
            open_tail(&shape, found.id, found.dir, header, append)
        }
    };
    files.push_back(Arc::clone(&tail.file));
    files.iter().for_each(|file| shape.listeners.file_created(file.id));
    Ok((Queue::new(kind, shape, files, retired), tail))
}

/// Whether the last file of a queue was not begun, so that the one before it takes batches still (Q2). That needs no room, as beginning it would: a
/// log whose process died on a full disk can be opened.
fn is_unbegun(disk: &dyn FileSystem, last: Option<&Replayed>, before: Option<&Replayed>) -> Result<bool> {
    let (Some(last), Some(before)) = (last, before) else { return Ok(false) };
    // One that a fork shares would have to be copied.
    Ok(last.header.is_none() && before.header.is_some() && disk.metadata(&before.found.path)?.links == 1)
}

/// Removes a file without a header. Should it come back, it must not be beside one with its number in the other directory.
fn remove_unbegun(disk: &dyn FileSystem, found: &Found) -> Result<()> {
    disk.remove(&found.path)?;
    Ok(found.path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))?)
}

/// The files that wait to be written over: those that are there, as many as may be, and new ones if they are wanted.
fn waiting(shape: &Shape, options: &Options, listing: &Listing, in_use: usize) -> Result<VecDeque<Retired>> {
    let disk = &shape.env.files;
    let room = shape.recycle_capacity.saturating_sub(in_use);
    // Where numbers begin anew, old bytes might pass for new ones: such files are not written over.
    let kept = if in_use == 0 { 0 } else { room };
    let mut retired = VecDeque::new();
    let mut bytes_left = shape.waiting_bytes_max(kept);
    for found in &listing.reserved {
        let bytes = disk.metadata(&found.path).map_or(0, |found| found.len);
        if retired.len() < kept && bytes <= bytes_left {
            bytes_left -= bytes;
            retired.push_back(Retired { path: found.path.clone(), dir: found.dir, file: None, bytes });
        } else {
            disk.remove(&found.path)?;
        }
    }
    let wanted = usize::try_from(options.prefill_bytes / options.file_bytes.max(1)).unwrap_or(usize::MAX).min(room);
    let mut sequence = listing.reserved.last().map_or(FIRST_SEQUENCE, |found| found.id.sequence.saturating_add(1));
    while retired.len() < wanted {
        let Some(dir) = shape.dirs.first() else { break };
        let path = dir.join(FileName::Reserved(sequence).to_string());
        if let Err(error) = prefill(shape, &path) {
            let removed = disk.remove(&path);
            if error.kind() != ErrorKind::Exhausted {
                return Err(error);
            }
            // Recycling saves time; without room for it the log works all the same.
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => break,
            }
        }
        retired.push_back(Retired { path, dir: 0, file: None, bytes: shape.file_bytes });
        sequence += 1;
    }
    Ok(retired)
}

/// A file of zeroes.
fn prefill(shape: &Shape, path: &Path) -> Result<()> {
    let file = shape.env.files.create(path)?;
    let zeroes = vec![0; PREFILL_PIECE_BYTES.min(shape.file_bytes) as usize];
    while file.len() < shape.file_bytes {
        file.append(&[&zeroes])?;
    }
    Ok(file.sync()?)
}
