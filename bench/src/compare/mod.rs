//! The parent: gives each run a process and a directory of its own, and collects what they say.

mod cgroup;
mod child;

use std::path::PathBuf;

use crate::Result;
use crate::engine::Entry;
use crate::plan::{Plan, Settings};
use crate::schedule::{Outcome, Slot, slots};
use crate::warm;
use crate::workload::Workload;

/// Memory that a run may take, for each byte of its values: logs, tables and copies of them.
const WARM_TIMES: u64 = 5;
/// More than this takes too long.
const WARM_BYTES_MAX: u64 = 8 << 30;

pub use cgroup::Cgroup;
pub use child::build_badger;

/// What to compare.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Names; the first is what the others are compared with.
    pub engines: Vec<String>,
    /// Phases, in order. A load comes first, asked for or not: there is nothing to read without.
    pub workloads: Vec<Workload>,
    /// Lengths of values, each a comparison of its own.
    pub value_bytes: Vec<usize>,
    /// Numbers of threads, each a comparison of its own.
    pub threads: Vec<u64>,
    /// How often each engine runs.
    pub rounds: u32,
    /// Keys. Fewer if their values would exceed `data_bytes_max`.
    pub num: u64,
    /// Keys and values together, at most.
    pub data_bytes_max: u64,
    /// Operations of each phase other than the load and full scans, at most `num`. 0 is `num`.
    pub reads: u64,
    /// Puts in one write.
    pub batch: usize,
    /// Entries of one short range.
    pub range_entries: u64,
    /// Raft groups.
    pub groups: u64,
    /// See [`Plan::keep_entries`].
    pub keep_entries: u64,
    /// See [`Plan::seconds_max`].
    pub seconds_max: u64,
    /// Where keys and values come from.
    pub seed: u64,
    /// What every engine gets alike.
    pub settings: Settings,
    /// See [`Plan::cold`].
    pub cold: bool,
    /// Where stores are made; each goes when its run is over.
    pub directory: PathBuf,
    /// A memory cgroup that may be divided, to limit the page cache with.
    pub cgroup: Option<Cgroup>,
}

impl Comparison {
    fn is_raft(&self) -> bool {
        self.engines.iter().any(|name| Entry::find(name).is_ok_and(Entry::is_raft))
    }

    fn plan(&self, slot: &Slot, directory: PathBuf) -> Plan {
        let entry_bytes = (slot.value_bytes + crate::data::KEY_BYTES) as u64;
        let num = self.num.min(self.data_bytes_max / entry_bytes).max(1);
        let mut workloads = self.workloads.clone();
        let first = if self.is_raft() { Workload::Append } else { Workload::Load };
        if workloads.first() != Some(&first) {
            workloads.retain(|workload| *workload != first);
            workloads.insert(0, first);
        }
        Plan {
            engine: slot.engine.clone(),
            directory,
            settings: self.settings.clone(),
            num,
            reads: if self.reads == 0 { num } else { self.reads },
            value_bytes: slot.value_bytes,
            batch: self.batch,
            range_entries: self.range_entries,
            groups: self.groups.max(1),
            keep_entries: self.keep_entries,
            threads: slot.threads,
            seconds_max: self.seconds_max,
            seed: self.seed,
            workloads,
            cold: self.cold,
        }
    }

    /// Runs everything. `progress` hears of each run before it starts.
    ///
    /// # Errors
    /// One run failed or read a wrong value: then there is no report at all.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize, &Slot)) -> Result<Vec<Outcome>> {
        for engine in &self.engines {
            let entry = Entry::find(engine)?;
            if entry.is_raft() != self.is_raft() {
                return Err("Raft logs are compared with Raft logs only: see `engines`".into());
            }
            if entry.is_single() && self.batch > 1 {
                return Err(
                    format!("{engine} cannot write several keys all or nothing: leave it out of --batch").into()
                );
            }
        }
        let badger = match self.engines.iter().any(|name| Entry::find(name).is_ok_and(Entry::is_elsewhere)) {
            true => Some(build_badger()?),
            false => None,
        };
        std::fs::create_dir_all(&self.directory)?;
        let slots = slots(&self.engines, &self.value_bytes, &self.threads, self.rounds);
        let mut outcomes = Vec::with_capacity(slots.len());
        for (number, slot) in slots.iter().enumerate() {
            progress(number, slots.len(), slot);
            let directory = tempfile::Builder::new().prefix("store-").tempdir_in(&self.directory)?;
            let plan = self.plan(slot, directory.path().to_owned());
            let taken = plan.num.saturating_mul(plan.value_bytes as u64).saturating_mul(WARM_TIMES);
            warm::up(&self.directory, taken.min(WARM_BYTES_MAX))?;
            let (phases, whole) = child::run(&plan, badger.as_deref(), self.cgroup.as_ref())
                .map_err(|error| format!("{} (round {}): {error}", slot.engine, slot.round + 1))?;
            outcomes.push(Outcome { round: slot.round, plan, phases, whole });
        }
        Ok(outcomes)
    }
}
