//! What to compact next. Pure: same version, same claims, same plan.
//!
//! - P1: inputs of a plan are claimed by nobody else, and hold every table of the output level that shares a user key
//!   with them; so two plans never write the same user key into the same level. Nor does one write between the least and the greatest key of
//!   what another writes there, though no table may lie there yet: a table of the other's may span it.
//! - P2: with a table go its neighbours that share a user key with it, so that no older entry of a key stays above a newer one.
//! - P3: level 0 is compacted as a whole, by one plan at a time. While it is small beside the level that it goes to, its newest tables
//!   are merged with each other instead: neighbours in time, into one table of level 0 that takes their place. Not if the newest came in
//!   as a file: memtables may hold what is older, and their tables would have to go between those that are merged.
//! - P4: a table with nothing below it is rewritten in its own level once no snapshot asks for the deletions and older
//!   versions in it any more: nothing would come along to push them out. Each such rewrite leaves none of them, so it is
//!   done once. Tables of other writers are left alone: what they hold is not known without reading them.
//! - P5: a sweep takes all tables of all levels to the deepest one, and moves what lives out of blob files on the way: so what
//!   is overwritten becomes known, and space comes back, by writing each key once.
//! - P6: a sweep of a *window* writes only neighbours of the deepest level again, with what lies in the levels between level 0 and that one and
//!   has keys of these neighbours, or of the gaps beside them, only. What else lies above stays where it is, and is read for what it
//!   overwrites there: it is newer than anything below it, wherever it goes meanwhile, and whoever would merge it with what the
//!   window writes needs tables that are claimed. A tombstone that is dropped meanwhile hides nothing by then, or may still hide something.
//!   So that there is little above it in level 0, that goes down to the level above the deepest where keys are divided into ranges, cut where these end; and
//!   from there by itself only once it is as much as level 0 would have been.
//! - P7: what does not fit on the disk is done in smaller steps: where level 0 as a whole has no room beside what it meets, the levels
//!   below it go down table by table, and then its oldest tables, which nothing in it is older than, to a level of their own above those.
//!   A table overlaps little of the level after it (`overlap_bytes_max`), so room for a dozen tables is enough.
//! - P8: where a period is chosen, a table that is older, and that nothing else is to be done with, is written again where it lies; level 0 goes down.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{FileNumber, SequenceNumber};
use esker_format::rocksdb::order::Order;

use super::Levels;
use crate::family::Family;
use crate::ingest::Writing;
use crate::options::Separation;
use crate::reclaim::rounding_bytes;
use crate::version::{TableFile, Version};

/// Level 0 goes down once it is this part of the level that it meets there. With a half, loads of 300,000 to 800,000 values of 1 KiB through
/// memtables of 4 MiB were 2 to 12 % faster, and overwriting them 1 to 20 %; but what is overwritten became known too late for the bound on space.
const LEVEL0_PART: u64 = 4;

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
    /// Of a sweep (P5): the levels between, from above.
    pub(crate) middle: Vec<(usize, Vec<Arc<TableFile>>)>,
    /// Of a window (P6): what lies above it, and stays. One run for each table of level 0, and each level.
    pub(crate) above: Vec<Vec<Arc<TableFile>>>,
    /// Blob files that nothing of what is written shall point to. Of a window: other tables may.
    pub(crate) victims: BTreeSet<FileNumber>,
    /// The same, for as many of them as come home meanwhile ([`home`](crate::reclaim)): other tables may point there.
    pub(crate) coming_home: Arc<BTreeSet<FileNumber>>,
    /// Whether it is one.
    pub(crate) is_sweep: bool,
}

impl Plan {
    /// All tables that it reads, with their level.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let middle = self.middle.iter().flat_map(|(level, tables)| tables.iter().map(|table| (*level, table)));
        self.upper_inputs().chain(middle).chain(self.lower.iter().map(|table| (self.output_level, table)))
    }

    /// The newest entry of all that hides nothing any more of what it writes: what it reads and, of a sweep or a window, what lies above it and has
    /// none of its keys, too. But for what snapshots keep.
    pub(crate) fn newest_seen(&self) -> SequenceNumber {
        let beside = self.version.tables().filter(|(level, _)| self.is_sweep && *level < self.output_level);
        let all = self.inputs().chain(beside);
        all.map(|(_, table)| table.meta.largest_sequence).max().unwrap_or_default()
    }

    fn upper_inputs(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.upper.iter().map(|table| (self.level, table))
    }

    /// About what it will take up: its tables, what lives in its victims, and what comes home, in whole blocks. Nothing where tables only change
    /// their level.
    pub(crate) fn written_bytes(&self) -> u64 {
        if self.is_trivial_move() {
            return 0;
        }
        let tables: u64 = self.inputs().map(|(_, table)| table.meta.file_bytes).sum();
        let moved = self.moved_bytes();
        let home = self.version.bytes_into(&self.coming_home, self.inputs().map(|(_, table)| table));
        tables + moved + home + rounding_bytes(&self.family, self.inputs().count(), tables + home, moved)
    }

    /// Values in blob files that operands may be merged into: all that its tables point to, if they have any that somebody can merge.
    pub(crate) fn foldable_bytes(&self) -> u64 {
        if !self.inputs().any(|(_, table)| has_foldable(&self.family, table)) {
            return 0;
        }
        let all = self.version.blobs().keys().copied().collect();
        self.version.bytes_into(&all, self.inputs().map(|(_, table)| table))
    }

    /// What lives in its victims, as far as its tables point there.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.version.bytes_into(&self.victims, self.inputs().map(|(_, table)| table))
    }

    /// Blob files whose values move: those of a plan without victims come home.
    pub(crate) fn moved_from(&self) -> &BTreeSet<FileNumber> {
        if self.victims.is_empty() { &self.coming_home } else { &self.victims }
    }

    /// Keeps other plans away from its inputs, or no longer does.
    pub(crate) fn set_claimed(&self, claimed: bool) {
        self.inputs().for_each(|(_, table)| table.set_claimed(claimed));
    }

    /// The first and the last user key of its inputs.
    pub(crate) fn keys(&self) -> Option<(&[u8], &[u8])> {
        keys_of(self.family.order, self.inputs().map(|(_, table)| table))
    }

    /// The keys that it will write, and where.
    fn writing(&self) -> Option<Writing> {
        let (smallest, largest) = self.keys()?;
        Some(Writing { level: self.output_level, smallest: smallest.into(), largest: largest.into() })
    }

    /// Says that they are going to be written (P1).
    pub(crate) fn note_writing(&self) {
        self.writing().into_iter().for_each(|writing| self.family.note_writing(writing));
    }

    /// They are written, or will not be.
    pub(crate) fn has_written(&self) {
        self.writing().iter().for_each(|writing| self.family.has_written(writing));
    }

    /// The plan, if nobody reads its inputs, nor will write between its keys (P1).
    fn unless_taken(self) -> Option<Self> {
        let is_claimed = self.inputs().any(|(_, table)| table.is_claimed());
        let will_write = |writing: Writing| self.family.will_write(writing.level, &writing.smallest, &writing.largest);
        let is_taken = is_claimed || (self.output_level > 0 && self.writing().is_some_and(will_write));
        (!is_taken).then_some(self)
    }

    /// Whether older entries of `user_key` may lie where it does not look.
    pub(crate) fn may_hold_older(&self, user_key: &[u8]) -> bool {
        // Older tables of the same level may hold any key.
        self.output_level == 0 || self.version.may_hold_below(self.output_level, user_key)
    }

    /// Whether nothing lies below its outputs.
    pub(crate) fn is_deepest(&self) -> bool {
        if self.output_level == 0 {
            return false;
        }
        self.keys().is_some_and(|(begin, end)| self.version.is_deepest(self.output_level, begin, end))
    }

    /// Whether what it writes ends where a range of keys does ([`ranges`](crate::reclaim)): in the deepest level, and in the one above, of which
    /// windows take along what lies in their range.
    pub(crate) fn goes_by_range(&self) -> bool {
        self.is_deepest() || (self.output_level > 0 && self.output_level + 1 == self.version.deepest_level())
    }

    /// Whether the tables can go to the output level as they are: they meet nothing there, share no user key with each
    /// other, and do not weigh on the level after it more than a merge would allow.
    pub(crate) fn is_trivial_move(&self) -> bool {
        let [table] = self.upper.as_slice() else { return false };
        if !self.lower.is_empty() || self.output_level == self.level || self.is_sweep {
            return false;
        }
        // What it could drop there would have to be rewritten soon after, and operands become values there.
        let may_shrink = table.droppable_entries().is_some_and(|count| count > 0) || has_foldable(&self.family, table);
        if may_shrink && self.is_deepest() {
            return false;
        }
        let beyond = self.version.overlapping(self.output_level + 1, Some(table.smallest()), Some(table.largest()));
        bytes_of(&beyond) <= overlap_bytes_max(&self.family)
    }
}

/// How much of the level after the output level one output table may overlap: ten target sizes, as LevelDB's and RocksDB's.
pub(crate) fn overlap_bytes_max(family: &Family) -> u64 {
    family.table_bytes().saturating_mul(10)
}

fn bytes_of(tables: &[Arc<TableFile>]) -> u64 {
    tables.iter().map(|table| table.meta.file_bytes).sum()
}

/// Says whether there is room on the disk for what a plan writes.
pub(crate) type Fits<'a> = &'a dyn Fn(&Plan) -> bool;

/// The most urgent work of a family that nobody is doing yet, of what `fits`. `oldest` is what the oldest snapshot sees, `now` in seconds since 1970.
pub(crate) fn pick(family: &Arc<Family>, oldest: SequenceNumber, now: u64, fits: Fits<'_>) -> Option<Plan> {
    let version = family.view.load().version.clone();
    let levels = Levels::of(&version, &family.options());
    let newest = || plan_newest(family, &version, &levels).filter(|plan| fits(plan));
    let due = levels.due().into_iter().find_map(|level| match level {
        0 => newest().or_else(|| plan_down(family, &version, &levels, fits)),
        level => plan_level(family, &version, level, fits),
    });
    let due = due.or_else(|| plan_above_windows(family, &version, fits));
    let due = due.or_else(|| plan_droppable(family, &version, oldest, fits));
    due.or_else(|| plan_old(family, &version, now, fits))
}

/// See P8.
fn plan_old(family: &Arc<Family>, version: &Arc<Version>, now: u64, fits: Fits<'_>) -> Option<Plan> {
    let period = NonZeroU64::new(family.options().periodic_compaction_seconds)?;
    let is_old = |table: &TableFile| !table.is_claimed() && old_from(table, period) <= now;
    let mut plans = version.tables().filter(|(_, table)| is_old(table)).filter_map(|(level, table)| match level {
        0 => plan_level0(family, version, &Levels::of(version, &family.options())),
        level => plan(family, version, level, level, vec![table.clone()]),
    });
    plans.find(|plan| fits(plan))
}

fn old_from(table: &TableFile, period: NonZeroU64) -> u64 {
    table.meta.file_creation_time.saturating_add(period.get())
}

/// When the first table of the family becomes old (P8), in seconds since 1970; `None`: never.
pub(crate) fn next_old(family: &Family, version: &Version) -> Option<u64> {
    let period = NonZeroU64::new(family.options().periodic_compaction_seconds)?;
    version.tables().map(|(_, table)| old_from(table, period)).min()
}

/// A step by which what lies above the deepest level comes down, due or not: what it overwrites there goes, or becomes known as
/// garbage. With `separated`, only for what points into blob files.
pub(crate) fn pick_exposing(family: &Arc<Family>, separated: bool, fits: Fits<'_>) -> Option<Plan> {
    let version = family.view.load().version.clone();
    let hides_values = |table: &Arc<TableFile>| {
        let is_plain = table.known_blob_refs().is_some_and(|refs| refs.is_empty());
        !separated || !is_plain || table.table.properties().deletion_count > 0
    };
    let mut above = (0..version.deepest_level()).filter(|&level| version.level(level).iter().any(hides_values));
    above.find_map(|level| match level {
        0 => plan_down(family, &version, &Levels::of(&version, &family.options()), fits),
        level => plan_level(family, &version, level, fits),
    })
}

/// See P5. `None` while some table of the family is claimed, or if there is none.
pub(crate) fn pick_sweep(family: &Arc<Family>, version: &Arc<Version>, victims: BTreeSet<FileNumber>) -> Option<Plan> {
    let levels = version.levels().filter(|(_, tables)| !tables.is_empty());
    let mut levels: Vec<_> = levels.map(|(level, tables)| (level, tables.to_vec())).collect();
    if let [(0, _)] = levels.as_slice() {
        levels.push((Levels::of(version, &family.options()).base, Vec::new()));
    }
    sweep_of(family, version, levels, Vec::new(), victims)
}

/// One that writes the tables of `levels`, from above, again in the last of them, below what lies `above`. `None` while one of them is claimed.
fn sweep_of(
    family: &Arc<Family>,
    version: &Arc<Version>,
    levels: Vec<(usize, Vec<Arc<TableFile>>)>,
    above: Vec<Vec<Arc<TableFile>>>,
    victims: BTreeSet<FileNumber>,
) -> Option<Plan> {
    let mut middle = levels;
    let (output_level, lower) = middle.pop()?;
    let is_one = middle.is_empty();
    let (level, upper, lower) = match is_one {
        true => (output_level, lower, Vec::new()),
        false => {
            let (level, upper) = middle.remove(0);
            (level, upper, lower)
        }
    };
    let (family, version, coming_home, is_sweep) = (family.clone(), version.clone(), Arc::default(), true);
    Plan { family, version, level, output_level, upper, lower, middle, above, victims, coming_home, is_sweep }
        .unless_taken()
}

/// See P6: `tables` are neighbours of the deepest level. `None` while one of what it writes again is claimed.
pub(crate) fn pick_window(
    family: &Arc<Family>,
    version: &Arc<Version>,
    tables: &[Arc<TableFile>],
    victims: BTreeSet<FileNumber>,
) -> Option<Plan> {
    let deepest = version.deepest_level();
    let tables = with_neighbours(version, deepest, tables.to_vec());
    let (first, last) = (tables.first()?, tables.last()?);
    let (begin, end) = (first.smallest(), last.largest());
    let overlaps = |table: &&Arc<TableFile>| table.overlaps(Some(begin), Some(end));
    let mut above: Vec<_> = version.level(0).iter().filter(overlaps).map(|table| vec![table.clone()]).collect();
    let mut span = Span::around(version.order(), version.level(deepest), first, last);
    let mut levels = vec![(deepest, tables.clone())];
    for level in (1..deepest).rev() {
        let tables = version.level(level);
        span.narrow(tables);
        let (taken, left): (Vec<_>, Vec<_>) = tables.iter().cloned().partition(|table| span.has(table));
        above.push(left.into_iter().filter(|table| overlaps(&table)).collect());
        levels.push((level, taken));
    }
    levels.retain(|(_, tables)| !tables.is_empty());
    levels.reverse();
    above.retain(|run| !run.is_empty());
    sweep_of(family, version, levels, above, victims)
}

/// Where the tables have to lie that a window takes along: between two user keys.
struct Span<'a> {
    order: Order,
    after: Option<&'a [u8]>,
    before: Option<&'a [u8]>,
}

impl<'a> Span<'a> {
    /// From the table before `first` to the one after `last`, in their level below 0.
    fn around(order: Order, tables: &'a [Arc<TableFile>], first: &TableFile, last: &TableFile) -> Self {
        let from = tables.partition_point(|table| table.ends_before(first.smallest()));
        let to = tables.partition_point(|table| !last.ends_before(table.smallest()));
        let last_before = from.checked_sub(1).and_then(|index| tables.get(index));
        let (after, before) = (last_before.map(|table| table.largest()), tables.get(to).map(|table| table.smallest()));
        Self { order, after, before }
    }

    /// Less what those of `tables`, of one level, cover that reach beyond: they stay, and so does whatever shares a user key with them, there and
    /// above.
    fn narrow(&mut self, tables: &'a [Arc<TableFile>]) {
        for table in tables {
            if self
                .after
                .is_some_and(|after| !self.is_after(table.smallest(), after) && self.is_after(table.largest(), after))
            {
                self.after = Some(table.largest());
            }
        }
        for table in tables.iter().rev() {
            if self.before.is_some_and(|before| {
                !self.is_after(before, table.largest()) && self.is_after(before, table.smallest())
            }) {
                self.before = Some(table.smallest());
            }
        }
    }

    fn has(&self, table: &TableFile) -> bool {
        self.after.is_none_or(|after| self.is_after(table.smallest(), after))
            && self.before.is_none_or(|before| self.is_after(before, table.largest()))
    }

    fn is_after(&self, a: &[u8], b: &[u8]) -> bool {
        self.order.is_before(b, a)
    }
}

/// See P4.
fn plan_droppable(
    family: &Arc<Family>,
    version: &Arc<Version>,
    oldest: SequenceNumber,
    fits: Fits<'_>,
) -> Option<Plan> {
    let free = |table: &TableFile| table.meta.largest_sequence <= oldest && !table.is_claimed();
    let tables = version.droppable().filter(|(_, table)| free(table));
    let mut plans = tables.filter_map(|(level, table)| plan(family, version, level, level, vec![table.clone()]));
    plans.find(|plan| fits(plan))
}

/// Of level 0 the newest tables, those whose merge costs least for each table less (P3). `None` where all of level 0 had better go down:
/// it is no longer small beside what it meets there.
///
/// With values in blob files, or with small memtables, a flush adds a thousandth of what the base level holds: to rewrite that for every
/// fourth flush would write each key a hundred times. So it is written some three times within level 0, and about
/// `1 + LEVEL0_PART` times on its way down.
fn plan_newest(family: &Arc<Family>, version: &Arc<Version>, levels: &Levels) -> Option<Plan> {
    let tables = version.level(0);
    let bytes = bytes_of(tables);
    let below = version.level_bytes(above_windows(family, version, levels.base));
    let is_small = bytes.saturating_mul(LEVEL0_PART) < below;
    if !is_small || bytes > family.table_bytes() {
        return None;
    }
    let newest = tables.first()?;
    // What was flushed last is older than all that is in memory.
    let came_as_file = family.has_taken_in_since(newest.meta.largest_sequence.get().saturating_sub(1));
    if came_as_file {
        return None;
    }
    let mut merged_bytes = newest.meta.file_bytes;
    let mut cheapest: Option<(u64, usize)> = None;
    // Those that somebody reads are older.
    let free = tables.iter().take_while(|table| !table.is_claimed());
    for (gone, table) in free.enumerate().skip(1) {
        merged_bytes += table.meta.file_bytes;
        let cost = merged_bytes / gone as u64;
        if cheapest.is_none_or(|(least, _)| cost <= least) {
            cheapest = Some((cost, gone));
        }
    }
    let last = cheapest?.1;
    // Tables of one epoch go together: RocksDB refuses those that overlap. None is 0.
    let epoch = tables.get(last)?.epoch();
    let is_of_same = |table: &&Arc<TableFile>| epoch > 0 && table.epoch() == epoch;
    let last = last + tables.get(last + 1..)?.iter().take_while(is_of_same).count();
    let newest = tables.get(..=last)?.to_vec();
    plan(family, version, 0, 0, newest)
}

fn plan_level0(family: &Arc<Family>, version: &Arc<Version>, levels: &Levels) -> Option<Plan> {
    plan(family, version, 0, above_windows(family, version, levels.base), version.level(0).to_vec())
}

/// Where level 0 goes down to: the base level, or, where that is the deepest and its tables are written again range by range, the one above it.
fn above_windows(family: &Family, version: &Version, base: usize) -> usize {
    let is_divided = family.ranges.count() > 1 && base == version.deepest_level() && base > 1;
    if is_divided { base - 1 } else { base }
}

/// A table of the level above the deepest where tables are written again range by range, and no windows came to take them along: so much there that
/// level 0 would have gone down by now.
fn plan_above_windows(family: &Arc<Family>, version: &Arc<Version>, fits: Fits<'_>) -> Option<Plan> {
    let above = version.deepest_level().checked_sub(1).filter(|&level| level > 0 && family.ranges.count() > 1)?;
    let is_due = version.level_bytes(above).saturating_mul(LEVEL0_PART) >= version.level_bytes(above + 1);
    if is_due { plan_level(family, version, above, fits) } else { None }
}

/// Level 0, or what makes room for it (P7).
fn plan_down(family: &Arc<Family>, version: &Arc<Version>, levels: &Levels, fits: Fits<'_>) -> Option<Plan> {
    let whole = plan_level0(family, version, levels)?;
    if fits(&whole) {
        return Some(whole);
    }
    // Levels above the base are empty. Where there is none, and one is below all that there is, the base moves there.
    let deepest = version.deepest_level().max(2).min(family.options().level_count - 1);
    let below = (levels.base..deepest).find_map(|level| plan_level(family, version, level, fits));
    let tables = version.level(0);
    let above_base = (levels.base - 1).max(1);
    let mut oldest =
        (0..tables.len()).filter_map(|from| plan(family, version, 0, above_base, tables.get(from..)?.to_vec()));
    below.or_else(|| oldest.find(|plan| fits(plan)))
}

/// The table whose merge costs least per byte that it moves down.
fn plan_level(family: &Arc<Family>, version: &Arc<Version>, level: usize, fits: Fits<'_>) -> Option<Plan> {
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
    let mut plans =
        candidates.into_iter().filter_map(|(_, table)| plan(family, version, level, level + 1, vec![table.clone()]));
    plans.find(|plan| fits(plan))
}

/// What a manual compaction of a range has yet to do in a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range<'a> {
    pub(crate) level: usize,
    /// The range; both ends inclusive, `None` is open.
    pub(crate) begin: Option<&'a [u8]>,
    pub(crate) end: Option<&'a [u8]>,
    /// Tables that begin here or before are done.
    pub(crate) after: Option<&'a [u8]>,
    /// Rewrite tables within the level, as far as they are older than this and may hold what can be dropped. `None`: move
    /// them down.
    pub(crate) in_place_before: Option<FileNumber>,
}

impl Range<'_> {
    fn next(&self, family: &Family, version: &Version) -> Option<Arc<TableFile>> {
        let mut overlapping = version.overlapping(self.level, self.begin, self.end).into_iter();
        overlapping.find(|table| {
            self.after.is_none_or(|after| version.order().is_before(after, table.smallest()))
                && self.in_place_before.is_none_or(|new| table.number() < new && may_change(family, table))
        })
    }
}

/// Whether a rewrite with nothing below may drop or change something of the table, as far as one can tell without reading it.
fn may_change(family: &Family, table: &TableFile) -> bool {
    let is_timeless = table.meta.largest_sequence == SequenceNumber::new(0);
    family.options().compaction_filter.is_some()
        || table.droppable_entries().map_or(!is_timeless, |count| count > 0)
        || has_foldable(family, table)
}

/// Whether a table has operands, and the family somebody who can merge them.
fn has_foldable(family: &Family, table: &TableFile) -> bool {
    table.table.properties().merge_operand_count > 0 && family.merge_operator.is_some()
}

/// The next step of a manual compaction: all of level 0 if it overlaps the range, or the first table of another level
/// that does. `None` once nothing is left there, or while some of it is claimed.
pub(crate) fn pick_range(family: &Arc<Family>, range: &Range<'_>) -> Option<Plan> {
    let version = family.view.load().version.clone();
    let next = range.next(family, &version)?;
    match (range.level, range.in_place_before) {
        (0, _) => plan_level0(family, &version, &Levels::of(&version, &family.options())),
        (level, Some(_)) => plan(family, &version, level, level, vec![next]),
        (level, None) => plan(family, &version, level, level + 1, vec![next]),
    }
}

/// Whether a manual compaction has not yet come to the end of a level.
pub(crate) fn is_left_in_range(family: &Family, range: &Range<'_>) -> bool {
    range.next(family, &family.view.load().version).is_some()
}

/// Completes `upper` by P2 and P1; `None` if some of it is claimed.
pub(super) fn plan(
    family: &Arc<Family>,
    version: &Arc<Version>,
    level: usize,
    output_level: usize,
    upper: Vec<Arc<TableFile>>,
) -> Option<Plan> {
    let upper = if level == 0 { upper } else { with_neighbours(version, level, upper) };
    let (smallest, largest) = keys_of(version.order(), upper.iter())?;
    let lower = if output_level == level {
        Vec::new()
    } else {
        with_neighbours(version, output_level, version.overlapping(output_level, Some(smallest), Some(largest)))
    };
    let falls_back = family.separation() == Separation::FallBack;
    let coming_home = if falls_back { family.coming_home() } else { Arc::default() };
    let (family, version, victims) = (family.clone(), version.clone(), BTreeSet::new());
    let (middle, above, is_sweep) = (Vec::new(), Vec::new(), false);
    Plan { family, version, level, output_level, upper, lower, middle, above, victims, coming_home, is_sweep }
        .unless_taken()
}

/// The first and the last user key of `tables`.
fn keys_of<'a>(order: Order, tables: impl Iterator<Item = &'a Arc<TableFile>>) -> Option<(&'a [u8], &'a [u8])> {
    let bounds = tables.map(|table| (table.smallest(), table.largest()));
    bounds.reduce(|(first, last), (smallest, largest)| (order.earlier(first, smallest), order.later(last, largest)))
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
        (Some(left), Some(right)) => left.shares_key_with(right),
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

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::Db;
    use crate::compaction::testing::{Contents, contents, open};
    use crate::options::{FamilyOptions, Options};
    use crate::version::testing::{install, table};

    /// Goal (P7): however little room there is, each step fits, changes nothing that anybody reads, and in the end all is where it belongs;
    /// the less room, the more steps.
    #[test]
    fn steps_that_fit_bring_everything_down() {
        let mut steps_before = 0;
        for part in [1, 2, 4, 6] {
            let family = FamilyOptions {
                write_buffer_bytes: 80 << 10,
                compression: esker_format::compression::Compression::None,
                target_file_bytes: 8 << 10,
                level0_compaction_trigger: 100,
                level0_slowdown_trigger: 100,
                level0_stop_trigger: 101,
                ..FamilyOptions::default()
            };
            let db = open(&SimDisk::new(), family);
            let (mut now, mut snapshots) = (Contents::new(), Vec::new());
            for n in 0..2000u32 {
                let key = format!("key {n:04}").into_bytes();
                db.put(&key, [0; 300]).unwrap();
                now.insert(key, vec![0; 300]);
            }
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            for round in 1..12 {
                for n in 0..200 {
                    let key = format!("key {:04}", (n + u32::from(round) * 77) * 7919 % 2200).into_bytes();
                    if n % 4 == 0 {
                        db.delete(&key).unwrap();
                        now.remove(&key);
                    } else {
                        db.put(&key, [round; 300]).unwrap();
                        now.insert(key, vec![round; 300]);
                    }
                }
                db.flush().unwrap();
                if round % 4 == 0 {
                    snapshots.push((db.snapshot(), now.clone()));
                }
            }
            let (store, family) = (db.store(), db.store().family(0).unwrap());
            let all: u64 = family.view.load().version.tables().map(|(_, table)| table.meta.file_bytes).sum();
            // What blocks round up comes to more than these tables hold.
            let held = |plan: &Plan| plan.inputs().map(|(_, table)| table.meta.file_bytes).sum::<u64>();
            let fits = |plan: &Plan| held(plan) <= all / part;
            let (mut steps, mut partial) = (0, 0);
            while let Some(plan) = pick_exposing(&family, false, &fits) {
                assert!(fits(&plan));
                partial += u64::from(plan.level == 0 && plan.upper.len() < plan.version.level(0).len());
                let plan = Arc::new(plan);
                let reserved = Arc::new(store.room.reserve(plan.written_bytes()));
                store.run_compaction(&plan, &reserved).unwrap();
                steps += 1;
                assert!(contents(&db, None) == now, "{part}, step {steps}");
                for (snapshot, then) in &snapshots {
                    assert!(contents(&db, Some(snapshot)) == *then, "{part}, step {steps}: a snapshot");
                }
            }
            let version = family.view.load().version.clone();
            assert_eq!(version.tables().count(), version.level(version.deepest_level()).len(), "{part}");
            assert!(
                steps > steps_before && (partial > 0) == (part >= 4),
                "{part}: {steps} steps, {partial} of them partial"
            );
            steps_before = steps;
            assert!(db.check(&mut |_| {}).unwrap().errors.is_empty());
        }
    }

    /// Goal (V4): what RocksDB's merges within level 0 left of one epoch is merged whole, or not: else it would refuse the store.
    #[test]
    fn tables_of_one_epoch_are_merged_together() {
        let options = Options { create_if_missing: true, background_jobs: 0, ..Options::default() };
        let db = Db::open_with_env("/db", options, SimDisk::new().env()).unwrap();
        let table = |epoch, entries: &[_]| table(db.store(), epoch, entries);
        let long: String = (0..20_000u32).map(|n| char::from(b' ' + (n.wrapping_mul(n | 1) >> 7) as u8 % 90)).collect();
        let deepest: Vec<_> = (0..50).map(|n| format!("d{n:02}")).collect();
        let deepest: Vec<_> = deepest.iter().map(|key| (key.as_str(), 0, Some(long.as_str()))).collect();
        // To end before the large one would be cheapest.
        let of_one_epoch = [table(2, &[("x", 1, Some(&long))]), table(2, &[("a", 2, None), ("b", 3, None)])];
        let newer = [table(3, &[("a", 4, None), ("z", 5, None)]), table(4, &[("a", 6, None)])];
        let level0 = of_one_epoch.into_iter().chain(newer).map(|table| (0, table));
        install(&db, [(6, table(1, &deepest))].into_iter().chain(level0).collect(), 6);
        let family = db.store().family(0).unwrap();
        let version = family.view.load().version.clone();
        let plan = plan_newest(&family, &version, &Levels::of(&version, &family.options())).unwrap();
        let merged: Vec<u64> = plan.upper.iter().map(|table| table.epoch()).collect();
        assert_eq!(merged, [4, 3, 2, 2]);
    }
}
