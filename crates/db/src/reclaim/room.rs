//! How much may still be written: what the store takes up on the disk, what it may take up, and who waits for more.
//!
//! - W1: what tables, blob files, unfinished work, logs and memtables take up, or will, stays within `max_space_amp` of what lives, and
//!   one blob file: writers that would go beyond wait as long as reclaim gets on, and leave room for a pass that writes little. (Logs and memtables are not counted as far as they are
//!   more than half of what may be taken above what lives, as in a store of little else. Of tables, what leads to values in blob files counts as
//!   garbage does, up to a quarter of that.) Where all values lie with their keys there is no such
//!   bound: no pass could keep it, and a compaction has all that it merges there twice until it ends. What only
//!   readers keep (iterators, values that are held) is not counted: no work of the store's could free it, and whoever waits may be
//!   the one who holds it.
//! - W2: all files together stay within `max_disk_bytes`: the file system itself refuses more ([`Metered`](esker_env::metered)).
//! - W3: before it comes to that, or to a full disk, writes are refused: with `Exhausted`, once nothing is left that could be freed.
//!   Room is kept for the flush of every memtable and for a pass of reclaim over one blob file, none of which becomes too large for that on a
//!   small disk: so deletions and reclaim go on, and writes do, too, when there is room again. What deletions take of that is bounded
//!   ([`deletions`](super::deletions)).
//! - W4: work is counted with what it will write when it is picked, and writes, where little is left, from when they are let go ahead. Who looks
//!   what is left, and then takes of it, is alone in that.
//! - W5: who brings whole files asks for room as well, and leaves a part of it to writers. It begins when the bound is kept, since what it
//!   replaces becomes garbage, too. Until a version names the files, or they are given up,
//!   what they take up counts neither as living nor as garbage ([`incoming`](super::incoming)): it holds no writer back.
//! - W6: whoever waits gets an answer, whatever others write: once all was flushed on its behalf, and what that brought is done, and a few times
//!   little of what it lacks was freed, be it for others; or, where somebody is always at work, once others were let write many times
//!   what all ask for who wait: what goes ahead then, beyond the bound, is a small part of that, however many they are.
//! - W7: what is kept is only reckoned with, and others may take it. A part of it lies on the disk as blocks that nobody else can have
//!   ([`Metered`](esker_env::metered), M3), and counts as free here.
//!
//! Cost: of a write, one atomic subtraction, and two more additions where little is left; every few MiB a look at all families.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use esker_env::metered::{Meter, RESERVE_BYTES};
use parking_lot::{Mutex, MutexGuard};

use super::deletions::{self, Deletions};
use super::incoming::Incoming;
use super::overwriting::SAMPLE_BYTES;
use super::{hidden_bytes, next_pass_bytes};
use crate::compaction::PARTS_MAX;
use crate::events::WaitCause;
use crate::family::Family;
use crate::options::{ReclaimMode, Separation};
use crate::store::{Installer, KeptOut, State, Store};
use crate::version::Version;
use crate::write::Request;
use crate::{Error, ErrorKind, Result};

/// Writers look again after this part of what may be taken above what lives, within these bounds: what they were let write, no pass that
/// begins meanwhile can have.
const CREDIT_PART: u64 = 64;
const CREDIT_BYTES_MIN: i64 = 1 << 20;
const CREDIT_BYTES_MAX: i64 = 16 << 20;
/// Writers leave at most this part of what may be taken above what lives for the next pass.
const NEXT_PASS_PART: u64 = 4;
/// A user's byte may come three times before anything goes: into the log, by a flush, and with what the tables need.
pub(super) const COPIES: i64 = 3;
/// Writes are counted while they are on their way (W4) once no more than this is left: far more than could be on its way before.
const NEAR_BYTES: i64 = 1 << 30;
/// What may be written where the bound cannot be kept, since reclaim finds nothing to do.
const GRACE_BYTES: i64 = 1 << 20;
/// What leads to values counts for garbage up to this part of what may be taken above what lives: where values are tiny, it is more.
const OVERHEAD_PART: u64 = 4;
/// A blob file is at most this part of what all files may take up, where it takes no less than that: room for one is kept for what a pass copies.
pub(super) const FILES_MIN: u64 = 64;
const FILE_BYTES_MIN: u64 = 64 << 10;

/// Who writes at full speed waits again before this is over.
const PRESSED: Duration = Duration::from_millis(100);

/// Who waits was brought nearer to what it wants by this part of what it lacked.
const NEARER_PART: i64 = 16;
/// And gives up once it had what is hidden brought to light so often without that: others may have hidden more just after the first time.
const TRIES_MAX: u32 = 3;
/// And lets others go ahead with so many times what all ask for who wait: each has its turn many times before somebody goes beyond the bound.
const TURNS_MAX: i64 = 16;

/// File systems hand out so much at a time, and so each file of a pass may take so much more than it holds.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Where values lie with their keys, deletions come to take effect by ordinary compactions, step by step (P7 of
/// [`compaction`](crate::compaction)): room is kept for as many tables as a step writes, and for the largest there is and what it meets, up to so many
/// memtables. With no level between level 0 and the deepest there are no steps: then for all.
const TABLES_MAX: u64 = 12;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Room {
    /// `None` in a store open for reading only, or under repair.
    meter: Option<Arc<Meter>>,
    /// There: what its files took up when it was last looked.
    at_rest: AtomicU64,
    /// Bytes that writers may write before they look again.
    credit: AtomicI64,
    /// Bytes that they were let write, the credit included, ever.
    granted: AtomicI64,
    deletions: Deletions,
    /// What those who wait want of the disk: what they ask for, and what is to be left beside that.
    wanted: AtomicI64,
    /// What they ask for: what they would take.
    asked: AtomicI64,
    /// Held by who looks what is left, and takes of it (W4). Taken after the store's `state`.
    looking: Mutex<()>,
    /// Bytes of writes that were let go ahead and are not in memtables yet, as far as they are counted.
    on_their_way: AtomicI64,
    /// Whether they are.
    is_near: AtomicBool,
    /// What all files together may take up, as the options and the file system said lately.
    bytes_max: AtomicU64,
    /// See W4.
    reserved: Arc<AtomicU64>,
    /// What passes that are under way were reckoned to write, whatever of it they have written.
    passes: Arc<AtomicU64>,
    /// Writers wait for space on the disk: whatever can be freed shall be.
    is_short: AtomicBool,
    /// Bytes of obsolete files that were still there when work last let go of what it had read: readers have them.
    held: AtomicU64,
    /// Writers that wait for reclaim.
    waiting: AtomicUsize,
    /// Until when it counts as if they still did, in milliseconds of the monotonic clock.
    pressed_until: AtomicU64,
    /// The last write when everything was done that could free something, plus one.
    squeezed_at: Mutex<u64>,
    /// How often it was looked what is left.
    #[cfg(test)]
    pub(crate) looks: AtomicUsize,
}

/// What may still be written; negative where it is too much already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// Until the disk, or `max_disk_bytes`, is full but for what is kept.
    pub(crate) disk: i64,
    /// Until the store takes more than `max_space_amp` allows.
    pub(crate) bound: i64,
    /// What a pass may write before the disk is full, what is kept for it included, but not what writers were let write already.
    pub(crate) pass: i64,
    /// How much more than what lives the store may take.
    pub(crate) slack: u64,
    /// What writers leave of the bound for the next pass over a range of keys.
    pub(crate) next_pass: i64,
    /// What deletions take in tables.
    pub(crate) deletion_bytes: i64,
}

impl Left {
    /// What writers may take at once, at most.
    fn credit_bytes(&self) -> i64 {
        signed(self.slack / CREDIT_PART).clamp(CREDIT_BYTES_MIN, CREDIT_BYTES_MAX)
    }
}

/// What a piece of work will still write (W4).
#[derive(Debug)]
pub(crate) struct Reserved {
    all: Arc<AtomicU64>,
    left: AtomicU64,
    /// Of a pass: the sum of those under way, and its part of that.
    pass: Option<(Arc<AtomicU64>, u64)>,
}

impl Reserved {
    /// So much of it is written.
    pub(crate) fn note_written(&self, bytes: u64) {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let (Ok(before) | Err(before)) = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        self.all.fetch_sub(bytes.min(before), Ordering::AcqRel);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.note_written(u64::MAX);
        if let Some((passes, bytes)) = &self.pass {
            passes.fetch_sub(*bytes, Ordering::AcqRel);
        }
    }
}

impl Room {
    pub(crate) fn new(meter: Option<Arc<Meter>>) -> Self {
        let (credit, squeezed_at) = (AtomicI64::new(0), Mutex::default());
        let (bytes_max, is_short) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        Self {
            meter,
            at_rest: AtomicU64::new(0),
            credit,
            granted: AtomicI64::new(0),
            deletions: Deletions::default(),
            wanted: AtomicI64::new(0),
            asked: AtomicI64::new(0),
            looking: Mutex::default(),
            on_their_way: AtomicI64::new(0),
            is_near: AtomicBool::new(false),
            bytes_max,
            reserved: Arc::default(),
            passes: Arc::default(),
            is_short,
            held: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            pressed_until: AtomicU64::new(0),
            squeezed_at,
            #[cfg(test)]
            looks: AtomicUsize::new(0),
        }
    }

    /// Keeps others from taking of what is left, until it is dropped (W4).
    pub(crate) fn look(&self) -> MutexGuard<'_, ()> {
        self.looking.lock()
    }

    /// See W4.
    pub(crate) fn reserve(&self, bytes: u64) -> Reserved {
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
        Reserved { all: self.reserved.clone(), left: AtomicU64::new(bytes), pass: None }
    }

    /// The same for a pass over blob files: as long as it is under way, writers leave nothing for another.
    pub(crate) fn reserve_for_pass(&self, bytes: u64) -> Reserved {
        self.passes.fetch_add(bytes, Ordering::AcqRel);
        let mut reserved = self.reserve(bytes);
        reserved.pass = Some((self.passes.clone(), bytes));
        reserved
    }

    /// Bytes that work in progress will still write (W4).
    #[cfg(test)]
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Leaves nothing of what writers were let write.
    #[cfg(test)]
    pub(crate) fn take_back(&self) {
        self.credit.store(0, Ordering::Release);
    }

    /// What one file takes at most of a small disk, but for those that others made so.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        (self.bytes_max.load(Ordering::Relaxed) / FILES_MIN).max(FILE_BYTES_MIN)
    }

    /// What whole files that come in leave to writers of the disk (W5).
    fn of_writers(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed) / FILES_MIN
    }

    /// Whether whatever can be freed shall be.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Whether deletions, which need no room to go ahead, had better be flushed. Says so once.
    #[inline]
    pub(crate) fn has_deletions_to_flush(&self) -> bool {
        self.is_near.load(Ordering::Relaxed) && self.deletions.is_to_flush(self.bytes_max.load(Ordering::Relaxed))
    }

    /// Deletions became so many tables.
    pub(crate) fn note_flushed(&self, tables: u64) {
        if self.is_near.load(Ordering::Relaxed) {
            self.deletions.note_flushed(tables);
        }
    }

    /// Takes back what writers were let write, and have not written.
    fn withdraw(&self) -> i64 {
        let credit = self.credit.swap(0, Ordering::AcqRel);
        self.granted.fetch_sub(credit.max(0), Ordering::Relaxed);
        credit
    }

    /// Lets one write so many bytes, and whoever comes next so many more.
    fn grant(&self, bytes: i64, more: i64) {
        self.granted.fetch_add(bytes.saturating_add(more), Ordering::Relaxed);
        self.credit.store(more, Ordering::Release);
    }

    /// Who looked in vain leaves others what they were let write, as far as it is still there: they need not look for that.
    fn give_back(&self, credit: i64, left: i64) {
        let back = credit.min(left).max(0);
        self.granted.fetch_add(back, Ordering::Relaxed);
        self.credit.fetch_add(back, Ordering::AcqRel);
    }

    /// Bytes that went to writers, ever, and to files that come in as far as they take as much: by this, who waits sees what went to others.
    fn taken(&self) -> i64 {
        self.granted.load(Ordering::Relaxed).saturating_sub(self.credit.load(Ordering::Relaxed).max(0))
    }

    /// Says what was found. Whether deletions have gone.
    fn note_left(&self, left: &Left) -> bool {
        self.is_short.store(left.disk <= self.wanted.load(Ordering::Acquire), Ordering::Relaxed);
        self.is_near.store(left.disk < NEAR_BYTES, Ordering::Relaxed);
        self.deletions.note_left(left, self.bytes_max.load(Ordering::Relaxed))
    }

    /// A write is on its way.
    fn admit(&self, bytes: i64) -> Admitted<'_> {
        self.on_their_way.fetch_add(bytes, Ordering::AcqRel);
        Admitted { room: self, bytes }
    }

    /// Work has let go of what it read: what is still held, of `bytes`, readers hold.
    pub(crate) fn note_held(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Release);
    }

    /// Whether somebody waits for reclaim.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody does, or did a moment ago.
    pub(crate) fn is_pressed(&self, now: Duration) -> bool {
        self.is_awaited() || now.as_millis() < u128::from(self.pressed_until.load(Ordering::Relaxed))
    }

    /// Somebody waits, or has just waited.
    pub(crate) fn note_pressed(&self, now: Duration) {
        let until = u64::try_from((now + PRESSED).as_millis()).unwrap_or(u64::MAX);
        self.pressed_until.store(until, Ordering::Relaxed);
    }

    /// Whether the files in the store's directory may take up no more than so much.
    pub(crate) fn is_limited(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.limit() < u64::MAX)
    }

    /// Has what an earlier process left behind of the room for when others have filled the disk.
    pub(crate) fn take_over_ballast(&self) {
        if let Some(meter) = &self.meter {
            meter.take_over_ballast();
        }
    }

    /// Keeps room for when others have filled the disk, from now on (W7).
    pub(crate) fn begin_ballast(&self) {
        if let Some(meter) = &self.meter {
            meter.begin_ballast();
            meter.keep_ballast();
        }
    }

    /// Takes of it what there is room for. Cost: a call.
    pub(crate) fn keep_ballast(&self) {
        if let Some(meter) = &self.meter {
            meter.keep_ballast();
        }
    }

    /// The manifest has so many bytes: with OPTIONS and the like, the next open writes no more.
    pub(crate) fn note_manifest(&self, bytes: u64) {
        if let Some(meter) = &self.meter {
            meter.note_vital(bytes.saturating_add(RESERVE_BYTES / 2));
        }
    }

    /// Keeps none any more.
    pub(crate) fn end_ballast(&self) {
        if let Some(meter) = &self.meter {
            meter.end_ballast();
        }
    }

    /// How much that is.
    fn ballast_bytes(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.ballast_bytes())
    }

    /// Bytes that the files in the store's directory take up.
    pub(crate) fn used(&self) -> u64 {
        self.meter.as_ref().map_or_else(|| self.at_rest.load(Ordering::Relaxed), |meter| meter.used())
    }
}

/// A write that was let go ahead, until it is done (W4).
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    room: &'a Room,
    /// As far as it is counted.
    bytes: i64,
}

impl Drop for Admitted<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.on_their_way.fetch_sub(self.bytes, Ordering::AcqRel);
        }
    }
}

/// What somebody asks for of the disk, and wants to be left `beside` that, until it has it or gives up.
#[derive(Debug)]
struct Wanted<'a> {
    room: &'a Room,
    asked: i64,
    beside: i64,
}

impl<'a> Wanted<'a> {
    fn of(room: &'a Room, asked: i64, beside: i64) -> Self {
        let wanted = Self { room, asked, beside };
        room.wanted.fetch_add(wanted.bytes(), Ordering::AcqRel);
        room.asked.fetch_add(asked, Ordering::AcqRel);
        wanted
    }

    fn bytes(&self) -> i64 {
        self.asked.saturating_add(self.beside)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.room.wanted.fetch_sub(self.bytes(), Ordering::AcqRel);
        self.room.asked.fetch_sub(self.asked, Ordering::AcqRel);
    }
}

/// How often somebody who waits had what is hidden brought to light, and whether that freed anything (W6).
#[derive(Debug)]
struct Squeezed {
    /// What is left, and what went to others, is more than this if enough was freed since the last time.
    enough: i64,
    in_vain: u32,
}

impl Default for Squeezed {
    fn default() -> Self {
        Self { enough: i64::MIN, in_vain: 0 }
    }
}

impl Squeezed {
    /// Whether it is worth another try, where so much of what is `wanted` is left, and so much has been `taken`, ever.
    fn tries_again(&mut self, wanted: i64, left: i64, taken: i64) -> bool {
        let freed = left.saturating_add(COPIES.saturating_mul(taken));
        self.in_vain += u32::from(freed <= self.enough);
        // Of what is lacking, which may be far more than what little is asked for.
        self.enough = freed.saturating_add(wanted.saturating_sub(left).max(wanted) / NEARER_PART);
        self.in_vain < TRIES_MAX
    }
}

/// What `max_disk_bytes` means to the meter.
pub(crate) const fn limit_of(max_disk_bytes: u64) -> u64 {
    if max_disk_bytes > 0 { max_disk_bytes } else { u64::MAX }
}

/// What of a version's tables only leads to values in blob files, as far as one can tell from how many there are of each kind.
fn pointing_bytes(version: &Version, of_tables: u64) -> u64 {
    let entries = version.table_sums().entries;
    let pointing = version.ledger().total().live_count().min(entries);
    (of_tables as f64 * pointing as f64 / entries.max(1) as f64) as u64
}

/// How many tables come of so many, of so many bytes: a large one, as flushes and merges within level 0 leave it, is cut.
pub(super) fn tables_made(family: &Family, tables: usize, bytes: u64) -> u64 {
    (tables as u64).max(bytes.div_ceil(family.table_bytes().max(1)))
}

/// What blocks round up where so many tables of `table_bytes` are written, and so many bytes of values: to blob files for each range of keys, by each
/// thread.
pub(crate) fn rounding_bytes(family: &Family, tables: usize, table_bytes: u64, moved_bytes: u64) -> u64 {
    let blobs = match moved_bytes {
        0 => 0,
        bytes => bytes / family.blob_file_bytes().max(1) + 2 * family.ranges.count() as u64 + PARTS_MAX,
    };
    (tables_made(family, tables, table_bytes) + blobs + PARTS_MAX) * BLOCK_BYTES
}

pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Store {
    /// Asks the file system how much room there is: in a store open for reading only, how much there would be for who writes to it.
    pub(crate) fn refresh_room(&self) {
        let limit = match (&self.room.meter, self.options().max_disk_bytes) {
            (Some(meter), _) => meter.limit(),
            (None, limit) if self.read_only && limit > 0 => limit,
            (None, _) => u64::MAX,
        };
        if self.read_only {
            self.room.at_rest.store(self.on_disk().total_bytes(), Ordering::Relaxed);
        }
        self.room.keep_ballast();
        // A file system that does not say is taken for large enough: it refuses by itself.
        let available = self.env.files.space(&self.dir).map_or(u64::MAX, |space| space.available);
        let most = limit.min(self.room.used().saturating_add(available));
        self.room.bytes_max.store(most, Ordering::Relaxed);
        for family in self.families.load().values() {
            family.set_file_bytes_max(self.room.file_bytes_max());
        }
    }

    /// All files may soon take up `wanted` bytes, 0 for no limit, in place of `known`: [`set_disk_limit`](Self::set_disk_limit) makes it that, or what it was. Until then, of what is
    /// more only what says so may be written, and nobody has what is less.
    ///
    /// # Errors
    /// `InvalidArgument`: less, and writes would have no room any more; it is as before.
    pub(crate) fn begin_disk_limit(&self, known: u64, wanted: u64, installer: &Installer) -> Result<()> {
        if limit_of(wanted) >= limit_of(known) {
            if let Some(meter) = &self.room.meter {
                meter.set_vital_limit(limit_of(wanted));
            }
            return Ok(());
        }
        let left = self.set_disk_limit(wanted, installer);
        if left > 0 {
            return Ok(());
        }
        self.set_disk_limit(known, installer);
        let missing = left.unsigned_abs();
        let used = self.room.used();
        let reason = format!(
            "max_disk_bytes cannot become {wanted}: the store takes up {used} bytes, and compactions and flushes would lack {missing} more; free some first"
        );
        Err(Error::invalid_argument(reason))
    }

    /// Makes it so many bytes that all files may take up, whatever that leaves: which is returned.
    pub(crate) fn set_disk_limit(&self, max_disk_bytes: u64, installer: &Installer) -> i64 {
        let _alone = self.room.look();
        if let Some(meter) = &self.room.meter {
            meter.set_limit(limit_of(max_disk_bytes));
        }
        self.refresh_room();
        self.refresh_manifest_growth(installer);
        self.left_afresh().disk
    }

    /// Whoever wanted more of the disk than is left may have gone: then less is freed for it.
    pub(crate) fn refresh_shortage(&self) {
        if self.room.is_short() {
            let _alone = self.room.look();
            self.room.note_left(&self.left());
        }
    }

    /// See [`Left`].
    pub(crate) fn left(&self) -> Left {
        #[cfg(test)]
        self.room.looks.fetch_add(1, Ordering::Relaxed);
        let used = self.room.used();
        let reserved = self.room.reserved.load(Ordering::Acquire);
        let (mut live, mut tables, mut unflushed, mut pass, mut file_bytes) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let (mut has_blobs, mut values_unflushed, mut overhead, mut coming) = (false, 0u64, 0u64, 0u64);
        let (mut logged, mut flushed_next, mut deletion_bytes) = (0u64, 0u64, 0i64);
        for family in self.families.load().values() {
            let view = family.view.load();
            let version = &view.version;
            let of_blobs = version.ledger().total().live_bytes();
            let hidden = (hidden_bytes(version) as f64 * family.overwriting.part()) as u64;
            let of_tables = version.table_sums().bytes;
            deletion_bytes = deletion_bytes.saturating_add(signed(version.table_sums().deletion_bytes));
            let coming_in = family.coming.sizes();
            coming += coming_in.all();
            // Values that were just written are not known to live; as many as are new do.
            let written: u64 = view.generations().map(|generation| generation.blobs.bytes()).sum();
            // Where values come home, tables hold them.
            let falls_back = family.separation() == Separation::FallBack;
            overhead += if falls_back { 0 } else { pointing_bytes(version, of_tables) };
            live += of_blobs.saturating_sub(hidden) + (written as f64 * (1.0 - family.overwriting.part())) as u64;
            tables += of_tables;
            let memtables = || view.generations().map(|held| held.memtable.allocated_bytes() as u64);
            let in_memory: u64 = memtables().sum();
            unflushed += in_memory;
            logged += view.active.memtable.allocated_bytes() as u64;
            has_blobs |= written > 0 || !version.blobs().is_empty();
            if family.separation().moves_out() || !version.blobs().is_empty() {
                values_unflushed += in_memory;
                flushed_next = flushed_next.max(memtables().max().unwrap_or(0));
            }
            file_bytes = file_bytes.max(family.blob_file_bytes());
            let all = version.table_sums().count;
            // Those that come in will have to be rewritten as those that are there.
            let to_rewrite = of_tables.saturating_add(coming_in.tables);
            let (bytes, made) = if falls_back || (version.blobs().is_empty() && coming_in.blobs == 0) {
                let most = family.table_bytes().saturating_mul(TABLES_MAX);
                // No more of a giant, as others may have made it, than of what our memtables leave.
                let largest = version.table_sums().bytes_max.saturating_mul(2);
                let largest = largest.min(family.memtable_bytes().saturating_mul(TABLES_MAX));
                let (most, small) = match family.options().level_count {
                    2 => (u64::MAX, u64::MAX),
                    _ => (most.saturating_add(largest), TABLES_MAX),
                };
                let bytes = to_rewrite.min(most);
                (bytes, rounding_bytes(family, 0, bytes, 0) + small.min(all as u64) * BLOCK_BYTES)
            } else {
                (to_rewrite, rounding_bytes(family, all, to_rewrite, family.blob_file_bytes()))
            };
            // A flush leaves a table, and a blob file for each range of keys.
            let flushed = view.generations().count() as u64 * (family.ranges.count() as u64 + 1);
            pass = pass.max(bytes + made);
            unflushed += flushed * BLOCK_BYTES;
        }
        live += tables;
        let amp = self.options().max_space_amp;
        let bounded = (live as f64 * amp) as u64;
        // What leads to values is no user's, as far as that leaves most of the room to garbage.
        let overhead = (overhead as f64 * amp) as u64;
        // The last quarter is for what the estimate of what lives is off by, and for passes that begin while writers go on.
        let limit = bounded.saturating_add(file_bytes / 4 * 3);
        let limit = limit - overhead.min(limit.saturating_sub(live) / OVERHEAD_PART);
        let logs = self.space_of_logs();
        let held = self.trash.held_bytes().min(self.room.held.load(Ordering::Acquire));
        let ours = used.saturating_sub(held).saturating_sub(coming);
        let most = self.room.bytes_max.load(Ordering::Relaxed);
        let on_their_way = COPIES * self.room.on_their_way.load(Ordering::Acquire);
        // Some of it may take what only such files may take.
        unflushed += self.manifest_growth.load(Ordering::Relaxed).saturating_sub(RESERVE_BYTES / 2);
        let after_flushes = signed(most) - signed(used) - signed(reserved) - signed(unflushed) - on_their_way;
        // Logs, and what becomes of memtables; they leave a small store half of what it may take.
        let slack = limit.saturating_sub(live);
        let punches = self.options().punch_holes;
        let next_pass = |family: &Arc<Family>| next_pass_bytes(family, &family.view.load().version, slack, punches);
        // Where most of the tables lead to no blob file a range of them may be more than there is.
        let next_pass = self.families.load().values().map(next_pass).max().unwrap_or(0).min(slack / NEXT_PASS_PART);
        // While one is under way, it is that one.
        let next_pass = next_pass.saturating_sub(self.room.passes.load(Ordering::Acquire));
        // A memtable has become files before its log goes, and half a log from now the next one is begun.
        let next_log = match self.spare_log_bytes.load(Ordering::Acquire) {
            0 => self.log_bytes().min(logged.saturating_mul(2)),
            _ => 0,
        };
        let beside = (logs.max(values_unflushed) + next_log + flushed_next).min(slack / 2);
        Left {
            // Nobody writes into the ballast but those that this is kept for, whatever is less.
            disk: after_flushes.saturating_sub(
                (signed(pass + file_bytes) + deletions::kept_bytes(most)).max(signed(self.room.ballast_bytes())),
            ),
            pass: after_flushes.saturating_sub(COPIES * self.room.credit.load(Ordering::Relaxed).max(0)),
            bound: match has_blobs {
                true => signed(limit) - signed(ours.saturating_sub(logs)) - signed(reserved) - signed(beside),
                false => i64::MAX,
            },
            slack,
            next_pass: signed(next_pass),
            deletion_bytes,
        }
    }

    /// The same once writers have to look again before they write more.
    pub(crate) fn left_afresh(&self) -> Left {
        self.room.withdraw();
        self.left()
    }

    /// How much that is of what it may take up, and what says so.
    fn most(&self) -> String {
        let (most, limit) = (self.room.bytes_max.load(Ordering::Relaxed), self.options().max_disk_bytes);
        match self.room.meter.as_ref().is_some_and(|meter| limit > 0 && meter.limit() == most) {
            true => format!("of {limit} (max_disk_bytes)"),
            false => format!("of {most} that the disk has for it"),
        }
    }

    /// That there is none, for what it was wanted.
    pub(super) fn no_room(&self, wanted: &str) -> Error {
        let (used, most) = (self.room.used(), self.most());
        let reason = format!(
            "the store takes up {used} bytes {most}, and there is no room {wanted}: the rest is for flushes, deletions and reclaim; delete \
             something, raise max_disk_bytes or make room on the disk"
        );
        Error::no_room(reason).with_path(&self.dir)
    }

    /// That there is none for deletions, either.
    fn no_room_for_deletions(&self) -> Error {
        let (used, most, held) = (self.room.used(), self.most(), self.trash.held_bytes());
        let reason = format!(
            "the store takes up {used} bytes {most}, and there is no room for these deletions: those before have freed nothing yet, or they are too many at \
             once; delete less at a time, close iterators and drop values (they hold {held} bytes) and snapshots, raise max_disk_bytes or make \
             room on the disk"
        );
        Error::no_room(reason).with_path(&self.dir)
    }

    /// What logs take up, the blocks ahead of the active one, and one that was made ahead of time, included.
    fn space_of_logs(&self) -> u64 {
        let largest = self.families.load().values().map(|family| family.memtable_bytes()).max().unwrap_or(0);
        self.sealed_wal_bytes.load(Ordering::Relaxed) + largest + self.spare_log_bytes.load(Ordering::Acquire)
    }

    /// Lets a write go ahead, or makes it wait; see W1 and W3. Called before it joins the queue, so that who waits keeps nobody
    /// with a deletion from going ahead.
    ///
    /// # Errors
    /// `Exhausted`: there is no room, nor anything to free. What keeps writers out in any case.
    #[inline]
    pub(crate) fn admit(&self, request: &Request) -> Result<Admitted<'_>> {
        let bytes = signed(request.user_bytes() as u64);
        let is_near = self.room.is_near.load(Ordering::Relaxed);
        let admitted = Admitted { room: &self.room, bytes: if is_near { bytes } else { 0 } };
        if is_near {
            // Before it takes of what is left: whoever looks after that finds it.
            self.room.on_their_way.fetch_add(bytes, Ordering::AcqRel);
        }
        let before = self.room.credit.fetch_sub(bytes, Ordering::AcqRel);
        if before / SAMPLE_BYTES != before.saturating_sub(bytes) / SAMPLE_BYTES {
            self.sample_overwriting(request);
        }
        if before > bytes {
            return Ok(admitted);
        }
        let only_deletes = request.only_deletes();
        if only_deletes && self.room.deletions.go_ahead(bytes, self.room.bytes_max.load(Ordering::Relaxed)) {
            return Ok(admitted);
        }
        // Whoever waits is not on the way.
        drop(admitted);
        self.wait_for_room(bytes, only_deletes)
    }

    #[cold]
    fn wait_for_room(&self, bytes: i64, only_deletes: bool) -> Result<Admitted<'_>> {
        let began = self.env.clock.monotonic();
        let asked = COPIES.saturating_mul(bytes.saturating_add(1));
        let tries = Cell::new(0);
        let result = self.wait_until(asked, 0, |is_last| {
            tries.set(tries.get() + 1);
            if only_deletes { self.take_for_deletion(bytes) } else { self.take(bytes, is_last) }
        });
        let result = result.map_err(|error| match error.kind() {
            ErrorKind::Exhausted if only_deletes => self.no_room_for_deletions(),
            _ => error,
        });
        if tries.get() > 1 {
            self.note_wait(WaitCause::Space, began);
        }
        result
    }

    /// Makes room for `bytes` more of what comes in, or waits for it; see W5.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn let_in(&self, incoming: &Incoming, bytes: u64) -> Result<Reserved> {
        let begins = incoming.sizes().all() == 0;
        self.refresh_room();
        self.wait_until(signed(bytes), signed(self.room.of_writers()), |is_last| {
            self.take_for_files(bytes, begins && !is_last)
        })
    }

    /// Waits until `take` has got what is `asked` for of the disk, where so much is to be left `beside` it. It is told when the bound need not
    /// be heeded any more: nothing can be freed, or others were let write many times what all ask for meanwhile, and would for ever (W6).
    fn wait_until<T>(&self, asked: i64, beside: i64, take: impl Fn(bool) -> Option<T>) -> Result<T> {
        let wanted = Wanted::of(&self.room, asked, beside);
        let (began, mut is_last, mut squeezed) = (self.room.taken(), false, Squeezed::default());
        // What several writers take at once, who wait for as little as a byte.
        let mut asked_by_all = (4 * self.left().credit_bytes()).min(CREDIT_BYTES_MAX);
        loop {
            self.check_takes_writes()?;
            let to_others = self.room.taken().saturating_sub(began);
            // Whoever had its turn just now is about to wait again.
            asked_by_all = asked_by_all.max(self.room.asked.load(Ordering::Acquire));
            let most = asked_by_all.saturating_mul(TURNS_MAX);
            if let Some(taken) = take(is_last || to_others >= most) {
                return Ok(taken);
            }
            // All that there was to free has gone to others.
            let is_in_vain = is_last || to_others >= most.max(signed(self.room.used()));
            // What the last reader of a version lets go of is found only now.
            if is_in_vain && !self.trash.is_filled() {
                return Err(self.no_room("for more"));
            }
            self.room.waiting.fetch_add(1, Ordering::Relaxed);
            // What was freed since it was last looked counts.
            is_last = !self.get_on(wanted.bytes(), &mut squeezed);
            self.room.note_pressed(self.env.clock.monotonic());
            self.room.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes of what is left, if it is enough; if it `is_last` to look, as nothing can be freed, in spite of the bound.
    fn take(&self, bytes: i64, is_last: bool) -> Option<Admitted<'_>> {
        let _alone = self.room.look();
        // Somebody may have come before; whoever takes of it now is counted, or waits.
        let credit = self.room.withdraw();
        if credit > bytes {
            self.room.grant(bytes, credit - bytes);
            return Some(self.room.admit(bytes));
        }
        self.refresh_room();
        let left = self.left();
        let (on_disk, for_writers) = (left.disk / COPIES, self.for_writers(&left) / COPIES);
        self.room.note_left(&left);
        let more = for_writers.saturating_sub(bytes);
        if more > 0 {
            self.room.grant(bytes, more.min(left.credit_bytes()));
            return Some(self.room.admit(bytes));
        }
        if on_disk <= bytes || !is_last {
            self.room.give_back(credit, for_writers);
            return None;
        }
        // Nothing is left to reclaim: what is reckoned too much lives, or somebody reads it.
        self.room.grant(bytes, GRACE_BYTES.min(on_disk - bytes));
        Some(self.room.admit(bytes))
    }

    /// Lets a deletion go ahead if those before it have gone (D2 of [`deletions`](super::deletions)).
    fn take_for_deletion(&self, bytes: i64) -> Option<Admitted<'_>> {
        let _alone = self.room.look();
        self.refresh_room();
        let left = self.left();
        let have_gone = self.room.note_left(&left);
        let has_room = Deletions::have_room(&left, bytes, self.room.bytes_max.load(Ordering::Relaxed));
        (have_gone && has_room).then(|| {
            self.room.deletions.take(bytes);
            self.room.admit(bytes)
        })
    }

    /// Takes of what is left for files that come in, if it is enough, and if the bound is kept where that is asked for.
    fn take_for_files(&self, bytes: u64, keeps_bound: bool) -> Option<Reserved> {
        let _alone = self.room.look();
        let credit = self.room.withdraw();
        self.refresh_room();
        let left = self.left();
        self.room.note_left(&left);
        let is_short = left.disk.saturating_sub(signed(self.room.of_writers())) <= signed(bytes);
        let is_beyond = keeps_bound && self.options().reclaim_mode == ReclaimMode::Auto && left.bound <= 0;
        if is_short || is_beyond {
            self.room.give_back(credit, self.for_writers(&left) / COPIES);
            return None;
        }
        // A file's bytes come once.
        self.room.grant(signed(bytes) / COPIES, 0);
        Some(self.room.reserve(bytes))
    }

    /// What writers may take of what is left: where reclaim waits for the user, whatever the bound is.
    fn for_writers(&self, left: &Left) -> i64 {
        match self.options().reclaim_mode {
            ReclaimMode::Auto => left.disk.min(left.bound - left.next_pass),
            _ => left.disk,
        }
    }

    /// Waits for work that may free something, or has it done; `false` if there is none, or if it fails: the state of the store
    /// says why, and whoever waits goes on without what it would have freed.
    fn get_on(&self, wanted: i64, squeezed: &mut Squeezed) -> bool {
        if self.background_jobs == 0 && self.run_due_work().is_err() {
            return false;
        }
        match self.wait_for_work() {
            Some(waited) => waited,
            None => self.squeeze(wanted, squeezed),
        }
    }

    /// Waits a moment while somebody is at work; `Some(false)` if what they need fails, `None` if nobody is.
    fn wait_for_work(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if state.flush_error.is_some() {
            return Some(false);
        }
        self.note_room_came(&mut state);
        if !self.may_free(&state) {
            return None;
        }
        if !state.is_at_work() && (state.can_begin() || self.trash.is_filled()) {
            self.changed.notify_all();
        }
        self.changed.wait_for(&mut state, Duration::from_millis(50));
        Some(true)
    }

    /// Whether somebody frees something, or is about to.
    fn may_free(&self, state: &State) -> bool {
        let is_due = self.background_jobs > 0 && (state.is_due() || self.trash.is_filled());
        is_due || state.is_at_work()
    }

    /// What is in memory hides what it overwrites, and reclaim may have had too little reason to look. `false` if nothing was written since
    /// that was last tried, or if it freed too little of what whoever asks lacks of what is `wanted` too often: others who write need not end first.
    fn squeeze(&self, wanted: i64, squeezed: &mut Squeezed) -> bool {
        // Others wait here until it is tried, and then elsewhere for the work that it brought.
        let mut tried_at = self.room.squeezed_at.lock();
        if self.may_free(&self.state.lock()) {
            return true;
        }
        let (now, left) = (self.visible().get() + 1, self.for_writers(&self.left()));
        if *tried_at == now || !squeezed.tries_again(wanted, left, self.room.taken()) {
            return false;
        }
        *tried_at = now;
        let ids: Vec<u32> = self.families.load().keys().copied().collect();
        if self.flush(&ids).is_err() {
            return false;
        }
        self.note_all_versions();
        self.changed.notify_all();
        self.background_jobs > 0 || self.run_due_work().is_ok()
    }
}

impl State {
    /// Whether something is being done that may free space. What failed last is tried again and again: nobody waits for that.
    fn is_at_work(&self) -> bool {
        let is_compacting = self.compaction_error.is_none() && (self.compacting > 0 || self.helping > 0);
        is_compacting || !self.flushing.is_empty() || self.purging > 0
    }

    /// Whether it shall be.
    fn is_due(&self) -> bool {
        self.compaction_error.is_none() && !(self.to_compact.is_empty() && self.to_flush.is_empty())
    }

    /// Whether somebody who looks for it may find it now. In families that are kept out nobody does: those who wait would only wake each other.
    fn can_begin(&self) -> bool {
        let is_kept_out = |id| self.manual.get(id) == Some(&KeptOut::All);
        !self.to_flush.is_empty() || !self.to_compact.iter().all(is_kept_out)
    }
}

#[cfg(test)]
mod tests;
