//! Flush: sealed memtables of a family become one table of level 0, and their large values blob files.
//!
//! Blob files that values went to as they were written become the version's by the same edit, with what of them is garbage already.
//!
//! Cost: every key once, every separated value once, in key order; one manifest edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Result;
use crate::compaction::Sieve;
use crate::family::{Family, Generation};
use crate::iterate::{InternalIterator, MergingIterator};
use crate::output::{Outputs, pour};
use crate::store::{State, Store};
use crate::version::Edit;

/// What a flush takes: all memtables of a family that were sealed when it was picked, newest first.
#[derive(Debug)]
pub(crate) struct Plan {
    family: Arc<Family>,
    generations: Vec<Arc<Generation>>,
}

/// The family with the most sealed memtables waiting; `None` if nothing waits. One flush per family at a time, so that
/// memtables reach level 0 in the order in which they were sealed. Cost: a look at each family that waits.
pub(crate) fn pick(families: &BTreeMap<u32, Arc<Family>>, state: &mut State) -> Option<Plan> {
    let sealed_of = |id: &u32| {
        let family = families.get(id).filter(|family| !family.is_dropped())?;
        let sealed = family.view.load().sealed.clone();
        (!sealed.is_empty()).then_some((family, sealed))
    };
    state.to_flush.retain(|id| sealed_of(id).is_some());
    let waiting = state.to_flush.iter().filter(|id| !state.flushing.contains(id)).filter_map(sealed_of);
    let (family, generations) = waiting.max_by_key(|(_, sealed)| sealed.len())?;
    Some(Plan { family: family.clone(), generations })
}

impl Plan {
    /// Says in `state` that the family is being flushed.
    pub(crate) fn claim(&self, state: &mut State) {
        state.flushing.push(self.family.id);
    }

    /// Takes that back.
    pub(crate) fn release(&self, state: &mut State) {
        state.flushing.retain(|&id| id != self.family.id);
    }
}

/// Writes the files. Touches nothing else. `generations` are the newest first.
pub(crate) fn write_files(store: &Store, family: &Family, generations: &[Arc<Generation>]) -> Result<Edit> {
    let inputs = generations.iter().map(|generation| {
        let input: Box<dyn InternalIterator> = Box::new(generation.memtable.iter());
        input
    });
    let mut input = MergingIterator::new(inputs.collect());
    let snapshots = store.snapshots.sequences();
    // Older tables may hold any key: every tombstone stays.
    let mut sieve = Sieve::new(&snapshots, |_| true);
    let mut outputs = Outputs::new(store, family, 0, true);
    input.seek_to_first()?;
    pour(&mut input, None, &mut sieve, |key, internal, value| outputs.add(key, internal, value))?;
    let garbage = sieve.into_garbage();
    let mut files = outputs.finish()?;
    files.edit.blobs.extend(generations.iter().flat_map(|generation| generation.blobs.handles()));
    store.counters.flush_bytes.add(files.table_bytes);
    store.counters.flush_blob_bytes.add(files.blob_bytes);
    Ok(Edit { garbage, ..files.edit })
}

impl Store {
    /// Runs a flush and installs what comes of it.
    pub(crate) fn run_flush(&self, plan: &Plan) -> Result<()> {
        if plan.family.is_dropped() {
            return Ok(());
        }
        // Before its tables are installed: a batch may be of several families, and the others' part of it is in the log alone.
        self.sync_ended_logs()?;
        let edit = write_files(self, &plan.family, &plan.generations)
            .map_err(|error| error.while_doing("flushing a memtable"))?;
        self.install_or_discard(&plan.family, edit, &plan.generations)?;
        self.counters.flushes.add(1);
        Ok(())
    }
}
