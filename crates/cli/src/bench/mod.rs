//! What `esker bench` does: puts the store to work, checks every answer, and measures.
//!
//! - N1: every value, key and order follows from `--seed`; the same command gives the same store.
//! - N2: every answer is checked against what was written before, and the first wrong one ends the run: a lost key, one
//!   that came back, an old value, another key's, a byte that differs, a key left out by an iterator.
//! - N3: nothing about single keys is remembered, so that memory is the store's own.
//! - N4: measuring costs little beside the store: `null` shows how much.

mod benchmark;
mod choose;
mod cursor;
mod fault;
mod frontier;
mod keys;
mod known;
mod live;
mod outcome;
mod plan;
mod print;
mod process;
mod raft;
pub(crate) mod random;
mod report;
mod run;
mod samples;
mod scan;
mod shared;
mod sizes;
mod store;
mod tally;
mod values;
mod worker;

pub(crate) use benchmark::Benchmark;
pub(crate) use choose::Distribution;
pub(crate) use keys::{KEY_BYTES_MAX, KEY_BYTES_MIN};
pub(crate) use outcome::Figures;
pub(crate) use plan::Plan;
pub(crate) use print::print;
pub(crate) use raft::{RaftPlan, run as run_raft};
pub(crate) use report::{expect as expect_report, write as write_report};
pub(crate) use run::run;
pub(crate) use sizes::ValueSizes;
pub(crate) use store::Store;
