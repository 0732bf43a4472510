//! Giving space back, the cheapest way first.
//!
//! | room         | what it does                                                                                |
//! |--------------|---------------------------------------------------------------------------------------------|
//! | [`trash`]    | files that nothing names any more go                                                        |
//! | [`pick`]     | how much of the blob files is garbage, and which of them to empty next                      |
//! | [`punch`]    | dead pages become holes, where values are large                                             |
//! | [`relocate`] | one pass over the tables that point into them moves what lives there, in key order          |
//! | [`by_hand`]  | the same when a user asks, and what it would do                                             |
//!
//! - R1: values, tables and garbage change in one edit: a value is reachable at its old place or at its new one, never at
//!   neither (B4).
//! - R2: nothing is put again: an entry keeps its key, its sequence number and its place among the levels, so a newer put
//!   stays newer (B2).
//! - R3: what a pass does not find stays. A blob file goes only when the ledger, to which every pass adds exactly what it
//!   has moved or dropped, says that nothing in it lives; so a reference that was missed keeps its file (B3).
//! - R4: a pass copies about one blob file's worth of values, however much there is to do, through one record's memory (B9).

mod by_hand;
mod pick;
mod punch;
mod relocate;
mod trash;

pub use by_hand::{BlobFileUse, ReclaimPlan, Reclaimed};
pub(crate) use pick::{Goal, Relocation, exceeds, hides_too_much, pick};
pub(crate) use punch::{Punch, pick as pick_punch};
pub(crate) use trash::Trash;
