//! Appending: two bodies behind one face.
//!
//! Where blocks were preallocated, up to [`COPIED_BYTES_MAX`] at once are copied into a mapped window of them (`tail`);
//! everything else is one `pwrite` (one part) or `pwritev` (up to [`IOVEC_MAX`] parts). Both see the same page cache.
//!
//! - A1: while a file is mapped, a failed append moves no end: what got in lies behind [`len`](AppendFile::len), where the next append
//!   or [`seal`](AppendFile::seal) goes over it.
//! - A2: an append beside a sync and the first after it go through the system. What a sync wrote must be asked for again before it is
//!   stored into, and one call that does both costs least; so who syncs every append never pays for a page fault.
//! - A3: pages are made ready as far ahead as was appended since the last sync, since the next one writes them too.
//! - A4: of a recycled file at least [`COMMIT_BYTES`] behind the end are zeroes: a call writes them with what it appends, to
//!   the end of a page, so that no page of old bytes is read from the device only to be written over.
//!
//! - A5: where small appends to preallocated blocks are synced one by one, they take zeroes along, far ahead, once in a while: the first
//!   sync of a block that was only reserved has to write down that it is in use, which takes as long as the rest of it. Large ones do
//!   not: they would write nearly as many zeroes as data, and gain nothing.
//! - A6: of bytes that were lost the system tells each open description of the file once, and afterwards says that all is well. So a sync beside
//!   another has a description of its own, made before the first sync of all, and once one failed all do.
//! - A7: Linux begins to write what is dirty of pages that it is told nobody will want, and keeps those. Of 17 KiB, a sync 40 µs later took
//!   as much less.
//! - A8: where nobody syncs, a call finds its pages ready, too: it makes them one by one where its end is not at a boundary, while zeroes up to
//!   the next boundary make one piece of many. Measured, ns: 18 KiB 8,220 without and 5,040 with them, 36 KiB 11,700 and 9,050, 300 KiB 56,400 and 52,900.
//! - A9: where nothing was preallocated, a padded file has them from the same call, behind what it appends (another day, when all was slower: 9 KiB 6,070
//!   without and 3,460, 18 KiB 10,050 and 6,070, 36 KiB 15,200 and 10,700). That they alone find no room is no failure.
//!
//! Cost: one lock and a copy; no allocation up to [`PARTS_ON_STACK`] parts. Measured on ext4 (Linux 6.18), 64 MiB in a
//! row, best of five, ns for one append:
//!
//! | bytes   | system call | copied |
//! |--------:|------------:|-------:|
//! |     120 |         467 |     53 |
//! |   1,024 |         930 |    278 |
//! |   4,600 |       3,490 |  1,470 |
//! |   9,000 |       5,170 |  2,800 |
//! |  18,000 |       8,220 |  5,360 |
//! |  36,000 |      11,730 | 10,660 |
//!
//! Followed by a sync each, both bodies take what the device takes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::file_system::STAT_BLOCK_BYTES;
use super::regular;
use super::tail::{READY_BYTES, READY_HUGE_BYTES_MAX, READY_SMALL_BYTES, Tail};
use crate::{Access, AppendFile, COMMIT_BYTES, Error, PAD_BYTES, Result, Window};

/// Parts in one system call: `UIO_MAXIOV` of Linux, and not less elsewhere.
const IOVEC_MAX: usize = 1024;
/// Parts that need no allocation: a log record is a header and a payload, a group commit a few of them.
const PARTS_ON_STACK: usize = 16;
/// The largest append that is copied: see the table above.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// The largest for which pages are made ready though a call writes it (A8).
const READY_FOR_CALL_BYTES_MAX: usize = 64 << 10;
/// The largest pages that Linux has on its usual machines.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// For A4, A5 and A9: the most of any, to the end of a page.
static ZEROES: [u8; (SYNCED_AHEAD_BYTES + PAGE_BYTES_MAX) as usize] =
    [0; (SYNCED_AHEAD_BYTES + PAGE_BYTES_MAX) as usize];
/// See A5. Measured on ext4, µs for a sync where blocks are new, and with zeroes ahead: 8 KiB 173 and 82, 17 KiB 192 and 133, 34 KiB 222 and 187. The
/// device gets 1.5 times as many bytes of 17 KiB then, and as many as otherwise once the file is written over as another one.
const SYNCED_AHEAD_BYTES: u64 = 128 << 10;
/// What is small (A5), such as the group of sixteen writers of 1 KiB: with 80,000 bytes each, a sync took 278 µs with zeroes ahead and 187
/// without.
const SYNCED_SMALL_BYTES_MAX: usize = 32 << 10;
/// And how many in a row show that more of them will follow.
const SYNCED_SMALL_MIN: u32 = 4;
/// The largest window: files are smaller, and an address space of 47 bits has room for thousands of these.
const WINDOW_BYTES_MAX: u64 = 16 << 30;

/// A file open for appending.
#[derive(Debug)]
pub(super) struct OsAppendFile {
    file: File,
    path: PathBuf,
    /// Where the next byte goes. Changed only under `end`, read without.
    len: AtomicU64,
    /// What `len` was when the last sync that succeeded began, or the file was opened.
    synced_to: AtomicU64,
    /// Syncs that began, and those that ended.
    syncs: [AtomicU64; 2],
    /// Whoever moves the end of the file.
    end: Mutex<End>,
    page_bytes: u64,
    /// Whether preallocated blocks are those that will be written to; asked once.
    reserves: OnceLock<bool>,
    /// Held by who syncs by `file` (A6).
    syncing: Mutex<()>,
    /// For who syncs meanwhile; `None` inside if there is no such thing.
    beside: OnceLock<Option<Mutex<File>>>,
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct End {
    tail: Option<Tail>,
    /// Blocks are there, and the file goes, up to here; 0 if nothing was preallocated.
    reserved_to: u64,
    /// Somebody may be reading what was appended through a window of `tail`.
    is_lent: bool,
    /// What windows of those before it go on to show.
    lent_to: u64,
    /// Somebody said so.
    is_read_at_random: bool,
    /// How many syncs had begun when last looked at.
    seen_syncs: u64,
    /// Bytes of an earlier life may lie before this place; 0 if there was none.
    stale_to: u64,
    /// Of a recycled file: what lies between the end of what was appended and here is zeroes (A4).
    zero_to: u64,
    /// How many small appends in a row found all before them synced (A5).
    small_synced: u32,
    /// See A9.
    is_padded: bool,
}

impl End {
    /// How much of `len` bytes windows show.
    fn lent_to(&self, len: u64) -> u64 {
        if self.is_lent { len } else { self.lent_to }
    }

    /// How many zeroes follow what will end at `to` (A4, A5, A9), of which `fresh` bytes before were not synced.
    fn fill(&self, to: u64, fresh: u64, page_bytes: u64) -> usize {
        if self.is_padded && self.reserved_to == 0 {
            let is_worth_it = to > self.zero_to && fresh >= PAD_BYTES;
            return if is_worth_it { (to.next_multiple_of(PAD_BYTES) - to) as usize } else { 0 };
        }
        let takes_zeroes = self.small_synced >= SYNCED_SMALL_MIN && self.stale_to == 0 && self.tail.is_some();
        if takes_zeroes && to > self.zero_to {
            let end = to.saturating_add(SYNCED_AHEAD_BYTES).next_multiple_of(page_bytes).min(self.reserved_to);
            return end.saturating_sub(to) as usize;
        }
        let needed = to.saturating_add(COMMIT_BYTES as u64).min(self.stale_to);
        if needed <= to || needed <= self.zero_to {
            return 0;
        }
        (needed.next_multiple_of(page_bytes).min(self.stale_to) - to) as usize
    }
}

impl OsAppendFile {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Self::new(file, path, 0))
    }

    pub(super) fn reopen(path: &Path, len: u64) -> io::Result<Self> {
        let file = regular::open(path, OpenOptions::new().read(true).write(true))?;
        let found = file.metadata()?.len();
        if len > found {
            let reason = format!("cannot append at byte {len} of a file of {found}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        if len < found {
            file.set_len(len)?;
        }
        Ok(Self::new(file, path, len))
    }

    /// An existing file, from its start over what it holds.
    pub(super) fn write_over(path: &Path) -> io::Result<Self> {
        let file = regular::open(path, OpenOptions::new().read(true).write(true))?;
        let found = file.metadata()?.len();
        let made = Self::new(file, path, 0);
        let mut end = made.end.lock();
        end.reserved_to = found;
        end.stale_to = found;
        drop(end);
        Ok(made)
    }

    fn new(file: File, path: &Path, len: u64) -> Self {
        Self {
            file,
            path: path.to_owned(),
            len: AtomicU64::new(len),
            synced_to: AtomicU64::new(len),
            syncs: Default::default(),
            end: Mutex::new(End::default()),
            page_bytes: rustix::param::page_size() as u64,
            reserves: OnceLock::new(),
            syncing: Mutex::default(),
            beside: OnceLock::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// See A6.
    fn sync_in_turn(&self) -> io::Result<()> {
        let beside = self.beside.get_or_init(|| self.describe_again().map(Mutex::new));
        if let Some(_turn) = self.syncing.try_lock() {
            return self.sync_by(&self.file);
        }
        if let Some(file) = beside.as_ref().and_then(Mutex::try_lock) {
            return self.sync_by(&file);
        }
        let _turn = self.syncing.lock();
        self.sync_by(&self.file)
    }

    fn sync_by(&self, file: &File) -> io::Result<()> {
        if self.has_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("another sync of the file failed"));
        }
        file.sync_data().inspect_err(|_| self.has_failed.store(true, Ordering::Release))
    }

    /// Another open description of the file, if its name still stands for it.
    fn describe_again(&self) -> Option<File> {
        let file = regular::open(&self.path, OpenOptions::new().read(true).write(true)).ok()?;
        let id = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).ok();
        (id(&file)? == id(&self.file)?).then_some(file)
    }

    fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::new(doing, &self.path, source)
    }

    /// Writes `slices` from `from` on; returns where they end.
    ///
    /// # Errors
    /// With where the written part ends.
    fn write_all(&self, from: u64, mut slices: &mut [IoSlice<'_>]) -> std::result::Result<u64, (u64, io::Error)> {
        let mut place = from;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let batch = slices.get(..IOVEC_MAX).unwrap_or(slices);
            match rustix::io::pwritev(&self.file, batch, place) {
                Ok(0) => return Err((place, io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    place = place.saturating_add(count as u64);
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err((place, error.into())),
            }
        }
        Ok(place)
    }

    /// The body that makes a system call.
    fn append_by_call(&self, end: &mut End, from: u64, slices: &mut [IoSlice<'_>], bytes: usize) -> Result<()> {
        let appended = from.saturating_add(bytes as u64);
        let written = self.write_all(from, slices).or_else(|failed| match failed {
            (to, _) if end.is_padded && end.reserved_to == 0 && to >= appended => Ok(to), // A9
            failed => Err(failed),
        });
        let to = match &written {
            Ok(filled_to) => {
                end.zero_to = end.zero_to.max(*filled_to);
                appended
            }
            Err(_) if end.tail.is_some() => from, // A1
            Err((to, _)) => appended.min(*to),
        };
        if written.is_err() {
            end.zero_to = 0;
        }
        if let Some(tail) = &mut end.tail {
            tail.publish(to);
        }
        self.len.store(to, Ordering::Release);
        written.map(drop).map_err(|(place, source)| self.error("appending to", source).at(place))
    }

    /// Makes pages ready for `bytes`, if no sync takes them away again. `false`: none were made, or not enough.
    fn make_ready(&self, end: &mut End, from: u64, bytes: usize) -> bool {
        let Some(tail) = &mut end.tail else { return false };
        let [begun, ended] = &self.syncs;
        // First those that ended: who ends between the looks is taken for one that runs.
        let ended = ended.load(Ordering::Acquire);
        let begun = begun.load(Ordering::Acquire);
        if end.seen_syncs != begun {
            end.seen_syncs = begun;
            tail.forget_ready();
        }
        if begun != ended {
            return false;
        }
        let synced_to = self.synced_to.load(Ordering::Acquire);
        // A2, A3, A4.
        let most = match bytes as u64 {
            _ if end.is_read_at_random => READY_HUGE_BYTES_MAX,
            small if small <= READY_SMALL_BYTES / 100 => READY_SMALL_BYTES,
            _ => READY_BYTES,
        };
        let fresh = from.saturating_sub(synced_to).min(most);
        let needed = if end.stale_to > 0 { bytes + COMMIT_BYTES } else { bytes };
        // A8: what a call writes gains only by pages in one piece.
        let is_worth_it = fresh > 0 && (bytes <= COPIED_BYTES_MAX || fresh >= READY_BYTES);
        if !is_worth_it || !tail.make_ready(&self.file, needed as u64, fresh) {
            return false;
        }
        end.zero_to = end.zero_to.max(tail.ready_to());
        true
    }

    /// The body that copies. `false`: it did nothing.
    fn append_by_copy(&self, end: &mut End, from: u64, parts: &[&[u8]], bytes: usize) -> bool {
        let is_done = end.tail.as_mut().is_some_and(|tail| tail.append(parts, bytes));
        if is_done {
            self.len.store(from.saturating_add(bytes as u64), Ordering::Release);
        }
        is_done
    }

    /// Asks for the blocks of `range`; with `lengthen`, the file ends no sooner than they do.
    #[cfg(target_os = "linux")]
    fn reserve(&self, range: Range<u64>, lengthen: bool) -> io::Result<bool> {
        if !*self.reserves.get_or_init(|| !is_copy_on_write(&self.file)) {
            return Ok(false);
        }
        self.allocate(range, lengthen)
    }

    /// The same, whether or not they are those that will be written to.
    #[cfg(target_os = "linux")]
    fn allocate(&self, range: Range<u64>, lengthen: bool) -> io::Result<bool> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = if lengthen { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        loop {
            match fallocate(&self.file, flags, range.start, range.end - range.start) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&self, _: Range<u64>, _: bool) -> io::Result<bool> {
        Ok(*self.reserves.get_or_init(|| false))
    }

    #[cfg(not(target_os = "linux"))]
    fn allocate(&self, _: Range<u64>, _: bool) -> io::Result<bool> {
        Ok(false)
    }

    /// Cuts the file to `len`, with what was preallocated.
    fn cut(&self, end: &mut End, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        end.lent_to = end.lent_to(self.len.load(Ordering::Relaxed));
        end.is_lent = false;
        end.tail = None;
        end.reserved_to = 0;
        (end.stale_to, end.zero_to) = (0, 0);
        self.len.store(len, Ordering::Release);
        Ok(())
    }
}

impl AppendFile for OsAppendFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn append(&self, parts: &[&[u8]]) -> Result<()> {
        let mut end = self.end.lock();
        let from = self.len.load(Ordering::Relaxed);
        let bytes = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let is_ready = bytes <= READY_FOR_CALL_BYTES_MAX && self.make_ready(&mut end, from, bytes);
        if is_ready && bytes <= COPIED_BYTES_MAX && self.append_by_copy(&mut end, from, parts, bytes) {
            return Ok(());
        }
        let is_synced = from > 0 && self.synced_to.load(Ordering::Acquire) == from;
        let is_small = is_synced && bytes <= SYNCED_SMALL_BYTES_MAX;
        end.small_synced = if is_small { end.small_synced.saturating_add(1) } else { 0 };
        let fresh = from.saturating_sub(self.synced_to.load(Ordering::Acquire));
        let fill = end.fill(from.saturating_add(bytes as u64), fresh, self.page_bytes);
        let fill = ZEROES.get(..fill).unwrap_or_default();
        let parts = parts.iter().copied().chain((!fill.is_empty()).then_some(fill));
        let mut on_stack = [IoSlice::new(&[]); PARTS_ON_STACK];
        let mut rest = parts.clone();
        let count = on_stack.iter_mut().zip(&mut rest).map(|(slice, part)| *slice = IoSlice::new(part)).count();
        if rest.next().is_none()
            && let Some(slices) = on_stack.get_mut(..count)
        {
            return self.append_by_call(&mut end, from, slices, bytes);
        }
        let mut slices: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
        self.append_by_call(&mut end, from, &mut slices, bytes)
    }

    fn sync(&self) -> Result<()> {
        let len = self.len();
        let [begun, ended] = &self.syncs;
        begun.fetch_add(1, Ordering::AcqRel);
        let synced = self.sync_in_turn();
        if synced.is_ok() {
            self.synced_to.fetch_max(len, Ordering::AcqRel);
        }
        ended.fetch_add(1, Ordering::AcqRel);
        synced.map_err(|source| self.error("syncing", source))
    }

    #[cfg(target_os = "linux")]
    fn begin_sync(&self) {
        use rustix::fs::{Advice, fadvise};
        // A7.
        let from = self.synced_to.load(Ordering::Acquire);
        // None would be all up to the end, with zeroes ahead that the next append goes over.
        if let Some(bytes) = std::num::NonZeroU64::new(self.len().saturating_sub(from)) {
            let _ = fadvise(&self.file, from, Some(bytes), Advice::DontNeed);
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut end = self.end.lock();
        let now = self.len.load(Ordering::Relaxed);
        let refused = if len > now {
            format!("cannot cut a file of {now} bytes to {len}")
        } else if len < end.lent_to(now) {
            format!("cannot cut {now} bytes to {len} while somebody may read them")
        } else {
            return self.cut(&mut end, len).map_err(|source| self.error("truncating", source));
        };
        Err(self.error("truncating", io::Error::new(io::ErrorKind::InvalidInput, refused)))
    }

    fn preallocate(&self, len: u64) -> Result<bool> {
        let mut end = self.end.lock();
        let now = self.len.load(Ordering::Relaxed);
        let there = now.max(end.reserved_to);
        let len = len.max(there);
        // A recycled file may have holes. Otherwise a byte is asked for even when nothing is missing, so that the answer is
        // the file system's.
        let has_old_blocks = end.stale_to > 0 && end.tail.is_none();
        let first = if has_old_blocks { now } else { there.min(len.saturating_sub(1)) };
        let reserved = self.reserve(first..len.max(first + 1), len > there).map_err(|source| {
            // A file system that runs out keeps in the file what it had got hold of (ext4), which nobody else would have then.
            let _ = self.file.set_len(there);
            self.error("preallocating", source).at(len)
        })?;
        if reserved && (len > there || has_old_blocks) {
            end.reserved_to = len;
            // Without a window, appends make a system call each: that is all there is to say about it.
            end.tail =
                if len <= WINDOW_BYTES_MAX { Tail::new(&self.file, len, now, self.page_bytes).ok() } else { None };
        }
        Ok(reserved)
    }

    fn hold(&self, len: u64) -> Result<bool> {
        let mut end = self.end.lock();
        let there = self.len.load(Ordering::Relaxed).max(end.reserved_to);
        if len <= there {
            return Ok(true);
        }
        // Some file systems say yes and have none.
        let are_there =
            |file: &File| file.metadata().map(|found| found.blocks().saturating_mul(STAT_BLOCK_BYTES) >= len);
        let held = self.allocate(there..len, true).and_then(|is_asked| Ok(is_asked && are_there(&self.file)?));
        if matches!(held, Ok(true)) {
            end.reserved_to = len;
        } else {
            let _ = self.file.set_len(there);
        }
        held.map_err(|source| self.error("preallocating", source).at(len))
    }

    fn pad(&self) {
        self.end.lock().is_padded = true;
    }

    fn seal(&self) -> Result<()> {
        let mut end = self.end.lock();
        let len = self.len.load(Ordering::Relaxed);
        self.cut(&mut end, len).map_err(|source| self.error("sealing", source))?;
        end.is_padded = false;
        Ok(())
    }

    fn window(&self) -> Result<Option<Arc<dyn Window>>> {
        let mut end = self.end.lock();
        let Some(tail) = &end.tail else { return Ok(None) };
        let window = tail.window();
        end.is_lent = true;
        Ok(Some(window))
    }

    fn advise(&self, access: Access) {
        self.end.lock().is_read_at_random = access == Access::Random;
    }
}

/// Whether every write goes to new blocks, or may do so, so that blocks reserved beforehand guarantee nothing.
#[cfg(target_os = "linux")]
fn is_copy_on_write(file: &File) -> bool {
    // `f_type` of statfs(2); zfs and bcachefs from their own sources.
    const BTRFS: u32 = 0x9123_683e;
    const ZFS: u32 = 0x2fc1_2fc1;
    const BCACHEFS: u32 = 0xca45_1a4e;
    const NILFS: u32 = 0x0000_3434;
    // What lies beneath is not told: in a container it may be any of those, and a store into a mapping that finds no room ends the process.
    const OVERLAYFS: u32 = 0x794c_7630;
    // The magic numbers have 32 bits, whatever width and sign the field has on this architecture.
    rustix::fs::fstatfs(file)
        .is_ok_and(|found| matches!(found.f_type as u32, BTRFS | ZFS | BCACHEFS | NILFS | OVERLAYFS))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::*;

    fn begun(dir: &tempfile::TempDir) -> OsAppendFile {
        let file = OsAppendFile::create(&dir.path().join("file")).unwrap();
        file.append(&[b"some bytes"]).unwrap();
        file
    }

    /// Goal: what was lost is told to each of two syncs that run at the same time (A6): they do not share what the system tells once.
    #[test]
    fn syncs_beside_each_other_have_descriptions_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = begun(&dir);
        file.sync().unwrap();
        let beside = file.beside.get().unwrap().as_ref().unwrap();
        let id = |file: &File| file.metadata().map(|found| (found.dev(), found.ino())).unwrap();
        assert_eq!(id(&beside.lock()), id(&file.file));
        // Handles of one description have one place.
        (&file.file).seek(SeekFrom::Start(5)).unwrap();
        assert_eq!(beside.lock().stream_position().unwrap(), 0);
        let turn = file.syncing.lock();
        file.sync().unwrap();
        drop(turn);
    }

    /// Goal: of a recycled file zeroes follow every append, however large pages are: what begins a page by a call is followed by copies (A4).
    #[test]
    fn zeroes_follow_what_goes_over_old_bytes_on_large_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for page_bytes in [16 << 10, PAGE_BYTES_MAX] {
            std::fs::write(&path, vec![b'o'; 4 << 16]).unwrap();
            let file = OsAppendFile { page_bytes, ..OsAppendFile::write_over(&path).unwrap() };
            file.preallocate(4 << 16).unwrap();
            while file.len() < 3 << 16 {
                file.append(&[&[b'n'; 1000]]).unwrap();
                let len = file.len() as usize;
                let found = std::fs::read(&path).unwrap();
                assert_eq!(found[len..][..COMMIT_BYTES], [0; COMMIT_BYTES], "at {len} of pages of {page_bytes}");
            }
        }
    }

    /// Goal: a name that stands for another file by now is not what is synced.
    #[test]
    fn a_file_that_lost_its_name_is_synced_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let file = begun(&dir);
        std::fs::rename(file.path(), dir.path().join("other")).unwrap();
        std::fs::write(file.path(), b"of somebody else").unwrap();
        file.sync().unwrap();
        assert!(file.beside.get().unwrap().is_none());
    }

    /// Goal: after one sync failed, none says that all is well.
    #[test]
    fn a_sync_after_one_that_failed_fails() {
        let dir = tempfile::tempdir().unwrap();
        let file = begun(&dir);
        file.sync().unwrap();
        file.has_failed.store(true, Ordering::Release);
        assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::Other);
    }
}
