//! The bytes of one file: the live image, and what of the durable one differs.
//!
//! The durable image is not kept; it is the live one with the old sectors laid over it:
//!
//! - C1: of a sector that begins before `durable_len`, either `old` has the durable content, or the live bytes up to
//!   `durable_len` are the durable ones.
//! - C2: bytes from `durable_len` on have no durable content: zeroes, should the length survive without them.
//! - C3: `lost` ranges were appended, then dropped by a failed sync (D4). Their durable content stays what it was, and what is evicted of
//!   them (D8) is that again, so no longer lost.
//!
//! - C4: from the end of `live` to `file_len`, which preallocation set, the file has zeroes that are kept nowhere,
//!   unless it is recycled: then `beneath` has its earlier life, all of which counts as live where `live` ends. So does what an append
//!   got in that failed and moved no end.
//!
//! So an operation costs what it touches, and a sync what is dirty.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::crash::{Draw, Survivors};
use super::entropy::SeededEntropy;
use crate::{COMMIT_BYTES, PAD_BYTES};

/// What a device writes whole or not at all.
const SECTOR_BYTES: u64 = 512;
/// What a file system hands out.
pub(super) const BLOCK_BYTES: u64 = 4096;

type Sector = [u8; SECTOR_BYTES as usize];
const ZEROES: Sector = [0; SECTOR_BYTES as usize];

/// What a power loss leaves of a file: its first bytes, and how long it is with the zeroes behind them.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) bytes: Vec<u8>,
    pub(super) file_len: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    /// What was appended; zeroes follow up to [`file_len`](Self::file_len).
    live: Vec<u8>,
    /// What the file held before it was recycled, from its start (C4).
    beneath: Vec<u8>,
    is_recycled: bool,
    durable_len: u64,
    /// By index of the sector.
    old: BTreeMap<u64, Sector>,
    /// Bytes from here on were appended since the last sync.
    unsynced_from: u64,
    lost: Vec<Range<u64>>,
    /// How often bytes that were appended have changed for that.
    evictions: u64,
    preallocated: u64,
    /// Blocks given back, by index.
    holes: BTreeSet<u64>,
}

impl Content {
    /// A file with this live and durable content. Blocks of zeroes that `holes` names take up nothing.
    pub(super) fn durable(left: Left, holes: &BTreeSet<u64>) -> Self {
        let Left { bytes: live, file_len } = left;
        let len = live.len() as u64;
        let is_zero = |block: &&u64| {
            let start = block.saturating_mul(BLOCK_BYTES);
            start < len && slice(&live, start, BLOCK_BYTES).iter().all(|&byte| byte == 0)
        };
        let holes = holes.iter().filter(is_zero).copied().collect();
        Self { live, durable_len: file_len, unsynced_from: len, preallocated: file_len, holes, ..Self::default() }
    }

    /// Where the next append goes.
    pub(super) fn len(&self) -> u64 {
        self.live.len() as u64
    }

    /// How long the file is for all who look at it.
    pub(super) fn file_len(&self) -> u64 {
        self.len().max(self.preallocated)
    }

    /// The whole file.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.kept().to_vec();
        bytes.resize(index(self.file_len()), 0);
        bytes
    }

    /// What is kept of the file as all who look at it see it; zeroes follow.
    fn kept(&self) -> Cow<'_, [u8]> {
        match self.beneath.get(self.live.len()..) {
            Some(rest) if !rest.is_empty() => Cow::Owned([&self.live, rest].concat()),
            _ => Cow::Borrowed(&self.live),
        }
    }

    /// Up to `len` bytes of that from `start` on; fewer at the end.
    fn kept_at(&self, start: u64, len: u64) -> Cow<'_, [u8]> {
        let live = slice(&self.live, start, len);
        let end = start.saturating_add(live.len() as u64);
        let rest = slice(&self.beneath, end, len - live.len() as u64);
        if rest.is_empty() || end < self.len() { Cow::Borrowed(live) } else { Cow::Owned([live, rest].concat()) }
    }

    /// Lets appends begin at the start, over what is there.
    pub(super) fn write_over(&mut self) {
        self.preallocated = self.file_len();
        self.beneath = self.to_vec();
        self.is_recycled = true;
        self.live = Vec::new();
        self.unsynced_from = 0;
    }

    /// Of a recycled file, zeroes follow what was appended.
    pub(super) fn mark_end(&mut self) {
        if !self.is_recycled {
            return;
        }
        let range = self.len()..(self.len() + COMMIT_BYTES as u64).min(self.beneath.len() as u64);
        self.keep_old(range.clone());
        if let Some(bytes) = self.beneath.get_mut(index(range.start)..index(range.end)) {
            bytes.fill(0);
        }
    }

    /// Reads what fits into `buffer` from `offset` on; how much there was.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let count = index(self.file_len().saturating_sub(offset)).min(buffer.len());
        let found = self.kept_at(offset, count as u64);
        let buffer = buffer.get_mut(..count).unwrap_or_default();
        buffer.fill(0);
        for (place, byte) in buffer.iter_mut().zip(&*found) {
            *place = *byte;
        }
        count
    }

    /// The file as all who look at it see it, and its holes.
    pub(super) fn hash_live<H: Hasher>(&self, hasher: &mut H) {
        let kept = self.kept();
        let end = kept.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.file_len().hash(hasher);
        hasher.write(slice(&kept, 0, end as u64));
        self.holes.hash(hasher);
    }

    pub(super) fn holes(&self) -> &BTreeSet<u64> {
        &self.holes
    }

    /// Bytes of the device that the file occupies.
    pub(super) fn allocated(&self) -> u64 {
        let blocks = self.file_len().div_ceil(BLOCK_BYTES);
        blocks.saturating_sub(self.holes.len() as u64) * BLOCK_BYTES
    }

    /// Bytes that can be appended within the blocks that the file has.
    pub(super) fn free_tail(&self) -> u64 {
        self.file_len().div_ceil(BLOCK_BYTES) * BLOCK_BYTES - self.len()
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let start = self.len();
        let range = start..start + bytes.len() as u64;
        self.keep_old(range.clone());
        self.lost = self.lost.iter().flat_map(|lost| without(lost, &range)).collect();
        self.live.extend_from_slice(bytes);
        for block in blocks_touched(start..self.len()) {
            if self.holes.is_empty() {
                break;
            }
            self.holes.remove(&block);
        }
    }

    /// An append in which the process dies, so that `kept` of it got in, as far as D7 allows. Of a padded file, a call writes it.
    pub(super) fn append_dying(&mut self, bytes: &[u8], kept: Range<usize>, is_padded: bool) {
        let mut end = kept.end.min(bytes.len());
        let is_copied = !is_padded && self.len() + bytes.len() as u64 <= self.preallocated;
        let start = if is_copied { kept.start.max(COMMIT_BYTES).min(end) } else { 0 };
        if !is_copied && end < bytes.len() {
            let beyond = (self.len() + end as u64) % BLOCK_BYTES;
            end = end.saturating_sub(index(beyond));
        }
        let mut torn = self.kept_at(self.len(), start as u64).into_owned();
        torn.resize(start, 0);
        torn.extend_from_slice(bytes.get(start..end).unwrap_or_default());
        self.append(&torn);
    }

    /// An append that failed, and moved no end: what got in lies behind it, until something goes over it.
    pub(super) fn append_in_vain(&mut self, bytes: &[u8]) {
        let end = self.len() + bytes.len() as u64;
        self.keep_old(self.len()..end);
        self.preallocated = self.preallocated.max(end);
        if self.beneath.len() < index(end) {
            self.beneath.resize(index(end), 0);
        }
        if let Some(place) = self.beneath.get_mut(self.live.len()..index(end)) {
            place.copy_from_slice(bytes);
        }
    }

    /// Lets the next append go behind the zeroes that end the file.
    pub(super) fn append_behind_zeroes(&mut self) {
        self.live = self.to_vec();
        self.beneath = Vec::new();
        self.is_recycled = false;
    }

    /// Makes the file `len` long, which is not longer than it was, and nothing preallocated.
    pub(super) fn truncate(&mut self, len: u64) {
        self.keep_old(len..self.len().max(self.beneath.len() as u64).max(len));
        // Not what was preallocated: it may be large, and goes.
        let kept = match self.kept() {
            Cow::Owned(kept) => Some(kept),
            Cow::Borrowed(_) => None,
        };
        self.live = kept.unwrap_or_else(|| std::mem::take(&mut self.live));
        self.live.resize(index(len), 0);
        (self.beneath, self.is_recycled) = (Vec::new(), false);
        self.unsynced_from = self.unsynced_from.min(len);
        self.preallocated = 0;
        self.holes.split_off(&len.div_ceil(BLOCK_BYTES));
        self.lost.retain_mut(|range| {
            range.end = range.end.min(len);
            !range.is_empty()
        });
    }

    /// Lets zeroes follow what was appended, if `room` is enough for them.
    pub(super) fn pad(&mut self, room: u64) {
        let end = self.len().next_multiple_of(PAD_BYTES);
        if end - self.len() <= self.free_tail().saturating_add(room) {
            self.preallocate(end);
        }
    }

    pub(super) fn preallocate(&mut self, len: u64) {
        self.preallocated = self.preallocated.max(len);
    }

    pub(super) fn punch_hole(&mut self, range: &Range<u64>) {
        let occupied = self.file_len().div_ceil(BLOCK_BYTES);
        let kept = self.len().max(self.beneath.len() as u64);
        // The last block counts as whole even if the file ends within it.
        let end_of_blocks =
            if range.end >= kept { occupied.min(range.end.div_ceil(BLOCK_BYTES)) } else { range.end / BLOCK_BYTES };
        self.holes.extend(range.start.div_ceil(BLOCK_BYTES)..end_of_blocks);
        let zeroed = range.start.min(kept)..range.end.min(kept);
        if zeroed.is_empty() {
            return;
        }
        self.keep_old(zeroed.clone());
        for image in [&mut self.live, &mut self.beneath] {
            let range = index(zeroed.start)..index(zeroed.end).min(image.len());
            if let Some(bytes) = image.get_mut(range) {
                bytes.fill(0);
            }
        }
    }

    /// Makes everything durable but what was lost before.
    pub(super) fn sync(&mut self) {
        let mut old = BTreeMap::new();
        for sector in self.lost.iter().flat_map(|range| sectors(range.clone())) {
            old.insert(sector, self.new_sector(sector));
        }
        self.old = old;
        self.durable_len = self.file_len();
        self.unsynced_from = self.len();
    }

    /// Drops what was appended since the last sync: it stays live, and never becomes durable.
    pub(super) fn fail_sync(&mut self) {
        let dropped = self.unsynced_from..self.len();
        if !dropped.is_empty() {
            self.lost.push(dropped);
        }
        self.unsynced_from = self.len();
    }

    /// Some pages of what failed syncs dropped go from memory, and are what the device has (D8). Whether any did.
    pub(super) fn evict(&mut self, random: &SeededEntropy) -> bool {
        let before = self.evictions;
        let is_dirty = |page: &u64| (page + 1) * BLOCK_BYTES > self.unsynced_from && self.unsynced_from < self.len();
        let pages = self.lost.iter().flat_map(|range| blocks_touched(range.clone())).filter(|page| !is_dirty(page));
        let pages: BTreeSet<u64> = pages.collect();
        let draw = Draw::of(pages.len() as u64, random);
        for (index_of_page, page) in (0..).zip(pages) {
            if !draw.survives(index_of_page, random) {
                self.evict_page(page * BLOCK_BYTES..(page + 1) * BLOCK_BYTES);
            }
        }
        self.evictions > before
    }

    fn evict_page(&mut self, page: Range<u64>) {
        for sector in sectors(page.clone()) {
            let content = if self.is_lost(sector) { self.new_sector(sector) } else { continue };
            for (place, byte) in (sector * SECTOR_BYTES..).zip(content) {
                if let Some(live) = self.live_byte(place) {
                    *live = byte;
                }
            }
        }
        self.lost = self.lost.iter().flat_map(|lost| without(lost, &page)).collect();
        self.evictions += 1;
    }

    /// How often bytes that were appended have changed: by evictions, and by nothing else.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    fn live_byte(&mut self, place: u64) -> Option<&mut u8> {
        let image = if place < self.live.len() as u64 { &mut self.live } else { &mut self.beneath };
        image.get_mut(index(place))
    }

    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let (place, mask) = (bit / 8, 1u8 << (bit % 8));
        let old = self.old.get_mut(&(place / SECTOR_BYTES)).and_then(|old| old.get_mut(index(place % SECTOR_BYTES)));
        let image = if place < self.live.len() as u64 { &mut self.live } else { &mut self.beneath };
        let live = image.get_mut(index(place));
        let found = old.is_some() || live.is_some();
        for byte in old.into_iter().chain(live) {
            *byte ^= mask;
        }
        found
    }

    /// What a power loss leaves.
    pub(super) fn after_power_loss(&self, survivors: Survivors, random: &SeededEntropy) -> Left {
        let file_len = match survivors {
            Survivors::Nothing => self.durable_len,
            Survivors::Everything => self.file_len(),
            Survivors::Sample { .. } => self.sample_len(random),
        };
        let appended = sectors(self.durable_len..self.len().max(self.beneath.len() as u64));
        let dirty: BTreeSet<u64> = self.old.keys().copied().chain(appended).collect();
        let end_of_dirty = dirty.last().map_or(0, |&last| (last + 1).saturating_mul(SECTOR_BYTES));
        // Behind all that there are zeroes in either image (C4).
        let len = file_len.min(self.len().max(self.beneath.len() as u64).max(end_of_dirty));
        let mut left = self.kept().into_owned();
        left.resize(index(len), 0);
        let is_sample = matches!(survivors, Survivors::Sample { .. });
        let draw = Draw::of(dirty.len() as u64, random);
        for (index_of_dirty, sector) in (0..).zip(dirty) {
            let start = sector * SECTOR_BYTES;
            let survives = match survivors {
                Survivors::Nothing => false,
                Survivors::Everything => true,
                // A length that outlived its truncation has the bytes that belong to it.
                Survivors::Sample { .. } => start < self.file_len() && draw.survives(index_of_dirty, random),
            };
            let content = match survives {
                false => self.old_sector(sector),
                // The device may have got to it before the sync failed (S6).
                true if self.is_lost(sector) && is_sample && random.coin() => self.live_sector(sector),
                true => self.new_sector(sector),
            };
            let end = len.min(start + SECTOR_BYTES);
            if let Some(place) = left.get_mut(index(start)..index(end)) {
                place.copy_from_slice(slice(&content, 0, end - start));
            }
        }
        Left { bytes: left, file_len }
    }

    fn sample_len(&self, random: &SeededEntropy) -> u64 {
        let (low, high) = (self.durable_len.min(self.file_len()), self.durable_len.max(self.file_len()));
        if low == high {
            return low;
        }
        let first = low / SECTOR_BYTES + 1;
        let between = high.div_ceil(SECTOR_BYTES).saturating_sub(first);
        match random.below(3) {
            0 => self.durable_len,
            2 if between > 0 => (first + random.below(between)) * SECTOR_BYTES,
            _ => self.file_len(),
        }
    }

    /// Remembers the durable content of every sector that `range` touches (C1).
    fn keep_old(&mut self, range: Range<u64>) {
        for sector in sectors(range.start..range.end.min(self.durable_len)) {
            let content = self.old_sector(sector);
            self.old.entry(sector).or_insert(content);
        }
    }

    /// The durable content of a sector (C1, C2).
    fn old_sector(&self, sector: u64) -> Sector {
        let start = sector * SECTOR_BYTES;
        let durable = self.durable_len.saturating_sub(start).min(SECTOR_BYTES);
        self.old.get(&sector).copied().unwrap_or_else(|| padded(&self.kept_at(start, durable)))
    }

    fn live_sector(&self, sector: u64) -> Sector {
        padded(&self.kept_at(sector * SECTOR_BYTES, SECTOR_BYTES))
    }

    /// Whether a failed sync dropped any of a sector.
    fn is_lost(&self, sector: u64) -> bool {
        self.lost.iter().any(|range| sectors(range.clone()).contains(&sector))
    }

    /// What a sync makes the durable content of a sector: the live one, but for what was lost.
    fn new_sector(&self, sector: u64) -> Sector {
        let start = sector * SECTOR_BYTES;
        let mut content = self.live_sector(sector);
        if !self.lost.is_empty() {
            let old = self.old_sector(sector);
            for (place, (byte, old)) in (start..).zip(content.iter_mut().zip(old)) {
                if self.lost.iter().any(|range| range.contains(&place)) {
                    *byte = old;
                }
            }
        }
        content
    }
}

/// What is left of `range` without `taken`.
fn without(range: &Range<u64>, taken: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..range.end.min(taken.start);
    let behind = range.start.max(taken.end)..range.end;
    [before, behind].into_iter().filter(|part| !part.is_empty())
}

/// A place in a `Vec`; what does not fit lies behind every end.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Up to `len` bytes from `start` on; fewer at the end.
pub(super) fn slice(bytes: &[u8], start: u64, len: u64) -> &[u8] {
    let rest = bytes.get(index(start)..).unwrap_or_default();
    rest.get(..index(len)).unwrap_or(rest)
}

fn padded(bytes: &[u8]) -> Sector {
    let mut sector = ZEROES;
    for (place, byte) in sector.iter_mut().zip(bytes) {
        *place = *byte;
    }
    sector
}

fn sectors(range: Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES) }
}

fn blocks_touched(range: Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) }
}
