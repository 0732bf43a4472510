//! Which level a table goes to that comes from outside: the deepest that it fits into (N3). Pure, but for the look into tables
//! whose range meets that of the newcomer, though perhaps none of their keys does.

use std::collections::HashMap;

use esker_format::rocksdb::internal_key::{self, FileNumber, SequenceNumber};
use esker_format::rocksdb::order::Order;

use super::Newcomer;
use crate::Result;
use crate::compaction::Levels;
use crate::family::View;
use crate::iterate::InternalIterator;
use crate::options::FamilyOptions;
use crate::version::{TableFile, Version};

/// Keys that a compaction in progress will write into a level; both ends inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writing {
    pub(crate) level: usize,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

impl Writing {
    /// Whether it may write something between these keys into `level`, below level 0.
    pub(crate) fn meets(&self, order: Order, level: usize, begin: &[u8], end: &[u8]) -> bool {
        self.level == level && !order.is_before(end, &self.smallest) && !order.is_before(&self.largest, begin)
    }
}

/// Whether tables hold keys of the ranges of newcomers, by the newcomer's place in its call and the table's number: looked up
/// once, so that nothing has to be read while writers wait.
pub(super) type Known = HashMap<(usize, FileNumber), bool>;

/// Newcomers that have their level, by their smallest keys. Below level 0 they lie side by side, as tables do.
#[derive(Debug, Default, Clone)]
struct Placed<'a> {
    /// First and last keys.
    keys: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Placed<'a> {
    fn add(&mut self, order: Order, newcomer: &'a Newcomer) {
        let (smallest, largest) = (newcomer.smallest(), newcomer.largest());
        let at = self.keys.partition_point(|(known, _)| order.is_before(known, smallest));
        match self.keys.get_mut(at) {
            Some(known) if known.0 == smallest => known.1 = order.later(known.1, largest),
            _ => self.keys.insert(at, (smallest, largest)),
        }
    }

    /// Whether one of them has keys of the range, both ends inclusive.
    fn meets(&self, order: Order, level: usize, begin: &[u8], end: &[u8]) -> bool {
        let before = self.keys.partition_point(|(smallest, _)| !order.is_before(end, smallest));
        let looked_at = if level == 0 { usize::MAX } else { 1 };
        self.keys.iter().take(before).rev().take(looked_at).any(|(_, largest)| !order.is_before(largest, begin))
    }
}

/// The levels of `newcomers`, in their order: a later one is newer.
pub(super) fn levels(
    version: &Version,
    options: &FamilyOptions,
    writing: &[Writing],
    newcomers: &[Newcomer],
    known: &mut Known,
) -> Result<Vec<usize>> {
    let base = Levels::of(version, options).base;
    let mut levels: Vec<usize> = Vec::with_capacity(newcomers.len());
    let mut placed = vec![Placed::default(); options.level_count.max(1)];
    for (index, newcomer) in newcomers.iter().enumerate() {
        let mut chosen = 0;
        // Levels between 0 and the base stay empty.
        for level in std::iter::once(0).chain(base..options.level_count) {
            let (begin, end) = (newcomer.smallest(), newcomer.largest());
            let overlapping = version.overlapping(level, Some(begin), Some(end));
            let holds_keys = |table: &TableFile, known: &mut Known| match known.get(&(index, table.number())) {
                Some(holds) => Ok(*holds),
                None => holds_keys(table, begin, end).inspect(|holds| {
                    known.insert((index, table.number()), *holds);
                }),
            };
            if placed.get(level).is_some_and(|placed| placed.meets(version.order(), level, begin, end)) {
                break;
            }
            let mut is_covered = false;
            for table in &overlapping {
                is_covered |= holds_keys(table, known)?;
            }
            if is_covered {
                break;
            }
            let is_written = |writing: &Writing| writing.meets(version.order(), level, begin, end);
            if overlapping.is_empty() && !writing.iter().any(is_written) {
                chosen = level;
            }
        }
        levels.push(chosen);
        if let Some(placed) = placed.get_mut(chosen) {
            placed.add(version.order(), newcomer);
        }
    }
    Ok(levels)
}

/// Whether the table has a key of the range, or a range deletion that meets it; both ends inclusive. Cost: one or two blocks.
fn holds_keys(table: &TableFile, begin: &[u8], end: &[u8]) -> Result<bool> {
    let order = table.table.order();
    let is_within = |key: &[u8]| !order.is_before(key, begin) && !order.is_before(end, key);
    if is_within(table.smallest()) || is_within(table.largest()) {
        return Ok(true);
    }
    if table.range_deletions().meets(begin, end) {
        return Ok(true);
    }
    let mut keys = table.table.iter(false);
    first_in_range(order, &mut keys, begin, end)
}

fn first_in_range(order: Order, keys: &mut dyn InternalIterator, begin: &[u8], end: &[u8]) -> Result<bool> {
    keys.seek(&internal_key::lookup(begin, SequenceNumber::MAX))?;
    Ok(keys.valid() && !order.is_before(end, internal_key::user_key(keys.key())))
}

/// Whether a memtable has a key, or a range deletion, of the range of one of `newcomers`.
pub(super) fn is_in_memory<'a>(
    view: &View,
    ranges: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Result<bool> {
    for generation in view.generations() {
        let mut keys = generation.memtable.iter();
        let runs = generation.memtable.range_deletions().seen_by(SequenceNumber::MAX);
        for (smallest, largest) in ranges.clone() {
            if first_in_range(view.version.order(), &mut keys, smallest, largest)?
                || runs.iter().any(|run| run.meets(smallest, largest))
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use esker_env::sim::SimDisk;
    use esker_format::rocksdb::version_edit::TableMeta;

    use super::*;
    use crate::cache::BlockCache;
    use crate::ingest::SstFileWriter;
    use crate::table::Table;

    fn newcomer(disk: &SimDisk, number: u64, keys: [&str; 2]) -> Newcomer {
        let path = PathBuf::from(format!("/{number}.sst"));
        let mut writer = SstFileWriter::create_with_env(&path, &FamilyOptions::default(), disk.env()).unwrap();
        keys.iter().for_each(|key| writer.put(key, "v").unwrap());
        let file_bytes = writer.finish().unwrap().file_bytes;
        let (number, cache) = (FileNumber::new(number), Arc::new(BlockCache::new(0)));
        let table =
            Table::open(disk.env().files.open(&path).unwrap(), file_bytes, &Order::BYTEWISE.into(), cache).unwrap();
        let [smallest, largest] = keys.map(|key| internal_key::lookup(key.as_bytes(), SequenceNumber::new(0)));
        Newcomer { meta: TableMeta { number, file_bytes, smallest, largest, ..TableMeta::default() }, table, path }
    }

    fn levels_of(writing: &[(usize, &str, &str)], keys: &[[&str; 2]]) -> Vec<usize> {
        let disk = SimDisk::new();
        let newcomers: Vec<Newcomer> = (1..).zip(keys).map(|(number, keys)| newcomer(&disk, number, *keys)).collect();
        let writing = writing.iter().map(|&(level, smallest, largest)| Writing {
            level,
            smallest: smallest.into(),
            largest: largest.into(),
        });
        let writing: Vec<Writing> = writing.collect();
        levels(&Version::empty(Order::BYTEWISE), &FamilyOptions::default(), &writing, &newcomers, &mut Known::new())
            .unwrap()
    }

    #[test]
    fn tables_of_a_call_that_meet_lie_above_each_other() {
        assert_eq!(levels_of(&[], &[["a", "c"], ["d", "f"], ["g", "g0"]]), [6, 6, 6]);
        assert_eq!(levels_of(&[], &[["a", "c"], ["c", "f"], ["g", "h"]]), [6, 0, 6]);
        assert_eq!(levels_of(&[], &[["a", "z"], ["c", "d"], ["e", "f"]]), [6, 0, 0]);
        // Not what lies next before it in level 0, but what lies around both.
        assert_eq!(levels_of(&[], &[["a", "b"], ["a", "z"], ["c", "d"], ["x", "y"]]), [6, 0, 0, 0]);
    }

    #[test]
    fn no_table_goes_where_a_compaction_writes() {
        assert_eq!(levels_of(&[(6, "a", "c")], &[["c", "d"], ["e", "f"]]), [0, 6]);
        assert_eq!(levels_of(&[(6, "a", "z")], &[["c", "d"]]), [0]);
        assert_eq!(levels_of(&[(5, "a", "z")], &[["c", "d"]]), [6]);
    }
}
