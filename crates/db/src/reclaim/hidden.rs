//! What is overwritten or deleted, and the ledger takes for living: by what lies in a higher level and has not met it yet.
//!
//! How much that is nobody knows. Of what the levels above the deepest point to or delete all may hide something, less what the tables below had seen
//! when they were written.

use std::sync::Arc;

use esker_format::rocksdb::internal_key::SequenceNumber;

use crate::version::{TableFile, Version};

/// What the tables above the deepest level may hide of older values: as much as they point to, and a value for each of their deletions. Less
/// what was seen already when tables of the deepest level were written (P6 of [`compaction`](crate::compaction)), as far as it lay there and not above.
///
/// Cost: a sort of both, and a look at what lies below each, once for each version.
pub(crate) fn hidden_bytes(version: &Version) -> u64 {
    version.hidden_bytes(|| {
        let hiding = hiding_tables(version);
        let above = bytes_of(&hiding);
        hidden_by(version, hiding, above)
    })
}

/// What `hiding` hide, of the tables above the deepest level, which may hide `above` in all.
fn hidden_by(version: &Version, mut hiding: Vec<Hiding>, above: u64) -> u64 {
    hiding.sort_unstable_by_key(|table| (table.newest, table.oldest, table.bytes));
    let deepest = version.level(version.deepest_level()).iter();
    let seen = SeenUpTo::of(deepest.map(|table| (table.seen_up_to().get(), table.meta.file_bytes)).collect());
    let below = version.ledger().total().live_bytes().saturating_sub(above) as f64;
    let mut older = 0.0;
    let hidden = hiding.iter().map(|hiding| {
        let bytes = hiding.bytes as f64;
        // What it hides lies below, or in the tables that were written before it.
        let part_below = below / (below + older).max(1.0);
        older += bytes;
        let seen = hiding.seen_below.unwrap_or_else(|| seen.part_before(hiding));
        bytes * (1.0 - seen * part_below)
    });
    hidden.sum::<f64>() as u64
}

/// A table above others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hiding {
    /// Its entries.
    oldest: SequenceNumber,
    newest: SequenceNumber,
    /// What it may hide.
    pub(super) bytes: u64,
    /// Of one below level 0: how much of it is not newer than what the tables of the deepest level have seen that share a range of keys with it.
    seen_below: Option<f64>,
}

impl Hiding {
    /// Of a table above all of the deepest level.
    fn new(oldest: SequenceNumber, newest: SequenceNumber, bytes: u64) -> Self {
        Self { oldest, newest, bytes, seen_below: None }
    }

    /// Of one that is above `tables` only.
    fn above(self, tables: &[Arc<TableFile>]) -> Self {
        let (mut all, mut seen) = (0.0, 0.0);
        for table in tables {
            let bytes = table.meta.file_bytes as f64;
            (all, seen) = (all + bytes, seen + bytes * (1.0 - self.part_after(table.seen_up_to())));
        }
        Self { seen_below: Some(if all > 0.0 { seen / all } else { 1.0 }), ..self }
    }

    /// How much of it is newer than `seen`, as if it had been written evenly: tables that were merged are of some time.
    pub(super) fn part_after(&self, seen: SequenceNumber) -> f64 {
        let after = self.newest.get().saturating_sub(seen.get());
        (after as f64 / self.span() as f64).min(1.0)
    }

    fn span(&self) -> u64 {
        self.newest.get().saturating_sub(self.oldest.get()).saturating_add(1)
    }
}

fn bytes_of(hiding: &[Hiding]) -> u64 {
    hiding.iter().map(|table| table.bytes).fold(0, u64::saturating_add)
}

/// Those above the deepest level that may hide something.
fn hiding_tables(version: &Version) -> Vec<Hiding> {
    let deepest = version.deepest_level();
    hiding(version, version.tables().filter(|(level, _)| *level < deepest).map(|(_, table)| &**table))
}

fn hiding<'a>(version: &Version, tables: impl Iterator<Item = &'a TableFile>) -> Vec<Hiding> {
    let lowest = version.deepest_level();
    let hiding = tables.map(|table| {
        let hiding = hiding_of(version, table);
        // Below level 0 ranges of keys come down one by one; what is in level 0 lies above most of them.
        let is_above_all = lowest == 0 || version.level(0).iter().any(|newest| newest.number() == table.number());
        if is_above_all {
            return hiding;
        }
        hiding.above(version.within(lowest, Some(table.smallest()), Some(table.largest())))
    });
    hiding.filter(|table| table.bytes > 0).collect()
}

/// What a table may hide, wherever it lies.
pub(super) fn hiding_of(version: &Version, table: &TableFile) -> Hiding {
    let total = version.ledger().total();
    let mean = total.live_bytes() / total.live_count().max(1);
    let deleted = table.table.properties().deletion_count.saturating_mul(mean);
    let bytes = pointed_to(table).saturating_add(deleted);
    Hiding::new(table.meta.smallest_sequence, table.meta.largest_sequence, bytes)
}

/// Bytes of values that a table points to, as far as it says.
pub(super) fn pointed_to(table: &TableFile) -> u64 {
    table.known_blob_refs().map_or(0, |refs| refs.values().copied().fold(0, u64::saturating_add))
}

/// What a compaction may find overwritten or deleted: as [`hidden_bytes`], but only by tables that [overlie](overlying) others, of level 0, too.
/// That is for people: a compaction comes due by what lies where, whatever it hides. No more than there is, though many of the deletions may be of
/// keys that nobody had.
pub(crate) fn not_compacted_bytes(version: &Version) -> u64 {
    let hiding = hiding(version, overlying(version).into_iter());
    let bytes = match version.deepest_level() {
        0 => bytes_of(&hiding),
        _ => hidden_by(version, hiding, bytes_of(&hiding_tables(version))),
    };
    bytes.min(version.ledger().total().live_bytes())
}

/// Tables that may have keys of others below or, in level 0, of older ones there, as far as first and last keys tell: of all the older ones there.
pub(crate) fn overlying(version: &Version) -> Vec<&TableFile> {
    let order = version.order();
    let mut older: Option<(&[u8], &[u8])> = None;
    // Oldest first (V4).
    let level_0 = version.level(0).iter().rev().filter(|table| {
        let (smallest, largest) = (table.smallest(), table.largest());
        let overlaps = older.is_some_and(|(first, last)| table.overlaps(Some(first), Some(last)));
        older =
            Some(older.map_or((smallest, largest), |(first, last)| {
                (order.earlier(first, smallest), order.later(last, largest))
            }));
        overlaps || !version.is_deepest(0, smallest, largest)
    });
    let mut overlying: Vec<&TableFile> = level_0.map(|table| &**table).collect();
    let deeper = version
        .tables()
        .filter(|(level, table)| *level > 0 && !version.is_deepest(*level, table.smallest(), table.largest()));
    overlying.extend(deeper.map(|(_, table)| &**table));
    overlying
}

/// Up to when tables have seen what lies above them, in that order.
#[derive(Debug)]
struct SeenUpTo {
    times: Vec<u64>,
    /// Of those before each: their bytes, and bytes by time.
    before: Vec<(u64, u128)>,
}

impl SeenUpTo {
    /// Of tables' times and bytes.
    fn of(mut tables: Vec<(u64, u64)>) -> Self {
        tables.sort_unstable();
        let mut before = vec![(0, 0)];
        let (mut bytes, mut by_time) = (0u64, 0u128);
        for (time, size) in &tables {
            bytes = bytes.saturating_add(*size);
            by_time = by_time.saturating_add(u128::from(*time) * u128::from(*size));
            before.push((bytes, by_time));
        }
        Self { times: tables.into_iter().map(|(time, _)| time).collect(), before }
    }

    /// How much of what is hidden is not newer than what the tables have seen: the mean of them, by their bytes.
    fn part_before(&self, hiding: &Hiding) -> f64 {
        let (oldest, newest) = (hiding.oldest.get(), hiding.newest.get());
        let sums =
            |time: u64| self.before.get(self.times.partition_point(|at| *at < time)).copied().unwrap_or_default();
        let all = self.before.last().map_or(0, |(bytes, _)| *bytes);
        let (none, some) = (sums(oldest), sums(newest.max(oldest)));
        // Those between the two have seen a part of it.
        let after = (u128::from(newest) * u128::from(some.0 - none.0)).saturating_sub(some.1 - none.1);
        let unseen = none.0 as f64 + after as f64 / hiding.span() as f64;
        if all == 0 { 0.0 } else { (1.0 - unseen / all as f64).clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::*;
    use crate::compaction::testing::{open, separated};

    /// Goal: what tables have seen of what is above them is as if each were looked at by itself.
    #[test]
    fn what_tables_have_seen_is_the_mean_of_them() {
        // Multiples of a prime, so that they lie in no order.
        let number = |n: u64, most: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) % (most + 1);
        for n in 0..3000 {
            let most = [10, 1000, SequenceNumber::MAX.get()][n as usize % 3];
            let tables: Vec<(u64, u64)> =
                (0..n % 8).map(|at| (number(n * 31 + at, most), number(n + at, 1 << 40))).collect();
            let (a, b) = (number(n * 7 + 1, most), number(n * 11 + 2, most));
            let (oldest, newest) = (SequenceNumber::new(a.min(b)), SequenceNumber::new(a.max(b)));
            let hiding = Hiding::new(oldest, newest, 1);
            let all: f64 = tables.iter().map(|(_, bytes)| *bytes as f64).sum();
            let seen =
                |&(time, bytes): &(u64, u64)| bytes as f64 * (1.0 - hiding.part_after(SequenceNumber::new(time)));
            let expected = tables.iter().map(seen).sum::<f64>() / all.max(1.0);
            let part = SeenUpTo::of(tables.clone()).part_before(&hiding);
            assert!((part - expected).abs() < 1e-6, "{part}, {expected}: {hiding:?}, {tables:?}");
        }
    }

    /// Goal: tables hide nothing of others that they have no keys in common with; where no level is below, those of level 0 may hide what older
    /// ones there point to.
    #[test]
    fn tables_of_level_0_alone_hide_each_others_values() {
        let db = open(&SimDisk::new(), separated());
        let put = |keys: std::ops::Range<u8>| {
            keys.for_each(|n| db.put([n], [n; 1000]).unwrap());
            db.flush().unwrap();
        };
        let hidden = || db.reclaim_plan(&db.default_column_family(), 0.5).unwrap().not_compacted_bytes / 1000;
        let times = || db.stats().space_amplification().unwrap();
        put(20..40);
        put(0..20);
        put(40..60);
        assert_eq!((hidden(), times() < 1.1), (0, true), "{}", times());
        put(0..60);
        assert_eq!((hidden() >= 60, times() > 1.9), (true, true), "{} hidden, {}", hidden(), times());
        put(30..31);
        assert!((61..70).contains(&hidden()), "{}", hidden());
        db.compact_range(&db.default_column_family(), None, None).unwrap();
        assert_eq!(hidden(), 0);
        // Nor do those above others.
        put(100..160);
        put(60..90);
        assert_eq!((hidden(), times() < 1.1), (0, true), "{} hidden, {}", hidden(), times());
        put(10..20);
        assert!((10..12).contains(&hidden()), "{}", hidden());
        put(150..170);
        assert!((30..33).contains(&hidden()), "{}", hidden());
    }

    /// Goal: deletions of keys that nobody had are taken for no more garbage than there are values.
    #[test]
    fn what_may_be_garbage_is_no_more_than_there_is() {
        let db = open(&SimDisk::new(), separated());
        (0..10u8).for_each(|n| db.put([n], [n; 1000]).unwrap());
        db.flush().unwrap();
        (0..200u8).for_each(|n| db.delete([n]).unwrap());
        db.flush().unwrap();
        let plan = db.reclaim_plan(&db.default_column_family(), 0.5).unwrap();
        let live: u64 = plan.files.iter().map(|file| file.live_bytes).sum();
        assert_eq!((live >= 10_000, plan.not_compacted_bytes), (true, live));
    }
}
