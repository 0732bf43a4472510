//! What of the logs is in the tables of a family already, as these tell where no manifest does.
//!
//! - L1: a table that was made of others, or loaded, says before which log all was in tables
//!   ([`FIRST_LOG_PROPERTY`](crate::output::FIRST_LOG_PROPERTY)), and is believed in the store that wrote it. Other tables, as of flushes, say it by
//!   the numbers of their entries, unless they were taken in.
//! - L2: what was logged before such a log is older than an entry of its key that compactions have taken the number from, or it is that entry. Any
//!   number would make it newer, so it does not count. Of a key without such an entry all that is logged counts: numbers tell what is newer, and its
//!   table may be lost. (Of a key with one, the table of a flush that held a newer entry may be, too, while its log is still there: the older one shows
//!   then. To take every log at its word would show older ones of tables that are whole.)
//! - L3: an operand that was logged does not count beside an entry of its key in a table that is not older: a flush or a compaction has made that of it, and
//!   of others, or it is hidden by that. (Or its own table is lost, and it with that: to count it would be to merge others twice.)
//! - L4: a range deletion that was logged before such a log does not count where a table with entries without numbers meets its range: it would hide
//!   what is newer.
//!
//! Cost: a record of an early log is looked up in each table that has entries without numbers and its key in its range, past its filter; an operand
//! in all that have its key in theirs.

use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber};

use super::tables::{Contents, Source};
use crate::Result;
use crate::memtable::Memtable;

/// See the module's head.
pub(super) struct Flushed<'a> {
    first_log: FileNumber,
    newest: u64,
    tables: Vec<Flat<'a>>,
}

/// A table, to be asked for keys.
struct Flat<'a> {
    source: &'a Source,
    /// Whether compactions have taken the number from some of its entries.
    is_timeless: bool,
    says_first_log: bool,
    /// Of a damaged one, once it was asked for.
    salvaged: Option<Arc<Memtable>>,
}

impl<'a> Flushed<'a> {
    /// As the tables of a family say, in the store `db_id`.
    pub(super) fn of(sources: &'a [Source], db_id: &str) -> Self {
        let mut flushed = Self { first_log: FileNumber::default(), newest: 0, tables: Vec::new() };
        for source in sources {
            let first_log = source.first_log(db_id);
            match first_log {
                Some(log) => flushed.first_log = flushed.first_log.max(log),
                None if source.is_undated => {}
                None => flushed.newest = flushed.newest.max(source.meta.largest_sequence.get()),
            }
            let (is_timeless, says_first_log) = (source.meta.smallest_sequence.get() == 0, first_log.is_some());
            flushed.tables.push(Flat { source, is_timeless, says_first_log, salvaged: None });
        }
        flushed
    }

    /// Whether a record is in tables, if all are there.
    pub(super) fn has(&self, log: FileNumber, sequence: u64) -> bool {
        log < self.first_log || sequence <= self.newest
    }

    /// Whether a record does not count (L2).
    pub(super) fn hides(&mut self, log: FileNumber, user_key: &[u8]) -> Result<bool> {
        Ok(log < self.first_log && self.has_timeless(user_key, |_| true)?)
    }

    /// Whether a range deletion does not count (L4).
    pub(super) fn hides_of_range(&self, log: FileNumber, begin: &[u8], end: &[u8]) -> bool {
        let meets = |table: &Flat<'_>| {
            let meta = &table.source.meta;
            let order = table.source.order;
            !order.is_before(internal_key::user_key(&meta.largest), begin)
                && order.is_before(internal_key::user_key(&meta.smallest), end)
        };
        log < self.first_log && self.tables.iter().any(|table| table.is_timeless && meets(table))
    }

    /// Whether a record that [is not in tables](Self::has) may be older than an entry all the same: one in a table that says nothing.
    pub(super) fn may_hide(&mut self, user_key: &[u8]) -> Result<bool> {
        self.has_timeless(user_key, |table| !table.says_first_log)
    }

    /// Whether an operand that was logged at `sequence` is in some entry of its key already (L3).
    pub(super) fn has_taken(&mut self, user_key: &[u8], sequence: u64) -> Result<bool> {
        for table in &mut self.tables {
            if table.newest(user_key, SequenceNumber::MAX)?.is_some_and(|newest| newest.get() >= sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_timeless(&mut self, user_key: &[u8], counts: impl Fn(&Flat<'_>) -> bool) -> Result<bool> {
        for table in self.tables.iter_mut().filter(|table| table.is_timeless && counts(table)) {
            if table.newest(user_key, SequenceNumber::default())?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Flat<'_> {
    /// The number of the newest entry of `user_key`, of those up to `upto`.
    fn newest(&mut self, user_key: &[u8], upto: SequenceNumber) -> Result<Option<SequenceNumber>> {
        let meta = &self.source.meta;
        let (smallest, largest) = (internal_key::user_key(&meta.smallest), internal_key::user_key(&meta.largest));
        if self.source.order.is_before(user_key, smallest) || self.source.order.is_before(largest, user_key) {
            return Ok(None);
        }
        let lookup = internal_key::lookup(user_key, upto);
        let wreck = match &self.source.contents {
            Contents::Whole(table) | Contents::Dangling(table) => {
                return Ok(table.get(&lookup, false)?.map(|hit| hit.sequence));
            }
            Contents::Salvaged(wreck) => wreck,
        };
        let salvaged = match &mut self.salvaged {
            Some(salvaged) => salvaged,
            empty => empty.insert(wreck.to_memtable()?),
        };
        Ok(salvaged.get(&lookup).map(|hit| hit.sequence))
    }
}
