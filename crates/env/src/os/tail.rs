//! The end of an active file as memory: preallocated blocks, mapped, that one writer fills and any number of readers see.
//!
//! - T1: bytes before `appended` never change, and only they are lent to readers. `appended` never goes down.
//! - T2: bytes from `appended` on belong to the one [`Tail`], which is not shared: nobody else reads or writes them.
//! - T3: the file has blocks for all of the window (`fallocate` came first), so filling a page cannot run out of space. Pages
//!   are made by writing zeroes through the system before they are touched, so a device's refusal is an error of
//!   that call and not a `SIGBUS`; and they are mapped by a call that fails, not by the first store into each, which would be a fifth faster. What remains: a file system that
//!   shuts itself down under a page that was ready before. (ext4 and XFS on loop devices, shut down by `FS_IOC_SHUTDOWN` in each of its three ways while
//!   a `Db`, a `Cask` and a Raft log were filled: eighteen errors, no signal.)
//! - T4: the file is cut only behind `appended` as long as somebody may hold the window (`OsAppendFile` sees to it).
//! - T5: the first [`COMMIT_BYTES`] of an append are stored after all others, by one instruction where the processor stores
//!   unaligned words (x86-64, aarch64). A process that is killed in between leaves zeroes there, and another that reads the file meanwhile
//!   finds them.
//!
//! Cost: a copy. Making pages ready costs a `pwrite` of zeroes and a `madvise(MADV_POPULATE_WRITE)` for each [`READY_BYTES`]. At a boundary, such a
//! write makes one folio (ext4 since Linux 6.16, XFS), which costs a third of what as many pages do. For readers at
//! random, one of a whole huge page does the same, and whoever maps the file needs one entry of a page table for it.

#![expect(unsafe_code, reason = "mapping memory is outside of what the compiler can check")]

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::pages::HUGE_PAGE_BYTES;
use crate::{COMMIT_BYTES, Window};

/// How much is made ready at once, from boundary to boundary. Measured on ext4 (Linux 6.18), ns for an append and its slowest hundredth: 4,600 bytes
/// 1,750 and 15,000 (not at boundaries 2,720 and 24,000; by a system call 3,490 and 7,100). Not mapped by the same call, but by stores: 1,470 and 12,000; with
/// 16 KiB 2,190 and 9,500, with 64 KiB 1,500 and 18,700, but in one run of three ten times as slow: the system has eight pages in a row at once, but has to look for sixteen.
pub(super) const READY_BYTES: u64 = 32 << 10;
/// The same for appends so small that less than one in a hundred waits for it: two such pieces by one call.
pub(super) const READY_SMALL_BYTES: u64 = 2 * READY_BYTES;
/// The same for what will be read at random: a huge page. Measured with records of 136 bytes: gets at random places are a
/// fifth faster, appends a fifteenth slower, since a huge page of zeroes does not stay in the processor's cache until it is filled.
pub(super) const READY_HUGE_BYTES_MAX: u64 = HUGE_PAGE_BYTES as u64;
/// From this much on, whole huge pages are made ready.
const WHOLE_FROM_BYTES: u64 = READY_HUGE_BYTES_MAX / 2;
/// How much behind an append is fetched into the processor's cache. Records of 136 bytes touch three lines; the fourth is for
/// those that begin late in a line. Without it a put of one waits for each of them in turn.
const FETCH_BYTES: u64 = 256;
/// What a processor fetches at once.
const LINE_BYTES: usize = 64;
/// Zeroes for new pages, as often as needed.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The readers' side.
#[derive(Debug)]
pub(super) struct OsWindow {
    start: NonNull<u8>,
    len: usize,
    /// See T1.
    appended: AtomicU64,
}

// SAFETY: the pages belong to the process, not to a thread; by T1 and T2 no byte is written while another thread reads it.
unsafe impl Send for OsWindow {}
// SAFETY: as above; through a shared reference only bytes before `appended` are read.
unsafe impl Sync for OsWindow {}

impl Window for OsWindow {
    fn appended(&self, range: Range<u64>) -> Option<&[u8]> {
        // Acquire: whoever sees the length sees the bytes before it.
        let end = self.appended.load(Ordering::Acquire).min(self.len as u64);
        if range.start > range.end || range.end > end {
            return None;
        }
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        // SAFETY: `start <= self.len`: within the mapping, or one past it.
        let first = unsafe { self.start.add(start) };
        // SAFETY: `start..end` lies before `appended` and within the mapping, which lives as long as `self`; by T1 nobody
        // changes it, by T4 its pages stay in the file.
        Some(unsafe { slice::from_raw_parts(first.as_ptr(), end - start) })
    }
}

impl Drop for OsWindow {
    fn drop(&mut self) {
        // SAFETY: this range came from `mmap`, and `appended` lends it for no longer than `self` lives.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) };
        debug_assert!(unmapped.is_ok(), "a range from mmap can be unmapped");
    }
}

/// The writer's side: there is one for a window.
#[derive(Debug)]
pub(super) struct Tail {
    window: Arc<OsWindow>,
    /// Pages up to here can be stored into without further ado.
    ready_to: u64,
    page_bytes: u64,
    /// Whether the system makes pages ready in one call (Linux 5.14); without, each is when it is touched.
    populates: bool,
}

impl Tail {
    /// Maps the first `len` bytes of `file`, all of which have blocks; `appended` of them were appended. `page_bytes` are a page, or several.
    pub(super) fn new(file: &File, len: u64, appended: u64, page_bytes: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free range, so no memory of ours is replaced.
        let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let window = OsWindow { start, len, appended: AtomicU64::new(appended) };
        Ok(Self { window: Arc::new(window), ready_to: appended, page_bytes, populates: true })
    }

    /// What readers get.
    pub(super) fn window(&self) -> Arc<OsWindow> {
        Arc::clone(&self.window)
    }

    /// Where the window ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.window.len as u64
    }

    /// Pages are ready up to here: zeroes follow what was appended.
    pub(super) fn ready_to(&self) -> u64 {
        self.ready_to
    }

    fn appended_bytes(&self) -> u64 {
        // Relaxed: only this tail changes it.
        self.window.appended.load(Ordering::Relaxed)
    }

    /// Pages may have been written to the device, and the next store into one asks the file system again.
    pub(super) fn forget_ready(&mut self) {
        self.ready_to = self.appended_bytes();
    }

    /// Makes pages ready for `bytes` more, and for `ahead` if that is more. `false`: they must go another way.
    pub(super) fn make_ready(&mut self, file: &File, bytes: u64, ahead: u64) -> bool {
        let from = self.appended_bytes();
        let Some(end) = from.checked_add(bytes).filter(|&end| end <= self.end()) else { return false };
        if end <= self.ready_to {
            return true;
        }
        let to = match ahead {
            WHOLE_FROM_BYTES.. => end.next_multiple_of(READY_HUGE_BYTES_MAX),
            // Not from a multiple of its own: the system would make one piece of it.
            READY_SMALL_BYTES.. => end.saturating_sub(READY_BYTES).next_multiple_of(READY_SMALL_BYTES) + READY_BYTES,
            READY_BYTES.. => end.next_multiple_of(READY_BYTES),
            _ => end.max(from.saturating_add(ahead)),
        };
        let to = to.next_multiple_of(self.page_bytes).min(self.end());
        // The page that was begun is there; those behind hold nothing yet, or what the file held before it was recycled.
        let first_new = self.ready_to.max(from).next_multiple_of(self.page_bytes);
        let ready = write_zeroes(file, first_new..to).is_ok() && self.populate(from - from % self.page_bytes..to);
        if ready {
            self.ready_to = to;
        }
        ready
    }

    fn populate(&mut self, range: Range<u64>) -> bool {
        let (Ok(from), Ok(to)) = (usize::try_from(range.start), usize::try_from(range.end.min(self.end()))) else {
            return false;
        };
        if !self.populates || from >= to {
            return true;
        }
        // SAFETY: `from < to <= len`: within the mapping.
        let start = unsafe { self.window.start.add(from) };
        // SAFETY: the range is ours, and making pages writable changes no byte of them.
        match unsafe { madvise(start.as_ptr().cast::<c_void>(), to - from, Advice::LinuxPopulateWrite) } {
            Ok(()) => true,
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.populates = false;
                true
            }
            // The file system refuses: it will say so to whoever writes through the system.
            Err(_) => false,
        }
    }

    /// Copies `parts`, `bytes` in all, which [`make_ready`](Self::make_ready) made room for. `false`, and nothing done, if it did not.
    pub(super) fn append(&mut self, parts: &[&[u8]], bytes: usize) -> bool {
        let from = self.appended_bytes();
        let end = from.saturating_add(bytes as u64);
        let Some(index) = usize::try_from(from).ok().filter(|_| end <= self.ready_to.min(self.end())) else {
            return false;
        };
        // SAFETY: `from <= len`: within the mapping, or one past it.
        let start = unsafe { self.window.start.add(index) };
        let mut first = [0; COMMIT_BYTES];
        let mut at = 0;
        for part in parts {
            // What belongs to the first bytes is kept for the end (T5).
            let kept = part.len().min(COMMIT_BYTES.saturating_sub(at));
            let (early, late) = part.split_at(kept);
            if let Some(place) = first.get_mut(at..at + kept) {
                place.copy_from_slice(early);
            }
            at += kept;
            if late.len() > bytes - at {
                return false;
            }
            // SAFETY: `at + late.len() <= bytes`, so within what `end` above bounds.
            let place = unsafe { start.add(at) };
            // SAFETY: the destination is within the mapping and, by T2, nobody else's; the source is borrowed from elsewhere:
            // no reference to these bytes exists.
            unsafe { ptr::copy_nonoverlapping(late.as_ptr(), place.as_ptr(), late.len()) };
            at += late.len();
        }
        // For those who read the file meanwhile (T5); a killed process needs the order of its own stores only.
        fence(Ordering::Release);
        match first.get(..bytes).filter(|few| few.len() < COMMIT_BYTES) {
            // SAFETY: as for the copies above: `bytes` of them are ours.
            Some(few) => unsafe { ptr::copy_nonoverlapping(few.as_ptr(), start.as_ptr(), few.len()) },
            // SAFETY: as above, with at least eight bytes.
            None => unsafe { start.cast::<u64>().as_ptr().write_unaligned(u64::from_ne_bytes(first)) },
        }
        self.publish(end);
        self.fetch_next(end);
        true
    }

    /// The lines that the next append will go into: it comes too soon to wait for them then.
    fn fetch_next(&self, end: u64) {
        if end.saturating_add(FETCH_BYTES) > self.ready_to {
            return;
        }
        for at in (0..FETCH_BYTES as usize).step_by(LINE_BYTES) {
            super::prefetch::line_of(self.window.start.as_ptr().wrapping_add(end as usize + at));
        }
    }

    /// Shows readers everything before `to`, which was written to the file.
    pub(super) fn publish(&mut self, to: u64) {
        self.window.appended.store(to.max(self.appended_bytes()), Ordering::Release);
    }
}

fn write_zeroes(file: &File, range: Range<u64>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let mut left = range.end - at;
        let slices = [(); (READY_HUGE_BYTES_MAX / ZEROES.len() as u64) as usize].map(|()| {
            let count = left.min(ZEROES.len() as u64);
            left -= count;
            IoSlice::new(ZEROES.get(..count as usize).unwrap_or_default())
        });
        let used = (range.end - at).div_ceil(ZEROES.len() as u64) as usize;
        match rustix::io::pwritev(file, slices.get(..used).unwrap_or(&slices), at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
