//! Reads in key order. Keys must ascend, each must be one of ours, have its right value, and a full scan must have met
//! as many as there are: then it has met each of them once. So has a range that met as many as it should up to the last of them.

use std::time::Instant;

use super::crew::{self, Part};
use super::{Done, Work};
use crate::Result;
use crate::data::{KEY_BYTES, Key, mix};

/// Latency of full scans is that of so many entries: a clock for each would cost as much as the entry.
const ENTRIES_PER_SAMPLE: u64 = 100;

/// Watches entries go by.
struct Watch<'a> {
    work: &'a Work<'a>,
    last: Option<Key>,
    entries: u64,
    user_bytes: u64,
    fault: Option<String>,
    /// Which keys went by, where order does not tell that none did twice.
    seen: Option<Vec<bool>>,
}

impl<'a> Watch<'a> {
    fn new(work: &'a Work<'a>) -> Self {
        let seen = (!work.engine.is_ordered()).then(|| vec![false; usize::try_from(work.model.count()).unwrap_or(0)]);
        Self { work, last: None, entries: 0, user_bytes: 0, fault: None, seen }
    }

    /// Whether all is well. `value` is `None` in scans of keys only.
    fn see(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let Some(index) = self.work.data.index(key) else {
            self.fault = Some(format!("wrong answer: a scan met the key {key:02x?}, which was never put"));
            return false;
        };
        let key = self.work.data.key(index);
        let fault = match self.work.model.expected(index) {
            None => Some("is there and must not be"),
            Some(_) if self.is_out_of_turn(index, key) => Some("comes out of order, or twice"),
            Some(generation) => value
                .is_some_and(|value| !self.work.data.matches(index, generation, value))
                .then_some("has another value than was put last"),
        };
        self.fault = fault.map(|fault| format!("wrong answer: in a scan, key {index} {fault}"));
        self.last = Some(key);
        self.entries += 1;
        self.user_bytes += (KEY_BYTES + value.map_or(0, <[u8]>::len)) as u64;
        self.fault.is_none()
    }

    fn is_out_of_turn(&mut self, index: u64, key: Key) -> bool {
        let Some(seen) = &mut self.seen else { return self.last.is_some_and(|last| last >= key) };
        let place = usize::try_from(index).ok().and_then(|index| seen.get_mut(index));
        place.is_none_or(|seen| std::mem::replace(seen, true))
    }

    fn end(self) -> Result<(u64, u64)> {
        match self.fault {
            Some(fault) => Err(fault.into()),
            None => Ok((self.entries, self.user_bytes)),
        }
    }
}

pub(super) fn ranges(work: &Work<'_>, part: Part) -> Result<Done> {
    let mut done = Done::nothing()?;
    if !work.engine.is_ordered() {
        return Ok(done);
    }
    for index in part.drawn() {
        let from = work.data.key(index);
        let mut watch = Watch::new(work);
        let begun = Instant::now();
        work.engine
            .scan(&from, &mut |key, value| watch.see(key, Some(value)) && watch.entries < work.plan.range_entries)?;
        let ended = Instant::now();
        let last = watch.last.and_then(|key| work.data.index(&key));
        let (entries, user_bytes) = watch.end()?;
        if work.checked {
            check_range(work, index, entries, last)?;
        }
        done.latencies.record(ended - begun);
        done.operations += entries;
        done.user_bytes += user_bytes;
        if part.is_over(ended) {
            break;
        }
    }
    Ok(done)
}

/// A range from the key of `index` on met so many entries up to `last`: as many as there are from there up to that key.
fn check_range(work: &Work<'_>, index: u64, entries: u64, last: Option<u64>) -> Result<()> {
    let from = work.data.rank(index);
    let there = work.order.get(work.order.partition_point(|rank| *rank < from)..).unwrap_or_default();
    let due = usize::try_from(work.plan.range_entries).unwrap_or(usize::MAX).max(1).min(there.len());
    if entries != due as u64 {
        return Err(format!("wrong answer: a range from key {index} met {entries} keys where {due} are").into());
    }
    if last.map(|last| work.data.rank(last)) != due.checked_sub(1).and_then(|place| there.get(place)).copied() {
        return Err(format!("wrong answer: a range from key {index} left out a key").into());
    }
    Ok(())
}

/// Begin and end of a thread's part of the key space: first eight bytes of keys. No end for the last.
fn bounds(work: &Work<'_>, number: u64) -> (Key, Option<Key>) {
    let threads = work.plan.threads.max(1);
    let at = |number: u64| {
        let mut key = Key::default();
        let prefix = (u128::from(number) << 64) / u128::from(threads);
        key[..8].copy_from_slice(&u64::try_from(prefix).unwrap_or(u64::MAX).to_be_bytes());
        key
    };
    (at(number), (number + 1 < threads).then(|| at(number + 1)))
}

fn pass(work: &Work<'_>, part: Part, with_values: bool) -> Result<Done> {
    let mut done = Done::nothing()?;
    let (from, end) = match work.engine.is_ordered() {
        true => bounds(work, part.number),
        // One thread sees everything; there is nothing to divide it by.
        false if part.number == 0 => (Key::default(), None),
        false => return Ok(done),
    };
    let mut watch = Watch::new(work);
    let mut begun = Instant::now();
    let mut see = |key: &[u8], value: Option<&[u8]>| {
        if end.is_some_and(|end| key >= end.as_slice()) || !watch.see(key, value) {
            return false;
        }
        if watch.entries.is_multiple_of(ENTRIES_PER_SAMPLE) {
            let now = Instant::now();
            done.latencies.record(now - begun);
            begun = now;
        }
        true
    };
    if with_values {
        work.engine.scan(&from, &mut |key, value| see(key, Some(value)))?;
    } else {
        work.engine.scan_keys(&from, &mut |key| see(key, None))?;
    }
    (done.operations, done.user_bytes) = watch.end()?;
    Ok(done)
}

pub(super) fn entries(work: &Work<'_>, part: Part) -> Result<Done> {
    pass(work, part, true)
}

pub(super) fn keys(work: &Work<'_>, part: Part) -> Result<Done> {
    pass(work, part, false)
}

/// A full scan, which must meet as many keys as there are.
pub(super) fn counted(work: &Work<'_>, each: fn(&Work<'_>, Part) -> Result<Done>) -> Result<Done> {
    let done = crew::run(work, each)?;
    let expected = work.model.live().count() as u64;
    if work.checked && done.operations != expected {
        return Err(format!("wrong answer: a scan met {} keys where {expected} are", done.operations).into());
    }
    Ok(done)
}

/// A digest of nothing but the order in which phases come, for [`Work::salt`].
pub(crate) fn salt(seed: u64, phase: usize) -> u64 {
    mix(seed ^ mix(phase as u64 + 1))
}
