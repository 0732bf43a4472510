//! What the threads of one benchmark share: what to do, and how far they are.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::benchmark::Benchmark;
use super::choose::Chooser;
use super::frontier::Frontier;
use super::known::{Known, Order};
use super::plan::Plan;
use super::random::{Permutation, mix};
use super::store::{Store, Target};
use super::values::Values;

/// Operations that a thread takes at a time.
const CHUNK: u64 = 32;

/// One benchmark under way.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) benchmark: Benchmark,
    pub(super) plan: &'a Plan,
    pub(super) target: Target<'a>,
    pub(super) values: &'a Values,
    pub(super) known: Known,
    /// What a scan must meet, if there is one and it is known.
    pub(super) live_keys: Option<u64>,
    /// What values written now say.
    pub(super) generation: u64,
    /// Tells its random numbers from those of other benchmarks.
    pub(super) salt: u64,
    pub(super) order: Order,
    pub(super) chooser: Chooser,
    pub(super) frontier: Frontier,
    /// Entries in a write.
    pub(super) batch: u64,
    /// Operations in all.
    total: u64,
    next: AtomicU64,
    deadline: Option<Instant>,
    is_stopped: AtomicBool,
    done: Vec<Slot>,
}

/// A counter of one thread, alone in its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Slot(AtomicU64);

impl Slot {
    #[inline]
    pub(super) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}

impl<'a> Shared<'a> {
    /// `known` is what was done before this benchmark, whose values are of `generation`.
    pub(super) fn new(
        benchmark: Benchmark,
        plan: &'a Plan,
        store: &'a Store,
        values: &'a Values,
        known: &Known,
        generation: u64,
        salt: u64,
    ) -> Self {
        let (operations, may_go_on) = benchmark.operations(plan);
        // Each thread goes through everything.
        let passes = if benchmark == Benchmark::Scan { plan.threads } else { 1 };
        let operations = operations.saturating_mul(passes);
        let target = store.target(plan.sync || benchmark == Benchmark::FillSync);
        // A walk in the order of keys looks for each that is left out.
        let counts_keys = matches!(benchmark, Benchmark::Scan | Benchmark::ScanKeys) && !target.has_order();
        let live_keys = if counts_keys { known.live_keys() } else { None };
        let until = plan.time.map(|time| Instant::now() + time);
        let seed = mix(plan.seed ^ salt);
        let order = match benchmark {
            Benchmark::FillSeq => Order::Ascending,
            Benchmark::DeleteRange => Order::Ranges(Permutation::new(plan.ranges(), seed), plan.range_keys),
            _ => Order::Random(Permutation::new(plan.num, seed)),
        };
        let mut expected = known.clone();
        if benchmark.scatters() {
            expected.scatter();
        }
        let is_batched = !benchmark.scatters() && !benchmark.inserts();
        Self {
            benchmark,
            plan,
            target,
            values,
            known: expected,
            live_keys,
            generation,
            salt,
            order,
            // The popular keys are the same ones for all benchmarks of a seed.
            chooser: Chooser::new(plan.distribution.unwrap_or(benchmark.distribution()), known.space(), mix(plan.seed)),
            frontier: Frontier::new(known.space()),
            batch: if is_batched { plan.batch } else { 1 },
            total: if may_go_on && until.is_some() { u64::MAX } else { operations },
            next: AtomicU64::new(0),
            deadline: until.filter(|_| !benchmark.is_single()),
            is_stopped: AtomicBool::new(false),
            done: (0..plan.threads).map(|_| Slot::default()).collect(),
        }
    }

    /// The next operations for a thread; `None` when there are none, or time is over. Whoever takes them does them all.
    pub(super) fn take(&self, now: Instant) -> Option<Range<u64>> {
        if self.is_stopped() || self.deadline.is_some_and(|deadline| now >= deadline) {
            return None;
        }
        let count = CHUNK.max(self.batch);
        let begin = self.next.fetch_add(count, Ordering::Relaxed);
        (begin < self.total).then(|| begin..self.total.min(begin + count))
    }

    /// Operations that were given out: all of them were done if no thread failed.
    pub(super) fn taken(&self) -> u64 {
        self.next.load(Ordering::Relaxed).min(self.total)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Where a thread says how far it is; threads beyond those that were planned have none.
    pub(super) fn slot(&self, thread: u64) -> Option<&Slot> {
        self.done.get(usize::try_from(thread).ok()?)
    }

    /// Operations done so far.
    pub(super) fn done(&self) -> u64 {
        self.done.iter().map(|slot| slot.0.load(Ordering::Relaxed)).sum()
    }

    /// How much of it is done after `time`, from 0 to 1.
    pub(super) fn fraction(&self, time: Duration) -> f64 {
        let by_count = self.done() as f64 / self.total.max(1) as f64;
        let by_time = self.plan.time.map_or(0.0, |all| time.as_secs_f64() / all.as_secs_f64().max(1e-9));
        by_count.max(by_time).min(1.0)
    }

    /// What the store holds once all threads have ended well.
    pub(super) fn outcome(&self, before: &Known) -> Known {
        let mut known = before.clone();
        let (num, count) = (self.plan.num, self.taken());
        match self.benchmark {
            Benchmark::FillSeq | Benchmark::FillRandom | Benchmark::FillSync | Benchmark::Overwrite => {
                known.put(num, self.order, count, self.generation);
            }
            Benchmark::DeleteRandom | Benchmark::DeleteRange => known.delete(num, self.order, count),
            _ => {
                if self.benchmark.scatters() {
                    known.scatter();
                }
                if self.benchmark.inserts() {
                    known.extend(self.frontier.acknowledged() - self.frontier.base(), self.generation);
                }
            }
        }
        known
    }
}
