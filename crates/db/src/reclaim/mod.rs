//! Giving space back, the cheapest way first.
//!
//! | room         | what it does                                                                                |
//! |--------------|---------------------------------------------------------------------------------------------|
//! | [`trash`]    | files that nothing names any more go                                                        |
//! | [`room`]     | how much may still be written, and who waits for more                                       |
//! | [`deletions`] | what they may take of a store that is full                                                 |
//! | [`incoming`] | what comes in as whole files, until a version names it                                      |
//! | [`overwriting`] | how much of what is written hides something that the ledger takes for living          |
//! | [`hidden`]   | how much may be overwritten that the ledger takes for living                                |
//! | [`pick`]     | how much of the blob files is garbage, and which of them to empty next                      |
//! | [`ranges`]   | ranges of keys that have blob files of their own                                            |
//! | [`window`]   | which range to write again next, and which files that empties                              |
//! | [`punch`]    | dead pages become holes, where values are large                                             |
//! | [`relocate`] | one pass over the tables that point into them moves what lives there, in key order          |
//! | [`home`]     | values come back from blob files to the tables of a family that falls back                  |
//! | [`pace`]     | how fast values are copied                                                                  |
//! | [`range`]    | whole tables of a range of keys go                                                          |
//! | [`by_hand`]  | the same when a user asks, and what it would do                                             |
//!
//! - R1: values, tables and garbage change in one edit: a value is reachable at its old place or at its new one, never at
//!   neither (B4).
//! - R2: nothing is put again: an entry keeps its key, its sequence number and its place among the levels, so a newer put
//!   stays newer (B2).
//! - R3: what a pass does not find stays. A blob file goes only when the ledger, to which every pass adds exactly what it
//!   has moved or dropped, says that nothing in it lives; so a reference that was missed keeps its file (B3).
//! - R4: a pass that was asked for copies about one blob file's worth of values, one in the background as much as the bound leaves
//!   room for (a step home, [`home`], no more than one blob file's worth), however much there is to do; through one record's memory (B9).

mod by_hand;
mod deletions;
mod hidden;
mod home;
mod incoming;
mod overwriting;
mod pace;
mod pick;
mod punch;
mod range;
mod ranges;
mod relocate;
mod room;
mod trash;
mod window;

pub use by_hand::{BlobFileUse, ReclaimPlan, Reclaimed};
pub(crate) use hidden::{hidden_bytes, not_compacted_bytes, overlying};
#[cfg(test)]
pub(crate) use home::pick_any_step;
pub(crate) use home::pick_step;
pub(crate) use incoming::{Coming, Incoming, Sizes};
pub(crate) use overwriting::Overwriting;
pub(crate) use pace::Pace;
#[cfg(test)]
pub(crate) use pick::Foreseen;
pub(crate) use pick::{
    Crowd, Goal, Need, Pass, Relocation, copied_bytes, crowd, garbage_part, next_pass_bytes, pass_bytes, pick,
    pick_pass, pick_scattered, pick_small, writes_little,
};
pub(crate) use punch::{Punch, fresh_bytes, has_pages, pick as pick_punch};
pub(crate) use range::Removal;
pub(crate) use ranges::{Ends, Ranges};
pub(crate) use room::{BLOCK_BYTES, Left, Reserved, Room, limit_of, rounding_bytes};
pub(crate) use trash::Trash;
pub(crate) use window::pick_window;
