//! A batch as it is read back: its entries, unpacked and checked once, however many of them are wanted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_name::FileId;
use esker_format::raft::item::{Action, Entries, ItemPlace, Items};
use esker_format::raft::log_batch::{BatchHeader, HEADER_BYTES, checked};
use parking_lot::Mutex;

use crate::group::Place;
use crate::queue::{Bytes, LogFile};
use crate::{Error, Result};

/// Batches that are kept at hand; whoever reads one entry after the other finds the last one here.
const CACHE_SLOTS: usize = 32;
/// Batches longer than this are not kept.
const CACHED_BYTES_MAX: usize = 1 << 20;

/// One batch.
#[derive(Debug)]
pub(crate) struct Block {
    file: Arc<LogFile>,
    offset: u64,
    header: BatchHeader,
    /// The whole batch, as it lies in the file.
    bytes: Bytes,
    /// The entries, if they are packed.
    unpacked: Vec<u8>,
    /// Whether something was looked for here before: then it pays to sort the items.
    searched: AtomicBool,
    /// The items with entries, by group and first index, and in their order.
    sorted: OnceLock<Vec<(u64, u64, ItemPlace)>>,
}

impl Block {
    /// Reads and checks the batch at `offset` of `file`.
    ///
    /// # Errors
    /// `Corruption` if it is not one.
    pub(crate) fn read(file: Arc<LogFile>, offset: u64) -> Result<Self> {
        let raw = file.read(offset..offset.saturating_add(HEADER_BYTES as u64))?;
        let Some(head) = raw.as_slice().first_chunk() else {
            return Err(file.corruption(offset, "a batch ends within its header"));
        };
        let decode = |base: u64, error| Error::decode(&file.path, base, "reading a batch", error);
        let header = BatchHeader::decode(head).map_err(|error| decode(offset, error))?;
        let bytes = file.read(offset..offset.saturating_add(header.len))?;
        let mut block = Self {
            file: Arc::clone(&file),
            offset,
            header,
            bytes,
            unpacked: Vec::new(),
            searched: AtomicBool::new(false),
            sorted: OnceLock::new(),
        };
        checked("items", block.part(header.items()), file.salt())
            .map_err(|error| decode(offset.saturating_add(header.items_offset), error))?;
        let at = offset.saturating_add(HEADER_BYTES as u64);
        if !header.entries().is_empty() {
            let packed = checked("entries", block.part(header.entries()), 0).map_err(|error| decode(at, error))?;
            if header.packing == Packing::Lz4 {
                let mut unpacked = Vec::new();
                entries::unpack(packed, &mut unpacked).map_err(|error| decode(at, error))?;
                block.unpacked = unpacked;
            }
        }
        Ok(block)
    }

    fn part(&self, range: std::ops::Range<u64>) -> &[u8] {
        self.bytes.as_slice().get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// The bytes of all entries.
    pub(crate) fn entries(&self) -> &[u8] {
        if self.header.packing == Packing::Lz4 {
            return &self.unpacked;
        }
        let plain = self.part(self.header.entries());
        plain.split_last_chunk::<4>().map_or(&[], |(plain, _)| plain)
    }

    fn damaged(&self, error: esker_format::DecodeError) -> Error {
        let base = self.offset.saturating_add(self.header.items_offset);
        Error::decode(&self.file.path, base, "reading a batch", error)
    }

    fn raw_items(&self) -> &[u8] {
        self.part(self.header.items()).split_last_chunk::<4>().map_or(&[][..], |(items, _)| items)
    }

    /// Shows every item with entries.
    fn scan(&self, mut show: impl FnMut(u64, ItemPlace, Entries<'_>)) -> Result<()> {
        let mut items = Items::new(self.raw_items()).map_err(|error| self.damaged(error))?;
        loop {
            let place = items.place();
            let Some(item) = items.read().map_err(|error| self.damaged(error))? else { return Ok(()) };
            if let Action::Entries(entries) = item.action
                && entries.count > 0
            {
                show(item.group, place, entries);
            }
        }
    }

    /// Where the item of `group` with entries from `first` on is: the last of them, since each replaces those before it.
    fn place_of(&self, group: u64, first: u64) -> Result<Option<ItemPlace>> {
        if self.searched.swap(true, Ordering::Relaxed) {
            if self.sorted.get().is_none() {
                let mut sorted = Vec::new();
                self.scan(|group, place, entries| sorted.push((group, entries.first_index, place)))?;
                sorted.sort_by_key(|(group, first, _)| (*group, *first));
                let _ = self.sorted.set(sorted);
            }
            let sorted = self.sorted.get().map_or(&[][..], Vec::as_slice);
            let behind = sorted.partition_point(|(other, index, _)| (*other, *index) <= (group, first));
            let found = behind.checked_sub(1).and_then(|at| sorted.get(at));
            return Ok(found.filter(|(other, index, _)| (*other, *index) == (group, first)).map(|found| found.2));
        }
        let mut found = None;
        self.scan(|other, place, entries| {
            if (other, entries.first_index) == (group, first) {
                found = Some(place);
            }
        })?;
        Ok(found)
    }

    /// The entries of `group` from `first` on.
    pub(crate) fn find(&self, group: u64, first: u64) -> Result<Entries<'_>> {
        if let Some(place) = self.place_of(group, first)?
            && let Some(item) = Items::at(self.raw_items(), place).read().map_err(|error| self.damaged(error))?
            && let Action::Entries(entries) = item.action
        {
            return Ok(entries);
        }
        Err(self.file.corruption(self.offset, format!("no entries of group {group} from {first} on")))
    }

    /// The bytes of an entry.
    pub(crate) fn entry(&self, range: std::ops::Range<u32>) -> Result<&[u8]> {
        self.entries()
            .get(range.start as usize..range.end as usize)
            .ok_or_else(|| self.file.corruption(self.offset, format!("the entries end before byte {}", range.end)))
    }

    fn is_at(&self, place: Place) -> bool {
        self.file.id == place.file && self.offset == place.offset
    }

    fn memory_bytes(&self) -> usize {
        let copied = if let Bytes::Owned(bytes) = &self.bytes { bytes.len() } else { 0 };
        // Sorted items take as much as the items themselves, about.
        self.unpacked.len() + copied + self.raw_items().len()
    }
}

/// The batches read last, each in the slot that its place says.
#[derive(Debug)]
pub(crate) struct Blocks {
    slots: [Mutex<Option<Arc<Block>>>; CACHE_SLOTS],
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self { slots: std::array::from_fn(|_| Mutex::new(None)) }
    }

    fn slot(&self, place: Place) -> &Mutex<Option<Arc<Block>>> {
        let mixed = (place.offset ^ place.file.sequence << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.slots.get(mixed as usize % CACHE_SLOTS).unwrap_or(&self.slots[0])
    }

    /// The batch at `place`, which lies in `file`.
    pub(crate) fn read(&self, file: Arc<LogFile>, place: Place) -> Result<Arc<Block>> {
        let slot = self.slot(place);
        if let Some(block) = &*slot.lock()
            && block.is_at(place)
        {
            return Ok(Arc::clone(block));
        }
        let block = Arc::new(Block::read(file, place.offset)?);
        if block.memory_bytes() <= CACHED_BYTES_MAX {
            *slot.lock() = Some(Arc::clone(&block));
        }
        Ok(block)
    }

    /// Lets go of the files of one queue before `file`.
    pub(crate) fn forget_before(&self, file: FileId) {
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.as_ref().is_some_and(|block| block.file.id.queue == file.queue && block.file.id < file) {
                *slot = None;
            }
        }
    }
}
