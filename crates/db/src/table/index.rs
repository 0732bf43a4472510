//! Walks the index of a table, in one block or in partitions, from data block to data block.

use std::sync::Arc;

use esker_format::rocksdb::block::{BlockLayout, IndexCursor};
use esker_format::rocksdb::internal_key;
use esker_format::rocksdb::table::BlockHandle;

use super::{Index, Table};
use crate::Result;
use crate::cache::Block;

const DOING: &str = "reading the index";

/// A table, and its index, which its user holds.
#[derive(Clone, Copy)]
pub(super) struct Indexed<'a> {
    pub(super) table: &'a Table,
    pub(super) index: &'a Index,
}

/// A position in the index of one table.
///
/// - I1: with partitions, the position is valid only if `partition` is, and `partition` walks the block that `top` stands on.
#[derive(Debug, Default)]
pub(super) struct IndexWalk {
    top: IndexCursor,
    partition: IndexCursor,
    partition_block: Option<(BlockHandle, Arc<Block>)>,
}

impl IndexWalk {
    /// Before the first block. Keeps buffers from the walk before.
    #[inline]
    pub(super) fn reset(&mut self, of: Indexed<'_>) {
        self.top.reset(of.index.layout, of.index.format);
        self.partition_block = None;
    }

    /// Lets go of the partition that the walk stood on.
    pub(super) fn release(&mut self) {
        self.partition_block = None;
    }

    /// The data block that the walk stands on; `None` before the first and after the last.
    #[inline]
    pub(super) fn handle(&self, of: Indexed<'_>) -> Result<Option<BlockHandle>> {
        let (cursor, block, offset) = match &self.partition_block {
            None if of.index.has_partitions => return Ok(None),
            None => (&self.top, of.index.block.bytes(), of.index.offset),
            Some((handle, block)) => (&self.partition, block.bytes(), handle.offset),
        };
        if !cursor.valid() {
            return Ok(None);
        }
        cursor.handle(block).map(Some).map_err(|error| of.table.damaged(offset, DOING, error))
    }

    /// Whether every key of the blocks behind this one has a greater user key than `user_key`.
    #[inline]
    pub(super) fn ends_beyond(&self, of: Indexed<'_>, user_key: &[u8]) -> bool {
        let separator = self.separator();
        let separator = if of.index.format.user_keys { separator } else { internal_key::user_key(separator) };
        of.index.format.order.is_before(user_key, separator)
    }

    /// The separator: an internal key or, as the index says, a user key; empty unless the walk stands on a block.
    #[inline]
    pub(super) fn separator(&self) -> &[u8] {
        if self.partition_block.is_some() { self.partition.separator() } else { self.top.separator() }
    }

    /// The partition that the walk is in.
    pub(super) fn partition(&self) -> Option<BlockHandle> {
        self.partition_block.as_ref().map(|(handle, _)| *handle)
    }

    pub(super) fn seek_to_first(&mut self, of: Indexed<'_>) -> Result<()> {
        self.on_top(of, |cursor, block| cursor.seek_to_first(block))?;
        self.enter(of, |cursor, block| cursor.seek_to_first(block))?;
        self.skip_forward(of)
    }

    pub(super) fn seek_to_last(&mut self, of: Indexed<'_>) -> Result<()> {
        self.on_top(of, |cursor, block| cursor.seek_to_last(block))?;
        self.enter(of, |cursor, block| cursor.seek_to_last(block))?;
        self.skip_backward(of)
    }

    /// To the first block that may hold `target` or a key after it.
    #[inline]
    pub(super) fn seek(&mut self, of: Indexed<'_>, target: &[u8]) -> Result<()> {
        let around = of.index.fences.around(internal_key::user_key(target));
        self.on_top(of, |cursor, block| cursor.seek_within(block, target, around))?;
        if of.index.has_partitions {
            self.enter(of, |cursor, block| cursor.seek(block, target))?;
            self.skip_forward(of)?;
        }
        Ok(())
    }

    pub(super) fn next(&mut self, of: Indexed<'_>) -> Result<()> {
        if !of.index.has_partitions {
            return self.on_top(of, |cursor, block| cursor.next(block));
        }
        self.in_partition(of, |cursor, block| cursor.next(block))?;
        self.skip_forward(of)
    }

    pub(super) fn prev(&mut self, of: Indexed<'_>) -> Result<()> {
        if !of.index.has_partitions {
            return self.on_top(of, |cursor, block| cursor.prev(block));
        }
        self.in_partition(of, |cursor, block| cursor.prev(block))?;
        self.skip_backward(of)
    }

    #[inline]
    fn on_top(&mut self, of: Indexed<'_>, step: impl FnOnce(&mut IndexCursor, &[u8]) -> Step) -> Result<()> {
        let Index { block, offset, .. } = of.index;
        step(&mut self.top, block.bytes()).map_err(|error| of.table.damaged(*offset, DOING, error))
    }

    fn in_partition(&mut self, of: Indexed<'_>, step: impl FnOnce(&mut IndexCursor, &[u8]) -> Step) -> Result<()> {
        let Some((handle, block)) = &self.partition_block else {
            return Ok(());
        };
        step(&mut self.partition, block.bytes()).map_err(|error| of.table.damaged(handle.offset, DOING, error))
    }

    /// Loads the partition that `top` stands on, if there are partitions, and puts the walk where `seek` says.
    fn enter(&mut self, of: Indexed<'_>, seek: impl FnOnce(&mut IndexCursor, &[u8]) -> Step) -> Result<()> {
        self.partition_block = None;
        let Index { block, offset, format, has_partitions, .. } = of.index;
        if !has_partitions || !self.top.valid() {
            return Ok(());
        }
        let handle = self.top.handle(block.bytes()).map_err(|error| of.table.damaged(*offset, DOING, error))?;
        let partition = of.table.block(handle, true)?;
        let layout =
            BlockLayout::parse(partition.bytes()).map_err(|error| of.table.damaged(handle.offset, DOING, error))?;
        self.partition.reset(layout, *format);
        self.partition_block = Some((handle, partition));
        self.in_partition(of, seek)
    }

    fn skip_forward(&mut self, of: Indexed<'_>) -> Result<()> {
        while self.partition_block.is_some() && !self.partition.valid() {
            self.on_top(of, |cursor, block| cursor.next(block))?;
            self.enter(of, |cursor, block| cursor.seek_to_first(block))?;
        }
        Ok(())
    }

    fn skip_backward(&mut self, of: Indexed<'_>) -> Result<()> {
        while self.partition_block.is_some() && !self.partition.valid() {
            self.on_top(of, |cursor, block| cursor.prev(block))?;
            self.enter(of, |cursor, block| cursor.seek_to_last(block))?;
        }
        Ok(())
    }
}

impl Table {
    /// At most `count` user keys from the index, evenly spread over the table; ascending.
    pub(crate) fn separators(&self, count: usize) -> Vec<Vec<u8>> {
        // What cannot be read is told to whoever searches it.
        let Ok(resident) = self.resident() else { return Vec::new() };
        let Index { block, layout, format, .. } = &resident.index;
        let cursor = IndexCursor::new(*layout, *format);
        let restarts = layout.restart_count();
        let count = count.min(restarts);
        let places = (1..=count).map(|nth| nth * restarts / (count + 1));
        places.filter_map(|at| cursor.restart_user_key(block.bytes(), at).ok()).map(<[u8]>::to_vec).collect()
    }
}

type Step = std::result::Result<(), esker_format::DecodeError>;
