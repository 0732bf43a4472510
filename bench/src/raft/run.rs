//! One run of one Raft log, in a process that does nothing else.

use std::time::{Duration, Instant};

use super::work::Log;
use super::{OpenRaft, RaftStore};
use crate::Result;
use crate::cold;
use crate::data::Data;
use crate::engine::Entry;
use crate::measure::{PeakMemory, cost_now, disk_bytes, wait_until_quiet};
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

    /// Its seconds are those of the openings alone.
    fn reopen(&mut self) -> Result<(Done, f64)> {
        let (mut done, mut opening) = (Done::nothing()?, Duration::ZERO);
        for _ in 0..REOPENINGS {
            self.close()?;
            if self.plan.cold {
                cold::drop_pages(&self.plan.directory)?;
            }
            let begun = Instant::now();
            self.open()?;
            let taken = begun.elapsed();
            opening += taken;
            done.latencies.record(taken);
            done.operations += 1;
            done.user_bytes += self.log()?.live_bytes();
        }
        Ok((done, opening.as_secs_f64()))
    }

    /// Its seconds are wall time.
    fn timed(&self, work: impl FnOnce(&Log<'_>) -> Result<Done>) -> Result<(Done, f64)> {
        let log = self.log()?;
        let begun = Instant::now();
        let done = work(&log)?;
        Ok((done, begun.elapsed().as_secs_f64()))
    }

    /// As key-value stores settle: the log says that it is done, its threads sleep, and its files are on the device.
    fn settle(&self) -> Result<()> {
        self.log()?.store.settle()?;
        wait_until_quiet()?;
        cold::sync_files(&self.plan.directory)
    }

    fn phase(&mut self, workload: Workload) -> Result<Phase> {
        if self.plan.cold && workload == Workload::Fetch {
            self.close()?;
            cold::drop_pages(&self.plan.directory)?;
            self.open()?;
        }
        let before = cost_now()?;
        let done = match workload {
            Workload::Append => self.timed(|log| log.crew(Log::append)),
            Workload::Fetch => self.timed(|log| log.crew(Log::fetch)),
            Workload::Reopen => self.reopen(),
            other => Err(format!("{} is no work for a Raft log: append, fetch and reopen are", other.name()).into()),
        };
        let (done, seconds) = done.map_err(|error| format!("{}: {error}", workload.name()))?;
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

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::data::mix;
    use crate::plan::Settings;
    use crate::raft::Append;

    static SETTLED: AtomicU64 = AtomicU64::new(0);

    /// Holds nothing, opens at once, and takes its time to close.
    struct Hollow;

    impl RaftStore for Hollow {
        fn append(&self, _: &[Append<'_>]) -> Result<()> {
            Ok(())
        }

        fn fetch(&self, _: u64, _: u64, _: u64, _: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
            Ok(())
        }

        fn state(&self, _: u64) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }

        fn compact(&self, _: u64, _: u64) -> Result<()> {
            Ok(())
        }

        fn reclaim(&self) -> Result<()> {
            Ok(())
        }

        fn settle(&self) -> Result<()> {
            SETTLED.fetch_add(1, Relaxed);
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<()> {
            black_box((0..1_000_000).fold(0, |sum, number| mix(sum ^ number)));
            Ok(())
        }
    }

    fn phase(workload: Workload) -> Phase {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan {
            engine: "hollow".into(),
            directory: directory.path().into(),
            settings: Settings { memory_bytes: 64 << 20, min_blob_bytes: 256, background_jobs: 2, sync: false },
            num: 100,
            reads: 100,
            value_bytes: 100,
            batch: 4,
            range_entries: 4,
            groups: 10,
            keep_entries: 0,
            threads: 2,
            seconds_max: 0,
            seed: 5,
            workloads: vec![workload],
            cold: true,
        };
        let open: OpenRaft = |_: &Path, _: &Settings| Ok(Box::new(Hollow));
        Run { plan: &plan, open, data: Data::new(5, 100), store: Some(Box::new(Hollow)) }.phase(workload).unwrap()
    }

    #[test]
    fn a_log_settles_after_what_it_wrote() {
        assert_eq!(phase(Workload::Append).operations, 100);
        assert_eq!(SETTLED.load(Relaxed), 1);
    }

    #[test]
    fn the_speed_of_reopening_is_that_of_the_openings() {
        let phase = phase(Workload::Reopen);
        assert_eq!(phase.operations, REOPENINGS);
        // None of them took longer than the longest, but closing is slower than all.
        let most = (REOPENINGS * phase.latency.max + 1) as f64;
        assert!(phase.seconds * 1e9 <= most, "{} s where openings took {most} ns", phase.seconds);
    }
}
