//! What to compact next. Pure: same version, same claims, same plan.
//!
//! - P1: inputs of a plan are claimed by nobody else, and hold every table of the output level that shares a user key
//!   with them; so two plans never write the same user key into the same level.
//! - P2: with a table go its neighbours that share a user key with it, so that no older entry of a key stays above a newer one.
//! - P3: level 0 is compacted as a whole, by one plan at a time.

use std::sync::Arc;

use super::Levels;
use crate::family::Family;
use crate::options::FamilyOptions;
use crate::version::{TableFile, Version};

/// Tables to merge, and where to.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) family: Arc<Family>,
    pub(crate) version: Arc<Version>,
    pub(crate) level: usize,
    pub(crate) output_level: usize,
    /// Tables of `level`.
    pub(crate) upper: Vec<Arc<TableFile>>,
    /// Tables of `output_level`.
    pub(crate) lower: Vec<Arc<TableFile>>,
}

impl Plan {
    /// All tables that it reads, with their level.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let upper = self.upper.iter().map(|table| (self.level, table));
        upper.chain(self.lower.iter().map(|table| (self.output_level, table)))
    }

    /// Keeps other plans away from its inputs, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.inputs().for_each(|(_, table)| table.set_claimed(claimed));
    }

    /// Whether the tables can go to the output level as they are: they meet nothing there, share no user key with each
    /// other, and do not weigh on the level after it more than a merge would allow.
    pub(crate) fn is_trivial_move(&self) -> bool {
        let [table] = self.upper.as_slice() else { return false };
        if !self.lower.is_empty() {
            return false;
        }
        let beyond = self.version.overlapping(self.output_level + 1, Some(table.smallest()), Some(table.largest()));
        bytes_of(&beyond) <= overlap_bytes_max(&self.family.options)
    }
}

/// How much of the level after the output level one output table may overlap: ten target sizes, as LevelDB's and RocksDB's.
pub(crate) fn overlap_bytes_max(options: &FamilyOptions) -> u64 {
    options.target_file_bytes.saturating_mul(10)
}

fn bytes_of(tables: &[Arc<TableFile>]) -> u64 {
    tables.iter().map(|table| table.meta.file_bytes).sum()
}

/// The most urgent work of a family that nobody is doing yet.
pub(crate) fn pick(family: &Arc<Family>) -> Option<Plan> {
    let version = family.view.load().version.clone();
    let levels = Levels::of(&version, &family.options);
    levels.due().into_iter().find_map(|level| match level {
        0 => plan_level0(family, &version, &levels),
        level => plan_level(family, &version, level),
    })
}

fn plan_level0(family: &Arc<Family>, version: &Arc<Version>, levels: &Levels) -> Option<Plan> {
    plan(family, version, 0, levels.base, version.level(0).to_vec())
}

/// The table whose merge costs least per byte that it moves down.
fn plan_level(family: &Arc<Family>, version: &Arc<Version>, level: usize) -> Option<Plan> {
    let tables = version.level(level);
    let mut candidates: Vec<(u64, &Arc<TableFile>)> = tables
        .iter()
        .filter(|table| !table.is_claimed())
        .map(|table| {
            let below = version.overlapping(level + 1, Some(table.smallest()), Some(table.largest()));
            // Bytes to rewrite below for each 1,024 bytes moved.
            (bytes_of(&below).saturating_mul(1024) / table.meta.file_bytes.max(1), table)
        })
        .collect();
    candidates.sort_by_key(|&(cost, table)| (cost, table.number()));
    candidates.into_iter().find_map(|(_, table)| plan(family, version, level, level + 1, vec![table.clone()]))
}

/// The next step of a manual compaction of a range: all of level 0 if it overlaps, or the first table of another level
/// that does and lies behind `after`. `None` once nothing is left there, or while some of it is claimed.
pub(crate) fn pick_range(
    family: &Arc<Family>,
    level: usize,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    after: Option<&[u8]>,
) -> Option<Plan> {
    let version = family.view.load().version.clone();
    let next = next_in_range(&version, level, begin, end, after)?;
    if level == 0 {
        return plan_level0(family, &version, &Levels::of(&version, &family.options));
    }
    plan(family, &version, level, level + 1, vec![next])
}

/// Whether a manual compaction has not yet come to the end of a level.
pub(crate) fn is_left_in_range(
    family: &Family,
    level: usize,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    after: Option<&[u8]>,
) -> bool {
    next_in_range(&family.view.load().version, level, begin, end, after).is_some()
}

fn next_in_range(
    version: &Version,
    level: usize,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
    after: Option<&[u8]>,
) -> Option<Arc<TableFile>> {
    let mut overlapping = version.overlapping(level, begin, end).into_iter();
    overlapping.find(|table| after.is_none_or(|after| table.smallest() > after))
}

/// Completes `upper` by P2 and P1; `None` if some of it is claimed.
fn plan(
    family: &Arc<Family>,
    version: &Arc<Version>,
    level: usize,
    output_level: usize,
    upper: Vec<Arc<TableFile>>,
) -> Option<Plan> {
    let upper = if level == 0 { upper } else { with_neighbours(version, level, upper) };
    let smallest = upper.iter().map(|table| table.smallest()).min()?;
    let largest = upper.iter().map(|table| table.largest()).max()?;
    let lower = version.overlapping(output_level, Some(smallest), Some(largest));
    let lower = with_neighbours(version, output_level, lower);
    let plan = Plan { family: family.clone(), version: version.clone(), level, output_level, upper, lower };
    if plan.inputs().any(|(_, table)| table.is_claimed()) { None } else { Some(plan) }
}

/// `tables` and those beside them that begin with the user key with which they end, or the other way round (P2).
fn with_neighbours(version: &Version, level: usize, tables: Vec<Arc<TableFile>>) -> Vec<Arc<TableFile>> {
    let (Some(first), Some(last)) = (tables.first(), tables.last()) else {
        return tables;
    };
    let all = version.level(level);
    let position = |wanted: &Arc<TableFile>| all.iter().position(|table| table.number() == wanted.number());
    let (Some(mut from), Some(mut to)) = (position(first), position(last)) else {
        return tables;
    };
    let touches = |left: usize, right: usize| match (all.get(left), all.get(right)) {
        (Some(left), Some(right)) => left.largest() == right.smallest(),
        _ => false,
    };
    while from > 0 && touches(from - 1, from) {
        from -= 1;
    }
    while touches(to, to + 1) {
        to += 1;
    }
    all.get(from..=to).map_or(tables, <[_]>::to_vec)
}
