//! Replaying a queue: files are scanned in parallel, then groups are changed in parallel, each in the order of the files.
//!
//! - P1: the rewrite queue is replayed first, as a whole; the append queue on top of it.
//! - P2: batches of an atomic group count at its end, or not at all.
//!
//! Cost: a wave of files is in memory at a time, as what its batches do: some 40 bytes for each item, of keys that are put over and over only the last.

use std::sync::Arc;

use esker_env::Env;
use esker_format::raft::file_header;
use esker_format::raft::file_name::Queue as Kind;
use esker_format::raft::item::AtomicStatus;

use super::Cut;
use super::files::Found;
use super::scan::{Ending, How, Op, Scanned, Segment, What, scan};
use crate::group::groups::GroupMap;
use crate::group::{Change, Groups, Place};
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
}

/// Batches of atomic groups that have not ended, by the group's number.
type Pending = GroupMap<Vec<Segment>>;

/// Replays the files of one queue into `groups`; says of each what is valid of it, and what was cut.
pub(crate) fn replay(
    env: &Env,
    threads: usize,
    mode: RecoveryMode,
    files: &[Found],
    groups: &Arc<Groups>,
    cuts: &mut Vec<Cut>,
) -> Result<Vec<Replayed>> {
    let mut replayed = Vec::with_capacity(files.len());
    let mut pending = Pending::default();
    for wave in files.chunks(threads * WAVE_FILES) {
        let last = files.last().map(|file| file.id);
        let jobs: Vec<(Found, How)> =
            wave.iter().map(|found| (found.clone(), How::of(found, files.first(), files.last(), threads))).collect();
        let disk = Arc::clone(&env.files);
        let scanned = parallel::each(env, threads, jobs, move |(found, how)| {
            let scanned = scan(&*disk, &found, how);
            (found, scanned)
        })?;
        let mut segments = Vec::new();
        for (found, scanned) in scanned {
            let is_last = Some(found.id) == last;
            let Scanned { header, segments: these, batches, valid_len, file_len, ending } = scanned?;
            // A header is durable before anything follows it: no crash takes it from before something.
            let has_lost_header = header.is_none() && file_len > file_header::LEN_BYTES_MAX as u64;
            let may_be_torn = is_last && !(has_lost_header && matches!(ending, Ending::Torn(_)));
            accept(mode, may_be_torn, &found, valid_len, file_len, ending, cuts)?;
            these.into_iter().for_each(|segment| order(segment, &mut pending, &mut segments));
            replayed.push(Replayed { found, header, valid_len, file_len, batches });
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

/// Changes the groups: each worker those of its own buckets, in order.
fn apply(env: &Env, threads: usize, segments: Vec<Segment>, groups: &Arc<Groups>) -> Result<()> {
    let segments = Arc::new(segments);
    let groups = Arc::clone(groups);
    parallel::each(env, threads, (0..threads).collect(), move |worker: usize| {
        let mut part = groups.part(worker, threads);
        for segment in segments.iter() {
            let bytes = segment.source.bytes();
            for op in segment.buckets.get(worker).into_iter().flatten() {
                let place = Place { file: segment.file, offset: op.offset };
                part.replay(op.group, &change(op, bytes), place, segment.atomic);
            }
        }
    })
    .map(drop)
}

fn change<'a>(op: &Op, bytes: &'a [u8]) -> Change<'a> {
    let at = |range: &std::ops::Range<usize>| bytes.get(range.clone()).unwrap_or_default();
    match &op.what {
        What::Entries { first, count } => Change::Entries { first: *first, count: *count },
        What::Compact { index } => Change::Compact { index: *index },
        What::Put(put) => Change::Put { key: at(&put.key), value: at(&put.value) },
        What::Delete { key } => Change::Delete { key: at(key) },
        What::Clean => Change::Clean,
    }
}
