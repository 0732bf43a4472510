//! Runs a plan: merges its inputs, part after part, through the sieve into new tables of the output level. What lives in blob files
//! that a sweep empties goes to new ones on the way; what lives in those of a family that falls back comes home (`reclaim/home.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::rocksdb::blob::{BlobIndex, accounted_bytes};
use esker_format::rocksdb::internal_key::{self, FileNumber, InternalKey, SequenceNumber};
use esker_format::rocksdb::order::Order;
use esker_log::pacer::Class;

use super::filter::{Filtered, Filtering};
use super::pick::overlap_bytes_max;
use super::{Merge, Plan, Sieve};
use crate::entry;
use crate::events::{FileChanges, Job, JobKind};
use crate::family::Family;
use crate::iterate::{InternalIterator, LevelIterator, MergingIterator};
use crate::operands::Fold;
use crate::output::{Complete, Outputs, pour, reference};
use crate::pinned::PinnedSlice;
use crate::range_deletions::{Fragments, Shadow};
use crate::reclaim::Reserved;
use crate::store::Store;
use crate::version::{Edit, Garbage, TableFile};
use crate::{Error, ErrorKind, Result};

impl Plan {
    /// How it is told.
    pub(crate) fn job(&self, id: u64) -> Job {
        let kind = match self {
            plan if plan.is_trivial_move() => JobKind::Move,
            // It takes all tables; a window, those of one range.
            plan if plan.is_sweep && plan.inputs().count() == plan.version.tables().count() => JobKind::Sweep,
            plan if plan.is_sweep => JobKind::Window,
            _ => JobKind::Compaction,
        };
        let job = Job::over(id, kind, &self.family, self.inputs().map(|(_, table)| table));
        let level = self.inputs().map(|(level, _)| level).min();
        Job { level, output_level: Some(self.output_level), blob_files: self.moved_from().len(), ..job }
    }
}

impl Store {
    /// Runs a compaction and installs what comes of it. Its inputs are claimed by the caller.
    pub(crate) fn run_compaction(&self, plan: &Arc<Plan>, reserved: &Arc<Reserved>) -> Result<FileChanges> {
        if plan.family.is_dropped() {
            return Ok(FileChanges::default());
        }
        let is_move = plan.is_trivial_move();
        let _pass = (!plan.victims.is_empty()).then(|| self.begin_pass());
        let edit = if is_move { move_edit(plan) } else { merge(plan, reserved, self) };
        let edit = edit.map_err(|error| error.while_doing(format!("compacting level {}", plan.level)))?;
        let changes = self.install_merged(&plan.family, edit)?;
        let counter = if is_move { &self.counters.trivial_moves } else { &self.counters.compactions };
        counter.add(1);
        self.counters.relocations.add(u64::from(!plan.victims.is_empty()));
        Ok(changes)
    }

    fn install_merged(&self, family: &Arc<Family>, edit: Edit) -> Result<FileChanges> {
        let added: Vec<_> = edit.added.iter().map(|(_, table)| table.clone()).collect();
        let changes = self.install_or_discard(family, edit, &[])?;
        // The snapshot beside which they were written may have gone before the version had them, where it was looked for such.
        let oldest = self.snapshots.oldest();
        if added.iter().filter(|table| table.forget_seen(oldest)).count() > 0 {
            family.view.load().version.forget_hidden_bytes();
        }
        Ok(changes)
    }
}

fn move_edit(plan: &Plan) -> Result<Edit> {
    Ok(Edit {
        deleted: plan.upper.iter().map(|table| (plan.level, table.clone())).collect(),
        added: plan.upper.iter().map(|table| (plan.output_level, table.clone())).collect(),
        ..Edit::default()
    })
}

fn inputs(plan: &Plan) -> MergingIterator {
    let order = plan.family.order;
    let mut inputs: Vec<Box<dyn InternalIterator>> = Vec::new();
    if plan.level == 0 {
        for table in &plan.upper {
            inputs.push(Box::new(table.table.iter(false)));
        }
    } else {
        inputs.push(Box::new(LevelIterator::new(order, plan.upper.clone(), false)));
    }
    for (_, tables) in &plan.middle {
        inputs.push(Box::new(LevelIterator::new(order, tables.clone(), false)));
    }
    inputs.push(Box::new(LevelIterator::new(order, plan.lower.clone(), false)));
    MergingIterator::new(order, inputs)
}

/// What lies above a window (P6), from `begin` on, or from the window's first key; `None` where nothing does.
fn above(plan: &Plan, begin: Option<&[u8]>) -> Result<Option<Box<dyn InternalIterator>>> {
    let Some((first, _)) = plan.keys().filter(|_| !plan.above.is_empty()) else { return Ok(None) };
    let order = plan.family.order;
    let run = |tables: &Vec<Arc<TableFile>>| -> Box<dyn InternalIterator> {
        Box::new(LevelIterator::new(order, tables.clone(), false))
    };
    let mut above = MergingIterator::new(order, plan.above.iter().map(run).collect());
    above.seek(&internal_key::lookup(begin.unwrap_or(first), SequenceNumber::MAX))?;
    Ok(Some(Box::new(above)))
}

/// What range deletions of the store lie over a part of the plan's keys, wherever they are.
fn shadow(merge: &Merge, (begin, end): (Option<&[u8]>, Option<&[u8]>)) -> Shadow {
    let plan = merge.plan();
    let (smallest, largest) = plan.keys().unzip();
    plan.version.shadow_over((begin.or(smallest), end.or(largest)), merge.snapshots())
}

/// Those of its inputs that a part has to write again: of what every snapshot sees, what may hide something deeper.
fn range_deletions(merge: &Merge, (begin, end): (Option<&[u8]>, Option<&[u8]>)) -> Fragments {
    let plan = merge.plan();
    let may_hide =
        |begin: &[u8], end: &[u8]| plan.output_level == 0 || !plan.version.is_deepest(plan.output_level, begin, end);
    let of_inputs: Vec<_> = plan.inputs().flat_map(|(_, table)| table.range_deletions().ranges()).collect();
    Fragments::reduced(plan.family.order, &of_inputs, merge.snapshots())
        .within(begin, end)
        .left(merge.snapshots(), may_hide)
}

/// Garbage by blob file.
pub(super) type ByFile = BTreeMap<FileNumber, Garbage>;

fn add_all(sum: &mut ByFile, more: ByFile) {
    for (file, garbage) in more {
        sum.entry(file).or_default().add(garbage.count, garbage.bytes);
    }
}

/// What came of a part.
#[derive(Debug)]
pub(super) struct Part {
    files: Complete,
    /// What newer entries overwrite or delete.
    overwritten: ByFile,
    /// What lies elsewhere now, or is gone by a filter.
    moved: ByFile,
}

/// Writes the files. Touches nothing else.
fn merge(plan: &Arc<Plan>, reserved: &Arc<Reserved>, store: &Store) -> Result<Edit> {
    let mut edit = Edit::default();
    let (mut moved, mut table_bytes, mut blob_bytes) = (ByFile::new(), 0, 0);
    let merge = Merge::of(plan.clone(), reserved.clone(), store);
    for part in merge.run(store)? {
        let files = part.files.hand_over();
        (table_bytes, blob_bytes) = (table_bytes + files.table_bytes, blob_bytes + files.blob_bytes);
        edit.added.extend(files.edit.added);
        edit.blobs.extend(files.edit.blobs);
        add_all(&mut edit.garbage, part.overwritten);
        add_all(&mut moved, part.moved);
    }
    let (seen, oldest) = (plan.newest_seen(), merge.snapshots().first().copied().unwrap_or(SequenceNumber::MAX));
    for (_, table) in &edit.added {
        table.note_seen(seen, oldest);
    }
    note_overwritten(plan, &edit.garbage);
    add_all(&mut edit.garbage, moved);
    let moved_bytes = if plan.victims.is_empty() { 0 } else { blob_bytes };
    store.counters.reclaim_bytes.add(moved_bytes);
    store.counters.compaction_bytes.add(table_bytes + blob_bytes - moved_bytes);
    store.counters.compaction_read_bytes.add(plan.inputs().map(|(_, table)| table.meta.file_bytes).sum());
    edit.deleted = plan.inputs().map(|(level, table)| (level, table.clone())).collect();
    Ok(edit)
}

/// Writes the files of part `index`.
pub(super) fn write_part(merge: &Merge, index: usize, store: &Store) -> Result<Part> {
    let plan = merge.plan();
    let (begin, end) = merge.bounds(index);
    let mut sieve = Sieve::new(plan.family.order, merge.snapshots(), |user_key| plan.may_hold_older(user_key))
        .at_the_bottom(plan.is_deepest())
        .below(above(plan, begin)?)
        .under(shadow(merge, (begin, end)));
    let mut outputs = Outputs::new(store, &plan.family, plan.output_level, true)
        .with_range_deletions(range_deletions(merge, (begin, end)))
        .sharing(merge.reserved())
        .at_the_pace_of(Class::Compaction)
        .giving_way();
    let by_range = plan.goes_by_range().then(|| plan.family.ranges.of(store, &plan.family, &plan.version));
    let ranges = by_range.unwrap_or_default();
    // Several files: one reaches the device while the next is written.
    if plan.is_sweep || !ranges.is_empty() {
        outputs = outputs.syncing_beside();
    }
    outputs = outputs.by_range(ranges);
    let (mut moved, victims) = (ByFile::new(), Victims::new(plan.moved_from()));
    let mut fence = Fence::new(plan);
    let (filtering, mut filtered) = (Filtering::of(plan, merge.snapshots(), store), ByFile::new());
    let mut input = inputs(plan);
    match begin {
        Some(begin) => input.seek(&internal_key::lookup(begin, SequenceNumber::MAX))?,
        None => input.seek_to_first()?,
    }
    let mut fold = Fold::new(plan.family.merge_operator.clone(), |key, pointer| base_value(merge, key, pointer));
    pour(&mut input, end, &mut sieve, &mut fold, |key, internal, value| {
        // Whoever closes the store does not wait for gigabytes to be merged, nor whoever has failed.
        store.check_open()?;
        merge.check()?;
        if fence.ends_table_before(key.user_key) {
            outputs.finish_table(Some(key.user_key))?;
        }
        outputs.come_to(key.user_key)?;
        if let Some(filtering) = &filtering {
            match filtering.decide(key, value, &mut filtered)? {
                Filtered::Kept => {}
                Filtered::Gone => return Ok(()),
                Filtered::Replaced(internal, value) => {
                    let key =
                        InternalKey::decode(&internal).map_err(|error| entry::unreadable_key(&internal, error))?;
                    return outputs.add(&key, &internal, &value);
                }
            }
        }
        match reference(key, value)? {
            Some(index) if victims.contains(index.file) => move_value(plan, &mut outputs, key, &index, &mut moved),
            Some(index) => outputs.add_reference(key, internal, value, &index),
            None => outputs.add(key, internal, value),
        }
    })?;
    // As what lies elsewhere, it says nothing of how much is overwritten.
    add_all(&mut moved, filtered);
    Ok(Part { files: outputs.complete()?, overwritten: sieve.into_garbage(), moved })
}

/// Blob files, to be looked for by each entry: a bit for each number from the least on, while they are not too far apart for that.
struct Victims<'a> {
    all: &'a BTreeSet<FileNumber>,
    first: u64,
    bits: Vec<u64>,
}

/// Numbers that have a bit: 1 MiB of them.
const BITS_MAX: u64 = 1 << 23;

impl<'a> Victims<'a> {
    fn new(all: &'a BTreeSet<FileNumber>) -> Self {
        let first = all.first().map_or(0, |file| file.get());
        let span = all.last().map_or(0, |file| file.get() - first + 1);
        let mut bits = vec![0; if span <= BITS_MAX { span.div_ceil(64) as usize } else { 0 }];
        for place in all.iter().map(|file| file.get() - first) {
            if let Some(word) = bits.get_mut((place / 64) as usize) {
                *word |= 1 << (place % 64);
            }
        }
        Self { all, first, bits }
    }

    #[inline]
    fn contains(&self, file: FileNumber) -> bool {
        if self.bits.is_empty() {
            return self.all.contains(&file);
        }
        let place = file.get().wrapping_sub(self.first);
        let word = usize::try_from(place / 64).ok().and_then(|at| self.bits.get(at));
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// Tells the family how much of what came down had overwritten something.
fn note_overwritten(plan: &Plan, garbage: &ByFile) {
    // Of what else it meets one cannot tell: further down lies more, and what stays above a window overwrites some of it, too.
    if plan.output_level < plan.version.deepest_level() || !plan.above.is_empty() {
        return;
    }
    let above = plan.inputs().filter(|(level, _)| *level < plan.output_level);
    let came: u64 = above.map(|(_, table)| table.table.properties().entry_count).fold(0, u64::saturating_add);
    let dropped: u64 = garbage.values().map(|garbage| garbage.count).sum();
    if came > 0 {
        plan.family.overwriting.note_compacted(dropped as f64 / came as f64);
    }
}

/// The value that operands are to be merged into. One that is damaged is left alone: whoever reads it is told. So is one for which there is no room,
/// but for those that would have to move anyway.
fn base_value(merge: &Merge, user_key: &[u8], pointer: &[u8]) -> Result<Option<PinnedSlice>> {
    let (plan, index) = (merge.plan(), entry::pointer(user_key, pointer)?);
    let Some(blob) = plan.version.blobs().get(&index.file) else { return Ok(None) };
    let moves = plan.moved_from().contains(&index.file);
    // Before anything is read: a damaged pointer may say any length.
    if blob.file.extent(user_key, &index).is_err()
        || (!moves && !merge.may_fold(accounted_bytes(&index, user_key.len())))
    {
        return Ok(None);
    }
    match blob.file.read(user_key, &index) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Corruption => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of the entry moves from its blob file to where the family's values go now.
fn move_value(
    plan: &Plan,
    outputs: &mut Outputs<'_>,
    key: &InternalKey<'_>,
    index: &BlobIndex,
    garbage: &mut ByFile,
) -> Result<()> {
    let Some(blob) = plan.version.blobs().get(&index.file) else {
        let reason = format!("a value lies in blob file {}, which the store does not have", index.file);
        return Err(Error::new(ErrorKind::Corruption, reason));
    };
    // Before anything is done for it: a damaged pointer may say any length.
    let extent = blob.file.extent(key.user_key, index)?;
    let bytes = extent.end - extent.start;
    if !plan.victims.is_empty() {
        outputs.store().pace(bytes)?;
    }
    garbage.entry(index.file).or_default().add(1, bytes);
    outputs.add_moved(key, index, &blob.file)
}

/// Ends an output table where it would overlap too much of the level after it, so that its own compaction stays cheap.
struct Fence {
    order: Order,
    beyond: Vec<Arc<TableFile>>,
    next: usize,
    overlapped_bytes: u64,
    bytes_max: u64,
    last_user_key: Option<Vec<u8>>,
}

impl Fence {
    fn new(plan: &Plan) -> Self {
        let (begin, end) = plan.keys().unzip();
        let beyond = match plan.output_level {
            // Merged there to be one table instead of several.
            0 => Vec::new(),
            level => plan.version.overlapping(level + 1, begin, end),
        };
        let bytes_max = overlap_bytes_max(&plan.family);
        Self { order: plan.family.order, beyond, next: 0, overlapped_bytes: 0, bytes_max, last_user_key: None }
    }

    fn ends_table_before(&mut self, user_key: &[u8]) -> bool {
        if self.beyond.is_empty() {
            return false;
        }
        let mut passed = 0;
        while let Some(table) = self.beyond.get(self.next)
            && self.order.is_before(table.largest(), user_key)
        {
            passed += table.meta.file_bytes;
            self.next += 1;
        }
        let is_first = self.last_user_key.is_none();
        let is_new = self.last_user_key.as_deref() != Some(user_key);
        if is_new {
            let held = self.last_user_key.get_or_insert_default();
            held.clear();
            held.extend_from_slice(user_key);
        }
        if !is_first {
            self.overlapped_bytes += passed;
        }
        // Only between two user keys (O1).
        if is_new && self.overlapped_bytes > self.bytes_max {
            self.overlapped_bytes = 0;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::compaction::pick_window;
    use crate::compaction::testing::{open, separated};
    use crate::reclaim::hidden_bytes;

    /// Goal: what a snapshot kept is hidden again, whether it goes before the tables that were written beside it are the version's, when nobody finds
    /// them yet, or after.
    #[test]
    fn what_a_snapshot_kept_is_hidden_again_if_it_goes_before_tables_are_installed() {
        for goes_before in [true, false] {
            let db = open(&SimDisk::new(), separated());
            let put = |keys: std::ops::Range<u32>| {
                keys.for_each(|n| db.put(n.to_be_bytes(), [n as u8; 1000]).unwrap());
                db.flush().unwrap();
            };
            put(0..1000);
            db.compact_range(&db.default_column_family(), None, None).unwrap();
            let snapshot = db.snapshot();
            put(0..100);
            let (store, family) = (db.store(), db.store().family(0).unwrap());
            let hidden = || hidden_bytes(&family.view.load().version);
            let version = family.view.load().version.clone();
            let tables = version.level(version.deepest_level());
            let plan = pick_window(&family, &version, tables, version.blobs().keys().copied().collect());
            let plan = Arc::new(plan.unwrap());
            let reserved = Arc::new(store.room.reserve(plan.written_bytes()));
            let edit = merge(&plan, &reserved, store).unwrap();
            let kept = (!goes_before).then_some(snapshot);
            store.install_merged(&family, edit).unwrap();
            assert_eq!((90_000..120_000).contains(&hidden()), goes_before, "{}", hidden());
            drop(kept);
        }
    }

    #[test]
    fn victims_are_found_whether_they_are_near_or_far_apart() {
        for numbers in [vec![], vec![7], vec![7, 8, 70, 71, 200], vec![1, BITS_MAX, BITS_MAX + 1, u64::MAX / 2]] {
            let all: BTreeSet<_> = numbers.iter().copied().map(FileNumber::new).collect();
            let victims = Victims::new(&all);
            for near in numbers.iter().flat_map(|&number| [number - 1, number, number + 1, number + 64]).chain([0, 63])
            {
                let file = FileNumber::new(near);
                assert_eq!(victims.contains(file), all.contains(&file), "{near} of {numbers:?}");
            }
        }
    }
}
