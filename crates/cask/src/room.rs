//! Room on the disk: what writers leave for deletions, and for merges.
//!
//! - D1: a file for what adds is begun where the disk has room for it and for another: so much a merge takes at most, by which the space of what is
//!   deleted comes back. Its blocks are taken at once, so what is written to it takes nothing from that. Nor do hints.
//! - D2: what deletes has short files then, beside that room or in the reserve ([`esker_log::reserve`]), but no more of them than that has: it would take
//!   what merges need to give anything back. So do manifests: files of which nothing lives go.
//! - D3: while the reserve is gone, nothing is added (its R2).
//!
//! Cost: a call of the system or two for each file that is begun, one atomic read for each write.

use std::path::Path;
use std::sync::Arc;

use esker_env::FileSystem;
use esker_format::cask::FileName;
use esker_log::reserve::Reserve;

use crate::reclaim::ROOM_BYTES_KEPT;
use crate::store::Store;
use crate::{Error, Result};

/// The least that a file is made for, unless the options say less, or the disk is small.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// A file has this part of the disk at most, or so much.
const DISK_PART: u64 = 16;
const DISK_PART_MIN: u64 = 64 << 10;
/// Of a file, so much is kept for deletions: of values of 1 KiB, those of a whole file.
const FIRST_PART: u64 = 16;
const FIRST_BYTES_MAX: u64 = 4 << 20;
/// Of a file, so much is kept for what gives their space back: manifests.
const LAST_PART: u64 = 128;
const LAST_BYTES_MAX: u64 = 1 << 20;
/// A file that is begun for deletions alone has this part of what is kept for them.
const SHORT_PART: u64 = 8;
const SHORT_BYTES_MIN: u64 = 8 << 10;

impl Store {
    /// Whether what adds may be written.
    #[inline]
    pub(crate) fn may_add(&self) -> Result<()> {
        if self.reserve.is_whole() { Ok(()) } else { self.reserve.restore() }
    }

    /// How long the next file of a stripe may get: a stripe's share of what there is. So the files that are written take no more than that
    /// again, and nor do those that stand ready to follow them.
    pub(crate) fn file_room(&self) -> u64 {
        let bytes: u64 = self.files.load().iter().map(|file| file.end()).sum();
        let disk = self.env.files.space(&self.dir).map_or(u64::MAX, |space| space.total);
        let most = self.options.file_bytes.min((disk / DISK_PART).max(DISK_PART_MIN));
        (bytes / self.options.stripes as u64).clamp(FILE_BYTES_MIN.min(most), most)
    }

    /// How long a file may get that is begun for `bytes`, some of which add something.
    ///
    /// # Errors
    /// `Exhausted` if it would take what is left for merges (D1).
    pub(crate) fn room_to_add(&self, bytes: u64) -> Result<u64> {
        let room = self.file_room();
        if self.leaves_merges_room(room.max(bytes)) { Ok(room) } else { Err(self.no_room("values")) }
    }

    /// The same for deletions alone. The reserve may have gone for it.
    ///
    /// # Errors
    /// `Exhausted` if deletions have taken all of that (D2).
    pub(crate) fn room_to_delete(&self, bytes: u64) -> Result<u64> {
        if let Ok(room) = self.room_to_add(bytes) {
            return Ok(room);
        }
        let room = (self.reserve.first_bytes() / SHORT_PART).max(SHORT_BYTES_MIN).min(self.options.file_bytes);
        if self.leaves_merges_room(room.max(bytes)) {
            return Ok(room);
        }
        if self.reserve.spend(room.max(bytes)) { Ok(room) } else { Err(self.no_room("deletions")) }
    }

    /// Whether a merge has room beside `bytes` more; if the system does not say, it has.
    pub(crate) fn leaves_merges_room(&self, bytes: u64) -> bool {
        leaves(&*self.env.files, &self.dir, self.file_room(), bytes)
    }

    fn no_room(&self, what: &str) -> Error {
        let reason = format!(
            "the disk is full: what is left is for merges, and no more {what} are taken before these have given something back; delete something, \
             compact the store, or free space on the disk"
        );
        Error::no_room(reason).with_path(&self.dir)
    }
}

/// What a store in `dir` keeps for deletions, and for what gives their space back.
pub(crate) fn reserve(files: Arc<dyn FileSystem>, dir: &Path, file_bytes: u64) -> Reserve {
    let first = (file_bytes / FIRST_PART).min(FIRST_BYTES_MAX);
    let last = (file_bytes / LAST_PART).min(LAST_BYTES_MAX);
    let parts = [(FileName::Reserve.name(), first), (FileName::ReserveLast.name(), last)];
    Reserve::new(files, &[dir.to_owned()], parts)
}

/// Whether a merge of a file of `room` bytes has room beside `bytes` more.
pub(crate) fn leaves(files: &dyn FileSystem, dir: &Path, room: u64, bytes: u64) -> bool {
    let need = room.saturating_add(ROOM_BYTES_KEPT).saturating_add(bytes);
    files.space(dir).map_or(true, |space| space.available >= need)
}
