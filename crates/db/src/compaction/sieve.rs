//! Which entries of a sorted run survive: the rule that flush and compaction share. Pure.
//!
//! - S1: of several entries of a user key, an older one is dropped only if no snapshot lies between it and the next newer.
//! - S2: a tombstone is dropped only if every snapshot sees it and nothing outside this run, in the output level's depth
//!   or below, may hold its key (B1). What it hides within the run is dropped by S1.
//! - S3: an entry forgets when it was written (its sequence number becomes 0) only if every snapshot sees it and nothing
//!   lies below this run: whoever reads, at whatever moment, sees it. Such entries take up less room once compressed, and
//!   say that their table has nothing left to drop.
//! - S4: whatever is dropped and pointed into a blob file is counted as garbage there, exactly once (B10).
//! - S5: entries that lie above the run and stay there shadow those of the run, as its own newer ones do. They are newer than all of
//!   it; what becomes of them is not decided here, nor counted.
//! - S6: a single deletion that something newer hides goes with the value right below it, which it cancels, or as a tombstone does (S2).
//!   Alone it stays: that value lies deeper, and once RocksDB lets a later single deletion cancel the newer value, it would show again.
//!   What is newer keeps its number (S3) as long, since at the bottom nothing lies deeper. Right below another
//!   that stays it goes: no value lies between the two any more, and before the next older single deletion at most one does, as users promise
//!   RocksDB: whichever of the two is left cancels it. So what is put and deleted again and again leaves one, and not one for each time.
//! - S7: an operand is dropped as a value is (S1), and shadows nothing: what it is to be merged with stays
//!   (OP1 of [`operands`](crate::operands), which makes fewer of them).
//! - S8: what lies under a range deletion of the same stripe, which is durable and stays as long as something deeper does, goes; what is left of its
//!   keys keeps its number (RD1, RD4 of [`range_deletions`](crate::range_deletions)).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use esker_format::rocksdb::blob::accounted_bytes;
use esker_format::rocksdb::internal_key::{FileNumber, InternalKey, SequenceNumber, ValueKind};
use esker_format::rocksdb::order::Order;

use crate::Result;
use crate::entry;
use crate::iterate::InternalIterator;
use crate::operands::has_operands;
use crate::range_deletions::Shadow;
use crate::version::Garbage;

/// Says whether something deeper may hold a user key.
type MayHold<'a> = dyn FnMut(&[u8]) -> bool + Send + 'a;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes.
    Dropped,
    /// It stays as it is.
    Kept,
    /// It stays, and need not say when it was written (S3).
    Timeless,
    /// It goes with the next entry, if that is a value of its key and goes, too; else it stays (S6).
    Undecided,
}

/// Decides entry by entry; give them in internal key order.
pub(crate) struct Sieve<'a> {
    order: Order,
    /// Ascending.
    snapshots: &'a [SequenceNumber],
    may_hold_below: Box<MayHold<'a>>,
    /// Whether nothing lies below the run, in the range of its keys.
    is_deepest: bool,
    /// See S5; stands at or behind `user_key`.
    above: Option<Box<dyn InternalIterator + 'a>>,
    /// See S8.
    shadow: Shadow,
    user_key: Vec<u8>,
    /// The newest snapshot-bounded stripe in which an entry of `user_key` was met that shadows others; `None` before the first.
    stripe: Option<usize>,
    /// Whether nothing but single deletions of `user_key` was met in that stripe, of which the newest stays.
    below_single: bool,
    garbage: BTreeMap<FileNumber, Garbage>,
}

impl<'a> Sieve<'a> {
    /// Of a run of keys in `order`.
    pub(crate) fn new(
        order: Order,
        snapshots: &'a [SequenceNumber],
        may_hold_below: impl FnMut(&[u8]) -> bool + Send + 'a,
    ) -> Self {
        let may_hold_below = Box::new(may_hold_below);
        let garbage = BTreeMap::new();
        let (is_deepest, above, user_key, stripe) = (false, None, Vec::new(), None);
        let shadow = Shadow::default();
        let below_single = false;
        Self { order, snapshots, may_hold_below, is_deepest, above, shadow, user_key, stripe, below_single, garbage }
    }

    /// The same, knowing whether nothing lies below the run (S3).
    pub(crate) fn at_the_bottom(self, is_deepest: bool) -> Self {
        Self { is_deepest, ..self }
    }

    /// The same, below what `above` holds (S5), which stands at or before the first key of the run.
    pub(crate) fn below(self, above: Option<Box<dyn InternalIterator + 'a>>) -> Self {
        Self { above, ..self }
    }

    /// The same, under these range deletions (S8).
    pub(crate) fn under(self, shadow: Shadow) -> Self {
        Self { shadow, ..self }
    }

    /// Of the run's keys.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// What becomes of the entry.
    ///
    /// # Errors
    /// Corruption or `UnsupportedFormat` if its value is no BlobIndex though its kind says so.
    pub(crate) fn fate(&mut self, key: &InternalKey<'_>, value: &[u8]) -> Result<Fate> {
        if self.stripe.is_none() || self.user_key != key.user_key {
            self.user_key.clear();
            self.user_key.extend_from_slice(key.user_key);
            self.stripe = self.stripe_above(key.user_key)?;
            self.below_single = false;
        }
        let stripe = self.stripe_of(key.sequence);
        if self.shadow.oldest_above(key.user_key, key.sequence).is_some_and(|range| self.stripe_of(range) == stripe) {
            if key.kind == ValueKind::BlobIndex {
                self.count_garbage(key.user_key, value)?;
            }
            return Ok(Fate::Dropped);
        }
        let shadowed = self.stripe == Some(stripe);
        if has_operands(key.kind) {
            self.below_single = false;
            return Ok(if shadowed { Fate::Dropped } else { Fate::Kept });
        }
        self.stripe = Some(stripe);
        let is_single = key.kind == ValueKind::SingleDeletion;
        if !shadowed && !self.is_spent_tombstone(key, stripe) {
            self.below_single = is_single;
            let is_value = matches!(key.kind, ValueKind::Value | ValueKind::BlobIndex);
            return Ok(if is_value && self.is_timeless(key.user_key, stripe) { Fate::Timeless } else { Fate::Kept });
        }
        self.below_single &= shadowed && is_single;
        match key.kind {
            ValueKind::BlobIndex => self.count_garbage(key.user_key, value)?,
            ValueKind::SingleDeletion if shadowed && !self.below_single && !self.is_spent_tombstone(key, stripe) => {
                return Ok(Fate::Undecided);
            }
            _ => {}
        }
        Ok(Fate::Dropped)
    }

    /// The stripe of the oldest entry of `user_key` that lies above the run and shadows what is in it; `None` if there is none.
    fn stripe_above(&mut self, user_key: &[u8]) -> Result<Option<usize>> {
        let Some(above) = &mut self.above else { return Ok(None) };
        let mut oldest = None;
        while above.valid() {
            let key = entry::key_of(&**above)?;
            match self.order.compare(key.user_key, user_key) {
                Ordering::Less => {}
                Ordering::Equal if has_operands(key.kind) => {}
                Ordering::Equal => oldest = Some(key.sequence),
                Ordering::Greater => break,
            }
            above.next()?;
        }
        Ok(oldest.map(|sequence| self.stripe_of(sequence)))
    }

    /// How many snapshots are older than `sequence`: entries of a key with the same number look alike to all snapshots.
    pub(crate) fn stripe_of(&self, sequence: SequenceNumber) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < sequence)
    }

    /// Whether a value of `user_key` in that stripe need not say when it was written (S3).
    pub(crate) fn is_timeless(&self, user_key: &[u8], stripe: usize) -> bool {
        self.is_deepest && stripe == 0 && !self.shadow.covers(user_key)
    }

    /// Whether something deeper may hold `user_key`.
    pub(crate) fn may_hold_below(&mut self, user_key: &[u8]) -> bool {
        (self.may_hold_below)(user_key)
    }

    fn is_spent_tombstone(&mut self, key: &InternalKey<'_>, stripe: usize) -> bool {
        matches!(key.kind, ValueKind::Deletion | ValueKind::SingleDeletion)
            && stripe == 0
            && !self.may_hold_below(key.user_key)
    }

    /// The value that a pointer leads to, `value`, is garbage (S4).
    pub(crate) fn count_garbage(&mut self, user_key: &[u8], value: &[u8]) -> Result<()> {
        let index = entry::pointer(user_key, value)?;
        self.garbage.entry(index.file).or_default().add(1, accounted_bytes(&index, user_key.len()));
        Ok(())
    }

    /// What was dropped, by blob file.
    pub(crate) fn into_garbage(self) -> BTreeMap<FileNumber, Garbage> {
        self.garbage
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_format::rocksdb::internal_key;

    use super::*;
    use crate::memtable::Memtable;
    use crate::operands::Fold;
    use crate::output::pour;
    use crate::range_deletions::RangeDeletion;

    fn kept(snapshots: &[u64], deeper: bool, entries: &[(&str, u64, ValueKind)]) -> Vec<(String, u64)> {
        let snapshots: Vec<_> = snapshots.iter().map(|&s| SequenceNumber::new(s)).collect();
        let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| deeper);
        let mut kept = Vec::new();
        for &(key, sequence, kind) in entries {
            let key = InternalKey { user_key: key.as_bytes(), sequence: SequenceNumber::new(sequence), kind };
            if sieve.fate(&key, b"").unwrap() != Fate::Dropped {
                kept.push((String::from_utf8_lossy(key.user_key).into_owned(), sequence));
            }
        }
        kept
    }

    const V: ValueKind = ValueKind::Value;
    const D: ValueKind = ValueKind::Deletion;

    #[test]
    fn only_the_newest_entry_survives_without_snapshots() {
        assert_eq!(
            kept(&[], true, &[("a", 9, V), ("a", 5, V), ("b", 7, V), ("b", 6, D)]),
            [("a".into(), 9), ("b".into(), 7)]
        );
    }

    #[test]
    fn each_snapshot_keeps_what_it_sees() {
        let entries = [("a", 9, V), ("a", 7, V), ("a", 5, V), ("a", 3, V)];
        assert_eq!(kept(&[5, 8], true, &entries).iter().map(|e| e.1).collect::<Vec<_>>(), [9, 7, 5]);
        assert_eq!(kept(&[4], true, &entries).iter().map(|e| e.1).collect::<Vec<_>>(), [9, 3]);
    }

    #[test]
    fn a_tombstone_stays_while_something_deeper_may_hold_its_key() {
        assert_eq!(kept(&[], true, &[("a", 9, D), ("a", 5, V)]), [("a".into(), 9)]);
        assert_eq!(kept(&[], false, &[("a", 9, D), ("a", 5, V)]), []);
    }

    #[test]
    fn a_tombstone_stays_while_a_snapshot_sees_what_it_hides() {
        assert_eq!(kept(&[6], false, &[("a", 9, D), ("a", 5, V)]), [("a".into(), 9), ("a".into(), 5)]);
    }

    /// Goal (S8): what lies under a range that no snapshot tells from it goes; what is newer keeps its number as long as the range may be asked for.
    #[test]
    fn what_lies_under_a_range_goes_and_what_is_newer_keeps_its_number() {
        use Fate::{Dropped, Kept, Timeless};
        let range = |begin: &[u8], end: &[u8], sequence| RangeDeletion {
            begin: begin.into(),
            end: end.into(),
            sequence: SequenceNumber::new(sequence),
        };
        let snapshots = [SequenceNumber::new(7)];
        let shadow = Shadow::of(Order::BYTEWISE, &[range(b"b", b"d", 5), range(b"x", b"z", 9)], &snapshots);
        let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| false).at_the_bottom(true).under(shadow);
        let entries = [("a", 4, V), ("b", 6, V), ("b", 4, V), ("c", 4, D), ("d", 4, V), ("x", 8, V), ("x", 6, V)];
        let fates = entries.map(|(key, sequence, kind)| {
            let key = InternalKey { user_key: key.as_bytes(), sequence: SequenceNumber::new(sequence), kind };
            sieve.fate(&key, b"").unwrap()
        });
        assert_eq!(fates, [Timeless, Kept, Dropped, Dropped, Timeless, Dropped, Kept]);
    }

    #[test]
    fn only_what_every_snapshot_sees_at_the_bottom_forgets_its_time() {
        let fates = |is_deepest: bool| {
            let snapshots = [SequenceNumber::new(5)];
            let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| false).at_the_bottom(is_deepest);
            let entries = [("a", 6, V), ("a", 5, V), ("b", 6, D), ("b", 4, V), ("c", 5, D), ("d", 3, ValueKind::Merge)];
            let key = |(key, sequence, kind): (&'static str, u64, ValueKind)| InternalKey {
                user_key: key.as_bytes(),
                sequence: SequenceNumber::new(sequence),
                kind,
            };
            entries.map(|entry| sieve.fate(&key(entry), b"").unwrap())
        };
        use Fate::{Dropped, Kept, Timeless};
        assert_eq!(fates(true), [Kept, Timeless, Kept, Timeless, Dropped, Kept]);
        assert_eq!(fates(false), [Kept, Kept, Kept, Kept, Dropped, Kept]);
    }

    #[test]
    fn a_snapshot_of_the_empty_store_keeps_every_time() {
        let snapshots = [SequenceNumber::new(0)];
        let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| false).at_the_bottom(true);
        let key = InternalKey { user_key: b"a", sequence: SequenceNumber::new(1), kind: V };
        assert_eq!(sieve.fate(&key, b"").unwrap(), Fate::Kept);
    }

    /// S5: what lies above shadows by the same rule as what is newer within the run, deletions too, and is neither kept nor counted.
    #[test]
    fn what_stays_above_shadows_what_no_snapshot_keeps() {
        let above = Arc::new(Memtable::default());
        // An operand hides nothing (S7).
        let b = ("b", 9, ValueKind::Merge);
        for (key, sequence, kind) in [("a", 9, V), b, ("c", 9, D), ("c", 7, V), ("d", 4, V), ("x", 9, V)] {
            above.add(SequenceNumber::new(sequence), kind, key.as_bytes(), b"");
        }
        let kept = |snapshots: &[u64], from: &str| {
            let snapshots: Vec<_> = snapshots.iter().map(|&s| SequenceNumber::new(s)).collect();
            let mut above = above.iter();
            above.seek(&internal_key::lookup(from.as_bytes(), SequenceNumber::MAX)).unwrap();
            let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| false).below(Some(Box::new(above)));
            let run = ["a", "b", "c", "d", "e"].into_iter().filter(|key| *key >= from);
            let keeps = |key: &&str| {
                let key = InternalKey { user_key: key.as_bytes(), sequence: SequenceNumber::new(2), kind: V };
                sieve.fate(&key, b"").unwrap() != Fate::Dropped
            };
            run.filter(keeps).collect::<String>()
        };
        assert_eq!([kept(&[], "a"), kept(&[], "c")], ["be", "e"]);
        assert_eq!([kept(&[8], "a"), kept(&[3], "a"), kept(&[1], "a")], ["abe", "abcde", "be"]);
        assert_eq!(kept(&[2], "a"), "abcde", "a snapshot that sees it, and nothing above");
    }

    /// S6, as flush and compaction see it: what comes out of a run.
    #[test]
    fn a_hidden_single_deletion_goes_with_what_it_cancels_and_stays_without() {
        const S: ValueKind = ValueKind::SingleDeletion;
        let poured = |snapshots: &[u64], deeper: bool, entries: &[(&str, u64, ValueKind)]| {
            let run = Memtable::default();
            for &(key, sequence, kind) in entries {
                run.add(SequenceNumber::new(sequence), kind, key.as_bytes(), b"");
            }
            let snapshots: Vec<_> = snapshots.iter().map(|&s| SequenceNumber::new(s)).collect();
            let mut sieve = Sieve::new(Order::BYTEWISE, &snapshots, |_| deeper).at_the_bottom(!deeper);
            let mut input = Arc::new(run).iter();
            input.seek_to_first().unwrap();
            let mut poured = Vec::new();
            let each = |key: &InternalKey<'_>, internal: &[u8], _: &[u8]| {
                assert_eq!(InternalKey::decode(internal).unwrap(), *key);
                poured.push((String::from_utf8_lossy(key.user_key).into_owned(), key.sequence.get()));
                Ok(())
            };
            pour(&mut input, None, &mut sieve, &mut Fold::none(), each).unwrap();
            poured.into_iter().map(|(key, sequence)| format!("{key}{sequence}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(poured(&[], true, &[("a", 30, V), ("a", 20, S)]), "a30 a20", "what it cancels lies deeper");
        assert_eq!(poured(&[], true, &[("a", 30, V), ("a", 20, S), ("a", 10, V)]), "a30");
        assert_eq!(poured(&[], true, &[("a", 30, V), ("a", 20, S), ("b", 10, V)]), "a30 a20 b10");
        assert_eq!(poured(&[], true, &[("a", 30, V), ("a", 20, S), ("a", 15, S), ("a", 10, V)]), "a30 a20");
        assert_eq!(poured(&[], true, &[("a", 30, V), ("a", 20, S), ("a", 10, D), ("a", 5, V)]), "a30 a20");
        assert_eq!(poured(&[], true, &[("a", 30, D), ("a", 20, S)]), "a30 a20");
        assert_eq!(poured(&[15], true, &[("a", 30, V), ("a", 20, S), ("a", 10, V)]), "a30 a20 a10");
        assert_eq!(poured(&[25], true, &[("a", 30, V), ("a", 20, S), ("a", 10, V)]), "a30 a20", "newest of its stripe");
        assert_eq!(poured(&[], false, &[("a", 30, V), ("a", 20, S)]), "a0", "nothing lies deeper");
        assert_eq!(poured(&[15], false, &[("a", 30, V), ("a", 20, S), ("a", 10, V)]), "a30 a20 a0");
        assert_eq!(poured(&[], true, &[("a", 40, S), ("a", 20, S), ("a", 10, S), ("b", 5, S)]), "a40 b5");
        assert_eq!(poured(&[], true, &[("a", 40, S), ("a", 20, S), ("a", 10, V)]), "a40");
        assert_eq!(poured(&[], true, &[("a", 40, S), ("a", 30, V), ("a", 20, S)]), "a40 a20", "below a value");
        assert_eq!(poured(&[], true, &[("a", 40, S), ("a", 30, D), ("a", 20, S)]), "a40 a20", "below a deletion");
        assert_eq!(poured(&[30], true, &[("a", 40, S), ("a", 20, S), ("a", 10, S)]), "a40 a20", "a snapshot's stripe");
    }

    /// S6: what lies above the run is no single deletion that stays in it, nor is that of another key.
    #[test]
    fn a_single_deletion_below_what_stays_above_stays() {
        let above = Arc::new(Memtable::default());
        above.add(SequenceNumber::new(9), V, b"b", b"");
        let mut above = above.iter();
        above.seek_to_first().unwrap();
        let mut sieve = Sieve::new(Order::BYTEWISE, &[], |_| true).below(Some(Box::new(above)));
        let fates = [("a", 8), ("a", 7), ("b", 6), ("b", 5)].map(|(key, sequence)| {
            let kind = ValueKind::SingleDeletion;
            let key = InternalKey { user_key: key.as_bytes(), sequence: SequenceNumber::new(sequence), kind };
            sieve.fate(&key, b"").unwrap()
        });
        assert_eq!(fates, [Fate::Kept, Fate::Dropped, Fate::Undecided, Fate::Undecided]);
    }

    #[test]
    fn an_empty_user_key_is_a_key() {
        assert_eq!(kept(&[], true, &[("", 9, V), ("", 5, V), ("a", 1, V)]), [(String::new(), 9), ("a".into(), 1)]);
    }
}
