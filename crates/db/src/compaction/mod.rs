//! Compaction: leveled, with level sizes that follow from the last level's.
//!
//! [`levels`] says how large each level may be, [`pick`] what to compact next (both pure), [`run`] writes the tables,
//! part by part ([`parts`]), and install makes them the version. [`Sieve`] is the rule which entries survive, a [`filter`](CompactionFilter) what a program lets go of besides. [`by_hand`] is for users.

mod by_hand;
mod filter;
mod levels;
mod parts;
mod pick;
mod run;
mod sieve;
#[cfg(test)]
pub(crate) mod testing;

pub use filter::{CompactionFilter, FilterCandidate, FilterDecision};
pub(crate) use levels::Levels;
pub(crate) use parts::{Merge, PARTS_MAX};
pub(crate) use pick::{Plan, next_old, pick, pick_exposing, pick_sweep, pick_window};
use pick::{Range, is_left_in_range, pick_range};
pub(crate) use sieve::{Fate, Sieve};
