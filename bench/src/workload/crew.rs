//! The threads of a phase, and the part of the work that is each one's own.

use std::time::{Duration, Instant};

use super::{Done, Work};
use crate::Result;
use crate::data::{Order, draw};

/// One thread's part: positions `begin..end` of a random order of all keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) number: u64,
    begin: u64,
    end: u64,
    quota: u64,
    order: Order,
    salt: u64,
    deadline: Option<Instant>,
}

impl Part {
    /// The keys that this thread writes in a phase of `--reads` operations: its own, again from the first if there are too few.
    pub(super) fn quota(self) -> impl Iterator<Item = u64> {
        let len = (self.end - self.begin).max(1);
        (0..self.quota).map(move |step| self.order.at(self.begin + step % len))
    }

    /// The keys that it reads in such a phase: drawn from its own, some often, some not at all. In an order without repeats no cache
    /// would ever have what is asked for.
    pub(super) fn drawn(self) -> impl Iterator<Item = u64> {
        let len = (self.end - self.begin).max(1);
        (0..self.quota).map(move |step| self.order.at(self.begin + draw(self.salt, step) % len))
    }

    /// All of its keys, once.
    pub(super) fn all(self) -> impl Iterator<Item = u64> {
        (self.begin..self.end).map(move |position| self.order.at(position))
    }

    /// Whether the phase has lasted long enough.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

/// Runs `each` in every thread and adds up what they did.
pub(super) fn run(work: &Work<'_>, each: fn(&Work<'_>, Part) -> Result<Done>) -> Result<Done> {
    let plan = work.plan;
    let threads = plan.threads.max(1);
    let share = |count: u64, number: u64| count * number / threads;
    let deadline = (plan.seconds_max > 0).then(|| Instant::now() + Duration::from_secs(plan.seconds_max));
    let part = |number| Part {
        number,
        begin: share(plan.num, number),
        end: share(plan.num, number + 1),
        quota: share(plan.reads, number + 1) - share(plan.reads, number),
        order: Order::new(plan.num, work.salt),
        salt: work.salt,
        deadline,
    };
    let results: Vec<Result<Done>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || each(work, part(number)))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
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
