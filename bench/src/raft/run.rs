//! One run of one Raft log, in a process that does nothing else.

use std::time::Instant;

use super::work::Log;
use super::{OpenRaft, RaftStore};
use crate::Result;
use crate::cold;
use crate::data::Data;
use crate::engine::Entry;
use crate::measure::{PeakMemory, cost_now, disk_bytes};
use crate::plan::{Line, Phase, Plan, Whole};
use crate::workload::{Done, Workload};

/// How often a log is opened to learn how long that takes.
const REOPENINGS: u64 = 3;

struct Run<'a> {
    plan: &'a Plan,
    open: OpenRaft,
    data: Data,
    store: Option<Box<dyn RaftStore>>,
}

impl Run<'_> {
    fn open(&mut self) -> Result<()> {
        self.store = Some((self.open)(&self.plan.directory, &self.plan.settings)?);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.store.take().map_or(Ok(()), RaftStore::close)
    }

    fn log(&self) -> Result<Log<'_>> {
        let store = self.store.as_deref().ok_or("the log is not open")?;
        Ok(Log { store, data: &self.data, plan: self.plan })
    }

    fn reopen(&mut self) -> Result<Done> {
        let mut done = Done::nothing()?;
        for _ in 0..REOPENINGS {
            self.close()?;
            let begun = Instant::now();
            self.open()?;
            done.latencies.record(begun.elapsed());
            done.operations += 1;
            done.user_bytes += self.log()?.live_bytes();
        }
        Ok(done)
    }

    fn phase(&mut self, workload: Workload) -> Result<Phase> {
        if self.plan.cold && workload == Workload::Fetch {
            self.close()?;
            cold::drop_pages(&self.plan.directory)?;
            self.open()?;
        }
        let before = cost_now()?;
        let begun = Instant::now();
        let done = match workload {
            Workload::Append => self.log()?.crew(Log::append),
            Workload::Fetch => self.log()?.crew(Log::fetch),
            Workload::Reopen => self.reopen(),
            other => Err(format!("{} is no work for a Raft log: append, fetch and reopen are", other.name()).into()),
        };
        let done = done.map_err(|error| format!("{}: {error}", workload.name()))?;
        let seconds = begun.elapsed().as_secs_f64();
        let settling = Instant::now();
        if workload.writes() {
            cold::sync_files(&self.plan.directory)?;
        }
        Ok(Phase {
            workload,
            operations: done.operations,
            user_bytes: done.user_bytes,
            seconds,
            settle_seconds: if workload.writes() { settling.elapsed().as_secs_f64() } else { 0.0 },
            latency: done.latencies.summary(),
            cost: cost_now()?.since(&before),
        })
    }
}

/// As [`crate::run::run`].
pub(crate) fn run(plan: &Plan, entry: &Entry, open: OpenRaft, say: &mut dyn FnMut(Line) -> Result<()>) -> Result<()> {
    let mut run = Run { plan, open, data: Data::new(plan.seed, plan.value_bytes), store: None };
    let start = cost_now()?;
    let memory = PeakMemory::watch();
    run.open()?;
    let (mut user_written_bytes, mut user_read_bytes) = (0, 0);
    for workload in &plan.workloads {
        let phase = run.phase(*workload)?;
        *if workload.writes() { &mut user_written_bytes } else { &mut user_read_bytes } += phase.user_bytes;
        say(Line::Phase(phase))?;
    }
    let cost = cost_now()?.since(&start);
    let (rss_peak_bytes, anonymous_peak_bytes) = memory.end();
    run.close()?;
    let disk_bytes = disk_bytes(&plan.directory)?;
    // What counts is what is there after a reopening.
    run.open()?;
    run.log()?.crew(Log::check)?;
    let live_bytes = run.log()?.live_bytes();
    run.close()?;
    say(Line::Whole(Whole {
        user_written_bytes,
        user_read_bytes,
        live_bytes,
        disk_bytes,
        rss_peak_bytes,
        anonymous_peak_bytes,
        cost,
        version: entry.version(),
        setup: (entry.setup)(&plan.settings),
    }))
}
