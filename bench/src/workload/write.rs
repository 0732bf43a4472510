//! Load, update, delete.

use std::time::Instant;

use super::crew::Part;
use super::{Done, Work};
use crate::Result;
use crate::data::KEY_BYTES;
use crate::engine::Pair;

/// One key in so many of those visited is deleted.
const DELETE_ONE_IN: usize = 10;

fn put_all(work: &Work<'_>, part: Part, indices: impl Iterator<Item = u64>, may_stop: bool) -> Result<Done> {
    let mut done = Done::nothing()?;
    let batch_len = work.plan.batch.max(1);
    let mut batch: Vec<Pair> = (0..batch_len).map(|_| Pair { key: [0; KEY_BYTES], value: Vec::new() }).collect();
    let mut indices = indices.peekable();
    while indices.peek().is_some() {
        let mut filled = 0;
        for (pair, index) in batch.iter_mut().zip(indices.by_ref()) {
            pair.key = work.data.key(index);
            work.data.value(index, work.model.put(index), &mut pair.value);
            filled += 1;
        }
        let pairs = batch.get(..filled).unwrap_or_default();
        let begun = Instant::now();
        work.engine.put(pairs)?;
        let ended = Instant::now();
        done.latencies.record(ended - begun);
        done.operations += filled as u64;
        done.user_bytes += (filled * (KEY_BYTES + work.data.value_bytes())) as u64;
        if may_stop && part.is_over(ended) {
            break;
        }
    }
    Ok(done)
}

pub(super) fn load(work: &Work<'_>, part: Part) -> Result<Done> {
    put_all(work, part, part.all(), false)
}

pub(super) fn update(work: &Work<'_>, part: Part) -> Result<Done> {
    put_all(work, part, part.quota(), true)
}

pub(super) fn delete(work: &Work<'_>, part: Part) -> Result<Done> {
    let mut done = Done::nothing()?;
    for index in part.quota().step_by(DELETE_ONE_IN) {
        let key = work.data.key(index);
        work.model.delete(index);
        let begun = Instant::now();
        work.engine.delete(&key)?;
        let ended = Instant::now();
        done.latencies.record(ended - begun);
        done.operations += 1;
        done.user_bytes += KEY_BYTES as u64;
        if part.is_over(ended) {
            break;
        }
    }
    Ok(done)
}
