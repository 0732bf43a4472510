//! What deletions may take of a store that is full.
//!
//! They go ahead where nothing else does (W3 of [`room`](super::room)): only they make room. But each takes some before that: in the log, in a table of its own
//! where it is flushed alone, and once more when that is merged. None of it comes back while a reader holds what merges replace, or
//! where nothing but other deletions is there to merge: then they would take, one by one, what merges need, and with it every way out.
//!
//! - D1: room is kept for what they take until they are looked at, twice.
//! - D2: then more go ahead if they take no more in tables than at their least since there was room. Else they wait for work that may free
//!   something, as puts do, and are refused with `Exhausted` if there is none.
//! - D3: nothing that others take keeps them from going ahead.
//!
//! Cost: of a deletion, where writers are let write nothing more, two atomic additions.

use std::sync::atomic::{AtomicI64, Ordering};

use super::room::{BLOCK_BYTES, COPIES, FILES_MIN, Left, signed};

/// They are flushed when they have taken this part of a blob file's room, or so much.
const FLUSHED_PART: u64 = 8;
const FLUSHED_BYTES_MAX: u64 = 8 << 20;
/// And looked at when all of it came to so many times as much, but not before as much as a few tables take.
const LOOKED_AT_PART: i64 = 4;
const LOOKED_AT_BYTES_MIN: i64 = 32 << 10;
/// They have gone where they take no more in tables than they did, and this part of that.
const GONE_PART: i64 = 3;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    /// Bytes of those that went ahead without room since memtables were last sealed for their sake.
    unflushed: AtomicI64,
    /// What they took of any kind since it was last seen that they have gone.
    taken: AtomicI64,
    /// What they took in tables at their least since there was room.
    least: AtomicI64,
}

/// On a disk of so many bytes, they are flushed after so many.
fn flushed_bytes(disk_bytes: u64) -> i64 {
    signed((disk_bytes / FILES_MIN / FLUSHED_PART).min(FLUSHED_BYTES_MAX))
}

/// And looked at.
fn looked_at_bytes(disk_bytes: u64) -> i64 {
    (flushed_bytes(disk_bytes) * LOOKED_AT_PART).max(LOOKED_AT_BYTES_MIN)
}

/// What writers leave to them (D1).
pub(super) fn kept_bytes(disk_bytes: u64) -> i64 {
    2 * looked_at_bytes(disk_bytes)
}

impl Deletions {
    /// One goes ahead without room. Whether it is to be looked at first.
    pub(super) fn go_ahead(&self, bytes: i64, disk_bytes: u64) -> bool {
        self.unflushed.fetch_add(bytes, Ordering::Relaxed);
        let taken = COPIES.saturating_mul(bytes);
        self.taken.fetch_add(taken, Ordering::Relaxed).saturating_add(taken) <= looked_at_bytes(disk_bytes)
    }

    /// It did not.
    pub(super) fn stay(&self, bytes: i64) {
        self.unflushed.fetch_sub(bytes, Ordering::Relaxed);
        self.taken.fetch_sub(COPIES.saturating_mul(bytes), Ordering::Relaxed);
    }

    /// They became tables: as many are written once more when those are merged.
    pub(super) fn note_flushed(&self, tables: u64) {
        self.taken.fetch_add(signed(2 * tables * BLOCK_BYTES), Ordering::Relaxed);
    }

    /// Whether they had better be flushed: as long as they are in memory they free nothing. Says so once.
    #[inline]
    pub(super) fn is_to_flush(&self, disk_bytes: u64) -> bool {
        let most = flushed_bytes(disk_bytes);
        self.unflushed.load(Ordering::Relaxed) > most && self.unflushed.swap(0, Ordering::Relaxed) > most
    }

    /// So much is left. Whether they have gone (D2).
    pub(super) fn note_left(&self, left: &Left, disk_bytes: u64) -> bool {
        let (least, has_room) = (self.least.load(Ordering::Relaxed), left.disk >= 0);
        let most = least.saturating_add(looked_at_bytes(disk_bytes) / GONE_PART);
        if has_room || left.deletion_bytes < least {
            self.least.store(left.deletion_bytes, Ordering::Relaxed);
        }
        let have_gone = has_room || left.deletion_bytes <= most;
        if have_gone {
            self.taken.store(0, Ordering::Relaxed);
        }
        have_gone
    }
}
