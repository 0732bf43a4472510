//! A batch as it is read back: its entries, unpacked and checked once, however many of them are wanted.

use std::sync::Arc;

use esker_format::raft::entries::{self, Packing};
use esker_format::raft::file_name::FileId;
use esker_format::raft::item::{Action, Entries, Items};
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
        let mut block = Self { file: Arc::clone(&file), offset, header, bytes, unpacked: Vec::new() };
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

    pub(crate) fn items(&self) -> Result<Items<'_>> {
        let raw = self.part(self.header.items());
        let raw = raw.split_last_chunk::<4>().map_or(&[][..], |(items, _)| items);
        Items::new(raw).map_err(|error| self.damaged(error))
    }

    fn damaged(&self, error: esker_format::DecodeError) -> Error {
        let base = self.offset.saturating_add(self.header.items_offset);
        Error::decode(&self.file.path, base, "reading a batch", error)
    }

    /// The item of `group` with entries from `first` on: the last of them, since each replaces those before it.
    pub(crate) fn find(&self, group: u64, first: u64) -> Result<Entries<'_>> {
        let mut items = self.items()?;
        let mut found = None;
        while let Some(item) = items.read().map_err(|error| self.damaged(error))? {
            if item.group == group
                && let Action::Entries(entries) = item.action
                && entries.count > 0
                && entries.first_index == first
            {
                found = Some(entries);
            }
        }
        found.ok_or_else(|| self.file.corruption(self.offset, format!("no entries of group {group} from {first} on")))
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
        self.unpacked.len() + copied
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
