//! Scripts in [Rhai](https://rhai.rs) that say, item by item, what of a closed Raft log is kept, as those of raft-engine's `unsafe_repair`:
//! for the command and for `compat/raft-engine`. A crate of its own, so that the library does not have an interpreter in it.
//!
//! ```text
#![doc = include_str!("functions.txt")]
//! ```
//!
//! - P1: no file of the log changes before the script has been asked about all of it: one that fails changes nothing.
//! - P2: what is kept holds together: entries that leave a gap behind those that were kept are an error.
//!
//! Cost: a call of the script for each item, some microseconds.
//!
//! What differs from raft-engine: a number other than 0, 1 and 2 is an error, and so is a function with another number of parameters, which
//! would never be asked; an item is shown once; the rewrite queue may be filtered alone; the log must not be open. Entries below those that a group
//! has take their place, and gaps in the rewrite queue are no error unless the script makes them: logs that were purged have both, and raft-engine
//! gives up on them. `count` is right after a compaction, too: there raft-engine goes on with the entries that were before it, so that it takes
//! what follows a second compaction for a gap, or passes over one that is, and panics at it when the log is opened. `rewrite_count` is of the
//! rewrite queue alone: in the append queue raft-engine gives the entries before the last item, wherever they lie. `testing/interop` compares both.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod script;
mod state;

use std::collections::BTreeMap;
use std::path::Path;

use esker_env::Env;
use esker_raft_log::{ErrorKind, FilterOptions, Offered, Options, Queue, RaftLog, Renewed, Result, Verdict};

pub use script::Script;

use state::{Group, State};

/// What functions a script may have, for a command's help.
pub const FUNCTIONS: &str = include_str!("functions.txt");

/// What a script took out of a log, or would.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filtered {
    /// The files that were written anew.
    pub files: Vec<Renewed>,
    /// What went of groups of which anything did, in order.
    pub groups: BTreeMap<u64, Discarded>,
}

/// What went of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discarded {
    /// Entries in items that were discarded. One that was overwritten, or moved to the rewrite queue, counts each time.
    pub entries: u64,
    /// What said that entries, or the group, are gone, and was discarded.
    pub commands: u64,
    /// Entries that were kept at first, and discarded with what came before an item.
    pub earlier: u64,
}

impl Script {
    /// Asks about the items of the log in `dir`, and takes out what the script says. See [`RaftLog::filter`] for `options` and `how`.
    ///
    /// # Errors
    /// - `InvalidArgument`: the script fails, with the place in it and the batch that it was asked about; nothing was changed.
    /// - `Corruption`: what the script keeps would have a gap; nothing was changed.
    /// - What [`RaftLog::filter`] says.
    pub fn filter(&self, dir: &Path, options: &Options, env: &Env, how: &FilterOptions<'_>) -> Result<Filtered> {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        let mut discarded: BTreeMap<u64, Discarded> = BTreeMap::new();
        let mut decide = |queue: Queue, id: u64, item: Offered| {
            let group = groups.entry(id).or_default();
            let state = group.kept;
            let verdict = self.ask(id, state, queue, item)?;
            if verdict != Verdict::Keep {
                discarded.entry(id).or_default().add(state, verdict, item);
            }
            group.apply(queue, verdict, item).map_err(|reason| refused(id, state, item, reason))?;
            Ok(verdict)
        };
        let files = RaftLog::filter(dir, options, env, how, &mut decide)?;
        Ok(Filtered { files, groups: discarded })
    }
}

impl Discarded {
    fn add(&mut self, state: State, verdict: Verdict, item: Offered) {
        match (verdict, item) {
            (Verdict::DiscardEarlier, _) => self.earlier = self.earlier.saturating_add(state.count),
            (_, Offered::Entries { first, last }) => {
                self.entries = self.entries.saturating_add(last.saturating_sub(first).saturating_add(1));
            }
            _ => self.commands = self.commands.saturating_add(1),
        }
    }
}

/// What is kept and does not fit to what was kept before it.
fn refused(group: u64, kept: State, item: Offered, reason: &str) -> esker_raft_log::Error {
    let State { first, count, .. } = kept;
    let reason = format!(
        "{}: {reason}: of what was kept so far the group has {count} entries from {first} on; let the script return 1 for it, to discard it, \
         or 2, to discard what was before it",
        Item(group, item)
    );
    esker_raft_log::Error::new(ErrorKind::Corruption, reason)
}

/// An item in words.
struct Item(u64, Offered);

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "group {}, ", self.0)?;
        match self.1 {
            Offered::Entries { first, last } => write!(f, "entries {first} to {last}"),
            Offered::Compact { index } => write!(f, "compacted to {index}"),
            _ => f.write_str("cleaned"),
        }
    }
}
