//! How much of what is written hides something older: what the ledger learns only when a compaction brings the two together.
//!
//! Some writes are looked at before they join the queue: is there an entry of the key already, by memtables and by the filters of the
//! tables that are in memory? And compactions tell of how much they brought down they had to drop something. The larger of both counts:
//! it is space that may not be there.
//!
//! Cost: for every [`SAMPLE_BYTES`] that are written, one search of the memtables and one probe of a filter for each level; nothing is read.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::rocksdb::internal_key::{self, SequenceNumber, ValueKind};

use crate::family::Family;
use crate::store::Store;
use crate::write::Request;

/// One write is looked at for so many bytes.
pub(super) const SAMPLE_BYTES: i64 = 64 << 10;
/// How much one sample counts against those before it.
const WEIGHT: f64 = 1.0 / 32.0;

/// See the module's head. Bits of numbers from 0 to 1.
#[derive(Debug)]
pub(crate) struct Overwriting {
    compacted: AtomicU64,
    sampled: AtomicU64,
}

impl Overwriting {
    /// `part` is taken for true until more is known.
    pub(crate) fn new(part: f64) -> Self {
        Self { compacted: AtomicU64::new(part.to_bits()), sampled: AtomicU64::new(0.0_f64.to_bits()) }
    }

    /// How much of what lies above the deepest level hides something below, as far as one can tell.
    pub(crate) fn part(&self) -> f64 {
        part_of(&self.compacted).max(part_of(&self.sampled))
    }

    /// Of what a compaction brought down, so much had overwritten something.
    pub(crate) fn note_compacted(&self, part: f64) {
        let part = part.clamp(0.0, 1.0);
        // More at once, less step by step.
        let mean = part.max(f64::midpoint(part_of(&self.compacted), part));
        self.compacted.store(mean.to_bits(), Ordering::Relaxed);
    }

    /// A write that was looked at hides something, or does not.
    fn note_sample(&self, hides: bool) {
        let before = part_of(&self.sampled);
        let after = before + (f64::from(u8::from(hides)) - before) * WEIGHT;
        self.sampled.store(after.to_bits(), Ordering::Relaxed);
    }
}

fn part_of(bits: &AtomicU64) -> f64 {
    f64::from_bits(bits.load(Ordering::Relaxed))
}

impl Store {
    /// Looks whether the first entry of a write will hide something.
    #[cold]
    pub(super) fn sample_overwriting(&self, request: &Request) {
        let Some(Ok(first)) = request.records().next() else { return };
        if !matches!(first.kind, ValueKind::Value | ValueKind::BlobIndex) {
            return;
        }
        let families = self.families.load();
        let Some(family) = families.get(&first.cf) else { return };
        if let Some(hides) = holds(family, first.key) {
            family.overwriting.note_sample(hides);
        }
    }
}

/// Whether there is an entry of `user_key`, as far as memory says; `None` where it does not.
fn holds(family: &Family, user_key: &[u8]) -> Option<bool> {
    let view = family.view.load();
    let lookup = internal_key::lookup(user_key, SequenceNumber::MAX);
    if view.generations().any(|generation| generation.memtable.get(&lookup).is_some()) {
        return Some(true);
    }
    for table in view.version.tables_for(user_key) {
        if table.table.filter_holds(user_key)? {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_tells_soon_and_what_is_compacted_is_not_forgotten_at_once() {
        let overwriting = Overwriting::new(0.0);
        (0..64).for_each(|_| overwriting.note_sample(true));
        assert!(overwriting.part() > 0.85, "{overwriting:?}");
        (0..200).for_each(|_| overwriting.note_sample(false));
        assert!(overwriting.part() < 0.01);
        overwriting.note_compacted(0.8);
        overwriting.note_compacted(0.0);
        assert_eq!(overwriting.part(), 0.4);
        (0..1000).for_each(|n| overwriting.note_sample(n % 2 == 0));
        assert!((0.4..0.7).contains(&overwriting.part()), "about half of it");
    }
}
