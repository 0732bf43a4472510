//! What deletions may take of a store that is full.
//!
//! They go ahead where nothing else does (W3 of [`room`](super::room)): only they make room. But each takes some before that: in the log, in a table of its own
//! where it is flushed alone, and once more when that is merged. None of it comes back while a reader holds what merges replace, or
//! where nothing but other deletions is there to merge: then they would take, one by one, what merges need, and with it every way out.
//!
//! - D1: room is kept for what they take until they are looked at, twice.
//! - D2: then more go ahead if they take no more in tables than at their least since there was room. Else they wait for work that may free
//!   something, as puts do, and are refused with `Exhausted` if there is none.
//! - D3: nothing that others take keeps them from going ahead; but for a batch of them that takes more than is kept.
//!
//! Cost: of a deletion, where writers are let write nothing more, two atomic steps.

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
#[derive(Debug)]
pub(super) struct Deletions {
    /// Bytes of those that went ahead without room since memtables were last sealed for their sake.
    unflushed: AtomicI64,
    /// What they took of any kind since it was last seen that they have gone.
    taken: AtomicI64,
    /// What they took in tables at their least since there was room, or since it was first looked.
    least: AtomicI64,
}

impl Default for Deletions {
    fn default() -> Self {
        Self { unflushed: AtomicI64::new(0), taken: AtomicI64::new(0), least: AtomicI64::new(i64::MAX) }
    }
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
    /// Whether one goes ahead without a look at those before it; then it is counted.
    pub(super) fn go_ahead(&self, bytes: i64, disk_bytes: u64) -> bool {
        let most = looked_at_bytes(disk_bytes);
        let more = |taken: i64| Some(taken.saturating_add(COPIES.saturating_mul(bytes))).filter(|&all| all <= most);
        let goes_ahead = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if goes_ahead {
            self.unflushed.fetch_add(bytes, Ordering::Relaxed);
        }
        goes_ahead
    }

    /// One goes ahead after that look.
    pub(super) fn take(&self, bytes: i64) {
        self.unflushed.fetch_add(bytes, Ordering::Relaxed);
        self.taken.fetch_add(COPIES.saturating_mul(bytes), Ordering::Relaxed);
    }

    /// They became so many tables: as many are written once more when those are merged.
    pub(super) fn note_flushed(&self, tables: u64) {
        self.taken.fetch_add(signed(2 * tables * BLOCK_BYTES), Ordering::Relaxed);
    }

    /// Whether they had better be flushed: as long as they are in memory they free nothing. Says so once.
    #[inline]
    pub(super) fn is_to_flush(&self, disk_bytes: u64) -> bool {
        let most = flushed_bytes(disk_bytes);
        self.unflushed.load(Ordering::Relaxed) > most && self.unflushed.swap(0, Ordering::Relaxed) > most
    }

    /// Whether there is room for a batch of them where so much is left, if those before it have gone (D3).
    pub(super) fn have_room(left: &Left, bytes: i64, disk_bytes: u64) -> bool {
        let kept = left.disk.saturating_add(kept_bytes(disk_bytes));
        COPIES.saturating_mul(bytes) <= kept.max(looked_at_bytes(disk_bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = 8 << 20;

    fn left(disk: i64, deletion_bytes: i64) -> Left {
        Left { disk, bound: 0, pass: 0, slack: 0, next_pass: 0, deletion_bytes }
    }

    /// How many deletions of 100 bytes go ahead before they are looked at.
    fn count(deletions: &Deletions) -> usize {
        (0..).take_while(|_| deletions.go_ahead(100, DISK_BYTES)).count()
    }

    /// Goal (D1, D2, D3): as many go ahead as there is room kept for, again and again as long as they go; those that were there before count for nothing; of
    /// small ones that are flushed alone, fewer do.
    #[test]
    fn they_go_ahead_as_long_as_they_go() {
        let (deletions, old) = (Deletions::default(), 1 << 30);
        let all = count(&deletions);
        assert_eq!(all, looked_at_bytes(DISK_BYTES) as usize / 300);
        assert!(kept_bytes(DISK_BYTES) >= 2 * 300 * all as i64);
        assert!(deletions.note_left(&left(-1, old), DISK_BYTES), "what was there before");
        assert_eq!(count(&deletions), all);
        assert!(!deletions.note_left(&left(-1, old + looked_at_bytes(DISK_BYTES)), DISK_BYTES), "none has gone");
        assert!(!deletions.go_ahead(100, DISK_BYTES) && !deletions.go_ahead(1 << 40, DISK_BYTES));
        assert!(deletions.note_left(&left(-1, old - 5000), DISK_BYTES), "more have gone than came");
        for _ in 0..5 {
            deletions.note_flushed(1);
        }
        assert!(count(&deletions) < all / 2);
        assert!(!deletions.note_left(&left(-1, old + 20_000), DISK_BYTES), "more than at their least");
        assert!(deletions.note_left(&left(0, old + 20_000), DISK_BYTES), "there is room");
        assert!(!deletions.go_ahead(1 << 40, DISK_BYTES));
        assert_eq!(count(&deletions), all, "what is refused leaves nothing");
        assert!(deletions.note_left(&left(0, 0), DISK_BYTES));
        deletions.take(300);
        assert_eq!(count(&deletions), all - 3);
    }

    #[test]
    fn a_batch_of_them_needs_room_if_it_is_large() {
        let (looked_at, kept) = (looked_at_bytes(DISK_BYTES), kept_bytes(DISK_BYTES));
        let have_room = |disk, bytes| Deletions::have_room(&left(disk, 0), bytes, DISK_BYTES);
        assert!(have_room(i64::MIN / 2, looked_at / COPIES) && !have_room(-kept, looked_at / COPIES + 1));
        assert!(have_room(0, kept / COPIES) && !have_room(0, kept / COPIES + 1));
        assert!(have_room(1 << 30, 1 << 28) && !have_room(1 << 30, i64::MAX));
    }
}
