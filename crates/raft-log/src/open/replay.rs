//! Replaying a queue: files are scanned in parallel, then groups are changed in parallel, each in the order of the files.
//!
//! - P1: the rewrite queue is replayed first, as a whole; the append queue on top of it.
//! - P2: batches of an atomic group count at its end, or not at all.
//!
//! Cost: a wave of files is in memory at a time, as what its batches do ([`super::changes`]).

use std::sync::Arc;

use esker_env::Env;
use esker_format::raft::file_header;
use esker_format::raft::file_name::{FileId, Queue as Kind};
use esker_format::raft::item::AtomicStatus;

use super::Cut;
use super::changes::{Changes, Steps};
use super::files::Found;
use super::scan::{Beside, Ending, How, Scanned, Segment, scan};
use crate::group::Groups;
use crate::group::groups::GroupMap;
use crate::options::RecoveryMode;
use crate::{Result, parallel};

/// Files scanned at once, for each thread.
const WAVE_FILES: usize = 4;

/// A file that was replayed.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) found: Found,
    /// `None` if it must be begun again.
    pub(crate) header: Option<file_header::FileHeader>,
    pub(crate) valid_len: u64,
    pub(crate) file_len: u64,
    pub(crate) batches: u64,
    /// See [`Scanned::rewritten`].
    pub(crate) rewritten: u64,
}

/// Batches of atomic groups that have not ended, by the group's number.
type Pending = GroupMap<Vec<Segment>>;

/// Replays the files of one queue into `groups`; says of each what is valid of it, and what was cut.
pub(crate) fn replay(
    env: &Env,
    threads: usize,
    mode: RecoveryMode,
    beside: Beside,
    files: &[Found],
    groups: &Arc<Groups>,
    cuts: &mut Vec<Cut>,
) -> Result<Vec<Replayed>> {
    let mut replayed = Vec::with_capacity(files.len());
    let mut pending = Pending::default();
    for wave in files.chunks(threads * WAVE_FILES) {
        let last = files.last().map(|file| file.id);
        let jobs: Vec<(Found, How)> =
            wave.iter().map(|found| (found.clone(), How::of(found, files, threads, beside))).collect();
        let disk = Arc::clone(&env.files);
        let scanned = parallel::each(env, threads, jobs, move |(found, how)| {
            let scanned = scan(&*disk, &found, how);
            (found, scanned)
        })?;
        let mut segments = Vec::new();
        for (found, scanned) in scanned {
            let is_last = Some(found.id) == last;
            let Scanned { header, segments: these, batches, rewritten, valid_len, file_len, ending } = scanned?;
            accept(mode, is_last, &found, valid_len, file_len, ending, cuts)?;
            these.into_iter().for_each(|segment| order(segment, &mut pending, &mut segments));
            replayed.push(Replayed { found, header, valid_len, file_len, batches, rewritten });
        }
        apply(env, threads, segments, groups)?;
    }
    Ok(replayed)
}

/// Whether a file may end like this.
fn accept(
    mode: RecoveryMode,
    is_last: bool,
    found: &Found,
    valid_len: u64,
    file_len: u64,
    ending: Ending,
    cuts: &mut Vec<Cut>,
) -> Result<()> {
    let error = match ending {
        Ending::Whole => return Ok(()),
        Ending::Unwritten if is_last => return Ok(()),
        Ending::Unwritten => {
            let reason = "nothing was written where a batch should begin, though later files were";
            crate::Error::corruption(&found.path, valid_len, reason)
        }
        Ending::Torn(error) => error,
        Ending::Rotten(error) if mode != RecoveryMode::TolerateAny => return Err(error),
        Ending::Rotten(error) => error,
    };
    if mode == RecoveryMode::TolerateAny || mode == RecoveryMode::TolerateTail && is_last {
        let bytes = file_len.saturating_sub(valid_len);
        cuts.push(Cut { path: found.path.clone(), offset: valid_len, bytes, reason: error.to_string() });
        return Ok(());
    }
    Err(error)
}

/// Puts a segment in line, or holds it back until its atomic group ends (P2). Only the rewrite queue has such groups.
fn order(mut segment: Segment, pending: &mut Pending, out: &mut Vec<Segment>) {
    let Some((atomic, status)) = segment.marker.filter(|_| segment.file.queue == Kind::Rewrite) else {
        out.push(segment);
        return;
    };
    match status {
        AtomicStatus::Begin => {
            // One that began before and never ended is history.
            pending.insert(atomic, vec![segment]);
        }
        AtomicStatus::Middle => {
            if let Some(begun) = pending.get_mut(&atomic) {
                begun.push(segment);
            }
        }
        AtomicStatus::End => {
            let Some(begun) = pending.remove(&atomic) else { return };
            let first = begun.first().map_or(segment.file.sequence, |begin| begin.file.sequence);
            let files = Some((first, segment.file.sequence));
            segment.atomic = files;
            out.extend(begun.into_iter().map(|part| Segment { atomic: files, ..part }));
            out.push(segment);
        }
    }
}

/// What one worker does of a segment: with which keys and values, in which file, and that of which atomic group it is.
type Part = (Vec<Steps>, Arc<Vec<u8>>, FileId, Option<(u64, u64)>);

/// Changes the groups: each worker those that are its own, in order.
fn apply(env: &Env, threads: usize, segments: Vec<Segment>, groups: &Arc<Groups>) -> Result<()> {
    let mut jobs: Vec<(usize, Vec<Part>)> = (0..threads).map(|worker| (worker, Vec::new())).collect();
    for Segment { file, changes: Changes { by_worker, bytes }, atomic, .. } in segments {
        let bytes = Arc::new(bytes);
        for ((_, parts), steps) in jobs.iter_mut().zip(by_worker) {
            parts.push((steps, Arc::clone(&bytes), file, atomic));
        }
    }
    let groups = Arc::clone(groups);
    parallel::each(env, threads, jobs, move |(worker, parts)| {
        let mut shards = groups.part(worker, threads);
        for (of_groups, bytes, file, atomic) in parts {
            for Steps { group, steps } in of_groups {
                shards.replay(group, steps, &bytes, file, atomic);
            }
        }
    })
    .map(drop)
}
