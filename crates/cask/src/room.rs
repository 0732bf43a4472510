//! Room on the disk: what writers leave for deletions, and for merges.
//!
//! - D1: a file for what adds is begun where the disk has room for it and for another: so much a merge takes at most, by which the space of what is
//!   deleted comes back. Its blocks are taken at once, so what is written to it takes nothing from that.
//! - D2: what deletes goes on until the disk is full, and then in the [`Reserve`](esker_log::reserve::Reserve), in short files. So do manifests: files of which nothing lives go.
//! - D3: while the reserve is gone, nothing is added (R2 of [`esker_log::reserve`]).
//!
//! Cost: a call of the system for each file that is begun, one atomic read for each write.

use crate::store::Store;
use crate::{Error, ErrorKind, Result};

/// The least that a file is made for, unless the options say less.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// A file has this part of the disk at most.
const DISK_PART: u64 = 16;
/// A file that is begun for deletions alone has this part of the reserve.
const RESERVE_PART: u64 = 2;

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
        let least = FILE_BYTES_MIN.min(self.options.file_bytes);
        let most = self.options.file_bytes.min((disk / DISK_PART).max(least));
        (bytes / self.options.stripes as u64).clamp(least, most)
    }

    /// How long a file that is begun for `bytes` may get.
    ///
    /// # Errors
    /// `Exhausted` if it would take what is left for merges (D1).
    pub(crate) fn room_to_add(&self, bytes: u64) -> Result<u64> {
        let room = self.file_room();
        let need = room.max(bytes).saturating_add(room);
        match self.env.files.space(&self.dir) {
            Ok(space) if space.available < need => {
                let reason = format!(
                    "the disk has room for {} bytes, which are left for deletions and merges; delete something or free space on the disk",
                    space.available
                );
                Err(Error::new(ErrorKind::Exhausted, reason).with_path(&self.dir))
            }
            _ => Ok(room),
        }
    }

    /// How long a file for deletions may get where there is no room for another (D2).
    pub(crate) fn room_to_delete(&self) -> u64 {
        (self.reserve.bytes() / RESERVE_PART).min(self.options.file_bytes)
    }
}
