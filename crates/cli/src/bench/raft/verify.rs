//! Whether a group holds what was acknowledged, and nothing that was compacted (B2, B3).

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Shared, wrong};
use crate::bench::fault::{Fault, Stop};
use crate::bench::tally::Tally;

/// Entries in a call.
const FETCHED: u64 = 64;

/// Reads all entries of group `id`.
pub(super) fn group(shared: &Shared<'_>, id: u64, tally: &mut Tally) -> Result<(), Stop> {
    let known = shared.group(id)?;
    let (floor, next) = (known.floor.load(Ordering::Relaxed), known.next.load(Ordering::Relaxed));
    if next == 1 {
        return match shared.log.last_index(id) {
            Some(last) => Err(wrong(id, last, Fault::Unexpected)),
            None => Ok(()),
        };
    }
    let Some((first, last)) = shared.log.first_index(id).zip(shared.log.last_index(id)) else {
        return Err(wrong(id, next - 1, Fault::Missing));
    };
    // `floor..next` should be there; `first..last + 1` is.
    for (low, high) in [(floor, first), (last + 1, next)] {
        if low < high {
            return Err(wrong(id, low, Fault::Missing));
        }
        if low > high {
            return Err(wrong(id, high, Fault::Unexpected));
        }
    }
    let mut begin = first;
    while begin < next {
        let end = next.min(begin + FETCHED);
        let (mut due, mut result) = (begin, Ok(()));
        let began = Instant::now();
        shared.log.for_each_entry(id, begin, end, |index, bytes| {
            result = if index == due { shared.check(id, index, bytes) } else { Err(wrong(id, due, Fault::Missing)) };
            due += 1;
            tally.bytes += bytes.len() as u64;
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        if due != end {
            return Err(wrong(id, due, Fault::Missing));
        }
        tally.record(began.elapsed());
        tally.operations += end - begin;
        tally.found += end - begin;
        begin = end;
    }
    Ok(())
}
