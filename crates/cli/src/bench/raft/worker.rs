//! What each thread does until it is stopped.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use esker::LogBatch;

use super::{Shared, wrong};
use crate::bench::fault::{Fault, Stop};
use crate::bench::random::Random;
use crate::bench::tally::Tally;

/// How long a thread sleeps before it looks whether it is stopped.
const NAP: Duration = Duration::from_millis(20);

/// When the next call is due (B4).
#[derive(Debug)]
struct Pace {
    interval: Option<Duration>,
    due: Instant,
}

impl Pace {
    fn new(calls_per_second: Option<u64>) -> Self {
        let interval = calls_per_second.filter(|&calls| calls > 0).map(|calls| Duration::from_secs(1) / calls as u32);
        Self { interval, due: Instant::now() }
    }

    /// Waits for the next call; says when it was due. `None` if the run ends first.
    fn wait(&mut self, shared: &Shared<'_>) -> Option<Instant> {
        let Some(interval) = self.interval else {
            return (!shared.is_stopped()).then(Instant::now);
        };
        let due = self.due;
        self.due += interval;
        while !shared.is_stopped() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(due);
            }
            std::thread::sleep(left.min(NAP));
        }
        None
    }
}

/// One of the groups that belong to `thread` of `threads`.
fn choose(random: &mut Random, groups: u64, threads: u64, thread: u64) -> u64 {
    let own = (groups - thread).div_ceil(threads);
    random.below(own) * threads + thread + 1
}

/// The group of the same thread behind `group`, or its first.
fn next_group(group: u64, groups: u64, threads: u64, thread: u64) -> u64 {
    if group + threads > groups { thread + 1 } else { group + threads }
}

/// Appends to groups of its own.
pub(super) fn write(shared: &Shared<'_>, thread: u64) -> Result<Tally, Stop> {
    let plan = shared.plan;
    let mut random = Random::new(plan.seed, thread);
    let mut pace = Pace::new(plan.write_rate);
    let mut tally = Tally::new()?;
    let mut batch = LogBatch::new();
    let mut entries = vec![Vec::new(); plan.batch_entries as usize];
    let mut ends = Vec::new();
    loop {
        let mut bytes = 0;
        let mut id = choose(&mut random, plan.groups, plan.write_threads, thread);
        ends.clear();
        for _ in 0..plan.batch_groups {
            let group = shared.group(id)?;
            let next = group.next.load(Ordering::Relaxed);
            for (index, entry) in (next..).zip(&mut entries) {
                shared.values.write(id, index, entry);
                bytes += entry.len() as u64;
            }
            batch.add_entries(id, next, &entries)?;
            let floor = plan.compact_count.and_then(|count| next.checked_sub(count)).unwrap_or(0);
            if floor > 0 {
                batch.compact(id, floor);
            }
            ends.push((group, next + plan.batch_entries, floor));
            id = next_group(id, plan.groups, plan.write_threads, thread);
        }
        let Some(due) = pace.wait(shared) else { return Ok(tally) };
        for (group, _, floor) in &ends {
            group.floor.fetch_max(*floor, Ordering::Relaxed);
        }
        shared.log.write(&mut batch, plan.sync)?;
        tally.record(due.elapsed());
        for (group, next, _) in &ends {
            group.next.store(*next, Ordering::Release);
        }
        tally.operations += 1;
        tally.bytes += bytes;
        shared.user_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the newest entries of groups.
pub(super) fn read(shared: &Shared<'_>, thread: u64) -> Result<Tally, Stop> {
    let plan = shared.plan;
    let mut random = Random::new(plan.seed, plan.write_threads + thread);
    let mut pace = Pace::new(plan.read_rate);
    let mut tally = Tally::new()?;
    while let Some(due) = pace.wait(shared) {
        let id = choose(&mut random, plan.groups, plan.read_threads, thread);
        let acknowledged = shared.group(id)?.next.load(Ordering::Acquire);
        let last = shared.log.last_index(id);
        if acknowledged > last.map_or(1, |last| last + 1) {
            return Err(wrong(id, acknowledged - 1, Fault::Missing));
        }
        let Some(index) = last else { continue };
        let mut seen = Ok(0);
        let found = shared.log.with_entry(id, index, |bytes| {
            seen = shared.check(id, index, bytes).map(|()| bytes.len() as u64);
        })?;
        tally.record(due.elapsed());
        // It may be compacted since, by a writer that is far ahead.
        if !found && shared.log.first_index(id).is_none_or(|first| first <= index) {
            return Err(wrong(id, index, Fault::Missing));
        }
        tally.operations += 1;
        tally.found += u64::from(found);
        tally.bytes += seen?;
        if plan.write_threads == 0 {
            shared.done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(tally)
}

/// Purges now and then, and compacts the groups that purging names.
pub(super) fn purge(shared: &Shared<'_>, _: u64) -> Result<Tally, Stop> {
    let plan = shared.plan;
    let interval = plan.purge_interval.unwrap_or(plan.time);
    let mut due = Instant::now() + interval;
    while !shared.is_stopped() {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left.min(NAP));
            continue;
        }
        for id in shared.log.purge()? {
            let Some((first, last)) = shared.log.first_index(id).zip(shared.log.last_index(id)) else { continue };
            let kept = (last.saturating_sub(first) + 1) as f64 * plan.force_compact_factor;
            let index = (last + 1).saturating_sub(kept as u64).min(last).max(first);
            if let Ok(group) = shared.group(id) {
                group.floor.fetch_max(index, Ordering::Relaxed);
            }
            shared.log.compact_to(id, index)?;
        }
        due = Instant::now() + interval;
    }
    Ok(Tally::new()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_belongs_to_one_thread() {
        for (groups, threads) in [(5, 1), (7, 3), (8, 8), (10, 4)] {
            for thread in 0..threads {
                let mut random = Random::new(1, thread);
                for _ in 0..100 {
                    let group = choose(&mut random, groups, threads, thread);
                    let next = next_group(group, groups, threads, thread);
                    for id in [group, next] {
                        assert!((1..=groups).contains(&id) && (id - 1) % threads == thread, "{id} of {groups}");
                    }
                }
            }
        }
    }
}
