//! A Raft log at work, as raft-engine's stress tool puts one: threads that append to groups of their own, threads that
//! read the newest entries, one that purges. Then everything is read back.
//!
//! - B1: an entry follows from seed, group and index, so that any can be checked and none is remembered.
//! - B2: a group belongs to one writer, which says what of it was acknowledged: no less may be there, then or at the end.
//! - B3: of a group exactly that is gone at the end which somebody asked to compact.
//! - B4: where a rate is set, a call's time begins when it was due, so that one slow call does not hide those behind it.

mod plan;
mod verify;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use esker::RaftLog;
use serde_json::Value;

pub(crate) use plan::RaftPlan;

use super::fault::{Fault, Spot, Stop, Wrong};
use super::live::Live;
use super::outcome::{Beside, Figures, Outcome, Work};
use super::process::Usage;
use super::samples::Samples;
use super::store::Picture;
use super::tally::Tally;
use super::values::{Generations, Values};
use crate::failure::Failure;
use crate::sizes::{Bytes, Count, plural};

/// What all threads share.
#[derive(Debug)]
struct Shared<'a> {
    plan: &'a RaftPlan,
    log: &'a RaftLog,
    values: Values,
    groups: Vec<Group>,
    user_bytes: AtomicU64,
    /// Calls of those whom the outcome is about.
    done: AtomicU64,
    stop: AtomicBool,
}

/// What is known of one group.
#[derive(Debug)]
struct Group {
    /// Behind the last entry that was acknowledged.
    next: AtomicU64,
    /// The first entry that nobody asked to compact.
    floor: AtomicU64,
}

impl<'a> Shared<'a> {
    fn new(plan: &'a RaftPlan, log: &'a RaftLog) -> Self {
        let group = |id: u64| Group {
            next: AtomicU64::new(log.last_index(id).map_or(1, |last| last + 1)),
            floor: AtomicU64::new(log.first_index(id).unwrap_or(1)),
        };
        Self {
            plan,
            log,
            values: Values::new(plan.seed, plan.entry_sizes.clone()),
            groups: (1..=plan.groups).map(group).collect(),
            user_bytes: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// What is known of group `id`, of those of the plan.
    fn group(&self, id: u64) -> Result<&Group, Stop> {
        let found = usize::try_from(id).ok().and_then(|id| self.groups.get(id.checked_sub(1)?));
        found.ok_or_else(|| Stop::Failed(Failure::new(format_args!("group {id} is none of the plan's; report it"))))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether `bytes` are what was written.
    fn check(&self, group: u64, index: u64, bytes: &[u8]) -> Result<(), Stop> {
        let only = Generations { oldest: index, newest: index };
        self.values.check(group, bytes, only).map_err(|fault| wrong(group, index, fault))
    }

    fn picture(&self) -> Picture {
        let stats = self.log.stats();
        Picture {
            user_bytes: self.user_bytes.load(Ordering::Relaxed),
            written: vec![("append queue", stats.written_bytes), ("rewrite queue", stats.rewritten_bytes)],
            on_disk: vec![("append queue", stats.append.bytes), ("rewrite queue", stats.rewrite.bytes)],
            counts: vec![
                ("entries", stats.entries),
                ("rewritten_entries", stats.rewritten_entries),
                ("index_bytes", stats.index_bytes as u64),
                ("batches", stats.batches),
                ("commit_groups", stats.commit_groups),
                ("syncs", stats.syncs),
                ("purged_files", stats.purged_files),
                ("recycled_files", stats.recycled_files as u64),
            ],
            words: vec![
                ("group commit", format!("{} batches in {} appends", Count(stats.batches), Count(stats.commit_groups))),
                ("purged", plural(stats.purged_files, "file", "files")),
                (
                    "index",
                    format!("{} of memory for {} entries", Bytes(stats.index_bytes as u64), Count(stats.entries)),
                ),
            ],
            ..Picture::default()
        }
    }
}

fn wrong(group: u64, index: u64, fault: Fault) -> Stop {
    Stop::Wrong(Wrong { spot: Spot::Entry { group, index }, fault })
}

/// Runs all of it. A wrong answer ends the run, and is told by its figures.
pub(crate) fn run(plan: &RaftPlan, log: &RaftLog, options: Value) -> Result<Figures, Failure> {
    let shared = Shared::new(plan, log);
    let mut run =
        Run { shared: &shared, samples: Samples::default(), began: Instant::now(), peak_anonymous_bytes: None };
    let usage = Usage::now();
    let (mut outcomes, mut wrong) = (Vec::new(), None);
    let names = [plan.name(), "verify"];
    for (index, name) in names.iter().enumerate() {
        match if index == 0 { run.stress() } else { run.verify() } {
            Ok(outcome) => outcomes.push(outcome),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Wrong(found)) => {
                wrong = Some(((*name).to_owned(), found));
                break;
            }
        }
    }
    let live_bytes = log.stats().entries as f64 * shared.values.mean_bytes();
    Ok(Figures {
        store: log.path().to_string_lossy().into_owned(),
        plan: plan.object(),
        facts: plan.facts(),
        options,
        names: names.map(str::to_owned).to_vec(),
        outcomes,
        wrong,
        time: run.began.elapsed(),
        samples: run.samples,
        end: shared.picture(),
        usage: Usage::now().since(&usage),
        peak_anonymous_bytes: run.peak_anonymous_bytes,
        live_bytes: Some(live_bytes as u64),
    })
}

/// A run under way.
#[derive(Debug)]
struct Run<'a> {
    shared: &'a Shared<'a>,
    samples: Samples,
    began: Instant,
    peak_anonymous_bytes: Option<u64>,
}

impl Run<'_> {
    fn sample(&mut self, index: usize, is_edge: bool) {
        let done = self.shared.done.load(Ordering::Relaxed);
        self.samples.add(self.began.elapsed(), index, done, self.shared.picture(), is_edge);
        self.peak_anonymous_bytes = self.peak_anonymous_bytes.max(Usage::now().anonymous_bytes);
    }

    /// Lets all threads work until the time is over, or one of them fails.
    fn stress(&mut self) -> Result<Outcome, Stop> {
        let (shared, plan) = (self.shared, self.shared.plan);
        self.sample(0, true);
        let live = Live::begin(plan.name());
        let began = Instant::now();
        let done = std::thread::scope(|scope| {
            let spawn = |threads, name, work: fn(&Shared<'_>, u64) -> Result<Tally, Stop>| -> Result<Vec<_>, Stop> {
                (0..threads).map(|thread| start(scope, shared, name, move || work(shared, thread))).collect()
            };
            let writers = spawn(plan.write_threads, "bench-write", worker::write);
            let readers = spawn(plan.read_threads, "bench-read", worker::read);
            let purger = spawn(u64::from(plan.purge_interval.is_some()), "bench-purge", worker::purge);
            while began.elapsed() < plan.time && !shared.is_stopped() {
                std::thread::park_timeout(self.samples.interval().min(plan.time.saturating_sub(began.elapsed())));
                self.sample(0, false);
                let fraction = began.elapsed().as_secs_f64() / plan.time.as_secs_f64();
                live.show(fraction, shared.done.load(Ordering::Relaxed), began.elapsed());
            }
            shared.stop.store(true, Ordering::Relaxed);
            let writes = total(writers);
            let reads = total(readers);
            // Nobody waits for the last purge.
            let time = began.elapsed().max(Duration::from_nanos(1));
            total(purger)?;
            Ok::<_, Stop>((writes?, reads?, time))
        });
        self.sample(0, true);
        let (writes, reads, time) = done?;
        let work = |about: &str| Work { name: plan.name().to_owned(), about: about.to_owned(), is_single: false };
        if plan.write_threads == 0 {
            let work = work("Read the newest entry of a group");
            return Ok(Outcome { work, threads: plan.read_threads, time, tally: reads, beside: None });
        }
        let beside = (plan.read_threads > 0).then_some(Beside {
            words: "its readers",
            field: "readers",
            threads: plan.read_threads,
            tally: reads,
        });
        let work = work("Append entries to several groups at once");
        Ok(Outcome { work, threads: plan.write_threads, time, tally: writes, beside })
    }

    /// Reads everything back (B2, B3).
    fn verify(&mut self) -> Result<Outcome, Stop> {
        let shared = self.shared;
        shared.done.store(0, Ordering::Relaxed);
        self.sample(1, true);
        let began = Instant::now();
        let live = Live::begin("verify");
        let mut tally = Tally::new()?;
        for (count, id) in (1..=shared.plan.groups).enumerate() {
            verify::group(shared, id, &mut tally)?;
            shared.done.store(tally.operations, Ordering::Relaxed);
            live.show(count as f64 / shared.plan.groups as f64, tally.operations, began.elapsed());
        }
        let time = began.elapsed().max(Duration::from_nanos(1));
        self.sample(1, true);
        let about = "Read every entry of every group, and compare it with what was written".to_owned();
        let work = Work { name: "verify".to_owned(), about, is_single: false };
        Ok(Outcome { work, threads: 1, time, tally, beside: None })
    }
}

/// A thread that stops the others if it fails, or does not even start.
fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared<'_>,
    name: &str,
    work: impl FnOnce() -> Result<Tally, Stop> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<Tally, Stop>>, Stop> {
    let body = move || {
        let result = work();
        if result.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        result
    };
    Builder::new().name(name.to_owned()).spawn_scoped(scope, body).map_err(|error| {
        shared.stop.store(true, Ordering::Relaxed);
        Stop::Failed(Failure::new(format_args!("starting a thread: {error}")))
    })
}

/// What threads counted, once they ended.
fn total(threads: Result<Vec<ScopedJoinHandle<'_, Result<Tally, Stop>>>, Stop>) -> Result<Tally, Stop> {
    let mut total = Tally::new()?;
    for thread in threads? {
        let panicked = |_| Stop::Failed(Failure::new("a thread of the benchmark ended by a panic; report it"));
        total.add(&thread.join().map_err(panicked)??);
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
