//! What the memtables take of the memory that a store may have ([`Options::memory_limit`](crate::Options)), and what they leave the cache.
//!
//! Cost with a limit: for every [`LOOK_BYTES`] that are written, a look at each family.

use std::sync::{Arc, Weak};

use crate::Result;
use crate::cache::Follow;
use crate::memtable::Memtable;
use crate::store::Store;
use crate::write::Lead;

/// Memtables that are written to have this part of the limit, together, those of all stores of a cache, with what is kept for those after them; those that wait for their flush
/// come on top.
const ACTIVE_PART: u64 = 4;
/// How often it is looked: after so many bytes, or this part of the limit.
const LOOK_BYTES: u64 = 64 << 10;
const LOOK_PART: u64 = 64;

impl Store {
    /// To be called whenever a memtable or a family came or went.
    pub(crate) fn refresh_memory(&self) {
        // Who only reads has no more than was replayed, and says so then.
        if self.cache.limit_bytes() > 0 && !self.read_only {
            self.memtable_share.set_as_reckoned(|| self.memory_now());
        }
    }

    /// What memtables take, or will before somebody looks again.
    fn memory_now(&self) -> u64 {
        let limit = self.cache.limit_bytes();
        let families = self.families.load();
        let (mut active, mut may_be, mut sealed) = (0u64, 0u64, 0u64);
        let mut spare = Vec::new();
        for family in families.values() {
            let view = family.view.load();
            let (memtable, bytes) = (&view.active.memtable, view.active.memtable.allocated_bytes() as u64);
            active += bytes;
            may_be = may_be.saturating_add(family.options().write_buffer_bytes);
            sealed += view.sealed.iter().map(|generation| generation.memtable.allocated_bytes() as u64).sum::<u64>();
            if memtable.spare_bytes() > 0 {
                spare.push((bytes, memtable.clone()));
            }
        }
        let part = self.memtable_share.part_of(limit / ACTIVE_PART);
        let spare = keep_spare(spare, part.saturating_sub(active));
        sealed + spare + active.max(may_be.min(part))
    }

    /// Has it told of another limit of a cache that is others', too.
    pub(crate) fn follow_cache(self: &Arc<Self>) {
        if self.options().cache.is_some() && !self.read_only {
            let store: Weak<Self> = Arc::downgrade(self);
            self.cache.follow(store);
            // It may have changed since this was reckoned.
            self.refresh_memory();
        }
    }

    /// Seals what memtables are too much for the limit, and flushes it where nobody else does.
    fn seal_too_many(&self) -> Result<()> {
        let most = self.cache.limit_bytes() / ACTIVE_PART;
        let is_too_much = |active: u64| active > 0 && self.memtable_share.is_too_much(active, most);
        let families = self.families.load();
        let active = families.values().map(|family| family.view.load().active.memtable.allocated_bytes() as u64);
        // Or whoever leads would be waited for in vain.
        if !is_too_much(active.sum()) {
            return Ok(());
        }
        self.alone(|lead| {
            self.check_takes_writes()?;
            let mut smallest_first: Vec<_> = sizes(lead).collect();
            smallest_first.sort_unstable();
            let (mut left, mut sealing) = (smallest_first.iter().map(|(bytes, _)| bytes).sum::<u64>(), Vec::new());
            while is_too_much(left)
                && let Some((bytes, family)) = smallest_first.pop()
            {
                left -= bytes;
                sealing.push(family);
            }
            if sealing.is_empty() { Ok(()) } else { self.seal(lead, &sealing) }
        })
    }

    /// The family whose memtable is to be sealed because all of them take too much, though none is full. `bytes` are about to be written, to memtables or
    /// blob files.
    pub(crate) fn largest_of_too_many(&self, lead: &mut Lead, bytes: u64) -> Option<u32> {
        let limit = self.cache.limit_bytes();
        if limit == 0 {
            return None;
        }
        lead.unweighed_bytes = lead.unweighed_bytes.saturating_add(bytes);
        if lead.unweighed_bytes < LOOK_BYTES.min(limit / LOOK_PART) {
            return None;
        }
        lead.unweighed_bytes = 0;
        let all_bytes: u64 = sizes(lead).map(|(bytes, _)| bytes).sum();
        let is_over = self.memtable_share.is_too_much(all_bytes, limit / ACTIVE_PART);
        is_over.then(|| largest(lead)).flatten()
    }
}

impl Follow for Store {
    fn follow_limit(&self) {
        // What a child has of its parent's store, it leaves alone.
        if self.check_here().is_err() || self.cache.limit_bytes() == 0 {
            return;
        }
        self.refresh_memory();
        // Should that fail, `stats` says so, and the next write tries again.
        let _ = self.seal_too_many();
    }
}

/// What the memtable of each family that is written to takes up.
fn sizes(lead: &Lead) -> impl Iterator<Item = (u64, u32)> + '_ {
    lead.actives.iter().map(|active| (active.generation.memtable.allocated_bytes() as u64, active.family.id))
}

/// The family with the largest memtable; `None` if all are empty.
pub(crate) fn largest(lead: &Lead) -> Option<u32> {
    sizes(lead).max().filter(|&(bytes, _)| bytes > 0).map(|(_, family)| family)
}

/// Lets the memtables of `spare` keep no more than `bytes_max` of memory for those after them, together, and returns what they keep. Those that
/// have the fewest bytes give theirs back first: most are idle.
fn keep_spare(mut spare: Vec<(u64, Arc<Memtable>)>, bytes_max: u64) -> u64 {
    spare.sort_unstable_by_key(|(bytes, _)| *bytes);
    let mut kept: u64 = spare.iter().map(|(_, memtable)| memtable.spare_bytes() as u64).sum();
    for (_, memtable) in spare {
        if kept <= bytes_max {
            break;
        }
        let before = memtable.spare_bytes() as u64;
        memtable.give_back_spare(usize::try_from(kept - bytes_max).unwrap_or(usize::MAX));
        kept = kept.saturating_sub(before.saturating_sub(memtable.spare_bytes() as u64));
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::sim::SimDisk;

    use crate::{Compression, Db, ErrorKind, FamilyOptions, Options, ReadOptions, Separation, WriteOptions};

    /// Goal: what families keep of memory for memtables to come is within the limit, however many were written, one after the other.
    /// Method: readers hold memtables until those after them have memory of their own, so that theirs is kept.
    #[test]
    fn families_written_in_turn_keep_no_more_memory_than_the_limit_allows() {
        const LIMIT: usize = 32 << 20;
        let options =
            Options { create_if_missing: true, background_jobs: 0, memory_limit: LIMIT as u64, ..Options::default() };
        let db = Db::open_with_env("/store", options, SimDisk::new().env()).unwrap();
        let mut most = 0;
        for n in 0..8 {
            let options = FamilyOptions { separation: Separation::Off, ..FamilyOptions::default() };
            let family = db.create_column_family(&format!("family {n}"), options).unwrap();
            let fill = || {
                for key in 0..100u32 {
                    db.put_cf(&family, key.to_be_bytes(), [n; 64 << 10], &WriteOptions::default()).unwrap();
                }
            };
            fill();
            let reader = db.iter_cf(&family, &ReadOptions::default()).unwrap();
            db.flush_cf(&family).unwrap();
            fill();
            drop(reader);
            db.flush_cf(&family).unwrap();
            let families = db.store().families.load();
            let spare: usize = families.values().map(|family| family.view.load().active.memtable.spare_bytes()).sum();
            assert!(spare <= LIMIT / 4, "{spare} bytes after family {n}");
            most = most.max(spare);
        }
        assert!(most > 0, "some is kept");
    }

    /// Goal: a limit that is lowered while the store rests holds at once, whoever flushes: what is too much is flushed, and no more than that.
    #[test]
    fn a_lower_limit_holds_though_nobody_writes() {
        const HIGH: u64 = 64 << 20;
        const LOW: u64 = 8 << 20;
        for background_jobs in [0, 1] {
            let disk = SimDisk::new();
            let options =
                Options { create_if_missing: true, background_jobs, memory_limit: HIGH, ..Options::default() };
            let db = Db::open_with_env("/store", options, disk.env()).unwrap();
            let (separation, compression) = (Separation::Off, Compression::None);
            let off = FamilyOptions { separation, compression, ..FamilyOptions::default() };
            let families = [90u32, 20].map(|count| {
                let family = db.create_column_family(&format!("{count}"), off.clone()).unwrap();
                for key in 0..count {
                    db.put_cf(&family, key.to_be_bytes(), [7; 64 << 10], &WriteOptions::default()).unwrap();
                }
                family
            });
            let of_family = |at: usize| {
                let stats = db.stats();
                stats.families.iter().find(|found| found.name == families[at].name()).unwrap().memtable_bytes
            };
            assert!(of_family(0) > 90 << 16 && of_family(1) > 20 << 16);
            let change = |bytes: u64| db.set_db_options(|options| options.memory_limit = bytes).unwrap();
            change(32 << 20);
            assert_eq!(db.stats().flushes, 0, "a quarter of it is enough");
            change(LOW);
            db.wait_for_compact().unwrap();
            assert_eq!((of_family(0), db.stats().flushes), (0, 1), "{background_jobs} jobs");
            assert!(of_family(1) > 20 << 16, "there is room for it");
            let memory = db.stats().memory;
            assert!(memory.total_bytes() <= LOW && memory.limit_bytes == LOW, "{memory:?}");

            // What cannot be flushed is told, and nobody waits for it.
            if background_jobs == 0 {
                disk.set_capacity(Some(1 << 40));
                let taken = (1 << 40) - disk.env().files.space(Path::new("/store")).unwrap().available;
                disk.set_capacity(Some(taken + (256 << 10)));
                change(1 << 20);
                let error = db.stats().background_error.unwrap();
                assert!(error.kind() == ErrorKind::Exhausted && of_family(1) > 20 << 16, "{error}");
                disk.set_capacity(None);
            }
            change(2 << 20);
            db.wait_for_compact().unwrap();
            assert_eq!((of_family(1), db.stats().background_error.is_none()), (0, true));
            change(HIGH);
            let read = ReadOptions::default();
            for family in &families {
                db.put_cf(family, "later", "v", &WriteOptions::default()).unwrap();
                assert_eq!(db.get_cf(family, 7u32.to_be_bytes(), &read).unwrap().unwrap().len(), 64 << 10);
            }
            db.close().unwrap();
        }
    }
}
