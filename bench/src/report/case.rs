//! What belongs together in a report: the runs with one value size and one number of threads.

use std::collections::BTreeSet;

use super::{Report, Spread};
use crate::plan::{Phase, Plan, Whole};
use crate::schedule::Outcome;

/// One value size and one number of threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) report: &'a Report,
    pub(super) value_bytes: usize,
    pub(super) threads: u64,
}

impl Report {
    /// In the order of value sizes, then threads.
    pub(super) fn cases(&self) -> Vec<Case<'_>> {
        let found: BTreeSet<_> =
            self.outcomes.iter().map(|outcome| (outcome.plan.value_bytes, outcome.plan.threads)).collect();
        found.into_iter().map(|(value_bytes, threads)| Case { report: self, value_bytes, threads }).collect()
    }
}

impl<'a> Case<'a> {
    fn outcomes(&self, engine: &str) -> Vec<&'a Outcome> {
        let is_mine = |outcome: &&Outcome| {
            let plan = &outcome.plan;
            plan.engine == engine && plan.value_bytes == self.value_bytes && plan.threads == self.threads
        };
        self.report.outcomes.iter().filter(is_mine).collect()
    }

    /// Rounds in which the engine had something to do, and what it did.
    fn phases(&self, engine: &str, number: usize) -> Vec<(u32, &'a Phase)> {
        let outcomes = self.outcomes(engine).into_iter();
        let phases = outcomes.filter_map(|outcome| Some((outcome.round, outcome.phases.get(number)?)));
        phases.filter(|(_, phase)| phase.operations > 0).collect()
    }

    /// What all its runs did: they differ in engine and directory only.
    pub(super) fn plan(&self) -> Option<&'a Plan> {
        self.report
            .head
            .engines
            .iter()
            .find_map(|engine| self.outcomes(engine).first().copied())
            .map(|outcome| &outcome.plan)
    }

    /// A figure of a phase over the rounds; `None` where the engine had nothing to do in it.
    pub(super) fn phase(&self, engine: &str, number: usize, of: impl Fn(&Phase) -> f64) -> Option<Spread> {
        Spread::of(self.phases(engine, number).into_iter().map(|(_, phase)| of(phase)))
    }

    /// A figure of whole runs over the rounds.
    pub(super) fn whole(&self, engine: &str, of: impl Fn(&Whole) -> f64) -> Option<Spread> {
        Spread::of(self.outcomes(engine).into_iter().map(|outcome| of(&outcome.whole)))
    }

    /// Speed against the reference's in the same round.
    pub(super) fn ratio(&self, engine: &str, number: usize) -> Option<Spread> {
        let reference = self.report.head.engines.first()?;
        let speeds = self.phases(reference, number);
        Spread::of(self.phases(engine, number).into_iter().filter_map(|(round, phase)| {
            let (_, other) = speeds.iter().find(|(of, _)| *of == round)?;
            Some(phase.operations_per_second() / other.operations_per_second())
        }))
    }
}
