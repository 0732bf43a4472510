//! Changes of names that no `sync_dir` has made durable yet.
//!
//! - N1: the list is in the order in which the changes were made, across directories.
//! - N2: a change becomes durable only after all earlier ones of the same name (S3).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem;

use super::crash::Draw;
use super::entropy::SeededEntropy;

/// What names stand for: a file or a directory, by number.
pub(super) type Inode = u64;
/// A name: its directory and what it is called there.
pub(super) type Name = (Inode, OsString);
/// The names in one directory.
pub(super) type Entries = BTreeMap<OsString, Inode>;

/// One change of names; a rename is one (S4).
#[derive(Debug, Clone)]
pub(super) enum Change {
    Set { name: Name, inode: Inode },
    Unset { name: Name, inode: Inode },
    Rename { from: Name, to: Name, inode: Inode },
}

impl Change {
    pub(super) fn inode(&self) -> Inode {
        match self {
            Self::Set { inode, .. } | Self::Unset { inode, .. } | Self::Rename { inode, .. } => *inode,
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        let (first, second) = match self {
            Self::Set { name, .. } | Self::Unset { name, .. } => (name, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// Does it to `entries`, by directory.
    pub(super) fn apply(&self, entries: &mut BTreeMap<Inode, Entries>) {
        match self {
            Self::Set { name, inode } => set(entries, name, *inode),
            Self::Unset { name, .. } => unset(entries, name),
            Self::Rename { from, to, inode } => {
                unset(entries, from);
                set(entries, to, *inode);
            }
        }
    }
}

fn set(entries: &mut BTreeMap<Inode, Entries>, (dir, name): &Name, inode: Inode) {
    entries.entry(*dir).or_default().insert(name.clone(), inode);
}

fn unset(entries: &mut BTreeMap<Inode, Entries>, (dir, name): &Name) {
    if let Some(entries) = entries.get_mut(dir) {
        entries.remove(name);
    }
}

/// Takes the changes that a sync of `dir` makes durable out of `pending`, in order.
pub(super) fn take_for_sync(pending: &mut Vec<Change>, dir: Inode) -> Vec<Change> {
    take(pending, |name| name.0 == dir)
}

/// Takes the changes of one name out of `pending`, in order.
pub(super) fn take_for_name(pending: &mut Vec<Change>, wanted: &Name) -> Vec<Change> {
    take(pending, |name| name == wanted)
}

fn take(pending: &mut Vec<Change>, is_asked_for: impl Fn(&Name) -> bool) -> Vec<Change> {
    // Backwards: what is asked for pulls in the earlier changes of its names (N2).
    let mut pulled: BTreeSet<Name> = BTreeSet::new();
    let mut decisions: Vec<bool> = Vec::with_capacity(pending.len());
    for change in pending.iter().rev() {
        let is_taken = change.names().any(|name| is_asked_for(name) || pulled.contains(name));
        if is_taken {
            pulled.extend(change.names().cloned());
        }
        decisions.push(is_taken);
    }
    let mut taken = Vec::new();
    for (change, is_taken) in mem::take(pending).into_iter().zip(decisions.into_iter().rev()) {
        if is_taken { taken.push(change) } else { pending.push(change) }
    }
    taken
}

/// A sample of `pending` that a power loss may leave, in order.
pub(super) fn sample<'a>(pending: &'a [Change], random: &SeededEntropy) -> Vec<&'a Change> {
    let mut lost: BTreeSet<&Name> = BTreeSet::new();
    let mut survivors = Vec::new();
    let draw = Draw::of(pending.len() as u64, random);
    for (index, change) in (0..).zip(pending) {
        if change.names().any(|name| lost.contains(name)) || !draw.survives(index, random) {
            lost.extend(change.names());
        } else {
            survivors.push(change);
        }
    }
    survivors
}
