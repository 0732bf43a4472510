//! All groups, by id, in shards: whoever looks at one group keeps nobody from another.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use esker_format::DecodeError;
use esker_format::raft::file_name::{FileId, Queue};
use esker_format::raft::item::Items;
use parking_lot::{RwLock, RwLockWriteGuard};

use super::{Change, Group, Place};
use crate::open::changes::Step;

/// Shards; a power of two.
const SHARDS: usize = 128;
/// Memory for so many changes of a batch is taken at once.
const CHANGES_AHEAD_MAX: usize = 1024;

/// Hashes ids of groups, which are often consecutive.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct GroupHasher(u64);

/// Mixes all bits of an id into all others (the finalizer of splitmix64).
const fn mix(mut id: u64) -> u64 {
    id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}

impl Hasher for GroupHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id);
    }
}

/// A map by group.
pub(crate) type GroupMap<T> = HashMap<u64, T, BuildHasherDefault<GroupHasher>>;

#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) groups: GroupMap<Group>,
    /// Groups that were cleaned, of which the rewrite queue may still hold something.
    gone: BTreeSet<u64>,
}

impl Shard {
    #[inline]
    fn change(&mut self, group: u64, change: &Change<'_>, place: Place) {
        if *change != Change::Clean {
            return self.groups.entry(group).or_default().apply(change, place);
        }
        if self.groups.remove(&group).is_some() && place.file.queue == Queue::Append {
            self.gone.insert(group);
        }
    }
}

/// Some of the shards, held.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    shards: Vec<RwLockWriteGuard<'a, Shard>>,
    part: usize,
    parts: usize,
}

impl Part<'_> {
    /// Does what `file` says of a group, whose shard must be one of these; keys and values are in `bytes`, and `atomic` are the files of
    /// the atomic group that it belongs to.
    pub(crate) fn replay(
        &mut self,
        group: u64,
        steps: Vec<Step>,
        bytes: &[u8],
        file: FileId,
        atomic: Option<(u64, u64)>,
    ) {
        let at = Groups::shard_index(group).saturating_sub(self.part) / self.parts;
        let Some(shard) = self.shards.get_mut(at) else { return };
        // Only entries are looked up by it.
        let place = Place { file, offset: 0 };
        let kept = |range: Range<usize>| bytes.get(range).unwrap_or_default();
        for step in steps {
            match step {
                Step::Entries { span, runs } => {
                    shard.groups.entry(group).or_default().replay_entries(span, runs, file.queue);
                }
                Step::Compact { index } => shard.groups.entry(group).or_default().replay_compact(index, place),
                Step::Put { key, value } => {
                    shard.change(group, &Change::Put { key: kept(key), value: kept(value) }, place);
                }
                Step::Delete { key } => shard.change(group, &Change::Delete { key: kept(key) }, place),
                Step::Clean => shard.change(group, &Change::Clean, place),
            }
        }
        if let Some(files) = atomic
            && let Some(group) = shard.groups.get_mut(&group)
        {
            group.set_atomic(files);
        }
    }
}

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    shards: Box<[RwLock<Shard>; SHARDS]>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { shards: Box::new(std::array::from_fn(|_| RwLock::default())) }
    }

    /// Which shard a group is in, of [`SHARDS`].
    pub(crate) const fn shard_index(group: u64) -> usize {
        // Not the bits that the shard's own table uses.
        (mix(group) >> 40) as usize % SHARDS
    }

    fn shard(&self, group: u64) -> &RwLock<Shard> {
        let at = Self::shard_index(group);
        // `shard_index` is below `SHARDS`.
        let [first, ..] = &*self.shards;
        self.shards.get(at).unwrap_or(first)
    }

    /// Does what all `items` of a batch at `place` say. Nobody sees a group between two of them: what one says of it may lie in no batch any
    /// more once the next has replaced it.
    pub(crate) fn apply_batch(&self, mut items: Items<'_>, place: Place) -> Result<(), DecodeError> {
        let mut changes = Vec::with_capacity(usize::try_from(items.left()).unwrap_or(0).min(CHANGES_AHEAD_MAX));
        while let Some(item) = items.read()? {
            if let Some(change) = Change::of(&item.action) {
                changes.push((Self::shard_index(item.group), item.group, change));
            }
        }
        // Stable: those of a group stay in order.
        changes.sort_by_key(|(shard, ..)| *shard);
        for of_shard in changes.chunk_by(|(one, ..), (other, ..)| one == other) {
            let Some((_, group, _)) = of_shard.first() else { continue };
            let mut shard = self.shard(*group).write();
            of_shard.iter().for_each(|(_, group, change)| shard.change(*group, change, place));
        }
        Ok(())
    }

    /// Every `parts`-th shard, from shard `part` on, for one who replays: nobody else sees them meanwhile.
    pub(crate) fn part(&self, part: usize, parts: usize) -> Part<'_> {
        Part { shards: self.shards.iter().skip(part).step_by(parts).map(RwLock::write).collect(), part, parts }
    }

    /// Ends the replay of the append queue.
    pub(crate) fn finish_replay(&self) {
        for shard in self.shards.iter() {
            shard.write().groups.values_mut().for_each(Group::finish_replay);
        }
    }

    /// What `look` sees of a group; `None` if there is none. The group stays as it is meanwhile: be brief.
    pub(crate) fn with<T>(&self, group: u64, look: impl FnOnce(&Group) -> T) -> Option<T> {
        self.shard(group).read().groups.get(&group).map(look)
    }

    /// The same, changing it.
    pub(crate) fn with_mut<T>(&self, group: u64, change: impl FnOnce(&mut Group) -> T) -> Option<T> {
        self.shard(group).write().groups.get_mut(&group).map(change)
    }

    /// Looks at every group, a shard at a time.
    pub(crate) fn for_each(&self, mut look: impl FnMut(u64, &Group)) {
        for shard in self.shards.iter() {
            shard.read().groups.iter().for_each(|(id, group)| look(*id, group));
        }
    }

    /// All ids, in order.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.for_each(|id, _| ids.push(id));
        ids.sort_unstable();
        ids
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.read().groups.is_empty())
    }

    /// Groups whose end the rewrite queue must be told.
    pub(crate) fn gone(&self) -> Vec<u64> {
        self.shards.iter().flat_map(|shard| shard.read().gone.iter().copied().collect::<Vec<_>>()).collect()
    }

    /// It was told of these.
    pub(crate) fn settle_gone(&self, groups: &[u64]) {
        for group in groups {
            self.shard(*group).write().gone.remove(group);
        }
    }

    /// Memory that the index takes, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        let mut bytes = 0;
        for shard in self.shards.iter() {
            let shard = shard.read();
            bytes += shard.groups.capacity() * (size_of::<(u64, Group)>() + 1);
            bytes += shard.groups.values().map(Group::heap_bytes).sum::<usize>();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_groups_spread_over_all_shards() {
        let used: BTreeSet<usize> = (0..2000).map(Groups::shard_index).collect();
        assert_eq!(used.len(), SHARDS);
    }

    #[test]
    fn a_cleaned_group_is_owed_to_the_rewrite_queue_once() {
        let groups = Groups::new();
        let append = Place { file: FileId::new(Queue::Append, 1), offset: 0 };
        let apply = |group, change| groups.shard(group).write().change(group, &change, append);
        apply(7, Change::Put { key: b"k", value: b"v" });
        apply(7, Change::Clean);
        apply(8, Change::Clean);
        assert!(groups.is_empty());
        assert_eq!(groups.gone(), [7], "8 never was");
        groups.settle_gone(&[7]);
        assert!(groups.gone().is_empty());
        apply(7, Change::Put { key: b"k", value: b"v" });
        assert_eq!(groups.ids(), [7]);
    }
}
