//! The tables of a level below 0 as one run: they follow each other, so only one is open at a time.

use std::path::Path;
use std::sync::Arc;

use esker_format::rocksdb::internal_key::{self, SequenceNumber};
use esker_format::rocksdb::order::Order;

use super::{Bounds, InternalIterator};
use crate::Result;
use crate::entry;
use crate::pinned::PinnedSlice;
use crate::table::TableIterator;
use crate::version::{TableFile, Version};

/// Where the tables are listed: sorted, without overlap.
enum Tables {
    /// Some of a level.
    Some(Vec<Arc<TableFile>>),
    /// A level of a version.
    Level(Arc<Version>, usize),
}

impl Tables {
    fn get(&self) -> &[Arc<TableFile>] {
        match self {
            Self::Some(tables) => tables,
            Self::Level(version, level) => version.level(*level),
        }
    }
}

/// Cost of a step: that of a table's iterator, and an open of the next one's at a table's end.
pub(crate) struct LevelIterator {
    tables: Tables,
    index: usize,
    current: Option<TableIterator>,
    fill_cache: bool,
    order: Order,
}

impl LevelIterator {
    /// Of tables that follow each other in `order`.
    pub(crate) fn new(order: Order, tables: Vec<Arc<TableFile>>, fill_cache: bool) -> Self {
        Self { tables: Tables::Some(tables), index: 0, current: None, fill_cache, order }
    }

    /// All tables of a level of `version`.
    pub(crate) fn of_version(version: Arc<Version>, level: usize, fill_cache: bool) -> Self {
        let order = version.order();
        Self { tables: Tables::Level(version, level), index: 0, current: None, fill_cache, order }
    }

    /// Opens table `index`; nothing past the end.
    fn open(&mut self, index: usize) -> Option<&mut TableIterator> {
        if self.index != index || self.current.is_none() {
            self.index = index;
            let table = self.tables.get().get(index);
            match (table, &mut self.current) {
                // The memory of the iterator before serves the next one.
                (Some(table), Some(current)) => current.move_to(&table.table),
                (table, current) => *current = table.map(|table| table.table.iter(self.fill_cache)),
            }
        }
        self.current.as_mut()
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|current| !current.valid()) {
            match self.open(self.index + 1) {
                Some(next) => next.seek_to_first()?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.current.as_ref().is_some_and(|current| !current.valid()) {
            let Some(before) = self.index.checked_sub(1) else {
                self.current = None;
                return Ok(());
            };
            if let Some(previous) = self.open(before) {
                previous.seek_to_last()?;
            }
        }
        Ok(())
    }
}

impl InternalIterator for LevelIterator {
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(TableIterator::valid)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        if let Some(first) = self.open(0) {
            first.seek_to_first()?;
        }
        self.skip_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let Some(last) = self.tables.get().len().checked_sub(1) else { return Ok(()) };
        if let Some(last) = self.open(last) {
            last.seek_to_last()?;
        }
        self.skip_backward()
    }

    fn seek(&mut self, target: &[u8]) -> Result<()> {
        let tables = self.tables.get();
        let index = tables.partition_point(|table| self.order.compare_internal(&table.meta.largest, target).is_lt());
        if let Some(table) = self.open(index) {
            table.seek(target)?;
        }
        self.skip_forward()
    }

    fn seek_for_prev(&mut self, target: &[u8]) -> Result<()> {
        let tables = self.tables.get();
        let after = tables.partition_point(|table| self.order.compare_internal(&table.meta.smallest, target).is_le());
        let Some(index) = after.checked_sub(1) else {
            self.current = None;
            return Ok(());
        };
        if let Some(table) = self.open(index) {
            table.seek_for_prev(target)?;
        }
        self.skip_backward()
    }

    fn next(&mut self) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.next()?;
        }
        self.skip_forward()
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.prev()?;
        }
        self.skip_backward()
    }

    fn skip(&mut self, sequence: SequenceNumber, (from, to): Bounds<'_>, forward: bool) -> Result<bool> {
        let order = self.order;
        let is_older = |table: &&Arc<TableFile>| table.meta.largest_sequence < sequence;
        let ends_within = |table: &TableFile| to.is_none_or(|to| order.is_before(table.largest(), to));
        let begins_within = |table: &TableFile| from.is_none_or(|from| !order.is_before(table.smallest(), from));
        let tables = self.tables.get();
        let Some(table) = tables.get(self.index).filter(is_older) else { return Ok(false) };
        let user_key = internal_key::user_key(self.key());
        let is_out = from.is_some_and(|from| order.is_before(user_key, from))
            || to.is_some_and(|to| !order.is_before(user_key, to));
        if is_out {
            return Ok(false);
        }
        let (ends, begins) = (ends_within(table), begins_within(table));
        // Those that lie within as a whole, after or before it.
        let within = |table: &&Arc<TableFile>| {
            is_older(table) && if forward { ends_within(table) } else { begins_within(table) }
        };
        let more = match forward {
            true => tables.iter().skip(self.index + 1).take_while(within).count(),
            false => tables.iter().take(self.index).rev().take_while(within).count(),
        };
        match (forward, if forward { to } else { from }, &mut self.current) {
            (true, Some(to), Some(current)) if !ends => {
                current.seek(&internal_key::lookup(to, SequenceNumber::MAX))?;
                if current.valid() && order.is_before(internal_key::user_key(current.key()), to) {
                    return Err(entry::disordered(current));
                }
            }
            (false, Some(from), Some(current)) if !begins => {
                current.seek_for_prev(&internal_key::lookup(from, SequenceNumber::MAX))?;
                if current.valid() && !order.is_before(internal_key::user_key(current.key()), from) {
                    return Err(entry::disordered(current));
                }
            }
            // All of the table.
            (true, ..) => match self.open(self.index + 1 + more) {
                Some(next) => next.seek_to_first()?,
                None => return Ok(true),
            },
            (false, ..) => match self.index.checked_sub(1 + more) {
                Some(before) => {
                    if let Some(previous) = self.open(before) {
                        previous.seek_to_last()?;
                    }
                }
                None => self.current = None,
            },
        }
        if forward {
            self.skip_forward()?
        } else {
            self.skip_backward()?
        }
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], TableIterator::key)
    }

    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], TableIterator::value)
    }

    fn pinned_value(&self) -> PinnedSlice {
        self.current.as_ref().map(TableIterator::pinned_value).unwrap_or_default()
    }

    fn place(&self) -> Option<(&Path, Option<u64>)> {
        self.current.as_ref()?.place()
    }
}
