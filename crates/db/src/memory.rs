//! What the memtables take of the memory that a store may have ([`Options::memory_limit`](crate::Options)), and what they leave the cache.
//!
//! Cost with a limit: for every [`LOOK_BYTES`] that are written, a look at each family.

use crate::store::Store;
use crate::write::Lead;

/// Memtables that are written to have this part of the limit, together; those that wait for their flush come on top.
const ACTIVE_PART: u64 = 4;
/// How often it is looked: after so many bytes, or this part of the limit.
const LOOK_BYTES: u64 = 64 << 10;
const LOOK_PART: u64 = 64;

impl Store {
    /// To be called whenever a memtable or a family came or went.
    pub(crate) fn refresh_memory(&self) {
        let limit = self.options.memory_limit;
        if limit == 0 {
            return;
        }
        let (mut active, mut may_be, mut beside) = (0u64, 0u64, 0u64);
        for family in self.families.load().values() {
            let view = family.view.load();
            active += view.active.memtable.allocated_bytes() as u64;
            may_be = may_be.saturating_add(family.options.write_buffer_bytes);
            beside += view.active.memtable.spare_bytes() as u64;
            beside += view.sealed.iter().map(|generation| generation.memtable.allocated_bytes() as u64).sum::<u64>();
        }
        // As large as they may become before somebody looks again.
        self.cache.set_memtable_bytes(beside + active.max(may_be.min(limit / ACTIVE_PART)));
    }

    /// The family whose memtable is to be sealed because all of them take too much, though none is full. `bytes` are about to be written, to memtables or
    /// blob files.
    pub(crate) fn largest_of_too_many(&self, lead: &mut Lead, bytes: u64) -> Option<u32> {
        let limit = self.options.memory_limit;
        if limit == 0 {
            return None;
        }
        lead.unweighed_bytes = lead.unweighed_bytes.saturating_add(bytes);
        if lead.unweighed_bytes < LOOK_BYTES.min(limit / LOOK_PART) {
            return None;
        }
        lead.unweighed_bytes = 0;
        let sizes =
            lead.actives.iter().map(|active| (active.generation.memtable.allocated_bytes() as u64, active.family.id));
        let all_bytes: u64 = sizes.clone().map(|(bytes, _)| bytes).sum();
        let is_over = all_bytes > limit / ACTIVE_PART;
        sizes.max().filter(|&(largest, _)| is_over && largest > 0).map(|(_, family)| family)
    }
}
