//! The key directory: which record is the newest of each key. All of it is in memory, none of the keys is.
//!
//! A key's hash chooses a shard (12 bits) and a tag (32 other bits). Slots whose tags are equal are candidates; the key in
//! the record decides. Of twenty million keys one in a million shares shard and tag with another, so a hit costs
//! one access to a file and a miss nearly always none.
//!
//! - D1: the slots of a key change only under the key's lock (L2 of `stripe.rs`). So a writer or a merge that holds it may look a
//!   key up, read records, write, and put the slot in place without looking again.
//! - D2: a shard is locked to change slots: for tens of nanoseconds, and some ten microseconds when the shard (a
//!   four-thousandth of all keys) grows by a twelfth. No file is touched under it, and no other lock taken but that of the memory
//!   for a larger table (`arena.rs`). A batch holds the shards of all its keys, in ascending order, while their slots change
//!   (`held.rs`): some 100 ns for each key.
//! - D3: whoever looks takes no lock and stores nothing: it looks again if the shard changed meanwhile (Q1 to Q3 of `table.rs`). So any
//!   number of readers share nothing but what they read, and a change costs those a second look who look at the same
//!   four-thousandth of all keys in the same 50 ns. Nobody looks for ever: who met a batch waits for its end asleep.
//!
//! The hash is seeded at random for each open, so nobody can choose keys that collide. It never reaches the disk.

mod arena;
mod directory;
mod held;
mod shard;
mod slot;
mod table;

pub(crate) use directory::{Candidates, KeyDir, KeyHash};
pub(crate) use held::Held;
pub(crate) use slot::{Place, Slot};

// Not in the rooms that they test, which `tests/keydir_model.rs` compiles a second time over other locks.
#[cfg(test)]
mod tests;
