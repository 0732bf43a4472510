//! Tells the cache what the memtables take of the memory that they share ([`Options::memory_limit`](crate::Options)).

use crate::family::Family;
use crate::store::Store;

/// What the memtables of `family` take, its active one as large as it may become, and what is kept for the next ones.
fn memtable_bytes(family: &Family) -> u64 {
    let view = family.view.load();
    let sealed: u64 = view.sealed.iter().map(|generation| generation.memtable.allocated_bytes() as u64).sum();
    let active = &view.active.memtable;
    sealed + family.options.write_buffer_bytes.max(active.allocated_bytes() as u64) + active.spare_bytes() as u64
}

impl Store {
    /// To be called whenever a memtable or a family came or went.
    pub(crate) fn refresh_memory(&self) {
        if self.options.memory_limit > 0 {
            self.cache.set_memtable_bytes(self.families.load().values().map(|family| memtable_bytes(family)).sum());
        }
    }
}
