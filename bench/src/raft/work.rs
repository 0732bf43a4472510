//! Append and fetch.

use std::time::{Duration, Instant};

use super::{Append, RaftStore};
use crate::Result;
use crate::data::{Data, mix};
use crate::measure::Latencies;
use crate::plan::Plan;
use crate::workload::Done;

/// Bytes of a group's state.
const STATE_BYTES: usize = 32;
/// A group compacts once it has so many entries more than it keeps.
const COMPACT_EVERY: u64 = 64;

/// The log, and what it must hold.
pub(super) struct Log<'a> {
    pub(super) store: &'a dyn RaftStore,
    pub(super) data: &'a Data,
    pub(super) plan: &'a Plan,
}

impl Log<'_> {
    /// Entries of each group, from index 1 on.
    pub(super) fn last_index(&self) -> u64 {
        (self.plan.num / self.plan.groups).max(1)
    }

    fn first_index(&self, last: u64) -> u64 {
        match self.plan.keep_entries {
            0 => 1,
            keep => (last / COMPACT_EVERY * COMPACT_EVERY).saturating_sub(keep).max(1),
        }
    }

    /// The number that an entry's bytes follow from.
    fn number(&self, group: u64, index: u64) -> u64 {
        index * self.plan.groups + group
    }

    fn state(&self, group: u64, index: u64) -> [u8; STATE_BYTES] {
        let mut state = [0; STATE_BYTES];
        state[..8].copy_from_slice(&index.to_le_bytes());
        state[8..16].copy_from_slice(&mix(group).to_le_bytes());
        state
    }

    /// Runs `each` in every thread with the groups that are its own.
    pub(super) fn crew(&self, each: fn(&Self, &[u64], u64) -> Result<Done>) -> Result<Done> {
        let threads = self.plan.threads.clamp(1, self.plan.groups);
        let results: Vec<Result<Done>> = std::thread::scope(|scope| {
            let work = |number: u64| {
                let groups: Vec<u64> = (0..self.plan.groups).filter(|group| group % threads == number).collect();
                scope.spawn(move || each(self, &groups, number))
            };
            let workers: Vec<_> = (0..threads).map(work).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|_| Err("a thread panicked".into())))
                .collect()
        });
        let mut done = Done::nothing()?;
        for result in results {
            let one = result?;
            done.operations += one.operations;
            done.user_bytes += one.user_bytes;
            done.latencies.add(&one.latencies)?;
        }
        Ok(done)
    }

    /// Every group gets every entry; one write has an entry of each of `--batch` groups.
    pub(super) fn append(&self, groups: &[u64], thread: u64) -> Result<Done> {
        let mut done = Done::nothing()?;
        let mut entries: Vec<Vec<u8>> = vec![Vec::new(); self.plan.batch.max(1)];
        for index in 1..=self.last_index() {
            for together in groups.chunks(entries.len()) {
                let states: Vec<_> = together.iter().map(|group| self.state(*group, index)).collect();
                for (group, entry) in together.iter().zip(&mut entries) {
                    self.data.value(self.number(*group, index), 1, entry);
                }
                let parts = together.iter().zip(&entries).zip(&states);
                let appends: Vec<_> =
                    parts.map(|((group, entry), state)| Append { group: *group, index, entry, state }).collect();
                let begun = Instant::now();
                self.store.append(&appends)?;
                done.latencies.record(begun.elapsed());
                done.operations += appends.len() as u64;
                done.user_bytes += (appends.len() * (self.data.value_bytes() + STATE_BYTES)) as u64;
            }
            self.compact(groups, index, thread)?;
        }
        Ok(done)
    }

    fn compact(&self, groups: &[u64], index: u64, thread: u64) -> Result<()> {
        if self.plan.keep_entries == 0 || !index.is_multiple_of(COMPACT_EVERY) {
            return Ok(());
        }
        for group in groups {
            self.store.compact(*group, self.first_index(index))?;
        }
        if thread == 0 { self.store.reclaim() } else { Ok(()) }
    }

    fn fetch_one(&self, group: u64, begin: u64, end: u64, latencies: Option<&mut Latencies>) -> Result<()> {
        let mut next = begin;
        let mut is_right = true;
        let begun = Instant::now();
        self.store.fetch(group, begin, end, &mut |index, entry| {
            is_right &= index == next && self.data.matches(self.number(group, index), 1, entry);
            next += 1;
        })?;
        let taken: Duration = begun.elapsed();
        if !is_right || next != end {
            return Err(
                format!("wrong answer: entries {begin}..{end} of group {group} are not what was written").into()
            );
        }
        if let Some(latencies) = latencies {
            latencies.record(taken);
        }
        Ok(())
    }

    /// Ranges of `--range-entries` at random places of random groups.
    pub(super) fn fetch(&self, groups: &[u64], thread: u64) -> Result<Done> {
        let mut done = Done::nothing()?;
        let (last, count) = (self.last_index(), groups.len() as u64);
        let first = self.first_index(last);
        let length = self.plan.range_entries.clamp(1, last + 1 - first);
        let deadline = (self.plan.seconds_max > 0).then(|| Instant::now() + Duration::from_secs(self.plan.seconds_max));
        let mut draw = mix(self.plan.seed ^ thread);
        for _ in 0..(self.plan.reads / self.plan.threads.max(1) / length).max(1) {
            draw = mix(draw.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let Some(group) = usize::try_from(draw % count.max(1)).ok().and_then(|place| groups.get(place)) else {
                break;
            };
            let begin = first + mix(draw) % (last + 2 - first - length);
            self.fetch_one(*group, begin, begin + length, Some(&mut done.latencies))?;
            done.operations += length;
            done.user_bytes += length * self.data.value_bytes() as u64;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        Ok(done)
    }

    /// All of it is there: every entry and every state.
    pub(super) fn check(&self, groups: &[u64], _: u64) -> Result<Done> {
        let last = self.last_index();
        for group in groups {
            self.fetch_one(*group, self.first_index(last), last + 1, None)?;
            if self.store.state(*group)?.as_deref() != Some(&self.state(*group, last)) {
                return Err(format!("wrong answer: the state of group {group} is not what was written").into());
            }
        }
        Done::nothing()
    }

    /// Bytes that the user has in it.
    pub(super) fn live_bytes(&self) -> u64 {
        let last = self.last_index();
        let entries = (last + 1 - self.first_index(last)) * self.data.value_bytes() as u64;
        self.plan.groups * (entries + STATE_BYTES as u64)
    }
}
