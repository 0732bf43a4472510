//! Which files to merge. Pure: the same files, the same plan.

use std::sync::Arc;

use crate::file::{DataFile, FileTable, FileUsage};
use crate::options::CaskOptions;

/// Files to merge, by ascending number.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) victims: Vec<Arc<DataFile>>,
}

struct Candidate {
    file: Arc<DataFile>,
    usage: FileUsage,
    /// Bytes that come back if it is merged.
    gain: u64,
}

/// Whether no file but `file` can hold what a deletion in it hides (R2), whatever the deletion.
fn tombstones_can_go(file: &DataFile, files: &FileTable) -> bool {
    let others = files.iter().filter(|other| other.number != file.number);
    others.into_iter().all(|other| cannot_hold_older(other, file.version_max()))
}

/// Whether `file` holds no record that a deletion of this version, the newest record of its key, hides. A damaged record counts: it may
/// be of any key.
pub(crate) fn cannot_hold_older(file: &DataFile, version: u64) -> bool {
    file.clean_as_of >= version || file.dead_len() == 0 && !file.is_damaged()
}

/// `now`: seconds since 1970.
fn candidates(files: &FileTable, now: u64) -> Vec<Candidate> {
    let sealed = files.iter().filter(|file| file.is_sealed() && !file.is_damaged());
    let measured = sealed.map(|file| {
        let usage = file.usage();
        let tombstones = if usage.tombstones > 0 && tombstones_can_go(file, files) { usage.tombstone_bytes } else { 0 };
        // Some of what has expired may be dead besides: then there is less to gain, and a merge that finds out.
        let gain = (usage.dead_bytes + tombstones + file.expired_bytes(now)).min(usage.bytes);
        Candidate { file: file.clone(), usage, gain }
    });
    measured.collect()
}

/// The files that are worth merging by the options' ratio: the one that gives most, and others as long as what
/// lives in all of them fits into one file.
pub(crate) fn due(files: &FileTable, options: &CaskOptions, now: u64) -> Option<Plan> {
    let is_due = |candidate: &Candidate| {
        candidate.gain > 0 && candidate.gain as f64 >= options.merge_garbage_ratio * candidate.usage.bytes as f64
    };
    let mut found: Vec<Candidate> = candidates(files, now).into_iter().filter(is_due).collect();
    found.sort_by_key(|candidate| std::cmp::Reverse(candidate.gain));
    plans(found, options.file_bytes).into_iter().next()
}

/// All files that give anything back, in as many plans as it takes.
pub(crate) fn everything(files: &FileTable, file_bytes: u64, now: u64) -> Vec<Plan> {
    let found = candidates(files, now).into_iter().filter(|candidate| candidate.gain > 0).collect();
    plans(found, file_bytes)
}

fn plans(candidates: Vec<Candidate>, file_bytes: u64) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut live_bytes = 0;
    for candidate in candidates {
        let live = candidate.usage.bytes.saturating_sub(candidate.usage.dead_bytes);
        match plans.last_mut() {
            Some(plan) if live_bytes + live <= file_bytes => {
                plan.victims.push(candidate.file);
                live_bytes += live;
            }
            _ => {
                plans.push(Plan { victims: vec![candidate.file] });
                live_bytes = live;
            }
        }
    }
    for plan in &mut plans {
        plan.victims.sort_unstable_by_key(|file| file.number);
    }
    plans
}
