//! One run of one engine, in a process that does nothing else: phases, settling, and a last reading-through.

use std::time::Instant;

use crate::Result;
use crate::cold;
use crate::data::{Data, KEY_BYTES};
use crate::engine::{Engine, Entry};
use crate::measure::{PeakMemory, cost_now, disk_bytes, wait_until_quiet};
use crate::model::Model;
use crate::plan::{Line, Phase, Plan, Whole};
use crate::raft;
use crate::workload::{self, Done, Work, Workload};

struct Run<'a> {
    plan: &'a Plan,
    entry: &'static Entry,
    data: Data,
    model: Model,
    engine: Option<Box<dyn Engine>>,
}

impl Run<'_> {
    fn open(&mut self) -> Result<()> {
        self.engine = Some(self.entry.open(&self.plan.directory, &self.plan.settings, &self.data)?);
        Ok(())
    }

    fn engine(&self) -> Result<&dyn Engine> {
        self.engine.as_deref().ok_or_else(|| "the engine is not open".into())
    }

    fn close(&mut self) -> Result<()> {
        self.engine.take().map_or(Ok(()), Engine::close)
    }

    /// See [`Work::order`]: made ahead of the clock.
    fn order(&self, workload: Workload) -> Vec<u64> {
        if workload != Workload::Range {
            return Vec::new();
        }
        let mut order: Vec<u64> = self.model.live().map(|index| self.data.rank(index)).collect();
        order.sort_unstable();
        order
    }

    fn do_work(&self, workload: Workload, number: usize, order: &[u64]) -> Result<Done> {
        let work = Work {
            engine: self.engine()?,
            data: &self.data,
            model: &self.model,
            order,
            plan: self.plan,
            salt: workload::salt(self.plan.seed, number),
            checked: self.entry.name != "null",
        };
        workload::run(&work, workload).map_err(|error| format!("{}: {error}", workload.name()).into())
    }

    /// Until the engine says that it is done, its threads sleep, and its files are on the device.
    fn settle(&self) -> Result<()> {
        self.engine()?.settle()?;
        wait_until_quiet()?;
        cold::sync_files(&self.plan.directory)
    }

    fn phase(&mut self, workload: Workload, number: usize) -> Result<Phase> {
        if self.plan.cold && !workload.writes() {
            self.close()?;
            cold::drop_pages(&self.plan.directory)?;
            self.open()?;
        }
        let order = self.order(workload);
        let before = cost_now()?;
        let begun = Instant::now();
        let done = self.do_work(workload, number, &order)?;
        let seconds = begun.elapsed().as_secs_f64();
        let settling = Instant::now();
        if workload.writes() {
            self.settle()?;
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

/// Carries `plan` out and says what came of it, line by line. The last line is [`Line::Whole`].
///
/// # Errors
/// The engine failed or answered wrong; what was said until then is worth nothing.
pub fn run(plan: &Plan, say: &mut dyn FnMut(Line) -> Result<()>) -> Result<()> {
    let entry = Entry::find(&plan.engine)?;
    if let Some(open) = entry.raft() {
        return raft::run(plan, entry, open, say);
    }
    let data = Data::new(plan.seed, plan.value_bytes);
    let mut run = Run { plan, entry, data, model: Model::new(plan.num), engine: None };
    let start = cost_now()?;
    let memory = PeakMemory::watch();
    run.open()?;
    let (mut user_written_bytes, mut user_read_bytes) = (0, 0);
    for (number, workload) in plan.workloads.iter().enumerate() {
        let phase = run.phase(*workload, number)?;
        *if workload.writes() { &mut user_written_bytes } else { &mut user_read_bytes } += phase.user_bytes;
        say(Line::Phase(phase))?;
    }
    let cost = cost_now()?.since(&start);
    let (rss_peak_bytes, anonymous_peak_bytes) = memory.end();
    let disk_bytes = disk_bytes(&plan.directory)?;
    // What counts is what is there after a reopening, all of it, whatever the phases happened to read.
    run.close()?;
    run.open()?;
    run.do_work(Workload::Scan, plan.workloads.len(), &[])?;
    run.close()?;
    let live_bytes = run.model.live().count() as u64 * (KEY_BYTES + run.data.value_bytes()) as u64;
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
