//! Makes a table of everything that was gathered for a shard: who is the newest of each key, who is kept, who is dead.
//!
//! Slots are sorted by tag. One that has its tag alone is its key's only record; of several with one tag, keys and versions
//! are read again: from the hint, or from the data file where there is none.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use super::load::{Known, Loader};
use crate::keydir::Slot;
use crate::{Error, Result};

/// A record among others with its tag.
struct Rival<'a> {
    key: Cow<'a, [u8]>,
    version: u64,
    slot: Slot,
}

impl Loader {
    pub(super) fn settle_shard(&self, index: usize) -> Result<()> {
        let mut shard = self.keydir.lock(index);
        let mut slots = shard.take_gathered();
        slots.sort_unstable_by_key(Slot::tag);
        for rivals in slots.chunk_by_mut(|one, other| one.tag() == other.tag()) {
            if rivals.len() > 1 {
                self.settle(rivals)?;
            }
        }
        slots.retain(|slot| !slot.is_empty() && !slot.is_tombstone());
        let keys = slots.iter().filter(|slot| !slot.is_old()).count();
        self.key_count.fetch_add(keys as u64, Ordering::Relaxed);
        shard.settle(&slots);
        Ok(())
    }

    /// Decides about all records with one tag. Those that do not stay are empty afterwards.
    fn settle(&self, slots: &mut [Slot]) -> Result<()> {
        let rivals: Result<Vec<Rival<'_>>> = slots.iter().map(|slot| self.rival(slot)).collect();
        let mut rivals = rivals?;
        rivals.sort_unstable_by(|one, other| one.key.cmp(&other.key).then_with(|| one.order().cmp(&other.order())));
        for of_one_key in rivals.chunk_by_mut(|one, other| one.key == other.key) {
            self.settle_key(of_one_key);
        }
        for (slot, rival) in slots.iter_mut().zip(rivals) {
            *slot = rival.slot;
        }
        Ok(())
    }

    fn rival(&self, slot: &Slot) -> Result<Rival<'_>> {
        let place = slot.place();
        let index = self.by_number.binary_search_by_key(&place.file, |known| known.data.number);
        let Some(Known { data, hint }) = index.ok().and_then(|index| self.by_number.get(index)) else {
            return Err(Error::invalid_argument("a slot points to a file that was not read"));
        };
        if let Some(hint) = hint.get() {
            let entry = hint.entry(place.offset.into()).ok_or_else(|| {
                Error::corruption(&data.path, place.offset.into(), "the hint changed while it was read")
            })?;
            return Ok(Rival { key: Cow::Borrowed(entry.key), version: entry.version, slot: *slot });
        }
        match data.record_bytes(slot)? {
            Cow::Borrowed(raw) => {
                let record = data.decode(place.offset.into(), raw)?;
                Ok(Rival { key: Cow::Borrowed(record.key), version: record.version, slot: *slot })
            }
            Cow::Owned(raw) => {
                // It was read a second time.
                data.verify(place.offset.into(), &raw)?;
                let record = data.decode(place.offset.into(), &raw)?;
                Ok(Rival { key: Cow::Owned(record.key.to_vec()), version: record.version, slot: *slot })
            }
        }
    }

    /// Values since the last deletion stay, as many as are kept (L1).
    fn settle_key(&self, rivals: &mut [Rival<'_>]) {
        let (mut kept, mut is_ended, mut version) = (0, false, None);
        for rival in rivals {
            let is_copy = version.replace(rival.version) == Some(rival.version);
            if rival.slot.is_tombstone() {
                is_ended = true;
            } else if is_ended || is_copy || kept == self.keep_versions {
                self.bury(&rival.slot);
                rival.slot = Slot::EMPTY;
            } else {
                rival.slot = rival.slot.with_old(kept > 0);
                kept += 1;
            }
        }
    }

    fn bury(&self, slot: &Slot) {
        let index = self.by_number.binary_search_by_key(&slot.place().file, |known| known.data.number);
        if let Some(known) = index.ok().and_then(|index| self.by_number.get(index)) {
            known.data.bury(slot);
        }
    }
}

impl Rival<'_> {
    /// Newest first; of two with one version (L3) a deletion, which a merge has put in the place of an expired value.
    fn order(&self) -> (Reverse<u64>, Reverse<bool>, crate::keydir::Place) {
        (Reverse(self.version), Reverse(self.slot.is_tombstone()), self.slot.place())
    }
}
