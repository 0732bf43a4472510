//! A walk through the store that notices what it should have met: order, gaps, and where the keys end.

use esker::DbIterator;

use super::fault::{Fault, Stop, Wrong};
use super::worker::Worker;

/// Keys of a gap that are checked: a gap where there should be none is noticed at its edge.
const GAP_KEYS_MAX: u64 = 8;

/// An iterator and what it may show next.
#[derive(Debug)]
pub(super) struct Cursor {
    iterator: DbIterator,
    is_backward: bool,
    /// Upwards, the least number that may come; downwards, one more than the greatest.
    edge: u64,
    /// When it began, keys below this were there.
    end: u64,
}

impl Cursor {
    /// Upwards from the key of `number` on; downwards from the one before it.
    pub(super) fn begin(worker: &mut Worker<'_>, number: u64, is_backward: bool) -> Result<Self, Stop> {
        let shared = worker.shared;
        let end = shared.frontier.acknowledged();
        let (db, family, options) = shared.target.db()?;
        let mut iterator = db.iter_cf(family, options)?;
        match (is_backward, number.checked_sub(1)) {
            (false, None) => iterator.seek_to_first()?,
            (false, Some(_)) => iterator.seek(worker.key.of(number))?,
            (true, Some(_)) if number >= end => iterator.seek_to_last()?,
            (true, Some(last)) => iterator.seek_for_prev(worker.key.of(last))?,
            (true, None) => (),
        }
        // What other runs may have added lies behind the end.
        let edge = if is_backward && number >= end { u64::MAX } else { number };
        Ok(Self { iterator, is_backward, edge, end })
    }

    pub(super) fn valid(&self) -> bool {
        self.iterator.valid()
    }

    /// Keys below this were there when it began.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn advance(&mut self) -> Result<(), Stop> {
        let moved = if self.is_backward { self.iterator.prev() } else { self.iterator.next() };
        Ok(moved?)
    }

    /// The entry it stands on is right, and none was left out before it.
    pub(super) fn check_entry(&mut self, worker: &mut Worker<'_>, with_value: bool) -> Result<(), Stop> {
        let key = self.iterator.key();
        let wrong = |fault| Stop::Wrong(Wrong::key(key, fault));
        let number = worker.key.number(key).ok_or_else(|| wrong(Fault::Foreign))?;
        if self.is_backward {
            if number >= self.edge {
                return Err(wrong(Fault::OutOfOrder));
            }
            self.check_gap(worker, number + 1, self.edge.min(self.end))?;
            self.edge = number;
        } else {
            if number < self.edge {
                return Err(wrong(Fault::OutOfOrder));
            }
            self.check_gap(worker, self.edge, number.min(self.end))?;
            self.edge = number.saturating_add(1);
        }
        let expected = worker.expect(number, self.end);
        if with_value {
            let value = self.iterator.value()?;
            worker.check(number, Some(&value), expected)
        } else {
            worker.check_existence(number, true, expected)
        }
    }

    /// The walk is over, and no key is left that it should have met.
    pub(super) fn check_end(&self, worker: &mut Worker<'_>) -> Result<(), Stop> {
        if self.is_backward {
            self.check_gap(worker, 0, self.edge.min(self.end))
        } else {
            self.check_gap(worker, self.edge, self.end)
        }
    }

    #[inline]
    fn check_gap(&self, worker: &mut Worker<'_>, from: u64, to: u64) -> Result<(), Stop> {
        for number in from..to.min(from.saturating_add(GAP_KEYS_MAX)) {
            if worker.expect(number, self.end).oldest.is_some() {
                return Err(worker.wrong(number, Fault::Missing));
            }
        }
        Ok(())
    }
}
