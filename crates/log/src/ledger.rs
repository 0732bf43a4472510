//! Live and dead bytes of each file: what reclaim chooses by, and what `check` recomputes and compares.
//!
//! - L1: a file's garbage never exceeds its total, in records nor in bytes. Whoever counts something dead twice is told.
//! - L2: the ledger's total is the sum over its files.
//!
//! Cost: a lookup is a tree's; a clone shares everything until one of the two changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::FileNumber;

use crate::{Error, ErrorKind, Result};

/// What a file holds, and how much of that is dead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records, dead ones included.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that nobody points to any more.
    pub garbage_count: u64,
    /// Their bytes.
    pub garbage_bytes: u64,
}

impl Usage {
    /// Records that somebody points to.
    pub const fn live_count(&self) -> u64 {
        self.count.saturating_sub(self.garbage_count)
    }

    /// Their bytes.
    pub const fn live_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.garbage_bytes)
    }

    /// Whether nothing in it is alive.
    pub const fn is_dead(&self) -> bool {
        self.live_count() == 0
    }

    /// The sum, or `None` where it would not fit, or where garbage would exceed the total (L1).
    fn plus(&self, more: &Self) -> Option<Self> {
        let sum = Self {
            count: self.count.checked_add(more.count)?,
            bytes: self.bytes.checked_add(more.bytes)?,
            garbage_count: self.garbage_count.checked_add(more.garbage_count)?,
            garbage_bytes: self.garbage_bytes.checked_add(more.garbage_bytes)?,
        };
        (sum.garbage_count <= sum.count && sum.garbage_bytes <= sum.bytes).then_some(sum)
    }

    /// Without what was added before.
    const fn minus(&self, less: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(less.count),
            bytes: self.bytes.saturating_sub(less.bytes),
            garbage_count: self.garbage_count.saturating_sub(less.garbage_count),
            garbage_bytes: self.garbage_bytes.saturating_sub(less.garbage_bytes),
        }
    }
}

/// The usage of every file of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    files: Arc<BTreeMap<FileNumber, Usage>>,
    total: Usage,
}

impl Ledger {
    /// Of no file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters a file with `count` live records of `bytes` in all.
    ///
    /// # Errors
    /// `Corruption` if the file is in the ledger already, or the sum over all files is beyond 64 bits; nothing changed.
    pub fn add_file(&mut self, number: FileNumber, count: u64, bytes: u64) -> Result<()> {
        if self.files.contains_key(&number) {
            return Err(drift(format!("file {number} is added a second time")));
        }
        let usage = Usage { count, bytes, ..Usage::default() };
        let Some(total) = self.total.plus(&usage) else {
            return Err(drift(format!("file {number} brings the sum of all files beyond 64 bits")));
        };
        self.total = total;
        Arc::make_mut(&mut self.files).insert(number, usage);
        Ok(())
    }

    /// Counts `count` more records of `bytes` in all of file `number` as dead.
    ///
    /// # Errors
    /// `Corruption` if the file is not in the ledger, or more would be dead than there ever was; nothing changed.
    pub fn add_garbage(&mut self, number: FileNumber, count: u64, bytes: u64) -> Result<()> {
        let Some(usage) = self.files.get(&number) else {
            return Err(drift(format!("{count} records of file {number} are counted dead, but the file is not there")));
        };
        let dead = Usage { garbage_count: count, garbage_bytes: bytes, ..Usage::default() };
        let (Some(usage), Some(total)) = (usage.plus(&dead), self.total.plus(&dead)) else {
            return Err(drift(format!(
                "{count} more records of {bytes} bytes of file {number} are counted dead, but of its {} records of {} bytes \
                 {} of {} bytes are dead already",
                usage.count, usage.bytes, usage.garbage_count, usage.garbage_bytes
            )));
        };
        self.total = total;
        Arc::make_mut(&mut self.files).insert(number, usage);
        Ok(())
    }

    /// Takes a file out; returns what was known of it.
    pub fn remove(&mut self, number: FileNumber) -> Option<Usage> {
        let usage = *self.files.get(&number)?;
        Arc::make_mut(&mut self.files).remove(&number);
        self.total = self.total.minus(&usage);
        Some(usage)
    }

    /// What is known of a file.
    pub fn get(&self, number: FileNumber) -> Option<Usage> {
        self.files.get(&number).copied()
    }

    /// All files, by ascending number.
    pub fn iter(&self) -> impl Iterator<Item = (FileNumber, Usage)> + '_ {
        self.files.iter().map(|(number, usage)| (*number, *usage))
    }

    /// The sum over all files (L2).
    pub const fn total(&self) -> Usage {
        self.total
    }

    /// How many files there are.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

fn drift(reason: String) -> Error {
    Error::new(ErrorKind::Corruption, format!("{reason}; the ledger has drifted, run a check"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileNumber = FileNumber::new(7);
    const B: FileNumber = FileNumber::new(9);

    #[test]
    fn garbage_moves_bytes_from_the_living_to_the_dead() {
        let mut ledger = Ledger::new();
        ledger.add_file(A, 10, 1000).unwrap();
        ledger.add_file(B, 1, 50).unwrap();
        ledger.add_garbage(A, 4, 300).unwrap();
        let a = ledger.get(A).unwrap();
        assert_eq!((a.live_count(), a.live_bytes(), a.garbage_count, a.garbage_bytes), (6, 700, 4, 300));
        assert_eq!(ledger.total(), Usage { count: 11, bytes: 1050, garbage_count: 4, garbage_bytes: 300 });
        ledger.add_garbage(A, 6, 700).unwrap();
        assert!(ledger.get(A).unwrap().is_dead());
        assert_eq!(ledger.remove(A), Some(Usage { count: 10, bytes: 1000, garbage_count: 10, garbage_bytes: 1000 }));
        assert_eq!(ledger.total(), Usage { count: 1, bytes: 50, ..Usage::default() });
        assert_eq!(ledger.iter().map(|(number, _)| number).collect::<Vec<_>>(), [B]);
        assert_eq!(ledger.remove(A), None);
    }

    #[test]
    fn drift_is_corruption_and_changes_nothing() {
        let mut ledger = Ledger::new();
        ledger.add_file(A, 2, 100).unwrap();
        ledger.add_garbage(A, 1, 60).unwrap();
        let before = ledger.clone();
        let drifts = [
            ledger.add_file(A, 1, 1),
            ledger.add_file(B, 1, u64::MAX),
            ledger.add_garbage(A, 2, 40),
            ledger.add_garbage(A, 1, 41),
            ledger.add_garbage(A, u64::MAX, 0),
            ledger.add_garbage(B, 1, 1),
        ];
        for drift in drifts {
            assert_eq!(drift.unwrap_err().kind(), ErrorKind::Corruption);
        }
        assert_eq!(ledger, before);
    }

    #[test]
    fn a_clone_keeps_what_it_was_cloned_from() {
        let mut ledger = Ledger::new();
        ledger.add_file(A, 2, 100).unwrap();
        let earlier = ledger.clone();
        assert!(Arc::ptr_eq(&ledger.files, &earlier.files));
        ledger.add_garbage(A, 1, 60).unwrap();
        assert_eq!(earlier.get(A).unwrap().garbage_count, 0);
        assert_eq!(earlier.total().garbage_bytes, 0);
    }
}
