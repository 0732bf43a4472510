//! Runs benchmarks one after another on an open store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle, Thread};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::benchmark::Benchmark;
use super::fault::Stop;
use super::known::Known;
use super::live::Live;
use super::outcome::{Beside, Figures, Outcome};
use super::plan::Plan;
use super::process::Usage;
use super::samples::Samples;
use super::shared::Shared;
use super::store::Store;
use super::tally::Tally;
use super::values::Values;
use super::worker::Worker;
use crate::failure::Failure;

/// Runs all that `plan` lists. A wrong answer ends the run, and is told by its figures.
pub(crate) fn run(plan: &Plan, store: &Store, options: Value) -> Result<Figures, Failure> {
    plan.check(store.kind())?;
    let values = Values::new(plan.seed, plan.value_sizes.clone());
    let mut run = Run::begin(plan, store, &values);
    let mut wrong = None;
    for (index, &benchmark) in plan.benchmarks.iter().enumerate() {
        match run.one(index, benchmark) {
            Ok(outcome) => run.outcomes.push(outcome),
            Err(Stop::Wrong(found)) => {
                wrong = Some((benchmark.name(), found));
                break;
            }
            Err(Stop::Failed(failure)) => return Err(failure),
        }
    }
    let time = run.began.elapsed();
    let usage = Usage::now().since(&run.usage);
    let live_bytes = run.known.live_keys().map(|keys| {
        let entry_bytes = plan.key_bytes as f64 + values.mean_bytes();
        (keys as f64 * entry_bytes) as u64
    });
    Ok(Figures {
        store: store.path().to_string_lossy().into_owned(),
        plan: plan.object(),
        facts: plan.facts(),
        options,
        names: plan.benchmarks.iter().map(|benchmark| benchmark.name()).collect(),
        outcomes: run.outcomes,
        wrong,
        samples: run.samples,
        time,
        end: store.picture(),
        usage,
        peak_anonymous_bytes: run.peak_anonymous_bytes,
        live_bytes,
    })
}

/// A run under way.
#[derive(Debug)]
struct Run<'a> {
    plan: &'a Plan,
    store: &'a Store,
    values: &'a Values,
    known: Known,
    samples: Samples,
    began: Instant,
    usage: Usage,
    peak_anonymous_bytes: Option<u64>,
    outcomes: Vec<Outcome>,
}

/// A thread's counts, and when it was done.
type Ended = (Result<Tally, Stop>, Instant);

impl<'a> Run<'a> {
    fn begin(plan: &'a Plan, store: &'a Store, values: &'a Values) -> Self {
        Self {
            plan,
            store,
            values,
            known: Known::new(plan.num, plan.use_existing),
            samples: Samples::default(),
            began: Instant::now(),
            usage: Usage::now(),
            peak_anonymous_bytes: None,
            outcomes: Vec::new(),
        }
    }

    /// Runs one benchmark to its end.
    fn one(&mut self, index: usize, benchmark: Benchmark) -> Result<Outcome, Stop> {
        // Each value that a benchmark writes raises the store's number to its generation at least, so that a later one, in a later
        // run, too, has a greater one. It is no count of benchmarks: those that write nothing would let values run ahead of the store.
        let generation = self.store.picture().sequence + 1;
        // But each has random numbers of its own.
        let salt = generation + index as u64;
        let shared = Shared::new(benchmark, self.plan, self.store, self.values, &self.known, generation, salt);
        self.sample(index, &shared, true);
        let outcome = self.watch(index, &shared);
        self.sample(index, &shared, true);
        let outcome = outcome?;
        self.known = shared.outcome(&self.known);
        Ok(outcome)
    }

    fn sample(&mut self, index: usize, shared: &Shared<'_>, is_edge: bool) {
        let picture = self.store.picture();
        self.samples.add(self.began.elapsed(), index, shared.done(), picture, is_edge);
        self.peak_anonymous_bytes = self.peak_anonymous_bytes.max(Usage::now().anonymous_bytes);
    }

    /// Starts the threads, looks on until they are done, and adds up what they counted.
    fn watch(&mut self, index: usize, shared: &Shared<'_>) -> Result<Outcome, Stop> {
        let threads = if shared.benchmark.is_single() { 1 } else { self.plan.threads };
        let workers = (0..threads).map(|thread| Worker::new(shared, thread)).collect::<Result<Vec<_>, _>>()?;
        let has_writer = shared.benchmark == Benchmark::ReadWhileWriting;
        let writer = has_writer.then(|| Worker::new(shared, threads)).transpose()?;
        let running = &AtomicUsize::new(0);
        let live = Live::begin(&shared.benchmark.name());
        let began = Instant::now();
        std::thread::scope(|scope| {
            let numbered = workers.into_iter().enumerate();
            let readers: Vec<_> = numbered
                .map(|(thread, worker)| {
                    let finish = Finish::new(running);
                    start(scope, shared, format!("bench-{thread}"), move || {
                        let _finish = finish;
                        worker.run()
                    })
                })
                .collect();
            let writer =
                writer.map(|worker| start(scope, shared, "bench-writer".to_owned(), || worker.write_until_stopped()));
            while running.load(Ordering::Acquire) > 0 {
                std::thread::park_timeout(self.samples.interval());
                self.sample(index, shared, false);
                live.show(shared.fraction(began.elapsed()), shared.done(), began.elapsed());
            }
            shared.stop();
            let mut tally = Tally::new()?;
            let mut end = began;
            for reader in readers {
                let (counts, ended) = join(reader)?;
                tally.add(&counts);
                end = end.max(ended);
            }
            let writer = writer.map(join).transpose()?;
            let beside = writer.map(|(tally, _)| Beside { words: "its writer", field: "writer", threads: 1, tally });
            let time = (end - began).max(Duration::from_nanos(1));
            Ok(Outcome { work: shared.benchmark.into(), threads, time, tally, beside })
        })
    }
}

/// A thread that stops the others if it fails, or does not even start.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'_>,
    name: String,
    work: impl FnOnce() -> Result<Tally, Stop> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Ended>, Stop> {
    let body = move || {
        let result = work();
        if result.is_err() {
            shared.stop();
        }
        (result, Instant::now())
    };
    Builder::new().name(name).spawn_scoped(scope, body).map_err(|error| {
        shared.stop();
        Stop::Failed(Failure::new(format_args!("starting a thread: {error}")))
    })
}

fn join(thread: Result<ScopedJoinHandle<'_, Ended>, Stop>) -> Result<(Tally, Instant), Stop> {
    let panicked = |_| Stop::Failed(Failure::new("a thread of the benchmark ended by a panic; report it"));
    let (result, ended) = thread?.join().map_err(panicked)?;
    Ok((result?, ended))
}

/// Counts a thread as running until it is dropped, also by a panic.
#[derive(Debug)]
struct Finish<'a> {
    running: &'a AtomicUsize,
    observer: Thread,
}

impl<'a> Finish<'a> {
    fn new(running: &'a AtomicUsize) -> Self {
        running.fetch_add(1, Ordering::Relaxed);
        Self { running, observer: std::thread::current() }
    }
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Release);
        self.observer.unpark();
    }
}

#[cfg(test)]
mod tests;
