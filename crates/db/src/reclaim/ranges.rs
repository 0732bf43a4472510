//! Ranges of keys that have blob files of their own, where much is overwritten: so a pass that frees the space of some values
//! writes only the keys of their range again, and not all there are.
//!
//! Where values are long, keys are few, and all of them are written as soon. There are no ranges then.
//!
//! Flushes, sweeps and compactions into the deepest level end a blob file, and below level 0 a table, where a range ends. Nothing leans on it: a
//! file over several ranges (of a store from elsewhere, of values that were written at once, of ranges that were others then) only makes a pass
//! over it wider. So ranges are not kept on disk, but found anew in what the deepest level holds, and again when they have become unequal.
//!
//! Cost: of a flush, a look at the tables of the deepest level, and up to [`COUNT_MAX`] files in place of one.

use esker_format::rocksdb::order::Order;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::family::Family;
use crate::options::{FamilyOptions, ReclaimMode};
use crate::reclaim::punch::has_pages;
use crate::store::Store;
use crate::version::{Version, cuts};

/// Most ranges. More would write fewer keys again, but a flush of 8 MiB that made 16 files was a quarter slower than one that made one.
const COUNT_MAX: u64 = 8;
/// What a flush writes for one range is at least about this part of a blob file, and so many bytes: small memtables are cut into fewer, and what
/// blocks of the file system round up stays far below what is kept for a flush.
const FLUSH_PART: u64 = 64;
const FLUSH_BYTES_MIN: u64 = 128 << 10;
/// A range's values fill so many blob files at least.
const FILES_WORTH_MIN: u64 = 2;
/// Flushes leave about so many files at most: each is open as long as it is there, and many systems give a process 1,024.
const PIECES_MAX: u64 = 512;
/// Where less of what is written hides something, a flush leaves one file: there is little to free. Of a load, filters take up to a tenth for that.
const OVERWRITING_MIN: f64 = 0.2;
/// A range's values lie in so many files at least.
const FILES_MIN: u64 = 4;
/// Ranges are found anew once one holds so many times its share, or there should be twice or half as many.
const UNEQUAL: u64 = 4;

/// The ranges of a family.
#[derive(Debug)]
pub(crate) struct Ranges(Mutex<Arc<[Vec<u8>]>>);

impl Default for Ranges {
    fn default() -> Self {
        Self(Mutex::new(Arc::new([])))
    }
}

/// Where ranges end, for a writer that comes by them in order.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    order: Order,
    /// The user keys that all ranges but the first begin with, ascending.
    begins: Arc<[Vec<u8>]>,
    /// The first of them that lies beyond the last key; `None` before the first key.
    next: Option<usize>,
    /// How large a blob file may become: so that one is a part of what its range holds, and no pass has to copy more at once.
    blob_file_bytes: u64,
}

impl Default for Ends {
    fn default() -> Self {
        Self { order: Order::BYTEWISE, begins: Arc::new([]), next: None, blob_file_bytes: u64::MAX }
    }
}

impl Ends {
    pub(crate) fn is_empty(&self) -> bool {
        self.begins.is_empty()
    }

    /// See the field.
    pub(crate) fn blob_file_bytes(&self) -> u64 {
        self.blob_file_bytes
    }

    /// The user keys that all ranges but the first begin with, ascending.
    pub(crate) fn begins(&self) -> &[Vec<u8>] {
        &self.begins
    }

    /// Whether `user_key`, which comes next, lies in another range than the one before it.
    #[inline]
    pub(crate) fn passes(&mut self, user_key: &[u8]) -> bool {
        if self.begins.is_empty() {
            return false;
        }
        let (from, is_first) = (self.next.unwrap_or(0), self.next.is_none());
        let passed = self.begins.iter().skip(from).take_while(|begin| !self.order.is_before(user_key, begin)).count();
        self.next = Some(from + passed);
        passed > 0 && !is_first
    }
}

/// Into how many ranges a family's keys are divided, if its values take so many bytes.
fn count_for(options: &FamilyOptions, blob_file_bytes: u64, live_bytes: u64) -> u64 {
    let least = (blob_file_bytes / FLUSH_PART).max(FLUSH_BYTES_MIN);
    let files = live_bytes / blob_file_bytes.max(1);
    // As much as is overwritten before passes have come by all ranges: about half of what lives.
    let flushes = (live_bytes / options.write_buffer_bytes.max(1) / 2).max(1);
    let most = COUNT_MAX.min(files / FILES_WORTH_MIN).min(PIECES_MAX / flushes);
    (options.write_buffer_bytes / least).min(most).max(1)
}

impl Ranges {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len() + 1
    }

    /// Those of a flush.
    pub(crate) fn of_flush(&self, store: &Store, family: &Family) -> Ends {
        if family.overwriting.part() < OVERWRITING_MIN {
            return Ends::default();
        }
        self.of(store, family, &family.view.load().version)
    }

    /// Those of what is written to the deepest level of `version`.
    pub(crate) fn of(&self, store: &Store, family: &Family, version: &Version) -> Ends {
        let count = count_for(&family.options(), family.blob_file_bytes(), version.ledger().total().live_bytes());
        let is_reclaimed = store.options().reclaim_mode == ReclaimMode::Auto && family.separation().moves_out();
        let mut held = self.0.lock();
        if count < 2 || !is_reclaimed || has_pages(version) {
            *held = Arc::new([]);
            return Ends::default();
        }
        let held_count = held.len() as u64 + 1;
        let is_due =
            held.is_empty() || held_count > 2 * count || 2 * held_count <= count || is_unequal(version, &held, count);
        if is_due && family.overwriting.part() >= OVERWRITING_MIN {
            let tables = version.level(version.deepest_level());
            *held = cuts(version.order(), tables.iter(), None, None, count as usize).into();
        }
        let share = version.ledger().total().live_bytes() / (held.len() as u64 + 1);
        let blob_file_bytes = share / FILES_MIN;
        Ends { order: version.order(), begins: held.clone(), next: None, blob_file_bytes }
    }
}

/// Whether one range holds much more than its share of the deepest level.
fn is_unequal(version: &Version, begins: &[Vec<u8>], count: u64) -> bool {
    let level = version.deepest_level();
    let all = version.level_bytes(level);
    let most = (all / 4 * 3).min(all.saturating_mul(UNEQUAL) / count);
    let (mut range, mut bytes) = (0, 0);
    for table in version.level(level) {
        let begun = begins.partition_point(|begin| !version.order().is_before(table.smallest(), begin));
        if begun != range {
            (range, bytes) = (begun, 0);
        }
        bytes += table.meta.file_bytes;
        if bytes > most.max(1) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_where_another_begins_and_only_between_keys() {
        let begins: Arc<[Vec<u8>]> = [b"c".to_vec(), b"f".to_vec(), b"g".to_vec()].into();
        let mut ends = Ends { begins, ..Ends::default() };
        let passed: Vec<&str> =
            ["a", "b", "c", "c", "d", "h", "i"].into_iter().filter(|key| ends.passes(key.as_bytes())).collect();
        assert_eq!(passed, ["c", "h"]);
        let mut late = Ends { next: None, ..ends };
        assert!(!late.passes(b"d") && !late.passes(b"e") && late.passes(b"f"));
        assert!(!Ends::default().passes(b"a"));
    }

    #[test]
    fn keys_are_divided_as_far_as_files_stay_few_and_large() {
        let count = |write_buffer_mib: u64, live_gib: u64| {
            let options = FamilyOptions { write_buffer_bytes: write_buffer_mib << 20, ..FamilyOptions::default() };
            count_for(&options, options.blob_file_bytes, live_gib << 30)
        };
        assert_eq!([count(64, 4), count(8, 4), count(4, 4)], [8, 2, 1], "not into pieces too small");
        assert_eq!([count(64, 0), count(64, 1), count(64, 2)], [1, 2, 4], "nor where there is little");
        assert_eq!(
            [count(64, 8), count(64, 16), count(64, 32), count(64, 100)],
            [8, 4, 2, 1],
            "nor into too many files"
        );
    }
}
