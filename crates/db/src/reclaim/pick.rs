//! Which blob files to empty next, and how. Pure: same version, same need, same pass.
//!
//! The ledger knows of each blob file what no table points to any more. Of what is overwritten or deleted and not known to it,
//! see [`hidden`](super::hidden): as much of it counts as compactions have lately found to hide something.
//!
//! - K1: a pass is begun only if what it frees is worth it, and takes the files that cost least for each byte that comes free:
//!   those with the most garbage.
//! - K2: where most tables point into these files, or much is hidden, a *sweep* over all levels brings both to light and to an
//!   end, and writes each key once. Where few do, only those are rewritten, each in its own level.
//! - K4: values are brought together in key order, out of the smallest files: where scans found neighbours here and there, and no more is
//!   written than they read so; and where memtables are so small that each flush leaves a file of a few values in every range of keys.
//!   Of those, sixteen or more of like size (for each range of keys) are merged when nobody writes or reads much, until they are a sixteenth of what
//!   a blob file may be: a value is copied once for each time that its file grows by sixteen.
//! - K3: where holes are to be had, values are copied only out of files that are mostly garbage in spite of them.
//! - K5: where blob files belong to ranges of keys, a [window](super::window) comes before a pass over everything, but for when none is worth it or,
//!   while writers wait, the other is cheaper: that writes all keys, and whoever waits does so until it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;
use esker_log::ledger::Usage;

use super::hidden::hidden_bytes;
use super::punch::has_pages;
use super::room::{BLOCK_BYTES, rounding_bytes};
use super::window::{Share, WINDOW_COPY_PART, pick_window};
use crate::compaction;
use crate::family::Family;
use crate::options::Separation;
use crate::version::{TableFile, Version};

/// A pass copies this part of what the bound allows above what lives: more would keep less garbage waiting for it to grow, less
/// would write the tables more often.
pub(super) const PASS_PART: u64 = 4;
/// But no more than so many times the tables: beside large values those are next to nothing, and what a pass copies has to lie twice until it ends.
const COPIED_PER_TABLES: u64 = 16;
/// Tables that a sweep rewrites at most, in bytes, unless it copies more than that: larger trees are done table by table.
const SWEEP_BYTES_MAX: u64 = 256 << 20;
/// Where holes are to be had: the least part of a file that is garbage for its values to be copied (K3).
const PART_BESIDE_HOLES: f64 = 0.5;
/// Files that become one, where scans touch many: fewer are not worth it.
const GATHERED_MIN: usize = 4;
/// So many small files of like size are too many, and small is a file that is a smaller part of what a blob file may be (K4).
const SMALL_FILES_MAX: usize = 16;
const SMALL_PART: u64 = 16;
/// Of like size: as many digits in this base.
const SIZES_APART: u64 = 16;
/// What is larger on average gains nothing by its neighbours: a page, which a device reads at once.
const NEIGHBOUR_BYTES_MAX: u64 = 4096;

/// Blob files to empty, and the tables to rewrite for that.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) family: Arc<Family>,
    pub(crate) version: Arc<Version>,
    pub(crate) victims: BTreeSet<FileNumber>,
    /// Those that point into victims, or may; the deepest level first, in key order within a level.
    pub(crate) tables: Vec<(usize, Arc<TableFile>)>,
    /// Whether others may be left that do: see [`home`](super::home).
    pub(crate) is_step_home: bool,
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

    /// About what it will write.
    pub(crate) fn written_bytes(&self) -> u64 {
        let tables: u64 = self.tables.iter().map(|(_, table)| table.meta.file_bytes).sum();
        let moved = self.moved_bytes();
        // What comes home goes to no blob file.
        let (of_blobs, home) = if self.is_step_home { (0, moved) } else { (moved, 0) };
        tables + moved + rounding_bytes(&self.family, self.tables.len(), tables + home, of_blobs)
    }

    /// What lives in its victims, as far as its tables point there.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.version.bytes_into(&self.victims, self.tables.iter().map(|(_, table)| table))
    }
}

/// One of the ways to copy what lives (K2).
#[derive(Debug)]
pub(crate) enum Pass {
    Sweep(compaction::Plan),
    Relocation(Relocation),
}

impl Pass {
    /// About what it will write.
    pub(crate) fn written_bytes(&self) -> u64 {
        match self {
            Self::Sweep(plan) => plan.written_bytes(),
            Self::Relocation(plan) => plan.written_bytes(),
        }
    }

    /// The blob files that it empties.
    pub(crate) fn victims(&self) -> &BTreeSet<FileNumber> {
        match self {
            Self::Sweep(plan) => &plan.victims,
            Self::Relocation(plan) => &plan.victims,
        }
    }
}

/// What a pass may copy that writes all tables, if it is to write no more than `need` allows: blocks of the file system round each blob file up.
pub(super) fn room_for_values(family: &Family, version: &Version, need: &Need, of_tables: u64) -> u64 {
    let blob_file_bytes = family.blob_file_bytes();
    let fixed = of_tables + rounding_bytes(family, version.table_sums().count, of_tables, 1);
    let left = need.written_bytes_max.saturating_sub(fixed);
    left - left / (blob_file_bytes / BLOCK_BYTES).max(1)
}

/// What a pass copies at most, where the bound leaves `slack` above what lives.
pub(crate) fn copied_bytes(family: &Family, version: &Version, slack: u64) -> u64 {
    let most = slack / PASS_PART;
    // Windows write little of the tables.
    let most = if family.ranges.count() > 1 { most } else { most.min(copied_beside_tables(version)) };
    most.max(family.blob_file_bytes() / 2)
}

fn copied_beside_tables(version: &Version) -> u64 {
    version.table_sums().bytes.saturating_mul(COPIED_PER_TABLES)
}

/// About what a pass over blob files writes: all tables and what it copies, or what one range holds.
pub(crate) fn pass_bytes(family: &Family, version: &Version, slack: u64) -> u64 {
    let tables = version.table_sums().bytes;
    match family.ranges.count() as u64 {
        1 => tables.saturating_add(copied_bytes(family, version, slack)),
        ranges => tables / ranges + (version.ledger().total().live_bytes() / ranges).min(slack / WINDOW_COPY_PART),
    }
}

/// What writers leave of the bound for the next pass, with or without holes: what it writes, where that is little. Nothing for a large one, or they
/// would have half of what the bound allows.
pub(crate) fn next_pass_bytes(family: &Family, version: &Version, slack: u64, punches: bool) -> u64 {
    if family.separation() == Separation::FallBack || version.blobs().is_empty() {
        return 0;
    }
    match pass_bytes(family, version, slack) {
        _ if !writes_little(family, version, slack) => 0,
        // Of what is copied beside holes more is garbage.
        pass if punches && has_pages(version) => pass / 2,
        pass => pass,
    }
}

/// Whether a pass writes little of what the bound allows: a window, or one that copies little for large values.
pub(crate) fn writes_little(family: &Family, version: &Version, slack: u64) -> bool {
    family.ranges.count() > 1 || copied_bytes(family, version, slack) < slack / PASS_PART
}

/// What a pass may cost, and has to bring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// It copies at most so much, but for its first file.
    pub(crate) copied_bytes_max: u64,
    /// If it is one over everything, at most so much.
    pub(crate) copied_by_everything_max: u64,
    /// And writes at most so much, tables included.
    pub(crate) written_bytes_max: u64,
    /// Whether writers wait, or did a moment ago: then what is cheapest comes first, however long it takes.
    pub(crate) is_pressed: bool,
    /// It frees no less than this.
    pub(crate) freed_bytes_min: u64,
    /// The least part of a file that is garbage for it to be emptied.
    pub(crate) garbage_part_min: f64,
    /// How much of what the levels above the deepest may hide is taken for garbage.
    pub(crate) hidden_part: f64,
    /// Whether dead pages can become holes.
    pub(crate) can_punch: bool,
    /// Whether all tables may be rewritten at once.
    pub(crate) may_sweep: bool,
}

impl Need {
    /// The least part of a file that is garbage for its values to be copied, where `hidden` bytes may be hidden besides (K3).
    pub(super) fn part_min(&self, version: &Version, hidden: u64) -> f64 {
        match self.can_punch && has_pages(version) && hidden >= self.freed_bytes_min {
            true => self.garbage_part_min.max(PART_BESIDE_HOLES),
            false => self.garbage_part_min,
        }
    }
}

/// What passes that are only foretold have done to a version, as far as that decides what comes next. Of a pass that is to run: nothing.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    /// Blob files that they have emptied.
    pub(super) emptied: BTreeSet<FileNumber>,
    /// What holes come to in files in which they made some.
    pub(super) hole_bytes: BTreeMap<FileNumber, u64>,
}

/// What a pass is for that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Empty all files of which at least this part is garbage, and that are older than this number: there are others while somebody writes.
    /// Where a family falls back, all files.
    Garbage(f64, FileNumber),
    /// Have no blob file any more, as long as the family falls back.
    None,
}

/// One blob file, as picking sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Use {
    pub(super) number: FileNumber,
    pub(super) disk_bytes: u64,
    pub(super) live_bytes: u64,
}

impl Use {
    pub(super) fn garbage_bytes(&self) -> u64 {
        self.disk_bytes.saturating_sub(self.live_bytes)
    }

    fn garbage_part(&self) -> f64 {
        self.garbage_bytes() as f64 / self.disk_bytes.max(1) as f64
    }
}

/// The next pass that `need` asks for; `None` if there is nothing to gain, or what it takes is claimed. Files of `damaged` are left
/// alone.
pub(crate) fn pick_pass(family: &Arc<Family>, need: &Need, damaged: &BTreeSet<FileNumber>) -> Option<Pass> {
    let version = family.view.load().version.clone();
    if version.blobs().is_empty() {
        return None;
    }
    let window = pick_window(family, need, damaged);
    if !need.is_pressed && window.is_some() {
        return window.map(|(_, plan)| Pass::Sweep(plan));
    }
    let hidden = (hidden_bytes(&version) as f64 * need.hidden_part) as u64;
    let uses: Vec<Use> = uses_of(&version).collect();
    let part_min = need.part_min(&version, hidden);
    let all_bytes = version.table_sums().bytes;
    // The first file may be more than a pass should copy, but not more than there is room for.
    let room = room_for_values(family, &version, need, all_bytes);
    let mut candidates = candidates(&uses, part_min, damaged);
    candidates.retain(|file| file.live_bytes <= room);
    retain_pointed_to(&mut candidates, &version, damaged);
    // Less for one that copies less.
    let part = need.copied_by_everything_max as f64 / need.copied_bytes_max.max(1) as f64;
    let need = &Need { freed_bytes_min: (need.freed_bytes_min as f64 * part) as u64, ..*need };
    let chosen = worth(need, room, candidates);
    let sum = |of: fn(&Use) -> u64| uses.iter().filter(|file| chosen.contains(&file.number)).map(of).sum::<u64>();
    let live_bytes = sum(|file| file.live_bytes);
    let share = Share { freed_bytes: sum(Use::garbage_bytes), copied_bytes: live_bytes, live_bytes };
    let freed = share.freed_bytes;
    let is_cheaper = window.as_ref().is_some_and(|(gain, _)| *gain >= share.gain(version.table_sums().entries));
    let is_worth_it = family.ranges.count() == 1 || (freed >= need.freed_bytes_min && !is_cheaper);
    let everything = if is_worth_it { pass_over(family, &version, chosen, need, freed, hidden) } else { None };
    everything.or(window.map(|(_, plan)| Pass::Sweep(plan)))
}

/// Small files of like size, if there are too many of them (K4): those of the least size of which there are.
fn small_files(version: &Version, family: &Family, damaged: &BTreeSet<FileNumber>) -> Vec<Use> {
    let options = family.options();
    // A flush leaves a file for each range of keys.
    let ranges = family.ranges.count();
    let total = version.ledger().total();
    let gains = total.live_bytes() <= total.live_count().saturating_mul(NEIGHBOUR_BYTES_MAX);
    // Where lifetimes tell files apart, they stay apart.
    if !gains || options.blob_partition.is_some() {
        return Vec::new();
    }
    let mut like: BTreeMap<u32, Vec<Use>> = BTreeMap::new();
    let is_small = |file: &Use| {
        file.live_bytes < family.blob_file_bytes() / SMALL_PART / ranges as u64 && !damaged.contains(&file.number)
    };
    for file in uses_of(version).filter(is_small) {
        like.entry(file.live_bytes.max(1).ilog(SIZES_APART)).or_default().push(file);
    }
    like.into_values().find(|files| files.len() >= SMALL_FILES_MAX * ranges).unwrap_or_default()
}

/// Small files of like size that are too many (K4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowd {
    count: usize,
    /// Tells them from as many of another size.
    oldest: FileNumber,
}

/// See [`Crowd`]; `None` if there are not too many.
pub(crate) fn crowd(version: &Version, family: &Family, damaged: &BTreeSet<FileNumber>) -> Option<Crowd> {
    let files = small_files(version, family, damaged);
    let oldest = files.iter().map(|file| file.number).min()?;
    Some(Crowd { count: files.len(), oldest })
}

/// A pass that merges small files of like size (K4), within what `need` allows it to write. `None` if there are not many, or more
/// keys than values would be written, which is worth it only for somebody who scans.
pub(crate) fn pick_small(family: &Arc<Family>, need: &Need, damaged: &BTreeSet<FileNumber>) -> Option<Pass> {
    let version = family.view.load().version.clone();
    let files = small_files(&version, family, damaged);
    let live_bytes = files.iter().map(|file| (file.number, file.live_bytes)).collect::<BTreeMap<_, _>>();
    // The keys are written, too.
    let keys = version.table_sums().bytes;
    let room = room_for_values(family, &version, need, keys);
    let chosen = smallest(files, &Need { copied_bytes_max: need.copied_bytes_max.min(room), ..*need })?;
    let moved: u64 = chosen.iter().filter_map(|file| live_bytes.get(file)).sum();
    let worth = moved * 2 + rounding_bytes(family, version.table_sums().count, keys, moved);
    let need = Need { written_bytes_max: need.written_bytes_max.min(worth), ..*need };
    gather(family, &version, chosen, &need)
}

/// A pass that brings the values of the smallest files together where scans found them here and there (K4), within what `need` allows it to
/// write. `None` if that would not make much fewer of them.
pub(crate) fn pick_scattered(family: &Arc<Family>, need: &Need, damaged: &BTreeSet<FileNumber>) -> Option<Pass> {
    let version = family.view.load().version.clone();
    let chosen = smallest(uses_of(&version).filter(|file| !damaged.contains(&file.number)).collect(), need)?;
    gather(family, &version, chosen, need)
}

/// The smallest of `files` that one pass copies, if they are enough for it.
fn smallest(mut files: Vec<Use>, need: &Need) -> Option<BTreeSet<FileNumber>> {
    files.sort_by_key(|file| (file.live_bytes, file.number));
    // Where there are fewer, scans do not jump between them but within: values lie there in the order in which they were put.
    let least = files.len().clamp(1, GATHERED_MIN);
    Some(within(need.copied_bytes_max, files)).filter(|chosen| chosen.len() >= least)
}

fn gather(family: &Arc<Family>, version: &Arc<Version>, chosen: BTreeSet<FileNumber>, need: &Need) -> Option<Pass> {
    // What it brings is order: so much that nothing hidden weighs against it.
    pass_over(family, version, chosen, &Need { freed_bytes_min: 0, ..*need }, u64::MAX, 0)
}

fn pass_over(
    family: &Arc<Family>,
    version: &Arc<Version>,
    chosen: BTreeSet<FileNumber>,
    need: &Need,
    freed: u64,
    hidden: u64,
) -> Option<Pass> {
    let all_bytes = version.table_sums().bytes;
    let relocation = relocation_of(family, version, chosen.clone());
    let touched = |plan: &Relocation| plan.tables.iter().map(|(_, table)| table.meta.file_bytes).sum::<u64>();
    let touched = relocation.as_ref().map_or(0, touched);
    let sweeps = need.may_sweep
        && all_bytes <= SWEEP_BYTES_MAX.max(need.copied_bytes_max)
        && (hidden >= freed / 4 || touched >= all_bytes / 2);
    let fits = |plan_bytes: u64| plan_bytes <= need.written_bytes_max;
    if sweeps {
        let is_worth_it = freed.saturating_add(hidden) >= need.freed_bytes_min.max(1);
        let sweep = if is_worth_it { compaction::pick_sweep(family, version, chosen) } else { None };
        return sweep.filter(|plan| fits(plan.written_bytes())).map(Pass::Sweep);
    }
    let is_worth_it =
        |plan: &Relocation| freed >= need.freed_bytes_min && !plan.is_claimed() && fits(plan.written_bytes());
    relocation.filter(is_worth_it).map(Pass::Relocation)
}

/// The next pass over files of `version` older than `before` of which at least `part` is garbage; `None` if there is nothing to gain. The one after
/// those that are `foreseen`.
pub(crate) fn pick(
    family: &Arc<Family>,
    version: &Arc<Version>,
    part: f64,
    before: FileNumber,
    foreseen: &Foreseen,
) -> Option<Relocation> {
    let uses: Vec<Use> = uses_after(version, foreseen).filter(|file| file.number < before).collect();
    let mut candidates = candidates(&uses, part, &BTreeSet::new());
    retain_pointed_to(&mut candidates, version, &BTreeSet::new());
    relocation_of(family, version, within(family.blob_file_bytes(), candidates))
}

fn relocation_of(family: &Arc<Family>, version: &Arc<Version>, victims: BTreeSet<FileNumber>) -> Option<Relocation> {
    let tables = version.levels().rev().flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
    let tables: Vec<_> = tables
        .filter(|(_, table)| table.may_point_into(&victims))
        .map(|(level, table)| (level, table.clone()))
        .collect();
    let (family, version) = (family.clone(), version.clone());
    // Without a table there is nothing to do for a file: damage, which a check names.
    (!tables.is_empty()).then_some(Relocation { family, version, victims, tables, is_step_home: false })
}

pub(super) fn uses_of(version: &Version) -> impl Iterator<Item = Use> + '_ {
    version.ledger().iter().map(|(number, usage)| use_of(number, &usage, hole_bytes(version, number)))
}

/// The same once what is `foreseen` is done.
pub(super) fn uses_after<'a>(version: &'a Version, foreseen: &'a Foreseen) -> impl Iterator<Item = Use> + 'a {
    let left = version.ledger().iter().filter(|(number, _)| !foreseen.emptied.contains(number));
    left.map(|(number, usage)| {
        let holes = foreseen.hole_bytes.get(&number).copied();
        use_of(number, &usage, holes.unwrap_or_else(|| hole_bytes(version, number)))
    })
}

fn use_of(number: FileNumber, usage: &Usage, hole_bytes: u64) -> Use {
    let live_bytes = usage.live_bytes();
    Use { number, disk_bytes: usage.bytes.saturating_sub(hole_bytes).max(live_bytes), live_bytes }
}

/// How much of all blob files is garbage.
pub(crate) fn garbage_part(version: &Version) -> f64 {
    let (garbage, all) = uses_of(version).fold((0u64, 0u64), |(garbage, all), file| {
        (garbage.saturating_add(file.garbage_bytes()), all.saturating_add(file.disk_bytes))
    });
    garbage as f64 / all.max(1) as f64
}

fn hole_bytes(version: &Version, number: FileNumber) -> u64 {
    version.blobs().get(&number).map_or(0, |blob| blob.holes.bytes())
}

/// Files of which at least `part` is garbage, those with the most first.
pub(super) fn candidates(uses: &[Use], part: f64, damaged: &BTreeSet<FileNumber>) -> Vec<Use> {
    let mut candidates: Vec<Use> =
        uses.iter().filter(|file| file.garbage_part() >= part && !damaged.contains(&file.number)).copied().collect();
    candidates.sort_by(|a, b| b.garbage_part().total_cmp(&a.garbage_part()).then(a.number.cmp(&b.number)));
    candidates
}

/// Leaves out those into which nothing points that could be written again, as tables of `damaged` cannot: they would take the place of
/// others, for ever.
pub(super) fn retain_pointed_to(files: &mut Vec<Use>, version: &Version, damaged: &BTreeSet<FileNumber>) {
    let mut missing: BTreeSet<FileNumber> = files.iter().map(|file| file.number).collect();
    for (_, table) in version.tables().filter(|(_, table)| !damaged.contains(&table.number())) {
        match (table.known_blob_refs(), table.meta.oldest_blob_file) {
            // Of many tables each points into a few of many files.
            (Some(refs), _) if refs.len() < missing.len() => {
                for file in refs.keys() {
                    missing.remove(file);
                }
            }
            (Some(refs), _) => missing.retain(|file| !refs.contains_key(file)),
            (None, Some(oldest)) => drop(missing.split_off(&oldest)),
            (None, None) => {}
        }
        if missing.is_empty() {
            return;
        }
    }
    files.retain(|file| !missing.contains(&file.number));
}

/// As many as one pass over everything copies, at least one; more, if only they make it worth it.
fn worth(need: &Need, room: u64, files: Vec<Use>) -> BTreeSet<FileNumber> {
    let (few, most) = (need.copied_by_everything_max.min(room), need.copied_bytes_max.min(room));
    let (mut copied, mut freed) = (0u64, 0u64);
    let fits = |file: &Use| {
        let budget = if freed < need.freed_bytes_min { most } else { few };
        let is_first = copied == 0;
        copied = copied.saturating_add(file.live_bytes.max(1));
        freed = freed.saturating_add(file.garbage_bytes());
        is_first || copied <= budget
    };
    files.into_iter().take_while(fits).map(|file| file.number).collect()
}

/// As many as one pass copies, at least one.
pub(super) fn within(budget: u64, files: Vec<Use>) -> BTreeSet<FileNumber> {
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
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::compaction::testing::{open, separated};
    use crate::version::{Edit, Garbage, testing};
    use crate::{Db, FamilyOptions, Options};

    const NEED: Need = Need {
        copied_bytes_max: 0,
        copied_by_everything_max: 0,
        written_bytes_max: u64::MAX,
        is_pressed: false,
        freed_bytes_min: 0,
        garbage_part_min: 0.0,
        hidden_part: 0.0,
        can_punch: false,
        may_sweep: true,
    };

    fn uses(files: &[(u64, u64)]) -> Vec<Use> {
        let file = |(index, &(disk_bytes, live_bytes)): (usize, &(u64, u64))| Use {
            number: FileNumber::new(index as u64 + 1),
            disk_bytes,
            live_bytes,
        };
        files.iter().enumerate().map(file).collect()
    }

    fn chosen(files: &[(u64, u64)], part: f64, budget: u64, damaged: &[u64]) -> Vec<u64> {
        let damaged = damaged.iter().map(|&number| FileNumber::new(number)).collect();
        within(budget, candidates(&uses(files), part, &damaged)).into_iter().map(FileNumber::get).collect()
    }

    #[test]
    fn files_with_the_most_garbage_come_first_as_many_as_the_copy_may_cost() {
        let files = [(100, 10), (100, 50), (100, 40), (100, 99), (100, 30)];
        assert_eq!(chosen(&files, 0.3, 1000, &[]), [1, 2, 3, 5]);
        assert_eq!(chosen(&files, 0.3, 80, &[]), [1, 3, 5]);
        assert_eq!(chosen(&files, 0.3, 5, &[]), [1], "one in any case");
        assert_eq!(chosen(&files, 0.995, 1000, &[]), []);
        assert_eq!(chosen(&files, 0.3, 1000, &[1, 5]), [2, 3]);
        assert_eq!(chosen(&files, f64::NEG_INFINITY, 1000, &[]).len(), 5, "all of them, also without garbage");
    }

    /// Goal: a pass that may copy little is not given up because the first file has too little garbage to be worth it.
    #[test]
    fn a_small_pass_copies_more_if_that_makes_it_worth_it() {
        let files = uses(&[(10, 5), (50, 30), (50, 31)]);
        let numbers = |copied_by_everything_max, copied_bytes_max, freed_bytes_min| {
            let need = Need { copied_by_everything_max, copied_bytes_max, freed_bytes_min, ..NEED };
            let chosen = worth(&need, u64::MAX, files.clone());
            chosen.into_iter().map(FileNumber::get).collect::<Vec<_>>()
        };
        assert_eq!(numbers(20, 60, 5), [1], "it is worth it already");
        assert_eq!(numbers(20, 60, 6), [1, 2], "with another");
        assert_eq!(numbers(20, 30, 6), [1], "which is too much for any pass");
        assert_eq!(numbers(66, 66, 6), [1, 2, 3]);
    }

    /// Goal: a file without a table that could be written again keeps no other from being emptied, by hand or not.
    #[test]
    fn a_file_that_no_table_points_to_is_in_nobodys_way() {
        let family = FamilyOptions { write_buffer_bytes: 64 << 10, blob_file_bytes: 64 << 10, ..separated() };
        let db = open(&SimDisk::new(), family);
        let put = |keys: std::ops::Range<u8>| {
            keys.for_each(|n| db.put([n], [n; 1000]).unwrap());
            db.flush().unwrap();
        };
        put(0..50);
        let family = db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let orphan = *version.blobs().keys().next().unwrap();
        let garbage = [(orphan, Garbage { count: 1, bytes: version.ledger().total().bytes * 2 / 5 })].into();
        let deleted = version.tables().map(|(level, table)| (level, table.clone())).collect();
        let lost = Edit { deleted, garbage, ..Edit::default() };
        db.store().install(&family, lost, &[]).unwrap();
        put(100..150);
        put(100..115);
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        let need = Need { copied_bytes_max: 60_000, copied_by_everything_max: 60_000, garbage_part_min: 0.2, ..NEED };
        let pass = pick_pass(&family, &need, &BTreeSet::new());
        assert!(pass.is_some_and(|pass| pass.written_bytes() > 30_000));
        assert_eq!(db.reclaim(&db.default_column_family(), 0.2).unwrap().passes, 1);
        let left: Vec<FileNumber> = family.view.load().version.blobs().keys().copied().collect();
        assert!(left.len() == 3 && left.contains(&orphan), "{left:?}");
    }

    /// Goal: whether tables point into few or many of the files, those are retained into which one does.
    #[test]
    fn files_that_tables_point_into_are_retained() {
        let db = Db::open_with_env(
            "/db",
            Options { create_if_missing: true, background_jobs: 0, ..Options::default() },
            SimDisk::new().env(),
        )
        .unwrap();
        let tables = [2..4u64, 3..4, 90..99].map(|files| {
            let refs = files.map(|file| (FileNumber::new(file), 10)).collect();
            (0, testing::pointing_table(db.store(), 1, &[("k", 1, None)], &refs))
        });
        testing::install(&db, tables.into(), 100);
        let version = db.store().family(0).unwrap().view.load().version.clone();
        let retained = |files: &[u64]| {
            let mut files =
                files.iter().map(|&n| Use { number: FileNumber::new(n), disk_bytes: 100, live_bytes: 10 }).collect();
            retain_pointed_to(&mut files, &version, &BTreeSet::new());
            files.into_iter().map(|file| file.number.get()).collect::<Vec<_>>()
        };
        assert_eq!(retained(&[1, 2, 3, 4, 5, 91, 92, 99]), [2, 3, 91, 92]);
        assert_eq!(retained(&[3]), [3]);
        assert_eq!(retained(&[7]), []);
    }
}
