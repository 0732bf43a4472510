//! Flush: sealed memtables of a family become one table of level 0, and their large values blob files.
//!
//! Blob files that values went to as they were written become the version's by the same edit, with what of them is garbage already.
//!
//! - FL1: memtables of a family reach level 0 in the order in which they were sealed. One thread may write the files of newer ones
//!   while another still syncs those of older ones; it installs what it wrote after them, or, if they failed, not at all.
//! - FL2: a flush takes all that waits and is not being flushed. So memtables that an open keeps of one log (O4 of `open`) are one edit: the log is replayed
//!   for all of them or for none (OP4 of [`operands`](crate::operands)).
//!
//! Cost: every key once, every separated value once, in key order; one manifest edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_log::pacer::Class;

use crate::Result;
use crate::blob::BlobFile;
use crate::compaction::Sieve;
use crate::events::{FileChanges, Job, JobKind};
use crate::family::{Family, Generation};
use crate::iterate::{InternalIterator, MergingIterator};
use crate::operands::Fold;
use crate::output::{Outputs, discard, pour};
use crate::range_deletions::{Fragments, Shadow};
use crate::store::{State, Store};
use crate::version::{Edit, TableFile};

/// What a flush takes: memtables of a family that were sealed when it was picked, one after the other, newest first.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    family: Arc<Family>,
    generations: Vec<Arc<Generation>>,
}

/// The family with the most sealed memtables waiting; `None` if nothing waits. Families that are being flushed count only if the flush
/// may run `beside` that. Cost: a look at each family that waits.
pub(crate) fn pick(families: &BTreeMap<u32, Arc<Family>>, state: &mut State, beside: bool) -> Option<Plan> {
    let sealed_of = |id: &u32| {
        let family = families.get(id).filter(|family| !family.is_dropped())?;
        let sealed = family.view.load().sealed.clone();
        (!sealed.is_empty()).then_some((family, sealed))
    };
    state.to_flush.retain(|id| sealed_of(id).is_some());
    let state = &*state;
    let is_being_flushed = |id: &u32| state.flushing.iter().any(|plan| plan.family.id == *id);
    let waiting = state.to_flush.iter().filter(|id| beside || !is_being_flushed(id)).filter_map(sealed_of);
    let is_taken = |generation: &Arc<Generation>| state.flushing.iter().any(|plan| plan.takes(generation));
    let free = waiting.map(|(family, sealed)| {
        // The oldest that follow one another: what was sealed before others that are taken, and after them, is not one table.
        let oldest = sealed.into_iter().rev().skip_while(is_taken).take_while(|generation| !is_taken(generation));
        let mut free: Vec<_> = oldest.collect();
        free.reverse();
        (family, free)
    });
    let (family, generations) = free.max_by_key(|(_, sealed)| sealed.len())?;
    (!generations.is_empty()).then(|| Plan { family: family.clone(), generations })
}

impl Plan {
    /// Says in `state` that these memtables are being flushed.
    pub(crate) fn claim(&self, state: &mut State) {
        state.flushing.push(self.clone());
    }

    /// Whose they are.
    pub(crate) fn family(&self) -> &Family {
        &self.family
    }

    /// How it is told.
    pub(crate) fn job(&self, id: u64) -> Job {
        let bytes = self.generations.iter().map(|generation| generation.memtable.allocated_bytes() as u64).sum();
        let job = Job::over(id, JobKind::Flush, &self.family, std::iter::empty());
        Job { output_level: Some(0), inputs: self.generations.len(), input_bytes: bytes, ..job }
    }

    /// Takes that back.
    pub(crate) fn release(&self, state: &mut State) {
        state.flushing.retain(|plan| !plan.generations.iter().any(|generation| self.takes(generation)));
    }

    fn takes(&self, generation: &Arc<Generation>) -> bool {
        self.generations.iter().any(|taken| Arc::ptr_eq(taken, generation))
    }

    /// Whether nothing of it waits any more.
    pub(crate) fn is_done(&self) -> bool {
        !self.family.view.load().sealed.iter().any(|sealed| self.takes(sealed))
    }

    /// Whether no older memtable waits any more.
    fn is_next(&self) -> bool {
        self.family.view.load().sealed.last().is_none_or(|oldest| self.takes(oldest))
    }
}

/// Writes the files. Touches nothing else. `generations` are the newest first.
pub(crate) fn write_files(store: &Store, family: &Family, generations: &[Arc<Generation>]) -> Result<Edit> {
    let order = family.order;
    let inputs = generations.iter().map(|generation| {
        let input: Box<dyn InternalIterator> = Box::new(generation.memtable.iter());
        input
    });
    let mut input = MergingIterator::new(order, inputs.collect());
    let snapshots = store.snapshots.sequences();
    // Older tables may hold any key: every tombstone stays.
    let ranges: Vec<_> =
        generations.iter().flat_map(|generation| generation.memtable.range_deletions().all()).collect();
    let ranges = || ranges.iter().map(|range| &**range);
    let mut sieve = Sieve::new(order, &snapshots, |_| true).under(Shadow::of(order, ranges(), &snapshots));
    let range_deletions = Fragments::reduced(order, ranges(), &snapshots);
    let mut outputs =
        Outputs::new(store, family, 0, true).with_range_deletions(range_deletions).at_the_pace_of(Class::Flush);
    let ends = family.ranges.of_flush(store, family);
    if !ends.is_empty() {
        outputs = outputs.by_range(ends).syncing_beside();
    }
    input.seek_to_first()?;
    // Values that went to blob files as they were written are not read again so soon.
    let mut fold = Fold::new(family.merge_operator.clone(), |_, _| Ok(None));
    pour(&mut input, None, &mut sieve, &mut fold, |key, internal, value| {
        outputs.come_to(key.user_key)?;
        outputs.add(key, internal, value)
    })?;
    let garbage = sieve.into_garbage();
    let mut files = outputs.finish()?;
    let sealed = |file: &Arc<BlobFile>| store.sealed_blob(file);
    files.edit.blobs.extend(generations.iter().flat_map(|generation| generation.blobs.handles(sealed)));
    store.counters.flush_bytes.add(files.table_bytes);
    store.counters.flush_blob_bytes.add(files.blob_bytes);
    Ok(Edit { garbage, ..files.edit })
}

impl Store {
    /// Runs a flush and installs what comes of it.
    pub(crate) fn run_flush(&self, plan: &Plan) -> Result<FileChanges> {
        if plan.family.is_dropped() {
            return Ok(FileChanges::default());
        }
        self.sync_logs_for_flush()?;
        let edit = write_files(self, &plan.family, &plan.generations)
            .map_err(|error| error.while_doing("flushing a memtable"))?;
        if !self.wait_for_older(plan) {
            // Whoever failed tells why.
            discard(&edit.new_tables(), &edit.blobs, &plan.generations);
            return Ok(FileChanges::default());
        }
        let has_deletions = |(_, table): &&(usize, Arc<TableFile>)| table.table.properties().deletion_count > 0;
        self.room.note_flushed(edit.added.iter().filter(has_deletions).count() as u64);
        self.install_or_discard(&plan.family, edit, &plan.generations)
    }

    /// Waits for those who flush older memtables of the family; `false` if they failed (FL1).
    fn wait_for_older(&self, plan: &Plan) -> bool {
        let mut state = self.state.lock();
        let is_behind = |state: &State| {
            let first = state.flushing.iter().find(|other| other.family.id == plan.family.id);
            first.is_some_and(|first| !plan.generations.iter().any(|generation| first.takes(generation)))
        };
        while is_behind(&state) {
            self.changed.wait(&mut state);
        }
        plan.is_next() || plan.family.is_dropped()
    }
}
