//! Point reads. A value is compared while the engine still lends it, so that every byte of it is touched in the time
//! that is measured, for an engine that maps its file as for one that copies.

use std::hint::black_box;
use std::time::Instant;

use super::crew::Part;
use super::{Done, Work};
use crate::Result;
use crate::data::KEY_BYTES;

fn wrong(index: u64, what: &str) -> crate::Failure {
    format!("wrong answer: key {index} {what}").into()
}

/// What is wrong with what was found for the key, if anything is.
fn judge(work: &Work<'_>, index: u64, found: Option<&[u8]>) -> Option<&'static str> {
    match (work.model.expected(index), found) {
        (Some(generation), Some(value)) if work.data.matches(index, generation, value) => None,
        (Some(generation), Some(value)) => {
            let is_older = (1..generation).any(|older| work.data.matches(index, older, value));
            Some(if is_older { "has a value that was overwritten" } else { "has a value that was never put" })
        }
        (Some(_), None) => Some("is missing"),
        (None, Some(_)) => Some("is there and must not be"),
        (None, None) => None,
    }
}

fn get_all(work: &Work<'_>, part: Part, indices: impl Iterator<Item = u64>) -> Result<Done> {
    let mut done = Done::nothing()?;
    for index in indices {
        let key = work.data.key(index);
        let mut fault = None;
        let mut found_bytes = 0;
        let begun = Instant::now();
        work.engine.get(&key, &mut |found| {
            found_bytes = found.map_or(0, <[u8]>::len);
            fault = if work.checked {
                judge(work, index, found)
            } else {
                black_box(found.map(|value| work.data.matches(index, 1, value)));
                None
            };
        })?;
        let ended = Instant::now();
        if let Some(fault) = fault {
            return Err(wrong(index, fault));
        }
        done.latencies.record(ended - begun);
        done.operations += 1;
        done.user_bytes += (KEY_BYTES + found_bytes) as u64;
        if part.is_over(ended) {
            break;
        }
    }
    Ok(done)
}

pub(super) fn random(work: &Work<'_>, part: Part) -> Result<Done> {
    get_all(work, part, part.drawn())
}

pub(super) fn missing(work: &Work<'_>, part: Part) -> Result<Done> {
    // Indices from `num` on were never put; their keys lie between those that were.
    get_all(work, part, part.drawn().map(|index| index + work.plan.num))
}

pub(super) fn exists(work: &Work<'_>, part: Part) -> Result<Done> {
    let mut done = Done::nothing()?;
    for (step, index) in part.drawn().enumerate() {
        let index = if step % 2 == 0 { index } else { index + work.plan.num };
        let key = work.data.key(index);
        let begun = Instant::now();
        let is_there = work.engine.exists(&key)?;
        let ended = Instant::now();
        if work.checked && is_there != work.model.expected(index).is_some() {
            return Err(wrong(index, if is_there { "is there and must not be" } else { "is missing" }));
        }
        done.latencies.record(ended - begun);
        done.operations += 1;
        done.user_bytes += KEY_BYTES as u64;
        if part.is_over(ended) {
            break;
        }
    }
    Ok(done)
}
