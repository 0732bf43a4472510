//! A simulated machine: a disk in memory that loses power, fails calls and flips bits on request, a clock that
//! stands still until somebody waits for it, and entropy that repeats. Same calls, same answers, on every machine.
//!
//! # What survives
//!
//! Each file has a *live* image, which the processes of the simulated machine see, and a *durable* one, which is what
//! a power loss leaves. Both belong to the file, not to its names: hard links share them.
//!
//! - D1: the bytes of a file become durable by [`sync`](crate::AppendFile::sync) of that file, and by nothing else.
//! - D2: the names of a directory become durable by [`sync_dir`](crate::FileSystem::sync_dir) of that directory, and
//!   by nothing else; a file of which no name is durable is gone after a power loss, however often it was synced, and
//!   so is everything below a directory whose own name is not durable.
//! - D3: a file whose removal is not durable comes back.
//! - D4: a failed sync drops the bytes it should have made durable. They stay readable until the power goes (but see D8), and no
//!   later sync makes them durable; what the device had got to before it failed may be there nevertheless (S6).
//! - D5: a failed `sync_dir` leaves the names as they were: pending.
//! - D6: the death of a process loses nothing but its locks and open handles: what was not synced stays unsynced.
//! - D7: of an append that it dies in, a beginning may be there that ends between two pages of the file, where the kernel looks
//!   for signals; in preallocated space, which is memory, any part behind the first [`COMMIT_BYTES`](crate::COMMIT_BYTES).
//! - D8: what a failed sync dropped may go from memory as well, page by page, [if so asked](SimDisk::evict_after_failed_syncs): at once, or
//!   when the process dies. Then whoever reads it, in windows too, finds what the device has: zeroes where the file grew. Its length stays.
//!
//! # What a power loss may keep ([`Survivors::Sample`])
//!
//! How likely each is, and whether it goes by the place of what survives, is drawn for each file, and once for all names.
//!
//! - S1: of a file, each unsynced 512-byte sector has its old or its new content, independently; the old content of a
//!   sector that was appended is zeroes.
//! - S2: its length is the durable one, the live one, or a sector boundary between the two.
//! - S3: each pending change of a name survives or not, independently of those of other names. Of one name a later
//!   change implies the earlier ones, as in every journal, so no chain of renames loses a file that was durable.
//! - S4: a rename is one change, between directories too: the old name or the new one, never both and never neither,
//!   and a sync of either directory makes all of it durable.
//! - S5: preallocated space makes a file longer, which S2 goes by: what survives of it behind the bytes that were appended
//!   is zeroes. A process that dies leaves all of it.
//! - S6: of the sectors that a failed sync dropped each may have its new content nevertheless.
//!
//! - S6: a recycled file has in its unsynced sectors what S1 says, where the old content is that of its earlier life. To who
//!   looks before a power loss, [`COMMIT_BYTES`](crate::COMMIT_BYTES) of zeroes follow what was appended, then the earlier life.
//!
//! # What else it does as a disk does
//!
//! - A file that lost its last name lives, and takes up space, while a handle is open.
//! - Space is counted in blocks of 4096 bytes. An append that does not fit leaves the part that does, then fails.
//! - Only whole blocks of a punched range are given back; the rest of it reads as zeroes.
//! - Paths have one root: relative ones begin there too.
//! - With [windows](SimDisk::lend_windows) files are memory where they were preallocated: a failed append moves no end, and what it got in,
//!   never all of it, lies behind, where the next one goes over it; none is cut off that somebody may be reading, which is what was appended
//!   until the file was sealed.
//!
//! # Counting
//!
//! Every attempt to change something is an operation with an index, from 0 on, whether or not it succeeds:
//! `create` (also by `lock`), `append`, `sync`, `truncate` (also by `reopen`, if it cuts), `preallocate`, `seal`, `rename`,
//! `link`, `remove`, `remove_dir`, `sync_dir`, `punch_hole`, `create_dir` (once for each directory that was missing).
//! `recycle` is a `rename` and a `sync_dir`. Every other call is a read, counted apart. So a healthy run tells with [`SimDisk::op_count`] how many places there
//! are to fail at, and [`SimDisk::die_after`] and [`SimDisk::fail_at`] name them.
//!
//! Cost: one lock around everything; an operation costs what it touches, never a copy of a file. A crash copies the
//! disk once.

mod clock;
mod content;
mod crash;
mod disk;
mod entropy;
mod faults;
mod file_system;
mod handle;
mod names;
mod tree;
mod window;

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use clock::SimClock;
pub use crash::Survivors;
pub use entropy::SeededEntropy;
pub use faults::{Fault, ReadFault};

use crate::os::OsThreads;
use crate::{Clock, Env};
use disk::Disk;

/// A simulated disk, with the machine around it. Cloning makes another handle to the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Mutex<Disk>,
    clock: Arc<SimClock>,
    entropy: Arc<SeededEntropy>,
}

impl SimDisk {
    /// An empty disk without limits. Its root directory is there and durable.
    pub fn new() -> Self {
        Self::from_parts(Disk::new(), SimClock::default(), SeededEntropy::default())
    }

    fn from_parts(disk: Disk, clock: SimClock, entropy: SeededEntropy) -> Self {
        let shared = Shared { disk: Mutex::new(disk), clock: Arc::new(clock), entropy: Arc::new(entropy) };
        Self { shared: Arc::new(shared) }
    }

    /// The machine around this disk: its own clock and entropy, and threads of the real system.
    pub fn env(&self) -> Env {
        Env {
            files: Arc::new(self.clone()),
            clock: self.clock(),
            threads: Arc::new(OsThreads),
            entropy: Arc::clone(&self.shared.entropy) as Arc<_>,
        }
    }

    /// The clock of this machine, to move its hand.
    pub fn clock(&self) -> Arc<SimClock> {
        Arc::clone(&self.shared.clock)
    }

    /// Operations so far, which is the index of the next one.
    pub fn op_count(&self) -> u64 {
        self.shared.disk.lock().schedule.op_count()
    }

    /// Reads so far, which is the index of the next one.
    pub fn read_count(&self) -> u64 {
        self.shared.disk.lock().schedule.read_count()
    }

    /// Lets the machine die once `n` operations are done, counted from the first this disk ever saw: operations `0..n`
    /// happen, and from then on every call fails with EIO and changes nothing, reads too. At once, if `n` are done.
    pub fn die_after(&self, n: u64) {
        self.shared.disk.lock().schedule.die_after(n);
    }

    /// The same, but should operation `n` be an append, `kept` of its bytes get in, as far as D7 allows: what a process leaves that
    /// is killed while it appends.
    pub fn die_within(&self, n: u64, kept: Range<usize>) {
        self.shared.disk.lock().schedule.die_within(n, kept);
    }

    /// Whether the machine has died by [`die_after`](Self::die_after).
    pub fn is_dead(&self) -> bool {
        self.shared.disk.lock().schedule.is_dead()
    }

    /// Lets the operation with index `n`, counted from the first this disk ever saw, fail once.
    pub fn fail_at(&self, n: u64, fault: Fault) {
        self.shared.disk.lock().schedule.fail_at(n, fault);
    }

    /// Lets every operation from that with index `n` on fail, until [`heal`](Self::heal); reads go on.
    pub fn fail_from(&self, n: u64, fault: Fault) {
        self.shared.disk.lock().schedule.fail_from(n, fault);
    }

    /// Lets the first sync of a file fail that is operation `n` or a later one.
    pub fn fail_next_sync(&self, n: u64, fault: Fault) {
        self.shared.disk.lock().schedule.fail_next_sync(n, fault);
    }

    /// Forgets all faults that are still to come. Does not bring the dead back.
    pub fn heal(&self) {
        self.shared.disk.lock().schedule.heal();
    }

    /// Lets the read with index `n`, counted from the first this disk ever saw, fail once.
    pub fn fail_read_at(&self, n: u64, fault: ReadFault) {
        self.shared.disk.lock().schedule.fail_read_at(n, fault);
    }

    /// Whether files that are opened from now on lend what is preallocated as [windows](crate::AppendFile::window), as those of the real system
    /// do. Off at first. The successors of this disk do as it does.
    pub fn lend_windows(&self, on: bool) {
        self.shared.disk.lock().has_windows = on;
    }

    /// Whether what a failed sync drops may be lost to those who read, too (D8), page by page as `seed` and the count of operations choose; `None`: it
    /// stays in memory. `None` at first. The successors of this disk do as it does.
    pub fn evict_after_failed_syncs(&self, seed: Option<u64>) {
        self.shared.disk.lock().evicts = seed;
    }

    /// Whether anything has been lost so to those who read, since the power came.
    pub fn has_evicted(&self) -> bool {
        self.shared.disk.lock().has_evicted
    }

    /// How much the files may take up from now on; `None` for no limit. Less than what they take up is a full disk.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.disk.lock().capacity = bytes;
    }

    /// The disk as the next start of the machine would find it, if the power went now. Independent of this one, which
    /// goes on. Its fault schedule is empty, its counts begin at 0; clock and entropy go on from where they are.
    pub fn after_power_loss(&self, survivors: Survivors) -> SimDisk {
        let disk = self.shared.disk.lock().after_power_loss(survivors);
        self.successor(disk)
    }

    /// The disk as the next process would find it, if all processes died now: everything live, unsynced as it is.
    /// Otherwise as [`after_power_loss`](Self::after_power_loss).
    pub fn after_process_death(&self) -> SimDisk {
        let disk = self.shared.disk.lock().after_process_death();
        self.successor(disk)
    }

    fn successor(&self, disk: Disk) -> SimDisk {
        Self::from_parts(disk, self.shared.clock.fork(), self.shared.entropy.fork())
    }

    /// Rots one bit of a file, in both images; bit 0 is the lowest of the first byte. `false` if there is no such bit.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> bool {
        let mut disk = self.shared.disk.lock();
        disk.content_mut(path).is_some_and(|content| content.flip_bit(bit))
    }

    /// The live image of a file; `None` if there is none at `path`. Neither an operation nor a read; works on a dead
    /// machine.
    pub fn file_bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let mut disk = self.shared.disk.lock();
        disk.content_mut(path).map(|content| content.to_vec())
    }

    /// Makes `bytes` the content of the file at `path`, live and durable, with its name and the directories above it;
    /// nothing happens if a directory has that name, or a file that of a directory above. Neither an operation nor a read.
    pub fn overwrite(&self, path: &Path, bytes: Vec<u8>) {
        self.shared.disk.lock().overwrite(path, bytes);
    }

    /// Every file, in order. Neither an operation nor a read.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.shared.disk.lock().paths()
    }

    /// Feeds `hasher` what processes of this machine find: the disk's names, links, bytes, lengths and holes, but not what of them is durable,
    /// and the time. Neither an operation nor a read.
    pub fn hash_live<H: Hasher>(&self, hasher: &mut H) {
        self.shared.clock.monotonic().hash(hasher);
        self.shared.disk.lock().tree.hash_live(hasher);
    }

    /// Starts or stops writing down the operations.
    pub fn set_tracing(&self, on: bool) {
        self.shared.disk.lock().schedule.set_tracing(on);
    }

    /// The operations written down so far, each on a line that begins with its index.
    pub fn trace(&self) -> Vec<String> {
        self.shared.disk.lock().schedule.trace()
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A thread that panics while it holds the lock must still be able to print the disk.
        match self.shared.disk.try_lock() {
            Some(disk) => write!(f, "SimDisk {{ {} operations }}", disk.schedule.op_count()),
            None => f.write_str("SimDisk { busy }"),
        }
    }
}
