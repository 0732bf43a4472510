//! Which files to merge. Pure: the same files, the same plan.

use std::sync::Arc;

use super::MOVES_MAX;
use crate::file::{DataFile, FileTable, FileUsage};
use crate::options::CaskOptions;

/// Files to merge, by ascending number.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) victims: Vec<Arc<DataFile>>,
    /// What the merge writes, about.
    pub(crate) need: u64,
    /// The most that it may write: what has expired may leave deletions as long as it was.
    pub(crate) most: u64,
}

/// What a merge may write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) need: u64,
    pub(crate) most: u64,
}

impl Room {
    pub(crate) const fn is_enough(self, need: u64, most: u64) -> bool {
        need <= self.need && most <= self.most
    }
}

impl Plan {
    fn of(candidate: Candidate) -> Self {
        Self { need: candidate.need(), most: candidate.most, victims: vec![candidate.file] }
    }

    fn add(&mut self, candidate: Candidate) {
        self.need += candidate.need();
        self.most += candidate.most;
        self.victims.push(candidate.file);
    }
}

#[derive(Debug, Clone)]
struct Candidate {
    file: Arc<DataFile>,
    usage: FileUsage,
    /// Bytes that come back if it is merged.
    gain: u64,
    /// What a merge of it alone writes at most.
    most: u64,
    /// Bytes of deletions that stay.
    stuck: u64,
}

/// A file that takes less than this share of what a merge may write, in bytes and in records (R6), is a small one: copies and compactions end
/// files however short they are. So many of them become one.
const SMALL_SHARE: u64 = 8;
/// So many small files are merged though they give nothing back: each takes a descriptor, and an entry in every manifest.
const SMALL_FILES_MIN: usize = 16;

impl Candidate {
    /// What a merge of it alone writes, about.
    const fn need(&self) -> u64 {
        self.usage.bytes.saturating_sub(self.gain)
    }

    fn is_small(&self, file_bytes: u64) -> bool {
        self.usage.bytes < file_bytes / SMALL_SHARE && self.usage.live_records() < MOVES_MAX as u64 / SMALL_SHARE
    }
}

/// Whether `file` holds no record that a deletion of this version, the newest record of its key, hides.
pub(crate) fn cannot_hold_older(file: &DataFile, version: u64) -> bool {
    file.clean_as_of >= version || !holds_dead(file)
}

/// Whether what a merge copies is clean as of the moment at which it begins. What a deletion up to then hides is dead, and not copied, unless that lies in damage
/// now and is read again later. Only older versions that are kept may come to be hidden by one that takes the place of a value that has expired, and has its
/// version (R3).
pub(crate) fn are_copies_clean(files: &FileTable, options: &CaskOptions) -> bool {
    !files.iter().any(|file| file.is_damaged())
        && (options.keep_versions == 1 || !files.iter().any(|file| file.expires()))
}

/// A damaged record counts: it may be of any key.
fn holds_dead(file: &DataFile) -> bool {
    file.dead_len() > 0 || file.is_damaged()
}

fn is_mergeable(file: &DataFile) -> bool {
    file.is_sealed() && !file.is_damaged()
}

/// `now`: seconds since 1970.
fn candidates(files: &FileTable, now: u64) -> Vec<Candidate> {
    // The two that are clean as of the lowest versions tell for every file whether another may hold what a deletion in it hides (R2).
    let holders = files.iter().filter(|file| holds_dead(file)).map(|file| (file.clean_as_of, file.number));
    let mut lowest: Vec<_> = holders.collect();
    lowest.sort_unstable();
    lowest.truncate(2);
    let measured = files.iter().filter(|file| is_mergeable(file)).map(|file| {
        let usage = file.usage();
        let other = lowest.iter().find(|(_, number)| *number != file.number);
        let can_go = other.is_none_or(|(clean_as_of, _)| *clean_as_of >= file.version_max());
        let (gone, stuck) = if can_go { (usage.tombstone_bytes, 0) } else { (0, usage.tombstone_bytes) };
        // Some of what has expired may be dead besides: then there is less to gain, and a merge that finds out.
        let gain = (usage.dead_bytes + gone + file.expired_bytes(now)).min(usage.bytes);
        let most = usage.bytes.saturating_sub(usage.dead_bytes + gone);
        Candidate { file: file.clone(), usage, gain, most, stuck }
    });
    measured.collect()
}

/// The files that are worth merging by the options' ratio: the one that gives most, and others as long as what
/// lives in all of them fits into one merge. Where there is no more than `room`, the one that needs least of it.
pub(crate) fn due(files: &FileTable, options: &CaskOptions, now: u64, room: Option<Room>) -> Option<Plan> {
    let candidates = candidates(files, now);
    let is_due = |candidate: &Candidate| {
        candidate.gain > 0 && candidate.gain as f64 >= options.merge_garbage_ratio * candidate.usage.bytes as f64
    };
    let (mut found, others): (Vec<Candidate>, Vec<Candidate>) = candidates.into_iter().partition(is_due);
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.gain));
    if found.is_empty() {
        found = blockers(files, &others, options);
    }
    if found.is_empty() {
        let small = others.into_iter().filter(|candidate| candidate.is_small(options.file_bytes));
        found = small.collect();
        // Those of two copies, where all stripes are in use.
        if found.len() < SMALL_FILES_MIN.max(2 * options.stripes) {
            return None;
        }
    }
    plans(found, options.file_bytes, room).into_iter().next()
}

/// Files that give little back but keep more deletions from going than are worth keeping, oldest first: their copies are clean, and the
/// deletions go. So the files are copied once for as many bytes of deletions as the ratio says.
fn blockers(files: &FileTable, candidates: &[Candidate], options: &CaskOptions) -> Vec<Candidate> {
    if !are_copies_clean(files, options) {
        // A copy would be in the way again with its next dead record.
        return Vec::new();
    }
    // What another file keeps, too, which cannot be merged, stays in any case.
    let unmergeable = files.iter().filter(|file| !is_mergeable(file) && holds_dead(file));
    let within_reach = unmergeable.map(|file| file.clean_as_of).min().unwrap_or(u64::MAX);
    let stuck = candidates.iter().filter(|one| one.stuck > 0 && one.file.version_max() <= within_reach);
    let (bytes, version) =
        stuck.fold((0, 0), |(bytes, version), one| (bytes + one.stuck, one.file.version_max().max(version)));
    let total: u64 = files.iter().map(|file| file.usage().bytes).sum();
    if bytes as f64 <= options.merge_garbage_ratio * total as f64 {
        return Vec::new();
    }
    let blocks = |one: &&Candidate| one.usage.dead_records > 0 && one.file.clean_as_of < version;
    candidates.iter().filter(blocks).cloned().collect()
}

/// All files that give anything back, and small ones that fit into one, in as many plans as it takes. Where there is no more than `room`, those
/// for which it is enough, the small ones once no other is left.
pub(crate) fn everything(files: &FileTable, file_bytes: u64, now: u64, room: Option<Room>) -> Vec<Plan> {
    let (mut found, others): (Vec<Candidate>, Vec<Candidate>) =
        candidates(files, now).into_iter().partition(|candidate| candidate.gain > 0);
    let small: Vec<Candidate> = others.into_iter().filter(|candidate| candidate.is_small(file_bytes)).collect();
    // One more beside what is copied anyway makes no fewer files.
    if small.len() > 1 {
        found.extend(small);
    }
    plans(found, file_bytes, room)
}

fn plans(mut candidates: Vec<Candidate>, file_bytes: u64, room: Option<Room>) -> Vec<Plan> {
    if let Some(room) = room {
        let (mut found, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| candidate.gain > 0);
        found.retain(|candidate| room.is_enough(candidate.need(), candidate.most));
        if !found.is_empty() {
            // One by one: what each gives back is there for the next.
            found.sort_by_key(|candidate| (candidate.need(), candidate.most));
            return found.into_iter().map(Plan::of).collect();
        }
        candidates = others;
    }
    let mut plans: Vec<Plan> = Vec::new();
    let (mut bytes, mut records) = (0, 0);
    for candidate in candidates {
        bytes += candidate.usage.live_bytes();
        records += candidate.usage.live_records();
        match plans.last_mut() {
            Some(plan) if bytes <= file_bytes && records <= MOVES_MAX as u64 => plan.add(candidate),
            _ => {
                (bytes, records) = (candidate.usage.live_bytes(), candidate.usage.live_records());
                plans.push(Plan::of(candidate));
            }
        }
    }
    plans.retain(|plan| room.is_none_or(|room| room.is_enough(plan.need, plan.most)));
    for plan in &mut plans {
        plan.victims.sort_unstable_by_key(|file| file.number);
    }
    plans
}
