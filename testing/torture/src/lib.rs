//! What the tests of Esker's promises share: the answers a store should give ([`model`]), random options ([`options`])
//! and a workload whose every step is known ([`workload`]); the same for the Raft log is in [`raft`].
//!
//! Every test draws from a seed and prints it when it fails; `ESKER_SEED=n cargo test -p esker-torture` runs that seed alone.

pub mod cask;
pub mod fuzz;
pub mod model;
pub mod options;
pub mod raft;
pub mod reads;
pub mod workload;

/// The seeds that a test goes through: `count` from 0 on, or the one that `ESKER_SEED` names.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let wanted = std::env::var("ESKER_SEED").ok().and_then(|seed| seed.parse().ok());
    match wanted {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}
