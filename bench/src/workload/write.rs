//! Load, update, delete.
//!
//! Puts are made ahead of the clock, a window of them at a time: what makes them runs as fast as the processor can
//! overlap it, undisturbed by readings of the clock (each waits for all loads before it), and where one put ends the
//! next begins, so that one reading a put is enough.

use std::time::Instant;

use super::crew::Part;
use super::{Done, Work};
use crate::Result;
use crate::data::KEY_BYTES;
use crate::engine::Pair;

/// One key in so many of those visited is deleted.
const DELETE_ONE_IN: usize = 10;

/// Most puts that are made ahead of the clock.
const WINDOW_PUTS: usize = 64;

/// About the most bytes that are made ahead of the clock: what was made is still in the processor's nearest cache
/// but one when it is put.
const WINDOW_BYTES: usize = 64 << 10;

/// Puts made ahead of the clock.
struct Window {
    pairs: Vec<Pair>,
    filled: usize,
}

impl Window {
    /// Room for whole writes of `batch` puts each, at least one.
    fn new(work: &Work<'_>, batch: usize) -> Self {
        let puts = (WINDOW_BYTES / (KEY_BYTES + work.data.value_bytes())).min(WINDOW_PUTS);
        let whole = (puts / batch).max(1) * batch;
        Self { pairs: (0..whole).map(|_| Pair { key: [0; KEY_BYTES], value: Vec::new() }).collect(), filled: 0 }
    }

    /// Makes the next puts; `false` if there are none. All of them must be written for the model to be right.
    fn fill(&mut self, work: &Work<'_>, indices: &mut impl Iterator<Item = u64>) -> bool {
        self.filled = 0;
        // The window comes first in the zip: an index that has no place in it isn't taken.
        for (pair, index) in self.pairs.iter_mut().zip(indices) {
            pair.key = work.data.key(index);
            work.data.value(index, work.model.put(index), &mut pair.value);
            self.filled += 1;
        }
        self.filled > 0
    }

    fn writes(&self, batch: usize) -> impl Iterator<Item = &[Pair]> {
        self.pairs.get(..self.filled).unwrap_or_default().chunks(batch)
    }
}

fn put_all(work: &Work<'_>, part: Part, mut indices: impl Iterator<Item = u64>, may_stop: bool) -> Result<Done> {
    let mut done = Done::nothing()?;
    let batch = work.plan.batch.max(1);
    let mut window = Window::new(work, batch);
    while window.fill(work, &mut indices) {
        let mut begun = Instant::now();
        for pairs in window.writes(batch) {
            work.engine.put(pairs)?;
            let ended = Instant::now();
            done.latencies.record(ended - begun);
            begun = ended;
        }
        done.operations += window.filled as u64;
        done.user_bytes += (window.filled * (KEY_BYTES + work.data.value_bytes())) as u64;
        if may_stop && part.is_over(begun) {
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
