//! What the tests of Esker's promises share: the answers a store should give ([`model`]), random options ([`options`])
//! and a workload whose every step is known ([`workload`]); the same for the Raft log is in [`raft`].
//!
//! Every test draws from a seed and prints it when it fails; `ESKER_SEED=n cargo test -p esker-torture` runs that seed alone.

pub mod cask;
pub mod crash;
pub mod forked;
pub mod fuzz;
pub mod history;
pub mod hooked;
pub mod lives;
pub mod model;
pub mod noise;
pub mod numbered;
pub mod options;
pub mod orders;
pub mod raft;
pub mod reads;
pub mod workload;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs what a seed determines, for each of [`seeds`].
///
/// # Panics
/// If it does; the seed is named then.
pub fn each_seed(count: u64, mut run: impl FnMut(u64)) {
    for seed in seeds(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} failed; run it alone with ESKER_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// The seeds that a test goes through: `count` from 0 on, or the one that `ESKER_SEED` names, or those that
/// `ESKER_TORTURE_SEEDS` asks for (see [`crash`]).
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let read = |name| std::env::var(name).ok();
    if let Some(seed) = read("ESKER_SEED").and_then(|seed| seed.parse().ok()) {
        return seed..seed + 1;
    }
    let asked = read("ESKER_TORTURE_SEEDS").unwrap_or_default();
    match asked.split_once("..").map(|(from, until)| (from.parse(), until.parse())) {
        Some((Ok(from), Ok(until))) => from..until,
        _ => 0..asked.parse().unwrap_or(0).max(count),
    }
}
