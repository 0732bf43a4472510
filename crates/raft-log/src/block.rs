//! A batch as it is read back: checked as a whole, and unpacked as far as its entries are wanted, once for all of them.
//!
//! [`blocks`](crate::blocks) says which are kept.
//!
//! Cost: what is packed is copied, entries and items, so that reading it again looks at one piece of memory and not at the file.

use std::borrow::Cow;
use std::hint;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use esker_env::os::{prefetch_all, prefetch_lines};
use esker_format::DecodeError;
use esker_format::raft::entries::{self, Packing};
use esker_format::raft::item::{Action, Entries, ItemPlace, Items};
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES, checked};

use crate::queue::{Bytes, LogFile};
use crate::{Error, Result};

/// So much of the next batch is asked for: what comes later the processor asks for by itself.
const EXPECTED_BYTES_MAX: u64 = 16 << 10;
/// What a block weighs beside its bytes: itself, and its place in the cache.
const BLOCK_BYTES_MIN: usize = 256;
/// The shortest item: group, kind, command.
const ITEM_BYTES_MIN: usize = 3;

/// One batch.
#[derive(Debug)]
pub(crate) struct Block {
    file: Arc<LogFile>,
    offset: u64,
    contents: Contents,
}

/// A batch of its own memory, which was read from that place of that file.
#[derive(Debug)]
pub(crate) struct Last {
    file: u64,
    offset: u64,
    contents: Contents,
}

impl Last {
    pub(crate) fn is(&self, file: &LogFile, offset: u64) -> bool {
        (self.file, self.offset) == (file.number, offset)
    }

    /// That batch, with its file.
    pub(crate) fn again(self, file: &Arc<LogFile>) -> Block {
        Block { file: Arc::clone(file), offset: self.offset, contents: self.contents }
    }
}

/// How a packed batch is to be read.
#[derive(Debug, Default)]
pub(crate) struct How {
    /// Into the memory of this one.
    pub(crate) spare: Option<Last>,
    /// Only as far as this run needs. All of it, if there is none.
    pub(crate) wanted: Option<RunKey>,
}

/// What is in a batch.
#[derive(Debug)]
struct Contents {
    /// Where its items begin in the file, for messages.
    items_offset: u64,
    bytes: Bytes,
    /// Where in `bytes` the entries lie, as far as they are unpacked.
    entries: Range<usize>,
    /// Where in `bytes` the items lie.
    items: Range<usize>,
    /// The items with entries, by group and first index, and in their order.
    index: Vec<Indexed>,
    /// Where those lie that have several.
    places: Vec<ItemPlace>,
}

/// An item with entries: half a cache line.
#[derive(Debug)]
struct Indexed {
    group: u64,
    first: u64,
    /// Where its entries lie together.
    entries: Range<u32>,
    /// Where each of them ends is said at this of the block's places, if there are several.
    several: Option<NonZeroU32>,
}

/// A group, and the index of the first entry that a batch has of it.
pub(crate) type RunKey = (u64, u64);

/// Where entries lie that were found.
#[derive(Debug, Clone)]
pub(crate) enum Found<'a> {
    One(Range<u32>),
    Several(Entries<'a>),
}

impl<'a> Found<'a> {
    /// Each of them, in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let (one, several) = match self {
            Self::One(range) => (Some(range), None),
            Self::Several(entries) => (None, Some(entries.ranges())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

impl Default for Contents {
    fn default() -> Self {
        let (index, places) = (Vec::new(), Vec::new());
        Self { items_offset: 0, bytes: Bytes::Owned(Vec::new()), entries: 0..0, items: 0..0, index, places }
    }
}

impl Contents {
    /// The items, which were checked.
    fn raw_items(&self) -> &[u8] {
        self.bytes.as_slice().get(self.items.clone()).unwrap_or_default()
    }

    /// Makes the index of these items, which speak of so many bytes of entries at most: those with entries, sorted, and the places of those with several.
    fn sort(&mut self, raw: &[u8], entries_bytes: usize) -> std::result::Result<(), DecodeError> {
        self.index.clear();
        self.places.clear();
        let mut items = Items::new(raw)?;
        // Mostly every other item puts a key.
        let expected = usize::try_from(items.left()).unwrap_or(usize::MAX).min(raw.len() / ITEM_BYTES_MIN);
        self.index.reserve_exact(expected.div_ceil(2));
        loop {
            let place = items.place();
            let Some(item) = items.read()? else { break };
            if let Action::Entries(entries) = item.action
                && entries.count > 0
            {
                let mut several = None;
                if entries.count > 1 {
                    self.places.push(place);
                    several = u32::try_from(self.places.len()).ok().and_then(NonZeroU32::new);
                }
                let (first, entries) = (entries.first_index, entries.start..entries.end);
                self.index.push(Indexed { group: item.group, first, entries, several });
            }
        }
        // The header has no checksum: packed entries may pass for plain ones, which are more.
        if items.entries_end() as usize > entries_bytes {
            let reason = format!("end at {}, there are {entries_bytes} bytes", items.entries_end());
            return Err(DecodeError::corrupt("entries", 0, reason));
        }
        // Mostly they are.
        self.index.sort_by_key(|item| (item.group, item.first));
        Ok(())
    }

    /// The last item of a group with entries from this one on, since each replaces those before it.
    fn indexed(&self, (group, first): RunKey) -> Option<&Indexed> {
        let behind = self.index.partition_point(|item| (item.group, item.first) <= (group, first));
        let last = behind.checked_sub(1).and_then(|at| self.index.get(at));
        last.filter(|item| (item.group, item.first) == (group, first))
    }
}

impl Block {
    /// Reads, checks and unpacks the batch at `offset` of `file`; if it is packed, as `how` says, which hears whether it lies in memory.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub(crate) fn read(file: Arc<LogFile>, offset: u64, how: impl FnOnce(bool) -> How) -> Result<Self> {
        let decode =
            |base: u64, error| Error::decode(&file.path, offset.saturating_add(base), "reading a batch", error);
        let (header, bytes) = file.read_behind(offset, |head: &[u8; HEADER_BYTES]| {
            let header = BatchHeader::decode(head).map_err(|error| decode(0, error))?;
            Ok((header.len, header))
        })?;
        let part = |range: Range<u64>| bytes.get(range.start as usize..range.end as usize).unwrap_or_default();
        let items =
            checked("items", part(header.items()), file.salt()).map_err(|error| decode(header.items_offset, error))?;
        let stored = match header.entries() {
            none if none.is_empty() => &[],
            range => checked("entries", part(range), 0).map_err(|error| decode(HEADER_BYTES as u64, error))?,
        };
        let mut contents = Contents { items_offset: offset.saturating_add(header.items_offset), ..Contents::default() };
        match header.packing {
            Packing::None => {
                let items_at = header.items_offset as usize;
                contents.sort(items, stored.len()).map_err(|error| decode(header.items_offset, error))?;
                contents.entries = HEADER_BYTES..HEADER_BYTES + stored.len();
                contents.items = items_at..items_at + items.len();
                contents.bytes = match bytes {
                    Cow::Borrowed(_) => file.read(offset..offset.saturating_add(header.len))?,
                    Cow::Owned(bytes) => Bytes::Owned(bytes),
                };
            }
            Packing::Lz4 => {
                let at = |error| decode(HEADER_BYTES as u64, error);
                let entries_bytes = entries::raw_bytes(stored).map_err(at)?;
                let all = entries_bytes.saturating_add(items.len());
                let How { spare, wanted } = how(matches!(bytes, Cow::Borrowed(_)));
                let mut own = Vec::new();
                if let Some(Contents { bytes: Bytes::Owned(bytes), index, places, .. }) =
                    spare.map(|last| last.contents)
                {
                    (own, contents.index, contents.places) = (bytes, index, places);
                }
                contents.sort(items, entries_bytes).map_err(|error| decode(header.items_offset, error))?;
                if own.capacity() < all {
                    // Of much memory, what is not used costs nothing.
                    own = vec![0; all];
                } else {
                    // What is there already need not be zeroed.
                    own.resize(all, 0);
                }
                let (unpacked, behind) = own.split_at_mut(entries_bytes);
                behind.copy_from_slice(items);
                let wanted = wanted.and_then(|run| contents.indexed(run)).map(|item| item.entries.end as usize);
                let count = match wanted.filter(|end| *end < entries_bytes) {
                    Some(end) => entries::unpack_front(stored, unpacked, end).map_err(at)?,
                    None => entries::unpack_into(stored, unpacked).map(|()| entries_bytes).map_err(at)?,
                };
                contents.entries = 0..count;
                contents.items = entries_bytes..all;
                contents.bytes = Bytes::Owned(own);
            }
        }
        Ok(Self { file, offset, contents })
    }

    /// Whether it is still what was checked.
    pub(crate) fn is_sound(&self) -> bool {
        self.file.has_still(&self.contents.bytes)
    }

    /// Whether all of a run is unpacked that it has.
    pub(crate) fn reaches(&self, run: RunKey) -> bool {
        self.contents.indexed(run).is_none_or(|item| item.entries.end as usize <= self.contents.entries.len())
    }

    /// Says that [`expect`](Self::expect) will come for this batch.
    pub(crate) fn expect_header(file: &LogFile, offset: u64) {
        let header = file.in_memory(offset..offset.saturating_add(HEADER_BYTES as u64));
        header.into_iter().for_each(prefetch_lines::<1, _>);
    }

    /// Says that the batch at `offset` of `file` will be read next.
    pub(crate) fn expect(file: &LogFile, offset: u64) {
        let header = file.in_memory(offset..offset.saturating_add(HEADER_BYTES as u64));
        let Some(Ok(header)) = header.and_then(<[u8]>::first_chunk).map(BatchHeader::decode) else { return };
        let end = offset.saturating_add(header.len.min(EXPECTED_BYTES_MAX));
        file.in_memory(offset..end).into_iter().for_each(prefetch_all);
    }

    /// What of it can be kept without its file: nothing of what lies there, nor more than `bytes_max`, its index included.
    pub(crate) fn into_last(self, bytes_max: usize) -> Option<Last> {
        let is_kept = matches!(&self.contents.bytes, Bytes::Owned(_)) && self.memory_bytes() <= bytes_max;
        is_kept.then_some(Last { file: self.file.number, offset: self.offset, contents: self.contents })
    }

    fn damaged(&self, error: DecodeError) -> Error {
        Error::decode(&self.file.path, self.contents.items_offset, "reading a batch's items", error)
    }

    /// Where the entries of `group` from `first` on lie.
    pub(crate) fn find(&self, group: u64, first: u64) -> Result<Found<'_>> {
        let none = || self.file.corruption(self.offset, format!("no entries of group {group} from {first} on"));
        let item = self.contents.indexed((group, first)).ok_or_else(none)?;
        let Some(number) = item.several else { return Ok(Found::One(item.entries.clone())) };
        let place = self.contents.places.get(number.get() as usize - 1).ok_or_else(none)?;
        let item = Items::at(self.contents.raw_items(), *place).read().map_err(|error| self.damaged(error))?;
        match item.map(|item| item.action) {
            Some(Action::Entries(entries)) => Ok(Found::Several(entries)),
            _ => Err(none()),
        }
    }

    /// Touches what [`find`](Self::find) will look at first, so that the processor fetches it beside what else it waits for.
    pub(crate) fn touch_index(&self) {
        hint::black_box(self.contents.index.get(self.contents.index.len() / 2).map(|item| item.group));
    }

    /// The same for the first of the entries that were found.
    pub(crate) fn touch_entry(&self, found: &Found<'_>) {
        if let Found::One(range) = found {
            let start = self.contents.entries.start.saturating_add(range.start as usize);
            hint::black_box(self.contents.bytes.as_slice().get(start));
        }
    }

    /// The bytes of an entry.
    pub(crate) fn entry(&self, range: Range<u32>) -> Result<&[u8]> {
        let entries = self.contents.bytes.as_slice().get(self.contents.entries.clone()).unwrap_or_default();
        entries
            .get(range.start as usize..range.end as usize)
            .ok_or_else(|| self.file.corruption(self.offset, format!("the entries end before byte {}", range.end)))
    }

    /// Memory of its own that it may take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let own = if let Bytes::Owned(bytes) = &self.contents.bytes { bytes.capacity() } else { 0 };
        BLOCK_BYTES_MIN
            + own
            + self.contents.index.capacity() * size_of::<Indexed>()
            + self.contents.places.capacity() * size_of::<ItemPlace>()
    }
}

#[cfg(test)]
mod tests {
    use esker_env::sim::SimDisk;

    use super::{Block, HEADER_BYTES, How};
    use crate::group::Place;
    use crate::{LogBatch, Options, RaftLog};

    /// Of two items with entries from one index on, the later counts; other groups and indexes are told apart.
    #[test]
    fn the_last_item_of_a_group_and_index_is_found() {
        for compress_from_bytes in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let log = RaftLog::open(dir.path(), Options { compress_from_bytes, ..Options::default() }).unwrap();
            let mut batch = LogBatch::new();
            batch.add_entries(7, 10, [[1; 3], [2; 3]]).unwrap();
            batch.put(7, b"key", b"value").unwrap();
            batch.add_entries(7, 10, [[3; 3]]).unwrap();
            batch.add_entries(8, 10, [[4; 30], [5; 30]]).unwrap();
            log.write(&mut batch, false).unwrap();
            let file = log.store.append.file(1).unwrap();
            let place = Place { file: file.id, offset: log.store.append.shape.header.len_bytes() as u64 };
            let block = Block::read(file, place.offset, |_| How::default()).unwrap();
            let found = |group, first| block.find(group, first).map(|found| found.ranges().collect::<Vec<_>>());
            assert_eq!(found(7, 10).unwrap(), std::slice::from_ref(&(6..9)));
            assert_eq!(found(8, 10).unwrap(), [9..39, 39..69]);
            assert!(found(7, 11).is_err() && found(9, 10).is_err());
        }
    }

    /// Goal: no bit of a batch's header, which has no checksum, is flipped without whoever reads its entries being told.
    #[test]
    fn a_flipped_bit_of_a_header_is_no_other_entry() {
        for compress_from_bytes in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { compress_from_bytes, cache_bytes: 0, ..Options::default() };
            let log = RaftLog::open(dir.path(), options).unwrap();
            let mut batch = LogBatch::new();
            // The first lies, where packed entries are taken for plain ones, within those.
            let written = [vec![1; 4], vec![2; 200], vec![3; 200]];
            batch.add_entries(7, 1, &written).unwrap();
            log.write(&mut batch, false).unwrap();
            let file = log.store.append.file(1).unwrap();
            let offset = log.store.append.shape.header.len_bytes() as u64;
            let header = std::fs::read(&file.path).unwrap()[offset as usize..][..HEADER_BYTES].to_vec();
            // In place, behind the log's back.
            let disk = std::fs::OpenOptions::new().write(true).open(&file.path).unwrap();
            let write = |bytes: &[u8]| std::os::unix::fs::FileExt::write_all_at(&disk, bytes, offset).unwrap();
            for bit in 0..HEADER_BYTES * 8 {
                let mut flipped = header.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                write(&flipped);
                // Another thread has read nothing yet.
                let read = || (1..=3).map(|index| log.entry(7, index)).collect::<Vec<_>>();
                let read = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
                for (read, written) in read.iter().zip(&written) {
                    assert!(read.as_ref().map_or(true, |read| read.as_ref() == Some(written)), "bit {bit}: {read:?}");
                }
                assert!(read.iter().any(Result::is_err), "bit {bit} is noticed");
            }
            write(&header);
        }
    }

    /// Goal: what is in no memory costs one call of the system while it is short, and two if not.
    #[test]
    fn a_short_batch_is_read_at_once() {
        for compress_from_bytes in [0, 1] {
            let disk = SimDisk::new();
            let options = Options { compress_from_bytes, cache_bytes: 0, ..Options::default() };
            let log = RaftLog::open_with_env("/log", options, disk.env()).unwrap();
            let mut random = fastrand::Rng::with_seed(7);
            // Around what is read at first, but for what else is in a batch.
            let lens = [100, 0, 4_000, 4_045, 4_046, 4_047, 4_048, 4_049, 4_050, 4_051, 4_052, 4_060, 50_000, 10];
            let entries = lens.map(|len| (0..len).map(|_| random.u8(..)).collect::<Vec<_>>());
            let mut batch = LogBatch::new();
            for (entry, index) in entries.iter().zip(1..) {
                batch.add_entries(1, index, [entry]).unwrap();
                log.write(&mut batch, false).unwrap();
            }
            // The file is opened.
            log.entry(1, 1).unwrap();
            for (entry, index) in entries.iter().zip(1..) {
                let before = disk.read_count();
                assert_eq!(log.entry(1, index).unwrap().as_ref(), Some(entry));
                let calls = disk.read_count() - before;
                match entry.len() {
                    0..=4_000 => assert!(calls <= 1, "{calls} for {}", entry.len()),
                    4_060.. => assert!(calls <= 2, "{calls} for {}", entry.len()),
                    _ => {}
                }
            }
        }
    }
}
