//! Which blob files to empty next. Pure: same version, same goal, same plan.
//!
//! The ledger knows of each blob file what no table points to any more. It does not know of values that were overwritten
//! by what lies in a higher level and has not met them yet. What the levels above the deepest point to is about as much
//! as they hide, so that much is taken off the living when they are weighed against the bound; and if no file has enough
//! garbage to be worth emptying, the bound is kept by compacting those levels, which brings the garbage to light.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;

use crate::family::Family;
use crate::options::Separation;
use crate::version::{TableFile, Version};

/// A pass ends up this far below the bound, as a part of what the bound allows above the living: so that the next one is
/// not due at once.
const LOW_WATER: f64 = 0.8;
/// Hidden garbage counts for at most this part of what lives as far as the ledger knows: new keys hide nothing.
const HIDDEN_PARTS: u64 = 2;

/// Blob files to empty, and the tables to rewrite for that.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) family: Arc<Family>,
    pub(crate) version: Arc<Version>,
    pub(crate) victims: BTreeSet<FileNumber>,
    /// Those that point into victims, or may; the deepest level first, in key order within a level.
    pub(crate) tables: Vec<(usize, Arc<TableFile>)>,
}

impl Relocation {
    /// Whether somebody else reads one of its tables.
    pub(crate) fn is_claimed(&self) -> bool {
        self.tables.iter().any(|(_, table)| table.is_claimed())
    }

    /// Keeps others away from its tables, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.tables.iter().for_each(|(_, table)| table.set_claimed(claimed));
    }
}

/// What a pass is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Keep bytes of blob files per living byte below this.
    Bound(f64),
    /// Empty all files of which at least this part is garbage.
    Garbage(f64),
    /// Have no blob file any more.
    None,
}

/// One blob file, as picking sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Use {
    number: FileNumber,
    disk_bytes: u64,
    live_bytes: u64,
}

impl Use {
    fn garbage_part(&self) -> f64 {
        self.disk_bytes.saturating_sub(self.live_bytes) as f64 / self.disk_bytes.max(1) as f64
    }
}

/// The next pass over a family's blob files; `None` if there is nothing to gain. Files of `damaged` are left alone.
pub(crate) fn pick(family: &Arc<Family>, goal: Goal, damaged: &BTreeSet<FileNumber>) -> Option<Relocation> {
    let version = family.view.load().version.clone();
    if version.blobs().is_empty() {
        return None;
    }
    let goal = if family.separation() == Separation::FallBack { Goal::None } else { goal };
    let uses: Vec<Use> = uses_of(&version).collect();
    let budget = family.options.blob_file_bytes;
    let victims: BTreeSet<FileNumber> = match goal {
        Goal::Bound(bound) => above(&uses, bound, hidden_bytes(&version), budget, damaged),
        Goal::Garbage(part) => within(budget, candidates(&uses, part, damaged)),
        Goal::None => within(budget, candidates(&uses, f64::NEG_INFINITY, damaged)),
    };
    let last = victims.last().copied()?;
    let points_there = |table: &TableFile| match table.known_blob_refs() {
        Some(refs) => refs.keys().any(|file| victims.contains(file)),
        None => table.meta.oldest_blob_file.is_some_and(|oldest| oldest <= last),
    };
    let tables = version.levels().rev().flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
    let tables: Vec<_> =
        tables.filter(|(_, table)| points_there(table)).map(|(level, table)| (level, table.clone())).collect();
    // Without a table there is nothing to do for a file: damage, which a check names.
    (!tables.is_empty()).then(|| Relocation { family: family.clone(), version: version.clone(), victims, tables })
}

fn uses_of(version: &Version) -> impl Iterator<Item = Use> + '_ {
    version.ledger().iter().map(|(number, usage)| Use {
        number,
        disk_bytes: usage.bytes.saturating_sub(hole_bytes(version, number)).max(usage.live_bytes()),
        live_bytes: usage.live_bytes(),
    })
}

fn hole_bytes(version: &Version, number: FileNumber) -> u64 {
    version.blobs().get(&number).map_or(0, |blob| blob.holes.bytes())
}

/// Whether the blob files take more than the bound.
pub(crate) fn exceeds(version: &Version, bound: f64) -> bool {
    let disk: u64 = uses_of(version).map(|file| file.disk_bytes).sum();
    disk as f64 > bound * surely_live(version.ledger().total().live_bytes(), hidden_bytes(version))
}

/// What the tables above the deepest level point to.
pub(super) fn hidden_bytes(version: &Version) -> u64 {
    let deepest = version.deepest_level();
    let above = version.tables().filter(|(level, _)| *level < deepest);
    above.filter_map(|(_, table)| table.known_blob_refs()).flat_map(|refs| refs.values()).sum()
}

/// Whether the bound is exceeded, and a compaction would tell how much of what the ledger takes for living is not.
pub(crate) fn hides_too_much(version: &Version, bound: f64) -> bool {
    hidden_bytes(version) > 0 && exceeds(version, bound)
}

fn surely_live(live: u64, hidden: u64) -> f64 {
    (live - hidden.min(live / HIDDEN_PARTS)) as f64
}

/// Those with the most garbage, as many as it takes to come well below the bound; none if it is kept.
fn above(uses: &[Use], bound: f64, hidden: u64, budget: u64, damaged: &BTreeSet<FileNumber>) -> BTreeSet<FileNumber> {
    let disk: u64 = uses.iter().map(|file| file.disk_bytes).sum();
    let live: u64 = uses.iter().map(|file| file.live_bytes).sum();
    let live = surely_live(live, hidden);
    if disk as f64 <= bound * live {
        return BTreeSet::new();
    }
    let mut too_much = disk as f64 - (1.0 + (bound - 1.0) * LOW_WATER) * live;
    // Half of what the bound allows on average: copying more than that for what comes free is no bargain.
    let least = (bound - 1.0) / bound / 2.0;
    let enough = candidates(uses, least, damaged).into_iter().take_while(|file| {
        let goes_on = too_much > 0.0;
        too_much -= file.disk_bytes.saturating_sub(file.live_bytes) as f64;
        goes_on
    });
    within(budget, enough.collect())
}

/// Files of which at least `part` is garbage, those with the most first.
fn candidates(uses: &[Use], part: f64, damaged: &BTreeSet<FileNumber>) -> Vec<Use> {
    let mut candidates: Vec<Use> =
        uses.iter().filter(|file| file.garbage_part() >= part && !damaged.contains(&file.number)).copied().collect();
    candidates.sort_by(|a, b| b.garbage_part().total_cmp(&a.garbage_part()).then(a.number.cmp(&b.number)));
    candidates
}

/// As many as one pass copies, at least one.
fn within(budget: u64, files: Vec<Use>) -> BTreeSet<FileNumber> {
    let mut copied = 0u64;
    let fits = |file: &Use| {
        let is_first = copied == 0;
        copied = copied.saturating_add(file.live_bytes.max(1));
        is_first || copied <= budget
    };
    files.into_iter().take_while(fits).map(|file| file.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(u64, u64)]) -> Vec<Use> {
        let file = |(index, &(disk_bytes, live_bytes)): (usize, &(u64, u64))| Use {
            number: FileNumber::new(index as u64 + 1),
            disk_bytes,
            live_bytes,
        };
        files.iter().enumerate().map(file).collect()
    }

    fn numbers(set: BTreeSet<FileNumber>) -> Vec<u64> {
        set.into_iter().map(FileNumber::get).collect()
    }

    #[test]
    fn nothing_is_emptied_while_the_bound_is_kept() {
        let files = uses(&[(100, 80), (100, 70), (100, 90)]);
        assert_eq!(numbers(above(&files, 1.3, 0, 1000, &BTreeSet::new())), []);
        assert_eq!(numbers(above(&files, 1.2, 0, 1000, &BTreeSet::new())), [2]);
    }

    #[test]
    fn what_higher_levels_hide_counts_as_garbage() {
        let files = uses(&[(100, 80), (100, 70), (100, 90)]);
        assert_eq!(numbers(above(&files, 1.3, 40, 1000, &BTreeSet::new())), [1, 2]);
    }

    #[test]
    fn files_with_the_most_garbage_go_first_and_damaged_ones_stay() {
        let files = uses(&[(100, 80), (100, 10), (100, 20), (100, 100)]);
        assert_eq!(numbers(above(&files, 1.5, 0, 20, &BTreeSet::new())), [2]);
        assert_eq!(numbers(above(&files, 1.5, 0, 30, &BTreeSet::new())), [2, 3]);
        let damaged = BTreeSet::from([FileNumber::new(2)]);
        assert_eq!(numbers(above(&files, 1.5, 0, 1000, &damaged)), [1, 3]);
    }

    #[test]
    fn a_pass_takes_at_least_one_file_however_large() {
        assert_eq!(numbers(within(10, uses(&[(100, 80), (100, 1)]))), [1]);
    }
}
