//! What is left when the power goes, or only the processes.

use std::collections::BTreeMap;

use super::content::Content;
use super::disk::Disk;
use super::entropy::SeededEntropy;
use super::names::{self, Change, Entries, Inode};
use super::tree::{Directory, File, Node, ROOT, Tree};

/// How much of what was not synced survives a power loss. What a failed sync dropped does not, unless in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Survivors {
    /// None of it.
    Nothing,
    /// All of it.
    Everything,
    /// Some of it, as the rules S1 to S6 of [the module](super) allow. The same of the same disk for the same seed.
    Sample {
        /// Chooses.
        seed: u64,
    },
}

/// How a sample draws which of so many parts survive. Fair coins alone all but never leave a long row of them with a single one missing, or
/// nothing but one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    /// One in so many.
    Rare(u64),
    /// All but one in so many.
    Frequent(u64),
    Only(u64),
    AllBut(u64),
    Before(u64),
    From(u64),
}

impl Draw {
    /// One way of them, for `count` parts.
    pub(super) fn of(count: u64, random: &SeededEntropy) -> Self {
        let part = random.below(count);
        match random.below(12) {
            0 => Self::Rare(16),
            1 => Self::Frequent(16),
            2 => Self::Only(part),
            3 => Self::AllBut(part),
            4 => Self::Before(part),
            5 => Self::From(part),
            _ => Self::Rare(2),
        }
    }

    /// Whether the part with this index survives.
    pub(super) fn survives(self, index: u64, random: &SeededEntropy) -> bool {
        match self {
            Self::Rare(of) => random.below(of) == 0,
            Self::Frequent(of) => random.below(of) > 0,
            Self::Only(part) => index == part,
            Self::AllBut(part) => index != part,
            Self::Before(part) => index < part,
            Self::From(part) => index >= part,
        }
    }
}

impl Disk {
    pub(super) fn after_power_loss(&self, survivors: Survivors) -> Self {
        let seed = if let Survivors::Sample { seed } = survivors { seed } else { 0 };
        let random = SeededEntropy::new(seed);
        let mut entries: BTreeMap<Inode, Entries> = BTreeMap::new();
        for (inode, node) in &self.tree.nodes {
            if let Node::Directory(directory) = node {
                entries.insert(*inode, directory.durable.clone());
            }
        }
        let surviving: Vec<&Change> = match survivors {
            Survivors::Nothing => Vec::new(),
            Survivors::Everything => self.tree.pending.iter().collect(),
            Survivors::Sample { .. } => names::sample(&self.tree.pending, &random),
        };
        for change in surviving {
            change.apply(&mut entries);
        }
        let leave = |content: &Content| Content::durable(content.after_power_loss(survivors, &random), content.holes());
        self.successor(self.tree.rebuilt(entries, leave))
    }

    pub(super) fn after_process_death(&self) -> Self {
        let (mut tree, luck) = (self.tree.clone(), self.luck_of_pages());
        let mut has_evicted = self.has_evicted;
        for node in tree.nodes.values_mut() {
            if let Node::File(file) = node {
                file.handles = 0;
                has_evicted |= luck.as_ref().is_some_and(|random| file.content.evict(random));
            }
        }
        let mut next = self.successor(tree);
        next.has_evicted = has_evicted;
        next
    }
}

impl Tree {
    /// The tree in which directories have these `entries`, all durable, and files what `leave` leaves of them.
    /// What cannot be reached from the root is gone (D2).
    fn rebuilt(&self, mut entries: BTreeMap<Inode, Entries>, mut leave: impl FnMut(&Content) -> Content) -> Self {
        let mut rebuilt = self.without_nodes();
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            let live = entries.remove(&dir).unwrap_or_default();
            for inode in live.values() {
                match (rebuilt.nodes.get_mut(inode), self.nodes.get(inode)) {
                    (Some(Node::File(file)), _) => file.links += 1,
                    (None, Some(Node::File(file))) => {
                        let content = leave(&file.content);
                        rebuilt.nodes.insert(*inode, Node::File(File { content, links: 1, handles: 0 }));
                    }
                    (None, Some(Node::Directory(_))) => dirs.push(*inode),
                    _ => {}
                }
            }
            rebuilt.nodes.insert(dir, Node::Directory(Directory { durable: live.clone(), live }));
        }
        rebuilt
    }
}
